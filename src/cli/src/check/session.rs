//! A client's session and its calls, as cases have them: requests, what came on a call's stream, and where it stands.
//!
//! Never decides what should have come: that is `judge`.

use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::stream::{Ending, Event, Step, Stream};
use super::wire::Trouble;

/// A session of a client.
#[derive(Clone, Debug)]
pub(crate) struct Session {
    /// Its `Mcp-Session-Id`, where the server gives one.
    pub(crate) id: Option<String>,
    /// Its revision.
    pub(crate) revision: String,
    /// What the server said of itself.
    pub(crate) server: Value,
}

/// A call that can be made, and what its stream must bring.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    /// Its JSON-RPC id.
    pub(crate) id: Value,
    /// Its progress token.
    pub(crate) token: String,
    /// What counts its executions, where the tool can count.
    pub(crate) key: String,
    /// The request.
    pub(crate) message: Value,
    /// What each message of its stream is known by, in order; the last is its answer.
    pub(crate) expected: Vec<String>,
    /// How long it takes, about.
    pub(crate) takes: Duration,
    /// Whether its events are known by their progress.
    pub(crate) by_progress: bool,
}

/// What the answer to a call is known by.
pub(crate) const RESULT: &str = "result";
/// The same where it is an error.
pub(crate) const ERROR: &str = "error";

/// What an event is to a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Mark {
    /// One of its messages.
    Own(String),
    /// A message of another call, in words.
    Foreign(String),
    /// Nothing of any call's.
    Other,
}

impl Call {
    /// What this event is to this call.
    pub(crate) fn mark(&self, event: &Event) -> Mark {
        let Some(message) = event.message() else { return Mark::Other };
        let method = message.get("method").and_then(Value::as_str);
        match (method, message.get("id")) {
            (Some("notifications/progress"), None) => {
                let params = &message["params"];
                if params["progressToken"] != self.token.as_str() {
                    return Mark::Foreign(format!("progress for token {}", params["progressToken"]));
                }
                if self.by_progress { Mark::Own(number(&params["progress"])) } else { Mark::Other }
            }
            (Some(method), None) if !self.by_progress => Mark::Own(format!("{method} {}", message["params"])),
            (Some(_), _) | (None, None) => Mark::Other,
            (None, Some(id)) if *id == self.id => {
                Mark::Own(if message.get("error").is_some() { ERROR } else { RESULT }.to_owned())
            }
            (None, Some(id)) => Mark::Foreign(format!("an answer to request {id}")),
        }
    }

    /// What its own messages among these are known by.
    pub(crate) fn marks(&self, events: &[Event]) -> Vec<String> {
        let own = |event| match self.mark(event) {
            Mark::Own(mark) => Some(mark),
            Mark::Foreign(_) | Mark::Other => None,
        };
        events.iter().filter_map(own).collect()
    }

    /// Its answer among these.
    pub(crate) fn answer(&self, events: &[Event]) -> Option<Value> {
        let is_answer = |event: &&Event| matches!(self.mark(event), Mark::Own(mark) if mark == RESULT || mark == ERROR);
        events.iter().find(is_answer).and_then(Event::message)
    }

    /// The same call with another id, token and body.
    pub(crate) fn renamed(&self, id: Value, token: &str) -> Self {
        let mut call = Self { id: id.clone(), token: token.to_owned(), ..self.clone() };
        call.message["id"] = id;
        call.message["params"]["_meta"] = json!({ "progressToken": token });
        call
    }
}

/// A number as text, whole ones without a fraction.
fn number(value: &Value) -> String {
    value.as_f64().map_or_else(|| value.to_string(), |number| format!("{number}"))
}

/// The last id among these events.
pub(crate) fn last_id(events: &[Event]) -> Option<&str> {
    events.iter().rev().find_map(|event| event.id.as_deref()).filter(|id| !id.is_empty())
}

/// What a stream brought to its end, or until nothing more came.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    /// Its events.
    pub(crate) events: Vec<Event>,
    /// How it stood then.
    pub(crate) ending: Ending,
}

