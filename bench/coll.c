/* Collective operations on all ranks. Prints a line of JSON for each operation, size and arrival pattern.
   Usage: coll [crossing] SECONDS_PER_OPERATION SIZE...
   Size 0 selects operations without data: the barrier, and communicators that are made and freed (a copy, and one for
   each half of the ranks). Other sizes are bytes. They count the whole for bcast, reduce, allreduce, scan and exscan.
   They count a rank's data for each other in alltoall, and for all in allgather and gather. They count the data that
   a rank gets in scatter, reduce_scatter and reduce_scatter_block. Sums are measured at multiples of 4 only. The forms with counts (allgatherv and so on) have blocks of one length, unknown to
   the other ranks. Compared with the forms without counts, they show the cost of this lack of knowledge.

   The count gives the arrival pattern. 0: many in a row as in `torres.h`. 1: all at once, each call alone. 2: at
   random within about the time of a call, in the same order for every library. Patterns 1 and 2 begin at agreed
   times. They last from the last rank's arrival until the last rank has finished. All ranks must therefore see one
   clock, the kernel's.

   `crossing` lets an observer count the traffic of calls on a link. Before and after some calls no rank sends
   anything. A first line says when to count for the first time; the line of the calls in a row says when to count
   again. Every rank's results are checked. */
#include "torres.h"

enum {
    BARRIER, COMM_DUP, COMM_SPLIT, /* operations without data */
    BCAST, ALLGATHER, ALLTOALL, GATHER, SCATTER, ALLGATHERV, ALLTOALLV, GATHERV, SCATTERV, /* operations that move bytes */
    REDUCE, ALLREDUCE, REDUCE_SCATTER, REDUCE_SCATTER_BLOCK, SCAN, EXSCAN, /* operations that add numbers */
    OPERATIONS
};
static const char *const NAMES[] = {"barrier", "comm_dup",  "comm_split",     "bcast",                "allgather", "alltoall",
                                    "gather",  "scatter",   "allgatherv",     "alltoallv",            "gatherv",   "scatterv",
                                    "reduce",  "allreduce", "reduce_scatter", "reduce_scatter_block", "scan",      "exscan"};
enum { IN_A_ROW, AT_ONCE, AT_RANDOM };
enum { CALLS_MOST = 1000, CROSSING_CALLS = 10 };

static const double LEAD_S = 0.02, QUIET_S = 0.1;

struct coll {
    int operation, rank, size;
    long bytes;
    char *out, *in; /* as many bytes for each rank */
    int *counts;    /* numbers, or bytes, for each rank */
    int *places;    /* their offsets */
};

/* Number of ranks of the last communicator that was made. */
static int made_size;

/* New communicators are freed. */
static void note_made(MPI_Comm made) {
    MPI_Comm_size(made, &made_size);
    MPI_Comm_free(&made);
}

/* Data that is added: doubles, or floats where those do not fill it. */
static long number_bytes(const struct coll *coll) {
    return coll->bytes % (long)sizeof(double) ? (long)sizeof(float) : (long)sizeof(double);
}

static void once(const void *what) {
    const struct coll *coll = what;
    int bytes = (int)coll->bytes, numbers = (int)(coll->bytes / number_bytes(coll));
    MPI_Datatype number = number_bytes(coll) == sizeof(double) ? MPI_DOUBLE : MPI_FLOAT;
    MPI_Comm world = MPI_COMM_WORLD, made;
    const int *counts = coll->counts, *places = coll->places;
    switch (coll->operation) {
    case BARRIER: MPI_Barrier(world); break;
    case COMM_DUP: MPI_Comm_dup(world, &made), note_made(made); break;
    case COMM_SPLIT: MPI_Comm_split(world, coll->rank % 2, coll->rank, &made), note_made(made); break;
    case BCAST: MPI_Bcast(coll->rank ? coll->in : coll->out, bytes, MPI_CHAR, 0, world); break;
    case REDUCE: MPI_Reduce(coll->out, coll->in, numbers, number, MPI_SUM, 0, world); break;
    case ALLREDUCE: MPI_Allreduce(coll->out, coll->in, numbers, number, MPI_SUM, world); break;
    case ALLGATHER: MPI_Allgather(coll->out, bytes, MPI_CHAR, coll->in, bytes, MPI_CHAR, world); break;
    case ALLTOALL: MPI_Alltoall(coll->out, bytes, MPI_CHAR, coll->in, bytes, MPI_CHAR, world); break;
    case GATHER: MPI_Gather(coll->out, bytes, MPI_CHAR, coll->in, bytes, MPI_CHAR, 0, world); break;
    case SCATTER: MPI_Scatter(coll->out, bytes, MPI_CHAR, coll->in, bytes, MPI_CHAR, 0, world); break;
    case ALLGATHERV: MPI_Allgatherv(coll->out, bytes, MPI_CHAR, coll->in, counts, places, MPI_CHAR, world); break;
    case ALLTOALLV: MPI_Alltoallv(coll->out, counts, places, MPI_CHAR, coll->in, counts, places, MPI_CHAR, world); break;
    case GATHERV: MPI_Gatherv(coll->out, bytes, MPI_CHAR, coll->in, counts, places, MPI_CHAR, 0, world); break;
    case SCATTERV: MPI_Scatterv(coll->out, counts, places, MPI_CHAR, coll->in, bytes, MPI_CHAR, 0, world); break;
    case SCAN: MPI_Scan(coll->out, coll->in, numbers, number, MPI_SUM, world); break;
    case EXSCAN: MPI_Exscan(coll->out, coll->in, numbers, number, MPI_SUM, world); break;
    case REDUCE_SCATTER: MPI_Reduce_scatter(coll->out, coll->in, counts, number, MPI_SUM, world); break;
    case REDUCE_SCATTER_BLOCK: MPI_Reduce_scatter_block(coll->out, coll->in, numbers, number, MPI_SUM, world); break;
    }
}

