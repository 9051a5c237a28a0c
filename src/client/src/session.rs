//! A session on any runtime: a machine, its connections' ends, and the callers who wait for it.
//!
//! One task owns it all. Never decides what to say, and never waits for a caller.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::{Duration, Instant as Clock};

use bytes::Bytes;
use futures_channel::{mpsc, oneshot};
use futures_util::StreamExt;
use rejoin_proto::client::{
    CallError, CallId, CallOptions, Client as Machine, Config, ConnId, Ended, Event, Input, Observer, Outcome, Output,
    StartError, State, StreamKey, Turn,
};
use rejoin_proto::time::Instant;

use crate::events::{Events, Notice, ServerRequest, Teller, UNANSWERED, queue};
use crate::handle::{Calling, Client, Command, Progress, Settled};
use crate::line::{Arrival, Line};
use crate::options::{BadEndpoint, Endpoint, Options, endpoint};

/// What a runtime must offer.
pub(crate) trait Runtime {
    /// A wait.
    type Sleep: Future<Output = ()>;

    fn sleep(&self, time: Duration) -> Self::Sleep;

    /// Starts a task that makes a connection and carries it.
    fn connect(&self, target: Arc<Endpoint>, line: Line);
}

/// Arrivals that wait for the session, beside one a connection. Reason: a fast server is slowed down by TCP, not held in memory.
const ARRIVALS: usize = 4;

/// Why a session could not be begun.
#[derive(Debug)]
pub enum ConnectError {
    /// The URL or the options cannot be used.
    Endpoint(BadEndpoint),
    /// The server could not be reached, refused, or answered what is no answer.
    Start(StartError),
}

impl std::fmt::Display for ConnectError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Endpoint(bad) => bad.fmt(f),
            Self::Start(why) => why.fmt(f),
        }
    }
}

impl std::error::Error for ConnectError {}

/// What waits for a call.
struct Waiting {
    outcome: oneshot::Sender<Outcome>,
    progress: Option<mpsc::Sender<Progress>>,
}

/// What is told when the session has begun or could not.
pub(crate) type Begun = oneshot::Receiver<Result<Client, StartError>>;

/// Waits until the session has begun.
pub(crate) async fn settle(begun: Begun) -> Result<Client, ConnectError> {
    // A session whose task was ended with its runtime never says.
    begun.await.unwrap_or(Err(StartError::Ended)).map_err(ConnectError::Start)
}

pub(crate) struct Session<R: Runtime, O> {
    runtime: R,
    observer: O,
    machine: Machine,
    target: Arc<Endpoint>,
    origin: Clock,
    commands: mpsc::UnboundedReceiver<Command>,
    inbound: mpsc::Receiver<(ConnId, Arrival)>,
    /// Cloned for each connection.
    arrivals: mpsc::Sender<(ConnId, Arrival)>,
    lines: HashMap<ConnId, mpsc::UnboundedSender<Bytes>>,
    waiting: HashMap<CallId, Waiting>,
    wake: Option<Pin<Box<R::Sleep>>>,
    teller: Teller,
    /// Until the session has begun.
    beginning: Option<Beginning>,
    /// Kept until the session is over, which their end tells.
    enders: Vec<oneshot::Sender<()>>,
}

/// Who waits for the session's beginning, and what its first handle is made of.
struct Beginning {
    says: oneshot::Sender<Result<Client, StartError>>,
    commands: mpsc::UnboundedSender<Command>,
}

enum Next {
    Command(Command),
    Arrival(ConnId, Arrival),
    Time,
    /// Every handle was dropped.
    Abandoned,
}

impl<R: Runtime, O: Observer> Session<R, O> {
    /// A session to run, its events, and the word that it has begun.
    pub(crate) fn new(url: &str, options: Options, runtime: R, observer: O) -> Result<(Self, Events, Begun), BadEndpoint> {
        let notices = options.notices;
        let (target, config): (Endpoint, Config) = endpoint(url, options)?;
        let (sends, commands) = mpsc::unbounded();
        let (arrivals, inbound) = mpsc::channel(ARRIVALS);
        let (says, begun) = oneshot::channel();
        let (teller, events) = queue(notices, sends.clone());
        let session = Self {
            runtime,
            observer,
            machine: Machine::new(Arc::new(config)),
            target: Arc::new(target),
            origin: Clock::now(),
            commands,
            inbound,
            arrivals,
            lines: HashMap::new(),
            waiting: HashMap::new(),
            wake: None,
            teller,
            beginning: Some(Beginning { says, commands: sends }),
            enders: Vec::new(),
        };
        Ok((session, events, begun))
    }

