//! The verdict: what a client that comes back is answered, as one total function of what it presents and what is retained.
//!
//! Rows 8 to 14 of the boundary's GET table (rows 0 to 7 refuse before a cursor exists). The same rule, `step`, moves every reader
//! along its stream afterwards, so a gap found on return and a gap found by a slow reader cannot be told differently.
//! Never allocates, never looks at bytes, never changes anything.

use crate::canary::{self, Canary};
use crate::ids::{Cursor, Incarnation, Position};
use crate::refusal::Ended;

/// What the session still knows of the stream that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retained {
    /// The session's present life.
    pub incarnation: Incarnation,
    /// The stream: the cursor's, or the standalone one.
    pub stream: Stream,
}

/// The state of one stream, as seen from a reader's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// No stream of this number was begun in this life.
    NeverBegun,
    /// It finished so long ago that its tombstone is gone.
    Forgotten,
    /// It is known.
    Known(Reach),
}

/// How far a stream goes, as seen from a reader's position.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Reach {
    /// The last event issued; `Position::START` when none was.
    pub last: Position,
    /// The first event after the reader that can be delivered.
    pub following: Option<Following>,
    /// Whether nothing more will be issued.
    pub finished: bool,
    /// On the standalone stream: the last event ever written to a connection. A GET without a cursor goes on from there.
    pub written: Position,
}

/// An event that can be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Following {
    /// Where it stands.
    pub position: Position,
    /// Whether the event itself is lost and an `outcome_unknown` stands in for it (only a result has a stand-in).
    pub stand_in: bool,
}

/// Events that will never be delivered, told by a `resync`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Gap {
    /// Where the `resync` stands: right before `earliest`, or at the last event issued.
    pub at: Position,
    /// The first event that will follow, where one can be named.
    pub earliest: Option<Position>,
    /// How many events are lost (a result that has only a stand-in is one of them).
    pub lost: u64,
}

/// What a reader at a position gets next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// The very next event.
    Next(Following),
    /// A gap: first the `resync`, then on from `Gap::at`.
    Gap(Gap),
    /// Nothing yet.
    Wait,
    /// Nothing, for ever.
    End,
}

/// What a well-formed return is answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Row 13 or 14: the stream, from here on; nothing precedes live.
    Tail {
        /// The reader stands here.
        from: Position,
    },
    /// Row 13 or 14: the events after this position, then live.
    Replay {
        /// The reader stands here.
        from: Position,
    },
    /// Row 11 or 14: the stream, its first event a `resync`.
    Resync {
        /// The reader stands here.
        from: Position,
        /// What it is told.
        gap: Gap,
    },
    /// Row 12: nothing more will come.
    Complete,
    /// Rows 8 and 10: 404 `session_expired` with this reason; the session lives.
    Refused(Ended),
    /// Row 9: 404 `session_expired`, reason `lineage`, and the session ends.
    LostTail,
}

/// Decides rows 8 to 14.
///
/// `presented` is the cursor, `None` for a GET without one. `retained.stream` is the state of the cursor's stream as seen from the
/// cursor's position (the standalone stream's, as seen from `written`, where there is none).
pub fn decide(presented: Option<Cursor>, retained: &Retained) -> Verdict {
    if let Some(cursor) = presented
        && cursor.incarnation() != retained.incarnation
        && !(canary::bites(Canary::ForeignLineage) && cursor.incarnation().next() == Some(retained.incarnation))
    {
        return Verdict::Refused(Ended::Incarnation);
    }
    let reach = match retained.stream {
        Stream::NeverBegun => return Verdict::LostTail,
        Stream::Forgotten => return Verdict::Refused(Ended::Forgotten),
        Stream::Known(reach) => reach,
    };
    let from = presented.map_or(reach.written, |cursor| cursor.position());
    if from > reach.last {
        return Verdict::LostTail;
    }
    match step(from, false, &reach) {
        Step::Next(_) => Verdict::Replay { from },
        Step::Gap(gap) => Verdict::Resync { from, gap },
        Step::Wait => Verdict::Tail { from },
        Step::End => Verdict::Complete,
    }
}

