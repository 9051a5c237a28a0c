//! The heads and the whole bodies of answers, held against what the table wants.
//!
//! Never reads a stream's blocks.

use std::rc::Rc;

use rejoin_proto::ids::Cursor;
use rejoin_proto::shard::ResponsePolicy;
use serde_json::value::RawValue;

use super::line::{Message, RpcError, What};
use super::stream::{Asked, Reading, Verdict};
use super::want::{Refusal, TIMEOUT, Want};
use super::{Check, Moment, Oracle, Pending};
use crate::sim::answer::Head;
use crate::sim::request::{Flaw, Intent, Post, Shown, Verb};

/// How a request is being answered.
#[derive(Debug)]
pub(crate) enum Kind {
    /// Refused: the body must say so. The session is lost to the client, for this reason.
    Refused(Refusal),
    /// Nothing follows the head.
    Empty,
    /// With a stream.
    Stream(Box<Reading>),
    /// With one JSON body: of `initialize`, of calls in this session, or nobody knows.
    Initialize(usize),
    /// The same, of calls in this session.
    Calls(usize),
    /// `outcome_unknown`.
    Unknown(usize),
}

impl Oracle {
    /// An answer's head was handed to its connection. `in_time`: the whole request was there before its time was over.
    pub(crate) fn head(&mut self, pending: &Pending, head: &Head, in_time: bool, moment: &Moment) -> Check<Kind> {
        let mut wants = self.wants(pending, moment);
        if !in_time {
            wants.push(TIMEOUT);
        }
        if pending.whole_since == u64::MAX {
            // Only a refusal may come before the whole request has.
            wants.retain(|want| matches!(want, Want::Refusal(_)));
        }
        let stream = head.field("content-type") == Some("text/event-stream");
        let json = head.field("content-type") == Some("application/json");
        let verdict = head.field("rejoin-verdict");
        let intent = &*pending.intent;
        let fits = |want: &&Want| match want {
            Want::Refusal(refusal) => head.status == refusal.status && json && verdict == Some(refusal.code),
            Want::Empty(status, with) => head.status == *status && verdict == *with && !stream && !json,
            Want::Stream { behind, .. } => {
                let expected: &[&str] = match behind {
                    Some(true) => &["replay", "resync"],
                    Some(false) => &["tail"],
                    None => &["tail", "replay", "resync"],
                };
                head.status == 200 && stream && verdict.is_some_and(|verdict| expected.contains(&verdict))
            }
            Want::Initialize(_) => head.status == 200 && (stream || json) && verdict.is_none(),
            Want::Calls(_) => head.status == 200 && (stream && self.admits_stream(false) || json) && verdict.is_none(),
            Want::Unknown(_) => head.status == 200 && json && verdict == Some("outcome_unknown"),
        };
        // Two refusals may differ in their reason only: then the body decides.
        let found = wants.iter().find(fits).cloned();
        let want = found.ok_or_else(|| format!("{intent:?} must be answered {wants:?}, and is {head:?}"))?;
        self.check_fields(intent, head, &want, stream)?;
        self.accept(pending, want, wants, head, stream, moment)
    }

    fn check_fields(&self, intent: &Intent, head: &Head, want: &Want, stream: bool) -> Check {
        let session = head.field("mcp-session-id");
        if session.is_some() && !matches!(want, Want::Initialize(_)) {
            return Err(format!("an answer to {intent:?} names a session: {head:?}"));
        }
        if stream && head.field("x-accel-buffering") != Some("no") {
            return Err(format!("a stream that proxies may hold back: {head:?}"));
        }
        let allow = match (&want, &intent.verb) {
            (Want::Refusal(refusal), _) if refusal.status == 405 => true,
            (Want::Empty(405, _), _) | (Want::Empty(..), Verb::Options) => true,
            _ => false,
        };
        if allow && head.field("allow").is_none() {
            return Err(format!("no Allow: {head:?}"));
        }
        let refused = |status| matches!(want, Want::Refusal(refusal) if refusal.status == status);
        if refused(401) && head.field("www-authenticate").is_none() || refused(503) && head.field("retry-after").is_none() {
            return Err(format!("a refusal without its field: {head:?}"));
        }
        let echoed = head.field("access-control-allow-origin");
        let early = refused(400) && intent.flaws.iter().any(|flaw| *flaw <= Flaw::TwoHosts) || refused(403) || refused(408);
        if !early && echoed != intent.origin.filter(|_| !intent.has(Flaw::StrangeOrigin)) {
            return Err(format!("origin {:?} is answered {echoed:?}", intent.origin));
        }
        Ok(())
    }

