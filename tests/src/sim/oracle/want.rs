//! What a request must be answered: the boundary's tables, read aloud from what the oracle knows.
//!
//! Never looks at an answer.

use rejoin_proto::ids::{Cursor, SessionId};
use rejoin_proto::refusal::Ended;
use rejoin_proto::shard::Finished;

use super::{Moment, Oracle, Pending};
use crate::sim::request::{Flaw, Intent, Post, Shown, Verb};

/// An answer that the table asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Want {
    /// A refusal: status, code, JSON-RPC code, action, reason.
    Refusal(Refusal),
    /// No body: status and verdict.
    Empty(u16, Option<&'static str>),
    /// A stream, by a GET: where it goes on, and whether something precedes live; `None` where only the kernel can know.
    Stream { session: usize, life: u32, line: u32, at: Option<u64>, behind: Option<bool> },
    /// The answer of `initialize`.
    Initialize(usize),
    /// The answers of calls.
    Calls(usize),
    /// `outcome_unknown`, at once.
    Unknown(usize),
}

/// A row of the refusal table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) code: &'static str,
    pub(crate) rpc_code: i64,
    pub(crate) action: &'static str,
    pub(crate) reason: Option<&'static str>,
    /// The connection closes after it.
    pub(crate) closes: bool,
}

const fn refusal(status: u16, code: &'static str, rpc_code: i64, closes: bool) -> Want {
    Want::Refusal(Refusal { status, code, rpc_code, action: "fix_request", reason: None, closes })
}

const BAD_REQUEST: Want = refusal(400, "bad_request", -32000, true);
const FORBIDDEN: Want = refusal(403, "forbidden", -32000, false);
const UNAUTHORIZED: Want = refusal(401, "unauthorized", -32000, false);
const NOT_FOUND: Want = refusal(404, "not_found", -32000, false);
const METHOD: Want = refusal(405, "method_not_allowed", -32000, false);
const NOT_ACCEPTABLE: Want = refusal(406, "not_acceptable", -32000, false);
const MEDIA_TYPE: Want = refusal(415, "unsupported_media_type", -32000, false);
const TOO_LARGE: Want = refusal(413, "too_large", -32000, true);
const PARSE: Want = refusal(400, "parse_error", -32700, false);
const INVALID: Want = refusal(400, "invalid_request", -32600, false);
const REVISION: Want = refusal(400, "unsupported_revision", -32000, false);
const SESSION_REQUIRED: Want = refusal(400, "session_required", -32000, false);
const CURSOR: Want = refusal(400, "invalid_cursor", -32000, false);
/// What a request that came too slowly is told.
pub(crate) const TIMEOUT: Want =
    Want::Refusal(Refusal { status: 408, code: "timeout", rpc_code: -32000, action: "reconnect", reason: None, closes: true });
const SHED: Want =
    Want::Refusal(Refusal { status: 503, code: "shed", rpc_code: -32000, action: "reconnect", reason: None, closes: false });

fn expired(why: Ended) -> Want {
    let (reason, action) = match why {
        Ended::Expired => ("expired", "reinitialize"),
        Ended::Deleted => ("deleted", "reinitialize"),
        Ended::Closed => ("closed", "reinitialize"),
        Ended::Shed => ("shed", "reinitialize"),
        Ended::Lineage => ("lineage", "reinitialize"),
        Ended::Restarted => ("restarted", "reinitialize"),
        Ended::Incarnation => ("incarnation", "reinitialize"),
        Ended::Forgotten => ("forgotten", "verify"),
        Ended::Unknown => ("unknown", "reinitialize"),
    };
    let reason = Some(reason);
    Want::Refusal(Refusal { status: 404, code: "session_expired", rpc_code: -32001, action, reason, closes: false })
}

/// Where a request's session stands.
enum Place {
    Live(usize),
    Refused(Vec<Want>),
}

impl Oracle {
    /// Every answer that the table admits: as things are, and as they were before this step, since what a shard does in one step is
    /// seen only after it.
    pub(crate) fn wants(&self, pending: &Pending, moment: &Moment) -> Vec<Want> {
        let intent = &*pending.intent;
        if let Some(want) = self.head_wants(intent) {
            return vec![want];
        }
        let mut wants = Vec::new();
        for before in [None, Some(moment.step)] {
            for want in self.wants_as_of(intent, moment, before) {
                if !wants.contains(&want) {
                    wants.push(want);
                }
            }
        }
        wants
    }

