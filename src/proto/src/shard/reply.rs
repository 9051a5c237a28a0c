//! Answers as bytes: refusals, JSON bodies, the heads of streams, CORS. Also what a head alone decides.
//!
//! Never decides about sessions or cursors.

use bytes::Bytes;

use crate::connection::{Judged, Reply};
use crate::http::{BodyKind, Head, Method, ResponseHead, Version};
use crate::ids::{ConnId, Principal};
use crate::mcp::{self, Id, Revision};
use crate::refusal::{RPC_OUTCOME_UNKNOWN, Refusal};

use super::io::World;
use super::{Config, Shard};

/// The methods of the endpoint, for `Allow` (RFC 9110, section 10.2.1).
const METHODS: &str = "GET, POST, DELETE, OPTIONS";
/// Request fields that a browser may send (preflight).
const REQUEST_FIELDS: &str = "Accept, Authorization, Content-Type, Idempotency-Key, Last-Event-ID, MCP-Protocol-Version, Mcp-Method, Mcp-Name, Mcp-Session-Id";
/// Answer fields that a browser's script may read.
const EXPOSED_FIELDS: &str = "Mcp-Session-Id, Rejoin-Verdict, Retry-After, WWW-Authenticate";
/// Longest revision that a refusal repeats, in characters. Reason: it is the client's, and there is none that is longer.
const REQUESTED_MAX: usize = 64;
/// What a refusal for lack of room asks for, in seconds.
pub(super) const RETRY_AFTER: u64 = 1;

/// Rows 0 to 3 of the GET table, and their like for the other methods: all that needs no body and no session.
pub(super) fn judge(config: &Config, head: &Head, world: &dyn World) -> Judged {
    let refused = |refusal| Judged::Refused(refusal, None);
    if let Err(refusal) = config.names.check(head) {
        return refused(refusal);
    }
    if head.path() != config.path {
        return refused(Refusal::NotFound);
    }
    match head.method() {
        Method::Options => return Judged::Preflight,
        Method::Get | Method::Post | Method::Delete => {}
        Method::Head | Method::Other => return refused(Refusal::MethodNotAllowed),
    }
    let principal = match world.principal(head) {
        Ok(principal) => principal,
        Err(unauthorized) => return Judged::Refused(Refusal::Unauthorized, Some(unauthorized.challenge)),
    };
    match head.method() {
        Method::Get if !head.accepts("text/event-stream") => {
            refused(Refusal::NotAcceptable("Accept must admit text/event-stream"))
        }
        Method::Post => judge_post(head, principal),
        _ => Judged::Admitted(principal),
    }
}

/// MCP 2025-11-25, Transports, "Sending Messages to the Server", item 2: "The client MUST include an `Accept` header, listing both
/// `application/json` and `text/event-stream` as supported content types."
fn judge_post(head: &Head, principal: Principal) -> Judged {
    if !head.accepts("application/json") || !head.accepts("text/event-stream") {
        let why = "Accept must admit both application/json and text/event-stream";
        return Judged::Refused(Refusal::NotAcceptable(why), None);
    }
    if !head.content_is_json() {
        return Judged::Refused(Refusal::UnsupportedMediaType, None);
    }
    Judged::Admitted(principal)
}

/// An answer whose body is known.
pub(super) struct Whole<'a> {
    pub status: u16,
    pub json: bool,
    pub verdict: Option<&'a str>,
    pub fields: &'a [(&'a str, &'a str)],
    pub body: &'a [u8],
}

/// The fields that every answer with CORS carries, after `fields`.
fn with_cors<'a>(reply: &'a Reply, verdict: Option<&'a str>, fields: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    let mut all = fields.to_vec();
    if let Some(verdict) = verdict {
        all.push(("Rejoin-Verdict", verdict));
    }
    if let Some(origin) = &reply.origin {
        all.extend([
            ("Access-Control-Allow-Origin", &**origin),
            ("Access-Control-Expose-Headers", EXPOSED_FIELDS),
            ("Vary", "Origin"),
        ]);
    }
    all
}

/// A whole answer as bytes.
fn whole(reply: &Reply, answer: &Whole<'_>) -> Bytes {
    let mut out = Vec::with_capacity(512 + answer.body.len());
    let body = match answer.status {
        // RFC 9110, section 8.6: "A server MUST NOT send a Content-Length header field in any response with a status code of 1xx
        // (Informational) or 204 (No Content)."
        204 => BodyKind::Empty,
        _ => BodyKind::Length(answer.body.len()),
    };
    ResponseHead {
        status: answer.status,
        content_type: answer.json.then_some("application/json"),
        body,
        keep_alive: reply.keep_alive,
        version: reply.version,
        fields: &with_cors(reply, answer.verdict, answer.fields),
    }
    .write(&mut out);
    if !reply.bodiless {
        out.extend_from_slice(answer.body);
    }
    out.into()
}

/// What a connection is told for which there is no room, before anything of it is read; `seconds` is its `Retry-After`.
pub(super) fn turned_away(refusal: Refusal, seconds: u64) -> Bytes {
    let shape = refusal.shape();
    let seconds = seconds.to_string();
    let fields = [("Retry-After", &*seconds)];
    let body = refusal_body(refusal, None);
    let answer = Whole { status: shape.status, json: true, verdict: Some(shape.code), fields: &fields, body: &body };
    whole(&Reply::default(), &answer)
}

