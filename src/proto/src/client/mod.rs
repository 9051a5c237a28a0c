//! The client's half of the boundary: one session of an MCP client that is cut off and comes back, as a function of its inputs.
//!
//! Never sends a call twice, never accepts a stream that does not continue what it holds, and never does I/O, asks the time or draws a
//! random number. A call that the machine takes gets exactly one [`Outcome`]; whatever can no longer be known is [`Outcome::Unknown`].
//!
//! A call is one POST and has a stream of its own: its answer is one JSON body, or events, of which the last is the answer. Where the
//! connection is lost before that, the machine waits as long as the server's `retry` says and asks by GET for what follows the last event
//! id that it saw; without an id the outcome is unknown. Every event is judged by `lineage` before anything of it is believed.
//!
//! A session costs a few hundred bytes while idle, and no buffer: those belong to answers that are being read.
//!
//! ```
//! use std::sync::Arc;
//! use rejoin_proto::client::{Client, Config, Input, Output, Turn};
//! use rejoin_proto::time::Instant;
//!
//! let mut client = Client::new(Arc::new(Config::new("localhost:8080", "/mcp")));
//! let mut out = Vec::new();
//! client.handle(Input::Start, &mut Turn { now: Instant::ORIGIN, random: &mut || 4, observer: &mut (), out: &mut out });
//! let [Output::Open { conn }, Output::WakeAt(_)] = out[..] else { panic!() };
//!
//! out.clear();
//! client.handle(Input::Opened { conn }, &mut Turn { now: Instant::ORIGIN, random: &mut || 4, observer: &mut (), out: &mut out });
//! let Some(Output::Send { bytes, .. }) = out.first() else { panic!() };
//! assert!(bytes.starts_with(b"POST /mcp HTTP/1.1\r\nHost: localhost:8080\r\n"));
//! ```

mod answers;
mod config;
mod conn;
mod io;
mod lineage;
mod messages;
mod outcome;
mod posts;
mod streams;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

pub use config::{BadConfig, Config, Limits, Returns};
pub use io::{
    AnswerSeen, BodySeen, CallId, CallOptions, ConnId, Ended, Event, EventSeen, Input, NotTaken, Observer, Output, Purpose,
    RequestKey, StreamKey, Turn,
};
pub use outcome::{CallError, Failure, Gap, Loss, Outcome, Refused, StartError, StreamEnd, Undelivered, Unknown, Violation};

use crate::ids::Incarnation;
use crate::mcp::{Id, Revision};
use crate::time::Instant;
use conn::{Conn, Errand};
use posts::Post;
use streams::{Phase, Stream};

/// Where a session stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// Not begun.
    New,
    /// `initialize` is under way.
    Initializing,
    /// `initialize` is answered, and the server is being told that the client knows.
    Confirming,
    /// Calls are taken.
    Ready,
    /// The session is being ended at the server.
    Ending,
    /// Over: nothing is said any more.
    Ended,
}

/// A call without its end.
#[derive(Debug)]
struct Call {
    id: CallId,
    /// When its outcome counts as unknown.
    gives_up: Instant,
    /// Its outcome was told; what is left is the end of its stream.
    told: bool,
    stream: Stream,
}

/// A request of the server that waits for the caller.
#[derive(Debug)]
struct Asked {
    key: RequestKey,
    id: Id,
}

/// One session.
pub struct Client {
    config: Arc<Config>,
    state: State,
    session: Option<Box<str>>,
    revision: Option<Revision>,
    /// The latest life of the session that an id has named.
    life: Option<Incarnation>,
    next_conn: u32,
    /// Numbers below it were never this machine's.
    first_call: u64,
    next_call: u64,
    next_request: u64,
    conns: Vec<Conn>,
    standalone: Option<Box<Stream>>,
    /// In order of their numbers.
    calls: Vec<Call>,
    asked: Vec<Asked>,
    /// Messages whose next attempt waits.
    posts: Vec<Post>,
    /// What the shell was last asked.
    wake: Option<Instant>,
}

