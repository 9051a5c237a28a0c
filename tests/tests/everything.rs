//! The embedded server's own behaviour, as far as the official suite does not look at it: what it filters, whom it tells, whom it does not
//! ask, and how it refuses.

use std::collections::BTreeSet;
use std::thread::{self, sleep};
use std::time::Duration;

use rejoin_tests::check::{accepted, empty, stream_with};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{
    JUNE, NOVEMBER, Session, call, call_with_token, executions, messages_of, request, text_of, tick, ticks, ticks_in,
};
use rejoin_tests::sse::Block;
use rejoin_tests::wire::{Stream, ask};
use serde_json::{Value, json};

on_every_server!(
    the_log_level_is_the_sessions_own,
    whoever_subscribed_is_told_on_every_shard_and_nobody_else,
    a_client_that_was_let_go_comes_back_for_the_result,
    a_tool_asks_the_client_and_waits_for_its_answer,
);

const WATCHED: &str = "test://watched-resource";

fn started(revision: &str) -> (Rejoin, Session) {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    let session = Session::begin(server.address, revision);
    (server, session)
}

fn set_level(id: u64, level: &str) -> Value {
    request(id, "logging/setLevel", json!({"level": level}))
}

/// The error that a request gets.
fn error(session: &Session, message: &Value) -> Value {
    let messages = messages_of(&session.tell(message));
    messages.last().and_then(|message| message.get("error")).unwrap_or_else(|| panic!("no error in {messages:?}")).clone()
}

fn code(session: &Session, message: &Value) -> i64 {
    error(session, message)["code"].as_i64().expect("a code")
}

fn is_tool_error(result: &Value) -> bool {
    result["isError"] == true
}

// ---- logs ----

fn the_log_level_is_the_sessions_own(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let quiet = Session::begin(server.address, NOVEMBER);
    let others: Vec<Session> = (0..4).map(|_| Session::begin(server.address, NOVEMBER)).collect();
    let ticked = |session: &Session, id: u64| ticks_in(&session.call(&call(id, "ticker", ticks(2, 10))).rest());
    assert_eq!(ticked(&quiet, 1), [1, 2], "all is told until a level is asked for");
    for (id, level, told) in [(10, "debug", 2), (20, "info", 2), (30, "notice", 0), (40, "emergency", 0), (50, "info", 2)] {
        assert_eq!(quiet.result(&set_level(id, level)), json!({}));
        let mut stream = messages_of(&quiet.tell(&call(id + 1, "ticker", ticks(2, 10))));
        assert_eq!(executions(&stream.pop().expect("a result")["result"]), 1);
        assert_eq!(stream.len(), told, "from {level} on: {stream:?}");
    }
    quiet.result(&set_level(60, "error"));
    for other in &others {
        assert_eq!(ticked(other, 1), [1, 2], "another session's level is another matter");
    }
}

#[test]
fn a_level_reaches_the_standalone_stream_and_calls_under_way() {
    let (_server, session) = started(NOVEMBER);
    let mut listening = session.listen();
    listening.event();
    let mut running = session.call(&call(1, "ticker", ticks(30, 30)));
    running.until(|block| tick(block).is_some());
    session.result(&set_level(2, "warning"));
    session.result(&call(3, "broadcast", json!({"count": 3, "interval_ms": 0})));
    let told = ticks_in(&running.rest());
    assert!(told.len() < 25, "{told:?}");
    listening.stays_silent(Duration::from_millis(100));
    session.result(&set_level(4, "info"));
    session.result(&call(5, "broadcast", json!({"count": 1, "interval_ms": 0})));
    assert_eq!(tick(&listening.event()), Some(1));
}

#[test]
fn progress_is_no_log_message() {
    let (_server, session) = started(NOVEMBER);
    session.result(&set_level(1, "emergency"));
    assert_eq!(ticks_in(&session.call(&call_with_token(2, "t", "ticker", ticks(3, 10))).rest()), [1, 2, 3]);
}

#[test]
fn what_is_no_level_is_refused_and_changes_nothing() {
    let (_server, session) = started(NOVEMBER);
    session.result(&set_level(1, "error"));
    for (id, level) in [(2, json!("INFO")), (3, json!("")), (4, json!(6)), (5, Value::Null)] {
        assert_eq!(code(&session, &request(id, "logging/setLevel", json!({"level": level}))), -32602, "{level}");
    }
    assert_eq!(messages_of(&session.tell(&call(6, "ticker", ticks(2, 0)))).len(), 1, "only the result");
}