/// The head of an SSE stream.
pub(super) fn stream_head(reply: &Reply, verdict: Option<&str>, session_id: Option<&str>) -> Bytes {
    let mut out = Vec::with_capacity(512);
    // Proxies must neither hold back events nor keep them.
    let mut fields = vec![("X-Accel-Buffering", "no")];
    fields.extend(session_id.map(|id| ("Mcp-Session-Id", id)));
    ResponseHead {
        status: 200,
        content_type: Some("text/event-stream"),
        body: if reply.version == Version::Http11 { BodyKind::Chunked } else { BodyKind::UntilClose },
        keep_alive: reply.keep_alive,
        version: reply.version,
        fields: &with_cors(reply, verdict, &fields),
    }
    .write(&mut out);
    out.into()
}

/// The JSON-RPC error object of a refusal.
pub(super) fn refusal_error(refusal: Refusal) -> Vec<u8> {
    error_object(refusal, None)
}

/// The same, with the revisions that there are where it is one that there is not.
fn error_object(refusal: Refusal, requested: Option<&str>) -> Vec<u8> {
    let shape = refusal.shape();
    let mut data = serde_json::json!({ "code": shape.code, "action": shape.action.as_str() });
    if let Some(reason) = shape.reason {
        data["reason"] = reason.into();
    }
    if let Some(requested) = requested {
        data["supported"] = Revision::SERVED.map(Revision::as_str).to_vec().into();
        data["requested"] = requested.chars().take(REQUESTED_MAX).collect::<String>().into();
    }
    serde_json::json!({ "code": shape.rpc_code, "message": shape.message, "data": data }).to_string().into_bytes()
}

/// The same, as the message that refuses `id`, or a request whose id could not be read.
fn refusal_body(refusal: Refusal, id: Option<&Id>) -> Vec<u8> {
    error_body(&refusal_error(refusal), id)
}

fn error_body(error: &[u8], id: Option<&Id>) -> Vec<u8> {
    let mut body = Vec::with_capacity(error.len() + 64);
    mcp::write_error(&mut body, id, error);
    body
}

/// The error of a call that may have run and whose result is lost.
pub(super) fn outcome_unknown() -> Vec<u8> {
    serde_json::json!({
        "code": RPC_OUTCOME_UNKNOWN,
        "message": "The outcome of this call is unknown: it may have run. Verify before calling again.",
        "data": { "code": "outcome_unknown", "action": "verify" },
    })
    .to_string()
    .into_bytes()
}

/// The same, as a message that answers `id`.
pub(super) fn outcome_unknown_message(id: &Id) -> Vec<u8> {
    let mut message = Vec::with_capacity(256);
    mcp::write_error(&mut message, Some(id), &outcome_unknown());
    message
}

impl Shard {
    /// Queues a whole answer; the connection's request is over.
    pub(super) fn answer(&mut self, conn: ConnId, answer: &Whole<'_>) {
        let Some(connection) = self.connection(conn) else { return };
        let bytes = whole(&connection.reply, answer);
        connection.queue(bytes);
        connection.answered();
        self.ready.push_back(conn);
    }

    /// 200 with one JSON body.
    pub(super) fn answer_json(&mut self, conn: ConnId, fields: &[(&str, &str)], body: &[u8]) {
        self.answer(conn, &Whole { status: 200, json: true, verdict: None, fields, body });
    }

    /// 202 or 204, without a body.
    pub(super) fn answer_empty(&mut self, conn: ConnId, status: u16, verdict: Option<&str>) {
        self.answer(conn, &Whole { status, json: false, verdict, fields: &[], body: &[] });
    }

    /// The answer to a CORS preflight.
    pub(super) fn answer_preflight(&mut self, conn: ConnId) {
        let fields = [
            ("Allow", METHODS),
            ("Access-Control-Allow-Methods", METHODS),
            ("Access-Control-Allow-Headers", REQUEST_FIELDS),
            ("Access-Control-Max-Age", "600"),
        ];
        self.answer(conn, &Whole { status: 204, json: false, verdict: None, fields: &fields, body: &[] });
    }

    /// A refusal: its status, its JSON-RPC error, its verdict.
    pub(super) fn refuse(&mut self, conn: ConnId, refusal: Refusal, challenge: Option<&str>, id: Option<&Id>) {
        self.count_refusal(refusal);
        let shape = refusal.shape();
        let mut fields = Vec::new();
        let seconds = RETRY_AFTER.to_string();
        match refusal {
            Refusal::MethodNotAllowed => fields.push(("Allow", METHODS)),
            Refusal::Shed(..) => fields.push(("Retry-After", &*seconds)),
            Refusal::Unauthorized => fields.push(("WWW-Authenticate", challenge.unwrap_or("Bearer"))),
            _ => {}
        }
        if shape.closes
            && let Some(connection) = self.connection(conn)
        {
            connection.reply.keep_alive = false;
        }
        let body = refusal_body(refusal, id);
        self.answer(conn, &Whole { status: shape.status, json: true, verdict: Some(shape.code), fields: &fields, body: &body });
    }

    /// 2026-07-28, versioning, "Protocol Version Negotiation": "it MUST respond with an `UnsupportedProtocolVersionError` listing the versions
    /// it does support".
    pub(super) fn refuse_revision(&mut self, conn: ConnId, requested: &str, id: &Id) {
        let refusal = Refusal::RevisionNotServed;
        self.count_refusal(refusal);
        let (shape, body) = (refusal.shape(), error_body(&error_object(refusal, Some(requested)), Some(id)));
        self.answer(conn, &Whole { status: shape.status, json: true, verdict: Some(shape.code), fields: &[], body: &body });
    }

    /// The same for what is no request: nothing that follows can be trusted.
    pub(super) fn refuse_and_close(&mut self, conn: ConnId, refusal: Refusal) {
        if let Some(connection) = self.connection(conn) {
            connection.reply.keep_alive = false;
        }
        self.refuse(conn, refusal, None, None);
    }
}
