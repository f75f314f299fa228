! Asks whether the library reads this compiler's descriptors of arrays right, and whether the compiler passes copies. mpifort
! runs it before it makes mpi_f08, without the lines marked so if a compiler has no variables of assumed rank.
program sections
  use, intrinsic :: iso_c_binding
  implicit none
  interface
    subroutine canele_check_section_f08ts(section, variable, element, number, distances, wrong, copied)
      import :: c_intptr_t
      type(*), dimension(..), target :: section, variable
      integer, intent(in) :: element, number
      integer(c_intptr_t), intent(in) :: distances(*)
      integer, intent(inout) :: wrong, copied
    end subroutine
  end interface
  integer, parameter :: w = c_intptr_t
  type pair
    integer :: x
    double precision :: y
  end type
  integer, target :: a(10), b(3, 4)
  type(pair), target :: pairs(5)
  character(3), target :: words(6)
  integer, pointer :: p(:)
  integer, allocatable :: d(:, :)
  integer :: i, wrong = 0, copied = 0
  a = [(i, i = 1, 10)]
  b = reshape([(i, i = 1, 12)], [3, 4])
  pairs%x = a(:5)
  pairs%y = a(6:)
  words = ['abc', 'def', 'ghi', 'jkl', 'mno', 'pqr']
  call canele_check_section_f08ts(a, a, 4, 10, [0_w, 4_w, 8_w, 12_w, 16_w, 20_w, 24_w, 28_w, 32_w, 36_w], wrong, copied)
  call canele_check_section_f08ts(a(3), a, 4, 1, [8_w], wrong, copied)
  call canele_check_section_f08ts(a(2:9:3), a, 4, 3, [4_w, 16_w, 28_w], wrong, copied)
  call canele_check_section_f08ts(a(9:1:-4), a, 4, 3, [32_w, 16_w, 0_w], wrong, copied)
  call canele_check_section_f08ts(a(5:4), a, 4, 0, [0_w], wrong, copied)
  call canele_check_section_f08ts(b(2:3, ::2), b, 4, 4, [4_w, 8_w, 28_w, 32_w], wrong, copied)
  call canele_check_section_f08ts(b(2, :), b, 4, 4, [4_w, 16_w, 28_w, 40_w], wrong, copied)
  call canele_check_section_f08ts(b(:, 4:1:-3), b, 4, 6, [36_w, 40_w, 44_w, 0_w, 4_w, 8_w], wrong, copied)
  call canele_check_section_f08ts(pairs%y, pairs, 8, 5, [8_w, 24_w, 40_w, 56_w, 72_w], wrong, copied)
  call canele_check_section_f08ts(pairs(4:1:-3)%x, pairs, 4, 2, [48_w, 0_w], wrong, copied)
  call canele_check_section_f08ts(pairs(2:5:2), pairs, 16, 2, [16_w, 48_w], wrong, copied)
  call canele_check_section_f08ts(words(::2), words, 3, 3, [0_w, 6_w, 12_w], wrong, copied)
  p => a(10:2:-4)
  call canele_check_section_f08ts(p, a, 4, 3, [36_w, 20_w, 4_w], wrong, copied)
  call canele_check_section_f08ts(p(::2), a, 4, 2, [36_w, 4_w], wrong, copied)
  allocate (d(0:2, -1:0), source=7)
  call canele_check_section_f08ts(d(::2, :), d, 4, 4, [0_w, 8_w, 12_w, 20_w], wrong, copied)
  call of_a_shape(b(::2, 2:3))
  call of_assumed_size(a)
  call passed_on(a(::5)) ! assumed rank
  if (wrong == 0) print '(a)', trim(merge('right ', 'copied', copied == 0))
contains
  subroutine of_a_shape(x)
    integer, target :: x(-3:, 7:)
    call canele_check_section_f08ts(x, b, 4, 4, [12_w, 20_w, 24_w, 32_w], wrong, copied)
    call canele_check_section_f08ts(x(-2, :), b, 4, 2, [20_w, 32_w], wrong, copied)
  end subroutine
  subroutine of_assumed_size(x)
    integer, target :: x(*)
    call canele_check_section_f08ts(x, a, 4, -1, [0_w], wrong, copied)
  end subroutine
  subroutine passed_on(x) ! assumed rank
    type(*), dimension(..), target :: x ! assumed rank
    call canele_check_section_f08ts(x, a, 4, 2, [0_w, 20_w], wrong, copied) ! assumed rank
  end subroutine ! assumed rank
end program
