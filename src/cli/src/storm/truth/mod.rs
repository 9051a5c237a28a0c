//! The truth about one session: an oracle that numbers what it asked for, and holds every byte that comes against it.
//!
//! It sees what came off the wire, and nothing that the client machine made of it, so that a mistake of that machine cannot hide one
//! of the server. Never sends anything, and never decides when a client comes back.

mod message;
mod violation;

use std::collections::{HashMap, VecDeque};
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};

use message::{Message, Tick};
pub(crate) use violation::{Outcome, Transcript, Violation};

/// Ids of earlier calls that a session remembers, so that one that names another event now is found out. Reason: 8 KiB a session.
const OLD_IDS: usize = 512;

/// What a call was sent as: names that no other call of the run has.
#[derive(Clone, Debug)]
pub(crate) struct Sent {
    /// Its JSON-RPC id.
    pub(crate) id: Box<str>,
    /// Its progress token.
    pub(crate) token: Box<str>,
    /// What is known of its answer.
    pub(crate) expected: Expected,
}

/// What is known of a call's answer beforehand.
#[derive(Clone, Debug)]
pub(crate) enum Expected {
    /// So many numbered ticks, and a result with this key.
    Ticks { count: u32, key: Box<str> },
    /// An answer.
    Anything,
}

/// How a call stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fate {
    /// No answer yet.
    Open,
    /// Its result came.
    Answered,
    /// It failed with an error of the tool or the server.
    Failed,
    /// The server said that it does not know how it ended.
    Unknown,
}

/// One item of an event stream, as a decoder hands it on.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Item<'a> {
    /// The event's name; `message` where none was given.
    pub(crate) event: &'a str,
    /// The id that its own block set.
    pub(crate) id: Option<&'a str>,
    /// Its data; `None` for a block without any.
    pub(crate) data: Option<&'a str>,
}

/// What an item was, for whoever measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Seen {
    /// An id without a message: a stream's opening.
    Opening,
    /// A `resync`.
    Resync,
    /// The tick with this number, for the first time.
    Tick(u32),
    /// The call's answer, for the first time.
    Answer,
    /// Anything else.
    Other,
}

/// One session's oracle.
#[derive(Debug, Default)]
pub(crate) struct Oracle {
    call: Option<CallTruth>,
    transcript: Transcript,
    old_ids: VecDeque<u64>,
    old: HashMap<u64, Box<str>>,
    found: Vec<Violation>,
}

/// What one call's stream has said.
#[derive(Debug)]
struct CallTruth {
    sent: Sent,
    /// Every message of the stream, in the order in which it came first.
    received: Vec<Message64>,
    /// Where the next message stands in `received`; its length where the next one is new.
    at: usize,
    /// Where each id stands: behind so many messages.
    places: HashMap<u64, usize>,
    /// The next tick, if nothing is missing.
    next_tick: u32,
    /// Ticks that are missing so far; they may still come, late.
    missing: Vec<u32>,
    /// A `resync` was the last item: what follows may leave this many messages out.
    excused: Option<Lost>,
    /// The last `resync`: its id, and what it said is lost.
    resync: Option<(u64, Lost)>,
    fate: Fate,
    /// Outcomes told already: one mistake has many consequences.
    told: Vec<Outcome>,
    /// Why the client reads no further, where it does not.
    refused: Option<String>,
}

/// A message as the oracle remembers it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Message64 {
    id: Option<u64>,
    content: u64,
}

/// How many events a `resync` said are lost.
#[derive(Clone, Copy, Debug)]
enum Lost {
    AtMost(u64),
    Untold,
}

impl Lost {
    fn and(self, more: Self) -> Self {
        match (self, more) {
            (Self::AtMost(one), Self::AtMost(other)) => Self::AtMost(one.saturating_add(other)),
            _ => Self::Untold,
        }
    }
}

fn digest(value: &str) -> u64 {
    let mut hasher = DefaultHasher::new();
    value.hash(&mut hasher);
    hasher.finish()
}

impl Oracle {
    /// A call is sent; the one before it is over, whatever became of it.
    pub(crate) fn call(&mut self, at_ms: u64, sent: Sent) {
        self.end_call();
        self.transcript.clear();
        self.transcript.add(at_ms, '>', format_args!("POST tools/call id {} token {}", sent.id, sent.token));
        self.call = Some(CallTruth::new(sent));
    }

