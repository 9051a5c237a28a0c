//! Calls: executed once, answered each with its own, and refused before anything is executed.
//!
//! Never says that a call ran twice without having seen it: by a count, or by its events.

use serde_json::{Value, json};

use super::{Case, Need};
use crate::check::bench::Bench;
use crate::check::sentences;
use crate::check::server::Effects;
use crate::check::session::{Call, ERROR, Got, RESULT, Running, Session, read_out};
use crate::check::stream::{Ending, Event};
use crate::check::verdict::Cost;
use crate::check::wire::{Reply, Trouble};

const REPOST: &str = "POST: a repost is never executed again";
const ROUTED: &str = "POST: answers are routed by call, never by JSON-RPC id";
const REFUSED: &str = "POST: refusals are decided before anything is executed";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "repost-running",
        group: "post",
        expects: "a call POSTed again while it runs is not executed again; both connections get its answer",
        boundary: REPOST,
        needs: &[Need::Tool],
        rests_on: &["uncut"],
        run: repost_running,
    },
    Case {
        name: "repost-finished",
        group: "post",
        expects: "a call POSTed again when it is over gets its recorded answer, or is told that its outcome is unknown",
        boundary: REPOST,
        needs: &[Need::Tool],
        rests_on: &["uncut"],
        run: repost_finished,
    },
    Case {
        name: "reused-id",
        group: "post",
        expects: "another call under an id that was used before is a call of its own: some clients use one id for all",
        boundary: "POST: the same id with another body is a new call",
        needs: &[Need::Tool],
        rests_on: &["uncut"],
        run: reused_id,
    },
    Case {
        name: "one-id-in-flight-twice",
        group: "post",
        expects: "two calls in flight under one id, of other lengths: each stream has its own events and its own answer",
        boundary: ROUTED,
        needs: &[Need::Tool],
        rests_on: &["uncut"],
        run: one_id_twice,
    },
    Case {
        name: "one-token-in-flight-twice",
        group: "post",
        expects: "two calls in flight with one progress token: each stream has its own progress",
        boundary: "POST: the same holds for progress tokens",
        needs: &[Need::Adjustable],
        rests_on: &["uncut"],
        run: one_token_twice,
    },
    Case {
        name: "cut-is-no-cancel",
        group: "post",
        expects: "a call whose connection was cut is executed once and to its end",
        boundary: "POST: a dropped connection is not a cancellation",
        needs: &[Need::Effects, Need::Tool, Need::Ids],
        rests_on: &["result-while-away"],
        run: cut_is_no_cancel,
    },
    Case {
        name: "cancelled",
        group: "post",
        expects: "a cancelled call's stream ends, and its repost is not executed again",
        boundary: "End: a cancelled call's stream ends cleanly",
        needs: &[Need::Adjustable],
        rests_on: &["uncut"],
        run: cancelled,
    },
    Case {
        name: "refused-not-executed",
        group: "post",
        expects: "a call that is refused (no such session, a revision that is not served) was not executed",
        boundary: REFUSED,
        needs: &[Need::Effects, Need::Sessions],
        rests_on: &[],
        run: refused_not_executed,
    },
    Case {
        name: "idempotency-key",
        group: "post",
        expects: "a call under an Idempotency-Key that was used is not executed again; MCP asks for no such thing",
        boundary: "POST: an Idempotency-Key header",
        needs: &[Need::Effects, Need::Tool],
        rests_on: &["uncut"],
        run: idempotency_key,
    },
    Case {
        name: "post-notification",
        group: "post",
        expects: "a notification, and a response to no request, are answered 202 without a body",
        boundary: "POST: notification or response",
        needs: &[],
        rests_on: &[],
        run: notification,
    },
    Case {
        name: "post-nonsense",
        group: "post",
        expects: "what is no JSON, no JSON-RPC, or a batch where the revision has none, is refused with 400",
        boundary: "POST: bad JSON; batch where the revision has none",
        needs: &[],
        rests_on: &[],
        run: nonsense,
    },
    Case {
        name: "post-fields",
        group: "post",
        expects: "a POST that accepts no stream is refused with 406, one of another content type with 415",
        boundary: "POST: Accept without both types; wrong content type",
        needs: &[],
        rests_on: &[],
        run: fields,
    },
];

