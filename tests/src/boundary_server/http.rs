//! HTTP/1.1 requests off a socket, and bytes onto it, with a bound on everything that a peer can make it wait for or hold.
//!
//! Never judges what a request asks for.

use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::time::{Duration, Instant};

use socket2::SockRef;

use super::reply::Refusal;

/// Bytes of a head, and of what may come behind an open stream: more than any client sends.
const HEAD_LIMIT: usize = 16 << 10;

/// Bytes of a body: a call's arguments are small here.
pub(super) const BODY_LIMIT: usize = 256 << 10;

/// How long a request may take from its first byte to its last: long for any client that is alive.
const REQUEST_TIME: Duration = Duration::from_secs(10);

/// How long a connection may stay without a request.
const IDLE_TIME: Duration = Duration::from_secs(60);

/// How often a wait looks up whether it is still wanted.
pub(super) const LOOK_UP: Duration = Duration::from_millis(30);

/// How long a peer may leave bytes unread before it is given up.
const STALL_TIME: Duration = Duration::from_secs(60);

/// Bytes that the kernel may hold for a reader: few, so that a slow one is noticed soon.
const SEND_BUFFER: usize = 32 << 10;

/// A body, if it was read.
#[derive(Debug)]
pub(super) enum Body {
    Whole(Vec<u8>),
    TooLarge,
}

/// A request.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    /// Whether it is of HTTP/1.0, which knows no chunks.
    pub(super) old: bool,
    fields: Vec<(String, String)>,
    pub(super) body: Body,
}

impl Request {
    /// The values of a field, in order.
    pub(super) fn all(&self, name: &str) -> Vec<&str> {
        all(&self.fields, name)
    }

    /// The values of a list field, taken apart.
    pub(super) fn list(&self, name: &str) -> Vec<String> {
        self.all(name).iter().flat_map(|value| value.split(',')).map(|item| item.trim().to_ascii_lowercase()).collect()
    }

    /// Whether the connection ends behind the answer.
    pub(super) fn last(&self) -> bool {
        self.old || matches!(self.body, Body::TooLarge) || self.list("Connection").iter().any(|option| option == "close")
    }
}

fn all<'f>(fields: &'f [(String, String)], name: &str) -> Vec<&'f str> {
    fields.iter().filter(|(field, _)| field.eq_ignore_ascii_case(name)).map(|(_, value)| value.as_str()).collect()
}

/// Why no request was read.
#[derive(Debug)]
pub(super) enum Unread {
    /// The peer left, took too long, or is not wanted any more.
    Gone,
    /// It sent what is no request.
    Refused(Refusal),
}

/// A client's connection.
#[derive(Debug)]
pub(super) struct Peer {
    socket: TcpStream,
    unread: Vec<u8>,
}

