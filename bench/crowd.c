/* Barrier, 8-byte allreduce, 1 KiB alltoall and the ping-pongs of all pairs at once, on all ranks, a line of JSON
   each. Usage: crowd SECONDS_PER_OPERATION

   As Torres & Kofuji measure: 50 operations are timed together, after three such batches of warm-up; each
   rank makes its own statistics of the batches, and what is printed is the greatest over the ranks. Fewer
   are timed together where 50 would take too long, which rank 0 decides for all. The rank of a pair that is in the
   lower half has its peer in the upper one; of an odd number the last has none. */
#include "program.h"

enum { MOST_CALLS = 50, WARM = 3, MOST_BATCHES = 1000 };
enum { BARRIER, ALLREDUCE, ALLTOALL, PAIRS, OPERATIONS };
static const char *const NAMES[] = {"barrier", "allreduce", "alltoall", "ping-pong of pairs"};
static const int BYTES[] = {0, 8, 1024, 8};

struct crowd {
    char *out, *in; /* as many bytes for each rank as an operation has at most */
    int rank, size;
};

static void once(const struct crowd *crowd, int operation) {
    int half = crowd->size / 2, is_lower = crowd->rank < half, peer = is_lower ? crowd->rank + half : crowd->rank - half;
    if (operation == BARRIER) MPI_Barrier(MPI_COMM_WORLD);
    if (operation == ALLREDUCE) MPI_Allreduce(crowd->out, crowd->in, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (operation == ALLTOALL)
        MPI_Alltoall(crowd->out, BYTES[operation], MPI_CHAR, crowd->in, BYTES[operation], MPI_CHAR, MPI_COMM_WORLD);
    if (operation != PAIRS || crowd->rank >= 2 * half) return;
    if (is_lower) MPI_Send(crowd->out, BYTES[operation], MPI_CHAR, peer, 0, MPI_COMM_WORLD);
    MPI_Recv(crowd->in, BYTES[operation], MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!is_lower) MPI_Send(crowd->out, BYTES[operation], MPI_CHAR, peer, 0, MPI_COMM_WORLD);
}

static double batch(const struct crowd *crowd, int operation, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t start = clock_ticks();
    for (int call = 0; call < calls; call++) once(crowd, operation);
    return samples_us(clock_ticks() - start, operation == PAIRS ? 2 * calls : calls);
}

static int within(double number, int least, int most) {
    return number < least ? least : number > most ? most : (int)number;
}

static void measure(const struct crowd *crowd, int operation, double seconds, struct samples *samples) {
    samples_clear(samples);
    samples->first_us = batch(crowd, operation, 1);
    double each_s = batch(crowd, operation, WARM) * 1e-6;
    int calls = within(seconds / WARM / each_s, 1, MOST_CALLS);
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    double start = clock_system_s();
    for (int warm = 0; warm < WARM; warm++) batch(crowd, operation, calls);
    int batches = within(seconds / ((clock_system_s() - start) / WARM), SAMPLES_LEAST, MOST_BATCHES);
    MPI_Bcast(&batches, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (; samples->count < batches; samples->count++) samples->us[samples->count] = batch(crowd, operation, calls);
}

int main(int argc, char **argv) {
    static struct samples samples;
    int size, rank = program_start("crowd", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("crowd", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 1;
    size_t room = (size_t)BYTES[ALLTOALL] * (size_t)size;
    struct crowd crowd = {program_memory("crowd", room), program_memory("crowd", room), rank, size};
    *(double *)crowd.out = 1; /* what is added is a number */
    for (int operation = 0; operation < OPERATIONS; operation++) {
        measure(&crowd, operation, seconds, &samples);
        /* The last of an odd number has no times of its own. */
        if (operation == PAIRS && rank >= size / 2 * 2) memset(samples.us, 0, sizeof samples.us);
        struct summary own = samples_summary(&samples), greatest;
        MPI_Reduce(&own, &greatest, sizeof own / sizeof(double), MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) summary_print(NAMES[operation], BYTES[operation], 0, &greatest);
    }
    free(crowd.out);
    free(crowd.in);
    return program_end(0);
}
