/* Growth of the cost of calls with the number of outstanding requests. Each case completes N operations and takes the
   time of rank 0 for all of them, for N doubled from FIRST to LAST. A cost that grows with what ends doubles with N. A
   cost that grows with what is outstanding is four times as high. Prints a line of JSON for each case and N, with the
   time of the processor that rank 0 used.
   Usage: outstanding [FIRST LAST [CASE...]], on two ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { ACK_TAG = 30000, TAGS = 30000, LONG = 1 << 17, LONGEST_S = 4, RUNS = 5 };

static int rank, other;
static MPI_Comm comm, second;
static MPI_Request *requests;
static int *places, *values;
static char *memory;

static void *need(size_t bytes) {
    void *got = calloc(1, bytes);
    if (!got) MPI_Abort(MPI_COMM_WORLD, 2);
    return got;
}

static double cpu_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static void post(int n) {
    for (int i = 0; i < n; i++) MPI_Irecv(&values[i], 1, MPI_INT, other, i % TAGS, i / TAGS ? second : comm, &requests[i]);
}

static void send_one(int i) { MPI_Send(&i, 1, MPI_INT, other, i % TAGS, i / TAGS ? second : comm); }

static void await_word(void) { MPI_Recv(NULL, 0, MPI_INT, other, ACK_TAG, comm, MPI_STATUS_IGNORE); }
static void give_word(void) { MPI_Send(NULL, 0, MPI_INT, other, ACK_TAG, comm); }

/* Ways to complete N requests. */
static void by_waitall(int n) { MPI_Waitall(n, requests, MPI_STATUSES_IGNORE); }

static void by_waitany(int n) {
    int index;
    for (int i = 0; i < n; i++) MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE);
    MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE);
    if (index != MPI_UNDEFINED) MPI_Abort(MPI_COMM_WORLD, 3);
}

static void by_testany(int n) {
    for (int ended = 0, index, flag; ended < n; ended += flag) MPI_Testany(n, requests, &index, &flag, MPI_STATUS_IGNORE);
}

static void by_waitsome(int n) {
    for (int ended = 0, count; ended < n; ended += count) MPI_Waitsome(n, requests, &count, places, MPI_STATUSES_IGNORE);
}

static void by_testsome(int n) {
    for (int ended = 0, count; ended < n; ended += count) MPI_Testsome(n, requests, &count, places, MPI_STATUSES_IGNORE);
}

static void by_testall(int n) {
    for (int flag = 0; !flag;) MPI_Testall(n, requests, &flag, MPI_STATUSES_IGNORE);
}

static void by_wait(int n) {
    for (int i = 0; i < n; i++) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

static void by_wait_reversed(int n) {
    for (int i = n; i-- > 0;) MPI_Wait(&requests[i], MPI_STATUS_IGNORE);
}

/* All N messages arrive while rank 0 takes them. */
static double all_at_once(int n, void (*complete)(int)) {
    if (rank == 1) {
        await_word();
        for (int i = 0; i < n; i++) send_one(i);
        return 0;
    }
    post(n);
    double begin = MPI_Wtime();
    give_word();
    complete(n);
    return MPI_Wtime() - begin;
}

static double waitall(int n) { return all_at_once(n, by_waitall); }
static double waitany(int n) { return all_at_once(n, by_waitany); }
static double testany(int n) { return all_at_once(n, by_testany); }
static double waitsome(int n) { return all_at_once(n, by_waitsome); }
static double testsome(int n) { return all_at_once(n, by_testsome); }
static double testall(int n) { return all_at_once(n, by_testall); }
static double wait_reversed(int n) { return all_at_once(n, by_wait_reversed); }

/* The next message is sent once the last has been taken. */
static double one_by_one(int n, int some) {
    int index, count;
    if (rank == 1) {
        for (int i = 0; i < n; i++) {
            send_one(i * 7919 % n);
            await_word();
        }
        return 0;
    }
    post(n);
    double begin = MPI_Wtime();
    for (int i = 0; i < n; i++) {
        if (some)
            MPI_Waitsome(n, requests, &count, places, MPI_STATUSES_IGNORE);
        else
            MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE);
        give_word();
    }
    return MPI_Wtime() - begin;
}

