//! The one place that spawns tasks on a shard: what a panic means, and how a task ends with its shard.
//!
//! A panic of our own code means that the shard's state cannot be trusted; the process ends, loudly, rather than serve with a dead
//! shard. A panic of a handler is caught around the handler's own future, elsewhere ([`Caught`]). Never decides what runs.

use std::any::Any;
use std::cell::{Cell, RefCell};
use std::fmt;
use std::future::Future;
use std::io::{self, Write as _};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use pin_project_lite::pin_project;
use slab::Slab;

/// The tasks of a shard, so that all can be ended before their runtime is.
#[derive(Default)]
pub(crate) struct Tasks {
    wakers: RefCell<Slab<Option<Waker>>>,
    ending: Cell<bool>,
}

impl Tasks {
    /// How many run.
    pub(crate) fn len(&self) -> usize {
        self.wakers.borrow().len()
    }

    /// Makes every task end at its next turn, wherever it waits.
    pub(crate) fn end(&self) {
        self.ending.set(true);
        let waiting: Vec<Waker> = self.wakers.borrow_mut().iter_mut().filter_map(|(_, waker)| waker.take()).collect();
        for waker in waiting {
            waker.wake();
        }
    }

    /// Runs `future` on this shard.
    pub(crate) fn spawn(self: &Rc<Self>, future: impl Future<Output = ()> + 'static) {
        let mut wakers = self.wakers.borrow_mut();
        make_place(&mut wakers);
        let key = wakers.insert(None);
        drop(wakers);
        // The handle is dropped: a task of monoio goes on without it.
        drop(monoio::spawn(Task { future: Some(future), tasks: Rc::clone(self), key, known: false }));
    }
}

/// Makes place for one more entry of a table: by an eighth, since doubling a shard's tables would cost each connection as much again.
pub(crate) fn make_place<T>(table: &mut Slab<T>) {
    if table.len() == table.capacity() {
        table.reserve_exact((table.len() / 8).max(1));
    }
}

pin_project! {
    /// A task with its place among the shard's.
    struct Task<F> {
        #[pin]
        future: Option<F>,
        tasks: Rc<Tasks>,
        key: usize,
        // Whether its place has its waker, which is the same for its whole life: monoio wakes a task by its own header.
        known: bool,
    }

    impl<F> PinnedDrop for Task<F> {
        fn drop(this: Pin<&mut Self>) {
            let mut this = this.project();
            this.future.set(None);
            this.tasks.wakers.borrow_mut().try_remove(*this.key);
        }
    }
}

impl<F: Future<Output = ()>> Future for Task<F> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let mut this = self.project();
        if this.tasks.ending.get() {
            this.future.set(None);
        }
        let Some(future) = this.future.as_pin_mut() else { return Poll::Ready(()) };
        let polled = catch_unwind(AssertUnwindSafe(|| future.poll(cx))).unwrap_or_else(|panic| die(&*panic));
        if polled.is_pending() && !*this.known {
            *this.known = true;
            this.tasks.wakers.borrow_mut()[*this.key] = Some(cx.waker().clone());
        }
        polled
    }
}

/// Ends the process, whose state cannot be trusted: a shard panicked.
pub(crate) fn die(panic: &(dyn Any + Send)) -> ! {
    abort(format_args!("a shard panicked ({})", message(panic)))
}

/// Ends the process when something failed that a shard cannot do without.
pub(crate) fn die_of(what: &str, result: io::Result<()>) {
    if let Err(error) = result {
        abort(format_args!("a shard lost {what} ({error})"));
    }
}

fn abort(why: fmt::Arguments<'_>) -> ! {
    // Whether anybody can read it or not: `eprintln` would panic instead, and the process live on.
    let _ = writeln!(io::stderr(), "rejoin: {why}: the process ends, rather than serve half of its sessions");
    std::process::abort()
}

/// What a panic said.
pub(crate) fn message(panic: &(dyn Any + Send)) -> &str {
    panic.downcast_ref::<&str>().copied().or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("no message")
}

/// A future of someone else's code: its panic is a value, and it is dropped as soon as it panicked.
pub(crate) struct Caught<F>(Option<Pin<Box<F>>>);

impl<F> Caught<F> {
    pub(crate) fn new(future: F) -> Self {
        Self(Some(Box::pin(future)))
    }
}

impl<F: Future> Future for Caught<F> {
    type Output = Result<F::Output, String>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = self.0.as_mut() else { return Poll::Pending };
        match catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(cx))) {
            Ok(polled) => polled.map(Ok),
            Err(panic) => {
                drop_caught(self.0.take());
                Poll::Ready(Err(message(&*panic).to_owned()))
            }
        }
    }
}

impl<F> Drop for Caught<F> {
    fn drop(&mut self) {
        drop_caught(self.0.take());
    }
}

/// Drops a value of someone else's code; a panic of its `drop` stays there.
fn drop_caught<T>(value: T) {
    if let Err(panic) = catch_unwind(AssertUnwindSafe(|| drop(value))) {
        tracing::error!(panic = message(&*panic), "a handler's value panicked while it was dropped");
    }
}
