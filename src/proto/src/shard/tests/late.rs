//! Bytes that come in the very turn in which a deadline has passed: the timer was late, or the shard was busy.

use super::*;

const PING: &str = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;

impl Bench {
    /// Time goes by, and the shard is not told before its next input.
    fn doze(&mut self, time: std::time::Duration) {
        self.now = self.now + time;
    }
}

#[test]
fn an_idle_connection_with_a_request_in_its_hands_is_not_closed() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (conn, call) = bench.call(session, PING);
    bench.result(session, call, "{}").expect("taken");
    bench.doze(Limits::default().idle_timeout * 2);
    let answer = bench.send(conn, "OPTIONS /mcp HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    assert_eq!(bench.closed[conn.0 as usize], None);
    // It is watched again from here on.
    bench.doze(Limits::default().idle_timeout * 2);
    bench.input(Input::TimePassed);
    assert_eq!(bench.closed[conn.0 as usize], Some(Close::Clean));
}

#[test]
fn a_head_that_began_in_time_and_ends_too_late_is_408() {
    let mut bench = Bench::new(|_| {});
    let conn = bench.open();
    assert_eq!(bench.send(conn, "OPTIONS /mcp HTTP/1.1\r\n"), "");
    bench.doze(Limits::default().head_timeout * 2);
    let answer = bench.send(conn, "Host: localhost\r\n\r\n");
    assert!(answer.starts_with("HTTP/1.1 408 "), "{answer}");
}

#[test]
fn a_connection_that_has_written_all_is_not_reset_for_having_been_slow() {
    let mut bench = Bench::new(|_| {});
    let conn = bench.open();
    bench.stuck.push(conn);
    let answer = bench.send(conn, "GET /mcp HTTP/1.1\r\nHost: localhost\r\n\r\n");
    bench.doze(Limits::default().write_timeout * 2);
    bench.input(Input::Sent { conn, bytes: answer.len() });
    assert_eq!(bench.closed[conn.0 as usize], None);
}

#[test]
fn nothing_is_said_of_a_connection_that_is_gone() {
    let mut bench = Bench::new(|_| {});
    let conn = bench.open();
    bench.doze(Limits::default().idle_timeout * 2);
    bench.input(Input::Closed { conn });
    assert_eq!(bench.closed[conn.0 as usize], None, "closed after it was gone");
}
