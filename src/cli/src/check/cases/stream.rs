//! Streams: how they open and end, who is served, and what a slow or a stalled reader does to others.
//!
//! Never judges what follows a cursor but by `judge`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::json;

use super::{Case, Need};
use crate::check::bench::Bench;
use crate::check::sentences;
use crate::check::session::{Got, Running, Session, last_id, read_out};
use crate::check::stream::{Ending, Event, Step, Stream};
use crate::check::verdict::Cost;
use crate::check::wire::{Line, Reply, Trouble};

const OPENING: &str = "Opening event";
pub(super) const TAKEOVER: &str = "Takeover: a newer GET takes over, no 409";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "opening-event",
        group: "stream",
        expects: "each stream of 2025-11-25 opens with an id and an empty `data` line, and `retry`: a call's, a resumed one, the standalone one",
        boundary: OPENING,
        needs: &[Need::Newest, Need::Tool, Need::Ids],
        rests_on: &[],
        run: opening_event,
    },
    Case {
        name: "opening-event-of-old",
        group: "stream",
        expects: "a session of 2025-06-18 gets no event with empty data: its clients fail on it",
        boundary: OPENING,
        needs: &[Need::Tool],
        rests_on: &[],
        run: opening_of_old,
    },
    Case {
        name: "ids-unique",
        group: "stream",
        expects: "no id comes twice in a session: not on streams at once, not in calls one after the other, not as an opening event",
        boundary: "The event id: one id names one position of one stream for ever",
        needs: &[Need::Tool, Need::Ids],
        rests_on: &[],
        run: ids_unique,
    },
    Case {
        name: "clean-end",
        group: "stream",
        expects: "a stream ends right after it has answered its call, a resumed one too",
        boundary: "End",
        needs: &[Need::Tool],
        rests_on: &["uncut"],
        run: clean_end,
    },
    Case {
        name: "takeover",
        group: "stream",
        expects: "while the first connection of a call is half open, a GET with its cursor gets exactly the rest, and the first one ends",
        boundary: TAKEOVER,
        needs: &[Need::Tool, Need::Ids],
        rests_on: &["cut-while-running"],
        run: takeover,
    },
    Case {
        name: "many-streams",
        group: "stream",
        expects: "twenty-four calls at once in four sessions: each stream has its own call's events, all of them, and its answer",
        boundary: "POST: each request has a stream of its own",
        needs: &[Need::Tool],
        rests_on: &["uncut", "one-id-in-flight-twice"],
        run: many_streams,
    },
    Case {
        name: "slow-reader",
        group: "stream",
        expects: "a reader that falls behind what the server holds gets every event, is told of a gap by `resync`, or is let go and can \
                  resume; and gets its answer",
        boundary: "resync: the same event is written into a live stream whose reader was too slow",
        needs: &[Need::Adjustable, Need::Ids],
        rests_on: &["uncut"],
        run: slow_reader,
    },
    Case {
        name: "stalled-neighbour",
        group: "stream",
        expects: "connections that stall in a head, in a body and in reading do not delay another session's call",
        boundary: "Bounds; field reports: neighbours unaffected",
        needs: &[Need::Tool],
        rests_on: &["uncut"],
        run: stalled_neighbour,
    },
];

fn is_opening(event: &Event) -> bool {
    event.data.as_deref() == Some("") && event.id.as_deref().is_some_and(|id| !id.is_empty())
}

fn first_of(stream: &mut Stream) -> Result<Option<Event>, Trouble> {
    match stream.next(stream.due())? {
        Step::Event(event) => Ok(Some(event)),
        Step::Over(_) => Ok(None),
    }
}

fn opening_event(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let mut running = bench.start(&session, bench.call(4, 60)?)?;
    let first = first_of(&mut running.stream)?;
    judge_opening(bench, "a call's stream", first.as_ref());
    running.events.extend(first);
    running.until(1)?;
    let cursor = running.cursor()?;
    let (call, had) = running.cut();
    bench.wait_out(&call)?;
    if let Reply::Stream(mut stream) = bench.resume(&session, &cursor)? {
        let first = first_of(&mut stream)?;
        judge_opening(bench, "a resumed stream", first.as_ref());
        // Another id than the cursor may be as good a place: whoever is cut off there must miss nothing.
        if let Some(id) = first.filter(is_opening).and_then(|event| event.id).filter(|id| *id != cursor) {
            stream.cut();
            bench.resume_and_judge("cut right behind the opening event of a resumed stream", &session, &id, &call, &had)?;
        }
    }
    if bench.known.listens
        && let Reply::Stream(mut stream) = bench.ask(&bench.get(&session))?
    {
        let first = first_of(&mut stream)?;
        judge_opening(bench, "the standalone stream", first.as_ref());
    }
    Ok(())
}

