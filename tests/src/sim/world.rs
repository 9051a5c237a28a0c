//! The world: shards, connections, clients, handlers and time in one thread, and chance as the only cause.
//!
//! Never judges what a shard says; it hands everything to the oracle.

use std::collections::hash_map::DefaultHasher;
use std::hash::Hasher;
use std::rc::Rc;
use std::time::Duration;

use bytes::Bytes;
use rejoin_proto::http::{Head, Names};
use rejoin_proto::ids::{Boot, ConnId, Key, Principal, SessionId, ShardIndex};
use rejoin_proto::incarnations::{self, Liveness, Tables};
use rejoin_proto::shard::io::{Close, Command, Input, Output, Unauthorized, World as Asked};
use rejoin_proto::shard::{Config, Shard};
use rejoin_proto::time::Instant;

use super::Meter;
use super::client::Client;
use super::handler::Handlers;
use super::oracle::{Check, Moment, Oracle, Pending, Speech};
use super::plan::{ACTIONS, Action, Plan};
use super::request::{Post, Verb};
use super::rng::Rng;
use super::wire::{Place, Wire};

/// Everything.
pub(crate) struct World<'m> {
    pub(crate) plan: Rc<Plan>,
    pub(crate) rng: Rng,
    pub(crate) meter: &'m dyn Meter,
    pub(crate) now: u64,
    pub(crate) step: u64,
    pub(crate) boot: u32,
    pub(crate) key: Key,
    pub(crate) cells: Vec<Cell>,
    pub(crate) tables: Tables,
    pub(crate) wires: Vec<Option<Box<Wire>>>,
    pub(crate) clients: Vec<Client>,
    pub(crate) handlers: Handlers,
    pub(crate) oracle: Oracle,
    pub(crate) late: Vec<Late>,
    /// Connections so far.
    opened: u64,
    /// The one that a shard is being told of.
    pub(crate) arriving: Option<ConnId>,
    /// It is to be told that it is one too many just now.
    pub(crate) herd: bool,
    /// That one was refused.
    pub(crate) shed_at_once: bool,
    /// Session ids that were ever heard of.
    pub(crate) texts: Vec<Rc<str>>,
    pub(crate) trace: DefaultHasher,
    /// Bytes of heap that shards hold, as the allocator counts.
    pub(crate) heap: i64,
    /// Of those, what shards held when they were new.
    pub(crate) heap_at_first: i64,
    pub(crate) out: Vec<Output>,
    /// What happens, in words, where somebody wants to read it.
    pub(crate) transcript: Option<Vec<String>>,
}

/// A shard and what its shell knows of it.
pub(crate) struct Cell {
    pub(crate) shard: Shard,
    /// When it wants to be woken.
    pub(crate) wake: Option<u64>,
    /// Its connections by name.
    pub(crate) conns: Vec<Option<usize>>,
    /// It was told to drain, by then.
    pub(crate) draining: Option<u64>,
    /// That time came, and it was told.
    pub(crate) ending: Option<u64>,
    pub(crate) drained: bool,
}

/// What happens later.
pub(crate) enum Late {
    /// A connection arrives at its next shard.
    HandOver { wire: usize, to: usize, bytes: Bytes, placed: bool },
    /// A shard finds out that a connection is gone, not before then.
    Closed { wire: usize, serial: u64, not_before: u64 },
    /// Another thread's emission is taken.
    Emit(Speech),
}

/// What a shard may ask while it handles an input.
pub(crate) struct Answers<'a> {
    pub(crate) tables: &'a Tables,
    pub(crate) place: ShardIndex,
}

impl Asked for Answers<'_> {
    fn principal(&self, head: &Head) -> Result<Principal, Unauthorized> {
        match head.single("x-principal") {
            Ok(None) => Ok(Principal::new("anonymous")),
            Ok(Some(b"ann")) => Ok(Principal::new("ann")),
            Ok(Some(b"bob")) => Ok(Principal::new("bob")),
            _ => Err(Unauthorized { challenge: "Bearer realm=\"sim\"".into() }),
        }
    }

    fn liveness(&self, session: &SessionId, principal_tag: u64) -> Liveness {
        self.tables.look_up(session, principal_tag)
    }

    fn place(&self) -> ShardIndex {
        self.place
    }
}

