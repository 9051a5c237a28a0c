//! Rows 11 to 14: what follows a good cursor, or none.

use std::thread::sleep;
use std::time::Duration;

use rejoin_tests::check::{empty, never_cached, place, positions, stream_with};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{JUNE, NOVEMBER, Session, call, call_with_token, executions, tick, ticks, ticks_in};
use rejoin_tests::sse::Block;
use rejoin_tests::wire::ask;
use serde_json::{Value, json};

on_every_server!(
    the_end_of_a_finished_stream_is_204,
    the_end_of_a_finished_stream_is_405_for_the_strict,
    a_replay_is_exactly_what_follows_the_cursor,
    every_cursor_of_a_call_replays_its_own_rest,
    a_replay_goes_over_into_live_without_gap_or_repeat,
    a_cursor_at_the_last_event_of_a_running_call_gets_the_tail,
    a_call_that_ends_while_its_client_is_away_is_answered_on_return,
    a_stream_replays_its_own_events_only,
    the_start_of_a_stream_is_a_cursor_too,
    a_result_that_is_an_error_is_replayed,
    events_said_before_anyone_listened_are_not_lost,
    the_standalone_stream_begins_where_none_was_written,
    a_listener_without_cursor_on_a_silent_stream_gets_the_tail,
    a_standalone_cursor_is_replayed_and_stays_live,
    a_replay_may_be_asked_for_again_and_again,
);

fn started(on: Flavour) -> (Rejoin, Session) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn broadcast(id: u64, count: u64) -> Value {
    call(id, "broadcast", json!({"count": count, "interval_ms": 0}))
}

fn the_end_of_a_finished_stream_is_204(on: Flavour) {
    let (server, session) = started(on);
    let blocks = session.call(&call(1, "ticker", ticks(3, 0))).rest();
    let answer = ask(server.address, &session.get_after(blocks[blocks.len() - 1].cursor()));
    empty(&answer, 204, "complete");
    assert_eq!(answer.head.field("Content-Type"), None, "{}", answer.head);
}

fn the_end_of_a_finished_stream_is_405_for_the_strict(on: Flavour) {
    let server = Rejoin::start(on, &["--finished", "405"]);
    let session = Session::begin(server.address, NOVEMBER);
    let blocks = session.call(&call(1, "ticker", ticks(3, 0))).rest();
    let answer = ask(server.address, &session.get_after(blocks[blocks.len() - 1].cursor()));
    assert_eq!(answer.status(), 405);
    assert_eq!(answer.head.field("Rejoin-Verdict"), Some("complete"), "{}", answer.head);
    assert!(answer.head.field("Allow").is_some(), "{}", answer.head);
    never_cached(&answer.head);
}

fn a_replay_is_exactly_what_follows_the_cursor(on: Flavour) {
    let (_server, session) = started(on);
    let first = session.call(&call(1, "ticker", ticks(10, 0))).rest();
    let mut replay = session.resume(first[4].cursor());
    stream_with(&replay, "replay");
    let again = replay.rest();
    assert!(again[0].is_opening() && again[0].id == first[4].id, "the presented cursor opens the stream: {}", again[0].text);
    assert_eq!(again[1..], first[5..]);
}

fn every_cursor_of_a_call_replays_its_own_rest(on: Flavour) {
    let (server, session) = started(on);
    let first = session.call(&call(1, "ticker", ticks(12, 0))).rest();
    assert_eq!(positions(&first), (0..=13).collect::<Vec<_>>());
    for at in 0..first.len() - 1 {
        let again = session.resume(first[at].cursor()).rest();
        assert_eq!(again[1..], first[at + 1..], "after event {at}");
    }
    empty(&ask(server.address, &session.get_after(first[13].cursor())), 204, "complete");
}

fn a_replay_goes_over_into_live_without_gap_or_repeat(on: Flavour) {
    let (_server, session) = started(on);
    let mut stream = session.call(&call(1, "ticker", ticks(40, 10)));
    let mut seen = stream.take(3);
    drop(stream);
    while !seen[seen.len() - 1].json()["result"].is_object() {
        sleep(Duration::from_millis(35));
        let mut stream = session.resume(seen[seen.len() - 1].cursor());
        let opening = stream.event();
        assert!(opening.is_opening() && opening.id == seen[seen.len() - 1].id, "{}", opening.text);
        seen.extend(stream.take(2));
        // A reset now and then, as well as a FIN.
        if seen.len() % 4 == 0 {
            stream.reset();
        }
        if seen.len() > 30 {
            seen.extend(session.resume(seen[seen.len() - 1].cursor()).rest().split_off(1));
        }
    }
    assert_eq!(ticks_in(&seen), (1..=40).collect::<Vec<_>>());
    assert_eq!(executions(&seen[seen.len() - 1].json()["result"]), 1);
}

fn a_cursor_at_the_last_event_of_a_running_call_gets_the_tail(on: Flavour) {
    let (_server, session) = started(on);
    let mut stream = session.call(&call(1, "ticker", ticks(2, 1_500)));
    let seen = stream.until(|block| tick(block) == Some(1));
    drop(stream);
    let mut stream = session.resume(seen[seen.len() - 1].cursor());
    stream_with(&stream, "tail");
    let rest = stream.rest();
    assert_eq!(ticks_in(&rest), [2]);
    assert_eq!(executions(&rest[rest.len() - 1].json()["result"]), 1);
}

