//! Streams: what their events mean, how one is lost, and how it is returned to.
//!
//! Never believes an event before its lineage did, and never returns to a call's stream without an id to continue from.

use std::time::Duration;

use super::Client;
use super::config::{Limits, Returns};
use super::conn::Errand;
use super::io::{ConnId, Event, EventSeen, StreamKey, Turn};
use super::lineage::{Lineage, Step};
use super::outcome::{Gap, Loss, StreamEnd, Unknown, Violation};
use super::{State, StreamView};
use crate::http::is_control;
use crate::ids::Place;
use crate::mcp;
use crate::sse::Item;
use crate::time::Instant;

/// A stream, as far as the client knows it.
#[derive(Debug)]
pub(super) struct Stream {
    lineage: Lineage,
    /// The id to come back with; empty: none.
    last_id: String,
    /// What the server last said of how long to wait.
    pub retry: Option<Duration>,
    pub phase: Phase,
    /// Attempts in a row that did not get the stream.
    failures: u32,
    /// Answers that could not be read, over its whole life: a server that garbles each must not be asked for ever.
    garbled: u32,
}

/// Where a stream is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Phase {
    /// On a connection.
    Attached(ConnId),
    /// Asked for on a connection.
    Asking(ConnId),
    /// Lost, and to be asked for then; `None`: when the caller says so.
    Waiting(Option<Instant>),
    /// Its connection is gone, and what follows from that is being decided.
    Loose,
}

impl Stream {
    /// A stream of which nothing has come.
    pub(super) fn new(key: StreamKey) -> Self {
        Self {
            lineage: Lineage::new(key == StreamKey::Standalone),
            last_id: String::new(),
            retry: None,
            phase: Phase::Loose,
            failures: 0,
            garbled: 0,
        }
    }

    /// One that was lost behind this event.
    pub(super) fn left_behind(key: StreamKey, last_id: &str) -> Self {
        let lineage = Lineage::behind(key == StreamKey::Standalone, last_id);
        Self { lineage, last_id: last_id.to_owned(), phase: Phase::Waiting(None), ..Self::new(key) }
    }

    pub(super) fn view(&self, stream: StreamKey) -> StreamView<'_> {
        StreamView {
            stream,
            conn: self.conn(),
            last_id: Some(&*self.last_id).filter(|id| !id.is_empty()),
            returns_at: match self.phase {
                Phase::Waiting(at) => at,
                Phase::Attached(_) | Phase::Asking(_) | Phase::Loose => None,
            },
            retry: self.retry,
            failures: self.failures,
        }
    }

    pub(super) fn conn(&self) -> Option<ConnId> {
        self.phase.conn()
    }

    /// The id to come back with.
    pub(super) fn last_id(&self) -> &str {
        &self.last_id
    }

    /// A connection carries it on.
    pub(super) fn attached(&mut self, conn: ConnId) {
        self.phase = Phase::Attached(conn);
        self.failures = 0;
        self.lineage.resume();
    }

    /// Its connection is gone.
    pub(super) fn loosen(&mut self) {
        if matches!(self.phase, Phase::Asking(_)) {
            self.failures += 1;
        }
        self.phase = Phase::Loose;
    }
}

impl Client {
    /// One event of a stream, or an id without one; whether nothing more of its connection is wanted.
    pub(super) fn item(&mut self, seen: &EventSeen<'_>, turn: &mut Turn<'_>) -> bool {
        let &EventSeen { stream: key, name, id, .. } = seen;
        // Without data an event's name means nothing.
        let (data, resync) = (seen.data.unwrap_or_default(), seen.data.is_some() && name == "resync");
        let (memory, longest, life) = (self.config.limits.seen_ids, self.config.limits.id_bytes, self.life);
        let Some(stream) = self.stream_mut(key) else { return true };
        if !id.is_none_or(|id| is_usable_id(id, longest)) {
            return self.violated(key, Violation::UnusableId, turn);
        }
        let step = Step { id, empty: data.is_empty(), resync };
        if let Err(violation) = stream.lineage.admit(step, &stream.last_id, life, memory) {
            return self.violated(key, violation, turn);
        }
        if let Some(id) = id {
            stream.last_id.clear();
            stream.last_id.push_str(id);
        }
        let place = stream.lineage.place();
        if let Some(place) = place.filter(|place| life.is_none_or(|life| place.incarnation > life)) {
            self.life = Some(place.incarnation);
        }
        if resync && place.is_some() {
            turn.event(Event::Gap { stream: key, gap: gap(data) });
        } else if name == "message" && !data.is_empty() {
            return self.message_text(key, data, turn);
        }
        false
    }

    /// A stream broke its order: nothing more of it is believed. Always true.
    pub(super) fn violated(&mut self, key: StreamKey, violation: Violation, turn: &mut Turn<'_>) -> bool {
        turn.event(Event::ContinuityViolated { stream: key, violation });
        match key {
            StreamKey::Standalone => self.end_standalone(StreamEnd::Violated, turn),
            StreamKey::Call(call) => self.give_up(call, Unknown::Violated(violation), turn),
        }
        true
    }