static double waitany_paced(int n) { return one_by_one(n, 0); }
static double waitsome_paced(int n) { return one_by_one(n, 1); }

/* The pattern of a server: each request that ends is posted again. */
static double waitany_reposted(int n) {
    int index;
    if (rank == 1) {
        for (int i = 0; i < n; i++) {
            send_one(i * 7919 % n);
            await_word();
        }
        for (int i = 0; i < n; i++) send_one(i);
        return 0;
    }
    post(n);
    double begin = MPI_Wtime();
    for (int i = 0; i < n; i++) {
        MPI_Waitany(n, requests, &index, MPI_STATUS_IGNORE);
        MPI_Irecv(&values[index], 1, MPI_INT, other, index % TAGS, index / TAGS ? second : comm, &requests[index]);
        give_word();
    }
    double took = MPI_Wtime() - begin;
    by_waitall(n);
    return took;
}

/* The pattern of an array without gaps: the last request takes the place of the one that has ended. */
static void by_waitany_compacted(int n) {
    int index;
    for (int left = n; left > 0; requests[index] = requests[--left]) MPI_Waitany(left, requests, &index, MPI_STATUS_IGNORE);
}

static double waitany_compacted(int n) { return all_at_once(n, by_waitany_compacted); }

static double persistent(int n) {
    if (rank == 1) {
        await_word();
        for (int i = 0; i < n; i++) send_one(i);
        return 0;
    }
    for (int i = 0; i < n; i++)
        MPI_Recv_init(&values[i], 1, MPI_INT, other, i % TAGS, i / TAGS ? second : comm, &requests[i]);
    double begin = MPI_Wtime();
    MPI_Startall(n, requests);
    give_word();
    by_waitany(n);
    double took = MPI_Wtime() - begin;
    for (int i = 0; i < n; i++) MPI_Request_free(&requests[i]);
    return took;
}

/* Both ranks measure. Rank 1 is late, so that all are outstanding at rank 0. */
static double collectives(int n, void (*complete)(int)) {
    if (rank == 1) await_word();
    double begin = MPI_Wtime();
    for (int i = 0; i < n; i++) MPI_Iallreduce(&places[i], &values[i], 1, MPI_INT, MPI_SUM, comm, &requests[i]);
    if (rank == 0) give_word();
    complete(n);
    return MPI_Wtime() - begin;
}

static double iallreduce_waitall(int n) { return collectives(n, by_waitall); }
static double iallreduce_waitany(int n) { return collectives(n, by_waitany); }
static double iallreduce_wait(int n) { return collectives(n, by_wait); }

static double ibcast(int n) {
    if (rank == 1) await_word();
    double begin = MPI_Wtime();
    for (int i = 0; i < n; i++) MPI_Ibcast(&values[i], 1, MPI_INT, 1, comm, &requests[i]);
    if (rank == 0) give_word();
    by_waitall(n);
    return MPI_Wtime() - begin;
}

static double cancelled(int n, void (*complete)(int)) {
    if (rank == 1) return 0;
    double begin = MPI_Wtime();
    post(n);
    for (int i = 0; i < n; i++) MPI_Cancel(&requests[i]);
    complete(n);
    return MPI_Wtime() - begin;
}

static double cancelled_waitall(int n) { return cancelled(n, by_waitall); }
static double cancelled_waitany(int n) { return cancelled(n, by_waitany); }

static double freed(int n) {
    if (rank == 1) {
        await_word();
        for (int i = 0; i < n; i++) send_one(i);
        give_word();
        return 0;
    }
    double begin = MPI_Wtime();
    post(n);
    for (int i = 0; i < n; i++) MPI_Request_free(&requests[i]);
    give_word();
    await_word();
    return MPI_Wtime() - begin;
}

