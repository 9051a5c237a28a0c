//! Behaviour with the real queue: order, bounds, what a burst costs, and races of real threads beside loom's models.

use std::collections::HashMap;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::task::{Wake, Waker};
use std::thread;

use pollster::block_on;

use super::*;

/// A waker that counts.
#[derive(Default)]
struct Count(AtomicU64);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

impl Count {
    fn get(&self) -> u64 {
        self.0.load(Ordering::Relaxed)
    }
}

fn poll<T>(receiver: &mut Receiver<T>, waker: &Waker, max: usize) -> (Poll<usize>, Vec<T>) {
    let mut batch = Vec::new();
    (receiver.poll_batch(&mut Context::from_waker(waker), &mut batch, max), batch)
}

fn poll_send<F: Future>(send: Pin<&mut F>, count: &Arc<Count>) -> Poll<F::Output> {
    send.poll(&mut Context::from_waker(&Waker::from(Arc::clone(count))))
}

#[test]
fn messages_arrive_in_order_in_batches_no_larger_than_asked() {
    let (sender, mut receiver) = mailbox(8);
    (0..5).for_each(|message| sender.try_send(message).unwrap());
    assert_eq!(poll(&mut receiver, Waker::noop(), 3), (Poll::Ready(3), vec![0, 1, 2]));
    assert_eq!(poll(&mut receiver, Waker::noop(), 0), (Poll::Ready(1), vec![3]), "at least one");
    assert_eq!(poll(&mut receiver, Waker::noop(), 3), (Poll::Ready(1), vec![4]));
    assert_eq!(poll(&mut receiver, Waker::noop(), 3), (Poll::Pending, vec![]));
}

#[test]
fn the_room_that_is_left_is_what_waits_subtracted_from_what_may() {
    let (sender, mut receiver) = mailbox(8);
    (0..5).for_each(|message| sender.try_send(message).unwrap());
    assert_eq!(sender.room(), 3);
    assert_eq!(poll(&mut receiver, Waker::noop(), 4).0, Poll::Ready(4));
    assert_eq!(sender.room(), 7);
}

#[test]
fn a_burst_into_a_sleeping_receiver_costs_one_wake() {
    const BURST: u64 = if cfg!(miri) { 500 } else { 100_000 };
    let (sender, mut receiver) = mailbox(BURST as usize);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(poll(&mut receiver, &waker, 1).0.is_pending());
    (0..BURST).for_each(|message| sender.try_send(message).unwrap());
    assert_eq!((count.get(), receiver.wakes()), (1, 1));

    // Awake until it sleeps again: what comes in between wakes nobody.
    assert_eq!(poll(&mut receiver, &waker, 100).0, Poll::Ready(100));
    sender.try_send(BURST).unwrap();
    assert_eq!(poll(&mut receiver, &waker, usize::MAX).0, Poll::Ready(BURST as usize - 99));
    assert_eq!((count.get(), receiver.wakes()), (1, 1));
    assert!(poll(&mut receiver, &waker, 1).0.is_pending());
    sender.try_send(0).unwrap();
    assert_eq!((count.get(), receiver.wakes()), (2, 2));
}

#[test]
fn senders_on_other_threads_lose_nothing_and_each_keeps_its_order() {
    const SENDERS: usize = 4;
    const EACH: usize = if cfg!(miri) { 60 } else { 25_000 };
    let (sender, mut receiver) = mailbox(if cfg!(miri) { 4 } else { 64 });
    thread::scope(|scope| {
        for name in 0..SENDERS {
            let sender = sender.clone();
            scope.spawn(move || {
                for number in 0..EACH {
                    // Half of them barge in where they can: they must not starve the others, nor lose a place.
                    let message =
                        if name % 2 == 0 { sender.try_send((name, number)) } else { Err(Refused::Full((name, number))) };
                    if let Err(refused) = message {
                        block_on(sender.send(refused.into_inner())).unwrap();
                    }
                }
            });
        }
        drop(sender);
        let (mut next, mut batch) = (HashMap::new(), Vec::new());
        while block_on(receiver.recv_batch(&mut batch, 32)) > 0 {
            for (name, number) in batch.drain(..) {
                let expected = next.entry(name).or_insert(0);
                assert_eq!(number, *expected);
                *expected += 1;
            }
        }
        assert!(next.len() == SENDERS && next.values().all(|&count| count == EACH), "{next:?}");
    });
}

