//! The few fields inside params and results that the kernel must know: versions, capabilities, who is cancelled, what is subscribed.
//!
//! Never refuses: a field that is absent, stands there twice or has another type is simply not known.

use std::borrow::Cow;
use std::collections::BTreeMap;

use serde_json::value::RawValue;

use super::id::Id;
use super::json::{self, Member};
use super::revision::Revision;
use crate::refusal::Refusal;

/// The capabilities that an `initialize` result declares with `listChanged: true`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ListChanged {
    /// `notifications/tools/list_changed` may come.
    pub tools: bool,
    /// `notifications/resources/list_changed` may come.
    pub resources: bool,
    /// `notifications/prompts/list_changed` may come.
    pub prompts: bool,
}

impl ListChanged {
    /// The notifications that may come.
    pub fn methods(self) -> impl Iterator<Item = &'static str> {
        [
            (self.tools, "notifications/tools/list_changed"),
            (self.resources, "notifications/resources/list_changed"),
            (self.prompts, "notifications/prompts/list_changed"),
        ]
        .into_iter()
        .filter_map(|(declared, method)| declared.then_some(method))
    }
}

/// The revision that an `initialize` request's params ask for, if it is one of ours.
pub fn requested_version(params: &RawValue) -> Option<Revision> {
    revision(params.get())
}

/// The revision that an `initialize` result settles on, if it is one of ours.
pub fn protocol_version(result: &[u8]) -> Option<Revision> {
    revision(std::str::from_utf8(result).ok()?)
}

fn revision(object: &str) -> Option<Revision> {
    let name = text_at(object, &["protocolVersion"])?;
    Revision::parse(name.as_bytes())
}

/// What an `initialize` result's capabilities say of changing lists.
pub fn list_changed(result: &[u8]) -> ListChanged {
    let result = std::str::from_utf8(result).unwrap_or_default();
    let declares = |what| json::lookup(result, &["capabilities", what, "listChanged"]) == Some("true");
    ListChanged { tools: declares("tools"), resources: declares("resources"), prompts: declares("prompts") }
}

/// The text at the end of a path of member names.
pub fn text_at<'a>(object: &'a str, path: &[&str]) -> Option<Cow<'a, str>> {
    json::text(json::lookup(object, path)?)
}

/// The integer at the end of a path of member names.
pub fn integer_at(object: &str, path: &[&str]) -> Option<i64> {
    json::lookup(object, path)?.parse().ok()
}

/// The request that a `notifications/cancelled` names. An id of any length: one longer than ours may be names none.
pub fn cancelled_request(params: Option<&RawValue>) -> Option<Id> {
    let [id] = json::members(params?.get(), ["requestId"]).ok()?;
    Id::read(id.one()?, usize::MAX).ok()
}

/// The idempotency key in a request's `_meta`. One that is no text, or stands there twice, is refused: it must not be taken for none.
pub fn idempotency_key<'a>(params: Option<&'a RawValue>) -> Result<Option<Cow<'a, str>>, Refusal> {
    let wrong = Refusal::InvalidRequest("rejoin/idempotency-key in _meta must be one string");
    let Some(params) = params.map(RawValue::get).filter(|params| params.starts_with('{')) else { return Ok(None) };
    let [meta] = json::members(params, ["_meta"]).map_err(|_| wrong)?;
    let Some(meta) = meta.one().map(RawValue::get).filter(|meta| meta.starts_with('{')) else { return Ok(None) };
    let [key] = json::members(meta, ["rejoin/idempotency-key"]).map_err(|_| wrong)?;
    match key {
        Member::Absent => Ok(None),
        Member::One(key) => json::text(key.get()).map(Some).ok_or(wrong),
        Member::Repeated => Err(wrong),
    }
}

/// What a request asks, without its `_meta`: the members of its params by name, each as it was written. Params that are no object are one
/// member without a name.
pub fn without_meta<'a>(params: Option<&'a RawValue>) -> BTreeMap<Cow<'a, str>, &'a str> {
    let Some(params) = params else { return BTreeMap::new() };
    match serde_json::from_str::<BTreeMap<String, &RawValue>>(params.get()) {
        Ok(members) => {
            members.into_iter().filter(|(name, _)| name != "_meta").map(|(name, value)| (name.into(), value.get())).collect()
        }
        Err(_) => BTreeMap::from([("".into(), params.get())]),
    }
}

