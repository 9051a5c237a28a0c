//! rejoin: a transport for MCP servers that answers reconnecting clients exactly.
#![deny(unsafe_code)]

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
mod random;
mod sent;
mod session;
mod shard;
mod socket;
mod task;
#[cfg(test)]
mod tests;
mod timer;
mod turn;
mod world;

pub use builder::{Builder, Server};
pub use call::Call;
pub use driver::Driver;
pub use error::{EmitError, Emitted, RequestError, RpcError, StartError};
pub use handle::ServerHandle;
pub use handler::{Handler, Reply};
pub use json::Json;
pub use sent::{SendHandler, Sent, Work};
pub use session::Session;
pub use world::{Anonymous, Authorize};

pub use rejoin_proto::http::Head;
pub use rejoin_proto::ids::{Key, Principal, SessionId};
pub use rejoin_proto::limits::Limits;
pub use rejoin_proto::refusal::Ended;
pub use rejoin_proto::shard::io::{Cancelled, NotTaken, Unauthorized};
pub use rejoin_proto::shard::{Finished, ResponsePolicy, SessionView};
