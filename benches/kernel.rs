//! What the kernel's smallest works cost, each alone: the verdict, cursors, frames, the event log, the incarnation table, timers.
//!
//! Never counts what a socket costs: that is the wire's.

use std::hint::black_box;
use std::sync::Barrier;
use std::thread;

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use rejoin_proto::eventlog::{EventLog, Kind};
use rejoin_proto::ids::{Boot, Cursor, Incarnation, Key, Position, Principal, SessionId, ShardIndex, SlotIndex, StreamNumber};
use rejoin_proto::incarnations::{Liveness, Tables, Writer, table};
use rejoin_proto::limits::Limits;
use rejoin_proto::refusal::Ended;
use rejoin_proto::resume::{Following, Reach, Retained, Stream, decide};
use rejoin_proto::sse::{Decoder, FieldValue, Frame};
use rejoin_proto::time::Instant;
use rejoin_proto::wheel::Wheel;

/// Sessions that are alive while one is looked up.
const SESSIONS: u32 = 15_000;
/// Bytes of a message.
const MESSAGE: usize = 160;

fn key() -> Key {
    Key::new([7; 16])
}

/// Bytes that differ from every other number's.
fn nonce(number: u32) -> [u8; 16] {
    let mut nonce = [0; 16];
    nonce[..4].copy_from_slice(&number.wrapping_mul(0x9e37_79b9).to_le_bytes());
    nonce[8..12].copy_from_slice(&number.to_le_bytes());
    nonce
}

fn session(number: u32) -> SessionId {
    SessionId::mint(&key(), ShardIndex(0), SlotIndex(number), Boot(1), nonce(number))
}

/// The verdict with all that leads to it: the session id's MAC, the cursor's, and the decision.
fn verdicts(criterion: &mut Criterion) {
    let (key, id) = (key(), session(3));
    let text = id.encode();
    let cursor = Cursor::new(Incarnation::FIRST, StreamNumber(2), Position::new(48_211)).encode(&key, &id);
    let following = Some(Following { position: Position::new(48_212), stand_in: false });
    let reach = Reach { last: Position::new(48_300), following, finished: false, written: Position::START };
    let retained = Retained { incarnation: Incarnation::FIRST, stream: Stream::Known(reach) };
    criterion.bench_function("session id, parsed and verified", |bench| {
        bench.iter(|| SessionId::parse(black_box(text.as_str().as_bytes()), &key));
    });
    criterion.bench_function("cursor, printed", |bench| {
        bench.iter(|| Cursor::new(Incarnation::FIRST, StreamNumber(2), black_box(Position::new(48_211))).encode(&key, &id));
    });
    let verdict = || {
        let cursor = Cursor::parse(black_box(cursor.as_str().as_bytes()), &key, &id).expect("it is authentic");
        decide(Some(cursor), black_box(&retained))
    };
    criterion.bench_function("verdict, with the cursor parsed and verified", |bench| bench.iter(verdict));
}

fn frames(criterion: &mut Criterion) {
    let (key, id) = (key(), session(3));
    let message = "x".repeat(MESSAGE);
    let cursor = Cursor::new(Incarnation::FIRST, StreamNumber(2), Position::new(48_211)).encode(&key, &id);
    let mut out = Vec::with_capacity(512);
    let mut group = criterion.benchmark_group("frame");
    group.throughput(Throughput::Elements(1));
    let frame = || Frame { id: Some(FieldValue::from(&cursor)), data: Some(message.as_bytes()), ..Frame::default() };
    group.bench_function("encoded", |bench| {
        bench.iter(|| {
            out.clear();
            black_box(frame()).encode(&mut out);
        });
    });
    out.clear();
    frame().encode(&mut out);
    let mut decoder = Decoder::new(1 << 20);
    group.bench_function("decoded", |bench| {
        bench.iter(|| {
            decoder.push(black_box(&out), |event| {
                black_box(event);
            })
        });
    });
    group.finish();
}

fn logs(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("event log");
    group.throughput(Throughput::Elements(1));
    let frame = [b'x'; 200];
    for (name, streams) in [("append to one stream", 1), ("append to 1,000 streams in turn", 1_000)] {
        let mut log = EventLog::new(&Limits { log_bytes: 16 << 20, ..Limits::default() });
        let rings: Vec<_> = (0..streams).map(|holder| log.open(holder, 0, Position::START).expect("room")).collect();
        let mut turn = 0;
        group.bench_function(name, |bench| {
            bench.iter(|| {
                turn = (turn + 1) % rings.len();
                log.append(rings[turn], Kind::Ordinary, Instant::ORIGIN, frame.len(), |out| out.extend_from_slice(&frame))
            });
        });
    }
    let events = 100_000;
    let mut log =
        EventLog::new(&Limits { log_bytes: 64 << 20, stream_events: u64::MAX, stream_bytes: 64 << 20, ..Limits::default() });
    let ring = log.open(0, 0, Position::START).expect("room");
    for _ in 0..events {
        log.append(ring, Kind::Ordinary, Instant::ORIGIN, frame.len(), |out| out.extend_from_slice(&frame)).expect("room");
    }
    log.finish(ring);
    assert_eq!(log.next_held(ring, Position::START), Some(Position::START.next()), "the log holds all");
    let mut slices: Vec<Bytes> = Vec::with_capacity(64);
    group.throughput(Throughput::Elements(events));
    group.bench_function("replay of 100,000 events", |bench| {
        bench.iter(|| {
            let mut from = Position::START;
            while log.next_held(ring, from).is_some() {
                from = log.read(ring, from, 256 << 10, &mut slices);
                slices.clear();
            }
            assert_eq!(from, log.last(ring));
        });
    });
    group.finish();
}

