//! Datatypes against type maps written out entry by entry (MPI-5.0 §5.1).

use std::collections::HashSet;

use datatype::{ArrayOrder, Builtin, Combiner, Contents, Cut, Datatype, Distribution};
use memory::Region;
use proptest::prelude::*;

proptest! {
    #![proptest_config(ProptestConfig { cases: testing::cases(1000), failure_persistence: None, ..<_>::default() })]

    #[test]
    fn bounds_are_those_of_the_type_map(recipe in recipe()) {
        let (made, map) = (recipe.make(), recipe.map());
        prop_assert_eq!(made.size(), map.size());
        prop_assert_eq!(made.extent(), (map.lower() as isize, map.extent() as isize));
        prop_assert_eq!(made.true_extent(), map.true_extent());
    }

    #[test]
    fn the_recorded_arguments_build_the_same_type(recipe in recipe()) {
        let made = recipe.make();
        let again = rebuild(&made);
        prop_assert_eq!(again.layout(), made.layout());
        prop_assert_eq!((again.extent(), again.true_extent()), (made.extent(), made.true_extent()));
        prop_assert_eq!(again.contents().combiner, made.contents().combiner);
    }

    #[test]
    fn bytes_are_in_the_order_of_the_type_map(recipe in recipe()) {
        let made = recipe.make();
        let segments = made.layout().segments().iter();
        let bytes: Vec<i64> =
            segments.flat_map(|one| (0..one.len).map(move |at| (one.offset + at as isize) as i64)).collect();
        prop_assert_eq!(bytes, recipe.map().bytes());
    }

    #[test]
    fn a_vector_equals_its_blocks(
        recipe in recipe(), count in 0i64..5, block in 0i64..4, stride in -200i64..200,
    ) {
        let old = recipe.make();
        let made = Datatype::hvector(count, block, stride, &old).expect("small");
        let displacements: Vec<i64> = (0..count).map(|index| index * stride).collect();
        let listed = Datatype::hindexed(&vec![block; count as usize], &displacements, &old);
        let listed = listed.expect("small");
        prop_assert_eq!(made.layout(), listed.layout());
        prop_assert_eq!((made.extent(), made.true_extent()), (listed.extent(), listed.true_extent()));
        prop_assert_eq!(made.elements_in(made.size() as u64), listed.elements_in(made.size() as u64));
    }

    #[test]
    fn received_bytes_are_counted_in_elements(recipe in recipe(), count in 0u64..4, rest in 0u64..200) {
        let (made, map) = (recipe.make(), recipe.map());
        let size = map.size() as u64;
        let rest = if size == 0 { 0 } else { rest % size };
        let bytes = count * size + rest;
        let whole = (rest == 0).then_some(if size == 0 { 0 } else { count });
        prop_assert_eq!(made.count_in(bytes), whole);
        prop_assert_eq!(made.elements_in(bytes), map.elements_in(bytes));
        if size == 0 {
            prop_assert_eq!((made.count_in(1), made.elements_in(1)), (None, None));
        }
    }

    #[test]
    fn reading_in_pieces_is_reading_the_whole(
        recipe in recipe(),
        count in 0usize..4,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let Some(field) = Field::new(&recipe, count) else { return Ok(()) };
        let whole = field.region.to_vec();
        prop_assert_eq!(&whole, &field.expected());
        let mut pieces = Vec::new();
        for piece in pieces_of(whole.len(), &cuts) {
            let mut bytes = vec![0; piece.len()];
            field.region.read(piece.start, &mut bytes);
            prop_assert_eq!(&field.region.slice(piece.start, piece.len()).to_vec(), &bytes);
            pieces.extend(bytes);
        }
        prop_assert_eq!(pieces, whole);
    }

    #[test]
    fn data_written_in_pieces_are_read_again_and_nothing_else_changes(
        recipe in recipe(),
        count in 0usize..4,
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let field = Field::new(&recipe, count).filter(|field| !field.overlaps());
        let Some(field) = field else { return Ok(()) };
        let before = field.memory.to_vec();
        let data: Vec<u8> = (0..field.region.len()).map(|at| !(at as u8)).collect();
        for piece in pieces_of(data.len(), &cuts).into_iter().rev() {
            field.region.write(piece.start, &data[piece]);
        }
        prop_assert_eq!(field.region.to_vec(), data.clone());
        let mut after = before;
        for (&at, &byte) in field.places.iter().zip(&data) {
            after[at] = byte;
        }
        prop_assert_eq!(field.memory.to_vec(), after);
    }

    #[test]
    fn copying_between_types_of_equal_size_keeps_the_stream(recipe in recipe(), count in 0usize..4) {
        let field = Field::new(&recipe, count).filter(|field| !field.overlaps());
        let Some(field) = field else { return Ok(()) };
        let packed = Region::from_box((0..field.region.len()).map(|at| at as u8).collect());
        field.region.copy_from(&packed);
        let back = Region::owned(packed.len());
        back.copy_from(&field.region);
        prop_assert_eq!(back.to_vec(), packed.to_vec());
    }
}

