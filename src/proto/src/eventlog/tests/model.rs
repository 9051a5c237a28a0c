//! Random sequences of operations, against an oracle that keeps every event for ever and asks the log after each what it still holds.

use std::collections::BTreeSet;
use std::time::Duration;

use proptest::prelude::*;
use proptest::sample::{Index as Pick, select};

use super::*;

const EVENT_TTL: Duration = Duration::from_secs(5);
const RESULT_TTL: Duration = Duration::from_secs(20);
const SECOND: Duration = Duration::from_secs(1);

#[derive(Clone, Debug)]
enum Op {
    Open { holder: u32, from: u64 },
    Append { ring: Pick, kind: Kind, length: usize, hint: usize, times: usize },
    Skip { ring: Pick },
    Unpin { ring: Pick, event: Pick },
    Acknowledge { ring: Pick, event: Pick },
    Finish { ring: Pick },
    Remove { ring: Pick },
    Expire { at: u64 },
    Read { ring: Pick, event: Pick, max: usize },
    LetGo { reader: Pick },
}

fn length() -> impl Strategy<Value = usize> {
    prop_oneof![1 => Just(0), 8 => 1..60usize, 8 => 60..600usize, 3 => 600..6_000usize, 1 => 6_000..80_000usize]
}

fn op() -> impl Strategy<Value = Op> {
    let ring = any::<Pick>;
    let kind = || select(vec![Kind::Ordinary, Kind::Ordinary, Kind::Ordinary, Kind::Pinned]);
    let append = (ring(), kind(), length(), 0..4usize, 1..15usize).prop_map(|(ring, kind, length, hint, times)| Op::Append {
        ring,
        kind,
        length,
        hint: [length, length, length / 2, length * 2][hint],
        times,
    });
    prop_oneof![
        2 => (0..3u32, 0..50u64).prop_map(|(holder, from)| Op::Open { holder, from }),
        12 => append,
        1 => ring().prop_map(|ring| Op::Skip { ring }),
        2 => (ring(), any::<Pick>()).prop_map(|(ring, event)| Op::Unpin { ring, event }),
        2 => (ring(), any::<Pick>()).prop_map(|(ring, event)| Op::Acknowledge { ring, event }),
        1 => ring().prop_map(|ring| Op::Finish { ring }),
        1 => ring().prop_map(|ring| Op::Remove { ring }),
        3 => (0..40_000u64).prop_map(|at| Op::Expire { at }),
        4 => (ring(), any::<Pick>(), select(vec![0, 1, 300, 5_000, usize::MAX]))
            .prop_map(|(ring, event, max)| Op::Read { ring, event, max }),
        2 => any::<Pick>().prop_map(|reader| Op::LetGo { reader }),
    ]
}

fn limits() -> impl Strategy<Value = Limits> {
    let budget = select(vec![0, 1, 99, 700, 2_000, 8_000, 8_000, 64_000, 64_000, 1_000_000]);
    let message = select(vec![0, 1_000, 100_000, usize::MAX]);
    let events = select(vec![0, 1, 3, 10, 10_000, 10_000]);
    let bytes = select(vec![0, 700, 1 << 20, 1 << 20]);
    (budget, select(vec![0, 25, 25, 100, 255]), message, events, bytes).prop_map(
        |(log_bytes, pinned_percent, message_bytes, stream_events, stream_bytes)| Limits {
            log_bytes,
            pinned_percent,
            message_bytes,
            stream_events,
            stream_bytes,
            event_ttl: EVENT_TTL,
            result_ttl: RESULT_TTL,
            ..Limits::default()
        },
    )
}

/// What was appended, and what the log has let go of it.
#[derive(Debug)]
struct Event {
    frame: Vec<u8>,
    came: Instant,
    /// The latest time at which it or one before it came.
    came_latest: Instant,
    pinned: bool,
    held: bool,
}

#[derive(Debug)]
struct Stream {
    id: RingId,
    from: u64,
    events: Vec<Event>,
    finished: bool,
    removed: bool,
    emptied: bool,
}