/* Synchronous sends to a receiver that is late. */
static double issend(int n, int bytes, void (*complete)(int)) {
    if (rank == 1) {
        await_word();
        for (int i = 0; i < n; i++)
            MPI_Recv(memory, bytes, MPI_CHAR, other, i % TAGS, i / TAGS ? second : comm, MPI_STATUS_IGNORE);
        return 0;
    }
    double begin = MPI_Wtime();
    for (int i = 0; i < n; i++)
        MPI_Issend(memory, bytes, MPI_CHAR, other, i % TAGS, i / TAGS ? second : comm, &requests[i]);
    give_word();
    complete(n);
    return MPI_Wtime() - begin;
}

static double issend_waitall(int n) { return issend(n, 4, by_waitall); }
static double issend_waitany(int n) { return issend(n, 4, by_waitany); }
static double long_waitall(int n) { return issend(n, LONG, by_waitall); }

/* Messages that nobody has received, taken in the opposite order. */
static double unexpected(int n) {
    if (rank == 1) {
        for (int i = 0; i < n; i++) MPI_Isend(&values[i], 1, MPI_INT, other, i % TAGS, i / TAGS ? second : comm, &requests[i]);
        give_word();
        by_waitall(n);
        return 0;
    }
    await_word();
    double begin = MPI_Wtime();
    for (int i = n; i-- > 0;)
        MPI_Recv(&values[i], 1, MPI_INT, other, i % TAGS, i / TAGS ? second : comm, MPI_STATUS_IGNORE);
    return MPI_Wtime() - begin;
}

static double buffered(int n) {
    if (rank == 1) {
        await_word();
        for (int i = 0; i < n; i++)
            MPI_Recv(memory, 8, MPI_CHAR, other, i % TAGS, i / TAGS ? second : comm, MPI_STATUS_IGNORE);
        return 0;
    }
    int size = n * (8 + MPI_BSEND_OVERHEAD);
    char *buffer = need((size_t)size);
    MPI_Buffer_attach(buffer, size);
    double begin = MPI_Wtime();
    for (int i = 0; i < n; i++)
        MPI_Ibsend(memory, 8, MPI_CHAR, other, i % TAGS, i / TAGS ? second : comm, &requests[i]);
    give_word();
    by_waitall(n);
    MPI_Buffer_detach(&buffer, &size);
    free(buffer);
    return MPI_Wtime() - begin;
}

static double exchanges(int n) {
    if (rank == 1) await_word();
    double begin = MPI_Wtime();
    for (int i = 0; i < n; i++)
        MPI_Isendrecv(&places[i], 1, MPI_INT, other, i % TAGS, &values[i], 1, MPI_INT, other, i % TAGS,
                      i / TAGS ? second : comm, &requests[i]);
    if (rank == 0) give_word();
    by_waitany(n);
    return MPI_Wtime() - begin;
}

static double window(int n, int gets, void (*complete)(int)) {
    MPI_Win win;
    double took = 0;
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Win_create(memory, LONG, 1, info, comm, &win);
    MPI_Info_free(&info);
    if (rank == 0) {
        MPI_Win_lock(MPI_LOCK_SHARED, other, 0, win);
        double begin = MPI_Wtime();
        for (int i = 0; i < n; i++) {
            if (gets)
                MPI_Rget(&values[i], 1, MPI_INT, other, i * 4 % LONG, 1, MPI_INT, win, &requests[i]);
            else
                MPI_Rput(&values[i], 1, MPI_INT, other, i * 4 % LONG, 1, MPI_INT, win, &requests[i]);
        }
        complete(n);
        took = MPI_Wtime() - begin;
        MPI_Win_unlock(other, win);
    }
    MPI_Win_free(&win);
    return took;
}

static double rput_waitall(int n) { return window(n, 0, by_waitall); }
static double rget_waitall(int n) { return window(n, 1, by_waitall); }
static double rget_waitany(int n) { return window(n, 1, by_waitany); }

