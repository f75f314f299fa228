/* A master that hands out tasks to workers. A worker asks for one, does it, and sends the result along with its next request. */
#ifndef CANELE_BENCH_WORKERS_H
#define CANELE_BENCH_WORKERS_H

#include "program.h"

enum { WORKERS_ASK = 1, WORKERS_TASK };

/* Tasks are numbered from 1 on. A result may have no bytes. */
struct workers {
    int master, tasks;
    int task_bytes, result_bytes;
    void *state;
    void (*make)(void *state, int number, char *task);
    void (*work)(void *state, const char *task, char *result);
    void (*take)(void *state, const char *result);
};

static inline char *workers_memory(int bytes) {
    char *memory = malloc((size_t)bytes + 1);
    if (!memory) {
        fprintf(stderr, "workers: no memory for %d bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return memory;
}

/* Hands out tasks until none is left, and takes their results. */
static inline void workers_serve(const struct workers *workers, int size) {
    char *task = workers_memory(workers->task_bytes), *result = workers_memory(workers->result_bytes);
    for (int left = size - 1, given = 0; left > 0;) {
        MPI_Status status;
        int length;
        MPI_Recv(result, workers->result_bytes, MPI_CHAR, MPI_ANY_SOURCE, WORKERS_ASK, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &length);
        int ends = given == workers->tasks;
        if (!ends) workers->make(workers->state, ++given, task);
        MPI_Send(task, ends ? 0 : workers->task_bytes, MPI_CHAR, status.MPI_SOURCE, WORKERS_TASK, MPI_COMM_WORLD);
        if (length > 0) workers->take(workers->state, result);
        left -= ends;
    }
    free(task);
    free(result);
}

/* Asks for tasks and does them. Returns how many. */
static inline int workers_work(const struct workers *workers) {
    char *task = workers_memory(workers->task_bytes), *result = workers_memory(workers->result_bytes);
    for (int done = 0;; done++) {
        MPI_Status status;
        int length;
        MPI_Send(result, done > 0 ? workers->result_bytes : 0, MPI_CHAR, workers->master, WORKERS_ASK, MPI_COMM_WORLD);
        MPI_Recv(task, workers->task_bytes, MPI_CHAR, workers->master, WORKERS_TASK, MPI_COMM_WORLD, &status);
        MPI_Get_count(&status, MPI_CHAR, &length);
        if (length == 0) {
            free(task);
            free(result);
            return done;
        }
        workers->work(workers->state, task, result);
    }
}

/* Prints a time, and how many tasks of so many `things` each rank has done. */
static inline void workers_print(const char *operation, struct program_case asked, double seconds, const char *things, int things_per_task,
                                 const int *done, int size) {
    static struct samples samples;
    samples_clear(&samples);
    samples.us[samples.count++] = samples.first_us = 1e6 * seconds;
    struct summary summary = samples_summary(&samples);
    summary_begin(operation, asked.bytes, asked.count, &summary);
    printf(", \"parts\": {");
    for (int rank = 0; rank < size; rank++) printf("%s\"%s_of_rank_%d\": %d", rank ? ", " : "", things, rank, things_per_task * done[rank]);
    printf("}}\n");
    fflush(stdout);
}

#endif
