//! `rejoin serve -- COMMAND`: a stdio server behind the boundary, and what its misbehaviour does to others (nothing).
//!
//! The child is `children/server.py`, whose every tool is one way to behave.

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use rejoin_tests::check::{expired, outcome_unknown, refused, soon};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::{Rejoin, command};
use rejoin_tests::session::{
    JUNE, NOVEMBER, Session, call, call_with_token, initialize, messages_of, notification, request, text_of,
};
use rejoin_tests::wire::{PATIENCE, Request, ask};
use rustix::process::Signal;
use serde_json::{Value, json};

on_every_server!(
    calls_of_two_sessions_with_one_id_and_one_token_do_not_cross,
    a_child_killed_in_a_call_leaves_its_outcome_unknown_and_ends_its_session,
    a_hundred_sessions_leave_neither_process_nor_descriptor,
);

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/children/server.py");

/// A server with these options, whose children have these variables.
fn start_on(on: Flavour, options: &[&str], environment: &[&str]) -> Rejoin {
    let child = ["--", "env"].iter().chain(environment).copied().chain(["python3", SERVER]);
    Rejoin::start(on, &options.iter().copied().chain(child).collect::<Vec<_>>())
}

fn start(options: &[&str], environment: &[&str]) -> Rejoin {
    start_on(Flavour::PLAIN, options, environment)
}

fn session(server: &Rejoin) -> Session {
    Session::begin(server.address, NOVEMBER)
}

/// What a tool says.
fn said(session: &Session, tool: &str, arguments: Value) -> String {
    text_of(&session.result(&call(tool, tool, arguments))).to_owned()
}

fn said_json(session: &Session, tool: &str) -> Value {
    serde_json::from_str(&said(session, tool, json!({}))).expect("the tool says JSON")
}

/// The child of a session.
fn child(session: &Session) -> u32 {
    u32::try_from(said_json(session, "facts")["pid"].as_u64().expect("a number")).expect("a process id")
}

/// Whether a process runs, zombies excepted.
fn runs(process: u32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{process}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with('Z'))
}

// ---- what a session is ----

fn calls_of_two_sessions_with_one_id_and_one_token_do_not_cross(on: Flavour) {
    let server = start_on(on, &[], &[]);
    let sessions = [session(&server), session(&server)];
    thread::scope(|scope| {
        for at in 0..6 {
            let session = &sessions[at % 2];
            scope.spawn(move || {
                let text = format!("call {at}");
                let message = call_with_token(1, "token", "echo", json!({"text": text, "steps": 10, "wait": 0.2}));
                let messages = messages_of(&session.tell(&message));
                assert_eq!(messages.len(), 11, "{messages:?}");
                for (step, message) in messages[..10].iter().enumerate() {
                    let expected = json!({"progressToken": "token", "progress": step, "message": text});
                    assert_eq!((&message["method"], &message["params"]), (&json!("notifications/progress"), &expected));
                }
                assert_eq!((&messages[10]["id"], text_of(&messages[10]["result"])), (&json!(1), &*text));
            });
        }
    });
    assert_ne!(child(&sessions[0]), child(&sessions[1]), "a child each");
}

