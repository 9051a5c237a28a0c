//! The words of a measurement: what is timed, what is counted, what goes wrong.
//!
//! Never records anything.

use std::io;
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// What a latency is of. `docs/storm.md` says what each means.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Metric {
    /// From `connect` to a usable connection.
    Connect,
    /// From an `initialize` to its result.
    Initialize,
    /// From the wish to be back to the head of an answer with a verdict.
    TimeToResume,
    /// From the wish to be back to the first byte of the first event that was missed.
    TimeToFirstEvent,
    /// From when an event was due to its arrival, on a stream that was attached.
    Delivery,
    /// From when an event was due to its arrival by replay: the time away is part of it.
    DeliveryReplayed,
    /// From a call to its result.
    Call,
}

impl Metric {
    /// All of them, in the order of reports.
    pub(crate) const ALL: [Self; 7] = [
        Self::TimeToResume,
        Self::TimeToFirstEvent,
        Self::Delivery,
        Self::DeliveryReplayed,
        Self::Call,
        Self::Connect,
        Self::Initialize,
    ];

    /// Its word in reports and file names.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Initialize => "initialize",
            Self::TimeToResume => "time_to_resume",
            Self::TimeToFirstEvent => "time_to_first_event",
            Self::Delivery => "delivery",
            Self::DeliveryReplayed => "delivery_replayed",
            Self::Call => "call",
        }
    }
}

/// One value for each metric.
#[derive(Clone, Debug, Default)]
pub(crate) struct PerMetric<T>([T; Metric::ALL.len()]);

impl<T> PerMetric<T> {
    pub(crate) fn get(&self, metric: Metric) -> &T {
        &self.0[metric as usize]
    }

    pub(super) fn get_mut(&mut self, metric: Metric) -> &mut T {
        &mut self.0[metric as usize]
    }

    pub(super) fn zip(&mut self, other: Self, mut each: impl FnMut(&mut T, T)) {
        self.0.iter_mut().zip(other.0).for_each(|(ours, theirs)| each(ours, theirs));
    }
}

/// When something was meant to begin, began, and ended.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timing {
    pub(super) intended: Instant,
    pub(super) started: Instant,
    pub(super) ended: Instant,
}

impl Timing {
    /// Something that a schedule wanted at `intended`.
    pub(crate) const fn scheduled(intended: Instant, started: Instant, ended: Instant) -> Self {
        Self { intended, started, ended }
    }

    /// Something that no schedule wanted.
    pub(crate) const fn unscheduled(started: Instant, ended: Instant) -> Self {
        Self { intended: started, started, ended }
    }
}

/// What kept the pace of an operation, which decides how a stall is made up for (coordinated omission).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pace {
    /// A schedule that waits for nobody: latency counts from the intended instant, so nothing is omitted.
    Open,
    /// The answer before it: what would have been sent during a stall, had one been sent at each interval, is added.
    Closed {
        /// The interval of one client.
        every: Duration,
    },
    /// Nothing: as measured.
    Unpaced,
}

/// Why something did not come about. Never a refusal: that is a verdict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorKind {
    /// The server's machine refused the connection.
    ConnectRefused,
    /// No connection within the time for one.
    ConnectTimeout,
    /// No connection for another reason (unreachable, TLS).
    ConnectFailed,
    /// This machine has no descriptors, ports or memory left for one more connection.
    LocalExhausted,
    /// An open connection was reset.
    Reset,
    /// A connection ended before its answer did.
    ClosedEarly,
    /// No answer within the time for one.
    Timeout,
    /// A stream that stayed open though its call was answered: nothing more can come on it.
    LeftOpen,
    /// An answer that is not HTTP, SSE or JSON-RPC.
    BadAnswer,
    /// A JSON-RPC error where a result was due.
    CallFailed,
    /// Another error of a socket.
    Io,
}

impl ErrorKind {
    /// All of them.
    #[cfg(test)]
    pub(crate) const ALL: [Self; 11] = [
        Self::ConnectRefused,
        Self::ConnectTimeout,
        Self::ConnectFailed,
        Self::LocalExhausted,
        Self::Reset,
        Self::ClosedEarly,
        Self::Timeout,
        Self::LeftOpen,
        Self::BadAnswer,
        Self::CallFailed,
        Self::Io,
    ];

