//! From a shard's deliveries to services: one service a session, on tokio, and one for each request that has none.
//!
//! Never runs a service's code on a shard, nor blocks one: a message is put into its session's bounded inbox.

use std::cell::RefCell;
use std::collections::HashMap;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::{fmt, io};

use futures_util::FutureExt;
use rejoin::{Builder, Call, Cancelled, Ended, Handler, Json, Reply, RpcError, ServerHandle, Session, SessionId, StartError};
use rmcp::model::{ClientJsonRpcMessage, GetExtensions, Tool};
use rmcp::{RoleServer, ServerHandler, Service, ServiceExt};
use tokio::runtime::Handle;
use tokio::sync::{mpsc, oneshot};

use crate::guard::Guarded;
use crate::link::{Full, INBOX, Inlet, Link};
use crate::transport::{INITIALIZE, SessionTransport};
use crate::{exchange, message, parts};

/// Serves a factory's services on the tokio runtime that this is called in: one for each session, and one for each request of the revision
/// that has none (2026-07-28).
///
/// The builder is told to keep heads of requests, for what tools find in their extensions. Fails outside of a runtime.
pub fn serve<S, F>(builder: Builder, factory: F) -> Result<ServerHandle, StartError>
where
    S: ServerHandler,
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
    factory: Arc<Factory<S>>,
}

impl<S> fmt::Debug for Adapter<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Adapter(..)")
    }
}

impl<S: Service<RoleServer>> Adapter<S> {
    /// Servers of this factory on this runtime. An error of the factory fails `initialize`, or the request without a session, with it.
    pub fn new(runtime: Handle, factory: impl Fn() -> io::Result<S> + Send + Sync + 'static) -> Self
    where
        S: ServerHandler,
    {
        Self { runtime, factory: Arc::new(Factory { make: Box::new(factory), tool: S::get_tool }) }
    }

    /// The same of services that are no [`ServerHandler`], as rmcp's `Router` is: nothing is known of their tools, and so `Mcp-Param-…`
    /// fields (2026-07-28) are not compared with the arguments that they repeat.
    pub fn of_services(runtime: Handle, factory: impl Fn() -> io::Result<S> + Send + Sync + 'static) -> Self {
        Self { runtime, factory: Arc::new(Factory { make: Box::new(factory), tool: |_, _| None }) }
    }

    /// A shard's handler.
    pub fn handler(&self) -> Services<S> {
        Services { runtime: self.runtime.clone(), factory: Arc::clone(&self.factory), sessions: RefCell::default() }
    }
}

/// What makes services, and what is known of their tools.
pub(crate) struct Factory<S> {
    make: Box<dyn Fn() -> io::Result<S> + Send + Sync>,
    tool: fn(&S, &str) -> Option<Tool>,
}

impl<S> Factory<S> {
    pub(crate) fn make(&self) -> io::Result<S> {
        (self.make)()
    }

    /// Whether the fields of a call without a session repeat the arguments that its tool's schema says they do.
    pub(crate) fn check_param_headers(&self, service: &S, call: &Call) -> Result<(), RpcError> {
        let Some((name, arguments)) = exchange::tool_and_arguments(call) else { return Ok(()) };
        match (self.tool)(service, &name) {
            Some(tool) => call.check_param_headers(&tool.schema_as_json_value(), &arguments),
            None => Ok(()),
        }
    }
}

/// One shard's sessions and their services.
pub struct Services<S> {
    runtime: Handle,
    factory: Arc<Factory<S>>,
    sessions: RefCell<HashMap<SessionId, Inlet>>,
}

impl<S> fmt::Debug for Services<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} services", self.sessions.borrow().len())
    }
}

impl<S: Service<RoleServer>> Services<S> {
    /// Begins a session's service, which is given `first` to read, of so many bytes of params.
    fn begin(&self, session: &Session, first: ClientJsonRpcMessage, params: usize) -> oneshot::Receiver<Result<Json, RpcError>> {
        let (answered, answer) = oneshot::channel();
        let link = Link::new(session.clone(), answered);
        let (inbox, messages) = mpsc::channel(INBOX);
        let (cancels, cancelled) = mpsc::unbounded_channel();
        let transport = SessionTransport::new(Arc::clone(&link), messages, cancelled, inbox.downgrade());
        let service = self.runtime.spawn(run(Arc::clone(&self.factory), transport, Arc::clone(&link)));
        let inlet = Inlet::new(link, inbox, cancels, service.abort_handle());
        // An inbox that nothing was put into takes anything.
        let _ = inlet.put(first, params);
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
    const STATELESS: bool = true;

    async fn initialize(&self, session: &Session, params: &Json) -> Result<Json, RpcError> {
        let first = message::request(INITIALIZE, "initialize", Some(params)).map_err(RpcError::invalid_params)?;
        let answer = self.begin(session, with_parts(first, session), size_of_params(Some(params)));
        let mut beginning = Beginning { sessions: &self.sessions, session: session.id(), begun: false };
        let answer = answer.await.unwrap_or_else(|_| Err(RpcError::internal("the service ended")));
        beginning.begun = answer.is_ok();
        answer
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        let session = call.session();
        let message = message::request(call.number(), call.method(), call.raw_params()).map_err(RpcError::invalid_params)?;
        let message = with_parts(message, session);
        if call.stateless().is_some() {
            // As many at once as `Limits::exchanges` lets in, each of one body.
            self.runtime.spawn(exchange::run(Arc::clone(&self.factory), call.clone(), message));
            return Ok(Reply::Later);
        }
        let ended = || RpcError::internal("the service has ended");
        let put = match self.sessions.borrow().get(&session.id()) {
            Some(inlet) => inlet.call(call, message, size_of_params(call.raw_params())),
            None => return Err(ended()),
        };
        let put = put.map_err(|Full| RpcError::shed("The session's service has too much unread"))?;
        if put.await.is_err() {
            return Err(ended());
        }
        Ok(Reply::Later)
    }

    async fn notification(&self, session: &Session, method: &str, params: Option<&Json>) {
        let message = match message::notification(method, params) {
            Ok(message) => with_parts(message, session),
            Err(error) => return tracing::debug!(%error, method, ?session, "a notification that rmcp does not read"),
        };
        let put = match self.sessions.borrow().get(&session.id()) {
            Some(inlet) => inlet.put(message, size_of_params(params)),
            None => return,
        };
        match put {
            // Where the service has ended, its session does.
            Ok(put) => drop(put.await),
            Err(Full) => {
                tracing::warn!(
                    ?session,
                    method,
                    "a service does not keep up: its session ends, since a notification would be lost"
                );
                // A session that has ended is as good.
                let _ = session.close().await;
            }
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

/// What a message weighs in an inbox, apart from its envelope.
fn size_of_params(params: Option<&Json>) -> usize {
    params.map_or(0, |params| params.as_bytes().len())
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
async fn run<S: Service<RoleServer>>(factory: Arc<Factory<S>>, transport: SessionTransport, link: Arc<Link>) {
    let ending = Ending(link);
    let begin = async {
        let service = factory.make().map_err(|error| format!("no service: {error}"))?;
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
