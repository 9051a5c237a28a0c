//! A small MCP server written from the boundary page alone, and broken variants of it: what an audit of servers must tell apart.
//!
//! Never a product, and never in step with the kernel: it shares no code with what it stands beside, holds everything behind one lock, and
//! takes a thread a connection and a thread a call. [`Fault`] lists what can be broken; without one, each row that shows on the wire is kept.

mod fault;
mod get;
mod http;
mod keys;
mod log;
mod post;
mod reply;
mod serve;
mod state;
mod tools;

use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

pub use fault::Fault;
use http::{Peer, Request, Unread};
use keys::Keys;
use reply::{METHODS, Refusal, Reply};
use serde_json::Value;
use serve::Plan;
use state::State;

/// Its bounds and its manners.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Events that a stream holds, its result apart: more than any burst of a test, so that only what means to overruns it.
    pub events_held: usize,
    /// Bytes of them: a session holds at most `results_held` times as many.
    pub bytes_held: usize,
    /// How long an event is held: longer than an outage.
    pub event_ttl: Duration,
    /// How long a session lives that nobody uses.
    pub session_ttl: Duration,
    /// The same of one that was never confirmed.
    pub unconfirmed_ttl: Duration,
    /// Finished streams of a session that are held with their results.
    pub results_held: usize,
    /// Finished streams of a session of which is held how they ended.
    pub tombstones: usize,
    /// Request ids that a session remembers.
    pub seen_ids: usize,
    /// How long a client should wait before it comes back, spread by a fifth.
    pub retry: Duration,
    /// How long a stream may say nothing before a comment shows whether its reader is there.
    pub keep_alive: Duration,
    /// Bearer tokens, each a principal; where there is none, everybody is the same one.
    pub tokens: Vec<String>,
    /// The secret that ids and cursors are tagged with; a random one where there is none.
    pub secret: Option<[u8; 16]>,
    /// Where it listens, on loopback; 0 is any free port.
    pub port: u16,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            events_held: 1024,
            bytes_held: 512 << 10,
            event_ttl: Duration::from_secs(300),
            session_ttl: Duration::from_secs(1800),
            unconfirmed_ttl: Duration::from_secs(60),
            results_held: 64,
            tombstones: 256,
            seen_ids: 4096,
            retry: Duration::from_secs(3),
            keep_alive: Duration::from_secs(15),
            tokens: Vec::new(),
            secret: None,
            port: 0,
        }
    }
}

/// Connections at a time, each of which is a thread: more than an audit opens.
const CONNECTIONS: usize = 1024;

/// A running server.
#[derive(Debug)]
pub struct BoundaryServer {
    /// Where it listens.
    pub address: SocketAddr,
    life: Life,
}

/// One process's life, as its clients see it.
#[derive(Debug)]
struct Life {
    address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

/// What all its threads share.
#[derive(Debug)]
struct Shared {
    fault: Option<Fault>,
    settings: Settings,
    keys: Keys,
    /// Tells this process's session ids from those of one that had the same secret.
    process: u32,
    state: Mutex<State>,
    said: Condvar,
    connections: AtomicUsize,
    over: AtomicBool,
}

/// What a request gets.
enum Answer {
    Whole(Reply),
    Stream(Plan),
}

/// A refusal, and the id of the request that it answers, if one was read.
struct Refused(Refusal, Option<Value>);

impl From<Refusal> for Refused {
    fn from(refusal: Refusal) -> Self {
        Self(refusal, None)
    }
}

/// So many random bits.
fn random() -> u128 {
    let mut bytes = [0; 16];
    getrandom::fill(&mut bytes).expect("the system has random bytes");
    u128::from_le_bytes(bytes)
}

impl BoundaryServer {
    /// Starts one with its usual settings.
    pub fn start(fault: Option<Fault>) -> Self {
        Self::start_with(fault, Settings::default())
    }

