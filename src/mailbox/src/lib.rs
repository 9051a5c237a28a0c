//! Bounded queues into a shard from any thread: many senders, one receiver, back-pressure in order, and one wake a burst.
//!
//! Never loses a message that was taken while its receiver lives, never lets one sender's waiting pass another's, never grows past its
//! capacity, and depends on no runtime: the receiver is polled by whatever executor its shard has.
//!
//! ```
//! use rejoin_mailbox::{Refused, mailbox};
//!
//! let (sender, mut receiver) = mailbox(2);
//! sender.try_send("one").unwrap();
//! sender.try_send("two").unwrap();
//! assert_eq!(sender.try_send("three"), Err(Refused::Full("three")));
//!
//! // From another thread, with back-pressure: waits until the receiver has made room.
//! let other = std::thread::spawn(move || pollster::block_on(sender.send("three")));
//!
//! pollster::block_on(async {
//!     let mut batch = Vec::new();
//!     while receiver.recv_batch(&mut batch, 64).await > 0 {}
//!     assert_eq!(batch, ["one", "two", "three"]);
//! });
//! other.join().unwrap().unwrap();
//! ```
//!
//! # Rules
//!
//! The code names each rule where it keeps it; the loom models in `model.rs` fail when one is broken, except where they say so.
//!
//! The bell, which wakes the receiver:
//!
//! - **B1** Its state changes only by read-modify-writes with `AcqRel`. All of them stand in one order, and each sees everything that
//!   came before those that precede it. (A plain store in the receiver's place would let a sender see "awake" while the receiver,
//!   already past its last look, has not seen the sender's push.)
//! - **B2** A sender pushes, then sets `AWAKE`. If it was clear, this sender wakes the receiver; if it was set, somebody else's wake
//!   or the receiver's own next look is still to come, and either follows the push.
//! - **B3** The receiver registers its waker before it clears `AWAKE`; who finds it clear finds the waker.
//! - **B4** The receiver clears `AWAKE`, then looks into the queue once more, and only then sleeps. A push before the clear is seen by
//!   the look; a push after it rings.
//! - **B5** The receiver sets `GONE`, then empties the queue. A sender that rings after that empties the queue itself; so no item
//!   outlives the receiver for longer than the call that pushed it.
//!
//! Room, which makes senders wait:
//!
//! - **P1** Permits and flags are one word, changed only by read-modify-writes: who gives back sees who waits, without a fence.
//! - **P2** A sender has a permit before it pushes, and the receiver gives it back after it popped. `AcqRel` on both sides: a push
//!   with a permit finds room.
//! - **P3** `WAITING` is set when no permit is left, before the line gets its first entry, and cleared when a release finds the line
//!   empty; both under the line's lock. While it is set, no permit is taken past the line, and every release looks into the line.
//! - **P4** A ticket leaves the line by another hand only together with a permit, or because the mailbox closed.
//! - **P5** A waiter that is dropped with a permit gives it back, so the next in line gets it: each freed place wakes somebody as long
//!   as somebody waits.
//! - **P6** `CLOSED` is set, then the line is emptied under its lock: who takes the lock later sees `CLOSED` and does not enter.

#![forbid(unsafe_code)]

mod bell;
mod room;
mod sync;

#[cfg(all(test, rejoin_loom))]
mod model;
#[cfg(all(test, not(rejoin_loom)))]
mod tests;

use std::fmt;
use std::future::poll_fn;
use std::task::{Context, Poll};

use crossbeam_utils::CachePadded;

use bell::{Bell, Rung};
use room::{MAX_PERMITS, NoRoom, Room};
use sync::{Arc, AtomicUsize, Ordering, Queue};

/// Sends that may wait for room at once; one more is refused as `Full`. Reason: three for each of 20,000 sessions, and 64 bytes each.
pub const MAX_WAITING: usize = 65_536;

/// Makes a mailbox that holds at most `capacity` messages (at least one), whose memory is taken at once.
pub fn mailbox<T>(capacity: usize) -> (Sender<T>, Receiver<T>) {
    let capacity = capacity.clamp(1, MAX_PERMITS);
    let shared = Arc::new(Shared {
        queue: Queue::new(capacity),
        room: CachePadded::new(Room::new(capacity, MAX_WAITING)),
        bell: CachePadded::new(Bell::new()),
        senders: AtomicUsize::new(1),
    });
    (Sender { shared: Arc::clone(&shared) }, Receiver { shared, asleep: false })
}

struct Shared<T> {
    queue: Queue<T>,
    room: CachePadded<Room>,
    bell: CachePadded<Bell>,
    senders: AtomicUsize,
}

impl<T> Shared<T> {
    /// Pushes with a permit (P2) and rings (B2).
    fn push(&self, item: T) -> Result<(), Refused<T>> {
        if let Err(item) = self.queue.push(item) {
            self.room.release(1);
            return Err(Refused::Full(item));
        }
        if self.bell.ring() == Rung::Gone {
            self.clear(); // B5
        }
        Ok(())
    }

    fn clear(&self) {
        while self.queue.pop().is_some() {}
    }
}

