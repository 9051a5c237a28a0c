//! Response heads, read by a client that does not trust its server: bounded, in any fragmentation, framed in exactly one way or refused.
//!
//! Never repairs what two readers could frame differently: a connection is used again, and a repair would make the rest of one answer
//! the beginning of another. Never says what a status or a field means.

use std::fmt;

use bytes::Bytes;
use memchr::memchr;
use smallvec::{SmallVec, smallvec};

use super::body::{BodyReader, Progress};
use super::head::{Framing, Repeated, Version, decimal};
use super::{is_control, trim};
use crate::limits::Limits;
use crate::refusal::Refusal;

/// Fields of an answer's head. More: `TooLarge`. Reason: the parser's table is of fixed size; proxies add a dozen.
const FIELDS: usize = 100;

/// Why bytes are no answer. The connection closes; whatever was asked on it has no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BadAnswer {
    /// The head, or the framing of the body, is not HTTP/1's; says how.
    Malformed(&'static str),
    /// The head has more bytes or fields than the limit.
    HeadTooLarge,
    /// The body, or an event in it, is larger than the limit.
    TooLarge,
}

/// How the body behind an answer's head ends (RFC 9112, section 6.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerFraming {
    /// As a request's may.
    Framed(Framing),
    /// With the connection: a cut cannot be told from its end.
    UntilClose,
}

/// An answer's head. Owns one copy of its bytes.
#[derive(Clone)]
pub struct AnswerHead {
    status: u16,
    version: Version,
    framing: AnswerFraming,
    fields: Box<[(Bytes, Bytes)]>,
}

/// Reads heads as their bytes arrive. Holds no buffer while nothing of a head has come.
#[derive(Clone, Debug, Default)]
pub struct AnswerReader {
    /// The head so far, where it came in several pieces.
    buffer: Vec<u8>,
}

impl AnswerReader {
    /// Takes bytes from the front of `input`: the head and how many of them it took, or `None` when all were taken and more is needed.
    pub fn read(&mut self, input: &[u8], max_bytes: usize) -> Result<Option<(AnswerHead, usize)>, BadAnswer> {
        let before = self.buffer.len();
        let end = end_of_head(&self.buffer, input)?;
        let taken = end.unwrap_or(input.len());
        if before + taken > max_bytes || (end.is_none() && before + taken == max_bytes) {
            return Err(BadAnswer::HeadTooLarge);
        }
        if end.is_some() && before == 0 {
            return AnswerHead::parse(&input[..taken]).map(|head| Some((head, taken)));
        }
        self.buffer.extend_from_slice(&input[..taken]);
        if end.is_none() {
            return Ok(None);
        }
        let buffer = std::mem::take(&mut self.buffer);
        AnswerHead::parse(&buffer).map(|head| Some((head, taken)))
    }
}

/// How many bytes of `input` complete the head that `before` begins. Every LF must follow a CR: RFC 9112, section 2.2, lets a recipient
/// take a bare one for a line's end, and another recipient may not.
fn end_of_head(before: &[u8], input: &[u8]) -> Result<Option<usize>, BadAnswer> {
    let back = |at: usize, steps: usize| {
        let at = (before.len() + at).checked_sub(steps)?;
        before.get(at).or_else(|| input.get(at - before.len())).copied()
    };
    let mut from = 0;
    while let Some(offset) = memchr(b'\n', &input[from..]) {
        let lf = from + offset;
        if back(lf, 1) != Some(b'\r') {
            return Err(BadAnswer::Malformed("Bare LF in the head"));
        }
        if back(lf, 2) == Some(b'\n') {
            return Ok(Some(lf + 1));
        }
        from = lf + 1;
    }
    Ok(None)
}

