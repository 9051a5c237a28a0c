//! The oracle: keeps everything that was ever said, for ever, and holds what clients are sent against the boundary's page.
//!
//! Shares `ids` with the kernel and nothing else that computes: the kernel's enums are read, its parsers and decisions are not. Never
//! tells the world what to do.

pub(crate) mod book;
mod deliver;
mod head;
pub(crate) mod line;
mod said;
mod scan;
pub(crate) mod session;
mod stream;
mod want;

use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

use rejoin_proto::ids::{Key, SessionId};
use rejoin_proto::shard::{Finished, ResponsePolicy};

pub(crate) use head::Kind;
pub(crate) use said::{Meaning, Speech};
pub(crate) use stream::Heard;

use super::coverage::Coverage;
use super::plan::Plan;
use super::request::Intent;
use book::Book;
use session::Session;

/// What holds, or how it was broken.
pub(crate) type Check<T = ()> = Result<T, String>;

/// When and where something happens.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The step.
    pub(crate) step: u64,
    /// The shard's time, in milliseconds.
    pub(crate) now: u64,
    /// The shard.
    pub(crate) shard: usize,
    /// The shard drains.
    pub(crate) draining: bool,
}

/// A request on a connection, not answered in full yet.
#[derive(Debug)]
pub(crate) struct Pending {
    /// What its client meant.
    pub(crate) intent: Rc<Intent>,
    /// Where its last byte stands in what the client writes.
    pub(crate) end: u64,
    /// The step in which that byte reached a shard, or `u64::MAX`.
    pub(crate) whole_since: u64,
    /// The time at which its first byte did.
    pub(crate) begun_at: Option<u64>,
    /// How it is being answered, and with which status.
    pub(crate) kind: Option<Kind>,
    pub(crate) status: u16,
}

/// The oracle.
#[derive(Debug)]
pub(crate) struct Oracle {
    plan: Rc<Plan>,
    key: Key,
    boot: u32,
    /// What clients wrote.
    pub(crate) book: Book,
    /// Every session that ever was.
    pub(crate) sessions: Vec<Session>,
    by_id: HashMap<SessionId, usize>,
    /// Who had a slot last.
    slots: HashMap<(u8, u32), usize>,
    /// Sessions that live, a shard.
    alive: Vec<usize>,
    /// What clients answered to requests of the server: bodies, and whether each was an error.
    responses: BTreeMap<u64, Vec<(Rc<str>, bool)>>,
    /// Requests that their handlers withdrew, by step.
    withdrawn: BTreeMap<u64, u64>,
    /// The batch that began last: its step, session, body and stream.
    batch: Option<(u64, usize, u64, u32)>,
    /// Sessions whose end or rotation must follow in this step, because calls were told so.
    due: Vec<(usize, u64, Due)>,
    /// What was reached.
    pub(crate) coverage: Coverage,
}

/// What must have happened before a step ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    /// The session's life is over.
    LifeOver,
    /// The session ended, reason `lineage`, and the client was told.
    Told,
}

impl Oracle {
    /// One that knows nothing yet.
    pub(crate) fn new(plan: Rc<Plan>, key: Key) -> Self {
        Self {
            alive: vec![0; usize::from(plan.shards)],
            plan,
            key,
            boot: 0,
            book: Book::default(),
            sessions: Vec::new(),
            by_id: HashMap::new(),
            slots: HashMap::new(),
            responses: BTreeMap::new(),
            withdrawn: BTreeMap::new(),
            batch: None,
            due: Vec::new(),
            coverage: Coverage::default(),
        }
    }

    /// The process begins another life; nothing of the one before lives.
    pub(crate) fn restart(&mut self, boot: u32, step: u64) {
        self.boot = boot;
        self.alive.fill(0);
        for session in &mut self.sessions {
            session.ended.get_or_insert((step, rejoin_proto::refusal::Ended::Restarted));
            session.flights.clear();
            session.asks.clear();
        }
        self.due.clear();
    }

    /// The session with this id.
    pub(crate) fn find(&self, id: &SessionId) -> Option<usize> {
        self.by_id.get(id).copied()
    }

    /// A step is over: whatever had to follow in it has followed.
    pub(crate) fn step_over(&mut self) -> Check {
        for (session, step, due) in std::mem::take(&mut self.due) {
            let session = &self.sessions[session];
            let ended = session.ended.is_some_and(|(at, _)| at == step);
            let turned = session.lives.len() > 1 && session.lives[session.lives.len() - 2].over == Some(step);
            if due == Due::LifeOver && !ended && !turned {
                return Err(format!("calls of {:?} were told that it ended, and it goes on", session.id));
            }
            if due == Due::Told {
                return Err(format!("{:?} ended for its lineage, and nobody was told", session.id));
            }
        }
        Ok(())
    }

    /// Whether an event of this kind and age may be gone although nothing but age presses.
    fn may_be_gone(&self, pinned: bool, age: u64) -> bool {
        use super::plan::Pressure;
        let ttl = if pinned { self.plan.limits.result_ttl } else { self.plan.limits.event_ttl };
        let aged = age >= ttl.as_millis() as u64;
        match self.plan.pressure {
            Pressure::Roomy | Pressure::Age => aged,
            Pressure::Stream => aged || !pinned,
            Pressure::Budget | Pressure::Everything => true,
        }
    }

    /// Whether the log of this plan can be full.
    fn log_can_be_full(&self) -> bool {
        use super::plan::Pressure;
        matches!(self.plan.pressure, Pressure::Budget | Pressure::Everything)
    }

    fn finished_policy(&self) -> Finished {
        self.plan.finished
    }

    fn response_policy(&self) -> ResponsePolicy {
        self.plan.response
    }
}
