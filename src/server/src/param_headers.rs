//! Tool arguments that a request's head repeats (`x-mcp-header`, revision 2026-07-28): whether both say the same.
//!
//! Never decides which arguments are repeated: a tool's schema says so.

use rejoin_proto::mcp::decode_header;
use serde_json::Value;

use crate::error::RpcError;

/// Properties inside each other that are looked at. Reason: schemas are the server's own, and none is this deep.
const DEPTH_MAX: usize = 32;

/// The `Mcp-Param-…` fields of a request: the name behind the prefix, and the value as it was sent.
pub(crate) type ParamHeaders = Vec<(Box<str>, Box<[u8]>)>;

/// Compares what a schema's annotated properties are in the arguments with the fields of the head.
///
/// 2026-07-28, Streamable HTTP, "Server Behavior for Custom Headers": "Any server that processes the message body MUST validate that encoded
/// header values, after decoding if Base64-encoded, match the corresponding values in the request body. Servers MUST reject requests with
/// a `400 Bad Request` HTTP status and JSON-RPC error code `-32020` (`HeaderMismatch`) if any validation fails." A value that is `null`, or
/// not there, must have no field.
pub(crate) fn check(headers: &ParamHeaders, schema: &Value, arguments: &Value) -> Result<(), RpcError> {
    check_within(headers, schema, Some(arguments), DEPTH_MAX)
}

fn check_within(headers: &ParamHeaders, schema: &Value, value: Option<&Value>, depth: usize) -> Result<(), RpcError> {
    let Some(properties) = schema.get("properties").and_then(Value::as_object).filter(|_| depth > 0) else { return Ok(()) };
    for (name, property) in properties {
        let value = value.and_then(|value| value.get(name));
        if let Some(header) = property.get("x-mcp-header").and_then(Value::as_str) {
            check_one(headers, header, value.filter(|value| !value.is_null()))?;
        }
        check_within(headers, property, value, depth - 1)?;
    }
    Ok(())
}

fn check_one(headers: &ParamHeaders, name: &str, value: Option<&Value>) -> Result<(), RpcError> {
    let mut sent = headers.iter().filter(|(header, _)| header.eq_ignore_ascii_case(name)).map(|(_, value)| value);
    let wrong = |what: &str| Err(RpcError::header_mismatch(format_args!("Mcp-Param-{name} {what}")));
    match (sent.next(), sent.next(), value) {
        (None, _, None) => Ok(()),
        (None, _, Some(_)) => wrong("is required"),
        (Some(_), Some(_), _) => wrong("was sent twice"),
        (Some(_), None, None) => wrong("repeats what is not in the body"),
        (Some(sent), None, Some(value)) => match decode_header(sent) {
            None => wrong("has characters that no such header may have"),
            Some(said) if says(&said, value) => Ok(()),
            Some(_) => wrong("differs from the body"),
        },
    }
}

/// The same, "Type conversion", and of integers, "Server Validation": "servers SHOULD compare the header value and the body value numerically
/// rather than as strings".
fn says(said: &[u8], value: &Value) -> bool {
    let Ok(said) = std::str::from_utf8(said) else { return false };
    match value {
        Value::String(text) => text == said,
        Value::Bool(is) => said == if *is { "true" } else { "false" },
        Value::Number(number) => {
            number.to_string() == said || said.parse::<f64>().is_ok_and(|said| number.as_f64() == Some(said))
        }
        Value::Null | Value::Array(_) | Value::Object(_) => false,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn headers(fields: &[(&str, &str)]) -> ParamHeaders {
        fields.iter().map(|&(name, value)| (name.into(), value.as_bytes().into())).collect()
    }

    #[test]
    fn what_the_schema_marks_is_the_same_in_head_and_body() {
        let schema = json!({ "properties": {
            "region": { "type": "string", "x-mcp-header": "Region" },
            "limit": { "type": "integer", "x-mcp-header": "Limit" },
            "deep": { "type": "object", "properties": { "dry": { "type": "boolean", "x-mcp-header": "Dry" } } },
            "query": { "type": "string" },
        } });
        let ok = |fields: &[(&str, &str)], arguments: Value| check(&headers(fields), &schema, &arguments).is_ok();
        assert!(ok(&[], json!({ "query": "q" })));
        assert!(ok(&[], json!({ "region": null })));
        assert!(ok(&[("region", "us"), ("other", "x")], json!({ "region": "us" })), "names in any case; others are nobody's");
        assert!(ok(&[("Region", "=?base64?SGVsbG8sIOS4lueVjA==?=")], json!({ "region": "Hello, 世界" })));
        assert!(ok(&[("Limit", "42.0"), ("Dry", "true")], json!({ "limit": 42, "deep": { "dry": true } })));
        for (fields, arguments) in [
            (&[][..], json!({ "region": "us" })),
            (&[("Region", "eu")], json!({ "region": "us" })),
            (&[("Region", "us")], json!({})),
            (&[("Region", "us")], json!({ "region": null })),
            (&[("Region", "us"), ("REGION", "us")], json!({ "region": "us" })),
            (&[("Region", "=?base64?SGVsbG8?=")], json!({ "region": "Hello" })),
            (&[("Region", "SGVsbG8=")], json!({ "region": "Hello" })),
            (&[("Limit", "41")], json!({ "limit": 42 })),
            (&[("Dry", "TRUE")], json!({ "deep": { "dry": true } })),
            (&[], json!({ "deep": { "dry": false } })),
        ] {
            let error = check(&headers(fields), &schema, &arguments).expect_err("a mismatch");
            assert_eq!(error.code, -32020, "{fields:?} {arguments}");
        }
    }
}