impl Peer {
    pub(super) fn new(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(LOOK_UP))?;
        socket.set_write_timeout(Some(LOOK_UP))?;
        SockRef::from(&socket).set_send_buffer_size(SEND_BUFFER)?;
        Ok(Self { socket, unread: Vec::new() })
    }

    /// Reads what is there; false where the peer ended.
    fn read(&mut self) -> io::Result<bool> {
        let mut bytes = [0; 4096];
        match self.socket.read(&mut bytes) {
            Ok(0) => Ok(false),
            Ok(count) => {
                self.unread.extend_from_slice(&bytes[..count]);
                Ok(true)
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                Ok(true)
            }
            Err(error) => Err(error),
        }
    }

    /// Whether the peer is still there, as far as one can tell without waiting. What it sent is kept for the next request.
    pub(super) fn is_there(&mut self) -> bool {
        if self.unread.len() >= HEAD_LIMIT {
            return true;
        }
        let there = self.socket.set_nonblocking(true).and_then(|()| self.read());
        self.socket.set_nonblocking(false).is_ok() && there.is_ok_and(|there| there)
    }

    /// Reads on until `done` finds what it looks for.
    fn until<T>(&mut self, over: &dyn Fn() -> bool, mut done: impl FnMut(&[u8]) -> Option<T>) -> Result<T, Unread> {
        let mut began = Instant::now();
        loop {
            if let Some(found) = done(&self.unread) {
                return Ok(found);
            }
            let was_idle = self.unread.is_empty();
            if over() || !self.read().is_ok_and(|there| there) {
                return Err(Unread::Gone);
            }
            if was_idle && !self.unread.is_empty() {
                began = Instant::now();
            }
            if began.elapsed() > if was_idle { IDLE_TIME } else { REQUEST_TIME } {
                return Err(Unread::Gone);
            }
        }
    }

    /// Reads a request.
    pub(super) fn request(&mut self, over: &dyn Fn() -> bool) -> Result<Request, Unread> {
        let bad = |why| Unread::Refused(Refusal::BadRequest(why));
        let end = self.until(over, |bytes| match bytes.windows(4).position(|four| four == b"\r\n\r\n") {
            None if bytes.len() > HEAD_LIMIT => Some(usize::MAX),
            found => found,
        })?;
        if end > HEAD_LIMIT {
            return Err(Unread::Refused(Refusal::HeadTooLarge));
        }
        let head: Vec<u8> = self.unread.drain(..end + 4).collect();
        let head = String::from_utf8(head).map_err(|_| bad("the head is not text"))?;
        let mut lines = head.trim_end_matches("\r\n").split("\r\n");
        let start: Vec<&str> = lines.next().unwrap_or_default().split(' ').collect();
        let [method, target, version @ ("HTTP/1.1" | "HTTP/1.0")] = start[..] else { return Err(bad("no HTTP request")) };
        let mut fields = Vec::new();
        for line in lines {
            let Some((name, value)) = line.split_once(':') else { return Err(bad("a field without a colon")) };
            if name.is_empty() || name.contains([' ', '\t']) || value.contains(['\0', '\r', '\n']) {
                return Err(bad("a malformed field"));
            }
            fields.push((name.to_owned(), value.trim_matches([' ', '\t']).to_owned()));
        }
        let body = self.body(over, &fields)?;
        Ok(Request { method: method.to_owned(), target: target.to_owned(), old: version == "HTTP/1.0", fields, body })
    }

    fn body(&mut self, over: &dyn Fn() -> bool, fields: &[(String, String)]) -> Result<Body, Unread> {
        let bad = |why| Unread::Refused(Refusal::BadRequest(why));
        match (all(fields, "Content-Length").as_slice(), all(fields, "Transfer-Encoding").as_slice()) {
            ([], []) => Ok(Body::Whole(Vec::new())),
            ([length], []) => {
                let digits = !length.is_empty() && length.bytes().all(|byte| byte.is_ascii_digit());
                let length = length.parse::<usize>().ok().filter(|_| digits).ok_or_else(|| bad("a malformed length"))?;
                if length > BODY_LIMIT {
                    return Ok(Body::TooLarge);
                }
                self.until(over, |bytes| (bytes.len() >= length).then_some(()))?;
                Ok(Body::Whole(self.unread.drain(..length).collect()))
            }
            ([], [coding]) if coding.eq_ignore_ascii_case("chunked") => self.chunks(over),
            _ => Err(bad("a body of unclear length")),
        }
    }

    fn chunks(&mut self, over: &dyn Fn() -> bool) -> Result<Body, Unread> {
        let bad = || Unread::Refused(Refusal::BadRequest("a malformed chunk"));
        let mut body = Vec::new();
        loop {
            let line = self.line(over)?;
            let size = line.split(';').next().unwrap_or_default().trim();
            let size = usize::from_str_radix(size, 16).map_err(|_| bad())?;
            if size == 0 {
                while !self.line(over)?.is_empty() {}
                return Ok(Body::Whole(body));
            }
            if body.len().saturating_add(size) > BODY_LIMIT {
                return Ok(Body::TooLarge);
            }
            self.until(over, |bytes| (bytes.len() >= size + 2).then_some(()))?;
            body.extend(self.unread.drain(..size));
            if self.unread.drain(..2).ne(*b"\r\n") {
                return Err(bad());
            }
        }
    }

    /// A line of a body's framing.
    fn line(&mut self, over: &dyn Fn() -> bool) -> Result<String, Unread> {
        let end = self.until(over, |bytes| match bytes.windows(2).position(|two| two == b"\r\n") {
            None if bytes.len() > HEAD_LIMIT => Some(usize::MAX),
            found => found,
        })?;
        if end > HEAD_LIMIT {
            return Err(Unread::Refused(Refusal::BadRequest("an endless line")));
        }
        let line: Vec<u8> = self.unread.drain(..end + 2).collect();
        Ok(String::from_utf8_lossy(&line[..end]).into_owned())
    }

    /// Writes all of it, unless the peer leaves, stalls, or nobody wants it any more; then the connection is reset.
    pub(super) fn write(&mut self, bytes: &[u8], given_up: &dyn Fn() -> bool) -> Option<()> {
        let (mut left, mut moved) = (bytes, Instant::now());
        while !left.is_empty() {
            match self.socket.write(left) {
                Ok(0) => return None,
                Ok(count) => {
                    left = &left[count..];
                    moved = Instant::now();
                }
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                    if moved.elapsed() > STALL_TIME || given_up() {
                        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
                        return None;
                    }
                }
                Err(_) => return None,
            }
        }
        Some(())
    }

    /// Ends the connection so that what was written last is not lost to a reset over unread bytes.
    pub(super) fn farewell(mut self) {
        let until = Instant::now() + Duration::from_secs(1);
        if self.socket.shutdown(std::net::Shutdown::Write).is_ok() {
            while Instant::now() < until && self.read().is_ok_and(|there| there) {
                self.unread.clear();
            }
        }
    }
}
