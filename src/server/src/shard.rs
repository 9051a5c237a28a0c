//! One shard of the server: the kernel, the connections' tasks around it, and the one place that carries out what the kernel wants.
//!
//! Everything here runs on the shard's own thread. Never decides an answer: inputs go into the kernel, outputs come out of it.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, VecDeque};
use std::future::{Future, poll_fn};
use std::io;
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::pin::pin;
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Poll, Waker};
use std::time::Duration;

use futures_channel::oneshot;
use rejoin_mailbox::Receiver;
use rejoin_proto::ids::{ClientRequestId, SessionId, ShardIndex};
use rejoin_proto::limits::Limits;
use rejoin_proto::shard::counters::Snapshot;
use rejoin_proto::shard::io::{Command, ConnId, Delivery, Emission, Input, NotTaken, Outcome, Output};
use rejoin_proto::shard::{SessionView, Shard};
use rejoin_proto::time::Instant;
use slab::Slab;

use crate::connection::{self, Conn, Handoff};
use crate::dispatch::{Deliver, instead};
use crate::error::RpcError;
use crate::listener::{self, Entrance};
use crate::mail::{Asked, Found, Left, Mail, Remote};
use crate::random::Random;
use crate::stats::ShardSnapshot;
use crate::task::{Tasks, die_of, make_place};
use crate::timer::{self, Timer};
use crate::turn::Turn;
use crate::world::World;
use crate::writer::{self, Writer};

/// Bytes read from a connection at once, into the one buffer of the shard: what arrives is handed to the kernel before the next read.
pub(crate) const READ_BUFFER: usize = 64 << 10;

/// Messages taken from the mailbox before the rest of the shard has its turn.
const MAIL_PER_TURN: usize = 256;

/// How long the ends of tasks and operations may take when a shard stops.
const STOP_TURNS: u32 = 200;

thread_local! {
    static CURRENT: RefCell<Option<Rc<Local>>> = const { RefCell::new(None) };
}

/// A pure machine: what [`Shard`] is, and what a test scripts.
pub(crate) trait Kernel {
    fn handle(
        &mut self,
        input: Input<'_>,
        now: Instant,
        random: &mut dyn FnMut() -> u64,
        world: &dyn rejoin_proto::shard::io::World,
        out: &mut Vec<Output>,
    );

    fn sessions(&self) -> Vec<SessionView>;

    fn snapshot(&self, now: Instant) -> Snapshot;
}

impl Kernel for Shard {
    fn handle(
        &mut self,
        input: Input<'_>,
        now: Instant,
        random: &mut dyn FnMut() -> u64,
        world: &dyn rejoin_proto::shard::io::World,
        out: &mut Vec<Output>,
    ) {
        Self::handle(self, input, now, random, world, out);
    }

    fn sessions(&self) -> Vec<SessionView> {
        Self::sessions(self).collect()
    }

    fn snapshot(&self, now: Instant) -> Snapshot {
        Self::snapshot(self, now)
    }
}

/// What a shard is made of, before it runs.
pub(crate) struct Parts {
    pub(crate) kernel: Box<dyn Kernel>,
    pub(crate) deliver: Rc<dyn Deliver>,
    pub(crate) world: World,
    pub(crate) remotes: Arc<[Arc<Remote>]>,
    pub(crate) limits: Limits,
}

/// A shard, on its own thread.
pub(crate) struct Local {
    kernel: RefCell<Box<dyn Kernel>>,
    deliver: Rc<dyn Deliver>,
    world: World,
    remote: Arc<Remote>,
    remotes: Arc<[Arc<Remote>]>,
    limits: Limits,
    random: RefCell<Random>,
    conns: RefCell<Slab<Rc<Conn>>>,
    /// Who waits for the answers to requests to clients.
    requests: RefCell<HashMap<ClientRequestId, oneshot::Sender<Asked>>>,
    /// Deliveries not yet made: they wait until everything else that the kernel wanted is done, since handler code may call back.
    deliveries: RefCell<VecDeque<(SessionId, Delivery)>>,
    delivering: Cell<bool>,
    /// An emptied vector of outputs, for the next input.
    outputs: Cell<Vec<Output>>,
    read_buffer: RefCell<Box<[u8]>>,
    timer: Timer,
    writer: Writer,
    turn: Rc<Turn>,
    tasks: Rc<Tasks>,
    draining: Cell<bool>,
    drained: Cell<bool>,
    /// Wakes the acceptor when the drain begins, and the shard's end when it is over.
    accepting: Cell<Option<Waker>>,
    ending: Cell<Option<Waker>>,
}

