/* What probes say of a process that has died: rank 1 ends without a word, behind a shell that stays, so
   that the launcher sees nothing amiss. Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <unistd.h>

static int failures;

static void expect(const char *what, int code, int expected) {
    int class;
    MPI_Error_class(code, &class);
    if (class == expected) return;
    failures++;
    fprintf(stderr, "%s: class %d where %d was expected\n", what, class, expected);
}

int main(int argc, char **argv) {
    int rank, value = 0, flag = 0, code;
    MPI_Message message;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 1) {
        MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &status);
        _exit(0);
    }
    MPI_Probe(1, 1, MPI_COMM_WORLD, &status);
    MPI_Ssend(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    expect("MPI_Probe", MPI_Probe(1, 2, MPI_COMM_WORLD, &status), MPI_ERR_PROC_ABORTED);
    expect("MPI_Mprobe", MPI_Mprobe(1, 2, MPI_COMM_WORLD, &message, &status), MPI_ERR_PROC_ABORTED);
    expect("MPI_Iprobe", MPI_Iprobe(1, 2, MPI_COMM_WORLD, &flag, &status), MPI_ERR_PROC_ABORTED);
    expect("MPI_Improbe", MPI_Improbe(1, 2, MPI_COMM_WORLD, &flag, &message, &status), MPI_ERR_PROC_ABORTED);
    /* What it had sent is still there. */
    code = MPI_Iprobe(1, 1, MPI_COMM_WORLD, &flag, &status);
    expect("MPI_Iprobe of a message", code, MPI_SUCCESS);
    failures += !flag;
    expect("MPI_Recv", MPI_Recv(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &status), MPI_SUCCESS);
    printf("probes of the dead: %d failures\n", failures);
    fflush(stdout);
    _exit(failures != 0);
}
