//! What crosses from any thread to a shard, and how: a bounded mailbox with back-pressure, and a few things that must never be refused.
//!
//! Never blocks a thread, and never runs the kernel: the shard takes its mail in its own time.

use std::future::poll_fn;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::task::Poll;

use bytes::Bytes;
use crossbeam_queue::SegQueue;
use futures_channel::oneshot;
use rejoin_mailbox::{SendError, Sender};
use rejoin_proto::ids::{CallId, ClientRequestId, SessionId};
use rejoin_proto::shard::SessionView;
use rejoin_proto::shard::io::{Command, Emission, NotTaken, Outcome};
use rejoin_proto::time::Instant;

/// Messages that a shard's mailbox holds. Reason: a burst of a thousand handoffs; each waits at its sender past that.
pub(crate) const CAPACITY: usize = 1_024;

/// A message to a shard.
pub(crate) enum Mail {
    /// A connection that belongs there.
    HandedOver { descriptor: OwnedFd, bytes: Bytes, placed: bool },
    /// A handler on another thread emitted.
    Emitted { session: SessionId, emission: Emission },
    /// A handler on another thread asks the client something.
    Asked { session: SessionId, emission: Emission, request: ClientRequestId, reply: oneshot::Sender<Asked> },
    /// A command of the embedder.
    Commanded { command: Command, reply: oneshot::Sender<Result<(), NotTaken>> },
    /// Which sessions live there?
    List { reply: oneshot::Sender<Vec<SessionView>> },
}

/// What became of a request to the client.
pub(crate) type Asked = Result<Outcome, NotTaken>;

/// What a dropped handle leaves behind. There is no more of it than calls and requests in flight, so it needs no bound of its own.
pub(crate) enum Left {
    /// A call that nobody can answer any more.
    Call(SessionId, CallId),
    /// A request to the client whose answer nobody waits for.
    Request(SessionId, ClientRequestId),
}

/// What every shard of a server shares.
pub(crate) struct Common {
    /// The kernel's instants count from here.
    pub(crate) origin: std::time::Instant,
    next_request: AtomicU64,
}

impl Common {
    pub(crate) fn new() -> Self {
        Self { origin: std::time::Instant::now(), next_request: AtomicU64::new(1) }
    }

    pub(crate) fn now(&self) -> Instant {
        Instant::from_millis(u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    pub(crate) fn name_request(&self) -> ClientRequestId {
        ClientRequestId(self.next_request.fetch_add(1, Ordering::Relaxed))
    }
}

/// A shard, from any thread.
pub(crate) struct Remote {
    pub(crate) common: Arc<Common>,
    mail: Sender<Mail>,
    left: SegQueue<Left>,
    drain: OnceLock<Instant>,
}

/// The message comes back: there is no room, or the shard has stopped.
pub(crate) enum NotPosted {
    Full(Mail),
    Stopped,
}

impl Remote {
    pub(crate) fn new(common: Arc<Common>, mail: Sender<Mail>) -> Self {
        Self { common, mail, left: SegQueue::new(), drain: OnceLock::new() }
    }

    /// Posts, or says at once that there is no room.
    pub(crate) fn try_post(&self, mail: Mail) -> Result<(), NotPosted> {
        self.mail.try_send(mail).map_err(|error| match error {
            SendError::Full(mail) => NotPosted::Full(mail),
            SendError::Closed(_) => NotPosted::Stopped,
        })
    }

    /// Posts, after waiting for room where there is none; `Err`: the shard has stopped.
    pub(crate) async fn post(&self, mail: Mail) -> Result<(), NotPosted> {
        let mut waiting = Some(mail);
        poll_fn(|cx| {
            for registered in [false, true] {
                let Some(mail) = waiting.take() else { break };
                match self.try_post(mail) {
                    Err(NotPosted::Full(mail)) => waiting = Some(mail),
                    done => return Poll::Ready(done),
                }
                if !registered {
                    // Then once more: room may have come before the shard knew that we wait.
                    self.mail.await_room(cx);
                }
            }
            Poll::Pending
        })
        .await
    }

    /// Leaves something that must arrive.
    pub(crate) fn leave(&self, left: Left) {
        self.left.push(left);
        self.mail.wake();
    }

    pub(crate) fn has_left(&self) -> bool {
        !self.left.is_empty()
    }

    pub(crate) fn take_left(&self) -> Option<Left> {
        self.left.pop()
    }

    /// Asks the shard to drain. The first deadline holds.
    pub(crate) fn drain(&self, deadline: Instant) {
        let _ = self.drain.set(deadline);
        self.mail.wake();
    }

    pub(crate) fn drain_asked(&self) -> Option<Instant> {
        self.drain.get().copied()
    }
}
