//! One request and its answer, on the session's one connection.
//!
//! Never decides what follows from how it ended.

use std::time::{Duration, Instant};

use super::super::measure::{ErrorKind, Metric, Pace, Timing};
use super::super::net::{Arrived, Conn};
use super::super::thread::READ_BUFFER;
use super::super::timeline::What;
use super::super::truth::{Fate, Item, Outcome, Seen};
use super::super::wire::{BadAnswer, Head, Heard};
use super::{ANSWER, CONNECT, Client};
use crate::storm::script::{Call, Forgery, Tool};

/// How long a stream may stay open behind its call's answer before its client leaves.
const LINGER: Duration = Duration::from_millis(500);
/// A slow reader's pause between two reads.
const SLOW_STEP: Duration = Duration::from_millis(50);
/// Requests to come back in a row that are not answered at all, before the server is said to hang.
const UNHEARD: u32 = 3;
/// Reads of one connection before the thread's others have their turn.
const READS_PER_TURN: usize = 8;

/// What a request is for.
#[derive(Clone, Copy, Debug)]
pub(super) enum Purpose<'a> {
    /// Anything that is no call.
    Plain,
    /// To make a call, or to come back to it with a cursor.
    Call { call: &'a Call, resumes: bool },
}

/// How an exchange ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Ended {
    /// As the answer's framing says it should.
    Whole,
    /// The connection was never there.
    NotConnected,
    /// The connection broke.
    Broken,
    /// The script cut it.
    Cut,
    /// Nothing came for too long.
    Late,
    /// The run is over.
    Over,
}

/// What an exchange brought.
#[derive(Debug, Default)]
pub(super) struct Answer {
    /// Its head.
    pub(super) head: Option<Head>,
    /// The body; of a stream that is no call's, its last message.
    pub(super) message: Vec<u8>,
    /// Events that came.
    pub(super) events: u64,
    /// Whether the script cut it to show this cursor.
    pub(super) forgery: Option<Forgery>,
    replayed: bool,
    ended: bool,
    last: Option<Instant>,
}

impl Client {
    /// Sends a request, connecting first where that is needed, and reads the answer. `wished`: when the client wanted to be there.
    pub(super) async fn exchange(&mut self, request: &[u8], purpose: Purpose<'_>, wished: Instant) -> (Ended, Answer) {
        let mut answer = Answer::default();
        if !self.thread.may_send() {
            return (Ended::Over, answer);
        }
        if self.conn.is_none() && !self.connect(wished).await {
            return (Ended::NotConnected, answer);
        }
        let Some(conn) = &self.conn else { return (Ended::NotConnected, answer) };
        let sent = conn.write(request, Instant::now() + ANSWER).await;
        let now = Instant::now();
        if let Err(error) = sent {
            self.thread.record(|recorder| recorder.error(now, ErrorKind::of(&error)));
            self.close();
            return (Ended::Broken, answer);
        }
        self.thread.record(|recorder| recorder.bytes_out(now, request.len() as u64));
        let ended = self.listen(purpose, wished, &mut answer).await;
        let reusable = ended == Ended::Whole && answer.head.as_ref().is_some_and(|head| head.keep_alive);
        if !reusable {
            self.close();
        }
        (ended, answer)
    }

    /// Opens the connection.
    async fn connect(&mut self, wished: Instant) -> bool {
        let began = Instant::now();
        let opened = Conn::open(self.thread.storm.target.address, self.index, self.slow_reader, CONNECT).await;
        let now = Instant::now();
        match opened {
            Ok(conn) => {
                self.conn = Some(conn);
                self.thread.record(|recorder| {
                    recorder.connected(now);
                    recorder.latency(Metric::Connect, Timing::scheduled(wished, began, now), Pace::Open);
                });
                true
            }
            Err(error) => {
                self.thread.record(|recorder| recorder.error(now, ErrorKind::of_connect(&error)));
                false
            }
        }
    }

