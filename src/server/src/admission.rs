//! Which of the connections that wait are taken, when more come at once than the shard can serve in time.
//!
//! A herd that is let in whole makes everyone wait for the last. Here a queue that does not become empty for `limits.admission_wait`
//! is a herd: who waits from then on is turned away, until nobody waits. So whoever is taken waited no longer than that, and whoever
//! is not is told at once, and when to come back. Never reads the time, and never touches a connection.

use std::time::Duration;

use rejoin_proto::time::Instant;

/// The queue of one listener.
pub(crate) struct Admission {
    wait: Duration,
    herd: Option<Herd>,
}

/// A queue that has not been empty for some time.
struct Herd {
    since: Instant,
    taken: u32,
    shed: u32,
}

/// What becomes of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It is taken.
    Take,
    /// It is turned away, and comes back within this time.
    Shed {
        /// How long it takes to serve all that were turned away so far, at the pace of those that were taken.
        within: Duration,
    },
}

impl Admission {
    pub(crate) const fn new(wait: Duration) -> Self {
        Self { wait, herd: None }
    }

    /// One more is at the head of the queue.
    pub(crate) fn next(&mut self, now: Instant) -> Verdict {
        let herd = self.herd.get_or_insert(Herd { since: now, taken: 0, shed: 0 });
        if now < herd.since + self.wait {
            herd.taken = herd.taken.saturating_add(1);
            return Verdict::Take;
        }
        herd.shed = herd.shed.saturating_add(1);
        // A queue of which nothing was taken in all that time waits for something else than itself: a shard that was stuck.
        let rounds = herd.shed.div_ceil(herd.taken.max(1));
        Verdict::Shed { within: self.wait.saturating_mul(rounds) }
    }

    /// Nobody waits; says how many were turned away since somebody did.
    pub(crate) fn emptied(&mut self) -> u32 {
        self.herd.take().map_or(0, |herd| herd.shed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WAIT: Duration = Duration::from_millis(100);

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn a_queue_that_becomes_empty_in_time_loses_nobody() {
        let mut admission = Admission::new(WAIT);
        for burst in 0..10 {
            for now in 0..WAIT.as_millis() as u64 {
                assert_eq!(admission.next(at(burst * 1_000 + now)), Verdict::Take);
            }
            assert_eq!(admission.emptied(), 0);
        }
    }

    #[test]
    fn whoever_waits_behind_a_herd_is_turned_away_until_nobody_waits() {
        let mut admission = Admission::new(WAIT);
        for _ in 0..1_000 {
            assert_eq!(admission.next(at(0)), Verdict::Take);
        }
        assert_eq!(admission.next(at(99)), Verdict::Take, "the last instant");
        assert_eq!(admission.next(at(100)), Verdict::Shed { within: WAIT });
        assert_eq!(admission.next(at(101)), Verdict::Shed { within: WAIT });
        assert_eq!(admission.emptied(), 2);
        assert_eq!(admission.next(at(102)), Verdict::Take);
    }

    #[test]
    fn those_turned_away_are_spread_over_the_time_that_it_takes_to_serve_them() {
        let mut admission = Admission::new(WAIT);
        for _ in 0..100 {
            admission.next(at(0));
        }
        let spread: Vec<_> = (0..1_000)
            .map(|_| match admission.next(at(100)) {
                Verdict::Shed { within } => within,
                Verdict::Take => panic!("a herd"),
            })
            .collect();
        assert_eq!((spread[0], spread[99], spread[100], spread[999]), (WAIT, WAIT, 2 * WAIT, 10 * WAIT));
    }

    #[test]
    fn a_wait_of_zero_takes_nobody_and_a_stuck_shard_divides_by_nothing() {
        let mut admission = Admission::new(Duration::ZERO);
        assert_eq!(admission.next(at(0)), Verdict::Shed { within: Duration::ZERO });
    }
}