static int is_scattered(int operation) { return operation == REDUCE_SCATTER || operation == REDUCE_SCATTER_BLOCK; }

static int is_reduction(int operation) { return operation >= REDUCE; }

/* A word that identifies its origin and that no library can compress (SplitMix64; Steele, Lea, Flood 2014). */
static uint64_t word_of(uint64_t rank, uint64_t place) {
    uint64_t word = (place << 16 | rank) * 0x9e3779b97f4a7c15u + 0x9e3779b97f4a7c15u;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return word ^ (word >> 31);
}

/* A number from 0 to 1, by the same generator. */
static double number_of(uint64_t rank, uint64_t place) { return (double)(word_of(rank, place) >> 11) / (double)(1ull << 53); }

/* The words of a block. The last may be partial. */
static long words_of(const struct coll *coll) { return (coll->bytes + (long)sizeof(uint32_t) - 1) / (long)sizeof(uint32_t); }

/* The word at an index of a rank's data. Returns the number of its bytes that fit into `left` bytes of the block. */
static size_t word_at(uint32_t *word, int rank, long place, long left) {
    *word = (uint32_t)word_of((uint64_t)rank, (uint64_t)place);
    return left < (long)sizeof *word ? (size_t)left : sizeof *word;
}

/* Data of a rank: numbers to be added. */
static void fill_numbers(const struct coll *coll) {
    long unit = number_bytes(coll), each = coll->bytes / unit;
    long count = is_scattered(coll->operation) ? each * coll->size : each;
    for (long i = 0; i < count; i++) {
        double number = number_of((uint64_t)coll->rank, (uint64_t)i);
        if (unit == sizeof(double)) ((double *)coll->out)[i] = number;
        else ((float *)coll->out)[i] = (float)number;
    }
}

/* Data of a rank: words, in a block for each rank. */
static void fill_words(const struct coll *coll) {
    uint32_t word;
    long words = words_of(coll), size = (long)sizeof word;
    for (int block = 0; block < coll->size; block++)
        for (long i = 0; i < words; i++) {
            size_t len = word_at(&word, coll->rank, block * words + i, coll->bytes - i * size);
            memcpy(coll->out + block * coll->bytes + i * size, &word, len);
        }
}

static void fill(const struct coll *coll) {
    long unit = is_reduction(coll->operation) ? number_bytes(coll) : 1;
    for (int rank = 0; rank < coll->size; rank++) {
        coll->counts[rank] = (int)(coll->bytes / unit);
        coll->places[rank] = (int)(rank * coll->bytes / unit);
    }
    if (is_reduction(coll->operation)) fill_numbers(coll);
    else fill_words(coll);
    memset(coll->in, 0x55, (size_t)(coll->bytes * coll->size));
}

/* True if a block is the one that a rank sent to another. */
static int is_block(const struct coll *coll, const char *block, int from, int to) {
    uint32_t word;
    long words = words_of(coll), size = (long)sizeof word;
    for (long i = 0; i < words; i++) {
        size_t len = word_at(&word, from, to * words + i, coll->bytes - i * size);
        if (memcmp(block + i * size, &word, len)) return 0;
    }
    return 1;
}

