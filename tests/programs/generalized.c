/* Generalized requests (MPI-5.0 section 13.2): which functions are called, when, and what the calls return; lists of
   requests of several kinds; threads that complete requests while others wait for them. Usage: generalized [SEED] */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { LONG = 100, THREADS = 3, ROUNDS = 40, AT_ONCE = 70 };

typedef struct {
    MPI_Request request;
    int elements, is_cancelled, queries, frees, cancels, complete_at_cancel, query_code, free_code, cancel_code;
} work;

static int query(void *state, MPI_Status *status) {
    work *of = state;
    int flag;
    CHECK(of->frees == 0);
    of->queries++;
    /* Any function of MPI may be called. */
    MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_SELF, &flag, MPI_STATUS_IGNORE);
    status->MPI_SOURCE = -7;
    status->MPI_TAG = of->elements;
    MPI_Status_set_elements(status, MPI_INT, of->elements);
    MPI_Status_set_cancelled(status, of->is_cancelled);
    return of->query_code;
}

static int release(void *state) {
    work *of = state;
    int sent = of->elements, got = -1;
    of->frees++;
    MPI_Sendrecv(&sent, 1, MPI_INT, 0, 200 + sent, &got, 1, MPI_INT, 0, 200 + sent, MPI_COMM_SELF, MPI_STATUS_IGNORE);
    CHECK(got == sent);
    return of->free_code;
}

static int cancel(void *state, int complete) {
    work *of = state;
    of->cancels++;
    of->complete_at_cancel = complete;
    of->is_cancelled = 1;
    return of->cancel_code;
}

static MPI_Request start(work *of, int elements) {
    memset(of, 0, sizeof *of);
    of->elements = elements;
    CHECK(MPI_Grequest_start(query, release, cancel, of, &of->request) == MPI_SUCCESS);
    CHECK(of->request != MPI_REQUEST_NULL);
    return of->request;
}

static int is_of(const MPI_Status *status, const work *of) {
    int count, cancelled;
    MPI_Get_count(status, MPI_INT, &count);
    MPI_Test_cancelled(status, &cancelled);
    return status->MPI_SOURCE == -7 && status->MPI_TAG == of->elements && count == of->elements && cancelled == of->is_cancelled;
}

static int class_of(int code) {
    int class;
    MPI_Error_class(code, &class);
    return class;
}

