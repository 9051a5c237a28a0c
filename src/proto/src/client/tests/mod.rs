//! The machine's behaviour: against scripted servers, good and broken, and against the kernel's own shard.

mod broken;
mod kernel;
mod scripted;
mod steered;

use std::sync::Arc;

use super::*;

/// A client with its shell's view of it.
pub(super) struct Bench {
    pub client: Client,
    pub now: Instant,
    random: u64,
    /// Connections asked for, in order; the last one is the one that matters in most scripts.
    pub opened: Vec<ConnId>,
    pub sent: Vec<(ConnId, String)>,
    pub closed: Vec<ConnId>,
    pub events: Vec<Event>,
    pub took: Option<Result<CallId, NotTaken>>,
    pub wake: Option<Instant>,
}

pub(super) const READY: &str = r#"{"jsonrpc":"2.0","id":0,"result":{"protocolVersion":"2025-11-25","capabilities":{}}}"#;

/// An answer of one JSON body.
pub(super) fn json(status: u16, fields: &str, body: &str) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Type: application/json\r\n{fields}Content-Length: {}\r\n\r\n{body}", body.len())
}

/// An answer without a body.
pub(super) fn empty(status: u16) -> String {
    format!("HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n")
}

pub(super) const SSE: &str = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
pub(super) const END: &str = "0\r\n\r\n";

/// Frames as one chunk.
pub(super) fn chunk(frames: &str) -> String {
    format!("{:x}\r\n{frames}\r\n", frames.len())
}

/// An id of rejoin's shape.
pub(super) fn place(stream: u32, position: u64) -> String {
    format!("1.{stream}.{position}.0123456789abcdef")
}

pub(super) fn frame(id: &str, data: &str) -> String {
    format!("id: {id}\ndata: {data}\n\n")
}

pub(super) fn result(call: u64) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{call},"result":{{"n":{call}}}}}"#)
}

pub(super) const PROGRESS: &str = r#"{"jsonrpc":"2.0","method":"notifications/message","params":{}}"#;

impl Bench {
    pub(super) fn new(change: impl FnOnce(&mut Config)) -> Self {
        let mut config = Config::new("localhost:1", "/mcp");
        config.listen = false;
        change(&mut config);
        config.check().expect("a good configuration");
        Self {
            client: Client::new(Arc::new(config)),
            now: Instant::ORIGIN,
            random: 0,
            opened: Vec::new(),
            sent: Vec::new(),
            closed: Vec::new(),
            events: Vec::new(),
            took: None,
            wake: None,
        }
    }

    pub(super) fn input(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        let random = &mut self.random;
        let mut random = || {
            *random += 1;
            random.wrapping_mul(0x9E37_79B9_7F4A_7C15)
        };
        let mut turn = Turn { now: self.now, random: &mut random, observer: &mut (), out: &mut out };
        self.client.handle(input, &mut turn);
        for output in out {
            match output {
                Output::Took(took) => self.took = Some(took),
                Output::Open { conn } => self.opened.push(conn),
                Output::Send { conn, bytes } => self.sent.push((conn, String::from_utf8(bytes.to_vec()).expect("text"))),
                Output::Close { conn } => self.closed.push(conn),
                Output::WakeAt(at) => self.wake = Some(at),
                Output::Event(event) => self.events.push(event),
            }
        }
    }

    /// The connection of the last request.
    pub(super) fn last(&self) -> ConnId {
        *self.opened.last().expect("a connection")
    }

    /// Lets the last connection be made.
    pub(super) fn open(&mut self) -> ConnId {
        let conn = self.last();
        self.input(Input::Opened { conn });
        conn
    }

    pub(super) fn feed(&mut self, conn: ConnId, bytes: &str) {
        self.input(Input::Received { conn, bytes: bytes.as_bytes() });
    }

    /// The connection that the latest request went to.
    pub(super) fn asked(&self) -> ConnId {
        self.sent.last().expect("a request").0
    }

    pub(super) fn request(&self) -> &str {
        &self.sent.last().expect("a request").1
    }

