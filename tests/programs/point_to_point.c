/* Point-to-point communication and requests against the standard. Needs two ranks or more. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

static int size;

static void ring(size_t bytes) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    char *out = malloc(bytes + 1), *in = malloc(bytes + 1);
    MPI_Request requests[2];
    MPI_Status statuses[2];
    int count;
    memset(out, rank + 1, bytes);
    memset(in, 0, bytes);
    MPI_Irecv(in, bytes, MPI_CHAR, previous, 5, MPI_COMM_WORLD, &requests[0]);
    MPI_Isend(out, bytes, MPI_CHAR, next, 5, MPI_COMM_WORLD, &requests[1]);
    MPI_Waitall(2, requests, statuses);
    CHECK(requests[0] == MPI_REQUEST_NULL && requests[1] == MPI_REQUEST_NULL);
    CHECK(statuses[0].MPI_SOURCE == previous && statuses[0].MPI_TAG == 5);
    MPI_Get_count(&statuses[0], MPI_CHAR, &count);
    CHECK(count == (int)bytes);
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++) wrong += in[i] != (char)(previous + 1);
    CHECK(wrong == 0);
    free(out), free(in);
}

static void order_and_wildcards(void) {
    enum { MANY = 500 };
    if (rank == 0) {
        int seen[64] = {0}, value;
        MPI_Status status;
        for (int i = 0; i < MANY * (size - 1); i++) {
            MPI_Recv(&value, 1, MPI_INT, MPI_ANY_SOURCE, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
            CHECK(value == seen[status.MPI_SOURCE % 64]++);
            CHECK(status.MPI_TAG == value % 7);
        }
    } else {
        for (int i = 0; i < MANY; i++) MPI_Send(&i, 1, MPI_INT, 0, i % 7, MPI_COMM_WORLD);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void modes(void) {
    int value = 42, got = 0, flag;
    MPI_Request request;
    MPI_Status status;
    MPI_Message message;
    if (rank == 0) {
        char buffer[4096];
        MPI_Ssend(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
        MPI_Buffer_attach(buffer, sizeof buffer);
        MPI_Bsend(&value, 1, MPI_INT, 1, 2, MPI_COMM_WORLD);
        void *address;
        int bytes;
        MPI_Buffer_detach(&address, &bytes);
        CHECK(address == buffer && bytes == sizeof buffer);
        MPI_Issend(&value, 1, MPI_INT, 1, 3, MPI_COMM_WORLD, &request);
        MPI_Wait(&request, MPI_STATUS_IGNORE);
        MPI_Send_init(&value, 1, MPI_INT, 1, 4, MPI_COMM_WORLD, &request);
        for (value = 0; value < 3; value++) {
            MPI_Start(&request);
            MPI_Wait(&request, MPI_STATUS_IGNORE);
        }
        MPI_Request_free(&request);
        CHECK(request == MPI_REQUEST_NULL);
    } else if (rank == 1) {
        MPI_Probe(0, MPI_ANY_TAG, MPI_COMM_WORLD, &status);
        CHECK(status.MPI_TAG == 1);
        MPI_Recv(&got, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &status);
        CHECK(got == 42);
        MPI_Mprobe(0, 2, MPI_COMM_WORLD, &message, &status);
        MPI_Mrecv(&got, 1, MPI_INT, &message, &status);
        CHECK(got == 42 && message == MPI_MESSAGE_NULL && status.MPI_TAG == 2);
        do MPI_Iprobe(MPI_ANY_SOURCE, 3, MPI_COMM_WORLD, &flag, &status);
        while (!flag);
        MPI_Recv(&got, 1, MPI_INT, status.MPI_SOURCE, 3, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        for (int i = 0; i < 3; i++) {
            MPI_Recv(&got, 1, MPI_INT, 0, 4, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            CHECK(got == i);
        }
        MPI_Irecv(&got, 1, MPI_INT, 0, 99, MPI_COMM_WORLD, &request);
        MPI_Cancel(&request);
        MPI_Wait(&request, &status);
        MPI_Test_cancelled(&status, &flag);
        CHECK(flag);
    }
    MPI_Sendrecv(&rank, 1, MPI_INT, MPI_PROC_NULL, 0, &got, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL && status.MPI_TAG == MPI_ANY_TAG);
    MPI_Send(&rank, 1, MPI_INT, rank, 8, MPI_COMM_WORLD);
    MPI_Recv(&got, 1, MPI_INT, rank, 8, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    CHECK(got == rank);
}

/* Buffers of the process and of a communicator, lent and automatic. */
static void buffers(void) {
    enum { MANY = 300 };
    static char lent[2][8 * (MPI_BSEND_OVERHEAD + 8)];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, value, bytes, class;
    void *address;
    MPI_Comm own;
    MPI_Request request;
    MPI_Comm_dup(MPI_COMM_WORLD, &own);
    MPI_Comm_set_errhandler(own, MPI_ERRORS_RETURN);
    /* The communicator's own buffer is used if there is one, otherwise the process's. */
    MPI_Buffer_attach(lent[0], sizeof lent[0]);
    MPI_Comm_attach_buffer(own, lent[1], MPI_BSEND_OVERHEAD + 8);
    MPI_Error_class(MPI_Bsend(lent[0], 20, MPI_CHAR, next, 1, own), &class);
    CHECK(class == MPI_ERR_BUFFER);
    MPI_Bsend(&rank, 1, MPI_INT, next, 1, own);
    MPI_Bsend(&rank, 1, MPI_INT, next, 2, MPI_COMM_WORLD);
    MPI_Recv(&value, 1, MPI_INT, previous, 1, own, MPI_STATUS_IGNORE);
    MPI_Recv(&value, 1, MPI_INT, previous, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Comm_flush_buffer(own);
    MPI_Comm_detach_buffer(own, &address, &bytes);
    CHECK(address == lent[1] && bytes == MPI_BSEND_OVERHEAD + 8);
    MPI_Buffer_iflush(&request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(request == MPI_REQUEST_NULL);
    MPI_Buffer_detach(&address, &bytes);
    CHECK(address == lent[0] && bytes == (int)sizeof lent[0]);
    /* An automatic buffer accepts everything. */
    MPI_Comm_attach_buffer(own, MPI_BUFFER_AUTOMATIC, 0);
    for (int i = 0; i < MANY; i++) MPI_Bsend(&i, 1, MPI_INT, next, 3, own);
    MPI_Comm_iflush_buffer(own, &request);
    for (int i = 0; i < MANY; i++) {
        MPI_Recv(&value, 1, MPI_INT, previous, 3, own, MPI_STATUS_IGNORE);
        CHECK(value == i);
    }
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_detach_buffer(own, &address, &bytes);
    CHECK(address == MPI_BUFFER_AUTOMATIC && bytes == 0);
    MPI_Comm_free(&own);
}

static void exchanges(void) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, got = -1, both = rank, flag, index, count;
    MPI_Request requests[3];
    MPI_Status status, statuses[3];
    MPI_Isendrecv(&rank, 1, MPI_INT, next, 11, &got, 1, MPI_INT, previous, 11, MPI_COMM_WORLD, &requests[0]);
    MPI_Isendrecv_replace(&both, 1, MPI_INT, next, 12, previous, 12, MPI_COMM_WORLD, &requests[1]);
    requests[2] = MPI_REQUEST_NULL;
    do MPI_Request_get_status_all(3, requests, &flag, statuses);
    while (!flag);
    CHECK(statuses[0].MPI_SOURCE == previous && statuses[1].MPI_TAG == 12 && statuses[2].MPI_SOURCE == MPI_ANY_SOURCE);
    MPI_Request_get_status_any(3, requests, &index, &flag, &status);
    CHECK(flag && index == 0 && status.MPI_TAG == 11);
    MPI_Request_get_status_some(3, requests, &count, (int[3]){0}, statuses);
    CHECK(count == 2 && statuses[1].MPI_TAG == 12);
    MPI_Waitall(3, requests, statuses);
    CHECK(got == previous && both == previous && statuses[0].MPI_TAG == 11);
    MPI_Request_get_status_some(3, requests, &count, (int[3]){0}, statuses);
    CHECK(count == MPI_UNDEFINED);
    MPI_Isendrecv(&rank, 1, MPI_INT, MPI_PROC_NULL, 0, &got, 1, MPI_INT, MPI_PROC_NULL, 0, MPI_COMM_WORLD, &requests[0]);
    MPI_Wait(&requests[0], &status);
    CHECK(status.MPI_SOURCE == MPI_PROC_NULL);
}

/* Every call succeeds if nothing is active. */
static void empty_statuses(void) {
    int index, flag;
    MPI_Status status;
    MPI_Request none[2] = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
#define EMPTY(call)                                                            \
    do {                                                                       \
        status.MPI_ERROR = MPI_ERR_OTHER;                                      \
        call;                                                                  \
        CHECK(status.MPI_SOURCE == MPI_ANY_SOURCE && status.MPI_TAG == MPI_ANY_TAG); \
        CHECK(status.MPI_ERROR == MPI_SUCCESS);                                \
    } while (0)
    EMPTY(MPI_Wait(none, &status));
    EMPTY(MPI_Test(none, &flag, &status));
    EMPTY(MPI_Waitany(2, none, &index, &status));
    EMPTY(MPI_Testany(2, none, &index, &flag, &status));
    EMPTY(MPI_Request_get_status(none[0], &flag, &status));
    EMPTY(MPI_Request_get_status_any(2, none, &index, &flag, &status));
    EMPTY(MPI_Waitall(1, none, &status));
}

static void errors(void) {
    int class, value = 0, values[4];
    MPI_Status status;
    MPI_Comm stale, copy;
    MPI_Request request = MPI_REQUEST_NULL;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
#define EXPECT(call, expected)                        \
    do {                                              \
        MPI_Error_class(call, &class);                \
        CHECK(class == expected);                     \
    } while (0)
    EXPECT(MPI_Send(&value, -1, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_COUNT);
    EXPECT(MPI_Send(&value, 1, MPI_INT, size, 0, MPI_COMM_WORLD), MPI_ERR_RANK);
    EXPECT(MPI_Send(&value, 1, MPI_INT, 0, -5, MPI_COMM_WORLD), MPI_ERR_TAG);
    EXPECT(MPI_Send(&value, 1, MPI_DATATYPE_NULL, 0, 0, MPI_COMM_WORLD), MPI_ERR_TYPE);
    EXPECT(MPI_Send(NULL, 1, MPI_INT, 0, 0, MPI_COMM_WORLD), MPI_ERR_BUFFER);
    EXPECT(MPI_Send(&value, 1, MPI_INT, 0, 0, MPI_COMM_NULL), MPI_ERR_COMM);
    EXPECT(MPI_Bcast(&value, 1, MPI_INT, size, MPI_COMM_WORLD), MPI_ERR_ROOT);
    EXPECT(MPI_Allreduce(&value, values, 1, MPI_BYTE, MPI_SUM, MPI_COMM_WORLD), MPI_ERR_OP);
    EXPECT(MPI_Start(&request), MPI_ERR_REQUEST);
    empty_statuses();
    int added, code;
    MPI_Add_error_class(&added), MPI_Add_error_code(added, &code), MPI_Add_error_string(code, "told");
    EXPECT(MPI_Remove_error_class(added), MPI_ERR_ARG);
    EXPECT(MPI_Remove_error_code(code), MPI_ERR_ARG);
    MPI_Remove_error_string(code);
    EXPECT(MPI_Remove_error_code(code), MPI_SUCCESS);
    EXPECT(MPI_Remove_error_code(code), MPI_ERR_ARG);
    EXPECT(MPI_Remove_error_class(added), MPI_SUCCESS);
    MPI_Comm_dup(MPI_COMM_WORLD, &copy);
    stale = copy;
    MPI_Comm_free(&copy);
    CHECK(copy == MPI_COMM_NULL);
    EXPECT(MPI_Barrier(stale), MPI_ERR_COMM);
    if (rank == 0) {
        int four[4] = {1, 2, 3, 4};
        MPI_Send(four, 4, MPI_INT, 1, 6, MPI_COMM_WORLD);
    } else if (rank == 1) {
        values[2] = -1;
        EXPECT(MPI_Recv(values, 2, MPI_INT, 0, 6, MPI_COMM_WORLD, &status), MPI_ERR_TRUNCATE);
        CHECK(values[0] == 1 && values[1] == 2 && values[2] == -1);
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

static int copied, deleted;

static int copy_attribute(MPI_Comm comm, int key, void *state, void *in, void *out, int *flag) {
    (void)comm, (void)key;
    copied += *(int *)state;
    *(void **)out = in;
    *flag = 1;
    return MPI_SUCCESS;
}

static int delete_attribute(MPI_Comm comm, int key, void *value, void *state) {
    (void)comm, (void)key, (void)value, (void)state;
    deleted++;
    return MPI_SUCCESS;
}

/* Value of a communicator's hint; empty if it has none. */
static const char *hint(MPI_Comm comm, const char *key) {
    static char value[MPI_MAX_INFO_VAL];
    int flag, len = sizeof value;
    MPI_Info info;
    value[0] = 0;
    MPI_Comm_get_info(comm, &info);
    MPI_Info_get_string(info, key, &len, value, &flag);
    MPI_Info_free(&info);
    return value;
}

static void hints_and_kinds(void) {
    MPI_Info info;
    MPI_Comm copy, again, made;
    int members, freed, key, state = 1, value, *got, flag;
    MPI_Info_create(&info);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "true");
    MPI_Comm_dup_with_info(MPI_COMM_WORLD, info, &copy);
    MPI_Info_set(info, "mpi_assert_no_any_tag", "maybe");
    MPI_Info_set(info, "mpi_assert_exact_length", "true");
    MPI_Comm_set_info(copy, info);
    CHECK(!strcmp(hint(copy, "mpi_assert_no_any_tag"), "true") && !strcmp(hint(copy, "mpi_assert_exact_length"), "true"));
    MPI_Comm_dup(copy, &again);
    CHECK(!strcmp(hint(again, "mpi_assert_no_any_tag"), "false"));
    MPI_Comm_free(&again);
    /* A freed key still serves its existing attributes. */
    deleted = copied = 0;
    MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, &state);
    MPI_Comm_set_attr(copy, key, &value);
    freed = key;
    MPI_Comm_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
    MPI_Comm_dup(copy, &again);
    MPI_Comm_get_attr(again, freed, &got, &flag);
    CHECK(flag && got == &value && copied == 1);
    MPI_Comm_delete_attr(again, freed);
    CHECK(deleted == 1);
    MPI_Comm_free(&again), MPI_Comm_free(&copy);
    CHECK(deleted == 2);
    /* Kinds of splits. */
    MPI_Info_set(info, "mpi_hw_resource_type", "mpi_shared_memory");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, info, &made);
    MPI_Comm_size(made, &members);
    CHECK(members >= 1 && members <= size);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_UNGUIDED, 0, MPI_INFO_NULL, &again);
    CHECK((again == MPI_COMM_NULL) == (members == size));
    MPI_Comm_free(&made);
    if (again != MPI_COMM_NULL) MPI_Comm_free(&again);
    /* A rank gets a communicator of its own if the others pass MPI_UNDEFINED. */
    int kinds[] = {MPI_COMM_TYPE_SHARED, MPI_COMM_TYPE_HW_GUIDED, MPI_COMM_TYPE_RESOURCE_GUIDED};
    for (int root = 0; root < size; root++)
        for (int i = 0; i < 3; i++) {
            MPI_Comm_split_type(MPI_COMM_WORLD, rank == root ? kinds[i] : MPI_UNDEFINED, 0, info, &made);
            CHECK((made != MPI_COMM_NULL) == (rank == root));
            if (made == MPI_COMM_NULL) continue;
            MPI_Comm_size(made, &members);
            CHECK(members == 1);
            MPI_Comm_free(&made);
        }
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_HW_GUIDED, 0, MPI_INFO_NULL, &made);
    CHECK(made == MPI_COMM_NULL);
    MPI_Info_delete(info, "mpi_hw_resource_type");
    MPI_Info_set(info, "mpi_pset_name", "mpi://SELF");
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_RESOURCE_GUIDED, 0, info, &made);
    MPI_Comm_size(made, &members);
    CHECK(members == 1);
    MPI_Comm_free(&made);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_UNDEFINED, 0, info, &made);
    CHECK(made == MPI_COMM_NULL);
    MPI_Info_free(&info);
}

