//! Tools for clients without a session: those that need input are answered in rounds, and those that change what this server offers tell
//! whoever listens.
//!
//! Never asks for what the client did not say it can.

use rejoin::{Reply, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Failure, Nothing, object, text_result, tool};
use crate::context::Context;
use crate::logging::Level;
use crate::rounds::{Given, form, required, written};

/// The tool whose arguments stand in the head too.
const IN_THE_HEAD: &str = "test_param_headers";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "read for their types")]
struct InTheHead {
    region: String,
    #[serde(default)]
    limit: Option<i64>,
}

/// Its part of what `tools/list` lists.
pub(super) fn list(changed: bool) -> Vec<Value> {
    let plain = |name: &str, description: &str| tool(name, description, object(json!({}), &[]));
    let mut tools = vec![
        plain("test_missing_capability", "Needs a client that can be asked for its model."),
        plain("test_streaming_elicitation", "Says something, then asks the client's user by its result."),
        plain("test_logging_tool", "Logs, where the request wants logs."),
        plain("test_trigger_tool_change", "Changes the list of tools, and tells who listens."),
        plain("test_trigger_prompt_change", "Changes the list of prompts, and tells who listens."),
        plain("test_input_required_result_elicitation", "Asks the client's user for a name."),
        plain("test_input_required_result_sampling", "Asks the client's model for a capital."),
        plain("test_input_required_result_list_roots", "Asks the client for its roots."),
        plain("test_input_required_result_request_state", "Asks for a yes, with a state that comes back."),
        plain("test_input_required_result_multiple_inputs", "Asks for a name, a greeting and roots at once."),
        plain("test_input_required_result_multi_round", "Asks for a name, then for a color."),
        plain("test_input_required_result_tampered_state", "Takes back its state only as it was given."),
        plain("test_input_required_result_capabilities", "Asks for whatever the client can be asked for."),
        tool(IN_THE_HEAD, "Has arguments that the request's head repeats.", in_the_head_schema()),
    ];
    if changed {
        tools.push(plain("test_comes_and_goes", "Is there after every other change of the tools."));
    }
    tools
}

fn in_the_head_schema() -> Value {
    let region = json!({ "type": "string", "description": "Where.", "x-mcp-header": "Region" });
    let limit = json!({ "type": "integer", "description": "How many.", "x-mcp-header": "Limit" });
    object(json!({ "region": region, "limit": limit }), &["region"])
}

/// Runs a tool of these; `None` where it is none of them.
pub(super) async fn run(name: &str, arguments: &Value, context: &Context<'_>) -> Option<Result<Reply, Failure>> {
    if name == IN_THE_HEAD {
        return Some(in_the_head(arguments, context));
    }
    let work = match name {
        "test_missing_capability" => {
            context.memory.client.needs("sampling").map(|()| text_result("The client can be asked for its model."))
        }
        "test_streaming_elicitation" => streaming(context).await,
        "test_logging_tool" => logging(context).await,
        "test_trigger_tool_change" => Ok(tool_change(context).await),
        "test_trigger_prompt_change" => Ok(prompt_change(context).await),
        "test_input_required_result_elicitation" => elicitation(context),
        "test_input_required_result_sampling" => sampling(context),
        "test_input_required_result_list_roots" => roots(context),
        "test_input_required_result_request_state" | "test_input_required_result_tampered_state" => with_state(name, context),
        "test_input_required_result_multiple_inputs" => several(name, context),
        "test_input_required_result_multi_round" => rounds(name, context),
        "test_input_required_result_capabilities" => whatever(context),
        "test_comes_and_goes" if context.shared.tools_changed() => Ok(text_result("Here today.")),
        _ => return None,
    };
    Some(super::read(arguments.clone()).and_then(|Nothing {}| Ok(work?)))
}

fn in_the_head(arguments: &Value, context: &Context<'_>) -> Result<Reply, Failure> {
    context.call.check_param_headers(&in_the_head_schema(), arguments)?;
    let InTheHead { .. } = super::read(arguments.clone())?;
    Ok(text_result(&format!("The head and the body said the same: {arguments}")))
}

async fn streaming(context: &Context<'_>) -> Result<Reply, RpcError> {
    if Given::of(context.call)?.response("user_name").is_none() && context.call.wants_progress() {
        context.call.progress(1.0, Some(2.0), Some("about to ask")).await.map_err(RpcError::internal)?;
    }
    elicitation(context)
}

async fn logging(context: &Context<'_>) -> Result<Reply, RpcError> {
    context.log(Level::Info, "test_logging_tool", &"The tool runs").await?;
    Ok(text_result("The tool has logged what was wanted."))
}

async fn tool_change(context: &Context<'_>) -> Reply {
    let told = context.shared.change_tools().await;
    text_result(&format!("The tools have changed; streams told: {told}."))
}

async fn prompt_change(context: &Context<'_>) -> Reply {
    let told = context.shared.change_prompts().await;
    text_result(&format!("The prompts have changed; streams told: {told}."))
}

fn name_form() -> (&'static str, Value) {
    ("user_name", form("What is your name?", "name", "string"))
}

fn question(text: &str, most: u32) -> Value {
    let message = json!({ "role": "user", "content": { "type": "text", "text": text } });
    json!({ "method": "sampling/createMessage", "params": { "messages": [message], "maxTokens": most } })
}

