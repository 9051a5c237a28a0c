//! Which message of a session goes where: the client's calls to the child and its answers back, the child's requests to the client and
//! its answers back.
//!
//! Never starts or ends a process, and never parses what it only carries. Ids towards the child are the calls' own numbers; ids of
//! the child's requests stay on its side.

use std::collections::HashMap;
use std::future::{Future, poll_fn};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;

use rejoin::{Call, Cancelled, Json, Limits, RequestError, RpcError, Session};
use rejoin_proto::mcp::{self, Body, Id, Message, Notification, Request, Response};
use serde_json::value::RawValue;
use tokio::sync::oneshot;

use super::Plant;
use super::counts::Counts;
use super::limits::{Backlog, NotTold, worth_a_line};
use super::lines::Line;

/// The id of `initialize` towards the child. Calls' numbers begin at 1.
const INITIALIZE: u64 = 0;

/// What became of `initialize`.
pub(super) type Started = Result<Json, RpcError>;

/// A session's messages, from any thread. No lock is held while anything waits.
pub(super) struct Routes {
    session: Session,
    child: Backlog,
    plant: Arc<Plant>,
    table: Mutex<Table>,
    /// Lines that were no messages.
    unusable: AtomicU64,
    /// Notifications that the child was not told.
    untold: AtomicU64,
}

#[derive(Default)]
struct Table {
    /// Who waits for the answer to `initialize`.
    starting: Option<oneshot::Sender<Started>>,
    /// Calls that the child has not answered, by number.
    calls: HashMap<u64, Call>,
    /// Requests of the child that the client has not answered. Dropping the sender withdraws one.
    asked: HashMap<Id, oneshot::Sender<()>>,
    /// Whether the session is over: nothing is carried any more.
    closed: bool,
}

impl Routes {
    /// The messages of a session whose child is yet to start; `params` are `initialize`'s.
    pub(super) fn new(
        session: Session,
        params: &Json,
        child: Backlog,
        plant: Arc<Plant>,
        starting: oneshot::Sender<Started>,
    ) -> Arc<Self> {
        let table = Mutex::new(Table { starting: Some(starting), ..Table::default() });
        let routes = Self { session, child, plant, table, unusable: AtomicU64::new(0), untold: AtomicU64::new(0) };
        // The first message of an empty queue.
        let _ = routes.child.tell_always(line(|out| mcp::write_request(out, INITIALIZE, "initialize", Some(params.as_bytes()))));
        Arc::new(routes)
    }

    /// The session.
    pub(super) fn session(&self) -> &Session {
        &self.session
    }

    fn limits(&self) -> &Limits {
        &self.plant.settings.limits
    }

    /// What is counted of all children.
    pub(super) fn counts(&self) -> &Counts {
        &self.plant.counts
    }

    /// The longest line of the child that can be a message.
    pub(super) fn longest_line(&self) -> usize {
        self.limits().message_bytes
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        // A panic while it was locked cannot have left it half changed.
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }

    // ---- from the client ----

    /// A call for the child. The error is the client's answer: the child was told nothing.
    pub(super) fn call(&self, call: &Call) -> Result<(), RpcError> {
        let number = call.number();
        let line = line(|out| mcp::write_request(out, number, call.method(), call.raw_params().map(Json::as_bytes)));
        let mut table = self.table();
        if table.closed {
            return Err(not_told(NotTold::Gone));
        }
        self.child.tell(line).map_err(not_told)?;
        table.calls.insert(number, call.clone());
        Ok(())
    }

