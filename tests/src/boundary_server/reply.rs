//! Whole answers: refusals from one table, JSON bodies, and the fields that every answer carries.
//!
//! Never decides; `get`, `post` and `state` do.

use std::fmt::Write as _;

use serde_json::{Value, json};

/// Why a session answers no more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Reason {
    Expired,
    Deleted,
    Lineage,
    Restarted,
    Unknown,
    Incarnation,
    Forgotten,
}

impl Reason {
    fn name(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Lineage => "lineage",
            Self::Restarted => "restarted",
            Self::Unknown => "unknown",
            Self::Incarnation => "incarnation",
            Self::Forgotten => "forgotten",
        }
    }
}

/// Why a request is not served.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Refusal {
    BadRequest(&'static str),
    HeadTooLarge,
    Forbidden(&'static str),
    Unauthorized,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
    TooLarge,
    Parse,
    Invalid(&'static str),
    UnsupportedRevision,
    SessionRequired,
    Expired(Reason),
    InvalidCursor,
    KeyReused,
    Shed,
    /// A fault's: the page has no 409.
    Conflict,
    /// A fault's: the page has no 400 for a session that is over.
    DeadSession,
}

impl Refusal {
    /// Status, code, JSON-RPC code, what to do, and words.
    fn row(self) -> (u16, &'static str, i64, &'static str, &'static str) {
        const FIX: &str = "fix_request";
        match self {
            Self::BadRequest(why) => (400, "bad_request", -32000, FIX, why),
            Self::HeadTooLarge => (431, "head_too_large", -32000, FIX, "the request's head is too large"),
            Self::Forbidden(why) => (403, "forbidden", -32000, FIX, why),
            Self::Unauthorized => (401, "unauthorized", -32000, FIX, "a bearer token is needed"),
            Self::NotFound => (404, "not_found", -32000, FIX, "nothing is served here"),
            Self::MethodNotAllowed => (405, "method_not_allowed", -32000, FIX, "this method is not served"),
            Self::NotAcceptable => (406, "not_acceptable", -32000, FIX, "Accept does not admit the answer"),
            Self::UnsupportedMediaType => (415, "unsupported_media_type", -32000, FIX, "the body must be application/json"),
            Self::TooLarge => (413, "too_large", -32000, FIX, "the body is too large"),
            Self::Parse => (400, "parse_error", -32700, FIX, "the body is not JSON"),
            Self::Invalid(why) => (400, "invalid_request", -32600, FIX, why),
            Self::UnsupportedRevision => (400, "unsupported_revision", -32000, FIX, "this MCP-Protocol-Version is not supported"),
            Self::SessionRequired => (400, "session_required", -32000, FIX, "Mcp-Session-Id is needed"),
            Self::Expired(Reason::Forgotten) => {
                (404, "session_expired", -32001, "verify", "the stream is too old to be remembered; the session lives")
            }
            Self::Expired(_) => (404, "session_expired", -32001, "reinitialize", "session not found"),
            Self::InvalidCursor => (400, "invalid_cursor", -32000, FIX, "Last-Event-ID was not issued for this session"),
            Self::KeyReused => (422, "idempotency_key_reused", -32000, FIX, "the key was used with another body"),
            Self::Shed => (503, "shed", -32000, "reconnect", "no room for more at the moment"),
            Self::Conflict => (409, "conflict", -32000, "reconnect", "the stream is open already"),
            Self::DeadSession => (400, "bad_request", -32000, FIX, "no valid session id"),
        }
    }

    /// The answer, to the request with this id if one was read.
    pub(super) fn reply(self, id: Option<&Value>) -> Reply {
        let (status, code, number, action, message) = self.row();
        let mut data = json!({"code": code, "action": action});
        if let Self::Expired(reason) = self {
            data["reason"] = reason.name().into();
        }
        let mut body = json!({"jsonrpc": "2.0", "error": {"code": number, "message": message, "data": data}});
        // The protocol's errors leave the id out where there is none.
        if let Some(id) = id {
            body["id"] = id.clone();
        }
        let mut reply = Reply::json(status, &body).with("Rejoin-Verdict", code);
        match self {
            Self::Unauthorized => reply = reply.with("WWW-Authenticate", "Bearer"),
            Self::MethodNotAllowed => reply = reply.with("Allow", METHODS),
            _ => {}
        }
        reply
    }
}

/// What is served.
pub(super) const METHODS: &str = "GET, POST, DELETE, OPTIONS";

/// A whole answer.
#[derive(Debug)]
pub(super) struct Reply {
    status: u16,
    fields: Vec<(&'static str, String)>,
    body: Option<String>,
}

impl Reply {
    pub(super) fn empty(status: u16) -> Self {
        Self { status, fields: Vec::new(), body: None }
    }

    pub(super) fn json(status: u16, body: &Value) -> Self {
        Self::text(status, body.to_string())
    }

    /// A body that is JSON already.
    pub(super) fn text(status: u16, body: String) -> Self {
        Self { status, fields: vec![("Content-Type", "application/json".to_owned())], body: Some(body) }
    }

    pub(super) fn with(mut self, name: &'static str, value: impl Into<String>) -> Self {
        self.fields.push((name, value.into()));
        self
    }

    /// Its bytes. `common` are the fields that every answer to this request carries; a HEAD gets no body.
    pub(super) fn bytes(&self, common: &[(&'static str, String)], head: bool) -> String {
        let mut text = head_of(self.status, self.fields.iter().chain(common));
        let body = self.body.as_deref().unwrap_or_default();
        // RFC 9110, 8.6: no Content-Length on a 204.
        if self.status != 204 {
            let _ = write!(text, "Content-Length: {}\r\n", body.len());
        }
        text.push_str("\r\n");
        if !head {
            text.push_str(body);
        }
        text
    }
}

/// A status line and fields, without the empty line.
pub(super) fn head_of<'f>(status: u16, fields: impl Iterator<Item = &'f (&'static str, String)>) -> String {
    let phrase = match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        404 => "Not Found",
        _ if status < 500 => "Refused",
        _ => "Unavailable",
    };
    let mut text = format!("HTTP/1.1 {status} {phrase}\r\n");
    for (name, value) in fields {
        let _ = write!(text, "{name}: {value}\r\n");
    }
    text
}
