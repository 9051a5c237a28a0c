//! Media types in fields: what `Accept` admits, and whether `Content-Type` is JSON.
//!
//! Never ranks answers against each other: rejoin has one representation of each thing it says, and only asks whether it is admitted.

use super::{is_token, trim};

/// How closely a media range names a type. The closest decides (RFC 9110, section 12.5.1: "Media ranges can be overridden by more specific
/// media ranges or specific media types").
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Closeness {
    /// `*/*`.
    Any,
    /// `text/*`.
    Type,
    /// The type, with parameters that our answers do not have.
    Variant,
    /// The type.
    Exact,
}

/// Whether these `Accept` values admit `media`. Without a single range in them everything is admitted; a range that cannot be read
/// admits nothing.
pub(super) fn admits<'a>(values: impl Iterator<Item = &'a [u8]>, media: &str) -> bool {
    let mut listed = false;
    let mut closest: Option<(Closeness, bool)> = None;
    for range in values.flat_map(|value| Split::new(value, b',')).filter(|range| !range.is_empty()) {
        listed = true;
        let Some((closeness, admitted)) = judge(range, media) else { continue };
        closest = match closest {
            Some((other, before)) if other == closeness => Some((other, before || admitted)),
            Some((other, before)) if other > closeness => Some((other, before)),
            _ => Some((closeness, admitted)),
        };
    }
    closest.map_or(!listed, |(_, admitted)| admitted)
}

/// What one media range says of `media`: how closely it names it and whether it admits it. `None`: nothing.
fn judge(range: &[u8], media: &str) -> Option<(Closeness, bool)> {
    let mut parts = Split::new(range, b';');
    let mut closeness = closeness(parts.next()?, media)?;
    let mut variant = false;
    for parameter in parts {
        let (name, value) = parameter_of(parameter);
        if name.eq_ignore_ascii_case(b"q") {
            // A variant that is not wanted says nothing of the plain type.
            return (!(variant && is_zero(value))).then_some((closeness, !is_zero(value)));
        }
        // Clients put parameters into `Accept` and mean the type; "disregard" is allowed by the section quoted above. Ours are UTF-8.
        if !name.is_empty() && !is_utf8_charset(name, value) {
            variant = true;
            closeness = closeness.min(Closeness::Variant);
        }
    }
    Some((closeness, true))
}

fn closeness(range: &[u8], media: &str) -> Option<Closeness> {
    // Java's own client has been sending a lone `*` for decades.
    if range == b"*/*" || range == b"*" {
        return Some(Closeness::Any);
    }
    if range.eq_ignore_ascii_case(media.as_bytes()) {
        return Some(Closeness::Exact);
    }
    let (kind, _) = media.split_once('/')?;
    range.strip_suffix(b"/*").is_some_and(|range| range.eq_ignore_ascii_case(kind.as_bytes())).then_some(Closeness::Type)
}

/// A weight that excludes: RFC 9110, section 12.4.2: "a value of 0 means 'not acceptable'". Anything else, malformed ones too, does not.
fn is_zero(weight: &[u8]) -> bool {
    match weight.strip_prefix(b"0") {
        Some(b"") => true,
        Some([b'.', zeros @ ..]) => zeros.iter().all(|&digit| digit == b'0'),
        _ => false,
    }
}

/// Whether a `Content-Type` value is `application/json`, with well-formed parameters and no charset but UTF-8.
pub(super) fn is_json(value: &[u8]) -> bool {
    let mut parts = Split::new(value, b';');
    parts.next().is_some_and(|essence| essence.eq_ignore_ascii_case(b"application/json"))
        && parts.filter(|parameter| !parameter.is_empty()).all(|parameter| {
            let (name, value) = parameter_of(parameter);
            let well_formed = is_token(name) && (is_token(value) || unquoted(value).is_some());
            well_formed && (!name.eq_ignore_ascii_case(b"charset") || is_utf8_charset(name, value))
        })
}

fn is_utf8_charset(name: &[u8], value: &[u8]) -> bool {
    let value = unquoted(value).unwrap_or(value);
    name.eq_ignore_ascii_case(b"charset") && (value.eq_ignore_ascii_case(b"utf-8") || value.eq_ignore_ascii_case(b"utf8"))
}

/// A parameter's name and value; without an equals sign the value is empty.
fn parameter_of(parameter: &[u8]) -> (&[u8], &[u8]) {
    match parameter.iter().position(|&byte| byte == b'=') {
        Some(at) => (trim(&parameter[..at]), trim(&parameter[at + 1..])),
        None => (parameter, b""),
    }
}

