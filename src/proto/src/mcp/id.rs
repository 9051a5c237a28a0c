//! A JSON-RPC id or progress token, kept exactly and written back as it was meant.
//!
//! Never compares an integer with a string that spells it: `1` and `"1"` are two ids.

use std::fmt;

use serde::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::json;

/// The id of a JSON-RPC request, or a progress token: an integer of 64 bits, signed or unsigned, or a string.
///
/// Writes itself back as JSON with the meaning that it came with; only a string's escapes may be spelled otherwise.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Id {
    /// An integer in the range of an `i64`.
    Integer(i64),
    /// An integer above it, in the range of a `u64`.
    Large(Large),
    /// A string.
    Text(Box<str>),
}

/// An integer above `i64::MAX`, so that no integer id has two representations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Large(u64);

impl Large {
    /// Its value.
    pub const fn get(self) -> u64 {
        self.0
    }
}

impl From<u64> for Id {
    fn from(value: u64) -> Self {
        i64::try_from(value).map_or(Self::Large(Large(value)), Self::Integer)
    }
}

/// Why a JSON value is no id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum IdError {
    /// Neither an integer of 64 bits nor a string of Unicode text: null, a fraction, an exponent, an array, an object.
    Kind,
    /// A string longer than the limit.
    TooLong,
}

/// Most bytes of JSON that one byte of a string can be spelled with (`\u0041`).
const ESCAPED: usize = 6;

impl Id {
    /// Reads an id of at most `max_text` bytes.
    pub(super) fn read(value: &RawValue, max_text: usize) -> Result<Self, IdError> {
        let json = value.get();
        if !json.starts_with('"') {
            // Of JSON's values only an integer reads as one in Rust: a fraction, an exponent, a word or a bracket does not.
            return match json.parse::<i64>() {
                Ok(integer) => Ok(Self::Integer(integer)),
                Err(_) => json.parse::<u64>().map(Self::from).map_err(|_| IdError::Kind),
            };
        }
        if json.len() > max_text.saturating_mul(ESCAPED).saturating_add(2) {
            return Err(IdError::TooLong);
        }
        let text = json::text(json).ok_or(IdError::Kind)?;
        if text.len() > max_text { Err(IdError::TooLong) } else { Ok(Self::Text(text.into())) }
    }

    /// Appends it as JSON.
    pub fn write(&self, out: &mut Vec<u8>) {
        super::write::push(out, self);
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(value) => serializer.serialize_i64(*value),
            Self::Large(value) => serializer.serialize_u64(value.0),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

/// For people: a string stands in quotes and escaped, so that a log line stays one line.
impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(value) => value.fmt(f),
            Self::Large(value) => value.0.fmt(f),
            Self::Text(text) => fmt::Debug::fmt(text, f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(json: &str) -> Result<Id, IdError> {
        Id::read(serde_json::from_str(json).expect("the test's JSON"), 8)
    }

    fn written(id: &Id) -> String {
        let mut out = Vec::new();
        id.write(&mut out);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn every_integer_of_64_bits_is_kept_exactly() {
        for json in ["0", "-1", "9007199254740993", "9223372036854775807", "9223372036854775808", "18446744073709551615"] {
            assert_eq!(written(&read(json).unwrap()), json);
        }
        assert_eq!(read("-9223372036854775808"), Ok(Id::Integer(i64::MIN)));
        assert_eq!(read("-0"), Ok(Id::Integer(0)));
        assert!(matches!(read("9223372036854775808"), Ok(Id::Large(large)) if large.get() == 1 << 63));
    }

    #[test]
    fn nothing_else_is_an_id() {
        for json in
            ["null", "true", "1.0", "1e2", "-1E+2", "0.5", "[]", "{}", "[1]", "18446744073709551616", "-9223372036854775809"]
        {
            assert_eq!(read(json), Err(IdError::Kind), "{json}");
        }
        assert_eq!(read(r#""\ud83d""#), Err(IdError::Kind), "half a surrogate pair is no text");
    }

    #[test]
    fn a_string_is_bounded_by_its_own_length_not_its_spelling() {
        assert_eq!(read(r#""\u0061\u0061\u0061\u0061\u0061\u0061\u0061\u0061""#), Ok(Id::Text("aaaaaaaa".into())));
        assert_eq!(read(r#""aaaaaaaaa""#), Err(IdError::TooLong));
        let long = format!("\"{}\"", "\\u0061".repeat(9));
        assert_eq!(read(&long), Err(IdError::TooLong));
    }

    #[test]
    fn an_integer_and_the_string_that_spells_it_are_two_ids() {
        assert_ne!(read("1"), read("\"1\""));
    }

    #[test]
    fn an_id_stays_small() {
        assert_eq!(size_of::<Id>(), 24);
    }

    proptest! {
        #[test]
        fn what_is_written_reads_back(text in "\\PC{0,8}|[\\x00-\\x7f]{0,8}", number: u64, signed: i64) {
            for id in [Id::Text(text.into()), Id::from(number), Id::Integer(signed)] {
                let json = written(&id);
                prop_assert_eq!(Id::read(serde_json::from_str(&json).unwrap(), usize::MAX), Ok(id));
            }
        }
    }
}
