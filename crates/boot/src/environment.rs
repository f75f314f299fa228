//! Detection of the launcher that started this process.

use rustix::process::getppid;
use rustix::thread::{CpuSet, sched_getaffinity};

use crate::error::BootError;
use crate::identity::SOCKET_VARIABLE;

/// Launcher of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Detected {
    /// Started without a launcher: a job of one process.
    None,
    /// A launcher that passes an open connection (`PMI_FD`).
    PmiDescriptor {
        /// The inherited descriptor.
        fd: i32,
        /// Rank in the job.
        rank: u32,
        /// Number of processes in the job.
        size: u32,
        /// Inode of its socket, if the launcher tells it.
        inode: Option<u64>,
    },
    /// A launcher that speaks PMIx (`PMIX_NAMESPACE`).
    Pmix {
        /// Name of the job.
        namespace: String,
        /// Rank in the job.
        rank: u32,
    },
    /// A launcher that accepts connections (`PMI_PORT`).
    PmiPort {
        /// `host:port`.
        address: String,
        /// Identifier of this process for the launcher.
        id: u32,
    },
}

/// Place of a process among those of its job on the same node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NodePlace {
    /// Number of the process among them, from 0.
    pub position: u32,
    /// Number of processes.
    pub ranks: u32,
}

/// Place of this process on its node, if the launcher's variables tell it.
pub fn node_place() -> Option<NodePlace> {
    let number = |name| std::env::var(name).ok()?.parse().ok();
    let (position, ranks) = (number("MPI_LOCALRANKID")?, number("MPI_LOCALNRANKS")?);
    Some(NodePlace { position, ranks })
}

/// Number of cores that the job's ranks on this node share; each may be bound to some of them. The launcher's
/// value, or else the cores of the parent process.
pub fn node_cores() -> usize {
    let told = std::env::var(NODE_CORES_VARIABLE).ok().and_then(|text| text.parse().ok());
    told.filter(|cores| *cores > 0).unwrap_or_else(|| own_cores().max(parents_cores()))
}

/// Number of cores our parent may use; 0 if a limit other than a binding restricts this process.
fn parents_cores() -> usize {
    let count = |process| {
        let set = sched_getaffinity(process).ok()?;
        Some((0..CpuSet::MAX_CPU).filter(|core| set.is_set(*core)).count())
    };
    let is_bounded = count(None).is_none_or(|allowed| own_cores() < allowed);
    let parent = getppid().filter(|_| !is_bounded);
    parent.and_then(|parent| count(Some(parent))).unwrap_or(0)
}

/// Number of cores this process may use.
pub fn own_cores() -> usize {
    std::thread::available_parallelism().map_or(1, usize::from)
}

/// The launcher, from the environment that `variable` looks up.
///
/// # Errors
/// An unsupported launcher, or variables that contradict each other.
pub fn detect(variable: &dyn Fn(&str) -> Option<String>) -> Result<Detected, BootError> {
    if let Some(fd) = variable("PMI_FD") {
        let fd = number(&fd, "PMI_FD")? as i32;
        let needed = |name| variable(name).ok_or(BootError::Missing { name, beside: "PMI_FD" });
        let rank = number(&needed("PMI_RANK")?, "PMI_RANK")?;
        let size = number(&needed("PMI_SIZE")?, "PMI_SIZE")?;
        if rank >= size {
            return Err(BootError::Variable { name: "PMI_RANK", value: rank.to_string() });
        }
        let inode = variable(SOCKET_VARIABLE).and_then(|inode| inode.parse().ok());
        return Ok(Detected::PmiDescriptor { fd, rank, size, inode });
    }
    if let Some(address) = variable("PMI_PORT") {
        let id =
            variable("PMI_ID").ok_or(BootError::Missing { name: "PMI_ID", beside: "PMI_PORT" })?;
        return Ok(Detected::PmiPort { address, id: number(&id, "PMI_ID")? });
    }
    match (variable("PMIX_NAMESPACE"), variable("PMIX_RANK")) {
        (Some(namespace), Some(rank)) => {
            return Ok(Detected::Pmix { namespace, rank: number(&rank, "PMIX_RANK")? });
        }
        (Some(_), None) => {
            return Err(BootError::Missing { name: "PMIX_RANK", beside: "PMIX_NAMESPACE" });
        }
        (None, Some(_)) => {
            return Err(BootError::Missing { name: "PMIX_NAMESPACE", beside: "PMIX_RANK" });
        }
        (None, None) => {}
    }
    for (name, launcher, advice) in STRANGERS {
        if variable(name).is_some() {
            return Err(BootError::Stranger { launcher, name, advice });
        }
    }
    for (name, beside, launcher, advice) in STRANGERS_OF_MANY {
        let tasks = variable(name).and_then(|tasks| tasks.parse::<u32>().ok());
        if tasks.is_some_and(|tasks| tasks > 1) && variable(beside).is_some() {
            return Err(BootError::Stranger { launcher, name, advice });
        }
    }
    Ok(Detected::None)
}

