/* A calibrated clock for the instruments. It reads the processor's time-stamp counter where that is invariant and the
   kernel trusts it, and clock_gettime elsewhere. It measures its own overhead and resolution, and is checked against
   a known sleep (Hablot & Glück, LIP RR2006-26, §5.5.1).

   Order of calls: clock_calibrate once, then clock_ticks any number of times. clock_seconds converts a difference of
   ticks to seconds. clock_check and clock_print show the quality of the clock. */
#ifndef CANELE_BENCH_CLOCK_H
#define CANELE_BENCH_CLOCK_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

struct bench_clock {
    int is_counter;        /* 1: time-stamp counter, 0: clock_gettime */
    double ticks_per_s;
    uint64_t overhead;     /* ticks that one reading takes */
    uint64_t resolution;   /* least difference other than zero between two readings, in ticks */
    double sleep_asked_s;  /* the check: a sleep as requested, as the system measured it, as this clock measured it */
    double sleep_system_s;
    double sleep_clock_s;
};

static struct bench_clock bench_clock;

static inline double clock_system_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline uint64_t clock_ticks(void) {
#if defined(__x86_64__)
    if (bench_clock.is_counter) {
        _mm_lfence(); /* earlier instructions have finished when the counter is read */
        return __rdtsc();
    }
#endif
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static inline double clock_seconds(uint64_t ticks) { return (double)ticks / bench_clock.ticks_per_s; }

static inline void clock_sleep(double seconds) {
    struct timespec rest = {(time_t)seconds, (long)((seconds - floor(seconds)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, 0, &rest, &rest) != 0) {
    }
}

/* Sleeps until a time of the system's clock. Processes that sleep until the same time request the same expiry from
   the kernel. After the first, none needs the processor's timer reprogrammed. That takes microseconds in a virtual
   machine, while another process waits for the core. */
static inline void clock_sleep_until(double system_s) {
    struct timespec due = {(time_t)system_s, (long)((system_s - floor(system_s)) * 1e9)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &due, NULL) != 0) {
    }
}

/* True if the counter is invariant (CPUID 80000007h, EDX bit 8) and not rejected by the kernel. */
static inline int clock_counter_is_invariant(void) {
#if defined(__x86_64__)
    unsigned a, b, c, d;
    if (!__get_cpuid(0x80000007u, &a, &b, &c, &d) || !(d & (1u << 8))) return 0;
    FILE *file = fopen("/sys/devices/system/clocksource/clocksource0/available_clocksource", "r");
    if (!file) return 0;
    char text[256] = "";
    size_t length = fread(text, 1, sizeof text - 1, file);
    fclose(file);
    text[length] = 0;
    return strstr(text, "tsc") != NULL;
#else
    return 0;
#endif
}

/* Reads both clocks as close together as the best of several trials allows. */
static inline void clock_pair(uint64_t *ticks, double *system_s) {
    uint64_t narrowest = UINT64_MAX;
    for (int trial = 0; trial < 50; trial++) {
        uint64_t before = clock_ticks();
        double system = clock_system_s();
        uint64_t width = clock_ticks() - before;
        if (width < narrowest) narrowest = width, *ticks = before + width / 2, *system_s = system;
    }
}

static inline void clock_calibrate(void) {
    enum { BATCHES = 50, READINGS = 200 };
    bench_clock.is_counter = clock_counter_is_invariant();
    bench_clock.ticks_per_s = 1e9;
    if (bench_clock.is_counter) {
        uint64_t ticks[2];
        double system_s[2];
        clock_pair(&ticks[0], &system_s[0]);
        clock_sleep(0.02);
        clock_pair(&ticks[1], &system_s[1]);
        bench_clock.ticks_per_s = (double)(ticks[1] - ticks[0]) / (system_s[1] - system_s[0]);
    }
    bench_clock.overhead = bench_clock.resolution = UINT64_MAX;
    for (int batch = 0; batch < BATCHES; batch++) {
        uint64_t start = clock_ticks(), last = start;
        for (int reading = 0; reading < READINGS; reading++) {
            uint64_t now = clock_ticks();
            if (now > last && now - last < bench_clock.resolution) bench_clock.resolution = now - last;
            last = now;
        }
        uint64_t each = (last - start) / READINGS;
        if (each < bench_clock.overhead) bench_clock.overhead = each;
    }
}

/* Sleeps, and compares both clocks' measurements. Returns their relative difference. */
static inline double clock_check(double seconds) {
    uint64_t ticks[2];
    double system_s[2];
    clock_pair(&ticks[0], &system_s[0]);
    clock_sleep(seconds);
    clock_pair(&ticks[1], &system_s[1]);
    bench_clock.sleep_asked_s = seconds;
    bench_clock.sleep_system_s = system_s[1] - system_s[0];
    bench_clock.sleep_clock_s = clock_seconds(ticks[1] - ticks[0]);
    return fabs(bench_clock.sleep_clock_s / bench_clock.sleep_system_s - 1);
}

/* Prints the clock as a JSON object, without a line end. */
static inline void clock_print(FILE *file) {
    fprintf(file,
            "{\"source\": \"%s\", \"ticks_per_us\": %.3f, \"overhead_ns\": %.1f, \"resolution_ns\": %.1f, "
            "\"sleep_asked_ms\": %.3f, \"sleep_system_ms\": %.6f, \"sleep_clock_ms\": %.6f}",
            bench_clock.is_counter ? "time-stamp counter" : "clock_gettime", bench_clock.ticks_per_s / 1e6,
            clock_seconds(bench_clock.overhead) * 1e9, clock_seconds(bench_clock.resolution) * 1e9,
            bench_clock.sleep_asked_s * 1e3, bench_clock.sleep_system_s * 1e3, bench_clock.sleep_clock_s * 1e3);
}

#endif
