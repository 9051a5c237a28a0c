//! A shard's one timer: sleeps until the instant that the kernel asked for.
//!
//! It is set again only when the kernel asks for an earlier instant; a later one is found out when the present one comes, so that
//! deadlines which move with every event cost nothing. Never keeps a deadline of its own.

use std::cell::Cell;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::rc::Rc;
use std::task::{Poll, Waker};
use std::time::Duration;

use rejoin_proto::shard::io::Input;
use rejoin_proto::time::Instant;

use crate::shard::Local;

/// The longest sleep; after it the kernel's instant is looked at again.
const SLEEP_MAX: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause before the kernel is told the time again when it still asks for an instant that has passed.
const INSIST: Duration = Duration::from_millis(5);

/// What the kernel asked for, and who sleeps for it.
#[derive(Default)]
pub(crate) struct Timer {
    wanted: Cell<Option<Instant>>,
    armed: Cell<Option<Instant>>,
    sleeper: Cell<Option<Waker>>,
}

impl Timer {
    /// The kernel wants to be told when `at` has come; what it asked before is void.
    pub(crate) fn want(&self, at: Instant) {
        self.wanted.set(Some(at));
        if self.armed.get().is_none_or(|armed| at < armed)
            && let Some(sleeper) = self.sleeper.take()
        {
            sleeper.wake();
        }
    }
}

/// Tells the kernel the time whenever it asked for it; never ends.
pub(crate) async fn keep(local: Rc<Local>) {
    let timer = local.timer();
    let mut sleep = pin!(monoio::time::sleep(SLEEP_MAX));
    let mut not_before = None;
    loop {
        poll_fn(|cx| {
            let wanted = timer.wanted.get().max(not_before);
            if timer.armed.get().is_none_or(|armed| wanted.is_some_and(|wanted| wanted < armed)) {
                timer.armed.set(wanted);
                let after = wanted.map_or(SLEEP_MAX, |at| local.until(at).min(SLEEP_MAX));
                sleep.as_mut().reset(monoio::time::Instant::now() + after);
            }
            if sleep.as_mut().poll(cx).is_ready() {
                return Poll::Ready(());
            }
            timer.sleeper.set(Some(cx.waker().clone()));
            Poll::Pending
        })
        .await;
        timer.armed.set(None);
        not_before = None;
        if timer.wanted.get().is_some_and(|wanted| wanted <= local.now()) {
            local.input(Input::TimePassed);
            if timer.wanted.get().is_some_and(|wanted| wanted <= local.now()) {
                not_before = Some(local.now() + INSIST);
            }
        }
    }
}
