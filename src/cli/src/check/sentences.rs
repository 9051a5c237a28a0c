//! The sentences of the specification that cases go by, as MCP 2025-11-25 has them.
//!
//! Never a sentence of our own: those are the boundary page's rows.

use serde::Serialize;

/// A sentence and where it stands.
#[derive(Debug, PartialEq, Eq, Serialize)]
pub(crate) struct Sentence {
    /// The page and the section.
    pub(crate) section: &'static str,
    /// The words.
    pub(crate) text: &'static str,
}

const LISTENING: &str = "MCP 2025-11-25, Transports, Listening for Messages from the Server";
const SENDING: &str = "MCP 2025-11-25, Transports, Sending Messages to the Server";
const RESUMING: &str = "MCP 2025-11-25, Transports, Resumability and Redelivery";
const SESSIONS: &str = "MCP 2025-11-25, Transports, Session Management";

/// Ids of events.
pub(crate) const UNIQUE_IDS: Sentence =
    Sentence { section: RESUMING, text: "If present, the ID MUST be globally unique across all streams within that session" };
/// What a replay may have.
pub(crate) const OTHER_STREAM: Sentence = Sentence {
    section: RESUMING,
    text: "The server MUST NOT replay messages that would have been delivered on a different stream.",
};
/// One stream a message.
pub(crate) const ONE_STREAM: Sentence = Sentence {
    section: "MCP 2025-11-25, Transports, Multiple Connections",
    text: "The server MUST send each of its JSON-RPC messages on only one of the connected streams; that is, it MUST NOT broadcast the \
           same message across multiple streams.",
};
/// What a standalone stream may have.
pub(crate) const NO_RESPONSE: Sentence = Sentence {
    section: LISTENING,
    text: "The server MUST NOT send a JSON-RPC response on the stream unless resuming a stream associated with a previous client request.",
};
/// What an ended session is answered.
pub(crate) const ENDED_IS_404: Sentence = Sentence {
    section: SESSIONS,
    text: "The server MAY terminate the session at any time, after which it MUST respond to requests containing that session ID with HTTP \
           404 Not Found.",
};
/// What a session id is made of.
pub(crate) const VISIBLE_ASCII: Sentence = Sentence {
    section: SESSIONS,
    text: "The session ID MUST only contain visible ASCII characters (ranging from 0x21 to 0x7E).",
};
/// Notifications.
pub(crate) const ACCEPTED: Sentence = Sentence {
    section: SENDING,
    text: "If the server accepts the input, the server MUST return HTTP status code 202 Accepted with no body.",
};
/// Foreign origins.
pub(crate) const ORIGIN: Sentence = Sentence {
    section: "MCP 2025-11-25, Transports, Security Warning",
    text: "If the Origin header is present and invalid, servers MUST respond with HTTP 403 Forbidden.",
};
/// Unknown revisions.
pub(crate) const REVISION: Sentence = Sentence {
    section: "MCP 2025-11-25, Transports, Protocol Version Header",
    text: "If the server receives a request with an invalid or unsupported MCP-Protocol-Version, it MUST respond with 400 Bad Request.",
};
