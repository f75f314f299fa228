/* Effects of the system on programs. Usage: disturbed WHAT; WHAT is
   fork: every rank has children while it communicates. One ends at once, one becomes another program, one ends as
     programs do, and one calls MPI, which is refused;
   waiters: 64 threads of rank 0 wait for rank 1 in all ways, half of them cancelled before. Rank 1 ends silently
     behind a shell that stays, so the launcher notices nothing. All threads get the error;
   cancel: a thread is cancelled inside a receive while others communicate. It ends after its receive;
   pending: a thread that was cancelled before makes calls of all kinds, from MPI_Init to MPI_Finalize. It ends after
     them, because no MPI call is a cancellation point;
   abort: such a thread ends the job by MPI_Abort with code 42. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

enum { WAITERS = 64, ROUNDS = 120, LEN = 100000 };

static int size, ended_by_error;

/* Sends checked data around a ring. */
static void exchange(int round) {
    static int out[LEN], in[LEN];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, len = round % 3 ? 10 : LEN, wrong = 0;
    for (int i = 0; i < len; i++) out[i] = rank + round + i;
    MPI_Sendrecv(out, len, MPI_INT, next, 1, in, len, MPI_INT, previous, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int i = 0; i < len; i++) wrong += in[i] != previous + round + i;
    CHECK(wrong == 0);
}

static void at_exit(void) { fflush(NULL); }

static void be_child(int way) {
    int value = 0, flag = 0;
    switch (way) {
        case 0: _exit(0);
        case 1: execlp("true", "true", NULL); _exit(1);
        case 2:
            MPI_Finalized(&flag);
            exit(!flag);
        case 3:
            /* Ends this process and no other. */
            MPI_Send(&value, 1, MPI_INT, (rank + 1) % size, 7, MPI_COMM_WORLD);
            _exit(0);
        default: _exit(0);
    }
}

