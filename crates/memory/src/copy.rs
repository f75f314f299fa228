//! How bytes are copied: few without a call, many as the processor likes it.
//!
//! The C library copies from two kilobytes on by `rep movsb` where the processor says that it is good at that. Those of AMD
//! are, but not where both addresses are not aligned alike: where the target lies a few bytes behind the source, counted
//! within their pages, they take two to six times as long (glibc's bug 30994; it does without from 2.39 on). So it is
//! between memory that begins with a page, as all does that processes share, and what `malloc` gives, which begins
//! sixteen bytes behind one. Registers are as fast there as where all is aligned.

/// Copies as `copy_nonoverlapping`, few bytes without a call.
///
/// # Safety
/// As for that.
#[inline(always)]
pub(crate) unsafe fn copy_few(from: *const u8, to: *mut u8, len: usize) {
    match len {
        // SAFETY: both halves are among the bytes the caller vouched for; they overlap each other, so
        // both are read before one is written.
        16..=32 => unsafe {
            let halves =
                [from, from.add(len - 16)].map(|half| half.cast::<u128>().read_unaligned());
            to.cast::<u128>().write_unaligned(halves[0]);
            to.add(len - 16).cast::<u128>().write_unaligned(halves[1]);
        },
        // SAFETY: as above.
        8..16 => unsafe {
            let halves = [from, from.add(len - 8)].map(|half| half.cast::<u64>().read_unaligned());
            to.cast::<u64>().write_unaligned(halves[0]);
            to.add(len - 8).cast::<u64>().write_unaligned(halves[1]);
        },
        // SAFETY: as the function's.
        _ => unsafe { copy_many(from, to, len) },
    }
}

/// Copies as `copy_nonoverlapping`.
///
/// # Safety
/// As for that.
#[inline(always)]
pub(crate) unsafe fn copy_many(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the function's.
    unsafe {
        if len < LONG {
            std::ptr::copy_nonoverlapping(from, to, len)
        } else {
            copy_long(from, to, len)
        }
    }
}

/// Copies as `copy_nonoverlapping` to lines that another core holds: `rep movsb` takes them without asking for what is in
/// them, where the target does not lie a few bytes behind.
///
/// # Safety
/// As for that.
#[inline]
pub(crate) unsafe fn copy_across(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the function's.
    unsafe {
        if (1..BEHIND).contains(&(to.addr().wrapping_sub(from.addr()) % PAGE)) {
            copy_many(from, to, len);
        } else {
            std::ptr::copy_nonoverlapping(from, to, len);
        }
    }
}

/// Copies as `copy_nonoverlapping`, past the caches; what was written is there for other cores before what the caller writes
/// next.
///
/// # Safety
/// As for that.
#[cfg(target_arch = "x86_64")]
pub(crate) unsafe fn copy_past(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_sfence, _mm_stream_si128};
    // Such stores take aligned addresses only.
    let first = to.align_offset(align_of::<__m128i>()).min(len);
    let whole = len - (len - first) % STEP;
    // SAFETY: as the function's.
    unsafe { std::ptr::copy_nonoverlapping(from, to, first) };
    for at in (first..whole).step_by(STEP) {
        // SAFETY: the bytes from `at` on are among those the caller vouched for; loads take any address.
        unsafe {
            let (from, to) = (from.add(at).cast::<__m128i>(), to.add(at).cast::<__m128i>());
            let quarters = [0, 1, 2, 3].map(|quarter| _mm_loadu_si128(from.add(quarter)));
            for (quarter, bytes) in quarters.into_iter().enumerate() {
                _mm_stream_si128(to.add(quarter), bytes);
            }
        }
    }
    // SAFETY: as the function's.
    unsafe {
        std::ptr::copy_nonoverlapping(from.add(whole), to.add(whole), len - whole);
        _mm_sfence();
    }
}

/// Copies as `copy`: what is there may overlap where it goes.
///
/// # Safety
/// As for that.
#[inline(never)]
pub(crate) unsafe fn copy_over(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the function's; what lies farther apart than it is long does not overlap.
    unsafe {
        if len < LONG || from.addr().abs_diff(to.addr()) < len {
            std::ptr::copy(from, to, len);
        } else {
            copy_long(from, to, len);
        }
    }
}

