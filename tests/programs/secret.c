/* Ranks that stay while others search their memory. Usage: secret DIRECTORY
   Rank 0 writes the launcher's answers with the job's name and secret to DIRECTORY/answers, and keeps nothing of them.
   After an exchange of all with all it creates DIRECTORY/ready. The ranks end once DIRECTORY/over exists. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void ask(int launcher, const char *line, int file) {
    char answer[512];
    long len = 0;
    if (write(launcher, line, strlen(line)) < 0) exit(1);
    do {
        long count = read(launcher, answer + len, sizeof answer - (size_t)len);
        if (count <= 0) exit(1);
        len += count;
    } while (answer[len - 1] != '\n');
    if (write(file, answer, (size_t)len) != len) exit(1);
    explicit_bzero(answer, sizeof answer);
}

static int is_there(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return access(path, F_OK) == 0;
}

static int create(const char *directory, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", directory, name);
    return open(path, O_CREAT | O_WRONLY | O_TRUNC, 0600);
}

int main(int argc, char **argv) {
    int rank, size;
    if (strcmp(getenv("PMI_RANK"), "0") == 0) {
        int launcher = atoi(getenv("PMI_FD")), file = create(argv[1], "answers");
        ask(launcher, "cmd=get_my_kvsname\n", file);
        ask(launcher, "cmd=get kvsname=x key=canele-secret\n", file);
        close(file);
    }
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int step = 1; step < size; step++) {
        int next = (rank + step) % size, previous = (rank + size - step) % size, from = -1;
        MPI_Sendrecv(&rank, 1, MPI_INT, next, 0, &from, 1, MPI_INT, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        if (from != previous) MPI_Abort(MPI_COMM_WORLD, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) close(create(argv[1], "ready"));
    while (!is_there(argv[1], "over")) usleep(20000);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
