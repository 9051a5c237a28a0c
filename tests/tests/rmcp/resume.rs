//! The cut and the return: what a client gets of a call that it was cut off from, on rmcp's transport and on ours. Only ours is expected to
//! pass, and the run prints both.

use std::io::Write;
use std::panic::catch_unwind;
use std::thread::sleep;
use std::time::Duration;

use rejoin_tests::session::{NOVEMBER, Session, call, call_with_token, executions, fresh_key, messages_of};
use rejoin_tests::sse::Block;
use rejoin_tests::wire::{Stream, ask};
use serde_json::{Value, json};

use crate::both::ticks;
use crate::sides::{Server, Side};

/// What a row found: nothing, or what is wrong.
type Found = Result<(), String>;

/// What happens, its test, and whether rmcp's transport passes it.
type Row = (&'static str, fn(&Session) -> Found, bool);

/// The situations, each with whether rmcp 3.11.0 gets it right: a row that changes its mind there fails the run, so that this list stays
/// what was measured.
const ROWS: [Row; 6] = [
    ("cut in mid-call, back while it runs: exactly the rest", back_while_it_runs, false),
    ("finished while away: the rest and the result", finished_while_away, false),
    ("back after the result: nothing more will come", back_after_the_result, false),
    ("the same call posted again: one execution", posted_again, false),
    ("another session's cursor: refused", anothers_cursor, false),
    ("a cursor that is none: refused", no_cursor, false),
];

#[test]
fn a_client_that_is_cut_off_finds_its_call_again_on_rejoin_only() {
    let mut table = String::from("NOTICE cut and resume, the same rmcp server on both transports:\n");
    let mut wrong = Vec::new();
    for (what, row, rmcp_passes) in ROWS {
        let [theirs, ours] = [Side::Rmcp, Side::Rejoin].map(|side| found(side, row));
        let word = |found: &Found| found.as_ref().map_or_else(|why| format!("FAILS ({why})"), |()| "passes".to_owned());
        table += &format!("NOTICE   {what}: rejoin {}; rmcp {}\n", word(&ours), word(&theirs));
        if let Err(why) = ours {
            wrong.push(format!("{what}: {why}"));
        }
        if theirs.is_ok() != rmcp_passes {
            wrong.push(format!("{what}: rmcp's transport is not as it was measured: {theirs:?}"));
        }
    }
    // Not `print!`, which the test's runner would keep to itself.
    std::io::stderr().write_all(table.as_bytes()).expect("stderr");
    assert!(wrong.is_empty(), "{wrong:#?}");
}

/// Runs a row on a server of its own; whatever it panics about is what is wrong.
fn found(side: Side, row: fn(&Session) -> Found) -> Found {
    catch_unwind(|| {
        let server = Server::start(side);
        row(&Session::begin(server.address, NOVEMBER))
    })
    .unwrap_or_else(|_| Err("no proper answer".to_owned()))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: T, expected: T) -> Found {
    if found == expected { Ok(()) } else { Err(format!("{what} {found:?}, not {expected:?}")) }
}

fn ticker(count: u64, interval_ms: u64, key: &str) -> Value {
    call_with_token(1, "token", "ticker", json!({ "count": count, "interval_ms": interval_ms, "key": key }))
}

/// A call that was cut after its tick `last`, and that event's id.
fn cut(session: &Session, asked: &Value, last: u64) -> String {
    let mut stream = session.call(asked);
    let cursor = stream.until(|block| ticks(std::slice::from_ref(block)) == [last]).pop().expect("a tick").cursor().to_owned();
    stream.reset();
    cursor
}

/// The ticks and the results of a resumed stream.
fn rest(stream: &mut Stream) -> (Vec<u64>, usize) {
    let blocks: Vec<Block> = stream.rest();
    let results = blocks.iter().filter(|block| block.is_message() && block.json().get("result").is_some()).count();
    (ticks(&blocks), results)
}

fn back_while_it_runs(session: &Session) -> Found {
    let cursor = cut(session, &ticker(6, 150, ""), 2);
    same("the rest is", rest(&mut session.resume(&cursor)), (vec![3, 4, 5, 6], 1))
}

fn finished_while_away(session: &Session) -> Found {
    let cursor = cut(session, &ticker(4, 30, ""), 1);
    sleep(Duration::from_millis(600));
    same("the rest is", rest(&mut session.resume(&cursor)), (vec![2, 3, 4], 1))
}

fn back_after_the_result(session: &Session) -> Found {
    let blocks = session.call(&ticker(2, 1, "")).rest();
    let last = blocks.iter().rev().find_map(|block| block.id.clone()).expect("an id");
    same("status", ask(session.address, &session.get_after(&last)).status(), 204)
}

fn posted_again(session: &Session) -> Found {
    let key = fresh_key();
    let asked = ticker(3, 100, &key);
    cut(session, &asked, 1);
    let answer = messages_of(&session.tell(&asked));
    let result = answer.iter().find(|message| message.get("result").is_some()).ok_or("no result")?;
    same("executions", executions(&result["result"]), 1)?;
    // Another call counts the ones before it.
    let after = session.result(&call(2, "ticker", json!({ "count": 0, "interval_ms": 0, "key": key })));
    same("executions before another call", executions(&after) - 1, 1)
}

fn refused(status: u16) -> Found {
    if (400..500).contains(&status) { Ok(()) } else { Err(format!("status {status}")) }
}

fn anothers_cursor(session: &Session) -> Found {
    let other = Session::begin(session.address, NOVEMBER);
    // The third of its streams: the first session has none that the cursor could name by chance.
    let mut calls =
        (1..=3).map(|id| other.call(&call_with_token(id, id, "ticker", json!({ "count": 2, "interval_ms": 1 }))).rest());
    let cursor = calls.nth(2).and_then(|blocks| blocks.first()?.id.clone()).expect("an id");
    refused(ask(session.address, &session.get_after(&cursor)).status())
}

fn no_cursor(session: &Session) -> Found {
    session.result(&call(1, "echo", json!({ "text": "x" })));
    refused(ask(session.address, &session.get_after("garbage")).status())
}
