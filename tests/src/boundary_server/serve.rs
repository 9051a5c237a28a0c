//! Streams onto connections: the opening, replay, live, and how they end.
//!
//! Never holds an event of its own: each turn reads the log behind the position that was written last, so that replay becomes live without a
//! step between them.

use std::fmt::Write as _;
use std::sync::{Arc, MutexGuard};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use super::http::{LOOK_UP, Peer};
use super::keys::Place;
use super::log::{Next, Stream};
use super::reply::head_of;
use super::state::{Key, Session, State};
use super::{Fault, Shared, random};

/// Bytes that are written at a time.
const BATCH: usize = 16 << 10;

/// How long the older connection of a stream may take to end cleanly.
const TAKEOVER_TIME: Duration = Duration::from_secs(2);

/// The longest `retry` that a client is told.
const RETRY_MOST: Duration = Duration::from_secs(60);

/// How long a fault of the handover takes from replay to live: long enough for a burst to fall into it.
const HANDOVER: Duration = Duration::from_millis(40);

/// A connection's hold on a stream.
pub(super) struct Attachment {
    shared: Arc<Shared>,
    nonce: u128,
    key: Key,
    generation: u64,
}

impl Attachment {
    /// Attaches, under the lock of whoever asks.
    pub(super) fn new(shared: &Arc<Shared>, nonce: u128, key: Key, stream: &mut Stream) -> Self {
        stream.connections += 1;
        stream.attached = true;
        Self { shared: Arc::clone(shared), nonce, key, generation: stream.generation }
    }
}

impl Drop for Attachment {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        if let Some(session) = state.sessions.get_mut(&self.nonce) {
            session.last_used = Instant::now();
            if let Some(stream) = session.streams.get_mut(&self.key) {
                // A fault may have raised the session anew, without this connection.
                stream.connections = stream.connections.saturating_sub(1);
            }
        }
    }
}

/// What a stream's connection will say.
pub(super) struct Plan {
    pub(super) attachment: Attachment,
    /// Everything behind this position.
    pub(super) from: u64,
    /// The position whose id the opening event has.
    pub(super) opening: u64,
    /// The cursor that was presented.
    pub(super) cursor: Option<String>,
    /// Whether its call began with it: what it misses, it was too slow for.
    pub(super) fresh: bool,
    /// The verdict on a GET.
    pub(super) verdict: Option<&'static str>,
    /// Whether it never says anything more: only faults.
    pub(super) mute: bool,
}

/// How far a connection has come.
struct Progress {
    at: u64,
    /// The position whose gap was told.
    told: Option<u64>,
    first: bool,
}

/// What one turn found.
enum Turn {
    /// Something may follow.
    Open,
    /// Nothing follows, for ever.
    Ended,
    /// Another connection serves the stream now; its client should wait so long.
    TakenOver(Duration),
}