#[test]
fn the_standards_example_of_markers() {
    // MPI-5.0 §5.1.6, on lower-bound and upper-bound markers.
    let one = Datatype::builtin(Builtin::Int).resized(-3, 9).expect("small");
    assert_eq!(one.extent(), (-3, 9));
    let two = Datatype::contiguous(2, &one).expect("small");
    assert_eq!((two.extent(), two.true_extent()), ((-3, 18), (0, 13)));
}

#[test]
fn an_element_that_is_not_aligned_holds_those_it_is_made_of() {
    let inner = Datatype::hvector(3, 4, 49, &Datatype::builtin(Builtin::Double)).expect("small");
    assert_eq!((inner.extent(), inner.true_extent()), ((0, 136), (0, 130)));
    let outer = Datatype::hvector(2, 3, 4 * 136 + 1, &inner).expect("small");
    assert_eq!((outer.extent(), outer.true_extent()), ((0, 960), (0, 947)));
}

#[test]
fn markers_hide_the_bounds_of_unmarked_neighbours() {
    let marked = Datatype::builtin(Builtin::Char).resized(0, 16).expect("small");
    let plain = Datatype::builtin(Builtin::Double);
    let made = Datatype::structure(&[1, 1], &[0, 100], &[marked, plain]).expect("small");
    assert_eq!((made.extent(), made.true_extent()), ((0, 16), (0, 108)));
}

#[test]
fn pairs_are_two_elements() {
    for builtin in [Builtin::DoubleInt, Builtin::TwoInt, Builtin::ShortInt, Builtin::TwoReal] {
        let made = Datatype::builtin(builtin);
        assert_eq!(made.elements_in(made.size() as u64), Some(2), "{}", builtin.name());
    }
    assert_eq!(Datatype::builtin(Builtin::CDoubleComplex).elements_in(16), Some(1));
}

#[test]
fn vectors_without_gaps_may_be_as_long_as_memory() {
    let int = Datatype::builtin(Builtin::Int);
    let made = Datatype::vector(1 << 40, 3, 3, &int).expect("one run of bytes");
    assert_eq!((made.size(), made.extent()), (12 << 40, (0, 12 << 40)));
    assert!(made.layout().is_contiguous());
}

#[test]
fn vectors_with_gaps_need_no_list() {
    let int = Datatype::builtin(Builtin::Int);
    let made = Datatype::vector(1 << 40, 3, 4, &int).expect("alike runs of bytes");
    assert_eq!((made.size(), made.extent()), (12 << 40, (0, (16 << 40) - 4)));
    let twice = Datatype::hvector(2, 1, 16 << 40, &made).expect("more of them");
    assert_eq!((twice.size(), twice.layout().segments().len()), (24 << 40, 2 << 40));
    assert!(Datatype::vector(2, 1, 2, &made).is_err(), "two such, apart, need a list");
    let one_more = Datatype::structure(&[1, 1], &[0, 1], &[made, int.clone()]);
    assert!(one_more.is_err(), "so does one that lies elsewhere");
    let uneven = Datatype::indexed(&[1, 2], &[0, 2], &int).expect("small");
    assert!(Datatype::vector(1 << 40, 3, 5, &uneven).is_err(), "too many runs of bytes");
    assert!(Datatype::vector(1 << 40, 0, 5, &uneven).is_ok_and(|made| made.size() == 0));
}