impl<'m> World<'m> {
    /// A world that these numbers decide.
    pub(crate) fn new(mut rng: Rng, meter: &'m dyn Meter, transcript: bool) -> Self {
        let mut plan = Plan::draw(&mut rng);
        plan.actions[8] = u32::from(rng.chance(500));
        let plan = Rc::new(plan);
        let key = Key::new(std::array::from_fn(|_| rng.next() as u8));
        let clients = (0..plan.clients).map(|index| Client::new(index, &mut rng)).collect();
        let mut world = Self {
            oracle: Oracle::new(plan.clone(), key.clone()),
            rng,
            meter,
            now: 1_000,
            step: 0,
            boot: 0,
            key,
            cells: Vec::new(),
            tables: Tables::new(Boot(0), Vec::new()),
            wires: Vec::new(),
            clients,
            handlers: Handlers::default(),
            late: Vec::new(),
            opened: 0,
            arriving: None,
            herd: false,
            shed_at_once: false,
            texts: Vec::new(),
            trace: DefaultHasher::new(),
            heap: 0,
            heap_at_first: 0,
            out: Vec::with_capacity(1 << 10),
            transcript: transcript.then(Vec::new),
            plan,
        };
        world.tell_plan();
        world.begin();
        world
    }

    fn tell_plan(&mut self) {
        let plan = self.plan.clone();
        self.tell(|| format!("{plan:?}"));
    }

    /// A process begins.
    pub(crate) fn begin(&mut self) {
        let boot = Boot(self.boot);
        let names = Names::new(Some("127.0.0.1"), &[], &[]).expect("an address is a name");
        let mut tables = Vec::new();
        for index in (0..self.plan.shards).map(ShardIndex) {
            let config = Config {
                shard: index,
                shards: self.plan.shards.into(),
                boot,
                key: self.key.clone(),
                path: "/mcp".into(),
                limits: self.plan.limits.clone(),
                names: names.clone(),
                finished: self.plan.finished,
                response: self.plan.response,
                exchanges: false,
                heads: false,
            };
            let (now, slots) = (Instant::from_millis(self.now), self.plan.limits.sessions);
            let (mut shard, mut table) = (None, None);
            self.heap += self.meter.measure(&mut || {
                let (one, writer) = incarnations::table(index, boot, slots);
                table = Some(one);
                shard = Some(Shard::new(config.clone(), writer, now));
            });
            let shard = shard.expect("it was just made");
            self.cells.push(Cell { shard, wake: None, conns: Vec::new(), draining: None, ending: None, drained: false });
            tables.extend(table);
        }
        self.tables = Tables::new(boot, tables);
        self.heap_at_first = self.heap;
    }

    /// Says what happens, to whoever reads it.
    pub(crate) fn tell(&mut self, line: impl FnOnce() -> String) {
        if let Some(transcript) = &mut self.transcript {
            transcript.push(format!("{:>7} {:>9} ms  {}", self.step, self.now, line()));
            if transcript.len() > 200_000 {
                transcript.drain(..100_000);
            }
        }
    }

    /// The moment, on a shard.
    pub(crate) fn moment(&self, shard: usize) -> Moment {
        let cell = &self.cells[shard];
        Moment { step: self.step, now: self.now, shard, draining: cell.draining.is_some() }
    }

    /// Connections that a shard keeps: those that it refused at once are none.
    pub(crate) fn connections_of(&self, cell: &Cell) -> usize {
        let kept = |index: &&usize| self.wires[**index].as_deref().is_none_or(|wire| !wire.unasked);
        cell.conns.iter().flatten().filter(kept).count()
    }

    /// One step: something happens, or nothing.
    pub(crate) fn step(&mut self) -> Check {
        self.step += 1;
        match ACTIONS[self.rng.weighted(&self.plan.actions)] {
            Action::Up => self.bytes_arrive()?,
            Action::Down => self.bytes_leave()?,
            Action::Read => self.client_reads()?,
            Action::Client => self.client_acts()?,
            Action::Handler => self.handler_acts()?,
            Action::Late => self.late_things()?,
            Action::Time => self.time_acts()?,
            Action::Fault => self.fault()?,
            Action::Command => self.command()?,
        }
        self.after_step()
    }

    /// What must hold after every step, and what is looked at now and then.
    pub(crate) fn after_step(&mut self) -> Check {
        self.oracle.step_over()?;
        if self.step.is_multiple_of(64) {
            self.scan()?;
        }
        Ok(())
    }

    // ---- the network ----

