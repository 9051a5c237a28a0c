//! What the two sides of a session share: the calls that its service holds, and its requests to the client that are under way.
//!
//! The shard's side is an [`Inlet`], the service's a transport. Never waits with its lock held.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use rejoin::{Call, Json, RpcError, Session};
use rmcp::model::{ClientJsonRpcMessage, RequestId};
use tokio::sync::{mpsc, oneshot};
use tokio::task::AbortHandle;

use crate::room::{Room, Taken};

/// Messages of a session in its service's inbox. Reason: as many as calls that a session may have in flight by default, so that a
/// service which is only slow to start holds nobody up. Past it a message waits on its shard, in its order, for as long as there is room
/// for its bytes.
pub(crate) const INBOX: usize = 256;

/// Bytes of a session's messages that wait for its service, in its inbox or on the shard: of their params as they are encoded, and
/// [`ENVELOPE`] for each. A call past it is refused (`shed`), and never ran; a notification ends its session (`closed`), since it can be
/// neither answered nor silently lost. Reason: four of the largest bodies that a server admits by default.
pub(crate) const INBOX_BYTES: usize = 16 << 20;

/// Bytes that a message weighs in an inbox beside its params. Reason: about what a parsed message without any takes, with its method and
/// its request's head, so that many small ones are bounded too.
pub(crate) const ENVELOPE: usize = 1 << 10;

/// A message for the service.
pub(crate) enum Inbound {
    /// A call: forgotten already if it was cancelled meanwhile.
    Call(u64, ClientJsonRpcMessage, Taken),
    /// A notification, or the request that begins the session.
    Said(ClientJsonRpcMessage, Taken),
    /// The client's answer to a request of the service. It takes no room, since it cannot be refused: there are no more of these than
    /// `Limits::client_requests`.
    Answer(ClientJsonRpcMessage),
}

/// What both sides know of a session.
pub(crate) struct Link {
    session: Session,
    state: Mutex<State>,
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
        Arc::new(Self { session, state: Mutex::new(state) })
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

/// Why a message was not put into an inbox: more bytes would wait than may.
#[derive(Debug)]
pub(crate) struct Full;

/// The service has ended.
#[derive(Debug)]
pub(crate) struct Gone;

/// The shard's side of a session. Dropped, the service's transport is at its end.
pub(crate) struct Inlet {
    link: Arc<Link>,
    inbox: mpsc::Sender<Inbound>,
    room: Room,
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
        Self { link, inbox, room: Room::new(INBOX_BYTES), cancels, service }
    }

    /// Puts a call into the inbox, with so many bytes of params. The future waits for a place; the bytes are taken at once.
    pub(crate) fn call(
        &self,
        call: &Call,
        message: ClientJsonRpcMessage,
        params: usize,
    ) -> Result<impl Future<Output = Result<(), Gone>> + use<>, Full> {
        let taken = self.room.take(params + ENVELOPE).ok_or(Full)?;
        self.link.hold(call);
        let (inbox, link, number) = (self.inbox.clone(), Arc::clone(&self.link), call.number());
        Ok(async move {
            inbox.send(Inbound::Call(number, message, taken)).await.map_err(|_| {
                link.take(number);
                Gone
            })
        })
    }

    /// Puts a message that needs no answer into the inbox, as [`call`](Self::call) does. It is there at once where there is a place.
    pub(crate) fn put(
        &self,
        message: ClientJsonRpcMessage,
        params: usize,
    ) -> Result<impl Future<Output = Result<(), Gone>> + use<>, Full> {
        let taken = self.room.take(params + ENVELOPE).ok_or(Full)?;
        let full = match self.inbox.try_send(Inbound::Said(message, taken)) {
            Ok(()) => None,
            Err(mpsc::error::TrySendError::Full(message)) => Some((self.inbox.clone(), message)),
            Err(mpsc::error::TrySendError::Closed(_)) => None,
        };
        Ok(async move {
            match full {
                Some((inbox, message)) => inbox.send(message).await.map_err(|_| Gone),
                None => Ok(()),
            }
        })
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
