//! The event log: one shard's fixed budget of memory for the frames of all its streams.
//!
//! A stream's ring is the segments that it holds of the budget; a frame is encoded once, into its ring's open segment, and a full
//! segment is sealed and sent as it is. Results and unanswered requests are pinned: held apart, in a share of their own, so that a
//! gap costs progress and not results. Never knows sessions, calls or connections, never sends, never waits: what is read stays
//! readable for whoever holds it, and counts (`lingering`) until they let go.

mod evict;
mod ring;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::fmt;

use bytes::Bytes;
use slab::Slab;

use crate::ids::Position;
use crate::limits::Limits;
use crate::time::Instant;

use evict::Holder;
use ring::{Pinned, Ring};
use segment::Segment;

/// The smallest segment, in bytes.
const SEGMENT_MIN: usize = 512;
/// The largest segment (a larger frame gets one of its own size).
const SEGMENT_MAX: usize = 256 << 10;
/// No segment is a larger part of the budget than one of these.
const SEGMENTS_A_BUDGET: usize = 16;
/// What a ring costs before its first event: its entry, and its places among the rings by size and by age.
const RING_COST: usize = size_of::<Ring>() + 3 * size_of::<(Instant, RingId)>();

/// A ring's name. One that was removed names no other ring until 2³² more have come and gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingId {
    index: u32,
    generation: u32,
}

/// How an event is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Evicted by age, limits and pressure.
    Ordinary,
    /// A result, or a request to the client not yet answered: held apart.
    Pinned,
}

/// Why an event was not taken. Nothing of it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// The frame is larger than `limits.message_bytes` allows, or than the share of pinned events.
    TooLarge,
    /// Evicted segments that slow readers still hold fill the budget.
    Lingering,
    /// Nothing is left to evict.
    Budget,
}

/// A shard's event log.
pub struct EventLog {
    limits: Limits,
    segment_max: usize,
    pinned_budget: usize,
    rings: Slab<Entry>,
    generation: u32,
    /// Everything counted, in bytes.
    used: usize,
    pinned: usize,
    lingering: VecDeque<Lingering>,
    lingering_bytes: usize,
    holders: HashMap<u32, Holder>,
    /// Holders by how much they have pinned, to within a factor of two.
    holders_by_size: BTreeSet<(u8, u32)>,
    /// Rings by how much they hold, to within a factor of two.
    by_size: BTreeSet<(u8, RingId)>,
    /// Rings by when their first event will be too old.
    by_age: BTreeSet<(Instant, RingId)>,
    /// Rings with acknowledged events.
    acknowledged: VecDeque<RingId>,
    lost: Vec<(RingId, Position)>,
    emptied: Vec<RingId>,
}

#[derive(Debug)]
struct Entry {
    generation: u32,
    ring: Ring,
}

/// A buffer that was evicted while somebody was sending it.
#[derive(Debug)]
struct Lingering {
    bytes: Bytes,
    capacity: usize,
}

impl EventLog {
    /// An empty log; `limits.log_bytes` is its budget.
    pub fn new(limits: &Limits) -> Self {
        Self {
            limits: limits.clone(),
            segment_max: (limits.log_bytes / SEGMENTS_A_BUDGET).clamp(SEGMENT_MIN, SEGMENT_MAX),
            pinned_budget: limits.log_bytes / 100 * usize::from(limits.pinned_percent.min(100)),
            rings: Slab::new(),
            generation: 0,
            used: 0,
            pinned: 0,
            lingering: VecDeque::new(),
            lingering_bytes: 0,
            holders: HashMap::new(),
            holders_by_size: BTreeSet::new(),
            by_size: BTreeSet::new(),
            by_age: BTreeSet::new(),
            acknowledged: VecDeque::new(),
            lost: Vec::new(),
            emptied: Vec::new(),
        }
    }

    // ---- rings ----

    /// Opens a ring whose first event stands right after `from`. The pinned events of one `holder`'s rings count together.
    pub fn open(&mut self, holder: u32, from: Position) -> Result<RingId, Full> {
        self.make_room(RING_COST, None)?;
        self.generation = self.generation.wrapping_add(1);
        let entry = Entry { generation: self.generation, ring: Ring::new(holder, from) };
        let index = self.rings.insert(entry) as u32;
        self.used += RING_COST;
        Ok(RingId { index, generation: self.generation })
    }

