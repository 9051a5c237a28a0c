//! The machine of one core: inputs in, outputs out; it owns every session, connection, event and timer of its shard.
//!
//! Never does I/O, asks the time, draws a random number or starts a thread: see `io` for the cut. The work is divided by what causes
//! it: `request` (what a client asks), `post` (what it POSTs to a session), `exchange` (what it asks without a session), `keys` (what it asks
//! under an idempotency key), `emit` (what a handler says), `life` (sessions begin, rotate and end; drain), `serve`
//! (connections on streams) and `reply` (answers as bytes).

pub mod counters;
mod emit;
mod exchange;
pub mod io;
mod keys;
mod life;
mod post;
mod reply;
mod request;
mod serve;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use bytes::Bytes;

use crate::connection::{Connection, Polled, Waiting};
use crate::eventlog::{EventLog, RingId};
use crate::http::{Head, Names};
use crate::ids::StreamNumber;
use crate::ids::{Boot, CallId, ClientRequestId, ConnId, Incarnation, Key, Principal, SessionId, ShardIndex, SlotIndex};
use crate::incarnations::Writer;
use crate::keyed::Records;
use crate::limits::Limits;
use crate::lists;
use crate::mcp::Revision;
use crate::refusal::{Refusal, Room};
use crate::session::Session;
use crate::time::Instant;
use crate::wheel::Wheel;

use counters::{Counters, LogFigures, Snapshot};
use io::{Close, Command, Delivery, Input, NotTaken, Output, World};

/// How a shard is set up.
#[derive(Clone, Debug)]
pub struct Config {
    /// Which shard this is.
    pub shard: ShardIndex,
    /// How many there are: which of them an idempotency key's record lives on follows from it.
    pub shards: u16,
    /// The life of the process.
    pub boot: Boot,
    /// The secret behind ids and cursors.
    pub key: Key,
    /// The endpoint's path, from its slash.
    pub path: String,
    /// The bounds of this shard.
    pub limits: Limits,
    /// The hosts and origins that are allowed.
    pub names: Names,
    /// What the end of a finished stream is answered.
    pub finished: Finished,
    /// The form of a call's answer.
    pub response: ResponsePolicy,
    /// Whether the handler serves requests without a session. Where it does not, a client of such a revision is told so in a way that it
    /// falls back on.
    pub exchanges: bool,
    /// Whether deliveries carry the heads of their requests, which are then kept for as long as the handler keeps them.
    pub heads: bool,
}

/// What a cursor at the end of a finished stream is answered (row 12).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Finished {
    /// 204: browsers stop on it, and stock clients go quiet.
    #[default]
    NoContent,
    /// 405: for the strict.
    MethodNotAllowed,
}

/// The form of a call's answer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResponsePolicy {
    /// One JSON body where the answer is ready at once, else SSE.
    #[default]
    Auto,
    /// Always SSE.
    Sse,
    /// Always one JSON body: notifications are dropped, requests to the client fail.
    Json,
}

/// What an embedder sees of a session.
#[derive(Clone, Debug)]
pub struct SessionView {
    /// Its name.
    pub id: SessionId,
    /// Whose it is.
    pub principal: Principal,
    /// Its present life.
    pub incarnation: Incarnation,
    /// The negotiated revision; `None` until `initialize` is answered.
    pub revision: Option<Revision>,
    /// Calls in flight.
    pub calls: usize,
    /// Connections attached to its streams.
    pub connections: u32,
    /// When it was last used.
    pub last_active: Instant,
}

/// One core's machine.
pub struct Shard {
    config: Config,
    writer: Writer,
    log: EventLog,
    wheel: Wheel<Due>,
    connections: Vec<Option<Box<Connection>>>,
    open: u32,
    sessions: Vec<Option<Box<Session>>>,
    alive: u32,
    /// Requests without a session in flight.
    exchanges: u32,
    next_call: u64,
    /// The idempotency keys whose home this is.
    keys: Records,
    /// What calls under a key would say to their handlers, until their key's home has said that they run.
    held_back: BTreeMap<CallId, Delivery>,
    drain: Option<Drain>,
    wake_at: Option<Instant>,
    /// Connections with something to do in this turn: a queue, so that one connection's progress never nests in another's.
    ready: VecDeque<ConnId>,
    /// Slices of the run of events that is being queued; empty between two.
    events: Vec<Bytes>,
    counters: Counters,
    /// The shard as a whole had no room for something in this turn.
    short_of_room: bool,
    /// When it last had none.
    overloaded: Option<Instant>,
}

/// What a timer was set for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Due {
    Connection(ConnId),
    Session(SlotIndex),
    Call(SlotIndex, CallId),
    Request(SlotIndex, ClientRequestId),
    Drain,
}