fn ids(events: &[Event]) -> Vec<&str> {
    events.iter().filter(|event| event.message().is_some()).filter_map(|event| event.id.as_deref()).collect()
}

/// Judges what a repost got: no second execution, and an answer.
fn judge_repost(
    bench: &Bench,
    what: &str,
    call: &Call,
    executions: Option<u64>,
    first: &[Event],
    second: &Reposted,
) -> Result<(), Trouble> {
    match executions {
        Some(0) => return Err(Trouble::Cannot("the server counted no execution of a call that it answered".to_owned())),
        Some(1) => {}
        Some(count) => {
            bench.breaks(Cost::DoubleExecution, REPOST, format!("{what} was executed: {count} executions of one call"))
        }
        None => match second {
            Reposted::Events(got) => {
                let known = ids(first);
                let new = ids(&got.events).into_iter().filter(|id| !known.contains(id)).count();
                if new > 1 && call.marks(&got.events).len() > 1 {
                    let text = format!("{what} brought {new} events under ids of their own: it ran again");
                    bench.breaks(Cost::DoubleExecution, REPOST, text);
                }
            }
            Reposted::Answer(_) | Reposted::Refused => {
                return Err(Trouble::Cannot("nothing shows whether the call ran twice (--effects-tool)".to_owned()));
            }
        },
    }
    match second {
        Reposted::Events(got) if call.answer(&got.events).is_none() => {
            bench.breaks(Cost::Hang, REPOST, format!("{what} got no answer; its stream {}", got.ending.words()));
        }
        Reposted::Answer(message) if message["id"] != call.id => {
            bench.breaks(Cost::Hang, REPOST, format!("{what} got an answer with the id {}", message["id"]));
        }
        Reposted::Events(_) | Reposted::Answer(_) | Reposted::Refused => {}
    }
    Ok(())
}

/// What a repost got.
enum Reposted {
    Events(Got),
    Answer(Value),
    Refused,
}

fn repost(bench: &Bench, what: &str, session: &Session, call: &Call) -> Result<Reposted, Trouble> {
    let reply = bench.ask(&bench.post(session, &call.message))?;
    match bench.read(reply, call)? {
        Ok(got) => Ok(Reposted::Events(got)),
        Err(Reply::Whole(answer)) if answer.status() == 200 => Ok(Reposted::Answer(answer.json())),
        Err(reply) => {
            bench.unclear(
                REPOST,
                format!("{what} was answered {}: its client does not learn what became of the call", reply.words()),
            );
            Ok(Reposted::Refused)
        }
    }
}

fn repost_finished(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let before = bench.counted(&session)?;
    let (call, first) = bench.finish(&session, bench.call(4, 30)?)?;
    let what = "a call POSTed again after its answer";
    let second = repost(bench, what, &session, &call)?;
    judge_repost(bench, what, &call, bench.executions(&session, &call, before)?, &first.events, &second)
}

fn repost_running(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let before = bench.counted(&session)?;
    let mut first = bench.start(&session, bench.call(8, 100)?)?;
    first.until(2)?;
    let what = "a call POSTed again while it ran";
    let second = repost(bench, what, &session, &first.call)?;
    let got = read_out(&mut first.stream, &first.call, bench.io.patience)?;
    first.events.extend(got.events);
    let call = &first.call;
    if call.answer(&first.events).is_none() {
        let text = format!("{what} took the answer from the first connection, whose stream {}", got.ending.words());
        bench.breaks(Cost::Hang, "POST: a repost joins, and both connections get the rest", text);
    }
    judge_repost(bench, what, call, bench.executions(&session, call, before)?, &first.events, &second)
}

