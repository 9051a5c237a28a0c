//! How a stream opens, keeps alive and ends.

use std::thread::sleep;
use std::time::Duration;

use rejoin_tests::check::{empty, place, stream_with};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{
    JUNE, MARCH, NOVEMBER, Session, call, call_with_token, executions, notification, tick, ticks, ticks_in,
};
use rejoin_tests::wire::{Connection, PATIENCE, Step, ask};
use serde_json::json;

on_every_server!(
    from_november_on_each_stream_opens_with_an_id_and_an_empty_data_line,
    older_revisions_get_no_opening_event,
    retry_is_three_seconds_give_or_take_a_fifth,
    retry_follows_its_option,
    a_stream_ends_right_after_its_answer_and_the_connection_serves_on,
    a_resumed_stream_ends_right_after_its_answer_too,
    a_cancelled_call_ends_its_stream_cleanly_and_says_nothing_more,
    silence_is_filled_with_comments,
    bytes_behind_an_open_stream_are_the_next_request,
    a_fin_is_a_disconnect,
    a_head_is_an_event_streams,
);

fn started(on: Flavour) -> (Rejoin, Session) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn from_november_on_each_stream_opens_with_an_id_and_an_empty_data_line(on: Flavour) {
    let (_server, session) = started(on);
    let mut posted = session.call(&call(1, "ticker", ticks(2, 50)));
    let opening = posted.event();
    assert!(opening.is_opening(), "{}", opening.text);
    assert!(opening.text.lines().any(|line| line == "data:" || line == "data: "), "{}", opening.text);
    assert_eq!(place(opening.cursor()).2, 0);
    let resumed = session.resume(opening.cursor()).event();
    assert!(resumed.is_opening() && resumed.id == opening.id, "{}", resumed.text);
    assert!(session.listen().event().is_opening());
}

fn older_revisions_get_no_opening_event(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    for revision in [JUNE, MARCH] {
        let session = Session::begin(server.address, revision);
        let mut listening = session.listen();
        let blocks = session.call(&call(1, "ticker", ticks(3, 0))).rest();
        assert_eq!(ticks_in(&blocks), [1, 2, 3]);
        assert!(blocks.iter().all(|block| block.data.as_deref() != Some("")), "an empty event breaks them: {blocks:?}");
        let resumed = session.resume(blocks[blocks.len() - 3].cursor()).rest();
        assert!(resumed.iter().all(|block| block.data.as_deref() != Some("")), "{resumed:?}");
        session.result(&call(2, "broadcast", json!({"count": 1, "interval_ms": 0})));
        let said = listening.until(|block| block.is_message());
        assert!(said.iter().all(|block| block.data.as_deref() != Some("")), "{said:?}");
    }
}

fn retry_is_three_seconds_give_or_take_a_fifth(on: Flavour) {
    let (_server, session) = started(on);
    let retries: Vec<u128> =
        (0..30).map(|_| session.listen().event().retry.expect("an opening event says when to come back").as_millis()).collect();
    assert!(retries.iter().all(|retry| (2_400..=3_600).contains(retry)), "{retries:?}");
    let (least, most) = (retries.iter().min(), retries.iter().max());
    let spread = most.zip(least).map(|(most, least)| most - least);
    assert!(spread > Some(300), "clients cut off together would come back together: {retries:?}");
}

fn retry_follows_its_option(on: Flavour) {
    let server = Rejoin::start(on, &["--retry", "200ms"]);
    let session = Session::begin(server.address, NOVEMBER);
    for _ in 0..10 {
        let retry = session.listen().event().retry.expect("an opening event says when to come back").as_millis();
        assert!((160..=240).contains(&retry), "{retry}");
    }
}

fn a_stream_ends_right_after_its_answer_and_the_connection_serves_on(on: Flavour) {
    let (_server, session) = started(on);
    let mut stream = session.call(&call(1, "ticker", ticks(2, 0)));
    let blocks = stream.rest();
    assert_eq!(executions(&blocks[blocks.len() - 1].json()["result"]), 1);
    let mut connection = stream.into_connection();
    connection.send(&session.post(&call(2, "ticker", ticks(1, 0))));
    assert_eq!(ticks_in(&connection.stream().rest()), [1]);
}

