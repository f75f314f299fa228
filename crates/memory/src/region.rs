//! A described stream of bytes in the application's memory.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
use std::mem::MaybeUninit;
use std::sync::Arc;

#[cfg(target_arch = "x86_64")]
use crate::copy::copy_past;
use crate::copy::{copy_across, copy_few, copy_many, copy_over, move_few};
use crate::span::Span;
use crate::strided::Strided;
use crate::{Layout, scratch};

/// A stream of bytes in memory: contiguous, or scattered in a datatype's layout.
///
/// Cloning is cheap (a reference count at most) and copies no data.
#[derive(Clone, Debug)]
pub struct Region {
    shape: RegionShape,
    /// Start of the region, which is the bytes `start..start + len` of the shape's stream.
    start: usize,
    len: usize,
}

#[derive(Clone, Debug)]
enum RegionShape {
    Flat(*mut u8),
    Strided { base: *mut u8, layout: Arc<Layout> },
    Chain(Arc<[ChainLink]>),
    Owned(Arc<Buffer>),
}

/// A part of a chain, and the start of its stream in the chain's.
#[derive(Debug)]
struct ChainLink {
    start: usize,
    region: Region,
}

/// Memory owned by the library itself (temporaries, buffered sends, shared memory).
#[derive(Debug)]
struct Buffer {
    address: *mut u8,
    len: usize,
    owner: BufferOwner,
}

/// Owner of a buffer's memory.
#[derive(Debug)]
enum BufferOwner {
    /// The allocator.
    Allocator,
    /// The memory that is reused.
    Scratch,
    /// An object that keeps it mapped.
    Keeper(#[expect(dead_code, reason = "only its drop matters")] Arc<dyn Keeper>),
}

/// Object that keeps memory alive while it lives.
pub trait Keeper: std::fmt::Debug + Send + Sync + std::panic::RefUnwindSafe {}

// SAFETY: a buffer owns its memory and never reads it; regions control the access.
unsafe impl Send for Buffer {}
// SAFETY: a shared buffer only gives its address; regions control the access.
unsafe impl Sync for Buffer {}
// SAFETY: a region is an address and a length. Its maker guaranteed (in `Region::new` and its
// siblings) that the library may read and write the memory from any of its threads until the
// operation completes.
unsafe impl Send for Region {}
// SAFETY: the methods access only memory that the region's maker guaranteed for any of the
// library's threads.
unsafe impl Sync for Region {}

impl Region {
    /// Makes a region of no bytes.
    pub const fn empty() -> Self {
        Self { shape: RegionShape::Flat(std::ptr::null_mut()), start: 0, len: 0 }
    }

    /// Makes a region of `len` contiguous bytes at `address`.
    ///
    /// # Safety
    /// The memory must stay valid for reads (and, if the region is received into, for writes) until
    /// the last clone of the region is dropped or unused.
    pub unsafe fn new(address: *mut u8, len: usize) -> Self {
        Self { shape: RegionShape::Flat(address), start: 0, len }
    }

    /// Makes a region of `count` elements of `layout`, the first one at `address`.
    ///
    /// # Safety
    /// Every segment of every element must satisfy the conditions of [`Region::new`].
    pub unsafe fn elements(address: *mut u8, count: usize, layout: &Arc<Layout>) -> Self {
        let len = layout.size() * count;
        if layout.is_contiguous() {
            return Self { shape: RegionShape::Flat(address), start: 0, len };
        }
        if let (Some(only), 1) = (layout.only(), count) {
            // SAFETY: the segment belongs to the element that the caller guarantees.
            let address = unsafe { address.offset(only.offset) };
            return Self { shape: RegionShape::Flat(address), start: 0, len };
        }
        Self {
            shape: RegionShape::Strided { base: address, layout: Arc::clone(layout) },
            start: 0,
            len,
        }
    }

