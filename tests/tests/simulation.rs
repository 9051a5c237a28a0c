//! The simulation: a bounded set of seeds on the shipped code, and each of its canaries. `scripts/simulate` runs the whole set.

use rejoin_tests::sim::{self, Meter};

/// The allocator's word, for this thread.
struct Counted;

impl Meter for Counted {
    fn measure(&self, work: &mut dyn FnMut()) -> i64 {
        allocation_counter::measure(work).bytes_current
    }
}

#[cfg(not(feature = "canary"))]
mod shipped {
    use super::*;

    /// Fewer than `scripts/simulate` runs, for everyday; that script also asks that everything was reached.
    const SEEDS: u64 = 20;
    const STEPS: u64 = 20_000;

    #[test]
    fn no_seed_breaks_a_promise() {
        for seed in 1..=SEEDS {
            if let Err(violation) = sim::run(seed, STEPS, &Counted, false) {
                panic!("seed {seed}, step {}: {}", violation.step, violation.what);
            }
        }
    }

    #[test]
    fn a_seed_repeats_itself_to_the_byte() {
        let trace = || sim::run(7, 5_000, &Counted, false).map(|report| report.trace).map_err(|violation| violation.what);
        assert_eq!(trace(), trace());
    }

    #[test]
    fn a_script_repeats_itself_to_the_byte() {
        let trace = || {
            sim::play(b"any bytes at all", 2_000, &Counted, false).map(|report| report.trace).map_err(|violation| violation.what)
        };
        assert_eq!(trace(), trace());
    }
}

#[cfg(feature = "canary")]
mod planted {
    use super::*;
    use rejoin_proto::canary::{Canary, Hunter, plant};

    /// Each forbidden outcome must be noticed within so many seeds.
    const SEEDS: u64 = 20;
    const STEPS: u64 = 100_000;

    #[test]
    fn every_canary_is_found() {
        let mut missed = Vec::new();
        for &canary in Canary::ALL.iter().filter(|canary| canary.hunters().contains(&Hunter::Simulation)) {
            plant(Some(canary));
            let found = (1..=SEEDS).find_map(|seed| sim::run(seed, STEPS, &Counted, false).err());
            plant(None);
            match found {
                Some(violation) => {
                    println!("{}: seed {}, step {}: {}", canary.name(), violation.seed, violation.step, violation.what)
                }
                None => missed.push(canary.name()),
            }
        }
        assert_eq!(missed, Vec::<&str>::new(), "not found within {SEEDS} seeds");
    }
}
