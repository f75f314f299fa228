//! File views (MPI-5.0 §14.3): which bytes of a file a process sees, in which order.

use datatype::{Builtin, Datatype};
use memory::Segment;

use crate::pattern::{Pattern, is_ascending, is_nondecreasing};

/// Bytes of a file as a stream: those of the filetype, repeated from a displacement on.
#[derive(Clone, Debug)]
pub struct View {
    pattern: Pattern,
    etype: Datatype,
    filetype: Datatype,
}

/// Reason why arguments are no view.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ViewFault {
    /// The displacement is negative.
    #[error("disp = {0} is negative")]
    Displacement(i64),
    /// A type has bytes at negative displacements.
    #[error("{0} has data at negative displacements")]
    Negative(&'static str),
    /// The displacements of a type decrease.
    #[error("the displacements in {0} decrease")]
    Decreasing(&'static str),
    /// A file that is written would have bytes at two places of the stream.
    #[error("parts of {0} overlap, and the file is open for writing")]
    Overlapping(&'static str),
    /// The filetype consists of no whole number of etypes.
    #[error("filetype has {filetype} bytes, which is no multiple of the {etype} bytes of etype")]
    NoEtypes {
        /// Size of the filetype in bytes.
        filetype: usize,
        /// Size of the etype in bytes.
        etype: usize,
    },
}

/// Result of making a view.
type Result<T> = std::result::Result<T, ViewFault>;

impl Default for View {
    /// The view of a file just opened: its bytes.
    fn default() -> Self {
        let byte = Datatype::builtin(Builtin::Byte);
        let pattern = Pattern::new(0, byte.layout()).unwrap_or_else(|| unreachable!());
        Self { pattern, etype: byte.clone(), filetype: byte }
    }
}

impl View {
    /// Makes a view. The file may be written if `writes` is set.
    ///
    /// # Errors
    /// Arguments that MPI-5.0 §14.1.1 and §14.3 rule out.
    pub fn new(
        displacement: i64,
        etype: &Datatype,
        filetype: &Datatype,
        writes: bool,
    ) -> Result<Self> {
        if displacement < 0 {
            return Err(ViewFault::Displacement(displacement));
        }
        check("etype", etype, writes)?;
        check("filetype", filetype, writes)?;
        let (of_etype, of_filetype) = (etype.size(), filetype.size());
        if of_etype == 0 && of_filetype > 0 || of_etype > 0 && !of_filetype.is_multiple_of(of_etype)
        {
            return Err(ViewFault::NoEtypes { filetype: of_filetype, etype: of_etype });
        }
        let pattern = Pattern::new(displacement, filetype.layout());
        let pattern = pattern.ok_or(ViewFault::Negative("filetype"))?;
        Ok(Self { pattern, etype: etype.clone(), filetype: filetype.clone() })
    }

    /// The bytes seen.
    pub fn pattern(&self) -> &Pattern {
        &self.pattern
    }

    /// Offset of the view in bytes.
    pub fn displacement(&self) -> i64 {
        self.pattern.displacement()
    }

    /// Unit of access and positioning.
    pub fn etype(&self) -> &Datatype {
        &self.etype
    }

    /// Pattern of the bytes seen.
    pub fn filetype(&self) -> &Datatype {
        &self.filetype
    }

    /// Returns the offset in the file of byte `stream` of the view ([`Pattern::byte_offset`]).
    pub fn byte_offset(&self, stream: u64) -> Option<i64> {
        self.pattern.byte_offset(stream)
    }

    /// True if the view has bytes `stream..stream + len`, all within the range of offsets.
    pub fn reaches(&self, stream: u64, len: usize) -> bool {
        self.pattern.reaches(stream, len)
    }

    /// Returns the runs of bytes `stream..stream + len` of the view, with their offsets in the file. The view reaches so
    /// far.
    pub fn runs(&self, stream: u64, len: usize) -> impl Iterator<Item = Segment> + '_ {
        self.pattern.runs(stream, len)
    }

    /// Number of etypes that lie before offset `size` of the file, at least in part: where the end of a file of that
    /// size is in this view.
    pub fn etypes_before(&self, size: u64) -> u64 {
        let unit = self.etype.size() as u64;
        if unit == 0 || self.filetype.size() == 0 {
            return 0;
        }
        // An etype's offset is no less than its number.
        self.pattern.find(size, 0, size.saturating_add(1), unit)
    }
}

/// Checks an etype or a filetype. The rules are about one of them: elements of a filetype may overlap, as those of PnetCDF do,
/// which accesses one element alone.
fn check(name: &'static str, datatype: &Datatype, writes: bool) -> Result<()> {
    let layout = datatype.layout();
    if datatype.true_extent().0 < 0 {
        return Err(ViewFault::Negative(name));
    }
    if !is_nondecreasing(layout) {
        return Err(ViewFault::Decreasing(name));
    }
    if writes && !is_ascending(layout) {
        return Err(ViewFault::Overlapping(name));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn int() -> Datatype {
        Datatype::builtin(Builtin::Int)
    }

    /// Offsets of the bytes of a type whose basic elements are ints, one by one, as its arguments say.
    fn bytes_of(blocks: &[(i64, i64)], extent: i64, displacement: i64, tiles: i64) -> Vec<i64> {
        let tile = |tile: i64| {
            blocks.iter().flat_map(move |&(first, count)| {
                (first * 4..(first + count) * 4).map(move |at| displacement + tile * extent + at)
            })
        };
        (0..tiles).flat_map(tile).collect()
    }

    /// Blocks of ints in ascending order: the place and number of each.
    fn blocks() -> impl Strategy<Value = Vec<(i64, i64)>> {
        let gaps = proptest::collection::vec((0..4i64, 1..4i64), 1..6);
        gaps.prop_map(|gaps| {
            let mut next = 0;
            let place = |(gap, count)| {
                let first = next + gap;
                next = first + count;
                (first, count)
            };
            gaps.into_iter().map(place).collect()
        })
    }

    proptest! {
        #[test]
        fn a_view_is_its_bytes_one_by_one(
            blocks in blocks(), gap in 0..5i64, displacement in 0..100i64, start in 0..60usize, len in 0..80usize,
        ) {
            let (places, counts): (Vec<i64>, Vec<i64>) = blocks.iter().copied().unzip();
            let end = places.last().unwrap() + counts.last().unwrap();
            let extent = (end + gap) * 4;
            let made = Datatype::indexed(&counts, &places, &int()).unwrap().resized(0, extent).unwrap();
            let view = View::new(displacement, &int(), &made, true).unwrap();
            let all = bytes_of(&blocks, extent, displacement, 40);
            let runs: Vec<_> = view.runs(start as u64, len).collect();
            let found: Vec<i64> = runs.iter()
                .flat_map(|run| (0..run.len as i64).map(|at| run.offset as i64 + at)).collect();
            prop_assert_eq!(&found, &all[start..start + len]);
            prop_assert_eq!(view.byte_offset(start as u64), Some(all[start]));
            prop_assert!(view.reaches(start as u64, len));
            let size = (displacement + start as i64) as u64;
            let before = all.chunks(4).filter(|etype| (etype[0] as u64) < size).count();
            prop_assert_eq!(view.etypes_before(size), before as u64);
        }
    }

    #[test]
    fn what_the_standard_rules_out_is_refused() {
        let negative = Datatype::indexed(&[1, 1], &[-1, 3], &int()).unwrap();
        let decreasing = Datatype::indexed(&[1, 1], &[3, 1], &int()).unwrap();
        let overlapping = Datatype::indexed(&[2, 2], &[0, 1], &int()).unwrap();
        let folded = Datatype::contiguous(4, &int()).unwrap().resized(0, 8).unwrap();
        let new = |filetype: &Datatype, writes| View::new(0, &int(), filetype, writes).map(drop);
        assert_eq!(new(&negative, false), Err(ViewFault::Negative("filetype")));
        assert_eq!(new(&decreasing, false), Err(ViewFault::Decreasing("filetype")));
        assert_eq!(new(&overlapping, true), Err(ViewFault::Overlapping("filetype")));
        assert_eq!(new(&overlapping, false), Ok(()));
        let backward = Datatype::contiguous(1, &int()).unwrap().resized(0, -8).unwrap();
        assert_eq!(new(&backward, false), Err(ViewFault::Decreasing("filetype")));
        // Each element follows the rules, and begins within the one before.
        let view = View::new(0, &int(), &folded, true).unwrap();
        let of =
            |runs: Vec<Segment>| runs.iter().map(|run| (run.offset, run.len)).collect::<Vec<_>>();
        assert_eq!(of(view.runs(0, 24).collect()), [(0, 16), (8, 8)]);
        assert!(view.pattern().ascends(&(4..16)) && !view.pattern().ascends(&(4..17)));
        assert!(view.reaches(0, 17));
        assert_eq!(
            View::new(-1, &int(), &int(), false).map(drop),
            Err(ViewFault::Displacement(-1))
        );
        let byte = Datatype::builtin(Builtin::Byte);
        let fault = ViewFault::NoEtypes { filetype: 1, etype: 4 };
        assert_eq!(View::new(0, &int(), &byte, false).map(drop), Err(fault));
    }

    #[test]
    fn patterns_of_any_length_need_no_list() {
        let column = Datatype::vector(1 << 40, 1, 1 << 10, &int()).unwrap();
        let view = View::new(8, &int(), &column, true).unwrap();
        let last = view.runs((1 << 42) - 4, 4).next().unwrap();
        assert_eq!(last.offset as i64, 8 + ((1 << 40) - 1) * (1 << 12));
        assert_eq!(view.etypes_before(8 + 5 * (1 << 12) + 1), 6);
    }

    #[test]
    fn offsets_beyond_their_range_are_out_of_reach() {
        let view = View::new(i64::MAX - 10, &int(), &int(), true).unwrap();
        assert!(view.reaches(0, 8) && !view.reaches(8, 4));
        let nothing = Datatype::contiguous(0, &int()).unwrap();
        let view = View::new(0, &int(), &nothing, true).unwrap();
        assert!(view.reaches(7, 0) && !view.reaches(0, 1) && view.etypes_before(100) == 0);
    }
}
