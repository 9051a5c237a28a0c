//! Finds where a request head ends, and refuses what can be refused before it does.
//!
//! Looks at each byte once, however the head is cut, so that a head fed byte by byte costs no more than a whole one, and gets the
//! same answer. Never splits fields: `head` does, once, when the end was found.

use std::ops::Range;

use super::{is_control, is_token_byte};
use crate::canary::{self, Canary};
use crate::limits::Limits;
use crate::refusal::Refusal;

/// RFC 9112, section 2.2: "a server that is expecting to receive and parse a request-line SHOULD ignore at least one empty line (CRLF)
/// received prior to the request-line." Some old clients send one behind each body; a stream of them is no client.
const EMPTY_LINES: u8 = 4;

/// A head's place in a connection's unread bytes, kept between arrivals. Begins anew by itself after each head; after a refusal the
/// connection closes and it is of no more use.
#[derive(Clone, Debug, Default)]
pub struct HeadScanner {
    /// How many bytes from the front were looked at.
    scanned: usize,
    /// Where the request line begins, behind empty lines.
    start: usize,
    /// Empty lines skipped.
    empty_lines: u8,
    /// Fields begun.
    fields: usize,
    /// What the next byte belongs to.
    place: Place,
    /// The last byte was a CR: an LF must follow.
    after_cr: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
    BeforeRequest,
    Method,
    /// With its length so far.
    Target(usize),
    Version,
    LineStart,
    Field,
}

/// A whole head.
pub(super) struct Found {
    /// From the request line to the empty line's CRLF, which is included. The end is also how much the head consumes.
    pub(super) head: Range<usize>,
    /// How many fields it has: exactly, no line is folded.
    pub(super) fields: usize,
}

impl HeadScanner {
    /// A scanner that stands before a head.
    pub fn new() -> Self {
        Self::default()
    }

    /// Goes on over `bytes`, which begin where they began last time. `None`: more is needed.
    pub(super) fn find(&mut self, bytes: &[u8], limits: &Limits) -> Result<Option<Found>, Refusal> {
        if canary::bites(Canary::HeadCutCrlf) {
            self.after_cr = false;
        }
        // Spans into a head are of 32 bits.
        let bound = limits.head_bytes.min(u32::MAX as usize);
        let window = &bytes[..bytes.len().min(bound)];
        while self.scanned < window.len() {
            if self.place == Place::Field && !self.after_cr {
                // Most of a head is values: find their end without the state machine.
                let rest = &window[self.scanned..];
                self.scanned += rest.iter().position(|&byte| is_control(byte)).unwrap_or(rest.len());
            }
            let Some(&byte) = window.get(self.scanned) else { break };
            self.scanned += 1;
            if self.step(byte, limits)? {
                let found = Found { head: self.start..self.scanned, fields: self.fields };
                *self = Self::default();
                return Ok(Some(found));
            }
        }
        // At the bound itself, not one byte later: a caller that buffers no more than that would wait for ever.
        if self.scanned >= bound { Err(Refusal::HeadTooLarge) } else { Ok(None) }
    }

    /// Takes one byte; whether it ends the head.
    fn step(&mut self, byte: u8, limits: &Limits) -> Result<bool, Refusal> {
        if self.after_cr {
            // RFC 9112, section 2.2: "A recipient of such a bare CR MUST consider that element to be invalid or replace each bare CR with
            // SP"; replacing is a repair.
            if byte != b'\n' {
                return Err(Refusal::BadRequest("Bare CR in the head"));
            }
            self.after_cr = false;
            return self.end_line();
        }
        match byte {
            b'\r' => {
                self.after_cr = true;
                return Ok(false);
            }
            // A recipient may take it for a line's end (the same section), which is the root of half of all smuggling.
            b'\n' => return Err(Refusal::BadRequest("Bare LF in the head")),
            _ if is_control(byte) => return Err(Refusal::BadRequest("Control byte in the head")),
            _ => {}
        }
        self.place = match self.place {
            Place::BeforeRequest if is_token_byte(byte) => Place::Method,
            Place::BeforeRequest => return Err(Refusal::BadRequest("Not an HTTP request")),
            Place::Method if byte == b' ' => Place::Target(0),
            Place::Target(_) if byte == b' ' => Place::Version,
            Place::Target(length) if length >= limits.target_bytes => return Err(Refusal::TargetTooLong),
            Place::Target(length) => Place::Target(length + 1),
            // Before the first field it is refused by RFC 9112, section 2.2; before another it is obs-fold, refused by section 5.2.
            Place::LineStart if matches!(byte, b' ' | b'\t') => {
                return Err(Refusal::BadRequest("Whitespace before a field, or a folded field"));
            }
            Place::LineStart if self.fields >= limits.headers => return Err(Refusal::HeadTooLarge),
            Place::LineStart => {
                self.fields += 1;
                Place::Field
            }
            same @ (Place::Method | Place::Version | Place::Field) => same,
        };
        Ok(false)
    }

