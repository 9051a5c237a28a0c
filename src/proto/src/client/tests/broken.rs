//! Servers that are broken, each in its own way: every one gives the right typed event, and none breaks the machine.

use proptest::prelude::*;

use super::*;
use crate::http::BadAnswer;

#[test]
fn a_200_whose_lineage_does_not_continue_the_cursor_is_refused() {
    let opening = |id: String| format!("id: {id}\ndata:\n\n");
    let message = |id: String| frame(&id, PROGRESS);
    for (name, frames, violation) in [
        ("starts at 1 again", message(place(2, 1)), Violation::Repeated { last: 3, got: 1 }),
        ("repeats the cursor with data", message(place(2, 3)), Violation::Repeated { last: 3, got: 3 }),
        ("skips", message(place(2, 5)), Violation::SilentGap { last: 3, got: 5 }),
        ("opens elsewhere", opening(place(2, 0)), Violation::Start { got: 0 }),
        ("opens under another tag", opening("1.2.3.ffffffffffffffff".into()), Violation::Start { got: 3 }),
        ("another life", message("2.2.4.0123456789abcdef".into()), Violation::Incarnation { expected: 1, got: 2 }),
        ("another stream", message(place(4, 4)), Violation::Stream { got: 4 }),
        ("another server", message("4".into()), Violation::Shape),
        ("no ids", format!("data: {PROGRESS}\n\n"), Violation::NoId),
        ("an id too long", message("x".repeat(1025)), Violation::UnusableId),
        ("goes on and skips", message(place(2, 4)) + &message(place(2, 6)), Violation::SilentGap { last: 4, got: 6 }),
        (
            "resync backwards",
            format!("event: resync\nid: {}\ndata: {{}}\n\n", place(2, 2)),
            Violation::Repeated { last: 3, got: 2 },
        ),
        ("another call's answer", frame(&place(2, 4), &result(9)), Violation::UnknownAnswer),
    ] {
        let (mut bench, call, conn) = returned(3);
        bench.feed(conn, &format!("{SSE}{}", chunk(&(frames + &frame(&place(2, 4), &result(1))))));
        assert_eq!(bench.violations(), [violation], "{name}");
        assert_eq!(bench.outcomes(), [(call, Outcome::Unknown(Unknown::Violated(violation)))], "{name}");
        assert!(bench.closed.contains(&conn), "{name}");
    }
}

#[test]
fn a_fresh_stream_begins_at_its_start() {
    for (frames, violation) in [
        (frame(&place(2, 2), PROGRESS), Violation::Start { got: 2 }),
        (format!("id: {}\ndata:\n\n", place(2, 1)), Violation::Start { got: 1 }),
        (frame(&place(0, 1), PROGRESS), Violation::Stream { got: 0 }),
    ] {
        let mut bench = Bench::ready(|_| {});
        let (_, conn) = bench.call();
        bench.feed(conn, &format!("{SSE}{}", chunk(&frames)));
        assert_eq!(bench.violations(), [violation]);
    }
}

#[test]
fn opaque_ids_are_checked_as_far_as_they_can_be() {
    let mut bench = Bench::ready(|config| config.limits.seen_ids = 3);
    let (_, conn) = bench.call();
    let frames = ["a", "b", "c", "d", "a"].map(|id| frame(id, PROGRESS)).concat();
    bench.feed(conn, &format!("{SSE}{}", chunk(&frames)));
    assert_eq!(bench.violations(), [], "what is out of memory is not noticed");
    bench.feed(conn, &chunk(&frame("c", PROGRESS)));
    assert_eq!(bench.violations(), [Violation::RepeatedId]);
}

#[test]
fn an_answer_belongs_to_the_stream_of_its_call() {
    let (mut bench, first, conn) = streaming(1);
    let (second, other) = bench.call();
    bench.feed(other, &json(200, "", &result(first.0)));
    assert_eq!(bench.violations(), [Violation::ForeignAnswer(first)]);
    assert_eq!(bench.outcomes()[0].0, second);
    let answer = frame(&place(2, 2), &result(1)) + &frame(&place(2, 3), &result(1));
    bench.feed(conn, &chunk(&answer));
    assert_eq!(bench.violations()[1..], [Violation::SecondAnswer(first)]);
    assert!(is_result(&bench.outcomes()[1].1, 1), "the first one stands");

    let mut bench = Bench::ready(|_| {});
    bench.input(Input::Listen);
    let conn = bench.open();
    bench.feed(conn, &format!("{SSE}{}", chunk(&format!("data: {}\n\n", result(1)))));
    assert_eq!(bench.violations(), [Violation::UnknownAnswer]);
    assert!(matches!(bench.events.last(), Some(Event::StreamEnded { why: StreamEnd::Violated })));
}

