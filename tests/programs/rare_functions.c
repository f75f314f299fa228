/* Rarely used functions, each against the standard's text: integers for handles, attributes by their former names,
   error handlers, infos, statuses and operations, and single forms for large counts. Runs on any number of ranks.
   Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int size;

static void tell_comm(MPI_Comm *comm, int *code, ...);
static void tell_win(MPI_Win *win, int *code, ...) { (void)win, (void)code; }
static void tell_file(MPI_File *file, int *code, ...) { (void)file, (void)code; }
static void tell_session(MPI_Session *session, int *code, ...) { (void)session, (void)code; }

/* Integers of constants are their values. Integers of handles convert back to the same handles. */
static void integers(void) {
    CHECK(MPI_Group_toint(MPI_GROUP_EMPTY) == (int)(intptr_t)MPI_GROUP_EMPTY);
    CHECK(MPI_Group_fromint(MPI_Group_toint(MPI_GROUP_NULL)) == MPI_GROUP_NULL);
    CHECK(MPI_Info_toint(MPI_INFO_ENV) == (int)(intptr_t)MPI_INFO_ENV);
    CHECK(MPI_Info_fromint(MPI_Info_toint(MPI_INFO_ENV)) == MPI_INFO_ENV);
    CHECK(MPI_Request_fromint(MPI_Request_toint(MPI_REQUEST_NULL)) == MPI_REQUEST_NULL);
    CHECK(MPI_Message_fromint(MPI_Message_toint(MPI_MESSAGE_NO_PROC)) == MPI_MESSAGE_NO_PROC);
    CHECK(MPI_Errhandler_fromint(MPI_Errhandler_toint(MPI_ERRORS_RETURN)) == MPI_ERRORS_RETURN);
    CHECK(MPI_Win_toint(MPI_WIN_NULL) == (int)(intptr_t)MPI_WIN_NULL);
    CHECK(MPI_Win_fromint(MPI_Win_toint(MPI_WIN_NULL)) == MPI_WIN_NULL);
    CHECK(MPI_File_toint(MPI_FILE_NULL) == (int)(intptr_t)MPI_FILE_NULL);
    CHECK(MPI_File_fromint(MPI_File_toint(MPI_FILE_NULL)) == MPI_FILE_NULL);
    CHECK(MPI_Session_toint(MPI_SESSION_NULL) == (int)(intptr_t)MPI_SESSION_NULL);
    CHECK(MPI_Session_fromint(MPI_Session_toint(MPI_SESSION_NULL)) == MPI_SESSION_NULL);

    MPI_Group group, same;
    MPI_Info info;
    MPI_Errhandler handler;
    int result, flag, len = 8;
    char text[8];
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    same = MPI_Group_fromint(MPI_Group_toint(group));
    CHECK(same == group && MPI_Group_toint(group) != MPI_Group_toint(MPI_GROUP_NULL));
    MPI_Group_size(same, &result);
    CHECK(result == size);
    MPI_Group_free(&same);
    MPI_Info_create(&info), MPI_Info_set(info, "key", "value");
    MPI_Info_get_string(MPI_Info_fromint(MPI_Info_toint(info)), "key", &len, text, &flag);
    CHECK(flag && !strcmp(text, "value"));
    MPI_Info_free(&info);
    MPI_Comm_create_errhandler(tell_comm, &handler);
    CHECK(MPI_Errhandler_fromint(MPI_Errhandler_toint(handler)) == handler);
    MPI_Errhandler_free(&handler);

    /* A request and a message that were converted to integers and back still work. */
    int out = 10 + rank, in = -1, other = -1, next = (rank + 1) % size, previous = (rank + size - 1) % size;
    MPI_Request request, sends[2];
    MPI_Message message;
    MPI_Status status;
    MPI_Irecv(&in, 1, MPI_INT, previous, 1, MPI_COMM_WORLD, &request);
    int number = MPI_Request_toint(request);
    MPI_Isend(&out, 1, MPI_INT, next, 1, MPI_COMM_WORLD, &sends[0]);
    MPI_Isend(&out, 1, MPI_INT, next, 2, MPI_COMM_WORLD, &sends[1]);
    request = MPI_Request_fromint(number);
    MPI_Wait(&request, &status);
    CHECK(in == 10 + previous && status.MPI_SOURCE == previous && request == MPI_REQUEST_NULL);
    MPI_Mprobe(previous, 2, MPI_COMM_WORLD, &message, &status);
    message = MPI_Message_fromint(MPI_Message_toint(message));
    MPI_Mrecv(&other, 1, MPI_INT, &message, MPI_STATUS_IGNORE);
    CHECK(other == 10 + previous && message == MPI_MESSAGE_NULL);
    MPI_Waitall(2, sends, MPI_STATUSES_IGNORE);
}

