/* Hangs in a way that the first argument names, with a file for each rank that says it has begun:
 *   ring        each rank receives from the next
 *   barrier     the last rank does not enter a barrier, and computes; `late FOLDER` of it enters once FOLDER/go exists
 *   probe       rank 0 probes for any rank with tag 7, the others receive from rank 0
 *   lock        rank 0 holds the lock of its window, and receives; the others want the lock
 *   send        rank 0 sends synchronously to rank 1, which receives in another communicator
 *   threads     two threads of each rank receive from the next
 * Usage: hang WAY FOLDER */
#define _GNU_SOURCE
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int rank, size;

static void begun(const char *folder) {
    char name[4096];
    snprintf(name, sizeof name, "%s/%d", folder, rank);
    FILE *file = fopen(name, "w");
    if (file)
        fclose(file);
}

static void *receive(void *tag) {
    int value;
    MPI_Recv(&value, 1, MPI_INT, (rank + 1) % size, *(int *)tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    return NULL;
}

int main(int argc, char **argv) {
    if (argc != 3)
        return 2;
    const char *way = argv[1], *folder = argv[2];
    int provided, value = 0;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm pair;
    MPI_Comm_dup(MPI_COMM_WORLD, &pair);
    MPI_Comm_set_name(pair, "pair");
    /* Shared segments of collectives exist after some of them. */
    for (int i = 0; i < 8; i++)
        MPI_Barrier(MPI_COMM_WORLD);
    begun(folder);
    if (!strcmp(way, "ring")) {
        int tag = 5;
        receive(&tag);
    } else if (!strcmp(way, "barrier")) {
        char go[4096];
        snprintf(go, sizeof go, "%s/go", folder);
        while (rank == size - 1 && access(go, F_OK))
            usleep(10000);
        MPI_Barrier(MPI_COMM_WORLD);
    } else if (!strcmp(way, "probe")) {
        if (rank == 0)
            MPI_Probe(MPI_ANY_SOURCE, 7, pair, MPI_STATUS_IGNORE);
        else
            MPI_Recv(&value, 1, MPI_INT, 0, 3, pair, MPI_STATUS_IGNORE);
    } else if (!strcmp(way, "lock")) {
        MPI_Win window;
        MPI_Win_create(&value, sizeof value, sizeof value, MPI_INFO_NULL, MPI_COMM_WORLD, &window);
        if (rank == 0)
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0) {
            MPI_Recv(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        } else {
            MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, window);
            MPI_Win_flush(0, window);
        }
    } else if (!strcmp(way, "send")) {
        if (rank == 0)
            MPI_Ssend(&value, 1, MPI_INT, 1, 9, MPI_COMM_WORLD);
        else
            MPI_Recv(&value, 1, MPI_INT, rank - 1, 9, pair, MPI_STATUS_IGNORE);
    } else if (!strcmp(way, "threads")) {
        pthread_t other;
        int tags[2] = {1, 2};
        pthread_create(&other, NULL, receive, &tags[1]);
        receive(&tags[0]);
        pthread_join(other, NULL);
    }
    MPI_Finalize();
    return 0;
}
