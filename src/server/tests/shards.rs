//! One server of several shards: where sessions live, how connections find them, and what an embedder sees of all.

mod common;

use std::collections::HashSet;
use std::io::Write;
use std::time::{Duration, Instant};

use common::{Told, Wire, begin, builder, desk, drivers, get, limits, post, request};
use rejoin::{EmitError, Ended, Limits, NotTaken, Principal, Unauthorized};
use serde_json::json;

/// Sessions until every shard has some; by shard.
fn spread(server: &rejoin::ServerHandle) -> Vec<(u8, String)> {
    let mut sessions = Vec::new();
    for _ in 0..16 {
        begin(server.local_addr());
    }
    for view in pollster::block_on(server.sessions()) {
        sessions.push((view.id.shard().0, view.id.to_string()));
    }
    sessions
}

#[test]
fn new_sessions_are_spread_over_the_shards() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 2));
        let sessions = spread(&server.0);
        let first = sessions.iter().filter(|(shard, _)| *shard == 0).count();
        assert_eq!((sessions.len(), first), (16, 8));
    }
}

#[test]
fn one_kept_alive_connection_serves_sessions_of_both_shards_in_turn() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 2));
        let sessions = spread(&server.0);
        let mut wire = Wire::to(server.0.local_addr());
        for round in 0..5 {
            for (_, session) in &sessions {
                assert_eq!(wire.call(session, "echo", json!({ "round": round }))["result"], json!({ "round": round }));
            }
        }
        // Pipelined, with streams among them: answered in order.
        let all: String =
            sessions.iter().map(|(_, session)| post(Some(session), &request(1, "tick", json!({ "count": 2 })))).collect();
        let mut writing = wire.stream.try_clone().expect("clone");
        let writer = std::thread::spawn(move || {
            for piece in all.as_bytes().chunks(11) {
                writing.write_all(piece).expect("write");
            }
        });
        for _ in &sessions {
            assert_eq!(wire.answer().status, 200);
            assert!(wire.rest().contains(r#""ticks":2"#));
        }
        writer.join().expect("written");
        let owners: HashSet<_> = sessions.iter().map(|(shard, _)| shard).collect();
        assert_eq!(owners.len(), 2);
    }
}

#[test]
fn a_body_that_was_cut_anywhere_reaches_the_shard_that_owns_its_session() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 2));
        for (_, session) in spread(&server.0).iter().take(4) {
            let text = "x".repeat(300_000);
            let sent = post(Some(session), &request(1, "echo", json!({ "text": text })));
            let mut wire = Wire::to(server.0.local_addr());
            for piece in sent.as_bytes().chunks(40_000) {
                wire.stream.write_all(piece).expect("write");
                std::thread::sleep(Duration::from_millis(1));
            }
            assert_eq!(wire.answer().json()["result"]["text"], text);
        }
    }
}

#[test]
fn a_dead_session_is_refused_on_whichever_shard_reads_its_id() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 2));
        for (_, session) in spread(&server.0) {
            pollster::block_on(server.0.close(pollster::block_on(server.0.sessions())[0].id)).expect("live");
            let _ = session;
        }
        assert!(pollster::block_on(server.0.sessions()).is_empty());
        let other = common::Running(builder(driver, 2).serve(|| common::Desk::new().0).expect("a server"));
        let foreign = begin(other.0.local_addr());
        for _ in 0..6 {
            let mut wire = Wire::to(server.0.local_addr());
            wire.send(&get(&foreign, None));
            let answer = wire.answer();
            assert_eq!((answer.status, answer.field("rejoin-verdict")), (404, Some("session_expired")), "{answer:?}");
        }
    }
}

