//! Response heads and chunk framing, written.
//!
//! Never writes a body, and never a `Date`: the kernel has no clock, and RFC 9110, section 6.6.1, asks for one only of servers that have.

use std::io::Write;
use std::ops::Deref;

use super::head::Version;
use super::{is_control, is_token};

/// How the body behind a response head ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// No body.
    Empty,
    /// So many bytes.
    Length(usize),
    /// Chunks: only to HTTP/1.1.
    Chunked,
    /// Everything until the connection closes.
    UntilClose,
}

impl BodyKind {
    /// The kind for a body whose length is not known yet. Chunks let a client tell a clean end from a cut; HTTP/1.0 has none.
    pub const fn of_unknown_length(version: Version) -> Self {
        match version {
            Version::Http10 => Self::UntilClose,
            Version::Http11 => Self::Chunked,
        }
    }
}

/// A response head, borrowed until it is written.
#[derive(Clone, Copy, Debug)]
pub struct ResponseHead<'a> {
    /// The status code, three digits.
    pub status: u16,
    /// `Content-Type`.
    pub content_type: Option<&'a str>,
    /// What follows.
    pub body: BodyKind,
    /// Whether the connection stays open after the body. `BodyKind::UntilClose` closes it in any case.
    pub keep_alive: bool,
    /// The version of the request.
    pub version: Version,
    /// Further fields, in order: none of those that this head writes by itself.
    pub fields: &'a [(&'a str, &'a str)],
}

impl ResponseHead<'_> {
    /// Appends the head. Controls in values (CR, LF and NUL among them) become spaces, so no value can begin a line of its own; a field
    /// whose name is no token is left out.
    pub fn write(&self, out: &mut Vec<u8>) {
        // The server's own version, whatever the client's (RFC 9110, section 6.2).
        put(out, format_args!("HTTP/1.1 {:03} {}\r\n", self.status, reason(self.status)));
        if let Some(content_type) = self.content_type {
            write_field(out, "Content-Type", content_type);
        }
        match self.body {
            // RFC 9110, section 8.6: no Content-Length in a 204 or a 1xx; a 304's would be that of another answer.
            BodyKind::Empty if matches!(self.status, 100..=199 | 204 | 304) => {}
            BodyKind::Empty => out.extend_from_slice(b"Content-Length: 0\r\n"),
            BodyKind::Length(length) => put(out, format_args!("Content-Length: {length}\r\n")),
            BodyKind::Chunked => out.extend_from_slice(b"Transfer-Encoding: chunked\r\n"),
            BodyKind::UntilClose => {}
        }
        // All sessions share one URL, and some statuses may be cached by default.
        out.extend_from_slice(b"Cache-Control: no-store\r\n");
        if !self.keep_alive || self.body == BodyKind::UntilClose {
            out.extend_from_slice(b"Connection: close\r\n");
        } else if self.version == Version::Http10 {
            out.extend_from_slice(b"Connection: keep-alive\r\n");
        }
        for (name, value) in self.fields {
            write_field(out, name, value);
        }
        out.extend_from_slice(b"\r\n");
    }
}

fn put(out: &mut Vec<u8>, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("a Vec takes every write");
}

fn write_field(out: &mut Vec<u8>, name: &str, value: &str) {
    if is_token(name.as_bytes()) {
        out.extend_from_slice(name.as_bytes());
        out.extend_from_slice(b": ");
        out.extend(value.bytes().map(|byte| if is_control(byte) { b' ' } else { byte }));
        out.extend_from_slice(b"\r\n");
    }
}

/// The reason phrase, for people; empty where we never send the status.
const fn reason(status: u16) -> &'static str {
    match status {
        200 => "OK",
        202 => "Accepted",
        204 => "No Content",
        400 => "Bad Request",
        401 => "Unauthorized",
        403 => "Forbidden",
        404 => "Not Found",
        405 => "Method Not Allowed",
        406 => "Not Acceptable",
        408 => "Request Timeout",
        409 => "Conflict",
        413 => "Content Too Large",
        414 => "URI Too Long",
        415 => "Unsupported Media Type",
        422 => "Unprocessable Content",
        431 => "Request Header Fields Too Large",
        500 => "Internal Server Error",
        503 => "Service Unavailable",
        _ => "",
    }
}

/// Tells a client that waits with its body to send it.
pub const CONTINUE: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";
/// Behind each chunk's data.
pub const CHUNK_END: &[u8] = b"\r\n";
/// Behind the last chunk: the clean end.
pub const LAST_CHUNK: &[u8] = b"0\r\n\r\n";

