/* A burst of short messages from rank 0 to rank 1, all in flight at once, until rank 1 confirms all of them. Prints a
   line of JSON each. Usage: burst SECONDS_PER_CASE SIZE/MESSAGES...

   Rank 1 posts its receives before it reports that it is ready. */
#include "program.h"

struct burst {
    char *data;
    int bytes, messages;
    MPI_Request *requests;
};

static void receive(const struct burst *burst) {
    char word = 0, goes_on;
    do {
        for (int i = 0; i < burst->messages; i++)
            MPI_Irecv(burst->data + (size_t)i * burst->bytes, burst->bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, &burst->requests[i]);
        MPI_Send(&word, 1, MPI_CHAR, 0, 1, MPI_COMM_WORLD);
        MPI_Waitall(burst->messages, burst->requests, MPI_STATUSES_IGNORE);
        goes_on = burst->data[0] != PROGRAM_ENDS;
        MPI_Send(&word, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    } while (goes_on);
}

static double send_one(void *what, char word) {
    const struct burst *burst = what;
    MPI_Recv(&burst->data[0], 1, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    burst->data[0] = word;
    uint64_t start = clock_ticks();
    for (int i = 0; i < burst->messages; i++)
        MPI_Isend(burst->data + (size_t)i * burst->bytes, burst->bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, &burst->requests[i]);
    MPI_Waitall(burst->messages, burst->requests, MPI_STATUSES_IGNORE);
    MPI_Recv(&word, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return samples_us(clock_ticks() - start, 1);
}

int main(int argc, char **argv) {
    static struct samples samples;
    int size, rank = program_start("burst", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("burst", "the time per case", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc && rank < 2; i++) {
        struct program_case asked = program_case("burst", argv[i], (struct program_case){65536, 100000});
        size_t messages = (size_t)asked.count;
        struct burst burst = {program_memory("burst", (size_t)asked.bytes * messages + 1), (int)asked.bytes, (int)asked.count,
                              malloc(sizeof(MPI_Request) * (messages + 1))};
        if (rank == 1) receive(&burst);
        if (rank == 0) {
            samples_take(&samples, seconds, send_one, &burst);
            struct summary summary = samples_summary(&samples);
            summary_print("burst", asked.bytes, asked.count, &summary);
        }
        free(burst.requests);
        free(burst.data);
    }
    return program_end(0);
}
