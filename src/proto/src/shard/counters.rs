//! What a shard counts, and a shard at one moment: for operators.
//!
//! Plain integers of the one owner that a shard has: an event costs an addition or two, and nobody else's memory is touched. A count by
//! reason has a place for every reason that there is. Never allocates, never decides anything.

use std::fmt;
use std::time::Duration;

use enum_map::{Enum, EnumMap};

use super::io::Cancelled;
use crate::eventlog::{EventLog, Evicted};
use crate::refusal::{Ended, RefusalKind, Room};
use crate::resume::Gap;

/// What happened on a shard since it began.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Counters {
    /// What clients that came back were answered.
    pub verdicts: EnumMap<Resumed, u64>,
    /// Refusals of any request.
    pub refusals: EnumMap<RefusalKind, u64>,
    /// What was given up for want of room.
    pub sheds: EnumMap<Room, u64>,
    /// Events lost in each gap that a `resync` told.
    pub gaps: EnumMap<GapReason, Histogram<GAP_BUCKETS>>,
    /// Events sent that had been issued before their reader was attached.
    pub replayed_events: u64,
    /// Bytes of their frames.
    pub replayed_bytes: u64,
    /// GETs that took a stream over from another connection.
    pub takeovers: u64,
    /// Connections handed off to the shard that their request belongs to.
    pub handoffs: u64,
    /// Reposts that joined the stream of the first execution, under way or finished.
    pub reposts_joined: u64,
    /// `tools/call`s that were not executed again.
    pub executions_avoided: EnumMap<Avoided, u64>,
    /// Calls that were told that their outcome is unknown, each time they were told.
    pub outcomes_unknown: u64,
    /// Sessions whose client used a request id again.
    pub sessions_marked: u64,
    /// Cancellations that named no call in flight, or more than one.
    pub cancels_ignored: u64,
    /// Responses of clients to no request of ours.
    pub responses_unmatched: u64,
    /// Notifications of handlers that could reach nobody.
    pub notifications_dropped: u64,
    /// Calls that began, `initialize` included.
    pub calls_begun: u64,
    /// From a call's beginning to its handler's answer, in milliseconds.
    pub calls_answered: Histogram<LATENCY_BUCKETS>,
    /// Calls that ended without their handler's answer.
    pub calls_cancelled: EnumMap<Cancelled, u64>,
    /// Sessions that began; one whose `initialize` fails is among them.
    pub sessions_begun: u64,
    /// Sessions that ended.
    pub sessions_ended: EnumMap<Ended, u64>,
    /// Connections accepted (those handed over by other shards are theirs).
    pub connections_opened: u64,
}

impl Counters {
    /// Counts the gap that a `resync` tells.
    pub(super) fn gap(&mut self, reason: GapReason, gap: &Gap) {
        self.gaps[reason].add(gap.lost);
    }

    /// Calls in flight: those that began and have not ended.
    pub fn calls_in_flight(&self) -> u64 {
        self.calls_begun.saturating_sub(self.calls_answered.count() + self.calls_cancelled.values().sum::<u64>())
    }
}

/// A verdict that is no refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub enum Resumed {
    /// Nothing precedes live.
    Tail,
    /// Held events precede live.
    Replay,
    /// A gap was told first.
    Resync,
    /// Nothing more will come.
    Complete,
}

impl Resumed {
    /// Its word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Tail => "tail",
            Self::Replay => "replay",
            Self::Resync => "resync",
            Self::Complete => "complete",
        }
    }
}

/// Why there was a gap: `reason` of a `resync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub enum GapReason {
    /// The events were gone when the client came back.
    Evicted,
    /// The events went while the client was too slow for them.
    Overrun,
}

impl GapReason {
    /// Its word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Evicted => "evicted",
            Self::Overrun => "overrun",
        }
    }
}

/// How a `tools/call` that came again was kept from running again.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub enum Avoided {
    /// It joined the execution under way.
    Joined,
    /// It got what is recorded of the execution that ended.
    Recorded,
    /// It was told that nobody knows.
    OutcomeUnknown,
}

impl Avoided {
    /// Its word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Joined => "joined",
            Self::Recorded => "recorded",
            Self::OutcomeUnknown => "outcome_unknown",
        }
    }
}

/// Buckets of a gap's size: the last bound is 32,768 events, above the default of `limits.stream_events`.
pub const GAP_BUCKETS: usize = 17;
/// Buckets of a call's duration: the last bound is 4,194 s, above the default of `limits.call_max_age`.
pub const LATENCY_BUCKETS: usize = 24;

/// Values counted by powers of two: bucket `n` holds what is at most 2ⁿ and more than the bucket before it; the last one, all above.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Histogram<const BUCKETS: usize> {
    buckets: [u64; BUCKETS],
    sum: u64,
}

impl<const BUCKETS: usize> Default for Histogram<BUCKETS> {
    fn default() -> Self {
        Self { buckets: [0; BUCKETS], sum: 0 }
    }
}

impl<const BUCKETS: usize> Histogram<BUCKETS> {
    /// Counts a value.
    pub(super) fn add(&mut self, value: u64) {
        let bucket = u64::BITS - value.saturating_sub(1).leading_zeros();
        self.buckets[(bucket as usize).min(BUCKETS - 1)] += 1;
        self.sum = self.sum.saturating_add(value);
    }

