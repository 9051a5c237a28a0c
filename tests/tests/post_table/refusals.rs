//! What a POST is refused for, in which order, and that nothing of it runs.

use std::thread::sleep;
use std::time::Duration;

use rejoin_tests::check::{accepted, expired, refused};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{MARCH, NOVEMBER, Session, call, executions, fresh_key, initialize, notification, text_of, ticks};
use rejoin_tests::wire::{Connection, Ended, Request, ask};
use serde_json::{Value, json};

on_every_server!(
    hosts_and_origins_are_checked_as_for_get,
    accept_without_both_types_is_406,
    a_body_that_is_not_declared_as_json_is_415,
    a_body_that_is_not_json_is_400,
    json_that_is_no_json_rpc_is_400,
    a_body_over_its_limit_is_413_and_one_at_it_is_served,
    a_chunked_body_over_its_limit_is_413,
    rows_4_to_6_are_the_same_as_for_get,
    the_body_is_judged_before_the_session,
    the_first_refusal_that_applies_decides,
    a_refused_post_is_never_executed,
    smuggling_shapes_are_400_and_end_the_connection,
    a_dead_sessions_notification_is_404,
);

fn started(on: Flavour) -> (Rejoin, Session) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn echo(id: u64) -> Value {
    call(id, "echo", json!({"text": "x"}))
}

fn hosts_and_origins_are_checked_as_for_get(on: Flavour) {
    let (server, session) = started(on);
    let post = session.post(&echo(1));
    refused(&ask(server.address, &post.clone().without("Host")), 400, "bad_request");
    refused(&ask(server.address, &post.clone().with("Host", "localhost")), 400, "bad_request");
    refused(&ask(server.address, &post.clone().set("Host", "evil.example.com")), 403, "forbidden");
    refused(&ask(server.address, &post.with("Origin", "http://evil.example.com")), 403, "forbidden");
    let initialize = Request::post(server.address, &initialize(1, NOVEMBER));
    refused(&ask(server.address, &initialize.with("Origin", "http://evil.example.com")), 403, "forbidden");
}

fn accept_without_both_types_is_406(on: Flavour) {
    let (server, session) = started(on);
    for accept in ["application/json", "text/event-stream", "text/html", "application/json, text/event-stream;q=0"] {
        refused(&ask(server.address, &session.post(&echo(1)).set("Accept", accept)), 406, "not_acceptable");
    }
    for accept in ["*/*", "application/*, text/*", "text/event-stream, application/json;q=0.5"] {
        assert_eq!(ask(server.address, &session.post(&echo(1)).set("Accept", accept)).status(), 200, "{accept}");
    }
    assert_eq!(ask(server.address, &session.post(&echo(1)).without("Accept")).status(), 200);
}

fn a_body_that_is_not_declared_as_json_is_415(on: Flavour) {
    let (server, session) = started(on);
    for kind in ["text/plain", "application/json-rpc", "application/x-www-form-urlencoded", "application/jsonp", "json"] {
        refused(&ask(server.address, &session.post(&echo(1)).set("Content-Type", kind)), 415, "unsupported_media_type");
    }
    refused(&ask(server.address, &session.post(&echo(1)).without("Content-Type")), 415, "unsupported_media_type");
    for kind in ["application/json; charset=utf-8", "Application/JSON", "application/json;charset=UTF-8"] {
        assert_eq!(ask(server.address, &session.post(&echo(1)).set("Content-Type", kind)).status(), 200, "{kind}");
    }
}

fn a_body_that_is_not_json_is_400(on: Flavour) {
    let (server, session) = started(on);
    let bodies: [&[u8]; 9] =
        [b"", b"{", b"not json", b"{'a':1}", b"{} {}", b"\xff\xfe", b"\"\xc3\x28\"", b"[1,]", b"\xef\xbb\xbf{}"];
    for body in bodies {
        let answer = ask(server.address, &session.post(&Value::Null).body(body));
        refused(&answer, 400, "parse_error");
    }
}

fn json_that_is_no_json_rpc_is_400(on: Flavour) {
    let (server, session) = started(on);
    for body in [
        "1",
        "null",
        "\"text\"",
        "{}",
        r#"{"jsonrpc":"2.0"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#,
        r#"{"id":1,"method":"ping"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":7}"#,
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"both"}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":7}"#,
    ] {
        refused(&ask(server.address, &session.post(&Value::Null).body(body)), 400, "invalid_request");
    }
}

