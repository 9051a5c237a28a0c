//! What a client asks: the GET table's rows 4 to 14, and DELETE, in the order of the boundary page; POSTs go to `post`.
//!
//! Never writes a stream's events; hands connections to `serve`.

use std::sync::Arc;

use crate::canary::{self, Canary};
use crate::connection::{Form, Judged, Request};
use crate::http::{Head, Method};
use crate::ids::{ConnId, Cursor, CursorError, Position, Principal, SessionId, ShardIndex, SlotIndex, StreamNumber};
use crate::incarnations::Liveness;
use crate::mcp::{Id, Revision};
use crate::refusal::{Ended, Refusal};
use crate::resume::{self, Verdict};

use super::counters::Resumed;
use super::io::Output;
use super::reply::Whole;
use super::serve::Attach;
use super::{Finished, Shard, Turn};

/// Where a live session is.
enum Place {
    Here(SlotIndex),
    Elsewhere(ShardIndex),
}

impl Shard {
    /// A whole request came in.
    pub(super) fn request(&mut self, conn: ConnId, request: Request, turn: &mut Turn<'_>) {
        let origin = match request.judged {
            Judged::Refused(Refusal::Forbidden(_) | Refusal::BadRequest(_), _) => None,
            _ => self.config.names.origin_of(&request.head).map(Into::into),
        };
        let Some(connection) = self.connection(conn) else { return };
        connection.reply.origin = origin;
        let principal = match &request.judged {
            Judged::Admitted(principal) => principal.clone(),
            Judged::Preflight => {
                connection.consume(&request);
                return self.answer_preflight(conn);
            }
            Judged::Refused(refusal, challenge) => {
                connection.consume(&request);
                return self.refuse(conn, *refusal, challenge.as_deref(), None);
            }
        };
        match request.head.method() {
            Method::Get => self.get(conn, &request, &principal, turn),
            Method::Post => {
                turn.head = self.config.heads.then(|| Arc::new(request.head.clone()));
                turn.traceparent = traceparent(&request.head);
                self.post(conn, &request, principal, turn);
                (turn.head, turn.traceparent) = (None, None);
            }
            _ => self.delete(conn, &request, &principal, turn),
        }
    }

    fn consume(&mut self, conn: ConnId, request: &Request) {
        if let Some(connection) = self.connection(conn) {
            connection.consume(request);
        }
    }

    pub(super) fn refuse_request(&mut self, conn: ConnId, request: &Request, refusal: Refusal, id: Option<&Id>) {
        self.consume(conn, request);
        self.refuse(conn, refusal, None, id);
    }

    /// Moves a connection to the shard where its request must be served.
    pub(super) fn hand_off(&mut self, conn: ConnId, to: ShardIndex, placed: bool, turn: &mut Turn<'_>) {
        let Some(connection) = self.connection(conn) else { return };
        let bytes = connection.take_input();
        self.counters.handoffs += 1;
        self.drop_connection(conn, turn);
        turn.out.push(Output::Handoff { conn, to, bytes, placed });
    }

    // ---- rows 4 to 6, shared by GET and POST ----

    /// Row 4: the revision that a request names.
    pub(super) fn check_revision(&self, head: &Head, get: bool) -> Result<Option<Revision>, Refusal> {
        let value = match head.single("mcp-protocol-version") {
            Ok(None) => return Ok(None),
            Ok(Some(value)) => value,
            Err(_) => return Err(Refusal::UnsupportedRevision),
        };
        match Revision::parse(value) {
            Some(revision) if revision.rules().sessions => Ok(Some(revision)),
            Some(_) if get => Err(Refusal::MethodNotAllowed),
            _ => Err(Refusal::UnsupportedRevision),
        }
    }

