//! The embedded server's tools: `echo`, `ticker`, `broadcast`, `rotate`.
//!
//! Never blocks a shard: waiting is the shard's own timers'.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rejoin::{Call, EmitError, Emitted, NotTaken, Reply, RpcError};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Most notifications of one call.
const COUNT_MAX: u32 = 1_000_000;
/// Longest wait between two of them, in milliseconds.
const INTERVAL_MAX: u64 = 60_000;
/// Most padding of one notification, in bytes.
const PAYLOAD_MAX: usize = 1 << 20;
/// Keys counted at once; for one more the oldest is forgotten. Reason: clients choose them, and a storm chooses a new one for each call.
const KEYS_MAX: usize = 65_536;
/// Longest key, in bytes.
const KEY_BYTES_MAX: usize = 256;
/// Notifications without an interval between them, before the rest of the shard has its turn.
const TICKS_PER_TURN: u32 = 32;
/// How often a notification that the log has no room for is tried again, and how long between.
const TRIES: u32 = 100;
const BETWEEN_TRIES: Duration = Duration::from_millis(50);

/// How often a call with each key began in this process: a second execution shows itself.
#[derive(Debug, Default)]
pub(crate) struct Executions(Mutex<Counts>);

#[derive(Debug, Default)]
struct Counts {
    of: HashMap<Arc<str>, u64>,
    /// The keys, the oldest first.
    order: VecDeque<Arc<str>>,
}

