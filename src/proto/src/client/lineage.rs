//! Does what comes continue what came? A stream's ids, judged one by one.
//!
//! Ids of rejoin's shape name incarnation, stream and position, so that every gap, repetition and change of life shows. Ids of other
//! servers are opaque: one that comes again with data shows, within a bounded memory. Never repairs: an event that breaks the order is
//! refused, and so is the rest of its stream.
//!
//! What may come on a connection, where ids have rejoin's shape: first an opening event (empty data) at the stream's start or at the
//! presented cursor, or a `resync`; then each position right after the one before; a `resync` at any time, not behind the last position.

use std::collections::VecDeque;
use std::hash::Hasher;

use siphasher::sip::SipHasher13;

use super::outcome::Violation;
use crate::ids::{Incarnation, Place, Position, StreamNumber};

/// A stream's ids so far.
#[derive(Clone, Debug)]
pub(super) struct Lineage {
    /// Whether it is the standalone stream.
    standalone: bool,
    ids: Ids,
    /// On this connection an id has come.
    begun: bool,
}

#[derive(Clone, Debug)]
enum Ids {
    /// None has come.
    None,
    /// Rejoin's: the last one.
    Places(Place),
    /// Others': hashes of the latest.
    Opaque(VecDeque<u64>),
}

/// An event's part in the order.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step<'a> {
    /// Its own id.
    pub id: Option<&'a str>,
    /// Its data is empty.
    pub empty: bool,
    /// It is a `resync`.
    pub resync: bool,
}

impl Lineage {
    /// The lineage of a stream of which nothing has come.
    pub(super) fn new(standalone: bool) -> Self {
        Self { standalone, ids: Ids::None, begun: false }
    }

    /// The lineage of a stream of which nothing is known but its last id.
    pub(super) fn behind(standalone: bool, last: &str) -> Self {
        let ids = match Place::peek(last) {
            Some(place) => Ids::Places(place),
            None => Ids::Opaque(VecDeque::from([hash(last)])),
        };
        Self { standalone, ids, begun: false }
    }

    /// A new connection carries the stream on, from `last`, the id presented.
    pub(super) fn resume(&mut self) {
        self.begun = false;
    }

    /// The last id, where it has rejoin's shape.
    pub(super) fn place(&self) -> Option<Place> {
        match self.ids {
            Ids::Places(place) => Some(place),
            Ids::None | Ids::Opaque(_) => None,
        }
    }

    /// Judges the next event. `last`: the id that the client holds; `life`: the latest life of the session that any stream has shown;
    /// `memory`: how many opaque ids to remember.
    pub(super) fn admit(
        &mut self,
        step: Step<'_>,
        last: &str,
        life: Option<Incarnation>,
        memory: usize,
    ) -> Result<(), Violation> {
        let Some(id) = step.id else {
            let rejoins = matches!(self.ids, Ids::Places(_));
            // Only what follows a `resync` on the standalone stream has none: it tells of changes, and is no part of the lineage.
            return if rejoins && !(self.standalone && self.begun) { Err(Violation::NoId) } else { Ok(()) };
        };
        if id.is_empty() && !matches!(self.ids, Ids::Places(_)) {
            // An empty id makes a client forget the last one: there is no place to compare.
            return Ok(());
        }
        let first = !std::mem::replace(&mut self.begun, true);
        match (&mut self.ids, Place::peek(id)) {
            (Ids::None, Some(place)) => {
                self.begin(step, place, life)?;
                self.ids = Ids::Places(place);
            }
            (Ids::Places(known), Some(place)) => {
                let reopens = first && step.empty && !step.resync;
                follow(*known, place, step, reopens, id == last)?;
                *known = place;
            }
            (Ids::None, None) => {
                self.ids = Ids::Opaque(VecDeque::new());
                self.remember(id, memory);
            }
            (Ids::Opaque(seen), None) => {
                let repeated = seen.contains(&hash(id));
                // An opening event may present the cursor again, or a place that is known.
                if repeated && !step.empty {
                    return Err(Violation::RepeatedId);
                }
                if !repeated {
                    self.remember(id, memory);
                }
            }
            (Ids::Places(_), None) | (Ids::Opaque(_), Some(_)) => return Err(Violation::Shape),
        }
        Ok(())
    }

    /// The first id of a stream.
    fn begin(&self, step: Step<'_>, place: Place, life: Option<Incarnation>) -> Result<(), Violation> {
        if let Some(life) = life.filter(|&life| place.incarnation < life) {
            return Err(Violation::Incarnation { expected: life.0, got: place.incarnation.0 });
        }
        if (place.stream == StreamNumber::STANDALONE) != self.standalone {
            return Err(Violation::Stream { got: place.stream.0 });
        }
        // The standalone stream goes on from what was never written to any connection, which may be anywhere.
        let anywhere = self.standalone || step.resync;
        let start = if step.empty { Position::START } else { Position::START.next() };
        if anywhere || place.position == start { Ok(()) } else { Err(Violation::Start { got: place.position.get() }) }
    }

    fn remember(&mut self, id: &str, memory: usize) {
        if let Ids::Opaque(seen) = &mut self.ids {
            while seen.len() >= memory.max(1) {
                seen.pop_front();
            }
            seen.push_back(hash(id));
        }
    }
}

/// An id after `known`.
fn follow(known: Place, place: Place, step: Step<'_>, reopens: bool, presented: bool) -> Result<(), Violation> {
    if place.incarnation != known.incarnation {
        return Err(Violation::Incarnation { expected: known.incarnation.0, got: place.incarnation.0 });
    }
    if place.stream != known.stream {
        return Err(Violation::Stream { got: place.stream.0 });
    }
    let (last, got) = (known.position.get(), place.position.get());
    if reopens {
        // The same place under another tag is another session's.
        return if presented { Ok(()) } else { Err(Violation::Start { got }) };
    }
    if step.resync {
        return if got >= last { Ok(()) } else { Err(Violation::Repeated { last, got }) };
    }
    match got.checked_sub(last) {
        Some(1) => Ok(()),
        None | Some(0) => Err(Violation::Repeated { last, got }),
        Some(_) => Err(Violation::SilentGap { last, got }),
    }
}

/// Ids are compared by hash: one in 2⁶⁴ pairs is taken for equal.
fn hash(id: &str) -> u64 {
    let mut hasher = SipHasher13::new();
    hasher.write(id.as_bytes());
    hasher.finish()
}
