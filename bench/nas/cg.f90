! CG, conjugate gradient: the least eigenvalue of a sparse symmetric matrix with a random pattern, by inverse iteration.
!
! Ranks form a grid of rows and columns, with as many columns as rows or twice as many. A rank holds a block of the matrix. A
! vector is cut into one part per column, which all ranks of the column have. The rows of a block are one part or two.
module cg
  use net
  use random
  implicit none
  private
  public :: cg_run
  type size_of
    integer :: order, nonzero, iterations
    real(real8) :: shift, zeta
  end type
  type(size_of), parameter :: sizes(0:3) = [ &
    size_of(1400, 7, 15, 10, 8.5971775078648_real8), &
    size_of(7000, 8, 15, 12, 10.362595087124_real8), &
    size_of(14000, 11, 15, 20, 17.130235054029_real8), &
    size_of(75000, 13, 75, 60, 22.712745482631_real8)]
  integer, parameter :: steps = 25
  real(real8), parameter :: condition = 0.1_real8
  integer :: order, rows, columns, row, column ! of the matrix, grid of ranks, own place
  integer :: top, height, left, width          ! own block: before its first row, rows, before its first column, columns
  ! Elements of own row i are start(i) to start(i + 1) - 1.
  integer, allocatable :: start(:), place(:)
  real(real8), allocatable :: element(:)
  ! Product of own block with a vector, and another rank's.
  real(real8), allocatable, asynchronous :: product(:), arrived(:)
