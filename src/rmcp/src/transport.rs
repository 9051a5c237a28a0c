//! rmcp's `Transport` on a session: what a service reads and writes instead of a socket.
//!
//! Never decides where an event goes beyond which call it names, and never holds more than a bounded number of messages.

use std::borrow::Cow;
use std::fmt;
use std::future::Future;
use std::sync::Arc;

use rejoin::{EmitError, Json, RequestError, RpcError};
use rmcp::RoleServer;
use rmcp::model::{
    CancelledNotificationParam, ClientJsonRpcMessage, ErrorData, GetExtensions, JsonRpcError, JsonRpcNotification,
    JsonRpcRequest, JsonRpcResponse, RequestId, ServerJsonRpcMessage, ServerNotification, ServerRequest, ServerResult,
};
use rmcp::service::OriginatingRequestId;
use rmcp::transport::Transport;
use tokio::sync::mpsc;

use crate::link::{Inbound, Link};
use crate::message::{self, Said, call_of, id_of};

/// The number that `initialize` has for its service; calls count from 1.
pub(crate) const INITIALIZE: u64 = 0;

/// Why a service's message did not reach its session.
#[derive(Debug)]
pub enum SendError {
    /// rejoin did not take it.
    Emit(EmitError),
    /// It does not encode as JSON.
    Encoding(serde_json::Error),
}

impl fmt::Display for SendError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Emit(why) => why.fmt(f),
            Self::Encoding(why) => write!(f, "the message does not encode: {why}"),
        }
    }
}

impl std::error::Error for SendError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Emit(why) => Some(why),
            Self::Encoding(why) => Some(why),
        }
    }
}

impl From<EmitError> for SendError {
    fn from(why: EmitError) -> Self {
        Self::Emit(why)
    }
}

impl From<serde_json::Error> for SendError {
    fn from(why: serde_json::Error) -> Self {
        Self::Encoding(why)
    }
}

/// A session of rejoin, as its service sees it. It is at its end when the session is, or the server.
pub struct SessionTransport {
    link: Arc<Link>,
    inbox: mpsc::Receiver<Inbound>,
    cancels: mpsc::UnboundedReceiver<u64>,
    /// For the client's answers; weak, so that the service's own requests do not keep it from its end.
    answers: mpsc::WeakSender<Inbound>,
}

impl fmt::Debug for SessionTransport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "transport of {:?}", self.link.session())
    }
}

impl SessionTransport {
    pub(crate) fn new(
        link: Arc<Link>,
        inbox: mpsc::Receiver<Inbound>,
        cancels: mpsc::UnboundedReceiver<u64>,
        answers: mpsc::WeakSender<Inbound>,
    ) -> Self {
        Self { link, inbox, cancels, answers }
    }
}

impl Transport<RoleServer> for SessionTransport {
    type Error = SendError;

    fn name() -> Cow<'static, str> {
        "rejoin".into()
    }

    fn send(&mut self, item: ServerJsonRpcMessage) -> impl Future<Output = Result<(), SendError>> + Send + 'static {
        let (link, answers) = (Arc::clone(&self.link), self.answers.clone());
        async move {
            match item {
                ServerJsonRpcMessage::Request(request) => ask(&link, request, answers),
                ServerJsonRpcMessage::Response(response) => respond(&link, response).await,
                ServerJsonRpcMessage::Error(error) => fail(&link, error).await,
                ServerJsonRpcMessage::Notification(notification) => notify(&link, notification).await,
            }
        }
    }

    async fn receive(&mut self) -> Option<ClientJsonRpcMessage> {
        loop {
            let inbound = tokio::select! {
                biased;
                Some(call) = self.cancels.recv() => return Some(cancelled(call)),
                inbound = self.inbox.recv() => inbound,
            };
            match inbound? {
                // Cancelled while it waited: the service never hears of it.
                Inbound::Call(call, ..) if !self.link.holds(call) => {}
                Inbound::Call(_, message, taken) | Inbound::Said(message, taken) => {
                    // The service has it: there is room for another.
                    drop(taken);
                    return Some(message);
                }
                Inbound::Answer(message) => return Some(message),
            }
        }
    }

    async fn close(&mut self) -> Result<(), SendError> {
        self.inbox.close();
        Ok(())
    }
}