    /// A session begins: ids of the one before mean nothing any more.
    pub(crate) fn session(&mut self) {
        self.end_call();
        self.old_ids.clear();
        self.old.clear();
    }

    /// The call's id and how it stands.
    pub(crate) fn fate(&self) -> Option<(&str, Fate)> {
        self.call.as_ref().map(|call| (&*call.sent.id, call.fate))
    }

    /// Ticks that the call has seen, and how many there will be.
    pub(crate) fn ticks(&self) -> Option<(u32, u32)> {
        self.call.as_ref().and_then(|call| match call.sent.expected {
            Expected::Ticks { count, .. } => Some((call.next_tick - 1, count)),
            Expected::Anything => None,
        })
    }

    /// Something happened that a reader of the transcript should know.
    pub(crate) fn note(&mut self, at_ms: u64, sign: char, line: fmt::Arguments<'_>) {
        self.transcript.add(at_ms, sign, line);
    }

    /// An event stream of the call begins, after this cursor if one was shown. What follows must continue it.
    pub(crate) fn opened(&mut self, cursor: Option<&str>) {
        let Some(call) = &mut self.call else { return };
        // Whoever shows the id of a `resync` stands behind the gap that it told.
        let resync = call.resync.filter(|(id, _)| cursor.map(digest) == Some(*id));
        call.excused = resync.map(|(_, lost)| lost);
        call.at = match cursor {
            // A cursor that never came is no fault of the server's here: a bad one that is taken is told by whoever showed it.
            Some(cursor) => call.places.get(&digest(cursor)).copied().unwrap_or(call.received.len()),
            None => 0,
        };
    }

    /// Whether an id came in this session, as far as it remembers.
    pub(crate) fn has_had(&self, id: &str) -> bool {
        let id = digest(id);
        self.old.contains_key(&id) || self.call.as_ref().is_some_and(|call| call.places.contains_key(&id))
    }

    /// An item came on the call's stream.
    pub(crate) fn item(&mut self, at_ms: u64, item: Item<'_>) -> Seen {
        self.transcript.add(at_ms, '<', format_args!("{}", Line(&item)));
        let Some(call) = &mut self.call else { return Seen::Other };
        let mut findings = Vec::new();
        let seen = call.item(item, &self.old, &mut findings);
        for (outcome, text) in findings {
            self.tell(outcome, text);
        }
        seen
    }

    /// The whole answer came as one JSON body.
    pub(crate) fn body(&mut self, at_ms: u64, body: &str) -> Seen {
        self.opened(None);
        self.item(at_ms, Item { event: "message", id: None, data: Some(body) })
    }

    /// The server said that the call's stream is complete.
    pub(crate) fn complete(&mut self) {
        if let Some(call) = &self.call
            && call.fate == Fate::Open
        {
            let text = format!("the stream of call {} is complete, says the server; its result never came", call.sent.id);
            self.tell(Outcome::LostResult, text);
        }
    }

    /// Tells a violation that another part found, with this call's transcript.
    pub(crate) fn tell(&mut self, outcome: Outcome, text: String) {
        if let Some(call) = &mut self.call {
            if call.told.contains(&outcome) {
                return;
            }
            call.told.push(outcome);
        }
        self.found.push(Violation { outcome, text, transcript: self.transcript.to_string() });
    }

    /// The client refused to go on. Where nothing else is wrong with the call by its end, that is told: one of the two is mistaken.
    pub(crate) fn client_refused(&mut self, why: String) {
        match &mut self.call {
            Some(call) => call.refused = Some(why),
            None => self.tell(Outcome::ContinuityViolated, why),
        }
    }

    /// What was found since it was last asked.
    pub(crate) fn take_found(&mut self) -> Vec<Violation> {
        std::mem::take(&mut self.found)
    }

    /// The call is over: nothing more of it comes, and its ids are remembered.
    pub(crate) fn end_call(&mut self) {
        let Some(call) = self.call.take() else { return };
        if let Some(text) = gap(&call.missing)
            && !call.told.contains(&Outcome::SilentGap)
        {
            self.tell(Outcome::SilentGap, text);
        } else if let Some(why) = &call.refused
            && call.told.is_empty()
        {
            self.tell(
                Outcome::ContinuityViolated,
                format!("the client reads no further, and nothing else is found wrong: {why}"),
            );
        }
        for id in call.received.iter().filter_map(|message| message.id) {
            if self.old_ids.len() == OLD_IDS
                && let Some(oldest) = self.old_ids.pop_front()
            {
                self.old.remove(&oldest);
            }
            self.old_ids.push_back(id);
            self.old.insert(id, call.sent.id.clone());
        }
    }
}

