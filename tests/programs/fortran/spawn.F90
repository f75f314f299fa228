! Processes that start others, by the interface that INTERFACE names: mpif.h (1), mpi (2) or mpi_f08 (3). Arguments are arrays
! of texts that end with a blank one; those of several programs have two dimensions.
program spawn
#if INTERFACE == 3
  use mpi_f08
#elif INTERFACE == 2
  use mpi
#endif
  implicit none
#if INTERFACE == 1
  include 'mpif.h'
#endif
#if INTERFACE == 3
  type(MPI_Comm) :: parent, children
  type(MPI_Info) :: infos(2)
#else
  integer :: parent, children, infos(2)
#endif
  integer :: ierr, rank, there, failures, codes(3), most(2), appnum, class
  logical :: is_set
  character(len=1024) :: self, word
  character(len=8) :: one(4), commands_arguments(2, 3)
  character(len=1024) :: commands(2)
  integer(MPI_ADDRESS_KIND) :: value

  failures = 0
  call get_command_argument(0, self)
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_get_parent(parent, ierr)
  if (parent /= MPI_COMM_NULL) then
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_APPNUM, value, is_set, ierr)
    appnum = int(value)
    call get_command_argument(1, word)
    if (command_argument_count() == 3) then
      call expect(word == 'a b')
      call get_command_argument(3, word)
      call expect(word == 'three')
    else
      call expect(command_argument_count() == 1 .and. is_set)
      call expect(word == merge('first ', 'second', appnum == 0))
    end if
    call MPI_Reduce(failures, there, 1, MPI_INTEGER, MPI_SUM, 0, parent, ierr)
    call MPI_Comm_disconnect(parent, ierr)
  else
    one = [character(len=8) :: 'a b', 'two', 'three', ' ']
    codes = -1
    call MPI_Comm_spawn(self, one, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, children, codes, ierr)
    call expect(all(codes == [0, 0, -1]))
    call gather(2)
    commands = self
    commands_arguments = ' '
    commands_arguments(1, 1) = 'first'
    commands_arguments(2, 1) = 'second'
    most = [1, 2]
    infos = MPI_INFO_NULL
    call MPI_Comm_spawn_multiple(2, commands, commands_arguments, most, infos, 0, MPI_COMM_WORLD, &
      children, MPI_ERRCODES_IGNORE, ierr)
    call gather(3)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN, ierr)
    call MPI_Comm_spawn('./no-such-program', MPI_ARGV_NULL, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, children, &
      codes, ierr)
    call MPI_Error_class(ierr, class, ierr)
    call expect(class == MPI_ERR_SPAWN .and. children == MPI_COMM_NULL .and. codes(1) == MPI_ERR_SPAWN)
    if (rank == 0 .and. failures == 0) print *, 'no errors'
  end if
  call MPI_Finalize(ierr)

contains

  subroutine expect(holds)
    logical, intent(in) :: holds
    if (.not. holds) then
      failures = failures + 1
      print *, 'rank', rank, ': a check failed'
    end if
  end subroutine

  ! Gets the children's failures.
  subroutine gather(wanted)
    integer, intent(in) :: wanted
    integer :: theirs
    call MPI_Comm_remote_size(children, there, ierr)
    call expect(there == wanted)
    theirs = 0
    call MPI_Reduce(failures, theirs, 1, MPI_INTEGER, MPI_SUM, merge(MPI_ROOT, MPI_PROC_NULL, rank == 0), children, ierr)
    call expect(theirs == 0)
    call MPI_Comm_disconnect(children, ierr)
  end subroutine
end program
