//! Cursors: only the canonical spelling of a cursor that was minted for this session parses, and it parses to what was minted.

use arbitrary::{Arbitrary, Unstructured};
use rejoin_proto::ids::{
    Boot, CURSOR_MAX_LEN, Cursor, CursorError, Incarnation, Key, Position, SessionId, ShardIndex, SlotIndex, StreamNumber,
};

use crate::{Edit, KEY};

#[derive(Arbitrary, Clone, Copy, Debug, PartialEq)]
struct Place {
    incarnation: u32,
    stream: u32,
    position: u64,
}

#[derive(Arbitrary, Debug)]
struct Case {
    sessions: [u8; 2],
    places: [Place; 2],
    edits: Vec<Edit>,
}

/// Reads `data` as a cursor's text, then as a recipe for one that is nearly right.
pub fn check(data: &[u8]) {
    read(data, &KEY, &session(0));
    if let Ok(case) = Case::arbitrary(&mut Unstructured::new(data)) {
        check_case(&case);
    }
}

fn check_case(case: &Case) {
    let [own, other] = case.sessions.map(session);
    let [place, another] = case
        .places
        .map(|place| Cursor::new(Incarnation(place.incarnation), StreamNumber(place.stream), Position::new(place.position)));
    let printed = place.encode(&KEY, &own);
    let text = printed.as_str().as_bytes();
    assert!(text.len() <= CURSOR_MAX_LEN && text.iter().all(u8::is_ascii_graphic));
    assert_eq!(Cursor::parse(text, &KEY, &own), Ok(place), "what was printed did not parse");
    assert_eq!((place.incarnation().0, place.stream().0), (case.places[0].incarnation, case.places[0].stream));
    assert_eq!(place.position().get(), case.places[0].position);

    // A cursor holds in its session, under its key, with its own tag.
    assert_eq!(Cursor::parse(text, &KEY, &other).is_ok(), own == other, "a cursor moved to another session");
    assert_eq!(Cursor::parse(text, &Key::new([0; 16]), &own), Err(CursorError::NotAuthentic));
    let another_text = another.encode(&KEY, &own);
    let (numbers, _) = printed.as_str().rsplit_once('.').expect("four parts");
    let (_, tag) = another_text.as_str().rsplit_once('.').expect("four parts");
    let spliced = format!("{numbers}.{tag}");
    assert_eq!(Cursor::parse(spliced.as_bytes(), &KEY, &own).is_ok(), place == another, "a tag moved to another place");

    let mut edited = text.to_vec();
    for edit in &case.edits {
        edit.apply(&mut edited);
        read(&edited, &KEY, &own);
    }
}

fn session(nonce: u8) -> SessionId {
    SessionId::mint(&KEY, ShardIndex(3), SlotIndex(1 << 20), Boot(7), [nonce; 16])
}

fn read(text: &[u8], key: &Key, session: &SessionId) {
    assert_eq!(Cursor::parse(text, key, session), second_reading(text, key, session), "{}", text.escape_ascii());
}

/// Each number must print as it was written, and the whole as the cursor of that place.
fn second_reading(text: &[u8], key: &Key, session: &SessionId) -> Result<Cursor, CursorError> {
    if text.is_empty() || text.len() > CURSOR_MAX_LEN {
        return Err(CursorError::Length);
    }
    let text = std::str::from_utf8(text).map_err(|_| CursorError::Malformed)?;
    let parts: Vec<&str> = text.split('.').collect();
    let &[incarnation, stream, position, tag] = &parts[..] else {
        return Err(CursorError::Malformed);
    };
    let number = |digits: &str, max: u64| {
        let number = digits.parse::<u128>().ok().filter(|number| number.to_string() == digits);
        number.and_then(|number| u64::try_from(number).ok()).filter(|&number| number <= max).ok_or(CursorError::Malformed)
    };
    let cursor = Cursor::new(
        Incarnation(number(incarnation, u32::MAX.into())? as u32),
        StreamNumber(number(stream, u32::MAX.into())? as u32),
        Position::new(number(position, u64::MAX)?),
    );
    if !u64::from_str_radix(tag, 16).is_ok_and(|number| format!("{number:016x}") == tag) {
        return Err(CursorError::Malformed);
    }
    if cursor.encode(key, session).as_str() == text { Ok(cursor) } else { Err(CursorError::NotAuthentic) }
}
