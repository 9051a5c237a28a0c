//! Moves bytes between a session's machine and its connections, and lets happen meanwhile what the script says.
//!
//! Never decides what follows from an answer: that is the machine's.

use std::borrow::Cow;
use std::mem;
use std::rc::Rc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use rejoin_proto::client::{CallError, ConnId, Ended, Event, Input, Loss, Outcome, Output, StartError, State, Turn, Unknown};

use super::super::measure::{ErrorKind, Metric, Pace, Timing};
use super::super::net::{Arrived, Conn, any_readable, until};
use super::super::script::{Call, Tool};
use super::super::thread::READ_BUFFER;
use super::super::timeline::What;
use super::ears::Showing;
use super::{ANSWER, CONNECT, Client};

/// How long a stream may stay open behind its call's answer before its client leaves.
const LINGER: Duration = Duration::from_millis(500);
/// How long a stream that a stale cursor got is read: it is a replay, and comes at once.
const REPLAY: Duration = Duration::from_millis(300);
/// A slow reader's pause between two reads.
const SLOW_STEP: Duration = Duration::from_millis(50);
/// Reads of one connection before the thread's others have their turn.
const READS_PER_TURN: usize = 8;
/// What a request of the server is answered with: its call would wait for ever.
const NOT_KNOWN: &[u8] = br#"{"code":-32601,"message":"The storm does not know this method"}"#;

/// What is listened for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Until<'a> {
    /// The session has begun, or could not.
    Begun,
    /// The call's stream has no connection any more.
    Lost(&'a Call),
    /// A cursor that is not the session's own has its answer.
    Shown,
    /// The session has ended.
    Ended,
}

/// How listening ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heard {
    /// As it should.
    All,
    /// Nothing came for too long.
    Late,
    /// The run is over.
    Over,
}

impl Client {
    /// Gives the machine an input, and does what it asks for.
    pub(super) async fn give(&mut self, input: Input<'_>) {
        self.turn(input);
        self.obey().await;
    }

    /// Gives the machine an input; what it asks for waits.
    fn turn(&mut self, input: Input<'_>) {
        self.ears.now = Instant::now();
        let now = self.thread.moment(self.ears.now);
        let rng = &mut self.rng;
        let random = &mut || rng.u64(..);
        self.machine.handle(input, &mut Turn { now, random, observer: &mut self.ears, out: &mut self.out });
    }

    /// Does what the machine asked for.
    pub(super) async fn obey(&mut self) {
        while !self.out.is_empty() {
            // The room is given back: most sessions are idle at most times.
            for output in mem::take(&mut self.out) {
                match output {
                    Output::Took(_) => {}
                    Output::Open { conn } => self.open(conn).await,
                    Output::Send { conn, bytes } => self.send(conn, bytes).await,
                    Output::Close { conn } => self.close(conn),
                    Output::WakeAt(at) => self.wake = self.thread.instant(at),
                    Output::Event(event) => self.told(event),
                }
            }
        }
    }

    /// Opens a connection, once the session may be back.
    async fn open(&mut self, id: ConnId) {
        if let Some(gate) = self.gate.take() {
            until(gate).await;
        }
        let began = Instant::now();
        let carries = self.ears.showing == Showing::Own && self.machine.streams().any(|stream| stream.conn == Some(id));
        let wished = if carries { self.ears.wished } else { began };
        let opened = Conn::open(&self.thread.storm.target, self.index, self.slow_reader, CONNECT).await;
        let now = Instant::now();
        match opened {
            Ok(conn) => {
                self.conns.push((id, conn));
                let timing = Timing::scheduled(wished, began, now);
                self.thread.record(|recorder| {
                    recorder.connected(now);
                    recorder.latency(Metric::Connect, timing, Pace::Open);
                });
                self.turn(Input::Opened { conn: id });
            }
            Err(error) => {
                self.thread.storm.unreachable.get_or_init(|| error.to_string());
                self.thread.record(|recorder| recorder.error(now, ErrorKind::of_connect(&error)));
                self.turn(Input::Ended { conn: id, how: Ended::Failed });
            }
        }
    }

    async fn send(&mut self, id: ConnId, request: Bytes) {
        let Some(at) = self.place(id) else { return };
        if !self.thread.may_send() {
            self.stopped = true;
            return;
        }
        if self.machine.streams().any(|stream| stream.conn == Some(id)) {
            self.ears.asked(&request);
        }
        self.ears.quiet_since = Instant::now();
        let sent = self.conns[at].1.write(request, Instant::now() + ANSWER).await;
        let now = Instant::now();
        match sent {
            Ok(bytes) => self.thread.record(|recorder| recorder.bytes_out(now, bytes as u64)),
            Err(error) => self.lose(id, Ended::Reset, Some(ErrorKind::of(&error))),
        }
    }

