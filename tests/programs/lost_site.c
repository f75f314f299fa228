/* One of two sites is lost for good. Its ranks are the second half of the job as seen from the other site; errors
   return. Operations that need a lost rank fail with the error for a dead process. The ranks of each site continue
   among themselves, before and after the loss is known. Rank 0 creates the file that BEGUN names when the site may be
   lost. Each
   site prints a line. */
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include "expect.h"

enum { LONG = 1 << 20 };
static int handled;
static char data[LONG], other[LONG];

static void handle(MPI_Comm *comm, int *code, ...) {
    (void)comm, (void)code;
    handled++;
}

/* A collective and messages of the ranks of one site. */
static void go_on(MPI_Comm mine, int next, int previous) {
    int one = 1, sum = 0, size;
    MPI_Comm_size(mine, &size);
    expect("MPI_Allreduce of a site", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, mine), MPI_SUCCESS);
    expect("MPI_Sendrecv of a site",
           MPI_Sendrecv(&sum, 1, MPI_INT, next, 5, &one, 1, MPI_INT, previous, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_SUCCESS);
    failures += sum != size || one != size;
}

/* Repeats until a receive from the other site has failed at all ranks of this one. They keep communicating meanwhile. */
static void await_loss(MPI_Comm mine, int far, int next, int previous) {
    int value, failed = 0, all = 0, code = MPI_SUCCESS;
    MPI_Request request;
    MPI_Irecv(&value, 1, MPI_INT, far, 9, MPI_COMM_WORLD, &request);
    while (!all) {
        if (!failed) code = MPI_Test(&request, &failed, MPI_STATUS_IGNORE);
        MPI_Allreduce(&failed, &all, 1, MPI_INT, MPI_MIN, mine);
        go_on(mine, next, previous);
        usleep(10000);
    }
    expect("MPI_Irecv, MPI_Test", code, MPI_ERR_PROC_ABORTED);
}

static void need_the_lost(int far) {
    int value = 0, flag;
    MPI_Request request;
    MPI_Comm world = MPI_COMM_WORLD;
    expect("MPI_Recv", MPI_Recv(&value, 1, MPI_INT, far, 9, world, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    expect("MPI_Send", MPI_Send(&value, 1, MPI_INT, far, 9, world), MPI_ERR_PROC_ABORTED);
    expect("MPI_Ssend", MPI_Ssend(&value, 1, MPI_INT, far, 9, world), MPI_ERR_PROC_ABORTED);
    expect("MPI_Send of a long message", MPI_Send(data, LONG, MPI_CHAR, far, 9, world), MPI_ERR_PROC_ABORTED);
    expect("MPI_Probe", MPI_Probe(far, 9, world, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    expect("MPI_Iprobe", MPI_Iprobe(far, 9, world, &flag, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    expect("MPI_Sendrecv", MPI_Sendrecv(data, LONG, MPI_CHAR, far, 9, other, LONG, MPI_CHAR, far, 9, world, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
    int code = MPI_Isend(&value, 1, MPI_INT, far, 9, world, &request);
    expect("MPI_Isend, MPI_Wait", code ? code : MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_PROC_ABORTED);
}

int main(int argc, char **argv) {
    int size, all;
    MPI_Comm mine;
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int half = size / 2, site = rank / half, far = (rank + half) % size;
    int next = site * half + (rank + 1) % half, previous = site * half + (rank + half - 1) % half;
    MPI_Comm_create_errhandler(handle, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
    MPI_Comm_split(MPI_COMM_WORLD, site, 0, &mine);
    for (int step = 0; step < size; step++) {
        int to = (rank + step) % size, from = (rank + size - step) % size;
        MPI_Sendrecv(data, LONG, MPI_CHAR, to, 1, other, LONG, MPI_CHAR, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    const char *begun = getenv("BEGUN");
    if (rank == 0 && begun) close(open(begun, O_CREAT | O_WRONLY, 0666));
    await_loss(mine, far, next, previous);
    need_the_lost(far);
    /* One for each error, and each has returned. */
    if (handled != 9) failures++, fprintf(stderr, "the handler was called %d times\n", handled);
    go_on(mine, next, previous);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, mine);
    MPI_Comm_free(&mine);
    MPI_Errhandler_free(&handler);
    expect("MPI_Finalize", MPI_Finalize(), MPI_SUCCESS);
    if (rank == site * half) printf("site %d is alone: %d failures\n", site, all);
    return all != 0;
}