/// The resource that `resources/subscribe` and `resources/unsubscribe` are about.
pub fn resource_uri(params: Option<&RawValue>) -> Option<Cow<'_, str>> {
    text_at(params?.get(), &["uri"])
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn raw(json: &str) -> &RawValue {
        serde_json::from_str(json).expect("the test's JSON")
    }

    #[test]
    fn a_version_of_ours_is_known_and_no_other() {
        assert_eq!(protocol_version(br#"{"protocolVersion":"2025-06-18","x":1}"#), Some(Revision::V2025_06_18));
        assert_eq!(requested_version(raw(r#"{"protocolVersion":"2025-11-\u00325"}"#)), Some(Revision::V2025_11_25));
        for wrong in [
            &br#"{"protocolVersion":"2024-10-07"}"#[..],
            br#"{"protocolVersion":20250618}"#,
            br#"{"protocolVersion":"2025-06-18","protocolVersion":"2025-11-25"}"#,
            br#"["2025-06-18"]"#,
            b"{}",
            b"",
            b"\xff",
        ] {
            assert_eq!(protocol_version(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn lists_change_where_the_result_says_true() {
        let result = br#"{"capabilities":{"tools":{"listChanged":true},"resources":{"subscribe":true,"listChanged": false},"prompts":{}}}"#;
        assert_eq!(list_changed(result), ListChanged { tools: true, ..ListChanged::default() });
        let all = br#"{"capabilities":{"prompts":{"listChanged":true},"tools":{"listChanged" : true },"resources":{"listChanged":true}}}"#;
        assert_eq!(list_changed(all), ListChanged { tools: true, resources: true, prompts: true });
        for nothing in [&br#"{"capabilities":{"tools":{"listChanged":"true"}}}"#[..], b"{}", b"[", b"\xff", b""] {
            assert_eq!(list_changed(nothing), ListChanged::default(), "{nothing:?}");
        }
    }

    #[test]
    fn a_cancellation_names_an_id_or_nothing() {
        assert_eq!(cancelled_request(Some(raw(r#"{"reason":"r","requestId":"7"}"#))), Some(Id::Text("7".into())));
        assert_eq!(cancelled_request(Some(raw(r#"{"requestId":7}"#))), Some(Id::Integer(7)));
        for wrong in ["{}", "[7]", r#"{"requestId":null}"#, r#"{"requestId":7.0}"#, r#"{"requestId":7,"requestId":8}"#] {
            assert_eq!(cancelled_request(Some(raw(wrong))), None, "{wrong}");
        }
        assert_eq!(cancelled_request(None), None);
    }

    #[test]
    fn a_key_in_meta_is_one_text() {
        let key = |params: &'static str| idempotency_key(Some(raw(params)));
        assert_eq!(key(r#"{"_meta":{"rejoin/idempotency-key":"k\u0031"}}"#), Ok(Some("k1".into())));
        for none in ["[]", "{}", r#"{"_meta":3}"#, r#"{"_meta":{}}"#, r#"{"rejoin/idempotency-key":"k"}"#] {
            assert_eq!(key(none), Ok(None), "{none}");
        }
        assert!(key(r#"{"_meta":{"rejoin/idempotency-key":7}}"#).is_err());
        assert!(key(r#"{"_meta":{"rejoin/idempotency-key":"a","rejoin/idempotency-key":"a"}}"#).is_err());
        assert_eq!(idempotency_key(None), Ok(None));
    }

    #[test]
    fn what_is_asked_is_the_same_in_any_order_and_whatever_the_meta_says() {
        let asked = |params: &'static str| without_meta(Some(raw(params)));
        let one = asked(r#"{"name":"t","arguments":{"a":1},"_meta":{"progressToken":1}}"#);
        assert_eq!(one, asked(r#"{ "_meta":{}, "arguments" :{"a":1} , "n\u0061me":"t"}"#));
        for other in [r#"{"name":"t","arguments":{"a":2}}"#, r#"{"name":"t"}"#, "{}", "[1]"] {
            assert_ne!(one, asked(other), "{other}");
        }
        assert_ne!(asked("[1]"), asked("[2]"));
    }

    #[test]
    fn a_resource_is_named_by_its_unescaped_uri() {
        assert_eq!(resource_uri(Some(raw(r#"{"uri":"test:\/\/a"}"#))).as_deref(), Some("test://a"));
        assert_eq!(resource_uri(Some(raw(r#"{"uri":7}"#))), None);
        assert_eq!(resource_uri(None), None);
    }

    proptest! {
        #[test]
        fn any_result_of_a_handler_is_survived(result in prop::collection::vec(any::<u8>(), 0..60)) {
            let _ = (protocol_version(&result), list_changed(&result));
        }
    }
}
