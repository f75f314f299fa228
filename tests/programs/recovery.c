/* A job goes on after one of its ranks has failed. Rank 1 ends by a signal, or ends without MPI_Finalize if an argument
   is given. The others learn of it, continue among themselves, and finalize. Rank 0 prints their number. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <unistd.h>

int main(int argc, char **argv) {
    enum { LOST = 1 };
    int rank, size, value = 0, code, class, one = 1, sum = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (rank == LOST && argc > 1) _exit(0);
    if (rank == LOST) raise(SIGKILL);
    code = MPI_Recv(&value, 1, MPI_INT, LOST, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Error_class(code, &class);
    if (class != MPI_ERR_PROC_ABORTED) printf("rank %d: MPI_Recv has class %d\n", rank, class);
    MPI_Group all, survivors;
    MPI_Comm comm;
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_excl(all, 1, (int[]){LOST}, &survivors);
    MPI_Comm_create_group(MPI_COMM_WORLD, survivors, 3, &comm);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, comm);
    if (rank == 0) printf("%d of %d go on\n", sum, size);
    return MPI_Finalize();
}
