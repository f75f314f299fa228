//! System calls on an open file, whose data lie in described memory.

use std::os::fd::OwnedFd;
use std::path::Path;

use memory::{Region, Span};
use rustix::fs::{self, Access, AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags};
use rustix::io::{self, Errno, IoSlice, IoSliceMut};

use crate::fault::{FileFault, Result};
use crate::identity::FileIdentity;

/// An open file.
#[derive(Debug)]
pub struct OpenFile(OwnedFd);

/// Purpose of an open file, and whether it may exist already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OpenMode {
    /// True if it is read.
    pub reads: bool,
    /// True if it is written.
    pub writes: bool,
    /// True if it is created where it does not exist.
    pub creates: bool,
    /// True if it must not exist.
    pub is_exclusive: bool,
}

/// Deletes a file.
///
/// # Errors
/// The system's.
pub fn delete(path: &Path) -> Result<()> {
    fs::unlinkat(CWD, path, AtFlags::empty()).map_err(|errno| FileFault::new(errno, None))
}

/// True if this process could create a file, or write one that is there.
pub fn may_create(path: &Path) -> bool {
    let folder = match path.parent() {
        Some(folder) if folder != Path::new("") => folder,
        Some(_) | None => Path::new("."),
    };
    fs::access(path, Access::WRITE_OK).is_ok()
        || fs::access(folder, Access::WRITE_OK | Access::EXEC_OK).is_ok()
}

impl OpenFile {
    /// Opens a file.
    ///
    /// # Errors
    /// The system's, and one for a directory.
    pub fn open(path: &Path, mode: OpenMode) -> Result<Self> {
        let mut flags = match (mode.reads, mode.writes) {
            (_, false) => OFlags::RDONLY,
            (false, true) => OFlags::WRONLY,
            (true, true) => OFlags::RDWR,
        };
        flags.set(OFlags::CREATE, mode.creates);
        flags.set(OFlags::EXCL, mode.creates && mode.is_exclusive);
        let permissions = Mode::from_raw_mode(0o666);
        let opened = retried(|| fs::openat(CWD, path, flags | OFlags::CLOEXEC, permissions));
        let file = opened.map_err(|errno| FileFault::new(errno, None))?;
        let status = fs::fstat(&file).map_err(|errno| FileFault::new(errno, None))?;
        if FileType::from_raw_mode(status.st_mode) == FileType::Directory {
            return Err(FileFault::new(Errno::ISDIR, None));
        }
        Ok(Self(file))
    }

    /// The identity by which other processes know whether theirs is the same file.
    ///
    /// # Errors
    /// The system's.
    pub fn identity(&self) -> Result<FileIdentity> {
        FileIdentity::of(&self.0).map_err(|errno| FileFault::new(errno, None))
    }

    /// Size in bytes.
    ///
    /// # Errors
    /// The system's.
    pub fn size(&self) -> Result<u64> {
        let status = fs::fstat(&self.0).map_err(|errno| FileFault::new(errno, None))?;
        Ok(status.st_size as u64)
    }

    /// Cuts or extends the file.
    ///
    /// # Errors
    /// The system's.
    pub fn set_size(&self, size: u64) -> Result<()> {
        retried(|| fs::ftruncate(&self.0, size)).map_err(|errno| FileFault::new(errno, Some(size)))
    }

    /// Makes sure that the first `size` bytes have room on the storage, without changing data. The file is extended
    /// to that size.
    ///
    /// # Errors
    /// The system's.
    pub fn reserve(&self, size: u64) -> Result<()> {
        if size == 0 {
            return Ok(());
        }
        // An interrupted call begins anew on some file systems, and would never end under frequent signals.
        let reserve = || fs::fallocate(&self.0, FallocateFlags::empty(), 0, size);
        match cpu::without_signals(|| retried(reserve)) {
            // A file system that cannot reserve room can still extend the file.
            Err(Errno::OPNOTSUPP) if self.size()? < size => self.set_size(size),
            Ok(()) | Err(Errno::OPNOTSUPP) => Ok(()),
            Err(errno) => Err(FileFault::new(errno, Some(size))),
        }
    }

    /// Transfers written data to the storage.
    ///
    /// # Errors
    /// The system's.
    pub fn sync(&self) -> Result<()> {
        match retried(|| fs::fsync(&self.0)) {
            // Files such as pipes have no storage.
            Ok(()) | Err(Errno::INVAL | Errno::ROFS) => Ok(()),
            Err(errno) => Err(FileFault::new(errno, None)),
        }
    }