static int copied, deleted;

static int copy(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag) {
    (void)comm, (void)key;
    return copied++, *(void **)out = in, *flag = *(int *)state, MPI_SUCCESS;
}

static int drop(MPI_Comm comm, int key, void *value, void *state) {
    (void)comm, (void)key, (void)state;
    return deleted += *(int *)value, MPI_SUCCESS;
}

/* Attributes by their names in MPI-1 (MPI-5.0 §16.1), and keys for windows. */
static void attributes(void) {
    int key, plain, twice, flag, one = 1, goes_on = 1, value = 5, *got = NULL;
    MPI_Comm comm, twin;
    MPI_Attr_get(MPI_COMM_WORLD, MPI_TAG_UB, &got, &flag);
    CHECK(flag && *got >= 32767);
    MPI_Keyval_create(copy, drop, &key, &goes_on);
    MPI_Keyval_create(MPI_NULL_COPY_FN, MPI_NULL_DELETE_FN, &plain, NULL);
    MPI_Keyval_create(MPI_DUP_FN, MPI_NULL_DELETE_FN, &twice, NULL);
    CHECK(key != plain && plain != twice && key != MPI_KEYVAL_INVALID);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Attr_get(comm, key, &got, &flag);
    CHECK(!flag);
    MPI_Attr_put(comm, key, &one), MPI_Attr_put(comm, plain, &value), MPI_Attr_put(comm, twice, &value);
    MPI_Attr_get(comm, key, &got, &flag);
    CHECK(flag && got == &one && deleted == 0);
    MPI_Comm_dup(comm, &twin);
    MPI_Attr_get(twin, key, &got, &flag);
    CHECK(copied == 1 && flag && got == &one);
    MPI_Attr_get(twin, plain, &got, &flag);
    CHECK(!flag);
    MPI_Attr_get(twin, twice, &got, &flag);
    CHECK(flag && got == &value);
    /* A replaced attribute is deleted first, by its old value. */
    MPI_Attr_put(twin, key, &value);
    CHECK(deleted == 1);
    MPI_Attr_delete(twin, key);
    MPI_Attr_get(twin, key, &got, &flag);
    CHECK(deleted == 6 && !flag);
    goes_on = 0;
    MPI_Comm third;
    MPI_Comm_dup(comm, &third);
    MPI_Attr_get(third, key, &got, &flag);
    CHECK(copied == 2 && !flag);
    /* A freed key stays with its existing attributes. */
    MPI_Keyval_free(&key), MPI_Keyval_free(&plain), MPI_Keyval_free(&twice);
    CHECK(key == MPI_KEYVAL_INVALID && plain == MPI_KEYVAL_INVALID && twice == MPI_KEYVAL_INVALID);
    MPI_Comm_free(&third), MPI_Comm_free(&twin);
    CHECK(deleted == 6);
    MPI_Comm_free(&comm);
    CHECK(deleted == 7);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, &key, NULL);
    CHECK(key != MPI_KEYVAL_INVALID);
    MPI_Win_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
}

