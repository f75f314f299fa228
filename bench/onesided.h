/* Rows of the instrument `onesided`, the same for MPI (onesided.c), for memory of two processes (memory.c) and for raw TCP
   (tcp.c). A row is an operation and a kind of window; the window is the count of its line. */
#ifndef CANELE_BENCH_ONESIDED_H
#define CANELE_BENCH_ONESIDED_H

#include "samples.h"

enum onesided_operation { PUT, GET, ACCUMULATE, FETCH, FETCH_PACED, PUTS, MAKE, ONESIDED_OPERATIONS };
static const char *const ONESIDED_NAMES[] = {"put", "get", "accumulate", "fetch_and_op", "fetch_and_op, 1 a ms", "1000 puts",
                                             "make a window"};

/* Of MPI_Win_allocate, of MPI_Win_create, and of MPI_Win_create while its owner computes. */
enum onesided_window { ALLOCATED, CREATED, COMPUTING, ONESIDED_WINDOWS };

enum { ONESIDED_WORD = 8, ONESIDED_PUTS = 1000, ONESIDED_PACE_US = 1000 };

/* True if there is such a row. Atomic operations and series of puts are of a word, and a computing target is of interest
   for the former. */
static inline int onesided_has(int operation, int window, long bytes) {
    if (operation == FETCH || operation == FETCH_PACED)
        return bytes == ONESIDED_WORD && (operation == FETCH || window != ALLOCATED);
    return window != COMPUTING && (operation != PUTS || bytes == ONESIDED_WORD);
}

/* A case on the command line: a size, a multiple of a word. */
static inline long onesided_bytes(const char *program, const char *text) {
    long bytes = (long)program_number(program, "size", text, PROGRAM_MOST_BYTES);
    if (bytes >= ONESIDED_WORD && bytes % ONESIDED_WORD == 0) return bytes;
    fprintf(stderr, "%s: `%s` is no multiple of %d bytes\n", program, text, ONESIDED_WORD);
    exit(2);
}

/* Bytes that an operation moves. */
static inline long onesided_moved(int operation, long bytes) { return operation == PUTS ? ONESIDED_PUTS * bytes : bytes; }

/* Operations of one row. `operate` runs one of them to its end, with the word of its sample. */
struct onesided_series {
    void (*operate)(void *what, char word);
    void *what;
    double pace_us, due_s; /* interval of the samples, if it is not 0 */
    int repeats;           /* in a sample, so that the clock resolves it */
};

static inline double onesided_sample(void *of, char word) {
    struct onesided_series *series = of;
    if (series->pace_us > 0) {
        series->due_s = fmax(series->due_s + 1e-6 * series->pace_us, clock_system_s());
        clock_sleep_until(series->due_s);
    }
    uint64_t start = clock_ticks();
    for (int i = 1; i < series->repeats; i++) series->operate(series->what, PROGRAM_GOES_ON);
    series->operate(series->what, word);
    return samples_us(clock_ticks() - start, series->repeats);
}

static inline void onesided_take(struct samples *samples, double seconds, struct onesided_series series) {
    enum { SAMPLE_US = 20, TRIALS = 5, MOST = 1000 };
    double least_us = SAMPLE_US;
    series.repeats = 1;
    for (int i = 0; i < TRIALS && series.pace_us == 0; i++)
        least_us = fmin(least_us, onesided_sample(&series, PROGRAM_GOES_ON));
    if (series.pace_us == 0) series.repeats = (int)fmin(SAMPLE_US / fmax(least_us, 1e-3) + 1, MOST);
    samples_take(samples, seconds, onesided_sample, &series);
}

/* Prints a row, with the share that the target keeps of its computing if it computes. */
static inline void onesided_print(int operation, int window, long bytes, struct samples *samples, const double *share) {
    struct summary summary = samples_summary(samples);
    summary_begin(ONESIDED_NAMES[operation], bytes, window, &summary);
    if (share) printf(", \"share\": %.6f", *share);
    printf("}\n");
    fflush(stdout);
}

#endif
