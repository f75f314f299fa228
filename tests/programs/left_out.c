/* Collectives of ranks that share a segment. Some fail their checks on some ranks. Ranks that take part get an error
   or the available data, and later calls are right on all ranks. All draw the same random numbers. Usage: left_out
   SEED TURNS */
#include "check.h"
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>

enum { MOST = 16, RANKS = 16 };

static uint64_t state;

static unsigned draw(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (unsigned)(state >> 33);
}

static void turn(MPI_Comm comm, int size, int number) {
    static double mine[MOST * RANKS], theirs[MOST * RANKS];
    unsigned operation = draw() % 7, count = 1 + draw() % MOST, any = draw(), how = draw() % 3;
    int root = (int)(draw() % (unsigned)size);
    unsigned out = how == 0 ? 0 : how == 1 ? 1u << any % (unsigned)size : any;
    int n = out >> rank & 1 ? -1 : (int)count;
    switch (operation) {
    case 0: MPI_Allreduce(mine, theirs, n, MPI_DOUBLE, MPI_SUM, comm); break;
    case 1: MPI_Allgather(mine, n, MPI_DOUBLE, theirs, n, MPI_DOUBLE, comm); break;
    case 2: MPI_Bcast(mine, n, MPI_DOUBLE, root, comm); break;
    case 3: MPI_Reduce(mine, theirs, n, MPI_DOUBLE, MPI_SUM, root, comm); break;
    case 4: MPI_Scan(mine, theirs, n, MPI_DOUBLE, MPI_SUM, comm); break;
    case 5: MPI_Gather(mine, n, MPI_DOUBLE, theirs, n, MPI_DOUBLE, root, comm); break;
    default: MPI_Alltoall(mine, n, MPI_DOUBLE, theirs, n, MPI_DOUBLE, comm); break;
    }
    double own = rank + number, sum = 0;
    CHECK(MPI_Allreduce(&own, &sum, 1, MPI_DOUBLE, MPI_SUM, comm) == MPI_SUCCESS);
    CHECK(sum == size * (size - 1) / 2 + (double)size * number);
    if (draw() % 2) {
        int ranks[RANKS];
        CHECK(MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, comm) == MPI_SUCCESS);
        for (int each = 0; each < size; each++) CHECK(ranks[each] == each);
    }
}

int main(int argc, char **argv) {
    int size, all;
    MPI_Comm comm;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    state = (uint64_t)atoi(argv[1]);
    /* Ranks have a shared segment from the fifth collective on. */
    for (int each = 0; each < 8; each++) MPI_Barrier(comm);
    for (int number = 0; number < atoi(argv[2]); number++) turn(comm, size, number);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("left out, seed %s, on %d ranks: %d failures\n", argv[1], size, all);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return all != 0;
}
