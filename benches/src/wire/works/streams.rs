//! Attached streams: what an event, and what silence, costs a server that has thousands of them.

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::thread;
use std::time::Duration;

use serde_json::json;

use super::{Measured, Setting, cpu, sessions};
use crate::load::{Connection, Session, get};
use crate::process::Process;

/// Streams at once.
const ATTACHED: usize = 10_000;

/// Opens a connection for each of these requests, which stays on its stream.
pub(super) fn attach(address: SocketAddr, requests: &[Vec<u8>]) -> io::Result<Vec<TcpStream>> {
    let attached = requests.iter().map(|request| {
        let mut connection = Connection::open(address)?;
        connection.ask(request, "200")?;
        Ok(connection.into_socket())
    });
    attached.collect()
}

/// Processor time of one event to one of many streams that get one each second.
fn ticking(setting: &Setting, server: &Process, requests: &[Vec<u8>]) -> Measured {
    let seconds = if setting.is_smoke() { 1 } else { 10 };
    let held = attach(server.address, requests)?;
    thread::sleep(Duration::from_secs(1));
    let cost = cpu(server, requests.len() * seconds, || {
        // Nobody reads: what comes is far less than what a socket takes.
        thread::sleep(Duration::from_secs(seconds as u64));
        Ok(())
    });
    drop(held);
    cost
}

pub(crate) fn tick(setting: &Setting, shards: usize) -> Measured {
    // At once, where it would wait a little whether the answer comes so soon that it needs no stream.
    let server = setting.rejoin(&["--response", "sse"], shards)?;
    let count = setting.times(ATTACHED);
    let arguments = json!({ "count": 60, "interval_ms": 1000, "payload_bytes": 60 });
    let sessions = sessions(server.address, count)?;
    ticking(setting, &server, &sessions.iter().map(|session| session.call(1, "ticker", arguments.clone())).collect::<Vec<_>>())
}

pub(crate) fn tick_axum(setting: &Setting) -> Measured {
    let (server, count) = (setting.peer("axum")?, setting.times(ATTACHED));
    ticking(setting, &server, &vec![get(server.address, "/tick", ""); count])
}

/// Processor time of a keep-alive comment on a stream that is silent otherwise.
pub(crate) fn keep_alive(setting: &Setting) -> Measured {
    let (server, count) = (setting.rejoin(&["--keep-alive", "1s"], 1)?, setting.times(ATTACHED));
    let sessions = sessions(server.address, count)?;
    ticking(setting, &server, &sessions.iter().map(Session::listen).collect::<Vec<_>>())
}
