/* Wrong arguments and wrong epochs of windows: each call returns the fitting error class, calls the window's own error
   handler, and leaves the window usable. Any number of ranks. */
#include <mpi.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "expect.h"

enum { COUNT = 16 };

#define EXPECT(call, class) expect(#call, call, class)

static int size, right, *base;
static MPI_Win win, handled;
static int handled_code;

static void handle(MPI_Win *on, int *code, ...) { handled = *on, handled_code = *code; }

static void of_creation(void) {
    MPI_Win none;
    int *memory;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    EXPECT(MPI_Win_create(NULL, 8, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &none), MPI_ERR_BUFFER);
    EXPECT(MPI_Win_create(&none, -1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &none), MPI_ERR_SIZE);
    EXPECT(MPI_Win_create(&none, 8, 0, MPI_INFO_NULL, MPI_COMM_WORLD, &none), MPI_ERR_DISP);
    EXPECT(MPI_Win_allocate(-1, 1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &none), MPI_ERR_SIZE);
    EXPECT(MPI_Win_allocate_shared(8, -1, MPI_INFO_NULL, MPI_COMM_WORLD, &memory, &none), MPI_ERR_DISP);
    EXPECT(MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, NULL), MPI_ERR_ARG);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* Every call that needs an epoch, while none is open. */
