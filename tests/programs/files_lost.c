/* A rank is killed in the middle of collective writes. What was reported as written and synchronized is in the file, and
   the others get an error instead of waiting for ever. Usage: files_lost DIRECTORY RANK MICROSECONDS. The rank is killed so
   long after a few writes, from a thread of its own: wherever it is then. Every other rank compares the file. With rank -1
   nobody is killed: all write so long, while the network between them may be cut. BEGUN names a file that is made after a
   few writes. FILES_REAL
   names the directory as all ranks see it, where some do not see DIRECTORY. */
#include <fcntl.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { BLOCK = 1000, BLOCKS = 40, BYTES = BLOCK * BLOCKS, BEFORE = 3, WRITES = 2000 };

static int size, delay_us;
static char path[4096], real[4096]; /* for MPI; for the system */

static char byte_at(int number, int of, int at) { return (char)(number * 31 + of * 7 + at % 101 + 1); }

static void *kill_self(void *nothing) {
    usleep((useconds_t)delay_us);
    kill(getpid(), SIGKILL);
    return nothing;
}

static void open_view(MPI_File *file) {
    MPI_Datatype block, type;
    MPI_Info info;
    int place = rank * BLOCK;
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", "enable"), MPI_Info_set(info, "cb_buffer_size", "8192"), MPI_Info_set(info, "cb_nodes", "2");
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, file) == MPI_SUCCESS);
    MPI_Info_free(&info);
    MPI_Type_create_indexed_block(1, BLOCK, &place, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)size * BLOCK, &type);
    MPI_Type_commit(&type);
    CHECK(MPI_File_set_view(*file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_Type_free(&block), MPI_Type_free(&type);
}

/* Number of writes that some rank has seen synchronized. */
static int reported(void) {
    char name[4200];
    int most = 0, bytes = 0;
    for (int of = 0; of < size; of++) {
        snprintf(name, sizeof name, "%s.%d", real, of);
        int log = open(name, O_RDONLY);
        if (log >= 0) bytes = (int)lseek(log, 0, SEEK_END), close(log);
        if (bytes > most) most = bytes;
    }
    return most;
}

static int is_whole(int writes) {
    static char found[BLOCK];
    int file = open(real, O_RDONLY), whole = file >= 0;
    for (int number = 0; number < writes; number++)
        for (int block = 0; block < BLOCKS * size; block++) {
            whole &= pread(file, found, BLOCK, ((off_t)number * BLOCKS * size + block) * BLOCK) == BLOCK;
            for (int at = 0; at < BLOCK; at++) whole &= found[at] == byte_at(number, block % size, block / size * BLOCK + at);
        }
    close(file);
    return whole;
}

/* Waits until all others have come so far, at most for some seconds: the launcher ends them once the first has ended. */
static void meet(int lost) {
    char name[4200];
    snprintf(name, sizeof name, "%s.%d.end", real, rank);
    close(open(name, O_WRONLY | O_CREAT, 0666));
    for (int of = 0, times = 0; of < size && times < 2000; times++) {
        snprintf(name, sizeof name, "%s.%d.end", real, of);
        if (of == lost || access(name, F_OK) == 0) of++;
        else usleep(10000);
    }
}

/* True if all write once more; no rank has got an error so far. */
static int goes_on(int number, int lost, double end, int *error) {
    int more = lost >= 0 ? number < WRITES : MPI_Wtime() < end;
    if (*error == MPI_SUCCESS && lost < 0) *error = MPI_Bcast(&more, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return *error == MPI_SUCCESS && more;
}

int main(int argc, char **argv) {
    static char data[BYTES];
    char name[4200];
    int number = 0, error = MPI_SUCCESS, class;
    MPI_File file;
    pthread_t killer;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 4) MPI_Abort(MPI_COMM_WORLD, 2);
    int lost = atoi(argv[2]);
    delay_us = atoi(argv[3]);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    const char *seen = getenv("FILES_REAL");
    snprintf(path, sizeof path, "%s/lost", argv[1]), snprintf(real, sizeof real, "%s/lost", seen ? seen : argv[1]);
    snprintf(name, sizeof name, "%s.%d", real, rank);
    int log = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
    open_view(&file);
    double end = MPI_Wtime() + delay_us / 1e6;
    for (; goes_on(number, lost, end, &error); number++) {
        for (int at = 0; at < BYTES; at++) data[at] = byte_at(number, rank, at);
        if (rank == lost && number == BEFORE) pthread_create(&killer, NULL, kill_self, NULL);
        error = MPI_File_write_at_all(file, (MPI_Offset)number * BYTES, data, BYTES, MPI_BYTE, MPI_STATUS_IGNORE);
        if (error == MPI_SUCCESS) error = MPI_File_sync(file);
        if (error == MPI_SUCCESS) CHECK(write(log, ".", 1) == 1);
        if (rank == 0 && number == BEFORE && getenv("BEGUN")) close(open(getenv("BEGUN"), O_WRONLY | O_CREAT, 0666));
    }
    MPI_Error_class(error, &class);
    CHECK(class == MPI_ERR_PROC_ABORTED || (lost < 0 && class == MPI_SUCCESS));
    /* The others may still write their reports. */
    int writes = reported();
    CHECK(writes >= BEFORE && is_whole(writes));
    printf("rank %d: %d failures%s\n", rank, failures, class == MPI_SUCCESS ? " to the end" : "");
    if (class == MPI_SUCCESS) {
        MPI_File_close(&file);
        MPI_Finalize();
        return failures != 0;
    }
    fflush(stdout);
    meet(lost);
    _exit(failures != 0);
}
