//! The client of the Rust SDK, as its own documentation would have it used.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use rmcp::handler::client::ClientHandler;
use rmcp::model::{CallToolRequestParams, ClientRequest, ProgressNotificationParam, ProtocolVersion, Request};
use rmcp::service::{NotificationContext, PeerRequestOptions, RunningService, ServiceError};
use rmcp::transport::StreamableHttpClientTransport;
use rmcp::{ClientLifecycleMode, ClientServiceExt, RoleClient};
use serde_json::{Value, json};

use crate::bed::{Bed, PATIENCE, STATELESS};

/// Hears progress.
#[derive(Clone, Default)]
struct Listener(Arc<Mutex<Vec<f64>>>);

impl ClientHandler for Listener {
    async fn on_progress(&self, params: ProgressNotificationParam, _: NotificationContext<RoleClient>) {
        self.0.lock().expect("no holder panics").push(params.progress);
    }
}

/// Plays every bed's session at once; gives what each saw.
pub(crate) fn play(beds: &[Bed]) -> Vec<Value> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let seen = runtime.block_on(async {
        let sessions = beds.iter().map(|bed| drive(bed.order()));
        tokio::time::timeout(PATIENCE, join_all(sessions)).await.expect("every session ends in time")
    });
    // A client may still try to come back, for as long as its runtime lives.
    runtime.shutdown_background();
    seen
}

async fn drive(order: Value) -> Value {
    let listener = Listener::default();
    let transport = StreamableHttpClientTransport::from_uri(order["url"].as_str().expect("a URL"));
    let lifecycle = match order["era"].as_str() {
        Some(STATELESS) => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
        _ => ClientLifecycleMode::Initialize,
    };
    let service = match listener.clone().serve_with_lifecycle(transport, lifecycle).await {
        Ok(service) => service,
        Err(error) => return json!({"calls": [], "error": error.to_string()}),
    };
    let revision = service.peer_info().map(|info| info.protocol_version.to_string());
    let timeout = Duration::from_millis(order["timeout_ms"].as_u64().expect("a number"));
    let mut calls = Vec::new();
    for arguments in order["calls"].as_array().expect("calls") {
        let began = Instant::now();
        let outcome = call(&service, arguments, timeout).await;
        let ticks = std::mem::take(&mut *listener.0.lock().expect("no holder panics"));
        calls.push(match outcome {
            Ok(result) => json!({"ticks": ticks, "result": result}),
            Err(error) => {
                let code = if let ServiceError::McpError(error) = &error { Some(error.code.0) } else { None };
                let timed_out = began.elapsed() >= timeout;
                json!({"ticks": ticks, "error": error.to_string(), "code": code, "timed_out": timed_out})
            }
        });
    }
    // How it closes is not what is asked here; the session ends with the server.
    let _ = service.cancel().await;
    json!({"revision": revision, "calls": calls})
}

async fn call(
    service: &RunningService<RoleClient, Listener>,
    arguments: &Value,
    timeout: Duration,
) -> Result<Value, ServiceError> {
    let arguments = arguments.as_object().expect("an object").clone();
    let request = Request::new(CallToolRequestParams::new("ticker").with_arguments(arguments));
    let options = PeerRequestOptions::with_timeout(timeout);
    let handle = service.send_request_with_option(ClientRequest::CallToolRequest(request), options).await?;
    Ok(serde_json::to_value(handle.await_response().await?).expect("a result is JSON"))
}
