//! One connection at a time carries one request and its answer: bytes become heads, bodies and events.
//!
//! Never decides what an answer means (`answers`, `streams`), and never holds a buffer while no answer is being read.

use bytes::Bytes;

use super::answers::Whole;
use super::io::{AnswerSeen, ConnId, Ended, Event, Output, Purpose, StreamKey, Turn};
use super::outcome::Loss;
use super::posts::Post;
use super::streams::{self, Phase as StreamPhase};
use super::{CallId, Client};
use crate::http::{AnswerBody, AnswerHead, AnswerReader, BadAnswer};
use crate::sse::Decoder;
use crate::time::Instant;

/// A connection.
#[derive(Debug)]
pub(super) struct Conn {
    pub id: ConnId,
    phase: Phase,
    errand: Errand,
    /// When what it waits for is too late.
    pub deadline: Option<Instant>,
}

/// What a connection was sent for.
#[derive(Debug)]
pub(super) enum Errand {
    Initialize,
    Call(CallId),
    Resume(StreamKey),
    Post(Box<Post>),
    End,
    /// Nothing: it is idle.
    None,
}

#[derive(Debug)]
enum Phase {
    /// Not there yet; what to send then.
    Opening(Bytes),
    /// The request went out.
    Head(AnswerReader),
    /// A body that is read as a whole.
    Body(Box<Body>),
    /// Events.
    Events(Box<Events>),
    /// Kept for the next request.
    Idle,
    /// Its bytes are being looked at.
    Busy,
}

#[derive(Debug)]
struct Body {
    head: AnswerHead,
    reader: AnswerBody,
    bytes: Vec<u8>,
}

#[derive(Debug)]
struct Events {
    reader: AnswerBody,
    decoder: Decoder,
    keep_alive: bool,
}

impl Errand {
    /// What a connection with it is used for; `None` while idle.
    pub(super) fn purpose(&self) -> Option<Purpose> {
        Some(match self {
            Self::Initialize => Purpose::Initialize,
            Self::Call(call) => Purpose::Call(*call),
            Self::Resume(stream) => Purpose::Resume(*stream),
            Self::Post(post) => post.purpose(),
            Self::End => Purpose::End,
            Self::None => return None,
        })
    }

    /// The stream that its answer belongs to.
    pub(super) fn stream(&self) -> Option<StreamKey> {
        match self {
            Self::Initialize => Some(StreamKey::Call(CallId::INITIALIZE)),
            Self::Call(call) => Some(StreamKey::Call(*call)),
            Self::Resume(stream) => Some(*stream),
            Self::Post(_) | Self::End | Self::None => None,
        }
    }
}

impl Conn {
    /// What it is used for; `None` while idle.
    pub(super) fn purpose(&self) -> Option<Purpose> {
        self.errand.purpose()
    }

    /// Whether it waits for the next request.
    pub(super) fn is_idle(&self) -> bool {
        matches!(self.phase, Phase::Idle)
    }

    /// Whether it carries a message that is no call.
    pub(super) fn posts(&self) -> bool {
        matches!(self.errand, Errand::Post(_))
    }
}

impl Client {
    fn conn_mut(&mut self, id: ConnId) -> Option<&mut Conn> {
        self.conns.iter_mut().find(|conn| conn.id == id)
    }

    /// Whether nothing of the connection's request has left.
    pub(super) fn is_opening(&self, id: ConnId) -> bool {
        self.conns.iter().any(|conn| conn.id == id && matches!(conn.phase, Phase::Opening(_)))
    }

    /// Changes when a connection is too late.
    pub(super) fn set_deadline(&mut self, id: ConnId, deadline: Option<Instant>) {
        if let Some(conn) = self.conn_mut(id) {
            conn.deadline = deadline;
        }
    }

