//! Progress tokens: ours inside, the client's at its edge. Clients reuse tokens as they reuse ids, so nothing is routed by theirs.
//!
//! Never touches anything else: order, duplicates, whitespace and spelling of the rest stay byte for byte.

use std::borrow::Cow;

use serde_json::value::RawValue;

use super::id::{Id, IdError};
use super::json::{self, Member};
use super::stateless::SUBSCRIPTION;
use super::write;
use crate::limits::Limits;
use crate::refusal::Refusal;

/// A request's params with `ours` in the place of the client's `_meta.progressToken`, and the client's; unchanged where there is none.
///
/// Two `_meta`, or two tokens in it, are refused: a handler's parser might see the one that was not exchanged.
pub fn take_progress_token(params: &RawValue, ours: u64, limits: &Limits) -> Result<(Vec<u8>, Option<Id>), Refusal> {
    let text = params.get();
    match find(text)? {
        None => Ok((text.into(), None)),
        Some(token) => {
            let client = Id::read(token, limits.id_bytes).map_err(|error| match error {
                IdError::Kind => Refusal::InvalidRequest("progressToken must be a string or an integer of at most 64 bits"),
                IdError::TooLong => Refusal::InvalidRequest("progressToken is longer than this server admits"),
            })?;
            Ok((exchange(text, token, |out| write::push(out, &ours)), Some(client)))
        }
    }
}

/// A request's params with `token` as their `_meta.progressToken`, whatever stood there. `None` where they have no one place for it: no
/// object, a `_meta` that is no object, or two of either.
pub fn put_progress_token(params: Option<&RawValue>, token: u64) -> Option<Vec<u8>> {
    let text = params.map_or("{}", RawValue::get);
    match find(text).ok()? {
        Some(old) => Some(exchange(text, old, |out| write::push(out, &token))),
        None => put_in_meta(text, &format!("\"progressToken\":{token}")),
    }
}

/// A notification's params with the id of the `subscriptions/listen` that it comes of. 2026-07-28, subscriptions, "Receiving
/// Notifications": "All notifications delivered on the stream carry `io.modelcontextprotocol/subscriptionId` in `_meta` […]. The value is
/// the JSON-RPC ID of the `subscriptions/listen` request." `None` where params have no one place for it, or name one already.
pub fn put_subscription(params: Option<&[u8]>, id: &Id) -> Option<Vec<u8>> {
    let text = std::str::from_utf8(params.unwrap_or(b"{}")).ok()?;
    if json::lookup(text, &["_meta", SUBSCRIPTION]).is_some() {
        return None;
    }
    let mut written = Vec::new();
    id.write(&mut written);
    put_in_meta(text, &format!("\"{SUBSCRIPTION}\":{}", std::str::from_utf8(&written).ok()?))
}

/// A result with `resultType`: `complete` where its handler says nothing of it. 2026-07-28, basic, "Result Responses": "The `result` MUST
/// include a `resultType` field". What is no object stays as it is.
pub fn with_result_type(result: &[u8]) -> Cow<'_, [u8]> {
    let Ok(text) = std::str::from_utf8(result) else { return Cow::Borrowed(result) };
    match json::members(text, ["resultType"]) {
        Ok([Member::Absent]) => insert(text, "\"resultType\":\"complete\"").map_or(Cow::Borrowed(result), Cow::Owned),
        _ => Cow::Borrowed(result),
    }
}

/// Params with one more member in their `_meta`, which is made where there is none.
fn put_in_meta(params: &str, member: &str) -> Option<Vec<u8>> {
    let [meta] = json::members(params.trim_ascii().starts_with('{').then_some(params)?, ["_meta"]).ok()?;
    match meta {
        Member::Absent => insert(params, &format!("\"_meta\":{{{member}}}")),
        Member::Repeated => None,
        Member::One(meta) => {
            let with = insert(meta.get(), member)?;
            Some(exchange(params, meta, |out| out.extend_from_slice(&with)))
        }
    }
}