fn judge_opening(bench: &Bench, what: &str, first: Option<&Event>) {
    match first {
        Some(event) if is_opening(event) => {
            if event.retry.is_none() {
                bench.unclear(
                    OPENING,
                    format!("{what} says no `retry`: its client comes back when it likes, and some give up after two tries"),
                );
            }
        }
        Some(event) if event.data.is_none() && event.id.is_some() => {
            bench.unclear(OPENING, format!("{what} opens with an id without a `data` line, which some clients do not keep"));
        }
        _ => bench.unclear(
            OPENING,
            format!("{what} does not open with an id and empty data: cut off at once, its client has no cursor"),
        ),
    }
}

fn opening_of_old(bench: &Bench) -> Result<(), Trouble> {
    const OLD: &str = "2025-06-18";
    let session = bench.session_by(OLD, |request| request)?;
    if session.revision != OLD {
        return Err(Trouble::Cannot(format!("asked for {OLD}, the server negotiated {}", session.revision)));
    }
    let (_, got) = bench.finish(&session, bench.call(3, 10)?)?;
    if got.events.iter().any(|event| event.data.as_deref() == Some("")) {
        bench.unclear(
            OPENING,
            format!("a call's stream of {OLD} has an event with empty data, which clients of that revision fail to parse"),
        );
    }
    Ok(())
}

fn ids_unique(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "The event id: one id names one position of one stream for ever";
    let session = bench.session()?;
    let mut streams = vec![bench.finish(&session, bench.call(3, 10)?)?.1.events];
    let mut running = Vec::new();
    for _ in 0..3 {
        running.push(bench.start(&session, bench.call(3, 40)?)?);
    }
    for running in &mut running {
        streams.push(read_out(&mut running.stream, &running.call, bench.io.patience)?.events);
    }
    streams.push(bench.finish(&session, bench.call(3, 10)?)?.1.events);
    let mut seen = HashMap::new();
    for (number, events) in streams.iter().enumerate() {
        for event in events {
            let Some(id) = event.id.as_deref().filter(|id| !id.is_empty()) else { continue };
            let Some((before, other)) = seen.insert(id, (number, event)) else { continue };
            let place = if before == number { "of one stream" } else { "of two streams" };
            let what = if is_opening(event) || is_opening(other) { "opening events too" } else { "messages" };
            let text = format!("the id {id:?} stands for two events {place} ({what})");
            bench.violates(&sentences::UNIQUE_IDS, text.clone());
            bench.breaks(Cost::Gap, ROW, format!("{text}: a client that comes back with it may be sent the rest of the other"));
        }
    }
    Ok(())
}

fn clean_end(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let (_, got) = bench.finish(&session, bench.call(3, 10)?)?;
    judge_end(bench, "a call's stream", got.ending);
    let first = got.events.iter().find_map(|event| event.id.as_deref()).filter(|id| !id.is_empty());
    if let Some(cursor) = first
        && let Reply::Stream(mut stream) = bench.resume(&session, cursor)?
    {
        let (events, ending) = stream.rest(crate::check::session::LINGER)?;
        // One that brought nothing is the replay cases'.
        if events.iter().any(|event| event.message().is_some()) {
            judge_end(bench, "a resumed stream", ending);
        }
    }
    Ok(())
}

fn judge_end(bench: &Bench, what: &str, ending: Ending) {
    match ending {
        Ending::Clean => {}
        Ending::Open => {
            bench.unclear("End", format!("{what} stayed open behind its answer: \"the server SHOULD terminate the SSE stream\""))
        }
        Ending::Cut(_) => {
            bench.unclear("End", format!("{what} {} behind its answer: a client takes that for a cut", ending.words()))
        }
    }
}