static double file(int n, void (*complete)(int)) {
    MPI_File fh;
    char name[] = "outstanding.tmp";
    double took = 0;
    if (MPI_File_open(comm, name, MPI_MODE_CREATE | MPI_MODE_RDWR | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &fh)) return -1;
    if (rank == 0) {
        double begin = MPI_Wtime();
        for (int i = 0; i < n; i++) MPI_File_iwrite_at(fh, i * 4, &values[i], 1, MPI_INT, &requests[i]);
        complete(n);
        took = MPI_Wtime() - begin;
    }
    MPI_File_close(&fh);
    return took;
}

static double file_waitall(int n) { return file(n, by_waitall); }
static double file_waitany(int n) { return file(n, by_waitany); }

static const struct {
    const char *name;
    double (*run)(int n);
} CASES[] = {{"waitall", waitall},
             {"waitany", waitany},
             {"testany", testany},
             {"waitsome", waitsome},
             {"testsome", testsome},
             {"testall", testall},
             {"wait_reversed", wait_reversed},
             {"waitany_paced", waitany_paced},
             {"waitsome_paced", waitsome_paced},
             {"waitany_reposted", waitany_reposted},
             {"waitany_compacted", waitany_compacted},
             {"persistent_waitany", persistent},
             {"iallreduce_waitall", iallreduce_waitall},
             {"iallreduce_waitany", iallreduce_waitany},
             {"iallreduce_wait", iallreduce_wait},
             {"ibcast_waitall", ibcast},
             {"cancelled_waitall", cancelled_waitall},
             {"cancelled_waitany", cancelled_waitany},
             {"freed", freed},
             {"issend_waitall", issend_waitall},
             {"issend_waitany", issend_waitany},
             {"long_waitall", long_waitall},
             {"unexpected", unexpected},
             {"ibsend", buffered},
             {"isendrecv_waitany", exchanges},
             {"rput_waitall", rput_waitall},
             {"rget_waitall", rget_waitall},
             {"rget_waitany", rget_waitany},
             {"file_waitall", file_waitall},
             {"file_waitany", file_waitany}};

static int is_asked(int argc, char **argv, const char *name) {
    for (int i = 3; i < argc; i++)
        if (!strcmp(argv[i], name)) return 1;
    return argc <= 3;
}

int main(int argc, char **argv) {
    int first = argc > 2 ? atoi(argv[1]) : 1000, last = argc > 2 ? atoi(argv[2]) : 16000, size, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size != 2 || first < 1 || last > 2 * TAGS) MPI_Abort(MPI_COMM_WORLD, 2);
    other = 1 - rank;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &second);
    requests = need(sizeof *requests * (size_t)last);
    places = need(sizeof *places * (size_t)last);
    values = need(sizeof *values * (size_t)last);
    memory = need(LONG);
    for (int i = 0; i < last; i++) requests[i] = MPI_REQUEST_NULL;
    for (size_t at = 0; at < sizeof CASES / sizeof *CASES; at++) {
        if (!is_asked(argc, argv, CASES[at].name)) continue;
        double before = 0;
        for (int n = first; n <= last; n *= 2) {
            double took = 0, cpu = 0;
            for (int run = 0; run < RUNS; run++) {
                MPI_Barrier(MPI_COMM_WORLD);
                double began = cpu_s(), once = CASES[at].run(n), used = cpu_s() - began;
                if (run == 0 || once < took) took = once;
                if (run == 0 || used < cpu) cpu = used;
                MPI_Bcast(&took, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
                if (took > LONGEST_S / 4) break;
            }
            if (rank == 0) {
                printf("{\"case\": \"%s\", \"n\": %d, \"ms\": %.3f, \"cpu_ms\": %.3f, \"ns_each\": %.0f, \"growth\": %.2f}\n", CASES[at].name, n,
                       took * 1e3, cpu * 1e3, took * 1e9 / n, before > 0 ? took / before : 0);
                fflush(stdout);
            }
            before = took;
            if (took > LONGEST_S) break;
        }
    }
    MPI_Finalize();
    return 0;
}
