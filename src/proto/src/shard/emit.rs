//! What a handler says: messages become events of a stream, with the client's ids and tokens put back; results end calls.
//!
//! Never writes to a connection: it appends to the log and marks the stream's connections as ready.

use crate::canary::{self, Canary};
use crate::connection::Form;
use crate::eventlog::{Full, Kind};
use crate::ids::{CallId, ClientRequestId, ConnId, Cursor, Position, SessionId, SlotIndex, StreamNumber};
use crate::keyed;
use crate::mcp;
use crate::refusal::{Ended, Refusal, Room};
use crate::session::{AnswerState, Attached, Call, ClientRequest, Effect};
use crate::sse::{FieldValue, Frame};

use super::io::{Cancelled, Close, Delivery, Emission, NotTaken, Outcome, Output, Target};
use super::keys::outcome_of;
use super::{Due, ResponsePolicy, Shard, Turn, reply};

/// Bytes of a frame around its message, at most: `id: ` with the longest cursor, `data: `, line ends.
const FRAME_OVERHEAD: usize = 96;
/// Bytes of a message around its method and its params, result or error, mostly.
const ENVELOPE: usize = 64;

impl Shard {
    /// Takes an emission; the error says why nothing of it happened.
    pub(super) fn emit(&mut self, session: &SessionId, emission: Emission, turn: &mut Turn<'_>) -> Result<(), NotTaken> {
        let slot = self.slot_of(session).ok_or(NotTaken::SessionEnded)?;
        match emission {
            Emission::Notification { to, method, params } => self.emit_notification(slot, to, &method, params.as_deref(), turn),
            Emission::Request { to, request, method, params } => {
                self.emit_request(slot, to, request, &method, params.as_deref(), turn)
            }
            Emission::CancelRequest { request } => {
                self.withdraw_request(slot, request, turn);
                Ok(())
            }
            Emission::HangUp { call, retry } => self.hang_up(slot, call, retry, turn),
            Emission::Result { call, result } => {
                check_json(Some(&result))?;
                self.emit_answer(slot, call, Ok(&result), turn)
            }
            Emission::Error { call, error } => {
                check_json(Some(&error))?;
                self.emit_answer(slot, call, Err(&error), turn)
            }
            Emission::Shed { call, why } => self.emit_shed(slot, call, Refusal::Shed(Room::Handler, why), turn),
        }
    }

    /// The stream that an emission goes to.
    fn target(&self, slot: SlotIndex, to: Target) -> Result<StreamNumber, NotTaken> {
        let session = self.session(slot).ok_or(NotTaken::SessionEnded)?;
        match to {
            Target::Call(call) => session.call(call).map(|call| call.stream).ok_or(NotTaken::CallEnded),
            Target::Standalone if session.is_exchange() => Err(NotTaken::NoSession),
            Target::Standalone => Ok(StreamNumber::STANDALONE),
            Target::Unnamed => Ok(match &session.calls[..] {
                [only] => only.stream,
                _ => StreamNumber::STANDALONE,
            }),
        }
    }

    fn emit_notification(
        &mut self,
        slot: SlotIndex,
        to: Target,
        method: &str,
        params: Option<&[u8]>,
        turn: &mut Turn<'_>,
    ) -> Result<(), NotTaken> {
        check_json(params)?;
        let mut number = self.target(slot, to)?;
        let mut put_back = None;
        if method == "notifications/progress" {
            // Progress nobody asked for, or of a call that is over, has no token that the client would know.
            let Some((stream, params)) = self.progress_of(slot, to, params.unwrap_or_default()) else {
                self.counters.notifications_dropped += 1;
                return Ok(());
            };
            (number, put_back) = (stream, Some(params));
        }
        if self.session(slot).and_then(|session| session.stream(number)).is_some_and(|stream| stream.json_only) {
            self.counters.notifications_dropped += 1;
            return Ok(());
        }
        if let Some(listen) = self.session(slot).and_then(|session| session.listen()) {
            put_back = mcp::put_subscription(params, listen);
            if put_back.is_none() {
                return Err(NotTaken::Malformed);
            }
        }
        let params = put_back.as_deref().or(params);
        let mut message = Vec::with_capacity(ENVELOPE + method.len() + params.map_or(0, <[u8]>::len));
        mcp::write_notification(&mut message, method, params);
        self.append(slot, number, Kind::Ordinary, &message, turn)?;
        self.said(slot, number, turn);
        Ok(())
    }

