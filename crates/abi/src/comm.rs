//! Communicators (MPI-5.0 §7.4).

use std::ffi::c_int;
use std::sync::Arc;

use mpi::comm::{Comm, NULL};
use mpi::errhandler::{Errhandler, Owner};
use mpi::from_group::Led;
use mpi::group::Group;
use mpi::info::Info;
use mpi::inter::Bridge;
use mpi::objects;
use mpi::process::Process;
use mpi::session;

use crate::arguments::{comm, find_comm, intra, intra_as};
use crate::attribute;
use crate::convention::*;
use crate::error::write_string;
use crate::world;

#[inline]
pub(crate) fn comm_size(on: RawHandle, size: Out<c_int>) -> Result<()> {
    size.put(comm(on)?.size() as c_int)
}

#[inline]
pub(crate) fn comm_rank(on: RawHandle, rank: Out<c_int>) -> Result<()> {
    rank.put(comm(on)?.rank() as c_int)
}

pub(crate) fn comm_compare(one: RawHandle, other: RawHandle, result: Out<c_int>) -> Result<()> {
    let one = named("comm1", find_comm(one))?;
    let other = named("comm2", find_comm(other))?;
    let comparison = one.compare(&other);
    result.put(crate::group::code_of(comparison))
}

pub(crate) fn comm_group(on: RawHandle, group: Out<RawHandle>) -> Result<()> {
    crate::group::give(comm(on)?.derived_group(), group)
}

fn give(made: Option<Comm>, place: Out<RawHandle>) -> Result<()> {
    place.put(raw(made.map_or(NULL, |comm| comm.handle())))
}

pub(crate) fn comm_dup(on: RawHandle, copy: Out<RawHandle>) -> Result<()> {
    let comm = comm(on)?;
    // Hints are not copied (MPI-5.0 §7.4.2).
    duplicate(&comm, &Info::default(), copy)
}

pub(crate) fn comm_dup_with_info(
    on: RawHandle,
    info: RawHandle,
    copy: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    let hints = crate::info::optional(info)?;
    duplicate(&comm, &hints, copy)
}

pub(crate) fn comm_idup(
    on: RawHandle,
    copy: Out<RawHandle>,
    request: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    begin_duplicate(&comm, &Info::default(), copy, request)
}

pub(crate) fn comm_idup_with_info(
    on: RawHandle,
    info: RawHandle,
    copy: Out<RawHandle>,
    request: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    let hints = crate::info::optional(info)?;
    begin_duplicate(&comm, &hints, copy, request)
}

/// Attributes are copied as they are at the call (MPI-5.0 §7.4.2).
fn begin_duplicate(
    comm: &Comm,
    hints: &Info,
    copy: Out<RawHandle>,
    request: Out<RawHandle>,
) -> Result<()> {
    let (made, begun, vci) = comm.begin_duplicate()?;
    made.set_info_before_use(hints);
    attribute::copy_comm(comm, &made)?;
    request.put(raw(begun.register(vci)?))?;
    give(Some(made), copy)
}

fn duplicate(comm: &Comm, hints: &Info, copy: Out<RawHandle>) -> Result<()> {
    let made = comm.duplicate()?;
    made.set_info(hints);
    if let Err(error) = attribute::copy_comm(comm, &made) {
        made.free()?;
        return Err(error);
    }
    give(Some(made), copy)
}

pub(crate) fn comm_create(on: RawHandle, group: RawHandle, result: Out<RawHandle>) -> Result<()> {
    let comm = comm(on)?;
    let group = named("group", objects::group(handle(group)))?;
    give(named("group", comm.create(&group))?, result)
}

pub(crate) fn comm_create_group(
    on: RawHandle,
    group: RawHandle,
    tag: c_int,
    result: Out<RawHandle>,
) -> Result<()> {
    let comm = intra(on)?;
    let group = named("group", objects::group(handle(group)))?;
    let tag = crate::arguments::tag("tag", tag)?;
    give(named("group", comm.create_group(&group, tag))?, result)
}

pub(crate) fn comm_create_from_group(
    group: RawHandle,
    stringtag: String,
    info: RawHandle,
    errhandler: RawHandle,
    made: Out<RawHandle>,
) -> Result<()> {
    let group = named("group", objects::group(handle(group)))?;
    let (hints, handler) = origin(info, errhandler)?;
    let process = named("group", process_of(&group))?;
    let comm = Comm::of_group(&process, &group, &stringtag, handler)?;
    if let Some(comm) = &comm {
        comm.set_info(&hints);
    }
    give(comm, made)
}

