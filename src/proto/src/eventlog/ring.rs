//! A stream's ring: its ordinary events, and its pinned ones beside them.
//!
//! Never decides what must go; says what it holds, what that costs and where it stands, and gives up what it is told to.

use std::num::NonZeroU32;

use bytes::Bytes;
use smallvec::SmallVec;

use super::cost;
use super::index::Standing;
use super::ordinary::{Apart, Given, Ordinary};
use super::segment::{AGE_GRAIN, Encoded, Segment};
use super::{LINGERING_COST, LOST_COST, SEGMENT_MIN, size_class};
use crate::ids::Position;
use crate::limits::Limits;
use crate::lists;
use crate::time::Instant;

/// What losing a pinned event that is shared may take, a place among the lost and one among the lingering, beyond the place that it frees.
/// (One that is not shared never lingers, and a place among the lost is smaller than its own.)
const PLACE_TO_LOSE: usize = (cost::list(8, LOST_COST) + cost::list(8, LINGERING_COST) - cost::list(8, size_of::<Apart>())) / 8;

/// The events of one stream.
#[derive(Debug)]
pub(super) struct Ring {
    pub(super) generation: NonZeroU32,
    /// Whose pinned events count together.
    pub(super) holder: u32,
    pub(super) name: u32,
    pub(super) next: Position,
    /// In order. The first is in line: most streams hold one result and no more.
    pinned: SmallVec<[Apart; 1]>,
    /// What these cost, their places aside.
    pinned_cost: usize,
    /// None while there are none: most streams hold one result.
    ordinary: Option<Box<Ordinary>>,
    acknowledged: Position,
    pub(super) finished: bool,
    /// It was told to be empty.
    pub(super) emptied: bool,
}

/// What a ring holds at one moment, as the log counts it.
#[derive(Debug, Default)]
pub(super) struct Measure {
    /// Heap memory that it owns, in bytes.
    pub(super) cost: usize,
    /// The part of it that evicting every ordinary event would free.
    pub(super) evictable: usize,
    /// The part of it that pinned events are.
    pub(super) pinned: usize,
    pub(super) standing: Standing,
}

impl Ring {
    pub(super) fn new(generation: NonZeroU32, holder: u32, name: u32, from: Position) -> Self {
        Self {
            generation,
            holder,
            name,
            next: from.next(),
            pinned: SmallVec::new(),
            pinned_cost: 0,
            ordinary: None,
            acknowledged: Position::START,
            finished: false,
            emptied: false,
        }
    }

    // ---- what it costs and where it stands: all in constant time ----

    pub(super) fn measure(&self, limits: &Limits) -> Measure {
        let evictable = self.ordinary.as_ref().map_or(0, |ordinary| ordinary.cost());
        let pinned = self.pinned_cost + pinned_places(self.pinned.len());
        Measure { cost: evictable + pinned, evictable, pinned, standing: self.standing(limits) }
    }

    fn standing(&self, limits: &Limits) -> Standing {
        let ordinary = self.first_ordinary_due(limits);
        let pinned = self.first_pinned_due(limits);
        Standing {
            size: self.ordinary.as_ref().map_or(0, |ordinary| size_class(ordinary.bytes)),
            due: ordinary.into_iter().chain(pinned).min(),
            acknowledged: self.ordinary.as_ref().is_some_and(|ordinary| ordinary.has_acknowledged(self.acknowledged)),
            pinned_since: self.pinned.first().map(|apart| apart.came),
        }
    }

    fn first_ordinary_due(&self, limits: &Limits) -> Option<Instant> {
        let (_, came) = self.ordinary.as_ref()?.first()?;
        Some(came + limits.event_ttl + AGE_GRAIN)
    }

    fn first_pinned_due(&self, limits: &Limits) -> Option<Instant> {
        Some(self.pinned.first()?.came + limits.result_ttl + AGE_GRAIN)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.ordinary.is_none() && self.pinned.is_empty()
    }

    /// Bytes of ordinary events.
    pub(super) fn bytes(&self) -> usize {
        self.ordinary.as_ref().map_or(0, |ordinary| ordinary.bytes)
    }

    fn last_segment(&self) -> Option<&Segment> {
        self.ordinary.as_ref()?.last_segment()
    }

    /// Whether its last segment takes a frame of `length` bytes.
    fn has_room(&self, length: usize) -> bool {
        self.last_segment().and_then(Segment::room).is_some_and(|room| room >= length)
    }

    /// The capacity of the segment that must be begun for a frame of `length` bytes; none where the last one has room.
    pub(super) fn segment_wanted(&self, length: usize, segment_max: usize) -> Option<usize> {
        if self.has_room(length) {
            return None;
        }
        let double = self.last_segment().map_or(SEGMENT_MIN, |segment| segment.capacity().saturating_mul(2));
        Some(double.clamp(SEGMENT_MIN, segment_max).max(length))
    }

