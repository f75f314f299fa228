//! Operations on the windows of other processes (MPI-5.0 §12.3).

use std::borrow::Cow;

use datatype::{Builtin, Class, Datatype, Predefined};
use memory::Region;
use rma::{Combination, LockKind, TargetPlace};

use super::epoch::Use;
use super::object::Window;
use super::pending::PendingAccess;
use crate::request::{Done, Request};
use crate::{Error, ErrorClass, Result};

/// Elements in the memory of this process.
#[derive(Clone, Debug)]
pub struct Elements {
    /// Their memory.
    pub memory: Region,
    /// The predefined type of which they consist, if there is only one.
    pub builtin: Option<Builtin>,
}

/// Elements in the window of a target.
#[derive(Clone, Debug)]
pub struct Target {
    /// Rank of the target; none is `MPI_PROC_NULL`.
    rank: Option<u32>,
    /// Displacement of the first element in the target's units, or its address in a dynamic window.
    displacement: i64,
    /// Length of the elements in bytes.
    len: usize,
    /// The predefined type of which they consist, if there is only one.
    builtin: Option<Builtin>,
    /// Number and datatype of elements that may have gaps.
    datatype: Option<(usize, Cow<'static, Datatype>)>,
}

impl Target {
    /// Elements without gaps, of a predefined type.
    #[inline(always)]
    pub fn gapless(rank: u32, displacement: i64, len: usize, builtin: Option<Builtin>) -> Self {
        Self { rank: Some(rank), displacement, len, builtin, datatype: None }
    }

    /// Elements of a datatype, whose length in bytes is a number.
    pub fn elements(
        rank: Option<u32>,
        displacement: i64,
        count: usize,
        datatype: Cow<'static, Datatype>,
    ) -> Self {
        let len = count.saturating_mul(datatype.size());
        let builtin = datatype.only_builtin();
        Self { rank, displacement, len, builtin, datatype: Some((count, datatype)) }
    }

    /// Place of the elements, of which there are some, in the window of a rank.
    #[inline(always)]
    fn place(&self, rank: u32, displacement: i64) -> TargetPlace<'_> {
        match &self.datatype {
            None => TargetPlace::bytes(rank, displacement, self.len),
            Some((count, datatype)) => {
                TargetPlace::elements(rank, displacement, *count, datatype.layout())
            }
        }
    }
}