/// A call whose body has exactly so many bytes.
fn sized(length: usize) -> String {
    let empty = call(1, "echo", json!({"text": ""})).to_string();
    call(1, "echo", json!({"text": "x".repeat(length - empty.len())})).to_string()
}

fn a_body_over_its_limit_is_413_and_one_at_it_is_served(on: Flavour) {
    let server = Rejoin::start(on, &["--max-body", "1KiB"]);
    let session = Session::begin(server.address, NOVEMBER);
    let answer = ask(server.address, &session.post(&Value::Null).body(sized(1_024)));
    assert_eq!(answer.status(), 200, "{}", answer.head);
    let mut connection = Connection::open(server.address);
    // The head says it all: the body is not waited for.
    connection.write(&session.post(&Value::Null).body(sized(1_025)).head_bytes());
    refused(&connection.answer(), 413, "too_large");
}

fn a_chunked_body_over_its_limit_is_413(on: Flavour) {
    let server = Rejoin::start(on, &["--max-body", "1KiB"]);
    let session = Session::begin(server.address, NOVEMBER);
    let head = session.post(&Value::Null).without("Content-Length").with("Transfer-Encoding", "chunked");
    let head = String::from_utf8(head.head_bytes()).expect("text");
    let chunked = |length: usize| format!("{head}{length:x}\r\n{}\r\n0\r\n\r\n", sized(length));
    let mut connection = Connection::open(server.address);
    connection.write(chunked(1_024).as_bytes());
    assert_eq!(connection.answer().status(), 200);
    let mut connection = Connection::open(server.address);
    connection.try_write(chunked(1_025).as_bytes());
    refused(&connection.answer(), 413, "too_large");
}

fn rows_4_to_6_are_the_same_as_for_get(on: Flavour) {
    let (server, session) = started(on);
    let post = session.post(&echo(1));
    for revision in ["1999-01-01", ""] {
        refused(&ask(server.address, &post.clone().set("MCP-Protocol-Version", revision)), 400, "unsupported_revision");
    }
    // That one has requests without a session, which this is not one of.
    refused(&ask(server.address, &post.clone().set("MCP-Protocol-Version", "2026-07-28")), 400, "invalid_params");
    refused(&ask(server.address, &post.clone().without("Mcp-Session-Id")), 400, "session_required");
    expired(&ask(server.address, &post.clone().set("Mcp-Session-Id", "nowhere")), "unknown");
    expired(&ask(server.address, &post.clone().set("Mcp-Session-Id", "")), "unknown");
    expired(&ask(server.address, &post.clone().with("Mcp-Session-Id", &session.id)), "unknown");
    assert_eq!(ask(server.address, &post.clone().set("MCP-Protocol-Version", MARCH)).status(), 200);
    assert_eq!(ask(server.address, &post.without("MCP-Protocol-Version")).status(), 200);
    let short = Rejoin::start(on, &["--session-ttl", "1s"]);
    let idle = Session::begin(short.address, NOVEMBER);
    sleep(Duration::from_millis(2_300));
    expired(&idle.tell(&echo(1)), "expired");
}

fn the_body_is_judged_before_the_session(on: Flavour) {
    let (server, session) = started(on);
    let dead = session.post(&Value::Null).set("Mcp-Session-Id", "nowhere");
    refused(&ask(server.address, &dead.clone().body("{")), 400, "parse_error");
    refused(&ask(server.address, &dead.clone().body("{}")), 400, "invalid_request");
    refused(&ask(server.address, &dead.body("{").without("Mcp-Session-Id")), 400, "parse_error");
}

