! What LU, BT and SP have in common: the equations of a compressible flow in a cube, and a solution that is known.
module flow
  use random, only: real8
  implicit none
  real(real8), parameter :: c1 = 1.4_real8, c2 = 0.4_real8, c34 = 0.1_real8, c1345 = c1 * 0.1_real8 * 1.4_real8
  real(real8), parameter :: dissipation = 0.25_real8
  ! Diffusion of each component, by dimension.
  real(real8), parameter :: diffusion(3) = [0.75_real8, 0.75_real8, 1.0_real8]
  ! Coefficients of the known solution, a polynomial in each dimension.
  real(real8), parameter :: coefficients(5, 13) = reshape([ &
    2.0_real8, 1.0_real8, 2.0_real8, 2.0_real8, 5.0_real8, &
    0.0_real8, 0.0_real8, 2.0_real8, 2.0_real8, 4.0_real8, &
    0.0_real8, 0.0_real8, 0.0_real8, 0.0_real8, 3.0_real8, &
    4.0_real8, 0.0_real8, 0.0_real8, 0.0_real8, 2.0_real8, &
    5.0_real8, 1.0_real8, 0.0_real8, 0.0_real8, 0.1_real8, &
    3.0_real8, 2.0_real8, 2.0_real8, 2.0_real8, 0.4_real8, &
    0.5_real8, 3.0_real8, 3.0_real8, 3.0_real8, 0.3_real8, &
    0.02_real8, 0.01_real8, 0.04_real8, 0.03_real8, 0.05_real8, &
    0.01_real8, 0.03_real8, 0.03_real8, 0.05_real8, 0.04_real8, &
    0.03_real8, 0.02_real8, 0.05_real8, 0.04_real8, 0.03_real8, &
    0.5_real8, 0.4_real8, 0.3_real8, 0.2_real8, 0.1_real8, &
    0.4_real8, 0.3_real8, 0.5_real8, 0.1_real8, 0.3_real8, &
    0.3_real8, 0.5_real8, 0.4_real8, 0.3_real8, 0.2_real8], [5, 13])
