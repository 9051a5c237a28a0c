//! Which request ids a session has seen, in little memory: integers as intervals, the rest as they are.
//!
//! Never forgets one; where the bound leaves no room it says so instead.

use std::collections::BTreeSet;

use smallvec::SmallVec;

use super::id::Id;

/// The ids seen so far. Empty it owns no heap, and neither does a client that counts.
#[derive(Clone, Debug)]
pub struct SeenIds {
    /// Sorted, and neither overlapping nor touching. The first is kept in line.
    intervals: SmallVec<[Interval; 1]>,
    /// Strings, and integers above `i64::MAX`. A tree, because ids are the client's choice and a hash would need a secret.
    others: BTreeSet<Id>,
    /// Of intervals, and of the others.
    bound: usize,
}

/// All integers from `first` to `last`, both included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Interval {
    first: i64,
    last: i64,
}

/// The id was not seen, and cannot be remembered either.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Overflow;

/// How an integer stands to the intervals.
enum Place {
    /// In one of them.
    Inside,
    /// Before the one at this index, touching its neighbours or not.
    Before { at: usize, touches_previous: bool, touches_next: bool },
}

impl SeenIds {
    /// Nothing seen; at most `bound` intervals and `bound` other ids will be.
    pub fn new(bound: usize) -> Self {
        Self { intervals: SmallVec::new(), others: BTreeSet::new(), bound }
    }

    /// Whether `id` was seen.
    pub fn contains(&self, id: &Id) -> bool {
        match id {
            Id::Integer(value) => matches!(self.place(*value), Place::Inside),
            Id::Large(_) | Id::Text(_) => self.others.contains(id),
        }
    }

    /// Whether `id` is fresh: what `insert` would answer, without inserting.
    pub fn check(&self, id: &Id) -> Result<bool, Overflow> {
        let (fresh, grows) = match id {
            Id::Integer(value) => match self.place(*value) {
                Place::Inside => (false, false),
                Place::Before { touches_previous, touches_next, .. } => (true, !touches_previous && !touches_next),
            },
            Id::Large(_) | Id::Text(_) => {
                let fresh = !self.others.contains(id);
                (fresh, fresh)
            }
        };
        let held = if matches!(id, Id::Integer(_)) { self.intervals.len() } else { self.others.len() };
        if grows && held >= self.bound { Err(Overflow) } else { Ok(fresh) }
    }

    /// Remembers `id` as seen, and says whether it is fresh. Changes nothing on `Overflow`.
    pub fn insert(&mut self, id: &Id) -> Result<bool, Overflow> {
        let fresh = self.check(id)?;
        if fresh {
            match id {
                Id::Integer(value) => self.insert_integer(*value),
                Id::Large(_) | Id::Text(_) => {
                    self.others.insert(id.clone());
                }
            }
        }
        Ok(fresh)
    }

    fn place(&self, value: i64) -> Place {
        let at = self.intervals.partition_point(|interval| interval.last < value);
        let next = self.intervals.get(at);
        if next.is_some_and(|next| next.first <= value) {
            return Place::Inside;
        }
        let previous = at.checked_sub(1).map(|previous| self.intervals[previous]);
        Place::Before {
            at,
            // Neither sum overflows: `previous.last < value < next.first`.
            touches_previous: previous.is_some_and(|previous| previous.last + 1 == value),
            touches_next: next.is_some_and(|next| value + 1 == next.first),
        }
    }

