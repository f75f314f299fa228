//! Attributes: values that the application hangs on communicators and datatypes (MPI-5.0 §7.7).
//!
//! Copy and delete callbacks are C functions; the `abi` crate calls them. Here are the keys and the
//! values, in the order they were set.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use crate::{Error, ErrorClass, Result};

/// Kind of object a key belongs to.
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
    /// Kind of object it belongs to.
    pub owner: Owner,
    /// Address of the copy function, or one of the standard's small constants.
    pub copy: usize,
    /// Address of the delete function, or zero.
    pub delete: usize,
    /// Handed to both.
    pub extra_state: usize,
}

/// The attributes of one object, in the order they were set. Each holds on to its key, which the application may free
/// meanwhile.
#[derive(Clone, Debug, Default)]
pub struct Attributes {
    /// Attributes under their keys, each with its place in the order.
    known: BTreeMap<i32, (u64, Attribute)>,
    /// Number of attributes set so far.
    count: u64,
}

/// A value under a key.
#[derive(Clone, Debug)]
pub struct Attribute {
    /// The key's number.
    pub key: i32,
    /// The key's callbacks.
    pub keyval: Arc<Keyval>,
    /// Value that the application attached.
    pub value: usize,
}

impl Attributes {
    /// The attribute under a key.
    pub fn find(&self, key: i32) -> Option<&Attribute> {
        self.known.get(&key).map(|(_, attribute)| attribute)
    }

    /// Sets a value.
    pub fn set(&mut self, attribute: Attribute) {
        match self.known.entry(attribute.key) {
            Entry::Occupied(mut known) => known.get_mut().1 = attribute,
            Entry::Vacant(place) => {
                self.count += 1;
                place.insert((self.count, attribute));
            }
        }
    }

    /// Removes a value.
    pub fn remove(&mut self, key: i32) {
        self.known.remove(&key);
    }

    /// True if there is none.
    pub fn is_empty(&self) -> bool {
        self.known.is_empty()
    }

    /// All of them, the first set first.
    pub fn all(&self) -> Vec<Attribute> {
        let mut all: Vec<_> = self.known.values().collect();
        all.sort_unstable_by_key(|(order, _)| *order);
        all.into_iter().map(|(_, attribute)| attribute.clone()).collect()
    }
}

/// Makes a key.
pub fn create(keyval: Keyval) -> i32 {
    let mut keys = keys();
    keys.last += 1;
    let key = FIRST_KEY + keys.last;
    keys.known.insert(key, Arc::new(keyval));
    key
}

/// The key's callbacks.
///
/// # Errors
/// `MPI_ERR_KEYVAL` for an unknown or freed key, or one of other objects.
pub fn find(key: i32, owner: Owner) -> Result<Arc<Keyval>> {
    match keys().known.get(&key) {
        Some(keyval) if keyval.owner == owner => Ok(Arc::clone(keyval)),
        Some(keyval) => {
            let message = format!("key {key} is one of {:?}, not of {owner:?}", keyval.owner);
            Err(Error::new(ErrorClass::Keyval, message))
        }
        None if (1..=FIRST_KEY).contains(&key) => {
            Err(Error::new(ErrorClass::Keyval, format!("key {key} is predefined")))
        }
        None => Err(Error::new(ErrorClass::Keyval, format!("{key} is no key, or a freed one"))),
    }
}

/// Frees a key. Attributes under it stay, and keep their callbacks (MPI-5.0 §7.7.2).
///
/// # Errors
/// As [`find`].
pub fn free(key: i32, owner: Owner) -> Result<()> {
    find(key, owner)?;
    keys().known.remove(&key);
    Ok(())
}

#[derive(Default)]
struct Keys {
    last: i32,
    known: BTreeMap<i32, Arc<Keyval>>,
}

fn keys() -> MutexGuard<'static, Keys> {
    static KEYS: LazyLock<Mutex<Keys>> = LazyLock::new(Mutex::default);
    KEYS.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// Keys of the application begin above the standard's.
const FIRST_KEY: i32 = 1000;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attributes_keep_the_order_in_which_they_were_first_set() {
        let keyval = Arc::new(Keyval { owner: Owner::Comm, copy: 1, delete: 0, extra_state: 0 });
        let mut attributes = Attributes::default();
        for (key, value) in [(9, 1), (3, 2), (7, 3), (3, 4)] {
            attributes.set(Attribute { key, keyval: Arc::clone(&keyval), value });
        }
        let all = || attributes.all().into_iter().map(|one| (one.key, one.value));
        assert_eq!(all().collect::<Vec<_>>(), [(9, 1), (3, 4), (7, 3)]);
    }

    #[test]
    fn a_freed_key_lives_on_in_its_attributes() {
        let owner = Owner::Comm;
        let key = create(Keyval { owner, copy: 1, delete: 0, extra_state: 0 });
        let mut attributes = Attributes::default();
        let keyval = find(key, owner).unwrap();
        attributes.set(Attribute { key, keyval, value: 7 });
        assert_eq!(free(key, Owner::Datatype).unwrap_err().class, ErrorClass::Keyval);
        free(key, owner).unwrap();
        assert_eq!(find(key, owner).unwrap_err().class, ErrorClass::Keyval);
        assert_eq!(free(key, owner).unwrap_err().class, ErrorClass::Keyval);
        assert_eq!(
            attributes.find(key).map(|known| (known.value, known.keyval.copy)),
            Some((7, 1))
        );
        attributes.remove(key);
        assert!(attributes.is_empty() && attributes.all().is_empty());
    }
}
