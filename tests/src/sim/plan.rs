//! What one seed draws before it begins: the limits, the faults and the habits of its clients and handlers (swarm testing: a mix
//! that leaves something out reaches states that an even mix never does).
//!
//! Never changes while a run lasts.

use std::time::Duration;

use rejoin_proto::limits::Limits;
use rejoin_proto::shard::{Finished, ResponsePolicy};

use super::rng::Rng;

/// What presses on the event log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Pressure {
    /// Nothing: no event may ever be lost before its age.
    Roomy,
    /// A budget of a few KiB.
    Budget,
    /// Streams that hold a few events.
    Stream,
    /// Ages of seconds.
    Age,
    /// All of it.
    Everything,
}

/// What the world may do in a step, in the order of `Plan::actions`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// Bytes reach a shard.
    Up,
    /// Bytes of a send go into the socket.
    Down,
    /// A client reads.
    Read,
    /// A client does something.
    Client,
    /// A handler does something.
    Handler,
    /// Something late happens: a handoff arrives, a death is noticed, another thread's emission is taken.
    Late,
    /// Time passes.
    Time,
    /// A connection is cut, stalls or goes on.
    Fault,
    /// The embedder orders something.
    Command,
}

/// The world's actions.
pub(crate) const ACTIONS: [Action; 9] = [
    Action::Up,
    Action::Down,
    Action::Read,
    Action::Client,
    Action::Handler,
    Action::Late,
    Action::Time,
    Action::Fault,
    Action::Command,
];

/// What a client may do, in the order of `Plan::acts`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Act {
    /// A new `tools/call`.
    Call,
    /// Another request: it may run twice.
    Ask,
    /// The same request again.
    Repost,
    /// A batch.
    Batch,
    /// A notification.
    Note,
    /// A cancellation.
    Cancel,
    /// An answer to a request of the server.
    Respond,
    /// GET without a cursor.
    Listen,
    /// GET with the last id of a stream.
    Resume,
    /// GET with an older id, another's, a forged one.
    Stray,
    /// A request that must be refused for its head or body.
    Flawed,
    /// Somebody else's session, or a dead one.
    Trespass,
    /// DELETE.
    Delete,
    /// `initialize` although there is a session.
    Restart,
}

/// The clients' acts.
pub(crate) const ACTS: [Act; 14] = [
    Act::Call,
    Act::Ask,
    Act::Repost,
    Act::Batch,
    Act::Note,
    Act::Cancel,
    Act::Respond,
    Act::Listen,
    Act::Resume,
    Act::Stray,
    Act::Flawed,
    Act::Trespass,
    Act::Delete,
    Act::Restart,
];

/// One seed's draw.
#[derive(Clone, Debug)]
pub(crate) struct Plan {
    pub(crate) shards: u8,
    pub(crate) clients: usize,
    pub(crate) limits: Limits,
    pub(crate) pressure: Pressure,
    pub(crate) finished: Finished,
    pub(crate) response: ResponsePolicy,
    /// Weights of `ACTIONS`.
    pub(crate) actions: [u32; ACTIONS.len()],
    /// Weights of `ACTS`.
    pub(crate) acts: [u32; ACTS.len()],
    /// Weights of connections whose bytes come singly, in small pieces, in large ones, whole.
    pub(crate) grains: [u32; 4],
    /// Per thousand: a request goes over a connection that is used already.
    pub(crate) reuse: u32,
    /// Per thousand: a client that dies does so silently.
    pub(crate) half_open: u32,
    /// Per thousand: the shell is told of an emission late.
    pub(crate) other_thread: u32,
    /// Most notifications of one call.
    pub(crate) talk: u64,
    /// Weights of payloads of about 0, 100, 1000 and 10 000 bytes.
    pub(crate) sizes: [u32; 4],
    /// Per thousand: a handler's step asks the client something.
    pub(crate) asks: u32,
    /// How late the shell may be with time, in milliseconds.
    pub(crate) lateness: u64,
    /// Bytes that a socket takes while its client reads nothing.
    pub(crate) window: u64,
    /// The bounds on what is remembered of ids are out of reach, so that the oracle knows every row exactly.
    pub(crate) exact_ids: bool,
}

