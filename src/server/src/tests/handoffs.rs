//! Connections that move between shards.

use std::io::{Read, Write};
use std::time::Duration;

use bytes::Bytes;
use rejoin_proto::ids::{ConnId, ShardIndex};
use rejoin_proto::shard::io::{Input, Output};

use super::harness::{Script, drivers, start, told};

/// Answers a line that begins with its own number, and hands every other one over.
pub(super) fn lines(own: u8) -> Box<dyn Script> {
    let mut partial = std::collections::HashMap::<ConnId, Vec<u8>>::new();
    let mut busy = std::collections::HashSet::<ConnId>::new();
    Box::new(move |input: Input<'_>, _, out: &mut Vec<Output>| {
        let conn = match input {
            Input::Opened { conn } => {
                partial.insert(conn, Vec::new());
                return;
            }
            Input::HandedOver { conn, bytes, placed } => {
                assert!(placed);
                partial.insert(conn, bytes.to_vec());
                conn
            }
            Input::Received { conn, bytes } => {
                partial.get_mut(&conn).expect("opened").extend_from_slice(bytes);
                conn
            }
            Input::Sent { conn, .. } => {
                busy.remove(&conn);
                conn
            }
            Input::Closed { conn } => {
                partial.remove(&conn);
                busy.remove(&conn);
                return;
            }
            _ => return,
        };
        if busy.contains(&conn) {
            return;
        }
        let bytes = partial.get_mut(&conn).expect("opened");
        let Some(end) = bytes.iter().position(|&byte| byte == b'\n') else { return };
        if bytes[0] == b'0' + own {
            let line: Vec<u8> = bytes.drain(..=end).collect();
            busy.insert(conn);
            out.push(Output::Send { conn, slices: vec![line.into()] });
        } else {
            let bytes = Bytes::from(partial.remove(&conn).expect("opened"));
            out.push(Output::Handoff { conn, to: ShardIndex(1 - own), bytes, placed: true });
        }
    })
}

#[test]
fn a_connection_moves_as_often_as_its_requests_take_and_no_byte_is_lost() {
    for driver in drivers() {
        let shards = start(driver, vec![lines(0), lines(1)]);
        let mut stream = shards.connect(0);
        let line = |number: u32| format!("{} request {number}\n", number % 2);
        // One at a time.
        for number in 0..200 {
            stream.write_all(line(number).as_bytes()).expect("write");
            let mut back = vec![0; line(number).len()];
            stream.read_exact(&mut back).expect("read");
            assert_eq!(back, line(number).as_bytes());
        }
        // And all at once, cut anywhere.
        let all: String = (0..2_000).map(line).collect();
        let mut writer = stream.try_clone().expect("clone");
        let sent = all.clone();
        let writing = std::thread::spawn(move || {
            for piece in sent.as_bytes().chunks(7) {
                writer.write_all(piece).expect("write");
            }
        });
        let mut back = vec![0; all.len()];
        stream.read_exact(&mut back).expect("read");
        assert!(back == all.as_bytes());
        writing.join().expect("written");
    }
}

#[test]
fn connections_of_both_shards_cross_without_waiting_for_each_other() {
    for driver in drivers() {
        let shards = start(driver, vec![lines(0), lines(1)]);
        let clients: Vec<_> = (0..20)
            .map(|client| {
                let mut stream = shards.connect(client % 2);
                std::thread::spawn(move || {
                    for number in 0..100 {
                        let line = format!("{} of {client}\n", number % 2);
                        stream.write_all(line.as_bytes()).expect("write");
                        let mut back = vec![0; line.len()];
                        stream.read_exact(&mut back).expect("read");
                        assert_eq!(back, line.as_bytes());
                    }
                })
            })
            .collect();
        for client in clients {
            client.join().expect("every answer");
        }
    }
}

#[test]
fn a_connection_for_a_shard_that_has_stopped_is_closed() {
    for driver in drivers() {
        let (tell, closed) = told();
        let shards = start(
            driver,
            vec![
                Box::new(|input: Input<'_>, _, out: &mut Vec<Output>| {
                    if let Input::Received { conn, bytes } = input {
                        let bytes = Bytes::copy_from_slice(bytes);
                        out.push(Output::Handoff { conn, to: ShardIndex(1), bytes, placed: false });
                    }
                }),
                Box::new(move |input: Input<'_>, _, _: &mut Vec<Output>| {
                    if matches!(input, Input::Command(_)) {
                        tell.send(()).expect("the test listens");
                    }
                }),
            ],
        );
        shards.remotes[1].drain(shards.remotes[1].common.now());
        closed.next();
        std::thread::sleep(Duration::from_millis(100));
        let mut stream = shards.connect(0);
        stream.write_all(b"for another").expect("write");
        let mut rest = Vec::new();
        let ended = stream.read_to_end(&mut rest);
        assert!(rest.is_empty() && (ended.is_ok() || super::harness::is_reset(&ended)), "{ended:?}");
    }
}