impl Shared {
    /// Serves a stream to a connection, to one's end or the other's.
    pub(super) fn stream(
        self: &Arc<Self>,
        peer: &mut Peer,
        plan: Plan,
        mut fields: Vec<(&'static str, String)>,
        chunked: bool,
    ) -> Option<()> {
        fields.push(("Content-Type", "text/event-stream".to_owned()));
        fields.push(("X-Accel-Buffering", "no".to_owned()));
        plan.verdict.into_iter().for_each(|verdict| fields.push(("Rejoin-Verdict", verdict.to_owned())));
        if chunked {
            fields.push(("Transfer-Encoding", "chunked".to_owned()));
        }
        let mut out = head_of(200, fields.iter()) + "\r\n";
        let mut progress = Progress { at: plan.from, told: None, first: true };
        let mut wrote = Instant::now();
        let mut again = None;
        loop {
            let (mut frames, mut turn) = self.turn(&plan, &mut progress, wrote);
            let first = std::mem::take(&mut progress.first);
            if let Some(rewound) = again.take()
                && progress.at > rewound
            {
                (progress.at, turn) = (rewound, Turn::Open);
            }
            if let Turn::TakenOver(retry) = turn {
                let _ = write!(frames, "retry: {}\n\n", retry.as_millis());
            }
            if !frames.is_empty() {
                if chunked {
                    let _ = write!(out, "{:x}\r\n{frames}\r\n", frames.len());
                } else {
                    out.push_str(&frames);
                }
            }
            let end = !matches!(turn, Turn::Open);
            if end && chunked {
                out.push_str("0\r\n\r\n");
            }
            if !out.is_empty() {
                let held = self.has(Fault::StallsNeighbours).then(|| self.state());
                peer.write(out.as_bytes(), &|| self.is_over() || (held.is_none() && self.has_left(&plan.attachment)))?;
                drop(held);
                out.clear();
                wrote = Instant::now();
                self.written(&plan.attachment, progress.at);
            }
            if end {
                return Some(());
            }
            if !peer.is_there() || self.is_over() {
                return None;
            }
            if first && plan.cursor.is_some() {
                again = self.hand_over(&plan, &mut progress);
            }
        }
    }

    /// Notes what was written, for whoever comes without a cursor.
    fn written(&self, attachment: &Attachment, at: u64) {
        if let Some(stream) = stream_of(&mut self.state(), attachment) {
            stream.written = stream.written.max(at.min(stream.last()));
        }
    }

    /// Whether a connection that cannot be written to has had its time: the stream was taken over or is gone.
    fn has_left(&self, attachment: &Attachment) -> bool {
        match stream_of(&mut self.state(), attachment) {
            Some(stream) if stream.generation == attachment.generation => false,
            Some(stream) => stream.takeovers.is_none_or(|(when, _)| when.elapsed() > TAKEOVER_TIME),
            None => true,
        }
    }

    /// What is to be written next; waits for it, but not for long.
    fn turn(&self, plan: &Plan, progress: &mut Progress, wrote: Instant) -> (String, Turn) {
        let attachment = &plan.attachment;
        let mut state = self.state();
        if !progress.first {
            state = self.wait(state, plan, progress);
        }
        let Some(session) = state.sessions.get_mut(&attachment.nonce) else { return (String::new(), Turn::Ended) };
        if stream_in(session, attachment).is_none() {
            return (String::new(), Turn::Ended);
        }
        let generation = session.streams[&attachment.key].generation;
        if generation != attachment.generation {
            return (String::new(), Turn::TakenOver(self.loser_waits(&session.streams[&attachment.key])));
        }
        let (mut frames, ended) = if self.is_mute(plan, progress) && !progress.first {
            (Vec::new(), false)
        } else {
            self.frames(session, plan, progress)
        };
        if progress.first && plan.cursor.is_some() {
            self.spoil(session, plan, &mut frames);
        }
        let mut text = String::new();
        if progress.first && !frames.first().is_some_and(|frame| frame.opens) {
            text.push_str(&self.opening(session, plan));
        }
        frames.iter().for_each(|frame| text.push_str(&frame.text));
        if text.is_empty() && wrote.elapsed() >= self.settings.keep_alive {
            text.push_str(":\n\n");
        }
        let ended = ended && !(self.has(Fault::StaysOpenAfterResult) && session.streams[&attachment.key].request.is_some());
        (text, if ended { Turn::Ended } else { Turn::Open })
    }

    /// Waits until there is something for this connection, or it is time to look whether it is still there.
    fn wait<'s>(&'s self, mut state: MutexGuard<'s, State>, plan: &Plan, progress: &Progress) -> MutexGuard<'s, State> {
        let until = Instant::now() + LOOK_UP;
        let nothing = |state: &mut MutexGuard<'_, State>| match stream_of(state, &plan.attachment) {
            Some(stream) => {
                stream.generation == plan.attachment.generation
                    && (self.is_mute(plan, progress) || (stream.running() && stream.last() <= progress.at))
            }
            None => false,
        };
        while nothing(&mut state) && !self.is_over() {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.said.wait_timeout(state, left).expect("no holder panics").0;
        }
        state
    }

