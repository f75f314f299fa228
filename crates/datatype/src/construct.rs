//! Constructors of derived datatypes (MPI-5.0 §5.1.2–5.1.4).

use memory::{Layout, Segment, Segments};

use crate::builtin::Element;
use crate::datatype::{Bounds, Combiner, Contents, Datatype, Edges, TypeError, push_elements};

/// A number of elements of a type at a displacement in bytes.
#[derive(Clone, Copy)]
pub(crate) struct Block<'a> {
    pub displacement: i64,
    pub count: i64,
    pub datatype: &'a Datatype,
}

impl Datatype {
    /// Returns the same type under another handle.
    pub fn duplicate(&self) -> Self {
        let contents = Contents {
            combiner: Combiner::Dup,
            integers: vec![],
            addresses: vec![],
            datatypes: vec![self.clone()],
        };
        let copy = Self::alike(self, contents);
        if self.is_committed() {
            copy.commit();
        }
        copy
    }

    /// Makes a type of `count` consecutive elements.
    ///
    /// # Errors
    /// If a count is negative, or the type is too large to describe. This holds for all
    /// constructors here.
    pub fn contiguous(count: i64, old: &Self) -> Result<Self, TypeError> {
        let contents =
            contents(Combiner::Contiguous, vec![count], vec![], std::slice::from_ref(old))?;
        build(std::iter::once(Block { displacement: 0, count, datatype: old }), contents)
    }

    /// Makes a type of `count` blocks of `block` elements, `stride` elements apart.
    ///
    /// # Errors
    /// See [`Datatype::contiguous`].
    pub fn vector(count: i64, block: i64, stride: i64, old: &Self) -> Result<Self, TypeError> {
        let stride_bytes = stride.checked_mul(old.extent().1 as i64).ok_or_else(too_large)?;
        let integers = vec![count, block, stride];
        let contents = contents(Combiner::Vector, integers, vec![], std::slice::from_ref(old))?;
        strided(count, block, stride_bytes, old, contents)
    }

    /// Makes a type of `count` blocks of `block` elements, `stride` bytes apart.
    ///
    /// # Errors
    /// See [`Datatype::contiguous`].
    pub fn hvector(count: i64, block: i64, stride: i64, old: &Self) -> Result<Self, TypeError> {
        let integers = vec![count, block];
        let contents =
            contents(Combiner::Hvector, integers, vec![stride], std::slice::from_ref(old))?;
        strided(count, block, stride, old, contents)
    }

    /// Makes a type of blocks of `lengths[i]` elements at `displacements[i]` elements.
    ///
    /// # Errors
    /// See [`Datatype::contiguous`].
    pub fn indexed(lengths: &[i64], displacements: &[i64], old: &Self) -> Result<Self, TypeError> {
        check_lengths(lengths)?;
        let extent = old.extent().1 as i64;
        let integers = chain(lengths.len(), lengths, displacements)?;
        let contents = contents(Combiner::Indexed, integers, vec![], std::slice::from_ref(old))?;
        let bytes = scaled(displacements, extent)?;
        build(blocks(lengths.iter().copied(), bytes, old), contents)
    }

    /// Makes a type of blocks of `lengths[i]` elements at `displacements[i]` bytes.
    ///
    /// # Errors
    /// See [`Datatype::contiguous`].
    pub fn hindexed(lengths: &[i64], displacements: &[i64], old: &Self) -> Result<Self, TypeError> {
        check_lengths(lengths)?;
        let integers = chain(lengths.len(), lengths, &[])?;
        let addresses = copied(displacements)?;
        let contents =
            contents(Combiner::Hindexed, integers, addresses, std::slice::from_ref(old))?;
        build(blocks(lengths.iter().copied(), displacements.iter().copied(), old), contents)
    }

    /// Makes a type of blocks of `length` elements at `displacements[i]` elements.
    ///
    /// # Errors
    /// See [`Datatype::contiguous`].
    pub fn indexed_block(
        length: i64,
        displacements: &[i64],
        old: &Self,
    ) -> Result<Self, TypeError> {
        let extent = old.extent().1 as i64;
        let integers = chain(displacements.len(), &[length], displacements)?;
        let contents =
            contents(Combiner::IndexedBlock, integers, vec![], std::slice::from_ref(old))?;
        let bytes = scaled(displacements, extent)?;
        build(blocks(std::iter::repeat(length), bytes, old), contents)
    }