/// What stands between the quotes of a quoted string, escapes as they are; `None` when it is none.
fn unquoted(value: &[u8]) -> Option<&[u8]> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    let mut escaped = false;
    for &byte in inner {
        match byte {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'"' => return None,
            _ => {}
        }
    }
    (!escaped).then_some(inner)
}

/// The parts of a value between separators that stand outside quoted strings, trimmed.
struct Split<'a> {
    rest: Option<&'a [u8]>,
    separator: u8,
}

impl<'a> Split<'a> {
    fn new(value: &'a [u8], separator: u8) -> Self {
        Self { rest: Some(value), separator }
    }
}

impl<'a> Iterator for Split<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let rest = self.rest.take()?;
        let (mut quoted, mut escaped) = (false, false);
        for (at, &byte) in rest.iter().enumerate() {
            match byte {
                _ if escaped => escaped = false,
                b'\\' if quoted => escaped = true,
                b'"' => quoted = !quoted,
                _ if byte == self.separator && !quoted => {
                    self.rest = Some(&rest[at + 1..]);
                    return Some(trim(&rest[..at]));
                }
                _ => {}
            }
        }
        Some(trim(rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(values: &[&str]) -> bool {
        admits(values.iter().map(|value| value.as_bytes()), "text/event-stream")
    }

    #[test]
    fn accept_admits_what_it_names() {
        for value in [
            "text/event-stream",
            "TEXT/Event-Stream",
            "application/json, text/event-stream",
            "application/json,text/event-stream",
            ", ,text/event-stream,",
            "*/*",
            "*",
            "text/*",
            "text/html, image/gif, *; q=.2, */*; q=.2",
            "text/event-stream;q=0.001",
            "text/event-stream ; q = 0.5",
            "text/event-stream;q=1.5",
            "text/event-stream;q=nonsense",
            "text/event-stream;charset=utf-8",
            "text/event-stream;charset=\"UTF-8\";q=0.5",
            "text/event-stream;version=2",
            "*/*;q=0, text/event-stream",
            "text/*;q=0, text/event-stream;q=0.1",
            "text/event-stream;q=0, text/event-stream",
            "text/event-stream;version=2;q=0, text/event-stream",
            "text/event-stream;version=2;q=0, */*",
            "a/b;x=\",\\\"text/event-stream;q=0,\", text/event-stream",
            "",
            " , ",
        ] {
            assert!(stream(&[value]), "{value}");
        }
        assert!(stream(&[]));
        assert!(stream(&["application/json", "text/event-stream"]));
    }

    #[test]
    fn accept_excludes_what_it_does_not_name() {
        for value in [
            "application/json",
            "text/html, application/*",
            "text/event-stream-2",
            "text/event",
            "text",
            "event-stream",
            "*/event-stream",
            "text/event-stream;q=0",
            "text/event-stream;Q=0.000",
            "text/event-stream;q=0.",
            "*/*;q=0",
            "text/event-stream;q=0, */*",
            "text/event-stream;q=0, text/*;q=1, */*;q=1",
            "text/event-stream;version=2, text/event-stream;q=0",
            "text/event-stream;charset=utf-8;q=0, */*",
            "text/*;q=0, */*;q=1",
            "a/b;x=\"text/event-stream,text/event-stream\"",
            "a/b;x=\"unterminated, text/event-stream",
        ] {
            assert!(!stream(&[value]), "{value}");
        }
        assert!(!stream(&["*/*", "text/event-stream;q=0"]));
    }

    #[test]
    fn json_is_told_by_type_and_charset() {
        for (value, json) in [
            ("application/json", true),
            ("Application/JSON ; Charset=UTF-8", true),
            ("application/json; charset=\"utf-8\"", true),
            ("application/json; charset=utf8; profile=\"a;b\"", true),
            ("application/json;", true),
            ("application/json; charset=iso-8859-1", false),
            ("application/json; charset=\"utf\\-8\"", false),
            ("application/json; charset=", false),
            ("application/json; charset", false),
            ("application/json; a=\"b\\\"", false),
            ("application/json; a=b c", false),
            ("application/json, text/plain", false),
            ("application/json; a=b, text/plain", false),
            ("application/jsonp", false),
            ("application/x-json", false),
            ("text/plain; application/json", false),
            ("text/plain", false),
            ("", false),
        ] {
            assert_eq!(is_json(value.as_bytes()), json, "{value}");
        }
    }
}
