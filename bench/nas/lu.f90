! LU: a symmetric successive over-relaxation for the equations of a flow.
!
! Ranks form a grid over the first two dimensions. The lower and the upper triangle are solved plane by plane of the third: each
! rank waits for the edges of two neighbours, so that a wave crosses the ranks.
module lu
  use net
  use random, only: real8
  use flow
  implicit none
  private
  public :: lu_run
  integer, parameter :: sides(0:3) = [12, 33, 64, 102], steps(0:3) = [50, 300, 250, 250]
  real(real8), parameter :: time_steps(0:3) = [0.5_real8, 1.5e-3_real8, 2.0_real8, 2.0_real8], relaxation = 1.2_real8
  ! Norms of the residual and of the error, and the surface integral.
  real(real8), parameter :: known(11, 0:3) = reshape([ &
    1.6196343210976702e-02_real8, 2.1976745164821318e-03_real8, 1.5179927653399185e-03_real8, 1.5029584435994323e-03_real8, &
    3.4264073155896461e-02_real8, 6.4223319957960924e-04_real8, 8.4144342047347926e-05_real8, 5.8588269616485186e-05_real8, &
    5.8474222595157350e-05_real8, 1.3103347914111294e-03_real8, 7.8418928865937083_real8, &
    1.236511638192e+01_real8, 1.317228477799_real8, 2.550120713095_real8, 2.326187750252_real8, &
    2.826799444189e+01_real8, 4.867877144216e-01_real8, 5.064652880982e-02_real8, 9.281818101960e-02_real8, &
    8.570126542733e-02_real8, 1.084277417792_real8, 1.161399311023e+01_real8, &
    7.7902107606689367e+02_real8, 6.3402765259692870e+01_real8, 1.9499249727292479e+02_real8, 1.7845301160418537e+02_real8, &
    1.8384760349464247e+03_real8, 2.9964085685471943e+01_real8, 2.8194576365003349_real8, 7.3473412698774742_real8, &
    6.7139225687777051_real8, 7.0715315688392578e+01_real8, 2.6030925604886277e+01_real8, &
    3.5532672969982736e+03_real8, 2.6214750795310692e+02_real8, 8.8333721850952190e+02_real8, 7.7812774739425265e+02_real8, &
    7.3087969592545314e+03_real8, 1.1401176380212709e+02_real8, 8.1098963655421574_real8, 2.8480597317698308e+01_real8, &
    2.5905394567832939e+01_real8, 2.6054907504857413e+02_real8, 4.7887162703308227e+01_real8], [11, 4])
  integer :: side, ranks(2), at(2)
  integer :: n(2), before(2) ! own points in the first two dimensions, and points before them
  real(real8) :: dt
  ! State, residual with a layer around, and what the known solution gives.
  real(real8), allocatable :: u(:, :, :, :), r(:, :, :, :), forcing(:, :, :, :)
  real(real8), allocatable, asynchronous :: edges(:, :) ! sent, received
