//! The same server without sessions (2026-07-28): the same tests on rmcp's transport and on ours.

use std::net::SocketAddr;

use rejoin_tests::check::soon;
use rejoin_tests::session::{NOVEMBER, Session, call, messages_of, request, text_of};
use rejoin_tests::sse::Block;
use rejoin_tests::stateless::{JULY, alone, mirrored, said};
use rejoin_tests::wire::{Answer, Connection, Stream, ask, open};
use serde_json::{Value, json};

use crate::both::ticks;
use crate::sides::{Server, Side, on_both_sides};

on_both_sides!(
    discover_tells_the_revisions_and_what_the_server_can_do,
    the_tools_are_listed_without_a_session,
    each_tool_computes_without_a_session,
    errors_come_whole_and_with_their_status,
    what_the_revision_has_no_more_is_not_found,
    nothing_of_a_request_is_left_for_the_next,
    a_tool_reads_the_http_request_that_it_came_with,
    progress_comes_on_the_requests_own_stream,
    many_at_once_keep_to_themselves,
    a_log_message_comes_where_its_level_was_asked_for,
    asking_the_client_is_refused_to_the_tool,
    closing_the_stream_cancels_the_tool,
    closing_the_connection_before_anything_was_said_cancels_the_tool,
    whoever_listens_is_told_of_changes_under_its_own_id,
    leaving_a_stream_of_changes_is_told_to_its_handler,
    both_eras_are_served_side_by_side,
);

pub(crate) fn tell(address: SocketAddr, message: &Value) -> Answer {
    ask(address, &alone(address, message))
}

/// The last message of an answer; an error with a status of its own is the only one.
pub(crate) fn last(answer: &Answer) -> Value {
    if answer.status() != 200 {
        return answer.json();
    }
    messages_of(answer).pop().unwrap_or_else(|| panic!("nothing in {}", answer.head))
}

pub(crate) fn result(address: SocketAddr, message: &Value) -> Value {
    let message = last(&tell(address, message));
    message.get("result").unwrap_or_else(|| panic!("no result in {message}")).clone()
}

fn text(address: SocketAddr, tool: &str, arguments: Value) -> String {
    text_of(&result(address, &call(1, tool, arguments))).to_owned()
}

/// A call that says more in its `_meta`.
pub(crate) fn with_meta(message: &Value, key: &str, value: Value) -> Value {
    let mut message = said(message);
    message["params"]["_meta"][key] = value;
    message
}

fn messages(stream: &mut Stream) -> Vec<Value> {
    stream.rest().iter().filter(|block| block.is_message()).map(Block::json).collect()
}

fn discover_tells_the_revisions_and_what_the_server_can_do(side: Side) {
    let server = Server::start(side);
    let discovered = result(server.address, &request("d", "server/discover", json!({})));
    let versions = discovered["supportedVersions"].as_array().expect("versions");
    assert!(versions.contains(&json!(JULY)) && versions.contains(&json!(NOVEMBER)), "{discovered}");
    assert_eq!(discovered["capabilities"]["tools"]["listChanged"], true, "{discovered}");
    assert_eq!(discovered["resultType"], "complete");
}

fn the_tools_are_listed_without_a_session(side: Side) {
    let server = Server::start(side);
    let listed = result(server.address, &request(1, "tools/list", json!({})));
    assert_eq!(listed["tools"].as_array().expect("a list").len(), 20, "{listed}");
    assert_eq!(listed["resultType"], "complete");
    soon("its service ends", || server.everyone.services() == 0);
}

fn each_tool_computes_without_a_session(side: Side) {
    let server = Server::start(side);
    let expected = [
        ("echo", json!({ "text": "a \"b\" ü 𝄞\n" }), "a \"b\" ü 𝄞\n"),
        ("reverse", json!({ "text": "abc" }), "cba"),
        ("words", json!({ "text": "one two  three" }), "3"),
        ("upper", json!({ "text": "abc" }), "ABC"),
        ("add", json!({ "a": 2, "b": -5 }), "-3"),
        ("multiply", json!({ "a": 6, "b": 7 }), "42"),
        ("sum", json!({ "numbers": [1, 2, 3] }), "6"),
        ("greatest", json!({ "numbers": [1, 9, 3] }), "9"),
    ];
    for (tool, arguments, result) in expected {
        assert_eq!(text(server.address, tool, arguments), result, "{tool}");
    }
    let picture = result(server.address, &call("p", "picture", json!({})));
    assert_eq!(picture["content"][0]["mimeType"], "image/gif", "{picture}");
    let divided = result(server.address, &call("d", "divide", json!({ "a": 17, "b": 5 })));
    assert_eq!(divided["structuredContent"], json!({ "quotient": 3, "remainder": 2 }));
    soon("their services end", || server.everyone.services() == 0);
}

