//! Connections on streams: attach and detach, replay and live tail as one motion, takeover, clean ends.
//!
//! A connection holds a position, and `resume::step` says what comes after it; nothing here queues events.

use std::time::Duration;

use bytes::Bytes;

use crate::canary::{self, Canary};
use crate::connection::{Connection, Form, Run, Serving};
use crate::eventlog::{EventLog, RingId};
use crate::http::{CHUNK_END, LAST_CHUNK, Version, chunk_head};
use crate::ids::{CallId, ConnId, Cursor, Position, SlotIndex, StreamNumber};
use crate::mcp;
use crate::refusal::Room;
use crate::resume::{self, Gap, Step};
use crate::session::{AnswerState, Attached, Session, Stream};
use crate::sse::{FieldValue, Frame};

use super::counters::GapReason;
use super::io::{Close, NotTaken, Output};
use super::reply;
use super::{Shard, Turn};

/// A connection about to be attached to a stream.
pub(super) struct Attach {
    pub slot: SlotIndex,
    pub stream: StreamNumber,
    /// The last event that its client has.
    pub position: Position,
    pub form: Form,
    pub joined: bool,
}

/// Why a stream on a connection ends before the stream does.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Ending {
    /// Another connection took it over; the client waits this long before it comes back.
    TakenOver(Duration),
    /// The server shuts down.
    Drained(Duration),
    /// The handler wants no connection held while it works.
    HungUp(Duration),
    /// The session or its incarnation ends, and everything that was said has been said.
    Over,
}

/// How far a connection was moved along its stream.
#[derive(Default)]
struct Gathered {
    /// Whether events were queued.
    events: bool,
    /// What tells how far the standalone stream was written.
    run: Option<Run>,
    /// Whether the stream has ended for it.
    ended: bool,
    /// Whether it must be cut: events are gone that it was owed, and it could not be told.
    cut: bool,
}

/// Bytes of events that are copied into one buffer with their chunk's head and end: up to here that costs less than three slices do.
const SHORT_RUN: usize = 4 << 10;

/// Bytes of a stream, framed as the connection's version needs: one chunk, or as they are.
pub(super) fn framed(connection: &Connection, bytes: &[u8]) -> Bytes {
    if connection.reply.version == Version::Http10 {
        return Bytes::copy_from_slice(bytes);
    }
    let mut chunk = Vec::with_capacity(bytes.len() + 12);
    chunk.extend_from_slice(&chunk_head(bytes.len()));
    chunk.extend_from_slice(bytes);
    chunk.extend_from_slice(CHUNK_END);
    chunk.into()
}

/// `data` of a `resync`.
fn resync_data(requested: Option<&str>, earliest: Option<&str>, gap: &Gap, reason: &str) -> Vec<u8> {
    serde_json::json!({
        "requested": requested,
        "earliest": earliest,
        "lost": gap.lost,
        "unrecoverable": true,
        "reason": reason,
    })
    .to_string()
    .into_bytes()
}

impl Shard {
    /// Attaches a connection to a stream.
    pub(super) fn attach(&mut self, conn: ConnId, attach: Attach, turn: &Turn<'_>) {
        let Attach { slot, stream: number, position, form, joined } = attach;
        let Some(session) = self.sessions.get_mut(slot.0 as usize).and_then(Option::as_deref_mut) else { return };
        session.attached += 1;
        session.last_active = turn.now;
        let mut replay_to = position;
        if let Some(stream) = session.stream_mut(number) {
            stream.attach(conn);
            replay_to = stream.last(&self.log);
        }
        if let Some(connection) = self.connection(conn) {
            let (announced, crossed_gap) = (false, false);
            connection.serving =
                Some(Serving { slot, stream: number, position, replay_to, announced, crossed_gap, joined, form, retry: None });
        }
        self.ready.push_back(conn);
    }

    /// Takes a connection off its stream.
    pub(super) fn detach(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        let Some(connection) = self.connections.get_mut(conn.0 as usize).and_then(Option::as_deref_mut) else { return };
        let Some(serving) = connection.serving.take() else { return };
        let Some(session) = self.sessions.get_mut(serving.slot.0 as usize).and_then(Option::as_deref_mut) else { return };
        session.attached = session.attached.saturating_sub(1);
        session.last_active = turn.now;
        if let Some(stream) = session.stream_mut(serving.stream) {
            stream.detach(conn);
        }
        if session.is_exchange() {
            self.leave_exchange(serving.slot, turn);
        }
    }

