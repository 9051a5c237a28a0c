//! Inputs to a shard and what comes of them: the shell's half of the contract in `shard::io`, and a watch on the kernel's half.
//!
//! Never reads an answer's bytes; that is `tap`.

use std::hash::Hasher;
use std::rc::Rc;

use bytes::Bytes;
use rejoin_proto::ids::{ConnId, ShardIndex};
use rejoin_proto::shard::io::{Close, Command, Delivery, Emission, Input, NotTaken, Output};
use rejoin_proto::time::Instant;

use super::oracle::{Check, Meaning, Speech};
use super::request::Intent;
use super::wire::{Place, Sending};
use super::world::{Answers, Late, World};

impl World<'_> {
    /// Gives a shard an input, and does what it says.
    pub(crate) fn feed(&mut self, shard: usize, input: Input<'_>) -> Check {
        match self.feed_and_ask(shard, input, None)? {
            None => Ok(()),
            Some(took) => Err(format!("nobody asked, and was answered {took:?}")),
        }
    }

    /// Gives a shard what a handler says.
    pub(crate) fn feed_speech(&mut self, shard: usize, speech: &Speech) -> Check {
        // The input is made from the speech, in place of this one.
        match self.feed_and_ask(shard, Input::TimePassed, Some(speech))? {
            Some(_) => Ok(()),
            None => Err(format!("{:?} was not answered", speech.meaning)),
        }
    }

    /// Gives a shard a command that it answers.
    pub(crate) fn feed_command(&mut self, shard: usize, command: Command, expected: Result<(), NotTaken>) -> Check {
        let took = self.feed_and_ask(shard, Input::Command(command), None)?;
        if took == Some(expected) { Ok(()) } else { Err(format!("{command:?} was answered {took:?}, and not {expected:?}")) }
    }

    fn feed_and_ask(&mut self, shard: usize, input: Input<'_>, speech: Option<&Speech>) -> Check<Option<Result<(), NotTaken>>> {
        let asking = self.asking(shard, &input);
        self.trace_input(shard, &input, speech);
        let place = ShardIndex(self.rng.index(self.cells.len()) as u8);
        let mut out = std::mem::take(&mut self.out);
        let (now, tables, cells, rng) = (Instant::from_millis(self.now), &self.tables, &mut self.cells, &mut self.rng);
        let answers = Answers { tables, place };
        let mut input = Some(input);
        self.heap += self.meter.measure(&mut || {
            // What a handler says becomes the shard's: it is made where its memory is counted.
            let input = match (speech, input.take()) {
                (Some(speech), _) => Input::Emitted { session: speech.session, emission: copy(&speech.emission) },
                (None, Some(input)) => input,
                (None, None) => return,
            };
            cells[shard].shard.handle(input, now, &mut || rng.next(), &answers, &mut out);
        });
        // A connection that is answered and closed in one breath was refused as one too many.
        let arriving = self.arriving;
        self.shed_at_once = out.iter().any(|output| matches!(output, Output::Close { conn, .. } if Some(*conn) == arriving));
        let mut took = None;
        let mut first = true;
        let mut result = Ok(());
        for output in out.drain(..) {
            if result.is_err() {
                continue;
            }
            if let Output::Took(answer) = output {
                took = Some(answer);
                result = if first { Ok(()) } else { Err("an answer that is not the first output".into()) };
                if let (Some(speech), Ok(())) = (speech, &result) {
                    self.tell(|| format!("shard {shard} took it: {answer:?}"));
                    result = self.oracle.took(speech, answer, &self.moment(shard));
                    self.handlers.took(speech, answer);
                    if let (Meaning::HangUp { call }, Ok(())) = (&speech.meaning, answer) {
                        self.loosen_hung_up(&speech.session, *call);
                    }
                }
            } else {
                result = self.output(shard, output, asking.as_deref());
            }
            first = false;
        }
        self.out = out;
        result.map(|()| took)
    }

    /// The request at the front of the connection that an input is about.
    fn asking(&self, shard: usize, input: &Input<'_>) -> Option<Rc<Intent>> {
        let conn = match input {
            Input::Received { conn, .. } | Input::HandedOver { conn, .. } | Input::Sent { conn, .. } => conn.0 as usize,
            _ => return None,
        };
        let wire = self.cells[shard].conns.get(conn).copied().flatten()?;
        let pending = self.wires[wire].as_deref()?.pendings.iter().find(|pending| pending.kind.is_none())?;
        Some(pending.intent.clone())
    }

    fn trace_input(&mut self, shard: usize, input: &Input<'_>, speech: Option<&Speech>) {
        let trace = &mut self.trace;
        trace.write_u64(self.now);
        trace.write_usize(shard);
        if let Some(speech) = speech {
            trace.write_u64(speech.session.nonce_word());
        }
        match input {
            Input::Opened { conn } | Input::Shed { conn, .. } => trace.write_u32(conn.0),
            Input::HandedOver { conn, bytes, .. } => {
                trace.write_u32(conn.0);
                trace.write(bytes);
            }
            Input::Received { conn, bytes } => {
                trace.write_u32(conn.0);
                trace.write(bytes);
            }
            Input::Sent { conn, bytes } => {
                trace.write_u32(conn.0);
                trace.write_usize(*bytes);
            }
            Input::Closed { conn } => trace.write_u32(!conn.0),
            Input::Command(_) => trace.write_u8(1),
            Input::Mail(_) => trace.write_u8(3),
            Input::TimePassed | Input::Emitted { .. } => trace.write_u8(2),
        }
    }

    fn output(&mut self, shard: usize, output: Output, asking: Option<&Intent>) -> Check {
        match output {
            Output::Send { conn, slices } => self.send(shard, conn, slices),
            Output::Read { conn, wanted } => {
                self.oracle.coverage.hit("output: read");
                let index = self.wire_of(shard, conn)?;
                if let Some(wire) = &mut self.wires[index] {
                    wire.reading = wanted;
                }
                Ok(())
            }
            Output::Close { conn, how } => self.closes(shard, conn, how),
            Output::Handoff { conn, to, bytes, placed } => self.hands_off(shard, conn, usize::from(to.0), bytes, placed),
            Output::Post { .. } => Err("mail about an idempotency key, which nobody sent".into()),
            Output::Deliver { session, delivery } => {
                self.tell(|| format!("shard {shard} delivers to {session:?}: {}", short(&format!("{delivery:?}"))));
                let result = self.oracle.deliver(&session, &delivery, &self.moment(shard), asking);
                if matches!(delivery, Delivery::Rotated | Delivery::Closed { .. }) {
                    self.loosen_all(&session);
                }
                self.handlers.told(session, &delivery, &self.plan, &mut self.rng);
                self.give_back(delivery);
                result
            }
            Output::Took(_) => Ok(()),
            Output::WakeAt(at) => {
                self.oracle.coverage.hit("output: wake at");
                self.cells[shard].wake = Some(at.as_millis());
                Ok(())
            }
            Output::Drained => {
                self.oracle.coverage.hit("output: drained");
                let cell = &mut self.cells[shard];
                let twice = std::mem::replace(&mut cell.drained, true);
                let asked = cell.draining.is_some();
                let busy = self.oracle.calls_on(shard);
                self.tell(|| format!("shard {shard} is drained"));
                if twice || !asked || busy > 0 {
                    return Err(format!("drained: asked {asked}, said before {twice}, calls in flight {busy}"));
                }
                Ok(())
            }
        }
    }

    /// Lets go of something that a shard made.
    pub(crate) fn give_back<T>(&mut self, thing: T) {
        let mut thing = Some(thing);
        self.heap += self.meter.measure(&mut || drop(thing.take()));
    }

    fn wire_of(&self, shard: usize, conn: ConnId) -> Check<usize> {
        let found = self.cells[shard].conns.get(conn.0 as usize).copied().flatten();
        found.ok_or_else(|| format!("shard {shard} speaks of connection {}, which it does not have", conn.0))
    }

    fn send(&mut self, shard: usize, conn: ConnId, slices: Vec<Bytes>) -> Check {
        self.oracle.coverage.hit("output: send");
        let index = self.wire_of(shard, conn)?;
        let total: u64 = slices.iter().map(|slice| slice.len() as u64).sum();
        slices.iter().for_each(|slice| self.trace.write(slice));
        let mut wire = self.wires[index].take().ok_or("a connection without an end")?;
        let bad =
            wire.send.is_some() || wire.closing.is_some() || slices.is_empty() || slices.iter().any(|slice| slice.is_empty());
        if bad {
            return Err(format!(
                "a send of {total} bytes on wire {index}: under way {:?}, closing {:?}",
                wire.send, wire.closing
            ));
        }
        self.tell(|| {
            let text: Vec<u8> = slices.iter().flatten().copied().collect();
            format!("shard {shard} sends on wire {index}: {}", short(&String::from_utf8_lossy(&text)))
        });
        let mut result = Ok(());
        for slice in &slices {
            result = result.and_then(|()| self.tap(&mut wire, index, slice, shard));
        }
        wire.last_send = self.now;
        wire.send = Some(Sending { slices, left: total, total });
        self.wires[index] = Some(wire);
        result
    }

    fn closes(&mut self, shard: usize, conn: ConnId, how: Close) -> Check {
        self.oracle.coverage.hit(if how == Close::Clean { "output: close, clean" } else { "output: close, reset" });
        let index = self.wire_of(shard, conn)?;
        self.tell(|| format!("shard {shard} closes wire {index}: {how:?}"));
        let moment = self.moment(shard);
        let mut wire = self.wires[index].take().ok_or("a connection without an end")?;
        let result = self.may_close(&mut wire, how, &moment);
        self.detach(&mut wire);
        wire.closing = Some(how);
        self.wires[index] = Some(wire);
        result?;
        if how == Close::Reset || self.wires[index].as_deref().is_some_and(|wire| wire.send.is_none()) {
            self.closed_later(index, 0);
        }
        Ok(())
    }

    fn hands_off(&mut self, shard: usize, conn: ConnId, to: usize, bytes: Bytes, placed: bool) -> Check {
        self.oracle.coverage.hit(if placed { "output: handoff of a new session" } else { "output: handoff" });
        self.trace.write(&bytes);
        let index = self.wire_of(shard, conn)?;
        self.tell(|| format!("shard {shard} hands wire {index} to {to} with {} bytes", bytes.len()));
        let Some(wire) = self.wires[index].as_deref_mut() else { return Err("a connection without an end".into()) };
        wire.hops += 1;
        let whole = *bytes == *wire.unanswered();
        if wire.send.is_some() || wire.closing.is_some() || to == shard || to >= self.cells.len() || !whole || wire.hops > 2 {
            return Err(format!(
                "a handoff to {to} of wire {index} with {} of {} bytes, the {}th: {:?}",
                bytes.len(),
                wire.unanswered().len(),
                wire.hops,
                wire.send
            ));
        }
        wire.place = Place::Moving;
        wire.reading = true;
        self.cells[shard].conns[conn.0 as usize] = None;
        self.late.push(Late::HandOver { wire: index, to, bytes, placed });
        Ok(())
    }

    // ---- what the shell does of itself ----

    /// Bytes of a client reach its shard.
    pub(crate) fn deliver_up(&mut self, index: usize) -> Check {
        let Some(wire) = self.wires[index].as_deref_mut() else { return Ok(()) };
        let Place::At { shard, conn } = wire.place else { return Ok(()) };
        let bytes = wire.next_up(&mut self.rng).to_vec();
        if bytes.is_empty() {
            return Ok(());
        }
        if bytes.len() == 1 {
            self.oracle.coverage.hit("input: single byte");
        }
        let from = wire.delivered;
        wire.delivered += bytes.len() as u64;
        let delivered = wire.delivered;
        let mut before = wire.pendings.front().map_or(0, |_| 0);
        for pending in &mut wire.pendings {
            if pending.begun_at.is_none() && delivered > before {
                pending.begun_at = Some(self.now);
            }
            if pending.end <= delivered && pending.whole_since == u64::MAX {
                pending.whole_since = self.step;
                self.oracle.arrives(&pending.intent, self.now);
            }
            before = pending.end;
        }
        self.tell(|| format!("wire {index} brings {} bytes ({from}..{delivered}) to shard {shard}", bytes.len()));
        self.feed(shard, Input::Received { conn: ConnId(conn), bytes: &bytes })
    }

    /// Bytes of a send go into the socket.
    pub(crate) fn write_down(&mut self, index: usize, window: u64) -> Check {
        let Some(wire) = self.wires[index].as_deref_mut() else { return Ok(()) };
        let Place::At { shard, conn } = wire.place else { return Ok(()) };
        let room = window.saturating_sub(wire.acked - wire.received);
        let Some(left) = wire.send.as_ref().map(|send| send.left) else { return Ok(()) };
        let count = wire.piece(left.min(room) as usize, &mut self.rng) as u64;
        if count == 0 {
            return Ok(());
        }
        wire.acked += count;
        wire.last_send = self.now;
        let (acked, left) = (wire.acked, left - count);
        let done = match &mut wire.send {
            Some(send) if left > 0 => {
                send.left = left;
                self.oracle.coverage.hit("input: sent in part");
                None
            }
            _ => wire.send.take(),
        };
        while let Some(mark) = wire.marks.pop_front_if(|mark| mark.end <= acked) {
            self.oracle.wrote(&mark, false);
            wire.reached = Some(mark);
        }
        if let Some(reached) = wire.reached.take_if(|_| done.is_some()) {
            self.oracle.wrote(&reached, true);
        }
        let closing = wire.closing;
        self.tell(|| format!("wire {index} takes {count} bytes, {left} left"));
        if let Some(done) = done {
            self.give_back(done.slices);
        }
        if let Some(closing) = closing {
            // Its shard has done with it; what is left of the send is the shell's.
            if left == 0 && closing == Close::Clean {
                self.closed_later(index, 0);
            }
        }
        self.feed(shard, Input::Sent { conn: ConnId(conn), bytes: count as usize })
    }

    /// Something that was due later happens now.
    pub(crate) fn late_things(&mut self) -> Check {
        if self.late.is_empty() {
            return Ok(());
        }
        let index = self.rng.index(self.late.len());
        if matches!(self.late[index], Late::Closed { not_before, .. } if not_before > self.now) {
            return Ok(());
        }
        let late = self.late.swap_remove(index);
        self.happen(late)
    }

    /// The same, for one thing.
    pub(crate) fn happen(&mut self, late: Late) -> Check {
        match late {
            Late::Emit(speech) => self.emit(speech),
            Late::Closed { wire, serial, .. } => self.told_closed(wire, serial),
            Late::HandOver { wire, to, bytes, placed } => {
                let conn = self.free_name(to);
                if let Some(moving) = self.wires[wire].as_deref_mut() {
                    moving.place = Place::At { shard: to, conn };
                }
                self.arriving = Some(ConnId(conn));
                self.cells[to].conns[conn as usize] = Some(wire);
                self.tell(|| format!("wire {wire} arrives on shard {to} as {conn}"));
                let fed = self.feed(to, Input::HandedOver { conn: ConnId(conn), bytes, placed });
                self.arriving = None;
                fed
            }
        }
    }

    /// A shard will find out that a connection is gone, so many milliseconds from now or later.
    pub(crate) fn closed_later(&mut self, index: usize, after: u64) {
        if let Some(wire) = self.wires[index].as_deref() {
            let serial = wire.serial;
            self.late.push(Late::Closed { wire: index, serial, not_before: self.now + after });
        }
    }

    /// A shard is told that a connection is gone.
    fn told_closed(&mut self, index: usize, serial: u64) -> Check {
        let Some(wire) = self.wires[index].as_deref_mut().filter(|wire| wire.serial == serial) else { return Ok(()) };
        match wire.place {
            Place::At { shard, conn } => {
                self.tell(|| format!("wire {index} is gone, shard {shard} is told"));
                self.lose_wire(index);
                self.cells[shard].conns[conn as usize] = None;
                self.feed(shard, Input::Closed { conn: ConnId(conn) })
            }
            // It is told when it has arrived.
            Place::Moving => {
                self.closed_later(index, 0);
                Ok(())
            }
            Place::Gone => Ok(()),
        }
    }

    /// A connection's shard side is over; its client reads what is left, unless it was reset.
    pub(crate) fn lose_wire(&mut self, index: usize) {
        let Some(mut wire) = self.wires[index].take() else { return };
        self.detach(&mut wire);
        if let Some(send) = wire.send.take() {
            self.give_back(send.slices);
        }
        wire.place = Place::Gone;
        if wire.closing == Some(Close::Reset) && !wire.client_gone {
            wire.client_gone = true;
            self.client_lets_go(&mut wire);
        }
        self.wires[index] = Some(wire);
        self.sweep(index);
    }

    /// A connection that is over is forgotten.
    pub(crate) fn sweep(&mut self, index: usize) {
        if self.wires[index].as_deref().is_some_and(super::wire::Wire::is_over)
            && let Some(mut wire) = self.wires[index].take()
            && !wire.client_gone
        {
            self.client_lets_go(&mut wire);
        }
    }
}

/// A copy that shares no memory: not even a count of references, which a clone of `Bytes` would begin.
fn copy(emission: &Emission) -> Emission {
    let deep = |bytes: &Bytes| Bytes::copy_from_slice(bytes);
    match emission {
        Emission::Notification { to, method, params } => {
            Emission::Notification { to: *to, method: method.clone(), params: params.as_ref().map(deep) }
        }
        Emission::Request { to, request, method, params } => {
            Emission::Request { to: *to, request: *request, method: method.clone(), params: params.as_ref().map(deep) }
        }
        Emission::Result { call, result } => Emission::Result { call: *call, result: deep(result) },
        Emission::Error { call, error } => Emission::Error { call: *call, error: deep(error) },
        Emission::Shed { call, why } => Emission::Shed { call: *call, why },
        Emission::HangUp { call, retry } => Emission::HangUp { call: *call, retry: *retry },
        Emission::CancelRequest { request } => Emission::CancelRequest { request: *request },
    }
}

/// The head of a long text.
fn short(text: &str) -> String {
    let end = text.char_indices().nth(600).map_or(text.len(), |(at, _)| at);
    format!("{:?}{}", &text[..end], if end < text.len() { "…" } else { "" })
}
