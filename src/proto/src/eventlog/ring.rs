//! A stream's ring: its segments in order, and its pinned events beside them.
//!
//! Never decides what must go; says what it holds, what that costs, and gives up what it is told to.

use std::collections::VecDeque;

use bytes::Bytes;

use super::segment::{AGE_GRAIN, Segment};
use crate::ids::Position;
use crate::limits::Limits;
use crate::time::Instant;

/// The events of one stream.
#[derive(Debug)]
pub(super) struct Ring {
    /// Whose pinned events count together.
    pub(super) holder: u32,
    pub(super) next: Position,
    pub(super) segments: VecDeque<Segment>,
    /// By position.
    pub(super) pinned: Vec<Pinned>,
    pub(super) acknowledged: Position,
    pub(super) finished: bool,
    /// Ordinary events held, and their bytes.
    pub(super) events: u64,
    pub(super) bytes: usize,
    /// Where it stands among the rings by size, by age and by acknowledgement.
    pub(super) size_class: u8,
    pub(super) due: Option<Instant>,
    pub(super) queued: bool,
}

/// A frame held apart from the segments.
#[derive(Debug)]
pub(super) struct Pinned {
    pub(super) position: Position,
    pub(super) came: Instant,
    pub(super) frame: Bytes,
    /// No longer pinned: it goes with the ordinary ones.
    pub(super) ordinary: bool,
}

impl Pinned {
    /// What it costs beyond its place in the ring's list: the frame, and the reference count that sharing it adds.
    pub(super) fn cost(&self) -> usize {
        self.frame.len() + 3 * size_of::<usize>()
    }
}

/// A buffer that a ring has given up.
pub(super) struct Given {
    pub(super) bytes: Option<Bytes>,
    pub(super) capacity: usize,
}

impl Ring {
    pub(super) fn new(holder: u32, from: Position) -> Self {
        Self {
            holder,
            next: from.next(),
            segments: VecDeque::new(),
            pinned: Vec::new(),
            acknowledged: Position::START,
            finished: false,
            events: 0,
            bytes: 0,
            size_class: 0,
            due: None,
            queued: false,
        }
    }

    /// Heap memory that it owns, in bytes, the frames of pinned events included.
    pub(super) fn cost(&self) -> usize {
        self.lists()
            + self.segments.iter().map(Segment::cost).sum::<usize>()
            + self.pinned.iter().map(Pinned::cost).sum::<usize>()
    }

    /// The part of it that its two lists are.
    pub(super) fn lists(&self) -> usize {
        self.segments.capacity() * size_of::<Segment>() + self.pinned.capacity() * size_of::<Pinned>()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.segments.is_empty() && self.pinned.is_empty()
    }

    /// Whether its last segment takes a frame of `length` bytes.
    pub(super) fn has_room(&self, length: usize) -> bool {
        self.segments.back().is_some_and(|segment| segment.is_open() && segment.room() >= length)
    }

    pub(super) fn pinned_at(&self, position: Position) -> Option<usize> {
        self.pinned.binary_search_by_key(&position, |pinned| pinned.position).ok()
    }

    /// The segment that would hold `position`.
    fn segment_at(&self, position: Position) -> Option<&Segment> {
        let after = self.segments.partition_point(|segment| segment.first <= position);
        self.segments.get(after.checked_sub(1)?)
    }

    pub(super) fn earliest(&self) -> Option<Position> {
        let segment = self.segments.front().and_then(Segment::earliest);
        let pinned = self.pinned.first().map(|pinned| pinned.position);
        segment.into_iter().chain(pinned).min()
    }

    pub(super) fn next_held(&self, after: Position) -> Option<Position> {
        let from = self.segments.partition_point(|segment| segment.next() <= after.next());
        let segment = self.segments.range(from..).find_map(|segment| segment.next_held(after));
        let pinned =
            self.pinned.get(self.pinned.partition_point(|pinned| pinned.position <= after)).map(|pinned| pinned.position);
        segment.into_iter().chain(pinned).min()
    }

