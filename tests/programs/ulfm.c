/* Communicators whose members fail. Usage: ulfm CASE, where CASE is revoke (nobody fails), failures, coordinators or spawn.
   Each rank that lives prints the case and the number of failures. */
#include <mpi.h>
#include <mpi-ext.h>
#include <signal.h>
#include <string.h>
#include "check.h"

static int size;

static int class_of(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

/* Number of members of a group, which is freed. */
static int freed_size(MPI_Group group) {
    int members;
    MPI_Group_size(group, &members);
    if (group != MPI_GROUP_EMPTY) MPI_Group_free(&group);
    return members;
}

/* Checks a new communicator: its members are in the order of their ranks in the old one. */
static void use(MPI_Comm comm, int expected) {
    int own, members, ranks[64] = {0};
    MPI_Comm_size(comm, &members);
    MPI_Comm_rank(comm, &own);
    CHECK(members == expected);
    CHECK(MPI_Allgather(&rank, 1, MPI_INT, ranks, 1, MPI_INT, comm) == MPI_SUCCESS);
    for (int at = 1; at < members; at++) CHECK(ranks[at] > ranks[at - 1]);
    CHECK(ranks[own] == rank);
}

/* One revokes; the others are in calls of all kinds. */
static void revoke(void) {
    MPI_Comm comm, new;
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int value = 0, flag = 1;
    static char large[4 << 20];
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPIX_Comm_is_revoked(comm, &flag);
    CHECK(!flag);
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 7, comm, &requests[0]);
    MPI_Irecv(&value, 1, MPI_INT, (rank + 1) % size, 8, comm, &requests[1]);
    MPI_Issend(large, sizeof large, MPI_CHAR, (rank + 1) % size, 9, comm, &requests[2]);
    MPI_Barrier(MPI_COMM_WORLD);
    int code = MPI_SUCCESS;
    if (rank == 0) {
        CHECK(MPIX_Comm_revoke(comm) == MPI_SUCCESS);
    } else if (rank % 3 == 1) {
        code = MPI_Recv(&value, 1, MPI_INT, 0, 1, comm, MPI_STATUS_IGNORE);
    } else if (rank % 3 == 2) {
        code = MPI_Barrier(comm);
    } else {
        code = MPI_Probe(MPI_ANY_SOURCE, 3, comm, MPI_STATUS_IGNORE);
    }
    CHECK(rank == 0 || class_of(code) == MPIX_ERR_REVOKED);
    code = MPI_Waitall(3, requests, statuses);
    CHECK(class_of(code) == MPI_ERR_IN_STATUS);
    for (int at = 0; at < 3; at++) CHECK(class_of(statuses[at].MPI_ERROR) == MPIX_ERR_REVOKED);
    MPIX_Comm_is_revoked(comm, &flag);
    CHECK(flag);
    CHECK(class_of(MPI_Send(&value, 1, MPI_INT, 0, 1, comm)) == MPIX_ERR_REVOKED);
    CHECK(class_of(MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 1, comm, MPI_STATUS_IGNORE)) == MPIX_ERR_REVOKED);
    CHECK(class_of(MPI_Bcast(&value, 1, MPI_INT, 0, comm)) == MPIX_ERR_REVOKED);
    CHECK(class_of(MPI_Comm_dup(comm, &new)) == MPIX_ERR_REVOKED);
    CHECK(MPIX_Comm_revoke(comm) == MPI_SUCCESS);
    flag = rank == 1 ? 5 : 7;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == 5);
    CHECK(MPIX_Comm_shrink(comm, &new) == MPI_SUCCESS);
    use(new, size);
    MPI_Comm_free(&new);
    MPI_Comm_free(&comm);
    use(MPI_COMM_WORLD, size);
}

