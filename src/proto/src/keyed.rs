//! Idempotency keys: which call under a key runs, and what every other call under it is answered.
//!
//! A record lives on the shard that its key's hash names, and knows calls of any shard by name only. Never executes anything, never reads
//! a request, and never times anything: what is too old is found when it is next looked at.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;

use bytes::Bytes;

use crate::ids::{CallId, SessionId};
use crate::limits::Limits;
use crate::time::Instant;

/// A key in its scope, as a keyed 128-bit hash: two with the same hash are taken for the same.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyHash(pub u128);

impl fmt::Debug for KeyHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("KeyHash(..)")
    }
}

/// A call that presents a key. Its session's id says on which shard it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Presenter {
    /// Its session, or the one that it has to itself.
    pub session: SessionId,
    /// Its name there.
    pub call: CallId,
}

/// What a call under a key came to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its handler's result, a JSON value.
    Result(Bytes),
    /// Its handler's error, a JSON object.
    Error(Bytes),
    /// It may have run, and nobody knows what became of it.
    Unknown,
    /// It never ran: another may.
    NotRun,
}

/// What a presenter is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// It is the one that runs; what becomes of it must be told to the key's home.
    Execute,
    /// Another runs: it waits.
    Wait,
    /// What the one that ran came to. Never `NotRun`.
    Answer(Outcome),
    /// The key stands for another body.
    Reused,
    /// There is no room for another record, or for another that waits under this one.
    NoRoom,
}

/// What goes between a key's home and the shards of its presenters.
#[derive(Clone, Debug)]
pub enum Mail {
    /// To the home: may this call run?
    Claim {
        /// Its key.
        key: KeyHash,
        /// The hash of what it asks.
        body: u128,
        /// Who it is.
        presenter: Presenter,
    },
    /// To the home: what the call that was told to run came to.
    Settle {
        /// Its key.
        key: KeyHash,
        /// Who it is.
        presenter: Presenter,
        /// What it came to.
        outcome: Outcome,
    },
    /// To a presenter's shard.
    Told {
        /// The key.
        key: KeyHash,
        /// Who is told.
        presenter: Presenter,
        /// What.
        told: Told,
    },
}

#[derive(Debug)]
struct Record {
    body: u128,
    state: State,
}

#[derive(Debug)]
enum State {
    Running { by: Presenter, waiting: Vec<Presenter> },
    Done(Outcome),
}

/// The records of one shard.
#[derive(Debug)]
pub struct Records {
    held: BTreeMap<KeyHash, Record>,
    /// Those that are done, the oldest first, and when each was.
    done: VecDeque<(Instant, KeyHash)>,
    /// Those whose answer is held, the oldest first.
    answered: VecDeque<KeyHash>,
    /// Bytes of the answers held.
    bytes: usize,
    limits: Limits,
}

fn length(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Result(bytes) | Outcome::Error(bytes) => bytes.len(),
        Outcome::Unknown | Outcome::NotRun => 0,
    }
}

