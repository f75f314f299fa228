/* Threads that share a window: each operation happens once, and each flush completes those of its thread. Any number of
   ranks.

   windows_threads THREADS ROUNDS */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { THREADS_MAX = 16, LEN = 5000 };

static int size, threads, rounds;
static MPI_Win win;
/* The window: a counter, a sum, and room of LEN ints for each thread of each rank. */
static long *base;
static char *tickets;

static MPI_Aint room(int of_rank, int thread) { return 2 * sizeof(long) + (of_rank * threads + thread) * LEN * sizeof(int); }

static void *work(void *argument) {
    int me = *(int *)argument, data[LEN], got[LEN];
    for (int round = 0; round < rounds; round++) {
        long one = 1, ticket = -1, added = me + round;
        int target = (rank + me + round) % size, len = round % 5 == 0 ? LEN : 1 + round % 100;
        MPI_Request request;
        MPI_Fetch_and_op(&one, &ticket, MPI_LONG, 0, 0, MPI_SUM, win);
        MPI_Win_flush(0, win);
        CHECK(ticket >= 0 && ticket < (long)size * threads * rounds);
        __atomic_add_fetch(&tickets[ticket], 1, __ATOMIC_RELAXED);
        for (int i = 0; i < len; i++) data[i] = (rank * 31 + me) * 1000003 + round * 17 + i;
        MPI_Accumulate(&added, 1, MPI_LONG, target, sizeof(long), 1, MPI_LONG, MPI_SUM, win);
        if (round % 3) MPI_Put(data, len, MPI_INT, target, room(rank, me), len, MPI_INT, win);
        else MPI_Rput(data, len, MPI_INT, target, room(rank, me), len, MPI_INT, win, &request), MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Win_flush(target, win);
        memset(got, 0, sizeof got);
        if (round % 2) MPI_Get(got, len, MPI_INT, target, room(rank, me), len, MPI_INT, win), MPI_Win_flush_local(target, win);
        else MPI_Rget(got, len, MPI_INT, target, room(rank, me), len, MPI_INT, win, &request), MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(!memcmp(data, got, len * sizeof(int)));
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided, numbers[THREADS_MAX];
    pthread_t ids[THREADS_MAX];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    threads = atoi(argv[1]), rounds = atoi(argv[2]);
    long all = (long)size * threads * rounds, sum = 0, expected = 0;
    tickets = calloc(all, 1);
    MPI_Win_allocate(room(size, 0), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    memset(base, 0, room(size, 0));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < threads; i++) numbers[i] = i, pthread_create(&ids[i], NULL, work, &numbers[i]);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) CHECK(base[0] == all);
    /* All ranks together have drawn each ticket once, and added all operands. */
    MPI_Allreduce(MPI_IN_PLACE, tickets, (int)all, MPI_INT8_T, MPI_SUM, MPI_COMM_WORLD);
    for (long i = 0; i < all; i++) CHECK(tickets[i] == 1);
    for (int i = 0; i < threads; i++) expected += (long)size * rounds * i + (long)size * rounds * (rounds - 1) / 2;
    MPI_Allreduce(&base[1], &sum, 1, MPI_LONG, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == expected);
    MPI_Win_free(&win);
    free(tickets);
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d threads of %d ranks share a window: %d failures\n", threads, size, failures);
    MPI_Finalize();
    return failures != 0;
}
