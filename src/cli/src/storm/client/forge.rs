//! Cursors that a client should not show, each on a connection of its own before the session comes back with the right one.
//!
//! Never counts a refusal for less than it is: whatever the status, a 4xx without a stream is the right answer to a bad cursor.

use std::time::{Duration, Instant};

use super::super::measure::ErrorKind;
use super::super::net::{Arrived, Conn};
use super::super::truth::Outcome;
use super::super::wire::Heard;
use super::{ANSWER, CONNECT, Client};
use crate::storm::script::Forgery;

/// How long a stream that a stale cursor got is read: it is a replay, and comes at once.
const READ: Duration = Duration::from_millis(300);

impl Client {
    /// Shows a bad cursor, and judges the answer.
    pub(super) async fn forge(&mut self, forgery: Forgery) {
        let Some(cursor) = self.bad_cursor(forgery) else { return };
        let now = Instant::now();
        self.oracle.note(self.thread.ms(now), '>', format_args!("GET Last-Event-ID: {cursor} ({forgery:?})"));
        let request = self.thread.storm.target.get(self.of(Some(&cursor)));
        if !self.thread.may_send() {
            return;
        }
        let status = match self.show(&request, &cursor, forgery == Forgery::Stale).await {
            Ok(status) => status,
            Err(kind) => return self.thread.record(|recorder| recorder.error(Instant::now(), kind)),
        };
        if forgery == Forgery::Stale {
            return;
        }
        match status {
            400..=499 => self.thread.count(|tally| tally.refusals += 1),
            200..=299 => {
                let text = format!("a cursor that this session never had ({forgery:?}: {cursor}) was answered with {status}");
                self.tell(Outcome::BadCursorTaken, text);
            }
            // Too busy to look at it, or broken: neither a refusal nor a violation.
            _ => {}
        }
    }

    fn bad_cursor(&mut self, forgery: Forgery) -> Option<Box<str>> {
        let own = self.cursor.as_deref()?;
        match forgery {
            Forgery::Garbage => Some("%%no-cursor%%".into()),
            Forgery::Stale => self.past.front().cloned(),
            Forgery::Foreign => {
                let cursor = self.thread.foreign(self.index, &mut self.rng)?;
                // Where ids are so short that two sessions have the same, this is the session's own.
                (*cursor != *own && !self.past.contains(&cursor)).then_some(cursor)
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

    /// Sends the request on a connection of its own; gives the status. A stream is read where the oracle knows what must follow.
    async fn show(&mut self, request: &[u8], cursor: &str, genuine: bool) -> Result<u16, ErrorKind> {
        let opened = Conn::open(self.thread.storm.target.address, self.index, false, CONNECT).await;
        let mut conn = opened.map_err(|error| ErrorKind::of_connect(&error))?;
        self.thread.record(|recorder| recorder.connected(Instant::now()));
        let sent = conn.write(request, Instant::now() + ANSWER).await.map_err(|error| ErrorKind::of(&error));
        let status = match sent {
            Ok(()) => self.read_shown(&mut conn, cursor, genuine).await,
            Err(kind) => Err(kind),
        };
        conn.cut(super::timeline::Breaks::Rst);
        self.thread.record(|recorder| recorder.disconnected(Instant::now()));
        status
    }

    async fn read_shown(&mut self, conn: &mut Conn, cursor: &str, genuine: bool) -> Result<u16, ErrorKind> {
        let (mut status, mut over) = (None, false);
        let mut until = Instant::now() + ANSWER;
        let thread = std::rc::Rc::clone(&self.thread);
        while !over && Instant::now() < until {
            let arrived = thread.with_buffer(|buffer| {
                let arrived = conn.read(buffer);
                let now = Instant::now();
                let mut hear = |heard: Heard<'_>| match heard {
                    Heard::Head(head) => {
                        self.oracle.note(thread.ms(now), '<', format_args!("HTTP {}", head.status));
                        status = Some(head.status);
                        over = !(genuine && head.stream);
                        if genuine && head.stream {
                            until = now + READ;
                            self.oracle.opened(Some(cursor));
                        }
                    }
                    Heard::Item(item) if genuine => {
                        self.oracle.item(thread.ms(now), item);
                        if let Some(id) = item.id.filter(|id| !id.is_empty()) {
                            // New events may come on this connection too; what is the newest is the oracle's to say.
                            if self.oracle.is_newest(id) {
                                self.cursor = Some(id.into());
                            }
                        }
                    }
                    Heard::End => over = true,
                    _ => {}
                };
                match &arrived {
                    Arrived::Bytes(count) => conn.answers.push(&buffer[..*count], &mut hear).map_err(|_| ErrorKind::BadAnswer)?,
                    Arrived::End => over = true,
                    Arrived::Gone | Arrived::Nothing => {}
                }
                Ok(arrived)
            })?;
            match arrived {
                Arrived::Bytes(_) => {}
                Arrived::Nothing => {
                    conn.readable(until).await;
                }
                Arrived::End | Arrived::Gone => break,
            }
        }
        status.ok_or(ErrorKind::ClosedEarly)
    }
}