#[test]
fn a_level_outlives_a_rotation() {
    let (_server, session) = started(NOVEMBER);
    session.result(&set_level(1, "error"));
    session.result(&call(2, "rotate", json!({})));
    assert_eq!(messages_of(&session.tell(&call(3, "ticker", ticks(2, 0)))).len(), 1, "only the result");
}

// ---- resources ----

/// The URIs of resources that a stream says were updated.
fn updated(blocks: &[Block]) -> Vec<String> {
    let messages = blocks.iter().filter(|block| block.is_message()).map(Block::json);
    let updates = messages.filter(|message| message["method"] == "notifications/resources/updated");
    updates.map(|message| message["params"]["uri"].as_str().expect("a URI").to_owned()).collect()
}

fn whoever_subscribed_is_told_on_every_shard_and_nobody_else(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let begin = || Session::begin(server.address, NOVEMBER);
    let subscribe =
        |session: &Session, id: u64, uri: &str| session.result(&request(id, "resources/subscribe", json!({"uri": uri})));
    let listening = |session: &Session| {
        let mut stream = session.listen();
        stream.event();
        stream
    };
    let subscribers: Vec<Session> = (0..6).map(|_| begin()).collect();
    let (stranger, left, elsewhere, gone) = (begin(), begin(), begin(), begin());
    for session in subscribers.iter().chain([&left, &gone]) {
        assert_eq!(subscribe(session, 1, WATCHED), json!({}));
    }
    // Twice is once.
    subscribe(&subscribers[0], 2, WATCHED);
    subscribe(&elsewhere, 1, "test://static-text");
    left.result(&request(2, "resources/unsubscribe", json!({"uri": WATCHED})));
    assert_eq!(ask(server.address, &gone.delete()).status(), 204);
    let mut told: Vec<Stream> = subscribers.iter().map(listening).collect();
    let mut untold: Vec<Stream> = [&stranger, &left, &elsewhere].map(listening).into();
    let changed = stranger.result(&call(9, "change_watched_resource", json!({})));
    assert_eq!(text_of(&changed), "The resource has changed 1 times; sessions told: 6.");
    for stream in &mut told {
        assert_eq!(updated(&[stream.event()]), [WATCHED]);
        stream.stays_silent(Duration::from_millis(50));
    }
    for stream in &mut untold {
        stream.stays_silent(Duration::from_millis(50));
    }
    let read = elsewhere.result(&request(5, "resources/read", json!({"uri": WATCHED})));
    assert_eq!(read["contents"][0]["text"], "This resource has changed 1 times.");
}

#[test]
fn a_resource_that_is_not_there_is_named_in_the_refusal() {
    let (_server, session) = started(NOVEMBER);
    for (id, method) in [(1, "resources/read"), (2, "resources/subscribe"), (3, "resources/unsubscribe")] {
        let error = error(&session, &request(id, method, json!({"uri": "test://nowhere"})));
        assert_eq!((&error["code"], &error["data"]["uri"]), (&json!(-32002), &json!("test://nowhere")), "{method}");
        assert_eq!(code(&session, &request(id + 10, method, json!({}))), -32602, "{method} without a URI");
    }
}

#[test]
fn the_resources_are_those_that_the_suite_reads() {
    let (_server, session) = started(NOVEMBER);
    let read = |id: u64, uri: &str| session.result(&request(id, "resources/read", json!({"uri": uri})))["contents"][0].clone();
    assert_eq!(read(1, "test://static-text")["text"], "This is the content of the static text resource.");
    assert!(read(2, "test://static-binary")["blob"].as_str().is_some_and(|blob| blob.starts_with("iVBOR")));
    let data = read(3, "test://template/a%2Fb/data");
    assert_eq!(data["uri"], "test://template/a%2Fb/data");
    let data: Value = serde_json::from_str(data["text"].as_str().expect("a text")).expect("JSON");
    assert_eq!(data, json!({"id": "a/b", "templateTest": true, "data": "Data for ID: a/b"}));
}

// ---- lists, prompts, completion ----

#[test]
fn a_cursor_that_was_never_given_out_is_refused() {
    let (_server, session) = started(NOVEMBER);
    for (id, method) in ["tools/list", "resources/list", "resources/templates/list", "prompts/list"].into_iter().enumerate() {
        assert!(session.result(&request(id, method, json!({}))).get("nextCursor").is_none());
        assert_eq!(code(&session, &request(id + 10, method, json!({"cursor": "more"}))), -32602, "{method}");
    }
}

