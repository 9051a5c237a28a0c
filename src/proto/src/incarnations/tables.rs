//! All shards' tables: where any id is looked up, and where a new session is placed.
//!
//! Never writes a slot.

use std::sync::Arc;

use super::{Liveness, Table};
use crate::ids::{Boot, SessionId, ShardIndex};
use crate::refusal::Ended;

/// The tables of a process. Cheap to clone, the same for every shard.
#[derive(Clone, Debug)]
pub struct Tables {
    boot: Boot,
    /// The table of shard n at n.
    tables: Arc<[Arc<Table>]>,
}

impl Tables {
    /// The tables of this life of the process, the one of shard n at n.
    pub fn new(boot: Boot, tables: Vec<Arc<Table>>) -> Self {
        debug_assert!(
            tables.iter().enumerate().all(|(at, table)| at == usize::from(table.shard().0)),
            "{tables:?} are not in order"
        );
        Self { boot, tables: tables.into() }
    }

    /// Whose this id is and whether it lives, for a caller whose principal has this tag (zero: no principal). An id of another boot
    /// is `Restarted` even where this process has fewer shards or slots; an id of a shard that does not exist is `Unknown`.
    pub fn look_up(&self, id: &SessionId, principal_tag: u64) -> Liveness {
        if id.boot() != self.boot {
            return Liveness::Ended(Ended::Restarted);
        }
        match self.tables.get(usize::from(id.shard().0)) {
            Some(table) => table.look_up(id, principal_tag),
            None => Liveness::Ended(Ended::Unknown),
        }
    }

    /// The shard with the fewest live sessions; among equals `nearest`, if it is one (a session placed there needs no handoff), else
    /// the first. `nearest` where there is no table.
    pub fn least_loaded(&self, nearest: ShardIndex) -> ShardIndex {
        let least = self.tables.iter().min_by_key(|table| (table.live(), table.shard() != nearest));
        least.map_or(nearest, |table| table.shard())
    }
}