#[test]
fn what_client_and_child_ask_each_other_keeps_each_sides_ids() {
    let server = start(&[], &[]);
    let session = session(&server);
    for id in [json!("their id"), json!(0), json!(1)] {
        let mut stream = session.call(&call(1, "sample", json!({"id": id})));
        let asked = stream.until(|block| block.is_message()).pop().expect("a request").json();
        assert_eq!(
            (&asked["method"], &asked["params"]),
            (&json!("sampling/createMessage"), &json!({"messages": [], "maxTokens": 1}))
        );
        assert!(asked["id"].is_u64(), "an id of ours: {asked}");
        let answer = session.tell(&json!({"jsonrpc": "2.0", "id": asked["id"], "result": {"model": "m"}}));
        assert_eq!(answer.status(), 202);
        let blocks = stream.rest();
        let result = blocks.last().expect("a result").json();
        assert_eq!((&result["id"], text_of(&result["result"])), (&json!(1), r#"{"result": {"model": "m"}}"#));
    }
    let mut stream = session.call(&call(2, "sample", json!({"id": 7})));
    let asked = stream.until(|block| block.is_message()).pop().expect("a request").json();
    session.tell(&json!({"jsonrpc": "2.0", "id": asked["id"], "error": {"code": -1, "message": "no", "data": [1]}}));
    let blocks = stream.rest();
    let refused = text_of(&blocks.last().expect("a result").json()["result"]).to_owned();
    let refused: Value = serde_json::from_str(&refused).expect("JSON");
    assert_eq!(refused["error"], json!({"code": -1, "message": "no", "data": [1]}));
}

#[test]
fn a_child_may_withdraw_its_request() {
    let server = start(&[], &[]);
    let session = session(&server);
    let messages = messages_of(&session.tell(&call(1, "withdraw", json!({}))));
    let asked = messages.iter().find(|message| message["method"] == "elicitation/create").expect("a request");
    let mut told = messages.clone();
    if !messages.iter().any(|message| message["method"] == "notifications/cancelled") {
        // The call was over first: its cancellation stands on the standalone stream.
        told = vec![session.listen().until(|block| block.is_message()).pop().expect("a message").json()];
    }
    let cancelled = told.iter().find(|message| message["method"] == "notifications/cancelled").expect("a cancellation");
    assert_eq!(cancelled["params"]["requestId"], asked["id"]);
}

#[test]
fn a_cancellation_names_the_call_as_the_child_knows_it() {
    let server = start(&[], &[]);
    let session = session(&server);
    let stream = session.call(&call_with_token("mine", "t", "echo", json!({"text": "x", "steps": 1, "wait": 30})));
    let mut stream = stream;
    stream.until(|block| block.is_message());
    session.tell(&notification("notifications/cancelled", json!({"requestId": "mine"})));
    stream.rest();
    soon("the child is told", || said_json(&session, "heard")["cancelled"][0].is_u64());
    assert_eq!(said_json(&session, "heard")["notifications"], json!(["notifications/initialized"]));
}

#[test]
fn what_the_child_refuses_is_the_clients_answer() {
    let server = start(&[], &[]);
    let answer = session(&server).tell(&request(5, "no/such", json!({"a": [1, {"b": "c"}]}))).json();
    assert_eq!(answer, json!({"jsonrpc": "2.0", "id": 5, "error": {"code": -32601, "message": "unknown"}}));
}

#[test]
fn a_child_of_the_first_revision_has_its_name_accepted_in_its_session_only() {
    let old = "2024-11-05";
    let server = start(&[], &["REVISION=2024-11-05"]);
    let session = Session::begin(server.address, old);
    assert_eq!(said(&session, "echo", json!({"text": "hello"})), "hello");
    session.listen();
    let other = start(&[], &[]);
    let session = Session::begin(other.address, JUNE);
    refused(&ask(other.address, &session.get().set("MCP-Protocol-Version", old)), 400, "unsupported_revision");
}

// ---- how a child lives and dies ----

#[test]
fn a_child_has_its_pipes_its_environment_and_a_group_of_its_own() {
    let server = start(&[], &["GATEWAY_TEST=given"]);
    let session = session(&server);
    let found = said_json(&session, "descriptors");
    let numbers: Vec<_> = found.as_object().expect("an object").keys().collect();
    assert_eq!(numbers, ["0", "1", "2"], "{found}");
    let facts = said_json(&session, "facts");
    assert_eq!((&facts["env"], &facts["group"]), (&json!("given"), &facts["pid"]));
}

fn a_child_killed_in_a_call_leaves_its_outcome_unknown_and_ends_its_session(on: Flavour) {
    let server = start_on(on, &[], &[]);
    let (session, other) = (session(&server), session(&server));
    let mut stream = session.call(&call(1, "flood", json!({"count": 3})));
    stream.rest();
    let mut stream = session.call(&call_with_token("lost", "t", "echo", json!({"text": "x", "steps": 1, "wait": 30})));
    stream.until(|block| block.is_message());
    assert_eq!(said(&other, "echo", json!({"text": "alive"})), "alive");
    let died = ask(server.address, &session.post(&call("dies", "die", json!({}))));
    outcome_unknown_answer(&messages_of(&died), "dies");
    let blocks = stream.rest();
    outcome_unknown(blocks.last().expect("an answer"), json!("lost"));
    expired(&session.tell(&request(3, "ping", json!({}))), "closed");
    assert_eq!(said(&other, "echo", json!({"text": "alive"})), "alive");
}

fn outcome_unknown_answer(messages: &[Value], id: &str) {
    let answer = messages.last().expect("an answer");
    assert_eq!((&answer["id"], &answer["error"]["code"]), (&json!(id), &json!(-32010)), "{answer}");
}

#[test]
fn what_a_child_says_before_it_exits_still_counts() {
    let server = start(&[], &[]);
    let session = session(&server);
    assert_eq!(said(&session, "last_words", json!({})), "farewell");
    soon("the session ends", || session.tell(&request(3, "ping", json!({}))).status() == 404);
    expired(&session.tell(&request(3, "ping", json!({}))), "closed");
}

#[test]
fn all_that_a_child_started_ends_with_its_session() {
    let server = start(&[], &[]);
    let (gentle, stubborn) = (session(&server), session(&server));
    let processes = [
        child(&gentle),
        said(&gentle, "grandchild", json!({})).parse().expect("a process id"),
        said(&stubborn, "stubborn", json!({})).parse().expect("a process id"),
        said(&stubborn, "grandchild", json!({})).parse().expect("a process id"),
    ];
    assert!(processes.iter().all(|&process| runs(process)));
    for session in [&gentle, &stubborn] {
        assert_eq!(ask(server.address, &session.delete()).status(), 204);
    }
    soon("the gentle one and its own are gone", || !processes[..2].iter().any(|&process| runs(process)));
    soon("the stubborn one and its own are killed", || !processes.iter().any(|&process| runs(process)));
    soon("nothing is left to be reaped", || server.children().is_empty());
}

fn a_hundred_sessions_leave_neither_process_nor_descriptor(on: Flavour) {
    // Quick to start; our first message to a child has the id 0.
    let result = r#"{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"t","version":"1"}}"#;
    let child = format!(r#"read -r line; echo '{{"jsonrpc":"2.0","id":0,"result":{result}}}'; cat > /dev/null"#);
    let server = Rejoin::start(on, &["--max-children", "16", "--", "sh", "-c", &child]);
    ask(server.address, &session(&server).delete());
    soon("the first child is gone", || server.children().is_empty());
    let before = server.descriptors();
    thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for _ in 0..25 {
                    // A place is free again when its child is reaped, a little after the session's end.
                    let mut answer = ask(server.address, &Request::post(server.address, &initialize(1, NOVEMBER)));
                    while answer.status() == 503 {
                        thread::sleep(Duration::from_millis(50));
                        answer = ask(server.address, &Request::post(server.address, &initialize(1, NOVEMBER)));
                    }
                    let id = answer.head.field("Mcp-Session-Id").expect("a session").to_owned();
                    let delete = Request::new("DELETE", server.address).with("Mcp-Session-Id", &id);
                    assert_eq!(ask(server.address, &delete).status(), 204);
                }
            });
        }
    });
    soon("no child is left", || server.children().is_empty());
    soon("no descriptor is left", || server.descriptors() <= before);
}

