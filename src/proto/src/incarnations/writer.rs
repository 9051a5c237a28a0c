//! The owning shard's end of its table: which slot comes next, and the transitions of each.
//!
//! Never reads an id from outside and never decides that a session ends; it records what `session` and `shard` decided.

use std::collections::VecDeque;
use std::fmt;
use std::sync::Arc;

use super::sync::Ordering;
use super::{Name, State, Table, index};
use crate::ids::{SessionId, SlotIndex};
use crate::refusal::Ended;

/// The only writer of a table (R1). `Send`, not `Clone`.
///
/// A slot goes `reserve` → `publish` → `end`, and its session's state stays readable until it is published again. `reserve` hands out
/// slots never used first, then those that came to nothing, then the one that ended first: each end is remembered as long as can be.
pub struct Writer {
    table: Arc<Table>,
    /// The slots from here on were never handed out.
    never_used: u32,
    /// Slots to hand out again, the next one in front.
    free: VecDeque<SlotIndex>,
    /// Of each slot: handed out, and neither published nor released yet.
    reserved: Box<[bool]>,
    live: u32,
}

impl Writer {
    pub(super) fn new(table: Arc<Table>) -> Self {
        let reserved = table.slots.iter().map(|_| false).collect();
        Self { table, never_used: 0, free: VecDeque::new(), reserved, live: 0 }
    }

    /// Takes a slot for a session whose id is about to be minted; `None` when every slot is live or reserved. Readers still see
    /// what the slot remembers.
    pub fn reserve(&mut self) -> Option<SlotIndex> {
        let slot = if self.table.slot(SlotIndex(self.never_used)).is_some() {
            self.never_used += 1;
            SlotIndex(self.never_used - 1)
        } else {
            self.free.pop_front()?
        };
        *self.reserved.get_mut(index(slot)?)? = true;
        Some(slot)
    }

    /// Gives back a reserved slot whose session came to nothing. It is the next to be reserved, and remembers what it did.
    pub fn release(&mut self, slot: SlotIndex) {
        if self.take_reserved(slot) {
            self.free.push_front(slot);
        }
    }

    /// The session of this id, minted for a reserved slot of this table, is live for the principal with this tag (zero: none). From
    /// here on the slot's previous session is unknown. An id for any other slot is a fault of the caller and changes nothing.
    pub fn publish(&mut self, id: &SessionId, principal_tag: u64) {
        let here = id.shard() == self.table.shard && id.boot() == self.table.boot;
        let reserved = here && self.take_reserved(id.slot());
        debug_assert!(reserved, "{id:?} was published without its slot");
        if reserved && let Some(slot) = self.table.slot(id.slot()) {
            slot.open(Name::of(id), principal_tag);
            self.count(self.live + 1);
        }
    }

    /// The live session in this slot has ended. `Expired`, `Deleted`, `Closed`, `Shed` and `Lineage` are remembered; any other reason
    /// leaves a vacant slot, where its id is unknown at once (an `initialize` that failed leaves no session). Without a live session
    /// there nothing happens: the first end counts.
    pub fn end(&mut self, slot: SlotIndex, why: Ended) {
        let Some(place) = self.table.slot(slot).filter(|place| place.is_live()) else { return };
        match State::remembering(why) {
            Some(state) => {
                place.close(state);
                self.free.push_back(slot);
            }
            None => {
                place.vacate();
                self.free.push_front(slot);
            }
        }
        self.count(self.live - 1);
    }

    /// What readers share.
    pub fn table(&self) -> &Table {
        &self.table
    }

    fn take_reserved(&mut self, slot: SlotIndex) -> bool {
        index(slot).and_then(|at| self.reserved.get_mut(at)).is_some_and(std::mem::take)
    }

    fn count(&mut self, live: u32) {
        self.live = live;
        self.table.live.0.store(live, Ordering::Relaxed); // R9
    }
}

impl fmt::Debug for Writer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "writer of {:?}, {} used before", self.table, self.free.len())
    }
}
