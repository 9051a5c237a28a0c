//! Every counter moves with its event, and with no other.

use std::time::Duration;

use super::*;
use crate::eventlog::Evicted;
use crate::refusal::{Ended, RefusalKind, Room};
use crate::shard::counters::{Avoided, GapReason, Resumed, Snapshot};
use crate::shard::io::Cancelled;

const TAIL: &str = "tail";

impl Bench {
    fn snapshot(&self) -> Snapshot {
        self.shard.snapshot(self.now)
    }

    fn counters(&self) -> &Counters {
        self.shard.counters()
    }

    /// A session with a call whose connection has gone after so many events.
    fn cut(&mut self, events: u64) -> (SessionId, CallId) {
        let session = self.session("2025-11-25");
        let (conn, call) = self.call(session, CALL);
        self.notify_all(session, call, events);
        self.input(Input::Closed { conn });
        (session, call)
    }

    fn notify_all(&mut self, session: SessionId, call: CallId, events: u64) {
        (0..events).for_each(|_| self.notify(session, Target::Call(call), TAIL).expect("taken"));
    }
}

#[test]
fn each_verdict_counts_as_its_kind() {
    let mut bench = Bench::new(|config| config.limits.stream_events = 2);
    let (session, call) = bench.cut(3);
    bench.get(session, Some(&cursor(session, 2, 3)));
    assert_eq!(bench.counters().verdicts[Resumed::Tail], 1);
    bench.get(session, Some(&cursor(session, 2, 2)));
    assert_eq!(bench.counters().verdicts[Resumed::Replay], 1);
    bench.get(session, Some(&cursor(session, 2, 0)));
    assert_eq!(bench.counters().verdicts[Resumed::Resync], 1);
    bench.result(session, call, "{}").expect("taken");
    bench.get(session, Some(&cursor(session, 2, 4)));
    assert_eq!(bench.counters().verdicts.into_array(), [1, 1, 1, 1]);
    assert_eq!(bench.counters().takeovers, 2);
}

#[test]
fn a_refusal_counts_once_under_its_code_and_reason() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    bench.get(session, Some("nonsense"));
    assert_eq!(bench.counters().refusals[RefusalKind::InvalidCursor], 1);
    bench.ask(&format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{}\r\n", id(session)));
    bench.get(session, None);
    assert_eq!(bench.counters().refusals[RefusalKind::SessionExpired(Ended::Deleted)], 1);
    assert_eq!(bench.counters().sessions_ended[Ended::Deleted], 1);
    assert_eq!(bench.counters().refusals.values().sum::<u64>(), 2);
}

#[test]
fn a_gap_counts_by_its_size_and_reason() {
    let mut bench = Bench::new(|config| config.limits.stream_events = 2);
    let (session, call) = bench.cut(7);
    let (conn, _) = bench.get(session, Some(&cursor(session, 2, 0)));
    let gaps = bench.counters().gaps;
    assert_eq!((gaps[GapReason::Evicted].count(), gaps[GapReason::Evicted].sum()), (1, 5));
    bench.stuck.push(conn);
    bench.notify_all(session, call, 5);
    bench.input(Input::Sent { conn, bytes: usize::MAX });
    let gaps = bench.counters().gaps;
    assert_eq!(gaps[GapReason::Evicted].count(), 1);
    assert_eq!((gaps[GapReason::Overrun].count(), gaps[GapReason::Overrun].sum()), (1, 2));
}

#[test]
fn only_what_was_issued_before_the_reader_came_is_a_replay() {
    let mut bench = Bench::new(|_| {});
    let (session, call) = bench.cut(5);
    assert_eq!((bench.counters().replayed_events, bench.counters().replayed_bytes), (0, 0), "live is no replay");
    let (conn, answer) = bench.get(session, Some(&cursor(session, 2, 2)));
    let frames: usize = (3..=5).map(|at| frame_length(&answer, &cursor(session, 2, at))).sum();
    assert_eq!((bench.counters().replayed_events, bench.counters().replayed_bytes), (3, frames as u64));
    bench.notify_all(session, call, 2);
    assert!(bench.got(conn).contains(&cursor(session, 2, 7)));
    assert_eq!(bench.counters().replayed_events, 3, "what came after the reader is live");
}

/// Bytes of the frame with this id.
fn frame_length(answer: &str, id: &str) -> usize {
    let from = answer.find(&format!("id: {id}\ndata: ")).unwrap_or_else(|| panic!("no {id} in {answer}"));
    answer[from..].find("\n\n").expect("the frame's end") + 2
}

