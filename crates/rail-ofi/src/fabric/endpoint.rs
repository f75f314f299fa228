//! An endpoint with the buffers that it sends and receives.
//!
//! The buffers are memory of the endpoint. Each belongs either to the provider, from the call that posts it until its
//! completion, or to the caller, who has a [`SendSlot`] or [`Received`] for it. So no end of a link leaves memory with
//! the provider that somebody else frees.

use std::ffi::{c_int, c_void};
use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::ptr;

use super::layout::{
    ANY, AV_KINDS, Address, AvAttr, AvFid, CQ_FORMAT_MSG, Context, CqAttr, CqEntry, CqError, CqFid,
    DomainFid, EAVAIL, ENABLE, EndpointFid, FabricFid, Fid, GETWAIT, MR_LOCAL, MemoryFid, Opaque,
    RECV, SEND, WAIT_FD, WAIT_NONE,
};
use super::library::{FabricLibrary, Provider};

/// An open endpoint.
#[derive(Debug)]
pub(crate) struct Endpoint {
    library: &'static FabricLibrary,
    objects: Objects,
    buffers: Buffers,
    /// Descriptor of the registered buffers; null if the provider needs none.
    registered: Opaque,
    receives: u32,
    /// Buffers of sends that belong to nobody.
    unused: Vec<u32>,
    /// Buffers of receives that the provider has not taken yet.
    unposted: Vec<u32>,
    wait: Option<c_int>,
    name: Vec<u8>,
}

/// A buffer to fill and send.
#[derive(Debug)]
#[must_use = "dropped, the buffer is lost"]
pub(crate) struct SendSlot(u32);

/// A buffer that holds a received message.
#[derive(Debug)]
#[must_use = "dropped, the buffer receives nothing more"]
pub(crate) struct Received {
    slot: u32,
    len: usize,
}

/// The number of a peer's address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Destination(Address);

#[cfg(test)]
impl Destination {
    /// A number to which nothing is sent.
    pub fn trial() -> Self {
        Self(0)
    }
}

/// The end of an operation.
#[derive(Debug)]
pub(crate) enum Completion {
    /// The send with this number has ended, in an error if there is one.
    Sent(usize, Option<SendFailure>),
    /// A message has come.
    Received(Received),
}

/// Why a message is not sent.
#[derive(Debug)]
pub(crate) enum SendRefusal {
    /// The provider takes no more now.
    Full,
    /// The provider does not reach the peer.
    Failed(SendFailure),
}

/// An error of a send.
#[derive(Debug)]
pub(crate) struct SendFailure {
    /// True if the peer's host says that nobody is there.
    pub is_refused: bool,
    /// Description of the error.
    pub text: String,
}

