//! Every bound of the kernel, with its default, its unit and its reason, and what crossing it gives.
//!
//! Nothing else in the kernel names a number that memory or time depends on. Defaults hold a small server.

use std::time::Duration;

/// The bounds of one shard. Counts are of one shard unless they say otherwise; sizes are bytes.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    // ---- connections and heads ----
    /// Connections open at once. One more is closed at once (`shed`). Reason: descriptors, and 1 KiB of state each.
    pub connections: u32,
    /// How long connections may wait to be accepted without a break before those behind them are turned away: 503 `shed`, before anything
    /// of theirs is read. Reason: whoever is let in is then served soon, and the rest know that they must come back.
    pub admission_wait: Duration,
    /// A request head, request line included. More: 431. Reason: no browser or SDK sends more than 8 KiB.
    pub head_bytes: usize,
    /// Fields in a head. More: 431. Reason: the parser's table is of fixed size.
    pub headers: usize,
    /// A request target. More: 414. Reason: our paths are short.
    pub target_bytes: usize,
    /// A request body. More: 413, before it is read where the head says so. Reason: tool arguments with an image fit in 4 MiB.
    pub body_bytes: usize,
    /// Arrays and objects of a body that stand inside each other. More: 400. Reason: handlers' parsers recurse, and stop there as well.
    pub json_depth: usize,
    /// Messages in one batch (revision 2025-03-26). More: 400. Reason: each may be a call.
    pub batch_messages: usize,
    /// From a connection's first byte of a head to the head's end. Longer: 408. Reason: slow-header attacks.
    pub head_timeout: Duration,
    /// From a head's end to its body's end. Longer: 408.
    pub body_timeout: Duration,
    /// A kept-alive connection without a request. Longer: clean close.
    pub idle_timeout: Duration,
    /// How long an answer may take to be written, streams aside. Longer: reset. Reason: a client that reads nothing holds memory.
    pub write_timeout: Duration,
    /// How long a close may wait for bytes already handed over (a takeover's clean end too). Longer: reset.
    pub close_grace: Duration,

    // ---- sessions ----
    /// Sessions alive at once. One more `initialize`: 503 `shed`.
    pub sessions: u32,
    /// Idle time after which a confirmed session expires. A call in flight or an attached connection holds it.
    pub session_ttl: Duration,
    /// The same before `notifications/initialized`. Reason: a scan must not fill the table.
    pub unconfirmed_ttl: Duration,
    /// Calls in flight in one session. One more: 503 `shed`.
    pub calls_in_flight: usize,
    /// A call's age at which it is cancelled and answered `outcome_unknown`. Reason: nothing hangs.
    pub call_max_age: Duration,
    /// Requests to the client not yet answered, of one session. One more fails its handler.
    pub client_requests: usize,
    /// Age at which a request to the client fails its handler and is followed by `notifications/cancelled`.
    pub client_request_max_age: Duration,
    /// Intervals of integer ids, and as many string ids, remembered as seen. Past it the session is treated as marked.
    pub seen_ids: usize,
    /// Bytes of a string id, or of a progress token. Longer: 400. Reason: they are kept.
    pub id_bytes: usize,
    /// Body hashes of calls kept for reposts, of one session. Past it a `tools/call` under a seen id gets `outcome_unknown`.
    pub call_records: usize,
    /// Finished streams whose tombstone is kept, of one session. Past it: 404 `forgotten`.
    pub finished_streams: usize,
    /// Requests without a session in flight at once, streams of changes among them. One more: 503 `shed`. Reason: each has a slot, a
    /// timer and about 600 bytes.
    pub exchanges: u32,
    /// Records of idempotency keys. One more forgets the one that was done first; where none is done: 503 `shed`. Reason: each is some 150
    /// bytes, and holds for a client that asks again.
    pub key_records: usize,
    /// Bytes of the answers that records hold. More: the oldest become `outcome_unknown`.
    pub key_bytes: usize,
    /// Age at which a record that is done goes. Reason: a client asks again within minutes, or not at all.
    pub key_ttl: Duration,
    /// Bytes of an idempotency key. Longer: 400. Reason: a UUID has 36.
    pub key_length: usize,
    /// Calls that wait under one key while another of them runs. One more: 503 `shed`.
    pub key_presenters: usize,
    /// Resource subscriptions remembered, of one session. Past it a `resync` names only those kept.
    pub subscriptions: usize,

    // ---- the event log ----
    /// Memory of the event log, everything counted. Reason: it is the server's one large buffer.
    pub log_bytes: usize,
    /// Share of `log_bytes` that pinned results and requests may take, in percent.
    pub pinned_percent: u8,
    /// One message of a handler, encoded. Larger: refused to the handler (a result becomes an error).
    pub message_bytes: usize,
    /// Events that a stream holds. More: the oldest go.
    pub stream_events: u64,
    /// Bytes that a stream holds. More: the oldest go.
    pub stream_bytes: usize,
    /// Age at which an event goes, at the latest one second after.
    pub event_ttl: Duration,
    /// Age at which a pinned result goes.
    pub result_ttl: Duration,

    // ---- streams on the wire ----
    /// Most bytes handed to a connection at once. Reason: a few long writes, yet fair.
    pub send_bytes: usize,
    /// The `retry` of a stream, before its spread of ±20 %.
    pub retry: Duration,
    /// The largest `retry` that takeovers double it to.
    pub retry_max: Duration,
    /// Takeovers of one stream closer together than this double the loser's `retry`.
    pub takeover_window: Duration,
    /// Silence on a stream after which a comment is sent, and before the head of an answer without a session.
    pub keep_alive: Duration,
    /// How long a session's answer waits to be one JSON body before the stream opens (policy `auto`).
    pub json_grace: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 20_000,
            admission_wait: Duration::from_secs(1),
            head_bytes: 16 << 10,
            headers: 64,
            target_bytes: 2 << 10,
            body_bytes: 4 << 20,
            json_depth: 128,
            batch_messages: 64,
            head_timeout: Duration::from_secs(10),
            body_timeout: Duration::from_secs(30),
            idle_timeout: Duration::from_secs(75),
            write_timeout: Duration::from_secs(30),
            close_grace: Duration::from_secs(2),
            sessions: 20_000,
            session_ttl: Duration::from_secs(30 * 60),
            unconfirmed_ttl: Duration::from_secs(60),
            calls_in_flight: 256,
            call_max_age: Duration::from_secs(60 * 60),
            client_requests: 64,
            client_request_max_age: Duration::from_secs(10 * 60),
            seen_ids: 1_024,
            id_bytes: 256,
            call_records: 4_096,
            finished_streams: 4_096,
            exchanges: 10_000,
            key_records: 65_536,
            key_bytes: 16 << 20,
            key_ttl: Duration::from_secs(30 * 60),
            key_length: 256,
            key_presenters: 256,
            subscriptions: 256,
            log_bytes: 64 << 20,
            pinned_percent: 25,
            message_bytes: 4 << 20,
            stream_events: 10_000,
            stream_bytes: 16 << 20,
            event_ttl: Duration::from_secs(5 * 60),
            result_ttl: Duration::from_secs(30 * 60),
            send_bytes: 512 << 10,
            retry: Duration::from_secs(3),
            retry_max: Duration::from_secs(60),
            takeover_window: Duration::from_secs(10),
            keep_alive: Duration::from_secs(15),
            json_grace: Duration::from_millis(5),
        }
    }
}
