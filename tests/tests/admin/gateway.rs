//! The gateway's children.

use rejoin_tests::matrix::Flavour;
use rejoin_tests::session::{NOVEMBER, Session, call, initialize, notification};
use rejoin_tests::wire::{Answer, Request, ask};
use serde_json::{Value, json};

use crate::boundary::session;
use crate::scrape::{Bed, scenarios};

const SERVER: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/children/server.py");

/// A child that answers `initialize`, and reads nothing more.
const DEAF: &str = r#"read line; echo '{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{},"serverInfo":{"name":"deaf","version":"1"}}}'; "#;

fn python(on: Flavour) -> Bed {
    with(on, &[], &[])
}

fn with(on: Flavour, options: &[&str], environment: &[&str]) -> Bed {
    Bed::start(on, &[options, &["--", "env"], environment, &["python3", SERVER]].concat())
}

fn shell(on: Flavour, script: &str) -> Bed {
    Bed::start(on, &["--max-body", "1KiB", "--", "sh", "-c", script])
}

fn tool(session: &Session, name: &str, arguments: Value) -> Answer {
    session.tell(&call(name, name, arguments))
}

fn fails(bed: &Bed) {
    let answer = ask(bed.server.address, &Request::post(bed.server.address, &initialize(1, NOVEMBER)));
    assert!(answer.json()["error"].is_object(), "{}", answer.head);
}

scenarios! {
    a_child_starts: python, [
        "rejoin_gateway_children" By 1.0,
        "rejoin_gateway_children_started_total" By 1.0,
    ], session;
    a_child_too_many: |on| with(on, &["--max-children", "1"], &[]), [
        "rejoin_gateway_children_limit" To 1.0,
        "rejoin_gateway_children_refused_total" By 1.0,
        "rejoin_sheds_total reason=handler" By 1.0,
    ], |bed: &Bed| {
        session(bed);
        fails(bed);
    };
    a_command_that_cannot_be_started: |on| Bed::start(on, &["--", "/no/such/command"]), [
        "rejoin_gateway_children_failed_total" By 1.0,
    ], fails;
    a_child_that_exits: python, [
        "rejoin_gateway_children_ended_total reason=exited" By 1.0,
        "rejoin_gateway_children" To 0.0,
        "rejoin_sessions_ended_total reason=closed" By 1.0,
        "rejoin_verdicts_total kind=refused code=session_expired reason=closed" By 1.0,
    ], |bed: &Bed| {
        let session = session(bed);
        tool(&session, "die", json!({}));
        bed.until("rejoin_sessions", |sessions| sessions == 0.0);
        assert_eq!(tool(&session, "echo", json!({"text": "x"})).status(), 404);
    };
    a_child_that_closes_its_output: |on| shell(on, "exec >&-; exec sleep 60"), [
        "rejoin_gateway_children_ended_total reason=closed_output" By 1.0,
    ], fails;
    a_child_that_closes_its_input: |on| shell(on, &format!("{DEAF}exec <&-; exec sleep 60")), [
        "rejoin_gateway_children_ended_total reason=closed_input" By 1.0,
    ], |bed: &Bed| {
        let session = session(bed);
        // The first that finds the input closed ends it.
        while session.tell(&notification("notifications/progress", json!({}))).status() == 202 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    };
    a_child_that_starts_too_slowly: |on| with(on, &["--child-start-timeout", "200ms"], &["START_DELAY=60"]), [
        "rejoin_gateway_children_ended_total reason=slow_start" By 1.0,
    ], fails;
    a_child_whose_session_ends: python, ["rejoin_gateway_children_ended_total reason=no_longer_needed" By 1.0], |bed: &Bed| {
        let session = session(bed);
        ask(session.address, &session.delete());
    };
    lines_that_are_no_messages: python, ["rejoin_gateway_lines_dropped_total reason=no_message" ByAtLeast 5.0],
        |bed: &Bed| tool(&session(bed), "garbage", json!({}));
    a_line_too_long: python, ["rejoin_gateway_lines_dropped_total reason=too_long" By 1.0],
        |bed: &Bed| tool(&session(bed), "overlong", json!({"bytes": 5 << 20}));
    notifications_for_a_child_that_does_not_read: |on| shell(on, &format!("{DEAF}exec sleep 60")), [
        "rejoin_gateway_lines_dropped_total reason=input_full" ByAtLeast 1.0,
    ], |bed: &Bed| {
        let session = session(bed);
        let much = notification("notifications/progress", json!({"pad": "x".repeat(800)}));
        (0..150).for_each(|_| drop(session.tell(&much)));
    };
    lines_of_stderr_too_many: python, ["rejoin_gateway_lines_dropped_total reason=stderr_rate" ByAtLeast 1.0],
        |bed: &Bed| tool(&session(bed), "stderr", json!({"lines": 2_000}));
}