impl Endpoint {
    /// Opens an endpoint for messages of at most `message_max` bytes.
    ///
    /// # Errors
    /// The provider refuses; the text says what.
    pub fn open(provider: &Provider, message_max: usize) -> Result<Self, String> {
        let library = provider.library;
        let check = |call: &str, code: c_int| match code {
            0 => Ok(()),
            code => Err(format!("{call}: {}", library.text(code.into()))),
        };
        let mut objects = Objects::default();
        let info = provider.info;
        let nothing = ptr::null_mut();
        // SAFETY: the description is the library's own and has all attributes. Each object is made from those before
        // it, which live as long, and its place is a field of `objects`.
        unsafe {
            let made = (library.fabric)((*info).fabric_attr, &raw mut objects.fabric, nothing);
            check("fi_fabric", made)?;
            let fabric = objects.fabric;
            let made = ((*(*fabric).ops).domain)(fabric, info, &raw mut objects.domain, nothing);
            check("fi_domain", made)?;
        }
        let (sends, receives) = provider.depths();
        let count = |depth: usize, most: u32| u32::try_from(depth).unwrap_or(most).clamp(1, most);
        let (sends, receives) = (count(sends, SENDS), count(receives, RECEIVES));
        let mut wait = None;
        objects.open_vector().or_else(|code| check("fi_av_open", code))?;
        objects
            .open_queue(sends + receives, &mut wait)
            .or_else(|code| check("fi_cq_open", code))?;
        // SAFETY: the domain is open, the description is that of its provider, and the other objects are of the
        // domain. An endpoint is enabled once, after all is bound.
        unsafe {
            let domain = objects.domain;
            let made =
                ((*(*domain).ops).endpoint)(domain, info, &raw mut objects.endpoint, nothing);
            check("fi_endpoint", made)?;
            let endpoint: *mut Fid = objects.endpoint.cast();
            let ops = (*endpoint).ops;
            check("fi_ep_bind", ((*ops).bind)(endpoint, objects.vector.cast(), 0))?;
            check("fi_ep_bind", ((*ops).bind)(endpoint, objects.queue.cast(), SEND | RECV))?;
            check("fi_enable", ((*ops).control)(endpoint, ENABLE, nothing))?;
        }
        let buffers = Buffers::new((sends + receives) as usize, message_max)
            .map_err(|error| format!("mmap: {error}"))?;
        let mut registered = ptr::null_mut();
        if provider.memory_modes() & MR_LOCAL != 0 {
            registered =
                objects.register(&buffers).map_err(|code| match check("fi_mr_reg", code) {
                    Err(text) => {
                        format!("{text} (is the limit of locked memory, ulimit -l, enough?)")
                    }
                    Ok(()) => String::new(),
                })?;
        }
        let name = objects.name().or_else(|code| check("fi_getname", code).map(|()| Vec::new()))?;
        let mut endpoint = Self {
            library,
            objects,
            buffers,
            registered,
            receives,
            unused: (0..sends).rev().collect(),
            unposted: (0..receives).rev().collect(),
            wait,
            name,
        };
        endpoint.post_receives();
        Ok(endpoint)
    }

    /// Own address, which peers insert.
    pub fn name(&self) -> &[u8] {
        &self.name
    }

    /// Number of sends at once.
    pub fn sends(&self) -> usize {
        self.buffers.count - self.receives as usize
    }

    /// Inserts the address of a peer, of the length of the own one.
    pub fn insert(&mut self, address: &[u8]) -> Option<Destination> {
        if address.len() != self.name.len() {
            return None;
        }
        let vector = self.objects.vector;
        let mut number: Address = 0;
        // SAFETY: the vector is open, and the address has the length that all addresses of the provider have.
        let count = unsafe {
            ((*(*vector).ops).insert)(
                vector,
                address.as_ptr().cast(),
                1,
                &raw mut number,
                0,
                ptr::null_mut(),
            )
        };
        (count == 1).then_some(Destination(number))
    }

    /// Returns a buffer to fill; `None` if all are being sent.
    pub fn claim(&mut self) -> Option<SendSlot> {
        self.unused.pop().map(SendSlot)
    }

    /// True if a buffer can be claimed.
    pub fn has_unused(&self) -> bool {
        !self.unused.is_empty()
    }

    /// True if nothing is being sent.
    pub fn is_idle(&self) -> bool {
        self.unused.len() == self.sends()
    }

    /// Contents of a buffer to fill.
    pub fn contents(&mut self, slot: &SendSlot) -> &mut [u8] {
        let at = self.buffers.at((self.receives + slot.0) as usize);
        // SAFETY: the buffer belongs to the holder of the slot, and `self` is borrowed while the slice lives.
        unsafe { std::slice::from_raw_parts_mut(at, self.buffers.len_of_one) }
    }

    /// Sends the first bytes of a buffer. Returns the number of the send, which its completion names.
    ///
    /// # Errors
    /// Nothing is sent, and the buffer is free.
    pub fn send(
        &mut self,
        slot: SendSlot,
        len: usize,
        to: Destination,
    ) -> Result<usize, SendRefusal> {
        let index = self.receives + slot.0;
        let context = self.buffers.context(index as usize);
        let endpoint = self.objects.endpoint;
        let len = len.min(self.buffers.len_of_one);
        // SAFETY: the buffer and the context belong to the provider from here to the completion. The slot is gone,
        // and its number is unused again only then, or when the endpoint is closed.
        let code = unsafe {
            ((*(*endpoint).messages).send)(
                endpoint,
                self.buffers.at(index as usize).cast_const().cast(),
                len,
                self.registered,
                to.0,
                context,
            )
        };
        if code == 0 {
            return Ok(slot.0 as usize);
        }
        self.unused.push(slot.0);
        match code == AGAIN {
            true => Err(SendRefusal::Full),
            false => Err(SendRefusal::Failed(self.failure(code as i64))),
        }
    }

