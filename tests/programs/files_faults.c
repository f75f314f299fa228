/* Files on which the system refuses something: every rank of a collective call gets the same class, with the file, the rank
   and the system's reason, and the next call works. Usage: files_faults CASE DIRECTORY. Any number of ranks.
   The cases: full (DIRECTORY has room for 1 MiB), readonly (DIRECTORY is on a file system mounted so), limit (the soft limit
   of open files is lowered to what is open), quota (the kernel answers writes behind the first MiB as if a quota were
   exceeded), interrupted (signals interrupt system calls all the time), cut (somebody else cuts the file all the time), denied
   (the file or its folder does not permit it). */
#include <errno.h>
#include <fcntl.h>
#include <linux/capability.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <mpi.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>

#include "expect.h"

enum { MANY = 4 << 20, BLOCK = 1000 };

static int size;
static char path[4096];
static char *data;

static MPI_File open_as(int mode) {
    MPI_File file = MPI_FILE_NULL;
    expect("open", MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file), MPI_SUCCESS);
    return file;
}

/* The text of an error says where and why. */
static void says(int code, const char *reason) {
    char text[MPI_MAX_ERROR_STRING];
    int len;
    MPI_Error_string(code, text, &len);
    if (strstr(text, path) && strstr(text, "rank ") && strstr(text, reason)) return;
    failures++;
    fprintf(stderr, "rank %d: `%s` names no file, no rank, or another reason than `%s`\n", rank, text, reason);
}

/* Blocks of all ranks by turns. */
static void interleave(MPI_File file) {
    MPI_Datatype block, type;
    int place = rank * BLOCK;
    MPI_Type_create_indexed_block(1, BLOCK, &place, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)size * BLOCK, &type);
    MPI_Type_commit(&type);
    expect("set_view", MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL), MPI_SUCCESS);
    MPI_Type_free(&block), MPI_Type_free(&type);
}

/* A collective write that has no room, as a whole or for the last rank alone. */
static void no_room(MPI_File file, const char *what, int code) {
    char text[100];
    snprintf(text, sizeof text, "%s on a full disk", what);
    expect(text, code, MPI_ERR_NO_SPACE);
    says(code, "No space left");
    expect("cut", MPI_File_set_size(file, 0), MPI_SUCCESS);
}

static void full(void) {
    MPI_File file = open_as(MPI_MODE_RDWR | MPI_MODE_CREATE);
    MPI_Request request;
    MPI_Status status;
    int last = rank == size - 1 ? MANY : 1;
    expect("set_view", MPI_File_set_view(file, (MPI_Offset)rank * 8, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), MPI_SUCCESS);
    no_room(file, "write_at_all", MPI_File_write_at_all(file, 0, data, last, MPI_BYTE, &status));
    no_room(file, "write_all", MPI_File_write_all(file, data, last, MPI_BYTE, &status));
    MPI_File_write_at_all_begin(file, 0, data, last, MPI_BYTE);
    no_room(file, "write_at_all_end", MPI_File_write_at_all_end(file, data, &status));
    /* An access that each begins for itself fails where there is no room. */
    MPI_File_iwrite_at_all(file, 0, data, last, MPI_BYTE, &request);
    expect("iwrite_at_all", MPI_Wait(&request, &status), last == MANY ? MPI_ERR_NO_SPACE : MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    expect("cut", MPI_File_set_size(file, 0), MPI_SUCCESS);
    interleave(file);
    no_room(file, "write_at_all of blocks", MPI_File_write_at_all(file, 0, data, MANY / size, MPI_BYTE, &status));
    no_room(file, "write_all of blocks", MPI_File_write_all(file, data, MANY / size, MPI_BYTE, &status));
    expect("set_view", MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL), MPI_SUCCESS);
    no_room(file, "write_ordered", MPI_File_write_ordered(file, data, last, MPI_BYTE, &status));
    no_room(file, "preallocate", MPI_File_preallocate(file, MANY));
    expect("set_atomicity", MPI_File_set_atomicity(file, 1), MPI_SUCCESS);
    no_room(file, "atomic write_at_all", MPI_File_write_at_all(file, rank, data, last, MPI_BYTE, &status));
    expect("set_atomicity", MPI_File_set_atomicity(file, 0), MPI_SUCCESS);
    /* With room again, all goes on. */
    interleave(file);
    expect("write with room", MPI_File_write_at_all(file, 0, data, 2 * BLOCK, MPI_BYTE, &status), MPI_SUCCESS);
    expect("sync", MPI_File_sync(file), MPI_SUCCESS);
    char *found = malloc(2 * BLOCK);
    expect("read", MPI_File_read_at_all(file, 0, found, 2 * BLOCK, MPI_BYTE, &status), MPI_SUCCESS);
    CHECK(!memcmp(found, data, 2 * BLOCK));
    free(found);
    /* A file cut by somebody else under way: fewer bytes come, and none that are not there. */
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) CHECK(truncate(path, size * BLOCK) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    int count;
    found = calloc(1, 2 * BLOCK);
    expect("read a cut file", MPI_File_read_at_all(file, 0, found, 2 * BLOCK, MPI_BYTE, &status), MPI_SUCCESS);
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == BLOCK && !memcmp(found, data, BLOCK) && found[BLOCK] == 0);
    free(found);
    MPI_File_close(&file);
    expect("delete", rank == 0 ? MPI_File_delete(path, MPI_INFO_NULL) : MPI_SUCCESS, MPI_SUCCESS);
}

