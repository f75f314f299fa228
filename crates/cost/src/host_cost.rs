//! Cost of operations on a machine.

use std::fmt;
use std::str::FromStr;

use crate::cost::{Cost, KNOTS};
use crate::text::{CostError, fields, number};

/// Cost of operations on this machine, independent of the link.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostCost {
    /// Start of a copy.
    pub copy_ns: u64,
    /// Each byte of a copy between caches, up to [`HostCost::NEAR_MAX`] bytes, in picoseconds.
    pub near_ps_per_byte: u64,
    /// Each byte of a longer copy, in picoseconds.
    pub far_ps_per_byte: u64,
    /// Each further element of the vector of a gathering send.
    pub vector_ns: u64,
    /// A system call that sends a few bytes.
    pub call_ns: u64,
    /// Compression of each byte of a long piece (`wire::compress`), in picoseconds.
    pub compress_ps_per_byte: u64,
    /// Decompression of each byte, in picoseconds.
    pub decompress_ps_per_byte: u64,
    /// Wake-up latency of a thread that sleeps until a deadline.
    pub wake_ns: u64,
    /// A fixed computation (`topo::sample`), which compares the cores of hosts.
    pub work_ns: u64,
}

impl HostCost {
    /// Longest copy whose source and destination fit a second-level cache.
    pub const NEAR_MAX: u64 = 256 << 10;

    /// Transfer of a cache line between CPU cores and back into the engine, on current servers.
    pub const NEIGHBOUR_NS: u64 = 200;

    /// True if a real machine can have these costs. Under an instrumenting tool, a machine seems a
    /// thousand times slower.
    pub fn is_plausible(&self) -> bool {
        self.near_ps_per_byte.max(self.far_ps_per_byte) <= SLOWEST_PS_PER_BYTE
            && self.call_ns.max(self.vector_ns) <= SLOWEST_CALL_NS
    }

    /// Speed of a core in hundredths of a usual one.
    pub fn speed_percent(&self) -> u32 {
        let percent = 100 * USUAL_WORK_NS / self.work_ns.max(1);
        percent.clamp(1, SPEED_MAX_PERCENT) as u32
    }

    /// Time to copy `bytes` bytes.
    pub fn copy_ns(&self, bytes: u64) -> u64 {
        let near = bytes.min(Self::NEAR_MAX).saturating_mul(self.near_ps_per_byte);
        let far = bytes.saturating_sub(Self::NEAR_MAX).saturating_mul(self.far_ps_per_byte);
        self.copy_ns.saturating_add(near.saturating_add(far).div_ceil(1000))
    }

    /// Number of bytes copied within `ns`.
    pub fn bytes_copied_in(&self, ns: u64) -> u64 {
        let Some(left_ns) = ns.checked_sub(self.copy_ns) else { return 0 };
        let ps = left_ns.saturating_mul(1000);
        let near = (ps / self.near_ps_per_byte.max(1)).min(Self::NEAR_MAX);
        let left_ps = ps.saturating_sub(near.saturating_mul(self.near_ps_per_byte));
        if near < Self::NEAR_MAX { near } else { near + left_ps / self.far_ps_per_byte.max(1) }
    }

    /// Time to compress `bytes` bytes of a piece.
    pub fn compression_ns(&self, bytes: u64) -> u64 {
        bytes.saturating_mul(self.compress_ps_per_byte).div_ceil(1000)
    }