#[test]
fn an_embedder_sees_closes_and_rotates_sessions_of_every_shard() {
    for driver in drivers() {
        let (server, told, _calls) = desk(builder(driver, 2));
        let address = server.0.local_addr();
        spread(&server.0);
        let sessions = pollster::block_on(server.0.sessions());
        assert!(sessions.iter().all(|view| view.incarnation.0 == 1 && view.calls == 0));
        for view in &sessions {
            pollster::block_on(server.0.rotate(view.id)).expect("live");
        }
        assert!(pollster::block_on(server.0.sessions()).iter().all(|view| view.incarnation.0 == 2));
        for view in &sessions {
            pollster::block_on(server.0.close(view.id)).expect("live");
            let ended = Err(EmitError::NotTaken(NotTaken::SessionEnded));
            assert_eq!(pollster::block_on(server.0.close(view.id)), ended);
            let answer = Wire::to(address).post(Some(&view.id.to_string()), &request(1, "echo", json!({})));
            assert_eq!((answer.status, answer.json()["error"]["data"]["reason"].as_str()), (404, Some("closed")), "{answer:?}");
        }
        let events: Vec<_> = told.try_iter().collect();
        let count = |wanted: Told| events.iter().filter(|event| **event == wanted).count();
        assert_eq!((count(Told::Rotated), count(Told::Closed(Ended::Closed))), (sessions.len(), sessions.len()));
    }
}

#[test]
fn sessions_belong_to_their_principal_and_an_authoriser_that_panics_refuses() {
    for driver in drivers() {
        let authorize = |head: &rejoin::Head| match head.single("authorization") {
            Ok(Some(b"Bearer panic")) => panic!("over a head"),
            Ok(Some(token)) => Ok(Principal::new(&String::from_utf8_lossy(token))),
            _ => Err(Unauthorized { challenge: "Bearer realm=\"test\"".into() }),
        };
        let (server, ..) = desk(builder(driver, 2).authorize(authorize));
        let with = |token: &str, session: Option<&str>, body| {
            let request = post(session, &body).replacen("\r\n", &format!("\r\nAuthorization: Bearer {token}\r\n"), 1);
            let mut wire = Wire::to(server.0.local_addr());
            wire.send(&request);
            wire.answer()
        };
        let initialize = || request(0, "initialize", json!({ "protocolVersion": "2025-11-25" }));
        let answer = Wire::to(server.0.local_addr()).post(None, &initialize());
        assert_eq!((answer.status, answer.field("www-authenticate")), (401, Some("Bearer realm=\"test\"")), "{answer:?}");
        assert_eq!(with("panic", None, initialize()).status, 401);
        let session = with("alice", None, initialize()).field("mcp-session-id").expect("a session").to_owned();
        let who = || request(1, "who", json!({}));
        assert_eq!(with("alice", Some(&session), who()).json()["result"], "Bearer alice");
        for _ in 0..4 {
            assert_eq!(with("mallory", Some(&session), who()).status, 404);
        }
    }
}

#[test]
fn connections_beyond_the_limit_are_shed_and_those_within_it_live() {
    for driver in drivers() {
        let few = Limits { connections: 8, ..limits() };
        let (server, ..) = desk(builder(driver, 1).limits(few));
        let address = server.0.local_addr();
        let session = begin(address);
        std::thread::sleep(Duration::from_millis(50));
        let mut within: Vec<_> = (0..8).map(|_| Wire::to(address)).collect();
        for wire in &mut within {
            wire.call(&session, "echo", json!({}));
        }
        for _ in 0..20 {
            assert!(Wire::to(address).closed());
        }
        for wire in &mut within {
            wire.call(&session, "echo", json!({}));
        }
        within.pop();
        let began = Instant::now();
        while Wire::to(address).stream.write_all(get(&session, None).as_bytes()).is_err() {
            assert!(began.elapsed() < Duration::from_secs(5), "room is found again");
        }
    }
}

