! The module mpi: callbacks, attributes, indices, logicals, texts, info, datatypes with parameters, windows.
module callbacks
  use mpi
  implicit none
  integer :: handled = 0, copied = 0, deleted = 0
  logical :: cancelled = .false.
contains
  subroutine product_of(invec, inoutvec, length, datatype)
    integer :: length, datatype, invec(length), inoutvec(length)
    if (datatype /= MPI_INTEGER) call MPI_Abort(MPI_COMM_WORLD, 2, handled)
    inoutvec = inoutvec * invec
  end subroutine
  subroutine handler(comm, code)
    integer :: comm, code
    if (comm == MPI_COMM_WORLD .and. code /= MPI_SUCCESS) handled = handled + 1
  end subroutine
  subroutine copy(comm, keyval, extra_state, before, after, flag, ierror)
    integer :: comm, keyval, ierror
    integer(MPI_ADDRESS_KIND) :: extra_state, before, after
    logical :: flag
    copied = copied + 1
    after = before + extra_state
    flag = .true.
    ierror = MPI_SUCCESS
  end subroutine
  subroutine delete(comm, keyval, val, extra_state, ierror)
    integer :: comm, keyval, ierror
    integer(MPI_ADDRESS_KIND) :: val, extra_state
    deleted = deleted + 1
    ierror = MPI_SUCCESS
  end subroutine
  subroutine query(extra_state, status, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer :: status(MPI_STATUS_SIZE), ierror
    status(MPI_TAG) = int(extra_state)
    call MPI_Status_set_elements(status, MPI_INTEGER, 5, ierror)
    call MPI_Status_set_cancelled(status, cancelled, ierror)
  end subroutine
  subroutine release(extra_state, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    integer :: ierror
    deleted = deleted + int(extra_state)
    ierror = MPI_ERR_QUOTA
  end subroutine
  subroutine cancel(extra_state, complete, ierror)
    integer(MPI_ADDRESS_KIND) :: extra_state
    logical :: complete
    integer :: ierror
    cancelled = .not. complete
    ierror = MPI_SUCCESS
  end subroutine
end module

program module_mpi
  use mpi
  use callbacks
  use, intrinsic :: iso_c_binding
  implicit none
  integer :: ierr, rank, size
  call MPI_Init(ierr)
  call MPI_Comm_rank(MPI_COMM_WORLD, rank, ierr)
  call MPI_Comm_size(MPI_COMM_WORLD, size, ierr)
  call completion
  ! MPICH 5.0.2 ends by a signal.
  if (is_canele()) call partitions
  call generalized
  call operations
  call errors
  call attributes
  call topologies
  call texts
  call memory
  call facts
  call MPI_Finalize(ierr)
  if (rank == 0) print *, 'no errors'
contains
  subroutine expect(is, what)
    logical, intent(in) :: is
    character(*), intent(in) :: what
    if (is) return
    print *, 'wrong: ', what, rank
    call MPI_Abort(MPI_COMM_WORLD, 1, ierr)
  end subroutine

  ! Other libraries with the standard ABI can do less.
  logical function is_canele()
    character(MPI_MAX_LIBRARY_VERSION_STRING) :: version
    integer :: length
    call MPI_Get_library_version(version, length, ierr)
    is_canele = index(version, 'Canele') /= 0
  end function

  ! Indices count from 1, and MPI_UNDEFINED stays.
  subroutine partitions
    integer, asynchronous :: values(6), into(6)
    integer :: requests(2), i, statuses(MPI_STATUS_SIZE, 2)
    logical :: flag
    call MPI_Precv_init(into, 3, 2_MPI_COUNT_KIND, MPI_INTEGER, mod(rank + size - 1, size), 1, MPI_COMM_WORLD, &
                        MPI_INFO_NULL, requests(1), ierr)
    call MPI_Psend_init(values, 6, 1_MPI_COUNT_KIND, MPI_INTEGER, mod(rank + 1, size), 1, MPI_COMM_WORLD, &
                        MPI_INFO_NULL, requests(2), ierr)
    do i = 1, 3
      values = [1, 2, 3, 4, 5, 6] * i
      into = 0
      call MPI_Startall(2, requests, ierr)
      call MPI_Pready(5, requests(2), ierr)
      call MPI_Pready(4, requests(2), ierr)
      flag = .false.
      do while (.not. flag)
        call MPI_Parrived(requests(1), 2, flag, ierr)
      end do
      call expect(all(into(5:) == [5, 6] * i), 'a partition that has arrived')
      call MPI_Pready_range(0, 3, requests(2), ierr)
      call MPI_Waitall(2, requests, statuses, ierr)
      call expect(all(into == values), 'a partitioned message')
    end do
    call MPI_Request_free(requests(1), ierr)
    call MPI_Request_free(requests(2), ierr)
  end subroutine

  subroutine completion
    integer :: requests(3), values(3), i, index, outcount, indices(3), statuses(MPI_STATUS_SIZE, 3)
    logical :: flag, seen(3)
    seen = .false.
    do i = 1, 3
      call MPI_Irecv(values(i), 1, MPI_INTEGER, rank, i, MPI_COMM_WORLD, requests(i), ierr)
    end do
    call MPI_Send(20, 1, MPI_INTEGER, rank, 2, MPI_COMM_WORLD, ierr)
    call MPI_Waitany(3, requests, index, MPI_STATUS_IGNORE, ierr)
    call expect(index == 2 .and. values(2) == 20, 'MPI_Waitany')
    call MPI_Send(10, 1, MPI_INTEGER, rank, 1, MPI_COMM_WORLD, ierr)
    call MPI_Send(30, 1, MPI_INTEGER, rank, 3, MPI_COMM_WORLD, ierr)
    do while (.not. all(seen([1, 3])))
      call MPI_Waitsome(3, requests, outcount, indices, statuses, ierr)
      do i = 1, outcount
        call expect(statuses(MPI_TAG, i) == indices(i), 'the status of an index')
        seen(indices(i)) = .true.
      end do
    end do
    call expect(.not. seen(2), 'MPI_Waitsome')
    ! An element stands for the array that begins with it.
    call MPI_Testany(3, requests, index, flag, statuses(1, 2), ierr)
    call expect(flag .and. index == MPI_UNDEFINED, 'MPI_Testany without requests')
    call MPI_Waitsome(3, requests, outcount, indices, MPI_STATUSES_IGNORE, ierr)
    call expect(outcount == MPI_UNDEFINED, 'MPI_Waitsome without requests')
  end subroutine

  ! The program's functions say how a generalized request ends.
  subroutine generalized
    integer :: request, status(MPI_STATUS_SIZE), elements
    logical :: flag
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN, ierr)
    call MPI_Grequest_start(query, release, cancel, 7_MPI_ADDRESS_KIND, request, ierr)
    call MPI_Test(request, flag, status, ierr)
    call expect(.not. flag, 'MPI_Test of a generalized request')
    call MPI_Cancel(request, ierr)
    call MPI_Grequest_complete(request, ierr)
    call MPI_Wait(request, status, ierr)
    call expect(ierr == MPI_ERR_QUOTA .and. request == MPI_REQUEST_NULL .and. deleted == 7, 'the function to free')
    call MPI_Get_elements(status, MPI_INTEGER, elements, ierr)
    call MPI_Test_cancelled(status, flag, ierr)
    call expect(status(MPI_TAG) == 7 .and. elements == 5 .and. flag, 'the status of a generalized request')
    deleted = 0
    call MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL, ierr)
  end subroutine

  subroutine operations
    integer :: op, values(3), both(2)
    logical :: commutes, all_of_them
    call MPI_Op_create(product_of, .true., op, ierr)
    call MPI_Op_commutative(op, commutes, ierr)
    call expect(commutes, 'MPI_Op_commutative')
    values = 2
    call MPI_Allreduce(MPI_IN_PLACE, values, 3, MPI_INTEGER, op, MPI_COMM_WORLD, ierr)
    call expect(all(values == 2**size), 'an operation')
    call MPI_Op_free(op, ierr)
    call expect(op == MPI_OP_NULL, 'MPI_Op_free')
    call MPI_Allreduce(rank == 0, all_of_them, 1, MPI_LOGICAL, MPI_LAND, MPI_COMM_WORLD, ierr)
    call expect(all_of_them .eqv. size == 1, 'MPI_LAND')
    call MPI_Allreduce([rank, rank], both, 1, MPI_2INTEGER, MPI_MAXLOC, MPI_COMM_WORLD, ierr)
    call expect(all(both == size - 1), 'MPI_MAXLOC')
  end subroutine

  subroutine errors
    integer :: errhandler, class
    call MPI_Comm_create_errhandler(handler, errhandler, ierr)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, errhandler, ierr)
    call MPI_Send(rank, 1, MPI_INTEGER, size, 0, MPI_COMM_WORLD, ierr)
    call MPI_Error_class(ierr, class, ierr)
    ! MPICH 5.0.2 forgets the code once a handler has returned, with the standard ABI.
    call expect(handled == 1 .and. (class == MPI_ERR_RANK .or. .not. is_canele()), 'an error handler')
    call MPI_Errhandler_free(errhandler, ierr)
    call MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL, ierr)
  end subroutine

  ! Values of attributes in both languages, and as callbacks see them.
  subroutine attributes
    integer :: key, dup, old
    integer(MPI_ADDRESS_KIND) :: val, address
    integer(MPI_ADDRESS_KIND), external :: attribute_in_c, set_in_c
    logical :: flag
    integer(MPI_ADDRESS_KIND), parameter :: wide = 5000000000_MPI_ADDRESS_KIND
    call MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, val, flag, ierr)
    call expect(flag .and. val >= 32767, 'MPI_TAG_UB')
    call MPI_Comm_create_keyval(copy, delete, key, 7_MPI_ADDRESS_KIND, ierr)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, val, flag, ierr)
    call expect(.not. flag, 'no attribute')
    call MPI_Comm_set_attr(MPI_COMM_WORLD, key, wide, ierr)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, val, flag, ierr)
    call expect(flag .and. val == wide, 'an attribute')
    call expect(attribute_in_c(MPI_COMM_WORLD, key) == wide, 'an attribute in C')
    call MPI_Comm_dup(MPI_COMM_WORLD, dup, ierr)
    call MPI_Comm_get_attr(dup, key, val, flag, ierr)
    call expect(flag .and. val == wide + 7 .and. copied == 1, 'a copied attribute')
    call MPI_Comm_free(dup, ierr)
    call expect(deleted == 1, 'a deleted attribute')
    address = set_in_c(MPI_COMM_WORLD, key)
    call MPI_Comm_get_attr(MPI_COMM_WORLD, key, val, flag, ierr)
    call expect(val == address .and. deleted == 2, 'an attribute that C has set')
    call MPI_Comm_delete_attr(MPI_COMM_WORLD, key, ierr)
    call MPI_Comm_free_keyval(key, ierr)
    call expect(key == MPI_KEYVAL_INVALID .and. deleted == 3, 'MPI_Comm_free_keyval')
    call MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, key, 0_MPI_ADDRESS_KIND, ierr)
    call MPI_Comm_set_attr(MPI_COMM_SELF, key, -3_MPI_ADDRESS_KIND, ierr)
    call MPI_Comm_dup(MPI_COMM_SELF, dup, ierr)
    call MPI_Comm_get_attr(dup, key, val, flag, ierr)
    call expect(flag .and. val == -3, 'MPI_COMM_DUP_FN')
    call MPI_Comm_free(dup, ierr)
    ! MPI-1
    call MPI_Keyval_create(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, key, 0, ierr)
    call MPI_Attr_put(MPI_COMM_SELF, key, -9, ierr)
    call MPI_Attr_get(MPI_COMM_SELF, key, old, flag, ierr)
    call expect(flag .and. old == -9, 'MPI_Attr_get')
    call MPI_Comm_dup(MPI_COMM_SELF, dup, ierr)
    call MPI_Attr_get(dup, key, old, flag, ierr)
    call expect(.not. flag, 'MPI_NULL_COPY_FN')
    call MPI_Comm_free(dup, ierr)
  end subroutine

  subroutine topologies
    integer :: comm, dims(1), coords(1), from, to, n, graph, degrees(3)
    logical :: periods(1), is_weighted
    dims = size
    call MPI_Cart_create(MPI_COMM_WORLD, 1, dims, [.true.], .false., comm, ierr)
    call MPI_Cart_get(comm, 1, dims, periods, coords, ierr)
    call expect(periods(1) .and. dims(1) == size .and. coords(1) == rank, 'MPI_Cart_get')
    call MPI_Cart_shift(comm, 0, 1, from, to, ierr)
    call expect(to == mod(rank + 1, size), 'MPI_Cart_shift')
    call MPI_Comm_free(comm, ierr)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, [from], MPI_UNWEIGHTED, 1, [to], MPI_UNWEIGHTED, &
      MPI_INFO_NULL, .false., graph, ierr)
    call MPI_Dist_graph_neighbors_count(graph, degrees(1), degrees(2), is_weighted, ierr)
    call expect(all(degrees(:2) == 1) .and. .not. is_weighted, 'MPI_UNWEIGHTED')
    call MPI_Neighbor_alltoallw([rank], [1], [0_MPI_ADDRESS_KIND], [MPI_INTEGER], n, [1], [0_MPI_ADDRESS_KIND], &
      [MPI_INTEGER], graph, ierr)
    call expect(n == from, 'MPI_Neighbor_alltoallw')
    call MPI_Comm_free(graph, ierr)
    call MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 0, [from], MPI_WEIGHTS_EMPTY, 0, [to], MPI_WEIGHTS_EMPTY, &
      MPI_INFO_NULL, .false., graph, ierr)
    call MPI_Dist_graph_neighbors_count(graph, degrees(1), degrees(2), is_weighted, ierr)
    call expect(is_weighted, 'MPI_WEIGHTS_EMPTY')
    call MPI_Comm_free(graph, ierr)
  end subroutine

  subroutine texts
    integer :: info, length, nkeys
    logical :: flag
    character(8) :: text
    character(MPI_MAX_INFO_KEY) :: key
    call MPI_Info_create(info, ierr)
    call MPI_Info_set(info, '  colour ', '  blue  ', ierr)
    call MPI_Info_get(info, 'colour', 8, text, flag, ierr)
    call expect(flag .and. text == 'blue', 'MPI_Info_get')
    call MPI_Info_get_valuelen(info, 'colour', length, flag, ierr)
    call expect(flag .and. length == 4, 'MPI_Info_get_valuelen')
    text = 'unchanged'
    call MPI_Info_get(info, 'none', 8, text, flag, ierr)
    call expect(.not. flag .and. text == 'unchange', 'no value')
    length = 3
    call MPI_Info_get_string(info, 'colour', length, text, flag, ierr)
    call expect(flag .and. length == 4 .and. text == 'blu', 'MPI_Info_get_string')
    call MPI_Info_get_nkeys(info, nkeys, ierr)
    call MPI_Info_get_nthkey(info, 0, key, ierr)
    call expect(nkeys == 1 .and. key == 'colour', 'MPI_Info_get_nthkey')
    call MPI_Info_free(info, ierr)
    call expect(info == MPI_INFO_NULL, 'MPI_Info_free')
  end subroutine

  ! What the library tells C of Fortran.
  subroutine facts
    integer :: info, length
    character(8) :: text
    logical :: yes, no, flag
    call MPI_Abi_get_fortran_info(info, ierr)
    length = 8
    call MPI_Info_get_string(info, 'mpi_double_precision_size', length, text, flag, ierr)
    call expect(flag .and. text == '8', 'MPI_Abi_get_fortran_info')
    call MPI_Info_free(info, ierr)
    call MPI_Abi_get_fortran_booleans(4, yes, no, flag, ierr)
    if (.not. flag) call MPI_Abi_set_fortran_booleans(4, .true., .false., ierr)
    yes = .false.
    no = .true.
    call MPI_Abi_get_fortran_booleans(4, yes, no, flag, ierr)
    call expect(flag .and. yes .and. .not. no, 'MPI_Abi_get_fortran_booleans')
  end subroutine

  subroutine memory
    type(c_ptr) :: pointer
    integer(MPI_ADDRESS_KIND) :: address, val
    integer :: win, length, type, unit
    integer, pointer :: values(:)
    real(8) :: matrix(3, 3)
    logical :: flag
    call MPI_Alloc_mem(64_MPI_ADDRESS_KIND, MPI_INFO_NULL, pointer, ierr)
    call c_f_pointer(pointer, values, [16])
    values = rank
    call MPI_Win_create(values, 64_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_WORLD, win, ierr)
    call MPI_Win_get_attr(win, MPI_WIN_SIZE, val, flag, ierr)
    call expect(flag .and. val == 64, 'MPI_WIN_SIZE')
    call MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, val, flag, ierr)
    call expect(flag .and. val == 4, 'MPI_WIN_DISP_UNIT')
    call MPI_Get_address(values, address, ierr)
    call MPI_Win_get_attr(win, MPI_WIN_BASE, val, flag, ierr)
    call expect(flag .and. val == address, 'MPI_WIN_BASE')
    call MPI_Win_fence(0, win, ierr)
    call MPI_Put(rank, 1, MPI_INTEGER, mod(rank + 1, size), 3_MPI_ADDRESS_KIND, 1, MPI_INTEGER, win, ierr)
    call MPI_Win_fence(0, win, ierr)
    call expect(values(4) == mod(rank + size - 1, size), 'MPI_Put')
    call MPI_Win_free(win, ierr)
    call MPI_Free_mem(values, ierr)
    call MPI_Win_allocate_shared(64_MPI_ADDRESS_KIND, 4, MPI_INFO_NULL, MPI_COMM_SELF, pointer, win, ierr)
    call MPI_Win_shared_query(win, 0, val, unit, address, ierr)
    call expect(val == 64 .and. unit == 4 .and. address == transfer(pointer, address), 'MPI_Win_shared_query')
    call MPI_Win_free(win, ierr)
    call MPI_Type_match_size(MPI_TYPECLASS_REAL, 8, type, ierr)
    call MPI_Type_size(type, length, ierr)
    call expect(length == 8, 'MPI_Type_match_size')
    call MPI_F_sync_reg(matrix)
    call expect(MPI_Aint_diff(MPI_Aint_add(address, 5_MPI_ADDRESS_KIND), address) == 5, 'MPI_Aint_add')
  end subroutine
end program
