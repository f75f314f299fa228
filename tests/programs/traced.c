/* Calls that a trace shows: rank 0 sends each other rank 5 short messages and a long one, then all exchange.
   With an argument, the last rank aborts while the others wait for a message of it. */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

enum { SHORT = 8, LONG = 300000, TIMES = 5 };

static char bytes[LONG];

int main(int argc, char **argv)
{
    int rank, size;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i <= TIMES; i++) {
        int length = i < TIMES ? SHORT : LONG;
        if (rank > 0)
            MPI_Recv(bytes, length, MPI_CHAR, 0, 7, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int peer = 1; rank == 0 && peer < size; peer++)
            MPI_Send(bytes, length, MPI_CHAR, peer, 7, MPI_COMM_WORLD);
    }
    if (argc > 1) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == size - 1) {
            usleep(300000);
            abort();
        }
        MPI_Recv(bytes, 1, MPI_CHAR, size - 1, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    double own = rank, sum;
    MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    /* What is not significant here is not looked at. */
    double all[64];
    void *in = rank == 0 ? MPI_IN_PLACE : &own;
    MPI_Gather(in, 1, rank == 0 ? MPI_DATATYPE_NULL : MPI_DOUBLE, all, 1, rank == 0 ? MPI_DOUBLE : MPI_DATATYPE_NULL, 0,
               MPI_COMM_WORLD);
    MPI_Send(bytes, 7, MPI_CHAR, MPI_PROC_NULL, 0, MPI_COMM_WORLD);
    return MPI_Finalize();
}