    /// What appending an ordinary frame may cost, given `segment_wanted`.
    pub(super) fn cost_of_ordinary(&self, segment_wanted: Option<usize>) -> usize {
        let growth = self.last_segment().map_or(0, Segment::cost_of_growth);
        match segment_wanted {
            None => growth,
            Some(capacity) => {
                // Its first entry makes an index of four places.
                let segment = size_of::<Segment>() + cost::SHARED + capacity + 4 * size_of::<u32>();
                segment + cost::list(2, size_of::<usize>()) + size_of::<Ordinary>()
            }
        }
    }

    /// What appending a pinned frame of `length` bytes costs of the pinned events' share.
    pub(super) fn cost_of_pinned(length: usize) -> usize {
        pinned_cost(length) + pinned_places(1) + 1
    }

    /// What it may cost beyond that: the hole.
    pub(super) fn cost_of_hole(&self) -> usize {
        self.last_segment().map_or(0, Segment::cost_of_growth)
    }

    // ---- appending ----

    /// Appends a frame of at most `most` bytes to its last segment, or to a new one of the capacity `segment_wanted`. When it is
    /// kept, what the stream's limits then say is evicted; returns how many events that was.
    pub(super) fn append(
        &mut self,
        now: Instant,
        segment_wanted: Option<usize>,
        most: usize,
        limits: &Limits,
        given: &mut Vec<Given>,
        encode: impl FnOnce(&mut Vec<u8>),
    ) -> (Encoded, u64) {
        let ordinary = self.ordinary.get_or_insert_default();
        if let Some(capacity) = segment_wanted {
            ordinary.begin_segment(self.next, capacity, now);
        }
        let encoded = ordinary.append(now, most, encode);
        if matches!(encoded, Encoded::Kept(_)) {
            self.next = self.next.next();
        }
        let evicted = self.keep_limits(limits, given);
        (encoded, evicted)
    }

    pub(super) fn append_pinned(&mut self, now: Instant, frame: Bytes) {
        let position = self.next;
        if let Some(ordinary) = &mut self.ordinary {
            ordinary.append_hole(position, now);
        }
        let apart = Apart { position, came: now, frame };
        self.pinned_cost += pinned_cost(apart.frame.len());
        lists::push(&mut self.pinned, apart);
        self.next = position.next();
    }

    /// Uses up a position.
    pub(super) fn skip(&mut self) -> Position {
        let position = self.next;
        self.next = position.next();
        // What follows begins a segment of its own: a segment's positions are consecutive.
        if let Some(ordinary) = &mut self.ordinary {
            ordinary.seal();
        }
        position
    }

    pub(super) fn finish(&mut self) {
        self.finished = true;
        if let Some(ordinary) = &mut self.ordinary {
            ordinary.finish();
        }
        self.pinned.shrink_to_fit();
    }

    // ---- reading ----

    /// The position of the last event appended or skipped.
    pub(super) fn last(&self) -> Position {
        self.next.previous()
    }

    fn find_pinned(&self, position: Position) -> Option<usize> {
        self.pinned.binary_search_by_key(&position, |apart| apart.position).ok()
    }

    /// The frame at `position`, if it is one held apart.
    fn apart(&self, position: Position) -> Option<&Apart> {
        match self.find_pinned(position) {
            Some(at) => Some(&self.pinned[at]),
            None => self.ordinary.as_ref()?.released_at(position),
        }
    }

    fn segment_at(&self, position: Position) -> Option<&Segment> {
        self.ordinary.as_ref()?.segment_at(position)
    }

    pub(super) fn earliest(&self) -> Option<Position> {
        let ordinary = self.ordinary.as_ref().and_then(|ordinary| ordinary.first()).map(|(position, _)| position);
        ordinary.into_iter().chain(self.pinned.first().map(|apart| apart.position)).min()
    }

    pub(super) fn next_held(&self, after: Position) -> Option<Position> {
        if after >= self.last() {
            return None;
        }
        let position = after.next();
        let ordinary = self.ordinary.as_ref().and_then(|ordinary| ordinary.first_from(position));
        let at = self.pinned.partition_point(|apart| apart.position < position);
        ordinary.into_iter().chain(self.pinned.get(at).map(|apart| apart.position)).min()
    }

    /// The length of the frame at `position`, if it is held.
    pub(super) fn held_length(&self, position: Position) -> Option<usize> {
        match self.apart(position) {
            Some(apart) => Some(apart.frame.len()),
            None => self.segment_at(position)?.held_length(position),
        }
    }

    /// The frames from `position` on in one buffer, at most `most` bytes: the last one's position, and their bytes together. None
    /// when not even the first is as short.
    fn run(&self, position: Position, most: usize) -> Option<(Position, usize)> {
        match self.apart(position) {
            Some(apart) => (apart.frame.len() <= most).then(|| (position, apart.frame.len())),
            None => self.segment_at(position)?.run(position, most),
        }
    }

