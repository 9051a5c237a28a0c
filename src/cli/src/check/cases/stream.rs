//! Streams: how they open and end, who is served, what the standalone one has, and what a slow or a stalled reader does to others.
//!
//! Never judges what follows a cursor but by `judge`.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::{Case, Need};
use crate::check::bench::Bench;
use crate::check::sentences;
use crate::check::session::{Got, Running, Session, last_id, read_out};
use crate::check::stream::{Ending, Event, Step, Stream};
use crate::check::verdict::Cost;
use crate::check::wire::{Line, Reply, Trouble};

const OPENING: &str = "Opening event";
const TAKEOVER: &str = "Takeover: a newer GET takes over, no 409";
const ROW_14: &str = "GET row 14: the standalone stream, from the first event never written";

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
        name: "takeover-standalone",
        group: "stream",
        expects: "while a first GET is half open, a second one is served",
        boundary: TAKEOVER,
        needs: &[Need::Listening],
        rests_on: &[],
        run: takeover_standalone,
    },
    Case {
        name: "standalone-kept",
        group: "stream",
        expects: "what the server said before anybody listened, and while the listener was cut off, comes when somebody does, once",
        boundary: ROW_14,
        needs: &[Need::Listening, Need::ToolNamed("broadcast")],
        rests_on: &[],
        run: standalone_kept,
    },
    Case {
        name: "standalone-apart",
        group: "stream",
        expects: "the standalone stream has nothing of a call's: no progress and no answer",
        boundary: "POST: each request has a stream of its own",
        needs: &[Need::Listening, Need::Tool],
        rests_on: &[],
        run: standalone_apart,
    },
    Case {
        name: "polling",
        group: "stream",
        expects: "a server that closes a call's connection before its answer has said `retry`, and the client's return brings the answer",
        boundary: "Opening event; retry",
        needs: &[Need::Newest, Need::Ids, Need::ToolNamed("test_reconnection")],
        rests_on: &["cut-while-running"],
        run: polling,
    },
    Case {
        name: "incarnation",
        group: "stream",
        expects: "a cursor of an earlier life of the session is refused with 404; the session lives",
        boundary: "GET row 8; Rotation",
        needs: &[Need::Tool, Need::Ids, Need::ToolNamed("rotate")],
        rests_on: &[],
        run: incarnation,
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
    running.cut();
    if let Reply::Stream(mut stream) = bench.resume(&session, &cursor)? {
        let first = first_of(&mut stream)?;
        judge_opening(bench, "a resumed stream", first.as_ref());
        if let Some(id) = first.filter(is_opening).and_then(|event| event.id).filter(|id| *id != cursor) {
            let text =
                format!("a stream resumed after {cursor:?} opened with {id:?}: cut there, its client comes back elsewhere");
            bench.breaks(Cost::Gap, OPENING, text);
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

fn takeover_standalone(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let Reply::Stream(_first) = bench.ask(&bench.get(&session))? else {
        return Err(Trouble::Cannot("a GET was answered without a stream".to_owned()));
    };
    match bench.ask(&bench.get(&session))? {
        Reply::Stream(mut second) => {
            if let Step::Over(ending @ (Ending::Clean | Ending::Cut(_))) =
                second.next(Instant::now() + Duration::from_millis(500))?
            {
                bench.breaks(
                    Cost::Hang,
                    TAKEOVER,
                    format!("the second of two GETs got a stream that {} with nothing on it", ending.words()),
                );
            }
        }
        reply => {
            let text = format!(
                "a GET while an older one was half open was answered {}: its client is locked out by its own ghost",
                reply.words()
            );
            bench.breaks(Cost::Hang, TAKEOVER, text);
        }
    }
    Ok(())
}

/// The numbers that `broadcast` has said among these events.
fn said(events: &[Event]) -> Vec<u64> {
    events.iter().filter_map(Event::message).filter_map(|message| message["params"]["data"]["tick"].as_u64()).collect()
}

/// Reads a standalone stream until so many have come, or nothing more does.
fn listen(stream: &mut Stream, count: usize) -> Result<Vec<Event>, Trouble> {
    let mut events = Vec::new();
    while said(&events).len() < count {
        match stream.next(stream.due())? {
            Step::Event(event) => events.push(event),
            Step::Over(_) => break,
        }
    }
    Ok(events)
}

fn standalone_kept(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let broadcast = |count: u32| bench.text_of(&session, "broadcast", json!({ "count": count, "interval_ms": 0 }));
    broadcast(4)?;
    let Reply::Stream(mut stream) = bench.ask(&bench.get(&session))? else {
        return Err(Trouble::Cannot("a GET was answered without a stream".to_owned()));
    };
    let events = listen(&mut stream, 2)?;
    if said(&events) != [1, 2] {
        bench.breaks(Cost::Gap, ROW_14, format!("of what was said before anybody listened came {:?}, of 1 to 4", said(&events)));
        return Ok(());
    }
    let cursor =
        last_id(&events).map(str::to_owned).ok_or_else(|| Trouble::Cannot("standalone events have no ids".to_owned()))?;
    stream.cut();
    broadcast(3)?;
    match bench.resume(&session, &cursor)? {
        Reply::Stream(mut stream) => {
            let rest = said(&listen(&mut stream, 5)?);
            if rest != [3, 4, 1, 2, 3] {
                let cost = if rest.len() < 5 { Cost::Gap } else { Cost::Duplicate };
                bench.breaks(
                    cost,
                    "GET row 13",
                    format!("a standalone stream resumed brought {rest:?}, of 3, 4 and then 1, 2, 3"),
                );
            }
        }
        reply => bench.breaks(Cost::Gap, "GET row 13", format!("a standalone stream's cursor was answered {}", reply.words())),
    }
    Ok(())
}

fn standalone_apart(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "POST: each request has a stream of its own";
    let session = bench.session()?;
    let Reply::Stream(mut alone) = bench.ask(&bench.get(&session))? else {
        return Err(Trouble::Cannot("a GET was answered without a stream".to_owned()));
    };
    let (call, got) = bench.finish(&session, bench.call(3, 20)?)?;
    let (events, _) = alone.rest(Duration::from_millis(400))?;
    let marks = call.marks(&events);
    let both: Vec<_> = call.marks(&got.events).into_iter().filter(|mark| marks.contains(mark)).collect();
    if call.answer(&events).is_some() {
        bench.violates(&sentences::NO_RESPONSE, "the standalone stream brought the answer to a call");
    }
    if !both.is_empty() {
        bench.violates(&sentences::ONE_STREAM, "a call's messages came on its stream and on the standalone one");
        bench.breaks(
            Cost::Duplicate,
            ROW,
            format!("{} messages of a call came on its stream and on the standalone one", both.len()),
        );
    } else if !marks.is_empty() {
        bench.breaks(
            Cost::Gap,
            ROW,
            format!("{} messages of a call came on the standalone stream and not on its own", marks.len()),
        );
    }
    Ok(())
}

fn polling(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "Opening event; retry";
    let session = bench.session()?;
    let id = bench.next_id();
    let params = json!({ "name": "test_reconnection", "arguments": {} });
    let message = json!({ "jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params });
    let Reply::Stream(mut stream) = bench.ask(&bench.post(&session, &message))? else {
        return Err(Trouble::Cannot("`test_reconnection` was answered without a stream".to_owned()));
    };
    let (events, ending) = stream.rest(bench.io.patience)?;
    if answered(&events, id) || ending == Ending::Open {
        return Err(Trouble::Cannot("`test_reconnection` did not let go of its connection before its answer".to_owned()));
    }
    let retry = events.iter().rev().find_map(|event| event.retry);
    if retry.is_none() {
        bench.unclear(ROW, "a connection was closed before the answer without a `retry`");
    }
    let Some(cursor) = last_id(&events) else {
        bench.breaks(Cost::Hang, ROW, "a connection was closed before the answer without an id to come back with");
        return Ok(());
    };
    bench.io.pause(retry.unwrap_or_default().min(bench.io.patience))?;
    match bench.resume(&session, cursor)? {
        Reply::Stream(mut stream) => {
            let (rest, ending) = stream.rest(bench.io.patience)?;
            if !answered(&rest, id) {
                bench.breaks(Cost::Hang, ROW, format!("the client that came back got no answer; the stream {}", ending.words()));
            }
        }
        reply => bench.breaks(Cost::Hang, ROW, format!("the client that came back was answered {}", reply.words())),
    }
    Ok(())
}

fn answered(events: &[Event], id: u64) -> bool {
    events.iter().filter_map(Event::message).any(|message| message["id"] == id && message.get("method").is_none())
}

fn incarnation(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "GET row 8; Rotation";
    let session = bench.session()?;
    let (_, got) = bench.finish(&session, bench.call(3, 10)?)?;
    let cursor = got.events.iter().find_map(|event| event.id.clone()).unwrap_or_default();
    bench.text_of(&session, "rotate", json!({}))?;
    // The new life begins right after that answer.
    bench.io.pause(Duration::from_millis(200))?;
    bench.finish(&session, bench.call(3, 10)?)?;
    bench.must_refuse("a cursor of an earlier life of the session", bench.resume(&session, &cursor)?, &[404], ROW)?;
    if let Err(Trouble::Cannot(why)) = bench.result(&session, "ping", Value::Object(serde_json::Map::default())) {
        bench.breaks(Cost::LostSession, ROW, format!("the session did not survive the cursor: {why}"));
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
/// Times that a reader which was let go comes back.
const RETURNS: usize = 5;

/// A call on a connection that takes in hardly anything.
fn flood(bench: &Bench, session: &Session) -> Result<Running, Trouble> {
    let call = bench.padded_call(FLOOD.0, 0, FLOOD.1)?;
    let mut line = Line::open(&bench.io, true)?;
    line.send(&bench.post(session, &call.message))?;
    match line.reply()? {
        Reply::Stream(stream) => Ok(Running { call, stream: *stream, events: Vec::new() }),
        whole @ Reply::Whole(_) => Err(Trouble::Cannot(format!("a call was answered {}, and no stream", whole.words()))),
    }
}

fn slow_reader(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let mut running = flood(bench, &session)?;
    bench.io.pause(Duration::from_millis(1_500))?;
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
