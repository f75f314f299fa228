/* Samples of one operation, their statistics, and the line of JSON that prints them: the same for all instruments.
   Every program first prints a line that describes itself (`program_print`). It then prints a line per operation and
   case (`summary_print`, or `missing_print`). A case on the command line is a size, or a size and a count: `64/8`. */
#ifndef CANELE_BENCH_SAMPLES_H
#define CANELE_BENCH_SAMPLES_H

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "clock.h"

enum { SAMPLES_ROOM = 50000, SAMPLES_LEAST = 3 };

struct samples {
    double first_us; /* the first of its size, before any warm-up; not among the others */
    int count;
    double us[SAMPLES_ROOM];
};

struct summary { /* all in microseconds, but for the count; the order is that of `summary_print` */
    double samples, first, min, p25, median, p75, mean, p99, max;
};

/* Forgets the samples, and touches their memory: no page is first used while the clock runs. */
static inline void samples_clear(struct samples *samples) { memset(samples, 0, sizeof *samples); }

enum { PROGRAM_MOST_BYTES = 1 << 30, PROGRAM_MOST_SECONDS = 3600, PROGRAM_GOES_ON = 1, PROGRAM_ENDS = 2 };

/* Takes samples for `seconds`, a quarter of them to warm up. `once` runs the measured operation with `word` in its
   message, and returns its time in microseconds. The word marks the last message for the other side. */
static inline void samples_take(struct samples *samples, double seconds, double (*once)(void *what, char word), void *what) {
    samples_clear(samples);
    double start = clock_system_s();
    samples->first_us = once(what, PROGRAM_GOES_ON);
    while (clock_system_s() - start < seconds / 4) once(what, PROGRAM_GOES_ON);
    for (int ends = 0; !ends; samples->count++) {
        int next = samples->count + 1;
        ends = next == SAMPLES_ROOM || (next >= SAMPLES_LEAST && clock_system_s() - start >= seconds);
        samples->us[samples->count] = once(what, ends ? PROGRAM_ENDS : PROGRAM_GOES_ON);
    }
}

static inline int samples_compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* One sample: `ticks` between two readings of the clock, of which `part` of one counts (1: all, 2: half). */
static inline double samples_us(uint64_t ticks, int part) {
    uint64_t own = bench_clock.overhead;
    return clock_seconds(ticks > own ? ticks - own : 0) * 1e6 / part;
}

/* Least value that at least this share of the sorted samples does not exceed. */
static inline double samples_quantile(const struct samples *samples, double share) {
    int index = (int)ceil(share * samples->count) - 1;
    return samples->us[index < 0 ? 0 : index];
}

static inline struct summary samples_summary(struct samples *samples) {
    double sum = 0;
    int count = samples->count;
    qsort(samples->us, (size_t)count, sizeof(double), samples_compare);
    for (int i = 0; i < count; i++) sum += samples->us[i];
    return (struct summary){
        .samples = count,
        .first = samples->first_us,
        .min = samples->us[0],
        .p25 = samples_quantile(samples, 0.25),
        .median = (samples->us[(count - 1) / 2] + samples->us[count / 2]) / 2,
        .p75 = samples_quantile(samples, 0.75),
        .mean = sum / count,
        .p99 = samples_quantile(samples, 0.99),
        .max = samples->us[count - 1],
    };
}

/* The line without its end, so that more can follow. */
static inline void summary_begin(const char *operation, long bytes, long count, const struct summary *summary) {
    printf("{\"operation\": \"%s\", \"bytes\": %ld, \"count\": %ld, \"samples\": %.0f, \"first_us\": %.5f, \"min_us\": %.5f, "
           "\"p25_us\": %.5f, \"median_us\": %.5f, \"p75_us\": %.5f, \"mean_us\": %.5f, \"p99_us\": %.5f, "
           "\"max_us\": %.5f",
           operation, bytes, count, summary->samples, summary->first, summary->min, summary->p25, summary->median,
           summary->p75, summary->mean, summary->p99, summary->max);
}

static inline void summary_print(const char *operation, long bytes, long count, const struct summary *summary) {
    summary_begin(operation, bytes, count, summary);
    printf("}\n");
    fflush(stdout);
}

/* Text inside a JSON string: quotes, backslashes and control characters become spaces. */
static inline void program_print_text(const char *text) {
    putchar('"');
    for (; *text && *text != '\n'; text++) putchar((unsigned char)*text < 32 || *text == '"' || *text == '\\' ? ' ' : *text);
    putchar('"');
}

/* Replaces `summary_print` if the library lacks the operation: one line that says why. */
static inline void missing_print(const char *operation, long bytes, long count, const char *why) {
    printf("{\"operation\": \"%s\", \"bytes\": %ld, \"count\": %ld, \"missing\": ", operation, bytes, count);
    program_print_text(why);
    printf("}\n");
    fflush(stdout);
}

static inline void program_print(const char *program, const char *library, int ranks, const char *first_host,
                                 const char *last_host) {
    printf("{\"program\": \"%s\", \"ranks\": %d, \"library\": ", program, ranks);
    program_print_text(library);
    printf(", \"hosts\": [");
    program_print_text(first_host);
    printf(", ");
    program_print_text(last_host);
    printf("], \"clock\": ");
    clock_print(stdout);
    printf("}\n");
    fflush(stdout);
}

/* Parses a positive number from the command line. Ends the program with a message otherwise. */
static inline double program_number(const char *program, const char *what, const char *text, double most) {
    char *end;
    double number = strtod(text, &end);
    if (end == text || *end || !(number > 0) || number > most) {
        fprintf(stderr, "%s: %s `%s` is not a number above 0 and up to %.0f\n", program, what, text, most);
        exit(2);
    }
    return number;
}

/* A size in bytes and a count. */
struct program_case {
    long bytes, count;
};

/* Parses a case from the command line, neither number below 0 or above `most`. Ends the program otherwise. */
static inline struct program_case program_case(const char *program, const char *text, struct program_case most) {
    struct program_case found;
    int length = 0;
    if (sscanf(text, "%ld/%ld%n", &found.bytes, &found.count, &length) != 2 || text[length] || found.bytes < 0 ||
        found.count < 0 || found.bytes > most.bytes || found.count > most.count) {
        fprintf(stderr, "%s: `%s` is no SIZE/COUNT up to %ld/%ld\n", program, text, most.bytes, most.count);
        exit(2);
    }
    return found;
}

/* Memory for messages: whole pages, filled with incompressible data (SplitMix64; Steele, Lea, Flood 2014). */
static inline char *program_memory(const char *program, size_t bytes) {
    size_t rounded = (bytes + 4095) / 4096 * 4096;
    char *memory = aligned_alloc(4096, rounded);
    if (!memory) {
        fprintf(stderr, "%s: no memory for %zu bytes\n", program, bytes);
        exit(1);
    }
    uint64_t state = 0;
    for (size_t i = 0; i < rounded; i += sizeof state) {
        uint64_t word = state += 0x9e3779b97f4a7c15u;
        word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
        word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
        word ^= word >> 31;
        memcpy(memory + i, &word, sizeof word);
    }
    return memory;
}

#endif
