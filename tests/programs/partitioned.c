/* Partitioned messages: partitions of both sides, matching, threads, restarts, wrong uses. On any number of ranks, each
   with its neighbours in a ring, which may be itself. Usage: partitioned SEED */
#include <malloc.h>
#include <mpi.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

static int size, next, previous;
static char text[MPI_MAX_ERROR_STRING];
static uint64_t random_state;

/* SplitMix64 (Steele, Lea, Flood 2014). */
static unsigned below(unsigned end) {
    uint64_t value = random_state += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return (unsigned)((value ^ value >> 31) % end);
}

static void start(MPI_Request *send, MPI_Request *receive) {
    MPI_Request both[] = {*receive, *send};
    MPI_Startall(2, both);
}

static int arrived(MPI_Request request, int partition) {
    int flag = -1;
    CHECK(MPI_Parrived(request, partition, &flag) == MPI_SUCCESS);
    return flag;
}

static unsigned char content(int from, int run, size_t at) { return (unsigned char)(from * 31 + run * 7 + at * 13 + (at >> 8)); }

static void fill(unsigned char *data, size_t len, int run) {
    for (size_t i = 0; i < len; i++) data[i] = content(rank, run, i);
}

static int is_filled(const unsigned char *data, size_t begin, size_t end, int run) {
    for (size_t i = begin; i < end; i++)
        if (data[i] != content(previous, run, i)) return 0;
    return 1;
}

