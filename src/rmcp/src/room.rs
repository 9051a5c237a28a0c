//! How many bytes wait: a bound that each message takes its part of for as long as it waits.
//!
//! Never waits itself, and never refuses a message to an empty queue, however large it is: nothing would ever make room for that one.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// See the module.
pub(crate) struct Room {
    taken: Arc<AtomicUsize>,
    most: usize,
}

impl Room {
    /// Of so many bytes.
    pub(crate) fn new(most: usize) -> Self {
        Self { taken: Arc::default(), most }
    }

    /// Takes so many bytes, if that many are left or none are taken.
    pub(crate) fn take(&self, bytes: usize) -> Option<Taken> {
        let fits = |taken: usize| {
            let after = taken.saturating_add(bytes);
            (taken == 0 || after <= self.most).then_some(after)
        };
        // Relaxed: the count guards no other memory.
        let before = self.taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fits).ok()?;
        Some(Taken { of: Arc::clone(&self.taken), bytes: before.saturating_add(bytes) - before })
    }
}

/// A part of a room, which it gives back when it is dropped.
pub(crate) struct Taken {
    of: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_fits_to_the_last_byte_is_taken_and_a_byte_more_is_not() {
        let room = Room::new(10);
        let first = room.take(4).expect("room");
        assert!(room.take(7).is_none());
        let second = room.take(6).expect("exactly the rest");
        assert!(room.take(1).is_none());
        drop(first);
        assert!(room.take(5).is_none());
        drop(room.take(4).expect("what was given back"));
        drop(second);
        assert_eq!(room.taken.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn one_message_is_always_taken_and_nothing_beside_one_that_is_too_large() {
        for size in [11, usize::MAX] {
            let room = Room::new(10);
            let large = room.take(size).expect("an empty room takes anything");
            assert!(room.take(1).is_none(), "{size}");
            drop(large);
            assert!(room.take(1).is_some(), "{size}");
        }
    }
}
