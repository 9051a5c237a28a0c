//! The same measurements over time, in buckets whose number is bounded: when they run out, each two become one.
//!
//! Never goes back: what comes late counts for the latest bucket.

use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::latency::{HIGHEST, micros};
use super::{Flows, Metric, PerMetric};

/// A bucket's width at first. Reason: four a second show a storm of a few seconds; two doublings make whole seconds.
const WIDTH: Duration = Duration::from_millis(250);
/// Buckets at most: two minutes at the first width, and no plot shows more. With [`DIGITS`], 24 KiB a bucket and metric at the very worst.
pub(crate) const BUCKETS_MAX: usize = 480;
/// Significant digits of a bucket's latencies: an error below 1 %, more than a plot shows.
const DIGITS: u8 = 2;

/// A level within a bucket.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gauge {
    /// Lowest. Of several threads: the sum of theirs, so that the truth is not below it.
    pub(crate) low: u64,
    /// Highest. Of several threads: the sum of theirs, so that the truth is not above it.
    pub(crate) high: u64,
    /// At the end; exact.
    pub(crate) last: u64,
}

impl Gauge {
    const fn level(last: u64) -> Self {
        Self { low: last, high: last, last }
    }

    fn change(&mut self, by: i64) {
        self.last = self.last.saturating_add_signed(by);
        self.low = self.low.min(self.last);
        self.high = self.high.max(self.last);
    }

    /// The bucket after this one is made part of it.
    fn then(&mut self, next: Self) {
        *self = Self { low: self.low.min(next.low), high: self.high.max(next.high), last: next.last };
    }

    /// The same time of another thread.
    fn beside(&mut self, other: Self) {
        *self = Self { low: self.low + other.low, high: self.high + other.high, last: self.last + other.last };
    }
}

/// A bucket's latencies of one metric: microseconds with how often, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Spread {
    counts: Vec<(u32, u32)>,
    max: u64,
}

impl Spread {
    fn of(histogram: &Histogram<u32>, max: u64) -> Self {
        let counts = histogram.iter_recorded().map(|step| {
            let value = u32::try_from(step.value_iterated_to()).unwrap_or(u32::MAX);
            (value, step.count_at_value())
        });
        Self { counts: counts.collect(), max }
    }

    fn add(&mut self, other: Self) {
        self.max = self.max.max(other.max);
        if self.counts.is_empty() {
            self.counts = other.counts;
            return;
        }
        if other.counts.is_empty() {
            return;
        }
        self.counts.extend(other.counts);
        // Two sorted runs, which a stable sort takes as they are.
        self.counts.sort_by_key(|(value, _)| *value);
        self.counts.dedup_by(|next, kept| {
            let same = next.0 == kept.0;
            if same {
                kept.1 = kept.1.saturating_add(next.1);
            }
            same
        });
    }

    /// How many.
    pub(crate) fn count(&self) -> u64 {
        self.counts.iter().map(|(_, count)| u64::from(*count)).sum()
    }

    /// The longest, exact, in microseconds.
    pub(crate) const fn max(&self) -> u64 {
        self.max
    }

    /// The value that this share of all does not exceed, in microseconds; none where there are none.
    pub(crate) fn quantile(&self, share: f64) -> Option<u64> {
        let rank = (self.count() as f64 * share).ceil().max(1.0) as u64;
        let mut passed = 0;
        let reached = self.counts.iter().find(|(_, count)| {
            passed += u64::from(*count);
            passed >= rank
        });
        reached.map(|(value, _)| u64::from(*value).min(self.max))
    }
}

/// What happened in one part of the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct Bucket {
    pub(crate) flows: Flows,
    pub(crate) connections: Gauge,
    pub(crate) sessions: Gauge,
    /// By the index of their kind.
    pub(crate) verdicts: Vec<u64>,
    pub(crate) errors: Vec<u64>,
    pub(crate) latencies: PerMetric<Spread>,
}

impl Bucket {
    /// Nothing happened in it yet; the levels are as they were.
    fn after(before: &Self) -> Self {
        Self {
            connections: Gauge::level(before.connections.last),
            sessions: Gauge::level(before.sessions.last),
            ..Self::default()
        }
    }

    fn then(&mut self, next: Self) {
        self.connections.then(next.connections);
        self.sessions.then(next.sessions);
        self.add_counts(next, |index| index, |index| index);
    }

    fn beside(&mut self, other: Self, verdicts: &[usize], errors: &[usize]) {
        self.connections.beside(other.connections);
        self.sessions.beside(other.sessions);
        self.add_counts(other, |index| verdicts[index], |index| errors[index]);
    }

    fn add_counts(&mut self, other: Self, verdict: impl Fn(usize) -> usize, error: impl Fn(usize) -> usize) {
        self.flows.add(&other.flows);
        other.verdicts.iter().enumerate().for_each(|(index, count)| add_at(&mut self.verdicts, verdict(index), *count));
        other.errors.iter().enumerate().for_each(|(index, count)| add_at(&mut self.errors, error(index), *count));
        self.latencies.zip(other.latencies, Spread::add);
    }
}

