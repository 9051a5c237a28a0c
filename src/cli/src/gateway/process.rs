//! One child process: how it begins, how its end is noticed, and how it and all that it started are ended.
//!
//! Never looks at a message. The child is reaped only when its process group has been told to end: until then its number names that
//! group and no other.

use std::ffi::OsString;
use std::io;
use std::os::unix::process::CommandExt;
use std::process::{Child, Command, ExitStatus, Stdio};

use rustix::process::{Pid, Signal, WaitId, WaitIdOptions, kill_process_group, waitid};
use tokio::process::{ChildStderr, ChildStdin, ChildStdout};
use tokio::signal::unix::{self, SignalKind};
use tokio::time::{sleep, timeout};

use crate::notify;

use super::limits::{KILL_AFTER, STRAGGLERS, TERM_AFTER};

/// A child's three pipes.
pub(super) struct Pipes {
    pub stdin: ChildStdin,
    pub stdout: ChildStdout,
    pub stderr: ChildStderr,
}

/// A child that is not reaped yet. Dropped, it and its group are killed.
pub(super) struct Process {
    child: Child,
    group: Pid,
    /// Comes when any child has exited.
    exits: unix::Signal,
    reaped: bool,
}

impl Process {
    /// Starts the command as the leader of a process group of its own. It inherits our environment, without what a
    /// service manager set for us alone, and no descriptor but its pipes:
    /// everything else that we hold closes on exec.
    pub(super) fn start(command: &[OsString]) -> io::Result<(Self, Pipes)> {
        let (program, arguments) = command.split_first().ok_or(io::ErrorKind::InvalidInput)?;
        let exits = unix::signal(SignalKind::child())?;
        let mut command = Command::new(program);
        // What was meant for us alone.
        for variable in notify::VARIABLES {
            command.env_remove(variable);
        }
        let mut child = command
            .args(arguments)
            .process_group(0)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()?;
        let group = Pid::from_child(&child);
        let pipes = Self::pipes(&mut child);
        // Where the pipes are of no use, this is dropped, and so killed.
        let process = Self { child, group, exits, reaped: false };
        Ok((process, pipes?))
    }

    fn pipes(child: &mut Child) -> io::Result<Pipes> {
        let (Some(stdin), Some(stdout), Some(stderr)) = (child.stdin.take(), child.stdout.take(), child.stderr.take()) else {
            return Err(io::ErrorKind::BrokenPipe.into());
        };
        Ok(Pipes {
            stdin: ChildStdin::from_std(stdin)?,
            stdout: ChildStdout::from_std(stdout)?,
            stderr: ChildStderr::from_std(stderr)?,
        })
    }

    /// Its number, and its group's.
    pub(super) fn group(&self) -> Pid {
        self.group
    }

    /// Waits until the child has exited. It is not reaped by this.
    pub(super) async fn exited(&mut self) {
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOWAIT | WaitIdOptions::NOHANG;
        // An error says that it is no child of ours: somebody else has reaped it.
        while let Ok(None) = waitid(WaitId::Pid(self.group), options) {
            self.exits.recv().await;
        }
    }

    /// Ends the child, whose input is closed already, and what is left of its group: each step after its stated time.
    pub(super) async fn end(mut self) -> io::Result<ExitStatus> {
        if timeout(TERM_AFTER, self.exited()).await.is_err() {
            self.signal(Signal::TERM);
            if timeout(KILL_AFTER, self.exited()).await.is_err() {
                self.signal(Signal::KILL);
                self.exited().await;
            }
        }
        self.signal(Signal::TERM);
        sleep(STRAGGLERS).await;
        self.signal(Signal::KILL);
        self.reap()
    }

    fn signal(&self, signal: Signal) {
        kill_group(self.group, signal);
    }

    fn reap(&mut self) -> io::Result<ExitStatus> {
        self.reaped = true;
        self.child.wait()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if !self.reaped {
            self.signal(Signal::KILL);
            // What is killed exits as soon as it runs.
            let _ = self.reap();
        }
    }
}

/// Signals every process of a group whose leader is not reaped.
pub(super) fn kill_group(group: Pid, signal: Signal) {
    if let Err(error) = kill_process_group(group, signal) {
        // It may run as another user, where the command is a set-user-id one.
        tracing::warn!(group = group.as_raw_nonzero().get(), ?signal, %error, "a child's process group was not signalled");
    }
}
