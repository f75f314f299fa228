/* Reductions whose sum depends on the order of additions: the same call gives the same bits. This holds before a
   communicator has a shared segment and after; for blocking, nonblocking and persistent forms; in place or not. An
   allreduce gives the same bits to all ranks. Runs on any number of ranks. Rank 0 prints a digest of all results,
   which is the same in every job on the same ranks. */
#include <complex.h>
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { BLOCKING = 8, BEGUN = 2, STARTED = 2, CALLS = BLOCKING + BEGUN + STARTED, LONGEST = 60000 };

static int size;
static uint64_t digest = 0xcbf29ce484222325u;
static double numbers[LONGEST], results[LONGEST], first[LONGEST];

typedef enum { ALLREDUCE, REDUCE, REDUCE_SCATTER, SCAN, EXSCAN, OPERATIONS } Operation;

typedef struct {
    Operation operation;
    int count;
    MPI_Datatype datatype;
    MPI_Op op;
} Call;

/* Numbers of both signs and very different magnitudes (SplitMix: Steele, Lea, Flood 2014). */
static double number(uint64_t seed) {
    seed += 0x9e3779b97f4a7c15u;
    seed = (seed ^ (seed >> 30)) * 0xbf58476d1ce4e5b9u;
    seed = (seed ^ (seed >> 27)) * 0x94d049bb133111ebu;
    seed ^= seed >> 31;
    double mantissa = 1 + (double)(seed >> 12) / (double)(UINT64_C(1) << 52);
    return (seed & 1 ? -mantissa : mantissa) * (double)(UINT64_C(1) << (seed >> 1 & 31));
}

static void halves_of_sums(void *in, void *inout, int *len, MPI_Datatype *datatype) {
    (void)datatype;
    for (int i = 0; i < *len; i++) ((double *)inout)[i] = 0.5 * (((double *)in)[i] + ((double *)inout)[i]);
}

/* Calls one of the forms. Returns a request if there is something to wait for. */
static MPI_Request call(Call c, int turn, const void *from, MPI_Comm comm) {
    MPI_Request request = MPI_REQUEST_NULL;
    int root = size / 2, own = c.count / size;
#define FORMS(function, begun, ...)                                                               \
    turn < BLOCKING           ? MPI_##function(__VA_ARGS__, comm)                                 \
    : turn < BLOCKING + BEGUN ? MPI_##begun(__VA_ARGS__, comm, &request)                          \
                              : (MPI_##function##_init(__VA_ARGS__, comm, MPI_INFO_NULL, &request), MPI_Start(&request))
    if (c.operation == ALLREDUCE) FORMS(Allreduce, Iallreduce, from, results, c.count, c.datatype, c.op);
    else if (c.operation == REDUCE) FORMS(Reduce, Ireduce, from, results, c.count, c.datatype, c.op, root);
    else if (c.operation == REDUCE_SCATTER)
        FORMS(Reduce_scatter_block, Ireduce_scatter_block, from, results, own, c.datatype, c.op);
    else if (c.operation == SCAN) FORMS(Scan, Iscan, from, results, c.count, c.datatype, c.op);
    else FORMS(Exscan, Iexscan, from, results, c.count, c.datatype, c.op);
    return request;
}

static void digest_of(const void *data, size_t len) {
    for (size_t i = 0; i < len; i++) digest = (digest ^ ((const uint8_t *)data)[i]) * 0x100000001b3u;
}

static void repeated(Call c) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    int bytes;
    MPI_Type_size(c.datatype, &bytes);
    size_t len = (size_t)c.count * (size_t)bytes;
    size_t own = c.operation == REDUCE_SCATTER ? (size_t)(c.count / size) * (size_t)bytes : len;
    int has_result = !(c.operation == REDUCE && rank != size / 2) && !(c.operation == EXSCAN && rank == 0);
    for (int turn = 0; turn < CALLS; turn++) {
        /* Every third call works in place on all ranks alike. */
        int in_place = turn % 3 == 2 && c.operation != REDUCE;
        memset(results, 0, sizeof results);
        if (in_place) memcpy(results, numbers, len);
        MPI_Request request = call(c, turn, in_place ? MPI_IN_PLACE : numbers, comm);
        int is_persistent = turn >= BLOCKING + BEGUN;
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (is_persistent) MPI_Request_free(&request);
        if (turn == 0) memcpy(first, results, own);
        if (has_result && memcmp(first, results, own)) {
            fprintf(stderr, "operation %d of %d elements, call %d:\n", c.operation, c.count, turn);
            CHECK(!"the same bits as the first time");
        }
    }
    if (has_result) digest_of(first, own);
    if (c.operation == ALLREDUCE) {
        memcpy(results, first, len);
        MPI_Bcast(results, (int)len, MPI_BYTE, 0, comm);
        CHECK(!memcmp(first, results, len));
    }
    MPI_Comm_free(&comm);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < LONGEST; i++) numbers[i] = number((uint64_t)rank * LONGEST + (uint64_t)i);
    MPI_Op commuting, ordered;
    MPI_Op_create(halves_of_sums, 1, &commuting);
    MPI_Op_create(halves_of_sums, 0, &ordered);
    int lengths[] = {1, 40, 700, 3000, 9000, LONGEST};
    for (Operation operation = 0; operation < OPERATIONS; operation++) {
        for (size_t i = 0; i < sizeof lengths / sizeof *lengths; i++) {
            repeated((Call){operation, lengths[i], MPI_DOUBLE, MPI_SUM});
            repeated((Call){operation, lengths[i], MPI_FLOAT, MPI_SUM});
            repeated((Call){operation, lengths[i] / 2, MPI_C_DOUBLE_COMPLEX, MPI_SUM});
        }
        repeated((Call){operation, 64, MPI_DOUBLE, commuting});
        repeated((Call){operation, 3000, MPI_DOUBLE, ordered});
    }
    MPI_Op_free(&commuting), MPI_Op_free(&ordered);
    uint64_t *all = malloc((size_t)size * sizeof *all);
    MPI_Gather(&digest, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < size; i++) digest_of(&all[i], sizeof *all);
    if (rank == 0) printf("%d ranks: %016llx\n", size, (unsigned long long)digest);
    free(all);
    MPI_Finalize();
    return failures > 0;
}