    /// Sends a request on an idle connection, or on a new one.
    pub(super) fn send(&mut self, errand: Errand, bytes: Bytes, turn: &mut Turn<'_>) -> ConnId {
        let sent_by = self.sent_deadline(&errand, turn.now);
        if let Some(conn) = self.conns.iter_mut().find(|conn| conn.is_idle()) {
            (conn.phase, conn.errand, conn.deadline) = (Phase::Head(AnswerReader::default()), errand, sent_by);
            turn.out.push(Output::Send { conn: conn.id, bytes });
            return conn.id;
        }
        let id = ConnId(self.next_conn);
        self.next_conn = self.next_conn.wrapping_add(1);
        let deadline = Some(turn.now + self.config.limits.connect_timeout);
        self.conns.push(Conn { id, phase: Phase::Opening(bytes), errand, deadline });
        turn.out.push(Output::Open { conn: id });
        id
    }

    /// When the answer to a request is too late. A call's may take as long as the call.
    fn sent_deadline(&self, errand: &Errand, now: Instant) -> Option<Instant> {
        (!matches!(errand, Errand::Call(_))).then(|| now + self.config.limits.answer_timeout)
    }

    pub(super) fn opened(&mut self, id: ConnId, turn: &mut Turn<'_>) {
        let Some(at) = self.conns.iter().position(|conn| conn.id == id) else { return };
        let deadline = self.sent_deadline(&self.conns[at].errand, turn.now);
        let conn = &mut self.conns[at];
        if !matches!(conn.phase, Phase::Opening(_)) {
            return;
        }
        if let Phase::Opening(bytes) = std::mem::replace(&mut conn.phase, Phase::Head(AnswerReader::default())) {
            conn.deadline = deadline;
            turn.out.push(Output::Send { conn: id, bytes });
        }
    }

    pub(super) fn received(&mut self, id: ConnId, mut bytes: &[u8], turn: &mut Turn<'_>) {
        loop {
            let Some(conn) = self.conn_mut(id) else { return };
            match std::mem::replace(&mut conn.phase, Phase::Busy) {
                // A server that speaks unasked may mean a request that it has not read: nothing on it can be told apart.
                Phase::Idle | Phase::Busy => return self.close(id, turn),
                Phase::Opening(request) => return conn.phase = Phase::Opening(request),
                Phase::Head(mut reader) => match reader.read(bytes, self.config.limits.head_bytes) {
                    Err(bad) => return self.unreadable(id, bad, turn),
                    Ok(None) => return self.put_back(id, Phase::Head(reader)),
                    Ok(Some((head, taken))) => {
                        bytes = &bytes[taken..];
                        match self.head(id, head, turn) {
                            Err(bad) => return self.unreadable(id, bad, turn),
                            Ok(phase) => self.put_back(id, phase),
                        }
                    }
                },
                Phase::Body(mut body) => match body.reader.read(bytes, &mut body.bytes) {
                    Err(bad) => return self.unreadable_body(id, &body, bad, turn),
                    Ok(progress) if progress.done => {
                        return self.body_whole(id, *body, progress.consumed == bytes.len(), turn);
                    }
                    Ok(_) => return self.put_back(id, Phase::Body(body)),
                },
                Phase::Events(events) => return self.events(id, events, bytes, turn),
            }
            if bytes.is_empty() && matches!(self.conn_mut(id), Some(Conn { phase: Phase::Head(_), .. })) {
                return;
            }
        }
    }

    fn put_back(&mut self, id: ConnId, phase: Phase) {
        if let Some(conn) = self.conn_mut(id) {
            conn.phase = phase;
        }
    }

