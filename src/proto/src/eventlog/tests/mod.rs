//! The log by example, and (in `model`) against an oracle that keeps everything for ever.

mod model;

use super::*;

const ORIGIN: Instant = Instant::ORIGIN;

fn log(bytes: usize) -> EventLog {
    EventLog::new(&Limits { log_bytes: bytes, ..Limits::default() })
}

fn put(log: &mut EventLog, ring: RingId, kind: Kind, text: &str) -> Position {
    let position = log.append(ring, kind, ORIGIN, text.len(), |out| out.extend_from_slice(text.as_bytes())).expect("room");
    log.audit();
    position
}

fn read_all(log: &EventLog, ring: RingId, after: Position) -> (Vec<u8>, Position) {
    let mut slices = Vec::new();
    let last = log.read(ring, after, usize::MAX, &mut slices);
    (slices.concat(), last)
}

fn open(log: &mut EventLog) -> RingId {
    log.open(0, 0, Position::START).expect("room")
}

#[test]
fn a_run_crosses_segments_and_pinned_events_and_stops_at_a_gap() {
    let mut log = log(1 << 20);
    let ring = open(&mut log);
    let mut all = Vec::new();
    for number in 0..200 {
        let text = format!("event {number} {}\n", "x".repeat(number));
        put(&mut log, ring, if number % 7 == 3 { Kind::Pinned } else { Kind::Ordinary }, &text);
        all.extend_from_slice(text.as_bytes());
    }
    assert_eq!(read_all(&log, ring, Position::START), (all, Position::new(200)));
    let skipped = log.skip(ring);
    put(&mut log, ring, Kind::Ordinary, "after");
    assert_eq!(skipped, Position::new(201));
    assert_eq!(read_all(&log, ring, Position::new(200)), (Vec::new(), Position::new(200)));
    assert_eq!(log.next_held(ring, Position::new(200)), Some(Position::new(202)));
    assert_eq!(log.next_held(ring, Position::new(u64::MAX)), None);
}

#[test]
fn a_noisy_stream_leaves_a_quiet_ones_history_whole() {
    let mut log = log(64 << 10);
    let (quiet, noisy) = (open(&mut log), open(&mut log));
    let mut history = String::new();
    for number in 0..20_000 {
        if number % 100 == 0 && history.len() < 4 << 10 {
            let text = format!("quiet event {number}\n");
            put(&mut log, quiet, Kind::Ordinary, &text);
            history.push_str(&text);
        }
        let text = format!("noisy event {number}\n");
        log.append(noisy, Kind::Ordinary, ORIGIN, text.len(), |out| out.extend_from_slice(text.as_bytes())).expect("room");
    }
    log.audit();
    assert!(log.earliest(noisy) > Some(Position::new(15_000)));
    assert!(log.used() > log.budget() / 4 * 3, "{} used", log.used());
    assert_eq!(read_all(&log, quiet, Position::START).0, history.into_bytes());
}

#[test]
fn acknowledged_events_go_before_those_of_the_ring_that_holds_the_most() {
    let mut log = log(32 << 10);
    let (small, large) = (open(&mut log), open(&mut log));
    for _ in 0..20 {
        put(&mut log, small, Kind::Ordinary, &"s".repeat(100));
    }
    log.finish(small);
    log.acknowledge(small, Position::new(20));
    while log.earliest(small).is_some() {
        assert_eq!(log.earliest(large).unwrap_or(Position::new(1)), Position::new(1));
        put(&mut log, large, Kind::Ordinary, &"l".repeat(100));
    }
    assert!(log.last(large) > Position::new(100));
    assert_eq!(log.take_emptied().collect::<Vec<_>>(), [small]);
}

#[test]
fn an_event_that_was_pinned_goes_at_its_age_as_an_ordinary_one() {
    let mut log = log(1 << 20);
    let ring = open(&mut log);
    let position = put(&mut log, ring, Kind::Pinned, "a request");
    let limits = Limits::default();
    assert!(log.next_expiry() > Some(ORIGIN + limits.event_ttl * 2));
    log.unpin(ring, position);
    let due = log.next_expiry().expect("an event is held");
    assert!(due > ORIGIN + limits.event_ttl && due <= ORIGIN + limits.event_ttl + std::time::Duration::from_secs(1));
    log.expire(due);
    assert!(!log.holds(ring, position));
    assert_eq!(log.take_lost().count(), 0);
    assert_eq!(log.next_expiry(), None);
}

