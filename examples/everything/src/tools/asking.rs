//! Tools that ask the client something: its model, its user, its roots. In a session on the call's stream, else by the result.
//!
//! Never asks for what the client did not say it can.

use rejoin::{Json, Reply, RequestError, RpcError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{Nothing, failed, object, text_result, tool};
use crate::context::Context;
use crate::rounds::{Given, required};

/// The key of what such a tool asks for, where its result asks.
const ASKED: &str = "asked";

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Sampling {
    prompt: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Elicitation {
    message: String,
}

/// Its part of what `tools/list` lists.
pub(super) fn list() -> Vec<Value> {
    let plain = |name, description| tool(name, description, object(json!({}), &[]));
    let text = |name: &str, description: &str| object(json!({ name: { "type": "string", "description": description } }), &[name]);
    vec![
        tool("test_sampling", "Asks the client's model.", text("prompt", "What the model is asked.")),
        tool("test_elicitation", "Asks the client's user.", text("message", "What the user is shown.")),
        plain("test_elicitation_sep1034_defaults", "Asks the client's user by a form with defaults."),
        plain("test_elicitation_sep1330_enums", "Asks the client's user by a form with every kind of choice."),
        plain("test_list_roots", "Asks the client for its roots."),
    ]
}

pub(super) async fn sampling(Sampling { prompt }: Sampling, context: &Context<'_>) -> Result<Reply, RpcError> {
    let message = json!({ "role": "user", "content": { "type": "text", "text": prompt } });
    let params = json!({ "messages": [message], "maxTokens": 100 });
    ask("sampling", "sampling/createMessage", &params, context, |result| {
        // One block of content, or, since 2025-11-25, a list of them.
        let content = &result["content"];
        let first = content.get(0).unwrap_or(content);
        format!("LLM response: {}", first["text"].as_str().unwrap_or_default())
    })
    .await
}

pub(super) async fn elicitation(Elicitation { message }: Elicitation, context: &Context<'_>) -> Result<Reply, RpcError> {
    let text = |description: &str| json!({ "type": "string", "description": description });
    let schema = json!({
        "type": "object",
        "properties": { "username": text("User's response"), "email": text("User's email address") },
        "required": ["username", "email"],
    });
    elicit(&message, &schema, context, |result| format!("User response: {}", outcome(result))).await
}

pub(super) async fn elicitation_defaults(Nothing {}: Nothing, context: &Context<'_>) -> Result<Reply, RpcError> {
    let schema = json!({
        "type": "object",
        "properties": {
            "name": { "type": "string", "description": "User name", "default": "John Doe" },
            "age": { "type": "integer", "description": "User age", "default": 30 },
            "score": { "type": "number", "description": "User score", "default": 95.5 },
            "status": {
                "type": "string", "description": "User status",
                "enum": ["active", "inactive", "pending"], "default": "active",
            },
            "verified": { "type": "boolean", "description": "Verification status", "default": true },
        },
        "required": [],
    });
    elicit("Please review and update the form fields with defaults", &schema, context, completed).await
}

pub(super) async fn elicitation_enums(Nothing {}: Nothing, context: &Context<'_>) -> Result<Reply, RpcError> {
    let titled = |name: &str| -> Vec<Value> {
        let ordinals = ["First", "Second", "Third"].iter().zip(1..);
        ordinals.map(|(ordinal, n)| json!({ "const": format!("value{n}"), "title": format!("{ordinal} {name}") })).collect()
    };
    let options = ["option1", "option2", "option3"];
    let schema = json!({
        "type": "object",
        "properties": {
            "untitledSingle": { "type": "string", "description": "Select one option", "enum": options },
            "titledSingle": { "type": "string", "description": "Select one option with titles", "oneOf": titled("Option") },
            "legacyEnum": {
                "type": "string", "description": "Select one option (legacy)",
                "enum": ["opt1", "opt2", "opt3"], "enumNames": ["Option One", "Option Two", "Option Three"],
            },
            "untitledMulti": {
                "type": "array", "description": "Select options", "minItems": 1, "maxItems": 3,
                "items": { "type": "string", "enum": options },
            },
            "titledMulti": {
                "type": "array", "description": "Select options with titles", "minItems": 1, "maxItems": 3,
                "items": { "anyOf": titled("Choice") },
            },
        },
        "required": [],
    });
    elicit("Please select options from the enum fields", &schema, context, completed).await
}

pub(super) async fn roots(Nothing {}: Nothing, context: &Context<'_>) -> Result<Reply, RpcError> {
    ask("roots", "roots/list", &Value::Null, context, |result| format!("Roots: {}", result["roots"])).await
}

async fn elicit(
    message: &str,
    schema: &Value,
    context: &Context<'_>,
    say: impl FnOnce(&Value) -> String,
) -> Result<Reply, RpcError> {
    let params = json!({ "message": message, "requestedSchema": schema });
    ask("elicitation", "elicitation/create", &params, context, say).await
}

/// Asks the client, if it can be asked, and says what it answered. In a session, why it cannot is for the model.
async fn ask(
    capability: &str,
    method: &str,
    params: &Value,
    context: &Context<'_>,
    say: impl FnOnce(&Value) -> String,
) -> Result<Reply, RpcError> {
    let can = context.memory.client.needs(capability);
    if context.memory.is_stateless() {
        let given = Given::of(context.call)?;
        can?;
        let params = if params.is_null() { json!({}) } else { params.clone() };
        return Ok(match given.response(ASKED) {
            Some(response) => text_result(&say(response)),
            None => required(&[(ASKED, json!({ "method": method, "params": params }))], None),
        });
    }
    if can.is_err() {
        return Ok(failed(&format!("The client did not declare that it can be asked for {method}.")));
    }
    let asked: Result<Json, RequestError> = context.call.request(method, params).await;
    let answer = match asked {
        Ok(answer) => answer.parse().map_err(|error| format!("{method} has a result that is no JSON: {error}")),
        Err(error) => Err(format!("{method} has no result: {error}")),
    };
    Ok(match answer {
        Ok(result) => text_result(&say(&result)),
        Err(why) => failed(&why),
    })
}

fn completed(result: &Value) -> String {
    format!("Elicitation completed: {}", outcome(result))
}

/// What the user did with a form.
fn outcome(result: &Value) -> String {
    let content = result.get("content").cloned().unwrap_or_else(|| json!({}));
    format!("action={}, content={content}", result["action"].as_str().unwrap_or_default())
}
