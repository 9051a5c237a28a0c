//! One event stream on one connection, block by block: its lineage, its order, its gaps told in full, its end with a cause.
//!
//! Never assumes what the log still holds: only that what was told as lost stays lost.

use std::rc::Rc;

use rejoin_proto::ids::Cursor;
use rejoin_proto::shard::ResponsePolicy;
use serde::Deserialize;

use super::line::{Line, Message, State, What};
use super::{Check, Moment, Oracle};
use crate::sim::events::Block;

/// How a stream was asked for.
#[derive(Clone, Debug)]
pub(crate) enum Asked {
    /// By a GET: with this cursor, as text too.
    Get(Option<(Cursor, Rc<str>)>),
    /// By a POST of these requests.
    Post(Rc<[usize]>),
}

/// A stream being read.
#[derive(Debug)]
pub(crate) struct Reading {
    /// Whose, by the oracle's number.
    pub(crate) session: usize,
    /// In which life.
    pub(crate) life: u32,
    /// Which stream; `None` until it is known which execution a POST was joined to.
    pub(crate) line: Option<u32>,
    asked: Asked,
    /// The last position that its client has; `None` until the stream's start is known.
    at: Option<u64>,
    /// Without a cursor (row 14), what was certainly written before, and what may have been: after the latter it starts, unless a
    /// resync tells of more.
    start: (u64, u64),
    /// `Rejoin-Verdict`, for a GET.
    verdict: Verdict,
    /// A gap was told, and this must follow it.
    gap: Option<Gap>,
    /// A gap was told at some time.
    crossed: bool,
    /// Blocks so far, comments aside.
    blocks: u64,
    /// Blocks after the last resync.
    since_gap: u64,
    /// What stock clients must be told after a gap on the standalone stream.
    reminders: Vec<String>,
    /// GETs that its stream had seen when it began.
    epoch: u64,
    /// The step in which it was asked for.
    since: u64,
    /// Its end was announced: nothing may follow.
    last_words: bool,
}

/// What a GET was promised.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Tail,
    Replay,
    Resync,
    /// A POST: nothing.
    None,
}

#[derive(Clone, Copy, Debug)]
struct Gap {
    /// The position that must follow, where one was named.
    earliest: Option<u64>,
    /// The answer at that position may have been counted as lost: then its stand-in follows.
    stand_in: bool,
    /// It may also not have been.
    held: bool,
}

/// What a client learns from a block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Heard {
    /// The stream and the id to come back with.
    pub(crate) cursor: Option<(Cursor, Rc<str>)>,
    /// A request of the server.
    pub(crate) request: Option<u64>,
    /// The client's id of a call that it answers.
    pub(crate) answers: Option<Rc<str>>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ResyncData {
    requested: Option<String>,
    earliest: Option<String>,
    lost: Option<u64>,
    unrecoverable: bool,
    reason: String,
}

impl Reading {
    /// One that begins now.
    pub(crate) fn new(session: usize, life: u32, line: Option<u32>, asked: Asked, verdict: Verdict, since: u64) -> Self {
        let at = match &asked {
            Asked::Get(cursor) => cursor.as_ref().map(|(cursor, _)| cursor.position().get()),
            Asked::Post(_) => Some(0),
        };
        Self {
            session,
            life,
            line,
            asked,
            at,
            start: (0, 0),
            verdict,
            gap: None,
            crossed: false,
            blocks: 0,
            since_gap: 0,
            reminders: Vec::new(),
            epoch: 0,
            since,
            last_words: false,
        }
    }

    /// What it must not be handed after another GET; and where it may start.
    pub(crate) fn stands(&mut self, epoch: u64, start: (u64, u64)) {
        (self.epoch, self.start) = (epoch, start);
    }

    /// The last position that it was handed, where its stream is known.
    pub(crate) fn reached(&self) -> Option<(u32, u64)> {
        Some((self.line?, self.at?))
    }

    /// Whether its end was announced.
    pub(crate) fn said_goodbye(&self) -> bool {
        self.last_words
    }

