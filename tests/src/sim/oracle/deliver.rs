//! What handlers are told, held against what clients asked for: one execution of a call, each cancellation and end with its cause.
//!
//! Never looks at what clients are sent.

use std::rc::Rc;

use rejoin_proto::ids::SessionId;
use rejoin_proto::refusal::Ended;
use rejoin_proto::shard::io::{Cancelled, Delivery, Outcome};

use super::book::{Run, note_params};
use super::line::{Answer, Item, State, What};
use super::session::{Asked, Flight, Session, Standing};
use super::{Check, Due, Moment, Oracle};
use crate::sim::request::{Intent, Post, Verb};

impl Oracle {
    /// A handler is told something; `asking` is the request at the front of the connection that the shard was just told of.
    pub(crate) fn deliver(&mut self, id: &SessionId, delivery: &Delivery, moment: &Moment, asking: Option<&Intent>) -> Check {
        if let Delivery::Initialize { params, call, principal, .. } = delivery {
            self.coverage.hit("delivery: initialize");
            return self.initialize(id, text(params)?, call.0, principal.as_str(), moment);
        }
        let index = self.find(id).ok_or_else(|| format!("{delivery:?} for {id:?}, which never began"))?;
        let session = &self.sessions[index];
        if let Some((step, why)) = session.ended {
            return Err(format!("{delivery:?} for {id:?}, which ended ({why:?}) in step {step}"));
        }
        match delivery {
            Delivery::Initialize { .. } => Ok(()),
            Delivery::Exchange { .. } => Err("a request without a session was served where there are none".into()),
            Delivery::Request { call, method, params, .. } => {
                self.coverage.hit("delivery: request");
                let params = params.as_deref().map(text).transpose()?.unwrap_or_default();
                self.request(index, call.0, method, params, moment)
            }
            Delivery::Notification { method, params, .. } => {
                self.coverage.hit("delivery: notification");
                let params = params.as_deref().map(text).transpose()?;
                self.notification(index, method, params)
            }
            Delivery::Cancelled { call, why } => self.cancelled(index, call.0, *why, moment, asking),
            Delivery::Response { request, outcome } => self.response(index, request.0, outcome, moment),
            Delivery::Rotated => self.rotated(index, moment),
            Delivery::Closed { why } => self.closed(index, *why, moment, asking),
        }
    }

    fn initialize(&mut self, id: &SessionId, params: &str, call: u64, principal: &str, moment: &Moment) -> Check {
        if self.find(id).is_some() || usize::from(id.shard().0) != moment.shard {
            return Err(format!("{id:?} begins twice, or on another shard"));
        }
        let marker = self.book.find(params).filter(|&marker| self.book.calls[marker].method == "initialize");
        let marker = marker.ok_or_else(|| format!("an initialize that nobody sent: {params}"))?;
        let entry = &mut self.book.calls[marker];
        if entry.params_with(&call.to_string()) != params || entry.principal.unwrap_or("anonymous") != principal {
            return Err(format!("initialize {marker} reached its handler as {params} of {principal}"));
        }
        let index = self.sessions.len();
        let mut session = Session::new(*id, entry.principal, moment.now);
        let stream = session.begin_line();
        entry.runs.push(Run { session: index, life: 1, stream, call });
        if entry.runs.len() > entry.posts as usize {
            return Err(format!("initialize {marker} ran more often than it was sent"));
        }
        let answer = Answer { call, id: Some(entry.id.clone()), state: State::Pending };
        session.present().lines[stream as usize].answers.push(answer);
        session.flights.insert(call, Flight { marker, stream, since: moment.now });
        session.see(&entry.id.clone(), entry.body, stream, moment.step);
        self.sessions.push(session);
        self.by_id.insert(*id, index);
        if let Some(before) = self.slots.insert((id.shard().0, id.slot().0), index)
            && self.sessions[before].ended.is_none()
        {
            return Err(format!("{id:?} was given the slot of {:?}, which lives", self.sessions[before].id));
        }
        self.alive[moment.shard] += 1;
        Ok(())
    }

