//! The gateway: a stdio MCP server as the handler of sessions, one child process a session.
//!
//! Children, their pipes and their ends are the business of one thread with a runtime of its own; a shard's thread only puts messages
//! into a queue and takes answers from its mailbox. Never parses params or results.

mod counts;
mod limits;
mod lines;
mod process;
mod routes;

use std::cell::RefCell;
use std::collections::{HashMap, HashSet};
use std::ffi::OsString;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use enum_map::Enum;
use rejoin::{Call, Cancelled, EmitError, Ended, Handler, Json, Limits, Reply, RpcError, Session, SessionId};
use rustix::process::{Pid, Signal};
use tokio::io::AsyncWriteExt;
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::runtime::Handle;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot, watch};
use tokio::time::{Instant, sleep, timeout};

pub(crate) use counts::register;

use counts::Counts;
use limits::{END_WITHIN, EXIT_FOLLOWS, OUTPUT_AFTER_EXIT, STDERR_LINE, STDERR_LINES, Waiting, backlog};
use lines::{Line, Lines};
use process::Process;
use routes::{Routes, Started};

/// The first descriptor after stdin, stdout and stderr.
const FIRST_GIVEN: i32 = 3;

/// How children are run.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The program and its arguments; not empty.
    pub command: Vec<OsString>,
    /// Children at once, of the whole process.
    pub max_children: u32,
    /// How long one may take to answer `initialize`.
    pub start_timeout: Duration,
    /// The server's bounds: `message_bytes` of a child's line, and what a message may be.
    pub limits: Limits,
}

/// What every session's child shares, and the thread that they live on.
pub(crate) struct Plant {
    settings: Settings,
    runtime: Handle,
    room: Arc<Semaphore>,
    /// Groups whose leaders are not reaped.
    groups: Mutex<HashSet<Pid>>,
    /// Set when every child is to end.
    ending: watch::Sender<bool>,
    counts: Counts,
}

/// The thread of a plant. Dropped without [`end`](Self::end), it goes on until the process ends.
pub(crate) struct Running {
    plant: Arc<Plant>,
    thread: JoinHandle<()>,
}

impl Plant {
    /// Starts the thread on which children are run.
    pub(crate) fn start(settings: Settings) -> io::Result<Running> {
        // What we open is not inherited; what we were given is not for children either.
        close_fds::set_fds_cloexec_threadsafe(FIRST_GIVEN, &[]);
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build()?;
        let room = usize::try_from(settings.max_children).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        let plant = Arc::new(Self {
            settings,
            runtime: runtime.handle().clone(),
            room: Arc::new(Semaphore::new(room)),
            groups: Mutex::default(),
            ending: watch::channel(false).0,
            counts: Counts::default(),
        });
        let (running, all) = (Arc::clone(&plant), u32::try_from(room).unwrap_or(u32::MAX));
        let thread = std::thread::Builder::new().name("gateway".into()).spawn(move || {
            runtime.block_on(async {
                running.ended().await;
                // Every child gives its place back when it is reaped. What takes too long is killed with the runtime.
                let _ = timeout(END_WITHIN, running.room.acquire_many(all)).await;
            });
        })?;
        Ok(Running { plant, thread })
    }

    /// Waits until every child is to end.
    async fn ended(&self) {
        // The sender is our own: it cannot be gone.
        let _ = self.ending.subscribe().wait_for(|ending| *ending).await;
    }

    fn groups(&self) -> MutexGuard<'_, HashSet<Pid>> {
        // A panic while it was locked cannot have left it half changed.
        self.groups.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Places for children that are taken.
    fn children(&self) -> u64 {
        let places = usize::try_from(self.settings.max_children).unwrap_or(usize::MAX).min(Semaphore::MAX_PERMITS);
        places.saturating_sub(self.room.available_permits()) as u64
    }

    /// Kills every child at once, for a process that is about to exit.
    pub(crate) fn kill(&self) {
        for &group in &*self.groups() {
            process::kill_group(group, Signal::KILL);
        }
    }
}

impl Running {
    /// What handlers are made from.
    pub(crate) fn plant(&self) -> &Arc<Plant> {
        &self.plant
    }

    /// Ends every child, and waits for it.
    pub(crate) fn end(self) {
        self.plant.ending.send_replace(true);
        if self.thread.join().is_err() {
            tracing::error!("the gateway's thread panicked");
        }
    }
}

