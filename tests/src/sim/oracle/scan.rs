//! What the world tells the oracle in passing, and what must hold now and then: nothing in flight past its age.
//!
//! Never looks at bytes.

use std::rc::Rc;

use rejoin_proto::ids::{Key, SessionId};
use rejoin_proto::shard::io::{Command, NotTaken};

use super::{Check, Oracle};
use crate::sim::request::{Intent, Post, Shown, Verb};
use crate::sim::wire::Mark;

/// How much there is of what costs memory.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Weight {
    pub(crate) sessions: u64,
    pub(crate) calls: u64,
    pub(crate) ids: u64,
    pub(crate) streams: u64,
}

impl Oracle {
    /// A client sends a request.
    pub(crate) fn sends(&mut self, intent: &Intent) {
        let Some(index) = self.session_of(intent) else { return };
        let session = &mut self.sessions[index];
        match &intent.verb {
            Verb::Post(Post::Cancel(id)) => {
                session.cancels.insert(id.clone());
            }
            Verb::Delete => session.delete_asked |= session.principal == intent.principal,
            _ => {}
        }
    }

    /// A client answers a request of the server.
    pub(crate) fn responds(&mut self, request: u64, body: &str) {
        let error = body.contains(r#""error":"#);
        let from = body.find(if error { r#""error":"# } else { r#""result":"# }).map_or(0, |at| at + if error { 8 } else { 9 });
        let payload = &body[from..body.len() - 1];
        self.responses.entry(request).or_default().push((payload.into(), error));
    }

    /// A whole request has come to a shard.
    pub(crate) fn arrives(&mut self, intent: &Intent, now: u64) {
        if let Some(index) = self.session_of(intent) {
            self.sessions[index].maybe_used = now;
        }
    }

    fn session_of(&self, intent: &Intent) -> Option<usize> {
        let Shown::One(text) = &intent.session else { return None };
        self.find(&parse(text, &self.key)?)
    }

    /// The embedder orders something; the answer that it must get.
    pub(crate) fn ordered(&mut self, command: &Command, step: u64) -> Result<(), NotTaken> {
        let (Command::Close(id) | Command::Rotate(id)) = command else { return Ok(()) };
        let index = self.find(id).ok_or(NotTaken::SessionEnded)?;
        let session = &mut self.sessions[index];
        if session.ended.is_some() {
            return Err(NotTaken::SessionEnded);
        }
        match command {
            Command::Close(_) => session.close_ordered = Some(step),
            _ => session.rotate_ordered = Some(step),
        }
        Ok(())
    }

    /// The session and the stream of a call whose connections were let go in this step.
    pub(crate) fn hung_up(&mut self, id: &SessionId, call: u64, step: u64) -> Option<(usize, u32)> {
        let index = self.find(id)?;
        let stream = self.sessions[index].flights.get(&call)?.stream;
        let line = self.sessions[index].present().lines.get(stream as usize)?;
        (line.hung_up == Some(step)).then_some((index, stream))
    }

    /// A connection is on a session's stream. Not `certain`: a stream that ends with its connection may be over before that.
    pub(crate) fn attach(&mut self, session: usize, certain: bool, now: u64) {
        let session = &mut self.sessions[session];
        session.attached += u32::from(certain);
        session.maybe_attached += 1;
        (session.used, session.maybe_used) = (now, now);
    }

    /// It is no more, as its shard sees it; its last bytes are still to come.
    pub(crate) fn loosen(&mut self, session: usize, now: u64) {
        let session = &mut self.sessions[session];
        session.attached -= 1;
        (session.used, session.maybe_used) = (now, now);
    }

    /// It is no more.
    pub(crate) fn detach(&mut self, session: usize, certain: bool, now: u64) {
        let session = &mut self.sessions[session];
        session.attached -= u32::from(certain);
        session.maybe_attached -= 1;
        session.maybe_used = now;
        if certain {
            session.used = now;
        }
    }

    /// A block of a standalone stream went into its socket whole; `surely`: and all of its send did.
    pub(crate) fn wrote(&mut self, mark: &Mark, surely: bool) {
        let Some(line) = self.sessions[mark.session].line_mut(mark.life, 0) else { return };
        line.written = line.written.max(mark.position);
        if surely {
            line.surely_written = line.surely_written.max(mark.position);
        }
    }

    /// Calls in flight on a shard.
    pub(crate) fn calls_on(&self, shard: usize) -> usize {
        let here = self.sessions.iter().filter(|session| session.ended.is_none() && usize::from(session.id.shard().0) == shard);
        here.map(|session| session.flights.len()).sum()
    }

    /// Nothing is older than it may be.
    pub(crate) fn scan(&self, now: u64, slack: u64) -> Check {
        let limits = &self.plan.limits;
        let [call, request, ttl] = [limits.call_max_age, limits.client_request_max_age, limits.session_ttl];
        let over = |since: u64, most: std::time::Duration| now.saturating_sub(since) > most.as_millis() as u64 + slack;
        for session in self.sessions.iter().filter(|session| session.ended.is_none()) {
            if let Some((name, flight)) = session.flights.iter().find(|(_, flight)| over(flight.since, call)) {
                return Err(format!("call {name} of {:?} is older than it may be: {flight:?}, now {now}", session.id));
            }
            if let Some((name, asked)) = session.asks.iter().find(|(_, asked)| over(asked.since, request)) {
                return Err(format!("request {name} of {:?} is older than it may be: {asked:?}, now {now}", session.id));
            }
            // A connection that the kernel knows holds it; so may a request that waits behind another answer.
            let idle = session.flights.is_empty() && session.maybe_attached == 0 && session.published.is_some();
            if idle && over(session.maybe_used, ttl) {
                return Err(format!("{:?} should have expired: last used at {}, now {now}", session.id, session.maybe_used));
            }
        }
        Ok(())
    }

    /// What costs memory now.
    pub(crate) fn weigh(&self) -> Weight {
        let mut weight = Weight::default();
        for session in self.sessions.iter().filter(|session| session.ended.is_none()) {
            weight.sessions += 1;
            weight.calls += (session.flights.len() + session.asks.len()) as u64;
            weight.ids += session.ids_seen() as u64;
            weight.streams += session.lives.last().map_or(0, |life| life.kept(self.plan.limits.finished_streams)) as u64;
        }
        weight
    }
}

fn parse(text: &Rc<str>, key: &Key) -> Option<SessionId> {
    SessionId::parse(text.as_bytes(), key).ok()
}
