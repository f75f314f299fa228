//! Operations on the windows of other processes (MPI-5.0 §12.3).

use std::borrow::Cow;

use datatype::{Builtin, Class, Datatype, Op, Predefined};
use memory::Region;
use rma::{LockKind, TargetPlace};

use super::epoch::Use;
use super::flavor::Flavor;
use super::object::Window;
use super::pending::PendingAccess;
use crate::request::{Done, Request};
use crate::{Error, ErrorClass, Result};

/// Elements in the memory of this process.
#[derive(Clone, Debug)]
pub struct Elements {
    /// Their memory.
    pub memory: Region,
    /// Datatype of an element.
    pub datatype: Cow<'static, Datatype>,
}

/// Elements in the window of a target.
#[derive(Clone, Debug)]
pub struct Target {
    /// Rank of the target; none is `MPI_PROC_NULL`.
    pub rank: Option<u32>,
    /// Displacement of the first element in the target's units, or its address in a dynamic window.
    pub displacement: i64,
    /// Number of elements.
    pub count: usize,
    /// Datatype of an element.
    pub datatype: Cow<'static, Datatype>,
}

/// An operation, ready to be submitted.
#[derive(Clone, Debug)]
pub enum Access {
    /// Writes elements.
    Put(Elements),
    /// Reads elements.
    Get(Elements),
    /// Combines elements with those of the target.
    Accumulate {
        /// Elements of this process.
        data: Elements,
        /// The operation.
        op: Op,
    },
    /// Combines elements with those of the target, and reads what was there.
    GetAccumulate {
        /// Elements of this process; none with `MPI_NO_OP`.
        data: Option<Elements>,
        /// Memory for the target's former elements.
        result: Elements,
        /// The operation.
        op: Op,
    },
    /// Replaces an element of the target if it has a certain value, and reads what was there.
    CompareAndSwap {
        /// The new element.
        data: Region,
        /// Value that the target's element must have.
        compare: Region,
        /// Memory for the target's former element.
        result: Region,
    },
}

/// Combination that an accumulating operation makes, once it is checked.
type Combination = (Builtin, Predefined);

/// Combination of operations that combine nothing.
const NOTHING: Combination = (Builtin::Byte, Predefined::NoOp);

impl Window {
    /// Submits an operation.
    ///
    /// # Errors
    /// Those of [`Window::begin`].
    pub fn submit(&self, access: &Access, target: &Target) -> Result<()> {
        let combination = access.check(target)?;
        let Some(place) = self.admit(target, Use::Plain)? else { return Ok(()) };
        Ok(access.run(&self.0.rma, place, combination)?)
    }

    /// Submits an operation that a request stands for.
    ///
    /// # Errors
    /// * `MPI_ERR_TYPE` and `MPI_ERR_OP` for what an accumulating operation cannot combine;
    /// * `MPI_ERR_TRUNCATE` if the data of both sides differ in length;
    /// * `MPI_ERR_DISP` and `MPI_ERR_RMA_RANGE` for elements outside the target's window;
    /// * `MPI_ERR_RMA_SYNC` outside an epoch for the target;
    /// * `MPI_ERR_PROC_ABORTED` if the target has failed.
    pub fn begin(&self, access: &Access, target: &Target) -> Result<Request> {
        let combination = access.check(target)?;
        let Some(place) = self.admit(target, Use::WithRequest)? else {
            return Ok(Request::Done(Done::Sent));
        };
        let pending = self.0.rma.with_request(|rma| access.run(rma, place, combination))?;
        Ok(Request::Access(Box::new(PendingAccess::new(pending, self.handle()))))
    }

    /// Permits an operation and takes the target's lock if need be. Returns the target's place; none if there is nothing
    /// to do.
    fn admit<'a>(&self, target: &'a Target, with: Use) -> Result<Option<TargetPlace<'a>>> {
        let displacement = self.displacement(target)?;
        let wants_lock = self.epochs().permit(target.rank, with)?;
        if let Some(rank) = target.rank.filter(|_| wants_lock) {
            self.take_lock(rank)?;
        }
        let layout = target.datatype.layout();
        let is_empty = target.count == 0 || layout.size() == 0;
        let place = |rank| TargetPlace { rank, displacement, count: target.count, layout };
        Ok(target.rank.filter(|_| !is_empty).map(place))
    }

    /// Displacement in bytes of the target's elements in its window.
    fn displacement(&self, target: &Target) -> Result<i64> {
        let Target { rank: Some(rank), displacement, .. } = *target else { return Ok(0) };
        if self.0.flavor == Flavor::Dynamic {
            return Ok(displacement);
        }
        if displacement < 0 {
            let message = format!("target_disp = {displacement} is negative");
            return Err(Error::new(ErrorClass::Disp, message));
        }
        let unit = self.0.rma.unit(rank);
        displacement.checked_mul(i64::from(unit)).ok_or_else(|| {
            let message =
                format!("target_disp = {displacement} units of {unit} bytes exceed memory");
            Error::new(ErrorClass::RmaRange, message)
        })
    }

    /// Takes the shared lock of a target in the epoch of `MPI_Win_lock_all`, unless another thread has.
    pub(super) fn take_lock(&self, rank: u32) -> Result<()> {
        let _one_at_a_time = self.0.locking.lock().unwrap_or_else(|poison| poison.into_inner());
        let wants_lock = self.epochs().wants_lock(rank);
        if wants_lock {
            self.0.rma.lock(rank, LockKind::Shared)?;
            self.epochs().note_taken(rank);
        }
        Ok(())
    }
}