    fn accept(
        &mut self,
        pending: &Pending,
        want: Want,
        wants: Vec<Want>,
        head: &Head,
        stream: bool,
        moment: &Moment,
    ) -> Check<Kind> {
        let intent = &*pending.intent;
        self.used(intent, moment);
        match want {
            Want::Refusal(refusal) => {
                let several =
                    wants.iter().filter(|want| matches!(want, Want::Refusal(one) if one.code == refusal.code)).count() > 1;
                Ok(Kind::Refused(Refusal { reason: refusal.reason.filter(|_| !several), ..refusal }))
            }
            Want::Empty(status, verdict) => {
                self.coverage.hit(match (status, verdict, &intent.verb) {
                    (_, Some(_), _) => "row 12: complete",
                    (202, ..) => "post: 202",
                    (_, _, Verb::Delete) => "delete: 204",
                    _ => "options: 204",
                });
                self.check_done(intent)?;
                Ok(Kind::Empty)
            }
            Want::Stream { session, life, line, at, .. } => {
                let verdict = match head.field("rejoin-verdict") {
                    Some("tail") => Verdict::Tail,
                    Some("replay") => Verdict::Replay,
                    _ => Verdict::Resync,
                };
                self.coverage.hit(match (at, verdict) {
                    (Some(_), Verdict::Tail) => "row 13: tail",
                    (Some(_), Verdict::Replay) => "row 13: replay",
                    (Some(_), _) => "row 11: resync",
                    (None, Verdict::Tail) => "row 14: tail",
                    (None, Verdict::Replay) => "row 14: replay",
                    (None, _) => "row 14: resync",
                });
                Ok(Kind::Stream(Box::new(self.begin_get(intent, (session, life, line), verdict, moment))))
            }
            Want::Initialize(marker) if stream => {
                self.session_named(marker, head, true)?;
                let run = self.book.calls[marker].runs.last().ok_or("an initialize is answered that never ran")?;
                let (session, life) = (run.session, run.life);
                let asked = Asked::Post([marker].into());
                let reading = Reading::new(session, life, Some(run.stream), asked, Verdict::None, pending.whole_since);
                Ok(Kind::Stream(Box::new(reading)))
            }
            Want::Initialize(marker) => {
                let success = head.field("mcp-session-id").is_some();
                self.session_named(marker, head, success)?;
                Ok(Kind::Initialize(marker))
            }
            Want::Calls(session) if stream => {
                self.coverage.hit("post: answered by a stream");
                Ok(Kind::Stream(Box::new(self.begin_post(pending, session, moment)?)))
            }
            Want::Calls(session) => {
                self.coverage.hit("post: answered by json");
                Ok(Kind::Calls(session))
            }
            Want::Unknown(marker) => {
                self.coverage.hit("post: outcome unknown at once");
                Ok(Kind::Unknown(marker))
            }
        }
    }

    /// A request reached its session: it was in use.
    fn used(&mut self, intent: &Intent, moment: &Moment) {
        let Shown::One(text) = &intent.session else { return };
        let Ok(id) = rejoin_proto::ids::SessionId::parse(text.as_bytes(), &self.key) else { return };
        if let Some(index) = self.find(&id) {
            self.sessions[index].maybe_used = moment.now;
        }
    }

    fn begin_get(&mut self, intent: &Intent, of: (usize, u32, u32), verdict: Verdict, moment: &Moment) -> Reading {
        let (index, life, number) = of;
        let id = self.sessions[index].id;
        let cursor = match &intent.cursor {
            Shown::One(text) => Cursor::parse(text.as_bytes(), &self.key, &id).ok().map(|cursor| (cursor, text.clone())),
            _ => None,
        };
        let at = cursor.as_ref().map_or(0, |(cursor, _)| cursor.position().get());
        let mut reading = Reading::new(index, life, Some(number), Asked::Get(cursor), verdict, moment.step);
        self.sessions[index].used = moment.now;
        if let Some(line) = self.sessions[index].line_mut(life, number) {
            // Whoever is older must not be served any more.
            line.epoch += 1;
            line.written = line.written.max(at);
            line.surely_written = line.surely_written.max(at);
            line.taken = Some(moment.step);
            // Row 14: from the first event never written to any connection.
            reading.stands(line.epoch, (line.surely_written, line.written));
        }
        reading
    }