    /// A stream has no connection any more.
    pub(super) fn lost(&mut self, key: StreamKey, why: Loss, not_before: Option<Duration>, turn: &mut Turn<'_>) {
        if let Some(call) = key.call()
            && self.unanswered(call).is_none()
        {
            return self.drop_call(call, turn);
        }
        let (limits, returns) = (self.config.limits.clone_waits(), self.config.returns);
        let Some(stream) = self.stream_mut(key) else { return };
        if let Loss::Unreadable(_) = why {
            stream.garbled += 1;
        }
        if let Some(call) = key.call()
            && stream.last_id.is_empty()
        {
            let unknown = match why {
                Loss::Unreadable(bad) => Unknown::Unreadable(bad),
                why => Unknown::Lost(why),
            };
            return self.give_up(call, unknown, turn);
        }
        let returns_at = match returns {
            Returns::ByCaller => None,
            Returns::ByRetry if stream.failures.max(stream.garbled) >= limits.attempts => {
                return match key {
                    StreamKey::Standalone => self.end_standalone(StreamEnd::GaveUp(why), turn),
                    StreamKey::Call(call) => self.give_up(call, Unknown::GaveUp(why), turn),
                };
            }
            Returns::ByRetry => {
                let wait = limits.wait(stream.retry, stream.failures, (turn.random)());
                Some(turn.now + wait.max(not_before.unwrap_or_default().min(limits.retry_max)))
            }
        };
        stream.phase = Phase::Waiting(returns_at);
        turn.event(Event::Lost { stream: key, why, returns_at });
    }

    /// The standalone stream is over.
    pub(super) fn end_standalone(&mut self, why: StreamEnd, turn: &mut Turn<'_>) {
        let Some(stream) = self.standalone.take() else { return };
        if let Some(conn) = stream.conn() {
            self.close(conn, turn);
        }
        turn.event(Event::StreamEnded { why });
    }

    pub(super) fn return_at(&mut self, key: StreamKey, at: Instant) {
        if let Some(stream) = self.stream_mut(key)
            && let Phase::Waiting(_) = stream.phase
        {
            stream.phase = Phase::Waiting(Some(at));
        }
    }

    /// Asks for a lost stream.
    pub(super) fn resume(&mut self, key: StreamKey, turn: &mut Turn<'_>) {
        let Some(stream) = self.stream(key) else { return };
        let request = self.resume_request(stream.last_id());
        let conn = self.send(Errand::Resume(key), request, turn);
        if let Some(stream) = self.stream_mut(key) {
            stream.phase = Phase::Asking(conn);
        }
    }

    pub(super) fn listen(&mut self, turn: &mut Turn<'_>) {
        if self.state != State::Ready {
            return;
        }
        if self.standalone.is_none() {
            let mut stream = Stream::new(StreamKey::Standalone);
            stream.phase = Phase::Waiting(None);
            self.standalone = Some(Box::new(stream));
        }
        self.return_at(StreamKey::Standalone, turn.now);
    }
}

/// What an item of a stream shows, if it is more than a sign of life.
pub(super) fn seen(conn: ConnId, stream: StreamKey, item: Item<'_>) -> Option<EventSeen<'_>> {
    let (id, data, name) = match item {
        Item::Comment => return None,
        Item::Block(block) => (Some(block.id?), None, block.event.unwrap_or("message")),
        Item::Event(event) => (event.has_own_id.then_some(event.id), Some(event.data), event.event),
    };
    Some(EventSeen { conn, stream, name, id, place: id.and_then(Place::peek), data })
}

/// Whether an id can be kept, and sent back in a header.
pub(super) fn is_usable_id(id: &str, max_bytes: usize) -> bool {
    id.len() <= max_bytes && !id.bytes().any(is_control)
}

/// The part of the limits that says how long to wait.
pub(super) struct Waits {
    retry: Duration,
    retry_min: Duration,
    retry_max: Duration,
    pub attempts: u32,
}

impl Limits {
    pub(super) fn clone_waits(&self) -> Waits {
        Waits { retry: self.retry, retry_min: self.retry_min, retry_max: self.retry_max, attempts: self.attempts }
    }
}

/// Most that a wait grows by chance, in parts of itself: a thousand clients that were cut together must not come back together, and none
/// of them earlier than it was told.
const SPREAD: u32 = 10;

impl Waits {
    /// How long to wait: what the server said, doubled for each attempt that failed, and up to a tenth more by chance; after failures up
    /// to twice as long.
    pub(super) fn wait(&self, retry: Option<Duration>, failures: u32, random: u64) -> Duration {
        let base = retry.unwrap_or(self.retry).clamp(self.retry_min, self.retry_max);
        let backed_off = base.saturating_mul(1 << failures.min(16)).min(self.retry_max);
        let spread = if failures == 0 { backed_off / SPREAD } else { backed_off };
        // 2¹⁶ steps are fine enough.
        backed_off + spread.saturating_mul((random & 0xffff) as u32) / 0x10000
    }
}

/// What a `resync` says; a field of another type is not known.
fn gap(data: &str) -> Gap {
    let text = |name| mcp::text_at(data, &[name]).map(|text| text.as_ref().into());
    let lost = mcp::integer_at(data, &["lost"]).and_then(|lost| u64::try_from(lost).ok());
    Gap { requested: text("requested"), earliest: text("earliest"), lost, reason: text("reason") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wait_is_never_shorter_than_retry_and_doubles_with_failures() {
        let waits = Limits::default().clone_waits();
        let retry = Some(Duration::from_millis(500));
        assert_eq!(waits.wait(retry, 0, 0), Duration::from_millis(500));
        assert!(waits.wait(retry, 0, u64::MAX) < Duration::from_millis(550));
        assert_eq!(waits.wait(retry, 3, 0), Duration::from_secs(4));
        assert!(waits.wait(retry, 3, u64::MAX) < Duration::from_secs(8));
        assert_eq!(waits.wait(retry, u32::MAX, 0), waits.retry_max);
        assert_eq!(waits.wait(Some(Duration::ZERO), 0, 0), waits.retry_min);
        assert_eq!(waits.wait(Some(Duration::MAX), 0, 0), waits.retry_max);
        assert_eq!(waits.wait(None, 0, 0), waits.retry);
    }
}