impl CallTruth {
    fn new(sent: Sent) -> Self {
        Self {
            sent,
            received: Vec::new(),
            at: 0,
            places: HashMap::new(),
            next_tick: 1,
            missing: Vec::new(),
            excused: None,
            resync: None,
            fate: Fate::Open,
            told: Vec::new(),
            refused: None,
        }
    }

    fn item(&mut self, item: Item<'_>, old: &HashMap<u64, Box<str>>, findings: &mut Vec<(Outcome, String)>) -> Seen {
        let id = item.id.filter(|id| !id.is_empty());
        if item.event == "resync" {
            let lost = message::lost(item.data.unwrap_or_default()).map_or(Lost::Untold, Lost::AtMost);
            // Behind a `resync` that nothing followed, this one goes on from where that one stands.
            let lost = self.excused.map_or(lost, |before| before.and(lost));
            self.excused = Some(lost);
            self.resync = id.map(|id| (digest(id), lost));
            return Seen::Resync;
        }
        let Some(data) = item.data.filter(|data| !data.is_empty()) else {
            if let Some(id) = id {
                self.opening(id, findings);
            }
            return Seen::Opening;
        };
        if item.event != "message" {
            return Seen::Other;
        }
        let this = Message64 { id: id.map(digest), content: digest(data) };
        if self.again(this, id, findings) {
            return Seen::Other;
        }
        let fresh = self.fresh_id(this, id, old, findings);
        let seen = self.message(data, fresh, findings);
        self.received.push(this);
        self.at = self.received.len();
        if let Some(id) = this.id {
            self.places.entry(id).or_insert(self.at);
        }
        self.excused = None;
        seen
    }

    /// An id without a message stands where the stream is: it may repeat the id of this place, and none of another.
    fn opening(&mut self, id: &str, findings: &mut Vec<(Outcome, String)>) {
        let place = *self.places.entry(digest(id)).or_insert(self.at);
        if place != self.at {
            let at = self.at;
            findings.push((
                Outcome::RestartedIds,
                format!("the stream opens behind message {at} with the id {id}, which stood behind message {place}"),
            ));
        }
    }

    /// Whether a message is one that came before. After an older cursor that is right, in order; otherwise it is told.
    fn again(&mut self, this: Message64, id: Option<&str>, findings: &mut Vec<(Outcome, String)>) -> bool {
        let behind = this.id.and_then(|id| self.places.get(&id).copied()).unwrap_or(0);
        let Some(place) = behind.checked_sub(1).filter(|&place| self.received.get(place) == Some(&this)) else { return false };
        let id = id.unwrap_or_default();
        if place < self.at {
            findings.push((Outcome::Duplicate, format!("the event {id} came again")));
            return true;
        }
        let skipped = (place - self.at) as u64;
        if skipped > 0 && !self.excuses(skipped) {
            findings.push((Outcome::SilentGap, format!("{skipped} events are missing between the cursor and {id}")));
        }
        self.at = place + 1;
        self.excused = None;
        true
    }

    /// Whether the `resync` just before covers so many missing messages.
    fn excuses(&self, missing: u64) -> bool {
        match self.excused {
            Some(Lost::Untold) => true,
            Some(Lost::AtMost(lost)) => missing <= lost,
            None => false,
        }
    }

    /// Whether a new message has an id that named nothing before.
    fn fresh_id(
        &self,
        this: Message64,
        id: Option<&str>,
        old: &HashMap<u64, Box<str>>,
        findings: &mut Vec<(Outcome, String)>,
    ) -> bool {
        let (Some(digest), Some(id)) = (this.id, id) else { return true };
        if self.places.contains_key(&digest) {
            findings.push((Outcome::RestartedIds, format!("the id {id} named another event of this stream before")));
            return false;
        }
        if let Some(call) = old.get(&digest) {
            findings.push((Outcome::RestartedIds, format!("the id {id} named an event of call {call} before")));
            return false;
        }
        true
    }

