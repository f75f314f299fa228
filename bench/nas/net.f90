! Messages of the kernels, over net.c.
module net
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    integer(c_int) function net_rank() bind(C)
      import :: c_int
    end function
    integer(c_int) function net_size() bind(C)
      import :: c_int
    end function
    real(c_double) function net_now() bind(C)
      import :: c_double
    end function
    subroutine net_barrier() bind(C)
    end subroutine
    subroutine net_send(values, count, to, tag) bind(C)
      import :: c_int
      type(*), intent(in) :: values(*)
      integer(c_int), value :: count, to, tag
    end subroutine
    subroutine net_recv(values, count, from, tag) bind(C)
      import :: c_int
      type(*) :: values(*)
      integer(c_int), value :: count, from, tag
    end subroutine
    subroutine net_isend(values, count, to, tag) bind(C)
      import :: c_int
      type(*), intent(in), asynchronous :: values(*)
      integer(c_int), value :: count, to, tag
    end subroutine
    subroutine net_irecv(values, count, from, tag) bind(C)
      import :: c_int
      type(*), asynchronous :: values(*)
      integer(c_int), value :: count, from, tag
    end subroutine
    subroutine net_wait() bind(C)
    end subroutine
    subroutine net_sum(values, count) bind(C)
      import :: c_int
      type(*) :: values(*)
      integer(c_int), value :: count
    end subroutine
    subroutine net_max(values, count) bind(C)
      import :: c_int
      type(*) :: values(*)
      integer(c_int), value :: count
    end subroutine
    subroutine net_alltoall(from, to, count) bind(C)
      import :: c_int
      type(*), intent(in) :: from(*)
      type(*) :: to(*)
      integer(c_int), value :: count
    end subroutine
  end interface
end module
