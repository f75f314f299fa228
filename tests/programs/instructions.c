/* Ten thousand short messages in batches, sent in two ways. First, each is sent into an empty send queue and received
   once it has arrived. Second, all are nonblocking and waited for; receives are posted before, and all messages have
   arrived when the receiver begins to wait. As many persistent reductions are made between them and never started. As
   many packets go by the native interface, a batch in a message. As many puts and fetches are made in memory of the node. Usage: instructions FIFO, by which a rank signals
   the other. */
#include <fcntl.h>
#include <mad.h>
#include <mpi.h>
#include <pthread.h>
#include <unistd.h>

enum { BATCHES = 100, MESSAGES = 100 };

static char data[MESSAGES][8];

/* The receiver has all messages once it has the last one's envelope. */
static void one_by_one(int rank) {
    for (int i = 0; rank == 0 && i < MESSAGES; i++)
        MPI_Send(data[i], sizeof data[i], MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        MPI_Ssend(NULL, 0, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    } else {
        MPI_Message last;
        MPI_Mprobe(0, 1, MPI_COMM_WORLD, &last, MPI_STATUS_IGNORE);
        MPI_Mrecv(NULL, 0, MPI_CHAR, &last, MPI_STATUS_IGNORE);
    }
    for (int i = 0; rank == 1 && i < MESSAGES; i++)
        MPI_Recv(data[i], sizeof data[i], MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
}

static int all_at_once(int rank, int fifo) {
    MPI_Request requests[MESSAGES];
    char word = 0;
    for (int i = 0; rank == 1 && i < MESSAGES; i++)
        MPI_Irecv(data[i], sizeof data[i], MPI_CHAR, 0, 0, MPI_COMM_WORLD, &requests[i]);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; rank == 0 && i < MESSAGES; i++)
        MPI_Isend(data[i], sizeof data[i], MPI_CHAR, 1, 0, MPI_COMM_WORLD, &requests[i]);
    if ((rank == 0 ? write(fifo, &word, 1) : read(fifo, &word, 1)) != 1) return 1;
    MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    return 0;
}

/* Work of a rank for a root that comes later and need not be woken. The barrier ensures that the rank never waits. */
static int contribute(int rank, int fifo) {
    double in = 1, out;
    char word = 0;
    for (int i = 0; i < MESSAGES; i++) {
        if (rank == 0 && read(fifo, &word, 1) != 1) return 1;
        MPI_Reduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
        if (rank == 1 && write(fifo, &word, 1) != 1) return 1;
        MPI_Barrier(MPI_COMM_WORLD);
    }
    return 0;
}

/* The message has arrived when it is unpacked. */
static int pack(int rank, mad_channel_t channel) {
    char packet[16] = {0};
    mad_connection_t c = NULL;
    int failed = rank == 0 && mad_begin_packing(channel, 1, &c);
    for (int i = 0; rank == 0 && i < MESSAGES; i++)
        failed |= mad_pack(c, packet, sizeof packet, mad_send_CHEAPER, mad_receive_EXPRESS, MAD_NEXT_UNKNOWN);
    failed |= rank == 0 && mad_end_packing(c);
    MPI_Barrier(MPI_COMM_WORLD);
    failed |= rank == 1 && mad_begin_unpacking_from(channel, 0, &c);
    for (int i = 0; rank == 1 && i < MESSAGES; i++)
        failed |= mad_unpack(c, packet, sizeof packet, mad_send_CHEAPER, mad_receive_EXPRESS, MAD_NEXT_UNKNOWN);
    failed |= rank == 1 && mad_end_unpacking(c);
    MPI_Barrier(MPI_COMM_WORLD);
    return failed;
}

/* The same operations again: their plans are cached. */
static void plan_again(void) {
    double in[] = {1, 2}, out[2];
    MPI_Request requests[MESSAGES];
    for (int i = 0; i < MESSAGES; i++)
        MPI_Allreduce_init(in, out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]);
    for (int i = 0; i < MESSAGES; i++) MPI_Request_free(&requests[i]);
    for (int i = 0; i < MESSAGES; i++)
        MPI_Alltoall_init(in, 1, MPI_DOUBLE, out, 1, MPI_DOUBLE, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]);
    for (int i = 0; i < MESSAGES; i++) MPI_Request_free(&requests[i]);
}

/* Rank 0 puts to memory that it maps, combines, and flushes both. */
static int one_sided(int rank) {
    long *base, one = 1, before = -1, failed;
    MPI_Win window;
    MPI_Win_allocate(2 * sizeof(long), sizeof(long), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
    MPI_Win_lock_all(0, window);
    for (int i = 0; rank == 0 && i < BATCHES * MESSAGES; i++) {
        MPI_Put(&one, 1, MPI_LONG, 1, 0, 1, MPI_LONG, window);
        MPI_Fetch_and_op(&one, &before, MPI_LONG, 1, 1, MPI_SUM, window);
        MPI_Win_flush(1, window);
    }
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
    failed = rank == 0 ? before != BATCHES * MESSAGES - 1 : base[0] != 1 || base[1] != BATCHES * MESSAGES;
    MPI_Win_free(&window);
    return (int)failed;
}

/* The C library's allocator takes its locks once there is a second thread. The library starts one only for long
   waits. This program starts one at the beginning, so the count does not depend on the host's speed. */
static void *another(void *arg) {
    pause();
    return arg;
}

int main(int argc, char **argv) {
    int provided, rank, fifo = open(argc > 1 ? argv[1] : "", O_RDWR);
    pthread_t thread;
    mad_channel_t channel;
    if (pthread_create(&thread, NULL, another, NULL)) return 1;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    for (int batch = 0; batch < BATCHES; batch++) one_by_one(rank);
    for (int batch = 0; batch < BATCHES; batch++) plan_again();
    for (int batch = 0; batch < BATCHES; batch++)
        if (contribute(rank, fifo)) MPI_Abort(MPI_COMM_WORLD, 1);
    if (one_sided(rank)) MPI_Abort(MPI_COMM_WORLD, 1);
    if (mad_init() || mad_channel_open(0, &channel)) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int batch = 0; batch < BATCHES; batch++)
        if (pack(rank, channel)) MPI_Abort(MPI_COMM_WORLD, 1);
    for (int batch = 0; batch < BATCHES; batch++)
        if (all_at_once(rank, fifo)) MPI_Abort(MPI_COMM_WORLD, 1);
    mad_finalize();
    MPI_Finalize();
    return 0;
}