#[test]
fn waiting_senders_are_served_in_the_order_in_which_they_began() {
    let (sender, mut receiver) = mailbox(1);
    sender.try_send(0).unwrap();
    let counts = [(); 3].map(|()| Arc::new(Count::default()));
    let mut sends = [1, 2, 3].map(|message| Box::pin(sender.send(message)));
    for which in 0..3 {
        assert!(poll_send(sends[which].as_mut(), &counts[which]).is_pending());
    }
    for which in 0..3 {
        assert_eq!(poll(&mut receiver, Waker::noop(), 8).1, [which]);
        assert_eq!(counts.each_ref().map(|count| count.get()).iter().sum::<u64>(), which as u64 + 1, "one place, one wake");
        assert_eq!(sender.try_send(9), Err(Refused::Full(9)), "nobody passes the line");
        if let Some(next) = sends.get_mut(which + 1) {
            assert!(poll_send(next.as_mut(), &counts[which + 1]).is_pending(), "nor in it");
        }
        assert_eq!(poll_send(sends[which].as_mut(), &counts[which]), Poll::Ready(Ok(())));
    }
    assert_eq!(poll(&mut receiver, Waker::noop(), 8).1, [3]);
    assert_eq!(sender.try_send(9), Ok(()));
}

#[test]
fn a_waiter_dropped_after_its_wake_passes_its_place_on() {
    let (sender, mut receiver) = mailbox(1);
    sender.try_send(0).unwrap();
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    let mut first = Box::pin(sender.send(1));
    let mut second = pin!(sender.send(2));
    assert!(first.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(second.as_mut().poll(&mut Context::from_waker(&waker)).is_pending());
    assert_eq!(poll(&mut receiver, Waker::noop(), 8).1, [0]);
    assert_eq!(count.get(), 0);
    drop(first);
    assert_eq!(count.get(), 1);
    assert_eq!(block_on(second), Ok(()));
    assert_eq!(poll(&mut receiver, Waker::noop(), 8).1, [2]);
}

#[test]
fn a_waiter_dropped_in_line_leaves_no_trace() {
    let (sender, mut receiver) = mailbox(1);
    sender.try_send(0).unwrap();
    {
        let mut waiting = pin!(sender.send(1));
        assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(poll(&mut receiver, Waker::noop(), 8).1, [0]);
    assert_eq!(sender.try_send(2), Ok(()), "the line is empty again");
}

#[test]
fn the_line_is_bounded() {
    let room = Room::new(0, 1);
    let mut cx = Context::from_waker(Waker::noop());
    let (mut first, mut second) = (pin!(room.acquire()), pin!(room.acquire()));
    assert_eq!(first.as_mut().poll(&mut cx), Poll::Pending);
    assert_eq!(second.as_mut().poll(&mut cx), Poll::Ready(Err(NoRoom::Full)));
}

#[test]
fn a_dropped_receiver_drops_its_messages_and_refuses_who_waits() {
    let token = Arc::new(());
    let count = Arc::new(Count::default());
    let (sender, mut receiver) = mailbox(1);
    assert!(poll(&mut receiver, &Waker::from(Arc::clone(&count)), 8).0.is_pending());
    sender.try_send(Arc::clone(&token)).unwrap();
    let mut waiting = pin!(sender.send(Arc::clone(&token)));
    assert!(waiting.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    assert!(!sender.is_closed());
    drop(receiver);
    assert!(sender.is_closed());
    assert_eq!(Arc::strong_count(&token), 2, "only the one in the future is left");
    assert_eq!(Arc::strong_count(&count), 1, "the receiver's waker is let go");
    assert!(matches!(block_on(waiting), Err(Refused::Closed(_))));
    assert!(matches!(sender.try_send(token), Err(Refused::Closed(_))));
}

#[test]
fn the_last_sender_ends_the_receiver_after_its_messages() {
    let (sender, mut receiver) = mailbox(2);
    let count = Arc::new(Count::default());
    let waker = Waker::from(Arc::clone(&count));
    assert!(poll(&mut receiver, &waker, 8).0.is_pending());
    let clone = sender.clone();
    drop(sender);
    assert_eq!(count.get(), 0);
    clone.try_send(1).unwrap();
    drop(clone);
    assert_eq!(poll(&mut receiver, &waker, 8), (Poll::Ready(1), vec![1]));
    assert_eq!(poll(&mut receiver, &waker, 8), (Poll::Ready(0), vec![]));
    assert_eq!(poll(&mut receiver, &waker, 8), (Poll::Ready(0), vec![]));
}

#[test]
fn ends_cross_threads() {
    fn crosses<T: Send>() {}
    fn shared<T: Send + Sync + Clone>() {}
    crosses::<Receiver<Vec<u8>>>();
    shared::<Sender<std::cell::Cell<u8>>>();
}
