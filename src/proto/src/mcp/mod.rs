//! What an MCP body means: revisions, JSON-RPC envelopes, the few fields that the kernel reads or rewrites, and which ids were seen.
//!
//! Never decides what a client is answered (that is `session` and `resume`), never looks into a tool's arguments or results, and
//! leaves every byte that it need not change as it came.

mod fields;
mod id;
mod json;
mod message;
mod records;
mod revision;
mod rewrite;
mod seen;
mod stateless;
mod write;

pub use fields::{
    ListChanged, cancelled_request, idempotency_key, integer_at, list_changed, protocol_version, requested_version, resource_uri,
    text_at, without_meta,
};
pub use id::{Id, Large};
pub use json::{is_json, is_json_object};
pub use message::{Body, Message, Notification, Request, Response, parse};
pub use records::{CallIds, Execution, Presented};
pub use revision::{Revision, Rules, explain};
pub use rewrite::{
    progress_for_client, progress_token, put_progress_token, put_subscription, take_progress_token, with_result_type,
};
pub use seen::{Overflow, SeenIds};
pub use stateless::{
    LISTEN, SUBSCRIPTION, check_standard_headers, check_version_header, decode_header, named_revision, required_meta,
};
pub use write::{write_error, write_notification, write_request, write_result};