/// A shard's handler.
pub(crate) struct Gateway {
    plant: Arc<Plant>,
    children: RefCell<HashMap<SessionId, Seat>>,
}

/// A session's child, as its shard knows it.
struct Seat {
    routes: Arc<Routes>,
    /// Dropped when the session has ended.
    _open: oneshot::Sender<()>,
}

impl Gateway {
    pub(crate) fn new(plant: Arc<Plant>) -> Self {
        Self { plant, children: RefCell::default() }
    }

    fn routes(&self, session: &Session) -> Option<Arc<Routes>> {
        self.children.borrow().get(&session.id()).map(|seat| Arc::clone(&seat.routes))
    }

    /// Takes a place and has a child started in it; returns where its answer to `initialize` will come.
    fn seat(&self, session: &Session, params: &Json) -> Result<oneshot::Receiver<Started>, RpcError> {
        let place = Arc::clone(&self.plant.room).try_acquire_owned();
        let place = place.map_err(|_| {
            self.plant.counts.refused.add(1);
            RpcError::shed("The server runs as many processes as it may")
        })?;
        let limits = &self.plant.settings.limits;
        // As much as two of the largest requests may wait for a child to read them.
        let (child, waiting) = backlog(limits.body_bytes.saturating_mul(2));
        let (starting, started) = oneshot::channel();
        let routes = Routes::new(session.clone(), params, child, Arc::clone(&self.plant), starting);
        let (open, closed) = oneshot::channel();
        self.children.borrow_mut().insert(session.id(), Seat { routes: Arc::clone(&routes), _open: open });
        self.plant.runtime.spawn(live(Arc::clone(&self.plant), routes, waiting, closed, place));
        Ok(started)
    }
}

impl Handler for Gateway {
    async fn initialize(&self, session: &Session, params: &Json) -> Result<Json, RpcError> {
        let started = self.seat(session, params)?;
        started.await.unwrap_or_else(|_| Err(RpcError::internal("the server's process could not be run")))
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        let routes = self.routes(call.session()).ok_or_else(|| RpcError::internal("the session has no process"))?;
        routes.call(call).map(|()| Reply::Later)
    }

    async fn notification(&self, session: &Session, method: &str, params: Option<&Json>) {
        if let Some(routes) = self.routes(session) {
            routes.notified(method, params);
        }
    }

    fn cancelled(&self, call: &Call, why: Cancelled) {
        if let Some(routes) = self.routes(call.session()) {
            routes.cancelled(call, why);
        }
    }

    fn closed(&self, session: &Session, _: Ended) {
        self.children.borrow_mut().remove(&session.id());
    }
}

/// Why a child's life ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Enum)]
enum End {
    /// It has exited.
    Exited,
    /// It closed its stdout.
    ClosedOutput,
    /// It closed its stdin.
    ClosedInput,
    /// It did not answer `initialize` in time.
    SlowStart,
    /// Its session has ended, or the server ends.
    NoLongerNeeded,
}

impl End {
    /// Its word in metrics.
    const fn as_str(self) -> &'static str {
        match self {
            Self::Exited => "exited",
            Self::ClosedOutput => "closed_output",
            Self::ClosedInput => "closed_input",
            Self::SlowStart => "slow_start",
            Self::NoLongerNeeded => "no_longer_needed",
        }
    }
}