    fn request(&mut self, index: usize, call: u64, method: &str, params: &str, moment: &Moment) -> Check {
        let marker = self.book.find(params).ok_or_else(|| format!("a request that nobody sent: {method} {params}"))?;
        let exact = self.plan.exact_ids || self.sessions[index].ids_seen() <= self.plan.limits.seen_ids;
        let session = &mut self.sessions[index];
        let entry = &mut self.book.calls[marker];
        if entry.method != method || entry.params_with(&call.to_string()) != params {
            return Err(format!("request {marker} reached its handler as {method} {params}"));
        }
        if entry.session.as_deref() != Some(&*session.text) || entry.principal != session.principal || session.published.is_none()
        {
            return Err(format!("request {marker} reached the handler of {:?}, where it does not belong", session.id));
        }
        let life = session.life();
        let joined = self.batch.filter(|&(step, of, body, stream)| {
            let ran_there = |run: &Run| (run.session, run.life, run.stream) == (index, life, stream);
            entry.in_batch && (step, of, body) == (moment.step, index, entry.body) && !entry.runs.iter().any(ran_there)
        });
        let stream = match joined {
            Some((.., stream)) => stream,
            None => session.begin_line(),
        };
        if entry.in_batch {
            self.batch = Some((moment.step, index, entry.body, stream));
        }
        let standing = session.see(&entry.id.clone(), entry.body, stream, moment.step);
        if standing == Standing::Repeated && entry.is_tools_call() && exact {
            return Err(format!("call {marker} is executed again; runs before: {:?}", entry.runs));
        }
        self.coverage.hit(match (standing, session.marked) {
            (Standing::New, None) => "post: fresh",
            (Standing::New, Some(_)) => "post: in a marked session",
            (Standing::Repeated, _) => "post: repeated and executed again",
            (Standing::Reused, _) => "post: id reused",
        });
        entry.runs.push(Run { session: index, life, stream, call });
        if entry.runs.len() > entry.posts as usize {
            return Err(format!("request {marker} ran more often than it was sent: {:?}", entry.runs));
        }
        let id = Some(entry.id.clone());
        session.present().lines[stream as usize].answers.push(Answer { call, id, state: State::Pending });
        if session.flights.insert(call, Flight { marker, stream, since: moment.now }).is_some() {
            return Err(format!("two calls in flight have the name {call}"));
        }
        if session.flights.len() > self.plan.limits.calls_in_flight {
            return Err(format!("{} calls in flight in {:?}", session.flights.len(), session.id));
        }
        (session.used, session.maybe_used) = (moment.now, moment.now);
        Ok(())
    }

