//! The agent of a node; started by `mpiexec`.

fn main() -> std::process::ExitCode {
    launch::agent_main()
}
