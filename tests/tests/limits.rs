//! Every bound that the command line and the defaults set, at its edge: what just fits is served, what does not gets a named refusal.

use std::thread::sleep;
use std::time::{Duration, Instant};

use rejoin_tests::check::{refused, resync};
use rejoin_tests::http::Head;
use rejoin_tests::matrix::Flavour;
use rejoin_tests::on_every_server;
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{
    MARCH, NOVEMBER, Session, call, call_with_token, executions, initialize, messages_of, text_of, ticks,
};
use rejoin_tests::wire::{Answer, Connection, Ended, Request, Step, ask};
use serde_json::{Value, json};

on_every_server!(
    one_session_more_is_503_until_there_is_room,
    one_connection_more_is_turned_away_until_there_is_room,
    a_herd_that_waits_too_long_is_told_to_come_back_by_and_by,
    running_out_of_descriptors_neither_spins_nor_kills,
    one_byte_more_in_a_head_is_431,
    one_field_more_in_a_head_is_431,
    one_byte_more_in_a_target_is_414,
    one_message_more_in_a_batch_is_400,
    one_byte_more_in_a_text_id_is_400,
    one_byte_more_in_a_progress_token_is_400,
    one_call_more_in_flight_is_503_until_there_is_room,
    a_head_that_does_not_come_is_408,
    events_beyond_the_log_are_evicted_and_a_neighbour_keeps_its_own,
    memory_stays_within_bounds_under_a_flood,
);

