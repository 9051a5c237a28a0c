//! What an operator may know of a shard: what it counted, and what it has at one moment.
//!
//! A shard's counters are its own: no other thread reads them, so counting shares no cache line with anybody. Whoever wants them asks
//! the shard, as the watch does, and the shard copies them between two of its turns. So a scrape costs a shard one copy of a few
//! KiB, and nothing costs anything while nobody scrapes. Counters that each shard published on its own would be copied for nobody, or be late.
//! Never names a session, a principal or a token.

use std::fmt;
use std::sync::Arc;

use rejoin_proto::shard::counters::Snapshot;

/// A shard, as far as it can be known from another thread.
#[derive(Clone, Debug)]
pub struct ShardStats {
    /// Whether it answered, and what.
    pub state: ShardState,
    /// Messages of other threads and shards that wait for it.
    pub mail_waiting: usize,
}

/// What a shard answered.
#[derive(Clone, Debug)]
pub enum ShardState {
    /// It runs.
    Running(Arc<ShardSnapshot>),
    /// It did not answer in time: a handler blocks it, or its driver is stuck.
    Unresponsive,
    /// It has drained, and runs no more; what it counted until then.
    Ended(Arc<ShardSnapshot>),
}

/// A shard at one moment.
#[derive(Clone, Debug)]
pub struct ShardSnapshot {
    /// What its kernel counted, and what it has.
    pub kernel: Snapshot,
    /// Tasks that run: its connections', its handlers' and a few of its own.
    pub tasks: usize,
    /// Requests to clients whose answers handlers wait for.
    pub client_requests: usize,
}

impl ShardState {
    /// What the shard counted, where it can be known.
    pub fn snapshot(&self) -> Option<&ShardSnapshot> {
        match self {
            Self::Running(snapshot) | Self::Ended(snapshot) => Some(snapshot),
            Self::Unresponsive => None,
        }
    }
}

/// For people: a figure a line.
impl fmt::Display for ShardStats {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "mailbox      {} waiting", self.mail_waiting)?;
        match &self.state {
            ShardState::Running(snapshot) | ShardState::Ended(snapshot) => {
                writeln!(f, "tasks        {}", snapshot.tasks)?;
                writeln!(f, "requests     {} to clients", snapshot.client_requests)?;
                snapshot.kernel.fmt(f)
            }
            ShardState::Unresponsive => writeln!(f, "unresponsive: a handler blocks it, or its driver is stuck"),
        }
    }
}
