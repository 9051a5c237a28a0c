//! Clients without a session (2026-07-28) over sockets, beside clients with one, and idempotency keys in both eras.

use std::collections::BTreeSet;
use std::thread::{self, sleep};
use std::time::Duration;

use rejoin_tests::check::{accepted, refused, soon};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::{Rejoin, bare};
use rejoin_tests::session::{NOVEMBER, Session, call, executions, fresh_key, messages_of, notification, request, text_of, ticks};
use rejoin_tests::sse::Block;
use rejoin_tests::stateless::{JULY, VERSION, alone, mirrored, said, said_by};
use rejoin_tests::wire::{Answer, Connection, Request, Stream, ask, open};
use serde_json::{Value, json};

on_every_server!(
    a_request_is_answered_by_itself_and_its_connection_serves_the_next,
    progress_and_the_result_come_on_one_stream_without_ids,
    closing_the_stream_stops_the_work,
    whoever_listens_is_told_of_what_it_asked_for_on_every_shard,
    rounds_go_through_whichever_shard_answers,
    sessions_and_requests_without_one_share_the_endpoint,
    a_hundred_at_once_under_one_key_are_one_execution,
    a_call_that_was_cut_has_its_result_when_it_is_asked_for_again,
    a_drain_ends_streams_of_changes_and_lets_calls_end,
);

fn started(on: Flavour) -> Rejoin {
    Rejoin::start(on, &[])
}

fn result(answer: &Answer) -> Value {
    let messages = messages_of(answer);
    let last = messages.last().unwrap_or_else(|| panic!("nothing in {}", answer.head));
    last.get("result").unwrap_or_else(|| panic!("no result in {last}")).clone()
}

fn tell(server: &Rejoin, message: &Value) -> Answer {
    ask(server.address, &alone(server.address, message))
}

fn code(answer: &Answer) -> i64 {
    answer.json()["error"]["code"].as_i64().unwrap_or_else(|| panic!("no code in {}", answer.json()))
}

fn listen(server: &Rejoin, id: &str, notifications: Value) -> Stream {
    open(server.address, &alone(server.address, &request(id, "subscriptions/listen", json!({"notifications": notifications}))))
}

