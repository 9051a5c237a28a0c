//! JSON-RPC envelopes around what a handler or the kernel says, each one line of JSON, so that it is one `data:` line of an event.
//!
//! Never reformats a value: of `params`, `result` and `error` only line breaks between tokens are left out.

use serde::Serialize;

use super::id::Id;

const START: &[u8] = br#"{"jsonrpc":"2.0""#;

/// Appends a notification. `params` is a JSON value, as every raw value here.
pub fn write_notification(out: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    out.extend_from_slice(START);
    method_and_params(out, method, params);
}

/// Appends a request to the client; `id` is ours.
pub fn write_request(out: &mut Vec<u8>, id: u64, method: &str, params: Option<&[u8]>) {
    out.extend_from_slice(START);
    out.extend_from_slice(br#","id":"#);
    push(out, &id);
    method_and_params(out, method, params);
}

/// Appends the result of the client's request `id`.
pub fn write_result(out: &mut Vec<u8>, id: &Id, result: &[u8]) {
    out.extend_from_slice(START);
    out.extend_from_slice(br#","id":"#);
    push(out, id);
    out.extend_from_slice(br#","result":"#);
    push_line(out, result);
    out.push(b'}');
}

/// Appends an error, of the client's request `id` or of none that could be read (null). `error` is a JSON object.
pub fn write_error(out: &mut Vec<u8>, id: Option<&Id>, error: &[u8]) {
    out.extend_from_slice(START);
    out.extend_from_slice(br#","id":"#);
    push(out, &id);
    out.extend_from_slice(br#","error":"#);
    push_line(out, error);
    out.push(b'}');
}

fn method_and_params(out: &mut Vec<u8>, method: &str, params: Option<&[u8]>) {
    out.extend_from_slice(br#","method":"#);
    push(out, method);
    if let Some(params) = params {
        out.extend_from_slice(br#","params":"#);
        push_line(out, params);
    }
    out.push(b'}');
}

/// Appends a number, a string or null.
pub(super) fn push<T: Serialize + ?Sized>(out: &mut Vec<u8>, scalar: &T) {
    serde_json::to_writer(out, scalar).expect("a scalar has no key to refuse, and a Vec takes every byte");
}

/// Appends a JSON value without its line breaks. In JSON they stand only between tokens, never in one: strings must escape them
/// (RFC 8259, section 7), and two tokens that would run together have punctuation between them.
fn push_line(out: &mut Vec<u8>, json: &[u8]) {
    out.reserve(json.len() + 1);
    for part in json.split(|byte| matches!(byte, b'\r' | b'\n')) {
        out.extend_from_slice(part);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut Vec<u8>)) -> String {
        let mut out = Vec::from(*b"before ");
        write(&mut out);
        String::from_utf8(out).unwrap().strip_prefix("before ").expect("writers append").to_owned()
    }

    #[test]
    fn envelopes_look_as_clients_expect() {
        assert_eq!(written(|out| write_notification(out, "n", None)), r#"{"jsonrpc":"2.0","method":"n"}"#);
        assert_eq!(
            written(|out| write_request(out, u64::MAX, "m", Some(b"{}"))),
            r#"{"jsonrpc":"2.0","id":18446744073709551615,"method":"m","params":{}}"#
        );
        assert_eq!(written(|out| write_result(out, &Id::Integer(-3), b"null")), r#"{"jsonrpc":"2.0","id":-3,"result":null}"#);
        assert_eq!(
            written(|out| write_error(out, Some(&Id::Text("a\"".into())), b"{\"code\":1}")),
            r#"{"jsonrpc":"2.0","id":"a\"","error":{"code":1}}"#
        );
        assert_eq!(written(|out| write_error(out, None, b"{}")), r#"{"jsonrpc":"2.0","id":null,"error":{}}"#);
    }

    #[test]
    fn a_method_cannot_leave_its_quotes() {
        assert_eq!(
            written(|out| write_notification(out, "a\",\"x\":\"\r\n\\", None)),
            r#"{"jsonrpc":"2.0","method":"a\",\"x\":\"\r\n\\"}"#
        );
    }

    #[test]
    fn a_pretty_printed_value_becomes_one_line_and_stays_the_same_otherwise() {
        let pretty = b"{\r\n  \"a\" : [\n1.50,\r\t-0e1 ],\n\"b\\n\":\"x\\r\\n y\"\n}\n";
        assert_eq!(
            written(|out| write_result(out, &Id::Integer(1), pretty)),
            "{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{  \"a\" : [1.50,\t-0e1 ],\"b\\n\":\"x\\r\\n y\"}}"
        );
    }
}
