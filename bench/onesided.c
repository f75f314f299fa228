/* One-sided operations, each with its flush, from the first of two ranks on a window of the second. Prints the rows of
   `onesided.h`. Usage: onesided SECONDS_PER_OPERATION SIZE...

   The second rank waits in MPI_Recv, or computes for five times the seconds without a call. Then `share` is what it keeps
   of its computing, compared with computing while nobody calls, in alternation. After each row the first rank sends what
   the window must hold, and the second compares. */
#include "onesided.h"
#include "compute.h"
#include "program.h"

enum { MODEL_TAG, SEEN_TAG, SLICES = 3, COMPUTING_FACTOR = 5, MADE = 4 };

struct job {
    uint64_t *out, *in, *model; /* data, results, and what the window holds */
    uint64_t *memory;           /* of the window */
    MPI_Win handle;
    long bytes, room;
    double seconds;
    int rank, operation, window;
    uint64_t calls; /* of this row */
};

static void operate(void *what, char word) {
    struct job *job = what;
    MPI_Win window = job->handle;
    int bytes = (int)job->bytes, words = bytes / ONESIDED_WORD;
    (void)word;
    job->calls++;
    if (job->operation == PUT) MPI_Put(job->out, bytes, MPI_CHAR, 1, 0, bytes, MPI_CHAR, window);
    if (job->operation == GET) MPI_Get(job->in, bytes, MPI_CHAR, 1, 0, bytes, MPI_CHAR, window);
    if (job->operation == ACCUMULATE)
        MPI_Accumulate(job->out, words, MPI_UINT64_T, 1, 0, words, MPI_UINT64_T, MPI_SUM, window);
    if (job->operation == FETCH || job->operation == FETCH_PACED)
        MPI_Fetch_and_op(job->out, job->in, MPI_UINT64_T, 1, 0, MPI_SUM, window);
    for (int i = 0; job->operation == PUTS && i < ONESIDED_PUTS; i++)
        MPI_Put(job->out + i, ONESIDED_WORD, MPI_CHAR, 1, i * ONESIDED_WORD, ONESIDED_WORD, MPI_CHAR, window);
    MPI_Win_flush(1, window);
}

/* Changes the model as the calls have changed the window. Returns true if the last call's result was right. */
static int apply(const struct job *job) {
    uint64_t *model = job->model;
    long words = job->bytes / ONESIDED_WORD;
    switch (job->operation) {
    case PUT: memcpy(model, job->out, (size_t)job->bytes); return 1;
    case PUTS: memcpy(model, job->out, ONESIDED_PUTS * ONESIDED_WORD); return 1;
    case GET: return memcmp(model, job->in, (size_t)job->bytes) == 0;
    case ACCUMULATE:
        for (long i = 0; i < words; i++) model[i] += job->calls * job->out[i];
        return 1;
    default: model[0] += job->calls * job->out[0]; return job->in[0] == model[0] - job->out[0];
    }
}

/* One phase of a target that computes: nobody calls, or the first rank does. It begins later and ends earlier, since the
   ranks do not leave the barrier at once. Returns the second rank's work per second. */
static double slice(struct job *job, int calls, struct samples *samples) {
    double length_s = job->seconds * COMPUTING_FACTOR, apart_s = fmin(0.02, length_s / 5), done = 0;
    double begin_s = clock_system_s(), end_s = begin_s + length_s;
    int most = samples->count + SAMPLES_ROOM / SLICES;
    if (job->rank == 0) clock_sleep_until(calls ? begin_s + apart_s : end_s);
    for (; job->rank == 1 && clock_system_s() < end_s; done += 10) compute_us(10);
    for (int i = 0; job->rank == 0 && calls && (i == 0 || clock_system_s() < end_s - apart_s); i++) {
        if (job->operation == FETCH_PACED) clock_sleep_until(begin_s + apart_s + 1e-6 * ONESIDED_PACE_US * i);
        uint64_t start = clock_ticks();
        operate(job, PROGRAM_GOES_ON);
        if (samples->count < most) samples->us[samples->count++] = samples_us(clock_ticks() - start, 1);
    }
    return done / (clock_system_s() - begin_s);
}

/* Returns the share of its computing that the second rank kept. */
static double beside_computing(struct job *job, struct samples *samples) {
    double work[2] = {0, 0};
    samples_clear(samples);
    for (int i = 0; i < 2 * SLICES; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        work[i % 2] += slice(job, i % 2, samples);
        if (i == 1) samples->first_us = samples->us[0];
    }
    return work[1] / work[0];
}

