//! DELETE, OPTIONS and the methods that there are none of; what a browser's script may see.

use rejoin_tests::check::{empty, expired, never_cached, refused};
use rejoin_tests::http::Head;
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{NOVEMBER, Session, call, executions, initialize, tick, ticks};
use rejoin_tests::wire::{Connection, Request, ask, open};
use serde_json::json;

on_every_server!(
    delete_ends_the_session_its_calls_and_its_streams,
    delete_is_refused_by_rows_0_1_5_and_6,
    delete_leaves_other_sessions_alone,
    a_preflight_is_answered_for_allowed_origins_only,
    a_browsers_script_may_read_what_it_needs,
    head_is_405_with_allow_and_no_body,
    other_methods_are_405_with_allow,
);

fn started(on: Flavour) -> (Rejoin, Session) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn delete_ends_the_session_its_calls_and_its_streams(on: Flavour) {
    let (server, session) = started(on);
    let asked = call(1, "ticker", ticks(2_000, 20));
    let mut running = session.call(&asked);
    let first = running.until(|block| tick(block) == Some(1)).pop().expect("the first tick");
    let mut listening = session.listen();
    listening.event();
    let deleted = ask(server.address, &session.delete());
    assert_eq!(deleted.status(), 204, "{}", deleted.head);
    assert!(deleted.body.is_empty());
    never_cached(&deleted.head);
    running.rest();
    assert!(listening.rest().iter().all(|block| !block.is_message()));
    expired(&ask(server.address, &session.get_after(first.cursor())), "deleted");
    expired(&ask(server.address, &session.post(&asked)), "deleted");
    expired(&ask(server.address, &session.delete()), "deleted");
}

fn delete_is_refused_by_rows_0_1_5_and_6(on: Flavour) {
    let (server, session) = started(on);
    let check = |request: Request, status, code| {
        let answer = ask(server.address, &request);
        assert_eq!((answer.status(), &answer.json()["error"]["data"]["code"]), (status, &json!(code)), "{}", answer.head);
        never_cached(&answer.head);
    };
    check(session.delete().without("Host"), 400, "bad_request");
    check(session.delete().with("Origin", "http://evil.example.com"), 403, "forbidden");
    check(session.delete().without("Mcp-Session-Id"), 400, "session_required");
    check(session.delete().set("Mcp-Session-Id", "nowhere"), 404, "session_expired");
    check(session.delete().with("Mcp-Session-Id", &session.id), 404, "session_expired");
    open(server.address, &session.get());
}

fn delete_leaves_other_sessions_alone(on: Flavour) {
    let (server, session) = started(on);
    let others: Vec<Session> = (0..4).map(|_| Session::begin(server.address, NOVEMBER)).collect();
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    for other in others {
        assert_eq!(executions(&other.result(&call(1, "ticker", ticks(1, 0)))), 1);
    }
}

/// The names in a list field, in lower case.
fn listed(head: &Head, name: &str) -> Vec<String> {
    let lists = head.all(name).flat_map(|list| list.split(','));
    lists.map(|entry| entry.trim().to_ascii_lowercase()).collect()
}

const APP: &str = "http://localhost:3000";

fn preflight(server: &Rejoin, origin: &str) -> Request {
    Request::new("OPTIONS", server.address)
        .with("Origin", origin)
        .with("Access-Control-Request-Method", "POST")
        .with("Access-Control-Request-Headers", "content-type,mcp-session-id")
}

fn a_preflight_is_answered_for_allowed_origins_only(on: Flavour) {
    let (server, _) = started(on);
    let answer = ask(server.address, &preflight(&server, APP));
    assert_eq!(answer.status() / 100, 2, "{}", answer.head);
    never_cached(&answer.head);
    assert_eq!(answer.head.field("Access-Control-Allow-Origin"), Some(APP), "{}", answer.head);
    let methods = listed(&answer.head, "Access-Control-Allow-Methods");
    assert!(["get", "post", "delete"].iter().all(|method| methods.iter().any(|allowed| allowed == method)), "{methods:?}");
    let headers = listed(&answer.head, "Access-Control-Allow-Headers");
    for needed in ["content-type", "accept", "authorization", "mcp-session-id", "mcp-protocol-version", "last-event-id"] {
        assert!(headers.iter().any(|allowed| allowed == needed || allowed == "*"), "no {needed} in {headers:?}");
    }
    let evil = ask(server.address, &preflight(&server, "http://evil.example.com"));
    assert_eq!(evil.status(), 403, "{}", evil.head);
    assert_eq!(evil.head.field("Access-Control-Allow-Origin"), None, "{}", evil.head);
}

fn a_browsers_script_may_read_what_it_needs(on: Flavour) {
    let (server, session) = started(on);
    let stream = open(server.address, &session.get().with("Origin", APP));
    let answers = [
        ask(server.address, &Request::post(server.address, &initialize(1, NOVEMBER)).with("Origin", APP)).head,
        ask(server.address, &session.get_after("garbage").with("Origin", APP)).head,
        stream.head.clone(),
    ];
    for head in answers {
        assert_eq!(head.field("Access-Control-Allow-Origin"), Some(APP), "{head}");
        assert!(listed(&head, "Vary").contains(&"origin".to_owned()), "{head}");
        let exposed = listed(&head, "Access-Control-Expose-Headers");
        for needed in ["mcp-session-id", "rejoin-verdict"] {
            assert!(exposed.iter().any(|name| name == needed), "no {needed} in {exposed:?}");
        }
    }
    let plain = ask(server.address, &session.get_after("garbage"));
    assert_eq!(plain.head.field("Access-Control-Allow-Origin"), None, "{}", plain.head);
}

fn head_is_405_with_allow_and_no_body(on: Flavour) {
    let (server, session) = started(on);
    let mut connection = Connection::open(server.address);
    connection.send_head_request(&session.of(Request::new("HEAD", server.address)));
    let head = connection.head();
    assert_eq!(head.status(), 405, "{head}");
    assert_eq!(listed(&head, "Allow"), ["get", "post", "delete", "options"], "{head}");
    never_cached(&head);
    connection.finish();
    connection.ended();
}

fn other_methods_are_405_with_allow(on: Flavour) {
    let (server, session) = started(on);
    for method in ["PUT", "PATCH", "TRACE", "PROPFIND", "get"] {
        let answer = ask(server.address, &session.of(Request::new(method, server.address)));
        assert_eq!(answer.status(), 405, "{method}: {}", answer.head);
        assert_eq!(listed(&answer.head, "Allow"), ["get", "post", "delete", "options"], "{}", answer.head);
        assert_eq!(answer.json()["error"]["data"]["code"], "method_not_allowed");
        never_cached(&answer.head);
    }
    let cursor = session.call(&call(1, "ticker", ticks(1, 0))).rest().pop().expect("a result").cursor().to_owned();
    empty(&ask(server.address, &session.get_after(&cursor)), 204, "complete");
    refused(&ask(server.address, &session.get_after("x")), 400, "invalid_cursor");
}