#[test]
fn types_beyond_the_address_space_are_refused() {
    let char = Datatype::builtin(Builtin::Char);
    let half = Datatype::contiguous(1 << 62, &char).expect("as large as memory may be");
    assert!(Datatype::contiguous(4, &half).is_err());
    assert!(Datatype::hvector(3, 1, i64::MAX / 2, &char).is_ok());
    assert!(Datatype::hvector(3, 1, i64::MAX, &char).is_err());
    assert!(Datatype::hindexed(&[1, 1], &[i64::MIN, i64::MAX], &char).is_err());
    assert!(Datatype::hindexed(&[1, 1, 1, 1], &[0; 4], &half).is_err(), "too much data");
    assert!(Datatype::vector(2, 1, i64::MAX, &half).is_err());
    assert!(char.resized(i64::MAX, i64::MAX).is_err());
    let sizes = [1 << 40; 2];
    assert!(
        Datatype::subarray(&sizes, &[1, 1], &[0, (1 << 40) - 1], ArrayOrder::C, &char).is_err()
    );
}

/// Recipe of a type.
#[derive(Clone, Debug)]
enum Recipe {
    Basic(Builtin),
    Dup(Box<Self>),
    Contiguous(i64, Box<Self>),
    Vector(i64, i64, i64, Box<Self>),
    Hvector(i64, i64, i64, Box<Self>),
    Indexed(Vec<(i64, i64)>, Box<Self>),
    Hindexed(Vec<(i64, i64)>, Box<Self>),
    IndexedBlock(i64, Vec<i64>, Box<Self>),
    HindexedBlock(i64, Vec<i64>, Box<Self>),
    Struct(Vec<(i64, i64, Self)>),
    Resized(i64, i64, Box<Self>),
    /// Size, part and start in each dimension.
    Subarray(Vec<(i64, i64, i64)>, ArrayOrder, Box<Self>),
    /// Part of one process, whose rank is taken modulo their number.
    Darray(Vec<Cut>, i64, ArrayOrder, Box<Self>),
}

fn recipe() -> impl Strategy<Value = Recipe> {
    prop::sample::select(BASICS).prop_map(Recipe::Basic).prop_recursive(4, 20, 3, |inner| {
        let one = inner.clone().prop_map(Box::new);
        let places = || prop::collection::vec((0..4i64, -8..24i64), 0..4);
        let displacements = || prop::collection::vec(-8..40i64, 0..4);
        let dimension = (1..4i64, 0..3i64, 0..3i64)
            .prop_map(|(part, before, after)| (part + before + after, part, before));
        let order = prop::sample::select(&[ArrayOrder::C, ArrayOrder::Fortran][..]);
        prop_oneof![
            one.clone().prop_map(Recipe::Dup),
            (0..5i64, one.clone()).prop_map(|(n, old)| Recipe::Contiguous(n, old)),
            (0..4i64, 0..4i64, -5..8i64, one.clone())
                .prop_map(|(n, block, stride, old)| Recipe::Vector(n, block, stride, old)),
            (0..4i64, 0..4i64, -50..90i64, one.clone())
                .prop_map(|(n, block, stride, old)| Recipe::Hvector(n, block, stride, old)),
            (places(), one.clone()).prop_map(|(places, old)| Recipe::Indexed(places, old)),
            (places(), one.clone()).prop_map(|(places, old)| Recipe::Hindexed(places, old)),
            (0..4i64, displacements(), one.clone())
                .prop_map(|(block, places, old)| Recipe::IndexedBlock(block, places, old)),
            (0..4i64, displacements(), one.clone())
                .prop_map(|(block, places, old)| Recipe::HindexedBlock(block, places, old)),
            prop::collection::vec((0..3i64, -20..100i64, inner), 0..4).prop_map(Recipe::Struct),
            (-20..20i64, -20..80i64, one.clone())
                .prop_map(|(lower, extent, old)| Recipe::Resized(lower, extent, old)),
            (prop::collection::vec(dimension, 1..4), order.clone(), one.clone())
                .prop_map(|(dimensions, order, old)| Recipe::Subarray(dimensions, order, old)),
            (prop::collection::vec(cut(), 1..4), 0..27i64, order, one)
                .prop_map(|(cuts, rank, order, old)| Recipe::Darray(cuts, rank, order, old)),
        ]
    })
}