    fn ring(&self, id: RingId) -> Option<&Ring> {
        self.rings.get(id.index as usize).filter(|entry| entry.generation == id.generation).map(|entry| &entry.ring)
    }

    fn ring_mut(&mut self, id: RingId) -> Option<&mut Ring> {
        self.rings.get_mut(id.index as usize).filter(|entry| entry.generation == id.generation).map(|entry| &mut entry.ring)
    }

    /// The position that the next event will get.
    pub fn next(&self, id: RingId) -> Position {
        self.ring(id).map_or(Position::START.next(), |ring| ring.next)
    }

    /// The position of the last event appended or skipped; where the ring began when there was none.
    pub fn last(&self, id: RingId) -> Position {
        self.next(id).previous()
    }

    /// The first event still held.
    pub fn earliest(&self, id: RingId) -> Option<Position> {
        self.ring(id)?.earliest()
    }

    /// The first event still held after `after`.
    pub fn next_held(&self, id: RingId, after: Position) -> Option<Position> {
        self.ring(id)?.next_held(after)
    }

    /// Whether the event at `position` is held.
    pub fn holds(&self, id: RingId, position: Position) -> bool {
        self.ring(id).is_some_and(|ring| ring.held_length(position).is_some())
    }

    /// Bytes of the ordinary events that a ring holds.
    pub fn bytes(&self, id: RingId) -> usize {
        self.ring(id).map_or(0, |ring| ring.bytes)
    }

    // ---- appending ----