/* A rank fails; the others go on in every way. */
static void fail_one(void) {
    int lost = size - 1, value = 0, flag, acked = -1, code;
    MPI_Comm comm, new, newer;
    MPI_Group group;
    MPI_Request request;
    MPI_Status status;
    CHECK(MPIX_Comm_get_failed(MPI_COMM_WORLD, &group) == MPI_SUCCESS && group == MPI_GROUP_EMPTY);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    if (rank == lost) raise(SIGKILL);
    MPI_Irecv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 7, comm, &request);
    code = MPI_Wait(&request, &status);
    CHECK(class_of(code) == MPIX_ERR_PROC_FAILED_PENDING && request != MPI_REQUEST_NULL);
    code = MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, 8, comm, MPI_STATUS_IGNORE);
    CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);
    code = MPI_Probe(MPI_ANY_SOURCE, 8, comm, MPI_STATUS_IGNORE);
    CHECK(class_of(code) == MPIX_ERR_PROC_FAILED_PENDING);
    code = MPI_Recv(&value, 1, MPI_INT, lost, 8, comm, MPI_STATUS_IGNORE);
    CHECK(class_of(code) == MPIX_ERR_PROC_FAILED);
    CHECK(class_of(code) == MPI_ERR_PROC_ABORTED);
    flag = 1 << rank | 1 << 30;
    CHECK(class_of(MPIX_Comm_agree(comm, &flag)) == MPIX_ERR_PROC_FAILED && flag == 1 << 30);
    CHECK(MPIX_Comm_get_failed(comm, &group) == MPI_SUCCESS && freed_size(group) == 1);
    CHECK(MPIX_Comm_ack_failed(comm, rank == 0 ? 1 : 7, &acked) == MPI_SUCCESS && acked == 1);
    CHECK(MPIX_Comm_failure_get_acked(comm, &group) == MPI_SUCCESS && freed_size(group) == 1);
    CHECK(MPIX_Comm_failure_ack(comm) == MPI_SUCCESS);
    flag = rank + 16;
    CHECK(MPIX_Comm_agree(comm, &flag) == MPI_SUCCESS && flag == 16);
    /* The receive goes on. */
    MPI_Send(&rank, 1, MPI_INT, (rank + 1) % lost, 7, comm);
    CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS && value == (rank + lost - 1) % lost);
    CHECK(status.MPI_SOURCE == value && request == MPI_REQUEST_NULL);
    CHECK(MPIX_Comm_shrink(comm, &new) == MPI_SUCCESS);
    use(new, lost);
    CHECK(MPIX_Comm_ishrink(comm, &newer, &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    use(newer, lost);
    flag = rank + 32;
    CHECK(MPIX_Comm_iagree(newer, &flag, &request) == MPI_SUCCESS);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag == 32);
    MPIX_Comm_revoke(new);
    CHECK(class_of(MPI_Barrier(new)) == MPIX_ERR_REVOKED);
    use(newer, lost);
    MPI_Comm_free(&new);
    MPI_Comm_free(&newer);
    MPI_Comm_free(&comm);
}

/* The lowest ranks fail one after the other, each in another step, and each time the others shrink. */
static void lose_coordinators(void) {
    MPI_Comm comm = MPI_COMM_WORLD;
    for (int left = size; left > 1; left--) {
        int own, flag = 3;
        MPI_Comm new;
        MPI_Comm_rank(comm, &own);
        if (own == 0) {
            if (left % 2) MPIX_Comm_agree(comm, &flag);
            raise(SIGKILL);
        }
        if (left % 2) {
            MPIX_Comm_agree(comm, &flag);
            CHECK(flag == 3);
        }
        MPI_Barrier(comm);
        MPIX_Comm_revoke(comm);
        CHECK(MPIX_Comm_shrink(comm, &new) == MPI_SUCCESS);
        int members;
        MPI_Comm_size(new, &members);
        if (members == left) {
            /* It died later: it is found in the next communicator. */
            CHECK(class_of(MPI_Barrier(new)) == MPIX_ERR_PROC_FAILED);
            MPIX_Comm_revoke(new);
            comm = new;
            CHECK(MPIX_Comm_shrink(comm, &new) == MPI_SUCCESS);
        }
        use(new, left - 1);
        /* Nobody ends before all have used it. */
        CHECK(MPIX_Comm_agree(new, &flag) == MPI_SUCCESS);
        comm = new;
    }
}

/* Shrink, spawn and merge: the job has its old size again. */
static void replace(char *program) {
    MPI_Comm parent, world = MPI_COMM_WORLD, new, inter, merged;
    MPI_Comm_get_parent(&parent);
    int own, all, started = 0, sum = 0;
    if (parent == MPI_COMM_NULL) {
        if (rank == size - 1) raise(SIGKILL);
        CHECK(class_of(MPI_Barrier(world)) == MPIX_ERR_PROC_FAILED);
        CHECK(MPIX_Comm_shrink(world, &new) == MPI_SUCCESS);
        use(new, size - 1);
        char *arguments[] = {"spawn", NULL};
        CHECK(MPI_Comm_spawn(program, arguments, 1, MPI_INFO_NULL, 0, new, &inter, MPI_ERRCODES_IGNORE) == MPI_SUCCESS);
        MPI_Intercomm_merge(inter, 0, &merged);
        MPI_Comm_free(&new);
    } else {
        inter = parent;
        started = 1;
        MPI_Intercomm_merge(inter, 1, &merged);
    }
    MPI_Comm_set_errhandler(merged, MPI_ERRORS_RETURN);
    MPI_Comm_rank(merged, &own);
    MPI_Comm_size(merged, &all);
    CHECK(MPI_Allreduce(&started, &sum, 1, MPI_INT, MPI_SUM, merged) == MPI_SUCCESS && sum == 1);
    CHECK(own < all && (!started || own == all - 1));
    int flag = 7 - started;
    CHECK(MPIX_Comm_agree(inter, &flag) == MPI_SUCCESS && flag == (started ? 7 : 6));
    /* The new one fails too. */
    if (started) raise(SIGKILL);
    CHECK(class_of(MPI_Barrier(merged)) == MPIX_ERR_PROC_FAILED);
    CHECK(MPIX_Comm_shrink(merged, &new) == MPI_SUCCESS);
    use(new, size - 1);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *which = argc > 1 ? argv[1] : "";
    if (!strcmp(which, "revoke")) revoke();
    if (!strcmp(which, "failures")) fail_one();
    if (!strcmp(which, "coordinators")) lose_coordinators();
    if (!strcmp(which, "spawn")) replace(argv[0]);
    printf("rank %d: %s: %d failures\n", rank, which, failures);
    return MPI_Finalize() != MPI_SUCCESS || failures > 0;
}
