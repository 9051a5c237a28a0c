//! What the sessions of one thread share: the run, the recorder, the buffer, and cursors to try on others.
//!
//! Never leaves its thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use fastrand::Rng;
use rejoin_proto::time::Instant as Moment;

use super::counts::Tally;
use super::measure::{Recorder, Violation as Recorded};
use super::script::Script;
use super::truth::Violation;
use crate::target::Target;

/// Bytes read at once, by all sessions of a thread in turn.
pub(crate) const READ_BUFFER: usize = 64 << 10;
/// Genuine cursors kept to be shown by sessions that they are not of.
const CURSORS: usize = 64;

/// A run, as every thread sees it.
#[derive(Debug)]
pub(crate) struct Storm {
    /// What happens.
    pub(crate) script: Script,
    /// To whom.
    pub(crate) target: Target,
    /// What all chance comes from.
    pub(crate) seed: u64,
    /// A word that no other run has: a server counts executions by key for as long as it lives.
    pub(crate) nonce: String,
    /// When it began.
    pub(crate) origin: Instant,
    /// Requests that may still be sent.
    pub(crate) requests_left: AtomicU64,
    /// Whether a request was not sent because of that.
    pub(crate) bounded: AtomicBool,
    /// Calls whose events still came when the run was over.
    pub(crate) under_way: AtomicU64,
    /// What the first connection that could not be made said.
    pub(crate) unreachable: OnceLock<String>,
}

impl Storm {
    /// An instant of the script.
    pub(crate) fn at(&self, since: Duration) -> Instant {
        self.origin + since
    }

    /// When no more calls begin.
    pub(crate) fn ends(&self) -> Instant {
        self.at(self.script.length())
    }

    /// When those in flight must have ended.
    pub(crate) fn settled(&self) -> Instant {
        self.ends() + self.script.settle
    }

    /// Takes one request from the bound; false when none is left.
    fn may_send(&self) -> bool {
        let taken = self.requests_left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok();
        if !taken {
            self.bounded.store(true, Ordering::Relaxed);
        }
        taken
    }
}

/// One thread's part.
pub(crate) struct Thread {
    /// The run.
    pub(crate) storm: Arc<Storm>,
    recorder: RefCell<Recorder>,
    tally: RefCell<Tally>,
    buffer: Cell<Vec<u8>>,
    cursors: RefCell<VecDeque<(u32, Box<str>)>>,
    /// Sessions that are not over.
    pub(crate) left: Cell<u32>,
}

impl Thread {
    /// With so many sessions to come.
    pub(crate) fn new(storm: Arc<Storm>, recorder: Recorder, sessions: u32) -> Self {
        Self {
            storm,
            recorder: recorder.into(),
            tally: RefCell::default(),
            buffer: vec![0; READ_BUFFER].into(),
            cursors: RefCell::default(),
            left: sessions.into(),
        }
    }

    /// Records something.
    pub(crate) fn record(&self, record: impl FnOnce(&mut Recorder)) {
        record(&mut self.recorder.borrow_mut());
    }

    /// Counts something.
    pub(crate) fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.tally.borrow_mut());
    }

    /// Whether another request may be sent; counts it.
    pub(crate) fn may_send(&self) -> bool {
        self.storm.may_send()
    }

    /// Milliseconds since the run's start.
    pub(crate) fn ms(&self, at: Instant) -> u64 {
        u64::try_from(at.saturating_duration_since(self.storm.origin).as_millis()).unwrap_or(u64::MAX)
    }

    /// An instant as a machine has it: since the run's start.
    pub(crate) fn moment(&self, at: Instant) -> Moment {
        Moment::from_millis(self.ms(at))
    }

    /// A machine's instant; `None` for one that never comes.
    pub(crate) fn instant(&self, moment: Moment) -> Option<Instant> {
        self.storm.origin.checked_add(Duration::from_millis(moment.as_millis()))
    }

    /// Records what an oracle found.
    pub(crate) fn tell(&self, found: Vec<Violation>) {
        let now = Instant::now();
        for Violation { outcome, text, transcript } in found {
            let violation = Recorded { at_ms: 0, name: outcome.name().to_owned(), text, transcript };
            self.record(|recorder| recorder.violation(now, violation));
        }
    }

    /// Lends the buffer; whoever has it gives it back before it waits.
    pub(crate) fn with_buffer<R>(&self, with: impl FnOnce(&mut [u8]) -> R) -> R {
        let mut buffer = self.buffer.take();
        let result = with(&mut buffer);
        self.buffer.set(buffer);
        result
    }

    /// Offers a genuine cursor to sessions that it is not of.
    pub(crate) fn offer(&self, session: u32, cursor: &str) {
        let mut cursors = self.cursors.borrow_mut();
        if cursors.len() == CURSORS {
            cursors.pop_front();
        }
        cursors.push_back((session, cursor.into()));
    }

    /// A genuine cursor of another session, if one was offered.
    pub(crate) fn foreign(&self, session: u32, rng: &mut Rng) -> Option<Box<str>> {
        let cursors = self.cursors.borrow();
        let others: Vec<_> = cursors.iter().filter(|(of, _)| *of != session).collect();
        rng.choice(others).map(|(_, cursor)| cursor.clone())
    }

    /// What was recorded and counted, at the end.
    pub(crate) fn into_parts(self) -> (Recorder, Tally) {
        (self.recorder.into_inner(), self.tally.into_inner())
    }
}
