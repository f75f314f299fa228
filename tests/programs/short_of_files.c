// A rank whose open files are used up when a neighbour first sends to it: NAME SECONDS. Rank 0 gives them back after so long.
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

int main(int argc, char **argv) {
    int rank, word = 7, count = 0;
    static int files[1 << 16];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (argc != 2) MPI_Abort(MPI_COMM_WORLD, 2);
    if (rank == 0) {
        struct rlimit limit;
        getrlimit(RLIMIT_NOFILE, &limit);
        if (limit.rlim_cur > 1 << 16) limit.rlim_cur = 1 << 16;
        setrlimit(RLIMIT_NOFILE, &limit);
        while ((files[count] = dup(0)) >= 0) count++;
        double end = MPI_Wtime() + atof(argv[1]);
        int flag = 0;
        while (!flag && MPI_Wtime() < end) MPI_Iprobe(1, 0, MPI_COMM_WORLD, &flag, MPI_STATUS_IGNORE);
        while (count > 0) close(files[--count]);
        MPI_Recv(&word, 1, MPI_INT, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        printf("arrived%s\n", flag ? " early" : "");
        fflush(stdout);
    } else {
        MPI_Send(&word, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    MPI_Finalize();
    return 0;
}
