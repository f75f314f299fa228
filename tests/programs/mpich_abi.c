/* What differs in MPICH's older ABI, as programs see it: values of handles, statuses and constants that come back from the
   library. Built with MPICH's header. Two ranks or more. Prints one line. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

static int size, next, previous;

static void statuses(void) {
    MPI_Status status, all[2];
    MPI_Request requests[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Count elements = ((MPI_Count)5 << 32) + 7, found;
    MPI_Fint fortran[MPI_F_STATUS_SIZE];
    int flag, count, got = -1, class;
    status.MPI_ERROR = 1234;
    CHECK(MPI_Recv(&got, 1, MPI_INT, MPI_PROC_NULL, MPI_ANY_TAG, MPI_COMM_WORLD, &status) == MPI_SUCCESS);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG && status.MPI_ERROR == 1234);
    CHECK(MPI_Get_count(&status, MPI_INT, &count) == MPI_SUCCESS && count == 0);
    CHECK(MPI_Wait(requests, &status) == MPI_SUCCESS);
    CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG);
    MPI_Status_set_elements_x(&status, MPI_BYTE, elements);
    MPI_Status_set_cancelled(&status, 1);
    CHECK(status.count_lo == 7 && status.count_hi_and_cancelled == (5 << 1 | 1));
    MPI_Get_elements_x(&status, MPI_BYTE, &found);
    MPI_Test_cancelled(&status, &flag);
    CHECK(found == elements && flag == 1);
    MPI_Get_count(&status, MPI_BYTE, &count);
    CHECK(count == MPI_UNDEFINED);
    /* A count with all its bits. */
    elements = ((MPI_Count)0x7654321f << 32) + 7;
    MPI_Status_set_elements_x(&status, MPI_BYTE, elements);
    MPI_Get_elements_x(&status, MPI_BYTE, &found);
    CHECK(found == elements);
    CHECK(MPI_Status_c2f(&status, fortran) == MPI_SUCCESS && fortran[MPI_F_SOURCE] == status.MPI_SOURCE);
    memset(all, 0, sizeof all);
    CHECK(MPI_Status_f2c(fortran, all) == MPI_SUCCESS && !memcmp(all, &status, sizeof status));
    /* Too long a message among two: each status has its code. */
    int two[2] = {rank, rank};
    MPI_Irecv(&got, 1, MPI_INT, previous, 5, MPI_COMM_WORLD, &requests[0]);
    MPI_Irecv(&got, 1, MPI_INT, MPI_ANY_SOURCE, 6, MPI_COMM_WORLD, &requests[1]);
    MPI_Send(two, 2, MPI_INT, next, 5, MPI_COMM_WORLD);
    MPI_Send(two, 1, MPI_INT, next, 6, MPI_COMM_WORLD);
    CHECK(MPI_Waitall(2, requests, all) == MPI_ERR_IN_STATUS);
    MPI_Error_class(all[0].MPI_ERROR, &class);
    CHECK(class == MPI_ERR_TRUNCATE && all[1].MPI_ERROR == MPI_SUCCESS && all[1].MPI_SOURCE == previous && all[1].MPI_TAG == 6);
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
}

static void codes(void) {
    int class, code, other, len, *last, flag;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Add_error_class(&class);
    MPI_Add_error_code(class, &code);
    CHECK(class > MPI_ERR_LASTCODE && code > MPI_ERR_LASTCODE && class != code);
    MPI_Error_class(code, &other);
    CHECK(other == class);
    MPI_Add_error_string(code, "mine");
    CHECK(MPI_Error_string(code, text, &len) == MPI_SUCCESS && !strcmp(text, "mine"));
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_LASTUSEDCODE, &last, &flag);
    CHECK(flag && *last >= code);
    /* The text of a failure is found by its code. */
    code = MPI_Send(&code, 1, MPI_INT, size, 0, MPI_COMM_WORLD);
    expect("MPI_Send to no rank", code, MPI_ERR_RANK);
    CHECK(code <= MPI_ERR_LASTCODE && MPI_Error_string(code, text, &len) == MPI_SUCCESS && strstr(text, "MPI_Send"));
    CHECK(MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
    /* Values of the standard ABI, which mean nothing here. */
    expect("a communicator of the other ABI", MPI_Barrier(0x101), MPI_ERR_COMM);
    expect("a datatype of the other ABI", MPI_Type_size(0x209, &len), MPI_ERR_TYPE);
    expect("no handle", MPI_Comm_size(0, &len), MPI_ERR_COMM);
    expect("another kind", MPI_Comm_size((MPI_Comm)MPI_INT, &len), MPI_ERR_COMM);
    expect("a tag below the wildcard", MPI_Send(&code, 1, MPI_INT, next, -2, MPI_COMM_WORLD), MPI_ERR_TAG);
    expect("a source below all wildcards", MPI_Recv(&code, 1, MPI_INT, -4, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE), MPI_ERR_RANK);
    expect("a datatype of MPICH's own", MPI_Type_size(MPIX_BFLOAT16, &len), MPI_ERR_TYPE);
    expect("a removed datatype", MPI_Type_size(MPI_UB, &len), MPI_ERR_TYPE);
}

