//! What the containers of the log cost, and lists that keep to it.
//!
//! Never asks an allocator: a container is charged by its length, at least what it takes. So evicting one thing never costs more
//! than it frees, however the containers grow. (Not charged: the root node of each index, together under 2 KiB.)

use std::collections::VecDeque;

/// The reference count that sharing a buffer adds.
pub(super) const SHARED: usize = 3 * size_of::<usize>();

/// What an entry of a B-tree costs at most. A node has places for 11 entries, a header of 12 bytes, and holds at least 5; at most
/// one in six is an inner one, with 12 pointers more.
pub(super) const fn tree_entry(size: usize) -> usize {
    (11 * size + 12 + 7 + 2 * size_of::<usize>()).div_ceil(5)
}

/// What a list of `length` entries costs that grows by `push` and `make_place` and is kept by `tighten`.
pub(super) const fn list(length: usize, size: usize) -> usize {
    let exact = length * size;
    exact + exact / 8
}

/// Makes place for one more entry: a list grows by an eighth, not by doubling.
pub(super) fn make_place<T>(list: &mut VecDeque<T>) {
    if list.len() == list.capacity() {
        list.reserve_exact((list.len() / 8).max(1));
    }
}

/// Appends an entry.
pub(super) fn push<T>(list: &mut VecDeque<T>, entry: T) {
    make_place(list);
    list.push_back(entry);
}

/// Gives back places after entries were removed.
pub(super) fn tighten<T>(list: &mut VecDeque<T>) {
    if list.capacity() > list.len() + list.len() / 8 {
        list.shrink_to_fit();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_never_takes_more_than_it_is_charged() {
        let mut entries = VecDeque::new();
        let charged = |entries: &VecDeque<[u64; 5]>| list(entries.len(), 40) >= entries.capacity() * 40;
        for round in [3, 70, 500] {
            while entries.len() < round {
                push(&mut entries, [0; 5]);
                assert!(charged(&entries), "{} of {}", entries.len(), entries.capacity());
            }
            while entries.len() > round / 3 {
                entries.pop_front();
                tighten(&mut entries);
                assert!(charged(&entries), "{} of {}", entries.len(), entries.capacity());
            }
        }
    }
}
