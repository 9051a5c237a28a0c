//! One session's life: its incarnation, its streams, the calls in flight and the requests to the client.
//!
//! Never touches a connection's bytes; knows connections only by name, as those attached to a stream.

use std::collections::VecDeque;
use std::time::Duration;

use smallvec::SmallVec;

use crate::eventlog::{EventLog, RingId};
use crate::ids::{CallId, ClientRequestId, ConnId, Incarnation, Position, Principal, SessionId, StreamNumber};
use crate::keyed::KeyHash;
use crate::lists;
use crate::mcp::{CallIds, Id, ListChanged, Revision};
use crate::resume::{self, Following, Reach};
use crate::time::Instant;
use crate::wheel::Timer;

/// A session as its shard keeps it.
#[derive(Debug)]
pub struct Session {
    /// Its name.
    pub id: SessionId,
    /// Whose it is.
    pub principal: Principal,
    /// Its present life.
    pub incarnation: Incarnation,
    /// The negotiated revision; `None` until `initialize` is answered.
    pub revision: Option<Revision>,
    /// Whether `notifications/initialized` came.
    pub confirmed: bool,
    /// When it was last used.
    pub last_active: Instant,
    /// The streams of this life that are not forgotten, by number; the standalone one is first.
    streams: VecDeque<Stream>,
    /// Finished streams, oldest first.
    finished: VecDeque<StreamNumber>,
    next_stream: u32,
    /// Calls in flight, oldest first.
    pub calls: Vec<Call>,
    /// Requests to the client not yet answered.
    pub requests: Vec<ClientRequest>,
    /// The request ids that this session has seen.
    pub ids: CallIds,
    /// Resources that the client subscribed to.
    pub subscriptions: Vec<Box<str>>,
    /// Which lists it was told may change.
    pub list_changed: ListChanged,
    /// Connections attached to its streams.
    pub attached: u32,
    /// The last event of the standalone stream that a connection has brought to a client, or a client has shown that it has.
    pub written: Position,
    /// Its idle timer.
    pub timer: Option<Timer>,
}

/// A stream of the present life. What only those who read it need is apart, since most streams are finished and nobody reads them.
#[derive(Debug)]
pub struct Stream {
    /// Its number.
    pub number: StreamNumber,
    /// Its events; none before the first, and none once a finished stream holds nothing any more.
    pub ring: Option<RingId>,
    /// Where it stands while it has no ring.
    pub beyond: Position,
    /// The calls that it answers, in the order of the request.
    pub answers: SmallVec<[Answer; 1]>,
    /// Whether nothing more will be said.
    pub finished: bool,
    /// Whether a batch began it.
    pub batch: bool,
    /// Whether only results can reach the client on it.
    pub json_only: bool,
    readers: Option<Box<Readers>>,
}

/// Connections attached to a stream: at most one GET, and the POSTs of its call.
pub type Attached = SmallVec<[ConnId; 4]>;

/// Who reads a stream, and what that needs.
#[derive(Debug, Default)]
struct Readers {
    attached: Attached,
    /// Requests to the client: where they stand, and whether they were answered.
    asked: Vec<(Position, ClientRequestId, bool)>,
    /// Takeovers, one within the window of the other, and when the last one was.
    takeovers: u32,
    taken_over: Option<Instant>,
}

/// A call that a stream answers: kept as long as the stream's tombstone.
#[derive(Debug)]
pub struct Answer {
    /// The client's id.
    pub id: Id,
    /// What became of it.
    pub state: AnswerState,
}

/// What became of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AnswerState {
    /// In flight, under this name.
    Pending(CallId),
    /// Its result or error has this position.
    At(Position),
    /// It was cancelled: no answer will come.
    Cancelled,
}

/// A call in flight.
#[derive(Debug)]
pub struct Call {
    /// Its name.
    pub call: CallId,
    /// The stream that answers it.
    pub stream: StreamNumber,
    /// The client's id.
    pub id: Id,
    /// The client's progress token.
    pub token: Option<Id>,
    /// What its success changes in the session.
    pub effect: Effect,
    /// When it began.
    pub begun: Instant,
    /// Its maximum age.
    pub timer: Timer,
    /// The idempotency key whose record waits for it, or under which it waits.
    pub keyed: Option<KeyHash>,
}