    fn is_get(&self) -> bool {
        matches!(self.asked, Asked::Get(_))
    }
}

impl Oracle {
    /// A block of a stream was handed to its connection. Returns what the client will learn when it reads it, and the position that
    /// counts as written when it is.
    pub(crate) fn block(&mut self, reading: &mut Reading, block: &Block, moment: &Moment) -> Check<Heard> {
        let nothing = Block { comment: true, ..Block::default() };
        if *block == nothing {
            self.coverage.hit("stream: keep-alive");
            return Ok(Heard::default());
        }
        if reading.last_words {
            return Err(format!("{block:?} after a stream's end was announced"));
        }
        let opens = self.sessions[reading.session].revision == "2025-11-25";
        let id = block.id.as_deref().map(|id| self.cursor_of(reading, id)).transpose()?;
        if let Some(cursor) = id {
            self.bind(reading, cursor.stream().0, moment)?;
        }
        self.check_retry(reading, block, opens)?;
        let first = reading.blocks == 0;
        reading.blocks += 1;
        reading.since_gap += 1;
        let mut heard = Heard { cursor: id.zip(block.id.as_deref().map(Rc::from)), ..Heard::default() };
        match (block.event.as_deref(), block.data.as_deref(), id) {
            (None, None, None) if opens && block.retry.is_some() => {
                self.coverage.hit("stream: goodbye with retry");
                reading.last_words = true;
            }
            (None, Some(""), Some(cursor)) => {
                if !opens || !first || reading.verdict == Verdict::Resync {
                    return Err(format!("an opening event where none is due: {block:?}"));
                }
                self.coverage.hit("stream: opening event");
                self.opens_at(reading, cursor.position().get())?;
            }
            (Some("resync"), Some(data), Some(cursor)) => self.resync(reading, data, cursor, first, moment)?,
            (None | Some("message"), Some(data), _) => {
                if first && (opens || reading.verdict == Verdict::Resync) {
                    return Err(format!("a stream begins with {block:?}"));
                }
                let message = Message::read(data)?;
                heard.request = message.method.is_some().then(|| message.id()?.parse().ok()).flatten();
                heard.answers = message.method.is_none().then(|| message.id().map(Rc::from)).flatten();
                match id {
                    Some(cursor) => self.event(reading, &message, cursor.position().get(), moment)?,
                    None => self.reminder(reading, &message)?,
                }
            }
            _ => return Err(format!("no block that a client could read: {block:?}")),
        }
        Ok(heard)
    }

    /// The cursor in an id: of this session, this life and this stream.
    fn cursor_of(&self, reading: &Reading, id: &str) -> Check<Cursor> {
        let session = &self.sessions[reading.session];
        let cursor = Cursor::parse(id.as_bytes(), &self.key, &session.id).map_err(|why| format!("the id {id}: {why:?}"))?;
        if id.len() > 64 || cursor.incarnation().0 != reading.life || reading.line.is_some_and(|line| line != cursor.stream().0) {
            return Err(format!("the id {id} on stream {:?} of life {} does not continue it", reading.line, reading.life));
        }
        Ok(cursor)
    }

    /// A stream is known by its first id: one of the executions of what was POSTed.
    fn bind(&self, reading: &mut Reading, stream: u32, moment: &Moment) -> Check {
        if reading.line.is_some() {
            return Ok(());
        }
        let Asked::Post(markers) = &reading.asked else { return Err("a GET without a stream".into()) };
        let runs = |marker: usize| self.book.calls[marker].answered_on();
        let of_it = |marker: &usize| {
            runs(*marker).any(|run| (run.session, run.life, run.stream) == (reading.session, reading.life, stream))
        };
        if !markers.iter().any(of_it) {
            return Err(format!("a POST of {markers:?} is answered on stream {stream}, which is not its own"));
        }
        reading.line = Some(stream);
        let line = self.sessions[reading.session].line(reading.life, stream).ok_or("a stream that never began")?;
        if line.taken.is_none_or(|taken| taken < moment.step) {
            reading.epoch = line.epoch;
        }
        Ok(())
    }

