//! One session's surroundings: a server, what breaks it, and the way that a client takes to it.
//!
//! Everything that goes wrong here goes wrong at a message, not at a time: the proxy holds what passes until the server is in the state
//! that the scenario is about. Never judges.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use rejoin_tests::check::{place, soon};
use rejoin_tests::matrix::Flavour;
use rejoin_tests::nginx::Nginx;
use rejoin_tests::proxy::{Asked, Cut, Done, How, Passing, Proxy, Record, Target, Watch};
use rejoin_tests::server::Rejoin;
use rejoin_tests::session::{NOVEMBER, Session, call, executions, fresh_key, request};
use rejoin_tests::wire::{Request, ask};
use serde_json::{Value, json};
use tempfile::TempDir;

/// Ticks of the call that things happen to.
pub(crate) const TICKS: u64 = 100;

/// Between two of them, in milliseconds: the call takes a second, several times what a client is away after a cut.
const INTERVAL_MS: u64 = 10;

/// Messages of a stream that pass before it is cut, or cut again.
const BEFORE_CUT: usize = 10;

/// How long a client's program waits for a call, in milliseconds. What takes that long is told as waiting for ever: all else takes a tenth of it.
pub(crate) const TIMEOUT_MS: u64 = 20_000;

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Scenario {
    /// Nothing.
    Calls,
    /// The call's stream is reset.
    Cut,
    /// So is the stream that resumed it.
    CutAgain,
    /// While the client is away, events that it has not seen go; the result stays.
    Evicted,
    /// The result goes too.
    Lost,
    /// The session expires before the second call.
    Expired,
    /// The session is deleted while the client is away from its call.
    Gone,
    /// The server is killed while the client is away from its call, and another takes its place.
    Restart,
}

impl Scenario {
    /// All of them.
    pub(crate) const ALL: [Self; 8] =
        [Self::Calls, Self::Cut, Self::CutAgain, Self::Evicted, Self::Lost, Self::Expired, Self::Gone, Self::Restart];

    fn options(self) -> &'static [&'static str] {
        match self {
            // What is evicted is what comes right after the cut, and only once the call has gone on for long: a client that is slow to begin
            // has lost nothing yet.
            Self::Evicted => &["--stream-events", "80"],
            Self::Lost => &["--event-ttl", "3s", "--result-ttl", "3s"],
            Self::Expired => &["--session-ttl", "8s"],
            _ => &[],
        }
    }

    /// How often a stream of the call is cut.
    pub(crate) fn cuts(self, reader: Reader) -> usize {
        match self {
            Self::Calls => 0,
            Self::Expired => usize::from(reader == Reader::Events),
            Self::CutAgain => 2,
            _ => 1,
        }
    }
}

/// The newest revision, which has no sessions.
pub(crate) const STATELESS: &str = "2026-07-28";

/// How a client reaches the server, and what they speak.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Way {
    /// Through the proxy that watches, and cuts by RST.
    Direct,
    /// Through nginx behind that proxy; a cut is a worker that is killed.
    Nginx,
    /// As `Direct`, but without a session.
    Stateless,
}

impl Way {
    /// All of them.
    pub(crate) const ALL: [Self; 3] = [Self::Direct, Self::Nginx, Self::Stateless];

    /// Whether something like this can happen on it: without sessions and cursors, little can.
    pub(crate) fn has(self, scenario: Scenario) -> bool {
        self != Self::Stateless || matches!(scenario, Scenario::Calls | Scenario::Cut | Scenario::Restart)
    }
}

/// What a client is, as far as the watch must know.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Reader {
    /// It calls by itself, and reads the answer.
    Calls,
    /// It only reads: somebody else calls, and hands it a cursor.
    Events,
}

