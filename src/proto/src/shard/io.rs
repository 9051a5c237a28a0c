//! The cut between kernel and shell: what comes in, what goes out, and what the kernel may ask meanwhile.
//!
//! Two enums and one trait, no more. Given the same inputs, instants, random numbers and answers, the outputs are the same, to the byte.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use enum_map::Enum;

use crate::http::Head;
pub use crate::ids::ConnId;
use crate::ids::{CallId, ClientRequestId, Principal, SessionId, ShardIndex};
use crate::incarnations::Liveness;
pub use crate::keyed::Mail;
use crate::mcp::Revision;
use crate::refusal::Ended;
use crate::time::Instant;

/// What happened.
#[derive(Debug)]
pub enum Input<'a> {
    /// A connection was accepted.
    Opened {
        /// Its name from here on.
        conn: ConnId,
    },
    /// A connection was accepted that is one too many just now: it is told to come back, and nothing of it is kept.
    Shed {
        /// Its name until it is closed.
        conn: ConnId,
        /// How long it will take to serve all who were told so: each is given an instant of its own in this time.
        within: Duration,
    },
    /// A connection came from another shard, with every byte already read and not yet answered: whole requests, then perhaps a part.
    HandedOver {
        /// Its name on this shard.
        conn: ConnId,
        /// What `Output::Handoff` carried.
        bytes: Bytes,
        /// What `Output::Handoff` carried: its first request is to be served here, whatever `World::place` says now.
        placed: bool,
    },
    /// Bytes arrived.
    Received {
        /// On which connection.
        conn: ConnId,
        /// In order, any fragmentation.
        bytes: &'a [u8],
    },
    /// Bytes of the connection's `Output::Send` went into its socket. When all have, the next `Send` may follow.
    Sent {
        /// On which connection.
        conn: ConnId,
        /// How many more than said before.
        bytes: usize,
    },
    /// The connection is gone: a FIN, a reset, an error, or the end of an `Output::Close`. Every opened or handed-over connection gets
    /// exactly one (none after `Output::Handoff`), and nothing of it follows.
    Closed {
        /// Which connection.
        conn: ConnId,
    },
    /// A handler emitted. Answered by the first output: `Output::Took`.
    Emitted {
        /// In which session.
        session: SessionId,
        /// What.
        emission: Emission,
    },
    /// A command of the embedder. `Close` and `Rotate` are answered by the first output: `Output::Took`.
    Command(Command),
    /// Another shard's `Output::Post`.
    Mail(Mail),
    /// Time passed; `Output::WakeAt` asks for it. (Every other input moves time as well.)
    TimePassed,
}

/// What the shell must do, in order.
#[derive(Debug)]
pub enum Output {
    /// Write these slices, whole and in order. At most one `Send` of a connection is under way; the shell drops the slices before it
    /// reports the last byte as `Sent`, or the connection as `Closed`.
    Send {
        /// On which connection.
        conn: ConnId,
        /// Never empty; each already framed.
        slices: Vec<Bytes>,
    },
    /// Stop or resume reading from the connection. Reading starts on.
    Read {
        /// Which connection.
        conn: ConnId,
        /// Whether `Received` is welcome. While it is not, the shell need not watch the connection.
        wanted: bool,
    },
    /// End the connection, after the `Send` under way if it is `Clean`; then say `Closed`.
    Close {
        /// Which connection.
        conn: ConnId,
        /// How.
        how: Close,
    },
    /// Move the connection to another shard. No `Send` is under way. Nothing more is said of it here: no `Closed`.
    Handoff {
        /// Which connection.
        conn: ConnId,
        /// The shard that owns the session, or that a new session was placed on.
        to: ShardIndex,
        /// For `Input::HandedOver`.
        bytes: Bytes,
        /// For `Input::HandedOver`.
        placed: bool,
    },
    /// Give this to another shard as `Input::Mail`. It must arrive, and there is no more of it than calls in flight.
    Post {
        /// Which shard.
        to: ShardIndex,
        /// What.
        mail: Mail,
    },
    /// Give this to the session's handler.
    Deliver {
        /// Which session.
        session: SessionId,
        /// What.
        delivery: Delivery,
    },
    /// The answer to `Emitted`, `Close` or `Rotate`.
    Took(Result<(), NotTaken>),
    /// `TimePassed` is wanted at this instant. Replaces what was asked before.
    WakeAt(Instant),
    /// The drain is over: no stream, call or unwritten answer is left, or its deadline came and they were ended.
    Drained,
}

