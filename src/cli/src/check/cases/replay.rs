//! Cuts and what follows the cursor: exactly the rest, once, in order.
//!
//! Never judges what a refused cursor is answered: that is `cursor`.

use std::time::Duration;

use super::{Case, Need};
use crate::check::bench::Bench;
use crate::check::judge::REPLAY;
use crate::check::sentences;
use crate::check::session::{Call, ERROR, Got, RESULT, Running, Session, last_id, read_out};
use crate::check::stream::{Ending, Event};
use crate::check::verdict::Cost;
use crate::check::wire::{Reply, Trouble};

const RESUMABLE: &[Need] = &[Need::Tool, Need::Ids];
const PACED: &[Need] = &[Need::Adjustable, Need::Ids];

pub(super) const CASES: &[Case] = &[
    Case {
        name: "event-ids",
        group: "replay",
        expects: "a call's stream gives each message an id, so that a client that is cut off has something to come back with",
        boundary: "The event id",
        needs: &[Need::Tool],
        rests_on: &[],
        run: event_ids,
    },
    Case {
        name: "uncut",
        group: "replay",
        expects: "a call that is not cut off brings each of its events once, in order, and its answer",
        boundary: "POST: one call, one execution",
        needs: &[Need::Tool],
        rests_on: &[],
        run: uncut,
    },
    Case {
        name: "cut-while-running",
        group: "replay",
        expects: "cut by a reset after each event in turn, and resumed at once while the call still runs: exactly the rest, then live",
        boundary: REPLAY,
        needs: RESUMABLE,
        rests_on: &["uncut"],
        run: cut_while_running,
    },
    Case {
        name: "result-while-away",
        group: "replay",
        expects: "cut after the first event, resumed when the call is over: all that was said meanwhile, the result included, once",
        boundary: "GET row 13; Disconnection is not cancellation",
        needs: RESUMABLE,
        rests_on: &["cut-while-running"],
        run: result_while_away,
    },
    Case {
        name: "replay-again",
        group: "replay",
        expects: "every cursor of a finished call, presented twice: each time the same events under the same ids",
        boundary: "The event id: one id names one position of one stream for ever",
        needs: RESUMABLE,
        rests_on: &["result-while-away"],
        run: replay_again,
    },
    Case {
        name: "replay-to-live",
        group: "replay",
        expects: "a burst of events and many reconnects in it, each at the last event seen: no gap and no repeat where replay becomes live",
        boundary: "Replay: the step from replay to live is atomic",
        needs: PACED,
        rests_on: &["cut-while-running"],
        run: replay_to_live,
    },
    Case {
        name: "other-streams",
        group: "replay",
        expects: "four calls of one session at once, all cut and resumed: each stream has its own call's messages only",
        boundary: "Replay: a stream replays its own events only",
        needs: RESUMABLE,
        rests_on: &["result-while-away"],
        run: other_streams,
    },
    Case {
        name: "evicted",
        group: "replay",
        expects: "more events than the server holds, and a cursor before them: `resync` first, whose id is a place to go on from; then the \
                  rest without a gap, and the call's answer or an error with its id",
        boundary: "GET row 11, resync",
        needs: PACED,
        rests_on: &["result-while-away"],
        run: evicted,
    },
];

fn event_ids(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let (call, got) = bench.finish(&session, bench.call(3, 20)?)?;
    let messages: Vec<_> = got.events.iter().filter(|event| event.message().is_some()).collect();
    let without = messages.iter().filter(|event| event.id.as_deref().is_none_or(str::is_empty)).count();
    if without == messages.len() {
        bench.unclear(
            "The event id",
            "no event has an id: a client that is cut off loses the answer to its call, and MCP allows that",
        );
    } else if without > 0 {
        let text = format!("{without} of {} messages have no id: after a cut behind one of them it comes again", messages.len());
        bench.breaks(Cost::Duplicate, "The event id", text);
    }
    bench.judge_foreign("a call", &call, &got.events);
    Ok(())
}