fn errors_come_whole_and_with_their_status(side: Side) {
    let server = Server::start(side);
    let refused = tell(server.address, &call("two", "divide", json!({ "a": 17, "b": 0 })));
    assert_eq!(refused.status(), 200);
    let refused = last(&refused);
    assert_eq!(refused["error"], json!({ "code": -32042, "message": "division by zero", "data": { "a": 17 } }));
    assert_eq!(refused["id"], "two");
    let none = result(server.address, &call(1, "greatest", json!({ "numbers": [] })));
    assert_eq!((&none["isError"], text_of(&none)), (&json!(true), "no numbers"));
    assert_eq!(last(&tell(server.address, &call(2, "no_such_tool", json!({}))))["error"]["code"], -32602);
    let unknown = tell(server.address, &request(3, "acme/thing", json!({})));
    assert_eq!((unknown.status(), &last(&unknown)["error"]["code"]), (404, &json!(-32601)));
    let unserved = mirrored(
        server.address,
        &with_meta(&request(4, "tools/list", json!({})), rejoin_tests::stateless::VERSION, json!("2031-01-01")),
    );
    let unserved = ask(server.address, &unserved.set("MCP-Protocol-Version", "2031-01-01"));
    assert_eq!(unserved.status(), 400);
    assert_eq!(last(&unserved)["error"]["code"], -32022);
}

fn what_the_revision_has_no_more_is_not_found(side: Side) {
    let server = Server::start(side);
    for method in ["ping", "resources/subscribe", "resources/unsubscribe"] {
        // A field that rmcp's transport asks for, of those that name something.
        let asked = alone(server.address, &request(1, method, json!({ "uri": "a:b" })));
        let answer = ask(server.address, &if method == "ping" { asked } else { asked.with("Mcp-Name", "a:b") });
        assert_eq!((answer.status(), &last(&answer)["error"]["code"]), (404, &json!(-32601)), "{method}");
    }
}

fn nothing_of_a_request_is_left_for_the_next(side: Side) {
    let server = Server::start(side);
    for _ in 0..3 {
        assert_eq!(text(server.address, "increment", json!({})), "1");
    }
    assert_eq!(text(server.address, "counter", json!({})), "0");
    soon("their services end", || server.everyone.services() == 0);
    assert_eq!(server.everyone.cancelled(), 0);
}

fn a_tool_reads_the_http_request_that_it_came_with(side: Side) {
    let server = Server::start(side);
    let asked = alone(server.address, &call(1, "header", json!({ "name": "x-flavour" })));
    let answer = last(&ask(server.address, &asked.clone().with("X-Flavour", "lemon")));
    assert_eq!(text_of(&answer["result"]), "lemon");
    assert_eq!(text_of(&last(&ask(server.address, &asked))["result"]), "none");
}

fn progress_comes_on_the_requests_own_stream(side: Side) {
    let server = Server::start(side);
    let asked = with_meta(&call("mine", "ticker", json!({ "count": 3, "interval_ms": 1 })), "progressToken", json!("my token"));
    let messages = messages(&mut open(server.address, &mirrored(server.address, &asked)));
    assert_eq!(messages.len(), 4, "{messages:?}");
    for (index, message) in messages[..3].iter().enumerate() {
        assert_eq!(message["params"]["progressToken"], "my token", "{message}");
        assert_eq!(message["params"]["progress"].as_f64(), Some(index as f64 + 1.0), "{message}");
    }
    assert_eq!((&messages[3]["id"], &messages[3]["result"]["resultType"]), (&json!("mine"), &json!("complete")));
    soon("its service ends", || server.everyone.services() == 0);
}

fn many_at_once_keep_to_themselves(side: Side) {
    let server = Server::start(side);
    // All have one id and one token: neither is anybody's but its own request's.
    let asked =
        |count: u64| with_meta(&call(1, "ticker", json!({ "count": count, "interval_ms": 20 })), "progressToken", json!(1));
    let mut streams: Vec<_> =
        (2..8).map(|count| (count, open(server.address, &mirrored(server.address, &asked(count))))).collect();
    for (count, stream) in &mut streams {
        let blocks = stream.rest();
        assert_eq!(ticks(&blocks), (1..=*count).collect::<Vec<_>>());
        assert!(blocks.last().expect("an answer").json()["result"].is_object());
    }
}

