/* Cost of waiting. For a given time nobody sends a message to a rank. It waits in MPI_Recv, or sleeps outside of MPI
   with a receive posted, or with none. `share` is the processor time that its process, with all its threads, uses
   meanwhile. The times are half of the round trip that follows. Prints a line of JSON for each case and operation.
   Usage: idle SECONDS_PER_OPERATION SIZE/WAITING_US... */
#include <sys/resource.h>

#include "program.h"

enum { BLOCKED, PENDING, NOTHING, OPERATIONS };
static const char *const NAMES[] = {"blocked in MPI_Recv", "asleep, receive posted", "asleep, nothing posted"};
enum { DATA, AWAKE, ANSWER, SHARE };

struct idle {
    char *data;
    int bytes, operation;
    double waiting_s;
};

static double used_s(void) {
    struct rusage usage;
    getrusage(RUSAGE_SELF, &usage);
    return (double)(usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) +
           (double)(usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) * 1e-6;
}

/* Rank 1: returns the share of the time that it used. */
static double wait_for_messages(const struct idle *idle) {
    double used = 0, elapsed = 0;
    do {
        MPI_Request request = MPI_REQUEST_NULL;
        if (idle->operation == PENDING)
            MPI_Irecv(idle->data, idle->bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, &request);
        double begin_s = clock_system_s(), begin_used_s = used_s();
        if (idle->operation == BLOCKED) MPI_Recv(idle->data, idle->bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        else clock_sleep(idle->waiting_s);
        used += used_s() - begin_used_s, elapsed += clock_system_s() - begin_s;
        if (idle->operation != BLOCKED) MPI_Send(NULL, 0, MPI_CHAR, 0, AWAKE, MPI_COMM_WORLD);
        if (idle->operation == PENDING) MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (idle->operation == NOTHING) MPI_Recv(idle->data, idle->bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(idle->data, idle->bytes, MPI_CHAR, 0, ANSWER, MPI_COMM_WORLD);
    } while (idle->data[0] != PROGRAM_ENDS);
    return used / elapsed;
}

/* Rank 0: lets rank 1 wait, and exchanges one message. */
static double once(const struct idle *idle, char word) {
    if (idle->operation == BLOCKED) clock_sleep(idle->waiting_s);
    else MPI_Recv(NULL, 0, MPI_CHAR, 1, AWAKE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    idle->data[0] = word;
    uint64_t begin = clock_ticks();
    MPI_Send(idle->data, idle->bytes, MPI_CHAR, 1, DATA, MPI_COMM_WORLD);
    MPI_Recv(idle->data, idle->bytes, MPI_CHAR, 1, ANSWER, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return samples_us(clock_ticks() - begin, 2);
}

static void measure(const struct idle *idle, struct program_case asked, double seconds) {
    static struct samples samples;
    double share, begin_s = clock_system_s();
    samples_clear(&samples);
    samples.first_us = once(idle, PROGRAM_GOES_ON);
    for (int ends = 0; !ends;) {
        int next = samples.count + 1;
        ends = next == SAMPLES_ROOM || (next >= SAMPLES_LEAST && clock_system_s() - begin_s >= seconds);
        samples.us[samples.count++] = once(idle, ends ? PROGRAM_ENDS : PROGRAM_GOES_ON);
    }
    MPI_Recv(&share, 1, MPI_DOUBLE, 1, SHARE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    struct summary summary = samples_summary(&samples);
    summary_begin(NAMES[idle->operation], asked.bytes, asked.count, &summary);
    printf(", \"share\": %.6f}\n", share);
    fflush(stdout);
}

int main(int argc, char **argv) {
    int size, rank = program_start("idle", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("idle", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc && rank < 2; i++) {
        struct program_case asked = program_case("idle", argv[i], (struct program_case){1 << 20, 60000000});
        for (int operation = 0; operation < OPERATIONS; operation++) {
            struct idle idle = {program_memory("idle", (size_t)asked.bytes + 1), (int)asked.bytes, operation, (double)asked.count * 1e-6};
            if (rank == 0) measure(&idle, asked, seconds);
            if (rank == 1) {
                double share = wait_for_messages(&idle);
                MPI_Send(&share, 1, MPI_DOUBLE, 0, SHARE, MPI_COMM_WORLD);
            }
            free(idle.data);
        }
    }
    return program_end(0);
}