contains
  subroutine cg_run(problem, seconds, right)
    integer, intent(in) :: problem
    real(real8), intent(out) :: seconds
    integer, intent(out) :: right
    type(size_of) :: of
    real(real8), allocatable :: x(:), z(:)
    real(real8) :: zeta, began
    integer :: iteration
    of = sizes(problem)
    order = of%order
    call place_ranks()
    call make_matrix(of%nonzero, of%shift)
    allocate(product(height), arrived(height), x(width), z(width))
    x = 1
    call iterate(of%shift, x, z, zeta)
    x = 1
    call net_barrier()
    began = net_now()
    do iteration = 1, of%iterations
      call iterate(of%shift, x, z, zeta)
    end do
    seconds = net_now() - began
    right = merge(1, 0, abs(zeta - of%zeta) / of%zeta <= 1e-10_real8)
    deallocate(product, arrived, start, place, element)
  end subroutine

  subroutine place_ranks()
    integer :: parts
    rows = 1
    columns = 1
    do while (rows * columns < net_size())
      if (columns == rows) then
        columns = 2 * columns
      else
        rows = 2 * rows
      end if
    end do
    row = net_rank() / columns
    column = mod(net_rank(), columns)
    parts = columns / rows
    left = before_part(column)
    width = before_part(column + 1) - left
    top = before_part(row * parts)
    height = before_part((row + 1) * parts) - top
  end subroutine

  ! Returns the number of rows, or columns, before a part.
  pure integer function before_part(part)
    integer, intent(in) :: part
    before_part = int(int(part, long) * order / columns)
  end function

  pure integer function rank_at(at_row, at_column)
    integer, intent(in) :: at_row, at_column
    rank_at = at_row * columns + at_column
  end function

  ! One step of inverse iteration.
  subroutine iterate(shift, x, z, zeta)
    real(real8), intent(in) :: shift
    real(real8), intent(inout) :: x(:), z(:)
    real(real8), intent(out) :: zeta
    real(real8) :: sums(2)
    call solve(x, z)
    sums = [dot_product(x, z), dot_product(z, z)]
    call sum_over_columns(sums)
    zeta = shift + 1 / sums(1)
    x = z / sqrt(sums(2))
  end subroutine

  ! Solves A z = x approximately, by steps of the conjugate gradient method, and computes the residual.
  subroutine solve(x, z)
    real(real8), intent(in) :: x(:)
    real(real8), intent(out) :: z(:)
    real(real8) :: p(width), r(width), sums(1), rho, before, alpha
    real(real8), asynchronous :: q(width)
    integer :: step
    z = 0
    r = x
    p = x
    sums = dot_product(r, r)
    call sum_over_columns(sums)
    rho = sums(1)
    do step = 1, steps
      call multiply(p, q)
      sums = dot_product(p, q)
      call sum_over_columns(sums)
      alpha = rho / sums(1)
      z = z + alpha * p
      r = r - alpha * q
      before = rho
      sums = dot_product(r, r)
      call sum_over_columns(sums)
      rho = sums(1)
      p = r + (rho / before) * p
    end do
    call multiply(z, q)
    sums = sum((x - q)**2)
    call sum_over_columns(sums)
  end subroutine

  ! Computes q = A p.
  subroutine multiply(p, q)
    real(real8), intent(in) :: p(width)
    real(real8), intent(out), asynchronous :: q(width)
    real(real8) :: total
    integer :: i, k, first, length, half, partner
    do i = 1, height
      total = 0
      do k = start(i), start(i + 1) - 1
        total = total + element(k) * p(place(k))
      end do
      product(i) = total
    end do
    call sum_in_row(first, length)
    if (columns == rows) then
      partner = rank_at(column, row)
    else
      half = mod(column, 2)
      partner = rank_at(column / 2, 2 * row + half)
    end if
    if (partner == net_rank()) then
      q = product(first:first + length - 1)
    else
      call net_irecv(q, width, partner, 2)
      call net_send(product(first), length, partner, 2)
      call net_wait()
    end if
  end subroutine

  ! Sums the products of a row of ranks. If own rows are two parts, it sums only the part that this rank passes on.
  subroutine sum_in_row(first, length)
    integer, intent(out) :: first, length
    integer :: distance, part
    first = 1
    length = height
    distance = 1
    if (columns > rows) then
      part = 2 * row + mod(column, 2)
      call add_others(ieor(column, 1), before_part(ieor(part, 1)) - top + 1, part_length(ieor(part, 1)), &
        before_part(part) - top + 1, part_length(part))
      first = before_part(part) - top + 1
      length = part_length(part)
      distance = 2
    end if
    do while (distance < columns)
      call add_others(ieor(column, distance), first, length, first, length)
      distance = 2 * distance
    end do
  end subroutine

  ! Sends a part of the product to another column, and adds to a part what comes from there.
  subroutine add_others(other, sent, sent_length, added, added_length)
    integer, intent(in) :: other, sent, sent_length, added, added_length
    call net_irecv(arrived, added_length, rank_at(row, other), 1)
    call net_send(product(sent), sent_length, rank_at(row, other), 1)
    call net_wait()
    product(added:added + added_length - 1) = product(added:added + added_length - 1) + arrived(1:added_length)
  end subroutine

  pure integer function part_length(part)
    integer, intent(in) :: part
    part_length = before_part(part + 1) - before_part(part)
  end function

  ! Sums numbers over the columns. All rows do so.
  subroutine sum_over_columns(sums)
    real(real8), intent(inout) :: sums(:)
    real(real8), asynchronous :: others(size(sums)), own(size(sums))
    integer :: distance
    distance = 1
    do while (distance < columns)
      own = sums
      call net_irecv(others, size(sums), rank_at(row, ieor(column, distance)), 3)
      call net_send(own, size(sums), rank_at(row, ieor(column, distance)), 3)
      call net_wait()
      sums = own + others
      distance = 2 * distance
    end do
  end subroutine

  ! Makes own block of the matrix: a weighted sum of outer products of sparse random vectors.
  subroutine make_matrix(nonzero, shift)
    integer, intent(in) :: nonzero
    real(real8), intent(in) :: shift
    integer, allocatable :: index(:, :), lengths(:), at(:)
    real(real8), allocatable :: value(:, :)
    real(real8) :: weight
    integer :: vector, i, j, count
    allocate(index(nonzero + 1, order), value(nonzero + 1, order), lengths(order))
    call make_vectors(nonzero, index, value, lengths)
    allocate(start(height + 1), at(height))
    at = 0
    do vector = 1, order
      count = 0
      do j = 1, lengths(vector)
        if (is_in(index(j, vector) - left, width)) count = count + 1
      end do
      do i = 1, lengths(vector)
        if (is_in(index(i, vector) - top, height)) at(index(i, vector) - top) = at(index(i, vector) - top) + count
      end do
    end do
    start(1) = 1
    do i = 1, height
      start(i + 1) = start(i) + at(i)
      at(i) = start(i)
    end do
    allocate(place(start(height + 1) - 1), element(start(height + 1) - 1))
    weight = 1
    do vector = 1, order
      call add_product(vector, index(:lengths(vector), vector), value(:lengths(vector), vector))
      weight = weight * condition**(1 / real(order, real8))
    end do
    call merge_elements()
  contains
    subroutine add_product(vector, index, value)
      integer, intent(in) :: vector, index(:)
      real(real8), intent(in) :: value(:)
      integer :: i, j, own_row
      do i = 1, size(index)
        own_row = index(i) - top
        if (.not. is_in(own_row, height)) cycle
        do j = 1, size(index)
          if (.not. is_in(index(j) - left, width)) cycle
          place(at(own_row)) = index(j) - left
          element(at(own_row)) = weight * value(i) * value(j)
          ! The diagonal: each vector has an element of its own number.
          if (index(i) == vector .and. index(j) == vector) &
            element(at(own_row)) = element(at(own_row)) + condition - shift
          at(own_row) = at(own_row) + 1
        end do
      end do
    end subroutine
  end subroutine

  pure logical function is_in(index, length)
    integer, intent(in) :: index, length
    is_in = index >= 1 .and. index <= length
  end function

  ! Makes a vector for each row of the matrix: random places and values, and 1/2 at its own number.
  subroutine make_vectors(nonzero, index, value, lengths)
    integer, intent(in) :: nonzero
    integer, intent(out) :: index(:, :), lengths(:)
    real(real8), intent(out) :: value(:, :)
    integer(long) :: state
    integer :: vector, power, found, number
    real(real8) :: drawn
    power = 1
    do while (power < order)
      power = 2 * power
    end do
    state = 314159265
    drawn = draw(state) ! the specification's programs use the first number elsewhere
    do vector = 1, order
      found = 0
      do while (found < nonzero)
        drawn = draw(state)
        number = 1 + int(power * draw(state))
        if (number > order) cycle
        if (any(index(:found, vector) == number)) cycle
        found = found + 1
        index(found, vector) = number
        value(found, vector) = drawn
      end do
      number = findloc(index(:found, vector), vector, 1)
      if (number == 0) then
        found = found + 1
        number = found
        index(number, vector) = vector
      end if
      value(number, vector) = 0.5_real8
      lengths(vector) = found
    end do
  end subroutine

  ! Adds up elements at the same place.
  subroutine merge_elements()
    integer :: known(width), i, k, last, first
    known = 0
    last = 0
    do i = 1, height
      first = last + 1
      do k = start(i), start(i + 1) - 1
        if (known(place(k)) >= first) then
          element(known(place(k))) = element(known(place(k))) + element(k)
        else
          last = last + 1
          known(place(k)) = last
          place(last) = place(k)
          element(last) = element(k)
        end if
      end do
      start(i) = first
    end do
    start(height + 1) = last + 1
  end subroutine
end module

subroutine nas_cg(problem, seconds, right) bind(C)
  use cg
  use, intrinsic :: iso_c_binding
  implicit none
  integer(c_int), value :: problem
  real(c_double), intent(out) :: seconds
  integer(c_int), intent(out) :: right
  call cg_run(problem, seconds, right)
end subroutine
