//! A server under measurement: started on the processors that it may use, asked what it costs, ended by its own number.
//!
//! Never talks to it.

use std::fs;
use std::io::{self, BufRead, BufReader};
use std::net::SocketAddr;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use rustix::param::clock_ticks_per_second;
use rustix::process::{Pid, Signal, kill_process};
use rustix::thread::{CpuSet, sched_setaffinity};

/// A running server.
pub(crate) struct Process {
    child: Child,
    /// Where it listens.
    pub(crate) address: SocketAddr,
}

impl Process {
    /// Starts a program that says where it listens on the first line of its stdout: an address in a URL, or only a port.
    pub(crate) fn start(program: &Path, arguments: &[&str], processors: &[usize]) -> io::Result<Self> {
        // A child begins on the processors of the thread that starts it.
        pin(processors)?;
        let started =
            Command::new(program).args(arguments).stdout(Stdio::piped()).stderr(Stdio::null()).stdin(Stdio::null()).spawn();
        pin(&[LOAD])?;
        let mut child = started.map_err(|error| io::Error::other(format!("{}: {error}", program.display())))?;
        let stdout = child.stdout.take().ok_or(io::ErrorKind::BrokenPipe)?;
        let mut line = String::new();
        BufReader::new(stdout).read_line(&mut line)?;
        let url = line.split_once("http://").and_then(|(_, rest)| rest.trim().split('/').next()?.parse().ok());
        let port = || line.trim().parse().ok().map(|port| SocketAddr::from(([127, 0, 0, 1], port)));
        let address = url.or_else(port);
        match address {
            Some(address) => Ok(Self { child, address }),
            None => Err(io::Error::other(format!("{} printed no address: {line:?}", program.display()))),
        }
    }

    /// Processor time that all its threads had so far.
    pub(crate) fn cpu(&self) -> io::Result<Duration> {
        let folder = format!("/proc/{}", self.child.id());
        let mut alive = 0;
        for task in fs::read_dir(format!("{folder}/task"))? {
            // A thread may end between the two.
            let stat = fs::read_to_string(task?.path().join("schedstat")).unwrap_or_default();
            alive += stat.split(' ').next().and_then(|time| time.parse::<u64>().ok()).unwrap_or(0);
        }
        // Coarse, but with the threads that ended.
        let stat = fs::read_to_string(format!("{folder}/stat"))?;
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
        let ticks: u64 = fields.skip(11).take(2).filter_map(|ticks| ticks.parse::<u64>().ok()).sum();
        let all = Duration::from_secs_f64(ticks as f64 / clock_ticks_per_second() as f64);
        Ok(all.max(Duration::from_nanos(alive)))
    }

    /// Memory of its own that it has written to, in bytes.
    pub(crate) fn memory(&self) -> io::Result<u64> {
        kib(&format!("/proc/{}/smaps_rollup", self.child.id()), "Anonymous:")
    }
}

/// Memory in small objects of the kernel's own that are in use, sockets among them, of the whole machine: in bytes. (`Slab:` of
/// `/proc/meminfo` has the pages instead, in which there is room from runs before: that is what is left where we are not root.)
pub(crate) fn slab() -> io::Result<u64> {
    let text = match fs::read_to_string("/proc/slabinfo") {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => return kib("/proc/meminfo", "Slab:"),
        read => read?,
    };
    // slabinfo(5): name, active_objs, num_objs, objsize.
    let used = text.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1).map(|field| field.parse::<u64>().ok());
        let (active, _, size) = (fields.next()??, fields.next()??, fields.next()??);
        Some(active * size)
    });
    Ok(used.sum())
}

/// Bytes of a line that gives KiB.
fn kib(file: &str, name: &str) -> io::Result<u64> {
    let text = fs::read_to_string(file)?;
    let line = text.lines().find(|line| line.starts_with(name)).ok_or(io::ErrorKind::InvalidData)?;
    let kib = line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).ok_or(io::ErrorKind::InvalidData)?;
    Ok(kib << 10)
}

impl Drop for Process {
    fn drop(&mut self) {
        // What it did was measured; how it ends was not asked.
        let _ = kill_process(Pid::from_child(&self.child), Signal::KILL);
        let _ = self.child.wait();
    }
}

/// The processor of the load.
pub(crate) const LOAD: usize = 1;
/// The processor of a server with one shard.
pub(crate) const SERVER: usize = 0;

/// Puts this thread, and what it starts from here on, on these processors.
pub(crate) fn pin(processors: &[usize]) -> io::Result<()> {
    let mut set = CpuSet::new();
    for &processor in processors {
        set.set(processor);
    }
    Ok(sched_setaffinity(None, &set)?)
}
