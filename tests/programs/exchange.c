/* Exchanges checked data among all ranks for some seconds. Usage: exchange SECONDS PAUSE
   It pauses after MPI_Init, so that links open after an observer has begun. Rank 0 creates the file that
   EXCHANGE_BEGUN names once all have exchanged with all. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { MOST = 100000 };

int main(int argc, char **argv) {
    int rank, size, on = 1, rounds = 0, failures = 0, all;
    static int out[MOST], in[MOST];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    usleep((useconds_t)(atof(argv[2]) * 1e6));
    const char *begun = getenv("EXCHANGE_BEGUN");
    double end = MPI_Wtime() + atof(argv[1]);
    while (on) {
        int step = 1 + rounds % (size - 1), count = (rounds * 7919) % MOST;
        int next = (rank + step) % size, previous = (rank + size - step) % size;
        for (int i = 0; i < count; i++) out[i] = rank * 31 + rounds + i, in[i] = -1;
        MPI_Sendrecv(out, count, MPI_INT, next, 0, in, count, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < count; i++) failures += in[i] != previous * 31 + rounds + i;
        rounds++;
        if (rank == 0 && rounds == size && begun) close(open(begun, O_CREAT | O_WRONLY, 0666));
        on = MPI_Wtime() < end;
        MPI_Bcast(&on, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d rounds among %d ranks: %d failures\n", rounds, size, all);
    MPI_Finalize();
    return all != 0;
}
