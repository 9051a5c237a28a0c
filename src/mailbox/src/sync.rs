//! What is shared between threads: the real thing, or loom's under `cfg(rejoin_loom)`, which runs every interleaving.

#[cfg(not(rejoin_loom))]
mod real {
    pub(crate) use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    pub(crate) use std::sync::{Arc, Mutex, MutexGuard};

    pub(crate) use atomic_waker::AtomicWaker;
    pub(crate) use crossbeam_queue::ArrayQueue as Queue;
}

#[cfg(rejoin_loom)]
mod model {
    use std::collections::VecDeque;
    use std::task::Waker;

    pub(crate) use loom::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
    pub(crate) use loom::sync::{Arc, Mutex, MutexGuard};

    /// `atomic_waker`'s shape.
    pub(crate) struct AtomicWaker(loom::future::AtomicWaker);

    impl AtomicWaker {
        pub(crate) fn new() -> Self {
            Self(loom::future::AtomicWaker::new())
        }

        pub(crate) fn register(&self, waker: &Waker) {
            self.0.register_by_ref(waker);
        }

        pub(crate) fn wake(&self) {
            self.0.wake();
        }
    }

    /// Stands in for `ArrayQueue`. A lock alone would order more than the real queue promises, so `pop` and `push` first look at a
    /// count that may be stale, as the real queue's head and tail may be: without an order between threads an item can be overlooked.
    pub(crate) struct Queue<T> {
        items: Mutex<VecDeque<T>>,
        count: AtomicUsize,
        capacity: usize,
    }

    impl<T> Queue<T> {
        pub(crate) fn new(capacity: usize) -> Self {
            Self { items: Mutex::new(VecDeque::new()), count: AtomicUsize::new(0), capacity }
        }

        pub(crate) fn push(&self, item: T) -> Result<(), T> {
            if self.count.load(Ordering::Acquire) == self.capacity {
                return Err(item);
            }
            let mut items = super::lock(&self.items);
            if items.len() == self.capacity {
                return Err(item);
            }
            items.push_back(item);
            self.count.fetch_add(1, Ordering::Release);
            Ok(())
        }

        pub(crate) fn pop(&self) -> Option<T> {
            if self.count.load(Ordering::Acquire) == 0 {
                return None;
            }
            let mut items = super::lock(&self.items);
            let item = items.pop_front()?;
            self.count.fetch_sub(1, Ordering::Release);
            Some(item)
        }
    }
}

#[cfg(rejoin_loom)]
pub(crate) use model::*;
#[cfg(not(rejoin_loom))]
pub(crate) use real::*;

/// Locks; a panic of another holder (a waker's clone or drop) has left the data whole, so its poison is ignored.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(std::sync::PoisonError::into_inner)
}