    /// A connection for which this holds, at random.
    pub(crate) fn some_wire(&mut self, which: impl Fn(&Wire) -> bool) -> Option<usize> {
        let count = self.wires.len();
        let from = self.rng.index(count.max(1));
        (0..count).map(|offset| (from + offset) % count).find(|&index| self.wires[index].as_deref().is_some_and(&which))
    }

    pub(crate) fn bytes_arrive(&mut self) -> Check {
        let eager = self.rng.chance(20);
        let ready = |wire: &Wire| {
            matches!(wire.place, Place::At { .. }) && wire.closing.is_none() && wire.on_the_way() > 0 && (wire.reading || eager)
        };
        match self.some_wire(ready) {
            Some(index) => self.deliver_up(index),
            None => Ok(()),
        }
    }

    pub(crate) fn bytes_leave(&mut self) -> Check {
        let window = self.plan.window;
        let ready = |wire: &Wire| {
            wire.send.is_some() && wire.closing != Some(Close::Reset) && !wire.stalled && wire.acked - wire.received < window
        };
        match self.some_wire(ready) {
            Some(index) => self.write_down(index, window),
            None => Ok(()),
        }
    }

    pub(crate) fn client_reads(&mut self) -> Check {
        match self.some_wire(|wire| !wire.client_gone && wire.received < wire.acked) {
            Some(index) => self.read_down(index),
            None => Ok(()),
        }
    }

    // ---- clients ----

    fn client_acts(&mut self) -> Check {
        let index = self.rng.index(self.clients.len());
        let order = self.clients[index].act(&self.plan, &mut self.oracle.book, &self.texts, &self.key, &mut self.rng);
        match order {
            Some(order) => self.send_order(index, order, true),
            None => Ok(()),
        }
    }

    /// A client sends a request, over a connection that it has or a new one.
    pub(crate) fn send_order(&mut self, client: usize, order: super::client::Order, may_reuse: bool) -> Check {
        self.oracle.sends(&order.intent);
        if let Verb::Post(Post::Respond(request)) = order.intent.verb {
            self.oracle.responds(request, &order.body);
        }
        let reuse = may_reuse && self.rng.chance(self.plan.reuse);
        let found = if reuse { self.some_wire(|wire| wire.client == client && wire.takes_requests()) } else { None };
        let wire = match found {
            Some(wire) => wire,
            None => self.open_wire(client)?,
        };
        let intent = Rc::new(order.intent);
        let Some(on) = self.wires[wire].as_deref_mut().filter(|wire| wire.takes_requests()) else {
            self.clients[client].let_go(&intent);
            return Ok(());
        };
        if on.pendings.iter().any(|pending| pending.whole_since == u64::MAX || pending.kind.is_none()) {
            self.oracle.coverage.hit("input: pipelined");
        }
        let written = intent.write(order.body.as_bytes(), self.plan.limits.body_bytes, &mut self.rng);
        on.write(&written.first);
        let end = on.written() + written.deferred.as_ref().map_or(0, |body| body.len() as u64);
        on.deferred = written.deferred;
        on.pendings.push_back(Pending {
            intent: intent.clone(),
            end,
            whole_since: u64::MAX,
            begun_at: None,
            kind: None,
            status: 0,
        });
        self.tell(|| format!("client {client} on wire {wire}: {intent:?}"));
        Ok(())
    }

    fn open_wire(&mut self, client: usize) -> Check<usize> {
        let mine = |wire: &Wire| wire.client == client && !wire.client_gone;
        if self.wires.iter().flatten().filter(|wire| mine(wire)).count() >= 8
            && let Some(oldest) = self.some_wire(mine)
        {
            self.cut(oldest, false)?;
        }
        let grain = [1, 24, 2_000, 1 << 20][self.rng.weighted(&self.plan.grains)];
        let shard = self.rng.index(self.cells.len());
        let conn = self.free_name(shard);
        self.opened += 1;
        let wire = Box::new(Wire::new(client, shard, conn, grain, self.opened));
        let index = match self.wires.iter().position(Option::is_none) {
            Some(index) => index,
            None => {
                self.wires.push(None);
                self.wires.len() - 1
            }
        };
        self.wires[index] = Some(wire);
        self.cells[shard].conns[conn as usize] = Some(index);
        self.tell(|| format!("wire {index} opens on shard {shard} as {conn}"));
        let conn = ConnId(conn);
        self.arriving = Some(conn);
        self.herd = self.rng.chance(10);
        let input = if self.herd { Input::Shed { conn, within: Duration::from_secs(3) } } else { Input::Opened { conn } };
        let fed = self.feed(shard, input);
        if std::mem::take(&mut self.herd) {
            self.oracle.coverage.hit("input: herd");
            if !self.shed_at_once {
                return Err("one too many is let in".into());
            }
        }
        self.arriving = None;
        fed.map(|()| index)
    }

