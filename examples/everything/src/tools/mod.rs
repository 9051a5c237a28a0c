//! The tools: which there are, and which function each is.
//!
//! Never lets a wrong argument reach a tool's own code: arguments are read into types first.

mod asking;
mod paced;
mod rounds;
mod simple;
mod talking;

use rejoin::{Reply, RpcError};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use crate::content;
use crate::context::Context;

/// The params of `tools/call`.
#[derive(Deserialize)]
struct CallTool {
    name: String,
    #[serde(default)]
    arguments: Option<Value>,
}

/// The arguments of a tool that takes none.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

/// Why a tool has no result.
enum Failure {
    /// Its arguments are wrong; says how.
    Arguments(String),
    /// Anything else.
    Rpc(RpcError),
}

impl From<RpcError> for Failure {
    fn from(error: RpcError) -> Self {
        Self::Rpc(error)
    }
}

/// Tools that need a session: its standalone stream, its life, or that its client comes back.
const OF_SESSIONS: [&str; 3] = ["broadcast", "rotate", "test_reconnection"];

/// What `tools/list` lists.
pub(crate) fn list(context: &Context<'_>) -> Value {
    let mut tools = [paced::list(), simple::list(), talking::list(), asking::list()].concat();
    if context.memory.is_stateless() {
        tools.retain(|tool| !OF_SESSIONS.iter().any(|name| tool["name"] == *name));
        tools.extend(rounds::list(context.shared.tools_changed()));
    }
    tools.into()
}

/// Answers `tools/call`.
pub(crate) async fn call(context: &Context<'_>) -> Result<Reply, RpcError> {
    let CallTool { name, arguments } = context.call.params()?;
    match run(&name, arguments.unwrap_or_else(|| json!({})), context).await {
        Ok(reply) => Ok(reply),
        Err(Failure::Arguments(why)) if context.memory.arguments_fail_in_results() => {
            Ok(failed(&format!("Invalid arguments: {why}")))
        }
        Err(Failure::Arguments(why)) => Err(RpcError::invalid_params(why)),
        Err(Failure::Rpc(error)) => Err(error),
    }
}

async fn run(name: &str, arguments: Value, context: &Context<'_>) -> Result<Reply, Failure> {
    let unknown = || Failure::Rpc(RpcError::invalid_params(format_args!("unknown tool: {name}")));
    if context.memory.is_stateless() {
        if OF_SESSIONS.contains(&name) {
            return Err(unknown());
        }
        if let Some(outcome) = rounds::run(name, &arguments, context).await {
            return outcome;
        }
    }
    Ok(match name {
        "echo" => paced::echo(read(arguments)?),
        "ticker" => paced::ticker(read(arguments)?, context).await?,
        "broadcast" => paced::broadcast(read(arguments)?, context).await?,
        "rotate" => paced::rotate(read(arguments)?, context).await,
        "change_watched_resource" => paced::change_watched_resource(read(arguments)?, context).await,
        "test_simple_text" => simple::text(read(arguments)?),
        "test_image_content" => simple::image(read(arguments)?),
        "test_audio_content" => simple::audio(read(arguments)?),
        "test_embedded_resource" => simple::embedded_resource(read(arguments)?),
        "test_multiple_content_types" => simple::multiple_content_types(read(arguments)?),
        "test_error_handling" => simple::error_handling(read(arguments)?),
        "json_schema_2020_12_tool" => simple::json_schema(&arguments),
        "test_tool_with_logging" => talking::with_logging(read(arguments)?, context).await?,
        "test_tool_with_progress" => talking::with_progress(read(arguments)?, context).await?,
        "test_reconnection" => talking::reconnection(read(arguments)?, context).await?,
        "test_sampling" => asking::sampling(read(arguments)?, context).await?,
        "test_elicitation" => asking::elicitation(read(arguments)?, context).await?,
        "test_elicitation_sep1034_defaults" => asking::elicitation_defaults(read(arguments)?, context).await?,
        "test_elicitation_sep1330_enums" => asking::elicitation_enums(read(arguments)?, context).await?,
        "test_list_roots" => asking::roots(read(arguments)?, context).await?,
        _ => return Err(unknown()),
    })
}

fn read<T: DeserializeOwned>(arguments: Value) -> Result<T, Failure> {
    serde_json::from_value(arguments).map_err(|why| Failure::Arguments(why.to_string()))
}

// ---- what tools are listed with, and answer ----

fn tool(name: &str, description: &str, schema: Value) -> Value {
    json!({ "name": name, "description": description, "inputSchema": schema })
}

/// The schema of an object that has these properties and no others.
fn object(properties: Value, required: &[&str]) -> Value {
    json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false })
}

fn result(content: &[Value]) -> Value {
    json!({ "content": content })
}

fn text_result(text: &str) -> Reply {
    result(&[content::text(text)]).into()
}

/// A result that says that the tool failed.
fn failed(why: &str) -> Reply {
    json!({ "content": [content::text(why)], "isError": true }).into()
}
