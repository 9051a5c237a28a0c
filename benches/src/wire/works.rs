//! The works that are measured: each says what one unit costs a server.
//!
//! Never compares: that is `main`'s.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use serde_json::json;

use crate::load::{Connection, Session, first_id, get};
use crate::process::{LOAD, Process, SERVER, pin};

/// Connections of the load that work at once.
const THREADS: usize = 8;
/// Sessions that reconnects are spread over.
const SESSIONS: usize = 64;
/// Bytes of an event's frame.
const FRAME: usize = 200;
/// Bytes that one reconnect is replayed.
const REPLAY: usize = 2_000;

/// What a run is made of: programs, and how much of each work is done.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    pub(crate) rejoin: PathBuf,
    pub(crate) peer: PathBuf,
    /// A thousandth for a smoke run, 1 for a whole one.
    pub(crate) scale: f64,
}

/// One measurement: smaller is better.
pub(crate) type Cost = io::Result<f64>;

impl Setting {
    fn times(&self, whole: usize) -> usize {
        ((whole as f64 * self.scale) as usize).max(THREADS)
    }

    fn rejoin(&self, options: &[&str], shards: usize) -> io::Result<Process> {
        let count = shards.to_string();
        let mut arguments =
            vec!["serve", "--listen", "127.0.0.1:0", "--max-sessions", "20000", "--max-connections", "20000", "--shards", &count];
        arguments.extend_from_slice(options);
        let processors = if shards == 1 { vec![SERVER] } else { vec![SERVER, LOAD] };
        Process::start(&self.rejoin, &arguments, &processors)
    }

    fn peer(&self, kind: &str) -> io::Result<Process> {
        Process::start(&self.peer, &[kind], &[SERVER])
    }
}

/// Processor time of the server per unit of some work, in nanoseconds.
fn cpu(server: &Process, units: usize, work: impl FnOnce() -> io::Result<()>) -> Cost {
    let before = server.cpu()?;
    work()?;
    Ok((server.cpu()?.saturating_sub(before)).as_nanos() as f64 / units as f64)
}

/// Does something on each of a few threads, whose numbers it is given.
fn threads(work: impl Fn(usize) -> io::Result<()> + Sync) -> io::Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let running: Vec<_> = (0..THREADS)
            .map(|number| {
                scope.spawn(move || {
                    pin(&[LOAD])?;
                    work(number)
                })
            })
            .collect();
        running.into_iter().try_for_each(|thread| thread.join().map_err(|_| io::Error::other("a thread of the load panicked"))?)
    })
}

/// Sends each of these requests on a connection of its own, reads the answer and closes; so many times.
fn cycles(address: SocketAddr, requests: &[Vec<u8>], times: usize) -> io::Result<()> {
    threads(|number| {
        for turn in 0..times / THREADS {
            let request = &requests[(turn * THREADS + number) % requests.len()];
            let mut connection = Connection::open(address)?;
            let head = connection.ask(request, "200")?;
            connection.drain(&head)?;
        }
        Ok(())
    })
}

/// Payload of a `ticker` event whose frame has about so many bytes.
fn payload(address: SocketAddr, frame: usize) -> io::Result<usize> {
    let count = 100;
    let bare = Session::begin(address)?.answer(1, "ticker", json!({ "count": count, "interval_ms": 0, "payload_bytes": 0 }))?;
    Ok(frame.saturating_sub(bare.len() / count))
}

/// Finished streams, one a session, of so many events of so many bytes; a request that resumes each at its beginning.
fn streams(server: &Process, sessions: usize, events: usize, frame: usize) -> io::Result<Vec<Vec<u8>>> {
    let payload = payload(server.address, frame)?;
    let arguments = json!({ "count": events, "interval_ms": 0, "payload_bytes": payload });
    (0..sessions)
        .map(|_| {
            let session = Session::begin(server.address)?;
            let stream = session.answer(1, "ticker", arguments.clone())?;
            Ok(session.resume(first_id(&stream)?))
        })
        .collect()
}

// ---- reconnect ----

