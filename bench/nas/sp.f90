! SP, scalar pentadiagonal: the equations of a flow by alternating directions, in characteristic variables along each line.
module sp
  use net
  use random, only: real8
  use flow
  use cells
  use directions
  implicit none
  private
  public :: sp_run
  integer, parameter :: sides(0:3) = [12, 36, 64, 102], steps(0:3) = [100, 400, 400, 400]
  real(real8), parameter :: time_steps(0:3) = [0.015_real8, 0.0015_real8, 0.0015_real8, 0.001_real8]
  real(real8), parameter :: known(10, 0:3) = reshape([ &
    2.7470315451339479e-02_real8, 1.0360746705285417e-02_real8, 1.6235745065095532e-02_real8, 1.5840557224455615e-02_real8, &
    3.4849040609362460e-02_real8, 2.7289258557377227e-05_real8, 1.0364446640837285e-05_real8, 1.6154798287166471e-05_real8, &
    1.5750704994480102e-05_real8, 3.4177666183390531e-05_real8, &
    1.893253733584e-03_real8, 1.717075447775e-04_real8, 2.778153350936e-04_real8, 2.887475409984e-04_real8, &
    3.143611161242e-03_real8, 7.542088599534e-05_real8, 6.512852253086e-06_real8, 1.049092285688e-05_real8, &
    1.128838671535e-05_real8, 1.212845639773e-04_real8, &
    2.4799822399300195_real8, 1.1276337964368832_real8, 1.5028977888770491_real8, 1.4217816211695179_real8, &
    2.1292113035138280_real8, 1.0900140297820550e-04_real8, 3.7343951769282091e-05_real8, 5.0092785406541633e-05_real8, &
    4.7671093939528255e-05_real8, 1.3621613399213001e-04_real8, &
    6.903293579998e+01_real8, 3.095134488084e+01_real8, 4.103336647017e+01_real8, 3.864769009604e+01_real8, &
    5.643482272596e+01_real8, 9.810006190188e-03_real8, 1.022827905670e-03_real8, 1.720597911692e-03_real8, &
    1.694479428231e-03_real8, 1.847456263981e-02_real8], [10, 4])
  real(real8), parameter :: root = sqrt(0.5_real8)
  integer, parameter :: passed = 22, returned = 10 ! numbers of a line that the next cell needs, and the one before
  ! Speed by which each component moves beside the flow, and the factor that it has.
  integer, parameter :: factor_of(5) = [1, 1, 1, 2, 3]
  real(real8) :: dt
  ! Two upper diagonals of three factors, after elimination.
  real(real8), allocatable :: upper(:, :, :, :, :)