#[test]
fn a_prompt_needs_its_arguments() {
    let (_server, session) = started(NOVEMBER);
    let get = |id: u64, name: &str, arguments: Value| request(id, "prompts/get", json!({"name": name, "arguments": arguments}));
    let both = session.result(&get(1, "test_prompt_with_arguments", json!({"arg1": "it's", "arg2": ""})));
    assert_eq!(both["messages"][0]["content"]["text"], "Prompt with arguments: arg1='it's', arg2=''");
    let missing = error(&session, &get(2, "test_prompt_with_arguments", json!({"arg1": "a"})));
    assert!(missing["code"] == -32602 && missing["message"].as_str().is_some_and(|said| said.contains("arg2")), "{missing}");
    assert_eq!(code(&session, &get(3, "no_such_prompt", json!({}))), -32602);
    assert_eq!(code(&session, &get(4, "test_prompt_with_arguments", json!({"arg1": 1, "arg2": 2}))), -32602);
}

#[test]
fn completion_gives_what_begins_so_and_at_most_a_hundred() {
    let (_server, session) = started(NOVEMBER);
    let complete = |id: u64, of: Value, name: &str, value: &str| {
        request(id, "completion/complete", json!({"ref": of, "argument": {"name": name, "value": value}}))
    };
    let prompt = json!({"type": "ref/prompt", "name": "test_prompt_with_arguments"});
    let template = json!({"type": "ref/resource", "uri": "test://template/{id}/data"});
    let values = |message: &Value| session.result(message)["completion"].clone();
    let par = values(&complete(1, prompt.clone(), "arg1", "par"));
    assert_eq!(par, json!({"values": ["paris", "park", "party"], "total": 3, "hasMore": false}));
    assert_eq!(values(&complete(2, prompt.clone(), "arg1", "x"))["values"], json!([]));
    let all = values(&complete(3, template.clone(), "id", ""));
    assert_eq!((all["values"].as_array().map(Vec::len), &all["total"], &all["hasMore"]), (Some(100), &json!(250), &json!(true)));
    assert_eq!(values(&complete(4, template.clone(), "id", "25"))["values"], json!(["25", "250"]));
    for (id, of, name) in [
        (5, json!({"type": "ref/prompt", "name": "no_such_prompt"}), "arg1"),
        (6, json!({"type": "ref/resource", "uri": "test://nowhere"}), "id"),
        (7, json!({"type": "ref/tool", "name": "echo"}), "text"),
        (8, prompt, "arg3"),
        (9, template, "name"),
    ] {
        assert_eq!(code(&session, &complete(id, of.clone(), name, "")), -32602, "{of} {name}");
    }
}

// ---- tools ----

#[test]
fn every_tool_that_is_listed_is_there_and_takes_no_unknown_argument() {
    let (_server, session) = started(NOVEMBER);
    let listed = session.result(&request("list", "tools/list", json!({})));
    let names: Vec<&str> =
        listed["tools"].as_array().expect("tools").iter().map(|tool| tool["name"].as_str().expect("a name")).collect();
    assert_eq!(names.iter().collect::<BTreeSet<_>>().len(), names.len(), "{names:?}");
    assert!(names.len() >= 20, "{names:?}");
    for (id, name) in (1..).zip(&names) {
        let result = session.result(&call(id, name, json!({"no such": 1})));
        let takes_any = *name == "json_schema_2020_12_tool";
        assert_eq!(is_tool_error(&result), !takes_any, "{name}: {result}");
    }
    assert_eq!(code(&session, &call(99, "no_such_tool", json!({}))), -32602);
}

#[test]
fn wrong_arguments_are_told_where_the_revision_has_them_told() {
    let wrong = |id: u64| call(id, "ticker", json!({"count": 1_000_001}));
    let (_server, session) = started(NOVEMBER);
    let result = session.result(&wrong(1));
    assert!(is_tool_error(&result) && text_of(&result).contains("at most 1000000"), "{result}");
    let (_server, session) = started(JUNE);
    assert_eq!(code(&session, &wrong(1)), -32602);
}

fn a_client_that_was_let_go_comes_back_for_the_result(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    let blocks = session.call(&call(1, "test_reconnection", json!({}))).rest();
    assert_eq!(blocks.len(), 2, "an id to come back with, and when: {blocks:?}");
    assert!(blocks[0].is_opening(), "{blocks:?}");
    let retry = blocks[1].retry.expect("a retry");
    assert!((240..=360).contains(&retry.as_millis()) && blocks[1].data.is_none(), "{blocks:?}");
    sleep(retry);
    let mut back = session.resume(blocks[0].cursor());
    stream_with(&back, "replay");
    let rest: Vec<Value> = back.rest().iter().filter(|block| block.is_message()).map(Block::json).collect();
    assert!(rest.len() == 1 && rest[0]["id"] == 1, "{rest:?}");
    assert_eq!(text_of(&rest[0]["result"]), "The work was done while no connection waited for it.");
    // The repost of the call, which some clients prefer, is the same call.
    let again = session.tell(&call(1, "test_reconnection", json!({})));
    assert_eq!(messages_of(&again), rest);
    let last = session.resume(blocks[0].cursor()).rest();
    empty(&ask(server.address, &session.get_after(last[last.len() - 1].cursor())), 204, "complete");
}

