//! Counts by kind, where the kinds are words that a server chose.
//!
//! Never grows past a bound, and never keeps a character that a terminal would act on.

/// Kinds told apart; any further one counts as [`OTHER`]. Reason: the words come from the server.
const KINDS_MAX: usize = 64;
/// Bytes of a kind; the rest of a longer word is left out.
const KIND_BYTES_MAX: usize = 64;
/// The kind of all that came after [`KINDS_MAX`] others.
const OTHER: &str = "other";

/// Counts by kind, in the order in which the kinds came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Tally(Vec<(Box<str>, u64)>);

impl Tally {
    /// Counts `times` more of `kind`, and says which in the order it is.
    pub(super) fn count(&mut self, kind: &str, times: u64) -> usize {
        let index = self.position(kind);
        self.0[index].1 += times;
        index
    }

    /// Adds another's; says where each of its kinds is among ours.
    pub(super) fn add(&mut self, other: &Self) -> Vec<usize> {
        other.0.iter().map(|(kind, count)| self.count(kind, *count)).collect()
    }

    /// How many of `kind`.
    pub(crate) fn get(&self, kind: &str) -> u64 {
        self.iter().find(|(known, _)| *known == kind).map_or(0, |(_, count)| count)
    }

    /// All kinds with their counts.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (&str, u64)> {
        self.0.iter().map(|(kind, count)| (&**kind, *count))
    }

    fn position(&mut self, kind: &str) -> usize {
        if let Some(index) = self.find(kind) {
            return index;
        }
        let kind = if self.0.len() < KINDS_MAX { cleaned(kind) } else { OTHER.into() };
        self.find(&kind).unwrap_or_else(|| {
            self.0.push((kind.into(), 0));
            self.0.len() - 1
        })
    }

    fn find(&self, kind: &str) -> Option<usize> {
        self.0.iter().position(|(known, _)| **known == *kind)
    }
}

fn cleaned(kind: &str) -> String {
    let kind = &kind[..kind.floor_char_boundary(KIND_BYTES_MAX)];
    kind.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_past_the_bound_are_counted_as_other() {
        let mut tally = Tally::default();
        for kind in 0..KINDS_MAX + 10 {
            tally.count(&kind.to_string(), 1);
        }
        assert_eq!(tally.get("63"), 1);
        assert_eq!(tally.get("64"), 0);
        assert_eq!(tally.get(OTHER), 10);
        assert_eq!(tally.iter().count(), KINDS_MAX + 1);
    }

    #[test]
    fn a_kind_has_no_control_characters_and_a_bounded_length() {
        let mut tally = Tally::default();
        tally.count("\x1b[2J\r\n", 1);
        tally.count("\x1b[2J\r\n", 1);
        assert_eq!(tally.get("?[2J??"), 2);
        tally.count(&"é".repeat(KIND_BYTES_MAX), 1);
        assert!(tally.iter().all(|(kind, _)| kind.len() <= KIND_BYTES_MAX));
    }

    #[test]
    fn another_tally_is_added_by_word_whatever_its_order() {
        let (mut ours, mut theirs) = (Tally::default(), Tally::default());
        ours.count("tail", 1);
        ours.count("replay", 2);
        theirs.count("replay", 10);
        theirs.count("resync", 20);
        assert_eq!(ours.add(&theirs), [1, 2]);
        assert_eq!(ours.iter().collect::<Vec<_>>(), [("tail", 1), ("replay", 12), ("resync", 20)]);
    }
}
