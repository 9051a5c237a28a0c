//! A request body, decoded as it comes: by length or by chunks, in any fragmentation.
//!
//! Looks at each byte once. Never buffers: decoded bytes go to the caller, framing is dropped. Never guesses: a chunk line that is not
//! exactly RFC 9112, section 7.1, is refused.

use super::head::Framing;
use super::{is_control, is_token_byte};
use crate::canary::{self, Canary};
use crate::limits::Limits;
use crate::refusal::Refusal;

/// What one `read` did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// Bytes taken from the front of the input. Less than all of it only when the body is done.
    pub consumed: usize,
    /// Whether the body is whole. What follows is the next request.
    pub done: bool,
}

/// Decodes one body. After a refusal the connection closes and it is of no more use.
#[derive(Clone, Debug)]
pub struct BodyReader {
    state: State,
    /// Decoded bytes that may still be announced.
    room: u64,
    /// Bytes of chunk extensions and trailers that may still come, in all.
    spare: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Plain bytes; `chunked` says whether a CRLF and another chunk follow.
    Data {
        left: u64,
        chunked: bool,
    },
    /// In a chunk's size.
    Size {
        size: u64,
        digits: u8,
    },
    Extension {
        size: u64,
        at: Extension,
    },
    /// A chunk line's CR was read.
    SizeLf {
        size: u64,
    },
    DataCr,
    DataLf,
    Trailer(Trailer),
    Done,
}

/// Inside `chunk-ext = *( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )` (RFC 9112, section 7.1.1).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extension {
    /// Whitespace before a semicolon, the only thing that may follow.
    BeforeSemicolon,
    BeforeName,
    Name,
    /// Whitespace behind a name: an equals sign or a semicolon must follow.
    AfterName,
    BeforeValue,
    Value,
    Quoted,
    Escaped,
    AfterQuoted,
}

/// Inside the trailer section.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trailer {
    LineStart,
    Name,
    Value,
    LineLf,
    EndLf,
}

/// Digits of a chunk size: as many as 64 bits can need.
const SIZE_DIGITS: u8 = 16;

impl BodyReader {
    /// A reader for the body behind a head. Refuses at once what announces more than `limits.body_bytes`. Chunk extensions and trailers
    /// may take `limits.head_bytes` together.
    pub fn new(framing: Framing, limits: &Limits) -> Result<Self, Refusal> {
        let room = limits.body_bytes as u64;
        let state = match framing {
            Framing::None | Framing::Length(0) => State::Done,
            Framing::Length(length) if length > room => return Err(Refusal::TooLarge),
            Framing::Length(length) => State::Data { left: length, chunked: false },
            Framing::Chunked => State::Size { size: 0, digits: 0 },
        };
        Ok(Self { state, room, spare: limits.head_bytes })
    }

    /// Consumes from the front of `input` and appends what it decodes to `body`.
    pub fn read(&mut self, input: &[u8], body: &mut Vec<u8>) -> Result<Progress, Refusal> {
        let mut consumed = 0;
        while self.state != State::Done {
            let Some(&byte) = input.get(consumed) else { break };
            if let State::Data { left, chunked } = self.state {
                let rest = &input[consumed..];
                let taken = usize::try_from(left).map_or(rest.len(), |left| left.min(rest.len()));
                let lost = usize::from(canary::bites(Canary::BodyEdgeByte) && (taken as u64) < left);
                body.extend_from_slice(&rest[..taken - lost]);
                consumed += taken;
                self.state = match (left - taken as u64, chunked) {
                    (0, true) => State::DataCr,
                    (0, false) => State::Done,
                    (left, chunked) => State::Data { left, chunked },
                };
            } else {
                self.state = self.step(byte)?;
                consumed += 1;
            }
        }
        Ok(Progress { consumed, done: self.state == State::Done })
    }