fn started(on: Flavour, options: &[&str]) -> (Rejoin, Session) {
    let server = Rejoin::start(on, options);
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn echo(id: u64) -> Value {
    call(id, "echo", json!({"text": "x"}))
}

fn shed(answer: &Answer) {
    refused(answer, 503, "shed");
    let after = answer.head.field("Retry-After").unwrap_or_else(|| panic!("{}", answer.head));
    assert!(after.parse::<u32>().is_ok(), "{after}");
}

fn one_session_more_is_503_until_there_is_room(on: Flavour) {
    let server = Rejoin::start(on, &["--max-sessions", "4"]);
    let sessions: Vec<Session> = (0..4).map(|_| Session::begin(server.address, NOVEMBER)).collect();
    let more = Request::post(server.address, &initialize(1, NOVEMBER));
    for _ in 0..3 {
        shed(&ask(server.address, &more));
    }
    for session in &sessions {
        assert_eq!(text_of(&session.result(&echo(1))), "x", "those inside are served on");
    }
    assert_eq!(ask(server.address, &sessions[2].delete()).status(), 204);
    Session::begin(server.address, NOVEMBER);
    shed(&ask(server.address, &more));
}

/// Whether a connection is served: `None` when it was turned away.
fn served(connection: &mut Connection) -> Option<Head> {
    let probe = Request::get(connection.peer());
    if !connection.try_write(&probe.bytes()) {
        return None;
    }
    let head = connection.try_head()?;
    (head.status() != 503).then_some(head)
}

fn lets_in(server: &Rejoin) -> bool {
    Connection::try_open(server.address).is_ok_and(|mut connection| served(&mut connection).is_some())
}

fn one_connection_more_is_turned_away_until_there_is_room(on: Flavour) {
    let server = Rejoin::start(on, &["--max-connections", "4"]);
    let mut connections: Vec<Connection> = (0..24).filter_map(|_| Connection::try_open(server.address).ok()).collect();
    let inside = connections.iter_mut().filter_map(served).count();
    // The kernel spreads connections over shards; each has its share.
    assert!(inside <= 4, "{inside} of 4 connections were served");
    assert!(inside == 4 || on.shards > 1, "{inside} of 4 connections were served");
    drop(connections);
    let deadline = Instant::now() + Duration::from_secs(10);
    while !lets_in(&server) {
        assert!(Instant::now() < deadline, "there is room again, and nobody is let in");
        sleep(Duration::from_millis(20));
    }
}

fn a_herd_that_waits_too_long_is_told_to_come_back_by_and_by(on: Flavour) {
    let server = Rejoin::start(on, &["--admission-wait", "1ms"]);
    let session = Session::begin(server.address, NOVEMBER);
    let herd = server.herd();
    let (mut taken, mut told) = (0, 0);
    for mut connection in herd {
        connection.send(&session.post(&echo(1)));
        match connection.answer() {
            answer if answer.status() == 503 => {
                shed(&answer);
                told += 1;
            }
            _ => taken += 1,
        }
    }
    assert!(taken > 0 && told > 0, "{taken} were taken and {told} told to come back");
    assert_eq!(text_of(&session.result(&echo(2))), "x", "nobody waits: all are taken");
}

fn running_out_of_descriptors_neither_spins_nor_kills(on: Flavour) {
    let mut server = Rejoin::start_with_descriptors(on, 64, &[]);
    // Whom it cannot take it may reset.
    let crowd: Vec<Connection> = (0..150).filter_map(|_| Connection::try_open(server.address).ok()).collect();
    sleep(Duration::from_millis(300));
    let before = server.cpu_time();
    sleep(Duration::from_secs(2));
    let used = server.cpu_time() - before;
    assert!(used < Duration::from_millis(500), "{used:?} of processor in two seconds of waiting");
    assert!(server.runs());
    drop(crowd);
    let deadline = Instant::now() + Duration::from_secs(15);
    while !lets_in(&server) {
        assert!(Instant::now() < deadline, "descriptors are free again, and nobody is let in");
        sleep(Duration::from_millis(50));
    }
    let lines = server.log().lines().count();
    assert!(lines < 60, "it is said once and not for each connection: {lines} lines");
}

/// A GET whose head has exactly so many bytes.
fn padded(session: &Session, length: usize) -> Request {
    let bare = session.get_after("x").with("X-Padding", "").head_bytes().len();
    session.get_after("x").with("X-Padding", &"p".repeat(length - bare))
}

fn one_byte_more_in_a_head_is_431(on: Flavour) {
    let (server, session) = started(on, &[]);
    refused(&ask(server.address, &padded(&session, 16 << 10)), 400, "invalid_cursor");
    let mut connection = Connection::open(server.address);
    connection.try_write(&padded(&session, (16 << 10) + 1).bytes());
    refused(&connection.answer(), 431, "head_too_large");
    // A head without an end is refused at the limit too, and not waited for.
    let mut endless = Connection::open(server.address);
    endless.try_write(b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: ");
    endless.try_write(&b"y".repeat(17 << 10));
    assert_eq!(endless.answer().status(), 431);
}

fn one_field_more_in_a_head_is_431(on: Flavour) {
    let (server, session) = started(on, &[]);
    let with = |fields: usize| {
        let mut request = session.get_after("x");
        let bare = String::from_utf8(request.head_bytes()).expect("text").lines().count() - 2;
        for at in bare..fields {
            request = request.with(&format!("X-{at}"), "y");
        }
        request
    };
    refused(&ask(server.address, &with(64)), 400, "invalid_cursor");
    refused(&ask(server.address, &with(65)), 431, "head_too_large");
}

fn one_byte_more_in_a_target_is_414(on: Flavour) {
    let (server, session) = started(on, &[]);
    let target = |length: usize| format!("/mcp?{}", "q".repeat(length - 5));
    refused(&ask(server.address, &session.get_after("x").target(&target(2 << 10))), 400, "invalid_cursor");
    refused(&ask(server.address, &session.get_after("x").target(&target((2 << 10) + 1))), 414, "head_too_large");
}

fn one_message_more_in_a_batch_is_400(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, MARCH);
    let batch = |count: u64| Value::Array((0..count).map(echo).collect());
    assert_eq!(messages_of(&session.tell(&batch(64))).len(), 64);
    refused(&session.tell(&batch(65)), 400, "invalid_request");
}

fn one_byte_more_in_a_text_id_is_400(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let asked = |length: usize| call("i".repeat(length), "echo", json!({"text": "x"}));
    assert_eq!(text_of(&session.result(&asked(256))), "x");
    refused(&session.tell(&asked(257)), 400, "invalid_request");
}

fn one_byte_more_in_a_progress_token_is_400(on: Flavour) {
    let (_server, session) = started(on, &[]);
    let asked = |id: u64, length: usize| call_with_token(id, "t".repeat(length), "ticker", ticks(1, 0));
    assert_eq!(executions(&session.result(&asked(1, 256))), 1);
    refused(&session.tell(&asked(2, 257)), 400, "invalid_request");
}

fn one_call_more_in_flight_is_503_until_there_is_room(on: Flavour) {
    let server = Rejoin::start(on, &[]);
    let session = Session::begin(server.address, MARCH);
    let slow = |id: u64| call(id, "ticker", ticks(1_000, 200));
    let mut streams: Vec<_> =
        (0..4).map(|batch| session.call(&Value::Array((0..64).map(|at| slow(batch * 64 + at)).collect()))).collect();
    streams.iter_mut().for_each(|stream| drop(stream.event()));
    shed(&session.tell(&echo(1_000)));
    let other = Session::begin(server.address, NOVEMBER);
    assert_eq!(text_of(&other.result(&echo(1))), "x", "it is one session's bound");
    let cancel = json!({"requestId": 7});
    session.tell(&rejoin_tests::session::notification("notifications/cancelled", cancel));
    assert_eq!(text_of(&session.result(&echo(1_001))), "x");
}

fn a_head_that_does_not_come_is_408(on: Flavour) {
    let (server, _session) = started(on, &[]);
    let mut slow = Connection::open(server.address);
    slow.write(b"GET /mcp HTTP/1.1\r\nHost: lo");
    let before = Instant::now();
    let answer = slow.answer();
    assert_eq!(answer.status(), 408, "{}", answer.head);
    assert_eq!(answer.json()["error"]["data"]["code"], "timeout");
    assert!((9..=14).contains(&before.elapsed().as_secs()), "{:?}", before.elapsed());
    assert_eq!(slow.ended(), Ended::Fin);
}

fn flood(session: &Session, id: u64, events: u64, bytes: u64) {
    let mut arguments = ticks(events, 0);
    arguments["payload_bytes"] = json!(bytes);
    let mut stream = session.call(&call(id, "ticker", arguments));
    loop {
        match stream.step(Duration::from_secs(20)) {
            Step::Block(_) => {}
            Step::CleanEnd => return,
            other => stream.fail(&format!("{other:?}")),
        }
    }
}

fn events_beyond_the_log_are_evicted_and_a_neighbour_keeps_its_own(on: Flavour) {
    let (server, quiet) = started(on, &["--log-memory", "2MiB"]);
    let kept = quiet.call(&call(1, "ticker", ticks(20, 0))).rest();
    let noisy = Session::begin(server.address, NOVEMBER);
    flood(&noisy, 2, 600, 8 << 10);
    let again = quiet.resume(kept[0].cursor()).rest();
    assert_eq!(again[1..], kept[1..], "one noisy session evicted a quiet one's history");
}

fn memory_stays_within_bounds_under_a_flood(on: Flavour) {
    let (server, session) = started(on, &["--log-memory", "2MiB"]);
    flood(&session, 1, 50, 16 << 10);
    let before = server.resident_kib();
    for id in 2..6 {
        flood(&session, id, 250, 32 << 10);
    }
    let grown = server.resident_kib().saturating_sub(before);
    assert!(grown < 10 << 10, "{grown} KiB more after 32 MB of events under a budget of 2 MiB");
    let mut last = ticks(200, 0);
    last["payload_bytes"] = json!(32 << 10);
    let mut stream = session.call(&call(9, "ticker", last));
    let opening = stream.event();
    stream.rest();
    resync(&session.resume(opening.cursor()).event());
}
