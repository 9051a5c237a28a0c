//! A proxy that cuts connections at an exact event, and remembers what was asked of it.
//!
//! Forwards heads and bodies unchanged up to a cut; never holds back, reorders or repairs any. Only the chunks of an event stream are its
//! own, so that it can end one properly.

use std::collections::VecDeque;
use std::io::{Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock};
use std::thread::{self, JoinHandle};
use std::time::Instant;

use socket2::SockRef;

use crate::http::{Direction, Head, Piece, Reader};
use crate::sse::{Block, Blocks};

/// How a cut looks to the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum How {
    /// A reset.
    Reset,
    /// A FIN within the body.
    Truncate,
    /// A proper end of the body, as a well-behaved intermediary that gives up would write it.
    CleanEnd,
    /// None by the proxy: whoever watches it breaks what is behind it, and the proxy passes on what comes of that.
    Behind,
}

/// Where a stream is to be cut: right after this many of its messages (0: right after its opening event).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Events with data that pass; opening events, `resync` and comments are not counted.
    pub after_messages: usize,
    /// How.
    pub how: How,
}

/// One request that passed.
#[derive(Clone, Debug)]
pub struct Asked {
    /// When its head was whole.
    pub at: Instant,
    /// Its head.
    pub head: Head,
    /// Its body, as far as it has come.
    pub body: Vec<u8>,
    /// The head of its answer, once that is there.
    pub answer: Option<Head>,
    /// The answer's body, unless it is a stream: as far as it has come.
    pub answered: Vec<u8>,
    /// The stream's blocks that the client was sent, comments included.
    pub said: Vec<Block>,
}

impl Asked {
    fn new(head: Head) -> Self {
        Self { at: Instant::now(), head, body: Vec::new(), answer: None, answered: Vec::new(), said: Vec::new() }
    }

    /// Whether it is a POST whose body names this method.
    pub fn calls(&self, method: &str) -> bool {
        let named = format!("\"method\":\"{method}\"");
        self.head.method() == "POST" && compact(&self.body).contains(&named)
    }

    /// The status of its answer, once that is there.
    pub fn status(&self) -> Option<u16> {
        self.answer.as_ref().map(Head::status)
    }

    /// The verdict in its answer.
    pub fn verdict(&self) -> Option<&str> {
        self.answer.as_ref()?.field("Rejoin-Verdict")
    }

    /// The cursor that it carries.
    pub fn cursor(&self) -> Option<&str> {
        self.head.field("Last-Event-ID")
    }
}

/// A body without the spaces that some clients write after colons.
fn compact(body: &[u8]) -> String {
    String::from_utf8_lossy(body).replace("\": ", "\":")
}

/// One cut that happened.
#[derive(Clone, Debug)]
pub struct Done {
    /// When.
    pub at: Instant,
    /// The stream's last id that the client was sent.
    pub cursor: Option<String>,
    /// As it was ordered.
    pub cut: Cut,
}

/// What passed so far.
#[derive(Debug, Default)]
pub struct Record {
    /// Requests, in the order of their heads.
    pub asked: Vec<Asked>,
    /// Cuts, in order.
    pub cuts: Vec<Done>,
}

/// Where connections go. All proxies that share one go elsewhere together.
#[derive(Clone, Debug)]
pub struct Target(Arc<RwLock<SocketAddr>>);

impl Target {
    /// Connections go there.
    pub fn new(address: SocketAddr) -> Self {
        Self(Arc::new(RwLock::new(address)))
    }

    /// Connections go to what this gives, and wait until it is there.
    pub fn replace(&self, with: impl FnOnce() -> SocketAddr) {
        let mut address = self.0.write().unwrap_or_else(PoisonError::into_inner);
        *address = with();
    }