fn cut() -> impl Strategy<Value = Cut> {
    let kind =
        prop::sample::select(&[Distribution::None, Distribution::Block, Distribution::Cyclic][..]);
    let block = prop::option::of(0..3i64);
    (1..6i64, kind, block, 1..4i64).prop_map(|(size, distribution, block, processes)| {
        let (least, processes) = match distribution {
            Distribution::None => (1, 1),
            Distribution::Block => ((size + processes - 1) / processes, processes),
            Distribution::Cyclic => (1, processes),
        };
        Cut { size, distribution, block: block.map(|more| least + more), processes }
    })
}

fn processes_of(cuts: &[Cut]) -> i64 {
    cuts.iter().map(|cut| cut.processes).product()
}

impl Recipe {
    fn make(&self) -> Datatype {
        let made = match self {
            Self::Basic(builtin) => Ok(Datatype::builtin(*builtin)),
            Self::Dup(old) => Ok(old.make().duplicate()),
            Self::Contiguous(count, old) => Datatype::contiguous(*count, &old.make()),
            Self::Vector(count, block, stride, old) => {
                Datatype::vector(*count, *block, *stride, &old.make())
            }
            Self::Hvector(count, block, stride, old) => {
                Datatype::hvector(*count, *block, *stride, &old.make())
            }
            Self::Indexed(places, old) => {
                let (lengths, displacements): (Vec<_>, Vec<_>) = places.iter().copied().unzip();
                Datatype::indexed(&lengths, &displacements, &old.make())
            }
            Self::Hindexed(places, old) => {
                let (lengths, displacements): (Vec<_>, Vec<_>) = places.iter().copied().unzip();
                Datatype::hindexed(&lengths, &displacements, &old.make())
            }
            Self::IndexedBlock(block, displacements, old) => {
                Datatype::indexed_block(*block, displacements, &old.make())
            }
            Self::HindexedBlock(block, displacements, old) => {
                Datatype::hindexed_block(*block, displacements, &old.make())
            }
            Self::Struct(parts) => {
                let lengths: Vec<_> = parts.iter().map(|part| part.0).collect();
                let displacements: Vec<_> = parts.iter().map(|part| part.1).collect();
                let types: Vec<_> = parts.iter().map(|part| part.2.make()).collect();
                Datatype::structure(&lengths, &displacements, &types)
            }
            Self::Resized(lower, extent, old) => old.make().resized(*lower, *extent),
            Self::Subarray(dimensions, order, old) => {
                let sizes: Vec<_> = dimensions.iter().map(|one| one.0).collect();
                let parts: Vec<_> = dimensions.iter().map(|one| one.1).collect();
                let starts: Vec<_> = dimensions.iter().map(|one| one.2).collect();
                Datatype::subarray(&sizes, &parts, &starts, *order, &old.make())
            }
            Self::Darray(cuts, rank, order, old) => {
                let processes = processes_of(cuts);
                Datatype::distributed(processes, rank % processes, cuts, *order, &old.make())
            }
        };
        made.expect("small types can be described")
    }