/// An object with one more member at its end; `None` when it is no object.
fn insert(object: &str, member: &str) -> Option<Vec<u8>> {
    let inside = object.trim_ascii().strip_prefix('{')?.strip_suffix('}')?;
    let comma = if inside.trim_ascii().is_empty() { "" } else { "," };
    Some(format!("{{{inside}{comma}{member}}}").into_bytes())
}

fn find(params: &str) -> Result<Option<&RawValue>, Refusal> {
    let mut place = params;
    let mut token = None;
    for name in ["_meta", "progressToken"] {
        if !place.starts_with('{') {
            return Ok(None);
        }
        let [member] = json::members(place, [name]).map_err(|_| Refusal::InvalidRequest("A key of params is no Unicode text"))?;
        match member {
            Member::Absent => return Ok(None),
            Member::Repeated => return Err(Refusal::InvalidRequest("params must not have _meta or its progressToken twice")),
            Member::One(value) => {
                place = value.get();
                token = Some(value);
            }
        }
    }
    Ok(token)
}

/// The token of ours that a handler's `notifications/progress` params name.
pub fn progress_token(params: &[u8]) -> Option<u64> {
    let (_, token) = handlers_token(params)?;
    token.get().parse().ok()
}

/// A handler's `notifications/progress` params with the client's token in the place of `ours`. None when they name another token.
pub fn progress_for_client(params: &[u8], ours: u64, client: &Id) -> Option<Vec<u8>> {
    let (text, token) = handlers_token(params)?;
    (token.get().parse() == Ok(ours)).then(|| exchange(text, token, |out| client.write(out)))
}

fn handlers_token(params: &[u8]) -> Option<(&str, &RawValue)> {
    let text = std::str::from_utf8(params).ok()?;
    let [token] = json::members(text, ["progressToken"]).ok()?;
    Some((text, token.one()?))
}

