/* Communicators in several VCIs, used together. Covers calls with requests of all VCIs, unexpected messages while
   their receiver waits for others, buffered sends, probes, derived communicators, and a thread for each. Usage: vcis,
   with CANELE_VCIS for all ranks, two or more of them. */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { COMMS = 9, LONG = 300000, MANY = 2000, ROUNDS = 200 };

static MPI_Comm comms[COMMS];
static int size, next, before;
static int out[COMMS][LONG / COMMS], in[COMMS][LONG / COMMS];

/* Exchanges with both neighbours in a ring, in all communicators, with lengths from zero to long. */
static int begin(MPI_Request *requests, int round) {
    int count = 0;
    for (int i = 0; i < COMMS; i++) {
        int length = (i * 7919 + round * 104729) % (LONG / COMMS);
        for (int j = 0; j < length; j++) out[i][j] = rank * 1000 + i * 100 + round + j;
        memset(in[i], -1, sizeof in[i]);
        MPI_Irecv(in[i], length, MPI_INT, before, i, comms[i], &requests[count++]);
        if (i % 3 == 1) requests[count++] = MPI_REQUEST_NULL;
        MPI_Isend(out[i], length, MPI_INT, next, i, comms[i], &requests[count++]);
    }
    return count;
}

static void check_contents(int round) {
    for (int i = 0; i < COMMS; i++) {
        int length = (i * 7919 + round * 104729) % (LONG / COMMS), wrong = 0;
        for (int j = 0; j < length; j++) wrong += in[i][j] != before * 1000 + i * 100 + round + j;
        CHECK(wrong == 0);
    }
}

static void together(void) {
    MPI_Request requests[3 * COMMS];
    MPI_Status statuses[3 * COMMS];
    int indices[3 * COMMS];
    for (int round = 0; round < 40; round++) {
        int count = begin(requests, round), flag = 0, index, done = 0, left = 2 * COMMS;
        switch (round % 5) {
        case 0:
            MPI_Waitall(count, requests, statuses);
            for (int i = 0, at = 0; i < COMMS; at += 2 + (i % 3 == 1), i++) {
                CHECK(statuses[at].MPI_SOURCE == before && statuses[at].MPI_TAG == i);
                if (i % 3 == 1) CHECK(statuses[at + 1].MPI_SOURCE == MPI_ANY_SOURCE);
            }
            break;
        case 1:
            for (; !flag; MPI_Testall(count, requests, &flag, statuses)) continue;
            break;
        case 2:
            for (; left > 0; left--) {
                MPI_Waitany(count, requests, &index, statuses);
                CHECK(index >= 0 && index < count && requests[index] == MPI_REQUEST_NULL);
            }
            MPI_Waitany(count, requests, &index, statuses);
            CHECK(index == MPI_UNDEFINED);
            break;
        case 3:
            for (; left > 0; left -= done) {
                MPI_Waitsome(count, requests, &done, indices, statuses);
                CHECK(done > 0);
            }
            break;
        default:
            for (; left > 0; left -= done) MPI_Testsome(count, requests, &done, indices, statuses);
        }
        for (int i = 0; i < count; i++) CHECK(requests[i] == MPI_REQUEST_NULL);
        check_contents(round);
    }
}

/* Rank 1 receives the earlier messages only after the last one. They are more than a ring holds, and no more than a
   receiver accepts unexpected. */
