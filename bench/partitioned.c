/* Partitions of one message: the given number of threads of rank 0 write their partitions and make each ready at once, and
   rank 1 waits for the whole. Beside it, one thread sends the same bytes by one MPI_Send once all threads have written
   theirs.
   Usage: partitioned SECONDS_PER_OPERATION SIZE/THREADS...

   Times are of one message, from the moment when the threads begin until rank 1's answer has come. */
#include <pthread.h>

#include "program.h"

enum { MOST_THREADS = 64, EACH = 4 };
enum { SEND, READY, OPERATIONS };
static const char *const NAMES[] = {"one MPI_Send", "partitions"};

static MPI_Request request;
static pthread_barrier_t begins, ends;
static int threads, operation;
static volatile int is_over;
static char *data;
static size_t part_bytes;

static void *run(void *of) {
    int thread = (int)(intptr_t)of;
    for (;;) {
        pthread_barrier_wait(&begins);
        if (is_over) return NULL;
        for (int i = 0; i < EACH; i++) {
            int part = i * threads + thread;
            /* The first byte is the word for rank 1. */
            memset(data + (size_t)part * part_bytes + 1, i + 1, part_bytes - 1);
            if (operation == READY) MPI_Pready(part, request);
        }
        pthread_barrier_wait(&ends);
    }
}

/* One message and its answer. */
static double once(void *of, char word) {
    int bytes = *(int *)of;
    char answer;
    data[0] = word;
    if (operation == READY) MPI_Start(&request);
    uint64_t begin = clock_ticks();
    pthread_barrier_wait(&begins);
    pthread_barrier_wait(&ends);
    if (operation == READY) MPI_Wait(&request, MPI_STATUS_IGNORE);
    else MPI_Send(data, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
    MPI_Recv(&answer, 1, MPI_CHAR, 1, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return samples_us(clock_ticks() - begin, 1);
}

static void answer(int bytes) {
    char word;
    do {
        if (operation == READY) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        } else
            MPI_Recv(data, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        word = data[0];
        MPI_Send(&word, 1, MPI_CHAR, 0, 2, MPI_COMM_WORLD);
    } while (word != PROGRAM_ENDS);
}

static void measure(struct program_case asked, int rank, double seconds) {
    static struct samples samples;
    int bytes = (int)asked.bytes, parts = (int)asked.count * EACH;
    threads = (int)asked.count, part_bytes = (size_t)(bytes / parts);
    data = program_memory("partitioned", (size_t)bytes);
    pthread_t ids[MOST_THREADS];
    if (rank == 0) {
        MPI_Psend_init(data, parts, bytes / parts, MPI_CHAR, 1, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
        pthread_barrier_init(&begins, NULL, (unsigned)threads + 1);
        pthread_barrier_init(&ends, NULL, (unsigned)threads + 1);
        is_over = 0;
        for (int i = 0; i < threads; i++)
            if (pthread_create(&ids[i], NULL, run, (void *)(intptr_t)i)) {
                fprintf(stderr, "partitioned: %d threads cannot be started\n", threads);
                MPI_Abort(MPI_COMM_WORLD, 1);
            }
    } else if (rank == 1)
        MPI_Precv_init(data, parts, bytes / parts, MPI_CHAR, 0, 1, MPI_COMM_WORLD, MPI_INFO_NULL, &request);
    for (operation = 0; operation < OPERATIONS; operation++) {
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            samples_take(&samples, seconds, once, &bytes);
            struct summary summary = samples_summary(&samples);
            summary_print(NAMES[operation], asked.bytes, asked.count, &summary);
        } else if (rank == 1)
            answer(bytes);
    }
    if (rank == 0) {
        is_over = 1;
        pthread_barrier_wait(&begins);
        for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
        pthread_barrier_destroy(&begins);
        pthread_barrier_destroy(&ends);
    }
    if (rank <= 1) MPI_Request_free(&request);
    free(data);
}

int main(int argc, char **argv) {
    int size, provided, rank = program_start("partitioned", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("partitioned", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    MPI_Query_thread(&provided);
    for (int i = 2; i < argc; i++) {
        struct program_case asked = program_case("partitioned", argv[i], (struct program_case){1 << 30, MOST_THREADS});
        if (asked.count < 1 || asked.bytes < 1 || asked.bytes % (asked.count * EACH)) {
            fprintf(stderr, "partitioned: `%s`: the size is no multiple of %d partitions for each thread\n", argv[i], EACH);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        if (provided == MPI_THREAD_MULTIPLE) measure(asked, rank, seconds);
        else if (rank == 0)
            for (int which = 0; which < OPERATIONS; which++)
                missing_print(NAMES[which], asked.bytes, asked.count, "it does not give MPI_THREAD_MULTIPLE");
    }
    return program_end(0);
}
