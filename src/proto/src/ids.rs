//! The names on the wire: session ids and cursors, each with its own MAC, and the numbers inside them.
//!
//! Parsing is total (any bytes give a value or a typed error), allocates nothing, and accepts only the canonical spelling.
//! Never decides whether a session lives or an event is held: that is `incarnations` and `resume`.

use std::fmt;
use std::hash::Hasher;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher128};
use subtle::ConstantTimeEq;

use crate::canary::{self, Canary};

/// The 128-bit secret behind every tag. A server that keeps it over a restart keeps its ids authentic.
#[derive(Clone, PartialEq, Eq)]
pub struct Key([u8; 16]);

impl Key {
    /// A key from 16 secret bytes.
    pub const fn new(bytes: [u8; 16]) -> Self {
        Self(bytes)
    }

    /// A 64-bit SipHash-2-4 over `domain` and `parts`. Domains keep the uses of one key apart; parts are of fixed length, or
    /// only the last one varies, so that no two lists of parts read alike.
    fn tag(&self, domain: u8, parts: &[&[u8]]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(&[domain]);
        for part in parts {
            hasher.write(part);
        }
        hasher.finish()
    }

    /// The tag of a principal, as an incarnation slot publishes it. Never zero, which means "no principal".
    pub fn principal_tag(&self, principal: &str) -> u64 {
        self.tag(b'p', &[principal.as_bytes()]).max(1)
    }

    /// A keyed 128-bit hash of `parts`, which may be of any length: no two lists of parts read alike.
    pub fn parts_hash(&self, parts: &[&[u8]]) -> u128 {
        let mut hasher = SipHasher128::new_with_key(&self.0);
        hasher.write(b"i");
        for part in parts {
            hasher.write(&(part.len() as u64).to_le_bytes());
            hasher.write(part);
        }
        hasher.finish128().as_u128()
    }

    /// A keyed 128-bit hash of a request body: two bodies with the same hash are taken for the same call.
    pub fn body_hash(&self, body: &[u8]) -> u128 {
        let mut hasher = SipHasher128::new_with_key(&self.0);
        hasher.write(b"b");
        hasher.write(body);
        hasher.finish128().as_u128()
    }
}

/// Secrets do not print themselves.
impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(..)")
    }
}

/// Who a caller is, as its authoriser names it. Sessions belong to a principal, not to a token.
///
/// The one without a name, which is everybody where nobody is asked, takes no memory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Principal(Option<Arc<str>>);

impl Principal {
    /// The principal with this name.
    pub fn new(name: &str) -> Self {
        Self((!name.is_empty()).then(|| name.into()))
    }

    /// Its name.
    pub fn as_str(&self) -> &str {
        self.0.as_deref().unwrap_or_default()
    }
}

/// A connection's name, chosen by the shell: a small index, free for another connection once the kernel was told `Closed`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ConnId(pub u32);

/// One execution of a request, unique in its shard for the process's life. Inside, calls have this name and never the client's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct CallId(pub u64);

/// A request to the client (sampling, elicitation, roots, ping), unique in the process; also its JSON-RPC id on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClientRequestId(pub u64);

/// Which shard (thread and core) of a process, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardIndex(pub u8);

/// Which slot of a shard's incarnation table, from 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotIndex(pub u32);

/// One life of a process: ids of another boot under the same key are authentic but `restarted`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Boot(pub u32);

/// One unbroken life of a session's event lineage; the first is 1, each rotation adds 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u32);

impl Incarnation {
    /// The life that a session begins with.
    pub const FIRST: Self = Self(1);

    /// The life after this one; `None` when a session has rotated 2³² − 1 times and must end instead.
    pub fn next(self) -> Option<Self> {
        self.0.checked_add(1).map(Self)
    }
}

/// A stream of one incarnation. 0 is the standalone stream; each POST with a call gets the next number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamNumber(pub u32);