/* Partitions of both sides, marked in random order while the other side asks for them. */
static void partitions_may_differ(int sent, int received, int unit) {
    size_t len = (size_t)sent * received * unit;
    unsigned char *data = calloc(1, len + 1), *into = calloc(1, len + 1);
    int *order = malloc(sizeof(int) * (sent + 1));
    MPI_Request send, receive;
    MPI_Psend_init(data, sent, (MPI_Count)received * unit, MPI_BYTE, next, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
    MPI_Precv_init(into, received, (MPI_Count)sent * unit, MPI_BYTE, previous, 3, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
    for (int run = 0; run < 4; run++) {
        fill(data, len, run);
        memset(into, 0, len);
        for (int i = 0; i < received; i++) CHECK(arrived(receive, i) == 1);
        start(&send, &receive);
        int flag = 0;
        if (sent > 0) {
            CHECK(MPI_Test(&send, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag);
            CHECK(MPI_Request_get_status(send, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag);
        }
        for (int i = 0; i < sent; i++) order[i] = i;
        for (int i = sent; i > 1; i--) {
            int other = (int)below((unsigned)i), was = order[i - 1];
            order[i - 1] = order[other], order[other] = was;
        }
        switch (run) {
            case 0:
                for (int i = 0; i < sent; i++) {
                    CHECK(MPI_Pready(order[i], send) == MPI_SUCCESS);
                    int some = received > 0 ? (int)below((unsigned)received) : 0;
                    if (received > 0 && arrived(receive, some))
                        CHECK(is_filled(into, (size_t)some * sent * unit, (size_t)(some + 1) * sent * unit, run));
                }
                break;
            case 1: CHECK(MPI_Pready_list(sent, order, send) == MPI_SUCCESS); break;
            case 2:
                if (sent > 0) CHECK(MPI_Pready_range(0, sent - 1, send) == MPI_SUCCESS);
                break;
            default:
                if (sent > 1) CHECK(MPI_Pready_range(1, sent - 1, send) == MPI_SUCCESS);
                if (sent > 0) CHECK(MPI_Pready(0, send) == MPI_SUCCESS);
        }
        if (run == 1)
            for (int i = 0; i < received; i++)
                while (!arrived(receive, i)) continue;
        MPI_Status statuses[2];
        MPI_Request both[] = {send, receive};
        CHECK(MPI_Waitall(2, both, statuses) == MPI_SUCCESS);
        CHECK(both[0] == send && both[1] == receive);
        MPI_Count bytes = -1;
        MPI_Get_elements_c(&statuses[1], MPI_BYTE, &bytes);
        CHECK(bytes == (MPI_Count)len);
        CHECK(statuses[1].MPI_SOURCE == previous && statuses[1].MPI_TAG == 3);
        CHECK(is_filled(into, 0, len, run));
        CHECK(MPI_Test(&send, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && flag);
    }
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
    CHECK(send == MPI_REQUEST_NULL && receive == MPI_REQUEST_NULL);
    free(order);
    free(data);
    free(into);
}

/* A partition leaves although the others are not ready: the sender marks the next one when the receiver has told it so. */
static void a_partition_leaves_at_once(int bytes) {
    enum { COUNT = 6 };
    unsigned char *data = calloc(COUNT, (size_t)bytes), *into = calloc(COUNT, (size_t)bytes);
    MPI_Request send, receive;
    MPI_Psend_init(data, COUNT, bytes, MPI_BYTE, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
    MPI_Precv_init(into, COUNT, bytes, MPI_BYTE, previous, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
    fill(data, (size_t)COUNT * bytes, 9);
    start(&send, &receive);
    for (int i = COUNT - 1; i >= 0; i--) {
        MPI_Pready(i, send);
        while (!arrived(receive, i)) continue;
        for (int other = 0; other < i; other++) CHECK(!arrived(receive, other));
        /* Tells the sender, on the tag and communicator of the partitioned message. */
        MPI_Sendrecv(NULL, 0, MPI_BYTE, previous, 0, NULL, 0, MPI_BYTE, next, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    CHECK(is_filled(into, 0, (size_t)COUNT * bytes, 9));
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
    free(data);
    free(into);
}

/* Matched by the order of initialisation, and never with the program's own messages, whatever these receive. */
static void matching_is_apart(void) {
    enum { COUNT = 5 };
    int values[COUNT], into[COUNT], own = -1, flag;
    MPI_Request sends[COUNT], receives[COUNT], wild;
    MPI_Irecv(&own, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &wild);
    for (int i = 0; i < COUNT; i++) {
        values[i] = 100 * rank + i, into[i] = -1;
        MPI_Psend_init(&values[i], 1, 1, MPI_INT, next, i / 3, MPI_COMM_WORLD, MPI_INFO_NULL, &sends[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    /* Of two tags, the later first: only those of one tag are ordered. */
    for (int i = COUNT - 1; i >= 0; i--)
        if (i >= 3) MPI_Precv_init(&into[7 - i], 1, 1, MPI_INT, previous, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &receives[7 - i]);
    for (int i = 0; i < 3; i++) MPI_Precv_init(&into[i], 1, 1, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receives[i]);
    MPI_Startall(COUNT, receives);
    MPI_Startall(COUNT, sends);
    for (int i = COUNT - 1; i >= 0; i--) MPI_Pready(0, sends[i]);
    MPI_Waitall(COUNT, receives, MPI_STATUSES_IGNORE);
    MPI_Waitall(COUNT, sends, MPI_STATUSES_IGNORE);
    for (int i = 0; i < COUNT; i++) CHECK(into[i] == 100 * previous + i);
    CHECK(MPI_Test(&wild, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag);
    CHECK(MPI_Iprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS && !flag);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, next, 7, MPI_COMM_WORLD);
    MPI_Wait(&wild, MPI_STATUS_IGNORE);
    CHECK(own == previous);
    for (int i = 0; i < COUNT; i++) MPI_Request_free(&sends[i]), MPI_Request_free(&receives[i]);
}

/* All pairs of ranks at once, and a request of another kind among them. */
static void many_neighbours_at_once(int per_neighbour) {
    int all = size * per_neighbour;
    enum { INTS = 50 };
    MPI_Request *requests = malloc(sizeof(MPI_Request) * (2 * all + 1));
    int *data = malloc(sizeof(int) * all * INTS), *into = malloc(sizeof(int) * all * INTS), never;
    for (int i = 0; i < all; i++) {
        MPI_Precv_init(into + i * INTS, 5, INTS / 5, MPI_INT, i % size, i / size, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[i]);
        MPI_Psend_init(data + i * INTS, 2, INTS / 2, MPI_INT, i % size, i / size, MPI_COMM_WORLD, MPI_INFO_NULL, &requests[all + i]);
    }
    MPI_Irecv(&never, 1, MPI_INT, previous, 99, MPI_COMM_WORLD, &requests[2 * all]);
    for (int run = 0; run < 3; run++) {
        for (int i = 0; i < all * INTS; i++) data[i] = 1000 * rank + run + i % INTS, into[i] = -1;
        MPI_Startall(2 * all, requests);
        for (int i = 0; i < all; i++) MPI_Pready_range(0, 1, requests[all + i]);
        for (int done = 0, index; done < 2 * all; done++) {
            MPI_Status status;
            MPI_Waitany(2 * all + 1, requests, &index, &status);
            CHECK(index >= 0 && index < 2 * all);
            if (index < all) CHECK(status.MPI_SOURCE == index % size && status.MPI_TAG == index / size);
        }
        for (int i = 0; i < all * INTS; i++) CHECK(into[i] == 1000 * (i / INTS % size) + run + i % INTS);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Send(&rank, 1, MPI_INT, next, 99, MPI_COMM_WORLD);
    MPI_Wait(&requests[2 * all], MPI_STATUS_IGNORE);
    int index;
    MPI_Waitany(2 * all + 1, requests, &index, MPI_STATUS_IGNORE);
    CHECK(index == MPI_UNDEFINED);
    for (int i = 0; i < 2 * all; i++) MPI_Request_free(&requests[i]);
    free(requests);
    free(data);
    free(into);
}

/* Threads that mark partitions of one message. */
enum { THREADS = 6, EACH = 40 };
static MPI_Request shared;

static void *mark(void *of) {
    int thread = (int)(intptr_t)of;
    for (int i = 0; i < EACH; i++) {
        int partition = i * THREADS + thread;
        if (i % 3 == 0) CHECK(MPI_Pready(partition, shared) == MPI_SUCCESS);
        else CHECK(MPI_Pready_list(1, &partition, shared) == MPI_SUCCESS);
    }
    return NULL;
}

static void *ask(void *of) {
    MPI_Request *receive = of;
    for (int i = 0; i < THREADS * EACH; i++)
        while (!arrived(*receive, i)) continue;
    return NULL;
}

static void threads_mark_partitions(int bytes) {
    size_t len = (size_t)THREADS * EACH * bytes;
    unsigned char *data = calloc(1, len), *into = calloc(1, len);
    MPI_Request receive;
    MPI_Psend_init(data, THREADS * EACH, bytes, MPI_BYTE, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &shared);
    MPI_Precv_init(into, THREADS * EACH, bytes, MPI_BYTE, previous, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
    for (int run = 0; run < 5; run++) {
        pthread_t threads[THREADS + 1];
        fill(data, len, run);
        memset(into, 0, len);
        start(&shared, &receive);
        for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, mark, (void *)(intptr_t)i);
        pthread_create(&threads[THREADS], NULL, ask, &receive);
        if (run % 2) MPI_Wait(&shared, MPI_STATUS_IGNORE); /* while others mark */
        for (int i = 0; i <= THREADS; i++) pthread_join(threads[i], NULL);
        CHECK(is_filled(into, 0, len, run));
        MPI_Wait(&receive, MPI_STATUS_IGNORE);
        MPI_Wait(&shared, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&shared);
    MPI_Request_free(&receive);
    free(data);
    free(into);
}

/* Thousands of runs, and thousands of requests, take no memory. */
static void memory_does_not_grow(int runs, int bytes) {
    static unsigned char data[4][20000], into[4][20000];
    MPI_Request send, receive;
    size_t before = 0;
    for (int times = 0; times < 2; times++) {
        MPI_Psend_init(data, 4, bytes, MPI_BYTE, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
        MPI_Precv_init(into, 2, 2 * bytes, MPI_BYTE, previous, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
        for (int i = 0; i < runs; i++) {
            start(&send, &receive);
            MPI_Pready_range(0, 3, send);
            MPI_Wait(&receive, MPI_STATUS_IGNORE);
            MPI_Wait(&send, MPI_STATUS_IGNORE);
        }
        MPI_Request_free(&send);
        MPI_Request_free(&receive);
        for (int i = 0; i < runs / 4; i++) {
            MPI_Psend_init(data, 4, bytes, MPI_BYTE, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
            MPI_Precv_init(into, 4, bytes, MPI_BYTE, previous, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
            if (i % 2) {
                start(&send, &receive);
                MPI_Pready_range(0, 3, send);
                MPI_Wait(&receive, MPI_STATUS_IGNORE);
                MPI_Wait(&send, MPI_STATUS_IGNORE);
            }
            MPI_Request_free(&send);
            MPI_Request_free(&receive);
        }
        MPI_Barrier(MPI_COMM_WORLD);
        size_t now = mallinfo2().uordblks;
        if (times == 0) before = now;
        else if (now > before + 100000) failures++, fprintf(stderr, "rank %d: memory grew from %zu to %zu bytes\n", rank, before, now);
    }
}

/* Elements with gaps, and of more than one kind of datatype. */
static void datatypes_may_have_gaps(void) {
    enum { PARTITIONS = 3, COUNT = 4 };
    int data[PARTITIONS * COUNT * 4], into[PARTITIONS * COUNT * 2];
    MPI_Datatype pairs;
    MPI_Request send, receive;
    MPI_Type_vector(2, 1, 2, MPI_INT, &pairs); /* the first and third of four */
    MPI_Type_create_resized(pairs, 0, 4 * sizeof(int), &pairs);
    MPI_Type_commit(&pairs);
    for (int i = 0; i < PARTITIONS * COUNT * 4; i++) data[i] = 1000 * rank + i;
    memset(into, 0, sizeof into);
    MPI_Psend_init(data, PARTITIONS, COUNT, pairs, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
    MPI_Precv_init(into, COUNT, 2 * PARTITIONS, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
    MPI_Type_free(&pairs);
    start(&send, &receive);
    int list[] = {2, 0, 1};
    MPI_Pready_list(3, list, send);
    MPI_Wait(&receive, MPI_STATUS_IGNORE);
    MPI_Wait(&send, MPI_STATUS_IGNORE);
    for (int i = 0; i < PARTITIONS * COUNT * 2; i++) CHECK(into[i] == 1000 * previous + 2 * i);
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
}

static void nobody_answers(void) {
    int data[4], flag;
    MPI_Status status;
    MPI_Request send, receive;
    MPI_Psend_init(data, 4, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
    MPI_Precv_init(data, 4, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
    for (int run = 0; run < 3; run++) {
        start(&send, &receive);
        MPI_Pready(0, send);
        MPI_Pready_range(1, 3, send);
        CHECK(arrived(receive, 3) == 1);
        CHECK(MPI_Test(&receive, &flag, &status) == MPI_SUCCESS && flag);
        CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
    MPI_Request_free(&send);
    MPI_Request_free(&receive);
}

/* Each misuse has its error class and one line that names what is wrong. */
static void says(const char *what, int code, int class, const char *why) {
    int len;
    expect(what, code, class);
    MPI_Error_string(code, text, &len);
    if (!strstr(text, why) || strchr(text, '\n')) failures++, fprintf(stderr, "rank %d: %s says `%s`\n", rank, what, text);
}

static void misuse_is_told(void) {
    int data[4] = {0}, into[4], flag = 0, list[] = {1, 3, 1}, far[] = {0, 4};
    MPI_Request send, receive, ordinary;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    says("negative partitions", MPI_Psend_init(data, -1, 1, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send), MPI_ERR_ARG, "partitions");
    says("negative count", MPI_Psend_init(data, 1, -1, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send), MPI_ERR_COUNT, "count");
    says("a huge count", MPI_Psend_init(data, 1000, INT64_MAX / 2, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send), MPI_ERR_COUNT, "count");
    says("any source", MPI_Precv_init(into, 1, 1, MPI_INT, MPI_ANY_SOURCE, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive), MPI_ERR_RANK, "MPI_ANY_SOURCE");
    says("any tag", MPI_Precv_init(into, 1, 1, MPI_INT, previous, MPI_ANY_TAG, MPI_COMM_WORLD, MPI_INFO_NULL, &receive), MPI_ERR_TAG, "tag");
    CHECK(receive == MPI_REQUEST_NULL && send == MPI_REQUEST_NULL);

    MPI_Psend_init(data, 4, 1, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
    MPI_Precv_init(into, 4, 1, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
    says("ready before start", MPI_Pready(0, send), MPI_ERR_REQUEST, "MPI_Start");
    start(&send, &receive);
    says("started twice", MPI_Start(&send), MPI_ERR_REQUEST, "active already");
    says("a partition too far", MPI_Pready(4, send), MPI_ERR_ARG, "partition 4 is outside the 4 partitions");
    says("a negative partition", MPI_Pready(-1, send), MPI_ERR_ARG, "partition = -1");
    says("a range too long", MPI_Pready_range(2, 4, send), MPI_ERR_ARG, "partition 4");
    says("a range backwards", MPI_Pready_range(2, 1, send), MPI_ERR_ARG, "partition_low = 2 is above");
    says("a list with a partition twice", MPI_Pready_list(3, list, send), MPI_ERR_ARG, "partition 1 is ready already");
    says("a list too far", MPI_Pready_list(2, far, send), MPI_ERR_ARG, "partition 4");
    says("partitions of a receive made ready", MPI_Pready(0, receive), MPI_ERR_REQUEST, "MPI_Psend_init");
    says("partitions of a send asked for", MPI_Parrived(send, 0, &flag), MPI_ERR_REQUEST, "MPI_Precv_init");
    says("a partition too far asked for", MPI_Parrived(receive, 4, &flag), MPI_ERR_ARG, "partition 4");
    says("no request made ready", MPI_Pready(0, MPI_REQUEST_NULL), MPI_ERR_REQUEST, "request");
    says("freed while active", MPI_Request_free(&send), MPI_ERR_REQUEST, "partitioned message");
    says("cancelled while active", MPI_Cancel(&receive), MPI_ERR_REQUEST, "partitioned message");
    MPI_Recv_init(into, 1, MPI_INT, previous, 0, MPI_COMM_WORLD, &ordinary);
    says("an ordinary request", MPI_Pready(0, ordinary), MPI_ERR_REQUEST, "no partitions");
    MPI_Request_free(&ordinary);
    CHECK(MPI_Pready_list(2, list, send) == MPI_SUCCESS);
    says("ready twice", MPI_Pready(3, send), MPI_ERR_ARG, "partition 3 is ready already");
    CHECK(MPI_Pready_list(0, NULL, send) == MPI_SUCCESS);
    CHECK(MPI_Pready(0, send) == MPI_SUCCESS && MPI_Pready(2, send) == MPI_SUCCESS);
    CHECK(MPI_Wait(&receive, MPI_STATUS_IGNORE) == MPI_SUCCESS && MPI_Wait(&send, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    says("ready after the end", MPI_Pready(3, send), MPI_ERR_REQUEST, "MPI_Start");
    CHECK(MPI_Parrived(MPI_REQUEST_NULL, 5, &flag) == MPI_SUCCESS && flag == 1);
    MPI_Request_free(&send);
    MPI_Request_free(&receive);

    /* A longer message than the receiver has memory for. */
    for (int long_ones = 0; long_ones < 2; long_ones++) {
        int count = long_ones ? 10000 : 2, run;
        int *more = calloc(4 * (size_t)count, sizeof(int)), *less = malloc(3 * (size_t)count * sizeof(int));
        for (int i = 0; i < 4 * count; i++) more[i] = 1000 * rank + i;
        MPI_Psend_init(more, 4, count, MPI_INT, next, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &send);
        MPI_Precv_init(less, 2, count, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_INFO_NULL, &receive);
        for (run = 0; run < 2; run++) {
            memset(less, 0xff, 3 * (size_t)count * sizeof(int));
            start(&send, &receive);
            MPI_Pready_range(0, 3, send);
            says("a message too long", MPI_Wait(&receive, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE, "bytes");
            CHECK(MPI_Wait(&send, MPI_STATUS_IGNORE) == MPI_SUCCESS);
            for (int i = 0; i < 3 * count; i++) CHECK(less[i] == (i < 2 * count ? 1000 * previous + i : -1));
        }
        MPI_Request_free(&send);
        MPI_Request_free(&receive);
        free(more);
        free(less);
    }
}

int main(int argc, char **argv) {
    int provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size, previous = (rank + size - 1) % size;
    unsigned long seed = argc > 1 ? strtoul(argv[1], NULL, 0) : 1;
    random_state = seed ^ (uint64_t)rank << 32;
    static const int numbers[][2] = {{1, 1}, {4, 4}, {1, 7}, {7, 1}, {6, 4}, {5, 7}, {64, 3}, {0, 3}, {3, 0}, {0, 0}};
    static const int units[] = {0, 1, 100, 3000, 70000};
    for (unsigned i = 0; i < sizeof numbers / sizeof *numbers; i++)
        for (unsigned j = 0; j < sizeof units / sizeof *units; j++) {
            if (units[j] > 3000 && numbers[i][0] * numbers[i][1] > 30) continue;
            partitions_may_differ(numbers[i][0], numbers[i][1], units[j]);
        }
    a_partition_leaves_at_once(4);
    a_partition_leaves_at_once(5000);
    a_partition_leaves_at_once(200000);
    matching_is_apart();
    many_neighbours_at_once(3);
    many_neighbours_at_once(40);
    if (provided == MPI_THREAD_MULTIPLE) {
        threads_mark_partitions(8);
        threads_mark_partitions(3000);
        threads_mark_partitions(30000);
    }
    memory_does_not_grow(1000, 16);
    memory_does_not_grow(300, 10000);
    datatypes_may_have_gaps();
    nobody_answers();
    misuse_is_told();
    int all;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("partitioned messages, seed %lu: %s\n", seed, all ? "wrong" : "ok");
    MPI_Finalize();
    return all != 0;
}
