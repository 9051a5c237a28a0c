//! Sessions: which ids are refused and how, what ends a session, and what does not.
//!
//! Never uses a session of anybody else's.

use serde_json::json;

use super::{Case, Need};
use crate::check::bench::{Bench, NEWEST};
use crate::check::request::Request;
use crate::check::sentences;
use crate::check::session::Session;
use crate::check::stream::Ending;
use crate::check::verdict::Cost;
use crate::check::wire::{Reply, Trouble};

const ROW_5: &str = "GET row 5: 400 session_required";
const ROW_6: &str = "GET row 6: 404 session_expired, no stream";
const BEGINS: &str = "POST: initialize begins a new session, whatever id stands in the header";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "session-id",
        group: "session",
        expects: "session ids are of visible ASCII, long enough not to be guessed, and each is another",
        boundary: "The event id: the session id is visible ASCII, unguessable",
        needs: &[Need::Sessions],
        rests_on: &[],
        run: id,
    },
    Case {
        name: "session-missing",
        group: "session",
        expects: "a GET and a POST without a session id are refused with 400",
        boundary: ROW_5,
        needs: &[Need::Sessions],
        rests_on: &[],
        run: missing,
    },
    Case {
        name: "session-unknown",
        group: "session",
        expects: "ids that are no session's (made up, altered, empty) are refused with 404, on GET and POST",
        boundary: ROW_6,
        needs: &[Need::Sessions],
        rests_on: &[],
        run: unknown,
    },
    Case {
        name: "session-doubled",
        group: "session",
        expects: "two session ids in one request are refused with 404: it is for neither",
        boundary: ROW_6,
        needs: &[Need::Sessions],
        rests_on: &[],
        run: doubled,
    },
    Case {
        name: "session-deleted",
        group: "session",
        expects: "after DELETE every request of the session is refused with 404, with a cursor too, and its streams end",
        boundary: "DELETE; GET row 6",
        needs: &[Need::Sessions, Need::Tool],
        rests_on: &[],
        run: deleted,
    },
    Case {
        name: "session-expired",
        group: "session",
        expects: "a session that was idle too long is refused with 404, with a cursor too",
        boundary: ROW_6,
        needs: &[Need::Sessions, Need::Tool, Need::Expiry],
        rests_on: &[],
        run: expired,
    },
    Case {
        name: "session-of-another",
        group: "session",
        expects: "another principal's session is refused with 404, as one that never was",
        boundary: ROW_6,
        needs: &[Need::Sessions, Need::OtherToken],
        rests_on: &[],
        run: of_another,
    },
    Case {
        name: "session-begins-anew",
        group: "session",
        expects: "`initialize` with a dead or a live session id in its header begins a new session, and leaves a live one as it is",
        boundary: BEGINS,
        needs: &[Need::Sessions],
        rests_on: &[],
        run: begins_anew,
    },
    Case {
        name: "session-outlives-streams",
        group: "session",
        expects: "a session whose streams were all cut off is still there",
        boundary: "Two continuities that fail separately",
        needs: &[Need::Sessions, Need::Tool],
        rests_on: &[],
        run: outlives_streams,
    },
    Case {
        name: "sessions-apart",
        group: "session",
        expects: "two sessions that use the same request id and progress token at once each get their own events and answer",
        boundary: "POST: answers are routed by call, never by JSON-RPC id",
        needs: &[Need::Sessions, Need::Tool],
        rests_on: &[],
        run: apart,
    },
];

fn id(bench: &Bench) -> Result<(), Trouble> {
    const SHORT: usize = 16;
    let ids = [bench.session()?.id.unwrap_or_default(), bench.session()?.id.unwrap_or_default()];
    for id in &ids {
        if id.is_empty() || !id.bytes().all(|byte| byte.is_ascii_graphic()) {
            bench.violates(&sentences::VISIBLE_ASCII, format!("the session id {id:?}"));
        }
        if id.len() < SHORT {
            bench.unclear("The event id", format!("the session id {id:?} has {} characters: it can be guessed", id.len()));
        }
    }
    if ids[0] == ids[1] {
        bench.breaks(Cost::Leak, BEGINS, format!("two sessions have the id {:?}", ids[0]));
    }
    Ok(())
}

