//! Request shapes that parsers are known to disagree on, each with what happens to it here; and what must hold for any bytes.

use proptest::prelude::*;

use super::{BodyReader, Framing, Head, HeadScanner, Names, parse_head};
use crate::limits::Limits;
use crate::refusal::Refusal;

/// What became of the bytes of a connection: the targets and bodies of whole requests in order, then what ended it.
#[derive(Debug, PartialEq)]
struct Outcome {
    requests: Vec<(String, Vec<u8>)>,
    end: End,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    /// Nothing is left over.
    Between,
    /// A request is not whole yet.
    Waiting,
    Refused(u16),
}

/// Serves a connection as its machine will: head, names, body, next head; `piece` bytes arrive at a time.
fn serve(bytes: &[u8], piece: usize, limits: &Limits) -> Outcome {
    let mut requests = Vec::new();
    let end = serve_until(bytes, piece, limits, &mut requests).unwrap_or_else(|refusal| End::Refused(refusal.shape().status));
    Outcome { requests, end }
}

fn serve_until(bytes: &[u8], piece: usize, limits: &Limits, requests: &mut Vec<(String, Vec<u8>)>) -> Result<End, Refusal> {
    let mut scanner = HeadScanner::new();
    let mut unread = Vec::new();
    let mut request: Option<(Head, BodyReader, Vec<u8>)> = None;
    for arrived in bytes.chunks(piece) {
        unread.extend_from_slice(arrived);
        loop {
            if request.is_none() {
                let Some((head, consumed)) = scanner.parse(&unread, limits)? else { break };
                Names::default().check(&head)?;
                unread.drain(..consumed);
                request = Some((head.clone(), BodyReader::new(head.framing(), limits)?, Vec::new()));
            }
            let Some((head, reader, body)) = &mut request else { break };
            let progress = reader.read(&unread, body)?;
            unread.drain(..progress.consumed);
            if !progress.done {
                break;
            }
            requests.push((head.target().to_owned(), std::mem::take(body)));
            request = None;
        }
    }
    Ok(if unread.is_empty() && request.is_none() { End::Between } else { End::Waiting })
}

const OK: End = End::Between;
const BAD: End = End::Refused(400);

