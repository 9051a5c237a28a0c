//! What a request of a revision without sessions says of itself: its `_meta`, and the head that must repeat what the body says.
//!
//! Never decides whether a revision is served, and never looks at a tool's arguments.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::value::RawValue;

use super::fields::text_at;
use super::json::{self, Member};
use super::message::Request;
use crate::http::Head;
use crate::refusal::Refusal;

/// The `_meta` key of the revision that a request speaks.
const VERSION: &str = "io.modelcontextprotocol/protocolVersion";
/// The `_meta` key of what its client can do.
const CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
/// The `_meta` key that ties a notification to the `subscriptions/listen` that it comes of.
pub const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// The request whose answer is a stream of changes.
pub const LISTEN: &str = "subscriptions/listen";

/// 2026-07-28, Streamable HTTP, "Value Encoding": "The prefix `=?base64?` and suffix `?=` indicate that the value is Base64-encoded.
/// These markers are case-sensitive and MUST appear exactly as shown (lowercase)."
const SENTINEL: (&[u8], &[u8]) = (b"=?base64?", b"?=");

/// The revision that a request's `_meta` names, whatever it is. 2026-07-28, versioning, "Compatibility Matrix": "A request carrying modern
/// per-request `_meta` is served statelessly according to this revision."
pub fn named_revision<'a>(params: Option<&'a RawValue>) -> Option<Cow<'a, str>> {
    text_at(params?.get(), &["_meta", VERSION])
}

/// The revision that a request speaks, once its `_meta` has what every request must have.
///
/// 2026-07-28, basic, "Per-request protocol fields": "A request missing any required field is malformed; the server MUST reject it with
/// JSON-RPC error code `-32602` (Invalid params). On HTTP, the response status MUST be `400 Bad Request`." `clientInfo` is not required.
pub fn required_meta<'a>(params: Option<&'a RawValue>) -> Result<Cow<'a, str>, Refusal> {
    let missing = || {
        Refusal::InvalidParams("params._meta with io.modelcontextprotocol/protocolVersion and …/clientCapabilities is required")
    };
    let params = params.filter(|params| params.get().starts_with('{')).ok_or_else(missing)?;
    let [meta] = json::members(params.get(), ["_meta"]).map_err(|_| missing())?;
    let meta = meta.one().filter(|meta| meta.get().starts_with('{')).ok_or_else(missing)?;
    let [version, capabilities] = json::members(meta.get(), [VERSION, CAPABILITIES]).map_err(|_| missing())?;
    let is_object = |member: Member<'_>| member.one().is_some_and(|value| value.get().starts_with('{'));
    match version.one().and_then(|version| json::text(version.get())) {
        Some(version) if is_object(capabilities) => Ok(version),
        _ => Err(missing()),
    }
}

/// 2026-07-28, Streamable HTTP, "Protocol Version Header": "The header value MUST match the `io.modelcontextprotocol/protocolVersion` field
/// carried in the request body's `_meta`. If the values do not match, the server MUST reject the request with `400 Bad Request` and a
/// `HeaderMismatch` JSON-RPC error".
pub fn check_version_header(head: &Head, version: &str) -> Result<(), Refusal> {
    match head.single("mcp-protocol-version") {
        Ok(Some(value)) if value == version.as_bytes() => Ok(()),
        Ok(Some(_)) => Err(Refusal::HeaderMismatch("MCP-Protocol-Version differs from the body's _meta")),
        Ok(None) => Err(Refusal::HeaderMismatch("MCP-Protocol-Version is required")),
        Err(_) => Err(Refusal::HeaderMismatch("MCP-Protocol-Version was sent twice")),
    }
}

