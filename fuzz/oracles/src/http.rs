//! HTTP/1 requests: any fragmentation gives what the whole gives, which is what a plain reading of the grammar gives; what that
//! refuses is refused, what it admits is served to the byte, and no byte is taken that is not there.

mod reading;

use arbitrary::{Arbitrary, Unstructured};
use rejoin_proto::http::{BodyReader, Framing, Head, HeadScanner, Method, Names, Version, parse_head};
use rejoin_proto::limits::Limits;
use rejoin_proto::refusal::Refusal;

use crate::{Edit, fragments};
use reading::{Request, Rest};

/// Small, so that short inputs cross each bound.
fn limits() -> Limits {
    Limits { head_bytes: 256, headers: 6, target_bytes: 40, body_bytes: 64, ..Limits::default() }
}

/// The first byte says how the input is cut, the second what the rest is: a connection's bytes, a body's, or a recipe for a connection
/// that is nearly right.
pub fn check(data: &[u8]) {
    let &[cut, kind, ref rest @ ..] = data else { return };
    match kind % 4 {
        0 => check_connection(rest, cut),
        1 => check_body(Framing::Chunked, rest, cut),
        2 => check_body(Framing::Length(u64::from(kind) / 4), rest, cut),
        _ => {
            if let Ok(recipe) = Recipe::arbitrary_take_rest(Unstructured::new(rest)) {
                check_connection(&recipe.cook(), cut);
            }
        }
    }
}

/// What became of a connection's bytes.
#[derive(Debug)]
struct Outcome {
    requests: Vec<(Head, Vec<u8>)>,
    /// Whether bytes of a request that is not whole are left over.
    waiting: bool,
    refusal: Option<Refusal>,
}

fn check_connection(bytes: &[u8], cut: u8) {
    let whole = serve([bytes]);
    let in_fragments = serve(fragments(bytes, cut));
    let byte_by_byte = serve(bytes.chunks(1));
    for other in [in_fragments, byte_by_byte] {
        assert_eq!((other.refusal, other.waiting), (whole.refusal, whole.waiting), "{}", bytes.escape_ascii());
        // Debug names everything of a head but its values, which are compared with the reading below.
        assert_eq!(format!("{:?}", other.requests), format!("{:?}", whole.requests), "{}", bytes.escape_ascii());
    }

    let (requests, rest) = reading::read(bytes, &limits());
    match rest {
        Rest::Nothing => assert_eq!((whole.refusal, whole.waiting), (None, false), "{}", bytes.escape_ascii()),
        Rest::Incomplete => assert!(whole.refusal.is_some() || whole.waiting, "{}", bytes.escape_ascii()),
        Rest::Wrong => assert!(whole.refusal.is_some(), "not refused: {}", bytes.escape_ascii()),
    }
    assert_eq!(whole.requests.len(), requests.len(), "{}", bytes.escape_ascii());
    for ((head, body), request) in whole.requests.iter().zip(&requests) {
        assert_eq!(body, &request.body, "{}", bytes.escape_ascii());
        check_head(head, request);
    }
    // The same reading without a scanner's memory.
    let first = parse_head(bytes, &limits());
    assert!(matches!(first, Ok(Some((_, consumed))) if consumed <= bytes.len()) || whole.requests.is_empty());
}

/// Serves a connection as its machine does: head, body, next head.
fn serve<'b>(arrivals: impl IntoIterator<Item = &'b [u8]>) -> Outcome {
    let mut outcome = Outcome { requests: Vec::new(), waiting: false, refusal: None };
    let (mut scanner, mut unread, mut open) = (HeadScanner::new(), Vec::new(), None);
    for arrived in arrivals {
        unread.extend_from_slice(arrived);
        if let Err(refusal) = progress(&mut scanner, &mut unread, &mut open, &mut outcome.requests) {
            outcome.refusal = Some(refusal);
            return outcome;
        }
    }
    outcome.waiting = !unread.is_empty() || open.is_some();
    outcome
}

