/* Neighbourhood collectives in every form. Topologies are grids (with rings of one and two, and open edges), graphs
   (with an edge named twice) and distributed graphs (of different degrees, one of zero). LARGE selects the forms for
   large counts. Runs on any number of ranks. Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

#ifdef LARGE
typedef MPI_Count number;
typedef MPI_Aint place;
#define NAME(function) function##_c
#else
typedef int number, place;
#define NAME(function) function
#endif

enum { MANY = 64, ROOM = 3, BLOCKING = 0, NONBLOCKING, PERSISTENT, FORMS };
enum { ALLGATHER, ALLGATHERV, ALLTOALL, ALLTOALLV, ALLTOALLW, KINDS };

static int size;
static MPI_Datatype sparse; /* One integer, with room for two. */

/* Neighbours of this process. For each receive slot: the slot that the sender used. */
typedef struct {
    int in, out, sources[MANY], destinations[MANY], left[MANY];
} edges;

static int datum(int sender, int slot, int index) { return sender * 10000 + slot * 100 + index; }

/* Number of elements of a message: all have as many, or some have zero. */
static int length(int ragged, int sender, int slot) { return ragged ? (sender + slot) % (ROOM + 1) : ROOM; }

/* Runs an operation in one of its forms, a persistent one twice. */
#define CARRY_OUT(function, form, ...)                                                    \
    do {                                                                                  \
        MPI_Request request;                                                              \
        if (form == BLOCKING) NAME(MPI_N##function)(__VA_ARGS__, comm);                   \
        else if (form == NONBLOCKING) {                                                         \
            NAME(MPI_In##function)(__VA_ARGS__, comm, &request);                          \
            MPI_Wait(&request, MPI_STATUS_IGNORE);                                        \
        } else {                                                                          \
            NAME(MPI_N##function##_init)(__VA_ARGS__, comm, MPI_INFO_NULL, &request);     \
            for (int i = 0; i < 2; i++) MPI_Start(&request), MPI_Wait(&request, MPI_STATUS_IGNORE); \
            MPI_Request_free(&request);                                                   \
        }                                                                                 \
    } while (0)

static void try(MPI_Comm comm, const edges *e, int kind, int form, int me) {
    static int in[MANY * ROOM * 2], out[MANY * ROOM * 2];
    number scounts[MANY], rcounts[MANY];
    place sdispls[MANY], rdispls[MANY];
    MPI_Aint sbytes[MANY], rbytes[MANY];
    MPI_Datatype stypes[MANY], rtypes[MANY];
    int ragged = kind == ALLGATHERV || kind == ALLTOALLV || kind == ALLTOALLW;
    int to_all = kind == ALLGATHER || kind == ALLGATHERV, wide = kind == ALLTOALLW ? 2 : 1;
    for (int slot = 0; slot < MANY; slot++) {
        scounts[slot] = length(ragged, me, slot), sdispls[slot] = slot * ROOM, stypes[slot] = MPI_INT;
        sbytes[slot] = slot * ROOM * (MPI_Aint)sizeof(int);
        for (int i = 0; i < ROOM; i++) out[slot * ROOM + i] = datum(me, slot, i);
    }
    for (int i = 0; i < MANY * ROOM * 2; i++) in[i] = -1;
    for (int slot = 0; slot < e->in; slot++) {
        int left = to_all ? 0 : e->left[slot];
        rcounts[slot] = e->sources[slot] == MPI_PROC_NULL ? ROOM : length(ragged, e->sources[slot], left);
        /* The last slot first. */
        rdispls[slot] = (e->in - 1 - slot) * ROOM, rtypes[slot] = wide == 2 ? sparse : MPI_INT;
        rbytes[slot] = rdispls[slot] * wide * (MPI_Aint)sizeof(int);
    }
    switch (kind) {
    case ALLGATHER: CARRY_OUT(eighbor_allgather, form, out, ROOM, MPI_INT, in, ROOM, MPI_INT); break;
    case ALLGATHERV: CARRY_OUT(eighbor_allgatherv, form, out, scounts[0], MPI_INT, in, rcounts, rdispls, MPI_INT); break;
    case ALLTOALL: CARRY_OUT(eighbor_alltoall, form, out, ROOM, MPI_INT, in, ROOM, MPI_INT); break;
    case ALLTOALLV:
        CARRY_OUT(eighbor_alltoallv, form, out, scounts, sdispls, MPI_INT, in, rcounts, rdispls, MPI_INT);
        break;
    case ALLTOALLW:
        CARRY_OUT(eighbor_alltoallw, form, out, scounts, sbytes, stypes, in, rcounts, rbytes, rtypes);
        break;
    }
    int wrong = 0;
    for (int slot = 0; slot < e->in; slot++) {
        int source = e->sources[slot], left = to_all ? 0 : e->left[slot];
        int begin = ragged ? rdispls[slot] * wide : slot * ROOM;
        int many = source == MPI_PROC_NULL ? 0 : ragged ? (int)rcounts[slot] : ROOM;
        for (int i = 0; i < ROOM * wide; i++) {
            int want = i % wide == 0 && i / wide < many ? datum(source, left, i / wide) : -1;
            wrong += in[begin + i] != want;
        }
    }
    for (int i = e->in * ROOM * wide; i < MANY * ROOM * 2; i++) wrong += in[i] != -1;
    if (wrong) fprintf(stderr, "rank %d: kind %d, form %d: %d of the integers are wrong\n", rank, kind, form, wrong);
    CHECK(wrong == 0);
}

static void try_all(MPI_Comm comm, const edges *e) {
    int me;
    MPI_Comm_rank(comm, &me);
    for (int kind = 0; kind < KINDS; kind++)
        for (int form = 0; form < FORMS; form++) try(comm, e, kind, form, me);
    /* Two at once, completed in reverse order. */
    int out[2] = {10 + me, 20 + me}, in[2][MANY];
    MPI_Request requests[2];
    for (int i = 0; i < 2; i++)
        NAME(MPI_Ineighbor_allgather)(&out[i], 1, MPI_INT, in[i], 1, MPI_INT, comm, &requests[i]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE), MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    for (int i = 0; i < 2; i++)
        for (int slot = 0; slot < e->in; slot++)
            CHECK(e->sources[slot] == MPI_PROC_NULL || in[i][slot] == 10 * (i + 1) + e->sources[slot]);
}

static void grid(int ndims, const int *dims, const int *periods) {
    MPI_Comm comm;
    edges e = {.in = 2 * ndims, .out = 2 * ndims};
    MPI_Cart_create(MPI_COMM_WORLD, ndims, dims, periods, 0, &comm);
    if (comm == MPI_COMM_NULL) return;
    for (int axis = 0; axis < ndims; axis++)
        MPI_Cart_shift(comm, axis, 1, &e.sources[2 * axis], &e.sources[2 * axis + 1]);
    for (int slot = 0; slot < e.in; slot++) e.destinations[slot] = e.sources[slot], e.left[slot] = slot ^ 1;
    try_all(comm, &e);
    MPI_Comm_free(&comm);
}

/* In each pair of processes, the k-th outgoing edge matches the k-th incoming one. */
static void pair_up(MPI_Comm comm, edges *e) {
    int me, *outs = malloc(sizeof(int) * size), *all = malloc(sizeof(int) * size * MANY);
    MPI_Comm_rank(comm, &me);
    MPI_Allgather(&e->out, 1, MPI_INT, outs, 1, MPI_INT, comm);
    MPI_Allgather(e->destinations, MANY, MPI_INT, all, MANY, MPI_INT, comm);
    for (int slot = 0; slot < e->in; slot++) {
        int before = 0, source = e->sources[slot];
        for (int i = 0; i < slot; i++) before += e->sources[i] == source;
        for (int i = 0; i < outs[source]; i++)
            if (all[source * MANY + i] == me && before-- == 0) e->left[slot] = i;
    }
    free(outs), free(all);
}

/* A ring in which each process lists the next twice, and itself. */
static void graph(void) {
    int index[MANY], list[MANY * 5];
    MPI_Comm comm;
    edges e = {.in = 5, .out = 5};
    for (int i = 0; i < size; i++) {
        int next = (i + 1) % size, previous = (i + size - 1) % size, own[5] = {next, previous, i, next, previous};
        index[i] = 5 * (i + 1);
        for (int k = 0; k < 5; k++) list[5 * i + k] = own[k];
    }
    MPI_Graph_create(MPI_COMM_WORLD, size, index, list, 0, &comm);
    for (int k = 0; k < 5; k++) e.sources[k] = e.destinations[k] = list[5 * rank + k];
    pair_up(comm, &e);
    try_all(comm, &e);
    MPI_Comm_free(&comm);
}

/* Each process sends to all of lower rank, twice to rank 0. The last process receives from nobody. */
static void stairs(void) {
    MPI_Comm comm;
    edges e = {.in = 0, .out = 0};
    for (int i = 0; i < rank; i++) e.destinations[e.out++] = i;
    if (rank > 0) e.destinations[e.out++] = 0;
    for (int i = size - 1; i > rank; i--) {
        e.sources[e.in++] = i;
        if (rank == 0) e.sources[e.in++] = i;
    }
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, e.in, e.sources, MPI_UNWEIGHTED, e.out, e.destinations, MPI_UNWEIGHTED,
                                   MPI_INFO_NULL, 0, &comm);
    pair_up(comm, &e);
    try_all(comm, &e);
    MPI_Comm_free(&comm);
}

/* Blocks far longer than an eager message, around a ring of any length. */
static void long_blocks(void) {
    enum { LONG = 300000 };
    int dims[1] = {size}, periods[1] = {1}, neighbours[2];
    int *out = malloc(sizeof(int) * 2 * LONG), *in = malloc(sizeof(int) * 2 * LONG);
    MPI_Comm ring;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &ring);
    MPI_Cart_shift(ring, 0, 1, &neighbours[0], &neighbours[1]);
    for (int i = 0; i < 2 * LONG; i++) out[i] = rank + i / LONG * 1000, in[i] = -1;
    NAME(MPI_Neighbor_alltoall)(out, LONG, MPI_INT, in, LONG, MPI_INT, ring);
    int wrong = 0;
    for (int i = 0; i < LONG; i++) wrong += in[i] != neighbours[0] + 1000 || in[LONG + i] != neighbours[1];
    CHECK(wrong == 0);
    MPI_Comm_free(&ring);
    free(out), free(in);
}

/* Invalid calls. */
static void refused(void) {
    int one = 0, all[MANY], class, dims[1] = {size}, periods[1] = {1};
    MPI_Comm plain, ring;
    MPI_Comm_dup(MPI_COMM_WORLD, &plain);
    MPI_Comm_set_errhandler(plain, MPI_ERRORS_RETURN);
    int code = NAME(MPI_Neighbor_allgather)(&one, 1, MPI_INT, all, 1, MPI_INT, plain);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_TOPOLOGY);
    MPI_Cart_create(plain, 1, dims, periods, 0, &ring);
    code = NAME(MPI_Neighbor_alltoall)(MPI_IN_PLACE, 1, MPI_INT, all, 1, MPI_INT, ring);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_BUFFER);
    /* Other communicators are unaffected. */
    NAME(MPI_Neighbor_allgather)(&rank, 1, MPI_INT, all, 1, MPI_INT, ring);
    CHECK(all[0] == (rank + size - 1) % size && all[1] == (rank + 1) % size);
    MPI_Comm_free(&ring), MPI_Comm_free(&plain);
}

int main(int argc, char **argv) {
    int all, dims[3] = {0, 0, 0}, line[1], closed[3] = {1, 1, 1}, open[3] = {0, 0, 0}, mixed[3] = {0, 1, 0};
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    NAME(MPI_Type_create_resized)(MPI_INT, 0, 2 * sizeof(int), &sparse);
    MPI_Type_commit(&sparse);
    line[0] = size;
    grid(1, line, closed), grid(1, line, open), grid(0, line, open);
    for (int ndims = 2; ndims <= 3; ndims++) {
        for (int i = 0; i < 3; i++) dims[i] = 0;
        MPI_Dims_create(size, ndims, dims);
        grid(ndims, dims, closed), grid(ndims, dims, open), grid(ndims, dims, mixed);
    }
    graph();
    stairs();
    long_blocks();
    refused();
    MPI_Type_free(&sparse);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("neighbours on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
