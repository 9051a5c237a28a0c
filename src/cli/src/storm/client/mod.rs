//! One session of a storm, from its beginning to its end: it calls, is cut, comes back, and never sends a call a second time.
//!
//! Never judges what comes back: that is its oracle's.

mod come_back;
mod exchange;
mod forge;

use std::collections::VecDeque;
use std::rc::Rc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use serde_json::{Map, Value, json};

use super::measure::{ErrorKind, Metric, Pace, Timing};
use super::net::{Conn, until};
use super::script::{Call, Tool};
use super::target::Of;
use super::thread::Thread;
use super::timeline::{self, Schedule, Trouble, What};
use super::truth::{Expected, Fate, Oracle, Outcome, Sent};
use exchange::{Ended, Purpose};

/// The revision that a session asks for.
const REVISION: &str = "2025-11-25";
/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// How long anything that is no call may take to be answered.
const ANSWER: Duration = Duration::from_secs(20);
/// How long a session waits before it comes back, where the server gave no `retry`.
const RETRY: Duration = Duration::from_secs(1);
/// The longest wait that back-off makes of it. Reason: a storm that waits for minutes measures nothing.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Ids of a call that are kept to be shown as stale cursors.
const PAST: usize = 8;

/// A session.
pub(super) struct Client {
    thread: Rc<Thread>,
    /// Its number in the population.
    index: u32,
    rng: Rng,
    schedule: Schedule,
    /// The next of its troubles.
    next: usize,
    conn: Option<Conn>,
    /// A connection that was silently cut: the server still has it.
    parked: Option<Conn>,
    /// The server's name for it, while it lives.
    session: Option<Box<str>>,
    revision: Box<str>,
    oracle: Oracle,
    /// The server's last `retry`.
    retry: Option<Duration>,
    /// Failures in a row, which its waits grow with.
    failures: u32,
    /// It may not come back before.
    gate: Option<Instant>,
    /// It reads so many bytes a second, until then.
    slow: Option<(usize, Instant)>,
    /// It is to be quiet until then.
    lapse: Option<Instant>,
    /// Calls so far.
    calls: u32,
    /// The last id of the call's stream.
    cursor: Option<Box<str>>,
    /// Ids before it, the newest last.
    past: VecDeque<Box<str>>,
    /// When the call's tick 0 would have come, judged by the earliest tick yet.
    anchor: Option<Instant>,
    /// When the present stream was attached.
    attached: Instant,
    /// When the call's stream last said something.
    heard: Instant,
    /// Requests to come back in a row that were not answered at all.
    unheard: u32,
    /// Whether the present stream was come back to.
    resumed: bool,
    /// Whether the call was refused, or never sent: it did not run.
    refused: bool,
    /// Whether the script makes it a slow reader at some time: its sockets take in little.
    slow_reader: bool,
}

/// What became of a call.
enum Over {
    /// It is over, in one way or another.
    Done,
    /// The session is gone.
    SessionLost,
    /// So is the run.
    Stopped,
}

impl Client {
    pub(super) fn new(thread: Rc<Thread>, index: u32, schedule: Schedule) -> Self {
        let rng = Rng::with_seed(thread.storm.seed ^ u64::from(index).wrapping_mul(0xa076_1d64_78bd_642f));
        let attached = thread.storm.origin;
        let slow_reader = schedule.troubles.iter().any(|trouble| matches!(trouble.what, What::Slow { .. }));
        Self {
            thread,
            index,
            rng,
            schedule,
            next: 0,
            conn: None,
            parked: None,
            session: None,
            revision: REVISION.into(),
            oracle: Oracle::default(),
            retry: None,
            failures: 0,
            gate: None,
            slow: None,
            lapse: None,
            calls: 0,
            cursor: None,
            past: VecDeque::new(),
            anchor: None,
            attached,
            heard: attached,
            unheard: 0,
            resumed: false,
            refused: false,
            slow_reader,
        }
    }