/// A request of this session that does nothing.
fn ping(bench: &Bench, session: &Session) -> Request {
    bench.post(session, &json!({ "jsonrpc": "2.0", "id": bench.next_id(), "method": "ping" }))
}

/// The same session under another id.
fn as_id(session: &Session, id: Option<&str>) -> Session {
    Session { id: id.map(str::to_owned), ..session.clone() }
}

fn missing(bench: &Bench) -> Result<(), Trouble> {
    let session = as_id(&bench.session()?, None);
    if bench.known.listens {
        bench.must_refuse("a GET without a session id", bench.ask(&bench.get(&session))?, &[400], ROW_5)?;
    }
    let reply = bench.ask(&ping(bench, &session))?;
    if reply.status() != 400 {
        bench.unclear(ROW_5, format!("a POST without a session id was answered {}, in place of 400", reply.words()));
    }
    Ok(())
}

/// An id with its last character changed.
fn altered(id: &str) -> String {
    let mut altered = id.to_owned();
    let last = altered.pop().unwrap_or_default();
    altered.push(if last == '0' { '1' } else { '0' });
    altered
}

fn unknown(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let own = session.id.clone().unwrap_or_default();
    for id in ["00000000-0000-4000-8000-000000000000", "no-such-session", "", &altered(&own)] {
        let other = as_id(&session, Some(id));
        refused_everywhere(bench, &format!("the session id {id:?}"), &other, None, ROW_6)?;
    }
    Ok(())
}

/// Asserts that GET, with a cursor and without, and POST refuse a session.
fn refused_everywhere(
    bench: &Bench,
    what: &str,
    session: &Session,
    cursor: Option<&str>,
    row: &'static str,
) -> Result<(), Trouble> {
    if bench.known.listens {
        bench.must_refuse(&format!("{what} on a GET"), bench.ask(&bench.get(session))?, &[404], row)?;
        if let Some(cursor) = cursor {
            bench.must_refuse(&format!("{what} on a GET with its cursor"), bench.resume(session, cursor)?, &[404], row)?;
        }
    }
    bench.must_refuse(&format!("{what} on a POST"), bench.ask(&ping(bench, session))?, &[404], row)?;
    Ok(())
}

fn doubled(bench: &Bench) -> Result<(), Trouble> {
    let (one, other) = (bench.session()?, bench.session()?);
    let second = other.id.unwrap_or_default();
    if bench.known.listens {
        let request = bench.get(&one).with("Mcp-Session-Id", &second);
        bench.must_refuse("two session ids on a GET", bench.ask(&request)?, &[404, 400], ROW_6)?;
    }
    let request = ping(bench, &one).with("Mcp-Session-Id", &second);
    bench.must_refuse("two session ids on a POST", bench.ask(&request)?, &[404, 400], ROW_6)?;
    Ok(())
}

fn delete(bench: &Bench, session: &Session) -> Result<(), Trouble> {
    let reply = bench.ask(&bench.of(session, bench.bare("DELETE")))?;
    match reply.status() {
        200..=299 => Ok(()),
        405 => Err(Trouble::Cannot("the server does not let clients end sessions (405, which MCP allows)".to_owned())),
        _ => Err(Trouble::Cannot(format!("DELETE was answered {}", reply.words()))),
    }
}

fn deleted(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let mut running = bench.start(&session, bench.call(30, 100)?)?;
    running.until(1)?;
    let cursor = running.cursor().ok();
    delete(bench, &session)?;
    let (_, ending) = running.stream.rest(bench.io.patience)?;
    if ending == Ending::Open {
        bench.breaks(
            Cost::Hang,
            "DELETE: the session ends, streams end cleanly",
            "a stream of a deleted session stayed open, and silent",
        );
    }
    if let Reply::Whole(answer) = bench.ask(&ping(bench, &session))?
        && answer.status() != 404
    {
        bench.violates(&sentences::ENDED_IS_404, format!("a POST of a deleted session was answered {}", answer.status()));
    }
    refused_everywhere(bench, "a deleted session", &session, cursor.as_deref(), "DELETE; GET row 6")
}

