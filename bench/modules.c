/* Two modules, a communicator each, between the same two ranks. The first exchanges short messages. The second's
   receiver is not ready, and its sender has sent it the given bytes in messages of mixed sizes. Measured is half a
   round trip of the first meanwhile. Prints a line of JSON for each case. Usage: modules SECONDS_PER_CASE
   SIZE/UNREADY_BYTES...

   The unready receiver posts its receives after the exchange has ended, and checks all data. */
#include "program.h"

static const int MIXED[] = {64, 1 << 10, 16 << 10, 256 << 10};
enum { MIXTURES = sizeof MIXED / sizeof *MIXED };

struct modules {
    char *out, *in;
    int bytes;
    MPI_Comm exchanging, unready;
};

static int count_messages(long bytes) {
    int count = 0;
    for (; bytes > 0; count++) bytes -= MIXED[count % MIXTURES];
    return count;
}

static void answer(const struct modules *modules) {
    do {
        MPI_Recv(modules->in, modules->bytes, MPI_CHAR, 0, 0, modules->exchanging, MPI_STATUS_IGNORE);
        MPI_Send(modules->in, modules->bytes, MPI_CHAR, 0, 0, modules->exchanging);
    } while (modules->in[0] != PROGRAM_ENDS);
}

static double exchange(void *what, char word) {
    const struct modules *modules = what;
    modules->out[0] = word;
    uint64_t start = clock_ticks();
    MPI_Send(modules->out, modules->bytes, MPI_CHAR, 1, 0, modules->exchanging);
    MPI_Recv(modules->in, modules->bytes, MPI_CHAR, 1, 0, modules->exchanging, MPI_STATUS_IGNORE);
    return samples_us(clock_ticks() - start, 2);
}

/* Message `index` is filled with its number, modulo 251. */
static void start(const struct modules *modules, char *data, int messages, int sends, MPI_Request *requests) {
    for (int i = 0; i < messages; data += MIXED[i++ % MIXTURES]) {
        int bytes = MIXED[i % MIXTURES];
        if (sends) memset(data, i % 251, (size_t)bytes);
        if (sends) MPI_Isend(data, bytes, MPI_CHAR, 1, 0, modules->unready, &requests[i]);
        else MPI_Irecv(data, bytes, MPI_CHAR, 0, 0, modules->unready, &requests[i]);
    }
}

static int is_damaged(const char *data, int messages) {
    for (int i = 0; i < messages; data += MIXED[i++ % MIXTURES])
        for (int at = 0; at < MIXED[i % MIXTURES]; at++)
            if (data[at] != (char)(i % 251)) return 1;
    return 0;
}

static int measure(const struct modules *modules, long unready, int rank, double seconds) {
    static struct samples samples;
    int messages = count_messages(unready), failed = 0;
    char *data = program_memory("modules", (size_t)unready + MIXED[MIXTURES - 1]);
    MPI_Request *requests = malloc(sizeof(MPI_Request) * (size_t)(messages + 1));
    MPI_Barrier(modules->exchanging);
    if (rank == 0) {
        start(modules, data, messages, 1, requests);
        samples_take(&samples, seconds, exchange, (void *)modules);
        struct summary summary = samples_summary(&samples);
        summary_print("exchange", modules->bytes, unready, &summary);
    }
    if (rank == 1) {
        answer(modules);
        start(modules, data, messages, 0, requests);
    }
    MPI_Waitall(messages, requests, MPI_STATUSES_IGNORE);
    if (rank == 1 && is_damaged(data, messages)) {
        fprintf(stderr, "modules: the unready module received other than was sent\n");
        failed = 1;
    }
    free(requests);
    free(data);
    return failed;
}

int main(int argc, char **argv) {
    int size, failed = 0, rank = program_start("modules", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("modules", "the time per case", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    if (size != 2) {
        fprintf(stderr, "modules: needs two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    struct modules modules = {.bytes = 0};
    MPI_Comm_dup(MPI_COMM_WORLD, &modules.exchanging);
    MPI_Comm_dup(MPI_COMM_WORLD, &modules.unready);
    for (int i = 2; i < argc; i++) {
        struct program_case asked = program_case("modules", argv[i], (struct program_case){4096, PROGRAM_MOST_BYTES});
        modules.bytes = (int)asked.bytes;
        modules.out = program_memory("modules", (size_t)asked.bytes + 1);
        modules.in = program_memory("modules", (size_t)asked.bytes + 1);
        failed |= measure(&modules, asked.count, rank, seconds);
        free(modules.out);
        free(modules.in);
    }
    MPI_Comm_free(&modules.exchanging);
    MPI_Comm_free(&modules.unready);
    return program_end(failed);
}
