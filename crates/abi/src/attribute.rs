//! Attributes of communicators, datatypes and windows (MPI-5.0 §7.7).

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::sync::{Arc, LazyLock, Mutex, MutexGuard};

use mpi::attribute::{self, Attribute, Attributes, Keyval, Owner};
use mpi::comm::Comm;
use mpi::window::Window;

use crate::arguments::{comm, datatype, window};
use crate::convention::*;
use crate::world;

type Copy = unsafe extern "C" fn(
    RawHandle,
    c_int,
    *mut c_void,
    *mut c_void,
    *mut c_void,
    *mut c_int,
) -> c_int;
type Delete = unsafe extern "C" fn(RawHandle, c_int, *mut c_void, *mut c_void) -> c_int;

/// Something that attributes hang on.
enum Object<'a> {
    Comm(&'a Comm),
    Datatype(RawHandle),
    Win(&'a Window),
}

impl Object<'_> {
    fn handle(&self) -> RawHandle {
        match self {
            Self::Comm(comm) => raw(comm.handle()),
            Self::Datatype(datatype) => *datatype,
            Self::Win(window) => raw(window.handle()),
        }
    }

    fn owner(&self) -> Owner {
        match self {
            Self::Comm(_) => Owner::Comm,
            Self::Datatype(_) => Owner::Datatype,
            Self::Win(_) => Owner::Win,
        }
    }

    /// Runs `access` on the attributes. Callbacks must not run inside it.
    fn with<T>(&self, access: impl FnOnce(&mut Attributes) -> T) -> T {
        match self {
            Self::Comm(comm) => comm.with_attributes(access),
            Self::Win(window) => window.with_attributes(access),
            Self::Datatype(datatype) => {
                let mut all = of_types();
                let attributes = all.entry(*datatype).or_default();
                let result = access(attributes);
                if attributes.is_empty() {
                    all.remove(datatype);
                }
                result
            }
        }
    }

    fn attribute(&self, key: c_int) -> Option<Attribute> {
        self.with(|attributes| attributes.find(key).cloned())
    }

    fn set(&self, name: &str, key: c_int, value: *mut c_void) -> Result<()> {
        let keyval = named(name, attribute::find(key, self.owner()))?;
        if let Some(old) = self.attribute(key) {
            deleted(&old, self.handle())?;
        }
        let attribute = Attribute { key, keyval, value: value as usize };
        self.with(|attributes| attributes.set(attribute));
        Ok(())
    }

    /// An attribute, under a key that may be freed if there is one.
    fn get(&self, name: &str, key: c_int) -> Result<Option<usize>> {
        match self.attribute(key) {
            Some(attribute) => Ok(Some(attribute.value)),
            None => named(name, attribute::find(key, self.owner())).map(|_| None),
        }
    }

    fn delete(&self, name: &str, key: c_int) -> Result<()> {
        let Some(attribute) = self.attribute(key) else {
            named(name, attribute::find(key, self.owner()))?;
            let text = format!("{name} = {key}: no attribute is set under this key");
            return Err(class(ErrorClass::Keyval, text));
        };
        deleted(&attribute, self.handle())?;
        self.with(|attributes| attributes.remove(key));
        Ok(())
    }

    /// Copies the attributes to a duplicate, as their callbacks say.
    fn copy_to(&self, copy: &Object<'_>) -> Result<()> {
        for attribute in self.with(|attributes| attributes.all()) {
            if let Some(value) = copied(&attribute, self.handle())? {
                copy.with(|attributes| attributes.set(Attribute { value, ..attribute }));
            }
        }
        Ok(())
    }

    /// Deletes the attributes, the last set first.
    fn delete_all(&self) -> Result<()> {
        for attribute in self.with(|attributes| attributes.all()).iter().rev() {
            deleted(attribute, self.handle())?;
            self.with(|attributes| attributes.remove(attribute.key));
        }
        Ok(())
    }
}

/// Copies the attributes of a communicator to its duplicate.
pub(crate) fn copy_comm(from: &Comm, to: &Comm) -> Result<()> {
    Object::Comm(from).copy_to(&Object::Comm(to))
}

/// Deletes the attributes of a communicator that is freed.
pub(crate) fn delete_comm(comm: &Comm) -> Result<()> {
    Object::Comm(comm).delete_all()
}

/// Deletes the attributes of a window that is freed.
pub(crate) fn delete_window(window: &Window) -> Result<()> {
    Object::Win(window).delete_all()
}

