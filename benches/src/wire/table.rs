//! The table: every work with its peer and its target.
//!
//! Never measures.

use crate::works::{self, Beside, Measured, Paid, Sample, Sdk, Setting};

/// Something to be measured on both sides.
pub(crate) struct Work {
    pub(crate) name: &'static str,
    pub(crate) unit: &'static str,
    pub(crate) against: &'static str,
    /// What the ratio should be, of the peer's cost to ours.
    pub(crate) target: &'static str,
    pub(crate) here: fn(&Setting) -> Measured,
    /// What the peer's cost is; `None` where the figure stands alone.
    pub(crate) there: Option<fn(&Setting) -> Measured>,
}

/// Sessions of a server that has many, and of one that has few.
fn many(setting: &Setting) -> usize {
    if setting.is_smoke() { 20 } else { 15_000 }
}

fn few(setting: &Setting) -> usize {
    if setting.is_smoke() { 10 } else { 100 }
}

pub(crate) const WORKS: &[Work] = &[
    Work {
        name: "replay, 1 client",
        unit: "ns a byte",
        against: "a blocking write loop",
        target: "≥ 0.9",
        here: |setting| works::replay(setting, 1, Paid::Time, 1),
        there: Some(|setting| works::replay_blocking(setting, 1, Paid::Time)),
    },
    Work {
        name: "replay, 64 clients",
        unit: "ns a byte",
        against: "a blocking write loop",
        target: "≥ 0.9",
        here: |setting| works::replay(setting, 64, Paid::Time, 1),
        there: Some(|setting| works::replay_blocking(setting, 64, Paid::Time)),
    },
    Work {
        name: "replay, CPU, 1 client",
        unit: "CPU ns a byte",
        against: "axum `Sse`",
        target: "≥ 10",
        here: |setting| works::replay(setting, 1, Paid::Cpu, 1),
        there: Some(|setting| works::replay_axum(setting, 1)),
    },
    Work {
        name: "replay, CPU, 64 clients",
        unit: "CPU ns a byte",
        against: "axum `Sse`",
        target: "≥ 10",
        here: |setting| works::replay(setting, 64, Paid::Cpu, 1),
        there: Some(|setting| works::replay_axum(setting, 64)),
    },
    Work {
        name: "replay, CPU, 1 client, beside the bytes alone",
        unit: "CPU ns a byte",
        against: "a blocking write loop",
        target: "–",
        here: |setting| works::replay(setting, 1, Paid::Cpu, 1),
        there: Some(|setting| works::replay_blocking(setting, 1, Paid::Cpu)),
    },
    Work {
        name: "reconnect cycle",
        unit: "CPU ns",
        against: "axum, a fixed answer",
        target: "≥ 1.3",
        here: works::here,
        there: Some(works::axum),
    },
    Work {
        name: "reconnect cycle, beside the system calls alone",
        unit: "CPU ns",
        against: "a bare epoll loop",
        target: "–",
        here: works::here,
        there: Some(works::bare),
    },
    Work {
        name: "resume, rmcp on axum",
        unit: "CPU ns",
        against: "rmcp on axum",
        target: "≥ 3",
        here: |setting| works::resumes(setting, Sdk::Rejoin),
        there: Some(|setting| works::resumes(setting, Sdk::Rmcp)),
    },
    Work {
        name: "resume, the TypeScript SDK",
        unit: "CPU ns",
        against: "the TypeScript SDK",
        target: "≥ 10",
        here: |setting| works::resumes(setting, Sdk::Rejoin),
        there: Some(|setting| works::resumes(setting, Sdk::Typescript)),
    },
    Work {
        name: "resume, the Python SDK",
        unit: "CPU ns",
        against: "the Python SDK",
        target: "≥ 30",
        here: |setting| works::resumes(setting, Sdk::Rejoin),
        there: Some(|setting| works::resumes(setting, Sdk::Python)),
    },
    Work {
        name: "tools/call echo",
        unit: "CPU ns",
        against: "rmcp on axum",
        target: "≥ 3",
        here: |setting| works::call(setting, 1),
        there: Some(works::call_rmcp),
    },
    Work {
        name: "tools/call echo, beside the system calls alone",
        unit: "CPU ns",
        against: "a bare epoll loop",
        target: "–",
        here: |setting| works::call(setting, 1),
        there: Some(works::call_bare),
    },
    Work {
        name: "an attached idle session",
        unit: "bytes",
        against: "axum `Sse`",
        target: "≥ 8, ≤ 2,560 bytes",
        here: works::idle,
        there: Some(works::idle_axum),
    },
    Work {
        name: "an attached idle session, the kernel's part of both ends",
        unit: "bytes",
        against: "axum `Sse`",
        target: "–",
        here: works::kernel,
        there: Some(works::kernel_axum),
    },
    Work {
        name: "retained results",
        unit: "bytes kept a byte",
        against: "the bytes themselves",
        target: "≥ 0.4",
        here: works::retained,
        there: Some(|_| Ok(Sample { cost: 1.0, busy: None })),
    },
    Work {
        name: "an event a second to each of 10,000",
        unit: "CPU ns an event",
        against: "axum `Sse`",
        target: "≥ 2",
        here: |setting| works::tick(setting, 1),
        there: Some(works::tick_axum),
    },
    Work {
        name: "a keep-alive a second to each of 10,000",
        unit: "CPU ns a comment",
        against: "–",
        target: "–",
        here: works::keep_alive,
        there: None,
    },
    Work {
        name: "replay, CPU, 1 client, 2 shards",
        unit: "CPU ns a byte",
        against: "1 shard",
        target: "≥ 0.87",
        here: |setting| works::replay(setting, 1, Paid::Cpu, 2),
        there: Some(|setting| works::replay(setting, 1, Paid::Cpu, 1)),
    },
    Work {
        name: "replay, CPU, 64 clients, 2 shards",
        unit: "CPU ns a byte",
        against: "1 shard",
        target: "≥ 0.87",
        here: |setting| works::replay(setting, 64, Paid::Cpu, 2),
        there: Some(|setting| works::replay(setting, 64, Paid::Cpu, 1)),
    },
    Work {
        name: "reconnect cycle, 2 shards",
        unit: "CPU ns",
        against: "1 shard",
        target: "≥ 0.87",
        here: |setting| works::among(setting, 64, 2),
        there: Some(works::here),
    },
    Work {
        name: "tools/call echo, 2 shards",
        unit: "CPU ns",
        against: "1 shard",
        target: "≥ 0.87",
        here: |setting| works::call(setting, 2),
        there: Some(|setting| works::call(setting, 1)),
    },
    Work {
        name: "an event a second to each of 10,000, 2 shards",
        unit: "CPU ns an event",
        against: "1 shard",
        target: "≥ 0.87",
        here: |setting| works::tick(setting, 2),
        there: Some(|setting| works::tick(setting, 1)),
    },
    Work {
        name: "reconnect cycle, 15,000 sessions",
        unit: "CPU ns",
        against: "100 sessions",
        target: "≥ 0.83",
        here: |setting| works::among(setting, many(setting), 1),
        there: Some(|setting| works::among(setting, few(setting), 1)),
    },
    Work {
        name: "tools/call echo, 15,000 sessions",
        unit: "CPU ns",
        against: "100 sessions",
        target: "≥ 0.83",
        here: |setting| works::call_among(setting, many(setting)),
        there: Some(|setting| works::call_among(setting, few(setting))),
    },
    Work {
        name: "p99 of a call beside a replay of 1 GB",
        unit: "µs",
        against: "a call alone",
        target: "–",
        here: |setting| works::call_p99(setting, Beside::Replay),
        there: Some(|setting| works::call_p99(setting, Beside::Nothing)),
    },
    Work {
        name: "p99 of a call beside 100 slow readers",
        unit: "µs",
        against: "a call alone",
        target: "–",
        here: |setting| works::call_p99(setting, Beside::SlowReaders),
        there: Some(|setting| works::call_p99(setting, Beside::Nothing)),
    },
    Work { name: "ready after a start", unit: "ms", against: "–", target: "≤ 50 ms", here: works::ready, there: None },
];