    /// The head's refusals, then the body's.
    fn head_wants(&self, intent: &Intent) -> Option<Want> {
        let flaw = intent.flaws.iter().min().copied();
        match flaw {
            Some(Flaw::Smuggled | Flaw::NoHost | Flaw::TwoHosts) => return Some(BAD_REQUEST),
            Some(Flaw::StrangeHost | Flaw::StrangeOrigin) => return Some(FORBIDDEN),
            Some(Flaw::Path) => return Some(NOT_FOUND),
            _ => {}
        }
        match intent.verb {
            Verb::Options => return Some(Want::Empty(204, None)),
            Verb::Head | Verb::Put => return Some(METHOD),
            Verb::Get | Verb::Post(_) | Verb::Delete => {}
        }
        match flaw {
            Some(Flaw::Nobody) => return Some(UNAUTHORIZED),
            Some(Flaw::Accept) if !matches!(intent.verb, Verb::Delete) => return Some(NOT_ACCEPTABLE),
            Some(Flaw::ContentType) => return Some(MEDIA_TYPE),
            Some(Flaw::TooLarge) => return Some(TOO_LARGE),
            _ => {}
        }
        match intent.verb {
            Verb::Post(Post::NotJson) => Some(PARSE),
            Verb::Post(Post::NotRpc | Post::InitializeInBatch) => Some(INVALID),
            _ => None,
        }
    }

    fn wants_as_of(&self, intent: &Intent, moment: &Moment, before: Option<u64>) -> Vec<Want> {
        if let Verb::Post(Post::Initialize(marker)) = intent.verb {
            let full = self.alive[moment.shard] >= self.plan.limits.sessions as usize;
            // A session that ended in this step made room in it.
            return match (moment.draining, full) {
                (true, _) => vec![SHED, Want::Initialize(marker)],
                (false, true) => vec![SHED, Want::Initialize(marker)],
                (false, false) => vec![Want::Initialize(marker)],
            };
        }
        // Row 4.
        match intent.revision {
            _ if matches!(intent.verb, Verb::Delete) => {}
            Some("2026-07-28") if matches!(intent.verb, Verb::Get) => return vec![METHOD],
            None | Some("2025-03-26" | "2025-06-18" | "2025-11-25") => {}
            Some(_) => return vec![REVISION],
        }
        let session = match self.place(intent, before) {
            Place::Live(session) => session,
            Place::Refused(wants) => return wants,
        };
        let mut wants = match &intent.verb {
            Verb::Get => self.get_wants(intent, session, before),
            Verb::Delete => vec![Want::Empty(204, None)],
            Verb::Post(post) => self.post_wants(post, session, before),
            Verb::Options | Verb::Head | Verb::Put => Vec::new(),
        };
        if moment.draining {
            wants.push(SHED);
        }
        wants
    }

    /// Rows 5 and 6.
    fn place(&self, intent: &Intent, before: Option<u64>) -> Place {
        let unknown = || Place::Refused(vec![expired(Ended::Unknown)]);
        let text = match &intent.session {
            Shown::Absent => return Place::Refused(vec![SESSION_REQUIRED]),
            Shown::Twice(_) => return unknown(),
            Shown::One(text) => text,
        };
        let Ok(id) = SessionId::parse(text.as_bytes(), &self.key) else { return unknown() };
        if id.boot().0 != self.boot {
            return Place::Refused(vec![expired(Ended::Restarted)]);
        }
        let Some(index) = self.find(&id) else { return unknown() };
        let session = &self.sessions[index];
        if session.principal != intent.principal || session.published.is_none() {
            return unknown();
        }
        if session.lives(before) {
            return Place::Live(index);
        }
        let why = session.ended.map_or(Ended::Unknown, |(_, why)| why);
        let mut wants = vec![expired(why)];
        if self.slots.get(&(id.shard().0, id.slot().0)) != Some(&index) {
            wants.push(expired(Ended::Unknown));
        }
        Place::Refused(wants)
    }

