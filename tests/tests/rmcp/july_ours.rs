//! What our transport does for an rmcp server in 2026-07-28 that rmcp's does otherwise, or not at all.

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use rejoin_tests::check::{refused, soon};
use rejoin_tests::session::{NOVEMBER, Session, call, executions, fresh_key, request, text_of};
use rejoin_tests::stateless::{JULY, alone, mirrored};
use rejoin_tests::wire::{ask, open};
use rmcp::model::{CallToolRequestParams, CallToolResponse, CallToolResult, ContentBlock, ProtocolVersion, Tool};
use rmcp::service::RequestContext;
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::{Value, json};

use crate::july::{last, result, tell, with_meta};
use crate::sides::Server;

#[test]
fn discover_names_the_revisions_that_are_served_here_and_no_other() {
    let server = Server::ours();
    let discovered = result(server.address, &request(1, "server/discover", json!({})));
    let mut versions: Vec<_> = discovered["supportedVersions"].as_array().expect("versions").clone();
    versions.sort_by_key(|version| std::cmp::Reverse(version.to_string()));
    assert_eq!(versions, [JULY, NOVEMBER, "2025-06-18", "2025-03-26"]);
}

#[test]
fn a_tool_that_panics_fails_its_request_and_nothing_else() {
    let server = Server::ours();
    assert_eq!(last(&tell(server.address, &call(1, "panic", json!({}))))["error"]["code"], -32603);
    soon("its service ends", || server.everyone.services() == 0);
    assert_eq!(text_of(&result(server.address, &call(2, "echo", json!({ "text": "here" })))), "here");
}

#[test]
fn a_request_that_is_asked_again_under_its_key_ran_once() {
    let server = Server::ours();
    let key = fresh_key();
    let asked = alone(server.address, &call(1, "ticker", json!({ "count": 1, "interval_ms": 300, "key": key })));
    let asked = asked.with("Idempotency-Key", &key);
    let mut cut = rejoin_tests::wire::Connection::open(server.address);
    cut.send(&asked);
    soon("it runs", || server.everyone.services() == 1);
    cut.reset();
    assert_eq!(executions(&last(&ask(server.address, &asked))["result"]), 1);
    assert_eq!(server.everyone.cancelled(), 0);
}

#[test]
fn logs_come_from_the_level_on_that_the_request_asked_for() {
    let server = Server::ours();
    let logged = |message: &Value| open(server.address, &mirrored(server.address, message)).rest().len();
    let asked = call(1, "log", json!({ "text": "hello" }));
    let with_level = |level: &str| with_meta(&asked, "io.modelcontextprotocol/logLevel", json!(level));
    // The tool logs at `info`.
    assert_eq!(["debug", "info"].map(|level| logged(&with_level(level))), [2, 2]);
    let answer = ask(server.address, &mirrored(server.address, &with_level("warning")));
    assert_eq!(answer.head.field("Content-Type"), Some("application/json"), "nothing was said before the result");
    assert_eq!(tell(server.address, &asked).head.field("Content-Type"), Some("application/json"));
}

#[test]
fn a_drain_ends_streams_of_changes_and_their_services() {
    let server = Server::ours();
    let filter = json!({ "notifications": { "toolsListChanged": true } });
    let mut stream = open(server.address, &alone(server.address, &request(1, "subscriptions/listen", filter)));
    stream.event();
    soon("it listens", || server.everyone.listeners() == 1);
    let handle = server.handle.as_ref().expect("ours");
    handle.shutdown(Duration::from_secs(20));
    assert!(stream.rest().is_empty());
    handle.wait();
    soon("its handler is told", || server.everyone.cancelled() == 1);
    soon("its service ends", || server.everyone.services() == 0);
}

