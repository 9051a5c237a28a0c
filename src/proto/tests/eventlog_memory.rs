//! What the event log says that it uses, against what the allocator gave it.

use std::alloc::System;
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;

use bytes::Bytes;
use rejoin_proto::eventlog::{EventLog, Full, Kind, RingId};
use rejoin_proto::ids::Position;
use rejoin_proto::limits::Limits;
use rejoin_proto::time::Instant;
use stats_alloc::{INSTRUMENTED_SYSTEM, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What the log may have beyond what it says: the root nodes of its indexes, under 2 KiB; the rest is for the test harness, whose main
/// thread begins and reports tests meanwhile.
const SLACK: usize = 6 << 10;
/// How often that thread may allocate while we count.
const HARNESS_ALLOCATIONS: usize = 100;

/// One test at a time: the counters are the process's.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
}

fn live() -> usize {
    let stats = ALLOCATOR.stats();
    stats.bytes_allocated - stats.bytes_deallocated
}

fn allocations() -> usize {
    let stats = ALLOCATOR.stats();
    stats.allocations + stats.reallocations
}

/// Xorshift: the same load each time.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % bound as u64) as usize
    }

    /// Mostly short, sometimes long.
    fn length(&mut self) -> usize {
        let magnitude = self.below(13);
        1 + self.below(8 << magnitude)
    }
}

/// Slices that a reader holds; those of an open segment are copies, and no memory of the log's.
struct Reader {
    slices: Vec<Bytes>,
    own: usize,
}

impl Reader {
    fn new(log: &EventLog, ring: RingId, after: Position) -> Self {
        let mut slices = Vec::with_capacity(64);
        log.read(ring, after, 8 << 10, &mut slices);
        let copies: usize = slices.iter().filter(|slice| slice.is_unique()).map(Bytes::len).sum();
        Self { own: copies + slices.capacity() * size_of::<Bytes>(), slices }
    }
}

fn append(log: &mut EventLog, ring: RingId, kind: Kind, now: Instant, length: usize, hint: usize) -> Result<Position, Full> {
    log.append(ring, kind, now, hint, |out| out.resize(out.len() + length, b'x'))
}

fn under_random_load(budget: usize, rings: usize, steps: usize) {
    let limits = Limits { log_bytes: budget, stream_events: 500, message_bytes: 24 << 10, ..Limits::default() };
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ budget as u64);
    let (mut names, mut readers) = (Vec::with_capacity(rings), Vec::with_capacity(64));
    let mut now = Instant::ORIGIN;
    let before = live();
    let mut log = EventLog::new(&limits);
    let (mut fullest, mut worst) = (0, 0);
    for step in 0..steps {
        now = now + Duration::from_millis(random.below(200) as u64);
        match random.below(100) {
            0..10 if names.len() < rings => {
                names.extend(log.open(random.below(rings / 8 + 1) as u32, Position::START));
            }
            _ if names.is_empty() => {}
            0..10 if random.below(3) == 0 => {
                let at = random.below(names.len());
                log.remove(names.swap_remove(at));
            }
            choice => {
                let ring = names[random.below(names.len())];
                match choice {
                    0..75 => {
                        let kind = if choice < 15 { Kind::Pinned } else { Kind::Ordinary };
                        let length = random.length();
                        let hint = [length, length, length * 2, 0][random.below(4)];
                        let _ = append(&mut log, ring, kind, now, length, hint);
                    }
                    75..80 => log.acknowledge(ring, Position::new(random.below(log.last(ring).get() as usize + 1) as u64)),
                    80..84 => (log.earliest(ring).into_iter()).for_each(|position| log.unpin(ring, position)),
                    84..86 => log.finish(ring),
                    86..93 if readers.len() < 64 => {
                        readers.push(Reader::new(&log, ring, log.earliest(ring).map_or(Position::START, Position::previous)));
                    }
                    _ if !readers.is_empty() => {
                        readers.swap_remove(random.below(readers.len()));
                    }
                    _ => log.expire(now),
                }
            }
        }
        drop((log.take_lost(), log.take_emptied()));
        let own: usize = readers.iter().map(|reader| reader.own).sum();
        let real = live().saturating_sub(before + own);
        let slices: usize = readers.iter().map(|reader| reader.slices.len()).sum();
        assert!(log.used() <= budget, "step {step}: {} of {budget} used", log.used());
        assert!(real <= log.used() + SLACK, "step {step}: {real} allocated, {} said, {slices} slices held", log.used());
        fullest = fullest.max(log.used());
        worst = worst.max(log.used().saturating_sub(real));
    }
    println!("budget {budget}: at most {fullest} used, at most {worst} more said than allocated, {} rings", names.len());
    assert!(fullest > budget / 10 * 9, "no pressure: {fullest} of {budget}");
}

#[test]
fn the_heap_grows_by_no_more_than_the_log_says_and_that_stays_within_the_budget() {
    let _alone = alone();
    under_random_load(24 << 10, 8, 20_000);
    under_random_load(256 << 10, 60, 30_000);
    under_random_load(4 << 20, 1_000, 60_000);
}

#[test]
fn replaying_a_long_history_allocates_nothing_an_event() {
    let _alone = alone();
    let mut log = EventLog::new(&Limits { stream_events: u64::MAX, ..Limits::default() });
    let ring = log.open(0, Position::START).expect("room");
    let events = 60_000;
    for _ in 0..events {
        append(&mut log, ring, Kind::Ordinary, Instant::ORIGIN, 200, 200).expect("room");
    }
    log.finish(ring);
    let mut slices = Vec::with_capacity(64);
    let (mut last, mut reads, mut bytes) = (Position::START, 0, 0);
    let before = allocations();
    while log.next_held(ring, last).is_some() {
        let to = log.read(ring, last, 256 << 10, &mut slices);
        assert!(to.since(last) > 1_000 || to == log.last(ring));
        bytes += slices.drain(..).map(|slice| slice.len()).sum::<usize>();
        (last, reads) = (to, reads + 1);
    }
    let allocated = allocations() - before;
    println!("{events} events of {bytes} bytes in {reads} reads: {allocated} allocations");
    assert!(allocated <= 2 * reads + HARNESS_ALLOCATIONS, "{allocated} allocations for {events} events");
    assert_eq!((last, bytes), (Position::new(events), events as usize * 200));
}

#[test]
fn small_finished_streams_cost_at_most_twice_their_bytes() {
    let _alone = alone();
    let (rings, length) = (10_000, 300);
    for rings_a_holder in [20, 1] {
        let before = live();
        let mut log = EventLog::new(&Limits::default());
        for number in 0..rings {
            let ring = log.open(number / rings_a_holder, Position::START).expect("room");
            append(&mut log, ring, Kind::Pinned, Instant::from_millis(number.into()), length, length).expect("room");
            log.finish(ring);
            // Sharing a frame costs a reference count from then on.
            log.read(ring, Position::START, length, &mut Vec::new());
        }
        let (used, real, bytes) = (log.used(), live() - before, rings as usize * length);
        println!("{rings_a_holder} rings a holder: {used} said, {real} allocated, for {bytes} bytes");
        assert!(real <= 2 * bytes && real <= used + SLACK);
        assert!(used <= bytes * 21 / 10 && (rings_a_holder == 1 || used <= 2 * bytes));
    }
}
