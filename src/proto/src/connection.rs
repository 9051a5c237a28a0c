//! One connection's life: bytes become requests, answers become sends, and at most one send is under way.
//!
//! Never knows what a request means or whether a session lives; never asks the time.

use std::time::Duration;

use bytes::Bytes;

use crate::eventlog::RingId;
use crate::http::{BodyReader, Framing, Head, HeadScanner, Method, Version};
use crate::ids::{Position, Principal, SlotIndex, StreamNumber};
use crate::limits::Limits;
use crate::refusal::Refusal;
use crate::time::Instant;
use crate::wheel::Timer;

/// A connection as its shard keeps it.
#[derive(Debug)]
pub struct Connection {
    /// Bytes read and not yet answered, from the start of the request under way.
    input: Vec<u8>,
    phase: Phase,
    /// Made and not yet handed to the shell.
    queue: Vec<Bytes>,
    under_way: Option<UnderWay>,
    /// What the answer under way must look like.
    pub reply: Reply,
    /// The stream that it carries.
    pub serving: Option<Serving>,
    /// The first request is to be served here, whatever the placement says.
    pub placed: bool,
    /// The one timer of a connection; the phase says what it means.
    pub timer: Option<Timer>,
    /// Whether the shell was asked to read.
    pub reading: bool,
    /// When something was last handed to the shell.
    pub last_send: Instant,
    /// What the timer was set for.
    pub armed: Option<Waiting>,
    /// Another connection took its stream over: its end must be written soon.
    pub taken_over: bool,
}

#[derive(Debug)]
enum Phase {
    /// Waiting for a head, or in the middle of one.
    Head(HeadScanner),
    /// Reading a body.
    Body(Box<Upload>),
    /// A request was handed out and is not answered yet.
    Answering,
    /// The last answer was queued; the connection closes when it is written.
    Closing,
    /// `Output::Close` was said.
    Closed,
}

#[derive(Debug)]
struct Upload {
    head: Head,
    judged: Judged,
    reader: BodyReader,
    /// Raw bytes of head and body read so far.
    raw: usize,
    body: Vec<u8>,
}

/// What the head alone decided.
#[derive(Clone, Debug)]
pub enum Judged {
    /// Nothing against it.
    Admitted(Principal),
    /// A CORS preflight.
    Preflight,
    /// Refused, with the value of `WWW-Authenticate` where the refusal is 401.
    Refused(Refusal, Option<Box<str>>),
}

/// A whole request.
#[derive(Debug)]
pub struct Request {
    /// Its head.
    pub head: Head,
    /// Its body, decoded.
    pub body: Vec<u8>,
    /// What the head alone decided.
    pub judged: Judged,
    /// Its length on the wire, at the front of the connection's input.
    raw: usize,
}

/// How the answer under way is to be written.
#[derive(Debug)]
pub struct Reply {
    /// The request's version.
    pub version: Version,
    /// Whether another request may follow.
    pub keep_alive: bool,
    /// The request's origin, to be echoed for CORS; only an allowed one.
    pub origin: Option<Box<str>>,
    /// HEAD: no body, whatever its length.
    pub bodiless: bool,
}

impl Default for Reply {
    fn default() -> Self {
        Self { version: Version::Http11, keep_alive: false, origin: None, bodiless: false }
    }
}

/// A connection's place in a stream. This is all that a slow reader costs: a position, never a queue.
#[derive(Debug)]
pub struct Serving {
    /// The session.
    pub slot: SlotIndex,
    /// Its stream.
    pub stream: StreamNumber,
    /// The last event handed over.
    pub position: Position,
    /// The last event that had been issued when the connection was attached: up to here, what is sent is a replay.
    pub replay_to: Position,
    /// A `resync` right before the next event was handed over.
    pub announced: bool,
    /// A gap was told on this connection.
    pub crossed_gap: bool,
    /// A repost's: requests to the client that were already answered are left out.
    pub joined: bool,
    /// Whether the head was written.
    pub form: Form,
    /// A `retry` to put in front of the next frame (revisions without an opening event).
    pub retry: Option<Duration>,
}

/// The form of an answer on a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// `initialize`: the head waits for the result.
    Initialize,
    /// No head yet, and no time for one: whether the call is refused is not known here.
    Held,
    /// No head yet: one JSON body if the answer comes first, else SSE.
    Undecided,
    /// No head yet: one JSON body, whatever comes.
    Json,
    /// SSE is open.
    Sse,
}

/// A send under way.
#[derive(Debug)]
pub struct UnderWay {
    left: usize,
    sent: usize,
    /// The run of events in it, where it is to be known how far it came.
    pub run: Option<Run>,
}

