//! Reading of numbers and payloads from the bytes of a frame.

/// Error in a frame. Only a peer that does not speak this protocol causes one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame ends inside a packet.
    #[error("a frame ends {missing} bytes before its last packet does")]
    Short {
        /// Bytes that are missing.
        missing: usize,
    },
    /// The packet's kind is unknown in this version.
    #[error("a packet has the unknown kind {kind:#04x}")]
    Kind {
        /// Value of the kind byte.
        kind: u8,
    },
}

#[inline]
pub(crate) fn take<'a, const N: usize>(frame: &mut &'a [u8]) -> Result<&'a [u8; N], FrameError> {
    let missing = N.saturating_sub(frame.len());
    let (packet, rest) = frame.split_first_chunk::<N>().ok_or(FrameError::Short { missing })?;
    *frame = rest;
    Ok(packet)
}

#[inline]
pub(crate) fn take_payload<'a>(frame: &mut &'a [u8], len: usize) -> Result<&'a [u8], FrameError> {
    let missing = len.saturating_sub(frame.len());
    let (payload, rest) = frame.split_at_checked(len).ok_or(FrameError::Short { missing })?;
    *frame = rest;
    Ok(payload)
}

/// Reads a little-endian number at `at`, a constant within the header.
#[inline]
pub(crate) fn u32_at<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[inline]
pub(crate) fn u64_at<const N: usize>(bytes: &[u8; N], at: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&bytes[at..at + 8]);
    u64::from_le_bytes(word)
}