/// What a proxy's watch knows of its bed.
struct Life {
    scenario: Scenario,
    reader: Reader,
    keys: [String; 2],
    key_file: PathBuf,
    server: Mutex<Option<Rejoin>>,
    target: Target,
    /// Set once, and there until the bed goes.
    nginx: OnceLock<Mutex<Option<Nginx>>>,
    /// How often nginx's worker was killed.
    killed: (Mutex<usize>, Condvar),
    restarted: OnceLock<Instant>,
    /// Whether GETs of the expired session are held, and whether they need not be any longer.
    holding: AtomicBool,
    over: (Mutex<bool>, Condvar),
}

/// Why a bed's processes are there.
const THERE: &str = "there until the bed goes";

fn start(scenario: Scenario, key_file: &str) -> Rejoin {
    let common = ["--retry", "200ms", "--admin", "127.0.0.1:0", "--key-file", key_file];
    Rejoin::start(Flavour { driver: "auto", shards: 2 }, &[&common, scenario.options()].concat())
}

fn locked<T>(of: &Mutex<T>) -> MutexGuard<'_, T> {
    // A test that failed has said so already.
    of.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Life {
    /// A figure of the server's, summed over its shards.
    fn figure(&self, name: &str, label: &str) -> f64 {
        let admin = locked(&self.server).as_ref().expect(THERE).admin();
        let answer = ask(admin, &Request::new("GET", admin).target("/metrics"));
        let text = String::from_utf8(answer.body).expect("text");
        let series = text.lines().filter(|line| line.starts_with(name) && line.contains(label));
        series.map(|line| line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).expect("a value")).sum()
    }

    fn calls_with(&self, asked: &Asked, at: usize) -> bool {
        asked.calls("tools/call") && String::from_utf8_lossy(&asked.body).contains(&format!("\"{}\"", self.keys[at]))
    }

    /// Whether it asks for the rest of the call's stream.
    fn comes_back(asked: &Asked, record: &Record) -> bool {
        record.cuts.first().is_some_and(|cut| returns_for(asked, cut))
    }

    fn plan(&self, asked: &Asked, record: &Record) -> Option<Cut> {
        let ours = match (record.cuts.len(), self.reader) {
            (0, Reader::Calls) => self.calls_with(asked, 0),
            (0, Reader::Events) => asked.cursor().is_some(),
            _ => Self::comes_back(asked, record),
        };
        let how = if self.nginx.get().is_some() { How::Behind } else { How::Reset };
        (ours && record.cuts.len() < self.scenario.cuts(self.reader)).then_some(Cut { after_messages: BEFORE_CUT, how })
    }

    fn await_expiry(&self) {
        soon("the session expires", || self.figure("rejoin_sessions_ended_total", "\"expired\"") >= 1.0);
    }

    fn delete_session(&self, passing: &Passing<'_>) {
        let id = passing.record().asked.iter().rev().find_map(|asked| asked.head.field("Mcp-Session-Id").map(str::to_owned));
        let address = locked(&self.server).as_ref().expect(THERE).address;
        let answer = ask(address, &Request::new("DELETE", address).with("Mcp-Session-Id", &id.expect("a session was used")));
        assert_eq!(answer.status(), 204, "{}", answer.head);
    }

    fn restart(&self) {
        self.target.replace(|| {
            let mut server = locked(&self.server);
            // The old one is killed as it is dropped, after the new one runs: so they have different ports.
            let next = start(self.scenario, self.key_file.to_str().expect("a path of ours"));
            let address = next.address;
            *server = Some(next);
            address
        });
        self.restarted.set(Instant::now()).expect("one restart");
    }

    /// The moment before a client that was cut off is answered, or before the second call of one that was not.
    fn hold(&self, asked: &Asked, passing: &Passing<'_>) {
        let back = Self::comes_back(asked, &passing.record());
        match self.scenario {
            Scenario::Evicted if back => soon("the call ends", || self.figure("rejoin_calls_in_flight", "") == 0.0),
            Scenario::Lost if back => soon("the result goes", || {
                self.figure("rejoin_calls_in_flight", "") == 0.0 && self.figure("rejoin_log_streams", "") == 0.0
            }),
            Scenario::Expired if back => self.await_expiry(),
            Scenario::Expired if self.calls_with(asked, 1) && !self.holding.swap(true, Ordering::SeqCst) => {
                passing.sever_others();
                self.await_expiry();
            }
            Scenario::Expired if asked.head.method() == "GET" && self.holding.load(Ordering::SeqCst) => {
                let session = |asked: &Asked| asked.head.field("Mcp-Session-Id").map(str::to_owned);
                let first = passing.record().asked.iter().find_map(session);
                if session(asked) == first {
                    let (over, told) = &self.over;
                    drop(told.wait_while(locked(over), |over| !*over));
                }
            }
            _ => {}
        }
    }
}

