//! What clients that come back meet, and refusals.

use rejoin_tests::matrix::Flavour;
use rejoin_tests::session::{NOVEMBER, Session, call, initialize, request, ticks};
use rejoin_tests::stateless::{VERSION, alone, mirrored, said};
use rejoin_tests::wire::{Connection, Request, Stream, ask};
use serde_json::{Value, json};

use crate::scrape::{Bed, scenarios};

pub(crate) fn plain(on: Flavour) -> Bed {
    Bed::start(on, &[])
}

pub(crate) fn session(bed: &Bed) -> Session {
    Session::begin(bed.server.address, NOVEMBER)
}

pub(crate) fn echo(id: u64, text: &str) -> Value {
    call(id, "echo", json!({"text": text}))
}

/// A finished call, and the cursors of its opening and of its last event.
fn finished(bed: &Bed, count: u64) -> (Session, String, String) {
    let session = session(bed);
    let blocks = session.call(&call(1, "ticker", ticks(count, 1))).rest();
    let cursor = |block: Option<&rejoin_tests::sse::Block>| block.expect("events").cursor().to_owned();
    (session, cursor(blocks.first()), cursor(blocks.last()))
}

fn refused(bed: &Bed, change: impl FnOnce(Request) -> Request) {
    let answer = ask(bed.server.address, &change(Request::get(bed.server.address)));
    assert!(answer.status() >= 400, "{}", answer.head);
}

fn posted(bed: &Bed, change: impl FnOnce(Request) -> Request) {
    let body = echo(1, "x").to_string();
    let answer = ask(bed.server.address, &change(Request::post_bytes(bed.server.address, body)));
    assert!(answer.status() >= 400, "{}", answer.head);
}

/// Narrow, so that what it does not read soon fills the way to it.
fn slow_reader(bed: &Bed) -> Stream {
    let session = session(bed);
    let mut arguments = ticks(3_000, 0);
    arguments["payload_bytes"] = json!(4 << 10);
    let mut slow = Connection::open_narrow(session.address);
    slow.send(&session.post(&call(1, "ticker", arguments)));
    let mut slow = slow.stream();
    slow.event();
    bed.until("rejoin_calls_in_flight", |calls| calls == 0.0);
    slow.rest();
    slow
}

fn both_shards(bed: &Bed) -> Connection {
    let sessions: Vec<_> = (0..4).map(|_| session(bed)).collect();
    let mut connection = Connection::open(bed.server.address);
    for session in &sessions {
        assert_eq!(connection.ask(&session.post(&echo(1, "x"))).status(), 200);
    }
    connection
}

fn with_tokens(on: Flavour) -> Bed {
    let file = std::env::temp_dir().join(format!("rejoin-admin-{}-{}-{}", std::process::id(), on.driver, on.shards));
    std::fs::write(&file, "alice a-token-of-enough-length\n").expect("a file");
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).expect("its mode");
    let bed = Bed::start(on, &["--tokens", file.to_str().expect("a path")]);
    std::fs::remove_file(&file).expect("it was there");
    bed
}