/// How far a drain has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Drain {
    /// Calls in flight may still end.
    Waiting,
    /// The deadline came: everything was ended, the last bytes are being written.
    Ending,
    /// `Output::Drained` was said.
    Done,
}

/// The arguments of one `handle`, together.
struct Turn<'a> {
    now: Instant,
    random: &'a mut dyn FnMut() -> u64,
    world: &'a dyn World,
    out: &'a mut Vec<Output>,
    /// The head of the request that is served, where deliveries carry it.
    head: Option<Arc<Head>>,
    /// The field `traceparent` of that request.
    traceparent: Option<Arc<str>>,
}

impl Shard {
    /// A shard without sessions; `writer` is its incarnation table's.
    pub fn new(config: Config, writer: Writer, now: Instant) -> Self {
        Self {
            log: EventLog::new(&config.limits),
            keys: Records::new(&config.limits),
            held_back: BTreeMap::new(),
            config,
            writer,
            wheel: Wheel::new(now),
            connections: Vec::new(),
            open: 0,
            sessions: Vec::new(),
            alive: 0,
            exchanges: 0,
            next_call: 1,
            drain: None,
            wake_at: None,
            ready: VecDeque::new(),
            events: Vec::new(),
            counters: Counters::default(),
            short_of_room: false,
            overloaded: None,
        }
    }

    /// Takes one input and appends what must be done to `out`, in order.
    pub fn handle(
        &mut self,
        input: Input<'_>,
        now: Instant,
        random: &mut dyn FnMut() -> u64,
        world: &dyn World,
        out: &mut Vec<Output>,
    ) {
        let first = out.len();
        let answered = matches!(input, Input::Emitted { .. } | Input::Command(Command::Close(_) | Command::Rotate(_)));
        if answered {
            out.push(Output::Took(Ok(())));
        }
        let mut turn = Turn { now, random, world, out, head: None, traceparent: None };
        // What became of a connection is so before time passes: with a request in its hands it is not idle, with all written it is not
        // stuck, and once it is gone nothing is said of it. Whoever emits or commands comes after what was due.
        let of_connection = !answered && !matches!(input, Input::Command(_) | Input::Mail(_) | Input::TimePassed);
        let took = if of_connection {
            let took = self.take(input, &mut turn);
            self.pass_time(&mut turn);
            took
        } else {
            self.pass_time(&mut turn);
            self.take(input, &mut turn)
        };
        if answered {
            turn.out[first] = Output::Took(took);
        }
        self.settle(&mut turn);
        if std::mem::take(&mut self.short_of_room) {
            self.overloaded = Some(now);
        }
    }

    fn take(&mut self, input: Input<'_>, turn: &mut Turn<'_>) -> Result<(), NotTaken> {
        match input {
            Input::Opened { conn } => {
                self.counters.connections_opened += 1;
                self.accept(conn, Connection::new(Bytes::new(), false, turn.now), turn);
            }
            Input::Shed { conn, within } => {
                self.counters.connections_opened += 1;
                let within = within.as_secs().max(1);
                self.turn_away(conn, Refusal::TOO_MANY_AT_ONCE, 1 + (turn.random)() % within, turn);
            }
            Input::HandedOver { conn, bytes, placed } => self.accept(conn, Connection::new(bytes, placed, turn.now), turn),
            Input::Received { conn, bytes } => {
                if let Some(connection) = self.connection(conn) {
                    connection.receive(bytes);
                    self.ready.push_back(conn);
                }
            }
            Input::Sent { conn, bytes } => {
                if let Some(written) = self.connection(conn).and_then(|connection| connection.sent(bytes)) {
                    self.confirm(written.brought);
                    if written.done {
                        self.ready.push_back(conn);
                    }
                }
            }
            Input::Closed { conn } => self.drop_connection(conn, turn),
            Input::Emitted { session, emission } => return self.emit(&session, emission, turn),
            Input::Command(Command::Close(session)) => return self.command_close(&session, turn),
            Input::Command(Command::Rotate(session)) => return self.command_rotate(&session, turn),
            Input::Command(Command::Drain { deadline }) => self.begin_drain(deadline, turn),
            Input::Mail(mail) => self.take_key_mail(mail, turn),
            Input::TimePassed => {}
        }
        Ok(())
    }

    /// Everything that follows from what happened: connections move on, lost requests fail, the next wake is asked for.
    fn settle(&mut self, turn: &mut Turn<'_>) {
        loop {
            while let Some(conn) = self.ready.pop_front() {
                self.progress(conn, turn);
            }
            if !self.fail_lost_requests(turn) {
                break;
            }
        }
        self.drop_empty_rings();
        self.check_drained(turn);
        let wake_at = self.wheel.next().into_iter().chain(self.log.next_expiry()).min();
        if wake_at != self.wake_at {
            self.wake_at = wake_at;
            if let Some(at) = wake_at {
                turn.out.push(Output::WakeAt(at));
            }
        }
    }

