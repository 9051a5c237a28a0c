//! Small MCP servers of our own making, each with one forbidden outcome, and one with none: what a storm must tell apart.
//!
//! Never real servers: they know `initialize`, `ticker` and resumption, keep everything for ever, and take a thread a connection.

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use serde_json::{Value, json};

/// What a fake does wrong when a client comes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing.
    None,
    /// Nothing, but it holds few events, and says so by `resync`.
    Forgetful,
    /// It leaves out the event after the cursor.
    SilentGap,
    /// It sends the cursor's own event again.
    Duplicate,
    /// It swaps the two events after the cursor.
    Reorder,
    /// It goes on under ids that begin anew.
    RestartedIds,
    /// It sends an event of another session's call.
    ForeignEvent,
    /// It runs the call again.
    DoubleExecution,
    /// It never sends the result, and then says that all was said.
    LostResult,
    /// It ends the stream with nothing, again and again.
    EmptyEnds,
    /// It answers, and then says nothing any more.
    Hang,
    /// It takes any cursor for one of its own.
    TakesAnyCursor,
    /// It answers one call twice.
    SecondResult,
    /// It leaves nothing out, but its ids, which are of rejoin's shape, say that it does.
    SkipsPlaces,
}

/// Events that a forgetful fake holds of a stream.
const HELD: usize = 2;

/// A running fake.
#[derive(Debug)]
pub struct Fake {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Shared {
    fault: Fault,
    sessions: Mutex<HashMap<String, Vec<Stream>>>,
    said: Condvar,
    executions: Mutex<HashMap<String, u64>>,
    next: AtomicU64,
    requests: AtomicU64,
    over: AtomicBool,
}

/// One call's stream.
#[derive(Debug, Default)]
struct Stream {
    /// Each event's id and data; the first is the opening.
    events: Vec<(String, String)>,
    finished: bool,
    key: String,
}

/// A request as a fake reads it.
struct Request {
    method: String,
    session: Option<String>,
    cursor: Option<String>,
    body: Value,
}

impl Fake {
    /// Starts one.
    pub fn start(fault: Fault) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            fault,
            sessions: Mutex::default(),
            said: Condvar::new(),
            executions: Mutex::default(),
            next: AtomicU64::new(1),
            requests: AtomicU64::new(0),
            over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let acceptor = thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                if serving.over.load(Ordering::Relaxed) {
                    break;
                }
                let shared = Arc::clone(&serving);
                thread::spawn(move || shared.serve(stream));
            }
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Requests that came so far.
    pub fn requests(&self) -> u64 {
        self.shared.requests.load(Ordering::Relaxed)
    }
}

