/* Barrier and 8-byte allreduce on all ranks, a line of JSON each. Usage: crowd SECONDS_PER_OPERATION

   As Torres & Kofuji measure: 50 operations are timed together, after three such batches of warm-up; each
   rank makes its own statistics of the batches, and what is printed is the greatest over the ranks. Fewer
   are timed together where 50 would take too long, which rank 0 decides for all. */
#include "program.h"

enum { MOST_CALLS = 50, WARM = 3, MOST_BATCHES = 1000 };

static double batch(int reduces, int calls) {
    double in = 1, out;
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t start = clock_ticks();
    for (int call = 0; call < calls; call++) {
        if (reduces) MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
        else MPI_Barrier(MPI_COMM_WORLD);
    }
    return samples_us(clock_ticks() - start, calls);
}

static int within(double number, int least, int most) {
    return number < least ? least : number > most ? most : (int)number;
}

static void measure(int reduces, double seconds, struct samples *samples) {
    samples_clear(samples);
    samples->first_us = batch(reduces, 1);
    double each_s = batch(reduces, WARM) * 1e-6;
    int calls = within(seconds / WARM / each_s, 1, MOST_CALLS);
    MPI_Bcast(&calls, 1, MPI_INT, 0, MPI_COMM_WORLD);
    double start = clock_system_s();
    for (int warm = 0; warm < WARM; warm++) batch(reduces, calls);
    int batches = within(seconds / ((clock_system_s() - start) / WARM), SAMPLES_LEAST, MOST_BATCHES);
    MPI_Bcast(&batches, 1, MPI_INT, 0, MPI_COMM_WORLD);
    for (; samples->count < batches; samples->count++) samples->us[samples->count] = batch(reduces, calls);
}

int main(int argc, char **argv) {
    static struct samples samples;
    int size, rank = program_start("crowd", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("crowd", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 1;
    for (int reduces = 0; reduces < 2; reduces++) {
        measure(reduces, seconds, &samples);
        struct summary own = samples_summary(&samples), greatest;
        MPI_Reduce(&own, &greatest, sizeof own / sizeof(double), MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) summary_print(reduces ? "allreduce" : "barrier", reduces ? 8 : 0, 0, &greatest);
    }
    return program_end(0);
}
