"""Parallel HDF5 by h5py: all ranks write and read one file, independently and collectively, in parts and in blocks by turns.
Usage: h5py_parallel.py FILE. Any number of ranks."""

import sys

import h5py
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, size = comm.rank, comm.size
ROWS, COLUMNS = 64, 1000

with h5py.File(sys.argv[1], "w", driver="mpio", comm=comm) as file:
    assert file.driver == "mpio"
    file.attrs["ranks"] = size
    parts = file.create_dataset("parts", (size * ROWS, COLUMNS), "f8")
    turns = file.create_dataset("turns", (ROWS, size * COLUMNS), "i4")
    chunked = file.create_group("group").create_dataset("chunked", (size * ROWS, COLUMNS), "f4", chunks=(ROWS, COLUMNS))
    parts[rank * ROWS : (rank + 1) * ROWS] = numpy.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) + rank
    with turns.collective:
        turns[:, rank::size] = numpy.full((ROWS, COLUMNS), rank)
    with chunked.collective:
        chunked[rank * ROWS : (rank + 1) * ROWS] = rank + 0.5
    file.atomic = True
    assert file.atomic

with h5py.File(sys.argv[1], "r", driver="mpio", comm=comm) as file:
    assert file.attrs["ranks"] == size
    other = (rank + 1) % size
    rows = slice(other * ROWS, (other + 1) * ROWS)
    assert (file["parts"][rows] == numpy.arange(ROWS * COLUMNS).reshape(ROWS, COLUMNS) + other).all()
    with file["turns"].collective:
        assert (file["turns"][:, other::size] == other).all()
    assert (file["group/chunked"][rows] == other + 0.5).all()

# What one library has written another one reads: the same file, without MPI.
if rank == 0:
    with h5py.File(sys.argv[1], "r") as file:
        assert (file["turns"][:] == numpy.tile(numpy.arange(size), COLUMNS)).all()
right = comm.reduce(1)
if rank == 0:
    print(f"h5py {h5py.__version__} on {right} ranks: ok")
