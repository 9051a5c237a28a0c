//! Session ids and cursors as text, made and read with the server's secret.
//!
//! Never tells why a text is none: to whoever presents it, every text that was not issued is the same.

use std::hash::Hasher;

use siphasher::sip::SipHasher24;
use siphasher::sip128::{Hasher128, SipHasher24 as SipHasher24Wide};

/// One position of one stream of one incarnation of a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) incarnation: u32,
    pub(super) stream: u32,
    pub(super) position: u64,
}

/// The server's secret.
#[derive(Clone, Debug)]
pub(super) struct Keys([u8; 16]);

impl Keys {
    pub(super) fn new(secret: [u8; 16]) -> Self {
        Self(secret)
    }

    /// A MAC; the part of the server that asks and the lengths keep one text from being read as another.
    fn tag(&self, part: &str, text: &str, numbers: [u64; 4]) -> u64 {
        let mut hasher = SipHasher24::new_with_key(&self.0);
        hasher.write(part.as_bytes());
        hasher.write_u64(text.len() as u64);
        hasher.write(text.as_bytes());
        numbers.into_iter().for_each(|number| hasher.write_u64(number));
        hasher.finish()
    }

    fn session_tag(&self, process: u32, nonce: u128) -> u64 {
        self.tag("session", "", [process.into(), (nonce >> 64) as u64, nonce as u64, 0])
    }

    /// A session's id: the process that began it, 128 unguessable bits, and their tag.
    pub(super) fn session_id(&self, process: u32, nonce: u128) -> String {
        format!("{process:08x}{nonce:032x}{:016x}", self.session_tag(process, nonce))
    }

    /// The process and nonce of an id that this secret issued.
    pub(super) fn session(&self, id: &str) -> Option<(u32, u128)> {
        let process = u32::from_str_radix(id.get(..8)?, 16).ok()?;
        let nonce = u128::from_str_radix(id.get(8..40)?, 16).ok()?;
        let tag = u64::from_str_radix(id.get(40..)?, 16).ok()?;
        let canonical = format!("{process:08x}{nonce:032x}{tag:016x}") == id;
        // Numbers are compared at once, whatever they have in common.
        (canonical && tag == self.session_tag(process, nonce)).then_some((process, nonce))
    }

    fn cursor_tag(&self, session: &str, place: Place) -> u64 {
        self.tag("cursor", session, [place.incarnation.into(), place.stream.into(), place.position, 0])
    }

    /// The cursor of a place, which is also the id of the event that stands there.
    pub(super) fn cursor(&self, session: &str, place: Place) -> String {
        let Place { incarnation, stream, position } = place;
        format!("{incarnation}.{stream}.{position}.{:016x}", self.cursor_tag(session, place))
    }

    /// The place that a cursor names in this session, if it was issued for it.
    pub(super) fn place(&self, session: &str, cursor: &str) -> Option<Place> {
        let (place, tag) = spelled(cursor)?;
        (tag == self.cursor_tag(session, place)).then_some(place)
    }

    /// A keyed hash of a body.
    pub(super) fn body(&self, body: &[u8]) -> u128 {
        let mut hasher = SipHasher24Wide::new_with_key(&self.0);
        hasher.write(b"body");
        hasher.write(body);
        hasher.finish128().as_u128()
    }
}

/// A cursor's parts, and nothing about whether it was ever issued. Only the canonical spelling has any.
pub(super) fn spelled(cursor: &str) -> Option<(Place, u64)> {
    let mut parts = cursor.split('.');
    let (incarnation, stream, position) = (parts.next()?.parse().ok()?, parts.next()?.parse().ok()?, parts.next()?.parse().ok()?);
    let tag = u64::from_str_radix(parts.next()?, 16).ok()?;
    let canonical = format!("{incarnation}.{stream}.{position}.{tag:016x}") == cursor;
    canonical.then_some((Place { incarnation, stream, position }, tag))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_was_issued_for_a_session_is_read() {
        let keys = Keys::new([7; 16]);
        let place = Place { incarnation: 1, stream: 2, position: 3 };
        let cursor = keys.cursor("a", place);
        assert_eq!(keys.place("a", &cursor), Some(place));
        assert_eq!(keys.place("b", &cursor), None);
        assert_eq!(Keys::new([8; 16]).place("a", &cursor), None);
        let respelled =
            [format!("0{cursor}"), format!("+{cursor}"), format!("{cursor} "), cursor.to_uppercase(), format!("{cursor}.")];
        for text in respelled.iter().map(String::as_str).chain(["", "...", "é", "1.2.3"]) {
            assert!(text == cursor || keys.place("a", text).is_none(), "{text}");
        }
        let id = keys.session_id(5, u128::MAX / 3);
        assert_eq!(keys.session(&id), Some((5, u128::MAX / 3)));
        for text in [&id[1..], "", "é", &id.replace('a', "A"), &format!("{id}0")] {
            assert!(text == id || keys.session(text).is_none(), "{text}");
        }
    }
}
