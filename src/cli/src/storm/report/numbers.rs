//! Numbers as people read them.
//!
//! Never used for what a program reads.

use bytesize::ByteSize;

pub(super) use crate::shown::{on_a_line, printable};

/// Microseconds with three digits that matter: `87 µs`, `1.23 ms`, `45.6 s`.
pub(super) fn latency(us: u64) -> String {
    let us = us as f64;
    if us < 999.5 {
        format!("{us} µs")
    } else if us < 999_500.0 {
        format!("{} ms", three_digits(us / 1000.0))
    } else {
        format!("{} s", three_digits(us / 1_000_000.0))
    }
}

fn three_digits(number: f64) -> String {
    if number < 9.995 {
        format!("{number:.2}")
    } else if number < 99.95 {
        format!("{number:.1}")
    } else {
        format!("{number:.0}")
    }
}

/// A count with its thousands apart: `1 234 567`.
pub(super) fn count(number: u64) -> String {
    let digits = number.to_string();
    let mut apart = String::with_capacity(digits.len() * 4 / 3);
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            apart.push(' ');
        }
        apart.push(digit);
    }
    apart
}

/// A number that need not be whole, without digits that say nothing.
pub(super) fn number(number: f64) -> String {
    if number.fract() == 0.0 && number.abs() < 1e15 {
        let whole = count(number.abs() as u64);
        if number < 0.0 { format!("-{whole}") } else { whole }
    } else if number.abs() < 1000.0 {
        three_digits(number)
    } else {
        count(number.max(0.0).round() as u64)
    }
}

/// So many in a second.
pub(super) fn rate(per_second: f64) -> String {
    format!("{}/s", if per_second < 99.95 { three_digits(per_second) } else { count(per_second.round() as u64) })
}

/// Bytes: `1.2 MiB`.
pub(super) fn bytes(bytes: u64) -> String {
    ByteSize::b(bytes).to_string()
}

/// So many bytes in a second.
pub(super) fn bytes_rate(per_second: f64) -> String {
    format!("{}/s", bytes(per_second as u64))
}

/// How much of it there is now for each one before: `1.25×`.
pub(super) fn ratio(before: f64, after: f64) -> Option<f64> {
    (before > 0.0).then(|| after / before)
}

/// Milliseconds since the beginning: `12.3 s`.
pub(super) fn moment(ms: u64) -> String {
    format!("{:.1} s", ms as f64 / 1000.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latencies_have_three_digits_that_matter() {
        let written: Vec<_> =
            [0, 87, 999, 1000, 1234, 9_996, 45_670, 999_499, 999_500, 61_000_000].into_iter().map(latency).collect();
        assert_eq!(
            written,
            ["0 µs", "87 µs", "999 µs", "1.00 ms", "1.23 ms", "10.0 ms", "45.7 ms", "999 ms", "1.00 s", "61.0 s"]
        );
    }

    #[test]
    fn counts_have_their_thousands_apart() {
        let written: Vec<_> = [0, 999, 1000, 1_234_567].into_iter().map(count).collect();
        assert_eq!(written, ["0", "999", "1 000", "1 234 567"]);
        let written: Vec<_> = [0.5, 1000.0, 1234.5, -3.0, 99.96].into_iter().map(number).collect();
        assert_eq!(written, ["0.50", "1 000", "1 235", "-3", "100"]);
    }
}