    /// Reads the answer to its end, or to whatever comes before.
    async fn listen(&mut self, purpose: Purpose<'_>, wished: Instant, answer: &mut Answer) -> Ended {
        let mut reads = 0;
        let mut quiet_since = Instant::now();
        loop {
            if answer.ended {
                return Ended::Whole;
            }
            if let Some(trouble) = self.due() {
                if let What::Cut { forgery, .. } = trouble.what {
                    answer.forgery = forgery;
                }
                if self.suffer(trouble) {
                    return Ended::Cut;
                }
                continue;
            }
            let now = Instant::now();
            let patience = quiet_since + self.patience(purpose);
            let over = self.thread.storm.settled();
            if now >= over {
                return Ended::Over;
            }
            if now >= patience {
                return self.late(purpose, answer);
            }
            let wake = self.trouble_at().map_or(over, |at| at.min(over)).min(patience);
            if reads >= READS_PER_TURN {
                reads = 0;
                rejoin::yield_now().await;
            }
            match self.read_once(purpose, wished, answer) {
                Ok(Arrived::Bytes(_)) => {
                    reads += 1;
                    if let Some(event) = answer.last.take() {
                        quiet_since = event;
                    }
                    self.dawdle().await;
                }
                Ok(Arrived::Nothing) => {
                    let Some(conn) = &self.conn else { return Ended::Broken };
                    conn.readable(wake).await;
                    reads = 0;
                }
                Ok(Arrived::End) => return if answer.ended { Ended::Whole } else { self.broken(ErrorKind::ClosedEarly) },
                Ok(Arrived::Gone) => return self.broken(ErrorKind::Reset),
                Err(error) => {
                    let now = self.thread.ms(Instant::now());
                    self.oracle.note(now, '*', format_args!("{error}"));
                    return self.broken(ErrorKind::BadAnswer);
                }
            }
        }
    }

    fn broken(&self, why: ErrorKind) -> Ended {
        self.thread.record(|recorder| recorder.error(Instant::now(), why));
        Ended::Broken
    }

    /// How long nothing may come before the server is said to hang.
    fn patience(&self, purpose: Purpose<'_>) -> Duration {
        match purpose {
            Purpose::Plain => ANSWER,
            Purpose::Call { .. } if self.oracle.fate().is_some_and(|(_, fate)| fate != Fate::Open) => LINGER,
            Purpose::Call { call, .. } => due_within(call),
        }
    }

    /// Nothing came for too long: a hang, unless the call has its answer.
    fn late(&mut self, purpose: Purpose<'_>, answer: &Answer) -> Ended {
        self.thread.record(|recorder| recorder.error(Instant::now(), ErrorKind::Timeout));
        // A kernel whose queue of connections is full lets a client believe that it is connected: it tries again.
        if matches!(purpose, Purpose::Call { resumes: true, .. }) && answer.head.is_none() {
            self.unheard += 1;
            if self.unheard < UNHEARD {
                return Ended::Broken;
            }
        }
        if let (Purpose::Call { call, .. }, Some((id, Fate::Open))) = (purpose, self.oracle.fate()) {
            let seen = self.oracle.ticks().map_or(String::new(), |(seen, count)| format!(" after {seen} of {count} ticks"));
            let text = format!("call {id} is open{seen}, its client is connected, and no event came for {:?}", call.patience);
            self.tell(Outcome::Hang, text);
        }
        Ended::Late
    }

    /// A slow reader waits before it reads on.
    async fn dawdle(&mut self) {
        let Some((_, until)) = self.slow else { return };
        if until <= Instant::now() {
            self.slow = None;
            return;
        }
        monoio::time::sleep(SLOW_STEP).await;
    }

    /// Reads what is there, once.
    fn read_once(&mut self, purpose: Purpose<'_>, wished: Instant, answer: &mut Answer) -> Result<Arrived, BadAnswer> {
        let Some(mut conn) = self.conn.take() else { return Ok(Arrived::Gone) };
        let thread = std::rc::Rc::clone(&self.thread);
        let most = self.slow.map_or(READ_BUFFER, |(rate, _)| slow_read(rate));
        let result = thread.with_buffer(|buffer| {
            let arrived = conn.read(&mut buffer[..most]);
            let now = Instant::now();
            let mut hear = |heard: Heard<'_>| self.hear(heard, purpose, wished, now, answer);
            match arrived {
                Arrived::Bytes(count) => {
                    thread.record(|recorder| recorder.bytes_in(now, count as u64));
                    conn.answers.push(&buffer[..count], &mut hear)?;
                }
                Arrived::End => {
                    conn.answers.closed(&mut hear);
                }
                Arrived::Gone | Arrived::Nothing => {}
            }
            Ok(arrived)
        });
        self.conn = Some(conn);
        result
    }