    /// A progress notification's stream, and its params with the client's token in place of ours.
    fn progress_of(&self, slot: SlotIndex, to: Target, params: &[u8]) -> Option<(StreamNumber, Vec<u8>)> {
        let meant = |call: &Call| match to {
            Target::Call(named) => call.call == named,
            Target::Standalone | Target::Unnamed => true,
        };
        self.session(slot)?.calls.iter().filter(|call| meant(call)).find_map(|call| {
            let params = mcp::progress_for_client(params, call.call.0, call.token.as_ref()?)?;
            Some((call.stream, params))
        })
    }

    fn emit_request(
        &mut self,
        slot: SlotIndex,
        to: Target,
        request: ClientRequestId,
        method: &str,
        params: Option<&[u8]>,
        turn: &mut Turn<'_>,
    ) -> Result<(), NotTaken> {
        check_json(params)?;
        let number = self.target(slot, to)?;
        let session = self.session(slot).ok_or(NotTaken::SessionEnded)?;
        // 2026-07-28, Streamable HTTP, "Receiving Messages": "The server MUST NOT send independent JSON-RPC requests on this stream."
        if session.is_exchange() {
            return Err(NotTaken::NoSession);
        }
        if session.requests.len() >= self.config.limits.client_requests {
            return Err(NotTaken::TooManyRequests);
        }
        if session.stream(number).is_some_and(|stream| stream.json_only) {
            return Err(NotTaken::JsonOnly);
        }
        let mut message = Vec::new();
        mcp::write_request(&mut message, request.0, method, params);
        let position = self.append(slot, number, Kind::Pinned, &message, turn)?;
        let timer = self.wheel.schedule(turn.now + self.config.limits.client_request_max_age, Due::Request(slot, request));
        if let Some(session) = self.session_mut(slot) {
            session.requests.push(ClientRequest { request, stream: number, position, timer });
        }
        self.note_asked(slot, number, position, request);
        self.said(slot, number, turn);
        Ok(())
    }

    /// A call's stream remembers where it asked the client something, for reposts that join it.
    fn note_asked(&mut self, slot: SlotIndex, number: StreamNumber, position: Position, request: ClientRequestId) {
        let Some(session) = self.sessions.get_mut(slot.0 as usize).and_then(Option::as_deref_mut) else { return };
        if let Some(stream) = session.stream_mut(number).filter(|stream| stream.number != StreamNumber::STANDALONE) {
            stream.ask(position, request, &self.log);
        }
    }

    pub(super) fn emit_answer(
        &mut self,
        slot: SlotIndex,
        call: CallId,
        answer: Result<&[u8], &[u8]>,
        turn: &mut Turn<'_>,
    ) -> Result<(), NotTaken> {
        let session = self.session(slot).ok_or(NotTaken::SessionEnded)?;
        let found = session.call(call).ok_or(NotTaken::CallEnded)?;
        if found.effect == Effect::Initialize {
            return self.emit_initialize_answer(slot, call, answer, turn);
        }
        if session.is_exchange() {
            return self.answer_exchange(slot, call, answer, turn);
        }
        let (Ok(body) | Err(body)) = answer;
        let mut message = Vec::with_capacity(ENVELOPE + body.len());
        match answer {
            Ok(result) => mcp::write_result(&mut message, &found.id, result),
            Err(error) => mcp::write_error(&mut message, Some(&found.id), error),
        }
        let stream = found.stream;
        if message.len() > self.config.limits.message_bytes {
            return Err(NotTaken::TooLarge);
        }
        self.settle_key(slot, call, || outcome_of(answer), turn);
        let position = self.append_answer(slot, stream, &message, turn);
        if canary::bites(Canary::TwoResults) && position.get() % 10 == 6 {
            self.append_answer(slot, stream, &message, turn);
        }
        self.take_effect(slot, call, answer.is_ok());
        self.count_answered(slot, call, turn);
        self.end_call(slot, call, AnswerState::At(position), turn);
        Ok(())
    }