impl AnswerHead {
    /// A whole head, its empty line included.
    fn parse(bytes: &[u8]) -> Result<Self, BadAnswer> {
        let bytes = Bytes::copy_from_slice(bytes);
        let mut table: SmallVec<[httparse::Header<'_>; 16]> = smallvec![httparse::EMPTY_HEADER; 16];
        let mut response = httparse::Response::new(&mut table);
        let mut parsed = response.parse(&bytes);
        if matches!(parsed, Err(httparse::Error::TooManyHeaders)) {
            table = smallvec![httparse::EMPTY_HEADER; FIELDS];
            response = httparse::Response::new(&mut table);
            parsed = response.parse(&bytes);
        }
        let consumed = match parsed {
            Ok(httparse::Status::Complete(consumed)) => consumed,
            Ok(httparse::Status::Partial) => 0,
            Err(httparse::Error::TooManyHeaders) => return Err(BadAnswer::HeadTooLarge),
            Err(_) => return Err(BadAnswer::Malformed("Malformed head")),
        };
        let (true, Some(status @ 100..=599), Some(minor)) = (consumed == bytes.len(), response.code, response.version) else {
            return Err(BadAnswer::Malformed("Malformed head"));
        };
        let mut fields = Vec::with_capacity(response.headers.len());
        for field in response.headers.iter() {
            if field.value.iter().copied().any(is_control) {
                return Err(BadAnswer::Malformed("Control byte in a field"));
            }
            fields.push((bytes.slice_ref(field.name.as_bytes()), bytes.slice_ref(trim(field.value))));
        }
        let version = if minor == 0 { Version::Http10 } else { Version::Http11 };
        let head = Self { status, version, framing: AnswerFraming::UntilClose, fields: fields.into() };
        Ok(Self { framing: head.checked_framing()?, ..head })
    }

    /// The status code, of three digits.
    pub fn status(&self) -> u16 {
        self.status
    }

    /// How the body ends.
    pub fn framing(&self) -> AnswerFraming {
        self.framing
    }

    /// The value of a field that must stand alone; `Err` when it was sent more than once, even if equal.
    pub fn single(&self, name: &str) -> Result<Option<&[u8]>, Repeated> {
        let mut found = None;
        for (field, value) in &self.fields {
            if field.eq_ignore_ascii_case(name.as_bytes()) && found.replace(&value[..]).is_some() {
                return Err(Repeated);
            }
        }
        Ok(found)
    }

    /// The same as text; `None` also where it was sent twice or is not visible ASCII and spaces.
    pub fn text(&self, name: &str) -> Option<&str> {
        let value = self.single(name).ok().flatten()?;
        let visible = value.iter().all(|byte| matches!(byte, b' '..=b'~'));
        std::str::from_utf8(value).ok().filter(|_| visible)
    }

    /// Whether `Content-Type` is this media type, whatever its parameters.
    pub fn content_is(&self, media: &str) -> bool {
        let Ok(Some(value)) = self.single("content-type") else { return false };
        value.split(|&byte| byte == b';').next().is_some_and(|value| trim(value).eq_ignore_ascii_case(media.as_bytes()))
    }

    /// Whether the connection may serve another request after this answer (RFC 9112, section 9.3).
    pub fn keep_alive(&self) -> bool {
        let mut asked = false;
        let fields = self.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(b"connection"));
        for option in fields.flat_map(|(_, value)| value.split(|&byte| byte == b',')).map(trim) {
            if option.eq_ignore_ascii_case(b"close") {
                return false;
            }
            asked |= option.eq_ignore_ascii_case(b"keep-alive");
        }
        self.framing != AnswerFraming::UntilClose && (asked || self.version == Version::Http11)
    }

    /// RFC 9112, section 6.3, without any of the repairs that it permits.
    fn checked_framing(&self) -> Result<AnswerFraming, BadAnswer> {
        let refuse = |why| Err(BadAnswer::Malformed(why));
        // "Any response [...] with a 1xx (Informational), 204 (No Content), or 304 (Not Modified) status code is always terminated by the
        // first empty line after the header fields, regardless of the header fields present in the message"
        if matches!(self.status, 100..=199 | 204 | 304) {
            return Ok(AnswerFraming::Framed(Framing::None));
        }
        let Ok(length) = self.single("content-length") else { return refuse("Several Content-Length fields") };
        let Ok(coding) = self.single("transfer-encoding") else { return refuse("Several Transfer-Encoding fields") };
        match (length, coding) {
            (None, None) => Ok(AnswerFraming::UntilClose),
            (Some(_), Some(_)) => refuse("Both Content-Length and Transfer-Encoding"),
            (Some(digits), None) => match decimal(digits) {
                Some(length) => Ok(AnswerFraming::Framed(Framing::Length(length))),
                None => refuse("Malformed Content-Length"),
            },
            (None, Some(_)) if self.version == Version::Http10 => refuse("Transfer-Encoding in HTTP/1.0"),
            (None, Some(coding)) if coding.eq_ignore_ascii_case(b"chunked") => Ok(AnswerFraming::Framed(Framing::Chunked)),
            (None, Some(_)) => refuse("A Transfer-Encoding other than chunked"),
        }
    }
}