/// Returns a line about the tasks of an allocation that a process started without a launcher leaves unused.
pub(crate) fn unused_tasks(variable: &dyn Fn(&str) -> Option<String>) -> Option<String> {
    ALLOCATIONS.into_iter().find_map(|(name, task, first)| {
        let tasks = variable(name)?;
        let is_first = variable(task).is_none_or(|number| number == first);
        let has_many = tasks.parse::<u32>().is_ok_and(|count| count > 1);
        (is_first && has_many).then(|| {
            format!(
                "runs alone, although {name}={tasks}: `mpiexec` starts as many ranks as `-n` says"
            )
        })
    })
}

fn number(value: &str, name: &'static str) -> Result<u32, BootError> {
    value.parse().map_err(|_| BootError::Variable { name, value: value.into() })
}

/// Variables of launchers whose protocol is not supported.
const STRANGERS: [(&str, &str, &str); 4] = [
    ("PRTE_LAUNCHED", "PRRTE", "start the program with Canele's `mpiexec`"),
    ("OMPI_COMM_WORLD_SIZE", "Open MPI's mpirun", "start the program with Canele's `mpiexec`"),
    ("PALS_RANKID", "PALS", "start the program with Canele's `mpiexec`"),
    ("JSM_NAMESPACE_SIZE", "jsrun", "start the program with Canele's `mpiexec`"),
];

/// Variables that say how many processes there are, where there may be one, and what each has beside.
const STRANGERS_OF_MANY: [(&str, &str, &str, &str); 3] = [
    (
        "SLURM_STEP_NUM_TASKS",
        "SLURM_PROCID",
        "srun without PMI",
        "use `srun --mpi=pmi2` or `--mpi=pmix`, or `mpiexec` inside the allocation",
    ),
    ("FLUX_JOB_SIZE", "FLUX_TASK_RANK", "flux run", "use `mpiexec` inside the allocation"),
    (
        "PMI_SIZE",
        "PMI_RANK",
        "a launcher without a connection (PMI_FD or PMI_PORT)",
        "start the program with Canele's `mpiexec`",
    ),
];

/// Variables with the number of tasks of an allocation: Slurm, LSF, PBS, Grid Engine. Each stands with the one that
/// numbers tasks if the resource manager has started several, and the first number.
const ALLOCATIONS: [(&str, &str, &str); 4] = [
    ("SLURM_NTASKS", "SLURM_PROCID", "0"),
    ("LSB_DJOB_NUMPROC", "LSF_PM_TASKID", "1"),
    ("PBS_NP", "PBS_VNODENUM", "0"),
    ("NSLOTS", "SGE_TASK_ID", "undefined"),
];

/// Variable with the number of cores that the ranks of a node share; each rank may be bound to fewer.
pub const NODE_CORES_VARIABLE: &str = "CANELE_NODE_CORES";

#[cfg(test)]
mod tests {
    use super::*;