#[test]
fn when_pinned_events_fill_their_share_the_oldest_of_the_largest_holder_goes() {
    let limits = Limits { log_bytes: 64 << 10, pinned_percent: 25, ..Limits::default() };
    let mut log = EventLog::new(&limits);
    let modest = log.open(1, 0, Position::START).expect("room");
    let greedy = log.open(2, 0, Position::START).expect("room");
    put(&mut log, modest, Kind::Pinned, &"m".repeat(100));
    let mut lost = Vec::new();
    for _ in 0..200 {
        put(&mut log, greedy, Kind::Pinned, &"g".repeat(200));
        lost.extend(log.take_lost());
    }
    assert!(log.holds(modest, Position::new(1)));
    let gone = 200 - (16 << 10) / 300;
    assert!(lost.len() > gone - 20, "{} lost", lost.len());
    assert_eq!(lost, (1..=lost.len() as u64).map(|at| (greedy, Position::new(at))).collect::<Vec<_>>());
}

#[test]
fn an_evicted_segment_counts_until_its_reader_lets_go() {
    let mut log = log(16 << 10);
    let ring = open(&mut log);
    for _ in 0..20 {
        put(&mut log, ring, Kind::Ordinary, &"x".repeat(500));
    }
    let mut slices = Vec::new();
    let last = log.read(ring, Position::START, 4 << 10, &mut slices);
    assert!(last >= Position::new(7), "{last:?}");
    while log.next_held(ring, last) == Some(last.next()) {
        put(&mut log, ring, Kind::Ordinary, &"y".repeat(500));
    }
    assert_eq!(slices.concat(), "x".repeat(500 * last.get() as usize).into_bytes());
    let (used, lingering) = (log.used(), log.lingering());
    assert!(lingering >= 500 * last.get() as usize, "{lingering} linger");
    log.release();
    assert_eq!((log.used(), log.lingering()), (used, lingering));
    slices.clear();
    log.release();
    log.audit();
    assert_eq!(log.lingering(), 0);
    assert!(log.used() <= used - lingering);
}

#[test]
fn when_readers_hold_everything_evicted_the_log_says_so() {
    let mut log = log(16 << 10);
    let ring = open(&mut log);
    for _ in 0..15 {
        put(&mut log, ring, Kind::Ordinary, &"x".repeat(700));
    }
    let mut slices = Vec::new();
    log.read(ring, Position::START, usize::MAX, &mut slices);
    let long = |log: &mut EventLog| log.append(ring, Kind::Ordinary, ORIGIN, 8000, |out| out.resize(out.len() + 8000, b'y'));
    let refused = long(&mut log);
    log.audit();
    assert_eq!(refused, Err(Full::Lingering));
    assert_eq!(log.last(ring), Position::new(15));
    slices.clear();
    assert_eq!(long(&mut log), Ok(Position::new(16)));
}

#[test]
fn what_can_never_fit_evicts_nothing() {
    let limits = Limits { log_bytes: 16 << 10, message_bytes: 1 << 20, ..Limits::default() };
    let mut log = EventLog::new(&limits);
    let ring = open(&mut log);
    let pinned = put(&mut log, ring, Kind::Pinned, &"p".repeat(3000));
    let ordinary = put(&mut log, ring, Kind::Ordinary, "held");
    for kind in [Kind::Ordinary, Kind::Pinned] {
        for hint in [0, 20 << 10] {
            assert_eq!(log.append(ring, kind, ORIGIN, hint, |out| out.resize(out.len() + (20 << 10), 0)), Err(Full::TooLarge));
            log.audit();
        }
    }
    let nearly = (16 << 10) - 3000;
    assert_eq!(log.append(ring, Kind::Ordinary, ORIGIN, nearly, |out| out.resize(out.len() + nearly, 0)), Err(Full::Budget));
    assert!(log.holds(ring, pinned) && log.holds(ring, ordinary));
    assert_eq!(log.last(ring), ordinary);
}

#[test]
fn a_frame_longer_than_was_said_is_kept_within_the_budget() {
    let mut log = log(64 << 10);
    let ring = open(&mut log);
    let mut all = Vec::new();
    for length in [10, 600, 3, 5000, 40, 20_000, 1] {
        log.append(ring, Kind::Ordinary, ORIGIN, 1, |out| out.resize(out.len() + length, length as u8)).expect("room");
        log.audit();
        all.resize(all.len() + length, length as u8);
    }
    assert_eq!(read_all(&log, ring, Position::START), (all, Position::new(7)));
}

