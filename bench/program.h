/* Common parts of the MPI programs: start, description of the job, end. */
#ifndef CANELE_BENCH_PROGRAM_H
#define CANELE_BENCH_PROGRAM_H

#include <mpi.h>
#include <unistd.h>

#include "samples.h"

/* Starts MPI on at least so many ranks. All programs use MPI_THREAD_MULTIPLE. Returns the number of ranks. */
static inline int program_join(const char *program, int least, int *argc, char ***argv, int *rank) {
    int provided, size;
    MPI_Init_thread(argc, argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size < least) {
        fprintf(stderr, "%s: needs %d ranks at least\n", program, least);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return size;
}

/* Calibrates the clock, and prints the first line. */
static inline void program_introduce(const char *program, int rank, int size) {
    int length;
    char hosts[2][256] = {"", ""}, library[MPI_MAX_LIBRARY_VERSION_STRING];
    clock_calibrate();
    gethostname(hosts[0], sizeof hosts[0] - 1);
    int last = size - 1;
    MPI_Request sent;
    if (rank == last) MPI_Isend(hosts[0], sizeof hosts[0], MPI_CHAR, 0, 9, MPI_COMM_WORLD, &sent);
    if (rank == 0) {
        MPI_Recv(hosts[1], sizeof hosts[1], MPI_CHAR, last, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Get_library_version(library, &length);
        clock_check(0.02);
        program_print(program, library, size, hosts[0], hosts[1]);
    }
    if (rank == last) MPI_Wait(&sent, MPI_STATUS_IGNORE);
}

/* Both. Returns the rank. */
static inline int program_start_on(const char *program, int least, int *argc, char ***argv, int *size) {
    int rank;
    *size = program_join(program, least, argc, argv, &rank);
    program_introduce(program, rank, *size);
    return rank;
}

static inline int program_start(const char *program, int *argc, char ***argv, int *size) {
    return program_start_on(program, 2, argc, argv, size);
}

/* Ends MPI. A job with a wrong result aborts with its code. All ranks meet first: MPICH 5.0.2 does not always tell a
   sender that its message has arrived once the receiver waits in MPI_Finalize. */
static inline int program_end(int failed) {
    if (failed) MPI_Abort(MPI_COMM_WORLD, failed);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}

#endif
