//! A request head: the request line and fields, split once and checked once.
//!
//! `httparse` splits; everything that frames the request (lengths, codings, line ends) is checked here and in `scan`, more strictly.
//! A `Head` exists only when its framing is unambiguous. Never says whether a head is allowed (`names`) or what it asks for.

use std::fmt;

use bytes::Bytes;
use smallvec::{SmallVec, smallvec};

use super::scan::HeadScanner;
use super::{accept, trim};
use crate::canary::{self, Canary};
use crate::limits::Limits;
use crate::refusal::Refusal;

/// The methods that an endpoint tells apart. Case-sensitive (RFC 9110, section 9.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// `GET`.
    Get,
    /// `POST`.
    Post,
    /// `DELETE`.
    Delete,
    /// `OPTIONS`.
    Options,
    /// `HEAD`: answers to it have no body.
    Head,
    /// Any other token.
    Other,
}

/// The protocol versions that are read. Any other is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Version {
    /// HTTP/1.0: no chunked coding, and connections close unless asked otherwise.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// How the body behind a head ends (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// No body.
    None,
    /// So many bytes.
    Length(u64),
    /// Chunks.
    Chunked,
}

/// A field that must stand alone was sent several times.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Repeated;

/// A part of a head's bytes.
#[derive(Clone, Copy)]
struct Span {
    start: u32,
    end: u32,
}

#[derive(Clone, Copy)]
struct Field {
    name: Span,
    value: Span,
}

/// A request head. Owns one copy of its bytes; cloning shares it.
#[derive(Clone)]
pub struct Head {
    /// From the request line to the last CRLF.
    bytes: Bytes,
    fields: Box<[Field]>,
    method: Method,
    version: Version,
    framing: Framing,
    /// `CONNECT`, after which a client may believe that it has a tunnel.
    connect: bool,
    target: Span,
    path: Span,
    authority: Option<Span>,
}

/// Reads a whole head from the front of `bytes`. `None`: more is needed; then a `HeadScanner` saves looking at the same bytes again.
/// Otherwise the head and how many bytes it took.
pub fn parse_head(bytes: &[u8], limits: &Limits) -> Result<Option<(Head, usize)>, Refusal> {
    HeadScanner::new().parse(bytes, limits)
}

impl HeadScanner {
    /// As `parse_head`, but remembers what it has looked at: `bytes` must begin where they began at the last call that gave `None`.
    pub fn parse(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<(Head, usize)>, Refusal> {
        let Some(found) = self.find(bytes, limits)? else { return Ok(None) };
        let consumed = found.head.end;
        Ok(Some((split(&bytes[found.head], found.fields)?, consumed)))
    }
}

/// Splits a whole head that `scan` has found and admitted.
fn split(bytes: &[u8], fields: usize) -> Result<Head, Refusal> {
    let mut table: SmallVec<[httparse::Header<'_>; 32]> = smallvec![httparse::EMPTY_HEADER; fields];
    let mut request = httparse::Request::new(&mut table);
    let consumed = match request.parse(bytes) {
        Ok(httparse::Status::Complete(consumed)) => consumed,
        Ok(httparse::Status::Partial) => 0,
        Err(error) => return Err(Refusal::BadRequest(complaint(error))),
    };
    // `scan` and `httparse` agree on where a head ends; were they ever not to, nothing of it is served.
    let (true, Some(method), Some(target), Some(minor)) =
        (consumed == bytes.len(), request.method, request.path, request.version)
    else {
        return Err(Refusal::BadRequest("Malformed head"));
    };
    let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
    let form = Form::of(method, target)?;
    let span = |part: &[u8]| span_in(bytes, part);
    let head = Head {
        bytes: Bytes::copy_from_slice(bytes),
        fields: request
            .headers
            .iter()
            .map(|field| Field { name: span(field.name.as_bytes()), value: span(field.value) })
            .collect(),
        method: match method {
            "GET" => Method::Get,
            "POST" => Method::Post,
            "DELETE" => Method::Delete,
            "OPTIONS" => Method::Options,
            "HEAD" => Method::Head,
            _ => Method::Other,
        },
        version,
        framing: Framing::None,
        connect: method == "CONNECT",
        target: span(target.as_bytes()),
        path: span(form.path.as_bytes()),
        authority: form.authority.map(|authority| span(authority.as_bytes())),
    };
    Ok(Head { framing: head.checked_framing()?, ..head })
}

/// What to say of a head that `httparse` refuses.
fn complaint(error: httparse::Error) -> &'static str {
    match error {
        httparse::Error::HeaderName => "Malformed field name (a space before its colon counts)",
        httparse::Error::HeaderValue => "Malformed field value",
        httparse::Error::Version => "Only HTTP/1.0 and HTTP/1.1 are spoken here",
        _ => "Malformed request line",
    }
}

/// Where `part`, a slice of `whole`, stands in it. `scan` keeps heads within 32 bits.
fn span_in(whole: &[u8], part: &[u8]) -> Span {
    let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr()).min(whole.len());
    let end = (start + part.len()).min(whole.len());
    Span { start: start as u32, end: end as u32 }
}