    /// A head is whole: how its body is to be read.
    fn head(&mut self, id: ConnId, head: AnswerHead, turn: &mut Turn<'_>) -> Result<Phase, BadAnswer> {
        let status = head.status();
        // RFC 9110, section 15.2: "A client MUST be able to parse one or more 1xx responses received prior to a final response"
        if matches!(status, 100 | 102..=199) {
            return Ok(Phase::Head(AnswerReader::default()));
        }
        let Some((to, stream)) = self.conn_mut(id).and_then(|conn| Some((conn.purpose()?, conn.errand.stream()))) else {
            return Err(BadAnswer::Malformed("An answer to nothing"));
        };
        let events = stream.is_some() && status == 200 && head.content_is("text/event-stream");
        turn.observer.head(&AnswerSeen { conn: id, to, status, verdict: head.text("rejoin-verdict"), events });
        let limits = &self.config.limits;
        if to == Purpose::Initialize && status == 200 {
            self.session = head
                .single("mcp-session-id")
                .map_err(|_| BadAnswer::Malformed("Several session ids"))?
                .map(|id| {
                    usable_session_id(id, limits.id_bytes).ok_or(BadAnswer::Malformed("The session id is no visible ASCII"))
                })
                .transpose()?;
        }
        if events {
            let reader = AnswerBody::new(head.framing(), &limits.reading(usize::MAX))?;
            let decoder = Decoder::new(limits.event_bytes);
            let silence = limits.silence.map(|silence| turn.now + silence);
            self.set_deadline(id, silence);
            if let Purpose::Resume(key) = to
                && let Some(stream) = self.stream_mut(key)
            {
                stream.attached(id);
                turn.event(Event::Attached { stream: key, conn: id });
            }
            return Ok(Phase::Events(Box::new(Events { reader, decoder, keep_alive: head.keep_alive() })));
        }
        let wanted = is_wanted(to, status);
        let room = if wanted { limits.answer_bytes } else { limits.refusal_bytes };
        let reader = AnswerBody::new(head.framing(), &limits.reading(room));
        match reader {
            Ok(reader) => Ok(Phase::Body(Box::new(Body { head, reader, bytes: Vec::new() }))),
            Err(bad) if wanted => Err(bad),
            // What the status says is certain, whatever its page says.
            Err(_) => {
                let reader = AnswerBody::new(crate::http::AnswerFraming::UntilClose, &limits.reading(0))?;
                Ok(Phase::Body(Box::new(Body { head, reader, bytes: Vec::new() })))
            }
        }
    }

    /// The request is answered: the connection is kept for the next one, or closed.
    fn release(&mut self, id: ConnId, keep: bool, turn: &mut Turn<'_>) -> Errand {
        let idle_until = turn.now + self.config.limits.reuse;
        let room = self.conns.iter().filter(|conn| conn.is_idle()).count() < self.config.limits.idle;
        let Some(conn) = self.conn_mut(id) else { return Errand::None };
        let errand = std::mem::replace(&mut conn.errand, Errand::None);
        if keep && room {
            (conn.phase, conn.deadline) = (Phase::Idle, Some(idle_until));
        } else {
            self.close(id, turn);
        }
        if let Some(stream) = errand.stream().and_then(|key| self.stream_mut(key)) {
            stream.loosen();
        }
        errand
    }

    fn body_whole(&mut self, id: ConnId, body: Body, alone: bool, turn: &mut Turn<'_>) {
        let errand = self.release(id, alone && body.head.keep_alive(), turn);
        self.answered(errand, &Whole::new(&body.head, &body.bytes), turn);
    }

    /// Bytes of a stream.
    fn events(&mut self, id: ConnId, mut events: Box<Events>, bytes: &[u8], turn: &mut Turn<'_>) {
        let Some(key) = self.conn_mut(id).and_then(|conn| conn.errand.stream()) else { return };
        let mut decoded = Vec::with_capacity(bytes.len());
        let read = events.reader.read(bytes, &mut decoded);
        let mut stop = false;
        let items = events.decoder.push_items(&decoded, |item| {
            if let Some(seen) = streams::seen(id, key, item) {
                turn.observer.event(&seen);
                stop = stop || self.item(&seen, turn);
            }
        });
        if stop {
            return self.close(id, turn);
        }
        if let (Some(retry), Some(stream)) = (events.decoder.retry(), self.stream_mut(key)) {
            stream.retry = Some(retry);
        }
        match (read, items) {
            (Err(bad), _) => self.unreadable(id, bad, turn),
            (_, Err(_)) => self.unreadable(id, BadAnswer::TooLarge, turn),
            (Ok(progress), Ok(())) if progress.done => {
                self.release(id, events.keep_alive && progress.consumed == bytes.len(), turn);
                self.lost(key, Loss::CleanEnd, None, turn);
            }
            (Ok(_), Ok(())) => {
                let silence = self.config.limits.silence.map(|silence| turn.now + silence);
                let answered = key.call().is_some_and(|call| self.unanswered(call).is_none());
                self.put_back(id, Phase::Events(events));
                if !answered {
                    self.set_deadline(id, silence);
                }
            }
        }
    }