fn add_at(counts: &mut Vec<u64>, index: usize, count: u64) {
    if counts.len() <= index {
        counts.resize(index + 1, 0);
    }
    counts[index] += count;
}

/// Latencies of the bucket under way.
#[derive(Clone, Debug)]
struct Open {
    histogram: Histogram<u32>,
    max: u64,
}

impl Default for Open {
    fn default() -> Self {
        let histogram = Histogram::new_with_bounds(1, micros(HIGHEST), DIGITS);
        Self { histogram: histogram.expect("the bounds are ordered and the digits are few"), max: 0 }
    }
}

/// All buckets, from the run's beginning on; the last one is under way until the end.
#[derive(Debug)]
pub(crate) struct Series {
    origin: Instant,
    width: Duration,
    buckets: Vec<Bucket>,
    open: PerMetric<Open>,
    end: Duration,
}

impl Series {
    pub(super) fn new(origin: Instant) -> Self {
        Self { origin, width: WIDTH, buckets: vec![Bucket::default()], open: PerMetric::default(), end: Duration::ZERO }
    }

    /// A bucket's width.
    pub(crate) const fn width(&self) -> Duration {
        self.width
    }

    /// The buckets.
    pub(crate) fn buckets(&self) -> &[Bucket] {
        &self.buckets
    }

    /// When the last bucket ended, which may be before its width.
    pub(crate) const fn end(&self) -> Duration {
        self.end
    }

    pub(super) fn latency(&mut self, at: Instant, metric: Metric, took: Duration) {
        self.advance(at);
        let open = self.open.get_mut(metric);
        open.histogram.saturating_record(micros(took));
        open.max = open.max.max(micros(took));
    }

    pub(super) fn flows(&mut self, at: Instant) -> &mut Flows {
        &mut self.at(at).flows
    }

    pub(super) fn connections(&mut self, at: Instant, change: i64) {
        self.at(at).connections.change(change);
    }

    pub(super) fn sessions(&mut self, at: Instant, change: i64) {
        self.at(at).sessions.change(change);
    }

    pub(super) fn verdict(&mut self, at: Instant, index: usize) {
        add_at(&mut self.at(at).verdicts, index, 1);
    }

    pub(super) fn error(&mut self, at: Instant, index: usize) {
        add_at(&mut self.at(at).errors, index, 1);
    }

    fn at(&mut self, at: Instant) -> &mut Bucket {
        self.advance(at);
        self.current()
    }

    fn current(&mut self) -> &mut Bucket {
        self.buckets.last_mut().expect("there is one from the beginning, and none is ever taken away")
    }

    /// Begins the bucket of this moment, if it has not begun.
    pub(super) fn advance(&mut self, at: Instant) {
        let since = at.saturating_duration_since(self.origin);
        self.end = self.end.max(since);
        if self.index(since) < self.buckets.len() {
            return;
        }
        self.close();
        while self.index(since) >= BUCKETS_MAX {
            self.coarsen();
        }
        let wanted = self.index(since) + 1;
        while self.buckets.len() < wanted {
            let next = Bucket::after(self.current());
            self.buckets.push(next);
        }
    }

    fn index(&self, since: Duration) -> usize {
        usize::try_from(since.as_nanos() / self.width.as_nanos()).unwrap_or(usize::MAX)
    }

    /// Puts the latencies under way into the last bucket.
    fn close(&mut self) {
        for metric in Metric::ALL {
            let open = self.open.get_mut(metric);
            if open.histogram.is_empty() {
                continue;
            }
            let spread = Spread::of(&open.histogram, open.max);
            open.histogram.reset();
            open.max = 0;
            self.current().latencies.get_mut(metric).add(spread);
        }
    }

    /// Makes one bucket of each two.
    fn coarsen(&mut self) {
        self.width *= 2;
        let mut old = std::mem::take(&mut self.buckets).into_iter();
        while let Some(mut bucket) = old.next() {
            if let Some(next) = old.next() {
                bucket.then(next);
            }
            self.buckets.push(bucket);
        }
    }

    pub(super) fn finish(&mut self, at: Instant) {
        self.advance(at);
        self.close();
    }

    /// Adds another thread's, whose kinds are at these places among ours. Both are finished.
    pub(super) fn add(&mut self, mut other: Self, verdicts: &[usize], errors: &[usize]) {
        while self.width < other.width {
            self.coarsen();
        }
        while other.width < self.width {
            other.coarsen();
        }
        let length = self.buckets.len().max(other.buckets.len());
        for series in [&mut *self, &mut other] {
            while series.buckets.len() < length {
                let next = Bucket::after(series.current());
                series.buckets.push(next);
            }
        }
        self.buckets.iter_mut().zip(other.buckets).for_each(|(ours, theirs)| ours.beside(theirs, verdicts, errors));
        self.end = self.end.max(other.end);
    }
}
