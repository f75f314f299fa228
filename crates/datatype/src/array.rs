//! Parts of arrays: subarrays and distributed arrays (MPI-5.0 §5.1.3, §5.1.4).

use crate::construct::{Block, build, contents, copied, room, too_large};
use crate::datatype::{Bounds, Combiner, Contents, Datatype, Edges, TypeError};

/// Order in which an array's dimensions vary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ArrayOrder {
    /// The last dimension varies fastest.
    C,
    /// The first dimension varies fastest.
    Fortran,
}

/// Distribution of a dimension over processes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Distribution {
    /// Not at all.
    None,
    /// In one block per process.
    Block,
    /// Round robin.
    Cyclic,
}

/// One dimension of a distributed array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// Elements of the whole array.
    pub size: i64,
    /// Distribution of the elements.
    pub distribution: Distribution,
    /// Elements of a block; none for `MPI_DISTRIBUTE_DFLT_DARG`.
    pub block: Option<i64>,
    /// Number of processes.
    pub processes: i64,
}

/// Elements `start..start + len` of one dimension.
type Run = (i64, i64);

impl Datatype {
    /// Makes the type of the part `starts[i]..starts[i] + sub[i]` of an array of `sizes[i]`
    /// elements in each dimension.
    ///
    /// # Errors
    /// If the part does not lie in the array; else see [`Datatype::contiguous`].
    pub fn subarray(
        sizes: &[i64],
        sub: &[i64],
        starts: &[i64],
        order: ArrayOrder,
        old: &Self,
    ) -> Result<Self, TypeError> {
        for ((&size, &part), &start) in sizes.iter().zip(sub).zip(starts) {
            check_size("array_of_sizes", size)?;
            if part < 1 || part > size {
                return Err(TypeError::new("array_of_subsizes", part, "must be within the size"));
            }
            if start < 0 || start > size - part {
                return Err(TypeError::new("array_of_starts", start, "leads out of the array"));
            }
        }
        if sizes.is_empty() {
            return Err(TypeError::new("ndims", 0, "must be positive"));
        }
        let mut integers = room(2 + 3 * sizes.len())?;
        integers.push(sizes.len() as i64);
        [sizes, sub, starts].iter().for_each(|&list| integers.extend(list));
        integers.push(order.code());
        let contents = contents(Combiner::Subarray, integers, vec![], std::slice::from_ref(old))?;
        let mut runs = room(sizes.len())?;
        runs.extend(starts.iter().zip(sub).map(|(&start, &part)| vec![(start, part)]));
        part_of_array(sizes, &runs, order, old, contents)
    }

    /// Makes the type of the part that process `rank` of `size`, in a row-major grid, has of a
    /// distributed array.
    ///
    /// # Errors
    /// If the cuts do not fit the array or the grid the processes; else see
    /// [`Datatype::contiguous`].
    pub fn distributed(
        size: i64,
        rank: i64,
        cuts: &[Cut],
        order: ArrayOrder,
        old: &Self,
    ) -> Result<Self, TypeError> {
        let processes = cuts.iter().try_fold(1i64, |all, cut| all.checked_mul(cut.processes));
        cuts.iter().try_for_each(Cut::check)?;
        if cuts.is_empty() {
            return Err(TypeError::new("ndims", 0, "must be positive"));
        }
        if processes != Some(size) {
            return Err(TypeError::new("size", size, "is not the product of array_of_psizes"));
        }
        if !(0..size).contains(&rank) {
            return Err(TypeError::new("rank", rank, "is outside the processes"));
        }
        let mut rest = rank;
        let mut runs = room(cuts.len())?;
        for cut in cuts.iter().rev() {
            runs.push(cut.runs(rest % cut.processes)?);
            rest /= cut.processes;
        }
        runs.reverse();
        let sizes: Vec<i64> = cuts.iter().map(|cut| cut.size).collect();
        let integers = darray_arguments(size, rank, cuts, order)?;
        let contents = contents(Combiner::Darray, integers, vec![], std::slice::from_ref(old))?;
        part_of_array(&sizes, &runs, order, old, contents)
    }
}