static int copied, deleted, is_failing;

static int copy(MPI_Comm comm, int key, void *extra, void *value, void *result, int *flag) {
    copied += comm == MPI_COMM_SELF && extra == &copied && key != MPI_KEYVAL_INVALID;
    *(void **)result = value, *flag = 1;
    return MPI_SUCCESS;
}

static int delete(MPI_Comm comm, int key, void *value, void *extra) {
    (void)key;
    deleted += value == &deleted && extra == &copied;
    return is_failing ? MPI_ERR_NAME : MPI_SUCCESS;
}

static void attributes(void) {
    int keys[3], *value, flag, window[4];
    MPI_Aint *bytes;
    MPI_Comm made;
    MPI_Win win;
    MPI_Comm_create_keyval(copy, delete, &keys[0], &copied);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, MPI_COMM_NULL_DELETE_FN, &keys[1], NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keys[2], NULL);
    for (int i = 0; i < 3; i++) MPI_Comm_set_attr(MPI_COMM_SELF, keys[i], &deleted);
    MPI_Comm_dup(MPI_COMM_SELF, &made);
    for (int i = 0; i < 3; i++) {
        MPI_Comm_get_attr(made, keys[i], &value, &flag);
        CHECK(flag == (i < 2) && (!flag || value == &deleted));
    }
    CHECK(copied == 1);
    MPI_Comm_free(&made);
    CHECK(deleted == 1 && made == MPI_COMM_NULL);
    is_failing = 1;
    expect("a callback that fails", MPI_Comm_delete_attr(MPI_COMM_SELF, keys[0]), MPI_ERR_NAME);
    is_failing = 0;
    for (int i = 0; i < 3; i++) {
        MPI_Comm_free_keyval(&keys[i]);
        CHECK(keys[i] == MPI_KEYVAL_INVALID);
    }
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_HOST, &value, &flag);
    CHECK(!flag || *value == MPI_PROC_NULL);
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_IO, &value, &flag);
    CHECK(flag && *value == MPI_ANY_SOURCE);
    MPI_Win_create(window, sizeof window, sizeof *window, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &value, &flag);
    CHECK(flag && *value == MPI_WIN_FLAVOR_CREATE);
    MPI_Win_get_attr(win, MPI_WIN_MODEL, &value, &flag);
    CHECK(flag && (*value == MPI_WIN_UNIFIED || *value == MPI_WIN_SEPARATE));
    MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag);
    CHECK(flag && *bytes == sizeof window);
    MPI_Win_free(&win);
    CHECK(win == MPI_WIN_NULL);
}

static void contents(void) {
    int integers[16], sizes[] = {8, 6}, parts[] = {4, 3}, starts[] = {0, 1}, count, combiner;
    int distributions[] = {MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE}, arguments[] = {MPI_DISTRIBUTE_DFLT_DARG, MPI_DISTRIBUTE_DFLT_DARG};
    int grid[] = {size, 1}, addresses, types;
    MPI_Aint address, lb, extent;
    MPI_Datatype made, old[1];
    MPI_Type_create_subarray(2, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_DOUBLE, &made);
    MPI_Type_get_envelope(made, &count, &addresses, &types, &combiner);
    CHECK(combiner == MPI_COMBINER_SUBARRAY && count == 8);
    MPI_Type_get_contents(made, 16, 0, 1, integers, &address, old);
    CHECK(integers[7] == MPI_ORDER_FORTRAN && old[0] == MPI_DOUBLE);
    MPI_Type_free(&made);
    MPI_Type_create_darray(size, rank, 2, sizes, distributions, arguments, grid, MPI_ORDER_C, MPI_INT, &made);
    MPI_Type_get_contents(made, 16, 0, 1, integers, &address, old);
    CHECK(integers[5] == MPI_DISTRIBUTE_CYCLIC && integers[6] == MPI_DISTRIBUTE_NONE && integers[7] == MPI_DISTRIBUTE_DFLT_DARG);
    CHECK(integers[9] == size && integers[11] == MPI_ORDER_C && old[0] == MPI_INT);
    MPI_Type_free(&made);
    CHECK(made == MPI_DATATYPE_NULL);
    /* Functions that have left the standard. */
    int lengths[] = {1, 2};
    MPI_Aint places[] = {8, 16};
    MPI_Datatype fields[] = {MPI_INT, MPI_DOUBLE};
    MPI_Type_struct(2, lengths, places, fields, &made);
    MPI_Type_commit(&made);
    MPI_Type_extent(made, &extent), MPI_Type_lb(made, &lb), MPI_Type_ub(made, &address);
    CHECK(lb == 8 && address == 32 && extent == 24);
    MPI_Type_free(&made);
    MPI_Address(&address, &lb);
    CHECK(lb == (MPI_Aint)&address);
}

