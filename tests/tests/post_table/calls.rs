//! A request with a fresh id: executed once, answered on its own stream, routed by call and never by id.

use std::time::Duration;

use rejoin_tests::check::{accepted, place, refused};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{
    NOVEMBER, Session, call, call_with_token, executions, fresh_key, notification, request, text_of, ticks, ticks_in,
};
use rejoin_tests::sse::Block;
use rejoin_tests::wire::{Connection, ask};
use serde_json::{Value, json};

on_every_server!(
    it_is_executed_once_and_answered,
    ids_come_back_as_they_were_sent,
    an_id_that_json_rpc_does_not_know_is_400,
    a_number_and_its_text_are_two_ids,
    progress_goes_by_the_clients_token,
    two_calls_may_share_a_progress_token,
    calls_run_side_by_side,
    one_id_for_everything_is_routed_by_call,
    a_dropped_connection_is_no_cancellation,
    cancelling_an_id_in_flight_twice_is_ignored,
    cancelling_what_is_not_there_is_accepted,
    notifications_and_stray_responses_are_202,
    an_open_stream_blocks_no_post,
    many_requests_share_a_connection,
    pipelined_requests_are_answered_in_order,
    sessions_take_turns_on_one_connection,
    expect_100_continue_is_honoured,
    chunked_bodies_are_read_in_any_fragmentation,
);

fn started(on: Flavour) -> (Rejoin, Session) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn it_is_executed_once_and_answered(on: Flavour) {
    let (_server, session) = started(on);
    assert_eq!(text_of(&session.result(&call(1, "echo", json!({"text": "hello"})))), "hello");
    assert_eq!(executions(&session.result(&call(2, "ticker", ticks(3, 0)))), 1);
    let tools = session.result(&request(3, "tools/list", json!({})));
    let names: Vec<&str> = tools["tools"].as_array().expect("tools").iter().filter_map(|tool| tool["name"].as_str()).collect();
    for paced in ["broadcast", "echo", "rotate", "ticker"] {
        assert!(names.contains(&paced), "{names:?}");
    }
    assert_eq!(session.result(&request(4, "ping", json!({}))), json!({}));
    let unknown = session.tell(&request(5, "no/such/method", json!({})));
    let messages = rejoin_tests::session::messages_of(&unknown);
    assert_eq!(messages[0]["error"]["code"], -32601, "{messages:?}");
}

fn ids_come_back_as_they_were_sent(on: Flavour) {
    let (_server, session) = started(on);
    let ids = [json!(0), json!(-7), json!(i64::MAX), json!(""), json!("a\"b\\c\u{0}\u{1f600}"), json!("1")];
    for id in ids {
        assert_eq!(text_of(&session.result(&call(id.clone(), "echo", json!({"text": "x"})))), "x", "{id}");
    }
}

fn an_id_that_json_rpc_does_not_know_is_400(on: Flavour) {
    let (server, session) = started(on);
    for id in ["null", "1.5", "true", "{}", "[1]", "18446744073709551616"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let asked = session.post(&Value::Null).body(body);
        refused(&ask(server.address, &asked), 400, "invalid_request");
    }
}

fn a_number_and_its_text_are_two_ids(on: Flavour) {
    let (_server, session) = started(on);
    let arguments = ticks(1, 0);
    let (number, text) = (call(1, "ticker", arguments.clone()), call("1", "ticker", arguments));
    assert_eq!(executions(&session.result(&number)), 1);
    assert_eq!(executions(&session.result(&text)), 2, "another id is another call");
    assert_eq!(executions(&session.result(&number)), 1, "and each can be reposted");
    assert_eq!(executions(&session.result(&text)), 2);
}

/// The progress tokens and numbers among these blocks.
fn progress(blocks: &[Block]) -> Vec<(Value, u64)> {
    let messages = blocks.iter().filter(|block| block.is_message()).map(Block::json);
    let progress = messages.filter(|message| message["method"] == "notifications/progress");
    let pair = |message: Value| {
        let number = message["params"]["progress"].as_f64().expect("a number") as u64;
        (message["params"]["progressToken"].clone(), number)
    };
    progress.map(pair).collect()
}

fn progress_goes_by_the_clients_token(on: Flavour) {
    let (_server, session) = started(on);
    for (id, token) in [(1, json!("a token")), (2, json!(42)), (3, json!(0)), (4, json!(""))] {
        let blocks = session.call(&call_with_token(id, token.clone(), "ticker", ticks(3, 0))).rest();
        assert_eq!(progress(&blocks), [(token.clone(), 1), (token.clone(), 2), (token, 3)]);
    }
    let without = session.call(&call(5, "ticker", ticks(3, 0))).rest();
    assert!(progress(&without).is_empty());
    assert_eq!(ticks_in(&without), [1, 2, 3]);
}

