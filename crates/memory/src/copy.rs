//! Byte copies: short ones without a call, long ones in the way that is fastest on the processor.
//!
//! From 2 KiB on the C library copies by `rep movsb` if the processor reports that it is fast.
//! AMD's processors do, but there it takes two to six times as long if the addresses are not
//! aligned alike. That is if the target is a few bytes behind the source, counted within their
//! pages (glibc bug 30994, avoided from 2.39 on). This is the case between page-aligned memory, as
//! all shared memory is, and memory from `malloc`, which begins sixteen bytes behind a page. Copies
//! by registers are as fast there as on aligned memory.

/// Copies like `copy_nonoverlapping`, short lengths without a call.
///
/// # Safety
/// The conditions of `copy_nonoverlapping`.
#[inline(always)]
pub(crate) unsafe fn copy_few(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: both halves are within the caller's bytes. They overlap each other, so both are
        // read before one is written.
        16..=32 => unsafe {
            let halves =
                [from, from.add(len - 16)].map(|half| half.cast::<u128>().read_unaligned());
            to.cast::<u128>().write_unaligned(halves[0]);
            to.add(len - 16).cast::<u128>().write_unaligned(halves[1]);
        },
        // SAFETY: both halves are within the caller's bytes. They overlap each other, so both are
        // read before one is written.
        8..16 => unsafe {
            let halves = [from, from.add(len - 8)].map(|half| half.cast::<u64>().read_unaligned());
            to.cast::<u64>().write_unaligned(halves[0]);
            to.add(len - 8).cast::<u64>().write_unaligned(halves[1]);
        },
        // SAFETY: the caller guarantees the conditions of `copy_nonoverlapping`.
        _ => unsafe { copy_many(from, to, len) },
    }
}

/// Copies like `copy_nonoverlapping`.
///
/// # Safety
/// The conditions of `copy_nonoverlapping`.
#[inline(always)]
pub(crate) unsafe fn copy_many(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees the conditions of `copy_nonoverlapping`.
    unsafe {
        if len < LONG {
            std::ptr::copy_nonoverlapping(from, to, len)
        } else {
            copy_long(from, to, len)
        }
    }
}

/// Copies like `copy_nonoverlapping` to cache lines that another core holds. `rep movsb` takes
/// ownership without reading their contents. It is used unless the target is a few bytes behind the
/// source.
///
/// # Safety
/// The conditions of `copy_nonoverlapping`.
#[inline]
pub(crate) unsafe fn copy_across(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees the conditions of `copy_nonoverlapping`.
    unsafe {
        if (1..BEHIND).contains(&(to.addr().wrapping_sub(from.addr()) % PAGE)) {
            copy_many(from, to, len);
        } else {
            std::ptr::copy_nonoverlapping(from, to, len);
        }
    }
}

/// Copies like `copy_nonoverlapping`, with non-temporal stores past the caches. Other cores see the
/// data before the caller's next writes.
///
/// # Safety
/// The conditions of `copy_nonoverlapping`.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy_past(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    // Non-temporal stores need aligned addresses.
    let first = to.align_offset(align_of::<__m128i>()).min(len);
    let whole = len - (len - first) % STEP;
    // SAFETY: `first` is at most `len`, and the caller guarantees `len` bytes on both sides.
    unsafe { std::ptr::copy_nonoverlapping(from, to, first) };
    for at in (first..whole).step_by(STEP) {
        // SAFETY: the bytes from `at` on are within the caller's; loads take any address.
        unsafe {
            let (from, to) = (from.add(at).cast::<__m128i>(), to.add(at).cast::<__m128i>());
            let quarters = [0, 1, 2, 3].map(|quarter| _mm_loadu_si128(from.add(quarter)));
            for (quarter, bytes) in quarters.into_iter().enumerate() {
                _mm_stream_si128(to.add(quarter), bytes);
            }
        }
    }
    // SAFETY: the rest from `at` on is within the caller's bytes.
    unsafe {
        std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), len - whole);
        _mm_sfence();
    }
}

/// Copies like `copy`: source and target may overlap.
///
/// # Safety
/// The conditions of `std::ptr::copy`.
#[inline(never)]
pub(crate) unsafe fn copy_over(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees both sides; memory that is at least `len` bytes apart does not
    // overlap.
    unsafe {
        if len < LONG || from.addr().abs_diff(to.addr()) < len {
            std::ptr::copy(from, to, len);
        } else {
            copy_long(from, to, len);
        }
    }
}

/// Copies like [`copy_over`], short lengths without a call. Numbers of 4 and 8 bytes take one load and one store.
///
/// # Safety
/// The conditions of `std::ptr::copy`.
#[inline(always)]
pub(crate) unsafe fn move_few(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: the caller guarantees as many bytes on both sides.
        8 => unsafe { to.cast::<u64>().write_unaligned(from.cast::<u64>().read_unaligned()) },
        // SAFETY: the caller guarantees as many bytes on both sides.
        4 => unsafe { to.cast::<u32>().write_unaligned(from.cast::<u32>().read_unaligned()) },
        // SAFETY: the caller guarantees the conditions of `copy_few`, which reads all before it writes.
        9..=32 => unsafe { copy_few(from, to, len) },
        // SAFETY: the caller guarantees the conditions of `copy`.
        _ => unsafe { copy_over(from, to, len) },
    }
}

/// Copies at least [`LONG`] bytes.
///
/// # Safety
/// The conditions of `copy_nonoverlapping`.
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: the caller guarantees the conditions of `copy_nonoverlapping`.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if !to.addr().wrapping_sub(from.addr()).is_multiple_of(ALIKE) && vendor::is_amd() {
            return copy_by_registers(from, to, len);
        }
        std::ptr::copy_nonoverlapping(from, to, len);
    }
}

