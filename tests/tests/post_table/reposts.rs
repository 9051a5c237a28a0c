//! The same call POSTed again: joined or answered from its record, and never executed twice.

use std::thread::sleep;
use std::time::Duration;

use rejoin_tests::check::{accepted, error, outcome_unknown, place, positions, resync};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{
    NOVEMBER, Session, call, executions, fresh_key, messages_of, notification, request, tick, ticks, ticks_in,
};
use rejoin_tests::sse::Block;
use rejoin_tests::wire::Answer;
use serde_json::{Value, json};

on_every_server!(
    a_repost_joins_the_running_call_from_its_beginning,
    a_repost_of_a_finished_call_gets_its_result,
    a_repost_after_a_cut_needs_no_cursor,
    a_repost_whose_beginning_is_gone_is_told_by_resync,
    a_repost_whose_record_is_gone_is_told_that_its_outcome_is_unknown,
    a_repost_of_a_cancelled_call_is_not_executed,
    any_other_request_repeated_is_executed_again_and_marks_nothing,
    another_body_under_an_id_ends_all_guessing,
    another_method_under_an_id_ends_all_guessing,
    the_same_bytes_count_and_not_the_same_meaning,
    a_repost_of_an_older_id_joins_too,
    a_joined_call_survives_either_connection,
    a_repost_after_a_rotation_is_not_executed,
    rotation_answers_pending_calls_and_ends_every_stream,
    another_sessions_call_is_no_repost,
);

