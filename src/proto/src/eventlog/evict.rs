//! What goes when memory, age or a limit says so: acknowledged events first, then the old, then those of the ring that holds the most;
//! among pinned events the oldest of the largest holder.
//!
//! Never evicts a pinned event for an ordinary one.

use std::collections::VecDeque;

use super::ring::{Given, Pinned, Ring};
use super::{EventLog, Full, Lingering, RING_COST, RingId};
use crate::ids::Position;
use crate::time::Instant;

/// What a holder's own entry costs.
pub(super) const HOLDER_COST: usize =
    size_of::<(u32, Holder)>() + size_of::<(u8, u32)>() * 2 + 8 * size_of::<(RingId, Position)>();

/// The pinned events of one session, oldest first. Some may be gone already.
#[derive(Debug, Default)]
pub(super) struct Holder {
    bytes: usize,
    live: usize,
    oldest: VecDeque<(RingId, Position)>,
    size_class: u8,
}

/// Sizes within a factor of two are of one class; nothing is of class 0.
fn size_class(bytes: usize) -> u8 {
    (usize::BITS - bytes.leading_zeros()) as u8
}

impl EventLog {
    /// Makes `need` bytes available, or says why that cannot be. `keep` is the ring about to be appended to: its own events may go too.
    pub(super) fn make_room(&mut self, need: usize, keep: Option<RingId>) -> Result<(), Full> {
        if self.used + need <= self.limits.log_bytes {
            return Ok(());
        }
        self.release();
        while self.used + need > self.limits.log_bytes {
            if !self.evict_something(keep) {
                return Err(if self.lingering_bytes > 0 { Full::Lingering } else { Full::Budget });
            }
        }
        Ok(())
    }

    /// Brings what is used back into the budget, after a frame that was longer than was said.
    pub(super) fn balance(&mut self) {
        while self.used > self.limits.log_bytes && self.evict_something(None) {}
    }

    fn evict_something(&mut self, keep: Option<RingId>) -> bool {
        while let Some(&id) = self.acknowledged.front() {
            if self.evict_acknowledged(id) {
                return true;
            }
            self.acknowledged.pop_front();
            if let Some(ring) = self.ring_mut(id) {
                ring.queued = false;
            }
        }
        let Some(&(_, id)) = self.by_size.last() else { return false };
        let Some(ring) = self.ring_mut(id) else { return self.by_size.pop_last().is_some() };
        let lists = ring.lists();
        let given = ring.evict_front();
        ring.segments.shrink_to(ring.segments.len() * 2);
        let freed = lists - ring.lists();
        self.used -= freed;
        let some = !given.is_empty();
        self.give_back(given);
        self.reindex(id);
        if keep != Some(id) {
            self.note_emptied(id);
        }
        some
    }

    /// Evicts a ring's front segment where all of it was acknowledged; `false` when no whole buffer comes free that way.
    fn evict_acknowledged(&mut self, id: RingId) -> bool {
        let Some(ring) = self.ring_mut(id) else { return false };
        let acknowledged = ring.acknowledged;
        let whole = match ring.segments.front() {
            Some(front) => front.next().previous() <= acknowledged,
            None => ring.pinned.iter().any(|pinned| pinned.ordinary && pinned.position <= acknowledged),
        };
        if !whole {
            return false;
        }
        let given = ring.evict_front();
        let some = !given.is_empty();
        self.give_back(given);
        self.reindex(id);
        self.note_emptied(id);
        some
    }

    /// Takes buffers back from a ring: free at once, or lingering while somebody sends them.
    pub(super) fn give_back(&mut self, given: impl IntoIterator<Item = Given>) {
        for Given { bytes, capacity } in given {
            match bytes {
                Some(bytes) if !bytes.is_unique() => {
                    self.lingering_bytes += capacity;
                    self.lingering.push_back(Lingering { bytes, capacity });
                }
                _ => self.used -= capacity,
            }
        }
    }

    /// Looks which lingering buffers nobody sends any more.
    pub fn release(&mut self) {
        let mut freed = 0;
        self.lingering.retain(|lingering| {
            let unique = lingering.bytes.is_unique();
            freed += if unique { lingering.capacity } else { 0 };
            !unique
        });
        self.lingering_bytes -= freed;
        self.used -= freed;
    }

    // ---- pinned events ----

    /// Makes room in the share of pinned events: the oldest of the largest holder go.
    pub(super) fn make_pinned_room(&mut self, need: usize) {
        while self.pinned + need > self.pinned_budget {
            let Some(&(_, holder)) = self.holders_by_size.last() else { return };
            let oldest = self.holders.get_mut(&holder).and_then(|holder| holder.oldest.pop_front());
            match oldest {
                Some((id, position)) => {
                    if self.drop_pinned(id, position) {
                        self.lost.push((id, position));
                        self.note_emptied(id);
                    }
                }
                None => {
                    self.holders_by_size.pop_last();
                }
            }
        }
    }

    /// Counts a pinned event with its holder.
    pub(super) fn pin(&mut self, holder: u32, id: RingId, position: Position, cost: usize) {
        self.pinned += cost;
        let mut dead = None;
        let entry = self.holders.entry(holder).or_insert_with(|| {
            self.used += HOLDER_COST;
            Holder::default()
        });
        entry.bytes += cost;
        entry.live += 1;
        entry.oldest.push_back((id, position));
        if entry.oldest.len() > 2 * entry.live + 8 {
            dead = Some(std::mem::take(&mut entry.oldest));
        }
        if let Some(mut oldest) = dead {
            oldest.retain(|&(id, position)| self.is_pinned(id, position));
            oldest.shrink_to_fit();
            if let Some(entry) = self.holders.get_mut(&holder) {
                entry.oldest = oldest;
            }
        }
        self.reclass_holder(holder);
    }

