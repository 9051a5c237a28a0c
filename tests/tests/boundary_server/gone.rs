//! Cursors that name nothing here, and what is no longer held: rows 7 to 11.

use std::thread;
use std::time::Duration;

use rejoin_tests::boundary_server::{BoundaryServer, Fault};
use rejoin_tests::check::{outcome_unknown, place, resync};
use rejoin_tests::session::{notification, tick};
use rejoin_tests::wire::Connection;
use serde_json::json;

use crate::look::*;

pub(crate) fn empty_cursor(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    refused(&no_stream(&session, &session.get_after("")), 400, "invalid_cursor");
}

pub(crate) fn doubled_cursor(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let cursor = whole(&session, &count(1, 2, 0))[0].cursor().to_owned();
    refused(&no_stream(&session, &session.get_after(&cursor).with("Last-Event-ID", &cursor)), 400, "invalid_cursor");
}

pub(crate) fn garbage_cursor(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let cursor = whole(&session, &count(1, 2, 0))[0].cursor().to_owned();
    let respelled = [
        format!("0{cursor}"),
        format!("+{cursor}"),
        format!("{cursor}0"),
        format!("{cursor}."),
        cursor[..cursor.len() - 1].to_owned(),
    ];
    let long = "9".repeat(5000);
    for text in respelled.iter().map(String::as_str).chain(["garbage", "0", "1", "-1", "4821", "1.1.1", "....", &long]) {
        refused(&no_stream(&session, &session.get_after(text)), 400, "invalid_cursor");
    }
}

pub(crate) fn foreign_cursor(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let (session, other) = (begin(&server), begin(&server));
    let mine = whole(&session, &count(1, 2, 0));
    let theirs = whole(&other, &count(1, 2, 0));
    for block in &theirs {
        refused(&no_stream(&session, &session.get_after(block.cursor())), 400, "invalid_cursor");
    }
    same(&rest(&mut session.resume(mine[0].cursor())), &mine[1..]);
}

/// A cursor with another position, stream or incarnation, and the tag that it had.
fn moved(cursor: &str, part: usize, by: u64) -> String {
    let mut parts: Vec<String> = cursor.split('.').map(str::to_owned).collect();
    parts[part] = (parts[part].parse::<u64>().expect("a number") + by).to_string();
    parts.join(".")
}

pub(crate) fn forged_cursor(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let cursor = whole(&session, &count(1, 2, 0))[0].cursor().to_owned();
    whole(&session, &count(2, 2, 0));
    let last = cursor.chars().last().expect("a tag");
    let tag = format!("{}{}", &cursor[..cursor.len() - 1], if last == '0' { '1' } else { '0' });
    for forged in [tag, moved(&cursor, 0, 1), moved(&cursor, 1, 1), moved(&cursor, 2, 1)] {
        refused(&no_stream(&session, &session.get_after(&forged)), 400, "invalid_cursor");
    }
}

pub(crate) fn future_cursor(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut stream = session.call(&count(1, 1000, 20));
    let cursor = message(&mut stream).cursor().to_owned();
    for by in [2000, 1 << 40] {
        refused(&no_stream(&session, &session.get_after(&moved(&cursor, 2, by))), 400, "invalid_cursor");
    }
    lives(&session, 2);
}

pub(crate) fn lost_tail(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut stream = session.call(&count(1, 3, 20));
    let said = rest(&mut stream);
    let (held, lost) = (said[0].cursor(), said[3].cursor());
    server.lose_tail(&session.id, 2);
    drop(session.resume(held));
    dead(&no_stream(&session, &session.get_after(lost)), "lineage");
    dead(&no_stream(&session, &session.get()), "lineage");
}

pub(crate) fn incarnation(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let cursor = whole(&session, &count(1, 2, 0))[0].cursor().to_owned();
    let pending = count(2, 1000, 20);
    let mut stream = session.call(&pending);
    message(&mut stream);
    server.rotate(&session.id);
    let said = rest(&mut stream);
    outcome_unknown(said.last().expect("an answer"), 2);
    dead(&no_stream(&session, &session.get_after(&cursor)), "incarnation");
    let repost = session.tell(&pending).json();
    assert_eq!((repost["id"].as_u64(), repost["error"]["code"].as_i64()), (Some(2), Some(-32010)));
    assert_eq!(effects(&session, 3), 2);
    let next = whole(&session, &count(4, 1, 0));
    assert_ne!(place(next[0].cursor()).0, place(&cursor).0);
}

