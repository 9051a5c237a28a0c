//! What must hold of rejoin's kernel for any bytes: one function for each fuzz target, which panics when something does not.
//!
//! Parsers are compared with a second, plainer reading of the same bytes, the machine with the simulation's oracle. Nothing here knows the fuzzing engine, so the same
//! functions run on stable, over the corpora.

pub mod cursor;
pub mod http;
pub mod session_id;
pub mod shard;
pub mod sse;

use arbitrary::Arbitrary;
use rejoin_proto::ids::Key;

/// A target and what it checks.
pub type Target = (&'static str, fn(&[u8]));

/// Every target, by the name of its binary and its corpus.
pub const TARGETS: &[Target] = &[
    ("cursor", cursor::check),
    ("http", http::check),
    ("session_id", session_id::check),
    ("shard", shard::check),
    ("sse", sse::check),
];

/// Plants the canary that the environment variable `REJOIN_CANARY` names, if this build has canaries at all. Ends the process where
/// there is none of that name: a panic would look like something noticed.
pub fn plant_from_environment() {
    #[cfg(feature = "canary")]
    if let Ok(name) = std::env::var("REJOIN_CANARY") {
        let Some(canary) = rejoin_proto::canary::Canary::parse(&name) else {
            eprintln!("no canary is named {name:?}");
            std::process::exit(2);
        };
        rejoin_proto::canary::plant(Some(canary));
    }
}

/// The key of every id here.
const KEY: Key = Key::new(*b"an oracle's key.");

/// A small change to a well-formed text: random bytes alone would hardly ever get past a tag.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Edit {
    Insert(u8, u8),
    Replace(u8, u8),
    Remove(u8),
    Truncate(u8),
}

impl Edit {
    fn apply(self, text: &mut Vec<u8>) {
        let place = |at: u8, len: usize| usize::from(at) % len;
        match self {
            Self::Insert(at, byte) => text.insert(place(at, text.len() + 1), byte),
            Self::Truncate(at) => text.truncate(place(at, text.len() + 1)),
            Self::Replace(..) | Self::Remove(_) if text.is_empty() => {}
            Self::Replace(at, byte) => {
                let at = place(at, text.len());
                text[at] = byte;
            }
            Self::Remove(at) => {
                text.remove(place(at, text.len()));
            }
        }
    }
}

/// `bytes` in fragments of one to sixteen bytes, as `seed` has it.
fn fragments(bytes: &[u8], seed: u8) -> Vec<&[u8]> {
    let mut state = u32::from(seed);
    let mut rest = bytes;
    let mut fragments = Vec::new();
    while !rest.is_empty() {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        let (fragment, after) = rest.split_at(rest.len().min((state >> 28) as usize + 1));
        fragments.push(fragment);
        rest = after;
    }
    fragments
}
