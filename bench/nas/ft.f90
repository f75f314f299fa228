! FT, Fourier transform: a partial differential equation in three dimensions, solved by fast Fourier transforms.
!
! In space, a rank has planes of the last dimension; in frequency, it has a part of the second. An exchange between all ranks leads
! from one to the other.
module ft
  use net
  use random
  use ft_known
  implicit none
  private
  public :: ft_run
  integer, parameter :: sides(3, 0:3) = reshape([64, 64, 64, 128, 128, 32, 256, 256, 128, 512, 256, 256], [3, 4])
  integer, parameter :: steps(0:3) = [6, 6, 6, 20]
  real(real8), parameter :: pi = acos(-1.0_real8), diffusion = 1e-6_real8
  integer, parameter :: lines = 16 ! transformed together
  integer, parameter :: sampled = 1024
  integer :: n(3), planes, parts ! own planes of the last dimension, own part of the second
  complex(real8), allocatable :: space(:, :, :), frequency(:, :, :), sent(:, :, :), arrived(:, :, :)
  real(real8), allocatable :: factor(:, :, :)
  integer :: longest
  real(real8), allocatable :: cosines(:), sines(:) ! of the longest side
contains
  subroutine ft_run(problem, seconds, right)
    integer, intent(in) :: problem
    real(real8), intent(out) :: seconds
    integer, intent(out) :: right
    real(real8) :: start
    complex(real8) :: known, found
    logical :: is_right
    integer :: step
    n = sides(:, problem)
    planes = n(3) / net_size()
    parts = n(2) / net_size()
    allocate(space(n(1), n(2), planes), factor(n(1), parts, n(3)))
    allocate(frequency(n(1), parts, n(3)), sent(n(1), parts, n(3)), arrived(n(1), parts, n(3)))
    call make_roots()
    space = 0
    call to_frequency() ! touches memory and connections
    sent = 0
    arrived = 0
    call net_barrier()
    start = net_now()
    call make_start()
    call make_factor()
    call to_frequency()
    is_right = .true.
    do step = 1, steps(problem)
      call to_space()
      known = known_sum(problem, step)
      found = checksum()
      is_right = is_right .and. abs((found - known) / known) <= 1e-12_real8
    end do
    seconds = net_now() - start
    right = merge(1, 0, is_right)
    deallocate(space, factor, frequency, sent, arrived, cosines, sines)
  end subroutine

  ! Sets the state at the beginning: random real and imaginary parts.
  subroutine make_start()
    integer(long) :: state
    integer :: i, j, k
    real(real8) :: part
    state = state_after(314159265_long, 2_long * n(1) * n(2) * planes * net_rank())
    do k = 1, planes
      do j = 1, n(2)
        do i = 1, n(1)
          part = draw(state)
          space(i, j, k) = cmplx(part, draw(state), real8)
        end do
      end do
    end do
  end subroutine

  ! Sets what a step of time multiplies each frequency by.
  subroutine make_factor()
    integer :: i, j, k, before
    real(real8) :: by_i(n(1)), by_j, by_k
    before = parts * net_rank()
    by_i = [(decay(i, n(1)), i = 1, n(1))]
    do k = 1, n(3)
      by_k = decay(k, n(3))
      do j = 1, parts
        by_j = decay(before + j, n(2))
        factor(:, j, k) = by_i * (by_j * by_k)
      end do
    end do
  end subroutine

  ! Returns the part that an index of one dimension has in the factor.
  pure real(real8) function decay(index, side)
    integer, intent(in) :: index, side
    integer :: number
    number = modulo(index - 1 + side / 2, side) - side / 2
    decay = exp(-4 * diffusion * pi**2 * number**2)
  end function

  subroutine to_frequency()
    integer :: k, rank
    do k = 1, planes
      call transform_first(space(:, :, k), 1)
      call transform_last(space(:, :, k), n(1), n(2), 1)
    end do
    ! The block for each rank, one behind another.
    do rank = 0, net_size() - 1
      sent(:, :, rank * planes + 1:(rank + 1) * planes) = space(:, rank * parts + 1:(rank + 1) * parts, :)
    end do
    call net_alltoall(sent, frequency, 2 * n(1) * parts * planes)
    call transform_last(frequency, n(1) * parts, n(3), 1)
  end subroutine

  ! Makes a step of time, and transforms its result back.
  subroutine to_space()
    integer :: k, rank
    do k = 1, n(3)
      frequency(:, :, k) = frequency(:, :, k) * factor(:, :, k)
      sent(:, :, k) = frequency(:, :, k)
    end do
    call transform_last(sent, n(1) * parts, n(3), -1)
    call net_alltoall(sent, arrived, 2 * n(1) * parts * planes)
    do rank = 0, net_size() - 1
      space(:, rank * parts + 1:(rank + 1) * parts, :) = arrived(:, :, rank * planes + 1:(rank + 1) * planes)
    end do
    do k = 1, planes
      call transform_last(space(:, :, k), n(1), n(2), -1)
      call transform_first(space(:, :, k), -1)
    end do
  end subroutine

  ! Sums the state at points that lie scattered.
  complex(real8) function checksum()
    complex(real8) :: total
    real(real8) :: sums(2)
    integer :: j, plane
    total = 0
    do j = 1, sampled
      plane = 1 + mod(5 * j, n(3)) - planes * net_rank()
      if (plane < 1 .or. plane > planes) cycle
      total = total + space(1 + mod(j, n(1)), 1 + mod(3 * j, n(2)), plane)
    end do
    sums = [real(total), aimag(total)]
    call net_sum(sums, 2)
    checksum = cmplx(sums(1), sums(2), real8) / product(real(n, real8))
  end function

  subroutine make_roots()
    integer :: i
    longest = maxval(n)
    allocate(cosines(0:longest - 1), sines(0:longest - 1))
    do i = 0, longest - 1
      cosines(i) = cos(2 * pi * i / longest)
      sines(i) = sin(2 * pi * i / longest)
    end do
  end subroutine

  ! Transforms each column of a plane.
  subroutine transform_first(plane, direction)
    complex(real8), intent(inout) :: plane(n(1), n(2))
    integer, intent(in) :: direction
    real(real8) :: re(lines, 0:n(1) - 1), im(lines, 0:n(1) - 1)
    integer :: i, j
    do j = 0, n(2) - lines, lines
      do i = 1, n(1)
        re(:, i - 1) = real(plane(i, j + 1:j + lines))
        im(:, i - 1) = aimag(plane(i, j + 1:j + lines))
      end do
      call transform(re, im, n(1), direction)
      do i = 1, n(1)
        plane(i, j + 1:j + lines) = cmplx(re(:, i - 1), im(:, i - 1), real8)
      end do
    end do
  end subroutine

  ! Transforms each row of a matrix.
  subroutine transform_last(x, rows, side, direction)
    integer, intent(in) :: rows, side, direction
    complex(real8), intent(inout) :: x(rows, side)
    real(real8) :: re(lines, 0:side - 1), im(lines, 0:side - 1)
    integer :: i, j
    do i = 0, rows - lines, lines
      do j = 1, side
        re(:, j - 1) = real(x(i + 1:i + lines, j))
        im(:, j - 1) = aimag(x(i + 1:i + lines, j))
      end do
      call transform(re, im, side, direction)
      do j = 1, side
        x(i + 1:i + lines, j) = cmplx(re(:, j - 1), im(:, j - 1), real8)
      end do
    end do
  end subroutine

  ! Transforms lines of `side` numbers by Stockham's method: by steps of four parts, and one of two if the logarithm is odd.
  subroutine transform(re, im, side, direction)
    integer, intent(in) :: side, direction
    real(real8), intent(inout) :: re(lines, 0:side - 1), im(lines, 0:side - 1)
    real(real8) :: re_next(lines, 0:side - 1), im_next(lines, 0:side - 1)
    integer :: done
    logical :: is_in_next
    done = 1
    is_in_next = .false.
    if (mod(trailz(side), 2) == 1) then
      call step_of_two(re, im, re_next, im_next, side, direction)
      done = 2
      is_in_next = .true.
    end if
    do while (done < side)
      if (is_in_next) then
        call step_of_four(re_next, im_next, re, im, side, done, direction)
      else
        call step_of_four(re, im, re_next, im_next, side, done, direction)
      end if
      is_in_next = .not. is_in_next
      done = 4 * done
    end do
    if (is_in_next) then
      re = re_next
      im = im_next
    end if
  end subroutine

  subroutine step_of_two(re, im, re_next, im_next, side, direction)
    integer, intent(in) :: side, direction
    real(real8), intent(in) :: re(lines, 0:side - 1), im(lines, 0:side - 1)
    real(real8), intent(out) :: re_next(lines, 0:side - 1), im_next(lines, 0:side - 1)
    real(real8) :: dr(lines), di(lines), wr, wi
    integer :: j, other
    do j = 0, side / 2 - 1
      other = j + side / 2
      wr = cosines(j * (longest / side))
      wi = -direction * sines(j * (longest / side))
      re_next(:, 2 * j) = re(:, j) + re(:, other)
      im_next(:, 2 * j) = im(:, j) + im(:, other)
      dr = re(:, j) - re(:, other)
      di = im(:, j) - im(:, other)
      re_next(:, 2 * j + 1) = wr * dr - wi * di
      im_next(:, 2 * j + 1) = wr * di + wi * dr
    end do
  end subroutine

  subroutine step_of_four(re, im, re_next, im_next, side, done, direction)
    integer, intent(in) :: side, done, direction
    real(real8), intent(in) :: re(lines, 0:side - 1), im(lines, 0:side - 1)
    real(real8), intent(out) :: re_next(lines, 0:side - 1), im_next(lines, 0:side - 1)
    real(real8), dimension(lines) :: ar, ai, br, bi, cr, ci, dr, di
    real(real8) :: w(2, 3)
    integer :: groups, i, j, k, from, to, quarter
    groups = side / (4 * done)
    quarter = side / 4
    do j = 0, groups - 1
      do i = 1, 3
        w(1, i) = cosines(i * j * (longest / (4 * groups)))
        w(2, i) = -direction * sines(i * j * (longest / (4 * groups)))
      end do
      do k = 0, done - 1
        from = k + j * done
        to = k + 4 * j * done
        ar = re(:, from) + re(:, from + 2 * quarter)
        ai = im(:, from) + im(:, from + 2 * quarter)
        br = re(:, from) - re(:, from + 2 * quarter)
        bi = im(:, from) - im(:, from + 2 * quarter)
        cr = re(:, from + quarter) + re(:, from + 3 * quarter)
        ci = im(:, from + quarter) + im(:, from + 3 * quarter)
        dr = direction * (im(:, from + quarter) - im(:, from + 3 * quarter))
        di = -direction * (re(:, from + quarter) - re(:, from + 3 * quarter))
        re_next(:, to) = ar + cr
        im_next(:, to) = ai + ci
        re_next(:, to + done) = w(1, 1) * (br + dr) - w(2, 1) * (bi + di)
        im_next(:, to + done) = w(1, 1) * (bi + di) + w(2, 1) * (br + dr)
        re_next(:, to + 2 * done) = w(1, 2) * (ar - cr) - w(2, 2) * (ai - ci)
        im_next(:, to + 2 * done) = w(1, 2) * (ai - ci) + w(2, 2) * (ar - cr)
        re_next(:, to + 3 * done) = w(1, 3) * (br - dr) - w(2, 3) * (bi - di)
        im_next(:, to + 3 * done) = w(1, 3) * (bi - di) + w(2, 3) * (br - dr)
      end do
    end do
  end subroutine
end module

subroutine nas_ft(problem, seconds, right) bind(C)
  use ft
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int), value :: problem
  real(c_double), intent(out) :: seconds
  integer(c_int), intent(out) :: right
  call ft_run(problem, seconds, right)
end subroutine
