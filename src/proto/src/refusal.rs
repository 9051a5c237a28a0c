//! Every refusal with its status, code, reason and action: the one table that the wire, the metrics and the docs follow.
//!
//! Never decides when to refuse; that is the row's own place (`http`, `mcp`, `incarnations`, `resume`).

use enum_map::Enum;

/// Why a session id leads nowhere: `data.reason` of a 404 `session_expired`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Enum)]
pub enum Ended {
    /// Its idle time ran out.
    Expired,
    /// The client deleted it.
    Deleted,
    /// Its embedder closed it, or its child died.
    Closed,
    /// It was closed to save the rest.
    Shed,
    /// A cursor beyond its last event showed that its log had lost its tail.
    Lineage,
    /// Authentic, but of another process.
    Restarted,
    /// Another life of this session.
    Incarnation,
    /// Only this stream: finished so long ago that its tombstone is gone.
    Forgotten,
    /// Never ours, another principal's, or so old that its slot serves another.
    Unknown,
}

impl Ended {
    /// Its word on the wire.
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Expired => "expired",
            Self::Deleted => "deleted",
            Self::Closed => "closed",
            Self::Shed => "shed",
            Self::Lineage => "lineage",
            Self::Restarted => "restarted",
            Self::Incarnation => "incarnation",
            Self::Forgotten => "forgotten",
            Self::Unknown => "unknown",
        }
    }

    /// Whether a session can end for this reason; the others are reasons why an id leads nowhere though no session ended.
    pub const fn is_an_end(self) -> bool {
        match self {
            Self::Expired | Self::Deleted | Self::Closed | Self::Shed | Self::Lineage => true,
            Self::Restarted | Self::Incarnation | Self::Forgotten | Self::Unknown => false,
        }
    }
}

