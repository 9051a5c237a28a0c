//! Bytes in and out, reads that are not wanted, and the ways that a connection ends.

use std::io::{Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use rejoin_proto::shard::io::{Close, Input, Output};

use super::harness::{drivers, is_reset, start, told};

#[test]
fn what_arrives_is_received_and_what_is_sent_arrives() {
    for driver in drivers() {
        let shards = start(
            driver,
            vec![Box::new(|input, _, out| {
                if let Input::Received { conn, bytes } = input {
                    out.push(Output::Send { conn, slices: vec![Bytes::copy_from_slice(bytes)] });
                }
            })],
        );
        let mut stream = shards.connect(0);
        for _ in 0..3 {
            stream.write_all(b"some bytes").expect("write");
            let mut back = [0; 10];
            stream.read_exact(&mut back).expect("read");
            assert_eq!(&back, b"some bytes");
        }
    }
}

/// A slice that counts how many of its kind are alive.
struct Counted(Vec<u8>, Arc<AtomicUsize>);

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.1.fetch_sub(1, Ordering::SeqCst);
    }
}

#[test]
fn a_long_send_is_reported_as_it_goes_and_its_slices_are_dropped_before_its_last_byte_is() {
    const SLICES: usize = 200;
    const SLICE: usize = 128 << 10;
    for driver in drivers() {
        let (tell, progress) = told();
        let alive = Arc::new(AtomicUsize::new(0));
        let mut sent = 0;
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, _, out: &mut Vec<Output>| match input {
                Input::Opened { conn } => {
                    let slice = |number: usize| {
                        alive.fetch_add(1, Ordering::SeqCst);
                        Bytes::from_owner(Counted(vec![number as u8; SLICE], Arc::clone(&alive)))
                    };
                    out.push(Output::Send { conn, slices: (0..SLICES).map(slice).collect() });
                }
                Input::Sent { bytes, .. } => {
                    sent += bytes;
                    tell.send((sent, alive.load(Ordering::SeqCst))).expect("the test listens");
                }
                _ => {}
            })],
        );
        let mut stream = shards.connect(0);
        let mut all = vec![0; SLICES * SLICE];
        stream.read_exact(&mut all).expect("read");
        for (number, slice) in all.chunks(SLICE).enumerate() {
            assert!(slice.iter().all(|&byte| byte == number as u8));
        }
        let mut last = progress.next();
        let mut reports = 1;
        while last.0 < SLICES * SLICE {
            // What is through is not kept.
            assert!(last.1 <= SLICES - last.0 / SLICE);
            last = progress.next();
            reports += 1;
        }
        assert_eq!(last, (SLICES * SLICE, 0));
        assert!(reports > 1, "a send larger than the socket's buffer goes in parts");
    }
}

#[test]
fn nothing_is_read_while_it_is_not_wanted() {
    for driver in drivers() {
        let (tell, received) = told();
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, now, out: &mut Vec<Output>| match input {
                Input::Received { conn, bytes } => {
                    tell.send(bytes.to_vec()).expect("the test listens");
                    out.push(Output::Read { conn, wanted: false });
                    out.push(Output::WakeAt(now + Duration::from_millis(150)));
                }
                Input::TimePassed => out.push(Output::Read { conn: rejoin_proto::ids::ConnId(0), wanted: true }),
                _ => {}
            })],
        );
        let mut stream = shards.connect(0);
        stream.write_all(b"one").expect("write");
        assert_eq!(received.next(), b"one");
        stream.write_all(b"two").expect("write");
        assert!(received.nothing_for(Duration::from_millis(80)));
        assert_eq!(received.next(), b"two");
    }
}

