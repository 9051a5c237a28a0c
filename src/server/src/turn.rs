//! Turns of a shard's event loop: how a task with more to do lets everything else go first.
//!
//! A task of monoio that wakes itself runs again before messages, timers and sockets are looked at, and starves them. Here a task
//! waits for a byte on a socket pair, which only the driver can report: by then it has looked at everything else. Never does work
//! of its own.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::io::{self, Read, Write};
use std::os::unix::net::UnixStream;
use std::rc::Rc;
use std::task::{Poll, Waker};

/// The tasks of one shard that wait for its next turn.
pub(crate) struct Turn {
    number: Cell<u64>,
    waiting: RefCell<Vec<Waker>>,
    bell: UnixStream,
    /// The end that is read, and a second descriptor of it that the loop watches; until `serve` takes them.
    heard: Cell<Option<[UnixStream; 2]>>,
}

impl Turn {
    /// Takes every descriptor that its turns will need: a shard that runs can only die of the want of one.
    pub(crate) fn new() -> io::Result<Self> {
        let (bell, heard) = UnixStream::pair()?;
        bell.set_nonblocking(true)?;
        heard.set_nonblocking(true)?;
        let heard = [heard.try_clone()?, heard];
        Ok(Self { number: Cell::new(0), waiting: RefCell::default(), bell, heard: Cell::new(Some(heard)) })
    }

    /// Ready once the loop has looked at messages, timers and sockets. Needs `serve` to run.
    pub(crate) async fn pass(&self) {
        let before = self.number.get();
        let mut queued = false;
        poll_fn(|cx| {
            if self.number.get() != before {
                return Poll::Ready(());
            }
            if !queued {
                queued = true;
                let mut waiting = self.waiting.borrow_mut();
                waiting.push(cx.waker().clone());
                if waiting.len() == 1 {
                    // A full pipe is a bell that rings already.
                    let _ = (&self.bell).write(&[1]);
                }
            }
            Poll::Pending
        })
        .await;
    }

    /// Lets the waiting tasks pass, turn after turn; ends only when its socket pair fails.
    pub(crate) async fn serve(self: Rc<Self>) -> io::Result<()> {
        let Some([heard, watched]) = self.heard.take() else { return Ok(()) };
        let watched = monoio::net::UnixStream::from_std(watched)?;
        loop {
            watched.readable(false).await?;
            let mut rung = [0; 64];
            while matches!((&heard).read(&mut rung), Ok(read) if read == rung.len()) {}
            self.number.set(self.number.get() + 1);
            for waker in self.waiting.take() {
                waker.wake();
            }
        }
    }
}
