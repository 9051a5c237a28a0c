//! Facts of the format, and the decoder against a second reading of the standard.

use std::time::Duration;

use proptest::collection::vec;
use proptest::prelude::*;

use super::reference::{self, decode};
use super::{COMMENT, Decoder, FieldValue, Frame};

/// `stream` cut before each of `cuts` (taken modulo its length).
fn fragments<'s>(stream: &'s [u8], cuts: &[usize]) -> Vec<&'s [u8]> {
    let mut cuts: Vec<usize> = cuts.iter().map(|cut| cut % (stream.len() + 1)).collect();
    cuts.sort_unstable();
    cuts.push(stream.len());
    let mut from = 0;
    cuts.into_iter().map(|cut| &stream[std::mem::replace(&mut from, cut)..cut]).collect()
}

/// Name, data and last event id of each event, having checked that no way to cut the stream in two, nor cutting it everywhere, matters.
fn events(stream: &[u8]) -> Vec<(String, String, String)> {
    let whole = decode([stream], usize::MAX);
    for cut in 0..=stream.len() {
        assert_eq!(decode([&stream[..cut], &stream[cut..]], usize::MAX), whole, "cut at {cut}");
    }
    assert_eq!(decode(stream.chunks(1), usize::MAX), whole, "cut everywhere");
    assert_eq!(reference::read(stream, usize::MAX), whole);
    let event = |item| match item {
        reference::Item::Event { event, data, id, .. } => Some((event, data, id)),
        _ => None,
    };
    whole.items.into_iter().filter_map(event).collect()
}

fn data(stream: &[u8]) -> Vec<String> {
    events(stream).into_iter().map(|(_, data, _)| data).collect()
}

#[test]
fn field_names_are_compared_literally() {
    let stream = b"data:\0\ndata:  2\rData:1\ndata\0:2\ndata:1\r\0data:4\nda-ta:3\rdata_5\ndata:3\rdata:\r\n data:32\ndata:4\n\n";
    assert_eq!(data(stream), ["\0\n 2\n1\n3\n\n4"]);
}

#[test]
fn one_byte_order_mark_is_taken_at_the_start_only() {
    assert_eq!(data("\u{feff}data:1\n\n\u{feff}data:2\n\ndata:3\n\n".as_bytes()), ["1", "3"]);
    assert_eq!(data("\u{feff}\u{feff}data:1\n\ndata:2\n\n".as_bytes()), ["2"]);
    assert_eq!(data("\u{feff}\ndata:1\n\n".as_bytes()), ["1"]);
    assert_eq!(data(b"\xef\xbbdata:1\n\ndata:2\n\n"), ["2"]);
    assert_eq!(data(b"\xef\n\ndata:2\n\n"), ["2"]);
}

#[test]
fn a_field_without_a_colon_has_an_empty_value() {
    assert_eq!(data(b"data:\n\ndata\ndata\n\ndata:test\n\n"), ["", "\n", "test"]);
    assert_eq!(events(b"id:7\nevent:x\nevent\nid\ndata\n\n"), [("message".into(), "".into(), "".into())]);
}

#[test]
fn exactly_one_leading_space_is_taken_away() {
    assert_eq!(data(b"data:  x\n\ndata:\tx\n\ndata: \n\ndata:x \n\n"), [" x", "\tx", "", "x "]);
}

#[test]
fn every_line_end_is_one_line_end() {
    assert_eq!(data(b"data:a\r\rdata:b\n\ndata:c\r\n\r\ndata:d\n\r\ndata:e\r\r\ndata:f\n\r"), ["a", "b", "c", "d", "e", "f"]);
}

#[test]
fn a_lone_cr_dispatches_at_once() {
    let mut decoder = Decoder::new(64);
    let mut seen = 0;
    decoder.push(b"data:x\r\r", |_| seen += 1).expect("short");
    assert_eq!(seen, 1);
}

#[test]
fn an_event_without_data_is_not_dispatched_and_its_name_is_forgotten() {
    assert_eq!(
        events(b"event:a\n\nevent:b\ndata:1\n\ndata:2\n\n"),
        [("b".into(), "1".into(), "".into()), ("message".into(), "2".into(), "".into()),]
    );
    assert_eq!(events(b"event:a\nevent:\ndata:1\n\n"), [("message".into(), "1".into(), "".into())]);
}