    /// Events up to this one were written. On the standalone stream that is kept: a GET without a cursor goes on from what no
    /// connection has brought anywhere, however many have tried.
    pub(super) fn confirm(&mut self, brought: Option<(RingId, Position)>) {
        let Some((ring, last)) = brought else { return };
        let Some((slot, StreamNumber::STANDALONE)) = self.stream_of(ring) else { return };
        if let Some(session) = self.session_mut(slot) {
            session.brought(StreamNumber::STANDALONE, last);
        }
    }

    /// A repost joins the stream of the first execution, from its beginning.
    pub(super) fn join(&mut self, conn: ConnId, slot: SlotIndex, stream: StreamNumber, turn: &mut Turn<'_>) {
        let form = self.form_of_answers();
        self.attach(conn, Attach { slot, stream, position: Position::START, form, joined: true }, turn);
        let Some(found) = self.session(slot).and_then(|session| session.stream(stream)) else { return };
        let finished = found.finished;
        if form == Form::Sse || (form == Form::Undecided && !finished && found.last(&self.log) > Position::START) {
            self.open_stream(conn, None, None, turn);
        } else if finished {
            self.settle_answer(conn, turn);
        }
    }

    /// Writes the head of an SSE stream, and its opening event; where the next event is gone a `resync` stands in for it.
    pub(super) fn open_stream(&mut self, conn: ConnId, requested: Option<Cursor>, verdict: Option<&str>, turn: &mut Turn<'_>) {
        let retry = self.spread_retry(self.config.limits.retry, turn);
        let Some(connection) = self.connections.get_mut(conn.0 as usize).and_then(Option::as_deref_mut) else { return };
        let Some(serving) = &mut connection.serving else { return };
        let Some(session) = self.sessions.get(serving.slot.0 as usize).and_then(Option::as_deref) else { return };
        let session_id = (serving.form == Form::Initialize).then(|| session.id.encode());
        serving.form = Form::Sse;
        let opening_event = session.revision.is_some_and(|revision| revision.rules().opening_event);
        let step = session.stream(serving.stream).map(|stream| next_step(stream, &self.log, serving));
        let made = match step {
            Some(Step::Gap(gap)) if !session.is_exchange() => {
                let requested = requested.map(|cursor| cursor.encode(&self.config.key, &session.id));
                let requested = requested.as_ref().map(|text| text.as_str());
                self.counters.gap(GapReason::Evicted, &gap);
                resync(&self.config.key, session, serving, &gap, requested, GapReason::Evicted, Some(retry))
            }
            _ if opening_event => {
                let id = Cursor::new(session.incarnation, serving.stream, serving.position).encode(&self.config.key, &session.id);
                let mut made = Vec::with_capacity(96);
                Frame { event: None, id: FieldValue::new(id.as_str()), retry: Some(retry), data: Some(b"") }.encode(&mut made);
                made
            }
            _ => {
                // Where nothing is resumed, nobody is told when to come back.
                serving.retry = (!session.is_exchange()).then_some(retry);
                Vec::new()
            }
        };
        if connection.reply.version == Version::Http10 {
            // The end of such a stream is the end of the connection.
            connection.reply.keep_alive = false;
        }
        let head = reply::stream_head(&connection.reply, verdict, session_id.as_ref().map(|text| text.as_str()));
        connection.queue(head);
        if !made.is_empty() {
            let made = framed(connection, &made);
            connection.queue(made);
        }
        self.ready.push_back(conn);
    }

    /// The default `retry`, spread by ±20 % so that a herd does not come back at once.
    pub(super) fn spread_retry(&self, retry: Duration, turn: &mut Turn<'_>) -> Duration {
        // Half of what can be said leaves room for the spread.
        let millis = u64::try_from(retry.as_millis()).unwrap_or(u64::MAX).min(u64::MAX / 2);
        let fifth = millis / 5;
        Duration::from_millis(millis - fifth + (turn.random)() % (2 * fifth + 1))
    }

    /// Hands the shell what the connection may write now.
    pub(super) fn write(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        let Some(connection) = self.connection(conn) else { return };
        if connection.sending() || connection.closed() {
            return;
        }
        let Gathered { run, ended, cut, .. } = match &connection.serving {
            Some(serving) if serving.form == Form::Sse => self.gather(conn),
            _ => Gathered::default(),
        };
        let Some(connection) = self.connection(conn) else { return };
        if let Some(slices) = connection.next_send(run, turn.now) {
            turn.out.push(Output::Send { conn, slices });
        }
        if cut {
            self.shed(Room::SlowReader);
            return self.close(conn, Close::Reset, turn);
        }
        if ended {
            self.detach(conn, turn);
            if let Some(connection) = self.connection(conn) {
                connection.answered();
            }
            self.ready.push_back(conn);
        }
    }