#[test]
fn one_child_too_many_is_503_and_a_place_becomes_free() {
    let server = start(&["--max-children", "2"], &[]);
    let (first, second) = (session(&server), session(&server));
    let too_many = Request::post(server.address, &initialize(1, NOVEMBER));
    for _ in 0..5 {
        refused(&ask(server.address, &too_many), 503, "shed");
    }
    assert_eq!(server.children().len(), 2);
    ask(server.address, &first.delete());
    soon("a place is free", || ask(server.address, &too_many).status() == 200);
    assert_eq!(said(&second, "echo", json!({"text": "untouched"})), "untouched");
}

#[test]
fn a_session_that_expires_ends_its_child() {
    let server = start(&["--session-ttl", "300ms"], &[]);
    Session::unconfirmed(server.address, NOVEMBER, &[]);
    assert_eq!(server.children().len(), 1);
    soon("its child is gone", || server.children().is_empty());
}

#[test]
fn a_start_that_fails_is_an_error_and_leaves_nothing() {
    let begin = |server: &Rejoin| ask(server.address, &Request::post(server.address, &initialize(1, NOVEMBER)));
    for (environment, options, code) in [
        ("START_DIE=1", &[][..], -32603),
        ("DEAF=1", &["--child-start-timeout", "300ms"], -32603),
        ("START_ERROR=1", &[], -32602),
        ("REVISION=1999-01-01", &[], -32603),
    ] {
        let server = start(options, &[environment]);
        let answer = begin(&server);
        assert_eq!((answer.status(), answer.head.field("Mcp-Session-Id")), (200, None), "{environment}");
        assert_eq!(answer.json()["error"]["code"], code, "{environment}: {}", answer.json());
        soon("its child is gone", || server.children().is_empty());
    }
    let server = Rejoin::start(Flavour::PLAIN, &["--", "/no/such/program"]);
    assert_eq!(begin(&server).json()["error"]["code"], -32603);
}