static void one(void) {
    work of;
    MPI_Status status;
    MPI_Request request = start(&of, 3);
    int flag = 1;
    CHECK(MPI_Test(&request, &flag, &status) == MPI_SUCCESS && !flag && request != MPI_REQUEST_NULL);
    CHECK(MPI_Request_get_status(request, &flag, &status) == MPI_SUCCESS && !flag);
    CHECK(of.queries == 0);
    CHECK(MPI_Grequest_complete(request) == MPI_SUCCESS);
    CHECK(of.queries == 0 && of.frees == 0);
    status.MPI_ERROR = 77;
    for (int i = 1; i < 4; i++) {
        CHECK(MPI_Request_get_status(request, &flag, &status) == MPI_SUCCESS && flag);
        CHECK(is_of(&status, &of) && of.queries == i && of.frees == 0);
    }
    CHECK(MPI_Request_get_status(request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag && of.queries == 4);
    CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS && request == MPI_REQUEST_NULL);
    CHECK(is_of(&status, &of) && of.queries == 5 && of.frees == 1 && status.MPI_ERROR == 77);
    /* The status may be ignored. */
    request = start(&of, 4);
    MPI_Grequest_complete(request);
    CHECK(MPI_Test(&request, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag && request == MPI_REQUEST_NULL);
    CHECK(of.queries == 1 && of.frees == 1);
}

static void freed(void) {
    work of;
    MPI_Request request = start(&of, 1), copy = request;
    CHECK(MPI_Request_free(&request) == MPI_SUCCESS && request == MPI_REQUEST_NULL && of.frees == 0);
    /* It only serves to complete the request. */
    request = copy;
    CHECK(class_of(MPI_Request_free(&request)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Cancel(&request)) == MPI_ERR_REQUEST);
    CHECK(class_of(MPI_Wait(&request, MPI_STATUS_IGNORE)) == MPI_ERR_REQUEST);
    CHECK(MPI_Grequest_complete(copy) == MPI_SUCCESS && of.frees == 1 && of.queries == 0);
    CHECK(class_of(MPI_Grequest_complete(copy)) == MPI_ERR_REQUEST && of.frees == 1);
    request = start(&of, 1);
    MPI_Grequest_complete(request);
    CHECK(MPI_Request_free(&request) == MPI_SUCCESS && request == MPI_REQUEST_NULL && of.frees == 1 && of.queries == 0);
    /* The codes of the functions are those of the calls that call them. */
    request = copy = start(&of, 1);
    of.free_code = MPI_ERR_NO_SPACE;
    MPI_Request_free(&request);
    CHECK(MPI_Grequest_complete(copy) == MPI_ERR_NO_SPACE && of.frees == 1);
    request = start(&of, 1);
    of.free_code = MPI_ERR_NO_SPACE;
    MPI_Grequest_complete(request);
    CHECK(MPI_Request_free(&request) == MPI_ERR_NO_SPACE && request == MPI_REQUEST_NULL && of.frees == 1);
}

static void cancelled(void) {
    work of;
    MPI_Status status;
    MPI_Request request = start(&of, 2);
    CHECK(MPI_Cancel(&request) == MPI_SUCCESS && of.cancels == 1 && of.complete_at_cancel == 0);
    MPI_Grequest_complete(request);
    of.cancel_code = MPI_ERR_QUOTA;
    CHECK(MPI_Cancel(&request) == MPI_ERR_QUOTA && of.cancels == 2 && of.complete_at_cancel != 0);
    CHECK(MPI_Wait(&request, &status) == MPI_SUCCESS && is_of(&status, &of) && of.is_cancelled);
}

static void wrong(void) {
    work of;
    int number;
    MPI_Request request;
    CHECK(class_of(MPI_Grequest_start(NULL, release, cancel, &of, &request)) == MPI_ERR_ARG && request == MPI_REQUEST_NULL);
    CHECK(class_of(MPI_Grequest_start(query, NULL, cancel, &of, &request)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Grequest_start(query, release, NULL, &of, &request)) == MPI_ERR_ARG);
    CHECK(class_of(MPI_Grequest_complete(MPI_REQUEST_NULL)) == MPI_ERR_REQUEST);
    MPI_Irecv(&number, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &request);
    CHECK(class_of(MPI_Grequest_complete(request)) == MPI_ERR_REQUEST);
    MPI_Cancel(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Recv_init(&number, 1, MPI_INT, 0, 5, MPI_COMM_SELF, &request);
    CHECK(class_of(MPI_Grequest_complete(request)) == MPI_ERR_REQUEST);
    MPI_Request_free(&request);
    request = start(&of, 1);
    CHECK(class_of(MPI_Start(&request)) == MPI_ERR_REQUEST);
    MPI_Request twice[2] = {request, request};
    CHECK(class_of(MPI_Waitall(2, twice, MPI_STATUSES_IGNORE)) == MPI_ERR_REQUEST);
    MPI_Grequest_complete(request);
    CHECK(class_of(MPI_Grequest_complete(request)) == MPI_ERR_REQUEST);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(of.frees == 1);
}

static void codes(void) {
    work of[3];
    MPI_Request requests[3];
    MPI_Status statuses[3], status;
    int flag, index;
    /* The last function that fails decides. */
    requests[0] = start(&of[0], 1);
    of[0].query_code = MPI_ERR_IO, of[0].free_code = MPI_ERR_QUOTA;
    MPI_Grequest_complete(requests[0]);
    CHECK(MPI_Request_get_status(requests[0], &flag, &status) == MPI_ERR_IO && flag);
    CHECK(MPI_Wait(&requests[0], &status) == MPI_ERR_QUOTA && requests[0] == MPI_REQUEST_NULL && is_of(&status, &of[0]));
    requests[0] = start(&of[0], 1);
    of[0].query_code = MPI_ERR_IO;
    MPI_Grequest_complete(requests[0]);
    CHECK(MPI_Test(&requests[0], &flag, &status) == MPI_ERR_IO && flag && of[0].frees == 1 && is_of(&status, &of[0]));
    requests[0] = start(&of[0], 1);
    of[0].free_code = MPI_ERR_QUOTA;
    MPI_Grequest_complete(requests[0]);
    CHECK(MPI_Waitany(1, requests, &index, &status) == MPI_ERR_QUOTA && index == 0 && requests[0] == MPI_REQUEST_NULL);
    for (int ignored = 0; ignored < 2; ignored++)
        for (int call = 0; call < 3; call++) {
            int code, count, indices[3];
            MPI_Status *into = ignored ? MPI_STATUSES_IGNORE : statuses;
            for (int i = 0; i < 3; i++) {
                requests[i] = start(&of[i], i);
                statuses[i].MPI_ERROR = 77;
                MPI_Grequest_complete(requests[i]);
            }
            of[1].free_code = MPI_ERR_QUOTA;
            switch (call) {
            case 0: code = MPI_Waitall(3, requests, into); break;
            case 1: code = MPI_Testall(3, requests, &flag, into); break;
            default: code = MPI_Waitsome(3, requests, &count, indices, into); CHECK(count == 3);
            }
            CHECK(code == MPI_ERR_IN_STATUS);
            for (int i = 0; i < 3; i++) {
                CHECK(requests[i] == MPI_REQUEST_NULL && of[i].queries == 1 && of[i].frees == 1);
                if (!ignored) CHECK(statuses[i].MPI_ERROR == (i == 1 ? MPI_ERR_QUOTA : MPI_SUCCESS) && is_of(&statuses[i], &of[i]));
            }
        }
}

/* A list with requests of other kinds among generalized ones. */
static void mixed(int count) {
    static work of[LONG];
    static MPI_Request requests[LONG], kept[LONG];
    static MPI_Status statuses[LONG];
    static int indices[LONG], got[LONG];
    for (int call = 0; call < 6; call++) {
        int left = count, flag = 0, found = 0, sent = 41;
        for (int i = 0; i < count; i++) {
            if (i % 3 == 0) requests[i] = start(&of[i], i);
            else if (i % 3 == 1) MPI_Irecv(&got[i], 1, MPI_INT, 0, i, MPI_COMM_SELF, &requests[i]);
            else
                MPI_Ibarrier(MPI_COMM_SELF, &requests[i]);
        }
        memcpy(kept, requests, sizeof kept);
        CHECK(MPI_Testall(count, requests, &flag, statuses) == MPI_SUCCESS && !flag);
        for (int i = 0; i < count; i++) {
            if (call == 3 || call == 4) {
                /* One after the other. */
                while (i % 3 == 2 && i + 1 < count) i++;
            }
            if (i % 3 == 0) MPI_Grequest_complete(kept[i]);
            if (i % 3 == 1) MPI_Send(&sent, 1, MPI_INT, 0, i, MPI_COMM_SELF);
            if (call != 3 && call != 4) continue;
            for (found = 0; requests[i] != MPI_REQUEST_NULL; left -= found) {
                if (call == 3) {
                    MPI_Waitany(count, requests, &indices[0], &statuses[0]);
                    found = 1;
                } else
                    MPI_Testsome(count, requests, &found, indices, statuses);
                for (int f = 0; f < found; f++) CHECK(indices[f] % 3 || is_of(&statuses[f], &of[indices[f]]));
            }
        }
        if (call == 0) MPI_Waitall(count, requests, statuses);
        if (call == 1) MPI_Waitall(count, requests, MPI_STATUSES_IGNORE);
        if (call == 2)
            for (flag = 0; !flag;) MPI_Testall(count, requests, &flag, statuses);
        for (; call >= 3 && left > 0; left -= found) {
            found = 1;
            if (call == 5) MPI_Waitsome(count, requests, &found, indices, MPI_STATUSES_IGNORE);
            else
                for (flag = 0; !flag;) MPI_Testany(count, requests, &indices[0], &flag, &statuses[0]);
        }
        for (int i = 0; i < count; i++) {
            CHECK(requests[i] == MPI_REQUEST_NULL);
            if (i % 3 == 0) CHECK(of[i].queries == 1 && of[i].frees == 1);
            CHECK(i % 3 != 1 || got[i] == 41);
            got[i] = 0;
            if (call == 0 && i % 3 == 0) CHECK(is_of(&statuses[i], &of[i]));
        }
    }
}

static void peeked(void) {
    work of[3];
    MPI_Request requests[3];
    MPI_Status statuses[3];
    int flag, index, count, indices[3];
    for (int i = 0; i < 3; i++) requests[i] = start(&of[i], i + 1);
    MPI_Grequest_complete(requests[1]);
    MPI_Request_get_status_any(3, requests, &index, &flag, statuses);
    CHECK(flag && index == 1 && is_of(statuses, &of[1]));
    MPI_Request_get_status_some(3, requests, &count, indices, statuses);
    CHECK(count == 1 && indices[0] == 1 && is_of(statuses, &of[1]));
    MPI_Request_get_status_all(3, requests, &flag, statuses);
    CHECK(!flag);
    MPI_Grequest_complete(requests[0]);
    MPI_Grequest_complete(requests[2]);
    MPI_Request_get_status_all(3, requests, &flag, statuses);
    CHECK(flag);
    for (int i = 0; i < 3; i++) CHECK(is_of(&statuses[i], &of[i]) && of[i].frees == 0);
    MPI_Waitall(3, requests, MPI_STATUSES_IGNORE);
}

/* Threads: each waits for requests that the next completes. */
static work works[THREADS][AT_ONCE];
static pthread_barrier_t between;
static unsigned seed;

static void *complete_later(void *argument) {
    int number = *(int *)argument;
    unsigned random = seed + number;
    for (int round = 0; round < ROUNDS; round++) {
        pthread_barrier_wait(&between);
        for (int i = 0; i < AT_ONCE; i++) {
            if (rand_r(&random) % 16 == 0) usleep(rand_r(&random) % 3000);
            CHECK(MPI_Grequest_complete(works[number][(i + round) % AT_ONCE].request) == MPI_SUCCESS);
        }
        pthread_barrier_wait(&between);
    }
    return NULL;
}

static void *wait_for(void *argument) {
    int number = *(int *)argument;
    MPI_Request requests[AT_ONCE];
    MPI_Status statuses[AT_ONCE];
    int indices[AT_ONCE];
    for (int round = 0; round < ROUNDS; round++) {
        work *own = works[number];
        for (int i = 0; i < AT_ONCE; i++) requests[i] = start(&own[i], i);
        pthread_barrier_wait(&between);
        /* Few are a short list, many are watched. */
        int count = round % 2 ? AT_ONCE : 5, found = 1;
        for (int left = count; round % 5 && left > 0; left -= found) {
            if (round % 5 == 1) MPI_Waitany(count, requests, indices, statuses);
            else if (round % 5 == 2)
                MPI_Waitsome(count, requests, &found, indices, statuses);
            else if (round % 5 == 3)
                MPI_Wait(&requests[indices[0] = left - 1], statuses);
            else
                MPI_Testsome(count, requests, &found, indices, statuses);
            for (int f = 0; f < found; f++) CHECK(is_of(&statuses[f], &own[indices[f]]));
        }
        MPI_Waitall(AT_ONCE, requests, statuses);
        for (int i = 0; i < AT_ONCE; i++) CHECK(requests[i] == MPI_REQUEST_NULL && own[i].queries == 1 && own[i].frees == 1);
        pthread_barrier_wait(&between);
    }
    return NULL;
}

static void threads(void) {
    pthread_t ids[2 * THREADS];
    int numbers[THREADS];
    pthread_barrier_init(&between, NULL, 2 * THREADS);
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&ids[2 * i], NULL, wait_for, &numbers[i]);
        pthread_create(&ids[2 * i + 1], NULL, complete_later, &numbers[i]);
    }
    for (int i = 0; i < 2 * THREADS; i++) pthread_join(ids[i], NULL);
}

int main(int argc, char **argv) {
    int provided;
    seed = argc > 1 ? atoi(argv[1]) : 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    one();
    freed();
    cancelled();
    wrong();
    codes();
    for (int count = 1; count <= 7; count += 3) mixed(count);
    mixed(LONG);
    peeked();
    threads();
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("generalized requests: %s\n", failures ? "wrong" : "ok");
    MPI_Finalize();
    return failures != 0;
}
