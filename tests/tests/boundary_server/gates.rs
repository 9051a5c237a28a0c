//! Who may ask, and for what: rows 0 to 6, and what POST, DELETE, OPTIONS and the rest owe besides.

use std::thread;
use std::time::Duration;

use rejoin_tests::boundary_server::{BoundaryServer, Fault};
use rejoin_tests::session::{JUNE, NOVEMBER, Session, call, initialize, notification, request};
use rejoin_tests::wire::{Connection, Request, ask};
use serde_json::json;

use crate::look::*;

pub(crate) fn host(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let get = session.get();
    refused(&ask(server.address, &get.clone().without("Host")), 400, "bad_request");
    refused(&ask(server.address, &get.clone().with("Host", "localhost")), 400, "bad_request");
    for host in ["example.com", "127.0.0.1.example.com", "localhost.example.com:80", "[::1", "localhost@example.com"] {
        refused(&no_stream(&session, &get.clone().set("Host", host)), 403, "forbidden");
    }
    for host in ["localhost", "LOCALHOST:1", "[::1]:80", "127.0.0.1"] {
        let ping = session.post(&request(host, "ping", json!({}))).set("Host", host);
        assert_eq!(ask(server.address, &ping).status(), 200, "{host}");
    }
}

pub(crate) fn origin(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    for origin in ["https://example.com", "null", "http://localhost.example.com", "http://127.0.0.1@example.com"] {
        refused(&no_stream(&session, &session.get().with("Origin", origin)), 403, "forbidden");
        let called = session.post(&count(7, 0, 0)).with("Origin", origin);
        refused(&no_stream(&session, &called), 403, "forbidden");
    }
    assert_eq!(effects(&session, 8), 0);
    let local = ask(server.address, &session.post(&request(9, "ping", json!({}))).with("Origin", "http://localhost:3000"));
    assert_eq!((local.status(), local.head.field("Access-Control-Allow-Origin")), (200, Some("http://localhost:3000")));
    let exposed = local.head.field("Access-Control-Expose-Headers").unwrap_or_default().to_ascii_lowercase();
    assert!(exposed.contains("mcp-session-id") && exposed.contains("rejoin-verdict"), "{exposed}");
}

pub(crate) fn authorisation(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.tokens = vec!["one".into(), "two".into()]);
    let one = Session::begin_with(server.address, NOVEMBER, &[("Authorization", "Bearer one")]);
    for fields in [&[][..], &[("Authorization", "Bearer three")], &[("Authorization", "Basic one")]] {
        let answer = no_stream(&one, &one.seen_by(fields).get());
        refused(&answer, 401, "unauthorized");
        assert!(answer.head.field("WWW-Authenticate").is_some(), "{}", answer.head);
    }
    lives(&one, 1);
}

pub(crate) fn principals(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.tokens = vec!["one".into(), "two".into()]);
    let one = Session::begin_with(server.address, NOVEMBER, &[("Authorization", "Bearer one")]);
    let cursor = whole(&one, &count(1, 1, 0))[0].cursor().to_owned();
    let two = one.seen_by(&[("Authorization", "Bearer two")]);
    let foreign = no_stream(&two, &two.get_after(&cursor));
    dead(&foreign, "unknown");
    let nobodys = no_stream(&two, &two.get_after(&cursor).set("Mcp-Session-Id", "nobody's"));
    assert_eq!(foreign.body, nobodys.body);
    dead(&ask(server.address, &two.delete()), "unknown");
    lives(&one, 2);
}

pub(crate) fn accept(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    for range in ["application/json", "text/html", "text/event-stream;q=0", ""] {
        refused(&no_stream(&session, &session.get().set("Accept", range)), 406, "not_acceptable");
    }
    for range in ["*/*", "text/*", "text/html, Text/Event-Stream;q=0.5"] {
        assert_eq!(Connection::open(server.address).ask_head(&session.get().set("Accept", range)), 200, "{range}");
    }
}

/// Asks, and reads no further than the head.
trait AskHead {
    fn ask_head(self, request: &Request) -> u16;
}

impl AskHead for Connection {
    fn ask_head(mut self, request: &Request) -> u16 {
        self.send(request);
        self.head().status()
    }
}

pub(crate) fn revision(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    for revision in ["1999-01-01", "", "2025-11-25 "] {
        let get = session.get().set("MCP-Protocol-Version", &format!("{revision}x"));
        refused(&no_stream(&session, &get), 400, "unsupported_revision");
    }
    refused(&no_stream(&session, &session.get().with("MCP-Protocol-Version", JUNE)), 400, "unsupported_revision");
    for get in [session.get().without("MCP-Protocol-Version"), session.get().set("MCP-Protocol-Version", JUNE)] {
        assert_eq!(Connection::open(server.address).ask_head(&get), 200);
    }
}