    fn map(&self) -> Map {
        match self {
            Self::Basic(builtin) => Map::basic(*builtin),
            Self::Dup(old) => old.map(),
            Self::Contiguous(count, old) => old.map().block(*count, 0),
            Self::Vector(count, block, stride, old) => {
                let old = old.map();
                let stride = stride * old.extent();
                Map::concat((0..*count).map(|at| old.block(*block, at * stride)))
            }
            Self::Hvector(count, block, stride, old) => {
                let old = old.map();
                Map::concat((0..*count).map(|at| old.block(*block, at * stride)))
            }
            Self::Indexed(places, old) => {
                let old = old.map();
                Map::concat(places.iter().map(|(len, at)| old.block(*len, at * old.extent())))
            }
            Self::Hindexed(places, old) => {
                let old = old.map();
                Map::concat(places.iter().map(|(len, at)| old.block(*len, *at)))
            }
            Self::IndexedBlock(block, places, old) => {
                let old = old.map();
                Map::concat(places.iter().map(|at| old.block(*block, at * old.extent())))
            }
            Self::HindexedBlock(block, places, old) => {
                let old = old.map();
                Map::concat(places.iter().map(|at| old.block(*block, *at)))
            }
            Self::Struct(parts) => {
                Map::concat(parts.iter().map(|(len, at, old)| old.map().block(*len, *at)))
            }
            Self::Resized(lower, extent, old) => old.map().marked(*lower, lower + extent),
            Self::Subarray(dimensions, order, old) => {
                let mut dimensions = dimensions.clone();
                if *order == ArrayOrder::Fortran {
                    dimensions.reverse();
                }
                subarray(&dimensions, &old.map())
            }
            Self::Darray(cuts, rank, order, old) => {
                darray(cuts, rank % processes_of(cuts), *order, &old.map())
            }
        }
    }
}

/// Builds the type that its own envelope and contents describe (MPI-5.0 §5.1.13).
fn rebuild(made: &Datatype) -> Datatype {
    let Contents { combiner, integers, addresses, datatypes } = made.contents();
    let old = datatypes.first().map(rebuild);
    let old = || old.clone().expect("derived from one type");
    let count = integers.first().map_or(0, |&count| count as usize);
    let part = |index: usize| &integers[1 + index * count..1 + (index + 1) * count];
    let order = || match integers.last() {
        Some(0xc) => ArrayOrder::C,
        Some(0xf) => ArrayOrder::Fortran,
        other => panic!("{other:?} is no order of the ABI"),
    };
    let again = match combiner {
        Combiner::Named => Ok(made.clone()),
        Combiner::Dup => Ok(old().duplicate()),
        Combiner::Contiguous => Datatype::contiguous(integers[0], &old()),
        Combiner::Vector => Datatype::vector(integers[0], integers[1], integers[2], &old()),
        Combiner::Hvector => Datatype::hvector(integers[0], integers[1], addresses[0], &old()),
        Combiner::Indexed => Datatype::indexed(part(0), part(1), &old()),
        Combiner::Hindexed => Datatype::hindexed(part(0), addresses, &old()),
        Combiner::IndexedBlock => Datatype::indexed_block(integers[1], &integers[2..], &old()),
        Combiner::HindexedBlock => Datatype::hindexed_block(integers[1], addresses, &old()),
        Combiner::Struct => {
            let types: Vec<_> = datatypes.iter().map(rebuild).collect();
            Datatype::structure(part(0), addresses, &types)
        }
        Combiner::Subarray => Datatype::subarray(part(0), part(1), part(2), order(), &old()),
        Combiner::Darray => {
            let cuts = cuts_of(&integers[2..]);
            Datatype::distributed(integers[0], integers[1], &cuts, order(), &old())
        }
        Combiner::Resized => old().resized(addresses[0], addresses[1]),
        Combiner::F90Real | Combiner::F90Complex | Combiner::F90Integer => {
            panic!("{combiner:?} is not among the recipes")
        }
    };
    again.expect("it was built before")
}

/// Returns the cuts from the number of dimensions, sizes, distributions, blocks and processes.
fn cuts_of(integers: &[i64]) -> Vec<Cut> {
    let dimensions = integers[0] as usize;
    let cut = |axis: usize| {
        let of = |what: usize| integers[1 + what * dimensions + axis];
        let distribution = match of(1) {
            16 => Distribution::None,
            17 => Distribution::Block,
            18 => Distribution::Cyclic,
            other => panic!("{other} is no distribution of the ABI"),
        };
        // 19 is MPI_DISTRIBUTE_DFLT_DARG.
        let block = (of(2) != 19).then(|| of(2));
        Cut { size: of(0), distribution, block, processes: of(3) }
    };
    (0..dimensions).map(cut).collect()
}