/// Decodes the body of one answer, in any fragmentation.
#[derive(Clone, Debug)]
pub struct AnswerBody(Ends);

#[derive(Clone, Debug)]
enum Ends {
    Framed(BodyReader),
    /// So many bytes may still come.
    UntilClose(usize),
}

impl AnswerBody {
    /// A reader for the body behind a head. Refuses at once what announces more than `limits.body_bytes`.
    pub fn new(framing: AnswerFraming, limits: &Limits) -> Result<Self, BadAnswer> {
        Ok(Self(match framing {
            AnswerFraming::Framed(framing) => Ends::Framed(BodyReader::new(framing, limits).map_err(bad_body)?),
            AnswerFraming::UntilClose => Ends::UntilClose(limits.body_bytes),
        }))
    }

    /// Consumes from the front of `input` and appends what it decodes to `body`, up to the byte that is wrong.
    pub fn read(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<Progress, BadAnswer> {
        match &mut self.0 {
            Ends::Framed(reader) => reader.read(input, body).map_err(bad_body),
            Ends::UntilClose(room) => {
                *room = room.checked_sub(input.len()).ok_or(BadAnswer::TooLarge)?;
                body.extend_from_slice(input);
                Ok(Progress { consumed: input.len(), done: false })
            }
        }
    }

    /// Whether the connection's end is the body's.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.0, Ends::UntilClose(_))
    }
}

/// What a refusal of a request's framing is to its reader's other user.
fn bad_body(refusal: Refusal) -> BadAnswer {
    match refusal {
        Refusal::TooLarge => BadAnswer::TooLarge,
        Refusal::HeadTooLarge => BadAnswer::HeadTooLarge,
        refusal => BadAnswer::Malformed(refusal.shape().message),
    }
}

