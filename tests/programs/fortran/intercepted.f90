! A procedure of mpi_f08 with a choice buffer that the program intercepts by its name (MPI-5.0 section 19.1.5).
program intercepted
  use mpi_f08
  implicit none
  integer :: sends, elements, sent(6), received(3)
  type(MPI_Request) :: request
  common /counted/ sends, elements
  sends = 0
  elements = 0
  sent = [1, 2, 3, 4, 5, 6]
  call MPI_Init()
  call MPI_Irecv(received, 3, MPI_INTEGER, 0, 1, MPI_COMM_SELF, request)
  call MPI_Send(sent(6:1:-2), 3, MPI_INTEGER, 0, 1, MPI_COMM_SELF)
  call MPI_Wait(request, MPI_STATUS_IGNORE)
  if (sends == 1 .and. elements == 3 .and. all(received == [6, 4, 2])) print *, 'no errors'
  call MPI_Finalize()
end program

subroutine MPI_Send_f08ts(buf, count, datatype, dest, tag, comm, ierror)
  use mpi_f08, declared => MPI_Send_f08ts
  implicit none
  type(*), dimension(..), intent(in) :: buf
  integer, intent(in) :: count, dest, tag
  type(MPI_Datatype), intent(in) :: datatype
  type(MPI_Comm), intent(in) :: comm
  integer, optional, intent(out) :: ierror
  integer :: sends, elements
  common /counted/ sends, elements
  sends = sends + 1
  elements = elements + size(buf)
  call PMPI_Send(buf, count, datatype, dest, tag, comm, ierror)
end subroutine