/// A part of an array whose last dimension varies fastest.
fn subarray(dimensions: &[(i64, i64, i64)], old: &Map) -> Map {
    let mut places = vec![0];
    for (size, part, start) in dimensions {
        let within = |row: &i64| (0..*part).map(|at| row * size + start + at).collect::<Vec<_>>();
        places = places.iter().flat_map(within).collect();
    }
    let elements: i64 = dimensions.iter().map(|one| one.0).product();
    let parts = places.iter().map(|at| old.block(1, at * old.extent()));
    Map::concat(parts).marked(0, elements * old.extent())
}

/// Returns the elements of an array that one process has, in the array's order. In each dimension
/// the blocks are dealt round robin to the processes, whose ranks are in row-major order (MPI-5.0
/// §5.1.4).
fn darray(cuts: &[Cut], rank: i64, order: ArrayOrder, old: &Map) -> Map {
    let mut axes: Vec<usize> = (0..cuts.len()).collect();
    if order == ArrayOrder::C {
        axes.reverse();
    }
    let owner = |element: i64| {
        let (mut indices, mut rest) = (vec![0; cuts.len()], element);
        for &axis in &axes {
            (indices[axis], rest) = (rest % cuts[axis].size, rest / cuts[axis].size);
        }
        cuts.iter().zip(indices).fold(0, |rank, (cut, index)| {
            let block = match (cut.distribution, cut.block) {
                (Distribution::None, _) => cut.size,
                (Distribution::Block, None) => (cut.size + cut.processes - 1) / cut.processes,
                (Distribution::Cyclic, None) => 1,
                (Distribution::Block | Distribution::Cyclic, Some(block)) => block,
            };
            rank * cut.processes + index / block % cut.processes
        })
    };
    let elements: i64 = cuts.iter().map(|cut| cut.size).product();
    let mine = (0..elements).filter(|&element| owner(element) == rank);
    let parts = mine.map(|element| old.block(1, element * old.extent()));
    Map::concat(parts).marked(0, elements * old.extent())
}

/// A type map: basic elements in order, and markers.
#[derive(Clone, Debug, Default)]
struct Map {
    entries: Vec<MapEntry>,
    lower_markers: Vec<i64>,
    upper_markers: Vec<i64>,
    /// Ends of the elements that the map was made of, padding included.
    ends: Vec<i64>,
}

#[derive(Clone, Copy, Debug)]
struct MapEntry {
    displacement: i64,
    size: i64,
    alignment: i64,
}

impl Map {
    fn basic(builtin: Builtin) -> Self {
        let parts: &[i64] = match builtin {
            Builtin::Char => &[1],
            Builtin::Short => &[2],
            Builtin::Int => &[4],
            Builtin::Double => &[8],
            Builtin::LongDouble => &[16],
            Builtin::ShortInt => &[2, 4],
            Builtin::DoubleInt => &[8, 4],
            Builtin::LongDoubleInt => &[16, 4],
            other => panic!("{} is not among the basics", other.name()),
        };
        let mut map = Self::default();
        for &size in parts {
            let end = map.entries.last().map_or(0, |last| last.displacement + last.size);
            let displacement = (end + size - 1) / size * size;
            map.entries.push(MapEntry { displacement, size, alignment: size });
        }
        map
    }

    fn concat(parts: impl IntoIterator<Item = Self>) -> Self {
        parts.into_iter().fold(Self::default(), |mut whole, part| {
            whole.entries.extend(part.entries);
            whole.lower_markers.extend(part.lower_markers);
            whole.upper_markers.extend(part.upper_markers);
            whole.ends.extend(part.ends);
            whole
        })
    }

    /// `count` copies, one extent apart, the first at `displacement`.
    fn block(&self, count: i64, displacement: i64) -> Self {
        Self::concat((0..count).map(|at| self.shifted(displacement + at * self.extent())))
    }

    fn shifted(&self, by: i64) -> Self {
        let mut shifted = self.clone();
        shifted.entries.iter_mut().for_each(|entry| entry.displacement += by);
        shifted.lower_markers.iter_mut().for_each(|marker| *marker += by);
        shifted.upper_markers.iter_mut().for_each(|marker| *marker += by);
        shifted.ends = if self.entries.is_empty() { vec![] } else { vec![by + self.upper()] };
        shifted
    }

