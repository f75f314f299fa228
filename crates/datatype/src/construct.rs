//! The constructors of derived datatypes (MPI-5.0 §5.1.2–5.1.4).

use memory::Segment;

use crate::builtin::Element;
use crate::datatype::{Bounds, Combiner, Contents, Datatype, Edges, TypeError, push_elements};

/// So many elements of a type at a displacement in bytes.
pub(crate) struct Block<'a> {
    pub displacement: i64,
    pub count: i64,
    pub datatype: &'a Datatype,
}

impl Datatype {
    /// The same type under another handle.
    pub fn duplicate(&self) -> Self {
        let contents = contents(Combiner::Dup, vec![], vec![], std::slice::from_ref(self));
        let segments = self.layout().segments().to_vec();
        let copy = Self::derived(segments, self.bounds(), self.elements().to_vec(), contents);
        if self.is_committed() {
            copy.commit();
        }
        copy
    }

    /// `count` elements one behind the other.
    ///
    /// # Errors
    /// For a negative count, or a type too large to describe; so for all constructors here.
    pub fn contiguous(count: i64, old: &Self) -> Result<Self, TypeError> {
        let contents =
            contents(Combiner::Contiguous, vec![count], vec![], std::slice::from_ref(old));
        build(&[Block { displacement: 0, count, datatype: old }], contents)
    }

    /// `count` blocks of `block` elements, `stride` elements apart.
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn vector(count: i64, block: i64, stride: i64, old: &Self) -> Result<Self, TypeError> {
        let stride_bytes = stride.checked_mul(old.extent().1 as i64).ok_or_else(too_large)?;
        let integers = vec![count, block, stride];
        let contents = contents(Combiner::Vector, integers, vec![], std::slice::from_ref(old));
        strided(count, block, stride_bytes, old, contents)
    }

    /// `count` blocks of `block` elements, `stride` bytes apart.
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn hvector(count: i64, block: i64, stride: i64, old: &Self) -> Result<Self, TypeError> {
        let integers = vec![count, block];
        let contents =
            contents(Combiner::Hvector, integers, vec![stride], std::slice::from_ref(old));
        strided(count, block, stride, old, contents)
    }

    /// Blocks of `lengths[i]` elements at `displacements[i]` elements.
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn indexed(lengths: &[i64], displacements: &[i64], old: &Self) -> Result<Self, TypeError> {
        check_lengths(lengths)?;
        let extent = old.extent().1 as i64;
        let integers = chain(lengths.len(), lengths, displacements);
        let contents = contents(Combiner::Indexed, integers, vec![], std::slice::from_ref(old));
        let bytes = displacements.iter().map(|one| one.checked_mul(extent).ok_or_else(too_large));
        blocks(lengths, &bytes.collect::<Result<Vec<_>, _>>()?, old, contents)
    }

    /// Blocks of `lengths[i]` elements at `displacements[i]` bytes.
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn hindexed(lengths: &[i64], displacements: &[i64], old: &Self) -> Result<Self, TypeError> {
        check_lengths(lengths)?;
        let integers = chain(lengths.len(), lengths, &[]);
        let addresses = displacements.to_vec();
        let contents = contents(Combiner::Hindexed, integers, addresses, std::slice::from_ref(old));
        blocks(lengths, displacements, old, contents)
    }

    /// Blocks of `length` elements at `displacements[i]` elements.
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn indexed_block(
        length: i64,
        displacements: &[i64],
        old: &Self,
    ) -> Result<Self, TypeError> {
        let extent = old.extent().1 as i64;
        let integers = chain(displacements.len(), &[length], displacements);
        let contents =
            contents(Combiner::IndexedBlock, integers, vec![], std::slice::from_ref(old));
        let bytes = displacements.iter().map(|one| one.checked_mul(extent).ok_or_else(too_large));
        let bytes = bytes.collect::<Result<Vec<_>, _>>()?;
        blocks(&vec![length; displacements.len()], &bytes, old, contents)
    }

    /// Blocks of `length` elements at `displacements[i]` bytes.
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn hindexed_block(
        length: i64,
        displacements: &[i64],
        old: &Self,
    ) -> Result<Self, TypeError> {
        let integers = chain(displacements.len(), &[length], &[]);
        let addresses = displacements.to_vec();
        let contents =
            contents(Combiner::HindexedBlock, integers, addresses, std::slice::from_ref(old));
        blocks(&vec![length; displacements.len()], displacements, old, contents)
    }

