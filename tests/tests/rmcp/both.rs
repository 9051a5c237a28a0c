//! What a server may rely on, wherever it is served: the same tests on rmcp's transport and on ours.

use rejoin_tests::check::soon;
use rejoin_tests::session::{NOVEMBER, Session, call, call_with_token, fresh_key, notification, request, text_of, tick};
use rejoin_tests::wire::ask as send;
use serde_json::{Value, json};

use crate::sides::{Server, Side, on_both_sides};

on_both_sides!(
    initialize_tells_the_servers_capabilities,
    twenty_tools_are_listed_with_their_schemas,
    tools_that_compute_give_their_results,
    structured_results_and_errors_arrive_whole,
    a_results_error_is_no_jsonrpc_error,
    an_unknown_method_and_an_unknown_tool_are_refused,
    sessions_do_not_share_their_servers_state,
    a_tool_reads_the_http_request,
    progress_comes_under_the_clients_token_before_the_result,
    concurrent_calls_with_progress_keep_to_themselves,
    a_log_message_arrives,
    a_tool_asks_the_clients_model_on_its_own_stream,
    a_spawned_task_asks_the_clients_model,
    a_tool_asks_for_roots,
    a_clients_error_is_the_tools,
    a_cancelled_call_is_cancelled_for_its_tool,
    a_deleted_session_is_gone,
);

fn begun(side: Side) -> (Server, Session) {
    let server = Server::start(side);
    let session = Session::begin_able(server.address, NOVEMBER, json!({ "sampling": {}, "roots": {} }));
    (server, session)
}

/// What a call says whose id is no other's: the same call under the same id would be the same execution.
fn text(session: &Session, tool: &str, arguments: Value) -> String {
    text_of(&session.result(&call(fresh_key(), tool, arguments))).to_owned()
}

fn initialize_tells_the_servers_capabilities(side: Side) {
    let (_server, session) = begun(side);
    assert!(session.server["capabilities"]["tools"].is_object(), "{}", session.server);
    assert_eq!(session.server["protocolVersion"], NOVEMBER);
}

fn twenty_tools_are_listed_with_their_schemas(side: Side) {
    let (_server, session) = begun(side);
    let listed = session.result(&request(1, "tools/list", json!({})));
    let tools = listed["tools"].as_array().expect("a list");
    assert_eq!(tools.len(), 20, "{listed}");
    assert!(tools.iter().all(|tool| tool["description"].is_string() && tool["inputSchema"]["type"] == "object"), "{listed}");
    let divide = tools.iter().find(|tool| tool["name"] == "divide").expect("a tool");
    assert!(divide["outputSchema"]["properties"]["remainder"].is_object(), "{divide}");
}

fn tools_that_compute_give_their_results(side: Side) {
    let (_server, session) = begun(side);
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
        assert_eq!(text(&session, tool, arguments), result, "{tool}");
    }
    let picture = session.result(&call(8, "picture", json!({})));
    assert_eq!(picture["content"][0]["mimeType"], "image/gif", "{picture}");
}

/// The JSON-RPC error that a request gets.
fn error(session: &Session, message: &Value) -> Value {
    let answer = session.tell(message);
    let messages = rejoin_tests::session::messages_of(&answer);
    messages.iter().find(|found| found["id"] == message["id"]).unwrap_or_else(|| panic!("{messages:?}"))["error"].clone()
}

fn structured_results_and_errors_arrive_whole(side: Side) {
    let (_server, session) = begun(side);
    let result = session.result(&call(1, "divide", json!({ "a": 17, "b": 5 })));
    assert_eq!(result["structuredContent"], json!({ "quotient": 3, "remainder": 2 }));
    let refused = error(&session, &call("two", "divide", json!({ "a": 17, "b": 0 })));
    assert_eq!(refused, json!({ "code": -32042, "message": "division by zero", "data": { "a": 17 } }));
}

fn a_results_error_is_no_jsonrpc_error(side: Side) {
    let (_server, session) = begun(side);
    let result = session.result(&call(1, "greatest", json!({ "numbers": [] })));
    assert_eq!((&result["isError"], text_of(&result)), (&json!(true), "no numbers"));
}

fn an_unknown_method_and_an_unknown_tool_are_refused(side: Side) {
    let (_server, session) = begun(side);
    assert_eq!(error(&session, &request(1, "acme/thing", json!({})))["code"], -32601);
    assert_eq!(error(&session, &call(2, "no_such_tool", json!({})))["code"], -32602);
    assert_eq!(session.result(&call(3, "add", json!({ "a": "x" })))["isError"], true);
}

fn sessions_do_not_share_their_servers_state(side: Side) {
    let (server, session) = begun(side);
    for count in 1..=3 {
        assert_eq!(text(&session, "increment", json!({})), count.to_string());
    }
    let other = Session::begin(server.address, NOVEMBER);
    assert_eq!(text(&other, "counter", json!({})), "0");
    assert_eq!(text(&session, "counter", json!({})), "3");
}

fn a_tool_reads_the_http_request(side: Side) {
    let (server, session) = begun(side);
    let asked = session.post(&call(1, "header", json!({ "name": "x-flavour" }))).with("X-Flavour", "lemon");
    let result = rejoin_tests::session::result_of(&send(server.address, &asked), &json!(1));
    assert_eq!(text_of(&result), "lemon");
    assert_eq!(text(&session, "header", json!({ "name": "x-flavour" })), "none");
}