    /// The events behind where the connection stands, as many as go into one batch, and whether the stream ends behind them.
    fn frames(&self, session: &mut Session, plan: &Plan, progress: &mut Progress) -> (Vec<Frame>, bool) {
        let (mut frames, mut bytes) = (Vec::new(), 0);
        let id = session.id.clone();
        let key = plan.attachment.key;
        let Some(stream) = session.streams.get_mut(&key) else { return (frames, true) };
        stream.evict(Instant::now(), &self.settings);
        while bytes < BATCH {
            let told = progress.told == Some(progress.at);
            let next = stream.after(progress.at, told);
            if self.has(Fault::EndsWithResync) && told && progress.at + 1 == stream.answer_at() && !stream.holds_result() {
                progress.at += 1;
                continue;
            }
            match next {
                Next::Event(data) => {
                    progress.at += 1;
                    let shown = if self.has(Fault::RestartsIds) && plan.cursor.is_some() {
                        progress.at.saturating_sub(plan.from)
                    } else {
                        progress.at
                    };
                    frames.push(Frame::event(self, &id, key, shown, &data, progress.at));
                }
                Next::Gap { lost, earliest } => {
                    let stands = earliest.map_or(stream.last(), |earliest| earliest - 1);
                    progress.at = stands;
                    progress.told = Some(stands);
                    let evicted = progress.first && !plan.fresh;
                    let silent = if evicted { Fault::EvictsSilently } else { Fault::OverrunsSilently };
                    if self.has(silent) {
                        continue;
                    }
                    let resync = self.resync(&id, plan, progress.first, (lost, stands, earliest));
                    if self.has(Fault::ResyncNotFirst)
                        && progress.first
                        && let Next::Event(data) = stream.after(stands, true)
                    {
                        progress.at += 1;
                        frames.push(Frame::event(self, &id, key, progress.at, &data, progress.at));
                    }
                    frames.push(resync);
                    if stream.request.is_none() {
                        let changed = json!({"jsonrpc": "2.0", "method": "notifications/tools/list_changed"});
                        frames.push(Frame::plain(format!("data: {changed}\n\n")));
                    }
                }
                Next::Nothing => return (frames, false),
                Next::End => return (frames, true),
            }
            bytes += frames.last().map_or(0, |frame| frame.text.len());
        }
        (frames, false)
    }

    fn id(&self, session: &str, key: Key, position: u64) -> String {
        self.keys.cursor(session, Place { incarnation: key.0, stream: key.1, position })
    }

    fn id_line(&self, session: &str, key: Key, position: u64) -> String {
        if self.has(Fault::NoIds) { String::new() } else { format!("id: {}\n", self.id(session, key, position)) }
    }

    fn resync(&self, session: &str, plan: &Plan, first: bool, (lost, stands, earliest): (u64, u64, Option<u64>)) -> Frame {
        let key = plan.attachment.key;
        let data = json!({
            "requested": plan.cursor.as_ref().filter(|_| first),
            "earliest": earliest.map(|earliest| self.id(session, key, earliest)),
            "lost": lost,
            "unrecoverable": true,
            "reason": if first && !plan.fresh { "evicted" } else { "overrun" },
        });
        let retry = if first { self.retry_line() } else { String::new() };
        let stands = if self.has(Fault::ResyncDoesNotMove) && first { plan.from } else { stands };
        let text = format!("event: resync\n{}{retry}data: {data}\n\n", self.id_line(session, key, stands));
        Frame { text, opens: true, position: None }
    }

    /// The event that a stream opens with, from the revision on that asks for it.
    fn opening(&self, session: &Session, plan: &Plan) -> String {
        if session.revision < "2025-11-25" || self.has(Fault::NoOpeningEvent) {
            return String::new();
        }
        let position = if self.has(Fault::RestartsIds) && plan.cursor.is_some() { 0 } else { plan.opening };
        format!("{}{}data:\n\n", self.id_line(&session.id, plan.attachment.key, position), self.retry_line())
    }

