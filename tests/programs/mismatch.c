/* Collectives that differ between processes. With -check, every process gets an error that names both sides, in every
   form, and later calls work. With "wrong", without -check, differing lengths are errors where they arrive. Runs on
   two ranks or more. Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

#include "check.h"

static int size, last;
static MPI_Comm comm;

static void expect(int code, int class, const char *one, const char *other) {
    char text[MPI_MAX_ERROR_STRING];
    int found, len;
    MPI_Error_class(code, &found);
    MPI_Error_string(code, text, &len);
    if (found != class || !strstr(text, one) || !strstr(text, other))
        fprintf(stderr, "rank %d: class %d, not %d, of: %s\n", rank, found, class, text);
    CHECK(found == class && strstr(text, one) && strstr(text, other));
}

static void compared(void) {
    int in[64], out[64] = {0}, all, code;
    MPI_Request request;
    /* Different operations. */
    code = last ? MPI_Barrier(comm) : MPI_Bcast(in, 2, MPI_INT, 0, comm);
    expect(code, MPI_ERR_ARG, "Bcast of 8 bytes with root 0", "Barrier");
    /* Different roots. */
    code = MPI_Bcast(in, 2, MPI_INT, last, comm);
    expect(code, MPI_ERR_ROOT, "Bcast of 8 bytes with root 0", "root 1");
    /* Different lengths, through another type. */
    code = MPI_Gather(out, 1, last ? MPI_DOUBLE : MPI_INT, in, 1, MPI_INT, 0, comm);
    expect(code, MPI_ERR_COUNT, "Gather of 4 bytes with root 0", "Gather of 8 bytes");
    code = MPI_Allreduce(out, in, 3 + last, MPI_INT, MPI_SUM, comm);
    expect(code, MPI_ERR_COUNT, "Allreduce of 12 bytes by Sum", "Allreduce of 16 bytes by Sum");
    /* Different reduction operations. */
    code = MPI_Reduce(out, in, 3, MPI_INT, last ? MPI_MAX : MPI_SUM, 0, comm);
    expect(code, MPI_ERR_OP, "by Sum", "by Max");
    /* Nonblocking and persistent forms, and one nonblocking beside blocking ones. */
    MPI_Ialltoall(out, 1 + last, MPI_INT, in, 1 + last, MPI_INT, comm, &request);
    code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(code, MPI_ERR_COUNT, "Alltoall of 4 bytes", "Alltoall of 8 bytes");
    MPI_Scan_init(out, in, 1 + last, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &request);
    for (int i = 0; i < 2; i++) {
        MPI_Start(&request), code = MPI_Wait(&request, MPI_STATUS_IGNORE);
        expect(code, MPI_ERR_COUNT, "Scan of 4 bytes by Sum", "Scan of 8 bytes by Sum");
    }
    MPI_Request_free(&request);
    if (last) code = MPI_Allgather(out, 1, MPI_INT, in, 1, MPI_INT, comm);
    else MPI_Ibarrier(comm, &request), code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(code, MPI_ERR_ARG, "Barrier", "Allgather of 4 bytes");
    /* Constructors of communicators. */
    MPI_Comm local, inter;
    code = last ? MPI_Comm_dup(comm, &local) : MPI_Comm_split(comm, 0, 0, &local);
    expect(code, MPI_ERR_ARG, "CommSplit", "CommDup");
    /* Collectives between groups. */
    MPI_Comm_split(comm, last, rank, &local);
    MPI_Intercomm_create(local, 0, comm, last ? 0 : size - 1, 1, &inter);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    code = last ? MPI_Bcast(in, 1, MPI_INT, MPI_PROC_NULL, inter) : MPI_Allgather(out, 1, MPI_INT, in, 1, MPI_INT, inter);
    expect(code, MPI_ERR_ARG, "Bcast", "Allgather");
    MPI_Comm_free(&inter), MPI_Comm_free(&local);
    /* Matching calls work, also in place and with counts of their own. */
    int counts[64], displs[64];
    for (int i = 0; i < size; i++) counts[i] = i % 2, displs[i] = i;
    for (int i = 0; i < 64; i++) in[i] = -1;
    CHECK(MPI_Allgatherv(&rank, rank % 2, MPI_INT, in, counts, displs, MPI_INT, comm) == MPI_SUCCESS);
    for (int i = 0; i < size; i++) CHECK(in[i] == (i % 2 ? i : -1));
    in[0] = rank;
    CHECK(MPI_Reduce(rank ? in : MPI_IN_PLACE, rank ? NULL : in, 1, MPI_INT, MPI_SUM, 0, comm) == MPI_SUCCESS);
    CHECK(rank || in[0] == size * (size - 1) / 2);
    CHECK(MPI_Allreduce(&rank, &all, 1, MPI_INT, MPI_MAX, comm) == MPI_SUCCESS && all == size - 1);
}

/* Lengths on which each pair must agree. The last rank and the first differ in the last rank's send or receive
   counts. */
