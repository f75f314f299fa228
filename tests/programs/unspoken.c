/* Receives from processes without any earlier message. All ranks but 0 and 1 end silently behind a shell that stays,
   so the launcher notices nothing. Rank 1 stays silent for long. Rank 0 prints a line.
   Usage: unspoken [SECONDS], the time that rank 1 is silent. */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include "expect.h"

enum { RANKS_MAX = 8 };

int main(int argc, char **argv) {
    int size, values[RANKS_MAX] = {0};
    MPI_Request requests[RANKS_MAX];
    MPI_Message message;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank > 1) _exit(0);
    if (rank == 1) {
        sleep(argc > 1 ? atoi(argv[1]) : 9);
        values[0] = 42;
        expect("MPI_Ssend", MPI_Ssend(values, 1, MPI_INT, 0, 1, MPI_COMM_WORLD), MPI_SUCCESS);
        _exit(failures != 0);
    }
    for (int from = 1; from < size; from++) MPI_Irecv(&values[from], 1, MPI_INT, from, 1, MPI_COMM_WORLD, &requests[from]);
    for (int from = 2; from < size; from++) {
        switch (from % 3) {
        case 0: expect("MPI_Probe", MPI_Probe(from, 2, MPI_COMM_WORLD, &status), MPI_ERR_PROC_ABORTED); break;
        case 1: expect("MPI_Mprobe", MPI_Mprobe(from, 2, MPI_COMM_WORLD, &message, &status), MPI_ERR_PROC_ABORTED); break;
        default: expect("MPI_Recv", MPI_Recv(&values[0], 1, MPI_INT, from, 2, MPI_COMM_WORLD, &status), MPI_ERR_PROC_ABORTED);
        }
        expect("MPI_Wait", MPI_Wait(&requests[from], &status), MPI_ERR_PROC_ABORTED);
    }
    expect("MPI_Wait for one that lives", MPI_Wait(&requests[1], &status), MPI_SUCCESS);
    failures += values[1] != 42;
    printf("%d dead of %d: %d failures\n", size - 2, size, failures);
    fflush(stdout);
    _exit(failures != 0);
}
