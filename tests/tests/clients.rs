//! The unmodified TypeScript and Python SDK clients, cut off at every event of a call in turn: each event once, one result, one execution.
//!
//! `scripts/test` installs both; without them these tests fail and say so.

use std::collections::BTreeMap;
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::proxy::{Asked, Cut, How, Proxy, Record};
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{executions, fresh_key};
use serde_json::{Value, json};

on_every_server!(
    typescript_gets_every_event_once_wherever_it_is_cut,
    python_gets_every_event_once_wherever_it_is_cut,
    typescript_survives_a_cut_at_every_event_of_one_call,
    python_survives_a_clean_end_at_every_event_of_one_call,
);

/// Ticks of the call under test.
const TICKS: u64 = 50;

/// How long a client may take for all its sessions, on a slow and busy machine.
const PATIENCE: Duration = Duration::from_secs(150);

/// A client's name and the command that drives it.
struct Sdk {
    name: &'static str,
    program: PathBuf,
    script: PathBuf,
}

fn here() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn installed(path: PathBuf) -> PathBuf {
    assert!(path.exists(), "{} is missing: scripts/test installs the third-party clients", path.display());
    path
}

fn typescript() -> Sdk {
    installed(here().join("clients/typescript/node_modules/@modelcontextprotocol/sdk"));
    Sdk { name: "typescript", program: "node".into(), script: here().join("clients/typescript/ticker.mjs") }
}

fn python() -> Sdk {
    let program = installed(here().join("../target/clients/python/bin/python"));
    Sdk { name: "python", program, script: here().join("clients/python/ticker.py") }
}

/// Runs a client for all these sessions at once; gives what it saw, by URL.
fn drive(sdk: &Sdk, sessions: &[Value]) -> BTreeMap<String, Value> {
    let mut child = Command::new(&sdk.program)
        .arg(&sdk.script)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap_or_else(|error| panic!("{}: {error}", sdk.program.display()));
    let mut stdin = child.stdin.take().expect("piped");
    for session in sessions {
        writeln!(stdin, "{session}").expect("the client reads its sessions");
    }
    drop(stdin);
    let mut stdout = child.stdout.take().expect("piped");
    let (says, said) = mpsc::channel();
    thread::spawn(move || {
        let mut text = String::new();
        let read = stdout.read_to_string(&mut text);
        // The test may have given up already.
        let _ = says.send(read.map(|_| text));
    });
    let text = said.recv_timeout(PATIENCE);
    // It has ended, or it never will.
    let _ = child.kill();
    let _ = child.wait();
    let text = text.unwrap_or_else(|_| panic!("{} did not end in time", sdk.name)).expect("text");
    let seen = text.lines().map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error} in {line}")));
    seen.map(|seen: Value| (seen["url"].as_str().expect("a URL").to_owned(), seen)).collect()
}

fn session(proxy: &Proxy, progress: bool) -> Value {
    json!({"url": proxy.url(), "count": TICKS, "interval_ms": 10, "key": fresh_key(), "progress": progress})
}

/// Asserts what a client's user cares about: each tick once and in order, one result, one execution.
fn each_once(label: &str, seen: &Value) {
    assert!(seen["error"].is_null(), "{label}: {seen}");
    let ticks: Vec<f64> = seen["ticks"].as_array().expect("ticks").iter().filter_map(Value::as_f64).collect();
    assert_eq!(ticks, (1..=TICKS).map(|tick| tick as f64).collect::<Vec<_>>(), "{label}");
    assert_eq!(executions(&seen["result"]), 1, "{label}: {seen}");
}

