//! Row 11: a gap is told in band, costs no result, and never hangs a call.

use std::thread::sleep;
use std::time::Duration;

use rejoin_tests::check::{empty, outcome_unknown, place, positions, resync, stream_with};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{JUNE, NOVEMBER, Session, call, executions, tick, ticks, ticks_in};
use rejoin_tests::sse::Block;
use rejoin_tests::wire::{Connection, ask};
use serde_json::{Value, json};

on_every_server!(
    a_cursor_evicted_by_count_gets_resync_first_and_the_stream_goes_on,
    a_finished_stream_with_a_gap_gets_resync_then_the_rest_then_a_clean_end,
    the_first_event_still_held_needs_no_resync,
    a_resync_is_a_place_to_resume_from,
    a_resync_stands_in_for_the_opening_event,
    events_evicted_by_age_get_resync_and_the_result_outlives_them,
    a_lost_result_becomes_an_error_with_the_requests_id,
    older_revisions_get_the_resync_too,
    the_standalone_stream_tells_its_gap_and_what_stock_clients_act_on,
    events_that_nobody_heard_and_nobody_will_get_resync_without_a_request,
    a_reader_too_slow_for_the_log_is_told_in_its_live_stream,
    a_cancelled_call_resumed_over_a_gap_is_told_that_its_outcome_is_unknown,
);

