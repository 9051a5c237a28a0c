//! Lists that stay close to what they hold: they grow by an eighth, not by doubling, and give back what they no longer need.
//!
//! For what is kept long and exists many times (what sessions remember) or once and large (a shard's tables). Never for queues.

use std::collections::VecDeque;

use smallvec::SmallVec;

/// A list whose room can be told and changed.
pub(crate) trait List {
    /// What it is a list of.
    type Entry;
    /// Entries.
    fn length(&self) -> usize;
    /// Entries that there is room for.
    fn room(&self) -> usize;
    /// Makes room for so many more, and not for others.
    fn widen(&mut self, more: usize);
    /// Gives back the room that nothing needs.
    fn shrink(&mut self);
    /// Appends an entry.
    fn append(&mut self, entry: Self::Entry);
}

macro_rules! list {
    ($($list:ty, $append:ident;)*) => { $(
        impl<T> List for $list {
            type Entry = T;

            fn length(&self) -> usize {
                self.len()
            }

            fn room(&self) -> usize {
                self.capacity()
            }

            fn widen(&mut self, more: usize) {
                self.reserve_exact(more);
            }

            fn shrink(&mut self) {
                self.shrink_to_fit();
            }

            fn append(&mut self, entry: T) {
                self.$append(entry);
            }
        }
    )* };
}

list! {
    Vec<T>, push;
    VecDeque<T>, push_back;
    SmallVec<[T; 1]>, push;
}

/// Makes place for one more entry.
pub(crate) fn make_place(list: &mut impl List) {
    if list.length() == list.room() {
        list.widen((list.length() / 8).max(1));
    }
}

/// Appends an entry.
pub(crate) fn push<L: List>(list: &mut L, entry: L::Entry) {
    make_place(list);
    list.append(entry);
}

/// Puts an entry at an index of a table; the places before it that there are none for yet are vacant.
pub(crate) fn put<T>(table: &mut Vec<Option<T>>, index: usize, entry: T) {
    while table.len() <= index {
        push(table, None);
    }
    table[index] = Some(entry);
}

/// Gives back places after entries were removed.
pub(crate) fn tighten(list: &mut impl List) {
    if list.room() > list.length() + list.length() / 8 {
        list.shrink();
    }
}
