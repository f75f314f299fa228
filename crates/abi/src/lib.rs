//! The MPI-5.0 standard ABI: the C symbols, handles and error codes.