    /// `retry`, spread by a fifth to either side so that clients do not come back all at once.
    fn retry_line(&self) -> String {
        let base = self.settings.retry.as_millis() as u64;
        let spread = (base * 2 / 5).max(1);
        format!("retry: {}\n", base - base / 5 + random() as u64 % spread)
    }

    /// How long the loser of a takeover should wait: each takeover soon after another doubles it.
    fn loser_waits(&self, stream: &Stream) -> Duration {
        let count = stream.takeovers.map_or(0, |(_, count)| count);
        self.settings.retry.saturating_mul(1 << count.min(10)).min(RETRY_MOST.max(self.settings.retry))
    }

    /// Whether a fault keeps this connection from saying anything more.
    fn is_mute(&self, plan: &Plan, progress: &Progress) -> bool {
        plan.mute || (self.has(Fault::HangsAfterReplay) && plan.cursor.is_some() && !progress.first)
    }

    /// Spoils the replay of a resumed stream, if that is the fault.
    fn spoil(&self, session: &Session, plan: &Plan, frames: &mut Vec<Frame>) {
        let key = plan.attachment.key;
        let answer = session.streams[&key].answer_at();
        match self.fault {
            Some(Fault::Reorders) => {
                let events: Vec<usize> = (0..frames.len()).filter(|&at| frames[at].position.is_some()).collect();
                if let [first, second, ..] = events[..]
                    && frames[second].position.is_some_and(|position| position < answer)
                {
                    frames.swap(first, second);
                }
            }
            Some(Fault::SecondResult) => {
                let result = frames.last().filter(|frame| frame.position == Some(answer) && key.1 != 0);
                if let Some(data) = result.and_then(|frame| frame.text.split_once("data: ")).map(|(_, data)| data.trim_end()) {
                    frames.push(Frame::event(self, &session.id, key, answer + 1, data, answer + 1));
                }
            }
            Some(Fault::MixesStreams) => {
                let others = session.streams.iter().filter(|(other, _)| **other != key && other.1 != 0);
                for (&other, stream) in others {
                    for (position, data) in stream.held() {
                        frames.push(Frame::event(self, &session.id, other, position, data, position));
                    }
                }
            }
            _ => {}
        }
    }

    /// What happens between replay and live where they are two things: only with a fault. Gives the position to go back to.
    fn hand_over(&self, plan: &Plan, progress: &mut Progress) -> Option<u64> {
        if !matches!(self.fault, Some(Fault::HandoverGap | Fault::HandoverDuplicates)) {
            return None;
        }
        thread::sleep(HANDOVER);
        let mut state = self.state();
        let stream = stream_of(&mut state, &plan.attachment)?;
        if self.has(Fault::HandoverGap) {
            // The result is kept apart, and is not lost.
            progress.at = progress.at.max(stream.answer_at() - 1);
            return None;
        }
        (stream.last() > progress.at).then_some(progress.at)
    }
}

/// One block of a stream.
struct Frame {
    text: String,
    /// Whether it stands in for the opening event.
    opens: bool,
    /// Where it stands, if it is one of the stream's own events.
    position: Option<u64>,
}

impl Frame {
    fn event(shared: &Shared, session: &str, key: Key, shown: u64, data: &str, position: u64) -> Self {
        let text = format!("{}data: {data}\n\n", shared.id_line(session, key, shown));
        Self { text, opens: false, position: Some(position) }
    }

    fn plain(text: String) -> Self {
        Self { text, opens: false, position: None }
    }
}

fn stream_in<'s>(session: &'s mut Session, attachment: &Attachment) -> Option<&'s mut Stream> {
    session.streams.get_mut(&attachment.key)
}

fn stream_of<'s>(state: &'s mut State, attachment: &Attachment) -> Option<&'s mut Stream> {
    state.sessions.get_mut(&attachment.nonce).and_then(|session| stream_in(session, attachment))
}