    /// How many values were counted.
    pub fn count(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// Their sum.
    pub fn sum(&self) -> u64 {
        self.sum
    }

    /// Each bucket's largest value (the last one has none), and how many values are in it alone.
    pub fn buckets(&self) -> impl Iterator<Item = (Option<u64>, u64)> + '_ {
        let bound = |bucket| (bucket + 1 < BUCKETS).then(|| 1_u64 << bucket);
        self.buckets.iter().enumerate().map(move |(bucket, &count)| (bound(bucket), count))
    }
}

/// A shard at one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// What happened so far.
    pub counters: Counters,
    /// Sessions alive, and how many may be.
    pub sessions: u32,
    /// `limits.sessions`.
    pub sessions_max: u32,
    /// Requests without a session in flight.
    pub exchanges: u32,
    /// `limits.exchanges`.
    pub exchanges_max: u32,
    /// Connections open.
    pub connections: u32,
    /// `limits.connections`.
    pub connections_max: u32,
    /// Timers set.
    pub timers: usize,
    /// The event log.
    pub log: LogFigures,
    /// Whether the shard drains.
    pub draining: bool,
    /// How long ago the shard last had no room for something; `None` when it always had.
    pub overloaded: Option<Duration>,
}

/// The event log at one moment. Sizes are bytes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LogFigures {
    /// In use, everything counted.
    pub used: usize,
    /// `limits.log_bytes`.
    pub budget: usize,
    /// Of what is in use, results and unanswered requests to clients.
    pub pinned: usize,
    /// The most that these may take.
    pub pinned_budget: usize,
    /// Of what is in use, evicted events that are still being sent.
    pub lingering: usize,
    /// Streams that hold events.
    pub streams: usize,
    /// Events evicted so far.
    pub evicted: EnumMap<Evicted, u64>,
}

impl LogFigures {
    pub(super) fn of(log: &EventLog) -> Self {
        let (pinned, pinned_budget) = log.pinned();
        Self {
            used: log.used(),
            budget: log.budget(),
            pinned,
            pinned_budget,
            lingering: log.lingering(),
            streams: log.rings(),
            evicted: *log.evicted(),
        }
    }
}

/// For an operator: figures, no names. What never happened is left out.
impl fmt::Display for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (counters, log) = (&self.counters, &self.log);
        writeln!(f, "sessions     {} of {}", self.sessions, self.sessions_max)?;
        writeln!(f, "exchanges    {} of {}", self.exchanges, self.exchanges_max)?;
        writeln!(f, "connections  {} of {}", self.connections, self.connections_max)?;
        writeln!(f, "calls        {} in flight of {} begun", counters.calls_in_flight(), counters.calls_begun)?;
        writeln!(f, "streams      {} hold events", log.streams)?;
        writeln!(f, "event log    {} B of {} B used", log.used, log.budget)?;
        writeln!(f, "  pinned     {} B of {} B", log.pinned, log.pinned_budget)?;
        writeln!(f, "  lingering  {} B", log.lingering)?;
        writeln!(f, "wheel        {} timers", self.timers)?;
        writeln!(f, "handoffs     {}", counters.handoffs)?;
        writeln!(f, "takeovers    {}", counters.takeovers)?;
        writeln!(f, "draining     {}", if self.draining { "yes" } else { "no" })?;
        match self.overloaded {
            Some(ago) => writeln!(f, "last shed    {ago:?} ago")?,
            None => writeln!(f, "last shed    never")?,
        }
        let happened = |f: &mut fmt::Formatter<'_>, what: &str, word: &str, count: u64| match count {
            0 => Ok(()),
            _ => writeln!(f, "{what:<12} {word} {count}"),
        };
        counters.verdicts.iter().try_for_each(|(kind, &count)| happened(f, "verdicts", kind.as_str(), count))?;
        counters.refusals.iter().try_for_each(|(kind, &count)| {
            let shape = kind.example().shape();
            happened(f, "refusals", shape.reason.unwrap_or(shape.code), count)
        })?;
        counters.sheds.iter().try_for_each(|(room, &count)| happened(f, "sheds", room.as_str(), count))?;
        counters.sessions_ended.iter().try_for_each(|(why, &count)| happened(f, "ended", why.reason(), count))?;
        log.evicted.iter().try_for_each(|(why, &count)| happened(f, "evicted", why.as_str(), count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_is_in_the_first_bucket_that_admits_it() {
        let cases = [(0, 0), (1, 0), (2, 1), (3, 2), (4, 2), (5, 3), (8, 3), (9, 4), (16, 4), (17, 5), (u64::MAX, 5)];
        for (value, expected) in cases {
            let mut histogram = Histogram::<6>::default();
            histogram.add(value);
            let found = histogram.buckets().position(|(_, count)| count == 1);
            assert_eq!(found, Some(expected), "{value}");
            assert_eq!((histogram.count(), histogram.sum()), (1, value));
        }
    }

    #[test]
    fn a_histograms_bounds_are_powers_of_two_and_the_last_bucket_has_none() {
        let bounds: Vec<_> = Histogram::<4>::default().buckets().map(|(bound, _)| bound).collect();
        assert_eq!(bounds, [Some(1), Some(2), Some(4), None]);
    }

    #[test]
    fn the_last_bounds_are_above_what_the_limits_admit() {
        let limits = crate::limits::Limits::default();
        let last = |bounds: &mut dyn Iterator<Item = (Option<u64>, u64)>| bounds.filter_map(|(bound, _)| bound).max();
        assert!(last(&mut Histogram::<GAP_BUCKETS>::default().buckets()) > Some(limits.stream_events));
        let age = u64::try_from(limits.call_max_age.as_millis()).expect("an hour");
        assert!(last(&mut Histogram::<LATENCY_BUCKETS>::default().buckets()) > Some(age));
    }
}
