//! Which driver the shards run on, io_uring or epoll: chosen once, at start, by trying it.
//!
//! A kernel may have io_uring and yet not let us use it: built without it, switched off by a sysctl, or forbidden by a container's
//! seccomp filter, even only `io_uring_enter`, on which monoio's own detection would spin for ever. So the probe takes a ring, a
//! NOP and its completion, within a time limit. Never changes the driver of a running shard.

use std::fmt;
use std::future::Future;
use std::io;
use std::sync::mpsc;
use std::thread;
use std::time::Duration;

use io_uring::types::{SubmitArgs, Timespec};
use io_uring::{IoUring, Probe, opcode};
use monoio::time::TimeDriver;
use monoio::{IoUringDriver, LegacyDriver, RuntimeBuilder};

/// Which driver to use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Driver {
    /// io_uring where the probe succeeds, else epoll.
    #[default]
    Auto,
    /// io_uring, or no start.
    Uring,
    /// epoll.
    Epoll,
}

impl Driver {
    /// The name of the driver that a server which asks for this one would run on here, or why it would not start. Tries it, which takes
    /// as long as a server's start.
    pub fn available(self) -> io::Result<String> {
        choose(self).map(|chosen| chosen.to_string())
    }
}

/// The driver that was chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Chosen {
    /// io_uring.
    Uring {
        /// Completions need not interrupt the thread: it looks at them when it enters the kernel anyway (Linux 5.19).
        coop_taskrun: bool,
    },
    /// epoll.
    Epoll,
}

impl fmt::Display for Chosen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Uring { coop_taskrun: true } => "io_uring (coop_taskrun)",
            Self::Uring { coop_taskrun: false } => "io_uring",
            Self::Epoll => "epoll",
        })
    }
}

/// How long the probe may take.
const PROBE_TIME: Duration = Duration::from_secs(1);

/// Entries of a ring's submission queue: enough for 15,000 parked operations, since each is submitted once. The probe's ring has as
/// many, so that a limit on locked memory shows itself there.
const ENTRIES: u32 = 1_024;

/// Names the NOP in its completion.
const PROBE_NAME: u64 = 0x7265_6a6f;

/// Chooses the driver; says why io_uring is not it.
pub fn choose(wanted: Driver) -> io::Result<Chosen> {
    let probed = match wanted {
        Driver::Epoll => return Ok(Chosen::Epoll),
        Driver::Auto | Driver::Uring => probe(),
    };
    match probed {
        Ok(chosen) => Ok(chosen),
        Err(why) if wanted == Driver::Auto => {
            tracing::info!(%why, "io_uring is not usable here: using epoll");
            Ok(Chosen::Epoll)
        }
        Err(why) => Err(why),
    }
}

/// Tries io_uring on a thread of its own, so that a kernel that hangs or spins cannot take ours.
fn probe() -> io::Result<Chosen> {
    let (tell, told) = mpsc::channel();
    thread::Builder::new().name("rejoin-probe".into()).spawn(move || {
        // The one who asked may have given up.
        let _ = tell.send(try_uring(true).or_else(|_| try_uring(false)));
    })?;
    told.recv_timeout(PROBE_TIME).unwrap_or_else(|_| Err(io::Error::new(io::ErrorKind::TimedOut, "no completion in time")))
}

fn builder(coop_taskrun: bool) -> io_uring::Builder {
    let mut builder = IoUring::builder();
    if coop_taskrun {
        builder.setup_coop_taskrun();
    }
    builder
}

