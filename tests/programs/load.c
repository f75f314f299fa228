/* Sends a known number of messages once FOLDER/go exists, and ends once FOLDER/end does. Rank 0 sends to ranks 1 and 2, rank 1
 * to rank 0. Then rank 2 waits for rank 3, which computes. Some messages stay without a receive at rank 3. Rank 0 has posted
 * receives that get no message. Usage: load FOLDER */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

enum { NEAR = 5000, NEAR_BYTES = 100, BACK = 30, BACK_BYTES = 1000000, FAR = 200, FAR_BYTES = 40, EARLY = 7, LATE = 3 };

static int rank;
static char data[BACK_BYTES];

static int exists(const char *folder, const char *name) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    return !access(path, F_OK);
}

static void make(const char *folder) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%d", folder, rank);
    FILE *file = fopen(path, "w");
    if (file)
        fclose(file);
}

static void send_all(int count, int bytes, int to) {
    for (int i = 0; i < count; i++)
        MPI_Send(data, bytes, MPI_CHAR, to, 1, MPI_COMM_WORLD);
}

static void receive_all(int count, int bytes, int from) {
    for (int i = 0; i < count; i++)
        MPI_Recv(data, bytes, MPI_CHAR, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

int main(int argc, char **argv) {
    if (argc != 2)
        return 2;
    const char *folder = argv[1];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Barrier(MPI_COMM_WORLD);
    make(folder);
    while (!exists(folder, "go"))
        usleep(1000);
    MPI_Request posted[LATE];
    if (rank == 0) {
        for (int i = 0; i < LATE; i++)
            MPI_Irecv(&data[i], 1, MPI_CHAR, 3, 100 + i, MPI_COMM_WORLD, &posted[i]);
        send_all(NEAR, NEAR_BYTES, 1);
        receive_all(BACK, BACK_BYTES, 1);
        send_all(FAR, FAR_BYTES, 2);
    } else if (rank == 1) {
        receive_all(NEAR, NEAR_BYTES, 0);
        send_all(BACK, BACK_BYTES, 0);
    } else if (rank == 2) {
        for (int i = 1; i < EARLY; i++)
            MPI_Send(data, 8, MPI_CHAR, 3, 2, MPI_COMM_WORLD);
        MPI_Send(data, 8, MPI_CHAR, 3, 4, MPI_COMM_WORLD);
        receive_all(FAR, FAR_BYTES, 0);
        MPI_Recv(data, 1, MPI_CHAR, 3, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 3) {
        /* The last of the messages of rank 2 is received, so that the others have arrived. */
        MPI_Recv(data, 8, MPI_CHAR, 2, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    while (rank != 2 && !exists(folder, "end"))
        usleep(1000);
    if (rank == 3) {
        for (int i = 0; i < LATE; i++)
            MPI_Send(data, 1, MPI_CHAR, 0, 100 + i, MPI_COMM_WORLD);
        MPI_Send(data, 1, MPI_CHAR, 2, 3, MPI_COMM_WORLD);
        for (int i = 1; i < EARLY; i++)
            MPI_Recv(data, 8, MPI_CHAR, 2, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0)
        MPI_Waitall(LATE, posted, MPI_STATUSES_IGNORE);
    MPI_Finalize();
    return 0;
}
