//! What a run counts, and what a script states of it.
//!
//! Never decides anything.

use serde::Deserialize;

/// One value for each thing that is counted: a number for a run ([`Tally`]), a bound or none for a script ([`Stated`]).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct Counts<T: Default> {
    /// Connections that the script cut.
    pub(crate) cuts: T,
    /// GETs with a cursor.
    pub(crate) resumes: T,
    /// Resumed streams that brought what was missed.
    pub(crate) replays: T,
    /// Gaps that the server told (`resync`).
    pub(crate) resyncs: T,
    /// Sessions that the server said are gone.
    pub(crate) lost: T,
    /// Bad cursors that were refused.
    pub(crate) refusals: T,
    /// Calls that got their result.
    pub(crate) answers: T,
    /// Calls whose outcome nobody knows: the server said so, or they were lost with their session, or cut before there was a cursor.
    pub(crate) unknown: T,
}

/// What a run counted.
pub(crate) type Tally = Counts<u64>;

/// What a script bounds. Each is for the script's own number of sessions, and scales with it.
pub(crate) type Stated = Counts<Option<u64>>;

/// A count that a script bounds, held against what it was.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Bound {
    /// Of what.
    pub(crate) name: &'static str,
    /// What the script states.
    pub(crate) stated: u64,
    /// What it was.
    pub(crate) reached: u64,
}

impl<T: Copy + Default> Counts<T> {
    /// Its parts with their names, as scripts and reports have them.
    pub(crate) fn named(&self) -> [(&'static str, T); 8] {
        let Self { cuts, resumes, replays, resyncs, lost, refusals, answers, unknown } = *self;
        [
            ("cuts", cuts),
            ("resumes", resumes),
            ("replays", replays),
            ("resyncs", resyncs),
            ("lost", lost),
            ("refusals", refusals),
            ("answers", answers),
            ("unknown", unknown),
        ]
    }

    /// Each part made of its fellows.
    fn zip<U: Copy + Default, R: Default>(&self, other: &Counts<U>, each: impl Fn(T, U) -> R) -> Counts<R> {
        Counts {
            cuts: each(self.cuts, other.cuts),
            resumes: each(self.resumes, other.resumes),
            replays: each(self.replays, other.replays),
            resyncs: each(self.resyncs, other.resyncs),
            lost: each(self.lost, other.lost),
            refusals: each(self.refusals, other.refusals),
            answers: each(self.answers, other.answers),
            unknown: each(self.unknown, other.unknown),
        }
    }
}

impl Tally {
    /// Both together.
    pub(crate) fn plus(&self, other: &Self) -> Self {
        self.zip(other, |ours, theirs| ours + theirs)
    }

    /// Each count that `stated` bounds, beside what it was.
    pub(crate) fn against(&self, stated: &Stated) -> Vec<Bound> {
        let both = self.named().into_iter().zip(stated.named());
        both.filter_map(|((name, reached), (_, stated))| Some(Bound { name, stated: stated?, reached })).collect()
    }
}

impl Stated {
    /// The bounds for `to` sessions, where these are for `of`.
    pub(crate) fn scaled(&self, of: u32, to: u32, round_up: bool) -> Self {
        let scale = |count: u64| {
            let product = u128::from(count) * u128::from(to);
            let part = if round_up { product.div_ceil(of.into()) } else { product / u128::from(of) };
            u64::try_from(part).unwrap_or(u64::MAX)
        };
        self.zip(&Counts::<()>::default(), |count, ()| count.map(scale))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stated_count_meets_its_own() {
        let tally = Tally { cuts: 1, resumes: 2, replays: 3, resyncs: 4, lost: 5, refusals: 6, answers: 7, unknown: 8 };
        let stated = Stated { cuts: Some(0), lost: Some(11), unknown: Some(1), ..Stated::default() };
        let bound = |name, stated, reached| Bound { name, stated, reached };
        assert_eq!(tally.plus(&tally).against(&stated), [bound("cuts", 0, 2), bound("lost", 11, 10), bound("unknown", 1, 16)]);
    }
}
