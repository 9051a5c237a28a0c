//! Resources: a text, bytes, one that changes and tells its subscribers, and as many as a template has names for.
//!
//! Never reads a file: everything is made here.

use percent_encoding::percent_decode_str;
use rejoin::{Reply, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::content;
use crate::context::Context;
use crate::memory::Memory;

/// The text.
pub(crate) const TEXT: &str = "test://static-text";
/// The bytes.
pub(crate) const BINARY: &str = "test://static-binary";
/// The one that changes.
pub(crate) const WATCHED: &str = "test://watched-resource";
/// The template (RFC 6570).
pub(crate) const TEMPLATE: &str = "test://template/{id}/data";

/// What such a request names.
#[derive(Deserialize)]
struct Named {
    uri: String,
}

/// What `resources/list` lists.
pub(crate) fn list() -> Value {
    let resource = |uri: &str, name: &str, description: &str, mime_type: &str| json!({ "uri": uri, "name": name, "description": description, "mimeType": mime_type });
    json!([
        resource(TEXT, "Static text", "A text that never changes.", "text/plain"),
        resource(BINARY, "Static binary", "An image that never changes.", "image/png"),
        resource(
            WATCHED,
            "Watched",
            "Changes with each call of change_watched_resource, and tells who subscribed to it.",
            "text/plain"
        ),
    ])
}

/// What `resources/templates/list` lists.
pub(crate) fn templates() -> Value {
    json!([{ "uriTemplate": TEMPLATE, "name": "Data by id", "description": "Data that names its id.", "mimeType": "application/json" }])
}

/// Answers `resources/read`.
pub(crate) fn read(context: &Context<'_>) -> Result<Reply, RpcError> {
    let Named { uri } = context.call.params()?;
    let contents = contents(&uri, context.shared.changes()).ok_or_else(|| not_found(&uri, context.memory))?;
    Ok(json!({ "contents": [contents] }).into())
}

/// Answers `resources/subscribe`.
pub(crate) fn subscribe(context: &Context<'_>) -> Result<Reply, RpcError> {
    if named(context)? == WATCHED {
        context.shared.watch(context.call.session());
    }
    Ok(json!({}).into())
}

/// Answers `resources/unsubscribe`.
pub(crate) fn unsubscribe(context: &Context<'_>) -> Result<Reply, RpcError> {
    if named(context)? == WATCHED {
        context.shared.unwatch(context.call.session().id());
    }
    Ok(json!({}).into())
}

/// The URI that a request names, if there is such a resource.
fn named(context: &Context<'_>) -> Result<String, RpcError> {
    let Named { uri } = context.call.params()?;
    if contents(&uri, 0).is_some() { Ok(uri) } else { Err(not_found(&uri, context.memory)) }
}

fn contents(uri: &str, changes: u64) -> Option<Value> {
    let text = |mime_type: &str, text: String| json!({ "uri": uri, "mimeType": mime_type, "text": text });
    match uri {
        TEXT => Some(text("text/plain", "This is the content of the static text resource.".into())),
        BINARY => Some(json!({ "uri": uri, "mimeType": "image/png", "blob": content::PNG })),
        WATCHED => Some(text("text/plain", format!("This resource has changed {changes} times."))),
        _ => {
            let id = id_in(uri)?;
            let data = json!({ "id": id, "templateTest": true, "data": format!("Data for ID: {id}") });
            Some(text("application/json", data.to_string()))
        }
    }
}

/// The id in a URI of the template.
fn id_in(uri: &str) -> Option<String> {
    let (before, after) = TEMPLATE.split_once("{id}")?;
    let id = uri.strip_prefix(before)?.strip_suffix(after).filter(|id| !id.is_empty() && !id.contains(['/', '?', '#']))?;
    percent_decode_str(id).decode_utf8().ok().map(Into::into)
}

/// MCP 2025-11-25, "Resources", "Error Handling": "Resource not found: -32002", with the URI in its example's data. MCP 2026-07-28, basic,
/// "Error Codes": "`-32002` — resource not found (2025-11-25 and earlier; replaced by `-32602`)."
fn not_found(uri: &str, memory: &Memory) -> RpcError {
    let data = serde_json::value::to_raw_value(&json!({ "uri": uri })).ok();
    let mut error = RpcError::new(if memory.is_stateless() { -32602 } else { -32002 }, "Resource not found");
    error.data = data;
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_id_is_what_was_put_into_the_template() {
        for (uri, id) in [
            ("test://template/123/data", Some("123")),
            ("test://template/a%20b%2Fc/data", Some("a b/c")),
            ("test://template/ümlaut/data", Some("ümlaut")),
            ("test://template//data", None),
            ("test://template/data", None),
            ("test://template/1/2/data", None),
            ("test://template/1?/data", None),
            ("test://template/%ff/data", None),
            ("test://template/1/data/", None),
            ("test://elsewhere/1/data", None),
        ] {
            assert_eq!(id_in(uri).as_deref(), id, "{uri}");
        }
    }

    #[test]
    fn everything_listed_can_be_read() {
        for resource in list().as_array().expect("a list") {
            let uri = resource["uri"].as_str().expect("a URI");
            let contents = contents(uri, 7).unwrap_or_else(|| panic!("no {uri}"));
            assert_eq!((&contents["uri"], &contents["mimeType"]), (&resource["uri"], &resource["mimeType"]));
        }
    }
}
