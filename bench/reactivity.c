/* Delay until messages are noticed while threads compute beside each rank. Measured is half a round trip of short
   messages. The given number of threads of each of two ranks compute without end, while messages go one after the
   other, or one a millisecond. A last case has threads beside one of the ranks only. Exchanges at intervals also
   report the share of computing that the threads keep. The share compares their work meanwhile with their work while
   their rank sleeps outside MPI, in alternation. Prints a line of JSON for each case and operation.
   Usage: reactivity SECONDS_PER_OPERATION SIZE/THREADS... */
#include <pthread.h>
#include <stdatomic.h>

#include "compute.h"
#include "program.h"

enum { MOST_THREADS = 256, INTERVAL_US = 1000, SLICES = 4 };
/* Rank beside which threads compute. */
enum { EACH, ASKING, ANSWERING, SIDES };
static const char *const WITHOUT_PAUSE[] = {"without pause", "beside who asks", "beside who answers"};
static const char *const AT_INTERVALS = "one a millisecond";

struct worker {
    pthread_t thread;
    _Alignas(64) _Atomic uint64_t done; /* in microseconds of undisturbed computing */
};

static struct worker workers[MOST_THREADS];
static int workers_count;
static _Atomic int workers_end;

static void *work(void *of) {
    struct worker *worker = of;
    while (!atomic_load_explicit(&workers_end, memory_order_relaxed)) {
        compute_us(10);
        atomic_fetch_add_explicit(&worker->done, 10, memory_order_relaxed);
    }
    return NULL;
}

/* Returns true if all could be started. */
static int workers_start(int count) {
    atomic_store(&workers_end, 0);
    for (workers_count = 0; workers_count < count; workers_count++) {
        atomic_store(&workers[workers_count].done, 0);
        if (pthread_create(&workers[workers_count].thread, NULL, work, &workers[workers_count])) return 0;
    }
    return 1;
}

static void workers_stop(void) {
    atomic_store(&workers_end, 1);
    while (workers_count > 0) pthread_join(workers[--workers_count].thread, NULL);
}

static double workers_done(void) {
    double sum = 0;
    for (int i = 0; i < workers_count; i++) sum += (double)atomic_load_explicit(&workers[i].done, memory_order_relaxed);
    return sum;
}

struct reactivity {
    char *data;
    int bytes, rank;
};

