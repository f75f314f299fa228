/* The limit of collective accesses on one node: what interleaved blocks cost without MPI, by as many processes. Each has its own
   memory, and blocks of 1 KiB lie in the file by turns. Operations:

       plain                pwrite or pread of contiguous parts
       own blocks           pwrite or pread of each block
       two copies           through a window of each process that nobody else uses: both copies, without waiting
       shared windows       through windows of all, double: each accesses the file for some of them, and a barrier ends a round
       past the caches      the same with non-temporal stores, from a window to memory

   Times are those of all processes, from the first one that begins. Usage: interleaved PROCESSES BYTES FOLDER SECONDS; BYTES of each
   process are a multiple of 4 MiB, and 16 is a multiple of PROCESSES. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <emmintrin.h>
#endif

#include "samples.h"

enum operation { PLAIN, OWN_BLOCKS, TWO_COPIES, TWO_COPIES_PAST, WINDOWS, WINDOWS_PAST, OPERATIONS };
enum { MOST = 16, BLOCK = 1024, WINDOW = 256 << 10, COUNT = 16, ROUNDS_MOST = 1000 };

static const char *const names[OPERATIONS] = {"plain", "own blocks", "two copies", "two copies, past the caches", "shared windows", "shared windows, past the caches"};

static struct shared {
    pthread_barrier_t barrier;
    uint64_t starts[MOST];
    int ends;
} *shared;
static struct samples samples[OPERATIONS];
static char *data, *windows;
static int processes, own, file;
static long bytes;

static void demand(const char *what, int done) {
    if (done) return;
    perror(what);
    exit(1);
}

static void meet(void) { pthread_barrier_wait(&shared->barrier); }

static void access_file(int writes, char *at, long len, long offset) {
    ssize_t moved = writes ? pwrite(file, at, (size_t)len, offset) : pread(file, at, (size_t)len, offset);
    demand("an access", moved == len);
}

static void copy(char *to, const char *from, int past) {
#if defined(__x86_64__)
    for (int at = 0; past && at < BLOCK; at += 16) _mm_stream_si128((__m128i *)(to + at), _mm_loadu_si128((const __m128i *)(from + at)));
    if (past) return;
#endif
    (void)past;
    memcpy(to, from, BLOCK);
}

static void two_copies(int writes, int past) {
    char *window = windows + (long)own * WINDOW;
    for (long at = 0; at < bytes; at += WINDOW) {
        long offset = own * bytes + at;
        if (!writes) access_file(0, window, WINDOW, offset);
        for (long block = 0; block < WINDOW; block += BLOCK)
            writes ? copy(window + block, data + at + block, 0) : copy(data + at + block, window + block, past);
        if (writes) access_file(1, window, WINDOW, offset);
    }
}

/* The blocks of this process in the windows of a round, one way or the other. */
static void copy_round(int writes, int past, long round, char *half) {
    for (long at = own * BLOCK; at < COUNT * WINDOW; at += processes * BLOCK) {
        char *mine = data + (round * COUNT * WINDOW + at) / (processes * BLOCK) * BLOCK;
        writes ? copy(half + at, mine, 0) : copy(mine, half + at, past);
    }
}

static void shared_windows(int writes, int past) {
    long rounds = bytes * processes / (COUNT * WINDOW);
    for (long round = 0; round < rounds; round++) {
        char *half = windows + (round % 2) * COUNT * WINDOW;
        if (writes) copy_round(1, past, round, half), meet();
        for (long window = own; window < COUNT; window += processes) access_file(writes, half + window * WINDOW, WINDOW, (round * COUNT + window) * WINDOW);
        if (!writes) meet(), copy_round(0, past, round, half);
    }
}

static void carry_out(enum operation operation, int writes) {
    switch (operation) {
    case PLAIN: access_file(writes, data, bytes, own * bytes); break;
    case OWN_BLOCKS:
        for (long at = 0; at < bytes; at += BLOCK) access_file(writes, data + at, BLOCK, at * processes + own * BLOCK);
        break;
    case TWO_COPIES:
    case TWO_COPIES_PAST: two_copies(writes, operation == TWO_COPIES_PAST); break;
    default: shared_windows(writes, operation == WINDOWS_PAST); break;
    }
}

/* What is written to a window is read at once. */
static int is_measured(int operation, int writes) { return !writes || (operation != TWO_COPIES_PAST && operation != WINDOWS_PAST); }

static void measure(int writes, double seconds) {
    double start = clock_system_s();
    for (int i = 0; i < OPERATIONS; i++) samples_clear(&samples[i]);
    for (int ends = 0; !ends;) {
        for (int i = 0; i < OPERATIONS; i++) {
            if (!is_measured(i, writes)) continue;
            meet();
            shared->starts[own] = clock_ticks();
            carry_out((enum operation)i, writes);
            meet();
            uint64_t end = clock_ticks(), first = end;
            for (int k = 0; k < processes; k++) first = shared->starts[k] < first ? shared->starts[k] : first;
            samples[i].us[samples[i].count++] = samples_us(end - first, 1);
        }
        if (own == 0) shared->ends = samples[0].count == ROUNDS_MOST || (samples[0].count >= SAMPLES_LEAST && clock_system_s() - start >= seconds);
        meet();
        ends = shared->ends;
        meet();
    }
    for (int i = 0; i < OPERATIONS && own == 0; i++) {
        if (!is_measured(i, writes)) continue;
        char name[64];
        struct summary summary = samples_summary(&samples[i]);
        snprintf(name, sizeof name, "%s: %s", writes ? "write" : "read", names[i]);
        summary_print(name, bytes, processes, &summary);
    }
}

int main(int argc, char **argv) {
    char path[4096];
    pthread_barrierattr_t attributes;
    if (argc < 5) return fprintf(stderr, "usage: interleaved PROCESSES BYTES FOLDER SECONDS\n"), 2;
    processes = (int)program_number("interleaved", "the number of processes", argv[1], MOST);
    bytes = (long)program_number("interleaved", "the number of bytes", argv[2], PROGRAM_MOST_BYTES);
    double seconds = program_number("interleaved", "the time", argv[4], PROGRAM_MOST_SECONDS);
    demand("BYTES are no multiple of 4 MiB, or 16 none of PROCESSES", bytes % (COUNT * WINDOW) == 0 && COUNT % processes == 0);
    snprintf(path, sizeof path, "%s/canele-interleaved-%d", argv[3], (int)getpid());
    clock_calibrate();
    shared = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    windows = mmap(NULL, 2 * COUNT * WINDOW, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    demand("memory", shared != MAP_FAILED && windows != MAP_FAILED);
    pthread_barrierattr_init(&attributes), pthread_barrierattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_barrier_init(&shared->barrier, &attributes, (unsigned)processes);
    file = open(path, O_RDWR | O_CREAT | O_EXCL, 0666);
    demand(path, file >= 0 && unlink(path) == 0);
    for (own = processes - 1; own > 0; own--)
        if (fork() == 0) break;
    data = program_memory("interleaved", (size_t)bytes);
    carry_out(PLAIN, 1);
    measure(1, seconds), measure(0, seconds);
    while (own == 0 && wait(NULL) > 0) continue;
    return 0;
}
