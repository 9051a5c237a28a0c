//! The machine's behaviour, one shard at a time: bytes in, bytes out.

mod counted;
mod exchanges;
mod hang_up;
mod heads;
mod keyed;
mod keyed_storm;
mod late;
mod simulated;

use bytes::Bytes;

use super::io::{Close, Command, Delivery, Emission, Input, NotTaken, Output, Target, Unauthorized, World};
use super::*;
use crate::http::Head;
use crate::ids::Cursor;
use crate::ids::Position;
use crate::incarnations::{self, Liveness};

const KEY: Key = Key::new([3; 16]);

struct Alone;

impl World for Alone {
    fn principal(&self, head: &Head) -> Result<Principal, Unauthorized> {
        match head.single("authorization") {
            Ok(None) => Ok(Principal::new("anonymous")),
            Ok(Some(b"Bearer wrong")) | Err(_) => Err(Unauthorized { challenge: "Bearer".into() }),
            Ok(Some(token)) => Ok(Principal::new(&String::from_utf8_lossy(token))),
        }
    }

    fn liveness(&self, _: &SessionId, _: u64) -> Liveness {
        Liveness::Ended(crate::refusal::Ended::Unknown)
    }

    fn place(&self) -> ShardIndex {
        ShardIndex(0)
    }
}

/// A shard with its connections' bytes.
struct Bench {
    shard: Shard,
    now: Instant,
    random: u64,
    received: Vec<Vec<u8>>,
    closed: Vec<Option<Close>>,
    deliveries: Vec<(SessionId, Delivery)>,
    took: Option<Result<(), NotTaken>>,
    /// Connections whose sends are not reported as written.
    stuck: Vec<ConnId>,
    /// What went to other shards.
    posted: Vec<(ShardIndex, crate::keyed::Mail)>,
}

impl Bench {
    fn new(change: impl FnOnce(&mut Config)) -> Self {
        let limits = Limits { log_bytes: 1 << 20, ..Limits::default() };
        let mut config = Config {
            shard: ShardIndex(0),
            shards: 1,
            boot: Boot(1),
            key: KEY,
            path: "/mcp".into(),
            limits,
            names: Names::default(),
            finished: Finished::NoContent,
            response: ResponsePolicy::Auto,
            exchanges: true,
            heads: false,
        };
        change(&mut config);
        let (_, writer) = incarnations::table(config.shard, Boot(1), 64);
        Self {
            shard: Shard::new(config, writer, Instant::ORIGIN),
            now: Instant::ORIGIN,
            random: 0,
            received: Vec::new(),
            closed: Vec::new(),
            deliveries: Vec::new(),
            took: None,
            stuck: Vec::new(),
            posted: Vec::new(),
        }
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        let mut random = || {
            self.random += 1;
            self.random.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        };
        self.shard.handle(input, self.now, &mut random, &Alone, &mut out);
        for output in out {
            match output {
                Output::Send { conn, slices } => {
                    let bytes = slices.concat();
                    self.received[conn.0 as usize].extend_from_slice(&bytes);
                    drop(slices);
                    if !self.stuck.contains(&conn) {
                        self.input(Input::Sent { conn, bytes: bytes.len() });
                    }
                }
                Output::Close { conn, how } => {
                    self.closed[conn.0 as usize] = Some(how);
                    self.input(Input::Closed { conn });
                }
                Output::Deliver { session, delivery } => self.deliveries.push((session, delivery)),
                Output::Took(took) => self.took = Some(took),
                Output::Read { .. } | Output::WakeAt(_) | Output::Drained => {}
                Output::Handoff { .. } => panic!("one shard hands nothing off"),
                Output::Post { to, mail } => self.posted.push((to, mail)),
            }
        }
    }

    fn open(&mut self) -> ConnId {
        self.accepted(|conn| Input::Opened { conn })
    }

    fn shed(&mut self, within: std::time::Duration) -> ConnId {
        self.accepted(|conn| Input::Shed { conn, within })
    }

    fn accepted(&mut self, input: impl FnOnce(ConnId) -> Input<'static>) -> ConnId {
        let conn = ConnId(self.received.len() as u32);
        self.received.push(Vec::new());
        self.closed.push(None);
        self.input(input(conn));
        conn
    }

    fn send(&mut self, conn: ConnId, request: &str) -> String {
        self.received[conn.0 as usize].clear();
        self.input(Input::Received { conn, bytes: request.as_bytes() });
        self.got(conn)
    }

    fn got(&self, conn: ConnId) -> String {
        String::from_utf8(self.received[conn.0 as usize].clone()).expect("text")
    }