fn a_call_that_ends_while_its_client_is_away_is_answered_on_return(on: Flavour) {
    let (server, session) = started(on);
    let mut stream = session.call(&call(1, "ticker", ticks(5, 30)));
    let opening = stream.event();
    stream.reset();
    sleep(Duration::from_millis(500));
    let mut back = session.resume(opening.cursor());
    stream_with(&back, "replay");
    let rest = back.rest();
    assert_eq!(ticks_in(&rest), [1, 2, 3, 4, 5]);
    let last = &rest[rest.len() - 1];
    assert_eq!(executions(&last.json()["result"]), 1);
    empty(&ask(server.address, &session.get_after(last.cursor())), 204, "complete");
}

fn a_stream_replays_its_own_events_only(on: Flavour) {
    let (_server, session) = started(on);
    let mut streams: Vec<_> = (1..=4).map(|id| session.call(&call(id, "ticker", ticks(id * 3, 5)))).collect();
    let openings: Vec<_> = streams.iter_mut().map(|stream| stream.event().cursor().to_owned()).collect();
    streams.iter_mut().for_each(|stream| drop(stream.rest()));
    session.result(&broadcast(9, 3));
    let mut numbers: Vec<_> = openings.iter().map(|cursor| place(cursor).1).collect();
    numbers.dedup();
    assert_eq!(numbers.len(), 4, "each call has a stream of its own: {openings:?}");
    for (id, opening) in (1..=4).zip(&openings) {
        let rest = session.resume(opening).rest();
        assert_eq!(ticks_in(&rest), (1..=id * 3).collect::<Vec<u64>>());
        assert_eq!(rest[rest.len() - 1].json()["id"], id);
        positions(&rest);
    }
}

fn the_start_of_a_stream_is_a_cursor_too(on: Flavour) {
    let (_server, session) = started(on);
    let first = session.call(&call(1, "ticker", ticks(3, 0))).rest();
    assert!(first[0].is_opening());
    assert_eq!(place(first[0].cursor()).2, 0);
    assert_eq!(session.resume(first[0].cursor()).rest()[1..], first[1..]);
}

fn a_result_that_is_an_error_is_replayed(on: Flavour) {
    let server = Rejoin::start(on, &["--response", "sse"]);
    let session = Session::begin(server.address, NOVEMBER);
    let first = session.call(&call(1, "no-such-tool", json!({}))).rest();
    let last = first[first.len() - 1].json();
    assert_eq!(last["id"], 1, "{last}");
    let again = session.resume(first[0].cursor()).rest();
    assert_eq!(again[1..], first[1..]);
}

fn events_said_before_anyone_listened_are_not_lost(on: Flavour) {
    let (_server, session) = started(on);
    session.result(&broadcast(1, 5));
    let mut stream = session.listen();
    stream_with(&stream, "replay");
    let opening = stream.event();
    assert!(opening.is_opening());
    assert_eq!(place(opening.cursor()), (1, 0, 0), "the opening stands just before what follows");
    let said = stream.take(5);
    assert_eq!(positions(&said), [1, 2, 3, 4, 5]);
}

fn the_standalone_stream_begins_where_none_was_written(on: Flavour) {
    let (_server, session) = started(on);
    session.result(&broadcast(1, 3));
    let mut first = session.listen();
    first.take(4);
    first.leave();
    session.result(&broadcast(2, 2));
    let mut stream = session.listen();
    stream_with(&stream, "replay");
    let opening = stream.event();
    assert!(opening.is_opening());
    assert_eq!(place(opening.cursor()).2, 3, "a second cut at once must not lose the client its place");
    assert_eq!(positions(&stream.take(2)), [4, 5]);
}

fn a_listener_without_cursor_on_a_silent_stream_gets_the_tail(on: Flavour) {
    let (_server, session) = started(on);
    let mut stream = session.listen();
    stream_with(&stream, "tail");
    assert!(stream.event().is_opening());
    stream.stays_silent(Duration::from_millis(100));
    session.result(&broadcast(1, 2));
    assert_eq!(positions(&stream.take(2)), [1, 2]);
}

fn a_standalone_cursor_is_replayed_and_stays_live(on: Flavour) {
    let (_server, session) = started(on);
    session.result(&broadcast(1, 4));
    let first = session.listen().take(5);
    let mut stream = session.resume(first[2].cursor());
    stream_with(&stream, "replay");
    assert_eq!(stream.take(3)[1..], first[3..]);
    stream.stays_silent(Duration::from_millis(100));
    session.result(&broadcast(2, 1));
    assert_eq!(positions(&[stream.event()]), [5]);
}

fn a_replay_may_be_asked_for_again_and_again(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, JUNE);
    let first = session.call(&call_with_token(1, "token", "ticker", ticks(6, 0))).rest();
    assert_eq!(ticks_in(&first), (1..=6).collect::<Vec<_>>());
    for _ in 0..5 {
        let again = session.resume(first[1].cursor()).rest();
        assert!(again.iter().map(Block::said).eq(first[2..].iter().map(Block::said)), "{again:?}");
    }
}
