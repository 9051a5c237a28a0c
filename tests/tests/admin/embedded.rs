//! What only an embedder can bring about, through an embedder's own registry.

use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use pollster::block_on;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;
use rejoin::{Key, Limits, SessionId, ShardState};
use rejoin_proto::ids::{Cursor, Incarnation, Position, StreamNumber};
use rejoin_tests::embedded::{Embedded, KEY};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::session::{NOVEMBER, Session, call};
use rejoin_tests::wire::{Answer, Connection, ask};
use serde_json::json;

use crate::boundary::echo;
use crate::scrape::Scrape;

on_every_server!(
    a_shard_that_a_handler_blocks_is_said_and_holds_no_scrape_up,
    a_reader_that_holds_the_log_is_cut_off,
    a_call_too_old_is_cancelled,
    a_stream_long_forgotten,
    a_cursor_of_a_lost_tail_ends_the_session,
    a_session_of_an_earlier_process,
    stats_of_a_server_that_has_ended_come_at_once,
);

/// What these move.
pub(crate) const MOVES: [&str; 9] = [
    "rejoin_log_lingering_bytes",
    "rejoin_sheds_total reason=slow_reader",
    "rejoin_shard_unresponsive",
    "rejoin_mailbox_messages",
    "rejoin_calls_cancelled_total reason=age",
    "rejoin_sessions_ended_total reason=lineage",
    "rejoin_verdicts_total kind=refused code=session_expired reason=lineage",
    "rejoin_verdicts_total kind=refused code=session_expired reason=forgotten",
    "rejoin_verdicts_total kind=refused code=session_expired reason=restarted",
];

fn started(on: Flavour, limits: Limits) -> (Embedded, Registry) {
    let server = Embedded::start(on, |builder| builder.key(Key::new(KEY)).limits(limits));
    let mut registry = Registry::default();
    rejoin::metrics::register(&mut registry, &server.handle);
    (server, registry)
}

fn value(registry: &Registry, series: &str) -> f64 {
    let mut text = String::new();
    prometheus_text::encode(&mut text, registry).expect("a string takes everything");
    Scrape::read(&text).value(series)
}

fn session(address: SocketAddr) -> Session {
    Session::begin(address, NOVEMBER)
}

fn resumed(session: &Session, stream: u32, position: u64) -> Answer {
    let id = SessionId::parse(session.id.as_bytes(), &Key::new(KEY)).expect("an id of this key");
    let cursor = Cursor::new(Incarnation::FIRST, StreamNumber(stream), Position::new(position));
    ask(session.address, &session.get_after(cursor.encode(&Key::new(KEY), &id).as_str()))
}

fn a_shard_that_a_handler_blocks_is_said_and_holds_no_scrape_up(on: Flavour) {
    let (server, registry) = started(on, Limits::default());
    let session = session(server.address);
    assert_eq!(value(&registry, "rejoin_shard_unresponsive"), 0.0);
    thread::scope(|scope| {
        let blocked = scope.spawn(|| session.tell(&call(1, "block", json!({"ms": 4_000}))));
        thread::sleep(Duration::from_millis(300));
        let listing = scope.spawn(|| block_on(server.handle.sessions()));
        let began = Instant::now();
        let stats = server.handle.stats(Duration::from_millis(200));
        assert!(began.elapsed() < Duration::from_secs(1), "{:?}", began.elapsed());
        let stuck = |state: &ShardState| matches!(state, ShardState::Unresponsive);
        assert_eq!(stats.iter().filter(|stats| stuck(&stats.state)).count(), 1, "the others answer: {stats:?}");
        assert!(stats.iter().any(|stats| stats.to_string().contains("unresponsive")));
        assert_eq!(value(&registry, "rejoin_shard_unresponsive"), 1.0);
        assert!(value(&registry, "rejoin_mailbox_messages") >= 1.0);
        assert_eq!(blocked.join().expect("answered").status(), 200);
        listing.join().expect("listed");
    });
    assert_eq!(value(&registry, "rejoin_shard_unresponsive"), 0.0);
    assert_eq!(value(&registry, "rejoin_mailbox_messages"), 0.0);
}

