//! Counting of calls for `mpiexec -profile`: what a call's row is, and what is counted of it.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ffi::{c_char, c_int, c_void};
use std::sync::atomic::{AtomicI32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use recorder::{CallKey, NOBODY, Profile, STRANGER};

use crate::call::{CallArguments, Next, RawHandle, layer};

/// A communicator as the profile sees it.
struct CommRanks {
    /// Rank in the job of each rank that can be sent to; negative if it is not of this job.
    members: Vec<c_int>,
}

/// Phase that the application has named; calls are counted unless it is 0 (MPI-5.0 §15.2.4).
static PHASE: AtomicI32 = AtomicI32::new(1);

/// Begins a phase, and passes the call on.
// SAFETY: the name is that of the standard, of which this is the prototype without the arguments that may follow.
#[unsafe(no_mangle)]
extern "C" fn MPI_Pcontrol(level: c_int) -> c_int {
    static NEXT: Next = Next::new(0, "PMPI_Pcontrol");
    PHASE.store(level, Ordering::Relaxed);
    // SAFETY: the address is that of the function, of which this is the prototype.
    let next = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(c_int) -> c_int>(NEXT.address())
    };
    next(level)
}

/// Counts a call that has succeeded.
pub(crate) fn count(
    profile: &Profile,
    function: u16,
    arguments: &CallArguments,
    (begin, end): (u64, u64),
) {
    let phase = PHASE.load(Ordering::Relaxed);
    if phase == 0 {
        return;
    }
    // The length of a receive buffer says little about the message.
    let bytes = if arguments.room { None } else { bytes(arguments) };
    let (comm, peer) = (arguments.comm, arguments.peer.max(NOBODY));
    let key = CallKey { function, phase, comm: comm as u64, peer };
    if profile.count(key, bytes, begin, end) && !comm.is_null() {
        with_ranks(profile, comm, |_| ());
    }
}

/// Returns the bytes of the buffer, if count and datatype have a meaning in a call that succeeded.
pub(crate) fn bytes(arguments: &CallArguments) -> Option<u64> {
    let is_moot =
        [PROC_NULL, ROOT].iter().any(|rank| [arguments.peer, arguments.root].contains(rank));
    if arguments.datatype.is_null() || is_moot || arguments.place as usize == IN_PLACE {
        return None;
    }
    let count = if arguments.counts.is_null() && arguments.large_counts.is_null() {
        u64::try_from(arguments.count).ok()?
    } else {
        sum_of_counts(arguments)?
    };
    if count == 0 {
        return Some(0);
    }
    type_size(arguments.datatype)?.checked_mul(count)
}

/// Returns the sum of the counts that a call has for each rank of its communicator.
fn sum_of_counts(arguments: &CallArguments) -> Option<u64> {
    let profile = layer().profile?;
    let ranks = with_ranks(profile, arguments.comm, |ranks| ranks.members.len());
    let sum = (0..ranks).try_fold(0i64, |sum, rank| {
        let count = if arguments.counts.is_null() {
            // SAFETY: the caller passes a count for each rank.
            unsafe { arguments.large_counts.add(rank).read() }
        } else {
            // SAFETY: the caller passes a count for each rank.
            i64::from(unsafe { arguments.counts.add(rank).read() })
        };
        sum.checked_add(count)
    })?;
    u64::try_from(sum).ok()
}

impl CommRanks {
    /// Asks the library about a communicator.
    fn ask(comm: RawHandle) -> Self {
        let is_inter = ask_number("PMPI_Comm_test_inter", comm) != 0;
        let group = if is_inter { "PMPI_Comm_remote_group" } else { "PMPI_Comm_group" };
        let group = group_of(group, comm);
        // A program may use sessions only.
        let has_world = is_so("PMPI_Initialized") && !is_so("PMPI_Finalized");
        let members = if has_world {
            let world = group_of("PMPI_Comm_group", WORLD);
            let members = translated(group, world);
            free(world);
            members
        } else {
            vec![NOBODY; size_of(group)]
        };
        free(group);
        Self { members }
    }

    fn record(&self, profile: &Profile, comm: RawHandle, name: &str) {
        let members: Vec<u32> =
            self.members.iter().map(|rank| u32::try_from(*rank).unwrap_or(STRANGER)).collect();
        profile.comm(comm as u64, self.members.len() as u32, name, &members);
    }
}

/// Gives `look` what is known about a communicator. The last one of a thread is at hand.
fn with_ranks<T>(profile: &Profile, comm: RawHandle, look: impl Fn(&CommRanks) -> T) -> T {
    type Last = Option<(usize, Arc<CommRanks>)>;
    thread_local! {
        static LAST: RefCell<Last> = const { RefCell::new(None) };
    }
    let handle = comm as usize;
    let at_hand = LAST.try_with(|last| match &*last.borrow() {
        Some((known, ranks)) if *known == handle => Some(look(ranks)),
        Some(_) | None => None,
    });
    if let Ok(Some(found)) = at_hand {
        return found;
    }
    let ranks = ranks_of(profile, comm);
    let found = look(&ranks);
    // A thread that ends looks again.
    let _ = LAST.try_with(|last| last.replace(Some((handle, ranks))));
    found
}