impl Executions {
    /// Counts one more beginning under `key`, and says how many there were.
    fn begin(&self, key: &str) -> Result<u64, RpcError> {
        if key.len() > KEY_BYTES_MAX {
            return Err(RpcError::invalid_params(format_args!("key: at most {KEY_BYTES_MAX} bytes, got {}", key.len())));
        }
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.of.get_mut(key) {
            *count += 1;
            return Ok(*count);
        }
        if counts.order.len() == KEYS_MAX
            && let Some(oldest) = counts.order.pop_front()
        {
            counts.of.remove(&oldest);
        }
        let key: Arc<str> = key.into();
        counts.order.push_back(Arc::clone(&key));
        counts.of.insert(key, 1);
        Ok(1)
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Echo {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Ticker {
    #[serde(default = "ten")]
    count: u32,
    #[serde(default = "a_tenth")]
    interval_ms: u64,
    #[serde(default)]
    payload_bytes: usize,
    #[serde(default)]
    key: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Broadcast {
    #[serde(default = "ten")]
    count: u32,
    #[serde(default = "a_tenth")]
    interval_ms: u64,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Rotate {}

/// The params of `notifications/message`, written without a tree of values: ten thousand sessions tick at once.
#[derive(Serialize)]
struct LogMessage<'a> {
    data: Tick<'a>,
    level: &'static str,
    logger: &'static str,
}

#[derive(Serialize)]
struct Tick<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pad: Option<&'a str>,
    tick: u32,
}

fn ten() -> u32 {
    10
}

fn a_tenth() -> u64 {
    100
}

/// What `tools/list` lists.
pub(crate) fn list() -> Value {
    let count = json!({ "type": "integer", "minimum": 0, "maximum": COUNT_MAX, "default": ten() });
    let interval = json!({ "type": "integer", "minimum": 0, "maximum": INTERVAL_MAX, "default": a_tenth() });
    let payload = json!({ "type": "integer", "minimum": 0, "maximum": PAYLOAD_MAX, "default": 0 });
    let object = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    let tool =
        |name: &str, description: &str, schema: Value| json!({ "name": name, "description": description, "inputSchema": schema });
    json!([
        tool("echo", "Gives the text back.", object(json!({ "text": { "type": "string" } }), json!(["text"]))),
        tool(
            "ticker",
            "Emits numbered notifications on the call's own stream, then says how often a call with this key began.",
            object(
                json!({
                    "count": count, "interval_ms": interval, "payload_bytes": payload,
                    "key": { "type": "string", "maxLength": KEY_BYTES_MAX, "default": "" },
                }),
                json!([]),
            ),
        ),
        tool(
            "broadcast",
            "Emits numbered notifications on the session's standalone stream.",
            object(json!({ "count": count, "interval_ms": interval }), json!([])),
        ),
        tool("rotate", "Gives the session a new incarnation, right after the answer.", object(json!({}), json!([]))),
    ])
}

/// Runs a tool.
pub(crate) async fn run(name: &str, arguments: Value, call: &Call, executions: &Executions) -> Result<Reply, RpcError> {
    match name {
        "echo" => {
            let Echo { text } = read(arguments)?;
            Ok(text_result(&text))
        }
        "ticker" => ticker(read(arguments)?, call, executions).await,
        "broadcast" => broadcast(read(arguments)?, call).await,
        "rotate" => {
            let Rotate {} = read(arguments)?;
            // The answer must be in the log before the life that it belongs to ends.
            let _ = call.respond(text_content("The session has a new incarnation.")).await;
            let _ = call.session().rotate().await;
            Ok(Reply::Later)
        }
        other => Err(RpcError::invalid_params(format_args!("unknown tool: {other}"))),
    }
}

async fn ticker(arguments: Ticker, call: &Call, executions: &Executions) -> Result<Reply, RpcError> {
    let Ticker { count, interval_ms, payload_bytes, key } = arguments;
    check_pace(count, interval_ms)?;
    if payload_bytes > PAYLOAD_MAX {
        return Err(RpcError::invalid_params(format_args!("payload_bytes: at most {PAYLOAD_MAX}, got {payload_bytes}")));
    }
    let executions = executions.begin(&key)?;
    let pad = "x".repeat(payload_bytes);
    for tick in 1..=count {
        pause(interval_ms, tick).await;
        if call.wants_progress() {
            said(|| call.progress(tick.into(), Some(count.into()), Some(&pad))).await?;
        } else {
            let params = LogMessage { data: Tick { pad: Some(&pad), tick }, level: "info", logger: "ticker" };
            said(|| call.notify("notifications/message", &params)).await?;
        }
    }
    // Spelt out, since a map would sort its keys; the key is a string, which JSON writes with its quotes.
    Ok(text_result(&format!(r#"{{"ticks":{count},"key":{},"executions":{executions}}}"#, Value::from(key))))
}

async fn broadcast(arguments: Broadcast, call: &Call) -> Result<Reply, RpcError> {
    let Broadcast { count, interval_ms } = arguments;
    check_pace(count, interval_ms)?;
    for tick in 1..=count {
        pause(interval_ms, tick).await;
        let params = LogMessage { data: Tick { pad: None, tick }, level: "info", logger: "broadcast" };
        said(|| call.session().notify("notifications/message", &params)).await?;
    }
    Ok(text_result(&json!({ "broadcast": count }).to_string()))
}

/// Waits between two notifications. Without an interval they come as fast as the shard goes, which has other things to do as well.
async fn pause(interval_ms: u64, tick: u32) {
    if interval_ms > 0 {
        rejoin::sleep(Duration::from_millis(interval_ms)).await;
    } else if tick.is_multiple_of(TICKS_PER_TURN) {
        rejoin::yield_now().await;
    }
}

fn check_pace(count: u32, interval_ms: u64) -> Result<(), RpcError> {
    if count > COUNT_MAX {
        return Err(RpcError::invalid_params(format_args!("count: at most {COUNT_MAX}, got {count}")));
    }
    if interval_ms > INTERVAL_MAX {
        return Err(RpcError::invalid_params(format_args!("interval_ms: at most {INTERVAL_MAX}, got {interval_ms}")));
    }
    Ok(())
}

/// Says something once; where the log has no room for it at the moment, again a little later.
async fn said<F: Future<Output = Result<Emitted, EmitError>>>(say: impl Fn() -> F) -> Result<(), RpcError> {
    for _ in 0..TRIES {
        match say().await {
            Ok(_) => return Ok(()),
            Err(EmitError::NotTaken(NotTaken::LogFull)) => rejoin::sleep(BETWEEN_TRIES).await,
            Err(error) => return Err(RpcError::internal(error)),
        }
    }
    Err(RpcError::internal("the event log has had no room for too long"))
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, RpcError> {
    serde_json::from_value(arguments).map_err(RpcError::invalid_params)
}

fn text_content(text: &str) -> Value {
    json!({ "content": [{ "type": "text", "text": text }] })
}

fn text_result(text: &str) -> Reply {
    text_content(text).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_counted_until_too_many_newer_ones_came() {
        let executions = Executions::default();
        let begin = |key: &str| executions.begin(key).expect("a short key");
        assert_eq!([begin("first"), begin("first"), begin("second")], [1, 2, 1]);
        for other in 2..KEYS_MAX {
            begin(&other.to_string());
        }
        assert_eq!(begin("first"), 3, "as many as are counted at once");
        begin("one more");
        assert_eq!([begin("second"), begin("first")], [2, 1], "the oldest is forgotten");
        assert!(executions.begin(&"k".repeat(KEY_BYTES_MAX + 1)).is_err());
    }
}
