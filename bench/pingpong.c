/* Half a round trip between two ranks, for each size: a line of JSON each.
   Usage: pingpong SECONDS_PER_SIZE SIZE...

   Rank 1 sends back what it has received until the first byte tells it that this was the last, so no other
   message disturbs the exchange, and rank 0 alone decides how many fit the time. The clock is read once per
   round trip; the time of a reading is taken off. */
#include "program.h"

static void answer(char *data, long bytes) {
    do {
        MPI_Recv(data, (int)bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(data, (int)bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    } while (data[0] != PROGRAM_ENDS);
}

static void exchange(const char *out, char *in, long bytes) {
    MPI_Send(out, (int)bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(in, (int)bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static void measure(char *out, char *in, long bytes, double seconds, struct samples *samples) {
    samples_clear(samples);
    out[0] = PROGRAM_GOES_ON;
    uint64_t start = clock_ticks(), last;
    exchange(out, in, bytes);
    last = clock_ticks();
    samples->first_us = samples_us(last - start, 2);
    while (clock_seconds(last - start) < seconds / 4) exchange(out, in, bytes), last = clock_ticks();
    while (out[0] != PROGRAM_ENDS) {
        int next = samples->count + 1;
        if (next == SAMPLES_ROOM || (next >= SAMPLES_LEAST && clock_seconds(last - start) >= seconds)) out[0] = PROGRAM_ENDS;
        exchange(out, in, bytes);
        uint64_t now = clock_ticks();
        samples->us[samples->count++] = samples_us(now - last, 2);
        last = now;
    }
}

int main(int argc, char **argv) {
    static struct samples samples;
    int size, failed = 0, rank = program_start("pingpong", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("pingpong", "the time per size", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc && rank < 2; i++) {
        long bytes = (long)program_number("pingpong", "size", argv[i], PROGRAM_MOST_BYTES);
        char *out = program_memory("pingpong", (size_t)bytes), *in = program_memory("pingpong", (size_t)bytes);
        if (rank == 1) answer(in, bytes);
        if (rank == 0) {
            memset(in, 0, (size_t)bytes);
            measure(out, in, bytes, seconds, &samples);
            struct summary summary = samples_summary(&samples);
            summary_print("pingpong", bytes, 0, &summary);
            if (memcmp(in, out, (size_t)bytes)) {
                fprintf(stderr, "pingpong: %ld bytes came back changed\n", bytes);
                failed = 1;
            }
        }
        free(out);
        free(in);
    }
    return program_end(failed);
}