    /// A CRLF came; whether it ends the head.
    fn end_line(&mut self) -> Result<bool, Refusal> {
        match self.place {
            Place::BeforeRequest if self.empty_lines >= EMPTY_LINES => {
                Err(Refusal::BadRequest("Too many empty lines before a request"))
            }
            Place::BeforeRequest => {
                self.empty_lines += 1;
                self.start = self.scanned;
                Ok(false)
            }
            Place::Method | Place::Target(_) => Err(Refusal::BadRequest("No HTTP version in the request line")),
            Place::Version | Place::Field => {
                self.place = Place::LineStart;
                Ok(false)
            }
            Place::LineStart => Ok(true),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Limits {
        Limits { head_bytes: 64, headers: 3, target_bytes: 16, ..Limits::default() }
    }

    /// Feeds `bytes` one by one; the length at which an answer came, and which.
    fn drip(bytes: &[u8], limits: &Limits) -> (usize, Result<usize, Refusal>) {
        let mut scanner = HeadScanner::new();
        for end in 1..=bytes.len() {
            match scanner.find(&bytes[..end], limits) {
                Ok(None) => {}
                Ok(Some(found)) => return (end, Ok(found.head.end)),
                Err(refusal) => return (end, Err(refusal)),
            }
        }
        panic!("no answer");
    }

    #[test]
    fn a_head_fed_byte_by_byte_is_looked_at_once() {
        // Whatever was looked at before is overwritten by NULs, which no head may hold: a second look would refuse. So there are exactly
        // as many steps as bytes, for the longest head that is admitted.
        let limits = Limits::default();
        let mut head = b"GET /mcp HTTP/1.1\r\nHost: localhost\r\nX: ".to_vec();
        head.resize(limits.head_bytes - 4, b'a');
        head.extend_from_slice(b"\r\n\r\n");
        let mut scanner = HeadScanner::new();
        let mut seen = vec![0; head.len()];
        for at in 0..head.len() {
            seen[at] = head[at];
            let found = scanner.find(&seen[..=at], &limits).expect("each byte is fine");
            assert_eq!(found.is_some(), at + 1 == head.len());
            if found.is_none() {
                assert_eq!(scanner.scanned, at + 1);
            }
            seen[at] = 0;
        }
    }

    #[test]
    fn a_long_target_is_refused_before_its_end() {
        let mut request = b"GET /".to_vec();
        request.resize(200, b'a');
        assert_eq!(drip(&request, &small()), (4 + 16 + 1, Err(Refusal::TargetTooLong)));
    }

    #[test]
    fn a_target_of_the_limit_is_admitted() {
        let request = b"GET /aaaaaaaaaaaaaaa HTTP/1.1\r\n\r\n";
        assert_eq!(drip(request, &small()), (request.len(), Ok(request.len())));
    }

    #[test]
    fn a_long_head_is_refused_at_the_limit_and_one_of_the_limit_is_not() {
        let mut request = b"GET / HTTP/1.1\r\nX: ".to_vec();
        request.resize(60, b'a');
        let mut whole = request.clone();
        whole.extend_from_slice(b"\r\n\r\n");
        assert_eq!(drip(&whole, &small()), (64, Ok(64)));
        request.extend_from_slice(b"a\r\n\r\n");
        assert_eq!(drip(&request, &small()), (64, Err(Refusal::HeadTooLarge)));
    }

    #[test]
    fn one_field_too_many_is_refused_at_its_first_byte() {
        let request = b"GET / HTTP/1.1\r\nA:1\r\nB:2\r\nC:3\r\nD:4\r\n\r\n";
        assert_eq!(drip(request, &small()), (16 + 15 + 1, Err(Refusal::HeadTooLarge)));
    }

    #[test]
    fn a_few_empty_lines_before_a_request_are_skipped_and_many_are_refused() {
        let request = |lines: usize| [b"\r\n".repeat(lines).as_slice(), b"GET / HTTP/1.1\r\n\r\n"].concat();
        let few = request(EMPTY_LINES.into());
        let found = HeadScanner::new().find(&few, &small()).expect("fine").expect("whole");
        assert_eq!(found.head, 8..few.len());
        assert!(matches!(drip(&request(5), &small()), (10, Err(Refusal::BadRequest(_)))));
    }

    #[test]
    fn what_no_head_can_hold_is_refused_at_its_own_byte() {
        for (request, at) in [
            (b"\x16\x03\x01".as_slice(), 1),
            (b"GET / HTTP/1.1\r\nA: \0b", 20),
            (b"GET / HTTP/1.1\r\nA: \x7fb", 20),
            (b"GET /\x1b / HTTP/1.1", 6),
            (b"GET / HTTP/1.1\r\n A", 17),
            (b"GET / HTTP/1.1\r\nA: b\r\n c", 23),
            (b"GET / HTTP/1.1\nA: b", 15),
            (b"GET / HTTP/1.1\rA: b", 16),
            (b"GET /\r\nA: b", 7),
        ] {
            let answer = drip(request, &Limits::default());
            assert!(matches!(answer, (end, Err(Refusal::BadRequest(_))) if end == at), "{request:?}: {answer:?}");
        }
    }

    #[test]
    fn the_next_head_begins_anew() {
        let mut scanner = HeadScanner::new();
        for _ in 0..3 {
            let found = scanner.find(b"GET / HTTP/1.1\r\nA:1\r\nB:2\r\n\r\n", &small()).expect("fine").expect("whole");
            assert_eq!(found.fields, 2);
        }
    }

    #[test]
    fn bytes_that_shrink_between_calls_do_no_harm() {
        let mut scanner = HeadScanner::new();
        assert!(matches!(scanner.find(b"GET / HT", &small()), Ok(None)));
        assert!(matches!(scanner.find(b"GET", &small()), Ok(None)));
    }
}