#[test]
fn a_run_that_goes_on_into_live_is_a_replay_up_to_there() {
    let mut bench = Bench::new(|_| {});
    let (session, call) = bench.cut(1);
    bench.shard.config.limits.send_bytes = 1;
    let (first, answer) = bench.get(session, Some(&cursor(session, 2, 0)));
    bench.input(Input::Closed { conn: first });
    let frame = frame_length(&answer, &cursor(session, 2, 1)) as u64;
    assert_eq!((bench.counters().replayed_events, bench.counters().replayed_bytes), (1, frame));
    // Two are to be replayed, one goes at once; the next run has the other and one that came meanwhile.
    bench.notify_all(session, call, 1);
    let conn = bench.open();
    bench.stuck.push(conn);
    let request = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{}", id(session));
    bench.send(conn, &format!("{request}Last-Event-ID: {}\r\n\r\n", cursor(session, 2, 0)));
    bench.notify_all(session, call, 1);
    bench.shard.config.limits.send_bytes = 1 << 20;
    bench.input(Input::Sent { conn, bytes: usize::MAX });
    let answer = bench.got(conn);
    assert!(answer.contains(&cursor(session, 2, 3)), "{answer}");
    assert_eq!((bench.counters().replayed_events, bench.counters().replayed_bytes), (3, 3 * frame));
}

#[test]
fn a_repost_is_an_execution_avoided_however_it_is_answered() {
    let mut bench = Bench::new(|config| config.limits.call_records = 1);
    let session = bench.session("2025-11-25");
    let (_, call) = bench.call(session, CALL);
    bench.ask(&post(&id(session), CALL));
    assert_eq!(bench.counters().executions_avoided[Avoided::Joined], 1);
    bench.result(session, call, "{}").expect("taken");
    bench.ask(&post(&id(session), CALL));
    assert_eq!(bench.counters().executions_avoided[Avoided::Recorded], 1);
    let other = CALL.replace("\"id\":7", "\"id\":8");
    bench.call(session, &other);
    bench.ask(&post(&id(session), CALL));
    assert_eq!(bench.counters().executions_avoided[Avoided::OutcomeUnknown], 1, "its record made room for the other's");
    assert_eq!((bench.counters().reposts_joined, bench.counters().outcomes_unknown), (2, 1));
}

#[test]
fn calls_in_flight_are_those_that_began_and_have_not_ended_however_they_ended() {
    let mut bench = Bench::new(|config| config.limits.call_max_age = Duration::from_secs(10));
    let session = bench.session("2025-11-25");
    let calls: Vec<_> = (10..14).map(|id| bench.call(session, &CALL.replace("7", &id.to_string())).1).collect();
    assert_eq!(bench.counters().calls_in_flight(), 4);
    bench.wait(3);
    bench.result(session, calls[0], "{}").expect("taken");
    let answered = bench.counters().calls_answered;
    assert_eq!((answered.count(), answered.sum()), (2, 3), "initialize took no time, the call three milliseconds");
    let cancel = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":11}}"#;
    bench.ask(&post(&id(session), cancel));
    assert_eq!(bench.counters().calls_cancelled[Cancelled::ByClient], 1);
    bench.wait(10_000);
    assert_eq!(bench.counters().calls_cancelled[Cancelled::Age], 2);
    assert_eq!((bench.counters().calls_begun, bench.counters().calls_in_flight()), (5, 0));
    bench.call(session, &CALL.replace("7", "20"));
    bench.input(Input::Command(Command::Rotate(session)));
    assert_eq!((bench.counters().calls_cancelled[Cancelled::SessionEnded], bench.counters().calls_in_flight()), (1, 0));
}

