//! `initialize`: always a new session, whatever else the request says.

use rejoin_tests::check::{accepted, expired, never_cached, refused};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{JUNE, MARCH, NOVEMBER, Session, call, executions, initialize, notification, result_of, ticks};
use rejoin_tests::wire::{Request, ask, open};
use serde_json::{Value, json};

on_every_server!(
    it_gives_a_new_unguessable_id_each_time,
    it_negotiates_the_revision,
    a_revision_of_no_session_or_unknown_gets_the_newest_with_sessions,
    a_dead_session_id_does_not_keep_it_from_a_new_one,
    a_live_session_named_in_it_is_untouched,
    the_revision_header_is_ignored_on_it,
    in_a_batch_it_is_refused,
    one_that_fails_leaves_no_session,
    no_other_answer_carries_another_session_id,
    its_own_id_counts_as_seen,
    it_may_be_answered_as_a_stream,
);

fn new_session(server: &Rejoin, request: &Request) -> (String, Value) {
    let answer = ask(server.address, request);
    let result = result_of(&answer, &json!(1));
    never_cached(&answer.head);
    (answer.head.field("Mcp-Session-Id").expect("a session").to_owned(), result)
}

fn plain(server: &Rejoin) -> Request {
    Request::post(server.address, &initialize(1, NOVEMBER))
}

fn it_gives_a_new_unguessable_id_each_time(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let mut ids: Vec<String> = (0..20).map(|_| new_session(&server, &plain(&server)).0).collect();
    assert!(ids.iter().all(|id| id.len() >= 22 && id.bytes().all(|byte| (0x21..=0x7e).contains(&byte))), "{ids:?}");
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), 20);
}

fn it_negotiates_the_revision(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    for revision in [MARCH, JUNE, NOVEMBER] {
        let (_, result) = new_session(&server, &Request::post(server.address, &initialize(1, revision)));
        assert_eq!(result["protocolVersion"], revision);
        assert!(result["serverInfo"]["name"].is_string() && result["capabilities"].is_object(), "{result}");
    }
}

fn a_revision_of_no_session_or_unknown_gets_the_newest_with_sessions(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    for revision in ["1999-01-01", "2024-11-05", "2026-07-28", "2099-12-31", ""] {
        let (_, result) = new_session(&server, &Request::post(server.address, &initialize(1, revision)));
        assert_eq!(result["protocolVersion"], NOVEMBER, "asked for {revision:?}");
    }
}

fn a_dead_session_id_does_not_keep_it_from_a_new_one(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let dead = Session::begin(server.address, NOVEMBER);
    assert_eq!(ask(server.address, &dead.delete()).status(), 204);
    for stale in [dead.id.as_str(), "garbage", ""] {
        let (id, _) = new_session(&server, &plain(&server).with("Mcp-Session-Id", stale));
        assert_ne!(id, stale);
    }
    new_session(&server, &plain(&server).with("Mcp-Session-Id", "a").with("Mcp-Session-Id", "b"));
}

fn a_live_session_named_in_it_is_untouched(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let live = Session::begin(server.address, NOVEMBER);
    let mut running = live.call(&call(1, "ticker", ticks(10, 30)));
    let first = running.event();
    let (id, _) = new_session(&server, &live.post(&initialize(1, NOVEMBER)));
    assert_ne!(id, live.id);
    let rest = running.rest();
    assert_eq!(executions(&rest[rest.len() - 1].json()["result"]), 1);
    assert_eq!(live.resume(first.cursor()).rest()[1..], rest);
    // A repost still joins: the id of that `initialize` was not counted as the live session's.
    live.listen();
}

fn the_revision_header_is_ignored_on_it(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    for revision in ["1999-01-01", "2026-07-28", "", NOVEMBER] {
        new_session(&server, &plain(&server).with("MCP-Protocol-Version", revision));
    }
}

fn in_a_batch_it_is_refused(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let confirmed = notification("notifications/initialized", json!({}));
    for batch in [json!([initialize(1, MARCH)]), json!([initialize(1, MARCH), confirmed])] {
        refused(&ask(server.address, &Request::post(server.address, &batch)), 400, "invalid_request");
    }
}

fn one_that_fails_leaves_no_session(on: Flavour) {
    // One place in all, on one shard.
    let server = Rejoin::start(Flavour { shards: 1, ..on }, &["--max-sessions", "1"]);
    for params in [json!({}), json!({"protocolVersion": 7}), json!([])] {
        let asked = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize", "params": params});
        let answer = ask(server.address, &Request::post(server.address, &asked));
        assert_eq!(answer.head.field("Mcp-Session-Id"), None, "{}", answer.head);
        assert!(answer.json()["error"].is_object());
    }
    // The one place is still free.
    Session::begin(server.address, NOVEMBER);
}

fn no_other_answer_carries_another_session_id(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    let other = Session::begin(server.address, NOVEMBER);
    let requests = [
        session.post(&call(1, "echo", json!({"text": "a"}))),
        session.post(&call(2, "ticker", ticks(1, 0))),
        session.post(&call(3, "rotate", json!({}))),
        session.post(&notification("notifications/roots/list_changed", json!({}))),
        session.post(&call(4, "echo", json!({"text": "a"}))).set("Mcp-Session-Id", "dead"),
        session.get_after("garbage"),
        session.delete(),
    ];
    for request in requests {
        let answer = ask(server.address, &request);
        let named = answer.head.field("Mcp-Session-Id");
        assert!(named.is_none_or(|named| named == session.id), "{}", answer.head);
    }
    let listening = open(server.address, &other.get());
    assert!(listening.head.field("Mcp-Session-Id").is_none_or(|named| named == other.id));
}

fn its_own_id_counts_as_seen(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, NOVEMBER);
    // `Session::begin` used this id: the client reuses ids, so nothing is guessed from here on.
    let reused = call("init", "ticker", ticks(1, 0));
    assert_eq!(executions(&session.result(&reused)), 1);
    assert_eq!(executions(&session.result(&reused)), 2);
}

fn it_may_be_answered_as_a_stream(on: Flavour) {
    let server = Rejoin::start(on, &["--response", "sse"]);
    let mut stream = open(server.address, &plain(&server));
    let id = stream.head.field("Mcp-Session-Id").expect("the head waits for the session").to_owned();
    let blocks = stream.rest();
    assert_eq!(blocks[blocks.len() - 1].json()["result"]["protocolVersion"], NOVEMBER);
    let confirm = Request::post(server.address, &notification("notifications/initialized", json!({})));
    accepted(&ask(server.address, &confirm.with("Mcp-Session-Id", &id)));
    let nowhere = Request::get(server.address).with("Mcp-Session-Id", "nowhere");
    expired(&ask(server.address, &nowhere), "unknown");
}
