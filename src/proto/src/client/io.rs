//! The cut between the client's machine and its shell: what comes in, what goes out, and who may look on.
//!
//! Given the same inputs, instants and random numbers, the outputs are the same, to the byte.

use std::fmt;

use bytes::Bytes;

use super::outcome::{Failure, Gap, Loss, Outcome, StartError, StreamEnd, Undelivered, Violation};
use crate::ids::Place;
use crate::mcp::Revision;
use crate::time::Instant;

/// A connection of one machine. Never used twice by it, so what is late names nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// A call of one machine; also its JSON-RPC id and its progress token. 0 is `initialize`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

impl CallId {
    /// The call that every session begins with.
    pub const INITIALIZE: Self = Self(0);
}

/// A request of the server, waiting for the caller's answer. Never used twice by one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestKey(pub u64);

/// Which stream of a session. A call has one of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum StreamKey {
    /// What the server says outside of calls.
    Standalone,
    /// The answer to a call, and what comes before it.
    Call(CallId),
}

impl StreamKey {
    /// The call whose stream it is.
    pub const fn call(self) -> Option<CallId> {
        match self {
            Self::Standalone => None,
            Self::Call(call) => Some(call),
        }
    }
}

/// What happened, or what the caller wants.
#[derive(Clone, Copy, Debug)]
pub enum Input<'a> {
    /// Begin the session. Once; the next ones do nothing.
    Start,
    /// In place of `Start`: take up a session that another machine began (in another process, perhaps), with one call whose stream was
    /// lost behind this event. Nothing of these is verified. The machine comes back for the stream as for one of its own; numbers of further
    /// calls follow this one's.
    TakeUp {
        /// The session's id, where it has one.
        session: Option<&'a str>,
        /// What was settled on.
        revision: Revision,
        /// The call's number.
        call: CallId,
        /// The id to come back with.
        last_id: &'a str,
    },
    /// A connection that `Output::Open` asked for is there.
    Opened {
        /// Which.
        conn: ConnId,
    },
    /// Bytes arrived.
    Received {
        /// On which connection.
        conn: ConnId,
        /// In order, any fragmentation.
        bytes: &'a [u8],
    },
    /// A connection is gone, or never came.
    Ended {
        /// Which.
        conn: ConnId,
        /// How.
        how: Ended,
    },
    /// Call a method. Answered by the turn's first output, `Output::Took`.
    Call {
        /// Its method.
        method: &'a str,
        /// A JSON object, or none.
        params: Option<&'a [u8]>,
        /// How.
        options: CallOptions<'a>,
    },
    /// Send a notification; never sent twice. Before `Event::Ready` it is dropped with `Event::Undelivered`.
    Notify {
        /// Its method.
        method: &'a str,
        /// A JSON object, or none.
        params: Option<&'a [u8]>,
    },
    /// Answer a request of the server.
    Answer {
        /// Which; one that was answered or withdrawn is ignored.
        request: RequestKey,
        /// A JSON value; or a JSON object with `code` and `message`.
        outcome: Result<&'a [u8], &'a [u8]>,
    },
    /// Give a call up: the server is told, and the call's outcome is unknown at once.
    Cancel {
        /// Which; one that has its outcome is ignored.
        call: CallId,
        /// Why, for people.
        reason: Option<&'a str>,
    },
    /// Give a call up without a word to the server: its connection closes, and its outcome is unknown at once.
    Abandon {
        /// Which; one that has its outcome is no longer listened to.
        call: CallId,
    },
    /// Come back to a lost stream at this instant instead of when the machine would; one that is past means now. A stream that is not lost
    /// is left alone.
    Return {
        /// Which.
        stream: StreamKey,
        /// When.
        at: Instant,
    },
    /// Open the standalone stream: from where it was left, or anew after `Event::StreamEnded`.
    Listen,
    /// End the session at the server; then `Event::Ended`.
    End,
    /// Time passed; `Output::WakeAt` asks for it. (Every other input moves time as well.)
    TimePassed,
}

/// How a call is made.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallOptions<'a> {
    /// Ask for progress: the call's number becomes its `_meta.progressToken`.
    pub progress: bool,
    /// Names the execution for a server that knows `Idempotency-Key`: visible ASCII. Only with it may a caller send a call again whose
    /// outcome is unknown, and only to such a server.
    pub idempotency_key: Option<&'a str>,
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The server's FIN.
    Fin,
    /// A reset, or the caller's own cut.
    Reset,
    /// It could not be made, or failed in another way.
    Failed,
}

/// What the shell must do, in order.
#[derive(Clone, Debug)]
pub enum Output {
    /// The answer to `Input::Call`.
    Took(Result<CallId, NotTaken>),
    /// Connect to the server; then say `Opened`, or `Ended`.
    Open {
        /// The connection's name.
        conn: ConnId,
    },
    /// Write these bytes, whole and in order. Only said of open connections.
    Send {
        /// On which.
        conn: ConnId,
        /// One request.
        bytes: Bytes,
    },
    /// Close the connection, whatever is under way. Nothing more of it is expected; what comes late is ignored.
    Close {
        /// Which.
        conn: ConnId,
    },
    /// `TimePassed` is wanted at this instant. Replaces what was asked before.
    WakeAt(Instant),
    /// Tell the caller.
    Event(Event),
}

/// Why a call was not taken. Nothing of it was sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotTaken {
    /// The session has not begun.
    NotReady,
    /// The session has ended.
    Ended,
    /// `limits.calls_in_flight` calls are unanswered.
    TooManyCalls,
    /// Params are no JSON object, or have no one place for a progress token; or the idempotency key is not visible ASCII.
    Malformed,
}