pub(crate) fn session_required(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let requests = [session.get(), session.post(&count(1, 1, 0)), session.delete()];
    for request in requests {
        refused(&no_stream(&session, &request.without("Mcp-Session-Id")), 400, "session_required");
    }
}

pub(crate) fn unknown_session(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let first = if session.id.starts_with('0') { "1" } else { "0" };
    let altered = format!("{first}{}", &session.id[1..]);
    for id in ["", "x", &altered, &session.id.to_ascii_uppercase(), "00000000-0000-0000-0000-000000000000"] {
        if id == session.id {
            continue;
        }
        for request in [session.get(), session.post(&count(1, 1, 0)), session.delete()] {
            dead(&no_stream(&session, &request.set("Mcp-Session-Id", id)), "unknown");
        }
    }
    dead(&no_stream(&session, &session.get().with("Mcp-Session-Id", &session.id)), "unknown");
    lives(&session, 2);
}

pub(crate) fn expired_session(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.session_ttl = Duration::from_millis(1500));
    let session = begin(&server);
    let cursor = whole(&session, &count(1, 1, 0))[0].cursor().to_owned();
    thread::sleep(Duration::from_millis(2200));
    dead(&no_stream(&session, &session.get_after(&cursor)), "expired");
    dead(&no_stream(&session, &session.get()), "expired");
    dead(&no_stream(&session, &session.post(&count(2, 1, 0))), "expired");
}

pub(crate) fn in_use_is_not_expired(fault: Option<Fault>) {
    let server = server(fault, |settings| settings.session_ttl = Duration::from_millis(1500));
    let session = begin(&server);
    let mut stream = session.call(&count(1, 80, 50));
    message(&mut stream);
    drop(stream);
    thread::sleep(Duration::from_millis(2200));
    lives(&session, 2);
    let unconfirmed = self::server(fault, |settings| settings.unconfirmed_ttl = Duration::from_millis(100));
    let session = Session::unconfirmed(unconfirmed.address, NOVEMBER, &[]);
    thread::sleep(Duration::from_millis(400));
    assert_eq!(no_stream(&session, &session.post(&request(1, "ping", json!({})))).status() / 100, 4);
}

pub(crate) fn deleted_session(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let mut stream = session.call(&count(1, 100, 50));
    message(&mut stream);
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    let said = rest(&mut stream);
    assert!(said.iter().all(|block| block.json().get("id").is_none()), "a result: {said:?}");
    dead(&no_stream(&session, &session.get()), "deleted");
    dead(&no_stream(&session, &session.delete()), "deleted");
    dead(&no_stream(&session, &session.post(&count(2, 1, 0))), "deleted");
}

pub(crate) fn restarted(fault: Option<Fault>) {
    let mut server = BoundaryServer::start(fault);
    let session = begin(&server);
    let cursor = whole(&session, &count(1, 2, 0))[0].cursor().to_owned();
    let mut open = session.call(&count(2, 1000, 20));
    message(&mut open);
    server.restart();
    dead(&no_stream(&session, &session.get_after(&cursor)), "restarted");
    dead(&no_stream(&session, &session.post(&count(3, 1, 0))), "restarted");
    let next = begin(&server);
    assert_ne!(next.id, session.id);
    refused(&no_stream(&next, &next.get_after(&cursor)), 400, "invalid_cursor");
    assert_eq!(effects(&next, 1), 0);
}

pub(crate) fn preflight(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let options = Request::new("OPTIONS", server.address).with("Access-Control-Request-Method", "GET");
    let answer = ask(server.address, &options.clone().with("Origin", "http://localhost:3000"));
    assert_eq!(answer.status(), 204, "{}", answer.head);
    assert_eq!(answer.head.field("Access-Control-Allow-Origin"), Some("http://localhost:3000"));
    let allowed = answer.head.field("Access-Control-Allow-Headers").unwrap_or_default().to_ascii_lowercase();
    for field in ["mcp-session-id", "mcp-protocol-version", "last-event-id", "content-type", "authorization"] {
        assert!(allowed.contains(field), "{field} in {allowed}");
    }
    let methods = answer.head.field("Access-Control-Allow-Methods").unwrap_or_default();
    assert!(["GET", "POST", "DELETE"].iter().all(|method| methods.contains(method)), "{methods}");
}

pub(crate) fn methods(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    for method in ["PUT", "PATCH", "TRACE"] {
        let answer = ask(server.address, &Request::new(method, server.address));
        refused(&answer, 405, "method_not_allowed");
        assert_eq!(answer.head.field("Allow"), Some("GET, POST, DELETE, OPTIONS"));
    }
    let mut connection = Connection::open(server.address);
    connection.send_head_request(&Request::new("HEAD", server.address));
    assert_eq!(connection.head().status(), 405);
    refused(&ask(server.address, &Request::get(server.address).target("/elsewhere")), 404, "not_found");
}

