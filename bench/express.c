/* Savings by coalescing. N packets, each needed at once by the receiver, go to and fro between two ranks. Measured is
   half of that: as one message of the native interface, and one by one by several methods. Prints a line of JSON for
   each. A library without the native interface says so and sends MPI messages. Usage: express SECONDS_PER_METHOD
   SIZE/PACKETS...

   The methods alternate, so that other load on the machine affects all alike. The first byte of all packets tells
   rank 1 which round was the last. */
#include "program.h"

/* Methods of the native interface, then MPI's. */
enum { ONE, FLUSHED, EACH, EACH_ANSWERED, MPI_EACH, MPI_ANSWERED, METHODS };
static const char *const NAMES[] = {"one message",   "each flushed", "a message each",
                                    "each answered", "MPI messages", "MPI, each answered"};

struct express {
    char *data;
    int bytes, packets, other;
};

#if __has_include(<mad.h>)
#include <mad.h>
/* The same binary runs on libraries without these functions. */
#pragma weak mad_init
#pragma weak mad_finalize
#pragma weak mad_channel_open
#pragma weak mad_channel_close
#pragma weak mad_begin_packing
#pragma weak mad_pack
#pragma weak mad_end_packing
#pragma weak mad_begin_unpacking_from
#pragma weak mad_unpack
#pragma weak mad_end_unpacking
#pragma weak mad_last_error

static mad_channel_t channel;

static void check(int code) {
    if (!code) return;
    fprintf(stderr, "express: %s\n", mad_last_error());
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static int native_start(void) {
    if (!mad_init) return 0;
    check(mad_init());
    check(mad_channel_open(0, &channel));
    return 1;
}

static void native_end(void) {
    check(mad_channel_close(channel));
    check(mad_finalize());
}

static void native_give(const struct express *express, int method) {
    int next = method == FLUSHED ? MAD_NEXT_COMPUTING : MAD_NEXT_PACKET(mad_send_CHEAPER, mad_receive_EXPRESS);
    mad_connection_t c = NULL;
    for (int i = 0; i < express->packets; i++) {
        if (i == 0 || method >= EACH) check(mad_begin_packing(channel, express->other, &c));
        check(mad_pack(c, express->data, (size_t)express->bytes, mad_send_CHEAPER, mad_receive_EXPRESS, next));
        if (i == express->packets - 1 || method >= EACH) check(mad_end_packing(c));
        if (method == EACH_ANSWERED) {
            check(mad_begin_unpacking_from(channel, express->other, &c));
            check(mad_end_unpacking(c));
        }
    }
}

static void native_take(struct express *express, int method) {
    mad_connection_t c = NULL;
    for (int i = 0; i < express->packets; i++) {
        if (i == 0 || method >= EACH) check(mad_begin_unpacking_from(channel, express->other, &c));
        check(mad_unpack(c, express->data, (size_t)express->bytes, mad_send_CHEAPER, mad_receive_EXPRESS, MAD_NEXT_UNKNOWN));
        if (i == express->packets - 1 || method >= EACH) check(mad_end_unpacking(c));
        if (method == EACH_ANSWERED) {
            check(mad_begin_packing(channel, express->other, &c));
            check(mad_end_packing(c));
        }
    }
}
#else
static int native_start(void) { return 0; }
static void native_end(void) {}
static void native_give(const struct express *express, int method) { (void)express, (void)method; }
static void native_take(struct express *express, int method) { (void)express, (void)method; }
#endif

static void mpi_give(const struct express *express, int method) {
    for (int i = 0; i < express->packets; i++) {
        MPI_Send(express->data, express->bytes, MPI_CHAR, express->other, 0, MPI_COMM_WORLD);
        if (method == MPI_ANSWERED) MPI_Recv(NULL, 0, MPI_CHAR, express->other, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
}

static void mpi_take(struct express *express, int method) {
    for (int i = 0; i < express->packets; i++) {
        MPI_Recv(express->data, express->bytes, MPI_CHAR, express->other, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (method == MPI_ANSWERED) MPI_Send(NULL, 0, MPI_CHAR, express->other, 1, MPI_COMM_WORLD);
    }
}

static void give(const struct express *express, int method) { (method < MPI_EACH ? native_give : mpi_give)(express, method); }
static void take(struct express *express, int method) { (method < MPI_EACH ? native_take : mpi_take)(express, method); }

static void answer(struct express *express, int first) {
    do {
        for (int method = first; method < METHODS; method++) {
            take(express, method);
            give(express, method);
        }
    } while (express->data[0] != PROGRAM_ENDS);
}

static double once(struct express *express, int method, char word) {
    express->data[0] = word;
    uint64_t start = clock_ticks();
    give(express, method);
    take(express, method);
    return samples_us(clock_ticks() - start, 2);
}

/* Rounds of all methods for `seconds` each, a quarter of them to warm up. */
static void measure(struct express *express, int first, double seconds, struct samples *samples) {
    for (int method = first; method < METHODS; method++) samples_clear(&samples[method]);
    double start = clock_system_s(), all = seconds * (METHODS - first);
    for (int method = first; method < METHODS; method++) samples[method].first_us = once(express, method, PROGRAM_GOES_ON);
    while (clock_system_s() - start < all / 4)
        for (int method = first; method < METHODS; method++) once(express, method, PROGRAM_GOES_ON);
    for (int ends = 0; !ends;) {
        int next = samples[first].count + 1;
        ends = next == SAMPLES_ROOM || (next >= SAMPLES_LEAST && clock_system_s() - start >= all);
        for (int method = first; method < METHODS; method++)
            samples[method].us[samples[method].count++] = once(express, method, ends ? PROGRAM_ENDS : PROGRAM_GOES_ON);
    }
}

int main(int argc, char **argv) {
    static struct samples samples[METHODS];
    int size, rank = program_start("express", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("express", "the time per method", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    int is_native = rank < 2 && native_start(), first = is_native ? ONE : MPI_EACH;
    for (int i = 2; i < argc && rank < 2; i++) {
        struct program_case asked = program_case("express", argv[i], (struct program_case){1 << 20, 10000});
        struct express express = {program_memory("express", (size_t)asked.bytes + 1), (int)asked.bytes, (int)asked.count,
                                  1 - rank};
        express.data[0] = PROGRAM_GOES_ON;
        if (rank == 1) answer(&express, first);
        if (rank == 0) {
            measure(&express, first, seconds, samples);
            for (int method = ONE; method < first; method++)
                missing_print(NAMES[method], asked.bytes, asked.count, "it lacks the native interface");
            for (int method = first; method < METHODS; method++) {
                struct summary summary = samples_summary(&samples[method]);
                summary_print(NAMES[method], asked.bytes, asked.count, &summary);
            }
        }
        free(express.data);
    }
    if (is_native) native_end();
    return program_end(0);
}
