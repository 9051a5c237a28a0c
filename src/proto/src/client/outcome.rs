//! What becomes of calls, streams, sessions and messages, as values.
//!
//! Never decides which of them it is.

use bytes::Bytes;

use super::io::{CallId, Ended, NotTaken, RequestKey};
use crate::http::BadAnswer;

/// What could not be delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Undelivered {
    /// `notifications/initialized`.
    Initialized,
    /// A notification of the caller's, by its method.
    Notification(Box<str>),
    /// The answer to a request of the server.
    Answer(RequestKey),
    /// That a call was cancelled.
    Cancelled(CallId),
}

/// What a `resync` told. Nothing of it is verified.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Gap {
    /// The cursor that was presented.
    pub requested: Option<Box<str>>,
    /// The id of the first event that follows.
    pub earliest: Option<Box<str>>,
    /// How many events are gone.
    pub lost: Option<u64>,
    /// `evicted` or `overrun`.
    pub reason: Option<Box<str>>,
}

/// What became of a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It ran, with this result: JSON.
    Result(Bytes),
    /// It failed, or never ran.
    Error(CallError),
    /// It may have run, once. The caller must find out before it makes the call again; the machine never does by itself.
    Unknown(Unknown),
}

/// Why a call has no result, with certainty.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The server answered with this JSON-RPC error object.
    Answered(Bytes),
    /// The server refused the request before it executed anything of it.
    Refused(Box<Refused>),
    /// Nothing of the request left: no connection could be made.
    NotSent(Loss),
    /// The call was not taken: what a shell makes of `Output::Took`.
    NotTaken(NotTaken),
}

/// Why nobody can say whether a call ran.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Unknown {
    /// The connection was lost before the stream had an id to come back with.
    Lost(Loss),
    /// The server says that the stream is complete, and its answer never came.
    Complete,
    /// The server refused the return to the stream.
    Refused(Box<Refused>),
    /// The stream was not reached again in `limits.attempts` attempts; how the last one failed.
    GaveUp(Loss),
    /// No answer in `limits.call_max_age`.
    TooOld,
    /// The session was lost.
    SessionLost,
    /// The server itself does not know (`outcome_unknown`): its JSON-RPC error object.
    Server(Bytes),
    /// The stream broke its order.
    Violated(Violation),
    /// The server answered with this status and nothing that could be an answer.
    NoAnswer(u16),
    /// The answer could not be read.
    Unreadable(BadAnswer),
    /// The caller cancelled it.
    Cancelled,
    /// The caller ended the session.
    Ended,
}

/// A refusal as the server wrote it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    /// The HTTP status.
    pub status: u16,
    /// The body's JSON-RPC error object, where it has one.
    pub error: Option<Bytes>,
    /// Its `data.code` (of rejoin's table).
    pub code: Option<Box<str>>,
    /// Its `data.reason`.
    pub reason: Option<Box<str>>,
    /// Its `data.action`.
    pub action: Option<Box<str>>,
}

/// How a connection was lost, or an attempt failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// No connection could be made.
    Unreachable,
    /// The connection ended in the middle of an answer.
    Cut(Ended),
    /// The answer ended cleanly, before what it was to bring.
    CleanEnd,
    /// Nothing came for too long.
    Timeout,
    /// The server answered with this status, which may pass.
    Status(u16),
    /// What came was no answer.
    Unreadable(BadAnswer),
}

/// Why a session could not be begun.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The connection failed or was lost before the answer.
    Lost(Loss),
    /// The server refused.
    Refused(Box<Refused>),
    /// The server answered with this JSON-RPC error object.
    Error(Bytes),
    /// The server settled on a revision without this transport, or unknown.
    Revision(Box<str>),
    /// The answer was none; says what is wrong.
    Answer(&'static str),
    /// `Input::End` came first.
    Ended,
}

/// Why the standalone stream is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StreamEnd {
    /// The server offers none (405).
    NotOffered,
    /// The server says that nothing more will come (204).
    Complete,
    /// The server refused.
    Refused(Box<Refused>),
    /// It was not reached again in `limits.attempts` attempts; how the last one failed.
    GaveUp(Loss),
    /// The answer was no event stream, or could not be read.
    Unreadable(BadAnswer),
    /// It broke its order.
    Violated,
}

/// Why something was not delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Failure {
    /// It was never sent: the session is not ready, or `limits.posts` messages wait already.
    NotSent,
    /// The connection was lost, or the server failed, in every attempt.
    Lost(Loss),
    /// The server refused it.
    Refused(Box<Refused>),
}

/// How a stream broke its order. What each finds in ids of rejoin's shape is in the `lineage` module; other ids are opaque.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Violation {
    /// Ids of another life of the session.
    Incarnation {
        /// The life so far.
        expected: u32,
        /// What came.
        got: u32,
    },
    /// Ids of another stream.
    Stream {
        /// What came.
        got: u32,
    },
    /// Events are missing, and no `resync` said so.
    SilentGap {
        /// The last position.
        last: u64,
        /// What came next.
        got: u64,
    },
    /// An event came again, or an older one.
    Repeated {
        /// The last position.
        last: u64,
        /// What came.
        got: u64,
    },
    /// An opaque id came again with data.
    RepeatedId,
    /// The stream did not begin where it should: at its start, or at the cursor presented.
    Start {
        /// What came.
        got: u64,
    },
    /// Ids changed their shape in the middle: another server is speaking.
    Shape,
    /// An event without an id where its stream's events have one.
    NoId,
    /// An id that no header can carry, or longer than `limits.id_bytes`.
    UnusableId,
    /// The answer to a call that has another stream.
    ForeignAnswer(CallId),
    /// A second answer to a call.
    SecondAnswer(CallId),
    /// An answer to no call of ours.
    UnknownAnswer,
}