    /// Returns the size to which `bytes` bytes must be compressed to arrive sooner, on a link that
    /// stays busy for `queue_ns`.
    ///
    /// During `queue_ns`, compression is free. The receiver decompresses afterwards; it is assumed
    /// to be a machine like this one. Returns 0 if compression cannot be expected to save a
    /// sixteenth of the time.
    ///
    /// On an oversubscribed node nothing is free: compression takes CPU time from other ranks, and
    /// the link is rarely the bottleneck. Compression must then save eight times its cost, taken as
    /// three times that of a sample that lies in the caches.
    pub fn compressed_max(
        &self,
        cost: &Cost,
        bytes: u64,
        queue_ns: u64,
        is_oversubscribed: bool,
    ) -> u64 {
        let whole_ns = cost.busy_ns(bytes);
        let saved_ns = whole_ns - whole_ns / COMPRESSION_SAVES;
        let compression_ns = self.compression_ns(bytes);
        let decompression_ns = bytes.saturating_mul(self.decompress_ps_per_byte).div_ceil(1000);
        let (by_ns, other_ns) = if is_oversubscribed {
            let work_ns = compression_ns.saturating_add(decompression_ns);
            (saved_ns, work_ns.saturating_mul(COMPRESSION_OVERSUBSCRIBED))
        } else {
            (
                queue_ns.saturating_add(saved_ns),
                queue_ns.max(compression_ns).saturating_add(decompression_ns),
            )
        };
        let most = cost.bytes_within(by_ns.saturating_sub(other_ns)).min(bytes - bytes / 20);
        if most < bytes / COMPRESSES_TO { 0 } else { most }
    }

    /// Cost of shared memory between two awake processes of this machine. A frame costs the
    /// transfer of a few cache lines between CPU cores, which is the latency, and the sender's
    /// copy.
    pub fn shared_memory(&self, latency_ns: u64) -> Cost {
        let gap_ns = latency_ns / 2;
        Cost::measured(latency_ns, &KNOTS.map(|bytes| (bytes, gap_ns + self.copy_ns(bytes))))
    }
}

impl Default for HostCost {
    /// A current server, until it is measured.
    fn default() -> Self {
        Self {
            copy_ns: 10,
            near_ps_per_byte: 50,
            far_ps_per_byte: 120,
            vector_ns: 60,
            call_ns: 800,
            compress_ps_per_byte: 2500,
            decompress_ps_per_byte: 1000,
            wake_ns: 10_000,
            work_ns: USUAL_WORK_NS,
        }
    }
}

/// Writes `host/4 COPY NEAR FAR VECTOR CALL COMPRESS DECOMPRESS WAKE WORK`, in the units of the fields.
impl fmt::Display for HostCost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { copy_ns, near_ps_per_byte, far_ps_per_byte, vector_ns, call_ns, .. } = self;
        let Self { compress_ps_per_byte, decompress_ps_per_byte, wake_ns, work_ns, .. } = self;
        write!(
            f,
            "{HOST_WORD} {copy_ns} {near_ps_per_byte} {far_ps_per_byte} {vector_ns} {call_ns}"
        )?;
        write!(f, " {compress_ps_per_byte} {decompress_ps_per_byte} {wake_ns} {work_ns}")
    }
}

impl FromStr for HostCost {
    type Err = CostError;

    fn from_str(text: &str) -> Result<Self, CostError> {
        let fields =
            fields(text, HOST_WORD, |_, field| number(field).filter(|&value| value <= HOST_MAX))?;
        let [
            copy_ns,
            near_ps_per_byte,
            far_ps_per_byte,
            vector_ns,
            call_ns,
            compress,
            decompress,
            wake_ns,
            work_ns,
        ] = fields;
        Ok(Self {
            copy_ns,
            near_ps_per_byte,
            far_ps_per_byte,
            vector_ns,
            call_ns,
            compress_ps_per_byte: compress,
            decompress_ps_per_byte: decompress,
            wake_ns,
            work_ns,
        })
    }
}

/// Half a gigabyte per second.
const SLOWEST_PS_PER_BYTE: u64 = 2_000;
const SLOWEST_CALL_NS: u64 = 50_000;
/// Compression must save at least this part of a piece's time on the link.
const COMPRESSION_SAVES: u64 = 16;
/// On an oversubscribed node it must save this multiple of a sample's cost on both sides.
const COMPRESSION_OVERSUBSCRIBED: u64 = 24;
/// Compression is not tried if a piece would have to shrink below this part of itself.
const COMPRESSES_TO: u64 = 8;
const HOST_MAX: u64 = 1_000_000_000;
/// Time of the fixed computation on a core of a server of 2023.
const USUAL_WORK_NS: u64 = 30_000;
const SPEED_MAX_PERCENT: u64 = 10_000;
const HOST_WORD: &str = "host/4";