impl StreamNumber {
    /// The stream that a GET without a cursor is served.
    pub const STANDALONE: Self = Self(0);
}

/// Where an event stands in its stream. The first event has position 1; 0 is the stream's start, before every event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(u64);

impl Position {
    /// Before the first event.
    pub const START: Self = Self(0);

    /// The position with this number.
    pub const fn new(number: u64) -> Self {
        Self(number)
    }

    /// Its number.
    pub const fn get(self) -> u64 {
        self.0
    }

    /// The position right after this one. Streams end long before 2⁶⁴ events.
    pub const fn next(self) -> Self {
        Self(self.0 + 1)
    }

    /// The position right before this one; the start's is the start.
    pub const fn previous(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    /// How many events follow `earlier` up to and including this one; 0 when `earlier` is not earlier.
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }
}

/// Bytes of a session id before encoding: shard 1, slot 4, boot 4, nonce 16, tag 8. A multiple of three, so base64 has no
/// spare bits and exactly one spelling.
const SESSION_BYTES: usize = 33;

/// Length of a session id on the wire, in bytes of visible ASCII.
pub const SESSION_ID_LEN: usize = SESSION_BYTES / 3 * 4;

/// An authentic session id: a value exists only after its tag verified (or was made here).
///
/// Wire shape: 44 characters of base64url. Unguessable (128 random bits), authentic (64-bit MAC), and it names its shard and slot,
/// so any core can look its state up without a hash map.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct SessionId {
    shard: ShardIndex,
    slot: SlotIndex,
    boot: Boot,
    nonce: [u8; 16],
    tag: u64,
}

/// Why bytes are not a session id of ours. To the client both are the same 404.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionIdError {
    /// Not 44 characters of base64url.
    Malformed,
    /// Well formed, but the tag is not ours.
    NotAuthentic,
}

impl SessionId {
    /// Mints the id of a new session in `slot` of `shard`; `nonce` is 128 fresh random bits.
    pub fn mint(key: &Key, shard: ShardIndex, slot: SlotIndex, boot: Boot, nonce: [u8; 16]) -> Self {
        let mut id = Self { shard, slot, boot, nonce, tag: 0 };
        id.tag = id.expected_tag(key);
        id
    }

    fn expected_tag(&self, key: &Key) -> u64 {
        let bytes = self.to_bytes();
        key.tag(b's', &[&bytes[..SESSION_BYTES - 8]])
    }

    fn to_bytes(self) -> [u8; SESSION_BYTES] {
        let mut bytes = [0; SESSION_BYTES];
        bytes[0] = self.shard.0;
        bytes[1..5].copy_from_slice(&self.slot.0.to_be_bytes());
        bytes[5..9].copy_from_slice(&self.boot.0.to_be_bytes());
        bytes[9..25].copy_from_slice(&self.nonce);
        bytes[25..].copy_from_slice(&self.tag.to_be_bytes());
        bytes
    }