    /// Reads some completions, and drives the provider on. Returns true if there was one.
    pub fn poll(&mut self, sink: &mut dyn FnMut(Completion)) -> bool {
        let nothing = CqEntry { context: ptr::null_mut(), flags: 0, len: 0 };
        let mut entries = [nothing; COMPLETIONS];
        let queue = self.objects.queue;
        // SAFETY: the queue is open with entries of this format, and there is room for as many.
        let count =
            unsafe { ((*(*queue).ops).read)(queue, entries.as_mut_ptr().cast(), COMPLETIONS) };
        if count == -EAVAIL {
            return self.read_error(sink);
        }
        let count = usize::try_from(count).unwrap_or(0).min(COMPLETIONS);
        for entry in &entries[..count] {
            let Some(index) = self.index_of(entry.context) else { continue };
            match index.checked_sub(self.receives) {
                Some(send) => {
                    self.unused.push(send);
                    sink(Completion::Sent(send as usize, None));
                }
                None => {
                    let len = entry.len.min(self.buffers.len_of_one);
                    sink(Completion::Received(Received { slot: index, len }));
                }
            }
        }
        if !self.unposted.is_empty() {
            self.post_receives();
        }
        count > 0
    }

    fn read_error(&mut self, sink: &mut dyn FnMut(Completion)) -> bool {
        let mut error = CqError {
            context: ptr::null_mut(),
            flags: 0,
            len: 0,
            buf: ptr::null_mut(),
            data: 0,
            tag: 0,
            olen: 0,
            err: 0,
            prov_errno: 0,
            err_data: ptr::null_mut(),
            err_data_size: 0,
        };
        let queue = self.objects.queue;
        // SAFETY: the queue is open, and the entry says that it has no room for further data.
        let count = unsafe { ((*(*queue).ops).read_error)(queue, &raw mut error, 0) };
        let Some(index) = self.index_of(error.context).filter(|_| count == 1) else { return false };
        match index.checked_sub(self.receives) {
            Some(send) => {
                self.unused.push(send);
                sink(Completion::Sent(send as usize, Some(self.failure(error.err.into()))));
            }
            None => self.unposted.push(index),
        }
        true
    }

    fn failure(&self, code: i64) -> SendFailure {
        let is_refused = code.unsigned_abs() == libc::ECONNREFUSED as u64;
        SendFailure { is_refused, text: self.library.text(code) }
    }

    /// Bytes of a received message.
    pub fn bytes(&self, received: &Received) -> &[u8] {
        let at = self.buffers.at(received.slot as usize);
        // SAFETY: the provider has completed the receive, and has not been given the buffer again.
        unsafe { std::slice::from_raw_parts(at, received.len) }
    }

    /// Gives a buffer back to the provider.
    pub fn release(&mut self, received: Received) {
        self.unposted.push(received.slot);
        self.post_receives();
    }

    /// Posts the buffers of receives, as far as the provider takes them.
    fn post_receives(&mut self) {
        let endpoint = self.objects.endpoint;
        while let Some(slot) = self.unposted.pop() {
            let context = self.buffers.context(slot as usize);
            // SAFETY: the buffer and the context belong to the provider until the completion: the slot is on no list
            // until then, and nobody has a `Received` for it.
            let code = unsafe {
                ((*(*endpoint).messages).receive)(
                    endpoint,
                    self.buffers.at(slot as usize).cast(),
                    self.buffers.len_of_one,
                    self.registered,
                    ANY,
                    context,
                )
            };
            if code != 0 {
                self.unposted.push(slot);
                return;
            }
        }
    }

    /// Index of a context, if it is one of this endpoint's.
    fn index_of(&self, context: *mut Context) -> Option<u32> {
        let offset = (context as usize).checked_sub(self.buffers.start as usize)?;
        let index = offset / size_of::<Context>();
        (index < self.buffers.count).then_some(index as u32)
    }