/// A child's life, from its start until it is reaped and its place is free.
async fn live(
    plant: Arc<Plant>,
    routes: Arc<Routes>,
    waiting: Waiting,
    mut closed: oneshot::Receiver<()>,
    place: OwnedSemaphorePermit,
) {
    let (mut process, pipes) = match Process::start(&plant.settings.command) {
        Ok(started) => started,
        Err(error) => {
            plant.counts.failed.add(1);
            tracing::error!(session = ?routes.session(), %error, "the command could not be started");
            routes.fail_start(RpcError::internal("the server's process could not be started"));
            return routes.close();
        }
    };
    plant.groups().insert(process.group());
    plant.counts.started.add(1);
    tracing::debug!(session = ?routes.session(), process = process.group().as_raw_nonzero().get(), "a child was started");
    let mut writer = tokio::spawn(write(waiting, pipes.stdin));
    let mut reader = tokio::spawn(read(Arc::clone(&routes), pipes.stdout));
    let log = tokio::spawn(log(Arc::clone(&routes), pipes.stderr));
    let why = tokio::select! {
        _ = &mut closed => End::NoLongerNeeded,
        () = plant.ended() => End::NoLongerNeeded,
        () = process.exited() => End::Exited,
        _ = &mut reader => End::ClosedOutput,
        _ = &mut writer => End::ClosedInput,
        () = slow_start(&routes, plant.settings.start_timeout) => End::SlowStart,
    };
    if why == End::Exited {
        // What it said before it exited comes first.
        let _ = timeout(OUTPUT_AFTER_EXIT, &mut reader).await;
    }
    if why != End::NoLongerNeeded {
        tracing::info!(session = ?routes.session(), ?why, "a child's life is over, and its session's");
    }
    let error = match why {
        End::SlowStart => RpcError::internal("the server's process did not answer in time"),
        End::Exited | End::ClosedOutput | End::ClosedInput | End::NoLongerNeeded => {
            RpcError::internal("the server's process ended before it answered")
        }
    };
    // The session ends before its calls are given up: each is told that its outcome is unknown.
    if !routes.fail_start(error) && why != End::NoLongerNeeded {
        close(routes.session()).await;
    }
    let exit_follows =
        matches!(why, End::ClosedOutput | End::ClosedInput) && timeout(EXIT_FOLLOWS, process.exited()).await.is_ok();
    plant.counts.ended[if exit_follows { End::Exited } else { why }].add(1);
    routes.close();
    let group = process.group();
    let status = process.end().await;
    plant.groups().remove(&group);
    tracing::debug!(session = ?routes.session(), ?status, "a child was reaped");
    drop(place);
    for task in [reader.abort_handle(), writer.abort_handle(), log.abort_handle()] {
        task.abort();
    }
}

/// Waits until `initialize` has not been answered for too long; for ever, where it is answered.
async fn slow_start(routes: &Routes, time: Duration) {
    sleep(time).await;
    if !routes.is_starting() {
        std::future::pending().await
    }
}

/// Ends a session for good, however busy its shard is.
async fn close(session: &Session) {
    while session.close().await == Err(EmitError::Full) {
        sleep(Duration::from_millis(50)).await;
    }
}

/// Tells the child what waits for it; at the end its stdin is closed.
async fn write(mut waiting: Waiting, mut stdin: ChildStdin) {
    while let Some(line) = waiting.next().await {
        if let Err(error) = stdin.write_all(&line).await {
            return tracing::debug!(%error, "a child's stdin is closed");
        }
        waiting.told(&line);
    }
}

/// Carries what the child says; one that says more than finds room is not read meanwhile.
async fn read(routes: Arc<Routes>, stdout: ChildStdout) {
    let mut lines = Lines::new(stdout, routes.longest_line());
    loop {
        match lines.next().await {
            Ok(Some(line)) => routes.said(line).await,
            Ok(None) => return,
            Err(error) => return tracing::debug!(%error, "a child's stdout cannot be read"),
        }
    }
}

/// Logs what the child writes to its stderr, a bounded number of bounded lines a second.
async fn log(routes: Arc<Routes>, stderr: ChildStderr) {
    let session = routes.session();
    let mut lines = Lines::new(stderr, STDERR_LINE);
    let (mut since, mut logged, mut left_out) = (Instant::now(), 0, 0_u64);
    while let Ok(Some(line)) = lines.next().await {
        if since.elapsed() >= Duration::from_secs(1) {
            if left_out > 0 {
                tracing::warn!(?session, left_out, "lines of the child's stderr were left out: too many in a second");
            }
            (since, logged, left_out) = (Instant::now(), 0, 0);
        }
        if logged == STDERR_LINES {
            left_out += 1;
            routes.counts().unlogged.add(1);
            continue;
        }
        logged += 1;
        // Escaped: a child cannot write a line of the log that is not its own.
        match line {
            Line::Whole(line) => tracing::info!(?session, stderr = ?String::from_utf8_lossy(line)),
            Line::TooLong { start, .. } => tracing::info!(?session, stderr = ?String::from_utf8_lossy(start), cut = true),
        }
    }
    if left_out > 0 {
        tracing::warn!(?session, left_out, "lines of the child's stderr were left out: too many in a second");
    }
}
