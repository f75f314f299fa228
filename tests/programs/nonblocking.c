/* Every collective in its nonblocking form, and in its persistent form started repeatedly, beside the blocking one.
   Several run at once on two communicators and complete in any order. Invalid calls are tried. LARGE selects the
   forms for large counts. Runs on any number of ranks. Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

#ifdef LARGE
typedef MPI_Count number;
typedef MPI_Aint place;
#define NAME(function) function##_c
#else
typedef int number, place;
#define NAME(function) function
#endif

static int size;

enum {
    BARRIER, BCAST, GATHER, GATHER_IN_PLACE, GATHERV, SCATTER, SCATTER_IN_PLACE, SCATTERV, ALLGATHER,
    ALLGATHER_IN_PLACE, ALLGATHERV, ALLTOALL, ALLTOALL_IN_PLACE, ALLTOALLV, ALLTOALLV_IN_PLACE, ALLTOALLW, REDUCE,
    REDUCE_IN_PLACE, ALLREDUCE, ALLREDUCE_IN_PLACE, REDUCE_SCATTER, REDUCE_SCATTER_IN_PLACE, REDUCE_SCATTER_BLOCK,
    REDUCE_SCATTER_BLOCK_IN_PLACE, SCAN, SCAN_IN_PLACE, EXSCAN, EXSCAN_IN_PLACE, KINDS
};

static const char *const names[KINDS] = {
    "barrier", "bcast", "gather", "gather in place", "gatherv", "scatter", "scatter in place", "scatterv",
    "allgather", "allgather in place", "allgatherv", "alltoall", "alltoall in place", "alltoallv", "alltoallv in place",
    "alltoallw", "reduce", "reduce in place", "allreduce", "allreduce in place", "reduce_scatter",
    "reduce_scatter in place", "reduce_scatter_block", "reduce_scatter_block in place", "scan", "scan in place",
    "exscan", "exscan in place"};

enum { BLOCKING, NONBLOCKING, PERSISTENT };

/* Buffers of one operation: `n` elements for every rank, in units of `ints` integers. */
typedef struct {
    int kind, n, root, ints;
    MPI_Datatype type;
    MPI_Op op;
    int *in, *out;
    number *counts;
    place *displs;
    MPI_Datatype *types;
    place *bytes;
} job;

static size_t words(const job *j) { return (size_t)j->n * j->ints * size; }

static job make(int kind, int n, int root, int ints, MPI_Datatype type, MPI_Op op) {
    job j = {.kind = kind, .n = n, .root = root, .ints = ints, .type = type, .op = op};
    j.in = malloc((words(&j) + 1) * sizeof(int)), j.out = malloc((words(&j) + 1) * sizeof(int));
    j.counts = malloc(sizeof(number) * size), j.displs = malloc(sizeof(place) * size);
    j.bytes = malloc(sizeof(place) * size), j.types = malloc(sizeof(MPI_Datatype) * size);
    /* Ragged: rank r has n - r % 2 elements, at the offsets of blocks of n. */
    for (int r = 0; r < size; r++) {
        j.counts[r] = n > 1 ? n - r % 2 : n;
        j.displs[r] = n * r;
        j.bytes[r] = n * r * ints * (int)sizeof(int);
        j.types[r] = type;
    }
    return j;
}

/* Writes (i * factor + start) % modulus. The first period is computed, and copied from there. */
static void repeat(int *data, size_t words, size_t factor, size_t start, size_t modulus) {
    size_t done = words < modulus ? words : modulus;
    for (size_t i = 0; i < done; i++) data[i] = (int)((i * factor + start) % modulus);
    for (size_t more; done < words; done += more) {
        more = done < words - done ? done : words - done;
        memcpy(data + done, data, more * sizeof(int));
    }
}

static void fill(job *j, int salt) {
    repeat(j->in, words(j), 7, (size_t)rank * 13 + (size_t)salt, 1001);
    repeat(j->out, words(j), 5, (size_t)rank * 11 + (size_t)salt, 997);
}

