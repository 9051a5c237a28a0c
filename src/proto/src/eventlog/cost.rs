//! What the containers of the log cost.
//!
//! Never asks an allocator: a container is charged by its length, at least what it takes. So evicting one thing never costs more
//! than it frees, however the containers grow. (Not charged: the root node of each index, together under 2 KiB.)

/// The reference count that sharing a buffer adds.
pub(super) const SHARED: usize = 3 * size_of::<usize>();

/// What an entry of a B-tree costs at most. A node has places for 11 entries, a header of 12 bytes, and holds at least 5; at most
/// one in six is an inner one, with 12 pointers more.
pub(super) const fn tree_entry(size: usize) -> usize {
    (11 * size + 12 + 7 + 2 * size_of::<usize>()).div_ceil(5)
}

/// What a list of `length` entries costs that grows and shrinks by [`crate::lists`].
pub(super) const fn list(length: usize, size: usize) -> usize {
    let exact = length * size;
    exact + exact / 8
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::*;
    use crate::lists::{push, tighten};

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
