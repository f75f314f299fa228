! BT, block tridiagonal: the equations of a flow by alternating directions, with blocks of five by five along each line.
module bt
  use net
  use random, only: real8
  use flow
  use cells
  use directions
  implicit none
  private
  public :: bt_run
  integer, parameter :: sides(0:3) = [12, 24, 64, 102], steps(0:3) = [60, 200, 200, 200]
  real(real8), parameter :: time_steps(0:3) = [0.01_real8, 0.0008_real8, 0.0008_real8, 0.0003_real8]
  real(real8), parameter :: known(10, 0:3) = reshape([ &
    1.7034283709541311e-01_real8, 1.2975252070034097e-02_real8, 3.2527926989486055e-02_real8, 2.6436421275166801e-02_real8, &
    1.9211784131744430e-01_real8, 4.9976913345811579e-04_real8, 4.5195666782961927e-05_real8, 7.3973765172921357e-05_real8, &
    7.3821238632439731e-05_real8, 8.9269630987491446e-04_real8, &
    1.125590409344e+02_real8, 1.180007595731e+01_real8, 2.710329767846e+01_real8, 2.469174937669e+01_real8, &
    2.638427874317e+02_real8, 4.419655736008_real8, 4.638531260002e-01_real8, 1.011551749967_real8, &
    9.235878729944e-01_real8, 1.018045837718e+01_real8, &
    1.0806346714637264e+02_real8, 1.1319730901220813e+01_real8, 2.5974354511582465e+01_real8, 2.3665622544678910e+01_real8, &
    2.5278963211748344e+02_real8, 4.2348416040525025_real8, 4.4390282496995698e-01_real8, 9.6692480136345650e-01_real8, &
    8.8302063039765474e-01_real8, 9.7379901770829278_real8, &
    1.4233597229287254e+03_real8, 9.9330522590150238e+01_real8, 3.5646025644535285e+02_real8, 3.2485447959084092e+02_real8, &
    3.2707541254659363e+03_real8, 5.2969847140936856e+01_real8, 4.4632896115670668_real8, 1.3122573342210174e+01_real8, &
    1.2006925323559144e+01_real8, 1.2459576151035986e+02_real8], [10, 4])
  integer, parameter :: passed = 30, returned = 5 ! numbers of a line that the next cell needs, and the one before
  real(real8) :: dt
  ! Upper blocks and right sides of the lines of a cell, after elimination.
  real(real8), allocatable :: upper(:, :, :, :, :)
contains
  subroutine bt_run(problem, seconds, right)
    integer, intent(in) :: problem
    real(real8), intent(out) :: seconds
    integer, intent(out) :: right
    dt = time_steps(problem)
    call take_cells(sides(problem))
    allocate(upper(5, 5, widest, widest**2, 0:slices - 1))
    call measure_steps(steps(problem), passed, known(:, problem), advance, seconds, right)
    deallocate(upper)
    call leave_cells()
  end subroutine

  subroutine advance()
    integer :: d
    call begin_step(dt)
    do d = 1, 3
      call sweep(d, eliminate, passed, substitute, returned)
    end do
    call add_residuals()
  end subroutine

  subroutine eliminate(one, c, d, arrived, leaving)
    type(cell), intent(inout) :: one
    integer, intent(in) :: c, d
    real(real8), intent(in) :: arrived(*)
    real(real8), intent(inout) :: leaving(*)
    real(real8) :: state(5, -1:widest + 2), x(5, widest), before(5, 6), rows(5, 11)
    integer :: i, j, k, line, first, others(2)
    others = others_of(d)
    line = 0
    do k = 1, one%n(others(2))
      do j = 1, one%n(others(1))
        first = passed * line
        line = line + 1
        call take_line(one, d, j, k, state, x)
        before = 0
        if (one%place(d) > 0) before = reshape(arrived(first + 1:first + passed), [5, 6])
        do i = 1, one%n(d)
          ! Columns 1 to 5: the diagonal block; 6 to 10: the upper one; 11: the right side.
          call make_row(state(:, i - 1:i + 1), d, one%before(d) + i, before, x(:, i), rows)
          call divide(rows)
          before = rows(:, 6:11)
          upper(:, :, i, line, c) = rows(:, 6:10)
          x(:, i) = rows(:, 11)
        end do
        leaving(first + 1:first + passed) = reshape(before, [passed])
        call put_line(one, d, j, k, x)
      end do
    end do
  end subroutine

  ! Makes a row of blocks without its lower block, which the row before eliminates.
  pure subroutine make_row(state, d, place, before, right, rows)
    real(real8), intent(in) :: state(5, 3), before(5, 6), right(5)
    integer, intent(in) :: d, place
    real(real8), intent(out) :: rows(5, 11)
    real(real8) :: lower(5, 5), first, second
    integer :: m
    if (place == 1 .or. place == side) then
      rows = 0
      do m = 1, 5
        rows(m, m) = 1
      end do
      rows(:, 11) = right
      return
    end if
    first = dt * (side - 1) / 2
    second = dt * real(side - 1, real8)**2
    lower = -first * convection(state(:, 1), d) - second * spread_out(state(:, 1), d)
    rows(:, 1:5) = 2 * second * spread_out(state(:, 2), d)
    rows(:, 6:10) = first * convection(state(:, 3), d) - second * spread_out(state(:, 3), d)
    rows(:, 11) = right - matmul(lower, before(:, 6))
    do m = 1, 5
      rows(m, m) = rows(m, m) + 1
    end do
    rows(:, 1:5) = rows(:, 1:5) - matmul(lower, before(:, 1:5))
  end subroutine

  ! Divides the other columns by the first five, by elimination without exchanges of rows.
  pure subroutine divide(rows)
    real(real8), intent(inout) :: rows(5, 11)
    integer :: i, m
    do m = 1, 5
      rows(m, m + 1:11) = rows(m, m + 1:11) / rows(m, m)
      do i = 1, 5
        if (i /= m) rows(i, m + 1:11) = rows(i, m + 1:11) - rows(i, m) * rows(m, m + 1:11)
      end do
    end do
  end subroutine

  subroutine substitute(one, c, d, arrived, leaving)
    type(cell), intent(inout) :: one
    integer, intent(in) :: c, d
    real(real8), intent(in) :: arrived(*)
    real(real8), intent(inout) :: leaving(*)
    real(real8) :: state(5, -1:widest + 2), x(5, widest), after(5)
    integer :: i, j, k, line, first, m, others(2)
    others = others_of(d)
    line = 0
    do k = 1, one%n(others(2))
      do j = 1, one%n(others(1))
        first = returned * line
        line = line + 1
        call take_line(one, d, j, k, state, x)
        after = 0
        if (one%place(d) < slices - 1) after = arrived(first + 1:first + returned)
        do i = one%n(d), 1, -1
          do m = 1, 5
            x(:, i) = x(:, i) - upper(:, m, i, line, c) * after(m)
          end do
          after = x(:, i)
        end do
        leaving(first + 1:first + returned) = after
        call put_line(one, d, j, k, x)
      end do
    end do
  end subroutine
end module

subroutine nas_bt(problem, seconds, right) bind(C)
  use bt
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int), value :: problem
  real(c_double), intent(out) :: seconds
  integer(c_int), intent(out) :: right
  call bt_run(problem, seconds, right)
end subroutine
