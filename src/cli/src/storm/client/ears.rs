//! What a session hears, as it comes off the wire and before its machine judges it: told to the oracle, and measured.
//!
//! Never knows what the machine made of it, but for a refusal to go on, which the oracle is told to doubt.

use std::collections::VecDeque;
use std::fmt;
use std::rc::Rc;
use std::time::{Duration, Instant};

use rejoin_proto::client::{AnswerSeen, BodySeen, CallId, EventSeen, Observer, Purpose, StreamKey, Violation};

use super::super::measure::{Metric, Pace, Timing};
use super::super::script::{Call, Tool};
use super::super::thread::Thread;
use super::super::truth::{Expected, Fate, Item, Oracle, Seen, Sent};

/// Ids of a call that are kept to be shown as stale cursors.
const PAST: usize = 8;

/// Whose cursor is being shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Showing {
    /// The session's own, the last one.
    Own,
    /// An earlier one of the session's: the oracle knows what must follow, and nothing is measured.
    Stale,
    /// One that must be refused: nobody listens behind the head.
    Bad,
}

/// A session's ears.
pub(super) struct Ears {
    thread: Rc<Thread>,
    pub(super) oracle: Oracle,
    /// The present.
    pub(super) now: Instant,
    /// When the client wished to be where it is going.
    pub(super) wished: Instant,
    pub(super) showing: Showing,
    /// Between two ticks of the call.
    interval: Option<Duration>,
    /// The last id of the call's stream.
    pub(super) cursor: Option<Box<str>>,
    /// Ids before it, the newest last.
    pub(super) past: VecDeque<Box<str>>,
    /// When the call's tick 0 would have come, judged by the earliest tick yet.
    anchor: Option<Instant>,
    /// When the call's stream last said something.
    pub(super) heard: Instant,
    /// Since when nothing has come that is worth waiting for.
    pub(super) quiet_since: Instant,
    /// When the last request was sent.
    pub(super) asked_at: Instant,
    /// The cursor that it showed.
    shown: Option<Box<str>>,
    /// Its answer's status, once it has come.
    pub(super) status: Option<u16>,
    /// Whether its answer's head says that it replays, where it says anything.
    says_replay: Option<bool>,
    /// When its answer's head came.
    attached: Instant,
    /// Events that came since.
    pub(super) events: u64,
    replayed: bool,
    /// Whether the call was refused, or never sent: it did not run.
    pub(super) refused: bool,
    /// Failures in a row, which waits grow with.
    pub(super) failures: u32,
    /// Requests to come back in a row that were not answered at all.
    pub(super) unheard: u32,
    /// When `initialize` was answered.
    pub(super) initialized: Instant,
}

impl Ears {
    pub(super) fn new(thread: Rc<Thread>) -> Self {
        let now = thread.storm.origin;
        Self {
            thread,
            oracle: Oracle::default(),
            now,
            wished: now,
            showing: Showing::Own,
            interval: None,
            cursor: None,
            past: VecDeque::new(),
            anchor: None,
            heard: now,
            quiet_since: now,
            asked_at: now,
            shown: None,
            status: None,
            says_replay: None,
            attached: now,
            events: 0,
            replayed: false,
            refused: false,
            failures: 0,
            unheard: 0,
            initialized: now,
        }
    }

    /// A call begins.
    pub(super) fn call(&mut self, began: Instant, number: CallId, name: &str, call: &Call) {
        let (interval, expected) = match &call.tool {
            Tool::Ticker(ticker) => (Some(ticker.interval), Expected::Ticks { count: ticker.ticks, key: name.into() }),
            Tool::Other { .. } => (None, Expected::Anything),
        };
        self.oracle.call(self.thread.ms(began), Sent { id: number.0.to_string().into(), token: name.into(), expected });
        (self.interval, self.cursor, self.anchor, self.refused) = (interval, None, None, false);
        (self.wished, self.heard) = (began, began);
        self.past.clear();
    }

    /// Whether the call has no answer yet.
    pub(super) fn is_open(&self) -> bool {
        self.oracle.fate().is_some_and(|(_, fate)| fate == Fate::Open)
    }

    /// A line of the transcript.
    pub(super) fn note(&mut self, sign: char, line: fmt::Arguments<'_>) {
        let ms = self.thread.ms(Instant::now());
        self.oracle.note(ms, sign, line);
    }

    /// The request for a stream leaves.
    pub(super) fn asked(&mut self, request: &[u8]) {
        let now = Instant::now();
        self.asked_at = now;
        (self.status, self.says_replay, self.events, self.replayed) = (None, None, 0, false);
        self.shown = shown(request).map(Into::into);
        let Some(cursor) = self.shown.take() else { return };
        if self.showing == Showing::Own {
            self.note('>', format_args!("GET Last-Event-ID: {cursor}"));
            self.thread.count(|tally| tally.resumes += 1);
            self.thread.record(|recorder| recorder.resume(now, true));
        }
        self.shown = Some(cursor);
    }

