/* Share of a transfer that computing hides, measured as COMB (Lawry et al., 2002) and PIOMan (Trahay et al., 2009)
   do. Times of the transfer alone, of the computing alone, and of both begun together are taken in turn. If both
   together take as long as the longer of them, everything was hidden:

       share = (transfer + computing - both) / min(transfer, computing)

   The values are lower quartiles, because computing is long beside many a transfer, and other load makes it longer.
   If that hides the effect, the time that both together spend outside computing says more. `share_by_calls` is the
   part of the transfer that this time leaves. It does not notice computing that the library itself has slowed down.

   The sender computes, or the receiver, or both. The data are contiguous, or every other block of a vector. Prints a
   line of JSON for each case, with the times of both together. Usage: overlap SECONDS_PER_CASE SIZE/COMPUTING_US...

   A sender's transfer lasts from MPI_Isend until the receiver's confirmation. A receiver's lasts from MPI_Irecv, and
   the message that lets the sender begin, until it has all data. The measured rank takes the times and announces the
   next phase to the other. */
#include "compute.h"
#include "program.h"

enum { TRANSFER, COMPUTING, BOTH, PHASES, ENDS = PHASES, CALLS = PHASES, SETS };
enum { SENDER, RECEIVER, EACH, SIDES };
enum { DATA, READY, DONE, WHAT, SUMMARIES };
enum { BLOCK = 256, STRIDE = 2 * BLOCK };

struct overlap {
    char *data;
    int count; /* of `type` */
    MPI_Datatype type;
    double computing_us[2]; /* of each rank */
};

