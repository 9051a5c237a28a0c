//! The GET table from row 3 on, and DELETE.
//!
//! Never writes: what it decides is a plan that `serve` carries out.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::http::Request;
use super::keys::{Place, spelled};
use super::log::Next;
use super::reply::{Reason, Refusal, Reply};
use super::serve::{Attachment, Plan};
use super::state::{Key, Session, State};
use super::{Answer, Fault, Shared};

/// Takeovers closer together than this double the loser's `retry`.
const TAKEOVER_WINDOW: Duration = Duration::from_secs(10);

/// Where a GET goes on: a stream, a position, and the cursor that was presented.
struct Wanted {
    nonce: u128,
    key: Key,
    from: u64,
    cursor: Option<String>,
}

/// Whether a list of media ranges admits a type.
pub(super) fn admits(request: &Request, kind: &str, subtype: &str) -> bool {
    let ranges = request.list("Accept");
    // RFC 9110, 12.5.1: a request without the field takes any type.
    ranges.is_empty()
        || ranges.iter().any(|range| {
            let mut parts = range.split(';').map(str::trim);
            let named = parts.next().unwrap_or_default();
            let refused = parts.any(|parameter| {
                parameter.strip_prefix("q=").is_some_and(|weight| weight.trim().parse::<f64>().is_ok_and(|weight| weight == 0.0))
            });
            !refused && (named == "*/*" || named == format!("{kind}/*") || named == format!("{kind}/{subtype}"))
        })
}

impl Shared {
    /// Answers a GET.
    pub(super) fn get(self: &Arc<Self>, request: &Request, principal: &str) -> Result<Answer, Refusal> {
        if !admits(request, "text", "event-stream") {
            return Err(Refusal::NotAcceptable);
        }
        self.revision(request)?;
        let mut state = self.state();
        let nonce = self.session(&mut state, request, principal)?;
        let wanted = self.wanted(&mut state, nonce, request)?;
        let session = state.sessions.get_mut(&wanted.nonce).ok_or(Refusal::Expired(Reason::Unknown))?;
        self.open(session, wanted)
    }

    /// Rows 7 to 10 and 14: which stream, and from where.
    fn wanted(&self, state: &mut State, nonce: u128, request: &Request) -> Result<Wanted, Refusal> {
        let cursors = request.all("Last-Event-ID");
        let session = state.sessions.get(&nonce).ok_or(Refusal::Expired(Reason::Unknown))?;
        let cursor = match cursors[..] {
            [] => None,
            [""] if self.has(Fault::AcceptsEmptyCursor) => None,
            [cursor] => Some(cursor),
            [first, ..] if self.has(Fault::AcceptsDoubledCursor) => Some(first),
            _ => return Err(Refusal::InvalidCursor),
        };
        let Some(cursor) = cursor else { return Ok(self.standalone(session, nonce)) };
        let place = match self.keys.place(&session.id, cursor) {
            Some(place) => place,
            None => return self.unverified(state, nonce, cursor),
        };
        let Place { incarnation, stream, position } = place;
        let wanted = Wanted { nonce, key: (incarnation, stream), from: position, cursor: Some(cursor.to_owned()) };
        if incarnation != session.incarnation {
            return if self.has(Fault::IgnoresIncarnation) {
                Ok(self.standalone(session, nonce))
            } else {
                Err(Refusal::Expired(Reason::Incarnation))
            };
        }
        let beyond = match session.streams.get(&wanted.key) {
            Some(held) => position > held.last(),
            None if stream < session.next => return Err(Refusal::Expired(Reason::Forgotten)),
            None => true,
        };
        match (beyond, session.streams.get(&wanted.key)) {
            (false, _) => Ok(wanted),
            (true, _) if session.adopted => Ok(self.standalone(session, nonce)),
            (true, Some(held)) if self.has(Fault::AcceptsFutureCursor) => Ok(Wanted { from: held.last(), ..wanted }),
            (true, _) => {
                state.end(nonce, Reason::Lineage);
                self.said.notify_all();
                Err(Refusal::Expired(Reason::Lineage))
            }
        }
    }

    /// Row 14.
    fn standalone(&self, session: &Session, nonce: u128) -> Wanted {
        let key = session.standalone();
        let stream = &session.streams[&key];
        let from = if self.has(Fault::ForgetsUnheard) { stream.last() } else { stream.written };
        Wanted { nonce, key, from, cursor: None }
    }