#[test]
fn a_stream_at_its_limit_of_events_holds_exactly_that_many() {
    let limits = Limits { stream_events: 5, ..Limits::default() };
    let mut log = EventLog::new(&limits);
    let ring = open(&mut log);
    let asked = put(&mut log, ring, Kind::Pinned, "a request");
    for number in 0..9 {
        put(&mut log, ring, Kind::Ordinary, &format!("event {number}"));
    }
    assert_eq!(log.earliest(ring), Some(asked));
    assert_eq!(log.next_held(ring, asked), Some(Position::new(6)));
    log.unpin(ring, asked);
    log.audit();
    assert_eq!(log.earliest(ring), Some(Position::new(6)));
}

#[test]
fn a_ring_is_told_to_be_empty_once() {
    let mut log = log(1 << 20);
    let (never, emptied) = (open(&mut log), open(&mut log));
    put(&mut log, emptied, Kind::Ordinary, "event");
    put(&mut log, emptied, Kind::Pinned, "result");
    log.finish(never);
    log.finish(never);
    log.finish(emptied);
    assert_eq!(log.take_emptied().collect::<Vec<_>>(), [never]);
    log.expire(Instant::from_millis(u64::MAX));
    log.finish(emptied);
    log.audit();
    assert_eq!(log.take_emptied().collect::<Vec<_>>(), [emptied]);
    log.expire(Instant::from_millis(u64::MAX));
    assert_eq!(log.take_emptied().count(), 0);
    assert_eq!(log.take_lost().collect::<Vec<_>>(), [(emptied, Position::new(2))]);
}

#[test]
fn a_clock_that_jumped_back_neither_spins_nor_keeps_for_ever() {
    let mut log = log(1 << 20);
    let ring = open(&mut log);
    let at = |millis| Instant::from_millis(millis);
    let append =
        |log: &mut EventLog, kind, now| log.append(ring, kind, now, 5, |out| out.extend_from_slice(b"event")).expect("room");
    append(&mut log, Kind::Ordinary, at(1_000_000));
    let pinned = append(&mut log, Kind::Pinned, at(10));
    append(&mut log, Kind::Ordinary, at(20));
    log.unpin(ring, pinned);
    log.expire(at(900_000));
    log.audit();
    assert_eq!(log.earliest(ring), Some(Position::new(1)));
    log.expire(at(1_000_000) + Limits::default().event_ttl + std::time::Duration::from_secs(1));
    log.audit();
    assert_eq!(log.earliest(ring), None);
}

#[test]
fn a_skipped_position_and_an_empty_frame_are_lost_from_the_start() {
    let mut log = log(1 << 20);
    let ring = open(&mut log);
    put(&mut log, ring, Kind::Ordinary, "one");
    for position in [log.skip(ring), put(&mut log, ring, Kind::Ordinary, ""), put(&mut log, ring, Kind::Pinned, "")] {
        assert!(!log.holds(ring, position));
    }
    put(&mut log, ring, Kind::Ordinary, "five");
    log.audit();
    assert_eq!(log.next_held(ring, Position::new(1)), Some(Position::new(5)));
}

#[test]
fn the_ends_of_a_run_are_those_of_its_frames() {
    let mut log = log(1 << 20);
    let ring = open(&mut log);
    for frame in ["one", "three", "seven"] {
        put(&mut log, ring, Kind::Ordinary, frame);
    }
    assert_eq!(log.ends(ring, Position::START, Position::new(3)), [3, 8, 13]);
    assert_eq!(log.ends(ring, Position::new(1), Position::new(2)), [5], "a run may end before the stream does");
}

#[test]
fn skipping_over_and_over_wastes_no_segments() {
    let mut log = log(1 << 20);
    let ring = open(&mut log);
    for _ in 0..500 {
        put(&mut log, ring, Kind::Ordinary, &"x".repeat(100));
        log.skip(ring);
    }
    assert!(log.used() < 500 * 400, "{} used", log.used());
}

