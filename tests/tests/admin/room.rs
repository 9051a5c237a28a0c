//! Sessions, connections, and what there is no room for.

use std::time::Duration;

use rejoin_tests::matrix::Flavour;
use rejoin_tests::session::{MARCH, NOVEMBER, Session, call, initialize, ticks};
use rejoin_tests::stateless::alone;
use rejoin_tests::wire::{Connection, Request, Stream, ask, open};
use serde_json::{Value, json};

use crate::boundary::{echo, plain, session};
use crate::calls::running;
use crate::scrape::{Bed, scenarios};

fn limited(on: Flavour) -> Bed {
    Bed::start(on, &["--max-sessions", "8", "--max-connections", "6", "--log-memory", "4MiB"])
}

fn as_many_calls_as_may_be(bed: &Bed) -> Vec<rejoin_tests::wire::Stream> {
    let session = Session::begin(bed.server.address, MARCH);
    let slow = |id: u64| call(id, "ticker", ticks(1_000, 200));
    let batch = |batch: u64| Value::Array((0..64).map(|at| slow(batch * 64 + at)).collect());
    let mut streams: Vec<_> = (0..4).map(|at| session.call(&batch(at))).collect();
    streams.iter_mut().for_each(|stream| drop(stream.event()));
    assert_eq!(session.tell(&echo(1_000, "x")).status(), 503);
    streams
}

fn one_exchange_too_many(bed: &Bed) -> Stream {
    let mut first = open(bed.server.address, &alone(bed.server.address, &call(1, "ticker", ticks(1_000, 50))));
    assert_eq!(ask(bed.server.address, &alone(bed.server.address, &call(2, "echo", json!({ "text": "x" })))).status(), 503);
    first.stays_silent(Duration::from_millis(10));
    first
}

fn one_too_many_under_a_key(bed: &Bed) -> Vec<Connection> {
    let request = alone(bed.server.address, &call(1, "ticker", ticks(1_000, 50))).with("Idempotency-Key", "one for all");
    // One runs, and as many wait as may.
    let mut connections: Vec<_> = (0..257).map(|_| Connection::open(bed.server.address)).collect();
    connections.iter_mut().for_each(|connection| connection.send(&request));
    bed.until("rejoin_exchanges", |exchanges| exchanges >= 257.0);
    assert_eq!(ask(bed.server.address, &request).status(), 503);
    connections
}

fn an_initialize_that_comes_too_late(bed: &Bed) -> impl Sized + use<> {
    let running = running(&session(bed));
    let request = Request::post(bed.server.address, &initialize(1, NOVEMBER)).bytes();
    let (first, rest) = request.split_at(40);
    let mut late = Connection::open(bed.server.address);
    late.write(first);
    bed.until("rejoin_connections", |connections| connections >= 2.0);
    std::thread::sleep(Duration::from_millis(100));
    bed.server.terminate();
    bed.until("rejoin_draining", |draining| draining >= 1.0);
    late.write(rest);
    assert_eq!(late.answer().status(), 503);
    running
}

scenarios! {
    a_session_begins: plain, [
        "rejoin_sessions" By 1.0,
        "rejoin_sessions_begun_total" By 1.0,
        "rejoin_timers" ByAtLeast 1.0,
    ], session;
    a_connection_opens: plain, [
        "rejoin_connections" By 1.0,
        "rejoin_connections_opened_total" By 1.0,
    ], |bed: &Bed| Connection::open(bed.server.address);
    the_limits_are_what_the_options_say: limited, [
        "rejoin_sessions_limit" To 8.0,
        "rejoin_exchanges_limit" To 10000.0,
        "rejoin_connections_limit" To 6.0,
        "rejoin_log_limit_bytes" To 4194304.0,
        "rejoin_log_pinned_limit_bytes" To 1048576.0,
    ], |_: &Bed| {};
    too_many_at_once: |on| Bed::start(on, &["--admission-wait", "1ms"]), ["rejoin_sheds_total reason=herd" ByAtLeast 1.0],
        |bed: &Bed| bed.server.herd();
    connections_too_many: |on| Bed::start(on, &["--max-connections", "2"]), ["rejoin_sheds_total reason=connections" ByAtLeast 4.0],
        |bed: &Bed| (0..6).map(|_| Connection::open(bed.server.address)).collect::<Vec<_>>();
    exchanges_too_many: |on| Bed::start(Flavour { shards: 1, ..on }, &["--max-exchanges", "1"]), [
        "rejoin_exchanges" By 1.0,
        "rejoin_sheds_total reason=exchanges" By 1.0,
    ], one_exchange_too_many;
    keys_too_many: |on| Bed::start(Flavour { shards: 1, ..on }, &[]), [
        "rejoin_exchanges" ByAtLeast 257.0,
        "rejoin_sheds_total reason=idempotency_keys" By 1.0,
    ], one_too_many_under_a_key;
    calls_too_many: plain, ["rejoin_sheds_total reason=calls" By 1.0], as_many_calls_as_may_be;
    a_session_while_draining: |on| Bed::start(on, &["--drain", "20s"]), [
        "rejoin_draining" ByAtLeast 1.0,
        "rejoin_sheds_total reason=draining" By 1.0,
    ], an_initialize_that_comes_too_late;
}