    /// The handler's answer to a call is being taken.
    pub(super) fn count_answered(&mut self, slot: SlotIndex, call: CallId, turn: &Turn<'_>) {
        let Some(begun) = self.session(slot).and_then(|session| session.call(call)).map(|call| call.begun) else { return };
        let millis = turn.now.since(begun).as_millis();
        self.counters.calls_answered.add(u64::try_from(millis).unwrap_or(u64::MAX));
    }

    /// A call's success changes what its session remembers.
    fn take_effect(&mut self, slot: SlotIndex, call: CallId, success: bool) {
        let most = self.config.limits.subscriptions;
        let Some(session) = self.session_mut(slot) else { return };
        match session.call(call).filter(|_| success).map(|call| call.effect.clone()) {
            Some(Effect::Subscribe(uri)) if session.subscriptions.len() < most && !session.subscriptions.contains(&uri) => {
                session.subscriptions.push(uri);
            }
            Some(Effect::Unsubscribe(uri)) => session.subscriptions.retain(|one| *one != uri),
            _ => {}
        }
    }

    /// Appends one message as an event, with its id.
    pub(super) fn append(
        &mut self,
        slot: SlotIndex,
        number: StreamNumber,
        kind: Kind,
        message: &[u8],
        turn: &mut Turn<'_>,
    ) -> Result<Position, NotTaken> {
        let Some(session) = self.sessions.get_mut(slot.0 as usize).and_then(Option::as_deref_mut) else {
            return Err(NotTaken::SessionEnded);
        };
        let (incarnation, id) = (session.incarnation, session.id);
        // 2026-07-28, Streamable HTTP: "Resumable SSE streams via `Last-Event-ID` are not supported": an id would promise what is not kept.
        let resumable = !session.is_exchange();
        let stream = session.stream_mut(number).ok_or(NotTaken::CallEnded)?;
        let ring = match stream.ring {
            Some(ring) => ring,
            None => {
                let ring = self.log.open(slot.0, number.0, stream.beyond).map_err(not_taken)?;
                *stream.ring.insert(ring)
            }
        };
        let cursor = resumable.then(|| Cursor::new(incarnation, number, self.log.next(ring)).encode(&self.config.key, &id));
        let id = cursor.as_ref().and_then(|cursor| FieldValue::new(cursor.as_str()));
        let frame = Frame { event: None, id, retry: None, data: Some(message) };
        let hint = message.len() + FRAME_OVERHEAD;
        let appended = self.log.append(ring, kind, turn.now, hint, |out| frame.encode(out));
        if appended == Err(Full::Lingering) {
            self.shed_slowest(turn);
        }
        appended.map_err(not_taken)
    }

    /// Appends an answer. One that the log cannot take is lost, not forgotten: its position is used up, and an `outcome_unknown`
    /// stands there.
    pub(super) fn append_answer(
        &mut self,
        slot: SlotIndex,
        number: StreamNumber,
        message: &[u8],
        turn: &mut Turn<'_>,
    ) -> Position {
        if let Ok(position) = self.append(slot, number, Kind::Pinned, message, turn) {
            return position;
        }
        let Some(session) = self.sessions.get_mut(slot.0 as usize).and_then(Option::as_deref_mut) else { return Position::START };
        let Some(stream) = session.stream_mut(number) else { return Position::START };
        match stream.ring {
            Some(ring) => self.log.skip(ring),
            None => {
                stream.beyond = stream.beyond.next();
                stream.beyond
            }
        }
    }

