/* A long message from rank 0 to rank 1 with a short one behind it, and an answer of the short one's length. `short`
   is the time until the answer to the short message is back; `both` is the time until the answer to both is. Prints a
   line of JSON for each case and operation. Usage: behind SECONDS_PER_CASE SHORT/LONG...; a long message of zero
   bytes is not sent.

   Rank 1 posts its receives before it reports that it is ready. Rank 0 begins when all earlier transfers have ended. */
#include "program.h"

enum { LONG, SHORT, ANSWER, READY };

struct pair {
    char *data[2], *answer;
    int bytes[2];
    int waits_for_both;
};

/* Starts those of both that have bytes. The others are null requests. */
static void receive_both(const struct pair *pair, MPI_Request *requests) {
    for (int i = LONG; i <= SHORT; i++) {
        requests[i] = MPI_REQUEST_NULL;
        if (pair->bytes[i]) MPI_Irecv(pair->data[i], pair->bytes[i], MPI_CHAR, 0, i, MPI_COMM_WORLD, &requests[i]);
    }
}

static void answer(const struct pair *pair) {
    MPI_Request requests[2];
    do {
        receive_both(pair, requests);
        MPI_Send(pair->answer, 1, MPI_CHAR, 0, READY, MPI_COMM_WORLD);
        if (pair->waits_for_both) MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        else MPI_Wait(&requests[SHORT], MPI_STATUS_IGNORE);
        MPI_Send(pair->data[SHORT], pair->bytes[SHORT], MPI_CHAR, 0, ANSWER, MPI_COMM_WORLD);
        MPI_Wait(&requests[LONG], MPI_STATUS_IGNORE);
    } while (pair->data[SHORT][0] != PROGRAM_ENDS);
}

static double once(void *what, char word) {
    const struct pair *pair = what;
    MPI_Request requests[3] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Recv(pair->answer, 1, MPI_CHAR, 1, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Irecv(pair->answer, pair->bytes[SHORT], MPI_CHAR, 1, ANSWER, MPI_COMM_WORLD, &requests[ANSWER]);
    pair->data[SHORT][0] = word;
    uint64_t start = clock_ticks();
    for (int i = LONG; i <= SHORT; i++)
        if (pair->bytes[i]) MPI_Isend(pair->data[i], pair->bytes[i], MPI_CHAR, 1, i, MPI_COMM_WORLD, &requests[i]);
    MPI_Wait(&requests[ANSWER], MPI_STATUS_IGNORE);
    double us = samples_us(clock_ticks() - start, 1);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    return us;
}

static void measure(struct program_case asked, int rank, double seconds, int waits_for_both) {
    static struct samples samples;
    struct pair pair = {{program_memory("behind", (size_t)asked.count + 1), program_memory("behind", (size_t)asked.bytes)},
                        program_memory("behind", (size_t)asked.bytes),
                        {(int)asked.count, (int)asked.bytes},
                        waits_for_both};
    if (rank == 1) answer(&pair);
    if (rank == 0) {
        samples_take(&samples, seconds, once, &pair);
        struct summary summary = samples_summary(&samples);
        summary_print(waits_for_both ? "both" : "short", asked.bytes, asked.count, &summary);
    }
    for (int i = LONG; i <= SHORT; i++) free(pair.data[i]);
    free(pair.answer);
}

int main(int argc, char **argv) {
    int size, rank = program_start("behind", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("behind", "the time per case", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc && rank < 2; i++) {
        struct program_case asked =
            program_case("behind", argv[i], (struct program_case){PROGRAM_MOST_BYTES, PROGRAM_MOST_BYTES});
        if (asked.bytes < 1) MPI_Abort(MPI_COMM_WORLD, 2);
        for (int both = 0; both < 2; both++) measure(asked, rank, seconds, both);
    }
    return program_end(0);
}