/// A run of the standalone stream's events inside a send; of none where the send only brings its reader forward, by a `resync`.
#[derive(Debug)]
pub struct Run {
    /// Whose events.
    pub ring: RingId,
    /// Bytes of the send before the run's first frame.
    pub prefix: usize,
    /// Bytes of its frames.
    pub length: usize,
    /// The run is the events after this one …
    pub after: Position,
    /// … up to this one.
    pub to: Position,
    /// Where each of several events' frames ends, from the first frame's beginning: what was written must be known even of events that
    /// are evicted before all of it was.
    pub ends: Vec<usize>,
}

impl Run {
    /// The last event that the send's first `sent` bytes bring in full; `None` where they do not reach the run.
    fn brought(&self, sent: usize) -> Option<Position> {
        let bytes = sent.checked_sub(self.prefix)?;
        if bytes >= self.length {
            return Some(self.to);
        }
        Some(Position::new(self.after.get() + self.ends.partition_point(|&end| end <= bytes) as u64))
    }
}

/// How far bytes that were written brought a send.
#[derive(Clone, Copy, Debug)]
pub struct Written {
    /// It is done: another may follow.
    pub done: bool,
    /// The ring of its run of events, and the last of them that was written in full.
    pub brought: Option<(RingId, Position)>,
}

/// What a connection's input amounts to.
#[derive(Debug)]
pub enum Polled {
    /// Not a whole request yet.
    Nothing,
    /// The client waits for `100 Continue` before it sends its body.
    Continue,
    /// A whole request. The connection answers it before it hands out another.
    Request(Box<Request>),
    /// Not a request that could be told from what follows it: refuse and close.
    Refused(Refusal),
}

/// What a connection's timer means now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Waiting {
    /// For a request, idle.
    Idle,
    /// For the rest of a head.
    Head,
    /// For the rest of a body.
    Body,
    /// For a JSON answer before the stream opens.
    Json,
    /// For something to say on a stream.
    KeepAlive,
    /// For an answer to be written.
    Write,
    /// For the end of a stream that was taken over to be written.
    Grace,
    /// For nothing that has a limit here (a call has its own).
    Answer,
}

impl Connection {
    /// A connection with these bytes already read.
    pub fn new(bytes: Bytes, placed: bool, now: Instant) -> Self {
        Self {
            input: bytes.into(),
            phase: Phase::Head(HeadScanner::default()),
            queue: Vec::new(),
            under_way: None,
            reply: Reply::default(),
            serving: None,
            placed,
            timer: None,
            reading: true,
            last_send: now,
            armed: None,
            taken_over: false,
        }
    }

    /// Takes in bytes that arrived.
    pub fn receive(&mut self, bytes: &[u8]) {
        if !matches!(self.phase, Phase::Closing | Phase::Closed) {
            self.input.extend_from_slice(bytes);
        }
    }

    /// Whether more bytes are welcome: always while a request is read, up to the head limit behind an answer.
    pub fn wants_bytes(&self, limits: &Limits) -> bool {
        match self.phase {
            Phase::Answering => self.input.len() < limits.head_bytes,
            Phase::Head(_) | Phase::Body(_) | Phase::Closing | Phase::Closed => true,
        }
    }

    /// Looks for the next whole request. `judge` decides what a head alone can decide.
    pub fn poll(&mut self, limits: &Limits, judge: impl FnOnce(&Head) -> Judged) -> Polled {
        if let Phase::Head(scanner) = &mut self.phase {
            match scanner.parse(&self.input, limits) {
                Ok(None) => return Polled::Nothing,
                Err(refusal) => return Polled::Refused(refusal),
                Ok(Some((head, raw))) => {
                    self.reply = Reply {
                        version: head.version(),
                        keep_alive: head.keep_alive(),
                        origin: None,
                        bodiless: head.method() == Method::Head,
                    };
                    let judged = judge(&head);
                    let waits = head.expects_continue() && self.input.len() == raw && head.framing() != Framing::None;
                    let reader = BodyReader::new(head.framing(), limits);
                    let judged = match (&reader, judged) {
                        (Err(refusal), Judged::Admitted(_) | Judged::Preflight) => Judged::Refused(*refusal, None),
                        (_, judged) => judged,
                    };
                    let reader = match (reader, &judged) {
                        (Ok(reader), Judged::Refused(..)) if !waits => reader,
                        (Ok(reader), Judged::Admitted(_) | Judged::Preflight) => reader,
                        // The body never comes, comes unasked, or is too large to be read past: the next request cannot be told apart.
                        (Ok(_) | Err(_), _) => {
                            self.reply.keep_alive = false;
                            self.phase = Phase::Answering;
                            return Polled::Request(Box::new(Request { head, body: Vec::new(), judged, raw }));
                        }
                    };
                    self.phase = Phase::Body(Box::new(Upload { head, judged, reader, raw, body: Vec::new() }));
                    if waits {
                        return Polled::Continue;
                    }
                }
            }
        }
        let Phase::Body(upload) = &mut self.phase else { return Polled::Nothing };
        match upload.reader.read(&self.input[upload.raw..], &mut upload.body) {
            Err(refusal) => Polled::Refused(refusal),
            Ok(progress) => {
                upload.raw += progress.consumed;
                if matches!(upload.judged, Judged::Refused(..)) {
                    upload.body.clear();
                }
                if !progress.done {
                    return Polled::Nothing;
                }
                let Phase::Body(upload) = std::mem::replace(&mut self.phase, Phase::Answering) else { return Polled::Nothing };
                let Upload { head, judged, raw, body, .. } = *upload;
                Polled::Request(Box::new(Request { head, body, judged, raw }))
            }
        }
    }