    fn check_retry(&self, reading: &Reading, block: &Block, opens: bool) -> Check {
        let limits = &self.plan.limits;
        let usual = limits.retry.as_millis() as u64;
        let (least, most) = match (reading.blocks, block.retry) {
            (0, None) => return Err(format!("a stream begins without a retry: {block:?}")),
            (_, None) => return Ok(()),
            (0, Some(_)) => (usual * 8 / 10, usual * 12 / 10),
            (_, Some(_)) if opens && block.data.is_none() => (usual * 8 / 10, limits.retry_max.as_millis() as u64 * 12 / 10),
            (_, Some(_)) => return Err(format!("a retry in the middle of a stream: {block:?}")),
        };
        let retry = block.retry.unwrap_or_default();
        if (least..=most).contains(&retry) { Ok(()) } else { Err(format!("retry {retry} is not in {least}..={most}")) }
    }

    /// The first id of a stream says where it stands.
    fn opens_at(&mut self, reading: &mut Reading, position: u64) -> Check {
        match reading.at {
            Some(at) if at == position => Ok(()),
            Some(at) => Err(format!("a stream asked for from {at} begins at {position}")),
            None => {
                let (least, written) = reading.start;
                let told_more = (least..written).contains(&position) && reading.verdict == Verdict::Resync;
                if position != written && !told_more {
                    return Err(format!("without a cursor the stream begins at {position}, and was written up to {written}"));
                }
                reading.at = Some(position);
                Ok(())
            }
        }
    }

    /// An event with an id.
    fn event(&mut self, reading: &mut Reading, message: &Message<'_>, position: u64, moment: &Moment) -> Check {
        if !reading.reminders.is_empty() && !self.is_over(reading) {
            return Err(format!("after a resync, {:?} must come before {message:?}", reading.reminders));
        }
        if reading.at.is_none() {
            self.opens_at(reading, position.saturating_sub(1))?;
        }
        let at = reading.at.unwrap_or_default();
        self.check_order(reading, at, position)?;
        let (session, life, number) = (reading.session, reading.life, reading.line.unwrap_or_default());
        let exact_gap = reading.gap.take();
        // What is left to say when a life ends is handed over at once, however slow its reader.
        let over = self.is_over(reading);
        let line = self.sessions[session].line_mut(life, number).ok_or("an event of a stream that never began")?;
        if reading.epoch < line.epoch {
            return Err(format!("event {position} of stream {number} on a connection from which it was taken over"));
        }
        reading.at = Some(position);
        let was_lost = line.is_lost(position);
        let Some(item) = line.find(position, message) else {
            return self.stand_in(reading, message, position, exact_gap, moment);
        };
        let (what, age) = (item.what, moment.now.saturating_sub(item.time));
        let counted_lost = exact_gap.is_some_and(|gap| !gap.held);
        if what == What::Unknown && counted_lost {
            line.lose(position, position);
            return Ok(());
        }
        if was_lost || counted_lost {
            return Err(format!("event {position} of stream {number} was told as lost, and comes: {message:?}"));
        }
        let pinned = item_is_pinned(what);
        let ttl = if pinned { self.plan.limits.result_ttl } else { self.plan.limits.event_ttl }.as_millis() as u64;
        if age > ttl.saturating_add(self.plan.slack()) && what != What::Request && !over {
            return Err(format!("event {position} of stream {number} is handed out at the age of {age} ms, past {ttl}"));
        }
        self.coverage.hit(match what {
            What::Notification => "event: notification",
            What::Request => "event: request",
            What::Result => "event: result",
            What::Error => "event: error",
            What::Unknown => "event: outcome unknown",
        });
        Ok(())
    }