fn a_log_message_comes_where_its_level_was_asked_for(side: Side) {
    let server = Server::start(side);
    let asked = with_meta(&call(1, "log", json!({ "text": "hello" })), "io.modelcontextprotocol/logLevel", json!("info"));
    let messages = messages(&mut open(server.address, &mirrored(server.address, &asked)));
    assert_eq!(messages.len(), 2, "{messages:?}");
    assert_eq!((&messages[0]["method"], &messages[0]["params"]["data"]), (&json!("notifications/message"), &json!("hello")));
    assert_eq!(text_of(&messages[1]["result"]), "logged");
}

fn asking_the_client_is_refused_to_the_tool(side: Side) {
    let server = Server::start(side);
    for tool in ["ask", "ask_aside", "roots"] {
        let answer = last(&tell(server.address, &call(1, tool, json!({}))));
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{tool}: {answer}"));
        assert!(message.contains("server-to-client requests are not allowed"), "{tool}: {answer}");
    }
}

fn closing_the_stream_cancels_the_tool(side: Side) {
    let server = Server::start(side);
    let asked = with_meta(&call(1, "hold", json!({})), "progressToken", json!(1));
    let mut stream = open(server.address, &mirrored(server.address, &asked));
    stream.event();
    stream.reset();
    soon("the tool is told", || server.everyone.cancelled() == 1);
    soon("its service ends", || server.everyone.services() == 0);
}

fn closing_the_connection_before_anything_was_said_cancels_the_tool(side: Side) {
    let server = Server::start(side);
    let mut connection = Connection::open(server.address);
    connection.send(&alone(server.address, &call(5, "hold", json!({}))));
    soon("it runs", || server.everyone.services() == 1);
    connection.reset();
    soon("the tool is told", || server.everyone.cancelled() == 1);
    soon("its service ends", || server.everyone.services() == 0);
}

/// A request for the stream of changes of tools.
fn listening(address: SocketAddr, id: &str) -> rejoin_tests::wire::Request {
    let filter = json!({ "notifications": { "toolsListChanged": true, "promptsListChanged": true } });
    alone(address, &request(id, "subscriptions/listen", filter))
}

/// What a message on a stream of changes says that it comes of.
fn subscription(of: &Value) -> &Value {
    &of["_meta"]["io.modelcontextprotocol/subscriptionId"]
}

fn whoever_listens_is_told_of_changes_under_its_own_id(side: Side) {
    let server = Server::start(side);
    let mut streams: Vec<_> = ["one", "two"].map(|id| (id, open(server.address, &listening(server.address, id)))).into();
    for (id, stream) in &mut streams {
        let said = stream.event().json();
        assert_eq!(said["method"], "notifications/subscriptions/acknowledged", "{said}");
        assert_eq!(said["params"]["notifications"]["toolsListChanged"], true, "{said}");
        assert_eq!(said["params"]["notifications"].get("promptsListChanged"), None, "the server has no prompts: {said}");
        assert_eq!(subscription(&said["params"]), *id, "{said}");
    }
    // The acknowledgement is said before the handler listens.
    soon("both listen", || server.everyone.listeners() == 2);
    server.everyone.tools_changed();
    for (id, stream) in &mut streams {
        let said = stream.event().json();
        assert_eq!(said["method"], "notifications/tools/list_changed", "{said}");
        assert_eq!(subscription(&said["params"]), *id, "{said}");
    }
    server.everyone.no_more_changes();
    for (id, stream) in &mut streams {
        let said = messages(stream).pop().expect("a result");
        assert_eq!((&said["id"], &said["result"]["resultType"]), (&json!(*id), &json!("complete")), "{said}");
        assert_eq!(subscription(&said["result"]), *id, "{said}");
    }
    soon("their services end", || server.everyone.services() == 0);
}

fn leaving_a_stream_of_changes_is_told_to_its_handler(side: Side) {
    let server = Server::start(side);
    let mut stream = open(server.address, &listening(server.address, "l"));
    stream.event();
    soon("it listens", || server.everyone.listeners() == 1);
    stream.leave();
    soon("its handler is told", || server.everyone.cancelled() == 1);
    soon("its service ends", || server.everyone.services() == 0);
}

fn both_eras_are_served_side_by_side(side: Side) {
    let server = Server::start(side);
    let session = Session::begin(server.address, NOVEMBER);
    assert_eq!(text_of(&session.result(&call(1, "increment", json!({})))), "1");
    assert_eq!(text(server.address, "increment", json!({})), "1");
    assert_eq!(text_of(&session.result(&call(2, "increment", json!({})))), "2");
    soon("the session's service alone is left", || server.everyone.services() == 1);
}
