//! Cursors that are none, or not this session's: what must be refused, and is refused in a way that a client can tell from a replay.
//!
//! Never resumes a good cursor but to compare.

use serde_json::Value;

use super::{Case, Need};
use crate::check::bench::Bench;
use crate::check::session::{Session, last_id};
use crate::check::verdict::Cost;
use crate::check::wire::{Reply, Trouble};

const ROW_7: &str = "GET row 7: 400 invalid_cursor, no stream";
const ROW_9: &str = "GET row 9: a cursor beyond the last event is refused, no stream";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "cursor-garbage",
        group: "cursor",
        expects: "a Last-Event-ID that the server never issued is refused with 400",
        boundary: ROW_7,
        needs: &[Need::Listening],
        rests_on: &[],
        run: garbage,
    },
    Case {
        name: "cursor-altered",
        group: "cursor",
        expects: "an id of the server's with a character more or less, or in capitals, is refused: only one spelling is an id",
        boundary: ROW_7,
        needs: &[Need::Tool, Need::Ids],
        rests_on: &["cursor-garbage"],
        run: altered,
    },
    Case {
        name: "cursor-empty",
        group: "cursor",
        expects: "an empty Last-Event-ID is refused with 400: it is no cursor, and not the lack of one",
        boundary: ROW_7,
        needs: &[Need::Listening],
        rests_on: &[],
        run: empty,
    },
    Case {
        name: "cursor-doubled",
        group: "cursor",
        expects: "two Last-Event-ID fields are refused with 400: no reader of the two can be right",
        boundary: ROW_7,
        needs: &[Need::Tool, Need::Ids],
        rests_on: &[],
        run: doubled,
    },
    Case {
        name: "cursor-of-another-session",
        group: "cursor",
        expects: "another session's cursor is refused with 400, and nothing of that session is seen",
        boundary: ROW_7,
        needs: &[Need::Sessions, Need::Tool, Need::Ids],
        rests_on: &[],
        run: of_another_session,
    },
    Case {
        name: "cursor-of-the-future",
        group: "cursor",
        expects: "an id beyond the last one issued is refused with 400 or 404",
        boundary: ROW_9,
        needs: &[Need::Tool, Need::Ids],
        rests_on: &["cursor-garbage"],
        run: of_the_future,
    },
    Case {
        name: "cursor-at-the-end",
        group: "cursor",
        expects: "the last id of a call that is over is answered 204 (or 405): nothing more will come",
        boundary: "GET row 12",
        needs: &[Need::Tool, Need::Ids],
        rests_on: &[],
        run: at_the_end,
    },
];

/// A session and the ids of a finished call of it.
fn issued(bench: &Bench) -> Result<(Session, Vec<String>), Trouble> {
    let session = bench.session()?;
    let (_, got) = bench.finish(&session, bench.call(3, 10)?)?;
    let ids: Vec<_> = got.events.into_iter().filter_map(|event| event.id).filter(|id| !id.is_empty()).collect();
    if ids.len() < 2 {
        return Err(Trouble::Cannot("a call's stream has fewer than two ids".to_owned()));
    }
    Ok((session, ids))
}

fn garbage(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let long = "x".repeat(300);
    for cursor in ["no-such-cursor", "../../etc/passwd", "{\"a\":1}", "%00", &long] {
        let reply = bench.resume(&session, cursor)?;
        let shown: String = cursor.chars().take(20).collect();
        bench.must_refuse(&format!("the cursor {shown:?}"), reply, &[400], ROW_7)?;
    }
    Ok(())
}

fn altered(bench: &Bench) -> Result<(), Trouble> {
    let (session, ids) = issued(bench)?;
    let id = &ids[0];
    let mut shorter = id.clone();
    shorter.pop();
    let mut spellings = vec![format!("{id}x"), format!("0{id}"), format!("+{id}"), shorter];
    spellings.extend(Some(id.to_uppercase()).filter(|upper| upper != id));
    spellings.retain(|spelling| !spelling.is_empty() && !ids.contains(spelling));
    for spelling in spellings {
        let reply = bench.resume(&session, &spelling)?;
        bench.must_refuse(&format!("{spelling:?}, where the server's own is {id:?},"), reply, &[400, 404], ROW_7)?;
    }
    Ok(())
}