    fn pass_time(&mut self, turn: &mut Turn<'_>) {
        self.log.expire(turn.now);
        while let Some(due) = self.wheel.pop_due(turn.now) {
            match due {
                Due::Connection(conn) => self.connection_due(conn, turn),
                Due::Session(slot) => self.session_due(slot, turn),
                Due::Call(slot, call) => self.call_due(slot, call, turn),
                Due::Request(slot, request) => self.request_due(slot, request, turn),
                Due::Drain => self.drain_due(turn),
            }
        }
    }

    // ---- connections ----

    fn connection(&mut self, conn: ConnId) -> Option<&mut Connection> {
        self.connections.get_mut(conn.0 as usize)?.as_deref_mut()
    }

    fn accept(&mut self, conn: ConnId, connection: Connection, turn: &mut Turn<'_>) {
        if self.open >= self.config.limits.connections || self.drain.is_some_and(|drain| drain != Drain::Waiting) {
            let full = self.open >= self.config.limits.connections;
            let refusal = if full { Refusal::TOO_MANY_CONNECTIONS } else { Refusal::SHUTTING_DOWN };
            return self.turn_away(conn, refusal, reply::RETRY_AFTER, turn);
        }
        lists::put(&mut self.connections, conn.0 as usize, Box::new(connection));
        self.open += 1;
        self.ready.push_back(conn);
    }

    /// Nothing is kept of it: the shell writes this and closes.
    fn turn_away(&mut self, conn: ConnId, refusal: Refusal, seconds: u64, turn: &mut Turn<'_>) {
        self.count_refusal(refusal);
        turn.out.push(Output::Send { conn, slices: vec![reply::turned_away(refusal, seconds)] });
        turn.out.push(Output::Close { conn, how: Close::Clean });
    }

    /// Moves a connection as far as its bytes allow: writes what can be written, then looks for the next request.
    fn progress(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        loop {
            self.write(conn, turn);
            let drain = self.drain;
            let Some(connection) = self.connections.get_mut(conn.0 as usize).and_then(Option::as_deref_mut) else { return };
            if connection.closed() {
                return;
            }
            if !connection.flushed() {
                break;
            }
            let unwanted = match drain {
                None => false,
                Some(Drain::Waiting) => connection.idle(),
                Some(Drain::Ending | Drain::Done) => !connection.answering(),
            };
            if connection.closing() || unwanted {
                return self.close(conn, Close::Clean, turn);
            }
            let config = &self.config;
            match connection.poll(&config.limits, |head| reply::judge(config, head, turn.world)) {
                Polled::Nothing => break,
                Polled::Continue => connection.queue(Bytes::from_static(crate::http::CONTINUE)),
                Polled::Request(request) => self.request(conn, *request, turn),
                Polled::Refused(refusal) => self.refuse_and_close(conn, refusal),
            }
        }
        self.arm(conn, turn);
    }

    /// Sets a connection's timer for what it now waits for, and its reading.
    fn arm(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        let limits = &self.config.limits;
        let Some(connection) = self.connections.get_mut(conn.0 as usize).and_then(Option::as_deref_mut) else { return };
        let wanted = connection.wants_bytes(limits);
        if wanted != connection.reading {
            connection.reading = wanted;
            turn.out.push(Output::Read { conn, wanted });
        }
        let waiting = connection.waiting();
        if connection.armed == Some(waiting) {
            return;
        }
        connection.armed = Some(waiting);
        if let Some(timer) = connection.timer.take() {
            self.wheel.cancel(timer);
        }
        let slot = connection.serving.as_ref().map(|serving| serving.slot.0 as usize);
        let exchange = slot.and_then(|slot| self.sessions.get(slot)?.as_deref()).is_some_and(Session::is_exchange);
        let after = match waiting {
            Waiting::Idle => limits.idle_timeout,
            Waiting::Head => limits.head_timeout,
            Waiting::Body => limits.body_timeout,
            // An error without a session has a status of its own, for which the head waits as long as silence may last.
            Waiting::Json if exchange => limits.keep_alive,
            Waiting::Json => limits.json_grace,
            Waiting::KeepAlive => limits.keep_alive,
            Waiting::Write => limits.write_timeout,
            Waiting::Grace => limits.close_grace,
            Waiting::Answer => return,
        };
        connection.timer = Some(self.wheel.schedule(turn.now + after, Due::Connection(conn)));
    }