    /// Takes one byte of framing.
    fn step(&mut self, byte: u8) -> Result<State, Refusal> {
        let refuse = |why| Err(Refusal::BadRequest(why));
        match self.state {
            State::Size { size, digits } => self.step_size(size, digits, byte),
            State::Extension { size, at } => {
                // The line's CRLF is the chunk's own.
                if byte != b'\r' {
                    self.spend()?;
                }
                match at.step(byte) {
                    Some(Some(at)) => Ok(State::Extension { size, at }),
                    Some(None) => Ok(State::SizeLf { size }),
                    None => refuse("Malformed chunk extension"),
                }
            }
            State::SizeLf { .. } | State::DataLf if byte != b'\n' => refuse("Bare CR in chunk framing"),
            State::SizeLf { size: 0 } => Ok(State::Trailer(Trailer::LineStart)),
            State::SizeLf { size } => Ok(State::Data { left: size, chunked: true }),
            State::DataCr if byte != b'\r' => refuse("Chunk data is not followed by CRLF"),
            State::DataCr => Ok(State::DataLf),
            State::DataLf => Ok(State::Size { size: 0, digits: 0 }),
            State::Trailer(Trailer::EndLf) if byte == b'\n' => Ok(State::Done),
            State::Trailer(at) => {
                // The CRLF that ends every chunked body is not a trailer.
                if !matches!((at, byte), (Trailer::LineStart, b'\r')) {
                    self.spend()?;
                }
                at.step(byte).map_or(refuse("Malformed trailer"), |at| Ok(State::Trailer(at)))
            }
            done @ (State::Data { .. } | State::Done) => Ok(done),
        }
    }

    fn step_size(&mut self, size: u64, digits: u8, byte: u8) -> Result<State, Refusal> {
        if let Some(digit) = char::from(byte).to_digit(16) {
            // Leading zeros count: a recipient that reads fewer digits must not find another size.
            if digits == SIZE_DIGITS {
                return Err(Refusal::BadRequest("Chunk size out of range"));
            }
            return Ok(State::Size { size: size << 4 | u64::from(digit), digits: digits + 1 });
        }
        if digits == 0 || !matches!(byte, b'\r' | b';' | b' ' | b'\t') {
            return Err(Refusal::BadRequest("Malformed chunk size"));
        }
        self.room = self.room.checked_sub(size).ok_or(Refusal::TooLarge)?;
        if byte == b'\r' {
            return Ok(State::SizeLf { size });
        }
        self.spend()?;
        let at = if byte == b';' { Extension::BeforeName } else { Extension::BeforeSemicolon };
        Ok(State::Extension { size, at })
    }

    /// Counts one byte of an extension or a trailer.
    fn spend(&mut self) -> Result<(), Refusal> {
        self.spare = self.spare.checked_sub(1).ok_or(Refusal::HeadTooLarge)?;
        Ok(())
    }
}

impl Extension {
    /// Takes one byte: the next place, `Some(None)` at the line's CR, `None` when it does not belong here.
    fn step(self, byte: u8) -> Option<Option<Self>> {
        let next = match (self, byte) {
            (Self::Name | Self::Value | Self::AfterQuoted, b'\r') => return Some(None),
            (Self::Quoted, b'"') => Self::AfterQuoted,
            (Self::Quoted, b'\\') => Self::Escaped,
            (Self::Quoted | Self::Escaped, byte) if !is_control(byte) => Self::Quoted,
            (Self::Quoted | Self::Escaped, _) => return None,
            (Self::BeforeSemicolon | Self::Name | Self::AfterName | Self::Value | Self::AfterQuoted, b';') => Self::BeforeName,
            (Self::Name | Self::AfterName, b'=') => Self::BeforeValue,
            (Self::BeforeValue, b'"') => Self::Quoted,
            (Self::Name | Self::AfterName, b' ' | b'\t') => Self::AfterName,
            (Self::Value | Self::AfterQuoted | Self::BeforeSemicolon, b' ' | b'\t') => Self::BeforeSemicolon,
            (Self::BeforeName | Self::BeforeValue, b' ' | b'\t') => self,
            (Self::BeforeName | Self::Name, byte) if is_token_byte(byte) => Self::Name,
            (Self::BeforeValue | Self::Value, byte) if is_token_byte(byte) => Self::Value,
            _ => return None,
        };
        Some(Some(next))
    }
}

