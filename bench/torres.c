/* Allgather and allreduce of integers on all ranks, or for size 0 the barrier. Prints a line of JSON each for each size.
   Torres & Kofuji tabulate these for numbers of ranks that are no powers of two. Usage: torres SECONDS SIZE...; sizes are
   multiples of 4 and count each rank's data. Measured as in `torres.h`, 30 times 50 calls whatever the seconds that
   all programs are given. Every rank's results are checked. */
#include "torres.h"

enum { BARRIER, ALLGATHER, ALLREDUCE, OPERATIONS };
static const char *const NAMES[] = {"barrier", "allgather", "allreduce"};

struct torres_call {
    int operation, count;
    int *out, *in; /* `count` integers, and as many for each rank */
};

static void once(const void *what) {
    const struct torres_call *call = what;
    if (call->operation == BARRIER) MPI_Barrier(MPI_COMM_WORLD);
    else if (call->operation == ALLGATHER)
        MPI_Allgather(call->out, call->count, MPI_INT, call->in, call->count, MPI_INT, MPI_COMM_WORLD);
    else MPI_Allreduce(call->out, call->in, call->count, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
}

static int given(int rank, int place) { return 1 + rank * 1000 + place % 1000; }

/* True if this rank has the expected data. */
static int is_right(const struct torres_call *call, int size) {
    int right = 1, summed = call->operation == ALLREDUCE;
    for (int at = 0; at < call->count; at++) {
        int sum = 0;
        for (int rank = 0; rank < size; rank++) {
            sum += given(rank, at);
            right &= summed || call->in[rank * call->count + at] == given(rank, at);
        }
        right &= !summed || call->in[at] == sum;
    }
    return right;
}

int main(int argc, char **argv) {
    static struct samples samples;
    int size, failed = 0, rank = program_start("torres", &argc, &argv, &size);
    for (int i = 2; i < argc; i++) {
        long bytes = strcmp(argv[i], "0") ? (long)program_number("torres", "size", argv[i], (double)PROGRAM_MOST_BYTES / size) : 0;
        struct torres_call call = {bytes ? ALLGATHER : BARRIER, (int)(bytes / (long)sizeof(int)), NULL, NULL};
        int last = bytes ? ALLREDUCE : BARRIER;
        call.out = (int *)program_memory("torres", (size_t)bytes);
        call.in = (int *)program_memory("torres", (size_t)(bytes * size));
        for (int at = 0; at < call.count; at++) call.out[at] = given(rank, at);
        for (; call.operation <= last; call.operation++) {
            memset(call.in, 0x55, (size_t)(bytes * size));
            torres_measure_whole((struct torres){once, &call, 1}, &samples);
            int wrong = !is_right(&call, size), any_wrong;
            MPI_Allreduce(&wrong, &any_wrong, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
            struct summary greatest = torres_summary(&samples);
            if (rank == 0) summary_print(NAMES[call.operation], bytes, 0, &greatest);
            if (any_wrong && rank == 0) fprintf(stderr, "torres: %s of %ld bytes came out wrong\n", NAMES[call.operation], bytes);
            failed |= any_wrong;
        }
        free(call.out);
        free(call.in);
    }
    return program_end(failed);
}
