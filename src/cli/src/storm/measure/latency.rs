//! Histograms of one latency: as measured, and corrected for coordinated omission.
//!
//! Never grows: the range is fixed, and what is beyond it is counted and put at its end.

use std::time::Duration;

use hdrhistogram::Histogram;

/// The longest latency that is told apart, one hour. Reason: no storm waits longer, and each doubling costs 8 KiB a histogram.
pub(crate) const HIGHEST: Duration = Duration::from_secs(3600);
/// Significant decimal digits: an error of 0.1 % at most, 190 KiB a histogram.
const DIGITS: u8 = 3;
/// Values that one stall may add at most; a longer stall adds as many, each for several. Reason: the thread that records has other work.
const ADDED_MAX: u64 = 10_000;

/// Microseconds, the unit of every histogram here.
pub(crate) fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

/// An empty histogram of microseconds up to [`HIGHEST`].
pub(crate) fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, micros(HIGHEST), DIGITS).expect("the bounds are ordered and the digits are few")
}

/// One latency's histograms, in microseconds.
#[derive(Clone, Debug)]
pub(crate) struct Latency {
    corrected: Histogram<u64>,
    measured: Histogram<u64>,
    clamped: u64,
}

impl Default for Latency {
    fn default() -> Self {
        Self { corrected: histogram(), measured: histogram(), clamped: 0 }
    }
}

impl Latency {
    /// One more. `value` is from the intended beginning, `measured` from the real one; `every` says how often one client would have
    /// begun another, had it not had to wait for this one.
    pub(super) fn record(&mut self, value: Duration, measured: Duration, every: Option<Duration>) {
        if value > HIGHEST {
            self.clamped += 1;
        }
        self.measured.saturating_record(micros(measured));
        let value = micros(value.min(HIGHEST));
        self.corrected.saturating_record(value);
        if let Some(every) = every {
            self.make_up(value, micros(every));
        }
    }

    /// Adds what was omitted while `value` lasted: value - every, value - 2 every, and so on, down to `every`.
    fn make_up(&mut self, value: u64, every: u64) {
        let Some(omitted) = value.checked_div(every).and_then(|times| times.checked_sub(1)) else { return };
        // Each value added stands for `weight` of them, as near its middle as whole numbers go.
        let weight = omitted.div_ceil(ADDED_MAX).max(1);
        let mut nth = 1;
        while nth <= omitted {
            let standing_for = weight.min(omitted - nth + 1);
            let middle = nth + (standing_for - 1) / 2;
            self.corrected.saturating_record_n(value - middle * every, standing_for);
            nth += standing_for;
        }
    }

    /// Adds another's.
    pub(super) fn add(&mut self, other: &Self) {
        const SAME: &str = "all are made alike, so all values fit";
        self.corrected.add(&other.corrected).expect(SAME);
        self.measured.add(&other.measured).expect(SAME);
        self.clamped += other.clamped;
    }

    /// Corrected for coordinated omission.
    pub(crate) const fn corrected(&self) -> &Histogram<u64> {
        &self.corrected
    }

    /// As measured.
    pub(crate) const fn measured(&self) -> &Histogram<u64> {
        &self.measured
    }

    /// How many were longer than [`HIGHEST`] and count as that.
    pub(crate) const fn clamped(&self) -> u64 {
        self.clamped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Instant;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_stall_in_a_closed_loop_adds_what_the_crate_itself_would_add() {
        for (value, every) in [(1000, 10), (1000, 7), (10, 10), (19, 10), (20, 10), (9, 10), (5, 0)] {
            let mut latency = Latency::default();
            latency.record(ms(value), ms(value), Some(ms(every)));
            let mut oracle = histogram();
            oracle.record_correct(value * 1000, every * 1000).expect("in range");
            assert_eq!(latency.corrected(), &oracle, "{value} every {every}");
            assert_eq!(latency.measured().len(), 1);
        }
    }

    #[test]
    fn a_huge_stall_costs_a_bounded_number_of_steps_and_weighs_the_same() {
        let mut latency = Latency::default();
        let began = Instant::now();
        latency.record(HIGHEST, HIGHEST, Some(Duration::from_micros(1)));
        assert!(began.elapsed() < Duration::from_secs(1));
        assert_eq!(latency.corrected().len(), micros(HIGHEST));
        let median = latency.corrected().value_at_quantile(0.5) as f64;
        assert!((median / (micros(HIGHEST) / 2) as f64 - 1.0).abs() < 0.01, "{median}");
    }

    #[test]
    fn longer_than_the_longest_is_counted_and_put_at_the_end() {
        let mut latency = Latency::default();
        latency.record(HIGHEST, HIGHEST, None);
        assert_eq!(latency.clamped(), 0);
        latency.record(HIGHEST + Duration::from_nanos(1), ms(1), None);
        assert_eq!(latency.clamped(), 1);
        assert!(latency.corrected().equivalent(latency.corrected().max(), micros(HIGHEST)));
    }
}