fn progress_comes_under_the_clients_token_before_the_result(side: Side) {
    let (_server, session) = begun(side);
    let asked = call_with_token("mine", "my token", "ticker", json!({ "count": 3, "interval_ms": 1 }));
    let blocks = session.call(&asked).rest();
    let messages: Vec<Value> = blocks.iter().filter(|block| block.is_message()).map(|block| block.json()).collect();
    assert_eq!(messages.len(), 4, "{messages:?}");
    for (index, message) in messages[..3].iter().enumerate() {
        assert_eq!(message["params"]["progressToken"], "my token", "{message}");
        assert_eq!(message["params"]["progress"].as_f64(), Some(index as f64 + 1.0), "{message}");
    }
    assert_eq!(messages[3]["id"], "mine");
}

fn concurrent_calls_with_progress_keep_to_themselves(side: Side) {
    let (_server, session) = begun(side);
    let asked = |id: u64| call_with_token(id, id + 100, "ticker", json!({ "count": 4, "interval_ms": 5 }));
    let mut streams: Vec<_> = (1..=4).map(|id| (id, session.call(&asked(id)))).collect();
    for (id, stream) in &mut streams {
        let blocks = stream.rest();
        let messages: Vec<Value> = blocks.iter().filter(|block| block.is_message()).map(|block| block.json()).collect();
        assert_eq!(messages.len(), 5, "{messages:?}");
        assert!(messages[..4].iter().all(|message| message["params"]["progressToken"] == *id + 100), "{messages:?}");
        assert_eq!(messages[4]["id"], *id);
    }
}

fn a_log_message_arrives(side: Side) {
    let (_server, session) = begun(side);
    let mut listening = session.listen();
    let answer = session.tell(&call(1, "log", json!({ "text": "hello" })));
    let is_log = |message: &Value| message["method"] == "notifications/message" && message["params"]["data"] == "hello";
    // It names no call: a transport may send it on the call's stream or on the standalone one.
    if !rejoin_tests::session::messages_of(&answer).iter().any(is_log) {
        listening.until(|block| block.is_message() && is_log(&block.json()));
    }
}

/// The request to the client among a call's events, answered; then the call's result.
fn answered(session: &Session, tool: &str, method: &str, answer: Value) -> Value {
    let mut stream = session.call(&call(1, tool, json!({})));
    let asked = stream.until(|block| block.is_message() && block.json()["method"] == method).pop().expect("a request").json();
    let mut message = json!({ "jsonrpc": "2.0", "id": asked["id"] });
    message.as_object_mut().expect("an object").extend(answer.as_object().expect("an object").clone());
    assert_eq!(session.tell(&message).status(), 202);
    let last = stream.rest().pop().expect("an answer").json();
    assert_eq!(last["id"], 1, "{last}");
    last
}

fn sampled() -> Value {
    json!({ "result": { "role": "assistant", "content": { "type": "text", "text": "that" }, "model": "a model" } })
}

fn a_tool_asks_the_clients_model_on_its_own_stream(side: Side) {
    let (_server, session) = begun(side);
    assert_eq!(text_of(&answered(&session, "ask", "sampling/createMessage", sampled())["result"]), "a model");
}

fn a_spawned_task_asks_the_clients_model(side: Side) {
    let (_server, session) = begun(side);
    if side != Side::Rmcp {
        // The only call in flight is the one that it is for.
        assert_eq!(text_of(&answered(&session, "ask_aside", "sampling/createMessage", sampled())["result"]), "a model");
        return;
    }
    let mut listening = session.listen();
    let mut stream = session.call(&call(1, "ask_aside", json!({})));
    let is_question = |block: &rejoin_tests::sse::Block| block.is_message() && block.json()["method"] == "sampling/createMessage";
    let asked = listening.until(is_question).pop().expect("a request").json();
    let mut message = sampled();
    message["jsonrpc"] = json!("2.0");
    message["id"] = asked["id"].clone();
    assert_eq!(session.tell(&message).status(), 202);
    assert_eq!(text_of(&stream.rest().pop().expect("an answer").json()["result"]), "a model");
}

fn a_tool_asks_for_roots(side: Side) {
    let (_server, session) = begun(side);
    let roots = json!({ "result": { "roots": [{ "uri": "file:///a" }, { "uri": "file:///b" }] } });
    assert_eq!(text_of(&answered(&session, "roots", "roots/list", roots)["result"]), "file:///a file:///b");
}

fn a_clients_error_is_the_tools(side: Side) {
    let (_server, session) = begun(side);
    let refused = json!({ "error": { "code": -1, "message": "the user said no" } });
    let answer = answered(&session, "ask", "sampling/createMessage", refused);
    let message = answer["error"]["message"].as_str().expect("a message");
    assert!(message.contains("the user said no"), "{answer}");
}

fn a_cancelled_call_is_cancelled_for_its_tool(side: Side) {
    let (server, session) = begun(side);
    let _held = session.call(&call(5, "hold", json!({})));
    let cancel = notification("notifications/cancelled", json!({ "requestId": 5 }));
    assert_eq!(session.tell(&cancel).status(), 202);
    soon("the tool is told", || server.everyone.cancelled() == 1);
    assert_eq!(text(&session, "echo", json!({ "text": "still here" })), "still here");
}

fn a_deleted_session_is_gone(side: Side) {
    let (server, session) = begun(side);
    assert_eq!(server.everyone.services(), 1);
    let deleted = send(server.address, &session.delete());
    assert!([200, 202, 204].contains(&deleted.status()), "{}", deleted.head);
    assert_eq!(session.tell(&call(1, "echo", json!({ "text": "x" }))).status(), 404);
    soon("its service ends", || server.everyone.services() == 0);
}

/// What a stream's ticks are, for those who only look at them.
pub(crate) fn ticks(blocks: &[rejoin_tests::sse::Block]) -> Vec<u64> {
    blocks.iter().filter_map(tick).collect()
}