scenarios! {
    a_listener_is_a_tail: plain, ["rejoin_verdicts_total kind=tail" By 1.0], |bed: &Bed| {
        let mut stream = session(bed).listen();
        stream.event();
        stream
    };
    a_return_after_a_cut_is_a_replay: plain, [
        "rejoin_verdicts_total kind=replay" By 1.0,
        "rejoin_replayed_events_total" By 6.0,
        "rejoin_replayed_bytes_total" ByAtLeast 300.0,
    ], |bed: &Bed| {
        let (session, opening, _) = finished(bed, 5);
        assert_eq!(session.resume(&opening).rest().iter().filter(|block| block.is_message()).count(), 6);
    };
    a_cursor_too_old_is_a_resync_and_a_gap: |on| Bed::start(on, &["--stream-events", "3"]), [
        "rejoin_verdicts_total kind=resync" By 1.0,
        "rejoin_gap_events_count reason=evicted" By 1.0,
        "rejoin_evictions_total reason=stream_limit" By 7.0,
    ], |bed: &Bed| {
        let (session, opening, _) = finished(bed, 10);
        assert!(session.resume(&opening).rest()[0].is_resync());
    };
    a_return_to_a_finished_stream_is_complete: plain, ["rejoin_verdicts_total kind=complete" By 1.0], |bed: &Bed| {
        let (session, _, last) = finished(bed, 2);
        assert_eq!(ask(session.address, &session.get_after(&last)).status(), 204);
    };
    a_reader_that_is_too_slow_is_overrun: |on| Bed::start(on, &["--stream-events", "20"]), [
        "rejoin_overruns_total" ByAtLeast 1.0,
        "rejoin_gap_events_count reason=overrun" ByAtLeast 1.0,
    ], slow_reader;
    a_second_listener_takes_over: plain, ["rejoin_takeovers_total" By 1.0], |bed: &Bed| {
        let session = session(bed);
        [session.listen(), session.listen()]
    };
    sessions_of_both_shards_on_one_connection_are_handoffs: |on| plain(Flavour { shards: 2, ..on }),
        ["rejoin_handoffs_total" ByAtLeast 1.0], both_shards;

    two_hosts: plain, ["rejoin_verdicts_total kind=refused code=bad_request" By 1.0],
        |bed: &Bed| refused(bed, |get| get.with("Host", "localhost"));
    a_foreign_origin: plain, ["rejoin_verdicts_total kind=refused code=forbidden" By 1.0],
        |bed: &Bed| refused(bed, |get| get.with("Origin", "http://evil.example"));
    a_stranger: with_tokens, ["rejoin_verdicts_total kind=refused code=unauthorized" By 1.0],
        |bed: &Bed| refused(bed, |get| get);
    another_path: plain, ["rejoin_verdicts_total kind=refused code=not_found" By 1.0],
        |bed: &Bed| refused(bed, |get| get.target("/elsewhere"));
    another_method: plain, ["rejoin_verdicts_total kind=refused code=method_not_allowed" By 1.0], |bed: &Bed| {
        assert_eq!(ask(bed.server.address, &Request::new("PUT", bed.server.address).body("")).status(), 405);
    };
    another_type_of_answer: plain, ["rejoin_verdicts_total kind=refused code=not_acceptable" By 1.0],
        |bed: &Bed| refused(bed, |get| get.set("Accept", "text/html"));
    another_type_of_body: plain, ["rejoin_verdicts_total kind=refused code=unsupported_media_type" By 1.0],
        |bed: &Bed| posted(bed, |post| post.set("Content-Type", "text/plain"));
    half_a_head: plain, ["rejoin_verdicts_total kind=refused code=timeout" By 1.0], |bed: &Bed| {
        let mut half = Connection::open(bed.server.address);
        half.write(b"GET /mcp HTTP/1.1\r\nHost: lo");
        assert_eq!(half.answer().status(), 408);
    };
    a_large_body: |on| Bed::start(on, &["--max-body", "100B"]), ["rejoin_verdicts_total kind=refused code=too_large" By 1.0],
        |bed: &Bed| posted(bed, |post| post.body("x".repeat(101)));
    a_large_head_and_a_long_target: plain, ["rejoin_verdicts_total kind=refused code=head_too_large" By 2.0], |bed: &Bed| {
        refused(bed, |get| get.with("X-Pad", &"x".repeat(20_000)));
        refused(bed, |get| get.target(&format!("/{}", "x".repeat(3_000))));
    };
    no_json: plain, ["rejoin_verdicts_total kind=refused code=parse_error" By 1.0],
        |bed: &Bed| posted(bed, |post| post.body("nonsense"));
    no_json_rpc: plain, ["rejoin_verdicts_total kind=refused code=invalid_request" By 1.0],
        |bed: &Bed| posted(bed, |post| post.body("{}"));
    an_unknown_revision: plain, ["rejoin_verdicts_total kind=refused code=unsupported_revision" By 1.0],
        |bed: &Bed| posted(bed, |post| post.with("MCP-Protocol-Version", "1999-01-01"));
    a_request_without_a_session_and_without_what_it_must_say: plain, [
        "rejoin_verdicts_total kind=refused code=invalid_params" By 1.0,
        "rejoin_verdicts_total kind=refused code=header_mismatch" By 1.0,
        "rejoin_verdicts_total kind=refused code=method_not_found" By 1.0,
        "rejoin_verdicts_total kind=refused code=revision_not_served" By 1.0,
    ], |bed: &Bed| {
        let (host, mut message) = (bed.server.address, said(&echo(1, "x")));
        assert_eq!(ask(host, &mirrored(host, &echo(1, "x"))).status(), 400);
        assert_eq!(ask(host, &mirrored(host, &message).without("Mcp-Name")).status(), 400);
        assert_eq!(ask(host, &alone(host, &request(1, "ping", json!({})))).status(), 404);
        message["params"]["_meta"][VERSION] = json!("2027-01-01");
        assert_eq!(ask(host, &mirrored(host, &message).set("MCP-Protocol-Version", "2027-01-01")).status(), 400);
    };
    a_key_for_something_else: plain, ["rejoin_verdicts_total kind=refused code=idempotency_key_reused" By 1.0], |bed: &Bed| {
        let keyed = |text| alone(bed.server.address, &echo(1, text)).with("Idempotency-Key", "k");
        assert_eq!(ask(bed.server.address, &keyed("x")).status(), 200);
        assert_eq!(ask(bed.server.address, &keyed("y")).status(), 422);
    };
    no_session: plain, ["rejoin_verdicts_total kind=refused code=session_required" By 1.0], |bed: &Bed| refused(bed, |get| get);
    an_unknown_session: plain, ["rejoin_verdicts_total kind=refused code=session_expired reason=unknown" By 1.0],
        |bed: &Bed| refused(bed, |get| get.with("Mcp-Session-Id", "mine"));
    no_cursor_of_ours: plain, ["rejoin_verdicts_total kind=refused code=invalid_cursor" By 1.0], |bed: &Bed| {
        let session = session(bed);
        assert_eq!(ask(session.address, &session.get_after("1")).status(), 400);
    };
    a_deleted_session: plain, [
        "rejoin_verdicts_total kind=refused code=session_expired reason=deleted" By 1.0,
        "rejoin_sessions_ended_total reason=deleted" By 1.0,
    ], |bed: &Bed| {
        let session = session(bed);
        ask(session.address, &session.delete());
        assert_eq!(session.tell(&echo(1, "x")).status(), 404);
    };
    an_expired_session: |on| Bed::start(on, &["--session-ttl", "100ms"]), [
        "rejoin_sessions_ended_total reason=expired" By 1.0,
        "rejoin_verdicts_total kind=refused code=session_expired reason=expired" By 1.0,
    ], |bed: &Bed| {
        let session = session(bed);
        bed.until("rejoin_sessions", |sessions| sessions == 0.0);
        assert_eq!(session.tell(&echo(1, "x")).status(), 404);
    };
    a_cursor_of_an_earlier_life: plain, ["rejoin_verdicts_total kind=refused code=session_expired reason=incarnation" By 1.0],
    |bed: &Bed| {
        let (session, opening, _) = finished(bed, 1);
        session.tell(&call(2, "rotate", json!({})));
        assert_eq!(ask(session.address, &session.get_after(&opening)).status(), 404);
    };
    one_session_too_many: |on| Bed::start(on, &["--max-sessions", "2"]), [
        "rejoin_verdicts_total kind=refused code=shed" By 1.0,
        "rejoin_sheds_total reason=sessions" By 1.0,
    ], |bed: &Bed| {
        let _two = [session(bed), session(bed)];
        assert_eq!(ask(bed.server.address, &Request::post(bed.server.address, &initialize(1, NOVEMBER))).status(), 503);
    };
}
