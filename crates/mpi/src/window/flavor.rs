//! Flavours of windows (MPI-5.0 §12.2.6).

/// Kind of a window, by the call that made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Flavor {
    /// `MPI_Win_create`.
    Create,
    /// `MPI_Win_allocate`.
    Allocate,
    /// `MPI_Win_create_dynamic`.
    Dynamic,
    /// `MPI_Win_allocate_shared`.
    Shared,
}

impl Flavor {
    /// The ABI's number.
    pub fn number(self) -> i32 {
        match self {
            Self::Create => 311,
            Self::Allocate => 312,
            Self::Dynamic => 313,
            Self::Shared => 314,
        }
    }
}