/// An operation, ready to be submitted.
#[derive(Clone, Copy, Debug)]
pub enum Access<'a> {
    /// Writes elements.
    Put(&'a Region),
    /// Reads elements.
    Get(&'a Region),
    /// Combines elements with those of the target.
    Accumulate {
        /// Elements of this process.
        data: &'a Elements,
        /// The operation.
        op: Predefined,
    },
    /// Combines elements with those of the target, and reads what was there.
    GetAccumulate {
        /// Elements of this process; none with `MPI_NO_OP`.
        data: Option<&'a Elements>,
        /// Memory for the target's former elements.
        result: &'a Elements,
        /// The operation.
        op: Predefined,
    },
    /// Replaces an element of the target if it has a certain value, and reads what was there.
    CompareAndSwap {
        /// The new element.
        data: &'a Region,
        /// Value that the target's element must have.
        compare: &'a Region,
        /// Memory for the target's former element.
        result: &'a Region,
    },
}

/// Combination that an accumulating operation makes, once it is checked; none if it combines nothing.
type Checked = Option<&'static Combination>;

impl Window {
    /// Submits an operation.
    ///
    /// # Errors
    /// Those of [`Window::begin`].
    pub fn submit(&self, access: Access<'_>, target: &Target) -> Result<()> {
        let checked = access.check(target)?;
        let Some(place) = self.admit(access, target, Use::Plain)? else { return Ok(()) };
        Ok(access.run(&self.0.rma, place, checked)?)
    }

    /// Submits an operation on some elements of a target that [`Window::permits`] it.
    ///
    /// # Errors
    /// Those of [`Window::begin`].
    #[inline(always)]
    pub fn submit_again(&self, access: Access<'_>, target: &Target) -> Result<()> {
        let checked = access.check(target)?;
        let Some(rank) = target.rank else { return Ok(()) };
        let place = target.place(rank, self.displacement(rank, target.displacement)?);
        Ok(access.run(&self.0.rma, place, checked)?)
    }

    /// True if an operation without a request is permitted on a target, because another one was in this epoch.
    #[inline(always)]
    pub fn permits(&self, rank: u32) -> bool {
        self.0.epochs.is_permitted(rank)
    }

    /// Submits an operation that a request stands for.
    ///
    /// # Errors
    /// * `MPI_ERR_TYPE` and `MPI_ERR_OP` for what an accumulating operation cannot combine;
    /// * `MPI_ERR_TRUNCATE` if the data of both sides differ in length;
    /// * `MPI_ERR_DISP` and `MPI_ERR_RMA_RANGE` for elements outside the target's window;
    /// * `MPI_ERR_RMA_SYNC` outside an epoch for the target;
    /// * `MPI_ERR_PROC_ABORTED` if the target has failed.
    pub fn begin(&self, access: Access<'_>, target: &Target) -> Result<Request> {
        let combination = access.check(target)?;
        let Some(place) = self.admit(access, target, Use::WithRequest)? else {
            return Ok(Request::Done(Done::Sent));
        };
        let pending = self.0.rma.with_request(|rma| access.run(rma, place, combination))?;
        Ok(Request::Access(Box::new(PendingAccess::new(pending, self.handle()))))
    }

    /// Permits an operation and takes the target's lock if need be. Returns the target's place; none if there is nothing
    /// to do.
    fn admit<'a>(
        &self,
        access: Access<'_>,
        target: &'a Target,
        with: Use,
    ) -> Result<Option<TargetPlace<'a>>> {
        let place = match target.rank {
            Some(rank) => {
                let displacement = self.displacement(rank, target.displacement)?;
                (target.len > 0).then(|| target.place(rank, displacement))
            }
            None => None,
        };
        match target.rank {
            Some(rank) if with == Use::Plain && self.permits(rank) => {}
            rank => self.permit(access, rank, place.as_ref(), with)?,
        }
        Ok(place)
    }

    /// Permits the first operation on a target in an epoch, one with a request, or one that is compared with others.
    fn permit(
        &self,
        access: Access<'_>,
        rank: Option<u32>,
        place: Option<&TargetPlace<'_>>,
        with: Use,
    ) -> Result<()> {
        let wants_lock = self.0.epochs.permit(rank, with)?;
        if let (Access::Put(_), Some(place), Some(puts)) = (access, place, &self.0.puts) {
            puts.note(self.0.epochs.number(), place)?;
        }
        match rank {
            Some(rank) if wants_lock => self.take_lock(rank),
            _ => Ok(()),
        }
    }

    /// Displacement in bytes from one in units of the target.
    #[inline(always)]
    fn displacement(&self, rank: u32, displacement: i64) -> Result<i64> {
        let unit = self.0.rma.unit(rank);
        match displacement.checked_mul(i64::from(unit)) {
            Some(bytes) if bytes >= 0 => Ok(bytes),
            _ => Err(misplaced(displacement, unit)),
        }
    }

    /// Takes the shared lock of a target in the epoch of `MPI_Win_lock_all`, unless another thread has.
    pub(super) fn take_lock(&self, rank: u32) -> Result<()> {
        let _one_at_a_time = self.0.locking.lock().unwrap_or_else(|poison| poison.into_inner());
        let wants_lock = self.0.epochs.look().wants_lock(rank);
        if wants_lock {
            self.0.rma.lock(rank, LockKind::Shared)?;
            self.0.epochs.note_taken(rank);
        }
        Ok(())
    }
}

