//! The simulation: many shards and clients over the pure kernel, in one thread, from one seed.
//!
//! Everything that the boundary forbids must be impossible here: connections are cut at any byte, bytes come singly and late, readers
//! stall, logs are too small, sessions rotate, expire and are deleted, processes die, clients repeat themselves and forge. An oracle
//! that keeps everything for ever reads what clients are sent. The same seed gives the same run, to the byte.
//!
//! Never touches a socket, a clock or a thread.

mod answer;
mod client;
mod coverage;
mod events;
mod feed;
mod handler;
mod oracle;
mod plan;
mod request;
mod rng;
mod tap;
mod time;
mod wire;
mod world;

pub use coverage::Coverage;

use rng::Rng;
use world::World;

/// Counts the heap that some work leaves behind. The simulation has no allocator of its own: whoever runs it decides.
pub trait Meter {
    /// Does the work, and says by how many bytes the heap grew.
    fn measure(&self, work: &mut dyn FnMut()) -> i64;

    /// Whether it counts at all.
    fn counts(&self) -> bool {
        true
    }
}

/// Counts nothing.
#[derive(Clone, Copy, Debug)]
pub struct Uncounted;

impl Meter for Uncounted {
    fn measure(&self, work: &mut dyn FnMut()) -> i64 {
        work();
        0
    }

    fn counts(&self) -> bool {
        false
    }
}

/// What a run without a violation says of itself.
#[derive(Clone, Debug)]
pub struct Report {
    /// A hash of every input and every byte sent: equal runs have equal traces.
    pub trace: u64,
    /// What was reached.
    pub coverage: Coverage,
    /// Steps, the finale included.
    pub steps: u64,
}

/// A broken promise.
#[derive(Clone, Debug)]
pub struct Violation {
    /// The seed that shows it.
    pub seed: u64,
    /// The step in which it was seen.
    pub step: u64,
    /// What was broken.
    pub what: String,
    /// What happened before, where it was asked for.
    pub transcript: Vec<String>,
}

/// Runs one seed for so many steps, and then to rest.
pub fn run(seed: u64, steps: u64, meter: &dyn Meter, transcript: bool) -> Result<Report, Box<Violation>> {
    to_rest(World::new(Rng::new(seed), meter, transcript), seed, steps)
}

/// The same by the choices that the bytes of a script make, for who searches for scripts. A violation's seed is 0.
pub fn play(script: &[u8], steps: u64, meter: &dyn Meter, transcript: bool) -> Result<Report, Box<Violation>> {
    to_rest(World::new(Rng::scripted(script), meter, transcript), 0, steps)
}

fn to_rest(mut world: World<'_>, seed: u64, steps: u64) -> Result<Report, Box<Violation>> {
    let mut played = || -> Result<(), String> {
        for _ in 0..steps {
            world.step()?;
        }
        world.finale()
    };
    match played() {
        Ok(()) => Ok(Report { trace: world.traced(), steps: world.step, coverage: std::mem::take(&mut world.oracle.coverage) }),
        Err(what) => {
            let transcript = world.transcript.take().unwrap_or_default();
            Err(Box::new(Violation { seed, step: world.step, what, transcript }))
        }
    }
}