    /// The request is answered here: its bytes are not needed any more.
    pub fn consume(&mut self, request: &Request) {
        self.input.drain(..request.raw);
        if self.input.is_empty() {
            self.input = Vec::new();
        }
        self.placed = false;
        self.armed = None;
    }

    /// Everything read and not answered, the request under way included, for another shard.
    pub fn take_input(&mut self) -> Bytes {
        std::mem::take(&mut self.input).into()
    }

    /// Queues bytes of an answer.
    pub fn queue(&mut self, bytes: Bytes) {
        if !bytes.is_empty() {
            self.queue.push(bytes);
        }
    }

    /// Whether nothing is under way or queued.
    pub fn flushed(&self) -> bool {
        self.under_way.is_none() && self.queue.is_empty()
    }

    /// Whether a send is under way.
    pub fn sending(&self) -> bool {
        self.under_way.is_some()
    }

    /// Takes what is queued as the next send, with the run of events in it; `None` while one is under way or nothing is queued.
    pub fn next_send(&mut self, run: Option<Run>, now: Instant) -> Option<Vec<Bytes>> {
        if self.under_way.is_some() || self.queue.is_empty() {
            return None;
        }
        self.under_way = Some(UnderWay { left: self.queued(), sent: 0, run });
        self.last_send = now;
        Some(std::mem::take(&mut self.queue))
    }

    /// Bytes that are queued.
    pub fn queued(&self) -> usize {
        self.queue.iter().map(Bytes::len).sum()
    }

    /// Bytes of the send under way were written. `None` when there is none.
    pub fn sent(&mut self, bytes: usize) -> Option<Written> {
        let under_way = self.under_way.as_mut()?;
        under_way.sent += bytes.min(under_way.left);
        under_way.left = under_way.left.saturating_sub(bytes);
        let (done, sent) = (under_way.left == 0, under_way.sent);
        let brought = under_way.run.as_ref().and_then(|run| Some((run.ring, run.brought(sent)?)));
        if done {
            self.under_way = None;
            self.taken_over &= !self.queue.is_empty();
        }
        Some(Written { done, brought })
    }

    /// The answer under way is complete: the next request may be looked for, or the connection closes once all is written.
    pub fn answered(&mut self) {
        self.serving = None;
        if matches!(self.phase, Phase::Closed) {
            return;
        }
        // Nothing of this request says how the next one is to be answered.
        if std::mem::take(&mut self.reply).keep_alive {
            self.phase = Phase::Head(HeadScanner::default());
        } else {
            self.phase = Phase::Closing;
            self.input = Vec::new();
        }
    }

    /// Whether the connection closes as soon as it is flushed.
    pub fn closing(&self) -> bool {
        matches!(self.phase, Phase::Closing)
    }

    /// Whether `Output::Close` was said.
    pub fn closed(&self) -> bool {
        matches!(self.phase, Phase::Closed)
    }

    /// Whether it waits for a request of which nothing has come, with nothing left to write.
    pub fn idle(&self) -> bool {
        matches!(self.phase, Phase::Head(_)) && self.input.is_empty() && self.flushed()
    }

    /// Whether a request was handed out and is not answered yet.
    pub fn answering(&self) -> bool {
        matches!(self.phase, Phase::Answering)
    }

    /// `Output::Close` is being said.
    pub fn close(&mut self) {
        self.phase = Phase::Closed;
        self.input = Vec::new();
        self.queue = Vec::new();
        self.serving = None;
    }

    /// What it waits for.
    pub fn waiting(&self) -> Waiting {
        match &self.phase {
            Phase::Head(_) | Phase::Closing if !self.flushed() && self.taken_over => Waiting::Grace,
            Phase::Head(_) | Phase::Closing if !self.flushed() => Waiting::Write,
            Phase::Head(_) if self.input.is_empty() => Waiting::Idle,
            Phase::Head(_) => Waiting::Head,
            Phase::Closing | Phase::Closed => Waiting::Answer,
            Phase::Body(_) => Waiting::Body,
            Phase::Answering => match self.serving.as_ref().map(|serving| serving.form) {
                Some(Form::Undecided) => Waiting::Json,
                Some(Form::Sse) => Waiting::KeepAlive,
                Some(Form::Initialize | Form::Json | Form::Held) | None => Waiting::Answer,
            },
        }
    }
}
