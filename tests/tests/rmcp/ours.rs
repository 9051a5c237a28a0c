//! What only our transport does for an rmcp server: how services end, and what a panic costs.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use rejoin_tests::check::{expired, outcome_unknown, soon};
use rejoin_tests::session::{NOVEMBER, Session, call, initialize, messages_of, notification, request, text_of};
use rejoin_tests::wire::{Connection, Request, Stream, ask};
use rmcp::model::{CustomNotification, CustomRequest};
use rmcp::{ErrorData, RoleServer, ServerHandler};
use serde_json::json;

use crate::sides::Server;

fn begun() -> (Server, Session) {
    let server = Server::ours();
    let session = Session::begin(server.address, NOVEMBER);
    (server, session)
}

fn echo(session: &Session) -> String {
    text_of(&session.result(&call(99, "echo", json!({ "text": "here" })))).to_owned()
}

#[test]
fn a_tool_that_panics_fails_its_call_and_nothing_else() {
    let (server, session) = begun();
    let answer = session.tell(&call(1, "panic", json!({})));
    let messages = rejoin_tests::session::messages_of(&answer);
    assert_eq!(messages[messages.len() - 1]["error"]["code"], -32603, "{messages:?}");
    assert_eq!(echo(&session), "here");
    assert_eq!(server.everyone.services(), 1);
}

#[test]
fn a_session_that_its_embedder_closes_ends_its_service_and_cancels_its_calls() {
    let (server, session) = begun();
    let mut held = session.call(&call(1, "hold", json!({})));
    held.event();
    let handle = server.handle.as_ref().expect("ours");
    let id = pollster::block_on(handle.sessions())[0].id;
    pollster::block_on(handle.close(id)).expect("closed");
    held.rest();
    soon("its tool is told", || server.everyone.cancelled() == 1);
    soon("its service ends", || server.everyone.services() == 0);
    expired(&session.tell(&request(2, "ping", json!({}))), "closed");
}

#[test]
fn a_rotated_session_loses_its_calls_and_keeps_its_service() {
    let (server, session) = begun();
    let mut held = session.call(&call(1, "hold", json!({})));
    held.event();
    let handle = server.handle.as_ref().expect("ours");
    let id = pollster::block_on(handle.sessions())[0].id;
    pollster::block_on(handle.rotate(id)).expect("rotated");
    outcome_unknown(&held.rest().pop().expect("an answer"), 1);
    soon("its tool is told", || server.everyone.cancelled() == 1);
    assert_eq!(echo(&session), "here");
    assert_eq!(server.everyone.services(), 1);
}

#[test]
fn a_cut_connection_is_nothing_to_its_service() {
    let (server, session) = begun();
    let mut held = session.call(&call(1, "hold", json!({})));
    let opening = held.event();
    held.reset();
    assert_eq!(echo(&session), "here");
    assert_eq!((server.everyone.services(), server.everyone.cancelled()), (1, 0));
    session.resume(opening.cursor()).event();
}

#[test]
fn services_end_with_the_server_and_calls_have_the_time_of_the_drain() {
    let (server, session) = begun();
    let asked = rejoin_tests::session::call_with_token(1, 1, "ticker", json!({ "count": 3, "interval_ms": 100 }));
    let mut ticking = session.call(&asked);
    ticking.event();
    let mut held = Session::begin(server.address, NOVEMBER).call(&call(1, "hold", json!({})));
    held.event();
    let handle = server.handle.as_ref().expect("ours");
    let began = Instant::now();
    handle.shutdown(Duration::from_secs(1));
    assert!(ticking.rest().pop().expect("an answer").json()["result"].is_object(), "it had the time");
    handle.wait();
    assert!(began.elapsed() < Duration::from_secs(10), "{:?}", began.elapsed());
    soon("the other's tool is told", || server.everyone.cancelled() == 1);
    soon("services end", || server.everyone.services() == 0);
}