/// A server as nobody should write it.
#[derive(Clone)]
struct Odd(&'static str);

impl ServerHandler for Odd {
    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        match self.0 {
            "of sessions" => Cow::Borrowed(&[ProtocolVersion::V_2025_11_25]),
            _ => Cow::Borrowed(ProtocolVersion::KNOWN_VERSIONS),
        }
    }

    fn get_tool(&self, name: &str) -> Option<Tool> {
        let region = json!({ "type": "object", "properties": { "region": { "type": "string", "x-mcp-header": "Region" } } });
        let schema = Arc::new(region.as_object().cloned().unwrap_or_default());
        (name == "regional").then(|| Tool::new("regional", "Answers with what it was asked.", schema))
    }

    async fn call_tool(
        &self,
        _: CallToolRequestParams,
        context: RequestContext<RoleServer>,
    ) -> Result<CallToolResponse, ErrorData> {
        let _ = context.peer.notify_tool_list_changed().await;
        let client = context.peer.peer_info().map(|info| info.client_info.name.clone());
        Ok(CallToolResult::success(vec![ContentBlock::text(client.unwrap_or_default())]).into())
    }
}

fn odd(what: &'static str, test: impl FnOnce(SocketAddr)) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let entered = runtime.enter();
    let factory = move || match what {
        "no service" => Err(std::io::Error::other("no room for it")),
        "no factory" => panic!("as asked"),
        other => Ok(Odd(other)),
    };
    let handle = rejoin_rmcp::serve(rejoin::Server::builder().shards(1), factory).expect("a server");
    drop(entered);
    test(handle.local_addr());
    handle.shutdown(Duration::ZERO);
    handle.wait();
}

#[test]
fn a_service_that_cannot_be_made_says_why() {
    for (what, why) in [("no service", "no room for it"), ("no factory", "panicked")] {
        odd(what, |address| {
            let answer = last(&tell(address, &call(1, "any", json!({}))));
            let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{what}: {answer}"));
            assert!(message.contains(why), "{what}: {answer}");
        });
    }
}

#[test]
fn a_service_of_sessions_only_says_so_and_a_session_begins() {
    odd("of sessions", |address| {
        let answer = tell(address, &call(1, "any", json!({})));
        assert_eq!((answer.status(), &last(&answer)["error"]["code"]), (400, &json!(-32022)));
        assert_eq!(last(&answer)["error"]["data"]["supported"], json!([NOVEMBER]));
        assert_eq!(Session::begin(address, NOVEMBER).server["protocolVersion"], NOVEMBER);
    });
}

#[test]
fn fields_that_repeat_arguments_must_be_right() {
    odd("fine", |address| {
        let asked = alone(address, &call(1, "regional", json!({ "region": "us" })));
        for wrong in [asked.clone(), asked.clone().with("Mcp-Param-Region", "eu")] {
            let answer = ask(address, &wrong);
            assert_eq!((answer.status(), &last(&answer)["error"]["code"]), (400, &json!(-32020)));
        }
        assert!(last(&ask(address, &asked.with("Mcp-Param-Region", "us")))["result"].is_object());
    });
}

#[test]
fn a_change_is_told_to_those_who_listen_and_not_on_the_answer_of_a_call() {
    odd("fine", |address| {
        let client = json!({ "name": "tester", "version": "1" });
        let asked = with_meta(&call(1, "any", json!({})), "io.modelcontextprotocol/clientInfo", client);
        let answer = ask(address, &mirrored(address, &asked));
        assert_eq!(answer.head.field("Content-Type"), Some("application/json"), "nothing was said before the result");
        assert_eq!(text_of(&last(&answer)["result"]), "tester", "what the request says of its client");
    });
}

#[test]
fn what_a_service_does_not_do_is_not_found() {
    odd("fine", |address| {
        let listen = request(1, "subscriptions/listen", json!({ "notifications": {} }));
        for message in [listen, request(2, "acme/thing", json!({}))] {
            let answer = tell(address, &message);
            assert_eq!((answer.status(), &last(&answer)["error"]["code"]), (404, &json!(-32601)), "{message}");
        }
        refused(&tell(address, &request(3, "ping", json!({}))), 404, "method_not_found");
    });
}