impl Cut {
    /// Returns the cuts and the order that the integer arguments of a distributed array say.
    pub(crate) fn of_arguments(integers: &[i64]) -> (Vec<Self>, ArrayOrder) {
        let dimensions = integers[2] as usize;
        let argument = |list: usize, index: usize| integers[3 + list * dimensions + index];
        let cut = |index| Self {
            size: argument(0, index),
            distribution: match argument(1, index) {
                DISTRIBUTE_BLOCK => Distribution::Block,
                DISTRIBUTE_CYCLIC => Distribution::Cyclic,
                _ => Distribution::None,
            },
            block: Some(argument(2, index)).filter(|block| *block != DISTRIBUTE_DEFAULT),
            processes: argument(3, index),
        };
        let cuts = (0..dimensions).map(cut).collect();
        (cuts, ArrayOrder::of_code(integers[integers.len() - 1]))
    }

    fn check(&self) -> Result<(), TypeError> {
        check_size("array_of_gsizes", self.size)?;
        check_size("array_of_psizes", self.processes)?;
        if let Some(block) = self.block {
            check_size("array_of_dargs", block)?;
        }
        match (self.distribution, self.block) {
            (Distribution::None, _) if self.processes != 1 => {
                let reason = "must be 1 where the dimension is not distributed";
                Err(TypeError::new("array_of_psizes", self.processes, reason))
            }
            (Distribution::Block, Some(block))
                if block.checked_mul(self.processes).is_some_and(|all| all < self.size) =>
            {
                let reason = "blocks do not cover the dimension";
                Err(TypeError::new("array_of_dargs", block, reason))
            }
            (Distribution::None | Distribution::Block | Distribution::Cyclic, _) => Ok(()),
        }
    }

    /// Returns the elements of the process at this coordinate, in ascending order.
    fn runs(&self, coordinate: i64) -> Result<Vec<Run>, TypeError> {
        let block = match (self.distribution, self.block) {
            (Distribution::None, _) => self.size,
            (Distribution::Block, None) => (self.size - 1) / self.processes + 1,
            (Distribution::Cyclic, None) => 1,
            (Distribution::Block | Distribution::Cyclic, Some(block)) => block,
        };
        let period = match self.distribution {
            Distribution::None | Distribution::Block => self.size,
            Distribution::Cyclic => block.saturating_mul(self.processes),
        };
        let first = coordinate.saturating_mul(block);
        if self.size / period > RUNS_MAX {
            return Err(too_large());
        }
        let starts = std::iter::successors(Some(first), |start| start.checked_add(period));
        let starts = starts.take_while(|&start| start < self.size);
        let mut runs = room((self.size / period) as usize + 1)?;
        runs.extend(starts.map(|start| (start, block.min(self.size - start))));
        Ok(runs)
    }
}

impl ArrayOrder {
    fn code(self) -> i64 {
        match self {
            Self::C => ORDER_C,
            Self::Fortran => ORDER_FORTRAN,
        }
    }

    /// Returns the order with this code.
    pub(crate) fn of_code(code: i64) -> Self {
        if code == ORDER_FORTRAN { Self::Fortran } else { Self::C }
    }
}

