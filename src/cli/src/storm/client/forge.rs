//! Cursors that a client should not show, each on a connection of its own before the session comes back with the right one.
//!
//! Never counts a refusal for less than it is: whatever the status, a 4xx without a stream is the right answer to a bad cursor.

use std::mem;
use std::time::Instant;

use rejoin_proto::client::{Client as Machine, Input, StreamKey};

use super::Client;
use super::drive::{Heard, Until};
use super::ears::Showing;
use crate::storm::script::Forgery;
use crate::storm::truth::Outcome;

impl Client {
    /// Shows a bad cursor, and judges the answer.
    pub(super) async fn forge(&mut self, forgery: Forgery) {
        let Some(cursor) = self.bad_cursor(forgery) else { return };
        self.ears.note('>', format_args!("GET Last-Event-ID: {cursor} ({forgery:?})"));
        self.ears.showing = if forgery == Forgery::Stale { Showing::Stale } else { Showing::Bad };
        self.show(&cursor, Until::Shown).await;
        self.ears.showing = Showing::Own;
        match self.ears.status {
            _ if forgery == Forgery::Stale => {}
            Some(400..=499) => self.thread.count(|tally| tally.refusals += 1),
            Some(status @ 200..=299) => {
                let text = format!("a cursor that this session never had ({forgery:?}: {cursor}) was answered with {status}");
                self.ears.oracle.tell(Outcome::BadCursorTaken, text);
            }
            // Too busy to look at it, or broken: neither a refusal nor a violation.
            _ => {}
        }
    }

    /// Shows a cursor as another machine would that takes the session up there; the session's own knows nothing of it.
    pub(super) async fn show(&mut self, cursor: &str, until: Until<'_>) -> Heard {
        let (call, config) = (self.number(0), self.thread.storm.target.config.clone());
        let own = mem::replace(&mut self.machine, Machine::numbering_from(config, call));
        let (session, wake) = (own.session_id().map(str::to_owned), self.wake.take());
        self.ears.status = None;
        let mut heard = Heard::Over;
        if let Some(revision) = own.revision() {
            self.give(Input::TakeUp { session: session.as_deref(), revision, call, last_id: cursor }).await;
            self.give(Input::Return { stream: StreamKey::Call(call), at: self.thread.moment(Instant::now()) }).await;
            heard = self.listen(until).await;
        }
        self.hang_up().await;
        (self.machine, self.wake) = (own, wake);
        heard
    }

    fn bad_cursor(&mut self, forgery: Forgery) -> Option<Box<str>> {
        let own = self.ears.cursor.as_deref()?;
        match forgery {
            Forgery::Garbage => Some("%%no-cursor%%".into()),
            Forgery::Stale => self.ears.past.front().cloned(),
            Forgery::Foreign => {
                let cursor = self.thread.foreign(self.index, &mut self.rng)?;
                // Where ids are so short that two sessions have the same, this is the session's own.
                (!self.ears.oracle.has_had(&cursor)).then_some(cursor)
            }
            Forgery::Forged => {
                let mut bytes = own.as_bytes().to_vec();
                let at = self.rng.usize(..bytes.len());
                bytes[at] = match bytes[at] {
                    b'0'..=b'8' | b'a'..=b'y' | b'A'..=b'Y' => bytes[at] + 1,
                    b'9' => b'0',
                    _ => b'a',
                };
                String::from_utf8(bytes).ok().map(Into::into)
            }
        }
    }
}
