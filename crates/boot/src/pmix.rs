//! A launcher that speaks PMIx, such as `srun --mpi=pmix`.

use zeroize::Zeroizing;

use crate::environment::NodePlace;
use crate::error::BootError;
use crate::launcher::Launcher;
use crate::names::{NameAnswer, NameQuestion};
use crate::pmix_library::{Library, RANK_WILDCARD};
use crate::spawn::SpawnRequest;

/// The connection to the launcher's PMIx server.
pub(crate) struct Pmix {
    library: Library,
    namespace: String,
    rank: u32,
    /// True if values were put that the server does not have yet.
    is_uncommitted: bool,
}

impl Pmix {
    /// Connects as a process of `namespace`, and returns the number of processes.
    ///
    /// # Errors
    /// The library cannot be loaded, or the launcher does not serve this process.
    pub fn open(namespace: String, rank: u32) -> Result<(Self, u32), BootError> {
        let library = Library::load()?;
        // The library starts threads, which must not take the program's signals.
        let (served, number) = cpu::without_signals(|| library.init())?;
        // Some versions answer a process without a server that it is alone.
        if (&served, number) != (&namespace, rank) {
            let status = format!("this process is rank {number} of `{served}` there");
            return Err(BootError::Pmix { function: "PMIx_Init", status });
        }
        let size = library.number(&namespace, RANK_WILDCARD, "pmix.job.size")?;
        let unknown =
            || BootError::Pmix { function: "PMIx_Get", status: "no size of the job".into() };
        let size = size.filter(|size| rank < *size).ok_or_else(unknown)?;
        Ok((Self { library, namespace, rank, is_uncommitted: false }, size))
    }

    fn own_number(&self, key: &str) -> Result<Option<u32>, BootError> {
        self.library.number(&self.namespace, self.rank, key)
    }

    fn job_number(&self, key: &str) -> Result<Option<u32>, BootError> {
        self.library.number(&self.namespace, RANK_WILDCARD, key)
    }
}

impl Launcher for Pmix {
    fn job_name(&self) -> &str {
        &self.namespace
    }

    fn value_max(&self) -> usize {
        usize::MAX
    }

    fn universe_size(&mut self) -> Result<Option<u32>, BootError> {
        self.job_number("pmix.univ.size")
    }

    fn application_number(&mut self) -> Result<Option<u32>, BootError> {
        self.own_number("pmix.appnum")
    }

    fn place(&mut self) -> Result<Option<NodePlace>, BootError> {
        let position = self.own_number("pmix.lrank")?;
        let ranks = self.job_number("pmix.local.size")?;
        Ok(position.zip(ranks).map(|(position, ranks)| NodePlace { position, ranks }))
    }

    fn introduce(&mut self) -> Result<bool, BootError> {
        Ok(false)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        self.is_uncommitted = true;
        self.library.put(key, value)
    }

    fn get(&mut self, rank: u32, key: &str) -> Result<Option<Zeroizing<String>>, BootError> {
        self.library.text(&self.namespace, rank, key)
    }

    fn get_served(&mut self, _key: &str) -> Result<Option<Zeroizing<String>>, BootError> {
        Ok(None)
    }

    fn spawn(&mut self, _request: &SpawnRequest) -> Result<(), BootError> {
        Err(BootError::NoSpawn { launcher: "a launcher that speaks PMIx" })
    }

    fn tell_connection(&mut self, _own: u64, _other: u64, _is: bool) -> Result<(), BootError> {
        Ok(())
    }

    fn ask_name(&mut self, _question: NameQuestion<'_>) -> Result<NameAnswer, BootError> {
        Ok(NameAnswer::NotServed)
    }

    fn barrier(&mut self) -> Result<(), BootError> {
        if self.is_uncommitted {
            self.library.commit()?;
            self.is_uncommitted = false;
        }
        self.library.fence()
    }

    fn finalize(&mut self) -> Result<(), BootError> {
        self.library.finalize()
    }

    fn abort(&mut self, code: i32) -> Result<(), BootError> {
        self.library.abort(code)
    }
}
