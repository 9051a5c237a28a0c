//! Requests without a session (revision 2026-07-28 on): each is an exchange, which begins with its POST and ends with its answer or with its
//! connection, and leaves nothing behind.
//!
//! An exchange is kept as a session of one call and one stream, so that calls, log, limits and handles are the same code in both eras.
//! What it never has: a published slot (no client can name it), an incarnation, a cursor, a standalone stream, or a second connection.

use crate::connection::{Form, Request};
use crate::http::Head;
use crate::ids::{CallId, ConnId, Position, Principal, SessionId, SlotIndex};
use crate::lists;
use crate::mcp::{self, Body, CallIds, Id, Message, Revision};
use crate::refusal::{
    Ended, RPC_HEADER_MISMATCH, RPC_METHOD_NOT_FOUND, RPC_MISSING_CAPABILITY, RPC_UNSUPPORTED_VERSION, Refusal,
};
use crate::session::{AnswerState, Effect, Session};

use super::io::{Cancelled, Delivery, NotTaken, Output};
use super::keys::{Scope, outcome_of};
use super::life::{Begun, effect_of};
use super::post::Presenting;
use super::reply::{Whole, refusal_error};
use super::serve::Attach;
use super::{ResponsePolicy, Shard, Turn};

/// The prefix of the fields that repeat a tool's arguments.
const PARAM_PREFIX: &str = "mcp-param-";

/// The status of an answer that is an error, where its revision asks for another than 200. 2026-07-28, Streamable HTTP, "Protocol Version
/// Header": "it MUST respond with `404 Not Found` and a JSON-RPC error with code `-32601`"; basic, "Per-request protocol fields", of
/// `-32021`: "On HTTP, the response status MUST be `400 Bad Request`"; the same of the other codes of the protocol's own.
fn status_of(error: &[u8]) -> u16 {
    let code = std::str::from_utf8(error).ok().and_then(|error| mcp::integer_at(error, &["code"]));
    match code.and_then(|code| i32::try_from(code).ok()) {
        Some(RPC_METHOD_NOT_FOUND) => 404,
        Some(RPC_HEADER_MISMATCH | RPC_MISSING_CAPABILITY | RPC_UNSUPPORTED_VERSION) => 400,
        _ => 200,
    }
}

/// A listen's result with its subscription's id.
fn named(result: &[u8], id: &Id) -> Result<Vec<u8>, NotTaken> {
    mcp::put_subscription(Some(result), id).ok_or(NotTaken::Malformed)
}

fn has_no_sessions(name: &[u8]) -> bool {
    Revision::parse(name).is_some_and(|revision| !revision.rules().sessions)
}

impl Shard {
    /// Whether a POST speaks a revision without sessions. 2026-07-28, versioning: "A dual-era server selects its behavior from how the client
    /// opens: A request carrying modern per-request `_meta` is served statelessly according to this revision. An `initialize` request
    /// selects legacy semantics". A `_meta` that names a revision with sessions is one of a session's requests.
    pub(super) fn is_exchange(&self, head: &Head, body: &Body<'_>) -> bool {
        if !self.config.exchanges {
            return false;
        }
        let by_head = || matches!(head.single("mcp-protocol-version"), Ok(Some(name)) if has_no_sessions(name));
        match body {
            Body::One(Message::Request(request)) => match mcp::named_revision(request.params) {
                Some(name) => Revision::parse(name.as_bytes()).is_none_or(|revision| !revision.rules().sessions),
                None => request.method != "initialize" && by_head(),
            },
            Body::One(_) | Body::Batch(_) => by_head(),
        }
    }

    /// A POST of such a revision. `Mcp-Session-Id` and `Last-Event-ID` mean nothing here.
    pub(super) fn post_exchange(
        &mut self,
        conn: ConnId,
        request: &Request,
        body: Body<'_>,
        principal: Principal,
        turn: &mut Turn<'_>,
    ) {
        if let Some(connection) = self.connection(conn) {
            connection.consume(request);
        }
        let call = match body {
            Body::One(Message::Request(call)) => call,
            // 2026-07-28, Streamable HTTP, "Sending Messages": "This revision of the core protocol defines no client-to-server
            // notifications over Streamable HTTP." One that comes all the same is for nobody.
            Body::One(Message::Notification(_)) => {
                self.counters.notifications_dropped += 1;
                return self.answer_empty(conn, 202, None);
            }
            // The same: "The client MUST NOT send JSON-RPC responses."
            Body::One(Message::Response(_)) => {
                return self.refuse(conn, Refusal::InvalidRequest("This revision has no responses from clients"), None, None);
            }
            Body::Batch(_) => return self.refuse(conn, Refusal::InvalidRequest("This revision has no batches"), None, None),
        };
        let revision = match self.check_exchange(conn, &request.head, &call) {
            Ok(Some(revision)) => revision,
            Ok(None) => return,
            Err(refusal) => return self.refuse(conn, refusal, None, Some(&call.id)),
        };
        let key = self.key_in_head(&request.head);
        match key
            .map_err(|refusal| (call.id.clone(), refusal))
            .and_then(|key| self.present(call, key, &Scope::of(&principal, None)))
        {
            Ok(presenting) => self.begin_exchange(conn, &request.head, presenting, revision, principal, turn),
            Err((id, refusal)) => self.refuse(conn, refusal, None, Some(&id)),
        }
    }