    /// A call is over: its stream remembers how, and ends when it was the last.
    pub(super) fn end_call(&mut self, slot: SlotIndex, call: CallId, state: AnswerState, turn: &mut Turn<'_>) {
        let Some(session) = self.session_mut(slot) else { return };
        session.last_active = turn.now;
        let Some(ended) = session.take_call(call) else { return };
        let Some(stream) = session.stream_mut(ended.stream) else { return };
        stream.answer(call, state);
        let complete = stream.complete();
        self.wheel.cancel(ended.timer);
        if complete {
            self.finish_stream(slot, ended.stream);
        }
        self.said(slot, ended.stream, turn);
        if self.session(slot).is_some_and(|session| session.is_exchange() && session.attached == 0) {
            // One that went on under its key, for nobody who waits here.
            self.end_session(slot, Ended::Closed, turn);
        }
    }

    /// Nothing more will be said on a stream.
    fn finish_stream(&mut self, slot: SlotIndex, number: StreamNumber) {
        let bound = self.config.limits.finished_streams;
        let Some(session) = self.session_mut(slot) else { return };
        let Some(stream) = session.stream_mut(number) else { return };
        stream.finished = true;
        let ring = stream.ring;
        session.retire(number);
        if let Some(ring) = ring {
            self.log.finish(ring);
        }
        while let Some(forgotten) = self.session_mut(slot).and_then(|session| session.forget(bound)) {
            if let Some(ring) = forgotten.ring {
                self.log.remove(ring);
            }
        }
    }

    /// Finished streams that hold nothing any more keep their tombstone only.
    pub(super) fn drop_empty_rings(&mut self) {
        for ring in self.log.take_emptied() {
            let Some((slot, number)) = self.stream_of(ring) else { continue };
            let last = self.log.last(ring);
            if let Some(stream) = self.session_mut(slot).and_then(|session| session.stream_mut(number)) {
                (stream.ring, stream.beyond) = (None, last);
            }
            self.log.remove(ring);
        }
    }

    /// Something was said on a stream, or it ended: its connections have something to do.
    fn said(&mut self, slot: SlotIndex, number: StreamNumber, turn: &mut Turn<'_>) {
        let Some(stream) = self.session(slot).and_then(|session| session.stream(number)) else { return };
        let finished = stream.finished;
        let only_results = stream.only_results_so_far(&self.log);
        for conn in Attached::from(stream.attached()) {
            let form = self.connection(conn).and_then(|connection| connection.serving.as_ref()).map(|serving| serving.form);
            match form {
                Some(Form::Sse) => self.ready.push_back(conn),
                Some(Form::Json | Form::Undecided | Form::Held) if finished => self.settle_answer(conn, turn),
                Some(Form::Undecided | Form::Held) if !only_results => self.open_stream(conn, None, None, turn),
                _ => {}
            }
        }
    }

    /// The form in which an answer begins.
    pub(super) fn form_of_answers(&self) -> Form {
        match self.config.response {
            ResponsePolicy::Auto => Form::Undecided,
            ResponsePolicy::Sse => Form::Sse,
            ResponsePolicy::Json => Form::Json,
        }
    }