/// What a call's success changes in its session.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing.
    None,
    /// It begins the session.
    Initialize,
    /// It subscribes to a resource.
    Subscribe(Box<str>),
    /// It ends a subscription.
    Unsubscribe(Box<str>),
    /// It is a stream of changes (`subscriptions/listen`): what is said on it names it, and it may end without a result.
    Listen,
}

/// A request to the client that is not answered yet.
#[derive(Debug)]
pub struct ClientRequest {
    /// Its name, and its JSON-RPC id.
    pub request: ClientRequestId,
    /// The stream that it was sent on.
    pub stream: StreamNumber,
    /// Where it stands there.
    pub position: Position,
    /// Its maximum age.
    pub timer: Timer,
}

impl Stream {
    fn new(number: StreamNumber) -> Self {
        Self {
            number,
            ring: None,
            beyond: Position::START,
            answers: SmallVec::new(),
            finished: false,
            batch: false,
            json_only: false,
            readers: None,
        }
    }

    // ---- who reads it ----

    /// Connections attached to it.
    pub fn attached(&self) -> &[ConnId] {
        self.readers.as_ref().map_or(&[], |readers| &readers.attached)
    }

    fn readers(&mut self) -> &mut Readers {
        self.readers.get_or_insert_default()
    }

    /// Attaches a connection.
    pub fn attach(&mut self, conn: ConnId) {
        self.readers().attached.push(conn);
    }

    /// Takes a connection off it.
    pub fn detach(&mut self, conn: ConnId) {
        let Some(readers) = &mut self.readers else { return };
        readers.attached.retain(|attached| *attached != conn);
        if readers.attached.is_empty() && readers.asked.is_empty() && readers.taken_over.is_none() {
            self.readers = None;
        }
    }

    /// Counts a takeover: how many came before it, each within the window of the next, up to 16.
    pub fn count_takeover(&mut self, now: Instant, window: Duration) -> u32 {
        let readers = self.readers();
        let again = readers.taken_over.is_some_and(|last| now.since(last) < window);
        readers.takeovers = if again { (readers.takeovers + 1).min(16) } else { 0 };
        readers.taken_over = Some(now);
        readers.takeovers
    }

    /// Remembers where it asked the client something, for reposts that join it.
    pub fn ask(&mut self, position: Position, request: ClientRequestId, log: &EventLog) {
        let ring = self.ring;
        let asked = &mut self.readers().asked;
        // What is answered and gone is no longer left out of anything: forgotten whenever the list would double.
        if asked.len() == asked.capacity()
            && let Some(ring) = ring
        {
            asked.retain(|&(at, _, answered)| !answered || log.holds(ring, at));
        }
        asked.push((position, request, false));
    }

    /// A request to the client on it was answered.
    pub fn answer_asked(&mut self, request: ClientRequestId) {
        let asked = self.readers.iter_mut().flat_map(|readers| &mut readers.asked);
        asked.filter(|(_, one, _)| *one == request).for_each(|entry| entry.2 = true);
    }

    fn asked(&self) -> &[(Position, ClientRequestId, bool)] {
        self.readers.as_ref().map_or(&[], |readers| &readers.asked)
    }

    /// Whether it asked the client anything.
    pub fn has_asked(&self) -> bool {
        !self.asked().is_empty()
    }

    /// Whether the event at `position` is a request to the client that was answered.
    pub fn asked_and_answered(&self, position: Position) -> bool {
        self.asked().iter().any(|&(at, _, answered)| at == position && answered)
    }

    // ---- what it says ----

    /// The last event issued.
    pub fn last(&self, log: &EventLog) -> Position {
        self.ring.map_or(self.beyond, |ring| log.last(ring))
    }

