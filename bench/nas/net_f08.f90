! Messages of the kernels, over the module mpi_f08: instead of net.f90 and net.c.
module net
  use, intrinsic :: iso_c_binding
  use mpi_f08
  implicit none
  integer, parameter :: most_pending = 64
  type(MPI_Request), private :: pending(most_pending)
  integer, private :: pending_count = 0
contains
  integer(c_int) function net_rank()
    call MPI_Comm_rank(MPI_COMM_WORLD, net_rank)
  end function

  integer(c_int) function net_size()
    call MPI_Comm_size(MPI_COMM_WORLD, net_size)
  end function

  real(c_double) function net_now()
    net_now = MPI_Wtime()
  end function

  subroutine net_barrier()
    call MPI_Barrier(MPI_COMM_WORLD)
  end subroutine

  subroutine net_send(values, count, to, tag)
    type(*), intent(in) :: values(..)
    integer(c_int), intent(in) :: count, to, tag
    call MPI_Send(values, count, MPI_DOUBLE_PRECISION, to, tag, MPI_COMM_WORLD)
  end subroutine

  subroutine net_recv(values, count, from, tag)
    type(*) :: values(..)
    integer(c_int), intent(in) :: count, from, tag
    call MPI_Recv(values, count, MPI_DOUBLE_PRECISION, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
  end subroutine

  subroutine net_isend(values, count, to, tag)
    type(*), intent(in), asynchronous :: values(..)
    integer(c_int), intent(in) :: count, to, tag
    call take_pending()
    call MPI_Isend(values, count, MPI_DOUBLE_PRECISION, to, tag, MPI_COMM_WORLD, pending(pending_count))
  end subroutine

  subroutine net_irecv(values, count, from, tag)
    type(*), asynchronous :: values(..)
    integer(c_int), intent(in) :: count, from, tag
    call take_pending()
    call MPI_Irecv(values, count, MPI_DOUBLE_PRECISION, from, tag, MPI_COMM_WORLD, pending(pending_count))
  end subroutine

  subroutine net_wait()
    call MPI_Waitall(pending_count, pending, MPI_STATUSES_IGNORE)
    pending_count = 0
  end subroutine

  subroutine net_sum(values, count)
    type(*) :: values(..)
    integer(c_int), intent(in) :: count
    call MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE_PRECISION, MPI_SUM, MPI_COMM_WORLD)
  end subroutine

  subroutine net_max(values, count)
    type(*) :: values(..)
    integer(c_int), intent(in) :: count
    call MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE_PRECISION, MPI_MAX, MPI_COMM_WORLD)
  end subroutine

  subroutine net_alltoall(from, to, count)
    type(*), intent(in) :: from(..)
    type(*) :: to(..)
    integer(c_int), intent(in) :: count
    call MPI_Alltoall(from, count, MPI_DOUBLE_PRECISION, to, count, MPI_DOUBLE_PRECISION, MPI_COMM_WORLD)
  end subroutine

  subroutine take_pending()
    if (pending_count == most_pending) then
      print *, 'nas: more than', most_pending, 'operations at once'
      call MPI_Abort(MPI_COMM_WORLD, 2)
    end if
    pending_count = pending_count + 1
  end subroutine
end module