fn a_resumed_stream_ends_right_after_its_answer_too(on: Flavour) {
    let (server, session) = started(on);
    let mut stream = session.call(&call(1, "ticker", ticks(4, 100)));
    let first = stream.until(|block| tick(block) == Some(1)).pop().expect("the first tick");
    drop(stream);
    let mut back = session.resume(first.cursor());
    let blocks = back.rest();
    assert_eq!(ticks_in(&blocks), [2, 3, 4]);
    let mut connection = back.into_connection();
    let last = blocks[blocks.len() - 1].cursor();
    empty(&connection.ask(&session.get_after(last)), 204, "complete");
    empty(&ask(server.address, &session.get_after(last)), 204, "complete");
}

fn a_cancelled_call_ends_its_stream_cleanly_and_says_nothing_more(on: Flavour) {
    let (server, session) = started(on);
    let asked = call(1, "ticker", ticks(1_000, 20));
    let mut stream = session.call(&asked);
    stream.until(|block| tick(block) == Some(2));
    session.tell(&notification("notifications/cancelled", json!({"requestId": 1, "reason": "a test"})));
    let rest = stream.rest();
    assert!(rest.iter().all(|block| tick(block).is_some() || !block.is_message()), "{rest:?}");
    let last = rest.iter().rev().find_map(|block| block.id.clone());
    if let Some(last) = last {
        empty(&ask(server.address, &session.get_after(&last)), 204, "complete");
    }
    let again = session.tell(&asked);
    let messages = rejoin_tests::session::messages_of(&again);
    let error = messages.iter().find(|message| message["id"] == 1).expect("an answer to the repost");
    rejoin_tests::check::error(&error["error"], "outcome_unknown");
}

fn silence_is_filled_with_comments(on: Flavour) {
    let server = Rejoin::start(on, &["--keep-alive", "1s"]);
    let session = Session::begin(server.address, NOVEMBER);
    let mut stream = session.listen();
    assert!(stream.event().is_opening());
    for _ in 0..2 {
        match stream.step(Duration::from_secs(4)) {
            Step::Block(block) => assert!(block.is_comment(), "{}", block.text),
            other => stream.fail(&format!("waiting for a comment: {other:?}")),
        }
    }
}

fn bytes_behind_an_open_stream_are_the_next_request(on: Flavour) {
    let (server, session) = started(on);
    let mut connection = Connection::open(server.address);
    connection.send(&session.post(&call(1, "ticker", ticks(4, 50))));
    let mut stream = connection.stream();
    stream.event();
    let next = session.post(&call(2, "ticker", ticks(2, 0)));
    let bytes = next.bytes();
    stream.connection().write(&bytes[..40]);
    stream.until(|block| tick(block) == Some(2));
    stream.connection().write(&bytes[40..]);
    let rest = stream.rest();
    assert_eq!(rest[rest.len() - 1].json()["id"], 1, "the first answer is not disturbed");
    let second = stream.into_connection().stream().rest();
    assert_eq!(ticks_in(&second), [1, 2]);
    assert_eq!(second[second.len() - 1].json()["id"], 2);
}

fn a_fin_is_a_disconnect(on: Flavour) {
    let server = Rejoin::start(on, &["--session-ttl", "1s"]);
    let session = Session::begin(server.address, NOVEMBER);
    let mut stream = session.listen();
    stream.event();
    stream.connection().finish();
    // The server need not say anything more; what counts is that nobody is attached.
    match stream.step(PATIENCE) {
        Step::CleanEnd | Step::Cut(_) => {}
        other => stream.fail(&format!("after a FIN: {other:?}")),
    }
    sleep(Duration::from_millis(2_300));
    rejoin_tests::check::expired(&ask(server.address, &session.get()), "expired");
}

fn a_head_is_an_event_streams(on: Flavour) {
    let (_server, session) = started(on);
    let posted = session.call(&call_with_token(1, 1, "ticker", ticks(1, 0)));
    assert_eq!(posted.head.field("Mcp-Session-Id").unwrap_or(&session.id), session.id);
    assert_eq!(posted.head.field("X-Accel-Buffering"), Some("no"), "{}", posted.head);
    rejoin_tests::check::never_cached(&posted.head);
    let listening = session.listen();
    stream_with(&listening, "tail");
    assert_eq!(listening.head.field("Transfer-Encoding"), Some("chunked"), "{}", listening.head);
    assert_eq!(listening.head.field("Mcp-Session-Id").unwrap_or(&session.id), session.id);
}
