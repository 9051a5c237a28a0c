//! An MCP server with everything that a server may offer: tools of every kind of content, progress, logs, sampling, elicitation and roots;
//! resources with templates and subscriptions; prompts; completion.
//!
//! It is the example of a server on [`rejoin::Handler`], what `rejoin serve` serves where it is given no command, and what the protocol's
//! official suite is run against: names and texts that begin with `test` are that suite's. It serves clients with a session and clients
//! without one (2026-07-28) alike. Never blocks a shard, and never lets one session see another's.
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
mod rounds;
mod shared;
mod stateless;
mod tools;

use std::cell::RefCell;
use std::collections::HashMap;
use std::fmt;
use std::rc::Rc;

use rejoin::{Call, Cancelled, Ended, Handler, Json, Reply, RpcError, Session, SessionId};
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
    const STATELESS: bool = true;

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
        let Some(revision) = call.stateless() else {
            let memory = self.memory(call.session())?;
            return in_session(&Context { call, memory: &memory, shared: &self.shared }).await;
        };
        let memory = Memory::of_request(revision, call)?;
        let reply = alone(&Context { call, memory: &memory, shared: &self.shared }).await?;
        stateless::completed(call.method(), reply)
    }

    fn cancelled(&self, call: &Call, _: Cancelled) {
        if call.stateless().is_some() {
            self.shared.end_listening(call);
        }
    }

    fn closed(&self, session: &Session, _: Ended) {
        self.sessions.borrow_mut().remove(&session.id());
        self.shared.unwatch(session.id());
    }
}

/// A session's request.
async fn in_session(context: &Context<'_>) -> Result<Reply, RpcError> {
    let call = context.call;
    match call.method() {
        "ping" => Ok(json!({}).into()),
        "logging/setLevel" => {
            let SetLevel { level } = call.params()?;
            context.memory.level.set(Some(level));
            Ok(json!({}).into())
        }
        "resources/subscribe" => resources::subscribe(context),
        "resources/unsubscribe" => resources::unsubscribe(context),
        _ => in_both_eras(context).await,
    }
}

/// A request without a session.
async fn alone(context: &Context<'_>) -> Result<Reply, RpcError> {
    match context.call.method() {
        "server/discover" => Ok(stateless::discover()),
        "subscriptions/listen" => stateless::listen(context.call, context.shared).await,
        _ => in_both_eras(context).await,
    }
}

async fn in_both_eras(context: &Context<'_>) -> Result<Reply, RpcError> {
    let call = context.call;
    match call.method() {
        "tools/list" => listed(call, "tools", || tools::list(context)),
        "tools/call" => tools::call(context).await,
        "resources/list" => listed(call, "resources", resources::list),
        "resources/templates/list" => listed(call, "resourceTemplates", resources::templates),
        "resources/read" => resources::read(context),
        "prompts/list" => listed(call, "prompts", || prompts::list(context)),
        "prompts/get" => prompts::get(context),
        "completion/complete" => completion::complete(call),
        other => Err(RpcError::method_not_found(other)),
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
