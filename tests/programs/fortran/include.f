C     Fixed form and mpif.h: messages, statuses, constants with an address, strings.
      program include
      implicit none
      include 'mpif.h'
      integer ierr, rank, size, from, last, length
      integer statuses(MPI_STATUS_SIZE, 2)
      integer requests(2), sums(4), blocks(2), types(2), packed
      integer(kind=MPI_ADDRESS_KIND) places(2)
      real values(2)
      integer number, parts(2), out(2), in(2)
      integer(kind=MPI_COUNT_KIND) each
      logical flag
      character*(MPI_MAX_PROCESSOR_NAME) name
      character*20 short
      character*(MPI_MAX_LIBRARY_VERSION_STRING) version
      double precision began
      common /shared/ number, values
      common /partitioned/ out, in
      call MPI_INIT(ierr)
      call MPI_COMM_RANK(MPI_COMM_WORLD, rank, ierr)
      call MPI_COMM_SIZE(MPI_COMM_WORLD, size, ierr)
      began = MPI_WTIME()
      sums = rank + 1
      call MPI_ALLREDUCE(MPI_IN_PLACE, sums, 4, MPI_INTEGER, MPI_SUM,
     &     MPI_COMM_WORLD, ierr)
      call expect(all(sums .eq. size * (size + 1) / 2), 'MPI_IN_PLACE')
      last = mod(rank + size - 1, size)
      call MPI_IRECV(from, 1, MPI_INTEGER, MPI_ANY_SOURCE, 5,
     &     MPI_COMM_WORLD, requests(1), ierr)
      call MPI_ISEND(rank, 1, MPI_INTEGER, mod(rank + 1, size), 5,
     &     MPI_COMM_WORLD, requests(2), ierr)
      call MPI_WAITALL(2, requests, statuses, ierr)
      call expect(from .eq. last, 'a message')
      call expect(statuses(MPI_SOURCE, 1) .eq. last, 'its source')
      call expect(statuses(MPI_TAG, 1) .eq. 5, 'its tag')
      call expect(all(requests .eq. MPI_REQUEST_NULL), 'requests')
      call MPI_GET_COUNT(statuses(1, 1), MPI_INTEGER, length, ierr)
      call expect(length .eq. 1, 'its length')
      call MPI_WAITALL(2, requests, MPI_STATUSES_IGNORE, ierr)
      call MPI_SENDRECV_REPLACE(from, 1, MPI_INTEGER, rank, 1, rank, 1,
     &     MPI_COMM_WORLD, MPI_STATUS_IGNORE, ierr)
      call expect(from .eq. last, 'MPI_STATUS_IGNORE')
C     MPICH 5.0.2 fails such with the standard ABI.
      call MPI_GET_LIBRARY_VERSION(version, length, ierr)
      if (index(version, 'Canele') .gt. 0) call partitions
C     A datatype of absolute addresses.
      number = rank
      values = rank
      call MPI_GET_ADDRESS(number, places(1), ierr)
      call MPI_GET_ADDRESS(values, places(2), ierr)
      blocks(1) = 1
      blocks(2) = 2
      types(1) = MPI_INTEGER
      types(2) = MPI_REAL
      call MPI_TYPE_CREATE_STRUCT(2, blocks, places, types, packed,
     &     ierr)
      call MPI_TYPE_COMMIT(packed, ierr)
      call MPI_BCAST(MPI_BOTTOM, 1, packed, size - 1, MPI_COMM_WORLD,
     &     ierr)
      call MPI_TYPE_FREE(packed, ierr)
      call expect(number .eq. size - 1, 'MPI_BOTTOM')
      call expect(all(values .eq. size - 1), 'MPI_BOTTOM, reals')
      call MPI_GET_PROCESSOR_NAME(name, length, ierr)
      call expect(len_trim(name) .eq. length, 'name of the processor')
      call MPI_COMM_SET_NAME(MPI_COMM_WORLD, ' all  ', ierr)
      call MPI_COMM_GET_NAME(MPI_COMM_WORLD, short, length, ierr)
      call expect(short .eq. ' all' .and. length .eq. 4, 'a name')
      call MPI_ERROR_STRING(MPI_ERR_RANK, short, length, ierr)
      call expect(ierr .eq. MPI_SUCCESS, 'a text cut off')
      call expect(MPI_WTIME() .ge. began, 'MPI_WTIME')
      call MPI_FINALIZE(ierr)
      if (rank .eq. 0) print *, 'no errors'
      contains
C     A message of two partitions from each rank to the next.
      subroutine partitions
      each = 2
      parts(1) = 1
      parts(2) = 0
      call MPI_PRECV_INIT(in, 1, 2 * each, MPI_INTEGER, last, 6,
     &     MPI_COMM_WORLD, MPI_INFO_NULL, requests(1), ierr)
      call MPI_PSEND_INIT(out, 2, each / 2, MPI_INTEGER,
     &     mod(rank + 1, size), 6, MPI_COMM_WORLD, MPI_INFO_NULL,
     &     requests(2), ierr)
      in = -1
      call MPI_STARTALL(2, requests, ierr)
      out(1) = rank
      out(2) = rank + 1
      call MPI_PREADY_LIST(2, parts, requests(2), ierr)
      call MPI_WAITALL(2, requests, statuses, ierr)
      call MPI_GET_COUNT(statuses(1, 1), MPI_INTEGER, length, ierr)
      call expect(length .eq. 2, 'a partitioned message')
      call expect(in(1) .eq. last, 'its first partition')
      call expect(in(2) .eq. last + 1, 'its second partition')
      call MPI_PARRIVED(requests(1), 0, flag, ierr)
      call expect(flag, 'MPI_PARRIVED of an inactive request')
      call MPI_REQUEST_FREE(requests(1), ierr)
      call MPI_REQUEST_FREE(requests(2), ierr)
      end subroutine
      subroutine expect(is, what)
      logical is
      character*(*) what
      if (is) return
      print *, 'wrong: ', what, rank
      call MPI_ABORT(MPI_COMM_WORLD, 1, ierr)
      end subroutine
      end
