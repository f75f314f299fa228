"""A client as users write them: mpi4py with NumPy arrays and pickled objects."""
from mpi4py import MPI
import numpy as np

world = MPI.COMM_WORLD
rank, size = world.Get_rank(), world.Get_size()

# allreduce, of arrays and of objects
mine = np.arange(1000, dtype="d") + rank
total = np.empty_like(mine)
world.Allreduce(mine, total, op=MPI.SUM)
assert np.array_equal(total, np.arange(1000) * size + size * (size - 1) / 2)
assert world.allreduce({rank}, op=lambda a, b: a | b) == set(range(size))

# sendrecv of arrays, long enough for a rendezvous
out = np.full(300_000, rank, dtype="i8")
got = np.empty_like(out)
status = MPI.Status()
world.Sendrecv(out, dest=(rank + 1) % size, recvbuf=got, source=MPI.ANY_SOURCE, status=status)
assert status.Get_source() == (rank - 1) % size and status.Get_count(MPI.INT64_T) == 300_000
assert (got == (rank - 1) % size).all()

# a column of a matrix, sent as such
matrix = np.arange(16, dtype="i4").reshape(4, 4) * (rank + 1)
column = MPI.INT32_T.Create_vector(4, 1, 4).Commit()
here = np.empty(4, dtype="i4")
request = world.Isend([matrix.ravel()[1:], 1, column], dest=(rank + 1) % size, tag=3)
world.Recv(here, source=(rank - 1) % size, tag=3)
request.Wait()
assert np.array_equal(here, np.array([1, 5, 9, 13]) * ((rank - 1) % size + 1))
column.Free()

# scatter and gather, of arrays and of pickled objects
parts = np.arange(size * 5, dtype="f4").reshape(size, 5) if rank == 0 else None
part = np.empty(5, dtype="f4")
world.Scatter(parts, part, root=0)
assert np.array_equal(part, np.arange(5) + 5 * rank)
back = np.empty((size, 5), dtype="f4") if rank == 0 else None
world.Gather(part * 2, back, root=0)
assert rank != 0 or np.array_equal(back, parts * 2)
objects = world.gather({"rank": rank, "text": "x" * rank}, root=size - 1)
assert rank != size - 1 or [o["rank"] for o in objects] == list(range(size))
assert world.scatter([[r] * r for r in range(size)] if rank == 0 else None) == [rank] * rank
assert world.bcast({"answer": 42} if rank == 0 else None) == {"answer": 42}

# communicators
half = world.Split(rank % 2, rank)
assert half.allreduce(1) == (size + 1 - rank % 2) // 2
half.Free()

if rank == 0:
    print(f"mpi4py on {size} ranks, {MPI.Get_library_version().split(',')[0]}: ok")
