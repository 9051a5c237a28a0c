//! JSON as far as the kernel needs it: find a member of an object, bound the nesting, leave the rest alone.
//!
//! Never builds a tree, never recurses, and never decides what a member means.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;

use serde::Deserializer as _;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};
use serde_json::value::RawValue;

/// Whether `bytes` are one complete JSON value (RFC 8259) in UTF-8, with nothing but whitespace around it.
pub fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok()
}

/// Whether `bytes` are one complete JSON object, as `params` and an `error` must be.
pub fn is_json_object(bytes: &[u8]) -> bool {
    serde_json::from_slice::<&RawValue>(bytes).is_ok_and(|value| value.get().starts_with('{'))
}

/// How often an object has a member. Parsers differ on which of two equal keys counts (RFC 8259, section 4: "unpredictable"), so two
/// are never taken for one.
#[derive(Clone, Copy, Debug, Default)]
pub(super) enum Member<'a> {
    /// Never.
    #[default]
    Absent,
    /// Once.
    One(&'a RawValue),
    /// More than once.
    Repeated,
}

impl<'a> Member<'a> {
    /// The value of a member that stands there exactly once.
    pub(super) fn one(self) -> Option<&'a RawValue> {
        match self {
            Self::One(value) => Some(value),
            Self::Absent | Self::Repeated => None,
        }
    }
}

/// The members of `object` with these names, in the order of `names`. Keys are compared unescaped. Fails when `object` is no
/// complete JSON object.
pub(super) fn members<'a, const N: usize>(object: &'a str, names: [&str; N]) -> Result<[Member<'a>; N], serde_json::Error> {
    let mut parser = serde_json::Deserializer::from_str(object);
    let found = parser.deserialize_map(Members(names))?;
    parser.end()?;
    Ok(found)
}

/// The value at the end of a path of member names. None where a name is absent, stands there twice, or leads into no object.
pub(super) fn lookup<'a>(object: &'a str, path: &[&str]) -> Option<&'a str> {
    path.iter().try_fold(object, |value, name| {
        let [member] = members(value, [name]).ok()?;
        member.one().map(RawValue::get)
    })
}

/// The text of a JSON string, borrowed where nothing in it is escaped. None for any other value, and for escapes that are no
/// Unicode text (half of a surrogate pair).
pub(super) fn text(value: &str) -> Option<Cow<'_, str>> {
    /// Borrows where serde's own `Cow` would copy.
    struct Text;

    impl<'a> Visitor<'a> for Text {
        type Value = Cow<'a, str>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("a string")
        }

        fn visit_borrowed_str<E>(self, text: &'a str) -> Result<Self::Value, E> {
            Ok(Cow::Borrowed(text))
        }

        fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
            Ok(Cow::Owned(text.to_owned()))
        }
    }

    serde_json::Deserializer::from_str(value).deserialize_str(Text).ok()
}

/// The elements of the JSON array `array`, at most `max` + 1 of them: enough to see that there are too many. All of it is checked.
pub(super) fn elements(array: &str, max: usize) -> Result<Vec<&RawValue>, serde_json::Error> {
    struct Elements(usize);

    impl<'a> Visitor<'a> for Elements {
        type Value = Vec<&'a RawValue>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an array")
        }

        fn visit_seq<A: SeqAccess<'a>>(self, mut array: A) -> Result<Self::Value, A::Error> {
            let mut elements = Vec::new();
            while elements.len() <= self.0 {
                match array.next_element()? {
                    Some(element) => elements.push(element),
                    None => return Ok(elements),
                }
            }
            while array.next_element::<IgnoredAny>()?.is_some() {}
            Ok(elements)
        }
    }

    let mut parser = serde_json::Deserializer::from_str(array);
    let found = parser.deserialize_seq(Elements(max))?;
    parser.end()?;
    Ok(found)
}

/// Whether more than `max` arrays and objects stand inside each other. `serde_json` skips values without recursion and so without
/// a bound; whoever builds a tree of them later recurses. Exact for JSON; of other bytes it only says yes or no.
pub(super) fn deeper_than(max: usize, text: &[u8]) -> bool {
    let mut depth = 0usize;
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'[' | b'{' if depth == max => return true,
            b'[' | b'{' => depth += 1,
            b']' | b'}' => depth = depth.saturating_sub(1),
            b'"' => skip_string(&mut bytes),
            _ => {}
        }
    }
    false
}

/// Moves past the closing quote of a string whose opening quote was read.
fn skip_string(bytes: &mut std::slice::Iter<'_, u8>) {
    while let Some(byte) = bytes.next() {
        match byte {
            b'"' => return,
            b'\\' => {
                bytes.next();
            }
            _ => {}
        }
    }
}

