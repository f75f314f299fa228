//! Types rebuilt of other basic elements: those of a data representation of files (MPI-5.0 §14.5).

use crate::array::{ArrayOrder, Cut};
use crate::builtin::Builtin;
use crate::datatype::{Combiner, Contents, Datatype, TypeError};

impl Datatype {
    /// Makes the type that the same constructors make of other basic elements, `by` of each. Displacements in elements follow
    /// the new extents; those in bytes stay.
    ///
    /// # Errors
    /// Those of the constructors and of `by`.
    pub fn replaced<E: From<TypeError>>(
        &self,
        by: &mut impl FnMut(Builtin) -> Result<Self, E>,
    ) -> Result<Self, E> {
        if let Some(builtin) = self.as_builtin() {
            return by(builtin);
        }
        let Contents { combiner, integers, addresses, datatypes } = self.contents();
        let parts = datatypes.iter().map(|part| part.replaced(by));
        let parts: Vec<Self> = parts.collect::<Result<_, E>>()?;
        let Some(old) = parts.first() else {
            return Ok(Self::structure(&[], &[], &[])?);
        };
        let list = |index: usize, first: usize| {
            let len = integers[0] as usize;
            &integers[first + index * len..first + (index + 1) * len]
        };
        Ok(match combiner {
            Combiner::Named
            | Combiner::Dup
            | Combiner::F90Real
            | Combiner::F90Complex
            | Combiner::F90Integer => old.clone(),
            Combiner::Contiguous => Self::contiguous(integers[0], old)?,
            Combiner::Vector => Self::vector(integers[0], integers[1], integers[2], old)?,
            Combiner::Hvector => Self::hvector(integers[0], integers[1], addresses[0], old)?,
            Combiner::Indexed => Self::indexed(list(0, 1), list(1, 1), old)?,
            Combiner::Hindexed => Self::hindexed(list(0, 1), addresses, old)?,
            Combiner::IndexedBlock => Self::indexed_block(integers[1], &integers[2..], old)?,
            Combiner::HindexedBlock => Self::hindexed_block(integers[1], addresses, old)?,
            Combiner::Struct => Self::structure(list(0, 1), addresses, &parts)?,
            Combiner::Subarray => {
                let order = ArrayOrder::of_code(integers[integers.len() - 1]);
                Self::subarray(list(0, 1), list(1, 1), list(2, 1), order, old)?
            }
            Combiner::Darray => {
                let (cuts, order) = Cut::of_arguments(integers);
                Self::distributed(integers[0], integers[1], &cuts, order, old)?
            }
            Combiner::Resized => old.resized(addresses[0], addresses[1])?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::array::Distribution;

    /// Replaces each element by itself.
    fn rebuilt(datatype: &Datatype) -> Datatype {
        let mut same = |builtin| Ok::<_, TypeError>(Datatype::builtin(builtin));
        datatype.replaced(&mut same).unwrap()
    }

    fn all() -> Vec<Datatype> {
        let int = Datatype::builtin(Builtin::Int);
        let types = [Builtin::Double, Builtin::Char].map(Datatype::builtin);
        let cut = |distribution, block, processes| Cut { size: 7, distribution, block, processes };
        let cuts = [cut(Distribution::Cyclic, Some(2), 2), cut(Distribution::Block, None, 3)];
        vec![
            int.clone(),
            int.duplicate(),
            Datatype::contiguous(3, &int).unwrap(),
            Datatype::contiguous(0, &int).unwrap(),
            Datatype::vector(3, 2, 5, &int).unwrap(),
            Datatype::hvector(3, 2, 50, &int).unwrap(),
            Datatype::indexed(&[1, 3, 2], &[9, 4, 0], &int).unwrap(),
            Datatype::hindexed(&[1, 3], &[40, 4], &int).unwrap(),
            Datatype::indexed_block(2, &[5, 0, 9], &int).unwrap(),
            Datatype::hindexed_block(2, &[20, 0, 40], &int).unwrap(),
            Datatype::structure(&[2, 3], &[8, 40], &types).unwrap(),
            Datatype::structure(&[], &[], &[]).unwrap(),
            Datatype::subarray(&[4, 6], &[2, 3], &[1, 2], ArrayOrder::Fortran, &int).unwrap(),
            Datatype::distributed(6, 4, &cuts, ArrayOrder::C, &int).unwrap(),
            Datatype::vector(3, 2, 5, &int).unwrap().resized(-4, 80).unwrap(),
        ]
    }

    #[test]
    fn a_type_of_the_same_elements_is_the_same() {
        for datatype in all() {
            let again = rebuilt(&datatype);
            assert_eq!(again.layout(), datatype.layout(), "{:?}", datatype.contents());
            assert_eq!(again.extent(), datatype.extent());
        }
    }

    #[test]
    fn places_in_elements_follow_their_extent() {
        let long = Datatype::builtin(Builtin::Long);
        let byte = Datatype::builtin(Builtin::Byte);
        let mut short = |_| Datatype::contiguous(4, &byte);
        let vector = Datatype::vector(2, 1, 3, &long).unwrap().replaced(&mut short).unwrap();
        assert_eq!((vector.size(), vector.extent()), (8, (0, 16)));
        let hvector = Datatype::hvector(2, 1, 24, &long).unwrap().replaced(&mut short).unwrap();
        assert_eq!((hvector.size(), hvector.extent()), (8, (0, 28)));
    }
}
