! The module mpi_f08: types, optional error codes, sections of arrays, large counts, callbacks, profiling.
module callbacks
  use mpi_f08
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: handled = 0, freed = 0
  logical :: cancelled = .false.
contains
  subroutine sum_of(invec, inoutvec, len, datatype)
    type(c_ptr), value :: invec, inoutvec
    integer :: len
    type(MPI_Datatype) :: datatype
    integer, pointer :: from(:), to(:)
    if (datatype /= MPI_INTEGER) call MPI_Abort(MPI_COMM_WORLD, 2)
    call c_f_pointer(invec, from, [len])
    call c_f_pointer(inoutvec, to, [len])
    to = to + from
  end subroutine
  subroutine handler(comm, error_code)
    type(MPI_Comm) :: comm
    integer :: error_code
    if (comm == MPI_COMM_WORLD .and. error_code /= MPI_SUCCESS) handled = handled + 1
  end subroutine
  subroutine query(extra_state, status, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    type(MPI_Status) :: status
    integer :: ierror
    status%MPI_TAG = int(extra_state)
    call MPI_Status_set_elements(status, MPI_INTEGER, 5, ierror)
    call MPI_Status_set_cancelled(status, cancelled, ierror)
  end subroutine
  subroutine release(extra_state, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    freed = freed + int(extra_state)
    ierror = MPI_SUCCESS
  end subroutine
  subroutine cancel(extra_state, complete, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    cancelled = .not. complete
    ierror = MPI_SUCCESS
  end subroutine
end module

program module_mpi_f08
  use mpi_f08
  use callbacks
  implicit none
  integer :: rank, size
  call MPI_Init()
  call MPI_Comm_rank(MPI_COMM_WORLD, rank)
  call MPI_Comm_size(MPI_COMM_WORLD, size)
  call messages
  call sections
  call kept_sections
  call divided_sections
  ! Other libraries do not tell when a collective ends. MPICH 5.0.2 ends by a signal in the last.
  if (is_canele()) then
    call reduced_sections
    call started_sections
    call partitions
  end if
  call refused_sections
  call callbacks_of_it
  call generalized
  call attributes
  call counts
  call older_part
  call MPI_Finalize()
  if (rank == 0) print *, 'no errors'
contains
  subroutine expect(is, what)
    logical, intent(in) :: is
    character(*), intent(in) :: what
    if (is) return
    print *, 'wrong: ', what, rank
    call MPI_Abort(MPI_COMM_WORLD, 1)
  end subroutine

  ! Other libraries with the standard ABI can do less.
  logical function is_canele()
    character(MPI_MAX_LIBRARY_VERSION_STRING) :: version
    integer :: length
    call MPI_Get_library_version(version, length)
    is_canele = index(version, 'Canele') /= 0
  end function

  subroutine messages
    type(MPI_Request) :: requests(2)
    type(MPI_Status) :: statuses(2)
    integer :: from, value, length, f(MPI_STATUS_SIZE), ierror, sends
    integer, external :: sends_counted
    from = mod(rank + size - 1, size)
    call MPI_Irecv(value, 1, MPI_INTEGER, MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(rank, 1, MPI_INTEGER, mod(rank + 1, size), 3, MPI_COMM_WORLD, requests(2), ierror)
    call expect(ierror == MPI_SUCCESS .and. requests(2) /= MPI_REQUEST_NULL, 'MPI_Isend')
    call MPI_Waitall(2, requests, statuses)
    call expect(value == from .and. statuses(1)%MPI_SOURCE == from .and. statuses(1)%MPI_TAG == 3, 'a message')
    call expect(requests(1) == MPI_REQUEST_NULL, 'a completed request')
    call MPI_Get_count(statuses(1), MPI_INTEGER, length)
    call MPI_Status_f082f(statuses(1), f)
    call expect(length == 1 .and. f(2) == 3, 'a status in the other form')
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    ! A tool in C sees what Fortran sends, but not what is sent by PMPI.
    sends = sends_counted()
    call MPI_Irecv(value, 1, MPI_INTEGER, rank, 4, MPI_COMM_WORLD, requests(1))
    call MPI_Send(7, 1, MPI_INTEGER, rank, 4, MPI_COMM_WORLD)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    call expect(value == 7 .and. sends_counted() == sends + 1, 'profiling')
    call PMPI_Irecv(value, 1, MPI_INTEGER, rank, 4, MPI_COMM_WORLD, requests(1))
    call PMPI_Send(8, 1, MPI_INTEGER, rank, 4, MPI_COMM_WORLD)
    call PMPI_Wait(requests(1), MPI_STATUS_IGNORE)
    call expect(value == 8 .and. sends_counted() == sends + 1, 'PMPI')
  end subroutine

  ! Sections that are not contiguous, in calls that end when they return.
  subroutine sections
    integer :: a(5, 6, 2), b(5, 6, 2), c(2, 3, 2), i, sums(4), rows(2, 3)
    type(MPI_Status) :: status
    a = reshape([(i, i = 1, 60)], [5, 6, 2])
    b = -1
    call MPI_Sendrecv(a(2:5:3, 1:6:2, :), 12, MPI_INTEGER, rank, 0, b(1:3:2, 2:6:2, :), 12, MPI_INTEGER, rank, 0, &
      MPI_COMM_WORLD, status)
    call expect(all(b(1:3:2, 2:6:2, :) == a(2:5:3, 1:6:2, :)), 'a section')
    call expect(count(b == -1) == 48, 'what is between the elements of a section')
    ! Fewer elements than the section has, in reverse order.
    c = 0
    call MPI_Sendrecv(a(5:1:-2, 1, 1), 2, MPI_INTEGER, rank, 0, c, 12, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, status)
    call MPI_Get_count(status, MPI_INTEGER, i)
    call expect(i == 2 .and. c(1, 1, 1) == 5 .and. c(2, 1, 1) == 3, 'a section in reverse')
    sums = 0
    call MPI_Allreduce(a(1, 1:4:2, 1), sums(1:4:2), 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD)
    call expect(all(sums == [size, 0, 11 * size, 0]), 'a section in a reduction')
    rows = rank
    call MPI_Bcast(rows(2, :), 3, MPI_INTEGER, 0, MPI_COMM_WORLD)
    call expect(all(rows(2, :) == 0) .and. all(rows(1, :) == rank), 'a section in MPI_Bcast')
  end subroutine

  ! Sections in calls that use them after they have returned.
  subroutine kept_sections
    type particle
      integer :: id = 0
      real :: mass = 0
    end type
    integer :: a(5, 6, 2), b(5, 6, 2), sent(12), received(12), i, n
    type(particle) :: particles(4), others(8)
    character(4) :: words(4), read(4)
    type(MPI_Request) :: requests(2)
    a = reshape([(i, i = 1, 60)], [5, 6, 2])
    do n = 0, 12
      b = -1
      call MPI_Irecv(b(1:3:2, 2:6:2, :), 12, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, requests(1))
      call MPI_Isend(a(2:5:3, 1:6:2, :), n, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, requests(2))
      call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      call expect(count(b /= -1) == n, 'number of elements of a section')
      sent = reshape(a(2:5:3, 1:6:2, :), [12])
      received = reshape(b(1:3:2, 2:6:2, :), [12])
      call expect(all(received(:n) == sent(:n)) .and. all(received(n + 1:) == -1), 'a kept section')
    end do
    words = ['abcd', 'efgh', 'ijkl', 'mnop']
    read = '----'
    call MPI_Irecv(read(1:4:2), 8, MPI_CHARACTER, rank, 2, MPI_COMM_WORLD, requests(1))
    call MPI_Isend(words(4:1:-2), 6, MPI_CHARACTER, rank, 2, MPI_COMM_WORLD, requests(2))
    call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
    call expect(read(1) == 'mnop' .and. read(3) == 'ef--' .and. read(2) == '----', 'elements longer than the datatype')
    particles = [(particle(i, real(i)), i = 1, 4)]
    call MPI_Irecv(particles%mass, 4, MPI_REAL, rank, 3, MPI_COMM_WORLD, requests(1))
    call MPI_Send([5.0, 6.0, 7.0, 8.0], 4, MPI_REAL, rank, 3, MPI_COMM_WORLD)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    call expect(all(particles%mass == [5, 6, 7, 8]) .and. all(particles%id == [1, 2, 3, 4]), 'components in MPI_Irecv')
    call MPI_Isend(particles(4:1:-1)%mass, 4, MPI_REAL, rank, 4, MPI_COMM_WORLD, requests(1))
    call MPI_Recv(others(::2)%mass, 4, MPI_REAL, rank, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE)
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    call expect(all(others(::2)%mass == [8, 7, 6, 5]) .and. all(others%id == 0), 'components in MPI_Recv')
    b = rank
    call MPI_Ibcast(b(::2, 1, 1), 3, MPI_INTEGER, 0, MPI_COMM_WORLD, requests(1))
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    call expect(all(b(::2, 1, 1) == 0) .and. all(b(2::2, 1, 1) == rank), 'a section in MPI_Ibcast')
  end subroutine

  ! Sections in non-blocking and persistent collectives, of which each rank gets a part.
  subroutine divided_sections
    integer :: line(6), pairs(2, 3 * size), planes(4, 3, size), back(2 * size), other(2, 3 * size)
    integer :: counts(size), places(size), i, k, from(2)
    integer :: number
    type(MPI_Datatype) :: datatype
    type(MPI_Comm) :: ring
    type(MPI_Request) :: request
    line = [(100 * rank + i, i = 1, 6)]
    pairs = -1
    number = merge(3, -5, rank == size - 1)
    datatype = MPI_DATATYPE_NULL
    if (rank == size - 1) datatype = MPI_INTEGER
    call MPI_Igather(line(::2), 3, MPI_INTEGER, pairs(1, :), number, datatype, size - 1, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call expect(all(pairs(2, :) == -1), 'what is between the elements of MPI_Igather')
    do k = 0, size - 1
      if (rank /= size - 1) exit
      call expect(all(pairs(1, 3 * k + 1:3 * k + 3) == [(100 * k + i, i = 1, 5, 2)]), 'a section in MPI_Igather')
    end do
    ! Whole rows for each rank.
    planes = -1
    call MPI_Iallgather(line, 6, MPI_INTEGER, planes(2:3, :, :), 6, MPI_INTEGER, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call expect(all(planes(1:4:3, :, :) == -1), 'what is between the rows of MPI_Iallgather')
    do k = 0, size - 1
      call expect(all(reshape(planes(2:3, :, k + 1), [6]) == [(100 * k + i, i = 1, 6)]), 'a section in MPI_Iallgather')
    end do
    ! Backwards.
    back = -1
    call MPI_Iallgather(line(6:2:-4), 2, MPI_INTEGER, back(2 * size:1:-1), 2, MPI_INTEGER, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    do k = 0, size - 1
      call expect(all(back(2 * (size - k):2 * (size - k) - 1:-1) == [100 * k + 6, 100 * k + 2]), 'a section from the end on')
    end do
    other(1, :) = [(100 * rank + i, i = 1, 3 * size)]
    pairs = -1
    call MPI_Ialltoall(other(1, :), 3, MPI_INTEGER, pairs(2, :), 3, MPI_INTEGER, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call expect(all(pairs(2, :) == [((100 * k + 3 * rank + i, i = 1, 3), k = 0, size - 1)]), 'a section in MPI_Ialltoall')
    ! Counts and displacements count elements of the section.
    counts = [(1 + mod(k, 2), k = 1, size)]
    places = [(3 * size - 3 * k, k = 1, size)]
    pairs(2, :) = -1
    call MPI_Iallgatherv(line(3::2), counts(rank + 1), MPI_INTEGER, pairs(2, :), counts, places, &
      MPI_INTEGER, MPI_COMM_WORLD, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    do k = 0, size - 1
      from = [100 * k + 3, merge(100 * k + 5, -1, counts(k + 1) == 2)]
      call expect(all(pairs(2, places(k + 1) + 1:places(k + 1) + 2) == from), 'a section in MPI_Iallgatherv')
    end do
    pairs(2, :) = [(i, i = 1, 3 * size)]
    line = -1
    call MPI_Scatter_init(pairs(2, :), 3, MPI_INTEGER, line(2::2), 3, MPI_INTEGER, 0, MPI_COMM_WORLD, MPI_INFO_NULL, request)
    do k = 1, 2
      call MPI_Start(request)
      call MPI_Wait(request, MPI_STATUS_IGNORE)
      call expect(all(line == [(merge(3 * rank + i / 2, -1, mod(i, 2) == 0), i = 1, 6)]), 'a section in MPI_Scatter_init')
      line = -1
    end do
    call MPI_Request_free(request)
    call MPI_Cart_create(MPI_COMM_WORLD, 1, [size], [.true.], .false., ring)
    other(:, 1) = rank
    line = -1
    call MPI_Ineighbor_allgather(other(1, ::2), 1, MPI_INTEGER, line(2:5:3), 1, MPI_INTEGER, ring, request)
    call MPI_Wait(request, MPI_STATUS_IGNORE)
    call expect(all(line(2:5:3) == [mod(rank + size - 1, size), mod(rank + 1, size)]), 'a section in MPI_Ineighbor_allgather')
    call MPI_Comm_free(ring)
  end subroutine

  ! Non-blocking reductions work on copies of sections; what lies between the elements stays.
  subroutine reduced_sections
    integer :: a(4, 6), b(4, 6), c(2 * size), d(2), i, k
    type(MPI_Request) :: requests(2)
    logical :: flag
    a = reshape([(rank + i, i = 1, 24)], [4, 6])
    do k = 1, 3
      b = -1
      call MPI_Iallreduce(a(::2, 2::2), b(2::2, ::2), 6, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
      call MPI_Ireduce(a(1, :), b(1, :), 6, MPI_INTEGER, MPI_MAX, size - 1, MPI_COMM_WORLD, requests(2))
      if (k == 1) then
        call MPI_Waitall(2, requests, MPI_STATUSES_IGNORE)
      else if (k == 2) then
        call MPI_Wait(requests(2), MPI_STATUS_IGNORE)
        call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
      else
        flag = .false.
        do while (.not. flag)
          call MPI_Testall(2, requests, flag, MPI_STATUSES_IGNORE)
        end do
      end if
      call expect(all(b(2::2, ::2) == size * a(::2, 2::2) + size * (size - 1) / 2 - size * rank), 'a section in MPI_Iallreduce')
      call expect(all(b(1, :) == merge(a(1, :) + size - 1 - rank, -1, rank == size - 1)), 'a section in MPI_Ireduce')
      call expect(all(b(3, :) == -1) .and. all(b(2:4:2, 2::2) == -1), 'what is between the elements of a reduced section')
    end do
    ! In place, and with a part for each rank.
    b = rank
    call MPI_Iscan(MPI_IN_PLACE, b(2, ::2), 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    call expect(all(b(2, ::2) == rank * (rank + 1) / 2) .and. all(b(2, 2::2) == rank), 'a section in MPI_Iscan')
    c = [(i, i = 1, 2 * size)]
    d = -1
    call MPI_Ireduce_scatter_block(c(2::2), d(2::2), 1, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, requests(1))
    call MPI_Wait(requests(1), MPI_STATUS_IGNORE)
    call expect(d(1) == -1 .and. d(2) == size * 2 * (rank + 1), 'a section in MPI_Ireduce_scatter_block')
  end subroutine

  ! Persistent reductions copy a section at each start, and give it back at the end of each run.
  subroutine started_sections
    integer :: a(4, 6), b(4, 6), c(2, 2 * size), d(2, 2 * size), i, k
    type(MPI_Request) :: requests(3)
    type(MPI_Datatype) :: types(size)
    integer :: ones(size), places(size)
    logical :: flag
    call MPI_Allreduce_init(a(::2, 2::2), b(2::2, ::2), 6, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1))
    call MPI_Reduce_init(a(1, :), b(1, :), 6, MPI_INTEGER, MPI_MAX, size - 1, MPI_COMM_WORLD, MPI_INFO_NULL, requests(2))
    types = MPI_INTEGER
    ones = 1
    places = [(4 * i, i = 0, size - 1)]
    call MPI_Alltoallw_init(c(2, ::2), ones, places, types, d(1, ::2), ones, places, types, MPI_COMM_WORLD, MPI_INFO_NULL, &
      requests(3))
    do k = 1, 3
      a = reshape([(k * rank + i, i = 1, 24)], [4, 6])
      b = -k
      c = reshape([(100 * k * rank + i, i = 1, 4 * size)], [2, 2 * size])
      d = -k
      if (k == 1) then
        call MPI_Startall(3, requests)
        call MPI_Waitall(3, requests, MPI_STATUSES_IGNORE)
      else
        do i = 3, 1, -1
          call MPI_Start(requests(i))
        end do
        do i = 1, 3
          flag = .false.
          do while (.not. flag)
            call MPI_Test(requests(i), flag, MPI_STATUS_IGNORE)
          end do
        end do
      end if
      call expect(all(b(2::2, ::2) == size * a(::2, 2::2) + k * size * (size - 1 - 2 * rank) / 2), &
        'a section in MPI_Allreduce_init')
      call expect(all(b(1, :) == merge(a(1, :), -k, rank == size - 1)), 'a section in MPI_Reduce_init')
      call expect(all(b(3, :) == -k) .and. all(b(2:4:2, 2::2) == -k), 'what is between the elements of a started section')
      call expect(all(d(1, ::2) == [(100 * k * i + 2 + 4 * rank, i = 0, size - 1)]), 'a section in MPI_Alltoallw_init')
      call expect(all(d(2, :) == -k) .and. all(d(1, 2::2) == -k), 'what is between its elements')
    end do
    do i = 1, 3
      call MPI_Request_free(requests(i))
    end do
    ! One that never runs.
    call MPI_Exscan_init(MPI_IN_PLACE, a(2, ::2), 3, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, requests(1))
    call MPI_Request_free(requests(1))
  end subroutine

  ! Where no datatype can describe the section, the call fails and leaves it alone.
  subroutine refused_sections
    integer :: a(4), c(4, 2 * size), ierror, class
    type(MPI_Request) :: request
    type(MPI_Win) :: win
    a = 1
    c = 2
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN)
    call MPI_Win_create(a(::2), 8_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierror)
    call MPI_Error_class(ierror, class)
    call expect(class == MPI_ERR_BUFFER, 'a refused section')
    ! Two ranks would share a row.
    call MPI_Iallgather(a, 2, MPI_INTEGER, c(:3, :), 2, MPI_INTEGER, MPI_COMM_WORLD, request, ierror)
    call MPI_Error_class(ierror, class)
    call expect(class == MPI_ERR_BUFFER .and. all(c == 2), 'a section without blocks')
    call MPI_Psend_init(a(::2), 2, 1_MPI_COUNT_KIND, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierror)
    call MPI_Error_class(ierror, class)
    call expect(class == MPI_ERR_BUFFER, 'a section to send by partitions')
    call MPI_Precv_init(a(::2), 2, 1_MPI_COUNT_KIND, MPI_INTEGER, rank, 0, MPI_COMM_WORLD, MPI_INFO_NULL, request, ierror)
    call MPI_Error_class(ierror, class)
    call expect(class == MPI_ERR_BUFFER, 'a section to receive by partitions')
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL)
  end subroutine

  ! A message that is sent and received by partitions.
  subroutine partitions
    integer, asynchronous :: values(6), into(6)
    integer :: i
    type(MPI_Request) :: requests(2)
    type(MPI_Status) :: statuses(2)
    logical :: flag
    call MPI_Precv_init(into, 3, 2_MPI_COUNT_KIND, MPI_INTEGER, mod(rank + size - 1, size), 1, MPI_COMM_WORLD, &
                        MPI_INFO_NULL, requests(1))
    call MPI_Psend_init(values, 6, 1_MPI_COUNT_KIND, MPI_INTEGER, mod(rank + 1, size), 1, MPI_COMM_WORLD, &
                        MPI_INFO_NULL, requests(2))
    do i = 1, 3
      values = [1, 2, 3, 4, 5, 6] * i
      into = 0
      call MPI_Startall(2, requests)
      call MPI_Pready_list(2, [5, 4], requests(2))
      flag = .false.
      do while (.not. flag)
        call MPI_Parrived(requests(1), 2, flag)
      end do
      call expect(all(into(5:) == [5, 6] * i), 'a partition that has arrived')
      call MPI_Pready(0, requests(2))
      call MPI_Pready_range(1, 3, requests(2))
      call MPI_Waitall(2, requests, statuses)
      call expect(all(into == values) .and. statuses(1)%MPI_TAG == 1, 'a partitioned message')
    end do
    call MPI_Request_free(requests(1))
    call MPI_Request_free(requests(2))
  end subroutine

  ! The program's functions say how a generalized request ends.
  subroutine generalized
    type(MPI_Request) :: request, copy
    type(MPI_Status) :: status
    integer :: elements
    logical :: flag
    call MPI_Grequest_start(query, release, cancel, 7_MPI_ADDRESS_KIND, request)
    call MPI_Test(request, flag, status)
    call expect(.not. flag, 'MPI_Test of a generalized request')
    call MPI_Cancel(request)
    call MPI_Grequest_complete(request)
    call MPI_Wait(request, status)
    call expect(request == MPI_REQUEST_NULL .and. freed == 7, 'the function to free')
    call MPI_Get_elements(status, MPI_INTEGER, elements)
    call MPI_Test_cancelled(status, flag)
    call expect(status%MPI_TAG == 7 .and. elements == 5 .and. flag, 'the status of a generalized request')
    call MPI_Grequest_start(query, release, cancel, 8_MPI_ADDRESS_KIND, request)
    copy = request
    call MPI_Request_free(request)
    call expect(request == MPI_REQUEST_NULL .and. freed == 7, 'a request freed before its end')
    call MPI_Grequest_complete(copy)
    call expect(freed == 15, 'its end')
  end subroutine

  subroutine callbacks_of_it
    type(MPI_Op) :: op
    type(MPI_Errhandler) :: errhandler
    integer :: values(3), ierror
    call MPI_Op_create(sum_of, .true., op)
    values = rank
    call MPI_Allreduce(MPI_IN_PLACE, values, 3, MPI_INTEGER, op, MPI_COMM_WORLD)
    call expect(all(values == size * (size - 1) / 2), 'an operation')
    call MPI_Op_free(op)
    call MPI_Comm_create_errhandler(handler, errhandler)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler)
    call MPI_Send(rank, 1, MPI_INTEGER, size, 0, MPI_COMM_WORLD, ierror)
    ! MPICH 5.0.2 forgets the code once a handler has returned, with the standard ABI.
    call expect(handled == 1 .and. (ierror /= MPI_SUCCESS .or. .not. is_canele()), 'an error handler')
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL)
    call MPI_Errhandler_free(errhandler)
  end subroutine

  subroutine attributes
    integer :: key
    integer(MPI_ADDRESS_KIND) :: val
    type(MPI_Datatype) :: type, dup
    logical :: flag
    call MPI_Type_create_keyval(MPI_TYPE_DUP_FN, MPI_TYPE_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND)
    call MPI_Type_contiguous(2, MPI_REAL, type)
    call MPI_Type_set_attr(type, key, 12_MPI_ADDRESS_KIND)
    call MPI_Type_dup(type, dup)
    call MPI_Type_get_attr(dup, key, val, flag)
    call expect(flag .and. val == 12, 'an attribute of a datatype')
    call MPI_Type_free(type)
    call MPI_Type_free(dup)
    call MPI_Type_free_keyval(key)
  end subroutine

  subroutine counts
    integer(MPI_COUNT_KIND) :: size_of_it, large
    integer :: length
    type(MPI_Datatype) :: type
    real(8) :: x
    type(c_ptr) :: buffer
    integer, target :: attached(4096)
    large = 3
    call MPI_Type_contiguous(large, MPI_INTEGER, type)
    call MPI_Type_size(type, size_of_it)
    call expect(size_of_it == 12, 'a large count')
    call MPI_Type_free(type)
    call MPI_Bcast(large, 1_MPI_COUNT_KIND, MPI_COUNT, 0, MPI_COMM_WORLD)
    call MPI_Sizeof(x, length)
    call expect(length == 8, 'MPI_Sizeof')
    call MPI_Buffer_attach(attached, 4 * 4096)
    call MPI_Buffer_detach(buffer, length)
    call expect(c_associated(buffer, c_loc(attached)) .and. length == 4 * 4096, 'MPI_Buffer_detach')
  end subroutine
end program

! A part of the program that still uses the other module.
subroutine older_part
  use mpi
  implicit none
  integer :: sums(2), size, ierr
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  sums = 1
  call MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_INTEGER, MPI_SUM, MPI_COMM_WORLD, ierr)
  if (any(sums /= size)) call MPI_Abort(MPI_COMM_WORLD, 3, ierr)
end subroutine