static void answer(const struct reactivity *reactivity) {
    do {
        MPI_Recv(reactivity->data, reactivity->bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(reactivity->data, reactivity->bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    } while (reactivity->data[0] != PROGRAM_ENDS);
}

static double exchange(void *what, char word) {
    const struct reactivity *reactivity = what;
    reactivity->data[0] = word;
    uint64_t start = clock_ticks();
    MPI_Send(reactivity->data, reactivity->bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(reactivity->data, reactivity->bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return samples_us(clock_ticks() - start, 2);
}

/* All exchanges of the time count, because the threads' time slices last milliseconds in between. If the samples
   exceed the room, quantiles are those of a uniform choice (reservoir sampling; Vitter 1985, algorithm R). Least,
   greatest and mean are exact. */
struct stream {
    struct samples chosen;
    double count, sum, least, greatest;
    uint64_t state;
};

static void stream_add(struct stream *stream, double us) {
    stream->sum += us;
    stream->least = stream->count == 0 ? us : fmin(stream->least, us);
    stream->greatest = fmax(stream->greatest, us);
    stream->count++;
    stream->state = stream->state * 6364136223846793005u + 1442695040888963407u;
    double place = (double)(stream->state >> 11) / 9007199254740992.0 * stream->count; /* of 2^53 */
    if (stream->chosen.count < SAMPLES_ROOM) stream->chosen.us[stream->chosen.count++] = us;
    else if (place < SAMPLES_ROOM) stream->chosen.us[(int)place] = us;
}

static void print_without_pause(const char *name, struct reactivity *reactivity, struct program_case asked, double seconds) {
    static struct stream stream;
    if (reactivity->rank == 1) {
        answer(reactivity);
        return;
    }
    memset(&stream, 0, sizeof stream);
    double start = clock_system_s();
    stream.chosen.first_us = exchange(reactivity, PROGRAM_GOES_ON);
    while (clock_system_s() - start < seconds / 4) exchange(reactivity, PROGRAM_GOES_ON);
    for (int ends = 0; !ends;) {
        ends = stream.count + 1 >= SAMPLES_LEAST && clock_system_s() - start >= seconds;
        stream_add(&stream, exchange(reactivity, ends ? PROGRAM_ENDS : PROGRAM_GOES_ON));
    }
    struct summary summary = samples_summary(&stream.chosen);
    summary.samples = stream.count, summary.mean = stream.sum / stream.count;
    summary.min = stream.least, summary.max = stream.greatest;
    summary_print(name, asked.bytes, asked.count, &summary);
}

/* One phase of `seconds`: this rank sleeps, or both exchange. Returns the threads' work per second. */
static double turn(struct reactivity *reactivity, int exchanges, double seconds, struct samples *samples) {
    double done = workers_done(), start = clock_system_s();
    if (!exchanges) clock_sleep(seconds);
    if (exchanges && reactivity->rank == 1) answer(reactivity);
    if (exchanges && reactivity->rank == 0) {
        double due_s = start;
        for (int ends = 0; !ends;) {
            clock_sleep_until(due_s);
            ends = samples->count == SAMPLES_ROOM - 1 || clock_system_s() - start >= seconds;
            samples->us[samples->count++] = exchange(reactivity, ends ? PROGRAM_ENDS : PROGRAM_GOES_ON);
            due_s = fmax(due_s + INTERVAL_US * 1e-6, clock_system_s());
        }
    }
    return (workers_done() - done) / (clock_system_s() - start);
}

static void print_at_intervals(struct reactivity *reactivity, struct program_case asked, double seconds) {
    static struct samples samples;
    double own[2] = {0, 0}, both[2]; /* work of the threads while their rank slept, and while it exchanged */
    samples_clear(&samples);
    for (int i = 0; i < 2 * SLICES && samples.count < SAMPLES_ROOM; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        own[i % 2] += turn(reactivity, i % 2, seconds / SLICES, &samples);
        MPI_Bcast(&samples.count, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (i == 1) samples.first_us = samples.us[0];
    }
    MPI_Reduce(own, both, 2, MPI_DOUBLE, MPI_SUM, 0, MPI_COMM_WORLD);
    if (reactivity->rank == 1) return;
    struct summary summary = samples_summary(&samples);
    summary_begin(AT_INTERVALS, asked.bytes, asked.count, &summary);
    if (workers_count)
        printf(", \"share\": %.6f, \"parts\": {\"computed_alone_us_per_s\": %.1f, \"computed_beside_us_per_s\": %.1f}", both[1] / both[0],
               both[0] / SLICES, both[1] / SLICES);
    printf("}\n");
    fflush(stdout);
}

static void measure(int side, struct reactivity *reactivity, struct program_case asked, double seconds) {
    int is_beside = side == EACH || (side == ASKING) == (reactivity->rank == 0);
    int failed = !workers_start(is_beside ? (int)asked.count : 0), any_failed;
    MPI_Allreduce(&failed, &any_failed, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
    if (!any_failed) {
        print_without_pause(WITHOUT_PAUSE[side], reactivity, asked, seconds);
        if (side == EACH) print_at_intervals(reactivity, asked, seconds);
    } else if (reactivity->rank == 0) {
        static const char *const WHY = "threads cannot be started";
        missing_print(WITHOUT_PAUSE[side], asked.bytes, asked.count, WHY);
        if (side == EACH) missing_print(AT_INTERVALS, asked.bytes, asked.count, WHY);
    }
    workers_stop();
}

int main(int argc, char **argv) {
    int size, rank = program_start("reactivity", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("reactivity", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    if (size != 2) {
        fprintf(stderr, "reactivity: needs two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    compute_calibrate();
    for (int i = 2; i < argc; i++) {
        struct program_case asked = program_case("reactivity", argv[i], (struct program_case){1 << 20, MOST_THREADS});
        struct reactivity reactivity = {program_memory("reactivity", (size_t)asked.bytes + 1), (int)asked.bytes, rank};
        for (int side = EACH; side < SIDES; side++) measure(side, &reactivity, asked, seconds);
        free(reactivity.data);
    }
    return program_end(0);
}