/// Shape, how many requests come whole out of it, and its end.
const SHAPES: &[(&str, usize, End)] = &[
    // Plain.
    ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1, OK),
    ("GET / HTTP/1.0\r\n\r\n", 1, OK),
    ("GET / HTTP/1.1\r\nhost:localhost\r\n\r\n", 1, OK),
    ("GET / HTTP/1.1\r\nHost: \t localhost \t \r\n\r\n", 1, OK),
    ("M-SEARCH / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1, OK),
    ("GET /a?b=|{}\"^`\\<> HTTP/1.1\r\nHost: localhost\r\n\r\n", 1, OK),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX: \u{f6}\u{20ac}\r\n\r\n", 1, OK),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX:\r\nY: \r\n\r\n", 1, OK),
    ("GET / HTTP/1.1\r\nHost: localhost\r\n!#$%&'*+-.^_`|~: x\r\n\r\n", 1, OK),
    ("GET http://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 1, OK),
    ("OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n", 1, OK),
    ("\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 1, OK),
    ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\nGET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 2, OK),
    ("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n\r\nGET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 2, OK),
    ("GET / HTTP/1.1\r\nHost: localhost\r\n", 0, End::Waiting),
    ("", 0, OK),
    // Request lines.
    ("GET /\r\n\r\n", 0, BAD),
    ("GET\r\n\r\n", 0, BAD),
    ("GET / HTTP/0.9\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.2\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/2.0\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/11.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.01\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1,1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / http/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTPS/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / ICE/1.0\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1 \r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1 x\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET  / HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET /  HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET\t/\tHTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET /a b HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET /a\tb HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    (" GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("G\0T / HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("G(T / HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("G\u{f6}T / HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET mcp HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET localhost:80 HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET * HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET ?a HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET ftp://localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET http:///a HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET http://a@localhost/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET http://evil.com/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, End::Refused(403)),
    ("GET /#a HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET /\u{f6} HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET /\x7f HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 0, BAD),
    ("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", 0, BAD),
    ("\x16\x03\x01\x02\0\x01", 0, BAD),
    ("{\"jsonrpc\":\"2.0\"}\r\n\r\n", 0, BAD),
    // Line ends.
    ("\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("\rGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("\r\n\r\n\r\n\r\n\r\n\r\n\r\n\r\nGET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\nHost: localhost\n\n", 0, BAD),
    ("GET / HTTP/1.1\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\n\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\rX: y\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\n\rX: y\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\rHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX: a\nTransfer-Encoding: chunked\r\n\r\n", 0, BAD),
    // Fields.
    ("GET / HTTP/1.1\r\nHost : localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost\t: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\n Host: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\n\tX: y\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\n \r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n b\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n\tb\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX: a\r\n \r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nno colon\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\n: x\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX(Y): z\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\n\"X\": z\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX\u{f6}: z\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX: \0\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX: a\x0bb\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX: \x1b[31m\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX: \x7f\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nX\0: y\r\n\r\n", 0, BAD),
    // Host.
    ("GET / HTTP/1.1\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost:\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n\r\n", 0, BAD),
    ("GET http://localhost/ HTTP/1.1\r\n\r\n", 0, BAD),
    ("GET / HTTP/1.1\r\nHost: evil.com\r\n\r\n", 0, End::Refused(403)),
    // Lengths.
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", 1, OK),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 1, OK),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 002 \t\r\n\r\n{}", 1, OK),
    ("POST / HTTP/1.0\r\nContent-Length: 2\r\n\r\n{}", 1, OK),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 2, OK),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{", 0, End::Waiting),
    ("POST / HTTP/1.1\r\nHost: localhost\r\n\r\n{}\r\n\r\n", 1, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\n{}\r\n\r\n", 1, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 2\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nContent-Length: 3\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2, 2\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2,\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length:\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: +2\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -2\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: -0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0x2\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2.0\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1e1\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1 2\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: \"2\"\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: \u{662}\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18446744073709551616\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999999999999999\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 18446744073709551615\r\n\r\n", 0, End::Refused(413)),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n", 0, End::Refused(413)),
    // Transfer codings.
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 1, OK),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTRANSFER-ENCODING: Chunked\r\n\r\n0\r\n\r\n", 1, OK),
    ("GET / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\r\n\r\n", 1, OK),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n", 0, End::Waiting),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: identity\r\nContent-Length: 2\r\n\r\n{}", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, chunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked, gzip\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked,\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: ,chunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked;a=b\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: \"chunked\"\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: xchunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunkedx\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chun\u{212a}ed\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: \u{a0}chunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: \x0bchunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:\r\n chunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding : chunked\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding:\r\n\r\n0\r\n\r\n", 0, BAD),
    ("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 0, BAD),
    // Other fields that look like them have no say.
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent_Length: 5\r\nX-Transfer-Encoding: chunked\r\n\r\n", 1, OK),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nConnection: content-length\r\n\r\n{}", 1, OK),
    (
        "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade, HTTP2-Settings\r\nHTTP2-Settings: \r\n\r\n",
        1,
        OK,
    ),
    // Chunks, and what follows them.
    (
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        2,
        OK,
    ),
    (
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nHost: evil\r\n\r\nGET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        2,
        OK,
    ),
    (
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1;\n\r\na\r\n0\r\n\r\nGET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        0,
        BAD,
    ),
    (
        "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n1\r\naXX0\r\n\r\nGET /2 HTTP/1.1\r\nHost: localhost\r\n\r\n",
        0,
        BAD,
    ),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nfffffffffffffffffff\r\n", 0, BAD),
    ("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\nffffffff\r\n", 0, End::Refused(413)),
];

#[test]
fn each_shape_gets_its_answer_however_it_is_cut() {
    let limits = Limits::default();
    for &(shape, requests, end) in SHAPES {
        let whole = serve(shape.as_bytes(), shape.len().max(1), &limits);
        assert_eq!((whole.requests.len(), whole.end), (requests, end), "{shape:?}");
        for piece in [1, 2, 3, 5, 17] {
            assert_eq!(serve(shape.as_bytes(), piece, &limits), whole, "{shape:?} in pieces of {piece}");
        }
    }
}

#[test]
fn a_head_past_a_limit_is_refused_with_that_limits_status() {
    let limits = Limits { head_bytes: 1000, headers: 8, target_bytes: 100, ..Limits::default() };
    let request = |target: usize, fields: usize, value: usize| {
        let fields = format!("X: {}\r\n", "v".repeat(value)).repeat(fields);
        format!("GET /{} HTTP/1.1\r\nHost: localhost\r\n{fields}\r\n", "t".repeat(target))
    };
    for (text, end) in [
        (request(99, 7, 10), OK),
        (request(100, 7, 10), End::Refused(414)),
        (request(5000, 7, 10), End::Refused(414)),
        (request(99, 8, 10), End::Refused(431)),
        (request(99, 1, 1000), End::Refused(431)),
        (request(99, 7, 500), End::Refused(431)),
        ("A".repeat(5000), End::Refused(431)),
        // Not whole, and refused all the same.
        (request(5000, 0, 0)[..200].to_owned(), End::Refused(414)),
        (request(9, 1, 5000)[..1000].to_owned(), End::Refused(431)),
    ] {
        for piece in [1, 7, text.len()] {
            assert_eq!(serve(text.as_bytes(), piece, &limits).end, end, "{text}");
        }
    }
}

#[test]
fn refused_framing_closes_the_connection() {
    for &(shape, _, end) in SHAPES {
        let refusal = serve_until(shape.as_bytes(), shape.len().max(1), &Limits::default(), &mut Vec::new()).err();
        if matches!(end, End::Refused(400 | 413)) {
            assert!(refusal.is_some_and(|refusal| refusal.shape().closes), "{shape:?}");
        }
    }
}

/// A valid request: its bytes and its body.
fn request() -> impl Strategy<Value = (Vec<u8>, Vec<u8>)> {
    let field =
        ("[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}", "[ \t!-~\u{e4}]{0,20}").prop_map(|(name, value)| format!("X-{name}:{value}\r\n"));
    let fields = prop::collection::vec(field, 0..6).prop_map(|fields| fields.concat());
    let body = prop::option::of((any::<bool>(), prop::collection::vec(prop::collection::vec(any::<u8>(), 1..30), 0..4)));
    ("[A-Z]{1,8}", "/[!-\"$->@-~]{0,20}", fields, body).prop_filter_map(
        "CONNECT has its own targets",
        |(method, target, fields, body)| {
            let mut wire = format!("{method} {target} HTTP/1.1\r\nHost: localhost\r\n{fields}").into_bytes();
            let chunks = match body {
                None => {
                    wire.extend_from_slice(b"\r\n");
                    Vec::new()
                }
                Some((true, chunks)) => {
                    wire.extend_from_slice(b"Transfer-Encoding: chunked\r\n\r\n");
                    for chunk in &chunks {
                        wire.extend_from_slice(&super::chunk_head(chunk.len()));
                        wire.extend_from_slice(chunk);
                        wire.extend_from_slice(super::CHUNK_END);
                    }
                    wire.extend_from_slice(super::LAST_CHUNK);
                    chunks
                }
                Some((false, chunks)) => {
                    wire.extend_from_slice(format!("Content-Length: {}\r\n\r\n", chunks.concat().len()).as_bytes());
                    wire.extend_from_slice(&chunks.concat());
                    chunks
                }
            };
            (method != "CONNECT").then(|| (wire, chunks.concat()))
        },
    )
}

proptest! {
    #[test]
    fn valid_requests_come_out_whole_in_any_fragmentation(requests in prop::collection::vec(request(), 1..4), piece in 1usize..60) {
        let wire = requests.iter().map(|(wire, _)| wire.as_slice()).collect::<Vec<_>>().concat();
        let whole = serve(&wire, wire.len(), &Limits::default());
        prop_assert_eq!(whole.end, End::Between);
        prop_assert!(whole.requests.iter().map(|(_, body)| body).eq(requests.iter().map(|(_, body)| body)));
        prop_assert_eq!(serve(&wire, piece, &Limits::default()), whole);
    }

    #[test]
    fn a_changed_byte_gets_one_answer_in_any_fragmentation(
        (mut wire, _) in request(), at in any::<prop::sample::Index>(), byte in any::<u8>(), piece in 1usize..60,
    ) {
        let at = at.index(wire.len());
        wire[at] = byte;
        let whole = serve(&wire, wire.len(), &Limits::default());
        prop_assert_eq!(serve(&wire, piece, &Limits::default()), whole);
    }

    #[test]
    fn any_bytes_get_an_answer(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let _ = serve(&bytes, 200, &Limits::default());
        let _ = parse_head(&bytes, &Limits::default());
    }

    #[test]
    fn any_field_of_a_head_can_be_asked_for(
        name in prop::sample::select(vec!["Accept", "Content-Type", "Connection", "Expect", "Origin", "Host"]),
        value in "[ -~\t\u{e4}]{0,40}",
    ) {
        let text = format!("POST / HTTP/1.1\r\n{name}: {value}\r\nContent-Length: 1\r\n\r\n");
        let (head, _) = parse_head(text.as_bytes(), &Limits::default()).expect("any value is a value").expect("whole");
        prop_assert_eq!(head.framing(), Framing::Length(1));
        prop_assert_eq!(head.single(name), Ok(Some(value.trim_matches([' ', '\t']).as_bytes())));
        // Total: whatever the value, there is an answer.
        let _ = (head.accepts("text/event-stream"), head.content_is_json(), head.keep_alive(), head.expects_continue());
        let _ = (Names::default().check(&head), Names::default().origin_of(&head));
    }
}