static void paired(void) {
    int in[256], out[256] = {0}, counts[64], odd[64], displs[64], code;
    MPI_Datatype types[64];
    MPI_Request request;
    char sends[64], expects[64];
    for (int i = 0; i < size; i++) counts[i] = odd[i] = 1, displs[i] = i * 3, types[i] = MPI_INT;
    if (last) odd[0] = 2; /* to the first, or from it */
    snprintf(sends, sizeof sends, "sends 8 bytes to rank 0, rank 0 ");
    snprintf(expects, sizeof expects, "expects 4 of rank %d", size - 1);
    code = MPI_Gatherv(out, 1 + last, MPI_INT, in, counts, displs, MPI_INT, 0, comm);
    expect(code, MPI_ERR_COUNT, sends, expects);
    code = MPI_Alltoallv(out, odd, displs, MPI_INT, in, counts, displs, MPI_INT, comm);
    expect(code, MPI_ERR_COUNT, sends, expects);
    for (int i = 0; i < size; i++) displs[i] *= (int)sizeof(int);
    code = MPI_Alltoallw(out, odd, displs, types, in, counts, displs, types, comm);
    expect(code, MPI_ERR_COUNT, sends, expects);
    for (int i = 0; i < size; i++) displs[i] /= (int)sizeof(int);
    /* The last rank expects more than the first sends. */
    snprintf(sends, sizeof sends, "rank 0 %s", "Scatter with root 0 sends 4 bytes");
    snprintf(expects, sizeof expects, "rank %d Scatter with root 0 expects 8 of rank 0", size - 1);
    code = MPI_Scatterv(out, counts, displs, MPI_INT, in, 1 + last, MPI_INT, 0, comm);
    expect(code, MPI_ERR_COUNT, sends, expects);
    snprintf(sends, sizeof sends, "rank 0 Allgather sends 4 bytes to rank %d", size - 1);
    MPI_Iallgatherv(out, 1, MPI_INT, in, odd, displs, MPI_INT, comm, &request);
    code = MPI_Wait(&request, MPI_STATUS_IGNORE);
    expect(code, MPI_ERR_COUNT, sends, "expects 8 of rank 0");

    /* Neighbours, two of which may be the same process. */
    MPI_Comm ring, local, inter;
    int periods = 1;
    MPI_Cart_create(comm, 1, &size, &periods, 0, &ring);
    MPI_Comm_set_errhandler(ring, MPI_ERRORS_RETURN);
    code = MPI_Neighbor_alltoall(out, 1 + last, MPI_INT, in, 1 + last, MPI_INT, ring);
    expect(code, MPI_ERR_COUNT, "NeighborAlltoall sends", "NeighborAlltoall expects");
    code = MPI_Neighbor_allgatherv(out, 1, MPI_INT, in, last ? (int[]){2, 1} : (int[]){1, 1}, (int[]){0, 4}, MPI_INT, ring);
    expect(code, MPI_ERR_COUNT, "NeighborAllgather sends", "NeighborAllgather expects");
    CHECK(MPI_Neighbor_alltoall(out, 1, MPI_INT, in, 1, MPI_INT, ring) == MPI_SUCCESS);
    MPI_Comm_free(&ring);

    /* Groups: the last rank is the second group. */
    MPI_Comm_split(comm, last, rank, &local);
    MPI_Intercomm_create(local, 0, comm, last ? 0 : size - 1, 2, &inter);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    code = MPI_Allgather(out, 1, MPI_INT, in, last ? 2 : 1, MPI_INT, inter);
    expect(code, MPI_ERR_COUNT, "Allgather sends 4 bytes", "expects 8 of rank 0");
    code = MPI_Gather(out, 2, MPI_INT, in, 1, MPI_INT, last ? MPI_ROOT : 0, inter);
    expect(code, MPI_ERR_COUNT, "sends 8 bytes", "expects 4 of rank 0");
    code = MPI_Allreduce(out, in, 1 + last, MPI_INT, MPI_SUM, inter);
    expect(code, MPI_ERR_COUNT, "Allreduce of 4 bytes by Sum", "Allreduce of 8 bytes by Sum");
    code = MPI_Bcast(in, 1 + last, MPI_INT, last ? MPI_ROOT : 0, inter);
    expect(code, MPI_ERR_COUNT, "Bcast of 4 bytes", "Bcast of 8 bytes");
    CHECK(MPI_Alltoall(out, 1, MPI_INT, in, 1, MPI_INT, inter) == MPI_SUCCESS);
    MPI_Comm_free(&inter), MPI_Comm_free(&local);
    /* Matching calls work. */
    for (int i = 0; i < size; i++) counts[i] = i + 1, displs[i] = i * (i + 1) / 2;
    for (int i = 0; i < 64; i++) out[i] = rank;
    if (size <= 8) {
        CHECK(MPI_Gatherv(out, rank + 1, MPI_INT, in, counts, displs, MPI_INT, 0, comm) == MPI_SUCCESS);
        for (int i = 0; rank == 0 && i < size; i++) CHECK(in[displs[i]] == i && in[displs[i] + i] == i);
    }
}

static void wrong(void) {
    int in[64], out[64] = {0}, code, class;
    /* The root learns that its count differs from the data received. Later calls work. */
    code = MPI_Gather(out, last ? 2 : 1, MPI_INT, in, 1, MPI_INT, 0, comm);
    MPI_Error_class(code, &class);
    CHECK(rank == 0 && size == 2 ? class == MPI_ERR_TRUNCATE : 1);
    if (size == 2) {
        code = MPI_Bcast(in, last ? 1 : 2, MPI_INT, 0, comm), MPI_Error_class(code, &class);
        CHECK(class == (rank == 1 ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
    }
}

int main(int argc, char **argv) {
    int all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    last = rank == size - 1;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    if (argc > 1) wrong();
    else compared(), paired();
    MPI_Comm_free(&comm);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("collectives that differ, on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