fn uncut(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let (call, got) = bench.finish(&session, bench.call(5, 10)?)?;
    bench.judge("a call that was not cut", &call, &[], &got);
    let odd = got.events.iter().filter(|event| event.name == "message").filter_map(|event| event.data.as_deref());
    if let Some(data) = odd.filter(|data| !data.is_empty()).find(|data| serde_json::from_str::<serde_json::Value>(data).is_err())
    {
        let text =
            format!("a `message` event has the data {data:?}, which is no JSON-RPC: a stock client fails the pending call on it");
        bench.unclear("resync: never data that is not JSON-RPC in a `message` event", text);
    }
    Ok(())
}

/// Events of a call that is cut, and the time between them. Reason: the cut must be over well before the next event.
const CUT: (u32, u64) = (5, 120);

fn cut_while_running(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let cuts = bench.call(CUT.0, CUT.1)?.expected.len() - 1;
    for after in 0..cuts {
        let before = bench.counted(&session)?;
        let mut running = bench.start(&session, bench.call(CUT.0, CUT.1)?)?;
        // Where no opening event comes, there is nothing to come back with before the first message.
        if after == 0 && running.until(0).is_err() {
            continue;
        }
        running.until(after)?;
        let Ok(cursor) = running.cursor() else { continue };
        let (call, had) = running.cut();
        let what = format!("cut after event {} and resumed at once", had.len());
        if bench.resume_and_judge(&what, &session, &cursor, &call, &had)?.is_none() {
            break;
        }
        if let Some(count @ 2..) = bench.executions(&session, &call, before)? {
            bench.breaks(Cost::DoubleExecution, REPLAY, format!("a call {what} was executed {count} times"));
            break;
        }
    }
    Ok(())
}

/// A call that is cut after its first event and is over when this returns: its cursor, and what had come.
fn cut_and_over(bench: &Bench, session: &Session) -> Result<(Call, Vec<String>, String), Trouble> {
    let mut running = bench.start(session, bench.call(4, 50)?)?;
    running.until(1)?;
    let cursor = running.cursor()?;
    let (call, had) = running.cut();
    bench.wait_out(&call)?;
    Ok((call, had, cursor))
}

fn result_while_away(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let (call, had, cursor) = cut_and_over(bench, &session)?;
    bench.resume_and_judge("resumed when the call was over", &session, &cursor, &call, &had)?;
    Ok(())
}

/// The id and the message of each event that has both.
fn named(events: &[Event]) -> Vec<(&str, String)> {
    let message = |event: &Event| event.message().map(|message| message.to_string());
    events.iter().filter_map(|event| Some((event.id.as_deref()?, message(event)?))).collect()
}

fn replay_again(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let (call, got) = bench.finish(&session, bench.call(4, 10)?)?;
    let (first, last) = (named(&got.events), last_id(&got.events).unwrap_or_default().to_owned());
    let mut had = Vec::new();
    for (at, event) in got.events.iter().enumerate() {
        had.extend(call.marks(std::slice::from_ref(event)));
        let Some(cursor) = event.id.as_deref().filter(|id| *id != last) else { continue };
        let rest = named(&got.events[at + 1..]);
        for time in ["once", "again"] {
            let what = format!("the cursor after {} events, presented {time}", had.len());
            let Some(again) = bench.resume_and_judge(&what, &session, cursor, &call, &had)? else { return Ok(()) };
            if again.ending == Ending::Open {
                // Its own case says so; to wait for each would take long.
                return compare_ids(bench, &what, &first, &rest, &named(&again.events));
            }
            compare_ids(bench, &what, &first, &rest, &named(&again.events))?;
        }
    }
    Ok(())
}

