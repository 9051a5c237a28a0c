//! Replay of a 64 MiB log in frames of 200 bytes: whole to one client, or in as many parts as there are clients.

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

/// Has each of these requests answered at once, a thread each, over and over; nanoseconds a byte. Every answer has at least so many bytes.
fn replays(server: &Process, requests: &[Vec<u8>], least: usize, rounds: usize, paid: Paid) -> Measured {
    let meters = Meters::read(server)?;
    let bytes = threads(requests.len(), |number| {
        (0..rounds)
            .map(|_| {
                let mut connection = Connection::open(server.address)?;
                connection.ask(&requests[number], "200")?;
                let bytes = connection.discard()?;
                if bytes < least { Err(io::Error::other(format!("only {bytes} bytes of {least}"))) } else { Ok(bytes) }
            })
            .sum::<io::Result<usize>>()
    })?;
    let (cpu, time, busy) = meters.since()?;
    let cost = match paid {
        Paid::Time => time,
        Paid::Cpu => cpu,
    };
    Ok(Sample { cost: cost.as_nanos() as f64 / bytes.iter().sum::<usize>() as f64, busy: Some(busy) })
}

/// Events of a client's part of the log, and their bytes.
fn part(setting: &Setting, clients: usize) -> (usize, usize) {
    let events = (((64 << 20) as f64 * setting.scale.max(0.01)) as usize) / clients / FRAME;
    // Frames have about as many bytes as asked for.
    (events, events * FRAME * 9 / 10)
}

pub(crate) fn replay(setting: &Setting, clients: usize, paid: Paid, shards: usize) -> Measured {
    let server = setting.rejoin(&["--log-memory", "256MiB", "--stream-events", "1000000"], shards)?;
    let (events, bytes) = part(setting, clients);
    let requests: Vec<_> = finished(&server, clients, events, FRAME)?.into_iter().map(closing).collect();
    replays(&server, &requests, bytes, ROUNDS, paid)
}

pub(crate) fn replay_blocking(setting: &Setting, clients: usize, paid: Paid) -> Measured {
    let server = setting.peer("blocking")?;
    let (events, bytes) = part(setting, clients);
    let requests = vec![get(server.address, &format!("/{}", events * FRAME), ""); clients];
    replays(&server, &requests, bytes, ROUNDS, paid)
}

pub(crate) fn replay_axum(setting: &Setting, clients: usize) -> Measured {
    let server = setting.peer("axum")?;
    let (events, bytes) = part(setting, clients);
    let requests = vec![closing(get(server.address, &format!("/sse/{events}"), "")); clients];
    replays(&server, &requests, bytes, 1, Paid::Cpu)
}