/// A reconnect cycle with the whole kernel in the path, among so many sessions.
pub(crate) fn reconnect(setting: &Setting, sessions: usize, shards: usize) -> Cost {
    let server = setting.rejoin(&[], shards)?;
    // An event and the result.
    let requests = streams(&server, sessions, 1, REPLAY - 300)?;
    let times = setting.times(20_000);
    cycles(server.address, &requests, times / 10)?;
    cpu(&server, times, || cycles(server.address, &requests, times))
}

pub(crate) fn reconnect_here(setting: &Setting) -> Cost {
    reconnect(setting, SESSIONS, 1)
}

/// The same cycle, with an answer of as many bytes that needs no thought.
pub(crate) fn reconnect_axum(setting: &Setting) -> Cost {
    let server = setting.peer("axum")?;
    let requests = [get(
        &format!("/fixed/{REPLAY}"),
        "Mcp-Session-Id: 00000000000000000000000000000000\r\nLast-Event-ID: 1.1.1.0000000000000000\r\n",
    )];
    let times = setting.times(20_000);
    cycles(server.address, &requests, times / 10)?;
    cpu(&server, times, || cycles(server.address, &requests, times))
}

// ---- replay ----

/// How the bytes of a replay are paid: by time, or by the server's processor time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Paid {
    Time,
    Cpu,
}

/// Has each of these requests answered at once, a thread each, over and over; nanoseconds a byte.
fn replays(server: &Process, requests: &[Vec<u8>], rounds: usize, paid: Paid) -> Cost {
    let (before, began) = (server.cpu()?, Instant::now());
    let bytes = thread::scope(|scope| {
        let running: Vec<_> = requests
            .iter()
            .map(|request| {
                scope.spawn(move || {
                    pin(&[LOAD])?;
                    let mut bytes = 0;
                    for _ in 0..rounds {
                        let mut connection = Connection::wide(server.address)?;
                        let head = connection.ask(request, "200")?;
                        bytes += connection.drain(&head)?;
                    }
                    io::Result::Ok(bytes)
                })
            })
            .collect();
        let joined =
            running.into_iter().map(|thread| thread.join().map_err(|_| io::Error::other("a thread of the load panicked"))?);
        joined.sum::<io::Result<usize>>()
    })?;
    let cost = match paid {
        Paid::Time => began.elapsed(),
        Paid::Cpu => server.cpu()?.saturating_sub(before),
    };
    Ok(cost.as_nanos() as f64 / bytes as f64)
}

/// Bytes of all logs that are replayed.
fn log_bytes(setting: &Setting) -> usize {
    ((64 << 20) as f64 * setting.scale.max(0.01)) as usize
}

pub(crate) fn replay(setting: &Setting, clients: usize, paid: Paid) -> Cost {
    let server = setting.rejoin(&["--log-memory", "160MiB", "--stream-events", "1000000"], 1)?;
    let requests = streams(&server, clients, log_bytes(setting) / clients / FRAME, FRAME)?;
    replays(&server, &requests, 4, paid)
}

pub(crate) fn replay_blocking(setting: &Setting, clients: usize) -> Cost {
    let server = setting.peer("blocking")?;
    replays(&server, &vec![get(&format!("/{}", log_bytes(setting) / clients), ""); clients], 4, Paid::Time)
}

pub(crate) fn replay_axum(setting: &Setting, clients: usize) -> Cost {
    let server = setting.peer("axum")?;
    replays(&server, &vec![get(&format!("/sse/{}", log_bytes(setting) / clients / FRAME), ""); clients], 1, Paid::Cpu)
}

// ---- calls ----

/// `echo` on kept-alive connections, a session each.
fn echoes(setting: &Setting, server: &Process) -> Cost {
    let times = setting.times(20_000);
    let sessions: Vec<_> = (0..THREADS).map(|_| Session::begin(server.address)).collect::<io::Result<_>>()?;
    let calls = |first: usize, times: usize| {
        threads(|number| {
            let mut connection = Connection::open(server.address)?;
            for turn in 0..times / THREADS {
                let request = sessions[number].call((first + turn) as u64, "echo", json!({ "text": "hello" }));
                let head = connection.ask(&request, "200")?;
                connection.drain(&head)?;
            }
            Ok(())
        })
    };
    calls(1, times / 10)?;
    cpu(server, times, || calls(1 + times, times))
}

pub(crate) fn call(setting: &Setting, shards: usize) -> Cost {
    echoes(setting, &setting.rejoin(&[], shards)?)
}