    fn begin_post(&mut self, pending: &Pending, session: usize, moment: &Moment) -> Check<Reading> {
        let markers: Rc<[usize]> = match &pending.intent.verb {
            Verb::Post(Post::Call(marker)) => [*marker].into(),
            Verb::Post(Post::Batch(markers, _)) => markers.clone(),
            other => return Err(format!("{other:?} is answered as a call")),
        };
        let here = |run: &&super::book::Run| run.session == session;
        let runs: Vec<_> = markers.iter().flat_map(|&marker| self.book.calls[marker].answered_on().filter(here)).collect();
        let life = self.sessions[session].life();
        // A life that ended in this very step may still be the one that answers.
        let life = runs.iter().map(|run| run.life).max().unwrap_or(life);
        let mut streams: Vec<u32> = runs.iter().filter(|run| run.life == life).map(|run| run.stream).collect();
        streams.sort_unstable();
        streams.dedup();
        if streams.is_empty() && markers.len() == 1 {
            return Err(format!("a POST of {markers:?} is answered by a stream, and never ran"));
        }
        let line = (streams.len() == 1).then(|| streams[0]);
        let mut reading = Reading::new(session, life, line, Asked::Post(markers), Verdict::None, pending.whole_since);
        if let Some(line) = line.and_then(|line| self.sessions[session].line(life, line)) {
            let epoch = if line.taken == Some(moment.step) { line.epoch.saturating_sub(1) } else { line.epoch };
            reading.stands(epoch, (0, 0));
        }
        Ok(reading)
    }

    /// The answer of `initialize` names its session; an error names none.
    fn session_named(&self, marker: usize, head: &Head, success: bool) -> Check {
        let named = head.field("mcp-session-id");
        let runs = &self.book.calls[marker].runs;
        let is_of_it = |id: &str| runs.iter().any(|run| *self.sessions[run.session].text == *id);
        match named {
            Some(id) if success && is_of_it(id) => Ok(()),
            None if !success => Ok(()),
            named => Err(format!("initialize {marker} is answered with session {named:?}")),
        }
    }

    /// What a 202 or 204 says was done is done.
    fn check_done(&mut self, intent: &Intent) -> Check {
        let Shown::One(text) = &intent.session else { return Ok(()) };
        let Ok(id) = rejoin_proto::ids::SessionId::parse(text.as_bytes(), &self.key) else { return Ok(()) };
        let Some(index) = self.find(&id) else { return Ok(()) };
        let session = &self.sessions[index];
        match &intent.verb {
            Verb::Post(Post::Note(note)) if self.book.notes[*note].delivered == 0 => {
                Err(format!("note {note} was accepted and not delivered"))
            }
            Verb::Post(Post::Initialized) if !session.confirmed && session.ended.is_none() => {
                Err(format!("{id:?} was confirmed, and its handler does not know"))
            }
            Verb::Post(Post::Cancel(call)) if session.in_flight_as(call, |marker| self.id_of(marker)) == 1 => {
                Err(format!("{call} was to be cancelled, and is still in flight"))
            }
            Verb::Post(Post::Respond(request)) if session.asks.contains_key(request) => {
                Err(format!("request {request} was answered, and still waits"))
            }
            Verb::Delete if session.ended.is_none() => Err(format!("{id:?} was deleted, and lives")),
            _ => Ok(()),
        }
    }

    /// A whole JSON body was handed to its connection. Returns the ids of the calls that it answers.
    pub(crate) fn body(&mut self, pending: &Pending, body: &[u8], moment: &Moment) -> Check<Vec<Rc<str>>> {
        let text = std::str::from_utf8(body).map_err(|_| "a body that is not UTF-8")?;
        match pending.kind.as_ref() {
            None | Some(Kind::Empty | Kind::Stream(_)) => {
                if body.is_empty() {
                    Ok(Vec::new())
                } else {
                    Err(format!("a body where none is due: {text}"))
                }
            }
            // HEAD is refused without a body.
            Some(Kind::Refused(_)) if matches!(pending.intent.verb, Verb::Head) && body.is_empty() => Ok(Vec::new()),
            Some(Kind::Refused(refusal)) => self.refused(*refusal, text).map(|()| Vec::new()),
            Some(Kind::Unknown(marker)) => {
                let message = Message::read(text)?;
                if !message.is_outcome_unknown() || message.id() != Some(&*self.book.calls[*marker].id) {
                    return Err(format!("call {marker} is answered with {text}"));
                }
                Ok(vec![self.id_of(*marker)])
            }
            Some(&Kind::Initialize(marker)) => {
                let message = Message::read(text)?;
                self.json_answer(&message, &[marker], None, moment)?;
                Ok(vec![self.id_of(marker)])
            }
            Some(&Kind::Calls(session)) => match &pending.intent.verb {
                Verb::Post(Post::Batch(markers, _)) => {
                    let parts: Vec<&RawValue> =
                        serde_json::from_str(text).map_err(|error| format!("no array ({error}): {text}"))?;
                    if parts.len() != markers.len() {
                        return Err(format!("{} answers to a batch of {}", parts.len(), markers.len()));
                    }
                    let markers = markers.clone();
                    let mut ids = Vec::new();
                    for part in parts {
                        let message = Message::read(part.get())?;
                        self.json_answer(&message, &markers, Some(session), moment)?;
                        ids.extend(message.id().map(Rc::from));
                    }
                    Ok(ids)
                }
                Verb::Post(Post::Call(marker)) => {
                    let message = Message::read(text)?;
                    self.json_answer(&message, &[*marker], Some(session), moment)?;
                    Ok(vec![self.id_of(*marker)])
                }
                other => Err(format!("{other:?} is answered as a call")),
            },
        }
    }

