//! The event log: one shard's fixed budget of memory for the frames of all its streams.
//!
//! A stream's ring is the segments that it holds of the budget; a frame is encoded once, into its ring's open segment, and a full
//! segment is sealed and sent as it is. Results and unanswered requests are pinned: held apart, in a share of their own, so that a
//! gap costs progress and not results. Never knows sessions, calls or connections, never sends, never waits: what is read stays
//! readable for whoever holds it, and counts (`lingering`) until they let go.

mod cost;
mod evict;
mod index;
mod ordinary;
mod ring;
mod segment;
#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::fmt;
use std::num::NonZeroU32;

use bytes::Bytes;
use enum_map::{Enum, EnumMap};
use slab::Slab;

use crate::ids::Position;
use crate::limits::Limits;
use crate::time::Instant;

use index::{Index, Slot};
use ring::{Measure, Ring};
use segment::Encoded;

/// The smallest segment, in bytes.
const SEGMENT_MIN: usize = 512;
/// The largest segment (a larger frame gets one of its own size).
const SEGMENT_MAX: usize = 256 << 10;
/// No segment is a larger part of the budget than one of these.
const SEGMENTS_A_BUDGET: usize = 16;
/// What a frame may have beyond its message: id, event name and line ends.
const FRAME_OVERHEAD: usize = 256;
/// What a ring's place in the table costs (vacant ones hold a number), and its place among the emptied.
const RING_COST: usize = size_of::<Result<Ring, usize>>() + size_of::<RingId>();
const LOST_COST: usize = size_of::<(RingId, Position)>();
const LINGERING_COST: usize = size_of::<Lingering>();

/// Sizes within a factor of two are of one class; nothing is of class 0.
fn size_class(bytes: usize) -> u8 {
    (usize::BITS - bytes.leading_zeros()) as u8
}

/// A ring's name. One that was removed names no other ring until 2³² more have come and gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RingId {
    slot: Slot,
    /// Never 0, so that a ring's name and none at all take no more room than a name.
    generation: NonZeroU32,
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
    /// The frame is larger than `limits.message_bytes` allows, than the share of pinned events, or than the budget.
    TooLarge,
    /// Evicted segments that slow readers still hold fill the budget.
    Lingering,
    /// Nothing is left to evict (or there is no such ring, or it is finished).
    Budget,
}

/// Why an event was evicted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub enum Evicted {
    /// Memory was needed, and its client has it.
    Acknowledged,
    /// It was as old as events, or pinned ones, may be.
    Age,
    /// Its stream held as much as a stream may.
    StreamLimit,
    /// Memory was needed, and its stream held the most.
    Pressure,
    /// It was pinned, and pinned events held as much as they may.
    PinnedShare,
}

impl Evicted {
    /// Its word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Acknowledged => "acknowledged",
            Self::Age => "age",
            Self::StreamLimit => "stream_limit",
            Self::Pressure => "pressure",
            Self::PinnedShare => "pinned_share",
        }
    }
}

/// A shard's event log.
pub struct EventLog {
    limits: Limits,
    segment_max: usize,
    pinned_budget: usize,
    rings: Slab<Ring>,
    generation: NonZeroU32,
    index: Index,
    /// What all rings own, in bytes; the part that evicting ordinary events frees; and the part that is pinned.
    held: usize,
    evictable: usize,
    pinned: usize,
    /// The ones not looked at for longest first.
    lingering: VecDeque<Lingering>,
    lingering_bytes: usize,
    lost: VecDeque<(RingId, Position)>,
    /// Has a place for every ring, so that emptying one takes no memory.
    emptied: Vec<RingId>,
    evicted: EnumMap<Evicted, u64>,
}

/// A buffer that was evicted while somebody was sending it.
#[derive(Debug)]
struct Lingering {
    bytes: Bytes,
    cost: usize,
}

impl EventLog {
    /// An empty log; `limits.log_bytes` is its budget.
    pub fn new(limits: &Limits) -> Self {
        let percent = usize::from(limits.pinned_percent.min(100));
        Self {
            limits: limits.clone(),
            segment_max: (limits.log_bytes / SEGMENTS_A_BUDGET).clamp(SEGMENT_MIN, SEGMENT_MAX),
            pinned_budget: limits.log_bytes / 100 * percent + limits.log_bytes % 100 * percent / 100,
            rings: Slab::new(),
            generation: NonZeroU32::MAX,
            index: Index::default(),
            held: 0,
            evictable: 0,
            pinned: 0,
            lingering: VecDeque::new(),
            lingering_bytes: 0,
            lost: VecDeque::new(),
            emptied: Vec::new(),
            evicted: EnumMap::default(),
        }
    }

