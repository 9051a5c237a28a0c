//! A blocking client's connection that hides nothing: exact bytes out, exact heads and events in, and how it ended.
//!
//! Never retries, reconnects or interprets. Waiting has a bound everywhere; what did not come in time is a panic with the transcript.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::{Duration, Instant};

use serde_json::Value;
use socket2::{Domain, SockRef, Socket, Type};

use crate::http::{Direction, Head, Piece, Reader};
pub use crate::request::Request;
use crate::sse::{Block, Blocks};

/// How long a test waits for what must come. Long, because the machine may be slow and busy; no test waits for it to pass.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A whole answer.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Its head.
    pub head: Head,
    /// Its body, framing taken off.
    pub body: Vec<u8>,
}

impl Answer {
    /// Its status code.
    pub fn status(&self) -> u16 {
        self.head.status()
    }

    /// Its body as JSON, which its head must promise.
    pub fn json(&self) -> Value {
        assert_eq!(self.head.field("Content-Type"), Some("application/json"), "{}", self.head);
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error} in {:?}", String::from_utf8_lossy(&self.body)))
    }
}

/// How a connection ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    /// The peer said that nothing more comes.
    Fin,
    /// The peer reset it.
    Reset,
}

/// What may stand in place of a byte.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Nothing {
    Ended(Ended),
    Yet,
}

/// One connection of a client.
#[derive(Debug)]
pub struct Connection {
    peer: SocketAddr,
    socket: TcpStream,
    reader: Reader,
    unread: VecDeque<u8>,
    sent: Vec<u8>,
    received: Vec<u8>,
}

/// Bytes of a transcript that a failure shows, of each direction.
const SHOWN: usize = 4096;

impl Connection {
    /// Connects.
    pub fn open(address: SocketAddr) -> Self {
        Self::try_open(address).unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Connects with hardly any room for what is received and not read, so that a server soon notices a reader that does not read.
    pub fn open_narrow(address: SocketAddr) -> Self {
        let socket = Socket::new(Domain::for_address(address), Type::STREAM, None).expect("a socket");
        socket.set_recv_buffer_size(4 << 10).expect("a socket takes options");
        let connected = socket.connect(&address.into()).and_then(|()| Self::over(socket.into()));
        connected.unwrap_or_else(|error| panic!("{address}: {error}"))
    }

    /// Connects, unless the server does not let anybody in.
    pub fn try_open(address: SocketAddr) -> io::Result<Self> {
        TcpStream::connect_timeout(&address, PATIENCE).and_then(Self::over)
    }

    /// An error where the server has reset the connection already: it has no peer then.
    fn over(socket: TcpStream) -> io::Result<Self> {
        socket.set_nodelay(true)?;
        Ok(Self {
            peer: socket.peer_addr()?,
            socket,
            reader: Reader::new(Direction::Responses),
            unread: VecDeque::new(),
            sent: Vec::new(),
            received: Vec::new(),
        })
    }

    /// Writes bytes as they are.
    pub fn write(&mut self, bytes: &[u8]) {
        self.sent.extend_from_slice(bytes);
        if let Err(error) = self.socket.write_all(bytes) {
            self.fail(&format!("writing: {error}"));
        }
    }

    /// Writes bytes; a server that closed the connection already is no failure.
    pub fn try_write(&mut self, bytes: &[u8]) -> bool {
        self.sent.extend_from_slice(bytes);
        self.socket.write_all(bytes).is_ok()
    }

    /// Writes a request.
    pub fn send(&mut self, request: &Request) {
        self.write(&request.bytes());
    }

    /// Writes a HEAD request, whose answer has no body.
    pub fn send_head_request(&mut self, request: &Request) {
        self.reader = Reader::new(Direction::HeadResponses);
        self.send(request);
    }

    /// The next head.
    pub fn head(&mut self) -> Head {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.byte(deadline) {
                Ok(byte) => match self.reader.push(byte) {
                    Some(Piece::Head(head)) => return head,
                    Some(Piece::Body(_)) => self.fail("a body's byte where a head was due"),
                    None => {}
                },
                Err(nothing) => self.fail(&format!("waiting for a head: {nothing:?}")),
            }
        }
    }

