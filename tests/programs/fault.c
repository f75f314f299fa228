/* A rank that fails while the others are blocked in a collective. Usage: fault WHAT [VALUE] IDS
   WHAT: signal NUMBER, exit CODE, abort CODE, return (without MPI_Finalize), hang.
   Every rank has a child in a session of its own. Both append their process ids to the file IDS, whose modification
   time becomes the time of the failure. */
#include <fcntl.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

static void write_id(const char *path) {
    FILE *file = fopen(path, "a");
    fprintf(file, "%d\n", (int)getpid());
    fclose(file);
}

int main(int argc, char **argv) {
    const char *what = argv[1];
    int rank, size, value = argc > 3 ? atoi(argv[2]) : 0;
    const struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    write_id(argv[argc - 1]);
    if (fork() == 0) {
        setsid();
        write_id(argv[argc - 1]);
        pause();
    }
    double sum = 0;
    for (int i = 0; i < 20; i++) MPI_Allreduce(&(double){rank}, &sum, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    if (rank == size / 2) {
        usleep(200 * 1000);
        utimensat(AT_FDCWD, argv[argc - 1], NULL, 0);
        if (strcmp(what, "signal") == 0 && value == SIGSEGV) *(volatile int *)8 = 1;
        if (strcmp(what, "signal") == 0) raise(value);
        if (strcmp(what, "exit") == 0) exit(value);
        if (strcmp(what, "abort") == 0) MPI_Abort(MPI_COMM_WORLD, value);
        if (strcmp(what, "return") == 0) return 0;
        sleep(60);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