/// Copies at least [`STEP`] bytes.
///
/// # Safety
/// The conditions of `copy_nonoverlapping`.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_by_registers(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
    let step = |at: usize| {
        // SAFETY: the bytes from `at` on are within the caller's; unaligned loads and stores take
        // any address.
        unsafe {
            let (from, to) = (from.add(at).cast::<__m128i>(), to.add(at).cast::<__m128i>());
            let quarters = [0, 1, 2, 3].map(|quarter| _mm_loadu_si128(from.add(quarter)));
            for (quarter, bytes) in quarters.into_iter().enumerate() {
                _mm_storeu_si128(to.add(quarter), bytes);
            }
        }
    };
    debug_assert!(len >= STEP, "{len}");
    let last = len - STEP;
    for at in (0..last).step_by(STEP) {
        step(at);
    }
    // The rest, together with some bytes that were copied before.
    step(last);
}

/// Vendor of the processor.
#[cfg(target_arch = "x86_64")]
mod vendor {
    use std::arch::x86_64::__cpuid;
    use std::sync::atomic::{AtomicU8, Ordering};

    #[inline]
    pub fn is_amd() -> bool {
        match KNOWN.load(Ordering::Relaxed) {
            UNKNOWN => ask(),
            known => known == AMD,
        }
    }

    #[cold]
    fn ask() -> bool {
        let words = __cpuid(0);
        let name = [words.ebx, words.edx, words.ecx].map(u32::to_le_bytes);
        let is_amd =
            [*b"Auth", *b"enti", *b"cAMD"] == name || [*b"Hygo", *b"nGen", *b"uine"] == name;
        KNOWN.store(if is_amd { AMD } else { OTHER }, Ordering::Relaxed);
        is_amd
    }

    static KNOWN: AtomicU8 = AtomicU8::new(UNKNOWN);
    const UNKNOWN: u8 = 0;
    const AMD: u8 = 1;
    const OTHER: u8 = 2;
}

/// Length in bytes from which the C library may copy by `rep movsb`.
const LONG: usize = 2048;

/// Addresses a multiple of this many bytes apart are aligned alike.
#[cfg(target_arch = "x86_64")]
const ALIKE: usize = 32;

/// Minimum distance in bytes of a target behind the source, counted within pages, for a fast
/// `rep movsb`.
const BEHIND: usize = 64;
const PAGE: usize = 4096;

/// Bytes in four registers.
#[cfg(target_arch = "x86_64")]
const STEP: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// Copies some bytes at offsets from the beginning of a cache line, and returns source and
    /// target.
    fn copied(
        len: usize,
        (source, target): (usize, usize),
        by: unsafe fn(*const u8, *mut u8, usize),
    ) {
        let from: Vec<u8> = (0..len + 64).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut to = vec![0xee; len + 192];
        // SAFETY: both buffers are longer than the copy, and distinct.
        unsafe { by(from.as_ptr().add(source), to.as_mut_ptr().add(target), len) };
        assert_eq!(to[target..target + len], from[source..source + len], "{len} {source} {target}");
        let is_left = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0xee);
        assert!(is_left(&to[..target]) && is_left(&to[target + len..]), "{len} {source} {target}");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn copies_past_the_caches_are_exact() {
        for len in [0, 1, 15, 16, 63, 64, 65, 4096, 70_001] {
            for source in [0, 1, 16, 63] {
                let from: Vec<u8> = (0..len + 64).map(|at| (at * 7 + at / 251) as u8).collect();
                let mut to = vec![0xee_u8; len + 64];
                let start = source / 3;
                // SAFETY: both buffers are longer than the copy, and distinct.
                unsafe { copy_past(from.as_ptr().add(source), to.as_mut_ptr().add(start), len) };
                assert_eq!(to[start..start + len], from[source..source + len], "{len} {source}");
                let mut around = to[..start].iter().chain(&to[start + len..]);
                assert!(around.all(|&byte| byte == 0xee), "{len} {source}");
            }
        }
    }

    #[test]
    fn copies_are_exact_and_touch_nothing_else() {
        let lens =
            [0, 1, 7, 8, 15, 16, 17, 32, 33, 63, 64, 65, LONG - 1, LONG, LONG + 1, 4096, 70_001];
        for len in lens {
            for at in [(0, 0), (0, 1), (0, 16), (16, 0), (63, 33), (5, 48)] {
                copied(len, at, copy_few);
                copied(len, at, copy_many);
                copied(len, at, copy_across);
                copied(len, at, copy_over);
                #[cfg(target_arch = "x86_64")]
                if len >= STEP {
                    copied(len, at, copy_by_registers);
                }
            }
        }
    }

    #[test]
    fn overlapping_memory_is_moved() {
        for distance in [1, 8, 100, LONG, 3 * LONG] {
            let mut bytes: Vec<u8> = (0..4 * LONG).map(|at| (at * 7 + at / 251) as u8).collect();
            let mut expected = bytes.clone();
            let len = bytes.len() - distance;
            expected.copy_within(..len, distance);
            let start = bytes.as_mut_ptr();
            // SAFETY: all of it is within the vector.
            unsafe { copy_over(start, start.add(distance), len) };
            assert_eq!(bytes, expected, "{distance} forth");
            expected.copy_within(distance.., 0);
            // SAFETY: all of it is within the vector.
            unsafe { copy_over(start.add(distance), start, len) };
            assert_eq!(bytes, expected, "{distance} back");
        }
    }
}
