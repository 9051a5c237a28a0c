//! Requests of 2026-07-28, which have no session: what each says of itself, in its body and its head.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::request::Request;

/// The revision.
pub const JULY: &str = "2026-07-28";
/// The key in `_meta` of the revision.
pub const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The key in `_meta` of what a client can do.
pub const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";

/// A message with what its params must say of itself. What its `_meta` says already stays.
pub fn said(message: &Value) -> Value {
    said_by(message, json!({}))
}

/// The same of a client that can do this.
pub fn said_by(message: &Value, capabilities: Value) -> Value {
    let mut message = message.clone();
    if !message["params"].is_object() {
        message["params"] = json!({});
    }
    let meta = &mut message["params"]["_meta"];
    if !meta.is_object() {
        *meta = json!({});
    }
    for (key, value) in [(VERSION, json!(JULY)), (CAPABILITIES, capabilities)] {
        if meta.get(key).is_none() {
            meta[key] = value;
        }
    }
    message
}

/// A POST of a message of a client that can do nothing.
pub fn alone(host: SocketAddr, message: &Value) -> Request {
    mirrored(host, &said(message))
}

/// A POST of a message as it is, with the head that repeats it.
pub fn mirrored(host: SocketAddr, message: &Value) -> Request {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let method = text(&message["method"]);
    let request = Request::post(host, message).with("MCP-Protocol-Version", JULY).with("Mcp-Method", &method);
    match &*method {
        "tools/call" | "prompts/get" => request.with("Mcp-Name", &text(&message["params"]["name"])),
        "resources/read" => request.with("Mcp-Name", &text(&message["params"]["uri"])),
        _ => request,
    }
}