    // ---- rings ----

    /// Opens a ring whose first event stands right after `from`. The pinned events of one `holder`'s rings count together; the holder
    /// has a `name` for each.
    pub fn open(&mut self, holder: u32, name: u32, from: Position) -> Result<RingId, Full> {
        if self.rings.len() == self.rings.capacity() {
            // The table grows by an eighth, not by doubling.
            let more = self.rings.len() / 8 + 1;
            self.make_room(None, |_| more * RING_COST)?;
            self.rings.reserve_exact(more);
            self.emptied.reserve_exact(self.rings.capacity() - self.emptied.len());
        }
        self.generation = self.generation.checked_add(1).unwrap_or(NonZeroU32::MIN);
        // A table of 2³² rings would not fit any memory.
        let slot = self.rings.insert(Ring::new(self.generation, holder, name, from)) as Slot;
        Ok(RingId { slot, generation: self.generation })
    }

    fn ring(&self, id: RingId) -> Option<&Ring> {
        self.rings.get(id.slot as usize).filter(|ring| ring.generation == id.generation)
    }

    /// Whose a ring is, and its name there.
    pub fn owner(&self, id: RingId) -> Option<(u32, u32)> {
        self.ring(id).map(|ring| (ring.holder, ring.name))
    }

    fn slot(&self, id: RingId) -> Option<Slot> {
        self.ring(id).map(|_| id.slot)
    }

    /// Changes a ring, and counts and places it anew: the only way to change one.
    fn change<R>(&mut self, slot: Slot, act: impl FnOnce(&mut Ring, &Limits) -> R) -> Option<R> {
        let ring = self.rings.get_mut(slot as usize)?;
        let before = ring.measure(&self.limits);
        let result = act(ring, &self.limits);
        let after = ring.measure(&self.limits);
        if ring.finished && !ring.emptied && ring.is_empty() {
            ring.emptied = true;
            self.emptied.push(RingId { slot, generation: ring.generation });
        }
        let holder = ring.holder;
        self.count(slot, holder, &before, &after);
        Some(result)
    }

    fn count(&mut self, slot: Slot, holder: u32, before: &Measure, after: &Measure) {
        self.held = self.held - before.cost + after.cost;
        self.evictable = self.evictable - before.evictable + after.evictable;
        self.pinned = self.pinned - before.pinned + after.pinned;
        self.index.update(slot, holder, &before.standing, &after.standing);
        self.index.count_pinned(holder, before.pinned, after.pinned);
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
        self.ring(id).map_or(0, Ring::bytes)
    }

    // ---- appending ----

