//! JSON values as handlers give and take them: already encoded, passed on as they were written.
//!
//! Never parses what it only carries.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// One JSON value, encoded. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Json(Bytes);

impl Json {
    /// Encodes a value. Fails where its `Serialize` does (a map whose keys are no strings, for example).
    pub fn new<T: Serialize + ?Sized>(value: &T) -> Result<Self, serde_json::Error> {
        serde_json::to_vec(value).map(|bytes| Self(bytes.into()))
    }

    /// What the kernel parsed, or is about to check.
    pub(crate) fn of(bytes: Bytes) -> Self {
        Self(bytes)
    }

    pub(crate) fn into_bytes(self) -> Bytes {
        self.0
    }

    /// Parses it.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// Its bytes: UTF-8, exactly as they were written.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }
}

impl From<serde_json::Value> for Json {
    fn from(value: serde_json::Value) -> Self {
        Self(value.to_string().into())
    }
}

impl From<Box<RawValue>> for Json {
    fn from(value: Box<RawValue>) -> Self {
        Self(String::from(Box::<str>::from(value)).into())
    }
}

impl fmt::Display for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        String::from_utf8_lossy(&self.0).fmt(f)
    }
}

/// What clients say and get may be private: a log gets its length only.
impl fmt::Debug for Json {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Json({} bytes)", self.0.len())
    }
}

/// The params of a message: none where the value encodes as `null`, since a JSON-RPC message has an object or none.
pub(crate) fn params<T: Serialize>(value: T) -> Result<Option<Bytes>, serde_json::Error> {
    let bytes = serde_json::to_vec(&value)?;
    Ok((bytes != b"null").then(|| bytes.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_raw_value_is_passed_on_as_it_was_written() {
        let written = r#"{"b" : 1,  "a":1.50}"#;
        let raw: Box<RawValue> = serde_json::from_str(written).expect("JSON");
        assert_eq!(Json::from(raw.clone()).as_bytes(), written.as_bytes());
        assert_eq!(params(raw).expect("encodes").as_deref(), Some(written.as_bytes()));
    }

    #[test]
    fn nothing_is_no_params() {
        assert_eq!(params(()).expect("encodes"), None);
    }
}