    fn place(&self, id: ConnId) -> Option<usize> {
        self.conns.iter().position(|(known, _)| *known == id)
    }

    /// Takes a connection out of the session.
    fn remove(&mut self, id: ConnId) -> Option<Conn> {
        let (_, conn) = self.conns.swap_remove(self.place(id)?);
        Some(conn)
    }

    fn close(&mut self, id: ConnId) {
        if self.remove(id).is_some() {
            self.thread.record(|recorder| recorder.disconnected(Instant::now()));
        }
    }

    /// A connection is gone: an error, if the machine still wanted something of it.
    pub(super) fn lose(&mut self, id: ConnId, how: Ended, why: Option<ErrorKind>) {
        self.close(id);
        self.tell_ended(id, how, why);
    }

    /// Tells the machine that a connection is gone.
    fn tell_ended(&mut self, id: ConnId, how: Ended, why: Option<ErrorKind>) {
        let before = self.out.len();
        self.turn(Input::Ended { conn: id, how });
        let wanted = self.out[before..].iter().any(|output| matches!(output, Output::Event(event) if loss(event).is_some()));
        if let Some(why) = why.filter(|_| wanted) {
            self.thread.record(|recorder| recorder.error(Instant::now(), why));
        }
    }

    /// Closes every connection.
    pub(super) async fn hang_up(&mut self) {
        for id in self.conns.iter().map(|(id, _)| *id).collect::<Vec<_>>() {
            self.lose(id, Ended::Reset, None);
        }
        self.obey().await;
    }

    /// Breaks every connection as the script says; whether there was one.
    pub(super) async fn cut(&mut self, how: super::timeline::Breaks) -> bool {
        let conns = mem::take(&mut self.conns);
        let some = !conns.is_empty();
        let now = Instant::now();
        for (id, conn) in conns {
            self.ears.note('*', format_args!("the script cuts the connection: {how:?}"));
            self.unpark();
            self.parked = conn.cut(how);
            self.thread.count(|tally| tally.cuts += 1);
            self.thread.record(|recorder| {
                recorder.cut(now);
                if self.parked.is_none() {
                    recorder.disconnected(now);
                }
            });
            self.tell_ended(id, Ended::Reset, None);
        }
        self.obey().await;
        some
    }

    /// What the machine tells.
    fn told(&mut self, event: Event) {
        if self.ears.showing != Showing::Own {
            return;
        }
        let now = Instant::now();
        if let Some(Loss::Unreadable(bad)) = loss(&event) {
            self.ears.note('*', format_args!("no answer: {bad:?}"));
            self.thread.record(|recorder| recorder.error(now, ErrorKind::BadAnswer));
        }
        match event {
            Event::Failed(StartError::Error(_)) => {
                self.thread.record(|recorder| recorder.error(now, ErrorKind::CallFailed));
            }
            Event::Failed(StartError::Answer(_) | StartError::Revision(_)) => {
                self.thread.record(|recorder| recorder.error(now, ErrorKind::BadAnswer));
            }
            Event::Outcome { outcome: Outcome::Error(CallError::NotSent(_)), .. } => self.ears.refused = true,
            Event::Lost { stream, why, .. } => {
                self.lost = Some(why);
                let view = self.machine.streams().find(|view| view.stream == stream);
                self.retry = view.and_then(|view| view.retry).or(self.retry);
            }
            Event::ContinuityViolated { violation, .. } => self.ears.refuses(&violation),
            Event::SessionLost { .. } => {
                self.thread.count(|tally| tally.lost += 1);
                self.session_over();
            }
            Event::Request { request, .. } => self.turn(Input::Answer { request, outcome: Err(NOT_KNOWN) }),
            _ => {}
        }
    }

    /// Listens until what is waited for has come, or something comes before it.
    pub(super) async fn listen(&mut self, until: Until<'_>) -> Heard {
        let mut reads = 0;
        loop {
            let over = self.thread.storm.settled();
            if self.stopped || Instant::now() >= over {
                return Heard::Over;
            }
            if self.has_come(until) {
                return Heard::All;
            }
            if let Some(trouble) = self.due().filter(|_| !matches!(until, Until::Shown)) {
                let cut = self.suffer(trouble).await;
                if let What::Cut { forgery, .. } = trouble.what {
                    self.forgery = forgery.filter(|_| cut);
                }
                continue;
            }
            let (now, late) = (Instant::now(), self.late_at(until));
            if self.wake.is_some_and(|wake| wake <= now) {
                self.wake = None;
                self.give(Input::TimePassed).await;
                continue;
            }
            if now >= late {
                return Heard::Late;
            }
            let next = [self.trouble_at(), self.wake, Some(late)].into_iter().flatten().fold(over, Instant::min);
            if reads >= READS_PER_TURN {
                reads = 0;
                rejoin::yield_now().await;
            }
            if self.read() {
                reads += 1;
                self.obey().await;
                self.dawdle().await;
            } else {
                any_readable(&self.conns, next).await;
                reads = 0;
            }
        }
    }