#[test]
fn a_client_that_could_not_come_back_keeps_its_connection() {
    let (_server, session) = started(JUNE);
    let result = session.result(&call(1, "test_reconnection", json!({})));
    assert!(!is_tool_error(&result), "{result}");
}

/// The server's request on a call's stream.
fn asked(stream: &mut Stream) -> Value {
    stream.until(|block| block.is_message() && block.json().get("method").is_some()).pop().expect("a request").json()
}

/// The text of the result that a call has after its client answered what it was asked.
fn said_after(session: &Session, message: &Value, method: &str, answer: impl FnOnce(&Value) -> Value) -> (String, bool) {
    let mut stream = session.call(message);
    let request = asked(&mut stream);
    assert_eq!(request["method"], method);
    let mut response = answer(&request["params"]);
    response["jsonrpc"] = json!("2.0");
    response["id"] = request["id"].clone();
    accepted(&session.tell(&response));
    let result = stream.rest().pop().expect("a result").json()["result"].clone();
    (text_of(&result).to_owned(), is_tool_error(&result))
}

fn a_tool_asks_the_client_and_waits_for_its_answer(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let able = json!({"sampling": {}, "elicitation": {}, "roots": {}});
    let session = Session::begin_able(server.address, NOVEMBER, able);
    let sampling = |id: u64| call(id, "test_sampling", json!({"prompt": "What?"}));
    let said = said_after(&session, &sampling(1), "sampling/createMessage", |params| {
        assert_eq!(params["messages"], json!([{"role": "user", "content": {"type": "text", "text": "What?"}}]));
        json!({"result": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "That."}}})
    });
    assert_eq!(said, ("LLM response: That.".to_owned(), false));
    let said = said_after(
        &session,
        &sampling(2),
        "sampling/createMessage",
        |_| json!({"result": {"role": "assistant", "model": "m", "content": [{"type": "text", "text": "These."}]}}),
    );
    assert_eq!(said, ("LLM response: These.".to_owned(), false));
    let (said, failed) =
        said_after(&session, &sampling(3), "sampling/createMessage", |_| json!({"error": {"code": -1, "message": "not today"}}));
    assert!(failed && said.contains("not today"), "{said}");
    let eliciting = call(4, "test_elicitation", json!({"message": "Who?"}));
    let said = said_after(&session, &eliciting, "elicitation/create", |params| {
        assert_eq!((&params["message"], &params["requestedSchema"]["type"]), (&json!("Who?"), &json!("object")));
        json!({"result": {"action": "decline"}})
    });
    assert_eq!(said, ("User response: action=decline, content={}".to_owned(), false));
    let said = said_after(&session, &call(5, "test_list_roots", json!({})), "roots/list", |params| {
        assert!(params.is_null(), "{params}");
        json!({"result": {"roots": [{"uri": "file:///a"}]}})
    });
    assert_eq!(said, (r#"Roots: [{"uri":"file:///a"}]"#.to_owned(), false));
}

#[test]
fn a_client_is_not_asked_for_what_it_cannot_do() {
    let server = Rejoin::start(Flavour::PLAIN, &[]);
    let calls = [
        ("test_sampling", json!({"prompt": "What?"})),
        ("test_elicitation", json!({"message": "Who?"})),
        ("test_elicitation_sep1034_defaults", json!({})),
        ("test_elicitation_sep1330_enums", json!({})),
        ("test_list_roots", json!({})),
    ];
    for (revision, capabilities) in [(NOVEMBER, json!({})), (JUNE, json!({})), (NOVEMBER, json!({"elicitation": {"url": {}}}))] {
        let session = Session::begin_able(server.address, revision, capabilities);
        thread::scope(|scope| {
            for (id, (name, arguments)) in calls.iter().enumerate() {
                let session = &session;
                scope.spawn(move || {
                    let messages = messages_of(&session.tell(&call(id, name, arguments.clone())));
                    assert!(messages.len() == 1 && is_tool_error(&messages[0]["result"]), "{name}: {messages:?}");
                });
            }
        });
    }
}
