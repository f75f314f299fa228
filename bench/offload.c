/* Time that MPI_Isend takes to return, by size, and the whole time until the message has been received. Prints a line
   of JSON each. Usage: offload SECONDS_PER_SIZE SIZE...

   Rank 1 posts its receive before it reports that it is ready. */
#include "program.h"

enum { DATA, READY, DONE };

struct offload {
    char *data;
    int bytes;
    struct samples whole; /* until rank 1 reports that it has all */
};

static void receive(const struct offload *offload) {
    char word = 0;
    do {
        MPI_Request request;
        MPI_Irecv(offload->data, offload->bytes, MPI_CHAR, 0, DATA, MPI_COMM_WORLD, &request);
        MPI_Send(&word, 1, MPI_CHAR, 0, READY, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Send(&word, 1, MPI_CHAR, 0, DONE, MPI_COMM_WORLD);
    } while (offload->data[0] != PROGRAM_ENDS);
}

static double once(void *what, char word) {
    struct offload *offload = what;
    MPI_Request request;
    char answer;
    MPI_Recv(&answer, 1, MPI_CHAR, 1, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    offload->data[0] = word;
    uint64_t begin = clock_ticks();
    MPI_Isend(offload->data, offload->bytes, MPI_CHAR, 1, DATA, MPI_COMM_WORLD, &request);
    double us = samples_us(clock_ticks() - begin, 1);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv(&answer, 1, MPI_CHAR, 1, DONE, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    /* Only the most recent samples are stored. Those of the warm-up are overwritten first. */
    offload->whole.us[offload->whole.count++ % SAMPLES_ROOM] = samples_us(clock_ticks() - begin, 1);
    return us;
}

int main(int argc, char **argv) {
    static struct samples samples;
    static struct offload offload;
    int size, rank = program_start("offload", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("offload", "the time per size", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc && rank < 2; i++) {
        offload.bytes = (int)program_number("offload", "size", argv[i], PROGRAM_MOST_BYTES);
        offload.data = program_memory("offload", (size_t)offload.bytes);
        samples_clear(&offload.whole);
        if (rank == 1) receive(&offload);
        if (rank == 0) {
            samples_take(&samples, seconds, once, &offload);
            if (offload.whole.count > SAMPLES_ROOM) offload.whole.count = SAMPLES_ROOM;
            offload.whole.first_us = offload.whole.us[0];
            struct summary call = samples_summary(&samples), whole = samples_summary(&offload.whole);
            summary_print("MPI_Isend", offload.bytes, 0, &call);
            summary_print("whole transfer", offload.bytes, 0, &whole);
        }
        free(offload.data);
    }
    return program_end(0);
}
