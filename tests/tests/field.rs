//! What MCP servers got wrong in public, each situation as a test: ours must get the kind of it right.
//!
//! One test a row of the field report's last table, as far as a server of revisions up to 2025-11-25 can meet it. The rows about
//! principals and embedders are in `embedded.rs`.

use std::collections::BTreeSet;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rejoin_tests::check::{empty, expired, outcome_unknown, positions, refused, resync};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{
    NOVEMBER, Session, call, executions, initialize, request, result_of, text_of, tick, ticks, ticks_in,
};
use rejoin_tests::sse::Block;
use rejoin_tests::wire::{Connection, Request, Step, ask, open};
use serde_json::{Value, json};

on_every_server!(
    a_failed_resume_is_never_an_empty_200,
    ids_are_unique_in_a_session,
    a_stream_that_ended_with_an_error_is_resumed,
    an_unknown_session_is_404_and_neither_401_nor_400,
    a_session_outlives_its_streams,
    a_result_produced_while_nobody_was_connected_is_delivered_once,
    a_client_back_before_the_next_event_loses_nothing,
    a_replay_holds_its_own_streams_events_only,
    aborted_bodies_leave_neighbours_unaffected,
    sessions_are_small_and_freed_without_delete,
    a_keep_alive_is_a_comment,
    an_own_dead_connection_does_not_block_the_return,
    stray_requests_and_second_clients_do_no_harm,
    a_dead_sessions_pending_calls_are_told,
    initialize_with_a_dead_session_id_gives_a_new_session,
    replay_goes_over_into_live_without_a_gap_under_load,
    a_finished_stream_sends_nobody_into_a_loop,
    sigterm_neither_hangs_on_streams_nor_truncates_them,
    a_disconnect_is_no_cancellation,
    an_open_get_blocks_no_post,
    a_failed_get_poisons_no_post,
);

