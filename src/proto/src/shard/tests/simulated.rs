//! What the simulation found, each as a short example.

use super::*;
use crate::shard::io::Outcome;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#;

#[test]
fn a_stranger_is_a_stranger_however_large_its_body() {
    let mut bench = Bench::new(|config| config.limits.body_bytes = 10);
    let fields = "Authorization: Bearer wrong\r\nOrigin: http://localhost\r\n";
    let (conn, answer) = bench.ask(&post(fields, INITIALIZE));
    assert!(answer.starts_with("HTTP/1.1 401 ") && answer.contains("WWW-Authenticate: Bearer"), "{answer}");
    assert_eq!(bench.closed[conn.0 as usize], Some(Close::Clean), "what follows cannot be told from the body");
}

#[test]
fn a_page_may_read_that_its_body_is_too_large() {
    let mut bench = Bench::new(|config| config.limits.body_bytes = 10);
    let (_, answer) = bench.ask(&post("Origin: http://localhost\r\n", INITIALIZE));
    assert!(answer.starts_with("HTTP/1.1 413 "), "{answer}");
    assert!(answer.contains("Access-Control-Allow-Origin: http://localhost\r\n"), "{answer}");
}

#[test]
fn an_answered_initialize_is_not_cancelled() {
    let mut bench = Bench::new(|_| {});
    let (conn, _) = bench.ask(&post("", INITIALIZE));
    let Some((session, Delivery::Initialize { call, .. })) = bench.deliveries.pop() else { panic!("no initialize") };
    let error = Bytes::from_static(br#"{"code":-1,"message":"no"}"#);
    bench.emit(session, Emission::Error { call, error }).expect("taken");
    assert!(bench.got(conn).contains(r#""message":"no""#), "{}", bench.got(conn));
    assert!(matches!(bench.deliveries[..], [(_, Delivery::Closed { .. })]), "{:?}", bench.deliveries);
}

#[test]
fn a_repost_of_a_finished_call_is_a_whole_answer_under_every_policy() {
    for response in [ResponsePolicy::Auto, ResponsePolicy::Sse, ResponsePolicy::Json] {
        let mut bench = Bench::new(|config| config.response = response);
        let session = bench.session("2025-11-25");
        let (_, call) = bench.call(session, CALL);
        bench.result(session, call, "{}").expect("taken");
        let (_, answer) = bench.ask(&post(&id(session), CALL));
        assert!(answer.starts_with("HTTP/1.1 200 OK\r\n") && answer.contains(r#""result":{}"#), "{response:?}: {answer}");
    }
}

/// A session that keeps so many finished streams, with a call that is answered and not read to its end yet.
fn finished_and_being_read(kept: usize) -> (Bench, SessionId, ConnId) {
    let mut bench = Bench::new(|config| {
        config.limits.finished_streams = kept;
        config.response = ResponsePolicy::Sse;
    });
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, CALL);
    bench.stuck.push(conn);
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    bench.result(session, call, "{}").expect("taken");
    (bench, session, conn)
}

#[test]
fn a_stream_that_is_being_read_is_not_forgotten() {
    let (mut bench, _, conn) = finished_and_being_read(0);
    bench.stuck.clear();
    bench.input(Input::Sent { conn, bytes: 1 << 20 });
    let answer = bench.got(conn);
    assert!(answer.contains(r#""result":{}"#) && answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[test]
fn a_younger_tombstone_does_not_go_in_place_of_one_that_is_read() {
    let (mut bench, session, _) = finished_and_being_read(1);
    let (_, call) = bench.call(session, &CALL.replace("\"id\":7", "\"id\":8"));
    bench.result(session, call, "{}").expect("taken");
    let (_, answer) = bench.get(session, Some(&cursor(session, 3, 1)));
    assert!(answer.contains("Rejoin-Verdict: complete"), "{answer}");
}

#[test]
fn what_a_lost_connection_did_not_bring_counts_as_not_said() {
    let mut bench = Bench::new(|config| config.limits.stream_events = 2);
    let session = bench.session("2025-11-25");
    bench.notify(session, Target::Standalone, "one").expect("taken");
    let conn = bench.open();
    bench.stuck.push(conn);
    let fields = id(session);
    bench.send(conn, &format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{fields}\r\n"));
    bench.input(Input::Sent { conn, bytes: bench.got(conn).find("one").expect("it is on its way") });
    // What is on its way is evicted meanwhile: nobody can count its bytes any more.
    bench.notify(session, Target::Standalone, "two").expect("taken");
    bench.notify(session, Target::Standalone, "three").expect("taken");
    bench.input(Input::Closed { conn });
    let (_, answer) = bench.get(session, None);
    assert!(answer.contains("Rejoin-Verdict: resync") && answer.contains(r#""lost":1,"#), "{answer}");
    assert!(answer.contains("two") && answer.contains("three"), "{answer}");
}

#[test]
fn a_get_without_a_cursor_goes_on_from_what_was_written_not_from_what_was_tried() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (dead, _) = bench.get(session, None);
    bench.stuck.push(dead);
    bench.notify(session, Target::Standalone, "one").expect("taken");
    let (next, answer) = bench.get(session, None);
    assert!(answer.contains("one"), "half-open connections bring nothing: {answer}");
    bench.input(Input::Closed { conn: dead });
    bench.notify(session, Target::Standalone, "two").expect("taken");
    assert_eq!(bench.got(next).matches("one").count(), 1);
    let (_, answer) = bench.get(session, None);
    assert!(answer.contains("Rejoin-Verdict: tail"), "{answer}");
}

#[test]
fn an_answer_to_half_a_request_is_not_shaped_by_the_request_before() {
    let mut bench = Bench::new(|_| {});
    let (conn, answer) = bench.ask("HEAD /mcp HTTP/1.1\r\nHost: localhost\r\n\r\nGET /mcp");
    assert!(answer.starts_with("HTTP/1.1 405 ") && answer.ends_with("\r\n\r\n"), "{answer}");
    bench.received[conn.0 as usize].clear();
    bench.wait(60_000);
    let answer = bench.got(conn);
    assert!(answer.starts_with("HTTP/1.1 408 ") && answer.contains(r#""code":"timeout""#) && answer.ends_with('}'), "{answer}");
}

/// A call that asks its client something, which is answered, and says more after it.
fn asked_and_answered(bench: &mut Bench) -> (SessionId, CallId) {
    let session = bench.session("2025-11-25");
    let (_, call) = bench.call(session, CALL);
    bench.notify(session, Target::Call(call), "one").expect("taken");
    let (to, request) = (Target::Call(call), ClientRequestId(40));
    bench.emit(session, Emission::Request { to, request, method: "roots/list".into(), params: None }).expect("taken");
    bench.ask(&post(&id(session), r#"{"jsonrpc":"2.0","id":40,"result":{}}"#));
    assert!(matches!(bench.deliveries.pop(), Some((_, Delivery::Response { outcome: Outcome::Result(_), .. }))));
    bench.notify(session, Target::Call(call), "three").expect("taken");
    (session, call)
}

#[test]
fn a_resync_names_what_follows_and_not_what_a_repost_is_not_asked_again() {
    let mut bench = Bench::new(|config| config.limits.stream_events = 2);
    let (session, _) = asked_and_answered(&mut bench);
    let (_, answer) = bench.ask(&post(&id(session), CALL));
    assert!(answer.contains(&format!(r#""earliest":"{}","lost":1,"#, cursor(session, 2, 3))), "{answer}");
    assert!(answer.contains(&format!("id: {}\nretry: ", cursor(session, 2, 2))), "{answer}");
    assert!(!answer.contains("roots/list") && answer.contains("three"), "{answer}");
}

#[test]
fn a_result_lost_after_a_resync_that_named_nothing_is_told_by_another() {
    let mut bench = Bench::new(|config| {
        config.limits.event_ttl = std::time::Duration::from_secs(1);
        config.limits.result_ttl = std::time::Duration::from_secs(1);
    });
    let session = bench.session("2025-11-25");
    let (_, call) = bench.call(session, CALL);
    bench.notify(session, Target::Call(call), "one").expect("taken");
    bench.wait(5_000);
    let conn = bench.open();
    let fields = format!("{}Last-Event-ID: {}\r\n", id(session), cursor(session, 2, 0));
    bench.send(conn, &format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{fields}\r\n"));
    assert!(bench.got(conn).contains(r#""earliest":null,"lost":1,"#), "{}", bench.got(conn));
    bench.stuck.push(conn);
    bench.wait(bench.shard.config.limits.keep_alive.as_millis() as u64);
    assert!(bench.got(conn).ends_with(":\n\n\r\n"), "a comment is on its way: {}", bench.got(conn));
    bench.result(session, call, "{}").expect("taken");
    bench.wait(5_000);
    bench.stuck.clear();
    bench.input(Input::Sent { conn, bytes: 1 << 20 });
    let answer = bench.got(conn);
    assert_eq!(answer.matches("event: resync").count(), 2, "{answer}");
    assert!(answer.contains(&format!(r#""earliest":"{}","lost":1,"#, cursor(session, 2, 2))), "{answer}");
    assert!(answer.contains("-32010") && answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[test]
fn what_a_cut_connection_brought_is_known_though_it_was_evicted_meanwhile() {
    let mut bench = Bench::new(|config| config.limits.stream_events = 2);
    let session = bench.session("2025-11-25");
    for text in ["one", "two"] {
        bench.notify(session, Target::Standalone, text).expect("taken");
    }
    let conn = bench.open();
    bench.stuck.push(conn);
    let get = format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n{}\r\n", id(session));
    let sent = bench.send(conn, &get);
    for text in ["three", "four"] {
        bench.notify(session, Target::Standalone, text).expect("taken");
    }
    let first = sent.find("two").expect("the second event");
    bench.input(Input::Sent { conn, bytes: first });
    bench.input(Input::Closed { conn });
    let (_, answer) = bench.get(session, None);
    assert!(answer.contains(r#""lost":1,"#) && answer.contains("three"), "{answer}");
}
