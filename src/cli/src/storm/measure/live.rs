//! What progress shows of a thread under way.
//!
//! Never waits and never orders anything: each number is right by itself, not with the others.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Duration;

use super::latency::micros;

/// A number now, and the most that it was.
#[derive(Debug, Default)]
struct Level {
    now: AtomicU64,
    peak: AtomicU64,
}

impl Level {
    fn up(&self) {
        let now = self.now.fetch_add(1, Relaxed) + 1;
        // Reads first: a peak is rare, and a write would take the line from every other core.
        if now > self.peak.load(Relaxed) {
            self.peak.fetch_max(now, Relaxed);
        }
    }

    fn down(&self) {
        // Never below zero, whatever the caller forgot to open.
        let _ = self.now.fetch_update(Relaxed, Relaxed, |now| now.checked_sub(1));
    }
}

/// Levels are of all threads together, since a sum of peaks is no peak.
#[derive(Debug, Default)]
struct Together {
    connections: Level,
    sessions: Level,
}

/// One thread's numbers: it writes, progress reads.
#[derive(Debug, Default)]
pub(crate) struct Live {
    together: Arc<Together>,
    calls: AtomicU64,
    events: AtomicU64,
    verdicts: AtomicU64,
    errors: AtomicU64,
    violations: AtomicU64,
    /// The longest time to resume since progress last asked, in microseconds.
    slowest: AtomicU64,
}

/// One more, by the only thread that writes it.
fn bump(number: &AtomicU64, by: u64) {
    number.store(number.load(Relaxed).wrapping_add(by), Relaxed);
}

impl Live {
    /// One for each thread.
    pub(crate) fn group(threads: usize) -> Vec<Arc<Self>> {
        let together = Arc::<Together>::default();
        (0..threads).map(|_| Arc::new(Self { together: Arc::clone(&together), ..Self::default() })).collect()
    }

    pub(super) fn connected(&self) {
        self.together.connections.up();
    }

    pub(super) fn disconnected(&self) {
        self.together.connections.down();
    }

    pub(super) fn session_opened(&self) {
        self.together.sessions.up();
    }

    pub(super) fn session_ended(&self) {
        self.together.sessions.down();
    }

    pub(super) fn called(&self) {
        bump(&self.calls, 1);
    }

    pub(super) fn received(&self, events: u64) {
        bump(&self.events, events);
    }

    pub(super) fn decided(&self) {
        bump(&self.verdicts, 1);
    }

    pub(super) fn failed(&self) {
        bump(&self.errors, 1);
    }

    pub(super) fn violated(&self) {
        bump(&self.violations, 1);
    }

    pub(super) fn resumed(&self, took: Duration) {
        self.slowest.fetch_max(micros(took), Relaxed);
    }

    /// Most connections and sessions at once, of all threads.
    pub(super) fn peaks(&self) -> (u64, u64) {
        (self.together.connections.peak.load(Relaxed), self.together.sessions.peak.load(Relaxed))
    }
}

/// All threads' numbers at about one moment.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Snapshot {
    /// Connections open.
    pub(crate) connections: u64,
    /// Sessions alive, as far as their clients know.
    pub(crate) sessions: u64,
    /// Calls sent so far.
    pub(crate) calls: u64,
    /// Events that arrived so far.
    pub(crate) events: u64,
    /// Verdicts so far.
    pub(crate) verdicts: u64,
    /// Errors so far.
    pub(crate) errors: u64,
    /// Violations so far.
    pub(crate) violations: u64,
    /// The longest time to resume since the last snapshot.
    pub(crate) slowest: Duration,
}

impl Snapshot {
    /// Reads all of them, and begins another search for the slowest.
    pub(crate) fn take(threads: &[Arc<Live>]) -> Self {
        let mut sum = Self::default();
        if let Some(live) = threads.first() {
            sum.connections = live.together.connections.now.load(Relaxed);
            sum.sessions = live.together.sessions.now.load(Relaxed);
        }
        for live in threads {
            sum.calls += live.calls.load(Relaxed);
            sum.events += live.events.load(Relaxed);
            sum.verdicts += live.verdicts.load(Relaxed);
            sum.errors += live.errors.load(Relaxed);
            sum.violations += live.violations.load(Relaxed);
            sum.slowest = sum.slowest.max(Duration::from_micros(live.slowest.swap(0, Relaxed)));
        }
        sum
    }
}
