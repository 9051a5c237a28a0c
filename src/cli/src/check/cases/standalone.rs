//! The standalone stream, and streams that end before their time: by polling, and by a new life of their session.
//!
//! Never judges what follows a call's cursor: that is `replay`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::stream::TAKEOVER;
use super::{Case, Need};
use crate::check::bench::Bench;
use crate::check::sentences;
use crate::check::session::last_id;
use crate::check::stream::{Ending, Event, Step, Stream};
use crate::check::verdict::Cost;
use crate::check::wire::{Reply, Trouble};

const ROW_14: &str = "GET row 14: the standalone stream, from the first event never written";

pub(super) const CASES: &[Case] = &[
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
];

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
