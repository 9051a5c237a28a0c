//! The reconnect cycle: connect, GET with session and cursor, verdict, about 2,000 bytes of replay, close.

use std::io;
use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::{Measured, Meters, SESSIONS, Sample, Setting, THREADS, cpu, finished, threads};
use crate::load::{Connection, Session, get};
use crate::process::Process;

/// Bytes that one reconnect is replayed.
const REPLAY: usize = 2_000;
/// Cycles of one run, where the server is quick.
const TIMES: usize = 20_000;

/// Sends each of these requests on a connection of its own, reads the answer and closes; so many times.
fn cycles(address: SocketAddr, requests: &[Vec<u8>], times: usize) -> io::Result<()> {
    threads(THREADS, |number| {
        for turn in 0..times / THREADS {
            let mut connection = Connection::open(address)?;
            let head = connection.ask(request(requests, number, turn), "200")?;
            connection.drain(&head)?;
        }
        Ok(())
    })
    .map(drop)
}

/// A request of a thread's own share of them: no session has two connections at once.
fn request(requests: &[Vec<u8>], number: usize, turn: usize) -> &[u8] {
    &requests[(turn * THREADS + number) % requests.len()]
}

/// Costs a cycle, after a tenth of them to warm up.
fn measured(setting: &Setting, server: &Process, requests: &[Vec<u8>]) -> Measured {
    let times = setting.times(TIMES);
    cycles(server.address, requests, times / 10)?;
    cpu(server, times / THREADS * THREADS, || cycles(server.address, requests, times))
}

/// With the whole kernel in the path, among so many sessions.
pub(crate) fn among(setting: &Setting, sessions: usize, shards: usize) -> Measured {
    let server = setting.rejoin(&[], shards)?;
    // An event and the result.
    let requests = finished(&server, sessions, 1, REPLAY - 300)?;
    measured(setting, &server, &requests)
}

pub(crate) fn here(setting: &Setting) -> Measured {
    among(setting, SESSIONS, 1)
}

/// The same cycle, with an answer of as many bytes that needs no thought.
pub(crate) fn axum(setting: &Setting) -> Measured {
    let server = setting.peer("axum")?;
    let fields = "Mcp-Session-Id: 00000000000000000000000000000000\r\nLast-Event-ID: 1.1.1.0000000000000000\r\n";
    measured(setting, &server, &[get(server.address, &format!("/fixed/{REPLAY}"), fields)])
}

/// What a cycle costs where nothing but its system calls is done.
pub(crate) fn bare(setting: &Setting) -> Measured {
    let server = setting.peer_with("bare", REPLAY)?;
    measured(setting, &server, &[get(server.address, "/", "")])
}

/// Who resumes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Sdk {
    Rejoin,
    /// rmcp's own session manager on axum.
    Rmcp,
    /// The TypeScript SDK's server with an event store in memory.
    Typescript,
    /// The Python SDK's, likewise, on uvicorn.
    Python,
}

impl Sdk {
    pub(crate) fn start(self, setting: &Setting) -> io::Result<Process> {
        match self {
            Self::Rejoin => setting.rejoin(&["--response", "sse"], 1),
            Self::Rmcp => setting.peer("rmcp"),
            Self::Typescript => Setting::installed("node", "tests/clients/typescript/server.mjs"),
            Self::Python => Setting::installed("target/clients/python/bin/python", "tests/clients/python/server.py"),
        }
    }

    /// With room for so many events of one stream, where that is less by default.
    fn start_for(self, setting: &Setting, events: usize) -> io::Result<Process> {
        match self {
            Self::Rejoin => setting.rejoin(&["--response", "sse", "--stream-events", &(events * 2).to_string()], 1),
            Self::Rmcp => setting.peer_with("rmcp", events * 2),
            Self::Typescript | Self::Python => self.start(setting),
        }
    }

    /// The tool that is called, and what a client that resumes has seen last. rmcp 3.11 answers the resumption of a finished call with an
    /// empty stream, so its call is one that has said all its progress and has not finished.
    fn call(self, progress: usize) -> (&'static str, Vec<u8>) {
        match self {
            Self::Rmcp => ("paused", format!("\"progress\":{progress}").into_bytes()),
            Self::Rejoin | Self::Typescript | Self::Python => ("ticker", b"\"result\"".to_vec()),
        }
    }

