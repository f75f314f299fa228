//! Short pieces of memory that share a call: those of an operation on elements with gaps.

use engine::{CALL_MAX, CallError, ExposedMemory};
use memory::Region;
use wire::RemoteKey;

use crate::place::ByteRun;

/// Equal pieces of memory, each of which begins `stride` bytes after the one before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct PieceRun {
    pub offset: u64,
    pub stride: i64,
    pub len: u32,
    pub count: u32,
}

/// Pieces that share a call.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    pub runs: Vec<PieceRun>,
    /// Length of all pieces in bytes.
    pub bytes: usize,
}

impl Pieces {
    /// Adds a piece of at most [`PIECE_MAX`] bytes, if there is room for it. `CARRIES` tells that the call carries the
    /// bytes too.
    pub fn add<const CARRIES: bool>(&mut self, piece: ByteRun) -> bool {
        let ByteRun { offset, len } = piece;
        let listed = match self.runs.last().and_then(|last| last.and(piece)) {
            Some(_) => self.runs.len(),
            None => self.runs.len() + 1,
        };
        let bytes = self.bytes + len;
        let has_room = match CARRIES {
            true => listed * PieceRun::LEN + bytes <= CALL_MAX,
            false => listed * PieceRun::LEN <= CALL_MAX && bytes <= REPLY_MAX,
        };
        if !has_room {
            return false;
        }
        match self.runs.last_mut() {
            Some(last) if let Some(longer) = last.and(piece) => *last = longer,
            _ => self.runs.push(PieceRun { offset, stride: 0, len: len as u32, count: 1 }),
        }
        self.bytes = bytes;
        true
    }

    /// Appends the runs to the payload of a call.
    pub fn encode(&self, payload: &mut Vec<u8>) {
        for PieceRun { offset, stride, len, count } in &self.runs {
            payload.extend_from_slice(&offset.to_le_bytes());
            payload.extend_from_slice(&stride.to_le_bytes());
            payload.extend_from_slice(&len.to_le_bytes());
            payload.extend_from_slice(&count.to_le_bytes());
        }
    }
}

impl PieceRun {
    /// Length on the wire in bytes.
    pub const LEN: usize = 24;

    /// The run with one more piece, if it continues at the same distance.
    fn and(self, piece: ByteRun) -> Option<Self> {
        let Self { offset, stride, len, count } = self;
        let last = offset.wrapping_add_signed(stride.wrapping_mul(i64::from(count) - 1));
        let distance = piece.offset.wrapping_sub(last) as i64;
        let goes_on = piece.len == len as usize && (count == 1 || distance == stride);
        goes_on.then_some(Self { stride: distance, count: count + 1, ..self })
    }

    /// Decodes `count` runs at the beginning of a payload; returns them and the rest. `None` if they are not there.
    pub fn decode(payload: &[u8], count: u64) -> Option<(impl Iterator<Item = Self>, &[u8])> {
        let len = usize::try_from(count).ok()?.checked_mul(Self::LEN)?;
        let (runs, rest) = payload.split_at_checked(len)?;
        let number =
            |bytes: &[u8]| bytes.iter().rev().fold(0, |sum, &byte| sum << 8 | u64::from(byte));
        let runs = runs.as_chunks::<{ Self::LEN }>().0.iter().map(move |run| Self {
            offset: number(&run[..8]),
            stride: number(&run[8..16]) as i64,
            len: number(&run[16..20]) as u32,
            count: number(&run[20..]) as u32,
        });
        Some((runs, rest))
    }

    /// Length of all pieces in bytes.
    pub fn bytes(self) -> u64 {
        u64::from(self.len) * u64::from(self.count)
    }

    /// Passes each piece to `act` in order, as exposed memory and an offset there.
    ///
    /// # Errors
    /// A byte is not exposed, or an offset is no number.
    pub fn visit(
        self,
        memory: &ExposedMemory,
        key: RemoteKey,
        mut act: impl FnMut(&Region, usize),
    ) -> Result<(), CallError> {
        let Self { offset, stride, len, count } = self;
        let reach = || {
            let reach = stride.checked_mul(i64::from(count.checked_sub(1)?))?;
            let lowest = offset.checked_add_signed(reach.min(0))?;
            Some((lowest, reach.unsigned_abs().checked_add(u64::from(len))?))
        };
        let (lowest, span) = reach().ok_or("pieces beyond all memory")?;
        if let Some(whole) = memory.find(key, lowest, span) {
            for index in 0..i64::from(count) {
                act(&whole, (offset.wrapping_add_signed(stride * index) - lowest) as usize);
            }
            return Ok(());
        }
        // Attached memory may have gaps between the pieces.
        for index in 0..i64::from(count) {
            let at = offset.wrapping_add_signed(stride * index);
            act(&memory.take(key, at, u64::from(len))?, 0);
        }
        Ok(())
    }
}

/// Longest piece that shares a call, in bytes. A longer one is a put or a get of its own, which is copied less often.
pub(crate) const PIECE_MAX: usize = 512;

/// Bytes that a call asks for.
pub(crate) const REPLY_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_at_one_distance_are_one_run() {
        let mut pieces = Pieces::default();
        for (offset, len) in [(40, 8), (32, 8), (24, 8), (100, 8), (104, 4), (104, 4)] {
            assert!(pieces.add::<true>(ByteRun { offset, len }));
        }
        let run = |offset, stride, len, count| PieceRun { offset, stride, len, count };
        assert_eq!(pieces.runs, [run(40, -8, 8, 3), run(100, 0, 8, 1), run(104, 0, 4, 2)]);
        assert_eq!(pieces.bytes, 40);
        let mut payload = Vec::new();
        pieces.encode(&mut payload);
        payload.push(7);
        let (runs, rest) = PieceRun::decode(&payload, 3).unwrap();
        assert_eq!((runs.collect::<Vec<_>>(), rest), (pieces.runs, &[7][..]));
        assert!(PieceRun::decode(&payload, 4).is_none());
        assert!(PieceRun::decode(&payload, u64::MAX).is_none());
    }

    #[test]
    fn calls_have_a_limit() {
        let fill = |add: fn(&mut Pieces, ByteRun) -> bool, distance: fn(u64) -> u64| {
            let mut pieces = Pieces::default();
            (0..)
                .take_while(|&at| add(&mut pieces, ByteRun { offset: distance(at), len: 8 }))
                .count()
        };
        let (regular, irregular) = (|at| at * 16, |at| at * at * 16);
        assert_eq!(fill(Pieces::add::<true>, regular), (CALL_MAX - 24) / 8);
        assert_eq!(fill(Pieces::add::<false>, regular), REPLY_MAX / 8);
        assert!(fill(Pieces::add::<true>, irregular) <= CALL_MAX / 20);
        assert!(fill(Pieces::add::<false>, irregular) <= CALL_MAX / 12);
    }
}
