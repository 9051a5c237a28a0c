//! Servers that say exactly what a script says.

use super::*;

#[test]
fn a_session_begins_with_initialize_then_initialized_then_the_standalone_stream() {
    let mut bench = Bench::new(|config| {
        config.listen = true;
        config.fields = vec![("Authorization".into(), "Bearer x".into())];
    });
    bench.input(Input::Start);
    let conn = bench.open();
    assert!(bench.request().contains(r#""method":"initialize","params":{"protocolVersion":"2025-11-25""#), "{}", bench.request());
    assert!(bench.request().contains("\r\nAuthorization: Bearer x\r\n") && !bench.request().contains("Mcp-Session-Id"));
    bench.feed(conn, &json(200, "Mcp-Session-Id: abc\r\n", READY));
    assert!(bench.request().contains("notifications/initialized") && bench.request().contains("\r\nMcp-Session-Id: abc\r\n"));
    assert!(bench.request().contains("\r\nMCP-Protocol-Version: 2025-11-25\r\n"));
    assert!(bench.events.is_empty(), "not ready before the server knows");
    bench.feed(conn, &empty(202));
    assert!(matches!(&bench.events[..], [Event::Ready { .. }]));
    assert!(bench.request().starts_with("GET /mcp"), "{}", bench.request());
    assert_eq!(bench.opened.len(), 1, "the connection was kept");
    bench.feed(conn, SSE);
    assert!(matches!(&bench.events[1..], [Event::Attached { stream: StreamKey::Standalone, .. }]));
}

#[test]
fn a_server_without_a_standalone_stream_is_one() {
    let mut bench = Bench::ready(|_| {});
    bench.input(Input::Listen);
    let conn = bench.open();
    bench.feed(conn, &empty(405));
    assert!(matches!(&bench.events[..], [Event::StreamEnded { why: StreamEnd::NotOffered }]), "{:?}", bench.events);
    assert_eq!(bench.client.state(), State::Ready);
}

#[test]
fn older_revisions_are_accepted_and_unknown_ones_are_not() {
    for (revision, accepted) in [
        ("2025-03-26", true),
        ("2025-06-18", true),
        ("2025-11-25", true),
        ("2024-11-05", false),
        ("2026-07-28", false),
        ("1", false),
    ] {
        let mut bench = Bench::new(|_| {});
        bench.input(Input::Start);
        let conn = bench.open();
        bench.feed(conn, &json(200, "", &READY.replace("2025-11-25", revision)));
        let failed = matches!(&bench.events[..], [Event::Failed(StartError::Revision(name))] if &**name == revision);
        assert_eq!(failed, !accepted, "{revision}: {:?}", bench.events);
        assert_eq!(bench.sent.len() == 2, accepted);
    }
}

#[test]
fn initialize_that_fails_says_how() {
    let begin = |answer: &str| {
        let mut bench = Bench::new(|_| {});
        bench.input(Input::Start);
        let conn = bench.open();
        bench.feed(conn, answer);
        let [Event::Failed(why)] = &bench.events[..] else { panic!("{answer}: {:?}", bench.events) };
        assert_eq!(bench.client.state(), State::Ended);
        why.clone()
    };
    assert!(matches!(begin(&json(401, "", "{}")), StartError::Refused(refused) if refused.status == 401));
    let error = r#"{"jsonrpc":"2.0","id":0,"error":{"code":-32602,"message":"no"}}"#;
    assert!(matches!(begin(&json(200, "", error)), StartError::Error(_)));
    assert!(matches!(begin(&json(200, "", r#"{"jsonrpc":"2.0","id":0,"result":{}}"#)), StartError::Answer(_)));
    assert!(matches!(begin(&json(200, "Mcp-Session-Id: a\r\nMcp-Session-Id: a\r\n", READY)), StartError::Lost(_)));
    assert!(matches!(begin(&json(200, "Mcp-Session-Id: a b\r\n", READY)), StartError::Lost(_)));
    assert!(matches!(begin("rubbish\r\n\r\n"), StartError::Lost(Loss::Unreadable(_))));
    assert!(matches!(begin(&json(200, "", "[1")), StartError::Lost(Loss::Unreadable(_))));
}

#[test]
fn a_call_answered_by_one_json_body_keeps_its_connection() {
    let mut bench = Bench::ready(|_| {});
    let (call, conn) = bench.call();
    bench.feed(conn, &json(200, "", &result(call.0)));
    assert!(is_result(&bench.outcomes()[0].1, 1));
    let (call, again) = bench.call();
    assert_eq!((call, again), (CallId(2), conn));
    bench.feed(conn, &json(200, "", &result(2)));
    assert_eq!(bench.outcomes().len(), 2);
    bench.wait_for_wake();
    assert!(bench.closed.contains(&conn), "an idle connection is not kept for long");
}

#[test]
fn an_answer_reads_alike_in_every_fragmentation() {
    let (opening, error) = (format!("id: {}\nretry: 500\ndata:\n\n", place(2, 0)), r#"{"code":-32010,"message":"?"}"#);
    let stream = |answer: &str| {
        let frames = opening.clone() + &frame(&place(2, 1), PROGRESS) + &frame(&place(2, 2), answer);
        format!("HTTP/1.1 100 Continue\r\n\r\n{SSE}{}{END}", chunk(&frames))
    };
    for answer in [
        stream(&result(1)),
        stream(&format!(r#"{{"jsonrpc":"2.0","id":1,"error":{error}}}"#)),
        json(200, "", &result(1)),
        json(400, "", r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32600,"message":"?"}}"#),
        format!(
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n{}{END}",
            chunk(&result(1))
        ),
    ] {
        let told = |pieces: &[&str]| {
            let mut bench = Bench::ready(|_| {});
            let (_, conn) = bench.call();
            pieces.iter().for_each(|piece| bench.feed(conn, piece));
            assert_eq!(bench.outcomes().len(), 1, "{answer}");
            format!("{:?} {:?}", bench.events, bench.closed)
        };
        let whole = told(&[&answer]);
        for cut in 1..answer.len() {
            assert_eq!(told(&[&answer[..cut], &answer[cut..]]), whole, "cut at {cut}");
        }
        let bytes: Vec<_> = (0..answer.len()).map(|at| &answer[at..=at]).collect();
        assert_eq!(told(&bytes), whole, "byte by byte");
    }
}

#[test]
fn a_cut_call_comes_back_after_retry_and_goes_on_after_its_cursor() {
    let (mut bench, call, conn) = streaming(1);
    bench.input(Input::Ended { conn, how: Ended::Fin });
    let [Event::Lost { stream, why: Loss::Cut(Ended::Fin), returns_at: Some(at) }] = bench.events[..] else {
        panic!("{:?}", bench.events)
    };
    assert_eq!(stream, StreamKey::Call(call));
    assert!((500..550).contains(&at.as_millis()), "{at:?}");
    let conn = bench.come_back();
    bench.feed(conn, &format!("{SSE}{}", chunk(&frame(&place(2, 1), "").replace(" \n", "\n"))));
    bench.feed(conn, &chunk(&frame(&place(2, 2), &result(1))));
    bench.feed(conn, END);
    assert!(is_result(&bench.outcomes()[0].1, 1));
    assert_eq!(bench.violations(), []);
    assert_eq!(bench.sent.iter().filter(|(_, request)| request.contains("tools/call")).count(), 1, "never sent again");
}

#[test]
fn a_clean_end_before_the_answer_is_a_cut_as_well() {
    let (mut bench, _, conn) = streaming(0);
    bench.feed(conn, END);
    assert!(matches!(bench.events[..], [Event::Lost { why: Loss::CleanEnd, .. }]), "{:?}", bench.events);
    bench.wait_for_wake();
    assert!(bench.request().starts_with("GET "));
}

#[test]
fn a_call_without_an_id_to_come_back_with_is_unknown_and_never_sent_again() {
    let progress = format!("data: {PROGRESS}\n\n");
    for (answer, how) in [
        (String::new(), Ended::Reset),
        ("HTTP/1.1 200 OK\r\nContent-".to_owned(), Ended::Fin),
        (format!("{SSE}{}", chunk(&progress)), Ended::Fin),
        (json(200, "", &result(1))[..90].to_owned(), Ended::Fin),
    ] {
        let mut bench = Bench::ready(|_| {});
        let (_, conn) = bench.call();
        if !answer.is_empty() {
            bench.feed(conn, &answer);
        }
        bench.input(Input::Ended { conn, how });
        assert_eq!(bench.unknown(), [Unknown::Lost(Loss::Cut(how))], "{answer}");
        let sent = bench.sent.len();
        while bench.wake.is_some() {
            bench.wait_for_wake();
        }
        assert_eq!(bench.sent.len(), sent);
    }
}

#[test]
fn a_call_that_never_left_is_no_unknown_outcome() {
    let mut bench = Bench::ready(|_| {});
    bench.input(Input::Call { method: "m", params: None, options: CallOptions::default() });
    let conn = bench.last();
    bench.input(Input::Ended { conn, how: Ended::Failed });
    assert_eq!(bench.outcomes()[0].1, Outcome::Error(CallError::NotSent(Loss::Unreachable)));
    bench.input(Input::Call { method: "m", params: None, options: CallOptions::default() });
    while bench.outcomes().len() < 2 {
        bench.wait_for_wake();
    }
    assert_eq!(bench.outcomes()[1].1, Outcome::Error(CallError::NotSent(Loss::Timeout)));
}

#[test]
fn answers_to_a_return_are_told_apart() {
    let gone =
        r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m","data":{"code":"invalid_cursor","reason":"x"}}}"#;
    for (answer, status) in [(json(400, "", gone), 400), (empty(405), 405), (json(403, "", "<html>"), 403)] {
        let (mut bench, _, conn) = returned(1);
        bench.feed(conn, &answer);
        let [Unknown::Refused(refused)] = &bench.unknown()[..] else { panic!("{:?}", bench.events) };
        assert_eq!(refused.status, status);
        assert_eq!(refused.code.as_deref(), (status == 400).then_some("invalid_cursor"));
        assert_eq!(bench.client.state(), State::Ready);
    }
    let (mut bench, _, conn) = returned(1);
    bench.feed(conn, "HTTP/1.1 204 No Content\r\n\r\n");
    assert_eq!(bench.unknown(), [Unknown::Complete]);
}

#[test]
fn a_lost_session_names_the_calls_whose_outcome_is_unknown() {
    let gone = |reason: &str| {
        let body = format!(
            r#"{{"jsonrpc":"2.0","id":null,"error":{{"code":-32001,"message":"m","data":{{"code":"session_expired","reason":"{reason}"}}}}}}"#
        );
        json(404, "", &body)
    };
    let (mut bench, call, conn) = returned(1);
    let (other, _) = bench.call();
    bench.feed(conn, &gone("restarted"));
    let [Event::SessionLost { reason, unknown }, ..] = &bench.events[..] else { panic!("{:?}", bench.events) };
    assert_eq!((reason.as_deref(), &unknown[..]), (Some("restarted"), &[call, other][..]));
    assert_eq!(bench.unknown(), [Unknown::SessionLost, Unknown::SessionLost]);
    bench.input(Input::Call { method: "m", params: None, options: CallOptions::default() });
    assert_eq!(bench.took, Some(Err(NotTaken::Ended)));

    // Row 10: only this stream.
    let (mut bench, _, conn) = returned(1);
    bench.feed(conn, &gone("forgotten"));
    assert!(matches!(&bench.unknown()[..], [Unknown::Refused(refused)] if refused.reason.as_deref() == Some("forgotten")));
    assert_eq!(bench.client.state(), State::Ready);

    // Any server's 404, whatever its body; the call that met it was refused before it ran.
    let (mut bench, first, _) = streaming(1);
    let (second, conn) = bench.call();
    bench.feed(conn, "HTTP/1.1 404 Not Found\r\nContent-Length: 4\r\n\r\nlost");
    assert!(
        matches!(&bench.outcomes()[..], [
        (refused, Outcome::Error(CallError::Refused(_))),
        (unknown, Outcome::Unknown(Unknown::SessionLost))
    ] if (*refused, *unknown) == (second, first)),
        "{:?}",
        bench.events
    );
}

#[test]
fn failures_that_may_pass_are_tried_again_with_patience_and_not_for_ever() {
    let (mut bench, _, conn) = streaming(1);
    bench.input(Input::Ended { conn, how: Ended::Reset });
    let mut attempts = 0;
    while bench.outcomes().is_empty() {
        let before = bench.now;
        let conn = bench.come_back();
        assert!(bench.now.since(before).as_millis() >= 500);
        if attempts % 2 == 0 {
            bench.feed(conn, "HTTP/1.1 503 X\r\n\r\n");
            bench.input(Input::Ended { conn, how: Ended::Fin })
        } else {
            bench.input(Input::Ended { conn, how: Ended::Fin })
        }
        attempts += 1;
    }
    assert_eq!(attempts, Limits::default().attempts);
    assert!(matches!(bench.unknown()[..], [Unknown::GaveUp(_)]), "{:?}", bench.events);
    assert!(bench.now.as_millis() < 15 * 60 * 1000);
}

#[test]
fn a_resync_is_a_gap_and_what_follows_it_goes_on() {
    for name in ["first", "inside"] {
        let (mut bench, _, conn) = returned(1);
        bench.feed(conn, SSE);
        if name == "inside" {
            bench.feed(conn, &chunk(&format!("id: {}\ndata:\n\n", place(2, 1))));
        }
        let data = r#"{"requested":"r","earliest":"e","lost":7,"unrecoverable":true,"reason":"evicted"}"#;
        let resync = format!("event: resync\nid: {}\ndata: {data}\n\n", place(2, 8));
        bench.feed(conn, &chunk(&(resync + &frame(&place(2, 9), &result(1)))));
        let gap = bench.events.iter().find_map(|event| match event {
            Event::Gap { gap, .. } => Some(gap.clone()),
            _ => None,
        });
        let text = |text: &str| Some(text.into());
        assert_eq!(gap, Some(Gap { requested: text("r"), earliest: text("e"), lost: Some(7), reason: text("evicted") }));
        assert!(is_result(&bench.outcomes()[0].1, 1), "{:?}", bench.events);
        assert_eq!(bench.violations(), []);
    }
}

#[test]
fn the_servers_own_outcome_unknown_is_one() {
    let (mut bench, _, conn) = streaming(1);
    let error = r#"{"jsonrpc":"2.0","id":1,"error":{"code":-32010,"message":"m"}}"#;
    bench.feed(conn, &chunk(&frame(&place(2, 2), error)));
    assert!(matches!(&bench.unknown()[..], [Unknown::Server(_)]));
}

#[test]
fn a_refused_call_did_not_run() {
    let body = r#"{"jsonrpc":"2.0","id":null,"error":{"code":-32000,"message":"m","data":{"code":"shed"}}}"#;
    for answer in [json(503, "Rejoin-Verdict: shed\r\n", body), json(429, "", body), json(400, "", &"x".repeat(100 << 10))] {
        let mut bench = Bench::ready(|_| {});
        let (_, conn) = bench.call();
        bench.feed(conn, &answer);
        assert!(matches!(&bench.outcomes()[..], [(_, Outcome::Error(CallError::Refused(_)))]), "{:?}", bench.events);
    }
}

#[test]
fn requests_of_the_server_are_the_callers_and_pings_are_not() {
    let (mut bench, call, conn) = streaming(0);
    let ping = r#"{"jsonrpc":"2.0","id":"p","method":"ping"}"#;
    bench.feed(conn, &chunk(&frame(&place(2, 1), ping)));
    let answer = bench.open();
    assert!(bench.request().ends_with(r#"{"jsonrpc":"2.0","id":"p","result":{}}"#), "{}", bench.request());
    bench.feed(answer, &empty(202));
    assert!(bench.events.is_empty());

    let sampling = |id: u32| format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"sampling/createMessage","params":{{"a":1}}}}"#);
    bench.feed(conn, &chunk(&(frame(&place(2, 2), &sampling(7)) + &frame(&place(2, 3), &sampling(8)))));
    let keys: Vec<_> = bench
        .events
        .drain(..)
        .map(|event| match event {
            Event::Request { request, stream, .. } if stream == StreamKey::Call(call) => request,
            other => panic!("{other:?}"),
        })
        .collect();
    bench.input(Input::Answer { request: keys[0], outcome: Ok(b"{\"b\":2}") });
    assert!(bench.request().ends_with(r#"{"jsonrpc":"2.0","id":7,"result":{"b":2}}"#));
    let sent = bench.sent.len();
    bench.input(Input::Answer { request: keys[0], outcome: Ok(b"{}") });
    assert_eq!(bench.sent.len(), sent, "answered once");
    let cancelled = r#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":8}}"#;
    bench.feed(conn, &chunk(&frame(&place(2, 4), cancelled)));
    assert!(matches!(bench.events[..], [Event::RequestCancelled { request }] if request == keys[1]));
}

#[test]
fn an_answer_to_the_server_is_sent_until_it_arrives() {
    let (mut bench, _, conn) = streaming(0);
    bench.feed(conn, &chunk(&frame(&place(2, 1), r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#)));
    bench.input(Input::Answer { request: RequestKey(0), outcome: Ok(b"{}") });
    for _ in 0..3 {
        let conn = bench.last();
        bench.input(Input::Ended { conn, how: Ended::Failed });
        bench.ask_again();
    }
    let conn = bench.open();
    assert!(bench.request().ends_with(r#"{"jsonrpc":"2.0","id":7,"result":{}}"#));
    bench.input(Input::Ended { conn, how: Ended::Reset });
    let conn = bench.come_back();
    bench.feed(conn, &empty(202));
    assert!(!bench.events.iter().any(|event| matches!(event, Event::Undelivered { .. })), "{:?}", bench.events);
}

#[test]
fn a_cancelled_call_is_unknown_at_once_and_the_server_is_told() {
    let (mut bench, call, conn) = streaming(1);
    bench.input(Input::Cancel { call, reason: Some("enough") });
    assert_eq!(bench.unknown(), [Unknown::Cancelled]);
    assert!(bench.closed.contains(&conn));
    bench.open();
    assert!(bench.request().contains(r#""method":"notifications/cancelled","params":{"reason":"enough","requestId":1}"#));
    bench.input(Input::Cancel { call, reason: None });
    assert_eq!(bench.outcomes().len(), 1);
}

#[test]
fn the_end_of_a_session_is_told_to_the_server() {
    let (mut bench, _, _) = streaming(1);
    bench.input(Input::End);
    assert_eq!(bench.unknown(), [Unknown::Ended]);
    let conn = bench.open();
    assert!(bench.request().starts_with("DELETE /mcp HTTP/1.1\r\n") && bench.request().contains("Mcp-Session-Id: abc"));
    bench.feed(conn, "HTTP/1.1 204 No Content\r\n\r\n");
    assert!(matches!(bench.events.last(), Some(Event::Ended)));
}

#[test]
fn the_caller_may_decide_when_a_stream_returns() {
    let mut bench = Bench::ready(|config| config.returns = Returns::ByCaller);
    let (call, conn) = bench.call();
    bench.feed(conn, &format!("{SSE}{}", chunk(&format!("id: {}\ndata:\n\n", place(2, 0)))));
    bench.input(Input::Ended { conn, how: Ended::Reset });
    let stream = StreamKey::Call(call);
    assert!(matches!(bench.events[..], [Event::Lost { returns_at: None, .. }]));
    let opened = bench.opened.len();
    bench.now = Instant::from_millis(1_000_000);
    bench.input(Input::TimePassed);
    assert_eq!(bench.opened.len(), opened, "it waits to be told");
    bench.input(Input::Return { stream, at: bench.now });
    assert_eq!(bench.opened.len(), opened + 1);
}

#[test]
fn a_call_is_given_up_at_its_greatest_age() {
    let (mut bench, _, _) = streaming(1);
    bench.now = Instant::from_millis(60 * 60 * 1000);
    bench.input(Input::TimePassed);
    assert_eq!(bench.unknown(), [Unknown::TooOld]);
}

#[test]
fn a_silent_stream_counts_as_cut_where_the_caller_says_so() {
    let mut bench = Bench::ready(|config| config.limits.silence = Some(std::time::Duration::from_secs(40)));
    let (_, conn) = bench.call();
    bench.feed(conn, &format!("{SSE}{}", chunk(&format!("id: {}\ndata:\n\n", place(2, 0)))));
    bench.now = Instant::from_millis(30_000);
    bench.feed(conn, &chunk(":\n\n"));
    bench.now = Instant::from_millis(69_000);
    bench.input(Input::TimePassed);
    assert!(bench.events.is_empty());
    bench.now = Instant::from_millis(70_000);
    bench.input(Input::TimePassed);
    assert!(matches!(bench.events[..], [Event::Lost { why: Loss::Timeout, .. }]), "{:?}", bench.events);
    assert!(bench.closed.contains(&conn));
}

#[test]
fn bounds_on_calls_and_requests_hold_at_their_edge() {
    let mut bench = Bench::ready(|config| {
        config.limits.calls_in_flight = 2;
        config.limits.requests = 1;
    });
    let (_, conn) = bench.call();
    bench.call();
    bench.input(Input::Call { method: "m", params: None, options: CallOptions::default() });
    assert_eq!(bench.took, Some(Err(NotTaken::TooManyCalls)));
    let asks = r#"{"jsonrpc":"2.0","id":7,"method":"roots/list"}"#;
    bench.feed(conn, &format!("{SSE}{}", chunk(&(frame("a", asks) + &frame("b", asks)))));
    assert_eq!(bench.events.len(), 1);
    bench.open();
    assert!(bench.request().contains(r#""id":7,"error":{"code":-32000"#), "{}", bench.request());
}

#[test]
fn what_cannot_be_a_request_is_not_taken() {
    let mut bench = Bench::ready(|_| {});
    let with = |progress, key| CallOptions { progress, idempotency_key: key };
    for (params, options) in [
        (Some(&b"[1]"[..]), with(false, None)),
        (Some(b"{"), with(false, None)),
        (Some(b"{\"_meta\":1}"), with(true, None)),
        (None, with(false, Some("a\r\nb"))),
        (None, with(false, Some(""))),
    ] {
        bench.input(Input::Call { method: "m", params, options });
        assert_eq!(bench.took, Some(Err(NotTaken::Malformed)));
    }
    bench.input(Input::Call { method: "m", params: None, options: with(true, Some("k")) });
    bench.open();
    assert!(bench.request().contains("\r\nIdempotency-Key: k\r\n"));
    assert!(bench.request().ends_with(r#""params":{"_meta":{"progressToken":1}}}"#), "{}", bench.request());
}

#[test]
fn an_idle_session_is_small() {
    let bench = Bench::ready(|_| {});
    assert!(size_of::<Client>() <= 320, "{}", size_of::<Client>());
    assert!(bench.client.conns.is_empty() && bench.client.calls.is_empty() && bench.client.posts.is_empty());
}