    /// Events come one after the other; only what a joined repost need not see again may be left out.
    fn check_order(&mut self, reading: &Reading, at: u64, position: u64) -> Check {
        if let Some(Gap { earliest: Some(earliest), .. }) = reading.gap
            && earliest != position
        {
            return Err(format!("a resync promised event {earliest}, and {position} follows"));
        }
        if position == at + 1 {
            return Ok(());
        }
        let reposted = self.is_repost(reading);
        let line = self.sessions[reading.session].line(reading.life, reading.line.unwrap_or_default());
        let left_out = |line: &Line| {
            let over = |position: u64| line.at(position).is_none_or(|item| item.what == What::Request && item.over.is_some());
            (at + 1..position).all(over)
        };
        if position > at && reposted && line.is_some_and(left_out) {
            self.coverage.hit("join: answered request left out");
            return Ok(());
        }
        Err(format!("event {position} of stream {:?} follows event {at}", reading.line))
    }

    /// An answer that is gone: its error stands in its place, after a resync that says so.
    fn stand_in(
        &mut self,
        reading: &mut Reading,
        message: &Message<'_>,
        position: u64,
        gap: Option<Gap>,
        moment: &Moment,
    ) -> Check {
        let may = |item: &super::line::Item| self.may_be_gone(true, moment.now.saturating_sub(item.time));
        let line = self.sessions[reading.session].line(reading.life, reading.line.unwrap_or_default());
        let line = line.ok_or("a stream that never began")?;
        let answer = line.at(position);
        if answer.is_some_and(|item| !item.is_answer() || (item.id.is_some() && item.id.as_deref() != message.id()))
            || !message.is_outcome_unknown()
        {
            let said = line.items.get(position as usize - 1);
            return Err(format!("event {position} of stream {:?} is {message:?}, and was {said:?}", reading.line));
        }
        if !gap.is_some_and(|gap| gap.stand_in) {
            return Err(format!("event {position} of stream {:?} is lost, and no resync said so", reading.line));
        }
        if answer.is_some_and(|item| !may(item)) {
            return Err(format!("the answer at {position} of stream {:?} is lost without a cause", reading.line));
        }
        self.coverage.hit("event: stand-in for a lost answer");
        if let Some(line) = self.sessions[reading.session].line_mut(reading.life, reading.line.unwrap_or_default()) {
            line.lose(position, position);
        }
        Ok(())
    }

