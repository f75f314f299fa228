/* Times of collective operations, for comparisons of algorithms. Prints a line of JSON for each case, after one that
   says where the ranks run. Usage: tune SECONDS_PER_CASE OPERATION/BYTES...; bytes are those of a table for
   CANELE_PLANS. They count the data of a rank for each other or for all (gather, scatter, allgather, alltoall), else
   the whole. Reductions are of numbers of 8 bytes.

   A call is timed from one meeting of all ranks to the next. The program meets by messages of its own, whatever
   algorithm barriers use. The time of meeting alone is printed first. It cannot be subtracted: a rank that has
   finished may meet others while the rest is still in the call. Each call counts with its greatest time over the
   ranks. */
#include "program.h"

enum { BARRIER, BCAST, GATHER, SCATTER, ALLGATHER, ALLTOALL, REDUCE, ALLREDUCE, REDUCE_SCATTER, SCAN, EXSCAN, MEETING };
static const char *const NAMES[] = {"barrier", "bcast", "gather", "scatter", "allgather", "alltoall", "reduce", "allreduce", "reduce_scatter", "scan", "exscan"};
enum { WARM = 3, WARM_PLANS = 8, CALLS_MOST = 1000 };

struct tune {
    int operation, rank, size;
    long bytes;
    int *counts; /* of each rank, for a reduction that scatters */
    char *out, *in;
};

/* Data that is added: doubles, or floats where those do not fill it. */
static long number_bytes(const struct tune *tune) {
    return tune->bytes % (long)sizeof(double) ? (long)sizeof(float) : (long)sizeof(double);
}

static void meet(const struct tune *tune) {
    for (int far = 1; far < tune->size; far *= 2) {
        int to = (tune->rank + far) % tune->size, from = (tune->rank - far + tune->size) % tune->size;
        MPI_Sendrecv(NULL, 0, MPI_CHAR, to, 1, NULL, 0, MPI_CHAR, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void once(const struct tune *tune) {
    int bytes = (int)tune->bytes, numbers = (int)(tune->bytes / number_bytes(tune));
    MPI_Datatype number = number_bytes(tune) == sizeof(double) ? MPI_DOUBLE : MPI_FLOAT;
    MPI_Comm world = MPI_COMM_WORLD;
    switch (tune->operation) {
    case BARRIER: MPI_Barrier(world); break;
    case BCAST: MPI_Bcast(tune->in, bytes, MPI_CHAR, 0, world); break;
    case GATHER: MPI_Gather(tune->out, bytes, MPI_CHAR, tune->in, bytes, MPI_CHAR, 0, world); break;
    case SCATTER: MPI_Scatter(tune->out, bytes, MPI_CHAR, tune->in, bytes, MPI_CHAR, 0, world); break;
    case ALLGATHER: MPI_Allgather(tune->out, bytes, MPI_CHAR, tune->in, bytes, MPI_CHAR, world); break;
    case ALLTOALL: MPI_Alltoall(tune->out, bytes, MPI_CHAR, tune->in, bytes, MPI_CHAR, world); break;
    case REDUCE: MPI_Reduce(tune->out, tune->in, numbers, number, MPI_SUM, 0, world); break;
    case ALLREDUCE: MPI_Allreduce(tune->out, tune->in, numbers, number, MPI_SUM, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter(tune->out, tune->in, tune->counts, number, MPI_SUM, world); break;
    case SCAN: MPI_Scan(tune->out, tune->in, numbers, number, MPI_SUM, world); break;
    case EXSCAN: MPI_Exscan(tune->out, tune->in, numbers, number, MPI_SUM, world); break;
    case MEETING: break;
    }
}

static double call_us(const struct tune *tune) {
    meet(tune);
    uint64_t start = clock_ticks();
    once(tune);
    meet(tune);
    return samples_us(clock_ticks() - start, 1);
}

/* Greatest time over the ranks of each call, at rank 0. As many calls as fit into the time. */
static void measure(const struct tune *tune, double seconds, struct samples *samples) {
    static double own_us[CALLS_MOST], greatest_us[CALLS_MOST];
    double warm_s = 0;
    for (int call = 0; call < WARM; call++) warm_s = call_us(tune) * 1e-6;
    int calls = seconds / warm_s < SAMPLES_LEAST ? SAMPLES_LEAST : seconds / warm_s > CALLS_MOST ? CALLS_MOST : (int)(seconds / warm_s);
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (int call = 0; call < calls; call++) own_us[call] = call_us(tune);
    MPI_Reduce(own_us, greatest_us, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    samples_clear(samples);
    for (; samples->count < calls; samples->count++) samples->us[samples->count] = greatest_us[samples->count];
}

static struct tune tune_of(const char *text, int rank, int size) {
    struct tune tune = {.operation = 0, .rank = rank, .size = size};
    const char *slash = strchr(text, '/');
    while (slash && tune.operation < MEETING &&
           (strlen(NAMES[tune.operation]) != (size_t)(slash - text) || strncmp(NAMES[tune.operation], text, (size_t)(slash - text))))
        tune.operation++;
    if (!slash || tune.operation == MEETING) {
        fprintf(stderr, "tune: `%s` is no OPERATION/BYTES\n", text);
        exit(2);
    }
    tune.bytes = strcmp(slash + 1, "0") ? (long)program_number("tune", "bytes", slash + 1, (double)PROGRAM_MOST_BYTES / size) : 0;
    tune.out = program_memory("tune", (size_t)(tune.bytes * size) + 1);
    tune.in = program_memory("tune", (size_t)(tune.bytes * size) + 1);
    tune.counts = (int *)program_memory("tune", (size_t)size * sizeof(int));
    long numbers = tune.bytes / number_bytes(&tune);
    /* Sums need a number. */
    for (long i = 0; tune.operation >= REDUCE && i < numbers; i++) {
        if (number_bytes(&tune) == sizeof(double)) ((double *)tune.out)[i] = 1;
        else ((float *)tune.out)[i] = 1;
    }
    for (int to = 0; to < size; to++) tune.counts[to] = (int)(numbers * (to + 1) / size - numbers * to / size);
    return tune;
}

static void print_places(void) {
    char value[MPI_MAX_INFO_VAL] = "";
    int flag, len = sizeof value;
    MPI_Info info;
    MPI_Comm_get_info(MPI_COMM_WORLD, &info);
    MPI_Info_get_string(info, "canele_places", &len, value, &flag);
    MPI_Info_free(&info);
    printf("{\"places\": \"%s\"}\n", value);
    fflush(stdout);
}

int main(int argc, char **argv) {
    static struct samples samples;
    int size, rank = program_start("tune", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("tune", "the time per case", argv[1], PROGRAM_MOST_SECONDS) : 0.05;
    struct tune meeting = {.operation = MEETING, .rank = rank, .size = size};
    /* A library may plan otherwise from the fifth collective on. */
    for (int call = 0; call < WARM_PLANS; call++) MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) print_places();
    measure(&meeting, seconds, &samples);
    if (rank == 0) printf("{\"meeting_us\": %.3f}\n", samples_summary(&samples).median);
    for (int i = 2; i < argc; i++) {
        struct tune tune = tune_of(argv[i], rank, size);
        measure(&tune, seconds, &samples);
        if (rank == 0) {
            double median_us = samples_summary(&samples).median;
            printf("{\"operation\": \"%s\", \"bytes\": %ld, \"time_us\": %.3f}\n", NAMES[tune.operation], tune.bytes, median_us);
            fflush(stdout);
        }
        free(tune.out), free(tune.in), free(tune.counts);
    }
    return program_end(0);
}
