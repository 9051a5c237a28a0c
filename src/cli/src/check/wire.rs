//! Raw exchanges with the target: exact bytes out, exact heads and events in, how it ended, and all of it noted.
//!
//! Never retries, reconnects or interprets, and never waits without a bound: for a wait, for a case, and for the requests of a run.

use std::borrow::Cow;
use std::cell::Cell;
use std::fmt;
use std::io::{self, ErrorKind, Read, Write};
use std::net::TcpStream;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rejoin_client::Wire;
use rejoin_proto::client::Ended;
use rejoin_proto::http::{AnswerHead, AnswerReader};
use rejoin_proto::limits::Limits;
use socket2::{Domain, SockRef, Socket, Type};

use super::request::Request;
use super::stream::{Body, Stream};
use super::transcript::Transcript;
use crate::target::Target;

/// Bytes of an answer that is read as a whole. Reason: a list of tools is large, and nothing asked for is larger.
const ANSWER: usize = 8 << 20;
/// Bytes of a head.
const HEAD: usize = 64 << 10;
/// Receive buffer of a connection that is not read from, in bytes. Reason: the server is to notice soon.
const NARROW: usize = 4 << 10;
/// How long a connection may take to be made.
const CONNECT: Duration = Duration::from_secs(5);

/// Why a case does not go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Trouble {
    /// No connection could be made.
    Unreachable(String),
    /// What was asked got no answer; says what was asked.
    NoAnswer(String),
    /// What came is no HTTP/1.1 answer.
    Unreadable(String),
    /// The case's time is over.
    TimeUp,
    /// The run's requests are used up.
    RequestsUp,
    /// A step before the one that matters went wrong.
    Cannot(String),
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreachable(why) => write!(f, "no connection could be made: {why}"),
            Self::NoAnswer(what) => write!(f, "no answer came to {what}"),
            Self::Unreadable(why) => write!(f, "what came is no answer of HTTP/1.1: {why}"),
            Self::TimeUp => f.write_str("the case's time was over (--time-limit)"),
            Self::RequestsUp => f.write_str("the run's requests were used up (--max-requests)"),
            Self::Cannot(why) => f.write_str(why),
        }
    }
}

/// What all connections of a run share.
#[derive(Debug)]
pub(crate) struct Io {
    /// The server.
    pub(crate) target: Target,
    /// What is noted.
    pub(crate) transcript: Transcript,
    /// How long something that must come is waited for.
    pub(crate) patience: Duration,
    deadline: Cell<Instant>,
    requests_left: Cell<u32>,
    opened: Cell<usize>,
}

impl Io {
    /// For a run with this patience and these requests.
    pub(crate) fn new(target: Target, patience: Duration, requests: u32) -> Rc<Self> {
        Rc::new(Self {
            target,
            transcript: Transcript::default(),
            patience,
            deadline: Cell::new(Instant::now()),
            requests_left: Cell::new(requests),
            opened: Cell::new(0),
        })
    }

    /// A case begins, and has so long.
    pub(crate) fn begin(&self, limit: Duration) {
        self.transcript.restart();
        self.opened.set(0);
        self.deadline.set(Instant::now() + limit);
    }

    /// When the case's time is over.
    pub(crate) fn deadline(&self) -> Instant {
        self.deadline.get()
    }

    /// When something that must come is too late.
    pub(crate) fn due(&self) -> Instant {
        Instant::now() + self.patience
    }

    /// Lets time pass.
    pub(crate) fn pause(&self, length: Duration) -> Result<(), Trouble> {
        let left = self.deadline.get().saturating_duration_since(Instant::now());
        std::thread::sleep(length.min(left));
        if length >= left { Err(Trouble::TimeUp) } else { Ok(()) }
    }

    fn take_request(&self) -> Result<(), Trouble> {
        let left = self.requests_left.get().checked_sub(1).ok_or(Trouble::RequestsUp)?;
        self.requests_left.set(left);
        Ok(())
    }

    /// Sends a request on a connection of its own, and reads the head of what comes, and the body unless it is a stream.
    pub(crate) fn ask(self: &Rc<Self>, request: &Request) -> Result<Reply, Trouble> {
        let mut line = Line::open(self, false)?;
        line.send(request)?;
        line.reply()
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The peer said that nothing more comes.
    Fin,
    /// The peer reset it, or it failed.
    Reset,
}

/// What a wait for bytes brought.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fill {
    Bytes,
    Ended(End),
    Nothing,
}

/// A whole answer.
#[derive(Clone)]
pub(crate) struct Answer {
    /// Its head.
    pub(crate) head: AnswerHead,
    /// Its body.
    pub(crate) body: Vec<u8>,
}

