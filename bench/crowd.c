/* Barrier and 8-byte allreduce on all ranks, a line of JSON each. Usage: crowd SECONDS_PER_OPERATION

   As Torres & Kofuji measure: 50 operations are timed together, after three such batches of warm-up; each
   rank makes its own statistics of the batches, and what is printed is the greatest over the ranks. */
#include "program.h"

enum { CALLS = 50, WARM = 3, MOST_BATCHES = 1000 };

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

int main(int argc, char **argv) {
    static struct samples samples;
    int size, rank = program_start("crowd", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("crowd", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 1;
    for (int reduces = 0; reduces < 2; reduces++) {
        samples.first_us = batch(reduces, 1);
        double start = clock_system_s();
        for (int warm = 0; warm < WARM; warm++) batch(reduces, CALLS);
        double batches = seconds / ((clock_system_s() - start) / WARM);
        batches = batches < 10 ? 10 : batches > MOST_BATCHES ? MOST_BATCHES : batches;
        MPI_Bcast(&batches, 1, MPI_DOUBLE, 0, MPI_COMM_WORLD);
        for (samples.count = 0; samples.count < (int)batches; samples.count++)
            samples.us[samples.count] = batch(reduces, CALLS);
        struct summary own = samples_summary(&samples), greatest;
        MPI_Reduce(&own, &greatest, sizeof own / sizeof(double), MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0) summary_print(reduces ? "allreduce" : "barrier", reduces ? 8 : 0, &greatest);
    }
    return program_end(0);
}