fn started(on: Flavour, options: &[&str]) -> (Rejoin, Session) {
    let server = Rejoin::start(on, options);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

/// The one error in an answer, which must be `outcome_unknown` for this id.
fn unknown(answer: &Answer, id: impl Into<Value>) {
    let messages = messages_of(answer);
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(messages[0]["id"], id.into());
    error(&messages[0]["error"], "outcome_unknown");
}

fn messages(blocks: &[Block]) -> Vec<(Option<String>, Value)> {
    blocks.iter().filter(|block| block.is_message()).map(|block| (block.id.clone(), block.json())).collect()
}

fn a_repost_joins_the_running_call_from_its_beginning(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let asked = call(1, "ticker", ticks(20, 30));
    let mut first = session.call(&asked);
    let mut seen = first.until(|block| tick(block) == Some(4));
    let mut second = session.call(&asked);
    let joined = second.rest();
    seen.extend(first.rest());
    assert_eq!(ticks_in(&seen), (1..=20).collect::<Vec<_>>());
    assert_eq!(messages(&joined), messages(&seen), "both connections get the same events");
    assert_eq!(executions(&seen[seen.len() - 1].json()["result"]), 1);
}

fn a_repost_of_a_finished_call_gets_its_result(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let (slow, quick) = (call(1, "ticker", ticks(5, 0)), call(2, "echo", json!({"text": "said once"})));
    let result = session.result(&slow);
    let echoed = session.result(&quick);
    for _ in 0..3 {
        assert_eq!(session.result(&slow), result);
        assert_eq!(session.result(&quick), echoed);
    }
    assert_eq!(executions(&result), 1);
}

fn a_repost_after_a_cut_needs_no_cursor(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let asked = call("a", "ticker", ticks(10, 20));
    let mut stream = session.call(&asked);
    stream.until(|block| tick(block) == Some(3));
    stream.reset();
    let again = session.call(&asked).rest();
    assert_eq!(ticks_in(&again), (1..=10).collect::<Vec<_>>());
    assert_eq!(executions(&again[again.len() - 1].json()["result"]), 1);
}

fn a_repost_whose_beginning_is_gone_is_told_by_resync(on: Flavour) {
    let (_server, session) = started(on, &["--stream-events", "5"]);
    let asked = call(1, "ticker", ticks(20, 2));
    let first = session.call(&asked).rest();
    let again = session.call(&asked).rest();
    let told = resync(&again[0]);
    assert_eq!(told.earliest, again[1].id);
    assert_eq!(place(&told.id).2 + 1, place(again[1].cursor()).2);
    assert_eq!(again[1..], first[first.len() - (again.len() - 1)..]);
    assert_eq!(executions(&again[again.len() - 1].json()["result"]), 1);
}

fn a_repost_whose_record_is_gone_is_told_that_its_outcome_is_unknown(on: Flavour) {
    let (_server, session) = started(on, &["--event-ttl", "1s", "--result-ttl", "1s"]);
    let key = fresh_key();
    let arguments = json!({"count": 2, "interval_ms": 0, "payload_bytes": 0, "key": key});
    let asked = call(1, "ticker", arguments.clone());
    assert_eq!(executions(&session.result(&asked)), 1);
    sleep(Duration::from_millis(2_300));
    unknown_at_last(&session.tell(&asked), 1);
    assert_eq!(executions(&session.result(&call(2, "ticker", arguments))), 2, "only a new call is executed");
}

/// Asserts that an answer's last message is `outcome_unknown` for this id.
fn unknown_at_last(answer: &Answer, id: u64) {
    let messages = messages_of(answer);
    let last = messages.last().expect("a message");
    assert_eq!(last["id"], id);
    error(&last["error"], "outcome_unknown");
}

fn a_repost_of_a_cancelled_call_is_not_executed(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let key = fresh_key();
    let arguments = |count: u64| json!({"count": count, "interval_ms": 20, "payload_bytes": 0, "key": key});
    let asked = call(1, "ticker", arguments(1_000));
    let mut stream = session.call(&asked);
    stream.until(|block| tick(block) == Some(2));
    accepted(&session.tell(&notification("notifications/cancelled", json!({"requestId": 1}))));
    stream.rest();
    unknown_at_last(&session.tell(&asked), 1);
    assert_eq!(executions(&session.result(&call(2, "ticker", arguments(1)))), 2);
}

fn any_other_request_repeated_is_executed_again_and_marks_nothing(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let list = request(1, "tools/list", json!({}));
    assert_eq!(session.result(&list), session.result(&list));
    let ping = request(2, "ping", json!({}));
    assert_eq!(session.result(&ping), session.result(&ping));
    let asked = call(3, "ticker", ticks(1, 0));
    assert_eq!(executions(&session.result(&asked)), 1);
    assert_eq!(executions(&session.result(&asked)), 1, "the session is not marked");
}

fn another_body_under_an_id_ends_all_guessing(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let asked = call(1, "ticker", ticks(1, 0));
    assert_eq!(executions(&session.result(&asked)), 1);
    assert_eq!(executions(&session.result(&asked)), 1);
    assert_eq!(executions(&session.result(&call(1, "ticker", ticks(1, 0)))), 1, "another body, executed");
    assert_eq!(executions(&session.result(&asked)), 2, "and from then on each POST is a new call");
    let fresh = call(2, "ticker", ticks(1, 0));
    assert_eq!(executions(&session.result(&fresh)), 1);
    assert_eq!(executions(&session.result(&fresh)), 2, "for fresh ids too");
}

fn another_method_under_an_id_ends_all_guessing(on: Flavour) {
    let (_server, session) = started(on, &[]);
    session.result(&request(1, "ping", json!({})));
    let asked = call(1, "ticker", ticks(1, 0));
    assert_eq!(executions(&session.result(&asked)), 1);
    assert_eq!(executions(&session.result(&asked)), 2);
}

fn the_same_bytes_count_and_not_the_same_meaning(on: Flavour) {
    let (server, session) = started(on, &[]);
    let asked = call(1, "ticker", ticks(1, 0));
    assert_eq!(executions(&session.result(&asked)), 1);
    let spaced = session.post(&asked).body(format!(" {asked}"));
    let answer = rejoin_tests::wire::ask(server.address, &spaced);
    assert_eq!(executions(&rejoin_tests::session::result_of(&answer, &json!(1))), 2);
}

fn a_repost_of_an_older_id_joins_too(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let calls: Vec<Value> = [5, 1, 3, 200, 4].iter().map(|id| call(*id, "ticker", ticks(1, 0))).collect();
    for _ in 0..3 {
        for asked in &calls {
            assert_eq!(executions(&session.result(asked)), 1, "{asked}");
        }
    }
}

fn a_joined_call_survives_either_connection(on: Flavour) {
    let (_server, session) = started(on, &[]);
    for (id, drop_first) in [(1, true), (2, false)] {
        let asked = call(id, "ticker", ticks(12, 30));
        let mut first = session.call(&asked);
        first.event();
        let mut second = session.call(&asked);
        second.event();
        let mut kept = if drop_first {
            first.reset();
            second
        } else {
            second.reset();
            first
        };
        let rest = kept.rest();
        assert_eq!(ticks_in(&rest), (1..=12).collect::<Vec<_>>());
        assert_eq!(executions(&rest[rest.len() - 1].json()["result"]), 1);
    }
}

fn a_repost_after_a_rotation_is_not_executed(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let key = fresh_key();
    let arguments = json!({"count": 1, "interval_ms": 0, "payload_bytes": 0, "key": key});
    let asked = call(1, "ticker", arguments.clone());
    assert_eq!(executions(&session.result(&asked)), 1);
    session.result(&call(2, "rotate", json!({})));
    sleep(Duration::from_millis(100));
    unknown(&session.tell(&asked), 1);
    assert_eq!(executions(&session.result(&call(3, "ticker", arguments))), 2);
}

fn rotation_answers_pending_calls_and_ends_every_stream(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let mut pending = session.call(&call("pending", "ticker", ticks(1_000, 50)));
    let mut listening = session.listen();
    pending.until(|block| tick(block) == Some(1));
    listening.event();
    let answer = session.result(&call("turn", "rotate", json!({})));
    assert!(answer.is_object(), "its own answer comes: {answer}");
    let rest = pending.rest();
    outcome_unknown(rest.iter().rev().find(|block| block.is_message()).expect("an error"), "pending");
    assert!(listening.rest().iter().all(|block| !block.is_message()));
    let mut anew = session.listen();
    anew.event();
    session.result(&call("after", "broadcast", json!({"count": 1, "interval_ms": 0})));
    assert_eq!(positions(&anew.take(1)), [1]);
}

fn another_sessions_call_is_no_repost(on: Flavour) {
    let (server, session) = started(on, &[]);
    let other = Session::begin(server.address, NOVEMBER);
    let asked = call(1, "ticker", ticks(1, 0));
    assert_eq!(executions(&session.result(&asked)), 1);
    assert_eq!(executions(&other.result(&asked)), 2);
}