impl Stream {
    fn last(&self) -> u64 {
        self.from + self.events.len() as u64
    }

    fn event(&self, position: u64) -> Option<&Event> {
        self.events.get(position.checked_sub(self.from + 1)? as usize)
    }

    fn held(&self, position: u64) -> Option<&Event> {
        self.event(position).filter(|event| event.held)
    }

    /// The run after `after`: its last position, its bytes.
    fn run(&self, after: u64, max: usize) -> (u64, Vec<u8>) {
        let mut bytes = Vec::new();
        let mut last = after;
        while let Some(event) = last.checked_add(1).and_then(|next| self.held(next)) {
            if last > after && bytes.len().saturating_add(event.frame.len()) > max {
                break;
            }
            bytes.extend_from_slice(&event.frame);
            last += 1;
        }
        (last, bytes)
    }
}

struct Model {
    limits: Limits,
    log: EventLog,
    now: Instant,
    streams: Vec<Stream>,
    readers: Vec<(Vec<Bytes>, Vec<u8>)>,
    names: BTreeSet<RingId>,
}

impl Model {
    fn new(limits: Limits) -> Self {
        let log = EventLog::new(&limits);
        Self { limits, log, now: ORIGIN, streams: Vec::new(), readers: Vec::new(), names: BTreeSet::new() }
    }

    fn apply(&mut self, op: &Op) {
        match *op {
            Op::Open { holder, from } => self.open(holder, from),
            Op::Append { ring, kind, length, hint, times } => {
                for _ in 0..times {
                    self.append(ring, kind, length, hint);
                    self.now = self.now + Duration::from_millis(40);
                }
            }
            Op::Skip { ring } => self.skip(ring),
            Op::Unpin { ring, event } => {
                let Some((at, position)) = self.pick(ring, event) else { return };
                self.log.unpin(self.streams[at].id, Position::new(position));
                let from = self.streams[at].from;
                if let Some(event) =
                    position.checked_sub(from + 1).and_then(|at_event| self.streams[at].events.get_mut(at_event as usize))
                {
                    event.pinned = false;
                }
                self.look(&|_, _| false);
            }
            Op::Acknowledge { ring, event } => {
                let Some((at, position)) = self.pick(ring, event) else { return };
                self.log.acknowledge(self.streams[at].id, Position::new(position));
                self.look(&|_, _| false);
            }
            Op::Finish { ring } => {
                let Some(at) = self.pick_stream(ring) else { return };
                self.log.finish(self.streams[at].id);
                self.streams[at].finished = true;
                self.look(&|_, _| false);
            }
            Op::Remove { ring } => {
                let Some(at) = self.pick_stream(ring) else { return };
                self.log.remove(self.streams[at].id);
                self.streams[at].removed = true;
                self.look(&|_, _| false);
            }
            Op::Expire { at } => self.expire(Instant::from_millis(at)),
            Op::Read { ring, event, max } => {
                let Some((at, position)) = self.pick(ring, event) else { return };
                let mut slices = Vec::new();
                self.log.read(self.streams[at].id, Position::new(position), max, &mut slices);
                let bytes = slices.concat();
                self.readers.push((slices, bytes));
            }
            Op::LetGo { reader } => {
                if !self.readers.is_empty() {
                    let (slices, bytes) = self.readers.swap_remove(reader.index(self.readers.len()));
                    assert_eq!(slices.concat(), bytes);
                }
                self.log.release();
                if self.readers.is_empty() {
                    assert_eq!(self.log.lingering(), 0);
                }
                self.look(&|_, _| false);
            }
        }
    }

    fn pick_stream(&self, ring: Pick) -> Option<usize> {
        (!self.streams.is_empty()).then(|| ring.index(self.streams.len()))
    }

    /// A stream (removed ones too) and a position in it or around it.
    fn pick(&self, ring: Pick, event: Pick) -> Option<(usize, u64)> {
        let at = self.pick_stream(ring)?;
        let stream = &self.streams[at];
        Some((at, (stream.from + event.index(stream.events.len() + 3) as u64).saturating_sub(1)))
    }