static void communicators(void) {
    MPI_Comm half, copy, shared;
    MPI_Group world, reversed;
    int key, state = 10, value = 5, *got, flag, half_rank, half_size, result, sum;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, -rank, &half);
    MPI_Comm_rank(half, &half_rank);
    MPI_Comm_size(half, &half_size);
    CHECK(half_size == (size + 1 - rank % 2) / 2);
    CHECK(half_rank == half_size - 1 - rank / 2);
    MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, half);
    int expected = 0;
    for (int r = rank % 2; r < size; r += 2) expected += r;
    CHECK(sum == expected);
    MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, &state);
    MPI_Comm_set_attr(half, key, &value);
    MPI_Comm_dup(half, &copy);
    MPI_Comm_get_attr(copy, key, &got, &flag);
    CHECK(flag && got == &value && copied == 10);
    MPI_Comm_compare(half, copy, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Comm_free(&copy);
    CHECK(deleted == 1);
    MPI_Comm_free(&half);
    CHECK(deleted == 2);
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    int backwards[1][3] = {{size - 1, 0, -1}};
    MPI_Group_range_incl(world, 1, backwards, &reversed);
    MPI_Comm_create(MPI_COMM_WORLD, reversed, &copy);
    MPI_Comm_rank(copy, &result);
    CHECK(result == size - 1 - rank);
    MPI_Comm_free(&copy);
    MPI_Group_free(&world), MPI_Group_free(&reversed);
    MPI_Comm_get_parent(&copy);
    CHECK(copy == MPI_COMM_NULL);
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &shared);
    MPI_Comm_size(shared, &result);
    CHECK(result >= 1 && result <= size);
    MPI_Comm_free(&shared);
    hints_and_kinds();
    MPI_Comm_get_attr(MPI_COMM_WORLD, MPI_TAG_UB, &got, &flag);
    CHECK(flag && *got >= 32767);
}

