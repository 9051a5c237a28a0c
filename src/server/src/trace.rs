//! Spans of sessions and calls, and where a caller stands in its own trace.
//!
//! Costs nothing where nobody listens: spans are at level DEBUG, under the target `rejoin::call`. Never names a session whole, which
//! would be a secret in the log, and never puts a client's words into a span but a method's name and a valid `traceparent`.

use std::cell::RefCell;
use std::collections::HashMap;

use rejoin_proto::ids::{CallId, SessionId};
use serde_json::value::RawValue;
use tracing::{Span, field};

use crate::session::Session;

/// The target of the spans, for filters.
const TARGET: &str = "rejoin::call";

/// Bytes of a method's name that a span or the log has. Reason: the longest of the protocol's own has 37; a client may send kilobytes.
const METHOD_BYTES: usize = 64;

thread_local! {
    /// The spans of this thread's sessions, where somebody listens: from `initialize` to their end.
    static SESSIONS: RefCell<HashMap<SessionId, Span>> = RefCell::default();
}

/// A session begins, here.
pub(crate) fn session_begins(session: &Session) {
    let span = tracing::debug_span!(target: TARGET, "session", session = ?session.id());
    if !span.is_disabled() {
        SESSIONS.with_borrow_mut(|sessions| sessions.insert(session.id(), span));
    }
}

/// A session ended. Its span closes with the last of its calls'.
pub(crate) fn session_ends(session: SessionId) {
    SESSIONS.with_borrow_mut(|sessions| {
        sessions.remove(&session);
        if sessions.is_empty() {
            sessions.shrink_to_fit();
        }
    });
}

/// The span of a session that lives here, where somebody listens.
pub(crate) fn session(id: SessionId) -> Span {
    SESSIONS.with_borrow(|sessions| sessions.get(&id).cloned()).unwrap_or_else(Span::none)
}

/// A call's span, inside its session's.
pub(crate) fn call(of: &Session, call: CallId, method: &str, traceparent: Option<&str>) -> Span {
    let method = short(method);
    let span = tracing::debug_span!(
        target: TARGET, parent: &session(of.id()), "call",
        session = ?of.id(), number = call.0, method, traceparent = field::Empty
    );
    if let Some(traceparent) = traceparent {
        span.record("traceparent", traceparent);
    }
    span
}

/// A handler panicked over a notification. What the client said is recorded as text, which subscribers quote, and not by its `Display`.
pub(crate) fn notification_panicked(panic: &str, method: &str) {
    tracing::error!(panic, method = short(method), "a handler panicked over a notification");
}

/// A method as spans and the log have it.
fn short(method: &str) -> &str {
    &method[..method.floor_char_boundary(METHOD_BYTES)]
}

/// The caller's `traceparent`: the message's own, else its request's.
pub(crate) fn parent(message: Option<&RawValue>, field: Option<&str>) -> Option<Box<str>> {
    let written = message.and_then(|written| serde_json::from_str::<&str>(written.get()).ok());
    written.or(field).filter(|value| is_valid(value)).map(Into::into)
}

/// W3C Trace Context, section 3.2.2: version, trace-id, parent-id and flags as lower-case hex, none of the ids all zeros, version `ff`
/// invalid. A later version may go on behind another dash.
fn is_valid(value: &str) -> bool {
    let hex = |text: &str, length: usize| {
        text.len() == length && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte))
    };
    let names = |text: &str| text.bytes().any(|byte| byte != b'0');
    let mut parts = value.splitn(5, '-');
    let (Some(version), Some(trace), Some(parent), Some(flags)) = (parts.next(), parts.next(), parts.next(), parts.next()) else {
        return false;
    };
    let more = parts.next();
    hex(version, 2)
        && version != "ff"
        && (version != "00" || more.is_none())
        && value.len() <= TRACEPARENT_BYTES
        && (hex(trace, 32) && names(trace))
        && (hex(parent, 16) && names(parent))
        && hex(flags, 2)
}

/// Bytes of a `traceparent`. Reason: version 00 has 55; a later one may be longer, but is kept as long as its call.
const TRACEPARENT_BYTES: usize = 128;

#[cfg(test)]
mod tests {
    use super::*;

    const VALID: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn only_what_the_standard_calls_valid_is_a_traceparent() {
        assert!(is_valid(VALID));
        assert!(is_valid(&VALID.replacen("00-", "cc-", 1)), "a later version");
        assert!(is_valid(&format!("{}-more", VALID.replacen("00-", "cc-", 1))), "which may have more");
        for invalid in [
            "",
            "00",
            &VALID[..54],
            &format!("{VALID}-more"),
            &format!("{VALID}0"),
            &VALID.to_uppercase(),
            &VALID.replacen("00-", "ff-", 1),
            &VALID.replace("4bf92f3577b34da6a3ce929d0e0e4736", &"0".repeat(32)),
            &VALID.replace("00f067aa0ba902b7", &"0".repeat(16)),
            &format!("{}-{}", VALID.replacen("00-", "cc-", 1), "x".repeat(TRACEPARENT_BYTES)),
        ] {
            assert!(!is_valid(invalid), "{invalid}");
        }
    }

    #[test]
    fn a_message_that_has_none_of_use_names_none() {
        let raw = |text: &str| serde_json::from_str::<Box<RawValue>>(text).expect("JSON");
        assert_eq!(parent(Some(&raw(&format!("\"{VALID}\""))), None).as_deref(), Some(VALID));
        for other in ["7", "null", "\"\"", "{}"] {
            assert_eq!(parent(Some(&raw(other)), None), None);
        }
        assert_eq!(parent(None, Some(VALID)).as_deref(), Some(VALID));
        assert_eq!(parent(Some(&raw("7")), Some(VALID)).as_deref(), Some(VALID));
        assert_eq!(parent(None, Some("00")), None);
    }
}
