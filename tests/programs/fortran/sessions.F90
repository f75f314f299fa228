! Sessions without the World Model: by mpif.h, the module mpi, or the module mpi_f08 (-DMPIF, nothing, or -DF08).
#ifdef F08
#define HANDLE(kind) type(kind)
#else
#define HANDLE(kind) integer
#endif
module noted
  implicit none
  integer :: handled = 0
end module

subroutine note(session, code)
#ifdef F08
  use mpi_f08
#endif
  use noted
  implicit none
  HANDLE(MPI_Session) :: session
  integer :: code
  if (code /= 0) handled = handled + 1
end subroutine

program sessions
#if defined(F08)
  use mpi_f08
#elif !defined(MPIF)
  use mpi
#endif
  use noted
  implicit none
#ifdef MPIF
  include 'mpif.h'
#endif
  external :: note
  HANDLE(MPI_Session) :: session
  HANDLE(MPI_Group) :: group
  HANDLE(MPI_Comm) :: comm
  HANDLE(MPI_Info) :: info
  HANDLE(MPI_Errhandler) :: handler, got
  HANDLE(MPI_Request) :: request
  integer :: ierr, sets, i, length, rank, size, total, code
  logical :: flag
  character(40) :: name, text
  character(5) :: shorter
  character :: buffer(MPI_BSEND_OVERHEAD + 100)
  call MPI_Info_create(info, ierr)
  call MPI_Info_set(info, 'thread_level', ' MPI_THREAD_FUNNELED ', ierr)
  call MPI_Session_init(info, MPI_ERRORS_RETURN, session, ierr)
  call expect(ierr == MPI_SUCCESS .and. session /= MPI_SESSION_NULL, 'MPI_Session_init')
  call MPI_Info_free(info, ierr)
  call MPI_Session_get_info(session, info, ierr)
  call MPI_Info_get(info, 'thread_level', 40, text, flag, ierr)
  call expect(flag .and. text == 'MPI_THREAD_FUNNELED', 'the level of threads')
  call MPI_Info_free(info, ierr)
  ! Lengths are without a byte at the end (MPI-5.0 11.3.2).
  call MPI_Session_get_num_psets(session, MPI_INFO_NULL, sets, ierr)
  do i = 0, sets - 1
    length = 0
    name = 'untouched'
    call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, length, name, ierr)
    call expect(name == 'untouched' .and. length > 9, 'a length of 0')
    name = repeat('#', 40)
    code = length
    call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, length, name, ierr)
    call expect(length == code .and. len_trim(name) == length, 'the name of a process set')
    length = 5
    call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, i, length, shorter, ierr)
    call expect(length == code .and. shorter == name(1:5), 'the beginning of a name')
    call MPI_Session_get_pset_info(session, name, info, ierr)
    call MPI_Info_get(info, 'mpi_size', 40, text, flag, ierr)
    call MPI_Group_from_session_pset(session, name, group, ierr)
    call MPI_Group_size(group, size, ierr)
    read (text, *) total
    call expect(flag .and. total == size, 'the size of a process set')
    call MPI_Group_free(group, ierr)
    call MPI_Info_free(info, ierr)
  end do
  call MPI_Group_from_session_pset(session, 'mpi://WORLD', group, ierr)
  call MPI_Comm_create_from_group(group, 'fortran', MPI_INFO_NULL, MPI_ERRORS_RETURN, comm, ierr)
  call expect(ierr == MPI_SUCCESS, 'MPI_Comm_create_from_group')
  call MPI_Group_free(group, ierr)
  call MPI_Comm_rank(comm, rank, ierr)
  call MPI_Comm_size(comm, size, ierr)
  call MPI_Allreduce(rank, total, 1, MPI_INTEGER, MPI_SUM, comm, ierr)
  call expect(total == size * (size - 1) / 2, 'a sum')
  call MPI_Session_attach_buffer(session, buffer, MPI_BSEND_OVERHEAD + 100, ierr)
  call MPI_Irecv(total, 1, MPI_INTEGER, rank, 1, comm, request, ierr)
  call MPI_Bsend(77, 1, MPI_INTEGER, rank, 1, comm, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call expect(ierr == MPI_SUCCESS .and. total == 77, 'MPI_Bsend')
  call MPI_Session_iflush_buffer(session, request, ierr)
  call MPI_Wait(request, MPI_STATUS_IGNORE, ierr)
  call MPI_Session_flush_buffer(session, ierr)
  call expect(ierr == MPI_SUCCESS, 'MPI_Session_flush_buffer')
  call MPI_Comm_free(comm, ierr)
  call MPI_Session_create_errhandler(note, handler, ierr)
  call MPI_Session_set_errhandler(session, handler, ierr)
  call MPI_Session_get_errhandler(session, got, ierr)
  call expect(got == handler, 'MPI_Session_get_errhandler')
  call MPI_Session_call_errhandler(session, MPI_ERR_ARG, ierr)
  call expect(ierr == MPI_SUCCESS .and. handled == 1, 'an error handler')
  call MPI_Session_get_nth_pset(session, MPI_INFO_NULL, sets, length, name, ierr)
  call MPI_Error_class(ierr, code, i)
  call expect(code == MPI_ERR_ARG .and. handled == 2, 'no such process set')
#ifdef F08
  call MPI_Session_attach_buffer(session, buffer(1::2), 50, ierr)
  call MPI_Error_class(ierr, code, i)
  call expect(code == MPI_ERR_BUFFER .and. handled == 3, 'a section that is refused')
#endif
  call MPI_Errhandler_free(got, ierr)
  call MPI_Errhandler_free(handler, ierr)
  call MPI_Session_finalize(session, ierr)
  call expect(ierr == MPI_SUCCESS .and. session == MPI_SESSION_NULL, 'MPI_Session_finalize')
  if (rank == 0) print *, 'no errors'
contains
  subroutine expect(is, what)
    logical, intent(in) :: is
    character(*), intent(in) :: what
    if (is) return
    print *, 'wrong: ', what
    stop 1
  end subroutine
end program