    /// Parses and authenticates an `Mcp-Session-Id` value.
    pub fn parse(text: &[u8], key: &Key) -> Result<Self, SessionIdError> {
        if text.len() != SESSION_ID_LEN {
            return Err(SessionIdError::Malformed);
        }
        let mut bytes = [0; SESSION_BYTES];
        match URL_SAFE_NO_PAD.decode_slice(text, &mut bytes) {
            Ok(SESSION_BYTES) => {}
            _ => return Err(SessionIdError::Malformed),
        }
        let word = |at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().expect("four bytes"));
        let id = Self {
            shard: ShardIndex(bytes[0]),
            slot: SlotIndex(word(1)),
            boot: Boot(word(5)),
            nonce: bytes[9..25].try_into().expect("sixteen bytes"),
            tag: u64::from_be_bytes(bytes[25..].try_into().expect("eight bytes")),
        };
        let unread = if canary::bites(Canary::SessionTagCutShort) { 0xff } else { 0 };
        if bool::from((id.expected_tag(key) | unread).ct_eq(&(id.tag | unread))) {
            Ok(id)
        } else {
            Err(SessionIdError::NotAuthentic)
        }
    }

    /// The shard that owns the session.
    pub fn shard(&self) -> ShardIndex {
        self.shard
    }

    /// Its slot in that shard's incarnation table.
    pub fn slot(&self) -> SlotIndex {
        self.slot
    }

    /// The life of the process that minted it.
    pub fn boot(&self) -> Boot {
        self.boot
    }

    /// The part of the nonce that an incarnation slot publishes.
    pub fn nonce_word(&self) -> u64 {
        u64::from_be_bytes(self.nonce[..8].try_into().expect("eight bytes"))
    }

    /// Its spelling on the wire.
    pub fn encode(&self) -> SessionIdText {
        let mut text = [0; SESSION_ID_LEN];
        let written = URL_SAFE_NO_PAD.encode_slice(self.to_bytes(), &mut text);
        debug_assert_eq!(written, Ok(SESSION_ID_LEN));
        SessionIdText(text)
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.encode().as_str())
    }
}

/// A session id is a credential where callers are anonymous: logs get only its place and a hint.
impl fmt::Debug for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "session {}/{}/{:08x}", self.shard.0, self.slot.0, self.nonce_word() >> 32)
    }
}

/// A session id's 44 characters, in line.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SessionIdText([u8; SESSION_ID_LEN]);

impl SessionIdText {
    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("base64 is ASCII")
    }
}

impl fmt::Debug for SessionIdText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionIdText(..)")
    }
}

/// The longest cursor, in bytes: 10 + 10 + 20 digits, 16 hex digits, three dots.
pub const CURSOR_MAX_LEN: usize = 59;

/// A place in one stream of one incarnation of one session. A value exists only after its tag verified (or was made here).
///
/// Wire shape: `incarnation.stream.position.tag`, three decimal numbers and 16 lower-case hex digits, at most 59 bytes. The tag is
/// SipHash-2-4 over the session id and the three numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    incarnation: Incarnation,
    stream: StreamNumber,
    position: Position,
}

/// Why bytes are not a cursor of this session. To the client all are 400 `invalid_cursor`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CursorError {
    /// Empty, or longer than any cursor.
    Length,
    /// Not three canonical decimal numbers and a tag of 16 lower-case hex digits.
    Malformed,
    /// Well formed, but not minted for this session under this key.
    NotAuthentic,
}

impl Cursor {
    /// The cursor that stands at `position`.
    pub fn new(incarnation: Incarnation, stream: StreamNumber, position: Position) -> Self {
        Self { incarnation, stream, position }
    }

    /// Parses a `Last-Event-ID` value and verifies its tag for `session`.
    pub fn parse(text: &[u8], key: &Key, session: &SessionId) -> Result<Self, CursorError> {
        if text.is_empty() || text.len() > CURSOR_MAX_LEN {
            return Err(CursorError::Length);
        }
        let (place, tag) = Place::split(text).ok_or(CursorError::Malformed)?;
        let cursor = Self { incarnation: place.incarnation, stream: place.stream, position: place.position };
        if bool::from(cursor.tag(key, session).ct_eq(&tag)) { Ok(cursor) } else { Err(CursorError::NotAuthentic) }
    }

    fn tag(&self, key: &Key, session: &SessionId) -> u64 {
        let mut place = [0; 16];
        place[..4].copy_from_slice(&self.incarnation.0.to_be_bytes());
        place[4..8].copy_from_slice(&self.stream.0.to_be_bytes());
        place[8..].copy_from_slice(&self.position.0.to_be_bytes());
        key.tag(b'c', &[&session.to_bytes(), &place])
    }

    /// The life that it belongs to.
    pub fn incarnation(&self) -> Incarnation {
        self.incarnation
    }

