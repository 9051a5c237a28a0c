//! Verbs on shards: the bytes are the choices of a simulation's run, and its oracle says what must hold.
//!
//! Whoever chooses by bytes can be steered: the engine keeps what reaches new code, which a seed alone cannot.

use rejoin_tests::sim::{self, Uncounted};

/// Steps of a run: enough for a session, a cut and a return, few enough for many runs a second.
const STEPS: u64 = 400;

/// Plays the run that the bytes choose.
///
/// # Panics
///
/// With what was broken.
pub fn check(data: &[u8]) {
    if let Err(violation) = sim::play(data, STEPS, &Uncounted, false) {
        panic!("step {}: {}", violation.step, violation.what);
    }
}
