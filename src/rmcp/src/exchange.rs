//! Requests without a session (2026-07-28): each gets a service of its own and a transport for one message, as rmcp's own HTTP service does.
//!
//! Never outlives its call: the service ends with the answer, and is cancelled when nobody waits for one. Never asks the client anything,
//! which that revision has no way for.

use std::fmt;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;

use futures_util::FutureExt;
use rejoin::{Call, EmitError, Json, NotTaken, Revision, RpcError, SUBSCRIPTION_ID, SUBSCRIPTIONS_LISTEN};
use rmcp::model::{
    ClientJsonRpcMessage, GetMeta, Implementation, InitializeRequestParams, JsonRpcError, JsonRpcNotification, JsonRpcResponse,
    ProtocolVersion, RequestMetaObject, ServerJsonRpcMessage, ServerNotification, ServerResult,
};
use rmcp::service::serve_directly;
use rmcp::transport::Transport;
use rmcp::{RoleServer, Service};
use serde::Serialize;
use serde_json::Value;
use tokio::sync::Notify;

use crate::adapter::Factory;
use crate::guard::Guarded;
use crate::message::{self, Said};
use crate::transport::SendError;

/// The life of a request's service: from its factory to its answer, or to the moment at which nobody waits for one.
pub(crate) async fn run<S: Service<RoleServer>>(factory: Arc<Factory<S>>, call: Call, message: ClientJsonRpcMessage) {
    let begin = async {
        let service = factory.make().map_err(|error| RpcError::internal(format_args!("no service: {error}")))?;
        factory.check_param_headers(&service, &call)?;
        let (transport, client) = ExchangeTransport::new(call.clone(), message);
        Ok(serve_directly(Guarded(service), transport, Some(client)))
    };
    let begun = AssertUnwindSafe(begin).catch_unwind().await;
    let running = match begun.unwrap_or_else(|_| Err(RpcError::internal("the service panicked"))) {
        Ok(running) => running,
        Err(error) => {
            tracing::debug!(?call, %error, "a request was not begun");
            // Where it was cancelled meanwhile, nobody waits.
            let _ = call.fail(error).await;
            return;
        }
    };
    let cancel = running.cancellation_token();
    let mut waiting = pin!(running.waiting());
    let ended = tokio::select! {
        ended = &mut waiting => ended,
        why = call.cancelled() => {
            tracing::debug!(?call, ?why, "a request is cancelled");
            cancel.cancel();
            waiting.await
        }
    };
    if let Err(error) = ended {
        tracing::warn!(?call, %error, "a service failed");
    }
}

/// rmcp's transport of one request: it gives the service that message, and is at its end when the service has answered.
pub(crate) struct ExchangeTransport {
    call: Call,
    message: Option<ClientJsonRpcMessage>,
    answered: Arc<Notify>,
    /// The level from which on the request wants logs, as rmcp numbers them; none, where it wants none.
    logs: Option<u8>,
}

impl fmt::Debug for ExchangeTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transport of {:?}", self.call)
    }
}

impl ExchangeTransport {
    /// And what its service should know of the client, which the request says itself.
    fn new(call: Call, message: ClientJsonRpcMessage) -> (Self, InitializeRequestParams) {
        let none = RequestMetaObject::default();
        let meta = match &message {
            ClientJsonRpcMessage::Request(request) => request.request.get_meta(),
            _ => &none,
        };
        let client = InitializeRequestParams::new(
            meta.client_capabilities().unwrap_or_default(),
            meta.client_info().unwrap_or_else(|| Implementation::new("", "")),
        )
        .with_protocol_version(meta.protocol_version().unwrap_or(ProtocolVersion::V_2026_07_28));
        let logs = meta.log_level().map(|level| level as u8);
        (Self { call, message: Some(message), answered: Arc::default(), logs }, client)
    }
}