    /// Makes a region of `count` elements of `layout`, the first one at `start` bytes from the
    /// beginning of this contiguous region. None if any of their bytes lies outside. The result
    /// does not keep owned memory alive: the caller keeps `self` as long as the elements are used.
    pub fn typed(&self, start: isize, count: usize, layout: &Arc<Layout>) -> Option<Self> {
        let span = self.as_span()?;
        let len = layout.size().checked_mul(count)?;
        if len > 0 && layout.is_contiguous() {
            let first = usize::try_from(start).ok()?;
            let shape = RegionShape::Flat(span.address.wrapping_add(first));
            return (first.checked_add(len)? <= span.len).then_some(Self { shape, start: 0, len });
        }
        let inside = |index: usize| {
            let origin = layout.extent().checked_mul(isize::try_from(index).ok()?)?;
            let origin = origin.checked_add(start)?;
            layout.outermost().try_for_each(|segment| {
                let first = usize::try_from(origin.checked_add(segment.offset)?).ok()?;
                (first.checked_add(segment.len)? <= span.len).then_some(())
            })
        };
        if count > 0 {
            inside(0)?;
            inside(count - 1)?;
        }
        // SAFETY: all elements lie inside this region, whose maker guaranteed it: the outermost do,
        // and the others lie between them.
        let made = unsafe { Self::elements(span.address.wrapping_offset(start), count, layout) };
        Some(made)
    }

    /// Concatenates the streams of `parts`. Parts that are adjacent in memory become one.
    pub fn chain(parts: impl IntoIterator<Item = Region>) -> Self {
        let mut len = 0;
        let mut links: Vec<ChainLink> = Vec::new();
        for region in parts.into_iter().filter(|region| !region.is_empty()) {
            let start = len;
            len += region.len;
            match links.last_mut() {
                Some(last) if last.region.goes_on_in(&region) => last.region.len += region.len,
                _ => links.push(ChainLink { start, region }),
            }
        }
        match <[ChainLink; 1]>::try_from(links) {
            Ok([only]) => only.region,
            Err(links) => Self { shape: RegionShape::Chain(links.into()), start: 0, len },
        }
    }

    /// True if both are contiguous memory of others, and `next` begins at the end of this region.
    fn goes_on_in(&self, next: &Self) -> bool {
        match (&self.shape, &next.shape) {
            (RegionShape::Flat(address), RegionShape::Flat(following)) => {
                let end = address.wrapping_add(self.start + self.len);
                std::ptr::eq(end, following.wrapping_add(next.start))
            }
            _ => false,
        }
    }

    /// Makes a region of `len` zeroed bytes, owned by the region itself and its clones.
    pub fn owned(len: usize) -> Self {
        Self::from_box(vec![0; len].into_boxed_slice())
    }

    /// Makes a region of the bytes of `data`, owned by the region itself and its clones.
    pub fn from_box(data: Box<[u8]>) -> Self {
        let len = data.len();
        Self { shape: RegionShape::Owned(Buffer::new(data, BufferOwner::Allocator)), start: 0, len }
    }

    /// Makes a region of `len` bytes with arbitrary contents, owned by the region itself and its
    /// clones; none if there is no memory. The memory is reused after the last one.
    pub fn scratch(len: usize) -> Option<Self> {
        if len < SCRATCH_MIN {
            return Some(Self::owned(len));
        }
        let buffer = Buffer::new(scratch::take(len)?, BufferOwner::Scratch);
        Some(Self { shape: RegionShape::Owned(buffer), start: 0, len })
    }

    /// Makes a region of `len` contiguous bytes at `address`, which `keeper` keeps alive.
    ///
    /// # Safety
    /// The memory must stay valid for reads and writes while `keeper` lives.
    pub unsafe fn kept(address: *mut u8, len: usize, keeper: Arc<dyn Keeper>) -> Self {
        let buffer = Buffer { address, len, owner: BufferOwner::Keeper(keeper) };
        Self { shape: RegionShape::Owned(Arc::new(buffer)), start: 0, len }
    }

    /// Length of the stream in bytes.
    #[inline]
    pub fn len(&self) -> usize {
        self.len
    }

    /// True if the stream has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns bytes `offset..offset + len` of this stream as a region of their own.
    ///
    /// # Panics
    /// If the range exceeds the region: an error of the library, not of its user.
    #[inline]
    pub fn slice(&self, offset: usize, len: usize) -> Self {
        self.check(offset, len);
        match &self.shape {
            RegionShape::Chain(links) if len > 0 => self.slice_of_chain(links, offset, len),
            shape => Self { shape: shape.clone(), start: self.start + offset, len },
        }
    }

    /// Returns a slice of one link, which may be contiguous, if all of it lies there.
    #[inline(never)]
    fn slice_of_chain(&self, links: &Arc<[ChainLink]>, offset: usize, len: usize) -> Self {
        let start = self.start + offset;
        let ChainLink { start: before, region } = &links[link_of(links, start)];
        match start - before + len <= region.len {
            true => region.slice(start - before, len),
            false => Self { shape: RegionShape::Chain(Arc::clone(links)), start, len },
        }
    }