    /// A name for a connection that no other has on this shard.
    pub(crate) fn free_name(&mut self, shard: usize) -> u32 {
        let conns = &mut self.cells[shard].conns;
        let free = conns.iter().position(Option::is_none).unwrap_or_else(|| {
            conns.push(None);
            conns.len() - 1
        });
        free as u32
    }

    // ---- handlers ----

    fn handler_acts(&mut self) -> Check {
        let Some(speech) = self.handlers.speak(&self.plan, &mut self.rng) else { return Ok(()) };
        if self.rng.chance(self.plan.other_thread) {
            self.late.push(Late::Emit(speech));
            return Ok(());
        }
        self.emit(speech)
    }

    /// A shard takes what a handler says.
    pub(crate) fn emit(&mut self, speech: Speech) -> Check {
        let shard = usize::from(speech.session.shard().0);
        // What time does comes first: the answer to an emission is the first output.
        self.be_on_time(shard)?;
        self.tell(|| format!("says to shard {shard}: {:?}", speech.meaning));
        self.feed_speech(shard, &speech)
    }

    // ---- the embedder ----

    fn command(&mut self) -> Check {
        let Some(text) = (!self.texts.is_empty()).then(|| self.rng.pick(&self.texts).clone()) else { return Ok(()) };
        match self.rng.below(100) {
            0..60 => self.order(&text, Command::Rotate),
            60..90 => self.order(&text, Command::Close),
            90..93 if self.rng.chance(100) => self.restart(),
            93..97 if self.rng.chance(100) => self.drain(),
            _ => Ok(()),
        }
    }

    fn order(&mut self, text: &str, command: fn(SessionId) -> Command) -> Check {
        // Mostly one of the newest.
        let newest = self.texts.iter().rev().take(6).cloned().collect::<Vec<_>>();
        let text = if self.rng.chance(800) { self.rng.pick(&newest).to_string() } else { text.to_owned() };
        let Ok(id) = SessionId::parse(text.as_bytes(), &self.key) else { return Ok(()) };
        let shard = usize::from(id.shard().0);
        self.be_on_time(shard)?;
        let command = command(id);
        self.tell(|| format!("shard {shard} is ordered: {command:?}"));
        let expected = self.oracle.ordered(&command, self.step);
        self.feed_command(shard, command, expected)
    }

    fn drain(&mut self) -> Check {
        let deadline = self.now + self.rng.below(10_000);
        for shard in 0..self.cells.len() {
            if self.cells[shard].draining.is_none() {
                self.be_on_time(shard)?;
                self.cells[shard].draining = Some(deadline);
                self.tell(|| format!("shard {shard} drains until {deadline}"));
                let command = Command::Drain { deadline: Instant::from_millis(deadline) };
                self.feed(shard, Input::Command(command))?;
            }
        }
        Ok(())
    }

    /// The process dies and begins anew.
    pub(crate) fn restart(&mut self) -> Check {
        self.tell(|| "the process dies".into());
        self.oracle.coverage.hit("fault: restart");
        for index in 0..self.wires.len() {
            self.lose_wire(index);
        }
        for late in std::mem::take(&mut self.late) {
            if let Late::HandOver { bytes, .. } = late {
                self.give_back(bytes);
            }
        }
        let tables = std::mem::replace(&mut self.tables, Tables::new(Boot(self.boot), Vec::new()));
        let shards: Vec<_> = std::mem::take(&mut self.cells).into_iter().map(|cell| cell.shard).collect();
        let mut all = Some((tables, shards));
        self.heap += self.meter.measure(&mut || drop(all.take()));
        if self.meter.counts() && self.heap.abs() > 64 << 10 {
            return Err(format!("a shard that is gone leaves {} bytes", self.heap));
        }
        self.heap = 0;
        self.boot += 1;
        self.handlers.restart();
        self.oracle.restart(self.boot, self.step);
        self.begin();
        Ok(())
    }

    /// What was traced, as one number.
    pub(crate) fn traced(&self) -> u64 {
        self.trace.finish()
    }
}