impl Local {
    pub(crate) fn new(shard: ShardIndex, parts: Parts) -> io::Result<Rc<Self>> {
        let Parts { kernel, deliver, world, remotes, limits } = parts;
        Ok(Rc::new(Self {
            kernel: RefCell::new(kernel),
            deliver,
            world,
            remote: Arc::clone(&remotes[usize::from(shard.0)]),
            remotes,
            limits,
            random: RefCell::new(Random::new()),
            conns: RefCell::default(),
            requests: RefCell::default(),
            deliveries: RefCell::default(),
            delivering: Cell::new(false),
            outputs: Cell::default(),
            read_buffer: RefCell::new(vec![0; READ_BUFFER].into()),
            timer: Timer::default(),
            writer: Writer::default(),
            turn: Rc::new(Turn::new()?),
            tasks: Rc::default(),
            draining: Cell::new(false),
            drained: Cell::new(false),
            accepting: Cell::default(),
            ending: Cell::default(),
        }))
    }

    /// The shard behind `remote`, if this is its thread and its kernel is not at work (an authoriser that emits is told to post).
    pub(crate) fn of(remote: &Arc<Remote>) -> Option<Rc<Self>> {
        let here = CURRENT.with_borrow(|current| current.clone())?;
        (Arc::ptr_eq(&here.remote, remote) && here.kernel.try_borrow_mut().is_ok()).then_some(here)
    }