contains
  ! Returns the known solution at a point of the unit cube.
  pure function known_at(x) result(u)
    real(real8), intent(in) :: x(3)
    real(real8) :: u(5)
    integer :: d
    u = coefficients(:, 1)
    do d = 1, 3
      u = u + x(d) * (coefficients(:, 1 + d) + x(d) * (coefficients(:, 4 + d) &
        + x(d) * (coefficients(:, 7 + d) + x(d) * coefficients(:, 10 + d))))
    end do
  end function

  ! Returns the state at the beginning: that of the known solution at the faces, and interpolated between them inside.
  pure function start_at(x) result(u)
    real(real8), intent(in) :: x(3)
    real(real8) :: u(5), p(5, 3), low(3), high(3)
    integer :: d
    if (any(x == 0) .or. any(x == 1)) then
      u = known_at(x)
      return
    end if
    do d = 1, 3
      low = x
      low(d) = 0
      high = x
      high(d) = 1
      p(:, d) = (1 - x(d)) * known_at(low) + x(d) * known_at(high)
    end do
    u = p(:, 1) + p(:, 2) + p(:, 3) - p(:, 1) * p(:, 2) - p(:, 2) * p(:, 3) - p(:, 3) * p(:, 1) &
      + p(:, 1) * p(:, 2) * p(:, 3)
  end function

  ! Adds the derivatives along one dimension to `out`, at the inner points of a line. `q` has two more points at each end. The line
  ! begins after `before` of `all` points.
  pure subroutine add_line(q, out, n, before, all, d)
    integer, intent(in) :: n, before, all, d
    real(real8), intent(in) :: q(5, -1:n + 2)
    real(real8), intent(inout) :: out(5, n)
    real(real8) :: convected(5, 0:n + 1), stress(5, n + 1), v(5, 0:n + 1), t1, t2, t3, weights(-2:2), squares(2)
    integer :: i, m, place, first, last
    t3 = all - 1
    t1 = t3**2
    t2 = t3 / 2
    first = max(1, 2 - before)
    last = min(n, all - 1 - before)
    do i = first - 1, last + 1
      v(2:5, i) = q(2:5, i) / q(1, i)
      convected(:, i) = q(:, i) * v(1 + d, i)
      squares(1) = 0.5_real8 * (q(2, i) * v(2, i) + q(3, i) * v(3, i) + q(4, i) * v(4, i))
      convected(1 + d, i) = convected(1 + d, i) + c2 * (q(5, i) - squares(1))
      convected(5, i) = (c1 * q(5, i) - c2 * squares(1)) * v(1 + d, i)
    end do
    do i = first, last + 1
      stress(1, i) = 0
      stress(2:4, i) = v(2:4, i) - v(2:4, i - 1)
      stress(1 + d, i) = 4 / 3.0_real8 * stress(1 + d, i)
      squares = [sum(v(2:4, i)**2) - sum(v(2:4, i - 1)**2), v(1 + d, i)**2 - v(1 + d, i - 1)**2]
      stress(5, i) = 0.5_real8 * (1 - c1 * 1.4_real8) * squares(1) + squares(2) / 6 + c1 * 1.4_real8 * (v(5, i) - v(5, i - 1))
    end do
    do i = first, last
      place = before + i
      weights = [1, -4, 6, -4, 1]
      if (place == 2) weights(-2:0) = [0, 0, 5]
      if (place == 3) weights(-2) = 0
      if (place == all - 2) weights(2) = 0
      if (place == all - 1) weights(0:2) = [5, 0, 0]
      do m = 1, 5
        out(m, i) = out(m, i) - t2 * (convected(m, i + 1) - convected(m, i - 1)) &
          + t1 * (c34 * (stress(m, i + 1) - stress(m, i)) + diffusion(d) * (q(m, i - 1) - 2 * q(m, i) + q(m, i + 1))) &
          - dissipation * sum(weights * q(m, i - 2:i + 2))
      end do
    end do
  end subroutine

  ! Multiplies a vector by the derivative of what convection carries in a dimension.
  pure function convection_times(u, d, x) result(y)
    real(real8), intent(in) :: u(5), x(5)
    integer, intent(in) :: d
    real(real8) :: y(5), v(5), half_square, along
    integer :: p
    p = 1 + d
    v = u / u(1)
    half_square = 0.5_real8 * (v(2)**2 + v(3)**2 + v(4)**2)
    along = v(2) * x(2) + v(3) * x(3) + v(4) * x(4)
    y(2:4) = v(2:4) * (x(p) - v(p) * x(1)) + v(p) * x(2:4)
    y(p) = y(p) + c2 * (half_square * x(1) - along + x(5))
    y(1) = x(p)
    y(5) = (2 * c2 * half_square - c1 * v(5)) * v(p) * x(1) + (c1 * v(5) - c2 * half_square) * x(p) - c2 * v(p) * along &
      + c1 * v(p) * x(5)
  end function

  ! Returns that derivative as a matrix.
  pure function convection(u, d) result(matrix)
    real(real8), intent(in) :: u(5)
    integer, intent(in) :: d
    real(real8) :: matrix(5, 5), v(5), half_square
    integer :: p, m
    p = 1 + d
    v = u / u(1)
    half_square = 0.5_real8 * (v(2)**2 + v(3)**2 + v(4)**2)
    matrix = 0
    do m = 2, 4
      matrix(m, 1) = -v(m) * v(p)
      matrix(m, m) = v(p)
      matrix(5, m) = -c2 * v(p) * v(m)
    end do
    matrix(2:4, p) = matrix(2:4, p) + v(2:4)
    matrix(p, 1) = matrix(p, 1) + c2 * half_square
    matrix(p, 2:4) = matrix(p, 2:4) - c2 * v(2:4)
    matrix(p, 5) = c2
    matrix(1, p) = 1
    matrix(5, 1) = (2 * c2 * half_square - c1 * v(5)) * v(p)
    matrix(5, p) = matrix(5, p) + c1 * v(5) - c2 * half_square
    matrix(5, 5) = c1 * v(p)
  end function

  ! Returns what friction and diffusion give, as a matrix.
  pure function spread_out(u, d) result(matrix)
    real(real8), intent(in) :: u(5)
    integer, intent(in) :: d
    real(real8) :: matrix(5, 5), column(5), diagonal(5), row(5)
    integer :: m
    call friction(u, d, column, diagonal, row)
    matrix = 0
    matrix(:, 1) = column
    matrix(5, 2:4) = row(2:4)
    do m = 1, 5
      matrix(m, m) = matrix(m, m) + diagonal(m) + diffusion(d)
    end do
  end function

  ! Returns the derivative of friction. Its matrix has a first column, a diagonal and a last row.
  pure subroutine friction(u, d, column, diagonal, row)
    real(real8), intent(in) :: u(5)
    integer, intent(in) :: d
    real(real8), intent(out) :: column(5), diagonal(5), row(5)
    real(real8) :: weight(5), v(5)
    v = u / u(1)
    weight = c34
    weight(1 + d) = 4 / 3.0_real8 * c34
    diagonal = weight / u(1)
    diagonal(1) = 0
    diagonal(5) = c1345 / u(1)
    row = 0
    row(2:4) = (weight(2:4) - c1345) * v(2:4) / u(1)
    column = 0
    column(2:4) = -weight(2:4) * v(2:4) / u(1)
    column(5) = -(sum((weight(2:4) - c1345) * v(2:4)**2) + c1345 * v(5)) / u(1)
  end subroutine

  pure function friction_times(u, d, x) result(y)
    real(real8), intent(in) :: u(5), x(5)
    integer, intent(in) :: d
    real(real8) :: y(5), column(5), diagonal(5), row(5)
    call friction(u, d, column, diagonal, row)
    y = column * x(1) + diagonal * x
    y(5) = y(5) + dot_product(row, x)
  end function
end module