    /// Appends one frame, written by `encode` to the end of the buffer it is given, `len_hint` bytes long at most as far as is known
    /// (a longer one is copied once more). A frame without bytes is no event: its position is skipped.
    pub fn append(
        &mut self,
        id: RingId,
        kind: Kind,
        now: Instant,
        len_hint: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Position, Full> {
        let slot = self.ring(id).filter(|ring| !ring.finished).map(|_| id.slot).ok_or(Full::Budget)?;
        if len_hint > self.frame_max() {
            return Err(Full::TooLarge);
        }
        let position = self.next(id);
        let encoded = match kind {
            Kind::Ordinary => self.append_ordinary(slot, now, len_hint, encode),
            Kind::Pinned => self.append_pinned(slot, now, len_hint, encode),
        };
        self.balance();
        match encoded? {
            Encoded::Kept(_) => Ok(position),
            Encoded::Empty => Ok(self.skip(id)),
            Encoded::TooLong | Encoded::Overran(_) => Err(Full::TooLarge),
        }
    }

    /// The length of the longest frame. Segments count in `u32`.
    fn frame_max(&self) -> usize {
        self.limits.message_bytes.saturating_add(FRAME_OVERHEAD).min(u32::MAX as usize)
    }

    fn append_ordinary(
        &mut self,
        slot: Slot,
        now: Instant,
        len_hint: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Encoded, Full> {
        match self.append_within(slot, now, len_hint, encode)? {
            Encoded::Overran(frame) => self.append_within(slot, now, frame.len(), |out| out.extend_from_slice(&frame)),
            encoded => Ok(encoded),
        }
    }

    /// The same, with room for `length` bytes and no more.
    fn append_within(
        &mut self,
        slot: Slot,
        now: Instant,
        length: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Encoded, Full> {
        let segment_max = self.segment_max;
        let need = |log: &Self| {
            log.rings.get(slot as usize).map_or(0, |ring| ring.cost_of_ordinary(ring.segment_wanted(length, segment_max)))
        };
        self.make_room(Some(now), need)?;
        let most = self.frame_max();
        let mut given = Vec::new();
        let encoded = self.change(slot, |ring, limits| {
            // Only now, for making room may have evicted the last segment.
            let segment_wanted = ring.segment_wanted(length, segment_max);
            ring.append(now, segment_wanted, most, limits, &mut given, encode)
        });
        self.give_back(given);
        let (encoded, evicted) = encoded.ok_or(Full::Budget)?;
        self.evicted[Evicted::StreamLimit] += evicted;
        Ok(encoded)
    }

    fn append_pinned(
        &mut self,
        slot: Slot,
        now: Instant,
        len_hint: usize,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> Result<Encoded, Full> {
        let mut buffer = Vec::with_capacity(len_hint);
        encode(&mut buffer);
        let length = buffer.len();
        if length == 0 {
            return Ok(Encoded::Empty);
        }
        let cost = Ring::cost_of_pinned(length);
        if length > self.frame_max() || cost > self.pinned_budget {
            return Err(Full::TooLarge);
        }
        let need = |log: &Self| cost + log.rings.get(slot as usize).map_or(0, Ring::cost_of_hole);
        // Before another pinned event goes for it.
        self.is_possible(need(self), (self.pinned + cost).saturating_sub(self.pinned_budget))?;
        self.make_pinned_room(cost);
        self.make_room(Some(now), need)?;
        buffer.shrink_to_fit();
        self.change(slot, |ring, _| ring.append_pinned(now, buffer.into()));
        Ok(Encoded::Kept(length))
    }

    /// Uses up a position without an event: it is lost from the start. For an answer that the log cannot take.
    pub fn skip(&mut self, id: RingId) -> Position {
        let position = self.slot(id).and_then(|slot| self.change(slot, |ring, _| ring.skip()));
        position.unwrap_or(Position::START)
    }

    // ---- reading ----

    /// Appends to `out` the frames of the contiguous held run that begins exactly right after `after`: about `max` bytes, but at least
    /// one event if it is held. Returns the last position covered, `after` when the next event is not held.
    ///
    /// A sealed segment's frames are slices of it; the open one's are copied, once.
    pub fn read(&self, id: RingId, after: Position, max: usize, out: &mut Vec<Bytes>) -> Position {
        self.ring(id).map_or(after, |ring| ring.read(after, max, out))
    }

    /// Where each frame of the held run after `after` up to `to` ends, in bytes from the first one's beginning.
    pub fn ends(&self, id: RingId, after: Position, to: Position) -> Vec<usize> {
        let lengths = (after.get()..to.get()).map_while(|at| self.ring(id)?.held_length(Position::new(at + 1)));
        lengths
            .scan(0, |end, length| {
                *end += length;
                Some(*end)
            })
            .collect()
    }

    /// Bytes of the held frames after `after` up to `to`.
    pub fn length(&self, id: RingId, after: Position, to: Position) -> usize {
        let Some(ring) = self.ring(id) else { return 0 };
        (after.get()..to.get()).filter_map(|at| ring.held_length(Position::new(at + 1))).sum()
    }

    // ---- what its owner tells ----

    /// Events up to `upto` were received: they are the first to go.
    pub fn acknowledge(&mut self, id: RingId, upto: Position) {
        let Some(slot) = self.slot(id) else { return };
        self.change(slot, |ring, _| ring.acknowledge(upto));
        self.balance();
    }

    /// A pinned event becomes an ordinary one where it stands.
    pub fn unpin(&mut self, id: RingId, position: Position) {
        let Some(slot) = self.slot(id) else { return };
        let mut given = Vec::new();
        let evicted = self.change(slot, |ring, limits| ring.unpin(position, limits, &mut given));
        self.evicted[Evicted::StreamLimit] += evicted.unwrap_or_default();
        self.give_back(given);
        self.balance();
    }

    /// Nothing more will be appended: the ring is shrunk to its exact size.
    pub fn finish(&mut self, id: RingId) {
        if let Some(slot) = self.slot(id) {
            self.change(slot, |ring, _| ring.finish());
        }
    }

    /// Removes a ring and all that it holds.
    pub fn remove(&mut self, id: RingId) {
        let Some(slot) = self.slot(id) else { return };
        let ring = self.rings.remove(slot as usize);
        self.count(slot, ring.holder, &ring.measure(&self.limits), &Measure::default());
        if ring.emptied {
            self.emptied.retain(|&emptied| emptied != id);
        }
        let mut given = Vec::new();
        ring.give(&mut given);
        self.give_back(given);
        if self.rings.is_empty() {
            self.rings = Slab::new();
            self.emptied = Vec::new();
        }
    }

    /// Pinned events that were evicted since this was last asked, to be asked often: until then they are kept, and count.
    pub fn take_lost(&mut self) -> impl Iterator<Item = (RingId, Position)> + use<> {
        std::mem::take(&mut self.lost).into_iter()
    }

    /// Finished rings that have come to hold nothing, each once: their owner may remove them.
    pub fn take_emptied(&mut self) -> impl Iterator<Item = RingId> + use<> {
        let taken: Vec<_> = self.emptied.drain(..).collect();
        taken.into_iter()
    }

    // ---- figures ----

    /// Bytes in use: capacities, indexes, entries, pinned frames, and evicted buffers that somebody is still sending.
    pub fn used(&self) -> usize {
        let tables = self.rings.capacity() * RING_COST + self.index.cost();
        let lists = cost::list(self.lost.len(), LOST_COST) + cost::list(self.lingering.len(), LINGERING_COST);
        self.held + self.lingering_bytes + tables + lists
    }

    /// `limits.log_bytes`.
    pub fn budget(&self) -> usize {
        self.limits.log_bytes
    }

    /// Bytes of evicted buffers that somebody is still sending.
    pub fn lingering(&self) -> usize {
        self.lingering_bytes
    }

    /// Bytes of pinned events, and the most that they may take.
    pub fn pinned(&self) -> (usize, usize) {
        (self.pinned, self.pinned_budget)
    }

    /// Streams that have a ring.
    pub fn rings(&self) -> usize {
        self.rings.len()
    }

    /// Events evicted so far. (Those of a ring that is removed go with it, and are not among them.)
    pub fn evicted(&self) -> &EnumMap<Evicted, u64> {
        &self.evicted
    }
}

/// For an operator: sums, not contents.
impl fmt::Debug for EventLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("EventLog")
            .field("used", &self.used())
            .field("budget", &self.limits.log_bytes)
            .field("pinned", &self.pinned)
            .field("lingering", &self.lingering_bytes)
            .field("rings", &self.rings.len())
            .finish_non_exhaustive()
    }
}

/// Recomputes the long way what is kept as sums and indexes.
#[cfg(test)]
impl EventLog {
    fn audit(&self) {
        let measures: Vec<_> = self.rings.iter().map(|(slot, ring)| (slot as Slot, ring, ring.measure(&self.limits))).collect();
        self.rings.iter().for_each(|(_, ring)| ring.audit());
        assert_eq!(self.held, measures.iter().map(|(_, _, measure)| measure.cost).sum::<usize>());
        assert_eq!(self.evictable, measures.iter().map(|(_, _, measure)| measure.evictable).sum::<usize>());
        assert_eq!(self.pinned, measures.iter().map(|(_, _, measure)| measure.pinned).sum::<usize>());
        self.index.audit(measures.iter().map(|(slot, ring, measure)| (*slot, ring.holder, measure.pinned, measure.standing)));
        assert!(self.pinned <= self.pinned_budget);
        assert_eq!(self.lingering_bytes, self.lingering.iter().map(|lingering| lingering.cost).sum::<usize>());
        assert!(self.lingering.capacity() * LINGERING_COST <= cost::list(self.lingering.len(), LINGERING_COST));
        assert!(self.lost.capacity() * LOST_COST <= cost::list(self.lost.len(), LOST_COST));
        assert!(self.emptied.capacity() <= self.rings.capacity());
        assert!(self.used() <= self.budget(), "{} of {} used", self.used(), self.budget());
    }
}
