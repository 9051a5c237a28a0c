//! How a session sees a call through: it lets its machine come back as often as it must, when the script or the back-off says.
//!
//! Never takes silence for an answer.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use rejoin_proto::client::{Ended, Input, Loss, State, StreamKey};

use super::drive::{Heard, Until, due_within};
use super::{Client, Over};
use crate::storm::measure::ErrorKind;
use crate::storm::script::Call;
use crate::storm::timeline;
use crate::storm::truth::{Fate, Outcome};

/// Requests to come back in a row that are not answered at all, before the server is said to hang.
const UNHEARD: u32 = 3;
/// Streams in a row that end cleanly with nothing, while something is due, before the result is said to be lost.
const EMPTY_ENDS: u32 = 3;
/// Failures in a row before a client gives a stream up.
const FAILURES: u32 = 60;

impl Client {
    /// Listens to a call that was made, and comes back until it is over.
    pub(super) async fn see_through(&mut self, call: &Call) -> Over {
        let (mut empty, mut last_event) = (0, Instant::now());
        loop {
            self.lost = None;
            let heard = self.listen(Until::Lost(call)).await;
            if self.ears.events > 0 {
                (empty, last_event) = (0, Instant::now());
            }
            match heard {
                Heard::All => {}
                Heard::Over if self.ears.is_open() && self.thread_has_room() => return self.unanswered(),
                Heard::Over => return Over::Stopped,
                Heard::Late if self.is_late(call).await => return self.abandon().await,
                Heard::Late => {}
            }
            if self.machine.state() == State::Ended {
                return Over::SessionLost;
            }
            if self.machine.streams().next().is_none() {
                return Over::Done;
            }
            if self.lost == Some(Loss::CleanEnd) && self.ears.events == 0 {
                empty += 1;
                if empty >= EMPTY_ENDS && last_event.elapsed() > due_within(call) {
                    let text = "the stream ends again and again with nothing, and the result does not come".to_owned();
                    self.ears.oracle.tell(Outcome::LostResult, text);
                    return self.abandon().await;
                }
            }
            if self.ears.failures > FAILURES {
                return self.abandon().await;
            }
            let Some(wished) = self.wait_to_come_back().await else { return self.unanswered() };
            if let Some(forgery) = self.forgery.take() {
                self.forge(forgery).await;
            }
            self.come_back(wished).await;
        }
    }

    /// Lets the machine come back to the call's stream.
    async fn come_back(&mut self, wished: Instant) {
        self.ears.wished = wished;
        if let Some(cursor) = &self.ears.cursor {
            self.thread.offer(self.index, cursor);
        }
        let stream = StreamKey::Call(self.number(0));
        self.give(Input::Return { stream, at: self.thread.moment(Instant::now()) }).await;
    }

    /// Nothing came for too long: a hang, unless the call has its answer. Whether the call is to be given up.
    async fn is_late(&mut self, call: &Call) -> bool {
        self.record_late();
        // A kernel whose queue of connections is full lets a client believe that it is connected: it tries again.
        let returning = self.machine.streams().find(|stream| stream.last_id.is_some()).and_then(|stream| stream.conn);
        if let Some(conn) = returning.filter(|_| self.ears.status.is_none()) {
            self.ears.unheard += 1;
            if self.ears.unheard < UNHEARD {
                self.lose(conn, Ended::Reset, None);
                self.obey().await;
                return false;
            }
        }
        if let Some((id, Fate::Open)) = self.ears.oracle.fate() {
            let seen = self.ears.oracle.ticks().map_or(String::new(), |(seen, count)| format!(" after {seen} of {count} ticks"));
            let text = format!("call {id} is open{seen}, its client is connected, and no event came for {:?}", call.patience);
            self.ears.oracle.tell(Outcome::Hang, text);
        }
        true
    }

    /// Nothing came any more: as nothing can once the call is answered.
    fn record_late(&self) {
        let why = if self.ears.is_open() { ErrorKind::Timeout } else { ErrorKind::LeftOpen };
        self.thread.record(|recorder| recorder.error(Instant::now(), why));
    }

    /// Gives the call up.
    async fn abandon(&mut self) -> Over {
        self.give(Input::Abandon { call: self.number(0) }).await;
        Over::Done
    }

    /// Comes back after a time of quiet with the last cursor of a call that is over; says whether the session lives.
    pub(super) async fn look_again(&mut self, wished: Instant) -> bool {
        let Some(cursor) = self.ears.cursor.clone() else { return true };
        let storm = std::rc::Rc::clone(&self.thread);
        let call = timeline::call_at(&storm.storm.script, Duration::ZERO);
        self.ears.note('*', format_args!("a time of quiet is over"));
        self.ears.wished = wished;
        if self.show(&cursor, Until::Lost(call)).await == Heard::Late {
            self.record_late();
        }
        self.thread.tell(self.ears.oracle.take_found());
        self.alive
    }

    /// Waits until the client may come back: the instant at which it wished to; `None` when the run is over before.
    async fn wait_to_come_back(&mut self) -> Option<Instant> {
        let gate = self.gate.take();
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
        if self.ears.heard.elapsed() < due_within(call) {
            storm.under_way.fetch_add(1, Ordering::Relaxed);
            return Over::Stopped;
        }
        if let Some((id, Fate::Open)) = self.ears.oracle.fate() {
            let text = format!("call {id} had no answer when the run ended");
            self.ears.oracle.tell(Outcome::Unanswered, text);
        }
        Over::Stopped
    }
}