fn expired(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let (_, got) = bench.finish(&session, bench.call(3, 10)?)?;
    bench.io.pause(bench.settings.expire_after.unwrap_or_default())?;
    let cursor = got.events.iter().find_map(|event| event.id.as_deref());
    // With the cursor first: it must not wake anything.
    if let Some(cursor) = cursor {
        bench.must_refuse("an expired session's cursor", bench.resume(&session, cursor)?, &[404], ROW_6)?;
    }
    refused_everywhere(bench, "an expired session", &session, None, ROW_6)
}

fn of_another(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let token = bench.settings.other_token.clone().unwrap_or_default();
    if bench.known.listens {
        let reply = bench.ask(&bench.get(&session).authorized(&token))?;
        bench.must_keep("another principal's session on a GET", reply, &[404], ROW_6)?;
    }
    let reply = bench.ask(&ping(bench, &session).authorized(&token))?;
    bench.must_keep("another principal's session on a POST", reply, &[404], ROW_6)?;
    Ok(())
}

fn begins_anew(bench: &Bench) -> Result<(), Trouble> {
    let live = bench.session()?;
    let live_id = live.id.clone().unwrap_or_default();
    for (what, stale) in [("a session id that is no session's", altered(&live_id)), ("a live session's id", live_id.clone())] {
        // The notification that follows carries the new session's own id.
        let with_stale = |request: Request| {
            if request.shown().contains("\"initialize\"") { request.with("Mcp-Session-Id", &stale) } else { request }
        };
        match bench.session_by(NEWEST, with_stale) {
            Ok(session) if session.id.as_deref() == Some(&stale) => {
                bench.breaks(Cost::Leak, BEGINS, format!("`initialize` with {what} in its header was given that id"));
            }
            Ok(session) if session.id.is_none() => {
                bench.breaks(Cost::Hang, BEGINS, format!("`initialize` with {what} in its header was given no session id"));
            }
            Ok(_) => {}
            Err(Trouble::Cannot(why)) => {
                bench.breaks(
                    Cost::Hang,
                    BEGINS,
                    format!("with {what} in its header {why}: a client that does so never comes back"),
                );
            }
            Err(other) => return Err(other),
        }
    }
    let reply = bench.ask(&ping(bench, &live))?;
    if reply.status() != 200 {
        let text = format!("a live session that an `initialize` named was answered {} afterwards", reply.words());
        bench.breaks(Cost::LostSession, BEGINS, text);
    }
    Ok(())
}

fn outlives_streams(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let mut running = bench.start(&session, bench.call(4, 50)?)?;
    running.until(1)?;
    let (call, _) = running.cut();
    if bench.known.listens
        && let Reply::Stream(stream) = bench.ask(&bench.get(&session))?
    {
        stream.cut();
    }
    bench.wait_out(&call)?;
    let reply = bench.ask(&ping(bench, &session))?;
    if reply.status() != 200 {
        let text = format!("a session whose streams were cut off was answered {}", reply.words());
        bench.breaks(Cost::LostSession, "Two continuities that fail separately", text);
    }
    Ok(())
}

fn apart(bench: &Bench) -> Result<(), Trouble> {
    let (one, other) = (bench.session()?, bench.session()?);
    let first = bench.call(4, 60)?;
    let second = bench.call(6, 60)?.renamed(first.id.clone(), &first.token);
    let mut first = bench.start(&one, first)?;
    let mut second = bench.start(&other, second)?;
    for (what, running) in [("the first of two sessions", &mut first), ("the second of two sessions", &mut second)] {
        let got = crate::check::session::read_out(&mut running.stream, &running.call, bench.io.patience)?;
        bench.judge(&format!("{what} with one id in flight in both"), &running.call, &[], &got);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_altered_id_is_another_of_the_same_length() {
        assert_eq!(altered("ab0"), "ab1");
        assert_eq!(altered("abc"), "ab0");
    }
}
