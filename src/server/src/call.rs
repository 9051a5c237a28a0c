//! A call as handlers hold it: one execution of a client's request, to be answered once.
//!
//! Holds what the client asked and whether it was answered; the rest is its shard's. Never knows the client's id of the request.

use std::fmt;
use std::future::poll_fn;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use rejoin_proto::ids::CallId;
use rejoin_proto::mcp::Revision;
use rejoin_proto::shard::io::{Cancelled, Emission, Target};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use smallvec::SmallVec;
use tracing::Span;

use crate::error::{EmitError, Emitted, RequestError, RpcError};
use crate::json::Json;
use crate::mail::Left;
use crate::param_headers::{self, ParamHeaders};
use crate::session::{Session, notification};
use crate::trace;

/// A call, from any thread. Its methods come in two forms, as a [`Session`]'s do.
///
/// When the last clone is dropped and the call was neither answered nor cancelled, the client gets a JSON-RPC error.
#[derive(Clone)]
pub struct Call(Arc<Inner>);

struct Inner {
    session: Session,
    id: CallId,
    method: Box<str>,
    params: Option<Json>,
    progress_token: Option<Box<RawValue>>,
    stateless: Option<Stateless>,
    traceparent: Option<Box<str>>,
    span: Span,
    answered: AtomicBool,
    cancelled: Mutex<Cancellation>,
}

/// What is known of a call without a session.
pub(crate) struct Stateless {
    pub(crate) revision: Revision,
    pub(crate) param_headers: ParamHeaders,
}

#[derive(Default)]
struct Cancellation {
    why: Option<Cancelled>,
    /// One task mostly, whose every turn looks here.
    waiting: SmallVec<[Waker; 1]>,
}

/// Where the progress token stands: MCP 2025-11-25, "Progress", "Progress Flow".
#[derive(Deserialize)]
struct WithMeta {
    #[serde(default, rename = "_meta")]
    meta: Option<Meta>,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(default, rename = "progressToken")]
    progress_token: Option<Box<RawValue>>,
    #[serde(default)]
    traceparent: Option<Box<RawValue>>,
}

/// The params of `notifications/progress`.
#[derive(Serialize)]
struct Progress<'a> {
    #[serde(rename = "progressToken")]
    progress_token: &'a RawValue,
    progress: f64,
    #[serde(skip_serializing_if = "Option::is_none")]
    total: Option<f64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<&'a str>,
}

impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "call {} ({}) of {:?}", self.0.id.0, self.0.method, self.0.session)
    }
}

impl Call {
    /// `traceparent` is its request's field.
    pub(crate) fn new(session: Session, id: CallId, method: Box<str>, params: Option<Bytes>, traceparent: Option<&str>) -> Self {
        Self::make(session, id, method, params, traceparent, None)
    }

    pub(crate) fn without_session(
        session: Session,
        id: CallId,
        stateless: Stateless,
        method: Box<str>,
        params: Bytes,
        traceparent: Option<&str>,
    ) -> Self {
        Self::make(session, id, method, Some(params), traceparent, Some(stateless))
    }

    fn make(
        session: Session,
        id: CallId,
        method: Box<str>,
        params: Option<Bytes>,
        traceparent: Option<&str>,
        stateless: Option<Stateless>,
    ) -> Self {
        let params = params.map(Json::of);
        let meta = params.as_ref().and_then(|params| params.parse::<WithMeta>().ok()).and_then(|with| with.meta);
        let (progress_token, written) = meta.map_or((None, None), |meta| (meta.progress_token, meta.traceparent));
        let traceparent = trace::parent(written.as_deref(), traceparent);
        let span = trace::call(&session, id, &method, traceparent.as_deref());
        Self(Arc::new(Inner {
            session,
            id,
            method,
            params,
            stateless,
            progress_token,
            traceparent,
            span,
            answered: AtomicBool::new(false),
            cancelled: Mutex::default(),
        }))
    }

    /// The revision that it speaks, where it has no session (2026-07-28): what its client can do stands in its params' `_meta`, its
    /// result may ask for input (`resultType`), nothing can be asked on the way, and closing its connection cancels it.
    /// On a `subscriptions/listen`, notifications get the subscription's id by themselves, and so does a result: the call is kept until it is
    /// cancelled, or until an answer ends it.
    pub fn stateless(&self) -> Option<Revision> {
        self.0.stateless.as_ref().map(|stateless| stateless.revision)
    }

