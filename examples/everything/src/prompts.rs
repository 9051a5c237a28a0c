//! Prompts: fixed messages, some with arguments in them.

use std::collections::HashMap;

use rejoin::{Call, Reply, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::content;

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

/// What `prompts/list` lists.
pub(crate) fn list() -> Value {
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
pub(crate) fn get(call: &Call) -> Result<Reply, RpcError> {
    let Get { name, arguments } = call.params()?;
    let prompt = find(&name).ok_or_else(|| RpcError::invalid_params(format_args!("unknown prompt: {name}")))?;
    if let Some((missing, _)) = prompt.arguments.iter().find(|(name, _)| !arguments.contains_key(*name)) {
        return Err(RpcError::invalid_params(format_args!("{name} needs the argument {missing}")));
    }
    let message = |content| json!({ "role": "user", "content": content });
    let messages: Vec<Value> = (prompt.messages)(&arguments).into_iter().map(message).collect();
    Ok(json!({ "description": prompt.description, "messages": messages }).into())
}
