//! What follows a cursor, live and replayed, and whose connection gets it: rows 12 to 14 and the sentences below the table.

use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rejoin_tests::boundary_server::{BoundaryServer, Fault};
use rejoin_tests::check::{place, positions};
use rejoin_tests::session::{JUNE, Session, tick};
use rejoin_tests::wire::{Connection, ask};
use serde_json::json;

use crate::look::*;

pub(crate) fn finished(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let said = whole(&session, &count(1, 2, 0));
    complete(&session, said[2].cursor());
    complete(&session, said[2].cursor());
}

pub(crate) fn every_cut(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let said = whole(&session, &count(1, 5, 0));
    counts(&said, 1, 5);
    for at in 0..5 {
        let mut stream = session.resume(said[at].cursor());
        assert_eq!(stream.head.field("Rejoin-Verdict"), Some("replay"));
        same(&rest(&mut stream), &said[at + 1..]);
    }
}

pub(crate) fn live_after_replay(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut stream = session.call(&count(1, 4, 250));
    let first = message(&mut stream);
    message(&mut stream);
    stream.leave();
    let mut stream = session.resume(first.cursor());
    counts(&rest(&mut stream), 2, 4);
}

pub(crate) fn own_stream_only(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let (one, two) = (whole(&session, &count(1, 3, 0)), whole(&session, &count(2, 4, 0)));
    same(&rest(&mut session.resume(one[0].cursor())), &one[1..]);
    same(&rest(&mut session.resume(two[1].cursor())), &two[2..]);
}

pub(crate) fn burst(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut stream = session.call(&count(1, 500, 2));
    let mut said = Vec::new();
    for _ in 0..4 {
        (0..20).for_each(|_| said.push(message(&mut stream)));
        stream.reset();
        thread::sleep(Duration::from_millis(20));
        stream = session.resume(said[said.len() - 1].cursor());
    }
    said.extend(rest(&mut stream));
    counts(&said, 1, 500);
    assert_eq!(positions(&said), (1..=501).collect::<Vec<_>>());
}

pub(crate) fn unheard_standalone(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    whole(&session, &broadcast(1, 4));
    let mut stream = session.listen();
    let said: Vec<_> = (0..4).map(|_| message(&mut stream)).collect();
    assert_eq!(heard(&said), [1, 2, 3, 4]);
    stream.leave();
    whole(&session, &broadcast(2, 2));
    let mut stream = session.listen();
    assert_eq!(heard(&[message(&mut stream), message(&mut stream)]), [1, 2]);
    stream.stays_silent(Duration::from_millis(100));
}

pub(crate) fn standalone_resumed(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut stream = session.listen();
    whole(&session, &broadcast(1, 3));
    let said: Vec<_> = (0..3).map(|_| message(&mut stream)).collect();
    stream.leave();
    whole(&session, &broadcast(2, 2));
    let mut stream = session.resume(said[0].cursor());
    let again: Vec<_> = (0..4).map(|_| message(&mut stream)).collect();
    assert_eq!(heard(&again), [2, 3, 1, 2]);
    same(&again[..2], &said[1..]);
    // A stream that never ends has no 204.
    let mut stream = session.resume(again[3].cursor());
    whole(&session, &broadcast(3, 1));
    assert_eq!(heard(&[message(&mut stream)]), [1]);
}

pub(crate) fn ends_after_result(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut connection = Connection::open(server.address);
    let ping = session.post(&json!({"jsonrpc": "2.0", "id": 2, "method": "ping"}));
    connection.send(&session.post(&count(1, 4, 60)));
    // What comes behind an open stream is the next request.
    connection.send(&ping);
    let mut stream = connection.stream();
    counts(&rest(&mut stream), 1, 4);
    let mut connection = stream.into_connection();
    assert_eq!(connection.answer().status(), 200);
    assert_eq!(connection.ask(&ping).status(), 200);
}

pub(crate) fn takeover(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut old = session.call(&count(1, 12, 80));
    let first = message(&mut old);
    // The old connection is open, and nobody says farewell on it.
    let mut new = session.resume(first.cursor());
    let left = rest(&mut old);
    assert!(left.last().is_some_and(|block| block.retry.is_some() && block.data.is_none()), "{left:?}");
    assert!(left.iter().filter_map(tick).all(|number| number < 12), "{left:?}");
    counts(&rest(&mut new), 2, 12);
}

pub(crate) fn takeovers_in_turn(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.retry = Duration::from_millis(100));
    let session = begin(&server);
    let mut stream = session.listen();
    let mut waits = Vec::new();
    for _ in 0..4 {
        let next = session.listen();
        waits.extend(rest(&mut stream).pop().and_then(|block| block.retry));
        stream = next;
    }
    assert_eq!(waits.len(), 4);
    assert!(waits.windows(2).all(|pair| pair[1] == pair[0] * 2), "{waits:?}");
}

pub(crate) fn opening(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut called = session.call(&count(1, 2, 0));
    let start = next(&mut called);
    let cursor = message(&mut called).id;
    let mut opened = vec![start.clone(), next(&mut session.listen())];
    if let Some(cursor) = &cursor {
        rest(&mut called);
        let again = next(&mut session.resume(cursor));
        assert_eq!(again.id.as_ref(), Some(cursor));
        opened.push(again);
    }
    for block in opened {
        assert!(block.is_opening(), "{block:?}");
        let retry = block.retry.expect("retry").as_millis();
        assert!((2400..=3600).contains(&retry), "{retry}");
    }
    // A cut at once costs nothing.
    counts(&rest(&mut session.resume(start.cursor())), 1, 2);
    let june = Session::begin(server.address, JUNE);
    let mut called = june.call(&count(1, 1, 0));
    assert!(next(&mut called).is_message());
}

pub(crate) fn ids(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let one = whole(&session, &count(1, 3, 0));
    let two = whole(&session, &count(2, 3, 0));
    assert_eq!((positions(&one), positions(&two)), (vec![1, 2, 3, 4], vec![1, 2, 3, 4]));
    assert_ne!(place(one[0].cursor()).1, place(two[0].cursor()).1);
}

pub(crate) fn stalled_neighbour(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut call = count(1, 2000, 0);
    call["params"]["arguments"]["bytes"] = json!(4000);
    let mut stalled = Connection::open_narrow(server.address);
    stalled.send(&session.post(&call));
    thread::sleep(Duration::from_millis(500));
    let (asked, address) = (session.post(&json!({"jsonrpc": "2.0", "id": 2, "method": "ping"})), server.address);
    let (answered, answer) = mpsc::channel();
    thread::spawn(move || answered.send(ask(address, &asked).status()));
    assert_eq!(answer.recv_timeout(SOON), Ok(200));
}