    /// Descriptor that becomes readable with completions. `None` if the provider has none.
    pub fn wait_descriptor(&self) -> Option<BorrowedFd<'_>> {
        // SAFETY: the descriptor is the queue's, which is open as long as `self`.
        self.wait.map(|descriptor| unsafe { BorrowedFd::borrow_raw(descriptor) })
    }

    /// True if the caller may sleep on the descriptor: nothing has come that it does not report.
    pub fn may_wait(&self) -> bool {
        let Objects { fabric, queue, .. } = self.objects;
        let mut waited: *mut Fid = queue.cast();
        // SAFETY: the fabric and its queue are open, and the list has one entry.
        let code = unsafe { ((*(*fabric).ops).trywait)(fabric, &raw mut waited, 1) };
        code == 0
    }
}

// SAFETY: the provider was asked for calls from any thread, one at a time for each domain. The domain is this object's
// alone, and calls that change it take `&mut self`; it is not `Sync`.
unsafe impl Send for Endpoint {}

impl Drop for Endpoint {
    fn drop(&mut self) {
        if !self.objects.close() {
            // The provider still uses the memory.
            self.buffers.abandon();
        }
    }
}

/// Objects of the library, null before they are made.
#[derive(Debug)]
struct Objects {
    fabric: *mut FabricFid,
    domain: *mut DomainFid,
    vector: *mut AvFid,
    queue: *mut CqFid,
    endpoint: *mut EndpointFid,
    memory: *mut MemoryFid,
}

impl Default for Objects {
    fn default() -> Self {
        Self {
            fabric: ptr::null_mut(),
            domain: ptr::null_mut(),
            vector: ptr::null_mut(),
            queue: ptr::null_mut(),
            endpoint: ptr::null_mut(),
            memory: ptr::null_mut(),
        }
    }
}

impl Objects {
    /// Opens the vector of addresses, as a table or a map.
    fn open_vector(&mut self) -> Result<(), c_int> {
        let mut result = 0;
        for kind in AV_KINDS {
            let mut attributes = AvAttr {
                kind,
                rx_ctx_bits: 0,
                count: 0,
                ep_per_node: 0,
                name: ptr::null(),
                map_addr: ptr::null_mut(),
                flags: 0,
            };
            let domain = self.domain;
            let vector = &raw mut self.vector;
            // SAFETY: the domain is open; attributes and the place for the vector are this function's.
            result = unsafe {
                ((*(*domain).ops).av_open)(domain, &raw mut attributes, vector, ptr::null_mut())
            };
            if result == 0 {
                return Ok(());
            }
        }
        Err(result)
    }

    /// Opens the completion queue, with a descriptor to wait on if the provider has one.
    fn open_queue(&mut self, size: u32, wait: &mut Option<c_int>) -> Result<(), c_int> {
        let mut result = 0;
        for wait_obj in [WAIT_FD, WAIT_NONE] {
            let mut attributes = CqAttr {
                size: 2 * size as usize,
                flags: 0,
                format: CQ_FORMAT_MSG,
                wait_obj,
                signaling_vector: 0,
                wait_cond: 0,
                wait_set: ptr::null_mut(),
            };
            let (domain, queue) = (self.domain, &raw mut self.queue);
            // SAFETY: the domain is open, and the place for the queue is a field of this object.
            result = unsafe {
                ((*(*domain).ops).cq_open)(domain, &raw mut attributes, queue, ptr::null_mut())
            };
            if result != 0 {
                continue;
            }
            let mut descriptor: c_int = -1;
            let queue: *mut Fid = self.queue.cast();
            if wait_obj == WAIT_FD {
                // SAFETY: a queue with such a wait object stores its descriptor at the given place.
                let code = unsafe {
                    ((*(*queue).ops).control)(queue, GETWAIT, (&raw mut descriptor).cast())
                };
                *wait = (code == 0 && descriptor >= 0).then_some(descriptor);
            }
            return Ok(());
        }
        Err(result)
    }

