//! Data representations (MPI-5.0 §14.5): how elements lie in a file.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use datatype::{Builtin, Datatype, TypeError};
use memory::Region;

use crate::{Error, ErrorClass, Result};

/// Elements of the application.
#[derive(Clone, Debug)]
pub struct TypedMemory {
    /// Their bytes.
    pub memory: Region,
    /// Address that the application has given.
    pub address: usize,
    /// Their datatype.
    pub datatype: Datatype,
}

/// Functions of the application that convert elements (`MPI_Register_datarep`).
pub trait Conversion: fmt::Debug + Send + Sync {
    /// Returns the bytes of an element in a file.
    ///
    /// # Errors
    /// The function failed.
    fn extent(&self, builtin: Builtin) -> Result<usize>;

    /// Converts the first `items` basic elements to `file`. False if there is no such function, because elements lie in the file
    /// as in memory.
    ///
    /// # Errors
    /// The function failed.
    fn write(&self, memory: &TypedMemory, items: u64, file: &Region) -> Result<bool>;

    /// Converts `file` to the first `items` basic elements. False as for [`Conversion::write`].
    ///
    /// # Errors
    /// The function failed.
    fn read(&self, memory: &TypedMemory, items: u64, file: &Region) -> Result<bool>;
}

/// A data representation.
#[derive(Clone, Debug)]
pub enum Representation {
    /// Elements as in memory: `native`, and `internal`.
    Native(&'static str),
    /// `external32`.
    External,
    /// One of the application's, by its name.
    User(String, Arc<dyn Conversion>),
}

impl Representation {
    /// Finds a representation.
    ///
    /// # Errors
    /// `MPI_ERR_UNSUPPORTED_DATAREP` for an unknown name.
    pub fn find(name: &str) -> Result<Self> {
        if let Some(known) = NATIVE.into_iter().find(|known| *known == name) {
            return Ok(Self::Native(known));
        }
        if name == EXTERNAL {
            return Ok(Self::External);
        }
        let found = registered().get(name).cloned();
        let unknown = || {
            let message = format!("datarep = {name} is not known");
            Error::new(ErrorClass::UnsupportedDatarep, message)
        };
        Ok(Self::User(name.to_owned(), found.ok_or_else(unknown)?))
    }

    /// Adds a representation of the application's.
    ///
    /// # Errors
    /// `MPI_ERR_DUP_DATAREP` for a known name, `MPI_ERR_ARG` for one that is too long.
    pub fn register(name: &str, conversion: Arc<dyn Conversion>) -> Result<()> {
        if name.is_empty() || name.len() >= NAME_MAX {
            let message =
                format!("datarep: {} bytes are none, or more than {NAME_MAX}", name.len());
            return Err(Error::argument(message));
        }
        if Self::find(name).is_ok() {
            let message = format!("datarep = {name} is known already");
            return Err(Error::new(ErrorClass::DupDatarep, message));
        }
        registered().insert(name.to_owned(), conversion);
        Ok(())
    }

    /// The name.
    pub fn name(&self) -> &str {
        match self {
            Self::Native(name) => name,
            Self::External => EXTERNAL,
            Self::User(name, _) => name,
        }
    }

    /// True if elements lie in a file as in memory.
    pub fn is_native(&self) -> bool {
        matches!(self, Self::Native(_))
    }

    /// Returns the type of the bytes that elements of a datatype have in a file.
    ///
    /// # Errors
    /// The type is too large to describe, or a function of the application failed.
    pub fn in_file(&self, datatype: &Datatype) -> Result<Datatype> {
        let byte = Datatype::builtin(Builtin::Byte);
        let bytes = |len: usize| Ok(Datatype::contiguous(len as i64, &byte)?);
        match self {
            Self::Native(_) => Ok(datatype.clone()),
            Self::External => datatype.replaced(&mut |builtin| {
                bytes(Datatype::builtin(builtin).external_size().unwrap_or(0))
            }),
            Self::User(_, conversion) => {
                datatype.replaced(&mut |builtin| bytes(conversion.extent(builtin)?))
            }
        }
    }

    /// Converts elements to the bytes of a file.
    ///
    /// # Errors
    /// `MPI_ERR_CONVERSION` for a value that has no representation, and what [`Conversion::write`] returns.
    pub(super) fn encode(&self, memory: &TypedMemory) -> Result<Region> {
        match self {
            Self::Native(_) => Ok(memory.memory.clone()),
            Self::External => {
                let converted = memory.datatype.to_external(&memory.memory.to_vec());
                let converted = converted
                    .map_err(|error| Error::new(ErrorClass::Conversion, format!("buf: {error}")))?;
                Ok(Region::from_box(converted.into()))
            }
            Self::User(_, conversion) => {
                let file = room(self.file_len(memory)?)?;
                match conversion.write(memory, items(memory, memory.memory.len()), &file)? {
                    true => Ok(file),
                    false => Ok(memory.memory.clone()),
                }
            }
        }
    }

    /// Converts the bytes of a file to elements. Of elements that are cut, none is converted. Returns the bytes in memory.
    ///
    /// # Errors
    /// What [`Conversion::read`] returns.
    pub(super) fn decode(&self, file: &Region, memory: &TypedMemory) -> Result<u64> {
        let (size, in_file) = (memory.datatype.size(), self.in_file(&memory.datatype)?.size());
        let count = file.len().checked_div(in_file).unwrap_or(0);
        let (file, len) = (file.slice(0, count * in_file), count * size);
        match self {
            Self::Native(_) => {}
            Self::External => {
                memory.memory.write(0, &memory.datatype.from_external(&file.to_vec()));
            }
            Self::User(_, conversion) => {
                if !conversion.read(memory, items(memory, len), &file)? {
                    let len = file.len().min(memory.memory.len());
                    memory.memory.copy_piece(0, &file, 0, len);
                    return Ok(len as u64);
                }
            }
        }
        Ok(len as u64)
    }

    /// Bytes of the elements in a file.
    pub(super) fn file_len(&self, memory: &TypedMemory) -> Result<usize> {
        let count = memory.memory.len().checked_div(memory.datatype.size()).unwrap_or(0);
        let len = self.in_file(&memory.datatype)?.size().checked_mul(count);
        len.ok_or_else(|| Error::new(ErrorClass::Count, "count: the elements exceed a file"))
    }
}

/// Memory for converted elements.
pub(super) fn room(len: usize) -> Result<Region> {
    let none = || Error::new(ErrorClass::NoMem, format!("no {len} bytes to convert elements"));
    Region::scratch(len).ok_or_else(none)
}

/// Number of basic elements in so many bytes of memory.
fn items(memory: &TypedMemory, len: usize) -> u64 {
    memory.datatype.elements_in(len as u64).unwrap_or(0)
}

fn registered() -> MutexGuard<'static, BTreeMap<String, Arc<dyn Conversion>>> {
    static REGISTERED: Mutex<BTreeMap<String, Arc<dyn Conversion>>> = Mutex::new(BTreeMap::new());
    REGISTERED.lock().unwrap_or_else(PoisonError::into_inner)
}

impl From<TypeError> for Error {
    #[cold]
    fn from(error: TypeError) -> Self {
        Self::argument(error.to_string())
    }
}

const NATIVE: [&str; 2] = ["native", "internal"];
const EXTERNAL: &str = "external32";
/// `MPI_MAX_DATAREP_STRING`.
const NAME_MAX: usize = 128;
