//! What a client POSTs to a session: calls, each executed once, joined, or answered from what is remembered; notifications and responses.
//!
//! Never writes a stream's events; hands connections to `serve` and calls to the handler.

use bytes::Bytes;

use crate::connection::{Form, Request};
use crate::ids::{CallId, ClientRequestId, ConnId, Position, Principal, SlotIndex, StreamNumber};
use crate::mcp::{self, Body, Execution, Id, Message, Notification, Presented, Response};
use crate::refusal::Refusal;
use crate::session::{AnswerState, Stream};

use super::counters::Avoided;
use super::io::{Cancelled, Delivery, Outcome, Output};
use super::keys::{Key, Scope};
use super::life::Begun;
use super::reply::Whole;
use super::serve::Attach;
use super::{ResponsePolicy, Shard, Turn};

/// A POSTed request on its way to becoming a call.
pub(super) struct Presenting<'a> {
    pub request: mcp::Request<'a>,
    pub call: CallId,
    /// Its params with our progress token, and the client's.
    pub params: Option<Bytes>,
    pub token: Option<Id>,
    /// Its idempotency key, if it has one.
    pub keyed: Option<Key>,
}

impl Shard {
    /// A POST that was admitted by its head.
    pub(super) fn post(&mut self, conn: ConnId, request: &Request, principal: Principal, turn: &mut Turn<'_>) {
        let body = match mcp::parse(&request.body, &self.config.limits) {
            Ok(body) => body,
            Err(refusal) => return self.refuse_request(conn, request, refusal, None),
        };
        if self.is_exchange(&request.head, &body) {
            return self.post_exchange(conn, request, body, principal, turn);
        }
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
        let key = match self.key_in_head(&request.head) {
            Ok(Some(_)) if batch => {
                let refusal = Refusal::InvalidRequest("Idempotency-Key names one request, and this is a batch");
                return self.refuse(conn, refusal, None, None);
            }
            Ok(key) => key,
            Err(refusal) => return self.refuse(conn, refusal, None, id.as_ref()),
        };
        self.post_messages(conn, slot, messages, batch, (&request.body, key), turn);
    }

    fn post_messages(
        &mut self,
        conn: ConnId,
        slot: SlotIndex,
        messages: Vec<Message<'_>>,
        batch: bool,
        (body, key): (&[u8], Option<&[u8]>),
        turn: &mut Turn<'_>,
    ) {
        let Some(session) = self.session(slot) else { return };
        let (principal, name) = (session.principal.clone(), session.id);
        let scope = Scope::of(&principal, Some(name));
        // Everything that can refuse comes before anything is executed.
        let mut calls = Vec::new();
        let mut others = Vec::new();
        for message in messages {
            match message {
                Message::Request(request) => match self.present(request, key, &scope) {
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
    pub(super) fn present<'a>(
        &mut self,
        request: mcp::Request<'a>,
        key_in_head: Option<&[u8]>,
        scope: &Scope<'_>,
    ) -> Result<Presenting<'a>, (Id, Refusal)> {
        let keyed = match self.key_of(key_in_head, &request, scope) {
            Ok(keyed) => keyed,
            Err(refusal) => return Err((request.id, refusal)),
        };
        let call = self.name_call();
        match request.params.map(|raw| mcp::take_progress_token(raw, call.0, &self.config.limits)) {
            None => Ok(Presenting { request, call, params: None, token: None, keyed }),
            Some(Ok((params, token))) => Ok(Presenting { request, call, params: Some(params.into()), token, keyed }),
            Some(Err(refusal)) => Err((request.id, refusal)),
        }
    }

    /// One POSTed request: executed once, joined, or answered from what is remembered.
    fn post_call(&mut self, conn: ConnId, slot: SlotIndex, calling: Presenting<'_>, body: &[u8], turn: &mut Turn<'_>) {
        let body = self.config.key.body_hash(body);
        if calling.keyed.is_some() {
            // A key decides first.
            return if self.has_room(slot, 1) {
                self.begin_calls(conn, slot, vec![calling], false, body, turn);
            } else {
                self.refuse(conn, Refusal::TOO_MANY_CALLS, None, Some(&calling.request.id));
            };
        }
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
        // A key may stand for another body, which has a status of its own.
        let held = !batch && calls.iter().any(|calling| calling.keyed.is_some());
        let form = if held { Form::Held } else { self.form_of_answers() };
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
        let Presenting { request, call, params, token, keyed } = calling;
        let effect = super::life::effect_of(&request);
        let session = self.session_mut(slot)?;
        let execution = if batch { Execution::Batch { stream } } else { Execution::Alone { stream } };
        let presented = match keyed {
            Some(_) => {
                session.ids.present_apart(&request.id, body);
                Presented::Fresh
            }
            None => session.ids.present(&request.id, request.method == "tools/call", body, execution),
        };
        let session = session.id;
        self.counters.sessions_marked += u64::from(matches!(presented, Presented::Reused | Presented::Overflowed));
        self.begin(slot, stream, Begun { call, id: request.id, token, effect }, turn);
        if matches!(presented, Presented::Repost { .. } | Presented::RecordGone) {
            self.counters.executions_avoided[Avoided::OutcomeUnknown] += 1;
            return Some(call);
        }
        let method = request.method.into_owned().into();
        let (head, traceparent) = (turn.head.clone(), turn.traceparent.clone());
        let delivery = Delivery::Request { call, method, params, head, traceparent };
        match keyed {
            Some(key) => self.claim(slot, call, key, delivery, turn),
            None => turn.out.push(Output::Deliver { session, delivery }),
        }
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
