//! One segment of a ring: the frames of consecutive positions in one buffer, with the end of each.
//!
//! Never knows its ring's budget or neighbours.

use std::time::Duration;

use bytes::Bytes;

use super::cost::SHARED;
use crate::ids::Position;
use crate::time::Instant;

/// Events closer together than this share one time stamp, so ages are exact to this.
pub(super) const AGE_GRAIN: Duration = Duration::from_millis(250);

/// The frames of consecutive positions; it holds at least one, or its ring drops it. A pinned event inside it is a hole: an entry
/// without bytes, its frame being held apart.
#[derive(Debug)]
pub(super) struct Segment {
    /// The position of its first entry.
    pub(super) first: Position,
    /// Entries before this one are evicted.
    start: u32,
    holes: u32,
    /// Where each entry's frame ends; it begins where the one before it ends.
    ends: Vec<u32>,
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

/// What became of a frame.
#[derive(Debug)]
pub(super) enum Encoded {
    /// It is the last entry, of this many bytes.
    Kept(usize),
    /// It had no bytes.
    Empty,
    /// It is longer than a frame may be.
    TooLong,
    /// It did not fit into the buffer: here it is.
    Overran(Vec<u8>),
}

impl Segment {
    pub(super) fn new(first: Position, capacity: usize, now: Instant) -> Self {
        Self {
            first,
            start: 0,
            holes: 0,
            ends: Vec::new(),
            frames: Frames::Open(Vec::with_capacity(capacity)),
            begun: now,
            marks: Vec::new(),
        }
    }

    /// Heap memory that it owns, in bytes.
    pub(super) fn cost(&self) -> usize {
        self.buffer_cost() + self.ends.capacity() * size_of::<u32>() + self.marks.capacity() * size_of::<(u32, Instant)>()
    }

    /// What outlives it while somebody sends its frames.
    pub(super) fn buffer_cost(&self) -> usize {
        self.capacity() + SHARED
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
    pub(super) fn room(&self) -> Option<usize> {
        match &self.frames {
            Frames::Open(buffer) => Some(buffer.capacity() - buffer.len()),
            Frames::Sealed { .. } => None,
        }
    }

    /// The position after its last entry.
    pub(super) fn next(&self) -> Position {
        Position::new(self.first.get() + self.ends.len() as u64)
    }

    fn end_of(&self, entry: u32) -> u32 {
        if entry == 0 { 0 } else { self.ends[entry as usize - 1] }
    }

    /// The entry of a position that it has not evicted.
    fn entry(&self, position: Position) -> Option<u32> {
        let index = position.get().checked_sub(self.first.get())?;
        (index >= u64::from(self.start) && index < self.ends.len() as u64).then_some(index as u32)
    }

    fn frame_length(&self, entry: u32) -> u32 {
        self.ends[entry as usize] - self.end_of(entry)
    }

    // ---- appending ----

    /// Appends a frame of at most `most` bytes. Only while open; the buffer keeps its size whatever `encode` does.
    pub(super) fn append(&mut self, now: Instant, most: usize, encode: impl FnOnce(&mut Vec<u8>)) -> Encoded {
        let Frames::Open(buffer) = &mut self.frames else { return Encoded::Empty };
        let (before, capacity) = (buffer.len(), buffer.capacity());
        encode(buffer);
        let length = buffer.len().saturating_sub(before);
        if length == 0 || length > most || buffer.capacity() != capacity {
            let frame = if length > 0 && length <= most { buffer.split_off(before) } else { Vec::new() };
            buffer.truncate(before);
            buffer.shrink_to(capacity);
            return match length {
                0 => Encoded::Empty,
                _ if frame.is_empty() => Encoded::TooLong,
                _ => Encoded::Overran(frame),
            };
        }
        let end = buffer.len() as u32;
        self.stamp(now);
        self.ends.push(end);
        Encoded::Kept(length)
    }

    /// Appends an entry for a pinned event, whose frame is held apart. Seals instead where the index would outweigh the frames.
    pub(super) fn append_hole(&mut self, now: Instant) {
        if self.holes as usize * size_of::<u32>() >= self.capacity() {
            return self.seal();
        }
        let end = self.end_of(self.ends.len() as u32);
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

    /// Nothing more will be appended: the frames become shareable as they are (at their exact size, where much of the buffer is
    /// unused).
    pub(super) fn seal(&mut self) {
        if let Frames::Open(buffer) = &mut self.frames {
            if buffer.capacity() - buffer.len() > buffer.capacity() / 4 {
                buffer.shrink_to_fit();
            }
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

    // ---- what it holds ----

    /// The first event that it holds.
    pub(super) fn earliest(&self) -> Option<Position> {
        ((self.start as usize) < self.ends.len()).then(|| Position::new(self.first.get() + u64::from(self.start)))
    }

    /// When its first event came, or up to `AGE_GRAIN` before.
    pub(super) fn earliest_came(&self) -> Instant {
        let mark = self.marks.partition_point(|&(from, _)| from <= self.start);
        if mark == 0 { self.begun } else { self.marks[mark - 1].1 }
    }

    /// The first event at or after `position` that it holds.
    pub(super) fn first_from(&self, position: Position) -> Option<Position> {
        let from = position.get().saturating_sub(self.first.get()).max(self.start.into());
        (from..self.ends.len() as u64)
            .find(|&entry| self.frame_length(entry as u32) > 0)
            .map(|entry| Position::new(self.first.get() + entry))
    }

    /// The length of the frame at `position`, if it holds one.
    pub(super) fn held_length(&self, position: Position) -> Option<usize> {
        Some(self.frame_length(self.entry(position)?) as usize).filter(|&length| length > 0)
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

    /// The frames from `position` on that end within the next `most` bytes, up to the next hole: the last one's position, and their
    /// bytes together. None when not even the first does.
    pub(super) fn run(&self, position: Position, most: usize) -> Option<(Position, usize)> {
        let entry = self.entry(position)?;
        let begin = self.end_of(entry);
        let limit = u64::from(begin).saturating_add(most as u64);
        let mut past = self.ends.partition_point(|&end| u64::from(end) <= limit) as u32;
        if self.holes > 0 {
            past = (entry..past).find(|&at| self.frame_length(at) == 0).unwrap_or(past);
        }
        let last = past.checked_sub(1).filter(|&last| last >= entry)?;
        Some((Position::new(self.first.get() + u64::from(last)), (self.ends[last as usize] - begin) as usize))
    }

    /// The `length` bytes of frames from `position` on.
    pub(super) fn slice(&self, position: Position, length: usize) -> Option<Bytes> {
        let begin = self.end_of(self.entry(position)?) as usize;
        match &self.frames {
            Frames::Open(buffer) => buffer.get(begin..begin + length).map(Bytes::copy_from_slice),
            Frames::Sealed { bytes, .. } => (begin + length <= bytes.len()).then(|| bytes.slice(begin..begin + length)),
        }
    }
}
