//! Batches of revision 2025-03-26: one stream, or one array, that answers a set of calls.

use rejoin_tests::check::{accepted, empty, place, refused};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{
    JUNE, MARCH, NOVEMBER, Session, call, executions, fresh_key, messages_of, notification, request, result_of, tick, ticks,
};
use rejoin_tests::wire::ask;
use serde_json::{Value, json};

on_every_server!(
    one_stream_answers_all_calls_of_a_batch_and_then_ends,
    what_is_ready_at_once_is_one_array,
    policy_json_gives_one_array,
    a_batch_without_requests_is_202,
    a_batch_sent_again_is_neither_joined_nor_executed,
    a_batchs_stream_is_resumed_like_any_other,
    a_single_request_may_come_as_a_batch,
    later_revisions_refuse_batches,
    an_empty_batch_is_invalid,
    one_bad_message_refuses_the_whole_batch_before_anything_runs,
    the_same_id_twice_in_a_batch_is_answered_twice,
);

fn started(on: Flavour, options: &[&str]) -> (Rejoin, Session) {
    let server = Rejoin::start(on, options);
    let session = Session::begin(server.address, MARCH);
    (server, session)
}

fn echo(id: impl Into<Value>) -> Value {
    call(id, "echo", json!({"text": "x"}))
}

/// The ids answered, sorted.
fn answered(messages: &[Value]) -> Vec<Value> {
    let mut ids: Vec<Value> = messages
        .iter()
        .filter(|message| message.get("result").is_some() || message.get("error").is_some())
        .map(|message| message["id"].clone())
        .collect();
    ids.sort_by_key(Value::to_string);
    ids
}

fn one_stream_answers_all_calls_of_a_batch_and_then_ends(on: Flavour) {
    let (_server, session) = started(on, &["--response", "sse"]);
    let confirm = notification("notifications/roots/list_changed", json!({}));
    let batch = json!([
        call(1, "ticker", ticks(5, 20)),
        confirm,
        echo(2),
        call(3, "ticker", ticks(2, 20)),
        request(4, "ping", json!({}))
    ]);
    let blocks = session.call(&batch).rest();
    let messages: Vec<Value> = blocks.iter().filter(|block| block.is_message()).map(|block| block.json()).collect();
    assert_eq!(answered(&messages), [1, 2, 3, 4]);
    assert_eq!(blocks.iter().filter_map(tick).count(), 7);
    assert_eq!(messages[messages.len() - 1]["id"], 1, "the slowest answer comes last");
    let streams: Vec<u64> = blocks.iter().filter_map(|block| block.id.as_deref()).map(|id| place(id).1).collect();
    assert!(streams.windows(2).all(|pair| pair[0] == pair[1]), "one stream: {streams:?}");
}

fn what_is_ready_at_once_is_one_array(on: Flavour) {
    let (_server, session) = started(on, &["--response", "auto"]);
    let answer = session.tell(&json!([echo(1), request(2, "ping", json!({}))]));
    let messages = answer.json();
    assert_eq!(answered(messages.as_array().expect("an array")), [1, 2]);
}

fn policy_json_gives_one_array(on: Flavour) {
    let (_server, session) = started(on, &["--response", "json"]);
    let answer = session.tell(&json!([call(1, "ticker", ticks(3, 20)), echo(2)]));
    let messages = answer.json();
    assert_eq!(answered(messages.as_array().expect("an array")), [1, 2]);
}

fn a_batch_without_requests_is_202(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let response = json!({"jsonrpc": "2.0", "id": 7, "result": {}});
    accepted(&session.tell(&json!([notification("notifications/roots/list_changed", json!({})), response])));
}

fn a_batch_sent_again_is_neither_joined_nor_executed(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let asked = call(1, "ticker", ticks(1, 0));
    let batch = json!([asked, request(2, "ping", json!({}))]);
    assert_eq!(executions(&result_of(&session.tell(&batch), &json!(1))), 1);
    let again = messages_of(&session.tell(&batch));
    let of_call = again.iter().find(|message| message["id"] == 1).expect("an answer to the call");
    rejoin_tests::check::error(&of_call["error"], "outcome_unknown");
    assert!(again.iter().any(|message| message["id"] == 2 && message["result"].is_object()), "{again:?}");
    let key = &asked["params"]["arguments"];
    assert_eq!(executions(&session.result(&call(3, "ticker", key.clone()))), 2);
}

fn a_batchs_stream_is_resumed_like_any_other(on: Flavour) {
    let (server, session) = started(on, &[]);
    let mut stream = session.call(&json!([call(1, "ticker", ticks(6, 30)), call(2, "ticker", ticks(3, 30))]));
    let mut seen = stream.until(|block| tick(block).is_some());
    stream.reset();
    seen.extend(session.resume(seen[seen.len() - 1].cursor()).rest());
    let messages: Vec<Value> = seen.iter().filter(|block| block.is_message()).map(|block| block.json()).collect();
    assert_eq!(answered(&messages), [1, 2]);
    assert_eq!(seen.iter().filter_map(tick).count(), 9);
    assert!(messages.iter().all(|message| message.get("result").is_none_or(|result| executions(result) == 1)));
    empty(&ask(server.address, &session.get_after(seen[seen.len() - 1].cursor())), 204, "complete");
}

fn a_single_request_may_come_as_a_batch(on: Flavour) {
    let (_server, session) = started(on, &["--response", "json"]);
    let answer = session.tell(&json!([echo("only")]));
    assert_eq!(answered(answer.json().as_array().expect("an array for an array")), ["only"]);
}

fn later_revisions_refuse_batches(on: Flavour) {
    let (server, _) = started(on, &[]);
    for revision in [JUNE, NOVEMBER] {
        let session = Session::begin(server.address, revision);
        let key = fresh_key();
        let asked = call(1, "ticker", json!({"count": 1, "interval_ms": 0, "payload_bytes": 0, "key": key}));
        refused(&session.tell(&json!([asked])), 400, "invalid_request");
        assert_eq!(executions(&session.result(&asked)), 1, "nothing of the batch was executed");
    }
}

fn an_empty_batch_is_invalid(on: Flavour) {
    let (_server, session) = started(on, &[]);
    refused(&session.tell(&json!([])), 400, "invalid_request");
}

fn one_bad_message_refuses_the_whole_batch_before_anything_runs(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let asked = call(1, "ticker", ticks(1, 0));
    for bad in [json!(1), json!({}), json!([]), json!({"jsonrpc": "1.0", "id": 2, "method": "ping"})] {
        refused(&session.tell(&json!([asked, bad])), 400, "invalid_request");
    }
    assert_eq!(executions(&session.result(&asked)), 1);
}

fn the_same_id_twice_in_a_batch_is_answered_twice(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let messages = messages_of(&session.tell(&json!([call(1, "ticker", ticks(1, 0)), call(1, "ticker", ticks(2, 0))])));
    assert_eq!(answered(&messages), [1, 1]);
}