impl Transport<RoleServer> for ExchangeTransport {
    type Error = SendError;

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        let (call, answered, logs) = (self.call.clone(), Arc::clone(&self.answered), self.logs);
        async move {
            match item {
                ServerJsonRpcMessage::Request(_) => Err(EmitError::NotTaken(NotTaken::NoSession).into()),
                ServerJsonRpcMessage::Notification(JsonRpcNotification { notification, .. }) => {
                    notify(&call, notification, logs).await
                }
                ServerJsonRpcMessage::Response(JsonRpcResponse { result, .. }) => {
                    let taken = respond(&call, result).await;
                    answered.notify_one();
                    taken
                }
                ServerJsonRpcMessage::Error(JsonRpcError { error, .. }) => {
                    let taken = call.fail(message::to_rpc(error)).await;
                    answered.notify_one();
                    taken.map(drop).map_err(SendError::from)
                }
            }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        if let Some(message) = self.message.take() {
            return Some(message);
        }
        self.answered.notified().await;
        None
    }

    async fn close(&mut self) -> Result<(), SendError> {
        self.message = None;
        Ok(())
    }
}

async fn respond(call: &Call, mut result: ServerResult) -> Result<(), SendError> {
    if let ServerResult::DiscoverResult(discovered) = &mut result {
        // What the service would speak, of what is spoken here: 2024-11-05's transport is not.
        let served = Revision::SERVED.map(Revision::as_str);
        discovered.supported_versions.retain(|version| served.contains(&version.as_str()));
    }
    let result = if call.method() == SUBSCRIPTIONS_LISTEN { without_subscription(&result)?.into() } else { Json::new(&result)? };
    call.respond(result).await?;
    Ok(())
}

async fn notify(call: &Call, notification: ServerNotification, logs: Option<u8>) -> Result<(), SendError> {
    let listens = call.method() == SUBSCRIPTIONS_LISTEN;
    match &notification {
        // There is nothing that it could have asked for.
        ServerNotification::CancelledNotification(_) => return Ok(()),
        // A request that names no `logLevel` in its `_meta` wants no logs, and one that does wants none below it.
        ServerNotification::LoggingMessageNotification(log) => {
            #[expect(deprecated, reason = "rmcp marks logging as leaving the protocol, which this revision still has")]
            let level = log.params.level as u8;
            if logs.is_none_or(|least| level < least) {
                return Ok(());
            }
        }
        // 2026-07-28, subscriptions: "The server MUST NOT send notification types the client has not explicitly requested."
        ServerNotification::ResourceUpdatedNotification(_)
        | ServerNotification::ResourceListChangedNotification(_)
        | ServerNotification::ToolListChangedNotification(_)
        | ServerNotification::PromptListChangedNotification(_)
            if !listens =>
        {
            tracing::debug!(?call, "a change is told on a stream of `subscriptions/listen` only");
            return Ok(());
        }
        _ => {}
    }
    let Said { method, params } = Said::of(&notification)?;
    if listens {
        let params = params.as_deref().map(without_subscription).transpose()?;
        call.notify(&method, params).await?;
    } else {
        call.notify(&method, params).await?;
    }
    Ok(())
}

/// A message's params or result without the subscription that its service names in `_meta`: rmcp writes the id that it knows the request
/// by, which is our number, and rejoin puts the client's there.
fn without_subscription(said: &(impl Serialize + ?Sized)) -> serde_json::Result<Value> {
    let mut said = serde_json::to_value(said)?;
    if let Some(meta) = said.get_mut("_meta").and_then(Value::as_object_mut) {
        meta.remove(SUBSCRIPTION_ID);
    }
    Ok(said)
}

/// What a call of a tool says of its arguments.
pub(crate) fn tool_and_arguments(call: &Call) -> Option<(String, Value)> {
    if call.method() != "tools/call" {
        return None;
    }
    let mut params: Value = call.params().ok()?;
    let arguments = params.get_mut("arguments").map(Value::take).unwrap_or_default();
    Some((params.get("name")?.as_str()?.to_owned(), arguments))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_names_a_subscription_is_left_to_rejoin_and_the_rest_stays() {
        let said = serde_json::json!({ "_meta": { SUBSCRIPTION_ID: 7, "a": 1 }, "b": 2 });
        assert_eq!(without_subscription(&said).expect("JSON"), serde_json::json!({ "_meta": { "a": 1 }, "b": 2 }));
        for other in [serde_json::json!({ "b": 2 }), serde_json::json!({ "_meta": 3 })] {
            assert_eq!(without_subscription(&other).expect("JSON"), other);
        }
    }
}