/// Copies the attributes of a datatype to its duplicate.
pub(crate) fn copy_type(from: RawHandle, to: RawHandle) -> Result<()> {
    Object::Datatype(from).copy_to(&Object::Datatype(to))
}

/// Deletes the attributes of a datatype that is freed.
pub(crate) fn delete_type(datatype: RawHandle) -> Result<()> {
    Object::Datatype(datatype).delete_all()
}

/// Deletes the attributes of `MPI_COMM_SELF`, the first step of finalisation (MPI-5.0 §11.2.4).
pub(crate) fn delete_all_of_self() -> Result<()> {
    delete_comm(world::world_model()?.myself())
}

macro_rules! keyvals {
    ($($create:ident $free:ident $owner:ident $name:literal;)*) => {$(
        pub(crate) fn $create(
            copy: Function,
            delete: Function,
            keyval: Out<c_int>,
            extra_state: *mut c_void,
        ) -> Result<()> {
            let (copy, delete) = (copy as usize, delete as usize);
            let extra_state = extra_state as usize;
            let made = Keyval { owner: Owner::$owner, copy, delete, extra_state };
            keyval.put(attribute::create(made))
        }

        pub(crate) fn $free(keyval: InOut<c_int>) -> Result<()> {
                named($name, attribute::free(keyval.get(), Owner::$owner))?;
                keyval.put(KEYVAL_INVALID)
        }
    )*};
}

keyvals! {
    comm_create_keyval comm_free_keyval Comm "comm_keyval";
    type_create_keyval type_free_keyval Datatype "type_keyval";
    win_create_keyval win_free_keyval Win "win_keyval";
    keyval_create keyval_free Comm "keyval";
}

macro_rules! comm_attributes {
    ($($set:ident $get:ident $delete:ident $name:literal;)*) => {$(
        pub(crate) fn $set(on: RawHandle, key: c_int, value: *mut c_void) -> Result<()> {
            Object::Comm(&*comm(on)?).set($name, key, value)
        }

        pub(crate) fn $get(
            on: RawHandle,
            key: c_int,
            value: Out<usize>,
            flag: Out<c_int>,
        ) -> Result<()> {
            let comm = comm(on)?;
            let known = match predefined(key)? {
                Some(known) => known.map(|place| place as usize),
                None => Object::Comm(&comm).get($name, key)?,
            };
            answer(known, value, flag)
        }

        pub(crate) fn $delete(on: RawHandle, key: c_int) -> Result<()> {
            Object::Comm(&*comm(on)?).delete($name, key)
        }
    )*};
}

comm_attributes! {
    comm_set_attr comm_get_attr comm_delete_attr "comm_keyval";
    attr_put attr_get attr_delete "keyval";
}

pub(crate) fn type_set_attr(on: RawHandle, key: c_int, value: *mut c_void) -> Result<()> {
    datatype("datatype", on)?;
    Object::Datatype(on).set("type_keyval", key, value)
}

pub(crate) fn type_get_attr(
    on: RawHandle,
    key: c_int,
    value: Out<usize>,
    flag: Out<c_int>,
) -> Result<()> {
    datatype("datatype", on)?;
    let known = Object::Datatype(on).get("type_keyval", key)?;
    answer(known, value, flag)
}

pub(crate) fn type_delete_attr(on: RawHandle, key: c_int) -> Result<()> {
    datatype("datatype", on)?;
    Object::Datatype(on).delete("type_keyval", key)
}

pub(crate) fn win_set_attr(on: RawHandle, key: c_int, value: *mut c_void) -> Result<()> {
    Object::Win(&*window(on)?).set("win_keyval", key, value)
}

pub(crate) fn win_get_attr(
    on: RawHandle,
    key: c_int,
    value: Out<usize>,
    flag: Out<c_int>,
) -> Result<()> {
    let window = window(on)?;
    let values = window.values();
    // The application gets addresses of values that live as long as the window (MPI-5.0 §12.2.6).
    let known = match key {
        WIN_BASE => Some(values.base),
        WIN_DISP_UNIT => Some(&raw const values.unit as usize),
        WIN_SIZE => Some(&raw const values.size as usize),
        WIN_CREATE_FLAVOR => Some(&raw const values.flavor as usize),
        WIN_MODEL => Some(&raw const values.model as usize),
        _ => Object::Win(&window).get("win_keyval", key)?,
    };
    answer(known, value, flag)
}