/// What a stream looks like from outside.
#[derive(Clone, Copy, Debug)]
pub struct StreamView<'a> {
    /// Which.
    pub stream: StreamKey,
    /// The connection that carries it, or that asks for it.
    pub conn: Option<ConnId>,
    /// The id that it would come back with.
    pub last_id: Option<&'a str>,
    /// When it will be asked for.
    pub returns_at: Option<Instant>,
    /// What the server last said of how long to wait.
    pub retry: Option<Duration>,
    /// Attempts that failed in a row.
    pub failures: u32,
}

impl Client {
    /// A session that has not begun.
    pub fn new(config: Arc<Config>) -> Self {
        Self::numbering_from(config, CallId(1))
    }

    /// The same, whose first call has this number: for one who must tell apart the calls of many machines. Not 0, and no more than JSON
    /// carries everywhere: 2⁵³.
    pub fn numbering_from(config: Arc<Config>, first: CallId) -> Self {
        let first = first.0.max(1);
        Self {
            config,
            state: State::New,
            session: None,
            revision: None,
            life: None,
            next_conn: 0,
            first_call: first,
            next_call: first,
            next_request: 0,
            conns: Vec::new(),
            standalone: None,
            calls: Vec::new(),
            asked: Vec::new(),
            posts: Vec::new(),
            wake: None,
        }
    }

    /// Where the session stands.
    pub fn state(&self) -> State {
        self.state
    }

    /// Its id, where the server gave one.
    pub fn session_id(&self) -> Option<&str> {
        self.session.as_deref()
    }

    /// What was settled on.
    pub fn revision(&self) -> Option<Revision> {
        self.revision
    }