    /// Blocks of `lengths[i]` elements of `types[i]` at `displacements[i]` bytes.
    ///
    /// # Errors
    /// As [`Datatype::contiguous`].
    pub fn structure(
        lengths: &[i64],
        displacements: &[i64],
        types: &[Self],
    ) -> Result<Self, TypeError> {
        check_lengths(lengths)?;
        let integers = chain(lengths.len(), lengths, &[]);
        let contents = contents(Combiner::Struct, integers, displacements.to_vec(), types);
        let parts = lengths.iter().zip(displacements).zip(types);
        let parts = parts.map(|((&count, &displacement), datatype)| Block {
            displacement,
            count,
            datatype,
        });
        build(&parts.collect::<Vec<_>>(), contents)
    }

    /// The same data with other bounds.
    ///
    /// # Errors
    /// When the upper bound lies beyond the address space.
    pub fn resized(&self, lower: i64, extent: i64) -> Result<Self, TypeError> {
        let addresses = vec![lower, extent];
        let contents = contents(Combiner::Resized, vec![], addresses, std::slice::from_ref(self));
        let upper = lower.checked_add(extent).ok_or_else(too_large)?;
        let markers = Edges { lower: lower as isize, upper: upper as isize };
        let Bounds { data, alignment, .. } = self.bounds();
        let bounds = Bounds::marked(data, markers, alignment).ok_or_else(too_large)?;
        let segments = self.layout().segments().to_vec();
        Ok(Self::derived(segments, bounds, self.elements().to_vec(), contents))
    }
}

fn strided(
    count: i64,
    block: i64,
    stride: i64,
    old: &Datatype,
    contents: Contents,
) -> Result<Datatype, TypeError> {
    check_count("count", count)?;
    check_count("blocklength", block)?;
    if block.checked_mul(old.extent().1 as i64) == Some(stride) {
        let count = count.checked_mul(block).ok_or_else(too_large)?;
        return build(&[Block { displacement: 0, count, datatype: old }], contents);
    }
    if count > SEGMENTS_MAX as i64 && block > 0 {
        return Err(too_large());
    }
    let places = (0..count).map(|index| {
        let displacement = index.checked_mul(stride).ok_or_else(too_large)?;
        Ok(Block { displacement, count: block, datatype: old })
    });
    build(&places.collect::<Result<Vec<_>, _>>()?, contents)
}

fn blocks(
    lengths: &[i64],
    displacements: &[i64],
    old: &Datatype,
    contents: Contents,
) -> Result<Datatype, TypeError> {
    let places = lengths.iter().zip(displacements);
    let places = places.map(|(&count, &displacement)| Block { displacement, count, datatype: old });
    build(&places.collect::<Vec<_>>(), contents)
}

/// The type of these blocks, one behind the other in the type map.
pub(crate) fn build(blocks: &[Block<'_>], contents: Contents) -> Result<Datatype, TypeError> {
    let mut segments = Vec::new();
    let mut elements: Vec<(Element, u64)> = Vec::new();
    let mut size = 0isize;
    let (mut data, mut markers, mut reach, mut alignment) = (None, None, None, 1);
    for block in blocks {
        check_count("blocklength", block.count)?;
        if block.count == 0 {
            continue;
        }
        let bounds = block.datatype.bounds();
        data = union(data, block.spread(bounds.data)?);
        markers = union(markers, block.spread(bounds.markers())?);
        reach = union(reach, block.spread(bounds.edges())?);
        alignment = alignment.max(bounds.alignment);
        let bytes = (block.datatype.size() as isize).checked_mul(block.count as isize);
        size = bytes.and_then(|bytes| size.checked_add(bytes)).ok_or_else(too_large)?;
        append_segments(&mut segments, block)?;
        append_elements(&mut elements, block)?;
    }
    let bounds = match markers {
        Some(markers) => Bounds::marked(data, markers, alignment),
        None => Bounds::padded(data, reach, alignment),
    };
    Ok(Datatype::derived(segments, bounds.ok_or_else(too_large)?, elements, contents))
}

fn union(known: Option<Edges>, more: Option<Edges>) -> Option<Edges> {
    match (known, more) {
        (Some(known), Some(more)) => Some(known.union(more)),
        (known, more) => known.or(more),
    }
}

impl Block<'_> {
    /// The outermost of the edges that each element of the block has.
    fn spread(&self, edges: Option<Edges>) -> Result<Option<Edges>, TypeError> {
        let extent = self.datatype.extent().1 as i64;
        let reach = (self.count - 1).checked_mul(extent).ok_or_else(too_large)?;
        let last = self.displacement.checked_add(reach).ok_or_else(too_large)?;
        let Some(Edges { lower, upper }) = edges else { return Ok(None) };
        let lower = (lower as i64).checked_add(self.displacement.min(last));
        let upper = (upper as i64).checked_add(self.displacement.max(last));
        let (Some(lower), Some(upper)) = (lower, upper) else { return Err(too_large()) };
        Ok(Some(Edges { lower: lower as isize, upper: upper as isize }))
    }
}

