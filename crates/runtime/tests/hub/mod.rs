//! A launcher within a process, for jobs of threads.

use std::collections::HashMap;
use std::sync::{Arc, Condvar, Mutex};

use boot::{BootError, Job, Launcher, NameAnswer, NameQuestion, NodePlace, SpawnRequest};
use zeroize::Zeroizing;

/// The launcher of one job.
#[derive(Default)]
struct Hub {
    size: u32,
    state: Mutex<HubState>,
    changed: Condvar,
}

#[derive(Default)]
struct HubState {
    values: HashMap<String, String>,
    waiting: u32,
    barriers: u32,
}

/// The connection of one process.
struct Client(Arc<Hub>);

/// Returns one function for each process of a job, which joins it.
pub fn job(size: u32) -> Vec<impl FnOnce() -> Job> {
    let hub = Arc::new(Hub { size, ..Hub::default() });
    let join = |rank| {
        let client = Client(Arc::clone(&hub));
        move || Job::of_many(Box::new(client), rank, size).expect("the launcher is a map")
    };
    (0..size).map(join).collect()
}

impl Launcher for Client {
    fn job_name(&self) -> &str {
        "hub"
    }

    fn value_max(&self) -> usize {
        1024
    }

    fn universe_size(&mut self) -> Result<Option<u32>, BootError> {
        Ok(None)
    }

    fn application_number(&mut self) -> Result<Option<u32>, BootError> {
        Ok(None)
    }

    fn place(&mut self) -> Result<Option<NodePlace>, BootError> {
        Ok(None)
    }

    fn introduce(&mut self) -> Result<bool, BootError> {
        Ok(false)
    }

    fn put(&mut self, key: &str, value: &str) -> Result<(), BootError> {
        self.0.state.lock().unwrap().values.insert(key.into(), value.into());
        Ok(())
    }

    fn get(&mut self, _rank: u32, key: &str) -> Result<Option<Zeroizing<String>>, BootError> {
        Ok(self.0.state.lock().unwrap().values.get(key).cloned().map(Zeroizing::new))
    }

    fn get_served(&mut self, key: &str) -> Result<Option<Zeroizing<String>>, BootError> {
        self.get(0, key)
    }

    fn spawn(&mut self, _request: &SpawnRequest) -> Result<(), BootError> {
        Err(BootError::NoSpawn { launcher: "the hub" })
    }

    fn tell_connection(&mut self, _own: u64, _other: u64, _is: bool) -> Result<(), BootError> {
        Ok(())
    }

    fn ask_name(&mut self, _question: NameQuestion<'_>) -> Result<NameAnswer, BootError> {
        Ok(NameAnswer::NotServed)
    }

    fn barrier(&mut self) -> Result<(), BootError> {
        let mut state = self.0.state.lock().unwrap();
        let before = state.barriers;
        state.waiting += 1;
        if state.waiting == self.0.size {
            state.waiting = 0;
            state.barriers += 1;
            self.0.changed.notify_all();
        }
        let _met = self.0.changed.wait_while(state, |state| state.barriers == before).unwrap();
        Ok(())
    }

    fn finalize(&mut self) -> Result<(), BootError> {
        Ok(())
    }

    fn abort(&mut self, _code: i32) -> Result<(), BootError> {
        Ok(())
    }
}
