//! What the server owes every client in each scenario, whatever the client makes of it: read off what passed.
//!
//! Never judges a client.

use rejoin_tests::check::{self, place, positions};
use rejoin_tests::proxy::Asked;
use rejoin_tests::session::ticks_in;
use rejoin_tests::sse::Block;
use serde_json::Value;

use crate::bed::{Reader, Scenario, Seen, TICKS, Way, offers_stateless, returns_for};
use crate::client::Client;

/// Asserts it all.
pub(crate) fn owed(client: Client, scenario: Scenario, way: Way) {
    let seen = &client.played()[&(scenario, way)];
    println!("{client:?} said {}", seen.said);
    for asked in &seen.record.asked {
        println!(
            "{:?} {} {:?} -> {:?}, {} blocks",
            asked.head.method(),
            asked.body.len(),
            asked.cursor(),
            asked.status(),
            asked.said.len()
        );
    }
    seen.record.asked.iter().filter(|asked| asked.cursor().is_some()).for_each(continues);
    runs_once(seen, client.reader());
    if way == Way::Stateless {
        return without_a_session(scenario, seen);
    }
    if scenario == Scenario::Calls && way == Way::Nginx {
        let asked = seen.record.asked.len();
        assert!(seen.connections < asked as f64, "nginx keeps none alive: {} connections for {asked} requests", seen.connections);
    }
    assert_eq!(seen.record.cuts.len(), scenario.cuts(client.reader()), "each cut happens");
    answers(scenario, client.reader(), seen);
}

/// Nothing to come back to, and nothing that claims to be; where the revision is not offered, a client learns so at once.
fn without_a_session(scenario: Scenario, seen: &Seen) {
    for asked in &seen.record.asked {
        assert!(asked.cursor().is_none() || asked.status() != Some(200), "a return without a session");
        assert!(asked.answer.as_ref().is_none_or(|head| head.field("Mcp-Session-Id").is_none()), "a session");
        assert!(asked.said.iter().all(|block| block.id.is_none()), "an id that nobody may come back with");
    }
    if !offers_stateless() {
        let refused = |asked: &Asked| matches!(asked.status(), Some(400..500));
        return assert!(!seen.record.asked.is_empty() && seen.record.asked.iter().all(refused), "{:?}", seen.record);
    }
    assert_eq!(seen.record.cuts.len(), scenario.cuts(Reader::Calls), "each cut happens");
    if scenario == Scenario::Calls {
        whole(&seen.record.asked, seen);
    }
}

/// The returns to the call's stream.
pub(crate) fn returns(seen: &Seen) -> Vec<&Asked> {
    let Some(cut) = seen.record.cuts.first() else { return Vec::new() };
    seen.record.asked.iter().filter(|asked| returns_for(asked, cut)).collect()
}

/// POSTs of the call with this key.
pub(crate) fn posts<'s>(seen: &'s Seen, key: &str) -> Vec<&'s Asked> {
    let named = format!("\"{key}\"");
    let of_it = |asked: &&Asked| asked.calls("tools/call") && String::from_utf8_lossy(&asked.body).contains(&named);
    seen.record.asked.iter().filter(of_it).collect()
}

/// A 200 continues the cursor, or begins with `resync`; nothing else may come of one.
fn continues(asked: &Asked) {
    let cursor = asked.cursor().expect("a cursor");
    match asked.status() {
        Some(200) => {}
        // What was cut off before its answer shows nothing.
        None | Some(204 | 404) => return assert!(asked.said.is_empty()),
        Some(status) => panic!("{status} for the cursor {cursor}"),
    }
    let Some(first) = asked.said.iter().find(|block| !block.is_comment()) else { return };
    if first.is_resync() {
        assert_eq!(check::resync(first).requested.as_deref(), Some(cursor));
    } else {
        assert!(first.is_opening(), "{:?}", first.text);
        // A standalone stream that nobody read yet opens with the id just before its first event.
        assert_eq!(first.id.as_deref(), Some(cursor), "opens with the cursor");
    }
    let positions = positions(&asked.said);
    assert!(positions.windows(2).all(|pair| pair[1] == pair[0] + 1), "{positions:?}");
    assert!(positions[0] >= place(cursor).2, "{positions:?} after {cursor}");
}