static void readonly(void) {
    MPI_File file = MPI_FILE_NULL;
    int modes[] = {MPI_MODE_RDWR, MPI_MODE_WRONLY, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_MODE_WRONLY | MPI_MODE_CREATE};
    for (int i = 0; i < 4; i++) {
        int code = MPI_File_open(MPI_COMM_WORLD, path, modes[i], MPI_INFO_NULL, &file);
        expect("open for writing on a read-only file system", code, MPI_ERR_READ_ONLY);
        says(code, "Read-only file system");
        CHECK(file == MPI_FILE_NULL);
    }
    file = open_as(MPI_MODE_RDONLY);
    expect("read", MPI_File_read_at_all(file, 0, data, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    expect("sync of what is read", MPI_File_sync(file), MPI_SUCCESS);
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    expect("delete", MPI_File_delete(path, MPI_INFO_NULL), MPI_ERR_READ_ONLY);
}

/* One rank has no descriptor left, the first or the last. */
static void limit(int who) {
    MPI_File file = open_as(MPI_MODE_RDWR | MPI_MODE_CREATE);
    struct rlimit before, now;
    MPI_Barrier(MPI_COMM_WORLD);
    getrlimit(RLIMIT_NOFILE, &before);
    now = before;
    int free_one = dup(0);
    CHECK(free_one >= 0);
    close(free_one);
    /* Threads of the library may close a descriptor meanwhile that was open at that moment, one of the last. */
    now.rlim_cur = (rlim_t)free_one / 2;
    MPI_File other = MPI_FILE_NULL;
    if (rank == who) CHECK(setrlimit(RLIMIT_NOFILE, &now) == 0);
    int code = MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, MPI_INFO_NULL, &other);
    if (rank == who) CHECK(setrlimit(RLIMIT_NOFILE, &before) == 0);
    expect("open without a descriptor", code, MPI_ERR_IO);
    says(code, "Too many open files");
    CHECK(other == MPI_FILE_NULL);
    expect("write to the open one", MPI_File_write_at_all(file, rank, data, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    expect("open again", MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR, MPI_INFO_NULL, &other), MPI_SUCCESS);
    MPI_File_close(&other);
    MPI_File_close(&file);
}

/* Makes all threads' writes behind the first MiB of any file fail. */
static void exceed_quota(void) {
    enum { ROOM = 1 << 20 };
    struct sock_filter filter[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev, 1, 0),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_pwritev2, 0, 2),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[3])),
        BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, ROOM, 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EDQUOT),
    };
    struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
    CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
    CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program) == 0);
}