fn reused_id(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let (first, _) = bench.finish(&session, bench.call(3, 10)?)?;
    let token = bench.name();
    let second = bench.call(5, 10)?.renamed(first.id, &token);
    let reply = bench.ask(&bench.post(&session, &second.message))?;
    bench.judge_reply("another call under a used id", reply, &second, &[])?;
    Ok(())
}

/// Two calls at once, each read to its end and judged.
fn both(bench: &Bench, session: &Session, calls: [Call; 2], what: &str) -> Result<(), Trouble> {
    let [first, second] = calls;
    let mut running = vec![bench.start(session, first)?];
    match bench.ask(&bench.post(session, &second.message))? {
        Reply::Stream(stream) => running.push(Running { call: second, stream: *stream, events: Vec::new() }),
        whole @ Reply::Whole(_) => {
            bench.breaks(Cost::Hang, ROUTED, format!("the second of {what} was answered {}", whole.words()))
        }
    }
    for (place, running) in ["first", "second"].into_iter().zip(&mut running) {
        let got = read_out(&mut running.stream, &running.call, bench.io.patience)?;
        bench.judge(&format!("the {place} of {what}"), &running.call, &[], &got);
    }
    Ok(())
}

fn one_id_twice(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let first = bench.call(4, 80)?;
    let token = bench.name();
    let second = bench.call(7, 80)?.renamed(first.id.clone(), &token);
    both(bench, &session, [first, second], "two calls under one id")
}

fn one_token_twice(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let first = bench.call(4, 80)?;
    let second = bench.call(7, 80)?;
    let second = second.renamed(second.id.clone(), &first.token);
    both(bench, &session, [first, second], "two calls with one progress token")
}

fn cut_is_no_cancel(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let before = bench.counted(&session)?;
    let mut running = bench.start(&session, bench.call(5, 50)?)?;
    running.until(1)?;
    let cursor = running.cursor()?;
    let (call, had) = running.cut();
    bench.wait_out(&call)?;
    bench.resume_and_judge("a call that was cut and left alone", &session, &cursor, &call, &had)?;
    match bench.executions(&session, &call, before)? {
        Some(1) | None => {}
        Some(count) => bench.breaks(Cost::DoubleExecution, REPOST, format!("a call that was cut was executed {count} times")),
    }
    Ok(())
}

fn cancelled(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "End: a cancelled call's stream ends cleanly";
    let session = bench.session()?;
    let before = bench.counted(&session)?;
    let mut running = bench.start(&session, bench.call(25, 100)?)?;
    running.until(2)?;
    let params = json!({ "requestId": running.call.id, "reason": "check" });
    let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": params });
    bench.ask(&bench.post(&session, &cancel))?;
    let (events, ending) = running.stream.rest(bench.io.patience)?;
    let marks = running.call.marks(&events);
    if marks.iter().any(|mark| mark == RESULT || mark == ERROR) {
        if marks.len() > running.call.expected.len() / 2 {
            bench.unclear(ROW, "a cancelled call went on to its end, which MCP allows");
        }
    } else if ending == Ending::Open {
        bench.unclear(ROW, "a cancelled call's stream stayed open, and silent");
    }
    // What happens to its repost is only seen where executions are counted.
    if !matches!(bench.known.effects, Effects::Unseen(_)) {
        repost(bench, "a cancelled call POSTed again", &session, &running.call)?;
        if let Some(count @ 2..) = bench.executions(&session, &running.call, before)? {
            bench.breaks(
                Cost::DoubleExecution,
                REPOST,
                format!("a cancelled call POSTed again was executed: {count} executions of one call"),
            );
        }
    }
    Ok(())
}