static int handled, handled_code;

static void tell_comm(MPI_Comm *comm, int *code, ...) { handled += comm != NULL, handled_code = *code; }

static void error_handlers(void) {
    MPI_Errhandler handler, got, others[3];
    MPI_Comm comm, twin;
    MPI_Comm_get_errhandler(MPI_COMM_WORLD, &got);
    CHECK(got == MPI_ERRORS_ARE_FATAL);
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Comm_get_errhandler(comm, &got);
    CHECK(got == MPI_ERRORS_RETURN);
    MPI_Comm_create_errhandler(tell_comm, &handler);
    MPI_Comm_set_errhandler(comm, handler);
    MPI_Comm_dup(comm, &twin);
    MPI_Comm_get_errhandler(twin, &got);
    CHECK(got == handler);
    /* The handler lives as long as a communicator or a handle refers to it (MPI-5.0 §9.3). */
    MPI_Errhandler_free(&handler), MPI_Errhandler_free(&got);
    CHECK(handler == MPI_ERRHANDLER_NULL && got == MPI_ERRHANDLER_NULL);
    MPI_Comm_free(&comm);
    CHECK(MPI_Send(NULL, 0, MPI_INT, size, 0, twin) != MPI_SUCCESS && handled == 1);
    int class;
    MPI_Error_class(handled_code, &class);
    CHECK(class == MPI_ERR_RANK);
    MPI_Comm_free(&twin);
    MPI_File_create_errhandler(tell_file, &others[0]);
    MPI_Session_create_errhandler(tell_session, &others[1]);
    MPI_Win_create_errhandler(tell_win, &others[2]);
    for (int i = 0; i < 3; i++) {
        CHECK(others[i] != MPI_ERRHANDLER_NULL && others[i] != others[(i + 1) % 3]);
        MPI_Errhandler_free(&others[i]);
        CHECK(others[i] == MPI_ERRHANDLER_NULL);
    }
}

static int has(MPI_Info info, const char *key, const char *value) {
    char text[MPI_MAX_INFO_VAL];
    int flag = 0;
    MPI_Info_get(info, key, sizeof text - 1, text, &flag);
    return flag && (!value || !strcmp(text, value));
}

static void infos(int argc, char **argv) {
    const char *keys[] = {"first", "second", "third"};
    char text[MPI_MAX_INFO_KEY + 1];
    int count, flag, seen = 0;
    MPI_Info info;
    MPI_Info_create(&info);
    for (int i = 0; i < 3; i++) MPI_Info_set(info, keys[i], "a value");
    MPI_Info_get_nkeys(info, &count);
    CHECK(count == 3);
    for (int n = 0; n < count; n++) {
        MPI_Info_get_nthkey(info, n, text);
        for (int i = 0; i < 3; i++) seen += !strcmp(text, keys[i]) << (4 * i);
    }
    CHECK(seen == 0x111);
    CHECK(has(info, "second", "a value"));
    /* At most the given length is written, with the terminator. */
    memset(text, 'x', 8);
    MPI_Info_get(info, "first", 3, text, &flag);
    CHECK(flag && !memcmp(text, "a v\0xxxx", 8));
    MPI_Info_get(info, "fourth", 3, text, &flag);
    CHECK(!flag && !memcmp(text, "a v\0xxxx", 8));
    MPI_Info_free(&info);

    /* The same as MPI_INFO_ENV, created by any caller. */
    MPI_Info_create_env(argc, argv, &info);
    CHECK(has(info, "command", argv[0]) && has(info, "host", NULL) && has(info, "wdir", NULL) && has(info, "arch", NULL));
    MPI_Info_set(info, "mine", "1");
    CHECK(has(info, "mine", "1") && !has(MPI_INFO_ENV, "mine", NULL));
    MPI_Info_free(&info);

    char bytes[8];
    MPI_Abi_get_info(&info);
    snprintf(bytes, sizeof bytes, "%zu", sizeof(MPI_Aint));
    CHECK(has(info, "mpi_aint_size", bytes));
    snprintf(bytes, sizeof bytes, "%zu", sizeof(MPI_Count));
    CHECK(has(info, "mpi_count_size", bytes));
    snprintf(bytes, sizeof bytes, "%zu", sizeof(MPI_Offset));
    CHECK(has(info, "mpi_offset_size", bytes));
    MPI_Info_free(&info);

    /* Each resource type says whether this process is bound to one of it. A split by it says the same. */
    MPI_Get_hw_resource_info(&info);
    MPI_Info_get_nkeys(info, &count);
    for (int n = 0; n < count; n++) {
        MPI_Info_get_nthkey(info, n, text);
        CHECK(has(info, text, "true") || has(info, text, "false"));
    }
    CHECK(has(info, "mpi_shared_memory", NULL));
    MPI_Info_free(&info);
}

