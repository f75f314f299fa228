/* Barrier, 8-byte allreduce, 1 KiB alltoall and the ping-pongs of all pairs at once, on all ranks. Prints a line of
   JSON each. Usage: oversubscribed SECONDS_PER_OPERATION

   Measured as in `torres.h`. A pair's first rank is in the lower half, its second in the upper one. With an odd
   number the last rank has no peer. */
#include "torres.h"

enum { BARRIER, ALLREDUCE, ALLTOALL, PAIRS, OPERATIONS };
static const char *const NAMES[] = {"barrier", "allreduce", "alltoall", "ping-pong of pairs"};
static const int BYTES[] = {0, 8, 1024, 8};

struct ranks {
    char *out, *in; /* as many bytes for each rank as an operation has at most */
    int rank, size;
};

struct call {
    const struct ranks *ranks;
    int operation;
};

static void once(const struct ranks *ranks, int operation) {
    int half = ranks->size / 2, is_lower = ranks->rank < half, peer = is_lower ? ranks->rank + half : ranks->rank - half;
    if (operation == BARRIER) MPI_Barrier(MPI_COMM_WORLD);
    if (operation == ALLREDUCE) MPI_Allreduce(ranks->out, ranks->in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (operation == ALLTOALL)
        MPI_Alltoall(ranks->out, BYTES[operation], MPI_CHAR, ranks->in, BYTES[operation], MPI_CHAR, MPI_COMM_WORLD);
    if (operation != PAIRS || ranks->rank >= 2 * half) return;
    if (is_lower) MPI_Send(ranks->out, BYTES[operation], MPI_CHAR, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(ranks->in, BYTES[operation], MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!is_lower) MPI_Send(ranks->out, BYTES[operation], MPI_CHAR, peer, 0, MPI_COMM_WORLD);
}

static void call(const void *what) {
    const struct call *call = what;
    once(call->ranks, call->operation);
}

int main(int argc, char **argv) {
    static struct samples samples;
    int size, rank = program_start("oversubscribed", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("oversubscribed", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 1;
    size_t room = (size_t)BYTES[ALLTOALL] * (size_t)size;
    struct ranks ranks = {program_memory("oversubscribed", room), program_memory("oversubscribed", room), rank, size};
    *(double *)ranks.out = 1; /* sums need a number */
    for (int operation = 0; operation < OPERATIONS; operation++) {
        struct call what = {&ranks, operation};
        torres_measure((struct torres){call, &what, operation == PAIRS ? 2 : 1}, seconds, &samples);
        /* The last rank of an odd number has no times of its own. */
        if (operation == PAIRS && rank >= size / 2 * 2) memset(samples.us, 0, sizeof samples.us);
        struct summary greatest = torres_summary(&samples);
        if (rank == 0) summary_print(NAMES[operation], BYTES[operation], 0, &greatest);
    }
    free(ranks.out);
    free(ranks.in);
    return program_end(0);
}