    /// Appends one frame, written by `encode` to the end of the buffer it is given, `len_hint` bytes long at most as far as is known.
    pub fn append(
        &mut self,
        id: RingId,
        kind: Kind,
        now: Instant,
        len_hint: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Position, Full> {
        let position = match kind {
            Kind::Ordinary => self.append_ordinary(id, now, len_hint, encode)?,
            Kind::Pinned => self.append_pinned(id, now, len_hint, encode)?,
        };
        self.reindex(id);
        Ok(position)
    }

    fn frame_max(&self) -> usize {
        // A frame is its message and about a hundred bytes of id and line ends.
        self.limits.message_bytes.saturating_add(256)
    }

    fn append_ordinary(
        &mut self,
        id: RingId,
        now: Instant,
        len_hint: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Position, Full> {
        let frame_max = self.frame_max();
        self.make_segment(id, now, len_hint)?;
        let stream_events = self.limits.stream_events;
        let stream_bytes = self.limits.stream_bytes;
        let Some(ring) = self.ring_mut(id) else { return Err(Full::Budget) };
        let Some(segment) = ring.segments.back_mut() else { return Err(Full::Budget) };
        let before = segment.cost();
        let appended = segment.append(now, frame_max, encode);
        let after = segment.cost();
        let position = ring.next;
        if let Some(length) = appended {
            ring.next = position.next();
            ring.events += 1;
            ring.bytes += length;
        }
        let segment_is_empty = |ring: &Ring| ring.segments.back().is_some_and(|segment| segment.earliest().is_none());
        let over = |ring: &Ring| ring.events > stream_events || (ring.bytes > stream_bytes && ring.events > 1);
        let mut given = Vec::new();
        if segment_is_empty(ring) {
            given.extend(ring.drop_last());
        }
        while over(ring) {
            given.extend(ring.evict_first().flatten());
        }
        self.used = self.used + after - before;
        self.give_back(given);
        self.balance();
        appended.map(|_| position).ok_or(Full::TooLarge)
    }

    /// Makes sure that the ring's last segment is open and has room for a frame of `len_hint` bytes.
    fn make_segment(&mut self, id: RingId, now: Instant, len_hint: usize) -> Result<(), Full> {
        if len_hint > self.frame_max() {
            return Err(Full::TooLarge);
        }
        if self.ring(id).is_some_and(|ring| ring.has_room(len_hint)) {
            self.make_room(ring_slack(self.ring(id)), Some(id))?;
        }
        self.reopen(id, now, len_hint)
    }

    /// The same, once room for the index was made (which may have evicted the very segment).
    fn reopen(&mut self, id: RingId, now: Instant, len_hint: usize) -> Result<(), Full> {
        let segment_max = self.segment_max;
        let Some(ring) = self.ring_mut(id) else { return Err(Full::Budget) };
        if ring.has_room(len_hint) {
            return Ok(());
        }
        let double = ring.segments.back().map_or(SEGMENT_MIN, |segment| segment.capacity() * 2);
        let capacity = double.clamp(SEGMENT_MIN, segment_max).max(len_hint);
        let lists = size_of::<Segment>() * ring.segments.len().max(4) * 2;
        self.make_room(capacity + lists + 64, Some(id))?;
        let Some(ring) = self.ring_mut(id) else { return Err(Full::Budget) };
        let before = ring.lists() + ring.segments.back().map_or(0, Segment::cost);
        if let Some(open) = ring.segments.back_mut() {
            open.seal();
        }
        let sealed = ring.segments.back().map_or(0, Segment::cost);
        let segment = Segment::new(ring.next, capacity, now);
        let opened = segment.cost();
        ring.segments.push_back(segment);
        let after = ring.lists() + sealed + opened;
        self.used = self.used + after - before;
        Ok(())
    }

    fn append_pinned(
        &mut self,
        id: RingId,
        now: Instant,
        len_hint: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Position, Full> {
        let mut buffer = Vec::with_capacity(len_hint);
        encode(&mut buffer);
        if buffer.len() > self.frame_max() {
            return Err(Full::TooLarge);
        }
        buffer.shrink_to_fit();
        let frame = Bytes::from(buffer);
        let Some(ring) = self.ring(id) else { return Err(Full::Budget) };
        let (holder, position) = (ring.holder, ring.next);
        let pinned = Pinned { position, came: now, frame, ordinary: false };
        let cost = pinned.cost() + size_of::<Pinned>();
        if cost > self.pinned_budget {
            return Err(Full::TooLarge);
        }
        self.make_pinned_room(cost);
        let lists = size_of::<Pinned>() * ring_pinned_growth(self.ring(id));
        self.make_room(cost + lists + evict::HOLDER_COST + ring_slack(self.ring(id)), Some(id))?;
        let Some(ring) = self.ring_mut(id) else { return Err(Full::Budget) };
        let before = ring.lists() + ring.segments.back().map_or(0, Segment::cost);
        if let Some(open) = ring.segments.back_mut().filter(|segment| segment.is_open() && segment.next() == position) {
            open.append_hole(now);
        }
        let added = pinned.cost();
        if ring.pinned.capacity() == 0 {
            // Most streams pin exactly one event, their result.
            ring.pinned.reserve_exact(1);
        }
        ring.pinned.push(pinned);
        ring.next = position.next();
        let after = ring.lists() + ring.segments.back().map_or(0, Segment::cost) + added;
        self.used = self.used + after - before;
        self.pin(holder, id, position, cost);
        Ok(position)
    }

    /// Uses up a position without an event: it is lost from the start. For an answer that the log cannot take.
    pub fn skip(&mut self, id: RingId) -> Position {
        let Some(ring) = self.ring_mut(id) else { return Position::START };
        let position = ring.next;
        ring.next = position.next();
        // What follows begins a segment of its own: a segment's positions are consecutive.
        let before = ring.segments.back().map_or(0, Segment::cost);
        if let Some(open) = ring.segments.back_mut() {
            open.seal();
        }
        let after = ring.segments.back().map_or(0, Segment::cost);
        self.used = self.used + after - before;
        position
    }

    // ---- reading ----

    /// Appends to `out` the frames of the contiguous held run that begins exactly right after `after`: about `max` bytes, but at least
    /// one event if it is held. Returns the last position covered, `after` when the next event is not held.
    ///
    /// A sealed segment's frames are slices of it; the open one's are copied, once.
    pub fn read(&self, id: RingId, after: Position, max: usize, out: &mut Vec<Bytes>) -> Position {
        self.ring(id).map_or(after, |ring| ring.read(after, max, out))
    }

    /// The last position of the run after `after` whose frames all end within its first `bytes` bytes. What was evicted since counts
    /// as having fitted.
    pub fn fitting(&self, id: RingId, after: Position, bytes: usize) -> Position {
        let Some(ring) = self.ring(id) else { return after };
        let mut last = after;
        let mut left = bytes;
        while last.next() < ring.next {
            let length = ring.held_length(last.next()).unwrap_or(0);
            if length > left {
                break;
            }
            left -= length;
            last = last.next();
        }
        last
    }

    // ---- what its owner tells ----

    /// Events up to `upto` were received: they are the first to go.
    pub fn acknowledge(&mut self, id: RingId, upto: Position) {
        let Some(ring) = self.ring_mut(id) else { return };
        ring.acknowledged = ring.acknowledged.max(upto);
        let some = ring.events > 0 && ring.earliest().is_some_and(|earliest| earliest <= ring.acknowledged);
        if some && !ring.queued {
            ring.queued = true;
            self.acknowledged.push_back(id);
        }
    }

    /// A pinned event becomes an ordinary one where it stands.
    pub fn unpin(&mut self, id: RingId, position: Position) {
        let Some(ring) = self.ring_mut(id) else { return };
        let Some(at) = ring.pinned_at(position) else { return };
        let pinned = &mut ring.pinned[at];
        if std::mem::replace(&mut pinned.ordinary, true) {
            return;
        }
        let cost = pinned.cost() + size_of::<Pinned>();
        let length = pinned.frame.len();
        ring.events += 1;
        ring.bytes += length;
        let holder = ring.holder;
        self.unpinned(holder, cost);
        self.reindex(id);
    }

    /// Nothing more will be appended: the ring is shrunk to its exact size.
    pub fn finish(&mut self, id: RingId) {
        let Some(ring) = self.ring_mut(id) else { return };
        let before = ring.cost();
        ring.finished = true;
        if let Some(open) = ring.segments.back_mut() {
            open.seal_exactly();
        }
        ring.segments.shrink_to_fit();
        ring.pinned.shrink_to_fit();
        let after = ring.cost();
        self.used = self.used + after - before;
        self.note_emptied(id);
    }

    /// Removes a ring and all that it holds.
    pub fn remove(&mut self, id: RingId) {
        if self.ring(id).is_none() {
            return;
        }
        self.unindex(id);
        let entry = self.rings.remove(id.index as usize);
        self.forget(entry.ring);
    }

    /// Pinned events that were evicted since this was last asked.
    pub fn take_lost(&mut self) -> impl Iterator<Item = (RingId, Position)> + use<> {
        std::mem::take(&mut self.lost).into_iter()
    }

    /// Finished rings that have come to hold nothing since this was last asked: their owner may remove them.
    pub fn take_emptied(&mut self) -> impl Iterator<Item = RingId> + use<> {
        std::mem::take(&mut self.emptied).into_iter()
    }

    // ---- figures ----

    /// Bytes in use: capacities, indexes, entries, pinned frames, and evicted buffers that somebody is still sending.
    pub fn used(&self) -> usize {
        self.used
    }

    /// `limits.log_bytes`.
    pub fn budget(&self) -> usize {
        self.limits.log_bytes
    }

    /// Bytes of evicted buffers that somebody is still sending.
    pub fn lingering(&self) -> usize {
        self.lingering_bytes
    }
}

/// What a ring's index may grow by at its next event.
fn ring_slack(ring: Option<&Ring>) -> usize {
    ring.and_then(|ring| ring.segments.back()).map_or(0, Segment::cost_of_growth)
}

/// How many places a ring's list of pinned events may grow by.
fn ring_pinned_growth(ring: Option<&Ring>) -> usize {
    ring.map_or(0, |ring| if ring.pinned.len() == ring.pinned.capacity() { ring.pinned.capacity().max(4) } else { 0 })
}

/// For an operator: sums, not contents.
impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog")
            .field("used", &self.used)
            .field("budget", &self.limits.log_bytes)
            .field("pinned", &self.pinned)
            .field("lingering", &self.lingering_bytes)
            .field("rings", &self.rings.len())
            .finish_non_exhaustive()
    }
}