/// One in so many look-ups is followed by the end of a session and the begin of another.
const CHURN: u64 = 16;

/// What is compared: something that says of a session id whether it lives, and something that ends a session and begins another.
struct Side<L, C> {
    name: &'static str,
    look_up: L,
    churn: C,
}

impl<L: Fn(&SessionId) -> bool + Sync, C: FnMut(u32) + Send> Side<L, C> {
    /// Measures look-ups under churn, as the time that a thread needs for one: by the shard that owns the sessions and churns them, and
    /// by that one while another shard looks up as much.
    fn measure(mut self, criterion: &mut Criterion, ids: &[SessionId], alone: bool) {
        let name = format!("look-up under churn, {}, {}", if alone { "1 thread" } else { "2 threads" }, self.name);
        let mut session = (0..SESSIONS).cycle();
        criterion.bench_function(&name, |bench| {
            bench.iter_custom(|times| {
                let (churn, look_up) = (&mut self.churn, &self.look_up);
                let start = Barrier::new(if alone { 1 } else { 2 });
                let looking = |from: usize, between: &mut dyn FnMut(u64)| {
                    start.wait();
                    let began = std::time::Instant::now();
                    let mut at = from;
                    for turn in 0..times {
                        // Far from the last one: as requests come.
                        at = (at + 7_919) % ids.len();
                        assert!(look_up(black_box(&ids[at])));
                        between(turn);
                    }
                    began.elapsed()
                };
                thread::scope(|scope| {
                    let other = (!alone).then(|| scope.spawn(|| looking(ids.len() / 2, &mut |_| ())));
                    let owner = looking(0, &mut |turn| {
                        if turn % CHURN == 0 {
                            churn(session.next().unwrap_or_default());
                        }
                    });
                    other.map_or(owner, |other| other.join().expect("look-ups do not panic").max(owner))
                })
            });
        });
    }
}

/// The incarnation table beside two concurrent maps keyed by session id. Each look-up finds whose session it is.
fn tables(criterion: &mut Criterion) {
    let tag = key().principal_tag(Principal::new("somebody").as_str());
    for alone in [true, false] {
        let (table, mut writer) = table(ShardIndex(0), Boot(1), 2 * SESSIONS);
        let ids: Vec<_> = (0..SESSIONS).map(|number| publish(&mut writer, number, tag)).collect();
        let papaya = papaya::HashMap::<SessionId, u64>::new();
        let dashmap = dashmap::DashMap::<SessionId, u64>::new();
        for id in &ids {
            papaya.pin().insert(*id, tag);
            dashmap.insert(*id, tag);
        }
        let mut last = None;
        let churn = |number| {
            last.take().into_iter().for_each(|id: SessionId| writer.end(id.slot(), Ended::Expired));
            last = Some(publish(&mut writer, number, tag));
        };
        let look_up = |id: &SessionId| table.look_up(id, tag) == Liveness::Live;
        Side { name: "incarnation table", look_up, churn }.measure(criterion, &ids, alone);
        let other = |number| session(SESSIONS + number);
        let look_up = |id: &SessionId| papaya.pin().get(id) == Some(&tag);
        let churn = |number| {
            papaya.pin().insert(other(number), tag);
            papaya.pin().remove(&other(number));
        };
        Side { name: "papaya", look_up, churn }.measure(criterion, &ids, alone);
        let look_up = |id: &SessionId| dashmap.get(id).is_some_and(|found| *found == tag);
        let churn = |number| {
            dashmap.insert(other(number), tag);
            dashmap.remove(&other(number));
        };
        Side { name: "dashmap", look_up, churn }.measure(criterion, &ids, alone);
    }
}

/// A new session in a free slot.
fn publish(writer: &mut Writer, number: u32, tag: u64) -> SessionId {
    let slot = writer.reserve().expect("half of the slots are free");
    let id = SessionId::mint(&key(), writer.table().shard(), slot, Boot(1), nonce(number));
    writer.publish(&id, tag);
    id
}

/// What a shard does to learn that an id of another shard's names a session that ended.
fn dead_ids(criterion: &mut Criterion) {
    let (key, tag) = (key(), key().principal_tag(Principal::new("somebody").as_str()));
    let (own, _owner) = table(ShardIndex(0), Boot(1), SESSIONS);
    let (foreign, mut writer) = table(ShardIndex(1), Boot(1), SESSIONS);
    let id = publish(&mut writer, 1, tag);
    writer.end(id.slot(), Ended::Expired);
    let tables = Tables::new(Boot(1), vec![own, foreign]);
    let text = id.encode();
    let refused = || {
        let id = SessionId::parse(black_box(text.as_str().as_bytes()), &key).expect("it is authentic");
        tables.look_up(&id, tag)
    };
    assert_eq!(refused(), Liveness::Ended(Ended::Expired));
    criterion.bench_function("dead id of a foreign shard, refused", |bench| bench.iter(refused));
}

fn timers(criterion: &mut Criterion) {
    let mut wheel = Wheel::new(Instant::ORIGIN);
    for number in 0..SESSIONS {
        wheel.schedule(Instant::from_millis(u64::from(number) * 3 + 60_000), number);
    }
    criterion.bench_function("timer, set and cancelled", |bench| {
        bench.iter(|| {
            let timer = wheel.schedule(black_box(Instant::from_millis(30_000)), 0);
            wheel.cancel(timer)
        });
    });
}

criterion_group!(all, verdicts, dead_ids, frames, logs, tables, timers);
criterion_main!(all);
