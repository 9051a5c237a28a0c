//! What handlers say, and what must become of it: taken or not, on which stream, in which words for the client.
//!
//! Never predicts what the log evicts.

use std::rc::Rc;

use rejoin_proto::ids::SessionId;
use rejoin_proto::shard::ResponsePolicy;
use rejoin_proto::shard::io::{Emission, NotTaken, Target};

use super::line::{Item, State, What};
use super::{Check, Moment, Oracle};

/// What a handler says, for the kernel and for the oracle.
#[derive(Clone, Debug)]
pub(crate) struct Speech {
    pub(crate) session: SessionId,
    pub(crate) emission: Emission,
    pub(crate) meaning: Meaning,
}

/// The same, as the oracle understands it.
#[derive(Clone, Debug)]
pub(crate) enum Meaning {
    /// A notification with these params.
    Note { to: Target, method: Rc<str>, params: Rc<str> },
    /// Progress of the call that has this token; its params after the token.
    Progress { to: Target, token: u64, rest: Rc<str> },
    /// A request to the client.
    Ask { to: Target, request: u64, method: Rc<str>, params: Rc<str> },
    /// A request is withdrawn.
    Withdraw { request: u64 },
    /// The connections of a call's stream are let go.
    HangUp { call: u64 },
    /// A call's result, or error.
    Answer { call: u64, what: What, body: Rc<str> },
    /// The result of `initialize`; no revision where it names none of ours.
    Begin { call: u64, revision: Option<&'static str>, list_changed: Vec<&'static str>, body: Rc<str> },
    /// No JSON.
    Malformed,
}

/// What must become of it.
enum Effect {
    /// It is an event of this stream.
    Say(u32, Item),
    /// The same, and it waits for an answer.
    Ask(u32, Item, u64),
    /// No connection may be served this stream any more, until one asks for it again.
    HangUp(u32),
    /// It ends this call.
    Answer(u64, Item),
    /// Nothing that a client would see.
    Nothing,
}

impl Oracle {
    /// The shard answered an emission. Comes before the deliveries and sends of the same input.
    pub(crate) fn took(&mut self, speech: &Speech, took: Result<(), NotTaken>, moment: &Moment) -> Check {
        self.coverage.hit(match took {
            Ok(()) => "took: ok",
            Err(NotTaken::SessionEnded) => "took: session ended",
            Err(NotTaken::CallEnded) => "took: call ended",
            Err(NotTaken::LogFull) => "took: log full",
            Err(NotTaken::TooLarge) => "took: too large",
            Err(NotTaken::TooManyRequests) => "took: too many requests",
            Err(NotTaken::JsonOnly) => "took: json only",
            Err(NotTaken::NoSession) => "took: no session",
            Err(NotTaken::Malformed) => "took: malformed",
        });
        let expected = self.expected(speech, moment);
        if self.is_too_large(&speech.meaning, true) {
            // Whatever else is wrong with it: it is not taken, and may be refused for either.
            return match (expected, took) {
                (_, Err(NotTaken::TooLarge)) => Ok(()),
                (Err(expected), Err(why)) if expected == why => Ok(()),
                (Ok(Effect::Nothing), Ok(())) => Ok(()),
                (_, took) => Err(format!("{:?} is too large, and: {took:?}", speech.meaning)),
            };
        }
        match (expected, took) {
            (Ok(effect), Ok(())) => self.follows(speech, effect, moment),
            (Ok(effect), Err(why)) if self.may_refuse(&effect, why) => Ok(()),
            (Err(expected), Err(why)) if expected == why => Ok(()),
            // An emission that is wrong in itself may be refused for that, whatever it was meant for.
            (Err(_), Err(NotTaken::Malformed)) if matches!(speech.meaning, Meaning::Malformed) => Ok(()),
            (Err(_), Err(NotTaken::TooLarge)) if self.is_too_large(&speech.meaning, false) => Ok(()),
            (Ok(_), Err(why)) => Err(format!("{:?} was not taken: {why:?}", speech.meaning)),
            (Err(expected), took) => Err(format!("{:?} must be refused ({expected:?}), and: {took:?}", speech.meaning)),
        }
    }