pub(crate) fn forgotten(fault: Option<Fault>) {
    let server = server(fault, |settings| (settings.results_held, settings.tombstones) = (1, 2));
    let session = begin(&server);
    let cursor = whole(&session, &count(1, 1, 0))[0].cursor().to_owned();
    (2..6).for_each(|id| drop(whole(&session, &count(id, 1, 0))));
    dead(&no_stream(&session, &session.get_after(&cursor)), "forgotten");
    lives(&session, 9);
}

pub(crate) fn evicted(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.events_held = 3);
    let session = begin(&server);
    let said = whole(&session, &count(1, 20, 5));
    let cursor = said[0].cursor();
    let at = place(cursor).2;
    let again = rest(&mut session.resume(cursor));
    let told = resync(&again[0]);
    assert_eq!((told.requested.as_deref(), told.reason.as_str()), (Some(cursor), "evicted"));
    assert_eq!((told.lost, told.earliest.as_deref()), (Some(17 - at), again[1].id.as_deref()));
    assert_eq!(place(&told.id).2 + 1, place(again[1].cursor()).2);
    counts(&again[1..], 18, 20);
    // Whoever stored the id of the resync moves forward.
    counts(&rest(&mut session.resume(&told.id)), 18, 20);
}

pub(crate) fn evicted_by_age(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.event_ttl = Duration::from_millis(1500));
    let session = begin(&server);
    let said = whole(&session, &count(1, 3, 0));
    thread::sleep(Duration::from_millis(2000));
    let again = rest(&mut session.resume(said[0].cursor()));
    assert_eq!(resync(&again[0]).lost, Some(2));
    assert_eq!(again.len(), 2, "{again:?}");
    same(&again[1..], &said[3..]);
}

pub(crate) fn evicted_standalone(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.events_held = 3);
    let session = begin(&server);
    whole(&session, &broadcast(1, 8));
    let mut stream = session.listen();
    let told = resync(&next(&mut stream));
    assert_eq!((told.requested, told.lost), (None, Some(5)));
    let changed = next(&mut stream);
    assert_eq!((changed.json()["method"].as_str(), &changed.id), (Some("notifications/tools/list_changed"), &None));
    let left: Vec<_> = (0..3).map(|_| next(&mut stream)).collect();
    assert_eq!((heard(&left), left[0].id.clone()), (vec![6, 7, 8], told.earliest));
}

pub(crate) fn lost_result(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.results_held = 1);
    let session = begin(&server);
    let said = whole(&session, &count(1, 2, 0));
    whole(&session, &count(2, 2, 0));
    let again = rest(&mut session.resume(said[0].cursor()));
    let told = resync(&again[0]);
    assert_eq!((told.lost, told.earliest.as_deref()), (Some(2), said[2].id.as_deref()));
    outcome_unknown(&again[1], 1);
    assert_eq!((again.len(), &again[1].id), (2, &said[2].id));
    let repost = session.tell(&count(1, 2, 0)).json();
    assert_eq!(repost["error"]["code"], -32010);
    assert_eq!(effects(&session, 3), 2);
}

pub(crate) fn cancelled_over_a_gap(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.events_held = 3);
    let session = begin(&server);
    let mut stream = session.call(&count(1, 1000, 5));
    let first = message(&mut stream);
    (0..20).for_each(|_| drop(message(&mut stream)));
    session.tell(&notification("notifications/cancelled", json!({"requestId": 1})));
    rest(&mut stream);
    let again = rest(&mut session.resume(first.cursor()));
    assert!(resync(&again[0]).lost > Some(10), "{again:?}");
    outcome_unknown(again.last().expect("an answer"), 1);
    assert_eq!(again.len(), 5, "{again:?}");
    complete(&session, again[4].cursor());
}

pub(crate) fn overrun(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.events_held = 8);
    let session = begin(&server);
    let mut call = count(1, 2000, 0);
    call["params"]["arguments"]["bytes"] = json!(2000);
    let mut connection = Connection::open_narrow(server.address);
    connection.send(&session.post(&call));
    let mut stream = connection.stream();
    thread::sleep(Duration::from_millis(700));
    let said = rest(&mut stream);
    let mut expected = 1;
    let mut told = 0;
    for block in &said {
        if block.is_resync() {
            let resync = resync(block);
            assert_eq!(resync.reason, "overrun");
            expected = place(&resync.id).2 + 1;
            told += 1;
        } else if let Some(number) = tick(block) {
            assert_eq!(number, expected, "a silent skip");
            expected += 1;
        }
    }
    assert!(told > 0 && expected == 2001, "{told} {expected}");
}
