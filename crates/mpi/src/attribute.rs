//! Attributes: values that the application hangs on communicators and datatypes (MPI-5.0 §7.7).
//!
//! Copy and delete callbacks are C functions; the `abi` crate calls them. Here are the keys and the
//! values, in the order they were set.

use std::collections::HashMap;
use std::sync::{LazyLock, Mutex, MutexGuard};

use crate::{Error, ErrorClass, Result};

/// What a key belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Owner {
    /// Communicators.
    Comm,
    /// Datatypes.
    Datatype,
    /// Windows.
    Win,
}

/// A key: its callbacks and their extra state, as the C interface gave them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keyval {
    /// What it belongs to.
    pub owner: Owner,
    /// Address of the copy function, or one of the standard's small constants.
    pub copy: usize,
    /// Address of the delete function, or zero.
    pub delete: usize,
    /// Handed to both.
    pub extra_state: usize,
}

/// The attributes of one object.
#[derive(Clone, Debug, Default)]
pub struct Attributes(Vec<(i32, usize)>);

impl Attributes {
    /// The value under a key.
    pub fn value(&self, keyval: i32) -> Option<usize> {
        self.0.iter().find(|(key, _)| *key == keyval).map(|(_, value)| *value)
    }

    /// Sets a value; the one before, if any, is returned.
    pub fn set(&mut self, keyval: i32, value: usize) -> Option<usize> {
        match self.0.iter_mut().find(|(key, _)| *key == keyval) {
            Some((_, known)) => Some(std::mem::replace(known, value)),
            None => {
                self.0.push((keyval, value));
                None
            }
        }
    }

    /// Removes a value.
    pub fn remove(&mut self, keyval: i32) -> Option<usize> {
        let at = self.0.iter().position(|(key, _)| *key == keyval)?;
        Some(self.0.remove(at).1)
    }

    /// All keys and values, the first set first.
    pub fn all(&self) -> Vec<(i32, usize)> {
        self.0.clone()
    }
}

/// Makes a key.
pub fn create(keyval: Keyval) -> i32 {
    let mut keys = keys();
    keys.next += 1;
    let key = FIRST_KEY + keys.next;
    keys.known.insert(key, keyval);
    key
}

/// The key's callbacks.
///
/// # Errors
/// `MPI_ERR_KEYVAL` for an unknown key, or one of other objects.
pub fn find(key: i32, owner: Owner) -> Result<Keyval> {
    match keys().known.get(&key) {
        Some(keyval) if keyval.owner == owner => Ok(*keyval),
        _ => Err(Error::new(ErrorClass::Keyval, format!("key {key} is not one of this kind"))),
    }
}

/// Checks that the key may be freed. Its callbacks stay known: attributes under it may be alive still.
///
/// # Errors
/// As [`find`].
pub fn free(key: i32, owner: Owner) -> Result<()> {
    find(key, owner).map(drop)
}

#[derive(Default)]
struct Keys {
    next: i32,
    known: HashMap<i32, Keyval>,
}

fn keys() -> MutexGuard<'static, Keys> {
    static KEYS: LazyLock<Mutex<Keys>> = LazyLock::new(Mutex::default);
    KEYS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Keys of the application begin above the standard's.
const FIRST_KEY: i32 = 1000;
