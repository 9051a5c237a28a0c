//! A client's session: the handshake done, and requests that carry its id and revision.
//!
//! Never decides what an answer should be; that is each test's own.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};

use serde_json::{Value, json};

use crate::sse::Block;
use crate::wire::{Answer, Request, Stream, ask, open};

/// The newest revision with sessions.
pub const NOVEMBER: &str = "2025-11-25";
/// The one before it, without opening events.
pub const JUNE: &str = "2025-06-18";
/// The oldest, with batches.
pub const MARCH: &str = "2025-03-26";

/// A JSON-RPC request.
pub fn request(id: impl Into<Value>, method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

/// A JSON-RPC notification.
pub fn notification(method: &str, params: Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// A `tools/call` request.
pub fn call(id: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    request(id, "tools/call", json!({"name": tool, "arguments": arguments}))
}

/// The same with a progress token.
pub fn call_with_token(id: impl Into<Value>, token: impl Into<Value>, tool: &str, arguments: Value) -> Value {
    let meta = json!({"progressToken": token.into()});
    request(id, "tools/call", json!({"name": tool, "arguments": arguments, "_meta": meta}))
}

/// An `initialize` request of a client that can do nothing.
pub fn initialize(id: impl Into<Value>, revision: &str) -> Value {
    initialize_able(id, revision, json!({}))
}

/// The same of a client that can do this.
pub fn initialize_able(id: impl Into<Value>, revision: &str, capabilities: Value) -> Value {
    let client = json!({"name": "rejoin-tests", "version": "0"});
    request(id, "initialize", json!({"protocolVersion": revision, "capabilities": capabilities, "clientInfo": client}))
}

/// A key for `ticker` that no other test uses.
pub fn fresh_key() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    format!("key-{}", NEXT.fetch_add(1, Ordering::Relaxed))
}

/// Arguments of a `ticker` that ticks so often, at this interval, without padding.
pub fn ticks(count: u64, interval_ms: u64) -> Value {
    json!({"count": count, "interval_ms": interval_ms, "payload_bytes": 0, "key": fresh_key()})
}

/// A session of a client.
#[derive(Clone, Debug)]
pub struct Session {
    /// Where its server listens.
    pub address: SocketAddr,
    /// Its `Mcp-Session-Id`.
    pub id: String,
    /// Its revision.
    pub revision: String,
    /// What the server said of itself.
    pub server: Value,
    /// Fields that every request carries besides.
    pub extra: Vec<(String, String)>,
}

impl Session {
    /// Initializes and confirms.
    pub fn begin(address: SocketAddr, revision: &str) -> Self {
        Self::begin_with(address, revision, &[])
    }

    /// The same with these fields on every request.
    pub fn begin_with(address: SocketAddr, revision: &str, extra: &[(&str, &str)]) -> Self {
        Self::unconfirmed(address, revision, extra).confirmed()
    }

    /// The same of a client that can do this.
    pub fn begin_able(address: SocketAddr, revision: &str, capabilities: Value) -> Self {
        Self::opened(address, revision, &[], &initialize_able("init", revision, capabilities)).confirmed()
    }

    /// Initializes only.
    pub fn unconfirmed(address: SocketAddr, revision: &str, extra: &[(&str, &str)]) -> Self {
        Self::opened(address, revision, extra, &initialize("init", revision))
    }

    fn confirmed(self) -> Self {
        let confirmed = self.tell(&notification("notifications/initialized", json!({})));
        assert_eq!(confirmed.status(), 202, "{}", confirmed.head);
        self
    }

    fn opened(address: SocketAddr, revision: &str, extra: &[(&str, &str)], initialize: &Value) -> Self {
        let extra: Vec<_> = extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        let mut asked = Request::post(address, initialize);
        for (name, value) in &extra {
            asked = asked.with(name, value);
        }
        let answer = ask(address, &asked);
        let result = result_of(&answer, &json!("init"));
        assert_eq!(result["protocolVersion"], revision, "{result}");
        let id = answer.head.field("Mcp-Session-Id").unwrap_or_else(|| panic!("no session in {}", answer.head));
        Self { address, id: id.to_owned(), revision: revision.to_owned(), server: result, extra }
    }

    /// The same session as a caller with other fields presents it.
    pub fn seen_by(&self, extra: &[(&str, &str)]) -> Self {
        let extra = extra.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        Self { extra, ..self.clone() }
    }

    /// A request of any kind, made one of this session.
    pub fn of(&self, request: Request) -> Request {
        let request = request.with("Mcp-Session-Id", &self.id).with("MCP-Protocol-Version", &self.revision);
        self.extra.iter().fold(request, |request, (name, value)| request.with(name, value))
    }

    /// A GET without a cursor.
    pub fn get(&self) -> Request {
        self.of(Request::get(self.address))
    }

    /// A GET with a cursor.
    pub fn get_after(&self, cursor: &str) -> Request {
        self.get().with("Last-Event-ID", cursor)
    }

    /// A POST of this message.
    pub fn post(&self, message: &Value) -> Request {
        self.of(Request::post(self.address, message))
    }

    /// A DELETE.
    pub fn delete(&self) -> Request {
        self.of(Request::new("DELETE", self.address))
    }

    /// Opens the standalone stream.
    pub fn listen(&self) -> Stream {
        open(self.address, &self.get())
    }

    /// Opens the stream of a cursor.
    pub fn resume(&self, cursor: &str) -> Stream {
        open(self.address, &self.get_after(cursor))
    }

    /// POSTs a message whose answer is a stream.
    pub fn call(&self, message: &Value) -> Stream {
        open(self.address, &self.post(message))
    }

    /// POSTs a message, and reads the whole answer.
    pub fn tell(&self, message: &Value) -> Answer {
        ask(self.address, &self.post(message))
    }

    /// The result of a request, as one JSON body or at the end of a stream.
    pub fn result(&self, message: &Value) -> Value {
        result_of(&self.tell(message), &message["id"])
    }
}

/// The messages in an answer's body: one JSON value, or the events of a whole stream.
pub fn messages_of(answer: &Answer) -> Vec<Value> {
    assert_eq!(answer.status(), 200, "{}{}", answer.head, String::from_utf8_lossy(&answer.body));
    if answer.head.field("Content-Type") != Some("text/event-stream") {
        return match answer.json() {
            Value::Array(messages) => messages,
            message => vec![message],
        };
    }
    let mut blocks = crate::sse::Blocks::default();
    let blocks: Vec<Block> = answer.body.iter().filter_map(|&byte| blocks.push(byte)).collect();
    blocks.iter().filter(|block| block.is_message()).map(Block::json).collect()
}

/// The result with this id in an answer.
pub fn result_of(answer: &Answer, id: &Value) -> Value {
    let messages = messages_of(answer);
    let found = messages.iter().find(|message| message["id"] == *id && message.get("method").is_none());
    let message = found.unwrap_or_else(|| panic!("no answer to {id} in {messages:?}"));
    message.get("result").unwrap_or_else(|| panic!("no result in {message}")).clone()
}

/// The number of a tick, in either shape of `ticker`; `None` for any other message.
pub fn tick(block: &Block) -> Option<u64> {
    if !block.is_message() {
        return None;
    }
    let message = block.json();
    let params = &message["params"];
    match message["method"].as_str()? {
        "notifications/progress" => params["progress"].as_f64().map(|progress| progress as u64),
        "notifications/message" => params["data"]["tick"].as_u64(),
        _ => None,
    }
}

/// The numbers of all ticks among these blocks, in order.
pub fn ticks_in(blocks: &[Block]) -> Vec<u64> {
    blocks.iter().filter_map(tick).collect()
}

/// What a `ticker` or `echo` result says, from a JSON-RPC response.
pub fn text_of(result: &Value) -> &str {
    result["content"][0]["text"].as_str().unwrap_or_else(|| panic!("no text in {result}"))
}

/// How often a `ticker`'s key was executed, according to its result.
pub fn executions(result: &Value) -> u64 {
    let text: Value = serde_json::from_str(text_of(result)).unwrap_or_else(|error| panic!("{error} in {result}"));
    text["executions"].as_u64().unwrap_or_else(|| panic!("no executions in {text}"))
}
