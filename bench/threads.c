/* Threads that call at once. The given number of threads of each of two ranks exchange short messages, in one
   communicator by a tag each, or each in a communicator of its own. The same number of threads of rank 0 send short
   messages to themselves, each in a communicator of its own, while rank 1 sleeps. The same number of threads of rank
   1 wait for a request each, for a message in a probe, for one of two requests, or ask for a message again and again
   without rest. One thread after the other gets its message and answers. Prints a line of JSON for each case and
   operation.
   Usage: threads SECONDS_PER_OPERATION SIZE/THREADS...

   Times are half a round trip of each thread, or the time of a message to itself. For waiting threads they are half
   of all round trips, one after the other. Threads divided by time is therefore always the rate of messages of both
   directions. */
#include <pthread.h>

#include "program.h"

enum { MOST_THREADS = 64, SLICES = 10 };
enum { ONE, EACH, ITSELF, WAITING, PROBING, ANY, SPINNING, OPERATIONS };
static const char *const NAMES[] = {"one communicator", "a communicator each", "each to itself", "waiting, woken in turn",
                                    "in probes, woken in turn", "for one of two, woken in turn", "spinning in MPI_Iprobe"};

struct worker {
    pthread_t thread;
    char *data; /* twice as many bytes */
    int bytes, tag;
    MPI_Comm comm;
    double end_s; /* time at which rank 0's ends */
    long exchanges; /* of two messages */
};

static struct worker workers[MOST_THREADS];
static MPI_Comm comms[MOST_THREADS];

/* Rank 0's thread exchanges until its time is over, and notifies rank 1's. */
static void *exchange(void *of) {
    struct worker *worker = of;
    for (worker->exchanges = 1;; worker->exchanges++) {
        int ends = clock_system_s() >= worker->end_s;
        worker->data[0] = ends ? PROGRAM_ENDS : PROGRAM_GOES_ON;
        MPI_Send(worker->data, worker->bytes, MPI_CHAR, 1, worker->tag, worker->comm);
        MPI_Recv(worker->data, worker->bytes, MPI_CHAR, 1, worker->tag, worker->comm, MPI_STATUS_IGNORE);
        if (ends) return NULL;
    }
}

