//! Who is alive: a shard's table of its sessions' states, written by that shard and read by any thread with three atomic loads.
//!
//! Never locks, never allocates in `look_up`, never waits, and never says why another principal's session ended.
//!
//! # A slot
//!
//! Two words. Word 0 is 61 bits of the session's nonce with three bits of state, or zero: vacant. Word 1 is the tag of the session's
//! principal. Two sessions that follow each other in a slot share those 61 random bits once in 2⁶¹ times, so word 0 names its
//! session, and the same name twice is the same session. (Ids are authentic before they get here: nobody can choose those bits.)
//!
//! # Rules of the atomics
//!
//! There is one writer. The code names each rule where it keeps it; the model in `model.rs` fails when one of them is broken.
//!
//! - **R1** Every store into a slot is the writer's. `Writer` is neither `Clone` nor shared, and its methods take `&mut self`.
//! - **R2** A slot changes hands in this order: word 0 vacant, word 1 the new principal, word 0 the new name. Never is the name of one
//!   session in word 0 together with the principal of another in word 1, except behind a vacant that a reader cannot miss (R6).
//! - **R3** Word 1 is stored with `Release`: who sees the new principal also sees that the slot was vacated.
//! - **R4** A name is stored with `Release`, when it goes live **and** when it ends: who sees a name, in whatever state, also sees
//!   its principal. (The end's store begins a release sequence of its own; with `Relaxed` it would carry no principal.)
//! - **R5** A reader loads word 0 and then word 1, both with `Acquire`: the other halves of R4 and R3.
//! - **R6** A reader loads word 0 again, and believes word 1 only if both loads of word 0 hold the name it looks for. By R3 and R5 a
//!   principal newer than the name makes this load see the vacant, or something newer; `Relaxed` is enough for that.
//! - **R7** The state is taken from the second load. The answer is then true of the moment of that load: a session that ends during
//!   a look-up is live or ended with its reason, never unknown.
//! - **R8** Nothing is decided before the three loads are done: a mismatch of the principal costs what a match costs.
//! - **R9** The count of live sessions orders nothing; it is a hint for placing new ones.

mod sync;
mod tables;
mod writer;

#[cfg(all(test, rejoin_loom))]
mod model;
#[cfg(all(test, not(rejoin_loom)))]
mod tests;

use std::fmt;
use std::sync::Arc;

use crate::ids::{Boot, SessionId, ShardIndex, SlotIndex};
use crate::refusal::Ended;
use sync::{AtomicU32, AtomicU64, Ordering};

pub use tables::Tables;
pub use writer::Writer;

/// What a table says of a session id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Liveness {
    /// It names a live session of the principal that asks.
    Live,
    /// It does not. `Unknown` for another principal's session, alive or ended, as for one that never was.
    Ended(Ended),
}

/// A shard's slots and its count of live sessions. Shared; `Writer` is the one that changes it.
pub struct Table {
    shard: ShardIndex,
    boot: Boot,
    slots: Box<[Slot]>,
    live: LiveCount,
}

/// Makes the table of `shard` for this life of the process, and its only writer. Each slot is 16 bytes, and its name is remembered
/// after its session's end until the slot is used again: with twice as many slots as sessions may live, at least as many ends are
/// remembered.
pub fn table(shard: ShardIndex, boot: Boot, slots: u32) -> (Arc<Table>, Writer) {
    let table =
        Arc::new(Table { shard, boot, slots: (0..slots).map(|_| Slot::vacant()).collect(), live: LiveCount(AtomicU32::new(0)) });
    (Arc::clone(&table), Writer::new(table))
}

impl Table {
    /// Whose this id is and whether it lives, for a caller whose principal has this tag (zero: no principal). Any thread; three loads.
    pub fn look_up(&self, id: &SessionId, principal_tag: u64) -> Liveness {
        if id.boot() != self.boot {
            return Liveness::Ended(Ended::Restarted);
        }
        match self.slot(id.slot()) {
            Some(slot) if id.shard() == self.shard => slot.look_up(Name::of(id), principal_tag),
            _ => Liveness::Ended(Ended::Unknown),
        }
    }

    /// How many sessions live here, perhaps a moment ago (R9).
    pub fn live(&self) -> u32 {
        self.live.0.load(Ordering::Relaxed)
    }

    /// The shard that writes it.
    pub fn shard(&self) -> ShardIndex {
        self.shard
    }

    fn slot(&self, slot: SlotIndex) -> Option<&Slot> {
        self.slots.get(index(slot)?)
    }
}