#[test]
fn an_initialize_that_fails_leaves_no_call_in_flight() {
    let mut bench = Bench::new(|_| {});
    let initialize = post("", r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#);
    for shed in [false, true] {
        bench.ask(&initialize);
        let Some((session, Delivery::Initialize { call, .. })) = bench.deliveries.pop() else { panic!("no initialize") };
        let error = Bytes::from_static(br#"{"code":-1,"message":"no"}"#);
        let emission = if shed { Emission::Shed { call, why: "full" } } else { Emission::Error { call, error } };
        bench.emit(session, emission).expect("taken");
        bench.deliveries.clear();
        assert_eq!((bench.counters().calls_in_flight(), bench.snapshot().sessions), (0, 0));
    }
    assert_eq!((bench.counters().sessions_begun, bench.counters().sessions_ended[Ended::Closed]), (2, 2));
    assert_eq!(bench.counters().sheds[Room::Handler], 1);
}

#[test]
fn a_shed_is_counted_by_what_had_no_room_and_remembered_where_it_is_the_servers() {
    let mut bench = Bench::new(|config| (config.limits.sessions, config.limits.calls_in_flight) = (1, 0));
    let session = bench.session("2025-11-25");
    bench.ask(&post(&id(session), CALL));
    assert_eq!((bench.counters().sheds[Room::Call], bench.snapshot().overloaded), (1, None), "one session's own bound");
    bench.ask(&post("", r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#));
    bench.wait(7);
    assert_eq!(bench.counters().sheds[Room::Session], 1);
    assert_eq!(bench.snapshot().overloaded, Some(Duration::from_millis(7)));
    bench.input(Input::Command(Command::Drain { deadline: bench.now + Duration::from_secs(9) }));
    bench.ask(&post("", r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#));
    assert_eq!(bench.counters().sheds[Room::Draining], 1);
    assert!(bench.snapshot().draining);
    assert_eq!(bench.snapshot().overloaded, Some(Duration::from_millis(7)), "a drain is no lack of room");
}

#[test]
fn a_connection_that_comes_when_a_drain_is_over_is_told_of_the_drain() {
    let mut bench = Bench::new(|_| {});
    bench.open();
    bench.input(Input::Command(Command::Drain { deadline: bench.now }));
    bench.wait(1);
    let late = bench.open();
    assert!(bench.got(late).contains("The server is shutting down"), "{}", bench.got(late));
    assert_eq!(bench.counters().sheds[Room::Draining], 1);
    assert_eq!(bench.snapshot().overloaded, None, "a drain is no lack of room");
}

#[test]
fn a_connection_too_many_is_counted_and_not_kept() {
    let mut bench = Bench::new(|config| config.limits.connections = 1);
    bench.open();
    bench.open();
    let snapshot = bench.snapshot();
    assert_eq!((snapshot.connections, snapshot.connections_max), (1, 1));
    assert_eq!((bench.counters().connections_opened, bench.counters().sheds[Room::Connection]), (2, 1));
    assert_eq!(bench.counters().refusals[RefusalKind::Shed], 1);
}

#[test]
fn those_who_are_too_many_at_once_are_told_instants_of_their_own() {
    let mut bench = Bench::new(|_| {});
    let told: std::collections::BTreeSet<u64> = (0..200)
        .map(|_| {
            let conn = bench.shed(Duration::from_secs(5));
            let answer = bench.got(conn);
            assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("\r\nRejoin-Verdict: shed\r\n"), "{answer}");
            assert_eq!(bench.closed[conn.0 as usize], Some(Close::Clean));
            let after = answer.split("Retry-After: ").nth(1).and_then(|rest| rest.split("\r\n").next()).expect("told when");
            after.parse().expect("seconds")
        })
        .collect();
    assert_eq!(told, (1..=5).collect());
    let counters = bench.counters();
    assert_eq!((counters.sheds[Room::Herd], counters.connections_opened), (200, 200));
    assert_eq!(bench.snapshot().connections, 0, "nothing is kept of them");
    let soon = bench.shed(Duration::from_millis(10));
    assert!(bench.got(soon).contains("\r\nRetry-After: 1\r\n"), "a second is the least that can be said");
}

#[test]
fn evictions_count_by_their_cause() {
    let evicted = |bench: &Bench, cause| bench.snapshot().log.evicted[cause];
    let mut bench = Bench::new(|config| config.limits.stream_events = 4);
    let (session, call) = bench.cut(7);
    assert_eq!(evicted(&bench, Evicted::StreamLimit), 3);
    bench.wait(6 * 60 * 1_000);
    assert_eq!(evicted(&bench, Evicted::Age), 4);
    bench.result(session, call, "{}").expect("taken");
    bench.wait(31 * 60 * 1_000);
    assert_eq!(evicted(&bench, Evicted::Age), 6, "a result has its own age, and so has initialize's");

    let mut bench = Bench::new(|config| config.limits.log_bytes = 64 << 10);
    let (session, call) = bench.cut(10);
    bench.get(session, Some(&cursor(session, 2, 9)));
    bench.notify_all(session, call, 500);
    assert!(evicted(&bench, Evicted::Acknowledged) > 0 && evicted(&bench, Evicted::Acknowledged) <= 9);
    let pressed = evicted(&bench, Evicted::Pressure);
    assert!((1..=500).contains(&pressed), "{pressed}");
    for number in 100..140 {
        let (_, call) = bench.call(session, &CALL.replace("7", &number.to_string()));
        bench.result(session, call, &format!("\"{}\"", "x".repeat(1_000))).expect("taken");
    }
    let snapshot = bench.snapshot();
    assert!(snapshot.log.evicted[Evicted::PinnedShare] > 0 && snapshot.log.pinned <= snapshot.log.pinned_budget);
    assert!(snapshot.log.used <= snapshot.log.budget && snapshot.log.streams > 0);
}

#[test]
fn a_snapshot_for_people_names_no_session() {
    let mut bench = Bench::new(|_| {});
    let (session, _) = bench.cut(3);
    bench.get(session, None);
    let text = bench.snapshot().to_string();
    assert!(text.contains("sessions     1 of ") && text.contains("tail 1"), "{text}");
    assert!(!text.contains(&session.to_string()), "{text}");
}
