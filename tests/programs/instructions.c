/* Ten thousand short messages in batches: sent into an empty window, received when they are there. */
#include <mpi.h>

enum { BATCHES = 100, MESSAGES = 100 };

int main(int argc, char **argv) {
    int provided, rank;
    char data[8] = {0};
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int batch = 0; batch < BATCHES; batch++) {
        for (int i = 0; rank == 0 && i < MESSAGES; i++)
            MPI_Send(data, sizeof data, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int i = 0; rank == 1 && i < MESSAGES; i++)
            MPI_Recv(data, sizeof data, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
