//! HTTP/1.1 messages off the wire, one byte at a time, exact about where each part begins and ends.
//!
//! Never lenient: what a strict client would refuse is a panic here, so that a test fails on it.

use std::fmt;

/// A message's head.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Head {
    /// The request or status line, without its line end.
    pub start: String,
    /// The fields in order, names as sent.
    pub fields: Vec<(String, String)>,
}

impl Head {
    fn parse(bytes: &[u8]) -> Self {
        let text = std::str::from_utf8(bytes).expect("a head is UTF-8");
        let mut lines = text.strip_suffix("\r\n\r\n").expect("a head ends with an empty line").split("\r\n");
        let start = lines.next().expect("a head has a first line").to_owned();
        let fields = lines
            .map(|line| {
                assert!(!line.contains(['\r', '\n', '\0']), "a control character in the field {line:?}");
                let (name, value) = line.split_once(':').unwrap_or_else(|| panic!("no colon in the field {line:?}"));
                (name.to_owned(), value.trim_matches([' ', '\t']).to_owned())
            })
            .collect();
        Self { start, fields }
    }

    /// A response's status code.
    pub fn status(&self) -> u16 {
        let code = self.start.split(' ').nth(1).and_then(|code| code.parse().ok());
        code.unwrap_or_else(|| panic!("no status code in {:?}", self.start))
    }

    /// A request's method.
    pub fn method(&self) -> &str {
        self.start.split(' ').next().unwrap_or_default()
    }

    /// The values of a field, in order; names are compared without case.
    pub fn all<'h>(&'h self, name: &'h str) -> impl Iterator<Item = &'h str> {
        self.fields.iter().filter(move |(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str())
    }

    /// The one value of a field; two are a panic.
    pub fn field<'h>(&'h self, name: &'h str) -> Option<&'h str> {
        let mut values = self.all(name);
        let first = values.next();
        assert!(values.next().is_none(), "{name} was sent twice in {self}");
        first
    }
}

impl fmt::Display for Head {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{}", self.start)?;
        self.fields.iter().try_for_each(|(name, value)| writeln!(f, "{name}: {value}"))
    }
}

/// What one byte completed.
#[derive(Debug, PartialEq, Eq)]
pub enum Piece {
    /// The head is whole.
    Head(Head),
    /// One byte of the body, its framing taken off.
    Body(u8),
}

/// Where in a message the reader stands.
#[derive(Debug)]
enum At {
    Head(Vec<u8>),
    Length(u64),
    ChunkSize(Vec<u8>),
    Chunk(u64),
    /// The line end behind a chunk; how much of it was seen.
    ChunkEnd(Vec<u8>),
    Trailer(Vec<u8>),
    UntilClose,
}

/// Which way the messages of a reader go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From a client.
    Requests,
    /// From a server, to requests of any method but HEAD.
    Responses,
    /// From a server, to a HEAD request: no body whatever the head says.
    HeadResponses,
}

/// Reads messages byte by byte.
#[derive(Debug)]
pub struct Reader {
    direction: Direction,
    at: At,
}

impl Reader {
    /// A reader before its first byte.
    pub fn new(direction: Direction) -> Self {
        Self { direction, at: At::Head(Vec::new()) }
    }

    /// Takes the next byte. Right after a message's last byte, and only then, `whole` is true.
    pub fn push(&mut self, byte: u8) -> Option<Piece> {
        match &mut self.at {
            At::Head(head) => {
                head.push(byte);
                if !head.ends_with(b"\r\n\r\n") {
                    return None;
                }
                let head = Head::parse(head);
                self.at = self.body_of(&head);
                Some(Piece::Head(head))
            }
            At::Length(left) => {
                *left -= 1;
                if *left == 0 {
                    self.at = At::Head(Vec::new());
                }
                Some(Piece::Body(byte))
            }
            At::UntilClose => Some(Piece::Body(byte)),
            At::ChunkSize(line) => {
                line.push(byte);
                let size = chunk_size(line)?;
                self.at = if size == 0 { At::Trailer(Vec::new()) } else { At::Chunk(size) };
                None
            }
            At::Chunk(left) => {
                *left -= 1;
                if *left == 0 {
                    self.at = At::ChunkEnd(Vec::new());
                }
                Some(Piece::Body(byte))
            }
            At::ChunkEnd(line) => {
                line.push(byte);
                assert!(b"\r\n".starts_with(line), "a chunk is followed by {line:?}");
                if line.len() == 2 {
                    self.at = At::ChunkSize(Vec::new());
                }
                None
            }
            At::Trailer(line) => {
                line.push(byte);
                if line.as_slice() == b"\r\n" {
                    self.at = At::Head(Vec::new());
                } else if line.ends_with(b"\r\n") {
                    line.clear();
                }
                None
            }
        }
    }