impl Drop for Fake {
    fn drop(&mut self) {
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.said.notify_all();
        // One more connection wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn read_request(reader: &mut BufReader<TcpStream>) -> Option<Request> {
    let mut line = String::new();
    reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
    let method = line.split(' ').next()?.to_owned();
    let (mut session, mut cursor, mut length) = (None, None, 0);
    loop {
        line.clear();
        reader.read_line(&mut line).ok().filter(|&read| read > 0)?;
        let Some((name, value)) = line.trim_end().split_once(':') else { break };
        let value = value.trim().to_owned();
        match name.to_ascii_lowercase().as_str() {
            "mcp-session-id" => session = Some(value),
            "last-event-id" => cursor = Some(value),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body).ok()?;
    Some(Request { method, session, cursor, body: serde_json::from_slice(&body).unwrap_or_default() })
}

fn answer(out: &mut TcpStream, status: &str, fields: &str, body: &str) -> Option<()> {
    let length = if status.starts_with("204") { String::new() } else { format!("Content-Length: {}\r\n", body.len()) };
    write!(out, "HTTP/1.1 {status}\r\n{fields}{length}\r\n{body}").ok()
}

fn chunk(out: &mut TcpStream, text: &str) -> Option<()> {
    write!(out, "{:x}\r\n{text}\r\n", text.len()).ok()
}

fn frame((id, data): &(String, String)) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

impl Shared {
    fn sessions(&self) -> MutexGuard<'_, HashMap<String, Vec<Stream>>> {
        self.sessions.lock().expect("no holder panics")
    }

    fn serve(self: &Arc<Self>, stream: TcpStream) {
        let Ok(mut out) = stream.try_clone() else { return };
        let mut reader = BufReader::new(stream);
        while let Some(request) = read_request(&mut reader) {
            self.requests.fetch_add(1, Ordering::Relaxed);
            if self.answer(&mut out, &request).is_none() || self.over.load(Ordering::Relaxed) {
                return;
            }
        }
    }

    /// Answers one request; `None` ends the connection.
    fn answer(self: &Arc<Self>, out: &mut TcpStream, request: &Request) -> Option<()> {
        if request.body["method"] == "initialize" {
            let id = format!("session-{}", self.next.fetch_add(1, Ordering::Relaxed));
            self.sessions().insert(id.clone(), Vec::new());
            let result = json!({"protocolVersion": "2025-11-25", "capabilities": {"tools": {}}, "serverInfo": {"name": "fake", "version": "0"}});
            let body = json!({"jsonrpc": "2.0", "id": request.body["id"], "result": result}).to_string();
            return answer(out, "200 OK", &format!("Content-Type: application/json\r\nMcp-Session-Id: {id}\r\n"), &body);
        }
        let Some(session) = request.session.as_ref().filter(|id| self.sessions().contains_key(*id)) else {
            return answer(out, "404 Not Found", "", "");
        };
        match request.method.as_str() {
            "DELETE" => {
                self.sessions().remove(session);
                answer(out, "204 No Content", "", "")
            }
            "GET" => self.resume(out, session, request.cursor.as_deref().unwrap_or_default()),
            _ if request.body["method"] == "tools/call" => {
                let number = self.begin(session, &request.body);
                self.send(out, session, number, 0)
            }
            _ => answer(out, "202 Accepted", "", ""),
        }
    }

    /// Begins a call, on a thread of its own.
    fn begin(self: &Arc<Self>, session: &str, call: &Value) -> usize {
        let arguments = call["params"]["arguments"].clone();
        let key = arguments["key"].as_str().unwrap_or_default().to_owned();
        *self.executions.lock().expect("no holder panics").entry(key.clone()).or_insert(0) += 1;
        let number = {
            let mut sessions = self.sessions();
            let streams = sessions.entry(session.to_owned()).or_default();
            streams.push(Stream { key: key.clone(), ..Stream::default() });
            streams.len() - 1
        };
        self.say(session, number, "");
        let (shared, session, id) = (Arc::clone(self), session.to_owned(), call["id"].clone());
        let token = call["params"]["_meta"]["progressToken"].clone();
        thread::spawn(move || {
            let count = arguments["count"].as_u64().unwrap_or(0);
            for tick in 1..=count {
                thread::sleep(Duration::from_millis(arguments["interval_ms"].as_u64().unwrap_or(0)));
                let params = json!({"progressToken": token, "progress": tick});
                shared.say(
                    &session,
                    number,
                    &json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string(),
                );
            }
            let executions = shared.executions.lock().expect("no holder panics").get(&key).copied();
            let text = json!({"ticks": count, "key": key, "executions": executions}).to_string();
            let result = json!({"jsonrpc": "2.0", "id": id, "result": {"content": [{"type": "text", "text": text}]}}).to_string();
            if shared.fault != Fault::LostResult {
                shared.say(&session, number, &result);
            }
            if shared.fault == Fault::SecondResult {
                shared.say(&session, number, &result);
            }
            if let Some(stream) = shared.sessions().get_mut(&session).map(|streams| &mut streams[number]) {
                stream.finished = true;
            }
            shared.said.notify_all();
        });
        number
    }

    fn say(&self, session: &str, number: usize, data: &str) {
        if let Some(stream) = self.sessions().get_mut(session).map(|streams| &mut streams[number]) {
            // An id that nobody guesses: it holds what only this process knows.
            let secret = std::ptr::from_ref(self).addr() ^ (number << 20) ^ stream.events.len();
            let at = stream.events.len();
            let id = match self.fault {
                Fault::SkipsPlaces => format!("1.{}.{}.{secret:016x}", number + 1, 2 * at),
                _ => format!("{session}.{number}.{at}.{secret:x}"),
            };
            stream.events.push((id, data.to_owned()));
        }
        self.said.notify_all();
    }

    /// Where a cursor stands: its stream, and how many events are before what follows it.
    fn find(&self, session: &str, cursor: &str) -> Option<(usize, usize)> {
        let sessions = self.sessions();
        let streams = sessions.get(session)?.iter().enumerate();
        let mut found = streams
            .filter_map(|(number, stream)| stream.events.iter().position(|(id, _)| id == cursor).map(|at| (number, at + 1)));
        found.next()
    }

    /// Answers a GET with a cursor, wrongly where that is this fake's fault.
    fn resume(&self, out: &mut TcpStream, session: &str, cursor: &str) -> Option<()> {
        let Some((number, at)) = self.find(session, cursor) else {
            if self.fault == Fault::TakesAnyCursor {
                answer_stream(out)?;
                return write!(out, "0\r\n\r\n").ok();
            }
            return answer(out, "400 Bad Request", "", "");
        };
        let (finished, said) =
            self.sessions().get(session).map(|streams| (streams[number].finished, streams[number].events.len()))?;
        if finished && at == said {
            return answer(out, "204 No Content", "", "");
        }
        match self.fault {
            Fault::SilentGap => self.send(out, session, number, at + 1),
            Fault::Duplicate => self.send(out, session, number, at.saturating_sub(1).max(1)),
            Fault::Hang => {
                answer_stream(out)?;
                while !self.over.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(50));
                    chunk(out, ":\n\n")?;
                }
                None
            }
            Fault::EmptyEnds => {
                answer_stream(out)?;
                write!(out, "0\r\n\r\n").ok()
            }
            Fault::DoubleExecution => {
                let key = self.sessions().get(session).map(|streams| streams[number].key.clone())?;
                *self.executions.lock().expect("no holder panics").entry(key).or_insert(0) += 1;
                self.send(out, session, number, at)
            }
            _ => self.send(out, session, number, at),
        }
    }

    /// Sends a stream from an event on, to its end.
    fn send(&self, out: &mut TcpStream, session: &str, number: usize, from: usize) -> Option<()> {
        answer_stream(out)?;
        let (mut at, resumed) = (from, from > 0);
        if resumed {
            self.prelude(out, session, number, &mut at)?;
        }
        loop {
            let (events, finished) = self.wait(session, number, at)?;
            for event in &events {
                // Ids that begin anew are those that the stream began with.
                let anew = self.fault == Fault::RestartedIds && resumed;
                let shown = anew.then(|| (self.id(session, number, at - from), event.1.clone()));
                chunk(out, &frame(shown.as_ref().unwrap_or(event)))?;
                at += 1;
            }
            if finished {
                return write!(out, "0\r\n\r\n").ok();
            }
        }
    }

    /// What a fake says first on a resumed stream.
    fn prelude(&self, out: &mut TcpStream, session: &str, number: usize, at: &mut usize) -> Option<()> {
        match self.fault {
            Fault::Forgetful => {
                let (events, _) = self.wait(session, number, *at)?;
                let lost = events.len().saturating_sub(HELD);
                if lost > 0 {
                    *at += lost;
                    let data = json!({"lost": lost, "unrecoverable": true, "reason": "evicted"});
                    let before = self.id(session, number, *at - 1);
                    chunk(out, &format!("event: resync\nid: {before}\ndata: {data}\n\n"))?;
                }
            }
            Fault::Reorder => {
                let (mut events, mut finished) = self.wait(session, number, *at)?;
                while events.len() < 2 && !finished {
                    thread::sleep(Duration::from_millis(5));
                    (events, finished) = self.wait(session, number, *at)?;
                }
                // The result is no tick: what comes behind it would be something else.
                if let [first, second, _, ..] = &events[..] {
                    chunk(out, &frame(second))?;
                    chunk(out, &frame(first))?;
                    *at += 2;
                }
            }
            Fault::ForeignEvent => {
                let foreign = {
                    let sessions = self.sessions();
                    let others = sessions.iter().filter(|(id, _)| *id != session).flat_map(|(_, streams)| streams);
                    others.filter_map(|stream| stream.events.get(1)).next().cloned()
                };
                if let Some(event) = foreign {
                    chunk(out, &frame(&event))?;
                }
            }
            _ => {}
        }
        Some(())
    }

    fn id(&self, session: &str, number: usize, at: usize) -> String {
        let sessions = self.sessions();
        let events = sessions.get(session).map(|streams| &streams[number].events);
        events.and_then(|events| events.get(at)).map(|(id, _)| id.clone()).unwrap_or_default()
    }

    /// Waits until there is an event at this place, or the stream's end.
    fn wait(&self, session: &str, number: usize, at: usize) -> Option<(Vec<(String, String)>, bool)> {
        let mut sessions = self.sessions();
        loop {
            let stream = &sessions.get(session)?[number];
            let events = stream.events.get(at..).unwrap_or_default();
            if !events.is_empty() || stream.finished {
                return Some((events.to_vec(), stream.finished));
            }
            if self.over.load(Ordering::Relaxed) {
                return None;
            }
            sessions = self.said.wait_timeout(sessions, Duration::from_millis(100)).expect("no holder panics").0;
        }
    }
}

fn answer_stream(out: &mut TcpStream) -> Option<()> {
    out.write_all(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\nc\r\nretry: 100\n\n\r\n",
    )
    .ok()
}
