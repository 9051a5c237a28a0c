//! What the two sides of a session share: the calls that its service holds, and its requests to the client that are under way.
//!
//! The shard's side is an [`Inlet`], the service's a transport. Never waits with its lock held.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin::{Call, Json, RpcError, Session};
use rmcp::model::{ClientJsonRpcMessage, RequestId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

/// Messages of a session that wait for its service. Reason: as many as calls that a session may have in flight by default, so that a
/// service which is only slow to start holds nobody up; past it a request waits on its shard, and a notification is dropped.
pub(crate) const INBOX: usize = 256;

/// A message for the service.
pub(crate) enum Inbound {
    /// A call: forgotten already if it was cancelled meanwhile.
    Call(u64, ClientJsonRpcMessage),
    /// Anything else.
    Other(ClientJsonRpcMessage),
}

/// What both sides know of a session.
pub(crate) struct Link {
    session: Session,
    state: Mutex<State>,
    dropped: AtomicU64,
}

#[derive(Default)]
struct State {
    /// By number; those that wait for an answer.
    calls: HashMap<u64, Call>,
    /// The service's requests to the client, by its ids.
    asked: HashMap<RequestId, AbortHandle>,
    /// Who waits for the answer to `initialize`.
    initialize: Option<oneshot::Sender<Result<Json, RpcError>>>,
}

impl Link {
    pub(crate) fn new(session: Session, initialize: oneshot::Sender<Result<Json, RpcError>>) -> Arc<Self> {
        let state = State { initialize: Some(initialize), ..State::default() };
        Arc::new(Self { session, state: Mutex::new(state), dropped: AtomicU64::new(0) })
    }

    pub(crate) fn session(&self) -> &Session {
        &self.session
    }

    /// Nothing panics while it is locked.
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The answer to `initialize`. The first one counts, and only while somebody waits for it.
    pub(crate) fn initialized(&self, answer: Result<Json, RpcError>) {
        if let Some(waiting) = self.state().initialize.take() {
            let _ = waiting.send(answer);
        }
    }

    pub(crate) fn hold(&self, call: &Call) {
        self.state().calls.insert(call.number(), call.clone());
    }

    /// Whether a call still waits for its answer.
    pub(crate) fn holds(&self, call: u64) -> bool {
        self.state().calls.contains_key(&call)
    }

    pub(crate) fn call(&self, call: u64) -> Option<Call> {
        self.state().calls.get(&call).cloned()
    }

    pub(crate) fn take(&self, call: u64) -> Option<Call> {
        self.state().calls.remove(&call)
    }

    /// Notes a request to the client that `spawn` begins, which may end before this returns.
    pub(crate) fn ask(&self, id: RequestId, spawn: impl FnOnce() -> AbortHandle) {
        let mut state = self.state();
        let task = spawn();
        state.asked.insert(id, task);
    }

    /// Forgets a request to the client.
    pub(crate) fn asked(&self, id: &RequestId) -> Option<AbortHandle> {
        self.state().asked.remove(id)
    }

    /// The service is no more: whoever waits for something of it is told. Dropping a call unanswered is an error to its client.
    pub(crate) fn end(&self) {
        let State { calls, asked, initialize } = std::mem::take(&mut *self.state());
        asked.into_values().for_each(|task| task.abort());
        drop((calls, initialize));
    }
}

/// The shard's side of a session. Dropped, the service's transport is at its end.
pub(crate) struct Inlet {
    link: Arc<Link>,
    inbox: mpsc::Sender<Inbound>,
    cancels: mpsc::UnboundedSender<u64>,
    service: AbortHandle,
}

impl Inlet {
    pub(crate) fn new(
        link: Arc<Link>,
        inbox: mpsc::Sender<Inbound>,
        cancels: mpsc::UnboundedSender<u64>,
        service: AbortHandle,
    ) -> Self {
        Self { link, inbox, cancels, service }
    }

    pub(crate) fn link(&self) -> &Arc<Link> {
        &self.link
    }

    /// Where calls are put, by whoever can wait for room.
    pub(crate) fn inbox(&self) -> mpsc::Sender<Inbound> {
        self.inbox.clone()
    }

    /// Tells the service of a notification, if there is room: nobody could be told to send it later.
    pub(crate) fn notify(&self, message: ClientJsonRpcMessage) {
        if let Err(mpsc::error::TrySendError::Full(_)) = self.inbox.try_send(Inbound::Other(message)) {
            let dropped = self.link.dropped.fetch_add(1, Ordering::Relaxed) + 1;
            tracing::warn!(session = ?self.link.session, dropped, "a service does not keep up: a notification was dropped");
        }
    }

    /// Cancels a call; there are no more of these than calls.
    pub(crate) fn cancel(&self, call: u64) {
        if self.link.take(call).is_some() {
            // A service that is gone has cancelled everything.
            let _ = self.cancels.send(call);
        }
    }

    /// Ends a service that has not answered `initialize`: what it is busy with does not look at its transport.
    pub(crate) fn abort(&self) {
        self.service.abort();
    }
}
