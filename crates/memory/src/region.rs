//! A described stream of bytes in the application's memory.

#[cfg(target_arch = "x86_64")]
use std::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
use std::mem::MaybeUninit;
use std::sync::Arc;

#[cfg(target_arch = "x86_64")]
use crate::copy::copy_past;
use crate::copy::{copy_across, copy_few, copy_many, copy_over, move_few};
use crate::device::{DeviceMemory, DevicePlaces, HostStage, Mover};
use crate::keeper::Keeper;
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
    Owned(Arc<Buffer>),
    Rare(Arc<RareShape>),
}

/// Shapes of few regions. A variant of its own for each costs all others instructions.
#[derive(Debug)]
enum RareShape {
    Chain(Box<[ChainLink]>),
    Device(DeviceMemory),
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
        if let Some(memory) = self.device() {
            return self.typed_on_device(memory, start, count, layout);
        }
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
            Err(links) => {
                let shape = RareShape::Chain(links.into());
                Self { shape: RegionShape::Rare(Arc::new(shape)), start: 0, len }
            }
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

    /// Makes a region of the memory of a device, which `mover` copies. `places` has the addresses that the mover knows: those of one
    /// array of elements.
    ///
    /// # Safety
    /// The mover may copy all of it until the last clone of the region is dropped or unused.
    pub unsafe fn on_device(places: Self, mover: Arc<dyn Mover>) -> Self {
        let Self { shape, start, len } = places;
        let places = match shape {
            RegionShape::Flat(address) => DevicePlaces::Flat(address),
            RegionShape::Strided { base, layout } => DevicePlaces::Strided { base, layout },
            RegionShape::Owned(_) | RegionShape::Rare(_) => {
                unreachable!("memory that is no array of the application's")
            }
        };
        let shape = RareShape::Device(DeviceMemory::new(mover, places));
        Self { shape: RegionShape::Rare(Arc::new(shape)), start, len }
    }

    /// The elements of a part of a device's memory; see [`Region::typed`].
    fn typed_on_device(
        &self,
        memory: &DeviceMemory,
        start: isize,
        count: usize,
        layout: &Arc<Layout>,
    ) -> Option<Self> {
        let DevicePlaces::Flat(address) = *memory.places() else { return None };
        let places = Self { shape: RegionShape::Flat(address), start: self.start, len: self.len };
        let elements = places.typed(start, count, layout)?;
        // SAFETY: they lie inside this region, whose maker guaranteed it.
        Some(unsafe { Self::on_device(elements, Arc::clone(memory.mover())) })
    }

    /// The bytes of a stage.
    fn of_stage(stage: HostStage) -> Self {
        let HostStage { address, len, keeper } = stage;
        // SAFETY: the keeper holds so many bytes of memory at the address.
        unsafe { Self::kept(address, len, keeper) }
    }

    /// The device's memory of which this is a part.
    #[inline(always)]
    fn device(&self) -> Option<&DeviceMemory> {
        match &self.shape {
            RegionShape::Rare(shape) => match &**shape {
                RareShape::Device(memory) => Some(memory),
                RareShape::Chain(_) => None,
            },
            RegionShape::Flat(_) | RegionShape::Strided { .. } | RegionShape::Owned(_) => None,
        }
    }

    /// True if the processor reaches all bytes of the region; otherwise it has no spans.
    #[inline]
    pub fn is_on_host(&self) -> bool {
        match &self.shape {
            RegionShape::Rare(shape) => shape.is_on_host(),
            RegionShape::Flat(_) | RegionShape::Strided { .. } | RegionShape::Owned(_) => true,
        }
    }

    /// Returns the region if the processor reaches it, otherwise a copy in memory of the host, which [`Region::fetch`] may have begun.
    #[inline]
    pub fn staged(self) -> Self {
        match &self.shape {
            RegionShape::Rare(_) if !self.is_on_host() => self.staged_copy(),
            _ => self,
        }
    }

    #[cold]
    fn staged_copy(&self) -> Self {
        let Some(memory) = self.device() else { return Self::from_box(self.to_vec().into()) };
        if let Some(stage) = memory.take_fetched(self.start, self.len) {
            return Self::of_stage(stage);
        }
        let stage = memory.mover().stage(self.len).map(Self::of_stage);
        let copy = stage.or_else(|| Self::scratch(self.len));
        let copy = copy.unwrap_or_else(|| Self::owned(self.len));
        copy.copy_from(self);
        copy
    }

    /// Begins to copy bytes to the host that will soon be read, if a device holds them.
    #[inline]
    pub fn fetch(&self, offset: usize, len: usize) {
        if let Some(memory) = self.device() {
            self.check(offset, len);
            memory.fetch(self.start + offset, len);
        }
    }

