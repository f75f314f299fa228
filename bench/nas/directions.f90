! What BT and SP share: steps that solve all lines along one dimension after the other, and what the cells of a line tell each other.
module directions
  use net
  use random, only: real8
  use cells
  implicit none
  private
  public :: begin_step, measure_steps, sweep
  abstract interface
    subroutine step_taker()
    end subroutine
    ! Solves the lines of a cell in one sense. The same numbers for each line come from the cell before and go to the next one.
    subroutine line_solver(one, c, d, arrived, leaving)
      import :: cell, real8
      type(cell), intent(inout) :: one
      integer, intent(in) :: c, d
      real(real8), intent(in) :: arrived(*)
      real(real8), intent(inout) :: leaving(*)
    end subroutine
  end interface
  real(real8), allocatable, asynchronous :: from_cell(:), to_cell(:)
contains
  ! Takes the steps, and compares norms with the known ones. At most so many numbers of a line go from cell to cell.
  subroutine measure_steps(steps, most, known, advance, seconds, right)
    integer, intent(in) :: steps, most
    real(real8), intent(in) :: known(10)
    procedure(step_taker) :: advance
    real(real8), intent(out) :: seconds
    integer, intent(out) :: right
    real(real8) :: began, found(10)
    integer :: step
    allocate(from_cell(most * widest**2), to_cell(most * widest**2))
    call start_state()
    call advance()
    call start_state()
    call net_barrier()
    began = net_now()
    do step = 1, steps
      call advance()
    end do
    call compute_residuals()
    found = norms()
    seconds = net_now() - began
    right = merge(1, 0, all(abs((found - known) / known) <= 1e-8_real8))
    deallocate(from_cell, to_cell)
  end subroutine

  ! Computes the residuals of a step.
  subroutine begin_step(dt)
    real(real8), intent(in) :: dt
    integer :: c
    call compute_residuals()
    do c = 0, slices - 1
      own(c)%r = dt * own(c)%r
    end do
  end subroutine

  ! Solves all lines along a dimension: elimination from the first slice on, then substitution from the last one back. Each passes so
  ! many numbers of a line.
  subroutine sweep(d, eliminate, eliminated, substitute, substituted)
    integer, intent(in) :: d, eliminated, substituted
    procedure(line_solver) :: eliminate, substitute
    integer :: slice
    do slice = 0, slices - 1
      call pass(slice > 0, previous(d), slice < slices - 1, next(d), 30 + d, eliminated, eliminate)
    end do
    do slice = slices - 1, 0, -1
      call pass(slice < slices - 1, next(d), slice > 0, previous(d), 40 + d, substituted, substitute)
    end do
    call net_wait()
  contains
    subroutine pass(hears, from, tells, to, tag, numbers, solve)
      logical, intent(in) :: hears, tells
      integer, intent(in) :: from, to, tag, numbers
      procedure(line_solver) :: solve
      integer :: c, count
      c = cell_in(d, slice)
      count = numbers * product(own(c)%n(others_of(d)))
      if (hears) call net_irecv(from_cell, count, from, tag)
      call net_wait()
      call solve(own(c), c, d, from_cell, to_cell)
      if (tells) call net_isend(to_cell, count, to, tag)
    end subroutine
  end subroutine
end module