    /// Whether the head of a call without a session repeats those arguments that the tool's schema marks with `x-mcp-header`. The error is
    /// the one that the client must get. Calls of a session have no such fields, and are always right.
    pub fn check_param_headers(&self, schema: &serde_json::Value, arguments: &serde_json::Value) -> Result<(), RpcError> {
        match &self.0.stateless {
            Some(stateless) => param_headers::check(&stateless.param_headers, schema, arguments),
            None => Ok(()),
        }
    }

    /// The session that it belongs to. A call without one has a session to itself, of which no client knows and which ends with it.
    pub fn session(&self) -> &Session {
        &self.0.session
    }

    /// Its number: unique among its session's calls, and never 0. The progress token in its params, where there is one, is the same.
    pub fn number(&self) -> u64 {
        self.0.id.0
    }

    /// The method asked for.
    pub fn method(&self) -> &str {
        &self.0.method
    }

    /// The params, where there are any.
    pub fn raw_params(&self) -> Option<&Json> {
        self.0.params.as_ref()
    }

    /// The params, parsed; none are an empty object. The error is the one that the client should get.
    pub fn params<'a, T: Deserialize<'a>>(&'a self) -> Result<T, RpcError> {
        match &self.0.params {
            Some(params) => params.parse().map_err(RpcError::invalid_params),
            None => serde_json::from_str("{}").map_err(RpcError::invalid_params),
        }
    }

    /// The caller's place in its trace: `_meta.traceparent`, else the field `traceparent` of the HTTP request. Only what W3C's Trace Context,
    /// section 3.2, calls valid.
    pub fn traceparent(&self) -> Option<&str> {
        self.0.traceparent.as_deref()
    }

    /// Its span, in which the handler's future runs: `call` at level DEBUG, with its session, number, method and `traceparent`, inside
    /// of its session's span. For work elsewhere: `future.instrument(call.span().clone())`.
    pub fn span(&self) -> &Span {
        &self.0.span
    }

    /// Answers with a result. After the first answer that was taken, every other is refused (`CallEnded`).
    pub async fn respond(&self, result: impl Into<Json>) -> Result<Emitted, EmitError> {
        self.answer(Emission::Result { call: self.0.id, result: result.into().into_bytes() }).await
    }

    /// [`respond`](Self::respond), without waiting.
    pub fn try_respond(&self, result: impl Into<Json>) -> Result<Emitted, EmitError> {
        self.try_answer(Emission::Result { call: self.0.id, result: result.into().into_bytes() })
    }

    /// Answers with an error.
    pub async fn fail(&self, error: RpcError) -> Result<Emitted, EmitError> {
        self.answer(error.ending(self.0.id)).await
    }

    /// [`fail`](Self::fail), without waiting.
    pub fn try_fail(&self, error: RpcError) -> Result<Emitted, EmitError> {
        self.try_answer(error.ending(self.0.id))
    }

    async fn answer(&self, emission: Emission) -> Result<Emitted, EmitError> {
        let claim = Claim::of(&self.0)?;
        claim.settle(self.0.session.emit(emission).await)
    }

    fn try_answer(&self, emission: Emission) -> Result<Emitted, EmitError> {
        let claim = Claim::of(&self.0)?;
        claim.settle(self.0.session.try_emit(emission))
    }

    /// Sends a notification on the call's stream. Params that encode as `null` are none.
    pub async fn notify(&self, method: &str, params: impl Serialize) -> Result<Emitted, EmitError> {
        self.0.session.emit(notification(Target::Call(self.0.id), method, params)?).await
    }

    /// [`notify`](Self::notify), without waiting.
    pub fn try_notify(&self, method: &str, params: impl Serialize) -> Result<Emitted, EmitError> {
        self.0.session.try_emit(notification(Target::Call(self.0.id), method, params)?)
    }

    /// Whether the client gave a progress token: whether it wants progress.
    pub fn wants_progress(&self) -> bool {
        self.0.progress_token.is_some()
    }

