//! Sessions begin, rotate, expire and end; calls begin and grow too old; the shard drains.
//!
//! Never parses a request and never encodes an event.

use bytes::Bytes;

use crate::connection::{Form, Request};
use crate::ids::{CallId, ConnId, Position, Principal, SessionId, SlotIndex, StreamNumber};
use crate::keyed;
use crate::lists;
use crate::mcp::{self, CallIds, Id};
use crate::refusal::{Ended, Refusal, Room};
use crate::session::{Answer, AnswerState, Call, Effect, Session, Stream};
use crate::time::Instant;

use super::io::{Cancelled, Delivery, NotTaken, Outcome, Output};
use super::serve::{Attach, Ending};
use super::{Drain, Due, ResponsePolicy, Shard, Turn, reply};

/// A call that begins.
pub(super) struct Begun {
    pub call: CallId,
    pub id: Id,
    pub token: Option<Id>,
    pub effect: Effect,
}

/// What a request's success will change in its session.
pub(super) fn effect_of(request: &mcp::Request<'_>) -> Effect {
    let uri = || mcp::resource_uri(request.params).map(|uri| uri.into_owned().into_boxed_str());
    match &*request.method {
        "resources/subscribe" => uri().map_or(Effect::None, Effect::Subscribe),
        "resources/unsubscribe" => uri().map_or(Effect::None, Effect::Unsubscribe),
        mcp::LISTEN => Effect::Listen,
        _ => Effect::None,
    }
}

impl Shard {
    // ---- calls ----

    pub(super) fn name_call(&mut self) -> CallId {
        let call = CallId(self.next_call);
        self.next_call += 1;
        call
    }

    /// Puts a call in flight; its stream will answer it.
    pub(super) fn begin(&mut self, slot: SlotIndex, number: StreamNumber, begun: Begun, turn: &Turn<'_>) {
        let Begun { call, id, token, effect } = begun;
        let timer = self.wheel.schedule(turn.now + self.config.limits.call_max_age, Due::Call(slot, call));
        self.counters.calls_begun += 1;
        let Some(session) = self.session_mut(slot) else { return };
        session.begin_call(Call { call, stream: number, id: id.clone(), token, effect, begun: turn.now, timer, keyed: None });
        if let Some(stream) = session.stream_mut(number) {
            stream.answers.push(Answer { id, state: AnswerState::Pending(call) });
        }
    }

    pub(super) fn call_due(&mut self, slot: SlotIndex, call: CallId, turn: &mut Turn<'_>) {
        let Some(found) = self.session(slot).and_then(|session| session.call(call)) else { return };
        if found.effect == Effect::Initialize {
            return self.end_session(slot, Ended::Expired, turn);
        }
        if self.session(slot).is_some_and(|session| session.listen().is_some()) {
            // A stream of changes has no outcome to be unknown: its client listens anew.
            return self.cancel_call(slot, call, Cancelled::Age, turn);
        }
        self.lose_call(slot, call, Cancelled::Age, turn);
    }

    // ---- a session begins ----

    /// A POSTed `initialize`: a new session, whatever session id stands in the header. Its head waits for the handler's result.
    pub(super) fn initialize(
        &mut self,
        conn: ConnId,
        request: &Request,
        call: &mcp::Request<'_>,
        principal: Principal,
        turn: &mut Turn<'_>,
    ) {
        let placed = self.connection(conn).is_some_and(|connection| connection.placed);
        let draining = self.drain.is_some();
        if !placed && !draining {
            let to = turn.world.place();
            if to != self.config.shard {
                return self.hand_off(conn, to, true, turn);
            }
        }
        if let Some(connection) = self.connection(conn) {
            connection.consume(request);
        }
        if draining {
            return self.refuse(conn, Refusal::SHUTTING_DOWN, None, Some(&call.id));
        }
        let name = self.name_call();
        let (params, token) = match call.params.map(|raw| mcp::take_progress_token(raw, name.0, &self.config.limits)) {
            None => (Bytes::from_static(b"{}"), None),
            Some(Ok((params, token))) => (params.into(), token),
            Some(Err(refusal)) => return self.refuse(conn, refusal, None, Some(&call.id)),
        };
        let room = self.alive < self.config.limits.sessions;
        let Some(slot) = room.then(|| self.writer.reserve()).flatten() else {
            return self.refuse(conn, Refusal::TOO_MANY_SESSIONS, None, Some(&call.id));
        };
        let body = self.config.key.body_hash(&request.body);
        let id = self.open_session(slot, &call.id, body, principal.clone(), turn);
        let Some(number) = self.session_mut(slot).and_then(Session::begin_stream).map(|stream| stream.number) else { return };
        let attach = Attach { slot, stream: number, position: Position::START, form: Form::Initialize, joined: false };
        self.attach(conn, attach, turn);
        let begun = Begun { call: name, id: call.id.clone(), token, effect: Effect::Initialize };
        self.begin(slot, number, begun, turn);
        let (head, traceparent) = (turn.head.clone(), turn.traceparent.clone());
        let delivery = Delivery::Initialize { principal, call: name, params, head, traceparent };
        turn.out.push(Output::Deliver { session: id, delivery });
    }