    fn expected(&self, speech: &Speech, moment: &Moment) -> Result<Effect, NotTaken> {
        let index = self.find(&speech.session).ok_or(NotTaken::SessionEnded)?;
        let session = &self.sessions[index];
        if session.ended.is_some() {
            return Err(NotTaken::SessionEnded);
        }
        let target = |to: Target| match to {
            Target::Call(call) => session.flights.get(&call.0).map(|flight| flight.stream).ok_or(NotTaken::CallEnded),
            Target::Standalone => Ok(0),
            Target::Unnamed if session.flights.len() == 1 => Ok(session.flights.values().map(|flight| flight.stream).sum()),
            Target::Unnamed => Ok(0),
        };
        let json_only = |stream: u32| stream != 0 && self.response_policy() == ResponsePolicy::Json;
        let item = |what, id: Option<Rc<str>>, method: Option<Rc<str>>, body: Rc<str>| Item {
            what,
            id,
            method,
            body,
            time: moment.now,
            over: None,
            soft: false,
        };
        match &speech.meaning {
            Meaning::Note { to, method, params } => {
                let stream = target(*to)?;
                if json_only(stream) {
                    return Ok(Effect::Nothing);
                }
                Ok(Effect::Say(stream, item(What::Notification, None, Some(method.clone()), params.clone())))
            }
            Meaning::Progress { to, token, rest } => {
                target(*to)?;
                let meant = !matches!(to, Target::Call(call) if call.0 != *token);
                let flight = session.flights.get(token).filter(|_| meant);
                let client = flight.and_then(|flight| self.book.calls[flight.marker].token.as_deref());
                let (Some(flight), Some(client)) = (flight, client) else { return Ok(Effect::Nothing) };
                if json_only(flight.stream) {
                    return Ok(Effect::Nothing);
                }
                let params = format!(r#"{{"progressToken":{client}{rest}"#).into();
                Ok(Effect::Say(flight.stream, item(What::Notification, None, Some("notifications/progress".into()), params)))
            }
            Meaning::Ask { to, request, method, params } => {
                let stream = target(*to)?;
                if session.asks.len() >= self.plan.limits.client_requests {
                    return Err(NotTaken::TooManyRequests);
                }
                if json_only(stream) {
                    return Err(NotTaken::JsonOnly);
                }
                let id = Some(request.to_string().into());
                Ok(Effect::Ask(stream, item(What::Request, id, Some(method.clone()), params.clone()), *request))
            }
            Meaning::Withdraw { .. } => Ok(Effect::Nothing),
            Meaning::HangUp { call } => {
                let flight = session.flights.get(call).ok_or(NotTaken::CallEnded)?;
                // Clients of older revisions have no id to come back with.
                let lets_go = session.revision == "2025-11-25" && !json_only(flight.stream);
                Ok(if lets_go { Effect::HangUp(flight.stream) } else { Effect::Nothing })
            }
            Meaning::Answer { call, what, body } => {
                let flight = session.flights.get(call).ok_or(NotTaken::CallEnded)?;
                Ok(Effect::Answer(*call, item(*what, Some(self.id_of(flight.marker)), None, body.clone())))
            }
            Meaning::Begin { call, revision, body, .. } => {
                let flight = session.flights.get(call).ok_or(NotTaken::CallEnded)?;
                revision.ok_or(NotTaken::Malformed)?;
                Ok(Effect::Answer(*call, item(What::Result, Some(self.id_of(flight.marker)), None, body.clone())))
            }
            Meaning::Malformed => Err(NotTaken::Malformed),
        }
    }

    /// Whether a message is certainly (or possibly) over the limit.
    fn is_too_large(&self, meaning: &Meaning, certainly: bool) -> bool {
        let body = match meaning {
            Meaning::Note { params, .. } | Meaning::Ask { params, .. } => params.len(),
            Meaning::Progress { rest, .. } => rest.len(),
            Meaning::Answer { body, .. } => body.len(),
            Meaning::Withdraw { .. } | Meaning::HangUp { .. } | Meaning::Begin { .. } | Meaning::Malformed => 0,
        };
        // The envelope around a body, at most.
        let around = if certainly { 0 } else { 512 };
        body + around > self.plan.limits.message_bytes
    }

    /// Whether the log may have no room for it.
    fn may_refuse(&self, effect: &Effect, why: NotTaken) -> bool {
        let (stored, pinned, size) = match effect {
            Effect::Say(_, item) => (true, false, item.body.len()),
            Effect::Ask(_, item, _) => (true, true, item.body.len()),
            Effect::Answer(_, item) => (false, true, item.body.len()),
            Effect::HangUp(_) | Effect::Nothing => (false, false, 0),
        };
        let limits = &self.plan.limits;
        let share = if pinned { limits.log_bytes / 100 * usize::from(limits.pinned_percent) } else { limits.log_bytes };
        match why {
            NotTaken::LogFull => stored && self.log_can_be_full(),
            NotTaken::TooLarge => size + 512 > limits.message_bytes || (stored && size + 1024 > share / 2),
            _ => false,
        }
    }

    fn follows(&mut self, speech: &Speech, effect: Effect, moment: &Moment) -> Check {
        let Some(index) = self.find(&speech.session) else { return Ok(()) };
        if let Meaning::Withdraw { request } = speech.meaning {
            self.withdrawn.insert(request, moment.step);
        }
        match effect {
            Effect::Nothing => Ok(()),
            Effect::Say(stream, item) => {
                self.sessions[index].present().lines[stream as usize].say(item, moment.step);
                Ok(())
            }
            Effect::Ask(stream, item, request) => {
                self.sessions[index].present().lines[stream as usize].say(item, moment.step);
                self.asked(index, request, stream, moment.now)
            }
            Effect::HangUp(stream) => {
                let line = &mut self.sessions[index].present().lines[stream as usize];
                line.epoch += 1;
                (line.taken, line.hung_up) = (Some(moment.step), Some(moment.step));
                Ok(())
            }
            Effect::Answer(call, item) => {
                self.answered(index, call, item, &speech.meaning, moment);
                Ok(())
            }
        }
    }

    fn answered(&mut self, index: usize, call: u64, item: Item, meaning: &Meaning, moment: &Moment) {
        let success = item.what == What::Result;
        let bound = self.plan.limits.subscriptions;
        let session = &mut self.sessions[index];
        let Some(flight) = session.flights.remove(&call) else { return };
        (session.used, session.maybe_used) = (moment.now, moment.now);
        let entry = &self.book.calls[flight.marker];
        match (entry.method, &entry.uri) {
            ("resources/subscribe", Some(uri))
                if success && session.subscriptions.len() < bound && !session.subscriptions.contains(uri) =>
            {
                session.subscriptions.push(uri.clone());
            }
            ("resources/unsubscribe", Some(uri)) if success => session.subscriptions.retain(|one| one != uri),
            // It leaves no session behind.
            ("initialize", _) if !success => session.close_ordered = Some(moment.step),
            _ => {}
        }
        if let Meaning::Begin { revision: Some(revision), list_changed, .. } = meaning {
            session.revision = revision;
            session.list_changed.clone_from(list_changed);
            session.published = Some(moment.step);
        }
        let life = session.present();
        let line = &mut life.lines[flight.stream as usize];
        line.say(item, moment.step);
        line.settle(call, State::Answered, moment.step);
        if line.finished == Some(moment.step) {
            life.finished.push(flight.stream);
        }
    }
}
