! Procedures of mpi_f08 that take choice buffers by address, as compilers without descriptors call them (MPI-5.0 section 19.1.5).
program by_address
  use mpi_f08
  implicit none
  integer :: sent(3), received(3), sum(3), error
  type(MPI_Request) :: requests(2)
  external :: MPI_Send_f08, MPI_Irecv_f08, MPI_Iallreduce_c_f08
  sent = [1, 2, 3]
  received = 0
  sum = 0
  call MPI_Init()
  call MPI_Irecv_f08(received, 3, MPI_INTEGER, 0, 1, MPI_COMM_SELF, requests(1), error)
  call MPI_Send_f08(sent, 3, MPI_INTEGER, 0, 1, MPI_COMM_SELF, error)
  call MPI_Iallreduce_c_f08(sent, sum, 3_MPI_COUNT_KIND, MPI_INTEGER, MPI_SUM, MPI_COMM_SELF, requests(2), error)
  call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
  if (all(received == sent) .and. all(sum == sent)) print *, 'no errors'
  call MPI_Finalize()
end program
