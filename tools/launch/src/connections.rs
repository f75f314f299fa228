//! Connections between the worlds of a job (MPI-5.0 §11.10.4): a failure ends the worlds that are connected.

use std::collections::{BTreeSet, HashMap};

use crate::world::World;

/// The jobs that processes are connected with, as they have told us. A world is a job for its library; jobs of other
/// launchers may be among them.
#[derive(Default)]
pub(crate) struct Connections {
    /// Jobs by the process that has communicators with them.
    of_process: HashMap<u32, BTreeSet<u64>>,
    count: usize,
}

impl Connections {
    /// Connects a process with a job; false if there are too many connections.
    pub fn add(&mut self, process: u32, job: u64) -> bool {
        let is_full = self.count >= CONNECTIONS_MAX;
        let jobs = self.of_process.entry(process).or_default();
        let is_new = !is_full && jobs.insert(job);
        self.count += usize::from(is_new);
        is_new || jobs.contains(&job)
    }

    /// True if a process is connected with a job.
    pub fn has(&self, process: u32, job: u64) -> bool {
        self.of_process.get(&process).is_some_and(|jobs| jobs.contains(&job))
    }

    /// Ends the connection of a process with a job.
    pub fn remove(&mut self, process: u32, job: u64) {
        if let Some(jobs) = self.of_process.get_mut(&process) {
            self.count -= usize::from(jobs.remove(&job));
        }
    }

    /// Ends the connections of a process that has ended.
    pub fn forget(&mut self, process: u32) {
        let jobs = self.of_process.remove(&process);
        self.count -= jobs.map_or(0, |jobs| jobs.len());
    }

    /// Returns a world and those that are connected with it, directly or by others, in order.
    pub fn of_world(&self, world: usize, worlds: &[World]) -> Vec<usize> {
        let job_of = |process: u32| {
            let after = worlds.partition_point(|world| world.first <= process);
            after.checked_sub(1).map(|world| worlds[world].job)
        };
        let pairs = self.of_process.iter().filter_map(|(process, jobs)| {
            let own = job_of(*process)?;
            Some(jobs.iter().map(move |other| (own, *other)))
        });
        let pairs: Vec<(u64, u64)> = pairs.flatten().collect();
        let mut reached = BTreeSet::from([worlds[world].job]);
        loop {
            let before = reached.len();
            for (one, other) in &pairs {
                if reached.contains(one) || reached.contains(other) {
                    reached.extend([*one, *other]);
                }
            }
            if reached.len() == before {
                break;
            }
        }
        (0..worlds.len()).filter(|at| reached.contains(&worlds[*at].job)).collect()
    }
}

/// Maximum number of connections: some for each of as many processes as a job may have.
const CONNECTIONS_MAX: usize = 1 << 22;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pmi::{Server, Values};
    use crate::world::Birth;

    #[test]
    fn worlds_are_connected_directly_or_by_others() {
        let world = |first, job| {
            let server = Server::new("w".into(), vec![0; 2], None, Values::new());
            World::new((first, 2), job, server, Birth::Done)
        };
        let worlds: Vec<World> = (0..5).map(|at| world(2 * at, 100 + u64::from(at))).collect();
        let mut all = Connections::default();
        assert_eq!(all.of_world(3, &worlds), [3]);
        // World 0 with 1, world 2 with 1, and world 3 with 4 by a job of another launcher.
        for (process, job) in [(0, 101), (3, 100), (5, 101), (6, 7), (9, 7)] {
            assert!(all.add(process, job) && all.add(process, job) && all.has(process, job));
        }
        assert_eq!(all.of_world(0, &worlds), [0, 1, 2]);
        assert_eq!(all.of_world(2, &worlds), [0, 1, 2]);
        assert_eq!(all.of_world(4, &worlds), [3, 4]);
        all.remove(0, 101);
        assert_eq!(all.of_world(0, &worlds), [0, 1, 2], "the other side still has it");
        all.remove(3, 100);
        all.remove(3, 100);
        assert_eq!(all.of_world(0, &worlds), [0]);
        all.forget(5);
        all.forget(9);
        assert_eq!(all.of_world(2, &worlds), [2]);
        assert_eq!(all.count, 1);
    }
}
