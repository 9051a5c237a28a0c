//! What handlers may do, and what happens to the rest of the server when they do it badly.

mod common;

use std::time::Duration;

use common::{Told, Wire, begin, builder, desk, drivers, get, limits, post, request};
use rejoin::{Call, Cancelled, EmitError, Emitted, Ended, Handler, Json, NotTaken, Reply, RpcError, SendHandler, Sent, Session};
use serde_json::{Value, json};

const SOON: Duration = Duration::from_secs(10);

#[test]
fn a_request_is_answered_with_what_its_handler_returns() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 1));
        let session = begin(server.0.local_addr());
        let mut wire = Wire::to(server.0.local_addr());
        assert_eq!(wire.call(&session, "echo", json!({ "a": [1, "b"] }))["result"], json!({ "a": [1, "b"] }));
        assert_eq!(wire.call(&session, "fail", json!({}))["error"], json!({ "code": -32000, "message": "no" }));
        assert_eq!(wire.call(&session, "nothing", json!({}))["error"]["code"], -32601);
        assert_eq!(wire.call(&session, "who", json!({}))["result"], "");
        let streamed = wire.call(&session, "tick", json!({ "count": 20 }));
        assert_eq!(streamed["result"]["ticks"], 20);
    }
}

#[test]
fn a_panic_fails_its_call_and_nothing_else() {
    for driver in drivers() {
        let (server, told, _calls) = desk(builder(driver, 1));
        let address = server.0.local_addr();
        let session = begin(address);
        let mut beside = Wire::to(address);
        beside.send(&post(Some(&session), &request(7, "later", json!({}))));
        let mut wire = Wire::to(address);
        for _ in 0..3 {
            let failed = wire.call(&session, "panic", json!({}));
            assert_eq!(failed["error"]["code"], -32603, "{failed}");
        }
        let answer = wire.post(Some(&session), &json!({ "jsonrpc": "2.0", "method": "notifications/panic" }));
        assert_eq!(answer.status, 202);
        let answer = wire.post(None, &request(0, "initialize", json!({ "protocolVersion": "panic" })));
        assert_eq!(answer.json()["error"]["code"], -32603, "{answer:?}");
        assert!(answer.field("mcp-session-id").is_none());
        assert_eq!(told.recv_timeout(SOON), Ok(Told::Notification("notifications/initialized".into())));
        assert_eq!(wire.call(&session, "echo", json!({}))["result"], json!({}));
        assert_eq!(pollster::block_on(server.0.sessions()).len(), 1);
    }
}

#[test]
fn an_initialize_that_is_refused_leaves_no_session() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 1));
        let mut wire = Wire::to(server.0.local_addr());
        for (version, code) in [("refused", -32000), ("no-version-of-ours", -32603)] {
            let answer = wire.post(None, &request(0, "initialize", json!({ "protocolVersion": version })));
            assert_eq!(answer.json()["error"]["code"], code, "{answer:?}");
            assert!(answer.field("mcp-session-id").is_none());
        }
        assert!(pollster::block_on(server.0.sessions()).is_empty());
    }
}

#[test]
fn a_call_is_answered_from_another_thread_and_only_once() {
    for driver in drivers() {
        let (server, _told, calls) = desk(builder(driver, 1));
        let session = begin(server.0.local_addr());
        let mut wire = Wire::to(server.0.local_addr());
        wire.send(&post(Some(&session), &request(1, "later", json!({}))));
        let call = calls.recv_timeout(SOON).expect("the call");
        assert_eq!(call.try_notify("from-afar", json!({ "n": 1 })), Ok(Emitted::Queued));
        assert_eq!(pollster::block_on(call.respond(json!("answered"))), Ok(Emitted::Queued));
        assert_eq!(call.try_respond(json!("again")), Err(EmitError::NotTaken(NotTaken::CallEnded)));
        assert_eq!(wire.answer().status, 200);
        let stream = wire.rest();
        assert!(stream.find("from-afar").expect("first") < stream.find("answered").expect("last"), "{stream}");
    }
}

