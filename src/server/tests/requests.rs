//! What a handler may know of a request beside its params: the HTTP head, the caller's trace, and the spans that say where it was.

mod common;

use std::collections::BTreeMap;
use std::fmt::Debug;
use std::pin::pin;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{Running, Wire, begin, builder, desk, drivers, post, request};
use rejoin::{Call, Driver, Handler, Json, Reply, RpcError, SendHandler, Sent, Session};
use serde_json::{Value, json};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing_subscriber::layer::{Context as Where, Layer, SubscriberExt};
use tracing_subscriber::registry::LookupSpan;

const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// Says what it knows of each request.
#[derive(Clone)]
struct Curious;

fn known(session: &Session, call: Option<&Call>) -> Value {
    let head = session.head();
    let flavour = head.and_then(|head| head.single("x-flavour").ok().flatten()).map(String::from_utf8_lossy);
    let fields = head.map(|head| head.fields().count());
    json!({ "flavour": flavour, "fields": fields.is_some_and(|fields| fields >= 4), "traceparent": call.and_then(Call::traceparent) })
}

fn begun(session: &Session, params: &Json) -> Result<Json, RpcError> {
    let asked: Value = params.parse().map_err(RpcError::invalid_params)?;
    let info = json!({ "name": "curious", "version": "1", "known": known(session, None) });
    Ok(json!({ "protocolVersion": asked["protocolVersion"], "capabilities": {}, "serverInfo": info }).into())
}

impl Handler for Curious {
    async fn initialize(&self, session: &Session, params: &Json) -> Result<Json, RpcError> {
        begun(session, params)
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        tracing::info!("on the shard");
        Ok(known(call.session(), Some(call)).into())
    }
}

impl SendHandler for Curious {
    async fn initialize(&self, session: &Session, params: &Json) -> Result<Json, RpcError> {
        begun(session, params)
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        tracing::info!("elsewhere");
        Ok(known(call.session(), Some(call)).into())
    }
}

fn flavoured(session: Option<&str>, message: &Value, more: &str) -> String {
    post(session, message).replacen("\r\n", &format!("\r\nX-Flavour: lemon\r\n{more}"), 1)
}

#[test]
fn heads_are_there_for_those_who_ask_for_them() {
    for driver in drivers() {
        for asked in [true, false] {
            let server = Running(builder(driver, 1).request_heads(asked).serve(|| Curious).expect("a server"));
            let mut wire = Wire::to(server.0.local_addr());
            let flavour = if asked { json!("lemon") } else { Value::Null };
            wire.send(&flavoured(None, &request(0, "initialize", json!({ "protocolVersion": "2025-11-25" })), ""));
            let answer = wire.answer();
            let known = &answer.json()["result"]["serverInfo"]["known"];
            assert_eq!((&known["flavour"], &known["fields"]), (&flavour, &json!(asked)));
            let session = answer.field("mcp-session-id").expect("a session").to_owned();
            wire.send(&flavoured(Some(&session), &request(1, "anything", json!({})), ""));
            assert_eq!(wire.answer().json()["result"]["flavour"], flavour);
            assert_eq!(wire.call(&session, "without", json!({}))["result"]["flavour"], Value::Null);
        }
    }
}

#[test]
fn a_traceparent_is_the_messages_own_else_its_requests_if_valid_whether_or_not_heads_are_kept() {
    for heads in [true, false] {
        let server = Running(builder(Driver::Epoll, 1).request_heads(heads).serve(|| Curious).expect("a server"));
        let session = begin(server.0.local_addr());
        let mut wire = Wire::to(server.0.local_addr());
        let other = PARENT.replace('4', "5");
        let mut known = |field: &str, params: Value| {
            let more = if field.is_empty() { String::new() } else { format!("Traceparent: {field}\r\n") };
            wire.send(&flavoured(Some(&session), &request(1, "anything", params), &more));
            wire.answer().json()["result"]["traceparent"].clone()
        };
        assert_eq!(known("", json!({})), Value::Null);
        assert_eq!(known(PARENT, json!({})), PARENT);
        assert_eq!(known("", json!({ "_meta": { "traceparent": PARENT } })), PARENT);
        assert_eq!(known(&other, json!({ "_meta": { "traceparent": PARENT } })), PARENT);
        assert_eq!(known("00-xyz", json!({ "_meta": { "traceparent": 7 } })), Value::Null);
    }
}

/// A span that was opened: its name, its fields, its parent's name.
type Opened = (String, BTreeMap<String, String>, Option<String>);

/// An event: its message, and the name of the span that it was in.
type Said = (String, Option<String>);