fn started(on: Flavour, options: &[&str]) -> (Rejoin, Session) {
    let server = Rejoin::start(on, options);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn broadcast(id: u64, count: u64) -> Value {
    call(id, "broadcast", json!({"count": count, "interval_ms": 0}))
}

fn a_failed_resume_is_never_an_empty_200(on: Flavour) {
    let (server, session) = started(on, &["--stream-events", "5"]);
    let other = Session::begin(server.address, NOVEMBER);
    let finished = session.call(&call(1, "ticker", ticks(20, 1))).rest();
    let foreign = other.call(&call(1, "ticker", ticks(2, 0))).rest();
    let mut running = session.call(&call(2, "ticker", ticks(200, 10)));
    let early = running.until(|block| tick(block) == Some(1)).pop().expect("the first tick");
    running.until(|block| tick(block) == Some(12));
    let evicted = [&finished[0], &finished[1], &early];
    for block in evicted {
        resync(&session.resume(block.cursor()).event());
    }
    for cursor in ["garbage", "4821", "", foreign[1].cursor()] {
        refused(&ask(server.address, &session.get_after(cursor)), 400, "invalid_cursor");
    }
    empty(&ask(server.address, &session.get_after(finished[finished.len() - 1].cursor())), 204, "complete");
    session.result(&call(3, "rotate", json!({})));
    expired(&ask(server.address, &session.get_after(finished[1].cursor())), "incarnation");
}

fn ids_are_unique_in_a_session(on: Flavour) {
    let (_server, session) = started(on, &["--response", "sse"]);
    let mut blocks: Vec<Block> = Vec::new();
    let mut listening = session.listen();
    blocks.push(listening.event());
    for id in 0..10 {
        blocks.extend(session.call(&call(id, "ticker", ticks(3, 0))).rest());
        blocks.extend(session.call(&call(100 + id, "echo", json!({"text": "x"}))).rest());
    }
    session.result(&broadcast(200, 5));
    blocks.extend(listening.take(5));
    let ids: BTreeSet<&str> = blocks.iter().map(Block::cursor).collect();
    assert_eq!(ids.len(), blocks.len());
}

fn a_stream_that_ended_with_an_error_is_resumed(on: Flavour) {
    let (server, session) = started(on, &["--response", "sse"]);
    let first = session.call(&request(1, "no/such/method", json!({}))).rest();
    assert_eq!(first[1].json()["error"]["code"], -32601);
    let again = session.resume(first[0].cursor()).rest();
    assert_eq!(again[1..], first[1..], "the error again, then a clean end");
    empty(&ask(server.address, &session.get_after(first[1].cursor())), 204, "complete");
}

fn an_unknown_session_is_404_and_neither_401_nor_400(on: Flavour) {
    let (server, session) = started(on, &[]);
    for asked in [session.get(), session.post(&broadcast(1, 1)), session.delete()] {
        let answer = ask(server.address, &asked.set("Mcp-Session-Id", "c0ffee00-dead-beef-0000-000000000000"));
        assert_eq!(answer.status(), 404);
        assert_eq!(answer.json()["error"]["code"], -32001);
    }
}

fn a_session_outlives_its_streams(on: Flavour) {
    let (_server, session) = started(on, &["--session-ttl", "5s"]);
    let mut listening = session.listen();
    listening.event();
    listening.reset();
    session.call(&call(1, "ticker", ticks(2, 10))).event();
    sleep(Duration::from_millis(1_500));
    assert_eq!(text_of(&session.result(&call(2, "echo", json!({"text": "alive"})))), "alive");
    session.listen().event();
}

fn a_result_produced_while_nobody_was_connected_is_delivered_once(on: Flavour) {
    let (server, session) = started(on, &[]);
    let mut stream = session.call(&call(1, "ticker", ticks(3, 50)));
    let opening = stream.event();
    stream.reset();
    sleep(Duration::from_millis(600));
    let rest = session.resume(opening.cursor()).rest();
    let results = rest.iter().filter(|block| block.is_message() && block.json().get("result").is_some()).count();
    assert_eq!(results, 1);
    empty(&ask(server.address, &session.get_after(rest[rest.len() - 1].cursor())), 204, "complete");
    let mut listening = session.listen();
    listening.event();
    listening.stays_silent(Duration::from_millis(100));
}

fn a_client_back_before_the_next_event_loses_nothing(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let mut stream = session.call(&call(1, "ticker", ticks(4, 400)));
    let mut seen = stream.until(|block| tick(block) == Some(1));
    stream.reset();
    while ticks_in(&seen).len() < 3 {
        let mut back = session.resume(seen[seen.len() - 1].cursor());
        assert!(back.event().is_opening());
        seen.push(back.event());
        back.reset();
    }
    seen.extend(session.resume(seen[seen.len() - 1].cursor()).rest());
    assert_eq!(ticks_in(&seen), [1, 2, 3, 4]);
}

fn a_replay_holds_its_own_streams_events_only(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let mut one = session.call(&call(1, "ticker", ticks(15, 5)));
    let mut two = session.call(&call(2, "ticker", ticks(15, 5)));
    session.result(&broadcast(3, 5));
    let (one, two) = (one.rest(), two.rest());
    for first in [one, two] {
        let again = session.resume(first[0].cursor()).rest();
        assert_eq!(again[1..], first[1..]);
        positions(&again);
    }
    assert_eq!(positions(&session.listen().take(6)), [0, 1, 2, 3, 4, 5]);
}

fn aborted_bodies_leave_neighbours_unaffected(on: Flavour) {
    let (server, session) = started(on, &[]);
    for round in 0..40 {
        let bytes = match round % 2 {
            0 => Request::post(server.address, &initialize(1, NOVEMBER)).bytes(),
            _ => session.post(&call(round, "ticker", ticks(1, 0))).bytes(),
        };
        let mut connection = Connection::open(server.address);
        connection.write(&bytes[..bytes.len() - 1 - round as usize % 30]);
        if round % 3 == 0 { drop(connection) } else { connection.reset() }
    }
    let neighbours: Vec<Session> = (0..4).map(|_| Session::begin(server.address, NOVEMBER)).collect();
    for neighbour in neighbours.iter().chain([&session]) {
        assert_eq!(executions(&neighbour.result(&call("after", "ticker", ticks(2, 0)))), 1);
    }
}

fn sessions_are_small_and_freed_without_delete(on: Flavour) {
    let server = Rejoin::start(on, &["--session-ttl", "1s", "--max-sessions", "3000"]);
    let mut connection = Connection::open(server.address);
    let begin = |connection: &mut Connection| {
        let answer = connection.ask(&Request::post(server.address, &initialize(1, NOVEMBER)));
        let id = answer.head.field("Mcp-Session-Id").unwrap_or_else(|| panic!("{}", answer.head)).to_owned();
        let confirm = rejoin_tests::session::notification("notifications/initialized", json!({}));
        let confirm = Request::post(server.address, &confirm).with("Mcp-Session-Id", &id);
        assert_eq!(connection.ask(&confirm).status(), 202);
        id
    };
    let mut last = String::new();
    (0..200).for_each(|_| last = begin(&mut connection));
    let before = server.resident_kib();
    (0..2_000).for_each(|_| last = begin(&mut connection));
    let each = server.resident_kib().saturating_sub(before) as f64 / 2_000.0;
    assert!(each < 8.0, "a session takes {each:.1} KiB");
    sleep(Duration::from_millis(2_300));
    expired(&ask(server.address, &Request::get(server.address).with("Mcp-Session-Id", &last)), "expired");
    // More than the cap in all: the expired ones made room.
    (0..2_000).for_each(|_| last = begin(&mut connection));
}

fn a_keep_alive_is_a_comment(on: Flavour) {
    let (_server, session) = started(on, &["--keep-alive", "500ms"]);
    let mut running = session.call(&call(1, "ticker", ticks(2, 2_000)));
    running.until(|block| tick(block) == Some(1));
    match running.step(Duration::from_millis(1_800)) {
        Step::Block(block) => assert!(block.is_comment() && block.text.starts_with(':'), "{}", block.text),
        other => running.fail(&format!("waiting for a comment: {other:?}")),
    }
    assert_eq!(ticks_in(&running.rest()), [2]);
}

fn an_own_dead_connection_does_not_block_the_return(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let mut posted = session.call(&call(1, "ticker", ticks(10, 60)));
    let seen = posted.until(|block| tick(block) == Some(1));
    let listening = session.listen();
    // Neither is closed or read again: to the server they look alive.
    let mut back = session.resume(seen[seen.len() - 1].cursor());
    let mut again = session.listen();
    assert_eq!(ticks_in(&back.rest()), (2..=10).collect::<Vec<_>>());
    assert!(again.event().is_opening());
    drop((posted, listening));
}

fn stray_requests_and_second_clients_do_no_harm(on: Flavour) {
    let (mut server, session) = started(on, &[]);
    let mut running = session.call(&call(1, "ticker", ticks(20, 20)));
    running.event();
    let address = server.address;
    refused(&ask(address, &Request::post(address, &request(1, "tools/list", json!({})))), 400, "session_required");
    refused(&ask(address, &Request::post_bytes(address, "stray")), 400, "parse_error");
    let mut garbage = Connection::open(address);
    garbage.write(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03 this is no HTTP\r\n\r\n");
    assert_eq!(garbage.answer().status(), 400);
    let second = Session::begin(address, NOVEMBER);
    assert_eq!(executions(&second.result(&call(1, "ticker", ticks(2, 0)))), 1);
    assert_eq!(ticks_in(&running.rest()), (1..=20).collect::<Vec<_>>());
    assert!(server.runs());
}

fn a_dead_sessions_pending_calls_are_told(on: Flavour) {
    let (server, session) = started(on, &[]);
    let mut pending = session.call(&call("pending", "ticker", ticks(1_000, 50)));
    pending.event();
    session.result(&call("turn", "rotate", json!({})));
    let rest = pending.rest();
    outcome_unknown(rest.iter().rev().find(|block| block.is_message()).expect("an error"), "pending");
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    expired(&session.tell(&broadcast(1, 1)), "deleted");
}

fn initialize_with_a_dead_session_id_gives_a_new_session(on: Flavour) {
    let (server, session) = started(on, &[]);
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    let answer = ask(server.address, &session.post(&initialize("again", NOVEMBER)));
    result_of(&answer, &json!("again"));
    let id = answer.head.field("Mcp-Session-Id").expect("a session");
    assert_ne!(id, session.id);
    open(server.address, &Request::get(server.address).with("Mcp-Session-Id", id));
}

fn replay_goes_over_into_live_without_a_gap_under_load(on: Flavour) {
    let (_server, session) = started(on, &["--retry", "10ms"]);
    let total = 4_000;
    let mut stream = session.call(&call(1, "ticker", ticks(total, 1)));
    let mut seen = stream.take(2);
    let mut cursor = seen[seen.len() - 1].cursor().to_owned();
    drop(stream);
    let mut reconnects = 0;
    while reconnects < 200 {
        let mut back = session.resume(&cursor);
        assert_eq!(back.event().cursor(), cursor);
        let some = back.take(3 + reconnects % 7);
        if reconnects % 2 == 0 {
            back.reset()
        } else {
            drop(back)
        }
        cursor = some[some.len() - 1].cursor().to_owned();
        seen.extend(some);
        reconnects += 1;
    }
    seen.extend(session.resume(&cursor).rest().split_off(1));
    assert_eq!(ticks_in(&seen), (1..=total).collect::<Vec<_>>());
    assert_eq!(positions(&seen), (0..=total + 1).collect::<Vec<_>>());
    assert_eq!(executions(&seen[seen.len() - 1].json()["result"]), 1);
}

fn a_finished_stream_sends_nobody_into_a_loop(on: Flavour) {
    let (server, session) = started(on, &[]);
    let blocks = session.call(&call(1, "ticker", ticks(2, 0))).rest();
    let mut connection = Connection::open(server.address);
    for _ in 0..5 {
        empty(&connection.ask(&session.get_after(blocks[blocks.len() - 1].cursor())), 204, "complete");
    }
}

fn sigterm_neither_hangs_on_streams_nor_truncates_them(on: Flavour) {
    let (mut server, session) = started(on, &["--drain", "1s"]);
    let mut running = session.call(&call(1, "ticker", ticks(1_000, 20)));
    let mut listening = session.listen();
    running.event();
    listening.event();
    let asked = Instant::now();
    server.terminate();
    let rest = running.rest();
    outcome_unknown(rest.iter().rev().find(|block| block.is_message()).expect("an error"), 1);
    listening.rest();
    let status = server.exit_within(Duration::from_secs(10)).expect("the server must end");
    assert!(status.success(), "{status}");
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
}

fn a_disconnect_is_no_cancellation(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let asked = call(1, "ticker", ticks(8, 50));
    let mut stream = session.call(&asked);
    let opening = stream.event();
    stream.reset();
    sleep(Duration::from_millis(100));
    let rest = session.resume(opening.cursor()).rest();
    assert_eq!(ticks_in(&rest), (1..=8).collect::<Vec<_>>());
    assert_eq!(executions(&session.result(&asked)), 1);
}

fn an_open_get_blocks_no_post(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let mut listening = session.listen();
    listening.event();
    let before = Instant::now();
    for id in 0..10 {
        session.result(&call(id, "echo", json!({"text": "x"})));
    }
    assert!(before.elapsed() < Duration::from_secs(5));
    listening.stays_silent(Duration::from_millis(10));
}

fn a_failed_get_poisons_no_post(on: Flavour) {
    let (server, session) = started(on, &[]);
    let mut connection = Connection::open(server.address);
    for id in 0..5 {
        refused(&connection.ask(&session.get_after("garbage")), 400, "invalid_cursor");
        let answer = connection.ask(&session.post(&call(id, "echo", json!({"text": "x"}))));
        assert_eq!(text_of(&result_of(&answer, &json!(id))), "x");
    }
}
