//! Buffers that hold a block for every rank, as one stream.

use super::*;

/// The blocks of a buffer that holds one for every rank, as one stream, and their lengths in bytes.
pub(super) struct Blocks {
    pub stream: Region,
    pub sizes: Vec<u64>,
}

/// Placement of blocks: at multiples of one count, or at individual displacements.
#[derive(Clone, Copy)]
pub(super) enum Placement<'a> {
    Uniform(i64),
    Listed { counts: Ints<'a>, displacements: Ints<'a> },
}

impl Blocks {
    pub fn new(
        names: &Names,
        address: Address,
        placement: Placement<'_>,
        datatype: RawHandle,
        ranks: u32,
    ) -> Result<Self> {
        let (counts, displacements) = match placement {
            Placement::Uniform(each) => {
                let each = count(names.count, each)?;
                let datatype = committed_for(names.datatype, datatype, each)?;
                return Self::uniform(names, address, each, &datatype, ranks);
            }
            Placement::Listed { counts, .. } if is_all_empty(counts, ranks)? => {
                return Ok(Self::empty(ranks));
            }
            Placement::Listed { counts, displacements } => {
                (counts.all(ranks as usize)?, displacements.all(ranks as usize)?)
            }
        };
        let datatype = committed(names.datatype, datatype)?;
        let places = (counts, displacements);
        let in_a_row = Self::in_a_row(names, address, places, &datatype, ranks)?;
        if let Some(blocks) = in_a_row {
            return Ok(blocks);
        }
        let extent = datatype.extent().1;
        let mut blocks = Gathered::new(ranks);
        for index in 0..ranks as usize {
            let offset = (displacements.at(index) as isize).wrapping_mul(extent);
            let place = displaced(address, offset);
            blocks.push(region(names, place, counts.count_at(index)?, &datatype)?);
        }
        Ok(blocks.end())
    }

    /// They are received, so that no element lies in two of them: receives would write it twice (MPI-5.0 §6.5, §6.7).
    pub fn apart(self, placement: Placement<'_>) -> Result<Self> {
        let Placement::Listed { counts, displacements } = placement else { return Ok(self) };
        let len = self.sizes.len();
        if self.stream.is_empty() {
            return Ok(self);
        }
        let (counts, displacements) = (counts.all(len)?, displacements.all(len)?);
        let at = |index| (displacements.at(index), counts.at(index), index);
        let filled = || (0..self.sizes.len()).filter(|index| self.sizes[*index] > 0).map(at);
        let mut end = i64::MIN;
        let follows = |(start, count, _): (i64, i64, usize)| {
            let is_behind = start >= end;
            end = end.max(start.saturating_add(count));
            is_behind
        };
        if filled().all(follows) {
            return Ok(self);
        }
        let mut blocks: Vec<_> = filled().collect();
        blocks.sort_unstable();
        let overlap =
            blocks.windows(2).find(|pair| pair[0].0.saturating_add(pair[0].1) > pair[1].0);
        let Some(&[one, other]) = overlap.and_then(|pair| pair.first_chunk()) else {
            return Ok(self);
        };
        let name = displacements.name;
        Err(Error::argument(format!(
            "{name}[{}] = {} lies in the block of {} at {name}[{}] = {}",
            other.2, other.0, one.1, one.2, one.0
        )))
    }

    /// Blocks of no elements. Their places and datatypes mean nothing.
    fn empty(ranks: u32) -> Self {
        Self { stream: Region::empty(), sizes: vec![0; ranks as usize] }
    }

    /// Blocks of one count, which follow each other as elements do: all of them are one buffer.
    fn uniform(
        names: &Names,
        address: Address,
        each: usize,
        datatype: &Datatype,
        ranks: u32,
    ) -> Result<Self> {
        let ranks = ranks as usize;
        let stream = region(names, address, each.saturating_mul(ranks), datatype)?;
        let sizes = vec![(stream.len() / ranks.max(1)) as u64; ranks];
        Ok(Self { stream, sizes })
    }

    /// Blocks that follow each other as elements do: all of them are one buffer.
    fn in_a_row(
        names: &Names,
        address: Address,
        (counts, displacements): (IntSlice<'_>, IntSlice<'_>),
        datatype: &Datatype,
        ranks: u32,
    ) -> Result<Option<Self>> {
        let (mut first, mut elements) = (None, 0_usize);
        let mut sizes = Vec::with_capacity(ranks as usize);
        for index in 0..ranks as usize {
            let (count, place) = (counts.count_at(index)?, displacements.at(index));
            sizes.push(count.saturating_mul(datatype.size()) as u64);
            if count > 0 {
                let start = *first.get_or_insert(place);
                if place.checked_sub(start).map(usize::try_from) != Some(Ok(elements)) {
                    return Ok(None);
                }
                elements = elements.saturating_add(count);
            }
        }
        let offset = (first.unwrap_or(0) as isize).wrapping_mul(datatype.extent().1);
        let stream = region(names, displaced(address, offset), elements, datatype)?;
        Ok(Some(Self { stream, sizes }))
    }

    /// Blocks with a datatype each, at displacements in bytes.
    pub fn mixed(
        names: &Names,
        address: Address,
        counts: Ints<'_>,
        displacements: Ints<'_>,
        types: Array<'_, RawHandle>,
        ranks: u32,
    ) -> Result<Self> {
        if is_all_empty(counts, ranks)? {
            return Ok(Self::empty(ranks));
        }
        let (counts, displacements) =
            (counts.all(ranks as usize)?, displacements.all(ranks as usize)?);
        let mut blocks = Gathered::new(ranks);
        let types = types.all(ranks as usize)?;
        for (index, &raw) in types.iter().enumerate() {
            let datatype = committed_for(names.datatype, raw, counts.count_at(index)?)?;
            let offset = displacements.at(index) as isize;
            // From `MPI_BOTTOM` on, these displacements are addresses.
            let place = match address.get().is_null() {
                true => address.offset(offset),
                false => displaced(address, offset),
            };
            blocks.push(region(names, place, counts.count_at(index)?, &datatype)?);
        }
        Ok(blocks.end())
    }

    /// The block from this process to itself.
    pub fn own(&self, rank: u32) -> Region {
        let rank = rank as usize;
        let start: u64 = self.sizes[..rank].iter().sum();
        self.stream.slice(start as usize, self.sizes[rank] as usize)
    }
}

/// True if no block has elements.
fn is_all_empty(counts: Ints<'_>, ranks: u32) -> Result<bool> {
    let counts = counts.all(ranks as usize)?;
    Ok((0..counts.len()).all(|index| counts.at(index) == 0))
}

/// Blocks on their way to one stream.
struct Gathered {
    parts: Vec<Region>,
    sizes: Vec<u64>,
}

impl Gathered {
    fn new(ranks: u32) -> Self {
        let ranks = ranks as usize;
        Self { parts: Vec::with_capacity(ranks), sizes: Vec::with_capacity(ranks) }
    }

    fn push(&mut self, part: Region) {
        self.sizes.push(part.len() as u64);
        self.parts.push(part);
    }

    fn end(self) -> Blocks {
        Blocks { stream: Region::chain(self.parts), sizes: self.sizes }
    }
}

/// An address so many bytes on; NULL and its like stay what they are.
fn displaced(address: Address, offset: isize) -> Address {
    match address.get() as usize {
        0..16 => address,
        _ => address.offset(offset),
    }
}