    /// Cycles that take seconds and not minutes.
    fn times(self) -> usize {
        match self {
            Self::Rejoin => TIMES,
            Self::Rmcp => TIMES / 4,
            Self::Typescript => TIMES / 10,
            Self::Python => TIMES / 40,
        }
    }
}

/// Progress notifications of the call that is resumed, beside its result; their token makes it about 2,000 bytes.
const PROGRESS: usize = 8;
const TOKEN: usize = 80;

/// How long the call takes between two of them: longer than its client needs to go away.
const INTERVAL: Duration = Duration::from_millis(20);

/// Real resumes: of calls whose clients were cut off after the first event, and which have finished since, until the last event comes. Some
/// servers keep the connection after that, so it is the client that closes.
pub(crate) fn resumes(setting: &Setting, sdk: Sdk) -> Measured {
    let server = sdk.start(setting)?;
    let (tool, last) = sdk.call(PROGRESS);
    let arguments = json!({ "count": PROGRESS, "interval_ms": INTERVAL.as_millis() as u64, "key": "wire" });
    let requests: Vec<_> = (0..SESSIONS)
        .map(|number| {
            let session = Session::begin(server.address)?;
            let meta = json!({ "progressToken": format!("{number:0>TOKEN$}") });
            // One store serves all sessions of some of them, so no two calls have the same id.
            let cursor =
                session.begin_call(1 + number as u64, &json!({ "name": tool, "arguments": arguments, "_meta": meta }))?;
            Ok(session.resume(&cursor))
        })
        .collect::<io::Result<_>>()?;
    thread::sleep(INTERVAL * 4 * PROGRESS as u32);
    let times = setting.times(sdk.times());
    let resume = |times| {
        threads(THREADS, |number| {
            for turn in 0..times / THREADS {
                let mut connection = Connection::open(server.address)?;
                connection.ask(request(&requests, number, turn), "200")?;
                let seen = connection.until(&last)?;
                // The first of them may have been the event that was seen.
                let seen = String::from_utf8_lossy(&seen);
                if seen.matches("notifications/progress").count() < PROGRESS - 1 {
                    return Err(io::Error::other(format!("events are missing: {seen}")));
                }
                connection.until(b"\n")?;
            }
            Ok(())
        })
        .map(drop)
    };
    resume(times / 10)?;
    cpu(&server, times / THREADS * THREADS, || resume(times))
}

/// Progress notifications of the call that is replayed whole, the bytes of each one's message, and how often.
const REPLAYED: usize = 4_000;
const MESSAGE: usize = 100;
const REPLAYS: usize = 10;

/// Nanoseconds a byte of the replay of one long call to one client, from the connection to the last event.
pub(crate) fn resumed_byte(setting: &Setting, sdk: Sdk) -> Measured {
    let events = setting.times(REPLAYED);
    let server = sdk.start_for(setting, events)?;
    let (tool, last) = sdk.call(events);
    let arguments = json!({ "count": events, "interval_ms": 0, "payload_bytes": MESSAGE, "key": "wire" });
    let session = Session::begin(server.address)?;
    let params = json!({ "name": tool, "arguments": arguments, "_meta": { "progressToken": "wire" } });
    let request = session.resume(&session.begin_call(1, &params)?);
    // The call may still run: this one waits for its end, and tells how many bytes it is.
    let mut connection = Connection::wide(server.address)?;
    connection.ask(&request, "200")?;
    let whole = connection.until(&last)?.len();
    let meters = Meters::read(&server)?;
    for _ in 0..REPLAYS {
        let mut connection = Connection::wide(server.address)?;
        connection.ask(&request, "200")?;
        // What comes is thrown away in the kernel but for its end, so that we are quicker than whoever sends.
        connection.discard_some(whole * 9 / 10)?;
        connection.until(&last)?;
    }
    let (_, time, busy) = meters.since()?;
    Ok(Sample { cost: time.as_nanos() as f64 / (whole * REPLAYS) as f64, busy: Some(busy) })
}