/* MPICH's own binary16, as its header and mpi4py's wheel have it: 1.0 from each of 2 or 4 ranks. */
static void half_floats(void) {
    unsigned short one = 0x3c00, sum = 0, swapped = 0;
    MPI_Datatype pairs, old[1];
    int integers[1], bytes;
    MPI_Aint address;
    CHECK(MPI_Type_size(MPIX_C_FLOAT16, &bytes) == MPI_SUCCESS && bytes == 2);
    MPI_Allreduce(&one, &sum, 1, MPIX_C_FLOAT16, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == (size == 2 ? 0x4000 : 0x4400));
    MPI_Sendrecv(&one, 1, MPIX_C_FLOAT16, next, 0, &swapped, 1, MPIX_C_FLOAT16, previous, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(swapped == one);
    MPI_Type_contiguous(2, MPIX_C_FLOAT16, &pairs);
    MPI_Type_get_contents(pairs, 1, 0, 1, integers, &address, old);
    CHECK(old[0] == MPIX_C_FLOAT16);
    MPI_Type_free(&pairs);
    MPI_Allreduce(&one, &swapped, 1, MPI_REAL2, MPI_SUM, MPI_COMM_WORLD);
    CHECK(swapped == sum);
}

static void neighbourhood(void) {
    int sources[2], weights[2], targets[2], others[2], in, out, weighted;
    MPI_Comm ring, line;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &previous, MPI_UNWEIGHTED, 1, &next, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
    MPI_Topo_test(ring, &in);
    CHECK(in == MPI_DIST_GRAPH);
    MPI_Dist_graph_neighbors_count(ring, &in, &out, &weighted);
    CHECK(in == 1 && out == 1 && !weighted);
    MPI_Dist_graph_neighbors(ring, 1, sources, weights, 1, targets, others);
    CHECK(sources[0] == previous && targets[0] == next);
    int none = 0;
    MPI_Cart_create(MPI_COMM_WORLD, 1, &size, &none, 0, &line);
    MPI_Cart_shift(line, 0, 1, &in, &out);
    CHECK(in == (rank ? rank - 1 : MPI_PROC_NULL) && out == (rank < size - 1 ? rank + 1 : MPI_PROC_NULL));
    MPI_Comm_compare(ring, MPI_COMM_WORLD, &in);
    CHECK(in == MPI_CONGRUENT);
    MPI_Comm_free(&ring), MPI_Comm_free(&line);
}

static int handled;

static void handler(MPI_Comm *comm, int *code, ...) {
    int class;
    MPI_Error_class(*code, &class);
    handled += *comm == MPI_COMM_SELF && class == MPI_ERR_COUNT;
    *code = MPI_ERR_OTHER;
}

static void product(void *in, void *inout, int *count, MPI_Datatype *type) {
    for (int i = 0; i < *count; i++) ((int *)inout)[i] *= *type == MPI_INT ? ((int *)in)[i] : 0;
}

static void callbacks(void) {
    MPI_Errhandler own, got;
    MPI_Op op;
    int factor = rank + 1, result = 0, expected = 1;
    MPI_Comm_create_errhandler(handler, &own);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, own);
    MPI_Comm_get_errhandler(MPI_COMM_SELF, &got);
    CHECK(got == own);
    CHECK(MPI_Bcast(&factor, -1, MPI_INT, 0, MPI_COMM_SELF) == MPI_ERR_OTHER && handled == 1);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&own), MPI_Errhandler_free(&got);
    CHECK(own == MPI_ERRHANDLER_NULL);
    MPI_Op_create(product, 1, &op);
    MPI_Allreduce(&factor, &result, 1, MPI_INT, op, MPI_COMM_WORLD);
    for (int i = 1; i <= size; i++) expected *= i;
    CHECK(result == expected);
    MPI_Op_free(&op);
    CHECK(op == MPI_OP_NULL);
}

int main(int argc, char **argv) {
    int level, total;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_SERIALIZED, &level);
    CHECK(level == MPI_THREAD_SERIALIZED || level == MPI_THREAD_MULTIPLE);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    statuses();
    codes();
    attributes();
    contents();
    half_floats();
    neighbourhood();
    callbacks();
    MPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Finalize();
    if (rank == 0) printf("MPICH's ABI on %d ranks: %d failures\n", size, total);
    return total != 0;
}
