//! Handlers whose futures are `Send`, on any runtime: the same messages, answered through the same handles.
//!
//! Never runs handler code on a shard, and never starts a thread: whoever embeds says where futures go.

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::Poll;

use futures_channel::oneshot;
use rejoin_proto::refusal::Ended;
use rejoin_proto::shard::io::Cancelled;
use tracing::{Instrument, Span};

use crate::call::Call;
use crate::error::{EmitError, RpcError};
use crate::handler::{Handler, Reply};
use crate::json::Json;
use crate::session::Session;
use crate::task::Caught;
use crate::trace;

/// A future to run somewhere.
pub type Work = Pin<Box<dyn Future<Output = ()> + Send>>;

/// A [`Handler`] whose futures may run on any thread; see there.
pub trait SendHandler: Send + Sync + 'static {
    /// As [`Handler::STATELESS`].
    const STATELESS: bool = false;

    /// As [`Handler::initialize`].
    fn initialize(&self, session: &Session, params: &Json) -> impl Future<Output = Result<Json, RpcError>> + Send;

    /// As [`Handler::request`].
    fn request(&self, call: &Call) -> impl Future<Output = Result<Reply, RpcError>> + Send;

    /// As [`Handler::notification`].
    fn notification(&self, session: &Session, method: &str, params: Option<&Json>) -> impl Future<Output = ()> + Send {
        let _ = (session, method, params);
        async {}
    }

    /// As [`Handler::cancelled`]; on the shard's thread, so it must not block.
    fn cancelled(&self, call: &Call, why: Cancelled) {
        let _ = (call, why);
    }

    /// As [`Handler::rotated`]; on the shard's thread, so it must not block.
    fn rotated(&self, session: &Session) {
        let _ = session;
    }

    /// As [`Handler::closed`]; on the shard's thread, so it must not block.
    fn closed(&self, session: &Session, why: Ended) {
        let _ = (session, why);
    }
}

/// Adapts a [`SendHandler`] to the shards, with a function that runs its futures elsewhere: on tokio,
///
/// ```no_run
/// # fn serve(handler: impl rejoin::SendHandler) -> Result<rejoin::ServerHandle, rejoin::StartError> {
/// let tokio = tokio::runtime::Handle::current();
/// let sent = rejoin::Sent::new(handler, move |work| drop(tokio.spawn(work)));
/// rejoin::Server::builder().serve(move || sent.clone())
/// # }
/// ```
///
/// or on a pool of threads, where handlers may block:
///
/// ```no_run
/// # fn serve(handler: impl rejoin::SendHandler) -> Result<rejoin::ServerHandle, Box<dyn std::error::Error>> {
/// let pool = futures_executor::ThreadPool::builder().pool_size(8).create()?;
/// let sent = rejoin::Sent::new(handler, move |work| pool.spawn_ok(work));
/// # Ok(rejoin::Server::builder().serve(move || sent.clone())?)
/// # }
/// ```
///
/// Notifications of one session may overtake each other there, since each is a future of its own.
pub struct Sent<H, S> {
    handler: Arc<H>,
    spawn: Arc<S>,
}

impl<H, S> Clone for Sent<H, S> {
    fn clone(&self) -> Self {
        Self { handler: Arc::clone(&self.handler), spawn: Arc::clone(&self.spawn) }
    }
}

impl<H, S> fmt::Debug for Sent<H, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Sent(..)")
    }
}

impl<H: SendHandler, S: Fn(Work) + Send + Sync + 'static> Sent<H, S> {
    /// `spawn` is called on a shard's thread, and must not block.
    pub fn new(handler: H, spawn: S) -> Self {
        Self { handler: Arc::new(handler), spawn: Arc::new(spawn) }
    }
}

impl<H: SendHandler, S: Fn(Work) + Send + Sync + 'static> Handler for Sent<H, S> {
    const STATELESS: bool = H::STATELESS;

    async fn initialize(&self, session: &Session, params: &Json) -> Result<Json, RpcError> {
        let (tell, told) = oneshot::channel();
        // The shard's task is in the call's span already.
        let (handler, session, params, span) = (Arc::clone(&self.handler), session.clone(), params.clone(), Span::current());
        (self.spawn)(Box::pin(async move {
            let result = Caught::new(handler.initialize(&session, &params).instrument(span)).await;
            // The call may have been cancelled meanwhile.
            let _ = tell.send(result.unwrap_or_else(|_| Err(panicked())));
        }));
        told.await.unwrap_or_else(|oneshot::Canceled| Err(RpcError::internal("the handler was dropped")))
    }

    async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
        let (handler, call) = (Arc::clone(&self.handler), call.clone());
        (self.spawn)(Box::pin(async move {
            let ended = {
                let mut work = pin!(Caught::new(handler.request(&call).instrument(call.span().clone())));
                poll_fn(|cx| match call.poll_cancelled(cx) {
                    Poll::Ready(_) => Poll::Ready(None),
                    Poll::Pending => work.as_mut().poll(cx).map(Some),
                })
                .await
            };
            let answered = match ended {
                None | Some(Ok(Ok(Reply::Later))) => return,
                Some(Ok(Ok(Reply::Now(result)))) => call.respond(result).await,
                Some(Ok(Err(error))) => call.fail(error).await,
                Some(Err(panic)) => {
                    tracing::error!(panic, ?call, "a handler panicked");
                    call.fail(panicked()).await
                }
            };
            if let Err(error @ EmitError::Stopped) = answered {
                tracing::debug!(%error, ?call, "an answer came too late");
            }
        }));
        Ok(Reply::Later)
    }

    async fn notification(&self, session: &Session, method: &str, params: Option<&Json>) {
        let (handler, session) = (Arc::clone(&self.handler), session.clone());
        let (method, params, span) = (Box::<str>::from(method), params.cloned(), Span::current());
        (self.spawn)(Box::pin(async move {
            let work = handler.notification(&session, &method, params.as_ref()).instrument(span);
            if let Err(panic) = Caught::new(work).await {
                trace::notification_panicked(&panic, &method);
            }
        }));
    }

    fn cancelled(&self, call: &Call, why: Cancelled) {
        self.handler.cancelled(call, why);
    }

    fn rotated(&self, session: &Session) {
        self.handler.rotated(session);
    }

    fn closed(&self, session: &Session, why: Ended) {
        self.handler.closed(session, why);
    }
}

fn panicked() -> RpcError {
    RpcError::internal("the handler panicked")
}