#[test]
fn a_drain_lets_calls_end_ends_streams_cleanly_and_refuses_the_rest() {
    for driver in drivers() {
        for shards in [1, 2] {
            let (server, _told, calls) = desk(builder(driver, shards));
            let address = server.0.local_addr();
            let session = begin(address);
            let mut listening = Wire::to(address);
            listening.send(&get(&session, None));
            assert_eq!(listening.answer().status, 200);
            let mut calling = Wire::to(address);
            calling.send(&post(Some(&session), &request(1, "later", json!({}))));
            let call = calls.recv_timeout(Duration::from_secs(10)).expect("the call");
            call.try_notify("begun", ()).expect("queued");
            assert_eq!(calling.answer().status, 200);
            calling.stream_until("begun");
            let began = Instant::now();
            server.0.shutdown(Duration::from_secs(10));
            assert!(listening.rest().contains("retry:"), "a stream without a call ends at once, and says when to return");
            std::thread::sleep(Duration::from_millis(50));
            assert!(std::net::TcpStream::connect(address).is_err(), "nothing is accepted any more");
            call.try_respond(json!("the last word")).expect("queued");
            assert!(calling.rest().contains("the last word"));
            drop((listening, calling));
            server.0.wait();
            assert!(began.elapsed() < Duration::from_secs(8), "not the whole drain time: {:?}", began.elapsed());
            assert_eq!(call.try_notify("too late", ()), Err(EmitError::Stopped));
        }
    }
}

#[test]
fn a_drain_ends_at_its_time_with_an_unknown_outcome_for_what_has_not_ended() {
    for driver in drivers() {
        let (server, told, _calls) = desk(builder(driver, 1));
        let address = server.0.local_addr();
        let session = begin(address);
        let mut calling = Wire::to(address);
        calling.send(&post(Some(&session), &request(1, "wait", json!({}))));
        assert_eq!(calling.answer().status, 200);
        let began = Instant::now();
        server.0.shutdown(Duration::from_millis(200));
        let stream = calling.rest();
        assert!(stream.contains("-32010"), "{stream}");
        drop(calling);
        server.0.wait();
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        assert!(told.try_iter().any(|event| event == Told::Cancelled(rejoin::Cancelled::Drain)));
    }
}

#[test]
fn a_client_that_never_closes_does_not_hold_a_drain() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 2));
        let idle: Vec<_> = (0..20).map(|_| Wire::to(server.0.local_addr())).collect();
        std::thread::sleep(Duration::from_millis(50));
        let began = Instant::now();
        server.0.shutdown(Duration::from_millis(500));
        server.0.wait();
        assert!(began.elapsed() < Duration::from_secs(3), "{:?}", began.elapsed());
        drop(idle);
    }
}

#[test]
fn servers_come_and_go_in_one_process_and_leave_no_descriptor() {
    let open = || std::fs::read_dir("/proc/self/fd").expect("descriptors").count();
    for driver in drivers() {
        let once = || {
            let (server, ..) = desk(builder(driver, 2));
            begin(server.0.local_addr());
        };
        once();
        let before = open();
        for _ in 0..5 {
            once();
        }
        // Other tests of this process open and close descriptors meanwhile: those of five servers would be over fifty.
        assert!(open() < before + 40, "{} after {before}", open());
    }
}

#[test]
fn a_port_in_use_is_an_error_that_names_it() {
    let (server, ..) = desk(builder(rejoin::Driver::Epoll, 2));
    let taken = server.0.local_addr();
    let error = builder(rejoin::Driver::Epoll, 2).listen(taken).serve(|| common::Desk::new().0).expect_err("in use");
    assert_eq!(error.to_string(), format!("cannot listen on {taken}: Address already in use (os error 98)"));
}

#[test]
fn stats_add_up_to_what_happened_whoever_asks_at_once() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 2));
        let sessions = spread(&server.0).len() as u64;
        let sums = |handle: &rejoin::ServerHandle| {
            let stats = handle.stats(Duration::from_secs(5));
            let kernels: Vec<_> = stats.iter().map(|stats| &stats.state.snapshot().expect("both answer").kernel).collect();
            let sum = |figure: fn(&rejoin::counters::Snapshot) -> u64| kernels.iter().map(|kernel| figure(kernel)).sum::<u64>();
            [
                sum(|now| now.sessions.into()),
                sum(|now| now.counters.sessions_begun),
                sum(|now| now.counters.calls_answered.count()),
            ]
        };
        std::thread::scope(|scope| {
            let asking: Vec<_> = (0..8).map(|_| scope.spawn(|| sums(&server.0))).collect();
            for asked in asking {
                assert_eq!(asked.join().expect("no panic"), [sessions; 3]);
            }
        });
    }
}
