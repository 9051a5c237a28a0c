//! The event log: what it holds, and what goes.

use rejoin_tests::matrix::Flavour;
use rejoin_tests::session::{NOVEMBER, Session, call, ticks};
use serde_json::json;

use crate::boundary::{echo, plain, session};
use crate::scrape::{Bed, scenarios};

fn small(on: Flavour) -> Bed {
    Bed::start(on, &["--log-memory", "512KiB"])
}

fn flood(session: &Session, id: u64, count: u64) {
    let mut arguments = ticks(count, 0);
    arguments["payload_bytes"] = json!(4 << 10);
    session.call(&call(id, "ticker", arguments)).rest();
}

scenarios! {
    a_result_is_held: plain, [
        "rejoin_log_used_bytes" ByAtLeast 1000.0,
        "rejoin_log_pinned_bytes" ByAtLeast 1000.0,
        "rejoin_log_streams" By 2.0,
    ], |bed: &Bed| session(bed).tell(&echo(1, &"x".repeat(1_000)));
    events_too_old: |on| Bed::start(on, &["--event-ttl", "100ms"]), ["rejoin_evictions_total reason=age" By 5.0],
        |bed: &Bed| session(bed).call(&call(1, "ticker", ticks(5, 0))).rest();
    more_events_than_memory: small, ["rejoin_evictions_total reason=pressure" ByAtLeast 1.0],
        |bed: &Bed| flood(&session(bed), 1, 300);
    more_results_than_their_share: small, ["rejoin_evictions_total reason=pinned_share" ByAtLeast 1.0], |bed: &Bed| {
        let session = session(bed);
        (0..100).for_each(|id| drop(session.tell(&echo(id, &"x".repeat(4_000)))));
    };
    acknowledged_events_go_first: |on| small(Flavour { shards: 1, ..on }), [
        "rejoin_evictions_total reason=acknowledged" ByAtLeast 1.0,
    ], |bed: &Bed| {
        let quiet = Session::begin(bed.server.address, NOVEMBER);
        let mut arguments = ticks(40, 0);
        arguments["payload_bytes"] = json!(4 << 10);
        let blocks = quiet.call(&call(1, "ticker", arguments)).rest();
        quiet.resume(blocks[blocks.len() - 2].cursor()).rest();
        flood(&session(bed), 1, 200);
    };
}
