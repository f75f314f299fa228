/* Broadcasts of a megabyte from rank 0, and the maximum over all ranks. Prints whether both are right. Also prints
   the least time, in microseconds, of a short broadcast and of a short reduction. */
#include <mpi.h>
#include <stdlib.h>

#include "check.h"

enum { COUNT = 1 << 17, TIMES = 6 };

static double sent[COUNT], got[COUNT];

/* Data of a rank, in digits that look random. */
static void fill(double *data, int of, int turn) {
    unsigned long long state = of * 1000 + turn + 1;
    for (int i = 0; i < COUNT; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        data[i] = (double)(state >> 11);
    }
}

int main(int argc, char **argv) {
    int size, all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int turn = 0; turn < TIMES; turn++) {
        fill(sent, 0, turn);
        if (rank == 0) fill(got, 0, turn);
        MPI_Bcast(got, COUNT, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        for (int i = 0; i < COUNT; i++) all += got[i] != sent[i];
        CHECK(all == 0);
    }
    /* The maximum of all: exact in any order. */
    double most[2] = {0, 0};
    fill(sent, rank, 0);
    MPI_Allreduce(sent, got, COUNT, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) most[0] += got[i] / 1e15;
    MPI_Reduce(sent, got, COUNT, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    if (rank == 0) for (int i = 0; i < COUNT; i++) most[1] += got[i] / 1e15;
    MPI_Bcast(&most[1], 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    CHECK(most[0] == most[1]);
    double least = 1e9;
    for (int turn = 0; turn < TIMES; turn++) {
        double begin = MPI_Wtime(), word = turn, sum = 0;
        MPI_Bcast(&word, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        MPI_Reduce(&word, &sum, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        double took = MPI_Wtime() - begin;
        CHECK(rank != 0 || sum == turn * size);
        if (took < least) least = took;
    }
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%.0f us, relay on %d ranks: %d failures\n", least * 1e6, size, failures);
    MPI_Finalize();
    return failures != 0;
}
