//! Reads an event stream, in fragments of any size: the algorithm of HTML, section 9.2.6, with a bound on what an event may hold.
//!
//! Never waits for a byte that it does not need: a lone CR ends its line at once, and the LF that may follow is dropped when it comes.
//! Nothing is said at a stream's end: "Once the end of the file is reached, any pending data must be discarded."

use std::borrow::Cow;
use std::time::Duration;

use memchr::memchr2;

use crate::canary::{self, Canary};

/// "The UTF-8 decode algorithm strips one leading UTF-8 Byte Order Mark (BOM), if any."
const BOM: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Capacity that a buffer keeps from one event to the next. Reason: a large event must not cost its connection memory for ever.
const KEPT_CAPACITY: usize = 16 << 10;

/// An event as a decoder dispatches it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Event<'a> {
    /// Its name; `message` where the stream gives none.
    pub event: &'a str,
    /// Its data: the values of its `data` lines with LF between them.
    pub data: &'a str,
    /// The last event id at its dispatch, which an earlier block may have set.
    pub id: &'a str,
    /// Whether its own block set that id.
    pub has_own_id: bool,
    /// The reconnection time that its own block set.
    pub retry: Option<Duration>,
}

/// A block of fields without data: nothing is dispatched, yet what it sets counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Block<'a> {
    /// The last event id that it set.
    pub id: Option<&'a str>,
    /// The reconnection time that it set.
    pub retry: Option<Duration>,
    /// The event name that it gave, in vain.
    pub event: Option<&'a str>,
}

/// What a stream consists of, in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Item<'a> {
    /// An event to dispatch.
    Event(Event<'a>),
    /// An id, a reconnection time or a name without data.
    Block(Block<'a>),
    /// A comment line: the stream is alive.
    Comment,
}

/// An event is larger than the decoder's bound. Nothing more can be read from its stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLong {
    /// The bound, in bytes.
    pub limit: usize,
}

/// One stream's decoder. Any fragmentation of a stream gives the same items, and the same error at the same byte.
#[derive(Clone, Debug)]
pub struct Decoder {
    limit: usize,
    too_long: bool,
    start: Start,
    /// The last byte ended a line with CR: an LF right after it belongs to the same line end.
    after_cr: bool,
    /// The line being read is a comment, which is not kept.
    in_comment: bool,
    /// The line being read, as far as fragments before this one brought it.
    line: Vec<u8>,
    block: Fields,
    last_event_id: String,
    retry: Option<Duration>,
}

/// How much of a byte order mark the stream has begun with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Start {
    Matched(usize),
    Over,
}

/// The buffers of the block being read. Bytes stay as they came until the block ends: CR, LF, colon and NUL mean the same before and
/// after UTF-8 decoding, and an invalid byte kept is one byte, not the three of its replacement.
#[derive(Clone, Debug, Default)]
struct Fields {
    /// Each line's value and an LF.
    data: Vec<u8>,
    event: Option<Vec<u8>>,
    id: Option<Vec<u8>>,
    retry: Option<Duration>,
}

impl Decoder {
    /// A decoder at the beginning of a stream. `max_event_bytes` bounds the data, name and id of an event together with the line being
    /// read, as they are on the wire; comments are not kept and not bounded.
    pub fn new(max_event_bytes: usize) -> Self {
        Self {
            limit: max_event_bytes,
            too_long: false,
            start: Start::Matched(0),
            after_cr: false,
            in_comment: false,
            line: Vec::new(),
            block: Fields::default(),
            last_event_id: String::new(),
            retry: None,
        }
    }

    /// The id that a reconnecting client presents: that of the last complete block which set one, dispatched or not.
    pub fn last_event_id(&self) -> &str {
        &self.last_event_id
    }

    /// The reconnection time that the stream last set. It holds from its line on, complete block or not.
    pub fn retry(&self) -> Option<Duration> {
        self.retry
    }

    /// Memory that the buffers hold now.
    #[cfg(test)]
    pub(super) fn buffer_capacity(&self) -> usize {
        self.line.capacity() + self.block.data.capacity()
    }