/// As far as the bytes that are there lead.
fn progress(
    scanner: &mut HeadScanner,
    unread: &mut Vec<u8>,
    open: &mut Option<(Head, BodyReader, Vec<u8>)>,
    requests: &mut Vec<(Head, Vec<u8>)>,
) -> Result<(), Refusal> {
    loop {
        let (head, mut reader, mut body) = match open.take() {
            Some(open) => open,
            None => {
                let Some((head, consumed)) = scanner.parse(unread, &limits())? else { return Ok(()) };
                assert!((1..=unread.len()).contains(&consumed), "a head of {consumed} bytes in {}", unread.len());
                unread.drain(..consumed);
                let reader = BodyReader::new(head.framing(), &limits())?;
                (head, reader, Vec::new())
            }
        };
        let progress = reader.read(unread, &mut body)?;
        assert!(progress.consumed <= unread.len() && body.len() <= limits().body_bytes);
        assert!(progress.done || progress.consumed == unread.len(), "an unfinished body left bytes behind");
        unread.drain(..progress.consumed);
        if !progress.done {
            *open = Some((head, reader, body));
            return Ok(());
        }
        requests.push((head, body));
    }
}

/// A head says what was sent.
fn check_head(head: &Head, request: &Request) {
    let method = match request.method.as_str() {
        "GET" => Method::Get,
        "POST" => Method::Post,
        "DELETE" => Method::Delete,
        "OPTIONS" => Method::Options,
        "HEAD" => Method::Head,
        _ => Method::Other,
    };
    assert_eq!((head.method(), head.target(), head.version()), (method, request.target.as_str(), request.version));
    assert_eq!(head.framing(), request.framing);
    if request.target.starts_with('/') && request.method != "CONNECT" {
        assert_eq!((Some(head.path()), head.authority()), (request.target.split('?').next(), None));
    }
    let values = |wanted: &str| {
        let same = request.fields.iter().filter(|(name, _)| name.eq_ignore_ascii_case(wanted));
        same.map(|(_, value)| value.as_slice()).collect::<Vec<_>>()
    };
    for (name, _) in &request.fields {
        assert_eq!(head.values(name).collect::<Vec<_>>(), values(name));
        match values(name)[..] {
            [value] => assert_eq!(head.single(&name.to_ascii_uppercase()), Ok(Some(value))),
            _ => assert!(head.single(name).is_err()),
        }
    }
    assert_eq!(head.single("x-never-sent"), Ok(None));

    let connection = values("connection").join(&b","[..]).to_ascii_lowercase();
    let options: Vec<&[u8]> = connection.split(|&byte| byte == b',').map(<[u8]>::trim_ascii).collect();
    let kept = !options.contains(&&b"close"[..])
        && request.method != "CONNECT"
        && (request.version == Version::Http11 || options.contains(&&b"keep-alive"[..]));
    assert_eq!(head.keep_alive(), kept, "{connection:?}");
    // Total, whatever the values.
    let _ = (head.accepts("text/event-stream"), head.content_is_json(), head.expects_continue());
    let _ = (Names::default().check(head), Names::default().origin_of(head));
}

/// A body alone, without the luck of a head before it.
fn check_body(framing: Framing, bytes: &[u8], cut: u8) {
    let whole = decode(framing, [bytes]);
    for other in [decode(framing, fragments(bytes, cut)), decode(framing, bytes.chunks(1))] {
        assert_eq!(other, whole, "{}", bytes.escape_ascii());
    }
    match reading::read_body(framing, bytes, &limits()) {
        Ok((body, behind)) => assert_eq!(whole, Ok(Some((body, bytes.len() - behind.len()))), "{}", bytes.escape_ascii()),
        Err(Rest::Wrong) => assert!(whole.is_err(), "not refused: {}", bytes.escape_ascii()),
        Err(_) => assert!(!matches!(whole, Ok(Some(_))), "{}", bytes.escape_ascii()),
    }
}

