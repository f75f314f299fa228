//! The VCI of each communicator, found at its first use.

use std::fmt;
use std::ops::Deref;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, OnceLock};

use progress::Progress;
use runtime::Instance;
pub use runtime::{VCIS_MAX, Vci, VciSet};

/// VCI of a communicator, which its context determines.
#[derive(Default)]
pub(crate) struct CommVci {
    vci: AtomicU8,
    /// Found at its first use.
    progress: OnceLock<Arc<Progress>>,
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
    pub fn progress(&self, process: &impl Deref<Target = Instance>) -> &Progress {
        match self.progress.get() {
            Some(progress) => progress,
            None => self.find_progress(process),
        }
    }

    #[cold]
    fn find_progress(&self, process: &impl Deref<Target = Instance>) -> &Progress {
        self.progress.get_or_init(|| Arc::clone(process.vci(self.vci())))
    }
}

impl fmt::Debug for CommVci {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.vci().fmt(f)
    }
}