    /// The first event after `position` that can be delivered: one that is held, or the stand-in for a lost result.
    fn following(&self, log: &EventLog, position: Position) -> Option<Following> {
        let held = self.ring.and_then(|ring| log.next_held(ring, position));
        let lost = self
            .answers
            .iter()
            .filter_map(|answer| match answer.state {
                AnswerState::At(at) if at > position && !self.ring.is_some_and(|ring| log.holds(ring, at)) => Some(at),
                _ => None,
            })
            .min();
        match (held, lost) {
            (Some(held), Some(lost)) if lost < held => Some(Following { position: lost, stand_in: true }),
            (Some(held), _) => Some(Following { position: held, stand_in: false }),
            (None, Some(lost)) => Some(Following { position: lost, stand_in: true }),
            (None, None) => None,
        }
    }

    /// How far the stream goes, as seen from `position`.
    pub fn reach(&self, log: &EventLog, position: Position) -> Reach {
        let following = self.following(log, position);
        // What was written is its session's to say.
        Reach { last: self.last(log), following, finished: self.finished, written: Position::START }
    }

    /// A call that it answers is over.
    pub fn answer(&mut self, call: CallId, state: AnswerState) {
        if let Some(answer) = self.answers.iter_mut().find(|answer| answer.state == AnswerState::Pending(call)) {
            answer.state = state;
        }
    }

    /// The id of the call whose answer stands at `position`.
    pub fn answered_at(&self, position: Position) -> Option<&Id> {
        self.answers.iter().find(|answer| answer.state == AnswerState::At(position)).map(|answer| &answer.id)
    }

    /// Whether every call that it answers is over.
    pub fn complete(&self) -> bool {
        !self.answers.is_empty() && self.answers.iter().all(|answer| !matches!(answer.state, AnswerState::Pending(_)))
    }

    /// Whether its events are exactly its results, each of them: such a stream can be one JSON body.
    pub fn only_results(&self, log: &EventLog) -> bool {
        self.answers.iter().all(|answer| matches!(answer.state, AnswerState::At(_))) && self.only_results_so_far(log)
    }

    /// Whether nothing but results was said so far.
    pub fn only_results_so_far(&self, log: &EventLog) -> bool {
        let results = self.answers.iter().filter(|answer| matches!(answer.state, AnswerState::At(_))).count();
        self.last(log).get() == results as u64
    }
}

impl Session {
    /// A session whose `initialize` is being answered.
    pub fn new(id: SessionId, principal: Principal, ids: CallIds, now: Instant) -> Self {
        Self {
            id,
            principal,
            incarnation: Incarnation::FIRST,
            revision: None,
            confirmed: false,
            last_active: now,
            streams: VecDeque::from([Stream::new(StreamNumber::STANDALONE)]),
            finished: VecDeque::new(),
            next_stream: 1,
            calls: Vec::new(),
            requests: Vec::new(),
            ids,
            subscriptions: Vec::new(),
            list_changed: ListChanged::default(),
            attached: 0,
            written: Position::START,
            timer: None,
        }
    }

    /// One request without a session, with its answer: it lives as long as its stream has a connection, and no client can name it.
    pub fn exchange(id: SessionId, principal: Principal, revision: Revision, ids: CallIds, now: Instant) -> Self {
        let mut exchange = Self::new(id, principal, ids, now);
        exchange.revision = Some(revision);
        exchange.streams.clear();
        exchange
    }

    /// Whether it is one request without a session.
    pub fn is_exchange(&self) -> bool {
        self.revision.is_some_and(|revision| !revision.rules().sessions)
    }

    /// The client's id of the `subscriptions/listen` that it is, if it is one.
    pub fn listen(&self) -> Option<&Id> {
        self.calls.iter().find(|call| call.effect == Effect::Listen).map(|call| &call.id)
    }

    /// Begins a stream. `None` when this life has had 2³² − 1 of them.
    pub fn begin_stream(&mut self) -> Option<&mut Stream> {
        let number = StreamNumber(self.next_stream);
        self.next_stream = self.next_stream.checked_add(1)?;
        lists::push(&mut self.streams, Stream::new(number));
        self.streams.back_mut()
    }

    /// The number that the next stream will have.
    pub fn next_stream(&self) -> StreamNumber {
        StreamNumber(self.next_stream)
    }

    fn index(&self, number: StreamNumber) -> Option<usize> {
        self.streams.binary_search_by_key(&number, |stream| stream.number).ok()
    }

