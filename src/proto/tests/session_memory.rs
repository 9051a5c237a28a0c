//! What a session costs its shard, as the allocator counts it: attached and idle, and with finished calls that are kept.

use allocation_counter::measure;
use bytes::Bytes;
use rejoin_proto::http::{Head, Names};
use rejoin_proto::ids::{Boot, ConnId, Key, Principal, SessionId, ShardIndex};
use rejoin_proto::incarnations::{self, Liveness};
use rejoin_proto::limits::Limits;
use rejoin_proto::refusal::Ended;
use rejoin_proto::shard::io::{Delivery, Emission, Input, Output, Unauthorized, World};
use rejoin_proto::shard::{Config, Finished, ResponsePolicy, Shard};
use rejoin_proto::time::Instant;

/// Bytes of heap that an attached idle session may take of its shard's kernel, its connection and its share of every table included.
const IDLE_SESSION: u64 = 1_450;

/// Bytes of heap that a request without a session may take while it is in flight, its connection apart.
const EXCHANGE: i64 = 700;

/// Bytes kept for each 100 bytes of the events of finished calls, with all that is remembered of the calls.
const KEPT_A_HUNDRED: u64 = 210;

/// A session among many, for each 100 bytes of a session among few.
const AMONG_MANY: u64 = 105;

const FEW: u32 = 100;
const MANY: u32 = 15_000;

const INITIALIZE: &str = r#"{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"2025-11-25","capabilities":{},"clientInfo":{"name":"test","version":"0"}}}"#;
const INITIALIZED: &str = r#"{"jsonrpc":"2.0","method":"notifications/initialized"}"#;
const ABOUT: &[u8] =
    br#"{"protocolVersion":"2025-11-25","capabilities":{"tools":{}},"serverInfo":{"name":"test","version":"0"}}"#;

struct Alone;

impl World for Alone {
    fn principal(&self, _: &Head) -> Result<Principal, Unauthorized> {
        Ok(Principal::new(""))
    }

    fn liveness(&self, _: &SessionId, _: u64) -> Liveness {
        Liveness::Ended(Ended::Unknown)
    }

    fn place(&self) -> ShardIndex {
        ShardIndex(0)
    }
}

/// A shard whose sends are written at once, and whose handler answers at once.
struct Server {
    shard: Shard,
    random: u64,
    result: Bytes,
    /// The one that began last.
    session: Option<SessionId>,
    /// Bytes of whole events that were sent.
    sent: u64,
}

impl Server {
    fn new(result: Bytes) -> Self {
        let limits = Limits { log_bytes: 256 << 20, sessions: MANY, connections: MANY, ..Limits::default() };
        let config = Config {
            shard: ShardIndex(0),
            shards: 1,
            boot: Boot(1),
            key: Key::new([3; 16]),
            path: "/mcp".into(),
            limits,
            names: Names::default(),
            finished: Finished::NoContent,
            response: ResponsePolicy::Sse,
            exchanges: true,
            heads: false,
        };
        let (_, writer) = incarnations::table(ShardIndex(0), Boot(1), MANY);
        Self { shard: Shard::new(config, writer, Instant::ORIGIN), random: 0, result, session: None, sent: 0 }
    }

