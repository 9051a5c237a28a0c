//! A caller that steers: it decides when to come back, gives calls up, takes sessions over, and sees everything that arrives.

use super::*;

/// What an observer wrote down.
#[derive(Default)]
struct Seen(Vec<String>);

impl Observer for Seen {
    fn head(&mut self, head: &AnswerSeen<'_>) {
        self.0.push(format!("{:?} {}", head.to, head.status));
    }

    fn body(&mut self, body: &BodySeen<'_>) {
        self.0.push(format!("{:?} {} {}", body.to, body.status, String::from_utf8_lossy(body.bytes)));
    }

    fn event(&mut self, event: &EventSeen<'_>) {
        self.0.push(format!("{} {:?} {:?}", event.name, event.id, event.data));
    }
}

/// What is seen of an answer to a bench's next call.
fn seen(bench: &mut Bench, answer: &str, end: bool) -> Vec<String> {
    let (_, conn) = bench.call();
    let (mut seen, now, mut out) = (Seen::default(), bench.now, Vec::new());
    let mut input = |input| {
        let mut turn = Turn { now, random: &mut || 4, observer: &mut seen, out: &mut out };
        bench.client.handle(input, &mut turn);
    };
    input(Input::Received { conn, bytes: answer.as_bytes() });
    if end {
        input(Input::Ended { conn, how: Ended::Fin });
    }
    seen.0
}

fn take_up(bench: &mut Bench, session: Option<&str>, call: u64, last_id: &str) {
    bench.input(Input::TakeUp { session, revision: Revision::V2025_06_18, call: CallId(call), last_id });
}

#[test]
fn an_observer_sees_all_that_arrived_whatever_is_made_of_it() {
    let frames = format!("id: a\n\nid: b\nevent: resync\ndata:\n\n{}{}:\n\n", frame("a", PROGRESS), frame("c", "x"));
    let events = [
        "message Some(\"a\") None".to_owned(),
        "resync Some(\"b\") Some(\"\")".to_owned(),
        format!("message Some(\"a\") Some({PROGRESS:?})"),
        "message Some(\"c\") Some(\"x\")".to_owned(),
    ];
    let mut bench = Bench::ready(|_| {});
    assert_eq!(
        seen(&mut bench, &format!("{SSE}{}", chunk(&frames)), false)[1..],
        events,
        "an id that comes again stops nobody from seeing"
    );
    assert_eq!(bench.client.streams().count(), 0, "but nothing more of the stream is believed");

    for (answer, end, body) in [
        (json(200, "", "{}"), false, "{}"),
        (json(404, "", "gone"), false, "gone"),
        ("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n\r\n[]".to_owned(), true, "[]"),
    ] {
        let seen = seen(&mut Bench::ready(|_| {}), &answer, end);
        assert!(seen[1].ends_with(&format!(" {body}")), "{seen:?}");
    }
}

#[test]
fn a_lost_stream_shows_how_long_the_server_asked_to_wait() {
    let mut bench = Bench::ready(|config| config.returns = Returns::ByCaller);
    let (_, conn) = bench.call();
    bench.feed(conn, &format!("{SSE}{}", chunk(&format!("retry: 700\nid: {}\ndata:\n\n", place(2, 0)))));
    bench.input(Input::Ended { conn, how: Ended::Reset });
    assert!(matches!(bench.events[..], [Event::Lost { returns_at: None, .. }]), "{:?}", bench.events);
    let view = bench.client.streams().next().expect("a stream");
    assert_eq!((view.conn, view.retry), (None, Some(Duration::from_millis(700))));
}

#[test]
fn a_stream_that_ends_with_its_connection_ends_cleanly() {
    let mut bench = Bench::ready(|_| {});
    let (_, conn) = bench.call();
    bench.feed(conn, &format!("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n{}", frame("a", "")));
    bench.input(Input::Ended { conn, how: Ended::Fin });
    assert!(matches!(bench.events[..], [Event::Lost { why: Loss::CleanEnd, .. }]), "{:?}", bench.events);
}