    /// Its streams: the standalone one and those of calls.
    pub fn streams(&self) -> impl Iterator<Item = StreamView<'_>> {
        let standalone = self.standalone.iter().map(|stream| (StreamKey::Standalone, &**stream));
        let calls = self.calls.iter().map(|call| (StreamKey::Call(call.id), &call.stream));
        standalone.chain(calls).map(|(key, stream)| stream.view(key))
    }

    /// Calls that have no outcome yet.
    pub fn calls_in_flight(&self) -> impl Iterator<Item = CallId> {
        self.calls.iter().filter(|call| !call.told && call.id != CallId::INITIALIZE).map(|call| call.id)
    }

    /// Takes one input; everything that follows from it goes to `turn.out`.
    pub fn handle(&mut self, input: Input<'_>, turn: &mut Turn<'_>) {
        match input {
            Input::Start => self.start(turn),
            Input::TakeUp { session, revision, call, last_id } => self.take_up(session, revision, call, last_id, turn),
            Input::Opened { conn } => self.opened(conn, turn),
            Input::Received { conn, bytes } => self.received(conn, bytes, turn),
            Input::Ended { conn, how } => self.conn_ended(conn, how, turn),
            Input::Call { method, params, options } => {
                let at = turn.out.len();
                let took = self.call(method, params, options, turn);
                turn.out.insert(at, Output::Took(took));
            }
            Input::Notify { method, params } => self.notify(method, params, turn),
            Input::Answer { request, outcome } => self.answer(request, outcome, turn),
            Input::Cancel { call, reason } => self.cancel(call, reason, turn),
            Input::Abandon { call } => {
                self.abandon(call, turn);
            }
            Input::Return { stream, at } => self.return_at(stream, at),
            Input::Listen => self.listen(turn),
            Input::End => self.end(turn),
            Input::TimePassed => self.wake = None,
        }
        self.pass_time(turn);
        self.ask_to_wake(turn);
    }

    fn start(&mut self, turn: &mut Turn<'_>) {
        if self.state != State::New {
            return;
        }
        self.state = State::Initializing;
        let request = self.initialize_request();
        let stream = Stream::new(StreamKey::Call(CallId::INITIALIZE));
        // `initialize` has the time of an answer, not of a call.
        let gives_up = turn.now + self.config.limits.call_max_age;
        self.calls.push(Call { id: CallId::INITIALIZE, gives_up, told: false, stream });
        let conn = self.send(Errand::Initialize, request, turn);
        self.attach(StreamKey::Call(CallId::INITIALIZE), conn);
    }

    fn take_up(&mut self, session: Option<&str>, revision: Revision, call: CallId, last_id: &str, turn: &mut Turn<'_>) {
        if self.state != State::New {
            return;
        }
        let session = session.map(|id| conn::usable_session_id(id.as_bytes(), self.config.limits.id_bytes));
        if call == CallId::INITIALIZE
            || matches!(session, Some(None))
            || !(revision.rules().sessions && revision.rules().streamable)
        {
            return self.fail(StartError::Answer("There is no such session to take up"), turn);
        }
        (self.state, self.session, self.revision) = (State::Ready, session.flatten(), Some(revision));
        (self.first_call, self.next_call) = (call.0, call.0.saturating_add(1));
        let key = StreamKey::Call(call);
        let gives_up = turn.now + self.config.limits.call_max_age;
        self.calls.push(Call { id: call, gives_up, told: false, stream: Stream::left_behind(key, last_id) });
        if last_id.is_empty() || !streams::is_usable_id(last_id, self.config.limits.id_bytes) {
            self.violated(key, Violation::UnusableId, turn);
        } else if self.config.returns == Returns::ByRetry {
            self.return_at(key, turn.now);
        }
    }

    fn call(
        &mut self,
        method: &str,
        params: Option<&[u8]>,
        options: CallOptions<'_>,
        turn: &mut Turn<'_>,
    ) -> Result<CallId, NotTaken> {
        match self.state {
            State::Ready => {}
            State::New | State::Initializing | State::Confirming => return Err(NotTaken::NotReady),
            State::Ending | State::Ended => return Err(NotTaken::Ended),
        }
        if self.calls_in_flight().count() >= self.config.limits.calls_in_flight {
            return Err(NotTaken::TooManyCalls);
        }
        let id = CallId(self.next_call);
        let request = self.call_request(id, method, params, options).ok_or(NotTaken::Malformed)?;
        self.next_call += 1;
        let stream = Stream::new(StreamKey::Call(id));
        let gives_up = turn.now + self.config.limits.call_max_age;
        self.calls.push(Call { id, gives_up, told: false, stream });
        let conn = self.send(Errand::Call(id), request, turn);
        self.attach(StreamKey::Call(id), conn);
        Ok(id)
    }

    fn cancel(&mut self, call: CallId, reason: Option<&str>, turn: &mut Turn<'_>) {
        if self.unanswered(call).is_some() && self.abandon(call, turn) {
            self.post_cancelled(call, reason, turn);
        }
    }

    /// Gives a call up; whether the server may have it.
    fn abandon(&mut self, id: CallId, turn: &mut Turn<'_>) -> bool {
        let Some(call) = self.calls.iter().find(|call| call.id == id && id != CallId::INITIALIZE) else { return false };
        // What asks for its stream again comes after the call itself.
        let unsent = matches!(call.stream.phase, Phase::Attached(conn) if self.is_opening(conn));
        let outcome = match unsent {
            true => Outcome::Error(CallError::NotSent(Loss::Cut(Ended::Reset))),
            false => Outcome::Unknown(Unknown::Cancelled),
        };
        self.tell(id, outcome, turn);
        self.drop_call(id, turn);
        !unsent
    }

    /// Ends the session at the server.
    fn end(&mut self, turn: &mut Turn<'_>) {
        match self.state {
            State::New => self.state = State::Ended,
            State::Initializing => return self.fail(StartError::Ended, turn),
            State::Ending | State::Ended => return,
            State::Confirming | State::Ready => {}
        }
        // An idle connection serves for the goodbye.
        let idle = self.conns.iter().position(Conn::is_idle).map(|at| self.conns.swap_remove(at));
        self.give_up_everything(|| Unknown::Ended, turn);
        self.conns.extend(idle);
        if self.session.is_none() {
            return self.ended(turn);
        }
        self.state = State::Ending;
        let request = self.end_request();
        self.send(Errand::End, request, turn);
    }

    /// The session could not be begun.
    fn fail(&mut self, why: StartError, turn: &mut Turn<'_>) {
        self.state = State::Ended;
        self.close_everything(turn);
        turn.event(Event::Failed(why));
    }

    /// The server does not know the session any more.
    fn lose_session(&mut self, reason: Option<Box<str>>, turn: &mut Turn<'_>) {
        if self.state == State::Ending {
            return;
        }
        self.state = State::Ended;
        let unknown = self.calls_in_flight().collect();
        turn.event(Event::SessionLost { reason, unknown });
        self.give_up_everything(|| Unknown::SessionLost, turn);
    }

    /// Every call gets its outcome, and every connection closes.
    fn give_up_everything(&mut self, why: impl Fn() -> Unknown, turn: &mut Turn<'_>) {
        let calls: Vec<_> = self.calls_in_flight().collect();
        for call in calls {
            self.tell(call, Outcome::Unknown(why()), turn);
        }
        self.close_everything(turn);
    }

    fn close_everything(&mut self, turn: &mut Turn<'_>) {
        for conn in std::mem::take(&mut self.conns) {
            turn.out.push(Output::Close { conn: conn.id });
        }
        (self.standalone, self.calls, self.asked, self.posts) = (None, Vec::new(), Vec::new(), Vec::new());
    }

    /// Does what is due.
    fn pass_time(&mut self, turn: &mut Turn<'_>) {
        let now = turn.now;
        while let Some(conn) = self.conns.iter().find(|conn| conn.deadline.is_some_and(|at| at <= now)).map(|conn| conn.id) {
            self.conn_timed_out(conn, turn);
        }
        while let Some(call) = self.calls.iter().find(|call| !call.told && call.gives_up <= now).map(|call| call.id) {
            self.give_up(call, Unknown::TooOld, turn);
        }
        while let Some(stream) = self.due_stream(now) {
            self.resume(stream, turn);
        }
        while let Some(due) = self.posts.iter().position(|post| post.at.is_some_and(|at| at <= now)) {
            let post = self.posts.remove(due);
            self.post(post, turn);
        }
    }

    fn due_stream(&self, now: Instant) -> Option<StreamKey> {
        self.streams().find(|stream| stream.returns_at.is_some_and(|at| at <= now)).map(|stream| stream.stream)
    }

    fn ask_to_wake(&mut self, turn: &mut Turn<'_>) {
        let conns = self.conns.iter().filter_map(|conn| conn.deadline);
        let calls = self.calls.iter().filter(|call| !call.told).map(|call| call.gives_up);
        let streams = self.streams().filter_map(|stream| stream.returns_at);
        let posts = self.posts.iter().filter_map(|post| post.at);
        let Some(next) = conns.chain(calls).chain(streams).chain(posts).min() else { return };
        // A wake that comes too early does nothing: only an earlier one is worth asking for.
        if self.wake.is_none_or(|wake| next < wake || wake <= turn.now) {
            self.wake = Some(next);
            turn.out.push(Output::WakeAt(next));
        }
    }

    fn stream(&self, key: StreamKey) -> Option<&Stream> {
        match key {
            StreamKey::Standalone => self.standalone.as_deref(),
            StreamKey::Call(id) => self.calls.iter().find(|call| call.id == id).map(|call| &call.stream),
        }
    }

    fn stream_mut(&mut self, key: StreamKey) -> Option<&mut Stream> {
        match key {
            StreamKey::Standalone => self.standalone.as_deref_mut(),
            StreamKey::Call(id) => self.calls.iter_mut().find(|call| call.id == id).map(|call| &mut call.stream),
        }
    }

    fn attach(&mut self, key: StreamKey, conn: ConnId) {
        if let Some(stream) = self.stream_mut(key) {
            stream.phase = Phase::Attached(conn);
        }
    }

    /// A call that has no outcome yet.
    fn unanswered(&self, id: CallId) -> Option<&Call> {
        self.calls.iter().find(|call| call.id == id && !call.told)
    }

    /// Tells a call's outcome, once.
    fn tell(&mut self, id: CallId, outcome: Outcome, turn: &mut Turn<'_>) {
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == id && !call.told) {
            call.told = true;
            turn.event(Event::Outcome { call: id, outcome });
        }
    }

    /// A call's outcome is unknown, and nothing more is wanted of its stream.
    fn give_up(&mut self, id: CallId, why: Unknown, turn: &mut Turn<'_>) {
        if id == CallId::INITIALIZE {
            let why = match why {
                Unknown::Unreadable(bad) => StartError::Lost(Loss::Unreadable(bad)),
                Unknown::Lost(loss) | Unknown::GaveUp(loss) => StartError::Lost(loss),
                Unknown::Refused(refused) => StartError::Refused(refused),
                Unknown::TooOld => StartError::Lost(Loss::Timeout),
                _ => StartError::Answer("The answer to initialize is none"),
            };
            return self.fail(why, turn);
        }
        self.tell(id, Outcome::Unknown(why), turn);
        self.drop_call(id, turn);
    }

    /// Forgets a call and closes its connection.
    fn drop_call(&mut self, id: CallId, turn: &mut Turn<'_>) {
        let Some(at) = self.calls.iter().position(|call| call.id == id) else { return };
        let call = self.calls.remove(at);
        if let Some(conn) = call.stream.conn() {
            self.close(conn, turn);
        }
    }

    fn close(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        if let Some(at) = self.conns.iter().position(|known| known.id == conn) {
            self.conns.swap_remove(at);
            turn.out.push(Output::Close { conn });
        }
    }

    /// `initialize` has its result.
    fn initialized(&mut self, result: Bytes, turn: &mut Turn<'_>) {
        let text = std::str::from_utf8(&result).unwrap_or_default();
        let Some(name) = crate::mcp::text_at(text, &["protocolVersion"]) else {
            return self.fail(StartError::Answer("The result of initialize has no protocolVersion"), turn);
        };
        let rules = |revision: &Revision| revision.rules().sessions && revision.rules().streamable;
        let Some(revision) = Revision::parse(name.as_bytes()).filter(rules) else {
            return self.fail(StartError::Revision(name.as_ref().into()), turn);
        };
        self.revision = Some(revision);
        self.state = State::Confirming;
        if let Some(call) = self.calls.iter_mut().find(|call| call.id == CallId::INITIALIZE) {
            call.told = true;
        }
        self.post_initialized(result, turn);
    }

    /// The server knows that the client knows.
    fn confirmed(&mut self, result: Bytes, turn: &mut Turn<'_>) {
        let (State::Confirming, Some(revision)) = (self.state, self.revision) else { return };
        self.state = State::Ready;
        turn.event(Event::Ready { revision, result });
        if self.config.listen {
            self.listen(turn);
        }
    }
}

/// Names no session: its id is a credential where callers are anonymous.
impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("state", &self.state)
            .field("revision", &self.revision.map(Revision::as_str))
            .field("life", &self.life)
            .field("streams", &self.streams().collect::<Vec<_>>())
            .field("conns", &self.conns.iter().map(|conn| (conn.id, conn.purpose())).collect::<Vec<_>>())
            .field("asked", &self.asked.len())
            .field("posts", &self.posts.len())
            .finish()
    }
}