    /// Row 7 for a cursor that was not issued for this session, and the ways to get it wrong.
    fn unverified(&self, state: &State, nonce: u128, cursor: &str) -> Result<Wanted, Refusal> {
        let session = state.sessions.get(&nonce).ok_or(Refusal::InvalidCursor)?;
        match self.fault {
            Some(Fault::GarbageCursorNewStream) if !cursor.is_empty() && spelled(cursor).is_none() => {
                return Ok(self.standalone(session, nonce));
            }
            Some(Fault::AcceptsFutureCursor) => {
                let place = spelled(cursor).map(|(place, _)| place);
                let place = place.filter(|place| place.incarnation == session.incarnation);
                if let Some((key, place)) = place.map(|place| ((place.incarnation, place.stream), place))
                    && let Some(stream) = session.streams.get(&key).filter(|stream| place.position > stream.last())
                {
                    return Ok(Wanted { nonce, key, from: stream.last(), cursor: Some(cursor.to_owned()) });
                }
            }
            Some(Fault::LeaksForeignStream) => {
                for (&nonce, other) in &state.sessions {
                    if let Some(place) = self.keys.place(&other.id, cursor)
                        && let key = (place.incarnation, place.stream)
                        && other.streams.contains_key(&key)
                    {
                        return Ok(Wanted { nonce, key, from: place.position, cursor: Some(cursor.to_owned()) });
                    }
                }
            }
            _ => {}
        }
        Err(Refusal::InvalidCursor)
    }

    /// Rows 11 to 14: takes the stream over.
    fn open(self: &Arc<Self>, session: &mut Session, wanted: Wanted) -> Result<Answer, Refusal> {
        let Wanted { nonce, key, mut from, cursor } = wanted;
        let resumed = cursor.is_some();
        let stream = session.streams.get_mut(&key).ok_or(Refusal::Expired(Reason::Unknown))?;
        stream.evict(Instant::now(), &self.settings);
        let next = stream.after(from, false);
        let mut mute = false;
        let verdict = match next {
            Next::End if self.has(Fault::FinishedStreamHangs) => {
                mute = true;
                "tail"
            }
            Next::End if self.has(Fault::FinishedStreamEmpty) => "tail",
            Next::End => return Ok(Answer::Whole(Reply::empty(204).with("Rejoin-Verdict", "complete"))),
            Next::Gap { .. } => "resync",
            Next::Event(_) => "replay",
            Next::Nothing => "tail",
        };
        if stream.connections > 0 && stream.running() && self.has(Fault::RefusesTakeover) {
            return Err(Refusal::Conflict);
        }
        let opening = from;
        if resumed {
            match self.fault {
                Some(Fault::SilentGap) if from + 1 < stream.answer_at() => from += 1,
                Some(Fault::RepeatsCursorEvent) => from = from.saturating_sub(1),
                Some(Fault::ReplaysFromStart) => from = 0,
                _ => {}
            }
        }
        let runs_again = self.has(Fault::ResumeExecutesAgain) && resumed && stream.request.is_some() && stream.running();
        if self.has(Fault::OldConnectionKeepsEvents) && stream.connections > 0 {
            mute = true;
        } else {
            stream.generation += 1;
            if stream.connections > 0 {
                let now = Instant::now();
                let again = stream.takeovers.filter(|(last, _)| now.saturating_duration_since(*last) < TAKEOVER_WINDOW);
                stream.takeovers = Some((now, again.map_or(1, |(_, count)| count + 1)));
            }
        }
        let attachment = Attachment::new(self, nonce, key, stream);
        if runs_again {
            session.effects += 1;
        }
        self.said.notify_all();
        let plan = Plan { attachment, from, opening, cursor, fresh: false, verdict: Some(verdict), mute };
        Ok(Answer::Stream(plan))
    }

    /// Answers a DELETE.
    pub(super) fn delete(&self, request: &Request, principal: &str) -> Result<Answer, Refusal> {
        let mut state = self.state();
        let nonce = self.session(&mut state, request, principal)?;
        if !self.has(Fault::DeletedSessionLives) {
            state.end(nonce, Reason::Deleted);
        }
        self.said.notify_all();
        Ok(Answer::Whole(Reply::empty(204)))
    }
}