/// 2026-07-28, Streamable HTTP, "Server Validation": "Servers that process the request body MUST reject requests where the values specified
/// in the headers do not match the corresponding values in the request body", or where "A required standard header […] is missing."
pub fn check_standard_headers(head: &Head, request: &Request<'_>) -> Result<(), Refusal> {
    match head.single("mcp-method") {
        Ok(Some(value)) if value == request.method.as_bytes() => {}
        Ok(Some(_)) => return Err(Refusal::HeaderMismatch("Mcp-Method differs from the body's method")),
        Ok(None) => return Err(Refusal::HeaderMismatch("Mcp-Method is required")),
        Err(_) => return Err(Refusal::HeaderMismatch("Mcp-Method was sent twice")),
    }
    let Some(source) = name_source(&request.method) else { return Ok(()) };
    let name = request.params.and_then(|params| text_at(params.get(), &[source]));
    match (head.single("mcp-name"), name) {
        // Without a name the request is wrong in itself, which its handler says.
        (Ok(None), None) => Ok(()),
        (Ok(None), Some(_)) => Err(Refusal::HeaderMismatch("Mcp-Name is required")),
        (Err(_), _) => Err(Refusal::HeaderMismatch("Mcp-Name was sent twice")),
        (Ok(Some(value)), name) => match (decode_header(value), name) {
            (None, _) => Err(Refusal::HeaderMismatch("Mcp-Name has characters that no such header may have")),
            (Some(value), Some(name)) if *value == *name.as_bytes() => Ok(()),
            (Some(_), _) => Err(Refusal::HeaderMismatch("Mcp-Name differs from the body")),
        },
    }
}

/// The member of params that `Mcp-Name` repeats: "`params.name` or `params.uri`", for "`tools/call`, `resources/read`, `prompts/get`
/// requests" (2026-07-28, Streamable HTTP, "Standard Request Headers").
fn name_source(method: &str) -> Option<&'static str> {
    match method {
        "tools/call" | "prompts/get" => Some("name"),
        "resources/read" => Some("uri"),
        _ => None,
    }
}

