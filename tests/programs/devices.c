/* Buffers in the memory of a device: each operation is made twice, with buffers of the host and of the device, and gives the same
   bytes, also beside the buffers. Usage: devices FILE. Runs on any number of ranks. Prints one line. */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

int cuInit(unsigned);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemcpy(uint64_t, uint64_t, size_t);

static int size, next, before, operations;
static unsigned seed = 1;
static MPI_Datatype pairs, sparse;
static MPI_Op add;

enum { ROOM = 6 << 20 };
/* A buffer twice: in the host's memory, and in a device's. */
typedef struct { char *host, *device, *copy; } buffer;
static buffer a, b, c;

static void make(buffer *one, int is_pooled) {
    uint64_t place;
    one->host = malloc(ROOM), one->copy = malloc(ROOM);
    CHECK(cuMemAlloc_v2(&place, ROOM + 8192) == 0);
    /* The fake library takes odd pages for memory of a pool. */
    place = (place + 4095) / 4096 * 4096;
    if ((place >> 12 & 1) != (unsigned)is_pooled) place += 4096;
    one->device = (char *)place;
}
static void fill(buffer *one, size_t len) {
    for (size_t i = 0; i < len; i += 4) *(int *)(one->host + i) = rand_r(&seed) % 1000 - 500 * (rank & 1);
    CHECK(cuMemcpy((uint64_t)one->device, (uint64_t)one->host, len) == 0);
}
static int same(buffer *one, size_t len) {
    CHECK(cuMemcpy((uint64_t)one->copy, (uint64_t)one->device, len) == 0);
    return !memcmp(one->copy, one->host, len);
}
static void sum(void *in, void *inout, int *len, MPI_Datatype *type) {
    (void)type;
    for (int i = 0; i < *len; i++) ((int *)inout)[i] += ((int *)in)[i];
}

/* Makes an operation with buffers of both kinds, in an order that all ranks share. */
#define TWICE(len, ...)                                                                     \
    do {                                                                                    \
        size_t most = (len) + 64 < ROOM ? (len) + 64 : ROOM;                                \
        fill(&a, most), fill(&b, most), fill(&c, most);                                     \
        { char *A = a.host, *B = b.host, *C = c.host; (void)A, (void)B, (void)C; __VA_ARGS__; }       \
        { char *A = a.device, *B = b.device, *C = c.device; (void)A, (void)B, (void)C; __VA_ARGS__; } \
        CHECK(same(&a, most));                                                              \
        CHECK(same(&b, most));                                                              \
        CHECK(same(&c, most));                                                              \
        operations++;                                                                       \
    } while (0)

#define WAIT(call) do { MPI_Request r; MPI_Request *request = &r; call; MPI_Wait(&r, MPI_STATUS_IGNORE); } while (0)
#define START(call) do { MPI_Request r; MPI_Request *request = &r; call; for (int k = 0; k < 2; k++) MPI_Start(&r), MPI_Wait(&r, MPI_STATUS_IGNORE); MPI_Request_free(&r); } while (0)

