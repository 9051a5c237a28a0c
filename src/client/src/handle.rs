//! The caller's handles: a session, and a call that runs in it.
//!
//! Never decides anything: a handle sends commands to its session, and waits.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use bytes::Bytes;
use futures_channel::{mpsc, oneshot};
use futures_util::{FutureExt, Stream, StreamExt};
use rejoin_proto::client::{CallId, NotTaken, Outcome, RequestKey, StreamKey, Unknown};
use rejoin_proto::mcp::Revision;
use serde::{Deserialize, Serialize};

/// What a session is told by its handles.
#[derive(Debug)]
pub(crate) enum Command {
    Call(Box<Calling>),
    Notify { method: Box<str>, params: Option<Bytes> },
    Answer { request: RequestKey, outcome: Result<Bytes, Bytes> },
    Cancel { call: CallId, reason: Option<Box<str>> },
    Listen,
    Cut { stream: StreamKey },
    End { over: oneshot::Sender<()> },
}

/// A call on its way to its session.
#[derive(Debug)]
pub(crate) struct Calling {
    pub method: Box<str>,
    pub params: Option<Bytes>,
    pub idempotency_key: Option<Box<str>>,
    pub progress: Option<mpsc::Sender<Progress>>,
    pub took: oneshot::Sender<Result<CallId, NotTaken>>,
    pub outcome: oneshot::Sender<Outcome>,
}

/// What was settled when a session began.
#[derive(Debug)]
pub(crate) struct Settled {
    pub revision: Revision,
    pub session_id: Option<Box<str>>,
    pub result: Bytes,
}

/// A session. Clones are handles of the same; when all are dropped, [`Events`](crate::Events) and calls included, its connections close
/// and the session is left to expire. [`end`](Self::end) ends it at the server.
#[derive(Clone, Debug)]
pub struct Client {
    pub(crate) commands: mpsc::UnboundedSender<Command>,
    pub(crate) settled: Arc<Settled>,
}

/// How far a call is (`notifications/progress`).
#[derive(Clone, Debug, PartialEq, Deserialize)]
pub struct Progress {
    /// How far.
    pub progress: f64,
    /// Of how much.
    pub total: Option<f64>,
    /// In words.
    pub message: Option<String>,
}

/// Reports of progress that wait to be read. More are left out: each tells more than the one before.
const PROGRESS: usize = 256;

/// How a call is made.
#[derive(Clone, Debug, Default)]
pub struct CallSettings {
    /// Ask for progress.
    pub progress: bool,
    /// Names this execution for servers that know `Idempotency-Key`, rejoin's among them: visible ASCII. A caller that repeats a call whose
    /// outcome is unknown must have given one, and gives the same again.
    pub idempotency_key: Option<String>,
}

/// A call that runs: a future of its outcome. Dropping it does not cancel the call; [`cancel`](Self::cancel) does.
#[derive(Debug)]
pub struct Running {
    outcome: oneshot::Receiver<Outcome>,
    took: Option<oneshot::Receiver<Result<CallId, NotTaken>>>,
    progress: Option<mpsc::Receiver<Progress>>,
    call: Option<CallId>,
    commands: mpsc::UnboundedSender<Command>,
}

impl Client {
    /// Calls a method; `params` become a JSON object. Exactly one of a result, an error, or an unknown outcome; never sent twice.
    pub async fn call(&self, method: &str, params: impl Serialize) -> Outcome {
        self.start(method, params, CallSettings::default()).await
    }

    /// Calls a tool; `arguments` become a JSON object.
    pub async fn call_tool(&self, name: &str, arguments: impl Serialize) -> Outcome {
        self.start_tool(name, arguments, CallSettings::default()).await
    }

