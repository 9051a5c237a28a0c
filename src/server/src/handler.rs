//! What an embedder implements: one handler a shard, which is told what clients say and answers through handles.
//!
//! Never sees a connection, a stream or an id of a message: which answer belongs to which request is the kernel's business.

use std::future::Future;

use rejoin_proto::refusal::Ended;
use rejoin_proto::shard::io::Cancelled;

use crate::call::Call;
use crate::error::RpcError;
use crate::json::Json;
use crate::session::Session;

/// A handler of one shard.
///
/// It is made on its shard's thread by the factory that [`Builder::serve`](crate::Builder::serve) takes, and its futures run there:
/// nothing needs to be `Send`, and nothing may block (every session of the shard would wait). Work that blocks, or that belongs to
/// another runtime, takes a clone of the [`Call`] or [`Session`] with it; [`Sent`](crate::Sent) does that for a whole handler.
///
/// A panic fails the call that it happened in with a JSON-RPC error, and nothing else.
pub trait Handler: 'static {
    /// Whether it also serves revisions without sessions (2026-07-28). Its [`request`](Self::request) then gets calls that
    /// [`Call::stateless`] tells apart, `server/discover` and `subscriptions/listen` among them, and nothing else is said of those: no
    /// [`initialize`](Self::initialize) came before, and no [`closed`](Self::closed) follows. Where it does not, clients that speak both
    /// are answered so that they begin a session.
    const STATELESS: bool = false;

    /// A session begins. The result is an `InitializeResult`, whose `protocolVersion` decides the session's revision: a `2025-…` one
    /// that rejoin knows, or 2024-11-05, which is served as 2025-03-26. An error leaves no session; [`RpcError::shed`] is told as 503.
    fn initialize(&self, session: &Session, params: &Json) -> impl Future<Output = Result<Json, RpcError>>;

    /// A request of the client. Returning answers it, except with [`Reply::Later`].
    ///
    /// The future is dropped when the call is cancelled: by the client, by its age, by its session's end.
    fn request(&self, call: &Call) -> impl Future<Output = Result<Reply, RpcError>>;

    /// A notification of the client, `notifications/initialized` among them.
    fn notification(&self, session: &Session, method: &str, params: Option<&Json>) -> impl Future<Output = ()> {
        let _ = (session, method, params);
        async {}
    }

    /// A call needs no answer any more; said just before its future is dropped.
    fn cancelled(&self, call: &Call, why: Cancelled) {
        let _ = (call, why);
    }

    /// The session has a new incarnation: calls of the old one were cancelled.
    fn rotated(&self, session: &Session) {
        let _ = session;
    }

    /// The session has ended; nothing of it follows.
    fn closed(&self, session: &Session, why: Ended) {
        let _ = (session, why);
    }
}

/// How a request is answered.
#[derive(Clone, Debug)]
pub enum Reply {
    /// With this result.
    Now(Json),
    /// By a clone of the call, elsewhere. When the last one is dropped unanswered, the client gets an error.
    Later,
}

impl From<Json> for Reply {
    fn from(result: Json) -> Self {
        Self::Now(result)
    }
}

impl From<serde_json::Value> for Reply {
    fn from(result: serde_json::Value) -> Self {
        Self::Now(result.into())
    }
}
