//! From a shard's deliveries to services: one service a session, on tokio.
//!
//! Never runs a service's code on a shard, nor blocks one: a message is put into its session's bounded inbox.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::{fmt, io};

use futures_util::FutureExt;
use rejoin::{Builder, Call, Cancelled, Ended, Handler, Json, Reply, RpcError, ServerHandle, Session, SessionId, StartError};
use rmcp::model::{ClientJsonRpcMessage, GetExtensions};
use rmcp::{RoleServer, Service, ServiceExt};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::guard::Guarded;
use crate::link::{INBOX, Inbound, Inlet, Link};
use crate::transport::{INITIALIZE, SessionTransport};
use crate::{message, parts};

/// Serves a factory's services, each for one session, on the tokio runtime that this is called in.
///
/// The builder is told to keep heads of requests, for what tools find in their extensions. Fails outside of a runtime.
pub fn serve<S, F>(builder: Builder, factory: F) -> Result<ServerHandle, StartError>
where
    S: Service<RoleServer>,
    F: Fn() -> io::Result<S> + Send + Sync + 'static,
{
    let runtime = Handle::try_current().map_err(|_| StartError::Invalid("an rmcp service needs a tokio runtime to run on"))?;
    let adapter = Adapter::new(runtime, factory);
    builder.request_heads(true).serve(move || adapter.handler())
}

/// A factory of services, and the runtime that they run on: what makes each shard's [`Handler`].
///
/// For builders of one's own; [`serve`] does it all. Handlers find `http::request::Parts` only if the builder keeps heads
/// ([`Builder::request_heads`]).
pub struct Adapter<S> {
    runtime: Handle,
    factory: Arc<dyn Fn() -> io::Result<S> + Send + Sync>,
}

impl<S> fmt::Debug for Adapter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Adapter(..)")
    }
}

impl<S: Service<RoleServer>> Adapter<S> {
    /// Services of this factory on this runtime. An error of the factory fails `initialize` with it.
    pub fn new(runtime: Handle, factory: impl Fn() -> io::Result<S> + Send + Sync + 'static) -> Self {
        Self { runtime, factory: Arc::new(factory) }
    }

    /// A shard's handler.
    pub fn handler(&self) -> Services<S> {
        Services { runtime: self.runtime.clone(), factory: Arc::clone(&self.factory), sessions: RefCell::default() }
    }
}

/// One shard's sessions and their services.
pub struct Services<S> {
    runtime: Handle,
    factory: Arc<dyn Fn() -> io::Result<S> + Send + Sync>,
    sessions: RefCell<HashMap<SessionId, Inlet>>,
}

impl<S> fmt::Debug for Services<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} services", self.sessions.borrow().len())
    }
}

impl<S: Service<RoleServer>> Services<S> {
    /// Begins a session's service, which is given `first` to read.
    fn begin(&self, session: &Session, first: ClientJsonRpcMessage) -> oneshot::Receiver<Result<Json, RpcError>> {
        let (answered, answer) = oneshot::channel();
        let link = Link::new(session.clone(), answered);
        let (inbox, messages) = mpsc::channel(INBOX);
        let (cancels, cancelled) = mpsc::unbounded_channel();
        let transport = SessionTransport::new(Arc::clone(&link), messages, cancelled, inbox.downgrade());
        let service = self.runtime.spawn(run(Arc::clone(&self.factory), transport, Arc::clone(&link)));
        let inlet = Inlet::new(link, inbox, cancels, service.abort_handle());
        inlet.notify(first);
        self.sessions.borrow_mut().insert(session.id(), inlet);
        answer
    }
}

/// A session that begins: unless it has begun by the time that this is dropped, its service is ended.
struct Beginning<'a> {
    sessions: &'a RefCell<HashMap<SessionId, Inlet>>,
    session: SessionId,
    begun: bool,
}

impl Drop for Beginning<'_> {
    fn drop(&mut self) {
        if !self.begun
            && let Some(inlet) = self.sessions.borrow_mut().remove(&self.session)
        {
            inlet.abort();
        }
    }
}

