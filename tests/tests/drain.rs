//! How a server ends: what can end does, the rest is told, and nothing hangs.

use std::net::TcpStream;
use std::thread::sleep;
use std::time::{Duration, Instant};

use rejoin_tests::check::{outcome_unknown, refused};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{NOVEMBER, Session, call, executions, initialize, ticks, ticks_in};
use rejoin_tests::wire::{Connection, Request};
use rustix::process::Signal;
use serde_json::json;

on_every_server!(
    an_idle_server_ends_at_once,
    a_call_that_ends_in_time_is_answered,
    a_call_that_does_not_is_told_and_its_stream_ends_cleanly,
    a_listener_gets_a_clean_end_with_retry,
    a_new_call_is_refused_while_draining,
    nobody_can_connect_while_draining,
    a_reader_that_takes_nothing_holds_nothing_up,
    a_second_signal_ends_it_at_once,
    an_interrupt_is_a_drain_too,
);

/// More than any drain here takes, on a slow machine.
const LONG: Duration = Duration::from_secs(20);

fn started(on: Flavour, drain: &str) -> (Rejoin, Session) {
    let server = Rejoin::start(on, &["--drain", drain]);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn ends_well(server: &mut Rejoin, patience: Duration) {
    let status = server.exit_within(patience).unwrap_or_else(|| panic!("still there after {patience:?}"));
    assert_eq!(status.code(), Some(0), "{status}");
}

fn an_idle_server_ends_at_once(on: Flavour) {
    let (mut server, _session) = started(on, "30s");
    let _idle = Connection::open(server.address);
    server.terminate();
    ends_well(&mut server, Duration::from_secs(5));
}

fn a_call_that_ends_in_time_is_answered(on: Flavour) {
    let (mut server, session) = started(on, "30s");
    let mut running = session.call(&call(1, "ticker", ticks(10, 100)));
    running.event();
    server.terminate();
    let rest = running.rest();
    assert_eq!(ticks_in(&rest), (1..=10).collect::<Vec<_>>());
    assert_eq!(executions(&rest.iter().rev().find(|block| block.is_message()).expect("a result").json()["result"]), 1);
    ends_well(&mut server, Duration::from_secs(10));
}

fn a_call_that_does_not_is_told_and_its_stream_ends_cleanly(on: Flavour) {
    let (mut server, session) = started(on, "1s");
    let mut running = session.call(&call("slow", "ticker", ticks(1_000, 50)));
    running.event();
    let asked = Instant::now();
    server.terminate();
    let rest = running.rest();
    assert!(asked.elapsed() >= Duration::from_millis(800), "it had a second, and got {:?}", asked.elapsed());
    outcome_unknown(rest.iter().rev().find(|block| block.is_message()).expect("an error"), "slow");
    ends_well(&mut server, LONG);
    assert!(asked.elapsed() < Duration::from_secs(6), "{:?}", asked.elapsed());
}

fn a_listener_gets_a_clean_end_with_retry(on: Flavour) {
    let (mut server, session) = started(on, "30s");
    let mut listening = session.listen();
    listening.event();
    server.terminate();
    let rest = listening.rest();
    assert!(rest.iter().all(|block| !block.is_message()), "{rest:?}");
    assert!(rest.iter().any(|block| block.retry.is_some()), "{rest:?}");
    ends_well(&mut server, Duration::from_secs(10));
}

fn a_new_call_is_refused_while_draining(on: Flavour) {
    let (mut server, session) = started(on, "3s");
    let mut open = Connection::open(server.address);
    assert_eq!(open.ask(&session.post(&call(0, "echo", json!({"text": "x"})))).status(), 200);
    let mut running = session.call(&call(1, "ticker", ticks(1_000, 50)));
    running.event();
    server.terminate();
    sleep(Duration::from_millis(300));
    // An idle connection may be closed at once; where it is not, it is told.
    if open.ended_within(Duration::from_millis(100)).is_none() {
        open.send(&session.post(&call(2, "echo", json!({"text": "late"}))));
        let answer = open.answer();
        refused(&answer, 503, "shed");
        assert!(answer.head.field("Retry-After").is_some(), "{}", answer.head);
    }
    running.rest();
    ends_well(&mut server, LONG);
}

fn nobody_can_connect_while_draining(on: Flavour) {
    let (mut server, session) = started(on, "2s");
    let mut running = session.call(&call(1, "ticker", ticks(1_000, 50)));
    running.event();
    server.terminate();
    sleep(Duration::from_millis(500));
    if let Ok(socket) = TcpStream::connect(server.address) {
        drop(socket);
        let mut late = Connection::open(server.address);
        if late.try_write(&Request::post(server.address, &initialize(1, NOVEMBER)).bytes()) {
            late.ended();
        }
    }
    running.rest();
    ends_well(&mut server, LONG);
}

fn a_reader_that_takes_nothing_holds_nothing_up(on: Flavour) {
    let (mut server, session) = started(on, "1s");
    let mut arguments = ticks(400, 1);
    arguments["payload_bytes"] = json!(16 << 10);
    let mut deaf = Connection::open_narrow(session.address);
    deaf.send(&session.post(&call(1, "ticker", arguments)));
    let mut deaf = deaf.stream();
    deaf.event();
    sleep(Duration::from_millis(1_500));
    let asked = Instant::now();
    server.terminate();
    ends_well(&mut server, LONG);
    assert!(asked.elapsed() < Duration::from_secs(8), "{:?}", asked.elapsed());
}

fn a_second_signal_ends_it_at_once(on: Flavour) {
    let (mut server, session) = started(on, "60s");
    let mut running = session.call(&call(1, "ticker", ticks(10_000, 50)));
    running.event();
    server.terminate();
    assert!(server.exit_within(Duration::from_millis(700)).is_none(), "a drain waits for its calls");
    server.terminate();
    assert!(server.exit_within(Duration::from_secs(5)).is_some(), "a second signal does not wait");
}

fn an_interrupt_is_a_drain_too(on: Flavour) {
    let (mut server, session) = started(on, "30s");
    let mut listening = session.listen();
    listening.event();
    server.signal(Signal::INT);
    listening.rest();
    ends_well(&mut server, Duration::from_secs(10));
}