fn compare_ids(
    bench: &Bench,
    what: &str,
    first: &[(&str, String)],
    rest: &[(&str, String)],
    again: &[(&str, String)],
) -> Result<(), Trouble> {
    for (id, message) in again {
        if let Some((_, before)) = first.iter().find(|(known, _)| known == id).filter(|(_, before)| before != message) {
            let text = format!("{what}: the id {id:?} stood for {before} and stands for {message}");
            bench.breaks(Cost::Gap, "The event id: one id names one position of one stream for ever", text);
            bench.violates(&sentences::UNIQUE_IDS, format!("{what}: the id {id:?} stands for two messages"));
        }
    }
    let (known, came): (Vec<_>, Vec<_>) = (rest.iter().map(|(id, _)| *id).collect(), again.iter().map(|(id, _)| *id).collect());
    if known != came {
        let text = format!("{what}: the events came under ids {came:?}, and had {known:?}");
        bench.breaks(Cost::Duplicate, "The event id: one id names one position of one stream for ever", text);
    }
    Ok(())
}

/// Calls of the burst, events of each, and reconnects in each at most.
const BURST: (usize, u32, usize) = (3, 150, 40);

fn replay_to_live(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    for _ in 0..BURST.0 {
        let mut running = bench.start(&session, bench.call(BURST.1, 4)?)?;
        let (call, mut events) = (running.call.clone(), Vec::new());
        for reconnect in 0..BURST.2 {
            let over = matches!(running.until(1 + reconnect % 3), Err(Trouble::Cannot(_)));
            let cursor = running.cursor();
            events.append(&mut running.events);
            if over || call.answer(&events).is_some() {
                break;
            }
            let cursor = cursor?;
            let (call, _) = running.cut();
            let reply = bench.resume(&session, &cursor)?;
            let Reply::Stream(stream) = reply else {
                bench.breaks(Cost::Hang, REPLAY, format!("a reconnect in a burst was answered {}", reply.words()));
                return Ok(());
            };
            running = Running { call, stream: *stream, events: Vec::new() };
        }
        if call.answer(&events).is_none() {
            let got = read_out(&mut running.stream, &call, bench.io.patience)?;
            events.append(&mut running.events);
            events.extend(got.events);
        }
        let got = Got { events, ending: Ending::Clean };
        if !bench.judge("a burst with many reconnects", &call, &[], &got) {
            return Ok(());
        }
    }
    Ok(())
}

fn other_streams(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let mut running = Vec::new();
    for number in 1..=4 {
        running.push(bench.start(&session, bench.call(3 + number, 60)?)?);
    }
    let mut gone = Vec::new();
    for mut running in running {
        running.until(1)?;
        let cursor = running.cursor()?;
        let (call, had) = running.cut();
        gone.push((call, had, cursor));
    }
    for (call, ..) in &gone {
        bench.io.pause(call.takes / 4)?;
    }
    bench.io.pause(Duration::from_millis(300))?;
    for (call, had, cursor) in &gone {
        bench.resume_and_judge("one of four calls at once", &session, cursor, call, had)?;
    }
    Ok(())
}

fn evicted(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let count = bench.settings.overflow;
    let mut running = bench.start(&session, bench.call(count, 1)?)?;
    running.until(1)?;
    let cursor = running.cursor()?;
    let (call, had) = running.cut();
    bench.wait_out(&call)?;
    let got = match bench.read(bench.resume(&session, &cursor)?, &call)? {
        Ok(got) => got,
        Err(reply) if (400..500).contains(&reply.status()) => {
            let text = format!(
                "an evicted cursor was answered {}: honest, and the call's answer is lost with the events",
                reply.words()
            );
            bench.unclear("GET row 11, resync", text);
            return Ok(());
        }
        Err(reply) => {
            bench.breaks(Cost::Gap, "GET row 11, resync", format!("an evicted cursor was answered {}", reply.words()));
            return Ok(());
        }
    };
    let marks = call.marks(&got.events);
    if marks == call.expected[had.len()..] {
        return Err(Trouble::Cannot(format!(
            "the server held all of {count} events: say with --overflow how many are more than it holds"
        )));
    }
    judge_gap(bench, &call, &had, &got);
    if got.events.iter().any(Event::is_resync) {
        judge_resync_id(bench, &session, &cursor, &call)?;
    }
    Ok(())
}