    /// Starts one.
    pub fn start_with(fault: Option<Fault>, mut settings: Settings) -> Self {
        settings.secret.get_or_insert_with(|| random().to_le_bytes());
        let life = Life::begin(fault, settings);
        Self { address: life.address, life }
    }

    /// Ends the process, as its clients see it, and starts it anew with the same secret at the same address. All its memory is gone.
    pub fn restart(&mut self) {
        let shared = Arc::clone(&self.life.shared);
        let settings = Settings { port: self.address.port(), ..shared.settings.clone() };
        self.life.end();
        self.life = Life::begin(shared.fault, settings);
    }

    /// Begins a new incarnation of a session: every stream ends, and pending calls get `outcome_unknown`.
    pub fn rotate(&self, session: &str) {
        self.life.shared.with_session(session, state::Session::rotate);
    }

    /// Loses the last events of each of a session's streams, as a log does that is restored from an older copy.
    pub fn lose_tail(&self, session: &str, count: u64) {
        self.life.shared.with_session(session, |session| session.lose_tail(count));
    }
}

impl Life {
    fn begin(fault: Option<Fault>, settings: Settings) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", settings.port)).expect("the port is free");
        let address = listener.local_addr().expect("bound");
        let shared = Arc::new(Shared {
            fault,
            keys: Keys::new(settings.secret.expect("set when the server began")),
            settings,
            process: random() as u32,
            state: Mutex::default(),
            said: Condvar::new(),
            connections: AtomicUsize::new(0),
            over: AtomicBool::new(false),
        });
        let serving = Arc::clone(&shared);
        let acceptor = thread::spawn(move || {
            for socket in listener.incoming() {
                if serving.is_over() {
                    break;
                }
                let Ok(socket) = socket else { continue };
                if serving.connections.fetch_add(1, Ordering::Relaxed) >= CONNECTIONS {
                    serving.connections.fetch_sub(1, Ordering::Relaxed);
                    continue;
                }
                let shared = Arc::clone(&serving);
                thread::spawn(move || {
                    shared.serve(socket);
                    shared.connections.fetch_sub(1, Ordering::Relaxed);
                });
            }
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// Ends it, and waits for its connections, which are cut.
    fn end(&mut self) {
        let Some(acceptor) = self.acceptor.take() else { return };
        self.shared.over.store(true, Ordering::Relaxed);
        self.shared.said.notify_all();
        // One more connection wakes the acceptor.
        let _ = TcpStream::connect(self.address);
        let _ = acceptor.join();
        let until = Instant::now() + Duration::from_secs(5);
        while self.shared.connections.load(Ordering::Relaxed) > 0 && Instant::now() < until {
            thread::sleep(http::LOOK_UP);
        }
    }
}

impl Drop for Life {
    fn drop(&mut self) {
        self.end();
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().expect("no holder panics")
    }

    fn has(&self, fault: Fault) -> bool {
        self.fault == Some(fault)
    }

    fn is_over(&self) -> bool {
        self.over.load(Ordering::Relaxed)
    }

    /// Serves a connection to its end.
    fn serve(self: &Arc<Self>, socket: TcpStream) {
        let Ok(mut peer) = Peer::new(socket) else { return };
        let over = || self.is_over();
        loop {
            let request = match peer.request(&over) {
                Ok(request) => request,
                Err(Unread::Gone) => return,
                Err(Unread::Refused(refusal)) => {
                    let common = [("Cache-Control", "no-store".to_owned()), ("Connection", "close".to_owned())];
                    if peer.write(refusal.reply(None).bytes(&common, false).as_bytes(), &over).is_some() {
                        peer.farewell();
                    }
                    return;
                }
            };
            let common = self.common(&request);
            let answer = self.answer(&request).unwrap_or_else(|Refused(refusal, id)| Answer::Whole(refusal.reply(id.as_ref())));
            let written = match answer {
                Answer::Whole(reply) => peer.write(reply.bytes(&common, request.method == "HEAD").as_bytes(), &over),
                Answer::Stream(plan) => self.stream(&mut peer, plan, common, !request.old),
            };
            if written.is_none() {
                return;
            }
            if request.last() {
                return peer.farewell();
            }
        }
    }

    /// The fields that every answer to a request carries.
    fn common(&self, request: &Request) -> Vec<(&'static str, String)> {
        let mut common = Vec::new();
        if !self.has(Fault::Cacheable) {
            common.push(("Cache-Control", "no-store".to_owned()));
        }
        if request.last() {
            common.push(("Connection", "close".to_owned()));
        }
        if let [origin] = request.all("Origin")[..]
            && (self.has(Fault::AcceptsForeignOrigin) || is_local_origin(origin))
        {
            common.push(("Access-Control-Allow-Origin", origin.to_owned()));
            common.push(("Access-Control-Expose-Headers", "Mcp-Session-Id, Rejoin-Verdict, WWW-Authenticate".to_owned()));
            common.push(("Vary", "Origin".to_owned()));
        }
        common
    }

    /// Rows 0 to 2, and the method.
    fn answer(self: &Arc<Self>, request: &Request) -> Result<Answer, Refused> {
        match request.all("Host")[..] {
            [] if request.old => {}
            [host] => {
                if !is_local_host(host) && !self.has(Fault::AcceptsForeignHost) {
                    return Err(Refusal::Forbidden("this Host is not served").into());
                }
            }
            _ => return Err(Refusal::BadRequest("exactly one Host is needed").into()),
        }
        if !self.has(Fault::AcceptsForeignOrigin) && !request.all("Origin").into_iter().all(is_local_origin) {
            return Err(Refusal::Forbidden("this Origin is not allowed").into());
        }
        if request.target.split('?').next() != Some("/mcp") {
            return Err(Refusal::NotFound.into());
        }
        match request.method.as_str() {
            "OPTIONS" if !self.has(Fault::NoPreflight) => return Ok(Answer::Whole(preflight())),
            "GET" | "POST" | "DELETE" => {}
            _ => return Err(Refusal::MethodNotAllowed.into()),
        }
        let principal = self.principal(request)?;
        match request.method.as_str() {
            "GET" => Ok(self.get(request, &principal)?),
            "DELETE" => Ok(self.delete(request, &principal)?),
            _ => self.post(request, &principal),
        }
    }

    /// Row 2: who asks.
    fn principal(&self, request: &Request) -> Result<String, Refusal> {
        if self.settings.tokens.is_empty() {
            return Ok(String::new());
        }
        let [field] = request.all("Authorization")[..] else { return Err(Refusal::Unauthorized) };
        let (scheme, token) = field.split_once(' ').ok_or(Refusal::Unauthorized)?;
        let known = scheme.eq_ignore_ascii_case("bearer") && self.settings.tokens.iter().any(|known| known == token.trim());
        if known { Ok(token.trim().to_owned()) } else { Err(Refusal::Unauthorized) }
    }
}

/// What a browser asks before it sends what it would not send by itself.
fn preflight() -> Reply {
    let fields = "Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, MCP-Protocol-Version, Mcp-Session-Id";
    Reply::empty(204)
        .with("Allow", METHODS)
        .with("Access-Control-Allow-Methods", METHODS)
        .with("Access-Control-Allow-Headers", fields)
        .with("Access-Control-Max-Age", "600")
}

/// Row 1: loopback names and the bound address, which is one of them; any port.
fn is_local_host(host: &str) -> bool {
    let name = match host.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
        Some((name, port)) if port.is_empty() || is_port(port) => name,
        Some(_) => return false,
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        },
    };
    name.eq_ignore_ascii_case("localhost") || name.parse::<std::net::IpAddr>().is_ok_and(|address| address.is_loopback())
}

fn is_port(text: &str) -> bool {
    text.strip_prefix(':').is_some_and(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()))
}

fn is_local_origin(origin: &str) -> bool {
    origin.split_once("://").is_some_and(|(scheme, host)| matches!(scheme, "http" | "https") && is_local_host(host))
}