    /// A stream of this life, unless it was never begun or is forgotten.
    pub fn stream(&self, number: StreamNumber) -> Option<&Stream> {
        self.index(number).map(|index| &self.streams[index])
    }

    /// The same, to change.
    pub fn stream_mut(&mut self, number: StreamNumber) -> Option<&mut Stream> {
        self.index(number).map(|index| &mut self.streams[index])
    }

    /// All streams that are not forgotten.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.streams.iter()
    }

    /// The state of a stream as `resume::decide` wants it, seen from `position`.
    pub fn retained(&self, log: &EventLog, number: StreamNumber, position: Option<Position>) -> resume::Retained {
        let stream = match self.stream(number) {
            Some(stream) => {
                let reach = stream.reach(log, position.unwrap_or(self.written));
                resume::Stream::Known(Reach { written: self.written, ..reach })
            }
            None if number.0 < self.next_stream => resume::Stream::Forgotten,
            None => resume::Stream::NeverBegun,
        };
        resume::Retained { incarnation: self.incarnation, stream }
    }

    /// A stream finished: its tombstone is kept until `forget`.
    pub fn retire(&mut self, number: StreamNumber) {
        self.finished.push_back(number);
    }

    /// Forgets a finished stream where `bound` younger ones are kept. One that is still being read is passed over: its readers
    /// are owed its end, and they are few.
    pub fn forget(&mut self, bound: usize) -> Option<Stream> {
        let over = self.finished.len().saturating_sub(bound);
        let unread = |number: &StreamNumber| self.stream(*number).is_none_or(|stream| stream.attached().is_empty());
        let oldest = self.finished.iter().take(over).position(unread)?;
        let number = self.finished.remove(oldest)?;
        let forgotten = self.index(number).and_then(|index| self.streams.remove(index));
        lists::tighten(&mut self.streams);
        forgotten
    }

    /// Ends this life: takes its streams, and begins the next one with a standalone stream. `None` when there is no next life.
    pub fn rotate(&mut self) -> Option<VecDeque<Stream>> {
        self.incarnation = self.incarnation.next()?;
        self.finished.clear();
        self.next_stream = 1;
        self.written = Position::START;
        self.ids.rotate();
        Some(std::mem::replace(&mut self.streams, VecDeque::from([Stream::new(StreamNumber::STANDALONE)])))
    }

    /// Takes its streams, for good.
    pub fn take_streams(&mut self) -> VecDeque<Stream> {
        std::mem::take(&mut self.streams)
    }

    /// Events of a stream up to `last` have come to a client. On the standalone stream that is kept.
    pub fn brought(&mut self, number: StreamNumber, last: Position) {
        if number == StreamNumber::STANDALONE {
            self.written = self.written.max(last);
        }
    }

    /// Puts a call in flight.
    pub fn begin_call(&mut self, call: Call) {
        lists::push(&mut self.calls, call);
    }

    /// A call in flight.
    pub fn call(&self, call: CallId) -> Option<&Call> {
        self.calls.binary_search_by_key(&call, |one| one.call).ok().map(|index| &self.calls[index])
    }

    /// The same, to change.
    pub fn call_mut(&mut self, call: CallId) -> Option<&mut Call> {
        self.calls.binary_search_by_key(&call, |one| one.call).ok().map(|index| &mut self.calls[index])
    }

    /// Takes a call out of flight.
    pub fn take_call(&mut self, call: CallId) -> Option<Call> {
        let index = self.calls.binary_search_by_key(&call, |one| one.call).ok()?;
        let taken = self.calls.remove(index);
        lists::tighten(&mut self.calls);
        Some(taken)
    }

    /// Takes a request to the client off the list of those not yet answered.
    pub fn take_request(&mut self, request: ClientRequestId) -> Option<ClientRequest> {
        let index = self.requests.iter().position(|one| one.request == request)?;
        let taken = self.requests.swap_remove(index);
        lists::tighten(&mut self.requests);
        Some(taken)
    }

    /// Whether nothing holds it but its time to live.
    pub fn is_idle(&self) -> bool {
        self.calls.is_empty() && self.attached == 0
    }
}