impl Plan {
    /// Draws a plan.
    pub(crate) fn draw(rng: &mut Rng) -> Self {
        let pressure = [Pressure::Roomy, Pressure::Budget, Pressure::Stream, Pressure::Age, Pressure::Everything]
            [rng.weighted(&[30, 30, 15, 10, 15])];
        let exact_ids = rng.chance(800);
        let mut actions = [30, 24, 24, 14, 16, 8, 4, 2, 0];
        let mut acts = [30, 10, 8, 6, 8, 4, 10, 8, 25, 5, 3, 2, 1, 1];
        // Swarm: some of it is left out altogether, some is done a lot.
        for act in &mut acts[1..] {
            *act = *act * [0, 1, 1, 1, 4][rng.index(5)] / [1, 2][rng.index(2)];
        }
        actions[6] = [2, 4, 8][rng.index(3)];
        actions[7] = [0, 1, 2, 6][rng.index(4)];
        Self {
            shards: rng.range(1, 3) as u8,
            clients: rng.range(2, 8) as usize,
            limits: limits(rng, pressure, exact_ids),
            pressure,
            finished: if rng.chance(250) { Finished::MethodNotAllowed } else { Finished::NoContent },
            response: [ResponsePolicy::Auto, ResponsePolicy::Sse, ResponsePolicy::Json][rng.weighted(&[5, 4, 1])],
            actions,
            acts,
            grains: [[0, 0, 1, 6], [0, 1, 3, 6], [1, 3, 3, 3], [3, 3, 1, 0]][rng.weighted(&[4, 4, 3, 1])],
            reuse: *rng.pick(&[0, 300, 700, 950]),
            half_open: *rng.pick(&[0, 200, 700]),
            other_thread: *rng.pick(&[0, 200, 600]),
            talk: *rng.pick(&[0, 3, 12, 60]),
            sizes: *rng.pick(&[[4, 4, 0, 0], [6, 6, 3, 0], [2, 6, 4, 1], [0, 4, 4, 2]]),
            asks: *rng.pick(&[0, 40, 150]),
            lateness: *rng.pick(&[0, 3, 40]),
            window: *rng.pick(&[64, 1 << 10, 16 << 10, 256 << 10]),
            exact_ids,
        }
    }

    /// A payload's size.
    pub(crate) fn size(&self, rng: &mut Rng) -> usize {
        let around = [0, 100, 1_000, 10_000][rng.weighted(&self.sizes)];
        around / 2 + rng.index(around + 1)
    }

    /// How much longer than its limit something may take: the wheel's tick, the shell's lateness, the log's second.
    pub(crate) fn slack(&self) -> u64 {
        1_000 + 2 * 16 + 2 * self.lateness
    }
}

fn seconds(rng: &mut Rng, from: u64, to: u64) -> Duration {
    Duration::from_millis(rng.range(from * 1000, to * 1000))
}

fn limits(rng: &mut Rng, pressure: Pressure, exact_ids: bool) -> Limits {
    let budget = matches!(pressure, Pressure::Budget | Pressure::Everything);
    let stream = matches!(pressure, Pressure::Stream | Pressure::Everything);
    let age = matches!(pressure, Pressure::Age | Pressure::Everything);
    let few = |rng: &mut Rng, from, to| if exact_ids { 1 << 20 } else { rng.range(from, to) as usize };
    Limits {
        connections: [6, 24, 200][rng.weighted(&[1, 2, 5])],
        body_bytes: 64 << 10,
        head_timeout: seconds(rng, 5, 10),
        body_timeout: seconds(rng, 5, 30),
        idle_timeout: seconds(rng, 5, 75),
        write_timeout: seconds(rng, 5, 30),
        close_grace: Duration::from_secs(2),
        sessions: *rng.pick(&[2, 8, 64]),
        session_ttl: seconds(rng, 30, 900),
        unconfirmed_ttl: seconds(rng, 10, 60),
        calls_in_flight: *rng.pick(&[1, 4, 64]),
        call_max_age: seconds(rng, 20, 600),
        client_requests: *rng.pick(&[1, 3, 32]),
        client_request_max_age: seconds(rng, 10, 300),
        seen_ids: few(rng, 2, 20),
        call_records: few(rng, 0, 12),
        finished_streams: if rng.chance(300) { rng.range(0, 6) as usize } else { 1 << 20 },
        subscriptions: *rng.pick(&[1, 256]),
        log_bytes: if budget { rng.range(8 << 10, 256 << 10) as usize } else { 512 << 20 },
        pinned_percent: *rng.pick(&[5, 25, 60]),
        message_bytes: *rng.pick(&[4 << 10, 64 << 10]),
        stream_events: if stream { rng.range(1, 30) } else { 1 << 40 },
        stream_bytes: if stream { rng.range(1 << 10, 32 << 10) as usize } else { 256 << 20 },
        event_ttl: if age { seconds(rng, 2, 30) } else { Duration::from_secs(1 << 30) },
        result_ttl: if age { seconds(rng, 5, 90) } else { Duration::from_secs(1 << 30) },
        send_bytes: *rng.pick(&[1, 300, 8 << 10, 512 << 10]),
        keep_alive: seconds(rng, 5, 20),
        json_grace: Duration::from_millis(*rng.pick(&[0, 5, 50])),
        ..Limits::default()
    }
}
