/* Messages longer than an int counts, and a broadcast, between two ranks. Samples of the data are checked. Prints one
   line. */
#include <limits.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "check.h"

enum { ROW = 1 << 20 };
static const MPI_Count bytes = ((MPI_Count)1 << 31) + 100;

/* Every page holds its own position. */
static void mark(char *data, MPI_Count from, MPI_Count to, int key) {
    for (MPI_Count at = from; at < to; at += 4096) data[at] = (char)(at / 4096 * 7 + key);
}

static long wrong(const char *data, MPI_Count from, MPI_Count to, int key) {
    long count = 0;
    for (MPI_Count at = from; at < to; at += 4096) count += data[at] != (char)(at / 4096 * 7 + key);
    return count;
}

static void count_beyond_int(char *data) {
    MPI_Status status;
    MPI_Count count = 0;
    int small = 0;
    if (rank == 0) {
        mark(data, 0, bytes, 1);
        data[bytes - 1] = 77;
        MPI_Send_c(data, bytes, MPI_CHAR, 1, 1, MPI_COMM_WORLD);
        return;
    }
    MPI_Probe(0, 1, MPI_COMM_WORLD, &status);
    MPI_Get_count_c(&status, MPI_CHAR, &count);
    CHECK(count == bytes);
    MPI_Recv_c(data, bytes, MPI_CHAR, 0, 1, MPI_COMM_WORLD, &status);
    CHECK(wrong(data, 0, bytes, 1) == 0 && data[bytes - 1] == 77);
    MPI_Get_count(&status, MPI_CHAR, &small);
    CHECK(small == MPI_UNDEFINED);
    MPI_Get_elements(&status, MPI_CHAR, &small);
    CHECK(small == MPI_UNDEFINED);
    MPI_Get_count(&status, MPI_INT, &small);
    CHECK(small == (int)(bytes / 4));
    MPI_Get_count_c(&status, MPI_CHAR, &count);
    CHECK(count == bytes);
    count = 0;
    MPI_Get_elements_c(&status, MPI_CHAR, &count);
    CHECK(count == bytes);
    count = 0;
    MPI_Get_elements_x(&status, MPI_CHAR, &count);
    CHECK(count == bytes);
}

/* A few elements of a long datatype with a hole at the end of each. The receiver begins late. */
static void long_elements(char *data) {
    MPI_Datatype row, holed;
    MPI_Status status;
    MPI_Count count = 0, size = 0;
    int rows = (int)(bytes / ROW) + 2, small = 0, ready = 0;
    MPI_Type_contiguous(ROW - 8, MPI_CHAR, &row);
    MPI_Type_create_resized(row, 0, ROW, &holed);
    MPI_Type_commit(&holed);
    MPI_Count all = (MPI_Count)rows * ROW, carried = (MPI_Count)rows * (ROW - 8);
    CHECK(carried > INT_MAX);
    MPI_Type_size_c(holed, &size);
    CHECK(size == ROW - 8);
    if (rank == 0) {
        MPI_Request request;
        mark(data, 0, all, 2);
        MPI_Isend(data, rows, holed, 1, 2, MPI_COMM_WORLD, &request);
        MPI_Send(&ready, 1, MPI_INT, 1, 3, MPI_COMM_WORLD);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
    } else {
        mark(data, 0, all, 3);
        for (int i = 0; i < rows; i++) data[(MPI_Count)(i + 1) * ROW - 8] = -1;
        MPI_Recv(&ready, 1, MPI_INT, 0, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv(data, rows, holed, 0, 2, MPI_COMM_WORLD, &status);
        CHECK(wrong(data, 0, all, 2) == 0);
        long holes = 0;
        for (int i = 0; i < rows; i++) holes += data[(MPI_Count)(i + 1) * ROW - 8] == -1;
        CHECK(holes == rows);
        MPI_Get_count(&status, holed, &small);
        CHECK(small == rows);
        MPI_Get_elements(&status, holed, &small);
        CHECK(small == MPI_UNDEFINED);
        MPI_Get_elements_x(&status, holed, &count);
        CHECK(count == carried);
    }
    MPI_Type_free(&row), MPI_Type_free(&holed);
}

/* The sender is rarely in the library, so the receiver uses remote reads where it can. */
static void from_a_busy_sender(char *data) {
    int ready = 0, done = 0;
    if (rank == 0) {
        MPI_Request request;
        mark(data, 0, bytes, 4);
        data[bytes - 1] = 78;
        MPI_Isend_c(data, bytes, MPI_BYTE, 1, 4, MPI_COMM_WORLD, &request);
        MPI_Send(&ready, 1, MPI_INT, 1, 5, MPI_COMM_WORLD);
        while (!done) {
            nanosleep(&(struct timespec){0, 1000000}, NULL);
            MPI_Test(&request, &done, MPI_STATUS_IGNORE);
        }
    } else {
        MPI_Recv(&ready, 1, MPI_INT, 0, 5, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Recv_c(data, bytes, MPI_BYTE, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        CHECK(wrong(data, 0, bytes, 4) == 0 && data[bytes - 1] == 78);
    }
}

static void broadcast_beyond_int(char *data) {
    if (rank == 0) mark(data, 0, bytes, 5), data[bytes - 1] = 79;
    MPI_Bcast_c(data, bytes, MPI_BYTE, 0, MPI_COMM_WORLD);
    CHECK(wrong(data, 0, bytes, 5) == 0 && data[bytes - 1] == 79);
}

int main(int argc, char **argv) {
    int all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    char *data = malloc(bytes + 4 * (size_t)ROW);
    CHECK(data);
    count_beyond_int(data);
    long_elements(data);
    from_a_busy_sender(data);
    broadcast_beyond_int(data);
    free(data);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("messages beyond 2 GiB: %d failures\n", all);
    MPI_Finalize();
    return all != 0;
}