    /// What came is no answer.
    fn unreadable(&mut self, id: ConnId, bad: BadAnswer, turn: &mut Turn<'_>) {
        let errand = self.release(id, false, turn);
        self.errand_lost(errand, Loss::Unreadable(bad), true, turn);
    }

    /// The same of a body behind a head that was.
    fn unreadable_body(&mut self, id: ConnId, body: &Body, bad: BadAnswer, turn: &mut Turn<'_>) {
        let to = self.conn_mut(id).and_then(|conn| conn.purpose());
        if to.is_none_or(|to| is_wanted(to, body.head.status())) {
            return self.unreadable(id, bad, turn);
        }
        let errand = self.release(id, false, turn);
        self.answered(errand, &Whole::new(&body.head, b""), turn);
    }

    pub(super) fn conn_ended(&mut self, id: ConnId, how: Ended, turn: &mut Turn<'_>) {
        let Some(at) = self.conns.iter().position(|conn| conn.id == id) else { return };
        let conn = self.conns.swap_remove(at);
        if let Some(stream) = conn.errand.stream().and_then(|key| self.stream_mut(key)) {
            stream.loosen();
        }
        match conn.phase {
            Phase::Idle | Phase::Busy => {}
            Phase::Opening(_) => self.errand_lost(conn.errand, Loss::Unreachable, false, turn),
            Phase::Body(body) if how == Ended::Fin && body.reader.ends_with_connection() => {
                self.answered(conn.errand, &Whole::new(&body.head, &body.bytes), turn);
            }
            // A refused call stays refused, whatever became of the page that says so. A return is simply made again.
            Phase::Body(body) if body.head.status() != 200 && posts_call(&conn.errand) => {
                self.answered(conn.errand, &Whole::new(&body.head, b""), turn);
            }
            Phase::Events(events) if how == Ended::Fin && events.reader.ends_with_connection() => {
                self.errand_lost(conn.errand, Loss::CleanEnd, true, turn);
            }
            Phase::Head(_) | Phase::Body(_) | Phase::Events(_) => self.errand_lost(conn.errand, Loss::Cut(how), true, turn),
        }
    }

    /// A connection's deadline came.
    pub(super) fn conn_timed_out(&mut self, id: ConnId, turn: &mut Turn<'_>) {
        let sent = !self.is_opening(id);
        let errand = self.release(id, false, turn);
        self.errand_lost(errand, Loss::Timeout, sent, turn);
    }
}

/// Whether an answer's body is what was asked for, and not a page beside its status.
fn is_wanted(to: Purpose, status: u16) -> bool {
    status == 200 && matches!(to, Purpose::Initialize | Purpose::Call(_))
}

fn posts_call(errand: &Errand) -> bool {
    matches!(errand, Errand::Initialize | Errand::Call(_))
}

/// 2025-11-25, transports, "Session Management": "The session ID MUST only contain visible ASCII characters (ranging from 0x21 to 0x7E)."
pub(super) fn usable_session_id(id: &[u8], max_bytes: usize) -> Option<Box<str>> {
    let usable = !id.is_empty() && id.len() <= max_bytes && id.iter().all(|byte| matches!(byte, b'!'..=b'~'));
    std::str::from_utf8(id).ok().filter(|_| usable).map(Into::into)
}

/// Where a stream's connection stands, told from the connection's side.
impl StreamPhase {
    /// The connection that carries it, or that asks for it.
    pub(super) fn conn(self) -> Option<ConnId> {
        match self {
            Self::Attached(conn) | Self::Asking(conn) => Some(conn),
            Self::Waiting(_) | Self::Loose => None,
        }
    }
}
