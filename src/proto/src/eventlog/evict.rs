//! What goes when memory or age says so: what is too old first, then acknowledged events, then those of the ring that holds the most;
//! among pinned events the oldest of the largest holder.
//!
//! Never evicts a pinned event for an ordinary one. No eviction uses more memory than it frees.

use super::index::Slot;
use super::ordinary::Given;
use super::{EventLog, Evicted, Full, Lingering, RingId, index};
use crate::ids::Position;
use crate::lists;
use crate::time::Instant;

/// How many lingering buffers one append looks at when memory is short.
const RELEASED_AT_ONCE: usize = 32;

impl EventLog {
    // ---- room ----

    fn fits(&self, need: usize) -> bool {
        self.refusal(need, self.used()).is_none()
    }

    /// Makes `need` bytes available, and what the indexes may take beside them. `need` is asked again after each eviction, for that
    /// may change it. Where it is plain that evicting everything would not do, nothing is evicted.
    pub(super) fn make_room(&mut self, now: Option<Instant>, need: impl Fn(&Self) -> usize) -> Result<(), Full> {
        if self.fits(need(self)) {
            return Ok(());
        }
        self.release_some(RELEASED_AT_ONCE);
        if let Some(now) = now {
            self.expire_rings(now);
        }
        self.is_possible(need(self), 0)?;
        while !self.fits(need(self)) {
            if !self.evict_something() {
                self.release();
                return self.refusal(need(self), self.used()).map_or(Ok(()), Err);
            }
        }
        Ok(())
    }

    /// Whether `need` bytes would be available if every ordinary event and `besides` bytes of others went.
    pub(super) fn is_possible(&mut self, need: usize, besides: usize) -> Result<(), Full> {
        let fixed = |log: &Self| log.used().saturating_sub(log.evictable + log.index.evictable() + besides);
        if self.refusal(need, fixed(self)).is_some() {
            self.release();
        }
        self.refusal(need, fixed(self)).map_or(Ok(()), Err)
    }

    /// Why `need` bytes cannot be had beside `fixed` bytes, if they cannot.
    fn refusal(&self, need: usize, fixed: usize) -> Option<Full> {
        let needed = fixed.saturating_add(need).saturating_add(index::GROWTH);
        match needed.saturating_sub(self.limits.log_bytes) {
            0 => None,
            _ if need > self.limits.log_bytes => Some(Full::TooLarge),
            over if over <= self.lingering_bytes => Some(Full::Lingering),
            _ => Some(Full::Budget),
        }
    }

    /// Brings what is used back into the budget, after a change that did not ask for room: the little that indexes take.
    pub(super) fn balance(&mut self) {
        while self.used() > self.limits.log_bytes && self.evict_something() {}
    }

    fn evict_something(&mut self) -> bool {
        let mut given = Vec::new();
        if let Some(slot) = self.index.first_acknowledged() {
            let evicted = self.change(slot, |ring, _| ring.evict_acknowledged(&mut given));
            self.evicted[Evicted::Acknowledged] += evicted.unwrap_or_default();
        } else if let Some(slot) = self.index.largest() {
            let evicted = self.change(slot, |ring, _| ring.evict_front(&mut given));
            self.evicted[Evicted::Pressure] += evicted.unwrap_or_default();
        }
        let some = !given.is_empty();
        self.give_back(given);
        some
    }

    /// Makes room in the share of pinned events: the oldest of the largest holder go.
    pub(super) fn make_pinned_room(&mut self, need: usize) {
        while self.pinned + need > self.pinned_budget {
            let Some(slot) = self.index.oldest_of_largest_holder() else { return };
            let mut given = Vec::new();
            let position = self.change(slot, |ring, _| ring.evict_pinned(&mut given)).flatten();
            self.evicted[Evicted::PinnedShare] += u64::from(position.is_some());
            self.give_back(given);
            self.lose(slot, position);
        }
    }

    fn lose(&mut self, slot: Slot, positions: impl IntoIterator<Item = Position>) {
        let Some(ring) = self.rings.get(slot as usize) else { return };
        let id = RingId { slot, generation: ring.generation };
        for position in positions {
            lists::push(&mut self.lost, (id, position));
        }
    }

    // ---- buffers that somebody still sends ----

    /// Takes buffers back from a ring: free at once, or lingering while somebody sends them.
    pub(super) fn give_back(&mut self, given: impl IntoIterator<Item = Given>) {
        for Given { bytes, cost } in given {
            if let Some(bytes) = bytes.filter(|bytes| !bytes.is_unique()) {
                self.lingering_bytes += cost;
                lists::push(&mut self.lingering, Lingering { bytes, cost });
            }
        }
    }

    /// Looks which lingering buffers nobody sends any more.
    pub fn release(&mut self) {
        self.release_some(self.lingering.len());
    }

    /// Looks at `most` of them, the ones not looked at for longest.
    fn release_some(&mut self, most: usize) {
        for _ in 0..most.min(self.lingering.len()) {
            let Some(lingering) = self.lingering.pop_front() else { return };
            if lingering.bytes.is_unique() {
                self.lingering_bytes -= lingering.cost;
            } else {
                self.lingering.push_back(lingering);
            }
        }
        lists::tighten(&mut self.lingering);
    }

    // ---- age ----

    /// Evicts what is too old: at the latest one second after its time.
    pub fn expire(&mut self, now: Instant) {
        self.expire_rings(now);
        self.balance();
        self.release();
    }

    fn expire_rings(&mut self, now: Instant) {
        while let Some((due, slot)) = self.index.first_due()
            && due <= now
        {
            let mut given = Vec::new();
            let (lost, evicted) = self.change(slot, |ring, limits| ring.expire(now, limits, &mut given)).unwrap_or_default();
            self.evicted[Evicted::Age] += evicted + lost.len() as u64;
            self.give_back(given);
            self.lose(slot, lost);
        }
    }

    /// When `expire` will next have something to do.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.index.first_due().map(|(due, _)| due)
    }
}
