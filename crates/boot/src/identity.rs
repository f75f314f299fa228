//! The connection by which a process is a rank. One process takes it: programs that a rank starts inherit the rank's
//! variables, but are no ranks.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, IntoRawFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::os::unix::net::UnixStream;

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::getppid;

/// The process that has the launcher's connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// This one.
    Own,
    /// A process that has joined the job and started this one.
    Ancestor,
    /// None: a program between the launcher and this one has closed it.
    Nobody,
}

/// Finds who has the launcher's connection `fd`, the socket with this inode if the launcher tells it.
pub(crate) fn holder(fd: i32, inode: Option<u64>) -> Holder {
    let is_connection = |process: &str| {
        socket_inode_of(process, fd).is_some_and(|found| inode.is_none_or(|told| told == found))
    };
    if is_connection("self") {
        return Holder::Own;
    }
    let mut ancestor = getppid().map(|id| id.as_raw_nonzero().to_string());
    for _ in 0..ANCESTORS_MAX {
        let Some(process) = ancestor.filter(|process| was_given(process, fd)) else { break };
        if is_connection(&process) && is_close_on_exec(&process, fd) {
            return Holder::Ancestor;
        }
        ancestor = parent(&process);
    }
    Holder::Nobody
}

/// Takes the launcher's connection `fd`. The descriptor stays open as long as this process, which tells programs that
/// it starts that they are no ranks.
///
/// # Errors
/// The system lacks a resource.
pub(crate) fn take(fd: i32) -> io::Result<UnixStream> {
    // SAFETY: the launcher left this descriptor open for us alone; nothing else in the process knows of it.
    let inherited = unsafe { UnixStream::from_raw_fd(fd) };
    let taken = fcntl_setfd(&inherited, FdFlags::CLOEXEC).map_err(io::Error::from);
    let stream = taken.and_then(|()| inherited.try_clone());
    // Stays open without an owner.
    let _ = inherited.into_raw_fd();
    stream
}

/// Marks this process as a rank of a launcher that passes no connection (PMIx, `PMI_PORT`). The mark stays until the
/// process ends. Returns false if the process has it already.
///
/// # Errors
/// The system lacks a resource.
pub(crate) fn mark() -> io::Result<bool> {
    if is_marked("self") {
        return Ok(false);
    }
    let mark = memfd_create(MARK, MemfdFlags::CLOEXEC)?;
    // Stays open without an owner.
    let _ = mark.into_raw_fd();
    Ok(true)
}

/// True if an ancestor is a rank to which the launcher has given this variable, `NAME=VALUE`: this process is a program
/// that it has started.
pub(crate) fn is_descendant(given: &str) -> bool {
    let mut ancestor = getppid().map(|id| id.as_raw_nonzero().to_string());
    for _ in 0..ANCESTORS_MAX {
        let Some(process) = ancestor.filter(|process| has_variable(process, given)) else { break };
        if is_marked(&process) {
            return true;
        }
        ancestor = parent(&process);
    }
    false
}

/// True if a process has the mark of [`mark`].
fn is_marked(process: &str) -> bool {
    let Ok(open) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
    let names = open.flatten().filter_map(|file| fs::read_link(file.path()).ok());
    let mark = format!("/memfd:{MARK} (deleted)");
    names.into_iter().any(|name| name.as_os_str() == mark.as_str())
}

/// Returns the inode of the socket that is descriptor `fd` of this process.
pub fn socket_inode(fd: i32) -> Option<u64> {
    socket_inode_of("self", fd)
}

fn socket_inode_of(process: &str, fd: i32) -> Option<u64> {
    let open = fs::metadata(format!("/proc/{process}/fd/{fd}")).ok()?;
    open.file_type().is_socket().then(|| open.ino())
}

/// True if a launcher has given connection `fd` to the process or to one of its ancestors.
fn was_given(process: &str, fd: i32) -> bool {
    has_variable(process, &format!("PMI_FD={fd}"))
}

/// True if a process was started with this variable, `NAME=VALUE`.
fn has_variable(process: &str, given: &str) -> bool {
    let variables = fs::read(format!("/proc/{process}/environ")).unwrap_or_default();
    variables.split(|byte| *byte == 0).any(|variable| variable == given.as_bytes())
}

/// True if a descriptor of a process does not pass to programs that it starts.
fn is_close_on_exec(process: &str, fd: i32) -> bool {
    let facts = fs::read_to_string(format!("/proc/{process}/fdinfo/{fd}")).unwrap_or_default();
    let flags = facts.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & CLOSE_ON_EXEC != 0)
}

/// Returns the parent of a process.
fn parent(process: &str) -> Option<String> {
    let facts = fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let parent = facts.lines().find_map(|line| line.strip_prefix("PPid:"))?.trim();
    (parent != "0").then(|| parent.to_owned())
}

/// Variable with the inode of the launcher's connection: another file may get its number in programs of a rank.
pub const SOCKET_VARIABLE: &str = "CANELE_PMI_SOCKET";

/// Name of the memory that marks a rank.
const MARK: &str = "canele-rank";

/// `O_CLOEXEC` as `/proc/PID/fdinfo` shows it.
const CLOSE_ON_EXEC: u32 = 0o2_000_000;

/// Maximum number of ancestors that are looked at.
const ANCESTORS_MAX: usize = 64;

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn a_process_has_the_connection_that_its_launcher_means() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let fd = ours.as_raw_fd();
        let inode = socket_inode(fd);
        assert!(inode.is_some());
        assert_eq!((holder(fd, inode), holder(fd, None)), (Holder::Own, Holder::Own));
        // Another socket, a file and nothing.
        assert_eq!(holder(fd, inode.map(|inode| inode + 1)), Holder::Nobody);
        let file = fs::File::open("/dev/null").unwrap();
        assert_eq!(holder(file.as_raw_fd(), None), Holder::Nobody);
        assert_eq!(holder(-1, None), Holder::Nobody);
    }

    #[test]
    fn a_taken_connection_does_not_pass_to_other_programs() {
        let (ours, _theirs) = UnixStream::pair().unwrap();
        let fd = ours.into_raw_fd();
        fcntl_setfd(borrowed(fd), FdFlags::empty()).unwrap();
        assert!(!is_close_on_exec("self", fd));
        let stream = take(fd).unwrap();
        assert!(is_close_on_exec("self", fd));
        drop(stream);
        assert_eq!(holder(fd, None), Holder::Own, "stays open");
    }

    #[test]
    fn a_marked_process_is_known() {
        assert!(!is_marked("self") && !is_marked("none"));
        assert_eq!((mark().unwrap(), mark().unwrap()), (true, false));
        assert!(is_marked("self"));
        let marks = fs::read_dir("/proc/self/fd").unwrap().flatten();
        let names = marks.filter_map(|file| fs::read_link(file.path()).ok());
        assert_eq!(names.filter(|name| name.to_string_lossy().contains(MARK)).count(), 1);
    }

    fn borrowed(fd: i32) -> std::os::fd::BorrowedFd<'static> {
        // SAFETY: the descriptor stays open until the end of the test program.
        unsafe { std::os::fd::BorrowedFd::borrow_raw(fd) }
    }
}