    /// Row 4 again, where only the session can tell: a revision without this transport is named in its own sessions only.
    pub(super) fn check_named(&self, slot: SlotIndex, named: Option<Revision>) -> Result<(), Refusal> {
        let negotiated = self.session(slot).and_then(|session| session.revision);
        match named {
            Some(revision) if !revision.rules().streamable && negotiated != named => Err(Refusal::UnsupportedRevision),
            _ => Ok(()),
        }
    }

    /// Rows 5 and 6.
    fn find_session(&self, head: &Head, principal: &Principal, turn: &Turn<'_>) -> Result<Place, Refusal> {
        let unknown = Refusal::SessionExpired(Ended::Unknown);
        let text = head.single("mcp-session-id").map_err(|_| unknown)?.ok_or(Refusal::SessionRequired)?;
        let id = SessionId::parse(text, &self.config.key).map_err(|_| unknown)?;
        let tag = self.config.key.principal_tag(principal.as_str());
        let here = id.shard() == self.config.shard;
        let liveness = if here { self.writer.table().look_up(&id, tag) } else { turn.world.liveness(&id, tag) };
        match liveness {
            Liveness::Live if here => Ok(Place::Here(id.slot())),
            Liveness::Live => Ok(Place::Elsewhere(id.shard())),
            Liveness::Ended(why) => Err(Refusal::SessionExpired(why)),
        }
    }

    /// The slot of the request's session if it is here; otherwise the request is refused or on its way already.
    pub(super) fn place(
        &mut self,
        conn: ConnId,
        request: &Request,
        principal: &Principal,
        id: Option<&Id>,
        turn: &mut Turn<'_>,
    ) -> Option<SlotIndex> {
        match self.find_session(&request.head, principal, turn) {
            Ok(Place::Here(slot)) => {
                self.consume(conn, request);
                let now = turn.now;
                self.session_mut(slot)?.last_active = now;
                Some(slot)
            }
            Ok(Place::Elsewhere(shard)) => {
                self.hand_off(conn, shard, false, turn);
                None
            }
            Err(refusal) => {
                self.refuse_request(conn, request, refusal, id);
                None
            }
        }
    }

    // ---- GET ----

    fn get(&mut self, conn: ConnId, request: &Request, principal: &Principal, turn: &mut Turn<'_>) {
        let named = match self.check_revision(&request.head, true) {
            Ok(named) => named,
            Err(refusal) => return self.refuse_request(conn, request, refusal, None),
        };
        let Some(slot) = self.place(conn, request, principal, None, turn) else { return };
        if let Err(refusal) = self.check_named(slot, named) {
            return self.refuse(conn, refusal, None, None);
        }
        if self.drain.is_some() {
            return self.refuse(conn, Refusal::SHUTTING_DOWN, None, None);
        }
        let Some(session) = self.session(slot) else { return };
        let presented = match self.cursor(&request.head, &session.id) {
            Ok(presented) => presented,
            Err(refusal) => return self.refuse(conn, refusal, None, None),
        };
        let number = presented.map_or(StreamNumber::STANDALONE, |cursor| cursor.stream());
        let retained = session.retained(&self.log, number, presented.map(|cursor| cursor.position()));
        let verdict = resume::decide(presented, &retained);
        self.acknowledge(slot, presented, &verdict);
        match verdict {
            Verdict::Refused(why) => self.refuse(conn, Refusal::SessionExpired(why), None, None),
            Verdict::LostTail => {
                self.refuse(conn, Refusal::SessionExpired(Ended::Lineage), None, None);
                self.end_session(slot, Ended::Lineage, turn);
            }
            Verdict::Complete => {
                self.counters.verdicts[Resumed::Complete] += 1;
                match self.config.finished {
                    Finished::NoContent => self.answer_empty(conn, 204, Some(Resumed::Complete.as_str())),
                    Finished::MethodNotAllowed => {
                        let fields = [("Allow", "POST, DELETE, OPTIONS")];
                        let answer = Whole {
                            status: 405,
                            json: false,
                            verdict: Some(Resumed::Complete.as_str()),
                            fields: &fields,
                            body: &[],
                        };
                        self.answer(conn, &answer);
                    }
                }
            }
            Verdict::Tail { from } => {
                self.resume(conn, slot, number, (from, presented), Resumed::Tail, turn);
            }
            Verdict::Replay { from } => {
                let early = canary::bites(Canary::EventTwice) && from.get() % 10 == 5;
                let from = if early { from.previous() } else { from };
                self.resume(conn, slot, number, (from, presented), Resumed::Replay, turn);
            }
            Verdict::Resync { from, .. } => {
                self.resume(conn, slot, number, (from, presented), Resumed::Resync, turn);
            }
        }
    }