    /// The stream that it stands in.
    pub fn stream(&self) -> StreamNumber {
        self.stream
    }

    /// The last event that its holder has seen.
    pub fn position(&self) -> Position {
        self.position
    }

    /// Its spelling on the wire, for `session`.
    pub fn encode(&self, key: &Key, session: &SessionId) -> CursorText {
        let mut text = CursorText { bytes: [0; CURSOR_MAX_LEN], len: 0 };
        text.push_decimal(self.incarnation.0.into());
        text.push(b'.');
        text.push_decimal(self.stream.0.into());
        text.push(b'.');
        text.push_decimal(self.position.0);
        text.push(b'.');
        let tag = self.tag(key, session);
        for nibble in (0..16).rev() {
            text.push(b"0123456789abcdef"[(tag >> (nibble * 4)) as usize & 15]);
        }
        text
    }
}

/// What an event id of the shape of ours says, without evidence: whoever holds no key cannot verify the tag. A server must never act on
/// it, which is what [`Cursor`] is for; a client compares the places that one server names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The life that the id says it belongs to.
    pub incarnation: Incarnation,
    /// The stream that it says it stands in.
    pub stream: StreamNumber,
    /// The position that it says it names.
    pub position: Position,
}

impl Place {
    /// Reads an id; `None` when it is not the one spelling of three numbers and a tag that [`Cursor::encode`] writes.
    pub fn peek(id: &str) -> Option<Self> {
        if id.len() > CURSOR_MAX_LEN {
            return None;
        }
        Self::split(id.as_bytes()).map(|(place, _)| place)
    }

    /// The place and the tag that text of the canonical spelling holds.
    fn split(text: &[u8]) -> Option<(Self, u64)> {
        let mut fields = text.split(|&byte| byte == b'.');
        let mut number = |max: u64| fields.next().and_then(|digits| canonical_decimal(digits, max));
        let incarnation = number(u32::MAX.into())?;
        let stream = number(u32::MAX.into())?;
        let position = number(u64::MAX)?;
        let tag = fields.next().and_then(canonical_hex)?;
        let place = Self {
            incarnation: Incarnation(incarnation as u32),
            stream: StreamNumber(stream as u32),
            position: Position(position),
        };
        fields.next().is_none().then_some((place, tag))
    }
}

/// A decimal number without sign or leading zeros, at most `max`.
fn canonical_decimal(digits: &[u8], max: u64) -> Option<u64> {
    if digits.is_empty() || (digits.len() > 1 && digits[0] == b'0' && !canary::bites(Canary::CursorLeadingZero)) {
        return None;
    }
    let value = digits.iter().try_fold(0u64, |value, &digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then_some(())?;
        value.checked_mul(10)?.checked_add(digit.into())
    })?;
    (value <= max).then_some(value)
}

/// Exactly 16 lower-case hex digits.
fn canonical_hex(digits: &[u8]) -> Option<u64> {
    if digits.len() != 16 {
        return None;
    }
    digits.iter().try_fold(0u64, |value, &digit| {
        let nibble = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(value << 4 | u64::from(nibble))
    })
}

/// A cursor's characters, in line: at most 59 bytes of `[0-9a-f.]`.
#[derive(Clone, Copy)]
pub struct CursorText {
    bytes: [u8; CURSOR_MAX_LEN],
    len: u8,
}

impl CursorText {
    fn push(&mut self, byte: u8) {
        self.bytes[usize::from(self.len)] = byte;
        self.len += 1;
    }

    fn push_decimal(&mut self, value: u64) {
        let mut digits = [0; 20];
        let mut at = digits.len();
        let mut rest = value;
        loop {
            at -= 1;
            digits[at] = b'0' + (rest % 10) as u8;
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        for &digit in &digits[at..] {
            self.push(digit);
        }
    }

    /// As text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..self.len.into()]).expect("digits and dots are ASCII")
    }
}

