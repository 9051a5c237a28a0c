//! `tools/call` on kept-alive connections: what one costs, and how long one takes beside greater work.

use std::io;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use rustix::thread::gettid;
use serde_json::json;

use super::replay::streams;
use super::{FRAME, Measured, Meters, Sample, Setting, THREADS, cpu, finished, sessions, threads};
use crate::load::{Connection, Session, closing, get};
use crate::process::{LOAD, Process, pin};

/// `echo` by one of a few sessions each.
fn echoes(setting: &Setting, server: &Process) -> Measured {
    let sessions = sessions(server.address, THREADS)?;
    asked(setting, server, |connection, number, id| echo(connection, &sessions[number], id))
}

/// So many exchanges on kept-alive connections, each told its connection's number and its own.
fn asked(
    setting: &Setting,
    server: &Process,
    exchange: impl Fn(&mut Connection, usize, usize) -> io::Result<()> + Sync,
) -> Measured {
    let times = setting.times(20_000);
    let calls = |first: usize, times: usize| {
        threads(THREADS, |number| {
            let mut connection = Connection::open(server.address)?;
            for turn in 0..times / THREADS {
                exchange(&mut connection, number, first + turn)?;
            }
            Ok(())
        })
        .map(drop)
    };
    calls(1, times / 10)?;
    cpu(server, times / THREADS * THREADS, || calls(1 + times, times))
}

fn echo(connection: &mut Connection, session: &Session, id: usize) -> io::Result<()> {
    let head = connection.ask(&session.call(id as u64, "echo", json!({ "text": "hello" })), "200")?;
    connection.drain(&head).map(drop)
}

pub(crate) fn call(setting: &Setting, shards: usize) -> Measured {
    echoes(setting, &setting.rejoin(&[], shards)?)
}

/// While so many other sessions live.
pub(crate) fn call_among(setting: &Setting, others: usize) -> Measured {
    let server = setting.rejoin(&[], 1)?;
    sessions(server.address, others)?;
    echoes(setting, &server)
}

pub(crate) fn call_rmcp(setting: &Setting) -> Measured {
    echoes(setting, &setting.peer("rmcp")?)
}

/// What as many bytes each way cost where nothing but the system calls is done.
pub(crate) fn call_bare(setting: &Setting) -> Measured {
    let server = setting.peer_with("bare", BARE_ANSWER)?;
    let request = get(server.address, "/", &format!("X-Rest: {}\r\n", "x".repeat(BARE_REQUEST)));
    asked(setting, &server, |connection, _, _| {
        let head = connection.ask(&request, "200")?;
        connection.drain(&head).map(drop)
    })
}

/// What a small call has beside it.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Beside {
    Nothing,
    /// One client that is replayed gigabytes.
    Replay,
    /// Clients that are replayed a lot and read little of it at a time.
    SlowReaders,
}

/// About what an echo's request and answer have beyond the bare ones.
const BARE_REQUEST: usize = 300;
const BARE_ANSWER: usize = 100;
/// Slow readers, and what each takes at once of its stream.
const SLOW: usize = 100;
const SIP: usize = 4 << 10;
/// Least and most time in which calls are made.
const SMOKE: Duration = Duration::from_millis(50);
const WHOLE: Duration = Duration::from_secs(4);

/// Gives this thread what others leave: it is put aside at once for whoever wakes on its processor. A merely lower priority would keep
/// the processor for a slice of milliseconds, which would be told as the server's.
fn yield_to_all() -> io::Result<()> {
    let thread = gettid().as_raw_nonzero().to_string();
    let done = Command::new("chrt").args(["--idle", "--pid", "0", &thread]).status()?;
    if done.success() { Ok(()) } else { Err(io::Error::other("chrt (util-linux) failed")) }
}

/// The 99th percentile of a call's time, in microseconds. Calls are made one after another, by a thread that never waits for those that
/// read what is beside.
pub(crate) fn call_p99(setting: &Setting, beside: Beside) -> Measured {
    let server = setting.rejoin(&["--log-memory", "256MiB", "--stream-events", "1000000"], 1)?;
    let clients = match beside {
        Beside::Nothing => 0,
        Beside::Replay => 1,
        Beside::SlowReaders => SLOW,
    };
    let (events, _) = streams(setting, clients);
    let requests: Vec<_> = finished(&server, clients, events, FRAME)?.into_iter().map(closing).collect();
    let session = Session::begin(server.address)?;
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let reading = scope.spawn(|| {
            pin(&[LOAD])?;
            yield_to_all()?;
            match beside {
                Beside::Nothing => Ok(()),
                Beside::Replay => greedy(&server, &requests[0], &done),
                Beside::SlowReaders => slow(&server, &requests, &done),
            }
        });
        let meters = Meters::read(&server)?;
        let measured = percentile(&server, &session, if setting.is_smoke() { SMOKE } else { WHOLE });
        done.store(true, Ordering::Relaxed);
        reading.join().map_err(|_| io::Error::other("a thread of the load panicked"))??;
        let (_, _, busy) = meters.since()?;
        Ok(Sample { cost: measured?, busy: Some(busy) })
    })
}

/// A stream, over and over: in the time that calls are made, that is more than a gigabyte.
fn greedy(server: &Process, request: &[u8], done: &AtomicBool) -> io::Result<()> {
    while !done.load(Ordering::Relaxed) {
        let mut connection = Connection::open(server.address)?;
        connection.ask(request, "200")?;
        connection.discard()?;
    }
    Ok(())
}

fn slow(server: &Process, requests: &[Vec<u8>], done: &AtomicBool) -> io::Result<()> {
    let mut readers: Vec<_> = requests
        .iter()
        .map(|request| {
            let mut connection = Connection::open(server.address)?;
            connection.ask(request, "200")?;
            Ok(connection)
        })
        .collect::<io::Result<_>>()?;
    while !done.load(Ordering::Relaxed) {
        for (reader, request) in readers.iter_mut().zip(requests) {
            if reader.sip(SIP)? == 0 {
                *reader = Connection::open(server.address)?;
                reader.ask(request, "200")?;
            }
        }
        thread::sleep(Duration::from_millis(1));
    }
    Ok(())
}

fn percentile(server: &Process, session: &Session, time: Duration) -> io::Result<f64> {
    let mut connection = Connection::open(server.address)?;
    let (began, mut taken) = (Instant::now(), Vec::new());
    for id in 1.. {
        let asked = Instant::now();
        echo(&mut connection, session, id)?;
        taken.push(asked.elapsed());
        if began.elapsed() > time {
            break;
        }
    }
    taken.sort();
    Ok(taken[taken.len() * 99 / 100].as_secs_f64() * 1e6)
}

/// Milliseconds from a start to where it says that it listens.
pub(crate) fn ready(setting: &Setting) -> Measured {
    let began = Instant::now();
    setting.rejoin(&[], 1)?;
    Ok(Sample::of(began.elapsed().as_secs_f64() * 1e3))
}