#[test]
fn an_id_stays_until_another_one_or_an_empty_one() {
    let ids: Vec<String> =
        events(b"id:1\ndata:a\n\ndata:b\n\nid: 2\n\ndata:c\n\nid\ndata:d\n\n").into_iter().map(|event| event.2).collect();
    assert_eq!(ids, ["1", "1", "2", ""]);
}

#[test]
fn an_id_with_nul_is_ignored() {
    assert_eq!(events(b"id:1\n\nid:x\0y\ndata:a\n\n"), [("message".into(), "a".into(), "1".into())]);
}

#[test]
fn an_id_counts_from_its_blocks_end() {
    let mut decoder = Decoder::new(64);
    decoder.push(b"id:1\ndata\n\nid:2\ndata:lost", |_| {}).expect("short");
    assert_eq!(decoder.last_event_id(), "1");
    decoder.push(b"\n\n", |event| assert_eq!(event.id, "2")).expect("short");
    assert_eq!(decoder.last_event_id(), "2");
}

#[test]
fn retry_is_digits_only_and_counts_from_its_line_on() {
    let retry = |stream: &[u8]| decode([stream], usize::MAX).retry;
    assert_eq!(retry(b"retry:3000"), None);
    assert_eq!(retry(b"retry:3000\n"), Some(3000));
    assert_eq!(retry(b"retry: 0030\n"), Some(30));
    assert_eq!(retry(b"retry:1\nretry:3x\nretry:x3\nretry:+3\nretry:-3\nretry:3.0\nretry\nretry:  3\nretry:3 \n"), Some(1));
    assert_eq!(retry("retry:1\nretry:\u{663}\n".as_bytes()), Some(1));
    assert_eq!(retry(b"retry:99999999999999999999999\n"), Some(u64::MAX));
}

#[test]
fn blocks_without_data_and_comments_are_visible() {
    let stream = b":\n\nid:1\n\n:x\nretry:5\n:\n\nevent:e\n\n\n\nunknown:x\nid:\0\nretry:z\n\n: an unfinished comment";
    events(stream);
    let block = |id: Option<&str>, retry, event: Option<&str>| reference::Item::Block {
        id: id.map(str::to_owned),
        retry,
        event: event.map(str::to_owned),
    };
    let comment = reference::Item::Comment;
    assert_eq!(
        decode([&stream[..]], usize::MAX).items,
        [
            comment.clone(),
            block(Some("1"), None, None),
            comment.clone(),
            comment,
            block(None, Some(5), None),
            block(None, None, Some("e")),
        ]
    );
}

#[test]
fn invalid_utf_8_is_replaced() {
    assert_eq!(data(b"data:a\xffb\xe2\x82\ndata:\xf0\x9f\x92\xa9\n\n"), ["a\u{fffd}b\u{fffd}\n\u{1f4a9}"]);
}

#[test]
fn an_unfinished_event_is_discarded() {
    assert_eq!(events(b"data:1\n\nid:x\ndata:2\n"), [("message".into(), "1".into(), "".into())]);
}

#[test]
fn an_event_at_the_bound_passes_and_one_byte_more_ends_the_stream() {
    // Held at the last `data` line: 3 bytes of id, 5 of name, 3 of data so far, and the line's 7.
    let stream = b"data:1\n\nid:abc\nevent:names\ndata:12\n:long comments are free, as they are not kept\ndata:34\n\ndata:5\n\n";
    let fits = decode([&stream[..]], 18);
    assert_eq!((fits.items.len(), fits.too_long), (4, false));
    let bursts = decode([&stream[..]], 17);
    assert_eq!((bursts.items.len(), bursts.too_long), (2, true));
    assert_eq!(bursts.last_event_id, "");
    assert_eq!(decode(stream.chunks(1), 17), bursts);
}

#[test]
fn a_large_event_does_not_keep_its_memory() {
    let mut decoder = Decoder::new(1 << 20);
    let large = Frame { data: Some(&[b'x'; 1 << 19]), ..Frame::default() };
    let mut bytes = Vec::new();
    large.encode(&mut bytes);
    for part in bytes.chunks(1000) {
        decoder.push(part, |_| {}).expect("within the bound");
    }
    assert!(decoder.buffer_capacity() < 64 << 10);
}