    /// Registers the buffers for sends and receives; returns their descriptor.
    fn register(&mut self, buffers: &Buffers) -> Result<Opaque, c_int> {
        let domain = self.domain;
        // SAFETY: the domain is open, and the memory exists until the registration is closed.
        let code = unsafe {
            ((*(*domain).memory).register)(
                domain.cast(),
                buffers.start.cast_const(),
                buffers.len,
                SEND | RECV,
                0,
                0,
                0,
                &raw mut self.memory,
                ptr::null_mut(),
            )
        };
        // SAFETY: a registration that was made has a descriptor.
        if code == 0 { Ok(unsafe { (*self.memory).descriptor }) } else { Err(code) }
    }

    /// Address of the endpoint.
    fn name(&self) -> Result<Vec<u8>, c_int> {
        let mut name = vec![0; NAME_MAX];
        let mut len = name.len();
        let endpoint = self.endpoint;
        // SAFETY: the endpoint is enabled, and there is room for `len` bytes.
        let code = unsafe {
            ((*(*endpoint).names).name)(endpoint.cast(), name.as_mut_ptr().cast(), &raw mut len)
        };
        name.truncate(len);
        if code == 0 { Ok(name) } else { Err(code) }
    }

    /// Closes all objects, the endpoint first. False if the provider keeps one.
    fn close(&mut self) -> bool {
        // Taken without a drop, which would close them too.
        let taken = ManuallyDrop::new(std::mem::take(self));
        let objects: [*mut Fid; 6] = [
            taken.endpoint.cast(),
            taken.memory.cast(),
            taken.queue.cast(),
            taken.vector.cast(),
            taken.domain.cast(),
            taken.fabric.cast(),
        ];
        for object in objects.into_iter().filter(|object| !object.is_null()) {
            // SAFETY: the object was made by the library, is closed once, and those made from it are closed.
            if unsafe { ((*(*object).ops).close)(object) } != 0 {
                return false;
            }
        }
        true
    }
}

impl Drop for Objects {
    fn drop(&mut self) {
        self.close();
    }
}

/// Memory of the buffers, page by page zero until it is used: first the provider's state of each operation, then the
/// buffers of all receives and of all sends.
#[derive(Debug)]
struct Buffers {
    start: *mut c_void,
    len: usize,
    count: usize,
    len_of_one: usize,
    stride: usize,
}

impl Buffers {
    fn new(count: usize, len_of_one: usize) -> io::Result<Self> {
        // An odd number of cache lines: the heads of the buffers do not compete for the same set of a cache.
        let stride = (len_of_one.div_ceil(LINE) | 1) * LINE;
        let len = count * (size_of::<Context>() + stride);
        let (access, kind) =
            (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: new memory at an address of the kernel's choice touches no other.
        let start = unsafe { libc::mmap(ptr::null_mut(), len, access, kind, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        Ok(Self { start, len, count, len_of_one, stride })
    }

    /// Room for the provider's state of an operation.
    fn context(&self, index: usize) -> *mut Context {
        assert!(index < self.count, "an operation that exists");
        // SAFETY: the contexts are the beginning of the memory, which is aligned to pages.
        unsafe { self.start.cast::<Context>().add(index) }
    }

    /// Address of a buffer.
    fn at(&self, index: usize) -> *mut u8 {
        assert!(index < self.count, "a buffer that exists");
        let first = self.count * size_of::<Context>();
        // SAFETY: the memory has room for this many buffers behind the contexts.
        unsafe { self.start.cast::<u8>().add(first + index * self.stride) }
    }

    /// Leaves the memory to the provider for ever.
    fn abandon(&mut self) {
        self.len = 0;
    }
}

impl Drop for Buffers {
    fn drop(&mut self) {
        if self.len > 0 {
            // SAFETY: the memory is this object's, and nobody has an address in it.
            unsafe { libc::munmap(self.start, self.len) };
        }
    }
}

/// `-FI_EAGAIN`.
const AGAIN: isize = -(libc::EAGAIN as isize);
/// Most receives posted at once, each of the longest frame.
const RECEIVES: u32 = 128;
/// Most sends at once.
const SENDS: u32 = 128;
/// Completions read at once.
const COMPLETIONS: usize = 32;
/// Longest address of an endpoint in bytes.
const NAME_MAX: usize = 256;
/// Length of a cache line in bytes.
const LINE: usize = 64;