static void *communicate(void *until) {
    int out = 0, in;
    while (!__atomic_load_n((int *)until, __ATOMIC_ACQUIRE))
        MPI_Sendrecv(&out, 1, MPI_INT, rank, 8, &in, 1, MPI_INT, rank, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

static void fork_at_times(void) {
    pthread_t other;
    int over = 0;
    atexit(at_exit);
    pthread_create(&other, NULL, communicate, &over);
    for (int round = 0; round < ROUNDS; round++) {
        exchange(round);
        if (round % 8) continue;
        int way = round / 8 % 4, status;
        fflush(NULL);
        pid_t child = fork();
        if (child == 0) be_child(way);
        exchange(round);
        waitpid(child, &status, 0);
        CHECK(WIFEXITED(status) && WEXITSTATUS(status) == (way == 3 ? MPI_ERR_OTHER : 0));
    }
    __atomic_store_n(&over, 1, __ATOMIC_RELEASE);
    pthread_join(other, NULL);
}

static void *wait_for_the_dead(void *argument) {
    int number = (int)(size_t)argument, value = 0, code = 0, class, index, flag = 0;
    char *big = calloc(1, 1 << 20);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    MPI_Message message;
    MPI_Comm comm = MPI_COMM_WORLD;
    if (number % 16 >= 8) pthread_cancel(pthread_self());
    switch (number % 8) {
        case 0: code = MPI_Recv(&value, 1, MPI_INT, 1, number, comm, &statuses[0]); break;
        case 1: code = MPI_Probe(1, number, comm, &statuses[0]); break;
        case 2: code = MPI_Ssend(&value, 1, MPI_INT, 1, number, comm); break;
        case 3: code = MPI_Ssend(big, 1 << 20, MPI_CHAR, 1, number, comm); break;
        case 4:
            MPI_Irecv(&value, 1, MPI_INT, 1, number, comm, &requests[0]);
            MPI_Irecv(big, 1, MPI_INT, 0, number, comm, &requests[1]);
            code = MPI_Waitany(2, requests, &index, &statuses[0]);
            MPI_Cancel(&requests[1]);
            MPI_Wait(&requests[1], &statuses[1]);
            break;
        case 5:
            MPI_Irecv(&value, 1, MPI_INT, 1, number, comm, &requests[0]);
            while (code = MPI_Test(&requests[0], &flag, &statuses[0]), code == MPI_SUCCESS && !flag) sched_yield();
            break;
        case 6: code = MPI_Mprobe(1, number, comm, &message, &statuses[0]); break;
        case 7: code = MPI_Sendrecv(&value, 1, MPI_INT, 1, number, big, 1, MPI_INT, 1, number, comm, &statuses[0]); break;
    }
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_PROC_ABORTED);
    __atomic_add_fetch(&ended_by_error, 1, __ATOMIC_RELAXED);
    free(big);
    return NULL;
}

static void wait_in_all_ways(void) {
    pthread_t ids[WAITERS];
    exchange(1);
    if (rank == 1) {
        usleep(300 * 1000);
        _exit(0);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (size_t i = 0; i < WAITERS; i++) pthread_create(&ids[i], NULL, wait_for_the_dead, (void *)i);
    for (int i = 0; i < WAITERS; i++) pthread_join(ids[i], NULL);
    printf("%d threads of %d are told: %d failures\n", ended_by_error, WAITERS, failures);
    fflush(NULL);
    _exit(failures != 0);
}

static void *receive_for_long(void *returned) {
    int value = 0;
    MPI_Recv(&value, 1, MPI_INT, (rank + 1) % size, 99, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    *(volatile int *)returned = value;
    for (;;) pthread_testcancel();
    return NULL;
}

static void cancel_threads(void) {
    for (int round = 0; round < 12; round++) {
        pthread_t other;
        void *result = NULL;
        int value = 42, got = 0;
        pthread_create(&other, NULL, receive_for_long, &got);
        /* The cancellation meets a thread that spins, one that sleeps, and one that waits beside another. */
        for (int i = 0; i < 6; i++) exchange(round + i);
        usleep(round % 2 * 5000);
        pthread_cancel(other);
        usleep(round % 3 * 5000);
        for (int i = 0; i < 6; i++) exchange(round + i);
        MPI_Send(&value, 1, MPI_INT, (rank + size - 1) % size, 99, MPI_COMM_WORLD);
        pthread_join(other, &result);
        CHECK(got == 42);
        CHECK(result == PTHREAD_CANCELED);
    }
}

static void wait_ms(double ms) {
    for (double end = MPI_Wtime() + ms / 1000; MPI_Wtime() < end;) continue;
}

/* Waits beside another thread, and asleep. */
static void *wait_too(void *returned) {
    int value = 0;
    pthread_cancel(pthread_self());
    MPI_Recv(&value, 1, MPI_INT, (rank + size - 1) % size, 31, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    __atomic_store_n((int *)returned, value, __ATOMIC_RELEASE);
    return NULL;
}

static void call_all(void) {
    static int big[2][LEN];
    int value = 7, got = 0, len = 0, next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char text[MPI_MAX_ERROR_STRING];
    pthread_t other;
    MPI_Comm comm;
    MPI_Request requests[2];
    /* First contact, both protocols for long messages, and messages that arrive while nobody calls MPI. */
    for (int round = 0; round < 6; round++) exchange(round);
    MPI_Irecv(big[0], LEN, MPI_INT, previous, 30, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(big[1], LEN, MPI_INT, next, 30, MPI_COMM_WORLD, &requests[1]);
    wait_ms(20);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Iallreduce(&value, &got, 1, MPI_INT, MPI_SUM, comm, &requests[0]);
    MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    CHECK(got == 7 * size);
    /* Two threads wait. The receiver of the message sleeps, or polls for the other. */
    for (int first = 0; first < 2; first++) {
        got = 0;
        pthread_create(&other, NULL, wait_too, &got);
        wait_ms(20);
        for (int turn = 0; turn < 2; turn++) {
            if (turn == first) MPI_Send(&value, 1, MPI_INT, next, 31, MPI_COMM_WORLD);
            else MPI_Barrier(comm);
        }
        /* pthread_join is a cancellation point. */
        while (!__atomic_load_n(&got, __ATOMIC_ACQUIRE)) sched_yield();
        pthread_detach(other);
        wait_ms(rank * 10);
        MPI_Barrier(comm);
    }
    MPI_Comm_free(&comm);
    MPI_Get_processor_name(text, &len);
    MPI_Info_get_valuelen(MPI_INFO_ENV, "host", &len, &got);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    CHECK(MPI_Error_string(code, text, &len) == MPI_SUCCESS);
}

static void *call_cancelled(void *does_abort) {
    int provided;
    pthread_cancel(pthread_self());
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (does_abort) {
        if (rank == 1) MPI_Abort(MPI_COMM_WORLD, 42);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    call_all();
    MPI_Finalize();
    failures--;
    pthread_testcancel();
    return NULL;
}

/* The thread takes back the one failure at its end. */
static int be_cancelled(int does_abort) {
    pthread_t caller;
    void *result = NULL;
    failures = 1;
    pthread_create(&caller, NULL, call_cancelled, does_abort ? &failures : NULL);
    pthread_join(caller, &result);
    CHECK(result == PTHREAD_CANCELED);
    printf("pending: %d failures\n", failures);
    return failures != 0;
}

int main(int argc, char **argv) {
    int provided, total = 0;
    const char *what = argc > 1 ? argv[1] : "";
    alarm(80);
    if (strcmp(what, "pending") == 0 || strcmp(what, "abort") == 0) return be_cancelled(strcmp(what, "abort") == 0);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (strcmp(what, "fork") == 0) fork_at_times();
    else if (strcmp(what, "waiters") == 0) wait_in_all_ways();
    else if (strcmp(what, "cancel") == 0) cancel_threads();
    else return 2;
    MPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%s: %d failures\n", what, total);
    MPI_Finalize();
    return total != 0;
}