impl fmt::Debug for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "table of shard {}: {} live, {} slots", self.shard.0, self.live(), self.slots.len())
    }
}

/// Where a slot is in arrays of slots; `None` on machines too small to have it.
fn index(slot: SlotIndex) -> Option<usize> {
    usize::try_from(slot.0).ok()
}

/// Every shard polls every other's count while sessions come and go: it has a cache line (and its neighbour, which processors fetch
/// along) to itself, away from the fields that each look-up reads.
#[repr(align(128))]
struct LiveCount(AtomicU32);

/// A slot never straddles two cache lines.
#[repr(align(16))]
struct Slot {
    word: AtomicU64,
    principal: AtomicU64,
}

impl Slot {
    fn vacant() -> Self {
        Self { word: AtomicU64::new(VACANT), principal: AtomicU64::new(0) }
    }

    fn look_up(&self, name: Name, principal_tag: u64) -> Liveness {
        let before = self.word.load(Ordering::Acquire); // R5
        let principal = self.principal.load(Ordering::Acquire); // R5
        let after = self.word.load(Ordering::Relaxed); // R6
        let ours = name.is_in(before) & name.is_in(after) & (principal == principal_tag); // R6, R8
        if ours { liveness(after) } else { Liveness::Ended(Ended::Unknown) } // R7
    }

    /// R2's first store: whoever was here is unknown from now on. It needs no ordering: R3 carries it.
    fn vacate(&self) {
        self.word.store(VACANT, Ordering::Relaxed);
    }

    /// Vacant (or ended) to live.
    fn open(&self, name: Name, principal_tag: u64) {
        self.vacate(); // R2
        self.principal.store(principal_tag, Ordering::Release); // R2, R3
        self.word.store(name.with(State::Live), Ordering::Release); // R2, R4
    }

    /// Live to ended: the name stays, its state says why.
    fn close(&self, why: State) {
        let name = Name::in_word(self.read_by_writer());
        self.word.store(name.with(why), Ordering::Release); // R4
    }

    /// The writer's own last store (R1).
    fn read_by_writer(&self) -> u64 {
        self.word.load(Ordering::Relaxed)
    }

    fn is_live(&self) -> bool {
        self.read_by_writer() & STATE_BITS == State::Live as u64
    }
}

/// Word 0 of a slot that names nobody.
const VACANT: u64 = 0;
/// The bits of word 0 that hold the state.
const STATE_BITS: u64 = 0b111;

/// What is known of a slot's session: three bits, of which zero is left to vacant slots.
#[derive(Clone, Copy)]
enum State {
    Live = 1,
    Expired = 2,
    Deleted = 3,
    Closed = 4,
    Shed = 5,
    Lineage = 6,
}

impl State {
    /// The state that remembers this end; `None` for what is no end of a session, or is not to be remembered.
    fn remembering(why: Ended) -> Option<Self> {
        match why {
            Ended::Expired => Some(Self::Expired),
            Ended::Deleted => Some(Self::Deleted),
            Ended::Closed => Some(Self::Closed),
            Ended::Shed => Some(Self::Shed),
            Ended::Lineage => Some(Self::Lineage),
            Ended::Restarted | Ended::Incarnation | Ended::Forgotten | Ended::Unknown => None,
        }
    }
}

/// What word 0 says to the session that it names. Total: bits that no `State` has read as unknown.
fn liveness(word: u64) -> Liveness {
    const LIVE: u64 = State::Live as u64;
    const EXPIRED: u64 = State::Expired as u64;
    const DELETED: u64 = State::Deleted as u64;
    const CLOSED: u64 = State::Closed as u64;
    const SHED: u64 = State::Shed as u64;
    const LINEAGE: u64 = State::Lineage as u64;
    Liveness::Ended(match word & STATE_BITS {
        LIVE => return Liveness::Live,
        EXPIRED => Ended::Expired,
        DELETED => Ended::Deleted,
        CLOSED => Ended::Closed,
        SHED => Ended::Shed,
        LINEAGE => Ended::Lineage,
        _ => Ended::Unknown,
    })
}

/// The 61 bits of a session's nonce that word 0 holds, in their place, state bits zero.
#[derive(Clone, Copy, PartialEq)]
struct Name(u64);

impl Name {
    fn of(id: &SessionId) -> Self {
        Self(id.nonce_word() & !STATE_BITS)
    }

    fn in_word(word: u64) -> Self {
        Self(word & !STATE_BITS)
    }

    fn with(self, state: State) -> u64 {
        self.0 | state as u64
    }

    fn is_in(self, word: u64) -> bool {
        Self::in_word(word) == self
    }
}