    fn ask(&mut self, request: &str) -> (ConnId, String) {
        let conn = self.open();
        let answer = self.send(conn, request);
        (conn, answer)
    }

    fn wait(&mut self, millis: u64) {
        self.now = Instant::from_millis(self.now.as_millis() + millis);
        self.input(Input::TimePassed);
    }

    fn emit(&mut self, session: SessionId, emission: Emission) -> Result<(), NotTaken> {
        self.input(Input::Emitted { session, emission });
        self.took.take().expect("an answer")
    }

    fn notify(&mut self, session: SessionId, to: Target, text: &str) -> Result<(), NotTaken> {
        let params = Some(Bytes::from(format!(r#"{{"data":"{text}"}}"#)));
        self.emit(session, Emission::Notification { to, method: "notifications/message".into(), params })
    }

    fn result(&mut self, session: SessionId, call: CallId, result: &str) -> Result<(), NotTaken> {
        self.emit(session, Emission::Result { call, result: Bytes::copy_from_slice(result.as_bytes()) })
    }

    /// A session of this revision, confirmed.
    fn session(&mut self, revision: &str) -> SessionId {
        let (conn, answer) = self.ask(&post("", r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{}}"#));
        assert_eq!(answer, "", "the head waits for the handler's result");
        let Some((session, Delivery::Initialize { call, .. })) = self.deliveries.pop() else { panic!("no initialize") };
        let result = format!(r#"{{"protocolVersion":"{revision}","capabilities":{{"tools":{{"listChanged":true}}}}}}"#);
        self.result(session, call, &result).expect("taken");
        let answer = self.got(conn);
        assert!(answer.contains(&format!("Mcp-Session-Id: {session}")), "{answer}");
        let (_, answer) = self.ask(&post(&id(session), r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#));
        assert!(answer.starts_with("HTTP/1.1 202 "), "{answer}");
        self.deliveries.clear();
        session
    }

    /// A call on a connection of its own.
    fn call(&mut self, session: SessionId, body: &str) -> (ConnId, CallId) {
        let (conn, _) = self.ask(&post(&id(session), body));
        let Some((_, Delivery::Request { call, .. })) = self.deliveries.pop() else { panic!("no request in {}", self.got(conn)) };
        (conn, call)
    }

    fn get(&mut self, session: SessionId, cursor: Option<&str>) -> (ConnId, String) {
        let cursor = cursor.map(|cursor| format!("Last-Event-ID: {cursor}\r\n")).unwrap_or_default();
        self.ask(&format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{}{cursor}\r\n", id(session)))
    }
}

fn id(session: SessionId) -> String {
    format!("Mcp-Session-Id: {session}\r\n")
}

fn post(fields: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
         {fields}Content-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

fn cursor(session: SessionId, stream: u32, position: u64) -> String {
    Cursor::new(Incarnation::FIRST, StreamNumber(stream), Position::new(position)).encode(&KEY, &session).to_string()
}

const CALL: &str = r#"{"jsonrpc":"2.0","id":7,"method":"tools/call","params":{"name":"t","_meta":{"progressToken":"mine"}}}"#;

#[test]
fn a_result_that_is_ready_at_once_is_one_json_body() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    bench.result(session, call, r#"{"content":[]}"#).expect("taken");
    let answer = bench.got(conn);
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"), "{answer}");
    assert!(answer.ends_with(r#"{"jsonrpc":"2.0","id":7,"result":{"content":[]}}"#), "{answer}");
}

#[test]
fn a_call_cut_in_the_middle_goes_on_after_its_cursor() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    for number in 1..=3 {
        bench.notify(session, Target::Call(call), &format!("n{number}")).expect("taken");
    }
    let answer = bench.got(conn);
    assert!(answer.contains("Content-Type: text/event-stream"), "{answer}");
    assert!(answer.contains(&format!("id: {}\nretry: ", cursor(session, 2, 0))), "{answer}");
    assert!(answer.contains(&format!("id: {}\ndata: ", cursor(session, 2, 3))), "{answer}");
    bench.input(Input::Closed { conn });
    bench.notify(session, Target::Call(call), "n4").expect("taken");
    let (resumed, answer) = bench.get(session, Some(&cursor(session, 2, 2)));
    assert!(answer.contains("Rejoin-Verdict: replay"), "{answer}");
    assert!(!answer.contains("n2") && answer.contains("n3") && answer.contains("n4"), "{answer}");
    bench.result(session, call, "{}").expect("taken");
    let answer = bench.got(resumed);
    assert!(answer.ends_with("\"result\":{}}\n\n\r\n0\r\n\r\n"), "{answer}");
    assert!(bench.closed[resumed.0 as usize].is_none());
    let (_, answer) = bench.get(session, Some(&cursor(session, 2, 5)));
    assert!(answer.starts_with("HTTP/1.1 204 ") && answer.contains("Rejoin-Verdict: complete"), "{answer}");
}

#[test]
fn an_evicted_cursor_gets_resync_first_and_then_the_result() {
    let mut bench = Bench::new(|config| config.limits.stream_events = 2);
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    bench.input(Input::Closed { conn });
    for number in 1..=5 {
        bench.notify(session, Target::Call(call), &format!("n{number}")).expect("taken");
    }
    bench.result(session, call, "{}").expect("taken");
    let (_, answer) = bench.get(session, Some(&cursor(session, 2, 1)));
    assert!(answer.contains("Rejoin-Verdict: resync"), "{answer}");
    let body = &answer[answer.find("\r\n\r\n").expect("a head") + 4..];
    let first = body.find("event: resync").expect("a resync");
    assert!(!body[..first].contains("data:"), "{answer}");
    assert!(body.contains(&format!("id: {}", cursor(session, 2, 3))), "{answer}");
    assert!(body.contains(r#""lost":2"#) && body.contains(r#""reason":"evicted""#), "{answer}");
    assert!(body.contains("n4") && body.contains("n5") && body.contains(r#""result":{}"#), "{answer}");
}

#[test]
fn a_lost_result_is_an_outcome_unknown_at_its_own_position() {
    let mut bench = Bench::new(|config| config.limits.result_ttl = std::time::Duration::from_secs(1));
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    bench.input(Input::Closed { conn });
    bench.result(session, call, "{}").expect("taken");
    bench.wait(2_000);
    let (_, answer) = bench.get(session, Some(&cursor(session, 2, 1)));
    assert!(answer.contains("event: resync") && answer.contains("-32010"), "{answer}");
    assert!(
        answer.contains(&format!("id: {}\ndata: {{\"jsonrpc\":\"2.0\",\"id\":7,\"error\"", cursor(session, 2, 2))),
        "{answer}"
    );
    let (_, answer) = bench.get(session, Some(&cursor(session, 2, 2)));
    assert!(answer.starts_with("HTTP/1.1 204 "), "a client that has the result is never handed the error: {answer}");
}

#[test]
fn a_repost_joins_and_is_not_executed_again() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (first, call) = bench.call(session, CALL);
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    let (second, answer) = bench.ask(&post(&id(session), CALL));
    assert!(bench.deliveries.is_empty(), "executed again");
    assert!(answer.contains("n1"), "{answer}");
    bench.result(session, call, "{}").expect("taken");
    assert!(bench.got(first).contains("\"result\":{}") && bench.got(second).contains("\"result\":{}"));
    let (_, answer) = bench.ask(&post(&id(session), CALL));
    assert!(bench.deliveries.is_empty(), "executed again");
    assert!(answer.contains("n1") && answer.contains("\"result\":{}"), "{answer}");
}

#[test]
fn the_newest_get_takes_over_and_the_older_gets_a_clean_end() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (older, answer) = bench.get(session, None);
    assert!(answer.contains("Rejoin-Verdict: tail"), "{answer}");
    let (newer, _) = bench.get(session, None);
    assert!(bench.got(older).ends_with("0\r\n\r\n"), "{}", bench.got(older));
    bench.notify(session, Target::Standalone, "late").expect("taken");
    assert!(bench.got(newer).contains("late") && !bench.got(older).contains("late"));
}

#[test]
fn a_retry_without_end_is_doubled_and_spread_without_overflow() {
    let mut bench = Bench::new(|config| config.limits.retry = std::time::Duration::MAX);
    let session = bench.session("2025-11-25");
    for _ in 0..20 {
        let (_, answer) = bench.get(session, None);
        let retry = answer.split("retry: ").nth(1).and_then(|rest| rest.lines().next()).expect("a retry");
        assert!(retry.parse::<u64>().is_ok_and(|retry| retry > u64::MAX / 4), "{retry}");
    }
}

#[test]
fn what_was_said_before_the_client_listened_is_not_lost_and_not_said_twice() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    bench.notify(session, Target::Standalone, "early").expect("taken");
    let (conn, answer) = bench.get(session, None);
    assert!(answer.contains("early"), "{answer}");
    bench.input(Input::Closed { conn });
    let (_, answer) = bench.get(session, None);
    assert!(!answer.contains("early"), "{answer}");
}

#[test]
fn progress_carries_the_clients_own_token() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    let params = Some(Bytes::from(format!(r#"{{"progressToken":{},"progress":1}}"#, call.0)));
    bench
        .emit(session, Emission::Notification { to: Target::Call(call), method: "notifications/progress".into(), params })
        .expect("taken");
    assert!(bench.got(conn).contains(r#""progressToken":"mine""#), "{}", bench.got(conn));
}

#[test]
fn a_deleted_session_says_why_and_another_principals_says_nothing() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (_, answer) = bench.ask(&format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{}\r\n", id(session)));
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    let (_, answer) = bench.get(session, None);
    assert!(answer.starts_with("HTTP/1.1 404 ") && answer.contains(r#""reason":"deleted""#), "{answer}");
    let other = bench.session("2025-11-25");
    let (_, answer) = bench.ask(&post(&format!("{}Authorization: Bearer mallory\r\n", id(other)), CALL));
    assert!(answer.contains(r#""reason":"unknown""#), "{answer}");
}

#[test]
fn rotation_loses_what_was_pending_and_refuses_the_old_life() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    bench.input(Input::Command(Command::Rotate(session)));
    let answer = bench.got(conn);
    assert!(answer.contains("-32010") && answer.ends_with("0\r\n\r\n"), "{answer}");
    let (_, answer) = bench.get(session, Some(&cursor(session, 2, 1)));
    assert!(answer.contains(r#""reason":"incarnation""#), "{answer}");
    bench.deliveries.clear();
    let (_, answer) = bench.ask(&post(&id(session), CALL));
    assert!(answer.contains("-32010") && bench.deliveries.is_empty(), "{answer}");
}

#[test]
fn a_session_expires_only_when_nothing_holds_it() {
    let mut bench = Bench::new(|config| config.limits.session_ttl = std::time::Duration::from_secs(10));
    let session = bench.session("2025-11-25");
    let (conn, _) = bench.get(session, None);
    bench.wait(60_000);
    assert_eq!(bench.shard.sessions().count(), 1);
    bench.input(Input::Closed { conn });
    bench.wait(9_000);
    assert_eq!(bench.shard.sessions().count(), 1);
    bench.wait(1_100);
    assert_eq!(bench.shard.sessions().count(), 0);
    let (_, answer) = bench.get(session, None);
    assert!(answer.contains(r#""reason":"expired""#), "{answer}");
}

#[test]
fn a_slow_reader_is_told_of_the_gap() {
    let mut bench = Bench::new(|config| config.limits.stream_events = 2);
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    bench.stuck.push(conn);
    for number in 1..=6 {
        bench.notify(session, Target::Call(call), &format!("n{number}")).expect("taken");
    }
    bench.stuck.clear();
    for _ in 0..8 {
        bench.input(Input::Sent { conn, bytes: 1 << 20 });
    }
    let answer = bench.got(conn);
    assert!(answer.contains("event: resync") && answer.contains(r#""reason":"overrun""#), "{answer}");
    assert!(answer.contains("n6"), "{answer}");
}

#[test]
fn pipelined_requests_are_answered_in_order() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let conn = bench.open();
    let two = format!("{}{}", post(&id(session), CALL), "GET /elsewhere HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_eq!(bench.send(conn, &two), "");
    let Some((_, Delivery::Request { call, .. })) = bench.deliveries.pop() else { panic!("no request") };
    bench.result(session, call, "{}").expect("taken");
    let answer = bench.got(conn);
    let (first, second) = (answer.find("200 OK").expect("first"), answer.find("404 Not Found").expect("second"));
    assert!(first < second, "{answer}");
}

#[test]
fn a_drain_ends_streams_waits_for_calls_and_then_gives_up() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (standalone, _) = bench.get(session, None);
    let (conn, call) = bench.call(session, CALL);
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    let late = bench.open();
    let request = post(&id(session), &CALL.replace('7', "8"));
    bench.send(late, &request[..20]);
    bench.input(Input::Command(Command::Drain { deadline: Instant::from_millis(5_000) }));
    assert!(bench.got(standalone).ends_with("0\r\n\r\n"));
    let answer = bench.send(late, &request[20..]);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: "), "{answer}");
    assert!(!bench.got(conn).contains("-32010"));
    bench.wait(5_100);
    assert!(bench.got(conn).contains("-32010") && bench.got(conn).ends_with("0\r\n\r\n"), "{}", bench.got(conn));
}

#[test]
fn a_connection_too_many_is_told_so() {
    let mut bench = Bench::new(|config| config.limits.connections = 1);
    let first = bench.open();
    let second = bench.open();
    let answer = bench.got(second);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: "), "{answer}");
    assert_eq!((bench.closed[0], bench.closed[1]), (None, Some(Close::Clean)));
    bench.input(Input::Closed { conn: first });
    let third = bench.open();
    assert_eq!(bench.got(third), "");
}

#[test]
fn a_stream_to_an_http_1_0_client_ends_with_its_connection() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, answer) =
        bench.ask(&format!("GET /mcp HTTP/1.0\r\nConnection: keep-alive\r\nAccept: text/event-stream\r\n{}\r\n", id(session)));
    assert!(!answer.contains("Transfer-Encoding"), "{answer}");
    bench.input(Input::Command(Command::Close(session)));
    assert_eq!(bench.closed[conn.0 as usize], Some(Close::Clean));
}

#[test]
fn older_revisions_get_no_opening_event() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-06-18");
    let (conn, call) = bench.call(session, CALL);
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    let answer = bench.got(conn);
    assert!(!answer.contains("data:\n") && answer.contains("retry: "), "{answer}");
    let frame = format!("\nid: {}\ndata: ", cursor(session, 2, 1));
    assert!(answer.contains(&frame), "{answer}");
}

#[test]
fn a_batch_is_one_stream_that_ends_after_its_last_answer() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-03-26");
    let body = r#"[{"jsonrpc":"2.0","id":1,"method":"tools/list"},{"jsonrpc":"2.0","id":2,"method":"ping"}]"#;
    let (conn, answer) = bench.ask(&post(&id(session), body));
    assert_eq!(answer, "");
    let calls: Vec<_> = bench
        .deliveries
        .drain(..)
        .filter_map(|(_, delivery)| match delivery {
            Delivery::Request { call, .. } => Some(call),
            _ => None,
        })
        .collect();
    bench.result(session, calls[1], r#"{"b":2}"#).expect("taken");
    bench.result(session, calls[0], r#"{"a":1}"#).expect("taken");
    let answer = bench.got(conn);
    assert!(
        answer.ends_with(r#"[{"jsonrpc":"2.0","id":1,"result":{"a":1}},{"jsonrpc":"2.0","id":2,"result":{"b":2}}]"#),
        "{answer}"
    );
}

#[test]
fn a_revision_before_this_transport_is_named_in_its_own_sessions_only() {
    let mut bench = Bench::new(|_| {});
    let named = |session: SessionId, revision: &str| {
        format!(
            "GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\nMCP-Protocol-Version: {revision}\r\n{}\r\n",
            id(session)
        )
    };
    let (old, new) = (bench.session("2024-11-05"), bench.session("2025-11-25"));
    for revision in ["2024-11-05", "2025-03-26"] {
        let (_, answer) = bench.ask(&named(old, revision));
        assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
        assert!(!answer.contains("data:"), "no opening event, as 2025-03-26: {answer}");
    }
    let (_, answer) = bench.ask(&named(new, "2024-11-05"));
    assert!(answer.starts_with("HTTP/1.1 400 ") && answer.contains("unsupported_revision"), "{answer}");
    let call = CALL.replace("tools/call", "tools/list");
    let head = |session| format!("{}MCP-Protocol-Version: 2024-11-05\r\n", id(session));
    let (_, answer) = bench.ask(&post(&head(new), &call));
    assert!(answer.starts_with("HTTP/1.1 400 ") && bench.deliveries.is_empty(), "nothing was executed: {answer}");
    bench.ask(&post(&head(old), &call));
    assert!(matches!(bench.deliveries.pop(), Some((_, Delivery::Request { .. }))));
}

#[test]
fn an_initialize_that_its_handler_sheds_is_503_and_leaves_no_session() {
    let mut bench = Bench::new(|_| {});
    let (conn, _) = bench.ask(&post("", r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{}}"#));
    let Some((session, Delivery::Initialize { call, .. })) = bench.deliveries.pop() else { panic!("no initialize") };
    bench.emit(session, Emission::Shed { call, why: "No room" }).expect("taken");
    let answer = bench.got(conn);
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Rejoin-Verdict: shed\r\n"), "{answer}");
    assert!(answer.contains("Retry-After: 1\r\n") && answer.contains(r#""id":"init""#) && answer.contains("No room"), "{answer}");
    assert!(matches!(bench.deliveries.pop(), Some((_, Delivery::Closed { .. }))));
    assert_eq!(bench.emit(session, Emission::Shed { call, why: "No room" }), Err(NotTaken::SessionEnded));
}

#[test]
fn a_call_that_its_handler_sheds_gets_an_error_and_its_session_lives() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    bench.emit(session, Emission::Shed { call, why: "No room" }).expect("taken");
    let answer = bench.got(conn);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains(r#""code":"shed""#), "{answer}");
    bench.call(session, &CALL.replace(r#""id":7"#, r#""id":8"#));
}