/// A request target taken apart (RFC 9112, section 3.2).
struct Form<'a> {
    path: &'a str,
    authority: Option<&'a str>,
}

impl<'a> Form<'a> {
    fn of(method: &str, target: &'a str) -> Result<Self, Refusal> {
        let malformed = Err(Refusal::BadRequest("Malformed request target"));
        // A target is ASCII and has no fragment. Proxies disagree on where `/a#/../b` leads, so it leads nowhere.
        if !target.is_ascii() || target.contains('#') {
            return malformed;
        }
        if method == "CONNECT" {
            // Authority-form: no path of ours.
            return Ok(Self { path: "", authority: None });
        }
        if target.starts_with('/') {
            return Ok(Self { path: before_query(target), authority: None });
        }
        if target == "*" && method == "OPTIONS" {
            return Ok(Self { path: target, authority: None });
        }
        let Some(rest) = strip_prefix_any_case(target, "http://").or_else(|| strip_prefix_any_case(target, "https://")) else {
            return malformed;
        };
        let (authority, behind) = rest.split_at(rest.find(['/', '?']).unwrap_or(rest.len()));
        if authority.is_empty() {
            return malformed;
        }
        // An empty path means "/" (RFC 9110, section 4.2.3), which the scheme's own slash can stand for.
        let path = if behind.starts_with('/') { before_query(behind) } else { &target[target.len() - rest.len() - 1..][..1] };
        Ok(Self { path, authority: Some(authority) })
    }
}

fn before_query(target: &str) -> &str {
    target.split_once('?').map_or(target, |(path, _)| path)
}

fn strip_prefix_any_case<'a>(text: &'a str, prefix: &str) -> Option<&'a str> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    head.eq_ignore_ascii_case(prefix).then_some(rest)
}

impl Head {
    fn part(&self, span: Span) -> &[u8] {
        &self.bytes[span.start as usize..span.end as usize]
    }

    fn text(&self, span: Span) -> &str {
        std::str::from_utf8(self.part(span)).expect("request targets are checked to be ASCII")
    }

    /// What is asked for.
    pub fn method(&self) -> Method {
        self.method
    }

    /// The request target as sent.
    pub fn target(&self) -> &str {
        self.text(self.target)
    }

    /// The target's path without its query, never decoded. `*` for `OPTIONS *`; empty for `CONNECT`.
    pub fn path(&self) -> &str {
        self.text(self.path)
    }

    /// The authority of an absolute-form target.
    pub fn authority(&self) -> Option<&str> {
        self.authority.map(|span| self.text(span))
    }

    /// The client's version.
    pub fn version(&self) -> Version {
        self.version
    }

    /// Every field in order: its name as it was written, and its value without whitespace at the ends.
    pub fn fields(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.fields.iter().map(|field| (self.part(field.name), self.part(field.value)))
    }