/* Measures a row, and prints it if the window holds what it must. */
static void measure(struct job *job, struct samples *samples) {
    int computes = job->window == COMPUTING, right = 1;
    double seen[2] = {1, 0}; /* the second rank saw what it must; the share */
    job->calls = 0;
    for (long i = 0; i < job->room / ONESIDED_WORD; i++) job->out[i] += 0x9e3779b97f4a7c15u;
    if (computes) seen[1] = beside_computing(job, samples);
    if (job->rank == 1) {
        MPI_Recv(job->model, (int)job->room, MPI_CHAR, 0, MODEL_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Win_sync(job->handle);
        seen[0] = memcmp(job->model, job->memory, (size_t)job->room) == 0;
        MPI_Send(seen, 2, MPI_DOUBLE, 0, SEEN_TAG, MPI_COMM_WORLD);
        return;
    }
    double pace_us = job->operation == FETCH_PACED ? ONESIDED_PACE_US : 0;
    if (!computes) onesided_take(samples, job->seconds, (struct onesided_series){operate, job, pace_us, 0, 1});
    right = apply(job);
    MPI_Send(job->model, (int)job->room, MPI_CHAR, 1, MODEL_TAG, MPI_COMM_WORLD);
    MPI_Recv(seen, 2, MPI_DOUBLE, 1, SEEN_TAG, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (!right || seen[0] != 1) missing_print(ONESIDED_NAMES[job->operation], job->bytes, job->window, "the result came out wrong");
    else onesided_print(job->operation, job->window, job->bytes, samples, computes ? &seen[1] : NULL);
}

/* All ranks make windows and free them, at once. */
static double make(void *what, char word) {
    struct job *job = what;
    MPI_Bcast(&word, 1, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t start = clock_ticks();
    for (int i = 0; i < MADE; i++) {
        MPI_Win window;
        void *base = job->in;
        if (job->window == ALLOCATED) MPI_Win_allocate(job->bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &window);
        else MPI_Win_create(base, job->bytes, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        MPI_Win_free(&window);
    }
    job->calls = word;
    return samples_us(clock_ticks() - start, MADE);
}

static void measure_making(struct job *job, struct samples *samples) {
    if (job->rank == 0) {
        samples_take(samples, job->seconds, make, job);
        onesided_print(job->operation, job->window, job->bytes, samples, NULL);
        return;
    }
    do make(job, 0);
    while (job->calls != PROGRAM_ENDS);
}

/* The rows of one window; there is no other meanwhile. */
static void measure_window(struct job job, int is_created) {
    static struct samples samples;
    size_t room = (size_t)job.room;
    char *own = program_memory("onesided", room);
    job.out = (uint64_t *)program_memory("onesided", room);
    job.in = (uint64_t *)program_memory("onesided", room);
    job.model = (uint64_t *)program_memory("onesided", room);
    job.memory = (uint64_t *)own;
    if (is_created) MPI_Win_create(own, job.room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &job.handle);
    else MPI_Win_allocate(job.room, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &job.memory, &job.handle);
    memcpy(job.memory, job.model, room);
    MPI_Win_lock_all(0, job.handle);
    MPI_Win_sync(job.handle);
    MPI_Barrier(MPI_COMM_WORLD);
    for (job.operation = 0; job.operation < ONESIDED_OPERATIONS; job.operation++)
        for (job.window = 0; job.window < ONESIDED_WINDOWS; job.window++) {
            if ((job.window != ALLOCATED) != is_created || !onesided_has(job.operation, job.window, job.bytes)) continue;
            if (job.operation == MAKE) measure_making(&job, &samples);
            else measure(&job, &samples);
        }
    MPI_Win_unlock_all(job.handle);
    MPI_Win_free(&job.handle);
    free(job.model);
    free(job.in);
    free(job.out);
    free(own);
}

int main(int argc, char **argv) {
    int size, rank = program_start("onesided", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("onesided", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    if (size != 2) {
        fprintf(stderr, "onesided: needs two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    compute_calibrate();
    for (int i = 2; i < argc; i++) {
        long bytes = onesided_bytes("onesided", argv[i]);
        long room = onesided_moved(bytes == ONESIDED_WORD ? PUTS : PUT, bytes);
        for (int is_created = 0; is_created < 2; is_created++)
            measure_window((struct job){.bytes = bytes, .room = room, .seconds = seconds, .rank = rank}, is_created);
    }
    return program_end(0);
}
