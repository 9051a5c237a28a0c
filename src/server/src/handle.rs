//! The running server, from any thread: its sessions, and its end.
//!
//! Never keeps the server alive or ends it by being dropped: that is `shutdown`'s.

use std::fmt;
use std::future::poll_fn;
use std::net::SocketAddr;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures_channel::oneshot;
use rejoin_proto::ids::SessionId;
use rejoin_proto::shard::SessionView;
use rejoin_proto::shard::io::Command;
use rejoin_proto::time::Instant;

use crate::error::EmitError;
use crate::mail::{Mail, Remote};
use crate::session;
use crate::stats::ShardStats;

/// A handle to a running server. The server runs until [`shutdown`](Self::shutdown), whether a handle is left or not.
#[derive(Clone)]
pub struct ServerHandle {
    address: SocketAddr,
    driver: Arc<str>,
    remotes: Arc<[Arc<Remote>]>,
    running: Arc<Running>,
}

impl fmt::Debug for ServerHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "server on {}, {} shards, {}", self.address, self.remotes.len(), self.driver)
    }
}

/// How many shards still run, and who waits until none does.
pub(crate) struct Running {
    left: Mutex<Left>,
    changed: Condvar,
}

struct Left {
    shards: usize,
    /// Tasks that wait.
    waiting: Vec<Waker>,
}

impl Running {
    pub(crate) fn new(shards: usize) -> Self {
        Self { left: Mutex::new(Left { shards, waiting: Vec::new() }), changed: Condvar::new() }
    }

    fn left(&self) -> MutexGuard<'_, Left> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn one_ended(&self) {
        let mut left = self.left();
        left.shards -= 1;
        let waiting = if left.shards == 0 { std::mem::take(&mut left.waiting) } else { Vec::new() };
        drop(left);
        self.changed.notify_all();
        waiting.into_iter().for_each(Waker::wake);
    }

    /// Waits until the last shard has ended, but not longer than `time`; says whether it has.
    pub(crate) fn ended_within(&self, time: Duration) -> bool {
        let waited = self.changed.wait_timeout_while(self.left(), time, |left| left.shards > 0);
        waited.unwrap_or_else(PoisonError::into_inner).0.shards == 0
    }

    fn wait(&self) {
        drop(self.changed.wait_while(self.left(), |left| left.shards > 0).unwrap_or_else(PoisonError::into_inner));
    }

    fn poll_ended(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut left = self.left();
        if left.shards == 0 {
            return Poll::Ready(());
        }
        if !left.waiting.iter().any(|waker| waker.will_wake(cx.waker())) {
            left.waiting.push(cx.waker().clone());
        }
        Poll::Pending
    }
}

impl ServerHandle {
    pub(crate) fn new(address: SocketAddr, driver: String, remotes: Arc<[Arc<Remote>]>, running: Arc<Running>) -> Self {
        Self { address, driver: driver.into(), remotes, running }
    }

    /// The address that it listens on, with the port that was found.
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The driver that its shards run on, in words.
    pub fn driver(&self) -> &str {
        &self.driver
    }

    /// How many shards it has.
    pub fn shards(&self) -> usize {
        self.remotes.len()
    }

    /// Every live session, shard by shard. Shards that have stopped have none.
    pub async fn sessions(&self) -> Vec<SessionView> {
        let mut all = Vec::new();
        for remote in &*self.remotes {
            let (reply, answer) = oneshot::channel();
            if remote.post(Mail::List { reply }).await.is_ok() {
                all.append(&mut answer.await.unwrap_or_default());
            }
        }
        all
    }

    /// What every shard counts and has, in the order of the shards.
    ///
    /// Each shard is asked, and answers between two of its turns, so that counting costs it nothing while nobody asks. One that does
    /// not answer within `patience` (a handler blocks it) is [`Unresponsive`](crate::ShardState::Unresponsive). Blocks this thread:
    /// not for a shard's own, which could not answer meanwhile.
    ///
    /// ```
    /// # use rejoin::{Call, Handler, Json, Reply, RpcError, Server, Session};
    /// # struct Nobody;
    /// # impl Handler for Nobody {
    /// #     async fn initialize(&self, _: &Session, _: &Json) -> Result<Json, RpcError> { Err(RpcError::internal("nobody")) }
    /// #     async fn request(&self, call: &Call) -> Result<Reply, RpcError> { Err(RpcError::method_not_found(call.method())) }
    /// # }
    /// let server = Server::builder().shards(2).serve(|| Nobody)?;
    /// for (shard, stats) in server.stats(std::time::Duration::from_secs(1)).iter().enumerate() {
    ///     match stats.state.snapshot() {
    ///         Some(now) => println!("shard {shard}: {} sessions", now.kernel.sessions),
    ///         None => println!("shard {shard} does not answer"),
    ///     }
    /// }
    /// # server.shutdown(std::time::Duration::ZERO);
    /// # server.wait();
    /// # Ok::<(), rejoin::StartError>(())
    /// ```
    pub fn stats(&self, patience: Duration) -> Vec<ShardStats> {
        let deadline = std::time::Instant::now() + patience;
        // All are asked before one is waited for.
        let asked: Vec<_> = self.remotes.iter().map(|remote| remote.ask()).collect();
        let answers = self.remotes.iter().zip(asked);
        answers
            .map(|(remote, before)| ShardStats { state: remote.wait(before, deadline), mail_waiting: remote.mail_waiting() })
            .collect()
    }

    /// The present instant, as [`SessionView::last_active`] counts: `handle.now().since(view.last_active)` is a session's idle time.
    pub fn now(&self) -> Instant {
        self.remotes[0].common.now()
    }

    /// Ends a session: its clients get 404 `session_expired` with the reason `closed`.
    pub async fn close(&self, session: SessionId) -> Result<(), EmitError> {
        self.command(session, Command::Close(session)).await
    }

    /// Begins a new incarnation of a session: every stream ends, calls in flight are lost.
    pub async fn rotate(&self, session: SessionId) -> Result<(), EmitError> {
        self.command(session, Command::Rotate(session)).await
    }

    async fn command(&self, session: SessionId, command: Command) -> Result<(), EmitError> {
        match self.remotes.get(usize::from(session.shard().0)) {
            Some(remote) => session::command(remote, command).await,
            None => Err(rejoin_proto::shard::io::NotTaken::SessionEnded.into()),
        }
    }

    /// Begins the end: nothing more is accepted, what can end within `drain` does, the rest is ended then. The first call's time
    /// holds. [`wait`](Self::wait) waits for it.
    pub fn shutdown(&self, drain: Duration) {
        for remote in &*self.remotes {
            remote.drain(remote.common.now() + drain);
        }
    }

    /// Waits until every shard has ended, on any runtime.
    ///
    /// ```no_run
    /// # async fn serve(server: rejoin::ServerHandle, asked_to_stop: impl Future) {
    /// asked_to_stop.await;
    /// server.shutdown(std::time::Duration::from_secs(10));
    /// server.ended().await;
    /// # }
    /// ```
    pub async fn ended(&self) {
        poll_fn(|cx| self.running.poll_ended(cx)).await;
    }

    /// Blocks this thread until every shard has ended. Not for a shard's own thread.
    pub fn wait(&self) {
        self.running.wait();
    }
}
