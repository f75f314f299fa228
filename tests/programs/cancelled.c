/* Sends that are cancelled while their receiver is outside the library: waiting for them does not wait for it (MPI-5.0
   section 3.8.4), and MPI_Test_cancelled is true of exactly the messages that it never gets. Usage: cancelled DIRECTORY,
   on two or more ranks. Rank 0 sends to all others, which sleep until DIRECTORY/over exists. */
#include <fcntl.h>
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { SHORT = 16, LONG = 400000, KINDS = 9, MANY = 500, FLAGS = 900, SAME = 901, FIRST = 902 };

static const struct {
    int bytes, is_persistent;
    /* 'S' synchronous, 'B' buffered, 's' standard. */
    char mode;
    /* True if the send cannot have ended without a receive, so that it is cancelled. */
    int is_cancelled;
} kinds[KINDS] = {
    {SHORT, 0, 's', 0}, {LONG, 0, 's', 0}, {SHORT, 0, 'S', 1}, {LONG, 0, 'S', 1}, {SHORT, 0, 'B', 0},
    {SHORT, 1, 's', 0}, {LONG, 1, 's', 0}, {SHORT, 1, 'S', 1}, {LONG, 1, 'S', 1},
};

static char *data[KINDS], attached[4096];
static int size;

static void fill(char *bytes, int count, int tag) {
    for (int i = 0; i < count; i++) bytes[i] = (char)(tag * 7 + i);
}

static int is_filled(const char *bytes, int count, int tag) {
    for (int i = 0; i < count; i++)
        if (bytes[i] != (char)(tag * 7 + i)) return 0;
    return 1;
}

static MPI_Request begin(int kind, int to) {
    MPI_Request request;
    int bytes = kinds[kind].bytes, comes_again = kinds[kind].is_persistent;
    int (*function)(const void *, int, MPI_Datatype, int, int, MPI_Comm, MPI_Request *);
    switch (kinds[kind].mode) {
    case 'S': function = comes_again ? MPI_Ssend_init : MPI_Issend; break;
    case 'B': function = MPI_Ibsend; break;
    default: function = comes_again ? MPI_Send_init : MPI_Isend; break;
    }
    function(data[kind], bytes, MPI_CHAR, to, kind, MPI_COMM_WORLD, &request);
    if (comes_again) MPI_Start(&request);
    return request;
}

static int was_cancelled(MPI_Status *status) {
    int flag = -1;
    MPI_Test_cancelled(status, &flag);
    CHECK(flag == 0 || flag == 1);
    return flag;
}

/* Cancels a send of each kind. Tells the receiver which it will get, and sends persistent ones again. */
static void send_to(int to, int *flags, MPI_Request *requests) {
    MPI_Status statuses[KINDS];
    for (int kind = 0; kind < KINDS; kind++) requests[kind] = begin(kind, to);
    for (int kind = 0; kind < KINDS; kind++) CHECK(MPI_Cancel(&requests[kind]) == MPI_SUCCESS);
    for (int kind = 0; kind < KINDS; kind++) {
        int is_over = 0;
        if (kind % 2) MPI_Wait(&requests[kind], &statuses[kind]);
        else
            while (!is_over) MPI_Test(&requests[kind], &is_over, &statuses[kind]);
        flags[kind] = was_cancelled(&statuses[kind]);
        CHECK(flags[kind] || !kinds[kind].is_cancelled);
    }
}

/* Many sends with one tag, of which every third stays, and is awaited later. */
static int send_many(int to, MPI_Request *left) {
    static MPI_Request requests[MANY];
    static MPI_Status statuses[MANY];
    static int numbers[MANY];
    int count = 0;
    for (int i = 0; i < MANY; i++) {
        numbers[i] = i;
        MPI_Issend(&numbers[i], 1, MPI_INT, to, SAME, MPI_COMM_WORLD, &requests[i]);
    }
    for (int i = 0; i < MANY; i++) {
        if (i % 3 == 0) left[count++] = requests[i], requests[i] = MPI_REQUEST_NULL;
        else
            MPI_Cancel(&requests[i]);
    }
    MPI_Waitall(MANY, requests, statuses);
    for (int i = 0; i < MANY; i++) CHECK(i % 3 == 0 || was_cancelled(&statuses[i]));
    return count;
}