fn empty(bench: &Bench) -> Result<(), Trouble> {
    let session = bench.session()?;
    let reply = bench.resume(&session, "")?;
    bench.must_refuse("an empty cursor", reply, &[400], ROW_7)?;
    Ok(())
}

fn doubled(bench: &Bench) -> Result<(), Trouble> {
    let (session, ids) = issued(bench)?;
    let request = bench.get_after(&session, &ids[0]).with("Last-Event-ID", &ids[1]);
    bench.must_refuse("two cursors at once", bench.ask(&request)?, &[400], ROW_7)?;
    Ok(())
}

fn of_another_session(bench: &Bench) -> Result<(), Trouble> {
    let (_, ids) = issued(bench)?;
    let session = bench.session()?;
    // Something of its own, so that there is a stream to mix it up with.
    bench.finish(&session, bench.call(3, 10)?)?;
    bench.must_keep("another session's cursor", bench.resume(&session, &ids[0])?, &[400], ROW_7)?;
    Ok(())
}

/// Far more than any stream of a case has.
const AHEAD: u64 = 100_000;

/// The same id with one of its decimal numbers increased, each in turn.
fn increased(id: &str) -> Vec<String> {
    let bytes = id.as_bytes();
    let mut found = Vec::new();
    let mut at = 0;
    while at < bytes.len() {
        let digits = bytes[at..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        if digits > 0
            && let Ok(number) = id[at..at + digits].parse::<u64>()
        {
            found.push(format!("{}{}{}", &id[..at], number.saturating_add(AHEAD), &id[at + digits..]));
        }
        at += digits.max(1);
    }
    found
}

fn of_the_future(bench: &Bench) -> Result<(), Trouble> {
    let (session, ids) = issued(bench)?;
    let last = ids.last().map(String::as_str).unwrap_or_default();
    let cursors = increased(last);
    if cursors.is_empty() {
        return Err(Trouble::Cannot(format!("the ids (such as {last:?}) have no number that could be increased")));
    }
    for cursor in cursors {
        // A 404 may have ended the session, and then says nothing of the next cursor.
        let alive = bench.result(&session, "ping", Value::Object(serde_json::Map::default()));
        if matches!(alive, Err(Trouble::Cannot(_))) {
            break;
        }
        let what = format!("{cursor:?}, where {last:?} was the last id,");
        bench.must_refuse(&what, bench.resume(&session, &cursor)?, &[400, 404], ROW_9)?;
    }
    Ok(())
}

fn at_the_end(bench: &Bench) -> Result<(), Trouble> {
    const ROW: &str = "GET row 12";
    let session = bench.session()?;
    let (call, got) = bench.finish(&session, bench.call(3, 10)?)?;
    if call.answer(&got.events).is_none() {
        return Err(Trouble::Cannot("a call was not answered".to_owned()));
    }
    let last = last_id(&got.events).unwrap_or_default();
    let reply = bench.resume(&session, last)?;
    match reply.status() {
        204 | 405 => {}
        200 => match bench.read(reply, &call)? {
            Ok(after) if !call.marks(&after.events).is_empty() => {
                bench.judge("the cursor at the end", &call, &call.expected, &after);
            }
            Ok(after) => bench.unclear(
                ROW,
                format!("the cursor at the end was answered 200 and nothing; the stream {}, and stock clients come back or wait for ever", after.ending.words()),
            ),
            Err(reply) => bench.unclear(ROW, format!("the cursor at the end was answered {}", reply.words())),
        },
        404 => bench.breaks(Cost::LostSession, ROW, format!("the cursor at the end was answered {}", Reply::words(&reply))),
        _ => bench.unclear(ROW, format!("the cursor at the end was answered {}; 204 is what clients stop on", reply.words())),
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_number_of_an_id_is_increased_in_turn() {
        assert_eq!(increased("1.2.a9"), ["100001.2.a9", "1.100002.a9", "1.2.a100009"]);
        assert_eq!(increased("7"), ["100007"]);
        assert!(increased("abc").is_empty());
    }
}