    /// Appends to `out` the run that begins right after `after`; returns the last position covered.
    pub(super) fn read(&self, after: Position, most: usize, out: &mut Vec<Bytes>) -> Position {
        let mut last = after;
        let mut left = most;
        while last < self.last() {
            let position = last.next();
            let Some(first) = self.held_length(position) else { break };
            // The first event is due whatever its length.
            let most = if last == after { left.max(first) } else { left };
            let Some((to, length)) = self.run(position, most) else { break };
            match self.apart(position) {
                Some(apart) => out.push(apart.slice()),
                None => out.extend(self.segment_at(position).and_then(|segment| segment.slice(position, length))),
            }
            left = left.saturating_sub(length);
            last = to;
        }
        last
    }

    // ---- eviction ----

    /// Has ordinary events evicted; returns how many were.
    fn evict(&mut self, act: impl FnOnce(&mut Ordinary)) -> u64 {
        let Some(ordinary) = &mut self.ordinary else { return 0 };
        let before = ordinary.events;
        act(ordinary);
        let evicted = before - ordinary.events;
        if ordinary.is_empty() {
            self.ordinary = None;
        }
        evicted
    }

    pub(super) fn evict_front(&mut self, given: &mut Vec<Given>) -> u64 {
        self.evict(|ordinary| ordinary.evict_front(given))
    }

    pub(super) fn evict_acknowledged(&mut self, given: &mut Vec<Given>) -> u64 {
        self.evict(|ordinary| ordinary.evict_acknowledged(given))
    }

    /// Evicts what is more than a stream may hold; its last event stays whatever its length.
    fn keep_limits(&mut self, limits: &Limits, given: &mut Vec<Given>) -> u64 {
        let over = |ordinary: &Ordinary| {
            ordinary.events > limits.stream_events || (ordinary.bytes > limits.stream_bytes && ordinary.events > 1)
        };
        self.evict(|ordinary| {
            while over(ordinary) {
                ordinary.evict_first(given);
            }
        })
    }

    /// Evicts what is too old; returns the positions of the pinned events among it, and how many others there were.
    pub(super) fn expire(&mut self, now: Instant, limits: &Limits, given: &mut Vec<Given>) -> (Vec<Position>, u64) {
        let mut ordinary = 0;
        while self.first_ordinary_due(limits).is_some_and(|due| due <= now) {
            ordinary += self.evict(|ordinary| ordinary.evict_first(given));
        }
        let mut lost = Vec::new();
        while self.first_pinned_due(limits).is_some_and(|due| due <= now) {
            lost.extend(self.evict_pinned(given));
        }
        (lost, ordinary)
    }

    /// Evicts its first pinned event.
    pub(super) fn evict_pinned(&mut self, given: &mut Vec<Given>) -> Option<Position> {
        let apart = self.take_pinned(0)?;
        let position = apart.position;
        given.push(apart.give());
        Some(position)
    }

    fn take_pinned(&mut self, at: usize) -> Option<Apart> {
        let apart = (at < self.pinned.len()).then(|| self.pinned.remove(at))?;
        lists::tighten(&mut self.pinned);
        self.pinned_cost -= pinned_cost(apart.frame.len());
        Some(apart)
    }

    /// Returns how many ordinary events the stream's limits then evicted.
    pub(super) fn unpin(&mut self, position: Position, limits: &Limits, given: &mut Vec<Given>) -> u64 {
        let Some(at) = self.find_pinned(position) else { return 0 };
        let Some(apart) = self.take_pinned(at) else { return 0 };
        self.ordinary.get_or_insert_default().release(apart);
        self.keep_limits(limits, given)
    }

    /// Never takes back what was acknowledged.
    pub(super) fn acknowledge(&mut self, upto: Position) {
        self.acknowledged = self.acknowledged.max(upto);
    }

    /// Gives up everything.
    pub(super) fn give(self, given: &mut Vec<Given>) {
        given.extend(self.pinned.into_iter().map(Apart::give));
        if let Some(ordinary) = self.ordinary {
            ordinary.give(given);
        }
    }
}

/// What the places of pinned events cost: as if none were in line, since losing one takes as much whether its place was or not.
fn pinned_places(length: usize) -> usize {
    cost::list(length, size_of::<Apart>())
}

/// What a pinned frame of this length costs, its place aside.
const fn pinned_cost(length: usize) -> usize {
    Apart::cost_of(length) + if Apart::is_shared(length) { PLACE_TO_LOSE } else { 0 }
}

/// Recomputes the long way what is kept as sums.
#[cfg(test)]
impl Ring {
    pub(super) fn audit(&self) {
        assert_eq!(self.pinned_cost, self.pinned.iter().map(|apart| pinned_cost(apart.frame.len())).sum::<usize>());
        let places = if self.pinned.spilled() { self.pinned.capacity() } else { 0 };
        assert!(places * size_of::<Apart>() <= pinned_places(self.pinned.len()));
        assert!(self.pinned.iter().zip(self.pinned.iter().skip(1)).all(|(one, next)| one.position < next.position));
        if let Some(ordinary) = &self.ordinary {
            ordinary.audit();
        }
    }
}
