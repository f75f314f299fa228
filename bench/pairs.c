/* All pairs between two halves of the ranks at once. Each rank of one half sends to each of the other and gets its
   confirmation; or each sends to each in both directions. Prints a line of JSON each.
   Usage: pairs SECONDS_PER_CASE SIZE...

   Measured as in `torres.h`. The last rank of an odd number takes no part. */
#include "torres.h"

enum { ONE_WAY, BOTH_WAYS, OPERATIONS };
static const char *const NAMES[] = {"one way", "both ways"};
enum { DATA_TAG, WORD_TAG };

struct pairs {
    char *out, *in; /* as many bytes for each rank of the other half */
    MPI_Request *requests;
    int operation, bytes, rank, half;
};

/* A rank of the other half. */
static int other(const struct pairs *pairs, int index) { return pairs->rank < pairs->half ? pairs->half + index : index; }

static int expect(const struct pairs *pairs, int bytes, int tag, MPI_Request *requests) {
    for (int i = 0; i < pairs->half; i++)
        MPI_Irecv(pairs->in + (size_t)i * (size_t)bytes, bytes, MPI_CHAR, other(pairs, i), tag, MPI_COMM_WORLD, &requests[i]);
    return pairs->half;
}

/* Each sender begins with another receiver, so that no rank is first for all. */
static int submit(const struct pairs *pairs, int bytes, int tag, MPI_Request *requests) {
    for (int i = 0; i < pairs->half; i++)
        MPI_Isend(pairs->out, bytes, MPI_CHAR, other(pairs, (pairs->rank + i) % pairs->half), tag, MPI_COMM_WORLD, &requests[i]);
    return pairs->half;
}

static void once(const void *what) {
    const struct pairs *pairs = what;
    int is_lower = pairs->rank < pairs->half, sends = is_lower || pairs->operation == BOTH_WAYS, count = 0;
    if (pairs->rank >= 2 * pairs->half) return;
    if (!is_lower || pairs->operation == BOTH_WAYS) count += expect(pairs, pairs->bytes, DATA_TAG, pairs->requests);
    if (sends) count += submit(pairs, pairs->bytes, DATA_TAG, pairs->requests + count);
    if (is_lower && pairs->operation == ONE_WAY) count += expect(pairs, 1, WORD_TAG, pairs->requests + count);
    MPI_Waitall(count, pairs->requests, MPI_STATUSES_IGNORE);
    if (!is_lower && pairs->operation == ONE_WAY)
        MPI_Waitall(submit(pairs, 1, WORD_TAG, pairs->requests), pairs->requests, MPI_STATUSES_IGNORE);
}

int main(int argc, char **argv) {
    static struct samples samples;
    int size, rank = program_start("pairs", &argc, &argv, &size), half = size / 2;
    double seconds = argc > 1 ? program_number("pairs", "the time per case", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc; i++) {
        size_t bytes = (size_t)program_number("pairs", "size", argv[i], PROGRAM_MOST_BYTES);
        struct pairs pairs = {program_memory("pairs", bytes + 1), program_memory("pairs", (bytes + 1) * (size_t)half),
                              malloc(sizeof(MPI_Request) * 2 * (size_t)half), 0, (int)bytes, rank, half};
        for (; pairs.operation < OPERATIONS; pairs.operation++) {
            torres_measure((struct torres){once, &pairs, 1}, seconds, &samples);
            /* The last rank of an odd number has no times of its own. */
            if (rank >= 2 * half) memset(samples.us, 0, sizeof samples.us);
            struct summary greatest = torres_summary(&samples);
            if (rank == 0) summary_print(NAMES[pairs.operation], (long)bytes, 0, &greatest);
        }
        free(pairs.requests);
        free(pairs.in);
        free(pairs.out);
    }
    return program_end(0);
}
