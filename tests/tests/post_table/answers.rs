//! One JSON body or a stream: which policy gives what.

use std::thread::sleep;
use std::time::Duration;

use rejoin_tests::check::never_cached;
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{JUNE, MARCH, NOVEMBER, Session, call, executions, request, text_of, ticks, ticks_in};
use rejoin_tests::wire::{Answer, Connection, ask};
use serde_json::{Value, json};

on_every_server!(
    what_is_ready_at_once_is_one_json_body,
    the_first_message_that_is_no_result_makes_it_a_stream,
    a_slow_answer_is_a_stream_even_without_messages,
    policy_sse_streams_everything,
    policy_json_streams_nothing,
    a_json_answer_that_was_cut_off_is_given_to_a_repost,
    errors_of_a_handler_are_json_rpc_errors_in_a_200,
);

fn started(on: Flavour, options: &[&str]) -> (Rejoin, Session) {
    let server = Rejoin::start(on, options);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn is_json(answer: &Answer) {
    assert_eq!(answer.head.field("Content-Type"), Some("application/json"), "{}", answer.head);
    assert_eq!(answer.head.field("Content-Length"), Some(answer.body.len().to_string().as_str()), "{}", answer.head);
    never_cached(&answer.head);
}

fn echo(id: u64) -> Value {
    call(id, "echo", json!({"text": "x"}))
}

fn what_is_ready_at_once_is_one_json_body(on: Flavour) {
    let server = Rejoin::start(on, &["--response", "auto"]);
    for revision in [MARCH, JUNE, NOVEMBER] {
        let session = Session::begin(server.address, revision);
        for asked in [echo(1), request(2, "tools/list", json!({})), request(3, "ping", json!({}))] {
            let answer = session.tell(&asked);
            is_json(&answer);
            assert_eq!(answer.json()["id"], asked["id"]);
        }
    }
}

fn the_first_message_that_is_no_result_makes_it_a_stream(on: Flavour) {
    let (_server, session) = started(on, &["--response", "auto"]);
    let blocks = session.call(&call(1, "ticker", ticks(1, 0))).rest();
    assert_eq!(ticks_in(&blocks), [1]);
    assert!(blocks[0].is_opening());
}

fn a_slow_answer_is_a_stream_even_without_messages(on: Flavour) {
    let (_server, session) = started(on, &["--response", "auto"]);
    // A stream has an id from the start, so that a client that is cut off before the answer can come back for it.
    let mut stream = session.call(&call(1, "broadcast", json!({"count": 3, "interval_ms": 300})));
    let opening = stream.event();
    assert!(opening.is_opening());
    stream.reset();
    let rest = session.resume(opening.cursor()).rest();
    assert!(rest[rest.len() - 1].json()["result"].is_object());
}

fn policy_sse_streams_everything(on: Flavour) {
    let (_server, session) = started(on, &["--response", "sse"]);
    for asked in [echo(1), request(2, "ping", json!({}))] {
        let blocks = session.call(&asked).rest();
        assert!(blocks[0].is_opening());
        assert_eq!(blocks.len(), 2, "{blocks:?}");
        assert_eq!(blocks[1].json()["id"], asked["id"]);
    }
}

fn policy_json_streams_nothing(on: Flavour) {
    let (_server, session) = started(on, &["--response", "json"]);
    let answer = session.tell(&call(1, "ticker", ticks(5, 10)));
    is_json(&answer);
    assert_eq!(executions(&answer.json()["result"]), 1);
    is_json(&session.tell(&echo(2)));
    // The standalone stream is no answer to a POST and still streams.
    let mut listening = session.listen();
    listening.event();
    session.result(&call(3, "broadcast", json!({"count": 1, "interval_ms": 0})));
    assert_eq!(listening.event().json()["method"], "notifications/message");
}

fn a_json_answer_that_was_cut_off_is_given_to_a_repost(on: Flavour) {
    let (server, session) = started(on, &["--response", "json"]);
    let asked = call(1, "ticker", ticks(3, 100));
    let mut connection = Connection::open(server.address);
    connection.send(&session.post(&asked));
    sleep(Duration::from_millis(100));
    connection.reset();
    assert_eq!(executions(&session.result(&asked)), 1);
    sleep(Duration::from_millis(400));
    let answer = session.tell(&asked);
    is_json(&answer);
    assert_eq!(executions(&answer.json()["result"]), 1);
}

fn errors_of_a_handler_are_json_rpc_errors_in_a_200(on: Flavour) {
    let (server, session) = started(on, &[]);
    for (asked, code) in [
        (request(1, "no/such/method", json!({})), -32601),
        (call(2, "no-such-tool", json!({})), -32602),
        (request(3, "tools/call", json!({"name": 7})), -32602),
        (call(4, "ticker", json!({"count": "many"})), -32602),
    ] {
        let answer = ask(server.address, &session.post(&asked));
        let messages = rejoin_tests::session::messages_of(&answer);
        let message = messages.last().expect("an answer");
        assert_eq!(message["id"], asked["id"]);
        let is_tool_error = message["result"]["isError"] == true;
        assert!(is_tool_error || message["error"]["code"] == code, "{message}");
    }
    assert_eq!(text_of(&session.result(&echo(9))), "x");
}
