//! The oracle's own reader of HTTP answers: strict, incremental, and none of the kernel's code.
//!
//! Never guesses: what a client could read in two ways is an error.

/// A response head.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    /// Its status.
    pub(crate) status: u16,
    /// Its fields, as they came.
    text: String,
    /// How its body ends.
    pub(crate) body: Framing,
}

/// How a body ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    /// There is none.
    Empty,
    /// After this many bytes.
    Length(usize),
    /// With a last chunk.
    Chunked,
    /// With the connection.
    UntilClose,
}

impl Head {
    /// The value of a field that stands there at most once.
    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.text.split("\r\n").find_map(|line| {
            let (field, value) = line.split_once(':')?;
            field.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    fn parse(text: &str, bodiless: bool) -> Result<Self, String> {
        let (status_line, fields) = text.split_once("\r\n").ok_or("a head without a line")?;
        let mut words = status_line.splitn(3, ' ');
        let version = words.next().unwrap_or_default();
        if version != "HTTP/1.1" && version != "HTTP/1.0" {
            return Err(format!("status line {status_line:?}"));
        }
        let status = words.next().and_then(|status| status.parse().ok()).ok_or_else(|| format!("status line {status_line:?}"))?;
        let mut head = Self { status, text: fields.to_owned(), body: Framing::Empty };
        let mut names: Vec<&str> = Vec::new();
        for line in fields.split("\r\n").filter(|line| !line.is_empty()) {
            let (name, value) = line.split_once(':').ok_or_else(|| format!("field {line:?}"))?;
            if name.is_empty() || name.contains(char::is_whitespace) || value.contains(['\n', '\r', '\0']) {
                return Err(format!("field {line:?}"));
            }
            if names.iter().any(|one| one.eq_ignore_ascii_case(name)) {
                return Err(format!("field {name:?} twice"));
            }
            names.push(name);
        }
        if head.field("cache-control") != Some("no-store") && status >= 200 {
            return Err(format!("a {status} that may be cached: {text:?}"));
        }
        head.body = head.framing(bodiless)?;
        Ok(head)
    }

    fn framing(&self, bodiless: bool) -> Result<Framing, String> {
        let length = self.field("content-length").map(|length| length.parse::<usize>().map_err(|_| format!("length {length:?}")));
        let length = length.transpose()?;
        let chunked = match self.field("transfer-encoding") {
            None => false,
            Some("chunked") => true,
            Some(other) => return Err(format!("transfer-encoding {other:?}")),
        };
        if chunked && length.is_some() {
            return Err("both lengths on an answer".into());
        }
        if self.status < 200 || self.status == 204 {
            if chunked || length.is_some() {
                return Err(format!("a {} with a length", self.status));
            }
            return Ok(Framing::Empty);
        }
        Ok(match length {
            _ if bodiless => Framing::Empty,
            _ if chunked => Framing::Chunked,
            Some(length) => Framing::Length(length),
            None => Framing::UntilClose,
        })
    }
}

/// A piece of an answer.
#[derive(Debug)]
pub(crate) enum Piece<'a> {
    /// A head; 1xx too, which has nothing after it.
    Head(Head),
    /// Bytes of the body.
    Body(&'a [u8]),
    /// The answer is complete.
    End,
}

/// Where the reader stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Head,
    Length(usize),
    ChunkSize,
    Chunk(usize),
    ChunkEnd,
    LastChunkEnd,
    UntilClose,
    Ended,
}

/// Reads the answers of one connection.
#[derive(Debug)]
pub(crate) struct Reader {
    state: State,
    line: Vec<u8>,
}

impl Default for Reader {
    fn default() -> Self {
        Self { state: State::Head, line: Vec::new() }
    }
}

/// The longest head or chunk line that the kernel could have reason to send.
const LONGEST_HEAD: usize = 4096;

impl Reader {
    /// The next piece; takes it off the front of `input`. `bodiless`: the request was a HEAD.
    pub(crate) fn next<'b>(&mut self, input: &mut &'b [u8], bodiless: bool) -> Result<Option<Piece<'b>>, String> {
        loop {
            match self.state {
                State::Ended => {
                    self.state = State::Head;
                    return Ok(Some(Piece::End));
                }
                _ if input.is_empty() => return Ok(None),
                State::Head => {
                    if !self.take_line(input, b"\r\n\r\n")? {
                        return Ok(None);
                    }
                    let text = String::from_utf8(std::mem::take(&mut self.line)).map_err(|_| "a head that is not ASCII")?;
                    let head = Head::parse(&text, bodiless)?;
                    self.state = match head.body {
                        _ if head.status < 200 => State::Head,
                        Framing::Empty | Framing::Length(0) => State::Ended,
                        Framing::Length(length) => State::Length(length),
                        Framing::Chunked => State::ChunkSize,
                        Framing::UntilClose => State::UntilClose,
                    };
                    return Ok(Some(Piece::Head(head)));
                }
                State::Length(left) => {
                    let taken = take(input, left);
                    self.state = if taken.len() == left { State::Ended } else { State::Length(left - taken.len()) };
                    return Ok(Some(Piece::Body(taken)));
                }
                State::ChunkSize => {
                    if !self.take_line(input, b"\r\n")? {
                        return Ok(None);
                    }
                    let line = std::mem::take(&mut self.line);
                    let size = std::str::from_utf8(&line[..line.len() - 2]).ok().filter(|size| !size.starts_with('+'));
                    let size = size.and_then(|size| usize::from_str_radix(size, 16).ok());
                    self.state = match size.ok_or_else(|| format!("chunk size {:?}", String::from_utf8_lossy(&line)))? {
                        0 => State::LastChunkEnd,
                        size => State::Chunk(size),
                    };
                }
                State::Chunk(left) => {
                    let taken = take(input, left);
                    self.state = if taken.len() == left { State::ChunkEnd } else { State::Chunk(left - taken.len()) };
                    return Ok(Some(Piece::Body(taken)));
                }
                State::ChunkEnd | State::LastChunkEnd => {
                    if !self.take_line(input, b"\r\n")? {
                        return Ok(None);
                    }
                    if self.line.len() != 2 {
                        return Err("bytes behind a chunk".into());
                    }
                    self.line.clear();
                    self.state = if self.state == State::ChunkEnd { State::ChunkSize } else { State::Ended };
                }
                State::UntilClose => return Ok(Some(Piece::Body(std::mem::take(input)))),
            }
        }
    }

    /// Whether the connection's end ends the answer under way as it should.
    pub(crate) fn ends_with_connection(&self) -> bool {
        self.state == State::UntilClose
    }

    /// Whether it stands between two answers.
    pub(crate) fn between(&self) -> bool {
        self.state == State::Head && self.line.is_empty()
    }

    /// Takes bytes up to and including `end` into `line`; false when they are not all there yet.
    fn take_line(&mut self, input: &mut &[u8], end: &[u8]) -> Result<bool, String> {
        while let Some((&byte, rest)) = input.split_first() {
            *input = rest;
            self.line.push(byte);
            if byte == b'\n' {
                if !self.line.ends_with(b"\r\n") {
                    return Err("a bare LF in a head".into());
                }
                if self.line.ends_with(end) {
                    return Ok(true);
                }
            }
            if self.line.len() > LONGEST_HEAD {
                return Err("a head that never ends".into());
            }
        }
        Ok(false)
    }
}