    fn get_wants(&self, intent: &Intent, index: usize, before: Option<u64>) -> Vec<Want> {
        let session = &self.sessions[index];
        let life = session.life_at(before);
        let text = match &intent.cursor {
            Shown::Absent => return vec![Want::Stream { session: index, life, line: 0, at: None, behind: None }],
            Shown::Twice(_) => return vec![CURSOR],
            Shown::One(text) => text,
        };
        let Ok(cursor) = Cursor::parse(text.as_bytes(), &self.key, &session.id) else { return vec![CURSOR] };
        if cursor.incarnation().0 != life {
            return vec![expired(Ended::Incarnation)];
        }
        let (number, at) = (cursor.stream().0, cursor.position().get());
        let Some(line) = session.line(life, number) else { return vec![expired(Ended::Lineage)] };
        let forgotten = session.forgotten(life, number, self.plan.limits.finished_streams);
        let (fewest, most) = line.issued(before);
        let finished = line.finished.is_some_and(|step| before != Some(step));
        let mut wants = Vec::new();
        if at > fewest {
            wants.push(expired(Ended::Lineage));
        }
        if (fewest..=most).contains(&at) {
            let complete = match self.finished_policy() {
                Finished::NoContent => Want::Empty(204, Some("complete")),
                Finished::MethodNotAllowed => Want::Empty(405, Some("complete")),
            };
            let tail = Want::Stream { session: index, life, line: number, at: Some(at), behind: Some(false) };
            wants.push(if finished { complete } else { tail });
        }
        if at < most {
            wants.push(Want::Stream { session: index, life, line: number, at: Some(at), behind: Some(true) });
        }
        if at > most {
            wants = vec![expired(Ended::Lineage)];
        }
        if forgotten {
            // One that is read while its time comes is forgotten later.
            wants.push(expired(Ended::Forgotten));
        }
        wants
    }

    fn post_wants(&self, post: &Post, index: usize, before: Option<u64>) -> Vec<Want> {
        let session = &self.sessions[index];
        let limits = &self.plan.limits;
        match post {
            Post::Note(_) | Post::Initialized | Post::Cancel(_) | Post::Respond(_) => vec![Want::Empty(202, None)],
            Post::Batch(..) if session.revision != "2025-03-26" => vec![INVALID],
            Post::Batch(markers, _) => {
                let runs = markers.iter().filter(|&&marker| self.ran_in(marker, index)).count();
                let mut wants = vec![Want::Calls(index)];
                if runs < markers.len() || session.flights.len() + markers.len() > limits.calls_in_flight {
                    wants.push(SHED);
                }
                wants
            }
            Post::Call(marker) => {
                let call = &self.book.calls[*marker];
                let ran = self.ran_in(*marker, index);
                let mut wants = vec![Want::Calls(index)];
                if session.flights.len() >= limits.calls_in_flight {
                    wants.push(SHED);
                }
                let records_gone = !self.plan.exact_ids && session.has_seen(&call.id);
                if call.is_tools_call() && (records_gone || (ran && self.nothing_to_join(*marker, index, before))) {
                    wants.push(Want::Unknown(*marker));
                }
                wants
            }
            Post::Initialize(_) | Post::NotJson | Post::NotRpc | Post::InitializeInBatch => Vec::new(),
        }
    }

    fn ran_in(&self, marker: usize, session: usize) -> bool {
        self.book.calls[marker].runs.iter().any(|run| run.session == session)
    }

    /// Whether an execution of this call can be over without anything to join: its life is over, its stream forgotten, or it was
    /// cancelled.
    fn nothing_to_join(&self, marker: usize, index: usize, before: Option<u64>) -> bool {
        let session = &self.sessions[index];
        self.book.calls[marker].runs.iter().filter(|run| run.session == index).any(|run| {
            let line = session.line(run.life, run.stream);
            run.life != session.life_at(before)
                || session.forgotten(run.life, run.stream, self.plan.limits.finished_streams)
                || self.book.calls[marker].in_batch
                || line.is_none_or(|line| line.answers.iter().any(|answer| answer.state == super::line::State::Cancelled))
        })
    }
}
