//! A second reading of HTTP/1 requests: the grammar of RFC 9112 applied to whole lines, with nothing repaired.
//!
//! Needs everything at once and copies freely. It cannot tell what is wrong before a head or a line has ended, so it says `Incomplete`
//! there, where the kernel may refuse already.

use rejoin_proto::http::{Framing, Version};
use rejoin_proto::limits::Limits;

/// Empty lines that may precede a request.
const EMPTY_LINES: usize = 4;

/// A request as it was sent.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) target: String,
    pub(super) version: Version,
    /// Names and values in order.
    pub(super) fields: Vec<(String, Vec<u8>)>,
    pub(super) framing: Framing,
    pub(super) body: Vec<u8>,
}

/// What stands behind the whole requests of a connection, or behind a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Rest {
    /// No byte.
    Nothing,
    /// The beginning of something, right so far or not.
    Incomplete,
    /// Something that must be refused.
    Wrong,
}

/// All whole requests at the front of `bytes`, and what is behind them.
pub(super) fn read(bytes: &[u8], limits: &Limits) -> (Vec<Request>, Rest) {
    let mut requests = Vec::new();
    let mut rest = bytes;
    while !rest.is_empty() {
        let (mut request, behind) = match read_head(rest, limits) {
            Ok(read) => read,
            Err(end) => return (requests, end),
        };
        (request.body, rest) = match read_body(request.framing, behind, limits) {
            Ok(read) => read,
            Err(end) => return (requests, end),
        };
        requests.push(request);
    }
    (requests, Rest::Nothing)
}

fn read_head<'b>(bytes: &'b [u8], limits: &Limits) -> Result<(Request, &'b [u8]), Rest> {
    let mut start = 0;
    while bytes[start..].starts_with(b"\r\n") {
        start += 2;
    }
    if start / 2 > EMPTY_LINES {
        return Err(Rest::Wrong);
    }
    let Some(length) = find(&bytes[start..], b"\r\n\r\n") else {
        return Err(if bytes.len() >= limits.head_bytes { Rest::Wrong } else { Rest::Incomplete });
    };
    let end = start + length + 4;
    if end > limits.head_bytes {
        return Err(Rest::Wrong);
    }
    let request = parse_head(&bytes[start..end - 4], limits).ok_or(Rest::Wrong)?;
    Ok((request, &bytes[end..]))
}

/// A head without its last two CRLFs; `None` when there is anything wrong with it.
fn parse_head(head: &[u8], limits: &Limits) -> Option<Request> {
    let mut lines = split(head, b"\r\n").into_iter();
    let request_line = std::str::from_utf8(lines.next()?).ok()?;
    let &[method, target, version] = &request_line.split(' ').collect::<Vec<_>>()[..] else {
        return None;
    };
    let version = match version {
        "HTTP/1.0" => Version::Http10,
        "HTTP/1.1" => Version::Http11,
        _ => return None,
    };
    let fields = lines.map(parse_field).collect::<Option<Vec<_>>>()?;
    if !is_token(method.as_bytes()) || !is_target(method, target) {
        return None;
    }
    if fields.len() > limits.headers || target.len() > limits.target_bytes {
        return None;
    }
    let framing = framing(&fields, version)?;
    Some(Request { method: method.to_owned(), target: target.to_owned(), version, fields, framing, body: Vec::new() })
}

fn parse_field(line: &[u8]) -> Option<(String, Vec<u8>)> {
    let colon = line.iter().position(|&byte| byte == b':')?;
    let (name, value) = (&line[..colon], &line[colon + 1..]);
    if !is_token(name) || !value.iter().all(|&byte| is_value_byte(byte)) {
        return None;
    }
    let text = |byte: &u8| !matches!(byte, b' ' | b'\t');
    let value = match (value.iter().position(text), value.iter().rposition(text)) {
        (Some(first), Some(last)) => &value[first..=last],
        _ => b"",
    };
    Some((String::from_utf8_lossy(name).into_owned(), value.to_vec()))
}

/// Origin-form, absolute-form, or what its method alone may have.
fn is_target(method: &str, target: &str) -> bool {
    if !target.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#') {
        return false;
    }
    let lower = target.to_ascii_lowercase();
    let absolute = ["http://", "https://"].iter().filter_map(|scheme| lower.strip_prefix(scheme)).next();
    match (method, target) {
        ("CONNECT", _) => !target.is_empty(),
        ("OPTIONS", "*") => true,
        _ => target.starts_with('/') || absolute.is_some_and(|rest| !rest.is_empty() && !rest.starts_with(['/', '?'])),
    }
}