fn takeover(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let mut old = bench.start(&session, bench.call(10, 100)?)?;
    old.until(2)?;
    let (cursor, had) = (old.cursor()?, old.had());
    let reply = bench.resume(&session, &cursor)?;
    if reply.status() == 409 {
        let text = format!(
            "a GET while the first connection was half open was answered {}: its client is locked out by its own ghost",
            reply.words()
        );
        bench.breaks(Cost::Hang, TAKEOVER, text);
        return Ok(());
    }
    let Some(got) = bench.judge_reply("a GET while the first connection was half open", reply, &old.call, &had)? else {
        return Ok(());
    };
    let rest = read_out(&mut old.stream, &old.call, Duration::from_secs(2))?;
    if old.call.answer(&got.events).is_some() && old.call.answer(&rest.events).is_some() {
        bench.breaks(Cost::Duplicate, TAKEOVER, "the older connection was served on beside the newer one: both have the answer");
    } else if rest.ending == Ending::Open {
        bench.unclear(TAKEOVER, "the older connection was not ended when a newer one took over");
    }
    Ok(())
}

fn many_streams(bench: &Bench) -> Result<(), Trouble> {
    const SESSIONS: u32 = 4;
    const CALLS: u32 = 6;
    let mut running = Vec::new();
    for _ in 0..SESSIONS {
        let session = bench.session()?;
        for number in 0..CALLS {
            running.push(bench.start(&session, bench.call(4 + number, 40)?)?);
        }
    }
    for running in &mut running {
        let got = read_out(&mut running.stream, &running.call, bench.io.patience)?;
        bench.judge("one of many calls at once", &running.call, &[], &got);
    }
    Ok(())
}

/// Events of a call that nobody reads, and bytes in each. Reason: more than sockets' buffers take in.
const FLOOD: (u32, usize) = (4_000, 1_024);
/// How long it takes at most until that is so, on a busy machine too.
const FILLED: Duration = Duration::from_millis(1_500);
/// Times that a reader which was let go comes back.
const RETURNS: usize = 5;

/// A call on a connection that takes in hardly anything, and whose server can write no more.
fn flood(bench: &Bench, session: &Session) -> Result<Running, Trouble> {
    let call = bench.padded_call(FLOOD.0, 0, FLOOD.1)?;
    let mut line = Line::open(&bench.io, true)?;
    line.send(&bench.post(session, &call.message))?;
    let stream = match line.reply()? {
        Reply::Stream(stream) => *stream,
        whole @ Reply::Whole(_) => return Err(Trouble::Cannot(format!("a call was answered {}, and no stream", whole.words()))),
    };
    bench.io.pause(FILLED)?;
    Ok(Running { call, stream, events: Vec::new() })
}

fn slow_reader(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let mut running = flood(bench, &session)?;
    let mut all = Vec::new();
    for _ in 0..=RETURNS {
        let got = read_out(&mut running.stream, &running.call, bench.io.patience)?;
        all.extend(got.events);
        if running.call.answer(&all).is_some() || got.ending == Ending::Open {
            break;
        }
        let Some(cursor) = last_id(&all) else { break };
        match bench.resume(&session, cursor)? {
            Reply::Stream(stream) => running.stream = *stream,
            reply => {
                let text = format!("a slow reader that was let go came back, and was answered {}", reply.words());
                bench.breaks(Cost::Hang, "GET row 13", text);
                return Ok(());
            }
        }
    }
    bench.judge("a reader that fell behind", &running.call, &[], &Got { events: all, ending: Ending::Clean });
    Ok(())
}

fn stalled_neighbour(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let ping = bench.post(&session, &json!({ "jsonrpc": "2.0", "id": bench.next_id(), "method": "ping" }));
    let whole = ping.bytes().len();
    let mut stalled = Vec::new();
    for bytes in [20, whole - 5] {
        let mut line = Line::open(&bench.io, true)?;
        line.send_part(&ping, bytes)?;
        stalled.push(line);
    }
    let adjustable = bench.known.fit.as_ref().is_ok_and(crate::check::server::Fit::is_adjustable);
    let _unread = if adjustable { Some(flood(bench, &session)?) } else { None };
    let began = Instant::now();
    let other = bench.session()?;
    let (call, got) = bench.finish(&other, bench.call(5, 20)?)?;
    bench.judge("a call beside stalled connections", &call, &[], &got);
    let took = began.elapsed();
    if took > call.takes + bench.io.patience {
        let text = format!("a call beside stalled connections took {took:.1?}, of {:.1?}", call.takes);
        bench.breaks(Cost::Hang, "Bounds; field reports: neighbours unaffected", text);
    }
    Ok(())
}
