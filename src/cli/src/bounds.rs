//! What values the options take: their bounds, and how they are read.
//!
//! Never says a rule of the library's again: where it has one, it is asked.

use std::ops::RangeInclusive;
use std::time::Duration;

use bytesize::ByteSize;
use clap::builder::RangedU64ValueParser;
use rejoin::Server;
use rejoin_proto::http::Names;

/// Sessions at most. Reason: each has two slots of 16 bytes, made at start, so that this is 320 MB before anyone came.
pub(crate) const MAX_SESSIONS: u64 = 10_000_000;

/// Connections at most. Reason: more than a process can have descriptors on any system as it is delivered.
pub(crate) const MAX_CONNECTIONS: u64 = 10_000_000;

/// Records of idempotency keys at most. Reason: each takes some 150 bytes once a key is used, so that this is 1.5 GB.
pub(crate) const MAX_IDEMPOTENCY_KEYS: u64 = 10_000_000;

/// Child processes at most. Reason: as many as Linux can number.
pub(crate) const MAX_CHILDREN: u64 = 1 << 22;

/// Events of a stream at most. Reason: more do not fit in the largest event log.
pub(crate) const MAX_STREAM_EVENTS: u64 = 1_000_000_000;

/// The shortest time. Reason: the kernel counts milliseconds, and a keep-alive of none would never rest.
const MIN_TIME: Duration = Duration::from_millis(1);

/// The longest time, ten years as humantime has them. Reason: no process lives longer, and sums of times stay far from overflow.
const MAX_TIME: Duration = Duration::from_secs(315_576_000);

/// The largest size, 1 TiB. Reason: no machine has as much to spare, and percentages of it stay far from overflow.
const MAX_SIZE: u64 = 1 << 40;

/// A count from one to `most`.
pub(crate) fn count<T: TryFrom<u64>>(most: u64) -> RangedU64ValueParser<T> {
    RangedU64ValueParser::new().range(1..=most)
}

/// A time that is not zero: a bound of nothing would refuse everything.
pub(crate) fn time(text: &str) -> Result<Duration, String> {
    time_within(text, MIN_TIME..=MAX_TIME)
}

/// A time, or zero for not at all.
pub(crate) fn time_or_none(text: &str) -> Result<Duration, String> {
    time_within(text, Duration::ZERO..=MAX_TIME)
}

fn time_within(text: &str, bounds: RangeInclusive<Duration>) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| error.to_string())?;
    if bounds.contains(&time) {
        return Ok(time);
    }
    let [least, most] = [bounds.start(), bounds.end()].map(|bound| humantime::format_duration(*bound));
    Err(format!("must be from {least} to {most}"))
}

/// A size that is not zero.
pub(crate) fn size(text: &str) -> Result<usize, String> {
    let size: ByteSize = text.parse()?;
    match usize::try_from(size.as_u64()) {
        Ok(bytes) if (1..=MAX_SIZE).contains(&size.as_u64()) => Ok(bytes),
        _ => Err(format!("must be from 1 to {MAX_SIZE} bytes")),
    }
}

/// A number of shards that the library takes.
pub(crate) fn shards(text: &str) -> Result<usize, String> {
    let shards = text.parse().map_err(|_| "must be a number".to_owned())?;
    Server::builder().shards(shards).check().map_err(|error| error.to_string())?;
    Ok(shards)
}

/// A path that the library takes.
pub(crate) fn path(text: &str) -> Result<String, String> {
    Server::builder().path(text).check().map_err(|error| error.to_string())?;
    Ok(text.to_owned())
}

/// A host that the kernel can compare.
pub(crate) fn host(text: &str) -> Result<String, String> {
    name(text, |entry| Names::new(None, entry, &[]))
}

/// An origin that the kernel can compare.
pub(crate) fn origin(text: &str) -> Result<String, String> {
    name(text, |entry| Names::new(None, &[], entry))
}

fn name<E: ToString>(text: &str, check: impl Fn(&[String]) -> Result<Names, E>) -> Result<String, String> {
    let entry = [text.to_owned()];
    check(&entry).map_err(|error| error.to_string())?;
    let [entry] = entry;
    Ok(entry)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_taken_up_to_their_bounds_and_no_further() {
        assert_eq!(time("1ms"), Ok(MIN_TIME));
        assert_eq!(time("10years"), Ok(MAX_TIME));
        assert_eq!(time_or_none("0s"), Ok(Duration::ZERO));
        for wrong in ["0s", "999us", "315576000s 1ms", "584542046090y", "", "3", "soon", "-1s", "1e3s"] {
            assert!(time(wrong).is_err(), "{wrong:?}");
        }
        assert!(time_or_none("315576001s").is_err());
        assert!(time("0s").expect_err("too short").contains("from 1ms to 10years"));
    }

    #[test]
    fn sizes_are_taken_up_to_their_bounds_and_no_further() {
        assert_eq!(size("1"), Ok(1));
        assert_eq!(size("1TiB"), Ok(1 << 40));
        for wrong in ["0", "1099511627777", "17EiB", "99999999999999999999EiB", "", "lots", "-1", "64XB"] {
            assert!(size(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn shards_and_paths_are_what_the_library_takes() {
        assert_eq!((shards("1"), shards("256")), (Ok(1), Ok(256)));
        for wrong in ["0", "257", "-1", "", "two", "18446744073709551616"] {
            assert!(shards(wrong).is_err(), "{wrong:?}");
        }
        assert_eq!(path("/"), Ok("/".into()));
        for wrong in ["", "mcp", "/a b", "/a?b", "/a#b", "/\u{e9}"] {
            assert!(path(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn names_are_what_the_kernel_can_compare() {
        for right in ["example.org", "example.org:8080", "::1", "[::1]:80", "*"] {
            assert_eq!(host(right), Ok(right.into()));
        }
        for right in ["https://example.org", "http://example.org:8080", "null", "*"] {
            assert_eq!(origin(right), Ok(right.into()));
        }
        assert!(host("a b").expect_err("no host").contains("a b"));
        assert!(origin("example.org").is_err());
    }
}
