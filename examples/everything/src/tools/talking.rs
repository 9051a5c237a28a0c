//! Tools that say something before their result, or let go of the connection before it.

use std::time::Duration;

use rejoin::{Reply, RpcError};
use serde_json::{Value, json};

use super::{Nothing, object, text_result, tool};
use crate::context::{Context, said};
use crate::logging::Level;

/// Between two things said.
const PAUSE: Duration = Duration::from_millis(50);
/// When a client that was let go should come back. Reason: the work is done by then, so that it need not come back twice.
const COME_BACK: Duration = Duration::from_millis(300);
/// How long the work takes after the client was let go.
const WORK: Duration = Duration::from_millis(150);

/// Its part of what `tools/list` lists.
pub(super) fn list() -> Vec<Value> {
    let plain = |name, description| tool(name, description, object(json!({}), &[]));
    vec![
        plain("test_tool_with_logging", "Logs three messages before it answers."),
        plain("test_tool_with_progress", "Reports its progress, if that is wanted, before it answers."),
        plain("test_reconnection", "Lets go of the connection before it answers: the client comes back for the result."),
    ]
}

pub(super) async fn with_logging(Nothing {}: Nothing, context: &Context<'_>) -> Result<Reply, RpcError> {
    for text in ["Tool execution started", "Tool processing data", "Tool execution completed"] {
        context.log(Level::Info, "test_tool_with_logging", &text).await?;
        rejoin::sleep(PAUSE).await;
    }
    Ok(text_result("The tool has logged three messages."))
}

pub(super) async fn with_progress(Nothing {}: Nothing, context: &Context<'_>) -> Result<Reply, RpcError> {
    for progress in [0.0, 50.0, 100.0] {
        if context.call.wants_progress() {
            said(|| context.call.progress(progress, Some(100.0), Some("working"))).await?;
        }
        rejoin::sleep(PAUSE).await;
    }
    Ok(text_result("The tool has reported its progress."))
}

pub(super) async fn reconnection(Nothing {}: Nothing, context: &Context<'_>) -> Result<Reply, RpcError> {
    said(|| context.call.hang_up(Some(COME_BACK))).await?;
    rejoin::sleep(WORK).await;
    Ok(text_result("The work was done while no connection waited for it."))
}