/// RFC 9112, section 6.3, where each doubt is a refusal.
fn framing(fields: &[(String, Vec<u8>)], version: Version) -> Option<Framing> {
    let named = |wanted: &str| {
        fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted)).map(|(_, value)| value).collect::<Vec<_>>()
    };
    match (&named("content-length")[..], &named("transfer-encoding")[..]) {
        ([], []) => Some(Framing::None),
        ([length], []) => {
            let digits = length.iter().all(u8::is_ascii_digit);
            let length = std::str::from_utf8(length).ok()?.parse().ok()?;
            digits.then_some(Framing::Length(length))
        }
        ([], [coding]) if version == Version::Http11 && coding.eq_ignore_ascii_case(b"chunked") => Some(Framing::Chunked),
        _ => None,
    }
}

/// A body and what is behind it.
pub(super) fn read_body<'b>(framing: Framing, bytes: &'b [u8], limits: &Limits) -> Result<(Vec<u8>, &'b [u8]), Rest> {
    match framing {
        Framing::None => Ok((Vec::new(), bytes)),
        Framing::Length(length) if length > limits.body_bytes as u64 => Err(Rest::Wrong),
        Framing::Length(length) => {
            let (body, behind) = bytes.split_at_checked(length as usize).ok_or(Rest::Incomplete)?;
            Ok((body.to_vec(), behind))
        }
        Framing::Chunked => read_chunks(bytes, limits),
    }
}

fn read_chunks<'b>(bytes: &'b [u8], limits: &Limits) -> Result<(Vec<u8>, &'b [u8]), Rest> {
    let (mut body, mut rest) = (Vec::new(), bytes);
    // What extensions and trailers take together.
    let mut extra = 0;
    loop {
        let line;
        (line, rest) = read_line(rest)?;
        let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
        let (size, extension) = line.split_at(digits);
        extra += extension.len();
        let size =
            std::str::from_utf8(size).ok().filter(|size| size.len() <= 16).and_then(|size| u64::from_str_radix(size, 16).ok());
        let size =
            size.filter(|size| size.saturating_add(body.len() as u64) <= limits.body_bytes as u64).ok_or(Rest::Wrong)? as usize;
        if !are_extensions(extension) || extra > limits.head_bytes {
            return Err(Rest::Wrong);
        }
        if size == 0 {
            break;
        }
        let (data, behind) = rest.split_at_checked(size).ok_or(Rest::Incomplete)?;
        body.extend_from_slice(data);
        rest = match behind {
            [b'\r', b'\n', behind @ ..] => behind,
            [] | [b'\r'] => return Err(Rest::Incomplete),
            _ => return Err(Rest::Wrong),
        };
    }
    loop {
        let line;
        (line, rest) = read_line(rest)?;
        if line.is_empty() {
            return Ok((body, rest));
        }
        extra += line.len() + 2;
        if parse_field(line).is_none() || extra > limits.head_bytes {
            return Err(Rest::Wrong);
        }
    }
}

/// A line without its CRLF, and what is behind.
fn read_line(bytes: &[u8]) -> Result<(&[u8], &[u8]), Rest> {
    let end = find(bytes, b"\r\n").ok_or(Rest::Incomplete)?;
    Ok((&bytes[..end], &bytes[end + 2..]))
}

/// RFC 9112, section 7.1.1: `*( BWS ";" BWS chunk-ext-name [ BWS "=" BWS chunk-ext-val ] )`, to the end of the line.
fn are_extensions(mut rest: &[u8]) -> bool {
    while !rest.is_empty() {
        let Some(after) = skip_space(rest).strip_prefix(b";") else { return false };
        let Some(after) = skip_token(skip_space(after)) else { return false };
        rest = after;
        if let Some(value) = skip_space(after).strip_prefix(b"=") {
            let value = skip_space(value);
            let Some(after) = skip_token(value).or_else(|| skip_quoted(value)) else { return false };
            rest = after;
        }
    }
    true
}

fn skip_space(bytes: &[u8]) -> &[u8] {
    &bytes[bytes.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count()..]
}

fn skip_token(bytes: &[u8]) -> Option<&[u8]> {
    let length = bytes.iter().take_while(|byte| is_token(&[**byte])).count();
    (length > 0).then(|| &bytes[length..])
}

fn skip_quoted(bytes: &[u8]) -> Option<&[u8]> {
    let mut rest = bytes.strip_prefix(b"\"")?;
    loop {
        rest = match rest {
            [b'"', after @ ..] => return Some(after),
            [b'\\', escaped, after @ ..] if is_value_byte(*escaped) => after,
            [b'\\', ..] => return None,
            [plain, after @ ..] if is_value_byte(*plain) => after,
            _ => return None,
        }
    }
}

fn is_token(bytes: &[u8]) -> bool {
    !bytes.is_empty() && bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte))
}

/// Tab, visible ASCII and space, and everything above ASCII.
fn is_value_byte(byte: u8) -> bool {
    matches!(byte, b'\t' | b' '..=b'~' | 0x80..)
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn split<'b>(mut bytes: &'b [u8], separator: &[u8]) -> Vec<&'b [u8]> {
    let mut parts = Vec::new();
    while let Some(at) = find(bytes, separator) {
        parts.push(&bytes[..at]);
        bytes = &bytes[at + separator.len()..];
    }
    parts.push(bytes);
    parts
}