impl Access<'_> {
    /// Checks that both sides fit together.
    #[inline(always)]
    fn check(self, target: &Target) -> Result<Checked> {
        if target.rank.is_none() {
            return Ok(None);
        }
        self.check_lengths(target.len)?;
        if target.len == 0 {
            return Ok(None);
        }
        match self {
            Self::Put(_) | Self::Get(_) => Ok(None),
            Self::Accumulate { op: Predefined::NoOp, .. } => {
                let message = "op = MPI_NO_OP needs a function that gets what was there";
                Err(Error::new(ErrorClass::Op, message))
            }
            Self::Accumulate { data, op } => combination(op, [data, data], target),
            Self::GetAccumulate { data, result, op } => {
                combination(op, [data.unwrap_or(result), result], target)
            }
            Self::CompareAndSwap { .. } => swapped(target),
        }
    }

    /// Checks that this process's data are as long as the target's elements.
    #[inline(always)]
    fn check_lengths(self, theirs: usize) -> Result<()> {
        match self {
            Self::Put(own) | Self::Get(own) => check_length(own.len(), theirs),
            Self::Accumulate { data, .. } => check_length(data.memory.len(), theirs),
            Self::GetAccumulate { data, result, .. } => {
                check_length(result.memory.len(), theirs)?;
                data.map_or(Ok(()), |data| check_length(data.memory.len(), theirs))
            }
            Self::CompareAndSwap { result, .. } => check_length(result.len(), theirs),
        }
    }

    #[inline(always)]
    fn run(self, rma: &rma::Window, to: TargetPlace<'_>, checked: Checked) -> rma::Result<()> {
        match (self, checked) {
            (Self::Put(data), _) => rma.put(data, to),
            (Self::Get(into), _) => rma.get(into, to),
            (Self::Accumulate { data, .. }, Some(combination)) => {
                rma.accumulate(&data.memory, to, combination)
            }
            (Self::GetAccumulate { data, result, .. }, Some(combination)) => {
                let data = data.map(|data| &data.memory);
                rma.get_accumulate(data, &result.memory, to, combination)
            }
            (Self::CompareAndSwap { data, compare, result }, Some(combination)) => {
                rma.compare_and_swap(data, compare, result, to, combination)
            }
            (_, None) => Ok(()),
        }
    }
}

/// The combination of elements of both sides (MPI-5.0 §12.3.4): datatypes consist of one predefined type.
#[inline(always)]
fn combination(op: Predefined, own: [&Elements; 2], target: &Target) -> Result<Checked> {
    let Some(builtin) = target.builtin else { return Err(mixed()) };
    if own.iter().any(|own| own.builtin != Some(builtin)) {
        return Err(other_type(builtin));
    }
    let combination = Combination::find(builtin, op);
    if combination.is_some() { Ok(combination) } else { Err(undefined(op, builtin)) }
}

#[cold]
fn mixed() -> Error {
    let message = "target_datatype consists of several predefined datatypes";
    Error::new(ErrorClass::Type, message)
}

#[cold]
fn other_type(builtin: Builtin) -> Error {
    let message = format!("origin and target do not both consist of {}", builtin.name());
    Error::new(ErrorClass::Type, message)
}

#[cold]
fn undefined(op: Predefined, builtin: Builtin) -> Error {
    let message = format!("op = {op:?} is not defined for {}", builtin.name());
    Error::new(ErrorClass::Op, message)
}

/// Checks the datatype of a compare-and-swap (MPI-5.0 §12.3.4).
#[inline]
fn swapped(target: &Target) -> Result<Checked> {
    let builtin = target.builtin.filter(|builtin| match builtin.class() {
        Class::Integer | Class::Logical | Class::Multi | Class::Byte | Class::Character => true,
        Class::Float | Class::Complex | Class::Pair | Class::Packed => false,
    });
    let combination = builtin.and_then(|builtin| Combination::find(builtin, Predefined::Replace));
    if combination.is_some() { Ok(combination) } else { Err(not_swapped()) }
}

#[cold]
fn not_swapped() -> Error {
    Error::new(ErrorClass::Type, "datatype is no predefined integer, logical or byte")
}

#[inline(always)]
fn check_length(own: usize, theirs: usize) -> Result<()> {
    if own == theirs { Ok(()) } else { Err(differ(own, theirs)) }
}

#[cold]
fn differ(own: usize, theirs: usize) -> Error {
    let message = format!("the data have {own} bytes at the origin, but {theirs} at the target");
    Error::new(ErrorClass::Truncate, message)
}

#[cold]
fn misplaced(displacement: i64, unit: u32) -> Error {
    if displacement < 0 {
        let message = format!("target_disp = {displacement} is negative");
        return Error::new(ErrorClass::Disp, message);
    }
    let message = format!("target_disp = {displacement} units of {unit} bytes exceed memory");
    Error::new(ErrorClass::RmaRange, message)
}