#[test]
fn a_removed_ring_leaves_nothing_and_its_name_names_nothing() {
    let mut log = log(1 << 20);
    let ring = open(&mut log);
    put(&mut log, ring, Kind::Ordinary, "event");
    put(&mut log, ring, Kind::Pinned, "result");
    log.acknowledge(ring, Position::new(1));
    log.finish(ring);
    log.remove(ring);
    log.audit();
    assert_eq!(log.used(), 0);
    let other = open(&mut log);
    assert_ne!(ring, other);
    assert_eq!(log.append(ring, Kind::Ordinary, ORIGIN, 1, |out| out.push(0)), Err(Full::Budget));
    assert_eq!((log.earliest(ring), log.take_emptied().count()), (None, 0));
}

#[test]
fn many_small_results_cost_at_most_twice_their_bytes() {
    let mut log = log(64 << 20);
    for number in 0..10_000 {
        let ring = log.open(number / 20, number, Position::START).expect("room");
        log.append(ring, Kind::Pinned, ORIGIN, 300, |out| out.resize(out.len() + 300, b'x')).expect("room");
        log.finish(ring);
    }
    log.audit();
    assert!(log.used() <= 2 * 10_000 * 300, "{} used", log.used());
}

#[test]
fn what_indexes_take_at_an_acknowledgement_stays_within_the_budget() {
    let mut log = log(64 << 10);
    let rings: Vec<_> = (0..60).map(|_| open(&mut log)).collect();
    for round in 0..1_000 {
        put(&mut log, rings[round % 60], Kind::Ordinary, &"x".repeat(100));
        if round > 300 && log.used() + 250 > log.budget() {
            break;
        }
    }
    for ring in rings {
        log.acknowledge(ring, log.last(ring));
        log.audit();
    }
}

#[test]
fn losing_pinned_events_that_readers_hold_stays_within_the_budget() {
    let limits = Limits { log_bytes: 128 << 10, pinned_percent: 100, ..Limits::default() };
    let mut log = EventLog::new(&limits);
    let ring = open(&mut log);
    while log.append(ring, Kind::Pinned, ORIGIN, 600, |out| out.resize(out.len() + 600, b'x')).is_ok() {
        if log.take_lost().count() > 0 {
            break;
        }
    }
    let mut slices = Vec::new();
    log.read(ring, log.earliest(ring).map_or(Position::START, Position::previous), usize::MAX, &mut slices);
    assert!(slices.len() > 100);
    log.expire(Instant::from_millis(u64::MAX));
    log.audit();
    assert_eq!(log.take_lost().count(), slices.len());
    assert!(log.lingering() >= slices.len() * 600);
}

#[test]
fn a_short_pinned_frame_is_copied_and_never_lingers() {
    for (length, lingers) in [(ordinary::COPIED_MAX, false), (ordinary::COPIED_MAX + 1, true)] {
        let mut log = log(64 << 10);
        let ring = open(&mut log);
        log.append(ring, Kind::Pinned, ORIGIN, length, |out| out.resize(out.len() + length, b'x')).expect("room");
        let mut slices = Vec::new();
        log.read(ring, Position::START, 1, &mut slices);
        log.remove(ring);
        assert_eq!((slices[0].len(), log.lingering() > 0), (length, lingers));
    }
}

#[test]
fn under_pressure_what_is_too_old_goes_first() {
    let mut log = log(32 << 10);
    let (old, large) = (open(&mut log), open(&mut log));
    put(&mut log, old, Kind::Ordinary, "old");
    let now = ORIGIN + Limits::default().event_ttl + std::time::Duration::from_secs(1);
    while log.earliest(old).is_some() {
        log.append(large, Kind::Ordinary, now, 100, |out| out.resize(out.len() + 100, b'x')).expect("room");
        assert_eq!(log.earliest(large), Some(Position::new(1)));
    }
    assert!(log.last(large) > Position::new(100));
}

#[test]
fn pinned_events_that_went_leave_no_long_index_behind() {
    let mut log = log(64 << 10);
    let ring = open(&mut log);
    put(&mut log, ring, Kind::Ordinary, "event");
    for _ in 0..5_000 {
        log.append(ring, Kind::Pinned, ORIGIN, 50, |out| out.resize(out.len() + 50, b'x')).expect("room");
        log.take_lost().for_each(drop);
    }
    log.audit();
    assert!(log.used() < 20 << 10, "{} used", log.used());
    assert_eq!(log.earliest(ring), Some(Position::new(1)));
}
