//! The ordinary events of a ring: its segments in order, and beside them the frames that were pinned once.
//!
//! Never decides what must go; gives up the first of what it holds when told to.

use std::collections::VecDeque;

use bytes::Bytes;

use super::cost;
use super::segment::{Encoded, Segment};
use crate::ids::Position;
use crate::lists;
use crate::time::Instant;

/// The longest frame, in bytes, that is copied to be sent and not shared. Reason: sharing adds a reference count that stays for as long as
/// the frame is held, and most results are short, sent once and held for long.
pub(super) const COPIED_MAX: usize = 512;

/// A frame held apart from the segments.
#[derive(Debug)]
pub(super) struct Apart {
    pub(super) position: Position,
    pub(super) came: Instant,
    pub(super) frame: Bytes,
}

impl Apart {
    /// Whether a frame of this length is shared with those who send it; else it is copied.
    pub(super) const fn is_shared(length: usize) -> bool {
        length > COPIED_MAX
    }

    /// What a frame of this length costs, with its reference count.
    pub(super) const fn cost_of(length: usize) -> usize {
        length + if Self::is_shared(length) { cost::SHARED } else { 0 }
    }

    /// What outlives its place in a list while somebody sends it.
    pub(super) fn cost(&self) -> usize {
        Self::cost_of(self.frame.len())
    }

    /// The frame, for whoever sends it.
    pub(super) fn slice(&self) -> Bytes {
        if Self::is_shared(self.frame.len()) { self.frame.clone() } else { Bytes::copy_from_slice(&self.frame) }
    }

    pub(super) fn give(self) -> Given {
        Given { cost: self.cost(), bytes: Some(self.frame) }
    }
}

/// A buffer that a ring has given up.
#[derive(Debug)]
pub(super) struct Given {
    /// None where nobody else can have it.
    pub(super) bytes: Option<Bytes>,
    pub(super) cost: usize,
}

/// Events that may be evicted.
#[derive(Debug, Default)]
pub(super) struct Ordinary {
    /// Each on the heap by itself, so that evicting one frees it whole. All but the last are sealed.
    segments: VecDeque<Box<Segment>>,
    /// What the segments cost, the last one aside (it still changes).
    sealed: usize,
    /// Pinned no more; in order.
    released: VecDeque<Apart>,
    /// What these cost, their places aside.
    released_cost: usize,
    pub(super) events: u64,
    pub(super) bytes: usize,
}

impl Ordinary {
    /// Heap memory that it is and owns, in bytes.
    pub(super) fn cost(&self) -> usize {
        size_of::<Self>()
            + cost::list(self.segments.len(), size_of::<Box<Segment>>())
            + self.segments.len() * size_of::<Segment>()
            + self.sealed
            + self.segments.back().map_or(0, |segment| segment.cost())
            + cost::list(self.released.len(), size_of::<Apart>())
            + self.released_cost
    }

    pub(super) fn is_empty(&self) -> bool {
        self.events == 0
    }

    pub(super) fn last_segment(&self) -> Option<&Segment> {
        self.segments.back().map(|segment| &**segment)
    }

    // ---- appending ----

    /// Begins a segment.
    pub(super) fn begin_segment(&mut self, first: Position, capacity: usize, now: Instant) {
        self.seal();
        self.sealed += self.segments.back().map_or(0, |segment| segment.cost());
        lists::push(&mut self.segments, Box::new(Segment::new(first, capacity, now)));
    }

    /// Appends a frame to the last segment, or takes the segment away when it is still empty then.
    pub(super) fn append(&mut self, now: Instant, most: usize, encode: impl FnOnce(&mut Vec<u8>)) -> Encoded {
        let Some(segment) = self.segments.back_mut() else { return Encoded::Empty };
        let encoded = segment.append(now, most, encode);
        if let Encoded::Kept(length) = encoded {
            self.events += 1;
            self.bytes += length;
        } else if segment.earliest().is_none() {
            self.segments.pop_back();
            lists::tighten(&mut self.segments);
            self.sealed -= self.segments.back().map_or(0, |segment| segment.cost());
        }
        encoded
    }

    /// Leaves a hole at `position` where the last segment goes on with it.
    pub(super) fn append_hole(&mut self, position: Position, now: Instant) {
        if let Some(open) = self.segments.back_mut().filter(|segment| segment.room().is_some() && segment.next() == position) {
            open.append_hole(now);
        }
    }

    /// Takes in an event that is pinned no more.
    pub(super) fn release(&mut self, apart: Apart) {
        self.events += 1;
        self.bytes += apart.frame.len();
        self.released_cost += apart.cost();
        let at = self.released.partition_point(|other| other.position < apart.position);
        lists::make_place(&mut self.released);
        self.released.insert(at, apart);
    }

    /// What follows will begin a segment of its own.
    pub(super) fn seal(&mut self) {
        if let Some(open) = self.segments.back_mut() {
            open.seal();
        }
    }

    /// Nothing will follow.
    pub(super) fn finish(&mut self) {
        if let Some(open) = self.segments.back_mut() {
            open.seal_exactly();
        }
        self.segments.shrink_to_fit();
        self.released.shrink_to_fit();
    }

    // ---- what it holds ----

