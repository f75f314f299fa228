! EP, embarrassingly parallel: pairs of Gaussian deviates, and how many of them lie in each square annulus.
subroutine nas_ep(problem, seconds, right) bind(C)
  use net
  use random
  implicit none
  integer(c_int), value :: problem
  real(c_double), intent(out) :: seconds
  integer(c_int), intent(out) :: right
  integer, parameter :: log_pairs(0:3) = [24, 25, 28, 30], log_batch = 16
  integer(long), parameter :: seed = 271828183
  real(real8), parameter :: known(2, 0:3) = reshape([ &
    -3.247834652034740e3_real8, -6.958407078382297e3_real8, &
    -2.863319731645753e3_real8, -6.320053679109499e3_real8, &
    -4.295875165629892e3_real8, -1.580732573678431e4_real8, &
    4.033815542441498e4_real8, -2.660669192809235e4_real8], [2, 4])
  ! The two sums, then the counts of ten annuli.
  real(real8) :: sums(12), start
  integer(long) :: batches, first, last, batch

  call net_barrier()
  start = net_now()
  batches = 2_long**(log_pairs(problem) - log_batch)
  first = batches * net_rank() / net_size()
  last = batches * (net_rank() + 1) / net_size() - 1
  sums = 0
  do batch = first, last
    call add_batch(state_after(seed, batch * 2_long**(log_batch + 1)))
  end do
  call net_sum(sums, 12)
  seconds = net_now() - start
  right = merge(1, 0, all(abs((sums(1:2) - known(:, problem)) / known(:, problem)) <= 1e-8_real8))
contains
  subroutine add_batch(before)
    integer(long), intent(in) :: before
    integer(long) :: state
    integer :: pair, annulus
    real(real8) :: x, y, square, factor
    state = before
    do pair = 1, 2**log_batch
      x = 2 * draw(state) - 1
      y = 2 * draw(state) - 1
      square = x * x + y * y
      if (square > 1) cycle
      factor = sqrt(-2 * log(square) / square)
      x = x * factor
      y = y * factor
      annulus = 3 + int(max(abs(x), abs(y)))
      sums(annulus) = sums(annulus) + 1
      sums(1) = sums(1) + x
      sums(2) = sums(2) + y
    end do
  end subroutine
end subroutine