    /// Makes a type of blocks of `length` elements at `displacements[i]` bytes.
    ///
    /// # Errors
    /// See [`Datatype::contiguous`].
    pub fn hindexed_block(
        length: i64,
        displacements: &[i64],
        old: &Self,
    ) -> Result<Self, TypeError> {
        let integers = chain(displacements.len(), &[length], &[])?;
        let addresses = copied(displacements)?;
        let contents =
            contents(Combiner::HindexedBlock, integers, addresses, std::slice::from_ref(old))?;
        let displacements = displacements.iter().copied();
        build(blocks(std::iter::repeat(length), displacements, old), contents)
    }

    /// Makes a type of blocks of `lengths[i]` elements of `types[i]` at `displacements[i]` bytes.
    ///
    /// # Errors
    /// See [`Datatype::contiguous`].
    pub fn structure(
        lengths: &[i64],
        displacements: &[i64],
        types: &[Self],
    ) -> Result<Self, TypeError> {
        check_lengths(lengths)?;
        let integers = chain(lengths.len(), lengths, &[])?;
        let contents = contents(Combiner::Struct, integers, copied(displacements)?, types)?;
        let parts = lengths.iter().zip(displacements).zip(types);
        let parts = parts.map(|((&count, &displacement), datatype)| Block {
            displacement,
            count,
            datatype,
        });
        build(parts, contents)
    }

    /// Returns the same data with other bounds.
    ///
    /// # Errors
    /// If the upper bound lies beyond the address space.
    pub fn resized(&self, lower: i64, extent: i64) -> Result<Self, TypeError> {
        let addresses = vec![lower, extent];
        let contents = contents(Combiner::Resized, vec![], addresses, std::slice::from_ref(self))?;
        let upper = lower.checked_add(extent).ok_or_else(too_large)?;
        let markers = Edges { lower: lower as isize, upper: upper as isize };
        let Bounds { data, alignment, .. } = self.bounds();
        let bounds = Bounds::marked(data, markers, alignment).ok_or_else(too_large)?;
        let segments = self.layout().segments();
        let copy = segments.try_clone().ok_or_else(|| TypeError::no_memory(segments.len()))?;
        let layout = Self::layout_of(copy, bounds)?;
        Ok(Self::derived(layout, bounds, copied(self.elements())?, contents))
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
        return build(std::iter::once(Block { displacement: 0, count, datatype: old }), contents);
    }
    let mut outline = Outline::new();
    let mut segments = Segments::new();
    if count > 0 && block > 0 {
        let last = (count - 1).checked_mul(stride).ok_or_else(too_large)?;
        let of_block = |displacement| Run::of(Block { displacement, count: block, datatype: old });
        let (first, last) = (of_block(0)?, of_block(last)?);
        let count_of_all = block.checked_mul(count).ok_or_else(too_large)?;
        let (low, high) = (first.low.min(last.low), first.high.max(last.high));
        outline.add(&Run { datatype: old, count: count_of_all, low, high })?;
        let shape = (block as usize, stride as isize, count as usize);
        append_strided(&mut segments, old.layout(), shape).ok_or_else(too_large)?;
    }
    outline.end(segments, contents)
}

/// Appends the segments of `count` blocks, each `stride` bytes after the one before; none if there
/// are too many.
fn append_strided(
    segments: &mut Segments,
    layout: &Layout,
    (block, stride, count): (usize, isize, usize),
) -> Option<()> {
    if layout.is_contiguous() {
        let run = Segment { offset: 0, len: layout.size() * block };
        return segments.push_run(run, stride, count, SEGMENTS_MAX);
    }
    if block == 1 {
        return segments.push_elements(layout.segments(), 0, stride, count, SEGMENTS_MAX);
    }
    (0..count as isize).try_for_each(|index| {
        let (origin, extent) = (index * stride, layout.extent());
        segments.push_elements(layout.segments(), origin, extent, block, SEGMENTS_MAX)
    })
}