fn a_reader_that_holds_the_log_is_cut_off(on: Flavour) {
    const MIB: u64 = 1 << 20;
    // Sends as large as the log, so that one reader can hold all of it; its socket takes 4 MiB.
    let (log_bytes, send_bytes, stream_bytes, message_bytes) = (16 << 20, 16 << 20, 16 << 20, 16 << 20);
    let limits = Limits { log_bytes, send_bytes, stream_bytes, message_bytes, ..Limits::default() };
    let (server, registry) = started(Flavour { shards: 1, ..on }, limits);
    let (held, other) = (session(server.address), session(server.address));
    let say = |session: &Session, id: u64, count: u64, bytes: u64| {
        session.call(&call(id, "ticker", json!({"count": count, "payload_bytes": bytes}))).rest()
    };
    let opening = say(&held, 1, 60, MIB / 4).remove(0);
    let mut deaf = Connection::open_narrow(server.address);
    deaf.send(&held.get_after(opening.cursor()));
    deaf.head();
    say(&other, 2, 30, MIB / 4);
    assert!(value(&registry, "rejoin_log_lingering_bytes") > 0.0);
    assert_eq!(value(&registry, "rejoin_sheds_total reason=slow_reader"), 0.0);
    other.tell(&call(3, "ticker", json!({"count": 1, "payload_bytes": 12 * MIB})));
    assert_eq!(value(&registry, "rejoin_sheds_total reason=slow_reader"), 1.0);
}

fn a_call_too_old_is_cancelled(on: Flavour) {
    let (server, registry) = started(on, Limits { call_max_age: Duration::from_millis(200), ..Limits::default() });
    session(server.address).call(&call(1, "hold", json!({}))).rest();
    assert_eq!(value(&registry, "rejoin_calls_cancelled_total reason=age"), 1.0);
}

fn a_stream_long_forgotten(on: Flavour) {
    let (server, registry) = started(on, Limits { finished_streams: 0, ..Limits::default() });
    let session = session(server.address);
    // One that is being read is not forgotten: the next one's end does that.
    (1..=2).for_each(|id| drop(session.tell(&call(id, "ticker", json!({"count": 1})))));
    assert_eq!(resumed(&session, 2, 1).status(), 404);
    assert_eq!(value(&registry, "rejoin_verdicts_total kind=refused code=session_expired reason=forgotten"), 1.0);
}

fn a_cursor_of_a_lost_tail_ends_the_session(on: Flavour) {
    let (server, registry) = started(on, Limits::default());
    let session = session(server.address);
    assert_eq!(resumed(&session, 0, 9).status(), 404);
    assert_eq!(value(&registry, "rejoin_verdicts_total kind=refused code=session_expired reason=lineage"), 1.0);
    assert_eq!(value(&registry, "rejoin_sessions_ended_total reason=lineage"), 1.0);
}

fn a_session_of_an_earlier_process(on: Flavour) {
    let (earlier, _) = started(on, Limits::default());
    let old = session(earlier.address);
    drop(earlier);
    let (server, registry) = started(on, Limits::default());
    let returned = Session { address: server.address, ..old };
    assert_eq!(returned.tell(&echo(1, "x")).status(), 404);
    assert_eq!(value(&registry, "rejoin_verdicts_total kind=refused code=session_expired reason=restarted"), 1.0);
}

fn stats_of_a_server_that_has_ended_come_at_once(on: Flavour) {
    let (server, _) = started(on, Limits::default());
    server.handle.shutdown(Duration::ZERO);
    server.handle.wait();
    let began = Instant::now();
    let stats = server.handle.stats(Duration::from_secs(9));
    assert!(stats.iter().all(|stats| matches!(stats.state, ShardState::Ended(_))), "{stats:?}");
    assert!(began.elapsed() < Duration::from_secs(2), "{:?}", began.elapsed());
}
