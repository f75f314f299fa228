//! Info objects: ordered pairs of strings (MPI-5.0 §10). They work before initialisation.

use std::sync::{Arc, Mutex, MutexGuard};

use handles::{Handle, Kind, Table};

use crate::{Error, ErrorClass, Result};

/// An info object. Clones are the same object; [`Info::duplicate`] makes another.
#[derive(Clone, Debug, Default)]
pub struct Info(Arc<Mutex<Vec<(String, String)>>>);

impl Info {
    /// The value under a key.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_KEY` for an empty or overlong key.
    pub fn value(&self, key: &str) -> Result<Option<String>> {
        check_key(key)?;
        let pairs = self.pairs();
        Ok(pairs.iter().find(|(known, _)| known == key).map(|(_, value)| value.clone()))
    }

    /// Sets a value.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_KEY` or `MPI_ERR_INFO_VALUE` for empty or overlong strings.
    pub fn set(&self, key: &str, value: &str) -> Result<()> {
        check_key(key)?;
        if value.len() >= VALUE_MAX {
            let message = format!("value: {} bytes are more than {}", value.len(), VALUE_MAX - 1);
            return Err(Error::new(ErrorClass::InfoValue, message));
        }
        let mut pairs = self.pairs();
        match pairs.iter_mut().find(|(known, _)| known == key) {
            Some((_, known)) => *known = value.into(),
            None => pairs.push((key.into(), value.into())),
        }
        Ok(())
    }

    /// Removes a key.
    ///
    /// # Errors
    /// `MPI_ERR_INFO_NOKEY` when it is not there.
    pub fn delete(&self, key: &str) -> Result<()> {
        check_key(key)?;
        let mut pairs = self.pairs();
        let missing = || Error::new(ErrorClass::InfoNokey, format!("key = {key} is not there"));
        let at = pairs.iter().position(|(known, _)| known == key).ok_or_else(missing)?;
        pairs.remove(at);
        Ok(())
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.pairs().len()
    }

    /// True if there is no key.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The key at a position, in the order they were set.
    pub fn key(&self, index: usize) -> Option<String> {
        self.pairs().get(index).map(|(key, _)| key.clone())
    }

    /// Another object with the same pairs.
    #[must_use]
    pub fn duplicate(&self) -> Self {
        Self(Arc::new(Mutex::new(self.pairs().clone())))
    }

    /// Gives the object a handle.
    ///
    /// # Errors
    /// When no more objects fit.
    pub fn register(self) -> Result<Handle> {
        Ok(INFOS.insert(self)?)
    }

    /// The object behind a handle; `MPI_INFO_ENV` is what `environment` makes.
    ///
    /// # Errors
    /// `MPI_ERR_INFO` for the null, a stale or a foreign handle.
    pub fn find(handle: Handle, environment: impl FnOnce() -> Self) -> Result<Self> {
        match handle {
            ENVIRONMENT => Ok(environment()),
            NULL => Err(Error::new(ErrorClass::Info, "the info object is MPI_INFO_NULL")),
            _ => Ok(INFOS.find(handle)?),
        }
    }

    /// Gives a handle back.
    ///
    /// # Errors
    /// As [`Info::find`], and for the predefined object.
    pub fn free(handle: Handle) -> Result<()> {
        INFOS.remove(handle)?;
        Ok(())
    }

    /// The handle whose Fortran integer is `value`.
    pub fn from_int(value: i32) -> Handle {
        INFOS.from_int(value)
    }

    fn pairs(&self) -> MutexGuard<'_, Vec<(String, String)>> {
        self.0.lock().unwrap_or_else(|poison| poison.into_inner())
    }
}

fn check_key(key: &str) -> Result<()> {
    if key.is_empty() || key.len() >= KEY_MAX {
        let message = format!("key: {} bytes are none, or more than {}", key.len(), KEY_MAX - 1);
        return Err(Error::new(ErrorClass::InfoKey, message));
    }
    Ok(())
}

/// `MPI_INFO_NULL`.
pub const NULL: Handle = Handle(0x130);
/// `MPI_INFO_ENV`.
pub const ENVIRONMENT: Handle = Handle(0x131);

/// `MPI_MAX_INFO_KEY`.
const KEY_MAX: usize = 256;
/// `MPI_MAX_INFO_VAL`.
pub(crate) const VALUE_MAX: usize = 1024;

static INFOS: Table<Info> = Table::new(Kind::Info);
