use super::*;

fn log(bytes: usize) -> EventLog {
    EventLog::new(&Limits { log_bytes: bytes, ..Limits::default() })
}

fn put(log: &mut EventLog, ring: RingId, kind: Kind, text: &str) -> Position {
    log.append(ring, kind, Instant::ORIGIN, text.len(), |out| out.extend_from_slice(text.as_bytes())).expect("room")
}

fn read_all(log: &EventLog, ring: RingId, after: Position) -> (Vec<u8>, Position) {
    let mut slices = Vec::new();
    let last = log.read(ring, after, usize::MAX, &mut slices);
    (slices.concat(), last)
}

#[test]
fn a_run_crosses_segments_and_pinned_events_and_stops_at_a_gap() {
    let mut log = log(1 << 20);
    let ring = log.open(0, Position::START).expect("room");
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
}
