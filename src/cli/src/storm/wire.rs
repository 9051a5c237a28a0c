//! Answers as they come off the wire: heads, bodies by any framing, and the items of event streams.
//!
//! Pure: bytes in, what they say out. Never knows what an answer should be.

use std::fmt;

use rejoin_proto::http::{BodyReader, Framing};
use rejoin_proto::limits::Limits;
use rejoin_proto::sse::{Decoder, Item as SseItem};

use super::truth::Item;

/// Largest head of an answer.
const HEAD_BYTES: usize = 64 << 10;
/// Most fields of a head.
const FIELDS: usize = 100;
/// Largest event, and largest body that is not a stream.
const BODY_BYTES: usize = 8 << 20;

/// The head of an answer, as far as a client looks at it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    /// The status.
    pub(crate) status: u16,
    /// `Mcp-Session-Id`.
    pub(crate) session: Option<Box<str>>,
    /// `Rejoin-Verdict`.
    pub(crate) verdict: Option<Box<str>>,
    /// Whether the body is an event stream.
    pub(crate) stream: bool,
    /// Whether another request may follow on the connection.
    pub(crate) keep_alive: bool,
}

/// What an answer's bytes said.
#[derive(Debug)]
pub(crate) enum Heard<'a> {
    /// A head; its body follows.
    Head(&'a Head),
    /// An item of the body, which is a stream.
    Item(Item<'a>),
    /// The reconnection time that a stream asks for, in milliseconds.
    Retry(std::time::Duration),
    /// A comment.
    Comment,
    /// The whole body, which is none.
    Body(&'a [u8]),
    /// The answer ended as its framing says it should.
    End,
}

/// Bytes that are no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct BadAnswer(pub(crate) String);

impl fmt::Display for BadAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One connection's answers.
#[derive(Debug)]
pub(crate) struct Answers {
    unread: Vec<u8>,
    place: Place,
}

#[derive(Debug)]
enum Place {
    Head,
    Body { reader: Option<BodyReader>, kind: Body },
    Over,
}

#[derive(Debug)]
enum Body {
    Whole(Vec<u8>),
    Stream(Box<Decoder>),
}

impl Answers {
    /// A connection on which nothing came yet.
    pub(crate) fn new() -> Self {
        Self { unread: Vec::new(), place: Place::Head }
    }

    /// Reads the next bytes.
    pub(crate) fn push(&mut self, bytes: &[u8], each: &mut dyn FnMut(Heard<'_>)) -> Result<(), BadAnswer> {
        // A fragment inside a body, by far the commonest, is not copied.
        if self.unread.is_empty() && matches!(self.place, Place::Body { .. }) {
            let consumed = self.body(bytes, each)?;
            self.unread.extend_from_slice(&bytes[consumed..]);
        } else {
            self.unread.extend_from_slice(bytes);
        }
        loop {
            match self.place {
                Place::Over => return Ok(()),
                Place::Head => {
                    if !self.head(each)? {
                        return Ok(());
                    }
                }
                Place::Body { .. } => {
                    let unread = std::mem::take(&mut self.unread);
                    let consumed = self.body(&unread, each)?;
                    self.unread = unread[consumed..].to_vec();
                    if matches!(self.place, Place::Body { .. }) {
                        return Ok(());
                    }
                }
            }
        }
    }

    /// The peer ended the connection: says whether that was a clean end of what was read.
    pub(crate) fn closed(&mut self, each: &mut dyn FnMut(Heard<'_>)) -> bool {
        match std::mem::replace(&mut self.place, Place::Over) {
            Place::Head | Place::Over => self.unread.is_empty(),
            Place::Body { reader: Some(_), .. } => false,
            Place::Body { reader: None, kind } => {
                if let Body::Whole(body) = kind {
                    each(Heard::Body(&body));
                }
                each(Heard::End);
                true
            }
        }
    }

    /// Reads a head, if it is whole.
    fn head(&mut self, each: &mut dyn FnMut(Heard<'_>)) -> Result<bool, BadAnswer> {
        let mut fields = [httparse::EMPTY_HEADER; FIELDS];
        let mut response = httparse::Response::new(&mut fields);
        let length = match response.parse(&self.unread) {
            Ok(httparse::Status::Complete(length)) => length,
            Ok(httparse::Status::Partial) if self.unread.len() > HEAD_BYTES => {
                return Err(BadAnswer(format!("a head of more than {HEAD_BYTES} bytes")));
            }
            Ok(httparse::Status::Partial) => return Ok(false),
            Err(error) => return Err(BadAnswer(format!("no HTTP answer: {error}"))),
        };
        let (head, framing) = read_head(&response)?;
        self.unread.drain(..length);
        // 100 Continue and its like precede the answer.
        if (100..200).contains(&head.status) {
            return Ok(true);
        }
        each(Heard::Head(&head));
        let limits = Limits { body_bytes: if head.stream { usize::MAX } else { BODY_BYTES }, ..Limits::default() };
        let reader = framing.map(|framing| BodyReader::new(framing, &limits)).transpose();
        let reader = reader.map_err(|refusal| BadAnswer(format!("the body: {refusal:?}")))?;
        let kind = if head.stream { Body::Stream(Box::new(Decoder::new(BODY_BYTES))) } else { Body::Whole(Vec::new()) };
        self.place = Place::Body { reader, kind };
        // A body of no length is over at once.
        let consumed = self.body(&[], each)?;
        debug_assert_eq!(consumed, 0);
        Ok(true)
    }

    /// Reads a fragment of a body; says how much of it belonged to it.
    fn body(&mut self, bytes: &[u8], each: &mut dyn FnMut(Heard<'_>)) -> Result<usize, BadAnswer> {
        let Place::Body { reader, kind } = &mut self.place else { return Ok(0) };
        let mut decoded = Vec::new();
        let (consumed, done) = match reader {
            Some(reader) => {
                let progress = reader.read(bytes, &mut decoded).map_err(|refusal| BadAnswer(format!("the body: {refusal:?}")))?;
                (progress.consumed, progress.done)
            }
            None => {
                decoded.extend_from_slice(bytes);
                (bytes.len(), false)
            }
        };
        match kind {
            Body::Whole(body) => {
                body.extend_from_slice(&decoded);
                if body.len() > BODY_BYTES {
                    return Err(BadAnswer(format!("a body of more than {BODY_BYTES} bytes")));
                }
                if done {
                    each(Heard::Body(body));
                }
            }
            Body::Stream(decoder) => decoder
                .push_items(&decoded, |item| match item {
                    SseItem::Event(event) => {
                        let id = event.has_own_id.then_some(event.id);
                        each(Heard::Item(Item { event: event.event, id, data: Some(event.data) }));
                        event.retry.into_iter().for_each(|retry| each(Heard::Retry(retry)));
                    }
                    SseItem::Block(block) => {
                        if block.id.is_some() {
                            each(Heard::Item(Item { event: block.event.unwrap_or("message"), id: block.id, data: None }));
                        }
                        block.retry.into_iter().for_each(|retry| each(Heard::Retry(retry)));
                    }
                    SseItem::Comment => each(Heard::Comment),
                })
                .map_err(|_| BadAnswer(format!("an event of more than {BODY_BYTES} bytes")))?,
        }
        if done {
            self.place = Place::Head;
            each(Heard::End);
        }
        Ok(consumed)
    }
}

/// Reads what a client looks at in a head, and how its body is framed (`None`: until the connection ends).
fn read_head(response: &httparse::Response<'_, '_>) -> Result<(Head, Option<Framing>), BadAnswer> {
    let field = |name: &str| {
        let mut found = response.headers.iter().filter(|field| field.name.eq_ignore_ascii_case(name));
        found.next().map(|field| String::from_utf8_lossy(field.value.trim_ascii()).into_owned())
    };
    let status = response.code.unwrap_or(0);
    let connection = field("connection").unwrap_or_default().to_ascii_lowercase();
    let chunked = field("transfer-encoding").is_some_and(|coding| coding.to_ascii_lowercase().contains("chunked"));
    let length =
        field("content-length").map(|length| length.parse::<u64>().map_err(|_| BadAnswer(format!("Content-Length: {length}"))));
    // RFC 9112, section 6.3: how long a body is.
    let framing = match length.transpose()? {
        _ if status < 200 || status == 204 || status == 304 => Some(Framing::None),
        _ if chunked => Some(Framing::Chunked),
        Some(length) => Some(Framing::Length(length)),
        None => None,
    };
    let persistent = if response.version == Some(0) { connection.contains("keep-alive") } else { !connection.contains("close") };
    let head = Head {
        status,
        session: field("mcp-session-id").map(Into::into),
        verdict: field("rejoin-verdict").map(Into::into),
        stream: field("content-type").is_some_and(|media| media.to_ascii_lowercase().starts_with("text/event-stream")),
        keep_alive: persistent && framing.is_some(),
    };
    Ok((head, framing))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hear(fragments: impl IntoIterator<Item = impl AsRef<[u8]>>, end: bool) -> Result<Vec<String>, BadAnswer> {
        let (mut answers, mut said) = (Answers::new(), Vec::new());
        let mut note = |heard: Heard<'_>| {
            said.push(match heard {
                Heard::Head(head) => format!("{} stream={} keep={}", head.status, head.stream, head.keep_alive),
                Heard::Item(item) => format!("{}/{:?}/{:?}", item.event, item.id, item.data),
                Heard::Retry(retry) => format!("retry {}", retry.as_millis()),
                Heard::Comment => "comment".to_owned(),
                Heard::Body(body) => format!("body {}", String::from_utf8_lossy(body)),
                Heard::End => "end".to_owned(),
            });
        };
        for fragment in fragments {
            answers.push(fragment.as_ref(), &mut note)?;
        }
        if end {
            let clean = answers.closed(&mut note);
            said.push(format!("closed {clean}"));
        }
        Ok(said)
    }

    const TWO: &[u8] =
        b"HTTP/1.1 202 Accepted\r\nContent-Length: 0\r\n\r\nHTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\
        Transfer-Encoding: chunked\r\n\r\n1c\r\nid: 7\nretry: 50\ndata: a\n\n:\n\n\r\n0\r\n\r\n";

    #[test]
    fn answers_read_alike_in_any_fragmentation() {
        let expected = [
            "202 stream=false keep=true",
            "body ",
            "end",
            "200 stream=true keep=true",
            "message/Some(\"7\")/Some(\"a\")",
            "retry 50",
            "comment",
            "end",
        ];
        for size in 1..TWO.len() {
            assert_eq!(hear(TWO.chunks(size), false).expect("answers"), expected, "in fragments of {size}");
        }
    }

    #[test]
    fn a_stream_without_a_length_ends_with_its_connection_and_a_framed_one_is_cut_by_it() {
        let open = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\ndata: a\n\n";
        assert_eq!(hear([open], true).expect("answers").last().map(String::as_str), Some("closed true"));
        let cut = &TWO[..TWO.len() - 5];
        assert_eq!(hear([cut], true).expect("answers").last().map(String::as_str), Some("closed false"));
    }

    #[test]
    fn what_is_no_answer_is_an_error() {
        assert!(hear([b"SSH-2.0-OpenSSH\r\n"], false).is_err());
        assert!(hear(["HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n"], false).is_err());
        let endless = "HTTP/1.1 200 OK\r\nX: ".to_owned() + &"x".repeat(HEAD_BYTES);
        assert!(hear([endless], false).is_err());
    }
}
