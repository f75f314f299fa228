/* Computing, for measurements beside it: a loop that touches no memory and makes no call. Its number of iterations
   takes a given time of a core. It is calibrated by the thread's own processor time, so other load on the machine
   does not shorten it. */
#ifndef CANELE_BENCH_COMPUTE_H
#define CANELE_BENCH_COMPUTE_H

#include "clock.h"

static double compute_turns_per_us;

static inline void compute_turns(uint64_t turns) {
    uint64_t word = turns;
    for (uint64_t turn = 0; turn < turns; turn++) {
        word = word * 6364136223846793005u + 1442695040888963407u; /* Knuth's MMIX; each iteration needs the last */
        __asm__ volatile("" : "+r"(word));
    }
}

static inline double compute_own_us(void) {
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec * 1e6 + (double)now.tv_nsec * 1e-3;
}

/* The fastest of several trials: the least disturbed one. */
static inline void compute_calibrate(void) {
    enum { TRIALS = 10, TURNS = 1 << 20 };
    for (int trial = 0; trial < TRIALS; trial++) {
        double start = compute_own_us();
        compute_turns(TURNS);
        double turns_per_us = TURNS / (compute_own_us() - start);
        if (turns_per_us > compute_turns_per_us) compute_turns_per_us = turns_per_us;
    }
}

static inline void compute_us(double us) { compute_turns((uint64_t)(us * compute_turns_per_us)); }

#endif