#[test]
fn the_end_of_the_server_ends_every_child() {
    for second in [false, true] {
        let mut server = start(&["--drain", if second { "1h" } else { "100ms" }], &[]);
        let (gentle, stubborn) = (session(&server), session(&server));
        let processes = [child(&gentle), said(&stubborn, "stubborn", json!({})).parse().expect("a process id")];
        let _call = gentle.call(&call_with_token(1, 1, "echo", json!({"text": "x", "steps": 1, "wait": 30})));
        server.terminate();
        if second {
            thread::sleep(Duration::from_millis(200));
            server.signal(Signal::TERM);
        }
        let status = server.exit_within(PATIENCE).expect("it ends");
        assert_eq!(status.success(), !second);
        soon("its children are gone", || !processes.iter().any(|&process| runs(process)));
    }
}

// ---- how a child misbehaves ----

#[test]
fn lines_that_are_no_messages_are_counted_and_nothing_else() {
    let server = start(&[], &[]);
    let session = session(&server);
    let messages = messages_of(&session.tell(&call(1, "garbage", json!({}))));
    assert_eq!(messages.len(), 1, "{messages:?}");
    assert_eq!(text_of(&messages[0]["result"]), "still here");
    // The first, second, fourth and eighth of eight.
    soon("they are logged", || server.log().matches("is no message").count() == 4);
}

#[test]
fn a_line_too_long_is_left_out_and_the_call_that_it_answers_fails() {
    let server = start(&[], &[]);
    let session = session(&server);
    let bytes = 5 << 20;
    assert_eq!(said(&session, "overlong", json!({"bytes": bytes})), "still here");
    let answer = messages_of(&session.tell(&call(2, "overlong", json!({"bytes": bytes, "answer": true}))));
    assert_eq!((answer.len(), &answer[0]["error"]["code"]), (1, &json!(-32603)), "{answer:?}");
    assert_eq!(said(&session, "echo", json!({"text": "still here"})), "still here");
}

#[test]
fn stderr_is_logged_with_the_sessions_name_in_bounded_lines() {
    let server = start(&[], &[]);
    let session = session(&server);
    said(&session, "stderr", json!({"lines": 1, "pad": 100_000}));
    soon("the line is logged", || server.log().contains("noise 0 \\u{1b}[31mxxx"));
    assert!(server.log().lines().all(|line| line.len() < 5_000 && !line.contains("noise") || line.contains("session")));
    assert!(server.log().len() < 10_000 && !server.log().contains(&session.id), "the name is no credential");
    said(&session, "stderr", json!({"lines": 5_000}));
    assert!(server.log().lines().count() < 1_000, "most are left out");
}

