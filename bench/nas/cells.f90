! The partition of BT and SP: the cube is cut into slices in each dimension, and a rank has one cell in each slice of each dimension.
! A sweep along a dimension keeps all ranks busy from its first slice to its last. The ranks are a square number.
module cells
  use net
  use random, only: real8
  use flow
  implicit none
  type cell
    integer :: place(3), n(3), before(3) ! slice, points, and points before them in each dimension
    ! State with two layers around, residual, and what the known solution gives.
    real(real8), allocatable :: u(:, :, :, :), r(:, :, :, :), forcing(:, :, :, :)
  end type
  integer :: side, slices, widest
  integer :: next(3), previous(3) ! ranks with the neighbour cells
  type(cell), allocatable :: own(:)
  real(real8), allocatable, asynchronous :: sent(:), arrived(:), other_arrived(:), other_sent(:)
contains
  ! Takes own cells of a cube, and sets what keeps the known solution steady.
  subroutine take_cells(points)
    integer, intent(in) :: points
    integer :: c, a, b
    side = points
    slices = nint(sqrt(real(net_size())))
    widest = (side + slices - 1) / slices
    a = mod(net_rank(), slices)
    b = net_rank() / slices
    next = [rank_at(a + 1, b), rank_at(a, b + 1), rank_at(a + 1, b - 1)]
    previous = [rank_at(a - 1, b), rank_at(a, b - 1), rank_at(a - 1, b + 1)]
    allocate(own(0:slices - 1))
    do c = 0, slices - 1
      own(c)%place = [modulo(a - c, slices), modulo(b + c, slices), c]
      own(c)%before = side * own(c)%place / slices
      own(c)%n = side * (own(c)%place + 1) / slices - own(c)%before
      associate (n => own(c)%n)
        allocate(own(c)%u(5, -1:n(1) + 2, -1:n(2) + 2, -1:n(3) + 2))
        allocate(own(c)%r(5, n(1), n(2), n(3)), own(c)%forcing(5, n(1), n(2), n(3)))
      end associate
    end do
    allocate(sent(10 * slices * widest**2), arrived(10 * slices * widest**2))
    allocate(other_sent(10 * slices * widest**2), other_arrived(10 * slices * widest**2))
    call make_forcing()
  end subroutine

  subroutine leave_cells()
    deallocate(own, sent, arrived, other_sent, other_arrived)
  end subroutine

  pure integer function rank_at(a, b)
    integer, intent(in) :: a, b
    rank_at = modulo(a, slices) + slices * modulo(b, slices)
  end function

  ! Returns the own cell in a slice of a dimension.
  pure integer function cell_in(d, slice)
    integer, intent(in) :: d, slice
    do cell_in = 0, slices - 1
      if (own(cell_in)%place(d) == slice) return
    end do
  end function

  pure function point_of(before, i, j, k) result(x)
    integer, intent(in) :: before(3), i, j, k
    real(real8) :: x(3)
    x = real(before + [i, j, k] - 1, real8) / (side - 1)
  end function

  subroutine make_forcing()
    integer :: c, i, j, k
    do c = 0, slices - 1
      associate (n => own(c)%n)
        do k = -1, n(3) + 2
          do j = -1, n(2) + 2
            do i = -1, n(1) + 2
              own(c)%u(:, i, j, k) = known_at(point_of(own(c)%before, i, j, k))
            end do
          end do
        end do
      end associate
      own(c)%forcing = 0
      call compute_residual(own(c))
      own(c)%forcing = own(c)%r
    end do
  end subroutine

  subroutine start_state()
    integer :: c, i, j, k
    do c = 0, slices - 1
      associate (n => own(c)%n)
        do k = 1, n(3)
          do j = 1, n(2)
            do i = 1, n(1)
              own(c)%u(:, i, j, k) = start_at(point_of(own(c)%before, i, j, k))
            end do
          end do
        end do
      end associate
    end do
  end subroutine

  ! Exchanges the layers around all cells, and computes how far the state is from being steady.
  subroutine compute_residuals()
    integer :: c
    call exchange_faces()
    do c = 0, slices - 1
      call compute_residual(own(c))
    end do
  end subroutine

  subroutine compute_residual(one)
    type(cell), intent(inout) :: one
    real(real8) :: line(5, -1:widest + 2), sums(5, widest)
    integer :: d, i, j, low(3), high(3), others(2)
    low = max(1, 2 - one%before)
    high = min(one%n, side - 1 - one%before)
    one%r = -one%forcing
    do d = 1, 3
      others = others_of(d)
      do j = low(others(2)), high(others(2))
        do i = low(others(1)), high(others(1))
          call take_line(one, d, i, j, line, sums)
          call add_line(line, sums, one%n(d), one%before(d), side, d)
          call put_line(one, d, i, j, sums)
        end do
      end do
    end do
  end subroutine

  ! Returns the two other dimensions.
  pure function others_of(d) result(others)
    integer, intent(in) :: d
    integer :: others(2)
    others = [merge(2, 1, d == 1), merge(2, 3, d == 3)]
  end function

  ! Takes the state and the residual of a line along a dimension, at a place in the others.
  pure subroutine take_line(one, d, i, j, state, residual)
    type(cell), intent(in) :: one
    integer, intent(in) :: d, i, j
    real(real8), intent(out) :: state(5, -1:widest + 2), residual(5, widest)
    integer :: n
    n = one%n(d)
    select case (d)
    case (1)
      state(:, -1:n + 2) = one%u(:, :, i, j)
      residual(:, 1:n) = one%r(:, :, i, j)
    case (2)
      state(:, -1:n + 2) = one%u(:, i, :, j)
      residual(:, 1:n) = one%r(:, i, :, j)
    case default
      state(:, -1:n + 2) = one%u(:, i, j, :)
      residual(:, 1:n) = one%r(:, i, j, :)
    end select
  end subroutine

  pure subroutine put_line(one, d, i, j, residual)
    type(cell), intent(inout) :: one
    integer, intent(in) :: d, i, j
    real(real8), intent(in) :: residual(5, widest)
    if (d == 1) one%r(:, :, i, j) = residual(:, 1:one%n(1))
    if (d == 2) one%r(:, i, :, j) = residual(:, 1:one%n(2))
    if (d == 3) one%r(:, i, j, :) = residual(:, 1:one%n(3))
  end subroutine

  ! Adds the residuals to the state.
  subroutine add_residuals()
    integer :: c
    do c = 0, slices - 1
      associate (n => own(c)%n)
        own(c)%u(:, 1:n(1), 1:n(2), 1:n(3)) = own(c)%u(:, 1:n(1), 1:n(2), 1:n(3)) + own(c)%r
      end associate
    end do
  end subroutine

  ! Fills two layers of the state around own cells: a message to each of six ranks.
  subroutine exchange_faces()
    integer :: d, upward, downward
    if (slices == 1) return
    do d = 1, 3
      upward = layers_length(d, 0)
      downward = layers_length(d, 1)
      call net_irecv(arrived, layers_length(d, 1), previous(d), 2 * d)
      call net_irecv(other_arrived, layers_length(d, 0), next(d), 2 * d + 1)
      call move_layers(d, 1, sent, .true.)
      call net_isend(sent, upward, next(d), 2 * d)
      call move_layers(d, -1, other_sent, .true.)
      call net_isend(other_sent, downward, previous(d), 2 * d + 1)
      call net_wait()
      call move_layers(d, 1, arrived, .false.)
      call move_layers(d, -1, other_arrived, .false.)
    end do
  end subroutine

  ! Returns the length of the layers of all cells but the last or the first in a dimension.
  pure integer function layers_length(d, first)
    integer, intent(in) :: d, first
    integer :: slice, others(2)
    others = others_of(d)
    layers_length = 0
    do slice = first, slices - 2 + first
      layers_length = layers_length + 10 * product(own(cell_in(d, slice))%n(others))
    end do
  end function

  ! Packs the layers that go in a direction, or puts those that have come from there.
  subroutine move_layers(d, direction, packed, is_packing)
    integer, intent(in) :: d, direction
    logical, intent(in) :: is_packing
    real(real8), intent(inout) :: packed(:)
    integer :: slice, first_slice, first, at, length, n(3), low(3), high(3), c
    ! Upwards, all cells but the last one send, and all but the first one receive.
    first_slice = merge(0, 1, is_packing .eqv. direction > 0)
    at = 0
    do slice = first_slice, slices - 2 + first_slice
      c = cell_in(d, slice)
      n = own(c)%n
      if (is_packing) then
        first = merge(n(d) - 1, 1, direction > 0)
      else
        first = merge(-1, n(d) + 1, direction > 0)
      end if
      low = 1
      high = n
      low(d) = first
      high(d) = first + 1
      length = 5 * product(high - low + 1)
      associate (layers => own(c)%u(:, low(1):high(1), low(2):high(2), low(3):high(3)))
        if (is_packing) then
          packed(at + 1:at + length) = reshape(layers, [length])
        else
          layers = reshape(packed(at + 1:at + length), shape(layers))
        end if
      end associate
      at = at + length
    end do
  end subroutine

  ! Returns the norms of the residual, then of the error.
  function norms()
    real(real8) :: norms(10)
    integer :: c, i, j, k
    norms = 0
    do c = 0, slices - 1
      associate (n => own(c)%n)
        do k = 1, n(3)
          do j = 1, n(2)
            do i = 1, n(1)
              norms(1:5) = norms(1:5) + own(c)%r(:, i, j, k)**2
              norms(6:10) = norms(6:10) + (own(c)%u(:, i, j, k) - known_at(point_of(own(c)%before, i, j, k)))**2
            end do
          end do
        end do
      end associate
    end do
    call net_sum(norms, 10)
    norms = sqrt(norms / real(side - 2, real8)**3)
  end function
end module
