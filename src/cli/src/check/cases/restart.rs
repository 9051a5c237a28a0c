//! A restart in the middle: what becomes of sessions, cursors and ids of the life before.
//!
//! Never restarts anything but by the user's own command.

use super::{Case, Need};
use crate::check::bench::Bench;
use crate::check::session::{Call, Session};
use crate::check::verdict::Cost;
use crate::check::wire::{Reply, Trouble};
use crate::restart;

const ROW: &str = "GET rows 6 to 9: a session of another life is refused with 404";

pub(super) const CASES: &[Case] = &[
    Case {
        name: "restart-session",
        group: "restart",
        expects: "after a restart the old session and its cursor are refused with 404, or go on exactly where they were",
        boundary: ROW,
        needs: &[Need::Restart, Need::Sessions, Need::Tool, Need::Ids],
        rests_on: &["result-while-away"],
        run: old_session,
    },
    Case {
        name: "restart-cursor",
        group: "restart",
        expects: "after a restart a new session that has said as much refuses the old one's cursor: ids do not begin again",
        boundary: "GET rows 7 and 8: one id names one position of one stream for ever",
        needs: &[Need::Restart, Need::Sessions, Need::Tool, Need::Ids],
        rests_on: &["cursor-of-another-session"],
        run: old_cursor,
    },
];

/// A session of the life before, a call of it that was cut, and its cursor.
fn before(bench: &Bench) -> Result<(Session, Call, Vec<String>, String), Trouble> {
    let session = bench.session()?;
    let mut running = bench.start(&session, bench.call(4, 50)?)?;
    running.until(1)?;
    let cursor = running.cursor()?;
    let (call, had) = running.cut();
    bench.wait_out(&call)?;
    Ok((session, call, had, cursor))
}

fn restarted(bench: &Bench) -> Result<(), Trouble> {
    let until = bench.io.deadline();
    restart::with(bench.settings.restart.as_deref().unwrap_or_default(), until).map_err(Trouble::Cannot)
}

fn old_session(bench: &Bench) -> Result<(), Trouble> {
    let (session, call, had, cursor) = before(bench)?;
    restarted(bench)?;
    let what = "a session of before the restart";
    match bench.resume(&session, &cursor)? {
        stream @ Reply::Stream(_) => {
            bench.judge_reply(&format!("{what}, resumed"), stream, &call, &had)?;
        }
        reply => {
            bench.must_refuse(&format!("{what}, with its cursor"), reply, &[404], ROW)?;
            let message = serde_json::json!({ "jsonrpc": "2.0", "id": bench.next_id(), "method": "ping" });
            let reply = bench.ask(&bench.post(&session, &message))?;
            if reply.status() == 200 {
                let text = format!("{what} is gone for a GET and lives for a POST, which was answered {}", reply.words());
                bench.breaks(Cost::Hang, ROW, text);
            } else {
                bench.must_refuse(&format!("{what}, on a POST"), reply, &[404], ROW)?;
            }
        }
    }
    Ok(())
}

fn old_cursor(bench: &Bench) -> Result<(), Trouble> {
    let (_, _, _, cursor) = before(bench)?;
    restarted(bench)?;
    // As much is said as before, so that ids that began again would be there.
    let (session, ..) = before(bench)?;
    let row = "GET rows 7 and 8: one id names one position of one stream for ever";
    bench.must_refuse("a cursor of before the restart in a new session", bench.resume(&session, &cursor)?, &[400, 404], row)?;
    Ok(())
}
