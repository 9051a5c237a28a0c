//! Prompts: fixed messages, some with arguments in them.

use std::collections::HashMap;

use rejoin::{Reply, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::content;
use crate::context::Context;
use crate::rounds::{Given, form, required, written};

/// A prompt that there is.
struct Prompt {
    name: &'static str,
    description: &'static str,
    /// Names and descriptions of its arguments, all of them required.
    arguments: &'static [(&'static str, &'static str)],
    messages: fn(&HashMap<String, String>) -> Vec<Value>,
}

const PROMPTS: [Prompt; 4] = [
    Prompt {
        name: "test_simple_prompt",
        description: "A prompt without arguments.",
        arguments: &[],
        messages: |_| vec![content::text("This is a simple prompt for testing.")],
    },
    Prompt {
        name: "test_prompt_with_arguments",
        description: "A prompt that names its arguments.",
        arguments: &[("arg1", "The first argument."), ("arg2", "The second argument.")],
        messages: |given| {
            vec![content::text(&format!("Prompt with arguments: arg1='{}', arg2='{}'", given["arg1"], given["arg2"]))]
        },
    },
    Prompt {
        name: "test_prompt_with_embedded_resource",
        description: "A prompt with a resource in it.",
        arguments: &[("resourceUri", "The URI that the resource is to have.")],
        messages: |given| {
            vec![
                content::resource(&given["resourceUri"], "text/plain", "Embedded resource content for testing."),
                content::text("Please process the embedded resource above."),
            ]
        },
    },
    Prompt {
        name: "test_prompt_with_image",
        description: "A prompt with an image in it.",
        arguments: &[],
        messages: |_| vec![content::image(), content::text("Please analyze the image above.")],
    },
];

/// The params of `prompts/get`.
#[derive(Deserialize)]
struct Get {
    name: String,
    #[serde(default)]
    arguments: HashMap<String, String>,
}

/// The prompt that needs input before it is made, for clients without a session.
const IN_ROUNDS: &str = "test_input_required_result_prompt";
/// The prompt that is there after every other change of the prompts, for clients that hear of such.
const COMES_AND_GOES: &str = "test_prompt_comes_and_goes";

/// What `prompts/list` lists.
pub(crate) fn list(context: &Context<'_>) -> Value {
    let mut prompts = fixed();
    if context.memory.is_stateless() {
        prompts.push(
            json!({ "name": IN_ROUNDS, "description": "A prompt that asks the client's user for its context.", "arguments": [] }),
        );
        if context.shared.prompts_changed() {
            prompts.push(json!({ "name": COMES_AND_GOES, "description": "A prompt that comes and goes.", "arguments": [] }));
        }
    }
    prompts.into()
}

fn fixed() -> Vec<Value> {
    let argument = |&(name, description): &(&str, &str)| json!({ "name": name, "description": description, "required": true });
    PROMPTS
        .iter()
        .map(|prompt| {
            let arguments: Vec<Value> = prompt.arguments.iter().map(argument).collect();
            json!({ "name": prompt.name, "description": prompt.description, "arguments": arguments })
        })
        .collect()
}

/// Whether a prompt has such an argument.
pub(crate) fn has_argument(prompt: &str, argument: &str) -> bool {
    find(prompt).is_some_and(|prompt| prompt.arguments.iter().any(|(name, _)| *name == argument))
}

fn find(name: &str) -> Option<&'static Prompt> {
    PROMPTS.iter().find(|prompt| prompt.name == name)
}

/// Answers `prompts/get`. MCP 2025-11-25, "Prompts", "Error Handling": "Invalid prompt name: -32602", "Missing required arguments: -32602".
pub(crate) fn get(context: &Context<'_>) -> Result<Reply, RpcError> {
    let Get { name, arguments } = context.call.params()?;
    match &*name {
        IN_ROUNDS if context.memory.is_stateless() => return in_rounds(context),
        COMES_AND_GOES if context.memory.is_stateless() && context.shared.prompts_changed() => {
            return Ok(made("A prompt that comes and goes.", vec![content::text("Here today.")]));
        }
        _ => {}
    }
    let prompt = find(&name).ok_or_else(|| RpcError::invalid_params(format_args!("unknown prompt: {name}")))?;
    if let Some((missing, _)) = prompt.arguments.iter().find(|(name, _)| !arguments.contains_key(*name)) {
        return Err(RpcError::invalid_params(format_args!("{name} needs the argument {missing}")));
    }
    Ok(made(prompt.description, (prompt.messages)(&arguments)))
}

fn made(description: &str, contents: Vec<Value>) -> Reply {
    let message = |content| json!({ "role": "user", "content": content });
    let messages: Vec<Value> = contents.into_iter().map(message).collect();
    json!({ "description": description, "messages": messages }).into()
}

fn in_rounds(context: &Context<'_>) -> Result<Reply, RpcError> {
    let given = Given::of(context.call)?;
    context.memory.client.needs("elicitation")?;
    let Some(response) = given.response("user_context") else {
        return Ok(required(&[("user_context", form("What context should the prompt use?", "context", "string"))], None));
    };
    let text = written(response, "context").and_then(Value::as_str).unwrap_or("none");
    Ok(made("A prompt with the user's context.", vec![content::text(&format!("Use this context: {text}"))]))
}
