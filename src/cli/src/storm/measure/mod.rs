//! What a storm's threads measure: each owns a [`Recorder`], and what they recorded is added up at the end.
//!
//! Never locks, never asks the time (instants are arguments), and never decides whether an answer was right.

mod latency;
mod live;
mod series;
mod tally;
mod terms;

use std::sync::Arc;
use std::time::{Duration, Instant};

pub(crate) use latency::{HIGHEST, Latency};
pub(crate) use live::{Live, Snapshot};
pub(crate) use series::{BUCKETS_MAX, Bucket, Gauge, Series};
pub(crate) use tally::Tally;
pub(crate) use terms::{ErrorKind, Flows, Metric, Pace, PerMetric, Timing, Violation};

/// Violations that a thread keeps with their transcripts; the rest is counted. Reason: a broken server violates at every answer.
const VIOLATIONS_OF_A_THREAD: usize = 16;
/// Violations kept of a whole run: as many as anybody reads.
pub(crate) const VIOLATIONS_MAX: usize = 64;
/// Bytes of a violation's text.
pub(crate) const TEXT_BYTES_MAX: usize = 4 << 10;
/// Bytes of a violation's transcript; its beginning is kept. Reason: it is put into reports that people read.
pub(crate) const TRANSCRIPT_BYTES_MAX: usize = 64 << 10;
/// Share of one core from which a thread counts as busy: above it, what it had to do waited for its turn.
const BUSY: f64 = 0.9;

/// How busy a thread was.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Busy {
    /// CPU time so far, and when that was read.
    cpu: Duration,
    read: Option<Instant>,
    /// Time in which it had more than its share of a core, of the time that was looked at.
    over: Duration,
    looked_at: Duration,
}

impl Busy {
    fn look(&mut self, at: Instant, cpu: Duration) {
        if let Some(before) = self.read {
            let passed = at.saturating_duration_since(before);
            let used = cpu.saturating_sub(self.cpu);
            self.looked_at += passed;
            if used.as_secs_f64() > BUSY * passed.as_secs_f64() {
                self.over += passed;
            }
        }
        (self.cpu, self.read) = (cpu, Some(at));
    }

    fn share(&self) -> f64 {
        if self.looked_at.is_zero() { 0.0 } else { self.over.as_secs_f64() / self.looked_at.as_secs_f64() }
    }
}

/// The CPU time that the calling thread has used.
pub(crate) fn thread_cpu_time() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ThreadCPUTime);
    Duration::try_from(time).unwrap_or_default()
}

/// A thread's measurements. Every instant is to be the latest yet; an earlier one counts as the latest.
#[derive(Debug)]
pub(crate) struct Recorder {
    live: Arc<Live>,
    busy: Busy,
    measured: Measured,
}

impl Recorder {
    /// Nothing recorded yet. `origin` is the run's beginning, the same for all threads; `live` is what progress reads of this one.
    pub(crate) fn new(origin: Instant, live: Arc<Live>) -> Self {
        Self { live, busy: Busy::default(), measured: Measured::new(origin) }
    }

    /// Something ended, and took its time.
    pub(crate) fn latency(&mut self, metric: Metric, timing: Timing, pace: Pace) {
        let Timing { intended, started, ended } = timing;
        let since_intended = ended.saturating_duration_since(intended);
        let measured = match pace {
            Pace::Open => ended.saturating_duration_since(started),
            Pace::Closed { .. } | Pace::Unpaced => since_intended,
        };
        let every = match pace {
            Pace::Closed { every } => Some(every),
            Pace::Open | Pace::Unpaced => None,
        };
        self.measured.latencies.get_mut(metric).record(since_intended, measured, every);
        if pace == Pace::Open {
            let late = started.saturating_duration_since(intended);
            self.measured.lag.record(late, late, None);
        }
        self.measured.series.latency(ended, metric, since_intended);
        if metric == Metric::TimeToResume {
            self.live.resumed(since_intended);
        }
    }

    /// A connection opened.
    pub(crate) fn connected(&mut self, at: Instant) {
        self.flow(at, |flows| flows.connects += 1);
        self.measured.series.connections(at, 1);
        self.live.connected();
    }

    /// A connection closed.
    pub(crate) fn disconnected(&mut self, at: Instant) {
        self.flow(at, |flows| flows.disconnects += 1);
        self.measured.series.connections(at, -1);
        self.live.disconnected();
    }

    /// A session began.
    pub(crate) fn session_opened(&mut self, at: Instant) {
        self.flow(at, |flows| flows.sessions_opened += 1);
        self.measured.series.sessions(at, 1);
        self.live.session_opened();
    }

    /// A session ended, as far as its client knows.
    pub(crate) fn session_ended(&mut self, at: Instant) {
        self.flow(at, |flows| flows.sessions_ended += 1);
        self.measured.series.sessions(at, -1);
        self.live.session_ended();
    }

    /// The script cut a connection.
    pub(crate) fn cut(&mut self, at: Instant) {
        self.flow(at, |flows| flows.cuts += 1);
    }

    /// A request to come back to a stream was sent.
    pub(crate) fn resume(&mut self, at: Instant, with_cursor: bool) {
        self.flow(at, |flows| {
            flows.resumes += 1;
            flows.resumes_with_cursor += u64::from(with_cursor);
        });
    }

    /// A call was sent.
    pub(crate) fn call(&mut self, at: Instant) {
        self.flow(at, |flows| flows.calls += 1);
        self.live.called();
    }

    /// Events arrived.
    pub(crate) fn events(&mut self, at: Instant, events: u64) {
        self.flow(at, |flows| flows.events += events);
        self.live.received(events);
    }

    /// Bytes were read.
    pub(crate) fn bytes_in(&mut self, at: Instant, bytes: u64) {
        self.flow(at, |flows| flows.bytes_in += bytes);
    }