static void first(void *in, void *inout, int *len, MPI_Datatype *type) {
    (void)type, memcpy(inout, in, *len * sizeof(int));
}

static void operations(void) {
    MPI_Op op;
    int commutes = -1, left[3] = {1, 2, 3}, right[3] = {10, 20, 30};
    MPI_Op_commutative(MPI_SUM, &commutes);
    CHECK(commutes == 1);
    MPI_Op_create(first, 0, &op);
    MPI_Op_commutative(op, &commutes);
    CHECK(commutes == 0);
    MPI_Reduce_local_c(left, right, 3, MPI_INT, MPI_SUM);
    CHECK(right[0] == 11 && right[1] == 22 && right[2] == 33);
    MPI_Reduce_local_c(left, right, 2, MPI_INT, op);
    CHECK(right[0] == 1 && right[1] == 2 && right[2] == 33);
    MPI_Op_free(&op);
    MPI_Op_create(first, 1, &op);
    MPI_Op_commutative(op, &commutes);
    CHECK(commutes == 1);
    MPI_Op_free(&op);
}

/* Bytes that MPI-5.0 §14.5.2 states: big-endian, of fixed lengths. */
static void external(void) {
    const unsigned char expected[] = {0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe, 0x3f, 0xf8, 0, 0, 0, 0, 0, 0};
    unsigned char packed[32] = {0};
    int two[] = {1, -2}, two_back[2] = {0};
    double real = 1.5, real_back = 0;
    MPI_Count bytes = 0, position = 0, back = 0;
    MPI_Pack_external_size_c("external32", 2, MPI_INT, &bytes);
    CHECK(bytes == 8);
    MPI_Pack_external_c("external32", two, 2, MPI_INT, packed, sizeof packed, &position);
    MPI_Pack_external_c("external32", &real, 1, MPI_DOUBLE, packed, sizeof packed, &position);
    CHECK(position == 16 && !memcmp(packed, expected, sizeof expected));
    MPI_Unpack_external_c("external32", packed, position, &back, two_back, 2, MPI_INT);
    MPI_Unpack_external_c("external32", packed, position, &back, &real_back, 1, MPI_DOUBLE);
    CHECK(back == 16 && !memcmp(two, two_back, sizeof two) && real == real_back);
}

static void statuses(void) {
    const MPI_Count beyond = ((MPI_Count)1 << 33) + 1;
    MPI_Datatype three;
    MPI_Status status;
    MPI_Count many = 0;
    int few = 0;
    memset(&status, 0, sizeof status);
    MPI_Type_contiguous(3, MPI_INT, &three);
    MPI_Type_commit(&three);
    MPI_Status_set_elements_c(&status, three, 6);
    MPI_Get_count(&status, three, &few), MPI_Get_elements_c(&status, three, &many);
    CHECK(few == 2 && many == 6);
    MPI_Status_set_elements_x(&status, three, 7);
    MPI_Get_count(&status, three, &few), MPI_Get_elements_x(&status, three, &many);
    CHECK(few == MPI_UNDEFINED && many == 7);
    MPI_Status_set_elements_c(&status, MPI_BYTE, beyond);
    MPI_Get_elements(&status, MPI_BYTE, &few), MPI_Get_elements_c(&status, MPI_BYTE, &many);
    CHECK(few == MPI_UNDEFINED && many == beyond);
    MPI_Status_set_elements_x(&status, MPI_INT, 2 * beyond);
    MPI_Get_count_c(&status, MPI_INT, &many);
    CHECK(many == 2 * beyond);
    MPI_Type_free(&three);
}

