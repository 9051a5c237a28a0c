//! Calls: how they begin, end, and come again.

use rejoin_tests::matrix::Flavour;
use rejoin_tests::session::{MARCH, Session, call, call_with_token, notification, ticks};
use rejoin_tests::wire::{Connection, Stream, ask};
use serde_json::{Value, json};

use crate::boundary::{echo, plain, session};
use crate::scrape::{Bed, scenarios};

/// A call that runs for long, its first event read.
pub(crate) fn running(session: &Session) -> Stream {
    let mut stream = session.call(&slow(1));
    stream.event();
    stream
}

fn slow(id: u64) -> Value {
    let mut arguments = ticks(1_000, 50);
    arguments["key"] = json!("slow");
    call(id, "ticker", arguments)
}

fn json_only(on: Flavour) -> Bed {
    Bed::start(on, &["--response", "json"])
}

scenarios! {
    a_call_that_runs: plain, [
        "rejoin_calls_begun_total" By 2.0,
        "rejoin_calls_in_flight" By 1.0,
    ], |bed: &Bed| running(&session(bed));
    a_call_that_is_answered: plain, [
        "rejoin_call_duration_seconds_count" By 2.0,
        "rejoin_calls_in_flight" To 0.0,
    ], |bed: &Bed| session(bed).tell(&echo(1, "x"));
    a_call_that_its_client_cancels: plain, ["rejoin_calls_cancelled_total reason=by_client" By 1.0], |bed: &Bed| {
        let session = session(bed);
        let mut stream = running(&session);
        session.tell(&notification("notifications/cancelled", json!({"requestId": 1})));
        stream.rest()
    };
    a_call_whose_session_ends: plain, ["rejoin_calls_cancelled_total reason=session_ended" By 1.0], |bed: &Bed| {
        let session = session(bed);
        let mut stream = running(&session);
        ask(session.address, &session.delete());
        stream.rest()
    };
    a_call_that_a_drain_ends: |on| Bed::start(on, &["--drain", "200ms"]), ["rejoin_calls_cancelled_total reason=drain" By 1.0],
    |bed: &Bed| {
        // What it does not read keeps the server for a while after the drain's deadline.
        let session = session(bed);
        let mut arguments = ticks(1_000, 5);
        arguments["payload_bytes"] = json!(64 << 10);
        let mut deaf = Connection::open_narrow(session.address);
        deaf.send(&session.post(&call(1, "ticker", arguments)));
        let mut deaf = deaf.stream();
        deaf.event();
        bed.until("rejoin_log_used_bytes", |bytes| bytes > f64::from(8 << 20));
        bed.server.terminate();
        deaf
    };
    a_repost_while_it_runs: plain, [
        "rejoin_reposts_joined_total" By 1.0,
        "rejoin_executions_avoided_total kind=joined" By 1.0,
    ], |bed: &Bed| {
        let session = session(bed);
        let first = running(&session);
        let mut second = session.call(&slow(1));
        second.event();
        (first, second)
    };
    a_repost_after_its_end: plain, ["rejoin_executions_avoided_total kind=recorded" By 1.0], |bed: &Bed| {
        let session = session(bed);
        session.tell(&echo(1, "x"));
        session.tell(&echo(1, "x"))
    };
    a_repost_in_a_batch: plain, [
        "rejoin_executions_avoided_total kind=outcome_unknown" By 1.0,
        "rejoin_calls_cancelled_total reason=repeated" By 1.0,
        "rejoin_outcomes_unknown_total" By 1.0,
    ], |bed: &Bed| {
        let session = Session::begin(bed.server.address, MARCH);
        let batch = json!([echo(1, "x")]);
        session.tell(&batch);
        session.tell(&batch)
    };
    an_id_that_comes_again_with_another_body: plain, ["rejoin_sessions_marked_total" By 1.0], |bed: &Bed| {
        let session = session(bed);
        session.tell(&echo(1, "x"));
        session.tell(&echo(1, "y"))
    };
    a_cancellation_of_nothing: plain, ["rejoin_cancels_ignored_total" By 1.0],
        |bed: &Bed| session(bed).tell(&notification("notifications/cancelled", json!({"requestId": 1})));
    a_response_to_nothing: plain, ["rejoin_responses_unmatched_total" By 1.0],
        |bed: &Bed| session(bed).tell(&json!({"jsonrpc": "2.0", "id": 9, "result": {}}));
    a_notification_where_only_a_result_can_go: json_only, ["rejoin_notifications_dropped_total" By 3.0],
        |bed: &Bed| session(bed).tell(&call_with_token(1, "t", "ticker", ticks(3, 0)));
}