    /// Row 7.
    fn cursor(&self, head: &Head, session: &SessionId) -> Result<Option<Cursor>, Refusal> {
        let text = match head.single("last-event-id") {
            Ok(None) => return Ok(None),
            Ok(Some(text)) => text,
            Err(_) => return Err(Refusal::InvalidCursor("Last-Event-ID was sent twice")),
        };
        let parsed = Cursor::parse(text, &self.config.key, session);
        parsed.map(Some).map_err(|error| {
            Refusal::InvalidCursor(match error {
                CursorError::Length => "Last-Event-ID is empty or too long for a cursor",
                CursorError::Malformed => "Last-Event-ID is not a cursor of this server",
                CursorError::NotAuthentic => "Last-Event-ID is not a cursor of this session",
            })
        })
    }

    /// A cursor presented acknowledges what is before it.
    fn acknowledge(&mut self, slot: SlotIndex, presented: Option<Cursor>, verdict: &Verdict) {
        if matches!(verdict, Verdict::Refused(_) | Verdict::LostTail) {
            return;
        }
        let Some(cursor) = presented else { return };
        let Some(session) = self.session_mut(slot) else { return };
        session.brought(cursor.stream(), cursor.position());
        if let Some(ring) = session.stream(cursor.stream()).and_then(|stream| stream.ring) {
            self.log.acknowledge(ring, cursor.position());
        }
    }

    /// Rows 11, 13 and 14: the stream goes on, on this connection alone.
    fn resume(
        &mut self,
        conn: ConnId,
        slot: SlotIndex,
        stream: StreamNumber,
        (position, presented): (Position, Option<Cursor>),
        verdict: Resumed,
        turn: &mut Turn<'_>,
    ) {
        self.counters.verdicts[verdict] += 1;
        self.take_over(slot, stream, turn);
        self.attach(conn, Attach { slot, stream, position, form: Form::Sse, joined: false }, turn);
        self.open_stream(conn, presented, Some(verdict.as_str()), turn);
    }

    // ---- DELETE ----

    fn delete(&mut self, conn: ConnId, request: &Request, principal: &Principal, turn: &mut Turn<'_>) {
        // 2026-07-28, Streamable HTTP, "Earlier Streamable HTTP Revisions": "HTTP GET or DELETE to the MCP endpoint: respond with
        // `405 Method Not Allowed`."
        if self.config.exchanges
            && let Err(refusal @ Refusal::MethodNotAllowed) = self.check_revision(&request.head, true)
        {
            return self.refuse_request(conn, request, refusal, None);
        }
        let Some(slot) = self.place(conn, request, principal, None, turn) else { return };
        let calls = self.session(slot).map_or(0, |session| session.calls.len());
        if !(canary::bites(Canary::DeadSessionLives) && calls == 2) {
            self.end_session(slot, Ended::Deleted, turn);
        }
        self.answer_empty(conn, 204, None);
    }
}

/// The field by which a caller says where in its trace it is. What it says is for whoever reads it to check.
fn traceparent(head: &Head) -> Option<Arc<str>> {
    let value = head.single("traceparent").ok().flatten()?;
    std::str::from_utf8(value).ok().map(Arc::from)
}