    /// What a request says of itself, in the order in which one fault hides the other; `None` where it was refused here.
    fn check_exchange(&mut self, conn: ConnId, head: &Head, call: &mcp::Request<'_>) -> Result<Option<Revision>, Refusal> {
        let named = mcp::required_meta(call.params)?;
        mcp::check_version_header(head, &named)?;
        let Some(revision) = Revision::parse(named.as_bytes()).filter(|revision| !revision.rules().sessions) else {
            self.refuse_revision(conn, &named, &call.id);
            return Ok(None);
        };
        mcp::check_standard_headers(head, call)?;
        if revision.rules().removed_methods.contains(&&*call.method) {
            return Err(Refusal::MethodNotFound);
        }
        if self.drain.is_some() {
            return Err(Refusal::SHUTTING_DOWN);
        }
        Ok(Some(revision))
    }

    fn begin_exchange(
        &mut self,
        conn: ConnId,
        head: &Head,
        presenting: Presenting<'_>,
        revision: Revision,
        principal: Principal,
        turn: &mut Turn<'_>,
    ) {
        let Presenting { request, call, params, token, keyed } = presenting;
        let room = self.exchanges < self.config.limits.exchanges;
        let Some(slot) = room.then(|| self.writer.reserve()).flatten() else {
            return self.refuse(conn, Refusal::TOO_MANY_EXCHANGES, None, Some(&request.id));
        };
        let id = self.mint(slot, turn);
        let mut session = Session::exchange(id, principal.clone(), revision, CallIds::new(&self.config.limits), turn.now);
        let effect = effect_of(&request);
        // A stream of changes is nothing but what comes before its end, whatever the policy.
        let json = self.config.response == ResponsePolicy::Json && effect != Effect::Listen;
        let Some(stream) = session.begin_stream() else { return };
        stream.json_only = json;
        let number = stream.number;
        lists::put(&mut self.sessions, slot.0 as usize, Box::new(session));
        self.exchanges += 1;
        // The head waits for the first message, since an error has a status.
        let form = match keyed {
            Some(_) => Form::Held,
            None if json => Form::Json,
            None => Form::Undecided,
        };
        self.attach(conn, Attach { slot, stream: number, position: Position::START, form, joined: false }, turn);
        self.begin(slot, number, Begun { call, id: request.id, token, effect }, turn);
        let param_headers = head.prefixed(PARAM_PREFIX).map(|(name, value)| (String::from_utf8_lossy(name).into(), value.into()));
        let delivery = Delivery::Exchange {
            principal,
            call,
            revision,
            method: request.method.into_owned().into(),
            params: params.unwrap_or_default(),
            param_headers: param_headers.collect(),
            head: turn.head.clone(),
            traceparent: turn.traceparent.clone(),
        };
        match keyed {
            Some(key) => self.claim(slot, call, key, delivery, turn),
            None => turn.out.push(Output::Deliver { session: id, delivery }),
        }
    }

    /// A new id for a session in `slot`.
    pub(super) fn mint(&self, slot: SlotIndex, turn: &mut Turn<'_>) -> SessionId {
        let mut nonce = [0; 16];
        nonce[..8].copy_from_slice(&(turn.random)().to_be_bytes());
        nonce[8..].copy_from_slice(&(turn.random)().to_be_bytes());
        SessionId::mint(&self.config.key, self.config.shard, slot, self.config.boot, nonce)
    }

