//! Sessions: which there are, why others are over, what their streams hold, and which requests they have seen.
//!
//! Never waits and never writes; its callers hold the one lock.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::http::Request;
use super::log::{Ending, Stream};
use super::reply::{Reason, Refusal};
use super::{Fault, Settings, Shared, random};

/// Ended sessions of which is held why: a client that comes back later is told `unknown`.
const ENDED_HELD: usize = 4096;

/// Sessions at a time.
const SESSIONS: usize = 1024;

/// Answers held under idempotency keys.
const RECORDS: usize = 4096;

/// The revisions that are served, the newest first. All have sessions.
pub(super) const REVISIONS: [&str; 2] = ["2025-11-25", "2025-06-18"];

/// A stream's incarnation and number. Number 0 is the standalone stream.
pub(super) type Key = (u32, u32);

/// The scope of an idempotency key, and the key.
pub(super) type RecordKey = (String, String);

/// An answer under an idempotency key.
#[derive(Debug)]
pub(super) struct Record {
    pub(super) hash: u128,
    /// `result` or `error`, and its value; none while the call runs.
    pub(super) outcome: Option<(&'static str, Value)>,
}

/// Everything that is remembered.
#[derive(Debug, Default)]
pub(super) struct State {
    pub(super) sessions: HashMap<u128, Session>,
    ended: HashMap<u128, (Reason, String)>,
    ended_order: VecDeque<u128>,
    pub(super) records: HashMap<RecordKey, Record>,
    record_order: VecDeque<RecordKey>,
}

/// A request id that was seen.
#[derive(Debug)]
pub(super) struct Seen {
    pub(super) hash: u128,
    /// The stream of a `tools/call`.
    pub(super) stream: Option<Key>,
}

/// One session.
#[derive(Debug)]
pub(super) struct Session {
    pub(super) id: String,
    pub(super) principal: String,
    pub(super) revision: &'static str,
    pub(super) confirmed: bool,
    pub(super) incarnation: u32,
    pub(super) streams: BTreeMap<Key, Stream>,
    /// The number of the next call's stream.
    pub(super) next: u32,
    /// Executions of `count`.
    pub(super) effects: u64,
    pub(super) seen: HashMap<String, Seen>,
    /// Whether its client reuses ids.
    pub(super) marked: bool,
    pub(super) last_used: Instant,
    /// Whether a fault raised it from the dead.
    pub(super) adopted: bool,
}

impl Session {
    pub(super) fn new(id: String, principal: &str, revision: &'static str) -> Self {
        Self {
            id,
            principal: principal.to_owned(),
            revision,
            confirmed: false,
            incarnation: 1,
            streams: BTreeMap::from([((1, 0), Stream::new(None))]),
            next: 1,
            effects: 0,
            seen: HashMap::new(),
            marked: false,
            last_used: Instant::now(),
            adopted: false,
        }
    }

    /// The standalone stream's key.
    pub(super) fn standalone(&self) -> Key {
        (self.incarnation, 0)
    }

    /// Calls in flight.
    fn running(&self) -> impl Iterator<Item = (&Key, &Stream)> {
        self.streams.iter().filter(|(_, stream)| stream.request.is_some() && stream.running())
    }

    fn is_busy(&self) -> bool {
        self.running().next().is_some() || self.streams.values().any(|stream| stream.connections > 0)
    }

    fn ttl(&self, settings: &Settings) -> Duration {
        if self.confirmed { settings.session_ttl } else { settings.unconfirmed_ttl }
    }

    /// The newest call in flight under an id.
    pub(super) fn newest_under(&self, id: &Value) -> Option<Key> {
        self.running().filter(|(_, stream)| stream.request.as_ref() == Some(id)).map(|(key, _)| *key).last()
    }

    /// Cancels the call in flight under this id; an id that is in flight more than once names none.
    pub(super) fn cancel(&mut self, id: &Value) {
        let named: Vec<Key> =
            self.running().filter(|(_, stream)| stream.request.as_ref() == Some(id)).map(|(key, _)| *key).collect();
        if let [key] = named[..]
            && let Some(stream) = self.streams.get_mut(&key)
        {
            stream.ending = Ending::Cancelled;
        }
    }

    /// Holds what is finished within the bounds.
    pub(super) fn bury(&mut self, settings: &Settings) {
        let finished: Vec<Key> = self.streams.iter().filter(|(_, stream)| !stream.running()).map(|(key, _)| *key).collect();
        for key in &finished[..finished.len().saturating_sub(settings.results_held)] {
            self.streams.get_mut(key).into_iter().for_each(Stream::entomb);
        }
        for key in &finished[..finished.len().saturating_sub(settings.tombstones)] {
            if self.streams.get(key).is_some_and(|stream| stream.connections == 0) {
                self.streams.remove(key);
            }
        }
    }

    /// Begins a new incarnation. Streams of the old one end; they stay only for the connections that are attached.
    pub(super) fn rotate(&mut self) {
        for stream in self.streams.values_mut() {
            match (&stream.request, stream.running()) {
                (Some(_), true) => stream.answer(stream.outcome_unknown()),
                (None, true) => stream.ending = Ending::Cancelled,
                _ => {}
            }
        }
        self.incarnation += 1;
        self.next = 1;
        self.streams.insert(self.standalone(), Stream::new(None));
    }