    /// Moves a connection along its stream by at most one run of events, and queues them with what is made on the way.
    fn gather(&mut self, conn: ConnId) -> Gathered {
        let mut gathered = Gathered::default();
        let Some(connection) = self.connections.get_mut(conn.0 as usize).and_then(Option::as_deref_mut) else { return gathered };
        let Some(mut serving) = connection.serving.take() else { return gathered };
        let session = self.sessions.get_mut(serving.slot.0 as usize).and_then(Option::as_deref_mut);
        let Some(session) = session else { return gathered };
        while let Some(stream) = session.stream(serving.stream) {
            match next_step(stream, &self.log, &serving) {
                Step::Wait => break,
                Step::End => {
                    if serving.crossed_gap {
                        for answer in stream.answers.iter().filter(|answer| answer.state == AnswerState::Cancelled) {
                            let mut made = Vec::new();
                            let message = reply::outcome_unknown_message(&answer.id);
                            Frame { event: None, id: None, retry: None, data: Some(&message) }.encode(&mut made);
                            connection.queue(framed(connection, &made));
                        }
                    }
                    gathered.ended = true;
                    break;
                }
                _ if gathered.events => break,
                Step::Next(next) if next.stand_in => {
                    let id =
                        Cursor::new(session.incarnation, serving.stream, next.position).encode(&self.config.key, &session.id);
                    if let Some(answered) = stream.answered_at(next.position) {
                        let message = reply::outcome_unknown_message(answered);
                        let mut made = Vec::new();
                        let retry = serving.retry.take();
                        Frame { event: None, id: FieldValue::new(id.as_str()), retry, data: Some(&message) }.encode(&mut made);
                        self.counters.outcomes_unknown += 1;
                        connection.queue(framed(connection, &made));
                    }
                    (serving.position, serving.announced) = (next.position, false);
                }
                Step::Next(next) if serving.joined && stream.asked_and_answered(next.position) => {
                    (serving.position, serving.announced) = (next.position, false);
                }
                Step::Next(_) => {
                    let Some(ring) = stream.ring else { break };
                    // Where single events may have to be left out, they are taken one at a time.
                    let most = if serving.joined && stream.has_asked() { 1 } else { self.config.limits.send_bytes };
                    let to = self.log.read(ring, serving.position, most, &mut self.events);
                    if to == serving.position {
                        break;
                    }
                    let length = self.events.iter().map(Bytes::len).sum();
                    let replayed = to.min(serving.replay_to);
                    if replayed > serving.position {
                        self.counters.replayed_events += replayed.since(serving.position);
                        let bytes = if replayed == to { length } else { self.log.length(ring, serving.position, replayed) };
                        self.counters.replayed_bytes += bytes as u64;
                    }
                    let prefix = queue_run(connection, &mut self.events, length, serving.retry.take());
                    gathered.events = true;
                    if serving.stream == StreamNumber::STANDALONE {
                        // One event alone ends where its run does: a live one costs no list.
                        let several = to.since(serving.position) > 1;
                        let ends = if several { self.log.ends(ring, serving.position, to) } else { Vec::new() };
                        gathered.run = Some(Run { ring, prefix, length, after: serving.position, to, ends });
                    }
                    (serving.position, serving.announced) = (to, false);
                }
                Step::Gap(_) if session.is_exchange() => {
                    gathered.cut = true;
                    break;
                }
                Step::Gap(gap) if canary::bites(Canary::SilentGap) && (2..6).contains(&gap.lost) && gap.earliest.is_some() => {
                    serving.position = gap.at
                }
                Step::Gap(gap) => {
                    self.counters.gap(GapReason::Overrun, &gap);
                    let made = resync(&self.config.key, session, &mut serving, &gap, None, GapReason::Overrun, None);
                    connection.queue(framed(connection, &made));
                }
            }
        }
        if !gathered.events
            && serving.stream == StreamNumber::STANDALONE
            && session.written < serving.position
            && let Some(ring) = session.stream(serving.stream).and_then(|stream| stream.ring)
        {
            // A `resync` alone brings the reader forward too.
            let (after, to) = (serving.position, serving.position);
            gathered.run = Some(Run { ring, prefix: connection.queued(), length: 0, after, to, ends: Vec::new() });
        }
        if gathered.ended && connection.reply.version == Version::Http11 {
            connection.queue(Bytes::from_static(LAST_CHUNK));
        }
        connection.serving = Some(serving);
        gathered
    }

