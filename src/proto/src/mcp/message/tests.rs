use super::*;
use crate::mcp::write::{write_error, write_notification, write_request, write_result};
use proptest::prelude::*;
use serde_json::Value;

/// Small enough that tests reach every bound.
fn limits() -> Limits {
    Limits { batch_messages: 3, id_bytes: 8, json_depth: 5, ..Limits::default() }
}

fn one(body: &str) -> Result<Message<'_>, Refusal> {
    match parse(body.as_bytes(), &limits())? {
        Body::One(message) => Ok(message),
        Body::Batch(_) => panic!("{body} is a batch"),
    }
}

fn is_invalid(body: &str) -> bool {
    matches!(parse(body.as_bytes(), &limits()), Err(Refusal::InvalidRequest(_)))
}

fn is_no_json(body: &[u8]) -> bool {
    matches!(parse(body, &limits()), Err(Refusal::ParseError))
}

#[test]
fn a_request_borrows_what_the_client_wrote() {
    let body = r#" { "params" : {"a" : [1.0,  "x"]} ,"id":7,"extra":[null],"method":"tools/call","jsonrpc":"2.0" } "#;
    let Ok(Message::Request(request)) = one(body) else { panic!("{:?}", one(body)) };
    assert_eq!(request.id, Id::Integer(7));
    assert!(matches!(request.method, Cow::Borrowed("tools/call")));
    assert_eq!(request.params.map(RawValue::get), Some(r#"{"a" : [1.0,  "x"]}"#));
}

#[test]
fn escapes_in_keys_and_methods_are_read() {
    let body = r#"{"jsonrpc":"2.\u0030","i\u0064":"\u0061","metho\u0064":"tools\/call"}"#;
    let Ok(Message::Request(request)) = one(body) else { panic!("{:?}", one(body)) };
    assert_eq!((request.id, &*request.method), (Id::Text("a".into()), "tools/call"));
}

#[test]
fn a_message_without_an_id_is_a_notification() {
    let Ok(Message::Notification(notification)) = one(r#"{"jsonrpc":"2.0","method":"notifications/initialized","params":[]}"#)
    else {
        panic!("no notification");
    };
    assert_eq!(notification.method, "notifications/initialized");
    assert_eq!(notification.params.map(RawValue::get), Some("[]"));
}

#[test]
fn a_response_has_exactly_one_outcome() {
    let Ok(Message::Response(response)) = one(r#"{"jsonrpc":"2.0","id":"a","result":null}"#) else { panic!("no response") };
    assert_eq!(response.id, Some(Id::Text("a".into())));
    assert_eq!(response.outcome.map(RawValue::get).map_err(RawValue::get), Ok("null"));
    for wrong in [
        r#"{"jsonrpc":"2.0","id":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":null,"error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":"no"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","result":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","error":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"params":{},"result":{}}"#,
    ] {
        assert!(is_invalid(wrong), "{wrong}");
    }
}

#[test]
fn only_an_error_may_answer_nobody() {
    for body in [r#"{"jsonrpc":"2.0","id":null,"error":{}}"#, r#"{"jsonrpc":"2.0","error":{"code":1}}"#] {
        assert!(matches!(one(body), Ok(Message::Response(Response { id: None, outcome: Err(_) }))), "{body}");
    }
    for body in [r#"{"jsonrpc":"2.0","id":null,"result":{}}"#, r#"{"jsonrpc":"2.0","result":{}}"#] {
        assert!(is_invalid(body), "{body}");
    }
}

#[test]
fn ids_that_no_client_of_mcp_may_send_are_refused() {
    for id in ["null", "1.0", "1e3", "0.5", "true", "[]", "{}", "18446744073709551616", "\"123456789\"", r#""\ud800""#] {
        assert!(is_invalid(&format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"m"}}"#)), "{id} in a request");
        if id != "null" {
            assert!(is_invalid(&format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{}}}}"#)), "{id} in a response");
        }
    }
}

#[test]
fn a_member_of_the_envelope_that_stands_twice_is_refused() {
    for twice in [
        r#"{"jsonrpc":"2.0","jsonrpc":"2.0","id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","m\u0065thod":"m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":{},"params":{}}"#,
        r#"{"jsonrpc":"2.0","id":1,"result":1,"result":1}"#,
        r#"{"jsonrpc":"2.0","id":1,"error":{},"error":{}}"#,
    ] {
        assert!(is_invalid(twice), "{twice}");
    }
    assert!(
        one(r#"{"jsonrpc":"2.0","id":1,"method":"m","x":1,"x":2,"params":{"a":1,"a":2}}"#).is_ok(),
        "others are not ours to judge"
    );
}

#[test]
fn the_envelope_must_be_json_rpc() {
    for wrong in [
        r#"{}"#,
        r#"{"id":1,"method":"m"}"#,
        r#"{"jsonrpc":"1.0","id":1,"method":"m"}"#,
        r#"{"jsonrpc":2.0,"id":1,"method":"m"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":["m"]}"#,
        r#"{"jsonrpc":"2.0","method":7}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":null}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":"x"}"#,
        r#"{"jsonrpc":"2.0","id":1,"method":"m","params":1}"#,
        "17",
        "\"text\"",
        "null",
    ] {
        assert!(is_invalid(wrong), "{wrong}");
    }
}

#[test]
fn what_is_not_json_is_a_parse_error() {
    let message = br#"{"jsonrpc":"2.0","id":1,"method":"m"}"#;
    assert!(parse(message, &limits()).is_ok());
    for (before, after) in
        [(&b"\xef\xbb\xbf"[..], &b""[..]), (b"", b"x"), (b"", b"{}"), (b"", b"\0"), (b"\xff", b""), (b"\x0c", b"")]
    {
        assert!(is_no_json(&[before, message, after].concat()), "{before:?} … {after:?}");
    }
    for end in 0..message.len() {
        assert!(is_no_json(&message[..end]), "cut at {end}");
    }
    assert!(is_no_json(b"[{}"), "a cut batch is no JSON before it is an invalid one");
    assert!(is_no_json(b"{\"jsonrpc\":\"2.0\",\"method\":\"\xc3\x28\"}"), "UTF-8 is required inside strings too");
    assert!(is_no_json(b"{\"id\":1.0,\"id\":2,"), "no JSON outranks an invalid envelope");
}

#[test]
fn nesting_has_a_bound_and_no_stack() {
    let nested = |depth: usize| {
        format!(r#"{{"jsonrpc":"2.0","method":"m","params":{}{}}}"#, "[".repeat(depth), "]".repeat(depth)).into_bytes()
    };
    assert!(parse(&nested(4), &limits()).is_ok());
    assert!(is_no_json(&nested(5)));
    for flood in ["[", "{\"a\":", "[{\"a\":"] {
        assert!(is_no_json(flood.repeat(100_000).as_bytes()), "{flood} a hundred thousand times");
    }
    assert!(is_no_json(&nested(100_000)));
    let unbounded = Limits { json_depth: usize::MAX, ..limits() };
    assert!(parse(&nested(100_000), &unbounded).is_ok(), "values are skipped without recursion, whatever the bound");
}

#[test]
fn a_batch_is_bounded_and_flat() {
    let batch = |elements: &[&str]| format!(" [{}] ", elements.join(","));
    let (request, notification) = (r#"{"jsonrpc":"2.0","id":1,"method":"m"}"#, r#"{"jsonrpc":"2.0","method":"n"}"#);
    match parse(batch(&[request, notification, request]).as_bytes(), &limits()) {
        Ok(Body::Batch(messages)) => {
            assert!(matches!(messages[..], [Message::Request(_), Message::Notification(_), Message::Request(_)]))
        }
        other => panic!("{other:?}"),
    }
    for wrong in [&[][..], &[request; 4], &["[]"], &["1"], &[request, "null"], &[request, r#"{"jsonrpc":"2.0"}"#]] {
        assert!(is_invalid(&batch(wrong)), "{wrong:?}");
    }
    assert!(is_no_json(b"[1,2,3,4,5,6,]"), "what stands behind the bound must be JSON as well");
}

/// Values that members of an envelope may have, good ones and bad ones.
fn value() -> impl Strategy<Value = String> {
    prop_oneof![
        3 => Just("\"2.0\"".to_owned()),
        2 => any::<i64>().prop_map(|number| number.to_string()),
        2 => "[a-z/]{0,9}".prop_map(|text| format!("\"{text}\"")),
        1 => prop::sample::select(vec!["null", "1.5", "1e3", "true", "18446744073709551615", "[]", "{}", "[ 1 ]", r#"{"a":{"b":[]}}"#])
            .prop_map(str::to_owned),
    ]
}

/// An envelope with each member there or not.
fn envelope() -> impl Strategy<Value = Vec<(&'static str, String)>> {
    let names =
        prop::sample::subsequence(vec!["jsonrpc", "id", "method", "params", "result", "error", "x"], 0..=7).prop_shuffle();
    (names, prop::collection::vec(value(), 7)).prop_map(|(names, values)| names.into_iter().zip(values).collect())
}

/// What kind of message a tree says it is: the rules once more, on another parser's reading.
fn kind_by_tree(envelope: &Value) -> Option<&'static str> {
    let max = limits().id_bytes;
    let is_id = |id: &Value| id.as_str().map_or(id.is_i64() || id.is_u64(), |text| text.len() <= max);
    let has = |name| envelope.get(name).is_some();
    if envelope.get("jsonrpc")? != "2.0" {
        return None;
    }
    if let Some(method) = envelope.get("method") {
        let params = envelope.get("params").is_none_or(|params| params.is_object() || params.is_array());
        let good = method.is_string() && params && !has("result") && !has("error");
        return match envelope.get("id") {
            None => good.then_some("notification"),
            Some(id) => (good && is_id(id)).then_some("request"),
        };
    }
    let outcome = match (envelope.get("result"), envelope.get("error")) {
        (Some(_), None) => "result",
        (None, Some(error)) if error.is_object() => "error",
        _ => return None,
    };
    let nobody = envelope.get("id").is_none_or(Value::is_null);
    let good = !has("params") && if nobody { outcome == "error" } else { is_id(&envelope["id"]) };
    good.then_some(outcome)
}

fn kind(message: &Message<'_>) -> &'static str {
    match message {
        Message::Request(_) => "request",
        Message::Notification(_) => "notification",
        Message::Response(Response { outcome: Ok(_), .. }) => "result",
        Message::Response(Response { outcome: Err(_), .. }) => "error",
    }
}

proptest! {
    #[test]
    fn any_bytes_give_messages_or_a_refusal(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = parse(&bytes, &limits());
    }

    #[test]
    fn any_near_json_gives_messages_or_a_refusal(text in r#"(\{|\}|\[|\]|:|,|"|\\|\\u00|1|-|e|null| |"id":|"jsonrpc":"2.0"|"method":"m"|é){0,30}"#) {
        let parsed = parse(text.as_bytes(), &limits());
        if serde_json::from_str::<Value>(&text).is_err() {
            prop_assert_eq!(parsed.err(), Some(Refusal::ParseError));
        }
    }

    #[test]
    fn a_changed_byte_never_panics(at in any::<prop::sample::Index>(), to: u8) {
        let mut body = br#"[{"jsonrpc":"2.0","id":"a\u0062","method":"m\n","params":{"_meta":{}}},{"jsonrpc":"2.0","id":1,"result":{}}]"#.to_vec();
        let at = at.index(body.len());
        body[at] = to;
        let _ = parse(&body, &limits());
    }

    #[test]
    fn an_envelope_means_the_same_to_a_parser_that_builds_a_tree(members in envelope()) {
        let members: Vec<_> = members.iter().map(|(name, value)| format!("\"{name}\" :\t{value}")).collect();
        let text = format!("{{{}}}", members.join(" ,\r\n"));
        let tree: Value = serde_json::from_str(&text).unwrap();
        let parsed = one(&text);
        prop_assert_eq!(parsed.as_ref().ok().map(kind), kind_by_tree(&tree), "{}", text);
        prop_assert!(!matches!(parsed, Err(Refusal::ParseError)));
    }

    #[test]
    fn what_is_written_parses_back(text in "\\PC{0,8}|[\\x00-\\x7f]{0,8}", number: u64, method in "\\PC*|[\\x00-\\x7f]*", params in r#"\{"a": ?("\\n"|1\.50|\[null\])\}"#) {
        let generous = Limits { id_bytes: 64, ..limits() };
        let id = Id::Text(text.into());
        let mut out = Vec::new();
        write_request(&mut out, number, &method, Some(params.as_bytes()));
        match parse(&out, &generous) {
            Ok(Body::One(Message::Request(request))) => {
                prop_assert_eq!(request.id, Id::from(number));
                prop_assert_eq!(&request.method, &method);
                prop_assert_eq!(request.params.map(RawValue::get), Some(&params[..]));
            }
            other => prop_assert!(false, "{:?}", other),
        }
        out.clear();
        write_notification(&mut out, &method, None);
        match parse(&out, &generous) {
            Ok(Body::One(Message::Notification(notification))) => {
                prop_assert_eq!(&notification.method, &method);
                prop_assert!(notification.params.is_none());
            }
            other => prop_assert!(false, "{:?}", other),
        }
        out.clear();
        write_result(&mut out, &id, params.as_bytes());
        match parse(&out, &generous) {
            Ok(Body::One(Message::Response(response))) => {
                prop_assert_eq!(response.id.as_ref(), Some(&id));
                prop_assert_eq!(response.outcome.map(RawValue::get).ok(), Some(&params[..]));
            }
            other => prop_assert!(false, "{:?}", other),
        }
        for id in [Some(&id), None] {
            out.clear();
            write_error(&mut out, id, params.as_bytes());
            match parse(&out, &generous) {
                Ok(Body::One(Message::Response(response))) => {
                    prop_assert_eq!(response.id.as_ref(), id);
                    prop_assert_eq!(response.outcome.map_err(RawValue::get).err(), Some(&params[..]));
                }
                other => prop_assert!(false, "{:?}", other),
            }
        }
    }
}
