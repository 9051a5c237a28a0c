//! The wake protocol: whoever sends first to a sleeping receiver wakes it, and the rest of the burst costs no wake.
//!
//! Never holds an item and never blocks. Its rules are B1 to B5 of the crate's docs.

use std::task::Waker;

use crate::sync::{AtomicU64, AtomicUsize, AtomicWaker, Ordering};

/// The receiver is awake, or was rung and will be: nobody needs to ring again.
const AWAKE: usize = 1;
/// The receiver is gone for good.
const GONE: usize = 2;

pub(crate) struct Bell {
    /// `AWAKE` and `GONE`. Only ever changed by read-modify-writes (B1).
    state: AtomicUsize,
    waker: AtomicWaker,
    wakes: AtomicU64,
}

/// What a sender learns when it rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Rung {
    /// The receiver will look.
    Heard,
    /// The receiver was gone before: nobody will look.
    Gone,
}

impl Bell {
    /// The receiver begins awake: its first poll looks into the queue before it sleeps.
    pub(crate) fn new() -> Self {
        Self { state: AtomicUsize::new(AWAKE), waker: AtomicWaker::new(), wakes: AtomicU64::new(0) }
    }

    /// A sender, after its push (B2).
    pub(crate) fn ring(&self) -> Rung {
        let before = self.state.fetch_or(AWAKE, Ordering::AcqRel); // B1, B2
        if before & GONE != 0 {
            return Rung::Gone;
        }
        if before & AWAKE == 0 {
            self.wakes.fetch_add(1, Ordering::Relaxed);
            self.waker.wake(); // B3
        }
        Rung::Heard
    }

    /// The receiver, before its last look into the queue (B4): from here on a push rings and wakes.
    pub(crate) fn sleep(&self, waker: &Waker) {
        self.waker.register(waker); // B3
        self.state.fetch_and(!AWAKE, Ordering::AcqRel); // B1, B4
    }

    /// The receiver, which is running after all: no wake is needed until it sleeps again.
    pub(crate) fn rise(&self) {
        self.state.fetch_or(AWAKE, Ordering::AcqRel); // B1
    }

    /// The receiver, before it empties the queue for the last time (B5). Its task's waker is let go: senders may live on for long.
    pub(crate) fn leave(&self) {
        self.state.fetch_or(GONE, Ordering::AcqRel); // B1, B5
        self.waker.register(Waker::noop());
    }

    /// How often a ring woke the receiver.
    pub(crate) fn wakes(&self) -> u64 {
        self.wakes.load(Ordering::Relaxed)
    }
}
