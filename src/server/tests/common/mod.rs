//! A client by hand, and a handler that does what its tests ask.

#![allow(dead_code, reason = "each test file uses its part")]

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Duration;

use rejoin::{Builder, Call, Cancelled, Driver, Ended, Handler, Json, Limits, Reply, RpcError, Server, ServerHandle, Session};
use serde_json::{Value, json};

/// The drivers that work here; says so when one does not.
pub(crate) fn drivers() -> Vec<Driver> {
    let works = |driver: &Driver| {
        let tried = Server::builder().shards(1).driver(*driver).serve(|| Desk::new().0);
        match tried {
            Ok(server) => {
                server.shutdown(Duration::ZERO);
                server.wait();
                true
            }
            Err(error) => {
                eprintln!("not tested here: {driver:?} ({error})");
                false
            }
        }
    };
    [Driver::Epoll, Driver::Uring].into_iter().filter(works).collect()
}

/// Limits for tests: little memory, short times.
pub(crate) fn limits() -> Limits {
    Limits { log_bytes: 8 << 20, close_grace: Duration::from_millis(500), ..Limits::default() }
}

/// A builder for tests.
pub(crate) fn builder(driver: Driver, shards: usize) -> Builder {
    Server::builder().driver(driver).shards(shards).limits(limits())
}

/// A server that ends with its test.
pub(crate) struct Running(pub(crate) ServerHandle);

impl Drop for Running {
    fn drop(&mut self) {
        self.0.shutdown(Duration::from_millis(100));
        self.0.wait();
    }
}

/// What a handler was told.
#[derive(Debug, PartialEq)]
pub(crate) enum Told {
    Notification(String),
    Cancelled(Cancelled),
    Dropped,
    Rotated,
    Closed(Ended),
    Call(u64),
}

/// A handler that does what a request's method says.
#[derive(Clone)]
pub(crate) struct Desk {
    tell: Sender<Told>,
    pub(crate) held: Sender<Call>,
}

impl Desk {
    pub(crate) fn new() -> (Self, Receiver<Told>, Receiver<Call>) {
        let ((tell, told), (held, calls)) = (channel(), channel());
        (Self { tell, held }, told, calls)
    }

    fn tell(&self, told: Told) {
        let _ = self.tell.send(told);
    }
}

/// Tells when a handler's future is dropped before its end.
struct OnDrop<'a>(&'a Desk);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.tell(Told::Dropped);
    }
}

impl Handler for Desk {
    async fn initialize(&self, _: &Session, params: &Json) -> Result<Json, RpcError> {
        let asked: Value = params.parse().map_err(RpcError::invalid_params)?;
        match asked["protocolVersion"].as_str() {
            Some("refused") => Err(RpcError::new(-32000, "not you")),
            Some("panic") => panic!("over an initialize"),
            version => {
                Ok(json!({ "protocolVersion": version, "capabilities": {}, "serverInfo": { "name": "desk", "version": "1" } })
                    .into())
            }
        }
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        let params: Value = call.params()?;
        let count = params["count"].as_u64().unwrap_or(1);
        match call.method() {
            "echo" => Ok(params.into()),
            "who" => Ok(json!(call.session().principal().as_str()).into()),
            "panic" => panic!("over a request"),
            "fail" => Err(RpcError::new(-32000, "no")),
            "wait" => {
                let _guard = OnDrop(self);
                rejoin::sleep(Duration::from_secs(3_600)).await;
                Ok(Value::Null.into())
            }
            "later" => {
                let _ = self.held.send(call.clone());
                Ok(Reply::Later)
            }
            "forget" => Ok(Reply::Later),
            "tick" => {
                for number in 1..=count {
                    call.notify("tick", json!({ "number": number })).await.map_err(RpcError::internal)?;
                    rejoin::sleep(Duration::from_millis(1)).await;
                }
                Ok(json!({ "ticks": count }).into())
            }
            "progress" => {
                let sent = call.progress(1.0, Some(2.0), Some("half")).await;
                Ok(json!({ "wanted": call.wants_progress(), "sent": sent.is_ok() }).into())
            }
            "standalone" => {
                let sent = call.session().notify("hello", ()).await.map_err(RpcError::internal)?;
                Ok(json!(format!("{sent:?}")).into())
            }
            "ask" => match call.request("roots/list", ()).await {
                Ok(roots) => Ok(json!({ "answered": roots.parse::<Value>().unwrap_or_default() }).into()),
                Err(error) => Ok(json!({ "failed": error.to_string() }).into()),
            },
            "large" => {
                Ok(Json::new(&"x".repeat(params["bytes"].as_u64().unwrap_or(0) as usize)).map_err(RpcError::internal)?.into())
            }
            "rotate" => {
                call.respond(json!("rotated")).await.map_err(RpcError::internal)?;
                call.session().rotate().await.map_err(RpcError::internal)?;
                Ok(Reply::Later)
            }
            "close" => {
                call.respond(json!("closed")).await.map_err(RpcError::internal)?;
                call.session().close().await.map_err(RpcError::internal)?;
                Ok(Reply::Later)
            }
            "compute" => {
                for _ in 0..count {
                    rejoin::yield_now().await;
                }
                Ok(json!("computed").into())
            }
            other => Err(RpcError::method_not_found(other)),
        }
    }