    fn is_pinned(&self, id: RingId, position: Position) -> bool {
        self.ring(id).is_some_and(|ring| ring.pinned_at(position).is_some_and(|at| !ring.pinned[at].ordinary))
    }

    /// A pinned event of a holder is pinned no more.
    pub(super) fn unpinned(&mut self, holder: u32, cost: usize) {
        self.pinned -= cost;
        let Some(entry) = self.holders.get_mut(&holder) else { return };
        entry.bytes -= cost;
        entry.live -= 1;
        if entry.live == 0 {
            self.holders_by_size.remove(&(entry.size_class, holder));
            self.holders.remove(&holder);
            self.used -= HOLDER_COST;
        } else {
            self.reclass_holder(holder);
        }
    }

    fn reclass_holder(&mut self, holder: u32) {
        let Some(entry) = self.holders.get_mut(&holder) else { return };
        let class = size_class(entry.bytes);
        if class != entry.size_class {
            self.holders_by_size.remove(&(entry.size_class, holder));
            self.holders_by_size.insert((class, holder));
            entry.size_class = class;
        }
    }

    /// Drops an event that is pinned; `false` when it is not (any more).
    fn drop_pinned(&mut self, id: RingId, position: Position) -> bool {
        if !self.is_pinned(id, position) {
            return false;
        }
        let Some(ring) = self.ring_mut(id) else { return false };
        let Some(at) = ring.pinned_at(position) else { return false };
        let holder = ring.holder;
        let pinned = ring.pinned.remove(at);
        self.unpinned(holder, pinned.cost() + size_of::<Pinned>());
        self.give_back([Given { capacity: pinned.cost(), bytes: Some(pinned.frame) }]);
        true
    }

    // ---- age ----

    /// Evicts what is too old: at the latest one second after its time.
    pub fn expire(&mut self, now: Instant) {
        while let Some(&(due, id)) = self.by_age.first()
            && due <= now
        {
            self.by_age.pop_first();
            if let Some(ring) = self.ring_mut(id) {
                ring.due = None;
            }
            self.expire_ring(id, now);
            self.reindex(id);
            self.note_emptied(id);
        }
        if self.lingering_bytes > 0 {
            self.release();
        }
    }

    fn expire_ring(&mut self, id: RingId, now: Instant) {
        let limits = self.limits.clone();
        let Some(ring) = self.ring_mut(id) else { return };
        let mut given = Vec::new();
        while ring.first_ordinary_is_old(&limits, now) {
            given.extend(ring.evict_first().flatten());
        }
        let old = |pinned: &&Pinned| !pinned.ordinary && pinned.came + limits.result_ttl + super::segment::AGE_GRAIN <= now;
        let results: Vec<_> = ring.pinned.iter().filter(old).map(|pinned| pinned.position).collect();
        self.give_back(given);
        for position in results {
            if self.drop_pinned(id, position) {
                self.lost.push((id, position));
            }
        }
    }

    /// When `expire` will next have something to do.
    pub fn next_expiry(&self) -> Option<Instant> {
        self.by_age.first().map(|&(due, _)| due)
    }

    // ---- where a ring stands ----

    /// Puts a ring where it belongs by size and by age, after what it holds has changed.
    pub(super) fn reindex(&mut self, id: RingId) {
        let Some(entry) = self.rings.get_mut(id.index as usize).filter(|entry| entry.generation == id.generation) else { return };
        let ring = &mut entry.ring;
        let class = if ring.events == 0 { 0 } else { size_class(ring.bytes) };
        if class != ring.size_class {
            self.by_size.remove(&(ring.size_class, id));
            if class > 0 {
                self.by_size.insert((class, id));
            }
            ring.size_class = class;
        }
        let due = ring.first_due(&self.limits);
        if let Some(due) = due
            && ring.due.is_none_or(|known| due < known)
        {
            if let Some(known) = ring.due.replace(due) {
                self.by_age.remove(&(known, id));
            }
            self.by_age.insert((due, id));
        }
    }

    pub(super) fn unindex(&mut self, id: RingId) {
        let Some(ring) = self.ring(id) else { return };
        let (by_size, by_age) = ((ring.size_class, id), ring.due.map(|due| (due, id)));
        self.by_size.remove(&by_size);
        if let Some(by_age) = by_age {
            self.by_age.remove(&by_age);
        }
    }

    pub(super) fn note_emptied(&mut self, id: RingId) {
        if self.ring(id).is_some_and(|ring| ring.finished && ring.is_empty()) {
            self.emptied.push(id);
        }
    }

    /// Takes back everything that a removed ring held.
    pub(super) fn forget(&mut self, ring: Ring) {
        let lists = ring.lists();
        for pinned in ring.pinned {
            if !pinned.ordinary {
                self.unpinned(ring.holder, pinned.cost() + size_of::<Pinned>());
            }
            self.give_back([Given { capacity: pinned.cost(), bytes: Some(pinned.frame) }]);
        }
        for segment in ring.segments {
            self.give_back([Given { capacity: segment.cost(), bytes: segment.into_bytes() }]);
        }
        self.used -= lists + RING_COST;
    }
}
