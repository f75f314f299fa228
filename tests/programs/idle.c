/* Processor time of ranks that wait in a call for a late rank. Usage: idle recv|barrier SECONDS
   Fails if a waiting rank used 2 % of a core or more. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>

static double processor_s(void) {
    struct rusage use;
    getrusage(RUSAGE_SELF, &use);
    return use.ru_utime.tv_sec + use.ru_stime.tv_sec + (use.ru_utime.tv_usec + use.ru_stime.tv_usec) / 1e6;
}

int main(int argc, char **argv) {
    int rank, size, word = 0;
    double most;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int receive = strcmp(argv[1], "recv") == 0, late = size - 1;
    double seconds = atof(argv[2]);
    /* Links that the wait uses are opened before it. */
    for (int i = 0; i < 3; i++) MPI_Barrier(MPI_COMM_WORLD);
    MPI_Bcast(&word, 1, MPI_INT, late, MPI_COMM_WORLD);
    double start = MPI_Wtime(), used = processor_s();
    if (rank == late) {
        struct timespec pause = {(time_t)seconds, (long)((seconds - (time_t)seconds) * 1e9)};
        nanosleep(&pause, NULL);
    }
    if (!receive)
        MPI_Barrier(MPI_COMM_WORLD);
    else if (rank == late)
        for (int r = 0; r < late; r++) MPI_Send(&word, 1, MPI_INT, r, 1, MPI_COMM_WORLD);
    else
        MPI_Recv(&word, 1, MPI_INT, late, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    double share = 100 * (processor_s() - used) / (MPI_Wtime() - start);
    if (rank == late) share = 0;
    MPI_Allreduce(&share, &most, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    if (rank == 0) printf("idle in %s, %d ranks: at most %.2f %% of a core\n", argv[1], size, most);
    MPI_Finalize();
    return most >= 2;
}