impl fmt::Display for CursorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for CursorText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const KEY: Key = Key::new([7; 16]);

    fn session(nonce: u8) -> SessionId {
        SessionId::mint(&KEY, ShardIndex(1), SlotIndex(42), Boot(9), [nonce; 16])
    }

    proptest! {
        #[test]
        fn a_session_id_survives_the_wire(shard: u8, slot: u32, boot: u32, nonce: [u8; 16]) {
            let id = SessionId::mint(&KEY, ShardIndex(shard), SlotIndex(slot), Boot(boot), nonce);
            prop_assert_eq!(SessionId::parse(id.encode().as_str().as_bytes(), &KEY), Ok(id));
        }

        #[test]
        fn a_cursor_survives_the_wire(incarnation: u32, stream: u32, position: u64) {
            let cursor = Cursor::new(Incarnation(incarnation), StreamNumber(stream), Position::new(position));
            let text = cursor.encode(&KEY, &session(1));
            prop_assert!(text.as_str().len() <= CURSOR_MAX_LEN);
            prop_assert_eq!(Cursor::parse(text.as_str().as_bytes(), &KEY, &session(1)), Ok(cursor));
        }

        #[test]
        fn any_bytes_give_a_value_or_an_error(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = SessionId::parse(&bytes, &KEY);
            if let Ok(cursor) = Cursor::parse(&bytes, &KEY, &session(1)) {
                let text = cursor.encode(&KEY, &session(1));
                prop_assert_eq!(text.as_str().as_bytes(), &bytes[..]);
            }
        }

        #[test]
        fn one_changed_byte_is_noticed(at in 0usize..44, by in 1u8..=255) {
            let mut text = session(1).encode().0;
            text[at] ^= by;
            prop_assert!(SessionId::parse(&text, &KEY).is_err());
        }
    }

    #[test]
    fn only_the_canonical_spelling_parses() {
        let place =
            |incarnation, stream, position| Cursor::new(Incarnation(incarnation), StreamNumber(stream), Position::new(position));
        let text = place(1, 0, 42).encode(&KEY, &session(1)).to_string();
        for wrong in [
            text.to_uppercase(),
            format!("0{text}"),
            format!("+{text}"),
            format!("{text} "),
            format!("{text}.0"),
            text.replace(".42.", ".042."),
            text.replace(".0.", ".-0."),
            text[..text.len() - 1].to_string(),
        ] {
            assert!(Cursor::parse(wrong.as_bytes(), &KEY, &session(1)).is_err(), "{wrong} parsed");
        }
        assert_eq!(Cursor::parse(b"", &KEY, &session(1)), Err(CursorError::Length));
        let overflow = b"4294967296.0.1.0000000000000000";
        assert_eq!(Cursor::parse(overflow, &KEY, &session(1)), Err(CursorError::Malformed));
    }

    #[test]
    fn the_longest_cursor_fits() {
        let last = Cursor::new(Incarnation(u32::MAX), StreamNumber(u32::MAX), Position::new(u64::MAX));
        assert_eq!(last.encode(&KEY, &session(1)).as_str().len(), CURSOR_MAX_LEN);
    }

    #[test]
    fn a_cursor_cannot_move_to_another_session_or_key() {
        let text = Cursor::new(Incarnation::FIRST, StreamNumber(3), Position::new(8)).encode(&KEY, &session(1));
        let bytes = text.as_str().as_bytes();
        assert_eq!(Cursor::parse(bytes, &KEY, &session(2)), Err(CursorError::NotAuthentic));
        assert_eq!(Cursor::parse(bytes, &Key::new([8; 16]), &session(1)), Err(CursorError::NotAuthentic));
    }

    #[test]
    fn secrets_do_not_print() {
        assert_eq!(format!("{KEY:?}"), "Key(..)");
        assert!(!format!("{:?}", session(1)).contains(session(1).encode().as_str()));
    }
}