    fn insert_integer(&mut self, value: i64) {
        match self.place(value) {
            Place::Inside => {}
            Place::Before { at, touches_previous: true, touches_next: true } => {
                self.intervals[at - 1].last = self.intervals[at].last;
                self.intervals.remove(at);
            }
            Place::Before { at, touches_previous: true, .. } => self.intervals[at - 1].last = value,
            Place::Before { at, touches_next: true, .. } => self.intervals[at].first = value,
            Place::Before { at, .. } => self.intervals.insert(at, Interval { first: value, last: value }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::collections::HashSet;

    fn text(text: &str) -> Id {
        Id::Text(text.into())
    }

    #[test]
    fn a_client_that_counts_costs_no_heap() {
        assert!(size_of::<SeenIds>() <= 64, "{}", size_of::<SeenIds>());
        let mut seen = SeenIds::new(8);
        for id in (0..10_000).rev() {
            assert_eq!(seen.insert(&Id::Integer(id)), Ok(true));
        }
        assert_eq!((seen.intervals.len(), seen.intervals.spilled()), (1, false));
        assert_eq!(seen.insert(&Id::Integer(5_000)), Ok(false));
    }

    #[test]
    fn the_ends_of_the_range_are_ids_like_others() {
        let mut seen = SeenIds::new(8);
        for id in [
            Id::Integer(i64::MIN),
            Id::Integer(i64::MAX),
            Id::from(u64::MAX),
            Id::Integer(i64::MIN + 1),
            Id::Integer(i64::MAX - 1),
        ] {
            assert_eq!((seen.contains(&id), seen.insert(&id), seen.contains(&id)), (false, Ok(true), true));
        }
        assert_eq!(seen.intervals.len(), 2);
    }

    #[test]
    fn a_full_memory_takes_what_needs_no_room() {
        let mut seen = SeenIds::new(2);
        for id in [10, 20] {
            assert_eq!(seen.insert(&Id::Integer(id)), Ok(true));
        }
        assert_eq!(seen.insert(&Id::Integer(15)), Err(Overflow));
        assert!(!seen.contains(&Id::Integer(15)));
        assert_eq!(seen.insert(&Id::Integer(11)), Ok(true), "an interval grows");
        assert_eq!(seen.insert(&Id::Integer(20)), Ok(false));
        for id in ["a", "b"] {
            assert_eq!(seen.insert(&text(id)), Ok(true), "strings have a bound of their own");
        }
        assert_eq!((seen.insert(&text("c")), seen.insert(&text("a"))), (Err(Overflow), Ok(false)));
    }

    #[test]
    fn an_integer_and_its_spelling_are_two_ids() {
        let mut seen = SeenIds::new(8);
        assert_eq!((seen.insert(&Id::Integer(1)), seen.insert(&text("1"))), (Ok(true), Ok(true)));
    }

    /// How many intervals a set of integers makes.
    fn intervals(seen: &HashSet<Id>) -> usize {
        let starts = |id: &&Id| match id {
            Id::Integer(value) => value.checked_sub(1).is_none_or(|previous| !seen.contains(&Id::Integer(previous))),
            Id::Large(_) | Id::Text(_) => false,
        };
        seen.iter().filter(starts).count()
    }

    fn id() -> impl Strategy<Value = Id> {
        prop_oneof![
            4 => (0i64..24).prop_map(Id::Integer),
            1 => prop::sample::select(vec![i64::MIN, i64::MIN + 1, i64::MAX - 1, i64::MAX]).prop_map(Id::Integer),
            1 => (u64::MAX - 2..=u64::MAX).prop_map(Id::from),
            1 => "[a-e0-1]".prop_map(|text| Id::Text(text.into())),
        ]
    }

    proptest! {
        #[test]
        fn as_a_set_that_keeps_everything(ids in prop::collection::vec(id(), 0..80), bound in 0usize..12) {
            let mut seen = SeenIds::new(bound);
            let mut oracle = HashSet::new();
            for id in ids {
                let expected = if oracle.contains(&id) {
                    Ok(false)
                } else {
                    let mut with = oracle.clone();
                    with.insert(id.clone());
                    let others = |set: &HashSet<Id>| set.iter().filter(|id| !matches!(id, Id::Integer(_))).count();
                    // An id that makes neither more intervals nor more others needs no room, however full the memory is.
                    let grows = intervals(&with) > intervals(&oracle) || others(&with) > others(&oracle);
                    let full = if matches!(id, Id::Integer(_)) { intervals(&with) > bound } else { others(&with) > bound };
                    if grows && full {
                        Err(Overflow)
                    } else {
                        oracle = with;
                        Ok(true)
                    }
                };
                prop_assert_eq!(seen.check(&id), expected);
                prop_assert_eq!(seen.insert(&id), expected);
                prop_assert_eq!(seen.contains(&id), oracle.contains(&id));
                prop_assert_eq!(seen.intervals.len(), intervals(&oracle));
            }
            for id in (-1..26).map(Id::Integer) {
                prop_assert_eq!(seen.contains(&id), oracle.contains(&id));
            }
        }
    }
}
