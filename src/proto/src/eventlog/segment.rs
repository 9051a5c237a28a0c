//! One segment of a ring: the frames of consecutive positions in one buffer, with the end of each.
//!
//! Never knows its ring's budget or neighbours.

use std::time::Duration;

use bytes::Bytes;

use crate::ids::Position;
use crate::time::Instant;

/// Events closer together than this share one time stamp, so ages are exact to this.
pub(super) const AGE_GRAIN: Duration = Duration::from_millis(250);

/// The frames of consecutive positions; it holds at least one, or its ring drops it. A pinned event inside it is a hole: an entry without bytes, its frame being held apart.
#[derive(Debug)]
pub(super) struct Segment {
    /// The position of its first entry.
    pub(super) first: Position,
    /// Entries before this one are evicted.
    start: u32,
    /// Where each entry's frame ends; it begins where the one before it ends.
    ends: Vec<u32>,
    holes: u32,
    frames: Frames,
    /// When its first entry came.
    begun: Instant,
    /// Later times: from which entry on they hold.
    marks: Vec<(u32, Instant)>,
}

#[derive(Debug)]
enum Frames {
    Open(Vec<u8>),
    Sealed { bytes: Bytes, capacity: usize },
}

impl Segment {
    pub(super) fn new(first: Position, capacity: usize, now: Instant) -> Self {
        Self {
            first,
            start: 0,
            ends: Vec::new(),
            holes: 0,
            frames: Frames::Open(Vec::with_capacity(capacity)),
            begun: now,
            marks: Vec::new(),
        }
    }

    /// Heap memory that it owns, in bytes.
    pub(super) fn cost(&self) -> usize {
        self.capacity() + self.ends.capacity() * size_of::<u32>() + self.marks.capacity() * size_of::<(u32, Instant)>()
    }

    /// What its index may grow by at the next entry: vectors double.
    pub(super) fn cost_of_growth(&self) -> usize {
        let ends = if self.ends.len() == self.ends.capacity() { self.ends.capacity().max(4) } else { 0 };
        let marks = if self.marks.len() == self.marks.capacity() { self.marks.capacity().max(4) } else { 0 };
        ends * size_of::<u32>() + marks * size_of::<(u32, Instant)>()
    }

    pub(super) fn capacity(&self) -> usize {
        match &self.frames {
            Frames::Open(buffer) => buffer.capacity(),
            Frames::Sealed { capacity, .. } => *capacity,
        }
    }

    /// Room for another frame; none once sealed.
    pub(super) fn room(&self) -> usize {
        match &self.frames {
            Frames::Open(buffer) => buffer.capacity() - buffer.len(),
            Frames::Sealed { .. } => 0,
        }
    }

    pub(super) fn is_open(&self) -> bool {
        matches!(self.frames, Frames::Open(_))
    }

    /// The position after its last entry.
    pub(super) fn next(&self) -> Position {
        Position::new(self.first.get() + self.ends.len() as u64)
    }

    fn end_of(&self, entry: u32) -> u32 {
        if entry == 0 { 0 } else { self.ends[entry as usize - 1] }
    }

    fn length(&self) -> u32 {
        self.end_of(self.ends.len() as u32)
    }

    fn index(&self, position: Position) -> Option<u32> {
        let index = position.get().checked_sub(self.first.get())?;
        (index < self.ends.len() as u64).then_some(index as u32)
    }

    /// Appends a frame; returns its length, or gives it up when it is longer than `most`. Nothing once sealed.
    pub(super) fn append(&mut self, now: Instant, most: usize, encode: impl FnOnce(&mut Vec<u8>)) -> Option<usize> {
        let Frames::Open(buffer) = &mut self.frames else { return None };
        let before = buffer.len();
        encode(buffer);
        let length = buffer.len() - before;
        if length > most || u32::try_from(buffer.len()).is_err() {
            buffer.truncate(before);
            return None;
        }
        let end = buffer.len() as u32;
        self.stamp(now);
        self.ends.push(end);
        Some(length)
    }

