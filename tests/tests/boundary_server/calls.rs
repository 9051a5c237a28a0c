//! One call, one execution, one result: what is posted twice, at once, unheard or cancelled.

use std::thread;
use std::time::Duration;

use rejoin_tests::boundary_server::{BoundaryServer, Fault};
use rejoin_tests::session::{notification, request, text_of};
use rejoin_tests::wire::{ask, open};
use serde_json::json;

use crate::look::*;

pub(crate) fn unheard_result(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut stream = session.call(&count(1, 4, 50));
    let first = message(&mut stream);
    stream.leave();
    thread::sleep(Duration::from_millis(600));
    counts(&rest(&mut session.resume(first.cursor())), 2, 4);
    assert_eq!(effects(&session, 2), 1);
}

pub(crate) fn repost(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let call = count(1, 6, 80);
    let mut first = session.call(&call);
    let begun = message(&mut first);
    let mut joined = session.call(&call);
    let said = rest(&mut joined);
    counts(&said, 1, 6);
    same(&said[1..], &rest(&mut first));
    assert_eq!(said[0].id, begun.id);
    same(&whole(&session, &call), &said);
    assert_eq!(effects(&session, 2), 1);
    // A JSON answer is recorded too.
    let asked = rejoin_tests::session::call(3, "effects", json!({}));
    assert_eq!(session.tell(&asked).json(), session.tell(&asked).json());
}

pub(crate) fn resume_runs_nothing(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut stream = session.call(&count(1, 1000, 20));
    let first = message(&mut stream);
    stream.reset();
    for _ in 0..3 {
        let mut stream = session.resume(first.cursor());
        next(&mut stream);
        stream.reset();
    }
    assert_eq!(effects(&session, 2), 1);
}

pub(crate) fn one_id_twice(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut one = session.call(&count(1, 5, 60));
    let mut two = session.call(&count(1, 8, 60));
    // An id that is in flight twice names no call.
    session.tell(&notification("notifications/cancelled", json!({"requestId": 1})));
    let said = thread::scope(|scope| {
        let other = scope.spawn(|| rest(&mut two));
        (rest(&mut one), other.join().expect("the second one's"))
    });
    counts(&said.0, 1, 5);
    counts(&said.1, 1, 8);
    // Its client reuses ids: the same again is a new call.
    counts(&whole(&session, &count(1, 5, 0)), 1, 5);
    counts(&whole(&session, &count(1, 5, 0)), 1, 5);
    assert_eq!(effects(&session, 1), 4);
}

pub(crate) fn idempotency(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let keyed = |id, events| session.post(&count(id, events, 40)).with("Idempotency-Key", "a key");
    let mut first = open(server.address, &keyed(1, 3));
    message(&mut first);
    let again = rest(&mut open(server.address, &keyed(2, 3))).pop().expect("a result").json();
    assert_eq!((again["id"].as_u64(), text_of(&again["result"])), (Some(2), "counted to 3"));
    counts(&rest(&mut first), 2, 3);
    let mut within = count(3, 3, 40);
    within["params"]["_meta"]["rejoin/idempotency-key"] = "a key".into();
    assert_eq!(whole(&session, &within).pop().expect("a result").json()["id"], 3);
    assert_eq!(effects(&session, 4), 1);
    refused(&no_stream(&session, &keyed(5, 4)), 422, "idempotency_key_reused");
    // A caller without a name has its keys to a session.
    let other = begin(&server);
    let keyed = other.post(&count(1, 4, 0)).with("Idempotency-Key", "a key");
    counts(&rest(&mut open(server.address, &keyed)), 1, 4);
}

pub(crate) fn cancelled(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let call = count(1, 1000, 20);
    let mut stream = session.call(&call);
    let first = message(&mut stream);
    let told = notification("notifications/cancelled", json!({"requestId": 1}));
    assert_eq!(session.tell(&told).status(), 202);
    let said = rest(&mut stream);
    assert!(said.iter().all(|block| block.json().get("id").is_none()), "{said:?}");
    let last = said.last().unwrap_or(&first).cursor().to_owned();
    complete(&session, &last);
    assert_eq!(session.tell(&call).json()["error"]["code"], -32010);
    assert_eq!(effects(&session, 2), 1);
}

pub(crate) fn refused_before_it_runs(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let call = session.post(&count(1, 1, 0));
    for id in ["x", ""] {
        dead(&no_stream(&session, &call.clone().set("Mcp-Session-Id", id)), "unknown");
    }
    refused(&no_stream(&session, &call.clone().set("MCP-Protocol-Version", "x")), 400, "unsupported_revision");
    assert_eq!(effects(&session, 2), 0);
    // A refused id was not seen.
    counts(&whole(&session, &count(1, 1, 0)), 1, 1);
    // What is not a call is executed each time.
    let ping = session.post(&request(3, "ping", json!({})));
    assert_eq!((ask(server.address, &ping).status(), ask(server.address, &ping).status()), (200, 200));
}