    /// A stream is finished and a connection waits for its answer without a head: one JSON body where that says all, else SSE.
    pub(super) fn settle_answer(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        let Some(serving) = self.connection(conn).and_then(|connection| connection.serving.as_ref()) else { return };
        let (slot, number, form) = (serving.slot, serving.stream, serving.form);
        let Some(stream) = self.session(slot).and_then(|session| session.stream(number)) else { return };
        match form {
            Form::Sse => return self.ready.push_back(conn),
            Form::Initialize => return self.give_up_answer(conn, turn),
            Form::Undecided | Form::Held if !stream.only_results(&self.log) => return self.open_stream(conn, None, None, turn),
            Form::Undecided | Form::Held | Form::Json => {}
        }
        let batch = stream.batch;
        let answers: Vec<_> = stream.answers.iter().map(|answer| (answer.id.clone(), answer.state)).collect();
        let ring = stream.ring;
        let mut body = Vec::new();
        for (id, state) in answers {
            if !body.is_empty() {
                body.push(b',');
            } else if batch {
                body.push(b'[');
            }
            let held = match (state, ring) {
                (AnswerState::At(position), Some(ring)) => self.message_at(ring, position),
                _ => None,
            };
            body.extend_from_slice(&held.unwrap_or_else(|| reply::outcome_unknown_message(&id)));
        }
        if batch {
            body.push(b']');
        }
        self.detach(conn, turn);
        self.answer_json(conn, &[], &body);
    }

    /// An answer without a head will not come: the client is told that nobody knows.
    pub(super) fn give_up_answer(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        let serving = self.connection(conn).and_then(|connection| connection.serving.as_ref());
        let Some((slot, stream)) = serving.map(|serving| (serving.slot, serving.stream)) else { return };
        let stream = self.session(slot).and_then(|session| session.stream(stream));
        let message = stream.and_then(|stream| stream.answers.first()).map(|answer| reply::outcome_unknown_message(&answer.id));
        self.detach(conn, turn);
        self.counters.outcomes_unknown += 1;
        self.answer_json(conn, &[], &message.unwrap_or_default());
    }

    /// The message of a held event.
    pub(super) fn message_at(&mut self, ring: crate::eventlog::RingId, position: Position) -> Option<Vec<u8>> {
        let mut slices = Vec::new();
        if self.log.read(ring, position.previous(), 1, &mut slices) < position {
            return None;
        }
        let mut message = Vec::new();
        let mut decoder = crate::sse::Decoder::new(self.config.limits.message_bytes + FRAME_OVERHEAD);
        for slice in &slices {
            let read = decoder.push(slice, |event| {
                if message.is_empty() {
                    message.extend_from_slice(event.data.as_bytes());
                }
            });
            read.ok()?;
        }
        Some(message)
    }

    // ---- requests to the client ----

    /// A request to the client is answered, or fails: its handler is told. `false` when there is no such request.
    pub(super) fn finish_request(
        &mut self,
        slot: SlotIndex,
        request: ClientRequestId,
        outcome: Outcome,
        turn: &mut Turn<'_>,
    ) -> bool {
        let Some(session) = self.session_mut(slot) else { return false };
        let Some(asked) = session.take_request(request) else { return false };
        let id = session.id;
        let mut ring = None;
        if let Some(stream) = session.stream_mut(asked.stream) {
            ring = stream.ring;
            stream.answer_asked(request);
        }
        if let Some(ring) = ring {
            self.log.unpin(ring, asked.position);
        }
        self.wheel.cancel(asked.timer);
        turn.out.push(Output::Deliver { session: id, delivery: Delivery::Response { request, outcome } });
        true
    }

