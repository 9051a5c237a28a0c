//! Loom's proof of the rules: every interleaving with a bounded number of preemptions. A wake that is lost shows as a deadlock.
//!
//! Not seen here: the acquiring half of a ring's `AcqRel` (B3), because loom's stand-in for the waker is behind a lock, and loom lets a
//! read-modify-write read nothing but the latest value. With the real waker, a wake could otherwise be ordered before the ring.
//!
//! The first sender is kept to the end of each model unless the model is about the last one: its drop rings, and would hide a ring
//! that is missing elsewhere.

use std::pin::pin;
use std::sync::Arc;
use std::task::Waker;

use loom::future::block_on;
use loom::thread;

use super::*;

/// Switches away from a thread that could go on, at most, unless `LOOM_MAX_PREEMPTIONS` says otherwise: each model takes seconds.
const TWO_THREADS: usize = 4;
const THREE_THREADS: usize = 2;

fn check(preemptions: usize, model: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(preemptions);
    builder.check(model);
}

/// Receives until `count` messages have come.
fn receive<T>(receiver: &mut Receiver<T>, count: usize) -> Vec<T> {
    let mut received = Vec::new();
    while received.len() < count {
        assert_ne!(block_on(receiver.recv_batch(&mut received, 8)), 0, "a sender is alive");
    }
    received
}

#[test]
fn a_message_sent_while_the_receiver_goes_to_sleep_wakes_it() {
    check(TWO_THREADS, || {
        let (sender, mut receiver) = mailbox(4);
        let other = sender.clone();
        let thread = thread::spawn(move || [1, 2].map(|message| other.try_send(message)));
        assert_eq!(receive(&mut receiver, 2), [1, 2]);
        assert_eq!(thread.join().expect("no panic"), [Ok(()), Ok(())]);
        drop(sender);
    });
}

#[test]
fn of_two_senders_one_wakes_for_both() {
    check(THREE_THREADS, || {
        let (sender, mut receiver) = mailbox(2);
        let threads = [1, 2].map(|message| {
            let sender = sender.clone();
            thread::spawn(move || sender.try_send(message))
        });
        assert_eq!(receive(&mut receiver, 2).iter().sum::<i32>(), 3);
        assert!(receiver.wakes() <= 2);
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), Ok(()));
        }
        drop(sender);
    });
}

#[test]
fn room_made_while_a_sender_begins_to_wait_wakes_it() {
    check(TWO_THREADS, || {
        let (sender, mut receiver) = mailbox(1);
        assert_eq!(sender.try_send(1), Ok(()));
        let other = sender.clone();
        let thread = thread::spawn(move || block_on(other.send(2)));
        assert_eq!(receive(&mut receiver, 2), [1, 2]);
        assert_eq!(thread.join().expect("no panic"), Ok(()));
        assert_eq!(sender.try_send(3), Ok(()), "no permit was lost");
    });
}

#[test]
fn of_two_waiting_senders_both_get_their_turn() {
    check(THREE_THREADS, || {
        let (sender, mut receiver) = mailbox(1);
        let threads = [1, 2].map(|message| {
            let sender = sender.clone();
            thread::spawn(move || block_on(sender.send(message)))
        });
        assert_eq!(receive(&mut receiver, 2).iter().sum::<i32>(), 3);
        for thread in threads {
            assert_eq!(thread.join().expect("no panic"), Ok(()));
        }
        assert_eq!(sender.try_send(3), Ok(()), "no permit was lost");
    });
}

#[test]
fn a_waiter_that_gives_up_costs_nobody_a_turn() {
    check(TWO_THREADS, || {
        let (sender, mut receiver) = mailbox(1);
        assert_eq!(sender.try_send(1), Ok(()));
        let other = sender.clone();
        let thread = thread::spawn(move || {
            let mut waiting = Box::pin(other.send(2));
            let mut next = pin!(other.send(3));
            let mut cx = Context::from_waker(Waker::noop());
            let gave_up = waiting.as_mut().poll(&mut cx).is_pending();
            if next.as_mut().poll(&mut cx).is_pending() {
                drop(waiting);
                assert_eq!(block_on(next), Ok(()));
            }
            usize::from(gave_up)
        });
        let mut received = receive(&mut receiver, 2);
        let gave_up = thread.join().expect("no panic");
        received.extend(receive(&mut receiver, 1 - gave_up));
        assert_eq!(received, if gave_up == 1 { vec![1, 3] } else { vec![1, 2, 3] });
        assert_eq!(sender.try_send(4), Ok(()), "no permit was lost");
    });
}

#[test]
fn a_close_refuses_who_waits_and_leaves_no_message_behind() {
    check(THREE_THREADS, || {
        let token = Arc::new(());
        let (sender, receiver) = mailbox(1);
        let (sends, waits) = (sender.clone(), sender.clone());
        let (first, second) = (Arc::clone(&token), Arc::clone(&token));
        let threads = [thread::spawn(move || sends.try_send(first)), thread::spawn(move || block_on(waits.send(second)))];
        drop(receiver);
        for thread in threads {
            drop(thread.join().expect("no panic"));
        }
        assert_eq!(Arc::strong_count(&token), 1, "a message outlives its receiver");
        assert_eq!(sender.try_send(token).map_err(|refused| matches!(refused, Refused::Closed(_))), Err(true));
    });
}

#[test]
fn the_last_sender_that_goes_wakes_the_receiver_and_hides_no_message() {
    check(TWO_THREADS, || {
        let (sender, mut receiver) = mailbox(1);
        let thread = thread::spawn(move || sender.try_send(1));
        assert_eq!(receive(&mut receiver, 1), [1]);
        assert_eq!(block_on(receiver.recv_batch(&mut Vec::new(), 8)), 0);
        assert_eq!(thread.join().expect("no panic"), Ok(()));
    });
}