    fn open(&mut self, holder: u32, from: u64) {
        if let Ok(id) = self.log.open(holder, 0, Position::new(from)) {
            assert!(self.names.insert(id), "{id:?} names two rings");
            self.streams.push(Stream { id, from, events: Vec::new(), finished: false, removed: false, emptied: false });
        }
        self.look(&|_, _| false);
    }

    fn skip(&mut self, ring: Pick) {
        let Some(at) = self.pick_stream(ring) else { return };
        let stream = &mut self.streams[at];
        let position = self.log.skip(stream.id);
        if !stream.removed {
            assert_eq!(position.get(), stream.last() + 1);
            stream.remember(Vec::new(), self.now, false, false);
        }
        self.look(&|_, _| false);
    }

    fn append(&mut self, ring: Pick, kind: Kind, length: usize, hint: usize) {
        let Some(at) = self.pick_stream(ring) else { return };
        let stream = &mut self.streams[at];
        let next = stream.last() + 1;
        let frame: Vec<u8> = (0..length).map(|byte| (byte as u64 * 7 + next * 13 + at as u64) as u8).collect();
        let taken = self.log.append(stream.id, kind, self.now, hint, |out| out.extend_from_slice(&frame));
        match taken {
            Ok(position) => {
                assert!(!stream.removed && !stream.finished);
                assert_eq!(position.get(), next);
                let pinned = kind == Kind::Pinned;
                if pinned && length > 0 {
                    assert!(self.log.holds(stream.id, position), "a pinned event that is not held");
                }
                stream.remember(frame, self.now, pinned, length > 0);
            }
            Err(Full::TooLarge) => {
                let room = self.limits.message_bytes.saturating_add(FRAME_OVERHEAD).min(self.log.budget());
                let share = self.log.pinned_budget.saturating_sub(Ring::cost_of_pinned(0));
                let room = if kind == Kind::Pinned { room.min(share) } else { room };
                assert!(length.max(hint).max(SEGMENT_MIN) + 500 > room, "{length} bytes are too large");
            }
            Err(Full::Lingering) => assert!(!self.readers.is_empty()),
            Err(Full::Budget) => {}
        }
        let crowded_out = kind == Kind::Pinned;
        self.look(&|event, now| crowded_out || event.came + RESULT_TTL <= now);
    }

    fn expire(&mut self, now: Instant) {
        self.now = now;
        let roomy = self.log.used() + 1_000 < self.log.budget();
        let held: Vec<Vec<bool>> =
            self.streams.iter().map(|stream| stream.events.iter().map(|event| event.held).collect()).collect();
        self.log.expire(now);
        self.look(&|event, now| event.came + RESULT_TTL <= now);
        assert!(self.log.next_expiry().is_none_or(|at| at > now));
        for (stream, held) in self.streams.iter().zip(held).filter(|(stream, _)| !stream.removed) {
            for (event, was_held) in stream.events.iter().zip(held) {
                let ttl = if event.pinned { RESULT_TTL } else { EVENT_TTL };
                assert!(!event.held || event.came_latest + ttl + SECOND > now, "too old and held: {event:?} at {now:?}");
                assert!(event.held == was_held || !roomy || event.came + ttl <= now, "went too early: {event:?} at {now:?}");
            }
        }
    }