#[test]
fn what_is_no_answer_is_a_typed_error() {
    for (answer, unknown) in [
        ("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n".to_owned(), None),
        ("SSH-2.0\n".to_owned(), None),
        (format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(40 << 10)), Some(Unknown::Unreadable(BadAnswer::HeadTooLarge))),
        (json(200, "", &" ".repeat(101)), Some(Unknown::Unreadable(BadAnswer::TooLarge))),
        (format!("{SSE}{}", chunk(&format!("data: {}", "x".repeat(101)))), Some(Unknown::Unreadable(BadAnswer::TooLarge))),
        (json(200, "", "{}"), None),
        (empty(202), Some(Unknown::NoAnswer(202))),
        ("HTTP/1.1 204 No Content\r\n\r\n".to_owned(), Some(Unknown::NoAnswer(204))),
        (json(200, "", PROGRESS), Some(Unknown::NoAnswer(200))),
        (empty(502), Some(Unknown::NoAnswer(502))),
    ] {
        let mut bench = Bench::ready(|config| {
            config.limits.answer_bytes = 100;
            config.limits.event_bytes = 100;
        });
        let (_, conn) = bench.call();
        bench.feed(conn, &answer);
        let told = bench.unknown();
        match unknown {
            Some(unknown) => assert_eq!(told, [unknown]),
            None => assert!(matches!(told[..], [Unknown::Unreadable(BadAnswer::Malformed(_))]), "{answer}: {told:?}"),
        }
    }
}

proptest! {
    /// No bytes and no order of inputs break the machine, and no call is told twice or forgotten when its session ends.
    #[test]
    fn any_server_leaves_each_call_with_one_outcome(
        steps in prop::collection::vec((0u8..12, any::<prop::sample::Index>(), 0u64..40), 1..60),
    ) {
        let mut bench = Bench::ready(|config| config.limits.attempts = 3);
        let mut calls = Vec::new();
        let pieces = [
            SSE.to_owned(), chunk(&format!("id: {}\ndata:\n\n", place(2, 0))), chunk(&frame("x", PROGRESS)), END.to_owned(),
            json(200, "", &result(1)), json(200, "", &result(2)), empty(202), empty(404), empty(503), chunk(&frame(&place(2, 1), &result(1))),
            "HTTP/1.1 204 No Content\r\n\r\n".to_owned(), "\r\n".to_owned(), chunk(&frame("y", &result(2))), empty(405),
        ];
        for (step, index, number) in steps {
            let conn = ConnId((number as u32) % (bench.client.next_conn + 1));
            match step {
                0 | 1 => {
                    bench.input(Input::Call { method: "m", params: None, options: CallOptions::default() });
                    calls.extend(bench.took.take().and_then(Result::ok));
                }
                2 | 3 => bench.input(Input::Opened { conn }),
                4..=8 => bench.feed(conn, index.get::<String>(&pieces)),
                9 => bench.input(Input::Ended { conn, how: [Ended::Fin, Ended::Reset, Ended::Failed][number as usize % 3] }),
                10 => {
                    bench.now = Instant::from_millis(bench.now.as_millis() + number * 100);
                    bench.input(Input::TimePassed);
                }
                _ => bench.input(Input::Listen),
            }
        }
        bench.now = Instant::from_millis(bench.now.as_millis() + 2 * 60 * 60 * 1000);
        bench.input(Input::TimePassed);
        let told: Vec<_> = bench.outcomes().into_iter().map(|(call, _)| call).collect();
        for call in calls {
            prop_assert!(told.contains(&call), "{:?} of {:?}: {:?}", call, told, bench.client);
        }
    }

    #[test]
    fn no_bytes_break_the_reader(pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..40), 0..10), head: bool) {
        let mut bench = Bench::ready(|_| {});
        let (_, conn) = bench.call();
        if head {
            bench.feed(conn, SSE);
        }
        for piece in &pieces {
            bench.input(Input::Received { conn, bytes: piece });
        }
        bench.input(Input::Ended { conn, how: Ended::Fin });
        prop_assert!(bench.outcomes().len() <= 1);
    }
}