static void messages(int n, MPI_Datatype type, size_t len) {
    MPI_Comm w = MPI_COMM_WORLD;
    TWICE(len, MPI_Sendrecv(A, n, type, next, 1, B, n, type, before, 1, w, MPI_STATUS_IGNORE));
    TWICE(len, MPI_Sendrecv_replace(A, n, type, next, 1, before, 1, w, MPI_STATUS_IGNORE));
    TWICE(len, MPI_Sendrecv(A, n, type, rank, 1, B, n, type, rank, 1, w, MPI_STATUS_IGNORE));
    TWICE(len, {
        MPI_Request r[4];
        MPI_Irecv(B, n, type, before, 2, w, &r[0]);
        MPI_Irecv(C, n, type, next, 3, w, &r[1]);
        MPI_Isend(A, n, type, next, 2, w, &r[2]);
        MPI_Issend(A, n, type, before, 3, w, &r[3]);
        MPI_Waitall(4, r, MPI_STATUSES_IGNORE);
    });
    /* Unexpected: the receive comes after a barrier. */
    TWICE(len, {
        MPI_Request r;
        MPI_Isend(A, n, type, next, 4, w, &r);
        MPI_Barrier(w);
        MPI_Message m;
        MPI_Mprobe(before, 4, w, &m, MPI_STATUS_IGNORE);
        MPI_Mrecv(B, n, type, &m, MPI_STATUS_IGNORE);
        MPI_Wait(&r, MPI_STATUS_IGNORE);
    });
    /* Longer than the receive: its beginning arrives. */
    MPI_Comm_set_errhandler(w, MPI_ERRORS_RETURN);
    TWICE(len, {
        MPI_Request r;
        MPI_Isend(A, n, type, next, 5, w, &r);
        int class, code = MPI_Recv(B, n / 2, type, before, 5, w, MPI_STATUS_IGNORE);
        MPI_Error_class(code, &class);
        CHECK(class == (n > 1 ? MPI_ERR_TRUNCATE : n ? MPI_ERR_TRUNCATE : MPI_SUCCESS));
        MPI_Wait(&r, MPI_STATUS_IGNORE);
    });
    MPI_Comm_set_errhandler(w, MPI_ERRORS_ARE_FATAL);
    /* Only one side is a device's. */
    TWICE(len, MPI_Sendrecv(A, n, type, next, 6, B, n, type, before, 6, w, MPI_STATUS_IGNORE));
    fill(&a, len), fill(&b, len);
    char *from = rank % 2 ? a.host : a.device, *to = rank % 2 ? b.device : b.host;
    memset(c.host, 0, len);
    MPI_Sendrecv(a.host, n, type, next, 7, b.host, n, type, before, 7, w, MPI_STATUS_IGNORE);
    memcpy(c.copy, b.host, len);
    fill(&b, len);
    memcpy(c.host, b.host, len);
    MPI_Sendrecv(from, n, type, next, 7, to, n, type, before, 7, w, MPI_STATUS_IGNORE);
    CHECK(cuMemcpy((uint64_t)b.copy, (uint64_t)to, len) == 0);
    if (type == MPI_INT) CHECK(!memcmp(b.copy, c.copy, len));
    /* Persistent, with other contents at each start. */
    MPI_Request p[4];
    MPI_Send_init(a.host, n, type, next, 8, w, &p[0]), MPI_Recv_init(b.host, n, type, before, 8, w, &p[1]);
    MPI_Send_init(a.device, n, type, next, 9, w, &p[2]), MPI_Recv_init(b.device, n, type, before, 9, w, &p[3]);
    fill(&b, len);
    for (int i = 0; i < 3; i++) {
        fill(&a, len);
        MPI_Startall(4, p), MPI_Waitall(4, p, MPI_STATUSES_IGNORE);
        CHECK(same(&b, len));
    }
    for (int i = 0; i < 4; i++) MPI_Request_free(&p[i]);
    int pack_size;
    MPI_Pack_size(n, type, w, &pack_size);
    if (pack_size < ROOM)
        TWICE(len, {
            int at = 0;
            MPI_Pack(A, n, type, B, ROOM, &at, w);
            at = 0;
            MPI_Unpack(B, ROOM, &at, C, n, type, w);
        });
    void *attached = malloc(pack_size + MPI_BSEND_OVERHEAD);
    MPI_Buffer_attach(attached, pack_size + MPI_BSEND_OVERHEAD);
    TWICE(len, {
        MPI_Bsend(A, n, type, next, 10, w);
        MPI_Recv(B, n, type, before, 10, w, MPI_STATUS_IGNORE);
        void *place;
        int room;
        MPI_Buffer_detach(&place, &room), MPI_Buffer_attach(place, room);
    });
    MPI_Buffer_detach(&attached, &pack_size);
    free(attached);
}

