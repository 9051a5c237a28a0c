//! Every bound of a child process, with its reason, and the queue of what waits for one to read it.
//!
//! Never waits and never touches a process.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;

/// From the end of a child's input to SIGTERM. Reason: MCP's own order of ending a stdio server; what it has to save takes a moment.
pub(super) const TERM_AFTER: Duration = Duration::from_secs(2);
/// From SIGTERM to SIGKILL.
pub(super) const KILL_AFTER: Duration = Duration::from_secs(2);
/// From SIGTERM to SIGKILL for what is left of a child's process group when the child itself has exited.
pub(super) const STRAGGLERS: Duration = Duration::from_millis(250);
/// How long the output of a child that has exited is still read. Reason: its last answer may stand in the pipe, and what it started
/// may hold the pipe open for ever.
pub(super) const OUTPUT_AFTER_EXIT: Duration = Duration::from_secs(1);
/// How long a child that closed its stdin or stdout may take to exit and be counted as one that exited. Reason: an exit closes both first.
pub(super) const EXIT_FOLLOWS: Duration = Duration::from_millis(100);
/// How long all children together may take to end when the server has; each is killed then.
pub(super) const END_WITHIN: Duration = Duration::from_secs(6);
/// Bytes of a line on a child's stderr; the rest of it is left out.
pub(super) const STDERR_LINE: usize = 4 << 10;
/// Lines of a child's stderr that are logged in one second; the rest is counted. Reason: one child must not fill the disk.
pub(super) const STDERR_LINES: u32 = 100;
/// Bytes counted for a waiting message beside its own.
const MESSAGE_OVERHEAD: usize = 64;

/// What a child is to be told.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum ToChild {
    /// One message, with its line end.
    Line(Vec<u8>),
    /// Nothing more: its stdin is closed.
    End,
}

/// Why a message is not told to a child.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotTold {
    /// It does not read, and as much as may wait waits already.
    Full,
    /// It has ended.
    Gone,
}

/// The sending end of what waits for a child, from any thread.
#[derive(Debug)]
pub(super) struct Backlog {
    sender: mpsc::UnboundedSender<ToChild>,
    waiting: Arc<AtomicUsize>,
    most: usize,
}

/// The receiving end.
#[derive(Debug)]
pub(super) struct Waiting {
    receiver: mpsc::UnboundedReceiver<ToChild>,
    waiting: Arc<AtomicUsize>,
}

/// A queue for one child. A message is refused while `most` bytes wait, so that one of any size fits into an empty queue.
pub(super) fn backlog(most: usize) -> (Backlog, Waiting) {
    let (sender, receiver) = mpsc::unbounded_channel();
    let waiting = Arc::new(AtomicUsize::new(0));
    (Backlog { sender, waiting: Arc::clone(&waiting), most }, Waiting { receiver, waiting })
}

impl Backlog {
    /// Queues what a client says, of which there is no end.
    pub(super) fn tell(&self, line: Vec<u8>) -> Result<(), NotTold> {
        if self.waiting.load(Ordering::Relaxed) >= self.most {
            return Err(NotTold::Full);
        }
        self.tell_always(line)
    }

    /// Queues what there is no more of than calls and requests in flight: it is counted, and never refused.
    pub(super) fn tell_always(&self, line: Vec<u8>) -> Result<(), NotTold> {
        self.waiting.fetch_add(line.len() + MESSAGE_OVERHEAD, Ordering::Relaxed);
        self.sender.send(ToChild::Line(line)).map_err(|_| NotTold::Gone)
    }

    /// Ends the child's input, after what waits.
    pub(super) fn end(&self) {
        // A writer that has ended has closed it already.
        let _ = self.sender.send(ToChild::End);
    }
}

impl Waiting {
    /// The next message. It counts as waiting until [`told`](Self::told).
    pub(super) async fn next(&mut self) -> Option<Vec<u8>> {
        match self.receiver.recv().await? {
            ToChild::Line(line) => Some(line),
            ToChild::End => None,
        }
    }

    /// A message was written.
    pub(super) fn told(&self, line: &[u8]) {
        self.waiting.fetch_sub(line.len() + MESSAGE_OVERHEAD, Ordering::Relaxed);
    }
}

/// Says whether the `nth` event of a kind is worth a line in the log: the first, and each that doubles their number.
pub(super) fn worth_a_line(nth: u64) -> bool {
    nth.is_power_of_two()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_full_backlog_refuses_messages_but_not_cancellations_and_has_room_again() {
        let (backlog, mut waiting) = backlog(100);
        backlog.tell(vec![b'x'; 1000]).expect("one of any size fits");
        assert_eq!(backlog.tell(vec![]), Err(NotTold::Full));
        backlog.tell_always(b"cancelled".to_vec()).expect("never refused");
        for expected in [1000, 9] {
            let line = waiting.next().await.expect("a line");
            assert_eq!(line.len(), expected);
            waiting.told(&line);
        }
        backlog.tell(b"again".to_vec()).expect("room again");
    }

    #[tokio::test]
    async fn the_end_comes_after_what_waits_and_nothing_follows_it() {
        let (backlog, mut waiting) = backlog(100);
        backlog.tell(b"last".to_vec()).expect("room");
        backlog.end();
        assert_eq!(waiting.next().await.as_deref(), Some(&b"last"[..]));
        assert_eq!(waiting.next().await, None);
        drop(waiting);
        assert_eq!(backlog.tell(b"late".to_vec()), Err(NotTold::Gone));
        backlog.end();
    }

    #[test]
    fn a_thousand_events_are_ten_lines() {
        assert_eq!((1..=1000).filter(|&nth| worth_a_line(nth)).count(), 10);
    }
}