/// How a connection ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Close {
    /// FIN, after everything handed over was written.
    Clean,
    /// RST, at once.
    Reset,
}

/// Why an emission or a command was not taken. Nothing of it happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The session has ended, or never was.
    SessionEnded,
    /// The call has its answer already, was cancelled, or never was.
    CallEnded,
    /// The event log has no room, whatever may be evicted.
    LogFull,
    /// The message is larger than `limits.message_bytes`.
    TooLarge,
    /// The session has `limits.client_requests` unanswered requests already.
    TooManyRequests,
    /// The answer's policy is JSON: nothing but a result can reach the client on this call.
    JsonOnly,
    /// The call has no session: its client cannot be asked (the result may say what is wanted), and there is no other stream than its own.
    NoSession,
    /// The emission is no valid JSON, or an `initialize` result without a protocol version of ours.
    Malformed,
}

/// What a handler says.
#[derive(Clone, Debug)]
pub enum Emission {
    /// A notification. `notifications/progress` names the call by the token that its params carried.
    Notification {
        /// On which stream.
        to: Target,
        /// Its method.
        method: Box<str>,
        /// A JSON object, or none.
        params: Option<Bytes>,
    },
    /// A request to the client; the answer comes as `Delivery::Response`.
    Request {
        /// On which stream.
        to: Target,
        /// Its name, unique in the process.
        request: ClientRequestId,
        /// Its method.
        method: Box<str>,
        /// A JSON object, or none.
        params: Option<Bytes>,
    },
    /// Withdraws a request to the client: it is told by `notifications/cancelled`, and an answer is no longer routed.
    CancelRequest {
        /// Which.
        request: ClientRequestId,
    },
    /// Ends the connections that a call's stream is on, not the stream. Without effect where a client could not come back: in revisions
    /// whose streams do not open with an id, and where the answer is one JSON body.
    HangUp {
        /// Which call.
        call: CallId,
        /// How long the client should wait before it comes back; where not said, as long as after any other cut.
        retry: Option<Duration>,
    },
    /// A call's result.
    Result {
        /// Which call.
        call: CallId,
        /// A JSON value.
        result: Bytes,
    },
    /// A call's error.
    Error {
        /// Which call.
        call: CallId,
        /// A JSON object with `code`, `message` and perhaps `data`.
        error: Bytes,
    },
    /// A call is refused for want of room. An `initialize` gets 503 `shed` and leaves no session; any other call the same as an error.
    Shed {
        /// Which call.
        call: CallId,
        /// What there is too much of, for people.
        why: &'static str,
    },
}

/// Which stream an emission goes to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Target {
    /// The call's own.
    Call(CallId),
    /// The session's standalone stream.
    Standalone,
    /// The stream of the call in flight where there is exactly one, else the standalone stream.
    Unnamed,
}

