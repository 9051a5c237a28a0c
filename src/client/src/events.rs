//! What a session tells outside of calls: a queue of notices, bounded, and never silently so.
//!
//! Never holds a session back: a caller that does not read loses the less important notices, and is told how many.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_channel::mpsc;
use futures_util::Stream;
use rejoin_proto::client::{CallId, ConnId, Gap, Loss, RequestKey, StreamEnd, StreamKey, Violation};
use rejoin_proto::client::{Failure, Undelivered};

use crate::handle::Command;

/// What a session tells its caller, in order.
#[derive(Debug)]
pub enum Notice {
    /// A notification of the server: `notifications/tools/list_changed`, a log message, and the like. Progress of a call that was made
    /// with [`Running::progress`](crate::Running::progress) goes there.
    Notification {
        /// On which stream.
        stream: StreamKey,
        /// Its method.
        method: Box<str>,
        /// JSON.
        params: Option<Bytes>,
    },
    /// A request of the server.
    Request(ServerRequest),
    /// The server withdrew a request.
    RequestCancelled(RequestKey),
    /// A stream was lost and will be returned to.
    Lost {
        /// Which.
        stream: StreamKey,
        /// How.
        why: Loss,
    },
    /// A stream has a connection: the standalone one for the first time, or one that was lost.
    Attached {
        /// Which.
        stream: StreamKey,
        /// To which.
        conn: ConnId,
    },
    /// The server no longer holds some events of a stream (`resync`). The caller may accept that, or begin another session.
    Gap {
        /// Which.
        stream: StreamKey,
        /// What was told of it.
        gap: Gap,
    },
    /// A stream does not continue what came before; nothing of it was accepted. The session should be ended: what this server says cannot
    /// be put in order.
    ContinuityViolated {
        /// Which.
        stream: StreamKey,
        /// How.
        violation: Violation,
    },
    /// The standalone stream is over; [`Client::listen`](crate::Client::listen) opens it again.
    StreamEnded(StreamEnd),
    /// A message that is no JSON-RPC came, and was left out.
    Malformed {
        /// On which stream.
        stream: StreamKey,
        /// What is wrong with it.
        why: &'static str,
    },
    /// Something that is not a call could not be delivered.
    Undelivered {
        /// What.
        what: Undelivered,
        /// Why.
        why: Failure,
    },
    /// So many notices were left out here: they were not read in time.
    Missed(u64),
    /// The server does not know the session any more (`session_expired`). The caller may begin another one, and must find out about these
    /// calls before it makes them again: they may have run. The last notice.
    SessionLost {
        /// Why, where the server says so.
        reason: Option<Box<str>>,
        /// The calls in flight; each has its own outcome as well.
        unknown: Vec<CallId>,
    },
    /// The session was ended by [`Client::end`](crate::Client::end). The last notice.
    Ended,
}

impl Notice {
    /// Whether a caller that does not read may miss it.
    fn is_passing(&self) -> bool {
        matches!(self, Self::Notification { .. } | Self::Lost { .. } | Self::Attached { .. } | Self::Malformed { .. })
    }

    fn is_last(&self) -> bool {
        matches!(self, Self::SessionLost { .. } | Self::Ended)
    }
}

/// What a server is told of a request that the caller dropped, or never read.
pub(crate) const UNANSWERED: &[u8] = br#"{"code":-32601,"message":"This client does not answer the request"}"#;

/// A request of the server. Answer it: the call that it belongs to waits. One that is dropped is answered with an error.
#[derive(Debug)]
pub struct ServerRequest {
    pub(crate) key: RequestKey,
    /// On which stream.
    pub stream: StreamKey,
    /// Its method, such as `sampling/createMessage`.
    pub method: Box<str>,
    /// JSON.
    pub params: Option<Bytes>,
    /// The way back, from the moment that the caller has it.
    pub(crate) session: Option<mpsc::UnboundedSender<Command>>,
}

impl ServerRequest {
    /// Its name, by which [`Notice::RequestCancelled`] withdraws it.
    pub fn key(&self) -> RequestKey {
        self.key
    }

    /// Answers with a result: a JSON value. Of a session that has ended, nothing.
    pub fn answer(mut self, result: impl Into<Bytes>) {
        self.send(Ok(result.into()));
    }

    /// Answers with an error: a JSON object with `code` and `message`.
    pub fn refuse(mut self, error: impl Into<Bytes>) {
        self.send(Err(error.into()));
    }

    fn send(&mut self, outcome: Result<Bytes, Bytes>) {
        if let Some(session) = self.session.take() {
            // A session that has ended waits for nothing.
            let _ = session.unbounded_send(Command::Answer { request: self.key, outcome });
        }
    }
}