/* What fits is written, also by the call that fails for others, and stays. */
static void quota(void) {
    enum { BELOW = 1 << 18 };
    MPI_File file = open_as(MPI_MODE_RDWR | MPI_MODE_CREATE);
    MPI_Offset own = (MPI_Offset)rank * BELOW / size, behind = (MPI_Offset)(rank + 1) * MANY;
    int len = BELOW / size, code;
    exceed_quota();
    expect("write below the quota", MPI_File_write_at_all(file, own, data, len, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    code = MPI_File_write_at_all(file, rank == size - 1 ? behind : own, data, len, MPI_BYTE, MPI_STATUS_IGNORE);
    expect("write of one rank behind the quota", code, MPI_ERR_QUOTA);
    says(code, "quota exceeded");
    code = MPI_File_write_at(file, behind, data, len, MPI_BYTE, MPI_STATUS_IGNORE);
    expect("write behind the quota", code, MPI_ERR_QUOTA);
    says(code, "quota exceeded");
    interleave(file);
    code = MPI_File_write_at_all(file, size == 1 ? MANY : 0, data, MANY, MPI_BYTE, MPI_STATUS_IGNORE);
    expect("write of blocks", code, MPI_ERR_QUOTA);
    says(code, "quota exceeded");
    expect("write of fewer blocks", MPI_File_write_at_all(file, 0, data, len / BLOCK * BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    expect("sync", MPI_File_sync(file), MPI_SUCCESS);
    char *found = malloc((size_t)len);
    expect("read", MPI_File_read_at_all(file, 0, found, len / BLOCK * BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    CHECK(!memcmp(found, data, (size_t)(len / BLOCK * BLOCK)));
    free(found);
    MPI_File_close(&file);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path);
}

static void on_alarm(int number) { (void)number; }

/* Calls go on after signals, whose handler does not ask for that. */
static void interrupted(void) {
    struct sigaction action = {.sa_handler = on_alarm};
    struct itimerval often = {{0, 1000}, {0, 1000}}, never = {{0, 0}, {0, 0}};
    char *found = malloc(MANY);
    MPI_Status status;
    int count;
    sigaction(SIGALRM, &action, NULL), setitimer(ITIMER_REAL, &often, NULL);
    MPI_File file = open_as(MPI_MODE_RDWR | MPI_MODE_CREATE);
    expect("preallocate", MPI_File_preallocate(file, (MPI_Offset)64 << 20), MPI_SUCCESS);
    for (int times = 0; times < 5; times++) {
        expect("write_at_all", MPI_File_write_at_all(file, (MPI_Offset)rank * MANY, data, MANY, MPI_BYTE, &status), MPI_SUCCESS);
        expect("sync", MPI_File_sync(file), MPI_SUCCESS);
        expect("read_at_all", MPI_File_read_at_all(file, (MPI_Offset)rank * MANY, found, MANY, MPI_BYTE, &status), MPI_SUCCESS);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count == MANY && !memcmp(found, data, MANY));
    }
    interleave(file);
    for (int times = 0; times < 5; times++) {
        expect("write_at_all of blocks", MPI_File_write_at_all(file, 0, data, MANY, MPI_BYTE, &status), MPI_SUCCESS);
        memset(found, 0, MANY);
        expect("read_at_all of blocks", MPI_File_read_at_all(file, 0, found, MANY, MPI_BYTE, &status), MPI_SUCCESS);
        CHECK(!memcmp(found, data, MANY));
    }
    MPI_File_close(&file);
    setitimer(ITIMER_REAL, &never, NULL);
    free(found);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path);
}

static atomic_int has_ended;

static void *cut_often(void *nothing) {
    while (!has_ended) {
        CHECK(truncate(path, BLOCK) == 0);
        CHECK(truncate(path, (off_t)size * MANY) == 0);
    }
    return nothing;
}

/* Reads bring what is there, and no call fails or waits for what is gone. */
static void cut(void) {
    MPI_File file = open_as(MPI_MODE_RDWR | MPI_MODE_CREATE);
    char *found = malloc(MANY);
    pthread_t cutter;
    MPI_Status status;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) CHECK(pthread_create(&cutter, NULL, cut_often, NULL) == 0);
    for (int times = 0; times < 40; times++) {
        int count, wrong = 0;
        if (times == 20) interleave(file);
        MPI_Offset own = times < 20 ? (MPI_Offset)rank * MANY : 0;
        expect("write_at_all", MPI_File_write_at_all(file, own, data, MANY, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
        expect("read_at_all", MPI_File_read_at_all(file, own, found, MANY, MPI_BYTE, &status), MPI_SUCCESS);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count >= 0 && count <= MANY);
        for (int at = 0; at < count; at++) wrong += found[at] != data[at] && found[at] != 0;
        CHECK(wrong == 0);
    }
    has_ended = 1;
    if (rank == 0) pthread_join(cutter, NULL);
    MPI_File_close(&file);
    free(found);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path);
}

/* Takes or gives this thread the right to pass over permissions, if the process has it. True if it has. */
static int may_override(int may) {
    const unsigned rights = 1u << CAP_DAC_OVERRIDE | 1u << CAP_DAC_READ_SEARCH;
    struct __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
    struct __user_cap_data_struct sets[2];
    CHECK(syscall(SYS_capget, &header, sets) == 0);
    int has = (sets[0].permitted & rights) == rights;
    sets[0].effective = may ? sets[0].effective | (sets[0].permitted & rights) : sets[0].effective & ~rights;
    CHECK(syscall(SYS_capset, &header, sets) == 0);
    return has;
}

/* All ranks together: nobody is between two of the steps. */
static void set_mode(const char *name, mode_t mode) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) CHECK(chmod(name, mode) == 0);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void refuses(const char *what, const char *name, int mode) {
    MPI_File file = MPI_FILE_NULL;
    int code = MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file);
    expect(what, code, MPI_ERR_ACCESS);
    says(code, "Permission denied");
    CHECK(file == MPI_FILE_NULL);
}