#[test]
fn a_child_that_floods_harms_no_other_session() {
    let server = start(&["--log-memory", "4MiB"], &[]);
    let (flooder, other) = (session(&server), session(&server));
    thread::scope(|scope| {
        let flood = scope.spawn(|| said(&flooder, "flood", json!({"count": 50_000, "pad": 200})));
        let mut slowest = Duration::ZERO;
        while !flood.is_finished() {
            let began = Instant::now();
            assert_eq!(said(&other, "echo", json!({"text": "calm"})), "calm");
            slowest = slowest.max(began.elapsed());
            thread::sleep(Duration::from_millis(10));
        }
        assert_eq!(flood.join().expect("its answer"), "flooded");
        assert!(slowest < Duration::from_secs(5), "{slowest:?}");
    });
    assert!(server.resident_kib() < 200 << 10, "{} KiB", server.resident_kib());
}

// ---- who may call ----

#[test]
fn tokens_say_who_may_call_and_are_read_again() {
    let file = std::env::temp_dir().join(format!("rejoin-tokens-{}", std::process::id()));
    fs::write(&file, "# people\nann one\nann two\nbob three\n").expect("written");
    let mut server = Rejoin::start(Flavour::PLAIN, &["--tokens", file.to_str().expect("text")]);
    let bearer = |token: &str| format!("Bearer {token}");
    let (one, two, three, four) = (bearer("one"), bearer("two"), bearer("three"), bearer("four"));
    let session = Session::begin_with(server.address, NOVEMBER, &[("Authorization", &one)]);
    let ping = request(1, "ping", json!({}));
    let as_who = |token: &str| session.seen_by(&[("Authorization", token)]).tell(&ping);
    assert_eq!(as_who(&two).status(), 200, "the same principal");
    expired(&as_who(&three), "unknown");
    let challenged = |answer: rejoin_tests::wire::Answer, challenge: &str| {
        refused(&answer, 401, "unauthorized");
        assert_eq!(answer.head.field("WWW-Authenticate"), Some(challenge));
    };
    challenged(session.seen_by(&[]).tell(&ping), "Bearer");
    challenged(as_who("Basic one"), "Bearer");
    challenged(as_who(&four), r#"Bearer error="invalid_token""#);

    fs::write(&file, "ann four\n").expect("written");
    server.signal(Signal::HUP);
    soon("the new token counts", || as_who(&four).status() == 200);
    refused(&as_who(&one), 401, "unauthorized");
    fs::write(&file, "ann\n").expect("written");
    server.signal(Signal::HUP);
    soon("the bad file is told", || server.log().contains("the tokens stay as they were"));
    assert_eq!(as_who(&four).status(), 200);
    assert!(["one", "three", "four"].iter().all(|token| !server.log().contains(&format!(" {token}"))), "{}", server.log());
    fs::remove_file(&file).expect("removed");
    server.signal(Signal::HUP);
    thread::sleep(Duration::from_millis(100));
    assert!(server.runs() && as_who(&four).status() == 200);
}

#[test]
fn anyone_may_call_from_this_machine_only_unless_that_is_said() {
    let run = |options: &[&str]| command(options).output().expect("it runs");
    for listen in ["0.0.0.0:0", "[::]:0"] {
        let output = run(&["--listen", listen]);
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && output.stdout.is_empty() && said.lines().count() == 1, "{said}");
        assert!(said.contains("--tokens") && said.contains("--allow-anonymous"), "{said}");
    }
    let output = run(&["--tokens", "/no/such/file"]);
    assert!(!output.status.success() && String::from_utf8_lossy(&output.stderr).contains("/no/such/file"));
}
