//! One connection and its task, which reads, and writes whatever the socket does not take at once.
//!
//! An idle connection holds no buffer, and one watch ("readable") for as long as nothing arrives: it is never dropped and taken
//! again for an event that we send. While its task waits, what is said to it is written by the shard's `writer`. Never parses anything, and never decides what is sent, when to close or where to move.

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::io::{self, IoSlice};
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use bytes::{Buf, Bytes};
use monoio::net::TcpStream;
use rejoin_proto::ids::ShardIndex;
use rejoin_proto::shard::io::{Close, ConnId, Input};

use crate::mail::Mail;
use crate::shard::{Local, READ_BUFFER};
use crate::socket::{self, Received, Written};

/// Bytes that one connection, or the writer, moves before the rest of the shard has its turn; each call of a connection counts as
/// `CALL_COST` at least.
pub(crate) const BYTES_PER_TURN: usize = 512 << 10;
const CALL_COST: usize = 64 << 10;

/// Slices handed to one `sendmsg`: Linux takes at most 1,024 (IOV_MAX).
const SLICES_PER_WRITE: usize = 64;

/// Bytes that a closing connection reads and drops while it waits for the peer's FIN. Reason: closing with bytes unread is a reset,
/// which may cost the peer the answer that it has not read yet.
const LINGER_BYTES: usize = 1 << 20;

/// Attempts to duplicate a descriptor for a handoff when the process has none left, and the pause between them.
const DUPLICATE_ATTEMPTS: usize = 20;
const DUPLICATE_PAUSE: Duration = Duration::from_millis(50);

/// What the kernel wants of a connection: written by the shard, read by the connection's task.
pub(crate) struct Conn {
    pub(crate) id: ConnId,
    stream: TcpStream,
    send: RefCell<Option<Sending>>,
    reading: Cell<bool>,
    ending: Cell<Option<Close>>,
    handoff: Cell<Option<Box<Handoff>>>,
    /// Whether something above changed since the task last looked.
    changed: Cell<bool>,
    /// Whether the writer has it on its list.
    listed: Cell<bool>,
    /// While the task waits.
    waker: RefCell<Option<Waker>>,
}

/// Where a connection moves, and what goes with it.
pub(crate) struct Handoff {
    pub(crate) to: ShardIndex,
    pub(crate) bytes: Bytes,
    pub(crate) placed: bool,
}

/// Slices on their way into the socket. Those that are through are dropped at once.
struct Sending {
    slices: std::vec::IntoIter<Bytes>,
}

impl Conn {
    pub(crate) fn new(id: ConnId, stream: TcpStream) -> Self {
        Self {
            id,
            stream,
            send: RefCell::default(),
            reading: Cell::new(true),
            ending: Cell::default(),
            handoff: Cell::default(),
            changed: Cell::new(false),
            listed: Cell::new(false),
            waker: RefCell::default(),
        }
    }

    /// Takes in what is to be written; says whether the writer is to be told. (A task that runs looks again before it waits.)
    pub(crate) fn send(&self, slices: Vec<Bytes>) -> bool {
        let earlier = self.send.borrow_mut().replace(Sending { slices: slices.into_iter() });
        debug_assert!(earlier.is_none(), "one send at a time");
        self.waker.borrow().is_some() && !self.listed.replace(true)
    }

    /// The writer is done with it; the rest is the task's.
    pub(crate) fn wrote(&self) {
        self.listed.set(false);
        if self.sending() {
            self.notify();
        }
    }

    pub(crate) fn read(&self, wanted: bool) {
        self.reading.set(wanted);
        self.notify();
    }

    pub(crate) fn close(&self, how: Close) {
        self.ending.set(Some(how));
        self.notify();
    }

    pub(crate) fn hand_off(&self, handoff: Handoff) {
        self.handoff.set(Some(Box::new(handoff)));
        self.notify();
    }

    /// Wakes the task if it waits; one that runs looks again before it waits.
    fn notify(&self) {
        self.changed.set(true);
        if let Some(waker) = self.waker.borrow_mut().take() {
            waker.wake();
        }
    }

    /// Lets go of what was not sent.
    pub(crate) fn drop_send(&self) {
        self.send.take();
    }

    fn sending(&self) -> bool {
        self.send.borrow().is_some()
    }

    /// The end that is due now: a clean one waits for the send under way.
    fn due(&self) -> Option<Close> {
        self.ending.get().filter(|&how| how == Close::Reset || !self.sending())
    }
}

