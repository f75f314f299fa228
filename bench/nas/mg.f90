! MG, multigrid: V-cycles for Poisson's equation on a periodic cube.
!
! Each rank has a box of the cube, with a layer of its neighbours' points around. Grids that are too coarse for every rank to have
! a point are on all ranks.
module mg
  use net
  use random
  implicit none
  private
  public :: mg_run
  type grid
    logical :: is_whole ! all of it is on this rank
    integer :: n(3)
    real(real8), allocatable :: u(:, :, :), r(:, :, :)
  end type
  integer, parameter :: log_sides(0:3) = [5, 7, 8, 8], cycles(0:3) = [4, 4, 4, 20]
  real(real8), parameter :: known(0:3) = [5.307707005734e-5_real8, 6.467329375339e-6_real8, &
    2.433365309069e-6_real8, 1.800564401355e-6_real8]
  ! Weights by distance: of the operator, and of the smoother for class B, and for the others.
  real(real8), parameter :: a(0:3) = [-8 / 3.0_real8, 0.0_real8, 1 / 6.0_real8, 1 / 12.0_real8]
  real(real8), parameter :: c_small(0:3) = [-3 / 8.0_real8, 1 / 32.0_real8, -1 / 64.0_real8, 0.0_real8]
  real(real8), parameter :: c_large(0:3) = [-3 / 17.0_real8, 1 / 33.0_real8, -1 / 61.0_real8, 0.0_real8]
  integer, parameter :: extremes = 10
  real(real8) :: c(0:3)
  integer :: ranks(3), at(3) ! in each dimension: number of ranks, own place
  integer :: top, shared     ! levels: of the finest grid, of the coarsest that is distributed
  type(grid), allocatable :: grids(:), whole(:)
  real(real8), allocatable :: v(:, :, :)
  real(real8), allocatable, asynchronous :: faces(:, :) ! sent down and up, received from up and down
