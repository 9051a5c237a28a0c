//! The unmodified TypeScript and Python SDK clients, cut off at every event of a call in turn: each event once, one result, one execution.
//!
//! `scripts/test` installs both; without them these tests fail and say so.

use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::proxy::{Asked, Cut, How, Proxy, Record};
use rejoin_tests::sdk::{Sdk, cuts_and_returns};
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
    let seen = sdk.drive(&sessions);
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
    let seen = sdk.drive(&sessions);
    for (how, proxy) in &proxies {
        let label = format!("{}, {how:?} at every event", sdk.name);
        each_once(&label, seen.get(&proxy.url()).unwrap_or_else(|| panic!("{label}: nothing was said")));
        cuts_and_returns(&label, &proxy.record(), TICKS as usize);
    }
}

fn typescript_gets_every_event_once_wherever_it_is_cut(on: Flavour) {
    cut_once_everywhere(on, &Sdk::typescript("ticker"));
}

fn python_gets_every_event_once_wherever_it_is_cut(on: Flavour) {
    cut_once_everywhere(on, &Sdk::python("ticker"));
}

fn typescript_survives_a_cut_at_every_event_of_one_call(on: Flavour) {
    cut_at_every_event(on, &Sdk::typescript("ticker"), &[How::Reset, How::Truncate, How::CleanEnd]);
}

/// After a reset of a resumed stream, this client comes back with the cursor that the resumption began with, not with the last id it was
/// sent; so it is shown events again whatever a server does. A clean end it handles.
fn python_survives_a_clean_end_at_every_event_of_one_call(on: Flavour) {
    cut_at_every_event(on, &Sdk::python("ticker"), &[How::CleanEnd]);
}