    /// The handler answered: one JSON body with the status that the answer asks for, unless a stream is open or the policy wants one.
    pub(super) fn answer_exchange(
        &mut self,
        slot: SlotIndex,
        call: CallId,
        answer: Result<&[u8], &[u8]>,
        turn: &mut Turn<'_>,
    ) -> Result<(), NotTaken> {
        let session = self.session(slot).ok_or(NotTaken::SessionEnded)?;
        let found = session.call(call).ok_or(NotTaken::CallEnded)?;
        let number = found.stream;
        let mut message = Vec::new();
        let status = match answer {
            Ok(result) => {
                // The schema has a listen's result name its subscription too (`SubscriptionsListenResult`).
                let named = if found.effect == Effect::Listen { Some(named(result, &found.id)?) } else { None };
                mcp::write_result(&mut message, &found.id, &mcp::with_result_type(named.as_deref().unwrap_or(result)));
                200
            }
            Err(error) => {
                mcp::write_error(&mut message, Some(&found.id), error);
                status_of(error)
            }
        };
        if message.len() > self.config.limits.message_bytes {
            return Err(NotTaken::TooLarge);
        }
        let conn = session.stream(number).and_then(|stream| stream.attached().first().copied());
        let serving = conn.and_then(|conn| Some((conn, self.connection(conn)?.serving.as_ref()?.form)));
        self.count_answered(slot, call, turn);
        self.settle_key(slot, call, || outcome_of(answer), turn);
        match serving {
            Some((conn, Form::Json)) => self.answer_at_once(conn, slot, call, status, &message, turn),
            Some((conn, Form::Undecided | Form::Held)) if status != 200 || self.config.response != ResponsePolicy::Sse => {
                self.answer_at_once(conn, slot, call, status, &message, turn);
            }
            None => {
                self.take_out(slot, call);
                self.end_session(slot, Ended::Closed, turn);
            }
            serving => {
                if let Some((conn, Form::Undecided | Form::Held)) = serving {
                    self.open_stream(conn, None, None, turn);
                }
                let position = self.append_answer(slot, number, &message, turn);
                self.end_call(slot, call, AnswerState::At(position), turn);
            }
        }
        Ok(())
    }

    /// A request is refused after it was taken in: by the refusal's status, or by the same as an error where the stream is open.
    pub(super) fn refuse_exchange(
        &mut self,
        slot: SlotIndex,
        call: CallId,
        refusal: Refusal,
        turn: &mut Turn<'_>,
    ) -> Result<(), NotTaken> {
        let session = self.session(slot).ok_or(NotTaken::SessionEnded)?;
        let found = session.call(call).ok_or(NotTaken::CallEnded)?;
        let (id, conn) = (found.id.clone(), session.stream(found.stream).and_then(|stream| stream.attached().first().copied()));
        let form = conn.and_then(|conn| Some(self.connection(conn)?.serving.as_ref()?.form));
        let (Some(conn), Some(Form::Held | Form::Undecided | Form::Json)) = (conn, form) else {
            self.count_refusal(refusal);
            return self.answer_exchange(slot, call, Err(&refusal_error(refusal)), turn);
        };
        self.count_answered(slot, call, turn);
        self.take_out(slot, call);
        self.detach(conn, turn);
        self.refuse(conn, refusal, None, Some(&id));
        Ok(())
    }

    /// A call is in flight no more, and its stream says nothing of it.
    fn take_out(&mut self, slot: SlotIndex, call: CallId) {
        if let Some(ended) = self.session_mut(slot).and_then(|session| session.take_call(call)) {
            self.wheel.cancel(ended.timer);
        }
    }

    /// Nothing was said before the answer: it goes to its connection without a way through the log.
    fn answer_at_once(&mut self, conn: ConnId, slot: SlotIndex, call: CallId, status: u16, message: &[u8], turn: &mut Turn<'_>) {
        self.take_out(slot, call);
        self.detach(conn, turn);
        self.answer(conn, &Whole { status, json: true, verdict: None, fields: &[], body: message });
    }

    /// An exchange has lost its connection, or has answered on it: it ends. 2026-07-28, Streamable HTTP, "Cancellation": "Closing the SSE
    /// response stream MUST be treated by the server as cancellation of that request. […] The server SHOULD stop work on the cancelled
    /// request as soon as practical and MUST NOT send any further messages for it."
    pub(super) fn leave_exchange(&mut self, slot: SlotIndex, turn: &mut Turn<'_>) {
        let Some(session) = self.session(slot).filter(|session| session.attached == 0) else { return };
        if let Some(call) = session.calls.first().map(|call| call.call) {
            if self.runs_under_key(slot, call) {
                return;
            }
            self.cancel_call(slot, call, Cancelled::ByClient, turn);
        }
        self.end_session(slot, Ended::Closed, turn);
    }

    /// The server drains: streams of changes would never end by themselves. Subscriptions, "Cancellation": "The server tears it down (e.g.,
    /// during shutdown) — it MUST close the SSE stream (HTTP)".
    pub(super) fn end_listening(&mut self, turn: &mut Turn<'_>) {
        let calls = self.sessions.iter().flatten().flat_map(|session| session.calls.iter().map(|call| (session.id.slot(), call)));
        let listening: Vec<_> =
            calls.filter(|(_, call)| call.effect == Effect::Listen).map(|(slot, call)| (slot, call.call)).collect();
        for (slot, call) in listening {
            self.cancel_call(slot, call, Cancelled::Drain, turn);
        }
    }
}
