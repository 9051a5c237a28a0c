//! Instants as values: milliseconds since an origin that the shell chose.
//!
//! Never asks a clock; whoever calls the kernel says what time it is.

use std::ops::Add;
use std::time::Duration;

/// A moment, in milliseconds since the shell's origin. Ordered; never negative.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(u64);

impl Instant {
    /// The origin itself.
    pub const ORIGIN: Self = Self(0);

    /// The moment `millis` milliseconds after the origin.
    pub const fn from_millis(millis: u64) -> Self {
        Self(millis)
    }

    /// Milliseconds since the origin.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Time since `earlier`; zero when `earlier` is in fact later (a clock that jumped back harms nobody).
    pub const fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

/// Saturates at the end of time: a deadline too far away never comes.
impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, after: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(after.as_millis()).unwrap_or(u64::MAX)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_deadline_too_far_away_never_comes() {
        assert_eq!((Instant::from_millis(5) + Duration::MAX).as_millis(), u64::MAX);
    }

    #[test]
    fn a_clock_that_jumps_back_measures_zero() {
        assert_eq!(Instant::ORIGIN.since(Instant::from_millis(9)), Duration::ZERO);
    }
}