fn take<'b>(input: &mut &'b [u8], most: usize) -> &'b [u8] {
    let (taken, rest) = input.split_at(most.min(input.len()));
    *input = rest;
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a reader makes of bytes that come in pieces of `grain`.
    fn read(bytes: &[u8], grain: usize) -> Result<String, String> {
        let mut reader = Reader::default();
        let mut told = String::new();
        for piece in bytes.chunks(grain) {
            let mut input = piece;
            while let Some(piece) = reader.next(&mut input, false)? {
                match piece {
                    Piece::Head(head) => told += &format!("<{}>", head.status),
                    Piece::Body(body) => told += &String::from_utf8_lossy(body),
                    Piece::End => told += ".",
                }
            }
        }
        Ok(told)
    }

    #[test]
    fn answers_read_the_same_in_any_pieces() {
        let bytes =
            b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n\
            3\r\nabc\r\n1\r\nd\r\n0\r\n\r\nHTTP/1.1 204 No Content\r\nCache-Control: no-store\r\n\r\n\
            HTTP/1.1 400 Bad Request\r\ncache-control: no-store\r\nContent-Length: 2\r\n\r\nhi";
        for grain in [1, 2, 3, 7, 1000] {
            assert_eq!(read(bytes, grain).as_deref(), Ok("<100><200>abcd.<204>.<400>hi."));
        }
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_an_error() {
        for bytes in [
            "HTTP/1.1 200 OK\r\n\r\n",
            "HTTP/1.1 200 OK\nCache-Control: no-store\r\n\r\n",
            "HTTP/1.1 204 OK\r\nCache-Control: no-store\r\nContent-Length: 0\r\n\r\n",
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 0\r\nTransfer-Encoding: chunked\r\n\r\n",
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\n",
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n+1\r\na\r\n",
            "HTTP/1.1 200 OK\r\nCache-Control: no-store\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naa\r\n",
        ] {
            assert!(read(bytes.as_bytes(), 5).is_err(), "{bytes:?}");
        }
    }
}