static void receive_from_0(void) {
    static char into[LONG];
    int flags[KINDS], found, number;
    MPI_Status status;
    MPI_Recv(flags, KINDS, MPI_INT, 0, FLAGS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    for (int kind = 0; kind < KINDS; kind++) {
        MPI_Iprobe(0, kind, MPI_COMM_WORLD, &found, &status);
        CHECK(!found || !flags[kind]);
        if (flags[kind]) continue;
        MPI_Recv(into, LONG, MPI_CHAR, 0, kind, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &found);
        CHECK(found == kinds[kind].bytes && is_filled(into, found, kind));
    }
    for (int i = 0; i < MANY; i += 3) {
        MPI_Recv(&number, 1, MPI_INT, 0, SAME, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(number == i);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* Persistent sends, once more. */
    for (int kind = 0; kind < KINDS; kind++)
        if (kinds[kind].is_persistent) {
            memset(into, 0, LONG);
            MPI_Recv(into, LONG, MPI_CHAR, 0, kind, MPI_COMM_WORLD, &status);
            CHECK(is_filled(into, kinds[kind].bytes, kind));
        }
    MPI_Iprobe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &found, &status);
    CHECK(!found);
}

/* A message whose receive was posted is received, and its cancelled send ends as usual, unless it had not left. */
static void match_first(MPI_Request *receive, int *first) {
    int flag = -1;
    MPI_Status status;
    if (rank == 0) {
        for (int to = 1; to < size; to++) {
            MPI_Request request;
            MPI_Issend(first, 1, MPI_INT, to, FIRST, MPI_COMM_WORLD, &request);
            MPI_Cancel(&request);
            MPI_Wait(&request, &status);
            flag = was_cancelled(&status);
            MPI_Send(&flag, 1, MPI_INT, to, FLAGS, MPI_COMM_WORLD);
        }
        return;
    }
    MPI_Recv(&flag, 1, MPI_INT, 0, FLAGS, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (flag) MPI_Cancel(receive);
    MPI_Wait(receive, &status);
    CHECK(was_cancelled(&status) == flag && (flag || *first == 7));
}

/* A process is its own receiver, too. Its request is over at the first look, however often that is repeated. */
static void send_to_self(void) {
    MPI_Status status;
    int found, is_over;
    for (int round = 0; round < 20; round++) {
        int kind = 2 + round % 2;
        MPI_Request request;
        MPI_Issend(data[kind], kinds[kind].bytes, MPI_CHAR, 0, kind, MPI_COMM_SELF, &request);
        if (round % 4 < 2) MPI_Probe(0, kind, MPI_COMM_SELF, &status);
        MPI_Cancel(&request);
        MPI_Request_get_status(request, &is_over, &status);
        CHECK(is_over && was_cancelled(&status));
        MPI_Wait(&request, &status);
        CHECK(was_cancelled(&status));
        MPI_Iprobe(0, kind, MPI_COMM_SELF, &found, &status);
        CHECK(!found);
    }
}

int main(int argc, char **argv) {
    int first = 0, all;
    char over[4096];
    MPI_Request receive = MPI_REQUEST_NULL;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(over, sizeof over, "%s/over", argv[1]);
    for (int kind = 0; kind < KINDS; kind++) fill(data[kind] = malloc(LONG), LONG, kind);
    send_to_self();
    if (rank == 0) first = 7;
    else
        MPI_Irecv(&first, 1, MPI_INT, 0, FIRST, MPI_COMM_WORLD, &receive);
    MPI_Barrier(MPI_COMM_WORLD);
    match_first(&receive, &first);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        int(*flags)[KINDS] = calloc((size_t)size, sizeof *flags);
        MPI_Request(*requests)[KINDS] = calloc((size_t)size, sizeof *requests);
        MPI_Request *left = calloc((size_t)size * MANY, sizeof *left);
        int count = 0;
        MPI_Buffer_attach(attached, sizeof attached);
        for (int to = 1; to < size; to++) send_to(to, flags[to], requests[to]);
        for (int to = 1; to < size; to++) count += send_many(to, left + count);
        close(open(over, O_CREAT | O_WRONLY, 0600));
        for (int to = 1; to < size; to++) MPI_Send(flags[to], KINDS, MPI_INT, to, FLAGS, MPI_COMM_WORLD);
        MPI_Waitall(count, left, MPI_STATUSES_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
        for (int to = 1; to < size; to++)
            for (int kind = 0; kind < KINDS; kind++)
                if (kinds[kind].is_persistent) {
                    MPI_Status status;
                    MPI_Start(&requests[to][kind]);
                    MPI_Wait(&requests[to][kind], &status);
                    CHECK(!was_cancelled(&status));
                    MPI_Request_free(&requests[to][kind]);
                }
        void *address;
        MPI_Buffer_detach(&address, &all);
    } else {
        while (access(over, F_OK) != 0) usleep(2000);
        receive_from_0();
    }
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        unlink(over);
        printf("cancelled sends on %d ranks: %d failures\n", size, all);
    }
    MPI_Finalize();
    return all != 0;
}
