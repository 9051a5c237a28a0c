//! What only clients without a session ask for: what this server is, and a stream of its changes.
//!
//! Never remembers a client: a stream of changes lives as long as its call.

use rejoin::{Call, Reply, Revision, RpcError};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::Shared;
use crate::resources;

/// How long a client may keep a list, in milliseconds. Reason: whoever listens is told of changes; others see them within a minute.
const TTL_MS: u64 = 60_000;
/// Resources that one stream names, at most. Reason: each change is looked up in every stream's list.
const RESOURCES_MAX: usize = 256;

/// The changes that a client wants to hear of. MCP 2026-07-28, subscriptions, "Notification Filter".
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub(crate) struct Filter {
    pub(crate) tools_list_changed: bool,
    pub(crate) prompts_list_changed: bool,
    pub(crate) resource_subscriptions: Vec<String>,
}

#[derive(Deserialize)]
struct Listen {
    notifications: Filter,
}

impl Filter {
    /// The subset that is honoured: "notification types the server does not support are omitted" (the same, "Acknowledgment"). Resources
    /// never come or go here, and only known ones change.
    fn honoured(mut self) -> Self {
        self.resource_subscriptions.retain(|uri| uri == resources::WATCHED);
        self.resource_subscriptions.dedup();
        self
    }

    fn acknowledged(&self) -> Value {
        let mut honoured = Map::new();
        for (name, wanted) in [("toolsListChanged", self.tools_list_changed), ("promptsListChanged", self.prompts_list_changed)] {
            if wanted {
                honoured.insert(name.into(), true.into());
            }
        }
        if !self.resource_subscriptions.is_empty() {
            honoured.insert("resourceSubscriptions".into(), self.resource_subscriptions.clone().into());
        }
        json!({ "notifications": honoured })
    }
}

/// Answers `server/discover`.
pub(crate) fn discover() -> Reply {
    let capabilities = json!({
        "tools": { "listChanged": true },
        "prompts": { "listChanged": true },
        "resources": { "subscribe": true },
        "completions": {},
        "logging": {},
    });
    json!({ "supportedVersions": Revision::SERVED.map(Revision::as_str), "capabilities": capabilities }).into()
}

/// Begins a stream of changes. The same, "Acknowledgment": "The server MUST send `notifications/subscriptions/acknowledged` as the first
/// message on the stream."
pub(crate) async fn listen(call: &Call, shared: &Shared) -> Result<Reply, RpcError> {
    let Listen { notifications } = call.params()?;
    if notifications.resource_subscriptions.len() > RESOURCES_MAX {
        return Err(RpcError::invalid_params(format_args!("resourceSubscriptions: at most {RESOURCES_MAX}")));
    }
    let filter = notifications.honoured();
    let acknowledged = filter.acknowledged();
    call.notify("notifications/subscriptions/acknowledged", acknowledged).await.map_err(RpcError::internal)?;
    shared.listen(call, filter);
    Ok(Reply::Later)
}

/// What every result carries here. MCP 2026-07-28, basic, "Per-response protocol fields": "Servers SHOULD include […]
/// `io.modelcontextprotocol/serverInfo` […] in every result's `_meta`"; caching: `ttlMs` and `cacheScope` of what may be kept.
pub(crate) fn completed(method: &str, reply: Reply) -> Result<Reply, RpcError> {
    let Reply::Now(result) = reply else { return Ok(reply) };
    let mut result: Map<String, Value> = result.parse().map_err(RpcError::internal)?;
    let info = json!({ "name": "rejoin", "version": env!("CARGO_PKG_VERSION") });
    result.insert("_meta".into(), json!({ "io.modelcontextprotocol/serverInfo": info }));
    let kept = match method {
        "server/discover" | "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => Some(TTL_MS),
        // They may change at any time, and whoever does not listen is not told.
        "resources/read" => Some(0),
        _ => None,
    };
    if let Some(ttl) = kept.filter(|_| result.get("resultType").is_none()) {
        result.insert("ttlMs".into(), ttl.into());
        result.insert("cacheScope".into(), "public".into());
    }
    Ok(Value::from(result).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_changes_here_is_acknowledged() {
        let filter: Filter = serde_json::from_value(json!({
            "toolsListChanged": true, "promptsListChanged": false, "resourcesListChanged": true,
            "resourceSubscriptions": [resources::WATCHED, resources::WATCHED, resources::TEXT, "test://nothing"],
        }))
        .expect("a filter");
        let expected = json!({ "notifications": { "toolsListChanged": true, "resourceSubscriptions": [resources::WATCHED] } });
        assert_eq!(filter.honoured().acknowledged(), expected);
        assert_eq!(Filter::default().honoured().acknowledged(), json!({ "notifications": {} }));
    }
}