#[test]
fn a_call_that_nobody_can_answer_any_more_gets_an_error() {
    for driver in drivers() {
        let (server, _told, calls) = desk(builder(driver, 1));
        let session = begin(server.0.local_addr());
        let mut wire = Wire::to(server.0.local_addr());
        assert_eq!(wire.call(&session, "forget", json!({}))["error"]["code"], -32603);
        wire.send(&post(Some(&session), &request(2, "later", json!({}))));
        let call = calls.recv_timeout(SOON).expect("the call");
        let clone = call.clone();
        drop(call);
        std::thread::spawn(move || drop(clone)).join().expect("dropped");
        let answer = wire.answer();
        assert!(answer.body.contains("-32603") || wire.rest().contains("-32603"));
    }
}

#[test]
fn a_result_that_is_too_large_becomes_an_error() {
    for driver in drivers() {
        let small = rejoin::Limits { message_bytes: 10_000, ..limits() };
        let (server, _told, calls) = desk(builder(driver, 1).limits(small));
        let session = begin(server.0.local_addr());
        let mut wire = Wire::to(server.0.local_addr());
        assert_eq!(wire.call(&session, "large", json!({ "bytes": 20_000 }))["error"]["code"], -32603);
        // From another thread, whose sender is told that it was queued.
        wire.send(&post(Some(&session), &request(2, "later", json!({}))));
        let call = calls.recv_timeout(SOON).expect("the call");
        assert_eq!(call.try_respond(json!("x".repeat(20_000))), Ok(Emitted::Queued));
        let answer = wire.answer();
        assert!(answer.body.contains("-32603") || wire.rest().contains("-32603"));
    }
}

#[test]
fn mail_from_other_threads_is_pushed_back_when_it_is_more_than_the_shard_takes() {
    const NOTIFICATIONS: usize = 20_000;
    for driver in drivers() {
        let roomy = rejoin::Limits { stream_events: 1_000_000, ..limits() };
        let (server, _told, calls) = desk(builder(driver, 1).limits(roomy));
        let session = begin(server.0.local_addr());
        let mut wire = Wire::to(server.0.local_addr());
        wire.send(&post(Some(&session), &request(1, "later", json!({}))));
        let call = calls.recv_timeout(SOON).expect("the call");
        // Those that wait are taken in order, all of them; those that will not wait are refused when there is no room.
        let sending = std::thread::spawn(move || {
            for number in 0..NOTIFICATIONS {
                let sent = pollster::block_on(call.notify("n", json!({ "number": number })));
                assert_eq!(sent, Ok(Emitted::Queued));
            }
            let mut refused = 0;
            for _ in 0..NOTIFICATIONS {
                refused += usize::from(call.try_notify("m", ()) == Err(EmitError::Full));
            }
            pollster::block_on(call.respond(json!("done"))).expect("queued");
            refused
        });
        assert_eq!(wire.answer().status, 200);
        let stream = wire.rest();
        let numbers: Vec<usize> = stream
            .split("\"number\":")
            .skip(1)
            .map(|rest| rest.split('}').next().expect("a number").parse().expect("one"))
            .collect();
        assert!(numbers.iter().copied().eq(0..NOTIFICATIONS), "{} of them", numbers.len());
        let refused = sending.join().expect("sent");
        assert_eq!(stream.matches("\"method\":\"m\"").count(), NOTIFICATIONS - refused);
    }
}

#[test]
fn a_cancelled_call_is_told_and_its_future_dropped() {
    for driver in drivers() {
        let (server, told, _calls) = desk(builder(driver, 1));
        let session = begin(server.0.local_addr());
        let mut wire = Wire::to(server.0.local_addr());
        wire.send(&post(Some(&session), &request(5, "wait", json!({}))));
        assert_eq!(wire.answer().status, 200);
        let cancel = json!({ "jsonrpc": "2.0", "method": "notifications/cancelled", "params": { "requestId": 5 } });
        assert_eq!(Wire::to(server.0.local_addr()).post(Some(&session), &cancel).status, 202);
        assert!(!wire.rest().contains("result"));
        let events: Vec<_> = (0..3).map(|_| told.recv_timeout(SOON).expect("told")).collect();
        assert_eq!(events[1..], [Told::Cancelled(Cancelled::ByClient), Told::Dropped], "{events:?}");
    }
}

