//! What a session remembers of its request ids, and the one decision made of it: is this POST a fresh call, a repost, or an id reused?
//!
//! Never executes, joins or answers anything, and never guesses: where it cannot tell a repost from a new call, it says which row of
//! the boundary's table applies.

use std::collections::VecDeque;

use super::id::Id;
use super::seen::{Overflow, SeenIds};
use crate::canary::{self, Canary};
use crate::ids::StreamNumber;
use crate::limits::Limits;
use crate::lists;

/// The ids of one session, over all its incarnations, and what they stood for.
#[derive(Clone, Debug)]
pub struct CallIds {
    /// None once the session is marked: nothing is asked of the ids any more, so nothing of them is kept.
    memory: Option<Memory>,
    /// Records kept at most.
    bound: usize,
}

#[derive(Clone, Debug)]
struct Memory {
    seen: SeenIds,
    /// Oldest first, one for an id. An id is seen before it is recorded, and stays so when its record is gone.
    records: VecDeque<Record>,
}

/// What was POSTed under an id first.
#[derive(Clone, Debug)]
struct Record {
    id: Id,
    body: BodyHash,
    execution: Execution,
}

/// A keyed 128-bit hash, as bytes: a `u128` would align each record to 16 and so enlarge it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct BodyHash([u8; 16]);

impl From<u128> for BodyHash {
    fn from(hash: u128) -> Self {
        Self(hash.to_ne_bytes())
    }
}

/// How a request was, or would be, executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Execution {
    /// Alone in its POST. A repost of it joins this stream.
    Alone {
        /// The stream that answers it.
        stream: StreamNumber,
    },
    /// Among others in a batch, whose body is hashed as a whole. Never joined.
    Batch {
        /// The stream that answers all of the batch.
        stream: StreamNumber,
    },
    /// In a way that no repost can join: `initialize`, under an idempotency key, or in an incarnation that is over.
    Apart,
}

/// Which row of the boundary's POST table a request is in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Presented {
    /// Its id was not seen in this session: execute it.
    Fresh,
    /// A `tools/call` with the id and the body of this one: do not execute it, join that.
    Repost {
        /// The stream to join.
        stream: StreamNumber,
    },
    /// A `tools/call` that may have been executed, of which nothing is left to join: answer `outcome_unknown`.
    RecordGone,
    /// Another request under a seen id, unchanged as far as is remembered: execute it again. It marks nothing.
    Again,
    /// A seen id under another method or with another body: the client reuses ids. Execute it. From here on the session is marked.
    Reused,
    /// Its id was not seen, and there is no room to remember it. Execute it. From here on the session is treated as marked.
    Overflowed,
    /// The session was marked before: execute it, without guessing.
    Marked,
}

impl CallIds {
    /// The memory of a session that has seen nothing.
    pub fn new(limits: &Limits) -> Self {
        let memory = Memory { seen: SeenIds::new(limits.seen_ids), records: VecDeque::new() };
        Self { memory: Some(memory), bound: limits.call_records }
    }

    /// Whether ids say nothing in this session any more, because its client reuses them or used more than can be kept.
    pub fn marked(&self) -> bool {
        self.memory.is_none()
    }

    /// Which row a request is in; changes nothing. For those who must know whether it would be executed before they admit it.
    ///
    /// `body` is the hash of the whole POST's body, and `execution` what is going to be remembered if it is executed.
    pub fn classify(&self, id: &Id, tools_call: bool, body: u128, execution: Execution) -> Presented {
        let Some(memory) = &self.memory else { return Presented::Marked };
        match memory.seen.check(id) {
            Ok(true) => return Presented::Fresh,
            Err(Overflow) => return Presented::Overflowed,
            Ok(false) => {}
        }
        // Newest first: a repost comes soon. Only ids already seen are looked for.
        let Some(first) = memory.records.iter().rev().find(|record| record.id == *id) else {
            return if tools_call { Presented::RecordGone } else { Presented::Again };
        };
        if first.body != body.into() || in_same_batch(first.execution, execution) {
            return Presented::Reused;
        }
        match (tools_call, first.execution, execution) {
            (false, _, _) => Presented::Again,
            (true, Execution::Alone { stream }, _) if canary::bites(Canary::ExecutedAgain) && stream.0 % 10 == 7 => {
                Presented::Again
            }
            (true, Execution::Alone { stream }, Execution::Alone { .. }) => Presented::Repost { stream },
            (true, _, _) => Presented::RecordGone,
        }
    }

    /// Which row a request is in, and remembers it: the one place where an id becomes seen, recorded, or the session's mark.
    ///
    /// Present a request only when it will be executed if the answer says so: one that is shed afterwards would count as having run.
    pub fn present(&mut self, id: &Id, tools_call: bool, body: u128, execution: Execution) -> Presented {
        let presented = self.classify(id, tools_call, body, execution);
        match presented {
            Presented::Fresh => self.count_as_seen(id, body, execution),
            Presented::Reused | Presented::Overflowed => self.memory = None,
            Presented::Repost { .. } | Presented::RecordGone | Presented::Again | Presented::Marked => {}
        }
        presented
    }

    /// Counts the id of a request that is decided without it as seen: of `initialize`, and of one under an idempotency key.
    ///
    /// Its body is remembered too. Else the next request of a client that sends one id with everything would look like a repost whose
    /// record is gone, and not like what it is.
    pub fn present_apart(&mut self, id: &Id, body: u128) {
        self.count_as_seen(id, body, Execution::Apart);
    }

    fn count_as_seen(&mut self, id: &Id, body: u128, execution: Execution) {
        let Some(memory) = &mut self.memory else { return };
        match memory.seen.insert(id) {
            Ok(false) => {}
            Ok(true) => memory.record(Record { id: id.clone(), body: body.into(), execution }, self.bound),
            Err(Overflow) => self.memory = None,
        }
    }

    /// A new incarnation begins: ids seen stay as tombstones, and what ran under them can no longer be joined. A repost of such a call
    /// gets `outcome_unknown`; a mark stays, since it is the client that reuses ids.
    pub fn rotate(&mut self) {
        for record in self.memory.iter_mut().flat_map(|memory| &mut memory.records) {
            record.execution = Execution::Apart;
        }
    }
}

/// One id twice in one batch is no batch sent twice, though both have the same body.
fn in_same_batch(first: Execution, second: Execution) -> bool {
    matches!((first, second), (Execution::Batch { stream: first }, Execution::Batch { stream: second }) if first == second)
}

impl Memory {
    fn record(&mut self, record: Record, bound: usize) {
        if self.records.len() >= bound {
            self.records.pop_front();
        }
        if self.records.len() < bound {
            lists::push(&mut self.records, record);
        }
    }
}

#[cfg(test)]
mod tests;
