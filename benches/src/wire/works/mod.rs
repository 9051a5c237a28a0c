//! The works that are measured: each says what one unit costs a server, and how busy both sides were meanwhile.
//!
//! Never compares: that is `main`'s.

mod calls;
mod memory;
mod reconnect;
mod replay;
mod streams;

use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::{Duration, Instant};

use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};

pub(crate) use calls::{Beside, call, call_among, call_bare, call_p99, call_rmcp, ready};
pub(crate) use memory::{idle, idle_axum, idle_of, kernel, kernel_axum, retained};
pub(crate) use reconnect::{Sdk, among, axum, bare, here, resumed_byte, resumes};
pub(crate) use replay::{Paid, replay, replay_axum, replay_blocking};
pub(crate) use streams::{keep_alive, tick, tick_axum};

use crate::load::{Session, first_id};
use crate::process::{LOAD, Process, SERVER, pin};

/// Connections of the load that work at once.
const THREADS: usize = 8;
/// Sessions that the load is spread over.
const SESSIONS: usize = 64;
/// Bytes of an event's frame.
const FRAME: usize = 200;

/// What a run is made of: programs, and how much of each work is done.
#[derive(Clone, Debug)]
pub(crate) struct Setting {
    /// Folder of our own programs.
    pub(crate) programs: PathBuf,
    /// A thousandth for a smoke run, 1 for a whole one.
    pub(crate) scale: f64,
}

/// One measurement: a cost, so that less is better.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    pub(crate) cost: f64,
    /// Known where the work is done in time, rather than held in memory.
    pub(crate) busy: Option<Busy>,
}

pub(crate) type Measured = io::Result<Sample>;

impl Sample {
    fn of(cost: f64) -> Self {
        Self { cost, busy: None }
    }
}

/// Parts of the time of one run in which the server, and the load, had a processor.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Busy {
    server: f64,
    load: f64,
}

impl fmt::Display for Busy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.0}/{:.0}", self.server * 100.0, self.load * 100.0)
    }
}

impl Setting {
    pub(crate) fn is_smoke(&self) -> bool {
        self.scale < 1.0
    }

    /// So many units of work in a whole run; fewer in a smoke run.
    fn times(&self, whole: usize) -> usize {
        ((whole as f64 * self.scale) as usize).max(THREADS)
    }

    /// Our own server.
    fn rejoin(&self, options: &[&str], shards: usize) -> io::Result<Process> {
        let count = shards.to_string();
        let mut arguments =
            vec!["serve", "--listen", "127.0.0.1:0", "--max-sessions", "20000", "--max-connections", "20000", "--shards", &count];
        arguments.extend_from_slice(options);
        let processors = if shards == 1 { vec![SERVER] } else { vec![SERVER, LOAD] };
        Process::start(&self.programs.join("rejoin"), &arguments, &processors)
    }

    /// One of our own small peers.
    fn peer(&self, kind: &str) -> io::Result<Process> {
        Process::start(&self.programs.join("peer"), &[kind], &[SERVER])
    }

    /// One of them that is told a number: the bytes that `bare` answers with, the messages that `rmcp` holds of a stream.
    fn peer_with(&self, kind: &str, number: usize) -> io::Result<Process> {
        Process::start(&self.programs.join("peer"), &[kind, &number.to_string()], &[SERVER])
    }

    /// A program of the repository, as scripts/test installs it.
    fn installed(program: &str, script: &str) -> io::Result<Process> {
        let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
        // A name without a folder is one of the path.
        let program = if program.contains('/') { root.join(program) } else { program.into() };
        let script = root.join(script).to_string_lossy().into_owned();
        Process::start(&program, &[&script], &[SERVER])
            .map_err(|error| io::Error::other(format!("{error} (scripts/test install, and its PATH)")))
    }
}

/// Meters of a server and of ourselves, read at the beginning.
struct Meters<'a> {
    server: &'a Process,
    cpu: Duration,
    load: Duration,
    began: Instant,
}

/// Processor time of all our threads, also of those that ended.
fn load_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or_default())
}

impl<'a> Meters<'a> {
    fn read(server: &'a Process) -> io::Result<Self> {
        Ok(Self { server, cpu: server.cpu()?, load: load_cpu(), began: Instant::now() })
    }

    /// Processor time of the server, and time, since the beginning.
    fn since(&self) -> io::Result<(Duration, Duration, Busy)> {
        let time = self.began.elapsed();
        let cpu = self.server.cpu()?.saturating_sub(self.cpu);
        let load = load_cpu().saturating_sub(self.load);
        let part = |of: Duration| of.as_secs_f64() / time.as_secs_f64();
        Ok((cpu, time, Busy { server: part(cpu), load: part(load) }))
    }
}

/// Processor time of the server per unit of some work, in nanoseconds.
fn cpu(server: &Process, units: usize, work: impl FnOnce() -> io::Result<()>) -> Measured {
    let meters = Meters::read(server)?;
    work()?;
    let (cpu, _, busy) = meters.since()?;
    Ok(Sample { cost: cpu.as_nanos() as f64 / units as f64, busy: Some(busy) })
}

/// Does something on so many threads of the load, whose numbers it is given, and collects what they say.
fn threads<T: Send>(count: usize, work: impl Fn(usize) -> io::Result<T> + Sync) -> io::Result<Vec<T>> {
    thread::scope(|scope| {
        let work = &work;
        let run = move |number| {
            pin(&[LOAD])?;
            work(number)
        };
        let running: Vec<_> = (0..count).map(|number| scope.spawn(move || run(number))).collect();
        running.into_iter().map(|thread| thread.join().map_err(|_| io::Error::other("a thread of the load panicked"))?).collect()
    })
}

/// So many new sessions.
fn sessions(address: SocketAddr, count: usize) -> io::Result<Vec<Session>> {
    (0..count).map(|_| Session::begin(address)).collect()
}

fn ticker(events: usize, payload: usize) -> Value {
    json!({ "count": events, "interval_ms": 0, "payload_bytes": payload })
}

/// Payload of a `ticker` event whose frame has about so many bytes.
fn payload(address: SocketAddr, frame: usize) -> io::Result<usize> {
    let count = 100;
    let bare = Session::begin(address)?.answer(1, "ticker", ticker(count, 0))?;
    Ok(frame.saturating_sub(bare.len() / count))
}

/// Finished streams, one a session, of so many events of so many bytes; a request that resumes each at its beginning.
fn finished(server: &Process, sessions: usize, events: usize, frame: usize) -> io::Result<Vec<Vec<u8>>> {
    let payload = payload(server.address, frame)?;
    (0..sessions)
        .map(|_| {
            let session = Session::begin(server.address)?;
            let stream = session.answer(1, "ticker", ticker(events, payload))?;
            Ok(session.resume(first_id(&stream)?))
        })
        .collect()
}
