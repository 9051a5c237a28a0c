//! A session as handlers hold it: a handle to say something on its standalone stream, ask its client, close or rotate it.
//!
//! Holds no state of the session: that is its shard's. A handle of a session that has ended says so, and does no harm.

use std::fmt;
use std::rc::Rc;
use std::sync::Arc;

use futures_channel::oneshot;
use rejoin_proto::http::Head;
use rejoin_proto::ids::{ClientRequestId, Principal, SessionId};
use rejoin_proto::shard::io::{Command, Emission, Input, NotTaken, Outcome, Target};
use serde::Serialize;

use crate::error::{EmitError, Emitted, RequestError, RpcError};
use crate::json::{self, Json};
use crate::mail::{Asked, Left, Mail, Remote};
use crate::shard::Local;

/// A session, from any thread.
///
/// What it emits is in the order in which it was emitted, for each thread. On the session's own shard everything happens at once, and
/// the answer is the event log's; from any other thread it goes through the shard's mailbox: `try_` methods refuse when that is
/// full, the others wait for room.
#[derive(Clone)]
pub struct Session {
    id: SessionId,
    principal: Principal,
    remote: Arc<Remote>,
    head: Option<Arc<Head>>,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.id.fmt(f)
    }
}

impl Session {
    pub(crate) fn new(id: SessionId, principal: Principal, remote: Arc<Remote>, head: Option<Arc<Head>>) -> Self {
        Self { id, principal, remote, head }
    }

    /// Its id. A secret where callers are anonymous.
    pub fn id(&self) -> SessionId {
        self.id
    }

    /// Whose it is.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// The head of the request that this handle came with (a call's, for [`Call::session`](crate::Call::session)); `None` where
    /// [`Builder::request_heads`](crate::Builder::request_heads) did not ask for it, or where the handle came with no request.
    pub fn head(&self) -> Option<&Head> {
        self.head.as_deref()
    }

    pub(crate) fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    /// Sends a notification on the session's standalone stream. Params that encode as `null` are none.
    pub async fn notify(&self, method: &str, params: impl Serialize) -> Result<Emitted, EmitError> {
        self.emit(notification(Target::Standalone, method, params)?).await
    }

    /// [`notify`](Self::notify), without waiting.
    pub fn try_notify(&self, method: &str, params: impl Serialize) -> Result<Emitted, EmitError> {
        self.try_emit(notification(Target::Standalone, method, params)?)
    }

    /// Asks the client something on the standalone stream, and waits for its answer. Dropping the future withdraws the request.
    pub async fn request(&self, method: &str, params: impl Serialize) -> Result<Json, RequestError> {
        self.ask(Target::Standalone, method, params).await
    }

    /// Sends a notification that names no call: on the stream of the call in flight where there is exactly one, else on the standalone
    /// stream. (`notifications/progress` goes where its token says.)
    pub async fn notify_unnamed(&self, method: &str, params: impl Serialize) -> Result<Emitted, EmitError> {
        self.emit(notification(Target::Unnamed, method, params)?).await
    }

    /// Asks the client something that names no call, on the stream that [`notify_unnamed`](Self::notify_unnamed) takes. Dropping the
    /// future withdraws the request.
    pub async fn request_unnamed(&self, method: &str, params: impl Serialize) -> Result<Json, RequestError> {
        self.ask(Target::Unnamed, method, params).await
    }

    /// Ends the session: its clients get 404 `session_expired` with the reason `closed`.
    pub async fn close(&self) -> Result<(), EmitError> {
        command(&self.remote, Command::Close(self.id)).await
    }

    /// Begins a new incarnation of the session: every stream ends, calls in flight are lost.
    pub async fn rotate(&self) -> Result<(), EmitError> {
        command(&self.remote, Command::Rotate(self.id)).await
    }

    pub(crate) fn try_emit(&self, emission: Emission) -> Result<Emitted, EmitError> {
        if let Some(local) = Local::of(&self.remote) {
            return self.emit_here(&local, emission);
        }
        self.remote.try_post(Mail::Emitted { session: self.id, emission })?;
        Ok(Emitted::Queued)
    }

    pub(crate) async fn emit(&self, emission: Emission) -> Result<Emitted, EmitError> {
        if let Some(local) = Local::of(&self.remote) {
            return self.emit_here(&local, emission);
        }
        self.remote.post(Mail::Emitted { session: self.id, emission }).await?;
        Ok(Emitted::Queued)
    }

    /// Emits straight into the kernel.
    fn emit_here(&self, local: &Rc<Local>, emission: Emission) -> Result<Emitted, EmitError> {
        let took = local.input(Input::Emitted { session: self.id, emission });
        took.unwrap_or(Ok(())).map(|()| Emitted::Logged).map_err(EmitError::from)
    }

    pub(crate) async fn ask(&self, to: Target, method: &str, params: impl Serialize) -> Result<Json, RequestError> {
        let params = json::params(params).map_err(|_| RequestError::NotSent(EmitError::Encoding))?;
        let request = self.remote.common.name_request();
        let emission = Emission::Request { to, request, method: method.into(), params };
        let (reply, answer) = oneshot::channel();
        let mail = Mail::Asked { session: self.id, emission, request, reply };
        // Not a `match`: its shard's handle would live until its end, and the future could not be sent to another thread.
        if let Some(local) = Local::of(&self.remote) {
            local.take_mail(mail);
        } else {
            self.remote.post(mail).await.map_err(|why| RequestError::NotSent(why.into()))?;
        }
        let pending = Pending { session: self, request, answered: false };
        pending.wait(answer).await
    }
}

/// A request to the client whose answer is awaited; dropped earlier, it is withdrawn.
struct Pending<'a> {
    session: &'a Session,
    request: ClientRequestId,
    answered: bool,
}

impl Pending<'_> {
    async fn wait(mut self, answer: oneshot::Receiver<Asked>) -> Result<Json, RequestError> {
        let asked = answer.await;
        self.answered = true;
        match asked {
            Ok(Ok(Outcome::Result(result))) => Ok(Json::of(result)),
            Ok(Ok(Outcome::Error(error))) => Err(RequestError::Rpc(Json::of(error).parse().unwrap_or_else(RpcError::internal))),
            Ok(Ok(Outcome::Failed)) => Err(RequestError::Unanswered),
            Ok(Err(why)) => Err(RequestError::NotSent(why.into())),
            Err(oneshot::Canceled) => Err(RequestError::NotSent(EmitError::Stopped)),
        }
    }
}

impl Drop for Pending<'_> {
    fn drop(&mut self) {
        if !self.answered {
            self.session.remote.leave(Left::Request(self.session.id, self.request));
        }
    }
}

/// A notification, encoded.
pub(crate) fn notification(to: Target, method: &str, params: impl Serialize) -> Result<Emission, EmitError> {
    let params = json::params(params).map_err(|_| EmitError::Encoding)?;
    Ok(Emission::Notification { to, method: method.into(), params })
}

/// Gives a command to the shard, here or by mail, and waits for its answer.
pub(crate) async fn command(remote: &Arc<Remote>, command: Command) -> Result<(), EmitError> {
    if let Some(local) = Local::of(remote) {
        return local.input(Input::Command(command)).unwrap_or(Ok(())).map_err(EmitError::from);
    }
    let (reply, answer) = oneshot::channel::<Result<(), NotTaken>>();
    remote.post(Mail::Commanded { command, reply }).await?;
    answer.await.map_err(|_| EmitError::Stopped)?.map_err(EmitError::from)
}
