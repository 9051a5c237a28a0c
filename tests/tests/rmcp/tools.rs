//! An rmcp server of twenty tools, as people write them; it knows nothing of what transport serves it.
#![expect(deprecated, reason = "servers of today sample, log and ask for roots, which rmcp marks as leaving the protocol")]

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rmcp::handler::server::wrapper::{Json, Parameters};
use rmcp::model::{
    CallToolResult, ContentBlock, CreateMessageRequestParams, ErrorCode, LoggingLevel, LoggingMessageNotificationParam,
    ProgressNotificationParam, SamplingMessage, ServerCapabilities, ServerConfig, SubscriptionFilter,
};
use rmcp::service::{RequestContext, SubscriptionContext};
use rmcp::{ErrorData, RoleServer, ServerHandler, schemars, tool, tool_handler, tool_router};
use tokio::sync::watch;

/// A session's server; what `Everyone` holds is all sessions'.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tools {
    counter: Arc<Mutex<i64>>,
    everyone: Everyone,
}

/// What all sessions of a server share.
#[derive(Clone, Debug, Default)]
pub(crate) struct Everyone(Arc<Mutex<Shared>>);

#[derive(Debug, Default)]
struct Shared {
    executions: HashMap<String, u32>,
    cancelled: u32,
    services: u32,
    changes: watch::Sender<Change>,
}

/// What those are told who listen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Change {
    #[default]
    None,
    Tools,
    NoMore,
}