    fn open_session(
        &mut self,
        slot: SlotIndex,
        initialize: &Id,
        body: u128,
        principal: Principal,
        turn: &mut Turn<'_>,
    ) -> SessionId {
        let id = self.mint(slot, turn);
        let mut ids = CallIds::new(&self.config.limits);
        ids.present_apart(initialize, body);
        lists::put(&mut self.sessions, slot.0 as usize, Box::new(Session::new(id, principal, ids, turn.now)));
        self.alive += 1;
        self.counters.sessions_begun += 1;
        self.watch_idle(slot, turn);
        id
    }

    /// The handler answered `initialize`: the session becomes known, or leaves nothing behind.
    pub(super) fn emit_initialize_answer(
        &mut self,
        slot: SlotIndex,
        call: CallId,
        answer: Result<&[u8], &[u8]>,
        turn: &mut Turn<'_>,
    ) -> Result<(), NotTaken> {
        let key = self.config.key.clone();
        let session = self.session_mut(slot).ok_or(NotTaken::SessionEnded)?;
        let found = session.call(call).ok_or(NotTaken::CallEnded)?;
        let (number, client_id) = (found.stream, found.id.clone());
        let waiting = session.stream(number).and_then(|stream| stream.attached().first().copied());
        let result = match answer {
            Ok(result) => result,
            Err(error) => {
                let mut message = Vec::new();
                mcp::write_error(&mut message, Some(&client_id), error);
                if let Some(conn) = waiting {
                    self.detach(conn, turn);
                    self.answer_json(conn, &[], &message);
                }
                self.leave_nothing(slot, call, turn);
                return Ok(());
            }
        };
        let revision = mcp::protocol_version(result).filter(|revision| revision.rules().sessions).ok_or(NotTaken::Malformed)?;
        session.revision = Some(revision);
        session.list_changed = mcp::list_changed(result);
        let (id, tag) = (session.id, key.principal_tag(session.principal.as_str()));
        self.writer.publish(&id, tag);
        let mut message = Vec::new();
        mcp::write_result(&mut message, &client_id, result);
        let position = self.append_answer(slot, number, &message, turn);
        self.count_answered(slot, call, turn);
        self.end_call(slot, call, AnswerState::At(position), turn);
        let Some(conn) = waiting else { return Ok(()) };
        let alone =
            self.session(slot).and_then(|session| session.stream(number)).is_some_and(|stream| stream.only_results(&self.log));
        let json = match self.config.response {
            ResponsePolicy::Auto => alone,
            ResponsePolicy::Sse => false,
            ResponsePolicy::Json => true,
        };
        if json {
            self.detach(conn, turn);
            self.answer_json(conn, &[("Mcp-Session-Id", id.encode().as_str())], &message);
        } else {
            self.open_stream(conn, None, None, turn);
        }
        Ok(())
    }