    /// Loses the last events of each stream.
    pub(super) fn lose_tail(&mut self, count: u64) {
        self.streams.values_mut().for_each(|stream| stream.lose_tail(count));
    }
}

impl State {
    /// Ends what has expired.
    fn sweep(&mut self, settings: &Settings) {
        let now = Instant::now();
        let mut expired = Vec::new();
        for (nonce, session) in &mut self.sessions {
            if session.is_busy() {
                session.last_used = now;
            } else if now.saturating_duration_since(session.last_used) >= session.ttl(settings) {
                expired.push(*nonce);
            }
        }
        expired.into_iter().for_each(|nonce| self.end(nonce, Reason::Expired));
    }

    /// Ends a session: its streams end, its calls are cancelled.
    pub(super) fn end(&mut self, nonce: u128, reason: Reason) {
        let Some(session) = self.sessions.remove(&nonce) else { return };
        if self.ended.insert(nonce, (reason, session.principal)).is_none() {
            self.ended_order.push_back(nonce);
        }
        if self.ended_order.len() > ENDED_HELD {
            self.ended_order.pop_front().and_then(|nonce| self.ended.remove(&nonce));
        }
    }

    /// A call's stream, while the call runs.
    pub(super) fn call(&mut self, nonce: u128, key: Key) -> Option<(&mut Session, Key)> {
        let session = self.sessions.get_mut(&nonce)?;
        session.streams.get(&key).is_some_and(Stream::running).then_some((session, key))
    }

    /// Records that a keyed call runs.
    pub(super) fn record(&mut self, key: RecordKey, hash: u128) {
        if self.records.insert(key.clone(), Record { hash, outcome: None }).is_none() {
            self.record_order.push_back(key);
        }
        if self.record_order.len() > RECORDS {
            self.record_order.pop_front().and_then(|key| self.records.remove(&key));
        }
    }

    /// Whether there is room for a session more.
    pub(super) fn has_room(&self) -> bool {
        self.sessions.len() < SESSIONS
    }

    /// Calls in flight in all sessions.
    pub(super) fn calls(&self) -> usize {
        self.sessions.values().map(|session| session.running().count()).sum()
    }
}

impl Shared {
    /// Row 4.
    pub(super) fn revision(&self, request: &Request) -> Result<(), Refusal> {
        match request.all("MCP-Protocol-Version")[..] {
            [] => Ok(()),
            [one] if REVISIONS.contains(&one) => Ok(()),
            _ => Err(Refusal::UnsupportedRevision),
        }
    }

    /// Rows 5 and 6: the nonce of the session that is presented.
    pub(super) fn session(&self, state: &mut State, request: &Request, principal: &str) -> Result<u128, Refusal> {
        state.sweep(&self.settings);
        let presented = request.all("Mcp-Session-Id");
        let [id] = presented[..] else {
            let refusal = if presented.is_empty() { Refusal::SessionRequired } else { Refusal::Expired(Reason::Unknown) };
            return if self.has(Fault::SessionNotRequired) && presented.is_empty() && request.method == "GET" {
                Ok(self.adopt(state, random(), String::new(), principal))
            } else {
                Err(refusal)
            };
        };
        let authentic = self.keys.session(id);
        let refused = match authentic {
            None => Reason::Unknown,
            Some((process, nonce)) => match (state.sessions.get_mut(&nonce), state.ended.get(&nonce)) {
                (Some(session), _) if session.principal == principal || self.has(Fault::IgnoresPrincipal) => {
                    session.last_used = Instant::now();
                    return Ok(nonce);
                }
                (Some(_), _) => return Err(Refusal::Expired(Reason::Unknown)),
                (None, Some((reason, whose))) if whose == principal => *reason,
                (None, None) if process != self.process => Reason::Restarted,
                (None, _) => Reason::Unknown,
            },
        };
        let dead = if self.has(Fault::DeadSession400) { Refusal::DeadSession } else { Refusal::Expired(refused) };
        let adopts = match self.fault {
            Some(Fault::DeadSessionNewStream) => request.method == "GET" && refused != Reason::Restarted,
            Some(Fault::AdoptsAfterRestart) => refused == Reason::Restarted,
            _ => false,
        };
        if !adopts {
            return Err(dead);
        }
        let nonce = authentic.map_or_else(|| self.keys.body(id.as_bytes()), |(_, nonce)| nonce);
        Ok(self.adopt(state, nonce, id.to_owned(), principal))
    }

    /// Raises a session from the dead, without its streams: only faults do.
    fn adopt(&self, state: &mut State, nonce: u128, id: String, principal: &str) -> u128 {
        let session = Session { confirmed: true, adopted: true, ..Session::new(id, principal, REVISIONS[0]) };
        state.sessions.insert(nonce, session);
        nonce
    }

    /// Does something to a live session, by its id.
    pub(super) fn with_session(&self, id: &str, change: impl FnOnce(&mut Session)) {
        let (_, nonce) = self.keys.session(id).expect("an id that this server issued");
        change(self.state().sessions.get_mut(&nonce).expect("a live session"));
        self.said.notify_all();
    }
}