    /// Runs the session to its end.
    pub(crate) async fn run(mut self) {
        self.turn(Input::Start);
        while self.machine.state() != State::Ended {
            match poll_fn(|context| self.poll_next(context)).await {
                Next::Command(command) => self.command(command),
                Next::Arrival(conn, arrival) => self.arrival(conn, arrival),
                Next::Time => self.turn(Input::TimePassed),
                Next::Abandoned => return,
            }
        }
        // Calls that were sent into the end must not wait for ever.
        self.commands.close();
        while let Ok(command) = self.commands.try_recv() {
            self.command(command);
        }
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Next> {
        if let Poll::Ready(Some((conn, arrival))) = self.inbound.poll_next_unpin(context) {
            return Poll::Ready(Next::Arrival(conn, arrival));
        }
        match self.commands.poll_next_unpin(context) {
            Poll::Ready(Some(command)) => return Poll::Ready(Next::Command(command)),
            Poll::Ready(None) => return Poll::Ready(Next::Abandoned),
            Poll::Pending => {}
        }
        if let Some(sleep) = &mut self.wake
            && sleep.as_mut().poll(context).is_ready()
        {
            self.wake = None;
            return Poll::Ready(Next::Time);
        }
        Poll::Pending
    }

    fn now(&self) -> Instant {
        Instant::from_millis(u64::try_from(self.origin.elapsed().as_millis()).unwrap_or(u64::MAX))
    }

    fn arrival(&mut self, conn: ConnId, arrival: Arrival) {
        match arrival {
            Arrival::Opened => self.turn(Input::Opened { conn }),
            Arrival::Bytes(bytes) => self.turn(Input::Received { conn, bytes: &bytes }),
            Arrival::Ended(how) => {
                self.lines.remove(&conn);
                self.turn(Input::Ended { conn, how });
            }
        }
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Call(calling) => self.call(*calling),
            Command::Notify { method, params } => self.turn(Input::Notify { method: &method, params: params.as_deref() }),
            Command::Answer { request, outcome } => {
                let outcome = outcome.as_ref().map(|json| &json[..]).map_err(|json| &json[..]);
                self.turn(Input::Answer { request, outcome });
            }
            Command::Cancel { call, reason } => self.turn(Input::Cancel { call, reason: reason.as_deref() }),
            Command::Listen => self.turn(Input::Listen),
            Command::Cut { stream } => {
                let conn = self.machine.streams().find(|view| view.stream == stream).and_then(|view| view.conn);
                if let Some(conn) = conn {
                    self.lines.remove(&conn);
                    self.turn(Input::Ended { conn, how: Ended::Reset });
                }
            }
            Command::End { over } => {
                self.enders.push(over);
                self.turn(Input::End);
            }
        }
    }

    fn call(&mut self, calling: Calling) {
        let options = CallOptions { progress: calling.progress.is_some(), idempotency_key: calling.idempotency_key.as_deref() };
        let out = self.handle(Input::Call { method: &calling.method, params: calling.params.as_deref(), options });
        let mut out = out.into_iter();
        if let Some(Output::Took(took)) = out.next() {
            match took {
                Ok(call) => {
                    self.waiting.insert(call, Waiting { outcome: calling.outcome, progress: calling.progress });
                }
                // Whoever dropped the call's future does not wait.
                Err(why) => drop(calling.outcome.send(Outcome::Error(CallError::NotTaken(why)))),
            }
            let _ = calling.took.send(took);
        }
        out.for_each(|output| self.apply(output));
    }

    fn turn(&mut self, input: Input<'_>) {
        for output in self.handle(input) {
            self.apply(output);
        }
    }

