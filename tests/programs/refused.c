/* Collectives that some ranks call wrongly first, before and after they share a segment. A refused call has no effect:
   the rank calls again, and all get the right data. All draw the same random numbers. Usage: refused SEED TURNS */
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

static int call(unsigned operation, double *mine, double *theirs, int n, int root, MPI_Comm comm) {
    switch (operation) {
    case 0: return MPI_Allreduce(mine, theirs, n, MPI_DOUBLE, MPI_SUM, comm);
    case 1: return MPI_Allgather(mine, n, MPI_DOUBLE, theirs, n, MPI_DOUBLE, comm);
    case 2: return MPI_Bcast(mine, n, MPI_DOUBLE, root, comm);
    case 3: return MPI_Reduce(mine, theirs, n, MPI_DOUBLE, MPI_SUM, root, comm);
    case 4: return MPI_Scan(mine, theirs, n, MPI_DOUBLE, MPI_SUM, comm);
    case 5: return MPI_Gather(mine, n, MPI_DOUBLE, theirs, n, MPI_DOUBLE, root, comm);
    default: return MPI_Alltoall(mine, n, MPI_DOUBLE, theirs, n, MPI_DOUBLE, comm);
    }
}

static void turn(MPI_Comm comm, int size, int number) {
    static double mine[MOST * RANKS], theirs[MOST * RANKS];
    unsigned operation = draw() % 7, count = 1 + draw() % MOST, any = draw(), how = draw() % 3;
    int root = (int)(draw() % (unsigned)size);
    unsigned wrong = how == 0 ? 0 : how == 1 ? 1u << any % (unsigned)size : any;
    for (int i = 0; i < MOST * RANKS; i++) mine[i] = rank + number, theirs[i] = -1;
    if (wrong >> rank & 1) CHECK(call(operation, mine, theirs, -1, root, comm) != MPI_SUCCESS);
    CHECK(call(operation, mine, theirs, (int)count, root, comm) == MPI_SUCCESS);
    double all = size * (size - 1) / 2 + (double)size * number, before = rank * (rank + 1) / 2 + (double)(rank + 1) * number;
    int last = size * (int)count - 1, end = (int)count - 1;
    double expected[] = {all, size - 1 + number, root + number, rank == root ? all : -1, before, rank == root ? size - 1 + number : -1, size - 1 + number};
    double got[] = {theirs[end], theirs[last], mine[end], theirs[end], theirs[end], theirs[last], theirs[last]};
    CHECK(got[operation] == expected[operation]);
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
    for (int number = 0; number < atoi(argv[2]); number++) turn(comm, size, number);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("refused first, seed %s, on %d ranks: %d failures\n", argv[1], size, all);
    MPI_Comm_free(&comm);
    MPI_Finalize();
    return all != 0;
}