static void collectives(int n) {
    MPI_Comm w = MPI_COMM_WORLD;
    size_t one = (size_t)n * 4, all = one * size;
    int counts[64], places[64], root = size - 1;
    MPI_Datatype types[64];
    int bytes[64];
    for (int i = 0; i < size; i++) counts[i] = n, places[i] = i * n, types[i] = MPI_INT, bytes[i] = i * n * 4;
    TWICE(one, MPI_Bcast(A, n, MPI_INT, root, w));
    TWICE(all, MPI_Gather(A, n, MPI_INT, B, n, MPI_INT, root, w));
    TWICE(all, MPI_Gatherv(A, n, MPI_INT, B, counts, places, MPI_INT, root, w));
    TWICE(all, MPI_Scatter(A, n, MPI_INT, B, n, MPI_INT, root, w));
    TWICE(all, MPI_Allgather(A, n, MPI_INT, B, n, MPI_INT, w));
    TWICE(all, MPI_Allgather(MPI_IN_PLACE, 0, MPI_INT, B, n, MPI_INT, w));
    TWICE(all, MPI_Allgatherv(A, n, MPI_INT, B, counts, places, MPI_INT, w));
    TWICE(all, MPI_Alltoall(A, n, MPI_INT, B, n, MPI_INT, w));
    TWICE(all, MPI_Alltoall(MPI_IN_PLACE, 0, MPI_INT, B, n, MPI_INT, w));
    TWICE(all, MPI_Alltoallv(A, counts, places, MPI_INT, B, counts, places, MPI_INT, w));
    TWICE(all, MPI_Alltoallw(A, counts, bytes, types, B, counts, bytes, types, w));
    MPI_Op ops[] = {MPI_SUM, MPI_MAX, MPI_BXOR, add};
    for (int o = 0; o < 4; o++) {
        TWICE(one, MPI_Reduce(A, B, n, MPI_INT, ops[o], root, w));
        TWICE(one, MPI_Allreduce(A, B, n, MPI_INT, ops[o], w));
        TWICE(one, MPI_Allreduce(MPI_IN_PLACE, B, n, MPI_INT, ops[o], w));
        TWICE(one, MPI_Scan(A, B, n, MPI_INT, ops[o], w));
        TWICE(one, MPI_Exscan(A, B, n, MPI_INT, ops[o], w));
        TWICE(all, MPI_Reduce_scatter_block(A, B, n, MPI_INT, ops[o], w));
        TWICE(all, MPI_Reduce_scatter(MPI_IN_PLACE, B, counts, MPI_INT, ops[o], w));
        TWICE(one, WAIT(MPI_Iallreduce(A, B, n, MPI_INT, ops[o], w, request)));
        TWICE(one, WAIT(MPI_Iallreduce(MPI_IN_PLACE, B, n, MPI_INT, ops[o], w, request)));
        TWICE(one, WAIT(MPI_Ireduce(A, B, n, MPI_INT, ops[o], root, w, request)));
        TWICE(one, START(MPI_Allreduce_init(A, B, n, MPI_INT, ops[o], w, MPI_INFO_NULL, request)));
        TWICE(one, MPI_Reduce_local(A, B, n, MPI_INT, ops[o]));
    }
    /* Elements with gaps and a function of the program: two integers of three. */
    if (n <= 1000) TWICE(one * 3, MPI_Allreduce(A, B, n, sparse, add, w));
    TWICE(one, WAIT(MPI_Ibcast(A, n, MPI_INT, root, w, request)));
    TWICE(all, WAIT(MPI_Ialltoall(A, n, MPI_INT, B, n, MPI_INT, w, request)));
    TWICE(all, WAIT(MPI_Iallgather(A, n, MPI_INT, B, n, MPI_INT, w, request)));
    TWICE(all, START(MPI_Alltoall_init(A, n, MPI_INT, B, n, MPI_INT, w, MPI_INFO_NULL, request)));
    TWICE(all, MPI_Alltoall(A, n / 2, pairs, B, n / 2, pairs, w));
}

