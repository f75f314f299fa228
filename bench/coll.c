/* Collective operations on all ranks: a line of JSON for each, for each size and for each way to come to it.
   Usage: coll [crossing] SECONDS_PER_OPERATION SIZE...; a size of 0 is the barrier, others are multiples of 4: of the
   whole (bcast, reduce, allreduce), or of what each rank gives each other (alltoall) or all (allgather, gather), or
   gets (scatter, reduce_scatter, reduce_scatter_block).

   The count says how ranks come to it: 0, many in a row as in `torres.h`; 1, all at once, each call alone; 2, at random
   within about the time that it takes, in the same order for every library. The latter two begin at times agreed on before,
   and last from when the last rank came until the last one has done: for that all must see one clock, the kernel's.

   With `crossing` what calls put on a link can be counted there: before and after some of them nobody sends anything, a
   line says when to count for the first time, and that of the calls in a row is when to count again. Every rank's results
   are checked. */
#include "torres.h"

enum { BARRIER, BCAST, REDUCE, ALLREDUCE, ALLGATHER, ALLTOALL, GATHER, SCATTER, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, OPERATIONS };
static const char *const NAMES[] = {"barrier", "bcast",  "reduce",  "allreduce",      "allgather",
                                    "alltoall", "gather", "scatter", "reduce_scatter", "reduce_scatter_block"};
enum { IN_A_ROW, AT_ONCE, AT_RANDOM };
enum { CALLS_MOST = 1000, CROSSING_CALLS = 10 };

static const double LEAD_S = 0.02, QUIET_S = 0.1;

struct coll {
    int operation, rank, size;
    long bytes;
    char *out, *in; /* as many bytes for each rank */
    int *counts;    /* numbers for each rank */
};

/* What is added: doubles, or floats where those do not fill it. */
static long number_bytes(const struct coll *coll) {
    return coll->bytes % (long)sizeof(double) ? (long)sizeof(float) : (long)sizeof(double);
}

