//! Requests as bytes, and the messages that are no calls: each is sent until the server has it, as far as sending it again does no harm.
//!
//! Never sends a call or a caller's notification twice.

use bytes::Bytes;

use super::conn::Errand;
use super::io::{CallId, CallOptions, Event, Purpose, RequestKey, Turn};
use super::outcome::{Failure, Loss, StartError, Undelivered};
use super::{Client, State};
use crate::mcp::{self, Id};
use crate::time::Instant;

/// A message on its way.
#[derive(Debug)]
pub(super) struct Post {
    what: What,
    body: Bytes,
    /// Attempts that failed.
    failures: u32,
    /// When the next attempt is due.
    pub at: Option<Instant>,
}

#[derive(Debug)]
enum What {
    /// With the result that `Event::Ready` tells.
    Initialized(Bytes),
    Notification(Box<str>),
    Answer(RequestKey),
    Cancelled(CallId),
}

impl Post {
    fn new(what: What, body: Vec<u8>) -> Self {
        Self { what, body: body.into(), failures: 0, at: None }
    }

    pub(super) fn purpose(&self) -> Purpose {
        match self.what {
            What::Answer(_) => Purpose::Answer,
            What::Initialized(_) | What::Notification(_) | What::Cancelled(_) => Purpose::Notification,
        }
    }
}

impl Client {
    /// `initialize`.
    pub(super) fn initialize_request(&self) -> Bytes {
        let config = &self.config;
        let params = format!(
            r#"{{"protocolVersion":"{}","capabilities":{},"clientInfo":{}}}"#,
            config.revision.as_str(),
            config.capabilities,
            config.client_info
        );
        let mut body = Vec::with_capacity(params.len() + 64);
        mcp::write_request(&mut body, CallId::INITIALIZE.0, "initialize", Some(params.as_bytes()));
        self.post_request(&body, None)
    }

    /// A call; `None` where it cannot be written.
    pub(super) fn call_request(
        &self,
        id: CallId,
        method: &str,
        params: Option<&[u8]>,
        options: CallOptions<'_>,
    ) -> Option<Bytes> {
        let visible = |key: &str| !key.is_empty() && key.bytes().all(|byte| matches!(byte, b'!'..=b'~'));
        if !options.idempotency_key.is_none_or(visible) || !params.is_none_or(mcp::is_json_object) {
            return None;
        }
        let with_token;
        let params = if options.progress {
            let params = params.map(serde_json::from_slice).transpose().ok()?;
            with_token = mcp::put_progress_token(params, id.0)?;
            Some(&with_token[..])
        } else {
            params
        };
        let mut body = Vec::with_capacity(params.map_or(0, <[u8]>::len) + method.len() + 64);
        mcp::write_request(&mut body, id.0, method, params);
        Some(self.post_request(&body, options.idempotency_key))
    }

    /// GET of a stream.
    pub(super) fn resume_request(&self, last_id: &str) -> Bytes {
        let mut out = self.request_head("GET", "text/event-stream");
        if !last_id.is_empty() {
            field(&mut out, "Last-Event-ID", last_id);
        }
        out.extend_from_slice(b"\r\n");
        out.into()
    }

    /// DELETE of the session.
    pub(super) fn end_request(&self) -> Bytes {
        let mut out = self.request_head("DELETE", "application/json");
        out.extend_from_slice(b"\r\n");
        out.into()
    }

    fn post_request(&self, body: &[u8], idempotency_key: Option<&str>) -> Bytes {
        let mut out = self.request_head("POST", "application/json, text/event-stream");
        field(&mut out, "Content-Type", "application/json");
        field(&mut out, "Content-Length", &body.len().to_string());
        if let Some(key) = idempotency_key {
            field(&mut out, "Idempotency-Key", key);
        }
        out.extend_from_slice(b"\r\n");
        out.extend_from_slice(body);
        out.into()
    }

    /// The request line and the fields of every request, without the empty line.
    fn request_head(&self, method: &str, accept: &str) -> Vec<u8> {
        let mut out = Vec::with_capacity(512);
        for part in [method, " ", &self.config.path, " HTTP/1.1\r\n"] {
            out.extend_from_slice(part.as_bytes());
        }
        field(&mut out, "Host", &self.config.authority);
        field(&mut out, "Accept", accept);
        if let Some(session) = &self.session {
            field(&mut out, "Mcp-Session-Id", session);
        }
        if let Some(revision) = self.revision {
            field(&mut out, "MCP-Protocol-Version", revision.as_str());
        }
        for (name, value) in &self.config.fields {
            field(&mut out, name, value);
        }
        out
    }