/// Names the fields but not their values: a session id may be among them.
impl fmt::Debug for AnswerHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names = self.fields.iter().map(|(name, _)| String::from_utf8_lossy(name));
        f.debug_struct("AnswerHead")
            .field("status", &self.status)
            .field("framing", &self.framing)
            .field("fields", &names.collect::<Vec<_>>())
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every cut of `wire` in two, and byte by byte, gives the same: status and consumed, or the error.
    fn read(wire: &str) -> Result<Option<(AnswerHead, usize)>, BadAnswer> {
        let whole = AnswerReader::default().read(wire.as_bytes(), 4096);
        let facts = |read: &Result<Option<(AnswerHead, usize)>, BadAnswer>| match read {
            Ok(Some((head, consumed))) => Ok(Some((head.status, head.framing, *consumed))),
            Ok(None) => Ok(None),
            Err(error) => Err(*error),
        };
        for size in [1, 2, 3, 5, 17] {
            let (mut reader, mut before, mut got) = (AnswerReader::default(), 0, Ok(None));
            for piece in wire.as_bytes().chunks(size) {
                got = reader.read(piece, 4096).map(|found| found.map(|(head, taken)| (head, before + taken)));
                if !matches!(got, Ok(None)) {
                    break;
                }
                before += piece.len();
            }
            assert_eq!(facts(&got), facts(&whole), "{wire:?} in pieces of {size}");
        }
        whole
    }

    fn framing(fields: &str) -> Result<AnswerFraming, BadAnswer> {
        read(&format!("HTTP/1.1 200 OK\r\n{fields}\r\nrest")).map(|head| head.expect("whole").0.framing())
    }

    #[test]
    fn a_head_is_found_in_any_fragmentation() {
        let (head, consumed) =
            read("HTTP/1.1 404 Not Found\r\nContent-Type: application/JSON; charset=utf-8\r\nX:  y \r\n\r\nbody")
                .unwrap()
                .unwrap();
        assert_eq!((head.status(), consumed), (404, 78));
        assert!(head.content_is("application/json") && !head.content_is("text/event-stream"));
        assert_eq!(head.text("x"), Some("y"));
        assert!(read("HTTP/1.1 200 OK\r\nX: y\r\n").unwrap().is_none());
        assert!(read("HTTP/1.1 200\r\n\r\n").unwrap().is_some(), "a reason phrase may be left out");
    }

    #[test]
    fn a_body_is_framed_in_exactly_one_way() {
        assert_eq!(framing("Content-Length: 12\r\n"), Ok(AnswerFraming::Framed(Framing::Length(12))));
        assert_eq!(framing("Transfer-Encoding: Chunked\r\n"), Ok(AnswerFraming::Framed(Framing::Chunked)));
        assert_eq!(framing(""), Ok(AnswerFraming::UntilClose));
        for fields in [
            "Content-Length: 1\r\nContent-Length: 1\r\n",
            "Content-Length: +1\r\n",
            "Content-Length: 1\r\nTransfer-Encoding: chunked\r\n",
            "Transfer-Encoding: gzip, chunked\r\n",
            "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
            "X: a\r\n b\r\n",
            "X : a\r\n",
            "X: a\x01\r\n",
        ] {
            assert!(matches!(framing(fields), Err(BadAnswer::Malformed(_))), "{fields:?}");
        }
        let (head, _) = read("HTTP/1.1 204 No Content\r\nContent-Length: 3\r\n\r\n").unwrap().unwrap();
        assert_eq!(head.framing(), AnswerFraming::Framed(Framing::None));
    }

    #[test]
    fn what_is_no_answer_is_refused() {
        for wire in [
            "HTTP/1.1 200 OK\nX: y\r\n\r\n",
            "HTTP/1.1 200 OK\r\nX: y\n\n",
            "HTTP/2 200 OK\r\n\r\n",
            "HTTP/1.1 99 OK\r\n\r\n",
            "HTTP/1.1 600 OK\r\n\r\n",
            "SSH-2.0-x\r\n\r\n",
            "\r\n\r\n",
            "\n",
            "HTTP/1.0 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n",
        ] {
            assert!(matches!(read(wire), Err(BadAnswer::Malformed(_))), "{wire:?}");
        }
    }

    #[test]
    fn a_head_is_bounded_in_bytes_and_fields() {
        let fits = format!("HTTP/1.1 200 OK\r\nX: {}\r\n\r\n", "x".repeat(100));
        let limit = fits.len();
        assert!(AnswerReader::default().read(fits.as_bytes(), limit).unwrap().is_some());
        assert_eq!(AnswerReader::default().read(fits.as_bytes(), limit - 1).unwrap_err(), BadAnswer::HeadTooLarge);
        let mut endless = AnswerReader::default();
        assert!(endless.read(&[b'x'; 99], 100).unwrap().is_none());
        assert_eq!(endless.read(b"x", 100).unwrap_err(), BadAnswer::HeadTooLarge);
        let fields = |count| format!("HTTP/1.1 200 OK\r\n{}\r\n", "X: y\r\n".repeat(count));
        assert!(AnswerReader::default().read(fields(FIELDS).as_bytes(), 4096).unwrap().is_some());
        assert_eq!(AnswerReader::default().read(fields(FIELDS + 1).as_bytes(), 4096).unwrap_err(), BadAnswer::HeadTooLarge);
    }

    #[test]
    fn a_connection_is_kept_as_the_head_says() {
        let keep = |wire: &str| read(wire).unwrap().unwrap().0.keep_alive();
        assert!(keep("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert!(!keep("HTTP/1.1 200 OK\r\nContent-Length: 0\r\nConnection: x, Close\r\n\r\n"));
        assert!(!keep("HTTP/1.1 200 OK\r\n\r\n"));
        assert!(!keep("HTTP/1.0 200 OK\r\nContent-Length: 0\r\n\r\n"));
        assert!(keep("HTTP/1.0 200 OK\r\nContent-Length: 0\r\nConnection: keep-alive\r\n\r\n"));
    }
}
