//! JSON-RPC messages of the server: answers find their call, pings are answered, everything else is the caller's.
//!
//! Never accepts an answer that is not its stream's own.

use bytes::Bytes;

use super::io::{CallId, Event, RequestKey, StreamKey, Turn};
use super::outcome::{CallError, Outcome, StartError, Unknown, Violation};
use super::{Asked, Client};
use crate::mcp::{self, Body, Id, Message, Notification, Request, Response};
use crate::refusal::RPC_OUTCOME_UNKNOWN;

impl Client {
    /// The data of a `message` event; whether nothing more of its connection is wanted.
    pub(super) fn message_text(&mut self, key: StreamKey, data: &str, turn: &mut Turn<'_>) -> bool {
        let limits = self.config.limits.reading(data.len());
        match mcp::parse(data.as_bytes(), &limits) {
            Ok(body) => self.messages(key, body, turn),
            Err(refusal) => {
                turn.event(Event::Malformed { stream: key, why: refusal.shape().message });
                false
            }
        }
    }

    pub(super) fn messages(&mut self, key: StreamKey, body: Body<'_>, turn: &mut Turn<'_>) -> bool {
        match body {
            Body::One(message) => self.message(key, message, turn),
            Body::Batch(messages) => messages.into_iter().any(|message| self.message(key, message, turn)),
        }
    }

    fn message(&mut self, key: StreamKey, message: Message<'_>, turn: &mut Turn<'_>) -> bool {
        match message {
            Message::Response(response) => self.response(key, &response, turn),
            Message::Request(request) => {
                self.request(key, request, turn);
                false
            }
            Message::Notification(notification) => {
                self.notification(key, &notification, turn);
                false
            }
        }
    }

    fn response(&mut self, key: StreamKey, response: &Response<'_>, turn: &mut Turn<'_>) -> bool {
        // An error without an id is about a request that the server could not read: on a call's own stream, that one.
        let named = match (&response.id, key) {
            (None, StreamKey::Call(call)) => Some(call),
            (None, StreamKey::Standalone) => None,
            (Some(Id::Integer(id)), _) => u64::try_from(*id).ok().map(CallId),
            (Some(Id::Large(_) | Id::Text(_)), _) => None,
        };
        let is_known = |named: &CallId| *named == CallId::INITIALIZE || (self.first_call..self.next_call).contains(&named.0);
        let Some(named) = named.filter(is_known) else {
            return self.violated(key, Violation::UnknownAnswer, turn);
        };
        let answered = self.unanswered(named).is_none();
        if answered {
            return self.violated(key, Violation::SecondAnswer(named), turn);
        }
        if key.call() != Some(named) {
            return self.violated(key, Violation::ForeignAnswer(named), turn);
        }
        let bytes = |json: &str| Bytes::copy_from_slice(json.as_bytes());
        if named == CallId::INITIALIZE {
            match response.outcome {
                Ok(result) => self.initialized(bytes(result.get()), turn),
                Err(error) => self.fail(StartError::Error(bytes(error.get())), turn),
            }
        } else {
            let outcome = match response.outcome {
                Ok(result) => Outcome::Result(bytes(result.get())),
                Err(error) if mcp::integer_at(error.get(), &["code"]) == Some(RPC_OUTCOME_UNKNOWN.into()) => {
                    Outcome::Unknown(Unknown::Server(bytes(error.get())))
                }
                Err(error) => Outcome::Error(CallError::Answered(bytes(error.get()))),
            };
            self.tell(named, outcome, turn);
        }
        // The stream's end follows; a server that leaves it open does not hold its connection for ever.
        let linger = Some(turn.now + self.config.limits.linger);
        if let Some(conn) = self.stream(key).and_then(|stream| stream.conn()) {
            self.set_deadline(conn, linger);
        }
        false
    }

    fn request(&mut self, stream: StreamKey, request: Request<'_>, turn: &mut Turn<'_>) {
        // 2025-11-25, basic, "Ping": "The receiver MUST respond promptly with an empty response"
        if request.method == "ping" {
            return self.post_answer(self.fresh_key(), &request.id, Ok(b"{}"), turn);
        }
        let key = self.fresh_key();
        self.next_request += 1;
        if self.asked.len() >= self.config.limits.requests {
            let error = br#"{"code":-32000,"message":"The client has too many requests to answer"}"#;
            return self.post_answer(key, &request.id, Err(error), turn);
        }
        self.asked.push(Asked { key, id: request.id });
        let params = request.params.map(|params| Bytes::copy_from_slice(params.get().as_bytes()));
        turn.event(Event::Request { request: key, stream, method: request.method.as_ref().into(), params });
    }

    fn fresh_key(&self) -> RequestKey {
        RequestKey(self.next_request)
    }

    pub(super) fn answer(&mut self, key: RequestKey, outcome: Result<&[u8], &[u8]>, turn: &mut Turn<'_>) {
        let Some(at) = self.asked.iter().position(|asked| asked.key == key) else { return };
        let asked = self.asked.remove(at);
        self.post_answer(key, &asked.id, outcome, turn);
    }

    fn notification(&mut self, stream: StreamKey, notification: &Notification<'_>, turn: &mut Turn<'_>) {
        if notification.method == "notifications/cancelled"
            && let Some(id) = mcp::cancelled_request(notification.params)
            && let Some(at) = self.asked.iter().position(|asked| asked.id == id)
        {
            let request = self.asked.remove(at).key;
            return turn.event(Event::RequestCancelled { request });
        }
        if !self.config.notifications {
            return;
        }
        let params = notification.params.map(|params| Bytes::copy_from_slice(params.get().as_bytes()));
        turn.event(Event::Notification { stream, method: notification.method.as_ref().into(), params });
    }
}
