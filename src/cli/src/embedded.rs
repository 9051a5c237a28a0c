//! The MCP server that `rejoin serve` embeds, so that a first run shows something real.
//!
//! Never holds a session's state: what survives a call is in `tools`.

use std::sync::Arc;

use rejoin::{Call, Handler, Json, Reply, RpcError, Session};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::tools::{self, Executions};

/// The revisions that it speaks; the first is offered to clients that ask for another.
const REVISIONS: [&str; 3] = ["2025-11-25", "2025-06-18", "2025-03-26"];

/// A shard's handler.
pub(crate) struct Embedded {
    executions: Arc<Executions>,
}

#[derive(Deserialize)]
struct Initialize {
    #[serde(rename = "protocolVersion")]
    protocol_version: String,
}

#[derive(Deserialize)]
struct CallTool {
    name: String,
    #[serde(default)]
    arguments: Option<Value>,
}

impl Embedded {
    /// A handler that counts executions with the other shards'.
    pub(crate) fn new(executions: Arc<Executions>) -> Self {
        Self { executions }
    }
}

impl Handler for Embedded {
    async fn initialize(&self, _: &Session, params: &Json) -> Result<Json, RpcError> {
        let asked: Initialize = params.parse().map_err(RpcError::invalid_params)?;
        // MCP 2025-11-25, Lifecycle, "Version Negotiation": "If the server supports the requested protocol version, it MUST respond with
        // the same version. Otherwise, the server MUST respond with another protocol version it supports."
        let revision = REVISIONS.iter().find(|revision| **revision == asked.protocol_version).unwrap_or(&REVISIONS[0]);
        Ok(json!({
            "protocolVersion": revision,
            "capabilities": { "tools": {}, "logging": {} },
            "serverInfo": { "name": "rejoin", "version": env!("CARGO_PKG_VERSION") },
        })
        .into())
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        match call.method() {
            "ping" | "logging/setLevel" => Ok(json!({}).into()),
            "tools/list" => Ok(json!({ "tools": tools::list() }).into()),
            "tools/call" => {
                let CallTool { name, arguments } = call.params()?;
                tools::run(&name, arguments.unwrap_or_else(|| json!({})), call, &self.executions).await
            }
            other => Err(RpcError::method_not_found(other)),
        }
    }
}