static void once(const void *what) {
    const struct coll *coll = what;
    int bytes = (int)coll->bytes, numbers = (int)(coll->bytes / number_bytes(coll));
    MPI_Datatype number = number_bytes(coll) == sizeof(double) ? MPI_DOUBLE : MPI_FLOAT;
    MPI_Comm world = MPI_COMM_WORLD;
    switch (coll->operation) {
    case BARRIER: MPI_Barrier(world); break;
    case BCAST: MPI_Bcast(coll->rank ? coll->in : coll->out, bytes, MPI_CHAR, 0, world); break;
    case REDUCE: MPI_Reduce(coll->out, coll->in, numbers, number, MPI_SUM, 0, world); break;
    case ALLREDUCE: MPI_Allreduce(coll->out, coll->in, numbers, number, MPI_SUM, world); break;
    case ALLGATHER: MPI_Allgather(coll->out, bytes, MPI_CHAR, coll->in, bytes, MPI_CHAR, world); break;
    case ALLTOALL: MPI_Alltoall(coll->out, bytes, MPI_CHAR, coll->in, bytes, MPI_CHAR, world); break;
    case GATHER: MPI_Gather(coll->out, bytes, MPI_CHAR, coll->in, bytes, MPI_CHAR, 0, world); break;
    case SCATTER: MPI_Scatter(coll->out, bytes, MPI_CHAR, coll->in, bytes, MPI_CHAR, 0, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter(coll->out, coll->in, coll->counts, number, MPI_SUM, world); break;
    case REDUCE_SCATTER_BLOCK: MPI_Reduce_scatter_block(coll->out, coll->in, numbers, number, MPI_SUM, world); break;
    }
}

static int is_scattered(int operation) { return operation == REDUCE_SCATTER || operation == REDUCE_SCATTER_BLOCK; }

static int is_reduction(int operation) { return operation == REDUCE || operation == ALLREDUCE || is_scattered(operation); }

/* A word that says where it comes from, and that no library makes shorter on the way (SplitMix64; Steele, Lea, Flood
   2014). */
static uint64_t word_of(uint64_t rank, uint64_t place) {
    uint64_t word = (place << 16 | rank) * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
}

/* A number from 0 to 1, likewise. */
static double number_of(uint64_t rank, uint64_t place) { return (double)(word_of(rank, place) >> 11) / (double)(1ull << 53); }

/* What a rank gives: numbers to be added, or words. */
static void fill(const struct coll *coll) {
    int adds = is_reduction(coll->operation);
    long unit = adds ? number_bytes(coll) : (long)sizeof(uint32_t);
    long each = coll->bytes / unit, count = adds && !is_scattered(coll->operation) ? each : each * coll->size;
    for (int rank = 0; rank < coll->size; rank++) coll->counts[rank] = (int)each;
    for (long i = 0; i < count; i++) {
        uint64_t rank = (uint64_t)coll->rank, place = (uint64_t)i;
        if (!adds) ((uint32_t *)coll->out)[i] = (uint32_t)word_of(rank, place);
        else if (unit == sizeof(double)) ((double *)coll->out)[i] = number_of(rank, place);
        else ((float *)coll->out)[i] = (float)number_of(rank, place);
    }
    memset(coll->in, 0x55, (size_t)(coll->bytes * coll->size));
}

/* Whether a block that came from a rank is what it gave from a place on. */
static int is_block(const struct coll *coll, const char *block, int from, long place) {
    for (long i = 0; i < coll->bytes / (long)sizeof(uint32_t); i++)
        if (((const uint32_t *)block)[i] != (uint32_t)word_of((uint64_t)from, (uint64_t)(place + i))) return 0;
    return 1;
}

/* Whether a number is the sum of those of all ranks from a place on, in whatever order they were added. */
static int is_sum(const struct coll *coll, long number, long place) {
    int is_double = number_bytes(coll) == sizeof(double);
    double found = is_double ? ((const double *)coll->in)[number] : ((const float *)coll->in)[number];
    double sum = 0;
    place += number;
    for (int rank = 0; rank < coll->size; rank++) sum += number_of((uint64_t)rank, (uint64_t)place);
    return fabs(found - sum) <= (is_double ? 1e-12 : 1e-6 * coll->size) * coll->size;
}

/* Whether a rank has what it should have after a call. */
static int is_right(const struct coll *coll) {
    long words = coll->bytes / (long)sizeof(uint32_t), numbers = coll->bytes / number_bytes(coll);
    int right = 1, is_root = coll->rank == 0;
    switch (coll->operation) {
    case BARRIER: break;
    case BCAST: right = is_root || is_block(coll, coll->in, 0, 0); break;
    case SCATTER: right = is_block(coll, coll->in, 0, coll->rank * words); break;
    case REDUCE:
    case ALLREDUCE:
        for (long i = 0; i < numbers && (is_root || coll->operation == ALLREDUCE); i++) right &= is_sum(coll, i, 0);
        break;
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_BLOCK:
        for (long i = 0; i < numbers; i++) right &= is_sum(coll, i, coll->rank * numbers);
        break;
    case GATHER:
    case ALLGATHER:
    case ALLTOALL:
        for (int from = 0; from < coll->size && (is_root || coll->operation != GATHER); from++) {
            long place = coll->operation == ALLTOALL ? coll->rank * words : 0;
            right &= is_block(coll, coll->in + from * coll->bytes, from, place);
        }
        break;
    }
    return right;
}

/* Sleeps until a time of the system's clock. */
static void sleep_until(double system_s) {
    double left_s = system_s - clock_system_s();
    if (left_s > 0) clock_sleep(left_s);
}

/* A time that all know, soon enough for all to have heard of it. */
static double agreed_start_s(double lead_s) {
    double start_s = clock_system_s() + lead_s;
    MPI_Bcast(&start_s, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return start_s;
}

/* What a call takes until all are known to have done, at most: calls in a row may overlap, and then each takes less than
   one alone. */
static double whole_s_of(const struct coll *coll) {
    enum { CALLS = 3 };
    double own_s, greatest_s;
    MPI_Barrier(MPI_COMM_WORLD);
    double start_s = clock_system_s();
    for (int call = 0; call < CALLS; call++) {
        once(coll);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    own_s = (clock_system_s() - start_s) / CALLS;
    MPI_Allreduce(&own_s, &greatest_s, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return greatest_s;
}

/* Each call alone: ranks come to it within `spread_s`, and `whole_s` after the last might have come to the one before. At rank 0, the time of each from the last to come until the last to
   have done. A rank that was not done before it should come again comes as soon as it is. */
static void measure_alone(const struct coll *coll, double whole_s, double spread_s, double seconds, struct samples *samples) {
    static double came_s[CALLS_MOST], done_s[CALLS_MOST], last_s[CALLS_MOST];
    double interval_s = whole_s + spread_s + 1e-3;
    int calls = torres_within(seconds / interval_s, SAMPLES_LEAST + 1, CALLS_MOST);
    double start_s = agreed_start_s(LEAD_S + whole_s);
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(&interval_s, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int call = 0; call < calls; call++) {
        sleep_until(start_s + call * interval_s + spread_s * number_of((uint64_t)coll->rank, (uint64_t)call));
        came_s[call] = clock_system_s();
        once(coll);
        done_s[call] = clock_system_s();
    }
    MPI_Reduce(came_s, last_s, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    memcpy(came_s, last_s, sizeof came_s);
    MPI_Reduce(done_s, last_s, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    samples_clear(samples);
    /* The first call shows what is not yet warm. No call is shorter than what the clock tells from nothing. */
    double least_us = clock_seconds(bench_clock.resolution) * 1e6;
    samples->first_us = fmax((last_s[0] - came_s[0]) * 1e6, least_us);
    for (int call = 1; call < calls; call++) samples->us[samples->count++] = fmax((last_s[call] - came_s[call]) * 1e6, least_us);
}

/* Some calls between two silences, for who counts at a link: the first line says when to count, the other when to
   count again. */
static void cross(const struct coll *coll, double each_s, const struct summary *summary) {
    int calls = torres_within(1 / each_s, 1, CROSSING_CALLS);
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    double times_s[2] = {clock_system_s() + 3 * QUIET_S}; /* of the first call, and of the second silence */
    times_s[1] = times_s[0] + calls * 3 * each_s + QUIET_S;
    MPI_Bcast(times_s, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (coll->rank == 0) {
        sleep_until(times_s[0] - QUIET_S);
        printf("{\"mark\": \"crossing\"}\n");
        fflush(stdout);
    }
    sleep_until(times_s[0]);
    for (int call = 0; call < calls; call++) once(coll);
    sleep_until(times_s[1]);
    if (coll->rank == 0) {
        summary_begin(NAMES[coll->operation], coll->bytes, IN_A_ROW, summary);
        printf(", \"parts\": {\"crossing_calls\": %d}}\n", calls);
        fflush(stdout);
    }
    sleep_until(times_s[1] + QUIET_S);
}

/* The least of a rank's, and the greatest over the ranks, of what a call takes in a row. */
static double each_s_of(const struct samples *samples) {
    double least_us = samples->us[0], greatest_us;
    for (int i = 1; i < samples->count; i++) least_us = fmin(least_us, samples->us[i]);
    MPI_Allreduce(&least_us, &greatest_us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return fmax(greatest_us * 1e-6, 1e-5);
}

/* All ways to come to an operation. Returns whether a result was wrong, on whatever rank. */
static int measure(const struct coll *coll, double seconds, int crosses, int has_one_clock) {
    static struct samples samples;
    const char *name = NAMES[coll->operation];
    fill(coll);
    torres_measure((struct torres){once, coll, 1}, seconds, &samples);
    int wrong = !is_right(coll), any_wrong;
    double each_s = each_s_of(&samples);
    struct summary summary = torres_summary(&samples);
    if (crosses && has_one_clock) cross(coll, each_s, &summary);
    else if (coll->rank == 0) summary_print(name, coll->bytes, IN_A_ROW, &summary);
    double whole_s = whole_s_of(coll);
    for (int way = AT_ONCE; way <= AT_RANDOM; way++) {
        if (!has_one_clock) {
            if (coll->rank == 0) missing_print(name, coll->bytes, way, "the ranks see clocks of several machines");
            continue;
        }
        memset(coll->in, 0x55, (size_t)(coll->bytes * coll->size));
        measure_alone(coll, whole_s, way == AT_RANDOM ? whole_s / 2 : 0, seconds, &samples);
        wrong |= !is_right(coll);
        if (coll->rank == 0) {
            summary = samples_summary(&samples);
            summary_print(name, coll->bytes, way, &summary);
        }
    }
    MPI_Allreduce(&wrong, &any_wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (any_wrong && coll->rank == 0) fprintf(stderr, "coll: a %s of %ld bytes came out wrong\n", name, coll->bytes);
    return any_wrong;
}

/* Whether all ranks see the clock of the same kernel, by the name that it gave itself when it started. */
static int see_one_clock(void) {
    char name[64] = "";
    uint64_t own = 14695981039346656037u, least, greatest; /* FNV-1a */
    FILE *file = fopen("/proc/sys/kernel/random/boot_id", "r");
    if (file && !fgets(name, sizeof name, file)) name[0] = 0;
    if (file) fclose(file);
    for (const char *at = name; *at; at++) own = (own ^ (unsigned char)*at) * 1099511628211u;
    MPI_Allreduce(&own, &least, 1, MPI_UINT64_T, MPI_MIN, MPI_COMM_WORLD);
    MPI_Allreduce(&own, &greatest, 1, MPI_UINT64_T, MPI_MAX, MPI_COMM_WORLD);
    return name[0] && least == greatest;
}

int main(int argc, char **argv) {
    int size, failed = 0, rank = program_start("coll", &argc, &argv, &size);
    int crosses = argc > 1 && !strcmp(argv[1], "crossing"), first = 1 + crosses;
    double seconds = argc > first ? program_number("coll", "the time per operation", argv[first], PROGRAM_MOST_SECONDS) : 0.2;
    int has_one_clock = see_one_clock();
    int *counts = (int *)program_memory("coll", (size_t)size * sizeof *counts);
    for (int i = first + 1; i < argc; i++) {
        long bytes = strcmp(argv[i], "0") ? (long)program_number("coll", "size", argv[i], (double)PROGRAM_MOST_BYTES / size) : 0;
        if (bytes % (long)sizeof(float)) {
            fprintf(stderr, "coll: %ld is no multiple of %zu\n", bytes, sizeof(float));
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        size_t room = (size_t)(bytes * size) + 1;
        struct coll coll = {BARRIER, rank, size, bytes, program_memory("coll", room), program_memory("coll", room), counts};
        for (int operation = bytes ? BCAST : BARRIER; operation < (bytes ? OPERATIONS : BCAST); operation++) {
            coll.operation = operation;
            failed |= measure(&coll, seconds, crosses, has_one_clock);
        }
        free(coll.out);
        free(coll.in);
    }
    free(counts);
    return program_end(failed);
}