fn two_calls_may_share_a_progress_token(on: Flavour) {
    let (_server, session) = started(on);
    let mut first = session.call(&call_with_token(1, 1, "ticker", ticks(12, 20)));
    let mut second = session.call(&call_with_token(2, 1, "ticker", ticks(8, 20)));
    let (first, second) = (first.rest(), second.rest());
    assert_eq!(progress(&first), (1..=12).map(|number| (json!(1), number)).collect::<Vec<_>>());
    assert_eq!(progress(&second), (1..=8).map(|number| (json!(1), number)).collect::<Vec<_>>());
    assert_eq!(first[first.len() - 1].json()["id"], 1);
    assert_eq!(second[second.len() - 1].json()["id"], 2);
}

fn calls_run_side_by_side(on: Flavour) {
    let (_server, session) = started(on);
    let mut slow = session.call(&call(1, "ticker", ticks(2, 1_500)));
    slow.event();
    let before = std::time::Instant::now();
    assert_eq!(text_of(&session.result(&call(2, "echo", json!({"text": "quick"})))), "quick");
    assert!(before.elapsed() < Duration::from_millis(1_200), "a slow call holds a quick one up");
    let rest = slow.rest();
    assert_eq!(executions(&rest[rest.len() - 1].json()["result"]), 1);
}

fn one_id_for_everything_is_routed_by_call(on: Flavour) {
    let (_server, session) = started(on);
    let keys: Vec<String> = (0..6).map(|_| fresh_key()).collect();
    let arguments = |at: usize| json!({"count": at + 2, "interval_ms": 25, "payload_bytes": 0, "key": keys[at]});
    let mut streams: Vec<_> = (0..keys.len()).map(|at| session.call(&call_with_token(1, 1, "ticker", arguments(at)))).collect();
    for (at, stream) in streams.iter_mut().enumerate() {
        let blocks = stream.rest();
        assert_eq!(ticks_in(&blocks), (1..=at as u64 + 2).collect::<Vec<_>>(), "another call's progress");
        let result = blocks[blocks.len() - 1].json();
        assert_eq!(result["id"], 1);
        assert!(text_of(&result["result"]).contains(&keys[at]), "another call's result: {result}");
        assert_eq!(executions(&result["result"]), 1);
    }
}

fn a_dropped_connection_is_no_cancellation(on: Flavour) {
    let (_server, session) = started(on);
    for (id, reset) in [(1, true), (2, false)] {
        let mut stream = session.call(&call(id, "ticker", ticks(6, 50)));
        let opening = stream.event();
        if reset {
            stream.reset()
        } else {
            drop(stream)
        }
        let rest = session.resume(opening.cursor()).rest();
        assert_eq!(ticks_in(&rest), (1..=6).collect::<Vec<_>>());
        assert_eq!(executions(&rest[rest.len() - 1].json()["result"]), 1);
    }
}

fn cancelling_an_id_in_flight_twice_is_ignored(on: Flavour) {
    let (_server, session) = started(on);
    let mut first = session.call(&call(1, "ticker", ticks(10, 50)));
    let mut second = session.call(&call(1, "ticker", ticks(9, 50)));
    first.event();
    second.event();
    accepted(&session.tell(&notification("notifications/cancelled", json!({"requestId": 1}))));
    for (stream, count) in [(&mut first, 10), (&mut second, 9)] {
        let rest = stream.rest();
        assert_eq!(ticks_in(&rest), (1..=count).collect::<Vec<_>>());
        assert_eq!(executions(&rest[rest.len() - 1].json()["result"]), 1);
    }
}

fn cancelling_what_is_not_there_is_accepted(on: Flavour) {
    let (_server, session) = started(on);
    session.result(&call(1, "echo", json!({"text": "done"})));
    for params in [json!({"requestId": 1}), json!({"requestId": 99}), json!({"requestId": "x"}), json!({})] {
        accepted(&session.tell(&notification("notifications/cancelled", params)));
    }
    assert_eq!(text_of(&session.result(&call(2, "echo", json!({"text": "alive"})))), "alive");
}

fn notifications_and_stray_responses_are_202(on: Flavour) {
    let (_server, session) = started(on);
    for message in [
        notification("notifications/roots/list_changed", json!({})),
        json!({"jsonrpc": "2.0", "method": "notifications/of/no/kind"}),
        json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
        json!({"jsonrpc": "2.0", "id": "x", "error": {"code": -1, "message": "no"}}),
    ] {
        accepted(&session.tell(&message));
    }
}