    /// The length of the frame at `position`, if it is held.
    pub(super) fn held_length(&self, position: Position) -> Option<usize> {
        match self.pinned_at(position) {
            Some(at) => Some(self.pinned[at].frame.len()),
            None => self.segment_at(position)?.held_length(position),
        }
    }

    /// Appends to `out` the run that begins right after `after`; returns the last position covered.
    pub(super) fn read(&self, after: Position, most: usize, out: &mut Vec<Bytes>) -> Position {
        let mut last = after;
        let mut left = most;
        while last == after || left > 0 {
            let position = last.next();
            let (bytes, to) = match self.pinned_at(position) {
                Some(at) => (self.pinned[at].frame.clone(), position),
                None => match self.segment_at(position).and_then(|segment| segment.read(position, left)) {
                    Some(read) => read,
                    None => break,
                },
            };
            if last != after && bytes.len() > left {
                break;
            }
            left = left.saturating_sub(bytes.len());
            out.push(bytes);
            last = to;
        }
        last
    }

    /// The position of the first ordinary event.
    fn first_ordinary(&self) -> Option<(Position, bool)> {
        let segment = self.segments.front().and_then(Segment::earliest).map(|position| (position, false));
        let released = self.pinned.iter().find(|pinned| pinned.ordinary).map(|pinned| (pinned.position, true));
        segment.into_iter().chain(released).min()
    }

    /// Evicts the first ordinary event, and gives up the buffer that it was the last of; `None` when there is none.
    pub(super) fn evict_first(&mut self) -> Option<Option<Given>> {
        let (position, apart) = self.first_ordinary()?;
        self.events -= 1;
        if apart {
            let pinned = self.pinned.remove(self.pinned_at(position)?);
            self.bytes -= pinned.frame.len();
            return Some(Some(Given { capacity: pinned.cost(), bytes: Some(pinned.frame) }));
        }
        let front = self.segments.front_mut()?;
        self.bytes -= front.evict_first();
        Some(if front.earliest().is_none() { self.drop_front() } else { None })
    }

    /// Evicts all that its first segment holds, and the released events before its end.
    pub(super) fn evict_front(&mut self) -> Vec<Given> {
        let mut given = Vec::new();
        let Some(end) = self.segments.front().map(Segment::next) else {
            given.extend(self.evict_first().flatten());
            return given;
        };
        while self.first_ordinary().is_some_and(|(position, _)| position < end) {
            given.extend(self.evict_first().flatten());
        }
        given
    }

    /// Drops its first segment, which holds nothing any more.
    fn drop_front(&mut self) -> Option<Given> {
        let segment = self.segments.pop_front()?;
        let capacity = segment.cost();
        Some(Given { capacity, bytes: segment.into_bytes() })
    }

    /// Drops its last segment, which came to hold nothing.
    pub(super) fn drop_last(&mut self) -> Option<Given> {
        let segment = self.segments.pop_back()?;
        let capacity = segment.cost();
        Some(Given { capacity, bytes: segment.into_bytes() })
    }

    /// When its first event, ordinary or pinned, will be too old.
    pub(super) fn first_due(&self, limits: &Limits) -> Option<Instant> {
        let segment = self.segments.front().and_then(Segment::earliest_came).map(|came| came + limits.event_ttl);
        let pinned =
            self.pinned.iter().map(|pinned| pinned.came + if pinned.ordinary { limits.event_ttl } else { limits.result_ttl });
        segment.into_iter().chain(pinned).min().map(|due| due + AGE_GRAIN)
    }

    /// Whether its first ordinary event is too old.
    pub(super) fn first_ordinary_is_old(&self, limits: &Limits, now: Instant) -> bool {
        let came = match self.first_ordinary() {
            Some((position, true)) => self.pinned_at(position).map(|at| self.pinned[at].came),
            Some((_, false)) => self.segments.front().and_then(Segment::earliest_came),
            None => None,
        };
        came.is_some_and(|came| came + limits.event_ttl + AGE_GRAIN <= now)
    }
}