#[test]
fn calls_are_numbered_from_where_the_caller_says_and_only_they_are_known() {
    let mut bench = Bench::ready(|_| {});
    bench.client = Client::numbering_from(Arc::new(Config::new("localhost:1", "/mcp")), CallId(1 << 40));
    bench.input(Input::Start);
    let conn = bench.open();
    bench.feed(conn, &json(200, "", READY));
    bench.feed(conn, &empty(202));
    let (call, conn) = bench.call();
    assert_eq!(call, CallId(1 << 40));
    assert!(bench.request().contains(r#""id":1099511627776"#), "{}", bench.request());
    bench.feed(conn, &json(200, "", &result(7)));
    assert_eq!(bench.violations(), [Violation::UnknownAnswer], "it never made a call 7");
}

#[test]
fn an_abandoned_call_has_one_outcome_and_the_server_hears_nothing_of_it() {
    let (mut bench, call, conn) = streaming(1);
    let sent = bench.sent.len();
    bench.input(Input::Abandon { call });
    bench.input(Input::Abandon { call });
    bench.input(Input::Abandon { call: CallId::INITIALIZE });
    assert_eq!(bench.unknown(), [Unknown::Cancelled]);
    assert!(bench.closed.contains(&conn) && bench.sent.len() == sent);
    assert_eq!(bench.client.streams().count(), 0);

    // What is answered is no longer listened to.
    let (mut bench, call, conn) = streaming(0);
    bench.feed(conn, &chunk(&frame(&place(2, 1), &result(1))));
    bench.input(Input::Abandon { call });
    assert!(is_result(&bench.outcomes()[0].1, 1) && bench.outcomes().len() == 1);
    assert!(bench.closed.contains(&conn));
}

#[test]
fn a_call_that_left_is_not_said_to_have_stayed_because_its_return_did() {
    let (mut bench, call, conn) = streaming(1);
    bench.input(Input::Ended { conn, how: Ended::Reset });
    bench.ask_again();
    bench.input(Input::Cancel { call, reason: None });
    assert_eq!(bench.unknown(), [Unknown::Cancelled]);
}

#[test]
fn a_session_is_taken_up_where_another_machine_left_it() {
    for (returns, by_itself) in [(Returns::ByRetry, true), (Returns::ByCaller, false)] {
        let mut bench = Bench::new(|config| config.returns = returns);
        take_up(&mut bench, Some("abc"), 7, &place(2, 3));
        assert_eq!(bench.opened.len(), usize::from(by_itself));
        bench.input(Input::Return { stream: StreamKey::Call(CallId(7)), at: bench.now });
        let conn = bench.open();
        for field in ["GET /mcp ", "Mcp-Session-Id: abc\r\n", "MCP-Protocol-Version: 2025-06-18\r\n", "Last-Event-ID: 1.2.3."] {
            assert!(bench.request().contains(field), "{}", bench.request());
        }
        bench.feed(conn, &format!("{SSE}{}", chunk(&frame(&place(2, 4), &result(7)))));
        bench.feed(conn, END);
        assert!(is_result(&bench.outcomes()[0].1, 7), "{:?}", bench.events);
        assert_eq!(bench.call().0, CallId(8));
    }
}

#[test]
fn what_follows_in_a_session_that_was_taken_up_must_continue_its_cursor() {
    for (last_id, next, violation) in [
        (place(2, 3), place(2, 5), Violation::SilentGap { last: 3, got: 5 }),
        (place(2, 3), "x".to_owned(), Violation::Shape),
        ("a".to_owned(), "a".to_owned(), Violation::RepeatedId),
    ] {
        let mut bench = Bench::new(|_| {});
        take_up(&mut bench, None, 7, &last_id);
        let conn = bench.open();
        bench.feed(conn, &format!("{SSE}{}", chunk(&frame(&next, PROGRESS))));
        assert_eq!(bench.violations(), [violation]);
    }
}

#[test]
fn what_cannot_be_taken_up_is_not() {
    for (session, call) in [(Some("a b"), 7), (Some(""), 7), (None, 0)] {
        let mut bench = Bench::new(|_| {});
        take_up(&mut bench, session, call, "a");
        assert!(matches!(bench.events[..], [Event::Failed(StartError::Answer(_))]), "{:?}", bench.events);
    }
    for last_id in ["", "a\r\nX: y", &"x".repeat(1025)] {
        let mut bench = Bench::new(|_| {});
        take_up(&mut bench, None, 7, last_id);
        assert_eq!(bench.unknown(), [Unknown::Violated(Violation::UnusableId)], "{last_id}");
        assert!(bench.opened.is_empty());
    }
    let mut bench = Bench::ready(|_| {});
    take_up(&mut bench, None, 7, "a");
    assert!(bench.opened.len() == 1 && bench.client.streams().count() == 0, "a session that has begun is its own");
}

#[test]
fn no_more_connections_are_kept_idle_than_the_limit_and_one_serves_for_the_goodbye() {
    for idle in [1, 2] {
        let mut bench = Bench::ready(|config| config.limits.idle = idle);
        let calls = [(); 3].map(|()| bench.call());
        bench.closed.clear();
        for (call, conn) in calls {
            bench.feed(conn, &json(200, "", &result(call.0)));
        }
        assert_eq!(bench.closed.len(), 3 - idle);
        let opened = bench.opened.len();
        bench.input(Input::End);
        assert!(bench.opened.len() == opened && bench.request().starts_with("DELETE "), "{}", bench.request());
        let conn = bench.asked();
        bench.feed(conn, &empty(200));
        assert_eq!((bench.closed.len(), bench.client.state()), (3, State::Ended), "all are closed at the end");
    }
}
