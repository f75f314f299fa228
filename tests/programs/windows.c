/* Windows of every flavour: operations with derived datatypes, all kinds of epochs, requests, memory that processes share.
   Any number of ranks. */
#include <mpi.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { COUNT = 64, ROUNDS = 50 };

static int size, right, left;
/* The last flavor of windows that is tried: processes of several nodes share no memory. */
static int last_flavor;

/* A window of COUNT ints for each process, each of which is set to `value`. */
static MPI_Win window_of(int flavor, int **base, int value) {
    MPI_Win win;
    MPI_Aint bytes = COUNT * sizeof(int);
    if (flavor == MPI_WIN_FLAVOR_CREATE) {
        *base = malloc(bytes);
        MPI_Win_create(*base, bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    } else if (flavor == MPI_WIN_FLAVOR_ALLOCATE) {
        MPI_Win_allocate(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, base, &win);
    } else {
        MPI_Win_allocate_shared(bytes, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, base, &win);
    }
    for (int i = 0; i < COUNT; i++) (*base)[i] = value;
    MPI_Win_fence(MPI_MODE_NOPRECEDE, win);
    return win;
}

static void release(MPI_Win win, int flavor, int *base) {
    MPI_Win_free(&win);
    CHECK(win == MPI_WIN_NULL);
    if (flavor == MPI_WIN_FLAVOR_CREATE) free(base);
}

static void attributes(void) {
    int *base, *memory, *unit, *flavor, *model, found, flag, len;
    MPI_Aint *bytes;
    char name[MPI_MAX_OBJECT_NAME];
    MPI_Group group, all;
    for (int kind = MPI_WIN_FLAVOR_CREATE; kind <= last_flavor; kind++) {
        if (kind == MPI_WIN_FLAVOR_DYNAMIC) continue;
        MPI_Win win = window_of(kind, &base, 0);
        MPI_Win_get_attr(win, MPI_WIN_BASE, &memory, &flag);
        CHECK(flag && memory == base);
        MPI_Win_get_attr(win, MPI_WIN_SIZE, &bytes, &flag);
        CHECK(flag && *bytes == COUNT * sizeof(int));
        MPI_Win_get_attr(win, MPI_WIN_DISP_UNIT, &unit, &flag);
        CHECK(flag && *unit == sizeof(int));
        MPI_Win_get_attr(win, MPI_WIN_CREATE_FLAVOR, &flavor, &flag);
        CHECK(flag && *flavor == kind);
        MPI_Win_get_attr(win, MPI_WIN_MODEL, &model, &flag);
        CHECK(flag && *model == MPI_WIN_UNIFIED);
        MPI_Win_get_name(win, name, &len);
        CHECK(len == 0);
        MPI_Win_set_name(win, "cells");
        MPI_Win_get_name(win, name, &len);
        CHECK(len == 5 && !strcmp(name, "cells"));
        MPI_Win_get_group(win, &group), MPI_Comm_group(MPI_COMM_WORLD, &all);
        MPI_Group_compare(group, all, &found);
        CHECK(found == MPI_IDENT);
        MPI_Group_free(&group), MPI_Group_free(&all);
        CHECK(MPI_Win_fromint(MPI_Win_toint(win)) == win);
        release(win, kind, base);
    }
}

static int deleted;

static int note(MPI_Win win, int key, void *value, void *extra) {
    CHECK(win != MPI_WIN_NULL && extra == &deleted);
    (void)key;
    deleted += *(int *)value;
    return MPI_SUCCESS;
}

static void keys(void) {
    int key, value = 3, other = 4, *found, flag, *base;
    MPI_Win win = window_of(MPI_WIN_FLAVOR_ALLOCATE, &base, 0);
    MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, note, &key, &deleted);
    MPI_Win_get_attr(win, key, &found, &flag);
    CHECK(!flag);
    MPI_Win_set_attr(win, key, &value);
    MPI_Win_get_attr(win, key, &found, &flag);
    CHECK(flag && found == &value);
    MPI_Win_delete_attr(win, key);
    CHECK(deleted == 3);
    MPI_Win_set_attr(win, key, &other);
    MPI_Win_free_keyval(&key);
    release(win, MPI_WIN_FLAVOR_ALLOCATE, base);
    CHECK(deleted == 7);
}

