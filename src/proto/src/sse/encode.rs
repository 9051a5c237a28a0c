//! Writes one frame: the fields of an event and the blank line that ends it.
//!
//! Never lets a value open a line of its own: ids and names are [`FieldValue`]s, which hold no line end, and data is split at every
//! line end that a decoder knows.

use std::io::Write;
use std::time::Duration;

use memchr::memchr2;

use crate::canary::{self, Canary};
use crate::ids::CursorText;

/// A comment that keeps an idle stream from being cut. Decoders skip it; the blank line ends no event, as no data came before it.
///
/// HTML, 9.2.7: "authors can include a comment line (one starting with a ':' character) every 15 seconds or so."
pub const COMMENT: &[u8] = b":\n\n";

/// Text that fits in one field of a frame: no NUL, CR or LF in it.
///
/// CR and LF would end the line, and what follows would be read as another field. An id with NUL is one that decoders ignore: "If the
/// field value does not contain U+0000 NULL, then set the last event ID buffer to the field value" (HTML, 9.2.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FieldValue<'a>(&'a str);

impl<'a> FieldValue<'a> {
    /// `text` as a field's value; `None` when it contains NUL, CR or LF.
    pub const fn new(text: &'a str) -> Option<Self> {
        let bytes = text.as_bytes();
        let mut at = 0;
        while at < bytes.len() {
            if matches!(bytes[at], b'\0' | b'\r' | b'\n') {
                return None;
            }
            at += 1;
        }
        Some(Self(text))
    }

    /// The text.
    pub const fn as_str(self) -> &'a str {
        self.0
    }
}

/// A cursor is digits, dots and hex digits: always a field's value.
impl<'a> From<&'a CursorText> for FieldValue<'a> {
    fn from(cursor: &'a CursorText) -> Self {
        Self(cursor.as_str())
    }
}

/// What one frame says. Without any field it is a blank line, which says nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Frame<'a> {
    /// The event's name; a decoder takes `None` (and an empty name) for `message`.
    pub event: Option<FieldValue<'a>>,
    /// The id that a decoder remembers from here on. An empty one makes it forget.
    pub id: Option<FieldValue<'a>>,
    /// How long a client waits before it reconnects; whole milliseconds are written.
    pub retry: Option<Duration>,
    /// `None` writes no `data:` line, and a decoder dispatches nothing. `Some(b"")` writes an empty one, and it dispatches an event with
    /// empty data. CR, LF and CRLF all arrive as LF.
    pub data: Option<&'a [u8]>,
}

impl Frame<'_> {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        out.reserve(self.encoded_len());
        if let Some(event) = self.event {
            write_field(out, "event: ", event.0.as_bytes());
        }
        if let Some(id) = self.id {
            write_field(out, "id: ", id.0.as_bytes());
        }
        if let Some(retry) = self.retry {
            writeln!(out, "retry: {}", retry.as_millis()).expect("writing to a Vec cannot fail");
        }
        for line in self.data.into_iter().flat_map(Lines::new) {
            // No space where nothing follows it: there is none to take away.
            write_field(out, if line.is_empty() { "data:" } else { "data: " }, line);
        }
        out.push(b'\n');
    }

    /// How many bytes [`encode`](Self::encode) appends, exactly.
    pub fn encoded_len(&self) -> usize {
        let field = |name: usize, value: Option<FieldValue<'_>>| value.map_or(0, |value| name + value.0.len() + 1);
        let retry = self.retry.map_or(0, |retry| "retry: \n".len() + decimal_digits(retry.as_millis()));
        let data = self.data.into_iter().flat_map(Lines::new);
        let data: usize = data.map(|line| line.len() + if line.is_empty() { "data:\n".len() } else { "data: \n".len() }).sum();
        field("event: ".len(), self.event) + field("id: ".len(), self.id) + retry + data + 1
    }
}

/// The space after the colon is the one that a decoder takes away, so a value may begin with a space of its own.
fn write_field(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(value);
    out.push(b'\n');
}

fn decimal_digits(number: u128) -> usize {
    number.checked_ilog10().unwrap_or(0) as usize + 1
}

/// The lines of a text that are separated (not ended) by CR, LF or CRLF: n separators give n + 1 lines.
///
/// HTML, 9.2.5: `end-of-line = ( cr lf / cr / lf )`.
struct Lines<'a> {
    rest: Option<&'a [u8]>,
}

impl<'a> Lines<'a> {
    fn new(text: &'a [u8]) -> Self {
        Self { rest: Some(text) }
    }
}

impl<'a> Iterator for Lines<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.rest.take()?;
        let end = if canary::bites(Canary::SseBareCr) { memchr::memchr(b'\n', text) } else { memchr2(b'\r', b'\n', text) };
        let Some(end) = end else {
            return Some(text);
        };
        let separator = if text[end..].starts_with(b"\r\n") { 2 } else { 1 };
        self.rest = Some(&text[end + separator..]);
        Some(&text[..end])
    }
}