    /// A session that has begun, on a connection that is closed again.
    pub(super) fn ready(change: impl FnOnce(&mut Config)) -> Self {
        let mut bench = Self::new(change);
        bench.input(Input::Start);
        let conn = bench.open();
        bench.feed(conn, &json(200, "Mcp-Session-Id: abc\r\n", READY));
        let conn = bench.asked();
        bench.feed(conn, "HTTP/1.1 202 Accepted\r\nConnection: close\r\nContent-Length: 0\r\n\r\n");
        assert!(matches!(bench.events[..], [Event::Ready { .. }]), "{:?}", bench.events);
        assert_eq!(bench.client.state(), State::Ready);
        bench.events.clear();
        bench
    }

    /// A call whose request went out.
    pub(super) fn call(&mut self) -> (CallId, ConnId) {
        self.input(Input::Call { method: "tools/call", params: Some(b"{\"name\":\"t\"}"), options: CallOptions::default() });
        let call = self.took.take().expect("an answer").expect("taken");
        if self.client.is_opening(self.last()) {
            self.open();
        }
        (call, self.asked())
    }

    pub(super) fn wait_for_wake(&mut self) {
        self.now = self.wake.take().expect("a wake").max(self.now);
        self.input(Input::TimePassed);
    }

    /// Passes time until the machine asks for another connection.
    pub(super) fn ask_again(&mut self) {
        let opened = self.opened.len();
        for _ in 0..10 {
            self.wait_for_wake();
            if self.opened.len() > opened {
                return;
            }
        }
        panic!("it does not come back: {:?}", self.client);
    }

    /// Passes time until the machine comes back for what was lost, and lets its connection be made.
    pub(super) fn come_back(&mut self) -> ConnId {
        self.ask_again();
        self.open()
    }

    /// The outcomes told, in order; nothing told twice.
    pub(super) fn outcomes(&self) -> Vec<(CallId, Outcome)> {
        let mut outcomes = Vec::new();
        for event in &self.events {
            if let Event::Outcome { call, outcome } = event {
                assert!(outcomes.iter().all(|(told, _)| told != call), "{call:?} has two outcomes");
                outcomes.push((*call, outcome.clone()));
            }
        }
        outcomes
    }

    pub(super) fn violations(&self) -> Vec<Violation> {
        let violation = |event: &Event| match event {
            Event::ContinuityViolated { violation, .. } => Some(*violation),
            _ => None,
        };
        self.events.iter().filter_map(violation).collect()
    }

    pub(super) fn unknown(&self) -> Vec<Unknown> {
        let unknown = |(_, outcome)| match outcome {
            Outcome::Unknown(why) => Some(why),
            _ => None,
        };
        self.outcomes().into_iter().filter_map(unknown).collect()
    }
}

pub(super) fn is_result(outcome: &Outcome, call: u64) -> bool {
    matches!(outcome, Outcome::Result(json) if json == format!("{{\"n\":{call}}}").as_bytes())
}

/// A call whose stream has brought the opening event and `events` messages of rejoin's.
pub(super) fn streaming(events: u64) -> (Bench, CallId, ConnId) {
    let mut bench = Bench::ready(|_| {});
    let (call, conn) = bench.call();
    let mut frames = format!("id: {}\nretry: 500\ndata:\n\n", place(2, 0));
    for position in 1..=events {
        frames += &frame(&place(2, position), PROGRESS);
    }
    bench.feed(conn, &format!("{SSE}{}", chunk(&frames)));
    bench.events.retain(|event| !matches!(event, Event::Notification { .. }));
    (bench, call, conn)
}

/// The same, cut and asked for again.
pub(super) fn returned(events: u64) -> (Bench, CallId, ConnId) {
    let (mut bench, call, conn) = streaming(events);
    bench.input(Input::Ended { conn, how: Ended::Reset });
    assert!(matches!(bench.events[..], [Event::Lost { why: Loss::Cut(Ended::Reset), .. }]), "{:?}", bench.events);
    bench.events.clear();
    let conn = bench.come_back();
    assert!(bench.request().starts_with("GET /mcp HTTP/1.1\r\n"), "{}", bench.request());
    assert!(bench.request().contains(&format!("\r\nLast-Event-ID: {}\r\n", place(2, events))), "{}", bench.request());
    (bench, call, conn)
}