    /// The handler has no room for a call; for an `initialize`, nothing was begun.
    pub(super) fn emit_shed(
        &mut self,
        slot: SlotIndex,
        call: CallId,
        refusal: Refusal,
        turn: &mut Turn<'_>,
    ) -> Result<(), NotTaken> {
        let session = self.session(slot).ok_or(NotTaken::SessionEnded)?;
        let found = session.call(call).ok_or(NotTaken::CallEnded)?;
        if session.is_exchange() {
            self.settle_key(slot, call, || keyed::Outcome::NotRun, turn);
            return self.refuse_exchange(slot, call, refusal, turn);
        }
        if found.effect != Effect::Initialize {
            self.settle_key(slot, call, || keyed::Outcome::NotRun, turn);
            self.emit_answer(slot, call, Err(&reply::refusal_error(refusal)), turn)?;
            self.shed(Room::Handler);
            return Ok(());
        }
        let client_id = found.id.clone();
        let waiting = session.stream(found.stream).and_then(|stream| stream.attached().first().copied());
        if let Some(conn) = waiting {
            self.detach(conn, turn);
            self.refuse(conn, refusal, None, Some(&client_id));
        }
        self.leave_nothing(slot, call, turn);
        Ok(())
    }

    /// An `initialize` was answered without a session. It has its answer: it is not cancelled with what it began.
    fn leave_nothing(&mut self, slot: SlotIndex, initialize: CallId, turn: &mut Turn<'_>) {
        self.count_answered(slot, initialize, turn);
        if let Some(answered) = self.session_mut(slot).and_then(|session| session.take_call(initialize)) {
            self.wheel.cancel(answered.timer);
        }
        self.end_session(slot, Ended::Closed, turn);
    }

    // ---- a session's time ----

    fn time_to_live(&self, session: &Session) -> std::time::Duration {
        let limits = &self.config.limits;
        if session.confirmed { limits.session_ttl } else { limits.unconfirmed_ttl.min(limits.session_ttl) }
    }

    /// Sets a session's idle timer.
    pub(super) fn watch_idle(&mut self, slot: SlotIndex, turn: &Turn<'_>) {
        let Some(session) = self.session(slot) else { return };
        let ttl = self.time_to_live(session);
        // While something holds the session, its time has not begun.
        let from = if session.is_idle() { session.last_active } else { turn.now };
        let timer = self.wheel.schedule(from + ttl, Due::Session(slot));
        if let Some(old) = self.session_mut(slot).and_then(|session| session.timer.replace(timer)) {
            self.wheel.cancel(old);
        }
    }

    pub(super) fn session_due(&mut self, slot: SlotIndex, turn: &mut Turn<'_>) {
        let Some(session) = self.session(slot) else { return };
        if session.is_idle() && session.last_active + self.time_to_live(session) <= turn.now {
            return self.end_session(slot, Ended::Expired, turn);
        }
        self.watch_idle(slot, turn);
    }

    // ---- a session ends, or rotates ----

    /// Ends a session: its calls, its requests, its streams; its slot remembers why.
    pub(super) fn end_session(&mut self, slot: SlotIndex, why: Ended, turn: &mut Turn<'_>) {
        self.end_life(slot, why == Ended::Deleted, turn);
        let Some(mut session) = self.sessions.get_mut(slot.0 as usize).and_then(Option::take) else { return };
        let exchange = session.is_exchange();
        if exchange {
            self.exchanges -= 1;
        } else {
            self.alive -= 1;
            self.counters.sessions_ended[why] += 1;
        }
        for ring in session.take_streams().into_iter().filter_map(|stream| stream.ring) {
            self.log.remove(ring);
        }
        if let Some(timer) = session.timer {
            self.wheel.cancel(timer);
        }
        if exchange {
            return self.writer.release(slot);
        }
        if session.revision.is_some() {
            self.writer.end(slot, why);
        } else {
            self.writer.release(slot);
        }
        turn.out.push(Output::Deliver { session: session.id, delivery: Delivery::Closed { why } });
    }

    /// Ends everything that an incarnation has under way: calls are cancelled (or lost), requests fail, streams say the rest and end.
    fn end_life(&mut self, slot: SlotIndex, cancel: bool, turn: &mut Turn<'_>) {
        let Some(session) = self.session(slot) else { return };
        let calls: Vec<_> = session.calls.iter().map(|call| (call.call, call.effect == Effect::Initialize)).collect();
        let requests: Vec<_> = session.requests.iter().map(|request| request.request).collect();
        for (call, initialize) in calls {
            if cancel || initialize {
                self.cancel_call(slot, call, Cancelled::SessionEnded, turn);
            } else {
                self.lose_call(slot, call, Cancelled::SessionEnded, turn);
            }
        }
        for request in requests {
            self.finish_request(slot, request, Outcome::Failed, turn);
        }
        let Some(session) = self.session(slot) else { return };
        let attached: Vec<_> = session.streams().flat_map(|stream| stream.attached().iter().copied()).collect();
        for conn in attached {
            self.say_the_rest(conn, turn);
        }
    }