/// What a handler is told.
#[derive(Clone, Debug)]
pub enum Delivery {
    /// A session begins: answer the call with an `initialize` result, whose `protocolVersion` decides the session's revision.
    Initialize {
        /// Whose session.
        principal: Principal,
        /// To be answered.
        call: CallId,
        /// The client's params, a JSON object.
        params: Bytes,
        /// The head that it came with, where `Config::heads` asks for it.
        head: Option<Arc<Head>>,
        /// The field `traceparent` of that head, as it was sent, whether or not heads are asked for.
        traceparent: Option<Arc<str>>,
    },
    /// A request of the client: to be answered once.
    Request {
        /// Its name.
        call: CallId,
        /// Its method.
        method: Box<str>,
        /// A JSON value; its progress token, if any, is ours.
        params: Option<Bytes>,
        /// As `Initialize::head`.
        head: Option<Arc<Head>>,
        /// As `Initialize::traceparent`.
        traceparent: Option<Arc<str>>,
    },
    /// A request without a session: to be answered once, under this session's name, which no client knows and which ends with the answer.
    /// Nothing else is told of such a session but what becomes of the call.
    Exchange {
        /// Whose request.
        principal: Principal,
        /// Its name.
        call: CallId,
        /// What it speaks.
        revision: Revision,
        /// Its method.
        method: Box<str>,
        /// A JSON object with the client's `_meta`; its progress token, if any, is ours.
        params: Bytes,
        /// The `Mcp-Param-…` fields of its head: the name behind that prefix, and the value as it was sent.
        param_headers: Vec<(Box<str>, Box<[u8]>)>,
        /// As `Initialize::head`.
        head: Option<Arc<Head>>,
        /// As `Initialize::traceparent`.
        traceparent: Option<Arc<str>>,
    },
    /// A notification of the client (cancellations excepted).
    Notification {
        /// Its method.
        method: Box<str>,
        /// A JSON value.
        params: Option<Bytes>,
        /// As `Initialize::head`.
        head: Option<Arc<Head>>,
    },
    /// A call needs no answer any more.
    Cancelled {
        /// Which.
        call: CallId,
        /// Why.
        why: Cancelled,
    },
    /// What became of a request to the client.
    Response {
        /// Which request.
        request: ClientRequestId,
        /// Its outcome.
        outcome: Outcome,
    },
    /// The session has a new incarnation; calls and requests of the old one are over.
    Rotated,
    /// The session has ended. Nothing follows.
    Closed {
        /// Why.
        why: Ended,
    },
}

/// Why a call needs no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
pub enum Cancelled {
    /// The client said so; where a request has no session, by closing its stream.
    ByClient,
    /// It reached `limits.call_max_age`.
    Age,
    /// Its session ended, or rotated.
    SessionEnded,
    /// The server drains.
    Drain,
    /// It may have run before, in a batch that was sent again: it was never delivered.
    Repeated,
}

impl Cancelled {
    /// Its word in metrics.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::ByClient => "by_client",
            Self::Age => "age",
            Self::SessionEnded => "session_ended",
            Self::Drain => "drain",
            Self::Repeated => "repeated",
        }
    }
}

/// What became of a request to the client.
#[derive(Clone, Debug)]
pub enum Outcome {
    /// The client's result, a JSON value.
    Result(Bytes),
    /// The client's error, a JSON object.
    Error(Bytes),
    /// It will not be answered: its age, its eviction, or the session's end.
    Failed,
}

/// What an embedder may order.
#[derive(Clone, Copy, Debug)]
pub enum Command {
    /// Ends a session (reason `closed`).
    Close(SessionId),
    /// Begins a new incarnation of a session.
    Rotate(SessionId),
    /// Ends what can end, the rest at `deadline`; says `Output::Drained`. From here on every new call is refused (`shed`).
    Drain {
        /// When the rest is ended.
        deadline: Instant,
    },
}

/// No or wrong credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unauthorized {
    /// The value of `WWW-Authenticate` (RFC 9110, section 11.6.1).
    pub challenge: Box<str>,
}

/// What the kernel may ask while it handles an input. The answers are arguments like the time: the same answers, the same outputs.
pub trait World {
    /// Who sent this head.
    fn principal(&self, head: &Head) -> Result<Principal, Unauthorized>;

    /// What another shard's slot holds for this id and the tag of the caller's principal.
    fn liveness(&self, session: &SessionId, principal_tag: u64) -> Liveness;

    /// The shard that a new session should live on.
    fn place(&self) -> ShardIndex;
}
