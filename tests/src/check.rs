//! What every answer must carry, checked whole each time: a refusal is more than its status.
//!
//! The table of codes is copied from the boundary's specification, not from the code under test.

use std::thread;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::http::Head;
use crate::sse::Block;
use crate::wire::{Answer, PATIENCE, Stream};

/// The JSON-RPC code that goes with a refusal's code.
fn rpc_code(code: &str) -> i64 {
    match code {
        "session_expired" => -32001,
        "outcome_unknown" => -32010,
        "parse_error" => -32700,
        "invalid_request" => -32600,
        "method_not_found" => -32601,
        "invalid_params" => -32602,
        "header_mismatch" => -32020,
        "revision_not_served" => -32022,
        _ => -32000,
    }
}

/// What the client should do about a refusal.
fn action(code: &str, reason: Option<&str>) -> &'static str {
    match (code, reason) {
        ("session_expired", Some("forgotten")) | ("outcome_unknown", _) => "verify",
        ("session_expired", _) => "reinitialize",
        ("shed" | "timeout", _) => "reconnect",
        _ => "fix_request",
    }
}

/// Asserts that an answer forbids caching, as every one must.
pub fn never_cached(head: &Head) {
    assert_eq!(head.field("Cache-Control"), Some("no-store"), "{head}");
}

/// Asserts a whole refusal; gives its `data.reason`, if any.
pub fn refused(answer: &Answer, status: u16, code: &str) -> Option<String> {
    let shown = || format!("{}{}", answer.head, String::from_utf8_lossy(&answer.body));
    assert_eq!(answer.status(), status, "{}", shown());
    never_cached(&answer.head);
    assert_eq!(answer.head.field("Rejoin-Verdict"), Some(code), "{}", shown());
    assert_eq!(answer.head.field("Mcp-Session-Id"), None, "a refusal names a session: {}", shown());
    let body = answer.json();
    assert_eq!(body["jsonrpc"], "2.0", "{body}");
    assert!(body.get("result").is_none(), "{body}");
    error(&body["error"], code)
}

/// Asserts a refusal for this reason.
pub fn refused_because(answer: &Answer, status: u16, code: &str, reason: &str) {
    assert_eq!(refused(answer, status, code).as_deref(), Some(reason), "{}", String::from_utf8_lossy(&answer.body));
}

/// Asserts a 404 `session_expired` for this reason.
pub fn expired(answer: &Answer, reason: &str) {
    refused_because(answer, 404, "session_expired", reason);
}

/// Asserts a JSON-RPC error object of ours; gives its `data.reason`.
pub fn error(error: &Value, code: &str) -> Option<String> {
    assert_eq!(error["code"].as_i64(), Some(rpc_code(code)), "{error}");
    assert!(error["message"].as_str().is_some_and(|message| !message.is_empty()), "{error}");
    assert_eq!(error["data"]["code"], code, "{error}");
    let reason = error["data"]["reason"].as_str();
    assert_eq!(error["data"]["action"], action(code, reason), "{error}");
    reason.map(str::to_owned)
}

/// Asserts that an event is the error `outcome_unknown` for the request with this id.
pub fn outcome_unknown(block: &Block, id: impl Into<Value>) {
    let message = block.json();
    assert_eq!(message["id"], id.into(), "{message}");
    error(&message["error"], "outcome_unknown");
}

/// Asserts an accepted notification or response: 202 without a body.
pub fn accepted(answer: &Answer) {
    assert_eq!(answer.status(), 202, "{}{}", answer.head, String::from_utf8_lossy(&answer.body));
    assert!(answer.body.is_empty(), "{:?}", String::from_utf8_lossy(&answer.body));
    never_cached(&answer.head);
}

/// Asserts an answer without a body and with this verdict.
pub fn empty(answer: &Answer, status: u16, verdict: &str) {
    assert_eq!(answer.status(), status, "{}{}", answer.head, String::from_utf8_lossy(&answer.body));
    assert!(answer.body.is_empty());
    assert_eq!(answer.head.field("Rejoin-Verdict"), Some(verdict), "{}", answer.head);
    never_cached(&answer.head);
}

/// Asserts the head of a stream that answers a GET.
pub fn stream_with(stream: &Stream, verdict: &str) {
    assert_eq!(stream.head.field("Rejoin-Verdict"), Some(verdict), "{}", stream.head);
    assert_eq!(stream.head.field("X-Accel-Buffering"), Some("no"), "{}", stream.head);
    never_cached(&stream.head);
}

/// The fields of a `resync`, checked for shape.
#[derive(Debug)]
pub struct Resync {
    /// The event's own id.
    pub id: String,
    /// The cursor that was presented.
    pub requested: Option<String>,
    /// The id of the first event that follows.
    pub earliest: Option<String>,
    /// How many are lost, where it is known.
    pub lost: Option<u64>,
    /// Why.
    pub reason: String,
}

/// Asserts that an event is a whole `resync`.
pub fn resync(block: &Block) -> Resync {
    assert!(block.is_resync(), "no resync: {:?}", block.text);
    let data = block.json();
    let object = data.as_object().expect("an object");
    for name in ["requested", "earliest", "lost", "unrecoverable", "reason"] {
        assert!(object.contains_key(name), "no {name} in {data}");
    }
    assert_eq!(data["unrecoverable"], true, "{data}");
    let text = |name: &str| data[name].as_str().map(str::to_owned);
    let reason = text("reason").unwrap_or_else(|| panic!("no reason in {data}"));
    assert!(["evicted", "overrun"].contains(&reason.as_str()), "{data}");
    Resync {
        id: block.cursor().to_owned(),
        requested: text("requested"),
        earliest: text("earliest"),
        lost: data["lost"].as_u64(),
        reason,
    }
}

/// A cursor's readable parts: incarnation, stream, position.
pub fn place(cursor: &str) -> (u64, u64, u64) {
    let parts: Vec<&str> = cursor.split('.').collect();
    assert_eq!(parts.len(), 4, "{cursor}");
    assert!(cursor.len() <= 64 && cursor.bytes().all(|byte| byte.is_ascii_graphic()), "{cursor}");
    let number = |at: usize| parts[at].parse().unwrap_or_else(|_| panic!("{cursor}"));
    (number(0), number(1), number(2))
}

/// The positions of the events with ids, in order; all must be of one incarnation and stream.
pub fn positions(blocks: &[Block]) -> Vec<u64> {
    let places: Vec<_> = blocks.iter().filter_map(|block| block.id.as_deref()).map(place).collect();
    assert!(places.windows(2).all(|pair| (pair[0].0, pair[0].1) == (pair[1].0, pair[1].1)), "streams mixed: {places:?}");
    places.into_iter().map(|(_, _, position)| position).collect()
}

/// Asserts that something comes to hold.
#[track_caller]
pub fn soon(what: &str, mut holds: impl FnMut() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "never: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}