/// Converts displacements in elements to bytes.
fn scaled(
    displacements: &[i64],
    extent: i64,
) -> Result<impl Iterator<Item = i64> + Clone, TypeError> {
    let fit = displacements.iter().all(|one| one.checked_mul(extent).is_some());
    let bytes = displacements.iter().map(move |one| one * extent);
    if fit { Ok(bytes) } else { Err(too_large()) }
}

fn blocks<'a>(
    lengths: impl Iterator<Item = i64> + Clone,
    displacements: impl Iterator<Item = i64> + Clone,
    datatype: &'a Datatype,
) -> impl Iterator<Item = Block<'a>> + Clone {
    let places = lengths.zip(displacements);
    places.map(move |(count, displacement)| Block { displacement, count, datatype })
}

/// Makes the type of these blocks, one behind the other in the type map.
pub(crate) fn build<'a>(
    blocks: impl Iterator<Item = Block<'a>> + Clone,
    contents: Contents,
) -> Result<Datatype, TypeError> {
    let outline = Outline::of(blocks.clone())?;
    let mut segments = Segments::new();
    for Block { displacement, count, datatype } in blocks.filter(|block| block.count > 0) {
        let (layout, origin, count) = (datatype.layout(), displacement as isize, count as usize);
        let added = if layout.is_contiguous() {
            let run = Segment { offset: origin, len: layout.size() * count };
            segments.push(run, SEGMENTS_MAX)
        } else {
            let (elements, extent) = (layout.segments(), layout.extent());
            segments.push_elements(elements, origin, extent, count, SEGMENTS_MAX)
        };
        added.ok_or_else(too_large)?;
    }
    outline.end(segments, contents)
}

/// Elements of a type, and the offsets of the lowest and the highest.
struct Run<'a> {
    datatype: &'a Datatype,
    count: i64,
    low: i64,
    high: i64,
}

impl<'a> Run<'a> {
    fn of(Block { displacement, count, datatype }: Block<'a>) -> Result<Self, TypeError> {
        let reach = (count - 1).checked_mul(datatype.extent().1 as i64);
        let last = reach.and_then(|reach| displacement.checked_add(reach)).ok_or_else(too_large)?;
        Ok(Self { datatype, count, low: displacement.min(last), high: displacement.max(last) })
    }

    /// Returns the outermost bounds over all elements, from the bounds of one.
    fn spread(&self, edges: Option<Edges>) -> Result<Option<Edges>, TypeError> {
        let Some(Edges { lower, upper }) = edges else { return Ok(None) };
        let lower = (lower as i64).checked_add(self.low);
        let upper = (upper as i64).checked_add(self.high);
        let (Some(lower), Some(upper)) = (lower, upper) else { return Err(too_large()) };
        Ok(Some(Edges { lower: lower as isize, upper: upper as isize }))
    }
}

/// Properties of a type that follow from its parts, except the places of its data.
struct Outline {
    data: Option<Edges>,
    markers: Option<Edges>,
    reach: Option<Edges>,
    alignment: usize,
    size: isize,
    elements: Vec<(Element, u64)>,
}

impl Outline {
    const fn new() -> Self {
        let elements = Vec::new();
        Self { data: None, markers: None, reach: None, alignment: 1, size: 0, elements }
    }

