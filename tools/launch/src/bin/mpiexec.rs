//! `mpiexec`: starts the ranks of an MPI job.

fn main() -> std::process::ExitCode {
    let arguments: Vec<std::ffi::OsString> = std::env::args_os().skip(1).collect();
    launch::mpiexec_main(&arguments)
}
