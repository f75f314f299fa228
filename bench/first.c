/* The start of a job and its first messages: MPI_Init, half of the first exchange between the first rank and the last,
   and both together as the program waits for them. A job has one first exchange, so there is one size.
   Usage: first SECONDS SIZE; the time is not used. */
#include "program.h"

/* The line of an operation with one sample. */
static void print(const char *operation, long bytes, double us) {
    struct summary once = {1, us, us, us, us, us, us, us, us};
    summary_print(operation, bytes, 0, &once);
}

int main(int argc, char **argv) {
    double begun = clock_system_s();
    int rank = 0, size = program_join("first", 2, &argc, &argv, &rank);
    double joined = clock_system_s();
    if (argc != 3) {
        if (rank == 0) fprintf(stderr, "first: needs SECONDS and one SIZE, for a job has one first exchange\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    long bytes = (long)program_number("first", "size", argv[2], PROGRAM_MOST_BYTES);
    char *out = program_memory("first", (size_t)bytes), *in = program_memory("first", (size_t)bytes);
    out[0] = 1;
    double sent = clock_system_s();
    if (rank == 0) {
        MPI_Send(out, (int)bytes, MPI_CHAR, size - 1, 0, MPI_COMM_WORLD);
        MPI_Recv(in, (int)bytes, MPI_CHAR, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (rank == size - 1) {
        MPI_Recv(in, (int)bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(in, (int)bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    }
    double answered = clock_system_s(), init_us = (joined - begun) * 1e6, longest_us;
    int failed = rank == 0 && memcmp(in, out, (size_t)bytes) != 0;
    if (failed) fprintf(stderr, "first: %ld bytes came back changed\n", bytes);
    MPI_Reduce(&init_us, &longest_us, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
    program_introduce("first", rank, size);
    if (rank == 0) {
        print("MPI_Init", bytes, longest_us);
        print("half of the first exchange", bytes, (answered - sent) * 5e5);
        print("both", bytes, (joined - begun + answered - sent) * 1e6);
    }
    free(out);
    free(in);
    return program_end(failed);
}