#[test]
fn a_clean_close_delivers_everything_even_to_a_peer_that_still_sends() {
    const ANSWER: usize = 4 << 20;
    for driver in drivers() {
        let (tell, closed) = told();
        let mut left = ANSWER;
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, _, out: &mut Vec<Output>| match input {
                Input::Received { conn, .. } if left == ANSWER => {
                    left -= 1;
                    // Closed while its send is under way, and with bytes of the peer unread.
                    out.push(Output::Read { conn, wanted: false });
                    out.push(Output::Send { conn, slices: vec![vec![7; ANSWER].into()] });
                    out.push(Output::Close { conn, how: Close::Clean });
                }
                Input::Closed { conn } => tell.send(conn).expect("the test listens"),
                _ => {}
            })],
        );
        let mut stream = shards.connect(0);
        stream.write_all(&[1; 200 << 10]).expect("write");
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).expect("no reset");
        assert_eq!(answer.len(), ANSWER);
        drop(stream);
        closed.next();
    }
}

#[test]
fn a_clean_close_does_not_wait_for_ever() {
    for driver in drivers() {
        let (tell, closed) = told();
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, _, out: &mut Vec<Output>| match input {
                Input::Opened { conn } => out.push(Output::Close { conn, how: Close::Clean }),
                Input::Closed { conn } => tell.send(conn).expect("the test listens"),
                _ => {}
            })],
        );
        let _stays_open = shards.connect(0);
        closed.next();
    }
}

#[test]
fn a_reset_close_is_a_reset_at_once() {
    for driver in drivers() {
        let (tell, closed) = told();
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, _, out: &mut Vec<Output>| match input {
                Input::Received { conn, .. } => {
                    // More than the peer takes: the reset does not wait for it.
                    out.push(Output::Send { conn, slices: vec![vec![7; 64 << 20].into()] });
                    out.push(Output::Close { conn, how: Close::Reset });
                }
                Input::Closed { conn } => tell.send(conn).expect("the test listens"),
                _ => {}
            })],
        );
        let mut stream = shards.connect(0);
        stream.write_all(b"x").expect("write");
        closed.next();
        let mut buffer = [0; 64 << 10];
        let outcome = loop {
            match stream.read(&mut buffer) {
                Ok(read) if read > 0 => {}
                outcome => break outcome,
            }
        };
        assert!(is_reset(&outcome), "{outcome:?}");
    }
}

#[test]
fn a_fin_is_told_once_after_the_bytes_before_it_and_what_was_ready_is_still_written() {
    for driver in drivers() {
        let (tell, events) = told();
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, _, out: &mut Vec<Output>| match input {
                Input::Received { conn, bytes } => {
                    tell.send(bytes.len()).expect("the test listens");
                    out.push(Output::Send { conn, slices: vec![Bytes::from_static(b"answer")] });
                }
                Input::Closed { .. } => tell.send(0).expect("the test listens"),
                _ => {}
            })],
        );
        let mut stream = shards.connect(0);
        stream.write_all(b"question").expect("write");
        stream.shutdown(Shutdown::Write).expect("FIN");
        let mut answer = String::new();
        stream.read_to_string(&mut answer).expect("read");
        assert_eq!(answer, "answer");
        assert_eq!((events.next(), events.next()), (8, 0));
        assert!(events.nothing_for(Duration::from_millis(50)));
    }
}

#[test]
fn a_peer_that_resets_while_a_send_is_blocked_is_told_after_its_slices_are_dropped() {
    for driver in drivers() {
        let (tell, closed) = told();
        let alive = Arc::new(AtomicUsize::new(1));
        let shards = start(
            driver,
            vec![Box::new(move |input: Input<'_>, _, out: &mut Vec<Output>| match input {
                Input::Opened { conn } => {
                    let slice = Bytes::from_owner(Counted(vec![7; 64 << 20], Arc::clone(&alive)));
                    out.push(Output::Send { conn, slices: vec![slice] });
                }
                Input::Closed { .. } => tell.send(alive.load(Ordering::SeqCst)).expect("the test listens"),
                _ => {}
            })],
        );
        let mut stream = shards.connect(0);
        let mut some = [0; 1_000];
        stream.read_exact(&mut some).expect("read");
        // Closed with bytes unread: a reset.
        drop(stream);
        assert_eq!(closed.next(), 0);
    }
}