    /// Reads the next fragment and hands each event that it completes to `each`.
    pub fn push(&mut self, bytes: &[u8], mut each: impl FnMut(Event<'_>)) -> Result<(), TooLong> {
        self.push_items(bytes, |item| {
            if let Item::Event(event) = item {
                each(event);
            }
        })
    }

    /// Like [`push`](Self::push), with blocks and comments as well.
    pub fn push_items(&mut self, bytes: &[u8], mut each: impl FnMut(Item<'_>)) -> Result<(), TooLong> {
        if self.too_long {
            return Err(TooLong { limit: self.limit });
        }
        let result = self.read(bytes, &mut each);
        self.too_long = result.is_err();
        result
    }

    fn read(&mut self, bytes: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), TooLong> {
        let mut rest = self.skip_bom(bytes)?;
        while let Some(&first) = rest.first() {
            if std::mem::take(&mut self.after_cr) && first == b'\n' {
                rest = &rest[1..];
                continue;
            }
            if self.line.is_empty() && first == b':' {
                self.in_comment = true;
            }
            // "with a U+000D CARRIAGE RETURN U+000A LINE FEED (CRLF) character pair, a single U+000A LINE FEED (LF) character not preceded
            // by a U+000D CARRIAGE RETURN (CR) character, and a single U+000D CARRIAGE RETURN (CR) character not followed by a U+000A LINE
            // FEED (LF) character being the ways in which a line can end"
            let Some(end) = memchr2(b'\r', b'\n', rest) else {
                return self.keep(rest);
            };
            self.after_cr = rest[end] == b'\r';
            self.end_line(&rest[..end], each)?;
            rest = &rest[end + 1..];
        }
        if canary::bites(Canary::SseCutCrlf) {
            self.after_cr = false;
        }
        Ok(())
    }

    /// Takes a byte order mark from the stream's front. A fragment that ends inside one leaves nothing to read yet; bytes that only
    /// began like one are the first line's.
    fn skip_bom<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], TooLong> {
        let mut rest = bytes;
        while let Start::Matched(matched) = self.start {
            let Some((&byte, after)) = rest.split_first() else {
                break;
            };
            if byte == BOM[matched] {
                rest = after;
                self.start = if matched + 1 == BOM.len() { Start::Over } else { Start::Matched(matched + 1) };
            } else {
                self.start = Start::Over;
                self.keep(&BOM[..matched])?;
            }
        }
        Ok(rest)
    }

    /// Whether the line being read may be `more` bytes longer.
    fn admit(&self, more: usize) -> Result<(), TooLong> {
        let held = self.line.len() + self.block.len();
        if more > self.limit.saturating_sub(held) { Err(TooLong { limit: self.limit }) } else { Ok(()) }
    }

    /// Keeps the part of a line whose end is not here yet.
    fn keep(&mut self, part: &[u8]) -> Result<(), TooLong> {
        if self.in_comment {
            return Ok(());
        }
        self.admit(part.len())?;
        self.line.extend_from_slice(part);
        Ok(())
    }

    /// Reads the line that ends with `part`. A line that is whole in its fragment is read in place.
    fn end_line(&mut self, part: &[u8], each: &mut dyn FnMut(Item<'_>)) -> Result<(), TooLong> {
        // "If the line starts with a U+003A COLON character (:) Ignore the line."
        if std::mem::take(&mut self.in_comment) {
            each(Item::Comment);
            return Ok(());
        }
        self.admit(part.len())?;
        if self.line.is_empty() {
            self.read_line(part, each);
            return Ok(());
        }
        let mut line = std::mem::take(&mut self.line);
        line.extend_from_slice(part);
        self.read_line(&line, each);
        empty(&mut line);
        self.line = line;
        Ok(())
    }

    fn read_line(&mut self, line: &[u8], each: &mut dyn FnMut(Item<'_>)) {
        // "If the line is empty (a blank line) Dispatch the event"
        if line.is_empty() {
            return self.end_block(each);
        }
        let (name, value) = match memchr::memchr(b':', line) {
            // "If value starts with a U+0020 SPACE character, remove it from value."
            Some(colon) => {
                let value = &line[colon + 1..];
                (&line[..colon], value.strip_prefix(b" ").unwrap_or(value))
            }
            // "using the whole line as the field name, and the empty string as the field value"
            None => (line, &b""[..]),
        };
        // "Field names must be compared literally, with no case folding performed."
        match name {
            b"event" => self.block.event = Some(value.to_vec()),
            // "Append the field value to the data buffer, then append a single U+000A LINE FEED (LF) character to the data buffer."
            b"data" => {
                self.block.data.extend_from_slice(value);
                self.block.data.push(b'\n');
            }
            // "If the field value does not contain U+0000 NULL, then set the last event ID buffer to the field value. Otherwise, ignore
            // the field."
            b"id" if !value.contains(&0) => self.block.id = Some(value.to_vec()),
            b"retry" => {
                if let Some(retry) = parse_retry(value) {
                    self.block.retry = Some(retry);
                    self.retry = Some(retry);
                }
            }
            // "Otherwise The field is ignored."
            _ => {}
        }
    }

    /// The steps of "dispatch the event", and what is to be told where they dispatch none.
    fn end_block(&mut self, each: &mut dyn FnMut(Item<'_>)) {
        let block = &mut self.block;
        let has_own_id = block.id.is_some();
        // "Set the last event ID string of the event source to the value of the last event ID buffer. The buffer does not get reset"
        if let Some(id) = block.id.take() {
            self.last_event_id.clear();
            self.last_event_id.push_str(&String::from_utf8_lossy(&id));
        }
        let event = block.event.as_deref().map(String::from_utf8_lossy);
        let (id, retry) = (self.last_event_id.as_str(), block.retry.take());
        // "If the data buffer is an empty string, set the data buffer and the event type buffer to the empty string and return."
        // "If the data buffer's last character is a U+000A LINE FEED (LF) character, then remove the last character from the data buffer."
        if let Some(data) = block.data.strip_suffix(b"\n") {
            let event = event.filter(|name| !name.is_empty()).unwrap_or(Cow::Borrowed("message"));
            each(Item::Event(Event { event: &event, data: &String::from_utf8_lossy(data), id, has_own_id, retry }));
        } else if has_own_id || retry.is_some() || event.is_some() {
            each(Item::Block(Block { id: has_own_id.then_some(id), retry, event: event.as_deref() }));
            if canary::bites(Canary::SseNameOutlivesBlock) {
                return;
            }
        }
        // "Set the data buffer and the event type buffer to the empty string."
        block.event = None;
        empty(&mut block.data);
    }
}

impl Fields {
    /// Bytes held.
    fn len(&self) -> usize {
        let value = |field: &Option<Vec<u8>>| field.as_ref().map_or(0, Vec::len);
        self.data.len() + value(&self.event) + value(&self.id)
    }
}

/// "If the field value consists of only ASCII digits, then interpret the field value as an integer in base ten, and set the event
/// stream's reconnection time to that integer." No digits at all are no integer; one that is too large is the largest.
fn parse_retry(value: &[u8]) -> Option<Duration> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return None;
    }
    let millis = value.iter().fold(0u64, |millis, digit| millis.saturating_mul(10).saturating_add((digit - b'0').into()));
    Some(Duration::from_millis(millis))
}

/// Empties a buffer, and gives the memory of an unusually large one back.
fn empty(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(KEPT_CAPACITY);
}
