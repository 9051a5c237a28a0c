//! What only an embedder can set up: principals (row 2, row 6), a key kept over a restart (row 6), minted cursors (row 9), small bounds
//! (row 10 and every time-out), and a handler that asks its client, panics or never answers.

use std::thread::sleep;
use std::time::{Duration, Instant};

use pollster::block_on;
use rejoin::{Builder, Key, Limits, ResponsePolicy, SessionId};
use rejoin_proto::ids::{Cursor, Incarnation, Position, StreamNumber};
use rejoin_tests::check::{self, accepted, empty, expired, outcome_unknown, place, positions, refused, resync, stream_with};
use rejoin_tests::embedded::{Embedded, KEY, by_token};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::session::{
    NOVEMBER, Session, call, executions, initialize, messages_of, request, text_of, tick, ticks, ticks_in,
};
use rejoin_tests::wire::{Answer, Connection, Ended, Request, Stream, ask, open};
use serde_json::{Value, json};

on_every_server!(
    row_2_without_credentials_is_401_with_a_challenge,
    row_2_comes_after_the_origin_and_before_all_else,
    row_6_another_principals_session_looks_like_none,
    a_session_belongs_to_a_principal_and_not_to_a_token,
    row_6_a_session_of_an_earlier_process_is_restarted,
    row_6_a_session_closed_by_its_embedder_is_closed,
    row_9_a_cursor_beyond_the_last_event_ends_the_session,
    row_9_applies_to_running_calls_and_to_the_standalone_stream,
    row_10_a_stream_long_forgotten_is_404_and_the_session_lives,
    a_rotation_by_the_embedder_is_a_new_incarnation,
    sessions_are_listed,
    a_request_to_the_client_is_answered_by_a_post,
    a_request_to_the_client_waits_for_its_return,
    an_answered_request_is_left_out_for_a_repost,
    a_request_to_the_client_on_the_standalone_stream,
    a_request_to_the_client_has_a_maximum_age,
    one_request_more_to_the_client_fails_its_handler,
    policy_json_fails_requests_to_the_client,
    a_call_has_a_maximum_age,
    an_unconfirmed_session_has_a_short_life,
    a_panic_fails_its_call_and_nothing_else,
    a_head_or_body_that_does_not_come_is_408,
    an_idle_connection_is_closed_cleanly,
    past_the_bound_of_remembered_bodies_a_repost_is_told_and_not_executed,
    past_the_bound_of_text_ids_nothing_is_guessed,
    a_standalone_gap_is_followed_by_what_is_subscribed_to,
    a_result_lost_to_pressure_becomes_an_error,
);

fn anonymous(builder: Builder) -> Builder {
    builder.key(Key::new(KEY))
}

