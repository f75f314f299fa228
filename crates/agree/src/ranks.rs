//! Sets of ranks.

/// A set of ranks of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankSet(Vec<u64>);

impl RankSet {
    /// Makes a set of these ranks of a group of `size`.
    pub fn of(size: usize, ranks: impl IntoIterator<Item = u32>) -> Self {
        let mut set = Self(vec![0; words(size)]);
        for rank in ranks {
            set.0[rank as usize / 64] |= 1 << (rank % 64);
        }
        set
    }

    /// True if a rank is in the set.
    pub fn contains(&self, rank: u32) -> bool {
        self.0.get(rank as usize / 64).is_some_and(|word| word >> (rank % 64) & 1 == 1)
    }

    /// The ranks, in order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        (0..self.0.len() as u32 * 64).filter(|rank| self.contains(*rank))
    }

    /// True if all ranks of this set are in the other one.
    pub fn is_within(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(own, other)| own & !other == 0)
    }

    pub(crate) fn unite(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own |= other);
    }

    pub(crate) fn intersect(&mut self, other: &Self) {
        self.0.iter_mut().zip(&other.0).for_each(|(own, other)| *own &= other);
    }

    pub(crate) fn emit(&self) -> impl Iterator<Item = u8> {
        self.0.iter().flat_map(|word| word.to_le_bytes())
    }

    /// Decodes a set of a group of `size`, and returns the bytes behind it.
    pub(crate) fn parse(bytes: &[u8], size: usize) -> Option<(Self, &[u8])> {
        let (own, rest) = bytes.split_at_checked(words(size) * 8)?;
        let (words, _) = own.as_chunks::<8>();
        Some((Self(words.iter().map(|word| u64::from_le_bytes(*word)).collect()), rest))
    }
}

/// Number of words of a set of a group of `size`.
pub(crate) const fn words(size: usize) -> usize {
    size.div_ceil(64)
}
