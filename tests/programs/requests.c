/* Requests by their handles: stale ones, invented ones, one named twice, numbers as Fortran has them. Also lists of
   all kinds of requests in several communicators, completed by wait or test, in any order, by one thread or by
   several. A call
   that returns an error has lost nothing. Usage: requests [SEED], on two or more ranks. */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { COMMS = 5, MOST = 40, ROUNDS = 400, MANY = 20000, THREADS = 4 };

static MPI_Comm comms[COMMS];
static int size, next, before;

static int class_of(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static int is_refused(int code) { return class_of(code) == MPI_ERR_REQUEST; }

/* Every function with a handle argument refuses it and leaves it unchanged. */
static void refuse_everywhere(MPI_Request handle) {
    MPI_Request request = handle, list[2];
    MPI_Status status;
    int flag, index, count, indices[2];
    CHECK(is_refused(MPI_Wait(&request, &status)) && is_refused(MPI_Test(&request, &flag, &status)));
    CHECK(is_refused(MPI_Cancel(&request)) && is_refused(MPI_Request_free(&request)));
    CHECK(is_refused(MPI_Start(&request)) && is_refused(MPI_Startall(1, &request)));
    CHECK(is_refused(MPI_Request_get_status(request, &flag, &status)) && request == handle);
    for (int place = 0; place < 2; place++) {
        list[place] = handle, list[1 - place] = MPI_REQUEST_NULL;
        CHECK(is_refused(MPI_Waitall(2, list, MPI_STATUSES_IGNORE)));
        CHECK(is_refused(MPI_Testall(2, list, &flag, MPI_STATUSES_IGNORE)));
        CHECK(is_refused(MPI_Waitany(2, list, &index, &status)));
        CHECK(is_refused(MPI_Testany(2, list, &index, &flag, &status)));
        CHECK(is_refused(MPI_Waitsome(2, list, &count, indices, MPI_STATUSES_IGNORE)));
        CHECK(is_refused(MPI_Testsome(2, list, &count, indices, MPI_STATUSES_IGNORE)));
        CHECK(is_refused(MPI_Request_get_status_all(2, list, &flag, MPI_STATUSES_IGNORE)));
        CHECK(list[place] == handle && list[1 - place] == MPI_REQUEST_NULL);
    }
}

/* Handles of operations that have ended, were freed, or never were. */
static void names(MPI_Comm comm) {
    int sent = rank, got = -1;
    MPI_Request request, stale, again;
    MPI_Irecv(&got, 1, MPI_INT, before, 0, comm, &request);
    stale = request;
    MPI_Send(&sent, 1, MPI_INT, next, 0, comm);
    CHECK(MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS && got == before && request == MPI_REQUEST_NULL);
    refuse_everywhere(stale);
    /* The slot is used again. The old handle stays invalid. */
    MPI_Irecv(&got, 1, MPI_INT, before, 1, comm, &again);
    CHECK(again != stale);
    refuse_everywhere(stale);
    /* Similar handles are invalid, too: another use of the slot, another slot, another kind. */
    long bits = (long)again;
    long others[] = {bits + (1L << 32), bits + (1L << 29), bits ^ (1L << 31), bits + (1L << 24), bits & ~(1L << 30), bits + 4, bits & 0xf};
    for (unsigned i = 0; i < sizeof others / sizeof *others; i++) refuse_everywhere((MPI_Request)others[i]);
    CHECK(MPI_Request_f2c(MPI_Request_c2f(again)) == again);
    CHECK(MPI_Request_fromint(MPI_Request_toint(again)) == again);
    MPI_Send(&sent, 1, MPI_INT, next, 1, comm);
    CHECK(MPI_Wait(&again, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    /* A freed request still completes, without a handle. */
    got = -1;
    MPI_Irecv(&got, 1, MPI_INT, before, 2, comm, &request);
    stale = request;
    CHECK(MPI_Request_free(&request) == MPI_SUCCESS && request == MPI_REQUEST_NULL);
    refuse_everywhere(stale);
    int later = -1;
    MPI_Send(&sent, 1, MPI_INT, next, 2, comm);
    MPI_Sendrecv(&sent, 1, MPI_INT, next, 3, &later, 1, MPI_INT, before, 3, comm, MPI_STATUS_IGNORE);
    CHECK(got == before && later == before);
}

/* A list names a request twice: an error, and nothing is lost. */
static void twice(MPI_Comm comm) {
    int sent = rank, got[2] = {-1, -1}, flag, index, count, indices[3];
    MPI_Request requests[2], list[3];
    for (int i = 0; i < 2; i++) MPI_Irecv(&got[i], 1, MPI_INT, before, i, comm, &requests[i]);
    list[0] = requests[0], list[1] = requests[1], list[2] = requests[0];
    for (int round = 0; round < 2; round++) {
        CHECK(is_refused(MPI_Waitall(3, list, MPI_STATUSES_IGNORE)));
        CHECK(is_refused(MPI_Testall(3, list, &flag, MPI_STATUSES_IGNORE)));
        CHECK(is_refused(MPI_Waitany(3, list, &index, MPI_STATUS_IGNORE)));
        CHECK(is_refused(MPI_Testsome(3, list, &count, indices, MPI_STATUSES_IGNORE)));
        CHECK(list[0] == requests[0] && list[1] == requests[1] && list[2] == requests[0]);
    }
    for (int i = 0; i < 2; i++) MPI_Send(&sent, 1, MPI_INT, next, i, comm);
    CHECK(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS && got[0] == before && got[1] == before);
    /* Requests that were complete at the start may share one handle. */
    MPI_Request done[3];
    MPI_Status statuses[3];
    for (int i = 0; i < 2; i++) MPI_Isend(&sent, 1, MPI_INT, MPI_PROC_NULL, 0, comm, &done[i]);
    MPI_Irecv(got, 1, MPI_INT, MPI_PROC_NULL, 0, comm, &done[2]);
    CHECK(MPI_Cancel(&done[0]) == MPI_SUCCESS && is_refused(MPI_Start(&done[0])));
    CHECK(MPI_Request_get_status(done[2], &flag, statuses) == MPI_SUCCESS && flag);
    CHECK(statuses[0].MPI_SOURCE == MPI_PROC_NULL && statuses[0].MPI_TAG == MPI_ANY_TAG);
    CHECK(MPI_Waitall(3, done, statuses) == MPI_SUCCESS && done[0] == MPI_REQUEST_NULL && done[2] == MPI_REQUEST_NULL);
    CHECK(statuses[0].MPI_SOURCE == MPI_ANY_SOURCE && statuses[2].MPI_SOURCE == MPI_PROC_NULL);
    MPI_Isend(&sent, 1, MPI_INT, MPI_PROC_NULL, 0, comm, done);
    CHECK(MPI_Request_free(done) == MPI_SUCCESS && done[0] == MPI_REQUEST_NULL);
}

/* One of a list: its expected content, and whether it is to be started again. */
typedef struct {
    int got[3], sent, sum, is_receive, is_sum;
} Part;

/* A round of a list of requests of all kinds, the same on all ranks. */
static void mixed(MPI_Comm *in, unsigned *seed) {
    static _Thread_local Part parts[MOST];
    MPI_Request requests[MOST], kept[MOST];
    MPI_Status status;
    int count = 5 + rand_r(seed) % (MOST - 5), left = 0, keeps = 0;
    for (int i = 0; i < count; i++) {
        Part *part = &parts[i];
        MPI_Comm comm = in[rand_r(seed) % COMMS];
        *part = (Part){{-1, -1, -1}, rank * MOST + i, -1, 0, 0};
        requests[i] = MPI_REQUEST_NULL;
        switch (rand_r(seed) % 9) {
        case 0:
        case 1: {
            MPI_Irecv(part->got, 1, MPI_INT, before, i, comm, &requests[i]);
            part->is_receive = 1;
            MPI_Send(&part->sent, 1, MPI_INT, next, i, comm);
            break;
        }
        case 2:
            MPI_Isend(&part->sent, 1, MPI_INT, next, i, comm, &requests[i]);
            MPI_Recv(part->got, 1, MPI_INT, before, i, comm, MPI_STATUS_IGNORE);
            break;
        case 3:
            MPI_Issend(&part->sent, 1, MPI_INT, next, i, comm, &requests[i]);
            MPI_Recv(part->got, 1, MPI_INT, before, i, comm, MPI_STATUS_IGNORE);
            break;
        case 4:
            MPI_Isendrecv(&part->sent, 1, MPI_INT, next, i, part->got, 1, MPI_INT, before, i, comm, &requests[i]);
            part->is_receive = 1;
            break;
        case 5:
            MPI_Iallreduce(&part->sent, &part->sum, 1, MPI_INT, MPI_SUM, comm, &requests[i]);
            part->is_sum = 1;
            break;
        case 6:
            MPI_Recv_init(part->got, 1, MPI_INT, before, i, comm, &requests[i]);
            part->is_receive = 1;
            MPI_Start(&requests[i]);
            MPI_Send(&part->sent, 1, MPI_INT, next, i, comm);
            kept[keeps++] = requests[i];
            break;
        case 7:
            MPI_Irecv(part->got, 1, MPI_INT, MPI_PROC_NULL, i, comm, &requests[i]);
            break;
        case 8:
            MPI_Isend(&part->sent, 1, MPI_INT, MPI_PROC_NULL, i, comm, &requests[i]);
            break;
        }
        left += requests[i] != MPI_REQUEST_NULL;
    }
    int how = rand_r(seed) % 6, indices[MOST], ended, index, flag = 0;
    if (how == 0) CHECK(MPI_Waitall(count, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    else if (how == 1)
        while (!flag) CHECK(MPI_Testall(count, requests, &flag, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    else if (how == 2)
        for (int i = 0; i < count; i++) CHECK(MPI_Wait(&requests[count - 1 - i], MPI_STATUS_IGNORE) == MPI_SUCCESS);
    else
        while (left > 0) {
            ended = 1;
            if (how == 3) CHECK(MPI_Waitany(count, requests, &index, &status) == MPI_SUCCESS && index != MPI_UNDEFINED);
            if (how == 4) CHECK(MPI_Waitsome(count, requests, &ended, indices, MPI_STATUSES_IGNORE) == MPI_SUCCESS && ended > 0);
            if (how == 5) CHECK(MPI_Testsome(count, requests, &ended, indices, MPI_STATUSES_IGNORE) == MPI_SUCCESS && ended >= 0);
            left -= ended;
        }
    for (int i = 0; i < keeps; i++) CHECK(MPI_Request_free(&kept[i]) == MPI_SUCCESS);
    for (int i = 0; i < count; i++) {
        if (parts[i].is_receive) CHECK(parts[i].got[0] == before * MOST + i && parts[i].got[1] == -1);
        if (parts[i].is_sum) CHECK(parts[i].sum == MOST * size * (size - 1) / 2 + size * i);
    }
}

/* More requests than a few at once: handles are reused in another order. */
static void many(MPI_Comm comm) {
    static MPI_Request requests[MANY];
    static int got[MANY];
    for (int round = 0; round < 2; round++) {
        for (int i = 0; i < MANY; i++) MPI_Irecv(&got[i], 1, MPI_INT, before, i % 7, comm, &requests[i]);
        for (int i = 1; i < MANY; i++) CHECK(requests[i] != requests[i - 1]);
        for (int i = 0; i < MANY; i++) MPI_Send(&i, 1, MPI_INT, next, i % 7, comm);
        for (int i = 0; i < MANY; i += 2) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
        CHECK(MPI_Waitall(MANY, requests, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
        for (int i = 0; i < MANY; i++) CHECK(got[i] == i);
    }
}

static void *beside(void *argument) {
    MPI_Comm *in = argument;
    unsigned seed = 77;
    for (int round = 0; round < ROUNDS / 8; round++) mixed(in, &seed);
    return NULL;
}

static void by_threads(void) {
    static MPI_Comm in[THREADS][COMMS];
    pthread_t threads[THREADS];
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < COMMS; j++) MPI_Comm_dup(MPI_COMM_WORLD, &in[i][j]);
    for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, beside, in[i]);
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < THREADS; i++)
        for (int j = 0; j < COMMS; j++) MPI_Comm_free(&in[i][j]);
}

int main(int argc, char **argv) {
    int level, all;
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < COMMS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (int i = 0; i < COMMS; i++) names(comms[i]), twice(comms[i]);
    for (int round = 0; round < ROUNDS; round++) mixed(comms, &seed);
    many(comms[0]), many(comms[1]);
    if (level == MPI_THREAD_MULTIPLE) by_threads();
    for (int i = 0; i < COMMS; i++) MPI_Comm_free(&comms[i]);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("requests, seed %s, on %d ranks: %d failures\n", argc > 1 ? argv[1] : "1", size, all);
    MPI_Finalize();
    return all != 0;
}
