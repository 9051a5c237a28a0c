//! One stream's memory: events within a bound, its result apart from them, and how it ended.
//!
//! Never forgets that it forgot: what is gone is told from what was never said.

use std::collections::VecDeque;
use std::time::Instant;

use serde_json::{Value, json};

use super::Settings;

/// How a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ending {
    /// More may come.
    Running,
    /// Its call was answered, at this position.
    Answered(u64),
    /// Nothing more comes, and no answer did.
    Cancelled,
}

/// What stands behind a position.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// This event, at the next position.
    Event(String),
    /// Nothing that is held: so many are lost, and the first that follows has this position, if any is held.
    Gap { lost: u64, earliest: Option<u64> },
    /// Nothing yet.
    Nothing,
    /// Nothing, for ever.
    End,
}

#[derive(Debug)]
struct Event {
    data: String,
    said: Instant,
}

/// One stream. Position 0 is its start; its first event has position 1.
#[derive(Debug)]
pub(super) struct Stream {
    /// The id of the request that it answers; none for the standalone stream.
    pub(super) request: Option<Value>,
    /// Whether its call is answered by a JSON body.
    pub(super) json: bool,
    pub(super) ending: Ending,
    events: VecDeque<Event>,
    bytes: usize,
    next: u64,
    result: Option<String>,
    /// The last position that was written to any connection.
    pub(super) written: u64,
    /// Counts the GETs that took it over; a connection of an older generation ends.
    pub(super) generation: u64,
    /// Connections that are attached, of any generation.
    pub(super) connections: usize,
    /// Whether any ever was.
    pub(super) attached: bool,
    /// The last takeover, and how many came right after one another.
    pub(super) takeovers: Option<(Instant, u32)>,
}

impl Stream {
    pub(super) fn new(request: Option<Value>) -> Self {
        Self {
            request,
            json: false,
            ending: Ending::Running,
            events: VecDeque::new(),
            bytes: 0,
            next: 1,
            result: None,
            written: 0,
            generation: 0,
            connections: 0,
            attached: false,
            takeovers: None,
        }
    }

    pub(super) fn running(&self) -> bool {
        self.ending == Ending::Running
    }

    /// The last position that was issued.
    pub(super) fn last(&self) -> u64 {
        self.next - 1
    }

    /// Where its answer stands; past everything where there is none.
    pub(super) fn answer_at(&self) -> u64 {
        match self.ending {
            Ending::Answered(at) => at,
            _ => self.next,
        }
    }

    /// The position of the earliest event held, results apart.
    fn first(&self) -> u64 {
        self.answer_at() - self.events.len() as u64
    }

    pub(super) fn say(&mut self, data: String, now: Instant, settings: &Settings) {
        self.bytes += data.len();
        self.events.push_back(Event { data, said: now });
        self.next += 1;
        self.evict(now, settings);
    }

    /// Says the answer, which is pinned, and ends the stream.
    pub(super) fn answer(&mut self, data: String) {
        self.ending = Ending::Answered(self.next);
        self.result = Some(data);
        self.next += 1;
    }

    /// Drops what is too much or too old.
    pub(super) fn evict(&mut self, now: Instant, settings: &Settings) {
        let too_old = |event: &Event| now.saturating_duration_since(event.said) >= settings.event_ttl;
        while self.events.len() > settings.events_held
            || self.bytes > settings.bytes_held
            || self.events.front().is_some_and(too_old)
        {
            let Some(event) = self.events.pop_front() else { break };
            self.bytes -= event.data.len();
        }
    }

    /// Keeps only how it ended.
    pub(super) fn entomb(&mut self) {
        self.events.clear();
        self.bytes = 0;
        self.result = None;
    }

    /// Whether more than a tombstone is held.
    pub(super) fn holds_result(&self) -> bool {
        self.result.is_some()
    }

    /// The answer, if it is all that this stream ever said.
    pub(super) fn sole_answer(&self) -> Option<&String> {
        self.result.as_ref().filter(|_| self.json && self.next == 2)
    }

    /// What stands behind a position that was issued. `told`: the gap there was told already.
    pub(super) fn after(&mut self, position: u64, told: bool) -> Next {
        let wanted = position + 1;
        if wanted >= self.next {
            return if self.running() { Next::Nothing } else { Next::End };
        }
        let first = self.first();
        if let Some(event) = wanted.checked_sub(first).and_then(|index| self.events.get(index as usize)) {
            return Next::Event(event.data.clone());
        }
        let answered = match self.ending {
            Ending::Answered(at) => Some(at),
            // The gap may hide from the client that its call was cancelled: it is told now, and for ever.
            Ending::Cancelled if self.request.is_some() => {
                let error = self.outcome_unknown();
                self.answer(error);
                Some(self.last())
            }
            _ => None,
        };
        match (answered, &self.result) {
            (Some(at), Some(result)) if at == wanted => return Next::Event(result.clone()),
            (Some(at), None) if at == wanted && told => return Next::Event(self.outcome_unknown()),
            _ => {}
        }
        let earliest = if self.events.is_empty() { answered } else { Some(first) };
        let lost = match earliest {
            // What stands in for a lost result is not the result.
            Some(at) if answered == Some(at) && self.result.is_none() => at + 1 - wanted,
            Some(at) => at - wanted,
            None => self.next - wanted,
        };
        Next::Gap { lost, earliest }
    }

    /// What it holds, with where it stands, its answer apart.
    pub(super) fn held(&self) -> impl Iterator<Item = (u64, &str)> {
        (self.first()..).zip(self.events.iter().map(|event| event.data.as_str()))
    }

    /// The error for its request: the call may have run.
    pub(super) fn outcome_unknown(&self) -> String {
        json!({"jsonrpc": "2.0", "id": self.request, "error": outcome_unknown()}).to_string()
    }

    /// Loses the last events, as a log that was restored from an older copy; the answer with them.
    pub(super) fn lose_tail(&mut self, count: u64) {
        for _ in 0..count.min(self.last()) {
            if self.result.take().is_some() {
                self.ending = Ending::Running;
            } else if let Some(event) = self.events.pop_back() {
                self.bytes -= event.data.len();
            }
            self.next -= 1;
        }
        self.written = self.written.min(self.last());
    }
}

/// The error object of a call that may have run.
pub(super) fn outcome_unknown() -> Value {
    let data = json!({"code": "outcome_unknown", "action": "verify"});
    json!({"code": -32010, "message": "the call may have run; its answer is lost", "data": data})
}