    /// The same, and the client is told by `notifications/cancelled` on the request's stream (the standalone one if that has ended).
    fn withdraw_request(&mut self, slot: SlotIndex, request: ClientRequestId, turn: &mut Turn<'_>) {
        let Some(session) = self.session(slot) else { return };
        let Some(asked) = session.requests.iter().find(|one| one.request == request) else { return };
        let open = session.stream(asked.stream).is_some_and(|stream| !stream.finished);
        let number = if open { asked.stream } else { StreamNumber::STANDALONE };
        self.finish_request(slot, request, Outcome::Failed, turn);
        let mut message = Vec::new();
        let params = format!(r#"{{"requestId":{}}}"#, request.0);
        mcp::write_notification(&mut message, "notifications/cancelled", Some(params.as_bytes()));
        // Where the log is full the client answers in vain, which is counted: nothing is lost.
        if self.append(slot, number, Kind::Ordinary, &message, turn).is_ok() {
            self.said(slot, number, turn);
        }
    }

    pub(super) fn request_due(&mut self, slot: SlotIndex, request: ClientRequestId, turn: &mut Turn<'_>) {
        self.withdraw_request(slot, request, turn);
    }

    /// Pinned events that the log gave up: a request fails its handler (a lost result is found by whoever reads it).
    pub(super) fn fail_lost_requests(&mut self, turn: &mut Turn<'_>) -> bool {
        let lost: Vec<_> = self.log.take_lost().collect();
        for &(ring, position) in &lost {
            let Some((slot, number)) = self.stream_of(ring) else { continue };
            let Some(session) = self.session(slot) else { continue };
            let request = session.requests.iter().find(|one| one.stream == number && one.position == position);
            if let Some(request) = request.map(|request| request.request) {
                self.withdraw_request(slot, request, turn);
            }
        }
        !lost.is_empty()
    }

    // ---- cancellation and shedding ----

    /// A call needs no answer any more; its stream ends cleanly without one.
    pub(super) fn cancel_call(&mut self, slot: SlotIndex, call: CallId, why: Cancelled, turn: &mut Turn<'_>) {
        let waited = self.settle_key(slot, call, || keyed::Outcome::Unknown, turn);
        // What else waited under its key has its answer by now, perhaps the next that was to be cancelled.
        let Some(session) = self.session(slot).filter(|session| session.call(call).is_some()) else { return };
        if !waited {
            turn.out.push(Output::Deliver { session: session.id, delivery: Delivery::Cancelled { call, why } });
        }
        self.counters.calls_cancelled[why] += 1;
        self.end_call(slot, call, AnswerState::Cancelled, turn);
    }

    /// A call is lost: it gets `outcome_unknown`, and its handler is told to stop.
    pub(super) fn lose_call(&mut self, slot: SlotIndex, call: CallId, why: Cancelled, turn: &mut Turn<'_>) {
        let waited = self.settle_key(slot, call, || keyed::Outcome::Unknown, turn);
        let Some(session) = self.session(slot) else { return };
        let Some(found) = session.call(call) else { return };
        let message = reply::outcome_unknown_message(&found.id);
        let stream = found.stream;
        if !waited {
            turn.out.push(Output::Deliver { session: session.id, delivery: Delivery::Cancelled { call, why } });
        }
        self.counters.calls_cancelled[why] += 1;
        self.counters.outcomes_unknown += 1;
        let position = self.append_answer(slot, stream, &message, turn);
        self.end_call(slot, call, AnswerState::At(position), turn);
    }

    /// Evicted events that slow readers still hold fill the log: the reader whose send has been under way longest goes.
    fn shed_slowest(&mut self, turn: &mut Turn<'_>) {
        let slowest = self
            .connections
            .iter()
            .enumerate()
            .filter_map(|(index, connection)| Some((index, connection.as_deref()?)))
            .filter(|(_, connection)| connection.sending() && !connection.closed())
            .min_by_key(|(_, connection)| connection.last_send)
            .map(|(index, _)| ConnId(index as u32));
        if let Some(conn) = slowest {
            self.shed(Room::SlowReader);
            self.close(conn, Close::Reset, turn);
        }
    }
}

fn not_taken(full: Full) -> NotTaken {
    match full {
        Full::TooLarge => NotTaken::TooLarge,
        Full::Lingering | Full::Budget => NotTaken::LogFull,
    }
}

fn check_json(value: Option<&[u8]>) -> Result<(), NotTaken> {
    match value {
        Some(value) if !mcp::is_json(value) => Err(NotTaken::Malformed),
        _ => Ok(()),
    }
}