impl Trailer {
    /// Takes one byte; `None` when it does not belong here. A folded line, which begins with whitespace, does not.
    fn step(self, byte: u8) -> Option<Self> {
        match (self, byte) {
            (Self::LineStart, b'\r') => Some(Self::EndLf),
            (Self::Name, b':') => Some(Self::Value),
            (Self::LineStart | Self::Name, byte) if is_token_byte(byte) => Some(Self::Name),
            (Self::Value, b'\r') => Some(Self::LineLf),
            (Self::Value, byte) if !is_control(byte) => Some(Self::Value),
            (Self::LineLf, b'\n') => Some(Self::LineStart),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::http::{CHUNK_END, LAST_CHUNK, chunk_head};

    fn small() -> Limits {
        Limits { body_bytes: 100, head_bytes: 40, ..Limits::default() }
    }

    /// Feeds `wire` in pieces of `piece` bytes: the body and what it consumed, `None` when it needs more.
    fn decode(framing: Framing, wire: &[u8], piece: usize) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
        let mut reader = BodyReader::new(framing, &small())?;
        let (mut body, mut consumed) = (Vec::new(), 0);
        for piece in wire.chunks(piece) {
            let progress = reader.read(piece, &mut body)?;
            consumed += progress.consumed;
            if progress.done {
                return Ok(Some((body, consumed)));
            }
            assert_eq!(progress.consumed, piece.len(), "an unfinished body takes everything");
        }
        Ok(None)
    }

    #[test]
    fn chunk_shapes_are_admitted_or_refused() {
        const BAD: Result<&str, u16> = Err(400);
        for (wire, expected) in [
            ("5\r\nhello\r\n0\r\n\r\n", Ok("hello")),
            ("0\r\n\r\n", Ok("")),
            ("000\r\n\r\n", Ok("")),
            ("A\r\n0123456789\r\n0\r\n\r\n", Ok("0123456789")),
            ("a\r\n0123456789\r\n0\r\n\r\n", Ok("0123456789")),
            ("00000001\r\na\r\n1\r\nb\r\n0\r\n\r\n", Ok("ab")),
            ("0000000000000001\r\na\r\n0\r\n\r\n", Ok("a")),
            // Extensions.
            ("1;a\r\na\r\n0;b=c\r\n\r\n", Ok("a")),
            ("1;a=\"x;\\\"\\\\\"\r\na\r\n0\r\n\r\n", Ok("a")),
            ("1 ; a = b ;c\r\na\r\n0\r\n\r\n", Ok("a")),
            ("1;\r\na\r\n0\r\n\r\n", BAD),
            ("1;a=\r\na\r\n0\r\n\r\n", BAD),
            ("1;a=b c\r\na\r\n0\r\n\r\n", BAD),
            ("1;a=\"b\r\na\r\n0\r\n\r\n", BAD),
            ("1;a=\"b\\\r\na\r\n0\r\n\r\n", BAD),
            ("1;a=\"b\nc\"\r\na\r\n0\r\n\r\n", BAD),
            ("1;a\nb\r\na\r\n0\r\n\r\n", BAD),
            ("1;a\rb\r\na\r\n0\r\n\r\n", BAD),
            ("1;a\0\r\na\r\n0\r\n\r\n", BAD),
            ("1;a=b \r\na\r\n0\r\n\r\n", BAD),
            ("1 a\r\na\r\n0\r\n\r\n", BAD),
            // Sizes.
            ("\r\n", BAD),
            (";a\r\n", BAD),
            (" 1\r\na\r\n0\r\n\r\n", BAD),
            ("1 \r\na\r\n0\r\n\r\n", BAD),
            ("1\t\r\na\r\n0\r\n\r\n", BAD),
            ("+1\r\na\r\n0\r\n\r\n", BAD),
            ("-1\r\na\r\n0\r\n\r\n", BAD),
            ("0x1\r\na\r\n0\r\n\r\n", BAD),
            ("1_0\r\n", BAD),
            ("g\r\n", BAD),
            ("1,\r\n", BAD),
            ("00000000000000001\r\na\r\n0\r\n\r\n", BAD),
            ("10000000000000001\r\na\r\n0\r\n\r\n", BAD),
            ("ffffffffffffffff\r\n", Err(413)),
            ("65\r\n", Err(413)),
            ("32\r\n01234567890123456789012345678901234567890123456789\r\n33\r\n", Err(413)),
            // Line ends.
            ("1\na\r\n0\r\n\r\n", BAD),
            ("1\r\na\n0\r\n\r\n", BAD),
            ("1\r\na\r\n0\n\r\n", BAD),
            ("1\r\na\r\n0\r\n\n", BAD),
            ("1\r\r\na\r\n0\r\n\r\n", BAD),
            ("1\r\na\r0\r\n\r\n", BAD),
            ("1\r\nab\r\n0\r\n\r\n", BAD),
            ("1\r\nab\n0\r\n\r\n", BAD),
            ("1\r\na\n\n0\r\n\r\n", BAD),
            ("1\r\na0\r\n\r\n", BAD),
            ("1\r\na\r\n\r\n0\r\n\r\n", BAD),
            ("0\r\n\rX", BAD),
            // Trailers.
            ("0\r\nA: b\r\nC:\r\n\r\n", Ok("")),
            ("0\r\nContent-Length: 99\r\n\r\n", Ok("")),
            ("0\r\nA : b\r\n\r\n", BAD),
            ("0\r\n A: b\r\n\r\n", BAD),
            ("0\r\nA: b\r\n c\r\n\r\n", BAD),
            ("0\r\nA\r\n\r\n", BAD),
            ("0\r\n: b\r\n\r\n", BAD),
            ("0\r\nA: b\n\r\n", BAD),
            ("0\r\nA: \0\r\n\r\n", BAD),
            ("0\r\nGET / HTTP/1.1\r\n\r\n", BAD),
        ] {
            for piece in [1, 2, 3, 7, wire.len()] {
                let got = decode(Framing::Chunked, wire.as_bytes(), piece);
                match (&got, expected) {
                    (Ok(Some((body, consumed))), Ok(text)) => {
                        assert_eq!((body.as_slice(), *consumed), (text.as_bytes(), wire.len()), "{wire:?}");
                    }
                    (Err(refusal), Err(status)) => assert_eq!(refusal.shape().status, status, "{wire:?}"),
                    _ => panic!("{wire:?} in pieces of {piece}: {got:?}, expected {expected:?}"),
                }
            }
        }
    }

    #[test]
    fn extensions_and_trailers_are_bounded_over_the_whole_body() {
        let decode = |wire: String| decode(Framing::Chunked, wire.as_bytes(), 5).map(|done| done.expect("whole").0);
        let extended = |chunks| "1;abcd\r\na\r\n".repeat(chunks) + "0\r\n\r\n";
        assert_eq!(decode(extended(8)), Ok(b"a".repeat(8)));
        assert_eq!(decode(extended(9)), Err(Refusal::HeadTooLarge));
        let trailed = |value: usize| format!("0\r\nA:{}\r\n\r\n", "v".repeat(value));
        assert_eq!(decode(trailed(36)), Ok(Vec::new()));
        assert_eq!(decode(trailed(37)), Err(Refusal::HeadTooLarge));
    }

    #[test]
    fn a_length_takes_exactly_so_many_bytes() {
        for piece in [1, 2, 9] {
            assert_eq!(decode(Framing::Length(5), b"helloGET /", piece), Ok(Some((b"hello".to_vec(), 5))));
        }
        assert_eq!(decode(Framing::Length(5), b"hell", 1), Ok(None));
    }

    #[test]
    fn a_length_past_the_limit_is_refused_before_the_body() {
        assert_eq!(BodyReader::new(Framing::Length(101), &small()).map(|_| ()), Err(Refusal::TooLarge));
        assert_eq!(BodyReader::new(Framing::Length(u64::MAX), &small()).map(|_| ()), Err(Refusal::TooLarge));
        assert!(BodyReader::new(Framing::Length(100), &small()).is_ok());
    }

    #[test]
    fn no_body_is_done_without_a_byte() {
        for framing in [Framing::None, Framing::Length(0)] {
            let mut reader = BodyReader::new(framing, &small()).expect("no body");
            let mut body = Vec::new();
            assert_eq!(reader.read(b"", &mut body), Ok(Progress { consumed: 0, done: true }));
            assert_eq!(reader.read(b"GET", &mut body), Ok(Progress { consumed: 0, done: true }));
        }
    }

    proptest! {
        #[test]
        fn what_is_encoded_decodes_to_itself(chunks in prop::collection::vec(prop::collection::vec(any::<u8>(), 1..20), 0..5), piece in 1usize..40) {
            let mut wire = Vec::new();
            for chunk in &chunks {
                wire.extend_from_slice(&chunk_head(chunk.len()));
                wire.extend_from_slice(chunk);
                wire.extend_from_slice(CHUNK_END);
            }
            wire.extend_from_slice(LAST_CHUNK);
            let length = wire.len();
            wire.extend_from_slice(b"GET / HTTP/1.1\r\n");
            prop_assert_eq!(decode(Framing::Chunked, &wire, piece), Ok(Some((chunks.concat(), length))));
        }

        #[test]
        fn any_bytes_in_any_fragmentation_get_one_answer(wire in "[0-9a-f;=\" \r\nA:\\\\]{0,40}(0\r\n\r\n)?", piece in 1usize..10) {
            let whole = decode(Framing::Chunked, wire.as_bytes(), wire.len().max(1));
            prop_assert_eq!(decode(Framing::Chunked, wire.as_bytes(), piece), whole);
        }

        #[test]
        fn no_bytes_decode_to_more_than_the_limit(wire in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(Some((body, _))) = decode(Framing::Chunked, &wire, 300) {
                prop_assert!(body.len() <= 100);
            }
        }
    }
}
