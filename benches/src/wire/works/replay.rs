//! Replay of a log of 60 MiB in frames of 200 bytes: whole to one client, stream after stream, or in as many parts as there are clients.

use std::io;

use super::{FRAME, Measured, Meters, Sample, Setting, finished, threads};
use crate::load::{Connection, closing, get};
use crate::process::Process;

/// How the bytes of a replay are paid: by time, or by the server's processor time.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Paid {
    Time,
    Cpu,
}

/// How often each client has its part.
const ROUNDS: usize = 4;
/// Bytes of the log.
const LOG: usize = 60 << 20;
/// Streams that it is at least made of: one holds 16 MiB (`stream_bytes` of the limits).
const STREAMS: usize = 4;

/// What clients ask for: requests, of which each client has its share, and the least bytes that each answer has.
struct Asked {
    clients: usize,
    requests: Vec<Vec<u8>>,
    least: usize,
}

/// Events of one stream of the log, for so many clients, and how many streams there are.
pub(super) fn streams(setting: &Setting, clients: usize) -> (usize, usize) {
    let streams = clients.max(STREAMS);
    ((LOG as f64 * setting.scale.max(0.01)) as usize / streams / FRAME, streams)
}

impl Asked {
    fn new(clients: usize, events: usize, requests: impl IntoIterator<Item = Vec<u8>>) -> Self {
        // Frames have about as many bytes as asked for.
        Self { clients, requests: requests.into_iter().map(closing).collect(), least: events * FRAME * 9 / 10 }
    }

    /// One client's share, once; says how many bytes it had.
    fn of(&self, server: &Process, client: usize) -> io::Result<usize> {
        let mut total = 0;
        for request in self.requests.iter().skip(client).step_by(self.clients) {
            let mut connection = Connection::open(server.address)?;
            connection.ask(request, "200")?;
            let bytes = connection.discard()?;
            if bytes < self.least {
                return Err(io::Error::other(format!("only {bytes} bytes of {}", self.least)));
            }
            total += bytes;
        }
        Ok(total)
    }
}

/// Has all of it answered, a thread for each client, over and over; nanoseconds a byte.
fn replays(server: &Process, asked: &Asked, rounds: usize, paid: Paid) -> Measured {
    let meters = Meters::read(server)?;
    let bytes = threads(asked.clients, |client| (0..rounds).map(|_| asked.of(server, client)).sum::<io::Result<usize>>())?;
    let (cpu, time, busy) = meters.since()?;
    let cost = match paid {
        Paid::Time => time,
        Paid::Cpu => cpu,
    };
    Ok(Sample { cost: cost.as_nanos() as f64 / bytes.iter().sum::<usize>() as f64, busy: Some(busy) })
}

pub(crate) fn replay(setting: &Setting, clients: usize, paid: Paid, shards: usize) -> Measured {
    let server = setting.rejoin(&["--log-memory", "256MiB", "--stream-events", "1000000"], shards)?;
    let (events, streams) = streams(setting, clients);
    let asked = Asked::new(clients, events, finished(&server, streams, events, FRAME)?);
    replays(&server, &asked, ROUNDS, paid)
}

pub(crate) fn replay_blocking(setting: &Setting, clients: usize, paid: Paid) -> Measured {
    let server = setting.peer("blocking")?;
    let (events, streams) = streams(setting, clients);
    let asked = Asked::new(clients, events, vec![get(server.address, &format!("/{}", events * FRAME), ""); streams]);
    replays(&server, &asked, ROUNDS, paid)
}

pub(crate) fn replay_axum(setting: &Setting, clients: usize) -> Measured {
    let server = setting.peer("axum")?;
    let (events, streams) = streams(setting, clients);
    let asked = Asked::new(clients, events, vec![get(server.address, &format!("/sse/{events}"), ""); streams]);
    replays(&server, &asked, 1, Paid::Cpu)
}
