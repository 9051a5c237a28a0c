//! One metric's latencies: percentiles for reading, and the histogram itself for whoever wants others.
//!
//! Never interpolates: a percentile is a value that was recorded, to three digits.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use hdrhistogram::Histogram;
use hdrhistogram::serialization::{Deserializer, Serializer, V2DeflateSerializer};
use serde::{Deserialize, Serialize};

use crate::storm::measure::{HIGHEST, Latency};

/// A distribution of latencies, in microseconds.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Distribution {
    pub(crate) count: u64,
    pub(crate) min_us: u64,
    pub(crate) mean_us: f64,
    pub(crate) p50_us: u64,
    pub(crate) p90_us: u64,
    pub(crate) p99_us: u64,
    pub(crate) p99_9_us: u64,
    pub(crate) max_us: u64,
    /// HdrHistogram's own encoding (V2, deflate), in base64.
    histogram: String,
}

impl Distribution {
    fn of(histogram: &Histogram<u64>) -> Self {
        let mut bytes = Vec::new();
        V2DeflateSerializer::new()
            .serialize(histogram, &mut bytes)
            .expect("counts are far below the format's largest, and a Vec takes all bytes");
        Self {
            count: histogram.len(),
            min_us: histogram.min(),
            mean_us: histogram.mean(),
            p50_us: histogram.value_at_quantile(0.5),
            p90_us: histogram.value_at_quantile(0.9),
            p99_us: histogram.value_at_quantile(0.99),
            p99_9_us: histogram.value_at_quantile(0.999),
            max_us: histogram.max(),
            histogram: BASE64_STANDARD.encode(bytes),
        }
    }

    /// The percentiles that reports show, with their names.
    pub(crate) const fn percentiles(&self) -> [(&'static str, u64); 5] {
        [("p50", self.p50_us), ("p90", self.p90_us), ("p99", self.p99_us), ("p99.9", self.p99_9_us), ("max", self.max_us)]
    }

    /// The histogram that was written down.
    pub(crate) fn histogram(&self) -> Result<Histogram<u64>, String> {
        let bytes = BASE64_STANDARD.decode(&self.histogram).map_err(|error| format!("histogram: {error}"))?;
        let histogram: Histogram<u64> =
            Deserializer::new().deserialize(&mut bytes.as_slice()).map_err(|error| format!("histogram: {error}"))?;
        if histogram.len() == self.count { Ok(histogram) } else { Err("histogram: has another count".into()) }
    }
}

/// A metric's latencies.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// Corrected for coordinated omission.
    #[serde(flatten)]
    pub(crate) corrected: Distribution,
    /// As measured, where that is something else.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) as_measured: Option<Distribution>,
    /// How many were longer than the longest that is told apart, and count as that.
    pub(crate) clamped: u64,
}

impl Latencies {
    /// None where there were none.
    pub(super) fn of(latency: &Latency) -> Option<Self> {
        let (corrected, measured) = (latency.corrected(), latency.measured());
        (!measured.is_empty()).then(|| Self {
            corrected: Distribution::of(corrected),
            as_measured: (corrected != measured).then(|| Distribution::of(measured)),
            clamped: latency.clamped(),
        })
    }

    pub(super) fn check(&self) -> Result<(), String> {
        for distribution in std::iter::once(&self.corrected).chain(&self.as_measured) {
            let highest = distribution.histogram()?.max();
            if u128::from(highest) > HIGHEST.as_micros() * 2 {
                return Err(format!("histogram: {highest} µs is longer than any latency that is told apart"));
            }
        }
        Ok(())
    }
}
