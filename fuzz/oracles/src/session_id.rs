//! Session ids: only what was minted under the key parses, in one spelling, and it parses to what was minted.

use arbitrary::{Arbitrary, Unstructured};
use rejoin_proto::ids::{Boot, Key, SESSION_ID_LEN, SessionId, SessionIdError, ShardIndex, SlotIndex};

use crate::{Edit, KEY};

#[derive(Arbitrary, Debug)]
struct Case {
    shard: u8,
    slot: u32,
    boot: u32,
    nonce: [u8; 16],
    edits: Vec<Edit>,
}

/// Reads `data` as an id's text, then as a recipe for one that is nearly right.
pub fn check(data: &[u8]) {
    read(data);
    if let Ok(case) = Case::arbitrary(&mut Unstructured::new(data)) {
        check_case(&case);
    }
}

fn check_case(case: &Case) {
    let id = SessionId::mint(&KEY, ShardIndex(case.shard), SlotIndex(case.slot), Boot(case.boot), case.nonce);
    let printed = id.encode();
    let text = printed.as_str().as_bytes();
    assert!(text.len() == SESSION_ID_LEN && text.iter().all(u8::is_ascii_graphic));
    assert_eq!(SessionId::parse(text, &KEY), Ok(id), "what was printed did not parse");
    assert_eq!(SessionId::parse(text, &Key::new([0; 16])), Err(SessionIdError::NotAuthentic), "believed under another key");
    assert_eq!((id.shard().0, id.slot().0, id.boot().0), (case.shard, case.slot, case.boot));
    assert_eq!(id.nonce_word().to_be_bytes(), case.nonce[..8]);

    let mut edited = text.to_vec();
    for edit in &case.edits {
        edit.apply(&mut edited);
        read(&edited);
    }
}

fn read(text: &[u8]) {
    assert_eq!(SessionId::parse(text, &KEY), second_reading(text), "{}", text.escape_ascii());
}

/// Six bits a character; whatever they name is minted anew and must print as it was written.
fn second_reading(text: &[u8]) -> Result<SessionId, SessionIdError> {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    if text.len() != SESSION_ID_LEN {
        return Err(SessionIdError::Malformed);
    }
    let mut bits = Vec::new();
    for character in text {
        let value = ALPHABET.iter().position(|known| known == character).ok_or(SessionIdError::Malformed)?;
        bits.extend((0..6).rev().map(|bit| value >> bit & 1));
    }
    let bytes: Vec<u8> = bits.chunks(8).map(|bits| bits.iter().fold(0, |byte, &bit| byte << 1 | bit as u8)).collect();
    let id = SessionId::mint(
        &KEY,
        ShardIndex(bytes[0]),
        SlotIndex(u32::from_be_bytes([bytes[1], bytes[2], bytes[3], bytes[4]])),
        Boot(u32::from_be_bytes([bytes[5], bytes[6], bytes[7], bytes[8]])),
        bytes[9..25].try_into().expect("sixteen bytes"),
    );
    if id.encode().as_str().as_bytes() == text { Ok(id) } else { Err(SessionIdError::NotAuthentic) }
}