/// What the proxy asks; shared with the bed.
struct Watching(Arc<Life>);

impl Watch for Watching {
    fn plan(&self, asked: &Asked, record: &Record) -> Option<Cut> {
        self.0.plan(asked, record)
    }

    fn whole(&self, asked: &Asked, passing: &Passing<'_>) {
        self.0.hold(asked, passing);
    }

    fn cutting(&self, passing: &Passing<'_>) {
        // First, so that it passes on nothing of how the server ends the stream.
        if let Some(nginx) = self.0.nginx.get() {
            locked(nginx).as_mut().expect(THERE).kill_worker();
            *locked(&self.0.killed.0) += 1;
            self.0.killed.1.notify_all();
        }
        match self.0.scenario {
            Scenario::Gone => self.0.delete_session(passing),
            Scenario::Restart => self.0.restart(),
            _ => {}
        }
    }
}

/// What the proxy between nginx and the server does: where the stream is to break, it lets nothing more reach nginx until its worker is
/// gone. So nginx has not sent the rest already.
struct Withholding(Arc<Life>);

impl Watch for Withholding {
    fn plan(&self, asked: &Asked, record: &Record) -> Option<Cut> {
        self.0.plan(asked, record)
    }

    fn cutting(&self, passing: &Passing<'_>) {
        let (killed, told) = &self.0.killed;
        let cuts = passing.record().cuts.len();
        let waited = told.wait_timeout_while(locked(killed), PATIENCE, |killed| *killed < cuts);
        drop(waited.unwrap_or_else(PoisonError::into_inner));
    }
}

/// Whether a request asks for the rest of the stream that was cut here.
pub(crate) fn returns_for(asked: &Asked, cut: &Done) -> bool {
    let stream = |cursor: &str| (place(cursor).0, place(cursor).1);
    let both = asked.cursor().zip(cut.cursor.as_deref());
    asked.at >= cut.at && both.is_some_and(|(back, cut_off)| stream(back) == stream(cut_off))
}

/// A session's surroundings.
pub(crate) struct Bed {
    /// Where the client goes.
    pub(crate) front: Proxy,
    way: Way,
    life: Arc<Life>,
    _back: Option<Proxy>,
    _folder: TempDir,
}

/// What there was to see when a client was through.
pub(crate) struct Seen {
    /// What the client said of itself.
    pub(crate) said: Value,
    /// What passed.
    pub(crate) record: Record,
    /// The keys of the calls.
    pub(crate) keys: [String; 2],
    /// How often the server that is there last executed each call.
    pub(crate) executions: [u64; 2],
    /// When another server took the place of the first.
    pub(crate) restarted: Option<Instant>,
    /// Connections to the server, by its own count.
    pub(crate) connections: f64,
}

