//! One session of a storm, from its beginning to its end: it calls, is cut, comes back, and never sends a call a second time.
//!
//! Never judges what comes back: that is its oracle's.

mod calls;
mod drive;
mod ears;
mod forge;

use std::rc::Rc;
use std::time::{Duration, Instant};

use fastrand::Rng;
use rejoin_proto::client::{CallId, CallOptions, Client as Machine, ConnId, Input, Loss, Output, State};
use serde_json::{Map, Value, json};

use super::measure::{ErrorKind, Metric, Pace, Timing};
use super::net::{Conn, until};
use super::script::{Call, Forgery, Tool};
use super::thread::Thread;
use super::timeline::{self, Schedule, Trouble, What};
use super::truth::Fate;
use drive::{Heard, Until};
use ears::Ears;

/// How long a connection may take to come about.
const CONNECT: Duration = Duration::from_secs(10);
/// How long anything that is no call may take to be answered.
const ANSWER: Duration = Duration::from_secs(20);
/// How long a session waits before it comes back, where the server gave no `retry`.
const RETRY: Duration = Duration::from_secs(1);
/// The longest wait that back-off makes of it. Reason: a storm that waits for minutes measures nothing.
const RETRY_MAX: Duration = Duration::from_secs(5);
/// Calls that one session can number. Reason: a JSON number is exact up to 2⁵³, and so many sessions as a storm may have are 2²⁰.
const NUMBERS: u64 = 1 << 32;

/// A session.
pub(super) struct Client {
    thread: Rc<Thread>,
    /// Its number in the population.
    index: u32,
    rng: Rng,
    schedule: Schedule,
    /// The next of its troubles.
    next: usize,
    /// Decides what is sent.
    machine: Machine,
    /// What it asked for, and is not yet done.
    out: Vec<Output>,
    /// When it wishes to be told of the time.
    wake: Option<Instant>,
    /// Hears what comes.
    ears: Ears,
    /// Its connections: one, but for the moment in which it answers a request of the server beside a stream.
    conns: Vec<(ConnId, Conn)>,
    /// A connection that was silently cut: the server still has it.
    parked: Option<Conn>,
    /// Whether the server knows the session, as far as we know.
    alive: bool,
    /// The bound of requests was reached.
    stopped: bool,
    /// How the call's stream was last lost.
    lost: Option<Loss>,
    /// The server's last `retry`.
    retry: Option<Duration>,
    /// It may not come back before.
    gate: Option<Instant>,
    /// The cursor that it is to show before its own.
    forgery: Option<Forgery>,
    /// It reads so many bytes a second, until then.
    slow: Option<(usize, Instant)>,
    /// It is to be quiet until then.
    lapse: Option<Instant>,
    /// Calls so far.
    calls: u32,
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
        let slow_reader = schedule.troubles.iter().any(|trouble| matches!(trouble.what, What::Slow { .. }));
        Self {
            machine: Machine::new(thread.storm.target.config.clone()),
            ears: Ears::new(Rc::clone(&thread)),
            thread,
            index,
            rng,
            schedule,
            next: 0,
            out: Vec::new(),
            wake: None,
            conns: Vec::new(),
            parked: None,
            alive: false,
            stopped: false,
            lost: None,
            retry: None,
            gate: None,
            forgery: None,
            slow: None,
            lapse: None,
            calls: 0,
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
        self.ears.oracle.end_call();
        self.thread.tell(self.ears.oracle.take_found());
        self.thread.left.set(self.thread.left.get() - 1);
    }

    fn thread_has_room(&self) -> bool {
        !self.thread.storm.bounded.load(std::sync::atomic::Ordering::Relaxed)
    }

    /// Begins a session; whether it has begun.
    async fn begin(&mut self) -> bool {
        self.hang_up().await;
        self.session_over();
        self.machine = Machine::numbering_from(self.thread.storm.target.config.clone(), self.number(1));
        self.wake = None;
        let began = Instant::now();
        self.ears.wished = began;
        self.give(Input::Start).await;
        if self.listen(Until::Begun).await == Heard::Late {
            self.thread.record(|recorder| recorder.error(Instant::now(), ErrorKind::Timeout));
        }
        if self.machine.state() != State::Ready {
            return false;
        }
        (self.alive, self.ears.failures) = (true, 0);
        self.ears.oracle.session();
        let answered = self.ears.initialized;
        self.thread.record(|recorder| {
            recorder.latency(Metric::Initialize, Timing::unscheduled(began, answered), Pace::Unpaced);
            recorder.session_opened(Instant::now());
        });
        true
    }