    fn message(&mut self, data: &str, fresh: bool, findings: &mut Vec<(Outcome, String)>) -> Seen {
        match Message::read(data) {
            Message::Tick(tick) => self.tick(&tick, fresh, findings),
            Message::Answer { id, result } => {
                if *id != *self.sent.id {
                    findings.push((Outcome::ForeignEvent, format!("an answer to {id} on the stream of call {}", self.sent.id)));
                    return Seen::Other;
                }
                if self.fate != Fate::Open {
                    findings.push((Outcome::Duplicate, format!("a second answer to call {}", self.sent.id)));
                    return Seen::Other;
                }
                self.fate = Fate::Answered;
                self.result(result.as_ref(), findings);
                Seen::Answer
            }
            Message::Error { id, code } => {
                if id.as_deref().is_some_and(|id| *id != *self.sent.id) {
                    let id = id.unwrap_or_default();
                    findings.push((Outcome::ForeignEvent, format!("an error for {id} on the stream of call {}", self.sent.id)));
                    return Seen::Other;
                }
                if self.fate != Fate::Open {
                    findings.push((Outcome::Duplicate, format!("an error after the answer to call {}", self.sent.id)));
                    return Seen::Other;
                }
                self.fate = if code == message::OUTCOME_UNKNOWN { Fate::Unknown } else { Fate::Failed };
                Seen::Answer
            }
            Message::Other => Seen::Other,
        }
    }

    fn tick(&mut self, tick: &Tick, fresh: bool, findings: &mut Vec<(Outcome, String)>) -> Seen {
        let Expected::Ticks { count, .. } = self.sent.expected else { return Seen::Other };
        let number = tick.number;
        if tick.token.as_ref().is_some_and(|token| **token != *self.sent.token) {
            let token = tick.token.as_deref().unwrap_or_default();
            findings.push((Outcome::ForeignEvent, format!("tick {number} of {token} on the stream of {}", self.sent.token)));
            return Seen::Other;
        }
        let next = self.next_tick;
        if number < next {
            if let Some(late) = self.missing.iter().position(|&missing| missing == number) {
                self.missing.remove(late);
                findings.push((Outcome::Reorder, format!("tick {number} came after tick {}", next - 1)));
                return Seen::Tick(number);
            }
            if fresh && number == 1 {
                findings.push((
                    Outcome::DoubleExecution,
                    format!("the call ticks from 1 again, under new ids, after tick {}", next - 1),
                ));
            } else {
                findings.push((Outcome::Duplicate, format!("tick {number} came again after tick {}", next - 1)));
            }
            return Seen::Other;
        }
        if number > count {
            findings.push((Outcome::WrongResult, format!("tick {number} of a call that asked for {count}")));
        }
        let missing = u64::from(number - next);
        if missing > 0 && fresh && !self.excuses(missing) {
            self.missing.extend((next..number).take(1_000));
        }
        self.next_tick = number.saturating_add(1);
        Seen::Tick(number)
    }

    /// The result is the last word: whatever is missing now does not come any more.
    fn result(&mut self, result: Option<&message::TickerResult>, findings: &mut Vec<(Outcome, String)>) {
        let Expected::Ticks { count, ref key } = self.sent.expected else { return };
        let Some(result) = result else {
            findings.push((Outcome::WrongResult, "the result does not say ticks, key and executions".to_owned()));
            return;
        };
        if *result.key != **key {
            findings.push((Outcome::ForeignEvent, format!("the result of {}, where {key} was called", result.key)));
            return;
        }
        if result.ticks != count {
            findings.push((Outcome::WrongResult, format!("the result says {} ticks, {count} were asked for", result.ticks)));
        }
        if result.executions > 1 {
            findings.push((Outcome::DoubleExecution, format!("the call was sent once and ran {} times", result.executions)));
        }
        let tail = u64::from((count + 1).saturating_sub(self.next_tick));
        if tail > 0 && !self.excuses(tail) {
            self.missing.extend((self.next_tick..=count).take(1_000));
        }
        if let Some(text) = gap(&self.missing) {
            findings.push((Outcome::SilentGap, text));
        }
        self.missing.clear();
    }
}

/// What to say of missing ticks.
fn gap(missing: &[u32]) -> Option<String> {
    let first = missing.first()?;
    Some(match missing.len() {
        1 => format!("tick {first} never came, and no resync said so"),
        many => format!("{many} ticks from {first} on never came, and no resync said so"),
    })
}

/// An item as a transcript has it.
struct Line<'a>(&'a Item<'a>);

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Item { event, id, data } = self.0;
        if let Some(id) = id {
            write!(f, "id: {id} ")?;
        }
        if *event != "message" {
            write!(f, "event: {event} ")?;
        }
        data.map_or(Ok(()), |data| write!(f, "data: {data}"))
    }
}

#[cfg(test)]
mod tests;