impl Bed {
    /// Makes a bed.
    pub(crate) fn make(scenario: Scenario, way: Way, reader: Reader) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let key_file = folder.path().join("key");
        let server = start(scenario, key_file.to_str().expect("a path of ours"));
        let target = Target::new(server.address);
        let life = Arc::new(Life {
            scenario,
            reader,
            keys: [fresh_key(), fresh_key()],
            key_file,
            server: Mutex::new(Some(server)),
            target: target.clone(),
            nginx: OnceLock::new(),
            killed: (Mutex::new(0), Condvar::new()),
            restarted: OnceLock::new(),
            holding: AtomicBool::new(false),
            over: (Mutex::new(false), Condvar::new()),
        });
        let watching = Watching(Arc::clone(&life));
        let (front, back) = match way {
            Way::Direct | Way::Stateless => (Proxy::watched(target, watching), None),
            Way::Nginx => {
                // nginx knows one address, whichever server is there.
                let back = Proxy::watched(target, Withholding(Arc::clone(&life)));
                let nginx = Nginx::before(back.address);
                let front = Proxy::watched(Target::new(nginx.address), watching);
                assert!(life.nginx.set(Mutex::new(Some(nginx))).is_ok(), "set once");
                (front, Some(back))
            }
        };
        Self { front, way, life, _back: back, _folder: folder }
    }

    /// Arguments of the calls.
    pub(crate) fn calls(&self) -> [Value; 2] {
        let [first, second] = &self.life.keys;
        let ticks = |count: u64, key: &str| json!({"count": count, "interval_ms": INTERVAL_MS, "payload_bytes": 10, "key": key});
        [ticks(TICKS, first), ticks(1, second)]
    }

    /// What a driver is told.
    pub(crate) fn order(&self) -> Value {
        let era = if self.way == Way::Stateless { STATELESS } else { "sessions" };
        json!({"url": self.front.url(), "era": era, "timeout_ms": TIMEOUT_MS, "calls": self.calls()})
    }

    /// The client is through, and said this.
    pub(crate) fn seen(&self, said: Value) -> Seen {
        self.release();
        let connections = self.life.figure("rejoin_connections_opened_total", "");
        let address: SocketAddr = locked(&self.life.server).as_ref().expect(THERE).address;
        let session = Session::begin(address, NOVEMBER);
        let once_more = |key: &String| {
            let arguments = json!({"count": 0, "interval_ms": 0, "payload_bytes": 0, "key": key});
            executions(&session.result(&call(key.as_str(), "ticker", arguments))) - 1
        };
        let executions = self.life.keys.each_ref().map(once_more);
        let record = std::mem::take(&mut *self.front.record());
        let restarted = self.life.restarted.get().copied();
        Seen { said, record, keys: self.life.keys.clone(), executions, restarted, connections }
    }

    fn release(&self) {
        *locked(&self.life.over.0) = true;
        self.life.over.1.notify_all();
    }
}

impl Drop for Bed {
    fn drop(&mut self) {
        self.release();
        // Threads of the proxies may still hold what they ask; the processes end now.
        drop(self.life.nginx.get().and_then(|nginx| locked(nginx).take()));
        drop(locked(&self.life.server).take());
    }
}

/// Whether the server offers the revision without sessions.
pub(crate) fn offers_stateless() -> bool {
    static OFFERS: OnceLock<bool> = OnceLock::new();
    *OFFERS.get_or_init(|| {
        let server = Rejoin::start(Flavour::PLAIN, &[]);
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": STATELESS,
            "io.modelcontextprotocol/clientInfo": {"name": "rejoin-tests", "version": "0"},
            "io.modelcontextprotocol/clientCapabilities": {},
        });
        let discover = request("discover", "server/discover", json!({"_meta": meta}));
        let asked = Request::post(server.address, &discover)
            .with("MCP-Protocol-Version", STATELESS)
            .with("Mcp-Method", "server/discover");
        let answer = ask(server.address, &asked);
        answer.status() == 200
            && answer.json()["result"]["supportedVersions"].as_array().is_some_and(|all| all.contains(&json!(STATELESS)))
    })
}

/// Longer than any client takes for all its scenarios, which go on at the same time.
pub(crate) const PATIENCE: Duration = Duration::from_secs(100);