/// A ring, a NOP, its completion, and the operations that a shard uses.
#[expect(unsafe_code, reason = "io-uring has no safe way to push an entry")]
fn try_uring(coop_taskrun: bool) -> io::Result<Chosen> {
    let mut ring = builder(coop_taskrun).build(ENTRIES)?;
    if !ring.params().is_feature_ext_arg() {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel cannot wait with a time limit (before 5.11)"));
    }
    let mut supported = Probe::new();
    ring.submitter().register_probe(&mut supported)?;
    let needed = [opcode::PollAdd::CODE, opcode::AsyncCancel::CODE, opcode::Close::CODE, opcode::Read::CODE];
    if !needed.iter().all(|&code| supported.is_supported(code)) {
        return Err(io::Error::new(io::ErrorKind::Unsupported, "the kernel lacks an operation that we use"));
    }
    let nop = opcode::Nop::new().build().user_data(PROBE_NAME);
    // Needed because an entry may name memory, so that pushing one is unsafe whatever it is.
    // SAFETY: a NOP names no memory and no descriptor.
    unsafe { ring.submission().push(&nop) }.map_err(io::Error::other)?;
    let limit = Timespec::from(PROBE_TIME / 2);
    ring.submitter().submit_with_args(1, &SubmitArgs::new().timespec(&limit))?;
    match ring.completion().next() {
        Some(completed) if completed.user_data() == PROBE_NAME && completed.result() == 0 => Ok(Chosen::Uring { coop_taskrun }),
        _ => Err(io::Error::new(io::ErrorKind::Unsupported, "a NOP did not complete")),
    }
}

/// Builds a runtime on this thread, tells `ready` how that went, and runs `shard` to its end.
pub fn run<F: Future<Output = ()>>(chosen: Chosen, ready: impl FnOnce(io::Result<()>), shard: impl FnOnce() -> F) {
    match chosen {
        Chosen::Uring { coop_taskrun } => {
            let runtime: RuntimeBuilder<TimeDriver<IoUringDriver>> =
                RuntimeBuilder::<IoUringDriver>::new().uring_builder(builder(coop_taskrun)).with_entries(ENTRIES).enable_timer();
            drive(runtime.build(), ready, shard);
        }
        Chosen::Epoll => {
            drive(RuntimeBuilder::<LegacyDriver>::new().enable_timer().build(), ready, shard);
        }
    }
}

fn drive<D: monoio::Driver, F: Future<Output = ()>>(
    runtime: io::Result<monoio::Runtime<D>>,
    ready: impl FnOnce(io::Result<()>),
    shard: impl FnOnce() -> F,
) {
    match runtime {
        Ok(mut runtime) => {
            ready(Ok(()));
            runtime.block_on(shard());
        }
        Err(error) => ready(Err(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_probe_decides_within_its_time() {
        let began = std::time::Instant::now();
        let _ = probe();
        assert!(began.elapsed() < PROBE_TIME * 2);
    }

    #[test]
    fn epoll_needs_no_probe() {
        assert_eq!(choose(Driver::Epoll).expect("epoll"), Chosen::Epoll);
    }

    #[test]
    fn auto_is_uring_exactly_where_the_probe_succeeds() {
        let chosen = choose(Driver::Auto).expect("auto always finds one");
        assert_eq!(matches!(chosen, Chosen::Uring { .. }), choose(Driver::Uring).is_ok());
    }

    /// System calls of io_uring: their numbers are the same on every architecture.
    const SETUP: i64 = 425;
    const ENTER: i64 = 426;
    const REGISTER: i64 = 427;

    /// Runs `work` on a thread where these system calls fail, as a container's filter has them fail.
    fn without<R: Send + 'static>(calls: &[i64], work: impl FnOnce() -> R + Send + 'static) -> R {
        use seccompiler::{BpfProgram, SeccompAction, SeccompFilter, apply_filter};
        const EPERM: u32 = 1;
        let rules = calls.iter().map(|&call| (call, Vec::new())).collect();
        let arch = std::env::consts::ARCH.try_into().expect("an architecture with filters");
        let filter = SeccompFilter::new(rules, SeccompAction::Allow, SeccompAction::Errno(EPERM), arch).expect("a filter");
        let program: BpfProgram = filter.try_into().expect("a program");
        let filtered = move || {
            apply_filter(&program).expect("a filter of our own");
            work()
        };
        thread::spawn(filtered).join().expect("no panic")
    }

    #[test]
    fn where_any_call_of_io_uring_is_forbidden_auto_is_epoll_and_uring_is_refused() {
        for call in [SETUP, ENTER, REGISTER] {
            let began = std::time::Instant::now();
            let (auto, uring) = without(&[call], || (choose(Driver::Auto), choose(Driver::Uring)));
            assert_eq!(auto.expect("auto always finds one"), Chosen::Epoll, "without {call}");
            assert!(uring.is_err(), "without {call}");
            assert!(began.elapsed() < PROBE_TIME * 2, "no spinning without {call}");
        }
    }
}
