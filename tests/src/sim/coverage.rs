//! What a run reached, counted by name, so that a set of runs can show that it was not vacuous.
//!
//! Never influences a run.

use std::collections::BTreeMap;
use std::fmt;

/// How often each thing was reached.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Coverage {
    counts: BTreeMap<&'static str, u64>,
}

/// Refusals by code and reason, as `Coverage` names them.
const REFUSALS: [(&str, Option<&str>, &str); 25] = [
    ("bad_request", None, "row 0: bad_request"),
    ("forbidden", None, "row 1: forbidden"),
    ("unauthorized", None, "row 2: unauthorized"),
    ("not_acceptable", None, "row 3: not_acceptable"),
    ("unsupported_revision", None, "row 4: unsupported_revision"),
    ("method_not_allowed", None, "refused: method_not_allowed"),
    ("session_required", None, "row 5: session_required"),
    ("session_expired", Some("unknown"), "row 6: unknown"),
    ("session_expired", Some("expired"), "row 6: expired"),
    ("session_expired", Some("deleted"), "row 6: deleted"),
    ("session_expired", Some("closed"), "row 6: closed"),
    ("session_expired", Some("restarted"), "row 6: restarted"),
    ("session_expired", Some("shed"), "row 6: shed"),
    ("invalid_cursor", None, "row 7: invalid_cursor"),
    ("session_expired", Some("incarnation"), "row 8: incarnation"),
    ("session_expired", Some("lineage"), "row 9: lineage"),
    ("session_expired", Some("forgotten"), "row 10: forgotten"),
    ("not_found", None, "refused: not_found"),
    ("timeout", None, "refused: timeout"),
    ("too_large", None, "refused: too_large"),
    ("unsupported_media_type", None, "refused: unsupported_media_type"),
    ("parse_error", None, "refused: parse_error"),
    ("invalid_request", None, "refused: invalid_request"),
    ("shed", None, "refused: shed"),
    ("head_too_large", None, "refused: head_too_large"),
];

/// What the whole set of seeds must reach, each so many times: every row, every kind of output and delivery, every answer to an
/// emission, every end, every fault.
const REQUIRED: [&str; 106] = [
    "row 0: bad_request",
    "row 1: forbidden",
    "row 2: unauthorized",
    "row 3: not_acceptable",
    "row 4: unsupported_revision",
    "row 5: session_required",
    "row 6: unknown",
    "row 6: expired",
    "row 6: deleted",
    "row 6: closed",
    "row 6: restarted",
    "row 7: invalid_cursor",
    "row 8: incarnation",
    "row 9: lineage",
    "row 10: forgotten",
    "row 11: resync",
    "row 12: complete",
    "row 13: tail",
    "row 13: replay",
    "row 14: tail",
    "row 14: replay",
    "row 14: resync",
    "refused: method_not_allowed",
    "refused: not_found",
    "refused: timeout",
    "refused: too_large",
    "refused: unsupported_media_type",
    "refused: parse_error",
    "refused: invalid_request",
    "refused: shed",
    "post: fresh",
    "post: in a marked session",
    "post: repeated and executed again",
    "post: id reused",
    "post: 202",
    "post: answered by a stream",
    "post: answered by json",
    "post: outcome unknown at once",
    "join: answered request left out",
    "delete: 204",
    "options: 204",
    "resync: evicted",
    "resync: overrun",
    "resync: reminder",
    "resync: unknown outcome of a cancelled call",
    "event: notification",
    "event: request",
    "event: result",
    "event: error",
    "event: outcome unknown",
    "event: stand-in for a lost answer",
    "stream: opening event",
    "stream: keep-alive",
    "stream: goodbye with retry",
    "end: complete",
    "end: taken over",
    "end: hung up",
    "delivery: initialize",
    "delivery: request",
    "delivery: notification",
    "delivery: cancelled by client",
    "delivery: cancelled for its age",
    "delivery: cancelled by drain",
    "delivery: cancelled with its session",
    "delivery: cancelled, repeated in a batch",
    "delivery: response, a result",
    "delivery: response, an error",
    "delivery: response, failed",
    "delivery: rotated",
    "closed: expired",
    "closed: deleted",
    "closed: closed",
    "closed: lineage",
    "closed: initialize never answered",
    "took: ok",
    "took: session ended",
    "took: call ended",
    "took: log full",
    "took: too large",
    "took: too many requests",
    "took: json only",
    "took: malformed",
    "output: send",
    "output: read",
    "output: close, clean",
    "output: close, reset",
    "output: handoff",
    "output: handoff of a new session",
    "output: wake at",
    "output: drained",
    "input: sent in part",
    "input: single byte",
    "input: pipelined",
    "input: connection refused",
    "input: herd",
    "fault: cut",
    "fault: half-open",
    "fault: cut in the middle of an event",
    "fault: cut in the middle of a request",
    "fault: cut during a handoff",
    "fault: stalled",
    "fault: time jumped",
    "fault: restart",
    "client: continued after 100",
    "client: came back with its last id",
    "client: got a result",
];

impl Coverage {
    /// Something was reached.
    pub(crate) fn hit(&mut self, name: &'static str) {
        *self.counts.entry(name).or_default() += 1;
    }

    /// A refusal was told.
    pub(crate) fn hit_refusal(&mut self, code: &str, reason: Option<&str>) {
        let row = REFUSALS.iter().find(|(one, why, _)| *one == code && *why == reason);
        self.hit(row.map_or("refused: in a way that no table names", |row| row.2));
    }

    /// How often this was reached.
    pub fn count(&self, name: &str) -> u64 {
        self.counts.get(name).copied().unwrap_or_default()
    }

    /// Adds what another run reached.
    pub fn add(&mut self, other: &Self) {
        for (name, count) in &other.counts {
            *self.counts.entry(name).or_default() += count;
        }
    }

    /// What should have been reached at least so many times, and was not.
    pub fn missing(&self, least: u64) -> Vec<String> {
        let short = REQUIRED.iter().filter(|name| self.count(name) < least);
        short.map(|name| format!("{name}: {} of {least}", self.count(name))).collect()
    }
}

impl fmt::Display for Coverage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, count) in &self.counts {
            writeln!(f, "{count:>12}  {name}")?;
        }
        Ok(())
    }
}