fn an_open_stream_blocks_no_post(on: Flavour) {
    let (_server, session) = started(on);
    let mut listening = session.listen();
    listening.event();
    for id in 0..5 {
        session.result(&call(id, "echo", json!({"text": "x"})));
    }
    session.result(&call(9, "broadcast", json!({"count": 1, "interval_ms": 0})));
    assert_eq!(place(listening.event().cursor()).2, 1);
}

fn many_requests_share_a_connection(on: Flavour) {
    let (server, session) = started(on);
    let mut connection = Connection::open(server.address);
    for id in 0..100 {
        let answer = connection.ask(&session.post(&call(id, "echo", json!({"text": id.to_string()}))));
        assert_eq!(text_of(&rejoin_tests::session::result_of(&answer, &json!(id))), id.to_string());
    }
    accepted(&connection.ask(&session.post(&notification("notifications/roots/list_changed", json!({})))));
    refused(&connection.ask(&session.get_after("garbage")), 400, "invalid_cursor");
    assert_eq!(connection.ask(&session.delete()).status(), 204);
}

fn pipelined_requests_are_answered_in_order(on: Flavour) {
    let (server, session) = started(on);
    let mut connection = Connection::open(server.address);
    let mut bytes = Vec::new();
    for id in 0..20 {
        let asked = match id % 3 {
            0 => call(id, "ticker", ticks(2, 5)),
            _ => call(id, "echo", json!({"text": "x"})),
        };
        bytes.extend(session.post(&asked).bytes());
    }
    connection.write(&bytes);
    for id in 0..20 {
        rejoin_tests::session::result_of(&connection.answer(), &json!(id));
    }
}

fn sessions_take_turns_on_one_connection(on: Flavour) {
    let (server, _) = started(on);
    let sessions: Vec<Session> = (0..6).map(|_| Session::begin(server.address, NOVEMBER)).collect();
    let mut connection = Connection::open(server.address);
    for round in 0..8 {
        for session in &sessions {
            let text = format!("{round} {}", session.id);
            let answer = connection.ask(&session.post(&call(round, "echo", json!({"text": text}))));
            assert_eq!(text_of(&rejoin_tests::session::result_of(&answer, &json!(round))), text);
        }
    }
    // All at once, so that the connection moves with answers and requests under way.
    let mut bytes = Vec::new();
    for (id, session) in sessions.iter().enumerate() {
        bytes.extend(session.post(&call(100 + id, "ticker", ticks(3, 2))).bytes());
    }
    connection.write(&bytes);
    for id in 0..sessions.len() {
        assert_eq!(executions(&rejoin_tests::session::result_of(&connection.answer(), &json!(100 + id))), 1);
    }
}

fn expect_100_continue_is_honoured(on: Flavour) {
    let (server, session) = started(on);
    let asked = session.post(&call(1, "echo", json!({"text": "waited for"}))).with("Expect", "100-continue");
    let bytes = asked.bytes();
    let head = asked.head_bytes();
    let mut connection = Connection::open(server.address);
    connection.write(&head);
    assert_eq!(connection.head().status(), 100);
    connection.write(&bytes[head.len()..]);
    assert_eq!(text_of(&rejoin_tests::session::result_of(&connection.answer(), &json!(1))), "waited for");
    // Who is refused by the head alone need not send the body.
    let mut connection = Connection::open(server.address);
    connection.write(&asked.set("Content-Type", "text/plain").head_bytes());
    refused(&connection.answer(), 415, "unsupported_media_type");
}

fn chunked_bodies_are_read_in_any_fragmentation(on: Flavour) {
    let (server, session) = started(on);
    for size in [1, 7, 10_000] {
        let message = call(size as u64, "echo", json!({"text": "in pieces"})).to_string();
        let head = session.post(&Value::Null).without("Content-Length").with("Transfer-Encoding", "chunked");
        let mut bytes = head.head_bytes();
        for chunk in message.as_bytes().chunks(size) {
            bytes.extend(format!("{:x};extension=ignored\r\n", chunk.len()).as_bytes());
            bytes.extend(chunk);
            bytes.extend(b"\r\n");
        }
        bytes.extend(b"0\r\nTrailer: ignored\r\n\r\n");
        let mut connection = Connection::open(server.address);
        for piece in bytes.chunks(size.min(97)) {
            connection.write(piece);
        }
        assert_eq!(text_of(&rejoin_tests::session::result_of(&connection.answer(), &json!(size))), "in pieces");
    }
}
