//! Data representations of the application's own (MPI-5.0 §14.5.3).

use std::ffi::{c_int, c_void};

use datatype::{Builtin, Combiner, Datatype};
use memory::Region;
use mpi::file::{Conversion, Representation, TypedMemory};
use mpi::objects::DATATYPES;

use crate::contents::handle_for;
use crate::convention::*;

type Extent = unsafe extern "C" fn(RawHandle, *mut isize, *mut c_void) -> c_int;
type Convert =
    unsafe extern "C" fn(*mut c_void, RawHandle, c_int, *mut c_void, i64, *mut c_void) -> c_int;
type ConvertLarge =
    unsafe extern "C" fn(*mut c_void, RawHandle, i64, *mut c_void, i64, *mut c_void) -> c_int;

/// Functions of the application, by their addresses.
#[derive(Debug)]
struct Functions {
    read: usize,
    write: usize,
    extent: usize,
    state: usize,
    /// True if the number of items is an `MPI_Count`.
    is_large: bool,
}

pub(crate) fn register_datarep(
    datarep: String,
    read: Function,
    write: Function,
    extent: Function,
    state: *mut c_void,
) -> Result<()> {
    register(&datarep, [read, write, extent], state, false)
}

pub(crate) fn register_datarep_c(
    datarep: String,
    read: Function,
    write: Function,
    extent: Function,
    state: *mut c_void,
) -> Result<()> {
    register(&datarep, [read, write, extent], state, true)
}

fn register(
    datarep: &str,
    functions: [Function; 3],
    state: *mut c_void,
    is_large: bool,
) -> Result<()> {
    crate::world::current()?;
    let [read, write, extent] = functions.map(|function| function as usize);
    if extent == 0 {
        return Err(null("dtype_file_extent_fn"));
    }
    let functions = Functions { read, write, extent, state: state as usize, is_large };
    Representation::register(datarep, std::sync::Arc::new(functions))
}

impl Conversion for Functions {
    fn extent(&self, builtin: Builtin) -> Result<usize> {
        let mut extent = 0;
        // SAFETY: the application has given a function of this type.
        let function: Extent = unsafe { std::mem::transmute(self.extent) };
        // SAFETY: the function takes a datatype, a place for the extent, and what the application gave with it.
        let code =
            unsafe { function(usize::from(builtin.abi()), &mut extent, self.state as *mut c_void) };
        check("dtype_file_extent_fn", code)?;
        usize::try_from(extent).map_err(|_| {
            let text =
                format!("dtype_file_extent_fn gives {builtin:?} an extent of {extent} bytes");
            class(ErrorClass::Conversion, text)
        })
    }

    fn write(&self, memory: &TypedMemory, items: u64, file: &Region) -> Result<bool> {
        self.convert("write_conversion_fn", self.write, memory, items, file)
    }

    fn read(&self, memory: &TypedMemory, items: u64, file: &Region) -> Result<bool> {
        self.convert("read_conversion_fn", self.read, memory, items, file)
    }
}

impl Functions {
    fn convert(
        &self,
        name: &str,
        function: usize,
        memory: &TypedMemory,
        items: u64,
        file: &Region,
    ) -> Result<bool> {
        let Some(span) = file.as_span().filter(|_| items > 0) else { return Ok(function != 0) };
        if function == 0 {
            return Ok(false);
        }
        let datatype = handle_for(&memory.datatype)?;
        let (user, place) = (memory.address as *mut c_void, span.address.cast::<c_void>());
        let state = self.state as *mut c_void;
        let code = match (self.is_large, c_int::try_from(items)) {
            (true, _) => {
                // SAFETY: the application has given a function of this type.
                let function: ConvertLarge = unsafe { std::mem::transmute(function) };
                // SAFETY: the user's buffer holds the elements, and the file's is as long as the function's own extents say.
                Some(unsafe { function(user, datatype, items as i64, place, 0, state) })
            }
            (false, Ok(items)) => {
                // SAFETY: the application has given a function of this type.
                let function: Convert = unsafe { std::mem::transmute(function) };
                // SAFETY: the user's buffer holds the elements, and the file's is as long as the function's own extents say.
                Some(unsafe { function(user, datatype, items, place, 0, state) })
            }
            (false, Err(_)) => None,
        };
        if is_derived(&memory.datatype) {
            DATATYPES.remove(handle(datatype))?;
        }
        let too_many =
            || class(ErrorClass::Count, format!("{items} items are too many for {name}"));
        check(name, code.ok_or_else(too_many)?)?;
        Ok(true)
    }
}

/// True if [`handle_for`] makes a new handle.
fn is_derived(datatype: &Datatype) -> bool {
    datatype.as_builtin().is_none() && datatype.contents().combiner != Combiner::Named
}

fn check(name: &str, code: c_int) -> Result<()> {
    match code {
        0 => Ok(()),
        _ => Err(class(ErrorClass::Conversion, format!("{name} fails with code {code}"))),
    }
}
