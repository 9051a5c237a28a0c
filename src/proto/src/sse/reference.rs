//! A second reading of an event stream, as plain as the standard's text: whole input, owned strings, no state between calls.
//!
//! For tests and for the fuzz target (which includes this file), to compare the decoder with. The reading shares no code with the
//! decoder, and never sees fragments.

use std::time::Duration;

use super::Decoder;

/// What a stream consists of, in order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Item {
    /// A dispatched event.
    Event {
        /// Its name.
        event: String,
        /// Its data.
        data: String,
        /// The last event id at its dispatch.
        id: String,
        /// Whether its own block set that id.
        has_own_id: bool,
        /// The reconnection time, in milliseconds, that its own block set.
        retry: Option<u64>,
    },
    /// Fields without data.
    Block {
        /// The last event id that it set.
        id: Option<String>,
        /// The reconnection time, in milliseconds, that it set.
        retry: Option<u64>,
        /// The name that it gave.
        event: Option<String>,
    },
    /// A comment line.
    Comment,
}

/// What a decoder has to say about a whole stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Reading {
    /// What the stream consists of.
    pub(super) items: Vec<Item>,
    /// The last event id at its end.
    pub(super) last_event_id: String,
    /// The reconnection time at its end, in milliseconds.
    pub(super) retry: Option<u64>,
    /// Whether an event was larger than the bound; nothing after it was read.
    pub(super) too_long: bool,
}

/// Reads all of `stream`; an event's fields and the line being read hold at most `limit` bytes together.
pub(super) fn read(stream: &[u8], limit: usize) -> Reading {
    const BOM: &[u8] = b"\xef\xbb\xbf";
    // The beginning of a mark is no line's yet.
    let stream = if BOM.starts_with(stream) { b"" } else { stream.strip_prefix(BOM).unwrap_or(stream) };
    let mut lines: Vec<Vec<u8>> = vec![Vec::new()];
    for (at, &byte) in stream.iter().enumerate() {
        match byte {
            b'\r' => lines.push(Vec::new()),
            b'\n' if at > 0 && stream[at - 1] == b'\r' => {}
            b'\n' => lines.push(Vec::new()),
            _ => lines.last_mut().expect("never empty").push(byte),
        }
    }

    let mut reading = Reading::default();
    let (mut data, mut event, mut id, mut retry) = (None::<Vec<String>>, None, None, None);
    let (mut data_bytes, mut event_bytes, mut id_bytes) = (0, 0, 0);
    let last = lines.len() - 1;
    for (number, line) in lines.iter().enumerate() {
        if line.first() == Some(&b':') {
            if number != last {
                reading.items.push(Item::Comment);
            }
            continue;
        }
        if line.len() + data_bytes + event_bytes + id_bytes > limit {
            reading.too_long = true;
            return reading;
        }
        if number == last {
            // Not ended by anything: pending, and discarded.
            break;
        }
        if line.is_empty() {
            if let Some(id) = &id {
                reading.last_event_id = String::clone(id);
            }
            match data.take() {
                Some(lines) => reading.items.push(Item::Event {
                    event: event.take().filter(|name: &String| !name.is_empty()).unwrap_or("message".to_owned()),
                    data: lines.join("\n"),
                    id: reading.last_event_id.clone(),
                    has_own_id: id.is_some(),
                    retry,
                }),
                None if event.is_some() || id.is_some() || retry.is_some() => {
                    reading.items.push(Item::Block { id: id.clone(), retry, event: event.clone() });
                }
                None => {}
            }
            (event, id, retry) = (None, None, None);
            (data_bytes, event_bytes, id_bytes) = (0, 0, 0);
            continue;
        }
        let mut halves = line.splitn(2, |&byte| byte == b':');
        let name = halves.next().unwrap_or_default();
        let mut value = halves.next().unwrap_or_default();
        if value.first() == Some(&b' ') {
            value = &value[1..];
        }
        let text = String::from_utf8_lossy(value).into_owned();
        if name == b"data" {
            data.get_or_insert_default().push(text);
            data_bytes += value.len() + 1;
        } else if name == b"event" {
            (event, event_bytes) = (Some(text), value.len());
        } else if name == b"id" && !text.contains('\0') {
            (id, id_bytes) = (Some(text), value.len());
        } else if name == b"retry" && !text.is_empty() && text.chars().all(|digit| digit.is_ascii_digit()) {
            retry = Some(text.parse().unwrap_or(u64::MAX));
            reading.retry = retry;
        }
    }
    reading
}

/// What the decoder says about a stream that comes in `fragments`, in the same words.
pub(super) fn decode<'f>(fragments: impl IntoIterator<Item = &'f [u8]>, limit: usize) -> Reading {
    let mut decoder = Decoder::new(limit);
    let mut reading = Reading::default();
    let millis = |retry: Duration| u64::try_from(retry.as_millis()).expect("read from 64 bits");
    for fragment in fragments {
        let result = decoder.push_items(fragment, |item| {
            reading.items.push(match item {
                super::Item::Event(event) => Item::Event {
                    event: event.event.to_owned(),
                    data: event.data.to_owned(),
                    id: event.id.to_owned(),
                    has_own_id: event.has_own_id,
                    retry: event.retry.map(millis),
                },
                super::Item::Block(block) => Item::Block {
                    id: block.id.map(str::to_owned),
                    retry: block.retry.map(millis),
                    event: block.event.map(str::to_owned),
                },
                super::Item::Comment => Item::Comment,
            });
        });
        reading.too_long = result.is_err();
    }
    reading.last_event_id = decoder.last_event_id().to_owned();
    reading.retry = decoder.retry().map(millis);
    reading
}
