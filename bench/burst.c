/* A burst of short messages from rank 0 to rank 1, all under way at once, until rank 1 has said that it
   has them all: a line of JSON each. Usage: burst SECONDS_PER_SIZE MESSAGES SIZE...

   Rank 1 has posted its receives before it says that it is ready. */
#include "program.h"

static void receive(char *data, long bytes, int messages, MPI_Request *requests) {
    char word = 0, goes_on;
    do {
        for (int i = 0; i < messages; i++)
            MPI_Irecv(data + i * bytes, (int)bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &requests[i]);
        MPI_Send(&word, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
        goes_on = data[0] != PROGRAM_ENDS;
        MPI_Send(&word, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    } while (goes_on);
}

static double send_one(char *data, long bytes, int messages, MPI_Request *requests) {
    char word;
    MPI_Recv(&word, 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    uint64_t start = clock_ticks();
    for (int i = 0; i < messages; i++)
        MPI_Isend(data + i * bytes, (int)bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &requests[i]);
    MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
    MPI_Recv(&word, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return samples_us(clock_ticks() - start, 1);
}

static void measure(char *data, long bytes, int messages, MPI_Request *requests, double seconds, struct samples *samples) {
    samples_clear(samples);
    double start = clock_system_s();
    data[0] = PROGRAM_GOES_ON;
    samples->first_us = send_one(data, bytes, messages, requests);
    while (clock_system_s() - start < seconds / 4) send_one(data, bytes, messages, requests);
    while (data[0] != PROGRAM_ENDS) {
        int next = samples->count + 1;
        if (next == SAMPLES_ROOM || (next >= SAMPLES_LEAST && clock_system_s() - start >= seconds)) data[0] = PROGRAM_ENDS;
        samples->us[samples->count++] = send_one(data, bytes, messages, requests);
    }
}

int main(int argc, char **argv) {
    static struct samples samples;
    int size, rank = program_start("burst", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("burst", "the time per size", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    int messages = argc > 2 ? (int)program_number("burst", "the number of messages", argv[2], 100000) : 1000;
    MPI_Request *requests = malloc(sizeof(MPI_Request) * (size_t)messages);
    for (int i = 3; i < argc && rank < 2; i++) {
        long bytes = (long)program_number("burst", "size", argv[i], 65536);
        char *data = program_memory("burst", (size_t)(bytes * messages)), operation[64];
        if (rank == 1) receive(data, bytes, messages, requests);
        if (rank == 0) {
            measure(data, bytes, messages, requests, seconds, &samples);
            struct summary summary = samples_summary(&samples);
            snprintf(operation, sizeof operation, "burst of %d", messages);
            summary_print(operation, bytes, &summary);
        }
        free(data);
    }
    free(requests);
    return program_end(0);
}