/* One rank's part of a phase. Returns the time by its own clock, in microseconds, and its part outside computing. */
static double once(const struct overlap *overlap, int rank, int phase, double *calls_us) {
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    char word = 0;
    int transfers = phase != COMPUTING;
    /* The sender begins when the receiver has reported that it is ready. */
    if (rank == 0 && transfers) MPI_Recv(&word, 1, MPI_CHAR, 1, READY, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    uint64_t start = clock_ticks();
    if (rank == 0 && transfers) {
        MPI_Irecv(&word, 1, MPI_CHAR, 1, DONE, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(overlap->data, overlap->count, overlap->type, 1, DATA, MPI_COMM_WORLD, &requests[1]);
    }
    if (rank == 1 && transfers) {
        MPI_Irecv(overlap->data, overlap->count, overlap->type, 0, DATA, MPI_COMM_WORLD, &requests[0]);
        MPI_Isend(&word, 1, MPI_CHAR, 0, READY, MPI_COMM_WORLD, &requests[1]);
    }
    uint64_t computing = clock_ticks();
    if (phase != TRANSFER) compute_us(overlap->computing_us[rank]);
    uint64_t computed = clock_ticks();
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    uint64_t end = clock_ticks();
    if (rank == 1 && transfers) MPI_Send(&word, 1, MPI_CHAR, 0, DONE, MPI_COMM_WORLD);
    *calls_us = samples_us(computing - start, 1) + samples_us(end - computed, 1);
    return samples_us(end - start, 1);
}

/* Both ranks run a phase, begun together as closely as a message allows. */
static double together(const struct overlap *overlap, int rank, int measured, int *phase, double *calls_us) {
    if (rank == measured) MPI_Send(phase, 1, MPI_INT, 1 - rank, WHAT, MPI_COMM_WORLD);
    else MPI_Recv(phase, 1, MPI_INT, measured, WHAT, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return *phase == ENDS ? 0 : once(overlap, rank, *phase, calls_us);
}

static void take(const struct overlap *overlap, int measured, double seconds, struct samples *samples) {
    double start = clock_system_s(), all = seconds * PHASES;
    int phase;
    double calls_us;
    for (phase = 0; phase <= PHASES; phase++) samples_clear(&samples[phase]);
    for (phase = 0; phase < PHASES; phase++)
        samples[phase].first_us = together(overlap, measured, measured, &phase, &calls_us);
    for (int ends = 0; !ends;) {
        for (phase = 0; phase < PHASES; phase++)
            samples[phase].us[samples[phase].count++] = together(overlap, measured, measured, &phase, &calls_us);
        samples[CALLS].us[samples[CALLS].count++] = calls_us; /* of the last phase: both together */
        int count = samples[0].count;
        ends = count == SAMPLES_ROOM || (count >= SAMPLES_LEAST && clock_system_s() - start >= all);
    }
    phase = ENDS;
    together(overlap, measured, measured, &phase, &calls_us);
}

static void print(const char *name, struct program_case asked, const struct summary *summaries) {
    double transfer = summaries[TRANSFER].p25, computing = summaries[COMPUTING].p25;
    double both = summaries[BOTH].p25, shorter = transfer < computing ? transfer : computing;
    double calls = summaries[CALLS].p25;
    summary_begin(name, asked.bytes, asked.count, &summaries[BOTH]);
    printf(", \"share\": %.6f, \"parts\": {\"transfer_us\": %.3f, \"computing_us\": %.3f, \"both_us\": %.3f, "
           "\"calls_us\": %.3f, \"share_by_calls\": %.6f}}\n",
           (transfer + computing - both) / shorter, transfer, computing, both, calls, (transfer - calls) / shorter);
    fflush(stdout);
}

/* True if the receiver has the sender's data; in the blocks of a vector, if it is one. */
static int is_damaged(const struct overlap *overlap, const char *sent, size_t bytes, size_t stride) {
    for (size_t at = 0; at < bytes; at++) {
        size_t place = at / BLOCK * stride + at % BLOCK;
        if (overlap->data[place] != sent[place]) return 1;
    }
    return 0;
}

static int measure(struct program_case asked, int rank, int side, int is_vector, double seconds) {
    static struct samples samples[SETS];
    struct summary summaries[SETS];
    static const char *const NAMES[2][SIDES] = {{"sender computes", "receiver computes", "both compute"},
                                                {"sender computes, vector", "receiver computes, vector", "both compute, vector"}};
    int measured = side == RECEIVER, failed = 0, phase = 0;
    size_t bytes = (size_t)asked.bytes, stride = is_vector ? STRIDE : BLOCK, room = (bytes + BLOCK - 1) / BLOCK * stride;
    struct overlap overlap = {program_memory("overlap", room), (int)asked.bytes, MPI_CHAR, {0, 0}};
    char *sent = program_memory("overlap", room);
    if (rank == 1) memset(overlap.data, 0, room);
    if (is_vector) {
        MPI_Type_vector((int)(bytes / BLOCK), BLOCK, STRIDE, MPI_CHAR, &overlap.type);
        MPI_Type_commit(&overlap.type);
        overlap.count = 1;
    }
    if (side != RECEIVER) overlap.computing_us[0] = (double)asked.count;
    if (side != SENDER) overlap.computing_us[1] = (double)asked.count;
    if (rank == measured) {
        take(&overlap, measured, seconds, samples);
        for (int set = 0; set < SETS; set++) summaries[set] = samples_summary(&samples[set]);
    } else {
        double calls_us;
        while (phase != ENDS) together(&overlap, rank, measured, &phase, &calls_us);
    }
    /* Rank 0 prints the lines. */
    if (measured == 1 && rank == 1) MPI_Send(summaries, sizeof summaries, MPI_BYTE, 0, SUMMARIES, MPI_COMM_WORLD);
    if (measured == 1 && rank == 0)
        MPI_Recv(summaries, sizeof summaries, MPI_BYTE, 1, SUMMARIES, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0) print(NAMES[is_vector][side], asked, summaries);
    if (rank == 1 && is_damaged(&overlap, sent, bytes, stride)) {
        fprintf(stderr, "overlap: other came than was sent\n");
        failed = 1;
    }
    if (is_vector) MPI_Type_free(&overlap.type);
    free(overlap.data);
    free(sent);
    return failed;
}

int main(int argc, char **argv) {
    int size, failed = 0, rank = program_start("overlap", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("overlap", "the time per case", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    compute_calibrate();
    for (int i = 2; i < argc && rank < 2; i++) {
        struct program_case asked = program_case("overlap", argv[i], (struct program_case){PROGRAM_MOST_BYTES / 2, 10000000});
        if (asked.bytes < BLOCK || asked.bytes % BLOCK || asked.count < 1) {
            fprintf(stderr, "overlap: %s: sizes are multiples of %d, and computing takes 1 us at least\n", argv[i], BLOCK);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        for (int is_vector = 0; is_vector < 2; is_vector++)
            for (int side = 0; side < SIDES; side++) failed |= measure(asked, rank, side, is_vector, seconds);
    }
    return program_end(failed);
}
