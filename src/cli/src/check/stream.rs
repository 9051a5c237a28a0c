//! Event streams as they come: events, and how the stream ended.
//!
//! Never skips an event, and never says what one means.

use std::collections::VecDeque;
use std::time::{Duration, Instant};

use rejoin_proto::http::{AnswerBody, AnswerHead};
use rejoin_proto::sse::{Decoder, Item};
use serde_json::Value;

use super::wire::{End, Fill, Line, Trouble, reading};

/// Bytes of one event.
const EVENT: usize = 4 << 20;

/// The body behind a head.
#[derive(Debug)]
pub(super) struct Body(AnswerBody);

impl Body {
    /// At most so many bytes of it.
    pub(super) fn new(head: &AnswerHead, most: usize) -> Result<Self, Trouble> {
        AnswerBody::new(head.framing(), &reading(most)).map(Self).map_err(|bad| Trouble::Unreadable(format!("{bad:?}")))
    }

    /// Takes what there is; whether that was the end.
    pub(super) fn read(&mut self, unread: &mut Vec<u8>, body: &mut Vec<u8>) -> Result<bool, Trouble> {
        let progress = self.0.read(unread, body).map_err(|bad| Trouble::Unreadable(format!("{bad:?}")))?;
        unread.drain(..progress.consumed);
        Ok(progress.done)
    }

    /// Whether the connection's end is the body's.
    pub(super) fn ends_with_connection(&self) -> bool {
        self.0.ends_with_connection()
    }
}

/// An event, or a block without data.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Event {
    /// The id that its own block set.
    pub(crate) id: Option<String>,
    /// Its name.
    pub(crate) name: String,
    /// Its data; `None` where its block has no `data` line.
    pub(crate) data: Option<String>,
    /// Its reconnection time.
    pub(crate) retry: Option<Duration>,
}

impl Event {
    fn of(item: &Item<'_>) -> Option<Self> {
        match item {
            Item::Comment => None,
            Item::Event(event) => Some(Self {
                id: event.has_own_id.then(|| event.id.to_owned()),
                name: event.event.to_owned(),
                data: Some(event.data.to_owned()),
                retry: event.retry,
            }),
            Item::Block(block) => Some(Self {
                id: block.id.map(str::to_owned),
                name: block.event.unwrap_or("message").to_owned(),
                data: None,
                retry: block.retry,
            }),
        }
    }

    /// The JSON-RPC message that it carries.
    pub(crate) fn message(&self) -> Option<Value> {
        let data = self.data.as_deref().filter(|data| !data.is_empty() && self.name == "message")?;
        serde_json::from_str(data).ok().filter(Value::is_object)
    }

    /// Whether it announces a gap.
    pub(crate) fn is_resync(&self) -> bool {
        self.name == "resync"
    }

    fn shown(&self) -> String {
        let mut text = String::new();
        if let Some(id) = &self.id {
            text.push_str(&format!("id: {id}\n"));
        }
        if self.name != "message" {
            text.push_str(&format!("event: {}\n", self.name));
        }
        if let Some(retry) = self.retry {
            text.push_str(&format!("retry: {}\n", retry.as_millis()));
        }
        for line in self.data.iter().flat_map(|data| data.split('\n')) {
            text.push_str(&format!("data: {line}\n"));
        }
        text
    }
}

/// How a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Ending {
    /// Its body ended properly.
    Clean,
    /// Its connection ended before the body did.
    Cut(End),
    /// It is still open.
    Open,
}

impl Ending {
    /// In words.
    pub(crate) const fn words(self) -> &'static str {
        match self {
            Self::Clean => "ended",
            Self::Cut(End::Fin) => "was broken off by a FIN",
            Self::Cut(End::Reset) => "was reset",
            Self::Open => "stayed open",
        }
    }
}

/// What comes next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// An event.
    Event(Event),
    /// Nothing more, or nothing in time.
    Over(Ending),
}

/// An event stream under way.
#[derive(Debug)]
pub(crate) struct Stream {
    line: Line,
    /// Its head.
    pub(crate) head: AnswerHead,
    body: Body,
    decoder: Decoder,
    queue: VecDeque<Event>,
    whole: bool,
}

impl Stream {
    pub(super) fn new(line: Line, head: AnswerHead) -> Result<Self, Trouble> {
        let body = Body::new(&head, usize::MAX)?;
        Ok(Self { line, head, body, decoder: Decoder::new(EVENT), queue: VecDeque::new(), whole: false })
    }

    /// The next step, waited for until then.
    pub(crate) fn next(&mut self, until: Instant) -> Result<Step, Trouble> {
        loop {
            if let Some(event) = self.queue.pop_front() {
                return Ok(Step::Event(event));
            }
            if self.whole {
                return Ok(Step::Over(Ending::Clean));
            }
            if !self.line.unread().is_empty() {
                self.decode()?;
                continue;
            }
            match self.line.fill(until)? {
                Fill::Bytes => {}
                Fill::Ended(End::Fin) if self.body.ends_with_connection() => self.whole = true,
                Fill::Ended(how) => return Ok(Step::Over(Ending::Cut(how))),
                Fill::Nothing => return Ok(Step::Over(Ending::Open)),
            }
        }
    }

    fn decode(&mut self) -> Result<(), Trouble> {
        let mut decoded = Vec::new();
        self.whole = self.body.read(self.line.unread(), &mut decoded)?;
        let mut events = Vec::new();
        let read = self.decoder.push_items(&decoded, |item| events.extend(Event::of(&item)));
        for event in &events {
            self.line.note('<', &event.shown());
        }
        self.queue.extend(events);
        if self.whole {
            self.line.note('<', "(the stream's end)");
        }
        read.map_err(|_| Trouble::Unreadable(format!("an event of more than {EVENT} bytes")))
    }

    /// All events until it is over, or nothing comes for so long.
    pub(crate) fn rest(&mut self, quiet: Duration) -> Result<(Vec<Event>, Ending), Trouble> {
        let mut events = Vec::new();
        loop {
            match self.next(Instant::now() + quiet)? {
                Step::Event(event) => events.push(event),
                Step::Over(ending) => return Ok((events, ending)),
            }
        }
    }

    /// When something that must come is too late.
    pub(crate) fn due(&self) -> Instant {
        self.line.io().due()
    }

    /// Breaks the connection off without a farewell.
    pub(crate) fn cut(self) {
        self.line.cut();
    }
}
