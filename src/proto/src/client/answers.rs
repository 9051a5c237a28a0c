//! What a whole answer means, by what was asked; and what a lost one means. The client's side of the boundary's tables.
//!
//! Never guesses that a call did not run: only a refusal that comes before execution says so.

use std::time::Duration;

use super::conn::Errand;
use super::io::{BodySeen, CallId, Event, StreamKey, Turn};
use super::outcome::{CallError, Failure, Loss, Outcome, Refused, StartError, StreamEnd, Unknown};
use super::{Client, State};
use crate::http::{AnswerHead, BadAnswer};
use crate::mcp::{self, Body, Message};

/// An answer that came whole, streams aside.
pub(super) struct Whole<'a> {
    status: u16,
    /// It names a verdict: a server of ours wrote it, and refused before it executed anything.
    verdict: bool,
    json: bool,
    retry_after: Option<Duration>,
    body: &'a [u8],
}

impl<'a> Whole<'a> {
    pub(super) fn new(head: &AnswerHead, body: &'a [u8]) -> Self {
        let seconds = head.text("retry-after").and_then(|value| value.parse().ok());
        Self {
            status: head.status(),
            verdict: head.text("rejoin-verdict").is_some(),
            json: head.content_is("application/json"),
            retry_after: seconds.map(Duration::from_secs),
            body,
        }
    }

    fn succeeded(&self) -> bool {
        matches!(self.status, 200..=299)
    }

    /// Whether the same request may be answered otherwise later.
    fn may_pass(&self) -> bool {
        matches!(self.status, 408 | 409 | 425 | 429 | 500..=599)
    }

    /// The refusal, read from its body as far as that is JSON-RPC.
    fn refused(&self, client: &Client) -> Box<Refused> {
        let limits = client.config.limits.reading(self.body.len());
        let parsed = mcp::parse(self.body, &limits);
        let error = match &parsed {
            Ok(Body::One(Message::Response(response))) => response.outcome.err().map(|error| error.get()),
            _ => None,
        };
        let word = |name| mcp::text_at(error?, &["data", name]).map(|word| word.as_ref().into());
        Box::new(Refused {
            status: self.status,
            error: error.map(|error| bytes::Bytes::copy_from_slice(error.as_bytes())),
            code: word("code"),
            reason: word("reason"),
            action: word("action"),
        })
    }
}

impl Client {
    /// A request has its answer.
    pub(super) fn answered(&mut self, errand: Errand, whole: &Whole<'_>, turn: &mut Turn<'_>) {
        if let Some(to) = errand.purpose() {
            turn.observer.body(&BodySeen { to, status: whole.status, bytes: whole.body });
        }
        match errand {
            Errand::Initialize => self.call_answered(CallId::INITIALIZE, whole, turn),
            Errand::Call(call) => self.call_answered(call, whole, turn),
            Errand::Resume(key) => self.resume_answered(key, whole, turn),
            Errand::Post(post) if whole.succeeded() => self.posted(*post, turn),
            Errand::Post(post) if whole.may_pass() => self.post_failed(*post, Loss::Status(whole.status), turn),
            Errand::Post(post) => {
                let refused = whole.refused(self);
                self.post_refused(*post, Failure::Refused(refused.clone()), turn);
                self.lose_session_on(&refused, turn);
            }
            Errand::End => self.ended(turn),
            Errand::None => {}
        }
    }

    /// A request will get no answer; `sent` says whether the server may have got it.
    pub(super) fn errand_lost(&mut self, errand: Errand, loss: Loss, sent: bool, turn: &mut Turn<'_>) {
        match errand {
            Errand::Initialize => self.lost(StreamKey::Call(CallId::INITIALIZE), loss, None, turn),
            Errand::Call(call) if !sent => {
                self.tell(call, Outcome::Error(CallError::NotSent(loss)), turn);
                self.drop_call(call, turn);
            }
            Errand::Call(call) => self.lost(StreamKey::Call(call), loss, None, turn),
            Errand::Resume(key) => self.lost(key, loss, None, turn),
            Errand::Post(post) if sent => self.post_failed(*post, loss, turn),
            Errand::Post(post) => self.post_not_sent(*post, loss, turn),
            Errand::End => self.ended(turn),
            Errand::None => {}
        }
    }

