// The last rank ends the job with the code that is given, while the others wait for it.
#include <mpi.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == size - 1) MPI_Abort(MPI_COMM_WORLD, atoi(argv[1]));
    MPI_Barrier(MPI_COMM_WORLD);
    return MPI_Finalize();
}