    /// Returns the memory as one span, if it is contiguous.
    #[inline]
    pub fn as_span(&self) -> Option<Span> {
        match self.flat() {
            Some(address) => Some(Span { address, len: self.len }),
            None => self.as_single_span(),
        }
    }

    /// Begins to fetch the cache line of byte `offset` for a write, if the region is contiguous and
    /// the processor can.
    #[inline]
    pub fn prefetch(&self, offset: usize) {
        #[cfg(target_arch = "x86_64")]
        if let Some(address) = self.flat() {
            self.check(offset, 1);
            // SAFETY: every x86-64 processor has the instruction, which accesses no memory that
            // the program sees.
            unsafe { _mm_prefetch::<_MM_HINT_ET0>(address.wrapping_add(offset).cast()) };
        }
        #[cfg(not(target_arch = "x86_64"))]
        let _ = offset;
    }

    /// Copies bytes `offset..offset + target.len()` of the stream into `target`.
    #[inline]
    pub fn read(&self, offset: usize, target: &mut [u8]) {
        self.check(offset, target.len());
        match self.flat() {
            // SAFETY: the region's maker guaranteed its bytes, and the range was checked; `target`
            // is a distinct live slice.
            Some(address) => unsafe {
                copy_few(address.wrapping_add(offset), target.as_mut_ptr(), target.len());
            },
            None => self.read_scattered(offset, target),
        }
    }

    /// Copies like [`Region::read`], with non-temporal stores past the caches if the processor has
    /// them and the region is contiguous. Other cores then find the data in memory.
    pub fn read_past(&self, offset: usize, target: &mut [u8]) {
        #[cfg(target_arch = "x86_64")]
        if let Some(address) = self.flat() {
            self.check(offset, target.len());
            // SAFETY: the region's maker guaranteed its bytes, and the range was checked; `target`
            // is a distinct live slice.
            return unsafe {
                copy_past(address.wrapping_add(offset), target.as_mut_ptr(), target.len());
            };
        }
        self.read(offset, target);
    }

    /// Copies like [`Region::read`] to a target whose cache lines another core holds.
    pub fn read_across(&self, offset: usize, target: &mut [u8]) {
        self.check(offset, target.len());
        match self.flat() {
            // SAFETY: the region's maker guaranteed its bytes, and the range was checked; `target`
            // is a distinct live slice.
            Some(address) => unsafe {
                copy_across(address.wrapping_add(offset), target.as_mut_ptr(), target.len());
            },
            None => self.read_scattered(offset, target),
        }
    }

    #[inline(never)]
    fn read_scattered(&self, offset: usize, target: &mut [u8]) {
        // SAFETY: `target` is a distinct live slice of that length.
        unsafe { self.copy::<false>(offset, target.as_mut_ptr(), target.len()) }
    }

    /// Copies bytes `offset..offset + len` of the stream to `memory`, or from it if `CHANGE`.
    ///
    /// # Safety
    /// So many bytes at `memory` must be writable, or readable, and none of them the region's.
    unsafe fn copy<const CHANGE: bool>(&self, offset: usize, memory: *mut u8, len: usize) {
        self.check(offset, len);
        let mut next = memory;
        let mut each = |Span { address, len }: Span| {
            // SAFETY: the region's maker guaranteed the span, and the caller the memory; the
            // lengths of the visited spans add up to `len`.
            unsafe {
                match CHANGE {
                    true => copy_few(next, address, len),
                    false => copy_few(address, next, len),
                }
                next = next.add(len);
            }
            true
        };
        match &self.shape {
            RegionShape::Strided { base, layout } => {
                let elements = Strided { base: *base, layout, offset: self.start + offset, len };
                // SAFETY: the region's maker guaranteed the elements, and the caller `len` bytes of
                // memory.
                if !unsafe { elements.copy::<CHANGE>(memory) } {
                    elements.visit(each);
                }
            }
            _ => {
                self.visit(offset, len, &mut each);
            }
        }
    }

    /// Appends the stream's bytes to `target`.
    #[inline]
    pub fn append_to(&self, target: &mut Vec<u8>) {
        target.reserve(self.len);
        let to = target.spare_capacity_mut();
        match self.shape {
            // SAFETY: the region's maker guaranteed the bytes; the vector's reserved memory holds
            // as many, and is distinct.
            RegionShape::Flat(address) => unsafe {
                let from = address.wrapping_add(self.start);
                copy_many(from, to.as_mut_ptr().cast(), self.len);
            },
            RegionShape::Strided { .. } | RegionShape::Chain(_) | RegionShape::Owned(_) => {
                self.copy_to(to)
            }
        }
        // SAFETY: the bytes up to here were written above.
        unsafe { target.set_len(target.len() + self.len) };
    }

