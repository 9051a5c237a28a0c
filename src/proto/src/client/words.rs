//! What happened, in words for people. Never parsed by anything.

use std::fmt;

use super::outcome::{CallError, Loss, Outcome, Refused, StartError, Unknown, Violation};

impl Outcome {
    /// The result, JSON, where there is one.
    pub fn result(&self) -> Option<&[u8]> {
        match self {
            Self::Result(json) => Some(json),
            Self::Error(_) | Self::Unknown(_) => None,
        }
    }
}

fn error(f: &mut fmt::Formatter<'_>, object: &[u8]) -> fmt::Result {
    let object = std::str::from_utf8(object).unwrap_or_default();
    match crate::mcp::text_at(object, &["message"]) {
        Some(message) => write!(f, "{message:?}"),
        None => f.write_str("an error without a message"),
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Answered(object) => {
                f.write_str("the server answered ")?;
                error(f, object)
            }
            Self::Refused(refused) => write!(f, "not executed: {refused}"),
            Self::NotSent(loss) => write!(f, "not sent: {loss}"),
            Self::NotTaken(why) => write!(f, "not sent: {why:?}"),
        }
    }
}

impl std::error::Error for CallError {}

impl fmt::Display for Unknown {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => write!(f, "{loss}, with no event id to come back with"),
            Self::Complete => f.write_str("the server says that the stream is complete, and no answer came"),
            Self::Refused(refused) => write!(f, "the return to its stream was refused: {refused}"),
            Self::GaveUp(loss) => write!(f, "its stream was not reached again: {loss}"),
            Self::TooOld => f.write_str("no answer in the longest time allowed"),
            Self::SessionLost => f.write_str("its session was lost"),
            Self::Server(object) => {
                f.write_str("the server does not know: ")?;
                error(f, object)
            }
            Self::Violated(violation) => write!(f, "its stream broke its order: {violation}"),
            Self::NoAnswer(status) => write!(f, "the server said {status} and no answer"),
            Self::Unreadable(bad) => write!(f, "the answer could not be read: {bad:?}"),
            Self::Cancelled => f.write_str("it was cancelled"),
            Self::Ended => f.write_str("the session was ended first"),
        }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "HTTP {}", self.status)?;
        for word in [&self.code, &self.reason].into_iter().flatten() {
            write!(f, ", {word}")?;
        }
        match &self.error {
            Some(object) => {
                f.write_str(": ")?;
                error(f, object)
            }
            None => Ok(()),
        }
    }
}

impl fmt::Display for Loss {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable => f.write_str("no connection could be made"),
            Self::Cut(how) => write!(f, "the connection was cut ({how:?})"),
            Self::CleanEnd => f.write_str("the answer ended early"),
            Self::Timeout => f.write_str("nothing came for too long"),
            Self::Status(status) => write!(f, "the server said {status}"),
            Self::Unreadable(bad) => write!(f, "the answer could not be read: {bad:?}"),
        }
    }
}

impl fmt::Display for StartError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(loss) => loss.fmt(f),
            Self::Refused(refused) => write!(f, "the server refused: {refused}"),
            Self::Error(object) => {
                f.write_str("the server answered ")?;
                error(f, object)
            }
            Self::Revision(name) => write!(f, "the server speaks {name:?}, which has no sessions on this transport"),
            Self::Answer(why) => f.write_str(why),
            Self::Ended => f.write_str("the session was ended before it began"),
        }
    }
}

impl std::error::Error for StartError {}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Incarnation { expected, got } => write!(f, "ids of life {got} in life {expected}"),
            Self::Stream { got } => write!(f, "ids of stream {got}"),
            Self::SilentGap { last, got } => write!(f, "event {got} after {last}, and no resync"),
            Self::Repeated { last, got } => write!(f, "event {got} after {last}"),
            Self::RepeatedId => f.write_str("an id came again"),
            Self::Start { got } => write!(f, "it began at {got}"),
            Self::Shape => f.write_str("ids of another server"),
            Self::NoId => f.write_str("an event without an id"),
            Self::UnusableId => f.write_str("an id that cannot be sent back"),
            Self::ForeignAnswer(call) => write!(f, "the answer to call {}, which has another stream", call.0),
            Self::SecondAnswer(call) => write!(f, "a second answer to call {}", call.0),
            Self::UnknownAnswer => f.write_str("an answer to no call"),
        }
    }
}
