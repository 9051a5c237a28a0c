//! A run over time, a column for each number: small as JSON, and easy to plot.
//!
//! Never holds columns of different lengths: a file with such is refused.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::storm::measure::{BUCKETS_MAX, Bucket, Flows, Gauge, Measured, Metric, Tally, millis};

/// A level over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Levels {
    /// At each bucket's end; exact.
    pub(crate) last: Vec<u64>,
    /// Within each bucket, the truth is not below this.
    pub(crate) low: Vec<u64>,
    /// Within each bucket, the truth is not above this.
    pub(crate) high: Vec<u64>,
}

impl Levels {
    fn of(buckets: &[Bucket], level: impl Fn(&Bucket) -> Gauge) -> Self {
        let column = |part: fn(Gauge) -> u64| buckets.iter().map(|bucket| part(level(bucket))).collect();
        Self { last: column(|gauge| gauge.last), low: column(|gauge| gauge.low), high: column(|gauge| gauge.high) }
    }
}

/// A metric's latencies over time, by when they ended, without what the correction of a closed loop adds; null where there were none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Spreads {
    pub(crate) count: Vec<u64>,
    pub(crate) p50_us: Vec<Option<u64>>,
    pub(crate) p99_us: Vec<Option<u64>>,
    pub(crate) max_us: Vec<Option<u64>>,
}

/// A run over time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Series {
    /// Milliseconds of a bucket.
    pub(crate) width_ms: u64,
    /// When the last bucket ended, in milliseconds since the run began.
    pub(crate) end_ms: u64,
    pub(crate) connections: Levels,
    pub(crate) sessions: Levels,
    /// What happened in each bucket.
    pub(crate) connects: Vec<u64>,
    pub(crate) cuts: Vec<u64>,
    pub(crate) resumes: Vec<u64>,
    pub(crate) calls: Vec<u64>,
    pub(crate) events: Vec<u64>,
    pub(crate) bytes_in: Vec<u64>,
    pub(crate) bytes_out: Vec<u64>,
    pub(crate) violations: Vec<u64>,
    /// By kind.
    pub(crate) verdicts: BTreeMap<String, Vec<u64>>,
    pub(crate) errors: BTreeMap<String, Vec<u64>>,
    /// By the metric's name.
    pub(crate) latencies: BTreeMap<String, Spreads>,
}

impl Series {
    pub(super) fn of(measured: &Measured) -> Self {
        let series = measured.series();
        let buckets = series.buckets();
        let flows = |part: fn(&Flows) -> u64| buckets.iter().map(|bucket| part(&bucket.flows)).collect();
        Self {
            width_ms: millis(series.width()),
            end_ms: millis(series.end()),
            connections: Levels::of(buckets, |bucket| bucket.connections),
            sessions: Levels::of(buckets, |bucket| bucket.sessions),
            connects: flows(|flows| flows.connects),
            cuts: flows(|flows| flows.cuts),
            resumes: flows(|flows| flows.resumes),
            calls: flows(|flows| flows.calls),
            events: flows(|flows| flows.events),
            bytes_in: flows(|flows| flows.bytes_in),
            bytes_out: flows(|flows| flows.bytes_out),
            violations: flows(|flows| flows.violations),
            verdicts: by_kind(measured.verdicts(), buckets, |bucket| &bucket.verdicts),
            errors: by_kind(measured.errors(), buckets, |bucket| &bucket.errors),
            latencies: latencies(buckets),
        }
    }

    /// Buckets.
    pub(crate) fn len(&self) -> usize {
        self.connects.len()
    }

    /// A bucket's beginning and its length, in seconds. The last one may be shorter than the others; none is empty.
    pub(crate) fn span(&self, bucket: usize) -> (f64, f64) {
        let start = bucket as u64 * self.width_ms;
        let length = self.width_ms.min(self.end_ms.saturating_sub(start)).max(1);
        (start as f64 / 1000.0, length as f64 / 1000.0)
    }

    /// The most in a second, where the buckets are seconds or longer; of a second's buckets together, where they are shorter.
    pub(crate) fn peak_rate(&self, column: &[u64]) -> f64 {
        let together = usize::try_from(1000 / self.width_ms.max(1)).unwrap_or(1).max(1);
        let seconds = (together as u64 * self.width_ms).max(1) as f64 / 1000.0;
        let sums = column.windows(together.min(column.len().max(1))).map(|window| window.iter().sum::<u64>());
        sums.max().unwrap_or(0) as f64 / seconds
    }

    pub(super) fn check(&self) -> Result<(), String> {
        let length = self.len();
        if length > BUCKETS_MAX {
            return Err(format!("series: has {length} buckets, {BUCKETS_MAX} are the most"));
        }
        if self.width_ms == 0 {
            return Err("series: its buckets have no width".into());
        }
        let levels = [&self.connections, &self.sessions].into_iter().flat_map(|levels| [&levels.last, &levels.low, &levels.high]);
        let flows = [&self.cuts, &self.resumes, &self.calls, &self.events, &self.bytes_in, &self.bytes_out, &self.violations];
        let kinds = self.verdicts.values().chain(self.errors.values());
        let spreads = self.latencies.values();
        let lengths = (levels.chain(flows).chain(kinds).map(Vec::len))
            .chain(spreads.clone().map(|spread| spread.count.len()))
            .chain(spreads.flat_map(|spread| [spread.p50_us.len(), spread.p99_us.len(), spread.max_us.len()]));
        for other in lengths {
            if other != length {
                return Err(format!("series: a column has {other} entries, another {length}"));
            }
        }
        Ok(())
    }
}

fn by_kind(tally: &Tally, buckets: &[Bucket], counts: fn(&Bucket) -> &Vec<u64>) -> BTreeMap<String, Vec<u64>> {
    let columns = tally.iter().enumerate().map(|(index, (kind, _))| {
        let column = buckets.iter().map(|bucket| counts(bucket).get(index).copied().unwrap_or(0));
        (kind.to_owned(), column.collect())
    });
    columns.collect()
}

fn latencies(buckets: &[Bucket]) -> BTreeMap<String, Spreads> {
    let columns = Metric::ALL.iter().filter_map(|metric| {
        let mut spreads = Spreads::default();
        for spread in buckets.iter().map(|bucket| bucket.latencies.get(*metric)) {
            let count = spread.count();
            spreads.count.push(count);
            spreads.p50_us.push(spread.quantile(0.5));
            spreads.p99_us.push(spread.quantile(0.99));
            spreads.max_us.push((count > 0).then(|| spread.max()));
        }
        spreads.count.iter().any(|count| *count > 0).then(|| (metric.name().to_owned(), spreads))
    });
    columns.collect()
}
