//! What server-everything can do, and what server-filesystem asks for, through both clients, with and without cuts.

use rejoin_tests::matrix::Flavour;
use rejoin_tests::proxy::{Asked, Cut, How, Proxy, Record};
use rejoin_tests::sdk::{Sdk, returns};
use rejoin_tests::server::Rejoin;
use serde_json::{Value, json};

use crate::public::{Folder, call, call_until, call_with_progress, clients, everything, filesystem, serving, session, until};

const RESOURCE: &str = "demo://resource/dynamic/text/1";

fn start() -> Rejoin {
    let command = everything();
    Rejoin::start(Flavour::PLAIN, &serving(&["--retry", "200ms"], &command))
}

/// Runs one session through a proxy; gives what the client saw.
fn drive(sdk: &Sdk, proxy: &Proxy, roots: &[&str], steps: &[Value]) -> Value {
    let seen = sdk.drive(&[session(&proxy.url(), roots, steps)]).pop_first().expect("one session").1;
    assert!(seen["error"].is_null(), "{}: {seen}", sdk.name);
    assert_eq!(seen["revision"], "2025-11-25", "{}", sdk.name);
    seen
}

fn text(outcome: &Value) -> &str {
    outcome["result"]["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {outcome}"))
}

#[test]
fn every_feature_works_through_it() {
    let server = start();
    for sdk in clients() {
        let steps = [
            json!({"do": "tools"}),
            json!({"do": "level", "level": "debug"}),
            until("logs", 1),
            call("trigger-sampling-request", json!({"prompt": "hello"})),
            call("trigger-elicitation-request", json!({})),
            json!({"do": "subscribe", "uri": RESOURCE}),
            call("toggle-subscriber-updates", json!({})),
            until("updates", 1),
            json!({"do": "unsubscribe", "uri": RESOURCE}),
            json!({"do": "read", "uri": RESOURCE}),
            json!({"do": "prompt", "name": "args-prompt", "arguments": {"city": "Oslo"}}),
            json!({"do": "complete", "prompt": "completable-prompt", "name": "department", "value": "E"}),
            call("get-structured-content", json!({"location": "Chicago"})),
            json!({"do": "roots", "roots": ["file:///b", "file:///c"]}),
            until("logs", 4),
        ];
        let seen = drive(&sdk, &Proxy::transparent(server.address), &["file:///a"], &steps);
        let (did, name) = (&seen["did"], sdk.name);
        for tool in ["trigger-sampling-request", "trigger-elicitation-request", "get-roots-list"] {
            assert!(did[0].as_array().expect("tools").contains(&json!(tool)), "{name}: it knows what the client can: {seen}");
        }
        assert!(text(&did[3]).contains("sampled Resource trigger-sampling-request context: hello"), "{name}: {seen}");
        assert_eq!(did[4]["result"]["content"][1]["text"], "User inputs:\n- Name: Ann", "{name}: {seen}");
        // One at once; another, if five seconds went by before it unsubscribed.
        let updates = seen["updates"].as_array().expect("updates");
        assert!(updates.iter().all(|uri| uri == RESOURCE) && updates.len() < 3, "{name}: {updates:?}");
        assert_eq!(did[9]["contents"][0]["uri"], RESOURCE, "{name}: {seen}");
        assert_eq!(did[10]["messages"][0]["content"]["text"], "What's weather in Oslo?", "{name}: {seen}");
        assert_eq!(did[11]["completion"]["values"], json!(["Engineering"]), "{name}: {seen}");
        assert!(did[12]["result"]["structuredContent"]["temperature"].is_number(), "{name}: {seen}");
        let logs: Vec<_> = seen["logs"].as_array().expect("logs").iter().filter_map(Value::as_str).map(str::trim).collect();
        let logged = [
            "Roots updated: 1 root(s) received from client",
            &format!("Received Subscribe Resource request for URI: {RESOURCE}"),
            &format!("Received Unsubscribe Resource request: {RESOURCE}"),
            "Roots updated: 2 root(s) received from client",
        ];
        assert_eq!(logs, logged, "{name}");
        let asked = json!(["roots/list", "sampling/createMessage", "elicitation/create", "roots/list"]);
        assert_eq!(seen["asked"], asked, "{name}");
    }
}

/// A task's results come on streams of later requests; its question to the user as well.
#[test]
fn a_task_asks_its_user_and_ends() {
    let server = start();
    let task = json!({"do": "task", "tool": "simulate-research-query", "arguments": {"topic": "tides", "ambiguous": true}});
    // The client asks which tools are tasks only when it is told to.
    let steps = [until("logs", 1), json!({"do": "tools"}), task];
    let sdk = Sdk::typescript("script");
    let seen = drive(&sdk, &Proxy::transparent(server.address), &[], &steps);
    assert!(text(&seen["did"][2]).contains("- **Clarification**: current"), "{seen}");
    assert_eq!(seen["asked"], json!(["roots/list", "elicitation/create"]), "{seen}");
}