    pub(super) fn ended(&mut self, turn: &mut Turn<'_>) {
        self.state = State::Ended;
        self.close_everything(turn);
        turn.event(Event::Ended);
    }

    /// POST: one JSON body, or none of the events that were to come.
    fn call_answered(&mut self, call: CallId, whole: &Whole<'_>, turn: &mut Turn<'_>) {
        if whole.status == 200 && whole.json {
            let key = StreamKey::Call(call);
            let limits = self.config.limits.reading(whole.body.len());
            match mcp::parse(whole.body, &limits) {
                Ok(body) => {
                    if self.messages(key, body, turn) {
                        return;
                    }
                }
                Err(_) => return self.give_up(call, Unknown::Unreadable(BadAnswer::Malformed("The body is no JSON-RPC")), turn),
            }
            if self.unanswered(call).is_some() {
                return self.give_up(call, Unknown::NoAnswer(200), turn);
            }
            return self.drop_call(call, turn);
        }
        // A success that brings no answer has taken the call; a server's failure may have come after it ran, unless the server is one
        // that refuses first. Redirections are not followed: another server is another session.
        let refuses = match whole.status {
            300..=499 => true,
            500..=599 => whole.verdict,
            _ => false,
        };
        if !refuses {
            return self.give_up(call, Unknown::NoAnswer(whole.status), turn);
        }
        let refused = whole.refused(self);
        if call == CallId::INITIALIZE {
            return self.fail(StartError::Refused(refused), turn);
        }
        self.tell(call, Outcome::Error(CallError::Refused(refused.clone())), turn);
        self.drop_call(call, turn);
        self.lose_session_on(&refused, turn);
    }

    /// GET: everything but 200.
    fn resume_answered(&mut self, key: StreamKey, whole: &Whole<'_>, turn: &mut Turn<'_>) {
        if whole.may_pass() {
            return self.lost(key, Loss::Status(whole.status), whole.retry_after, turn);
        }
        if whole.succeeded() {
            // Row 12: nothing more will come. Any other success is no stream either.
            return match key {
                StreamKey::Standalone if whole.status == 204 => self.end_standalone(StreamEnd::Complete, turn),
                StreamKey::Standalone => {
                    self.end_standalone(StreamEnd::Unreadable(BadAnswer::Malformed("The answer is no event stream")), turn);
                }
                StreamKey::Call(call) if whole.status == 204 => self.give_up(call, Unknown::Complete, turn),
                StreamKey::Call(call) => self.give_up(call, Unknown::NoAnswer(whole.status), turn),
            };
        }
        let refused = whole.refused(self);
        // Row 10: only this stream is lost.
        if refused.reason.as_deref() != Some("forgotten") && self.lose_session_on(&refused, turn) {
            return;
        }
        match key {
            StreamKey::Standalone if whole.status == 405 => self.end_standalone(StreamEnd::NotOffered, turn),
            StreamKey::Standalone => self.end_standalone(StreamEnd::Refused(refused), turn),
            StreamKey::Call(call) => self.give_up(call, Unknown::Refused(refused), turn),
        }
    }

    /// 2025-11-25, transports, "Session Management": "When a client receives HTTP 404 in response to a request containing an
    /// Mcp-Session-Id, it MUST start a new session by sending a new InitializeRequest without a session ID attached." Beginning it is the
    /// caller's decision. Whether the session was lost.
    fn lose_session_on(&mut self, refused: &Refused, turn: &mut Turn<'_>) -> bool {
        let lost = refused.status == 404 && self.session.is_some() && !matches!(self.state, State::Ended);
        if lost {
            self.lose_session(refused.reason.clone(), turn);
        }
        lost
    }
}