contains
  subroutine sp_run(problem, seconds, right)
    integer, intent(in) :: problem
    real(real8), intent(out) :: seconds
    integer, intent(out) :: right
    dt = time_steps(problem)
    call take_cells(sides(problem))
    allocate(upper(2, 3, widest, widest**2, 0:slices - 1))
    call measure_steps(steps(problem), passed, known(:, problem), advance, seconds, right)
    deallocate(upper)
    call leave_cells()
  end subroutine

  subroutine advance()
    integer :: d
    call begin_step(dt)
    call change_variables(0)
    do d = 1, 3
      call sweep(d, eliminate, passed, substitute, returned)
      call change_variables(d)
    end do
    call add_residuals()
  end subroutine

  ! Multiplies the residuals by the matrix that leads to the characteristic variables of a dimension: before the first one, between
  ! two, or after the last one.
  subroutine change_variables(after)
    integer, intent(in) :: after
    integer :: c, i, j, k
    do c = 0, slices - 1
      associate (n => own(c)%n)
        do k = 1, n(3)
          do j = 1, n(2)
            do i = 1, n(1)
              own(c)%r(:, i, j, k) = changed(after, own(c)%u(:, i, j, k), own(c)%r(:, i, j, k))
            end do
          end do
        end do
      end associate
    end do
  end subroutine

  pure function changed(after, u, r) result(y)
    integer, intent(in) :: after
    real(real8), intent(in) :: u(5), r(5)
    real(real8) :: y(5), v(3), half_square, sound, t(3)
    select case (after)
    case (0)
      v = u(2:4) / u(1)
      half_square = 0.5_real8 * sum(v**2)
      sound = sound_of(u)
      t(1) = c2 / sound**2 * (half_square * r(1) - dot_product(v, r(2:4)) + r(5))
      t(2) = root / u(1) * (v(1) * r(1) - r(2))
      t(3) = root / u(1) * sound * t(1)
      y = [r(1) - t(1), (r(4) - v(3) * r(1)) / u(1), (v(2) * r(1) - r(3)) / u(1), t(3) - t(2), t(3) + t(2)]
    case (1)
      t(1) = root * r(3)
      t(2) = 0.5_real8 * (r(4) + r(5))
      y = [-r(2), r(1), root * (r(4) - r(5)), t(2) - t(1), t(2) + t(1)]
    case (2)
      t(1) = root * r(1)
      t(2) = 0.5_real8 * (r(4) + r(5))
      y = [root * (r(4) - r(5)), -r(3), r(2), t(2) - t(1), t(2) + t(1)]
    case default
      v = u(2:4) / u(1)
      half_square = 0.5_real8 * sum(v**2)
      sound = sound_of(u)
      t(1) = root * u(1) / sound * (r(4) + r(5))
      t(2) = r(3) + t(1)
      t(3) = root * u(1) * (r(4) - r(5))
      y(1) = t(2)
      y(2) = -u(1) * r(2) + v(1) * t(2)
      y(3) = u(1) * r(1) + v(2) * t(2)
      y(4) = v(3) * t(2) + t(3)
      y(5) = u(1) * (-v(1) * r(2) + v(2) * r(1)) + half_square * t(2) + sound**2 / c2 * t(1) + v(3) * t(3)
    end select
  end function

  ! Returns the speed of sound.
  pure real(real8) function sound_of(u)
    real(real8), intent(in) :: u(5)
    sound_of = sqrt(c1 * c2 * (u(5) - 0.5_real8 * sum(u(2:4)**2) / u(1)) / u(1))
  end function

  subroutine eliminate(one, c, d, arrived, leaving)
    type(cell), intent(inout) :: one
    integer, intent(in) :: c, d
    real(real8), intent(in) :: arrived(*)
    real(real8), intent(inout) :: leaving(*)
    real(real8) :: state(5, -1:widest + 2), x(5, widest)
    ! Of the two rows before: upper diagonals of each factor, and right sides.
    real(real8) :: diagonals(2, 3, 2), rights(5, 2), rows(5, 3)
    integer :: i, j, k, m, line, first, others(2)
    others = others_of(d)
    line = 0
    do k = 1, one%n(others(2))
      do j = 1, one%n(others(1))
        first = passed * line
        line = line + 1
        call take_line(one, d, j, k, state, x)
        diagonals = 0
        rights = 0
        if (one%place(d) > 0) then
          diagonals = reshape(arrived(first + 1:first + 12), [2, 3, 2])
          rights = reshape(arrived(first + 13:first + passed), [5, 2])
        end if
        do i = 1, one%n(d)
          call make_rows(state(:, i - 1:i + 1), d, one%before(d) + i, rows)
          do m = 1, 3
            call eliminate_row(rows(:, m), diagonals(:, m, :))
          end do
          do m = 1, 5
            associate (row => rows(:, factor_of(m)))
              x(m, i) = (x(m, i) - row(1) * rights(m, 1) - row(2) * rights(m, 2)) * row(3)
            end associate
          end do
          diagonals(:, :, 1) = diagonals(:, :, 2)
          diagonals(:, :, 2) = rows(4:5, :)
          rights = reshape([rights(:, 2), x(:, i)], [5, 2])
          upper(:, :, i, line, c) = rows(4:5, :)
        end do
        leaving(first + 1:first + 12) = reshape(diagonals, [12])
        leaving(first + 13:first + passed) = reshape(rights, [10])
        call put_line(one, d, j, k, x)
      end do
    end do
  end subroutine

  ! Eliminates the lower elements of a row by the two rows before. Then the row holds: what multiplies the right sides of those, the
  ! inverse of the diagonal, and the upper elements over the diagonal.
  pure subroutine eliminate_row(row, before)
    real(real8), intent(inout) :: row(5)
    real(real8), intent(in) :: before(2, 2)
    row(2) = row(2) - row(1) * before(1, 1)
    row(3) = 1 / (row(3) - row(1) * before(2, 1) - row(2) * before(1, 2))
    row(4) = (row(4) - row(2) * before(2, 2)) * row(3)
    row(5) = row(5) * row(3)
  end subroutine

  ! Makes the rows of a point for the three factors: flow, and flow with and against the sound.
  pure subroutine make_rows(state, d, place, rows)
    real(real8), intent(in) :: state(5, 3)
    integer, intent(in) :: d, place
    real(real8), intent(out) :: rows(5, 3)
    real(real8) :: first, second, sound(2)
    rows = 0
    rows(3, :) = 1
    if (place == 1 .or. place == side) return
    first = dt * (side - 1) / 2
    second = dt * real(side - 1, real8)**2
    rows(2, :) = -first * state(1 + d, 1) / state(1, 1) - second * spreading(state(1, 1), d)
    rows(3, :) = 1 + 2 * second * spreading(state(1, 2), d)
    rows(4, :) = first * state(1 + d, 3) / state(1, 3) - second * spreading(state(1, 3), d)
    sound = [sound_of(state(:, 1)), sound_of(state(:, 3))]
    rows(2, 2:3) = rows(2, 2:3) + first * sound(1) * [-1, 1]
    rows(4, 2:3) = rows(4, 2:3) + first * sound(2) * [1, -1]
    rows = rows + dt * dissipation * spread(weights_at(place), 2, 3)
  end subroutine

  ! Returns the weights of the dissipation, which are others near the faces.
  pure function weights_at(place) result(weights)
    integer, intent(in) :: place
    real(real8) :: weights(5)
    weights = [1, -4, 6, -4, 1]
    if (place == 2) weights(1:3) = [0, 0, 5]
    if (place == 3) weights(1) = 0
    if (place == side - 2) weights(5) = 0
    if (place == side - 1) weights(3:5) = [5, 0, 0]
  end function

  ! Returns the greatest diffusion of any component, with friction, for a density.
  pure real(real8) function spreading(density, d)
    real(real8), intent(in) :: density
    integer, intent(in) :: d
    real(real8) :: friction_of
    friction_of = c34 / density
    spreading = diffusion(d) + max(4 / 3.0_real8 * friction_of, c1 * 1.4_real8 * friction_of, friction_of)
  end function

  subroutine substitute(one, c, d, arrived, leaving)
    type(cell), intent(inout) :: one
    integer, intent(in) :: c, d
    real(real8), intent(in) :: arrived(*)
    real(real8), intent(inout) :: leaving(*)
    real(real8) :: state(5, -1:widest + 2), x(5, widest), after(5, 2)
    integer :: i, j, k, line, first, others(2)
    others = others_of(d)
    line = 0
    do k = 1, one%n(others(2))
      do j = 1, one%n(others(1))
        first = returned * line
        line = line + 1
        call take_line(one, d, j, k, state, x)
        after = 0
        if (one%place(d) < slices - 1) after = reshape(arrived(first + 1:first + returned), [5, 2])
        do i = one%n(d), 1, -1
          x(:, i) = x(:, i) - upper(1, factor_of, i, line, c) * after(:, 1) - upper(2, factor_of, i, line, c) * after(:, 2)
          after = reshape([x(:, i), after(:, 1)], [5, 2])
        end do
        leaving(first + 1:first + returned) = reshape(after, [returned])
        call put_line(one, d, j, k, x)
      end do
    end do
  end subroutine
end module

subroutine nas_sp(problem, seconds, right) bind(C)
  use sp
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int), value :: problem
  real(c_double), intent(out) :: seconds
  integer(c_int), intent(out) :: right
  call sp_run(problem, seconds, right)
end subroutine
