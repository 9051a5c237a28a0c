//! What a run counts to hold it against what its script states.
//!
//! Never decides anything.

use super::script::Counts;

/// One count of each kind.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally {
    /// Connections that the script cut.
    pub(crate) cuts: u64,
    /// GETs with a cursor.
    pub(crate) resumes: u64,
    /// Resumed streams that brought what was missed.
    pub(crate) replays: u64,
    /// Gaps that the server told.
    pub(crate) resyncs: u64,
    /// Sessions that the server said are gone.
    pub(crate) lost: u64,
    /// Bad cursors that were refused.
    pub(crate) refusals: u64,
    /// Calls that got their result.
    pub(crate) answers: u64,
    /// Calls whose outcome is not known.
    pub(crate) unknown: u64,
}

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

impl Tally {
    /// Both together.
    pub(crate) fn add(&mut self, other: &Self) {
        let Self { cuts, resumes, replays, resyncs, lost, refusals, answers, unknown } = other;
        self.cuts += cuts;
        self.resumes += resumes;
        self.replays += replays;
        self.resyncs += resyncs;
        self.lost += lost;
        self.refusals += refusals;
        self.answers += answers;
        self.unknown += unknown;
    }

    /// Each count that `stated` has, beside what it was.
    pub(crate) fn against(&self, stated: &Counts) -> Vec<Bound> {
        let Self { cuts, resumes, replays, resyncs, lost, refusals, answers, unknown } = *self;
        let reached = [cuts, resumes, replays, resyncs, lost, refusals, answers, unknown];
        let named = stated.named().into_iter().zip(reached);
        named.filter_map(|((name, stated), reached)| Some(Bound { name, stated: stated?, reached })).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_stated_count_meets_its_own() {
        let mut tally = Tally { cuts: 1, resumes: 2, replays: 3, resyncs: 4, lost: 5, refusals: 6, answers: 7, unknown: 8 };
        tally.add(&tally.clone());
        let stated = Counts { cuts: Some(0), lost: Some(11), unknown: Some(1), ..Counts::default() };
        let bound = |name, stated, reached| Bound { name, stated, reached };
        assert_eq!(tally.against(&stated), [bound("cuts", 0, 2), bound("lost", 11, 10), bound("unknown", 1, 16)]);
    }
}
