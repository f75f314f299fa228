/* Half a round trip of a message that is cut into packets. Each packet is a message of its own to MPI, and all of one
   direction are in flight at once. Prints a line of JSON for each case. Usage: cut SECONDS_PER_CASE SIZE/PACKETS...

   The packets of a message differ by one byte at most if the size is not a multiple. */
#include "program.h"

struct message {
    char *out, *in;
    long bytes, packets;
    MPI_Request *requests;
};

static void send(const struct message *message, const char *data, int to) {
    for (long i = 0; i < message->packets; i++) {
        long begin = message->bytes * i / message->packets, end = message->bytes * (i + 1) / message->packets;
        MPI_Isend(data + begin, (int)(end - begin), MPI_CHAR, to, 0, MPI_COMM_WORLD, &message->requests[i]);
    }
    MPI_Waitall((int)message->packets, message->requests, MPI_STATUSES_IGNORE);
}

static void receive(const struct message *message, int from) {
    for (long i = 0; i < message->packets; i++) {
        long begin = message->bytes * i / message->packets, end = message->bytes * (i + 1) / message->packets;
        MPI_Irecv(message->in + begin, (int)(end - begin), MPI_CHAR, from, 0, MPI_COMM_WORLD, &message->requests[i]);
    }
    MPI_Waitall((int)message->packets, message->requests, MPI_STATUSES_IGNORE);
}

static double exchange(void *what, char word) {
    const struct message *message = what;
    message->out[0] = word;
    uint64_t start = clock_ticks();
    send(message, message->out, 1);
    receive(message, 1);
    return samples_us(clock_ticks() - start, 2);
}

static void answer(const struct message *message) {
    do {
        receive(message, 0);
        send(message, message->in, 0);
    } while (message->in[0] != PROGRAM_ENDS);
}

static int measure(struct program_case asked, int rank, double seconds) {
    static struct samples samples;
    size_t bytes = (size_t)asked.bytes;
    struct message message = {program_memory("cut", bytes), program_memory("cut", bytes), asked.bytes, asked.count,
                              malloc(sizeof(MPI_Request) * (size_t)asked.count)};
    int failed = 0;
    if (rank == 1) answer(&message);
    if (rank == 0) {
        memset(message.in, 0, bytes);
        samples_take(&samples, seconds, exchange, &message);
        struct summary summary = samples_summary(&samples);
        summary_print("cut", asked.bytes, asked.count, &summary);
        failed = memcmp(message.in, message.out, bytes) != 0;
        if (failed) fprintf(stderr, "cut: %ld bytes in %ld packets came back changed\n", asked.bytes, asked.count);
    }
    free(message.requests);
    free(message.in);
    free(message.out);
    return failed;
}

int main(int argc, char **argv) {
    int size, failed = 0, rank = program_start("cut", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("cut", "the time per case", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc && rank < 2; i++) {
        struct program_case asked = program_case("cut", argv[i], (struct program_case){PROGRAM_MOST_BYTES, 65536});
        if (asked.count < 1 || asked.count > asked.bytes) {
            fprintf(stderr, "cut: %ld bytes cannot be cut into %ld packets\n", asked.bytes, asked.count);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        failed |= measure(asked, rank, seconds);
    }
    return program_end(failed);
}