    /// Computes the outline of blocks of one type, whose reach is that of the lowest and the
    /// highest.
    fn of<'a>(blocks: impl Iterator<Item = Block<'a>>) -> Result<Self, TypeError> {
        let mut outline = Self::new();
        let mut run: Option<Run<'_>> = None;
        for block in blocks {
            check_count("blocklength", block.count)?;
            if block.count == 0 {
                continue;
            }
            let next = Run::of(block)?;
            match &mut run {
                Some(run) if std::ptr::eq(run.datatype, next.datatype) => {
                    let count = run.count.checked_add(next.count).ok_or_else(too_large)?;
                    let (low, high) = (run.low.min(next.low), run.high.max(next.high));
                    *run = Run { count, low, high, ..next };
                }
                _ => run.replace(next).map_or(Ok(()), |run| outline.add(&run))?,
            }
        }
        run.map_or(Ok(()), |run| outline.add(&run))?;
        Ok(outline)
    }

    fn add(&mut self, run: &Run<'_>) -> Result<(), TypeError> {
        let bounds = run.datatype.bounds();
        self.data = union(self.data, run.spread(bounds.data)?);
        self.markers = union(self.markers, run.spread(bounds.markers())?);
        self.reach = union(self.reach, run.spread(bounds.edges())?);
        self.alignment = self.alignment.max(bounds.alignment);
        let bytes = (run.datatype.size() as isize).checked_mul(run.count as isize);
        let size = bytes.and_then(|bytes| self.size.checked_add(bytes));
        self.size = size.ok_or_else(too_large)?;
        self.add_elements(run)
    }

    fn add_elements(&mut self, run: &Run<'_>) -> Result<(), TypeError> {
        let (elements, of) = (&mut self.elements, run.datatype.elements());
        if let [(element, count)] = of {
            let count = count.checked_mul(run.count as u64).ok_or_else(too_large)?;
            push_elements(elements, *element, count);
            return Ok(());
        }
        if elements.len() + of.len().saturating_mul(run.count as usize) > SEGMENTS_MAX {
            return Err(too_large());
        }
        let more = of.len() * run.count as usize;
        elements.try_reserve(more).map_err(|_| TypeError::no_memory(more))?;
        for _ in 0..run.count {
            of.iter().for_each(|&(element, count)| push_elements(elements, element, count));
        }
        Ok(())
    }

    /// Makes the type of these segments.
    fn end(self, segments: Segments, contents: Contents) -> Result<Datatype, TypeError> {
        let bounds = self.bounds()?;
        let layout = Datatype::layout_of(segments, bounds)?;
        Ok(Datatype::derived(layout, bounds, self.elements, contents))
    }

    fn bounds(&self) -> Result<Bounds, TypeError> {
        let bounds = match self.markers {
            Some(markers) => Bounds::marked(self.data, markers, self.alignment),
            None => Bounds::padded(self.data, self.reach, self.alignment),
        };
        bounds.ok_or_else(too_large)
    }
}

fn union(known: Option<Edges>, more: Option<Edges>) -> Option<Edges> {
    match (known, more) {
        (Some(known), Some(more)) => Some(known.union(more)),
        (known, more) => known.or(more),
    }
}

pub(crate) fn contents(
    combiner: Combiner,
    integers: Vec<i64>,
    addresses: Vec<i64>,
    datatypes: &[Datatype],
) -> Result<Contents, TypeError> {
    Ok(Contents { combiner, integers, addresses, datatypes: copied(datatypes)? })
}

/// Returns an empty list with room for so many entries, whose number a program gives.
pub(crate) fn room<T>(entries: usize) -> Result<Vec<T>, TypeError> {
    let mut list = Vec::new();
    list.try_reserve_exact(entries).map_err(|_| TypeError::no_memory(entries))?;
    Ok(list)
}

pub(crate) fn copied<T: Clone>(from: &[T]) -> Result<Vec<T>, TypeError> {
    let mut list = room(from.len())?;
    list.extend_from_slice(from);
    Ok(list)
}

fn chain(count: usize, first: &[i64], second: &[i64]) -> Result<Vec<i64>, TypeError> {
    let mut integers = room(1 + first.len() + second.len())?;
    integers.push(count as i64);
    integers.extend(first);
    integers.extend(second);
    Ok(integers)
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

/// Maximum number of separate segments that a type lists (24 bytes each).
const SEGMENTS_MAX: usize = 1 << 26;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::builtin::Builtin;

    fn int() -> Datatype {
        Datatype::builtin(Builtin::Int)
    }

    #[test]
    fn only_types_of_one_predefined_type_have_one() {
        let (int, float) = (int(), Datatype::builtin(Builtin::Float));
        let vector = Datatype::vector(3, 2, 5, &int).unwrap();
        let nested = Datatype::structure(&[1, 2], &[0, 64], &[vector.clone(), int.clone()]);
        let mixed = Datatype::structure(&[1, 1], &[0, 64], &[vector.clone(), float]).unwrap();
        let resized = nested.unwrap().resized(0, 256).unwrap();
        for uniform in [&int, &vector, &resized] {
            assert_eq!(uniform.only_builtin(), Some(Builtin::Int));
        }
        assert_eq!(mixed.only_builtin(), None);
        assert_eq!(Datatype::structure(&[], &[], &[]).unwrap().only_builtin(), None);
    }

    #[test]
    fn structs_are_padded_like_in_c() {
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