/// Returns what is known about a communicator. It is asked and recorded once; no lock is held while the library is asked.
fn ranks_of(profile: &Profile, comm: RawHandle) -> Arc<CommRanks> {
    static ALL: Mutex<BTreeMap<usize, Arc<CommRanks>>> = Mutex::new(BTreeMap::new());
    let all = || ALL.lock().unwrap_or_else(PoisonError::into_inner);
    let handle = comm as usize;
    if let Some(known) = all().get(&handle) {
        return Arc::clone(known);
    }
    let (asked, name) = (CommRanks::ask(comm), name_of(comm));
    let mut all = all();
    let ranks = all.entry(handle).or_insert_with(|| {
        asked.record(profile, comm, &name);
        Arc::new(asked)
    });
    Arc::clone(ranks)
}

/// Returns the size of a datatype, if it has one. That of predefined ones is asked once.
#[inline]
fn type_size(datatype: RawHandle) -> Option<u64> {
    /// Sizes of predefined datatypes, and one more; 0 for those that are not known.
    static KNOWN: [AtomicU64; PREDEFINED_END] = [const { AtomicU64::new(0) }; PREDEFINED_END];
    let known = KNOWN.get(datatype as usize);
    match known.map_or(0, |size| size.load(Ordering::Relaxed)) {
        0 => {
            let size = ask_size(datatype)?;
            if let Some(known) = known {
                known.store(size + 1, Ordering::Relaxed);
            }
            Some(size)
        }
        size => Some(size - 1),
    }
}

#[cold]
fn ask_size(datatype: RawHandle) -> Option<u64> {
    static SIZE: Next = Next::new(0, "PMPI_Type_size_c");
    // SAFETY: the address is that of the function, of which this is the prototype.
    let size = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(RawHandle, &mut i64) -> c_int>(
            SIZE.address(),
        )
    };
    let mut bytes = 0;
    let code = size(datatype, &mut bytes);
    (code == 0).then(|| u64::try_from(bytes).ok()).flatten()
}

/// True if the library says so of itself.
fn is_so(function: &'static str) -> bool {
    let next = Next::new(0, function);
    // SAFETY: the address is that of a function of this prototype.
    let ask = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(&mut c_int) -> c_int>(next.address())
    };
    let mut flag = 0;
    ask(&mut flag);
    flag != 0
}

fn size_of(group: RawHandle) -> usize {
    usize::try_from(ask_number("PMPI_Group_size", group)).unwrap_or(0)
}

/// Asks for a number that belongs to a communicator or group; 0 if it has none.
fn ask_number(function: &'static str, object: RawHandle) -> c_int {
    let next = Next::new(0, function);
    // SAFETY: the address is that of a function of this prototype.
    let ask = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(RawHandle, &mut c_int) -> c_int>(
            next.address(),
        )
    };
    let mut number = 0;
    ask(object, &mut number);
    number
}

fn group_of(function: &'static str, comm: RawHandle) -> RawHandle {
    let next = Next::new(0, function);
    // SAFETY: the address is that of a function of this prototype.
    let ask = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(RawHandle, &mut RawHandle) -> c_int>(
            next.address(),
        )
    };
    let mut group = NO_GROUP;
    ask(comm, &mut group);
    group
}

fn free(mut group: RawHandle) {
    let next = Next::new(0, "PMPI_Group_free");
    // SAFETY: the address is that of the function, of which this is the prototype.
    let free = unsafe {
        std::mem::transmute::<*mut c_void, extern "C" fn(&mut RawHandle) -> c_int>(next.address())
    };
    free(&mut group);
}

/// Returns the ranks of a group's members in another.
fn translated(group: RawHandle, other: RawHandle) -> Vec<c_int> {
    type Translate =
        unsafe extern "C" fn(RawHandle, c_int, *const c_int, RawHandle, *mut c_int) -> c_int;
    let mut members = vec![NOBODY; size_of(group)];
    let count = members.len() as c_int;
    let ranks: Vec<c_int> = (0..count).collect();
    let next = Next::new(0, "PMPI_Group_translate_ranks");
    // SAFETY: the address is that of the function, of which this is the prototype.
    let translate = unsafe { std::mem::transmute::<*mut c_void, Translate>(next.address()) };
    // SAFETY: both arrays have `count` elements.
    unsafe { translate(group, count, ranks.as_ptr(), other, members.as_mut_ptr()) };
    members
}

fn name_of(comm: RawHandle) -> String {
    type Name = unsafe extern "C" fn(RawHandle, *mut c_char, &mut c_int) -> c_int;
    let next = Next::new(0, "PMPI_Comm_get_name");
    // SAFETY: the address is that of the function, of which this is the prototype.
    let name = unsafe { std::mem::transmute::<*mut c_void, Name>(next.address()) };
    let mut text = [0u8; NAME_ROOM];
    let mut length = 0;
    // SAFETY: the text has the room that the standard asks for.
    unsafe { name(comm, text.as_mut_ptr().cast(), &mut length) };
    let length = usize::try_from(length).unwrap_or(0).min(NAME_ROOM);
    String::from_utf8_lossy(&text[..length]).into_owned()
}

/// Constants of the ABI.
const PROC_NULL: c_int = -3;
const ROOT: c_int = -4;
const IN_PLACE: usize = 1;
const WORLD: RawHandle = 0x101 as RawHandle;
const NO_GROUP: RawHandle = 0x108 as RawHandle;
const NAME_ROOM: usize = 128;
/// Handles of predefined objects are below.
const PREDEFINED_END: usize = 0x1000;