    /// Its word in reports.
    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::ConnectRefused => "connect_refused",
            Self::ConnectTimeout => "connect_timeout",
            Self::ConnectFailed => "connect_failed",
            Self::LocalExhausted => "local_exhausted",
            Self::Reset => "reset",
            Self::ClosedEarly => "closed_early",
            Self::Timeout => "timeout",
            Self::LeftOpen => "left_open",
            Self::BadAnswer => "bad_answer",
            Self::CallFailed => "call_failed",
            Self::Io => "io",
        }
    }

    /// The kind of what `connect` said.
    pub(crate) fn of_connect(error: &io::Error) -> Self {
        match Self::of(error) {
            Self::Timeout => Self::ConnectTimeout,
            Self::LocalExhausted => Self::LocalExhausted,
            Self::ConnectRefused => Self::ConnectRefused,
            _ => Self::ConnectFailed,
        }
    }

    /// The kind of what an open connection said.
    pub(crate) fn of(error: &io::Error) -> Self {
        use rustix::io::Errno;
        const EXHAUSTED: [Errno; 5] = [Errno::MFILE, Errno::NFILE, Errno::ADDRNOTAVAIL, Errno::NOBUFS, Errno::NOMEM];
        if Errno::from_io_error(error).is_some_and(|errno| EXHAUSTED.contains(&errno)) {
            return Self::LocalExhausted;
        }
        match error.kind() {
            io::ErrorKind::ConnectionRefused => Self::ConnectRefused,
            io::ErrorKind::TimedOut => Self::Timeout,
            io::ErrorKind::ConnectionReset | io::ErrorKind::ConnectionAborted | io::ErrorKind::BrokenPipe => Self::Reset,
            io::ErrorKind::UnexpectedEof => Self::ClosedEarly,
            _ => Self::Io,
        }
    }
}

/// What a storm counts, of a run or of a part of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Flows {
    /// Connections opened.
    pub(crate) connects: u64,
    /// Connections closed, by whichever side.
    pub(crate) disconnects: u64,
    /// Connections cut because the script said so.
    pub(crate) cuts: u64,
    /// Sessions that began.
    pub(crate) sessions_opened: u64,
    /// Sessions that ended, as far as their clients know.
    pub(crate) sessions_ended: u64,
    /// Requests sent to come back to a stream.
    pub(crate) resumes: u64,
    /// Those of them that presented a cursor.
    pub(crate) resumes_with_cursor: u64,
    /// Calls sent.
    pub(crate) calls: u64,
    /// Events that arrived.
    pub(crate) events: u64,
    /// Bytes read from sockets.
    pub(crate) bytes_in: u64,
    /// Bytes written to sockets.
    pub(crate) bytes_out: u64,
    /// Whatever went wrong, of all kinds.
    pub(crate) errors: u64,
    /// Broken promises, of all names.
    pub(crate) violations: u64,
}

impl Flows {
    pub(super) fn add(&mut self, other: &Self) {
        // Named one by one, so that a new one cannot be forgotten.
        let Self { connects, disconnects, cuts, sessions_opened, sessions_ended, resumes, resumes_with_cursor, .. } = other;
        let Self { calls, events, bytes_in, bytes_out, errors, violations, .. } = other;
        self.connects += connects;
        self.disconnects += disconnects;
        self.cuts += cuts;
        self.sessions_opened += sessions_opened;
        self.sessions_ended += sessions_ended;
        self.resumes += resumes;
        self.resumes_with_cursor += resumes_with_cursor;
        self.calls += calls;
        self.events += events;
        self.bytes_in += bytes_in;
        self.bytes_out += bytes_out;
        self.errors += errors;
        self.violations += violations;
    }
}

/// A promise of the resumption boundary that the server broke, with what shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Violation {
    /// Milliseconds since the run began; the recorder sets it.
    #[serde(default)]
    pub(crate) at_ms: u64,
    /// Which promise, in one word.
    pub(crate) name: String,
    /// What happened, in a sentence.
    pub(crate) text: String,
    /// What was sent and received, as it was.
    pub(crate) transcript: String,
}