impl Drop for ServerRequest {
    fn drop(&mut self) {
        self.send(Err(Bytes::from_static(UNANSWERED)));
    }
}

#[derive(Debug, Default)]
struct Queue {
    notices: VecDeque<Notice>,
    missed: u64,
    over: bool,
    reader: Option<Waker>,
}

/// The session's end of the queue.
#[derive(Debug)]
pub(crate) struct Teller {
    queue: Arc<Mutex<Queue>>,
    bound: usize,
}

/// What a session tells: a stream of notices. Dropping it lets the session go on unheard.
#[derive(Debug)]
pub struct Events {
    queue: Arc<Mutex<Queue>>,
    /// Keeps the session alive, as every handle does.
    session: mpsc::UnboundedSender<Command>,
}

fn lock(queue: &Mutex<Queue>) -> MutexGuard<'_, Queue> {
    // Nothing that holds the lock can leave the queue half changed.
    queue.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Both ends of a queue of at most `bound` passing notices, and as many others.
pub(crate) fn queue(bound: usize, session: mpsc::UnboundedSender<Command>) -> (Teller, Events) {
    let queue = Arc::new(Mutex::new(Queue::default()));
    (Teller { queue: Arc::clone(&queue), bound: bound.max(1) }, Events { queue, session })
}

impl Teller {
    /// Tells a notice; gives it back where there is no room.
    pub(crate) fn tell(&self, notice: Notice) -> Result<(), Notice> {
        let mut queue = lock(&self.queue);
        if Arc::strong_count(&self.queue) == 1 {
            // Nobody will ever read it.
            return Err(notice);
        }
        let bound = if notice.is_passing() { self.bound } else { self.bound.saturating_mul(2) };
        if !notice.is_last() && queue.notices.len() >= bound {
            queue.missed += 1;
            return Err(notice);
        }
        if queue.missed > 0 {
            let missed = std::mem::take(&mut queue.missed);
            queue.notices.push_back(Notice::Missed(missed));
        }
        queue.notices.push_back(notice);
        if let Some(reader) = queue.reader.take() {
            reader.wake();
        }
        Ok(())
    }
}

impl Drop for Teller {
    fn drop(&mut self) {
        let mut queue = lock(&self.queue);
        queue.over = true;
        if let Some(reader) = queue.reader.take() {
            reader.wake();
        }
    }
}

impl Events {
    /// The next notice; `None` when the session is over and all was read.
    pub async fn next(&mut self) -> Option<Notice> {
        std::future::poll_fn(|context| Pin::new(&mut *self).poll_next(context)).await
    }
}

impl Stream for Events {
    type Item = Notice;

    fn poll_next(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<Notice>> {
        let mut queue = lock(&self.queue);
        if let Some(mut notice) = queue.notices.pop_front() {
            if let Notice::Request(request) = &mut notice {
                request.session = Some(self.session.clone());
            }
            return Poll::Ready(Some(notice));
        }
        if queue.missed > 0 {
            return Poll::Ready(Some(Notice::Missed(std::mem::take(&mut queue.missed))));
        }
        if queue.over {
            return Poll::Ready(None);
        }
        queue.reader = Some(context.waker().clone());
        Poll::Pending
    }
}

/// Nobody will read what is left: requests among it get their error.
impl Drop for Events {
    fn drop(&mut self) {
        let unread = std::mem::take(&mut lock(&self.queue).notices);
        for mut notice in unread {
            if let Notice::Request(request) = &mut notice {
                request.session = Some(self.session.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn passing() -> Notice {
        Notice::Malformed { stream: StreamKey::Standalone, why: "" }
    }

    #[test]
    fn what_is_not_read_in_time_is_counted_where_it_is_missing_and_an_end_is_always_told() {
        let (commands, _kept) = mpsc::unbounded();
        let (teller, mut events) = queue(2, commands);
        for _ in 0..5 {
            let _ = teller.tell(passing());
        }
        teller.tell(Notice::StreamEnded(StreamEnd::NotOffered)).expect("there is room for what matters");
        for _ in 0..5 {
            let _ = teller.tell(Notice::StreamEnded(StreamEnd::NotOffered));
        }
        teller.tell(Notice::Ended).expect("always");
        drop(teller);
        let mut said = Vec::new();
        while let Some(notice) = events.next().now_or_never().expect("all is there") {
            said.push(match notice {
                Notice::Malformed { .. } => "passing".to_owned(),
                Notice::Missed(missed) => format!("missed {missed}"),
                Notice::StreamEnded(_) => "matters".to_owned(),
                Notice::Ended => "ended".to_owned(),
                other => panic!("{other:?}"),
            });
        }
        assert_eq!(said, ["passing", "passing", "missed 3", "matters", "missed 5", "ended"]);
    }
}
