//! Keys by which receives and messages are matched.

use wire::PeerId;
use wire::packet::Header;

use super::Selector;

/// Fields that a receive names: a set of bits for peer, source and tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pattern(u8);

impl Pattern {
    /// All fields are named.
    pub const EXACT: Self = Self(PEER | SOURCE | TAG);
    /// Number of patterns.
    pub const COUNT: usize = 8;

    #[inline]
    pub fn of(peer: Option<PeerId>, selector: &Selector) -> Self {
        let bit = |is_named: bool, bit: u8| if is_named { bit } else { 0 };
        let source = bit(selector.source.is_some(), SOURCE);
        Self(bit(peer.is_some(), PEER) | source | bit(selector.tag.is_some(), TAG))
    }

    #[inline]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// A set of patterns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Patterns(u8);

impl Patterns {
    pub const NONE: Self = Self(0);
    pub const EXACT: Self = Self(1 << Pattern::EXACT.0);

    #[inline]
    pub fn contains(self, pattern: Pattern) -> bool {
        self.0 >> pattern.0 & 1 != 0
    }

    #[inline]
    pub fn insert(&mut self, pattern: Pattern) {
        self.0 |= 1 << pattern.0;
    }

    #[inline]
    pub fn remove(&mut self, pattern: Pattern) {
        self.0 &= !(1 << pattern.0);
    }
}

impl Iterator for Patterns {
    type Item = Pattern;

    #[inline]
    fn next(&mut self) -> Option<Pattern> {
        let first = self.0.trailing_zeros() as u8;
        // Clears the lowest bit.
        self.0 &= self.0.checked_sub(1)?;
        Some(Pattern(first))
    }
}

/// Context and fields of a message under a pattern; omitted fields are zero. A receive accepts the
/// messages whose key under its pattern equals its own.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Key {
    context: u64,
    /// Source and tag.
    envelope: u64,
    /// Peer and pattern.
    origin: u64,
}

impl Key {
    #[inline]
    pub fn of_receive(peer: Option<PeerId>, selector: &Selector) -> Self {
        let pattern = Pattern::of(peer, selector);
        let (source, tag) = (selector.source.unwrap_or(0), selector.tag.unwrap_or(0));
        Self::encode(pattern, selector.context, source, tag, peer.map_or(0, |peer| peer.0))
    }

    #[inline]
    pub fn of_message(pattern: Pattern, peer: PeerId, header: &Header) -> Self {
        let whole = Self::encode(pattern, header.context, header.source, header.tag, peer.0);
        let named = NAMED[pattern.index()];
        Self {
            context: header.context,
            envelope: whole.envelope & named.envelope,
            origin: whole.origin & named.origin,
        }
    }

    #[inline]
    const fn encode(pattern: Pattern, context: u64, source: u32, tag: i32, peer: u32) -> Self {
        Self {
            context,
            envelope: (source as u64) << 32 | tag as u32 as u64,
            origin: (peer as u64) << 32 | pattern.0 as u64,
        }
    }

    /// Peer, if the pattern names it.
    pub fn peer(self) -> Option<PeerId> {
        (self.origin as u8 & PEER != 0).then_some(PeerId((self.origin >> 32) as u32))
    }

    /// Selector of the receive that has this key.
    pub fn selector(self) -> Selector {
        let named = |bit: u8| self.origin as u8 & bit != 0;
        Selector {
            context: self.context,
            source: named(SOURCE).then_some((self.envelope >> 32) as u32),
            tag: named(TAG).then_some(self.envelope as i32),
        }
    }

    pub fn context(self) -> u64 {
        self.context
    }

    #[inline]
    pub fn pattern(self) -> Pattern {
        Pattern(self.origin as u8)
    }

    /// Hashes the key so that high bits spread regular keys: both halves of a product are folded,
    /// and lower bits moved up. The peer is left out, since it follows from context and source
    /// unless a peer lies.
    #[inline]
    pub fn hash(self) -> u64 {
        let mixed = self.envelope ^ self.context.wrapping_mul(MULTIPLIERS[0]);
        let product = u128::from(mixed) * u128::from(MULTIPLIERS[1]);
        (product as u64 ^ (product >> 64) as u64).wrapping_mul(MULTIPLIERS[2])
    }
}

const PEER: u8 = 1;
const SOURCE: u8 = 2;
const TAG: u8 = 4;

/// Bits of a key that each pattern names.
const NAMED: [Key; Pattern::COUNT] = {
    let mut named = [Key::encode(Pattern(u8::MAX), u64::MAX, 0, 0, 0); Pattern::COUNT];
    let mut pattern = 0;
    while pattern < Pattern::COUNT {
        let bits = pattern as u8;
        let (source, tag, peer) = (bits & SOURCE != 0, bits & TAG != 0, bits & PEER != 0);
        named[pattern].envelope = all(source) << 32 | all(tag);
        named[pattern].origin |= all(peer) << 32;
        pattern += 1;
    }
    named
};

const fn all(is_named: bool) -> u64 {
    if is_named { u32::MAX as u64 } else { 0 }
}

/// Odd numbers with many set bits; the first is from the golden ratio.
const MULTIPLIERS: [u64; 3] = [0x9e37_79b9_7f4a_7c15, 0xd6e8_feb8_6659_fd93, 0xbf58_476d_1ce4_e5b9];
