//! JSON-RPC messages as a client POSTs them: bytes to borrowed envelopes, or the refusal.
//!
//! Strict about the envelope, so that no other parser behind this one reads another message; never looks into `params`, `result` or
//! `error`, and copies nothing but ids and escaped method names.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::id::{Id, IdError};
use super::json::{self, Member};
use crate::limits::Limits;
use crate::refusal::Refusal;

/// What one POST carries.
#[derive(Debug)]
pub enum Body<'a> {
    /// One message.
    One(Message<'a>),
    /// An array of messages, at least one. Whether the revision has batches is the caller's question.
    Batch(Vec<Message<'a>>),
}

/// One JSON-RPC message.
#[derive(Debug)]
pub enum Message<'a> {
    /// To be answered.
    Request(Request<'a>),
    /// Not to be answered.
    Notification(Notification<'a>),
    /// The answer to a request of ours.
    Response(Response<'a>),
}

/// A request.
#[derive(Debug)]
pub struct Request<'a> {
    /// The client's name for it. Clients reuse names: nothing is routed by it.
    pub id: Id,
    /// Unescaped.
    pub method: Cow<'a, str>,
    /// An object or an array, as the client wrote it.
    pub params: Option<&'a RawValue>,
}

/// A notification.
#[derive(Debug)]
pub struct Notification<'a> {
    /// Unescaped.
    pub method: Cow<'a, str>,
    /// An object or an array, as the client wrote it.
    pub params: Option<&'a RawValue>,
}

/// A response.
#[derive(Debug)]
pub struct Response<'a> {
    /// Which request it answers; none on an error about a message whose id the client could not read.
    pub id: Option<Id>,
    /// The `result`, any value; or the `error`, an object.
    pub outcome: Result<&'a RawValue, &'a RawValue>,
}

/// Parses a body: one message, or a batch of at most `limits.batch_messages`.
///
/// Refuses with `ParseError` what is no JSON text in UTF-8 (a byte order mark, trailing bytes) or nests deeper than `limits.json_depth`,
/// and with `InvalidRequest` JSON that is no JSON-RPC 2.0 message of MCP. One bad message refuses its batch: nothing was executed yet.
pub fn parse<'a>(body: &'a [u8], limits: &Limits) -> Result<Body<'a>, Refusal> {
    let text = std::str::from_utf8(body).map_err(|_| Refusal::ParseError)?;
    if json::deeper_than(limits.json_depth, body) {
        return Err(Refusal::ParseError);
    }
    match text.trim_ascii_start().as_bytes().first() {
        Some(b'{') => message(text, limits).map(Body::One),
        Some(b'[') => batch(text, limits).map(Body::Batch),
        _ if json::is_json(body) => Err(Refusal::InvalidRequest("A message must be a JSON object")),
        _ => Err(Refusal::ParseError),
    }
}

fn batch<'a>(text: &'a str, limits: &Limits) -> Result<Vec<Message<'a>>, Refusal> {
    let elements = json::elements(text, limits.batch_messages).map_err(|_| Refusal::ParseError)?;
    if elements.is_empty() {
        return Err(Refusal::InvalidRequest("A batch must not be empty"));
    }
    if elements.len() > limits.batch_messages {
        return Err(Refusal::InvalidRequest("The batch has more messages than this server admits"));
    }
    let mut messages = Vec::with_capacity(elements.len());
    for element in elements {
        if !element.get().starts_with('{') {
            return Err(Refusal::InvalidRequest("Each message of a batch must be a JSON object"));
        }
        messages.push(message(element.get(), limits)?);
    }
    Ok(messages)
}

/// One message; `text` starts with `{` behind any whitespace, so a failure to find its members is a failure to be JSON.
fn message<'a>(text: &'a str, limits: &Limits) -> Result<Message<'a>, Refusal> {
    const NAMES: [&str; 6] = ["jsonrpc", "id", "method", "params", "result", "error"];
    let members = json::members(text, NAMES).map_err(|_| Refusal::ParseError)?;
    if members.iter().any(|member| matches!(member, Member::Repeated)) {
        return Err(Refusal::InvalidRequest("A message must not have a member twice"));
    }
    let [version, id, method, params, result, error] = members.map(Member::one);
    if version.and_then(|version| json::text(version.get())).as_deref() != Some("2.0") {
        return Err(Refusal::InvalidRequest("jsonrpc must be \"2.0\""));
    }
    match method {
        Some(_) if result.is_some() || error.is_some() => {
            Err(Refusal::InvalidRequest("A message must not have both a method and a result or error"))
        }
        Some(method) => call(id, method, params, limits),
        None if params.is_some() => Err(Refusal::InvalidRequest("A message with params must have a method")),
        None => response(id, result, error, limits).map(Message::Response),
    }
}

/// A request or a notification.
fn call<'a>(
    id: Option<&RawValue>,
    method: &'a RawValue,
    params: Option<&'a RawValue>,
    limits: &Limits,
) -> Result<Message<'a>, Refusal> {
    let method = json::text(method.get()).ok_or(Refusal::InvalidRequest("method must be a string"))?;
    // JSON-RPC 2.0, section 4.2: "If present, parameters for the rpc call MUST be provided as a Structured value." Null is none.
    if params.is_some_and(|params| !params.get().starts_with(['{', '['])) {
        return Err(Refusal::InvalidRequest("params must be an object or an array, or be left out"));
    }
    match id {
        None => Ok(Message::Notification(Notification { method, params })),
        // 2025-11-25, basic, "Requests": "Unlike base JSON-RPC, the ID MUST NOT be `null`."
        Some(id) => Ok(Message::Request(Request { id: read_id(id, limits)?, method, params })),
    }
}

fn response<'a>(
    id: Option<&RawValue>,
    result: Option<&'a RawValue>,
    error: Option<&'a RawValue>,
    limits: &Limits,
) -> Result<Response<'a>, Refusal> {
    // JSON-RPC 2.0, section 5: "Either the result member or error member MUST be included, but both members MUST NOT be included."
    let outcome = match (result, error) {
        (Some(result), None) => Ok(result),
        (None, Some(error)) if error.get().starts_with('{') => Err(error),
        (None, Some(_)) => return Err(Refusal::InvalidRequest("error must be an object")),
        (Some(_), Some(_)) => return Err(Refusal::InvalidRequest("A response must not have both a result and an error")),
        (None, None) => return Err(Refusal::InvalidRequest("A message must have a method, a result or an error")),
    };
    let id = match id.filter(|id| id.get() != "null") {
        Some(id) => Some(read_id(id, limits)?),
        // JSON-RPC 2.0, section 5: "If there was an error in detecting the id in the Request object [...], it MUST be Null." MCP's
        // schema of 2025-11-25 lets it be left out.
        None if outcome.is_err() => None,
        None => return Err(Refusal::InvalidRequest("A result must have the id of its request")),
    };
    Ok(Response { id, outcome })
}

fn read_id(id: &RawValue, limits: &Limits) -> Result<Id, Refusal> {
    Id::read(id, limits.id_bytes).map_err(|error| match error {
        IdError::Kind => Refusal::InvalidRequest("id must be a string or an integer of at most 64 bits"),
        IdError::TooLong => Refusal::InvalidRequest("id is longer than this server admits"),
    })
}

#[cfg(test)]
mod tests;
