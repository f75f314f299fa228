//! Copies by CUDA.

use std::collections::VecDeque;
use std::ffi::{c_int, c_uint, c_void};
use std::hint;
use std::ptr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use memory::device::{CopyDirection, CopyPiece, HostStage, Mover, Ticket};

use crate::api::{
    ATTRIBUTES, Api, Code, DEVICE, NON_BLOCKING, NOT_READY, Object, Rows, SLEEPING, Side,
};
use crate::stages::Stages;

/// The library, with the contexts whose memory was used.
#[derive(Debug)]
pub(crate) struct Cuda {
    api: Api,
    contexts: Mutex<Vec<Arc<Context>>>,
}

/// Streams and stages of one context.
#[derive(Debug)]
struct Context {
    api: Api,
    context: Object,
    to_host: Mutex<Copies>,
    to_device: Mutex<Copies>,
    stages: Arc<Stages>,
}

/// Copies of one direction. Those of a stream end in order.
#[derive(Debug)]
struct Copies {
    stream: Object,
    /// An event behind each, oldest first, with its number.
    begun: VecDeque<(u64, Object)>,
    next: u64,
    unused: Vec<Object>,
}

// SAFETY: CUDA's contexts, streams and events belong to no thread.
unsafe impl Send for Context {}
// SAFETY: all threads may call CUDA at the same time, and locks guard the rest.
unsafe impl Sync for Context {}

impl Cuda {
    /// Loads the library, which the application initialises.
    ///
    /// # Errors
    /// It is missing, or lacks a function.
    pub fn load() -> Result<Self, String> {
        Ok(Self { api: Api::load()?, contexts: Mutex::default() })
    }

    /// Returns the context to which memory of a device belongs. None if the processor reaches it.
    pub fn owner(&self, place: u64) -> Option<Arc<dyn Mover>> {
        let mut context: Object = ptr::null_mut();
        let (mut kind, mut is_managed, mut device): (c_uint, c_uint, c_int) = (0, 0, -1);
        let values: [*mut c_void; 4] = [
            (&raw mut context).cast(),
            (&raw mut kind).cast(),
            (&raw mut is_managed).cast(),
            (&raw mut device).cast(),
        ];
        let count = ATTRIBUTES.len() as c_uint;
        // SAFETY: there is a place for each attribute, of its type. The function accepts any address.
        let code = unsafe {
            (self.api.pointer_attributes)(count, ATTRIBUTES.as_ptr(), values.as_ptr(), place)
        };
        // Without an initialised library there is no memory of a device.
        if code != 0 || kind != DEVICE || is_managed & 0xff != 0 {
            return None;
        }
        if context.is_null() {
            // Memory of a pool belongs to no context. The primary one of its device reaches it.
            // SAFETY: the place for the context is this function's.
            let code = unsafe { (self.api.retain_primary_context)(&raw mut context, device) };
            self.api.check(code, format_args!("taking the context of CUDA's device {device}"));
        }
        let mut contexts = self.contexts.lock().unwrap_or_else(PoisonError::into_inner);
        let known = contexts.iter().find(|one| ptr::eq(one.context, context));
        let found = known.cloned().unwrap_or_else(|| {
            let made = Arc::new(Context::new(self.api, context));
            contexts.push(Arc::clone(&made));
            made
        });
        Some(found)
    }
}

impl Context {
    fn new(api: Api, context: Object) -> Self {
        let copies = || {
            let mut stream = ptr::null_mut();
            let code = within(&api, context, || {
                // SAFETY: the place for the stream is this function's, and the context is current.
                unsafe { (api.create_stream)(&raw mut stream, NON_BLOCKING) }
            });
            api.check(code, format_args!("making a stream of CUDA"));
            let unused = Vec::new();
            Mutex::new(Copies { stream, begun: VecDeque::new(), next: 0, unused })
        };
        let (to_host, to_device) = (copies(), copies());
        Self { api, context, to_host, to_device, stages: Arc::default() }
    }

    fn copies(&self, direction: CopyDirection) -> MutexGuard<'_, Copies> {
        let copies = match direction {
            CopyDirection::ToHost => &self.to_host,
            CopyDirection::ToDevice => &self.to_device,
        };
        copies.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for an event: for a short time without leaving the core.
    fn wait_for(&self, event: Object) -> Code {
        for _ in 0..QUERIES {
            // SAFETY: the event was recorded, and is destroyed by nobody.
            match unsafe { (self.api.query_event)(event) } {
                NOT_READY => hint::spin_loop(),
                code => return code,
            }
        }
        // SAFETY: the event stays recorded until this function's caller takes it back.
        unsafe { (self.api.wait_for_event)(event) }
    }
}