    /// Every value of the fields of this name (in any case), in order, without whitespace at the ends.
    pub fn values<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.fields
            .iter()
            .filter(move |field| self.part(field.name).eq_ignore_ascii_case(name.as_bytes()))
            .map(|field| self.part(field.value))
    }

    /// Every field whose name begins with `prefix` (in any case): the rest of its name, and its value.
    pub fn prefixed<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a [u8], &'a [u8])> + 'a {
        self.fields.iter().filter_map(move |field| {
            let (start, rest) = self.part(field.name).split_at_checked(prefix.len())?;
            start.eq_ignore_ascii_case(prefix.as_bytes()).then(|| (rest, self.part(field.value)))
        })
    }

    /// The value of a field that must stand alone; `Err` when it was sent more than once, even if equal.
    pub fn single(&self, name: &str) -> Result<Option<&[u8]>, Repeated> {
        let mut found = None;
        for field in &self.fields {
            if self.part(field.name).eq_ignore_ascii_case(name.as_bytes()) && found.replace(self.part(field.value)).is_some() {
                return Err(Repeated);
            }
        }
        Ok(found)
    }

    /// How the body ends.
    pub fn framing(&self) -> Framing {
        self.framing
    }

    /// RFC 9112, section 6.3, without any of the repairs that it permits.
    fn checked_framing(&self) -> Result<Framing, Refusal> {
        let refuse = |why| Err(Refusal::BadRequest(why));
        let Ok(length) = self.single("content-length") else { return refuse("Several Content-Length fields") };
        let Ok(coding) = self.single("transfer-encoding") else { return refuse("Several Transfer-Encoding fields") };
        match (length, coding) {
            (None, None) => Ok(Framing::None),
            (Some(_), Some(_)) => refuse("Both Content-Length and Transfer-Encoding"),
            (Some(digits), None) => match decimal(digits) {
                Some(length) => Ok(Framing::Length(length)),
                None => refuse("Malformed Content-Length"),
            },
            (None, Some(_)) if self.version == Version::Http10 => refuse("Transfer-Encoding in HTTP/1.0"),
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(Framing::Chunked),
            (None, Some(_)) => refuse("A Transfer-Encoding other than chunked"),
        }
    }

    /// Whether the connection may serve another request after this one (RFC 9112, section 9.3). Never after `CONNECT`: what follows it
    /// may be meant for a tunnel.
    pub fn keep_alive(&self) -> bool {
        let mut asked = false;
        for option in self.list("connection") {
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            asked |= option.eq_ignore_ascii_case(b"keep-alive");
        }
        !self.connect && (asked || self.version == Version::Http11)
    }

    /// Whether the client waits for `CONTINUE` before it sends its body (RFC 9110, section 10.1.1: never in HTTP/1.0).
    pub fn expects_continue(&self) -> bool {
        self.version == Version::Http11
            && !matches!(self.framing, Framing::None | Framing::Length(0))
            && self.list("expect").any(|expectation| expectation.eq_ignore_ascii_case(b"100-continue"))
    }

    /// Whether `Accept` admits an answer of this media type, such as `text/event-stream`. Absent or empty, it admits everything.
    pub fn accepts(&self, media: &str) -> bool {
        accept::admits(self.values("accept"), media)
    }

    /// Whether `Content-Type` says JSON, once, in a charset that is UTF-8 where it names one.
    pub fn content_is_json(&self) -> bool {
        matches!(self.single("content-type"), Ok(Some(value)) if accept::is_json(value))
    }

    /// The members of a comma-separated field of tokens.
    fn list<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> + 'a {
        self.values(name).flat_map(|value| value.split(|&byte| byte == b',')).map(trim)
    }
}

/// Names the fields but not their values: credentials are among them.
impl fmt::Debug for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.fields.iter().map(|field| String::from_utf8_lossy(self.part(field.name)));
        f.debug_struct("Head")
            .field("method", &self.method)
            .field("target", &self.target())
            .field("version", &self.version)
            .field("framing", &self.framing)
            .field("fields", &names.collect::<Vec<_>>())
            .finish()
    }
}