    async fn notification(&self, _: &Session, method: &str, _: Option<&Json>) {
        assert_ne!(method, "notifications/panic");
        self.tell(Told::Notification(method.to_owned()));
    }

    fn cancelled(&self, _: &Call, why: Cancelled) {
        self.tell(Told::Cancelled(why));
    }

    fn rotated(&self, _: &Session) {
        self.tell(Told::Rotated);
    }

    fn closed(&self, _: &Session, why: Ended) {
        self.tell(Told::Closed(why));
    }
}

/// One connection of a client.
pub(crate) struct Wire {
    pub(crate) stream: TcpStream,
    read: Vec<u8>,
}

/// An answer: its head, and its body unless it streams.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) head: String,
    pub(crate) body: String,
}

impl Answer {
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.head.lines().find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    pub(crate) fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap_or_else(|_| panic!("JSON: {self:?}"))
    }
}

impl Wire {
    pub(crate) fn to(address: SocketAddr) -> Self {
        let stream = TcpStream::connect(address).expect("connect");
        stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        stream.set_write_timeout(Some(Duration::from_secs(10))).expect("a time limit");
        Self { stream, read: Vec::new() }
    }

    pub(crate) fn send(&mut self, request: &str) {
        self.stream.write_all(request.as_bytes()).expect("write");
    }

    fn more(&mut self) -> io::Result<usize> {
        let mut buffer = [0; 16 << 10];
        let read = self.stream.read(&mut buffer)?;
        self.read.extend_from_slice(&buffer[..read]);
        Ok(read)
    }

    fn until(&mut self, end: &[u8]) -> Vec<u8> {
        loop {
            if let Some(at) = self.read.windows(end.len()).position(|window| window == end) {
                return self.read.drain(..at + end.len()).collect();
            }
            assert!(self.more().expect("read") > 0, "ended in {:?}", String::from_utf8_lossy(&self.read));
        }
    }

    fn exactly(&mut self, bytes: usize) -> Vec<u8> {
        while self.read.len() < bytes {
            assert!(self.more().expect("read") > 0, "ended early");
        }
        self.read.drain(..bytes).collect()
    }

    /// The next answer's head, and its body if it has a length.
    pub(crate) fn answer(&mut self) -> Answer {
        let head = String::from_utf8(self.until(b"\r\n\r\n")).expect("a head");
        let status = head.split(' ').nth(1).and_then(|status| status.parse().ok()).expect("a status");
        let mut answer = Answer { status, head, body: String::new() };
        if let Some(length) = answer.field("content-length").map(|length| length.parse().expect("a length")) {
            answer.body = String::from_utf8(self.exactly(length)).expect("text");
        }
        answer
    }

