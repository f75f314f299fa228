/* Messages of the kernels in Fortran: the calls of MPI that they need, with doubles as data. They use them through the module
   `net`. A library needs no Fortran interface then, and one program runs on every library of the standard ABI. */
#include <mpi.h>
#include <stdio.h>

enum { MOST_PENDING = 64 };

static MPI_Request pending[MOST_PENDING];
static int pending_count;

static MPI_Request *next_pending(void) {
    if (pending_count == MOST_PENDING) {
        fprintf(stderr, "nas: more than %d operations at once\n", MOST_PENDING);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return &pending[pending_count++];
}

int net_rank(void) {
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    return rank;
}

int net_size(void) {
    int size;
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    return size;
}

double net_now(void) { return MPI_Wtime(); }

void net_barrier(void) { MPI_Barrier(MPI_COMM_WORLD); }

void net_send(const void *values, int count, int to, int tag) {
    MPI_Send(values, count, MPI_DOUBLE, to, tag, MPI_COMM_WORLD);
}

void net_recv(void *values, int count, int from, int tag) {
    MPI_Recv(values, count, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

/* Starts an operation that `net_wait` completes, with all others. */
void net_isend(const void *values, int count, int to, int tag) {
    MPI_Isend(values, count, MPI_DOUBLE, to, tag, MPI_COMM_WORLD, next_pending());
}

void net_irecv(void *values, int count, int from, int tag) {
    MPI_Irecv(values, count, MPI_DOUBLE, from, tag, MPI_COMM_WORLD, next_pending());
}

void net_wait(void) {
    MPI_Waitall(pending_count, pending, MPI_STATUSES_IGNORE);
    pending_count = 0;
}

/* Sum and maximum over all ranks, in place. */
void net_sum(void *values, int count) {
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
}

void net_max(void *values, int count) {
    MPI_Allreduce(MPI_IN_PLACE, values, count, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
}

void net_alltoall(const void *from, void *to, int count) {
    MPI_Alltoall(from, count, MPI_DOUBLE, to, count, MPI_DOUBLE, MPI_COMM_WORLD);
}