/// RFC 9110, section 8.6: `Content-Length = 1*DIGIT`. No sign, no list, no overflow.
pub(super) fn decimal(digits: &[u8]) -> Option<u64> {
    let digits = if canary::bites(Canary::HeadSignedLength) { digits.strip_prefix(b"+").unwrap_or(digits) } else { digits };
    if digits.is_empty() {
        return None;
    }
    digits.iter().try_fold(0u64, |number, &byte| {
        let digit = byte.is_ascii_digit().then(|| u64::from(byte - b'0'))?;
        number.checked_mul(10)?.checked_add(digit)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn head(text: &str) -> Head {
        let (head, consumed) = parse_head(text.as_bytes(), &Limits::default()).expect("valid").expect("whole");
        assert_eq!(consumed, text.len());
        head
    }

    #[test]
    fn a_head_gives_back_what_was_sent() {
        let head =
            head("POST /mcp?x=/y HTTP/1.1\r\nHost: a\r\nX-Two:\t one \r\nx-two:two\r\nX-Empty:\r\nContent-Length: 12\r\n\r\n");
        assert_eq!((head.method(), head.target(), head.path()), (Method::Post, "/mcp?x=/y", "/mcp"));
        assert_eq!((head.version(), head.framing()), (Version::Http11, Framing::Length(12)));
        assert_eq!(head.values("X-TWO").collect::<Vec<_>>(), [b"one", b"two"]);
        assert_eq!(head.single("x-two"), Err(Repeated));
        assert_eq!(head.single("x-empty"), Ok(Some(b"".as_slice())));
        assert_eq!(head.single("x-none"), Ok(None));
    }

    #[test]
    fn the_path_is_found_in_every_form_of_target() {
        for (method, target, path, authority) in [
            ("GET", "/", "/", None),
            ("GET", "//evil/", "//evil/", None),
            ("GET", "/mcp?a?b", "/mcp", None),
            ("GET", "HTTP://a:1/mcp?q", "/mcp", Some("a:1")),
            ("GET", "https://a?q=/x", "/", Some("a")),
            ("GET", "http://a", "/", Some("a")),
            ("OPTIONS", "*", "*", None),
            ("CONNECT", "a:443", "", None),
        ] {
            let head = head(&format!("{method} {target} HTTP/1.1\r\nHost: a\r\n\r\n"));
            assert_eq!((head.path(), head.authority()), (path, authority), "{method} {target}");
        }
    }

    #[test]
    fn connections_are_kept_as_version_and_options_say() {
        for (version, connection, kept) in [
            ("1.1", "", true),
            ("1.1", "Connection: close\r\n", false),
            ("1.1", "Connection: Upgrade , CLOSE\r\n", false),
            ("1.1", "Connection: keep-alive\r\nConnection: close\r\n", false),
            ("1.1", "Connection: closed\r\n", true),
            ("1.0", "", false),
            ("1.0", "Connection: Keep-Alive\r\n", true),
            ("1.0", "Connection: keep-alive, close\r\n", false),
        ] {
            let head = head(&format!("GET / HTTP/{version}\r\n{connection}\r\n"));
            assert_eq!(head.keep_alive(), kept, "HTTP/{version} {connection}");
        }
    }

    #[test]
    fn nothing_is_read_as_a_request_behind_connect() {
        assert!(!head("CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\n").keep_alive());
    }

    #[test]
    fn continue_is_expected_only_where_a_body_follows() {
        let expects =
            |version, rest| head(&format!("POST / HTTP/{version}\r\nExpect: 100-Continue\r\n{rest}\r\n")).expects_continue();
        assert!(expects("1.1", "Content-Length: 1\r\n"));
        assert!(expects("1.1", "Transfer-Encoding: chunked\r\n"));
        assert!(!expects("1.1", ""));
        assert!(!expects("1.1", "Content-Length: 0\r\n"));
        assert!(!expects("1.0", "Content-Length: 1\r\n"));
        assert!(!head("POST / HTTP/1.1\r\nContent-Length: 1\r\n\r\n").expects_continue());
    }

    #[test]
    fn debug_names_fields_and_hides_their_values() {
        let text = format!("{:?}", head("GET / HTTP/1.1\r\nAuthorization: Bearer hunter2\r\n\r\n"));
        assert!(text.contains("Authorization") && !text.contains("hunter2"), "{text}");
    }

    #[test]
    fn content_type_counts_only_when_sent_once() {
        assert!(head("POST / HTTP/1.1\r\nContent-Type: application/json\r\n\r\n").content_is_json());
        assert!(!head("POST / HTTP/1.1\r\n\r\n").content_is_json());
        let twice = "Content-Type: application/json\r\nContent-Type: application/json\r\n";
        assert!(!head(&format!("POST / HTTP/1.1\r\n{twice}\r\n")).content_is_json());
    }
}
