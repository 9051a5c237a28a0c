//! The machine against the kernel's own shard in one process, cut at every byte in either direction.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::*;
use crate::http::{Head, Names};
use crate::ids::{Boot, Key, Principal, SessionId, ShardIndex};
use crate::incarnations::{self, Liveness};
use crate::shard::io::{Command, Delivery, Emission, Target, Unauthorized, World};
use crate::shard::{self, Finished, ResponsePolicy, Shard};

struct Alone;

impl World for Alone {
    fn principal(&self, _: &Head) -> Result<Principal, Unauthorized> {
        Ok(Principal::new("anonymous"))
    }

    fn liveness(&self, _: &SessionId, _: u64) -> Liveness {
        Liveness::Ended(crate::refusal::Ended::Unknown)
    }

    fn place(&self) -> ShardIndex {
        ShardIndex(0)
    }
}

/// What travels, in the order in which it was said.
enum Parcel {
    ToServer(ConnId, Vec<u8>),
    ToClient(ConnId, Vec<u8>),
    /// The server closed.
    End(ConnId),
}

/// Where connections are cut: after so many bytes of the direction since the last cut, each once.
#[derive(Clone, Debug, Default)]
struct Cuts {
    to_client: Vec<usize>,
    to_server: Vec<usize>,
}

/// Both machines and the wire between them.
struct Network {
    bench: Bench,
    shard: Shard,
    shard_wake: Option<Instant>,
    shard_random: u64,
    /// Client's connections that are up; the shard knows them by the same number.
    up: Vec<ConnId>,
    parcels: std::collections::VecDeque<Parcel>,
    cuts: Cuts,
    /// Bytes that travelled in all: to the client, to the server.
    travelled: [usize; 2],
    since_cut: [usize; 2],
    seen_sends: usize,
    seen_opens: usize,
    seen_closes: usize,
    session: Option<SessionId>,
    /// What handlers have yet to say, in order of time.
    script: BTreeMap<(u64, usize), Emission>,
    scripted: usize,
    /// Arguments of the calls that ran, in order.
    executed: Vec<String>,
    events_per_call: usize,
}

impl Network {
    fn new(cuts: Cuts, listen: bool, change: impl FnOnce(&mut shard::Config)) -> Self {
        let limits = crate::limits::Limits { log_bytes: 1 << 20, ..Default::default() };
        let mut config = shard::Config {
            shard: ShardIndex(0),
            shards: 1,
            boot: Boot(1),
            key: Key::new([3; 16]),
            path: "/mcp".into(),
            limits,
            names: Names::default(),
            finished: Finished::NoContent,
            response: ResponsePolicy::Auto,
            exchanges: true,
            heads: false,
        };
        change(&mut config);
        let (_, writer) = incarnations::table(ShardIndex(0), Boot(1), 64);
        Self {
            bench: Bench::new(|config| config.listen = listen),
            shard: Shard::new(config, writer, Instant::ORIGIN),
            shard_wake: None,
            shard_random: 7,
            up: Vec::new(),
            parcels: Default::default(),
            cuts,
            travelled: [0; 2],
            since_cut: [0; 2],
            seen_sends: 0,
            seen_opens: 0,
            seen_closes: 0,
            session: None,
            script: BTreeMap::new(),
            scripted: 0,
            executed: Vec::new(),
            events_per_call: 3,
        }
    }

    fn shard_input(&mut self, input: shard::io::Input<'_>) {
        let mut out = Vec::new();
        let random = &mut self.shard_random;
        let mut random = || {
            *random += 1;
            random.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        };
        self.shard.handle(input, self.bench.now, &mut random, &Alone, &mut out);
        for output in out {
            use shard::io::Output;
            match output {
                Output::Send { conn, slices } => {
                    let bytes = slices.concat();
                    drop(slices);
                    let sent = bytes.len();
                    self.parcels.push_back(Parcel::ToClient(ConnId(conn.0), bytes));
                    self.shard_input(shard::io::Input::Sent { conn, bytes: sent });
                }
                Output::Close { conn, .. } => {
                    self.parcels.push_back(Parcel::End(ConnId(conn.0)));
                    self.shard_input(shard::io::Input::Closed { conn });
                }
                Output::Deliver { session, delivery } => self.delivered(session, delivery),
                Output::WakeAt(at) => self.shard_wake = Some(at),
                Output::Took(_) | Output::Read { .. } | Output::Drained => {}
                Output::Handoff { .. } | Output::Post { .. } => panic!("one shard hands nothing off"),
            }
        }
    }

    fn later(&mut self, millis: u64, emission: Emission) {
        self.scripted += 1;
        self.script.insert((self.bench.now.as_millis() + millis, self.scripted), emission);
    }