    /// Copies the stream to the beginning of `target`, which is no shorter.
    #[inline(never)]
    fn copy_to(&self, target: &mut [MaybeUninit<u8>]) {
        let target = &mut target[..self.len];
        let to = target.as_mut_ptr().cast::<u8>();
        if let Some(address) = self.flat() {
            // SAFETY: the region's maker guaranteed its bytes; the target is a distinct live slice
            // of their length.
            return unsafe { copy_few(address, to, self.len) };
        }
        // SAFETY: the target is a distinct live slice of the region's length.
        unsafe { self.copy::<false>(0, to, self.len) }
    }

    /// Copies `source` over bytes `offset..offset + source.len()` of the stream.
    #[inline]
    pub fn write(&self, offset: usize, source: &[u8]) {
        self.check(offset, source.len());
        match self.flat() {
            // SAFETY: the region's maker guaranteed its bytes, and the range was checked; `source`
            // is a distinct live slice.
            Some(address) => unsafe {
                copy_few(source.as_ptr(), address.wrapping_add(offset), source.len());
            },
            None => self.write_scattered(offset, source),
        }
    }

    #[inline(never)]
    fn write_scattered(&self, offset: usize, source: &[u8]) {
        // SAFETY: `source` is a distinct live slice of that length.
        unsafe { self.copy::<true>(offset, source.as_ptr().cast_mut(), source.len()) }
    }

    /// Copies the stream of `source` over this region's, from its beginning. Overlap is allowed
    /// only if both are contiguous.
    #[inline]
    pub fn copy_from(&self, source: &Region) {
        self.check(0, source.len());
        match (self.flat(), source.flat()) {
            // SAFETY: both regions' makers guaranteed their memory; `copy_over` allows overlap.
            (Some(to), Some(from)) => unsafe { copy_over(from, to, source.len()) },
            _ => self.copy_scattered_from(source),
        }
    }

    #[inline(never)]
    fn copy_scattered_from(&self, source: &Region) {
        match (self.flat(), source.flat()) {
            // SAFETY: both regions' makers guaranteed their memory, which does not overlap.
            (Some(to), _) => return unsafe { source.copy::<false>(0, to, source.len()) },
            // SAFETY: both regions' makers guaranteed their memory, which does not overlap.
            (_, Some(from)) => return unsafe { self.copy::<true>(0, from, source.len()) },
            (None, None) => {}
        }
        let mut done = 0;
        source.visit(0, source.len(), &mut |from| {
            let mut inner = from.address;
            self.visit(done, from.len, &mut |to| {
                // SAFETY: both regions' makers guaranteed the spans; `copy_over` allows overlap.
                unsafe {
                    copy_over(inner, to.address, to.len);
                    inner = inner.add(to.len);
                }
                true
            });
            done += from.len;
            true
        });
    }

    /// Copies bytes `from..from + len` of `source` over bytes `to..to + len` of the stream; they do
    /// not overlap.
    #[inline(always)]
    pub fn copy_piece(&self, to: usize, source: &Region, from: usize, len: usize) {
        self.check(to, len);
        source.check(from, len);
        match (self.flat(), source.flat()) {
            (Some(target), Some(origin)) => {
                let (target, origin) = (target.wrapping_add(to), origin.wrapping_add(from));
                // SAFETY: both regions' makers guaranteed their memory, and both ranges were
                // checked.
                unsafe { copy_few(origin, target, len) };
            }
            (Some(_) | None, _) => copy_scattered(self.slice(to, len), source.slice(from, len)),
        }
    }

    /// Copies bytes `from..from + len` of `source` over bytes `to..to + len` of the stream. Overlap is
    /// allowed only if both are contiguous. An aligned number of 4 or 8 bytes is copied as a whole.
    #[inline]
    pub fn move_piece(&self, to: usize, source: &Region, from: usize, len: usize) {
        self.check(to, len);
        source.check(from, len);
        match (self.flat(), source.flat()) {
            (Some(target), Some(origin)) => {
                let (target, origin) = (target.wrapping_add(to), origin.wrapping_add(from));
                // SAFETY: both regions' makers guaranteed their memory, and both ranges were
                // checked; `move_few` allows overlap.
                unsafe { move_few(origin, target, len) };
            }
            (Some(_) | None, _) => copy_scattered(self.slice(to, len), source.slice(from, len)),
        }
    }

