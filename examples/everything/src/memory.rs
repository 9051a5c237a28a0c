//! What is remembered of a session: what its client said of itself, and how much it wants to be told.
//!
//! Never grows: subscriptions are the whole server's business (`shared`).

use std::cell::Cell;

use rejoin::{Call, Json, Revision, RpcError};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::json;

use crate::logging::Level;

/// A session's memory.
#[derive(Debug)]
pub(crate) struct Memory {
    /// What was agreed on.
    pub(crate) revision: Revision,
    /// The least important log message that the client wants; none where it wants none.
    pub(crate) level: Cell<Option<Level>>,
    /// What may be asked of the client.
    pub(crate) client: Client,
}

/// MCP 2025-11-25, "Lifecycle", "Operation": "Both parties MUST … Only use capabilities that were successfully negotiated".
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) sampling: bool,
    pub(crate) elicitation: bool,
    pub(crate) roots: bool,
}

#[derive(Deserialize)]
struct Initialize {
    #[serde(rename = "protocolVersion")]
    protocol_version: String,
    #[serde(default)]
    capabilities: Capabilities,
}

#[derive(Default, Deserialize)]
struct Capabilities {
    sampling: Option<IgnoredAny>,
    elicitation: Option<Elicitation>,
    roots: Option<IgnoredAny>,
}

/// MCP 2025-11-25, "Elicitation", "Capabilities": "For backwards compatibility, an empty capabilities object is equivalent to declaring
/// support for form mode only".
#[derive(Deserialize)]
struct Elicitation {
    form: Option<IgnoredAny>,
    url: Option<IgnoredAny>,
}

impl From<Capabilities> for Client {
    fn from(capabilities: Capabilities) -> Self {
        Self {
            sampling: capabilities.sampling.is_some(),
            elicitation: capabilities.elicitation.is_some_and(|modes| modes.form.is_some() || modes.url.is_none()),
            roots: capabilities.roots.is_some(),
        }
    }
}

impl Client {
    /// Whether it has what a request without a session needs: one of its own fields' names.
    pub(crate) fn needs(&self, capability: &str) -> Result<(), RpcError> {
        let has = match capability {
            "sampling" => self.sampling,
            "elicitation" => self.elicitation,
            "roots" => self.roots,
            _ => false,
        };
        if has { Ok(()) } else { Err(RpcError::missing_capability(&json!({ capability: {} }))) }
    }
}

/// What a request without a session says of its client.
#[derive(Deserialize)]
struct Request {
    #[serde(rename = "_meta")]
    meta: Meta,
}

#[derive(Deserialize)]
struct Meta {
    #[serde(rename = "io.modelcontextprotocol/clientCapabilities")]
    capabilities: Capabilities,
    #[serde(default, rename = "io.modelcontextprotocol/logLevel")]
    level: Option<Level>,
}

impl Memory {
    /// What one request says, for as long as it lasts. MCP 2026-07-28, basic, "Statelessness": "no state should be inferred from previous
    /// requests"; of logs, that it sends none to a request without a `logLevel`.
    pub(crate) fn of_request(revision: Revision, call: &Call) -> Result<Self, RpcError> {
        let Request { meta: Meta { capabilities, level } } = call.params()?;
        Ok(Self { revision, level: Cell::new(level), client: capabilities.into() })
    }

    /// Whether it is one request's, and not a session's.
    pub(crate) fn is_stateless(&self) -> bool {
        !self.revision.rules().sessions
    }

    /// What the params of an `initialize` say.
    pub(crate) fn of(params: &Json) -> Result<Self, RpcError> {
        let Initialize { protocol_version, capabilities } = params.parse().map_err(RpcError::invalid_params)?;
        // MCP 2025-11-25, "Lifecycle", "Version Negotiation": "If the server supports the requested protocol version, it MUST respond with
        // the same version. Otherwise, the server MUST respond with another protocol version it supports."
        let served = |revision: &Revision| revision.rules().sessions && revision.rules().streamable;
        let asked = Revision::parse(protocol_version.as_bytes()).filter(served);
        Ok(Self {
            revision: asked.unwrap_or(Revision::LATEST_WITH_SESSIONS),
            // MCP 2025-11-25, "Logging": without a request the server "MAY decide which messages to send automatically": all of them.
            level: Cell::new(Some(Level::Debug)),
            client: capabilities.into(),
        })
    }

    /// Whether the client wants a log message of this importance.
    pub(crate) fn wants(&self, level: Level) -> bool {
        self.level.get().is_some_and(|least| level >= least)
    }

    /// Whether wrong arguments of a tool are told in its result, where models read them, and not as a JSON-RPC error. New in 2025-11-25,
    /// "Tools", "Error Handling": "Tool Execution Errors: … Input validation errors".
    pub(crate) fn arguments_fail_in_results(&self) -> bool {
        self.revision >= Revision::V2025_11_25
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn memory(revision: &str, capabilities: Value) -> Memory {
        Memory::of(&json!({ "protocolVersion": revision, "capabilities": capabilities }).into()).expect("params of an initialize")
    }

    #[test]
    fn a_revision_with_sessions_is_agreed_on_and_any_other_gets_the_newest_of_them() {
        for (asked, agreed) in [
            ("2025-03-26", "2025-03-26"),
            ("2025-06-18", "2025-06-18"),
            ("2025-11-25", "2025-11-25"),
            ("2024-11-05", "2025-11-25"),
            ("2026-07-28", "2025-11-25"),
            ("tomorrow", "2025-11-25"),
        ] {
            assert_eq!(memory(asked, json!({})).revision.as_str(), agreed, "for {asked}");
        }
        assert!(Memory::of(&json!({}).into()).is_err(), "no revision was asked for");
    }

    #[test]
    fn forms_are_elicited_where_the_client_has_them() {
        for (declared, forms) in [
            (json!({}), true),
            (json!({ "form": {} }), true),
            (json!({ "form": {}, "url": {} }), true),
            (json!({ "url": {} }), false),
        ] {
            assert_eq!(memory("2025-11-25", json!({ "elicitation": declared })).client.elicitation, forms, "{declared}");
        }
        assert!(!memory("2025-11-25", json!({})).client.elicitation);
    }
}