fn append_segments(segments: &mut Vec<Segment>, block: &Block<'_>) -> Result<(), TypeError> {
    let layout = block.datatype.layout();
    let displacement = block.displacement as isize;
    if layout.is_contiguous() {
        let len = layout.size() * block.count as usize;
        push(segments, Segment { offset: displacement, len });
        return Ok(());
    }
    let added = layout.segments().len().saturating_mul(block.count as usize);
    if segments.len() + added > SEGMENTS_MAX {
        return Err(too_large());
    }
    for index in 0..block.count as isize {
        let origin = displacement + index * layout.extent();
        for one in layout.segments() {
            push(segments, Segment { offset: origin + one.offset, len: one.len });
        }
    }
    Ok(())
}

fn push(segments: &mut Vec<Segment>, segment: Segment) {
    match segments.last_mut() {
        Some(last) if last.offset + last.len as isize == segment.offset => last.len += segment.len,
        _ => segments.push(segment),
    }
}

fn append_elements(elements: &mut Vec<(Element, u64)>, block: &Block<'_>) -> Result<(), TypeError> {
    if let [(element, count)] = block.datatype.elements() {
        let count = count.checked_mul(block.count as u64).ok_or_else(too_large)?;
        push_elements(elements, *element, count);
        return Ok(());
    }
    if elements.len() + block.datatype.elements().len().saturating_mul(block.count as usize)
        > SEGMENTS_MAX
    {
        return Err(too_large());
    }
    for _ in 0..block.count {
        for &(element, count) in block.datatype.elements() {
            push_elements(elements, element, count);
        }
    }
    Ok(())
}

pub(crate) fn contents(
    combiner: Combiner,
    integers: Vec<i64>,
    addresses: Vec<i64>,
    datatypes: &[Datatype],
) -> Contents {
    Contents { combiner, integers, addresses, datatypes: datatypes.to_vec() }
}

fn chain(count: usize, first: &[i64], second: &[i64]) -> Vec<i64> {
    let mut integers = vec![count as i64];
    integers.extend(first);
    integers.extend(second);
    integers
}

fn check_count(argument: &'static str, count: i64) -> Result<(), TypeError> {
    match count {
        0.. => Ok(()),
        _ => Err(TypeError::new(argument, count, "must not be negative")),
    }
}

fn check_lengths(lengths: &[i64]) -> Result<(), TypeError> {
    lengths.iter().try_for_each(|&length| check_count("array_of_blocklengths", length))
}

#[cold]
pub(crate) fn too_large() -> TypeError {
    TypeError::new("datatype", "", "has too many separate pieces, or too large an extent")
}

/// A type has at most so many separate pieces (16 bytes each).
const SEGMENTS_MAX: usize = 1 << 26;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::Builtin;

    fn int() -> Datatype {
        Datatype::builtin(Builtin::Int)
    }

    #[test]
    fn a_struct_is_padded_as_c_pads_it() {
        let types = [Datatype::builtin(Builtin::Double), Datatype::builtin(Builtin::Char)];
        let made = Datatype::structure(&[1, 1], &[0, 8], &types).unwrap();
        assert_eq!((made.size(), made.extent(), made.true_extent()), (9, (0, 16), (0, 9)));
        assert_eq!(made.elements_in(9), Some(2));
        assert_eq!(made.elements_in(8), Some(1));
        assert_eq!(made.elements_in(4), None);
        assert_eq!(made.elements_in(17), Some(3));
    }

    #[test]
    fn vectors_keep_strides_even_negative_ones() {
        let made = Datatype::vector(3, 2, -4, &int()).unwrap();
        assert_eq!((made.size(), made.extent()), (24, (-32, 40)));
        let offsets: Vec<_> = made.layout().segments().iter().map(|one| one.offset).collect();
        assert_eq!(offsets, [0, -16, -32]);
    }

    #[test]
    fn bad_arguments_are_named() {
        assert_eq!(Datatype::contiguous(-1, &int()).unwrap_err().argument, "blocklength");
        let bad = Datatype::indexed(&[1, -2], &[0, 1], &int()).unwrap_err();
        assert_eq!((bad.argument, &bad.value[..]), ("array_of_blocklengths", "-2"));
    }

    #[test]
    fn empty_types_have_no_extent() {
        let made = Datatype::contiguous(0, &int()).unwrap();
        assert_eq!((made.size(), made.extent()), (0, (0, 0)));
        assert_eq!(made.count_in(0), Some(0));
        assert_eq!(made.count_in(4), None);
    }
}
