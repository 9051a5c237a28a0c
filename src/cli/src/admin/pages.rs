//! The pages of the admin listener: what each path shows, and when the server is ready.
//!
//! Never waits for anything but the shards' answers, within a bound.

use std::fmt::Write;
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use prometheus_client::encoding::prometheus_text;
use prometheus_client::registry::Registry;
use rejoin::metrics::{self, PATIENCE};
use rejoin::{ServerHandle, ShardState, ShardStats};

use crate::gateway::{self, Plant};

/// How long a server that had no room for something is not ready. Reason: long enough for a balancer's next probe to see it.
const SHED_RECENTLY: Duration = Duration::from_secs(10);

const TEXT: &str = "text/plain; charset=utf-8";
/// Prometheus' text format.
const METRICS: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What a path shows.
#[derive(Debug)]
pub(super) struct Page {
    pub status: StatusCode,
    pub kind: &'static str,
    pub body: String,
}

impl Page {
    pub(super) fn text(status: StatusCode, body: String) -> Self {
        Self { status, kind: TEXT, body }
    }
}

/// Makes the pages.
pub(super) struct Pages {
    server: ServerHandle,
    registry: Registry,
}

impl Pages {
    pub(super) fn new(server: ServerHandle, plant: Option<Arc<Plant>>) -> Self {
        let mut registry = Registry::default();
        metrics::register(&mut registry, &server);
        if let Some(plant) = plant {
            gateway::register(&mut registry, plant);
        }
        Self { server, registry }
    }

    /// What there is under a path. May block this thread until the shards have answered.
    pub(super) fn page(&self, path: &str) -> Page {
        match path {
            "/metrics" => self.metrics(),
            "/healthz" => Page::text(StatusCode::OK, "ok\n".into()),
            "/readyz" => ready(&self.server.stats(PATIENCE)),
            "/debug/shards" => Page::text(StatusCode::OK, self.shards()),
            _ => Page::text(StatusCode::NOT_FOUND, "Here are /metrics, /healthz, /readyz and /debug/shards\n".into()),
        }
    }

    fn metrics(&self) -> Page {
        let mut body = String::new();
        match prometheus_text::encode(&mut body, &self.registry) {
            Ok(()) => Page { status: StatusCode::OK, kind: METRICS, body },
            Err(error) => Page::text(StatusCode::INTERNAL_SERVER_ERROR, format!("{error}\n")),
        }
    }

    fn shards(&self) -> String {
        let mut text = format!("{} on {}\n", self.server.driver(), self.server.local_addr());
        for (shard, stats) in self.server.stats(PATIENCE).iter().enumerate() {
            // Writing to a string cannot fail.
            let _ = writeln!(text, "\nshard {shard}");
            stats.to_string().lines().for_each(|line| text.extend(["  ", line, "\n"]));
        }
        text
    }
}

/// 200, or 503 with every reason why the server wants no new clients.
fn ready(stats: &[ShardStats]) -> Page {
    let mut reasons = Vec::new();
    // One that has ended has drained.
    let known: Vec<_> = stats.iter().filter_map(|stats| stats.state.snapshot()).map(|snapshot| &snapshot.kernel).collect();
    if known.iter().any(|shard| shard.draining) {
        reasons.push("draining".to_owned());
    }
    for (shard, _) in stats.iter().enumerate().filter(|(_, stats)| matches!(stats.state, ShardState::Unresponsive)) {
        reasons.push(format!("shard {shard} does not answer"));
    }
    // One full shard of several: a session is placed on another.
    if !known.is_empty() && known.iter().all(|shard| shard.sessions >= shard.sessions_max) {
        reasons.push("shedding: as many sessions as there may be".to_owned());
    }
    if !known.is_empty() && known.iter().all(|shard| shard.connections >= shard.connections_max) {
        reasons.push("shedding: as many connections as there may be".to_owned());
    }
    if known.iter().filter_map(|shard| shard.overloaded).any(|ago| ago < SHED_RECENTLY) {
        reasons.push(format!("shedding: there was no room for something within the last {} s", SHED_RECENTLY.as_secs()));
    }
    if reasons.is_empty() {
        return Page::text(StatusCode::OK, "ready\n".into());
    }
    Page::text(StatusCode::SERVICE_UNAVAILABLE, reasons.iter().fold(String::new(), |text, reason| text + reason + "\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rejoin::ShardSnapshot;
    use rejoin::counters::Snapshot;

    fn shard(change: impl FnOnce(&mut Snapshot)) -> ShardStats {
        let mut kernel = Snapshot { sessions_max: 2, connections_max: 2, ..Snapshot::default() };
        change(&mut kernel);
        let state = ShardState::Running(Arc::new(ShardSnapshot { kernel, tasks: 0, client_requests: 0 }));
        ShardStats { state, mail_waiting: 0 }
    }

    fn said(stats: &[ShardStats]) -> (u16, String) {
        let page = ready(stats);
        (page.status.as_u16(), page.body)
    }

    #[test]
    fn a_server_with_room_is_ready() {
        let full = |shard: &mut Snapshot| (shard.sessions, shard.connections) = (2, 2);
        assert_eq!(said(&[shard(full), shard(|_| {})]), (200, "ready\n".into()), "one full shard of two");
        let shed_long_ago = shard(|shard| shard.overloaded = Some(SHED_RECENTLY));
        assert_eq!(said(&[shed_long_ago]).0, 200);
    }

    #[test]
    fn each_reason_not_to_be_ready_is_said() {
        let unready = |stats: ShardStats, word: &str| {
            let (status, body) = said(&[shard(|_| {}), stats]);
            assert!(status == 503 && body.contains(word) && body.lines().count() == 1, "{status} {body}");
        };
        unready(shard(|shard| shard.draining = true), "draining");
        unready(shard(|shard| shard.overloaded = Some(SHED_RECENTLY - Duration::from_millis(1))), "no room");
        unready(ShardStats { state: ShardState::Unresponsive, mail_waiting: 9 }, "shard 1 does not answer");
        let (status, body) = said(&[shard(|shard| (shard.sessions, shard.connections) = (2, 2))]);
        assert!(status == 503 && body.contains("sessions") && body.contains("connections"), "{body}");
    }
}
