//! Known bugs that tests plant on purpose, to prove that a fuzz target or the simulation would notice them.
//!
//! Never in a shipped build: without the cargo feature `canary` (which is never a default) every [`bites`] is the constant `false` and
//! its branch is not compiled into the program. Each canary is one `if` at the place of use, beside the code that it breaks.

/// A bug that can be planted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Canary {
    /// `ids`: a number in a cursor may have leading zeros, so a cursor has more than one spelling.
    CursorLeadingZero,
    /// `ids`: the last byte of a session id's tag is not compared, so a forger needs fewer guesses.
    SessionTagCutShort,
    /// `http`, head scanner: the CR of a CRLF that is cut between its two bytes is forgotten.
    HeadCutCrlf,
    /// `http`, head: a length may have a plus sign, which another reader of the same bytes may take for a malformed one.
    HeadSignedLength,
    /// `http`, body reader: a fragment that ends inside data loses its last byte.
    BodyEdgeByte,
    /// `sse`, decoder: the LF of a CRLF that is cut between its two bytes ends a second, empty line.
    SseCutCrlf,
    /// `sse`, decoder: a block without data keeps its name for the next event.
    SseNameOutlivesBlock,
    /// `sse`, encoder: a lone CR in data does not begin another `data:` line, so a handler's data can write fields of its own.
    SseBareCr,
    /// `serve`: a gap of two to five events is passed over without a `resync`. Forbidden: a silent gap.
    SilentGap,
    /// `request`: a replay from a position that ends in 5 begins one event too early. Forbidden: an event twice.
    EventTwice,
    /// `request`: a DELETE of a session with two calls in flight does not end it. Forbidden: a result for a dead session.
    DeadSessionLives,
    /// `emit`: a second answer is logged behind one at a position that ends in 6. Forbidden: two results for one call.
    TwoResults,
    /// `records`: a repost is executed again when the first execution's stream has a number that ends in 7. Forbidden: a second execution.
    ExecutedAgain,
    /// `resume`: a cursor of the incarnation right before passes for one of this. Forbidden: 200 with another lineage.
    ForeignLineage,
}

impl Canary {
    /// Every canary.
    pub const ALL: &[Self] = &[
        Self::CursorLeadingZero,
        Self::SessionTagCutShort,
        Self::HeadCutCrlf,
        Self::HeadSignedLength,
        Self::BodyEdgeByte,
        Self::SseCutCrlf,
        Self::SseNameOutlivesBlock,
        Self::SseBareCr,
        Self::SilentGap,
        Self::EventTwice,
        Self::DeadSessionLives,
        Self::TwoResults,
        Self::ExecutedAgain,
        Self::ForeignLineage,
    ];

    /// Its name on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::CursorLeadingZero => "cursor-leading-zero",
            Self::SessionTagCutShort => "session-tag-cut-short",
            Self::HeadCutCrlf => "head-cut-crlf",
            Self::HeadSignedLength => "head-signed-length",
            Self::BodyEdgeByte => "body-edge-byte",
            Self::SseCutCrlf => "sse-cut-crlf",
            Self::SseNameOutlivesBlock => "sse-name-outlives-block",
            Self::SseBareCr => "sse-bare-cr",
            Self::SilentGap => "silent-gap",
            Self::EventTwice => "event-twice",
            Self::DeadSessionLives => "dead-session-lives",
            Self::TwoResults => "two-results",
            Self::ExecutedAgain => "executed-again",
            Self::ForeignLineage => "foreign-lineage",
        }
    }

    /// Who must notice it, each of them alone.
    pub const fn hunters(self) -> &'static [Hunter] {
        match self {
            Self::CursorLeadingZero => &[Hunter::Fuzz("cursor")],
            Self::SessionTagCutShort => &[Hunter::Fuzz("session_id")],
            Self::HeadCutCrlf | Self::HeadSignedLength | Self::BodyEdgeByte => &[Hunter::Fuzz("http")],
            Self::SseCutCrlf | Self::SseNameOutlivesBlock | Self::SseBareCr => &[Hunter::Fuzz("sse")],
            Self::SilentGap | Self::EventTwice | Self::TwoResults | Self::ExecutedAgain | Self::ForeignLineage => {
                &[Hunter::Simulation, Hunter::Fuzz("shard")]
            }
            // A DELETE beside two calls in flight is further away than a minute's fuzzing.
            Self::DeadSessionLives => &[Hunter::Simulation],
        }
    }

    /// The canary with this name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|canary| canary.name() == name)
    }
}

/// What has to notice a canary.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hunter {
    /// The fuzz target with this name.
    Fuzz(&'static str),
    /// The simulation.
    Simulation,
}

#[cfg(feature = "canary")]
thread_local! {
    /// A thread's own, so that tests that plant different canaries may run side by side.
    static PLANTED: std::cell::Cell<Option<Canary>> = const { std::cell::Cell::new(None) };
}

/// Plants `canary` in this thread in place of the one before it; `None` takes that one away.
#[cfg(feature = "canary")]
pub fn plant(canary: Option<Canary>) {
    PLANTED.set(canary);
}

/// Whether `canary` is planted in this thread.
#[cfg(feature = "canary")]
pub fn bites(canary: Canary) -> bool {
    PLANTED.get() == Some(canary)
}

/// Whether `canary` is planted: never, in a build without the feature.
#[cfg(not(feature = "canary"))]
#[inline(always)]
pub const fn bites(_canary: Canary) -> bool {
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_canary_has_a_name_of_its_own() {
        for &canary in Canary::ALL {
            assert_eq!(Canary::parse(canary.name()), Some(canary));
        }
    }

    #[test]
    fn nothing_bites_before_it_is_planted() {
        assert!(Canary::ALL.iter().all(|&canary| !bites(canary)));
    }

    #[cfg(feature = "canary")]
    #[test]
    fn a_planted_canary_bites_alone_and_in_its_own_thread() {
        for &canary in Canary::ALL {
            plant(Some(canary));
            assert!(Canary::ALL.iter().all(|&other| bites(other) == (other == canary)));
            assert!(!std::thread::spawn(move || bites(canary)).join().expect("the thread only looks"));
        }
        plant(None);
        assert!(Canary::ALL.iter().all(|&canary| !bites(canary)));
    }
}