    /// Copies like [`Region::write`], in a device at some time before [`Region::settle`] returns.
    #[inline]
    pub fn begin_write(&self, offset: usize, source: &[u8]) {
        match self.device() {
            Some(memory) => {
                self.check(offset, source.len());
                memory.begin_write(self.start + offset, source);
            }
            None => self.write(offset, source),
        }
    }

    /// Ends the copies that [`Region::fetch`] and [`Region::begin_write`] have begun.
    #[inline]
    pub fn settle(&self) {
        if let RegionShape::Rare(shape) = &self.shape {
            shape.settle();
        }
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
            RegionShape::Rare(rare) if len > 0 => self.slice_of_rare(rare, offset, len),
            shape => Self { shape: shape.clone(), start: self.start + offset, len },
        }
    }

    /// Returns a slice of one link of a chain, which may be contiguous, if all of it lies there.
    #[inline(never)]
    fn slice_of_rare(&self, rare: &Arc<RareShape>, offset: usize, len: usize) -> Self {
        let start = self.start + offset;
        if let RareShape::Chain(links) = &**rare {
            let ChainLink { start: before, region } = &links[link_of(links, start)];
            if start - before + len <= region.len {
                return region.slice(start - before, len);
            }
        }
        Self { shape: RegionShape::Rare(Arc::clone(rare)), start, len }
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
            RegionShape::Rare(rare) => match &**rare {
                RareShape::Device(device) => {
                    let offset = self.start + offset;
                    // SAFETY: the caller guarantees `len` bytes of memory.
                    unsafe {
                        match CHANGE {
                            true => device.write(offset, memory, len),
                            false => device.read(offset, memory, len),
                        }
                    }
                }
                RareShape::Chain(links) => {
                    each_link(links, self.start + offset, len, &mut |region, inner, take| {
                        // SAFETY: the caller guarantees `len` bytes of memory, and the parts' lengths add up to it.
                        unsafe { region.copy::<CHANGE>(inner, next, take) };
                        next = next.wrapping_add(take);
                        true
                    });
                }
            },
            RegionShape::Flat(_) | RegionShape::Owned(_) => {
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
            RegionShape::Strided { .. } | RegionShape::Owned(_) | RegionShape::Rare(_) => {
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
        if !self.is_on_host() || !source.is_on_host() {
            return self.copy_by_stages(source);
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

    /// Copies like [`Region::copy_from`] where neither stream is one span of the host.
    fn copy_by_stages(&self, source: &Region) {
        let mut stage = vec![0; source.len().min(STAGE_LEN)];
        for at in (0..source.len()).step_by(STAGE_LEN) {
            let part = &mut stage[..(source.len() - at).min(STAGE_LEN)];
            source.read(at, part);
            self.write(at, part);
        }
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
    ///
    /// # Panics
    /// If the range exceeds the region, or some of its memory is a device's ([`Region::is_on_host`]): errors of the
    /// library, not of its user.
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
            RegionShape::Rare(rare) => match &**rare {
                RareShape::Chain(links) => {
                    each_link(links, offset, len, &mut |region, inner, take| {
                        region.visit(inner, take, visitor)
                    })
                }
                RareShape::Device(_) => panic!("memory of a device has no spans"),
            },
        }
    }

    /// Returns the address of the first byte, if the shape is contiguous.
    #[inline(always)]
    fn flat(&self) -> Option<*mut u8> {
        match &self.shape {
            RegionShape::Flat(address) => Some(address.wrapping_add(self.start)),
            RegionShape::Owned(buffer) => Some(buffer.address.wrapping_add(self.start)),
            RegionShape::Strided { .. } | RegionShape::Rare(_) => None,
        }
    }

    #[inline(never)]
    fn as_single_span(&self) -> Option<Span> {
        if self.is_empty() {
            return Some(Span { address: std::ptr::null_mut(), len: 0 });
        }
        if !self.is_on_host() {
            return None;
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

impl RareShape {
    fn is_on_host(&self) -> bool {
        match self {
            Self::Chain(links) => links.iter().all(|link| link.region.is_on_host()),
            Self::Device(_) => false,
        }
    }

    fn settle(&self) {
        match self {
            Self::Chain(links) => links.iter().for_each(|link| link.region.settle()),
            Self::Device(memory) => memory.settle(),
        }
    }
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

/// Bytes that are copied at once between memories of which neither is one span of the host.
const STAGE_LEN: usize = 64 << 10;

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

/// Calls `visitor` with each part of a chain's stream, the part's first byte and its number of bytes, until it returns `false`.
fn each_link(
    links: &[ChainLink],
    offset: usize,
    len: usize,
    visitor: &mut dyn FnMut(&Region, usize, usize) -> bool,
) -> bool {
    let (mut at, mut left) = (offset, len);
    if len == 0 {
        return true;
    }
    for link in &links[link_of(links, offset)..] {
        let inner = at - link.start;
        let take = (link.region.len - inner).min(left);
        if !visitor(&link.region, inner, take) {
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