impl Access {
    /// Checks that both sides fit together.
    fn check(&self, target: &Target) -> Result<Combination> {
        let theirs = target.count.saturating_mul(target.datatype.size());
        if target.rank.is_some() {
            self.lengths().try_for_each(|own| check_length(own, theirs))?;
        }
        if target.rank.is_none() || theirs == 0 {
            return Ok(NOTHING);
        }
        match self {
            Self::Put(_) | Self::Get(_) => Ok(NOTHING),
            Self::Accumulate { op: Op::Predefined(Predefined::NoOp), .. } => {
                let message = "op = MPI_NO_OP needs a function that gets what was there";
                Err(Error::new(ErrorClass::Op, message))
            }
            Self::Accumulate { data, op } => combination(op, &[data], target),
            Self::GetAccumulate { data: Some(data), result, op } => {
                combination(op, &[data, result], target)
            }
            Self::GetAccumulate { data: None, result, op } => combination(op, &[result], target),
            Self::CompareAndSwap { .. } => swapped(&target.datatype),
        }
    }

    /// Lengths of this process's data in bytes.
    fn lengths(&self) -> impl Iterator<Item = usize> {
        let (one, other) = match self {
            Self::Put(own) | Self::Get(own) | Self::Accumulate { data: own, .. } => {
                (own.memory.len(), None)
            }
            Self::GetAccumulate { data, result, .. } => {
                (result.memory.len(), data.as_ref().map(|data| data.memory.len()))
            }
            Self::CompareAndSwap { result, .. } => (result.len(), None),
        };
        [one].into_iter().chain(other)
    }

    fn run(
        &self,
        rma: &rma::Window,
        to: TargetPlace<'_>,
        (builtin, op): Combination,
    ) -> rma::Result<()> {
        match self {
            Self::Put(data) => rma.put(&data.memory, to),
            Self::Get(into) => rma.get(&into.memory, to),
            Self::Accumulate { data, .. } => rma.accumulate(&data.memory, to, builtin, op),
            Self::GetAccumulate { data, result, .. } => {
                let none = Region::empty();
                let data = data.as_ref().map_or(&none, |data| &data.memory);
                rma.get_accumulate(data, &result.memory, to, builtin, op)
            }
            Self::CompareAndSwap { data, compare, result } => {
                rma.compare_and_swap(data, compare, result, to, builtin)
            }
        }
    }
}

/// The combination of elements of both sides (MPI-5.0 §12.3.4): datatypes consist of one predefined type.
fn combination(op: &Op, own: &[&Elements], target: &Target) -> Result<Combination> {
    let Some(builtin) = target.datatype.only_builtin() else {
        let message = "target_datatype consists of several predefined datatypes";
        return Err(Error::new(ErrorClass::Type, message));
    };
    if own.iter().any(|own| own.datatype.only_builtin() != Some(builtin)) {
        let message = format!("origin and target do not both consist of {}", builtin.name());
        return Err(Error::new(ErrorClass::Type, message));
    }
    match op {
        Op::User { .. } => {
            Err(Error::new(ErrorClass::Op, "op is none of the standard's operations"))
        }
        Op::Predefined(known) if known.combines(builtin) => Ok((builtin, *known)),
        Op::Predefined(known) => {
            let message = format!("op = {known:?} is not defined for {}", builtin.name());
            Err(Error::new(ErrorClass::Op, message))
        }
    }
}

/// Checks the datatype of a compare-and-swap (MPI-5.0 §12.3.4).
fn swapped(datatype: &Datatype) -> Result<Combination> {
    let builtin = datatype.as_builtin().filter(|builtin| match builtin.class() {
        Class::Integer | Class::Logical | Class::Multi | Class::Byte | Class::Character => true,
        Class::Float | Class::Complex | Class::Pair | Class::Packed => false,
    });
    let none = || {
        let message = "datatype is no predefined integer, logical or byte";
        Error::new(ErrorClass::Type, message)
    };
    Ok((builtin.ok_or_else(none)?, Predefined::Replace))
}

fn check_length(own: usize, theirs: usize) -> Result<()> {
    if own == theirs {
        return Ok(());
    }
    let message = format!("the data have {own} bytes at the origin, but {theirs} at the target");
    Err(Error::new(ErrorClass::Truncate, message))
}