/* True if a number is the sum of those of `ranks` ranks at an index, in any order of addition. */
static int is_sum(const struct coll *coll, long number, long place, int ranks) {
    int is_double = number_bytes(coll) == sizeof(double);
    double found = is_double ? ((const double *)coll->in)[number] : ((const float *)coll->in)[number];
    double sum = 0;
    place += number;
    for (int rank = 0; rank < ranks; rank++) sum += number_of((uint64_t)rank, (uint64_t)place);
    return fabs(found - sum) <= (is_double ? 1e-12 : 1e-6 * coll->size) * coll->size;
}

/* True if a rank has the blocks of all. */
static int has_blocks(const struct coll *coll, int to) {
    int right = 1;
    for (int from = 0; from < coll->size; from++) right &= is_block(coll, coll->in + from * coll->bytes, from, to);
    return right;
}

/* True if a rank has the sums of `ranks` ranks, from an index on. */
static int has_sums(const struct coll *coll, long place, int ranks) {
    int right = 1;
    for (long i = 0; i < coll->bytes / number_bytes(coll); i++) right &= is_sum(coll, i, place, ranks);
    return right;
}

/* True if a rank has the expected data after a call. */
static int is_right(const struct coll *coll) {
    int is_root = coll->rank == 0;
    switch (coll->operation) {
    case COMM_DUP: return made_size == coll->size;
    case COMM_SPLIT: return made_size == (coll->size + 1 - coll->rank % 2) / 2;
    case BCAST: return is_root || is_block(coll, coll->in, 0, 0);
    case SCATTER:
    case SCATTERV: return is_block(coll, coll->in, 0, coll->rank);
    case GATHER:
    case GATHERV: return !is_root || has_blocks(coll, 0);
    case ALLGATHER:
    case ALLGATHERV: return has_blocks(coll, 0);
    case ALLTOALL:
    case ALLTOALLV: return has_blocks(coll, coll->rank);
    case REDUCE: return !is_root || has_sums(coll, 0, coll->size);
    case ALLREDUCE: return has_sums(coll, 0, coll->size);
    case SCAN: return has_sums(coll, 0, coll->rank + 1);
    case EXSCAN: return is_root || has_sums(coll, 0, coll->rank); /* the first rank gets nothing */
    case REDUCE_SCATTER:
    case REDUCE_SCATTER_BLOCK: return has_sums(coll, coll->rank * (coll->bytes / number_bytes(coll)), coll->size);
    }
    return 1;
}