/// What the caller is told.
#[derive(Clone, Debug)]
pub enum Event {
    /// The session has begun: calls are taken.
    Ready {
        /// What the server settled on.
        revision: Revision,
        /// Its `initialize` result, JSON.
        result: Bytes,
    },
    /// The session could not be begun; nothing follows. The caller may begin another.
    Failed(StartError),
    /// What became of a call: said exactly once for every call taken.
    Outcome {
        /// Which.
        call: CallId,
        /// What.
        outcome: Outcome,
    },
    /// A notification of the server.
    Notification {
        /// On which stream: a call's progress comes on the call's.
        stream: StreamKey,
        /// Its method.
        method: Box<str>,
        /// JSON.
        params: Option<Bytes>,
    },
    /// A request of the server: answer it with `Input::Answer`.
    Request {
        /// Its name.
        request: RequestKey,
        /// On which stream.
        stream: StreamKey,
        /// Its method.
        method: Box<str>,
        /// JSON.
        params: Option<Bytes>,
    },
    /// The server withdrew a request: an answer is not wanted any more.
    RequestCancelled {
        /// Which.
        request: RequestKey,
    },
    /// A stream has a connection: the standalone one for the first time, or one that was lost.
    Attached {
        /// Which.
        stream: StreamKey,
        /// To which.
        conn: ConnId,
    },
    /// A stream lost its connection and will be returned to.
    Lost {
        /// Which.
        stream: StreamKey,
        /// How.
        why: Loss,
        /// When; `None` where the caller decides (`Input::Return`).
        returns_at: Option<Instant>,
    },
    /// The server no longer holds some events of a stream. The caller may accept that, or look for itself at what they were about.
    Gap {
        /// Which.
        stream: StreamKey,
        /// What was told of it.
        gap: Gap,
    },
    /// A stream's events do not continue what came before. Nothing of what broke it was accepted; a call on it has an unknown outcome.
    /// The caller should end the session and begin another: what this server says cannot be put in order.
    ContinuityViolated {
        /// Which.
        stream: StreamKey,
        /// How.
        violation: Violation,
    },
    /// The standalone stream is over. The caller may `Listen` again.
    StreamEnded {
        /// Why.
        why: StreamEnd,
    },
    /// A message that is no JSON-RPC came, and was left out.
    Malformed {
        /// On which stream.
        stream: StreamKey,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The server does not know the session any more; nothing follows but an `Outcome` for each of these. The caller may begin another
    /// session, and must find out about these calls before it makes them again: they may have run.
    SessionLost {
        /// `data.reason`, where the server gives one.
        reason: Option<Box<str>>,
        /// The calls in flight.
        unknown: Vec<CallId>,
    },
    /// Something that is not a call could not be delivered.
    Undelivered {
        /// What.
        what: Undelivered,
        /// Why.
        why: Failure,
    },
    /// The session was ended by `Input::End`; nothing follows.
    Ended,
}

/// What a connection is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Purpose {
    /// To begin the session.
    Initialize,
    /// To POST a call.
    Call(CallId),
    /// To GET a stream.
    Resume(StreamKey),
    /// To POST a notification.
    Notification,
    /// To POST an answer.
    Answer,
    /// To DELETE the session.
    End,
}

/// The head of an answer, as it came.
#[derive(Clone, Copy, Debug)]
pub struct AnswerSeen<'a> {
    /// On which connection.
    pub conn: ConnId,
    /// To what.
    pub to: Purpose,
    /// Its status.
    pub status: u16,
    /// `Rejoin-Verdict`.
    pub verdict: Option<&'a str>,
    /// Whether events follow.
    pub events: bool,
}

/// The body of an answer that is no event stream, whole, before it is judged.
#[derive(Clone, Copy, Debug)]
pub struct BodySeen<'a> {
    /// To what it is the answer.
    pub to: Purpose,
    /// Its status.
    pub status: u16,
    /// What came; nothing of a page that was too large to be read, or was cut.
    pub bytes: &'a [u8],
}

/// An event, or an id without one, as it came and before it is judged.
#[derive(Clone, Copy, Debug)]
pub struct EventSeen<'a> {
    /// On which connection.
    pub conn: ConnId,
    /// On which stream.
    pub stream: StreamKey,
    /// Its name; `message` where it has none.
    pub name: &'a str,
    /// Its own id.
    pub id: Option<&'a str>,
    /// What that id says, where it has rejoin's shape.
    pub place: Option<Place>,
    /// Its data, which may be empty; `None` where its block set an id and had none.
    pub data: Option<&'a str>,
}

/// Sees everything that arrives, borrowed: what a load tester holds against its own record. What arrived together with an event that broke
/// its stream's order is seen as well.
pub trait Observer {
    /// An answer's head.
    fn head(&mut self, head: &AnswerSeen<'_>) {
        let _ = head;
    }

    /// A body that is no event stream.
    fn body(&mut self, body: &BodySeen<'_>) {
        let _ = body;
    }

    /// An event.
    fn event(&mut self, event: &EventSeen<'_>) {
        let _ = event;
    }
}

/// Looks away.
impl Observer for () {}

/// What comes with every input.
pub struct Turn<'a> {
    /// The present.
    pub now: Instant,
    /// Fresh random numbers.
    pub random: &'a mut dyn FnMut() -> u64,
    /// Who looks on.
    pub observer: &'a mut dyn Observer,
    /// What the shell must do, in order.
    pub out: &'a mut Vec<Output>,
}

impl Turn<'_> {
    pub(super) fn event(&mut self, event: Event) {
        self.out.push(Output::Event(event));
    }
}

impl fmt::Debug for Turn<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "turn at {:?}", self.now)
    }
}