    pub(super) fn notify(&mut self, method: &str, params: Option<&[u8]>, turn: &mut Turn<'_>) {
        let what = What::Notification(method.into());
        let mut body = Vec::new();
        mcp::write_notification(&mut body, method, params);
        let post = Post::new(what, body);
        if self.state == State::Ready && params.is_none_or(mcp::is_json_object) {
            self.post(post, turn);
        } else {
            self.post_refused(post, Failure::NotSent, turn);
        }
    }

    pub(super) fn post_initialized(&mut self, result: Bytes, turn: &mut Turn<'_>) {
        let mut body = Vec::new();
        mcp::write_notification(&mut body, "notifications/initialized", None);
        self.post(Post::new(What::Initialized(result), body), turn);
    }

    pub(super) fn post_answer(&mut self, key: RequestKey, id: &Id, outcome: Result<&[u8], &[u8]>, turn: &mut Turn<'_>) {
        let mut body = Vec::new();
        match outcome {
            Ok(result) if mcp::is_json(result) => mcp::write_result(&mut body, id, result),
            Err(error) if mcp::is_json_object(error) => mcp::write_error(&mut body, Some(id), error),
            // The server waits: it must hear something.
            _ => mcp::write_error(&mut body, Some(id), br#"{"code":-32603,"message":"The client's answer was no JSON"}"#),
        }
        self.post(Post::new(What::Answer(key), body), turn);
    }

    pub(super) fn post_cancelled(&mut self, call: CallId, reason: Option<&str>, turn: &mut Turn<'_>) {
        let mut params = serde_json::json!({ "requestId": call.0 });
        if let Some(reason) = reason {
            params["reason"] = reason.into();
        }
        let mut body = Vec::new();
        mcp::write_notification(&mut body, "notifications/cancelled", Some(params.to_string().as_bytes()));
        self.post(Post::new(What::Cancelled(call), body), turn);
    }

    /// Makes the first or the next attempt.
    pub(super) fn post(&mut self, mut post: Post, turn: &mut Turn<'_>) {
        let under_way = self.posts.len() + self.conns.iter().filter(|conn| conn.posts()).count();
        if under_way >= self.config.limits.posts && post.failures == 0 {
            return self.post_refused(post, Failure::NotSent, turn);
        }
        post.at = None;
        let request = self.post_request(&post.body, None);
        self.send(Errand::Post(Box::new(post)), request, turn);
    }

    /// The server has it.
    pub(super) fn posted(&mut self, post: Post, turn: &mut Turn<'_>) {
        if let What::Initialized(result) = post.what {
            self.confirmed(result, turn);
        }
    }

    /// An attempt failed, and the server may have it all the same. What the kernel of the protocol says may be said twice.
    pub(super) fn post_failed(&mut self, post: Post, loss: Loss, turn: &mut Turn<'_>) {
        match post.what {
            What::Notification(_) => self.post_refused(post, Failure::Lost(loss), turn),
            What::Initialized(_) | What::Answer(_) | What::Cancelled(_) => self.post_not_sent(post, loss, turn),
        }
    }

    /// An attempt failed, and may be made again.
    pub(super) fn post_not_sent(&mut self, mut post: Post, loss: Loss, turn: &mut Turn<'_>) {
        let limits = self.config.limits.clone_waits();
        post.failures += 1;
        if post.failures >= limits.attempts {
            return self.post_refused(post, Failure::Lost(loss), turn);
        }
        post.at = Some(turn.now + limits.wait(None, post.failures, (turn.random)()));
        self.posts.push(post);
    }

    /// It will not be delivered.
    pub(super) fn post_refused(&mut self, post: Post, why: Failure, turn: &mut Turn<'_>) {
        let what = match post.what {
            What::Initialized(_) => {
                let why = match why {
                    Failure::Refused(refused) => StartError::Refused(refused),
                    Failure::Lost(loss) => StartError::Lost(loss),
                    Failure::NotSent => StartError::Lost(Loss::Unreachable),
                };
                return self.fail(why, turn);
            }
            What::Notification(method) => Undelivered::Notification(method),
            What::Answer(key) => Undelivered::Answer(key),
            What::Cancelled(call) => Undelivered::Cancelled(call),
        };
        turn.event(Event::Undelivered { what, why });
    }
}

/// Appends a field. Its value was checked where it came from.
fn field(out: &mut Vec<u8>, name: &str, value: &str) {
    for part in [name, ": ", value, "\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
}