#[test]
fn a_dropped_connection_cancels_nothing_and_the_result_waits_for_the_client() {
    for driver in drivers() {
        let (server, _told, calls) = desk(builder(driver, 1));
        let address = server.0.local_addr();
        let session = begin(address);
        let mut wire = Wire::to(address);
        wire.send(&post(Some(&session), &request(5, "later", json!({}))));
        let call = calls.recv_timeout(SOON).expect("the call");
        call.try_notify("before", ()).expect("queued");
        assert_eq!(wire.answer().status, 200);
        let seen = wire.stream_until("before");
        let cursor = seen.lines().filter_map(|line| line.strip_prefix("id: ")).next_back().expect("an id").to_owned();
        drop(wire);
        std::thread::sleep(Duration::from_millis(50));
        call.try_notify("between", ()).expect("queued");
        call.try_respond(json!("answered")).expect("queued");
        let mut wire = Wire::to(address);
        wire.send(&get(&session, Some(&cursor)));
        let answer = wire.answer();
        assert_eq!((answer.status, answer.field("rejoin-verdict")), (200, Some("replay")), "{answer:?}");
        let stream = wire.rest();
        assert!(!stream.contains("before") && stream.contains("between") && stream.contains("answered"), "{stream}");
    }
}

#[test]
fn progress_goes_out_with_the_clients_token_and_without_one_not_at_all() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 1));
        let session = begin(server.0.local_addr());
        let mut wire = Wire::to(server.0.local_addr());
        assert_eq!(wire.call(&session, "progress", json!({}))["result"], json!({ "wanted": false, "sent": false }));
        let with_token = request(2, "progress", json!({ "_meta": { "progressToken": "theirs" } }));
        assert_eq!(wire.post(Some(&session), &with_token).status, 200);
        let stream = wire.rest();
        assert!(stream.contains(r#""progressToken":"theirs","progress":1.0,"total":2.0,"message":"half""#), "{stream}");
        assert!(stream.contains(r#""sent":true"#), "{stream}");
    }
}

#[test]
fn what_is_said_on_the_standalone_stream_waits_for_its_get() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 1));
        let session = begin(server.0.local_addr());
        let mut wire = Wire::to(server.0.local_addr());
        assert_eq!(wire.call(&session, "standalone", json!({}))["result"], "Logged");
        let mut listening = Wire::to(server.0.local_addr());
        listening.send(&get(&session, None));
        assert_eq!(listening.answer().status, 200);
        listening.stream_until("hello");
        wire.call(&session, "standalone", json!({}));
        listening.stream_until("hello");
    }
}

