//! Writes what the kernel handed over for connections whose tasks wait: one wake for all that a turn says.
//!
//! A connection's own task is woken only for what the socket did not take at once, so that an event to a stream costs a write and no
//! task. Never waits for a socket, and never writes twice for one connection before the rest of the shard has its turn.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::rc::Rc;
use std::task::{Poll, Waker};

use rejoin_proto::shard::io::ConnId;

use crate::connection::{self, BYTES_PER_TURN};
use crate::shard::Local;
use crate::socket::Written;

/// Connections written for before the rest of the shard has its turn: two milliseconds or so. Reason: a broadcast reaches thousands.
pub(crate) const WRITES_PER_TURN: usize = 256;

/// The connections of one shard that have something to be written.
#[derive(Default)]
pub(crate) struct Writer {
    due: RefCell<Vec<ConnId>>,
    waker: Cell<Option<Waker>>,
}

impl Writer {
    /// This connection has a send, and its task waits.
    pub(crate) fn add(&self, conn: ConnId) {
        self.due.borrow_mut().push(conn);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    /// Ready, with what is due, once something is.
    async fn due(&self, into: &mut Vec<ConnId>) {
        poll_fn(|cx| {
            std::mem::swap(&mut *self.due.borrow_mut(), into);
            if !into.is_empty() {
                return Poll::Ready(());
            }
            self.waker.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
    }
}

/// Writes whenever something is due; never ends.
pub(crate) async fn serve(local: Rc<Local>) {
    let mut due = Vec::new();
    loop {
        local.writer().due(&mut due).await;
        for part in due.chunks(WRITES_PER_TURN) {
            write_for(&local, part);
            if part.len() == WRITES_PER_TURN {
                local.turn().pass().await;
            }
        }
        due.clear();
    }
}

fn write_for(local: &Rc<Local>, due: &[ConnId]) {
    let mut spent = 0;
    for &id in due {
        let Some(conn) = local.conn(id) else { continue };
        if spent < BYTES_PER_TURN
            && let Some(Written::Bytes(bytes)) = connection::write(local, &conn)
        {
            spent += bytes;
        }
        conn.wrote();
    }
}
