//! What crosses from any thread to a shard, and how: a bounded mailbox with back-pressure, and a few things that must never be refused.
//!
//! Never blocks a thread, and never runs the kernel: the shard takes its mail in its own time.

use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_channel::oneshot;
use rejoin_mailbox::{Refused, Sender};
use rejoin_proto::ids::{CallId, ClientRequestId, SessionId};
use rejoin_proto::shard::SessionView;
use rejoin_proto::shard::io::{Command, Emission, NotTaken, Outcome};
use rejoin_proto::time::Instant;

use crate::error::EmitError;
use crate::stats::{ShardSnapshot, ShardState};

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

/// What a dropped handle leaves behind, and what kernels say to each other. There is no more of it than calls and requests in flight, so it needs no bound of its own.
pub(crate) enum Left {
    /// A call that nobody can answer any more.
    Call(SessionId, CallId),
    /// A request to the client whose answer nobody waits for.
    Request(SessionId, ClientRequestId),
    /// Another shard's word about an idempotency key.
    Keyed(rejoin_proto::keyed::Mail),
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
    aside: Mutex<Aside>,
    /// Whoever waits for a snapshot.
    given: Condvar,
}

/// What must reach the shard whether its mailbox has room or not.
#[derive(Default)]
struct Aside {
    left: Vec<Left>,
    drain: Option<Instant>,
    /// Knocks of the watch that were not answered.
    knocks: u32,
    /// Somebody waits for a snapshot.
    asked: bool,
    /// Snapshots given so far, and the last one.
    given: u64,
    snapshot: Option<Arc<ShardSnapshot>>,
    /// The shard has ended: it gives no more.
    ended: bool,
    waker: Option<Waker>,
}

/// What a shard finds aside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// It is to drain.
    pub(crate) drain: Option<Instant>,
    /// It is to give a snapshot, before it does anything else.
    pub(crate) asked: bool,
}

/// Why a message was not posted.
pub(crate) enum NotPosted {
    Full,
    Stopped,
}

impl NotPosted {
    fn of(refused: Refused<Mail>) -> Self {
        match refused {
            Refused::Full(_) => Self::Full,
            Refused::Closed(_) => Self::Stopped,
        }
    }
}

impl From<NotPosted> for EmitError {
    fn from(why: NotPosted) -> Self {
        match why {
            NotPosted::Full => Self::Full,
            NotPosted::Stopped => Self::Stopped,
        }
    }
}

impl Remote {
    pub(crate) fn new(common: Arc<Common>, mail: Sender<Mail>) -> Self {
        Self { common, mail, aside: Mutex::default(), given: Condvar::new() }
    }

    /// Posts, or says at once that there is no room.
    pub(crate) fn try_post(&self, mail: Mail) -> Result<(), NotPosted> {
        self.mail.try_send(mail).map_err(NotPosted::of)
    }

    /// Posts, after waiting for room where there is none. (`Full`: far too many wait already.)
    pub(crate) async fn post(&self, mail: Mail) -> Result<(), NotPosted> {
        self.mail.send(mail).await.map_err(NotPosted::of)
    }

    /// Leaves something that must arrive.
    pub(crate) fn leave(&self, left: Left) {
        let mut aside = self.aside();
        aside.left.push(left);
        wake(aside);
    }

    /// Asks the shard to drain. The first deadline holds.
    pub(crate) fn drain(&self, deadline: Instant) {
        let mut aside = self.aside();
        aside.drain.get_or_insert(deadline);
        wake(aside);
    }

    /// Asks for a sign of life; says how many were asked for since the last was given, this one included.
    pub(crate) fn knock(&self) -> u32 {
        let mut aside = self.aside();
        aside.knocks += 1;
        let unanswered = aside.knocks;
        wake(aside);
        unanswered
    }

    /// Asks for a snapshot; [`wait`](Self::wait) waits for it. Says how many were given before.
    pub(crate) fn ask(&self) -> u64 {
        let mut aside = self.aside();
        aside.asked = true;
        let before = aside.given;
        wake(aside);
        before
    }

    /// Blocks until a snapshot was given after `before` others, but not beyond `deadline`. However many ask and however long the
    /// shard does not answer, there is one snapshot at most to keep.
    pub(crate) fn wait(&self, before: u64, deadline: std::time::Instant) -> ShardState {
        let mut aside = self.aside();
        loop {
            match &aside.snapshot {
                Some(snapshot) if aside.ended => return ShardState::Ended(Arc::clone(snapshot)),
                Some(snapshot) if aside.given > before => return ShardState::Running(Arc::clone(snapshot)),
                _ => {}
            }
            let left = deadline.saturating_duration_since(std::time::Instant::now());
            if left.is_zero() {
                return ShardState::Unresponsive;
            }
            aside = self.given.wait_timeout(aside, left).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// For the shard: what was asked for.
    pub(crate) fn give(&self, snapshot: ShardSnapshot) {
        let mut aside = self.aside();
        aside.given += 1;
        let before = aside.snapshot.replace(Arc::new(snapshot));
        drop(aside);
        self.given.notify_all();
        drop(before);
    }

    /// For the shard: it has ended, and this is the last.
    pub(crate) fn end(&self, snapshot: ShardSnapshot) {
        self.aside().ended = true;
        self.give(snapshot);
    }

    /// Messages that wait for the shard.
    pub(crate) fn mail_waiting(&self) -> usize {
        CAPACITY.saturating_sub(self.mail.room())
    }

    /// For the shard: what was left and what is wanted; pending while there is nothing. That it asks is its sign of life.
    pub(crate) fn poll_aside(&self, cx: &mut Context<'_>, left: &mut Vec<Left>) -> Poll<Found> {
        let mut aside = self.aside();
        aside.knocks = 0;
        left.append(&mut aside.left);
        let found = Found { drain: aside.drain.take(), asked: std::mem::take(&mut aside.asked) };
        if left.is_empty() && found == Found::default() {
            aside.waker = Some(cx.waker().clone());
            return Poll::Pending;
        }
        Poll::Ready(found)
    }

    /// Nothing panics while it is locked, so a poisoned lock is as good as any.
    fn aside(&self) -> MutexGuard<'_, Aside> {
        self.aside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Wakes the shard, after the lock was given back.
fn wake(mut aside: MutexGuard<'_, Aside>) {
    let waker = aside.waker.take();
    drop(aside);
    if let Some(waker) = waker {
        waker.wake();
    }
}