/// A message that was not taken, and why.
#[derive(Clone, PartialEq, Eq)]
pub enum Refused<T> {
    /// No room (or others wait for it already; from `send`: too many of them).
    Full(T),
    /// The receiver is gone.
    Closed(T),
}

impl<T> Refused<T> {
    /// The message.
    pub fn into_inner(self) -> T {
        match self {
            Self::Full(item) | Self::Closed(item) => item,
        }
    }

    fn new(why: NoRoom, item: T) -> Self {
        match why {
            NoRoom::Full => Self::Full(item),
            NoRoom::Closed => Self::Closed(item),
        }
    }
}

impl<T> fmt::Display for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "the mailbox is full",
            Self::Closed(_) => "the mailbox is closed",
        })
    }
}

impl<T> fmt::Debug for Refused<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Full(_) => "Full(..)",
            Self::Closed(_) => "Closed(..)",
        })
    }
}

impl<T> std::error::Error for Refused<T> {}

/// The sending end: any thread, any number of clones. Messages of one sender arrive in the order of their sends.
pub struct Sender<T> {
    shared: Arc<Shared<T>>,
}

impl<T> Sender<T> {
    /// Sends if there is room now and nobody waits for it. `Ok` means taken, and received if the receiver lives to look.
    pub fn try_send(&self, item: T) -> Result<(), Refused<T>> {
        match self.shared.room.try_acquire() {
            Ok(()) => self.shared.push(item),
            Err(why) => Err(Refused::new(why, item)),
        }
    }

    /// Sends when there is room, after those that waited before. Dropping the future before it is ready drops the message unsent, and
    /// costs nobody else their turn. `Full` only when [`MAX_WAITING`] others wait.
    pub async fn send(&self, item: T) -> Result<(), Refused<T>> {
        match self.shared.room.acquire().await {
            Ok(()) => self.shared.push(item),
            Err(why) => Err(Refused::new(why, item)),
        }
    }

    /// How many messages there is room for now, as far as this thread knows: for figures, not for decisions.
    pub fn room(&self) -> usize {
        self.shared.room.permits()
    }

    /// Whether the receiver is gone.
    pub fn is_closed(&self) -> bool {
        self.shared.room.is_closed()
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Self {
        self.shared.senders.fetch_add(1, Ordering::Relaxed);
        Self { shared: Arc::clone(&self.shared) }
    }
}

impl<T> Drop for Sender<T> {
    /// The last sender rings, so that the receiver learns that nothing more will come.
    fn drop(&mut self) {
        if self.shared.senders.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.shared.bell.ring();
        }
    }
}

impl<T> fmt::Debug for Sender<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.is_closed() { "Sender (closed)" } else { "Sender" })
    }
}

/// The receiving end. Dropping it closes the mailbox: what is in it is dropped, and whoever waits to send is refused.
pub struct Receiver<T> {
    shared: Arc<Shared<T>>,
    /// Whether the bell's `AWAKE` was cleared since the last poll.
    asleep: bool,
}

impl<T> Receiver<T> {
    /// Appends up to `max` messages (at least one) to `into` and says how many. Pending while there is none; the waker of the last
    /// poll is woken, once, for the first of those that come. `Ready(0)`: every sender is gone and everything was received.
    pub fn poll_batch(&mut self, cx: &mut Context<'_>, into: &mut Vec<T>, max: usize) -> Poll<usize> {
        if self.asleep {
            self.rise();
        }
        if let Poll::Ready(taken) = self.take(into, max) {
            return Poll::Ready(taken);
        }
        self.shared.bell.sleep(cx.waker()); // B3, B4
        self.asleep = true;
        let looked_again = self.take(into, max); // B4
        if looked_again.is_ready() {
            self.rise();
        }
        looked_again
    }

    /// [`poll_batch`](Self::poll_batch) as a future. Dropped before it is ready, it has taken nothing.
    pub async fn recv_batch(&mut self, into: &mut Vec<T>, max: usize) -> usize {
        poll_fn(|cx| self.poll_batch(cx, into, max)).await
    }

    /// How often senders woke this receiver so far: the measure of what a burst costs.
    pub fn wakes(&self) -> u64 {
        self.shared.bell.wakes()
    }

    fn rise(&mut self) {
        self.shared.bell.rise();
        self.asleep = false;
    }

    fn take(&self, into: &mut Vec<T>, max: usize) -> Poll<usize> {
        // Asked before the look: what the last sender pushed is then in sight.
        let no_sender = self.shared.senders.load(Ordering::Acquire) == 0;
        let before = into.len();
        into.extend(std::iter::from_fn(|| self.shared.queue.pop()).take(max.max(1)));
        match into.len() - before {
            0 if no_sender => Poll::Ready(0),
            0 => Poll::Pending,
            taken => {
                self.shared.room.release(taken); // P2
                Poll::Ready(taken)
            }
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        self.shared.room.close(); // P6
        self.shared.bell.leave(); // B5
        self.shared.clear();
    }
}

impl<T> fmt::Debug for Receiver<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Receiver ({} wakes)", self.wakes())
    }
}
