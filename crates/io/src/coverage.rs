//! A set of bytes of a buffer: those that hold data.

use memory::Segment;

/// Set of bytes of a buffer.
#[derive(Clone, Debug)]
pub struct Coverage {
    words: Vec<u64>,
    len: usize,
}

impl Coverage {
    /// Makes an empty set for a buffer of so many bytes.
    pub fn new(len: usize) -> Self {
        Self { words: vec![0; len.div_ceil(64)], len }
    }

    /// Adds bytes `from..from + len`, which the buffer has.
    pub fn add(&mut self, from: usize, len: usize) {
        let (mut at, end) = (from, from + len);
        while at < end {
            let (word, bit) = (at / 64, at % 64);
            let count = (64 - bit).min(end - at);
            self.words[word] |= u64::MAX >> (64 - count) << bit;
            at += count;
        }
    }

    /// Returns the runs of bytes in the set, in ascending order.
    pub fn runs(&self) -> impl Iterator<Item = Segment> + '_ {
        let mut at = 0;
        std::iter::from_fn(move || {
            let first = self.next(at, true)?;
            let end = self.next(first, false).unwrap_or(self.len);
            at = end;
            Some(Segment { offset: first as isize, len: end - first })
        })
    }

    /// Returns the first byte from `at` on that is in the set, or is not.
    fn next(&self, at: usize, is_in: bool) -> Option<usize> {
        let mut word = at / 64;
        let mut skipped = at % 64;
        loop {
            let bits = *self.words.get(word)?;
            let wanted = if is_in { bits } else { !bits } >> skipped << skipped;
            if wanted != 0 {
                let found = word * 64 + wanted.trailing_zeros() as usize;
                return (found < self.len).then_some(found);
            }
            word += 1;
            skipped = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn runs_are_those_of_the_bytes_added(
            len in 1..400usize, parts in proptest::collection::vec((0..400usize, 0..150usize), 0..8),
        ) {
            let (mut coverage, mut model) = (Coverage::new(len), vec![false; len]);
            for (from, count) in parts {
                let from = from.min(len);
                let count = count.min(len - from);
                coverage.add(from, count);
                model[from..from + count].fill(true);
            }
            let mut found = vec![false; len];
            let mut last = None;
            for run in coverage.runs() {
                prop_assert!(run.len > 0 && last.is_none_or(|end| end < run.offset), "they do not touch");
                found[run.offset as usize..][..run.len].fill(true);
                last = Some(run.offset + run.len as isize);
            }
            prop_assert_eq!(found, model);
        }
    }
}