impl<S: Service<RoleServer>> Handler for Services<S> {
    async fn initialize(&self, session: &Session, params: &Json) -> Result<Json, RpcError> {
        let first = message::request(INITIALIZE, "initialize", Some(params)).map_err(RpcError::invalid_params)?;
        let answer = self.begin(session, with_parts(first, session));
        let mut beginning = Beginning { sessions: &self.sessions, session: session.id(), begun: false };
        let answer = answer.await.unwrap_or_else(|_| Err(RpcError::internal("the service ended")));
        beginning.begun = answer.is_ok();
        answer
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        let session = call.session();
        let message = message::request(call.number(), call.method(), call.raw_params()).map_err(RpcError::invalid_params)?;
        let inlet = self.sessions.borrow().get(&session.id()).map(|inlet| (Arc::clone(inlet.link()), inlet.inbox()));
        let (link, inbox) = inlet.ok_or_else(|| RpcError::internal("the service has ended"))?;
        link.hold(call);
        if inbox.send(Inbound::Call(call.number(), with_parts(message, session))).await.is_err() {
            link.take(call.number());
            return Err(RpcError::internal("the service has ended"));
        }
        Ok(Reply::Later)
    }

    async fn notification(&self, session: &Session, method: &str, params: Option<&Json>) {
        match message::notification(method, params) {
            Ok(message) => {
                if let Some(inlet) = self.sessions.borrow().get(&session.id()) {
                    inlet.notify(with_parts(message, session));
                }
            }
            Err(error) => tracing::debug!(%error, method, ?session, "a notification that rmcp does not read"),
        }
    }

    fn cancelled(&self, call: &Call, _: Cancelled) {
        if let Some(inlet) = self.sessions.borrow().get(&call.session().id()) {
            inlet.cancel(call.number());
        }
    }

    fn closed(&self, session: &Session, _: Ended) {
        // Its inbox has an end from here on, which is where the service's transport ends.
        self.sessions.borrow_mut().remove(&session.id());
    }
}

/// Puts the request's head where handlers look for it.
fn with_parts(mut message: ClientJsonRpcMessage, session: &Session) -> ClientJsonRpcMessage {
    let extensions = match &mut message {
        ClientJsonRpcMessage::Request(request) => request.request.extensions_mut(),
        ClientJsonRpcMessage::Notification(notification) => notification.notification.extensions_mut(),
        ClientJsonRpcMessage::Response(_) | ClientJsonRpcMessage::Error(_) => return message,
    };
    if let Some(parts) = parts::of(session) {
        extensions.insert(parts);
    }
    message
}

/// A service's life: from its factory to the end of its transport, or its own.
async fn run<S: Service<RoleServer>>(
    factory: Arc<dyn Fn() -> io::Result<S> + Send + Sync>,
    transport: SessionTransport,
    link: Arc<Link>,
) {
    let ending = Ending(link);
    let begin = async {
        let service = factory().map_err(|error| format!("no service: {error}"))?;
        Guarded(service).serve(transport).await.map_err(|error| error.to_string())
    };
    let begun = AssertUnwindSafe(begin).catch_unwind().await.unwrap_or_else(|_| Err("the service panicked".to_owned()));
    let session = ending.0.session().clone();
    let running = match begun {
        Ok(running) => running,
        Err(error) => {
            tracing::warn!(?session, %error, "a service did not begin");
            // Where it said so itself, its client has that already. The session leaves nothing.
            return ending.0.initialized(Err(RpcError::internal(error)));
        }
    };
    match running.waiting().await {
        Ok(why) => tracing::debug!(?session, ?why, "a service ended"),
        Err(error) => tracing::warn!(?session, %error, "a service failed"),
    }
    drop(ending);
    // Where the service ended by itself, its session ends with it; where the session did, nobody is left to close.
    let _ = session.close().await;
}

/// However a service ends, aborted too, nobody goes on waiting for it.
struct Ending(Arc<Link>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end();
    }
}