static void windows(int n) {
    int *memory, old[2];
    MPI_Win win;
    size_t len = (size_t)n * 4;
    MPI_Win_allocate(len + 64, 4, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &win);
    memset(memory, 0, len + 64);
    /* Targets are the host's: whatever was put is got again. */
    for (int kind = 0; kind < 3; kind++)
        TWICE(len, {
            MPI_Win_fence(0, win);
            if (kind == 0) MPI_Put(A, n, MPI_INT, next, 0, n, MPI_INT, win);
            if (kind == 1) MPI_Accumulate(A, n, MPI_INT, next, 0, n, MPI_INT, MPI_REPLACE, win);
            if (kind == 2) MPI_Put(A, n / 2, pairs, next, 0, n / 2, pairs, win);
            MPI_Win_fence(0, win);
            MPI_Get(B, n, MPI_INT, next, 0, n, MPI_INT, win);
            MPI_Win_fence(0, win);
            MPI_Get_accumulate(A, n, MPI_INT, C, n, MPI_INT, next, 0, n, MPI_INT, MPI_NO_OP, win);
            MPI_Win_fence(0, win);
        });
    for (int kind = 0; kind < 2; kind++) {
        fill(&a, 64), fill(&b, 64);
        int *x = (int *)(kind ? a.device : a.host), *y = (int *)(kind ? b.device : b.host);
        memset(memory, 0, 64);
        MPI_Win_fence(0, win);
        MPI_Fetch_and_op(x, y, MPI_INT, next, 1, MPI_REPLACE, win);
        MPI_Win_fence(0, win);
        MPI_Fetch_and_op(x, y, MPI_INT, next, 1, MPI_NO_OP, win);
        MPI_Win_fence(0, win);
        CHECK(cuMemcpy((uint64_t)&old[kind], (uint64_t)y, 4) == 0 && old[kind] == *(int *)a.host);
    }
    MPI_Win_free(&win);
    /* Windows themselves are in memory of the host. */
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int class, code = MPI_Win_create(a.device, 64, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_BUFFER);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static void files(const char *name, int n) {
    MPI_File file;
    size_t len = (size_t)n * 4;
    MPI_File_open(MPI_COMM_WORLD, name, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file);
    MPI_Offset at = (MPI_Offset)rank * len, other = (MPI_Offset)next * len;
    TWICE(len, {
        MPI_File_write_at_all(file, at, A, n, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_sync(file), MPI_Barrier(MPI_COMM_WORLD), MPI_File_sync(file);
        MPI_File_read_at_all(file, other, B, n, MPI_INT, MPI_STATUS_IGNORE);
        MPI_Barrier(MPI_COMM_WORLD);
    });
    TWICE(len, {
        MPI_File_write_at(file, at, A, n / 2, pairs, MPI_STATUS_IGNORE);
        MPI_File_sync(file), MPI_Barrier(MPI_COMM_WORLD), MPI_File_sync(file);
        WAIT(MPI_File_iread_at(file, other, B, n, MPI_INT, request));
        MPI_Barrier(MPI_COMM_WORLD);
    });
    MPI_File_close(&file);
}

int main(int argc, char **argv) {
    cuInit(0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size, before = (rank + size - 1) % size;
    make(&a, 0), make(&b, 1), make(&c, 0);
    /* Every other pair of integers. */
    MPI_Type_vector(1, 2, 2, MPI_INT, &pairs);
    MPI_Datatype gapped;
    MPI_Type_vector(2, 1, 2, MPI_INT, &gapped);
    MPI_Type_commit(&pairs);
    int blocks[] = {1, 1}, offsets[] = {0, 2};
    MPI_Type_indexed(2, blocks, offsets, MPI_INT, &sparse);
    MPI_Type_commit(&sparse), MPI_Type_commit(&gapped);
    MPI_Op_create(sum, 1, &add);
    MPI_Info info;
    char kinds[200];
    int has;
    MPI_Comm_get_info(MPI_COMM_WORLD, &info);
    MPI_Info_get(info, "mpi_memory_alloc_kinds", 199, kinds, &has);
    CHECK(has && strstr(kinds, ",cuda:device"));
    MPI_Info_free(&info);
    for (int n = 0; n <= 1 << 20; n = n * 7 + 1) messages(n, MPI_INT, (size_t)n * 4);
    messages(1 << 20, MPI_INT, 4 << 20);
    for (int n = 1; n <= 20000; n = n * 9 + 1) messages(n, gapped, (size_t)n * 12);
    for (int n = 2; n <= 200000 / size; n *= 12) collectives(n);
    for (int n = 2; n <= 600000; n *= 30) windows(n);
    files(argv[1], 100000);
    int all;
    MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (!rank) printf("devices: %d operations on %d ranks, %s\n", operations, size, all ? "some wrong" : "all right");
    MPI_Finalize();
    return failures > 0;
}
