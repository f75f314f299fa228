// Prints its name and rank, and starts commands as rank 0: NAME [COMMAND in MPI] [COMMAND after MPI]
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size, failed = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    printf("%s %d of %d\n", argv[1], rank, size);
    fflush(stdout);
    if (rank == 0 && argc > 2) failed |= system(argv[2]);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0 && argc > 3) failed |= system(argv[3]);
    return failed != 0;
}