/// The process, as the session or the World Model sees it from which a group derives.
fn process_of(group: &Group) -> Result<Arc<Process>> {
    match group.session() {
        Some(session) => session::of_object(session)?.process(world::current).cloned(),
        None if group.size() == 0 => world::current().cloned(),
        None => Ok(Arc::clone(world::world_model()?.process())),
    }
}

/// Reads the common arguments of functions that make communicators from groups.
fn origin(info: RawHandle, errhandler: RawHandle) -> Result<(Info, Errhandler)> {
    let hints = crate::info::optional(info)?;
    let handler = named("errhandler", Errhandler::find(handle(errhandler), Owner::Comm))?;
    Ok((hints, handler))
}

pub(crate) fn comm_split(
    on: RawHandle,
    color: c_int,
    key: c_int,
    result: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    let color = match color {
        0.. => Some(color),
        UNDEFINED => None,
        _ => return Err(Error::argument(format!("color = {color} is negative"))),
    };
    give(comm.split(color, key)?, result)
}

pub(crate) fn comm_split_type(
    on: RawHandle,
    kind: c_int,
    key: c_int,
    info: RawHandle,
    result: Out<RawHandle>,
) -> Result<()> {
    let comm = comm(on)?;
    let info = crate::info::optional(info)?;
    let resource = info.value(RESOURCE_TYPE)?;
    let set = info.value("mpi_pset_name")?;
    if !SPLIT_TYPES.contains(&kind) {
        return Err(Error::argument(format!("split_type = {kind} is no type of split")));
    }
    // All take the same steps, for some may ask for another kind of split than others: for none.
    let nodes = comm.nodes()?;
    let color = match (kind, resource.as_deref(), set.as_deref()) {
        (TYPE_SHARED, ..) | (TYPE_HW_GUIDED | TYPE_RESOURCE_GUIDED, Some(SHARED_MEMORY), _) => {
            Some(nodes.first)
        }
        (TYPE_HW_GUIDED | TYPE_RESOURCE_GUIDED, Some(SITE), _) => Some(comm.own_site() as c_int),
        (TYPE_RESOURCE_GUIDED, None, Some("mpi://WORLD")) => Some(0),
        (TYPE_RESOURCE_GUIDED, None, Some("mpi://SELF")) => Some(comm.rank() as c_int),
        (TYPE_HW_UNGUIDED, ..) => nodes.several.then_some(nodes.first),
        // Other resources and sets are not known here: the standard lets these be null.
        _ => None,
    };
    let made = comm.split(color, key)?;
    if kind == TYPE_HW_UNGUIDED && made.is_some() {
        info.set(RESOURCE_TYPE, SHARED_MEMORY)?;
    }
    give(made, result)
}

pub(crate) fn comm_free(on: InOut<RawHandle>) -> Result<()> {
    let found = comm(on.get())?;
    if !found.handle().is_predefined() {
        attribute::delete_comm(&found)?;
    }
    named("comm", found.free())?;
    on.put(raw(NULL))
}

pub(crate) fn comm_disconnect(on: InOut<RawHandle>) -> Result<()> {
    let found = comm(on.get())?;
    if !found.handle().is_predefined() {
        found.disconnect()?;
    }
    comm_free(on)
}

pub(crate) fn comm_test_inter(on: RawHandle, flag: Out<c_int>) -> Result<()> {
    flag.put(c_int::from(comm(on)?.remote_group().is_some()))
}

pub(crate) fn comm_remote_size(on: RawHandle, size: Out<c_int>) -> Result<()> {
    let comm = comm(on)?;
    let remote = comm.remote_group().ok_or_else(not_inter)?;
    size.put(remote.size() as c_int)
}

pub(crate) fn comm_remote_group(on: RawHandle, group: Out<RawHandle>) -> Result<()> {
    let comm = comm(on)?;
    let remote = comm.remote_group().ok_or_else(not_inter)?;
    crate::group::give(remote.clone().of_session(comm.process().session()), group)
}