fn roots_request() -> (&'static str, Value) {
    ("client_roots", json!({ "method": "roots/list", "params": {} }))
}

fn elicitation(context: &Context<'_>) -> Result<Reply, RpcError> {
    let given = Given::of(context.call)?;
    context.memory.client.needs("elicitation")?;
    let Some(response) = given.response("user_name") else { return Ok(required(&[name_form()], None)) };
    Ok(text_result(&match written(response, "name").and_then(Value::as_str) {
        Some(name) => format!("Hello, {name}!"),
        None => "Hello, whoever you are!".to_owned(),
    }))
}

fn sampling(context: &Context<'_>) -> Result<Reply, RpcError> {
    let given = Given::of(context.call)?;
    context.memory.client.needs("sampling")?;
    Ok(match given.response("capital_question") {
        None => required(&[("capital_question", question("What is the capital of France?", 100))], None),
        Some(response) => text_result(&format!("LLM response: {}", response["content"]["text"].as_str().unwrap_or_default())),
    })
}

fn roots(context: &Context<'_>) -> Result<Reply, RpcError> {
    let given = Given::of(context.call)?;
    context.memory.client.needs("roots")?;
    Ok(match given.response("client_roots") {
        None => required(&[roots_request()], None),
        Some(response) => text_result(&format!("Roots: {}", response["roots"])),
    })
}

fn with_state(name: &str, context: &Context<'_>) -> Result<Reply, RpcError> {
    let (given, seal) = (Given::of(context.call)?, context.shared.seal());
    context.memory.client.needs("elicitation")?;
    let ask = || {
        required(&[("confirm", form("Please confirm", "ok", "boolean"))], Some(seal.seal(context.call, name, &json!("asked"))))
    };
    let Some(state) = &given.state else { return Ok(ask()) };
    seal.open(context.call, name, state)?;
    let Some(response) = given.response("confirm") else { return Ok(ask()) };
    let confirmed = written(response, "ok") == Some(&Value::Bool(true));
    Ok(text_result(&format!("state-ok, {}confirmed", if confirmed { "" } else { "not " })))
}

fn several(name: &str, context: &Context<'_>) -> Result<Reply, RpcError> {
    let (given, seal) = (Given::of(context.call)?, context.shared.seal());
    for capability in ["elicitation", "sampling", "roots"] {
        context.memory.client.needs(capability)?;
    }
    if let Some(state) = &given.state {
        seal.open(context.call, name, state)?;
    }
    // "If the client fails to send all the information requested […], the server SHOULD respond with a new `InputRequiredResult`
    // requesting the missing information again" (MRTR, "Error Handling").
    let all = [name_form(), ("greeting", question("Generate a greeting", 50)), roots_request()];
    let responses: Vec<_> = all.iter().filter_map(|(key, _)| given.response(key)).collect();
    let (true, [user, greeting, roots]) = (given.state.is_some(), &responses[..]) else {
        return Ok(required(&all, Some(seal.seal(context.call, name, &Value::Null))));
    };
    let user = written(user, "name").cloned().unwrap_or_default();
    Ok(text_result(&format!("{} {user}, with roots {}", greeting["content"]["text"], roots["roots"])))
}

fn rounds(name: &str, context: &Context<'_>) -> Result<Reply, RpcError> {
    let (given, seal) = (Given::of(context.call)?, context.shared.seal());
    context.memory.client.needs("elicitation")?;
    let first = || {
        let ask = ("step1", form("Step 1: What is your name?", "name", "string"));
        required(&[ask], Some(seal.seal(context.call, name, &json!([]))))
    };
    let Some(state) = &given.state else { return Ok(first()) };
    let said = seal.open(context.call, name, state)?;
    let second = |user: &Value| {
        let ask = ("step2", form("Step 2: What is your favorite color?", "color", "string"));
        required(&[ask], Some(seal.seal(context.call, name, &json!([user]))))
    };
    Ok(match (said.get(0), given.response("step1"), given.response("step2")) {
        (None, None, _) => first(),
        (None, Some(response), _) => second(written(response, "name").unwrap_or(&Value::Null)),
        (Some(user), _, None) => second(user),
        (Some(user), _, Some(response)) => {
            text_result(&format!("{user} likes {}", written(response, "color").cloned().unwrap_or_default()))
        }
    })
}

/// Asks for what this client can be asked for, and no more (MRTR, "Server Requirements", item 7).
fn whatever(context: &Context<'_>) -> Result<Reply, RpcError> {
    let (given, client) = (Given::of(context.call)?, &context.memory.client);
    let can_be_asked = [
        (client.sampling, ("capital_question", question("What is the capital of France?", 100))),
        (client.elicitation, name_form()),
        (client.roots, roots_request()),
    ];
    let asked: Vec<_> = can_be_asked.into_iter().filter(|(can, _)| *can).map(|(_, ask)| ask).collect();
    let missing: Vec<_> = asked.iter().filter(|(key, _)| given.response(key).is_none()).cloned().collect();
    Ok(if missing.is_empty() {
        text_result(&format!("The client was asked for {} things.", asked.len()))
    } else {
        required(&missing, None)
    })
}