/// Cut right after the server's question: it is asked once, answered once, and the answer reaches the call.
#[test]
fn a_question_to_the_user_survives_a_cut() {
    let server = start();
    for sdk in clients() {
        for how in [How::Reset, How::CleanEnd] {
            let proxy = Proxy::start(server.address, move |asked: &Asked, _: &Record| {
                asked.calls("tools/call").then_some(Cut { after_messages: 1, how })
            });
            let steps = [until("logs", 1), call("trigger-sampling-request", json!({"prompt": "cut"}))];
            let seen = drive(&sdk, &proxy, &["file:///a"], &steps);
            let label = format!("{}, {how:?}", sdk.name);
            assert!(text(&seen["did"][1]).contains("sampled Resource trigger-sampling-request context: cut"), "{label}: {seen}");
            assert_eq!(seen["asked"], json!(["roots/list", "sampling/createMessage"]), "{label}");
            returns(&label, &proxy.record(), 1);
        }
    }
}

/// The standalone stream is cut after each of its messages in turn: the server's question, its log, and its next question.
#[test]
fn what_the_server_says_by_itself_survives_cuts() {
    let server = start();
    for sdk in clients() {
        let how = How::CleanEnd;
        let proxy = Proxy::start(server.address, move |asked: &Asked, record: &Record| {
            (asked.head.method() == "GET" && record.cuts.len() < 3).then_some(Cut { after_messages: 1, how })
        });
        let steps = [until("logs", 1), json!({"do": "roots", "roots": ["file:///b", "file:///c"]}), until("logs", 2)];
        let seen = drive(&sdk, &proxy, &["file:///a"], &steps);
        let logs = json!(["Roots updated: 1 root(s) received from client", "Roots updated: 2 root(s) received from client"]);
        assert_eq!((&seen["logs"], &seen["asked"]), (&logs, &json!(["roots/list", "roots/list"])), "{}", sdk.name);
        returns(sdk.name, &proxy.record(), 3);
    }
}

/// A cancelled call is over for its client at once, and what the server still says of it reaches nobody.
#[test]
fn a_cancelled_call_leaves_the_session_at_work() {
    let server = start();
    for sdk in clients() {
        let mut long = call_with_progress("trigger-long-running-operation", json!({"duration": 1, "steps": 10}));
        long["cancel_after"] = json!(2);
        let again = call_with_progress("trigger-long-running-operation", json!({"duration": 1.5, "steps": 3}));
        let seen = drive(&sdk, &Proxy::transparent(server.address), &[], &[long, again]);
        let did = &seen["did"];
        assert!(did[0]["error"].as_str().is_some_and(|error| error.contains("enough")), "{}: {seen}", sdk.name);
        let ticks: Vec<_> = [&did[0], &did[1]].map(|call| call["ticks"].as_array().expect("ticks").len()).into();
        assert_eq!(ticks, [2, 3], "{}: {seen}", sdk.name);
        assert!(text(&did[1]).ends_with("Steps: 3."), "{}: {seen}", sdk.name);
    }
}

/// It asks for roots at once after the handshake, before its client listens, and serves what it is told: first one folder, then another.
#[test]
fn filesystem_serves_its_clients_roots() {
    let (given, first, second) = (Folder::new(), Folder::new(), Folder::new());
    for folder in [&given, &first, &second] {
        folder.write("file", &format!("in {}", folder.path().display()));
    }
    let url = |folder: &Folder| format!("file://{}", folder.path().display());
    let command = filesystem(given.path());
    let server = Rejoin::start(Flavour::PLAIN, &serving(&[], &command));
    for sdk in clients() {
        let served = |folder: &Folder| call_until("list_allowed_directories", &folder.path().display().to_string());
        let read = |folder: &Folder| call("read_text_file", json!({"path": folder.file("file")}));
        let change = json!({"do": "roots", "roots": [url(&second)]});
        let steps = [served(&first), read(&first), read(&given), change, served(&second), read(&second), read(&first)];
        let seen = drive(&sdk, &Proxy::transparent(server.address), &[&url(&first)], &steps);
        let (did, name) = (&seen["did"], sdk.name);
        assert_eq!(seen["asked"], json!(["roots/list", "roots/list"]), "{name}: {seen}");
        for (at, folder) in [(1, &first), (5, &second)] {
            assert_eq!(text(&did[at]), folder.read("file"), "{name}: {seen}");
        }
        for at in [2, 6] {
            assert_eq!(did[at]["result"]["isError"], true, "{name}: {seen}");
        }
    }
}
