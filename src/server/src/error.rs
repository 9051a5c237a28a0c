//! What can go wrong between a handler and its client, as values.
//!
//! Never decides anything: each error is said by who met it.

use std::fmt;
use std::io;
use std::net::SocketAddr;

use bytes::Bytes;
use rejoin_proto::http::BadName;
use rejoin_proto::ids::CallId;
use rejoin_proto::refusal::{RPC_HEADER_MISMATCH, RPC_INTERNAL, RPC_MISSING_CAPABILITY, RPC_OTHER};
use rejoin_proto::shard::io::{Emission, NotTaken};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::json::Json;

/// A JSON-RPC error object: what a handler refuses a request with, or a client one of ours.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RpcError {
    /// Its code.
    pub code: i64,
    /// Its message, for people.
    pub message: String,
    /// Anything else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data: Option<Box<RawValue>>,
    /// What there is too much of, where that is why.
    #[serde(skip)]
    shed: Option<&'static str>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), data: None, shed: None }
    }

    /// There is no room for it: an `initialize` that is refused with this gets 503 `shed`, any other call the same as an error.
    pub fn shed(why: &'static str) -> Self {
        Self { shed: Some(why), ..Self::new(RPC_OTHER.into(), why) }
    }

    /// JSON-RPC 2.0, section 5.1: "The method does not exist / is not available."
    pub fn method_not_found(method: &str) -> Self {
        Self::new(-32601, format!("Method not found: {method}"))
    }

    /// JSON-RPC 2.0, section 5.1: "Invalid method parameter(s)."
    pub fn invalid_params(why: impl fmt::Display) -> Self {
        Self::new(-32602, format!("Invalid params: {why}"))
    }

    /// MCP 2026-07-28, basic, "Per-request protocol fields": "If processing a request requires a capability the client did not include […],
    /// the server MUST return a `MissingRequiredClientCapabilityError` (`-32021`) whose `data.requiredCapabilities` lists the missing
    /// capabilities." They are keys of an object, as a client declares them: `{ "sampling": {} }`.
    pub fn missing_capability(required: &serde_json::Value) -> Self {
        let mut error = Self::new(RPC_MISSING_CAPABILITY.into(), "The client did not declare a capability that this needs");
        error.data = serde_json::value::to_raw_value(&serde_json::json!({ "requiredCapabilities": required })).ok();
        error
    }

    /// MCP 2026-07-28, Streamable HTTP, "Server Validation": `HeaderMismatch`.
    pub fn header_mismatch(why: impl fmt::Display) -> Self {
        Self::new(RPC_HEADER_MISMATCH.into(), format!("Header mismatch: {why}"))
    }

    /// JSON-RPC 2.0, section 5.1: "Internal JSON-RPC error."
    pub fn internal(why: impl fmt::Display) -> Self {
        Self::new(RPC_INTERNAL.into(), format!("Internal error: {why}"))
    }

    /// It, as the end of a call.
    pub(crate) fn ending(self, call: CallId) -> Emission {
        match self.shed {
            Some(why) => Emission::Shed { call, why },
            None => Emission::Error { call, error: self.into_bytes() },
        }
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        Json::new(&self).map_or_else(|_| Bytes::from_static(br#"{"code":-32603,"message":"Internal error"}"#), Json::into_bytes)
    }
}

impl fmt::Display for RpcError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.message, self.code)
    }
}

impl std::error::Error for RpcError {}

/// What became of something emitted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Emitted {
    /// The event log holds it (said on the session's own shard).
    Logged,
    /// It is in the shard's mailbox, and will be told to the log in order (said on any other thread).
    Queued,
}

/// Why something was not emitted. Nothing of it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EmitError {
    /// The kernel did not take it.
    NotTaken(NotTaken),
    /// The shard's mailbox is full (`try_` methods; the others wait, unless tens of thousands wait already).
    Full,
    /// The value does not encode as JSON.
    Encoding,
    /// The client gave the call no progress token: it wants no progress.
    NoProgressToken,
    /// The server has stopped.
    Stopped,
}

impl From<NotTaken> for EmitError {
    fn from(why: NotTaken) -> Self {
        Self::NotTaken(why)
    }
}

impl fmt::Display for EmitError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NotTaken(why) => why_not(*why),
            Self::Full => "the shard's mailbox is full",
            Self::Encoding => "the value does not encode as JSON",
            Self::NoProgressToken => "the call has no progress token",
            Self::Stopped => "the server has stopped",
        })
    }
}

impl std::error::Error for EmitError {}

/// `NotTaken` in words.
pub(crate) fn why_not(why: NotTaken) -> &'static str {
    match why {
        NotTaken::SessionEnded => "the session has ended",
        NotTaken::CallEnded => "the call has ended",
        NotTaken::LogFull => "the event log has no room",
        NotTaken::TooLarge => "the message is larger than this server admits",
        NotTaken::TooManyRequests => "the session has too many unanswered requests",
        NotTaken::JsonOnly => "the answer is one JSON body: nothing else can reach the client",
        NotTaken::NoSession => "the call has no session: its client cannot be asked, and hears nothing but its answer",
        NotTaken::Malformed => "the message is not valid",
    }
}

/// Why a request to the client has no result.
#[derive(Clone, Debug)]
pub enum RequestError {
    /// It was not sent.
    NotSent(EmitError),
    /// The client answered with an error.
    Rpc(RpcError),
    /// It will not be answered: its age, its eviction, or the session's end.
    Unanswered,
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotSent(why) => write!(f, "not sent: {why}"),
            Self::Rpc(error) => write!(f, "the client answered: {error}"),
            Self::Unanswered => f.write_str("it will not be answered"),
        }
    }
}

impl std::error::Error for RequestError {}

/// Why a server did not start.
#[derive(Debug)]
pub enum StartError {
    /// The address cannot be listened on.
    Listen(SocketAddr, io::Error),
    /// The driver that was asked for is not usable here.
    Driver(io::Error),
    /// A shard's thread or runtime could not be made.
    Shard(io::Error),
    /// An allowed host or origin cannot be one.
    Name(BadName),
    /// The builder was told something impossible; says what.
    Invalid(&'static str),
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Listen(address, error) => write!(f, "cannot listen on {address}: {error}"),
            Self::Driver(error) => write!(f, "io_uring is not usable here: {error}"),
            Self::Shard(error) => write!(f, "cannot start a shard: {error}"),
            Self::Name(error) => error.fmt(f),
            Self::Invalid(what) => f.write_str(what),
        }
    }
}

impl std::error::Error for StartError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Listen(_, error) | Self::Driver(error) | Self::Shard(error) => Some(error),
            Self::Name(error) => Some(error),
            Self::Invalid(_) => None,
        }
    }
}