/// Makes the type of the elements that lie in one of the runs in each dimension. It has the bounds
/// of the whole array.
fn part_of_array(
    sizes: &[i64],
    runs: &[Vec<Run>],
    order: ArrayOrder,
    old: &Datatype,
    contents: Contents,
) -> Result<Datatype, TypeError> {
    // Dimensions from the fastest varying on.
    let axes: Vec<usize> = match order {
        ArrayOrder::C => (0..sizes.len()).rev().collect(),
        ArrayOrder::Fortran => (0..sizes.len()).collect(),
    };
    let mut stride = old.extent().1 as i64;
    let mut part = old.clone();
    for axis in axes {
        let each = part.resized(0, stride)?;
        let whole = stride.checked_mul(sizes[axis]).ok_or_else(too_large)?;
        let blocks = runs[axis].iter().map(|&(start, count)| Block {
            displacement: start * stride,
            count,
            datatype: &each,
        });
        part = build(blocks, contents.clone())?;
        stride = whole;
    }
    let markers = Edges { lower: 0, upper: stride as isize };
    let Bounds { data, alignment, .. } = part.bounds();
    let bounds = Bounds::marked(data, markers, alignment).ok_or_else(too_large)?;
    let segments = part.layout().segments();
    let copy = segments.try_clone().ok_or_else(|| TypeError::no_memory(segments.len()))?;
    let layout = Datatype::layout_of(copy, bounds)?;
    Ok(Datatype::derived(layout, bounds, copied(part.elements())?, contents))
}

/// Returns the constructor's arguments in the standard's order.
fn darray_arguments(
    size: i64,
    rank: i64,
    cuts: &[Cut],
    order: ArrayOrder,
) -> Result<Vec<i64>, TypeError> {
    let mut integers = room(4 + 4 * cuts.len())?;
    integers.extend([size, rank, cuts.len() as i64]);
    integers.extend(cuts.iter().map(|cut| cut.size));
    integers.extend(cuts.iter().map(|cut| match cut.distribution {
        Distribution::None => DISTRIBUTE_NONE,
        Distribution::Block => DISTRIBUTE_BLOCK,
        Distribution::Cyclic => DISTRIBUTE_CYCLIC,
    }));
    integers.extend(cuts.iter().map(|cut| cut.block.unwrap_or(DISTRIBUTE_DEFAULT)));
    integers.extend(cuts.iter().map(|cut| cut.processes));
    integers.push(order.code());
    Ok(integers)
}

fn check_size(argument: &'static str, size: i64) -> Result<(), TypeError> {
    match size {
        1.. => Ok(()),
        _ => Err(TypeError::new(argument, size, "must be positive")),
    }
}

/// Maximum number of pieces of one dimension.
const RUNS_MAX: i64 = 1 << 26;

/// `MPI_ORDER_C`.
const ORDER_C: i64 = 0xc;
/// `MPI_ORDER_FORTRAN`.
const ORDER_FORTRAN: i64 = 0xf;
/// `MPI_DISTRIBUTE_NONE`.
const DISTRIBUTE_NONE: i64 = 16;
/// `MPI_DISTRIBUTE_BLOCK`.
const DISTRIBUTE_BLOCK: i64 = 17;
/// `MPI_DISTRIBUTE_CYCLIC`.
const DISTRIBUTE_CYCLIC: i64 = 18;
/// `MPI_DISTRIBUTE_DFLT_DARG`.
const DISTRIBUTE_DEFAULT: i64 = 19;

#[cfg(test)]
mod tests {
    use memory::Segment;

    use super::*;
    use crate::builtin::Builtin;

    fn int() -> Datatype {
        Datatype::builtin(Builtin::Int)
    }

    /// Returns the elements of the array that a type has; an element is one `int`.
    fn owned(datatype: &Datatype) -> Vec<isize> {
        let segments = datatype.layout().segments().iter();
        let run = |one: Segment| one.offset / 4..(one.offset + one.len as isize) / 4;
        segments.flat_map(run).collect()
    }

    #[test]
    fn a_subarray_has_the_whole_arrays_extent() {
        let made = Datatype::subarray(&[4, 5], &[2, 3], &[1, 2], ArrayOrder::C, &int()).unwrap();
        assert_eq!((made.size(), made.extent()), (24, (0, 80)));
        let offsets: Vec<_> = made.layout().segments().iter().map(|one| one.offset).collect();
        assert_eq!(offsets, [28, 48]);
        let fortran =
            Datatype::subarray(&[5, 4], &[3, 2], &[2, 1], ArrayOrder::Fortran, &int()).unwrap();
        assert_eq!(fortran.layout(), made.layout());
        let bad = Datatype::subarray(&[4], &[2], &[3], ArrayOrder::C, &int()).unwrap_err();
        assert_eq!((bad.argument, &bad.value[..]), ("array_of_starts", "3"));
    }