/// The method of an event's message, and the subscription that it names.
fn told(block: &Block) -> (String, Value) {
    let message = block.json();
    let method = message["method"].as_str().unwrap_or_else(|| panic!("{message}")).to_owned();
    (method, message["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].clone())
}

// ---- one request ----

fn a_request_is_answered_by_itself_and_its_connection_serves_the_next(on: Flavour) {
    let server = started(on);
    let mut connection = Connection::open(server.address);
    for id in 1..=20 {
        let answer = connection.ask(&alone(server.address, &call(id, "echo", json!({"text": format!("t{id}")}))));
        assert_eq!(answer.status(), 200);
        assert_eq!(answer.head.field("Content-Type"), Some("application/json"));
        assert_eq!(answer.head.field("Mcp-Session-Id"), None);
        let message = answer.json();
        assert_eq!((&message["id"], text_of(&message["result"])), (&json!(id), &*format!("t{id}")));
        assert_eq!(message["result"]["resultType"], "complete");
        assert_eq!(message["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "rejoin");
    }
}

fn progress_and_the_result_come_on_one_stream_without_ids(on: Flavour) {
    let server = started(on);
    let mut message = said(&call("one", "ticker", ticks(5, 10)));
    message["params"]["_meta"]["progressToken"] = json!("mine");
    let mut stream = open(server.address, &mirrored(server.address, &message));
    let blocks = stream.rest();
    assert_eq!(blocks.len(), 6, "{blocks:?}");
    for (at, block) in blocks.iter().enumerate() {
        assert!(block.is_message() && block.id.is_none() && block.retry.is_none(), "{block:?}");
        let message = block.json();
        if at < 5 {
            assert_eq!(
                (&message["params"]["progressToken"], &message["params"]["progress"]),
                (&json!("mine"), &json!((at + 1) as f64))
            );
        } else {
            assert_eq!((&message["id"], &message["result"]["resultType"]), (&json!("one"), &json!("complete")));
        }
    }
}

fn closing_the_stream_stops_the_work(on: Flavour) {
    let server = Rejoin::start(on, &["--max-exchanges", "2"]);
    let mut message = said(&call(1, "ticker", ticks(100_000, 20)));
    message["params"]["_meta"]["progressToken"] = json!(1);
    let request = mirrored(server.address, &message);
    // More than may be at once: each must end for the next to begin, long before its work would be done.
    for _ in 0..6 {
        let mut running = None;
        soon("there is room", || {
            let mut connection = Connection::open(server.address);
            connection.send(&request);
            let begun = connection.head().status() == 200;
            running = begun.then_some(connection);
            begun
        });
        running.expect("it has begun").reset();
    }
}

#[test]
fn a_request_must_say_in_head_and_body_what_it_is() {
    let server = started(Flavour::PLAIN);
    let message = call(7, "echo", json!({"text": "x"}));
    let good = alone(server.address, &message);
    for (wrong, status, expected, word) in [
        (mirrored(server.address, &message), 400, -32602, "invalid_params"),
        (good.clone().without("MCP-Protocol-Version"), 400, -32020, "header_mismatch"),
        (good.clone().set("MCP-Protocol-Version", NOVEMBER), 400, -32020, "header_mismatch"),
        (good.clone().without("Mcp-Method"), 400, -32020, "header_mismatch"),
        (good.clone().set("Mcp-Method", "tools/list"), 400, -32020, "header_mismatch"),
        (good.clone().without("Mcp-Name"), 400, -32020, "header_mismatch"),
        (good.clone().set("Mcp-Name", "ECHO"), 400, -32020, "header_mismatch"),
        (good.clone().set("Mcp-Name", "=?base64?ZWNobw?="), 400, -32020, "header_mismatch"),
        (good.clone().with("Mcp-Name", "echo"), 400, -32020, "header_mismatch"),
        (alone(server.address, &request(7, "ping", Value::Null)), 404, -32601, "method_not_found"),
        (alone(server.address, &request(7, "initialize", Value::Null)), 404, -32601, "method_not_found"),
    ] {
        let answer = ask(server.address, &wrong);
        refused(&answer, status, word);
        assert_eq!((code(&answer), &answer.json()["id"]), (expected, &json!(7)), "{wrong:?}");
    }
    for right in
        [good.clone(), good.set("Mcp-Name", "=?base64?ZWNobw==?=").with("Mcp-Session-Id", "x").with("Last-Event-ID", "y")]
    {
        assert_eq!(text_of(&result(&ask(server.address, &right))), "x");
    }
    let answer = tell(&server, &request(7, "no/such", Value::Null));
    assert_eq!((answer.status(), code(&answer)), (404, -32601));
}

#[test]
fn an_unknown_revision_is_told_what_there_is_and_discover_says_the_same() {
    let server = started(Flavour::PLAIN);
    let mut message = said(&request(1, "server/discover", Value::Null));
    let discovered = result(&ask(server.address, &mirrored(server.address, &message)));
    assert_eq!(discovered["supportedVersions"], json!([JULY, NOVEMBER, "2025-06-18", "2025-03-26"]));
    assert_eq!(discovered["capabilities"]["tools"]["listChanged"], true);
    message["params"]["_meta"][VERSION] = json!("2027-01-01");
    let answer = ask(server.address, &mirrored(server.address, &message).set("MCP-Protocol-Version", "2027-01-01"));
    assert_eq!((answer.status(), code(&answer)), (400, -32022));
    let data = &answer.json()["error"]["data"];
    assert_eq!((&data["supported"], &data["requested"]), (&discovered["supportedVersions"], &json!("2027-01-01")));
}

#[test]
fn what_is_no_request_is_accepted_or_refused_and_other_methods_are_not_allowed() {
    let server = started(Flavour::PLAIN);
    let version = |request: Request| request.with("MCP-Protocol-Version", JULY);
    accepted(&ask(server.address, &version(Request::post(server.address, &notification("notifications/x", json!({}))))));
    let answer = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    refused(&ask(server.address, &version(Request::post(server.address, &answer))), 400, "invalid_request");
    let batch = json!([said(&request(1, "tools/list", Value::Null))]);
    refused(&ask(server.address, &version(Request::post(server.address, &batch))), 400, "invalid_request");
    refused(&ask(server.address, &version(Request::get(server.address))), 405, "method_not_allowed");
    refused(&ask(server.address, &version(Request::new("DELETE", server.address))), 405, "method_not_allowed");
}

#[test]
fn a_client_of_both_eras_falls_back_in_either_direction() {
    // A server of sessions only answers so that its client begins one: 400 without a code of the newer era.
    let older = Rejoin::start(Flavour::PLAIN, &["--", "cat"]);
    let probe = ask(older.address, &alone(older.address, &request(1, "server/discover", Value::Null)));
    refused(&probe, 400, "unsupported_revision");
    assert_eq!(code(&probe), -32000);
    // Where both are served, `initialize` begins a session whatever its head says.
    let newer = started(Flavour::PLAIN);
    let initialize = rejoin_tests::session::initialize(1, NOVEMBER);
    let answer = ask(newer.address, &Request::post(newer.address, &initialize).with("MCP-Protocol-Version", JULY));
    assert!(answer.head.field("Mcp-Session-Id").is_some(), "{}", answer.head);
    // One of 2024-11-05's two endpoints: its first GET fails, with a reason to show.
    refused(&ask(newer.address, &Request::get(newer.address)), 400, "session_required");
}

#[test]
fn the_revisions_are_explained() {
    let output = bare(&["serve", "--explain-revisions"]).output().expect("it runs");
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(output.status.success() && text.contains("2026-07-28") && text.contains("Mcp-Method, Mcp-Name"), "{text}");
}

// ---- both eras ----

fn sessions_and_requests_without_one_share_the_endpoint(on: Flavour) {
    let server = started(on);
    let session = Session::begin(server.address, NOVEMBER);
    let mut running = session.call(&call(1, "ticker", ticks(40, 10)));
    for id in 1..=10 {
        assert_eq!(text_of(&result(&tell(&server, &call(id, "echo", json!({"text": "alone"}))))), "alone");
        let answer = session.tell(&call(id + 100, "echo", json!({"text": "together"})));
        let echoed = result(&answer);
        assert!(text_of(&echoed) == "together" && echoed.get("resultType").is_none(), "{echoed}");
    }
    assert_eq!(executions(&running.rest().last().expect("a result").json()["result"]), 1);
}

// ---- changes ----

fn whoever_listens_is_told_of_what_it_asked_for_on_every_shard(on: Flavour) {
    let server = started(on);
    let mut tools: Vec<Stream> = (0..6).map(|at| listen(&server, &format!("t{at}"), json!({"toolsListChanged": true}))).collect();
    let mut prompts = listen(&server, "p", json!({"promptsListChanged": true, "resourcesListChanged": true}));
    let watched = json!({"resourceSubscriptions": ["test://watched-resource", "test://static-text"]});
    let mut resources = listen(&server, "r", watched);
    let acknowledged = "notifications/subscriptions/acknowledged".to_owned();
    for (at, stream) in tools.iter_mut().enumerate() {
        assert_eq!(told(&stream.event()), (acknowledged.clone(), json!(format!("t{at}"))));
    }
    let block = prompts.event();
    assert_eq!(told(&block), (acknowledged.clone(), json!("p")));
    assert_eq!(block.json()["params"]["notifications"], json!({"promptsListChanged": true}), "what is honoured");
    let block = resources.event();
    assert_eq!(block.json()["params"]["notifications"], json!({"resourceSubscriptions": ["test://watched-resource"]}));
    let names = |server: &Rejoin| -> BTreeSet<String> {
        let tools = result(&tell(server, &request(1, "tools/list", Value::Null)))["tools"].clone();
        tools.as_array().expect("a list").iter().map(|tool| tool["name"].as_str().expect("a name").to_owned()).collect()
    };
    let before = names(&server);
    tell(&server, &call(1, "test_trigger_tool_change", json!({})));
    for (at, stream) in tools.iter_mut().enumerate() {
        assert_eq!(told(&stream.event()), ("notifications/tools/list_changed".to_owned(), json!(format!("t{at}"))));
    }
    assert_ne!(names(&server), before, "the list has changed indeed");
    tell(&server, &call(2, "test_trigger_prompt_change", json!({})));
    assert_eq!(told(&prompts.event()), ("notifications/prompts/list_changed".to_owned(), json!("p")));
    tell(&server, &call(3, "change_watched_resource", json!({})));
    let block = resources.event();
    assert_eq!(told(&block), ("notifications/resources/updated".to_owned(), json!("r")));
    assert_eq!(block.json()["params"]["uri"], "test://watched-resource");
    tools[0].stays_silent(Duration::from_millis(100));
}

fn a_drain_ends_streams_of_changes_and_lets_calls_end(on: Flavour) {
    let server = Rejoin::start(on, &["--drain", "20s"]);
    let mut listening = listen(&server, "l", json!({"toolsListChanged": true}));
    listening.event();
    let mut message = said(&call(1, "ticker", ticks(20, 30)));
    message["params"]["_meta"]["progressToken"] = json!(1);
    let mut running = open(server.address, &mirrored(server.address, &message));
    running.event();
    server.terminate();
    assert!(listening.rest().is_empty(), "a clean end, without a result");
    let rest = running.rest();
    assert_eq!(executions(&rest.last().expect("a result").json()["result"]), 1);
}

// ---- rounds ----

fn accept(content: Value) -> Value {
    json!({"action": "accept", "content": content})
}

/// Calls a tool in rounds with a client that can do all.
fn round(server: &Rejoin, tool: &str, extra: Value) -> Answer {
    let mut message = call(1, tool, json!({}));
    for (name, value) in extra.as_object().expect("an object") {
        message["params"][name] = value.clone();
    }
    let message = said_by(&message, json!({"elicitation": {}, "sampling": {}, "roots": {}}));
    ask(server.address, &mirrored(server.address, &message))
}

fn rounds_go_through_whichever_shard_answers(on: Flavour) {
    let server = started(on);
    for _ in 0..4 {
        let first = result(&round(&server, "test_input_required_result_multi_round", json!({})));
        assert_eq!(first["resultType"], "input_required");
        let answers =
            json!({"inputResponses": {"step1": accept(json!({"name": "Alice"}))}, "requestState": first["requestState"]});
        let second = result(&round(&server, "test_input_required_result_multi_round", answers));
        assert!(second["inputRequests"]["step2"].is_object(), "{second}");
        let answers =
            json!({"inputResponses": {"step2": accept(json!({"color": "blue"}))}, "requestState": second["requestState"]});
        let last = result(&round(&server, "test_input_required_result_multi_round", answers));
        assert_eq!((text_of(&last), &last["resultType"]), ("\"Alice\" likes \"blue\"", &json!("complete")));
    }
}

#[test]
fn a_state_is_for_its_own_request_and_comes_back_as_it_was_given() {
    let server = started(Flavour::PLAIN);
    let state = result(&round(&server, "test_input_required_result_request_state", json!({})))["requestState"].clone();
    let text = state.as_str().expect("a text");
    let with = |tool: &str, state: Value| {
        round(&server, tool, json!({"inputResponses": {"confirm": accept(json!({"ok": true}))}, "requestState": state}))
    };
    assert_eq!(text_of(&result(&with("test_input_required_result_request_state", state.clone()))), "state-ok, confirmed");
    for (tool, wrong) in [
        ("test_input_required_result_request_state", json!(format!("{text}x"))),
        ("test_input_required_result_request_state", json!(7)),
        ("test_input_required_result_tampered_state", state.clone()),
        ("test_input_required_result_multi_round", state.clone()),
    ] {
        let answer = with(tool, wrong.clone());
        assert_eq!((answer.status(), code(&answer)), (200, -32602), "{tool} with {wrong}");
    }
}

#[test]
fn a_client_is_asked_for_what_it_can_do_and_told_what_it_cannot() {
    let server = started(Flavour::PLAIN);
    for (tool, arguments, capability) in [
        ("test_missing_capability", json!({}), "sampling"),
        ("test_input_required_result_elicitation", json!({}), "elicitation"),
        ("test_sampling", json!({"prompt": "p"}), "sampling"),
        ("test_list_roots", json!({}), "roots"),
    ] {
        let answer = tell(&server, &call(1, tool, arguments.clone()));
        assert_eq!((answer.status(), code(&answer)), (400, -32021), "{tool}");
        assert_eq!(answer.json()["error"]["data"]["requiredCapabilities"], json!({ capability: {} }));
    }
    // Tools that ask in a session ask here as well, by their result.
    let message = said_by(&call(1, "test_sampling", json!({"prompt": "p"})), json!({"sampling": {}}));
    let asked = result(&ask(server.address, &mirrored(server.address, &message)));
    assert_eq!(asked["inputRequests"]["asked"]["params"]["messages"][0]["content"]["text"], "p");
    let mut again = message.clone();
    again["params"]["inputResponses"] =
        json!({"asked": {"role": "assistant", "model": "m", "content": {"type": "text", "text": "42"}}});
    assert_eq!(text_of(&result(&ask(server.address, &mirrored(server.address, &again)))), "LLM response: 42");
}

#[test]
fn so_many_resources_may_be_listened_to_and_no_more() {
    let server = started(Flavour::PLAIN);
    let listening = |count: usize| {
        let resources: Vec<_> = (0..count).map(|at| format!("test://{at}")).collect();
        request(1, "subscriptions/listen", json!({"notifications": {"resourceSubscriptions": resources}}))
    };
    let mut most = open(server.address, &alone(server.address, &listening(256)));
    assert_eq!(most.event().json()["params"]["notifications"], json!({}), "none of them changes");
    assert_eq!(code(&tell(&server, &listening(257))), -32602);
}

#[test]
fn logs_come_where_the_request_wants_them() {
    let server = started(Flavour::PLAIN);
    for (level, logs) in [(Value::Null, 0), (json!("debug"), 1), (json!("info"), 1), (json!("error"), 0)] {
        let mut message = said(&call(1, "test_logging_tool", json!({})));
        if !level.is_null() {
            message["params"]["_meta"]["io.modelcontextprotocol/logLevel"] = level.clone();
        }
        let messages = messages_of(&ask(server.address, &mirrored(server.address, &message)));
        assert_eq!(messages.len(), logs + 1, "{level}: {messages:?}");
    }
}

#[test]
fn arguments_in_the_head_are_the_bodys() {
    let server = started(Flavour::PLAIN);
    let message = said(&call(1, "test_param_headers", json!({"region": "世界", "limit": 42})));
    let request = mirrored(server.address, &message).with("Mcp-Param-Region", "=?base64?5LiW55WM?=");
    assert_eq!(ask(server.address, &request.clone().with("mcp-param-limit", "42.0")).status(), 200);
    for wrong in [request.clone(), request.clone().with("Mcp-Param-Limit", "41"), request.with("Mcp-Param-Limit", "x")] {
        let answer = ask(server.address, &wrong);
        assert_eq!((answer.status(), code(&answer)), (400, -32020), "{wrong:?}");
    }
}

// ---- idempotency keys ----

/// A server with one caller, and the field that says who it is.
fn with_tokens(on: Flavour) -> (Rejoin, tempfile::NamedTempFile, &'static str) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "alice secret-of-alice\n").expect("a file of tokens");
    let server = Rejoin::start(on, &["--tokens", file.path().to_str().expect("a path")]);
    (server, file, "Bearer secret-of-alice")
}

fn a_hundred_at_once_under_one_key_are_one_execution(on: Flavour) {
    let (server, _file, token) = with_tokens(on);
    let authorized = [("Authorization", token)];
    let sessions: Vec<Session> = (0..10).map(|_| Session::begin_with(server.address, NOVEMBER, &authorized)).collect();
    for round in 0..3 {
        let (key, counted) = (fresh_key(), fresh_key());
        let mut arguments = ticks(3, 20);
        arguments["key"] = json!(counted);
        // Ten of each session's, whose connections land on both shards; every other one without a session.
        let requests: Vec<Request> = (0..100_u64)
            .map(|at| {
                let message = call(round * 1_000 + at, "ticker", arguments.clone());
                let request = match at % 2 {
                    0 => sessions[at as usize / 10].post(&message),
                    _ => alone(server.address, &message).with("Authorization", token),
                };
                request.with("Idempotency-Key", &key)
            })
            .collect();
        let answers: Vec<Answer> = thread::scope(|scope| {
            let asked: Vec<_> = requests.iter().map(|request| scope.spawn(|| ask(server.address, request))).collect();
            asked.into_iter().map(|answer| answer.join().expect("an answer")).collect()
        });
        for (at, answer) in answers.iter().enumerate() {
            let messages = messages_of(answer);
            let last = messages.last().expect("an answer");
            assert_eq!(last["id"], json!(round * 1_000 + at as u64), "under its own id");
            assert_eq!(executions(&last["result"]), 1, "{last}");
        }
        // The tool's own count says the same: the next call under its key is the second.
        let again = sessions[0].result(&call(round * 1_000 + 500, "ticker", arguments.clone()));
        assert_eq!(executions(&again), 2);
        // Another body under the key is told so, wherever it comes in.
        for _ in 0..4 {
            let other = alone(server.address, &call(7, "echo", json!({"text": "x"})));
            let other = other.with("Authorization", token).with("Idempotency-Key", &key);
            refused(&ask(server.address, &other), 422, "idempotency_key_reused");
        }
    }
}

/// A POST of a call of a tool that counts its own executions, under a key.
fn counting(server: &Rejoin, key: &str) -> Request {
    let mut arguments = ticks(0, 0);
    arguments["key"] = json!(key);
    alone(server.address, &call(1, "ticker", arguments)).with("Idempotency-Key", key)
}

#[test]
fn records_of_keys_are_as_many_and_as_old_as_the_options_say() {
    let server =
        Rejoin::start(Flavour { shards: 1, ..Flavour::PLAIN }, &["--max-idempotency-keys", "1", "--idempotency-ttl", "1s"]);
    let (first, second) = (fresh_key(), fresh_key());
    let ran = |key: &str| executions(&result(&ask(server.address, &counting(&server, key))));
    assert_eq!([ran(&first), ran(&first)], [1, 1]);
    assert_eq!((ran(&second), ran(&first)), (1, 2), "the second's record took the place of the first's");
    // Asked for within its second it ran once; long after, once more.
    sleep(Duration::from_millis(2_500));
    assert_eq!(ran(&first), 3);
    // A call that is not done cannot be forgotten.
    let mut running = open(server.address, &{
        let mut message = said(&call(1, "ticker", ticks(100, 100)));
        message["params"]["_meta"]["progressToken"] = json!(1);
        mirrored(server.address, &message).with("Idempotency-Key", &fresh_key())
    });
    running.event();
    refused(&ask(server.address, &counting(&server, &second)), 503, "shed");
}

#[test]
fn an_answer_that_has_no_room_is_not_run_for_again() {
    let server = Rejoin::start(Flavour { shards: 1, ..Flavour::PLAIN }, &["--idempotency-memory", "1"]);
    let asked = counting(&server, &fresh_key());
    assert_eq!(executions(&result(&ask(server.address, &asked))), 1);
    let again = ask(server.address, &asked);
    assert_eq!(code(&again), -32010, "{}", again.json());
}

fn a_call_that_was_cut_has_its_result_when_it_is_asked_for_again(on: Flavour) {
    let server = started(on);
    let (key, counted) = (fresh_key(), fresh_key());
    let mut arguments = ticks(10, 30);
    arguments["key"] = json!(counted);
    let mut message = said(&call(1, "ticker", arguments));
    message["params"]["_meta"]["progressToken"] = json!(1);
    let request = mirrored(server.address, &message).with("Idempotency-Key", &key);
    let mut cut = open(server.address, &request);
    cut.event();
    cut.reset();
    // While it runs, and after.
    for wait in [0, 500] {
        sleep(Duration::from_millis(wait));
        for _ in 0..3 {
            assert_eq!(executions(&result(&ask(server.address, &request))), 1);
        }
    }
    // Without the key it runs again.
    let keyless = mirrored(server.address, &message);
    assert_eq!(executions(&result(&ask(server.address, &keyless))), 2);
}
