! The pseudo-random numbers of the benchmarks: x(k+1) = a x(k) modulo 2**46, and x(k) / 2**46.
module random
  use, intrinsic :: iso_c_binding
  implicit none
  private
  public :: long, real8, state_after, draw
  integer, parameter :: long = c_int64_t, real8 = c_double
  integer(long), parameter :: multiplier = 1220703125_long ! 5**13
  integer(long), parameter :: half = 2_long**23 - 1, whole = 2_long**46 - 1
  real(real8), parameter :: unit = 0.5_real8**46
contains
  ! Returns a * x modulo 2**46.
  pure integer(long) function product_of(a, x)
    integer(long), intent(in) :: a, x
    integer(long) :: middle
    middle = iand(shiftr(a, 23) * iand(x, half) + iand(a, half) * shiftr(x, 23), half)
    product_of = iand(shiftl(middle, 23) + iand(a, half) * iand(x, half), whole)
  end function

  ! Returns the state after `count` numbers from the state `seed`.
  pure integer(long) function state_after(seed, count)
    integer(long), intent(in) :: seed, count
    integer(long) :: power, left
    state_after = seed
    power = multiplier
    left = count
    do while (left > 0)
      if (iand(left, 1_long) == 1) state_after = product_of(power, state_after)
      power = product_of(power, power)
      left = shiftr(left, 1)
    end do
  end function

  ! Draws the next number.
  real(real8) function draw(state)
    integer(long), intent(inout) :: state
    state = product_of(multiplier, state)
    draw = unit * real(state, real8)
  end function
end module