/// How a connection's service ended.
enum Served {
    /// The peer is gone.
    Gone,
    /// The kernel closes it.
    Closed(Close),
    /// It moves.
    HandedOff(Box<Handoff>),
}

/// Serves a connection to its end, and tells the kernel.
///
/// This future is most of what an idle connection costs in the shell: what is rare in it is on the heap by itself.
#[expect(clippy::manual_async_fn, reason = "an `async fn` holds its arguments twice")]
pub(crate) fn run(local: Rc<Local>, conn: Rc<Conn>) -> impl Future<Output = ()> {
    async move {
        match serve(&local, &conn).await {
            Served::Gone => {}
            Served::Closed(Close::Reset) => socket::reset_on_close(&conn.stream),
            Served::Closed(Close::Clean) => Box::pin(linger(&local, &conn)).await,
            Served::HandedOff(handoff) => return Box::pin(hand_over(&local, conn, *handoff)).await,
        }
        local.closed(conn);
    }
}

async fn serve(local: &Rc<Local>, conn: &Conn) -> Served {
    let stream = &conn.stream;
    let mut readable = pin!(None);
    // Rare: only while the peer's window is full.
    let mut writable = None;
    let mut arrived = false;
    let mut blocked = false;
    let mut spent = 0;
    loop {
        conn.changed.set(false);
        if let Some(handoff) = conn.handoff.take() {
            return Served::HandedOff(handoff);
        }
        if let Some(how) = conn.due() {
            return Served::Closed(how);
        }
        if spent >= BYTES_PER_TURN {
            spent = 0;
            Box::pin(local.turn().pass()).await;
        } else if conn.sending() && !blocked {
            match write(local, conn) {
                Some(Written::Bytes(bytes)) => spent += bytes.max(CALL_COST),
                Some(Written::Gone) => return Served::Gone,
                Some(Written::Blocked) => {
                    blocked = true;
                    writable = Some(Box::pin(stream.writable(false)));
                }
                None => {}
            }
        } else if arrived && conn.reading.get() {
            match read(local, conn) {
                Received::Bytes(bytes) => {
                    spent += bytes.max(CALL_COST);
                    // Less than the buffer holds: the socket was emptied, and the next watch tells if that has changed.
                    arrived = bytes == READ_BUFFER;
                }
                Received::Blocked => arrived = false,
                Received::Gone => return Served::Gone,
                Received::End => return last_words(local, conn),
            }
        } else {
            if !arrived && readable.is_none() && conn.reading.get() {
                readable.set(Some(stream.readable(false)));
            }
            let (ready_to_read, ready_to_write) = wait(conn, readable.as_mut(), &mut writable).await;
            arrived |= ready_to_read;
            blocked &= !ready_to_write;
            spent = 0;
        }
    }
}

/// Waits until the kernel wants something else, or a watch is ready; says which watches were, and drops those.
fn wait<R, W>(
    conn: &Conn,
    mut readable: Pin<&mut Option<R>>,
    writable: &mut Option<Pin<Box<W>>>,
) -> impl Future<Output = (bool, bool)>
where
    R: Future<Output = io::Result<()>>,
    W: Future<Output = io::Result<()>>,
{
    poll_fn(move |cx| {
        // An error of a watch (its descriptor's) shows itself in the read or write that follows.
        let read = readable.as_mut().as_pin_mut().is_some_and(|watch| watch.poll(cx).is_ready());
        let write = writable.as_mut().is_some_and(|watch| watch.as_mut().poll(cx).is_ready());
        if read {
            readable.set(None);
        }
        if write {
            *writable = None;
        }
        if read || write || conn.changed.get() {
            // While the task runs nobody needs to wake it.
            conn.waker.take();
            return Poll::Ready((read, write));
        }
        *conn.waker.borrow_mut() = Some(cx.waker().clone());
        Poll::Pending
    })
}

/// Writes what the socket takes of the send under way, and reports it, which may bring more to send; `None` where there is nothing.
pub(crate) fn write(local: &Rc<Local>, conn: &Conn) -> Option<Written> {
    let written = {
        let mut sending = conn.send.borrow_mut();
        let under_way = sending.as_mut()?;
        let written = under_way.write(&conn.stream);
        if under_way.slices.as_slice().is_empty() {
            *sending = None;
        }
        written
    };
    if let Written::Bytes(bytes) = written {
        local.input(Input::Sent { conn: conn.id, bytes });
    }
    Some(written)
}

