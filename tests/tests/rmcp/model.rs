//! A handler of one's own with rmcp's typed messages, in both eras.

use std::time::Duration;

use rejoin::{Call, Handler, Json, Reply, RpcError};
use rejoin_rmcp::model;
use rejoin_tests::session::{NOVEMBER, Session, call, messages_of, request, text_of};
use rejoin_tests::stateless::alone;
use rejoin_tests::wire::ask;
use rmcp::model::{
    CallToolResult, ClientRequest, ContentBlock, ErrorData, InitializeRequestParams, InitializeResult, ServerCapabilities,
};
use serde_json::json;

use crate::july::{last, tell};

struct Typed;

impl Handler for Typed {
    const STATELESS: bool = true;

    async fn initialize(&self, _: &rejoin::Session, params: &Json) -> Result<Json, RpcError> {
        let asked: InitializeRequestParams = model::params(params)?;
        let can = ServerCapabilities::builder().enable_tools().build();
        model::result(InitializeResult::new(can).with_protocol_version(asked.protocol_version))
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        match model::request(call)? {
            ClientRequest::CallToolRequest(asked) if asked.params.name == "trace" => {
                let trace = call.traceparent().unwrap_or("none");
                model::reply(call, CallToolResult::success(vec![ContentBlock::text(trace)]))
            }
            ClientRequest::CallToolRequest(_) => {
                Err(model::error(ErrorData::invalid_params("no such tool", Some(json!({ "tools": ["trace"] })))))
            }
            ClientRequest::CustomRequest(custom) => Err(RpcError::method_not_found(&custom.method)),
            other => Err(RpcError::internal(format_args!("{other:?}"))),
        }
    }
}

fn typed() -> rejoin::ServerHandle {
    rejoin::Server::builder().shards(1).serve(|| Typed).expect("a server")
}

fn end(server: &rejoin::ServerHandle) {
    server.shutdown(Duration::ZERO);
    server.wait();
}

#[test]
fn calls_are_read_and_answered_with_rmcps_types_in_both_eras() {
    let server = typed();
    let address = server.local_addr();
    let session = Session::begin(address, NOVEMBER);
    assert!(session.server["capabilities"]["tools"].is_object(), "{}", session.server);
    let result = session.result(&call(1, "trace", json!({})));
    assert_eq!((text_of(&result), result.get("resultType")), ("none", None), "a session's client knows no resultType");
    let refused = messages_of(&session.tell(&call(2, "other", json!({})))).pop().expect("an answer");
    let error = json!({ "code": -32602, "message": "no such tool", "data": { "tools": ["trace"] } });
    assert_eq!(refused["error"], error);
    assert_eq!(last(&tell(address, &call(1, "trace", json!({}))))["result"]["resultType"], "complete");
    assert_eq!(last(&tell(address, &call(2, "other", json!({}))))["error"], error);
    let unknown = tell(address, &request(3, "acme/thing", json!({})));
    assert_eq!((unknown.status(), &last(&unknown)["error"]["code"]), (404, &json!(-32601)));
    end(&server);
}

#[test]
fn where_a_caller_is_in_its_trace_is_told_though_no_heads_are_kept() {
    const HEAD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";
    const BODY: &str = "00-4bf92f3577b34da6a3ce929d0e0e4737-00f067aa0ba902b8-00";
    let server = typed();
    let session = Session::begin(server.local_addr(), NOVEMBER);
    let mut named = call(2, "trace", json!({}));
    named["params"]["_meta"] = json!({ "traceparent": BODY });
    let asked = [(call(1, "trace", json!({})), HEAD), (named, BODY)];
    for (message, trace) in &asked {
        for request in [session.post(message), alone(session.address, message)] {
            let answer = last(&ask(session.address, &request.with("traceparent", HEAD)));
            assert_eq!(text_of(&answer["result"]), *trace, "what the message says comes before what its head does");
        }
    }
    end(&server);
}
