//! The tools, and the threads that run them whether or not anybody listens.
//!
//! Never knows who is connected: what a call says goes into its stream's log.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::http::LOOK_UP;
use super::log::{Ending, outcome_unknown};
use super::state::{Key, RecordKey};
use super::{Fault, Shared};

/// Events of a call.
const EVENTS_MOST: u64 = 100_000;

/// The longest that a call may run: its maximum age, known before it begins.
const CALL_TIME: Duration = Duration::from_secs(600);

/// Bytes of padding in an event.
const PADDING_MOST: u64 = 16 << 10;

/// Events that a call without an interval says in one go.
const BURST: u64 = 32;

/// What the tools call their number of events, and the time before each. `broadcast` is called as rejoin's own tool of that name.
const COUNT: [&str; 2] = ["events", "every_ms"];
const BROADCAST: [&str; 2] = ["count", "interval_ms"];

/// What a call runs.
#[derive(Clone, Debug)]
pub(super) enum Tool {
    Count(Pace),
    Broadcast(Pace),
    Effects,
}

/// How often, how fast, and how much.
#[derive(Clone, Debug)]
pub(super) struct Pace {
    events: u64,
    every: Duration,
    bytes: u64,
}

/// A call that runs.
pub(super) struct Call {
    pub(super) nonce: u128,
    pub(super) key: Key,
    pub(super) id: Value,
    pub(super) token: Option<Value>,
    pub(super) record: Option<RecordKey>,
}

/// What `tools/list` says.
pub(super) fn list() -> Value {
    let number = |about: &str, default: u64| json!({"type": "integer", "minimum": 0, "default": default, "description": about});
    let pace = |[events, every]: [&str; 2]| {
        json!({
            "type": "object",
            "properties": {
                events: number("how many", 5),
                every: number("milliseconds before each", 20),
                "bytes": number("bytes of padding in each", 0),
            },
        })
    };
    let count = "Counts: sends a progress notification for each number, where the call has a progress token, then a result";
    let broadcast = "Sends log messages on the session's standalone stream, then a result";
    let effects = "How many executions of count there have been in this session";
    json!({"tools": [
        {"name": "count", "description": count, "inputSchema": pace(COUNT)},
        {"name": "broadcast", "description": broadcast, "inputSchema": pace(BROADCAST)},
        {"name": "effects", "description": effects, "inputSchema": {"type": "object", "properties": {}}},
    ]})
}

impl Tool {
    /// Reads a call's `params`.
    pub(super) fn parse(params: &Value) -> Result<Self, String> {
        let arguments = &params["arguments"];
        match params["name"].as_str() {
            Some("count") => Pace::parse(arguments, COUNT).map(Self::Count),
            Some("broadcast") => Pace::parse(arguments, BROADCAST).map(Self::Broadcast),
            Some("effects") => Ok(Self::Effects),
            Some(name) => Err(format!("no tool is called {name}")),
            None => Err("a tool's name is needed".to_owned()),
        }
    }
}

impl Pace {
    fn parse(arguments: &Value, [events, every]: [&str; 2]) -> Result<Self, String> {
        let number = |name: &str, default: u64, most: u64| match &arguments[name] {
            Value::Null => Ok(default),
            value => value.as_u64().filter(|&number| number <= most).ok_or(format!("{name} must be an integer up to {most}")),
        };
        let every = Duration::from_millis(number(every, 20, CALL_TIME.as_millis() as u64)?);
        let pace = Self { events: number(events, 5, EVENTS_MOST)?, every, bytes: number("bytes", 0, PADDING_MOST)? };
        let takes = pace.every.saturating_mul(u32::try_from(pace.events).unwrap_or(u32::MAX));
        if takes > CALL_TIME { Err(format!("a call may take {} s at most", CALL_TIME.as_secs())) } else { Ok(pace) }
    }
}

/// A tool's result that is a text.
pub(super) fn text(text: impl Into<String>) -> Value {
    json!({"content": [{"type": "text", "text": text.into()}]})
}

impl Shared {
    /// Runs a call on a thread of its own.
    pub(super) fn run(self: &Arc<Self>, call: Call, tool: Tool) {
        let shared = Arc::clone(self);
        thread::spawn(move || {
            let said = match &tool {
                Tool::Count(pace) => shared.paced(pace, |number| shared.progress(&call, number, pace)),
                Tool::Broadcast(pace) => shared.paced(pace, |number| shared.broadcast(&call, number, pace)),
                Tool::Effects => true,
            };
            let outcome = match &tool {
                Tool::Count(pace) => text(format!("counted to {}", pace.events)),
                Tool::Broadcast(pace) => text(format!("sent {}", pace.events)),
                Tool::Effects => text(""),
            };
            let outcome = if said { ("result", outcome) } else { ("error", outcome_unknown()) };
            shared.finish(&call, outcome);
        });
    }