/// Number of pieces at the beginning that are rows: as long as each other, and equally far apart. Returns their distance, too.
fn rows(pieces: &[CopyPiece]) -> (usize, usize) {
    let [first, second, ..] = pieces else { return (1, 0) };
    let pitch = (second.device as usize).wrapping_sub(first.device as usize);
    if !(first.len..PITCH_MAX).contains(&pitch) {
        return (1, 0);
    }
    let is_row = |(number, piece): (usize, &CopyPiece)| {
        let offset = piece.device as usize - first.device as usize;
        piece.len == first.len && offset == number * pitch
    };
    let height = pieces
        .iter()
        .enumerate()
        .take_while(|(number, piece)| piece.device >= first.device && is_row((*number, piece)));
    (height.count(), pitch)
}

/// Calls a function of the library in a context.
fn within(api: &Api, context: Object, call: impl FnOnce() -> Code) -> Code {
    // SAFETY: the context exists while memory of it is used.
    let pushed = unsafe { (api.push_context)(context) };
    if pushed != 0 {
        return pushed;
    }
    let code = call();
    let mut popped = ptr::null_mut();
    // SAFETY: the place for the context is this function's. What was pushed is popped.
    unsafe { (api.pop_context)(&raw mut popped) };
    code
}

impl Mover for Context {
    unsafe fn begin(&self, direction: CopyDirection, pieces: &[CopyPiece]) -> Ticket {
        let mut copies = self.copies(direction);
        let (stream, number) = (copies.stream, copies.next);
        let mut event = copies.unused.pop().unwrap_or(ptr::null_mut());
        let code = within(&self.api, self.context, || {
            let mut left = pieces;
            while let Some(first) = left.first() {
                let (height, pitch) = rows(left);
                let (to, from) = match direction {
                    CopyDirection::ToHost => ((first.host, first.len), (first.device, pitch)),
                    CopyDirection::ToDevice => ((first.device, pitch), (first.host, first.len)),
                };
                let code = if height == 1 {
                    // SAFETY: the caller vouches for both memories until the copy is finished.
                    unsafe { (self.api.copy)(to.0 as u64, from.0 as u64, first.len, stream) }
                } else {
                    let (from, to) = (Side::at(from.0, from.1), Side::at(to.0, to.1));
                    let rows = Rows { from, to, width: first.len, height };
                    // SAFETY: the caller vouches for each row, and the library reads the description before it returns.
                    unsafe { (self.api.copy_rows)(&raw const rows, stream) }
                };
                if code != 0 {
                    return code;
                }
                left = &left[height..];
            }
            if event.is_null() {
                // SAFETY: the place for the event is this function's.
                let code = unsafe { (self.api.create_event)(&raw mut event, SLEEPING) };
                if code != 0 {
                    return code;
                }
            }
            // SAFETY: event and stream are of this context.
            unsafe { (self.api.record_event)(event, stream) }
        });
        let bytes: usize = pieces.iter().map(|piece| piece.len).sum();
        let place = pieces.first().map_or(ptr::null_mut(), |piece| piece.device);
        self.api.check(code, format_args!("copying {bytes} bytes at {place:?} in a device"));
        copies.next += 1;
        copies.begun.push_back((number, event));
        Ticket { direction, number }
    }

    fn finish(&self, ticket: Ticket) {
        // Others who wait for earlier copies wait for the lock.
        let mut copies = self.copies(ticket.direction);
        let ended = copies.begun.partition_point(|(number, _)| *number <= ticket.number);
        let Some(last) = ended.checked_sub(1) else { return };
        let (_, event) = copies.begun[last];
        let code = self.wait_for(event);
        self.api.check(code, format_args!("waiting for a copy of a device"));
        let Copies { begun, unused, .. } = &mut *copies;
        unused.extend(begun.drain(..ended).map(|(_, event)| event));
    }

    fn stage(&self, len: usize) -> Option<HostStage> {
        let allocate = |len: usize| {
            let mut address = ptr::null_mut();
            let code = within(&self.api, self.context, || {
                // SAFETY: the place for the address is this function's.
                unsafe { (self.api.allocate_on_host)(&raw mut address, len, crate::api::PORTABLE) }
            });
            (code == 0 && !address.is_null()).then_some(address.cast::<u8>())
        };
        Stages::take(&self.stages, len, allocate)
    }
}

/// Greatest distance of rows in bytes that every device takes.
const PITCH_MAX: usize = 1 << 30;
/// Looks at an event before a thread sleeps: some microseconds, as a short copy takes.
const QUERIES: usize = 200;