contains
  subroutine mg_run(problem, seconds, right)
    integer, intent(in) :: problem
    real(real8), intent(out) :: seconds
    integer, intent(out) :: right
    real(real8) :: start, norm
    integer :: cycle_number
    c = merge(c_large, c_small, problem == 3)
    top = log_sides(problem)
    call place_ranks()
    call make_grids()
    call make_charges()
    call start_over()
    call v_cycle()
    call start_over()
    call net_barrier()
    start = net_now()
    call residual(grids(top), v)
    do cycle_number = 1, cycles(problem)
      call v_cycle()
      call residual(grids(top), v)
    end do
    norm = norm_of(grids(top))
    seconds = net_now() - start
    right = merge(1, 0, abs(norm - known(problem)) / known(problem) <= 1e-8_real8)
    deallocate(grids, whole, v, faces)
  end subroutine

  ! Halves the last dimension first.
  subroutine place_ranks()
    integer :: dimension, left
    ranks = 1
    left = net_size()
    dimension = 3
    do while (left > 1)
      ranks(dimension) = 2 * ranks(dimension)
      left = left / 2
      dimension = merge(dimension - 1, 3, dimension > 1)
    end do
    at = [mod(net_rank(), ranks(1)), mod(net_rank() / ranks(1), ranks(2)), net_rank() / (ranks(1) * ranks(2))]
  end subroutine

  subroutine make_grids()
    integer :: level
    shared = 1
    do while (2**shared < maxval(ranks))
      shared = shared + 1
    end do
    allocate(grids(shared:top), whole(1:shared))
    do level = shared, top
      grids(level)%is_whole = .false.
      grids(level)%n = 2**level / ranks
      call allocate_points(grids(level))
    end do
    do level = 1, shared
      whole(level)%is_whole = .true.
      whole(level)%n = 2**level
      call allocate_points(whole(level))
    end do
    allocate(faces((maxval(grids(top)%n) + 2)**2, 4))
  end subroutine

  subroutine allocate_points(g)
    type(grid), intent(inout) :: g
    allocate(g%u(0:g%n(1) + 1, 0:g%n(2) + 1, 0:g%n(3) + 1), g%r(0:g%n(1) + 1, 0:g%n(2) + 1, 0:g%n(3) + 1))
    g%u = 0
    g%r = 0
  end subroutine

  subroutine start_over()
    grids(top)%u = 0
    call residual(grids(top), v)
  end subroutine

  ! Sets the right side: -1 at the points with the ten least random numbers, 1 at those with the ten greatest.
  subroutine make_charges()
    integer(long) :: side, state, first
    integer :: j, k, kind, found
    real(real8), allocatable :: numbers(:, :, :)
    real(real8) :: best(1), own
    integer :: place(3)
    associate (n => grids(top)%n)
      allocate(numbers(n(1), n(2), n(3)), v(0:n(1) + 1, 0:n(2) + 1, 0:n(3) + 1))
      side = 2_long**top
      do k = 1, n(3)
        do j = 1, n(2)
          first = ((at(3) * n(3) + k - 1) * side + at(2) * n(2) + j - 1) * side + at(1) * n(1)
          state = state_after(314159265_long, first)
          call draw_row(numbers(:, j, k), state)
        end do
      end do
    end associate
    v = 0
    do kind = 1, 2 ! the greatest, then the least
      if (kind == 2) numbers = 1 - numbers
      do found = 1, extremes
        place = maxloc(numbers)
        own = numbers(place(1), place(2), place(3))
        best = own
        call net_max(best, 1)
        if (best(1) > own) cycle
        v(place(1), place(2), place(3)) = merge(1, -1, kind == 1)
        ! Not found again, neither as the greatest nor as the least.
        numbers(place(1), place(2), place(3)) = merge(1, 0, kind == 1)
        if (kind == 1) numbers(place(1), place(2), place(3)) = 0.5_real8
      end do
    end do
    call exchange(v, grids(top)%n, .false.)
  end subroutine

  subroutine draw_row(numbers, state)
    real(real8), intent(out) :: numbers(:)
    integer(long), intent(inout) :: state
    integer :: i
    do i = 1, size(numbers)
      numbers(i) = draw(state)
    end do
  end subroutine

  ! One V-cycle on the residual of the finest grid.
  subroutine v_cycle()
    integer :: level
    do level = top, shared + 1, -1
      call restrict(grids(level), grids(level - 1))
    end do
    if (shared == 1) then
      grids(1)%u = 0
      call smooth(grids(1))
    else
      call cycle_on_whole()
    end if
    do level = shared + 1, top
      if (level < top) grids(level)%u = 0
      call interpolate(grids(level - 1), grids(level))
      if (level < top) then
        call residual(grids(level))
      else
        call residual(grids(level), v)
      end if
      call smooth(grids(level))
    end do
  end subroutine

  ! The coarse part of the cycle, on all ranks.
  subroutine cycle_on_whole()
    integer :: level, from(3), n(3)
    real(real8) :: points(2**shared, 2**shared, 2**shared)
    n = grids(shared)%n
    from = at * n
    points = 0
    points(from(1) + 1:from(1) + n(1), from(2) + 1:from(2) + n(2), from(3) + 1:from(3) + n(3)) = &
      grids(shared)%r(1:n(1), 1:n(2), 1:n(3))
    call net_sum(points, size(points))
    whole(shared)%r(1:2**shared, 1:2**shared, 1:2**shared) = points
    call exchange(whole(shared)%r, whole(shared)%n, .true.)
    do level = shared, 2, -1
      call restrict(whole(level), whole(level - 1))
    end do
    whole(1)%u = 0
    call smooth(whole(1))
    do level = 2, shared
      whole(level)%u = 0
      call interpolate(whole(level - 1), whole(level))
      call residual(whole(level))
      call smooth(whole(level))
    end do
    grids(shared)%u = whole(shared)%u(from(1):from(1) + n(1) + 1, from(2):from(2) + n(2) + 1, from(3):from(3) + n(3) + 1)
  end subroutine

  ! Subtracts A u from the residual, or from the right side of the finest grid.
  subroutine residual(g, right)
    type(grid), intent(inout) :: g
    real(real8), intent(in), optional :: right(0:, 0:, 0:)
    real(real8) :: near(0:g%n(1) + 1), far(0:g%n(1) + 1), line(g%n(1))
    integer :: i, j, k
    do k = 1, g%n(3)
      do j = 1, g%n(2)
        call sum_around(g%u, j, k, near, far)
        if (present(right)) then
          line = right(1:g%n(1), j, k)
        else
          line = g%r(1:g%n(1), j, k)
        end if
        do i = 1, g%n(1)
          g%r(i, j, k) = line(i) - a(0) * g%u(i, j, k) - a(2) * (far(i) + near(i - 1) + near(i + 1)) &
            - a(3) * (far(i - 1) + far(i + 1))
        end do
      end do
    end do
    call exchange(g%r, g%n, g%is_whole)
  end subroutine

  ! Sums over a row's four nearest rows, and over the four next to them.
  pure subroutine sum_around(x, j, k, near, far)
    real(real8), intent(in) :: x(0:, 0:, 0:)
    integer, intent(in) :: j, k
    real(real8), intent(out) :: near(0:), far(0:)
    integer :: i
    do i = 0, ubound(near, 1)
      near(i) = x(i, j - 1, k) + x(i, j + 1, k) + x(i, j, k - 1) + x(i, j, k + 1)
      far(i) = x(i, j - 1, k - 1) + x(i, j + 1, k - 1) + x(i, j - 1, k + 1) + x(i, j + 1, k + 1)
    end do
  end subroutine

  ! Adds the smoothed residual to u.
  subroutine smooth(g)
    type(grid), intent(inout) :: g
    real(real8) :: near(0:g%n(1) + 1), far(0:g%n(1) + 1)
    integer :: i, j, k
    do k = 1, g%n(3)
      do j = 1, g%n(2)
        call sum_around(g%r, j, k, near, far)
        do i = 1, g%n(1)
          g%u(i, j, k) = g%u(i, j, k) + c(0) * g%r(i, j, k) &
            + c(1) * (g%r(i - 1, j, k) + g%r(i + 1, j, k) + near(i)) + c(2) * (far(i) + near(i - 1) + near(i + 1))
        end do
      end do
    end do
    call exchange(g%u, g%n, g%is_whole)
  end subroutine

  ! Sets the residual of a grid from that of the next finer one.
  subroutine restrict(fine, coarse)
    type(grid), intent(in) :: fine
    type(grid), intent(inout) :: coarse
    real(real8) :: near(0:fine%n(1) + 1), far(0:fine%n(1) + 1)
    integer :: i, j, k, f
    do k = 1, coarse%n(3)
      do j = 1, coarse%n(2)
        call sum_around(fine%r, 2 * j, 2 * k, near, far)
        do i = 1, coarse%n(1)
          f = 2 * i
          coarse%r(i, j, k) = 0.5_real8 * fine%r(f, 2 * j, 2 * k) &
            + 0.25_real8 * (fine%r(f - 1, 2 * j, 2 * k) + fine%r(f + 1, 2 * j, 2 * k) + near(f)) &
            + 0.125_real8 * (near(f - 1) + near(f + 1) + far(f)) + 0.0625_real8 * (far(f - 1) + far(f + 1))
        end do
      end do
    end do
    call exchange(coarse%r, coarse%n, coarse%is_whole)
  end subroutine

  ! Adds the interpolated u of a grid to that of the next finer one, also around own points.
  subroutine interpolate(coarse, fine)
    type(grid), intent(in) :: coarse
    type(grid), intent(inout) :: fine
    real(real8) :: line(0:coarse%n(1) + 1)
    integer :: i, j, k, n
    n = coarse%n(1)
    do k = 0, fine%n(3) + 1
      do j = 0, fine%n(2) + 1
        associate (z => coarse%u, lower_j => j / 2, upper_j => (j + 1) / 2, lower_k => k / 2, upper_k => (k + 1) / 2)
          line = 0.25_real8 * (z(:, lower_j, lower_k) + z(:, upper_j, lower_k) + z(:, lower_j, upper_k) + z(:, upper_j, upper_k))
        end associate
        do i = 0, n
          fine%u(2 * i, j, k) = fine%u(2 * i, j, k) + line(i)
          fine%u(2 * i + 1, j, k) = fine%u(2 * i + 1, j, k) + 0.5_real8 * (line(i) + line(i + 1))
        end do
      end do
    end do
  end subroutine

  real(real8) function norm_of(g)
    type(grid), intent(in) :: g
    real(real8) :: sums(1)
    sums = sum(g%r(1:g%n(1), 1:g%n(2), 1:g%n(3))**2)
    call net_sum(sums, 1)
    norm_of = sqrt(sums(1) / 8.0_real8**top)
  end function

  ! Fills the layer around own points, dimension by dimension, so that edges and corners come along.
  subroutine exchange(x, points, is_whole)
    integer, intent(in) :: points(3)
    real(real8), intent(inout) :: x(0:points(1) + 1, 0:points(2) + 1, 0:points(3) + 1)
    logical, intent(in) :: is_whole
    integer :: d, n, count, below, above
    do d = 1, 3
      n = points(d)
      if (is_whole .or. ranks(d) == 1) then
        select case (d)
        case (1)
          x(0, :, :) = x(n, :, :)
          x(n + 1, :, :) = x(1, :, :)
        case (2)
          x(:, 0, :) = x(:, n, :)
          x(:, n + 1, :) = x(:, 1, :)
        case (3)
          x(:, :, 0) = x(:, :, n)
          x(:, :, n + 1) = x(:, :, 1)
        end select
        cycle
      end if
      count = size(x) / (n + 2)
      below = neighbour(d, -1)
      above = neighbour(d, 1)
      call net_irecv(faces(1, 3), count, above, 2 * d)
      call net_irecv(faces(1, 4), count, below, 2 * d + 1)
      call take_face(x, d, 1, faces(:count, 1))
      call net_send(faces(1, 1), count, below, 2 * d)
      call take_face(x, d, n, faces(:count, 2))
      call net_send(faces(1, 2), count, above, 2 * d + 1)
      call net_wait()
      call put_face(x, d, n + 1, faces(:count, 3))
      call put_face(x, d, 0, faces(:count, 4))
    end do
  end subroutine

  pure integer function neighbour(d, step)
    integer, intent(in) :: d, step
    integer :: place(3)
    place = at
    place(d) = modulo(place(d) + step, ranks(d))
    neighbour = place(1) + ranks(1) * (place(2) + ranks(2) * place(3))
  end function

  pure subroutine take_face(x, d, i, face)
    real(real8), intent(in) :: x(0:, 0:, 0:)
    integer, intent(in) :: d, i
    real(real8), intent(out) :: face(:)
    if (d == 1) face = reshape(x(i, :, :), [size(face)])
    if (d == 2) face = reshape(x(:, i, :), [size(face)])
    if (d == 3) face = reshape(x(:, :, i), [size(face)])
  end subroutine

  pure subroutine put_face(x, d, i, face)
    real(real8), intent(inout) :: x(0:, 0:, 0:)
    integer, intent(in) :: d, i
    real(real8), intent(in) :: face(:)
    if (d == 1) x(i, :, :) = reshape(face, [size(x, 2), size(x, 3)])
    if (d == 2) x(:, i, :) = reshape(face, [size(x, 1), size(x, 3)])
    if (d == 3) x(:, :, i) = reshape(face, [size(x, 1), size(x, 2)])
  end subroutine
end module

subroutine nas_mg(problem, seconds, right) bind(C)
  use mg
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int), value :: problem
  real(c_double), intent(out) :: seconds
  integer(c_int), intent(out) :: right
  call mg_run(problem, seconds, right)
end subroutine
