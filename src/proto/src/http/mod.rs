//! HTTP/1 as bytes: request heads, bodies and response heads (written by a server, read by a client), and what their fields say.
//!
//! A message that two readers could frame differently is refused, never repaired: behind a proxy, a repair is a smuggled request.
//! Never decides what a request means or which answer it gets, never holds a connection's bytes, and knows no HTTP/2.

mod accept;
mod answer;
mod authority;
mod body;
mod head;
mod names;
mod response;
mod scan;

#[cfg(test)]
mod cases;

pub use answer::{AnswerBody, AnswerFraming, AnswerHead, AnswerReader, BadAnswer};
pub use body::{BodyReader, Progress};
pub use head::{Framing, Head, Method, Repeated, Version, parse_head};
pub use names::{BadName, Names};
pub use response::{BodyKind, CHUNK_END, CONTINUE, ChunkHead, LAST_CHUNK, ResponseHead, chunk_head};
pub use scan::HeadScanner;

/// RFC 9110, section 5.6.2: `tchar`, what tokens (methods, field names, parameters) are made of.
const fn is_token_byte(byte: u8) -> bool {
    matches!(byte,
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9'
        | b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'.' | b'^' | b'_' | b'`' | b'|' | b'~')
}

/// A token: at least one such byte.
pub(crate) fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().copied().all(is_token_byte)
}

/// A byte that no field value may hold: every control except the tab (CR and LF included).
pub(crate) const fn is_control(byte: u8) -> bool {
    (byte < b' ' && byte != b'\t') || byte == 0x7f
}

/// Without optional whitespace (RFC 9110, section 5.6.3: space and tab) at either end.
fn trim(mut bytes: &[u8]) -> &[u8] {
    while let [b' ' | b'\t', rest @ ..] | [rest @ .., b' ' | b'\t'] = bytes {
        bytes = rest;
    }
    bytes
}
