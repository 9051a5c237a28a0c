//! What a service manager is told of us: that we are ready, that we read something again, that we stop.
//!
//! Does nothing where none waits for it (`NOTIFY_SOCKET` is not set). Never fails: a manager that cannot be told is one line of the log.

use std::ffi::OsStr;

use sd_notify::NotifyState;

/// What a service manager sets for the process that it starts, and for no child of that one.
pub(crate) const VARIABLES: [&str; 3] = ["NOTIFY_SOCKET", "WATCHDOG_PID", "WATCHDOG_USEC"];

/// Whether a service manager waits to be told. It may send SIGHUP, which must not end us then.
pub(crate) fn is_expected() -> bool {
    std::env::var_os(VARIABLES[0]).as_deref().is_some_and(|socket| socket != OsStr::new(""))
}

/// Clients are served, here.
pub(crate) fn ready(url: &str) {
    tell(&[NotifyState::Ready, NotifyState::Status(&format!("Serving {url}"))]);
}

/// Files are being read again; [`reloaded`] follows.
pub(crate) fn reloading() {
    // The time is asked for by `Type=notify-reload`, which takes an older answer for another reload's.
    match NotifyState::monotonic_usec_now() {
        Ok(now) => tell(&[NotifyState::Reloading, now]),
        Err(error) => tracing::warn!(%error, "the service manager was not told that we reload"),
    }
}

/// The files were read again, or are left as they were.
pub(crate) fn reloaded() {
    tell(&[NotifyState::Ready]);
}

/// The server drains, and ends.
pub(crate) fn stopping() {
    tell(&[NotifyState::Stopping, NotifyState::Status("Draining")]);
}

fn tell(state: &[NotifyState<'_>]) {
    if !is_expected() {
        return;
    }
    if let Err(error) = sd_notify::notify(state) {
        tracing::warn!(%error, ?state, "the service manager was not told");
    }
}