static void hints(void) {
    MPI_Info info, used;
    MPI_Win win;
    int *base, flag, len = 8;
    char value[8];
    MPI_Info_create(&info);
    MPI_Info_set(info, "no_locks", "true"), MPI_Info_set(info, "mpi_minimum_memory_alignment", "4096");
    MPI_Win_allocate(1, 1, info, MPI_COMM_WORLD, &base, &win);
    CHECK((MPI_Aint)base % 4096 == 0);
    MPI_Win_get_info(win, &used);
    MPI_Info_get_string(used, "no_locks", &len, value, &flag);
    CHECK(flag && !strcmp(value, "true"));
    MPI_Info_set(info, "no_locks", "false");
    MPI_Win_set_info(win, info);
    MPI_Info_free(&used);
    MPI_Win_get_info(win, &used);
    len = 8, MPI_Info_get_string(used, "no_locks", &len, value, &flag);
    CHECK(flag && !strcmp(value, "false"));
    MPI_Info_free(&info), MPI_Info_free(&used);
    MPI_Win_free(&win);
}

/* Each process puts to its right neighbour and gets from its left one. */
static void fences(int flavor) {
    int *base, row[COUNT], got[COUNT];
    MPI_Win win = window_of(flavor, &base, -1);
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < COUNT; i++) row[i] = rank * 1000 + round + i;
        MPI_Put(row, COUNT, MPI_INT, right, 0, COUNT, MPI_INT, win);
        MPI_Win_fence(0, win);
        for (int i = 0; i < COUNT; i++) CHECK(base[i] == left * 1000 + round + i);
        memset(got, 0, sizeof got);
        MPI_Get(got, COUNT / 2, MPI_INT, left, COUNT / 2, COUNT / 2, MPI_INT, win);
        MPI_Win_fence(0, win);
        int source = (left + size - 1) % size;
        for (int i = 0; i < COUNT / 2; i++) CHECK(got[i] == source * 1000 + round + COUNT / 2 + i);
    }
    MPI_Put(NULL, 0, MPI_INT, right, 0, 0, MPI_INT, win);
    MPI_Put(row, COUNT, MPI_INT, MPI_PROC_NULL, 0, COUNT, MPI_INT, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    release(win, flavor, base);
}

/* A column of the origin becomes a reversed comb of the target. */
static void datatypes(int flavor) {
    int *base, cells[8][8], back[8];
    MPI_Datatype column, comb;
    MPI_Win win = window_of(flavor, &base, -1);
    int places[4] = {9, 6, 3, 0};
    MPI_Type_vector(8, 1, 8, MPI_INT, &column);
    MPI_Type_create_indexed_block(4, 2, places, MPI_INT, &comb);
    MPI_Type_commit(&column), MPI_Type_commit(&comb);
    for (int i = 0; i < 8; i++) for (int j = 0; j < 8; j++) cells[i][j] = rank * 100 + i * 8 + j;
    MPI_Put(&cells[0][3], 1, column, right, 2, 1, comb, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 8; i++) CHECK(base[2 + places[i / 2] + i % 2] == left * 100 + i * 8 + 3);
    CHECK(base[0] == -1 && base[4] == -1 && base[COUNT - 1] == -1);
    MPI_Get(back, 8, MPI_INT, right, 2, 1, comb, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 8; i++) CHECK(back[i] == rank * 100 + i * 8 + 3);
    /* The fence before ordered the reads with these updates. */
    MPI_Accumulate(&cells[0][3], 1, column, right, 2, 1, comb, MPI_SUM, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < 8; i++) CHECK(base[2 + places[i / 2] + i % 2] == 2 * (left * 100 + i * 8 + 3));
    MPI_Type_free(&column), MPI_Type_free(&comb);
    MPI_Win_fence(MPI_MODE_NOPRECEDE | MPI_MODE_NOSUCCEED, win);
    release(win, flavor, base);
}

