//! Rows 0 to 8: who is turned away, with which status, code and reason, and in which order.

use std::thread::sleep;
use std::time::Duration;

use rejoin_tests::check::{empty, expired, never_cached, place, refused, stream_with};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{JUNE, MARCH, NOVEMBER, Session, call, ticks};
use rejoin_tests::wire::{Connection, Ended, Request, ask, open};
use serde_json::json;

on_every_server!(
    a_missing_or_repeated_host_is_400_and_the_connection_closes,
    http_1_0_needs_no_host_and_gets_a_stream_that_ends_with_its_connection,
    a_foreign_host_is_403,
    a_foreign_origin_is_403,
    loopback_names_are_allowed_at_any_port,
    hosts_and_origins_may_be_allowed_by_option,
    accept_without_event_streams_is_406,
    accept_in_all_its_spellings_is_understood,
    an_unknown_revision_is_400,
    a_revision_without_sessions_has_no_get,
    without_a_revision_the_sessions_own_counts,
    another_supported_revision_is_accepted,
    no_session_id_is_400,
    a_session_id_that_leads_nowhere_is_404_and_tells_nothing,
    a_repeated_session_id_is_404,
    a_deleted_session_is_404_deleted,
    an_idle_session_expires_and_says_so,
    a_bad_cursor_is_400_and_opens_no_stream,
    a_cursor_of_another_session_is_400,
    a_cursor_of_another_incarnation_is_404_and_the_session_lives,
    the_first_row_that_applies_decides,
    another_path_is_404,
);

fn started(on: Flavour) -> (Rejoin, Session) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

/// A cursor at the end of a short call.
fn a_cursor(session: &Session) -> String {
    let blocks = session.call(&call("a-cursor", "ticker", ticks(2, 0))).rest();
    blocks[blocks.len() - 1].cursor().to_owned()
}

fn a_missing_or_repeated_host_is_400_and_the_connection_closes(on: Flavour) {
    let (server, session) = started(on);
    for wrong in [
        session.get().without("Host"),
        session.get().with("Host", "localhost"),
        session.get().with("host", &server.address.to_string()),
    ] {
        let mut connection = Connection::open(server.address);
        refused(&connection.ask(&wrong), 400, "bad_request");
        assert_eq!(connection.ended(), Ended::Fin);
    }
}

fn http_1_0_needs_no_host_and_gets_a_stream_that_ends_with_its_connection(on: Flavour) {
    let (server, session) = started(on);
    let cursor = a_cursor(&session);
    let (incarnation, stream, _) = place(&cursor);
    assert_eq!((incarnation, stream > 0), (1, true));
    let first = session.call(&call(7, "ticker", ticks(3, 0))).event().cursor().to_owned();
    let old = session.get_after(&first).without("Host").version("HTTP/1.0");
    let mut replay = open(server.address, &old);
    assert_eq!(replay.head.field("Transfer-Encoding"), None, "{}", replay.head);
    let messages = replay.rest().iter().filter(|block| block.is_message()).count();
    assert_eq!(messages, 4, "three ticks and a result");
    assert_eq!(replay.into_connection().ended(), Ended::Fin);
}

fn a_foreign_host_is_403(on: Flavour) {
    let (server, session) = started(on);
    for host in ["evil.example.com", "localhost.evil.example.com", "127.0.0.1.evil.example.com:80", "10.1.2.3"] {
        refused(&ask(server.address, &session.get().set("Host", host)), 403, "forbidden");
    }
}

fn a_foreign_origin_is_403(on: Flavour) {
    let (server, session) = started(on);
    for origin in ["http://evil.example.com", "null", "http://localhost.evil.example.com", "evil"] {
        let answer = ask(server.address, &session.get().with("Origin", origin));
        refused(&answer, 403, "forbidden");
        assert_eq!(answer.head.field("Access-Control-Allow-Origin"), None, "{}", answer.head);
    }
}

fn loopback_names_are_allowed_at_any_port(on: Flavour) {
    let (server, session) = started(on);
    for host in ["localhost", "LocalHost:1", "127.0.0.1", "127.0.0.1:65535", "[::1]", "[::1]:80"] {
        open(server.address, &session.get().set("Host", host));
    }
    for origin in ["http://localhost", "http://localhost:3000", "https://127.0.0.1:8443", "http://[::1]:5173"] {
        open(server.address, &session.get().with("Origin", origin));
    }
}

fn hosts_and_origins_may_be_allowed_by_option(on: Flavour) {
    let options = ["--allow-host", "mcp.example.com", "--allow-origin", "https://app.example.com"];
    let server = Rejoin::start(on, &options);
    let session = Session::begin(server.address, NOVEMBER);
    let fine = session.get().set("Host", "mcp.example.com").with("Origin", "https://app.example.com");
    open(server.address, &fine);
    refused(&ask(server.address, &session.get().set("Host", "app.example.com")), 403, "forbidden");
    refused(&ask(server.address, &session.get().with("Origin", "http://app.example.com")), 403, "forbidden");
}