/// What a reader at `from` gets next. `announced`: the `resync` right before the next event was already sent to it.
pub fn step(from: Position, announced: bool, reach: &Reach) -> Step {
    match reach.following {
        Some(next) if next.position == from.next() && (announced || !next.stand_in) => Step::Next(next),
        Some(next) => Step::Gap(Gap {
            at: next.position.previous(),
            earliest: Some(next.position),
            lost: next.position.previous().since(from) + u64::from(next.stand_in),
        }),
        None if from < reach.last => Step::Gap(Gap { at: reach.last, earliest: None, lost: reach.last.since(from) }),
        None if reach.finished => Step::End,
        None => Step::Wait,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::StreamNumber;
    use proptest::prelude::*;

    /// What became of one event, for an oracle that keeps everything for ever.
    #[derive(Clone, Copy, Debug, PartialEq)]
    enum Fate {
        Held,
        Lost,
        LostResult,
    }

    /// A whole small session.
    #[derive(Clone, Debug)]
    struct World {
        incarnation: Incarnation,
        /// Streams begun in this life are 0 and 1; `forgotten` says that 1 is gone.
        forgotten: bool,
        fates: Vec<Fate>,
        finished: bool,
        written: u64,
    }

    impl World {
        fn retained(&self, stream: StreamNumber, from: u64) -> Retained {
            let following = (from.saturating_add(1)..=self.fates.len() as u64)
                .find(|&at| self.fates[at as usize - 1] != Fate::Lost)
                .map(|at| Following { position: Position::new(at), stand_in: self.fates[at as usize - 1] == Fate::LostResult });
            let known = Stream::Known(Reach {
                last: Position::new(self.fates.len() as u64),
                following,
                finished: self.finished,
                written: Position::new(self.written),
            });
            Retained {
                incarnation: self.incarnation,
                stream: match stream.0 {
                    0 => known,
                    1 if self.forgotten => Stream::Forgotten,
                    1 => known,
                    _ => Stream::NeverBegun,
                },
            }
        }

        /// The table read aloud, from the fate of every event ever issued; shares nothing with `decide` but the names.
        fn oracle(&self, cursor: Option<(u32, u32, u64)>) -> Verdict {
            let issued = self.fates.len() as u64;
            let (incarnation, stream, from) = cursor.unwrap_or((self.incarnation.0, 0, self.written));
            if incarnation != self.incarnation.0 {
                return Verdict::Refused(Ended::Incarnation);
            }
            if stream > 1 || (from > issued && !(stream == 1 && self.forgotten)) {
                return Verdict::LostTail;
            }
            if stream == 1 && self.forgotten {
                return Verdict::Refused(Ended::Forgotten);
            }
            let here = Position::new(from);
            if from == issued {
                return if self.finished { Verdict::Complete } else { Verdict::Tail { from: here } };
            }
            let rest = &self.fates[from as usize..];
            if rest[0] == Fate::Held {
                return Verdict::Replay { from: here };
            }
            let gone = rest.iter().take_while(|&&fate| fate == Fate::Lost).count() as u64;
            match rest.get(gone as usize) {
                None => Verdict::Resync { from: here, gap: Gap { at: Position::new(issued), earliest: None, lost: gone } },
                Some(&next) => Verdict::Resync {
                    from: here,
                    gap: Gap {
                        at: Position::new(from + gone),
                        earliest: Some(Position::new(from + gone + 1)),
                        lost: gone + u64::from(next == Fate::LostResult),
                    },
                },
            }
        }

        fn check(&self, cursor: Option<(u32, u32, u64)>) {
            let (stream, from) = cursor.map_or((0, self.written), |(_, stream, from)| (stream, from));
            let presented = cursor.map(|(incarnation, stream, from)| {
                Cursor::new(Incarnation(incarnation), StreamNumber(stream), Position::new(from))
            });
            let verdict = decide(presented, &self.retained(StreamNumber(stream), from));
            assert_eq!(verdict, self.oracle(cursor), "{self:?} presented {cursor:?}");
            self.walk(verdict);
        }

        /// Whoever follows a verdict gets every held event once, every other told as lost, and never moves back.
        fn walk(&self, verdict: Verdict) {
            let (begun, mut at, mut announced, mut told) = match verdict {
                Verdict::Tail { from } | Verdict::Replay { from } => (from, from, false, 0),
                Verdict::Resync { from, gap } => (from, gap.at, true, gap.lost),
                _ => return,
            };
            let mut seen = 0;
            loop {
                let Stream::Known(reach) = self.retained(StreamNumber(0), at.get()).stream else { unreachable!() };
                match step(at, announced, &reach) {
                    Step::Next(next) => {
                        seen += u64::from(!next.stand_in);
                        (at, announced) = (next.position, false);
                    }
                    Step::Gap(gap) => {
                        assert!(gap.at > at || !announced, "a resync twice at {at:?}");
                        told += gap.lost;
                        (at, announced) = (gap.at, true);
                    }
                    Step::Wait => break assert!(!self.finished),
                    Step::End => break assert!(self.finished),
                }
            }
            assert_eq!(seen + told, self.fates.len() as u64 - begun.get(), "{self:?} after {verdict:?}");
        }
    }

    /// Every state of a session with up to five events, and every cursor in and around it.
    #[test]
    fn every_small_world_agrees_with_the_oracle() {
        let mut worlds = 0u64;
        for issued in 0..=5u32 {
            for shape in 0..3u32.pow(issued) {
                let fates: Vec<_> = (0..issued)
                    .map(|at| [Fate::Held, Fate::Lost, Fate::LostResult][(shape / 3u32.pow(at) % 3) as usize])
                    .collect();
                for (finished, forgotten) in [(false, false), (false, true), (true, false), (true, true)] {
                    for written in 0..=u64::from(issued) {
                        let world = World { incarnation: Incarnation(2), forgotten, fates: fates.clone(), finished, written };
                        world.check(None);
                        for incarnation in 1..=3 {
                            for stream in 0..=2 {
                                for from in 0..=u64::from(issued) + 2 {
                                    world.check(Some((incarnation, stream, from)));
                                    worlds += 1;
                                }
                            }
                        }
                    }
                }
            }
        }
        assert!(worlds > 400_000, "only {worlds} worlds");
    }

    proptest! {
        #[test]
        fn large_worlds_agree_too(
            shape in proptest::collection::vec(0..12usize, 0..300),
            finished: bool,
            written in 0u64..300,
            from in 0u64..310,
        ) {
            let fates: Vec<_> = shape
                .iter()
                .map(|&fate| match fate { 0..5 => Fate::Held, 5..11 => Fate::Lost, _ => Fate::LostResult })
                .collect();
            let written = written.min(fates.len() as u64);
            let world = World { incarnation: Incarnation(1), forgotten: false, fates, finished, written };
            world.check(None);
            world.check(Some((1, 1, from)));
        }
    }

    #[test]
    fn a_client_that_has_the_result_is_never_handed_the_error() {
        let reach = Reach { last: Position::new(9), following: None, finished: true, written: Position::START };
        assert_eq!(step(Position::new(9), false, &reach), Step::End);
    }

    #[test]
    fn a_lost_result_is_announced_before_its_stand_in() {
        let stand_in = Following { position: Position::new(9), stand_in: true };
        let reach = Reach { last: Position::new(9), following: Some(stand_in), finished: true, written: Position::START };
        let gap = Gap { at: Position::new(8), earliest: Some(Position::new(9)), lost: 1 };
        assert_eq!(step(Position::new(8), false, &reach), Step::Gap(gap));
        assert_eq!(step(Position::new(8), true, &reach), Step::Next(stand_in));
    }
}
