//! An MCP server with everything that a server may offer: tools of every kind of content, progress, logs, sampling, elicitation and roots;
//! resources with templates and subscriptions; prompts; completion.
//!
//! It is the example of a server on [`rejoin::Handler`], what `rejoin serve` serves where it is given no command, and what the protocol's
//! official suite is run against: names and texts that begin with `test` are that suite's. Never blocks a shard, and never lets one session
//! see another's.
//!
//! ```
//! use rejoin_everything::{Everything, Shared};
//!
//! let shared = Shared::default();
//! let server = rejoin::Server::builder().shards(2).serve(move || Everything::new(&shared))?;
//! # server.shutdown(std::time::Duration::ZERO);
//! # server.wait();
//! # Ok::<(), rejoin::StartError>(())
//! ```

mod completion;
mod content;
mod context;
mod logging;
mod memory;
mod prompts;
mod resources;
mod shared;
mod tools;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use rejoin::{Call, Ended, Handler, Json, Reply, RpcError, Session, SessionId};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::context::Context;
use crate::logging::SetLevel;
use crate::memory::Memory;
pub use crate::shared::Shared;

/// A shard's handler.
pub struct Everything {
    shared: Shared,
    /// What is remembered of each session of this shard, from its first answer to its end.
    sessions: RefCell<HashMap<SessionId, Rc<Memory>>>,
}

/// The params of a list. MCP 2025-11-25, "Pagination": no list here has a second page, so every cursor is one that was never given out.
#[derive(Deserialize)]
struct List {
    #[serde(default)]
    cursor: Option<IgnoredAny>,
}

impl fmt::Debug for Everything {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "everything, for {} sessions", self.sessions.borrow().len())
    }
}

impl Everything {
    /// A handler that shares with the other shards' what is the whole server's.
    pub fn new(shared: &Shared) -> Self {
        Self { shared: shared.clone(), sessions: RefCell::default() }
    }

    fn memory(&self, session: &Session) -> Result<Rc<Memory>, RpcError> {
        self.sessions.borrow().get(&session.id()).cloned().ok_or_else(|| RpcError::internal("the session is not known here"))
    }
}

impl Handler for Everything {
    async fn initialize(&self, session: &Session, params: &Json) -> Result<Json, RpcError> {
        let memory = Memory::of(params)?;
        let result = json!({
            "protocolVersion": memory.revision.as_str(),
            "capabilities": { "tools": {}, "resources": { "subscribe": true }, "prompts": {}, "completions": {}, "logging": {} },
            "serverInfo": { "name": "rejoin", "version": env!("CARGO_PKG_VERSION") },
        });
        self.sessions.borrow_mut().insert(session.id(), Rc::new(memory));
        Ok(result.into())
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        let memory = self.memory(call.session())?;
        let context = Context { call, memory: &memory, shared: &self.shared };
        match call.method() {
            "ping" => Ok(json!({}).into()),
            "logging/setLevel" => {
                let SetLevel { level } = call.params()?;
                memory.level.set(level);
                Ok(json!({}).into())
            }
            "tools/list" => listed(call, "tools", tools::list),
            "tools/call" => tools::call(&context).await,
            "resources/list" => listed(call, "resources", resources::list),
            "resources/templates/list" => listed(call, "resourceTemplates", resources::templates),
            "resources/read" => resources::read(&context),
            "resources/subscribe" => resources::subscribe(&context),
            "resources/unsubscribe" => resources::unsubscribe(&context),
            "prompts/list" => listed(call, "prompts", prompts::list),
            "prompts/get" => prompts::get(call),
            "completion/complete" => completion::complete(call),
            other => Err(RpcError::method_not_found(other)),
        }
    }

    fn closed(&self, session: &Session, _: Ended) {
        self.sessions.borrow_mut().remove(&session.id());
        self.shared.unwatch(session.id());
    }
}

/// A list of one page.
fn listed(call: &Call, name: &str, list: impl FnOnce() -> Value) -> Result<Reply, RpcError> {
    let List { cursor } = call.params()?;
    match cursor {
        // MCP 2025-11-25, "Pagination", "Error Handling": "Invalid cursors SHOULD result in an error with code -32602 (Invalid params)."
        Some(_) => Err(RpcError::invalid_params("no such cursor")),
        None => Ok(json!({ name: list() }).into()),
    }
}