fn accept_without_event_streams_is_406(on: Flavour) {
    let (server, session) = started(on);
    for accept in ["application/json", "text/html, application/*", "text/event-stream;q=0", "text/event-streams"] {
        refused(&ask(server.address, &session.get().set("Accept", accept)), 406, "not_acceptable");
    }
}

fn accept_in_all_its_spellings_is_understood(on: Flavour) {
    let (server, session) = started(on);
    for accept in
        ["*/*", "text/*", "Text/Event-Stream", "text/event-stream;q=0.1", "application/json,text/event-stream ; charset=utf-8"]
    {
        open(server.address, &session.get().set("Accept", accept));
    }
    open(server.address, &session.get().without("Accept"));
    open(server.address, &session.get().set("Accept", "application/json").with("Accept", "text/event-stream"));
}

fn an_unknown_revision_is_400(on: Flavour) {
    let (server, session) = started(on);
    for revision in ["2024-11-05", "2025-11-26", "1", ""] {
        let answer = ask(server.address, &session.get().set("MCP-Protocol-Version", revision));
        refused(&answer, 400, "unsupported_revision");
    }
}

fn a_revision_without_sessions_has_no_get(on: Flavour) {
    let (server, session) = started(on);
    let answer = ask(server.address, &session.get().set("MCP-Protocol-Version", "2026-07-28"));
    refused(&answer, 405, "method_not_allowed");
    assert!(answer.head.field("Allow").is_some(), "{}", answer.head);
}

fn without_a_revision_the_sessions_own_counts(on: Flavour) {
    let (server, _) = started(on);
    for (revision, opens) in [(NOVEMBER, true), (JUNE, false), (MARCH, false)] {
        let session = Session::begin(server.address, revision);
        let mut stream = open(server.address, &session.get().without("MCP-Protocol-Version"));
        session.result(&call(1, "broadcast", json!({"count": 1, "interval_ms": 0})));
        let first = stream.until(|block| block.id.is_some()).pop().expect("one at least");
        assert_eq!(first.is_opening(), opens, "{revision}: {}", first.text);
    }
}

fn another_supported_revision_is_accepted(on: Flavour) {
    let (server, session) = started(on);
    for revision in [JUNE, MARCH] {
        let mut stream = open(server.address, &session.get().set("MCP-Protocol-Version", revision));
        assert!(stream.event().is_opening(), "the session's revision decides");
    }
}

fn no_session_id_is_400(on: Flavour) {
    let (server, session) = started(on);
    let cursor = a_cursor(&session);
    refused(&ask(server.address, &Request::get(server.address)), 400, "session_required");
    refused(&ask(server.address, &session.get_after(&cursor).without("Mcp-Session-Id")), 400, "session_required");
}

fn a_session_id_that_leads_nowhere_is_404_and_tells_nothing(on: Flavour) {
    let (server, session) = started(on);
    let other = Rejoin::start(on, &[]);
    let foreign = Session::begin(other.address, NOVEMBER).id;
    let mut bent = session.id.clone().into_bytes();
    bent[20] = if bent[20] == b'A' { b'B' } else { b'A' };
    let bent = String::from_utf8(bent).expect("ASCII");
    let longer = format!("{}A", session.id);
    let zeros = "A".repeat(session.id.len());
    let said = ["", "x", "1", "../../etc/passwd", &bent, &longer, &session.id[1..], &zeros, &foreign].map(|id| {
        let answer = ask(server.address, &session.get().set("Mcp-Session-Id", id));
        expired(&answer, "unknown");
        (answer.head, answer.body)
    });
    assert!(said.iter().all(|answer| *answer == said[0]), "the answer tells one id from another: {said:?}");
    open(server.address, &session.get());
}

fn a_repeated_session_id_is_404(on: Flavour) {
    let (server, session) = started(on);
    let answer = ask(server.address, &session.get().with("Mcp-Session-Id", &session.id));
    expired(&answer, "unknown");
}

fn a_deleted_session_is_404_deleted(on: Flavour) {
    let (server, session) = started(on);
    let cursor = a_cursor(&session);
    assert_eq!(ask(server.address, &session.delete()).status(), 204);
    expired(&ask(server.address, &session.get()), "deleted");
    expired(&ask(server.address, &session.get_after(&cursor)), "deleted");
    expired(&ask(server.address, &session.get_after("garbage")), "deleted");
}

fn an_idle_session_expires_and_says_so(on: Flavour) {
    let server = Rejoin::start(on, &["--session-ttl", "1s"]);
    let idle = Session::begin(server.address, NOVEMBER);
    let attached = Session::begin(server.address, NOVEMBER);
    let busy = Session::begin(server.address, NOVEMBER);
    let stream = attached.listen();
    let mut running = busy.call(&call(1, "ticker", ticks(3, 900)));
    running.event();
    running.reset();
    sleep(Duration::from_millis(2_500));
    expired(&ask(server.address, &idle.get()), "expired");
    // A connection attached, and a call in flight, hold a session.
    drop(stream);
    open(server.address, &attached.get());
    open(server.address, &busy.get());
}