static void outside_epochs(void) {
    int value = 0, flag;
    MPI_Request request;
    EXPECT(MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Get(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Put(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Accumulate(&value, 1, MPI_INT, right, 0, 1, MPI_INT, MPI_SUM, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Fetch_and_op(&value, &flag, MPI_INT, right, 0, MPI_SUM, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Compare_and_swap(&value, &value, &flag, MPI_INT, right, 0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Rput(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win, &request), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_wait(win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_test(win, &flag), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_unlock(right, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_flush(right, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_flush_all(win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_flush_local(right, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_flush_local_all(win), MPI_ERR_RMA_SYNC);
}

static void inside_epochs(void) {
    int value = 0, one;
    MPI_Group none = MPI_GROUP_EMPTY;
    MPI_Request request;
    MPI_Win_fence(0, win);
    MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win);
    EXPECT(MPI_Rput(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win, &request), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_start(none, 0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_flush(right, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);

    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
    EXPECT(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_lock_all(0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_unlock_all(win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    if (size > 1) EXPECT(MPI_Put(&value, 1, MPI_INT, rank, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    MPI_Win_unlock(right, win);

    MPI_Win_lock_all(0, win);
    EXPECT(MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_unlock(right, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    /* An operation on a window is completed by a wait only. */
    MPI_Rget(&one, 1, MPI_INT, right, 0, 1, MPI_INT, win, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Win_unlock_all(win);

    MPI_Win_post(none, 0, win), MPI_Win_start(none, 0, win);
    EXPECT(MPI_Win_post(none, 0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_start(none, 0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_fence(0, win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    EXPECT(MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win), MPI_ERR_RMA_SYNC);
    MPI_Win_complete(win);
    EXPECT(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    MPI_Win_wait(win);
}

static void of_assertions(void) {
    EXPECT(MPI_Win_fence(MPI_MODE_NOCHECK, win), MPI_ERR_ASSERT);
    EXPECT(MPI_Win_fence(1, win), MPI_ERR_ASSERT);
    EXPECT(MPI_Win_post(MPI_GROUP_EMPTY, MPI_MODE_NOSUCCEED, win), MPI_ERR_ASSERT);
    EXPECT(MPI_Win_start(MPI_GROUP_EMPTY, MPI_MODE_NOPUT, win), MPI_ERR_ASSERT);
    EXPECT(MPI_Win_lock(MPI_LOCK_SHARED, right, MPI_MODE_NOSTORE, win), MPI_ERR_ASSERT);
    EXPECT(MPI_Win_lock_all(-1, win), MPI_ERR_ASSERT);
    EXPECT(MPI_Win_lock(7, right, 0, win), MPI_ERR_LOCKTYPE);
}

static void swap(void *in, void *inout, int *len, MPI_Datatype *type) { (void)in, (void)inout, (void)len, (void)type; }

static void of_operations(void) {
    int value = 5, other = 6, result;
    double real = 0;
    MPI_Op own;
    MPI_Datatype mixed, loose, parts[2] = {MPI_INT, MPI_FLOAT};
    int lengths[2] = {1, 1};
    MPI_Aint places[2] = {0, 4};
    MPI_Op_create(swap, 1, &own);
    MPI_Type_create_struct(2, lengths, places, parts, &mixed), MPI_Type_commit(&mixed);
    MPI_Type_contiguous(2, MPI_INT, &loose);
    MPI_Win_lock_all(0, win);
    EXPECT(MPI_Put(&value, 1, MPI_INT, size, 0, 1, MPI_INT, win), MPI_ERR_RANK);
    EXPECT(MPI_Put(&value, 1, MPI_INT, MPI_ANY_SOURCE, 0, 1, MPI_INT, win), MPI_ERR_RANK);
    EXPECT(MPI_Put(&value, -1, MPI_INT, right, 0, 1, MPI_INT, win), MPI_ERR_COUNT);
    EXPECT(MPI_Put(&value, 1, MPI_INT, right, 0, -1, MPI_INT, win), MPI_ERR_COUNT);
    EXPECT(MPI_Put(NULL, 1, MPI_INT, right, 0, 1, MPI_INT, win), MPI_ERR_BUFFER);
    EXPECT(MPI_Put(&value, 1, MPI_DATATYPE_NULL, right, 0, 1, MPI_INT, win), MPI_ERR_TYPE);
    EXPECT(MPI_Put(&value, 1, MPI_INT, right, 0, 1, loose, win), MPI_ERR_TYPE);
    EXPECT(MPI_Put(&value, 1, MPI_INT, right, -1, 1, MPI_INT, win), MPI_ERR_DISP);
    EXPECT(MPI_Put(&value, 1, MPI_INT, right, COUNT, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Put(&value, 1, MPI_INT, right, PTRDIFF_MAX, 1, MPI_INT, win), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Get(&real, 1, MPI_DOUBLE, right, COUNT - 1, 1, MPI_DOUBLE, win), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Put(&value, 1, MPI_INT, right, 0, 2, MPI_INT, win), MPI_ERR_TRUNCATE);
    EXPECT(MPI_Get(&value, 1, MPI_INT, right, 0, 1, MPI_DOUBLE, win), MPI_ERR_TRUNCATE);
    EXPECT(MPI_Accumulate(&value, 1, MPI_INT, right, 0, 1, MPI_INT, own, win), MPI_ERR_OP);
    EXPECT(MPI_Accumulate(&value, 1, MPI_INT, right, 0, 1, MPI_INT, MPI_OP_NULL, win), MPI_ERR_OP);
    EXPECT(MPI_Accumulate(&value, 1, MPI_INT, right, 0, 1, MPI_INT, MPI_NO_OP, win), MPI_ERR_OP);
    EXPECT(MPI_Accumulate(&value, 1, MPI_INT, right, 0, 1, MPI_INT, MPI_MINLOC, win), MPI_ERR_OP);
    EXPECT(MPI_Accumulate(&real, 1, MPI_DOUBLE, right, 0, 1, MPI_DOUBLE, MPI_BAND, win), MPI_ERR_OP);
    EXPECT(MPI_Accumulate(&value, 1, MPI_INT, right, 0, 1, MPI_FLOAT, MPI_SUM, win), MPI_ERR_TYPE);
    EXPECT(MPI_Accumulate(&real, 1, mixed, right, 0, 1, mixed, MPI_SUM, win), MPI_ERR_TYPE);
    EXPECT(MPI_Get_accumulate(&value, 1, MPI_INT, &result, 1, MPI_FLOAT, right, 0, 1, MPI_INT, MPI_SUM, win), MPI_ERR_TYPE);
    EXPECT(MPI_Get_accumulate(&value, 1, MPI_INT, places, 2, MPI_INT, right, 0, 2, MPI_INT, MPI_SUM, win), MPI_ERR_TRUNCATE);
    EXPECT(MPI_Fetch_and_op(&real, &real, mixed, right, 0, MPI_SUM, win), MPI_ERR_TYPE);
    EXPECT(MPI_Fetch_and_op(&value, &result, MPI_INT, right, COUNT, MPI_SUM, win), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Compare_and_swap(&real, &real, &real, MPI_DOUBLE, right, 0, win), MPI_ERR_TYPE);
    EXPECT(MPI_Win_flush(-1, win), MPI_ERR_RANK);
    MPI_Win_flush_all(win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < COUNT; i++) CHECK(base[i] == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    /* The window is as usable as before. */
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, win);
    MPI_Put(&other, 1, MPI_INT, right, COUNT - 1, 1, MPI_INT, win);
    MPI_Win_unlock(right, win);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(base[COUNT - 1] == other);
    MPI_Op_free(&own), MPI_Type_free(&mixed), MPI_Type_free(&loose);
}

static void of_requests(void) {
    int value;
    MPI_Request request;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Win_lock_all(0, win);
    MPI_Rget(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win, &request);
    EXPECT(MPI_Cancel(&request), MPI_ERR_REQUEST);
    EXPECT(MPI_Request_free(&request), MPI_ERR_REQUEST);
    EXPECT(MPI_Start(&request), MPI_ERR_REQUEST);
    EXPECT(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_Win_unlock_all(win);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

static void of_memory(void) {
    MPI_Win dynamic;
    int cells[8], unit, *memory;
    MPI_Aint bytes;
    EXPECT(MPI_Win_attach(win, cells, sizeof cells), MPI_ERR_RMA_FLAVOR);
    EXPECT(MPI_Win_detach(win, cells), MPI_ERR_RMA_FLAVOR);
    EXPECT(MPI_Win_shared_query(win, size, &bytes, &unit, &memory), MPI_ERR_RANK);
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic);
    MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN);
    MPI_Win_attach(dynamic, cells, sizeof cells);
    EXPECT(MPI_Win_attach(dynamic, cells + 4, sizeof cells), MPI_ERR_RMA_ATTACH);
    EXPECT(MPI_Win_attach(dynamic, cells, -1), MPI_ERR_SIZE);
    EXPECT(MPI_Win_detach(dynamic, cells + 1), MPI_ERR_RMA_ATTACH);
    MPI_Win_detach(dynamic, cells);
    EXPECT(MPI_Win_detach(dynamic, cells), MPI_ERR_RMA_ATTACH);
    MPI_Win_free(&dynamic);
}

/* Puts that overlap without a flush between them, with mpiexec -check. */
static void of_conflicts(void) {
    int two[2] = {0};
    MPI_Request request;
    if (!getenv("CANELE_CHECK")) return;
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, win);
    EXPECT(MPI_Put(two, 2, MPI_INT, right, 0, 2, MPI_INT, win), MPI_SUCCESS);
    EXPECT(MPI_Put(two, 2, MPI_INT, right, 2, 2, MPI_INT, win), MPI_SUCCESS);
    EXPECT(MPI_Put(two, 2, MPI_INT, right, 1, 2, MPI_INT, win), MPI_ERR_RMA_CONFLICT);
    EXPECT(MPI_Rput(two, 1, MPI_INT, right, 3, 1, MPI_INT, win, &request), MPI_ERR_RMA_CONFLICT);
    MPI_Win_flush(right, win);
    EXPECT(MPI_Put(two, 2, MPI_INT, right, 1, 2, MPI_INT, win), MPI_SUCCESS);
    MPI_Win_unlock(right, win);
    MPI_Win_fence(0, win);
    EXPECT(MPI_Put(two, 1, MPI_INT, right, 1, 1, MPI_INT, win), MPI_SUCCESS);
    MPI_Win_fence(0, win);
    EXPECT(MPI_Put(two, 1, MPI_INT, right, 1, 1, MPI_INT, win), MPI_SUCCESS);
    EXPECT(MPI_Put(two, 1, MPI_INT, right, 1, 1, MPI_INT, win), MPI_ERR_RMA_CONFLICT);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
}

/* A message names rank, bytes, and the window if it has a name. */
static void of_messages(void) {
    int value = 0, len;
    char text[MPI_MAX_ERROR_STRING], expected[MPI_MAX_ERROR_STRING];
    MPI_Win_set_name(win, "cells");
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
    MPI_Error_string(MPI_Put(&value, 1, MPI_INT, right, COUNT, 1, MPI_INT, win), text, &len);
    snprintf(expected, sizeof expected,
             "MPI_Put: MPI_ERR_RMA_RANGE: bytes %zu to %zu lie outside the %zu bytes of rank %d's window (window cells)",
             COUNT * sizeof(int), (COUNT + 1) * sizeof(int), COUNT * sizeof(int), right);
    CHECK(!strcmp(text, expected));
    MPI_Win_unlock(right, win);
}

/* Operations on memory that is not attached fail when they are completed; the window stays usable. */
static void of_detached_memory(void) {
    static int cells[4];
    int value = 5, old = 0, *bases[64], *own = cells;
    MPI_Win dynamic;
    MPI_Request request;
    MPI_Aint place;
    MPI_Datatype apart;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic);
    MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN);
    MPI_Win_attach(dynamic, cells, 2 * sizeof(int));
    MPI_Allgather(&own, sizeof own, MPI_BYTE, bases, sizeof own, MPI_BYTE, MPI_COMM_WORLD);
    place = (MPI_Aint)bases[right];
    MPI_Type_vector(2, 1, 2, MPI_INT, &apart), MPI_Type_commit(&apart);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, dynamic);
    EXPECT(MPI_Put(&value, 1, MPI_INT, right, place + 8, 1, MPI_INT, dynamic), MPI_SUCCESS);
    EXPECT(MPI_Win_flush(right, dynamic), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Win_flush(right, dynamic), MPI_SUCCESS);
    EXPECT(MPI_Get(&old, 1, MPI_INT, right, place + 6, 1, MPI_INT, dynamic), MPI_SUCCESS);
    EXPECT(MPI_Win_flush_local(right, dynamic), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Accumulate(&value, 1, MPI_INT, right, place + 8, 1, MPI_INT, MPI_SUM, dynamic), MPI_SUCCESS);
    EXPECT(MPI_Win_flush(right, dynamic), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Fetch_and_op(&value, &old, MPI_INT, right, place - 4, MPI_SUM, dynamic), MPI_SUCCESS);
    EXPECT(MPI_Win_flush(right, dynamic), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Compare_and_swap(&value, &value, &old, MPI_INT, right, 8, dynamic), MPI_SUCCESS);
    EXPECT(MPI_Win_flush(right, dynamic), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Get(cells, 0, apart, right, place, 0, apart, dynamic), MPI_SUCCESS);
    EXPECT(MPI_Rget(&old, 1, MPI_INT, right, place + 100, 1, MPI_INT, dynamic, &request), MPI_SUCCESS);
    EXPECT(MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_RMA_RANGE);
    EXPECT(MPI_Put(bases, 2, MPI_INT, right, place, 1, apart, dynamic), MPI_SUCCESS);
    /* The lock is given back although an operation has failed. */
    EXPECT(MPI_Win_unlock(right, dynamic), MPI_ERR_RMA_RANGE);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, dynamic);
    MPI_Put(&value, 1, MPI_INT, right, place + 4, 1, MPI_INT, dynamic);
    EXPECT(MPI_Win_unlock(right, dynamic), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(cells[1] == 5 && cells[2] == 0 && cells[3] == 0);
    /* All meet in the fence. */
    MPI_Win_fence(0, dynamic);
    if (rank == 0) MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, dynamic);
    EXPECT(MPI_Win_fence(0, dynamic), rank == 0 ? MPI_ERR_RMA_RANGE : MPI_SUCCESS);
    EXPECT(MPI_Win_fence(MPI_MODE_NOSUCCEED, dynamic), MPI_SUCCESS);
    MPI_Type_free(&apart);
    MPI_Win_free(&dynamic);
}

static void of_handles(void) {
    int class, key, *value, flag;
    MPI_Errhandler own, found, of_comm;
    MPI_Win stale = win;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    EXPECT(MPI_Win_fence(0, MPI_WIN_NULL), MPI_ERR_WIN);
    EXPECT(MPI_Win_fence(0, (MPI_Win)MPI_COMM_WORLD), MPI_ERR_WIN);
    EXPECT(MPI_Barrier((MPI_Comm)win), MPI_ERR_COMM);
    MPI_Win_get_errhandler(win, &found);
    CHECK(found == MPI_ERRORS_RETURN);
    MPI_Win_create_errhandler(handle, &own);
    MPI_Win_set_errhandler(win, own);
    EXPECT(MPI_Win_complete(win), MPI_ERR_RMA_SYNC);
    MPI_Error_class(handled_code, &class);
    CHECK(handled == win && class == MPI_ERR_RMA_SYNC);
    handled = MPI_WIN_NULL;
    EXPECT(MPI_Win_call_errhandler(win, MPI_ERR_OTHER), MPI_SUCCESS);
    CHECK(handled == win && handled_code == MPI_ERR_OTHER);
    handled = MPI_WIN_NULL;
    MPI_Win_lock_all(0, win);
    EXPECT(MPI_Win_free(&win), MPI_ERR_RMA_SYNC);
    CHECK(handled == win && win == stale);
    MPI_Win_unlock_all(win);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&own);
    MPI_Comm_create_errhandler((MPI_Comm_errhandler_function *)handle, &of_comm);
    EXPECT(MPI_Win_set_errhandler(win, of_comm), MPI_ERR_ERRHANDLER);
    MPI_Errhandler_free(&of_comm);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &key, NULL);
    EXPECT(MPI_Win_set_attr(win, key, &key), MPI_ERR_KEYVAL);
    EXPECT(MPI_Win_set_attr(win, MPI_WIN_SIZE, &key), MPI_ERR_KEYVAL);
    EXPECT(MPI_Win_get_attr(win, key, &value, &flag), MPI_ERR_KEYVAL);
    MPI_Comm_free_keyval(&key);
    MPI_Win_free(&win);
    EXPECT(MPI_Win_fence(0, stale), MPI_ERR_WIN);
    EXPECT(MPI_Win_free(&stale), MPI_ERR_WIN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_ARE_FATAL);
}

static void of_groups(void) {
    MPI_Comm self;
    MPI_Win alone;
    MPI_Group all;
    int cell = 0;
    MPI_Comm_dup(MPI_COMM_SELF, &self);
    MPI_Win_create(&cell, sizeof cell, 1, MPI_INFO_NULL, self, &alone);
    MPI_Win_set_errhandler(alone, MPI_ERRORS_RETURN);
    MPI_Comm_group(MPI_COMM_WORLD, &all);
    if (size > 1) {
        EXPECT(MPI_Win_post(all, 0, alone), MPI_ERR_GROUP);
        EXPECT(MPI_Win_start(all, 0, alone), MPI_ERR_GROUP);
    }
    EXPECT(MPI_Win_post(MPI_GROUP_NULL, 0, alone), MPI_ERR_GROUP);
    MPI_Group_free(&all);
    MPI_Win_free(&alone), MPI_Comm_free(&self);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size;
    of_creation();
    MPI_Win_allocate(COUNT * sizeof(int), sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    memset(base, 0, COUNT * sizeof(int));
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_set_errhandler(win, MPI_ERRORS_RETURN);
    outside_epochs(), inside_epochs(), of_assertions(), of_operations(), of_messages(), of_conflicts(), of_requests(), of_memory(), of_detached_memory(), of_groups(), of_handles();
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("wrong calls on windows of %d ranks: %d failures\n", size, failures);
    MPI_Finalize();
    return failures != 0;
}