    /// The next chunk of a streamed body; empty at its clean end.
    pub(crate) fn chunk(&mut self) -> String {
        let size = String::from_utf8(self.until(b"\r\n")).expect("a size");
        let size = usize::from_str_radix(size.trim(), 16).expect("hexadecimal");
        let mut chunk = self.exactly(size + 2);
        chunk.truncate(size);
        String::from_utf8(chunk).expect("text")
    }

    /// Chunks until one holds `what`; everything read.
    pub(crate) fn stream_until(&mut self, what: &str) -> String {
        let mut all = String::new();
        while !all.contains(what) {
            let chunk = self.chunk();
            assert!(!chunk.is_empty(), "ended without {what}: {all}");
            all += &chunk;
        }
        all
    }

    /// Chunks to the clean end.
    pub(crate) fn rest(&mut self) -> String {
        let mut all = String::new();
        loop {
            let chunk = self.chunk();
            if chunk.is_empty() {
                return all;
            }
            all += &chunk;
        }
    }

    /// Whether the connection is closed by the server.
    pub(crate) fn closed(&mut self) -> bool {
        loop {
            match self.more() {
                Ok(0) => return true,
                Ok(_) => {}
                Err(error) => return error.kind() == io::ErrorKind::ConnectionReset,
            }
        }
    }

    pub(crate) fn post(&mut self, session: Option<&str>, body: &Value) -> Answer {
        self.send(&post(session, body));
        self.answer()
    }

    /// A request's answer, whether it came as JSON or streamed.
    pub(crate) fn call(&mut self, session: &str, method: &str, params: Value) -> Value {
        let answer = self.post(Some(session), &request(1, method, params));
        assert_eq!(answer.status, 200, "{answer:?}");
        if answer.field("content-type") == Some("application/json") {
            return answer.json();
        }
        let stream = self.rest();
        let last = stream.lines().rev().find_map(|line| line.strip_prefix("data: ")).expect("an event");
        serde_json::from_str(last).expect("JSON")
    }
}

pub(crate) fn request(id: u64, method: &str, params: Value) -> Value {
    json!({ "jsonrpc": "2.0", "id": id, "method": method, "params": params })
}

pub(crate) fn post(session: Option<&str>, body: &Value) -> String {
    let body = body.to_string();
    let session = session.map(|id| format!("Mcp-Session-Id: {id}\r\n")).unwrap_or_default();
    format!(
        "POST /mcp HTTP/1.1\r\nHost: localhost\r\n{session}Content-Type: application/json\r\n\
         Accept: application/json, text/event-stream\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}

pub(crate) fn get(session: &str, cursor: Option<&str>) -> String {
    let cursor = cursor.map(|id| format!("Last-Event-ID: {id}\r\n")).unwrap_or_default();
    format!("GET /mcp HTTP/1.1\r\nHost: localhost\r\nMcp-Session-Id: {session}\r\n{cursor}Accept: text/event-stream\r\n\r\n")
}

/// Begins and confirms a session.
pub(crate) fn begin(address: SocketAddr) -> String {
    let mut wire = Wire::to(address);
    let answer = wire.post(None, &request(0, "initialize", json!({ "protocolVersion": "2025-11-25" })));
    assert_eq!(answer.status, 200, "{answer:?}");
    let session = answer.field("mcp-session-id").expect("a session").to_owned();
    let answer = wire.post(Some(&session), &json!({ "jsonrpc": "2.0", "method": "notifications/initialized" }));
    assert_eq!(answer.status, 202, "{answer:?}");
    session
}

/// A server with one desk for all shards.
pub(crate) fn desk(builder: Builder) -> (Running, Receiver<Told>, Receiver<Call>) {
    let (desk, told, calls) = Desk::new();
    let desk = Arc::new(std::sync::Mutex::new(desk));
    let server = builder.serve(move || desk.lock().expect("unpoisoned").clone()).expect("a server");
    (Running(server), told, calls)
}