impl Answer {
    /// Its status.
    pub(crate) fn status(&self) -> u16 {
        self.head.status()
    }

    /// Its body as JSON; null where it is none.
    pub(crate) fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).unwrap_or_default()
    }
}

/// What a request got.
pub(crate) enum Reply {
    /// An answer that is over.
    Whole(Answer),
    /// 200 and events.
    Stream(Box<Stream>),
}

impl Reply {
    /// Its status.
    pub(crate) fn status(&self) -> u16 {
        self.head().status()
    }

    /// Its head.
    pub(crate) fn head(&self) -> &AnswerHead {
        match self {
            Self::Whole(answer) => &answer.head,
            Self::Stream(stream) => &stream.head,
        }
    }

    /// In words.
    pub(crate) fn words(&self) -> String {
        match self {
            Self::Whole(answer) if answer.body.is_empty() => format!("{} without a body", answer.status()),
            Self::Whole(answer) => {
                let body = String::from_utf8_lossy(&answer.body);
                let short: String = body.chars().take(160).collect();
                let more = if short.len() < body.len() { "…" } else { "" };
                format!("{} {short}{more}", answer.status())
            }
            Self::Stream(_) => "200 and an event stream".to_owned(),
        }
    }
}

/// One connection.
#[derive(Debug)]
pub(crate) struct Line {
    io: Rc<Io>,
    number: usize,
    socket: TcpStream,
    wire: Wire,
    unread: Vec<u8>,
    ended: Option<End>,
}

