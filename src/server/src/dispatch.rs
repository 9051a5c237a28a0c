//! From the kernel's deliveries to the handler's futures: one task a call, dropped when the call is cancelled.
//!
//! Never runs handler code inside the kernel, and never lets a handler's panic out.

use std::cell::{Cell, RefCell};
use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use rejoin_proto::http::Head;
use rejoin_proto::ids::{CallId, Principal, SessionId};
use rejoin_proto::shard::io::{Cancelled, Delivery, NotTaken};
use tracing::Instrument;

use crate::call::{Call, Stateless, WeakCall};
use crate::error::{EmitError, RpcError, why_not};
use crate::handler::{Handler, Reply};
use crate::json::Json;
use crate::mail::Left;
use crate::session::Session;
use crate::shard::Local;
use crate::task::{self, Caught};
use crate::trace;

/// Gives deliveries to a handler of any type.
pub(crate) trait Deliver {
    /// Never calls back into the kernel before it returns, other than through the handler's own handles.
    fn deliver(&self, local: &Rc<Local>, session: SessionId, delivery: Delivery);
}

/// A shard's handler, with what must be remembered of sessions and calls to call it.
pub(crate) struct Dispatch<H> {
    handler: Rc<H>,
    principals: Principals,
    calls: Rc<Calls>,
}

/// Whose the sessions are that the handler knows, by slot: a session's end is told before its slot is another's.
#[derive(Default)]
struct Principals(RefCell<Vec<Option<Principal>>>);

impl Principals {
    fn insert(&self, session: SessionId, principal: Principal) {
        let (mut table, slot) = (self.0.borrow_mut(), session.slot().0 as usize);
        let vacant = (slot + 1).saturating_sub(table.len());
        if slot >= table.capacity() {
            // By an eighth: doubling would cost each session as much again.
            let more = vacant.max(table.len() / 8);
            table.reserve_exact(more);
        }
        table.extend(std::iter::repeat_n(None, vacant));
        table[slot] = Some(principal);
    }

    fn get(&self, session: SessionId) -> Option<Principal> {
        self.0.borrow().get(session.slot().0 as usize)?.clone()
    }

    fn remove(&self, session: SessionId) -> Option<Principal> {
        self.0.borrow_mut().get_mut(session.slot().0 as usize)?.take()
    }
}

/// The calls that a handler may hold, until they are dropped.
#[derive(Default)]
struct Calls {
    held: RefCell<HashMap<CallId, WeakCall>>,
    /// The size at which those that were dropped elsewhere are looked for.
    sweep_at: Cell<usize>,
}

/// The smallest table of calls that is worth a sweep.
const SWEEP_MIN: usize = 64;

impl Calls {
    fn insert(&self, call: &Call) {
        let mut held = self.held.borrow_mut();
        held.insert(call.id(), call.downgrade());
        if held.len() > self.sweep_at.get().max(SWEEP_MIN) {
            held.retain(|_, call| call.upgrade().is_some());
            // Twice what is left: each sweep is paid for by as many insertions.
            self.sweep_at.set(held.len() * 2);
        }
    }

    fn forget(&self, call: &Call) {
        self.held.borrow_mut().remove(&call.id());
    }

    fn take(&self, call: CallId) -> Option<Call> {
        self.held.borrow_mut().remove(&call)?.upgrade()
    }
}

impl<H: Handler> Dispatch<H> {
    pub(crate) fn new(handler: H) -> Rc<Self> {
        Rc::new(Self { handler: Rc::new(handler), principals: Principals::default(), calls: Rc::default() })
    }

    fn session(&self, local: &Rc<Local>, id: SessionId, head: Option<Arc<Head>>) -> Option<Session> {
        Some(Session::new(id, self.principals.get(id)?, Arc::clone(local.remote()), head))
    }

    fn begin(&self, local: &Rc<Local>, session: Session, call: CallId, params: Bytes, traceparent: Option<&str>) {
        self.principals.insert(session.id(), session.principal().clone());
        trace::session_begins(&session);
        let call = Call::new(session, call, "initialize".into(), Some(params), traceparent);
        self.calls.insert(&call);
        let (handler, calls) = (Rc::clone(&self.handler), Rc::clone(&self.calls));
        local.spawn(async move {
            let Some(params) = call.raw_params() else { return };
            let work = async { handler.initialize(call.session(), params).await.map(Reply::Now) };
            answer(&call, work).await;
            calls.forget(&call);
        });
    }

