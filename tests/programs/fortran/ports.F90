! Two processes meet over a port with a published name, in the interface that INTERFACE selects: 1 (mpif.h), 2 (use mpi),
! 3 (use mpi_f08). Prints one line.
program ports
#if INTERFACE == 2
   use mpi
#elif INTERFACE == 3
   use mpi_f08
#endif
   implicit none
#if INTERFACE == 1
   include 'mpif.h'
#endif
#if INTERFACE == 3
   type(MPI_Comm) :: other
#else
   integer :: other
#endif
   character(len=MPI_MAX_PORT_NAME) :: port, found
   character(len=12) :: service
   integer :: me, ranks, got, error, failures, all
   failures = 0
   call MPI_Init(error)
   call MPI_Comm_rank(MPI_COMM_WORLD, me, error)
   service = 'fortran  '
   call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN, error)
   port = ' '
   if (me == 0) then
      call MPI_Open_port(MPI_INFO_NULL, port, error)
      if (port(1:8) /= 'canele1:') failures = failures + 1
      call MPI_Publish_name(service, MPI_INFO_NULL, port, error)
      if (error /= MPI_SUCCESS) failures = failures + 1
      call MPI_Barrier(MPI_COMM_WORLD, error)
      call MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_SELF, other, error)
   else
      call MPI_Barrier(MPI_COMM_WORLD, error)
      call MPI_Lookup_name('fortran', MPI_INFO_NULL, found, error)
      if (error /= MPI_SUCCESS) failures = failures + 1
      call MPI_Comm_connect(found, MPI_INFO_NULL, 0, MPI_COMM_SELF, other, error)
   end if
   if (error /= MPI_SUCCESS) failures = failures + 1
   call MPI_Comm_remote_size(other, ranks, error)
   got = -1
   call MPI_Sendrecv(me, 1, MPI_INTEGER, 0, 0, got, 1, MPI_INTEGER, 0, 0, other, MPI_STATUS_IGNORE, error)
   if (ranks /= 1 .or. got /= 1 - me) failures = failures + 1
   call MPI_Comm_disconnect(other, error)
   if (other /= MPI_COMM_NULL) failures = failures + 1
   if (me == 0) then
      call MPI_Unpublish_name(service, MPI_INFO_NULL, port, error)
      if (error /= MPI_SUCCESS) failures = failures + 1
      call MPI_Close_port(port, error)
      if (error /= MPI_SUCCESS) failures = failures + 1
   end if
   call MPI_Lookup_name('nobody', MPI_INFO_NULL, found, error)
   if (error == MPI_SUCCESS) failures = failures + 1
   call MPI_Allreduce(failures, all, 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, error)
   if (me == 0 .and. all == 0) print '(a)', ' no errors'
   if (me == 0 .and. all /= 0) print '(i0,a)', all, ' errors'
   call MPI_Finalize(error)
end program