/* Long transfers, of more than a message's first bytes. */
static void long_ones(int flavor) {
    MPI_Win win;
    int count = 300000;
    double *base, *data = malloc(count * sizeof *data);
    if (flavor == MPI_WIN_FLAVOR_CREATE) {
        base = malloc(count * sizeof *base);
        MPI_Win_create_c(base, count * sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    } else {
        MPI_Win_allocate_c(count * sizeof *base, sizeof *base, MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win);
    }
    for (int i = 0; i < count; i++) base[i] = 1, data[i] = rank + i * 0.5;
    MPI_Win_fence(0, win);
    MPI_Accumulate_c(data, count, MPI_DOUBLE, right, 0, count, MPI_DOUBLE, MPI_SUM, win);
    MPI_Win_fence(0, win);
    int wrong = 0;
    for (int i = 0; i < count; i++) wrong += base[i] != left + i * 0.5 + 1;
    CHECK(wrong == 0);
    MPI_Win_fence(0, win);
    MPI_Put_c(data, count, MPI_DOUBLE, right, 0, count, MPI_DOUBLE, win);
    MPI_Win_fence(0, win);
    for (int i = 0; i < count; i++) wrong += base[i] != left + i * 0.5, data[i] = -1;
    CHECK(wrong == 0);
    MPI_Get_c(data, count, MPI_DOUBLE, right, 0, count, MPI_DOUBLE, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    for (int i = 0; i < count; i++) wrong += data[i] != rank + i * 0.5;
    CHECK(wrong == 0);
    MPI_Win_free(&win);
    if (flavor == MPI_WIN_FLAVOR_CREATE) free(base);
    free(data);
}

/* Neighbours in a ring open epochs for each other only. */
static void groups(int flavor) {
    int *base, flag = 0, ranks[2] = {left, right}, both = left == right ? 1 : 2;
    MPI_Group all, origins, targets;
    MPI_Win win = window_of(flavor, &base, 0);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    MPI_Win_get_group(win, &all);
    MPI_Group_incl(all, both, ranks, &origins), MPI_Group_incl(all, both, ranks, &targets);
    for (int round = 1; round <= ROUNDS; round++) {
        int value = rank * 1000 + round;
        MPI_Win_post(origins, 0, win);
        MPI_Win_start(targets, 0, win);
        MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win);
        MPI_Accumulate(&round, 1, MPI_INT, left, 1, 1, MPI_INT, MPI_MAX, win);
        MPI_Win_complete(win);
        if (round % 2) MPI_Win_wait(win);
        else for (flag = 0; !flag;) MPI_Win_test(win, &flag);
        CHECK(base[0] == left * 1000 + round && base[1] == round);
    }
    MPI_Win_post(MPI_GROUP_EMPTY, 0, win), MPI_Win_start(MPI_GROUP_EMPTY, 0, win);
    MPI_Win_complete(win), MPI_Win_wait(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_post(origins, MPI_MODE_NOCHECK, win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_start(targets, MPI_MODE_NOCHECK, win);
    MPI_Put(&rank, 1, MPI_INT, right, 0, 1, MPI_INT, win);
    MPI_Win_complete(win), MPI_Win_wait(win);
    CHECK(base[0] == left);
    MPI_Group_free(&all), MPI_Group_free(&origins), MPI_Group_free(&targets);
    release(win, flavor, base);
}

/* All processes count in the window of rank 0: under an exclusive lock, and atomically under shared ones. */
static void locks(int flavor) {
    int *base, value, one = 1, old, last = -1, sum;
    MPI_Win win = window_of(flavor, &base, 0);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, 0, 0, win);
        MPI_Get(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
        MPI_Win_flush(0, win);
        value++;
        MPI_Put(&value, 1, MPI_INT, 0, 0, 1, MPI_INT, win);
        MPI_Win_unlock(0, win);
        MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
        MPI_Fetch_and_op(&one, &old, MPI_INT, 0, 1, MPI_SUM, win);
        MPI_Win_flush_local(0, win);
        CHECK(old > last);
        last = old;
        MPI_Win_unlock(0, win);
    }
    MPI_Win_lock_all(0, win);
    for (int target = 0; target < size; target++) MPI_Accumulate(&rank, 1, MPI_INT, target, 2, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_flush_local_all(win), MPI_Win_flush_all(win);
    MPI_Win_unlock_all(win);
    MPI_Win_lock_all(MPI_MODE_NOCHECK, win);
    MPI_Fetch_and_op(NULL, &sum, MPI_INT, right, 3, MPI_NO_OP, win);
    MPI_Win_sync(win);
    MPI_Win_unlock_all(win);
    CHECK(sum == 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, MPI_PROC_NULL, 0, win);
    MPI_Put(&one, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win);
    MPI_Win_flush(MPI_PROC_NULL, win), MPI_Win_unlock(MPI_PROC_NULL, win);
    MPI_Win_lock(MPI_LOCK_SHARED, rank, MPI_MODE_NOCHECK, win);
    if (rank == 0) CHECK(base[0] == size * ROUNDS && base[1] == size * ROUNDS);
    CHECK(base[2] == size * (size - 1) / 2);
    MPI_Win_unlock(rank, win);
    release(win, flavor, base);
}

static void fetching(int flavor) {
    int *base, old, next, none = -1, row[4] = {1, 2, 3, 4}, former[4];
    MPI_Win win = window_of(flavor, &base, -1);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    /* One process wins each cell of rank 0; all learn who. */
    MPI_Win_lock(MPI_LOCK_SHARED, 0, 0, win);
    for (int i = 0; i < 8; i++) {
        MPI_Compare_and_swap(&rank, &none, &old, MPI_INT, 0, i, win);
        MPI_Fetch_and_op(NULL, &next, MPI_INT, 0, i, MPI_NO_OP, win);
        MPI_Win_flush(0, win);
        CHECK(next >= 0 && next < size && (old == -1 ? next == rank : next == old));
    }
    MPI_Win_unlock(0, win);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, win);
    MPI_Get_accumulate(row, 4, MPI_INT, former, 4, MPI_INT, right, 8, 4, MPI_INT, MPI_REPLACE, win);
    MPI_Win_flush(right, win);
    for (int i = 0; i < 4; i++) CHECK(former[i] == -1);
    MPI_Get_accumulate(row, 4, MPI_INT, former, 4, MPI_INT, right, 8, 4, MPI_INT, MPI_PROD, win);
    MPI_Win_flush(right, win);
    for (int i = 0; i < 4; i++) CHECK(former[i] == i + 1);
    MPI_Get_accumulate(NULL, 0, MPI_DATATYPE_NULL, former, 4, MPI_INT, right, 8, 4, MPI_INT, MPI_NO_OP, win);
    MPI_Win_unlock(right, win);
    for (int i = 0; i < 4; i++) CHECK(former[i] == (i + 1) * (i + 1));
    release(win, flavor, base);
}

static void requests(int flavor) {
    int *base, value = rank + 7, got = -1, old[2] = {-1, -1}, two[2] = {5, 6};
    MPI_Request all[3];
    MPI_Win win = window_of(flavor, &base, 1);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    MPI_Win_lock_all(0, win);
    MPI_Rput(&value, 1, MPI_INT, right, 0, 1, MPI_INT, win, &all[0]);
    MPI_Raccumulate(two, 2, MPI_INT, right, 1, 2, MPI_INT, MPI_SUM, win, &all[1]);
    MPI_Rput(&value, 1, MPI_INT, MPI_PROC_NULL, 0, 1, MPI_INT, win, &all[2]);
    MPI_Waitall(3, all, MPI_STATUSES_IGNORE);
    CHECK(all[0] == MPI_REQUEST_NULL && all[1] == MPI_REQUEST_NULL && all[2] == MPI_REQUEST_NULL);
    MPI_Win_flush(right, win);
    MPI_Rget(&got, 1, MPI_INT, right, 0, 1, MPI_INT, win, &all[0]);
    MPI_Rget_accumulate(two, 2, MPI_INT, old, 2, MPI_INT, right, 1, 2, MPI_INT, MPI_SUM, win, &all[1]);
    for (int done = 0, index; done < 2; done++) MPI_Waitany(2, all, &index, MPI_STATUS_IGNORE);
    CHECK(got == value && old[0] == 6 && old[1] == 7);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(base[0] == left + 7 && base[1] == 11 && base[2] == 13);
    release(win, flavor, base);
}

/* Loads and stores in the memory of others. */
static void shared(const char *noncontiguous) {
    int *base, *theirs, unit;
    MPI_Aint bytes, expected;
    MPI_Info info;
    MPI_Win win;
    MPI_Info_create(&info);
    MPI_Info_set(info, "alloc_shared_noncontig", noncontiguous);
    /* Even ranks have none. */
    bytes = rank % 2 ? (rank + 1) * sizeof(int) : 0;
    MPI_Win_allocate_shared(bytes, sizeof(int), info, MPI_COMM_WORLD, &base, &win);
    MPI_Win_lock_all(0, win);
    for (int target = 0; target < size; target++) {
        MPI_Win_shared_query(win, target, &bytes, &unit, &theirs);
        expected = target % 2 ? (target + 1) * sizeof(int) : 0;
        CHECK(bytes == expected && unit == sizeof(int));
        if (target == rank) CHECK(theirs == base || bytes == 0);
        if (bytes > 0) theirs[rank % (target + 1)] = target;
    }
    MPI_Win_sync(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(win);
    if (rank % 2) for (int i = 0; i <= rank && i < size; i++) CHECK(base[i] == rank);
    MPI_Win_shared_query(win, MPI_PROC_NULL, &bytes, &unit, &theirs);
    CHECK(bytes == (size > 1 ? 2 * (MPI_Aint)sizeof(int) : 0));
    if (size > 1) CHECK(theirs[0] == 1);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_free(&win);
    MPI_Info_free(&info);
}

static void query_of_others(void) {
    int *base, *theirs, unit;
    MPI_Aint bytes;
    MPI_Win win = window_of(MPI_WIN_FLAVOR_CREATE, &base, 0);
    MPI_Win_shared_query(win, rank, &bytes, &unit, &theirs);
    CHECK(bytes == COUNT * sizeof(int) && unit == sizeof(int) && theirs == base);
    release(win, MPI_WIN_FLAVOR_CREATE, base);
}

static void dynamic(void) {
    MPI_Win win;
    int cells[COUNT], other[4], value = rank, got = -1;
    MPI_Aint own, theirs;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int i = 0; i < COUNT; i++) cells[i] = -1;
    MPI_Win_attach(win, cells, sizeof cells), MPI_Win_attach(win, other, sizeof other);
    MPI_Win_detach(win, other);
    MPI_Get_address(&cells[5], &own);
    MPI_Sendrecv(&own, 1, MPI_AINT, left, 0, &theirs, 1, MPI_AINT, right, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Win_fence(0, win);
    MPI_Put(&value, 1, MPI_INT, right, theirs, 1, MPI_INT, win);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, win);
    CHECK(cells[4] == -1 && cells[5] == left && cells[6] == -1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_lock(MPI_LOCK_SHARED, right, 0, win);
    MPI_Accumulate(&value, 1, MPI_INT, right, theirs, 1, MPI_INT, MPI_SUM, win);
    MPI_Win_flush(right, win);
    MPI_Get(&got, 1, MPI_INT, right, theirs, 1, MPI_INT, win);
    MPI_Win_unlock(right, win);
    CHECK(got == 2 * rank);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_detach(win, cells);
    MPI_Win_free(&win);
}

/* Several windows at a time, of several communicators. */
static void several(void) {
    MPI_Comm half;
    MPI_Win one, two;
    int *first, second = -1, in_half, halves;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &in_half), MPI_Comm_size(half, &halves);
    MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &first, &one);
    MPI_Win_create(&second, sizeof second, 1, MPI_INFO_NULL, half, &two);
    MPI_Comm_free(&half);
    MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, one), MPI_Win_fence(0, two);
    MPI_Put(&rank, 1, MPI_INT, right, 0, 1, MPI_INT, one);
    MPI_Put(&in_half, 1, MPI_INT, (in_half + 1) % halves, 0, 1, MPI_INT, two);
    MPI_Win_fence(MPI_MODE_NOSUCCEED, two), MPI_Win_unlock(right, one);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(*first == left && second == (in_half + halves - 1) % halves);
    MPI_Win_free(&two), MPI_Win_free(&one);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size, left = (rank + size - 1) % size;
    MPI_Comm node;
    int near;
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
    MPI_Comm_size(node, &near), MPI_Comm_free(&node);
    last_flavor = near == size ? MPI_WIN_FLAVOR_SHARED : MPI_WIN_FLAVOR_ALLOCATE;
    attributes(), keys(), hints();
    for (int flavor = MPI_WIN_FLAVOR_CREATE; flavor <= last_flavor; flavor++) {
        if (flavor == MPI_WIN_FLAVOR_DYNAMIC) continue;
        fences(flavor), datatypes(flavor), groups(flavor), locks(flavor), fetching(flavor), requests(flavor);
    }
    long_ones(MPI_WIN_FLAVOR_CREATE), long_ones(MPI_WIN_FLAVOR_ALLOCATE);
    if (last_flavor == MPI_WIN_FLAVOR_SHARED) shared("false"), shared("true"), query_of_others();
    dynamic(), several();
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("windows of %d ranks: %d failures\n", size, failures);
    MPI_Finalize();
    return failures != 0;
}