static void denied(void) {
    char folder[sizeof path + 10], below[sizeof path + 20];
    snprintf(folder, sizeof folder, "%s.folder", path), snprintf(below, sizeof below, "%s/file", folder);
    int has = may_override(0), count;
    if (rank == 0) CHECK(mkdir(folder, 0700) == 0);
    MPI_File file = open_as(MPI_MODE_RDWR | MPI_MODE_CREATE);
    expect("write", MPI_File_write_at_all(file, rank * BLOCK, data, BLOCK, MPI_BYTE, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_File_close(&file);
    set_mode(path, 0);
    refuses("open for reading", path, MPI_MODE_RDONLY);
    refuses("open for writing", path, MPI_MODE_WRONLY | MPI_MODE_CREATE);
    set_mode(path, 0400);
    refuses("open for both", path, MPI_MODE_RDWR);
    file = open_as(MPI_MODE_RDONLY);
    expect("write", MPI_File_write_at_all(file, 0, data, 1, MPI_BYTE, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
    MPI_File_close(&file);
    set_mode(folder, 0500);
    refuses("create in a folder that may not be written", below, MPI_MODE_RDWR | MPI_MODE_CREATE);
    set_mode(folder, 0);
    refuses("open in a folder that may not be searched", below, MPI_MODE_RDONLY);
    int code = MPI_File_delete(below, MPI_INFO_NULL);
    expect("delete in a folder that may not be searched", code, MPI_ERR_ACCESS);
    set_mode(folder, 0700);
    /* Ranks that may not open it are served by those that may. */
    may_override(has && rank < size - 1);
    set_mode(path, 0);
    if (has && size > 1) {
        char *found = malloc(BLOCK);
        MPI_Status status;
        file = open_as(MPI_MODE_RDWR);
        expect("read", MPI_File_read_at_all(file, rank * BLOCK, found, BLOCK, MPI_BYTE, &status), MPI_SUCCESS);
        MPI_Get_count(&status, MPI_BYTE, &count);
        CHECK(count == BLOCK && !memcmp(found, data, BLOCK));
        MPI_File_close(&file);
        free(found);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path), rmdir(folder);
}

int main(int argc, char **argv) {
    int all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc < 3) MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(path, sizeof path, "%s/file", argv[2]);
    data = malloc(MANY);
    for (int i = 0; i < MANY; i++) data[i] = (char)(i * 7 + rank + 1);
    if (!strcmp(argv[1], "full")) full();
    if (!strcmp(argv[1], "readonly")) readonly();
    if (!strcmp(argv[1], "limit")) limit(0), limit(size - 1);
    if (!strcmp(argv[1], "quota")) quota();
    if (!strcmp(argv[1], "interrupted")) interrupted();
    if (!strcmp(argv[1], "cut")) cut();
    if (!strcmp(argv[1], "denied")) denied();
    free(data);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%s: %d failures\n", argv[1], all);
    MPI_Finalize();
    return all != 0;
}
