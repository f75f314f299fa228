//! Data of a waiting message.

use std::ops::Deref;

/// Bytes; short ones without an allocation.
#[derive(Debug)]
pub(crate) enum Payload {
    Short { len: u8, bytes: [u8; SHORT_MAX] },
    Long(Box<[u8]>),
}

impl Deref for Payload {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        match self {
            Self::Short { len, bytes } => &bytes[..usize::from(*len)],
            Self::Long(bytes) => bytes,
        }
    }
}

impl From<&[u8]> for Payload {
    #[inline]
    fn from(from: &[u8]) -> Self {
        if from.len() > SHORT_MAX {
            return Self::Long(from.into());
        }
        let mut bytes = [0; SHORT_MAX];
        bytes[..from.len()].copy_from_slice(from);
        Self::Short { len: from.len() as u8, bytes }
    }
}

impl From<Box<[u8]>> for Payload {
    fn from(from: Box<[u8]>) -> Self {
        Self::Long(from)
    }
}

/// Longest inline data: as long as the fields of an RTS.
const SHORT_MAX: usize = 30;

const _: () = assert!(size_of::<super::Content>() == 40);