#[test]
fn frames_read_as_written() {
    let field = |text| FieldValue::new(text).expect("no line end");
    let encode = |frame: Frame<'_>| {
        let mut out = Vec::new();
        frame.encode(&mut out);
        String::from_utf8(out).expect("text in, text out")
    };
    let full = Frame {
        event: Some(field("resync")),
        id: Some(field("1.0.42.ff")),
        retry: Some(Duration::from_millis(3000)),
        data: Some(b"{}"),
    };
    assert_eq!(encode(full), "event: resync\nid: 1.0.42.ff\nretry: 3000\ndata: {}\n\n");
    let opening = Frame { id: Some(field("1.0.0.ff")), data: Some(b""), ..Frame::default() };
    assert_eq!(encode(opening), "id: 1.0.0.ff\ndata:\n\n");
    assert_eq!(encode(Frame { retry: Some(Duration::ZERO), ..Frame::default() }), "retry: 0\n\n");
    assert_eq!(
        encode(Frame { data: Some(b"a\rb\nc\r\nd\n\re\n"), ..Frame::default() }),
        "data: a\ndata: b\ndata: c\ndata: d\ndata:\ndata: e\ndata:\n\n"
    );
    assert_eq!(encode(Frame::default()), "\n");
}

#[test]
fn no_value_opens_a_line_of_its_own() {
    for text in ["a\nid: 9", "a\rid: 9", "a\0", "\n", "\r\n"] {
        assert_eq!(FieldValue::new(text), None, "{text:?}");
    }
    let frame = Frame { data: Some(b"x\rid: 9\nretry: 9\r\nevent: 9\n\ndata: 9"), ..Frame::default() };
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    assert_eq!(events(&bytes), [("message".into(), "x\nid: 9\nretry: 9\nevent: 9\n\ndata: 9".into(), "".into())]);
}

#[test]
fn a_comment_is_seen_and_dispatches_nothing() {
    assert_eq!(decode([COMMENT], 0).items, [reference::Item::Comment]);
}

/// Streams made of the pieces that the algorithm tells apart, and of some that it does not.
fn stream() -> impl Strategy<Value = Vec<u8>> {
    let one_of = |pieces: &'static [&'static [u8]]| proptest::sample::select(pieces).prop_map(<[u8]>::to_vec);
    let piece = prop_oneof![
        4 => one_of(&[b"\n", b"\r", b"\r\n", b"\n\n"]),
        4 => one_of(&[b"data:", b"data", b"id:", b"event:", b"retry:", b":", b" "]),
        1 => one_of(&[b"\xef\xbb\xbf", b"\xef\xbb", b"\0", b"DATA:", b"\xff"]),
        2 => "[0-9x]{1,4}".prop_map(String::into_bytes),
        1 => vec(any::<u8>(), 0..6),
    ];
    vec(piece, 0..40).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn any_fragmentation_reads_like_the_reference(
        stream in stream(),
        cuts in vec(any::<usize>(), 0..12),
        limit in prop_oneof![Just(usize::MAX), 0usize..40],
    ) {
        let expected = reference::read(&stream, limit);
        prop_assert_eq!(&decode([&stream[..]], limit), &expected);
        prop_assert_eq!(&decode(fragments(&stream, &cuts), limit), &expected);
        prop_assert_eq!(&decode(stream.chunks(1), limit), &expected);
    }

    #[test]
    fn what_is_encoded_is_decoded(
        event in proptest::option::of("[^\0\r\n]{0,12}"),
        id in proptest::option::of("[^\0\r\n]{0,12}"),
        retry in proptest::option::of(any::<u64>()),
        data in proptest::option::of(prop_oneof!["[a\r\n :\u{feff}é]{0,24}".prop_map(String::into_bytes), vec(any::<u8>(), 0..24)]),
    ) {
        let frame = Frame {
            event: event.as_deref().and_then(FieldValue::new),
            id: id.as_deref().and_then(FieldValue::new),
            retry: retry.map(Duration::from_millis),
            data: data.as_deref(),
        };
        let mut bytes = b"before".to_vec();
        frame.encode(&mut bytes);
        let bytes = bytes.strip_prefix(b"before").expect("appended");
        prop_assert_eq!(bytes.len(), frame.encoded_len());

        let item = match &data {
            Some(data) => Some(reference::Item::Event {
                event: event.filter(|name| !name.is_empty()).unwrap_or("message".into()),
                data: String::from_utf8_lossy(data).replace("\r\n", "\n").replace('\r', "\n"),
                id: id.clone().unwrap_or_default(),
                has_own_id: id.is_some(),
                retry,
            }),
            None if event.is_some() || id.is_some() || retry.is_some() => Some(reference::Item::Block { id, retry, event }),
            None => None,
        };
        prop_assert_eq!(decode([bytes], usize::MAX).items, Vec::from_iter(item));
    }
}