static void drop(job *j) {
    free(j->in), free(j->out), free(j->counts), free(j->displs), free(j->bytes), free(j->types);
}

/* Calls MPI_Foo, MPI_Ifoo or MPI_Foo_init. */
#define FORMS(Foo, Ifoo, Foo_init, ...)                                                              \
    (form == BLOCKING ? NAME(Foo)(__VA_ARGS__, comm)                                                 \
                      : form == NONBLOCKING ? NAME(Ifoo)(__VA_ARGS__, comm, request)                       \
                                      : NAME(Foo_init)(__VA_ARGS__, comm, MPI_INFO_NULL, request))

static int call(job *j, int form, MPI_Comm comm, MPI_Request *request) {
    int n = j->n, root = j->root, am_root = rank == root;
    MPI_Datatype t = j->type;
    void *here = MPI_IN_PLACE;
    int *own = j->out + (size_t)j->displs[rank] * j->ints;
    switch (j->kind) {
    case BARRIER:
        return form == BLOCKING ? MPI_Barrier(comm)
               : form == NONBLOCKING  ? MPI_Ibarrier(comm, request)
                                : MPI_Barrier_init(comm, MPI_INFO_NULL, request);
    case BCAST: return FORMS(MPI_Bcast, MPI_Ibcast, MPI_Bcast_init, j->out, n, t, root);
    case GATHER: return FORMS(MPI_Gather, MPI_Igather, MPI_Gather_init, j->in, n, t, j->out, n, t, root);
    case GATHER_IN_PLACE:
        return FORMS(MPI_Gather, MPI_Igather, MPI_Gather_init, am_root ? here : j->in, n, t, j->out, n, t, root);
    case GATHERV:
        return FORMS(MPI_Gatherv, MPI_Igatherv, MPI_Gatherv_init, j->in, j->counts[rank], t, j->out, j->counts, j->displs, t, root);
    case SCATTER: return FORMS(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, j->in, n, t, j->out, n, t, root);
    case SCATTER_IN_PLACE:
        return FORMS(MPI_Scatter, MPI_Iscatter, MPI_Scatter_init, j->in, n, t, am_root ? here : j->out, n, t, root);
    case SCATTERV:
        return FORMS(MPI_Scatterv, MPI_Iscatterv, MPI_Scatterv_init, j->in, j->counts, j->displs, t, j->out, j->counts[rank], t, root);
    case ALLGATHER: return FORMS(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init, j->in, n, t, j->out, n, t);
    case ALLGATHER_IN_PLACE: return FORMS(MPI_Allgather, MPI_Iallgather, MPI_Allgather_init, here, n, t, j->out, n, t);
    case ALLGATHERV:
        return FORMS(MPI_Allgatherv, MPI_Iallgatherv, MPI_Allgatherv_init, j->in, j->counts[rank], t, j->out, j->counts, j->displs, t);
    case ALLTOALL: return FORMS(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init, j->in, n, t, j->out, n, t);
    case ALLTOALL_IN_PLACE: return FORMS(MPI_Alltoall, MPI_Ialltoall, MPI_Alltoall_init, here, n, t, j->out, n, t);
    case ALLTOALLV:
    case ALLTOALLV_IN_PLACE:
    case ALLTOALLW: {
        /* Count between r and s: the smaller one's. */
        static number mutual[64];
        for (int r = 0; r < size; r++) mutual[r] = j->counts[r] < j->counts[rank] ? j->counts[r] : j->counts[rank];
        if (j->kind == ALLTOALLV)
            return FORMS(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init, j->in, mutual, j->displs, t, j->out, mutual, j->displs, t);
        if (j->kind == ALLTOALLV_IN_PLACE)
            return FORMS(MPI_Alltoallv, MPI_Ialltoallv, MPI_Alltoallv_init, here, mutual, j->displs, t, j->out, mutual, j->displs, t);
        return FORMS(MPI_Alltoallw, MPI_Ialltoallw, MPI_Alltoallw_init, j->in, mutual, j->bytes, j->types, j->out, mutual, j->bytes, j->types);
    }
    case REDUCE: return FORMS(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, j->in, j->out, n, t, j->op, root);
    case REDUCE_IN_PLACE:
        return FORMS(MPI_Reduce, MPI_Ireduce, MPI_Reduce_init, am_root ? here : j->in, j->out, n, t, j->op, root);
    case ALLREDUCE: return FORMS(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, j->in, j->out, n, t, j->op);
    case ALLREDUCE_IN_PLACE: return FORMS(MPI_Allreduce, MPI_Iallreduce, MPI_Allreduce_init, here, j->out, n, t, j->op);
    case REDUCE_SCATTER:
        return FORMS(MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init, j->in, own, j->counts, t, j->op);
    case REDUCE_SCATTER_IN_PLACE:
        return FORMS(MPI_Reduce_scatter, MPI_Ireduce_scatter, MPI_Reduce_scatter_init, here, j->out, j->counts, t, j->op);
    case REDUCE_SCATTER_BLOCK:
        return FORMS(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init, j->in, own, n, t, j->op);
    case REDUCE_SCATTER_BLOCK_IN_PLACE:
        return FORMS(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block, MPI_Reduce_scatter_block_init, here, j->out, n, t, j->op);
    case SCAN: return FORMS(MPI_Scan, MPI_Iscan, MPI_Scan_init, j->in, j->out, n, t, j->op);
    case SCAN_IN_PLACE: return FORMS(MPI_Scan, MPI_Iscan, MPI_Scan_init, here, j->out, n, t, j->op);
    case EXSCAN: return FORMS(MPI_Exscan, MPI_Iexscan, MPI_Exscan_init, j->in, j->out, n, t, j->op);
    case EXSCAN_IN_PLACE: return FORMS(MPI_Exscan, MPI_Iexscan, MPI_Exscan_init, here, j->out, n, t, j->op);
    }
    return MPI_ERR_INTERN;
}