/// A server with the tests' key, these limits and a confirmed session.
fn started(on: Flavour, limit: impl FnOnce(&mut Limits)) -> (Embedded, Session) {
    let mut limits = Limits { retry: Duration::from_millis(200), ..Limits::default() };
    limit(&mut limits);
    let server = Embedded::start(on, |builder| anonymous(builder).limits(limits));
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

/// A cursor that the server would have given out, had it issued that event.
fn mint(session: &Session, incarnation: u32, stream: u32, position: u64) -> String {
    let key = Key::new(KEY);
    let id = SessionId::parse(session.id.as_bytes(), &key).expect("a session of the tests' key");
    Cursor::new(Incarnation(incarnation), StreamNumber(stream), Position::new(position)).encode(&key, &id).to_string()
}

fn tool(id: impl Into<Value>, name: &str) -> Value {
    call(id, name, json!({}))
}

const ALICE: (&str, &str) = ("Authorization", "Bearer alice-1");
const ALICE_AGAIN: (&str, &str) = ("Authorization", "Bearer alice-2");
const BOB: (&str, &str) = ("Authorization", "Bearer bob-1");

fn two_principals(on: Flavour) -> (Embedded, Session) {
    let server = Embedded::start(on, |builder| anonymous(builder).authorize(by_token));
    let session = Session::begin_with(server.address, NOVEMBER, &[ALICE]);
    (server, session)
}

fn challenged(answer: &Answer) {
    refused(answer, 401, "unauthorized");
    assert_eq!(answer.head.field("WWW-Authenticate"), Some("Bearer realm=\"tests\""), "{}", answer.head);
}

fn row_2_without_credentials_is_401_with_a_challenge(on: Flavour) {
    let (server, session) = two_principals(on);
    let nobody = session.seen_by(&[]);
    challenged(&ask(server.address, &nobody.get()));
    challenged(&ask(server.address, &nobody.post(&tool(1, "ticker"))));
    challenged(&ask(server.address, &Request::post(server.address, &initialize(1, NOVEMBER))));
    challenged(&ask(server.address, &session.seen_by(&[("Authorization", "Basic YTpi")]).get()));
    open(server.address, &session.get());
}

fn row_2_comes_after_the_origin_and_before_all_else(on: Flavour) {
    let (server, _session) = two_principals(on);
    let wrong = Request::get(server.address).set("Accept", "text/html").with("Origin", "http://evil.example.com");
    refused(&ask(server.address, &wrong), 403, "forbidden");
    let wrong = wrong.without("Origin");
    challenged(&ask(server.address, &wrong));
    refused(&ask(server.address, &wrong.with(ALICE.0, ALICE.1)), 406, "not_acceptable");
    // Of a body nothing is looked at.
    let post = Request::post_bytes(server.address, "{").set("Content-Type", "text/plain");
    challenged(&ask(server.address, &post));
}

fn row_6_another_principals_session_looks_like_none(on: Flavour) {
    let (server, session) = two_principals(on);
    let blocks = session.call(&call(1, "ticker", ticks(2, 0))).rest();
    let bobs = session.seen_by(&[BOB]);
    let never = Session { id: "A".repeat(session.id.len()), ..bobs.clone() };
    let same = |alices: &Request, nobodys: &Request| {
        let (alices, nobodys) = (ask(server.address, alices), ask(server.address, nobodys));
        expired(&alices, "unknown");
        assert_eq!((alices.head, alices.body), (nobodys.head, nobodys.body), "the answer tells that there is such a session");
    };
    same(&bobs.get(), &never.get());
    same(&bobs.get_after(blocks[1].cursor()), &never.get_after(blocks[1].cursor()));
    same(&bobs.get_after("garbage"), &never.get_after("garbage"));
    same(&bobs.post(&call(2, "ticker", ticks(1, 0))), &never.post(&call(2, "ticker", ticks(1, 0))));
    let (theirs, nobodys) = (ask(server.address, &bobs.delete()), ask(server.address, &never.delete()));
    assert_eq!((theirs.head, theirs.body), (nobodys.head, nobodys.body));
    assert_eq!(ticks_in(&session.resume(blocks[0].cursor()).rest()), [1, 2]);
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    expired(&ask(server.address, &session.get()), "deleted");
    same(&bobs.get(), &never.get());
}

fn a_session_belongs_to_a_principal_and_not_to_a_token(on: Flavour) {
    let (server, session) = two_principals(on);
    let mut stream = session.call(&call(1, "ticker", ticks(5, 30)));
    let first = stream.until(|block| tick(block) == Some(1)).pop().expect("a tick");
    stream.reset();
    let refreshed = session.seen_by(&[ALICE_AGAIN]);
    assert_eq!(ticks_in(&refreshed.resume(first.cursor()).rest()), [2, 3, 4, 5]);
    assert_eq!(executions(&refreshed.result(&call(2, "ticker", ticks(1, 0)))), 1);
    assert_eq!(ask(server.address, &refreshed.delete()).status(), 204);
}

fn row_6_a_session_of_an_earlier_process_is_restarted(on: Flavour) {
    let before = Embedded::start(on, anonymous);
    let old = Session::begin(before.address, NOVEMBER);
    let cursor = old.call(&call(1, "ticker", ticks(1, 0))).rest()[0].cursor().to_owned();
    drop(before);
    let after = Embedded::start(on, anonymous);
    let old = Session { address: after.address, ..old };
    expired(&ask(after.address, &old.get()), "restarted");
    expired(&ask(after.address, &old.get_after(&cursor)), "restarted");
    expired(&ask(after.address, &old.post(&tool(1, "ticker"))), "restarted");
    let other_key = Embedded::start(on, |builder| builder);
    let stranger = Session { address: other_key.address, ..old };
    expired(&ask(other_key.address, &stranger.get()), "unknown");
}

fn row_6_a_session_closed_by_its_embedder_is_closed(on: Flavour) {
    let (server, session) = started(on, |_| ());
    let mut running = session.call(&tool(1, "hold"));
    let mut listening = session.listen();
    let first = running.event();
    listening.event();
    let id = SessionId::parse(session.id.as_bytes(), &Key::new(KEY)).expect("a session of the tests' key");
    block_on(server.handle.close(id)).expect("a live session can be closed");
    running.rest();
    listening.rest();
    expired(&ask(server.address, &session.get()), "closed");
    expired(&ask(server.address, &session.get_after(first.cursor())), "closed");
    expired(&session.tell(&tool(2, "ticker")), "closed");
    assert!(server.told.lines().contains(&"closed closed".to_owned()), "{:?}", server.told.lines());
    assert!(block_on(server.handle.close(id)).is_err(), "it is closed once");
}

fn row_9_a_cursor_beyond_the_last_event_ends_the_session(on: Flavour) {
    for beyond in [1, 2, 1_000, u64::MAX >> 1] {
        let (server, session) = started(on, |_| ());
        let blocks = session.call(&call(1, "ticker", ticks(3, 0))).rest();
        let (incarnation, stream, last) = place(blocks[blocks.len() - 1].cursor());
        let exact = mint(&session, incarnation as u32, stream as u32, last);
        empty(&ask(server.address, &session.get_after(&exact)), 204, "complete");
        let past = mint(&session, incarnation as u32, stream as u32, last + beyond);
        expired(&ask(server.address, &session.get_after(&past)), "lineage");
        expired(&ask(server.address, &session.get_after(&exact)), "lineage");
        expired(&ask(server.address, &session.get()), "lineage");
        expired(&session.tell(&tool(2, "ticker")), "lineage");
        assert!(server.told.lines().contains(&"closed lineage".to_owned()), "{:?}", server.told.lines());
    }
}

fn row_9_applies_to_running_calls_and_to_the_standalone_stream(on: Flavour) {
    let (server, session) = started(on, |_| ());
    let mut running = session.call(&tool(1, "hold"));
    running.until(|block| block.is_message());
    expired(&ask(server.address, &session.get_after(&mint(&session, 1, 1, 2))), "lineage");
    running.rest();
    let (server, session) = started(on, |_| ());
    let mut listening = session.listen();
    listening.event();
    expired(&ask(server.address, &session.get_after(&mint(&session, 1, 0, 1))), "lineage");
    listening.rest();
    // A stream that was never opened has no last event either.
    let (server, session) = started(on, |_| ());
    expired(&ask(server.address, &session.get_after(&mint(&session, 1, 99, 1))), "lineage");
}

fn row_10_a_stream_long_forgotten_is_404_and_the_session_lives(on: Flavour) {
    let (server, session) = started(on, |limits| limits.finished_streams = 4);
    let first: Vec<String> =
        (0..10).map(|id| session.call(&call(id, "ticker", ticks(1, 0))).rest()[0].cursor().to_owned()).collect();
    let answer = ask(server.address, &session.get_after(&first[0]));
    expired(&answer, "forgotten");
    assert_eq!(answer.json()["error"]["data"]["action"], "verify");
    assert_eq!(ticks_in(&session.resume(&first[9]).rest()), [1]);
    assert_eq!(executions(&session.result(&call(100, "ticker", ticks(1, 0)))), 1);
}

fn a_rotation_by_the_embedder_is_a_new_incarnation(on: Flavour) {
    let (server, session) = started(on, |_| ());
    let mut running = session.call(&tool("held", "hold"));
    let first = running.event();
    let id = SessionId::parse(session.id.as_bytes(), &Key::new(KEY)).expect("a session of the tests' key");
    block_on(server.handle.rotate(id)).expect("a live session can be rotated");
    let rest = running.rest();
    outcome_unknown(rest.iter().rev().find(|block| block.is_message()).expect("an error"), "held");
    expired(&ask(server.address, &session.get_after(first.cursor())), "incarnation");
    assert_eq!(place(session.listen().event().cursor()).0, 2);
}

fn sessions_are_listed(on: Flavour) {
    let (server, session) = started(on, |_| ());
    let others: Vec<Session> = (0..3).map(|_| Session::begin(server.address, NOVEMBER)).collect();
    assert_eq!(block_on(server.handle.sessions()).len(), 4);
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    assert_eq!(block_on(server.handle.sessions()).len(), 3);
    drop(others);
}

/// The server's request on a stream, and the blocks before it.
fn asked(stream: &mut Stream) -> Value {
    let blocks =
        stream.until(|block| block.is_message() && block.json().get("method").is_some() && block.json().get("id").is_some());
    blocks[blocks.len() - 1].json()
}

fn answer_to(request: &Value, result: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": request["id"], "result": result})
}

fn a_request_to_the_client_is_answered_by_a_post(on: Flavour) {
    let (_server, session) = started(on, |_| ());
    let mut stream = session.call(&tool(1, "ask"));
    let request = asked(&mut stream);
    assert_eq!(request["method"], "sampling/createMessage");
    accepted(&session.tell(&answer_to(&request, json!({"say": "hello"}))));
    let rest = stream.rest();
    assert!(text_of(&rest[rest.len() - 1].json()["result"]).contains("hello"), "{rest:?}");
    // Answered twice: accepted, and to no effect.
    accepted(&session.tell(&answer_to(&request, json!({"say": "again"}))));
    let mut stream = session.call(&tool(2, "ask"));
    let request = asked(&mut stream);
    let error = json!({"jsonrpc": "2.0", "id": request["id"], "error": {"code": -1, "message": "declined"}});
    accepted(&session.tell(&error));
    let rest = stream.rest();
    assert!(text_of(&rest[rest.len() - 1].json()["result"]).contains("declined"), "{rest:?}");
}

fn a_request_to_the_client_waits_for_its_return(on: Flavour) {
    let (_server, session) = started(on, |limits| limits.stream_events = 5);
    let mut stream = session.call(&tool(1, "ask"));
    let opening = stream.event();
    stream.reset();
    sleep(Duration::from_millis(200));
    let mut back = session.resume(opening.cursor());
    let request = asked(&mut back);
    accepted(&session.tell(&answer_to(&request, json!({"say": "late"}))));
    let rest = back.rest();
    assert!(text_of(&rest[rest.len() - 1].json()["result"]).contains("late"), "{rest:?}");
}

fn an_answered_request_is_left_out_for_a_repost(on: Flavour) {
    let (_server, session) = started(on, |_| ());
    let ask_it = tool(1, "ask");
    let mut stream = session.call(&ask_it);
    let request = asked(&mut stream);
    accepted(&session.tell(&answer_to(&request, json!({"say": "once"}))));
    let result = stream.rest().pop().expect("a result").json();
    let messages = messages_of(&session.tell(&ask_it));
    assert_eq!(messages, [result], "the request was answered and is not asked again");
}

fn a_request_to_the_client_on_the_standalone_stream(on: Flavour) {
    let (_server, session) = started(on, |_| ());
    let mut waiting = session.call(&tool(1, "ask_aside"));
    waiting.event();
    // Said before anyone listened, and told to whoever listens next.
    let mut listening = session.listen();
    let request = asked(&mut listening);
    assert_eq!(request["method"], "roots/list");
    accepted(&session.tell(&answer_to(&request, json!({"roots": ["here"]}))));
    let rest = waiting.rest();
    assert!(text_of(&rest[rest.len() - 1].json()["result"]).contains("here"), "{rest:?}");
}

fn a_request_to_the_client_has_a_maximum_age(on: Flavour) {
    let (_server, session) = started(on, |limits| limits.client_request_max_age = Duration::from_millis(300));
    let mut stream = session.call(&tool(1, "ask"));
    let request = asked(&mut stream);
    let rest = stream.rest();
    let cancelled = rest.iter().filter(|block| block.is_message()).map(|block| block.json());
    let cancelled = cancelled.clone().find(|message| message["method"] == "notifications/cancelled");
    assert_eq!(cancelled.expect("the client is told")["params"]["requestId"], request["id"]);
    assert!(text_of(&rest[rest.len() - 1].json()["result"]).contains("no answer"), "{rest:?}");
    accepted(&session.tell(&answer_to(&request, json!({"too": "late"}))));
}

fn one_request_more_to_the_client_fails_its_handler(on: Flavour) {
    let (_server, session) = started(on, |limits| limits.client_requests = 2);
    let mut waiting: Vec<Stream> = (0..2).map(|id| session.call(&tool(id, "ask"))).collect();
    let requests: Vec<Value> = waiting.iter_mut().map(asked).collect();
    assert!(text_of(&session.result(&tool(3, "ask"))).contains("no answer"));
    accepted(&session.tell(&answer_to(&requests[0], json!({"say": "room"}))));
    waiting[0].rest();
    let mut third = session.call(&tool(4, "ask"));
    asked(&mut third);
}

fn policy_json_fails_requests_to_the_client(on: Flavour) {
    let server = Embedded::start(on, |builder| anonymous(builder).response(ResponsePolicy::Json));
    let session = Session::begin(server.address, NOVEMBER);
    assert!(text_of(&session.tell(&tool(1, "ask")).json()["result"]).contains("no answer"));
}

fn a_call_has_a_maximum_age(on: Flavour) {
    let (server, session) = started(on, |limits| limits.call_max_age = Duration::from_millis(500));
    let held = tool(1, "hold");
    let before = Instant::now();
    let rest = session.call(&held).rest();
    assert!((400..3_000).contains(&before.elapsed().as_millis()), "{:?}", before.elapsed());
    outcome_unknown(&rest[rest.len() - 1], 1);
    assert!(server.told.lines().iter().any(|line| line.contains("Age")), "{:?}", server.told.lines());
    let messages = messages_of(&session.tell(&held));
    check::error(&messages[messages.len() - 1]["error"], "outcome_unknown");
}

fn an_unconfirmed_session_has_a_short_life(on: Flavour) {
    let limits = Limits { unconfirmed_ttl: Duration::from_millis(500), ..Limits::default() };
    let server = Embedded::start(on, |builder| anonymous(builder).limits(limits));
    let scanned = Session::unconfirmed(server.address, NOVEMBER, &[]);
    let confirmed = Session::begin(server.address, NOVEMBER);
    sleep(Duration::from_millis(1_500));
    expired(&ask(server.address, &scanned.get()), "expired");
    open(server.address, &confirmed.get());
}

fn a_panic_fails_its_call_and_nothing_else(on: Flavour) {
    let (_server, session) = started(on, |_| ());
    let mut running = session.call(&call(1, "ticker", ticks(20, 20)));
    running.event();
    for id in 2..5 {
        let messages = messages_of(&session.tell(&tool(id, "panic")));
        assert_eq!(messages[messages.len() - 1]["error"]["code"], -32603, "{messages:?}");
    }
    assert_eq!(ticks_in(&running.rest()), (1..=20).collect::<Vec<_>>());
}

fn a_head_or_body_that_does_not_come_is_408(on: Flavour) {
    let (server, session) = started(on, |limits| {
        limits.head_timeout = Duration::from_millis(400);
        limits.body_timeout = Duration::from_millis(700);
    });
    let timed_out = |bytes: &[u8], least: u128| {
        let mut slow = Connection::open(server.address);
        slow.write(bytes);
        let before = Instant::now();
        let answer = slow.answer();
        assert!(before.elapsed().as_millis() >= least, "{:?}", before.elapsed());
        assert_eq!(answer.status(), 408, "{}", answer.head);
        assert_eq!(answer.json()["error"]["data"]["code"], "timeout");
        assert_eq!(slow.ended(), Ended::Fin);
    };
    timed_out(b"GET /mcp HTTP/1.1\r\nHost", 350);
    let bytes = session.post(&call(1, "ticker", ticks(1, 0))).bytes();
    timed_out(&bytes[..bytes.len() - 5], 650);
    // Bytes that trickle in do not move the deadline.
    let mut trickle = Connection::open(server.address);
    for byte in b"GET /mcp HTTP/1.1" {
        if !trickle.try_write(&[*byte]) {
            break;
        }
        sleep(Duration::from_millis(50));
    }
    assert_eq!(trickle.answer().status(), 408);
}

fn an_idle_connection_is_closed_cleanly(on: Flavour) {
    let (server, session) = started(on, |limits| limits.idle_timeout = Duration::from_millis(400));
    let mut connection = Connection::open(server.address);
    assert_eq!(executions_of(&mut connection, &session, 1), 1);
    assert_eq!(connection.ended_within(Duration::from_millis(200)), None);
    assert_eq!(connection.ended(), Ended::Fin);
    // A stream is not idle, however silent it is.
    let mut listening = session.listen();
    listening.event();
    listening.stays_silent(Duration::from_millis(900));
}

fn executions_of(connection: &mut Connection, session: &Session, id: u64) -> u64 {
    let answer = connection.ask(&session.post(&call(id, "ticker", ticks(1, 0))));
    executions(&rejoin_tests::session::result_of(&answer, &json!(id)))
}

fn past_the_bound_of_remembered_bodies_a_repost_is_told_and_not_executed(on: Flavour) {
    let (_server, session) = started(on, |limits| limits.call_records = 2);
    let calls: Vec<Value> = (1..=6).map(|id| call(id, "ticker", ticks(1, 0))).collect();
    for asked in &calls {
        assert_eq!(executions(&session.result(asked)), 1);
    }
    let mut unknown = 0;
    for asked in &calls {
        let messages = messages_of(&session.tell(asked));
        let last = &messages[messages.len() - 1];
        if last.get("error").is_some() {
            check::error(&last["error"], "outcome_unknown");
            unknown += 1;
        } else {
            assert_eq!(executions(&last["result"]), 1, "a repost was executed");
        }
    }
    assert_eq!(unknown, 4, "two bodies are remembered");
}

fn past_the_bound_of_text_ids_nothing_is_guessed(on: Flavour) {
    let (_server, session) = started(on, |limits| limits.seen_ids = 4);
    let calls: Vec<Value> = (1..=8).map(|id| call(format!("id {id}"), "ticker", ticks(1, 0))).collect();
    for asked in &calls {
        assert_eq!(executions(&session.result(asked)), 1);
    }
    assert_eq!(executions(&session.result(&calls[7])), 2, "the session is treated as one that reuses ids");
}

fn a_standalone_gap_is_followed_by_what_is_subscribed_to(on: Flavour) {
    let (_server, session) = started(on, |limits| limits.stream_events = 3);
    for (id, method, uri) in [
        (1, "resources/subscribe", "test://kept"),
        (2, "resources/subscribe", "test://dropped"),
        (3, "resources/unsubscribe", "test://dropped"),
    ] {
        session.result(&request(id, method, json!({"uri": uri})));
    }
    session.result(&call(4, "broadcast", json!({"count": 10})));
    let mut stream = session.listen();
    stream_with(&stream, "resync");
    resync(&stream.event());
    let blocks = stream.until(|block| block.id.is_some());
    let mut said: Vec<Value> = blocks[..blocks.len() - 1]
        .iter()
        .map(|block| {
            let message = block.json();
            json!([message["method"], message["params"]["uri"]])
        })
        .collect();
    said.sort_by_key(Value::to_string);
    let expected = json!([
        ["notifications/prompts/list_changed", null],
        ["notifications/resources/list_changed", null],
        ["notifications/resources/updated", "test://kept"],
        ["notifications/tools/list_changed", null],
    ]);
    assert_eq!(Value::Array(said), expected);
    positions(&stream.take(2));
}

fn a_result_lost_to_pressure_becomes_an_error(on: Flavour) {
    let (_server, session) = started(on, |limits| {
        // Shared by the shards; a quarter of it is for pinned results.
        limits.log_bytes = (256 << 10) * usize::from(on.shards);
        limits.message_bytes = 16 << 10;
    });
    let asked = call("first", "ticker", ticks(1, 0));
    let first = session.call(&asked).rest();
    // When the share is full, the oldest of the largest holder go first.
    for id in 0..400 {
        session.result(&call(id, "ticker", ticks(1, 0)));
    }
    let blocks = session.resume(first[0].cursor()).rest();
    outcome_unknown(&blocks[blocks.len() - 1], "first");
    assert_eq!(blocks[blocks.len() - 1].id, first[2].id, "at the result's own position");
    assert!(blocks[blocks.len() - 2].is_resync(), "{blocks:?}");
    let messages = messages_of(&session.tell(&asked));
    check::error(&messages[messages.len() - 1]["error"], "outcome_unknown");
}