/// What an `Mcp-Name` or `Mcp-Param-…` field says. `None` where it "contains invalid characters" (2026-07-28, Streamable HTTP, "Server
/// Validation"): bytes that are no ASCII, or what the sentinel encloses is no canonical Base64 (RFC 4648, section 4).
pub fn decode_header(value: &[u8]) -> Option<Cow<'_, [u8]>> {
    match value.strip_prefix(SENTINEL.0).and_then(|rest| rest.strip_suffix(SENTINEL.1)) {
        Some(encoded) => STANDARD.decode(encoded).ok().map(Cow::Owned),
        None => value.iter().all(|byte| matches!(byte, b' '..=b'~' | b'\t')).then_some(Cow::Borrowed(value)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::http::HeadScanner;
    use crate::limits::Limits;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("the test's JSON")
    }

    fn head(fields: &str) -> Head {
        let text = format!("POST /mcp HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n");
        HeadScanner::default().parse(text.as_bytes(), &Limits::default()).expect("a head").expect("whole").0
    }

    fn request<'a>(method: &'a str, params: &'a str) -> Request<'a> {
        Request { id: super::super::Id::Integer(1), method: method.into(), params: Some(raw(params)) }
    }

    #[test]
    fn a_request_must_say_its_revision_and_what_its_client_can_do() {
        let meta = |inside: &str| format!(r#"{{"_meta":{{{inside}}}}}"#);
        let version = format!(r#""{VERSION}":"2026-07-28""#);
        let whole = meta(&format!(r#"{version},"{CAPABILITIES}":{{}}"#));
        assert_eq!(required_meta(Some(raw(&whole))).as_deref(), Ok("2026-07-28"));
        for wrong in [
            "{}".to_owned(),
            "[]".to_owned(),
            r#"{"_meta":[]}"#.to_owned(),
            meta(""),
            meta(&version),
            meta(&format!(r#""{CAPABILITIES}":{{}}"#)),
            meta(&format!(r#"{version},"{CAPABILITIES}":[]"#)),
            meta(&format!(r#"{version},{version},"{CAPABILITIES}":{{}}"#)),
            meta(&format!(r#""{VERSION}":20260728,"{CAPABILITIES}":{{}}"#)),
        ] {
            assert!(matches!(required_meta(Some(raw(&wrong))), Err(Refusal::InvalidParams(_))), "{wrong}");
        }
        assert!(required_meta(None).is_err());
    }

    #[test]
    fn the_sentinel_is_decoded_and_anything_like_it_is_literal() {
        for (value, said) in [
            ("us-west1", Some("us-west1")),
            ("=?base64?SGVsbG8sIOS4lueVjA==?=", Some("Hello, 世界")),
            ("=?base64?IHBhZGRlZCA=?=", Some(" padded ")),
            ("=?base64??=", Some("")),
            ("=?BASE64?SGVsbG8=?=", Some("=?BASE64?SGVsbG8=?=")),
            ("=?base64?SGVsbG8=", Some("=?base64?SGVsbG8=")),
            ("SGVsbG8=?=", Some("SGVsbG8=?=")),
            ("=?base64?SGVsbG8?=", None),
            ("=?base64?SGVs!!!bG8=?=", None),
            ("=?base64?SGVsbG9=?=", None),
            ("世界", None),
            ("a\u{1}b", None),
        ] {
            assert_eq!(decode_header(value.as_bytes()).as_deref(), said.map(str::as_bytes), "{value}");
        }
    }

    #[test]
    fn the_head_says_what_the_body_says_or_the_request_is_refused() {
        let call = || request("tools/call", r#"{"name":"世界"}"#);
        let good = "Mcp-Method: tools/call\r\nmcp-NAME:   =?base64?5LiW55WM?= \r\n";
        assert_eq!(check_standard_headers(&head(good), &call()), Ok(()));
        for wrong in [
            "",
            "Mcp-Method: tools/call\r\n",
            "Mcp-Name: =?base64?5LiW55WM?=\r\n",
            "Mcp-Method: TOOLS/CALL\r\nMcp-Name: =?base64?5LiW55WM?=\r\n",
            "Mcp-Method: tools/list\r\nMcp-Name: =?base64?5LiW55WM?=\r\n",
            "Mcp-Method: tools/call\r\nMcp-Name: other\r\n",
            "Mcp-Method: tools/call\r\nMcp-Name: 世界\r\n",
            "Mcp-Method: tools/call\r\nMcp-Method: tools/call\r\nMcp-Name: =?base64?5LiW55WM?=\r\n",
            "Mcp-Method: tools/call\r\nMcp-Name: =?base64?5LiW55WM?=\r\nMcp-Name: =?base64?5LiW55WM?=\r\n",
        ] {
            assert!(matches!(check_standard_headers(&head(wrong), &call()), Err(Refusal::HeaderMismatch(_))), "{wrong}");
        }
    }

    #[test]
    fn a_name_is_asked_of_the_three_requests_that_have_one() {
        let (uri, list) =
            (request("resources/read", r#"{"uri":"test://a","name":"b"}"#), request("tools/list", r#"{"name":"a"}"#));
        assert_eq!(check_standard_headers(&head("Mcp-Method: resources/read\r\nMcp-Name: test://a\r\n"), &uri), Ok(()));
        assert!(check_standard_headers(&head("Mcp-Method: resources/read\r\nMcp-Name: b\r\n"), &uri).is_err());
        assert_eq!(check_standard_headers(&head("Mcp-Method: tools/list\r\n"), &list), Ok(()));
        let nameless = request("prompts/get", "{}");
        assert_eq!(check_standard_headers(&head("Mcp-Method: prompts/get\r\n"), &nameless), Ok(()));
        assert!(check_standard_headers(&head("Mcp-Method: prompts/get\r\nMcp-Name: a\r\n"), &nameless).is_err());
    }

    #[test]
    fn the_revision_in_the_head_is_the_one_in_the_body() {
        assert_eq!(check_version_header(&head("MCP-Protocol-Version: 2026-07-28\r\n"), "2026-07-28"), Ok(()));
        for wrong in [
            "",
            "MCP-Protocol-Version: 2025-11-25\r\n",
            "MCP-Protocol-Version: 2026-07-28\r\nMCP-Protocol-Version: 2026-07-28\r\n",
        ] {
            assert!(check_version_header(&head(wrong), "2026-07-28").is_err(), "{wrong}");
        }
    }
}