contains
  subroutine lu_run(problem, seconds, right)
    integer, intent(in) :: problem
    real(real8), intent(out) :: seconds
    integer, intent(out) :: right
    real(real8) :: began, found(11)
    integer :: step
    side = sides(problem)
    dt = time_steps(problem)
    call place_ranks()
    allocate(u(5, -1:n(1) + 2, -1:n(2) + 2, side), r(5, 0:n(1) + 1, 0:n(2) + 1, side), forcing(5, n(1), n(2), side))
    allocate(edges(10 * maxval(n) * side, 4))
    call make_forcing()
    call start_over()
    call relax()
    call start_over()
    call net_barrier()
    began = net_now()
    do step = 1, steps(problem)
      call relax()
    end do
    found(1:5) = norm(r(:, 1:n(1), 1:n(2), :))
    seconds = net_now() - began
    call compare(found(6:10))
    found(11) = surface_integral()
    right = merge(1, 0, all(abs((found - known(:, problem)) / known(:, problem)) <= 1e-8_real8))
    deallocate(u, r, forcing, edges)
  end subroutine

  subroutine place_ranks()
    integer :: d
    ranks = 1
    do while (product(ranks) < net_size())
      d = merge(1, 2, ranks(1) <= ranks(2))
      ranks(d) = 2 * ranks(d)
    end do
    at = [mod(net_rank(), ranks(1)), net_rank() / ranks(1)]
    before = side * at / ranks
    n = side * (at + 1) / ranks - before
  end subroutine

  ! Returns the place of a point in the unit cube.
  pure function place_of(i, j, k) result(x)
    integer, intent(in) :: i, j, k
    real(real8) :: x(3)
    x = real([before(1) + i, before(2) + j, k] - 1, real8) / (side - 1)
  end function

  ! Sets what keeps the known solution steady.
  subroutine make_forcing()
    integer :: i, j, k
    u = 1
    do k = 1, side
      do j = -1, n(2) + 2
        do i = -1, n(1) + 2
          u(:, i, j, k) = known_at(place_of(i, j, k))
        end do
      end do
    end do
    forcing = 0
    call compute_residual()
    forcing = r(:, 1:n(1), 1:n(2), :)
  end subroutine

  subroutine start_over()
    integer :: i, j, k
    do k = 1, side
      do j = 1, n(2)
        do i = 1, n(1)
          u(:, i, j, k) = start_at(place_of(i, j, k))
        end do
      end do
    end do
    call exchange_state()
    call compute_residual()
  end subroutine

  ! One step: the lower triangle upwards, the upper one downwards, and the next residual.
  subroutine relax()
    integer :: k
    r = dt * r
    do k = 2, side - 1
      call solve_plane(k, 1)
    end do
    do k = side - 1, 2, -1
      call solve_plane(k, -1)
    end do
    u(:, 1:n(1), 1:n(2), :) = u(:, 1:n(1), 1:n(2), :) + r(:, 1:n(1), 1:n(2), :) / (relaxation * (2 - relaxation))
    call exchange_state()
    call compute_residual()
  end subroutine

  ! Solves a plane of the lower triangle (direction 1) or of the upper one (-1), after the neighbours there.
  subroutine solve_plane(k, direction)
    integer, intent(in) :: k, direction
    integer :: i, j, low(2), high(2)
    real(real8) :: others(5)
    low = max(1, 2 - before)
    high = min(n, side - 1 - before)
    call receive_edges(k, direction)
    do j = merge(low(2), high(2), direction > 0), merge(high(2), low(2), direction > 0), direction
      do i = merge(low(1), high(1), direction > 0), merge(high(1), low(1), direction > 0), direction
        others = coupling(u(:, i, j, k - direction), 3, r(:, i, j, k - direction), direction) &
          + coupling(u(:, i, j - direction, k), 2, r(:, i, j - direction, k), direction) &
          + coupling(u(:, i - direction, j, k), 1, r(:, i - direction, j, k), direction)
        if (direction > 0) then
          r(:, i, j, k) = solved(u(:, i, j, k), r(:, i, j, k) - relaxation * others)
        else
          r(:, i, j, k) = r(:, i, j, k) - solved(u(:, i, j, k), relaxation * others)
        end if
      end do
    end do
    call send_edges(k, direction)
  end subroutine

  ! Multiplies a neighbour's part of the step by its block of the matrix.
  pure function coupling(state, d, x, direction) result(y)
    real(real8), intent(in) :: state(5), x(5)
    integer, intent(in) :: d, direction
    real(real8) :: y(5)
    y = -direction * dt * (side - 1) / 2 * convection_times(state, d, x) &
      - dt * real(side - 1, real8)**2 * (friction_times(state, d, x) + diffusion(d) * x)
  end function

  ! Solves the block of a point: it has a first column, a diagonal and a last row.
  pure function solved(state, right) result(x)
    real(real8), intent(in) :: state(5), right(5)
    real(real8) :: x(5), column(5), diagonal(5), row(5), sums(5, 3), factor
    integer :: d
    sums = 0
    do d = 1, 3
      call friction(state, d, column, diagonal, row)
      sums(:, 1) = sums(:, 1) + column
      sums(:, 2) = sums(:, 2) + diagonal
      sums(:, 3) = sums(:, 3) + row
    end do
    factor = 2 * dt * real(side - 1, real8)**2
    sums = factor * sums
    sums(:, 2) = sums(:, 2) + 1 + factor * sum(diffusion)
    x(1) = right(1) / sums(1, 2)
    x(2:4) = (right(2:4) - sums(2:4, 1) * x(1)) / sums(2:4, 2)
    x(5) = (right(5) - sums(5, 1) * x(1) - dot_product(sums(2:4, 3), x(2:4))) / sums(5, 2)
  end function

  ! Receives the edges of a plane from the two neighbours that solve it before.
  subroutine receive_edges(k, direction)
    integer, intent(in) :: k, direction
    integer :: d, m
    do d = 1, 2
      if (.not. has_neighbour(d, -direction)) cycle
      m = n(3 - d)
      call net_recv(edges(1, 1), 5 * m, neighbour(d, -direction), 10 + d)
      if (d == 1) then
        r(:, merge(0, n(1) + 1, direction > 0), 1:m, k) = reshape(edges(:5 * m, 1), [5, m])
      else
        r(:, 1:m, merge(0, n(2) + 1, direction > 0), k) = reshape(edges(:5 * m, 1), [5, m])
      end if
    end do
  end subroutine

  subroutine send_edges(k, direction)
    integer, intent(in) :: k, direction
    integer :: d, m
    do d = 1, 2
      if (.not. has_neighbour(d, direction)) cycle
      m = n(3 - d)
      if (d == 1) then
        edges(:5 * m, 1) = reshape(r(:, merge(n(1), 1, direction > 0), 1:m, k), [5 * m])
      else
        edges(:5 * m, 1) = reshape(r(:, 1:m, merge(n(2), 1, direction > 0), k), [5 * m])
      end if
      call net_send(edges(1, 1), 5 * m, neighbour(d, direction), 10 + d)
    end do
  end subroutine

  pure logical function has_neighbour(d, step)
    integer, intent(in) :: d, step
    has_neighbour = at(d) + step >= 0 .and. at(d) + step < ranks(d)
  end function

  pure integer function neighbour(d, step)
    integer, intent(in) :: d, step
    neighbour = net_rank_at(merge(at(1) + step, at(1), d == 1), merge(at(2) + step, at(2), d == 2))
  end function

  pure integer function net_rank_at(first, second)
    integer, intent(in) :: first, second
    net_rank_at = first + ranks(1) * second
  end function

  ! Fills two layers of the state around own points.
  subroutine exchange_state()
    integer :: d, m
    do d = 1, 2
      m = 10 * n(3 - d) * side
      if (has_neighbour(d, -1)) call net_irecv(edges(1, 3), m, neighbour(d, -1), 20 + 2 * d)
      if (has_neighbour(d, 1)) call net_irecv(edges(1, 4), m, neighbour(d, 1), 21 + 2 * d)
      if (has_neighbour(d, 1)) then
        edges(:m, 1) = layers(d, n(d) - 1)
        call net_send(edges(1, 1), m, neighbour(d, 1), 20 + 2 * d)
      end if
      if (has_neighbour(d, -1)) then
        edges(:m, 2) = layers(d, 1)
        call net_send(edges(1, 2), m, neighbour(d, -1), 21 + 2 * d)
      end if
      call net_wait()
      if (has_neighbour(d, -1)) call put_layers(d, -1, edges(:m, 3))
      if (has_neighbour(d, 1)) call put_layers(d, n(d) + 1, edges(:m, 4))
    end do
  end subroutine

  function layers(d, first) result(packed)
    integer, intent(in) :: d, first
    real(real8) :: packed(10 * n(3 - d) * side)
    if (d == 1) packed = reshape(u(:, first:first + 1, 1:n(2), :), [size(packed)])
    if (d == 2) packed = reshape(u(:, 1:n(1), first:first + 1, :), [size(packed)])
  end function

  subroutine put_layers(d, first, packed)
    integer, intent(in) :: d, first
    real(real8), intent(in) :: packed(:)
    if (d == 1) u(:, first:first + 1, 1:n(2), :) = reshape(packed, [5, 2, n(2), side])
    if (d == 2) u(:, 1:n(1), first:first + 1, :) = reshape(packed, [5, n(1), 2, side])
  end subroutine

  ! Computes how far the state is from being steady, at inner points.
  subroutine compute_residual()
    real(real8) :: line(5, -1:side + 2), sums(5, side)
    integer :: i, j, k, low(2), high(2)
    low = max(1, 2 - before)
    high = min(n, side - 1 - before)
    r = 0
    r(:, 1:n(1), 1:n(2), :) = -forcing
    do k = 2, side - 1
      do j = low(2), high(2)
        call add_line(u(:, :, j, k), r(:, 1:n(1), j, k), n(1), before(1), side, 1)
      end do
      do i = low(1), high(1)
        call add_line(u(:, i, :, k), r(:, i, 1:n(2), k), n(2), before(2), side, 2)
      end do
    end do
    line = 1
    do j = low(2), high(2)
      do i = low(1), high(1)
        line(:, 1:side) = u(:, i, j, :)
        sums = r(:, i, j, :)
        call add_line(line, sums, side, 0, side, 3)
        r(:, i, j, :) = sums
      end do
    end do
  end subroutine

  ! Returns the norm of each component at inner points.
  function norm(x)
    real(real8), intent(in) :: x(:, :, :, :)
    real(real8) :: norm(5)
    integer :: low(2), high(2), m
    low = max(1, 2 - before)
    high = min(n, side - 1 - before)
    do m = 1, 5
      norm(m) = sum(x(m, low(1):high(1), low(2):high(2), 2:side - 1)**2)
    end do
    call net_sum(norm, 5)
    norm = sqrt(norm / real(side - 2, real8)**3)
  end function

  ! Compares the state with the known solution.
  subroutine compare(found)
    real(real8), intent(out) :: found(5)
    integer :: i, j, k
    do k = 1, side
      do j = 1, n(2)
        do i = 1, n(1)
          r(:, i, j, k) = known_at(place_of(i, j, k)) - u(:, i, j, k)
        end do
      end do
    end do
    found = norm(r(:, 1:n(1), 1:n(2), :))
  end subroutine

  ! Integrates the pressure over the faces of a box within the cube, by the trapezoidal rule.
  real(real8) function surface_integral()
    integer, parameter :: first(3) = [2, 2, 3]
    integer :: last(3), i, j, k, place(3), d, weight
    real(real8) :: sums(1)
    last = [side - 1, side - 2, side - 1]
    sums = 0
    do k = 1, side
      do j = 1, n(2)
        do i = 1, n(1)
          place = [before(1) + i, before(2) + j, k]
          if (any(place < first .or. place > last)) cycle
          do d = 1, 3
            if (place(d) /= first(d) .and. place(d) /= last(d)) cycle
            weight = product(merge(1, 2, place == first .or. place == last))
            sums = sums + weight * c2 * (u(5, i, j, k) - 0.5_real8 * sum(u(2:4, i, j, k)**2) / u(1, i, j, k))
          end do
        end do
      end do
    end do
    call net_sum(sums, 1)
    surface_integral = 0.25_real8 * sums(1) / real(side - 1, real8)**2
  end function
end module

subroutine nas_lu(problem, seconds, right) bind(C)
  use lu
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int), value :: problem
  real(c_double), intent(out) :: seconds
  integer(c_int), intent(out) :: right
  call lu_run(problem, seconds, right)
end subroutine