/* More short messages than a receiver has granted, all of them before the one that it waits for. */
static void before_what_is_waited_for(void) {
    enum { MANY = 6000, LONGEST = 700 };
    static int data[LONGEST], got[LONGEST];
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    for (int round = 0; round < 2; round++) {
        if (rank == 0) {
            for (int i = 0; i < MANY; i++) {
                int count = i * 7 % LONGEST;
                for (int j = 0; j < count; j++) data[j] = round + i * j;
                MPI_Send(data, count, MPI_INT, 1, i % 3, other);
            }
            MPI_Send(data, 0, MPI_INT, 1, 0, MPI_COMM_WORLD);
        } else if (rank == 1) {
            int wrong = 0;
            MPI_Recv(got, 0, MPI_INT, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            for (int i = 0; i < MANY; i++) {
                int count = i * 7 % LONGEST, came;
                MPI_Status status;
                MPI_Recv(got, LONGEST, MPI_INT, 0, i % 2 ? MPI_ANY_TAG : i % 3, other, &status);
                MPI_Get_count(&status, MPI_INT, &came);
                wrong += came != count || status.MPI_TAG != i % 3;
                for (int j = 0; j < count; j++) wrong += got[j] != round + i * j;
            }
            CHECK(wrong == 0);
        }
    }
    MPI_Comm_free(&other);
}

int main(int argc, char **argv) {
    int provided, all;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    CHECK(provided == MPI_THREAD_MULTIPLE);
    size_t lengths[] = {0, 1, 8, 55, 4096, 4097, 16384, 16385, 65536, 65537, 1 << 20, 20000003};
    for (int i = 0; i < 12; i++) ring(lengths[i]);
    order_and_wildcards();
    modes();
    buffers();
    exchanges();
    errors();
    communicators();
    before_what_is_waited_for();
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("point-to-point on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
