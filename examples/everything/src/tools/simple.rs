//! Tools whose results are always the same, one for each kind of content, and one with a schema that uses much of JSON Schema 2020-12.

use rejoin::Reply;
use serde_json::{Value, json};

use super::{Nothing, failed, object, result, text_result, tool};
use crate::content;

/// Its part of what `tools/list` lists.
pub(super) fn list() -> Vec<Value> {
    let plain = |name, description| tool(name, description, object(json!({}), &[]));
    vec![
        plain("test_simple_text", "Answers with a text."),
        plain("test_image_content", "Answers with an image."),
        plain("test_audio_content", "Answers with a sound."),
        plain("test_embedded_resource", "Answers with a resource."),
        plain("test_multiple_content_types", "Answers with a text, an image and a resource."),
        plain("test_error_handling", "Always fails."),
        tool("json_schema_2020_12_tool", "Has a schema that uses much of JSON Schema 2020-12.", schema_2020_12()),
    ]
}

pub(super) fn text(Nothing {}: Nothing) -> Reply {
    text_result("This is a simple text response for testing.")
}

pub(super) fn image(Nothing {}: Nothing) -> Reply {
    result(&[content::image()]).into()
}

pub(super) fn audio(Nothing {}: Nothing) -> Reply {
    result(&[content::audio()]).into()
}

pub(super) fn embedded_resource(Nothing {}: Nothing) -> Reply {
    result(&[content::resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")]).into()
}

pub(super) fn multiple_content_types(Nothing {}: Nothing) -> Reply {
    let json = r#"{"test":"data","value":123}"#;
    result(&[
        content::text("Multiple content types test:"),
        content::image(),
        content::resource("test://mixed-content-resource", "application/json", json),
    ])
    .into()
}

pub(super) fn error_handling(Nothing {}: Nothing) -> Reply {
    failed("This tool intentionally returns an error for testing")
}

pub(super) fn json_schema(arguments: &Value) -> Reply {
    text_result(&format!("The arguments were {arguments}"))
}

fn schema_2020_12() -> Value {
    let text = json!({ "type": "string" });
    json!({
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "type": "object",
        "$defs": {
            "address": {
                "$anchor": "addressDef",
                "type": "object",
                "properties": { "street": text, "city": text },
            },
        },
        "properties": {
            "name": text,
            "address": { "$ref": "#/$defs/address" },
            "contactMethod": { "type": "string", "enum": ["phone", "email"] },
            "phone": text,
            "email": text,
        },
        "allOf": [{ "anyOf": [{ "required": ["phone"] }, { "required": ["email"] }] }],
        "if": { "properties": { "contactMethod": { "const": "phone" } }, "required": ["contactMethod"] },
        "then": { "required": ["phone"] },
        "else": { "required": ["email"] },
        "additionalProperties": false,
    })
}
