//! Chance, from one seed: SplitMix64, a dozen lines that no dependency's update can change under a recorded seed.
//!
//! Never asks the operating system for anything.

/// A stream of pseudo-random numbers; its first ones may be written by somebody.
#[derive(Clone, Debug)]
pub(crate) struct Rng {
    state: u64,
    /// What decides before chance does, two bytes a number.
    script: std::vec::IntoIter<[u8; 2]>,
}

impl Rng {
    /// The stream of this seed.
    pub(crate) fn new(seed: u64) -> Self {
        Self { state: seed, script: Vec::new().into_iter() }
    }

    /// A stream that these bytes decide, and their hash once they are used up.
    pub(crate) fn scripted(script: &[u8]) -> Self {
        let hash = |hash: u64, byte: &u8| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
        let state = script.iter().fold(0xcbf2_9ce4_8422_2325, hash);
        let pairs: Vec<_> = script.chunks_exact(2).map(|pair| [pair[0], pair[1]]).collect();
        Self { state, script: pairs.into_iter() }
    }

    /// 64 bits.
    pub(crate) fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.state;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^= z >> 31;
        // Choices are made by the upper bits.
        match self.script.next() {
            Some([high, low]) => (z >> 16) | (u64::from(high) << 56) | (u64::from(low) << 48),
            None => z,
        }
    }

    /// A number below `bound`; 0 where that is 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(bound)) >> 64) as u64
    }

    /// An index below `bound`.
    pub(crate) fn index(&mut self, bound: usize) -> usize {
        self.below(bound as u64) as usize
    }

    /// A number of an inclusive range.
    pub(crate) fn range(&mut self, from: u64, to: u64) -> u64 {
        from + self.below(to - from + 1)
    }

    /// True so many times in a thousand.
    pub(crate) fn chance(&mut self, permille: u32) -> bool {
        self.below(1000) < u64::from(permille)
    }

    /// One of these.
    pub(crate) fn pick<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.index(from.len())]
    }

    /// An index by weight. Some weight is not zero.
    pub(crate) fn weighted(&mut self, weights: &[u32]) -> usize {
        let mut left = self.below(weights.iter().map(|&weight| u64::from(weight)).sum());
        for (index, &weight) in weights.iter().enumerate() {
            match left.checked_sub(u64::from(weight)) {
                Some(rest) => left = rest,
                None => return index,
            }
        }
        weights.len() - 1
    }
}
