//! A handler that lets go of its call's connections: the client comes back for the rest.

use std::time::Duration;

use super::*;

/// The `retry` of the last block that an answer ends with, in milliseconds.
fn goodbye(answer: &str) -> u64 {
    let said = answer.strip_suffix("\r\n0\r\n\r\n").and_then(|answer| answer.strip_suffix("\n\n")).expect("a clean end");
    said.rsplit("retry: ").next().and_then(|retry| retry.parse().ok()).unwrap_or_else(|| panic!("no retry ends {answer:?}"))
}

fn hang_up(bench: &mut Bench, session: SessionId, call: CallId, retry: Option<u64>) -> Result<(), NotTaken> {
    bench.emit(session, Emission::HangUp { call, retry: retry.map(Duration::from_millis) })
}

#[test]
fn the_connection_ends_with_an_id_and_a_retry_and_the_call_goes_on() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    hang_up(&mut bench, session, call, None).expect("taken");
    let answer = bench.got(conn);
    assert!(answer.contains(&format!("id: {}\nretry: ", cursor(session, 2, 0))), "{answer}");
    assert!((2_400..=3_600).contains(&goodbye(&answer)), "{answer}");
    assert!(bench.closed[conn.0 as usize].is_none() && bench.deliveries.is_empty(), "nothing is cancelled");
    bench.notify(session, Target::Call(call), "meanwhile").expect("taken");
    assert_eq!(bench.got(conn), answer, "nothing more is said there");
    let (back, answer) = bench.get(session, Some(&cursor(session, 2, 0)));
    assert!(answer.contains("Rejoin-Verdict: replay") && answer.contains("meanwhile"), "{answer}");
    bench.result(session, call, "{}").expect("taken");
    assert!(bench.got(back).contains("\"result\":{}"), "{}", bench.got(back));
}

#[test]
fn whoever_came_back_is_let_go_again() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    let (joined, _) = bench.ask(&post(&id(session), CALL));
    hang_up(&mut bench, session, call, Some(100)).expect("taken");
    for conn in [conn, joined] {
        assert!(bench.got(conn).contains("n1") && goodbye(&bench.got(conn)) <= 120, "{}", bench.got(conn));
    }
    let (back, _) = bench.get(session, Some(&cursor(session, 2, 1)));
    hang_up(&mut bench, session, call, Some(100)).expect("taken");
    assert!(goodbye(&bench.got(back)) <= 120, "{}", bench.got(back));
    // With nobody there it is nothing.
    hang_up(&mut bench, session, call, Some(100)).expect("taken");
}

#[test]
fn a_client_is_never_sent_away_for_longer_than_the_bound() {
    let mut bench = Bench::new(|config| config.limits.retry_max = Duration::from_secs(10));
    let session = bench.session("2025-11-25");
    for (retry, most) in [(9_000, 10_800), (10_000, 12_000), (10_001, 12_000), (u64::MAX, 12_000)] {
        let body = CALL.replace("\"id\":7", &format!("\"id\":\"{retry}\""));
        let (conn, call) = bench.call(session, &body);
        hang_up(&mut bench, session, call, Some(retry)).expect("taken");
        let said = goodbye(&bench.got(conn));
        assert!((retry.min(10_000) * 8 / 10..=most).contains(&said), "{said} for {retry}");
    }
}

#[test]
fn a_client_that_could_not_come_back_keeps_its_connection() {
    for (revision, policy) in
        [("2025-06-18", ResponsePolicy::Auto), ("2025-03-26", ResponsePolicy::Sse), ("2025-11-25", ResponsePolicy::Json)]
    {
        let mut bench = Bench::new(|config| config.response = policy);
        let session = bench.session(revision);
        let (conn, call) = bench.call(session, CALL);
        let before = bench.got(conn);
        hang_up(&mut bench, session, call, None).expect("taken");
        assert_eq!(bench.got(conn), before, "{revision}");
        bench.result(session, call, "{}").expect("taken");
        assert!(bench.got(conn).contains("\"result\":{}"), "{revision}: {}", bench.got(conn));
    }
}

#[test]
fn only_a_call_in_flight_has_connections_to_let_go() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (_, call) = bench.call(session, CALL);
    bench.result(session, call, "{}").expect("taken");
    assert_eq!(hang_up(&mut bench, session, call, None), Err(NotTaken::CallEnded));
    let (conn, _) = bench.ask(&post("", r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#));
    let Some((beginning, Delivery::Initialize { call, .. })) = bench.deliveries.pop() else { panic!("no initialize") };
    hang_up(&mut bench, beginning, call, None).expect("taken");
    assert_eq!(bench.got(conn), "", "the answer that names the session is waited for");
}
