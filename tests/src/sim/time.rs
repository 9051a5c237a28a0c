//! Time, faults, and what must hold now and then: nothing late, nothing forgotten, nothing larger than it may be.
//!
//! Never looks into a shard: ages and sizes are what the oracle, the connections and the allocator know.

use rejoin_proto::shard::io::{Close, Input};

use super::oracle::{Check, Kind};
use super::wire::{Place, Wire};
use super::world::World;

/// A timer fires at most so many milliseconds late.
const TICK: u64 = 16;
/// Bytes that a shard may hold for a connection, its buffers aside.
const A_CONNECTION: u64 = 4 << 10;
/// For a session that does nothing.
const A_SESSION: u64 = 3 << 10;
/// For a call in flight, or a request to the client.
const A_CALL: u64 = 2 << 10;
/// For an id that was seen, and what was POSTed under it.
const AN_ID: u64 = 512;
/// For a stream: its tombstone.
const A_STREAM: u64 = 768;
/// For a shard's tables.
const A_SHARD: u64 = 128 << 10;

impl World<'_> {
    pub(crate) fn time_acts(&mut self) -> Check {
        match self.rng.below(100) {
            0..60 => {
                let by = self.rng.range(1, 40);
                self.pass(by)
            }
            60..85 => {
                let next = self.cells.iter().filter_map(|cell| cell.wake).min().unwrap_or(self.now + 1_000);
                let by = next.saturating_sub(self.now).clamp(1, 3_000);
                self.pass(by)
            }
            85..95 => {
                let by = self.rng.range(100, 3_000);
                self.pass(by)
            }
            95..98 => {
                let by = self.rng.range(1_000, 20_000);
                self.pass(by)
            }
            _ => self.jump(),
        }
    }

    /// Time passes, and shards are woken as they asked, or a little late.
    pub(crate) fn pass(&mut self, by: u64) -> Check {
        let until = self.now + by;
        loop {
            let due = self.cells.iter().enumerate().filter_map(|(index, cell)| Some((cell.wake?, index))).min();
            let Some((at, shard)) = due.filter(|&(at, _)| at <= until) else { break };
            let late = self.rng.below(self.plan.lateness + 1);
            self.now = self.now.max(at + late);
            self.wake(shard)?;
        }
        self.now = self.now.max(until);
        Ok(())
    }

    /// The process stood still for a while.
    fn jump(&mut self) -> Check {
        if self.rng.chance(700) {
            return Ok(());
        }
        self.oracle.coverage.hit("fault: time jumped");
        self.now += self.rng.range(1_000, 120_000);
        for shard in 0..self.cells.len() {
            self.wake(shard)?;
        }
        self.pass(1)
    }

    fn wake(&mut self, shard: usize) -> Check {
        let cell = &mut self.cells[shard];
        // What was asked for holds until it comes, or is replaced.
        cell.wake = cell.wake.filter(|&at| at > self.now);
        if cell.draining.is_some_and(|deadline| deadline + TICK <= self.now) {
            cell.ending.get_or_insert(self.now);
        }
        // What happens may make something else due at once; it must come to an end.
        for _ in 0..4 {
            self.feed(shard, Input::TimePassed)?;
            let cell = &mut self.cells[shard];
            if cell.wake.is_none_or(|at| at > self.now) {
                return Ok(());
            }
            cell.wake = None;
        }
        Err(format!("shard {shard} was told the time, {}, and wants to be told again and again", self.now))
    }

    /// Whatever is due on a shard happens.
    pub(crate) fn be_on_time(&mut self, shard: usize) -> Check {
        match self.cells[shard].wake {
            Some(at) if at <= self.now => self.wake(shard),
            _ => Ok(()),
        }
    }

    pub(crate) fn fault(&mut self) -> Check {
        match self.rng.below(10) {
            0..5 => {
                let half_open = self.rng.chance(self.plan.half_open);
                match self.some_wire(|wire| !wire.client_gone) {
                    Some(index) => self.cut(index, half_open),
                    None => Ok(()),
                }
            }
            5..7 => {
                if let Some(index) = self.some_wire(|wire| !wire.stalled && !wire.client_gone) {
                    self.oracle.coverage.hit("fault: stalled");
                    self.wires[index].iter_mut().for_each(|wire| wire.stalled = true);
                }
                Ok(())
            }
            _ => {
                if let Some(index) = self.some_wire(|wire| wire.stalled) {
                    self.wires[index].iter_mut().for_each(|wire| wire.stalled = false);
                }
                Ok(())
            }
        }
    }

    // ---- now and then ----

    /// Nothing is late, nothing is owed, nothing is too large.
    pub(crate) fn scan(&mut self) -> Check {
        for shard in 0..self.cells.len() {
            self.be_on_time(shard)?;
        }
        let slack = self.plan.slack();
        for (index, wire) in self.wires.iter().enumerate() {
            let Some(wire) = wire.as_deref() else { continue };
            self.scan_wire(wire, slack).map_err(|why| format!("wire {index}: {why}"))?;
        }
        self.oracle.scan(self.now, slack)?;
        for (index, cell) in self.cells.iter().enumerate() {
            let grace = self.plan.limits.close_grace.as_millis() as u64 + slack;
            if !cell.drained && cell.ending.is_some_and(|since| self.now > since + grace) {
                return Err(format!("shard {index} was to be drained by {:?}, and is not at {}", cell.draining, self.now));
            }
        }
        if self.cells.iter().all(|cell| cell.drained) {
            self.restart()?;
        }
        self.scan_memory()
    }

    fn scan_wire(&self, wire: &Wire, slack: u64) -> Check {
        let Place::At { .. } = wire.place else { return Ok(()) };
        if wire.closing.is_some() {
            return Ok(());
        }
        let limits = &self.plan.limits;
        let idle = wire.send.is_none();
        let Some(pending) = wire.pendings.front() else { return Ok(()) };
        match (&pending.kind, pending.begun_at) {
            (Some(Kind::Stream(reading)), _) if idle => {
                if let Some(owed) = self.oracle.owes(reading) {
                    return Err(format!("an event is owed to a reader that waits: {owed}"));
                }
                let quiet = self.now.saturating_sub(wire.last_send);
                let most = limits.keep_alive.as_millis() as u64 + slack;
                if quiet > most && !reading.said_goodbye() {
                    return Err(format!("a stream was silent for {quiet} ms"));
                }
            }
            (None, Some(begun)) if idle && pending.whole_since == u64::MAX => {
                let most = (limits.head_timeout + limits.body_timeout).as_millis() as u64 + slack;
                // Behind another answer its time begins later.
                if self.now.saturating_sub(begun.max(wire.last_send)) > most {
                    return Err(format!("a request that never ends was not refused after {most} ms: {:?}", pending.intent));
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn scan_memory(&self) -> Check {
        if !self.meter.counts() {
            return Ok(());
        }
        let shards = self.cells.len() as u64;
        let mut most = shards * (self.plan.limits.log_bytes as u64 + A_SHARD);
        for wire in self.wires.iter().flatten().filter(|wire| wire.place != Place::Gone) {
            let sending = wire.send.as_ref().map_or(0, |send| send.total);
            most += A_CONNECTION + 2 * wire.held() + sending;
        }
        let weigh = self.oracle.weigh();
        most += weigh.sessions * A_SESSION + weigh.calls * A_CALL + weigh.ids * AN_ID + weigh.streams * A_STREAM;
        let held = self.heap - self.heap_at_first;
        if held > most as i64 {
            return Err(format!("shards hold {held} bytes, at most {most} were agreed: {weigh:?}"));
        }
        Ok(())
    }

    // ---- the end ----

    /// Faults are over. Whoever waits comes back until it has what it waits for, or is told that it will not come; then everything
    /// expires, and nothing is left.
    pub(crate) fn finale(&mut self) -> Check {
        self.tell(|| "the finale: faults are over".into());
        if self.cells.iter().any(|cell| cell.draining.is_some()) {
            self.restart()?;
        }
        for round in 0..200u64 {
            self.cut_all()?;
            let mut waits = false;
            for index in 0..self.clients.len() {
                waits |= self.recover(index)?;
            }
            if !waits {
                return self.die_out();
            }
            self.pump()?;
            while let Some(speech) = self.handlers.finish_one(&self.plan, &mut self.rng) {
                self.step += 1;
                self.emit(speech)?;
                self.after_step()?;
            }
            self.pump()?;
            // First without waiting, then past every age.
            self.pass(if round < 20 { 60 } else { 30_000 })?;
            self.pump()?;
            self.scan()?;
        }
        let waiting: Vec<_> = self.clients.iter().flat_map(|client| client.waits_for()).collect();
        Err(format!("clients hang: {waiting:?}"))
    }

    fn recover(&mut self, index: usize) -> Check<bool> {
        // What the shards admit at once is little in some plans.
        for _ in 0..3 {
            match self.clients[index].recover(&mut self.oracle.book, &mut self.rng) {
                Some(order) => self.send_order(index, order, false)?,
                None => break,
            }
        }
        Ok(!self.clients[index].waits_for().is_empty())
    }

    fn cut_all(&mut self) -> Check {
        for index in 0..self.wires.len() {
            if self.wires[index].as_deref().is_some_and(|wire| !wire.client_gone) {
                self.cut(index, false)?;
            }
        }
        self.settle_late()
    }

    fn settle_late(&mut self) -> Check {
        while !self.late.is_empty() {
            for late in std::mem::take(&mut self.late) {
                self.step += 1;
                self.happen(late)?;
                self.after_step()?;
            }
        }
        Ok(())
    }

    /// The network runs until nothing moves.
    fn pump(&mut self) -> Check {
        for wire in self.wires.iter_mut().flatten() {
            wire.stalled = false;
        }
        loop {
            let before = self.step;
            self.step += 1;
            let up = |wire: &Wire| {
                matches!(wire.place, Place::At { .. }) && wire.closing.is_none() && wire.on_the_way() > 0 && wire.reading
            };
            if let Some(index) = self.some_wire(up) {
                self.deliver_up(index)?;
            } else if let Some(index) = self.some_wire(|wire| wire.send.is_some() && wire.closing != Some(Close::Reset)) {
                self.write_down(index, u64::MAX)?;
            } else if let Some(index) = self.some_wire(|wire| !wire.client_gone && wire.received < wire.acked) {
                self.read_down(index)?;
            } else if !self.late.is_empty() {
                self.settle_late()?;
            } else {
                return Ok(());
            }
            self.after_step()?;
            if self.step - before > 1_000_000 {
                return Err("the network never comes to rest".into());
            }
        }
    }

    /// Nobody comes any more: every session expires, and its memory comes back.
    fn die_out(&mut self) -> Check {
        self.cut_all()?;
        let limits = self.plan.limits.clone();
        let longest = limits.call_max_age + limits.session_ttl + limits.unconfirmed_ttl + limits.client_request_max_age;
        for _ in 0..4 {
            self.pass(longest.as_millis() as u64 + 10_000)?;
            self.step += 1;
            self.after_step()?;
        }
        self.scan()?;
        let left: Vec<_> = self.cells.iter().flat_map(|cell| cell.shard.sessions().map(|session| session.id)).collect();
        if !left.is_empty() {
            return Err(format!("sessions never expire: {left:?}"));
        }
        let residue = self.heap - self.heap_at_first;
        let most = self.cells.len() as i64 * A_SHARD as i64;
        if self.meter.counts() && residue > most {
            return Err(format!("with nobody left, shards hold {residue} bytes; {most} were agreed"));
        }
        Ok(())
    }
}