    fn delivered(&mut self, session: SessionId, delivery: Delivery) {
        self.session = Some(session);
        match delivery {
            Delivery::Initialize { call, .. } => {
                let result = r#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{"listChanged":true}}}"#;
                self.later(0, Emission::Result { call, result: Bytes::from(result) });
            }
            Delivery::Request { call, params, .. } => {
                let params = String::from_utf8(params.expect("arguments").to_vec()).expect("text");
                self.executed.push(params.clone());
                for number in 1..=self.events_per_call {
                    let params = Some(Bytes::from(format!(r#"{{"of":{params},"number":{number}}}"#)));
                    let method = "notifications/message".into();
                    self.later(number as u64 * 40, Emission::Notification { to: Target::Call(call), method, params });
                    let params = Some(Bytes::from(format!(r#"{{"alone":{}}}"#, self.scripted)));
                    let method = "notifications/message".into();
                    self.later(number as u64 * 40, Emission::Notification { to: Target::Standalone, method, params });
                }
                self.later(self.events_per_call as u64 * 40 + 20, Emission::Result { call, result: Bytes::from(params) });
            }
            _ => {}
        }
    }

    /// Collects what the client said.
    fn collect(&mut self) {
        for at in self.seen_sends..self.bench.sent.len() {
            let (conn, request) = &self.bench.sent[at];
            self.parcels.push_back(Parcel::ToServer(*conn, request.clone().into_bytes()));
        }
        self.seen_sends = self.bench.sent.len();
        while self.seen_closes < self.bench.closed.len() {
            let conn = self.bench.closed[self.seen_closes];
            self.seen_closes += 1;
            self.take_down(conn);
        }
        if self.seen_opens < self.bench.opened.len() {
            let conn = self.bench.opened[self.seen_opens];
            self.seen_opens += 1;
            self.up.push(conn);
            self.shard_input(shard::io::Input::Opened { conn: crate::ids::ConnId(conn.0) });
            self.bench.input(Input::Opened { conn });
            self.collect();
        }
    }

    /// A connection is gone for the server; bytes under way are lost.
    fn take_down(&mut self, conn: ConnId) {
        if let Some(at) = self.up.iter().position(|up| *up == conn) {
            self.up.remove(at);
            self.shard_input(shard::io::Input::Closed { conn: crate::ids::ConnId(conn.0) });
        }
    }

    /// How many of `bytes` travel before the next cut of their direction, and whether it comes.
    fn travel(&mut self, direction: usize, bytes: usize) -> (usize, bool) {
        let cuts = if direction == 0 { &mut self.cuts.to_client } else { &mut self.cuts.to_server };
        let (passed, cut) = match cuts.first() {
            Some(&at) if self.since_cut[direction] + bytes > at => {
                cuts.remove(0);
                (at - self.since_cut[direction], true)
            }
            _ => (bytes, false),
        };
        self.since_cut[direction] = if cut { 0 } else { self.since_cut[direction] + passed };
        self.travelled[direction] += passed;
        (passed, cut)
    }

    fn carry(&mut self, parcel: Parcel) {
        match parcel {
            Parcel::ToServer(conn, bytes) if self.up.contains(&conn) => {
                let (passed, cut) = self.travel(1, bytes.len());
                let name = crate::ids::ConnId(conn.0);
                self.shard_input(shard::io::Input::Received { conn: name, bytes: &bytes[..passed] });
                if cut {
                    self.take_down(conn);
                    self.bench.input(Input::Ended { conn, how: Ended::Reset });
                }
            }
            Parcel::ToClient(conn, bytes) if self.up.contains(&conn) => {
                let (passed, cut) = self.travel(0, bytes.len());
                self.bench.input(Input::Received { conn, bytes: &bytes[..passed] });
                if cut {
                    self.take_down(conn);
                    self.bench.input(Input::Ended { conn, how: Ended::Fin });
                }
            }
            Parcel::End(conn) if self.up.contains(&conn) => {
                self.up.retain(|up| *up != conn);
                self.bench.input(Input::Ended { conn, how: Ended::Fin });
            }
            _ => {}
        }
    }

    /// Moves everything that can move now.
    fn settle(&mut self) {
        loop {
            self.collect();
            let now = self.bench.now.as_millis();
            if let Some(parcel) = self.parcels.pop_front() {
                self.carry(parcel);
            } else if let Some(entry) = self.script.first_entry().filter(|entry| entry.key().0 <= now) {
                let emission = entry.remove();
                let session = self.session.expect("a session");
                self.shard_input(shard::io::Input::Emitted { session, emission });
            } else {
                return;
            }
        }
    }

    /// Lets time pass until `done`, or for a simulated hour.
    fn run(&mut self, done: impl Fn(&Self) -> bool) {
        for _ in 0..10_000 {
            self.settle();
            if done(self) || self.bench.now.as_millis() > 60 * 60 * 1000 {
                return;
            }
            let script = self.script.first_key_value().map(|((at, _), _)| Instant::from_millis(*at));
            let Some(next) = [self.bench.wake, self.shard_wake, script].into_iter().flatten().min() else { return };
            self.bench.now = next.max(self.bench.now);
            if self.bench.wake.is_some_and(|at| at <= self.bench.now) {
                self.bench.wake = None;
                self.bench.input(Input::TimePassed);
            }
            if self.shard_wake.is_some_and(|at| at <= self.bench.now) {
                self.shard_wake = None;
                self.shard_input(shard::io::Input::TimePassed);
            }
        }
    }

    /// A session that begins, calls twice at once and once more, and hears all. Whether it began.
    fn play(&mut self) -> bool {
        self.bench.input(Input::Start);
        self.run(|network| network.bench.client.state() == State::Ready || network.bench.client.state() == State::Ended);
        if self.bench.client.state() != State::Ready {
            return false;
        }
        for wave in [2, 1] {
            let told = self.bench.outcomes().len();
            for number in 0..wave {
                let params = format!(r#"{{"name":"t","arguments":[{wave},{number}]}}"#);
                let options = CallOptions::default();
                self.bench.input(Input::Call { method: "tools/call", params: Some(params.as_bytes()), options });
                self.bench.took.take().expect("an answer").expect("taken");
            }
            self.run(|network| network.bench.outcomes().len() == told + wave);
        }
        // The standalone stream says its last.
        let end = self.bench.now.as_millis() + 10_000;
        self.run(|network| network.script.is_empty() && network.bench.now.as_millis() > end);
        true
    }

    /// What holds whatever was cut.
    fn check(&self, context: &str) {
        let bench = &self.bench;
        assert_eq!(bench.violations(), [], "{context}");
        assert_eq!(bench.outcomes().len(), 3, "{context}: {:?}", bench.events);
        let mut executed = self.executed.clone();
        executed.sort();
        executed.dedup();
        assert_eq!(executed.len(), self.executed.len(), "{context}: a call ran twice");
        for (call, outcome) in bench.outcomes() {
            let heard = self.heard(StreamKey::Call(call));
            match outcome {
                Outcome::Result(result) => {
                    let result = String::from_utf8(result.to_vec()).expect("text");
                    assert!(self.executed.contains(&result), "{context}");
                    let said: Vec<_> =
                        (1..=self.events_per_call).map(|number| format!(r#"{{"of":{result},"number":{number}}}"#)).collect();
                    assert_eq!(heard, said, "{context}: {call:?}");
                }
                Outcome::Unknown(Unknown::Lost(_)) => assert!(heard.is_empty(), "{context}: it had a cursor"),
                Outcome::Error(CallError::NotSent(_)) => panic!("{context}: every connection can be made"),
                other => panic!("{context}: {other:?}"),
            }
        }
    }

    fn heard(&self, on: StreamKey) -> Vec<String> {
        let heard = |event: &Event| match event {
            Event::Notification { stream, params: Some(params), .. } if *stream == on => {
                Some(String::from_utf8_lossy(params).into())
            }
            _ => None,
        };
        self.bench.events.iter().filter_map(heard).collect()
    }
}

#[test]
fn cut_at_every_byte_each_call_has_one_outcome_and_each_event_comes_once() {
    let mut whole = Network::new(Cuts::default(), true, |_| {});
    assert!(whole.play());
    whole.check("uncut");
    assert!(whole.bench.outcomes().iter().all(|(_, outcome)| matches!(outcome, Outcome::Result(_))));
    let alone = whole.heard(StreamKey::Standalone);
    assert_eq!(alone.len(), 9);

    let (mut results, mut unknown) = (0, 0);
    for direction in 0..2 {
        for at in 0..whole.travelled[direction] {
            let mut cuts = Cuts::default();
            if direction == 0 {
                cuts.to_client.push(at)
            } else {
                cuts.to_server.push(at)
            }
            let mut network = Network::new(cuts, true, |_| {});
            if !network.play() {
                continue;
            }
            let context = format!("direction {direction}, cut at {at}");
            network.check(&context);
            let ran = network.executed.len();
            assert!(ran == 3 || direction == 1, "{context}: only a cut request does not run");
            let heard = network.heard(StreamKey::Standalone);
            let mut once = heard.clone();
            once.dedup();
            assert_eq!(heard.len(), once.len(), "{context}: twice");
            assert_eq!(heard.len(), ran * 3, "{context}: {:?}", network.bench.events);
            for (_, outcome) in network.bench.outcomes() {
                if matches!(outcome, Outcome::Result(_)) { results += 1 } else { unknown += 1 }
            }
        }
    }
    assert!(results > 5 * unknown && unknown > 0, "{results} results, {unknown} unknown");
}

#[test]
fn cut_again_and_again_the_same_holds() {
    // Longer than the longest answer's head and its opening event: each connection brings something.
    for gap in [700, 811, 977, 1201] {
        let cuts = Cuts { to_client: vec![gap; 200], to_server: Vec::new() };
        let mut network = Network::new(cuts, true, |_| {});
        network.events_per_call = 20;
        if network.play() {
            network.check(&format!("every {gap} bytes"));
        }
    }
}

#[test]
fn what_was_evicted_while_away_is_a_gap_and_the_result_still_comes() {
    let mut network = Network::new(Cuts::default(), false, |config| config.limits.stream_events = 2);
    network.events_per_call = 8;
    network.bench.input(Input::Start);
    network.run(|network| network.bench.client.state() == State::Ready);
    let params = Some(&br#"{"name":"t"}"#[..]);
    network.bench.input(Input::Call { method: "tools/call", params, options: CallOptions::default() });
    network.run(|network| !network.heard(StreamKey::Call(CallId(1))).is_empty());
    let conn = network.bench.client.streams().find_map(|stream| stream.conn).expect("attached");
    network.take_down(conn);
    network.bench.input(Input::Ended { conn, how: Ended::Reset });
    network.run(|network| network.bench.outcomes().len() == 1);
    assert!(matches!(network.bench.outcomes()[..], [(_, Outcome::Result(_))]), "{:?}", network.bench.events);
    let gap = |event: &Event| matches!(event, Event::Gap { gap, .. } if gap.lost.is_some_and(|lost| lost > 0) && gap.requested.is_some());
    assert_eq!(network.bench.events.iter().filter(|event| gap(event)).count(), 1, "{:?}", network.bench.events);
    assert_eq!(network.bench.violations(), []);
}

#[test]
fn a_session_closed_by_its_server_is_lost_with_its_calls() {
    let mut network = Network::new(Cuts::default(), true, |_| {});
    network.bench.input(Input::Start);
    network.run(|network| network.bench.client.state() == State::Ready);
    let params = Some(&br#"{"name":"t"}"#[..]);
    network.bench.input(Input::Call { method: "tools/call", params, options: CallOptions::default() });
    network.run(|network| !network.heard(StreamKey::Call(CallId(1))).is_empty());
    let session = network.session.expect("a session");
    network.script.clear();
    network.shard_input(shard::io::Input::Command(Command::Close(session)));
    network.run(|network| network.bench.client.state() == State::Ended);
    let lost = |event: &Event| matches!(event, Event::SessionLost { reason, unknown } if reason.as_deref() == Some("closed") && unknown == &[CallId(1)]);
    let [Outcome::Unknown(why)] = &network.bench.outcomes().into_iter().map(|(_, outcome)| outcome).collect::<Vec<_>>()[..]
    else {
        panic!("{:?}", network.bench.events)
    };
    // Its stream may have told it before the session's end was met.
    assert!(matches!(why, Unknown::SessionLost | Unknown::Server(_)), "{why:?}");
    assert!(*why != Unknown::SessionLost || network.bench.events.iter().any(lost), "{:?}", network.bench.events);
}

#[test]
fn a_rotated_session_is_lost_to_a_stream_of_its_former_life() {
    let mut network = Network::new(Cuts::default(), true, |_| {});
    network.bench.input(Input::Start);
    network.run(|network| network.bench.client.state() == State::Ready);
    let params = Some(&br#"{"name":"t"}"#[..]);
    network.bench.input(Input::Call { method: "tools/call", params, options: CallOptions::default() });
    network.run(|network| !network.heard(StreamKey::Standalone).is_empty());
    let session = network.session.expect("a session");
    network.script.clear();
    network.shard_input(shard::io::Input::Command(Command::Rotate(session)));
    network.run(|network| network.bench.client.state() == State::Ended);
    let reason = network.bench.events.iter().find_map(|event| match event {
        Event::SessionLost { reason, .. } => Some(reason.as_deref()),
        _ => None,
    });
    assert_eq!(reason, Some(Some("incarnation")), "{:?}", network.bench.events);
    assert!(matches!(network.bench.unknown()[..], [Unknown::Server(_) | Unknown::SessionLost]), "{:?}", network.bench.events);
    assert_eq!(network.bench.violations(), []);
}
