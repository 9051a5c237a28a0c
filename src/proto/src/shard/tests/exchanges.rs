//! Requests without a session: what they must say, how they are answered, and that nothing is left of them.

use super::*;
use crate::mcp::Revision;
use crate::refusal::{RefusalKind, Room};
use crate::shard::io::Cancelled;

/// A request of 2026-07-28 with these params inside, and the head that it needs.
pub(super) struct Modern<'a> {
    pub method: &'a str,
    pub params: &'a str,
    /// In place of the head's own fields.
    pub fields: Option<&'a str>,
    /// Fields beside them.
    pub more: &'a str,
    pub meta: &'a str,
}

const META: &str = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}"#;

impl<'a> Modern<'a> {
    fn new(method: &'a str) -> Self {
        Self { method, params: "", fields: None, more: "", meta: META }
    }

    pub(super) fn call() -> Self {
        Self { params: r#""name":"t","#, ..Self::new("tools/call") }
    }

    pub(super) fn text(&self) -> String {
        let name = if self.params.contains("\"name\":\"t\"") { "Mcp-Name: t\r\n" } else { "" };
        let own = format!("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: {}\r\n{name}", self.method);
        let (method, params, meta) = (self.method, self.params, self.meta);
        let body = format!(r#"{{"jsonrpc":"2.0","id":"c1","method":"{method}","params":{{{params}"_meta":{{{meta}}}}}}}"#);
        post(&format!("{}{}", self.fields.unwrap_or(&own), self.more), &body)
    }
}

impl Bench {
    /// A request that was delivered: its connection, its session to itself, and its call.
    fn modern(&mut self, request: &Modern<'_>) -> (ConnId, SessionId, CallId) {
        let (conn, answer) = self.ask(&request.text());
        let Some((session, Delivery::Exchange { call, revision, .. })) = self.deliveries.pop() else { panic!("{answer}") };
        assert_eq!((revision, answer.as_str()), (Revision::V2026_07_28, ""), "the head waits for the first message");
        (conn, session, call)
    }

    fn error(&mut self, session: SessionId, call: CallId, error: &str) {
        self.emit(session, Emission::Error { call, error: Bytes::copy_from_slice(error.as_bytes()) }).expect("taken");
    }

    pub(super) fn nothing_is_left(&self) {
        let snapshot = self.shard.snapshot(self.now);
        assert_eq!((snapshot.exchanges, snapshot.sessions, snapshot.log.streams), (0, 0, 0));
        assert_eq!(self.shard.sessions.iter().flatten().count(), 0);
        assert_eq!(self.shard.sessions().count(), 0);
    }
}

/// The code of the JSON-RPC error in an answer.
fn code(answer: &str) -> i64 {
    let body = &answer[answer.find("\r\n\r\n").expect("a head") + 4..];
    let body: serde_json::Value = serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer}"));
    assert!(body["id"] == "c1" || body["id"].is_null(), "{answer}");
    body["error"]["code"].as_i64().unwrap_or_else(|| panic!("{answer}"))
}

#[test]
fn a_result_is_one_json_body_with_its_type_and_nothing_is_left() {
    let mut bench = Bench::new(|_| {});
    let (conn, session, call) = bench.modern(&Modern::call());
    bench.result(session, call, r#"{"content":[]}"#).expect("taken");
    let answer = bench.got(conn);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"), "{answer}");
    assert!(answer.ends_with(r#"{"jsonrpc":"2.0","id":"c1","result":{"content":[],"resultType":"complete"}}"#), "{answer}");
    assert!(!answer.contains("Mcp-Session-Id"), "{answer}");
    bench.nothing_is_left();
    assert_eq!(bench.result(session, call, "{}"), Err(NotTaken::SessionEnded), "once");
}

#[test]
fn a_stream_has_neither_ids_nor_retry_nor_an_opening_event() {
    let mut bench = Bench::new(|_| {});
    let (conn, session, call) = bench.modern(&Modern::call());
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    bench.result(session, call, r#"{"resultType":"input_required"}"#).expect("taken");
    let answer = bench.got(conn);
    let (head, body) = answer.split_once("\r\n\r\n").expect("a head");
    assert!(head.contains("Content-Type: text/event-stream") && head.contains("X-Accel-Buffering: no"), "{answer}");
    assert!(!head.contains("Mcp-Session-Id"), "{answer}");
    let lines: Vec<_> = body.lines().filter(|line| line.contains(':')).collect();
    assert!(lines.len() == 2 && lines.iter().all(|line| line.starts_with("data: {")), "{answer}");
    assert!(lines[1].contains(r#""result":{"resultType":"input_required"}"#) && body.ends_with("0\r\n\r\n"), "{answer}");
    bench.nothing_is_left();
}

#[test]
fn the_connection_serves_the_next_request_too() {
    let mut bench = Bench::new(|_| {});
    let (conn, session, call) = bench.modern(&Modern::call());
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    bench.result(session, call, "{}").expect("taken");
    assert_eq!(bench.send(conn, &Modern::call().text()), "");
    let Some((again, Delivery::Exchange { call, .. })) = bench.deliveries.pop() else { panic!("nothing delivered") };
    assert_ne!(again, session, "each has a name of its own");
    bench.result(again, call, "{}").expect("taken");
    assert!(bench.got(conn).contains("\"resultType\":\"complete\""));
    bench.nothing_is_left();
}

#[test]
fn closing_the_stream_cancels_the_call_and_the_handler_is_told() {
    for notified in [false, true] {
        let mut bench = Bench::new(|_| {});
        let (conn, session, call) = bench.modern(&Modern::call());
        if notified {
            bench.notify(session, Target::Call(call), "n1").expect("taken");
        }
        bench.input(Input::Closed { conn });
        let told = bench.deliveries.pop();
        assert!(
            matches!(told, Some((of, Delivery::Cancelled { call: one, why: Cancelled::ByClient })) if of == session && one == call),
            "{told:?}"
        );
        assert!(bench.deliveries.is_empty(), "it was no session of the handler's: its end is not told");
        assert_eq!(bench.result(session, call, "{}"), Err(NotTaken::SessionEnded));
        bench.nothing_is_left();
    }
}

#[test]
fn errors_have_the_status_that_their_code_asks_for() {
    for (error, status) in [(-32601, 404), (-32020, 400), (-32021, 400), (-32022, 400), (-32602, 200), (-32603, 200), (7, 200)] {
        for policy in [ResponsePolicy::Auto, ResponsePolicy::Json] {
            let mut bench = Bench::new(|config| config.response = policy);
            let (conn, session, call) = bench.modern(&Modern::call());
            bench.error(session, call, &format!(r#"{{"code":{error},"message":"m"}}"#));
            let answer = bench.got(conn);
            assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{error}: {answer}");
            assert_eq!(code(&answer), error);
            bench.nothing_is_left();
        }
    }
}

#[test]
fn a_status_is_waited_for_and_a_long_silence_opens_the_stream() {
    for policy in [ResponsePolicy::Auto, ResponsePolicy::Sse] {
        let mut bench = Bench::new(|config| config.response = policy);
        let (conn, session, call) = bench.modern(&Modern::call());
        bench.wait(14_900);
        assert_eq!(bench.got(conn), "");
        bench.error(session, call, r#"{"code":-32601,"message":"m"}"#);
        assert!(bench.got(conn).starts_with("HTTP/1.1 404 "), "{}", bench.got(conn));
        let (conn, session, call) = bench.modern(&Modern::call());
        bench.wait(15_100);
        assert!(bench.got(conn).contains("text/event-stream"), "{}", bench.got(conn));
        bench.wait(15_100);
        assert!(bench.got(conn).contains("\n:"), "and then it is kept alive: {}", bench.got(conn));
        bench.error(session, call, r#"{"code":-32601,"message":"m"}"#);
        assert!(bench.got(conn).contains("-32601") && bench.got(conn).ends_with("0\r\n\r\n"), "{}", bench.got(conn));
        bench.nothing_is_left();
    }
}

#[test]
fn a_policy_of_streams_streams_results_and_keeps_statuses() {
    let mut bench = Bench::new(|config| config.response = ResponsePolicy::Sse);
    let (conn, session, call) = bench.modern(&Modern::call());
    bench.result(session, call, "{}").expect("taken");
    assert!(bench.got(conn).contains("text/event-stream") && bench.got(conn).ends_with("0\r\n\r\n"), "{}", bench.got(conn));
    let (conn, session, call) = bench.modern(&Modern::call());
    bench.error(session, call, r#"{"code":-32601,"message":"m"}"#);
    assert!(bench.got(conn).starts_with("HTTP/1.1 404 "), "{}", bench.got(conn));
    bench.nothing_is_left();
}

#[test]
fn what_a_request_lacks_is_told_by_its_code() {
    let version = r#""io.modelcontextprotocol/protocolVersion":"2026-07-28""#;
    let other = META.replace("2026-07-28", "v999.0.0");
    let head = "MCP-Protocol-Version: 2026-07-28\r\n";
    for (meta, fields, status, expected) in [
        ("", None, 400, -32602),
        (version, None, 400, -32602),
        (META, Some(""), 400, -32020),
        (META, Some("MCP-Protocol-Version: 2025-11-25\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\n"), 400, -32020),
        (META, Some(head), 400, -32020),
        (META, Some("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\n"), 400, -32020),
        (META, Some("MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: u\r\n"), 400, -32020),
        (&other, Some("MCP-Protocol-Version: v999.0.0\r\n"), 400, -32022),
        (&other, Some(head), 400, -32020),
    ] {
        let mut bench = Bench::new(|_| {});
        let (conn, answer) = bench.ask(&Modern { meta, fields, ..Modern::call() }.text());
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{meta} {fields:?}: {answer}");
        assert_eq!(code(&answer), expected, "{meta} {fields:?}");
        assert!(bench.deliveries.is_empty() && bench.closed[conn.0 as usize].is_none());
        bench.nothing_is_left();
    }
}

#[test]
fn an_unknown_revision_is_told_which_there_are() {
    let mut bench = Bench::new(|_| {});
    let meta = META.replace("2026-07-28", "1900-01-01");
    let (_, answer) =
        bench.ask(&Modern { meta: &meta, fields: Some("MCP-Protocol-Version: 1900-01-01\r\n"), ..Modern::call() }.text());
    assert!(answer.contains(r#""supported":["2026-07-28","2025-11-25","2025-06-18","2025-03-26"]"#), "{answer}");
    assert!(answer.contains(r#""requested":"1900-01-01""#), "{answer}");
    let long = "9".repeat(65);
    let meta = META.replace("2026-07-28", &long);
    let (_, repeated) =
        bench.ask(&Modern { meta: &meta, fields: Some(&format!("MCP-Protocol-Version: {long}\r\n")), ..Modern::call() }.text());
    assert!(
        repeated.contains(&format!("\"requested\":\"{}\"", "9".repeat(64))),
        "no more than the longest is repeated: {repeated}"
    );
    assert_eq!(bench.shard.counters().refusals[RefusalKind::RevisionNotServed], 2);
}

#[test]
fn methods_of_the_handshake_are_gone() {
    let mut bench = Bench::new(|_| {});
    for method in ["initialize", "ping", "logging/setLevel", "resources/subscribe", "resources/unsubscribe"] {
        let (_, answer) = bench.ask(&Modern::new(method).text());
        assert!(answer.starts_with("HTTP/1.1 404 ") && code(&answer) == -32601, "{method}: {answer}");
    }
    assert!(bench.deliveries.is_empty());
    bench.nothing_is_left();
}

#[test]
fn both_eras_live_on_one_endpoint() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, alone, call) = bench.modern(&Modern::call());
    let (other, theirs) = bench.call(session, CALL);
    bench.result(session, theirs, r#"{"of":"session"}"#).expect("taken");
    bench.result(alone, call, r#"{"of":"none"}"#).expect("taken");
    assert!(bench.got(other).ends_with(r#""id":7,"result":{"of":"session"}}"#), "no type where there was none");
    assert!(bench.got(conn).contains(r#""of":"none""#));
    // A session's request may carry what it likes in `_meta`, and its `initialize` may come with any header.
    let legacy =
        CALL.replace("\"_meta\":{", r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2025-11-25","#).replace(":7,", ":8,");
    let (_, call) = bench.call(session, &legacy);
    bench.result(session, call, "{}").expect("taken");
    let initialize = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;
    bench.ask(&post("MCP-Protocol-Version: 2026-07-28\r\n", initialize));
    assert!(matches!(bench.deliveries.pop(), Some((_, Delivery::Initialize { .. }))));
}

#[test]
fn a_session_id_and_a_cursor_mean_nothing() {
    let mut bench = Bench::new(|_| {});
    let fields = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\nMcp-Session-Id: dead\r\nLast-Event-ID: x\r\n";
    let (conn, session, call) = bench.modern(&Modern { fields: Some(fields), ..Modern::call() });
    bench.result(session, call, "{}").expect("taken");
    assert!(bench.got(conn).starts_with("HTTP/1.1 200 ") && !bench.got(conn).contains("Mcp-Session-Id"));
    // Nor can the name that the handler knows be presented.
    let (_, session, _) = bench.modern(&Modern::call());
    let (_, answer) = bench.get(session, None);
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
    let (_, answer) = bench.ask(&post(&id(session), CALL));
    assert!(answer.starts_with("HTTP/1.1 404 "), "{answer}");
}

#[test]
fn get_and_delete_are_not_allowed_and_nothing_else_is_posted() {
    let mut bench = Bench::new(|_| {});
    let version = "MCP-Protocol-Version: 2026-07-28\r\n";
    for method in ["GET", "DELETE"] {
        let (_, answer) =
            bench.ask(&format!("{method} /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{version}\r\n"));
        assert!(answer.starts_with("HTTP/1.1 405 "), "{answer}");
    }
    for (body, status) in [
        (r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":1}}"#, 202),
        (r#"{"jsonrpc":"2.0","id":1,"result":{}}"#, 400),
        (r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"}]"#, 400),
    ] {
        let (_, answer) = bench.ask(&post(version, body));
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{body}: {answer}");
    }
    assert!(bench.deliveries.is_empty());
}

#[test]
fn a_server_without_this_era_is_told_from_one_with_it() {
    let mut bench = Bench::new(|config| config.exchanges = false);
    let (_, answer) = bench.ask(&Modern::call().text());
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("unsupported_revision"), "{answer}");
    // No code of the era's own: clients of both begin a session then.
    assert_eq!(code(&answer), -32000);
}

#[test]
fn a_client_of_two_endpoints_is_refused_its_first_get() {
    let mut bench = Bench::new(|_| {});
    let (_, answer) = bench.ask("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("session_required"), "{answer}");
}

#[test]
fn nothing_can_be_asked_of_the_client_and_there_is_no_other_stream() {
    let mut bench = Bench::new(|_| {});
    let (_, session, call) = bench.modern(&Modern::call());
    let request = ClientRequestId(9);
    let ask = Emission::Request { to: Target::Call(call), request, method: "roots/list".into(), params: None };
    assert_eq!(bench.emit(session, ask), Err(NotTaken::NoSession));
    assert_eq!(bench.notify(session, Target::Standalone, "n"), Err(NotTaken::NoSession));
    bench.input(Input::Command(Command::Rotate(session)));
    assert_eq!(bench.took.take(), Some(Err(NotTaken::NoSession)));
    bench.notify(session, Target::Unnamed, "n").expect("its own stream");
    bench.emit(session, Emission::HangUp { call, retry: None }).expect("without effect");
    bench.result(session, call, "{}").expect("taken");
    bench.nothing_is_left();
}

#[test]
fn progress_comes_back_under_the_clients_token() {
    let mut bench = Bench::new(|_| {});
    let meta = format!(r#"{META},"progressToken":"mine""#);
    let (conn, session, call) = bench.modern(&Modern { meta: &meta, ..Modern::call() });
    let params = Some(Bytes::from(format!(r#"{{"progressToken":{},"progress":1}}"#, call.0)));
    let to = Target::Call(call);
    bench.emit(session, Emission::Notification { to, method: "notifications/progress".into(), params }).expect("taken");
    assert!(bench.got(conn).contains(r#"{"progressToken":"mine","progress":1}"#), "{}", bench.got(conn));
}

#[test]
fn the_heads_parameters_reach_the_handler() {
    let mut bench = Bench::new(|_| {});
    let fields = "MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\nmcp-param-Region:  us \r\nMcp-Param: no\r\n";
    bench.ask(&Modern { fields: Some(fields), ..Modern::call() }.text());
    let Some((_, Delivery::Exchange { param_headers, params, .. })) = bench.deliveries.pop() else { panic!("nothing delivered") };
    assert_eq!(param_headers, [("Region".into(), (*b"us").into())]);
    assert!(params.starts_with(br#"{"name":"t","_meta":{"#), "{params:?}");
}

#[test]
fn a_stream_of_changes_names_its_subscription_and_ends_with_the_drain() {
    for policy in [ResponsePolicy::Auto, ResponsePolicy::Json] {
        let mut bench = Bench::new(|config| config.response = policy);
        let (conn, session, call) =
            bench.modern(&Modern { params: r#""notifications":{},"#, ..Modern::new("subscriptions/listen") });
        bench.notify(session, Target::Call(call), "ack").expect("taken");
        assert!(
            bench.got(conn).contains(r#"{"data":"ack","_meta":{"io.modelcontextprotocol/subscriptionId":"c1"}}"#),
            "{}",
            bench.got(conn)
        );
        bench.input(Input::Command(Command::Drain { deadline: Instant::from_millis(60_000) }));
        assert!(bench.got(conn).ends_with("0\r\n\r\n") && !bench.got(conn).contains("error"), "{}", bench.got(conn));
        assert!(matches!(bench.deliveries.pop(), Some((_, Delivery::Cancelled { why: Cancelled::Drain, .. }))));
        bench.nothing_is_left();
    }
}

#[test]
fn a_stream_of_changes_that_its_handler_ends_has_a_result_that_names_its_subscription() {
    let mut bench = Bench::new(|_| {});
    let (conn, session, call) = bench.modern(&Modern { params: r#""notifications":{},"#, ..Modern::new("subscriptions/listen") });
    bench.notify(session, Target::Call(call), "ack").expect("taken");
    let answer = |result: &'static str| Emission::Result { call, result: result.into() };
    let named = r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":7}}"#;
    assert_eq!(bench.emit(session, answer(named)), Err(NotTaken::Malformed), "it is the kernel's to name");
    bench.emit(session, answer(r#"{"_meta":{"a":1}}"#)).expect("taken");
    let result = r#"{"_meta":{"a":1,"io.modelcontextprotocol/subscriptionId":"c1"},"resultType":"complete"}"#;
    assert!(bench.got(conn).contains(result), "{}", bench.got(conn));
    assert!(bench.got(conn).ends_with("0\r\n\r\n"), "{}", bench.got(conn));
    bench.nothing_is_left();
}

#[test]
fn a_stream_of_changes_that_is_too_old_ends_cleanly_and_any_other_call_is_lost() {
    let mut bench = Bench::new(|config| config.limits.call_max_age = std::time::Duration::from_secs(5));
    let (listening, session, call) = bench.modern(&Modern::new("subscriptions/listen"));
    bench.notify(session, Target::Call(call), "ack").expect("taken");
    let (calling, ..) = bench.modern(&Modern::call());
    bench.wait(5_100);
    assert!(bench.got(listening).ends_with("0\r\n\r\n") && !bench.got(listening).contains("error"), "{}", bench.got(listening));
    assert!(bench.got(calling).contains("-32010"), "{}", bench.got(calling));
    bench.nothing_is_left();
}

#[test]
fn the_bound_of_requests_in_flight_is_the_servers_and_each_end_makes_room() {
    let mut bench = Bench::new(|config| config.limits.exchanges = 2);
    let (first, ..) = bench.modern(&Modern::call());
    let (_, session, call) = bench.modern(&Modern::call());
    let (_, answer) = bench.ask(&Modern::call().text());
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 1") && code(&answer) == -32000, "{answer}");
    assert_eq!(bench.shard.counters().sheds[Room::Exchange], 1);
    bench.input(Input::Closed { conn: first });
    bench.deliveries.clear();
    bench.modern(&Modern::call());
    bench.result(session, call, "{}").expect("taken");
    bench.modern(&Modern::call());
    bench.session("2025-11-25");
}

#[test]
fn a_reader_who_is_owed_what_is_gone_is_cut_and_its_call_cancelled() {
    let mut bench = Bench::new(|config| config.limits.stream_events = 2);
    let (conn, session, call) = bench.modern(&Modern::call());
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    bench.stuck.push(conn);
    let stuck_with = bench.got(conn).len();
    for number in 2..=6 {
        bench.notify(session, Target::Call(call), &format!("n{number}")).expect("taken");
    }
    bench.stuck.clear();
    let under_way = bench.got(conn).len() - stuck_with;
    bench.input(Input::Sent { conn, bytes: under_way });
    assert_eq!(bench.closed[conn.0 as usize], Some(Close::Reset), "{}", bench.got(conn));
    assert!(!bench.got(conn).contains("resync"), "{}", bench.got(conn));
    assert!(matches!(bench.deliveries.pop(), Some((_, Delivery::Cancelled { call: one, .. })) if one == call));
    assert_eq!(bench.shard.counters().sheds[Room::SlowReader], 1);
    bench.nothing_is_left();
}

#[test]
fn a_handler_without_room_is_told_as_503() {
    let mut bench = Bench::new(|_| {});
    let (conn, session, call) = bench.modern(&Modern::call());
    bench.emit(session, Emission::Shed { call, why: "no room" }).expect("taken");
    assert!(bench.got(conn).starts_with("HTTP/1.1 503 "), "{}", bench.got(conn));
    let (conn, session, call) = bench.modern(&Modern::call());
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    bench.emit(session, Emission::Shed { call, why: "no room" }).expect("taken");
    assert!(bench.got(conn).contains(r#""code":"shed""#) && bench.got(conn).ends_with("0\r\n\r\n"), "{}", bench.got(conn));
    bench.nothing_is_left();
}

#[test]
fn a_drain_refuses_new_requests_and_lets_those_in_flight_end() {
    let mut bench = Bench::new(|_| {});
    let (conn, session, call) = bench.modern(&Modern::call());
    let late = bench.open();
    bench.input(Input::Received { conn: late, bytes: b"POST" });
    bench.input(Input::Command(Command::Drain { deadline: Instant::from_millis(60_000) }));
    let answer = bench.send(late, &Modern::call().text()[4..]);
    assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
    bench.result(session, call, "{}").expect("taken");
    assert!(bench.got(conn).starts_with("HTTP/1.1 200 "), "{}", bench.got(conn));
    bench.nothing_is_left();
}