    fn notification(&mut self, index: usize, method: &str, params: Option<&str>) -> Check {
        let session = &mut self.sessions[index];
        if method == "notifications/initialized" {
            session.confirmed = true;
            return Ok(());
        }
        let note = params.and_then(|params| params.strip_prefix(r#"{"note":"#)?.strip_suffix('}')?.parse::<usize>().ok());
        let note = note.filter(|&note| note < self.book.notes.len() && params == Some(&*note_params(note)));
        let note = note.ok_or_else(|| format!("a notification that nobody sent: {method} {params:?}"))?;
        let entry = &mut self.book.notes[note];
        entry.delivered += 1;
        if entry.session != session.text || entry.delivered > entry.posts {
            return Err(format!("note {note} was delivered to {:?}, {} times", session.id, entry.delivered));
        }
        Ok(())
    }

    fn cancelled(&mut self, index: usize, call: u64, why: Cancelled, moment: &Moment, asking: Option<&Intent>) -> Check {
        if why == Cancelled::Repeated {
            self.coverage.hit("delivery: cancelled, repeated in a batch");
            return self.repeated(index, call, moment, asking);
        }
        let max_age = self.plan.limits.call_max_age.as_millis() as u64;
        let session = &mut self.sessions[index];
        let flight =
            session.flights.remove(&call).ok_or_else(|| format!("call {call} is cancelled ({why:?}) without being in flight"))?;
        let entry = &self.book.calls[flight.marker];
        let initialize = entry.method == "initialize";
        let mut unknown = Item {
            what: What::Unknown,
            id: Some(entry.id.clone()),
            method: None,
            body: "".into(),
            time: moment.now,
            over: None,
            soft: false,
        };
        let said = match why {
            Cancelled::ByClient => {
                self.coverage.hit("delivery: cancelled by client");
                if !session.cancels.contains(&entry.id) {
                    return Err(format!("call {call} is cancelled by a client that never asked"));
                }
                None
            }
            Cancelled::Age => {
                self.coverage.hit("delivery: cancelled for its age");
                if moment.now < flight.since + max_age || initialize {
                    return Err(format!("call {call} is too old after {} ms", moment.now - flight.since));
                }
                Some(unknown)
            }
            Cancelled::Drain => {
                self.coverage.hit("delivery: cancelled by drain");
                if !moment.draining || initialize {
                    return Err(format!("call {call} is drained, and nobody drains"));
                }
                Some(unknown)
            }
            Cancelled::SessionEnded => {
                self.coverage.hit("delivery: cancelled with its session");
                self.due.push((index, moment.step, Due::LifeOver));
                // A DELETE cancels, every other end loses; which of them it is comes next.
                unknown.soft = true;
                Some(unknown).filter(|_| !initialize)
            }
            Cancelled::Repeated => None,
        };
        let state = if said.is_some() { State::Answered } else { State::Cancelled };
        session.used = moment.now;
        session.maybe_used = moment.now;
        let life = session.present();
        let line = &mut life.lines[flight.stream as usize];
        if let Some(item) = said {
            line.say(item, moment.step);
        }
        line.settle(call, state, moment.step);
        if line.finished == Some(moment.step) && !life.finished.contains(&flight.stream) {
            life.finished.push(flight.stream);
        }
        Ok(())
    }

    /// A `tools/call` of a batch that was sent before: it is answered `outcome_unknown` and was not delivered.
    fn repeated(&mut self, index: usize, call: u64, moment: &Moment, asking: Option<&Intent>) -> Check {
        let Some(Intent { verb: Verb::Post(Post::Batch(markers, _)), .. }) = asking else {
            return Err(format!("call {call} is repeated in a batch, and none was sent"));
        };
        let body = self.book.calls[markers[0]].body;
        let session = &mut self.sessions[index];
        let stream = match self.batch {
            Some((step, of, one, stream)) if (step, of, one) == (moment.step, index, body) => stream,
            _ => session.begin_line(),
        };
        self.batch = Some((moment.step, index, body, stream));
        let first = markers[0];
        let repeat = Run { session: index, life: session.life(), stream, call: 0 };
        if !self.book.calls[first].repeats.contains(&repeat) {
            self.book.calls[first].repeats.push(repeat);
        }
        if session.marked.is_some_and(|since| since < moment.step) && self.plan.exact_ids {
            return Err(format!("call {call} counts as a repost in a session whose client reuses ids"));
        }
        let life = session.present();
        let line = &mut life.lines[stream as usize];
        let (what, time) = (What::Unknown, moment.now);
        line.say(Item { what, id: None, method: None, body: "".into(), time, over: None, soft: false }, moment.step);
        line.answers.push(Answer { call, id: None, state: State::Pending });
        line.settle(call, State::Answered, moment.step);
        if line.finished == Some(moment.step) && !life.finished.contains(&stream) {
            life.finished.push(stream);
        }
        Ok(())
    }

    fn response(&mut self, index: usize, request: u64, outcome: &Outcome, moment: &Moment) -> Check {
        let session = &mut self.sessions[index];
        let asked =
            session.asks.remove(&request).ok_or_else(|| format!("an outcome of request {request}, which asks nothing"))?;
        let (answer, error) = match outcome {
            Outcome::Result(body) => (Some(text(body)?), false),
            Outcome::Error(body) => (Some(text(body)?), true),
            Outcome::Failed => (None, false),
        };
        let Some(line) = session.present().lines.get_mut(asked.stream as usize) else {
            return Err("a request without a stream".into());
        };
        if let Some(item) = line.items.iter_mut().rev().find(|item| item.is_request(request)) {
            item.over = Some(moment.step);
        }
        let Some(answer) = answer else { return self.failed(index, request, asked, moment) };
        self.coverage.hit(if error { "delivery: response, an error" } else { "delivery: response, a result" });
        let sent =
            self.responses.get(&request).is_some_and(|sent| sent.iter().any(|(body, of)| **body == *answer && *of == error));
        if sent { Ok(()) } else { Err(format!("request {request} was answered with {answer}, which nobody sent")) }
    }

    /// A request failed: it may be followed by `notifications/cancelled`, where the log has room for it.
    fn failed(&mut self, index: usize, request: u64, asked: Asked, moment: &Moment) -> Check {
        self.coverage.hit("delivery: response, failed");
        let age = moment.now.saturating_sub(asked.since);
        let aged = age >= self.plan.limits.client_request_max_age.as_millis() as u64;
        let withdrawn = self.withdrawn.get(&request) == Some(&moment.step);
        let lost = self.may_be_gone(true, age);
        if !aged && !withdrawn && !lost {
            self.due.push((index, moment.step, Due::LifeOver));
        }
        let session = &mut self.sessions[index];
        let life = session.present();
        let open = life.lines.get(asked.stream as usize).is_some_and(|line| line.finished.is_none());
        let stream = if open { asked.stream } else { 0 };
        let item = Item {
            what: What::Notification,
            id: None,
            method: Some("notifications/cancelled".into()),
            body: format!(r#"{{"requestId":{request}}}"#).into(),
            time: moment.now,
            over: None,
            soft: true,
        };
        life.lines[stream as usize].say(item, moment.step);
        Ok(())
    }

    fn rotated(&mut self, index: usize, moment: &Moment) -> Check {
        self.coverage.hit("delivery: rotated");
        let session = &mut self.sessions[index];
        if session.rotate_ordered != Some(moment.step) {
            return Err(format!("{:?} rotates, and nobody ordered it", session.id));
        }
        if !session.flights.is_empty() || !session.asks.is_empty() {
            return Err(format!("{:?} rotates with {:?} and {:?} under way", session.id, session.flights, session.asks));
        }
        session.rotate_ordered = None;
        session.present().over = Some(moment.step);
        session.lives.push(super::session::Life::new());
        Ok(())
    }

    fn closed(&mut self, index: usize, why: Ended, moment: &Moment, asking: Option<&Intent>) -> Check {
        let limits = &self.plan.limits;
        let session = &mut self.sessions[index];
        if !session.flights.is_empty() || !session.asks.is_empty() {
            return Err(format!("{:?} ends with {:?} and {:?} under way", session.id, session.flights, session.asks));
        }
        let ttl = if session.confirmed { limits.session_ttl } else { limits.session_ttl.min(limits.unconfirmed_ttl) };
        let due = match why {
            Ended::Expired if session.published.is_none() => {
                self.coverage.hit("closed: initialize never answered");
                moment.now >= session.began + limits.call_max_age.as_millis() as u64
            }
            Ended::Expired => {
                self.coverage.hit("closed: expired");
                moment.draining || session.attached == 0 && moment.now >= session.used + ttl.as_millis() as u64
            }
            Ended::Deleted => {
                self.coverage.hit("closed: deleted");
                session.delete_asked
            }
            Ended::Closed => {
                self.coverage.hit("closed: closed");
                session.close_ordered == Some(moment.step) || (session.published.is_none() && moment.draining)
            }
            Ended::Lineage => {
                self.coverage.hit("closed: lineage");
                self.due.push((index, moment.step, Due::Told));
                let of_this =
                    |intent: &Intent| matches!(&intent.session, crate::sim::request::Shown::One(id) if *id == session.text);
                asking.is_none_or(|intent| matches!(intent.verb, Verb::Get) && of_this(intent))
            }
            Ended::Shed => self.log_can_be_full(),
            Ended::Restarted | Ended::Incarnation | Ended::Forgotten | Ended::Unknown => false,
        };
        let session = &mut self.sessions[index];
        if !due {
            return Err(format!(
                "{:?} ends ({why:?}) without a cause: confirmed {}, used at {}, attached {}, now {}",
                session.id, session.confirmed, session.used, session.attached, moment.now
            ));
        }
        session.ended = Some((moment.step, why));
        session.present().over = Some(moment.step);
        self.alive[moment.shard] -= 1;
        Ok(())
    }
}

/// Bytes that are text, or a violation.
fn text(bytes: &[u8]) -> Check<&str> {
    std::str::from_utf8(bytes).map_err(|_| "a handler was given bytes that are not UTF-8".into())
}

impl Item {
    /// Whether it is this request to the client.
    fn is_request(&self, request: u64) -> bool {
        self.what == What::Request && self.id.as_deref().is_some_and(|id| id.parse() == Ok(request))
    }
}

impl Oracle {
    /// A request to the client is under way.
    pub(super) fn asked(&mut self, index: usize, request: u64, stream: u32, now: u64) -> Check {
        let bound = self.plan.limits.client_requests;
        let session = &mut self.sessions[index];
        session.asks.insert(request, Asked { stream, since: now });
        if session.asks.len() > bound {
            return Err(format!("{} requests to the client of {:?}", session.asks.len(), session.id));
        }
        Ok(())
    }

    /// The client's id of a call.
    pub(super) fn id_of(&self, marker: usize) -> Rc<str> {
        self.book.calls[marker].id.clone()
    }
}
