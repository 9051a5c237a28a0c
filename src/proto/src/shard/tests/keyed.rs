//! Calls under an idempotency key: on one shard and over two, with sessions and without.

use super::exchanges::Modern;
use super::*;
use crate::refusal::{RefusalKind, Room};
use crate::shard::counters::Avoided;
use crate::shard::io::Cancelled;

const HEAD: &str = "Idempotency-Key: k1\r\n";

fn keyed(session: SessionId, key: &str, body: &str) -> String {
    post(&format!("{}{key}", id(session)), body)
}

fn numbered(id: u64) -> String {
    CALL.replace("\"id\":7", &format!("\"id\":{id}"))
}

impl Bench {
    /// What was delivered: one call of this session's own.
    fn executed(&mut self) -> Option<(SessionId, CallId)> {
        let (session, delivery) = self.deliveries.pop()?;
        match delivery {
            Delivery::Request { call, .. } | Delivery::Exchange { call, .. } => Some((session, call)),
            other => panic!("{other:?}"),
        }
    }

    fn authorized(&mut self, token: &str) -> SessionId {
        let field = format!("Authorization: {token}\r\n");
        let (_, _) = self.ask(&post(&field, r#"{"jsonrpc":"2.0","id":"init","method":"initialize","params":{}}"#));
        let Some((session, Delivery::Initialize { call, .. })) = self.deliveries.pop() else { panic!("no initialize") };
        self.result(session, call, r#"{"protocolVersion":"2025-11-25","capabilities":{}}"#).expect("taken");
        session
    }
}

#[test]
fn one_runs_and_every_other_has_its_answer_under_its_own_id() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let (first, _) = bench.ask(&keyed(session, HEAD, &numbered(1)));
    let (_, call) = bench.executed().expect("the first runs");
    let (second, answer) = bench.ask(&keyed(session, HEAD, &numbered(2)));
    assert!(bench.executed().is_none() && answer.is_empty(), "{answer}");
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    bench.result(session, call, r#"{"a":1}"#).expect("taken");
    assert!(bench.got(first).contains("n1") && bench.got(first).contains(r#""id":1,"result":{"a":1}"#), "{}", bench.got(first));
    assert!(bench.got(second).ends_with(r#"{"jsonrpc":"2.0","id":2,"result":{"a":1}}"#), "only the result crosses");
    let (_, answer) = bench.ask(&keyed(session, HEAD, &numbered(3)));
    assert!(answer.ends_with(r#""id":3,"result":{"a":1}}"#), "{answer}");
    assert!(bench.executed().is_none());
    assert_eq!(bench.shard.counters().executions_avoided[Avoided::Recorded], 2);
    // Its id counts as seen: the same id for something else is a reuse.
    bench.ask(&post(&id(session), &numbered(3).replace("\"t\"", "\"u\"")));
    assert_eq!(bench.shard.counters().sessions_marked, 1);
}

#[test]
fn the_key_decides_whatever_the_id_and_the_meta_say() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    let body = |id: u64, meta: &str| {
        format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"t","_meta":{{{meta}}}}}}}"#)
    };
    bench.ask(&post(&id(session), &body(1, r#""rejoin/idempotency-key":"k1","progressToken":1"#)));
    let (_, call) = bench.executed().expect("the first runs");
    bench.result(session, call, r#"{"a":1}"#).expect("taken");
    for (field, meta) in [(HEAD, ""), (HEAD, r#""rejoin/idempotency-key":"k1""#), ("", r#""rejoin/idempotency-key":"k1","x":2"#)]
    {
        let (_, answer) = bench.ask(&keyed(session, field, &body(1, meta)));
        assert!(answer.ends_with(r#""id":1,"result":{"a":1}}"#), "{answer}");
    }
    assert!(bench.executed().is_none());
    // A key of its own runs the same again.
    bench.ask(&keyed(session, "Idempotency-Key: k2\r\n", &body(1, "")));
    assert!(bench.executed().is_some());
}

#[test]
fn another_body_under_a_key_is_422_and_never_runs() {
    for policy in [ResponsePolicy::Auto, ResponsePolicy::Sse, ResponsePolicy::Json] {
        let mut bench = Bench::new(|config| config.response = policy);
        let session = bench.session("2025-11-25");
        bench.ask(&keyed(session, HEAD, &numbered(1)));
        let (_, call) = bench.executed().expect("the first runs");
        let other = numbered(2).replace("\"name\":\"t\"", "\"name\":\"u\"");
        for (id, done) in [(2, false), (3, true)] {
            let (_, answer) = bench.ask(&keyed(session, HEAD, &other.replace("\"id\":2", &format!("\"id\":{id}"))));
            assert!(answer.starts_with("HTTP/1.1 422 ") && answer.contains("idempotency_key_reused"), "{policy:?}: {answer}");
            assert!(answer.contains(&format!("\"id\":{id}")), "{answer}");
            if !done {
                bench.result(session, call, "{}").expect("taken");
            }
        }
        assert!(bench.executed().is_none());
        assert_eq!(bench.shard.counters().refusals[RefusalKind::KeyReused], 2);
    }
}

#[test]
fn a_stream_policy_streams_what_a_record_says() {
    let mut bench = Bench::new(|config| config.response = ResponsePolicy::Sse);
    let session = bench.session("2025-11-25");
    let (first, answer) = bench.ask(&keyed(session, HEAD, &numbered(1)));
    assert!(answer.contains("text/event-stream"), "it runs: the stream opens at once: {answer}");
    let (_, call) = bench.executed().expect("the first runs");
    bench.result(session, call, r#"{"a":1}"#).expect("taken");
    assert!(bench.got(first).ends_with("0\r\n\r\n"));
    let (_, answer) = bench.ask(&keyed(session, HEAD, &numbered(2)));
    assert!(answer.contains("text/event-stream") && answer.contains(r#""id":2,"result":{"a":1}"#), "{answer}");
    assert!(answer.ends_with("0\r\n\r\n"), "{answer}");
}

#[test]
fn a_key_that_cannot_be_one_is_refused() {
    let mut bench = Bench::new(|config| config.limits.key_length = 4);
    let session = bench.session("2025-11-25");
    for field in ["Idempotency-Key:\r\n", "Idempotency-Key: 12345\r\n", "Idempotency-Key: a\r\nIdempotency-Key: a\r\n"] {
        let (_, answer) = bench.ask(&keyed(session, field, &numbered(1)));
        assert!(answer.starts_with("HTTP/1.1 400 "), "{field}: {answer}");
    }
    let differs = numbered(1).replace("\"progressToken\"", "\"rejoin/idempotency-key\":\"b\",\"progressToken\"");
    let (_, answer) = bench.ask(&keyed(session, "Idempotency-Key: a\r\n", &differs));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    bench.ask(&keyed(session, "Idempotency-Key: 1234\r\n", &numbered(1)));
    assert!(bench.executed().is_some(), "as long as may be");
    let march = bench.session("2025-03-26");
    let (_, answer) = bench.ask(&keyed(march, "Idempotency-Key: a\r\n", &format!("[{}]", numbered(1))));
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[test]
fn in_a_batch_each_call_has_its_own_key() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-03-26");
    let one = |id: u64| numbered(id).replace("\"progressToken\":\"mine\"", "\"rejoin/idempotency-key\":\"k1\"");
    let (conn, _) = bench.ask(&post(&id(session), &format!("[{},{}]", one(1), one(2))));
    let (_, call) = bench.executed().expect("the first runs");
    assert!(bench.executed().is_none());
    bench.result(session, call, r#"{"a":1}"#).expect("taken");
    let answer = bench.got(conn);
    assert!(answer.contains(r#""id":1,"result":{"a":1}"#) && answer.contains(r#""id":2,"result":{"a":1}"#), "{answer}");
}

#[test]
fn a_principals_key_reaches_across_sessions_and_eras_and_no_other_principal_has_it() {
    let mut bench = Bench::new(|_| {});
    let (one, two) = (bench.authorized("alice"), bench.authorized("alice"));
    let alice = "Idempotency-Key: k1\r\nAuthorization: alice\r\n";
    bench.ask(&keyed(one, alice, &numbered(1)));
    let (_, call) = bench.executed().expect("the first runs");
    let (waiting, _) = bench.ask(&keyed(two, alice, &numbered(1)));
    let (modern, _) = bench.ask(&Modern { more: alice, ..Modern::call() }.text());
    assert!(bench.executed().is_none());
    bench.result(one, call, r#"{"a":1}"#).expect("taken");
    assert!(bench.got(waiting).ends_with(r#""id":1,"result":{"a":1}}"#), "{}", bench.got(waiting));
    assert!(bench.got(modern).ends_with(r#""id":"c1","result":{"a":1,"resultType":"complete"}}"#), "{}", bench.got(modern));
    let bob = bench.authorized("bob");
    bench.ask(&keyed(bob, "Idempotency-Key: k1\r\nAuthorization: bob\r\n", &numbered(1)));
    assert!(bench.executed().is_some());
}

#[test]
fn an_anonymous_callers_key_is_its_sessions_and_without_a_session_everybodys() {
    let mut bench = Bench::new(|_| {});
    // The principal without a name is nobody in particular.
    let (one, two) = (bench.authorized(""), bench.authorized(""));
    let nobody = "Idempotency-Key: k1\r\nAuthorization:\r\n";
    for session in [one, two] {
        bench.ask(&keyed(session, nobody, &numbered(1)));
        assert_eq!(bench.executed().map(|(of, _)| of), Some(session), "each session's own");
    }
    let alone = Modern { more: nobody, ..Modern::call() }.text();
    bench.ask(&alone);
    bench.executed().expect("not a session's");
    bench.ask(&alone);
    assert!(bench.executed().is_none());
}

#[test]
fn a_call_without_a_session_goes_on_under_its_key_when_its_stream_is_lost() {
    let mut bench = Bench::new(|_| {});
    let request = Modern { more: HEAD, ..Modern::call() }.text();
    let (conn, _) = bench.ask(&request);
    let (session, call) = bench.executed().expect("it runs");
    bench.notify(session, Target::Call(call), "n1").expect("taken");
    bench.input(Input::Closed { conn });
    assert!(bench.deliveries.is_empty(), "not cancelled");
    let (again, _) = bench.ask(&request);
    assert!(bench.executed().is_none());
    bench.notify(session, Target::Call(call), "n2").expect("nobody hears it");
    bench.result(session, call, r#"{"a":1}"#).expect("taken");
    assert!(bench.got(again).contains(r#""a":1"#) && !bench.got(again).contains("n2"), "{}", bench.got(again));
    let (_, answer) = bench.ask(&request);
    assert!(answer.contains(r#""a":1"#), "{answer}");
    bench.nothing_is_left();
}

#[test]
fn who_waits_and_leaves_cancels_nothing_and_its_handler_never_heard_of_it() {
    let mut bench = Bench::new(|_| {});
    let request = Modern { more: HEAD, ..Modern::call() }.text();
    bench.ask(&request);
    let (session, call) = bench.executed().expect("it runs");
    let (waiting, _) = bench.ask(&request);
    bench.input(Input::Closed { conn: waiting });
    assert!(bench.deliveries.is_empty());
    bench.result(session, call, "{}").expect("taken");
    bench.nothing_is_left();
    assert!(bench.shard.held_back.is_empty());
}

#[test]
fn a_call_that_is_lost_is_unknown_to_all_who_asked_for_it() {
    let mut bench = Bench::new(|_| {});
    let (one, two) = (bench.authorized("alice"), bench.authorized("alice"));
    let alice = "Idempotency-Key: k1\r\nAuthorization: alice\r\n";
    bench.ask(&keyed(one, alice, &numbered(1)));
    bench.executed().expect("the first runs");
    let (waiting, _) = bench.ask(&keyed(two, alice, &numbered(1)));
    bench.ask(&format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\nAuthorization: alice\r\n{}\r\n", id(one)));
    assert!(bench.got(waiting).contains("-32010"), "{}", bench.got(waiting));
    bench.deliveries.clear();
    let (_, answer) = bench.ask(&keyed(two, alice, &numbered(2)));
    assert!(answer.contains("-32010") && bench.executed().is_none(), "it may have run: {answer}");
}

#[test]
fn a_session_that_ends_with_two_calls_under_one_key_cancels_the_one_that_its_handler_knows() {
    let mut bench = Bench::new(|_| {});
    let session = bench.session("2025-11-25");
    for id in [1, 2] {
        bench.ask(&keyed(session, HEAD, &numbered(id)));
    }
    let (_, call) = bench.executed().expect("the first runs");
    bench.ask(&format!("DELETE /mcp HTTP/1.1\r\nHost: localhost\r\n{}\r\n", id(session)));
    let cancelled = bench.deliveries.iter().filter_map(|(_, delivery)| match delivery {
        Delivery::Cancelled { call, .. } => Some(*call),
        _ => None,
    });
    assert_eq!(cancelled.collect::<Vec<_>>(), [call]);
}

#[test]
fn a_call_for_which_its_handler_has_no_room_never_ran() {
    let mut bench = Bench::new(|_| {});
    let request = Modern { more: HEAD, ..Modern::call() }.text();
    let (refused, _) = bench.ask(&request);
    let (session, call) = bench.executed().expect("it runs");
    let (next, _) = bench.ask(&request);
    bench.emit(session, Emission::Shed { call, why: "no room" }).expect("taken");
    assert!(bench.got(refused).starts_with("HTTP/1.1 503 "));
    let (session, call) = bench.executed().expect("the one that waited runs");
    bench.result(session, call, r#"{"a":1}"#).expect("taken");
    assert!(bench.got(next).contains(r#""a":1"#));
}

#[test]
fn records_have_a_bound_that_is_told() {
    let mut bench = Bench::new(|config| config.limits.key_records = 1);
    let session = bench.session("2025-11-25");
    bench.ask(&keyed(session, HEAD, &numbered(1)));
    bench.executed().expect("the first runs");
    let (_, answer) = bench.ask(&keyed(session, "Idempotency-Key: k2\r\n", &numbered(2)));
    assert!(answer.starts_with("HTTP/1.1 503 ") && answer.contains("Retry-After: 1"), "{answer}");
    assert_eq!(bench.shard.counters().sheds[Room::Key], 1);
}

/// Two shards of one server, and what is on its way between them.
struct Two([Bench; 2]);

impl Two {
    fn new() -> Self {
        Self([0, 1].map(|index| {
            Bench::new(|config| {
                config.shard = ShardIndex(index);
                config.shards = 2;
            })
        }))
    }

    /// A key whose home is this shard, for anonymous callers without a session.
    fn key_of(&mut self, home: u8) -> String {
        let keys = (0..).map(|number| format!("Idempotency-Key: key-{number}\r\n"));
        let lives_there = |field: &String| {
            let key = field.trim().rsplit(' ').next().expect("a key");
            let hash = KEY.parts_hash(&[b"principal", b"anonymous", key.as_bytes()]);
            hash % 2 == u128::from(home)
        };
        keys.into_iter().find(lives_there).expect("every other")
    }

    /// Carries mail until there is none.
    fn carry(&mut self) -> usize {
        let mut carried = 0;
        while let Some((to, mail)) =
            self.0.iter_mut().find_map(|bench| (!bench.posted.is_empty()).then(|| bench.posted.remove(0)))
        {
            self.0[usize::from(to.0)].input(Input::Mail(mail));
            carried += 1;
        }
        carried
    }
}

#[test]
fn a_record_lives_where_its_key_says_and_only_the_result_crosses() {
    for home in [0, 1] {
        let mut two = Two::new();
        let field = two.key_of(home);
        let request = Modern { more: &field, ..Modern::call() }.text();
        let (there, _) = two.0[1].ask(&request);
        assert_eq!(two.0[1].executed().is_some(), home == 1, "nothing runs before its home has said so");
        if home == 1 {
            two.0[1].deliveries.clear();
        }
        two.carry();
        assert_eq!((two.0[0].shard.keys.len(), two.0[1].shard.keys.len()), if home == 0 { (1, 0) } else { (0, 1) });
        let (here, _) = two.0[0].ask(&request);
        two.carry();
        assert!(two.0[0].executed().is_none());
        let (session, call) = match two.0[1].executed() {
            Some(executed) => executed,
            None => {
                let session = two.0[1].shard.sessions.iter().flatten().next().expect("it runs");
                (session.id, session.calls[0].call)
            }
        };
        two.0[1].notify(session, Target::Call(call), "n1").expect("taken");
        two.0[1].result(session, call, r#"{"a":1}"#).expect("taken");
        two.carry();
        assert!(two.0[1].got(there).contains(r#""a":1"#) && two.0[0].got(here).contains(r#""a":1"#));
        assert!(!two.0[0].got(here).contains("n1"), "{}", two.0[0].got(here));
        two.0.iter().for_each(Bench::nothing_is_left);
    }
}

#[test]
fn whoever_leaves_before_its_home_has_answered_lets_the_next_run() {
    let mut two = Two::new();
    let field = two.key_of(0);
    let request = Modern { more: &field, ..Modern::call() }.text();
    let (gone, _) = two.0[1].ask(&request);
    two.0[1].input(Input::Closed { conn: gone });
    let (next, _) = two.0[1].ask(&request);
    two.carry();
    let (session, call) = two.0[1].executed().expect("the second runs");
    assert!(two.0[1].executed().is_none() && two.0[1].deliveries.is_empty());
    two.0[1].result(session, call, r#"{"a":1}"#).expect("taken");
    two.carry();
    assert!(two.0[1].got(next).contains(r#""a":1"#));
    two.0.iter().for_each(Bench::nothing_is_left);
}

#[test]
fn a_status_waits_for_its_home_however_late_it_answers() {
    let mut two = Two::new();
    let field = two.key_of(0);
    two.0[1].ask(&Modern { more: &field, ..Modern::call() }.text());
    two.carry();
    let other = Modern { more: &field, params: r#""name":"t","arguments":{},"#, ..Modern::call() }.text();
    let (conn, _) = two.0[1].ask(&other);
    two.0[1].wait(5_000);
    assert_eq!(two.0[1].got(conn), "", "no head before the verdict");
    two.carry();
    assert!(two.0[1].got(conn).starts_with("HTTP/1.1 422 "), "{}", two.0[1].got(conn));
}

#[test]
fn a_keyed_call_that_is_too_old_is_cancelled_and_unknown_everywhere() {
    let mut two = Two::new();
    for bench in &mut two.0 {
        bench.shard.config.limits.call_max_age = std::time::Duration::from_secs(5);
    }
    let field = two.key_of(0);
    let request = Modern { more: &field, ..Modern::call() }.text();
    let (conn, _) = two.0[1].ask(&request);
    two.carry();
    two.0[1].executed().expect("it runs");
    two.0[1].input(Input::Closed { conn });
    two.0[1].wait(5_100);
    assert!(matches!(two.0[1].deliveries.pop(), Some((_, Delivery::Cancelled { why: Cancelled::Age, .. }))));
    two.carry();
    let (_, answer) = two.0[0].ask(&request);
    assert!(answer.contains("-32010"), "{answer}");
    two.0.iter().for_each(Bench::nothing_is_left);
}
