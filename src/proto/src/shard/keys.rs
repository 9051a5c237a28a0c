//! Calls under an idempotency key: each begins on the shard of its own session and stream, and asks the key's home whether it runs.
//!
//! Only what the one that ran came to crosses, on each presenter's own stream and under its own id: no stream is joined. A call that runs
//! under a key is its record's: it goes on when a connection without a session is lost, since whoever gave the key will ask again.

use bytes::Bytes;

use crate::connection::Form;
use crate::http::Head;
use crate::ids::{CallId, Principal, SessionId, ShardIndex, SlotIndex};
use crate::keyed::{KeyHash, Mail, Outcome, Presenter, Told};
use crate::mcp::{self, Id};
use crate::refusal::Refusal;
use crate::session::Attached;

use super::counters::Avoided;
use super::io::{Delivery, Output};
use super::reply::{outcome_unknown, refusal_error};
use super::{ResponsePolicy, Shard, Turn};

/// A call's key, and the hash of what it asks.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key {
    pub hash: KeyHash,
    pub body: u128,
}

/// Whose key it is: "the principal, across its sessions; for anonymous callers, the session".
pub(super) enum Scope<'a> {
    Principal(&'a str),
    Session(SessionId),
    /// Anonymous callers without a session have nothing but the key: they share one scope, and so must not share keys.
    Everybody,
}

impl<'a> Scope<'a> {
    /// Of a caller; `session` where there is one.
    pub(super) fn of(principal: &'a Principal, session: Option<SessionId>) -> Self {
        match (principal.as_str(), session) {
            ("", None) => Self::Everybody,
            ("", Some(session)) => Self::Session(session),
            (name, _) => Self::Principal(name),
        }
    }
}