/// A server whose streams hold five events.
fn forgetful(on: Flavour) -> (Rejoin, Session) {
    let server = Rejoin::start(on, &["--stream-events", "5"]);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

/// Asserts a gap's announcement and what follows it: the cursor, the count, the first event.
fn gap_told(blocks: &[Block], presented: &Block) {
    let told = resync(&blocks[0]);
    let (_, _, before) = place(presented.cursor());
    let next = blocks[1].cursor();
    let (_, _, earliest) = place(next);
    assert_eq!(told.requested.as_deref(), presented.id.as_deref());
    assert_eq!(told.earliest.as_deref(), Some(next));
    assert_eq!(place(&told.id).2, earliest - 1, "the resync stands just before what follows");
    assert_eq!(told.lost, Some(earliest - 1 - before));
    assert_eq!(told.reason, "evicted");
}

/// Asserts positions without a gap, the first block's included.
fn contiguous(blocks: &[Block]) {
    let positions = positions(blocks);
    assert!(positions.windows(2).all(|pair| pair[1] == pair[0] + 1), "{positions:?}");
}

fn a_cursor_evicted_by_count_gets_resync_first_and_the_stream_goes_on(on: Flavour) {
    let (_server, session) = forgetful(on);
    let mut stream = session.call(&call(1, "ticker", ticks(40, 25)));
    let first = stream.until(|block| tick(block) == Some(1)).pop().expect("the first tick");
    drop(stream);
    sleep(Duration::from_millis(500));
    let mut back = session.resume(first.cursor());
    stream_with(&back, "resync");
    let blocks = back.rest();
    gap_told(&blocks, &first);
    contiguous(&blocks);
    assert!(tick(&blocks[1]).is_some_and(|tick| tick > 2), "{}", blocks[1].text);
    let last = &blocks[blocks.len() - 1];
    assert_eq!(place(last.cursor()).2, 41);
    assert_eq!(executions(&last.json()["result"]), 1);
}

fn a_finished_stream_with_a_gap_gets_resync_then_the_rest_then_a_clean_end(on: Flavour) {
    let (server, session) = forgetful(on);
    let first = session.call(&call(1, "ticker", ticks(20, 2))).rest();
    for presented in [&first[0], &first[1], &first[7]] {
        let mut back = session.resume(presented.cursor());
        stream_with(&back, "resync");
        let blocks = back.rest();
        gap_told(&blocks, presented);
        contiguous(&blocks);
        assert_eq!(blocks[1..], first[first.len() - (blocks.len() - 1)..]);
        assert!((2..=7).contains(&blocks.len()), "five events are held, and the result apart: {}", blocks.len());
    }
    let last = &first[first.len() - 1];
    empty(&ask(server.address, &session.get_after(last.cursor())), 204, "complete");
}

fn the_first_event_still_held_needs_no_resync(on: Flavour) {
    let (_server, session) = forgetful(on);
    let first = session.call(&call(1, "ticker", ticks(20, 2))).rest();
    let told = resync(&session.resume(first[1].cursor()).rest()[0]);
    let at_edge = place(&told.id).2 as usize;
    let mut exact = session.resume(first[at_edge].cursor());
    stream_with(&exact, "replay");
    assert_eq!(exact.rest()[1..], first[at_edge + 1..]);
    let mut over = session.resume(first[at_edge - 1].cursor());
    stream_with(&over, "resync");
    assert_eq!(resync(&over.rest()[0]).lost, Some(1));
}

fn a_resync_is_a_place_to_resume_from(on: Flavour) {
    let (_server, session) = forgetful(on);
    let first = session.call(&call(1, "ticker", ticks(20, 2))).rest();
    let gap = session.resume(first[1].cursor()).rest();
    let mut again = session.resume(gap[0].cursor());
    stream_with(&again, "replay");
    assert_eq!(again.rest()[1..], gap[1..], "a client that merely stores ids moves forward");
}

fn a_resync_stands_in_for_the_opening_event(on: Flavour) {
    let (_server, session) = forgetful(on);
    let first = session.call(&call(1, "ticker", ticks(20, 2))).rest();
    let blocks = session.resume(first[1].cursor()).rest();
    assert!(blocks[0].is_resync());
    assert!(!blocks.iter().any(Block::is_opening));
}

fn events_evicted_by_age_get_resync_and_the_result_outlives_them(on: Flavour) {
    let server = Rejoin::start(on, &["--event-ttl", "1s"]);
    let session = Session::begin(server.address, NOVEMBER);
    let first = session.call(&call(1, "ticker", ticks(10, 0))).rest();
    sleep(Duration::from_millis(2_300));
    let mut back = session.resume(first[3].cursor());
    stream_with(&back, "resync");
    let blocks = back.rest();
    gap_told(&blocks, &first[3]);
    assert_eq!(blocks[1..], first[11..], "the result alone is left");
}

fn a_lost_result_becomes_an_error_with_the_requests_id(on: Flavour) {
    let server = Rejoin::start(on, &["--event-ttl", "1s", "--result-ttl", "1s"]);
    let session = Session::begin(server.address, NOVEMBER);
    let first = session.call(&call("the-call", "ticker", ticks(10, 0))).rest();
    sleep(Duration::from_millis(2_300));
    for presented in [&first[0], &first[3], &first[10]] {
        let mut back = session.resume(presented.cursor());
        stream_with(&back, "resync");
        let blocks = back.rest();
        assert_eq!(blocks.len(), 2, "{blocks:?}");
        let told = resync(&blocks[0]);
        assert_eq!(told.requested, presented.id);
        assert_eq!(place(&told.id).2, 10, "just before the result's position");
        outcome_unknown(&blocks[1], "the-call");
        assert_eq!(blocks[1].id, first[11].id, "at the result's own position");
    }
    // Who has the result is never handed the error.
    empty(&ask(server.address, &session.get_after(first[11].cursor())), 204, "complete");
}

fn older_revisions_get_the_resync_too(on: Flavour) {
    let server = Rejoin::start(on, &["--stream-events", "5"]);
    let session = Session::begin(server.address, JUNE);
    let first = session.call(&call(1, "ticker", ticks(20, 2))).rest();
    let presented = first.iter().find(|block| block.id.is_some()).expect("an event");
    let blocks = session.resume(presented.cursor()).rest();
    gap_told(&blocks, presented);
    contiguous(&blocks);
}

fn broadcast(id: u64, count: u64) -> Value {
    call(id, "broadcast", json!({"count": count, "interval_ms": 2}))
}

/// The `list_changed` notifications that a session's server promised.
fn promised(session: &Session) -> Vec<String> {
    let capabilities = &session.server["capabilities"];
    let kinds = ["tools", "resources", "prompts"].into_iter().filter(|kind| capabilities[kind]["listChanged"] == true);
    kinds.map(|kind| format!("notifications/{kind}/list_changed")).collect()
}

/// Asserts the notifications without ids right after a standalone stream's `resync`; gives the first block after them.
fn follow_ups(session: &Session, stream: &mut rejoin_tests::wire::Stream) -> Block {
    let mut said = Vec::new();
    loop {
        let block = stream.event();
        if block.id.is_some() {
            said.sort();
            let mut promised = promised(session);
            promised.sort();
            assert_eq!(said, promised);
            return block;
        }
        said.push(block.json()["method"].as_str().expect("a notification").to_owned());
    }
}

fn the_standalone_stream_tells_its_gap_and_what_stock_clients_act_on(on: Flavour) {
    let (_server, session) = forgetful(on);
    session.result(&broadcast(1, 2));
    let seen = session.listen().take(3);
    session.result(&broadcast(2, 20));
    let mut back = session.resume(seen[2].cursor());
    stream_with(&back, "resync");
    let told = resync(&back.event());
    assert_eq!(told.requested, seen[2].id);
    let next = follow_ups(&session, &mut back);
    assert_eq!(told.earliest, next.id);
    assert_eq!(place(next.cursor()).2, place(&told.id).2 + 1);
    let held = 22 - place(&told.id).2;
    let mut rest = vec![next];
    rest.extend(back.take(held as usize - 1));
    contiguous(&rest);
    assert_eq!(place(rest[rest.len() - 1].cursor()).2, 22);
    back.stays_silent(Duration::from_millis(100));
}

fn events_that_nobody_heard_and_nobody_will_get_resync_without_a_request(on: Flavour) {
    let (_server, session) = forgetful(on);
    session.result(&broadcast(1, 20));
    let mut stream = session.listen();
    stream_with(&stream, "resync");
    let told = resync(&stream.event());
    assert_eq!(told.requested, None);
    let next = follow_ups(&session, &mut stream);
    assert_eq!(told.earliest, next.id);
    assert_eq!(told.lost, Some(place(next.cursor()).2 - 1));
}

fn a_reader_too_slow_for_the_log_is_told_in_its_live_stream(on: Flavour) {
    let (_server, session) = forgetful(on);
    let mut arguments = ticks(400, 1);
    arguments["payload_bytes"] = json!(16 << 10);
    let mut slow = Connection::open_narrow(session.address);
    slow.send(&session.post(&call(1, "ticker", arguments)));
    let mut stream = slow.stream();
    let mut seen = stream.take(2);
    // Nothing is read while far more is said than sockets hold.
    sleep(Duration::from_millis(2_500));
    seen.extend(stream.rest());
    let gaps: Vec<usize> = (0..seen.len()).filter(|&at| seen[at].is_resync()).collect();
    assert!(!gaps.is_empty(), "{} events came without a gap", seen.len());
    for at in gaps {
        let told = resync(&seen[at]);
        assert_eq!(told.reason, "overrun");
        assert_eq!(told.earliest, seen[at + 1].id);
        let before = place(seen[at - 1].cursor()).2;
        let after = place(seen[at + 1].cursor()).2;
        assert_eq!((place(&told.id).2, told.lost), (after - 1, Some(after - 1 - before)));
    }
    let told: Vec<Block> = seen.iter().filter(|block| !block.is_resync()).cloned().collect();
    let ticks = ticks_in(&told);
    assert!(ticks.windows(2).all(|pair| pair[0] < pair[1]), "{ticks:?}");
    assert_eq!(executions(&seen[seen.len() - 1].json()["result"]), 1);
}

fn a_cancelled_call_resumed_over_a_gap_is_told_that_its_outcome_is_unknown(on: Flavour) {
    let (_server, session) = forgetful(on);
    let mut stream = session.call(&call(1, "ticker", ticks(1_000, 5)));
    let first = stream.until(|block| tick(block) == Some(1)).pop().expect("the first tick");
    stream.until(|block| tick(block) == Some(20));
    let cancel = rejoin_tests::session::notification("notifications/cancelled", json!({"requestId": 1}));
    session.tell(&cancel);
    stream.rest();
    let blocks = session.resume(first.cursor()).rest();
    assert_eq!(resync(&blocks[0]).requested, first.id);
    contiguous(&blocks[..blocks.len() - 1]);
    outcome_unknown(&blocks[blocks.len() - 1], 1);
}
