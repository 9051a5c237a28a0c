//! Messages between rejoin's form (a method and encoded params) and rmcp's types.
//!
//! rmcp reads what it would read off its own wire, so that its leniency and its strictness are kept. Never names an id of the client's:
//! a request's id here is its call's number.

use rejoin::{Json, RpcError};
#[cfg(feature = "service")]
use rmcp::model::ErrorCode;
use rmcp::model::{ClientJsonRpcMessage, ErrorData, RequestId};
#[cfg(feature = "service")]
use serde::Deserialize;
use serde::Serialize;
use serde_json::value::RawValue;

/// A message to the service, on the wire that there is not.
#[derive(Serialize)]
struct ToService<'a> {
    jsonrpc: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a RequestId>,
    #[serde(skip_serializing_if = "Option::is_none")]
    method: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    params: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    result: Option<&'a RawValue>,
}

const EMPTY: ToService<'static> = ToService { jsonrpc: "2.0", id: None, method: None, params: None, result: None };

impl ToService<'_> {
    fn read(&self) -> serde_json::Result<ClientJsonRpcMessage> {
        serde_json::from_slice(&serde_json::to_vec(self)?)
    }
}

/// The id that a call has for the service.
pub(crate) fn id_of(call: u64) -> RequestId {
    // Numbers of calls count up from 1: they do not reach what an i64 cannot hold.
    RequestId::Number(i64::try_from(call).unwrap_or(i64::MAX))
}

/// The call that an id names, where it is one of ours.
#[cfg(feature = "service")]
pub(crate) fn call_of(id: &RequestId) -> Option<u64> {
    match id {
        RequestId::Number(number) => u64::try_from(*number).ok(),
        RequestId::String(_) => None,
    }
}

/// A request of the client.
pub(crate) fn request(call: u64, method: &str, params: Option<&Json>) -> serde_json::Result<ClientJsonRpcMessage> {
    let params = params.map(Json::parse).transpose()?;
    ToService { id: Some(&id_of(call)), method: Some(method), params, ..EMPTY }.read()
}

/// A notification of the client.
#[cfg(feature = "service")]
pub(crate) fn notification(method: &str, params: Option<&Json>) -> serde_json::Result<ClientJsonRpcMessage> {
    let params = params.map(Json::parse).transpose()?;
    ToService { method: Some(method), params, ..EMPTY }.read()
}

/// The client's result of a request of the service.
#[cfg(feature = "service")]
pub(crate) fn result(id: &RequestId, result: &Json) -> serde_json::Result<ClientJsonRpcMessage> {
    ToService { id: Some(id), result: Some(result.parse()?), ..EMPTY }.read()
}

/// What a service says to its client, apart from its id.
#[cfg(feature = "service")]
#[derive(Deserialize)]
pub(crate) struct Said {
    /// Its method.
    pub(crate) method: String,
    /// Its params, encoded.
    pub(crate) params: Option<Box<RawValue>>,
}

#[cfg(feature = "service")]
impl Said {
    /// Takes a request or a notification of the service apart.
    pub(crate) fn of(message: &impl Serialize) -> serde_json::Result<Self> {
        serde_json::from_slice(&serde_json::to_vec(message)?)
    }
}

/// A service's error, as rejoin has it.
pub(crate) fn to_rpc(error: ErrorData) -> RpcError {
    let mut rpc = RpcError::new(error.code.0.into(), error.message);
    rpc.data = error.data.and_then(|data| serde_json::value::to_raw_value(&data).ok());
    rpc
}

/// A client's error, as rmcp has it.
#[cfg(feature = "service")]
pub(crate) fn from_rpc(error: RpcError) -> ErrorData {
    let data = error.data.and_then(|data| serde_json::from_str(data.get()).ok());
    let code = i32::try_from(error.code).map_or(ErrorCode::INTERNAL_ERROR, ErrorCode);
    ErrorData::new(code, error.message, data)
}

#[cfg(all(test, feature = "service"))]
mod tests {
    use super::*;

    fn json(text: &str) -> Json {
        Json::from(serde_json::from_str::<serde_json::Value>(text).expect("JSON"))
    }

    #[test]
    fn a_request_has_its_calls_number_for_its_id() {
        let read = request(7, "tools/list", Some(&json("{}"))).expect("a request");
        let ClientJsonRpcMessage::Request(request) = read else { panic!("{read:?}") };
        assert_eq!(call_of(&request.id), Some(7));
        assert_eq!(call_of(&RequestId::String("7".into())), None);
        assert_eq!(call_of(&RequestId::Number(-1)), None);
    }

    #[test]
    fn a_method_that_rmcp_does_not_know_is_its_custom_request() {
        let read = request(1, "acme/thing", Some(&json(r#"{"a":1}"#))).expect("a request");
        assert!(format!("{read:?}").contains("CustomRequest"), "{read:?}");
        let read = notification("notifications/acme", None).expect("a notification");
        assert!(matches!(read, ClientJsonRpcMessage::Notification(_)), "{read:?}");
    }

    #[test]
    fn errors_cross_both_ways_with_their_data() {
        let error = ErrorData::new(ErrorCode(-32042), "no", Some(serde_json::json!({"why": [1]})));
        let back = from_rpc(to_rpc(error.clone()));
        assert_eq!((back.code, back.message, back.data), (error.code, error.message, error.data));
        assert_eq!(from_rpc(RpcError::new(i64::MAX, "")).code, ErrorCode::INTERNAL_ERROR);
    }
}
