//! What a client asks: the GET table's rows 4 to 14, POST and DELETE, in the order of the boundary page.
//!
//! Never writes a stream's events; hands connections to `serve` and calls to the handler.

use std::sync::Arc;

use bytes::Bytes;

use crate::canary::{self, Canary};
use crate::connection::{Form, Judged, Request};
use crate::http::{Head, Method};
use crate::ids::{
    CallId, ClientRequestId, ConnId, Cursor, CursorError, Position, Principal, SessionId, ShardIndex, SlotIndex, StreamNumber,
};
use crate::incarnations::Liveness;
use crate::mcp::{self, Body, Execution, Id, Message, Notification, Presented, Response, Revision};
use crate::refusal::{Ended, Refusal};
use crate::resume::{self, Verdict};
use crate::session::{AnswerState, Stream};

use super::counters::{Avoided, Resumed};
use super::io::{Cancelled, Delivery, Outcome, Output};
use super::life::Begun;
use super::reply::Whole;
use super::serve::Attach;
use super::{Finished, ResponsePolicy, Shard, Turn};

/// Where a live session is.
enum Place {
    Here(SlotIndex),
    Elsewhere(ShardIndex),
}

/// A POSTed request on its way to becoming a call.
struct Presenting<'a> {
    request: mcp::Request<'a>,
    call: CallId,
    /// Its params with our progress token, and the client's.
    params: Option<Bytes>,
    token: Option<Id>,
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
                self.post(conn, &request, principal, turn);
                turn.head = None;
            }
            _ => self.delete(conn, &request, &principal, turn),
        }
    }

    fn consume(&mut self, conn: ConnId, request: &Request) {
        if let Some(connection) = self.connection(conn) {
            connection.consume(request);
        }
    }

    fn refuse_request(&mut self, conn: ConnId, request: &Request, refusal: Refusal, id: Option<&Id>) {
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
    fn check_revision(&self, head: &Head, get: bool) -> Result<Option<Revision>, Refusal> {
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
    fn check_named(&self, slot: SlotIndex, named: Option<Revision>) -> Result<(), Refusal> {
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
    fn place(
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
        let Some(slot) = self.place(conn, request, principal, None, turn) else { return };
        let calls = self.session(slot).map_or(0, |session| session.calls.len());
        if !(canary::bites(Canary::DeadSessionLives) && calls == 2) {
            self.end_session(slot, Ended::Deleted, turn);
        }
        self.answer_empty(conn, 204, None);
    }

    // ---- POST ----

    fn post(&mut self, conn: ConnId, request: &Request, principal: Principal, turn: &mut Turn<'_>) {
        let body = match mcp::parse(&request.body, &self.config.limits) {
            Ok(body) => body,
            Err(refusal) => return self.refuse_request(conn, request, refusal, None),
        };
        let (id, batch) = match &body {
            Body::One(Message::Request(call)) if call.method == "initialize" => {
                return self.initialize(conn, request, call, principal, turn);
            }
            Body::One(Message::Request(call)) => (Some(call.id.clone()), false),
            Body::One(_) => (None, false),
            Body::Batch(messages) => {
                let initializes = |message: &Message<'_>| matches!(message, Message::Request(one) if one.method == "initialize");
                if messages.iter().any(initializes) {
                    let refusal = Refusal::InvalidRequest("initialize is not allowed in a batch");
                    return self.refuse_request(conn, request, refusal, None);
                }
                (None, true)
            }
        };
        let named = match self.check_revision(&request.head, false) {
            Ok(named) => named,
            Err(refusal) => return self.refuse_request(conn, request, refusal, id.as_ref()),
        };
        let Some(slot) = self.place(conn, request, &principal, id.as_ref(), turn) else { return };
        if let Err(refusal) = self.check_named(slot, named) {
            return self.refuse(conn, refusal, None, id.as_ref());
        }
        let revision = self.session(slot).and_then(|session| session.revision);
        if batch && !revision.is_some_and(|revision| revision.rules().batches) {
            return self.refuse(conn, Refusal::InvalidRequest("This session's revision has no batches"), None, None);
        }
        let messages = match body {
            Body::One(message) => vec![message],
            Body::Batch(messages) => messages,
        };
        self.post_messages(conn, slot, messages, batch, &request.body, turn);
    }

    fn post_messages(
        &mut self,
        conn: ConnId,
        slot: SlotIndex,
        messages: Vec<Message<'_>>,
        batch: bool,
        body: &[u8],
        turn: &mut Turn<'_>,
    ) {
        // Everything that can refuse comes before anything is executed.
        let mut calls = Vec::new();
        let mut others = Vec::new();
        for message in messages {
            match message {
                Message::Request(request) => match self.present(request) {
                    Ok(presenting) => calls.push(presenting),
                    Err((id, refusal)) => return self.refuse(conn, refusal, None, Some(&id)),
                },
                other => others.push(other),
            }
        }
        if !calls.is_empty() && self.drain.is_some() {
            return self.refuse(conn, Refusal::SHUTTING_DOWN, None, Some(&calls[0].request.id));
        }
        if batch && !self.has_room(slot, calls.len()) {
            return self.refuse(conn, Refusal::TOO_MANY_CALLS, None, None);
        }
        for other in others {
            match other {
                Message::Notification(notification) => self.notified(slot, &notification, turn),
                Message::Response(response) => self.responded(slot, &response, turn),
                Message::Request(_) => {}
            }
        }
        if calls.is_empty() {
            return self.answer_empty(conn, 202, None);
        }
        if batch {
            let body = self.config.key.body_hash(body);
            return self.begin_calls(conn, slot, calls, true, body, turn);
        }
        if let Some(calling) = calls.pop() {
            self.post_call(conn, slot, calling, body, turn);
        }
    }

    /// Makes a request ready to become a call: it gets its name, and its progress token becomes ours.
    fn present<'a>(&mut self, request: mcp::Request<'a>) -> Result<Presenting<'a>, (Id, Refusal)> {
        let call = self.name_call();
        match request.params.map(|raw| mcp::take_progress_token(raw, call.0, &self.config.limits)) {
            None => Ok(Presenting { request, call, params: None, token: None }),
            Some(Ok((params, token))) => Ok(Presenting { request, call, params: Some(params.into()), token }),
            Some(Err(refusal)) => Err((request.id, refusal)),
        }
    }

    /// One POSTed request: executed once, joined, or answered from what is remembered.
    fn post_call(&mut self, conn: ConnId, slot: SlotIndex, calling: Presenting<'_>, body: &[u8], turn: &mut Turn<'_>) {
        let body = self.config.key.body_hash(body);
        let Some(session) = self.session_mut(slot) else { return };
        let execution = Execution::Alone { stream: session.next_stream() };
        let (id, tools_call) = (&calling.request.id, calling.request.method == "tools/call");
        match session.ids.classify(id, tools_call, body, execution) {
            Presented::Repost { stream, .. } => {
                let whole = |stream: &Stream| stream.answers.iter().all(|answer| answer.state != AnswerState::Cancelled);
                if let Some(joined) = session.stream(stream).filter(|stream| whole(stream)) {
                    let avoided = if joined.finished { Avoided::Recorded } else { Avoided::Joined };
                    self.counters.executions_avoided[avoided] += 1;
                    self.counters.reposts_joined += 1;
                    return self.join(conn, slot, stream, turn);
                }
                self.answer_outcome_unknown(conn, id);
            }
            Presented::RecordGone => self.answer_outcome_unknown(conn, id),
            Presented::Fresh | Presented::Again | Presented::Reused | Presented::Overflowed | Presented::Marked => {
                if self.has_room(slot, 1) {
                    self.begin_calls(conn, slot, vec![calling], false, body, turn);
                } else {
                    self.refuse(conn, Refusal::TOO_MANY_CALLS, None, Some(id));
                }
            }
        }
    }

    fn has_room(&self, slot: SlotIndex, calls: usize) -> bool {
        self.session(slot).is_some_and(|session| session.calls.len() + calls <= self.config.limits.calls_in_flight)
    }

    /// A call that may have run and of which nothing more is known.
    fn answer_outcome_unknown(&mut self, conn: ConnId, id: &Id) {
        self.counters.executions_avoided[Avoided::OutcomeUnknown] += 1;
        self.counters.outcomes_unknown += 1;
        let body = super::reply::outcome_unknown_message(id);
        self.answer(conn, &Whole { status: 200, json: true, verdict: Some("outcome_unknown"), fields: &[], body: &body });
    }

    /// Begins calls that share a stream, attaches the connection to it, and tells the handler.
    ///
    /// A batch is never joined, but its reposted `tools/call`s are not executed again either: each gets `outcome_unknown`.
    fn begin_calls(
        &mut self,
        conn: ConnId,
        slot: SlotIndex,
        calls: Vec<Presenting<'_>>,
        batch: bool,
        body: u128,
        turn: &mut Turn<'_>,
    ) {
        let json_only = self.config.response == ResponsePolicy::Json;
        let Some(session) = self.session_mut(slot) else { return };
        let Some(stream) = session.begin_stream() else {
            return self.refuse(conn, Refusal::TOO_MANY_CALLS_EVER, None, Some(&calls[0].request.id));
        };
        (stream.batch, stream.json_only) = (batch, json_only);
        let number = stream.number;
        let form = self.form_of_answers();
        self.attach(conn, Attach { slot, stream: number, position: Position::START, form, joined: false }, turn);
        if form == Form::Sse {
            self.open_stream(conn, None, None, turn);
        }
        let mut begun = Vec::new();
        for calling in calls {
            begun.push(self.begin_call(slot, number, calling, batch, body, turn));
        }
        for call in begun.into_iter().flatten() {
            self.lose_call(slot, call, Cancelled::Repeated, turn);
        }
    }

    /// Begins one call, and tells the handler; returns its name where it must not be executed.
    fn begin_call(
        &mut self,
        slot: SlotIndex,
        stream: StreamNumber,
        calling: Presenting<'_>,
        batch: bool,
        body: u128,
        turn: &mut Turn<'_>,
    ) -> Option<CallId> {
        let Presenting { request, call, params, token } = calling;
        let effect = super::life::effect_of(&request);
        let session = self.session_mut(slot)?;
        let execution = if batch { Execution::Batch { stream } } else { Execution::Alone { stream } };
        let presented = session.ids.present(&request.id, request.method == "tools/call", body, execution);
        let session = session.id;
        self.counters.sessions_marked += u64::from(matches!(presented, Presented::Reused | Presented::Overflowed));
        self.begin(slot, stream, Begun { call, id: request.id, token, effect }, turn);
        if matches!(presented, Presented::Repost { .. } | Presented::RecordGone) {
            self.counters.executions_avoided[Avoided::OutcomeUnknown] += 1;
            return Some(call);
        }
        let delivery = Delivery::Request { call, method: request.method.into_owned().into(), params, head: turn.head.clone() };
        turn.out.push(Output::Deliver { session, delivery });
        None
    }

    // ---- notifications and responses ----

    fn notified(&mut self, slot: SlotIndex, notification: &Notification<'_>, turn: &mut Turn<'_>) {
        match &*notification.method {
            "notifications/cancelled" => return self.cancelled_by_client(slot, notification, turn),
            "notifications/initialized" => {
                if let Some(session) = self.session_mut(slot) {
                    session.confirmed = true;
                }
                self.watch_idle(slot, turn);
            }
            _ => {}
        }
        let Some(session) = self.session(slot) else { return };
        let delivery = Delivery::Notification {
            method: (*notification.method).into(),
            params: notification.params.map(|params| params.get().as_bytes().to_vec().into()),
            head: turn.head.clone(),
        };
        turn.out.push(Output::Deliver { session: session.id, delivery });
    }

    /// A cancellation names a client's id: it counts only where exactly one call in flight has it.
    fn cancelled_by_client(&mut self, slot: SlotIndex, notification: &Notification<'_>, turn: &mut Turn<'_>) {
        let Some(session) = self.session(slot) else { return };
        let named = mcp::cancelled_request(notification.params);
        let mut calls = session.calls.iter().filter(|call| named.as_ref() == Some(&call.id)).map(|call| call.call);
        match (calls.next(), calls.next()) {
            (Some(call), None) => self.cancel_call(slot, call, Cancelled::ByClient, turn),
            _ => self.counters.cancels_ignored += 1,
        }
    }

    fn responded(&mut self, slot: SlotIndex, response: &Response<'_>, turn: &mut Turn<'_>) {
        let outcome = match response.outcome {
            Ok(result) => Outcome::Result(result.get().as_bytes().to_vec().into()),
            Err(error) => Outcome::Error(error.get().as_bytes().to_vec().into()),
        };
        let request = match response.id {
            Some(Id::Integer(id)) => u64::try_from(id).ok().map(ClientRequestId),
            _ => None,
        };
        if !request.is_some_and(|request| self.finish_request(slot, request, outcome, turn)) {
            self.counters.responses_unmatched += 1;
        }
    }
}