    /// Whether the reader stands between two messages.
    pub fn whole(&self) -> bool {
        matches!(&self.at, At::Head(head) if head.is_empty())
    }

    /// Whether the peer's FIN is the proper end of the message under way.
    pub fn ends_with_connection(&self) -> bool {
        matches!(self.at, At::UntilClose)
    }

    fn body_of(&self, head: &Head) -> At {
        let none = At::Head(Vec::new());
        if self.direction == Direction::HeadResponses {
            return none;
        }
        let bodiless = self.direction == Direction::Responses && (matches!(head.status(), 204 | 304) || head.status() / 100 == 1);
        let length = head.field("Content-Length");
        let coding = head.field("Transfer-Encoding");
        assert!(length.is_none() || coding.is_none(), "two framings in {head}");
        match (length, coding) {
            (None, Some(_)) if bodiless => panic!("a coding where there is no body: {head}"),
            _ if bodiless => none,
            (Some(length), _) => match length.parse().unwrap_or_else(|_| panic!("the length {length:?}")) {
                0 => none,
                length => At::Length(length),
            },
            (None, Some(coding)) => {
                assert!(coding.eq_ignore_ascii_case("chunked"), "the coding {coding:?}");
                At::ChunkSize(Vec::new())
            }
            (None, None) if self.direction == Direction::Requests => none,
            (None, None) => At::UntilClose,
        }
    }
}

/// The size in a chunk's first line, once the line is whole.
fn chunk_size(line: &[u8]) -> Option<u64> {
    let line = line.strip_suffix(b"\r\n")?;
    let text = std::str::from_utf8(line).expect("a chunk size is ASCII");
    assert!(text.bytes().all(|byte| byte.is_ascii_hexdigit()), "the chunk size {text:?}");
    Some(u64::from_str_radix(text, 16).unwrap_or_else(|_| panic!("the chunk size {text:?}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Heads and bodies, told apart.
    fn read(bytes: &str) -> (Vec<Head>, String, Reader) {
        let mut reader = Reader::new(Direction::Responses);
        let (mut heads, mut body) = (Vec::new(), Vec::new());
        for byte in bytes.bytes() {
            match reader.push(byte) {
                Some(Piece::Head(head)) => heads.push(head),
                Some(Piece::Body(byte)) => body.push(byte),
                None => {}
            }
        }
        (heads, String::from_utf8(body).expect("text"), reader)
    }

    #[test]
    fn chunks_are_joined_and_the_end_is_noticed() {
        let (heads, body, reader) = read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2\r\nde\r\n0\r\n\r\n");
        assert_eq!((heads[0].status(), body.as_str()), (200, "abcde"));
        assert!(reader.whole());
    }

    #[test]
    fn a_cut_between_chunks_is_no_end() {
        let (_, body, reader) = read("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n");
        assert_eq!(body, "abc");
        assert!(!reader.whole() && !reader.ends_with_connection());
    }

    #[test]
    fn messages_follow_each_other() {
        let (heads, body, reader) = read(concat!(
            "HTTP/1.1 204 No Content\r\n\r\n",
            "HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok",
        ));
        assert_eq!(heads.iter().map(Head::status).collect::<Vec<_>>(), [204, 202, 200]);
        assert_eq!(body, "ok");
        assert!(reader.whole());
    }

    #[test]
    #[should_panic(expected = "two framings")]
    fn two_framings_are_refused() {
        read("HTTP/1.1 200 OK\r\nContent-Length: 1\r\nTransfer-Encoding: chunked\r\n\r\n");
    }
}