    pub(super) fn command_close(&mut self, id: &SessionId, turn: &mut Turn<'_>) -> Result<(), NotTaken> {
        let slot = self.slot_of(id).ok_or(NotTaken::SessionEnded)?;
        self.end_session(slot, Ended::Closed, turn);
        Ok(())
    }

    /// Begins a new incarnation under the same session id.
    pub(super) fn command_rotate(&mut self, id: &SessionId, turn: &mut Turn<'_>) -> Result<(), NotTaken> {
        let slot = self.slot_of(id).ok_or(NotTaken::SessionEnded)?;
        if self.session(slot).is_some_and(Session::is_exchange) {
            return Err(NotTaken::NoSession);
        }
        self.end_life(slot, false, turn);
        let session = self.session_mut(slot).ok_or(NotTaken::SessionEnded)?;
        let Some(streams) = session.rotate() else {
            self.end_session(slot, Ended::Closed, turn);
            return Ok(());
        };
        for ring in streams.into_iter().filter_map(|stream| stream.ring) {
            self.log.remove(ring);
        }
        turn.out.push(Output::Deliver { session: *id, delivery: Delivery::Rotated });
        Ok(())
    }

    // ---- drain ----

    /// Streams without a call end at once; calls in flight have until `deadline`.
    pub(super) fn begin_drain(&mut self, deadline: Instant, turn: &mut Turn<'_>) {
        if self.drain.is_some() {
            return;
        }
        self.drain = Some(Drain::Waiting);
        self.wheel.schedule(deadline, Due::Drain);
        self.end_streams(turn, |stream| stream.number == StreamNumber::STANDALONE);
        self.end_listening(turn);
        self.look_at_all_connections();
    }

    fn look_at_all_connections(&mut self) {
        self.ready.extend((0..self.connections.len() as u32).map(ConnId));
    }

    /// Ends streams on all their connections, to be resumed elsewhere or later.
    fn end_streams(&mut self, turn: &mut Turn<'_>, which: impl Fn(&Stream) -> bool) {
        let attached: Vec<_> = self
            .sessions
            .iter()
            .flatten()
            .flat_map(|session| session.streams())
            .filter(|stream| which(stream))
            .flat_map(|stream| stream.attached().iter().copied())
            .collect();
        for conn in attached {
            let retry = self.spread_retry(self.config.limits.retry, turn);
            self.end_serving(conn, Ending::Drained(retry), turn);
        }
    }

    /// The drain's deadline: what has not ended is ended; a little later, the rest is cut.
    pub(super) fn drain_due(&mut self, turn: &mut Turn<'_>) {
        match self.drain {
            Some(Drain::Waiting) => {
                self.drain = Some(Drain::Ending);
                let calls: Vec<_> = self
                    .sessions
                    .iter()
                    .flatten()
                    .flat_map(|session| session.calls.iter().map(|call| (session.id.slot(), call.call, call.effect.clone())))
                    .collect();
                for (slot, call, effect) in calls {
                    if effect == Effect::Initialize {
                        self.end_session(slot, Ended::Closed, turn);
                    } else {
                        self.lose_call(slot, call, Cancelled::Drain, turn);
                    }
                }
                // A finished stream ends by itself, once its last event is written.
                self.end_streams(turn, |stream| !stream.finished);
                self.wheel.schedule(turn.now + self.config.limits.close_grace, Due::Drain);
                self.look_at_all_connections();
            }
            Some(Drain::Ending) => {
                self.drain = Some(Drain::Done);
                turn.out.push(Output::Drained);
            }
            Some(Drain::Done) | None => {}
        }
    }

    pub(super) fn check_drained(&mut self, turn: &mut Turn<'_>) {
        if matches!(self.drain, Some(Drain::Waiting | Drain::Ending)) && self.open == 0 && self.no_calls() {
            self.drain = Some(Drain::Done);
            turn.out.push(Output::Drained);
        }
    }

    fn no_calls(&self) -> bool {
        self.sessions.iter().flatten().all(|session| session.calls.is_empty())
    }
}