    /// Answers a keyed call that is repeated, when the first one's answer is there.
    pub(super) fn repeat(self: &Arc<Self>, call: Call, first: RecordKey) {
        let shared = Arc::clone(self);
        thread::spawn(move || {
            let mut state = shared.state();
            let outcome = loop {
                match state.records.get(&first) {
                    Some(record) => match &record.outcome {
                        Some(outcome) => break outcome.clone(),
                        None if shared.is_over() => return,
                        None => state = shared.said.wait_timeout(state, LOOK_UP).expect("no holder panics").0,
                    },
                    None => break ("error", outcome_unknown()),
                }
            };
            drop(state);
            shared.finish(&call, outcome);
        });
    }

    /// Says numbers at a pace; false where somebody has to stop.
    fn paced(&self, pace: &Pace, say: impl Fn(u64) -> bool) -> bool {
        (1..=pace.events).all(|number| {
            let pause = if pace.every.is_zero() && number % BURST == 0 { Duration::from_millis(1) } else { pace.every };
            self.pause(pause) && say(number)
        })
    }

    fn pause(&self, time: Duration) -> bool {
        let until = Instant::now() + time;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() || self.is_over() {
                return !self.is_over();
            }
            thread::sleep(left.min(LOOK_UP));
        }
    }

    fn progress(&self, call: &Call, number: u64, pace: &Pace) -> bool {
        let message = call.token.as_ref().map(|token| {
            let mut params = json!({"progressToken": token, "progress": number, "total": pace.events});
            if pace.bytes > 0 {
                params["message"] = "-".repeat(pace.bytes as usize).into();
            }
            json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": params}).to_string()
        });
        self.say(call, |_| None, message)
    }

    fn broadcast(&self, call: &Call, number: u64, pace: &Pace) -> bool {
        let data = json!({"tick": number, "of": pace.events, "padding": "-".repeat(pace.bytes as usize)});
        let params = json!({"level": "info", "logger": "broadcast", "data": data});
        let message = json!({"jsonrpc": "2.0", "method": "notifications/message", "params": params}).to_string();
        self.say(call, |incarnation| Some((incarnation, 0)), Some(message))
    }

    /// Says something on a call's own stream or on another of its session; false where the call is over.
    fn say(&self, call: &Call, elsewhere: impl Fn(u32) -> Option<Key>, message: Option<String>) -> bool {
        let mut state = self.state();
        let Some((session, mut key)) = state.call(call.nonce, call.key) else { return false };
        if self.has(Fault::DisconnectCancels)
            && let Some(stream) = session.streams.get_mut(&key).filter(|stream| stream.attached && stream.connections == 0)
        {
            stream.ending = Ending::Cancelled;
            return false;
        }
        if self.has(Fault::RoutesById) {
            key = session.newest_under(&call.id).unwrap_or(key);
        }
        let key = elsewhere(session.incarnation).unwrap_or(key);
        if let (Some(message), Some(stream)) = (message, session.streams.get_mut(&key)) {
            stream.say(message, Instant::now(), &self.settings);
            self.said.notify_all();
        }
        true
    }

    /// Answers a call, and its idempotency key.
    pub(super) fn finish(&self, call: &Call, (kind, value): (&'static str, Value)) {
        let mut state = self.state();
        let mut outcome = (kind, value);
        match state.call(call.nonce, call.key) {
            Some((session, mut key)) => {
                if self.has(Fault::RoutesById) {
                    key = session.newest_under(&call.id).unwrap_or(key);
                }
                session.last_used = Instant::now();
                if let Some(stream) = session.streams.get_mut(&key) {
                    let mut message = json!({"jsonrpc": "2.0", "id": call.id});
                    message[outcome.0] = outcome.1.clone();
                    if self.has(Fault::LosesUnheardResult) && stream.connections == 0 && !stream.json {
                        stream.ending = Ending::Cancelled;
                    } else {
                        stream.answer(message.to_string());
                    }
                }
                session.bury(&self.settings);
            }
            None => outcome = ("error", outcome_unknown()),
        }
        if let Some(record) = call.record.as_ref().and_then(|key| state.records.get_mut(key)) {
            record.outcome = Some(outcome);
        }
        self.said.notify_all();
    }
}
