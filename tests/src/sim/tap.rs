//! Answers as they leave a shard: read, given to the oracle, and kept for the client, who reads them byte by byte later.
//!
//! Never lets a client see what its connection did not bring it.

use std::rc::Rc;

use rejoin_proto::shard::io::Close;

use super::answer::Piece;
use super::client::{Loss, Thing};
use super::oracle::{Check, Kind, Moment};
use super::request::{Flaw, Verb};
use super::wire::{Mark, Place, Wire};
use super::world::World;

impl World<'_> {
    /// Bytes of a send are handed to a connection.
    pub(crate) fn tap(&mut self, wire: &mut Wire, index: usize, bytes: &[u8], shard: usize) -> Check {
        let moment = self.moment(shard);
        let begun = wire.emitted;
        wire.emitted += bytes.len() as u64;
        let mut input = bytes;
        loop {
            // A shard that has not read so far does not know that it is a HEAD.
            let bodiless = wire.pendings.front().is_some_and(|pending| {
                let known = pending.whole_since != u64::MAX && !pending.intent.has(Flaw::Smuggled);
                matches!(pending.intent.verb, Verb::Head) && known
            });
            let piece = match wire.answers.next(&mut input, bodiless)? {
                Some(piece) => piece,
                None => return Ok(()),
            };
            let place = begun + (bytes.len() - input.len()) as u64;
            match piece {
                Piece::Head(head) => self.tap_head(wire, &head, place, &moment)?,
                Piece::Body(body) => self.tap_body(wire, body, place, &moment)?,
                Piece::End => self.tap_end(wire, place, &moment).map_err(|why| format!("on wire {index}: {why}"))?,
            }
        }
    }

    fn tap_head(&mut self, wire: &mut Wire, head: &super::answer::Head, place: u64, moment: &Moment) -> Check {
        if head.status == 503 && self.shed_at_once {
            let open = self.connections_of(&self.cells[moment.shard]);
            if open <= self.plan.limits.connections as usize && !moment.draining && !self.herd {
                return Err(format!("a connection is refused, and there are {open}"));
            }
            // One connection too many is told so, asked or not.
            self.oracle.coverage.hit("input: connection refused");
            (wire.unasked, wire.said_close) = (true, head.field("connection") == Some("close"));
            return if wire.said_close { Ok(()) } else { Err(format!("one connection too many is not closed: {head:?}")) };
        }
        let Some(pending) = wire.pendings.front() else { return Err(format!("an answer to nothing: {head:?}")) };
        if head.status < 200 {
            if head.status != 100 || (wire.deferred.is_none() && !wire.client_gone) || pending.kind.is_some() {
                return Err(format!("{} where nobody waits for it", head.status));
            }
            wire.things.push_back((place, pending.intent.clone(), Thing::Continue));
            return Ok(());
        }
        if pending.begun_at.is_none() {
            return Err(format!("an answer to a request of which nothing has come: {head:?}"));
        }
        let in_time = pending.whole_since != u64::MAX;
        let kind = self.oracle.head(pending, head, in_time, moment)?;
        if head.status == 408 {
            let limits = &self.plan.limits;
            let least = limits.head_timeout.min(limits.body_timeout).as_millis() as u64;
            let since = self.now - pending.begun_at.unwrap_or_default();
            if since < least {
                return Err(format!("a request timed out after {since} ms"));
            }
        }
        wire.said_close = head.field("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
            || (pending.intent.old_http && head.field("connection").is_none());
        let closes = matches!(&kind, Kind::Refused(refusal) if refusal.closes);
        if closes && !wire.said_close {
            return Err(format!("a refusal after which the connection must close does not say so: {head:?}"));
        }
        if let Kind::Stream(reading) = &kind {
            let certain = head.body == super::answer::Framing::Chunked;
            wire.attached = Some((reading.session, certain));
            self.oracle.attach(reading.session, certain, self.now);
            if matches!(pending.intent.verb, Verb::Get) {
                self.loosen_older(reading.session, reading.life, reading.line);
            }
        }
        let session = head.field("mcp-session-id").map(Rc::from);
        let thing = Thing::Head { status: head.status, session };
        wire.things.push_back((place, pending.intent.clone(), thing));
        wire.body.clear();
        if let Some(pending) = wire.pendings.front_mut() {
            pending.kind = Some(kind);
            pending.status = head.status;
        }
        Ok(())
    }

    /// Whoever was on a stream before is not any more, though its last bytes may still be on their way.
    fn loosen_older(&mut self, session: usize, life: u32, line: Option<u32>) {
        for wire in self.wires.iter_mut().flatten() {
            let Some(Kind::Stream(reading)) = wire.pendings.front().and_then(|pending| pending.kind.as_ref()) else { continue };
            if (reading.session, reading.life, reading.line) == (session, life, line)
                && let Some((session, certain @ true)) = &mut wire.attached
            {
                *certain = false;
                self.oracle.loosen(*session, self.now);
            }
        }
    }

    /// A call's connections were let go: nobody is on its stream any more. Which stream a connection is on may not have been said yet.
    pub(crate) fn loosen_hung_up(&mut self, id: &rejoin_proto::ids::SessionId, call: u64) {
        let Some((index, line)) = self.oracle.hung_up(id, call, self.step) else { return };
        for wire in self.wires.iter_mut().flatten() {
            let Some(Kind::Stream(reading)) = wire.pendings.front().and_then(|pending| pending.kind.as_ref()) else { continue };
            if reading.session == index
                && reading.line.is_none_or(|of| of == line)
                && let Some((session, certain @ true)) = &mut wire.attached
            {
                *certain = false;
                self.oracle.loosen(*session, self.now);
            }
        }
    }

    /// A life is over: nobody is on its streams any more.
    pub(crate) fn loosen_all(&mut self, id: &rejoin_proto::ids::SessionId) {
        let session = self.oracle.find(id);
        for wire in self.wires.iter_mut().flatten() {
            if let Some((on, certain @ true)) = &mut wire.attached
                && Some(*on) == session
            {
                *certain = false;
                self.oracle.loosen(*on, self.now);
            }
        }
    }

    fn tap_body(&mut self, wire: &mut Wire, body: &[u8], place: u64, moment: &Moment) -> Check {
        if wire.unasked {
            return Ok(());
        }
        let Some(pending) = wire.pendings.front_mut() else { return Err("a body to nothing".into()) };
        let Some(Kind::Stream(reading)) = &mut pending.kind else {
            wire.body.extend_from_slice(body);
            return Ok(());
        };
        let mut left = body;
        while let Some(block) = wire.events.next(&mut left)? {
            let heard = self.oracle.block(reading, &block, moment)?;
            let end = place - left.len() as u64;
            if let (Some(0), Some((cursor, _))) = (reading.line, &heard.cursor) {
                let position = cursor.position().get();
                wire.marks.push_back(Mark { end, session: reading.session, life: reading.life, position });
            }
            if heard != super::oracle::Heard::default() {
                wire.things.push_back((end, pending.intent.clone(), Thing::Heard(heard)));
            }
        }
        Ok(())
    }

    fn tap_end(&mut self, wire: &mut Wire, place: u64, moment: &Moment) -> Check {
        if wire.unasked {
            return Ok(());
        }
        let Some(pending) = wire.pendings.pop_front() else { return Err("an end of nothing".into()) };
        let mut lost = None;
        let mut answers = Vec::new();
        let mut stream = false;
        match &pending.kind {
            Some(Kind::Stream(reading)) => {
                if !wire.events.between() {
                    return Err("a stream ends in the middle of an event".into());
                }
                stream = true;
                self.oracle.stream_ends(reading, moment)?;
            }
            Some(kind) => {
                answers = self.oracle.body(&pending, &wire.body, moment)?;
                if let Kind::Refused(refusal) = kind
                    && refusal.code == "session_expired"
                {
                    let body = String::from_utf8_lossy(&wire.body);
                    let stream_only = ["\"incarnation\"", "\"forgotten\""].iter().any(|reason| body.contains(reason));
                    lost = Some(if stream_only { Loss::Stream } else { Loss::Session });
                }
            }
            None => return Err("an end without a head".into()),
        }
        self.detach(wire);
        let thing = Thing::End { lost, answers, stream, status: pending.status };
        wire.things.push_back((place, pending.intent.clone(), thing));
        wire.answered(pending.end);
        Ok(())
    }

    /// A shard closes a connection: it needs a reason, and must not swallow a request.
    pub(crate) fn may_close(&mut self, wire: &mut Wire, how: Close, moment: &Moment) -> Check {
        if wire.unasked {
            return Ok(());
        }
        if how == Close::Reset {
            // Time-outs of writing, the end of a drain, and room in the log are the only reasons.
            let stuck = wire.send.is_some() || wire.last_send == moment.now || moment.draining;
            return if stuck { Ok(()) } else { Err("a reset without a reason".into()) };
        }
        if wire.answers.ends_with_connection() {
            return self.tap_end(wire, wire.emitted, moment);
        }
        if !wire.answers.between() {
            return Err("a clean close in the middle of an answer".into());
        }
        match wire.pendings.front() {
            Some(pending) if pending.kind.is_some() => Err("a clean close before an answer's end".into()),
            Some(pending) if pending.whole_since != u64::MAX && !wire.said_close && !moment.draining => {
                Err(format!("a clean close without an answer to {:?}", pending.intent))
            }
            _ => Ok(()),
        }
    }

    /// A connection is on no stream any more, as far as its shard knows.
    pub(crate) fn detach(&mut self, wire: &mut Wire) {
        if let Some((session, certain)) = wire.attached.take() {
            self.oracle.detach(session, certain, self.now);
        }
    }

    // ---- the client's side ----

    /// A client reads some of what came.
    pub(crate) fn read_down(&mut self, index: usize) -> Check {
        let Some(mut wire) = self.wires[index].take() else { return Ok(()) };
        let count = wire.piece((wire.acked - wire.received) as usize, &mut self.rng);
        wire.received += count as u64;
        while wire.things.front().is_some_and(|(end, ..)| *end <= wire.received) {
            let Some((_, intent, thing)) = wire.things.pop_front() else { break };
            self.note_reading(&intent, &thing);
            match &thing {
                Thing::Continue => {
                    if let Some(body) = wire.deferred.take() {
                        self.oracle.coverage.hit("client: continued after 100");
                        wire.write(&body);
                    }
                }
                Thing::Head { status: 200, session: Some(session), .. } => self.texts.push(session.clone()),
                Thing::End { .. } if wire.pendings.is_empty() => wire.deferred = None,
                Thing::Head { .. } | Thing::Heard(_) | Thing::End { .. } => {}
            }
            self.clients[wire.client].reads(&intent, &thing);
        }
        self.wires[index] = Some(wire);
        self.sweep(index);
        Ok(())
    }

    fn note_reading(&mut self, intent: &super::request::Intent, thing: &Thing) {
        let answered = match thing {
            Thing::Heard(heard) => heard.answers.is_some(),
            Thing::End { answers, .. } => !answers.is_empty(),
            _ => false,
        };
        if answered {
            self.oracle.coverage.hit("client: got a result");
        }
        if matches!((&intent.verb, thing), (Verb::Get, Thing::Head { status: 200, .. }))
            && intent.cursor != super::request::Shown::Absent
        {
            self.oracle.coverage.hit("client: came back with its last id");
        }
    }

    /// What a client waited for on this connection will not come on it.
    pub(crate) fn client_lets_go(&mut self, wire: &mut Wire) {
        for pending in &wire.pendings {
            self.clients[wire.client].let_go(&pending.intent);
        }
        // Answers that were complete and not read.
        for (_, intent, thing) in wire.things.drain(..) {
            if matches!(thing, Thing::End { .. }) {
                self.clients[wire.client].let_go(&intent);
            }
        }
        wire.deferred = None;
    }

    /// A connection is cut; its client knows at once, its shard later, or much later where nothing tells it.
    pub(crate) fn cut(&mut self, index: usize, half_open: bool) -> Check {
        let Some(mut wire) = self.wires[index].take() else { return Ok(()) };
        let next = wire.things.front().map(|(end, ..)| *end);
        if next.is_some() && wire.received > 0 && wire.received < wire.emitted {
            self.oracle.coverage.hit("fault: cut in the middle of an event");
        }
        if wire.pendings.iter().any(|pending| pending.begun_at.is_some() && pending.whole_since == u64::MAX) {
            self.oracle.coverage.hit("fault: cut in the middle of a request");
        }
        if wire.place == Place::Moving {
            self.oracle.coverage.hit("fault: cut during a handoff");
        }
        self.oracle.coverage.hit(if half_open { "fault: half-open" } else { "fault: cut" });
        wire.client_gone = true;
        let keep = self.rng.index(wire.on_the_way() + 1);
        wire.cut_up(keep);
        self.client_lets_go(&mut wire);
        let gone = wire.place == Place::Gone;
        self.wires[index] = Some(wire);
        self.tell(|| format!("wire {index} is cut, half open: {half_open}"));
        if gone {
            self.sweep(index);
        } else {
            let after = if half_open { self.rng.range(1_000, 60_000) } else { 0 };
            self.closed_later(index, after);
        }
        Ok(())
    }
}