/// Where `inner`, a part of `outer`, stands in it. None when it is a part of something else.
pub(super) fn span(outer: &str, inner: &str) -> Option<Range<usize>> {
    let start = inner.as_ptr().addr().checked_sub(outer.as_ptr().addr())?;
    let end = start.checked_add(inner.len())?;
    (end <= outer.len()).then_some(start..end)
}

/// Finds the members with these names in one pass, whatever the object's size.
struct Members<'n, const N: usize>([&'n str; N]);

impl<'a, const N: usize> Visitor<'a> for Members<'_, N> {
    type Value = [Member<'a>; N];

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'a>>(self, mut object: A) -> Result<Self::Value, A::Error> {
        let mut found = [Member::Absent; N];
        while let Some(at) = object.next_key_seed(Name(&self.0))? {
            match at {
                None => {
                    object.next_value::<IgnoredAny>()?;
                }
                Some(at) => {
                    let value = object.next_value()?;
                    found[at] = match found[at] {
                        Member::Absent => Member::One(value),
                        Member::One(_) | Member::Repeated => Member::Repeated,
                    };
                }
            }
        }
        Ok(found)
    }
}

/// Tells which of the names a key is, without a copy of it.
struct Name<'n>(&'n [&'n str]);

impl<'a> DeserializeSeed<'a> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: serde::Deserializer<'a>>(self, key: D) -> Result<Self::Value, D::Error> {
        key.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a key")
    }

    fn visit_str<E>(self, key: &str) -> Result<Self::Value, E> {
        Ok(self.0.iter().position(|name| *name == key))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_one_complete_value_is_json() {
        for json in [&b"0"[..], b" {\"a\": [1e5, null]}\r\n", b"\"\\ud800\"", b"[]"] {
            assert!(is_json(json), "{json:?}");
        }
        for not in [&b""[..], b" ", b"{", b"{}{}", b"1 2", b"\xef\xbb\xbf{}", b"\"\xff\"", b"\"a\nb\"", b"01", b"{a:1}", b"nul"] {
            assert!(!is_json(not), "{not:?}");
        }
        assert!(is_json_object(b" {} "));
        assert!(!is_json_object(b"[]") && !is_json_object(b"{"));
    }

    #[test]
    fn a_key_is_found_however_it_is_spelled() {
        let [a, b, c] = members(r#"{"\u0061":1,"x":{"b":2},"c":3,"c":4}"#, ["a", "b", "c"]).unwrap();
        assert_eq!(a.one().unwrap().get(), "1");
        assert!(matches!(b, Member::Absent), "only members of the object itself count");
        assert!(matches!(c, Member::Repeated));
    }

    #[test]
    fn a_path_leads_through_objects_only() {
        let object = r#"{"a":{"b":{"c":true}},"l":[1],"d":{},"d":{"e":1}}"#;
        assert_eq!(lookup(object, &["a", "b", "c"]), Some("true"));
        for path in [&["a", "c"][..], &["l", "0"], &["d", "e"], &["x"]] {
            assert_eq!(lookup(object, path), None, "{path:?}");
        }
    }

    #[test]
    fn depth_counts_what_stands_inside_and_nothing_in_strings() {
        assert!(!deeper_than(2, br#"[[],{},[],"[[[[\"[[[["]"#));
        assert!(deeper_than(1, b"[[],1]"));
        assert!(deeper_than(2, br#"{"\\":{"a":[]}}"#));
        assert!(!deeper_than(0, b"17") && deeper_than(0, b"{}"));
    }

    #[test]
    fn text_is_borrowed_until_it_is_escaped() {
        assert!(matches!(text("\"plain\""), Some(Cow::Borrowed("plain"))));
        assert_eq!(text(r#""\u00e9\n""#).as_deref(), Some("é\n"));
        for not in ["1", "null", r#""\ud800""#] {
            assert_eq!(text(not), None, "{not}");
        }
    }

    #[test]
    fn elements_stop_one_past_the_bound_and_check_the_rest() {
        assert_eq!(elements("[1,[2],3]", 3).unwrap().len(), 3);
        assert_eq!(elements("[1,2,3,4,5]", 2).unwrap().len(), 3);
        assert!(elements("[1,2,3,4,5", 2).is_err());
        assert!(elements("[1] 2", 8).is_err());
    }

    #[test]
    fn a_span_is_of_its_own_text_only() {
        let outer = String::from("abcdef");
        assert_eq!(span(&outer, &outer[2..4]), Some(2..4));
        assert_eq!(span(&outer[2..4], &outer), None);
    }
}
