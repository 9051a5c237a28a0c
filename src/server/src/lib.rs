//! rejoin: a transport for MCP servers that answers reconnecting clients exactly.
//!
//! A client that loses its connection in the middle of a call comes back with the last event id it saw. What it must hear then
//! (the rest of the stream, that there is a gap, that its session is gone) is decided by the kernel, `rejoin-proto`; this crate is
//! the thin shell around it. One thread a core, each with its own event loop on io_uring or epoll; a [`Handler`] that is told what
//! clients say, and handles ([`Call`], [`Session`]) that may be taken to any thread. Never decides an answer itself.
//!
//! ```
//! use rejoin::{Call, Handler, Json, Reply, RpcError, Server, Session};
//! use serde_json::json;
//! use std::io::{Read, Write};
//!
//! struct Greeter;
//!
//! impl Handler for Greeter {
//!     async fn initialize(&self, _: &Session, params: &Json) -> Result<Json, RpcError> {
//!         let asked: serde_json::Value = params.parse().map_err(RpcError::invalid_params)?;
//!         let info = json!({ "name": "greeter", "version": "1" });
//!         Ok(json!({ "protocolVersion": asked["protocolVersion"], "capabilities": {}, "serverInfo": info }).into())
//!     }
//!
//!     async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
//!         match call.method() {
//!             "ping" => Ok(json!({}).into()),
//!             other => Err(RpcError::method_not_found(other)),
//!         }
//!     }
//! }
//!
//! let server = Server::builder().shards(1).serve(|| Greeter)?;
//! let body = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{"protocolVersion":"2025-11-25"}}"#;
//! let mut client = std::net::TcpStream::connect(server.local_addr())?;
//! write!(client, "POST /mcp HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n", body.len())?;
//! write!(client, "Content-Type: application/json\r\nAccept: application/json, text/event-stream\r\n\r\n{body}")?;
//! let mut answer = String::new();
//! client.read_to_string(&mut answer)?;
//! drop(client);
//! assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains("Mcp-Session-Id: "), "{answer}");
//! server.shutdown(std::time::Duration::from_secs(1));
//! server.wait();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

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
pub use rejoin_proto::mcp::Revision;
pub use rejoin_proto::refusal::Ended;
pub use rejoin_proto::shard::counters;
pub use rejoin_proto::shard::io::{Cancelled, NotTaken, Unauthorized};
pub use rejoin_proto::shard::{Finished, ResponsePolicy, SessionView};
pub use rejoin_proto::time::Instant;
