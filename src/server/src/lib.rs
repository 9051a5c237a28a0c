//! rejoin: a transport for MCP servers that answers reconnecting clients exactly.
//!
//! A client that loses its connection in the middle of a call comes back with the last event id it saw. What it must hear then
//! (the rest of the stream, that there is a gap, that its session is gone) is decided by the kernel, `rejoin-proto`; this crate is
//! the thin shell around it. One thread a core, each with its own event loop on io_uring or epoll; a [`Handler`] that is told what
//! clients say, and handles ([`Call`], [`Session`]) that may be taken to any thread. Never decides an answer itself.
//!
//! ```
//! use rejoin::{Call, Handler, Json, Reply, RpcError, Server, Session};
//! use serde_json::{Value, json};
//!
//! struct Greeter;
//!
//! impl Handler for Greeter {
//!     async fn initialize(&self, _: &Session, params: &Json) -> Result<Json, RpcError> {
//!         let asked: Value = params.parse().map_err(RpcError::invalid_params)?;
//!         let (info, can) = (json!({ "name": "greeter", "version": "1" }), json!({ "tools": {} }));
//!         Ok(json!({ "protocolVersion": asked["protocolVersion"], "capabilities": can, "serverInfo": info }).into())
//!     }
//!
//!     async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
//!         let takes = json!({ "type": "object", "properties": { "name": { "type": "string" } } });
//!         match call.method() {
//!             "ping" => Ok(json!({}).into()),
//!             "tools/list" => Ok(json!({ "tools": [{ "name": "greet", "inputSchema": takes }] }).into()),
//!             "tools/call" => {
//!                 let asked: Value = call.params()?;
//!                 call.notify("notifications/message", json!({ "level": "info", "data": "thinking" })).await.ok();
//!                 rejoin::sleep(std::time::Duration::from_millis(5)).await;
//!                 let text = format!("Hello, {}!", asked["arguments"]["name"].as_str().unwrap_or("you"));
//!                 Ok(json!({ "content": [{ "type": "text", "text": text }] }).into())
//!             }
//!             other => Err(RpcError::method_not_found(other)),
//!         }
//!     }
//! }
//!
//! let server = Server::builder().serve(|| Greeter)?;
//! println!("http://{}/mcp", server.local_addr());
//! # use std::io::{Read, Write};
//! # let post = |session: &str, body: &str| -> std::io::Result<String> {
//! #     let mut client = std::net::TcpStream::connect(server.local_addr())?;
//! #     write!(client, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n{session}", body.len())?;
//! #     write!(client, "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\r\n{body}")?;
//! #     let mut answer = String::new();
//! #     client.read_to_string(&mut answer)?;
//! #     Ok(answer)
//! # };
//! # let begun = post("", r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#)?;
//! # let id = begun.lines().find_map(|line| line.strip_prefix("Mcp-Session-Id: ")).expect("a session");
//! # let call = r#"{"jsonrpc":"2.0","id":2,"method":"tools/call","params":{"name":"greet","arguments":{"name":"Ada"}}}"#;
//! # let answer = post(&format!("Mcp-Session-Id: {id}\r\n"), call)?;
//! # assert!(answer.contains("thinking") && answer.contains("Hello, Ada!"), "{answer}");
//! # server.shutdown(std::time::Duration::from_secs(1));
//! # server.wait();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! # Where handlers run
//!
//! A [`Handler`]'s futures run on their shard's thread: nothing needs to be `Send`, and nothing may block. A [`SendHandler`]'s run where
//! [`Sent`] puts them, on tokio or on a pool, in one line each. Either kind may hand a clone of its [`Call`] to anybody and answer later
//! ([`Reply::Later`]). Params and results are whatever serde reads and writes: values of `serde_json`, types of one's own, or the model of
//! the crate `rmcp`, whose whole servers run here by `rejoin-rmcp`.
//!
//! # Its end
//!
//! [`ServerHandle::shutdown`] begins it with a time for what is under way, [`ServerHandle::ended`] waits for it (and
//! [`ServerHandle::wait`], where there is no runtime). A second, earlier deadline does not shorten the first.
//!
//! # What it says
//!
//! By `tracing`: events of what operators should know, and at level DEBUG a span for each session and, in it, one for each call
//! ([`Call::span`], target `rejoin::call`), with the caller's `traceparent` ([`Call::traceparent`]).
//!
//! # Features
//!
//! - `metrics` (off): the counters as metrics of a registry of `prometheus-client`.

#![deny(unsafe_code)]

mod admission;
mod builder;
mod call;
mod connection;
mod dispatch;
mod driver;
mod error;
mod handle;
mod handler;
mod json;
mod listener;
mod mail;
#[cfg(feature = "metrics")]
pub mod metrics;
mod param_headers;
mod random;
mod sent;
mod session;
mod shard;
mod socket;
mod stats;
mod task;
#[cfg(test)]
mod tests;
mod timer;
mod trace;
mod turn;
mod watch;
mod world;
mod writer;

pub use builder::{Builder, Server};
pub use call::Call;
pub use driver::Driver;
pub use error::{EmitError, Emitted, RequestError, RpcError, StartError};
pub use handle::ServerHandle;
pub use handler::{Handler, Reply};
pub use json::Json;
pub use sent::{SendHandler, Sent, Work};
pub use session::Session;
pub use shard::{sleep, yield_now};
pub use stats::{ShardSnapshot, ShardState, ShardStats};
pub use world::{Anonymous, Authorize};

/// What the shell is made of, for programs of ours that hold as many connections from the other side: drivers and sockets.
///
/// Not for embedders: it follows the shell, and knows nothing of MCP.
pub mod shell {
    pub use crate::driver::{Chosen, choose, run};
    pub use crate::socket::{Received, Written, finish, receive, reset_on_close, send, take_error};
}

pub use rejoin_proto::http::{Head, Version as HttpVersion};
pub use rejoin_proto::ids::{Incarnation, Key, Principal, SessionId};
pub use rejoin_proto::limits::Limits;
pub use rejoin_proto::mcp::{
    LISTEN as SUBSCRIPTIONS_LISTEN, Revision, SUBSCRIPTION as SUBSCRIPTION_ID, explain as explain_revisions,
};
pub use rejoin_proto::refusal::Ended;
pub use rejoin_proto::shard::counters;
pub use rejoin_proto::shard::io::{Cancelled, NotTaken, Unauthorized};
pub use rejoin_proto::shard::{Finished, ResponsePolicy, SessionView};
pub use rejoin_proto::time::Instant;