    /// Runs the shard until it has drained.
    pub(crate) async fn run(self: Rc<Self>, receiver: Receiver<Mail>, entrance: Entrance) {
        CURRENT.set(Some(Rc::clone(&self)));
        let (turn, accepting) = (Rc::clone(&self.turn), Rc::clone(&self));
        self.spawn(async move { die_of("its turns", turn.serve().await) });
        self.spawn(timer::keep(Rc::clone(&self)));
        self.spawn(writer::serve(Rc::clone(&self)));
        self.spawn(Rc::clone(&self).take_all_mail(receiver));
        self.spawn(async move { die_of("its listener", listener::accept(accepting, entrance).await) });
        poll_fn(|cx| {
            if self.drained.get() {
                return Poll::Ready(());
            }
            self.ending.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        self.tasks.end();
        for _ in 0..STOP_TURNS {
            // Two turns at least: the tasks' operations must complete before their runtime goes.
            monoio::time::sleep(Duration::from_millis(2)).await;
            if self.tasks.len() == 0 {
                break;
            }
        }
        monoio::time::sleep(Duration::from_millis(2)).await;
        self.remote.end(self.snapshot());
        CURRENT.set(None);
    }

    pub(crate) fn spawn(&self, future: impl Future<Output = ()> + 'static) {
        self.tasks.spawn(future);
    }

    // ---- into the kernel, and out of it ----

    /// Gives the kernel an input and carries out what it wants; says what it took, where it says so.
    pub(crate) fn input(self: &Rc<Self>, input: Input<'_>) -> Option<Result<(), NotTaken>> {
        let mut outputs = self.outputs.take();
        self.kernel.borrow_mut().handle(input, self.now(), &mut || self.random.borrow_mut().next(), &self.world, &mut outputs);
        self.carry_out(outputs)
    }

    fn carry_out(self: &Rc<Self>, mut outputs: Vec<Output>) -> Option<Result<(), NotTaken>> {
        let mut took = None;
        for output in outputs.drain(..) {
            match output {
                Output::Send { conn, slices } => self.with_conn(conn, |conn| {
                    if conn.send(slices) {
                        self.writer.add(conn.id);
                    }
                }),
                Output::Read { conn, wanted } => self.with_conn(conn, |conn| conn.read(wanted)),
                Output::Close { conn, how } => self.with_conn(conn, |conn| conn.close(how)),
                Output::Handoff { conn, to, bytes, placed } => {
                    // Its name is free at once: the kernel has forgotten it.
                    if let Some(conn) = self.conns.borrow_mut().try_remove(conn.0 as usize) {
                        conn.hand_off(Handoff { to, bytes, placed });
                    }
                }
                Output::Post { to, mail } => {
                    if let Some(remote) = self.remote_of(to) {
                        remote.leave(Left::Keyed(mail));
                    }
                }
                Output::Deliver { session, delivery } => self.deliveries.borrow_mut().push_back((session, delivery)),
                Output::Took(taken) => took = Some(taken),
                Output::WakeAt(at) => self.timer.want(at),
                Output::Drained => {
                    self.drained.set(true);
                    if let Some(ending) = self.ending.take() {
                        ending.wake();
                    }
                }
            }
        }
        self.outputs.set(outputs);
        self.deliver_all();
        took
    }

    fn with_conn(&self, conn: ConnId, with: impl FnOnce(&Conn)) {
        if let Some(conn) = self.conns.borrow().get(conn.0 as usize) {
            with(conn);
        }
    }

    fn deliver_all(self: &Rc<Self>) {
        if self.delivering.replace(true) {
            return;
        }
        loop {
            let next = self.deliveries.borrow_mut().pop_front();
            let Some((session, delivery)) = next else { break };
            self.deliver.deliver(self, session, delivery);
        }
        self.delivering.set(false);
    }

    // ---- connections ----

    /// A connection was accepted.
    pub(crate) fn open(self: &Rc<Self>, accepted: OwnedFd) {
        self.adopt(accepted, |conn| Input::Opened { conn });
    }

    /// A connection was accepted that is one too many just now.
    pub(crate) fn shed(self: &Rc<Self>, accepted: OwnedFd, within: Duration) {
        self.adopt(accepted, |conn| Input::Shed { conn, within });
    }

    /// Gives a connection a name and a task, and tells the kernel.
    fn adopt(self: &Rc<Self>, descriptor: OwnedFd, told: impl FnOnce(ConnId) -> Input<'static>) {
        let stream = match monoio::net::TcpStream::from_std(TcpStream::from(descriptor)) {
            Ok(stream) => stream,
            Err(error) => return tracing::warn!(%error, "a connection could not be watched: closed"),
        };
        let conn = {
            let mut conns = self.conns.borrow_mut();
            make_place(&mut conns);
            let entry = conns.vacant_entry();
            let Ok(name) = u32::try_from(entry.key()) else { return };
            Rc::clone(entry.insert(Rc::new(Conn::new(ConnId(name), stream))))
        };
        self.input(told(conn.id));
        self.spawn(connection::run(Rc::clone(self), conn));
    }

    /// A connection's task is over: its socket is closed, and then the kernel is told.
    pub(crate) fn closed(self: &Rc<Self>, conn: Rc<Conn>) {
        let id = conn.id;
        // What was not sent is let go first as well: the kernel counts what its slices hold.
        conn.drop_send();
        self.conns.borrow_mut().try_remove(id.0 as usize);
        drop(conn);
        self.input(Input::Closed { conn: id });
    }

    pub(crate) fn conn(&self, id: ConnId) -> Option<Rc<Conn>> {
        self.conns.borrow().get(id.0 as usize).cloned()
    }

    pub(crate) fn with_read_buffer<R>(&self, with: impl FnOnce(&mut [u8]) -> R) -> R {
        with(&mut self.read_buffer.borrow_mut())
    }

    // ---- mail ----

    async fn take_all_mail(self: Rc<Self>, mut receiver: Receiver<Mail>) {
        let (mut batch, mut left) = (Vec::new(), Vec::new());
        loop {
            let found = poll_fn(|cx| {
                // Both are asked, so that both know whom to wake.
                let mail = receiver.poll_batch(cx, &mut batch, MAIL_PER_TURN);
                match self.remote.poll_aside(cx, &mut left) {
                    Poll::Pending => mail.map(|_| Found::default()),
                    aside => aside,
                }
            })
            .await;
            if found.asked {
                self.remote.give(self.snapshot());
            }
            let full = batch.len() == MAIL_PER_TURN;
            for mail in batch.drain(..) {
                self.take_mail(mail);
            }
            for left in left.drain(..) {
                self.take_left(left);
            }
            if let Some(deadline) = found.drain {
                self.begin_drain(deadline);
            }
            if full {
                self.turn.pass().await;
            }
        }
    }

    /// What an operator may know.
    fn snapshot(&self) -> ShardSnapshot {
        ShardSnapshot {
            kernel: self.kernel.borrow().snapshot(self.now()),
            tasks: self.tasks.len(),
            client_requests: self.requests.borrow().len(),
        }
    }

    fn begin_drain(self: &Rc<Self>, deadline: Instant) {
        if !self.draining.replace(true) {
            if let Some(accepting) = self.accepting.take() {
                accepting.wake();
            }
            self.input(Input::Command(Command::Drain { deadline }));
        }
    }

    /// Carries out one message.
    pub(crate) fn take_mail(self: &Rc<Self>, mail: Mail) {
        match mail {
            Mail::HandedOver { descriptor, bytes, placed } => {
                self.adopt(descriptor, |conn| Input::HandedOver { conn, bytes, placed });
            }
            Mail::Emitted { session, emission } => self.emit(session, emission),
            Mail::Asked { session, emission, request, reply } => {
                self.requests.borrow_mut().insert(request, reply);
                if let Some(Err(why)) = self.input(Input::Emitted { session, emission })
                    && let Some(reply) = self.requests.borrow_mut().remove(&request)
                {
                    // Whoever asked may have gone.
                    let _ = reply.send(Err(why));
                }
            }
            Mail::Commanded { command, reply } => {
                let _ = reply.send(self.input(Input::Command(command)).unwrap_or(Ok(())));
            }
            Mail::List { reply } => {
                let _ = reply.send(self.kernel.borrow().sessions());
            }
        }
    }

    /// An emission from another thread, whose sender cannot be told any more that it was not taken: an answer is replaced by an error.
    fn emit(self: &Rc<Self>, session: SessionId, emission: Emission) {
        let call = match &emission {
            Emission::Result { call, .. } | Emission::Error { call, .. } | Emission::Shed { call, .. } => Some(*call),
            Emission::Notification { .. }
            | Emission::Request { .. }
            | Emission::CancelRequest { .. }
            | Emission::HangUp { .. } => None,
        };
        let Some(Err(why)) = self.input(Input::Emitted { session, emission }) else { return };
        tracing::debug!(?session, ?why, "an emission from another thread was not taken");
        if let (Some(call), Some(error)) = (call, instead(why)) {
            let emission = Emission::Error { call, error: error.into_bytes() };
            self.input(Input::Emitted { session, emission });
        }
    }

    fn take_left(self: &Rc<Self>, left: Left) {
        let (session, emission) = match left {
            Left::Call(session, call) => {
                let error = RpcError::internal("the handler dropped the call");
                (session, Emission::Error { call, error: error.into_bytes() })
            }
            Left::Request(session, request) => {
                self.requests.borrow_mut().remove(&request);
                (session, Emission::CancelRequest { request })
            }
            Left::Keyed(mail) => {
                self.input(Input::Mail(mail));
                return;
            }
        };
        // Where the session or the call has ended, there is nobody to tell.
        self.input(Input::Emitted { session, emission });
    }

    /// A request to a client came to its end.
    pub(crate) fn answered(&self, request: ClientRequestId, outcome: Outcome) {
        let reply = self.requests.borrow_mut().remove(&request);
        if let Some(reply) = reply {
            let _ = reply.send(Ok(outcome));
        }
    }

    // ---- what its tasks need ----

    pub(crate) fn now(&self) -> Instant {
        self.remote.common.now()
    }

    /// How long it is until `at`; zero when it has come.
    pub(crate) fn until(&self, at: Instant) -> Duration {
        let deadline = self.remote.common.origin.checked_add(Duration::from_millis(at.as_millis()));
        deadline.map_or(Duration::MAX, |deadline| deadline.saturating_duration_since(std::time::Instant::now()))
    }

    pub(crate) fn timer(&self) -> &Timer {
        &self.timer
    }

    pub(crate) fn writer(&self) -> &Writer {
        &self.writer
    }

    pub(crate) fn turn(&self) -> &Turn {
        &self.turn
    }

    pub(crate) fn remote(&self) -> &Arc<Remote> {
        &self.remote
    }

    pub(crate) fn remote_of(&self, shard: ShardIndex) -> Option<&Arc<Remote>> {
        self.remotes.get(usize::from(shard.0))
    }

    pub(crate) fn admission_wait(&self) -> Duration {
        self.limits.admission_wait
    }

    pub(crate) fn close_grace(&self) -> Duration {
        self.limits.close_grace
    }

    pub(crate) fn draining(&self) -> bool {
        self.draining.get()
    }

    /// Waits for `event`, or for the drain to begin.
    pub(crate) async fn unless_draining<E: Future>(&self, event: E) {
        let mut event = pin!(event);
        poll_fn(|cx| {
            if self.draining.get() {
                return Poll::Ready(());
            }
            self.accepting.set(Some(cx.waker().clone()));
            event.as_mut().poll(cx).map(|_| ())
        })
        .await;
    }
}

/// One part in so many of a sleep, and this much at most, is what it may be late by.
const SLEEP_SLACK: u32 = 50;
const SLEEP_SLACK_MAX: Duration = Duration::from_millis(rejoin_proto::wheel::TICK_MILLIS);

/// Waits for `time` on the shard that runs this future: for handlers. Never early, and late by 2 % at most (16 ms where that is more,
/// and a millisecond where it is less), so that much of what is due at about the same time is done in one turn of the shard.
///
/// # Panics
///
/// On a thread that is no shard of a server.
pub async fn sleep(time: Duration) {
    let since = CURRENT.with_borrow(|current| current.as_ref().map(|local| local.remote.common.origin.elapsed()));
    let late = until_step(since.unwrap_or_default().saturating_add(time), slack(time));
    monoio::time::sleep(time.saturating_add(late)).await;
}

/// How late a sleep may be: a power of two, so that long sleeps end where short ones do.
fn slack(time: Duration) -> Duration {
    let most = u64::try_from((time / SLEEP_SLACK).min(SLEEP_SLACK_MAX).as_millis()).unwrap_or(0);
    Duration::from_millis(most.checked_ilog2().map_or(0, |power| 1 << power))
}

/// How long it is from `at` to the next multiple of `step`; nothing where there are no steps.
fn until_step(at: Duration, step: Duration) -> Duration {
    match at.as_nanos().checked_rem(step.as_nanos()) {
        None | Some(0) => Duration::ZERO,
        Some(past) => step - Duration::from_nanos(u64::try_from(past).unwrap_or(0)),
    }
}

/// Lets the rest of the shard have its turn: for handlers with much to compute. A future that wakes itself instead would run again
/// before any message, timer or connection is looked at. At once on a thread that is no shard.
pub async fn yield_now() {
    let here = CURRENT.with_borrow(|current| current.clone());
    if let Some(local) = here {
        local.turn.pass().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sleep_ends_with_others_and_by_its_slack() {
        let millis = Duration::from_millis;
        let slacks = [0, 49, 50, 149, 1_000, 60_000].map(|time| slack(millis(time)).as_millis());
        assert_eq!(slacks, [0, 0, 1, 2, 16, 16]);
        let ends = [1, 15, 16, 17].map(|at| at + until_step(millis(at), millis(16)).as_millis() as u64);
        assert_eq!(ends, [16, 16, 16, 32]);
        assert_eq!(until_step(Duration::from_micros(1_500), millis(1)), Duration::from_micros(500));
        assert_eq!(until_step(millis(7), Duration::ZERO), Duration::ZERO);
    }
}
