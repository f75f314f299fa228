/* Collectives on communicators that have lost members; errors return. Usage: lost_members RANK... or lost_members
   half: these ranks end at once, or each half of the ranks loses the other. Each survivor calls each collective, on a
   communicator of its own, until it fails, and never again there. No rank may wait for one that already has its
   error. Messages between survivors still arrive, also in communicators that they make. Rank 0 creates the file that
   BEGUN names when the half may be lost. The first survivor prints a line. */
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

enum { LONG = 1 << 18 };
static int size;
static int data[LONG], other[LONG];

static int end(int code, MPI_Request *request) { return code ? code : MPI_Wait(request, MPI_STATUS_IGNORE); }

static int call(int which, MPI_Comm comm) {
    MPI_Request request;
    MPI_Comm made;
    int one = 1, code;
    switch (which) {
    case 0: return MPI_Barrier(comm);
    case 1: return MPI_Bcast(data, 1, MPI_INT, 0, comm);
    case 2: return MPI_Bcast(data, LONG, MPI_INT, size / 2, comm);
    case 3: return MPI_Allreduce(&one, other, 1, MPI_INT, MPI_SUM, comm);
    case 4: return MPI_Allreduce(data, other, LONG, MPI_INT, MPI_SUM, comm);
    case 5: return MPI_Reduce(&one, other, 1, MPI_INT, MPI_SUM, size - 1, comm);
    case 6: return MPI_Allgather(data, LONG / size, MPI_INT, other, LONG / size, MPI_INT, comm);
    case 7: return MPI_Alltoall(data, 1, MPI_INT, other, 1, MPI_INT, comm);
    case 8: return MPI_Gather(data, 1000, MPI_INT, other, 1000, MPI_INT, 0, comm);
    case 9: return MPI_Scatter(data, 1000, MPI_INT, other, 1000, MPI_INT, 1, comm);
    case 10: return MPI_Scan(&one, other, 1, MPI_INT, MPI_SUM, comm);
    case 11: return end(MPI_Ibarrier(comm, &request), &request);
    case 12: return end(MPI_Ibcast(data, LONG, MPI_INT, 0, comm, &request), &request);
    case 13: return MPI_Allgather(&one, 1, MPI_INT, other, 1, MPI_INT, comm);
    case 14: return MPI_Gather(&one, 1, MPI_INT, other, 1, MPI_INT, size - 1, comm);
    case 15: return MPI_Reduce_scatter_block(data, other, 1, MPI_INT, MPI_SUM, comm);
    case 16: return MPI_Barrier(comm);
    default:
        code = MPI_Comm_split(comm, rank % 2, 0, &made);
        if (!code) MPI_Comm_free(&made);
        return code;
    }
}
enum { CALLS = 18 };

/* Repeats until a collective fails. Every later one fails, too. */
static void lose(int which, MPI_Comm comm) {
    char what[64];
    int code = MPI_SUCCESS;
    while (code == MPI_SUCCESS) code = call(which, comm);
    snprintf(what, sizeof what, "collective %d", which);
    expect(what, code, MPI_ERR_PROC_ABORTED);
    if (rank % 3) return;
    expect("MPI_Barrier after it", MPI_Barrier(comm), MPI_ERR_PROC_ABORTED);
    expect("MPI_Comm_dup after it", MPI_Comm_dup(comm, &comm), MPI_ERR_PROC_ABORTED);
}

/* Survivors exchange messages, in a revoked communicator as well, and make a new one. */
static void go_on(MPI_Comm revoked, const int *living, int count, int place) {
    MPI_Group all, group;
    MPI_Comm mine;
    int one = 1, sum = 0, next = living[(place + 1) % count], previous = living[(place + count - 1) % count];
    expect("MPI_Sendrecv", MPI_Sendrecv(data, LONG, MPI_INT, next, 5, other, LONG, MPI_INT, previous, 5, revoked, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_incl(all, count, living, &group);
    expect("MPI_Comm_create_group", MPI_Comm_create_group(MPI_COMM_WORLD, group, 7, &mine), MPI_SUCCESS);
    for (int times = 0; times < 9; times++) {
        expect("MPI_Allreduce of those who live", MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, mine), MPI_SUCCESS);
        failures += sum != count;
    }
    MPI_Allreduce(&failures, &sum, 1, MPI_INT, MPI_SUM, mine);
    failures = sum;
    MPI_Comm_free(&mine);
    MPI_Group_free(&group);
    MPI_Group_free(&all);
}

int main(int argc, char **argv) {
    MPI_Comm comms[CALLS];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int living[size], is_lost[size], count = 0, place = 0, is_half = argc > 1 && !strcmp(argv[1], "half");
    memset(is_lost, 0, sizeof is_lost);
    for (int at = 1; at < argc && !is_half; at++) is_lost[atoi(argv[at])] = 1;
    for (int one = 0; one < size && is_half; one++) is_lost[one] = one / (size / 2) != rank / (size / 2);
    for (int one = 0; one < size; one++) {
        if (one == rank) place = count;
        if (!is_lost[one]) living[count++] = one;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int which = 0; which < CALLS; which++) {
        MPI_Comm_dup(MPI_COMM_WORLD, &comms[which]);
        /* Every other communicator, and the last, has run enough collectives for shared segments. */
        for (int times = 0; times < 9 && (which % 2 || which > 12); times++) MPI_Barrier(comms[which]);
    }
    /* All ranks have exchanged messages. Without that, a wait would last as long as connection attempts do. */
    MPI_Alltoall(data, LONG / size, MPI_INT, other, LONG / size, MPI_INT, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    const char *begun = getenv("BEGUN");
    if (rank == 0 && begun) close(open(begun, O_CREAT | O_WRONLY, 0666));
    if (is_lost[rank]) _exit(0);
    for (int which = 0; which < CALLS; which++) lose(which, comms[which]);
    go_on(comms[3], living, count, place);
    for (int which = 0; which < CALLS; which++) MPI_Comm_free(&comms[which]);
    if (place == 0) printf("%d of %d live: %d failures\n", count, size, failures);
    fflush(stdout);
    /* A launcher that has not seen the others end makes all wait for them. */
    if (!is_half) _exit(failures != 0);
    expect("MPI_Finalize", MPI_Finalize(), MPI_SUCCESS);
    return failures != 0;
}