fn cancelled(call: u64) -> ClientJsonRpcMessage {
    let params = CancelledNotificationParam::new(Some(id_of(call)), None);
    ClientJsonRpcMessage::notification(rmcp::model::CancelledNotification::new(params).into())
}

async fn respond(link: &Link, JsonRpcResponse { id, result, .. }: JsonRpcResponse<ServerResult>) -> Result<(), SendError> {
    let result = Json::new(&result);
    match call_of(&id) {
        Some(INITIALIZE) => link.initialized(result.map_err(RpcError::internal)),
        // Cancelled meanwhile, where it is not held.
        number => {
            if let Some(call) = number.and_then(|number| link.take(number)) {
                call.respond(result?).await?;
            }
        }
    }
    Ok(())
}

async fn fail(link: &Link, JsonRpcError { id, error, .. }: JsonRpcError) -> Result<(), SendError> {
    let error = message::to_rpc(error);
    match id.as_ref().and_then(call_of) {
        Some(INITIALIZE) => link.initialized(Err(error)),
        number => {
            if let Some(call) = number.and_then(|number| link.take(number)) {
                call.fail(error).await?;
            }
        }
    }
    Ok(())
}

async fn notify(
    link: &Link,
    JsonRpcNotification { notification, .. }: JsonRpcNotification<ServerNotification>,
) -> Result<(), SendError> {
    let session = link.session();
    match &notification {
        // The service gave a request up: withdrawing it tells the client.
        ServerNotification::CancelledNotification(cancelled) => {
            if let Some(task) = cancelled.params.request_id.as_ref().and_then(|id| link.asked(id)) {
                task.abort();
            }
            return Ok(());
        }
        // They belong to no call.
        ServerNotification::ResourceUpdatedNotification(_)
        | ServerNotification::ResourceListChangedNotification(_)
        | ServerNotification::ToolListChangedNotification(_)
        | ServerNotification::PromptListChangedNotification(_) => {
            let Said { method, params } = Said::of(&notification)?;
            session.notify(&method, params).await?;
        }
        // Progress goes where its token says; nothing else says where it came from.
        _ => {
            let Said { method, params } = Said::of(&notification)?;
            session.notify_unnamed(&method, params).await?;
        }
    }
    Ok(())
}

/// Asks the client on the stream of the call that the service said it asks for, and brings back the answer.
fn ask(
    link: &Arc<Link>,
    JsonRpcRequest { id, request, .. }: JsonRpcRequest<ServerRequest>,
    answers: mpsc::WeakSender<Inbound>,
) -> Result<(), SendError> {
    let asking = request.extensions().get::<OriginatingRequestId>().and_then(|OriginatingRequestId(id)| call_of(id));
    let call = asking.and_then(|number| link.call(number));
    let Said { method, params } = Said::of(&request)?;
    let (shared, name) = (Arc::clone(link), id.clone());
    let work = async move {
        let outcome = match call {
            Some(call) => call.request(&method, params).await,
            None => shared.session().request_unnamed(&method, params).await,
        };
        shared.asked(&name);
        if let Some(inbox) = answers.upgrade() {
            // A service that has ended does not wait for it.
            let _ = inbox.send(Inbound::Answer(answer(&name, outcome))).await;
        }
    };
    link.ask(id, || tokio::spawn(work).abort_handle());
    Ok(())
}

/// The client's answer, or why there is none, as the service gets it.
fn answer(id: &RequestId, outcome: Result<Json, RequestError>) -> ClientJsonRpcMessage {
    let error = match outcome {
        Ok(result) => match message::result(id, &result) {
            Ok(message) => return message,
            Err(why) => ErrorData::internal_error(format!("the client's result cannot be read: {why}"), None),
        },
        Err(RequestError::Rpc(error)) => message::from_rpc(error),
        Err(why) => ErrorData::internal_error(why.to_string(), None),
    };
    ClientJsonRpcMessage::error(error, Some(id.clone()))
}
