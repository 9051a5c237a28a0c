//! Where each ring stands among the others: by size, by age, by acknowledgement, and by the age of its pinned events among those of
//! its holder.
//!
//! Never keeps a place that a ring does not have: `update` is told every change.

use std::collections::{BTreeMap, BTreeSet};

use super::cost::tree_entry;
use super::size_class;
use crate::time::Instant;

/// A ring's place in the log's table.
pub(super) type Slot = u32;

/// Where a ring stands. The default stands nowhere.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Standing {
    /// The size class of its ordinary events.
    pub(super) size: u8,
    /// When its first event will be too old.
    pub(super) due: Option<Instant>,
    /// Whether a buffer comes free by evicting what was acknowledged.
    pub(super) acknowledged: bool,
    /// When its first pinned event came.
    pub(super) pinned_since: Option<Instant>,
}

/// The places of all rings.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// To within a factor of two.
    by_size: BTreeSet<(u8, Slot)>,
    by_age: BTreeSet<(Instant, Slot)>,
    acknowledged: BTreeSet<Slot>,
    by_holder: BTreeSet<(u32, Instant, Slot)>,
    /// What the pinned events of each holder cost.
    holders: BTreeMap<u32, usize>,
    /// To within a factor of two.
    holders_by_size: BTreeSet<(u8, u32)>,
}

/// What one change to one ring may add to all the trees.
pub(super) const GROWTH: usize = BY_SIZE + BY_AGE + ACKNOWLEDGED + BY_HOLDER + HOLDERS + HOLDERS_BY_SIZE;
const BY_SIZE: usize = tree_entry(size_of::<(u8, Slot)>());
const BY_AGE: usize = tree_entry(size_of::<(Instant, Slot)>());
const ACKNOWLEDGED: usize = tree_entry(size_of::<Slot>());
const BY_HOLDER: usize = tree_entry(size_of::<(u32, Instant, Slot)>());
const HOLDERS: usize = tree_entry(size_of::<u32>() + size_of::<usize>());
const HOLDERS_BY_SIZE: usize = tree_entry(size_of::<(u8, u32)>());

impl Index {
    /// What the trees cost.
    pub(super) fn cost(&self) -> usize {
        self.evictable()
            + self.by_holder.len() * BY_HOLDER
            + self.holders.len() * HOLDERS
            + self.holders_by_size.len() * HOLDERS_BY_SIZE
    }

    /// The part of it that evicting every ordinary event would free, or more.
    pub(super) fn evictable(&self) -> usize {
        self.by_size.len() * BY_SIZE + self.by_age.len() * BY_AGE + self.acknowledged.len() * ACKNOWLEDGED
    }

    /// A ring's standing has changed.
    pub(super) fn update(&mut self, slot: Slot, holder: u32, before: &Standing, after: &Standing) {
        let sized = |standing: &Standing| (standing.size > 0).then_some((standing.size, slot));
        put(&mut self.by_size, sized(before), sized(after));
        put(&mut self.by_age, before.due.map(|due| (due, slot)), after.due.map(|due| (due, slot)));
        put(&mut self.acknowledged, before.acknowledged.then_some(slot), after.acknowledged.then_some(slot));
        let held = |standing: &Standing| standing.pinned_since.map(|since| (holder, since, slot));
        put(&mut self.by_holder, held(before), held(after));
    }

    /// What a holder has pinned has changed, by what one of its rings has.
    pub(super) fn count_pinned(&mut self, holder: u32, before: usize, after: usize) {
        if before == after {
            return;
        }
        let sum = self.holders.entry(holder).or_default();
        let old = size_class(*sum);
        *sum = *sum - before + after;
        let new = size_class(*sum);
        if *sum == 0 {
            self.holders.remove(&holder);
        }
        put(&mut self.holders_by_size, (old > 0).then_some((old, holder)), (new > 0).then_some((new, holder)));
    }

    /// A ring that holds the most, and what it holds may be evicted.
    pub(super) fn largest(&self) -> Option<Slot> {
        self.by_size.last().map(|&(_, slot)| slot)
    }

    pub(super) fn first_acknowledged(&self) -> Option<Slot> {
        self.acknowledged.first().copied()
    }

    /// The ring whose first event is the first to be too old, and when.
    pub(super) fn first_due(&self) -> Option<(Instant, Slot)> {
        self.by_age.first().copied()
    }

    /// The ring with the oldest pinned event of the largest holder.
    pub(super) fn oldest_of_largest_holder(&self) -> Option<Slot> {
        let &(_, holder) = self.holders_by_size.last()?;
        let oldest = self.by_holder.range((holder, Instant::ORIGIN, 0)..).next();
        oldest.filter(|&&(of, _, _)| of == holder).map(|&(_, _, slot)| slot)
    }
}

/// Moves an entry of a set.
fn put<T: Ord>(set: &mut BTreeSet<T>, before: Option<T>, after: Option<T>) {
    if before == after {
        return;
    }
    if let Some(before) = before {
        set.remove(&before);
    }
    set.extend(after);
}

/// Recomputes the long way what is kept.
#[cfg(test)]
impl Index {
    pub(super) fn audit(&self, rings: impl Iterator<Item = (Slot, u32, usize, Standing)>) {
        let mut expected = Self::default();
        for (slot, holder, pinned, standing) in rings {
            expected.update(slot, holder, &Standing::default(), &standing);
            expected.count_pinned(holder, 0, pinned);
        }
        assert_eq!(format!("{self:?}"), format!("{expected:?}"));
    }
}
