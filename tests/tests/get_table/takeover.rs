//! One reader a stream: the newest GET wins, and the older connection is told, quickly and once.

use std::thread::sleep;
use std::time::Duration;

use rejoin_tests::check::positions;
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{NOVEMBER, Session, call, executions, tick, ticks, ticks_in};
use rejoin_tests::sse::Block;
use rejoin_tests::wire::{Connection, Ended, PATIENCE, Step, Stream};
use serde_json::json;

on_every_server!(
    a_newer_get_takes_the_standalone_stream_over,
    a_get_takes_a_call_over_from_its_post,
    an_older_get_never_gets_an_event_more,
    takeovers_in_turn_double_the_losers_retry,
    a_loser_that_does_not_read_is_reset,
    other_streams_of_the_session_are_not_touched,
);

fn started(on: Flavour) -> (Rejoin, Session) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

/// What a loser is sent before its clean end: at most a `retry`.
fn farewell(loser: &mut Stream) -> Option<Duration> {
    let blocks = loser.rest();
    let silent = |block: &Block| block.id.is_none() && block.data.as_ref().is_none_or(String::is_empty);
    assert!(blocks.iter().all(silent), "{blocks:?}");
    blocks.iter().rev().find_map(|block| block.retry)
}

fn a_newer_get_takes_the_standalone_stream_over(on: Flavour) {
    let (_server, session) = started(on);
    let mut older = session.listen();
    older.event();
    let mut newer = session.listen();
    farewell(&mut older);
    newer.event();
    session.result(&call(1, "broadcast", json!({"count": 3, "interval_ms": 0})));
    assert_eq!(positions(&newer.take(3)), [1, 2, 3]);
}

fn a_get_takes_a_call_over_from_its_post(on: Flavour) {
    let (_server, session) = started(on);
    let mut posted = session.call(&call(1, "ticker", ticks(20, 50)));
    let mut seen = posted.until(|block| tick(block) == Some(2));
    let mut taken = session.resume(seen[seen.len() - 1].cursor());
    let on_the_way = posted.rest();
    assert!(on_the_way.iter().all(|block| tick(block).is_some() || !block.is_message()), "{on_the_way:?}");
    seen.extend(taken.rest().split_off(1));
    assert_eq!(ticks_in(&seen), (1..=20).collect::<Vec<_>>());
    assert_eq!(executions(&seen[seen.len() - 1].json()["result"]), 1);
}

fn an_older_get_never_gets_an_event_more(on: Flavour) {
    let (_server, session) = started(on);
    let mut readers: Vec<Stream> = Vec::new();
    for round in 0..10 {
        let mut newer = session.listen();
        newer.event();
        if let Some(mut older) = readers.pop() {
            farewell(&mut older);
        }
        session.result(&call(round, "broadcast", json!({"count": 1, "interval_ms": 0})));
        assert_eq!(positions(&newer.take(1)), [round + 1]);
        readers.push(newer);
    }
}

fn takeovers_in_turn_double_the_losers_retry(on: Flavour) {
    let (_server, session) = started(on);
    let mut holder = session.listen();
    holder.event();
    let mut told = Vec::new();
    for _ in 0..5 {
        let mut next = session.listen();
        next.event();
        told.push(farewell(&mut holder).expect("a loser is told when to come back").as_secs_f64());
        holder = next;
    }
    // Each is the double of the one before, each spread by a fifth.
    assert!(told.windows(2).all(|pair| (1.3..=3.1).contains(&(pair[1] / pair[0]))), "{told:?}");
    assert!(told[4] >= 3.0 * 8.0 * 0.8, "{told:?}");
}

fn a_loser_that_does_not_read_is_reset(on: Flavour) {
    let (_server, session) = started(on);
    let mut arguments = ticks(500, 0);
    arguments["payload_bytes"] = json!(16 << 10);
    let mut deaf = Connection::open_narrow(session.address);
    deaf.send(&session.post(&call(1, "ticker", arguments)));
    let mut deaf = deaf.stream();
    let seen = deaf.take(2);
    sleep(Duration::from_millis(3_000));
    let mut newer = session.resume(seen[1].cursor());
    newer.event();
    sleep(Duration::from_millis(5_000));
    loop {
        match deaf.step(PATIENCE) {
            Step::Block(_) => {}
            Step::Cut(ended) => {
                assert_eq!(ended, Ended::Reset);
                break;
            }
            other => panic!("a connection that takes nothing must be reset: {other:?}"),
        }
    }
    let rest = newer.rest();
    assert_eq!(executions(&rest[rest.len() - 1].json()["result"]), 1);
}

fn other_streams_of_the_session_are_not_touched(on: Flavour) {
    let (_server, session) = started(on);
    let mut running = session.call(&call(1, "ticker", ticks(10, 40)));
    running.event();
    let mut older = session.listen();
    older.event();
    let mut newer = session.listen();
    newer.event();
    farewell(&mut older);
    assert_eq!(ticks_in(&running.rest()), (1..=10).collect::<Vec<_>>());
    newer.stays_silent(Duration::from_millis(50));
}