    fn hear(&mut self, heard: Heard<'_>, purpose: Purpose<'_>, wished: Instant, now: Instant, answer: &mut Answer) {
        match heard {
            Heard::Head(head) => self.hear_head(head, purpose, wished, now, answer),
            Heard::Item(item) => match purpose {
                Purpose::Plain => {
                    if let Some(data) = item.data.filter(|data| !data.is_empty()) {
                        answer.message = data.as_bytes().to_vec();
                    }
                }
                Purpose::Call { call, .. } => self.hear_item(item, call, wished, now, answer),
            },
            Heard::Retry(retry) => self.retry = Some(retry),
            Heard::Comment => {}
            Heard::Body(body) => {
                let is_answer = answer.head.as_ref().is_some_and(|head| head.status == 200);
                if let (Purpose::Call { resumes: false, .. }, true, Ok(text)) = (purpose, is_answer, std::str::from_utf8(body)) {
                    self.oracle.body(self.thread.ms(now), text);
                }
                answer.message = body.to_vec();
            }
            Heard::End => answer.ended = true,
        }
    }

    fn hear_head(&mut self, head: &Head, purpose: Purpose<'_>, wished: Instant, now: Instant, answer: &mut Answer) {
        answer.head = Some(head.clone());
        self.unheard = 0;
        answer.last = Some(now);
        let Purpose::Call { resumes, .. } = purpose else { return };
        let verdict = head.verdict.as_deref().unwrap_or_default();
        self.oracle.note(self.thread.ms(now), '<', format_args!("HTTP {} {verdict}", head.status));
        if head.status == 200 && head.stream {
            self.attached = now;
            self.failures = 0;
            self.oracle.opened(self.cursor.as_deref().filter(|_| resumes));
        }
        if resumes || head.status >= 400 {
            let status = format!("http_{}", head.status);
            self.thread.record(|recorder| {
                recorder.verdict(now, head.verdict.as_deref().unwrap_or(&status));
                if resumes {
                    recorder.latency(Metric::TimeToResume, Timing::scheduled(wished, wished, now), Pace::Unpaced);
                }
            });
        }
        // What was silently cut has served its purpose: the server has had two connections of one stream.
        self.unpark();
    }

    fn hear_item(&mut self, item: Item<'_>, call: &Call, wished: Instant, now: Instant, answer: &mut Answer) {
        let seen = self.oracle.item(self.thread.ms(now), item);
        if let Some(id) = item.id.filter(|id| !id.is_empty()) {
            self.keep_cursor(id);
        }
        if seen == Seen::Opening {
            return;
        }
        answer.events += 1;
        answer.last = Some(now);
        self.heard = now;
        self.thread.record(|recorder| recorder.events(now, 1));
        let due = if let (Seen::Tick(number), Tool::Ticker(ticker)) = (seen, &call.tool) {
            let earlier = ticker.interval * number;
            let anchor = now.checked_sub(earlier).map(|at| self.anchor.map_or(at, |anchor| anchor.min(at)));
            self.anchor = anchor.or(self.anchor);
            anchor.map(|anchor| anchor + earlier)
        } else {
            None
        };
        if seen == Seen::Resync {
            self.thread.count(|tally| tally.resyncs += 1);
        }
        let away = due.is_some_and(|due| due < self.attached);
        if self.resumed && answer.events == 1 && (away || seen == Seen::Resync) {
            let timing = Timing::scheduled(wished, wished, now);
            self.thread.record(|recorder| recorder.latency(Metric::TimeToFirstEvent, timing, Pace::Unpaced));
        }
        let said_replay = answer.head.as_ref().and_then(|head| head.verdict.as_deref()).map(|verdict| verdict == "replay");
        if self.resumed && !answer.replayed && said_replay.unwrap_or(seen != Seen::Resync) {
            answer.replayed = true;
            self.thread.count(|tally| tally.replays += 1);
        }
        if let Some(due) = due {
            let metric = if self.resumed && away { Metric::DeliveryReplayed } else { Metric::Delivery };
            self.thread.record(|recorder| recorder.latency(metric, Timing::scheduled(due, due, now), Pace::Unpaced));
        }
    }

    /// Remembers an id of the call's stream.
    fn keep_cursor(&mut self, id: &str) {
        if self.cursor.as_deref() == Some(id) {
            return;
        }
        if let Some(before) = self.cursor.replace(id.into()) {
            if self.past.len() == super::PAST {
                self.past.pop_front();
            }
            self.past.push_back(before);
        }
    }
}

/// How long a connected client waits for the next event of a call.
pub(super) fn due_within(call: &Call) -> Duration {
    let interval = if let Tool::Ticker(ticker) = &call.tool { ticker.interval } else { Duration::ZERO };
    interval + call.patience
}

/// Bytes that a slow reader takes at once.
fn slow_read(rate: usize) -> usize {
    let steps = Duration::from_secs(1).as_millis() / SLOW_STEP.as_millis();
    (rate / usize::try_from(steps).unwrap_or(1)).clamp(1, READ_BUFFER)
}