/* An agreed time, far enough ahead for all ranks to learn of it. */
static double agreed_start_s(double lead_s) {
    double start_s = clock_system_s() + lead_s;
    MPI_Bcast(&start_s, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    return start_s;
}

/* Greatest time of a call until all ranks are known to have finished. Calls in a row may overlap, and each then takes
   less than one alone. */
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

/* Runs each call alone. Ranks arrive within `spread_s`, and `whole_s` after the previous call's last possible
   arrival. Rank 0 gets the time of each call, from the last arrival until the last rank has finished. A rank that is
   late for its next arrival arrives as soon as it has finished. */
static void measure_alone(const struct coll *coll, double whole_s, double spread_s, double seconds, struct samples *samples) {
    static double came_s[CALLS_MOST], done_s[CALLS_MOST], last_s[CALLS_MOST];
    double interval_s = whole_s + spread_s + 1e-3;
    int calls = torres_within(seconds / interval_s, SAMPLES_LEAST + 1, CALLS_MOST);
    double start_s = agreed_start_s(LEAD_S + whole_s);
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(&interval_s, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    for (int call = 0; call < calls; call++) {
        clock_sleep_until(start_s + call * interval_s + spread_s * number_of((uint64_t)coll->rank, (uint64_t)call));
        came_s[call] = clock_system_s();
        once(coll);
        done_s[call] = clock_system_s();
    }
    MPI_Reduce(came_s, last_s, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    memcpy(came_s, last_s, sizeof came_s);
    MPI_Reduce(done_s, last_s, calls, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    samples_clear(samples);
    /* The first call includes the warm-up. No call is shorter than the clock's resolution. */
    double least_us = clock_seconds(bench_clock.resolution) * 1e6;
    samples->first_us = fmax((last_s[0] - came_s[0]) * 1e6, least_us);
    for (int call = 1; call < calls; call++) samples->us[samples->count++] = fmax((last_s[call] - came_s[call]) * 1e6, least_us);
}

/* Some calls between two silences, for an observer who counts at a link. The first line says when to count, the other
   when to count again. */
static void cross(const struct coll *coll, double each_s, const struct summary *summary) {
    int calls = torres_within(1 / each_s, 1, CROSSING_CALLS);
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    double times_s[2] = {clock_system_s() + 3 * QUIET_S}; /* of the first call, and of the second silence */
    times_s[1] = times_s[0] + calls * 3 * each_s + QUIET_S;
    MPI_Bcast(times_s, 2, MPI_DOUBLE, 0, MPI_COMM_WORLD);
    if (coll->rank == 0) {
        clock_sleep_until(times_s[0] - QUIET_S);
        printf("{\"mark\": \"crossing\"}\n");
        fflush(stdout);
    }
    clock_sleep_until(times_s[0]);
    for (int call = 0; call < calls; call++) once(coll);
    clock_sleep_until(times_s[1]);
    if (coll->rank == 0) {
        summary_begin(NAMES[coll->operation], coll->bytes, IN_A_ROW, summary);
        printf(", \"parts\": {\"crossing_calls\": %d}}\n", calls);
        fflush(stdout);
    }
    clock_sleep_until(times_s[1] + QUIET_S);
}

/* Greatest value over the ranks of each rank's least time of a call in a row. */
static double each_s_of(const struct samples *samples) {
    double least_us = samples->us[0], greatest_us;
    for (int i = 1; i < samples->count; i++) least_us = fmin(least_us, samples->us[i]);
    MPI_Allreduce(&least_us, &greatest_us, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    return fmax(greatest_us * 1e-6, 1e-5);
}

/* True if the result is right on all ranks. */
static int is_right_everywhere(const struct coll *coll) {
    int right = is_right(coll), all_right;
    MPI_Allreduce(&right, &all_right, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    return all_right;
}

/* All arrival patterns of an operation. A wrong result has no time. */
static void measure(const struct coll *coll, double seconds, int crosses, int has_one_clock) {
    static struct samples samples;
    const char *name = NAMES[coll->operation], *wrong = "the result came out wrong";
    fill(coll);
    torres_measure((struct torres){once, coll, 1}, seconds, &samples);
    int right = is_right_everywhere(coll);
    double each_s = each_s_of(&samples);
    struct summary summary = torres_summary(&samples);
    if (right && crosses && has_one_clock) cross(coll, each_s, &summary);
    else if (coll->rank == 0 && right) summary_print(name, coll->bytes, IN_A_ROW, &summary);
    else if (coll->rank == 0) missing_print(name, coll->bytes, IN_A_ROW, wrong);
    double whole_s = whole_s_of(coll);
    for (int pattern = AT_ONCE; pattern <= AT_RANDOM; pattern++) {
        if (!has_one_clock) {
            if (coll->rank == 0) missing_print(name, coll->bytes, pattern, "the ranks see clocks of several machines");
            continue;
        }
        memset(coll->in, 0x55, (size_t)(coll->bytes * coll->size));
        measure_alone(coll, whole_s, pattern == AT_RANDOM ? whole_s / 2 : 0, seconds, &samples);
        right = is_right_everywhere(coll);
        if (coll->rank == 0 && right) {
            summary = samples_summary(&samples);
            summary_print(name, coll->bytes, pattern, &summary);
        } else if (coll->rank == 0) {
            missing_print(name, coll->bytes, pattern, wrong);
        }
    }
}

/* True if all ranks see the clock of the same kernel, by its boot id. */
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
    int size, rank = program_start("coll", &argc, &argv, &size);
    int crosses = argc > 1 && !strcmp(argv[1], "crossing"), first = 1 + crosses;
    double seconds = argc > first ? program_number("coll", "the time per operation", argv[first], PROGRAM_MOST_SECONDS) : 0.2;
    int has_one_clock = see_one_clock();
    int *counts = (int *)program_memory("coll", (size_t)size * sizeof *counts);
    int *places = (int *)program_memory("coll", (size_t)size * sizeof *places);
    for (int i = first + 1; i < argc; i++) {
        long bytes = strcmp(argv[i], "0") ? (long)program_number("coll", "size", argv[i], (double)PROGRAM_MOST_BYTES / size) : 0;
        size_t room = (size_t)(bytes * size) + 1;
        struct coll coll = {BARRIER, rank, size, bytes, program_memory("coll", room), program_memory("coll", room), counts, places};
        int end = !bytes ? BCAST : bytes % (long)sizeof(float) ? REDUCE : OPERATIONS;
        for (int operation = bytes ? BCAST : BARRIER; operation < end; operation++) {
            coll.operation = operation;
            measure(&coll, seconds, crosses, has_one_clock);
        }
        free(coll.out);
        free(coll.in);
    }
    free(counts);
    free(places);
    return program_end(0);
}