#[test]
fn a_session_that_expires_ends_its_service() {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let entered = runtime.enter();
    let everyone = crate::tools::Everyone::default();
    let limits = rejoin::Limits { session_ttl: Duration::from_millis(300), ..rejoin::Limits::default() };
    let factory = {
        let everyone = everyone.clone();
        move || Ok(crate::tools::Counted::new(&everyone))
    };
    let handle = rejoin_rmcp::serve(rejoin::Server::builder().shards(1).limits(limits), factory).expect("a server");
    drop(entered);
    let session = Session::begin(handle.local_addr(), NOVEMBER);
    assert_eq!(everyone.services(), 1);
    soon("its service ends", || everyone.services() == 0);
    expired(&session.tell(&request(2, "ping", json!({}))), "expired");
    handle.shutdown(Duration::ZERO);
    handle.wait();
}

/// Ends itself, or its beginning, as its name says.
#[derive(Clone, Copy)]
struct Failing(&'static str);

impl ServerHandler for Failing {
    async fn initialize(
        &self,
        request: rmcp::model::InitializeRequestParams,
        _: rmcp::service::RequestContext<RoleServer>,
    ) -> Result<rmcp::model::InitializeResult, ErrorData> {
        match self.0 {
            "panics" => panic!("as asked"),
            "refuses" => Err(ErrorData::invalid_request("not today", None)),
            "hangs" => std::future::pending().await,
            _ => Ok(rmcp::model::InitializeResult::new(Default::default()).with_protocol_version(request.protocol_version)),
        }
    }
}

/// What `initialize` is answered by a server of these.
fn beginning(failing: &'static str, limits: rejoin::Limits) -> (serde_json::Value, usize) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
    let entered = runtime.enter();
    let factory = move || match failing {
        "no service" => Err(std::io::Error::other("no room for it")),
        "no factory" => panic!("as asked"),
        other => Ok(Failing(other)),
    };
    let handle = rejoin_rmcp::serve(rejoin::Server::builder().shards(1).limits(limits), factory).expect("a server");
    drop(entered);
    let address = handle.local_addr();
    let answer = ask(address, &Request::post(address, &initialize(1, NOVEMBER)));
    let left = pollster::block_on(handle.sessions()).len();
    handle.shutdown(Duration::ZERO);
    handle.wait();
    (answer.json(), left)
}

#[test]
fn a_service_that_cannot_begin_says_why_and_leaves_no_session() {
    let told = [("no service", "no room for it"), ("no factory", "panicked"), ("panics", "panicked"), ("refuses", "not today")];
    for (failing, why) in told {
        let (answer, left) = beginning(failing, rejoin::Limits::default());
        let message = answer["error"]["message"].as_str().unwrap_or_else(|| panic!("{failing}: {answer}"));
        assert!(message.contains(why), "{failing}: {answer}");
        assert_eq!(left, 0, "{failing}");
    }
}

#[test]
fn a_service_that_never_answers_initialize_is_ended_by_the_calls_age() {
    let limits = rejoin::Limits { call_max_age: Duration::from_millis(300), ..rejoin::Limits::default() };
    let (answer, left) = beginning("hangs", limits);
    assert!(answer["error"].is_object(), "{answer}");
    assert_eq!(left, 0);
}

#[test]
fn serving_outside_of_a_runtime_is_refused_in_words() {
    let refused = rejoin_rmcp::serve(rejoin::Server::builder(), || Ok(Failing("fine"))).expect_err("refused");
    assert!(refused.to_string().contains("tokio"), "{refused}");
}

/// A server that blocks the only thread of its runtime where it is asked to, and counts notifications.
#[derive(Clone, Default)]
struct Blocking {
    notified: Arc<AtomicUsize>,
    blocked: Arc<AtomicBool>,
    free: Arc<AtomicBool>,
}

impl ServerHandler for Blocking {
    async fn on_custom_request(
        &self,
        _: CustomRequest,
        _: rmcp::service::RequestContext<RoleServer>,
    ) -> Result<rmcp::model::CustomResult, ErrorData> {
        self.blocked.store(true, Ordering::SeqCst);
        while !self.free.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(5));
        }
        Ok(rmcp::model::CustomResult::new(json!({})))
    }

    async fn on_custom_notification(&self, _: CustomNotification, _: rmcp::service::NotificationContext<RoleServer>) {
        self.notified.fetch_add(1, Ordering::SeqCst);
    }
}