pub(crate) fn win_delete_attr(on: RawHandle, key: c_int) -> Result<()> {
    Object::Win(&*window(on)?).delete("win_keyval", key)
}

/// Reports a value, where `value` is the address of a pointer.
fn answer(known: Option<usize>, value: Out<usize>, flag: Out<c_int>) -> Result<()> {
    if let Some(known) = known {
        value.put(known)?;
    }
    flag.put(c_int::from(known.is_some()))
}

/// Calls a copy callback on a value; returns `None` if the attribute is not copied.
fn copied(attribute: &Attribute, owner: RawHandle) -> Result<Option<usize>> {
    let Attribute { key, keyval, value } = attribute;
    match keyval.copy {
        NULL_COPY => Ok(None),
        DUP => Ok(Some(*value)),
        function => {
            let (mut made, mut flag) = (0usize, 0);
            // SAFETY: the application gave this address as a copy function.
            let code = unsafe {
                let copy: Copy = std::mem::transmute(function);
                let place = (&raw mut made).cast();
                copy(owner, *key, keyval.extra_state as _, *value as _, place, &mut flag)
            };
            callback_result(code)?;
            Ok((flag != 0).then_some(made))
        }
    }
}

fn deleted(attribute: &Attribute, owner: RawHandle) -> Result<()> {
    let keyval = Arc::clone(&attribute.keyval);
    if keyval.delete == NULL_DELETE {
        return Ok(());
    }
    // SAFETY: the application gave this address as a delete function.
    let code = unsafe {
        let delete: Delete = std::mem::transmute(keyval.delete);
        delete(owner, attribute.key, attribute.value as _, keyval.extra_state as _)
    };
    callback_result(code)
}

fn callback_result(code: c_int) -> Result<()> {
    crate::error::callback_result("an attribute callback", code)
}

/// The place of a predefined attribute's value; none inside when it has none, none outside when the
/// key is not predefined.
fn predefined(key: c_int) -> Result<Option<Option<*const c_int>>> {
    let job = world::current()?.job();
    let value = match key {
        TAG_UB => Some(c_int::MAX),
        IO => Some(crate::arguments::ANY_SOURCE),
        HOST => Some(crate::arguments::PROC_NULL),
        WTIME_IS_GLOBAL => Some(0),
        APPNUM => job.application_number().map(|number| number as c_int),
        LAST_USED_CODE => Some(crate::error::last_used_code()),
        UNIVERSE_SIZE => job.universe_size().map(|size| size as c_int),
        _ => return Ok(None),
    };
    Ok(Some(value.map(|value| {
        static VALUES: LazyLock<Mutex<BTreeMap<c_int, &'static Mutex<c_int>>>> =
            LazyLock::new(Mutex::default);
        let mut values = VALUES.lock().unwrap_or_else(|poison| poison.into_inner());
        let place = values.entry(key).or_insert_with(|| Box::leak(Box::default()));
        let mut inner = place.lock().unwrap_or_else(|poison| poison.into_inner());
        *inner = value;
        &raw const *inner
    })))
}

/// The attributes of datatypes, by handle.
fn of_types() -> MutexGuard<'static, BTreeMap<RawHandle, Attributes>> {
    static TYPES: LazyLock<Mutex<BTreeMap<RawHandle, Attributes>>> = LazyLock::new(Mutex::default);
    TYPES.lock().unwrap_or_else(|poison| poison.into_inner())
}

/// `MPI_COMM_NULL_COPY_FN` and its siblings.
const NULL_COPY: usize = 0;
/// `MPI_COMM_DUP_FN` and its siblings.
const DUP: usize = 1;
/// `MPI_COMM_NULL_DELETE_FN` and its siblings.
const NULL_DELETE: usize = 0;

const KEYVAL_INVALID: c_int = 0;
const TAG_UB: c_int = 501;
const IO: c_int = 502;
const HOST: c_int = 503;
const WTIME_IS_GLOBAL: c_int = 504;
const APPNUM: c_int = 505;
const LAST_USED_CODE: c_int = 506;
const UNIVERSE_SIZE: c_int = 507;
const WIN_BASE: c_int = 601;
const WIN_DISP_UNIT: c_int = 602;
const WIN_SIZE: c_int = 603;
const WIN_CREATE_FLAVOR: c_int = 604;
const WIN_MODEL: c_int = 605;