static void large_counts(void) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, out[2] = {rank, 7}, in[2] = {-1, -1};
    MPI_Request request, send;
    MPI_Message message;
    MPI_Status status;
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Isendrecv_c(out, 2, MPI_INT, next, 1, in, 2, MPI_INT, previous, 1, comm, &request);
    MPI_Wait(&request, &status);
    CHECK(in[0] == previous && in[1] == 7 && status.MPI_SOURCE == previous && status.MPI_TAG == 1);
    in[0] = 100 + rank;
    MPI_Isendrecv_replace_c(in, 1, MPI_INT, next, 2, previous, 2, comm, &request);
    MPI_Wait(&request, &status);
    CHECK(in[0] == 100 + previous && status.MPI_TAG == 2);
    for (int begun = 0; begun < 2; begun++) {
        in[0] = in[1] = -1;
        MPI_Isend(out, 1, MPI_INT, next, 3, comm, &send);
        MPI_Mprobe(previous, 3, comm, &message, &status);
        if (begun) {
            MPI_Imrecv_c(in, 2, MPI_INT, &message, &request);
            MPI_Wait(&request, &status);
        } else {
            MPI_Mrecv_c(in, 2, MPI_INT, &message, &status);
        }
        int count = 0;
        MPI_Get_count(&status, MPI_INT, &count);
        CHECK(message == MPI_MESSAGE_NULL && in[0] == previous && in[1] == -1 && count == 1);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
    }
    MPI_Recv_init_c(in, 2, MPI_INT, previous, 4, comm, &request);
    for (int round = 0; round < 3; round++) {
        out[1] = round, in[1] = -1;
        MPI_Start(&request);
        MPI_Send(out, 2, MPI_INT, next, 4, comm);
        MPI_Wait(&request, &status);
        CHECK(in[0] == previous && in[1] == round && request != MPI_REQUEST_NULL);
    }
    MPI_Request_free(&request);

    /* A buffer of the communicator's own holds messages that are sent before their receives. */
    static char lent[MPI_BSEND_OVERHEAD + 64];
    void *address = NULL;
    MPI_Count bytes = 0;
    MPI_Comm_attach_buffer_c(comm, lent, sizeof lent);
    MPI_Bsend(out, 2, MPI_INT, next, 5, comm);
    MPI_Recv(in, 2, MPI_INT, previous, 5, comm, MPI_STATUS_IGNORE);
    CHECK(in[0] == previous && in[1] == 2);
    MPI_Comm_detach_buffer_c(comm, &address, &bytes);
    CHECK(address == lent && bytes == sizeof lent);
    MPI_Comm_free(&comm);
}