/// Keeps every span of ours, and in which span each of the test's events was.
#[derive(Clone, Default)]
struct Listener {
    opened: Arc<Mutex<Vec<Opened>>>,
    events: Arc<Mutex<Vec<Said>>>,
}

struct Fields<'a>(&'a mut BTreeMap<String, String>);

impl Visit for Fields<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
        self.0.insert(field.name().to_owned(), format!("{value:?}").trim_matches('"').to_owned());
    }
}

impl<S: tracing::Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Listener {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Where<'_, S>) {
        let span = context.span(id).expect("a span");
        if span.metadata().target() == "rejoin::call" {
            let mut fields = BTreeMap::new();
            attributes.record(&mut Fields(&mut fields));
            let parent = span.parent().map(|parent| parent.name().to_owned());
            self.opened.lock().expect("unpoisoned").push((span.name().to_owned(), fields, parent));
        }
    }

    fn on_record(&self, _: &Id, values: &Record<'_>, _: Where<'_, S>) {
        if let Some((_, fields, _)) = self.opened.lock().expect("unpoisoned").last_mut() {
            values.record(&mut Fields(fields));
        }
    }

    fn on_event(&self, event: &tracing::Event<'_>, context: Where<'_, S>) {
        let mut fields = BTreeMap::new();
        event.record(&mut Fields(&mut fields));
        let within = context.event_span(event).map(|span| span.name().to_owned());
        let message = fields.remove("message").unwrap_or_default();
        self.events.lock().expect("unpoisoned").push((message, within));
    }
}

/// Makes one call of a server under this listener, and gives the spans that it left.
fn spans_of(serve: impl FnOnce() -> Running, listener: &Listener) -> Vec<Opened> {
    let server = serve();
    let session = begin(server.0.local_addr());
    let mut wire = Wire::to(server.0.local_addr());
    let params = json!({ "_meta": { "traceparent": PARENT } });
    wire.call(&session, &"m".repeat(100), params);
    drop(server);
    std::mem::take(&mut *listener.opened.lock().expect("unpoisoned"))
}

/// The one test of this process that listens.
#[test]
fn each_session_and_each_call_has_a_span_wherever_its_handler_runs() {
    let listener = Listener::default();
    let subscriber = tracing_subscriber::registry().with(listener.clone());
    let dispatch = tracing::Dispatch::new(subscriber);
    // Where there has been one subscriber alone, tracing asks only that of the thread that comes to a span first: a shard of another test
    // has none, and would switch the span off for all.
    let _another = tracing::Dispatch::new(tracing_subscriber::registry());
    let here = dispatch.clone();
    // A factory runs on its shard's thread, before anything happens there.
    let listen = move || {
        std::mem::forget(tracing::dispatcher::set_default(&here));
        Curious
    };
    let there = dispatch.clone();
    let sent = Sent::new(Curious, move |work| {
        let there = there.clone();
        std::thread::spawn(move || tracing::dispatcher::with_default(&there, || pollster::block_on(work)));
    });
    let on_shard = spans_of(|| Running(builder(Driver::Epoll, 1).serve(listen.clone()).expect("a server")), &listener);
    let elsewhere = spans_of(
        || {
            let set = move || {
                listen();
                sent.clone()
            };
            Running(builder(Driver::Epoll, 1).serve(set).expect("a server"))
        },
        &listener,
    );
    for spans in [on_shard, elsewhere] {
        let names: Vec<_> = spans.iter().map(|(name, _, parent)| (name.as_str(), parent.as_deref())).collect();
        assert_eq!(names, [("session", None), ("call", Some("session")), ("call", Some("session"))]);
        assert_eq!((spans[1].1["method"].as_str(), spans[1].1.get("traceparent")), ("initialize", None));
        let call = &spans[2].1;
        assert_eq!((call["method"].len(), call["traceparent"].as_str()), (64, PARENT));
        assert_eq!(call["session"], spans[0].1["session"]);
    }
    let events = listener.events.lock().expect("unpoisoned").clone();
    for said in ["on the shard", "elsewhere"] {
        assert!(events.contains(&(said.to_owned(), Some("call".to_owned()))), "{said}: {events:?}");
    }
}

#[test]
fn a_servers_end_can_be_awaited_without_blocking() {
    let (server, ..) = desk(builder(Driver::Epoll, 2));
    let handle = server.0.clone();
    let mut ended = pin!(handle.ended());
    assert_eq!(ended.as_mut().poll(&mut Context::from_waker(Waker::noop())), Poll::Pending);
    handle.shutdown(Duration::ZERO);
    pollster::block_on(ended);
    pollster::block_on(handle.ended());
}
