/* Messages to and fro, measured by the initiator: the same procedures for any carrier. The partner returns the
   received data until the first byte marks the last message. No other message disturbs the exchange, and the
   initiator alone decides how many fit the time. */
#ifndef CANELE_BENCH_EXCHANGE_H
#define CANELE_BENCH_EXCHANGE_H

#include "samples.h"

struct exchange {
    /* Sends `bytes` of `out` and receives as many into `in`. */
    void (*once)(const struct exchange *exchange);
    void *with;
    char *out, *in;
    long bytes;
};

/* One after the other, a quarter of the time to warm up. The clock is read once per round trip. The time of a reading
   is subtracted. */
static inline void exchange_warm(struct exchange *exchange, double seconds, struct samples *samples) {
    uint64_t start = clock_ticks(), last;
    exchange->once(exchange);
    last = clock_ticks();
    samples->first_us = samples_us(last - start, 2);
    while (clock_seconds(last - start) < seconds / 4) exchange->once(exchange), last = clock_ticks();
    while (exchange->out[0] != PROGRAM_ENDS) {
        int next = samples->count + 1;
        if (next == SAMPLES_ROOM || (next >= SAMPLES_LEAST && clock_seconds(last - start) >= seconds))
            exchange->out[0] = PROGRAM_ENDS;
        exchange->once(exchange);
        uint64_t now = clock_ticks();
        samples->us[samples->count++] = samples_us(now - last, 2);
        last = now;
    }
}

/* Each after a silence in which nobody calls anything but the partner's receive. */
static inline void exchange_after_silence(struct exchange *exchange, double silence_s, double seconds, struct samples *samples) {
    double measured_s = 0;
    while (exchange->out[0] != PROGRAM_ENDS) {
        int next = samples->count + 1;
        if (next == SAMPLES_ROOM || (next >= SAMPLES_LEAST && measured_s >= seconds)) exchange->out[0] = PROGRAM_ENDS;
        clock_sleep(silence_s);
        uint64_t start = clock_ticks();
        exchange->once(exchange);
        double us = samples_us(clock_ticks() - start, 2);
        samples->us[samples->count++] = us;
        measured_s += 2e-6 * us;
    }
    samples->first_us = samples->us[0];
}

/* A number of messages in a row, from the first on. All of them are samples, in their order. */
static inline void exchange_row(struct exchange *exchange, long messages, struct samples *samples) {
    uint64_t last = clock_ticks();
    for (long i = 0; i < messages; i++) {
        if (i + 1 == messages) exchange->out[0] = PROGRAM_ENDS;
        exchange->once(exchange);
        uint64_t now = clock_ticks();
        samples->us[samples->count++] = samples_us(now - last, 2);
        last = now;
    }
    samples->first_us = samples->us[0];
}

/* Time of a row until a message had gone at this rate, or a negative number if none did. */
static inline double exchange_until_us(const struct samples *samples, long bytes, double mbit_per_s) {
    double until_us = 0;
    for (int i = 0; i < samples->count; i++) {
        until_us += 2 * samples->us[i];
        if ((double)bytes * 8 / samples->us[i] >= mbit_per_s) return until_us;
    }
    return -1;
}

/* The two lines of a row: its messages with the time of each, and the time until it was fast. */
static inline void exchange_print_row(long bytes, long messages, struct samples *samples) {
    enum { FAST_MBIT_PER_S = 500 };
    static struct samples sorted;
    const char *const until = "until 500 Mb/s";
    double until_us = exchange_until_us(samples, bytes, FAST_MBIT_PER_S);
    sorted = *samples;
    struct summary summary = samples_summary(&sorted);
    summary_begin("each message", bytes, messages, &summary);
    printf(", \"trace_us\": [");
    for (int i = 0; i < samples->count; i++) printf("%s%.5f", i ? ", " : "", samples->us[i]);
    printf("]}\n");
    if (until_us < 0) {
        missing_print(until, bytes, messages, "no message was as fast");
        return;
    }
    struct summary fast = {1, until_us, until_us, until_us, until_us, until_us, until_us, until_us, until_us};
    summary_print(until, bytes, messages, &fast);
}

/* Kinds of exchanges. */
enum exchange_kind { EXCHANGE_PINGPONG, EXCHANGE_ROW };

/* A case on the command line: a size, and an optional number. The number counts the messages of a row; otherwise it
   is a silence. */
static inline struct program_case exchange_case(const char *program, enum exchange_kind kind, const char *text) {
    long most = kind == EXCHANGE_ROW ? SAMPLES_ROOM : 60000000, least = kind == EXCHANGE_ROW;
    struct program_case asked = {0, 0};
    if (strchr(text, '/')) asked = program_case(program, text, (struct program_case){PROGRAM_MOST_BYTES, most});
    else asked.bytes = (long)program_number(program, "size", text, PROGRAM_MOST_BYTES);
    if (asked.bytes < 1 || asked.count < least) {
        fprintf(stderr, "%s: `%s` has no bytes, or no messages\n", program, text);
        exit(2);
    }
    return asked;
}

/* Measures a case and prints its lines. Returns true if the returned data differed. A ping-pong's count is a silence
   in microseconds before each message. A row's count is its number of messages. */
static inline int exchange_measure(const char *program, enum exchange_kind kind, struct exchange *exchange, struct program_case asked,
                                   double seconds) {
    static struct samples samples;
    samples_clear(&samples);
    memset(exchange->in, 0, (size_t)exchange->bytes);
    exchange->out[0] = PROGRAM_GOES_ON;
    if (kind == EXCHANGE_ROW) {
        exchange_row(exchange, asked.count, &samples);
        exchange_print_row(asked.bytes, asked.count, &samples);
    } else {
        if (asked.count) exchange_after_silence(exchange, (double)asked.count * 1e-6, seconds, &samples);
        else exchange_warm(exchange, seconds, &samples);
        struct summary summary = samples_summary(&samples);
        summary_print("pingpong", asked.bytes, asked.count, &summary);
    }
    int failed = memcmp(exchange->in, exchange->out, (size_t)exchange->bytes) != 0;
    if (failed) fprintf(stderr, "%s: %ld bytes came back changed\n", program, exchange->bytes);
    return failed;
}

#endif
