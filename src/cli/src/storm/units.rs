//! Durations, sizes and shares as people write them in a script: `1m 30s`, `64KiB`, `0.3` or `"30%"`.
//!
//! Never knows what they are for.

use std::fmt;
use std::time::Duration;

use bytesize::ByteSize;
use serde::de::{self, Deserialize, Deserializer, Visitor};

/// A length of time: `"1m 30s"`, `"200ms"`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Time(pub(crate) Duration);

/// A number of bytes: `"64KiB"`, `"1MB"`, or a bare number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Size(pub(crate) usize);

/// A part of a whole: `0.3` or `"30%"`, from nothing to all.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Share(f64);

impl Share {
    /// All of it.
    pub(crate) const ALL: Self = Self(1.0);

    /// As a number from 0 to 1.
    pub(crate) fn get(self) -> f64 {
        self.0
    }

    fn new(part: f64) -> Result<Self, String> {
        if (0.0..=1.0).contains(&part) {
            Ok(Self(part))
        } else {
            Err("a share is from 0 to 1, or from \"0%\" to \"100%\"".into())
        }
    }

    fn parse(text: &str) -> Result<Self, String> {
        let (number, whole) = match text.strip_suffix('%') {
            Some(percent) => (percent.trim_end(), 100.0),
            None => (text, 1.0),
        };
        let part: f64 = number.parse().map_err(|_| format!("{text:?} is no share: write 0.3 or \"30%\""))?;
        Self::new(part / whole)
    }
}

impl<'de> Deserialize<'de> for Time {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        humantime::parse_duration(&text).map(Self).map_err(|error| de::Error::custom(format!("{text:?} is no time: {error}")))
    }
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Sizes;
        impl Visitor<'_> for Sizes {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as \"64KiB\"")
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                usize::try_from(bytes).map(Size).map_err(|_| E::custom("a size is not negative"))
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                usize::try_from(bytes).map(Size).map_err(|_| E::custom("more than this machine can address"))
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                let size: ByteSize = text.parse().map_err(|error| E::custom(format!("{text:?} is no size: {error}")))?;
                self.visit_u64(size.as_u64())
            }
        }
        deserializer.deserialize_any(Sizes)
    }
}

impl<'de> Deserialize<'de> for Share {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Shares;
        impl Visitor<'_> for Shares {
            type Value = Share;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a share such as 0.3 or \"30%\"")
            }

            fn visit_f64<E: de::Error>(self, part: f64) -> Result<Share, E> {
                Share::new(part).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, part: i64) -> Result<Share, E> {
                // A share of 0 or 1; any larger integer is refused, and so exact.
                Share::new(part as f64).map_err(E::custom)
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Share, E> {
                Share::parse(text).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(Shares)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct One<T> {
        value: T,
    }

    fn read<T: de::DeserializeOwned>(value: &str) -> Result<T, String> {
        toml::from_str::<One<T>>(&format!("value = {value}")).map(|one| one.value).map_err(|error| error.to_string())
    }

    #[test]
    fn what_people_write_is_read() {
        assert_eq!(read("\"1m 30s\""), Ok(Time(Duration::from_secs(90))));
        assert_eq!(read("\"64KiB\""), Ok(Size(65_536)));
        assert_eq!(read("512"), Ok(Size(512)));
        assert_eq!(read("0.3"), Ok(Share(0.3)));
        assert_eq!(read("\"30%\""), Ok(Share(0.3)));
        assert_eq!(read("1"), Ok(Share::ALL));
    }

    #[test]
    fn nonsense_is_refused_with_what_was_meant() {
        for wrong in ["1.01", "-0.1", "\"101%\"", "2", "\"nan%\"", "\"half\""] {
            assert!(read::<Share>(wrong).is_err_and(|error| error.contains("share")), "{wrong}");
        }
        assert!(read::<Time>("\"soon\"").is_err_and(|error| error.contains("no time")));
        assert!(read::<Time>("5").is_err());
        assert!(read::<Size>("\"lots\"").is_err_and(|error| error.contains("no size")));
        assert!(read::<Size>("-1").is_err());
    }
}