    /// Ends every older connection of a stream, for the one that is about to be attached.
    pub(super) fn take_over(&mut self, slot: SlotIndex, number: StreamNumber, turn: &mut Turn<'_>) {
        let limits = &self.config.limits;
        let (retry, most, window) = (limits.retry, limits.retry_max, limits.takeover_window);
        let Some(stream) = self.session_mut(slot).and_then(|session| session.stream_mut(number)) else { return };
        let older = Attached::from(stream.attached());
        if older.is_empty() {
            return;
        }
        let retry = retry.saturating_mul(1 << stream.count_takeover(turn.now, window)).min(most.max(retry));
        self.counters.takeovers += 1;
        for conn in older {
            let retry = self.spread_retry(retry, turn);
            self.end_serving(conn, Ending::TakenOver(retry), turn);
        }
    }

    /// Ends the connections of a call's stream, and lets the stream go on. 2025-11-25, transports, "Sending Messages to the Server": "After
    /// the server has sent an SSE event with an event ID to the client, the server MAY close the connection (without terminating the SSE
    /// stream) at any time in order to avoid holding a long-lived connection." Clients of older revisions have no id to come back with.
    pub(super) fn hang_up(
        &mut self,
        slot: SlotIndex,
        call: CallId,
        retry: Option<Duration>,
        turn: &mut Turn<'_>,
    ) -> Result<(), NotTaken> {
        let session = self.session(slot).ok_or(NotTaken::SessionEnded)?;
        let number = session.call(call).map(|call| call.stream).ok_or(NotTaken::CallEnded)?;
        let can_come_back = session.revision.is_some_and(|revision| revision.rules().opening_event);
        let Some(stream) = session.stream(number).filter(|stream| can_come_back && !stream.json_only) else { return Ok(()) };
        let limits = &self.config.limits;
        let retry = retry.map_or(limits.retry, |retry| retry.min(limits.retry_max.max(limits.retry)));
        for conn in Attached::from(stream.attached()) {
            let retry = self.spread_retry(retry, turn);
            self.end_serving(conn, Ending::HungUp(retry), turn);
        }
        Ok(())
    }

    /// Ends a stream on one connection before the stream itself ends: a clean end, with `retry` where the client may come back.
    pub(super) fn end_serving(&mut self, conn: ConnId, ending: Ending, turn: &mut Turn<'_>) {
        let Some(form) = self.connection(conn).and_then(|connection| connection.serving.as_ref()).map(|serving| serving.form)
        else {
            return;
        };
        match form {
            Form::Sse => {}
            Form::Undecided | Form::Held => self.open_stream(conn, None, None, turn),
            Form::Json | Form::Initialize => return self.give_up_answer(conn, turn),
        }
        let Some(connection) = self.connections.get_mut(conn.0 as usize).and_then(Option::as_deref_mut) else { return };
        let Some(serving) = &connection.serving else { return };
        let opening_event = self
            .sessions
            .get(serving.slot.0 as usize)
            .and_then(Option::as_deref)
            .and_then(|session| session.revision)
            .is_some_and(|revision| revision.rules().opening_event);
        match ending {
            // Clients of older revisions take a block without data for a message and fail on it.
            Ending::TakenOver(retry) | Ending::Drained(retry) | Ending::HungUp(retry) if opening_event => {
                let mut made = Vec::new();
                Frame { event: None, id: None, retry: Some(retry), data: None }.encode(&mut made);
                let made = framed(connection, &made);
                connection.queue(made);
            }
            _ => {}
        }
        if connection.reply.version == Version::Http11 {
            connection.queue(Bytes::from_static(LAST_CHUNK));
        }
        connection.taken_over = true;
        self.detach(conn, turn);
        if let Some(connection) = self.connection(conn) {
            connection.answered();
        }
        self.ready.push_back(conn);
    }

