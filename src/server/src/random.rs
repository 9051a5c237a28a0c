//! Random numbers of a shard, from the operating system, a buffer at a time.
//!
//! Session ids are credentials where callers are anonymous: never a generator that can be guessed.

/// Numbers drawn at once: one system call for sixteen sessions.
const DRAWN: usize = 32;

/// A buffer of random numbers.
pub(crate) struct Random {
    numbers: [u64; DRAWN],
    left: usize,
}

impl Random {
    pub(crate) fn new() -> Self {
        Self { numbers: [0; DRAWN], left: 0 }
    }

    pub(crate) fn next(&mut self) -> u64 {
        if self.left == 0 {
            let mut bytes = [0; DRAWN * 8];
            // A system without random numbers can mint no session id: there is nothing to serve.
            getrandom::fill(&mut bytes).expect("the operating system has random numbers");
            for (number, bytes) in self.numbers.iter_mut().zip(bytes.as_chunks::<8>().0) {
                *number = u64::from_ne_bytes(*bytes);
            }
            self.left = DRAWN;
        }
        self.left -= 1;
        // Used once: what was given out is not kept.
        std::mem::take(&mut self.numbers[self.left])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_do_not_repeat_over_several_buffers() {
        let mut random = Random::new();
        let drawn: std::collections::HashSet<_> = (0..DRAWN * 3).map(|_| random.next()).collect();
        assert_eq!(drawn.len(), DRAWN * 3);
    }
}
