/* Everything at once between the same processes: two communicators, collectives and the native interface, each in a
   thread of its own. All their sends to a peer share one send queue. Each keeps its own order. Runs in a ring. */
#include <mad.h>
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { ROUNDS = 60, BATCH = 24, LONGEST = 200000 };

static int size, before, after;
static MPI_Comm comms[3];
static const int lengths[] = {0, 8, 700, 3000, 20000, 8, LONGEST, 64};

static int length_of(int number) { return lengths[number % 8]; }
static char byte_of(int from, int number) { return (char)(from * 31 + number * 7 + 1); }

static void fill(char *bytes, int from, int number) {
    memset(bytes, byte_of(from, number), length_of(number));
}
static int is_filled(const char *bytes, int from, int number) {
    int length = length_of(number);
    return length == 0 || (bytes[0] == byte_of(from, number) && !memcmp(bytes, bytes + 1, length - 1));
}

/* Many messages in flight. Receives name any tag, and in one communicator any source. They match in sending order. */
static void *messages(void *which) {
    MPI_Comm comm = *(MPI_Comm *)which;
    int source = comm == comms[0] ? MPI_ANY_SOURCE : before;
    char *out = malloc(BATCH * LONGEST), *in = malloc(BATCH * LONGEST);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Request requests[2 * BATCH];
        MPI_Status statuses[2 * BATCH];
        for (int i = 0; i < BATCH; i++) {
            int number = round * BATCH + i;
            MPI_Irecv(in + i * LONGEST, LONGEST, MPI_CHAR, source, MPI_ANY_TAG, comm, &requests[i]);
            fill(out + i * LONGEST, rank, number);
            MPI_Isend(out + i * LONGEST, length_of(number), MPI_CHAR, after, number, comm, &requests[BATCH + i]);
        }
        MPI_Waitall(2 * BATCH, requests, statuses);
        for (int i = 0; i < BATCH; i++) {
            int number = round * BATCH + i, count;
            MPI_Get_count(&statuses[i], MPI_CHAR, &count);
            CHECK(statuses[i].MPI_SOURCE == before && statuses[i].MPI_TAG == number && count == length_of(number));
            CHECK(is_filled(in + i * LONGEST, before, number));
        }
    }
    free(out);
    free(in);
    return NULL;
}

static void *collectives(void *unused) {
    static double parts[4096], sums[4096];
    int *all = malloc(size * sizeof *all);
    for (int round = 0; round < 2 * ROUNDS; round++) {
        MPI_Request request;
        int own = rank * 1000 + round, count = round % 2 ? 4096 : 1;
        MPI_Iallgather(&own, 1, MPI_INT, all, 1, MPI_INT, comms[2], &request);
        for (int i = 0; i < count; i++) parts[i] = rank + i + round;
        MPI_Allreduce(parts, sums, count, MPI_DOUBLE, MPI_SUM, comms[2]);
        for (int i = 0; i < count; i++) CHECK(sums[i] == size * (size - 1) / 2 + size * (double)(i + round));
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < size; i++) CHECK(all[i] == i * 1000 + round);
    }
    free(all);
    return unused;
}

#define DO(call) CHECK((call) == 0)

/* A packet's length precedes it and is needed at once. The packet itself may come at the end. */
static void *packs(void *channel) {
    char *bytes = malloc(LONGEST);
    for (int number = 0; number < ROUNDS * BATCH / 2; number++) {
        mad_connection_t connection;
        int length = length_of(number);
        fill(bytes, rank, number);
        DO(mad_begin_packing(channel, after, &connection));
        DO(mad_pack(connection, &length, sizeof length, mad_send_SAFER, mad_receive_EXPRESS, MAD_NEXT_UNKNOWN));
        DO(mad_pack(connection, bytes, length, mad_send_CHEAPER, mad_receive_CHEAPER, MAD_NEXT_UNKNOWN));
        DO(mad_end_packing(connection));
    }
    free(bytes);
    return NULL;
}
static void *unpacks(void *channel) {
    char *bytes = malloc(LONGEST);
    for (int number = 0; number < ROUNDS * BATCH / 2; number++) {
        mad_connection_t connection;
        int length = -1;
        DO(mad_begin_unpacking_from(channel, before, &connection));
        DO(mad_unpack(connection, &length, sizeof length, mad_send_SAFER, mad_receive_EXPRESS, MAD_NEXT_UNKNOWN));
        CHECK(length == length_of(number));
        DO(mad_unpack(connection, bytes, length, mad_send_CHEAPER, mad_receive_CHEAPER, MAD_NEXT_UNKNOWN));
        DO(mad_end_unpacking(connection));
        CHECK(is_filled(bytes, before, number));
    }
    free(bytes);
    return NULL;
}

int main(int argc, char **argv) {
    int level;
    mad_channel_t channel;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    DO(mad_init());
    DO(mad_channel_open(5, &channel));
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    before = (rank + size - 1) % size;
    after = (rank + 1) % size;
    for (int i = 0; i < 3; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    struct { void *(*run)(void *); void *on; } parts[] = {
        {messages, &comms[0]}, {messages, &comms[1]}, {collectives, NULL}, {packs, channel}, {unpacks, channel},
    };
    pthread_t threads[5];
    for (int i = 0; i < 5; i++) pthread_create(&threads[i], NULL, parts[i].run, parts[i].on);
    for (int i = 0; i < 5; i++) pthread_join(threads[i], NULL);
    DO(mad_channel_close(channel));
    DO(mad_finalize());
    for (int i = 0; i < 3; i++) MPI_Comm_free(&comms[i]);
    MPI_Finalize();
    printf("together on rank %d of %d: %d failures\n", rank, size, failures);
    return failures != 0;
}