    fn connection_due(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        let keep_alive = self.config.limits.keep_alive;
        let Some(connection) = self.connection(conn) else { return };
        connection.timer = None;
        let waiting = connection.waiting();
        if connection.armed.take() != Some(waiting) {
            // What it was to wait for has come in this very turn.
            return self.ready.push_back(conn);
        }
        match waiting {
            Waiting::Idle => return self.close(conn, Close::Clean, turn),
            Waiting::Head => self.refuse_and_close(conn, Refusal::Timeout("The request head took too long")),
            Waiting::Body => self.refuse_and_close(conn, Refusal::Timeout("The request body took too long")),
            Waiting::Json => self.open_stream(conn, None, None, turn),
            Waiting::KeepAlive => {
                let quiet_until = connection.last_send + keep_alive;
                if quiet_until > turn.now {
                    connection.armed = Some(Waiting::KeepAlive);
                    let timer = self.wheel.schedule(quiet_until, Due::Connection(conn));
                    if let Some(connection) = self.connection(conn) {
                        connection.timer = Some(timer);
                    }
                    return;
                }
                if !connection.sending() {
                    let comment = serve::framed(connection, crate::sse::COMMENT);
                    connection.queue(comment);
                }
            }
            Waiting::Write | Waiting::Grace => return self.close(conn, Close::Reset, turn),
            Waiting::Answer => {}
        }
        self.ready.push_back(conn);
    }

    /// Ends a connection from our side; `Input::Closed` follows.
    fn close(&mut self, conn: ConnId, how: Close, turn: &mut Turn<'_>) {
        self.detach(conn, turn);
        let Some(connection) = self.connection(conn) else { return };
        connection.close();
        if let Some(timer) = connection.timer.take() {
            self.wheel.cancel(timer);
        }
        turn.out.push(Output::Close { conn, how });
    }

    /// The connection is gone.
    fn drop_connection(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        self.detach(conn, turn);
        let Some(connection) = self.connections.get_mut(conn.0 as usize).and_then(Option::take) else { return };
        self.open -= 1;
        if let Some(timer) = connection.timer {
            self.wheel.cancel(timer);
        }
    }

    // ---- what an embedder sees ----

    /// The sessions alive on this shard.
    pub fn sessions(&self) -> impl Iterator<Item = SessionView> + '_ {
        self.sessions.iter().flatten().filter(|session| !session.is_exchange()).map(|session| SessionView {
            id: session.id,
            principal: session.principal.clone(),
            incarnation: session.incarnation,
            revision: session.revision,
            calls: session.calls.len(),
            connections: session.attached,
            last_active: session.last_active,
        })
    }

    /// What happened since the shard began.
    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Something was given up for want of room.
    fn shed(&mut self, room: Room) {
        self.counters.sheds[room] += 1;
        self.short_of_room |= room.is_the_servers();
    }

    /// A request, or a whole connection, is refused.
    fn count_refusal(&mut self, refusal: Refusal) {
        self.counters.refusals[refusal.kind()] += 1;
        if let Refusal::Shed(room, _) = refusal {
            self.shed(room);
        }
    }

    /// The shard as it is at `now`, in constant time.
    pub fn snapshot(&self, now: Instant) -> Snapshot {
        Snapshot {
            counters: self.counters.clone(),
            sessions: self.alive,
            sessions_max: self.config.limits.sessions,
            exchanges: self.exchanges,
            exchanges_max: self.config.limits.exchanges,
            connections: self.open,
            connections_max: self.config.limits.connections,
            timers: self.wheel.len(),
            log: LogFigures::of(&self.log),
            draining: self.drain.is_some(),
            overloaded: self.overloaded.map(|at| now.since(at)),
        }
    }

    // ---- lookups that every part shares ----

    fn session(&self, slot: SlotIndex) -> Option<&Session> {
        self.sessions.get(slot.0 as usize)?.as_deref()
    }

    /// The session and the stream that a ring belongs to.
    fn stream_of(&self, ring: RingId) -> Option<(SlotIndex, StreamNumber)> {
        self.log.owner(ring).map(|(holder, name)| (SlotIndex(holder), StreamNumber(name)))
    }

    fn session_mut(&mut self, slot: SlotIndex) -> Option<&mut Session> {
        self.sessions.get_mut(slot.0 as usize)?.as_deref_mut()
    }

    /// The slot of a session that is alive here.
    fn slot_of(&self, id: &SessionId) -> Option<SlotIndex> {
        self.session(id.slot()).filter(|session| session.id == *id).map(|session| session.id.slot())
    }
}

/// For an operator: what there is, not what it holds.
impl fmt::Debug for Shard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shard")
            .field("shard", &self.config.shard.0)
            .field("sessions", &self.alive)
            .field("exchanges", &self.exchanges)
            .field("connections", &self.open)
            .field("timers", &self.wheel.len())
            .field("log", &self.log)
            .field("drain", &self.drain)
            .field("counters", &self.counters)
            .finish_non_exhaustive()
    }
}