    fn refused(&mut self, refusal: Refusal, text: &str) -> Check {
        let message = Message::read(text)?;
        let error: Option<RpcError<'_>> = message.error.and_then(|error| serde_json::from_str(error.get()).ok());
        let told = error.as_ref().and_then(|error| Some((error, error.data.as_ref()?)));
        let (error, data) = told.ok_or_else(|| format!("no refusal: {text}"))?;
        let action = if data.reason.as_deref() == Some("forgotten") { "verify" } else { refusal.action };
        let fits = error.code == refusal.rpc_code
            && data.code.as_deref() == Some(refusal.code)
            && (data.action.as_deref() == Some(action) || refusal.reason.is_none() && refusal.code == "session_expired")
            && (refusal.reason.is_none() || data.reason.as_deref() == refusal.reason)
            && (refusal.code == "session_expired") == data.reason.is_some()
            && !error.message.is_empty();
        if !fits {
            return Err(format!("{refusal:?} is told as {text}"));
        }
        if data.reason.as_deref() == Some("lineage") {
            self.due.retain(|(.., due)| *due != super::Due::Told);
        }
        self.coverage.hit_refusal(refusal.code, data.reason.as_deref());
        Ok(())
    }

    /// One answer in a JSON body: what was said, or that nobody knows where that is the truth.
    fn json_answer(&mut self, message: &Message<'_>, markers: &[usize], session: Option<usize>, moment: &Moment) -> Check {
        let policy_json = self.response_policy() == ResponsePolicy::Json;
        let mut places = Vec::new();
        for &marker in markers {
            let call = &self.book.calls[marker];
            if message.id() != Some(&*call.id) {
                continue;
            }
            places.extend(call.runs.iter().filter(|run| session.is_none_or(|session| run.session == session)).copied());
        }
        // A batch that was sent again is answered on a stream of its own.
        places.extend(self.book.calls[markers[0]].repeats.iter().filter(|run| session == Some(run.session)));
        let mut complaint = None;
        for run in &places {
            let line = self.sessions[run.session].line(run.life, run.stream).ok_or("a run without a stream")?;
            let Some(found) = line.items.iter().position(|item| item.is_answer() && item.fits(message)) else { continue };
            let only_answers = line.items.iter().all(|item| item.is_answer() || item.soft);
            if line.certain() && line.is_lost(found as u64 + 1) && line.items[found].what != What::Unknown {
                complaint = Some(format!("the answer of {run:?} was told as lost, and comes: {message:?}"));
            } else if !only_answers && !policy_json && session.is_some() {
                complaint = Some(format!("{run:?} said more than its answer, and is answered by JSON"));
            } else {
                return Ok(());
            }
        }
        if let Some(complaint) = complaint {
            return Err(complaint);
        }
        if !message.is_outcome_unknown() || message.method.is_some() {
            return Err(format!("{markers:?} is answered with {message:?}, which nobody said"));
        }
        for run in &places {
            let age_of = |time: u64| moment.now.saturating_sub(time);
            let over = self.sessions[run.session].ended.is_some() || self.sessions[run.session].life() > run.life;
            let line = self.sessions[run.session].line(run.life, run.stream).ok_or("a run without a stream")?;
            let id = message.id().unwrap_or_default();
            let gone = line.items.iter().any(|item| item.is_answer() && self.may_be_gone(true, age_of(item.time)));
            if over || gone || line.cancelled(id) || moment.draining || session.is_none() {
                self.lose_answer(run, id);
                return Ok(());
            }
        }
        // A repeated call of a batch never ran in it.
        let repeated = |session: usize| {
            self.sessions[session]
                .lives
                .iter()
                .flat_map(|life| &life.lines)
                .any(|line| line.answers.iter().any(|one| one.id.is_none()))
        };
        if session.is_some_and(repeated) {
            return Ok(());
        }
        Err(format!("the outcome of {markers:?} is known, and the answer is {message:?}; runs {places:?}"))
    }

    /// A client was told that an answer is lost.
    fn lose_answer(&mut self, run: &super::book::Run, id: &str) {
        let Some(line) = self.sessions[run.session].line_mut(run.life, run.stream) else { return };
        let found = line.items.iter().position(|item| item.is_answer() && item.id.as_deref() == Some(id));
        if let Some(found) = found.filter(|_| line.certain()) {
            line.lose(found as u64 + 1, found as u64 + 1);
        }
    }
}
