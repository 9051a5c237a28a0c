//! What the event log says that it uses, against what the allocator gave it.

use std::time::Duration;

use allocation_counter::measure;
use bytes::Bytes;
use rejoin_proto::eventlog::{EventLog, Full, Kind, RingId};
use rejoin_proto::ids::Position;
use rejoin_proto::limits::Limits;
use rejoin_proto::time::Instant;

/// What the log may have beyond what it says: the root nodes of its indexes.
const SLACK: u64 = 2 << 10;

/// Bytes that small finished streams may take, for each 100 bytes that they hold.
const FINISHED_A_HUNDRED: u64 = 185;

/// Bytes on the heap, as the allocator counts them for this thread alone: the test runner's own are not the log's.
#[derive(Default)]
struct Heap {
    live: i64,
}

impl Heap {
    /// Does some work and counts what it leaves behind.
    fn during<T>(&mut self, work: impl FnOnce() -> T) -> T {
        let mut done = None;
        self.live += measure(|| done = Some(work())).bytes_current;
        done.expect("the work is done at once")
    }

    fn live(&self) -> u64 {
        self.live.try_into().unwrap_or(0)
    }
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

/// One step of the load: something that a shard does with its log.
fn step(log: &mut EventLog, names: &mut Vec<RingId>, readers: &mut Vec<Reader>, random: &mut Random, now: Instant) {
    let rings = names.capacity();
    match random.below(100) {
        0..10 if names.len() < rings => {
            names.extend(log.open(random.below(rings / 8 + 1) as u32, 0, Position::START));
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
                    let _ = append(log, ring, kind, now, length, hint);
                }
                75..80 => log.acknowledge(ring, Position::new(random.below(log.last(ring).get() as usize + 1) as u64)),
                80..84 => (log.earliest(ring).into_iter()).for_each(|position| log.unpin(ring, position)),
                84..86 => log.finish(ring),
                86..93 if readers.len() < 64 => {
                    readers.push(Reader::new(log, ring, log.earliest(ring).map_or(Position::START, Position::previous)));
                }
                _ if !readers.is_empty() => {
                    readers.swap_remove(random.below(readers.len()));
                }
                _ => log.expire(now),
            }
        }
    }
    drop((log.take_lost(), log.take_emptied()));
}

fn under_random_load(budget: usize, rings: usize, steps: usize) {
    let limits = Limits { log_bytes: budget, stream_events: 500, message_bytes: 24 << 10, ..Limits::default() };
    let mut random = Random(0x9e37_79b9_7f4a_7c15 ^ budget as u64);
    let (mut names, mut readers) = (Vec::with_capacity(rings), Vec::with_capacity(64));
    let mut now = Instant::ORIGIN;
    let mut heap = Heap::default();
    let mut log = heap.during(|| EventLog::new(&limits));
    let (mut fullest, mut worst) = (0, 0);
    for number in 0..steps {
        now = now + Duration::from_millis(random.below(200) as u64);
        heap.during(|| step(&mut log, &mut names, &mut readers, &mut random, now));
        let own: usize = readers.iter().map(|reader| reader.own).sum();
        let (used, real) = (log.used(), heap.live().saturating_sub(own as u64));
        let slices: usize = readers.iter().map(|reader| reader.slices.len()).sum();
        assert!(used <= budget, "step {number}: {used} of {budget} used");
        assert!(real <= used as u64 + SLACK, "step {number}: {real} allocated, {used} said, {slices} slices held");
        fullest = fullest.max(used);
        worst = worst.max((used as u64).saturating_sub(real));
    }
    println!("budget {budget}: at most {fullest} used, at most {worst} more said than allocated, {} rings", names.len());
    assert!(fullest > budget / 10 * 9, "no pressure: {fullest} of {budget}");
}

#[test]
fn the_heap_grows_by_no_more_than_the_log_says_and_that_stays_within_the_budget() {
    under_random_load(24 << 10, 8, 20_000);
    under_random_load(256 << 10, 60, 30_000);
    under_random_load(4 << 20, 1_000, 60_000);
}

#[test]
fn replaying_a_long_history_allocates_nothing_an_event() {
    let mut log = EventLog::new(&Limits { stream_events: u64::MAX, ..Limits::default() });
    let ring = log.open(0, 0, Position::START).expect("room");
    let events = 60_000;
    for _ in 0..events {
        append(&mut log, ring, Kind::Ordinary, Instant::ORIGIN, 200, 200).expect("room");
    }
    log.finish(ring);
    let mut slices = Vec::with_capacity(64);
    let (mut last, mut reads, mut bytes) = (Position::START, 0, 0);
    let allocated = measure(|| {
        while log.next_held(ring, last).is_some() {
            let to = log.read(ring, last, 256 << 10, &mut slices);
            assert!(to.since(last) > 1_000 || to == log.last(ring));
            bytes += slices.drain(..).map(|slice| slice.len()).sum::<usize>();
            (last, reads) = (to, reads + 1);
        }
    })
    .count_total;
    println!("{events} events of {bytes} bytes in {reads} reads: {allocated} allocations");
    assert!(allocated <= 2 * reads, "{allocated} allocations for {events} events");
    assert_eq!((last, bytes), (Position::new(events), events as usize * 200));
}

#[test]
fn small_finished_streams_cost_at_most_twice_their_bytes() {
    let (rings, length) = (10_000, 300);
    for rings_a_holder in [20, 1] {
        let mut heap = Heap::default();
        let log = heap.during(|| {
            let mut log = EventLog::new(&Limits::default());
            for number in 0..rings {
                let ring = log.open(number / rings_a_holder, number, Position::START).expect("room");
                append(&mut log, ring, Kind::Pinned, Instant::from_millis(number.into()), length, length).expect("room");
                log.finish(ring);
                // Sharing a frame costs a reference count from then on.
                log.read(ring, Position::START, length, &mut Vec::new());
            }
            log
        });
        let (used, real, bytes) = (log.used() as u64, heap.live(), u64::from(rings) * length as u64);
        println!("{rings_a_holder} rings a holder: {used} said, {real} allocated, for {bytes} bytes");
        assert!(real * 100 <= bytes * FINISHED_A_HUNDRED && real <= used + SLACK);
        assert!(used <= bytes * 21 / 10 && (rings_a_holder == 1 || used <= 2 * bytes));
    }
}