    fn handle(&mut self, input: Input<'_>) -> Vec<Output> {
        let mut out = Vec::new();
        // Chance only spreads returns: where there is none to be had, they are not spread.
        let mut random = || getrandom::u64().unwrap_or_default();
        let now = self.now();
        let mut turn = Turn { now, random: &mut random, observer: &mut self.observer, out: &mut out };
        self.machine.handle(input, &mut turn);
        out
    }

    fn apply(&mut self, output: Output) {
        match output {
            Output::Took(_) => {}
            Output::Open { conn } => {
                let (sends, outbound) = mpsc::unbounded();
                self.lines.insert(conn, sends);
                self.runtime.connect(Arc::clone(&self.target), Line { conn, outbound, inbound: self.arrivals.clone() });
            }
            Output::Send { conn, bytes } => {
                if let Some(line) = self.lines.get(&conn) {
                    // A line that has ended says so.
                    let _ = line.unbounded_send(bytes);
                }
            }
            Output::Close { conn } => drop(self.lines.remove(&conn)),
            Output::WakeAt(at) => self.wake = Some(Box::pin(self.runtime.sleep(at.since(self.now())))),
            Output::Event(event) => self.event(event),
        }
    }

    fn event(&mut self, event: Event) {
        let notice = match event {
            Event::Ready { revision, result } => {
                if let Some(Beginning { says, commands }) = self.beginning.take() {
                    let session_id = self.machine.session_id().map(Into::into);
                    let settled = Arc::new(Settled { revision, session_id, result });
                    let _ = says.send(Ok(Client { commands, settled }));
                }
                return;
            }
            Event::Failed(why) => {
                if let Some(Beginning { says, .. }) = self.beginning.take() {
                    let _ = says.send(Err(why));
                }
                return;
            }
            Event::Outcome { call, outcome } => {
                if let Some(waiting) = self.waiting.remove(&call) {
                    let _ = waiting.outcome.send(outcome);
                }
                return;
            }
            Event::Notification { stream, method, params } => {
                if &*method == "notifications/progress" && self.report(stream, params.as_deref()) {
                    return;
                }
                Notice::Notification { stream, method, params }
            }
            Event::Request { request, stream, method, params } => return self.ask(request, stream, method, params),
            Event::RequestCancelled { request } => Notice::RequestCancelled(request),
            Event::Attached { stream, conn } => Notice::Attached { stream, conn },
            Event::Lost { stream, why, .. } => Notice::Lost { stream, why },
            Event::Gap { stream, gap } => Notice::Gap { stream, gap },
            Event::ContinuityViolated { stream, violation } => Notice::ContinuityViolated { stream, violation },
            Event::StreamEnded { why } => Notice::StreamEnded(why),
            Event::Malformed { stream, why } => Notice::Malformed { stream, why },
            Event::SessionLost { reason, unknown } => Notice::SessionLost { reason, unknown },
            Event::Undelivered { what, why } => Notice::Undelivered { what, why },
            Event::Ended => Notice::Ended,
        };
        // What was not read in time is counted there.
        let _ = self.teller.tell(notice);
    }

    /// Hands a report of progress to the call's own stream; whether it has one.
    fn report(&mut self, stream: StreamKey, params: Option<&[u8]>) -> bool {
        let waiting = stream.call().and_then(|call| self.waiting.get_mut(&call));
        let Some(progress) = waiting.and_then(|waiting| waiting.progress.as_mut()) else { return false };
        if let Some(report) = params.and_then(|params| serde_json::from_slice(params).ok()) {
            // One that finds no room is followed by one that tells more, or by the outcome.
            let _ = progress.try_send(report);
        }
        true
    }

    /// Hands a request of the server to the caller; one that nobody will read gets an error, since a call waits for it.
    fn ask(&mut self, key: rejoin_proto::client::RequestKey, stream: StreamKey, method: Box<str>, params: Option<Bytes>) {
        if self.teller.tell(Notice::Request(ServerRequest { key, stream, method, params, session: None })).is_err() {
            self.turn(Input::Answer { request: key, outcome: Err(UNANSWERED) });
        }
    }
}