fn the_first_refusal_that_applies_decides(on: Flavour) {
    let server = Rejoin::start(on, &["--max-body", "1KiB"]);
    let session = Session::begin(server.address, NOVEMBER);
    let address = server.address;
    let wrong = Request::new("POST", address)
        .without("Host")
        .with("Origin", "http://evil.example.com")
        .with("Accept", "text/html")
        .with("Content-Type", "text/plain")
        .with("MCP-Protocol-Version", "1999-01-01")
        .body("x".repeat(2_000));
    let tell = |request: &Request, status, code| {
        let mut connection = Connection::open(address);
        connection.try_write(&request.bytes());
        refused(&connection.answer(), status, code);
    };
    tell(&wrong, 400, "bad_request");
    let wrong = wrong.with("Host", "localhost");
    tell(&wrong, 403, "forbidden");
    let wrong = wrong.without("Origin");
    tell(&wrong, 406, "not_acceptable");
    let wrong = wrong.set("Accept", "application/json, text/event-stream");
    tell(&wrong, 415, "unsupported_media_type");
    let wrong = wrong.set("Content-Type", "application/json");
    tell(&wrong, 413, "too_large");
    let wrong = wrong.body("{");
    tell(&wrong, 400, "parse_error");
    let wrong = wrong.body("{}");
    tell(&wrong, 400, "invalid_request");
    let wrong = wrong.body(echo(1).to_string());
    tell(&wrong, 400, "unsupported_revision");
    let wrong = wrong.set("MCP-Protocol-Version", NOVEMBER);
    tell(&wrong, 400, "session_required");
    let wrong = wrong.set("Mcp-Session-Id", "nowhere");
    tell(&wrong, 404, "session_expired");
    assert_eq!(ask(address, &wrong.set("Mcp-Session-Id", &session.id)).status(), 200);
}

fn a_refused_post_is_never_executed(on: Flavour) {
    let (server, session) = started(on);
    let key = fresh_key();
    let asked = call(1, "ticker", json!({"count": 1, "interval_ms": 0, "payload_bytes": 0, "key": key}));
    let post = session.post(&asked);
    for wrong in [
        post.clone().set("Host", "evil.example.com"),
        post.clone().set("Accept", "application/json"),
        post.clone().set("Content-Type", "text/plain"),
        post.clone().set("MCP-Protocol-Version", "1999-01-01"),
        post.clone().without("Mcp-Session-Id"),
        post.clone().set("Mcp-Session-Id", "nowhere"),
    ] {
        assert!(ask(server.address, &wrong).status() >= 400);
    }
    assert_eq!(executions(&session.result(&asked)), 1);
}

fn smuggling_shapes_are_400_and_end_the_connection(on: Flavour) {
    let (server, session) = started(on);
    let body = echo(1).to_string();
    let length = body.len();
    let head = String::from_utf8(session.post(&Value::Null).without("Content-Length").head_bytes()).expect("text");
    let head = head.trim_end();
    let chunks = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    let shapes = [
        format!("{head}\r\nContent-Length: {length}\r\nTransfer-Encoding: chunked\r\n\r\n{chunks}"),
        format!("{head}\r\nContent-Length: {length}\r\nContent-Length: {}\r\n\r\n{body}", length + 1),
        format!("{head}\r\nContent-Length: +{length}\r\n\r\n{body}"),
        format!("{head}\r\nContent-Length: 0x{length:x}\r\n\r\n{body}"),
        format!("{head}\r\nContent-Length : {length}\r\n\r\n{body}"),
        format!("{head}\r\nContent-Length: {length}\r\n folded: yes\r\n\r\n{body}"),
        format!("{head}\nContent-Length: {length}\r\n\r\n{body}"),
        format!("{head}\r\nTransfer-Encoding: gzip, chunked\r\n\r\n{chunks}"),
        format!("{head}\r\nTransfer-Encoding: xchunked\r\n\r\n{chunks}"),
        format!("{head}\r\nTransfer-Encoding: chunked\r\n\r\n{length:x}\n{body}\r\n0\r\n\r\n"),
        format!("{head}\r\nTransfer-Encoding: chunked\r\n\r\n-{length:x}\r\n{body}\r\n0\r\n\r\n"),
        format!("{head}\r\nContent-Length: {length}\r\nX: a\0b\r\n\r\n{body}"),
    ];
    for shape in shapes {
        let mut connection = Connection::open(server.address);
        // Whatever stands behind must not be read as a request.
        connection.try_write(format!("{shape}GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n").as_bytes());
        let answer = connection.answer();
        assert_eq!(answer.status(), 400, "{shape}\n{}", answer.head);
        assert_eq!(answer.json()["error"]["data"]["code"], "bad_request");
        assert!(matches!(connection.ended(), Ended::Fin | Ended::Reset));
    }
    assert_eq!(text_of(&session.result(&echo(1))), "x");
}

fn a_dead_sessions_notification_is_404(on: Flavour) {
    let (server, session) = started(on);
    let message = notification("notifications/roots/list_changed", json!({}));
    accepted(&session.tell(&message));
    let stray = json!({"jsonrpc": "2.0", "id": 1, "result": {}});
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    expired(&session.tell(&message), "deleted");
    expired(&session.tell(&stray), "deleted");
    expired(&session.tell(&call(1, "ticker", ticks(1, 0))), "deleted");
}
