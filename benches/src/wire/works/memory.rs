//! Memory: of attached idle sessions, the server's own and the kernel's, and of results that are retained.

use std::io;
use std::net::TcpStream;
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::streams::attach;
use super::{Measured, Sample, Sdk, Setting, sessions};
use crate::load::{Connection, Session, get};
use crate::process::{Process, slab};

/// Attached at once: so many that what a server has once does not count.
const ATTACHED: usize = 8_000;

/// Bytes that something grows by, for each of these units, while what the work gives is held.
fn growth(units: usize, size: impl Fn() -> io::Result<u64>, work: impl FnOnce() -> io::Result<Vec<TcpStream>>) -> Measured {
    let before = size()?;
    let held = work()?;
    thread::sleep(Duration::from_millis(500));
    let after = size()?;
    drop(held);
    Ok(Sample::of(after.saturating_sub(before) as f64 / units as f64))
}

/// Attaches new sessions to their standalone streams.
fn attached(server: &Process, count: usize) -> io::Result<Vec<TcpStream>> {
    let sessions = sessions(server.address, count)?;
    attach(server.address, &sessions.iter().map(Session::listen).collect::<Vec<_>>())
}

/// Bytes an attached idle session.
pub(crate) fn idle(setting: &Setting) -> Measured {
    let (server, count) = (setting.rejoin(&[], 1)?, setting.times(ATTACHED));
    growth(count, || server.memory(), || attached(&server, count))
}

/// Attached at once to servers of which some want a hundred times as much for each.
const ATTACHED_OF: usize = 1_000;

/// Bytes an attached idle session of any of the servers.
pub(crate) fn idle_of(setting: &Setting, sdk: Sdk) -> Measured {
    let (server, count) = (sdk.start(setting)?, setting.times(ATTACHED_OF));
    growth(count, || server.memory(), || attached(&server, count))
}

/// Bytes an idle stream.
pub(crate) fn idle_axum(setting: &Setting) -> Measured {
    let (server, count) = (setting.peer("axum")?, setting.times(ATTACHED));
    growth(count, || server.memory(), || attach(server.address, &vec![get(server.address, "/idle", ""); count]))
}

/// Bytes of the kernel's own an attached idle session, both ends of its connection together.
pub(crate) fn kernel(setting: &Setting) -> Measured {
    let (server, count) = (setting.rejoin(&[], 1)?, setting.times(ATTACHED));
    growth(count, slab, || attached(&server, count))
}

pub(crate) fn kernel_axum(setting: &Setting) -> Measured {
    let (server, count) = (setting.peer("axum")?, setting.times(ATTACHED));
    growth(count, slab, || attach(server.address, &vec![get(server.address, "/idle", ""); count]))
}

/// Finished calls a session whose results are retained, and the bytes of each.
const CALLS: usize = 4;
const CALL_BYTES: usize = 300;

/// How many bytes are kept for each byte of a finished call's events.
pub(crate) fn retained(setting: &Setting) -> Measured {
    let count = setting.times(15_000);
    let server = setting.rejoin(&["--response", "sse", "--log-memory", "256MiB"], 1)?;
    let sessions = sessions(server.address, count)?;
    let text = "x".repeat(CALL_BYTES - 90);
    let mut bytes = 0;
    let grown = growth(
        1,
        || server.memory(),
        || {
            let mut connection = Connection::open(server.address)?;
            for session in &sessions {
                for id in 1..=CALLS as u64 {
                    let head = connection.ask(&session.call(id, "echo", json!({ "text": text })), "200")?;
                    let body = connection.body(&head)?;
                    // The opening event is not kept.
                    bytes +=
                        body.split("\n\n").filter(|block| block.contains("jsonrpc")).map(|block| block.len() + 2).sum::<usize>();
                }
            }
            Ok(Vec::new())
        },
    )?;
    Ok(Sample::of(grown.cost / bytes as f64))
}