impl Everyone {
    fn with<T>(&self, work: impl FnOnce(&mut Shared) -> T) -> T {
        work(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A new session's server.
    pub(crate) fn service(&self) -> Tools {
        self.with(|shared| shared.services += 1);
        Tools { counter: Arc::default(), everyone: self.clone() }
    }

    /// How many servers are left.
    pub(crate) fn services(&self) -> u32 {
        self.with(|shared| shared.services)
    }

    /// How many listen to changes.
    pub(crate) fn listeners(&self) -> usize {
        self.with(|shared| shared.changes.receiver_count())
    }

    /// Tells those who listen that there are other tools.
    pub(crate) fn tools_changed(&self) {
        self.with(|shared| shared.changes.send_replace(Change::Tools));
    }

    /// Tells those who listen that nothing more will come.
    pub(crate) fn no_more_changes(&self) {
        self.with(|shared| shared.changes.send_replace(Change::NoMore));
    }

    /// How many calls were cancelled.
    pub(crate) fn cancelled(&self) -> u32 {
        self.with(|shared| shared.cancelled)
    }
}

/// Counts a session's server as gone, when the last clone of it is.
#[derive(Debug)]
pub(crate) struct Counted(Tools);

impl Counted {
    /// A new session's server.
    pub(crate) fn new(everyone: &Everyone) -> Self {
        Self(everyone.service())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.everyone.with(|shared| shared.services -= 1);
    }
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Text {
    text: String,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Two {
    a: i64,
    b: i64,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Many {
    numbers: Vec<i64>,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Named {
    name: String,
}

#[derive(Debug, serde::Deserialize, schemars::JsonSchema)]
struct Ticks {
    count: u32,
    interval_ms: u64,
    #[serde(default)]
    key: String,
}

#[derive(Debug, serde::Serialize, schemars::JsonSchema)]
struct Quotient {
    quotient: i64,
    remainder: i64,
}

fn internal(error: impl std::fmt::Display) -> ErrorData {
    ErrorData::internal_error(error.to_string(), None)
}

fn question() -> CreateMessageRequestParams {
    CreateMessageRequestParams::new(vec![SamplingMessage::user_text("what?")], 10)
}

#[tool_router]
impl Counted {
    #[tool(description = "Gives the text back.")]
    async fn echo(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text
    }

    #[tool(description = "The text backwards.")]
    async fn reverse(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text.chars().rev().collect()
    }

    #[tool(description = "How many words.")]
    async fn words(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text.split_whitespace().count().to_string()
    }

    #[tool(description = "The text in capitals.")]
    async fn upper(&self, Parameters(Text { text }): Parameters<Text>) -> String {
        text.to_uppercase()
    }

    #[tool(description = "a + b.")]
    async fn add(&self, Parameters(Two { a, b }): Parameters<Two>) -> String {
        (a + b).to_string()
    }

    #[tool(description = "a * b.")]
    async fn multiply(&self, Parameters(Two { a, b }): Parameters<Two>) -> String {
        (a * b).to_string()
    }

    #[tool(description = "a / b, with what remains.")]
    async fn divide(&self, Parameters(Two { a, b }): Parameters<Two>) -> Result<Json<Quotient>, ErrorData> {
        let by_zero = || ErrorData::new(ErrorCode(-32042), "division by zero", Some(serde_json::json!({ "a": a })));
        let quotient = a.checked_div(b).ok_or_else(by_zero)?;
        Ok(Json(Quotient { quotient, remainder: a % b }))
    }

    #[tool(description = "The sum of the numbers.")]
    async fn sum(&self, Parameters(Many { numbers }): Parameters<Many>) -> String {
        numbers.iter().sum::<i64>().to_string()
    }

    #[tool(description = "The greatest of the numbers.")]
    async fn greatest(&self, Parameters(Many { numbers }): Parameters<Many>) -> CallToolResult {
        match numbers.iter().max() {
            Some(greatest) => CallToolResult::success(vec![ContentBlock::text(greatest.to_string())]),
            None => CallToolResult::error(vec![ContentBlock::text("no numbers")]),
        }
    }

    #[tool(description = "Counts up, in this session.")]
    async fn increment(&self) -> String {
        let mut counter = self.0.counter.lock().unwrap_or_else(PoisonError::into_inner);
        *counter += 1;
        counter.to_string()
    }

    #[tool(description = "What the session's counter says.")]
    async fn counter(&self) -> String {
        self.0.counter.lock().unwrap_or_else(PoisonError::into_inner).to_string()
    }

    #[tool(description = "A picture of one pixel.")]
    async fn picture(&self) -> CallToolResult {
        CallToolResult::success(vec![ContentBlock::image("R0lGODdhAQABAAAAACwAAAAAAQABAAACAkQBADs=", "image/gif")])
    }

    #[tool(description = "The value of a field of the HTTP request.")]
    async fn header(&self, Parameters(Named { name }): Parameters<Named>, context: RequestContext<RoleServer>) -> String {
        let parts = context.extensions.get::<http::request::Parts>();
        let value = parts.and_then(|parts| parts.headers.get(&name)).and_then(|value| value.to_str().ok());
        value.unwrap_or("none").to_owned()
    }

    #[tool(description = "Numbered progress, then how often it ran.")]
    async fn ticker(&self, Parameters(asked): Parameters<Ticks>, context: RequestContext<RoleServer>) -> String {
        let executions = self.0.everyone.with(|shared| {
            let executions = shared.executions.entry(asked.key.clone()).or_default();
            *executions += 1;
            *executions
        });
        for tick in 1..=asked.count {
            tokio::time::sleep(Duration::from_millis(asked.interval_ms)).await;
            if let Some(token) = context.meta.get_progress_token() {
                // Nobody listens just now: the transport keeps it.
                let _ = context.peer.notify_progress(ProgressNotificationParam::new(token, f64::from(tick))).await;
            }
        }
        serde_json::json!({ "executions": executions }).to_string()
    }

    #[tool(description = "Logs the text.")]
    async fn log(
        &self,
        Parameters(Text { text }): Parameters<Text>,
        context: RequestContext<RoleServer>,
    ) -> Result<String, ErrorData> {
        let params = LoggingMessageNotificationParam::new(LoggingLevel::Info, text.into());
        context.peer.notify_logging_message(params).await.map_err(internal)?;
        Ok("logged".to_owned())
    }

    #[tool(description = "Asks the client's model.")]
    async fn ask(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let answer = context.peer.create_message(question()).await.map_err(internal)?;
        Ok(answer.model)
    }

    #[tool(description = "Asks the client's model from a task of its own.")]
    async fn ask_aside(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let peer = context.peer.clone();
        let asking = tokio::spawn(async move { peer.create_message(question()).await });
        Ok(asking.await.map_err(internal)?.map_err(internal)?.model)
    }

    #[tool(description = "The client's roots.")]
    async fn roots(&self, context: RequestContext<RoleServer>) -> Result<String, ErrorData> {
        let roots = context.peer.list_roots().await.map_err(internal)?;
        Ok(roots.roots.iter().map(|root| root.uri.as_str()).collect::<Vec<_>>().join(" "))
    }

    #[tool(description = "Waits until it is cancelled.")]
    async fn hold(&self, context: RequestContext<RoleServer>) -> String {
        if let Some(token) = context.meta.get_progress_token() {
            let _ = context.peer.notify_progress(ProgressNotificationParam::new(token, 0.0)).await;
        }
        context.ct.cancelled().await;
        self.0.everyone.with(|shared| shared.cancelled += 1);
        "cancelled".to_owned()
    }

    #[tool(description = "Panics.")]
    async fn panic(&self) -> String {
        panic!("a tool that panics")
    }
}

#[tool_handler]
impl ServerHandler for Counted {
    fn get_info(&self) -> ServerConfig {
        ServerConfig::new(ServerCapabilities::builder().enable_tools().enable_tool_list_changed().enable_logging().build())
    }

    fn accepted_subscription_filter(&self, requested: &SubscriptionFilter) -> Option<SubscriptionFilter> {
        Some(requested.clone())
    }

    async fn listen(&self, context: SubscriptionContext) -> Result<(), ErrorData> {
        let mut changes = self.0.everyone.with(|shared| shared.changes.subscribe());
        loop {
            tokio::select! {
                () = context.cancelled() => {
                    self.0.everyone.with(|shared| shared.cancelled += 1);
                    return Ok(());
                }
                changed = changes.changed() => changed.map_err(internal)?,
            }
            match *changes.borrow_and_update() {
                Change::Tools => {}
                Change::None | Change::NoMore => return Ok(()),
            }
            context.sink().notify_tool_list_changed().await.map_err(internal)?;
        }
    }
}