static void *answer_itself(void *of) {
    struct worker *worker = of;
    worker->exchanges = 0;
    /* Once at least: on a busy machine the time is over before the thread runs. */
    do {
        for (int i = 0; i < 2; i++) {
            MPI_Request request;
            MPI_Irecv(worker->data + worker->bytes, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm, &request);
            MPI_Send(worker->data, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        worker->exchanges++;
    } while (clock_system_s() < worker->end_s);
    return NULL;
}

static void *answer(void *of) {
    struct worker *worker = of;
    do {
        MPI_Request request;
        MPI_Irecv(worker->data, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Send(worker->data, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm);
    } while (worker->data[0] != PROGRAM_ENDS);
    return NULL;
}

static void *answer_probed(void *of) {
    struct worker *worker = of;
    do {
        MPI_Probe(0, worker->tag, worker->comm, MPI_STATUS_IGNORE);
        MPI_Recv(worker->data, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm, MPI_STATUS_IGNORE);
        MPI_Send(worker->data, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm);
    } while (worker->data[0] != PROGRAM_ENDS);
    return NULL;
}

static void *answer_spinning(void *of) {
    struct worker *worker = of;
    do {
        for (int has_come = 0; !has_come;)
            MPI_Iprobe(0, worker->tag, worker->comm, &has_come, MPI_STATUS_IGNORE);
        MPI_Recv(worker->data, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm, MPI_STATUS_IGNORE);
        MPI_Send(worker->data, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm);
    } while (worker->data[0] != PROGRAM_ENDS);
    return NULL;
}

/* The other request is never fulfilled. */
static void *answer_any(void *of) {
    struct worker *worker = of;
    MPI_Request requests[2];
    char none;
    MPI_Irecv(&none, 1, MPI_CHAR, 0, MOST_THREADS + worker->tag, worker->comm, &requests[1]);
    do {
        int which;
        MPI_Irecv(worker->data, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm, &requests[0]);
        MPI_Waitany(2, requests, &which, MPI_STATUS_IGNORE);
        MPI_Send(worker->data, worker->bytes, MPI_CHAR, 0, worker->tag, worker->comm);
    } while (worker->data[0] != PROGRAM_ENDS);
    MPI_Cancel(&requests[1]);
    MPI_Wait(&requests[1], MPI_STATUS_IGNORE);
    return NULL;
}

static void *nothing(void *of) { return of; }

/* Starts `count` threads. Returns the number started. */
static int start(int count, void *(*what)(void *)) {
    for (int i = 0; i < count; i++)
        if (pthread_create(&workers[i].thread, NULL, what, &workers[i])) return i;
    return count;
}

static void join(int count) {
    for (int i = 0; i < count; i++) pthread_join(workers[i].thread, NULL);
}

/* Starts threads after an earlier check that as many can exist. */
static void start_all(int count, void *(*what)(void *)) {
    if (start(count, what) == count) return;
    fprintf(stderr, "threads: %d threads could be started, and then not\n", count);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Reason why this number of threads cannot be measured, the same on all ranks; or null. */
static const char *obstacle(int count) {
    int provided, here = start(count, nothing), least;
    join(here);
    MPI_Allreduce(&here, &least, 1, MPI_INT, MPI_MIN, MPI_COMM_WORLD);
    MPI_Query_thread(&provided);
    if (provided < MPI_THREAD_MULTIPLE) return "it does not give MPI_THREAD_MULTIPLE";
    return least < count ? "so many threads cannot be started" : NULL;
}

/* Half a round trip of each thread in one slice of the time, or the time of a message to itself. */
static double slice(int operation, int count, int rank, double seconds) {
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = clock_system_s();
    for (int i = 0; i < count; i++) workers[i].end_s = begin + seconds;
    if (operation == ITSELF && rank == 1) {
        clock_sleep_until(begin + seconds);
        return 0;
    }
    start_all(count, operation == ITSELF ? answer_itself : rank == 0 ? exchange : answer);
    join(count);
    double us = (clock_system_s() - begin) * 1e6;
    long exchanges = 0;
    for (int i = 0; i < count; i++) exchanges += workers[i].exchanges;
    return rank == 0 ? us * count / (2.0 * (double)exchanges) : 0;
}

/* Wakes rank 1's threads one after the other. */
static double wake(void *what, char word) {
    int count = *(int *)what;
    uint64_t begin = clock_ticks();
    for (int i = 0; i < count; i++) {
        workers[i].data[0] = word;
        MPI_Send(workers[i].data, workers[i].bytes, MPI_CHAR, 1, workers[i].tag, workers[i].comm);
        MPI_Recv(workers[i].data, workers[i].bytes, MPI_CHAR, 1, workers[i].tag, workers[i].comm, MPI_STATUS_IGNORE);
    }
    return samples_us(clock_ticks() - begin, 2);
}

static void take(int operation, int count, int rank, double seconds, struct samples *samples) {
    samples_clear(samples);
    static void *(*const all[OPERATIONS])(void *) = {
        [WAITING] = answer, [PROBING] = answer_probed, [ANY] = answer_any, [SPINNING] = answer_spinning};
    if (operation >= WAITING) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) samples_take(samples, seconds, wake, &count);
        if (rank == 1) start_all(count, all[operation]), join(count);
        return;
    }
    samples->first_us = slice(operation, count, rank, seconds / SLICES);
    for (; samples->count < SLICES; samples->count++) samples->us[samples->count] = slice(operation, count, rank, seconds / SLICES);
}

static void measure(struct program_case asked, int rank, double seconds) {
    static struct samples samples;
    int count = (int)asked.count;
    const char *why = obstacle(count);
    for (int operation = 0; operation < OPERATIONS; operation++) {
        if (why) {
            if (rank == 0) missing_print(NAMES[operation], asked.bytes, asked.count, why);
            continue;
        }
        for (int i = 0; i < count; i++) {
            workers[i].tag = i, workers[i].bytes = (int)asked.bytes;
            workers[i].data = program_memory("threads", 2 * (size_t)asked.bytes);
            workers[i].comm = operation == EACH || operation == ITSELF ? comms[i] : MPI_COMM_WORLD;
        }
        take(operation, count, rank, seconds, &samples);
        for (int i = 0; i < count; i++) free(workers[i].data);
        if (rank == 0) {
            struct summary summary = samples_summary(&samples);
            summary_print(NAMES[operation], asked.bytes, asked.count, &summary);
        }
    }
}

int main(int argc, char **argv) {
    int size, rank = program_start("threads", &argc, &argv, &size), most = 0;
    double seconds = argc > 1 ? program_number("threads", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    if (size != 2) {
        fprintf(stderr, "threads: needs two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    for (int i = 2; i < argc; i++) {
        struct program_case asked = program_case("threads", argv[i], (struct program_case){1 << 20, MOST_THREADS});
        if (asked.bytes < 1 || asked.count < 1) MPI_Abort(MPI_COMM_WORLD, 2);
        for (; most < asked.count; most++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[most]);
        measure(asked, rank, seconds);
    }
    while (most > 0) MPI_Comm_free(&comms[--most]);
    return program_end(0);
}