fn refused_not_executed(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let nowhere = Session { id: Some("no-such-session".to_owned()), ..session.clone() };
    let ancient = Session { revision: "1999-01-01".to_owned(), ..session.clone() };
    for (what, presented) in [("a session that is none", nowhere), ("a revision that is not served", ancient)] {
        let (before, call) = (bench.counted(&session)?, bench.call(2, 10)?);
        let reply = bench.ask(&bench.post(&presented, &call.message))?;
        let (status, words) = (reply.status(), reply.words());
        drop(reply);
        bench.io.pause(call.takes + std::time::Duration::from_millis(200))?;
        match bench.executions(&session, &call, before)? {
            Some(0) | None => {}
            Some(_) if status < 400 => {
                bench.breaks(Cost::DoubleExecution, REFUSED, format!("a call of {what} was executed, and answered {words}"));
            }
            Some(_) => {
                let text =
                    format!("a call of {what} was answered {words}, and executed: a client that calls again runs it twice");
                bench.breaks(Cost::DoubleExecution, REFUSED, text);
            }
        }
    }
    Ok(())
}

fn idempotency_key(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "POST: an Idempotency-Key header";
    let session = bench.session()?;
    let before = bench.counted(&session)?;
    let (key, first) = (bench.name(), bench.call(2, 10)?);
    let (id, token) = (json!(bench.next_id()), bench.name());
    let second = first.renamed(id, &token);
    for call in [&first, &second] {
        let reply = bench.ask(&bench.post(&session, &call.message).with("Idempotency-Key", &key))?;
        if reply.status() >= 400 {
            return Err(Trouble::Cannot(format!("a call under an idempotency key was answered {}", reply.words())));
        }
        bench.read(reply, call)?.ok();
    }
    if let Some(count @ 2..) = bench.executions(&session, &first, before)? {
        bench.unclear(ROW, format!("the key is not honoured: {count} executions"));
    }
    Ok(())
}

fn notification(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let note = json!({ "jsonrpc": "2.0", "method": "notifications/roots/list_changed" });
    let stray = json!({ "jsonrpc": "2.0", "id": "no-such-request", "result": {} });
    for (what, message) in [("a notification", note), ("a response to no request", stray)] {
        match bench.ask(&bench.post(&session, &message))? {
            Reply::Whole(answer) if answer.status() == 202 && answer.body.is_empty() => {}
            Reply::Whole(answer) if (400..500).contains(&answer.status()) => {}
            reply => bench.violates(&sentences::ACCEPTED, format!("{what} was answered {}", reply.words())),
        }
    }
    Ok(())
}

fn nonsense(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "POST: bad JSON; batch where the revision has none";
    let session = bench.session()?;
    let batch = r#"[{"jsonrpc":"2.0","id":"b1","method":"ping"},{"jsonrpc":"2.0","id":"b2","method":"ping"}]"#;
    let mut bodies = vec![("what is no JSON", "{\"jsonrpc\":"), ("what is no JSON-RPC", "{\"hello\":1}")];
    if session.revision.as_str() >= "2025-06-18" {
        bodies.push(("a batch", batch));
    }
    for (what, body) in bodies {
        let reply = bench.ask(&bench.of(&session, bench.post_bare(body)))?;
        if reply.status() != 400 {
            bench.unclear(ROW, format!("{what} was answered {}, in place of 400", reply.words()));
        }
    }
    Ok(())
}

fn fields(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "POST: Accept without both types; wrong content type";
    let session = bench.session()?;
    let ping = bench.post(&session, &json!({ "jsonrpc": "2.0", "id": bench.next_id(), "method": "ping" }));
    let cases = [
        ("a POST that accepts no event stream", ping.clone().set("Accept", "application/json"), 406),
        ("a POST of text/plain", ping.set("Content-Type", "text/plain"), 415),
    ];
    for (what, request, status) in cases {
        let reply = bench.ask(&request)?;
        if reply.status() != status {
            bench.unclear(ROW, format!("{what} was answered {}, in place of {status}", reply.words()));
        }
    }
    Ok(())
}