static void unasked(MPI_Comm comm, int tests) {
    char bytes[200] = {0};
    MPI_Request request;
    int flag = 0, last = -1;
    if (rank == 0) {
        for (int i = 0; i < MANY; i++) MPI_Send(bytes, sizeof bytes, MPI_CHAR, 1, i % 7, comm);
        MPI_Send(&rank, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    } else if (rank == 1) {
        MPI_Irecv(&last, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &request);
        if (tests)
            for (; !flag; MPI_Test(&request, &flag, MPI_STATUS_IGNORE)) continue;
        else
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        CHECK(last == 0);
        for (int i = 0; i < MANY; i++) MPI_Recv(bytes, sizeof bytes, MPI_CHAR, 0, i % 7, comm, MPI_STATUS_IGNORE);
    }
}

/* The buffer of the process has exactly the room for all sends in all communicators. */
static void buffered(void) {
    enum { BYTES = 1000 };
    int room = COMMS * (BYTES + MPI_BSEND_OVERHEAD), given;
    char *buffer = malloc((size_t)room), *back, bytes[BYTES] = {0};
    MPI_Buffer_attach(buffer, room);
    for (int round = 0; round < 50; round++) {
        MPI_Request request;
        for (int i = 0; i < COMMS; i++) {
            bytes[0] = (char)(round + i);
            MPI_Bsend(bytes, BYTES, MPI_CHAR, next, 5, comms[(i + round) % COMMS]);
        }
        if (round % 3 == 0) MPI_Buffer_iflush(&request);
        for (int i = 0; i < COMMS; i++) {
            MPI_Recv(bytes, BYTES, MPI_CHAR, before, 5, comms[(i + round) % COMMS], MPI_STATUS_IGNORE);
            CHECK(bytes[0] == (char)(round + i));
        }
        if (round % 3 == 0) MPI_Wait(&request, MPI_STATUS_IGNORE);
        if (round % 3 == 1) MPI_Buffer_flush();
        if (round % 3 == 2) MPI_Barrier(MPI_COMM_WORLD);
    }
    MPI_Buffer_detach(&back, &given);
    CHECK(back == buffer && given == room);
    free(buffer);
}

static void rare_calls(void) {
    MPI_Request sends[COMMS], receives[2 * COMMS];
    MPI_Status status;
    int sums[COMMS], ones[COMMS];
    for (int i = 0; i < COMMS; i++) {
        /* Probed and taken out of matching. */
        MPI_Message message;
        int number = -1;
        MPI_Isend(&rank, 1, MPI_INT, next, 3, comms[i], &sends[i]);
        MPI_Mprobe(before, 3, comms[i], &message, &status);
        MPI_Mrecv(&number, 1, MPI_INT, &message, &status);
        CHECK(number == before && status.MPI_TAG == 3);
        /* Cancelled receives, and MPI_Sendrecv to itself. */
        MPI_Irecv(&number, 1, MPI_INT, MPI_ANY_SOURCE, 4, comms[i], &receives[i]);
        MPI_Cancel(&receives[i]);
        MPI_Wait(&receives[i], &status);
        int flag = 0;
        MPI_Test_cancelled(&status, &flag);
        CHECK(flag);
        MPI_Sendrecv(&i, 1, MPI_INT, rank, 6, &number, 1, MPI_INT, rank, 6, comms[i], &status);
        CHECK(number == i);
    }
    MPI_Waitall(COMMS, sends, MPI_STATUSES_IGNORE);
    /* Persistent requests, of which half are started. */
    for (int i = 0; i < COMMS; i++) {
        MPI_Send_init(&rank, 1, MPI_INT, next, 8, comms[i], &receives[2 * i]);
        MPI_Recv_init(&ones[i], 1, MPI_INT, before, 8, comms[i], &receives[2 * i + 1]);
    }
    for (int round = 0; round < 4; round++) {
        for (int i = 0; i < COMMS; i++)
            if ((i + round) % 2) MPI_Startall(2, &receives[2 * i]);
        if (round % 2) MPI_Waitall(2 * COMMS, receives, MPI_STATUSES_IGNORE);
        else
            for (int flag = 0; !flag; MPI_Testall(2 * COMMS, receives, &flag, MPI_STATUSES_IGNORE)) continue;
        for (int i = 0; i < COMMS; i++) CHECK((i + round) % 2 == 0 || ones[i] == before);
        for (int i = 0; i < 2 * COMMS; i++) CHECK(receives[i] != MPI_REQUEST_NULL);
    }
    for (int i = 0; i < 2 * COMMS; i++) MPI_Request_free(&receives[i]);
    /* Collectives in all communicators at once. */
    for (int i = 0; i < COMMS; i++) {
        ones[i] = i + 1;
        MPI_Iallreduce(&ones[i], &sums[i], 1, MPI_INT, MPI_SUM, comms[i], &receives[i]);
    }
    MPI_Waitall(COMMS, receives, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COMMS; i++) CHECK(sums[i] == size * (i + 1));
}

/* Derived communicators, used and freed. Every constructor runs in every VCI. */
static void made(void) {
    for (int round = 0; round < 3 * COMMS; round++) {
        MPI_Comm from = comms[round % COMMS], half, between, all, copy;
        MPI_Request request;
        int ones = 1, sum = 0, mine, half_size;
        MPI_Comm_split(from, rank % 2, -rank, &half);
        MPI_Comm_size(half, &half_size);
        MPI_Allreduce(&ones, &sum, 1, MPI_INT, MPI_SUM, half);
        CHECK(sum == half_size);
        MPI_Intercomm_create(half, 0, from, rank % 2 ? (size - 1) / 2 * 2 : (size - 2) / 2 * 2 + 1, 9, &between);
        MPI_Comm_remote_size(between, &mine);
        CHECK(mine == size - half_size);
        MPI_Allreduce(&ones, &sum, 1, MPI_INT, MPI_SUM, between);
        CHECK(sum == size - half_size);
        MPI_Intercomm_merge(between, rank % 2, &all);
        MPI_Comm_idup(all, &copy, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        for (int i = 0; i < 6; i++) MPI_Allreduce(&ones, &sum, 1, MPI_INT, MPI_SUM, copy);
        CHECK(sum == size);
        MPI_Comm_free(&copy), MPI_Comm_free(&all), MPI_Comm_free(&between), MPI_Comm_free(&half);
    }
}

static void *thread(void *of) {
    int i = (int)((MPI_Comm *)of - comms), number, sum;
    for (int round = 0; round < ROUNDS; round++) {
        int mine = rank * 1000 + round;
        MPI_Sendrecv(&mine, 1, MPI_INT, next, 2, &number, 1, MPI_INT, before, 2, comms[i], MPI_STATUS_IGNORE);
        CHECK(number == before * 1000 + round);
        MPI_Allreduce(&round, &sum, 1, MPI_INT, MPI_SUM, comms[i]);
        CHECK(sum == size * round);
    }
    return NULL;
}

int main(int argc, char **argv) {
    int provided;
    pthread_t threads[COMMS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size, before = (rank + size - 1) % size;
    for (int i = 0; i < COMMS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    together();
    for (int i = 0; i < 2 * COMMS; i++) unasked(comms[i / 2], i % 2);
    buffered();
    rare_calls();
    made();
    for (int i = 0; i < COMMS; i++) pthread_create(&threads[i], NULL, thread, &comms[i]);
    for (int i = 0; i < COMMS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < COMMS; i++) MPI_Comm_free(&comms[i]);
    int all;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("VCIs on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