fn a_bad_cursor_is_400_and_opens_no_stream(on: Flavour) {
    let (server, session) = started(on);
    let good = a_cursor(&session);
    let parts: Vec<&str> = good.split('.').collect();
    let with = |at: usize, value: &str| {
        let mut parts = parts.clone();
        parts[at] = value;
        parts.join(".")
    };
    let nudged = with(3, &parts[3].replace(|digit: char| digit == parts[3].chars().next().expect("a digit"), "f"));
    let leading_zero = with(2, &format!("0{}", parts[2]));
    let next = with(2, &(parts[2].parse::<u64>().expect("a number") + 1).to_string());
    let huge = with(2, "99999999999999999999999");
    let upper = good.to_uppercase();
    let longer = format!("{good}0");
    let long = "1".repeat(1_000);
    let mut wrong = vec!["", "0", "42", "garbage", "\u{fffd}", "1.1.1", "-1.0.0.0", &leading_zero, &next, &huge, &longer, &long];
    if upper != good {
        wrong.push(&upper);
    }
    if nudged != good {
        wrong.push(&nudged);
    }
    for cursor in wrong {
        refused(&ask(server.address, &session.get_after(cursor)), 400, "invalid_cursor");
    }
    let twice = session.get_after(&good).with("Last-Event-ID", &good);
    refused(&ask(server.address, &twice), 400, "invalid_cursor");
    empty(&ask(server.address, &session.get_after(&good)), 204, "complete");
}

fn a_cursor_of_another_session_is_400(on: Flavour) {
    let (server, session) = started(on);
    let other = Session::begin(server.address, NOVEMBER);
    let cursor = a_cursor(&other);
    a_cursor(&session);
    refused(&ask(server.address, &session.get_after(&cursor)), 400, "invalid_cursor");
    empty(&ask(server.address, &other.get_after(&cursor)), 204, "complete");
}

fn a_cursor_of_another_incarnation_is_404_and_the_session_lives(on: Flavour) {
    let (server, session) = started(on);
    let mut listening = session.listen();
    let standalone = listening.event().cursor().to_owned();
    let cursor = a_cursor(&session);
    session.result(&call("turn", "rotate", json!({})));
    listening.rest();
    for old in [&cursor, &standalone] {
        let answer = ask(server.address, &session.get_after(old));
        expired(&answer, "incarnation");
    }
    let mut stream = session.listen();
    stream_with(&stream, "tail");
    assert_eq!(place(stream.event().cursor()), (2, 0, 0));
    assert_eq!(place(&a_cursor(&session)).0, 2);
}

fn the_first_row_that_applies_decides(on: Flavour) {
    let (server, session) = started(on);
    let address = server.address;
    let wrong = Request::new("GET", address)
        .without("Host")
        .with("Origin", "http://evil.example.com")
        .with("Accept", "application/json")
        .with("MCP-Protocol-Version", "1999-01-01")
        .with("Last-Event-ID", "garbage");
    refused(&ask(address, &wrong), 400, "bad_request");
    let wrong = wrong.with("Host", "localhost");
    refused(&ask(address, &wrong), 403, "forbidden");
    let wrong = wrong.without("Origin");
    refused(&ask(address, &wrong), 406, "not_acceptable");
    let wrong = wrong.set("Accept", "text/event-stream");
    refused(&ask(address, &wrong), 400, "unsupported_revision");
    let wrong = wrong.set("MCP-Protocol-Version", NOVEMBER);
    refused(&ask(address, &wrong), 400, "session_required");
    let wrong = wrong.set("Mcp-Session-Id", "nowhere");
    expired(&ask(address, &wrong), "unknown");
    let wrong = wrong.set("Mcp-Session-Id", &session.id);
    refused(&ask(address, &wrong), 400, "invalid_cursor");
    open(address, &wrong.without("Last-Event-ID"));
}

fn another_path_is_404(on: Flavour) {
    let (server, session) = started(on);
    for target in ["/", "/mcp/", "/MCP", "/other", "/mcp2"] {
        let answer = ask(server.address, &session.get().target(target));
        assert_eq!(answer.status(), 404, "{target}");
        assert_eq!(answer.json()["error"]["data"]["code"], "not_found", "{target}");
        never_cached(&answer.head);
    }
    open(server.address, &session.get().target("/mcp?query=ignored"));
    let elsewhere = Rejoin::start(on, &["--path", "/elsewhere"]);
    refused(&ask(elsewhere.address, &Request::get(elsewhere.address).target("/elsewhere")), 400, "session_required");
    assert_eq!(ask(elsewhere.address, &Request::get(elsewhere.address)).status(), 404);
}