pub(crate) fn never_cached(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let cursor = whole(&session, &count(1, 1, 0)).pop().and_then(|block| block.id);
    let mut requests = vec![
        session.get(),
        session.get().set("Mcp-Session-Id", "x"),
        session.post(&count(2, 0, 0)),
        session.post(&request(3, "ping", json!({}))),
        session.post(&notification("notifications/initialized", json!({}))),
        Request::new("OPTIONS", server.address),
        Request::new("PUT", server.address),
        session.get().set("Host", "example.com"),
    ];
    requests.extend(cursor.map(|cursor| session.get_after(&cursor)));
    requests.push(session.delete());
    for request in requests {
        let mut connection = Connection::open(server.address);
        connection.send(&request);
        let head = connection.head();
        assert_eq!(head.field("Cache-Control"), Some("no-store"), "{head}");
    }
}

pub(crate) fn post_refusals(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let post = session.post(&count(1, 1, 0));
    for range in ["application/json", "text/event-stream", "text/html"] {
        refused(&no_stream(&session, &post.clone().set("Accept", range)), 406, "not_acceptable");
    }
    refused(&no_stream(&session, &post.clone().set("Content-Type", "text/plain")), 415, "unsupported_media_type");
    refused(&no_stream(&session, &post.clone().body(vec![b' '; 1 << 20])), 413, "too_large");
    for body in ["", "{", "[1,", "\u{feff}{}"] {
        assert_eq!(refused(&no_stream(&session, &post.clone().body(body)), 400, "parse_error")["code"], -32700);
    }
    let none = ["1", "{}", r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "[]"];
    for body in
        none.into_iter().chain([r#"[{"jsonrpc":"2.0","id":1,"method":"ping"}]"#, r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#])
    {
        assert_eq!(refused(&no_stream(&session, &post.clone().body(body)), 400, "invalid_request")["code"], -32600);
    }
    // The body's refusals come before the session's.
    let stale = post.set("Mcp-Session-Id", "x");
    refused(&no_stream(&session, &stale.body("{")), 400, "parse_error");
    assert_eq!(effects(&session, 2), 0);
}

pub(crate) fn messages_without_answer(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    let response = json!({"jsonrpc": "2.0", "id": "nobody asked", "result": {}});
    for message in [notification("notifications/whatever", json!({})), response] {
        let answer = session.tell(&message);
        assert_eq!((answer.status(), answer.body.len()), (202, 0));
    }
}

pub(crate) fn initializing(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let old = begin(&server);
    let again = Request::post(server.address, &initialize(1, JUNE)).with("Mcp-Session-Id", &old.id);
    let answer = ask(server.address, &again.with("MCP-Protocol-Version", "1999-01-01"));
    assert_eq!((answer.status(), answer.json()["result"]["protocolVersion"].as_str()), (200, Some(JUNE)));
    assert!(answer.head.field("Mcp-Session-Id").is_some_and(|id| id != old.id && id.len() >= 32));
    lives(&old, 2);
    let newest = ask(server.address, &Request::post(server.address, &initialize(1, "2099-01-01")));
    assert_eq!(newest.json()["result"]["protocolVersion"], NOVEMBER);
    let empty = ask(server.address, &Request::post(server.address, &request(1, "initialize", json!({}))));
    assert!(empty.json()["error"].is_object() && empty.head.field("Mcp-Session-Id").is_none());
}

pub(crate) fn ready_answers(fault: Option<Fault>) {
    let server = BoundaryServer::start(fault);
    let session = begin(&server);
    assert_eq!(session.result(&request("a", "ping", json!({}))), json!({}));
    // The same again is executed again.
    assert_eq!(session.result(&request("a", "ping", json!({}))), json!({}));
    let tools = session.result(&request("b", "tools/list", json!({})));
    let names: Vec<_> = tools["tools"].as_array().expect("tools").iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, ["count", "broadcast", "effects"]);
    assert_eq!(session.tell(&request("c", "nothing", json!({}))).json()["error"]["code"], -32601);
    let wrong =
        [json!({"events": -1}), json!({"events": 1e9}), json!({"events": 100, "every_ms": 60_000}), json!({"every_ms": "1"})];
    for (id, arguments) in (10..).zip(wrong) {
        assert_eq!(session.tell(&call(id, "count", arguments)).json()["error"]["code"], -32602);
    }
    assert_eq!(session.tell(&call("d", "nothing", json!({}))).json()["error"]["code"], -32602);
    let head = session.tell(&request("e", "ping", json!({}))).head;
    assert_eq!(head.field("Mcp-Session-Id"), None, "{head}");
}