#[test]
fn the_client_is_asked_on_the_calls_stream_and_its_answer_reaches_the_handler() {
    for driver in drivers() {
        let (server, _told, calls) = desk(builder(driver, 1));
        let address = server.0.local_addr();
        let session = begin(address);
        let ask = |wire: &mut Wire| {
            assert_eq!(wire.answer().status, 200);
            let event = wire.stream_until("roots/list");
            let data = event.lines().rev().find_map(|line| line.strip_prefix("data: ")).expect("an event");
            serde_json::from_str::<Value>(data).expect("JSON")["id"].clone()
        };
        let reply = |body: Value| assert_eq!(Wire::to(address).post(Some(&session), &body).status, 202);
        let mut wire = Wire::to(address);
        wire.send(&post(Some(&session), &request(1, "ask", json!({}))));
        let id = ask(&mut wire);
        reply(json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [] } }));
        assert!(wire.rest().contains(r#""answered":{"roots":[]}"#));
        wire.send(&post(Some(&session), &request(2, "ask", json!({}))));
        let id = ask(&mut wire);
        reply(json!({ "jsonrpc": "2.0", "id": id, "error": { "code": -1, "message": "no roots" } }));
        assert!(wire.rest().contains("no roots (-1)"));
        // From another thread.
        wire.send(&post(Some(&session), &request(3, "later", json!({}))));
        let call = calls.recv_timeout(SOON).expect("the call");
        let asking = std::thread::spawn(move || {
            let roots = pollster::block_on(call.request("roots/list", ())).expect("an answer");
            pollster::block_on(call.respond(roots)).expect("queued");
        });
        let id = ask(&mut wire);
        reply(json!({ "jsonrpc": "2.0", "id": id, "result": { "roots": [1] } }));
        assert!(wire.rest().contains(r#""result":{"roots":[1]}"#));
        asking.join().expect("asked");
    }
}

#[test]
fn a_session_is_rotated_and_closed_by_its_handler_after_its_answer() {
    for driver in drivers() {
        let (server, told, _calls) = desk(builder(driver, 1));
        let address = server.0.local_addr();
        let session = begin(address);
        let mut wire = Wire::to(address);
        assert_eq!(wire.call(&session, "rotate", json!({}))["result"], "rotated");
        assert_eq!(wire.call(&session, "echo", json!({}))["result"], json!({}));
        assert_eq!(wire.call(&session, "close", json!({}))["result"], "closed");
        let answer = wire.post(Some(&session), &request(9, "echo", json!({})));
        assert_eq!((answer.status, answer.json()["error"]["data"]["reason"].as_str()), (404, Some("closed")), "{answer:?}");
        let events: Vec<_> = told.try_iter().collect();
        let of_the_session: Vec<_> = events.iter().filter(|event| !matches!(event, Told::Notification(_))).collect();
        assert_eq!(of_the_session, [&Told::Rotated, &Told::Closed(Ended::Closed)]);
    }
}

#[test]
fn a_handler_that_computes_lets_others_have_their_turn() {
    for driver in drivers() {
        let (server, ..) = desk(builder(driver, 1));
        let address = server.0.local_addr();
        let session = begin(address);
        let mut computing = Wire::to(address);
        computing.send(&post(Some(&session), &request(1, "compute", json!({ "count": 20_000 }))));
        let mut wire = Wire::to(address);
        for _ in 0..20 {
            wire.call(&session, "echo", json!({}));
        }
        let answer = computing.answer();
        assert!(answer.body.contains("computed") || computing.rest().contains("computed"));
    }
}

/// A handler whose futures run on threads of their own.
struct Afar;

impl SendHandler for Afar {
    async fn initialize(&self, _: &Session, _: &Json) -> Result<Json, RpcError> {
        Ok(json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "afar", "version": "1" } })
            .into())
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        match call.method() {
            "echo" => {
                call.notify("thinking", ()).await.map_err(RpcError::internal)?;
                // This blocks, which a shard must not.
                std::thread::sleep(Duration::from_millis(20));
                Ok(call.params::<Value>()?.into())
            }
            "panic" => panic!("afar"),
            "wait" => {
                std::future::pending::<()>().await;
                Ok(Value::Null.into())
            }
            other => Err(RpcError::method_not_found(other)),
        }
    }
}

#[test]
fn a_handler_may_run_anywhere() {
    for driver in drivers() {
        let afar = Sent::new(Afar, |work| {
            std::thread::spawn(move || pollster::block_on(work));
        });
        let server = common::Running(builder(driver, 1).serve(move || afar.clone()).expect("a server"));
        let address = server.0.local_addr();
        let session = begin(address);
        let mut wire = Wire::to(address);
        assert_eq!(wire.call(&session, "echo", json!({ "a": 1 }))["result"], json!({ "a": 1 }));
        assert_eq!(wire.call(&session, "panic", json!({}))["error"]["code"], -32603);
        assert_eq!(wire.call(&session, "nothing", json!({}))["error"]["code"], -32601);
        // A cancelled call's future ends there too: the server's end does not wait for it.
        wire.send(&post(Some(&session), &request(9, "wait", json!({}))));
        assert_eq!(wire.answer().status, 200);
    }
}

/// Compiles: what a factory makes need not be `Send`.
struct NotSend(std::rc::Rc<()>);

impl Handler for NotSend {
    async fn initialize(&self, _: &Session, _: &Json) -> Result<Json, RpcError> {
        let _held_over_a_wait = std::rc::Rc::clone(&self.0);
        rejoin::sleep(Duration::from_millis(1)).await;
        Ok(json!({ "protocolVersion": "2025-11-25", "capabilities": {}, "serverInfo": { "name": "n", "version": "1" } }).into())
    }

    async fn request(&self, _: &Call) -> Result<Reply, RpcError> {
        Ok(Value::Null.into())
    }
}

#[test]
fn a_handler_need_not_be_send() {
    let server = common::Running(builder(rejoin::Driver::Epoll, 2).serve(|| NotSend(std::rc::Rc::default())).expect("a server"));
    begin(server.0.local_addr());
}
