/* A file that some ranks do not see: long accesses by all, reads past its end, errors, and its deletion by a rank that sees
   it. Usage: files_unseen DIRECTORY. FILES_REAL names the directory as all ranks see it. Any number of ranks from 2 on. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

enum { LONG = (20 << 20) + 3, GAP = 1000 };

static int size;
static char path[4096], real[4096];

static char byte_at(MPI_Offset offset) { return (char)((uint64_t)(offset + 1) * 0x9e3779b97f4a7c15u >> 56); }

static long wrong(const char *data, MPI_Offset offset, long bytes) {
    long count = 0;
    for (long at = 0; at < bytes; at++) count += data[at] != byte_at(offset + at);
    return count;
}

static int count_of(MPI_Status *status) {
    int count;
    MPI_Get_count(status, MPI_BYTE, &count);
    return count;
}

/* Parts of all ranks, blocking, non-blocking and collective. Each reads the part of the next one. */
static void parts(MPI_File file, char *data) {
    MPI_Offset own = (MPI_Offset)rank * LONG, next = (MPI_Offset)((rank + 1) % size) * LONG, found;
    MPI_Request request;
    MPI_Status status;
    for (int way = 0; way < 3; way++) {
        for (long at = 0; at < LONG; at++) data[at] = byte_at(own + at);
        if (way == 0) expect("write_at", MPI_File_write_at(file, own, data, LONG, MPI_BYTE, &status), MPI_SUCCESS);
        if (way == 1) expect("iwrite_at", MPI_File_iwrite_at(file, own, data, LONG, MPI_BYTE, &request), MPI_SUCCESS), MPI_Wait(&request, &status);
        if (way == 2) expect("write_at_all", MPI_File_write_at_all(file, own, data, LONG, MPI_BYTE, &status), MPI_SUCCESS);
        CHECK(count_of(&status) == LONG);
        expect("sync", MPI_File_sync(file), MPI_SUCCESS);
        expect("get_size", MPI_File_get_size(file, &found), MPI_SUCCESS);
        CHECK(found == (MPI_Offset)size * LONG);
        memset(data, 0, LONG);
        if (way == 0) expect("read_at", MPI_File_read_at(file, next, data, LONG, MPI_BYTE, &status), MPI_SUCCESS);
        if (way == 1) expect("iread_at", MPI_File_iread_at(file, next, data, LONG, MPI_BYTE, &request), MPI_SUCCESS), MPI_Wait(&request, &status);
        if (way == 2) expect("read_at_all", MPI_File_read_at_all(file, next, data, LONG, MPI_BYTE, &status), MPI_SUCCESS);
        CHECK(count_of(&status) == LONG && wrong(data, next, LONG) == 0);
        MPI_Barrier(MPI_COMM_WORLD);
        if (way < 2) expect("set_size", MPI_File_set_size(file, 0), MPI_SUCCESS);
    }
}

/* What lies behind the end is not read, and the memory for it stays as it is. */
static void past_the_end(MPI_File file, char *data) {
    MPI_Offset end = (MPI_Offset)size * LONG;
    MPI_Status status;
    for (int there = 0; there <= GAP; there += GAP) {
        memset(data, 7, LONG);
        expect("read at the end", MPI_File_read_at(file, end - there, data, LONG, MPI_BYTE, &status), MPI_SUCCESS);
        CHECK(count_of(&status) == there && wrong(data, end - there, there) == 0);
        for (long at = there; at < LONG; at++) CHECK(data[at] == 7);
    }
}

int main(int argc, char **argv) {
    int all;
    MPI_File file;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 2 || !getenv("FILES_REAL")) MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(path, sizeof path, "%s/unseen", argv[1]), snprintf(real, sizeof real, "%s/unseen", getenv("FILES_REAL"));
    char *data = malloc(LONG);
    expect("open a missing file", MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_ERR_NO_SUCH_FILE);
    expect("create", MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, MPI_INFO_NULL, &file), MPI_SUCCESS);
    parts(file, data);
    past_the_end(file, data);
    MPI_File_close(&file);
    expect("create what is there", MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL, MPI_INFO_NULL, &file), MPI_ERR_FILE_EXISTS);
    expect("open", MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY | MPI_MODE_DELETE_ON_CLOSE, MPI_INFO_NULL, &file), MPI_SUCCESS);
    expect("write to what is read", MPI_File_write_at(file, 0, data, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
    past_the_end(file, data);
    CHECK(access(real, F_OK) == 0);
    MPI_File_close(&file);
    CHECK(access(real, F_OK) != 0);
    free(data);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("a file that some do not see: %d failures\n", all);
    MPI_Finalize();
    return all != 0;
}