/// Copies [`LONG`] bytes at least.
///
/// # Safety
/// As for `copy_nonoverlapping`.
#[inline(never)]
unsafe fn copy_long(from: *const u8, to: *mut u8, len: usize) {
    // SAFETY: as the function's.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        if !to.addr().wrapping_sub(from.addr()).is_multiple_of(ALIKE) && vendor::is_amd() {
            return copy_by_registers(from, to, len);
        }
        std::ptr::copy_nonoverlapping(from, to, len);
    }
}

/// Copies [`STEP`] bytes at least.
///
/// # Safety
/// As for `copy_nonoverlapping`.
#[cfg(target_arch = "x86_64")]
unsafe fn copy_by_registers(from: *const u8, to: *mut u8, len: usize) {
    use std::arch::x86_64::{__m128i, _mm_loadu_si128, _mm_storeu_si128};
    let step = |at: usize| {
        // SAFETY: the bytes from `at` on are among those the caller vouched for; the registers take any address.
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
    // What is left with some of what was before it.
    step(last);
}

/// Who has made the processor.
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

/// From so many bytes on the C library may copy by `rep movsb`.
const LONG: usize = 2048;

/// Addresses that are a multiple of so many bytes apart are aligned alike.
#[cfg(target_arch = "x86_64")]
const ALIKE: usize = 32;

/// So many bytes behind the source, counted within pages of so many, a target is far enough away.
const BEHIND: usize = 64;
const PAGE: usize = 4096;

/// What four registers hold, in bytes.
#[cfg(target_arch = "x86_64")]
const STEP: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    /// What is to be copied, at some distance from the beginning of a cache line, and where it goes.
    fn copied(
        len: usize,
        (source, target): (usize, usize),
        by: unsafe fn(*const u8, *mut u8, usize),
    ) {
        let from: Vec<u8> = (0..len + 64).map(|at| (at * 7 + at / 251) as u8).collect();
        let mut to = vec![0xee; len + 192];
        // SAFETY: both are longer than what is copied, and apart.
        unsafe { by(from.as_ptr().add(source), to.as_mut_ptr().add(target), len) };
        assert_eq!(to[target..target + len], from[source..source + len], "{len} {source} {target}");
        let is_left = |bytes: &[u8]| bytes.iter().all(|&byte| byte == 0xee);
        assert!(is_left(&to[..target]) && is_left(&to[target + len..]), "{len} {source} {target}");
    }

    #[test]
    #[cfg(target_arch = "x86_64")]
    fn so_is_what_is_copied_past_the_caches() {
        for len in [0, 1, 15, 16, 63, 64, 65, 4096, 70_001] {
            for source in [0, 1, 16, 63] {
                let from: Vec<u8> = (0..len + 64).map(|at| (at * 7 + at / 251) as u8).collect();
                let mut to = vec![0xee_u8; len + 64];
                let start = source / 3;
                // SAFETY: both are longer than what is copied, and apart.
                unsafe { copy_past(from.as_ptr().add(source), to.as_mut_ptr().add(start), len) };
                assert_eq!(to[start..start + len], from[source..source + len], "{len} {source}");
                let mut around = to[..start].iter().chain(&to[start + len..]);
                assert!(around.all(|&byte| byte == 0xee), "{len} {source}");
            }
        }
    }

    #[test]
    fn what_is_copied_is_what_was_there_and_nothing_else_is_touched() {
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
    fn what_overlaps_is_moved() {
        for distance in [1, 8, 100, LONG, 3 * LONG] {
            let mut bytes: Vec<u8> = (0..4 * LONG).map(|at| (at * 7 + at / 251) as u8).collect();
            let mut expected = bytes.clone();
            let len = bytes.len() - distance;
            expected.copy_within(..len, distance);
            let start = bytes.as_mut_ptr();
            // SAFETY: all of it is the vector's.
            unsafe { copy_over(start, start.add(distance), len) };
            assert_eq!(bytes, expected, "{distance} forth");
            expected.copy_within(distance.., 0);
            // SAFETY: as above.
            unsafe { copy_over(start.add(distance), start, len) };
            assert_eq!(bytes, expected, "{distance} back");
        }
    }
}