    /// Reads from offset `at` of the file into bytes `from..from + len` of a region. Returns the number of bytes
    /// read, which is less at the end of the file.
    ///
    /// # Errors
    /// The system's.
    pub fn read(&self, at: u64, into: &Region, from: usize, len: usize) -> Result<usize> {
        let mut done = 0;
        while done < len {
            let place = at + done as u64;
            let read = match batch(into, from + done, len - done) {
                Batch::Spans(spans) => self.read_spans(place, &spans),
                Batch::Packed(packed) => {
                    let packed = scratch(packed)?;
                    let read = self.read(place, &packed, 0, packed.len())?;
                    into.copy_piece(from + done, &packed, 0, read);
                    Ok(read)
                }
            };
            match read.map_err(|errno| FileFault::new(errno, Some(place)))? {
                0 => break,
                read => done += read,
            }
        }
        Ok(done)
    }

    /// Writes bytes `from..from + len` of a region to the file at offset `at`.
    ///
    /// # Errors
    /// The system's; a part may have been written.
    pub fn write(&self, at: u64, data: &Region, from: usize, len: usize) -> Result<()> {
        let mut done = 0;
        while done < len {
            let place = at + done as u64;
            let written = match batch(data, from + done, len - done) {
                Batch::Spans(spans) => self.write_spans(place, &spans),
                Batch::Packed(len) => {
                    let packed = scratch(len)?;
                    packed.copy_piece(0, data, from + done, len);
                    self.write(place, &packed, 0, len)?;
                    Ok(len)
                }
            };
            match written.map_err(|errno| FileFault::new(errno, Some(place)))? {
                0 => return Err(FileFault::new(Errno::IO, Some(place))),
                written => done += written,
            }
        }
        Ok(())
    }

    #[allow(unsafe_code, reason = "the kernel writes memory that a region describes")]
    fn read_spans(&self, at: u64, spans: &[Span]) -> io::Result<usize> {
        let slice = |span: &Span| {
            // SAFETY: the span belongs to a region, whose maker guaranteed its memory for reads and writes until
            // the operation completes. The kernel alone uses the slice.
            IoSliceMut::new(unsafe { std::slice::from_raw_parts_mut(span.address, span.len) })
        };
        let mut slices: Vec<IoSliceMut<'_>> = spans.iter().map(slice).collect();
        retried(|| io::preadv(&self.0, &mut slices, at))
    }

    #[allow(unsafe_code, reason = "the kernel reads memory that a region describes")]
    fn write_spans(&self, at: u64, spans: &[Span]) -> io::Result<usize> {
        let slice = |span: &Span| {
            // SAFETY: the span belongs to a region, whose maker guaranteed its memory for reads until the operation
            // completes.
            IoSlice::new(unsafe { std::slice::from_raw_parts(span.address, span.len) })
        };
        let slices: Vec<IoSlice<'_>> = spans.iter().map(slice).collect();
        retried(|| io::pwritev(&self.0, &slices, at))
    }
}

/// Memory for the next system call.
enum Batch {
    /// The application's own.
    Spans(Vec<Span>),
    /// Number of bytes that are copied to one place, because spans are short or a device's.
    Packed(usize),
}

/// Takes the memory for a system call from the beginning of bytes `from..from + len` of a region.
fn batch(region: &Region, from: usize, len: usize) -> Batch {
    if !region.is_on_host() {
        return Batch::Packed(len.min(PACKED_MAX));
    }
    let (mut spans, mut bytes) = (Vec::new(), 0);
    region.visit(from, len, &mut |span| {
        let span = Span { len: span.len.min(BYTES_MAX - bytes), ..span };
        bytes += span.len;
        spans.push(span);
        spans.len() < SPANS_MAX && bytes < BYTES_MAX
    });
    if spans.len() > 1 && bytes / spans.len() < SPAN_MIN {
        return Batch::Packed(len.min(PACKED_MAX));
    }
    Batch::Spans(spans)
}

/// Memory for copies.
pub(crate) fn scratch(len: usize) -> Result<Region> {
    Region::scratch(len).ok_or_else(|| FileFault::new(Errno::NOMEM, None))
}

/// Repeats an interrupted system call.
fn retried<T>(mut call: impl FnMut() -> io::Result<T>) -> io::Result<T> {
    loop {
        match call() {
            Err(Errno::INTR) => {}
            result => return result,
        }
    }
}

/// Spans of a system call (`IOV_MAX`).
const SPANS_MAX: usize = 1024;
/// Bytes of a system call. Linux transfers no more than 2 GiB less a page.
const BYTES_MAX: usize = 1 << 30;
/// Mean length of spans in bytes, below which a copy is cheaper than their description.
const SPAN_MIN: usize = 512;
/// Bytes that are copied to one place.
const PACKED_MAX: usize = 1 << 20;