/// Asserts that each cut happened, that the client came back for each with the id that it had been sent last and no sooner than it was
/// told, and that it POSTed its call once.
fn cuts_and_returns(label: &str, record: &Record, cuts: usize) {
    assert_eq!(record.cuts.len(), cuts, "{label}: every cut must happen");
    let calls = record.asked.iter().filter(|asked| asked.calls("tools/call")).count();
    assert_eq!(calls, 1, "{label}: the call was POSTed {calls} times");
    let returns: Vec<&Asked> = record.asked.iter().filter(|asked| asked.cursor().is_some()).collect();
    assert_eq!(
        returns.len(),
        cuts,
        "{label}: one return a cut: {:?}",
        returns.iter().map(|back| back.cursor()).collect::<Vec<_>>()
    );
    for (cut, back) in record.cuts.iter().zip(returns) {
        assert_eq!(back.head.method(), "GET", "{label}");
        assert_eq!(back.cursor(), cut.cursor.as_deref(), "{label}: Last-Event-ID must be the last id sent");
        let away = back.at.saturating_duration_since(cut.at);
        assert!(away >= Duration::from_millis(150), "{label}: `retry` was not honoured, back after {away:?}");
    }
}

/// One session for each place of the call, each cut once there, all at once.
fn cut_once_everywhere(on: Flavour, sdk: &Sdk) {
    let server = Rejoin::start(on, &["--retry", "200ms"]);
    let proxies: Vec<(usize, How, Proxy)> = (0..=TICKS as usize)
        .map(|after_messages| {
            let how = [How::Reset, How::Truncate, How::CleanEnd][after_messages % 3];
            let plan = move |asked: &Asked, _: &Record| asked.calls("tools/call").then_some(Cut { after_messages, how });
            (after_messages, how, Proxy::start(server.address, plan))
        })
        .collect();
    let sessions: Vec<Value> = proxies.iter().map(|(at, _, proxy)| session(proxy, at % 2 == 0)).collect();
    let seen = drive(sdk, &sessions);
    for (at, how, proxy) in &proxies {
        let label = format!("{}, {how:?} after {at} messages", sdk.name);
        each_once(&label, seen.get(&proxy.url()).unwrap_or_else(|| panic!("{label}: nothing was said")));
        cuts_and_returns(&label, &proxy.record(), 1);
    }
}

/// One session whose every stream is cut after one message, until the call is through.
fn cut_at_every_event(on: Flavour, sdk: &Sdk, hows: &[How]) {
    let server = Rejoin::start(on, &["--retry", "200ms"]);
    let proxies: Vec<(How, Proxy)> = hows
        .iter()
        .map(|&how| {
            let plan = move |asked: &Asked, record: &Record| {
                let ours = asked.calls("tools/call") || asked.cursor().is_some();
                (ours && record.cuts.len() < TICKS as usize).then_some(Cut { after_messages: 1, how })
            };
            (how, Proxy::start(server.address, plan))
        })
        .collect();
    let sessions: Vec<Value> = proxies.iter().map(|(_, proxy)| session(proxy, true)).collect();
    let seen = drive(sdk, &sessions);
    for (how, proxy) in &proxies {
        let label = format!("{}, {how:?} at every event", sdk.name);
        each_once(&label, seen.get(&proxy.url()).unwrap_or_else(|| panic!("{label}: nothing was said")));
        cuts_and_returns(&label, &proxy.record(), TICKS as usize);
    }
}

fn typescript_gets_every_event_once_wherever_it_is_cut(on: Flavour) {
    cut_once_everywhere(on, &typescript());
}

fn python_gets_every_event_once_wherever_it_is_cut(on: Flavour) {
    cut_once_everywhere(on, &python());
}

fn typescript_survives_a_cut_at_every_event_of_one_call(on: Flavour) {
    cut_at_every_event(on, &typescript(), &[How::Reset, How::Truncate, How::CleanEnd]);
}

/// After a reset of a resumed stream, this client comes back with the cursor that the resumption began with, not with the last id it was
/// sent; so it is shown events again whatever a server does. A clean end it handles.
fn python_survives_a_clean_end_at_every_event_of_one_call(on: Flavour) {
    cut_at_every_event(on, &python(), &[How::CleanEnd]);
}