    fn found(variables: &[(&str, &str)]) -> Result<Detected, BootError> {
        detect(&|name| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).into())
        })
    }

    #[test]
    fn an_empty_environment_is_a_job_of_one() {
        assert_eq!(found(&[]).unwrap(), Detected::None);
        assert_eq!(found(&[("SLURM_PROCID", "0"), ("SLURM_JOB_ID", "7")]).unwrap(), Detected::None);
    }

    #[test]
    fn tasks_that_a_process_alone_leaves_unused_are_named_once() {
        let unused = |variables: &[(&str, &str)]| {
            unused_tasks(&|name| {
                variables.iter().find(|(known, _)| *known == name).map(|(_, it)| (*it).into())
            })
        };
        for (name, task, first) in ALLOCATIONS {
            assert!(unused(&[(name, "4")]).unwrap().contains(&format!("{name}=4")));
            assert!(unused(&[(name, "4"), (task, first)]).is_some());
            assert_eq!(unused(&[(name, "4"), (task, "7")]), None);
            assert_eq!((unused(&[(name, "1")]), unused(&[(name, "x")])), (None, None));
        }
        assert_eq!(unused(&[]), None);
    }

    #[test]
    fn pmi_is_recognised_in_both_forms() {
        let descriptor = found(&[("PMI_FD", "5"), ("PMI_RANK", "1"), ("PMI_SIZE", "2")]).unwrap();
        let expected = |inode| Detected::PmiDescriptor { fd: 5, rank: 1, size: 2, inode };
        assert_eq!(descriptor, expected(None));
        let variables =
            [("PMI_FD", "5"), ("PMI_RANK", "1"), ("PMI_SIZE", "2"), (SOCKET_VARIABLE, "77")];
        assert_eq!(found(&variables).unwrap(), expected(Some(77)));
        let port = found(&[("PMI_PORT", "h:9"), ("PMI_ID", "3")]).unwrap();
        assert_eq!(port, Detected::PmiPort { address: "h:9".into(), id: 3 });
    }

    #[test]
    fn pmix_is_recognised_behind_pmi() {
        let pmix = [("PMIX_NAMESPACE", "slurm.pmix.3.0"), ("PMIX_RANK", "2")];
        let namespace = "slurm.pmix.3.0".to_owned();
        assert_eq!(found(&pmix).unwrap(), Detected::Pmix { namespace, rank: 2 });
        let both = [pmix[0], pmix[1], ("PMI_PORT", "h:9"), ("PMI_ID", "3")];
        let port = Detected::PmiPort { address: "h:9".into(), id: 3 };
        assert_eq!(found(&both).unwrap(), port);
    }

    #[test]
    fn strangers_and_contradictions_are_named() {
        let text = |variables: &[_]| found(variables).unwrap_err().to_string();
        assert!(text(&[("PMIX_RANK", "0")]).contains("PMIX_NAMESPACE"));
        assert!(text(&[("PMIX_NAMESPACE", "x")]).contains("PMIX_RANK"));
        assert!(text(&[("PMIX_NAMESPACE", "x"), ("PMIX_RANK", "y")]).contains("PMIX_RANK=y"));
        assert!(text(&[("OMPI_COMM_WORLD_SIZE", "2")]).contains("Open MPI"));
        assert!(text(&[("SLURM_PROCID", "1"), ("SLURM_STEP_NUM_TASKS", "4")]).contains("srun"));
        assert!(text(&[("FLUX_TASK_RANK", "1"), ("FLUX_JOB_SIZE", "4")]).contains("flux"));
        assert!(text(&[("PMI_RANK", "1"), ("PMI_SIZE", "4")]).contains("PMI_SIZE"));
        assert_eq!(found(&[("PMI_RANK", "0"), ("PMI_SIZE", "1")]).unwrap(), Detected::None);
        assert!(text(&[("PMI_FD", "5"), ("PMI_RANK", "1")]).contains("PMI_SIZE"));
        assert!(text(&[("PMI_FD", "x")]).contains("PMI_FD"));
        assert!(
            text(&[("PMI_FD", "5"), ("PMI_RANK", "2"), ("PMI_SIZE", "2")]).contains("PMI_RANK")
        );
    }
}