    /// The machine refuses to go on.
    pub(super) fn refuses(&mut self, violation: &Violation) {
        self.note('*', format_args!("the client reads no further: {violation}"));
        self.oracle.client_refused(violation.to_string());
    }

    /// When the tick of this number was due.
    fn due(&mut self, seen: Seen) -> Option<Instant> {
        let (Seen::Tick(number), Some(interval)) = (seen, self.interval) else { return None };
        let earlier = interval * number;
        let anchor = self.now.checked_sub(earlier).map(|at| self.anchor.map_or(at, |anchor| anchor.min(at)))?;
        self.anchor = Some(anchor);
        Some(anchor + earlier)
    }

    fn measure(&mut self, seen: Seen) {
        if seen == Seen::Opening {
            return;
        }
        let now = self.now;
        self.events += 1;
        (self.quiet_since, self.heard) = (now, now);
        self.thread.record(|recorder| recorder.events(now, 1));
        let (due, resumed) = (self.due(seen), self.shown.is_some());
        if seen == Seen::Resync {
            self.thread.count(|tally| tally.resyncs += 1);
        }
        let away = due.is_some_and(|due| due < self.attached);
        if resumed && self.events == 1 && (away || seen == Seen::Resync) {
            let timing = Timing::scheduled(self.wished, self.wished, now);
            self.thread.record(|recorder| recorder.latency(Metric::TimeToFirstEvent, timing, Pace::Unpaced));
        }
        if resumed && !self.replayed && self.says_replay.unwrap_or(seen != Seen::Resync) {
            self.replayed = true;
            self.thread.count(|tally| tally.replays += 1);
        }
        if let Some(due) = due {
            let metric = if resumed && away { Metric::DeliveryReplayed } else { Metric::Delivery };
            self.thread.record(|recorder| recorder.latency(metric, Timing::scheduled(due, due, now), Pace::Unpaced));
        }
    }

    /// Remembers an id of the call's stream.
    fn keep_cursor(&mut self, id: &str) {
        if self.cursor.as_deref() == Some(id) {
            return;
        }
        if let Some(before) = self.cursor.replace(id.into()) {
            if self.past.len() == PAST {
                self.past.pop_front();
            }
            self.past.push_back(before);
        }
    }
}

impl Observer for Ears {
    fn head(&mut self, head: &AnswerSeen<'_>) {
        let now = self.now;
        let resumes = match head.to {
            Purpose::Call(_) => false,
            Purpose::Resume(_) => true,
            _ => return,
        };
        let verdict = head.verdict.unwrap_or_default();
        self.note('<', format_args!("HTTP {} {verdict}", head.status));
        (self.status, self.quiet_since) = (Some(head.status), now);
        if self.showing != Showing::Bad && head.events {
            self.oracle.opened(self.shown.as_deref());
        }
        if self.showing != Showing::Own {
            return;
        }
        (self.unheard, self.says_replay) = (0, head.verdict.map(|verdict| verdict == "replay"));
        if head.events {
            (self.attached, self.failures) = (now, 0);
        }
        if head.status == 204 && resumes {
            self.oracle.complete();
        }
        self.refused |= !resumes && head.status >= 400;
        if resumes || head.status >= 400 {
            let status = format!("http_{}", head.status);
            self.thread.record(|recorder| {
                recorder.verdict(now, head.verdict.unwrap_or(&status));
                if resumes {
                    recorder.latency(Metric::TimeToResume, Timing::scheduled(self.wished, self.wished, now), Pace::Unpaced);
                }
            });
        }
    }

    fn body(&mut self, body: &BodySeen<'_>) {
        match body.to {
            Purpose::Initialize => self.initialized = self.now,
            Purpose::Call(_) if body.status == 200 => {
                if let Ok(text) = std::str::from_utf8(body.bytes) {
                    self.oracle.body(self.thread.ms(self.now), text);
                }
            }
            _ => {}
        }
    }

    fn event(&mut self, event: &EventSeen<'_>) {
        if event.stream == StreamKey::Call(CallId::INITIALIZE) {
            self.initialized = self.now;
            return;
        }
        if self.showing == Showing::Bad {
            return;
        }
        let item = Item { event: event.name, id: event.id, data: event.data };
        let seen = self.oracle.item(self.thread.ms(self.now), item);
        let id = event.id.filter(|id| !id.is_empty());
        if self.showing == Showing::Own {
            if let Some(id) = id {
                self.keep_cursor(id);
            }
            self.measure(seen);
        }
    }
}

/// The cursor that a request shows.
fn shown(request: &[u8]) -> Option<&str> {
    let request = request.starts_with(b"GET ").then(|| std::str::from_utf8(request).ok())??;
    request.split("\r\n").find_map(|line| line.strip_prefix("Last-Event-ID: "))
}