    /// Returns the stream's bytes as a vector, for small pieces and tests.
    pub fn to_vec(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.len];
        self.read(0, &mut bytes);
        bytes
    }

    /// Calls `visitor` with each contiguous span of bytes `offset..offset + len`, in stream order,
    /// until it returns `false`.
    pub fn visit(&self, offset: usize, len: usize, visitor: &mut dyn FnMut(Span) -> bool) -> bool {
        self.check(offset, len);
        if len == 0 {
            return true;
        }
        let offset = self.start + offset;
        match &self.shape {
            RegionShape::Flat(address) => {
                visitor(Span { address: address.wrapping_add(offset), len })
            }
            RegionShape::Owned(buffer) => {
                visitor(Span { address: buffer.address.wrapping_add(offset), len })
            }
            RegionShape::Strided { base, layout } => {
                Strided { base: *base, layout, offset, len }.visit(visitor)
            }
            RegionShape::Chain(links) => visit_chain(links, offset, len, visitor),
        }
    }

    /// Returns the address of the first byte, if the shape is contiguous.
    #[inline(always)]
    fn flat(&self) -> Option<*mut u8> {
        match &self.shape {
            RegionShape::Flat(address) => Some(address.wrapping_add(self.start)),
            RegionShape::Owned(buffer) => Some(buffer.address.wrapping_add(self.start)),
            RegionShape::Strided { .. } | RegionShape::Chain(_) => None,
        }
    }

    #[inline(never)]
    fn as_single_span(&self) -> Option<Span> {
        if self.is_empty() {
            return Some(Span { address: std::ptr::null_mut(), len: 0 });
        }
        let mut first: Option<Span> = None;
        let single = self.visit(0, self.len, &mut |span| match &mut first {
            None => {
                first = Some(span);
                true
            }
            Some(known) if known.address.wrapping_add(known.len) == span.address => {
                known.len += span.len;
                true
            }
            Some(_) => false,
        });
        first.filter(|_| single)
    }

    #[inline(always)]
    fn check(&self, offset: usize, len: usize) {
        if len > self.len || offset > self.len - len {
            outside(offset, len, self.len);
        }
    }
}

#[cold]
fn outside(offset: usize, len: usize, all: usize) -> ! {
    panic!("bytes {offset}..+{len} lie outside a region of {all} bytes")
}

impl Buffer {
    fn new(data: Box<[u8]>, owner: BufferOwner) -> Arc<Self> {
        let len = data.len();
        let address = Box::into_raw(data).cast::<u8>();
        Arc::new(Self { address, len, owner })
    }
}

impl Drop for Buffer {
    fn drop(&mut self) {
        let is_scratch = match self.owner {
            BufferOwner::Allocator => false,
            BufferOwner::Scratch => true,
            BufferOwner::Keeper(_) => return,
        };
        let slice = std::ptr::slice_from_raw_parts_mut(self.address, self.len);
        // SAFETY: address and length come from `Box::into_raw` in `Buffer::new`, and this is the
        // last reference.
        let data = unsafe { Box::from_raw(slice) };
        if is_scratch {
            scratch::give(data);
        }
    }
}

/// Minimum length in bytes of memory to reuse: the allocator has shorter memory at hand.
const SCRATCH_MIN: usize = 4096;

/// Takes its regions by value, so that a caller that copies in one piece can hold its own in
/// registers.
#[cold]
fn copy_scattered(to: Region, from: Region) {
    to.copy_from(&from);
}

/// Returns the link that holds this byte of the chain's stream.
fn link_of(links: &[ChainLink], offset: usize) -> usize {
    links.partition_point(|link| link.start <= offset) - 1
}

fn visit_chain(
    links: &[ChainLink],
    offset: usize,
    len: usize,
    visitor: &mut dyn FnMut(Span) -> bool,
) -> bool {
    let first = link_of(links, offset);
    let mut at = offset;
    let mut left = len;
    for link in &links[first..] {
        let inner = at - link.start;
        let take = (link.region.len - inner).min(left);
        if !link.region.visit(inner, take, visitor) {
            return false;
        }
        at += take;
        left -= take;
        if left == 0 {
            break;
        }
    }
    true
}

#[cfg(test)]
mod tests;