    fn marked(&self, lower: i64, upper: i64) -> Self {
        let entries = self.entries.clone();
        Self { entries, lower_markers: vec![lower], upper_markers: vec![upper], ends: vec![] }
    }

    fn lower(&self) -> i64 {
        let first = self.entries.iter().map(|entry| entry.displacement).min();
        self.lower_markers.iter().copied().min().or(first).unwrap_or(0)
    }

    fn upper(&self) -> i64 {
        if let Some(marker) = self.upper_markers.iter().copied().max() {
            return marker;
        }
        let entries = self.entries.iter().map(|entry| entry.displacement + entry.size);
        let last = entries.chain(self.ends.iter().copied()).max();
        let alignment = self.entries.iter().map(|entry| entry.alignment).max();
        let (Some(mut upper), Some(alignment)) = (last, alignment) else { return 0 };
        while (upper - self.lower()) % alignment != 0 {
            upper += 1;
        }
        upper
    }

    fn extent(&self) -> i64 {
        self.upper() - self.lower()
    }

    fn true_extent(&self) -> (isize, isize) {
        let first = self.entries.iter().map(|entry| entry.displacement).min().unwrap_or(0);
        let last = self.entries.iter().map(|entry| entry.displacement + entry.size).max();
        (first as isize, (last.unwrap_or(0) - first) as isize)
    }

    fn size(&self) -> usize {
        self.entries.iter().map(|entry| entry.size as usize).sum()
    }

    fn bytes(&self) -> Vec<i64> {
        let of = |entry: &MapEntry| entry.displacement..entry.displacement + entry.size;
        self.entries.iter().flat_map(of).collect()
    }

    fn elements_in(&self, mut bytes: u64) -> Option<u64> {
        let mut elements = 0;
        for entry in self.entries.iter().cycle() {
            if bytes < entry.size as u64 {
                break;
            }
            bytes -= entry.size as u64;
            elements += 1;
        }
        (bytes == 0).then_some(elements)
    }
}

/// Elements of a type in a field of memory.
struct Field {
    memory: Region,
    region: Region,
    /// Offset in memory of each byte of the stream.
    places: Vec<usize>,
}

impl Field {
    /// Makes a field; `None` if it needs too much memory.
    fn new(recipe: &Recipe, count: usize) -> Option<Self> {
        let map = recipe.map();
        let bytes = map.bytes();
        let all = (0..count as i64).flat_map(|at| {
            let origin = at * map.extent();
            bytes.iter().map(move |byte| byte + origin)
        });
        let all: Vec<i64> = all.collect();
        let first = all.iter().copied().min().unwrap_or(0).min(0);
        let last = all.iter().copied().max().unwrap_or(0).max(0);
        if last - first > 1 << 16 {
            return None;
        }
        let memory = (0..=last - first).map(|at| (at * 7) as u8 ^ (at >> 8) as u8).collect();
        let memory = Region::from_box(memory);
        let region = memory.typed(-first as isize, count, recipe.make().layout())?;
        let places = all.iter().map(|at| (at - first) as usize).collect();
        Some(Self { memory, region, places })
    }

    fn expected(&self) -> Vec<u8> {
        let memory = self.memory.to_vec();
        self.places.iter().map(|&at| memory[at]).collect()
    }

    fn overlaps(&self) -> bool {
        let distinct: HashSet<_> = self.places.iter().collect();
        distinct.len() < self.places.len()
    }
}

/// Returns the parts of `0..len` between the cuts.
fn pieces_of(len: usize, cuts: &[prop::sample::Index]) -> Vec<std::ops::Range<usize>> {
    let mut ends: Vec<_> = cuts.iter().map(|cut| cut.index(len + 1)).collect();
    ends.extend([0, len]);
    ends.sort_unstable();
    ends.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

const BASICS: &[Builtin] = &[
    Builtin::Char,
    Builtin::Short,
    Builtin::Int,
    Builtin::Double,
    Builtin::LongDouble,
    Builtin::ShortInt,
    Builtin::DoubleInt,
    Builtin::LongDoubleInt,
];