    /// A call needs no answer any more.
    pub(super) fn cancelled(&self, call: &Call, why: Cancelled) {
        let number = call.number();
        if self.table().calls.remove(&number).is_none() {
            return;
        }
        let reason = match why {
            Cancelled::ByClient => "cancelled by the client",
            Cancelled::Age => "too old",
            Cancelled::SessionEnded => "the session has ended",
            Cancelled::Drain => "the server is shutting down",
            Cancelled::Repeated => "sent twice",
        };
        let params = format!(r#"{{"requestId":{number},"reason":"{reason}"}}"#);
        // A child that has ended needs no telling.
        let _ = self.child.tell_always(line(|out| {
            mcp::write_notification(out, "notifications/cancelled", Some(params.as_bytes()));
        }));
    }

    /// A notification for the child. One that finds too much waiting is left out, and counted: nobody waits for its answer.
    pub(super) fn notified(&self, method: &str, params: Option<&Json>) {
        let line = line(|out| mcp::write_notification(out, method, params.map(Json::as_bytes)));
        if self.child.tell(line) == Err(NotTold::Full) {
            self.counts().untold.add(1);
            let nth = self.untold.fetch_add(1, Ordering::Relaxed) + 1;
            if worth_a_line(nth) {
                tracing::warn!(session = ?self.session, nth, "the child does not read its input: a notification was left out");
            }
        }
    }

    // ---- the child's life ----

    /// Whether `initialize` is not answered yet.
    pub(super) fn is_starting(&self) -> bool {
        self.table().starting.is_some()
    }

    /// Fails `initialize`, where it is not answered yet; says whether it was not.
    pub(super) fn fail_start(&self, error: RpcError) -> bool {
        let Some(starting) = self.table().starting.take() else { return false };
        // Whoever waited may have gone.
        let _ = starting.send(Err(error));
        true
    }

    /// The session is over: its child hears the end of its input, and what it still says is not carried.
    pub(super) fn close(&self) {
        let gone = {
            let mut table = self.table();
            table.closed = true;
            (std::mem::take(&mut table.calls), std::mem::take(&mut table.asked))
        };
        // Dropped without the lock: a call's drop reaches its shard.
        drop(gone);
        self.child.end();
    }

    // ---- from the child ----

    /// One line of the child's stdout. Waits until what it says has found room: a child that floods is not read meanwhile.
    pub(super) async fn said(self: &Arc<Self>, line: Line<'_>) {
        if self.table().closed {
            return;
        }
        match line {
            Line::Whole(line) if line.trim_ascii().is_empty() => {}
            Line::Whole(line) => match mcp::parse(line, self.limits()) {
                Ok(Body::One(message)) => self.message(message).await,
                Ok(Body::Batch(messages)) => {
                    for message in messages {
                        self.message(message).await;
                    }
                }
                Err(refusal) => {
                    self.counts().unusable.add(1);
                    self.unusable(refusal.shape().message);
                }
            },
            Line::TooLong { start, end } => {
                self.counts().too_long.add(1);
                self.unusable("It is longer than this server admits");
                let call = answered_by(start, end).and_then(|number| self.table().calls.remove(&number));
                if let Some(call) = call {
                    answered(&call, call.fail(RpcError::internal("the result is larger than this server admits")).await);
                }
            }
        }
    }

    fn unusable(&self, why: &str) {
        let nth = self.unusable.fetch_add(1, Ordering::Relaxed) + 1;
        if worth_a_line(nth) {
            tracing::warn!(session = ?self.session, nth, why, "a line of the child's stdout is no message: not forwarded");
        }
    }

    async fn message(self: &Arc<Self>, message: Message<'_>) {
        match message {
            Message::Response(response) => self.answer(response).await,
            Message::Notification(notification) => self.notify(notification).await,
            Message::Request(request) => self.ask(request).await,
        }
    }

    async fn answer(&self, response: Response<'_>) {
        let number = match response.id {
            Some(Id::Integer(id)) => u64::try_from(id).ok(),
            Some(Id::Large(id)) => Some(id.get()),
            Some(Id::Text(_)) | None => None,
        };
        let outcome = match response.outcome {
            Ok(result) => Ok(Json::from(result.to_owned())),
            Err(error) => Err(serde_json::from_str(error.get())
                .unwrap_or_else(|_| RpcError::internal("the child answered with an error that is none"))),
        };
        if number == Some(INITIALIZE) {
            if let Some(starting) = self.table().starting.take() {
                // Whoever waited may have gone.
                let _ = starting.send(outcome);
            }
            return;
        }
        let call = number.and_then(|number| self.table().calls.remove(&number));
        match (call, outcome) {
            (Some(call), Ok(result)) => answered(&call, call.respond(result).await),
            (Some(call), Err(error)) => answered(&call, call.fail(error).await),
            // Most often a call that was cancelled meanwhile.
            (None, _) => tracing::debug!(session = ?self.session, "the child answered what nobody asks any more"),
        }
    }

    async fn notify(&self, notification: Notification<'_>) {
        if notification.method == "notifications/cancelled" {
            let withdrawn = mcp::cancelled_request(notification.params).and_then(|id| self.table().asked.remove(&id));
            return drop(withdrawn);
        }
        if let Err(error) = self.session.notify_unnamed(&notification.method, notification.params).await {
            tracing::debug!(session = ?self.session, %error, "a notification of the child was not taken");
        }
    }

    /// A request of the child to the client. Its answer goes back under the child's own id.
    async fn ask(self: &Arc<Self>, request: Request<'_>) {
        let withdrawn = {
            let mut table = self.table();
            if table.asked.len() >= self.limits().client_requests || table.asked.contains_key(&request.id) {
                drop(table);
                let error = RpcError::internal("too many requests, or two of one id, are unanswered");
                return self.answer_child(&request.id, Err(&error));
            }
            let (withdraw, withdrawn) = oneshot::channel();
            table.asked.insert(request.id.clone(), withdraw);
            withdrawn
        };
        let (routes, id) = (Arc::clone(self), request.id);
        let (method, params) = (request.method.into_owned(), request.params.map(RawValue::to_owned));
        let mut asking = Box::pin(async move {
            let outcome = tokio::select! {
                outcome = routes.session.request_unnamed(&method, params) => outcome,
                _ = withdrawn => return,
            };
            routes.table().asked.remove(&id);
            match outcome {
                Ok(result) => routes.answer_child(&id, Ok(&result)),
                Err(RequestError::Rpc(error)) => routes.answer_child(&id, Err(&error)),
                Err(error @ (RequestError::NotSent(_) | RequestError::Unanswered)) => {
                    routes.answer_child(&id, Err(&RpcError::internal(error)));
                }
            }
        });
        // Begun here, so that it stands before whatever the child says next.
        if poll_fn(|cx| Poll::Ready(asking.as_mut().poll(cx))).await.is_pending() {
            tokio::spawn(asking);
        }
    }

    fn answer_child(&self, id: &Id, outcome: Result<&Json, &RpcError>) {
        let line = match outcome {
            Ok(result) => line(|out| mcp::write_result(out, id, result.as_bytes())),
            Err(error) => {
                let error = Json::new(error).unwrap_or_else(|_| serde_json::json!({ "code": -32603, "message": "" }).into());
                line(|out| mcp::write_error(out, Some(id), error.as_bytes()))
            }
        };
        // A child that has ended needs no telling.
        let _ = self.child.tell_always(line);
    }
}

/// An answer that comes too late is nobody's fault.
fn answered(call: &Call, outcome: Result<rejoin::Emitted, rejoin::EmitError>) {
    if let Err(error) = outcome {
        tracing::debug!(%error, ?call, "an answer of the child was not taken");
    }
}

fn not_told(why: NotTold) -> RpcError {
    match why {
        NotTold::Full => RpcError::shed("The server's process does not read its input, and too much waits for it"),
        NotTold::Gone => RpcError::internal("the server's process has ended"),
    }
}

/// A message as a line. The kernel's writers leave no line end inside one.
fn line(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut line = Vec::new();
    write(&mut line);
    line.push(b'\n');
    line
}

/// The call that a line too long to be parsed answers, where that is certain: so that its client need not wait for its age. Looks for
/// the two ways in which a response is written, the id first or last; a request's id would stand beside its method.
fn answered_by(start: &[u8], end: &[u8]) -> Option<u64> {
    const FIRST: &str = r#"{"jsonrpc":"2.0","id":"#;
    let compact: Vec<u8> = start.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).take(64).collect();
    let head =
        str::from_utf8(&compact).unwrap_or_else(|error| str::from_utf8(&compact[..error.valid_up_to()]).unwrap_or_default());
    let number = |digits: &str| digits.bytes().all(|byte| byte.is_ascii_digit()).then(|| digits.parse().ok()).flatten();
    if let Some((digits, rest)) = head.strip_prefix(FIRST).and_then(|rest| rest.split_once(',')) {
        return rest.starts_with(r#""result":"#).then(|| number(digits)).flatten();
    }
    if !head.starts_with(r#"{"result":"#) {
        return None;
    }
    let compact: Vec<u8> = end.iter().copied().filter(|byte| !byte.is_ascii_whitespace()).collect();
    // Its last brace closes the message, so the member before it is the message's own.
    let tail = compact.strip_suffix(b"}")?;
    let digits = tail.len() - tail.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    let member = tail[..digits].ends_with(br#","id":"#);
    member.then(|| str::from_utf8(&tail[digits..]).ok().and_then(number)).flatten()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_response_too_long_to_be_parsed_names_its_call() {
        let found = |start: &str, end: &str| answered_by(start.as_bytes(), end.as_bytes());
        assert_eq!(found(r#"{"jsonrpc":"2.0","id":12,"result":{"x":"#, "}}"), Some(12));
        assert_eq!(found(r#"{"jsonrpc": "2.0", "id": 12, "result": {"#, "}}"), Some(12));
        assert_eq!(found(r#"{"result":{"content":"#, r#"x"}]},"jsonrpc":"2.0","id":7}"#), Some(7));
        assert_eq!(found(r#"{"result": {"#, r#"}, "jsonrpc": "2.0", "id": 7 }"#), Some(7));
    }

    #[test]
    fn what_may_be_a_request_or_anything_else_names_none() {
        let found = |start: &str, end: &str| answered_by(start.as_bytes(), end.as_bytes());
        for (start, end) in [
            (r#"{"method":"sampling/createMessage","params":{"#, r#"},"jsonrpc":"2.0","id":7}"#),
            (r#"{"jsonrpc":"2.0","id":12,"method":"x""#, "}}"),
            (r#"{"jsonrpc":"2.0","id":"12","result":{"#, "}}"),
            (r#"{"result":{"#, r#"{"id":7}}"#),
            (r#"{"result":{"#, r#""text":"\",\"id\":7}"#),
            (r#"{"result":{"#, r#","id":}"#),
            (r#"{"result":{"#, r#","id":-7}"#),
            ("", ""),
            ("\u{e9}\u{e9}", "}"),
        ] {
            assert_eq!(found(start, end), None, "{start} {end}");
        }
    }
}