    /// The next head, unless the connection ends first.
    pub fn try_head(&mut self) -> Option<Head> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.byte(deadline) {
                Ok(byte) => {
                    if let Some(Piece::Head(head)) = self.reader.push(byte) {
                        return Some(head);
                    }
                }
                Err(Nothing::Ended(_)) => return None,
                Err(Nothing::Yet) => self.fail("waiting for a head or an end"),
            }
        }
    }

    /// The rest of the message whose head was read, which must end properly.
    pub fn body(&mut self) -> Vec<u8> {
        let deadline = Instant::now() + PATIENCE;
        let mut body = Vec::new();
        while !self.reader.whole() {
            match self.byte(deadline) {
                Ok(byte) => {
                    if let Some(Piece::Body(byte)) = self.reader.push(byte) {
                        body.push(byte);
                    }
                }
                Err(Nothing::Ended(Ended::Fin)) if self.reader.ends_with_connection() => break,
                Err(nothing) => self.fail(&format!("waiting for a body's end: {nothing:?}")),
            }
        }
        body
    }

    /// The next whole answer. An open stream is waited for to its end.
    pub fn answer(&mut self) -> Answer {
        let head = self.head();
        Answer { head, body: self.body() }
    }

    /// Sends, and reads the whole answer.
    pub fn ask(&mut self, request: &Request) -> Answer {
        self.send(request);
        self.answer()
    }

    /// Reads the head of an event stream.
    pub fn stream(mut self) -> Stream {
        let head = self.head();
        if head.status() != 200 || head.field("Content-Type") != Some("text/event-stream") {
            self.fail("no event stream");
        }
        Stream { connection: self, head, blocks: Blocks::default() }
    }

    /// Waits for the connection's end, before which no byte may come.
    pub fn ended(&mut self) -> Ended {
        self.ended_within(PATIENCE).unwrap_or_else(|| self.fail("waiting for the connection's end"))
    }

    /// The connection's end, if it comes in time and no byte before it.
    pub fn ended_within(&mut self, patience: Duration) -> Option<Ended> {
        match self.byte(Instant::now() + patience) {
            Ok(_) => self.fail("a byte where the connection's end was due"),
            Err(Nothing::Ended(ended)) => Some(ended),
            Err(Nothing::Yet) => None,
        }
    }

    /// Says that nothing more will be sent.
    pub fn finish(&mut self) {
        self.socket.shutdown(Shutdown::Write).expect("an open connection can be finished");
    }

    /// Breaks the connection off without a farewell.
    pub fn reset(self) {
        SockRef::from(&self.socket).set_linger(Some(Duration::ZERO)).expect("a connected socket takes options");
    }

    /// The server's address.
    pub fn peer(&self) -> SocketAddr {
        self.peer
    }

    /// Everything received so far.
    pub fn received(&self) -> &[u8] {
        &self.received[..self.received.len() - self.unread.len()]
    }

    /// Panics with what was said on this connection.
    pub fn fail(&self, what: &str) -> ! {
        let tail = |bytes: &[u8]| String::from_utf8_lossy(&bytes[bytes.len().saturating_sub(SHOWN)..]).into_owned();
        panic!("{what}\n--- sent\n{}\n--- received\n{}\n---", tail(&self.sent), tail(&self.received));
    }

    fn byte(&mut self, deadline: Instant) -> Result<u8, Nothing> {
        loop {
            if let Some(byte) = self.unread.pop_front() {
                return Ok(byte);
            }
            let left = deadline.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Err(Nothing::Yet);
            }
            self.socket.set_read_timeout(Some(left)).expect("a time-out that is not zero");
            let mut buffer = [0; 16 << 10];
            match self.socket.read(&mut buffer) {
                Ok(0) => return Err(Nothing::Ended(Ended::Fin)),
                Ok(count) => {
                    self.received.extend_from_slice(&buffer[..count]);
                    self.unread.extend(&buffer[..count]);
                }
                Err(error) => match error.kind() {
                    ErrorKind::WouldBlock | ErrorKind::TimedOut => return Err(Nothing::Yet),
                    ErrorKind::Interrupted => {}
                    ErrorKind::ConnectionReset | ErrorKind::BrokenPipe => return Err(Nothing::Ended(Ended::Reset)),
                    _ => self.fail(&format!("reading: {error}")),
                },
            }
        }
    }
}

/// Asks on a connection of its own.
pub fn ask(address: SocketAddr, request: &Request) -> Answer {
    Connection::open(address).ask(request)
}

/// Opens an event stream on a connection of its own.
pub fn open(address: SocketAddr, request: &Request) -> Stream {
    let mut connection = Connection::open(address);
    connection.send(request);
    connection.stream()
}

/// What comes next on a stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// A block; comments too.
    Block(Block),
    /// The body's proper end.
    CleanEnd,
    /// The connection ended before the body did.
    Cut(Ended),
    /// Nothing in time.
    Silence,
}

/// An event stream under way.
#[derive(Debug)]
pub struct Stream {
    connection: Connection,
    /// Its head.
    pub head: Head,
    blocks: Blocks,
}

impl Stream {
    /// The next step, waited for so long.
    pub fn step(&mut self, patience: Duration) -> Step {
        let deadline = Instant::now() + patience;
        let connection = &mut self.connection;
        while !connection.reader.whole() {
            match connection.byte(deadline) {
                Ok(byte) => {
                    if let Some(Piece::Body(byte)) = connection.reader.push(byte)
                        && let Some(block) = self.blocks.push(byte)
                    {
                        return Step::Block(block);
                    }
                }
                Err(Nothing::Ended(Ended::Fin)) if connection.reader.ends_with_connection() => break,
                Err(Nothing::Ended(ended)) => return Step::Cut(ended),
                Err(Nothing::Yet) => return Step::Silence,
            }
        }
        if !self.blocks.rest().is_empty() {
            connection.fail("a clean end within an event");
        }
        Step::CleanEnd
    }

