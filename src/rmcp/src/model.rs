//! rmcp's typed messages for a [`rejoin::Handler`] of one's own: a call as rmcp's request, rmcp's results and errors as its answer.
//!
//! ```
//! use rejoin::{Call, Handler, Json, Reply, RpcError, Server, Session};
//! use rejoin_rmcp::model;
//! use rmcp::model::{
//!     CallToolResult, ClientRequest, ContentBlock, ErrorData, InitializeRequestParams, InitializeResult, ListToolsResult,
//!     ServerCapabilities, Tool,
//! };
//!
//! struct Shout;
//!
//! impl Handler for Shout {
//!     async fn initialize(&self, _: &Session, params: &Json) -> Result<Json, RpcError> {
//!         let asked: InitializeRequestParams = model::params(params)?;
//!         let can = ServerCapabilities::builder().enable_tools().build();
//!         model::result(InitializeResult::new(can).with_protocol_version(asked.protocol_version))
//!     }
//!
//!     async fn request(&self, call: &Call) -> Result<Reply, RpcError> {
//!         match model::request(call)? {
//!             ClientRequest::ListToolsRequest(_) => {
//!                 let schema = serde_json::json!({ "type": "object", "properties": { "text": { "type": "string" } } });
//!                 let schema = schema.as_object().cloned().unwrap_or_default();
//!                 let tool = Tool::new("shout", "Says it in capitals.", std::sync::Arc::new(schema));
//!                 model::reply(call, ListToolsResult::with_all_items(vec![tool]))
//!             }
//!             ClientRequest::CallToolRequest(asked) if asked.params.name == "shout" => {
//!                 let arguments = asked.params.arguments.unwrap_or_default();
//!                 let text = arguments.get("text").and_then(|text| text.as_str());
//!                 let text = text.ok_or_else(|| model::error(ErrorData::invalid_params("a text is required", None)))?;
//!                 model::reply(call, CallToolResult::success(vec![ContentBlock::text(text.to_uppercase())]))
//!             }
//!             _ => Err(RpcError::method_not_found(call.method())),
//!         }
//!     }
//! }
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let server = Server::builder().shards(1).serve(|| Shout)?;
//! # server.shutdown(std::time::Duration::ZERO);
//! # server.wait();
//! # Ok(())
//! # }
//! ```
//!
//! Never decides what is answered, and runs nothing: for services that rmcp runs, see `serve`.

use rejoin::{Call, Json, Reply, RpcError};
use rmcp::model::{ClientJsonRpcMessage, ClientRequest, ErrorData, ServerResult};
use serde::de::DeserializeOwned;

use crate::message;

/// What a call asks, as rmcp reads it off any wire: a method that it does not know is its `CustomRequest`, and so is one whose params it
/// cannot read. The error is the one that the client should get.
pub fn request(call: &Call) -> Result<ClientRequest, RpcError> {
    match message::request(call.number(), call.method(), call.raw_params()).map_err(RpcError::invalid_params)? {
        ClientJsonRpcMessage::Request(request) => Ok(request.request),
        // What has a method and an id is a request, for whoever reads JSON-RPC.
        _ => Err(RpcError::invalid_params("not a request")),
    }
}

/// Params as a type of rmcp's, or any other; the error is the one that the client should get.
pub fn params<T: DeserializeOwned>(params: &Json) -> Result<T, RpcError> {
    params.parse().map_err(RpcError::invalid_params)
}

/// A result of rmcp's, encoded: for `initialize`, and for [`Call::respond`]. [`reply`] is for the rest.
pub fn result(result: impl Into<ServerResult>) -> Result<Json, RpcError> {
    Json::new(&result.into()).map_err(RpcError::internal)
}

/// A result of rmcp's as the answer of a call, without what its client would not know: `resultType` is of the revisions without sessions.
pub fn reply(call: &Call, result: impl Into<ServerResult>) -> Result<Reply, RpcError> {
    let mut result = result.into();
    if call.stateless().is_none() {
        result.strip_result_type_for_legacy_peer();
    }
    self::result(result).map(Reply::Now)
}

/// An error of rmcp's, as the client gets it.
pub fn error(error: ErrorData) -> RpcError {
    message::to_rpc(error)
}
