//! Event streams: any fragmentation reads like the standard's algorithm over the whole, and a frame reads as what was written.

use std::time::Duration;

use arbitrary::{Arbitrary, Unstructured};
use rejoin_proto::sse::{Decoder, FieldValue, Frame, Item};

use crate::fragments;

#[path = "../../../src/proto/src/sse/reference.rs"]
mod reference;

#[derive(Arbitrary, Debug)]
struct Case<'a> {
    retry: Option<u64>,
    event: Option<&'a str>,
    id: Option<&'a str>,
    data: Option<&'a [u8]>,
}

/// The first byte is the decoder's bound (255: none), the second how the stream is cut, the rest the stream; then all of it is read as
/// the contents of a frame.
pub fn check(data: &[u8]) {
    if let &[limit, cut, ref stream @ ..] = data {
        let limit = if limit == u8::MAX { usize::MAX } else { limit.into() };
        check_stream(stream, limit, cut);
    }
    if let Ok(case) = Case::arbitrary_take_rest(Unstructured::new(data)) {
        check_frame(case);
    }
}

fn check_stream(stream: &[u8], limit: usize, cut: u8) {
    let expected = reference::read(stream, limit);
    assert_eq!(reference::decode([stream], limit), expected, "the whole: {}", stream.escape_ascii());
    assert_eq!(reference::decode(fragments(stream, cut), limit), expected, "in fragments: {}", stream.escape_ascii());
    assert_eq!(reference::decode(stream.chunks(1), limit), expected, "byte by byte: {}", stream.escape_ascii());
}

fn check_frame(case: Case<'_>) {
    let (event, id) = (case.event.filter(admitted), case.id.filter(admitted));
    let frame = Frame {
        event: event.and_then(FieldValue::new),
        id: id.and_then(FieldValue::new),
        retry: case.retry.map(Duration::from_millis),
        data: case.data,
    };
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    assert_eq!(bytes.len(), frame.encoded_len());

    let (event, id) = (event.map(str::to_owned), id.map(str::to_owned));
    let item = match case.data {
        Some(data) => Some(reference::Item::Event {
            event: event.filter(|name| !name.is_empty()).unwrap_or("message".to_owned()),
            data: String::from_utf8_lossy(data).replace("\r\n", "\n").replace('\r', "\n"),
            has_own_id: id.is_some(),
            id: id.unwrap_or_default(),
            retry: case.retry,
        }),
        None if event.is_some() || id.is_some() || case.retry.is_some() => {
            Some(reference::Item::Block { id, retry: case.retry, event })
        }
        None => None,
    };
    assert_eq!(reference::decode([&bytes[..]], usize::MAX).items, Vec::from_iter(item), "{}", bytes.escape_ascii());
}

/// Whether a field can hold `text`; any other is left out.
fn admitted(text: &&str) -> bool {
    let admitted = FieldValue::new(text).is_some();
    assert_eq!(admitted, !text.contains(['\0', '\r', '\n']), "{text:?}");
    admitted
}
