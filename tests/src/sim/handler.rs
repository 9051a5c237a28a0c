//! The embedder's side: handlers that talk, ask, answer late or never, and from other threads.
//!
//! Never knows a connection, and nothing of what clients are sent.

use std::rc::Rc;

use rejoin_proto::ids::{CallId, ClientRequestId, SessionId};
use rejoin_proto::shard::io::{Delivery, Emission, NotTaken, Outcome, Target};

use super::oracle::line::What;
use super::oracle::{Meaning, Speech};
use super::plan::Plan;
use super::rng::Rng;

/// The error of a call for which its handler has no room.
const SHED: &str = r#"{"code":-32000,"data":{"action":"reconnect","code":"shed"},"message":"No room"}"#;

/// All handlers.
#[derive(Debug, Default)]
pub(crate) struct Handlers {
    tasks: Vec<Task>,
    sessions: Vec<SessionId>,
    /// Requests to clients, not answered yet.
    asks: Vec<(SessionId, u64)>,
    next_request: u64,
    serial: u64,
}

/// A call being worked on.
#[derive(Debug)]
struct Task {
    session: SessionId,
    call: u64,
    /// `initialize`, for this revision.
    initialize: Option<&'static str>,
    /// Notifications still to come.
    left: u64,
    /// It will never be answered.
    never: bool,
    /// Its answer is on its way from another thread.
    answering: bool,
    /// Its result was too large: an error instead.
    too_large: bool,
}

/// The revisions with sessions.
pub(crate) const REVISIONS: [&str; 3] = ["2025-03-26", "2025-06-18", "2025-11-25"];

/// The lists that may change.
const LISTS: [&str; 3] = ["tools", "resources", "prompts"];
const LIST_CHANGED: [&str; 3] =
    ["notifications/tools/list_changed", "notifications/resources/list_changed", "notifications/prompts/list_changed"];

impl Handlers {
    /// A shard has something for a handler.
    pub(crate) fn told(&mut self, session: SessionId, delivery: &Delivery, plan: &Plan, rng: &mut Rng) {
        let task = |call: &CallId, initialize, rng: &mut Rng| Task {
            session,
            call: call.0,
            initialize,
            left: rng.below(plan.talk + 1),
            never: rng.chance(25),
            answering: false,
            too_large: false,
        };
        match delivery {
            Delivery::Initialize { call, params, .. } => {
                let asked =
                    REVISIONS.iter().find(|revision| params.windows(revision.len()).any(|part| part == revision.as_bytes()));
                self.tasks.push(task(call, Some(asked.unwrap_or(&REVISIONS[2])), rng));
                self.sessions.push(session);
            }
            Delivery::Request { call, .. } => self.tasks.push(task(call, None, rng)),
            // The simulated servers have sessions only.
            Delivery::Notification { .. } | Delivery::Exchange { .. } => {}
            // Some go on for a while: they must be told that nobody listens.
            Delivery::Cancelled { call, .. } if rng.chance(700) => {
                self.tasks.retain(|task| task.call != call.0 || task.session != session)
            }
            Delivery::Cancelled { .. } => {}
            Delivery::Response { request, outcome } => {
                self.asks.retain(|(_, one)| *one != request.0);
                debug_assert!(matches!(outcome, Outcome::Result(_) | Outcome::Error(_) | Outcome::Failed));
            }
            Delivery::Rotated => {}
            Delivery::Closed { .. } => {
                self.sessions.retain(|one| *one != session || rng.chance(100));
                self.asks.retain(|(one, _)| *one != session);
            }
        }
    }

    /// The process is gone, and its handlers with it.
    pub(crate) fn restart(&mut self) {
        self.tasks.clear();
        self.sessions.clear();
        self.asks.clear();
    }

    /// What became of something said.
    pub(crate) fn took(&mut self, speech: &Speech, took: Result<(), NotTaken>) {
        let call = match &speech.meaning {
            Meaning::Answer { call, .. } | Meaning::Begin { call, .. } => *call,
            Meaning::HangUp { call } => *call,
            Meaning::Note { to: Target::Call(call), .. } | Meaning::Progress { to: Target::Call(call), .. } => call.0,
            Meaning::Ask { request, .. } => {
                if took.is_ok() {
                    self.asks.push((speech.session, *request));
                }
                return;
            }
            _ => return,
        };
        let answer = matches!(speech.meaning, Meaning::Answer { .. } | Meaning::Begin { .. });
        let over = match took {
            Ok(()) => answer,
            Err(NotTaken::CallEnded | NotTaken::SessionEnded) => true,
            Err(_) => false,
        };
        if over {
            return self.tasks.retain(|task| task.call != call || task.session != speech.session);
        }
        if answer && let Some(task) = self.tasks.iter_mut().find(|task| task.call == call && task.session == speech.session) {
            task.answering = false;
            task.too_large = took == Err(NotTaken::TooLarge);
        }
    }