    /// Where they go now.
    pub fn address(&self) -> SocketAddr {
        *self.0.read().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Who decides over what passes, and may act while it is held.
pub trait Watch: Send + Sync {
    /// Says, for the stream that answers a request, where to cut it. The record holds everything before.
    fn plan(&self, asked: &Asked, record: &Record) -> Option<Cut>;

    /// A request is whole. Its last bytes are forwarded when this returns.
    fn whole(&self, _asked: &Asked, _passing: &Passing<'_>) {}

    /// A stream has come to its cut, which is made when this returns; the client was sent all that is before it.
    fn cutting(&self, _passing: &Passing<'_>) {}
}

/// A watch that has nothing but a plan.
struct Planned<P>(P);

impl<P: Fn(&Asked, &Record) -> Option<Cut> + Send + Sync> Watch for Planned<P> {
    fn plan(&self, asked: &Asked, record: &Record) -> Option<Cut> {
        self.0(asked, record)
    }
}

/// The connection on which something happens, and what passed on all of them.
pub struct Passing<'p>(&'p Pair);

impl Passing<'_> {
    /// What passed so far.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.0.shared.record()
    }

    /// Breaks every connection but this one.
    pub fn sever_others(&self) {
        let mine = [&self.0.client, &self.0.server].map(|socket| socket.local_addr().ok().zip(socket.peer_addr().ok()));
        let open = self.0.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        let others = open.iter().filter(|socket| !mine.contains(&socket.local_addr().ok().zip(socket.peer_addr().ok())));
        for socket in others {
            // Most are closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
    }
}

/// A running proxy.
pub struct Proxy {
    /// Where it listens.
    pub address: SocketAddr,
    shared: Arc<Shared>,
    acceptor: Option<JoinHandle<()>>,
}

struct Shared {
    to: Target,
    watch: Box<dyn Watch>,
    record: Mutex<Record>,
    stopping: AtomicBool,
    open: Mutex<Vec<TcpStream>>,
}

impl Shared {
    fn record(&self) -> MutexGuard<'_, Record> {
        // A pump that panicked on a broken message must not hide what passed before.
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Proxy {
    /// Listens on a free port and forwards to `to`.
    pub fn start(to: SocketAddr, plan: impl Fn(&Asked, &Record) -> Option<Cut> + Send + Sync + 'static) -> Self {
        Self::watched(Target::new(to), Planned(plan))
    }

    /// Listens on a free port and forwards to wherever `to` says when a connection comes.
    pub fn watched(to: Target, watch: impl Watch + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("a bound listener has an address");
        let shared = Arc::new(Shared {
            to,
            watch: Box::new(watch),
            record: Mutex::default(),
            stopping: AtomicBool::new(false),
            open: Mutex::default(),
        });
        let acceptor = thread::spawn({
            let shared = Arc::clone(&shared);
            move || accept(&listener, &shared)
        });
        Self { address, shared, acceptor: Some(acceptor) }
    }

    /// A proxy that never cuts.
    pub fn transparent(to: SocketAddr) -> Self {
        Self::start(to, |_, _| None)
    }

    /// Where a client finds the server.
    pub fn url(&self) -> String {
        format!("http://{}/mcp", self.address)
    }

    /// What passed so far.
    pub fn record(&self) -> MutexGuard<'_, Record> {
        self.shared.record()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::SeqCst);
        // Wakes the acceptor; it may have ended already.
        let _ = TcpStream::connect(self.address);
        for socket in self.shared.open.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            // Most are closed already.
            let _ = socket.shutdown(Shutdown::Both);
        }
        if let Some(acceptor) = self.acceptor.take() {
            let _ = acceptor.join();
        }
    }
}

fn accept(listener: &TcpListener, shared: &Arc<Shared>) {
    for client in listener.incoming().map_while(Result::ok) {
        if shared.stopping.load(Ordering::SeqCst) {
            return;
        }
        // A server that is gone is a client's connection closed.
        let Ok(server) = TcpStream::connect(shared.to.address()) else { continue };
        let pair = Pair { client, server, waiting: Mutex::default(), shared: Arc::clone(shared) };
        pair.client.set_nodelay(true).expect("a connected socket takes options");
        pair.server.set_nodelay(true).expect("a connected socket takes options");
        let mut open = shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.extend([&pair.client, &pair.server].map(|socket| socket.try_clone().expect("a descriptor")));
        let pair = Arc::new(pair);
        thread::spawn({
            let pair = Arc::clone(&pair);
            move || pair.forward_requests()
        });
        thread::spawn(move || pair.forward_answers());
    }
}

/// A client's connection and the one to the server that belongs to it.
struct Pair {
    client: TcpStream,
    server: TcpStream,
    /// Indexes into the record, of requests that wait for their answer.
    waiting: Mutex<VecDeque<usize>>,
    shared: Arc<Shared>,
}