    /// Lives.
    pub(super) async fn run(mut self) {
        until(self.thread.storm.at(self.schedule.begins)).await;
        let ends = self.thread.storm.ends();
        'sessions: while Instant::now() < ends {
            if !self.begin().await {
                if !self.thread_has_room() {
                    break;
                }
                let wait = self.back_off();
                self.rest(Instant::now() + wait).await;
                continue;
            }
            while Instant::now() < ends {
                match self.call().await {
                    Over::Done if self.pause().await => {}
                    Over::Done => continue 'sessions,
                    Over::SessionLost => continue 'sessions,
                    Over::Stopped => break 'sessions,
                }
            }
        }
        self.end().await;
        self.thread.tell(self.oracle.take_found());
        self.thread.left.set(self.thread.left.get() - 1);
    }

    fn thread_has_room(&self) -> bool {
        !self.thread.storm.bounded.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Initializes and confirms.
    async fn begin(&mut self) -> bool {
        self.session = None;
        let began = Instant::now();
        let params = json!({
            "protocolVersion": REVISION, "capabilities": {}, "clientInfo": { "name": "rejoin-storm", "version": env!("CARGO_PKG_VERSION") },
        });
        let body = json!({ "jsonrpc": "2.0", "id": "initialize", "method": "initialize", "params": params }).to_string();
        let request = self.thread.storm.target.post(Of::default(), &body);
        let (ended, answer) = self.exchange(&request, Purpose::Plain, began).await;
        let Some(head) = answer.head.filter(|head| head.status == 200 && !matches!(ended, Ended::Cut | Ended::Over)) else {
            return false;
        };
        let message: Value = serde_json::from_slice(&answer.message).unwrap_or_default();
        let Some(revision) = message["result"]["protocolVersion"].as_str() else {
            let bad = if message.get("error").is_some() { ErrorKind::CallFailed } else { ErrorKind::BadAnswer };
            self.thread.record(|recorder| recorder.error(Instant::now(), bad));
            return false;
        };
        self.revision = revision.into();
        self.session = head.session;
        self.oracle.session();
        let now = Instant::now();
        self.thread.record(|recorder| {
            recorder.latency(Metric::Initialize, Timing::unscheduled(began, now), Pace::Unpaced);
            recorder.session_opened(now);
        });
        let body = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
        let request = self.thread.storm.target.post(self.of(None), body);
        let (_, answer) = self.exchange(&request, Purpose::Plain, Instant::now()).await;
        let confirmed = answer.head.is_some_and(|head| (200..300).contains(&head.status));
        if confirmed {
            self.failures = 0;
        } else {
            self.session_over();
        }
        confirmed
    }

    /// The place of a request of this session.
    fn of<'a>(&'a self, cursor: Option<&'a str>) -> Of<'a> {
        Of { session: self.session.as_deref(), revision: Some(&self.revision), cursor }
    }

    /// Sends one call, and sees it through.
    async fn call(&mut self) -> Over {
        let began = Instant::now();
        let storm = Rc::clone(&self.thread);
        let call = timeline::call_at(&storm.storm.script, began.saturating_duration_since(storm.storm.origin));
        self.calls += 1;
        let (sent, body) = self.request(call);
        self.oracle.call(self.thread.ms(began), sent);
        (self.cursor, self.anchor, self.heard) = (None, None, began);
        self.past.clear();
        let request = self.thread.storm.target.post(self.of(None), &body);
        self.thread.record(|recorder| recorder.call(began));
        let over = self.see_through(&request, call).await;
        let fate = self.oracle.fate().map_or(Fate::Open, |(_, fate)| fate);
        let now = Instant::now();
        match fate {
            Fate::Answered => {
                let every = call_length(call) + call.pause;
                self.thread.count(|tally| tally.answers += 1);
                self.thread
                    .record(|recorder| recorder.latency(Metric::Call, Timing::unscheduled(began, now), Pace::Closed { every }));
            }
            Fate::Failed => self.thread.record(|recorder| recorder.error(now, ErrorKind::CallFailed)),
            Fate::Open if self.refused => {}
            Fate::Open | Fate::Unknown => self.thread.count(|tally| tally.unknown += 1),
        }
        self.thread.tell(self.oracle.take_found());
        over
    }

    /// The names of a new call, and its body.
    fn request(&self, call: &Call) -> (Sent, String) {
        let name = format!("{}-{}-{}", self.thread.storm.nonce, self.index, self.calls);
        let (tool, arguments, expected) = match &call.tool {
            Tool::Ticker(ticker) => {
                let mut arguments = Map::new();
                arguments.insert("count".into(), ticker.ticks.into());
                arguments.insert("interval_ms".into(), u64::try_from(ticker.interval.as_millis()).unwrap_or(u64::MAX).into());
                arguments.insert("payload_bytes".into(), ticker.payload.into());
                arguments.insert("key".into(), name.clone().into());
                ("ticker", arguments, Expected::Ticks { count: ticker.ticks, key: name.as_str().into() })
            }
            Tool::Other { name, arguments } => (name.as_str(), arguments.clone(), Expected::Anything),
        };
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": name } });
        let body = json!({ "jsonrpc": "2.0", "id": name, "method": "tools/call", "params": params }).to_string();
        (Sent { id: name.as_str().into(), token: name.as_str().into(), expected }, body)
    }

    /// The wait between two calls; says whether the session lives.
    async fn pause(&mut self) -> bool {
        let pause = if self.refused {
            self.back_off()
        } else {
            let since = Instant::now().saturating_duration_since(self.thread.storm.origin);
            timeline::call_at(&self.thread.storm.script, since).pause.mul_f64(0.5 + self.rng.f64())
        };
        self.rest(Instant::now() + pause).await;
        while let Some(until) = self.lapse.take() {
            self.close();
            let wished = self.rest(until).await;
            if !self.look_again(wished).await {
                return false;
            }
        }
        true
    }

    /// Waits, and lets happen meanwhile what the script says; a cut keeps it away for longer. Gives the instant that it waited for.
    async fn rest(&mut self, mut at: Instant) -> Instant {
        loop {
            at = self.gate.take().map_or(at, |gate| gate.max(at));
            until(self.trouble_at().map_or(at, |trouble| trouble.min(at))).await;
            if let Some(trouble) = self.due() {
                self.suffer(trouble);
            } else if Instant::now() >= at {
                return at;
            }
        }
    }

    /// When the next trouble is due.
    fn trouble_at(&self) -> Option<Instant> {
        self.schedule.troubles.get(self.next).map(|trouble| self.thread.storm.at(trouble.at))
    }

    /// The next trouble, if its time has come.
    fn due(&mut self) -> Option<Trouble> {
        let trouble = *self.schedule.troubles.get(self.next)?;
        if self.thread.storm.at(trouble.at) > Instant::now() {
            return None;
        }
        self.next += 1;
        Some(trouble)
    }

    /// Lets a trouble happen; says whether it cut the connection.
    fn suffer(&mut self, trouble: Trouble) -> bool {
        match trouble.what {
            What::Slow { rate, until } => {
                self.slow = Some((rate, self.thread.storm.at(until)));
                false
            }
            What::Lapse { until } => {
                self.lapse = Some(self.thread.storm.at(until));
                false
            }
            What::Cut { how, back, .. } => {
                if let Some(back) = back {
                    self.gate = Some(self.thread.storm.at(back));
                }
                let Some(conn) = self.conn.take() else { return false };
                let now = Instant::now();
                self.oracle.note(self.thread.ms(now), '*', format_args!("the script cuts the connection: {how:?}"));
                self.unpark();
                self.parked = conn.cut(how);
                self.thread.count(|tally| tally.cuts += 1);
                self.thread.record(|recorder| {
                    recorder.cut(now);
                    if self.parked.is_none() {
                        recorder.disconnected(now);
                    }
                });
                true
            }
        }
    }

    /// Gives up the connection that was silently cut.
    fn unpark(&mut self) {
        if let Some(parked) = self.parked.take() {
            parked.cut(timeline::Breaks::Rst);
            self.thread.record(|recorder| recorder.disconnected(Instant::now()));
        }
    }

    /// Closes the connection, if there is one.
    fn close(&mut self) {
        if self.conn.take().is_some() {
            self.thread.record(|recorder| recorder.disconnected(Instant::now()));
        }
    }

    /// The wait before the next attempt, which grows with each failure in a row.
    fn back_off(&mut self) -> Duration {
        let first = self.retry.unwrap_or(RETRY);
        let grown = first.saturating_mul(1 << self.failures.min(6)).min(RETRY_MAX.max(first));
        self.failures += 1;
        grown.mul_f64(0.8 + 0.4 * self.rng.f64())
    }

    /// The session is over, as far as we know.
    fn session_over(&mut self) {
        if self.session.take().is_some() {
            self.thread.record(|recorder| recorder.session_ended(Instant::now()));
        }
    }

    /// Says good-bye, so that the server need not keep what nobody comes back for.
    async fn end(&mut self) {
        if self.session.is_some() {
            let request = self.thread.storm.target.delete(self.of(None));
            self.next = self.schedule.troubles.len();
            self.exchange(&request, Purpose::Plain, Instant::now()).await;
            self.session_over();
        }
        self.unpark();
        self.close();
    }

    /// A violation that the oracle cannot see by itself.
    fn tell(&mut self, outcome: Outcome, text: String) {
        self.oracle.tell(outcome, text);
    }
}

/// How long a call takes where nothing holds it up.
fn call_length(call: &Call) -> Duration {
    match &call.tool {
        Tool::Ticker(ticker) => ticker.interval.saturating_mul(ticker.ticks.saturating_sub(1)),
        Tool::Other { .. } => Duration::ZERO,
    }
}