/// A request refused: nothing of it was executed, no stream was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Refusal {
    /// The head or framing is wrong; says how. The connection closes after it.
    BadRequest(&'static str),
    /// `Host` or `Origin` not allowed.
    Forbidden(&'static str),
    /// No or wrong credentials.
    Unauthorized,
    /// Another path.
    NotFound,
    /// Another method than the endpoint's (or GET in a revision without sessions).
    MethodNotAllowed,
    /// `Accept` does not admit what the answer would be.
    NotAcceptable(&'static str),
    /// The body is not `application/json`.
    UnsupportedMediaType,
    /// The head or the body took too long.
    Timeout(&'static str),
    /// The body is larger than the limit.
    TooLarge,
    /// The head is larger than the limit, or has too many fields.
    HeadTooLarge,
    /// The request target is longer than the limit.
    TargetTooLong,
    /// The body is not JSON.
    ParseError,
    /// The body is JSON, but no JSON-RPC message that this revision admits; says why.
    InvalidRequest(&'static str),
    /// `MCP-Protocol-Version` names no revision of ours.
    UnsupportedRevision,
    /// A request's `_meta` names no revision that is served without sessions. Its error lists those that there are.
    RevisionNotServed,
    /// A request without sessions lacks what its `_meta` must have; says what.
    InvalidParams(&'static str),
    /// A head does not say what its body says; says where.
    HeaderMismatch(&'static str),
    /// The revision does not have this method any more.
    MethodNotFound,
    /// No `Mcp-Session-Id`.
    SessionRequired,
    /// The session, its incarnation or the stream is gone.
    SessionExpired(Ended),
    /// The idempotency key stands for another body.
    KeyReused,
    /// `Last-Event-ID` is no cursor of this session.
    InvalidCursor(&'static str),
    /// There is no room; says of what, and how people are told.
    Shed(Room, &'static str),
}

/// A refusal without what it says: what refusals are counted by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Enum)]
#[expect(missing_docs, reason = "each is the refusal of its name")]
pub enum RefusalKind {
    BadRequest,
    Forbidden,
    Unauthorized,
    NotFound,
    MethodNotAllowed,
    NotAcceptable,
    UnsupportedMediaType,
    Timeout,
    TooLarge,
    HeadTooLarge,
    TargetTooLong,
    ParseError,
    InvalidRequest,
    UnsupportedRevision,
    RevisionNotServed,
    InvalidParams,
    HeaderMismatch,
    MethodNotFound,
    SessionRequired,
    SessionExpired(Ended),
    KeyReused,
    InvalidCursor,
    Shed,
}

impl RefusalKind {
    /// A refusal of this kind that says nothing: its [`shape`](Refusal::shape) has the kind's code and reason.
    pub const fn example(self) -> Refusal {
        match self {
            Self::BadRequest => Refusal::BadRequest(""),
            Self::Forbidden => Refusal::Forbidden(""),
            Self::Unauthorized => Refusal::Unauthorized,
            Self::NotFound => Refusal::NotFound,
            Self::MethodNotAllowed => Refusal::MethodNotAllowed,
            Self::NotAcceptable => Refusal::NotAcceptable(""),
            Self::UnsupportedMediaType => Refusal::UnsupportedMediaType,
            Self::Timeout => Refusal::Timeout(""),
            Self::TooLarge => Refusal::TooLarge,
            Self::HeadTooLarge => Refusal::HeadTooLarge,
            Self::TargetTooLong => Refusal::TargetTooLong,
            Self::ParseError => Refusal::ParseError,
            Self::InvalidRequest => Refusal::InvalidRequest(""),
            Self::UnsupportedRevision => Refusal::UnsupportedRevision,
            Self::RevisionNotServed => Refusal::RevisionNotServed,
            Self::InvalidParams => Refusal::InvalidParams(""),
            Self::HeaderMismatch => Refusal::HeaderMismatch(""),
            Self::MethodNotFound => Refusal::MethodNotFound,
            Self::SessionRequired => Refusal::SessionRequired,
            Self::SessionExpired(ended) => Refusal::SessionExpired(ended),
            Self::KeyReused => Refusal::KeyReused,
            Self::InvalidCursor => Refusal::InvalidCursor(""),
            Self::Shed => Refusal::Shed(Room::Handler, ""),
        }
    }
}

/// What there was no room for, or what went to make room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Enum)]
pub enum Room {
    /// A connection more: it was turned away.
    Connection,
    /// A connection more just now, when so many come at once that the last would wait too long: it was turned away.
    Herd,
    /// A session more: its `initialize` was refused.
    Session,
    /// A call more in one session: it was refused.
    Call,
    /// A request more without a session: it was refused.
    Exchange,
    /// A record of an idempotency key more, or a call more that waits under one: it was refused.
    Key,
    /// Whatever the handler has too much of: the call was refused.
    Handler,
    /// The event log, which a reader that was too slow filled: the reader was cut off.
    SlowReader,
    /// Anything new, while the server drains.
    Draining,
}

impl Room {
    /// Its word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connection => "connections",
            Self::Herd => "herd",
            Self::Session => "sessions",
            Self::Call => "calls",
            Self::Exchange => "exchanges",
            Self::Key => "idempotency_keys",
            Self::Handler => "handler",
            Self::SlowReader => "slow_reader",
            Self::Draining => "draining",
        }
    }

    /// Whether the server as a whole had no room, and others would have been turned away as well. A session's own bound is its own
    /// affair, and a drain is no lack of room.
    pub const fn is_the_servers(self) -> bool {
        match self {
            Self::Connection | Self::Herd | Self::Session | Self::Exchange | Self::Key | Self::Handler | Self::SlowReader => true,
            Self::Call | Self::Draining => false,
        }
    }
}

/// What the client should do next: `data.action`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Begin a new session.
    Reinitialize,
    /// Come back later with the same session and cursor.
    Reconnect,
    /// The request itself is wrong.
    FixRequest,
    /// A call may have run: find out before sending it again.
    Verify,
}

impl Action {
    /// Its word on the wire.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Reinitialize => "reinitialize",
            Self::Reconnect => "reconnect",
            Self::FixRequest => "fix_request",
            Self::Verify => "verify",
        }
    }
}

/// What a refusal looks like on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// HTTP status.
    pub status: u16,
    /// `data.code`, and the word in `Rejoin-Verdict`.
    pub code: &'static str,
    /// The JSON-RPC error code.
    pub rpc_code: i32,
    /// `data.action`.
    pub action: Action,
    /// The error's `message`, for people.
    pub message: &'static str,
    /// `data.reason`, where there is one to tell.
    pub reason: Option<&'static str>,
    /// Whether the connection must close after the answer: what follows on it cannot be told apart from this request.
    pub closes: bool,
}

/// JSON-RPC code of `session_expired`: deployed clients already read it as "session not found".
pub const RPC_SESSION_EXPIRED: i32 = -32001;
/// JSON-RPC code of `outcome_unknown`.
pub const RPC_OUTCOME_UNKNOWN: i32 = -32010;
/// JSON-RPC 2.0, section 5.1: "Invalid JSON was received by the server."
pub const RPC_PARSE_ERROR: i32 = -32700;
/// JSON-RPC 2.0, section 5.1: "The JSON sent is not a valid Request object."
pub const RPC_INVALID_REQUEST: i32 = -32600;
/// JSON-RPC 2.0, section 5.1: "Internal JSON-RPC error."
pub const RPC_INTERNAL: i32 = -32603;
/// JSON-RPC 2.0, section 5.1: "The method does not exist / is not available."
pub const RPC_METHOD_NOT_FOUND: i32 = -32601;
/// JSON-RPC 2.0, section 5.1: "Invalid method parameter(s)."
pub const RPC_INVALID_PARAMS: i32 = -32602;
/// MCP 2026-07-28, basic, "Error Codes": `HeaderMismatch`.
pub const RPC_HEADER_MISMATCH: i32 = -32020;
/// The same: `MissingRequiredClientCapability`.
pub const RPC_MISSING_CAPABILITY: i32 = -32021;
/// The same: `UnsupportedProtocolVersion`.
pub const RPC_UNSUPPORTED_VERSION: i32 = -32022;
/// Every other refusal, in JSON-RPC's range for implementations.
pub const RPC_OTHER: i32 = -32000;

impl Refusal {
    /// No room: of connections.
    pub const TOO_MANY_CONNECTIONS: Self = Self::Shed(Room::Connection, "The server has too many connections");
    /// Of connections at this moment.
    pub const TOO_MANY_AT_ONCE: Self = Self::Shed(Room::Herd, "Too many connect at once");
    /// Of sessions alive.
    pub const TOO_MANY_SESSIONS: Self = Self::Shed(Room::Session, "The server has too many sessions");
    /// Of a session's calls in flight.
    pub const TOO_MANY_CALLS: Self = Self::Shed(Room::Call, "The session has too many calls in flight");
    /// Of requests without a session in flight.
    pub const TOO_MANY_EXCHANGES: Self = Self::Shed(Room::Exchange, "The server has too many requests in flight");
    /// Of idempotency keys.
    pub const TOO_MANY_KEYS: Self = Self::Shed(Room::Key, "The server has too many idempotency keys in use");
    /// Of a session's streams since it began: their numbers are used up.
    pub const TOO_MANY_CALLS_EVER: Self = Self::Shed(Room::Call, "The session has had too many calls");
    /// Of anything new, while the server drains.
    pub const SHUTTING_DOWN: Self = Self::Shed(Room::Draining, "The server is shutting down");

    /// What it is, without what it says.
    pub const fn kind(self) -> RefusalKind {
        match self {
            Self::BadRequest(_) => RefusalKind::BadRequest,
            Self::Forbidden(_) => RefusalKind::Forbidden,
            Self::Unauthorized => RefusalKind::Unauthorized,
            Self::NotFound => RefusalKind::NotFound,
            Self::MethodNotAllowed => RefusalKind::MethodNotAllowed,
            Self::NotAcceptable(_) => RefusalKind::NotAcceptable,
            Self::UnsupportedMediaType => RefusalKind::UnsupportedMediaType,
            Self::Timeout(_) => RefusalKind::Timeout,
            Self::TooLarge => RefusalKind::TooLarge,
            Self::HeadTooLarge => RefusalKind::HeadTooLarge,
            Self::TargetTooLong => RefusalKind::TargetTooLong,
            Self::ParseError => RefusalKind::ParseError,
            Self::InvalidRequest(_) => RefusalKind::InvalidRequest,
            Self::UnsupportedRevision => RefusalKind::UnsupportedRevision,
            Self::RevisionNotServed => RefusalKind::RevisionNotServed,
            Self::InvalidParams(_) => RefusalKind::InvalidParams,
            Self::HeaderMismatch(_) => RefusalKind::HeaderMismatch,
            Self::MethodNotFound => RefusalKind::MethodNotFound,
            Self::SessionRequired => RefusalKind::SessionRequired,
            Self::SessionExpired(ended) => RefusalKind::SessionExpired(ended),
            Self::KeyReused => RefusalKind::KeyReused,
            Self::InvalidCursor(_) => RefusalKind::InvalidCursor,
            Self::Shed(..) => RefusalKind::Shed,
        }
    }

    /// The table.
    pub fn shape(self) -> Shape {
        use Action::*;
        let row = |status, code, rpc_code, action, message, reason, closes| Shape {
            status,
            code,
            rpc_code,
            action,
            message,
            reason,
            closes,
        };
        match self {
            Self::BadRequest(why) => row(400, "bad_request", RPC_OTHER, FixRequest, why, None, true),
            Self::Forbidden(why) => row(403, "forbidden", RPC_OTHER, FixRequest, why, None, false),
            Self::Unauthorized => row(401, "unauthorized", RPC_OTHER, FixRequest, "Not authorised", None, false),
            Self::NotFound => row(404, "not_found", RPC_OTHER, FixRequest, "No such path", None, false),
            Self::MethodNotAllowed => {
                row(405, "method_not_allowed", RPC_OTHER, FixRequest, "Method not allowed here", None, false)
            }
            Self::NotAcceptable(why) => row(406, "not_acceptable", RPC_OTHER, FixRequest, why, None, false),
            Self::UnsupportedMediaType => {
                row(415, "unsupported_media_type", RPC_OTHER, FixRequest, "Content-Type must be application/json", None, false)
            }
            Self::Timeout(why) => row(408, "timeout", RPC_OTHER, Reconnect, why, None, true),
            Self::TooLarge => {
                row(413, "too_large", RPC_OTHER, FixRequest, "The body is larger than this server admits", None, true)
            }
            Self::HeadTooLarge => row(
                431,
                "head_too_large",
                RPC_OTHER,
                FixRequest,
                "The request head is larger than this server admits",
                None,
                true,
            ),
            Self::TargetTooLong => row(
                414,
                "head_too_large",
                RPC_OTHER,
                FixRequest,
                "The request target is longer than this server admits",
                None,
                true,
            ),
            Self::ParseError => row(400, "parse_error", RPC_PARSE_ERROR, FixRequest, "The body is not JSON", None, false),
            Self::InvalidRequest(why) => row(400, "invalid_request", RPC_INVALID_REQUEST, FixRequest, why, None, false),
            Self::UnsupportedRevision => row(
                400,
                "unsupported_revision",
                RPC_OTHER,
                FixRequest,
                "MCP-Protocol-Version is not supported (supported: 2025-11-25, 2025-06-18, 2025-03-26)",
                None,
                false,
            ),
            Self::RevisionNotServed => {
                row(400, "revision_not_served", RPC_UNSUPPORTED_VERSION, FixRequest, "Unsupported protocol version", None, false)
            }
            Self::InvalidParams(why) => row(400, "invalid_params", RPC_INVALID_PARAMS, FixRequest, why, None, false),
            Self::HeaderMismatch(why) => row(400, "header_mismatch", RPC_HEADER_MISMATCH, FixRequest, why, None, false),
            Self::MethodNotFound => {
                row(404, "method_not_found", RPC_METHOD_NOT_FOUND, FixRequest, "Method not found", None, false)
            }
            Self::SessionRequired => {
                row(400, "session_required", RPC_OTHER, FixRequest, "Mcp-Session-Id is required", None, false)
            }
            Self::SessionExpired(ended) => row(
                404,
                "session_expired",
                RPC_SESSION_EXPIRED,
                match ended {
                    Ended::Forgotten => Verify,
                    _ => Reinitialize,
                },
                match ended {
                    Ended::Forgotten => "Stream not found: it finished too long ago",
                    _ => "Session not found",
                },
                Some(ended.reason()),
                false,
            ),
            Self::KeyReused => row(
                422,
                "idempotency_key_reused",
                RPC_OTHER,
                FixRequest,
                "The idempotency key was used for another request",
                None,
                false,
            ),
            Self::InvalidCursor(why) => row(400, "invalid_cursor", RPC_OTHER, FixRequest, why, None, false),
            Self::Shed(_, why) => row(503, "shed", RPC_OTHER, Reconnect, why, None, false),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dead_session_reads_as_session_not_found_to_deployed_clients() {
        let shape = Refusal::SessionExpired(Ended::Unknown).shape();
        assert_eq!((shape.status, shape.rpc_code, shape.message), (404, -32001, "Session not found"));
    }

    #[test]
    fn every_kind_of_refusal_is_its_examples_own() {
        for (kind, ()) in enum_map::EnumMap::<RefusalKind, ()>::default() {
            assert_eq!(kind.example().kind(), kind);
        }
    }

    #[test]
    fn only_a_forgotten_stream_leaves_its_session_alone() {
        assert_eq!(Refusal::SessionExpired(Ended::Forgotten).shape().action, Action::Verify);
        assert_eq!(Refusal::SessionExpired(Ended::Incarnation).shape().action, Action::Reinitialize);
    }
}
