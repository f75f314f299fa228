//! Contributions to splits of communicators, and what they are made from.

/// Contribution of a process to a split of a communicator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Wish {
    pub color: Option<i32>,
    pub key: i32,
    /// Context number the process drew; used if it is rank 0 of its new communicator.
    pub context: u64,
}

impl Wish {
    pub fn emit(self) -> [u8; 20] {
        let mut bytes = [0; 20];
        bytes[..4].copy_from_slice(&i32::from(self.color.is_some()).to_le_bytes());
        bytes[4..8].copy_from_slice(&self.color.unwrap_or(0).to_le_bytes());
        bytes[8..12].copy_from_slice(&self.key.to_le_bytes());
        bytes[12..].copy_from_slice(&self.context.to_le_bytes());
        bytes
    }

    pub fn parse(&[a, b, c, d, e, f, g, h, i, j, k, l, context @ ..]: &[u8; 20]) -> Self {
        let is_some = i32::from_le_bytes([a, b, c, d]) != 0;
        let color = is_some.then_some(i32::from_le_bytes([e, f, g, h]));
        let key = i32::from_le_bytes([i, j, k, l]);
        Self { color, key, context: u64::from_le_bytes(context) }
    }
}

/// Memory sharing among the processes of a communicator, as seen from one of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Nodes {
    /// The lowest rank that shares memory with this process.
    pub first: i32,
    /// True if some process does not share memory with this one.
    pub several: bool,
}