pub(crate) fn call_rmcp(setting: &Setting) -> Cost {
    echoes(setting, &setting.peer("rmcp")?)
}

// ---- memory and idle streams ----

/// Opens a connection for each of these requests, which stays on its stream.
fn attach(address: SocketAddr, requests: &[Vec<u8>]) -> io::Result<Vec<TcpStream>> {
    let attached = requests.iter().map(|request| {
        let mut connection = Connection::open(address)?;
        connection.ask(request, "200")?;
        Ok(connection.into_socket())
    });
    attached.collect()
}

/// Bytes that a server's memory grows by, for each of these units.
fn growth(server: &Process, units: usize, work: impl FnOnce() -> io::Result<Vec<TcpStream>>) -> Cost {
    let before = server.memory()?;
    let held = work()?;
    thread::sleep(Duration::from_millis(500));
    let after = server.memory()?;
    drop(held);
    Ok(after.saturating_sub(before) as f64 / units as f64)
}

/// Bytes an attached idle session.
pub(crate) fn idle(setting: &Setting) -> Cost {
    let (server, count) = (setting.rejoin(&[], 1)?, setting.times(5_000));
    growth(&server, count, || {
        let sessions: Vec<_> = (0..count).map(|_| Session::begin(server.address)).collect::<io::Result<_>>()?;
        attach(server.address, &sessions.iter().map(Session::listen).collect::<Vec<_>>())
    })
}

/// Bytes an idle stream.
pub(crate) fn idle_axum(setting: &Setting) -> Cost {
    let (server, count) = (setting.peer("axum")?, setting.times(5_000));
    growth(&server, count, || attach(server.address, &vec![get("/idle", ""); count]))
}

/// Finished calls a session whose results are retained, and the bytes of each.
const CALLS: usize = 4;
const CALL_BYTES: usize = 300;

/// How many bytes are kept for each byte of a finished call's events.
pub(crate) fn retained(setting: &Setting) -> Cost {
    let count = setting.times(15_000);
    let server = setting.rejoin(&["--response", "sse", "--log-memory", "256MiB"], 1)?;
    let sessions: Vec<_> = (0..count).map(|_| Session::begin(server.address)).collect::<io::Result<_>>()?;
    let text = "x".repeat(CALL_BYTES - 90);
    let mut bytes = 0;
    let grown = growth(&server, 1, || {
        let mut connection = Connection::open(server.address)?;
        for session in &sessions {
            for id in 1..=CALLS as u64 {
                let head = connection.ask(&session.call(id, "echo", json!({ "text": text })), "200")?;
                let body = connection.body(&head)?;
                // The opening event is not kept.
                bytes += body.split("\n\n").filter(|block| block.contains("jsonrpc")).map(|block| block.len() + 2).sum::<usize>();
            }
        }
        Ok(Vec::new())
    })?;
    Ok(grown / bytes as f64)
}

/// Processor time of one event to one of many streams that get one each second.
fn ticking(setting: &Setting, server: &Process, requests: &[Vec<u8>]) -> Cost {
    let seconds = if setting.scale < 1.0 { 1 } else { 10 };
    let held = attach(server.address, requests)?;
    thread::sleep(Duration::from_secs(1));
    let cost = cpu(server, requests.len() * seconds, || {
        // Nobody reads: what comes is far less than what a socket takes.
        thread::sleep(Duration::from_secs(seconds as u64));
        Ok(())
    });
    drop(held);
    cost
}

pub(crate) fn tick(setting: &Setting) -> Cost {
    let (server, count) = (setting.rejoin(&[], 1)?, setting.times(10_000));
    let arguments = json!({ "count": 60, "interval_ms": 1000, "payload_bytes": 60 });
    let sessions: Vec<_> = (0..count).map(|_| Session::begin(server.address)).collect::<io::Result<_>>()?;
    ticking(setting, &server, &sessions.iter().map(|session| session.call(1, "ticker", arguments.clone())).collect::<Vec<_>>())
}

pub(crate) fn tick_axum(setting: &Setting) -> Cost {
    let (server, count) = (setting.peer("axum")?, setting.times(10_000));
    ticking(setting, &server, &vec![get("/tick", ""); count])
}