/// Times that the id of a `resync` may lead to another. Reason: events may be evicted between two requests, but not for ever.
const HOPS: usize = 3;

/// A client that merely stores ids must get past the gap. The call is over, so that nothing is evicted by what it says.
fn judge_resync_id(bench: &Bench, session: &Session, cursor: &str, call: &Call) -> Result<(), Trouble> {
    let (mut cursor, mut before) = (cursor.to_owned(), None);
    for _ in 0..=HOPS {
        let got = match bench.read(bench.resume(session, &cursor)?, call)? {
            Ok(got) => got,
            Err(reply) => {
                bench.breaks(Cost::Hang, "resync", format!("the id of `resync` was answered {}, as no cursor", reply.words()));
                return Ok(());
            }
        };
        let marks = call.marks(&got.events);
        let Some(told) = got.events.iter().find(|event| event.is_resync()) else {
            if before.is_some_and(|before| before != marks) {
                bench.breaks(Cost::Gap, "resync", "what follows the id of `resync` is not what followed `resync`");
            }
            return Ok(());
        };
        let Some(id) = told.id.clone().filter(|id| !id.is_empty()) else {
            bench.breaks(Cost::Hang, "resync", "`resync` has no id: a client that stores ids comes back to it for ever");
            return Ok(());
        };
        (cursor, before) = (id, Some(marks));
    }
    bench.breaks(
        Cost::Hang,
        "resync",
        "the id of `resync` leads to another `resync`, again and again: a client that stores ids does not get on",
    );
    Ok(())
}

/// A gap must be told first, and be the only one.
fn judge_gap(bench: &Bench, call: &Call, had: &[String], got: &Got) {
    const ROW: &str = "GET row 11, resync";
    let marks = call.marks(&got.events);
    let first = got.events.iter().find(|event| event.is_resync() || event.message().is_some());
    match first {
        None => {
            bench.breaks(
                Cost::Hang,
                ROW,
                format!("an evicted cursor was answered 200 and a stream with nothing on it, which {}", got.ending.words()),
            );
            return;
        }
        Some(event) if !event.is_resync() => {
            let text = format!(
                "an evicted cursor was answered with {} first, as if it followed",
                marks.first().map_or("something", String::as_str)
            );
            bench.breaks(Cost::Gap, ROW, text);
            return;
        }
        Some(event) => {
            let data: serde_json::Value =
                event.data.as_deref().and_then(|data| serde_json::from_str(data).ok()).unwrap_or_default();
            let lacks: Vec<_> =
                ["requested", "earliest", "lost", "reason"].into_iter().filter(|key| data.get(key).is_none()).collect();
            if !lacks.is_empty() {
                bench.unclear(ROW, format!("the data of `resync` has no {}", lacks.join(", ")));
            }
        }
    }
    let answered = marks.last().is_some_and(|mark| mark == RESULT || mark == ERROR);
    if !answered {
        bench.breaks(
            Cost::Hang,
            "Results outlive progress",
            format!("behind the gap the call's answer never came; the stream {}", got.ending.words()),
        );
    }
    let progress: Vec<_> = marks.iter().filter(|mark| call.expected.contains(mark)).collect();
    let place = |mark: &String| call.expected.iter().position(|expected| expected == mark).unwrap_or_default();
    let mut places: Vec<_> = progress.iter().map(|mark| place(mark)).collect();
    // The answer is held apart: between the last event that is held and it there may be others.
    if places.last() == Some(&(call.expected.len() - 1)) && answered {
        places.pop();
    }
    if places.windows(2).any(|pair| pair[1] != pair[0] + 1) || places.first().is_some_and(|first| *first < had.len()) {
        bench.breaks(Cost::Gap, ROW, "behind `resync` the events are not one after the other");
    }
}
