//! What an oracle reads in a JSON-RPC message, and no more.
//!
//! Never fails: what is no message of interest is `Other`.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The JSON-RPC error code of rejoin's `outcome_unknown`.
pub(super) const OUTCOME_UNKNOWN: i64 = -32010;

/// A message on a call's stream.
#[derive(Debug)]
pub(super) enum Message {
    /// A numbered notification.
    Tick(Tick),
    /// A result for this id; what the ticker's says, where it is one.
    Answer { id: Box<str>, result: Option<TickerResult> },
    /// An error for this id.
    Error { id: Option<Box<str>>, code: i64 },
    /// Any other.
    Other,
}

/// A numbered notification.
#[derive(Debug)]
pub(super) struct Tick {
    /// Whose; `notifications/message` does not say.
    pub(super) token: Option<Box<str>>,
    /// Its number, from 1.
    pub(super) number: u32,
}

/// The text of the ticker's result.
#[derive(Debug, Deserialize)]
pub(super) struct TickerResult {
    pub(super) ticks: u32,
    pub(super) key: Box<str>,
    pub(super) executions: u64,
}

#[derive(Deserialize)]
struct Raw<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RawError>,
}

#[derive(Deserialize)]
struct RawError {
    code: i64,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Progress<'a> {
    #[serde(borrow)]
    progress_token: &'a RawValue,
    progress: f64,
}

#[derive(Deserialize)]
struct Logged {
    data: LoggedTick,
}

#[derive(Deserialize)]
struct LoggedTick {
    tick: u32,
}

#[derive(Deserialize)]
struct RawResult<'a> {
    #[serde(borrow)]
    content: Vec<Content<'a>>,
}

#[derive(Deserialize)]
struct Content<'a> {
    #[serde(borrow)]
    text: Option<Cow<'a, str>>,
}

#[derive(Deserialize)]
struct RawResync {
    lost: Option<u64>,
}

impl Message {
    /// Reads an event's data.
    pub(super) fn read(data: &str) -> Self {
        let Ok(raw) = serde_json::from_str::<Raw<'_>>(data) else { return Self::Other };
        if let Some(method) = raw.method {
            return tick(&method, raw.params).map_or(Self::Other, Self::Tick);
        }
        if let Some(error) = raw.error {
            return Self::Error { id: raw.id.filter(|id| id.get() != "null").map(name), code: error.code };
        }
        match (raw.id, raw.result) {
            (Some(id), Some(result)) => Self::Answer { id: name(id), result: ticker_result(result) },
            _ => Self::Other,
        }
    }
}

/// How many events a `resync` says are lost; `None` when it does not know.
pub(super) fn lost(data: &str) -> Option<u64> {
    serde_json::from_str::<RawResync>(data).ok()?.lost
}

/// An id or a token as text: strings without their quotes.
fn name(raw: &RawValue) -> Box<str> {
    serde_json::from_str::<Box<str>>(raw.get()).unwrap_or_else(|_| raw.get().into())
}

fn tick(method: &str, params: Option<&RawValue>) -> Option<Tick> {
    let params = params?.get();
    match method {
        "notifications/progress" => {
            let Progress { progress_token, progress } = serde_json::from_str(params).ok()?;
            // A whole number that a tick can have; `as` saturates, and what it makes of others is compared away.
            let number = progress as u32;
            (f64::from(number) == progress && number > 0).then(|| Tick { token: Some(name(progress_token)), number })
        }
        "notifications/message" => {
            let Logged { data: LoggedTick { tick } } = serde_json::from_str(params).ok()?;
            (tick > 0).then_some(Tick { token: None, number: tick })
        }
        _ => None,
    }
}

fn ticker_result(result: &RawValue) -> Option<TickerResult> {
    let RawResult { content } = serde_json::from_str(result.get()).ok()?;
    content.iter().filter_map(|content| content.text.as_deref()).find_map(|text| serde_json::from_str(text).ok())
}