/// `whole` with something else in the place of `part`.
fn exchange(whole: &str, part: &RawValue, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let place = json::span(whole, part.get()).expect("a member's value is a part of its object");
    // Room for any integer; a longer string grows it.
    let mut out = Vec::with_capacity(whole.len() + 20);
    out.extend_from_slice(&whole.as_bytes()[..place.start]);
    write(&mut out);
    out.extend_from_slice(&whole.as_bytes()[place.end..]);
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::{Value, json};

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("the test's JSON")
    }

    fn take(params: &str) -> Result<(String, Option<Id>), Refusal> {
        let limits = Limits { id_bytes: 8, ..Limits::default() };
        take_progress_token(raw(params), 42, &limits).map(|(params, id)| (String::from_utf8(params).unwrap(), id))
    }

    #[test]
    fn only_the_token_changes() {
        let (params, token) = take(r#"{ "a":1.0, "a":2 ,"_meta" : {"x":"\u0061","progressToken" : "tok" },"z":[ ]}"#).unwrap();
        assert_eq!(params, r#"{ "a":1.0, "a":2 ,"_meta" : {"x":"\u0061","progressToken" : 42 },"z":[ ]}"#);
        assert_eq!(token, Some(Id::Text("tok".into())));
        let (params, token) = take(r#"{"_m\u0065ta":{"progress\u0054oken":-7}}"#).unwrap();
        assert_eq!(params, r#"{"_m\u0065ta":{"progress\u0054oken":42}}"#, "however its key is spelled");
        assert_eq!(token, Some(Id::Integer(-7)));
    }

    #[test]
    fn params_without_a_token_stay_as_they_are() {
        for params in [
            "{}",
            "[]",
            r#"[{"_meta":{"progressToken":1}}]"#,
            r#"{"_meta":null}"#,
            r#"{"_meta":{ }}"#,
            r#"{"a":{"progressToken":1}}"#,
        ] {
            assert_eq!(take(params), Ok((params.to_owned(), None)));
        }
    }

    #[test]
    fn a_token_that_could_be_read_in_two_ways_is_refused() {
        for params in [
            r#"{"_meta":{"progressToken":1,"progressToken":2}}"#,
            r#"{"_meta":{"progressToken":1},"_meta":{}}"#,
            r#"{"_meta":{"progressToken":1},"\u005fmeta":{"progressToken":1}}"#,
            r#"{"\ud800":1,"_meta":{"progressToken":1}}"#,
        ] {
            assert!(matches!(take(params), Err(Refusal::InvalidRequest(_))), "{params}");
        }
    }

    #[test]
    fn a_token_is_a_string_or_an_integer() {
        for token in ["null", "1.5", "1e2", "true", "{}", "[]", "\"123456789\""] {
            let params = format!(r#"{{"_meta":{{"progressToken":{token}}}}}"#);
            assert!(matches!(take(&params), Err(Refusal::InvalidRequest(_))), "{token}");
        }
    }

    #[test]
    fn a_token_is_put_where_it_belongs_and_nothing_else_changes() {
        let put = |params: Option<&str>| put_progress_token(params.map(raw), 7).map(|params| String::from_utf8(params).unwrap());
        for (params, expected) in [
            ("{}", r#"{"_meta":{"progressToken":7}}"#),
            (r#"{ "a" : 1.0 }"#, r#"{ "a" : 1.0 ,"_meta":{"progressToken":7}}"#),
            (r#"{"_meta":{ },"b":"}"}"#, r#"{"_meta":{ "progressToken":7},"b":"}"}"#),
            (r#"{"_meta":{"x":[]}}"#, r#"{"_meta":{"x":[],"progressToken":7}}"#),
            (r#"{"_meta":{"progressToken":"old"}}"#, r#"{"_meta":{"progressToken":7}}"#),
        ] {
            assert_eq!(put(Some(params)).as_deref(), Some(expected));
        }
        assert_eq!(put(None).as_deref(), Some(r#"{"_meta":{"progressToken":7}}"#));
        for params in ["[]", r#"{"_meta":null}"#, r#"{"_meta":{},"_meta":{}}"#, "3"] {
            assert_eq!(put(Some(params)), None, "{params}");
        }
    }

    #[test]
    fn what_a_subscription_brings_names_it_by_the_clients_id() {
        let put = |params: Option<&str>, id: &Id| {
            put_subscription(params.map(str::as_bytes), id).map(|params| String::from_utf8(params).unwrap())
        };
        for (params, expected) in [
            (None, r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":1}}"#),
            (Some(r#"{"uri":"a"}"#), r#"{"uri":"a","_meta":{"io.modelcontextprotocol/subscriptionId":1}}"#),
            (Some(r#"{"_meta":{"a":1}}"#), r#"{"_meta":{"a":1,"io.modelcontextprotocol/subscriptionId":1}}"#),
        ] {
            assert_eq!(put(params, &Id::Integer(1)).as_deref(), Some(expected));
        }
        assert!(put(None, &Id::Text("a\"b".into())).unwrap().contains(r#":"a\"b"}"#));
        for params in
            ["[]", r#"{"_meta":1}"#, r#"{"_meta":{},"_meta":{}}"#, r#"{"_meta":{"io.modelcontextprotocol/subscriptionId":2}}"#]
        {
            assert_eq!(put(Some(params), &Id::Integer(1)), None, "{params}");
        }
    }

    #[test]
    fn a_result_has_a_type() {
        for (result, typed) in [
            ("{}", r#"{"resultType":"complete"}"#),
            (r#" {"a":{"resultType":1} }"#, r#"{"a":{"resultType":1} ,"resultType":"complete"}"#),
            (r#"{"resultType":"input_required"}"#, r#"{"resultType":"input_required"}"#),
            ("[1]", "[1]"),
            ("null", "null"),
        ] {
            assert_eq!(&*with_result_type(result.as_bytes()), typed.as_bytes(), "{result}");
        }
    }

    #[test]
    fn progress_goes_back_under_the_clients_token() {
        let params = br#"{"progress":50 ,"progressToken":42,"progress":1e0}"#;
        assert_eq!(progress_token(params), Some(42));
        let back = progress_for_client(params, 42, &Id::Text("a\"b".into())).unwrap();
        assert_eq!(back, br#"{"progress":50 ,"progressToken":"a\"b","progress":1e0}"#);
    }

    #[test]
    fn progress_of_another_call_is_not_for_this_client() {
        let client = Id::Integer(1);
        for params in [
            &br#"{"progressToken":43}"#[..],
            br#"{"progressToken":"42"}"#,
            br#"{"progressToken":42.0}"#,
            br#"{"progressToken":42,"progressToken":42}"#,
            br#"{"_meta":{"progressToken":42}}"#,
            b"[42]",
            b"{",
            b"\xff",
        ] {
            assert_eq!(progress_for_client(params, 42, &client), None, "{params:?}");
        }
    }

    /// JSON texts with odd but legal spellings, two levels deep at most.
    fn value() -> impl Strategy<Value = String> {
        let scalar = || {
            prop_oneof![
                prop::sample::select(vec![
                    "null",
                    "true",
                    "1.50",
                    "-0",
                    "1E5",
                    "\"\\u0041\\/\"",
                    "\"}{\\\"progressToken\\\":1\"",
                    "[ ]",
                    "{\t}"
                ])
                .prop_map(str::to_owned),
                any::<i64>().prop_map(|number| number.to_string()),
                "[a-zé ]{0,9}".prop_map(|text| format!("\"{text}\"")),
            ]
        };
        prop_oneof![
            scalar(),
            (scalar(), scalar()).prop_map(|(a, b)| format!("[{a} ,\n{b}]")),
            (scalar(), scalar()).prop_map(|(a, b)| format!("{{ \"progressToken\":{a},\"_meta\" :{b}}}")),
        ]
    }

    /// Members before and after the one under test, duplicates among them.
    fn members() -> impl Strategy<Value = Vec<String>> {
        prop::collection::vec(("[a-c]", value()).prop_map(|(key, value)| format!("\"{key}\" : {value}")), 0..4)
    }

    /// An object with `inner` between other members, cut open where `inner`'s value stands.
    fn around(before: &[String], key: &str, after: &[String]) -> (String, String) {
        let head: String = before.iter().map(|member| format!("{member} , ")).collect();
        let tail: String = after.iter().map(|member| format!("\r\n,{member}")).collect();
        (format!("{{ {head}\"{key}\": "), format!(" {tail}}}"))
    }

    proptest! {
        #[test]
        fn everything_but_the_token_stays_byte_for_byte(
            outer in (members(), members()), inner in (members(), members()), ours: u64, number: i64, text in "[a-z\\\\\"é]{0,9}", textual: bool,
        ) {
            let (params_head, params_tail) = around(&outer.0, "_meta", &outer.1);
            let (meta_head, meta_tail) = around(&inner.0, "progressToken", &inner.1);
            let client = if textual { Id::Text(text.into()) } else { Id::Integer(number) };
            let mut token = Vec::new();
            client.write(&mut token);
            let token = String::from_utf8(token).unwrap();
            let params = |token: &str| format!("{params_head}{meta_head}{token}{meta_tail}{params_tail}");
            let (taken, found) = take_progress_token(raw(&params(&token)), ours, &Limits::default()).unwrap();
            prop_assert_eq!(String::from_utf8(taken.clone()).unwrap(), params(&ours.to_string()));
            prop_assert_eq!(found.as_ref(), Some(&client));
            // Once more by a parser that builds a tree: the same tree but for the token.
            let mut tree: Value = serde_json::from_str(&params(&token)).unwrap();
            tree["_meta"]["progressToken"] = json!(ours);
            prop_assert_eq!(serde_json::from_slice::<Value>(&taken).unwrap(), tree);
        }

        #[test]
        fn progress_stays_byte_for_byte_but_for_the_token(around_it in (members(), members()), ours: u64, client in "\\PC{0,9}") {
            let (head, tail) = around(&around_it.0, "progressToken", &around_it.1);
            let client = Id::Text(client.into());
            let back = progress_for_client(format!("{head}{ours}{tail}").as_bytes(), ours, &client);
            let mut expected = head.into_bytes();
            client.write(&mut expected);
            expected.extend_from_slice(tail.as_bytes());
            prop_assert_eq!(back, Some(expected));
        }

        #[test]
        fn any_params_of_a_handler_are_survived(params in prop::collection::vec(any::<u8>(), 0..60)) {
            prop_assert_eq!(progress_for_client(&params, 1, &Id::Integer(1)).is_some(), progress_token(&params) == Some(1));
        }
    }
}
