! MPI_Sizeof in the module mpi, which takes variables of any type and rank.
program size_of
  use mpi
  implicit none
  double precision :: matrix(2, 3)
  character :: letter
  integer :: sizes(2), ierr
  call MPI_Sizeof(matrix, sizes(1), ierr)
  call MPI_Sizeof(letter, sizes(2), ierr)
  if (all(sizes == [8, 1])) print *, 'no errors'
end program
