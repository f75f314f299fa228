//! The handles of groups, datatypes and operations.

use std::sync::LazyLock;

use datatype::{Builtin, Datatype, Op, Predefined};
use handles::{Handle, Kind, Table};

use crate::group::Group;
use crate::{Error, ErrorClass, Result};

/// The group behind a handle.
///
/// # Errors
/// `MPI_ERR_GROUP` for the null, a stale or a foreign handle.
pub fn group(handle: Handle) -> Result<Group> {
    match handle.0 {
        0x108 => Err(Error::new(ErrorClass::Group, "the group is MPI_GROUP_NULL")),
        0x109 => Ok(Group::empty()),
        _ => Ok(GROUPS.find(handle)?),
    }
}

/// The table of groups.
pub static GROUPS: Table<Group> = Table::new(Kind::Group);

/// The datatype behind a handle.
///
/// # Errors
/// `MPI_ERR_TYPE` for the null, a stale or a foreign handle.
#[inline]
pub fn datatype(handle: Handle) -> Result<Datatype> {
    if handle.is_predefined() {
        return predefined(handle).cloned();
    }
    Ok(DATATYPES.find(handle)?)
}

/// The predefined datatype behind a handle.
///
/// # Errors
/// `MPI_ERR_TYPE` for the null, or a foreign handle.
#[inline]
pub fn predefined(handle: Handle) -> Result<&'static Datatype> {
    static BUILTINS: LazyLock<Vec<Option<Datatype>>> = LazyLock::new(|| {
        let mut all = vec![None; 0x100];
        for &builtin in Builtin::ALL {
            all[usize::from(builtin.abi() & 0xff)] = Some(Datatype::builtin(builtin));
        }
        all
    });
    let known = (handle.0 & !0xff == 0x200).then(|| BUILTINS[(handle.0 & 0xff) as usize].as_ref());
    known.flatten().ok_or_else(|| match handle.0 {
        0x200 => Error::new(ErrorClass::Type, "the datatype is MPI_DATATYPE_NULL"),
        value => Error::new(ErrorClass::Type, format!("{value:#x} is no datatype")),
    })
}

/// The table of derived datatypes.
pub static DATATYPES: Table<Datatype> = Table::new(Kind::Datatype);

/// The operation behind a handle.
///
/// # Errors
/// `MPI_ERR_OP` for the null, a stale or a foreign handle.
#[inline]
pub fn op(handle: Handle) -> Result<Op> {
    match predefined_op(handle) {
        Some(predefined) => Ok(Op::Predefined(predefined)),
        None if handle.0 == 0x20 => Err(Error::new(ErrorClass::Op, "the operation is MPI_OP_NULL")),
        None => Ok(OPS.find(handle)?),
    }
}

/// The predefined operation behind a handle, if it is one.
#[inline]
pub fn predefined_op(handle: Handle) -> Option<Predefined> {
    Some(match handle.0 {
        0x21 => Predefined::Sum,
        0x22 => Predefined::Min,
        0x23 => Predefined::Max,
        0x24 => Predefined::Prod,
        0x28 => Predefined::Band,
        0x29 => Predefined::Bor,
        0x2a => Predefined::Bxor,
        0x30 => Predefined::Land,
        0x31 => Predefined::Lor,
        0x32 => Predefined::Lxor,
        0x38 => Predefined::Minloc,
        0x39 => Predefined::Maxloc,
        0x3c => Predefined::Replace,
        0x3d => Predefined::NoOp,
        _ => return None,
    })
}

/// The table of the application's operations.
pub static OPS: Table<Op> = Table::new(Kind::Op);