    #[test]
    fn a_row_of_many_elements_is_one_piece() {
        let sizes = [3, 1 << 40];
        let made = Datatype::subarray(&sizes, &[2, 1 << 39], &[1, 5], ArrayOrder::C, &int());
        assert_eq!(made.unwrap().layout().segments().len(), 2);
    }

    /// Every element belongs to the process that MPI-5.0 §5.1.4 names: coordinate `i / block` modulo the
    /// processes in each dimension.
    #[test]
    fn every_element_of_a_distributed_array_has_one_owner() {
        use Distribution::{Block, Cyclic, None as Whole};
        let cut =
            |size, distribution, block, processes| Cut { size, distribution, block, processes };
        let arrays: &[&[Cut]] = &[
            &[cut(10, Block, None, 3)],
            &[cut(10, Block, Some(7), 3)],
            &[cut(11, Cyclic, Some(2), 3), cut(5, Whole, None, 1)],
            &[cut(4, Cyclic, None, 2), cut(7, Block, None, 3), cut(3, Cyclic, Some(5), 2)],
        ];
        for &cuts in arrays {
            for order in [ArrayOrder::C, ArrayOrder::Fortran] {
                let size: i64 = cuts.iter().map(|cut| cut.processes).product();
                let all: i64 = cuts.iter().map(|cut| cut.size).product();
                let mut owners = vec![None; all as usize];
                for rank in 0..size {
                    let made = Datatype::distributed(size, rank, cuts, order, &int()).unwrap();
                    assert_eq!(made.extent(), (0, 4 * all as isize));
                    for element in owned(&made) {
                        assert_eq!(owners[element as usize].replace(rank), None);
                    }
                }
                for (element, owner) in owners.into_iter().enumerate() {
                    assert_eq!(owner, Some(owner_of(element as i64, cuts, order)), "{cuts:?}");
                }
            }
        }
    }

    fn owner_of(element: i64, cuts: &[Cut], order: ArrayOrder) -> i64 {
        let mut indices = vec![0; cuts.len()];
        let mut rest = element;
        let axes: Vec<usize> = match order {
            ArrayOrder::C => (0..cuts.len()).rev().collect(),
            ArrayOrder::Fortran => (0..cuts.len()).collect(),
        };
        for axis in axes {
            indices[axis] = rest % cuts[axis].size;
            rest /= cuts[axis].size;
        }
        cuts.iter().zip(indices).fold(0, |rank, (cut, index)| {
            let block = match (cut.distribution, cut.block) {
                (Distribution::None, _) => cut.size,
                (_, Some(block)) => block,
                (Distribution::Block, None) => (cut.size + cut.processes - 1) / cut.processes,
                (Distribution::Cyclic, None) => 1,
            };
            rank * cut.processes + index / block % cut.processes
        })
    }

    #[test]
    fn cuts_that_do_not_fit_are_named() {
        let cut = Cut { size: 10, distribution: Distribution::Block, block: Some(3), processes: 3 };
        let named = |size, rank, cut| {
            Datatype::distributed(size, rank, &[cut], ArrayOrder::C, &int()).unwrap_err().argument
        };
        assert_eq!(named(3, 0, cut), "array_of_dargs");
        assert_eq!(named(4, 0, Cut { block: None, ..cut }), "size");
        assert_eq!(named(3, 3, Cut { block: None, ..cut }), "rank");
        let whole = Cut { distribution: Distribution::None, ..cut };
        assert_eq!(named(3, 0, whole), "array_of_psizes");
    }
}
