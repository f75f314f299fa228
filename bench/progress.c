/* Progress while the application computes and makes no calls. Prints a line of JSON for each case and operation.
   Usage: progress SECONDS_PER_OPERATION SIZE/COMPUTING_US...

   A message goes from the first to the last rank. One of them computes while the other waits for it to end. A
   collective is begun by all ranks; all compute, or all but the last, which waits. Measured are two waits: that of
   ranks that only wait, from the start, and that of ranks that have computed, afterwards. Both are the slowest
   rank's. Without progress, the first is as long as computing, or the second as long as the transfer. A size of 0 is
   a barrier. Others are a message and an allreduce of that many bytes. */
#include "compute.h"
#include "program.h"

enum { MESSAGE, ALLREDUCE, BARRIER };
enum { FIRST_COMPUTES, LAST_COMPUTES, ALL_COMPUTE, ALL_BUT_LAST };

struct operation {
    const char *waits, *after; /* names for ranks that only wait, and for those that wait afterwards; null if there are none */
    int kind, who;
};

static const struct operation OPERATIONS[] = {
    {"sender computes, receiver waits", "sender computes, waits after", MESSAGE, FIRST_COMPUTES},
    {"receiver computes, sender waits", "receiver computes, waits after", MESSAGE, LAST_COMPUTES},
    {NULL, "iallreduce, all wait after", ALLREDUCE, ALL_COMPUTE},
    {"iallreduce, one only waits", NULL, ALLREDUCE, ALL_BUT_LAST},
    {NULL, "ibarrier, all wait after", BARRIER, ALL_COMPUTE},
    {"ibarrier, one only waits", NULL, BARRIER, ALL_BUT_LAST},
};
enum { OPERATIONS_COUNT = sizeof OPERATIONS / sizeof *OPERATIONS };

struct job {
    char *in, *out;
    int bytes, rank, last;
    double computing_us;
};

static int takes_part(const struct job *job, int kind) { return kind != MESSAGE || job->rank == 0 || job->rank == job->last; }

static int computes(const struct job *job, int who) {
    if (who == FIRST_COMPUTES) return job->rank == 0;
    if (who == LAST_COMPUTES) return job->rank == job->last;
    return who == ALL_COMPUTE || job->rank != job->last;
}

/* Returns the error of the call, if any. A library may lack it. */
static int start(const struct job *job, int kind, MPI_Request *request) {
    *request = MPI_REQUEST_NULL;
    if (kind == BARRIER) return MPI_Ibarrier(MPI_COMM_WORLD, request);
    if (kind == ALLREDUCE)
        return MPI_Iallreduce(job->out, job->in, job->bytes, MPI_UNSIGNED_CHAR, MPI_BXOR, MPI_COMM_WORLD, request);
    /* Synchronous: it ends when the receive has begun. The end of a short standard send would not show that. */
    if (job->rank == 0) return MPI_Issend(job->out, job->bytes, MPI_CHAR, job->last, 0, MPI_COMM_WORLD, request);
    return MPI_Irecv(job->in, job->bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, request);
}

/* All ranks begin together and do it once. All get the greatest waits over the ranks, during computing and after it.
   Returns the error of a call, if there was one on any rank. */
static int once(const struct job *job, const struct operation *operation, double times_us[2]) {
    double own[3] = {0, 0, 0}, all[3]; /* wait, wait afterwards, error */
    MPI_Request request;
    MPI_Barrier(MPI_COMM_WORLD);
    if (takes_part(job, operation->kind)) {
        uint64_t begin = clock_ticks();
        own[2] = start(job, operation->kind, &request);
        if (own[2] == MPI_SUCCESS && computes(job, operation->who)) {
            compute_us(job->computing_us);
            begin = clock_ticks();
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            own[1] = samples_us(clock_ticks() - begin, 1);
        } else if (own[2] == MPI_SUCCESS) {
            MPI_Wait(&request, MPI_STATUS_IGNORE);
            own[0] = samples_us(clock_ticks() - begin, 1);
        }
    }
    /* No wait is shorter than the clock's resolution. */
    for (int i = 0; i < 2; i++) own[i] = fmax(own[i], clock_seconds(bench_clock.resolution) * 1e6);
    MPI_Allreduce(own, all, 3, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    times_us[0] = all[0], times_us[1] = all[1];
    return (int)all[2];
}

static void print(const struct operation *operation, struct program_case asked, struct samples *samples) {
    const char *names[] = {operation->waits, operation->after};
    for (int i = 0; i < 2; i++) {
        if (!names[i]) continue;
        struct summary summary = samples_summary(&samples[i]);
        summary_print(names[i], asked.bytes, asked.count, &summary);
    }
}

static void measure(const struct job *job, const struct operation *operation, struct program_case asked, double seconds) {
    static struct samples samples[2];
    double times_us[2], begin = clock_system_s();
    for (int i = 0; i < 2; i++) samples_clear(&samples[i]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int error = once(job, operation, times_us), ends = error != MPI_SUCCESS;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
    if (ends && job->rank == 0) {
        char why[MPI_MAX_ERROR_STRING];
        int length;
        MPI_Error_string(error, why, &length);
        if (operation->waits) missing_print(operation->waits, asked.bytes, asked.count, why);
        if (operation->after) missing_print(operation->after, asked.bytes, asked.count, why);
    }
    for (int i = 0; i < 2; i++) samples[i].first_us = times_us[i];
    while (!ends) {
        once(job, operation, times_us);
        for (int i = 0; i < 2; i++) samples[i].us[samples[i].count++] = times_us[i];
        int count = samples[0].count;
        ends = count == SAMPLES_ROOM || (count >= SAMPLES_LEAST && clock_system_s() - begin >= seconds);
        MPI_Bcast(&ends, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    if (error == MPI_SUCCESS && job->rank == 0) print(operation, asked, samples);
}

int main(int argc, char **argv) {
    int size, failed = 0, rank = program_start("progress", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("progress", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    compute_calibrate();
    for (int i = 2; i < argc; i++) {
        struct program_case asked = program_case("progress", argv[i], (struct program_case){PROGRAM_MOST_BYTES, 10000000});
        struct job job = {program_memory("progress", (size_t)asked.bytes + 1), program_memory("progress", (size_t)asked.bytes + 1),
                          (int)asked.bytes, rank, size - 1, (double)asked.count};
        char *sent = program_memory("progress", (size_t)asked.bytes + 1);
        for (int operation = 0; operation < OPERATIONS_COUNT; operation++) {
            int kind = OPERATIONS[operation].kind;
            if ((kind == BARRIER) != (asked.bytes == 0)) continue;
            memset(job.in, 0x55, (size_t)asked.bytes);
            measure(&job, &OPERATIONS[operation], asked, seconds);
            if (kind == MESSAGE && rank == size - 1 && memcmp(job.in, sent, (size_t)asked.bytes)) {
                fprintf(stderr, "progress: other came than was sent\n");
                failed = 1;
            }
        }
        free(job.in);
        free(job.out);
        free(sent);
    }
    return program_end(failed);
}
