//! `rejoin check` on the small server that was written from the boundary page without reading it: no alarm where it is right, and each of
//! its faults named by the cases that are about it, and by no other.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::thread;

use rejoin_tests::boundary_server::{BoundaryServer, Fault, Settings};
use rejoin_tests::server::binary;
use serde_json::Value;

/// Runs beside each other: each waits most of its time.
const AT_ONCE: usize = 8;

/// Cases about a client that comes back. What goes wrong only where much was said meanwhile is seen by one of them earlier on a busy machine,
/// and the cases that rest on that one are not run.
const RETURNS: &[&str] = &["cut-while-running", "replay-to-live", "takeover"];

/// A fault, the exit of the check, the cases that must name it, and those that name it now and then, beside them or first, as time will
/// have it.
type Row = (&'static str, i32, &'static [&'static str], &'static [&'static str]);

#[rustfmt::skip]
const NAMED: &[Row] = &[
    ("silent-gap", 1, &["result-while-away", "standalone-kept"], RETURNS),
    ("replays-from-start", 1, &["cut-while-running", "standalone-kept"], &[]),
    ("repeats-cursor-event", 1, &["cut-while-running", "standalone-kept"], &[]),
    ("reorders", 1, &["result-while-away", "standalone-kept"], RETURNS),
    ("restarts-ids", 1, &["replay-again"], &["replay-to-live", "opening-event"]),
    ("mixes-streams", 1, &["cut-while-running"], &[]),
    ("hangs-after-replay", 1, &["cut-while-running"], &[]),
    ("handover-gap", 1, &["replay-to-live"], &["evicted"]),
    ("handover-duplicates", 1, &["replay-to-live"], &["evicted"]),
    ("second-result", 1, &["result-while-away"], RETURNS),
    ("leaks-foreign-stream", 1, &["cursor-of-another-session"], &[]),
    ("garbage-cursor-new-stream", 1, &["cursor-garbage"], &[]),
    ("accepts-future-cursor", 1, &["cursor-of-the-future"], &[]),
    ("accepts-empty-cursor", 1, &["cursor-empty"], &[]),
    ("accepts-doubled-cursor", 1, &["cursor-doubled"], &[]),
    ("evicts-silently", 1, &["evicted"], &[]),
    ("resync-not-first", 1, &["evicted"], &[]),
    ("resync-does-not-move", 1, &["evicted"], &[]),
    ("overruns-silently", 1, &["slow-reader"], &[]),
    ("forgets-unheard", 1, &["standalone-kept"], &[]),
    ("dead-session-new-stream", 1, &["session-deleted", "session-unknown"], &[]),
    ("dead-session-400", 0, &["session-deleted", "session-unknown"], &[]),
    ("deleted-session-lives", 1, &["session-deleted"], &[]),
    ("session-not-required", 1, &["session-missing"], &[]),
    ("loses-unheard-result", 1, &["result-while-away"], RETURNS),
    ("disconnect-cancels", 1, &["result-while-away"], RETURNS),
    ("repost-executes-again", 1, &["cancelled", "repost-finished", "repost-running"], &[]),
    ("resume-executes-again", 1, &["cut-while-running"], &[]),
    ("routes-by-id", 1, &["one-id-in-flight-twice"], &[]),
    ("ignores-idempotency-key", 0, &["idempotency-key"], &[]),
    ("finished-stream-hangs", 0, &["cursor-at-the-end"], &[]),
    ("finished-stream-empty", 0, &["cursor-at-the-end"], &[]),
    ("stays-open-after-result", 0, &["cancelled", "clean-end"], &[]),
    ("refuses-takeover", 1, &["cut-while-running", "takeover-standalone"], &[]),
    ("old-connection-keeps-events", 1, &["cut-while-running"], &[]),
    ("stalls-neighbours", 1, &["stalled-neighbour"], &[]),
    ("no-ids", 0, &["event-ids"], &[]),
    ("no-opening-event", 0, &["opening-event"], &[]),
    ("accepts-foreign-origin", 0, &["origin"], &[]),
    ("accepts-foreign-host", 0, &["host"], &[]),
    ("ignores-principal", 1, &["session-of-another"], &[]),
    ("no-preflight", 0, &["cors-preflight"], &[]),
    ("cacheable", 0, &["no-store"], &[]),
];

/// Faults that a check without `--restart-command` and without a tool that rotates a session does not come upon.
const UNSEEN: [&str; 3] = ["adopts-after-restart", "ends-with-resync", "ignores-incarnation"];

/// What a check said of the server: its exit, and the cases that found fault.
fn checked(fault: Option<Fault>) -> (i32, BTreeSet<String>, Value) {
    let settings = Settings { events_held: 256, tokens: vec!["one".into(), "two".into()], ..Settings::default() };
    let server = BoundaryServer::start_with(fault, settings);
    let url = format!("http://{}/mcp", server.address);
    let tool = ["--tool", "count", "--args", r#"{"events": "$events", "every_ms": "$every_ms"}"#, "--effects-tool", "effects"];
    let options = ["check", "--format", "json", "--token", "one", "--other-token", "two"];
    let output =
        Command::new(binary()).args(options).args(tool).arg(url).stdin(Stdio::null()).output().expect("the command runs");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    let results: Value = serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{fault:?}: {error}: {said}"));
    let cases = results["cases"].as_array().expect("cases").iter();
    let found = cases.filter(|case| !["pass", "untested"].contains(&case["verdict"].as_str().expect("a verdict")));
    let names = found.map(|case| case["name"].as_str().expect("a name").to_owned()).collect();
    (output.status.code().unwrap_or(-1), names, results)
}

#[test]
fn a_correct_server_raises_no_alarm() {
    let (code, found, results) = checked(None);
    assert!(code == 0 && found.is_empty(), "{code} {found:?} {results:#}");
    let passed = results["cases"].as_array().expect("cases").iter().filter(|case| case["verdict"] == "pass").count();
    assert!(passed >= 55, "{passed} cases passed");
}

/// What is wrong with how a fault was named, if anything.
fn misnamed(&(name, exit, must, may): &Row) -> Option<String> {
    let (code, found, _) = checked(Some(name.parse().expect("a fault")));
    let named = must.iter().all(|case| found.contains(*case)) || may.iter().any(|case| found.contains(*case));
    let all_right = found.iter().all(|case| must.contains(&case.as_str()) || may.contains(&case.as_str()));
    (code != exit || !named || !all_right).then(|| format!("{name}: exit {code}, not {exit}; found by {found:?}, not {must:?}"))
}

#[test]
fn each_fault_is_named_by_the_cases_about_it_and_by_no_other() {
    let rows = Mutex::new(NAMED.iter());
    let next = || rows.lock().expect("no panic").next();
    let work = || std::iter::from_fn(next).filter_map(misnamed).collect::<Vec<_>>();
    let misnamed: Vec<_> = thread::scope(|scope| {
        let workers: Vec<_> = (0..AT_ONCE).map(|_| scope.spawn(work)).collect();
        workers.into_iter().flat_map(|worker| worker.join().expect("a worker")).collect()
    });
    assert!(misnamed.is_empty(), "{misnamed:#?}");
}

#[test]
fn no_fault_is_left_out() {
    let mut listed: Vec<_> = NAMED.iter().map(|row| row.0).chain(UNSEEN).collect();
    let mut all: Vec<_> = Fault::ALL.iter().map(|fault| fault.name()).collect();
    listed.sort_unstable();
    all.sort_unstable();
    assert_eq!(listed, all);
}
