//! How a client sees a call through: it comes back with the last id that it saw, as often as it must, and never sends the call again.
//!
//! Never takes silence for an answer.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::exchange::{Answer, Ended, Purpose, due_within};
use super::{Client, Over};
use crate::storm::script::Call;
use crate::storm::timeline;
use crate::storm::truth::{Fate, Outcome};

/// Streams in a row that end cleanly with nothing, while something is due, before the result is said to be lost.
const EMPTY_ENDS: u32 = 3;
/// Failures in a row before a client gives a stream up.
const FAILURES: u32 = 60;

/// What follows from an exchange of a call.
enum Next {
    /// The call is over.
    Over(Over),
    /// Back, when the script or the back-off says.
    Back,
}

impl Client {
    /// Sends a call's request, and comes back until it is over.
    pub(super) async fn see_through(&mut self, request: &[u8], call: &Call) -> Over {
        (self.resumed, self.refused) = (false, false);
        let (mut ended, mut answer) = self.exchange(request, Purpose::Call { call, resumes: false }, Instant::now()).await;
        let refused = answer.head.as_ref().is_some_and(|head| head.status >= 400);
        self.refused = refused || ended == Ended::NotConnected;
        let mut empty = 0;
        let mut last_event = Instant::now();
        loop {
            if answer.events > 0 {
                (empty, last_event) = (0, Instant::now());
            }
            match self.judge(ended, &answer) {
                Next::Over(over) => return over,
                Next::Back => {}
            }
            if ended == Ended::Whole && answer.events == 0 {
                empty += 1;
                if empty >= EMPTY_ENDS && last_event.elapsed() > due_within(call) {
                    let text = "the stream ends again and again with nothing, and the result does not come".to_owned();
                    self.tell(Outcome::LostResult, text);
                    return Over::Done;
                }
            }
            let Some(wished) = self.wait_to_come_back(ended).await else { return self.unanswered() };
            if let Some(forgery) = answer.forgery {
                self.forge(forgery).await;
            }
            let Some(cursor) = self.cursor.clone() else { return Over::Done };
            let request = self.thread.storm.target.get(self.of(Some(&cursor)));
            let now = Instant::now();
            self.oracle.note(self.thread.ms(now), '>', format_args!("GET Last-Event-ID: {cursor}"));
            self.thread.offer(self.index, &cursor);
            self.resumed = true;
            (ended, answer) = self.exchange(&request, Purpose::Call { call, resumes: true }, wished).await;
            // A request that never left is no attempt to resume.
            if !matches!(ended, Ended::NotConnected | Ended::Over) {
                self.thread.count(|tally| tally.resumes += 1);
                self.thread.record(|recorder| recorder.resume(now, true));
            }
        }
    }

    /// What an exchange means for its call.
    fn judge(&mut self, ended: Ended, answer: &Answer) -> Next {
        let open = self.oracle.fate().is_some_and(|(_, fate)| fate == Fate::Open);
        if ended == Ended::Over {
            if open && self.thread_has_room() {
                return Next::Over(self.unanswered());
            }
            return Next::Over(Over::Stopped);
        }
        if !open || ended == Ended::Late {
            return Next::Over(Over::Done);
        }
        if let Some(head) = &answer.head {
            match head.status {
                200 if head.stream => {}
                // A JSON body that was no answer, or a body where a stream was due.
                200 => return Next::Over(Over::Done),
                204 => {
                    self.oracle.complete();
                    return Next::Over(Over::Done);
                }
                404 if ended == Ended::Whole => return Next::Over(self.not_found(&answer.message)),
                429 | 500.. if self.cursor.is_some() => {}
                // A refusal. The call was not taken, or its stream cannot be had any more: the server said so.
                _ => return Next::Over(Over::Done),
            }
        }
        // Without a cursor there is no way back; and the call may have run, so it is not sent again.
        if self.cursor.is_none() || self.failures > FAILURES { Next::Over(Over::Done) } else { Next::Back }
    }

    /// A 404: the session is gone, or only what was known of the stream.
    fn not_found(&mut self, body: &[u8]) -> Over {
        let body: Value = serde_json::from_slice(body).unwrap_or_default();
        if body["error"]["data"]["reason"] == "forgotten" {
            return Over::Done;
        }
        self.thread.count(|tally| tally.lost += 1);
        self.session_over();
        Over::SessionLost
    }

    /// Comes back after a time of quiet with the last cursor of a call that is over; says whether the session lives.
    pub(super) async fn look_again(&mut self, wished: Instant) -> bool {
        let Some(cursor) = self.cursor.clone() else { return true };
        let call = timeline::call_at(&self.thread.storm.script, Duration::ZERO).clone();
        let request = self.thread.storm.target.get(self.of(Some(&cursor)));
        let now = Instant::now();
        self.oracle.note(self.thread.ms(now), '>', format_args!("GET Last-Event-ID: {cursor}, after a time of quiet"));
        self.resumed = true;
        let (ended, answer) = self.exchange(&request, Purpose::Call { call: &call, resumes: true }, wished).await;
        if matches!(ended, Ended::NotConnected | Ended::Over) {
            return true;
        }
        self.thread.count(|tally| tally.resumes += 1);
        self.thread.record(|recorder| recorder.resume(now, true));
        self.thread.tell(self.oracle.take_found());
        let gone = answer.head.is_some_and(|head| head.status == 404);
        !(gone && matches!(self.not_found(&answer.message), Over::SessionLost))
    }

    /// Waits until the client may come back: the instant at which it wished to; `None` when the run is over before.
    async fn wait_to_come_back(&mut self, ended: Ended) -> Option<Instant> {
        let gate = self.gate.take().filter(|_| ended == Ended::Cut);
        let at = gate.unwrap_or_else(|| Instant::now() + self.back_off());
        if at >= self.thread.storm.settled() {
            return None;
        }
        Some(self.rest(at).await)
    }

    /// The run is over, and the call has no answer. Where events of it still came, the run was too short for it, and that is all.
    fn unanswered(&mut self) -> Over {
        let storm = &self.thread.storm;
        let call = timeline::call_at(&storm.script, storm.script.length());
        if self.heard.elapsed() < due_within(call) {
            storm.under_way.fetch_add(1, Ordering::Relaxed);
            return Over::Stopped;
        }
        if let Some((id, Fate::Open)) = self.oracle.fate() {
            let text = format!("call {id} had no answer when the run ended");
            self.tell(Outcome::Unanswered, text);
        }
        Over::Stopped
    }
}