static void expect_same(const job *got, const job *expected, int line) {
    if (memcmp(got->out, expected->out, words(got) * sizeof(int)) || memcmp(got->in, expected->in, words(got) * sizeof(int))) {
        failures++;
        fprintf(stderr, "rank %d: line %d: %s of %d elements, root %d: not as the blocking one\n", rank, line, names[got->kind], got->n, got->root);
    }
}

/* One after the other: nonblocking and waited for, then persistent and started three times with other data. */
static void one_by_one(int n, int ints, MPI_Datatype type, MPI_Op op) {
    for (int kind = 0; kind < KINDS; kind++) {
        job expected = make(kind, n, (kind + n) % size, ints, type, op), got = expected;
        job other = make(kind, n, (kind + n) % size, ints, type, op);
        got.in = other.in, got.out = other.out;
        MPI_Request request;
        MPI_Status status = {.MPI_ERROR = 77};
        fill(&expected, 0), fill(&got, 0);
        call(&expected, BLOCKING, MPI_COMM_WORLD, 0);
        CHECK(call(&got, NONBLOCKING, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
        MPI_Wait(&request, &status);
        CHECK(request == MPI_REQUEST_NULL && status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
        expect_same(&got, &expected, __LINE__);
        CHECK(call(&got, PERSISTENT, MPI_COMM_WORLD, &request) == MPI_SUCCESS);
        for (int salt = 1; salt < 4; salt++) {
            fill(&expected, salt), fill(&got, salt);
            call(&expected, BLOCKING, MPI_COMM_WORLD, 0);
            MPI_Start(&request);
            int flag = 0;
            while (salt == 2 && !flag) MPI_Test(&request, &flag, MPI_STATUS_IGNORE);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            CHECK(request != MPI_REQUEST_NULL);
            expect_same(&got, &expected, __LINE__);
        }
        MPI_Request_free(&request);
        CHECK(request == MPI_REQUEST_NULL);
        drop(&expected), drop(&other);
    }
}

/* All kinds at once, on two communicators. Blocking ones and messages run beside them. Some ranks complete them from
   the last to the first, others in order of completion. */
static void at_once(int n, MPI_Comm other_comm, int form) {
    enum { ALL = 2 * KINDS };
    job expected[ALL], got[ALL];
    MPI_Request requests[ALL];
    for (int i = 0; i < ALL; i++) {
        got[i] = make(i % KINDS, n, i % size, 1, MPI_INT, MPI_SUM);
        expected[i] = make(i % KINDS, n, i % size, 1, MPI_INT, MPI_SUM);
        fill(&got[i], i), fill(&expected[i], i);
        call(&expected[i], BLOCKING, MPI_COMM_WORLD, 0);
    }
    for (int i = 0; i < ALL; i++) {
        CHECK(call(&got[i], form, i % 2 ? other_comm : MPI_COMM_WORLD, &requests[i]) == MPI_SUCCESS);
        int one = 1, sum = 0;
        if (i % 9 == 0) {
            MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
            CHECK(sum == size);
        }
    }
    /* Persistent ones may be started in any order. */
    if (form == PERSISTENT)
        for (int i = 0; i < ALL; i++) MPI_Start(&requests[rank % 2 ? i : ALL - 1 - i]);
    int token = -1;
    MPI_Sendrecv(&rank, 1, MPI_INT, (rank + 1) % size, 5, &token, 1, MPI_INT, (rank + size - 1) % size, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(token == (rank + size - 1) % size);
    int left = ALL, index, indices[ALL], count;
    if (form == PERSISTENT) {
        MPI_Waitall(ALL, requests, MPI_STATUSES_IGNORE);
        for (int i = 0; i < ALL; i++) MPI_Request_free(&requests[i]);
    } else if (rank % 4 == 0) {
        for (int i = ALL; i-- > 0;) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
    } else if (rank % 4 == 1) {
        for (; left > 0; left--) {
            MPI_Waitany(ALL, requests, &index, MPI_STATUS_IGNORE);
            CHECK(index >= 0 && index < ALL && requests[index] == MPI_REQUEST_NULL);
        }
        MPI_Waitany(ALL, requests, &index, MPI_STATUS_IGNORE);
        CHECK(index == MPI_UNDEFINED);
    } else if (rank % 4 == 2) {
        while (left > 0) {
            MPI_Testsome(ALL, requests, &count, indices, MPI_STATUSES_IGNORE);
            left -= count;
        }
    } else {
        int flag = 0;
        while (!flag) MPI_Testall(ALL, requests, &flag, MPI_STATUSES_IGNORE);
    }
    for (int i = 0; i < ALL; i++) {
        expect_same(&got[i], &expected[i], __LINE__);
        drop(&got[i]), drop(&expected[i]);
    }
}

/* x -> a x + b: composition does not commute. */
static void compose(void *in, void *inout, int *len, MPI_Datatype *type) {
    unsigned *f = in, *g = inout;
    (void)type;
    for (int i = 0; i < *len; i++) {
        unsigned a = f[2 * i] * g[2 * i], b = f[2 * i] * g[2 * i + 1] + f[2 * i + 1];
        g[2 * i] = a, g[2 * i + 1] = b;
    }
}

/* Handles may be freed before the operation ends, and arrays of counts as soon as the call returns. */
static void without_handles(void) {
    enum { ROWS = 50 };
    MPI_Comm comm;
    MPI_Datatype column;
    MPI_Op op;
    MPI_Request requests[3];
    int *matrix = malloc(sizeof(int) * ROWS * 3), *gathered = malloc(sizeof(int) * ROWS * size);
    int *counts = malloc(sizeof(int) * size), *displs = malloc(sizeof(int) * size);
    unsigned pair[2] = {2u * (unsigned)rank + 3, 5u * (unsigned)rank + 1}, all[2], expected[2];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Type_vector(ROWS, 1, 3, MPI_INT, &column);
    MPI_Type_commit(&column);
    MPI_Op_create(compose, 0, &op);
    for (int i = 0; i < ROWS * 3; i++) matrix[i] = rank * 1000 + i;
    for (int r = 0; r < size; r++) counts[r] = ROWS, displs[r] = ROWS * r;
    MPI_Datatype two;
    MPI_Type_contiguous(2, MPI_UNSIGNED, &two);
    MPI_Type_commit(&two);
    MPI_Allreduce(pair, expected, 1, two, op, comm);
    MPI_Iallgatherv(matrix + 1, 1, column, gathered, counts, displs, MPI_INT, comm, &requests[0]);
    MPI_Iallreduce(pair, all, 1, two, op, comm, &requests[1]);
    MPI_Ibcast(matrix + 2, 1, column, 0, comm, &requests[2]);
    free(counts), free(displs);
    MPI_Type_free(&column), MPI_Type_free(&two), MPI_Op_free(&op), MPI_Comm_free(&comm);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
    for (int i = 0; i < ROWS * size; i++) CHECK(gathered[i] == i / ROWS * 1000 + i % ROWS * 3 + 1);
    for (int i = 0; i < ROWS; i++) CHECK(matrix[3 * i + 2] == 3 * i + 2 && matrix[3 * i] == rank * 1000 + 3 * i);
    CHECK(all[0] == expected[0] && all[1] == expected[1]);
    free(matrix), free(gathered);
}

/* A barrier ends once all have begun it, and not before. */
static void no_sooner(void) {
    MPI_Request request;
    int flag = 0, others = 0;
    if (size == 1) return;
    if (rank == size - 1) {
        for (int r = 0; r < size - 1; r++) MPI_Recv(&flag, 1, MPI_INT, r, 6, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
    } else {
        MPI_Ibarrier(MPI_COMM_WORLD, &request);
        for (int i = 0; i < 20; i++) {
            MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
            others |= flag;
        }
        CHECK(!others);
        flag = 1;
        MPI_Send(&flag, 1, MPI_INT, size - 1, 6, MPI_COMM_WORLD);
        for (flag = 0; !flag;) MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
}

/* Nonblocking ones do not match blocking ones, in any order. */
static void forms_apart(void) {
    MPI_Request request;
    int one = 1, sum = 0;
    if (rank == 0) MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank != 0) MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == size);
}

/* A sum whose function calls the library and sends to its own process. */
static void ask(void *in, void *inout, int *len, MPI_Datatype *type) {
    int bytes, bytes_back = -1;
    MPI_Type_size(*type, &bytes);
    MPI_Sendrecv(&bytes, 1, MPI_INT, 0, 1, &bytes_back, 1, MPI_INT, 0, 1, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    for (int i = 0; i < *len; i++) ((int *)inout)[i] += bytes_back == (int)sizeof(int) ? ((int *)in)[i] : -1000000;
}

/* Its communicator and op are freed while the operation is under way. */
static void functions_that_call(void) {
    int one[3] = {1, rank, 2}, sums[2][3];
    MPI_Op op;
    MPI_Comm comm;
    MPI_Request request;
    MPI_Op_create(ask, 1, &op);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Allreduce(one, sums[0], 3, MPI_INT, op, comm);
    MPI_Iallreduce(one, sums[1], 3, MPI_INT, op, comm, &request);
    MPI_Comm_free(&comm), MPI_Op_free(&op);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++)
        CHECK(sums[i][0] == size && sums[i][1] == size * (size - 1) / 2 && sums[i][2] == 2 * size);
}

static int class_of(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static void errors(void) {
    MPI_Request request, kept;
    MPI_Comm comm;
    int value = rank, sum = -1, in_comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    /* A call that fails has no effect: its rank may call again. */
    CHECK(class_of(MPI_Ibcast(&value, 1, MPI_INT, size, comm, &request)) == MPI_ERR_ROOT);
    CHECK(class_of(MPI_Ibcast(&value, -1, MPI_INT, 0, comm, &request)) == MPI_ERR_COUNT);
    CHECK(class_of(MPI_Iallreduce(&value, &value, 1, MPI_INT, MPI_SUM, comm, &request)) == MPI_ERR_BUFFER);
    CHECK(class_of(MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_OP_NULL, comm, &request)) == MPI_ERR_OP);
    CHECK(class_of(MPI_Ibarrier(comm, 0)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Ibarrier(MPI_COMM_NULL, &request)) == MPI_ERR_COMM);
    int code = MPI_Barrier_init(comm, MPI_INFO_NULL, rank == 0 ? 0 : &kept);
    CHECK(class_of(code) == (rank == 0 ? MPI_ERR_ARG : MPI_SUCCESS));
    if (rank == 0) CHECK(MPI_Barrier_init(comm, MPI_INFO_NULL, &kept) == MPI_SUCCESS);
    MPI_Request_free(&kept);
    code = MPI_Ibcast(&value, 1, rank == 0 ? MPI_DATATYPE_NULL : MPI_INT, 0, MPI_COMM_SELF, &request);
    CHECK(class_of(code) == (rank == 0 ? MPI_ERR_TYPE : MPI_SUCCESS));
    if (rank != 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(MPI_Iallreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm, &request) == MPI_SUCCESS);
    CHECK(class_of(MPI_Cancel(&request)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Start(&request)) == MPI_ERR_REQUEST);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(sum == size * (size - 1) / 2);
    CHECK(MPI_Allreduce_init(&value, &sum, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &kept) == MPI_SUCCESS);
    MPI_Status status;
    int flag = 0;
    MPI_Test(&kept, &flag, &status);
    CHECK(flag && kept != MPI_REQUEST_NULL && status.MPI_TAG == MPI_ANY_TAG);
    sum = -1;
    CHECK(MPI_Startall(1, &kept) == MPI_SUCCESS);
    CHECK(class_of(MPI_Start(&kept)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Request_free(&kept)) == MPI_ERR_REQUEST);
    CHECK(MPI_Wait(&kept, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    CHECK(sum == size * (size - 1) / 2);
    CHECK(MPI_Request_free(&kept) == MPI_SUCCESS && kept == MPI_REQUEST_NULL);
    /* A message of another length is reported when the request is waited for. */
    if (size == 2) {
        int many[4] = {0};
        CHECK(MPI_Ibcast(many, rank == 0 ? 4 : 2, MPI_INT, 0, comm, &request) == MPI_SUCCESS);
        code = MPI_Wait(&request, &status);
        CHECK(class_of(code) == (rank == 0 ? MPI_SUCCESS : MPI_ERR_TRUNCATE));
        CHECK(request == MPI_REQUEST_NULL);
    }
    MPI_Allreduce(&rank, &in_comm, 1, MPI_INT, MPI_MAX, comm);
    CHECK(in_comm == size - 1);
    MPI_Comm_free(&comm);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int lengths[] = {0, 2, 1000, 30000}, all;
    MPI_Comm other;
    MPI_Datatype pair;
    MPI_Op op;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    MPI_Type_contiguous(2, MPI_UNSIGNED, &pair);
    MPI_Type_commit(&pair);
    MPI_Op_create(compose, 0, &op);
    for (int i = 0; i < 4; i++) {
        one_by_one(lengths[i], 1, MPI_INT, MPI_SUM);
        at_once(lengths[i], other, NONBLOCKING);
        at_once(lengths[i], other, PERSISTENT);
    }
    one_by_one(200000, 1, MPI_INT, MPI_MAX);
    one_by_one(3, 2, pair, op);
    one_by_one(2000, 2, pair, op);
    without_handles();
    for (int i = 0; i < 20; i++) no_sooner();
    forms_apart();
    functions_that_call();
    errors();
    MPI_Op_free(&op), MPI_Type_free(&pair), MPI_Comm_free(&other);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("non-blocking and persistent collectives on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
