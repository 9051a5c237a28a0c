//! Tools that are fast or slow as they are asked to be: `echo`, `ticker`, `broadcast`, `rotate`; and the one that changes a resource.
//!
//! Never blocks a shard: waiting is the shard's own timers'.

use std::time::Duration;

use rejoin::Reply;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::{Failure, Nothing, object, result, text_result, tool};
use crate::content;
use crate::context::{Context, said};
use crate::logging::Level;
use crate::resources::WATCHED;
use crate::shared::KEY_BYTES_MAX;
use crate::stateless::Filter;

/// Most notifications of one call.
const COUNT_MAX: u32 = 1_000_000;
/// Longest wait between two of them, in milliseconds.
const INTERVAL_MAX: u64 = 60_000;
/// Most padding of one notification, in bytes.
const PAYLOAD_MAX: usize = 1 << 20;
/// Notifications without an interval between them, before the rest of the shard has its turn.
const TICKS_PER_TURN: u32 = 32;

/// What a log message of these tools says.
#[derive(Serialize)]
struct Tick<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    pad: Option<&'a str>,
    tick: u32,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Echo {
    text: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Ticker {
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
pub(super) struct Broadcast {
    #[serde(default = "ten")]
    count: u32,
    #[serde(default = "a_tenth")]
    interval_ms: u64,
}

fn ten() -> u32 {
    10
}

fn a_tenth() -> u64 {
    100
}

/// Its part of what `tools/list` lists.
pub(super) fn list() -> Vec<Value> {
    let count = json!({ "type": "integer", "minimum": 0, "maximum": COUNT_MAX, "default": ten() });
    let interval = json!({ "type": "integer", "minimum": 0, "maximum": INTERVAL_MAX, "default": a_tenth() });
    let payload = json!({ "type": "integer", "minimum": 0, "maximum": PAYLOAD_MAX, "default": 0 });
    vec![
        tool("echo", "Gives the text back.", object(json!({ "text": { "type": "string" } }), &["text"])),
        tool(
            "ticker",
            "Emits numbered notifications on the call's own stream, then says how often a call with this key began.",
            object(
                json!({
                    "count": count, "interval_ms": interval, "payload_bytes": payload,
                    "key": { "type": "string", "maxLength": KEY_BYTES_MAX, "default": "" },
                }),
                &[],
            ),
        ),
        tool(
            "broadcast",
            "Emits numbered notifications on the session's standalone stream.",
            object(json!({ "count": count, "interval_ms": interval }), &[]),
        ),
        tool("rotate", "Gives the session a new incarnation, right after the answer.", object(json!({}), &[])),
        tool(
            "change_watched_resource",
            "Changes a resource, and tells every session of this server that subscribed to it.",
            object(json!({}), &[]),
        ),
    ]
}

pub(super) fn echo(Echo { text }: Echo) -> Reply {
    text_result(&text)
}

pub(super) async fn ticker(arguments: Ticker, context: &Context<'_>) -> Result<Reply, Failure> {
    let Ticker { count, interval_ms, payload_bytes, key } = arguments;
    check_pace(count, interval_ms)?;
    if payload_bytes > PAYLOAD_MAX {
        return Err(Failure::Arguments(format!("payload_bytes: at most {PAYLOAD_MAX}, got {payload_bytes}")));
    }
    let too_long = || Failure::Arguments(format!("key: at most {KEY_BYTES_MAX} bytes, got {}", key.len()));
    let executions = context.shared.begin(&key).ok_or_else(too_long)?;
    let pad = "x".repeat(payload_bytes);
    for tick in 1..=count {
        pause(interval_ms, tick).await;
        if context.call.wants_progress() {
            said(|| context.call.progress(tick.into(), Some(count.into()), Some(&pad))).await?;
        } else {
            context.log(Level::Info, "ticker", &Tick { pad: Some(&pad), tick }).await?;
        }
    }
    // Spelt out, since a map would sort its keys; the key is a string, which JSON writes with its quotes.
    Ok(text_result(&format!(r#"{{"ticks":{count},"key":{},"executions":{executions}}}"#, Value::from(key))))
}

pub(super) async fn broadcast(arguments: Broadcast, context: &Context<'_>) -> Result<Reply, Failure> {
    let Broadcast { count, interval_ms } = arguments;
    check_pace(count, interval_ms)?;
    for tick in 1..=count {
        pause(interval_ms, tick).await;
        context.log_aside(Level::Info, "broadcast", &Tick { pad: None, tick }).await?;
    }
    Ok(text_result(&json!({ "broadcast": count }).to_string()))
}

pub(super) async fn rotate(Nothing {}: Nothing, context: &Context<'_>) -> Reply {
    // The answer must be in the log before the life that it belongs to ends.
    let _ = context.call.respond(result(&[content::text("The session has a new incarnation.")])).await;
    let _ = context.call.session().rotate().await;
    Reply::Later
}

pub(super) async fn change_watched_resource(Nothing {}: Nothing, context: &Context<'_>) -> Reply {
    let (changes, watchers) = context.shared.change();
    let params = json!({ "uri": WATCHED });
    for watcher in &watchers {
        // One that has ended meanwhile wants to know nothing more; one that has no room is told by the next change.
        let _ = watcher.notify("notifications/resources/updated", &params).await;
    }
    let wants = |filter: &Filter| filter.resource_subscriptions.iter().any(|uri| uri == WATCHED);
    let streams = context.shared.tell("notifications/resources/updated", &params, wants).await;
    let told = watchers.len() + streams;
    text_result(&format!("The resource has changed {changes} times; sessions told: {told}."))
}

/// Waits between two notifications. Without an interval they come as fast as the shard goes, which has other things to do as well.
async fn pause(interval_ms: u64, tick: u32) {
    if interval_ms > 0 {
        rejoin::sleep(Duration::from_millis(interval_ms)).await;
    } else if tick.is_multiple_of(TICKS_PER_TURN) {
        rejoin::yield_now().await;
    }
}

fn check_pace(count: u32, interval_ms: u64) -> Result<(), Failure> {
    if count > COUNT_MAX {
        return Err(Failure::Arguments(format!("count: at most {COUNT_MAX}, got {count}")));
    }
    if interval_ms > INTERVAL_MAX {
        return Err(Failure::Arguments(format!("interval_ms: at most {INTERVAL_MAX}, got {interval_ms}")));
    }
    Ok(())
}
