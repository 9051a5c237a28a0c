//! Room in the queue, counted: permits to push, handed out in the order in which senders began to wait.
//!
//! Never holds an item. A fair semaphore that can be closed; its rules are P1 to P6 of the crate's docs.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll, Waker};

use crate::sync::{AtomicUsize, Mutex, Ordering, lock};

/// The mailbox is closed: no permit is handed out any more.
const CLOSED: usize = 1;
/// Somebody waits: no permit is taken past the line.
const WAITING: usize = 2;
/// One permit; the bits above the flags count them.
const ONE: usize = 4;

/// Most permits that a word can count.
pub(crate) const MAX_PERMITS: usize = usize::MAX / ONE;

pub(crate) struct Room {
    /// Permits that nobody has, and the flags (P1).
    word: AtomicUsize,
    line: Mutex<Line>,
    max_waiting: usize,
}

/// Who waits, by ticket. A waiter whose ticket is gone has been handed a permit, or the mailbox closed (P4).
struct Line {
    next_ticket: u64,
    waiting: BTreeMap<u64, Waker>,
}

/// Why there is no permit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NoRoom {
    /// None is left, or others wait for one; to a waiter: too many wait.
    Full,
    /// The receiver is gone.
    Closed,
}

impl Room {
    /// This many permits, and at most this many waiters.
    pub(crate) fn new(permits: usize, max_waiting: usize) -> Self {
        Self {
            word: AtomicUsize::new(permits * ONE),
            line: Mutex::new(Line { next_ticket: 0, waiting: BTreeMap::new() }),
            max_waiting,
        }
    }

    /// Takes a permit unless others wait for one (P3).
    pub(crate) fn try_acquire(&self) -> Result<(), NoRoom> {
        self.take(|word| word & WAITING == 0)
    }

    /// Waits in line for a permit. The future may be dropped at any time (P5).
    pub(crate) fn acquire(&self) -> Acquire<'_> {
        Acquire { room: self, ticket: None }
    }

    /// Gives permits back: to the line first, to everybody else what is left.
    pub(crate) fn release(&self, permits: usize) {
        let before = self.word.fetch_add(permits * ONE, Ordering::AcqRel); // P1, P2
        if before & WAITING != 0 {
            self.hand_out();
        }
    }

    /// Refuses everybody from here on, those in line too.
    pub(crate) fn close(&self) {
        self.word.fetch_or(CLOSED, Ordering::AcqRel); // P1, P6
        let waiting = std::mem::take(&mut lock(&self.line).waiting); // P4, P6
        waiting.into_values().for_each(Waker::wake);
    }

    /// Permits that nobody has.
    pub(crate) fn permits(&self) -> usize {
        self.word.load(Ordering::Relaxed) / ONE
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.word.load(Ordering::Acquire) & CLOSED != 0
    }

    /// Takes a permit if there is one, the mailbox is open, and `allowed` by the word.
    fn take(&self, allowed: impl Fn(usize) -> bool) -> Result<(), NoRoom> {
        let mut word = self.word.load(Ordering::Relaxed);
        loop {
            if word & CLOSED != 0 {
                return Err(NoRoom::Closed);
            }
            if word < ONE || !allowed(word) {
                return Err(NoRoom::Full);
            }
            match self.word.compare_exchange_weak(word, word - ONE, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return Ok(()), // P1, P2
                Err(now) => word = now,
            }
        }
    }

    /// Moves permits from the word to those in line, the first first (P3, P4).
    fn hand_out(&self) {
        let mut woken = Vec::new();
        {
            let mut line = lock(&self.line);
            while !line.waiting.is_empty() && self.take(|_| true).is_ok() {
                woken.extend(line.waiting.pop_first().map(|(_, waker)| waker));
            }
            if line.waiting.is_empty() {
                self.word.fetch_and(!WAITING, Ordering::AcqRel); // P1, P3
            }
        }
        // Outside the lock: a waker may run the sender at once.
        woken.into_iter().for_each(Waker::wake);
    }

    /// Takes a permit, or a place at the end of the line.
    fn enter(&self, waker: &Waker) -> Result<Option<u64>, NoRoom> {
        let mut line = lock(&self.line);
        loop {
            match self.try_acquire() {
                Ok(()) => return Ok(None),
                Err(NoRoom::Closed) => return Err(NoRoom::Closed),
                Err(NoRoom::Full) if line.waiting.len() >= self.max_waiting => return Err(NoRoom::Full),
                Err(NoRoom::Full) => {}
            }
            if self.raise_waiting() {
                break;
            }
        }
        let ticket = line.next_ticket;
        line.next_ticket += 1;
        line.waiting.insert(ticket, waker.clone());
        Ok(Some(ticket))
    }

    /// Sets the flag unless a permit is there for the taking. Only under the line's lock, and followed by an entry into it (P3): who
    /// releases after this sees the flag, then waits for the lock, then finds the entry.
    fn raise_waiting(&self) -> bool {
        let mut word = self.word.load(Ordering::Relaxed);
        while word & WAITING != 0 || word < ONE {
            match self.word.compare_exchange_weak(word, word | WAITING, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return true, // P1
                Err(now) => word = now,
            }
        }
        false
    }
}

/// Waiting for a permit. It resolves to one, which the caller must use or release.
pub(crate) struct Acquire<'a> {
    room: &'a Room,
    /// While in line, or while a permit that was handed over has not been taken up.
    ticket: Option<u64>,
}

impl Future for Acquire<'_> {
    type Output = Result<(), NoRoom>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(ticket) = self.ticket else {
            if self.room.try_acquire().is_ok() {
                return Poll::Ready(Ok(())); // Without the lock, as mostly.
            }
            self.ticket = match self.room.enter(cx.waker()) {
                Ok(None) => return Poll::Ready(Ok(())),
                Ok(ticket) => ticket,
                Err(why) => return Poll::Ready(Err(why)),
            };
            return Poll::Pending;
        };
        let renewed = {
            let mut line = lock(&self.room.line);
            line.waiting.get_mut(&ticket).map(|waker| std::mem::replace(waker, cx.waker().clone()))
        };
        // Outside the lock, here and below: a waker's drop may drop its task, and with it a sender that waits here.
        if let Some(former) = renewed {
            drop(former);
            return Poll::Pending;
        }
        self.ticket = None; // P4
        Poll::Ready(if self.room.is_closed() { Err(NoRoom::Closed) } else { Ok(()) })
    }
}

impl Drop for Acquire<'_> {
    /// P5: a place in line is given up; a permit that was handed over goes to the next.
    fn drop(&mut self) {
        let Some(ticket) = self.ticket else { return };
        let left = {
            let mut line = lock(&self.room.line);
            line.waiting.remove(&ticket)
        };
        if left.is_none() {
            self.room.release(1);
        }
    }
}