    fn input(&mut self, input: Input<'_>) {
        let mut out = Vec::new();
        let mut random = || {
            self.random += 1;
            self.random.wrapping_mul(0x9e37_79b9_7f4a_7c15)
        };
        self.shard.handle(input, Instant::ORIGIN, &mut random, &Alone, &mut out);
        for output in out {
            match output {
                Output::Send { conn, slices } => {
                    let sent = String::from_utf8(slices.concat()).expect("text");
                    let events = sent.split_inclusive("\n\n").filter(|event| event.contains(r#""result""#));
                    self.sent += events.filter_map(|event| Some(event.len() - event.find("id: ")?)).sum::<usize>() as u64;
                    let bytes = sent.len();
                    drop((slices, sent));
                    self.input(Input::Sent { conn, bytes });
                }
                Output::Deliver { session, delivery: Delivery::Initialize { call, .. } } => {
                    self.session = Some(session);
                    self.input(Input::Emitted {
                        session,
                        emission: Emission::Result { call, result: Bytes::from_static(ABOUT) },
                    });
                }
                Output::Deliver { session, delivery: Delivery::Request { call, .. } } => {
                    let result = self.result.clone();
                    self.input(Input::Emitted { session, emission: Emission::Result { call, result } });
                }
                Output::Close { .. } | Output::Handoff { .. } | Output::Post { .. } => panic!("{output:?}"),
                Output::Deliver { .. } | Output::Took(_) | Output::Read { .. } | Output::WakeAt(_) | Output::Drained => {}
            }
        }
    }

    fn ask(&mut self, conn: ConnId, method: &str, session: Option<SessionId>, body: &str) {
        let session = session.map_or(String::new(), |session| format!("Mcp-Session-Id: {}\r\n", session.encode().as_str()));
        let head = "Host: localhost\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n";
        let request = format!("{method} /mcp HTTP/1.1\r\n{head}{session}Content-Length: {}\r\n\r\n{body}", body.len());
        self.input(Input::Received { conn, bytes: request.as_bytes() });
    }

    /// Begins a session on a connection.
    fn begin(&mut self, conn: ConnId) -> SessionId {
        self.input(Input::Opened { conn });
        self.ask(conn, "POST", None, INITIALIZE);
        let session = self.session.take().expect("a session");
        self.ask(conn, "POST", Some(session), INITIALIZED);
        session
    }
}

/// Bytes that each of so many attached idle sessions costs.
fn idle(sessions: u32) -> u64 {
    let mut server = Server::new(Bytes::new());
    let grown = measure(|| {
        for conn in (0..sessions).map(ConnId) {
            let session = server.begin(conn);
            server.ask(conn, "GET", Some(session), "");
        }
    });
    let attached = server.shard.sessions().filter(|session| session.connections == 1).count();
    assert_eq!(attached, sessions as usize);
    u64::try_from(grown.bytes_current).expect("they cost something") / u64::from(sessions)
}

#[test]
fn an_attached_idle_session_is_small_and_as_small_among_many() {
    let (few, many) = (idle(FEW), idle(MANY));
    println!("an attached idle session: {few} bytes among {FEW}, {many} among {MANY}");
    assert!(few.max(many) <= IDLE_SESSION);
    assert!(many * 100 <= few * AMONG_MANY);
}

#[test]
fn a_request_without_a_session_costs_less_than_one_and_leaves_nothing() {
    const META: &str =
        r#"{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
    let mut server = Server::new(Bytes::new());
    let conns = || (0..FEW * 10).map(ConnId);
    conns().for_each(|conn| server.input(Input::Opened { conn }));
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"t","_meta":{META}}}}}"#);
    let head = "Host: localhost\r\nAccept: application/json, text/event-stream\r\nContent-Type: application/json\r\n\
                MCP-Protocol-Version: 2026-07-28\r\nMcp-Method: tools/call\r\nMcp-Name: t\r\n";
    let request = format!("POST /mcp HTTP/1.1\r\n{head}Content-Length: {}\r\n\r\n{body}", body.len());
    let ask = |server: &mut Server| {
        measure(|| conns().for_each(|conn| server.input(Input::Received { conn, bytes: request.as_bytes() }))).bytes_current
    };
    let close = |server: &mut Server| {
        measure(|| {
            conns().for_each(|conn| server.input(Input::Closed { conn }));
            conns().for_each(|conn| server.input(Input::Opened { conn }));
        })
        .bytes_current
    };
    // As often before as it takes for every slot to have had its turn, so that the tables have their size. The handler never answers.
    for _ in 0..=MANY / (FEW * 10) {
        ask(&mut server);
        close(&mut server);
    }
    let (grown, given_back) = (ask(&mut server), -close(&mut server));
    let each = grown / i64::from(FEW * 10);
    println!("a request without a session in flight: {each} bytes; of {grown}, {given_back} came back");
    assert!(each <= EXCHANGE);
    assert!(given_back >= grown, "of {grown} bytes {given_back} came back");
}

#[test]
fn four_finished_calls_cost_little_more_than_their_bytes() {
    let text = "x".repeat(190);
    let mut server = Server::new(format!(r#"{{"content":[{{"type":"text","text":"{text}"}}]}}"#).into());
    let sessions: Vec<_> =
        (0..MANY).map(|_| (server.input(Input::Closed { conn: ConnId(0) }), server.begin(ConnId(0))).1).collect();
    server.sent = 0;
    let grown = measure(|| {
        for session in sessions {
            for id in 1..=4 {
                let call = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"tools/call","params":{{"name":"echo"}}}}"#);
                server.ask(ConnId(0), "POST", Some(session), &call);
            }
        }
    });
    let (kept, bytes) = (u64::try_from(grown.bytes_current).expect("they cost something"), server.sent);
    println!("{kept} bytes for {bytes} bytes of events, {} a call", bytes / u64::from(4 * MANY));
    assert!((250..350).contains(&(bytes / u64::from(4 * MANY))));
    assert!(kept * 100 <= bytes * KEPT_A_HUNDRED);
}