    /// Calls a tool and does not wait.
    pub fn start_tool(&self, name: &str, arguments: impl Serialize, settings: CallSettings) -> Running {
        #[derive(Serialize)]
        struct Params<'a, A> {
            name: &'a str,
            arguments: A,
        }
        self.start("tools/call", Params { name, arguments }, settings)
    }

    /// Calls a method and does not wait.
    pub fn start(&self, method: &str, params: impl Serialize, settings: CallSettings) -> Running {
        let (took, taken) = oneshot::channel();
        let (outcome, told) = oneshot::channel();
        let (says, said) = mpsc::channel(PROGRESS);
        // What is no JSON is refused by the machine, like what is no object.
        let params = serde_json::to_vec(&params).unwrap_or_default();
        let calling = Calling {
            method: method.into(),
            // Null stands for none.
            params: Some(Bytes::from(params)).filter(|params| &params[..] != b"null"),
            idempotency_key: settings.idempotency_key.map(Into::into),
            progress: settings.progress.then_some(says),
            took,
            outcome,
        };
        self.send(Command::Call(Box::new(calling)));
        let progress = settings.progress.then_some(said);
        Running { outcome: told, took: Some(taken), progress, call: None, commands: self.commands.clone() }
    }

    /// Sends a notification; never sent twice. [`Notice::Undelivered`](crate::Notice::Undelivered) says if it did not arrive.
    pub fn notify(&self, method: &str, params: impl Serialize) {
        let params = serde_json::to_vec(&params).unwrap_or_default();
        let params = Some(Bytes::from(params)).filter(|params| &params[..] != b"null");
        self.send(Command::Notify { method: method.into(), params });
    }

    /// Opens the standalone stream, where it is not open.
    pub fn listen(&self) {
        self.send(Command::Listen);
    }

    /// Cuts the connection that carries a stream, as a network would: for tests of what comes after.
    pub fn cut(&self, stream: StreamKey) {
        self.send(Command::Cut { stream });
    }

    /// Ends the session at the server, and waits until it has.
    pub async fn end(self) {
        let (over, is_over) = oneshot::channel();
        self.send(Command::End { over });
        // Said, or dropped with the session: over in any case.
        let _ = is_over.await;
    }

    /// What the session speaks.
    pub fn revision(&self) -> Revision {
        self.settled.revision
    }

    /// The session's id, where the server gave one.
    pub fn session_id(&self) -> Option<&str> {
        self.settled.session_id.as_deref()
    }

    /// The server's `initialize` result: JSON.
    pub fn server(&self) -> &[u8] {
        &self.settled.result
    }

    fn send(&self, command: Command) {
        // A session that has ended answers by dropping what would be answered.
        let _ = self.commands.unbounded_send(command);
    }
}

impl Running {
    /// Reports of progress as they come, until the call's end. None unless the settings asked for it.
    pub fn progress(&mut self) -> impl Stream<Item = Progress> + '_ {
        futures_util::stream::poll_fn(|context| match &mut self.progress {
            Some(progress) => progress.poll_next_unpin(context),
            None => Poll::Ready(None),
        })
    }

    /// The call's number, which [`Notice::SessionLost`](crate::Notice::SessionLost) names it by; `None` where it was not taken.
    pub async fn id(&mut self) -> Option<CallId> {
        if let Some(took) = &mut self.took {
            self.call = took.await.ok().and_then(Result::ok);
            self.took = None;
        }
        self.call
    }

    /// Gives the call up: the server is told, and the outcome is unknown at once.
    pub async fn cancel(mut self, reason: Option<&str>) -> Outcome {
        if let Some(call) = self.id().await {
            // A session that has ended has told the outcome.
            let _ = self.commands.unbounded_send(Command::Cancel { call, reason: reason.map(Into::into) });
        }
        self.await
    }
}

impl Future for Running {
    type Output = Outcome;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Outcome> {
        // A call that was not taken was not sent; one that was taken always has an outcome, unless its session's task was ended from
        // outside, with its runtime.
        self.outcome.poll_unpin(context).map(|told| told.unwrap_or(Outcome::Unknown(Unknown::Ended)))
    }
}

impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.total {
            Some(total) => write!(f, "{} of {total}", self.progress),
            None => write!(f, "{}", self.progress),
        }
    }
}