impl Shard {
    /// The key in a request's head, if there is one.
    pub(super) fn key_in_head<'a>(&self, head: &'a Head) -> Result<Option<&'a [u8]>, Refusal> {
        let key = head.single("idempotency-key").map_err(|_| Refusal::InvalidRequest("Idempotency-Key was sent twice"))?;
        key.map(|key| self.check_key(key)).transpose()
    }

    fn check_key<'a>(&self, key: &'a [u8]) -> Result<&'a [u8], Refusal> {
        if key.is_empty() || key.len() > self.config.limits.key_length {
            return Err(Refusal::InvalidRequest("An idempotency key must not be empty, nor longer than this server admits"));
        }
        Ok(key)
    }

    /// A request's key: in its head, or in its `_meta`.
    pub(super) fn key_of(
        &self,
        in_head: Option<&[u8]>,
        request: &mcp::Request<'_>,
        scope: &Scope<'_>,
    ) -> Result<Option<Key>, Refusal> {
        let in_meta = mcp::idempotency_key(request.params)?;
        let in_meta = in_meta.as_ref().map(|key| self.check_key(key.as_bytes())).transpose()?;
        let key = match (in_head, in_meta) {
            (None, None) => return Ok(None),
            (Some(head), Some(meta)) if head != meta => {
                return Err(Refusal::InvalidRequest("Idempotency-Key and the key in _meta differ"));
            }
            (Some(key), _) | (None, Some(key)) => key,
        };
        let secret = &self.config.key;
        let hash = match scope {
            Scope::Principal(name) => secret.parts_hash(&[b"principal", name.as_bytes(), key]),
            Scope::Session(session) => secret.parts_hash(&[b"session", session.encode().as_str().as_bytes(), key]),
            Scope::Everybody => secret.parts_hash(&[b"everybody", key]),
        };
        let members = mcp::without_meta(request.params);
        let mut parts = vec![request.method.as_bytes()];
        parts.extend(members.iter().flat_map(|(name, value)| [name.as_bytes(), value.as_bytes()]));
        Ok(Some(Key { hash: KeyHash(hash), body: secret.parts_hash(&parts) }))
    }

    /// A call that has begun asks whether it runs; `delivery` is for its handler if so.
    pub(super) fn claim(&mut self, slot: SlotIndex, call: CallId, key: Key, delivery: Delivery, turn: &mut Turn<'_>) {
        let Some(session) = self.session_mut(slot) else { return };
        let presenter = Presenter { session: session.id, call };
        if let Some(call) = session.call_mut(call) {
            call.keyed = Some(key.hash);
        }
        self.held_back.insert(call, delivery);
        self.post_home(Mail::Claim { key: key.hash, body: key.body, presenter }, key.hash, turn);
    }

    /// A call is over. Where it ran under a key, the key's home is told; `true` where it still waited, so that no handler knows of it.
    pub(super) fn settle_key(
        &mut self,
        slot: SlotIndex,
        call: CallId,
        outcome: impl FnOnce() -> Outcome,
        turn: &mut Turn<'_>,
    ) -> bool {
        let Some(session) = self.session_mut(slot) else { return false };
        let presenter = Presenter { session: session.id, call };
        let Some(key) = session.call_mut(call).and_then(|call| call.keyed.take()) else { return false };
        if self.held_back.remove(&call).is_some() {
            return true;
        }
        self.post_home(Mail::Settle { key, presenter, outcome: outcome() }, key, turn);
        false
    }

    /// Whether a call runs under a key.
    pub(super) fn runs_under_key(&self, slot: SlotIndex, call: CallId) -> bool {
        let keyed = self.session(slot).and_then(|session| session.call(call)).is_some_and(|call| call.keyed.is_some());
        keyed && !self.held_back.contains_key(&call)
    }

    fn post_home(&mut self, mail: Mail, key: KeyHash, turn: &mut Turn<'_>) {
        let home = u8::try_from(key.0 % u128::from(self.config.shards.max(1))).unwrap_or_default();
        self.post_to(ShardIndex(home), mail, turn);
    }

    fn post_to(&mut self, to: ShardIndex, mail: Mail, turn: &mut Turn<'_>) {
        if to == self.config.shard {
            self.take_key_mail(mail, turn);
        } else {
            turn.out.push(Output::Post { to, mail });
        }
    }

    /// Mail of a key's home, or for one.
    pub(super) fn take_key_mail(&mut self, mail: Mail, turn: &mut Turn<'_>) {
        match mail {
            Mail::Claim { key, body, presenter } => {
                let told = self.keys.claim(key, body, presenter, turn.now);
                self.post_to(presenter.session.shard(), Mail::Told { key, presenter, told }, turn);
            }
            Mail::Settle { key, presenter, outcome } => {
                for (presenter, told) in self.keys.settle(key, presenter, outcome, turn.now) {
                    self.post_to(presenter.session.shard(), Mail::Told { key, presenter, told }, turn);
                }
            }
            Mail::Told { key, presenter, told } => self.told_by_home(key, presenter, told, turn),
        }
    }

    fn told_by_home(&mut self, key: KeyHash, presenter: Presenter, told: Told, turn: &mut Turn<'_>) {
        let Presenter { session, call } = presenter;
        let Some(slot) = self.slot_of(&session).filter(|_| self.held_back.contains_key(&call)) else {
            if told == Told::Execute {
                // Its client has gone meanwhile: another may run.
                self.post_home(Mail::Settle { key, presenter, outcome: Outcome::NotRun }, key, turn);
            }
            return;
        };
        match told {
            Told::Wait => self.unhold(slot, call, turn),
            Told::Execute => {
                let Some(delivery) = self.held_back.remove(&call) else { return };
                self.unhold(slot, call, turn);
                turn.out.push(Output::Deliver { session, delivery });
            }
            Told::Answer(outcome) => self.answer_by_record(slot, call, &outcome, turn),
            Told::Reused => self.refuse_call(slot, call, Refusal::KeyReused, turn),
            Told::NoRoom => self.refuse_call(slot, call, Refusal::TOO_MANY_KEYS, turn),
        }
    }

    /// A call is answered by what another came to.
    fn answer_by_record(&mut self, slot: SlotIndex, call: CallId, outcome: &Outcome, turn: &mut Turn<'_>) {
        self.forget_key(slot, call);
        self.unhold(slot, call, turn);
        let unknown = outcome_unknown();
        let answer: Result<&[u8], &[u8]> = match outcome {
            Outcome::Result(result) => Ok(result),
            Outcome::Error(error) => Err(error),
            Outcome::Unknown | Outcome::NotRun => Err(&unknown),
        };
        let avoided = if *outcome == Outcome::Unknown { Avoided::OutcomeUnknown } else { Avoided::Recorded };
        self.counters.executions_avoided[avoided] += 1;
        self.counters.outcomes_unknown += u64::from(*outcome == Outcome::Unknown);
        // Under a longer id, what was just small enough may be too large.
        if self.emit_answer(slot, call, answer, turn).is_err() {
            let _ = self.emit_answer(slot, call, Err(&unknown), turn);
        }
    }

    /// A call is refused after it began: its status is the refusal's where its head was held back, and it never ran.
    fn refuse_call(&mut self, slot: SlotIndex, call: CallId, refusal: Refusal, turn: &mut Turn<'_>) {
        self.forget_key(slot, call);
        let Some(session) = self.session(slot) else { return };
        if session.is_exchange() {
            let _ = self.refuse_exchange(slot, call, refusal, turn);
            return;
        }
        let Some(found) = session.call(call) else { return };
        let id: Id = found.id.clone();
        let conn = session.stream(found.stream).and_then(|stream| stream.attached().first().copied());
        let held =
            |conn| self.connections.get(conn as usize)?.as_ref()?.serving.as_ref().map(|serving| serving.form == Form::Held);
        match conn.filter(|conn| held(conn.0) == Some(true)) {
            Some(conn) => {
                self.detach(conn, turn);
                self.refuse(conn, refusal, None, Some(&id));
            }
            None => self.count_refusal(refusal),
        }
        let _ = self.emit_answer(slot, call, Err(&refusal_error(refusal)), turn);
    }

    fn forget_key(&mut self, slot: SlotIndex, call: CallId) {
        self.held_back.remove(&call);
        if let Some(call) = self.session_mut(slot).and_then(|session| session.call_mut(call)) {
            call.keyed = None;
        }
    }

    /// A call's answer may take its form from here on: it is not refused any more.
    fn unhold(&mut self, slot: SlotIndex, call: CallId, turn: &mut Turn<'_>) {
        let Some(session) = self.session(slot) else { return };
        let exchange = session.is_exchange();
        let Some(stream) = session.call(call).and_then(|call| session.stream(call.stream)) else { return };
        let (json_only, attached) = (stream.json_only, Attached::from(stream.attached()));
        for conn in attached {
            let Some(serving) = self.connection(conn).and_then(|connection| connection.serving.as_mut()) else { continue };
            if serving.form != Form::Held {
                continue;
            }
            serving.form = if json_only { Form::Json } else { Form::Undecided };
            if self.config.response == ResponsePolicy::Sse && !exchange {
                self.open_stream(conn, None, None, turn);
            }
            self.ready.push_back(conn);
        }
    }
}

/// What a handler's answer is to a record.
pub(super) fn outcome_of(answer: Result<&[u8], &[u8]>) -> Outcome {
    match answer {
        Ok(result) => Outcome::Result(Bytes::copy_from_slice(result)),
        Err(error) => Outcome::Error(Bytes::copy_from_slice(error)),
    }
}