    /// Appends an entry for a pinned event, whose frame is held apart.
    pub(super) fn append_hole(&mut self, now: Instant) {
        let end = self.length();
        self.stamp(now);
        self.ends.push(end);
        self.holes += 1;
    }

    fn stamp(&mut self, now: Instant) {
        let last = self.marks.last().map_or(self.begun, |&(_, at)| at);
        if now.since(last) >= AGE_GRAIN {
            self.marks.push((self.ends.len() as u32, now));
        }
    }

    /// When the entry came, at the latest.
    fn came(&self, entry: u32) -> Instant {
        let mark = self.marks.partition_point(|&(from, _)| from <= entry);
        if mark == 0 { self.begun } else { self.marks[mark - 1].1 }
    }

    /// Nothing more will be appended: the frames become shareable as they are.
    pub(super) fn seal(&mut self) {
        if let Frames::Open(buffer) = &mut self.frames {
            let capacity = buffer.capacity();
            self.frames = Frames::Sealed { bytes: Bytes::from(std::mem::take(buffer)), capacity };
            self.ends.shrink_to_fit();
            self.marks.shrink_to_fit();
        }
    }

    /// The same, at the exact size.
    pub(super) fn seal_exactly(&mut self) {
        if let Frames::Open(buffer) = &mut self.frames {
            buffer.shrink_to_fit();
        }
        self.seal();
    }

    /// The shared bytes, for whoever counts those still in use; none while open.
    pub(super) fn into_bytes(self) -> Option<Bytes> {
        match self.frames {
            Frames::Open(_) => None,
            Frames::Sealed { bytes, .. } => Some(bytes),
        }
    }

    /// The first event that it holds.
    pub(super) fn earliest(&self) -> Option<Position> {
        ((self.start as usize) < self.ends.len()).then(|| Position::new(self.first.get() + u64::from(self.start)))
    }

    /// The first event after `after` that it holds.
    pub(super) fn next_held(&self, after: Position) -> Option<Position> {
        let from = after.next().get().saturating_sub(self.first.get()).max(self.start.into());
        (from..self.ends.len() as u64)
            .find(|&entry| self.frame_length(entry as u32) > 0)
            .map(|entry| Position::new(self.first.get() + entry))
    }

    fn frame_length(&self, entry: u32) -> u32 {
        self.ends[entry as usize] - self.end_of(entry)
    }

    /// The length of the frame at `position`, if it holds one.
    pub(super) fn held_length(&self, position: Position) -> Option<usize> {
        let entry = self.index(position).filter(|&entry| entry >= self.start)?;
        Some(self.frame_length(entry) as usize).filter(|&length| length > 0)
    }

    /// Evicts its first event; returns the frame's length.
    pub(super) fn evict_first(&mut self) -> usize {
        if self.earliest().is_none() {
            return 0;
        }
        let length = self.frame_length(self.start) as usize;
        self.start += 1;
        while (self.start as usize) < self.ends.len() && self.frame_length(self.start) == 0 {
            self.start += 1;
        }
        length
    }

    /// When its first event came, at the latest.
    pub(super) fn earliest_came(&self) -> Option<Instant> {
        self.earliest().map(|_| self.came(self.start))
    }

    /// The frames from `position` on, up to the next hole and about `most` bytes, but at least one; and the last position covered.
    pub(super) fn read(&self, position: Position, most: usize) -> Option<(Bytes, Position)> {
        let entry = self.index(position).filter(|&entry| entry >= self.start && self.frame_length(entry) > 0)?;
        let begin = self.end_of(entry);
        let limit = u64::from(begin) + most as u64;
        let mut last = self.ends.partition_point(|&end| u64::from(end) <= limit).max(entry as usize + 1) - 1;
        if self.holes > 0 {
            let hole = (entry..=last as u32).find(|&at| self.frame_length(at) == 0);
            last = hole.map_or(last, |hole| hole as usize - 1);
        }
        let range = begin as usize..self.ends[last] as usize;
        let bytes = match &self.frames {
            Frames::Open(buffer) => Bytes::copy_from_slice(&buffer[range]),
            Frames::Sealed { bytes, .. } => bytes.slice(range),
        };
        Some((bytes, Position::new(self.first.get() + last as u64)))
    }
}
