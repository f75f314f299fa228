//! The VCI of each communicator, found at its first use.

use std::fmt;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

use progress::Progress;
pub use runtime::{VCIS_MAX, Vci, VciSet};

use crate::Result;
use crate::process;

/// VCI of a communicator, which its context determines.
#[derive(Default)]
pub(crate) struct CommVci {
    vci: AtomicU8,
    /// Found at its first use.
    progress: OnceLock<&'static Progress>,
}

impl CommVci {
    #[inline]
    pub fn vci(&self) -> Vci {
        Vci::numbered(usize::from(self.vci.load(Ordering::Relaxed)))
    }

    /// Sets the VCI, before the first use.
    pub fn settle(&self, vci: Vci) {
        self.vci.store(vci.number() as u8, Ordering::Relaxed);
    }

    /// The progress engine that carries its messages.
    #[inline]
    pub fn progress(&self) -> Result<&'static Progress> {
        match self.progress.get() {
            Some(progress) => Ok(progress),
            None => self.find_progress(),
        }
    }

    #[cold]
    fn find_progress(&self) -> Result<&'static Progress> {
        let progress = process::current()?.vci(self.vci());
        Ok(self.progress.get_or_init(|| progress))
    }
}

impl fmt::Debug for CommVci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.vci().fmt(f)
    }
}