pub(crate) fn intercomm_create(
    local: RawHandle,
    local_leader: c_int,
    peer: RawHandle,
    remote_leader: c_int,
    tag: c_int,
    made: Out<RawHandle>,
) -> Result<()> {
    let local = intra_as("local_comm", local)?;
    let tag = crate::arguments::tag("tag", tag)?;
    let leader = rank_of("local_leader", local_leader, local.size())?;
    // The other two are significant at the leader.
    let comm = if local.rank() == leader {
        let peer = named("peer_comm", find_comm(peer))?;
        let other = rank_of("remote_leader", remote_leader, peer.peer_count())?;
        local.connect(leader, Some(Bridge { comm: &peer, leader: other, tag }))?
    } else {
        local.connect(leader, None)?
    };
    give(Some(comm), made)
}

fn rank_of(name: &str, rank: c_int, size: u32) -> Result<u32> {
    let found = u32::try_from(rank).ok().filter(|&rank| rank < size);
    let bad = || format!("{name} = {rank} is outside a group of {size}");
    found.ok_or_else(|| class(ErrorClass::Rank, bad()))
}

pub(crate) fn intercomm_create_from_groups(
    local: RawHandle,
    local_leader: c_int,
    remote: RawHandle,
    remote_leader: c_int,
    stringtag: String,
    info: RawHandle,
    errhandler: RawHandle,
    made: Out<RawHandle>,
) -> Result<()> {
    let local = named("local_group", objects::group(handle(local)))?;
    let remote = named("remote_group", objects::group(handle(remote)))?;
    let (hints, handler) = origin(info, errhandler)?;
    let leader = |name: &str, rank: c_int, group: &Group| match group.size() {
        0 => Ok(0),
        size => rank_of(name, rank, size),
    };
    let local_leader = leader("local_leader", local_leader, &local)?;
    let remote_leader = leader("remote_leader", remote_leader, &remote)?;
    let local = Led { group: &local, leader: local_leader };
    let remote = Led { group: &remote, leader: remote_leader };
    if local.group.session() != remote.group.session() {
        let text = "remote_group: it derives from another session than local_group";
        return Err(class(ErrorClass::Group, text.into()));
    }
    let process = named("local_group", process_of(local.group))?;
    let comm = Comm::of_groups(&process, local, remote, &stringtag, handler)?;
    if let Some(comm) = &comm {
        comm.set_info(&hints);
    }
    give(comm, made)
}

pub(crate) fn intercomm_merge(on: RawHandle, high: c_int, made: Out<RawHandle>) -> Result<()> {
    let merged = named("intercomm", find_comm(on))?.merge(high != 0)?;
    give(Some(merged), made)
}

fn not_inter() -> Error {
    mpi::inter::not_inter().about("comm")
}

pub(crate) fn comm_set_name(on: RawHandle, name: String) -> Result<()> {
    comm(on)?.set_name(name.as_bytes());
    Ok(())
}

pub(crate) fn comm_get_name(on: RawHandle, name: Chars, len: Out<c_int>) -> Result<()> {
    let known = match handle(on) {
        NULL => "MPI_COMM_NULL".into(),
        _ => String::from_utf8_lossy(&comm(on)?.name()).into_owned(),
    };
    write_string(&known, NAME_MAX, name, len)
}

pub(crate) fn comm_set_info(on: RawHandle, info: RawHandle) -> Result<()> {
    let comm = comm(on)?;
    comm.set_info(&crate::info::optional(info)?);
    Ok(())
}

pub(crate) fn comm_get_info(on: RawHandle, info: Out<RawHandle>) -> Result<()> {
    info.put(raw(comm(on)?.info()?.register()?))
}

const TYPE_SHARED: c_int = 221;
const TYPE_HW_UNGUIDED: c_int = 222;
const TYPE_HW_GUIDED: c_int = 223;
const TYPE_RESOURCE_GUIDED: c_int = 224;
/// The hint that names the resource to split by, or tells by which it was split.
const RESOURCE_TYPE: &str = "mpi_hw_resource_type";
const SHARED_MEMORY: &str = "mpi_shared_memory";
pub(crate) const SITE: &str = "canele://site";

/// `MPI_MAX_OBJECT_NAME`.
pub(crate) const NAME_MAX: usize = 128;
const SPLIT_TYPES: [c_int; 5] =
    [UNDEFINED, TYPE_SHARED, TYPE_HW_UNGUIDED, TYPE_HW_GUIDED, TYPE_RESOURCE_GUIDED];
