/* Operations of all ranks, measured as Torres & Kofuji do: 50 of them are timed together, 30 times, after three such
   batches of warm-up. Each rank makes its own statistics of the batches, and the greatest over the ranks counts. Other
   programs have as many batches as their time allows, and fewer calls in each if 50 would take too long; rank 0 decides
   that for all. The number is even: ranks on two sites leave the
   barrier before a batch up to a one-way delay apart. In two exchanges each site waits once for the other that long. */
#ifndef CANELE_BENCH_TORRES_H
#define CANELE_BENCH_TORRES_H

#include "program.h"

enum { TORRES_CALLS = 50, TORRES_CALLS_LEAST = 4, TORRES_WARM = 3, TORRES_BATCHES = 30, TORRES_BATCHES_MOST = 1000 };

struct torres {
    void (*once)(const void *what);
    const void *what;
    int part; /* divides one operation's time: 2 if half of it is meant */
};

static inline double torres_batch(struct torres torres, int calls) {
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t start = clock_ticks();
    for (int call = 0; call < calls; call++) torres.once(torres.what);
    return samples_us(clock_ticks() - start, torres.part * calls);
}

static inline int torres_within(double number, int least, int most) {
    return number < least ? least : number > most ? most : (int)number;
}

/* Exactly as Torres & Kofuji do, however long it takes. */
static inline void torres_measure_whole(struct torres torres, struct samples *samples) {
    samples_clear(samples);
    samples->first_us = torres_batch(torres, 1);
    for (int warm = 0; warm < TORRES_WARM; warm++) torres_batch(torres, TORRES_CALLS);
    for (; samples->count < TORRES_BATCHES; samples->count++) samples->us[samples->count] = torres_batch(torres, TORRES_CALLS);
}

static inline void torres_measure(struct torres torres, double seconds, struct samples *samples) {
    samples_clear(samples);
    samples->first_us = torres_batch(torres, 1);
    double each_s = torres_batch(torres, TORRES_WARM) * 1e-6;
    int calls = torres_within(seconds / TORRES_WARM / each_s, TORRES_CALLS_LEAST, TORRES_CALLS) / 2 * 2;
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    double start = clock_system_s();
    for (int warm = 0; warm < TORRES_WARM; warm++) torres_batch(torres, calls);
    int batches = torres_within(seconds / ((clock_system_s() - start) / TORRES_WARM), SAMPLES_LEAST, TORRES_BATCHES_MOST);
    MPI_Bcast(&batches, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (; samples->count < batches; samples->count++) samples->us[samples->count] = torres_batch(torres, calls);
}

/* Greatest value over the ranks of each statistic, at rank 0. */
static inline struct summary torres_summary(struct samples *samples) {
    struct summary own = samples_summary(samples), greatest = own;
    MPI_Reduce(&own, &greatest, sizeof own / sizeof(double), MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    return greatest;
}

#endif
