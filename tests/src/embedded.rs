//! A server embedded in the test's own process, for what the command line cannot show: principals, a fixed key, small limits, and a handler
//! that asks its client, panics or never answers.
//!
//! The one module that knows the library's API.

use std::collections::HashMap;
use std::fmt;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rejoin::{
    Builder, Call, Driver, Ended, Handler, Head, Json, Principal, Reply, RpcError, Server, ServerHandle, Session, Unauthorized,
};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::matrix::Flavour;

/// The key that cursors and session ids are minted with in tests.
pub const KEY: [u8; 16] = *b"the tests' key..";

/// A running server; it ends with the value.
pub struct Embedded {
    /// Where it listens.
    pub address: SocketAddr,
    /// The embedder's handle.
    pub handle: ServerHandle,
    /// What its handlers were told.
    pub told: Told,
}

impl fmt::Debug for Embedded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.handle.fmt(f)
    }
}

impl Embedded {
    /// Starts a server of this flavour, its builder finished by `set_up`.
    pub fn start(on: Flavour, set_up: impl FnOnce(Builder) -> Builder) -> Self {
        let driver = if on.driver == "uring" { Driver::Uring } else { Driver::Epoll };
        let told = Told::default();
        let fixture = {
            let told = told.clone();
            move || Fixture { told: told.clone() }
        };
        let builder = set_up(Server::builder().driver(driver).shards(on.shards.into()));
        let handle = builder.serve(fixture).unwrap_or_else(|error| panic!("no server: {error}"));
        Self { address: handle.local_addr(), handle, told }
    }
}

impl Drop for Embedded {
    fn drop(&mut self) {
        self.handle.shutdown(Duration::ZERO);
        self.handle.wait();
    }
}

/// Callers by their bearer tokens: `alice-1` and `alice-2` are both alice.
pub fn by_token(head: &Head) -> Result<Principal, Unauthorized> {
    let token = head.single("Authorization").ok().flatten().and_then(|value| std::str::from_utf8(value).ok());
    let name = token.and_then(|token| token.strip_prefix("Bearer ")).and_then(|token| token.split_once('-'));
    match name {
        Some((name, _)) => Ok(Principal::new(name)),
        None => Err(Unauthorized { challenge: "Bearer realm=\"tests\"".into() }),
    }
}

/// What handlers were told, in order.
#[derive(Clone, Debug, Default)]
pub struct Told(Arc<Mutex<Log>>);

#[derive(Debug, Default)]
struct Log {
    lines: Vec<String>,
    executions: HashMap<String, u64>,
}

impl Told {
    fn note(&self, line: String) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lines.push(line);
    }

    fn count(&self, key: &str) -> u64 {
        let mut log = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let count = log.executions.entry(key.to_owned()).or_default();
        *count += 1;
        *count
    }

    /// The notes so far.
    pub fn lines(&self) -> Vec<String> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).lines.clone()
    }
}

/// The handler: a few tools, each for one kind of situation.
struct Fixture {
    told: Told,
}

#[derive(Deserialize)]
struct ToolCall {
    name: String,
    #[serde(default)]
    arguments: Value,
}

impl Handler for Fixture {
    async fn initialize(&self, _: &Session, params: &Json) -> Result<Json, RpcError> {
        let asked: Value = params.parse().map_err(RpcError::invalid_params)?;
        let changes = json!({"listChanged": true});
        Ok(Json::from(json!({
            "protocolVersion": asked["protocolVersion"],
            "capabilities": {"tools": changes, "prompts": changes, "resources": {"listChanged": true, "subscribe": true}},
            "serverInfo": {"name": "fixture", "version": "0"},
        })))
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        match call.method() {
            "tools/call" => self.tool(call).await,
            "ping" | "resources/subscribe" | "resources/unsubscribe" => Ok(json!({}).into()),
            other => Err(RpcError::method_not_found(other)),
        }
    }

    fn cancelled(&self, call: &Call, why: rejoin::Cancelled) {
        self.told.note(format!("cancelled {} {why:?}", call.method()));
    }

    fn closed(&self, _: &Session, why: Ended) {
        self.told.note(format!("closed {}", why.reason()));
    }
}

impl Fixture {
    async fn tool(&self, call: &Call) -> Result<Reply, RpcError> {
        let ToolCall { name, arguments } = call.params()?;
        let number = |name: &str| arguments[name].as_u64().unwrap_or_default();
        let failed = |error: rejoin::EmitError| RpcError::internal(error);
        match name.as_str() {
            "ticker" => {
                let executions = self.told.count(arguments["key"].as_str().unwrap_or_default());
                for tick in 1..=number("count") {
                    let data = json!({"tick": tick, "pad": ".".repeat(number("payload_bytes") as usize)});
                    call.notify("notifications/message", json!({"level": "info", "data": data})).await.map_err(failed)?;
                    rejoin::sleep(Duration::from_millis(number("interval_ms"))).await;
                }
                Ok(text(&json!({"executions": executions}).to_string()))
            }
            "broadcast" => {
                for tick in 1..=number("count") {
                    let params = json!({"level": "info", "data": {"tick": tick}});
                    call.session().notify("notifications/message", params).await.map_err(failed)?;
                }
                Ok(text("said"))
            }
            "ask" => match call.request("sampling/createMessage", json!({"messages": [], "maxTokens": 1})).await {
                Ok(answer) => Ok(text(&answer.to_string())),
                Err(error) => Ok(text(&format!("no answer: {error}"))),
            },
            "ask_aside" => match call.session().request("roots/list", json!({})).await {
                Ok(answer) => Ok(text(&answer.to_string())),
                Err(error) => Ok(text(&format!("no answer: {error}"))),
            },
            "hold" => {
                call.notify("notifications/message", json!({"level": "info", "data": "held"})).await.map_err(failed)?;
                std::future::pending().await
            }
            "block" => {
                // What a handler must not do.
                std::thread::sleep(Duration::from_millis(number("ms")));
                Ok(text("blocked"))
            }
            "panic" => panic!("a tool that panics"),
            other => Err(RpcError::invalid_params(format!("no tool {other}"))),
        }
    }
}

/// A tool's result of one text.
fn text(text: &str) -> Reply {
    json!({"content": [{"type": "text", "text": text}]}).into()
}