    /// Sends `notifications/progress`. `progress` must grow with each; `total` is what it grows to, where that is known.
    pub async fn progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) -> Result<Emitted, EmitError> {
        self.0.session.emit(self.progress_notification(progress, total, message)?).await
    }

    /// [`progress`](Self::progress), without waiting.
    pub fn try_progress(&self, progress: f64, total: Option<f64>, message: Option<&str>) -> Result<Emitted, EmitError> {
        self.0.session.try_emit(self.progress_notification(progress, total, message)?)
    }

    fn progress_notification(&self, progress: f64, total: Option<f64>, message: Option<&str>) -> Result<Emission, EmitError> {
        let progress_token = self.0.progress_token.as_deref().ok_or(EmitError::NoProgressToken)?;
        let params = Progress { progress_token, progress, total, message };
        notification(Target::Call(self.0.id), "notifications/progress", params)
    }

    /// Asks the client something on the call's stream (sampling, elicitation, roots), and waits for its answer. Dropping the future
    /// withdraws the request.
    pub async fn request(&self, method: &str, params: impl Serialize) -> Result<Json, RequestError> {
        self.0.session.ask(Target::Call(self.0.id), method, params).await
    }

    /// Ends the connections that wait for the call's answer, so that none is held while it takes long: the client comes back after
    /// `retry` (or the server's own, where it is `None`; never later than `limits.retry_max`) and gets what was said meanwhile. The call
    /// itself goes on. Without effect where a client could not come back: before 2025-11-25, and where answers are JSON bodies.
    pub async fn hang_up(&self, retry: Option<Duration>) -> Result<Emitted, EmitError> {
        self.0.session.emit(Emission::HangUp { call: self.0.id, retry }).await
    }

    /// [`hang_up`](Self::hang_up), without waiting.
    pub fn try_hang_up(&self, retry: Option<Duration>) -> Result<Emitted, EmitError> {
        self.0.session.try_emit(Emission::HangUp { call: self.0.id, retry })
    }

    /// Why the call needs no answer any more, once it does not.
    pub fn is_cancelled(&self) -> Option<Cancelled> {
        self.0.cancellation().why
    }

    /// Waits until the call needs no answer any more; for ever, where it is answered first.
    pub async fn cancelled(&self) -> Cancelled {
        poll_fn(|cx| self.poll_cancelled(cx)).await
    }

    pub(crate) fn poll_cancelled(&self, cx: &mut Context<'_>) -> Poll<Cancelled> {
        let mut cancelled = self.0.cancellation();
        if let Some(why) = cancelled.why {
            return Poll::Ready(why);
        }
        if !cancelled.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            cancelled.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }

    /// Whether an answer was taken.
    pub(crate) fn answered(&self) -> bool {
        self.0.answered.load(Ordering::Acquire)
    }

    pub(crate) fn id(&self) -> CallId {
        self.0.id
    }

    pub(crate) fn downgrade(&self) -> WeakCall {
        WeakCall(Arc::downgrade(&self.0))
    }

    pub(crate) fn cancel(&self, why: Cancelled) {
        let waiting = {
            let mut cancelled = self.0.cancellation();
            cancelled.why = Some(why);
            std::mem::take(&mut cancelled.waiting)
        };
        for waker in waiting {
            waker.wake();
        }
    }
}

impl Inner {
    /// A panic while it was locked cannot have left it half changed.
    fn cancellation(&self) -> std::sync::MutexGuard<'_, Cancellation> {
        self.cancelled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let cancelled = self.cancelled.get_mut().unwrap_or_else(PoisonError::into_inner).why.is_some();
        if !cancelled && !*self.answered.get_mut() {
            self.session.remote().leave(Left::Call(self.session.id(), self.id));
        }
    }
}

/// A call that a shard knows of without keeping it from being dropped.
pub(crate) struct WeakCall(std::sync::Weak<Inner>);

impl WeakCall {
    pub(crate) fn upgrade(&self) -> Option<Call> {
        self.0.upgrade().map(Call)
    }
}

/// The right to answer, which one holder has at a time: an answer that was not taken gives it back.
struct Claim<'a>(&'a Inner);

impl<'a> Claim<'a> {
    fn of(call: &'a Inner) -> Result<Self, EmitError> {
        let free = call.answered.compare_exchange(false, true, Ordering::AcqRel, Ordering::Acquire).is_ok();
        if free { Ok(Self(call)) } else { Err(rejoin_proto::shard::io::NotTaken::CallEnded.into()) }
    }

    fn settle(self, outcome: Result<Emitted, EmitError>) -> Result<Emitted, EmitError> {
        if outcome.is_ok() {
            std::mem::forget(self);
        }
        outcome
    }
}

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        self.0.answered.store(false, Ordering::Release);
    }
}