    /// The next block that is no comment.
    pub fn event(&mut self) -> Block {
        let deadline = Instant::now() + PATIENCE;
        loop {
            match self.step(deadline.saturating_duration_since(Instant::now())) {
                Step::Block(block) if block.is_comment() => {}
                Step::Block(block) => return block,
                other => self.connection.fail(&format!("waiting for an event: {other:?}")),
            }
        }
    }

    /// That many blocks more that are no comments.
    pub fn take(&mut self, count: usize) -> Vec<Block> {
        (0..count).map(|_| self.event()).collect()
    }

    /// All blocks up to the clean end, comments excluded.
    pub fn rest(&mut self) -> Vec<Block> {
        let deadline = Instant::now() + PATIENCE;
        let mut blocks = Vec::new();
        loop {
            match self.step(deadline.saturating_duration_since(Instant::now())) {
                Step::Block(block) if block.is_comment() => {}
                Step::Block(block) => blocks.push(block),
                Step::CleanEnd => return blocks,
                other => self.connection.fail(&format!("waiting for a clean end: {other:?}")),
            }
        }
    }

    /// Blocks up to and including the first that `is_last` picks, comments excluded.
    pub fn until(&mut self, is_last: impl Fn(&Block) -> bool) -> Vec<Block> {
        let mut blocks = vec![self.event()];
        while !is_last(&blocks[blocks.len() - 1]) {
            blocks.push(self.event());
        }
        blocks
    }

    /// Asserts that nothing but comments comes for so long, and that the stream stays open.
    pub fn stays_silent(&mut self, patience: Duration) {
        let deadline = Instant::now() + patience;
        loop {
            match self.step(deadline.saturating_duration_since(Instant::now())) {
                Step::Silence => return,
                Step::Block(block) if block.is_comment() => {}
                other => self.connection.fail(&format!("not silent: {other:?}")),
            }
        }
    }

    /// Leaves, and waits until the server knows: what is said from here on is written to nobody.
    pub fn leave(mut self) {
        self.connection.finish();
        while !matches!(self.step(PATIENCE), Step::Cut(_) | Step::CleanEnd) {}
    }

    /// Breaks the connection off without a farewell.
    pub fn reset(self) {
        self.connection.reset();
    }

    /// The connection, for what follows the stream on it.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The connection, after the stream's clean end.
    pub fn into_connection(self) -> Connection {
        let reader = &self.connection.reader;
        assert!(reader.whole() || reader.ends_with_connection(), "the stream has not ended");
        self.connection
    }

    /// Panics with what was said on this connection.
    pub fn fail(&self, what: &str) -> ! {
        self.connection.fail(what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;
    use std::thread;

    /// A listener that answers the first connection with `bytes` and then closes it.
    fn canned(bytes: &'static [u8], reset: bool) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            let (mut socket, _) = listener.accept().expect("a connection");
            socket.write_all(bytes).expect("written");
            if reset {
                // A reset throws away what the peer has not read yet.
                thread::sleep(Duration::from_millis(200));
                SockRef::from(&socket).set_linger(Some(Duration::ZERO)).expect("option");
            }
        });
        address
    }

    const HEAD: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";

    fn stream(bytes: &str, reset: bool) -> Stream {
        let bytes = format!("{HEAD}{bytes}").into_bytes().leak();
        Connection::open(canned(bytes, reset)).stream()
    }

    #[test]
    fn a_clean_end_is_told_from_a_cut() {
        let mut clean = stream("9\r\ndata: a\n\n\r\n0\r\n\r\n", false);
        assert_eq!(clean.event().data.as_deref(), Some("a"));
        assert_eq!(clean.step(PATIENCE), Step::CleanEnd);
        let mut cut = stream("9\r\ndata: a\n\n\r\n", false);
        cut.event();
        assert_eq!(cut.step(PATIENCE), Step::Cut(Ended::Fin));
        let mut reset = stream("9\r\ndata: a\n\n\r\n", true);
        reset.event();
        assert_eq!(reset.step(PATIENCE), Step::Cut(Ended::Reset));
    }

    #[test]
    fn a_connection_that_was_reset_at_once_is_an_error_and_no_panic() {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let socket = TcpStream::connect(listener.local_addr().expect("bound")).expect("connected");
        let (accepted, _) = listener.accept().expect("a connection");
        SockRef::from(&accepted).set_linger(Some(Duration::ZERO)).expect("option");
        drop(accepted);
        thread::sleep(Duration::from_millis(200));
        assert!(Connection::over(socket).is_err());
    }

    #[test]
    fn events_cross_chunks() {
        let mut split = stream("5\r\ndata:\r\n4\r\n a\n\n\r\n0\r\n\r\n", false);
        assert_eq!(split.rest()[0].data.as_deref(), Some("a"));
    }
}