impl Pair {
    fn forward_requests(&self) {
        let mut reader = Reader::new(Direction::Requests);
        let mut current = 0;
        let mut buffer = [0; 16 << 10];
        while let Some(count) = read(&self.client, &mut buffer) {
            for &byte in &buffer[..count] {
                match reader.push(byte) {
                    Some(Piece::Head(head)) => {
                        let mut record = self.shared.record();
                        current = record.asked.len();
                        record.asked.push(Asked::new(head));
                        self.waiting.lock().expect("no holder panics").push_back(current);
                    }
                    Some(Piece::Body(byte)) => self.shared.record().asked[current].body.push(byte),
                    None => {}
                }
                if reader.whole() {
                    let whole = self.shared.record().asked[current].clone();
                    self.shared.watch.whole(&whole, &Passing(self));
                }
            }
            if (&self.server).write_all(&buffer[..count]).is_err() {
                break;
            }
        }
        // The other side may be closed already.
        let _ = self.server.shutdown(Shutdown::Write);
    }

    fn forward_answers(&self) {
        let mut answers = Answers { pair: self, reader: Reader::new(Direction::Responses), current: 0, stream: None };
        let mut buffer = [0; 16 << 10];
        'answers: while let Some(count) = read(&self.server, &mut buffer) {
            let mut rest = &buffer[..count];
            while !rest.is_empty() {
                let (passed, cut);
                (passed, cut, rest) = answers.up_to_cut(rest);
                if (&self.client).write_all(&passed).is_err() {
                    break 'answers;
                }
                let Some(cut) = cut else { continue };
                let ours = cut.cut.how != How::Behind;
                self.cut(cut);
                if ours {
                    return;
                }
            }
        }
        // Either side may be closed already.
        let _ = self.client.shutdown(Shutdown::Write);
        let _ = self.server.shutdown(Shutdown::Both);
    }

    fn cut(&self, done: Done) {
        let how = done.cut.how;
        self.shared.record().cuts.push(done);
        self.shared.watch.cutting(&Passing(self));
        match how {
            How::Reset => {
                SockRef::from(&self.client).set_linger(Some(std::time::Duration::ZERO)).expect("a socket takes options");
                // The reset goes out when the last descriptor closes; this one is forgotten here, the pair's own follow.
                self.forget_clones();
            }
            // The client may be gone already.
            How::Truncate => drop(self.client.shutdown(Shutdown::Write)),
            How::CleanEnd => drop((&self.client).write_all(b"0\r\n\r\n").and_then(|()| self.client.shutdown(Shutdown::Write))),
            How::Behind => return,
        }
        let _ = self.server.shutdown(Shutdown::Both);
        let _ = self.client.shutdown(Shutdown::Read);
    }

    fn forget_clones(&self) {
        let mine = self.client.peer_addr().ok();
        let mut open = self.shared.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|socket| mine.is_none() || socket.peer_addr().ok() != mine);
    }
}

/// An event stream under way.
struct Watched {
    blocks: Blocks,
    messages: usize,
    cursor: Option<String>,
    cut: Option<Cut>,
    /// Bytes of the body for the next chunk.
    chunk: Vec<u8>,
}

impl Watched {
    /// Takes a byte of the body; gives the block that it completes.
    fn push(&mut self, byte: u8) -> Option<Block> {
        self.chunk.push(byte);
        self.blocks.push(byte)
    }

    /// Takes note of a block; gives the cut that is due right after it.
    fn cut_after(&mut self, block: &Block) -> Option<Done> {
        self.messages += usize::from(block.is_message());
        if block.id.is_some() {
            self.cursor.clone_from(&block.id);
        }
        let cut = self.cut?;
        let due = if cut.after_messages == 0 { block.id.is_some() } else { self.messages == cut.after_messages };
        due.then(|| Done { at: Instant::now(), cursor: self.cursor.clone(), cut })
    }

