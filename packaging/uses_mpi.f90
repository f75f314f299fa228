! Passes buffers of several types and ranks. mpifort compiles it, to see whether the compiler can use the module mpi.
program uses_mpi
  use mpi
  implicit none
  integer :: i, ierror
  double precision :: x(3)
  call MPI_Bcast(i, 1, MPI_INTEGER, 0, MPI_COMM_SELF, ierror)
  call MPI_Bcast(x, 3, MPI_DOUBLE_PRECISION, 0, MPI_COMM_SELF, ierror)
end program
