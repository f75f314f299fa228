//! mpiexec, the per-node agent, and the PMI-1 server they share.