    fn has_come(&self, until: Until<'_>) -> bool {
        let state = self.machine.state();
        let lost = || self.machine.streams().all(|stream| stream.conn.is_none());
        state == State::Ended
            || match until {
                Until::Begun => state == State::Ready,
                Until::Lost(_) => lost(),
                Until::Shown if self.ears.showing == Showing::Bad => self.ears.status.is_some() || lost(),
                Until::Shown => lost(),
                Until::Ended => false,
            }
    }

    /// When nothing has come for too long.
    fn late_at(&self, until: Until<'_>) -> Instant {
        match until {
            Until::Lost(_) if !self.ears.is_open() && self.ears.status.is_some() => self.ears.quiet_since + LINGER,
            Until::Lost(call) => self.ears.quiet_since + due_within(call),
            Until::Shown if self.ears.status.is_some() => self.ears.asked_at + REPLAY,
            Until::Begun | Until::Shown | Until::Ended => self.ears.quiet_since + ANSWER,
        }
    }

    /// Sees what came while nobody listened: an idle connection may have ended.
    pub(super) async fn catch_up(&mut self) {
        self.read();
        self.give(Input::TimePassed).await;
    }

    /// A slow reader waits before it reads on.
    async fn dawdle(&mut self) {
        let Some((_, until)) = self.slow else { return };
        if until <= Instant::now() {
            self.slow = None;
            return;
        }
        monoio::time::sleep(SLOW_STEP).await;
    }

    /// Reads what is there, once from each connection; whether something was.
    fn read(&mut self) -> bool {
        let (mut at, mut some) = (0, false);
        while let Some(&(id, _)) = self.conns.get(at) {
            some |= self.read_once(at);
            if self.conns.get(at).is_some_and(|(known, _)| *known == id) {
                at += 1;
            }
        }
        some
    }

    fn read_once(&mut self, at: usize) -> bool {
        let thread = Rc::clone(&self.thread);
        let most = self.slow.map_or(READ_BUFFER, |(rate, _)| slow_read(rate));
        thread.with_buffer(|buffer| {
            let (id, conn) = &mut self.conns[at];
            let id = *id;
            match conn.read(&mut buffer[..most]) {
                Arrived::Bytes(count) => {
                    let opened = conn.open_bytes(Cow::Borrowed(&buffer[..count]));
                    thread.record(|recorder| recorder.bytes_in(Instant::now(), count as u64));
                    match opened {
                        Ok(bytes) => self.turn(Input::Received { conn: id, bytes: &bytes }),
                        Err(_) => self.lose(id, Ended::Reset, Some(ErrorKind::BadAnswer)),
                    }
                    // What was silently cut has served its purpose: the server has had two connections of one stream.
                    if self.ears.status.is_some() {
                        self.unpark();
                    }
                }
                Arrived::End => {
                    let how = conn.end();
                    self.lose(id, how, Some(ErrorKind::ClosedEarly));
                }
                Arrived::Gone => self.lose(id, Ended::Reset, Some(ErrorKind::Reset)),
                Arrived::Nothing => return false,
            }
            true
        })
    }
}

/// The loss that an event tells of.
fn loss(event: &Event) -> Option<Loss> {
    match event {
        Event::Lost { why, .. } | Event::Failed(StartError::Lost(why)) => Some(*why),
        Event::Outcome { outcome: Outcome::Unknown(Unknown::Lost(why)), .. } => Some(*why),
        Event::Outcome { outcome: Outcome::Unknown(Unknown::Unreadable(bad)), .. } => Some(Loss::Unreadable(*bad)),
        _ => None,
    }
}

/// How long a connected client waits for the next event of a call.
pub(super) fn due_within(call: &Call) -> Duration {
    let interval = if let Tool::Ticker(ticker) = &call.tool { ticker.interval } else { Duration::ZERO };
    interval + call.patience
}

/// Bytes that a slow reader takes at once.
fn slow_read(rate: usize) -> usize {
    let steps = Duration::from_secs(1).as_millis() / SLOW_STEP.as_millis();
    (rate / usize::try_from(steps).unwrap_or(1)).clamp(1, READ_BUFFER)
}