/// As many hex digits as a `usize` can need, and CRLF.
const CHUNK_HEAD_LEN: usize = usize::BITS as usize / 4 + 2;

/// A chunk's first line, in line.
#[derive(Clone, Copy, Debug)]
pub struct ChunkHead {
    bytes: [u8; CHUNK_HEAD_LEN],
    start: u8,
}

impl Deref for ChunkHead {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.bytes[usize::from(self.start)..]
    }
}

/// The line before a chunk of `length` bytes. An empty chunk would end the body, so there is none.
pub fn chunk_head(length: usize) -> ChunkHead {
    debug_assert_ne!(length, 0, "an empty chunk ends the body");
    let mut bytes = [0; CHUNK_HEAD_LEN];
    let mut start = CHUNK_HEAD_LEN - CHUNK_END.len();
    bytes[start..].copy_from_slice(CHUNK_END);
    let mut rest = length;
    loop {
        start -= 1;
        bytes[start] = b"0123456789abcdef"[rest & 0xf];
        rest >>= 4;
        if rest == 0 {
            return ChunkHead { bytes, start: start as u8 };
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const OK: ResponseHead<'_> = ResponseHead {
        status: 200,
        content_type: None,
        body: BodyKind::Chunked,
        keep_alive: true,
        version: Version::Http11,
        fields: &[],
    };

    fn written(head: ResponseHead<'_>) -> String {
        let mut out = Vec::new();
        head.write(&mut out);
        String::from_utf8(out).expect("text")
    }

    #[test]
    fn a_stream_is_chunked_typed_and_never_stored() {
        let fields = [("Mcp-Session-Id", "abc"), ("Rejoin-Verdict", "tail")];
        assert_eq!(
            written(ResponseHead { content_type: Some("text/event-stream"), fields: &fields, ..OK }),
            "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\nCache-Control: no-store\r\n\
             Mcp-Session-Id: abc\r\nRejoin-Verdict: tail\r\n\r\n"
        );
    }

    #[test]
    fn an_old_client_gets_a_stream_that_ends_with_its_connection() {
        let body = BodyKind::of_unknown_length(Version::Http10);
        let text = written(ResponseHead { body, version: Version::Http10, ..OK });
        assert_eq!(text, "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n");
    }

    #[test]
    fn the_connection_field_follows_the_version() {
        let connection = |version, keep_alive| {
            let text = written(ResponseHead { body: BodyKind::Length(3), version, keep_alive, ..OK });
            assert!(text.contains("\r\nContent-Length: 3\r\n"));
            text.lines().find_map(|line| line.strip_prefix("Connection: ").map(str::to_owned))
        };
        assert_eq!(connection(Version::Http11, true), None);
        assert_eq!(connection(Version::Http11, false).as_deref(), Some("close"));
        assert_eq!(connection(Version::Http10, true).as_deref(), Some("keep-alive"));
        assert_eq!(connection(Version::Http10, false).as_deref(), Some("close"));
    }

    #[test]
    fn an_empty_answer_says_so_except_where_it_must_not() {
        let empty = |status| written(ResponseHead { status, body: BodyKind::Empty, ..OK });
        assert_eq!(empty(202), "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\nCache-Control: no-store\r\n\r\n");
        assert_eq!(empty(204), "HTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n\r\n");
    }

    #[test]
    fn an_unknown_status_keeps_the_status_line_whole() {
        assert!(written(ResponseHead { status: 299, ..OK }).starts_with("HTTP/1.1 299 \r\n"));
    }

    #[test]
    fn a_field_that_is_no_field_is_left_out() {
        let fields = [("Bad Name", "x"), ("", "y"), ("A\r\nB", "z"), ("Good", "a")];
        assert_eq!(written(ResponseHead { fields: &fields, ..OK }).matches(": ").count(), 3);
    }

    #[test]
    fn chunk_heads_are_hex_lines() {
        for (length, line) in [(1, "1\r\n"), (15, "f\r\n"), (16, "10\r\n"), (0xabcdef, "abcdef\r\n")] {
            assert_eq!(&*chunk_head(length), line.as_bytes());
        }
        assert_eq!(&*chunk_head(usize::MAX), format!("{:x}\r\n", usize::MAX).as_bytes());
    }

    proptest! {
        #[test]
        fn no_value_begins_a_line_of_its_own(value in any::<String>(), content_type in any::<String>()) {
            let text = written(ResponseHead { content_type: Some(&content_type), fields: &[("X", &value)], ..OK });
            prop_assert_eq!(text.matches('\n').count(), 6);
            prop_assert_eq!(text.matches('\r').count(), 6);
            prop_assert!(!text.contains('\0'));
        }
    }
}