    /// The first event: its position, and when it came (or up to `AGE_GRAIN` before).
    pub(super) fn first(&self) -> Option<(Position, Instant)> {
        let segment = self.segments.front().and_then(|front| Some((front.earliest()?, front.earliest_came())));
        let released = self.released.front().map(|apart| (apart.position, apart.came));
        segment.into_iter().chain(released).min_by_key(|&(position, _)| position)
    }

    fn first_is_released(&self) -> bool {
        self.released.front().is_some_and(|apart| self.first().is_some_and(|(first, _)| first == apart.position))
    }

    /// The segment that would hold `position`.
    pub(super) fn segment_at(&self, position: Position) -> Option<&Segment> {
        let after = self.segments.partition_point(|segment| segment.first <= position);
        self.segments.get(after.checked_sub(1)?).map(|segment| &**segment)
    }

    pub(super) fn released_at(&self, position: Position) -> Option<&Apart> {
        let at = self.released.binary_search_by_key(&position, |apart| apart.position).ok()?;
        Some(&self.released[at])
    }

    /// The first event at or after `position`.
    pub(super) fn first_from(&self, position: Position) -> Option<Position> {
        let from = self.segments.partition_point(|segment| segment.next() <= position);
        let segment = self.segments.range(from..).find_map(|segment| segment.first_from(position));
        let at = self.released.partition_point(|apart| apart.position < position);
        segment.into_iter().chain(self.released.get(at).map(|apart| apart.position)).min()
    }

    // ---- eviction ----

    /// Evicts the first event, and gives up the buffer that it was the last of.
    pub(super) fn evict_first(&mut self, given: &mut Vec<Given>) {
        if self.first_is_released() {
            let Some(apart) = self.released.pop_front() else { return };
            lists::tighten(&mut self.released);
            self.events -= 1;
            self.bytes -= apart.frame.len();
            self.released_cost -= apart.cost();
            given.push(apart.give());
            return;
        }
        let Some(front) = self.segments.front_mut() else { return };
        self.events -= 1;
        self.bytes -= front.evict_first();
        if front.earliest().is_none() {
            given.extend(self.drop_front());
        }
    }

    fn drop_front(&mut self) -> Option<Given> {
        let segment = self.segments.pop_front()?;
        lists::tighten(&mut self.segments);
        // The last one's cost is no part of the sum.
        self.sealed -= if self.segments.is_empty() { 0 } else { segment.cost() };
        Some(Given { cost: segment.buffer_cost(), bytes: segment.into_bytes() })
    }

    /// Evicts all that its first segment holds, and the released events before its end; one released event where there is no segment.
    pub(super) fn evict_front(&mut self, given: &mut Vec<Given>) {
        let Some(end) = self.segments.front().map(|segment| segment.next()) else { return self.evict_first(given) };
        while self.first().is_some_and(|(position, _)| position < end) {
            self.evict_first(given);
        }
    }

    /// Whether a whole buffer comes free by evicting what was acknowledged.
    pub(super) fn has_acknowledged(&self, upto: Position) -> bool {
        match (self.first(), self.segments.front()) {
            (Some((first, _)), _) if self.first_is_released() => first <= upto,
            (Some(_), Some(front)) => front.next().previous() <= upto,
            _ => false,
        }
    }

    /// Evicts the first buffer where `has_acknowledged`.
    pub(super) fn evict_acknowledged(&mut self, given: &mut Vec<Given>) {
        if self.first_is_released() { self.evict_first(given) } else { self.evict_front(given) }
    }

    /// Gives up everything.
    pub(super) fn give(self, given: &mut Vec<Given>) {
        given.extend(self.released.into_iter().map(Apart::give));
        given.extend(self.segments.into_iter().map(|segment| Given { cost: segment.buffer_cost(), bytes: segment.into_bytes() }));
    }
}

/// Recomputes the long way what is kept as sums.
#[cfg(test)]
impl Ordinary {
    pub(super) fn audit(&self) {
        let held = |segment: &Segment| {
            let from = segment.first.get();
            (from..segment.next().get()).filter_map(|position| segment.held_length(Position::new(position))).collect::<Vec<_>>()
        };
        let lengths: Vec<_> = self.segments.iter().flat_map(|segment| held(segment)).collect();
        let released: Vec<_> = self.released.iter().map(|apart| apart.frame.len()).collect();
        assert_eq!(self.events as usize, lengths.len() + released.len());
        assert_eq!(self.bytes, lengths.iter().chain(&released).sum::<usize>());
        assert_eq!(self.released_cost, self.released.iter().map(Apart::cost).sum::<usize>());
        let but_last = self.segments.len().saturating_sub(1);
        assert_eq!(self.sealed, self.segments.iter().take(but_last).map(|segment| segment.cost()).sum::<usize>());
        assert!(self.segments.iter().take(but_last).all(|segment| segment.room().is_none()));
        assert!(self.segments.iter().all(|segment| !held(segment).is_empty()), "a segment that holds nothing");
        assert!(self.segments.iter().zip(self.segments.iter().skip(1)).all(|(one, next)| one.next() <= next.first));
        assert!(self.released.iter().zip(self.released.iter().skip(1)).all(|(one, next)| one.position < next.position));
        assert!(!self.is_empty());
        assert!(self.segments.capacity() * size_of::<usize>() <= cost::list(self.segments.len(), size_of::<usize>()));
        assert!(self.released.capacity() * size_of::<Apart>() <= cost::list(self.released.len(), size_of::<Apart>()));
    }
}