    fn resync(&mut self, reading: &mut Reading, data: &str, cursor: Cursor, first: bool, moment: &Moment) -> Check {
        let told: ResyncData =
            serde_json::from_str(data).map_err(|error| format!("a resync that cannot be read ({error}): {data}"))?;
        if !reading.reminders.is_empty() {
            return Err(format!("two resyncs, without {:?} between them", reading.reminders));
        }
        let opening = first && reading.verdict == Verdict::Resync;
        let requested = match &reading.asked {
            Asked::Get(Some((_, text))) if opening => Some(text.clone()),
            _ => None,
        };
        let position = cursor.position().get();
        let earliest = told.earliest.as_deref().map(|id| self.cursor_of(reading, id)).transpose()?;
        let earliest = earliest.map(|cursor| cursor.position().get());
        let lost = told.lost.ok_or("a resync that does not know how many events are lost")?;
        // How many positions the resync itself passes; a lost answer after it is counted too, and stood in for.
        let from = match reading.at {
            Some(at) => at,
            None => {
                self.opens_at(reading, position.wrapping_sub(lost))?;
                position - lost
            }
        };
        let passed = position.checked_sub(from).ok_or_else(|| format!("a resync goes back from {from} to {position}"))?;
        // What a repost need not see may be among it or not.
        let passed = passed - self.left_out(reading, from, position)..=passed;
        let held = passed.contains(&lost);
        let stand_in = earliest.is_some() && lost.checked_sub(1).is_some_and(|lost| passed.contains(&lost));
        let reason_fits = match told.reason.as_str() {
            "evicted" => opening || (!reading.is_get() && from == 0),
            "overrun" => !opening,
            _ => false,
        };
        if told.requested.as_deref() != requested.as_deref()
            || !told.unrecoverable
            || !reason_fits
            || earliest.is_some_and(|earliest| earliest != position + 1)
            || !(held || stand_in)
            || lost == 0
        {
            return Err(format!("a resync from {from} that is not true: {data}, id at {position}, asked for {requested:?}"));
        }
        self.coverage.hit(if told.reason == "evicted" { "resync: evicted" } else { "resync: overrun" });
        self.check_lost(reading, from, position, earliest.is_none(), moment)?;
        (reading.at, reading.crossed, reading.since_gap) = (Some(position), true, 0);
        reading.gap = Some(Gap { earliest, stand_in, held });
        if reading.line == Some(0) {
            let session = &self.sessions[reading.session];
            reading.reminders = session.list_changed.iter().map(|&method| method.to_owned()).collect();
            let updated = |uri: &Rc<str>| format!(r#"notifications/resources/updated {{"uri":"{uri}"}}"#);
            reading.reminders.extend(session.subscriptions.iter().map(updated));
        }
        Ok(())
    }

    /// How many events of a range, at most, a repost need not see again: they are not lost, and not handed to it.
    fn left_out(&self, reading: &Reading, from: u64, to: u64) -> u64 {
        let line = self.sessions[reading.session].line(reading.life, reading.line.unwrap_or_default());
        let Some(line) = line.filter(|_| self.is_repost(reading)) else { return 0 };
        line.most_over(from, to)
    }

    fn is_repost(&self, reading: &Reading) -> bool {
        match &reading.asked {
            Asked::Post(markers) => self.book.calls[markers[0]].posts > 1,
            Asked::Get(_) => false,
        }
    }

    /// What is told as lost was said, could be lost, and stays lost.
    fn check_lost(&mut self, reading: &Reading, from: u64, to: u64, all: bool, moment: &Moment) -> Check {
        let number = reading.line.unwrap_or_default();
        let line = self.sessions[reading.session].line(reading.life, number).ok_or("a stream that never began")?;
        let (fewest, most) = line.issued(None);
        if to > most || (all && to < fewest) {
            return Err(format!("a resync to {to} on stream {number} of {fewest}..={most} events"));
        }
        for position in from + 1..=to {
            let Some(item) = line.at(position) else { continue };
            let pinned = item.is_answer() || (item.what == What::Request && item.over.is_none());
            if !self.may_be_gone(pinned, moment.now.saturating_sub(item.time)) {
                return Err(format!("event {position} of stream {number} is lost without a cause: {item:?}"));
            }
            if item.is_answer() {
                return Err(format!("the answer at {position} of stream {number} is passed over by a resync to {to}"));
            }
        }
        let reposted = self.is_repost(reading);
        if let Some(line) = self.sessions[reading.session].line_mut(reading.life, number) {
            for position in from + 1..=to {
                // A repost is not told whether what it need not see is lost.
                if !reposted || line.at(position).is_some_and(|item| item.over.is_none()) {
                    line.lose(position, position);
                }
            }
        }
        Ok(())
    }

    /// A message without an id: what stock clients act on after a gap.
    fn reminder(&mut self, reading: &mut Reading, message: &Message<'_>) -> Check {
        if let (Some(method), None) = (message.method.as_deref(), message.id()) {
            let said = match message.params {
                Some(params) => format!("{method} {}", params.get()),
                None => method.to_owned(),
            };
            let due = reading.reminders.iter().position(|due| *due == said);
            reading.reminders.remove(due.ok_or_else(|| format!("{said} without an id, where {:?} is due", reading.reminders))?);
            self.coverage.hit("resync: reminder");
            return Ok(());
        }
        let line = reading.line.and_then(|line| self.sessions[reading.session].line(reading.life, line));
        let id = message.id().unwrap_or_default();
        // A life's end may have cancelled its calls, or lost them.
        let cancelled = |line: &Line| {
            let perhaps = |item: &super::line::Item| item.soft && item.what == What::Unknown && item.id.as_deref() == Some(id);
            line.cancelled(id) || line.items.iter().any(perhaps)
        };
        if reading.crossed && message.is_outcome_unknown() && line.is_some_and(cancelled) {
            self.coverage.hit("resync: unknown outcome of a cancelled call");
            return Ok(());
        }
        Err(format!("a message without an id: {message:?}"))
    }

    /// A stream ended cleanly: it needs a reason.
    pub(crate) fn stream_ends(&mut self, reading: &Reading, moment: &Moment) -> Check {
        // What was due when a life ended, what its session was subscribed to since is not.
        if !reading.reminders.is_empty() && !self.is_over(reading) {
            return Err(format!("a stream ends, and {:?} were due", reading.reminders));
        }
        if let Some(Gap { earliest: Some(earliest), .. }) = reading.gap {
            return Err(format!("a resync promised event {earliest}, and the stream ends"));
        }
        let session = &self.sessions[reading.session];
        let candidates: Vec<u32> = match (&reading.asked, reading.line) {
            (_, Some(line)) => vec![line],
            (Asked::Post(markers), None) => {
                let runs = markers.iter().flat_map(|&marker| self.book.calls[marker].answered_on());
                runs.filter(|run| (run.session, run.life) == (reading.session, reading.life)).map(|run| run.stream).collect()
            }
            (Asked::Get(_), None) => Vec::new(),
        };
        let lines = || candidates.iter().filter_map(|&line| session.line(reading.life, line));
        let complete = |line: &Line| {
            let (fewest, most) = line.issued(None);
            let cancelled = line.answers.iter().any(|answer| answer.state == State::Cancelled);
            let told = !reading.crossed || reading.since_gap > 0 || !cancelled;
            line.finished.is_some() && (fewest..=most).contains(&reading.at.unwrap_or_default()) && told
        };
        if lines().any(complete) {
            self.coverage.hit("end: complete");
            return Ok(());
        }
        if lines().any(|line| line.hung_up.is_some_and(|step| step >= reading.since)) {
            self.coverage.hit("end: hung up");
            return Ok(());
        }
        if lines().any(|line| line.taken.is_some_and(|taken| taken >= reading.since)) {
            self.coverage.hit("end: taken over");
            return Ok(());
        }
        if self.is_over(reading) {
            self.coverage.hit("end: life over");
            return Ok(());
        }
        if moment.draining {
            self.coverage.hit("end: drained");
            return Ok(());
        }
        let issued: Vec<_> = lines().map(|line| (line.issued(None), line.finished)).collect();
        Err(format!("a stream ends without a reason: {reading:?}, issued {issued:?}"))
    }

    /// Whether the life that a stream belongs to has ended.
    fn is_over(&self, reading: &Reading) -> bool {
        let session = &self.sessions[reading.session];
        session.ended.is_some() || session.life() > reading.life
    }

    /// Whether a stream must have been handed more than it was: nothing keeps an event from an idle reader.
    pub(crate) fn owes(&self, reading: &Reading) -> Option<String> {
        let (line, at) = reading.reached()?;
        let session = &self.sessions[reading.session];
        let found = session.line(reading.life, line)?;
        let over = self.is_over(reading) || reading.epoch < found.epoch;
        let (fewest, _) = found.issued(None);
        if over || (at >= fewest && found.finished.is_none()) || (at >= fewest && !found.certain()) {
            return None;
        }
        let left: Vec<_> = (at + 1..=fewest).map(|position| found.at(position).is_some_and(|item| item.over.is_some())).collect();
        let only_left_out = !reading.is_get() && !left.is_empty() && left.iter().all(|&over| over) && found.finished.is_none();
        (!only_left_out).then(|| format!("stream {line} stands at {at} of {fewest} (finished: {:?})", found.finished))
    }

    /// Whether calls are answered in the form that the policy asks for.
    pub(super) fn admits_stream(&self, initialize: bool) -> bool {
        self.response_policy() != ResponsePolicy::Json || initialize
    }
}

fn item_is_pinned(what: What) -> bool {
    matches!(what, What::Result | What::Error | What::Unknown)
}
