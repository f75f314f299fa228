/* Everything on a communicator that parents and children have merged: files, windows, shared memory, topologies,
   persistent and partitioned messages. Usage: merged CHILDREN FILE. The last line is rank 0's. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static int all;

static void files(MPI_Comm merged, const char *path) {
    MPI_File file;
    MPI_Status status;
    int mine[4], theirs[4], count;
    for (int i = 0; i < 4; i++) mine[i] = rank * 4 + i;
    CHECK(MPI_File_open(merged, path, MPI_MODE_CREATE | MPI_MODE_RDWR, MPI_INFO_NULL, &file) == MPI_SUCCESS);
    MPI_Offset own = (MPI_Offset)(rank * sizeof mine), other = (MPI_Offset)((rank + 1) % all * sizeof mine);
    CHECK(MPI_File_write_at_all(file, own, mine, 4, MPI_INT, &status) == MPI_SUCCESS);
    MPI_File_sync(file), MPI_Barrier(merged), MPI_File_sync(file);
    CHECK(MPI_File_read_at_all(file, other, theirs, 4, MPI_INT, &status) == MPI_SUCCESS);
    MPI_Get_count(&status, MPI_INT, &count);
    CHECK(count == 4 && theirs[0] == (rank + 1) % all * 4 && theirs[3] == theirs[0] + 3);
    MPI_Barrier(merged);
    /* The shared pointer, in order and not. */
    CHECK(MPI_File_write_ordered(file, mine, 1, MPI_INT, &status) == MPI_SUCCESS);
    CHECK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET) == MPI_SUCCESS);
    CHECK(MPI_File_read_ordered(file, theirs, 1, MPI_INT, &status) == MPI_SUCCESS && theirs[0] == mine[0]);
    CHECK(MPI_File_seek_shared(file, 0, MPI_SEEK_SET) == MPI_SUCCESS);
    CHECK(MPI_File_read_shared(file, theirs, 1, MPI_INT, &status) == MPI_SUCCESS && theirs[0] % 4 == 0);
    /* Each rank has every all-th integer. */
    MPI_Datatype stripes;
    MPI_Type_create_resized(MPI_INT, 0, (MPI_Aint)(all * sizeof(int)), &stripes);
    MPI_Type_commit(&stripes);
    CHECK(MPI_File_set_view(file, (MPI_Offset)(rank * sizeof(int)), MPI_INT, stripes, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    CHECK(MPI_File_write_all(file, mine, 4, MPI_INT, &status) == MPI_SUCCESS);
    MPI_File_sync(file), MPI_Barrier(merged), MPI_File_sync(file);
    CHECK(MPI_File_read_at_all(file, 0, theirs, 4, MPI_INT, &status) == MPI_SUCCESS && !memcmp(mine, theirs, sizeof mine));
    MPI_Type_free(&stripes);
    CHECK(MPI_File_close(&file) == MPI_SUCCESS);
    if (rank == 0) MPI_File_delete(path, MPI_INFO_NULL);
}

static void use(MPI_Win window, int *memory) {
    int next = (rank + 1) % all, before = (rank + all - 1) % all, got = -1, one = 1;
    MPI_Win_fence(0, window);
    MPI_Put(&rank, 1, MPI_INT, next, 0, 1, MPI_INT, window);
    MPI_Accumulate(&one, 1, MPI_INT, 0, 1, 1, MPI_INT, MPI_SUM, window);
    MPI_Win_fence(0, window);
    CHECK(memory[0] == before);
    CHECK(rank != 0 || memory[1] == all);
    MPI_Win_lock(MPI_LOCK_SHARED, next, 0, window);
    MPI_Get(&got, 1, MPI_INT, next, 0, 1, MPI_INT, window);
    MPI_Win_unlock(next, window);
    CHECK(got == rank);
    MPI_Win_lock_all(0, window);
    MPI_Fetch_and_op(&one, &got, MPI_INT, all - 1, 2, MPI_SUM, window);
    MPI_Win_flush(all - 1, window);
    CHECK(got >= 0 && got < all);
    MPI_Win_unlock_all(window);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void windows(MPI_Comm merged) {
    MPI_Win window;
    int own[3] = {0}, *memory;
    CHECK(MPI_Win_create(own, sizeof own, sizeof *own, MPI_INFO_NULL, merged, &window) == MPI_SUCCESS);
    use(window, own);
    MPI_Win_free(&window);
    CHECK(MPI_Win_allocate(3 * sizeof *memory, sizeof *memory, MPI_INFO_NULL, merged, &memory, &window) == MPI_SUCCESS);
    memset(memory, 0, 3 * sizeof *memory);
    MPI_Barrier(merged);
    use(window, memory);
    MPI_Win_free(&window);
    MPI_Aint place, places[64];
    CHECK(MPI_Win_create_dynamic(MPI_INFO_NULL, merged, &window) == MPI_SUCCESS);
    own[0] = -1;
    MPI_Win_attach(window, own, sizeof own);
    MPI_Get_address(own, &place);
    MPI_Allgather(&place, 1, MPI_AINT, places, 1, MPI_AINT, merged);
    MPI_Win_fence(0, window);
    MPI_Put(&rank, 1, MPI_INT, (rank + 1) % all, places[(rank + 1) % all], 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    CHECK(own[0] == (rank + all - 1) % all);
    MPI_Win_detach(window, own);
    MPI_Win_free(&window);
}

/* The processes that share memory: how many there are, and memory that they share. */
static int shared(MPI_Comm merged) {
    MPI_Comm node;
    MPI_Win window;
    int size, place, unit, *memory, *first;
    MPI_Aint bytes;
    CHECK(MPI_Comm_split_type(merged, MPI_COMM_TYPE_SHARED, rank, MPI_INFO_NULL, &node) == MPI_SUCCESS);
    MPI_Comm_size(node, &size), MPI_Comm_rank(node, &place);
    CHECK(MPI_Win_allocate_shared(sizeof *memory, sizeof *memory, MPI_INFO_NULL, node, &memory, &window) == MPI_SUCCESS);
    MPI_Win_shared_query(window, 0, &bytes, &unit, &first);
    CHECK(bytes == sizeof *memory && unit == sizeof *memory);
    MPI_Win_lock_all(0, window);
    *memory = place + 1;
    MPI_Win_sync(window), MPI_Barrier(node), MPI_Win_sync(window);
    for (int i = 0; i < size; i++) CHECK(first[i] == i + 1);
    MPI_Barrier(node);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Comm_free(&node);
    return size;
}

static void topologies(MPI_Comm merged) {
    MPI_Comm ring, graph;
    int periodic = 1, from, to, got[2] = {-1, -1};
    CHECK(MPI_Cart_create(merged, 1, &all, &periodic, 0, &ring) == MPI_SUCCESS);
    MPI_Cart_shift(ring, 0, 1, &from, &to);
    CHECK(MPI_Neighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, ring) == MPI_SUCCESS);
    CHECK(got[0] == from && got[1] == to);
    CHECK(MPI_Dist_graph_create_adjacent(merged, 1, &from, MPI_UNWEIGHTED, 1, &to, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &graph) == MPI_SUCCESS);
    got[0] = -1;
    CHECK(MPI_Neighbor_allgather(&rank, 1, MPI_INT, got, 1, MPI_INT, graph) == MPI_SUCCESS && got[0] == from);
    MPI_Comm_free(&ring), MPI_Comm_free(&graph);
}

static void messages(MPI_Comm merged) {
    enum { LONG = 300000 };
    MPI_Request requests[2];
    int next = (rank + 1) % all, before = (rank + all - 1) % all, sum, number = -1;
    char *out = malloc(LONG), *in = malloc(LONG);
    memset(out, rank + 1, LONG);
    /* Persistent, and partitioned. */
    MPI_Send_init(&rank, 1, MPI_INT, next, 1, merged, requests);
    MPI_Recv_init(&number, 1, MPI_INT, before, 1, merged, requests + 1);
    for (int i = 0; i < 3; i++) {
        MPI_Startall(2, requests), MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
        CHECK(number == before);
        number = -1;
    }
    MPI_Request_free(requests), MPI_Request_free(requests + 1);
    MPI_Psend_init(out, 4, LONG / 4, MPI_CHAR, next, 2, merged, MPI_INFO_NULL, requests);
    MPI_Precv_init(in, 4, LONG / 4, MPI_CHAR, before, 2, merged, MPI_INFO_NULL, requests + 1);
    MPI_Startall(2, requests);
    for (int i = 0; i < 4; i++) MPI_Pready(3 - i, requests[0]);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(in[0] == before + 1 && in[LONG - 1] == before + 1);
    MPI_Request_free(requests), MPI_Request_free(requests + 1);
    /* Collectives that do not block, and persistent ones. */
    MPI_Iallreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, merged, requests);
    MPI_Ibcast(out, LONG, MPI_CHAR, all - 1, merged, requests + 1);
    MPI_Waitall(2, requests, MPI_STATUSES_IGNORE);
    CHECK(sum == all * (all - 1) / 2 && out[LONG - 1] == all);
    MPI_Allreduce_init(&rank, &sum, 1, MPI_INT, MPI_MAX, merged, MPI_INFO_NULL, requests);
    MPI_Start(requests), MPI_Wait(requests, MPI_STATUS_IGNORE), MPI_Request_free(requests);
    CHECK(sum == all - 1);
    free(out), free(in);
}

int main(int argc, char **argv) {
    MPI_Comm parent, children, merged, halves;
    MPI_Init(&argc, &argv);
    MPI_Comm_get_parent(&parent);
    if (parent == MPI_COMM_NULL) {
        char *next[] = {argv[1], argv[2], NULL};
        MPI_Comm_spawn(argv[0], next, atoi(argv[1]), MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    } else {
        children = parent;
    }
    MPI_Intercomm_merge(children, parent != MPI_COMM_NULL, &merged);
    MPI_Comm_rank(merged, &rank), MPI_Comm_size(merged, &all);
    messages(merged);
    int sharing = shared(merged);
    windows(merged);
    topologies(merged);
    files(merged, argv[2]);
    /* Halves that have ranks of both worlds. */
    MPI_Comm_split(merged, rank % 2, 0, &halves);
    int place, half;
    MPI_Comm_rank(halves, &place), MPI_Comm_size(halves, &half);
    CHECK(place == rank / 2 && half == (all + (rank % 2 == 0)) / 2);
    MPI_Comm_free(&halves);
    int total, most;
    MPI_Reduce(&failures, &total, 1, MPI_INT, MPI_SUM, 0, merged);
    MPI_Reduce(&sharing, &most, 1, MPI_INT, MPI_MAX, 0, merged);
    if (rank == 0) printf("merged %d, %d share memory: %d failures\n", all, most, total);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&children);
    MPI_Finalize();
    return failures > 0;
}
