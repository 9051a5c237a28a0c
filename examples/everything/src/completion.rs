//! Completion: what an argument of a prompt or a part of a URI may be, by how it begins.

use rejoin::{Call, Reply, RpcError};
use serde::Deserialize;
use serde_json::json;

use crate::{prompts, resources};

/// Values of one answer, at most. MCP 2025-11-25, "Completion": "Maximum 100 items per response".
const VALUES_MAX: usize = 100;

/// The params of `completion/complete`.
#[derive(Deserialize)]
struct Complete {
    #[serde(rename = "ref")]
    of: Reference,
    argument: Argument,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

/// Answers `completion/complete`.
pub(crate) fn complete(call: &Call) -> Result<Reply, RpcError> {
    let Complete { of, argument: Argument { name, value } } = call.params()?;
    let (known, all) = match &of {
        Reference::Prompt { name: prompt } => (prompts::has_argument(prompt, &name), values_of(&name)),
        Reference::Resource { uri } => (uri == resources::TEMPLATE && name == "id", (1..=250).map(|id| id.to_string()).collect()),
    };
    if !known {
        return Err(RpcError::invalid_params(format_args!("nothing has an argument {name} to be completed")));
    }
    let matching: Vec<String> = all.into_iter().filter(|one| one.starts_with(&value)).collect();
    let (total, shown) = (matching.len(), &matching[..matching.len().min(VALUES_MAX)]);
    Ok(json!({ "completion": { "values": shown, "total": total, "hasMore": total > shown.len() } }).into())
}

/// What prompts' arguments may well be.
fn values_of(argument: &str) -> Vec<String> {
    let values: &[&str] = match argument {
        "resourceUri" => &[resources::TEXT, resources::BINARY, resources::WATCHED],
        _ => &["paris", "park", "party", "rome", "tokyo"],
    };
    values.iter().map(|&value| value.to_owned()).collect()
}
