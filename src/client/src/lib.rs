//! An MCP client that is cut off and comes back.
//!
//! A call has exactly one [`Outcome`]: a result, an error, or *unknown*, and is never sent twice by itself. What happens to the session
//! meanwhile (streams that were lost, gaps, a server that forgot) comes as [`Notice`]s. All of that is decided by the machine in
//! `rejoin_proto::client`; this crate is its sockets, on `monoio` or, with the feature `tokio`, on `tokio`. Never decides anything
//! itself.
//!
//! ```
//! use rejoin_client::{CallError, Options, Outcome};
//! # use rejoin::{Call, Handler, Json, Reply, RpcError, Server, Session};
//! # struct Adder;
//! # impl Handler for Adder {
//! #     async fn initialize(&self, _: &Session, _: &Json) -> Result<Json, RpcError> {
//! #         Ok(serde_json::json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "a", "version": "1" } }).into())
//! #     }
//! #     async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
//! #         let params: serde_json::Value = call.params()?;
//! #         let (a, b) = (params["arguments"]["a"].as_i64(), params["arguments"]["b"].as_i64());
//! #         Ok(serde_json::json!({ "structuredContent": { "sum": a.unwrap() + b.unwrap() }, "content": [] }).into())
//! #     }
//! # }
//! # let server = Server::builder().shards(1).serve(|| Adder)?;
//! # let url = format!("http://{}/mcp", server.local_addr());
//! # let mut runtime = monoio::RuntimeBuilder::<monoio::LegacyDriver>::new().enable_timer().build()?;
//! # runtime.block_on(async {
//! let (client, mut events) = rejoin_client::monoio::connect(&url, Options::default()).await?;
//! match client.call_tool("add", serde_json::json!({ "a": 1, "b": 2 })).await {
//!     Outcome::Result(json) => assert!(json.ends_with(br#""structuredContent":{"sum":3}}"#)),
//!     Outcome::Error(CallError::Answered(error)) => println!("the tool failed: {error:?}"),
//!     Outcome::Error(never_ran) => println!("it did not run: {never_ran}"),
//!     Outcome::Unknown(why) => println!("it may have run ({why}): find out before you call again"),
//! }
//! client.end().await;
//! while let Some(notice) = events.next().await {
//!     println!("{notice:?}");
//! }
//! #   server.shutdown(std::time::Duration::from_secs(1));
//! #   Ok::<(), Box<dyn std::error::Error>>(())
//! # })?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]
#![cfg_attr(
    not(any(feature = "monoio", feature = "tokio")),
    allow(dead_code, reason = "without a runtime there are endpoints and the wire, and nobody who runs a session")
)]

mod events;
mod handle;
mod line;
#[cfg(feature = "monoio")]
pub mod monoio;
mod options;
mod session;
#[cfg(feature = "tokio")]
pub mod tokio;
mod wire;

pub use events::{Events, Notice, ServerRequest};
pub use handle::{CallSettings, Client, Progress, Running};
pub use options::{BadEndpoint, Endpoint, Options, endpoint, trusting};
pub use session::ConnectError;
pub use wire::Wire;

pub use rejoin_proto::client::{
    AnswerSeen, BodySeen, CallError, CallId, ConnId, Ended, EventSeen, Failure, Gap, Limits, Loss, NotTaken, Observer, Outcome,
    Purpose, Refused, RequestKey, StartError, StreamEnd, StreamKey, Undelivered, Unknown, Violation,
};