static void topologies(void) {
    int dims[2] = {0, 0}, periods[2] = {0, 1}, coords[2], there, mine = -1, taken = 0, all = 0;
    MPI_Comm grid;
    MPI_Dims_create(size, 2, dims);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 0, &grid);
    /* Row by row (MPI-5.0 §8.2). */
    for (int r = 0; r < size; r++) {
        MPI_Cart_coords(grid, r, 2, coords);
        CHECK(coords[0] == r / dims[1] && coords[1] == r % dims[1]);
        MPI_Cart_rank(grid, coords, &there);
        CHECK(there == r);
    }
    MPI_Comm_free(&grid);

    /* A ring: each node has its own neighbours, on any rank. One node fewer than ranks leaves one rank out. */
    int *ends = malloc(size * sizeof *ends), *edges = malloc(2 * size * sizeof *edges);
    for (int nodes = size; nodes >= size - 1 && nodes > 0; nodes--) {
        for (int i = 0; i < nodes; i++) {
            ends[i] = 2 * (i + 1);
            edges[2 * i] = (i + nodes - 1) % nodes, edges[2 * i + 1] = (i + 1) % nodes;
        }
        MPI_Graph_map(MPI_COMM_WORLD, nodes, ends, edges, &mine);
        CHECK(mine == MPI_UNDEFINED || (mine >= 0 && mine < nodes));
        taken = mine == MPI_UNDEFINED ? 0 : 1 << mine;
        MPI_Allreduce(&taken, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(all == (1 << nodes) - 1);
        taken = mine != MPI_UNDEFINED;
        MPI_Allreduce(&taken, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        CHECK(all == nodes);
    }
    free(ends), free(edges);
}

static int class_of(int code) {
    int class = -1;
    MPI_Error_class(code, &class);
    return class;
}

/* Facts about Fortran's types: unknown until they are set, and set once. A size that the library cannot have is refused. */
static void fortran_facts(void) {
    MPI_Info info, found = MPI_INFO_ENV;
    char yes[16], no[16], text[8];
    int is_set = 1, flag, len = 8;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    CHECK(MPI_Abi_get_fortran_info(&found) == MPI_SUCCESS && found == MPI_INFO_NULL);
    CHECK(MPI_Abi_get_fortran_booleans(4, yes, no, &is_set) == MPI_SUCCESS && !is_set);
    MPI_Info_create(&info), MPI_Info_set(info, "mpi_integer_size", "8");
    CHECK(class_of(MPI_Abi_set_fortran_info(info)) == MPI_ERR_ABI);
    CHECK(MPI_Abi_get_fortran_info(&found) == MPI_SUCCESS && found == MPI_INFO_NULL);
    MPI_Info_set(info, "mpi_integer_size", "4");
    CHECK(MPI_Abi_set_fortran_info(info) == MPI_SUCCESS);
    CHECK(class_of(MPI_Abi_set_fortran_info(info)) == MPI_ERR_ABI);
    MPI_Info_free(&info);
    CHECK(MPI_Abi_get_fortran_info(&found) == MPI_SUCCESS && found != MPI_INFO_NULL);
    MPI_Info_get_string(found, "mpi_integer_size", &len, text, &flag);
    CHECK(flag && !strcmp(text, "4"));
    MPI_Info_free(&found);
    for (int size = -1; size < 20; size++)
        if (size != 1 && size != 2 && size != 4 && size != 8 && size != 16)
            CHECK(class_of(MPI_Abi_set_fortran_booleans(size, yes, no)) == MPI_ERR_ARG);
    memset(yes, 7, 16), memset(no, 8, 16);
    /* The values may lie anywhere. */
    CHECK(MPI_Abi_set_fortran_booleans(8, yes + 1, no + 3) == MPI_SUCCESS);
    CHECK(class_of(MPI_Abi_set_fortran_booleans(8, yes, no)) == MPI_ERR_ABI);
    memset(yes, 0, 16), memset(no, 0, 16);
    CHECK(class_of(MPI_Abi_get_fortran_booleans(4, yes, no, &is_set)) == MPI_ERR_ARG && !yes[0]);
    CHECK(MPI_Abi_get_fortran_booleans(8, yes, no, &is_set) == MPI_SUCCESS && is_set);
    CHECK(yes[0] == 7 && yes[7] == 7 && !yes[8] && no[0] == 8 && no[7] == 8 && !no[8]);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

int main(int argc, char **argv) {
    int all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    integers(), attributes(), error_handlers(), infos(argc, argv), operations(), external(), statuses();
    large_counts(), topologies(), fortran_facts();
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("rarely used functions, on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
