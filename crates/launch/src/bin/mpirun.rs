//! `mpirun`: starts the ranks of an MPI job.

fn main() -> std::process::ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    launch::mpiexec_main(&arguments)
}