    fn flush(&mut self, out: &mut Vec<u8>) {
        if !self.chunk.is_empty() {
            out.extend_from_slice(format!("{:x}\r\n", self.chunk.len()).as_bytes());
            out.append(&mut self.chunk);
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// The answers of one connection.
struct Answers<'p> {
    pair: &'p Pair,
    reader: Reader,
    /// Index into the record, of the request that is being answered.
    current: usize,
    /// The chunked event stream under way.
    stream: Option<Watched>,
}

/// A message that is no HTTP panics its pump: the client then sees the end at once instead of waiting in vain.
impl Drop for Answers<'_> {
    fn drop(&mut self) {
        if thread::panicking() {
            // It may be closed already.
            let _ = self.pair.client.shutdown(Shutdown::Both);
        }
    }
}

impl Answers<'_> {
    /// What the client is sent of these bytes, the cut that follows, and what is left of them.
    fn up_to_cut<'b>(&mut self, bytes: &'b [u8]) -> (Vec<u8>, Option<Done>, &'b [u8]) {
        let mut out = Vec::with_capacity(bytes.len() + 16);
        for (at, &byte) in bytes.iter().enumerate() {
            let piece = self.reader.push(byte);
            let Some(stream) = &mut self.stream else {
                out.push(byte);
                match piece {
                    Some(Piece::Head(head)) => self.begin(head),
                    Some(Piece::Body(byte)) => self.pair.shared.record().asked[self.current].answered.push(byte),
                    None => {}
                }
                continue;
            };
            if let Some(Piece::Body(byte)) = piece
                && let Some(block) = stream.push(byte)
            {
                let done = stream.cut_after(&block);
                self.pair.shared.record().asked[self.current].said.push(block);
                if done.is_some() {
                    stream.flush(&mut out);
                    return (out, done, &bytes[at + 1..]);
                }
            }
            if self.reader.whole() {
                stream.flush(&mut out);
                out.extend_from_slice(b"0\r\n\r\n");
                self.stream = None;
            }
        }
        if let Some(stream) = &mut self.stream {
            stream.flush(&mut out);
        }
        (out, None, &[])
    }

    fn begin(&mut self, head: Head) {
        if head.status() == 100 {
            return;
        }
        self.current = self.pair.waiting.lock().expect("no holder panics").pop_front().expect("an answer has a request");
        let streams = head.field("Content-Type") == Some("text/event-stream") && head.field("Transfer-Encoding").is_some();
        let mut record = self.pair.shared.record();
        record.asked[self.current].answer = Some(head);
        self.stream = streams.then(|| {
            let cut = self.pair.shared.watch.plan(&record.asked[self.current], &record);
            Watched { blocks: Blocks::default(), messages: 0, cursor: None, cut, chunk: Vec::new() }
        });
    }
}

/// Some bytes, or `None` when the peer has ended or broken the connection.
fn read(mut socket: &TcpStream, buffer: &mut [u8]) -> Option<usize> {
    socket.read(buffer).ok().filter(|&count| count > 0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::{Connection, Ended, PATIENCE, Request, Step, Stream};

    /// A server that answers every connection's first request with the same three events in two chunks.
    fn three_events() -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
        let address = listener.local_addr().expect("bound");
        thread::spawn(move || {
            for mut socket in listener.incoming().map_while(Result::ok) {
                let mut reader = Reader::new(Direction::Requests);
                let mut byte = [0];
                loop {
                    socket.read_exact(&mut byte).expect("a request");
                    if let Some(Piece::Head(_)) = reader.push(byte[0]) {
                        break;
                    }
                }
                let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
                let events = "d\r\nid: 0\ndata:\n\n\r\n1e\r\nid: 1\ndata: a\n\nid: 2\ndata: b\n\n\r\n0\r\n\r\n";
                socket.write_all(head.as_bytes()).and_then(|()| socket.write_all(events.as_bytes())).expect("written");
            }
        });
        address
    }

    fn through(proxy: &Proxy) -> Stream {
        let mut connection = Connection::open(proxy.address);
        connection.send(&Request::get(proxy.address).with("Last-Event-ID", "x"));
        connection.stream()
    }

    #[test]
    fn without_a_cut_everything_passes() {
        let proxy = Proxy::transparent(three_events());
        assert_eq!(through(&proxy).rest().len(), 3);
        let record = proxy.record();
        assert_eq!(record.asked[0].cursor(), Some("x"));
        assert!(record.cuts.is_empty());
    }

    #[test]
    fn a_cut_comes_right_after_its_event_and_looks_as_ordered() {
        for (how, looks) in
            [(How::Reset, Step::Cut(Ended::Reset)), (How::Truncate, Step::Cut(Ended::Fin)), (How::CleanEnd, Step::CleanEnd)]
        {
            for after_messages in 0..2 {
                let proxy = Proxy::start(three_events(), move |_, _| Some(Cut { after_messages, how }));
                let mut stream = through(&proxy);
                let last = stream.take(after_messages + 1).pop().expect("an event");
                assert_eq!(last.cursor(), after_messages.to_string());
                assert_eq!(stream.step(PATIENCE), looks, "{how:?} after {after_messages}");
                let record = proxy.record();
                assert_eq!(record.cuts[0].cursor, last.id);
                assert_eq!(record.cuts.len(), 1);
            }
        }
    }
}