/// Each call is executed no more often than it was accepted, and once where it was accepted once.
fn runs_once(seen: &Seen, reader: Reader) {
    for (key, executions) in seen.keys.iter().zip(seen.executions) {
        let since = |asked: &&&Asked| seen.restarted.is_none_or(|at| asked.at > at);
        let posts = posts(seen, key);
        let accepted = posts.iter().filter(since).filter(|asked| asked.status() == Some(200)).count() as u64;
        assert!(executions <= accepted, "{executions} executions of a call that was accepted {accepted} times");
        assert_eq!(executions.min(1), accepted.min(1), "a call that was accepted is executed");
        if reader == Reader::Events {
            assert!(posts.len() <= 1);
        }
    }
}

fn answers(scenario: Scenario, reader: Reader, seen: &Seen) {
    let returns = returns(seen);
    let first = || *returns.first().expect("the client comes back");
    match scenario {
        Scenario::Calls => whole(&seen.record.asked, seen),
        Scenario::Cut | Scenario::CutAgain => {
            for back in &returns {
                assert!(matches!(back.verdict(), Some("replay" | "tail" | "complete")), "{:?}", back.verdict());
            }
            let mut parts: Vec<&Asked> = posts(seen, &seen.keys[0]);
            parts.extend(&returns);
            assert!(parts.iter().any(|part| result(&part.said).is_some()), "the result is sent");
        }
        Scenario::Evicted => {
            assert_eq!(first().verdict(), Some("resync"));
            assert!(first().said[0].is_resync(), "resync is the first event");
            assert!(result(&first().said).is_some(), "results outlive progress: {:?}", first().said);
        }
        Scenario::Lost => {
            assert_eq!(first().verdict(), Some("resync"));
            let message = first().said.iter().find(|block| block.is_message()).expect("an error");
            let id = serde_json::from_slice::<Value>(&posts(seen, &seen.keys[0])[0].body).expect("JSON")["id"].clone();
            check::outcome_unknown(message, id);
        }
        Scenario::Expired if reader == Reader::Calls => {
            refused(posts(seen, &seen.keys[1]).first().expect("the client calls again"), "expired");
        }
        Scenario::Expired => returns.iter().for_each(|back| refused(back, "expired")),
        Scenario::Gone => returns.iter().for_each(|back| refused(back, "deleted")),
        Scenario::Restart => returns.iter().for_each(|back| refused(back, "restarted")),
    }
    if scenario.cuts(reader) > 0 {
        first();
    }
}

/// The first call's stream, on one connection and in order: each tick, then the result.
fn whole(asked: &[Asked], seen: &Seen) {
    let calls = posts(seen, &seen.keys[0]);
    assert_eq!(calls.len(), 1);
    let mut streams = calls.into_iter().chain(asked.iter().filter(|asked| asked.cursor().is_some()));
    let all: Vec<u64> = (1..=TICKS).collect();
    assert!(streams.any(|stream| ticks_in(&stream.said) == all && result(&stream.said).is_some()), "every tick, and the result");
}

/// 404 `session_expired` for this reason, with all that a client may go by.
fn refused(asked: &Asked, reason: &str) {
    let Some(status) = asked.status() else { return };
    let body = String::from_utf8_lossy(&asked.answered);
    assert_eq!(status, 404, "{body}");
    assert_eq!(asked.verdict(), Some("session_expired"));
    let body: Value = serde_json::from_str(&body).unwrap_or_else(|error| panic!("{error} in {body}"));
    assert_eq!(check::error(&body["error"], "session_expired").as_deref(), Some(reason));
}

/// The result among these blocks.
fn result(blocks: &[Block]) -> Option<Value> {
    blocks.iter().filter(|block| block.is_message()).find_map(|block| block.json().get("result").cloned())
}
