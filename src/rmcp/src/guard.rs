//! A service whose panics are its calls' errors.
//!
//! rmcp runs each request as a task of its own and waits for its answer only: a panic there would leave the client waiting for as long
//! as a call may take. Never changes what a service answers.

use std::borrow::Cow;
use std::future::Future;
use std::panic::AssertUnwindSafe;

use futures_util::FutureExt;
use rmcp::model::{ClientNotification, ClientRequest, ProtocolVersion, ServerConfig, ServerResult};
use rmcp::service::{NotificationContext, RequestContext};
use rmcp::{ErrorData, RoleServer, Service};

/// See the module.
pub(crate) struct Guarded<S>(pub(crate) S);

impl<S: Service<RoleServer>> Service<RoleServer> for Guarded<S> {
    async fn handle_request(
        &self,
        request: ClientRequest,
        context: RequestContext<RoleServer>,
    ) -> Result<ServerResult, ErrorData> {
        caught(|| self.0.handle_request(request, context)).await
    }

    async fn handle_notification(
        &self,
        notification: ClientNotification,
        context: NotificationContext<RoleServer>,
    ) -> Result<(), ErrorData> {
        caught(|| self.0.handle_notification(notification, context)).await
    }

    fn get_info(&self) -> ServerConfig {
        self.0.get_info()
    }

    fn supported_protocol_versions(&self) -> Cow<'static, [ProtocolVersion]> {
        self.0.supported_protocol_versions()
    }
}

/// Runs `work` to its end or its panic, from the first call on.
async fn caught<T, F>(work: impl FnOnce() -> F) -> Result<T, ErrorData>
where
    F: Future<Output = Result<T, ErrorData>>,
{
    let outcome = AssertUnwindSafe(async { work().await }).catch_unwind().await;
    outcome.unwrap_or_else(|_| {
        tracing::error!("a service's handler panicked");
        Err(ErrorData::internal_error("the handler panicked", None))
    })
}
