/* Joins the job and leaves it, again and again: rounds of the native interface with two threads, and among them MPI. What
   belonged to an earlier round is refused, and nothing stays behind. The argument is the number of rounds, 20 if absent. */
#include <dirent.h>
#include <mad.h>
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "check.h"

#define DO(call) do { int code_ = (call); if (code_) { printf("rank %d, line %d: %s\n", rank, __LINE__, mad_last_error()); exit(1); } } while (0)

enum { THREADS = 2, MESSAGES = 30, LONG = 300000 };

static int size;
static mad_channel_t channels[THREADS];

/* Sends to the next rank and receives from the one before, on a channel of the thread's own. */
static void *exchange(void *number) {
    int thread = *(int *)number, next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char *sent = malloc(LONG), *received = malloc(LONG);
    for (int i = 0; i < MESSAGES; i++) {
        mad_connection_t c;
        int len = i % 10 == 9 ? LONG : 10 + i, word = 0;
        memset(sent, rank + thread + i, len);
        DO(mad_begin_packing(channels[thread], next, &c));
        DO(mad_pack(c, &len, sizeof len, mad_send_SAFER, mad_receive_EXPRESS, MAD_NEXT_UNKNOWN));
        DO(mad_pack(c, sent, len, mad_send_CHEAPER, mad_receive_CHEAPER, MAD_NEXT_UNKNOWN));
        mad_connection_t d;
        DO(mad_begin_unpacking_from(channels[thread], previous, &d));
        DO(mad_unpack(d, &word, sizeof word, mad_send_SAFER, mad_receive_EXPRESS, MAD_NEXT_UNKNOWN));
        CHECK(word == len);
        DO(mad_unpack(d, received, len, mad_send_CHEAPER, mad_receive_CHEAPER, MAD_NEXT_UNKNOWN));
        DO(mad_end_packing(c));
        DO(mad_end_unpacking(d));
        CHECK(received[0] == (char)(previous + thread + i) && received[len - 1] == received[0]);
    }
    free(sent);
    free(received);
    return NULL;
}

static void native(int round) {
    mad_channel_t before[THREADS];
    mad_connection_t c;
    memcpy(before, channels, sizeof before);
    DO(mad_init());
    int now_rank, now_size;
    DO(mad_rank(&now_rank));
    DO(mad_size(&now_size));
    CHECK(round == 0 || (now_rank == rank && now_size == size));
    rank = now_rank, size = now_size;
    for (int i = 0; i < THREADS; i++) DO(mad_channel_open(i, &channels[i]));
    for (int i = 0; i < THREADS && round > 0; i++) {
        CHECK(mad_begin_packing(before[i], rank, &c) == MAD_ERR_HANDLE);
        CHECK(mad_channel_close(before[i]) == MAD_ERR_HANDLE);
    }
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, exchange, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
    DO(mad_finalize());
    CHECK(mad_channel_open(0, &before[0]) == MAD_ERR_STATE);
}

static void with_mpi(void) {
    int provided, sum = 0, all;
    MPI_Init_thread(NULL, NULL, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_size(MPI_COMM_WORLD, &all);
    CHECK(all == size);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == size * (size - 1) / 2);
    MPI_Comm copy;
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    MPI_Barrier(copy);
    MPI_Comm_free(&copy);
    /* The program does not free these. */
    MPI_Comm left;
    MPI_Request request;
    MPI_Win window;
    void *memory;
    MPI_Comm_dup(MPI_COMM_WORLD, &left);
    MPI_Recv_init(&sum, 1, MPI_INT, 0, 0, left, &request);
    MPI_Win_allocate(1000, 1, MPI_INFO_NULL, left, &memory, &window);
    MPI_Finalize();
    int finalized;
    MPI_Finalized(&finalized);
    CHECK(finalized);
}

static int entries(const char *path) {
    int count = 0;
    DIR *directory = opendir(path);
    while (readdir(directory)) count++;
    closedir(directory);
    return count;
}

/* Threads that were joined are listed for another moment, and idle pollers leave when they next get a core. */
static int threads_at_most(int most) {
    struct timespec moment = {0, 5000000};
    for (int i = 0; i < 4000 && entries("/proc/self/task") > most; i++) nanosleep(&moment, NULL);
    return entries("/proc/self/task");
}

int main(int argc, char **argv) {
    int rounds = argc > 1 ? atoi(argv[1]) : 20, files = 0;
    /* One thread answers a launcher that asks for reports, until the process ends. */
    int threads = entries("/proc/self/task") + (getenv("CANELE_REPORT_SOCKET") != NULL);
    for (int round = 0; round < rounds; round++) {
        native(round);
        if (round == rounds / 2) with_mpi();
        if (round == rounds / 2 + 1) threads_at_most(threads), files = entries("/proc/self/fd");
    }
    CHECK(threads_at_most(threads) <= threads);
    CHECK(entries("/proc/self/fd") <= files);
    if (rank == 0 && !failures) puts("joined and left");
    return failures != 0;
}
