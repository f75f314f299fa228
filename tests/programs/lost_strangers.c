/* One of two sites is lost for good. Its ranks are the second half of the job as seen from the other site. Only the
   first ranks of both sites have exchanged messages. Rank 0 creates the file that BEGUN names when the site may be
   lost. Each site prints the time that its ranks spent in MPI_Finalize, which only has to notice the others' loss. */
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, size, value = 0, code;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int half = size / 2, first = rank / half * half, far = half - first;
    if (rank == first) {
        MPI_Sendrecv(&value, 1, MPI_INT, far, 1, &code, 1, MPI_INT, far, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        const char *begun = getenv("BEGUN");
        if (rank == 0 && begun) close(open(begun, O_CREAT | O_WRONLY, 0666));
        code = MPI_Recv(&value, 1, MPI_INT, far, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Error_class(code, &value);
        if (value != MPI_ERR_PROC_ABORTED) fprintf(stderr, "MPI_Recv: class %d\n", value);
        for (int near = first + 1; near < first + half; near++) MPI_Send(&value, 1, MPI_INT, near, 3, MPI_COMM_WORLD);
    } else {
        MPI_Recv(&value, 1, MPI_INT, first, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    double begin = MPI_Wtime();
    code = MPI_Finalize();
    printf("rank %d: %d s in MPI_Finalize, error %d\n", rank, (int)(MPI_Wtime() - begin), code);
    return code;
}