impl Records {
    /// None yet.
    pub fn new(limits: &Limits) -> Self {
        Self { held: BTreeMap::new(), done: VecDeque::new(), answered: VecDeque::new(), bytes: 0, limits: limits.clone() }
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// A call presents a key: what it is told at once.
    pub fn claim(&mut self, key: KeyHash, body: u128, presenter: Presenter, now: Instant) -> Told {
        self.expire(now);
        let most = self.limits.key_presenters;
        match self.held.get_mut(&key) {
            Some(record) if record.body != body => Told::Reused,
            Some(Record { state: State::Done(outcome), .. }) => Told::Answer(outcome.clone()),
            Some(Record { state: State::Running { waiting, .. }, .. }) if waiting.len() >= most => Told::NoRoom,
            Some(Record { state: State::Running { waiting, .. }, .. }) => {
                waiting.push(presenter);
                Told::Wait
            }
            None => {
                if self.held.len() >= self.limits.key_records && !self.forget_oldest() {
                    return Told::NoRoom;
                }
                self.held.insert(key, Record { body, state: State::Running { by: presenter, waiting: Vec::new() } });
                Told::Execute
            }
        }
    }

    /// The call that was told to run came to something: who is told what. Another's word for it changes nothing.
    pub fn settle(&mut self, key: KeyHash, presenter: Presenter, outcome: Outcome, now: Instant) -> Vec<(Presenter, Told)> {
        self.expire(now);
        let Some(record) = self.held.get_mut(&key) else { return Vec::new() };
        let State::Running { by, waiting } = &mut record.state else { return Vec::new() };
        if *by != presenter {
            return Vec::new();
        }
        if outcome == Outcome::NotRun {
            if waiting.is_empty() {
                self.held.remove(&key);
                return Vec::new();
            }
            *by = waiting.remove(0);
            return vec![(*by, Told::Execute)];
        }
        let told = std::mem::take(waiting).into_iter().map(|one| (one, Told::Answer(outcome.clone()))).collect();
        self.bytes += length(&outcome);
        record.state = State::Done(outcome);
        self.done.push_back((now, key));
        self.answered.push_back(key);
        while self.bytes > self.limits.key_bytes {
            let Some(oldest) = self.answered.pop_front() else { break };
            self.lose_answer(oldest);
        }
        told
    }

    /// An answer goes, and that the call has run stays.
    fn lose_answer(&mut self, key: KeyHash) {
        if let Some(Record { state: State::Done(outcome), .. }) = self.held.get_mut(&key) {
            self.bytes -= length(outcome);
            *outcome = Outcome::Unknown;
        }
    }

    fn expire(&mut self, now: Instant) {
        while self.done.front().is_some_and(|(at, _)| now.since(*at) >= self.limits.key_ttl) {
            self.forget_oldest();
        }
    }

    /// Forgets the record that has been done for longest; `false` where all are running.
    fn forget_oldest(&mut self) -> bool {
        let Some((_, key)) = self.done.pop_front() else { return false };
        // Answers go in the order in which they came, so that this one is the first, or gone already.
        if self.answered.front() == Some(&key) {
            self.answered.pop_front();
        }
        if let Some(Record { state: State::Done(outcome), .. }) = self.held.remove(&key) {
            self.bytes -= length(&outcome);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ids::{Boot, Key, ShardIndex, SlotIndex};

    const KEY: KeyHash = KeyHash(7);

    fn presenter(number: u64) -> Presenter {
        let session = SessionId::mint(&Key::new([1; 16]), ShardIndex(0), SlotIndex(0), Boot(1), [0; 16]);
        Presenter { session, call: CallId(number) }
    }

    fn records(change: impl FnOnce(&mut Limits)) -> Records {
        let mut limits = Limits::default();
        change(&mut limits);
        Records::new(&limits)
    }

    fn result(text: &'static str) -> Outcome {
        Outcome::Result(Bytes::from_static(text.as_bytes()))
    }

    fn at(millis: u64) -> Instant {
        Instant::from_millis(millis)
    }

    #[test]
    fn the_first_runs_the_others_wait_and_all_have_its_answer() {
        let mut records = records(|_| {});
        assert_eq!(records.claim(KEY, 1, presenter(1), at(0)), Told::Execute);
        assert_eq!(records.claim(KEY, 1, presenter(2), at(0)), Told::Wait);
        assert_eq!(records.claim(KEY, 2, presenter(3), at(0)), Told::Reused);
        assert_eq!(records.settle(KEY, presenter(2), result("no"), at(0)), [], "it does not run");
        assert_eq!(records.settle(KEY, presenter(1), result("yes"), at(0)), [(presenter(2), Told::Answer(result("yes")))]);
        assert_eq!(records.settle(KEY, presenter(1), result("again"), at(0)), []);
        assert_eq!(records.claim(KEY, 1, presenter(4), at(0)), Told::Answer(result("yes")));
        assert_eq!(records.claim(KEY, 2, presenter(5), at(0)), Told::Reused);
    }

    #[test]
    fn what_never_ran_is_run_by_the_next_that_waits_or_by_the_next_that_comes() {
        let mut records = records(|_| {});
        for number in 1..=3 {
            records.claim(KEY, 1, presenter(number), at(0));
        }
        assert_eq!(records.settle(KEY, presenter(1), Outcome::NotRun, at(0)), [(presenter(2), Told::Execute)]);
        assert_eq!(records.settle(KEY, presenter(1), result("late"), at(0)), []);
        assert_eq!(records.settle(KEY, presenter(2), Outcome::NotRun, at(0)), [(presenter(3), Told::Execute)]);
        assert_eq!(records.settle(KEY, presenter(3), Outcome::NotRun, at(0)), []);
        assert!(records.is_empty());
        assert_eq!(records.claim(KEY, 9, presenter(4), at(0)), Told::Execute, "it stands for nothing yet");
    }

    #[test]
    fn a_record_is_held_for_its_time_from_its_end_on() {
        let mut records = records(|limits| limits.key_ttl = Duration::from_millis(100));
        records.claim(KEY, 1, presenter(1), at(0));
        assert_eq!(records.claim(KEY, 1, presenter(2), at(5_000)), Told::Wait, "one that runs is not too old");
        records.settle(KEY, presenter(1), result("r"), at(5_000));
        assert_eq!(records.claim(KEY, 1, presenter(3), at(5_099)), Told::Answer(result("r")));
        assert_eq!(records.claim(KEY, 1, presenter(4), at(5_100)), Told::Execute);
        assert_eq!((records.bytes, records.len(), records.answered.len()), (0, 1, 0));
    }

    #[test]
    fn the_bound_of_records_forgets_the_oldest_that_is_done_and_never_one_that_runs() {
        let mut records = records(|limits| limits.key_records = 2);
        let key = |number: u64| KeyHash(number.into());
        records.claim(key(1), 1, presenter(1), at(0));
        records.claim(key(2), 1, presenter(2), at(0));
        assert_eq!(records.claim(key(3), 1, presenter(3), at(0)), Told::NoRoom);
        records.settle(key(2), presenter(2), result("r"), at(0));
        assert_eq!(records.claim(key(3), 1, presenter(3), at(0)), Told::Execute);
        assert_eq!(records.claim(key(1), 1, presenter(4), at(0)), Told::Wait);
        assert_eq!(records.len(), 2);
    }

    #[test]
    fn the_bound_of_bytes_loses_answers_and_not_that_their_calls_have_run() {
        let mut records = records(|limits| limits.key_bytes = 8);
        let key = |number: u64| KeyHash(number.into());
        for number in 1..=3 {
            records.claim(key(number), 1, presenter(number), at(0));
            records.settle(key(number), presenter(number), result("1234"), at(0));
        }
        assert_eq!(records.claim(key(1), 1, presenter(9), at(0)), Told::Answer(Outcome::Unknown));
        assert_eq!(records.claim(key(3), 1, presenter(9), at(0)), Told::Answer(result("1234")));
        records.claim(key(4), 1, presenter(4), at(0));
        records.claim(key(4), 1, presenter(5), at(0));
        let told = records.settle(key(4), presenter(4), result("123456789"), at(0));
        assert_eq!(told, [(presenter(5), Told::Answer(result("123456789")))], "who waits has it even so");
        assert_eq!((records.claim(key(4), 1, presenter(9), at(0)), records.bytes), (Told::Answer(Outcome::Unknown), 0));
    }

    #[test]
    fn so_many_wait_under_a_key_and_no_more() {
        let mut records = records(|limits| limits.key_presenters = 1);
        records.claim(KEY, 1, presenter(1), at(0));
        assert_eq!(records.claim(KEY, 1, presenter(2), at(0)), Told::Wait);
        assert_eq!(records.claim(KEY, 1, presenter(3), at(0)), Told::NoRoom);
    }
}