    fn answer(&self, local: &Rc<Local>, call: Call) {
        self.calls.insert(&call);
        let (handler, calls) = (Rc::clone(&self.handler), Rc::clone(&self.calls));
        local.spawn(async move {
            answer(&call, async { handler.request(&call).await }).await;
            if call.answered() {
                calls.forget(&call);
            }
        });
    }

    fn notification(&self, local: &Rc<Local>, session: Session, method: Box<str>, params: Option<Bytes>) {
        let handler = Rc::clone(&self.handler);
        local.spawn(async move {
            let params = params.map(Json::of);
            let span = trace::session(session.id());
            if let Err(panic) = Caught::new(handler.notification(&session, &method, params.as_ref()).instrument(span)).await {
                trace::notification_panicked(&panic, &method);
            }
        });
    }

    fn cancelled(&self, call: CallId, why: Cancelled) {
        let Some(call) = self.calls.take(call) else { return };
        if !call.answered() {
            guarded("cancelled", || self.handler.cancelled(&call, why));
        }
        call.cancel(why);
    }
}

impl<H: Handler> Deliver for Dispatch<H> {
    fn deliver(&self, local: &Rc<Local>, id: SessionId, delivery: Delivery) {
        match delivery {
            Delivery::Initialize { principal, call, params, head, traceparent } => {
                let session = Session::new(id, principal, Arc::clone(local.remote()), head);
                self.begin(local, session, call, params, traceparent.as_deref());
            }
            Delivery::Request { call, method, params, head, traceparent } => match self.session(local, id, head) {
                Some(session) => self.answer(local, Call::new(session, call, method, params, traceparent.as_deref())),
                // A session that the handler was never told of, which the kernel rules out: the call is not left hanging all the same.
                None => local.remote().leave(Left::Call(id, call)),
            },
            Delivery::Exchange { principal, call, revision, method, params, param_headers, head, traceparent } => {
                let session = Session::new(id, principal, Arc::clone(local.remote()), head);
                let stateless = Stateless { revision, param_headers };
                self.answer(local, Call::without_session(session, call, stateless, method, params, traceparent.as_deref()));
            }
            Delivery::Notification { method, params, head } => {
                if let Some(session) = self.session(local, id, head) {
                    self.notification(local, session, method, params);
                }
            }
            Delivery::Cancelled { call, why } => self.cancelled(call, why),
            Delivery::Response { request, outcome } => local.answered(request, outcome),
            Delivery::Rotated => {
                if let Some(session) = self.session(local, id, None) {
                    guarded("rotated", || self.handler.rotated(&session));
                }
            }
            Delivery::Closed { why } => {
                trace::session_ends(id);
                if let Some(principal) = self.principals.remove(id) {
                    let session = Session::new(id, principal, Arc::clone(local.remote()), None);
                    guarded("closed", || self.handler.closed(&session, why));
                }
            }
        }
    }
}

/// Runs a handler's future for a call to its end, its panic or the call's cancellation, and answers.
async fn answer(call: &Call, work: impl Future<Output = Result<Reply, RpcError>>) {
    let ended = {
        let mut work = pin!(Caught::new(work.instrument(call.span().clone())));
        poll_fn(|cx| match call.poll_cancelled(cx) {
            Poll::Ready(_) => Poll::Ready(None),
            Poll::Pending => work.as_mut().poll(cx).map(Some),
        })
        .await
    };
    let outcome = match ended {
        None | Some(Ok(Ok(Reply::Later))) => return,
        Some(Ok(Ok(Reply::Now(result)))) => call.try_respond(result),
        Some(Ok(Err(error))) => call.try_fail(error),
        Some(Err(panic)) => {
            tracing::error!(panic, ?call, "a handler panicked");
            call.try_fail(RpcError::internal("the handler panicked"))
        }
    };
    if let Err(EmitError::NotTaken(why)) = outcome
        && let Some(error) = instead(why)
    {
        // Where this is not taken either, the call ends by its age.
        let _ = call.try_fail(error);
    }
}

/// What a client is told in place of an answer that the kernel did not take; `None` where nobody waits for one.
pub(crate) fn instead(why: NotTaken) -> Option<RpcError> {
    match why {
        NotTaken::SessionEnded | NotTaken::CallEnded => None,
        NotTaken::LogFull
        | NotTaken::TooLarge
        | NotTaken::TooManyRequests
        | NotTaken::JsonOnly
        | NotTaken::NoSession
        | NotTaken::Malformed => Some(RpcError::internal(why_not(why))),
    }
}

/// Runs a handler's callback; its panic is logged.
fn guarded(what: &'static str, callback: impl FnOnce()) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(callback)) {
        tracing::error!(panic = task::message(&*panic), what, "a handler's callback panicked");
    }
}