/// The body and how many bytes it took; `None` when it is not whole.
fn decode<'b>(framing: Framing, arrivals: impl IntoIterator<Item = &'b [u8]>) -> Result<Option<(Vec<u8>, usize)>, Refusal> {
    let mut reader = BodyReader::new(framing, &limits())?;
    let (mut body, mut consumed) = (Vec::new(), 0);
    // A body that takes no bytes is whole before any arrive.
    let mut done = reader.read(b"", &mut body)?.done;
    for arrived in arrivals {
        let progress = reader.read(arrived, &mut body)?;
        assert!(progress.consumed <= arrived.len());
        assert!(progress.done || progress.consumed == arrived.len(), "an unfinished body left bytes behind");
        assert!(!done || progress.consumed == 0, "bytes of the next request were taken");
        consumed += progress.consumed;
        done = progress.done;
    }
    Ok(done.then_some((body, consumed)))
}

const LINES: &[&str] = &[
    "POST / HTTP/1.1",
    "GET /mcp?a HTTP/1.1",
    "DELETE http://localhost/mcp HTTP/1.0",
    "OPTIONS * HTTP/1.1",
    "CONNECT a:443 HTTP/1.1",
    "GET /# HTTP/1.1",
    "GET  / HTTP/1.1",
    "GET / HTTP/1.2",
];
const NAMES: &[&str] =
    &["Host", "Content-Length", "Transfer-Encoding", "Connection", "Content-length", "X", "Content-Length ", " X", "Accept"];
const VALUES: &[&str] = &[
    "2",
    "chunked",
    "close",
    "keep-alive",
    "+2",
    "2, 2",
    "0",
    "",
    "gzip, chunked",
    "65",
    "18446744073709551618",
    "a\r\n b",
    "a\nX: b",
    "02",
];
const BODIES: &[&str] = &[
    "",
    "{}",
    "2\r\n{}\r\n0\r\n\r\n",
    "2;a=\"b\"\r\n{}\r\n00\r\nX: y\r\n\r\n",
    "1\r\n{}\r\n0\r\n\r\n",
    "41\r\n",
    "0\r\n\r\nGET / HTTP/1.1\r\n\r\n",
];

/// Indexes into the lists above.
#[derive(Arbitrary, Debug)]
struct Parts {
    line: u8,
    fields: Vec<(u8, u8)>,
    body: u8,
}

/// A connection put together from parts that parsers disagree on, then changed a little.
#[derive(Arbitrary, Debug)]
struct Recipe {
    requests: Vec<Parts>,
    edits: Vec<Edit>,
}

impl Recipe {
    fn cook(&self) -> Vec<u8> {
        let pick = |list: &[&'static str], index: u8| list[usize::from(index) % list.len()];
        let mut text = String::new();
        for parts in &self.requests {
            text += &format!("{}\r\n", pick(LINES, parts.line));
            for &(name, value) in &parts.fields {
                text += &format!("{}: {}\r\n", pick(NAMES, name), pick(VALUES, value));
            }
            text += &format!("\r\n{}", pick(BODIES, parts.body));
        }
        let mut bytes = text.into_bytes();
        // Few: each moves the input further from one that is read to its end.
        for edit in self.edits.iter().take(3) {
            edit.apply(&mut bytes);
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_reading_finds_whole_requests() {
        let bytes =
            b"\r\nGET / HTTP/1.1\r\n\r\nPOST /a HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n1;a\r\nx\r\n0\r\nB: c\r\n\r\nGET";
        let (requests, rest) = reading::read(bytes, &limits());
        let read: Vec<_> = requests.iter().map(|request| (request.target.as_str(), request.body.as_slice())).collect();
        assert_eq!((&read[..], rest), (&[("/", &b""[..]), ("/a", b"x")][..], Rest::Incomplete));
    }
}