    /// Something to say, if anybody has.
    pub(crate) fn speak(&mut self, plan: &Plan, rng: &mut Rng) -> Option<Speech> {
        if !self.asks.is_empty() && rng.chance(10) {
            let (session, request) = *rng.pick(&self.asks);
            let emission = Emission::CancelRequest { request: ClientRequestId(request) };
            return Some(Speech { session, emission, meaning: Meaning::Withdraw { request } });
        }
        if !self.sessions.is_empty() && rng.chance(250) {
            let session = *rng.pick(&self.sessions);
            return Some(self.talk(session, Target::Standalone, None, plan, rng));
        }
        if self.tasks.is_empty() {
            return None;
        }
        let index = rng.index(self.tasks.len());
        let task = &mut self.tasks[index];
        if task.answering || (task.never && task.left == 0) {
            return None;
        }
        let (session, call) = (task.session, task.call);
        if task.left == 0 {
            task.answering = true;
            return Some(self.answer(index, plan, rng));
        }
        task.left -= 1;
        if task.initialize.is_some() {
            return Some(self.talk(session, Target::Standalone, None, plan, rng));
        }
        if rng.chance(30) {
            let usual = plan.limits.retry;
            let retry = rng.chance(500).then(|| usual + plan.limits.retry_max.mul_f64(rng.below(2_000) as f64 / 1_000.0));
            let emission = Emission::HangUp { call: CallId(call), retry };
            return Some(Speech { session, emission, meaning: Meaning::HangUp { call } });
        }
        let to = if rng.chance(100) { Target::Unnamed } else { Target::Call(CallId(call)) };
        Some(self.talk(session, to, Some(call), plan, rng))
    }

    /// The answer to one of the calls that wait, if any does: nobody is left without.
    pub(crate) fn finish_one(&mut self, plan: &Plan, rng: &mut Rng) -> Option<Speech> {
        let index = self.tasks.iter().position(|task| !task.answering)?;
        self.tasks[index].answering = true;
        Some(self.answer(index, plan, rng))
    }

    fn number(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// A JSON object that no other is like.
    fn object(&mut self, plan: &Plan, rng: &mut Rng) -> Rc<str> {
        let (n, size) = (self.number(), plan.size(rng));
        if rng.chance(100) {
            // Spelled as few would: it must arrive as it is.
            return format!(r#"{{ "n" : {n} ,	"u":"\u2028\n\"é","pad":"{}" }}"#, "é".repeat(size / 2)).into();
        }
        format!(r#"{{"n":{n},"pad":"{}"}}"#, "x".repeat(size)).into()
    }

    fn talk(&mut self, session: SessionId, to: Target, call: Option<u64>, plan: &Plan, rng: &mut Rng) -> Speech {
        if rng.chance(5) {
            let params = Some(bytes::Bytes::from_static(b"{\"n\":"));
            let emission = Emission::Notification { to, method: "notifications/message".into(), params };
            return Speech { session, emission, meaning: Meaning::Malformed };
        }
        if rng.chance(plan.asks) {
            self.next_request += 1;
            let request = self.next_request;
            let (method, params): (&str, Rc<str>) = ("sampling/createMessage", self.object(plan, rng));
            let bytes = Some(params.to_string().into());
            let emission = Emission::Request { to, request: ClientRequestId(request), method: method.into(), params: bytes };
            return Speech { session, emission, meaning: Meaning::Ask { to, request, method: method.into(), params } };
        }
        if let Some(call) = call.filter(|_| rng.chance(400)) {
            let n = self.number();
            let token = if rng.chance(30) { call + 1_000_000 } else { call };
            let rest: Rc<str> = format!(r#","progress":{n},"message":"{}"}}"#, "m".repeat(plan.size(rng))).into();
            let params = Some(format!(r#"{{"progressToken":{token}{rest}"#).into());
            let emission = Emission::Notification { to, method: "notifications/progress".into(), params };
            return Speech { session, emission, meaning: Meaning::Progress { to, token, rest } };
        }
        let method = "notifications/message";
        let params = self.object(plan, rng);
        let emission = Emission::Notification { to, method: method.into(), params: Some(params.to_string().into()) };
        Speech { session, emission, meaning: Meaning::Note { to, method: method.into(), params } }
    }

    fn answer(&mut self, index: usize, plan: &Plan, rng: &mut Rng) -> Speech {
        let Task { session, call, initialize, too_large, .. } = self.tasks[index];
        let n = self.number();
        if initialize.is_none() && rng.chance(20) {
            let emission = Emission::Shed { call: CallId(call), why: "No room" };
            return Speech { session, emission, meaning: Meaning::Answer { call, what: What::Error, body: SHED.into() } };
        }
        if rng.chance(60) || too_large {
            let body: Rc<str> = format!(r#"{{"code":-5,"message":"n{n}"}}"#).into();
            let emission = Emission::Error { call: CallId(call), error: body.to_string().into() };
            return Speech { session, emission, meaning: Meaning::Answer { call, what: What::Error, body } };
        }
        let Some(asked) = initialize else {
            let body = self.object(plan, rng);
            let emission = Emission::Result { call: CallId(call), result: body.to_string().into() };
            return Speech { session, emission, meaning: Meaning::Answer { call, what: What::Result, body } };
        };
        let revision = if rng.chance(100) { *rng.pick(&REVISIONS) } else { asked };
        let strange = rng.chance(20);
        let mut capabilities = Vec::new();
        let mut list_changed = Vec::new();
        for (list, method) in LISTS.into_iter().zip(LIST_CHANGED) {
            let changes = rng.chance(500);
            capabilities.push(format!(r#""{list}":{{"listChanged":{changes}}}"#));
            list_changed.extend(changes.then_some(method));
        }
        let name = if strange { "1999-01-01" } else { revision };
        let capabilities = capabilities.join(",");
        let body: Rc<str> = format!(
            r#"{{"protocolVersion":"{name}","capabilities":{{{capabilities}}},"serverInfo":{{"name":"sim","version":"{n}"}}}}"#
        )
        .into();
        let emission = Emission::Result { call: CallId(call), result: body.to_string().into() };
        let revision = (!strange).then_some(revision);
        Speech { session, emission, meaning: Meaning::Begin { call, revision, list_changed, body } }
    }
}
