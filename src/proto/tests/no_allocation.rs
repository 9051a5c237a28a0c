//! `resume::decide` with cursor parsing, over ten million cursors: no allocation, and what it costs.

use std::hint::black_box;

use rejoin_proto::ids::{Boot, Cursor, Incarnation, Key, Position, SessionId, ShardIndex, SlotIndex, StreamNumber};
use rejoin_proto::resume::{self, Following, Reach, Retained, Stream};

const CURSORS: u64 = 10_000_000;

#[test]
fn ten_million_cursors_are_parsed_and_decided_without_an_allocation() {
    let key = Key::new([5; 16]);
    let session = SessionId::mint(&key, ShardIndex(0), SlotIndex(3), Boot(1), [9; 16]);
    // Authentic ones of every row, a forged one and garbage, in turn.
    let mut texts: Vec<Vec<u8>> = (0..62)
        .map(|n| Cursor::new(Incarnation(1 + n % 2), StreamNumber(n % 5), Position::new(u64::from(n * 3))))
        .map(|cursor| cursor.encode(&key, &session).as_str().as_bytes().to_vec())
        .collect();
    texts.push(b"1.0.7.0123456789abcdef".to_vec());
    texts.push(b"not a cursor".to_vec());
    let reach = Reach {
        last: Position::new(100),
        following: Some(Following { position: Position::new(50), stand_in: false }),
        finished: true,
        written: Position::START,
    };
    let begun = std::time::Instant::now();
    let mut verdicts = 0u64;
    let allocated = allocation_counter::measure(|| {
        for n in 0..CURSORS {
            let text = &texts[(n % texts.len() as u64) as usize];
            if let Ok(cursor) = Cursor::parse(black_box(text), &key, &session) {
                let stream = match cursor.stream().0 {
                    3 => Stream::Forgotten,
                    4 => Stream::NeverBegun,
                    _ => Stream::Known(reach),
                };
                black_box(resume::decide(Some(cursor), &Retained { incarnation: Incarnation(1), stream }));
                verdicts += 1;
            }
        }
    });
    let took = begun.elapsed();
    println!("{CURSORS} cursors, {verdicts} verdicts: {:.0} ns each", took.as_nanos() as f64 / CURSORS as f64);
    assert_eq!(allocated.count_total, 0);
    assert!(verdicts > CURSORS / 2);
}