    /// Compares everything. `lose` says which pinned events may have been evicted.
    fn look(&mut self, lose: &dyn Fn(&Event, Instant) -> bool) {
        self.log.audit();
        let mut lost = BTreeSet::new();
        for stream in self.streams.iter_mut() {
            for at in 0..stream.events.len() {
                let position = Position::new(stream.from + 1 + at as u64);
                let (held, removed) = (self.log.holds(stream.id, position), stream.removed);
                let event = &mut stream.events[at];
                assert!(event.held || !held, "{position:?} came back");
                if event.held && !held && event.pinned && !removed {
                    assert!(lose(event, self.now), "pinned, and lost: {event:?}");
                    lost.insert((stream.id, position));
                }
                event.held = held;
            }
        }
        let told: Vec<_> = self.log.take_lost().collect();
        assert_eq!(told.len(), lost.len());
        assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), lost);
        let mut emptied = BTreeSet::new();
        for stream in self.streams.iter_mut().filter(|stream| !stream.removed) {
            if stream.finished && !stream.emptied && stream.events.iter().all(|event| !event.held) {
                stream.emptied = true;
                emptied.insert(stream.id);
            }
        }
        let told: Vec<_> = self.log.take_emptied().collect();
        assert_eq!(told.len(), emptied.len());
        assert_eq!(told.into_iter().collect::<BTreeSet<_>>(), emptied);
        self.streams.iter().for_each(|stream| self.look_at(stream));
    }

    fn look_at(&self, stream: &Stream) {
        let log = &self.log;
        let held: Vec<u64> = (stream.from + 1..=stream.last()).filter(|&position| stream.held(position).is_some()).collect();
        assert_eq!(log.earliest(stream.id).map(Position::get), held.first().copied());
        if stream.removed {
            assert!(held.is_empty());
            return;
        }
        assert_eq!(log.last(stream.id).get(), stream.last());
        assert_eq!(log.next(stream.id).get(), stream.last() + 1);
        let ordinary: Vec<_> = stream.events.iter().filter(|event| event.held && !event.pinned).collect();
        let bytes: usize = ordinary.iter().map(|event| event.frame.len()).sum();
        assert!(ordinary.len() as u64 <= self.limits.stream_events);
        assert!(bytes <= self.limits.stream_bytes || ordinary.len() <= 1);
        assert_eq!(log.bytes(stream.id), bytes);
        for after in (stream.from.saturating_sub(1)..=stream.last() + 1).chain([u64::MAX]) {
            let next = held.iter().copied().find(|&position| position > after);
            assert_eq!(log.next_held(stream.id, Position::new(after)).map(Position::get), next);
        }
        for after in
            [stream.from, held.first().map_or(0, |first| first - 1), stream.last(), u64::MAX].into_iter().chain(gaps(&held))
        {
            for max in [0, 100, 3_000, usize::MAX] {
                let mut slices = Vec::new();
                let last = log.read(stream.id, Position::new(after), max, &mut slices);
                assert_eq!((last.get(), slices.concat()), stream.run(after, max));
                assert!(slices.iter().all(|slice| !slice.is_empty()));
                let ends = log.ends(stream.id, Position::new(after), last);
                assert_eq!((ends.len() as u64, ends.last().copied().unwrap_or(0)), (last.get() - after, slices.concat().len()));
            }
        }
    }
}

impl Stream {
    fn remember(&mut self, frame: Vec<u8>, came: Instant, pinned: bool, held: bool) {
        let came_latest = self.events.last().map_or(came, |event| event.came_latest.max(came));
        self.events.push(Event { frame, came, came_latest, pinned, held });
    }
}

/// The positions at which gaps begin, and those before their ends.
fn gaps(held: &[u64]) -> Vec<u64> {
    let ends = held.windows(2).filter(|pair| pair[0] + 1 < pair[1]);
    ends.flat_map(|pair| [pair[0] - 1, pair[0], pair[1] - 1]).take(12).collect()
}

proptest! {
    #[test]
    fn the_log_agrees_with_an_oracle_that_keeps_everything(limits in limits(), ops in prop::collection::vec(op(), 1..80)) {
        let mut model = Model::new(limits);
        model.open(0, 0);
        for op in &ops {
            model.apply(op);
        }
        model.readers.clear();
        model.log.release();
        assert_eq!(model.log.lingering(), 0);
        for stream in &mut model.streams {
            model.log.remove(stream.id);
            stream.removed = true;
        }
        model.look(&|_, _| false);
        assert_eq!(model.log.used(), 0, "an empty log uses nothing");
    }
}