/// How long a stream that has answered its call may take to end.
pub(crate) const LINGER: Duration = Duration::from_secs(1);

/// Reads a call's stream until it is over: to its end, or until it has answered and does not end.
pub(crate) fn read_out(stream: &mut Stream, call: &Call, patience: Duration) -> Result<Got, Trouble> {
    let mut events = Vec::new();
    let mut answered = false;
    loop {
        let quiet = if answered { LINGER } else { patience + call.takes };
        match stream.next(Instant::now() + quiet)? {
            Step::Event(event) => {
                answered |= matches!(call.mark(&event), Mark::Own(mark) if mark == RESULT || mark == ERROR);
                events.push(event);
            }
            Step::Over(ending) => return Ok(Got { events, ending }),
        }
    }
}

/// A call whose stream is being read.
#[derive(Debug)]
pub(crate) struct Running {
    /// The call.
    pub(crate) call: Call,
    /// Its stream.
    pub(crate) stream: Stream,
    /// What came so far.
    pub(crate) events: Vec<Event>,
}

impl Running {
    /// Reads until that many of its messages have come; none: until its opening event, where there is one.
    pub(crate) fn until(&mut self, count: usize) -> Result<(), Trouble> {
        while self.call.marks(&self.events).len() < count || (count == 0 && last_id(&self.events).is_none()) {
            match self.stream.next(self.stream.due().max(Instant::now() + self.call.takes))? {
                Step::Event(event) => self.events.push(event),
                Step::Over(ending) => {
                    return Err(Trouble::Cannot(format!(
                        "a call's stream {} after {} of its messages",
                        ending.words(),
                        self.call.marks(&self.events).len()
                    )));
                }
            }
        }
        Ok(())
    }

    /// The id to come back with.
    pub(crate) fn cursor(&self) -> Result<String, Trouble> {
        last_id(&self.events).map(str::to_owned).ok_or_else(|| Trouble::Cannot("no event so far had an id".to_owned()))
    }

    /// What came so far, of its own.
    pub(crate) fn had(&self) -> Vec<String> {
        self.call.marks(&self.events)
    }

    /// Breaks the connection off; what it was and what had come.
    pub(crate) fn cut(self) -> (Call, Vec<String>) {
        let had = self.had();
        self.stream.cut();
        (self.call, had)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call() -> Call {
        let message = json!({ "id": 7, "params": { "_meta": { "progressToken": "t" } } });
        Call {
            id: json!(7),
            token: "t".to_owned(),
            key: String::new(),
            message,
            expected: Vec::new(),
            takes: Duration::ZERO,
            by_progress: true,
        }
    }

    fn event(message: &Value) -> Event {
        Event { name: "message".to_owned(), data: Some(message.to_string()), ..Event::default() }
    }

    #[test]
    fn an_event_is_known_by_its_token_or_its_id() {
        let progress = |token: &str, progress: f64| {
            event(&json!({ "method": "notifications/progress", "params": { "progressToken": token, "progress": progress } }))
        };
        let call = call();
        assert_eq!(call.mark(&progress("t", 2.0)), Mark::Own("2".to_owned()));
        assert!(matches!(call.mark(&progress("u", 2.0)), Mark::Foreign(_)));
        assert_eq!(call.mark(&event(&json!({ "id": 7, "result": {} }))), Mark::Own(RESULT.to_owned()));
        assert_eq!(call.mark(&event(&json!({ "id": 7, "error": {} }))), Mark::Own(ERROR.to_owned()));
        assert!(matches!(call.mark(&event(&json!({ "id": 8, "result": {} }))), Mark::Foreign(_)));
        assert_eq!(call.mark(&event(&json!({ "method": "notifications/message", "params": {} }))), Mark::Other);
        assert_eq!(call.mark(&Event { data: Some(String::new()), ..Event::default() }), Mark::Other);
    }

    #[test]
    fn a_renamed_call_has_another_body() {
        let other = call().renamed(json!("x"), "u");
        assert_eq!(
            (other.message["id"].as_str(), other.message["params"]["_meta"]["progressToken"].as_str()),
            (Some("x"), Some("u"))
        );
    }
}