    /// Queues everything that a stream still holds for a connection, and a clean end: the session or its incarnation is about to go.
    pub(super) fn say_the_rest(&mut self, conn: ConnId, turn: &mut Turn<'_>) {
        let sse = self
            .connection(conn)
            .and_then(|connection| connection.serving.as_ref())
            .is_some_and(|serving| matches!(serving.form, Form::Sse));
        if !sse {
            return self.settle_answer(conn, turn);
        }
        loop {
            let gathered = self.gather(conn);
            if gathered.ended {
                break self.detach(conn, turn);
            }
            if !gathered.events {
                return self.end_serving(conn, Ending::Over, turn);
            }
        }
        if let Some(connection) = self.connection(conn) {
            connection.answered();
        }
        self.ready.push_back(conn);
    }
}

/// What a connection gets next. A joined repost is not asked again what its client has answered: a gap that ends at such a request
/// reaches beyond it, so that what its `resync` names is what follows.
fn next_step(stream: &Stream, log: &EventLog, serving: &Serving) -> Step {
    let step_from = |position, announced| resume::step(position, announced, &stream.reach(log, position));
    let step = step_from(serving.position, serving.announced);
    let Step::Gap(mut gap) = step else { return step };
    while let Some(left_out) = gap.earliest.filter(|&earliest| serving.joined && stream.asked_and_answered(earliest)) {
        gap = match step_from(left_out, false) {
            Step::Next(next) => Gap { at: left_out, earliest: Some(next.position), lost: gap.lost },
            Step::Gap(more) => Gap { lost: gap.lost + more.lost, ..more },
            Step::Wait | Step::End => Gap { at: left_out, earliest: None, lost: gap.lost },
        };
    }
    Step::Gap(gap)
}

/// Queues a run of events as one chunk; returns how many queued bytes come before its first frame.
fn queue_run(connection: &mut Connection, events: &mut Vec<Bytes>, length: usize, retry: Option<Duration>) -> usize {
    // The field joins the block of the frame that follows.
    let retry = retry.map(|retry| format!("retry: {}\n", retry.as_millis())).unwrap_or_default();
    let head = (connection.reply.version == Version::Http11).then(|| chunk_head(retry.len() + length));
    let (head, end): (&[u8], _) = head.as_ref().map_or((b"", b"" as &[u8]), |head| (head, CHUNK_END));
    let prefix = connection.queued() + head.len() + retry.len();
    if length > SHORT_RUN {
        connection.queue([head, retry.as_bytes()].concat().into());
        events.drain(..).for_each(|event| connection.queue(event));
        connection.queue(Bytes::from_static(end));
        return prefix;
    }
    let mut whole = Vec::with_capacity(head.len() + retry.len() + length + end.len());
    whole.extend_from_slice(head);
    whole.extend_from_slice(retry.as_bytes());
    events.drain(..).for_each(|event| whole.extend_from_slice(&event));
    whole.extend_from_slice(end);
    connection.queue(whole.into());
    prefix
}

/// A `resync`, with what stock clients act on where the stream is the standalone one; moves the reader to where it stands.
fn resync(
    key: &crate::ids::Key,
    session: &Session,
    serving: &mut Serving,
    gap: &Gap,
    requested: Option<&str>,
    reason: GapReason,
    retry: Option<Duration>,
) -> Vec<u8> {
    let cursor = |position| Cursor::new(session.incarnation, serving.stream, position).encode(key, &session.id);
    let at = cursor(gap.at);
    let earliest = gap.earliest.map(cursor);
    let data = resync_data(requested, earliest.as_ref().map(|text| text.as_str()), gap, reason.as_str());
    let mut made = Vec::with_capacity(data.len() + 128);
    let retry = retry.or(serving.retry.take());
    Frame { event: FieldValue::new("resync"), id: FieldValue::new(at.as_str()), retry, data: Some(&data) }.encode(&mut made);
    if serving.stream == StreamNumber::STANDALONE {
        let mut message = Vec::new();
        let mut notify = |method: &str, params: Option<&[u8]>| {
            message.clear();
            mcp::write_notification(&mut message, method, params);
            Frame { event: None, id: None, retry: None, data: Some(&message) }.encode(&mut made);
        };
        for method in session.list_changed.methods() {
            notify(method, None);
        }
        for uri in &session.subscriptions {
            let params = serde_json::json!({ "uri": uri }).to_string();
            notify("notifications/resources/updated", Some(params.as_bytes()));
        }
    }
    // One that names no event announces none: what is lost after it is told by another.
    (serving.position, serving.announced, serving.crossed_gap) = (gap.at, gap.earliest.is_some(), true);
    made
}