/// Reads what has arrived and hands it to the kernel.
fn read(local: &Rc<Local>, conn: &Conn) -> Received {
    local.with_read_buffer(|buffer| {
        let received = socket::receive(&conn.stream, buffer);
        if let Received::Bytes(bytes) = received {
            local.input(Input::Received { conn: conn.id, bytes: &buffer[..bytes] });
        }
        received
    })
}

impl Sending {
    fn write(&mut self, stream: &TcpStream) -> Written {
        let written = {
            let slices = self.slices.as_slice();
            match slices {
                // An event, or an answer.
                [only] => socket::send(stream, only),
                _ => {
                    let count = slices.len().min(SLICES_PER_WRITE);
                    let slice_at = |at| IoSlice::new(slices.get(at).map_or(&[], |slice: &Bytes| slice));
                    let vector: [_; SLICES_PER_WRITE] = std::array::from_fn(slice_at);
                    socket::send_all(stream, &vector[..count])
                }
            }
        };
        if let Written::Bytes(bytes) = written {
            self.advance(bytes);
        }
        written
    }

    fn advance(&mut self, mut bytes: usize) {
        while let Some(first) = self.slices.as_mut_slice().first_mut() {
            if bytes < first.len() {
                first.advance(bytes);
                return;
            }
            bytes -= first.len();
            self.slices.next();
        }
    }
}

/// After a FIN: writes what the kernel had ready and the socket still takes, since a peer that only finished sending (`nc`) may read.
fn last_words(local: &Rc<Local>, conn: &Conn) -> Served {
    let mut spent = 0;
    while spent < BYTES_PER_TURN
        && let Some(Written::Bytes(bytes)) = write(local, conn)
    {
        spent += bytes.max(CALL_COST);
    }
    match conn.handoff.take() {
        Some(handoff) => Served::HandedOff(handoff),
        None => Served::Gone,
    }
}

/// Ends a connection so that the peer gets all that was written: FIN, then reads and drops until the peer's FIN, within bounds.
async fn linger(local: &Rc<Local>, conn: &Conn) {
    let stream = &conn.stream;
    socket::finish(stream);
    let mut left = LINGER_BYTES;
    let mut deadline = pin!(monoio::time::sleep(local.close_grace()));
    let mut readable = pin!(None);
    while left > 0 && conn.ending.get() != Some(Close::Reset) {
        match local.with_read_buffer(|buffer| socket::receive(stream, buffer)) {
            Received::Bytes(bytes) => left = left.saturating_sub(bytes),
            Received::End | Received::Gone => return,
            Received::Blocked => {
                if readable.is_none() {
                    readable.set(Some(stream.readable(false)));
                }
                let late = poll_fn(|cx| {
                    if readable.as_mut().as_pin_mut().is_some_and(|watch| watch.poll(cx).is_ready()) {
                        readable.set(None);
                        return Poll::Ready(false);
                    }
                    if conn.ending.get() == Some(Close::Reset) {
                        return Poll::Ready(false);
                    }
                    *conn.waker.borrow_mut() = Some(cx.waker().clone());
                    deadline.as_mut().poll(cx).map(|()| true)
                })
                .await;
                if late {
                    return;
                }
            }
        }
    }
    socket::reset_on_close(stream);
}

/// Sends a connection to the shard that it belongs on. Waits for room there: the peer waits, nobody else does.
async fn hand_over(local: &Rc<Local>, conn: Rc<Conn>, handoff: Handoff) {
    let Some(to) = local.remote_of(handoff.to) else { return };
    for _ in 0..DUPLICATE_ATTEMPTS {
        match socket::duplicate(&conn.stream) {
            Ok(descriptor) => {
                // The last that holds it: its shard forgot it when it said where to.
                drop(conn);
                // A shard that has stopped takes nothing: the connection closes with it.
                let _ = to.post(Mail::HandedOver { descriptor, bytes: handoff.bytes, placed: handoff.placed }).await;
                return;
            }
            Err(_) => monoio::time::sleep(DUPLICATE_PAUSE).await,
        }
    }
    tracing::warn!("no descriptor left for a handoff: connection reset");
    socket::reset_on_close(&conn.stream);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of an idle connection's task and of what it shares with its shard: most of what it costs beside the kernel's own.
    const IDLE_BYTES: usize = 416;

    fn size_made<A, B, F>(_: impl FnOnce(A, B) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn an_idle_connection_is_small() {
        let (task, shared) = (size_made(run), size_of::<Conn>());
        assert!(task + shared <= IDLE_BYTES, "{task} + {shared}");
    }
}
