//! What a client made of the server's answers, in a few words that are the same in every run.
//!
//! Only what does not depend on the time: how many events a gap has is not said, nor how often a client tries that does not stop trying.

use rejoin_tests::check::place;
use rejoin_tests::proxy::Asked;
use rejoin_tests::session::executions;
use serde_json::Value;

use crate::bed::{Scenario, Seen, TICKS, Way, offers_stateless};
use crate::client::Client;
use crate::judge::{posts, returns};

/// What a client made of a scenario.
pub(crate) fn made_of(client: Client, scenario: Scenario, way: Way) -> String {
    let seen = &client.played()[&(scenario, way)];
    if way == Way::Stateless && !offers_stateless() {
        return "not offered by this server".to_owned();
    }
    assert!(seen.said["error"].is_null(), "{client:?} does not connect: {}", seen.said);
    let calls = seen.said["calls"].as_array().expect("calls");
    let mut parts = Vec::new();
    if !seen.record.cuts.is_empty() {
        parts.push(came_back(client, seen));
    }
    parts.push(told(&calls[0]));
    if calls[0]["stopped"] == true {
        let status = seen.record.asked.iter().filter(|asked| asked.cursor().is_some()).filter_map(Asked::status).next_back();
        parts.push(format!("stops for good at {}", status.expect("an answer")));
    }
    if let Some(second) = calls.get(1) {
        parts.push(format!("next call: {}", next(second, seen)));
    }
    parts.join("; ")
}

fn came_back(client: Client, seen: &Seen) -> String {
    let by_hand = if client == Client::Curl { exits(&seen.said["calls"][0]) } else { String::new() };
    let returns = returns(seen);
    // One that has read all to its end asks once more, and is told that there is nothing.
    let how_often = match returns.iter().filter(|back| back.status() != Some(204)).count() {
        0 => "does not come back",
        1 => "comes back",
        2 if seen.record.cuts.len() == 2 => "comes back both times",
        2 => "tries twice",
        _ => "tries again and again",
    };
    let older = if forgets(seen, &returns) { ", the second time with its older cursor" } else { "" };
    let again = if posts(seen, &seen.keys[0]).len() > 1 { ", sends the call again" } else { "" };
    format!("{by_hand}{how_often}{older}{again}")
}

/// Whether it came back from a stream that it had resumed with a cursor from before what it was sent there.
fn forgets(seen: &Seen, returns: &[&Asked]) -> bool {
    let after_its_cut = |pair: &&[&Asked]| {
        let sent = pair[0].said.iter().rev().find_map(|block| block.id.as_deref());
        sent.zip(pair[1].cursor()).is_some_and(|(sent, cursor)| place(cursor).2 < place(sent).2)
    };
    seen.record.cuts.len() > 1 && returns.windows(2).any(|pair| after_its_cut(&pair))
}

/// How the command ended at each cut.
fn exits(call: &Value) -> String {
    let codes = call["exits"].as_array().expect("exit codes").iter().filter_map(Value::as_i64).filter(|&code| code != 0);
    codes.map(|code| format!("exit code {code}, ")).collect()
}

/// What the program was told of the call that things happened to.
fn told(call: &Value) -> String {
    let ticks: Vec<f64> = call["ticks"].as_array().expect("ticks").iter().filter_map(Value::as_f64).collect();
    let rising = ticks.windows(2).all(|pair| pair[0] < pair[1]);
    let followed = ticks.iter().zip(1_u32..).all(|(&tick, number)| tick == f64::from(number));
    let whole = followed && ticks.len() as u64 == TICKS;
    let events = match (whole, rising, followed) {
        (true, ..) => "every event once",
        (_, false, _) => "**some events twice**",
        (_, _, true) => "the events before the cut",
        _ if call["gap"] == true => "is told of the gap",
        _ => "a gap in the events that it does not notice",
    };
    format!("{events}, {}", outcome(call))
}

fn outcome(call: &Value) -> String {
    if call["result"].is_object() {
        return "the result".to_owned();
    }
    if call["timed_out"] == true {
        return "no answer until its own time-out".to_owned();
    }
    match (call["code"].as_i64(), call["status"].as_u64()) {
        (Some(code), _) => format!("error {code}"),
        (None, Some(status)) => format!("an error with status {status}"),
        _ => "an error".to_owned(),
    }
}

/// What became of the call after that.
fn next(call: &Value, seen: &Seen) -> String {
    if !call["result"].is_object() {
        return outcome(call);
    }
    assert_eq!(executions(&call["result"]), 1, "{call}");
    let sessions = seen.record.asked.iter().filter(|asked| asked.calls("initialize")).count();
    match sessions {
        0 => "answered".to_owned(),
        1 => "the same session".to_owned(),
        _ => "a new session, begun by itself".to_owned(),
    }
}