    /// Bytes were written.
    pub(crate) fn bytes_out(&mut self, at: Instant, bytes: u64) {
        self.flow(at, |flows| flows.bytes_out += bytes);
    }

    /// The server decided: a word of `Rejoin-Verdict`, or what stands for one where a server says none (`http_503`).
    pub(crate) fn verdict(&mut self, at: Instant, kind: &str) {
        let index = self.measured.verdicts.count(kind, 1);
        self.measured.series.verdict(at, index);
        self.live.decided();
    }

    /// Something went wrong.
    pub(crate) fn error(&mut self, at: Instant, kind: ErrorKind) {
        let index = self.measured.errors.count(kind.name(), 1);
        self.measured.series.error(at, index);
        self.flow(at, |flows| flows.errors += 1);
        self.live.failed();
    }

    /// A promise was broken.
    pub(crate) fn violation(&mut self, at: Instant, mut violation: Violation) {
        self.measured.violations_by_name.count(&violation.name, 1);
        self.flow(at, |flows| flows.violations += 1);
        self.live.violated();
        if self.measured.violations.len() < VIOLATIONS_OF_A_THREAD {
            violation.at_ms = millis(at.saturating_duration_since(self.measured.origin));
            shorten(&mut violation.text, TEXT_BYTES_MAX);
            shorten(&mut violation.transcript, TRANSCRIPT_BYTES_MAX);
            self.measured.violations.push(violation);
        }
    }

    /// Time passed; `cpu` is all the CPU time of the thread so far.
    pub(crate) fn tick(&mut self, at: Instant, cpu: Duration) {
        self.busy.look(at, cpu);
        self.measured.series.advance(at);
    }

    /// All that was recorded.
    pub(crate) fn finish(mut self, at: Instant) -> Measured {
        self.measured.series.finish(at);
        self.measured.busiest = self.busy.share();
        (self.measured.peak_connections, self.measured.peak_sessions) = self.live.peaks();
        self.measured
    }

    fn flow(&mut self, at: Instant, change: impl Fn(&mut Flows)) {
        change(&mut self.measured.flows);
        change(self.measured.series.flows(at));
    }
}

/// What one thread recorded, or several together.
#[derive(Debug)]
pub(crate) struct Measured {
    origin: Instant,
    latencies: PerMetric<Latency>,
    /// How late scheduled things began.
    lag: Latency,
    flows: Flows,
    verdicts: Tally,
    errors: Tally,
    violations_by_name: Tally,
    violations: Vec<Violation>,
    series: Series,
    /// Most connections and sessions at once, of all threads.
    peak_connections: u64,
    peak_sessions: u64,
    /// Share of its time in which the busiest thread had no time to spare.
    busiest: f64,
}

impl Measured {
    fn new(origin: Instant) -> Self {
        Self {
            origin,
            latencies: PerMetric::default(),
            lag: Latency::default(),
            flows: Flows::default(),
            verdicts: Tally::default(),
            errors: Tally::default(),
            violations_by_name: Tally::default(),
            violations: Vec::new(),
            series: Series::new(origin),
            peak_connections: 0,
            peak_sessions: 0,
            busiest: 0.0,
        }
    }

    /// Both together, as if one thread had recorded them.
    pub(crate) fn merge(mut self, other: Self) -> Self {
        self.latencies.zip(other.latencies, |ours, theirs| ours.add(&theirs));
        self.lag.add(&other.lag);
        self.flows.add(&other.flows);
        self.series.add(other.series, &self.verdicts.add(&other.verdicts), &self.errors.add(&other.errors));
        self.violations_by_name.add(&other.violations_by_name);
        self.violations.extend(other.violations);
        self.violations.sort_by_key(|violation| violation.at_ms);
        self.violations.truncate(VIOLATIONS_MAX);
        self.peak_connections = self.peak_connections.max(other.peak_connections);
        self.peak_sessions = self.peak_sessions.max(other.peak_sessions);
        self.busiest = self.busiest.max(other.busiest);
        self
    }

    /// The latencies of a metric.
    pub(crate) fn latencies(&self, metric: Metric) -> &Latency {
        self.latencies.get(metric)
    }

    /// How late scheduled things began.
    pub(crate) const fn lag(&self) -> &Latency {
        &self.lag
    }

    /// What was counted.
    pub(crate) const fn flows(&self) -> &Flows {
        &self.flows
    }

    /// Verdicts by kind.
    pub(crate) const fn verdicts(&self) -> &Tally {
        &self.verdicts
    }

    /// Errors by kind.
    pub(crate) const fn errors(&self) -> &Tally {
        &self.errors
    }

    /// Violations by name.
    pub(crate) const fn violations_by_name(&self) -> &Tally {
        &self.violations_by_name
    }

    /// The first violations.
    pub(crate) fn violations(&self) -> &[Violation] {
        &self.violations
    }

    /// The same over time.
    pub(crate) const fn series(&self) -> &Series {
        &self.series
    }

    /// Most connections at once, of all threads.
    pub(crate) const fn peak_connections(&self) -> u64 {
        self.peak_connections
    }

    /// Most sessions at once, of all threads.
    pub(crate) const fn peak_sessions(&self) -> u64 {
        self.peak_sessions
    }

    /// Share of its time in which the busiest thread had no time to spare, 0 to 1.
    pub(crate) const fn busiest(&self) -> f64 {
        self.busiest
    }
}

/// Whole milliseconds.
pub(crate) fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// Keeps the beginning.
pub(crate) fn shorten(text: &mut String, bytes: usize) {
    if text.len() > bytes {
        text.truncate(text.floor_char_boundary(bytes));
        text.push('…');
    }
}

#[cfg(test)]
mod tests;