/// A service that is busy, on the only thread of its runtime, from its first call on.
struct Busy {
    service: Blocking,
    handle: rejoin::ServerHandle,
    session: Session,
    blocking: Stream,
    _runtime: tokio::runtime::Runtime,
}

impl Busy {
    fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a runtime");
        let entered = runtime.enter();
        let service = Blocking::default();
        let factory = {
            let service = service.clone();
            move || Ok(service.clone())
        };
        let handle = rejoin_rmcp::serve(rejoin::Server::builder().shards(1), factory).expect("a server");
        drop(entered);
        let session = Session::begin(handle.local_addr(), NOVEMBER);
        let blocking = session.call(&request(1, "acme/block", json!({})));
        soon("it blocks", || service.blocked.load(Ordering::SeqCst));
        Self { service, handle, session, blocking, _runtime: runtime }
    }

    fn release(&self) {
        self.service.free.store(true, Ordering::SeqCst);
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        self.release();
        self.handle.shutdown(Duration::ZERO);
        self.handle.wait();
    }
}

/// A message of about a megabyte.
fn large() -> serde_json::Value {
    json!({ "text": "x".repeat(1 << 20) })
}

#[test]
fn more_messages_than_an_inbox_has_places_for_wait_and_none_is_lost() {
    let mut busy = Busy::start();
    let mut connection = Connection::open(busy.session.address);
    for _ in 0..300 {
        assert_eq!(connection.ask(&busy.session.post(&notification("notifications/acme", json!({})))).status(), 202);
    }
    let mut waiting = busy.session.call(&request(2, "tools/list", json!({})));
    busy.release();
    assert_eq!(waiting.rest().pop().expect("an answer").json()["id"], 2);
    assert_eq!(busy.blocking.rest().pop().expect("an answer").json()["id"], 1);
    soon("all are told", || busy.service.notified.load(Ordering::SeqCst) == 300);
}

#[test]
fn a_call_past_the_bytes_that_may_wait_is_refused_and_those_before_it_are_answered() {
    let mut busy = Busy::start();
    // 16 MiB hold fifteen of these with their envelopes, and not the sixteenth.
    let mut waiting: Vec<_> = (0..15).map(|id| busy.session.call(&request(100 + id, "acme/large", large()))).collect();
    let refused = messages_of(&busy.session.tell(&request(2, "acme/large", large()))).pop().expect("an answer");
    assert_eq!((&refused["id"], &refused["error"]["code"]), (&json!(2), &json!(-32000)), "{refused}");
    assert!(refused["error"]["message"].as_str().expect("words").contains("too much unread"), "{refused}");
    // What is small still has room, and what was refused has left none behind.
    let mut small = busy.session.call(&request(3, "acme/small", json!({})));
    busy.release();
    for (id, stream) in waiting.iter_mut().enumerate() {
        let last = stream.rest().pop().expect("an answer").json();
        assert_eq!((&last["id"], &last["result"]), (&json!(100 + id), &json!({})), "{last}");
    }
    assert!(small.rest().pop().expect("an answer").json()["result"].is_object());
    assert!(busy.blocking.rest().pop().expect("an answer").json()["result"].is_object());
    assert_eq!(busy.session.result(&request(4, "acme/large", large())), json!({}), "there is room again");
}

#[test]
fn a_notification_past_the_bytes_that_may_wait_ends_its_session_so_that_the_client_knows() {
    let busy = Busy::start();
    let mut connection = Connection::open(busy.session.address);
    for _ in 0..16 {
        assert_eq!(connection.ask(&busy.session.post(&notification("notifications/acme", large()))).status(), 202);
    }
    soon("its session ends", || busy.session.tell(&request(2, "ping", json!({}))).status() == 404);
    expired(&busy.session.tell(&request(2, "ping", json!({}))), "closed");
}