impl Line {
    /// Connects; a narrow one takes in hardly anything that is not read.
    pub(crate) fn open(io: &Rc<Io>, narrow: bool) -> Result<Self, Trouble> {
        let lost = |error: io::Error| Trouble::Unreachable(error.to_string());
        let address = io.target.address;
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).map_err(lost)?;
        if narrow {
            socket.set_recv_buffer_size(NARROW).map_err(lost)?;
        }
        socket.connect_timeout(&address.into(), CONNECT).map_err(lost)?;
        socket.set_tcp_nodelay(true).map_err(lost)?;
        let number = io.opened.get() + 1;
        io.opened.set(number);
        let wire = Wire::new(&io.target.endpoint).map_err(lost)?;
        let mut line = Self { io: Rc::clone(io), number, socket: socket.into(), wire, unread: Vec::new(), ended: None };
        line.handshake()?;
        Ok(line)
    }

    fn handshake(&mut self) -> Result<(), Trouble> {
        let due = self.io.due();
        loop {
            self.flush_tls()?;
            if self.wire.is_ready() {
                return Ok(());
            }
            if matches!(self.fill(due)?, Fill::Ended(_) | Fill::Nothing) && !self.wire.is_ready() {
                return Err(Trouble::Unreachable("TLS could not begin".to_owned()));
            }
        }
    }

    fn flush_tls(&mut self) -> Result<(), Trouble> {
        let lost = |error: io::Error| Trouble::Unreachable(error.to_string());
        let pending = self.wire.pending().map_err(lost)?;
        self.socket.write_all(&pending).map_err(lost)
    }

    /// Notes something on this connection.
    pub(super) fn note(&self, direction: char, text: &str) {
        self.io.transcript.note(self.number, direction, text);
    }

    /// What the run shares.
    pub(super) fn io(&self) -> &Rc<Io> {
        &self.io
    }

    /// Sends a request.
    pub(crate) fn send(&mut self, request: &Request) -> Result<(), Trouble> {
        self.io.take_request()?;
        self.note('>', &request.shown());
        self.write(&request.bytes())
    }

    /// Sends the beginning of a request and leaves it at that.
    pub(crate) fn send_part(&mut self, request: &Request, bytes: usize) -> Result<(), Trouble> {
        self.io.take_request()?;
        self.note('>', &format!("(the first {bytes} bytes of)\n{}", request.shown()));
        let all = request.bytes();
        self.write(&all[..bytes.min(all.len())])
    }

    fn write(&mut self, bytes: &[u8]) -> Result<(), Trouble> {
        let sealed = self.wire.seal(Bytes::copy_from_slice(bytes)).map_err(|error| Trouble::Unreadable(error.to_string()))?;
        let patience = Some(self.io.patience.max(Duration::from_millis(1)));
        let sent = self.socket.set_write_timeout(patience).and_then(|()| self.socket.write_all(&sealed));
        if let Err(error) = sent {
            // A server may refuse by the head alone and close: its answer is still to be read.
            self.note('!', &format!("the request was not taken whole: {error}"));
        }
        Ok(())
    }

    /// Reads the answer to what was sent; a stream's head only.
    pub(crate) fn reply(mut self) -> Result<Reply, Trouble> {
        let head = self.head()?;
        if head.status() == 200 && head.content_is("text/event-stream") {
            return Ok(Reply::Stream(Box::new(Stream::new(self, head)?)));
        }
        self.rest_of_answer(head).map(Reply::Whole)
    }

    fn rest_of_answer(&mut self, head: AnswerHead) -> Result<Answer, Trouble> {
        let mut body = Body::new(&head, ANSWER)?;
        let due = self.io.due();
        let mut bytes = Vec::new();
        loop {
            let whole = body.read(&mut self.unread, &mut bytes)?;
            if whole {
                break;
            }
            match self.fill(due)? {
                Fill::Bytes => {}
                Fill::Ended(End::Fin) if body.ends_with_connection() => break,
                Fill::Ended(_) => return Err(Trouble::Unreadable("the connection ended within a body".to_owned())),
                Fill::Nothing => {
                    return Err(Trouble::NoAnswer("a request whose answer's head came (its body did not)".to_owned()));
                }
            }
        }
        if !bytes.is_empty() {
            self.note('<', &String::from_utf8_lossy(&bytes));
        }
        Ok(Answer { head, body: bytes })
    }

    fn head(&mut self) -> Result<AnswerHead, Trouble> {
        let due = self.io.due();
        let mut reader = AnswerReader::default();
        let mut raw = Vec::new();
        loop {
            let taken = reader.read(&self.unread, HEAD).map_err(|bad| Trouble::Unreadable(format!("{bad:?}")))?;
            match taken {
                Some((head, count)) => {
                    raw.extend(self.unread.drain(..count));
                    self.note('<', &String::from_utf8_lossy(&raw));
                    // RFC 9110, section 15.2: 1xx answers come before the final one.
                    if !matches!(head.status(), 100..=199) {
                        return Ok(head);
                    }
                    (reader, raw) = (AnswerReader::default(), Vec::new());
                    continue;
                }
                None => raw.append(&mut self.unread),
            }
            match self.fill(due)? {
                Fill::Bytes => {}
                Fill::Ended(how) => {
                    return Err(Trouble::NoAnswer(format!("a request: the connection ended ({how:?}) before a head")));
                }
                Fill::Nothing => return Err(Trouble::NoAnswer(format!("a request within {:?}", self.io.patience))),
            }
        }
    }

    /// Bytes that were received and not read.
    pub(super) fn unread(&mut self) -> &mut Vec<u8> {
        &mut self.unread
    }

    /// Waits for bytes, no longer than until then.
    pub(super) fn fill(&mut self, until: Instant) -> Result<Fill, Trouble> {
        if let Some(end) = self.ended {
            return Ok(Fill::Ended(end));
        }
        let deadline = self.io.deadline.get();
        let mut buffer = [0; 16 << 10];
        loop {
            let left = until.min(deadline).saturating_duration_since(Instant::now());
            if left.is_zero() {
                return if deadline <= Instant::now() { Err(Trouble::TimeUp) } else { Ok(Fill::Nothing) };
            }
            // A time-out of zero would be none.
            let read = self
                .socket
                .set_read_timeout(Some(left.max(Duration::from_millis(1))))
                .and_then(|()| self.socket.read(&mut buffer));
            let end = match read {
                Ok(0) if self.wire.fin() == Ended::Fin => End::Fin,
                Ok(0) => End::Reset,
                Ok(count) => match self.wire.open(Cow::Borrowed(&buffer[..count])) {
                    Ok(plain) => {
                        self.unread.extend_from_slice(&plain);
                        self.flush_tls()?;
                        return Ok(Fill::Bytes);
                    }
                    Err(error) => return Err(Trouble::Unreachable(error.to_string())),
                },
                Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut | ErrorKind::Interrupted) => {
                    continue;
                }
                Err(_) => End::Reset,
            };
            self.ended = Some(end);
            self.note('<', if end == End::Fin { "(FIN)" } else { "(reset)" });
            return Ok(Fill::Ended(end));
        }
    }

    /// Breaks the connection off without a farewell.
    pub(crate) fn cut(self) {
        // Where that is refused, closing with a FIN is still a cut.
        let _ = SockRef::from(&self.socket).set_linger(Some(Duration::ZERO));
        self.note('>', "(reset)");
    }
}

/// The kernel's limits for reading a body of at most so many bytes.
pub(super) fn reading(body: usize) -> Limits {
    Limits { body_bytes: body, head_bytes: HEAD, ..Limits::default() }
}