    /// The number of the call that is so many behind the last one. No other call of the run has it.
    fn number(&self, ahead: u32) -> CallId {
        CallId((u64::from(self.index) + 1) * NUMBERS + u64::from(self.calls + ahead))
    }

    /// Makes one call, and sees it through.
    async fn call(&mut self) -> Over {
        self.catch_up().await;
        let began = Instant::now();
        let storm = Rc::clone(&self.thread);
        let call = timeline::call_at(&storm.storm.script, began.saturating_duration_since(storm.storm.origin));
        self.calls += 1;
        let (name, params) = self.request(call);
        self.ears.call(began, self.number(0), &name, call);
        self.thread.record(|recorder| recorder.call(began));
        let options = CallOptions::default();
        self.give(Input::Call { method: "tools/call", params: Some(params.as_bytes()), options }).await;
        let over = self.see_through(call).await;
        let fate = self.ears.oracle.fate().map_or(Fate::Open, |(_, fate)| fate);
        let now = Instant::now();
        match fate {
            Fate::Answered => {
                let every = call_length(call) + call.pause;
                self.thread.count(|tally| tally.answers += 1);
                self.thread
                    .record(|recorder| recorder.latency(Metric::Call, Timing::unscheduled(began, now), Pace::Closed { every }));
            }
            Fate::Failed => self.thread.record(|recorder| recorder.error(now, ErrorKind::CallFailed)),
            Fate::Open if self.ears.refused => {}
            Fate::Open | Fate::Unknown => self.thread.count(|tally| tally.unknown += 1),
        }
        self.thread.tell(self.ears.oracle.take_found());
        over
    }

    /// The name of a new call, and its params.
    fn request(&self, call: &Call) -> (String, String) {
        let name = format!("{}-{}-{}", self.thread.storm.nonce, self.index, self.calls);
        let (tool, arguments) = match &call.tool {
            Tool::Ticker(ticker) => {
                let mut arguments = Map::new();
                arguments.insert("count".into(), ticker.ticks.into());
                arguments.insert("interval_ms".into(), u64::try_from(ticker.interval.as_millis()).unwrap_or(u64::MAX).into());
                arguments.insert("payload_bytes".into(), ticker.payload.into());
                arguments.insert("key".into(), name.clone().into());
                ("ticker", Value::Object(arguments))
            }
            Tool::Other { name, arguments } => (name.as_str(), arguments.clone().into()),
        };
        let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": name } }).to_string();
        (name, params)
    }

    /// The wait between two calls; says whether the session lives.
    async fn pause(&mut self) -> bool {
        let pause = if self.ears.refused {
            self.back_off()
        } else {
            let since = Instant::now().saturating_duration_since(self.thread.storm.origin);
            timeline::call_at(&self.thread.storm.script, since).pause.mul_f64(0.5 + self.rng.f64())
        };
        self.rest(Instant::now() + pause).await;
        while let Some(until) = self.lapse.take() {
            self.hang_up().await;
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
                self.suffer(trouble).await;
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

    /// Lets a trouble happen; says whether it cut a connection.
    async fn suffer(&mut self, trouble: Trouble) -> bool {
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
                self.cut(how).await
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

    /// The wait before the next attempt, which grows with each failure in a row.
    fn back_off(&mut self) -> Duration {
        let first = self.retry.unwrap_or(RETRY);
        let grown = first.saturating_mul(1 << self.ears.failures.min(6)).min(RETRY_MAX.max(first));
        self.ears.failures += 1;
        grown.mul_f64(0.8 + 0.4 * self.rng.f64())
    }

    /// The session is over, as far as we know.
    fn session_over(&mut self) {
        if std::mem::take(&mut self.alive) {
            self.thread.record(|recorder| recorder.session_ended(Instant::now()));
        }
    }

    /// Says good-bye, so that the server need not keep what nobody comes back for.
    async fn end(&mut self) {
        self.next = self.schedule.troubles.len();
        if self.alive {
            self.give(Input::End).await;
            self.listen(Until::Ended).await;
            self.session_over();
        }
        self.unpark();
        self.hang_up().await;
    }
}

/// How long a call takes where nothing holds it up.
fn call_length(call: &Call) -> Duration {
    match &call.tool {
        Tool::Ticker(ticker) => ticker.interval.saturating_mul(ticker.ticks.saturating_sub(1)),
        Tool::Other { .. } => Duration::ZERO,
    }
}
