/* Queries of groups, communicators, types, infos, statuses and handles, and every send mode. LARGE selects the forms
   for large counts. Runs on any number of ranks. Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#ifdef LARGE
typedef MPI_Count number;
#define MPI_Send MPI_Send_c
#define MPI_Ssend MPI_Ssend_c
#define MPI_Bsend MPI_Bsend_c
#define MPI_Rsend MPI_Rsend_c
#define MPI_Isend MPI_Isend_c
#define MPI_Issend MPI_Issend_c
#define MPI_Ibsend MPI_Ibsend_c
#define MPI_Irsend MPI_Irsend_c
#define MPI_Send_init MPI_Send_init_c
#define MPI_Ssend_init MPI_Ssend_init_c
#define MPI_Bsend_init MPI_Bsend_init_c
#define MPI_Rsend_init MPI_Rsend_init_c
#define MPI_Irecv MPI_Irecv_c
#define MPI_Sendrecv MPI_Sendrecv_c
#define MPI_Sendrecv_replace MPI_Sendrecv_replace_c
#define MPI_Buffer_attach MPI_Buffer_attach_c
#define MPI_Buffer_detach MPI_Buffer_detach_c
#define MPI_Pack MPI_Pack_c
#define MPI_Pack_size MPI_Pack_size_c
#define MPI_Unpack MPI_Unpack_c
#else
typedef int number;
#endif

static int size;

/* Each mode to the next rank: blocking, nonblocking and persistent. A ready send follows once its receive is known to
   be posted. */
static void modes(void) {
    static char lent[8 * (MPI_BSEND_OVERHEAD + 16)];
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, out, in;
    number bytes;
    void *address;
    MPI_Request receive, send;
    MPI_Buffer_attach(lent, sizeof lent);
    for (int mode = 0; mode < 12; mode++) {
        out = 100 * mode + rank, in = -1;
        MPI_Irecv(&in, 1, MPI_INT, previous, mode, MPI_COMM_WORLD, &receive);
        MPI_Sendrecv(NULL, 0, MPI_INT, previous, 77, NULL, 0, MPI_INT, next, 77, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        send = MPI_REQUEST_NULL;
        switch (mode) {
        case 0: MPI_Send(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD); break;
        case 1: MPI_Ssend(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD); break;
        case 2: MPI_Bsend(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD); break;
        case 3: MPI_Rsend(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD); break;
        case 4: MPI_Isend(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD, &send); break;
        case 5: MPI_Issend(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD, &send); break;
        case 6: MPI_Ibsend(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD, &send); break;
        case 7: MPI_Irsend(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD, &send); break;
        case 8: MPI_Send_init(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD, &send); break;
        case 9: MPI_Ssend_init(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD, &send); break;
        case 10: MPI_Bsend_init(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD, &send); break;
        case 11: MPI_Rsend_init(&out, 1, MPI_INT, next, mode, MPI_COMM_WORLD, &send); break;
        }
        if (mode >= 8) MPI_Start(&send);
        MPI_Wait(&send, MPI_STATUS_IGNORE);
        MPI_Wait(&receive, MPI_STATUS_IGNORE);
        CHECK(in == 100 * mode + previous);
        CHECK((send == MPI_REQUEST_NULL) == (mode < 8));
        if (mode >= 8) MPI_Request_free(&send);
    }
    MPI_Buffer_flush();
    MPI_Buffer_detach(&address, &bytes);
    CHECK(address == lent && bytes == sizeof lent);
    MPI_Status status;
    in = rank;
    MPI_Sendrecv_replace(&in, 1, MPI_INT, next, 5, previous, 5, MPI_COMM_WORLD, &status);
    CHECK(in == previous && status.MPI_SOURCE == previous && status.MPI_TAG == 5);
}

static void groups(void) {
    MPI_Group world, low, high, made;
    int result, members, mine, half = (size + 1) / 2, ranges[1][3] = {{0, half - 1, 1}}, all[64], there[64];
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    for (int r = 0; r < size; r++) all[r] = r;
    MPI_Group_incl(world, half, all, &low);
    MPI_Group_range_excl(world, 1, ranges, &high);
    MPI_Group_size(high, &members), MPI_Group_rank(high, &mine);
    CHECK(members == size - half && mine == (rank < half ? MPI_UNDEFINED : rank - half));
    MPI_Group_excl(world, half, all, &made);
    MPI_Group_compare(made, high, &result);
    CHECK(result == MPI_IDENT);
    if (made != MPI_GROUP_EMPTY) MPI_Group_free(&made);
    MPI_Group_union(high, low, &made);
    MPI_Group_compare(made, world, &result);
    CHECK(result == (size > 1 ? MPI_SIMILAR : MPI_IDENT));
    MPI_Group_translate_ranks(made, size, all, world, there);
    for (int r = 0; r < size; r++) CHECK(there[r] == (r < size - half ? r + half : r - (size - half)));
    MPI_Group_translate_ranks(low, half, all, high, there);
    for (int r = 0; r < half; r++) CHECK(there[r] == MPI_UNDEFINED);
    MPI_Group_free(&made);
    MPI_Group_intersection(world, low, &made);
    MPI_Group_compare(made, low, &result);
    CHECK(result == MPI_IDENT);
    MPI_Group_free(&made);
    MPI_Group_difference(low, world, &made);
    MPI_Group_compare(made, MPI_GROUP_EMPTY, &result);
    CHECK(result == MPI_IDENT);
    /* Only members call this. The others compute. */
    MPI_Comm part;
    if (rank < half) {
        MPI_Comm_create_group(MPI_COMM_WORLD, low, 3, &part);
        MPI_Comm_size(part, &members), MPI_Comm_rank(part, &mine), MPI_Comm_test_inter(part, &result);
        CHECK(members == half && mine == rank && !result);
        MPI_Allreduce(&rank, &result, 1, MPI_INT, MPI_SUM, part);
        CHECK(result == half * (half - 1) / 2);
        MPI_Comm_free(&part);
    }
    MPI_Group_free(&low), MPI_Group_free(&world);
    if (high != MPI_GROUP_EMPTY) MPI_Group_free(&high);
}

static int handled, handled_code, copied, deleted;

static void tell(MPI_Comm *comm, int *code, ...) { handled += comm != NULL, handled_code = *code; }

static int copy(MPI_Datatype type, int key, void *state, void *in, void *out, int *flag) {
    (void)type, (void)key, (void)state;
    return copied++, *(void **)out = in, *flag = 1, MPI_SUCCESS;
}

static int drop(MPI_Datatype type, int key, void *value, void *state) {
    (void)type, (void)key, (void)value, (void)state;
    return deleted++, MPI_SUCCESS;
}

static void names_and_attributes(void) {
    char text[MPI_MAX_OBJECT_NAME];
    int len, key, flag, value, *got;
    MPI_Comm comm;
    MPI_Datatype type, twin;
    MPI_Errhandler handler;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_set_name(comm, "mine"), MPI_Comm_get_name(comm, text, &len);
    CHECK(len == 4 && !strcmp(text, "mine"));
    MPI_Comm_create_errhandler(tell, &handler);
    MPI_Comm_set_errhandler(comm, handler), MPI_Errhandler_free(&handler);
    MPI_Comm_call_errhandler(comm, MPI_ERR_OTHER);
    CHECK(handled == 1 && handled_code == MPI_ERR_OTHER);
    MPI_Comm_free(&comm);
    MPI_Type_contiguous(3, MPI_INT, &type);
    MPI_Type_set_name(type, "three"), MPI_Type_get_name(type, text, &len);
    CHECK(len == 5 && !strcmp(text, "three"));
    MPI_Type_create_keyval(copy, drop, &key, NULL);
    MPI_Type_set_attr(type, key, &value);
    MPI_Type_dup(type, &twin);
    MPI_Type_get_attr(twin, key, &got, &flag);
    CHECK(flag && got == &value && copied == 1);
    MPI_Type_delete_attr(twin, key);
    MPI_Type_get_attr(twin, key, &got, &flag);
    CHECK(!flag && deleted == 1);
    MPI_Type_free(&twin), MPI_Type_free(&type);
    CHECK(deleted == 2);
    MPI_Type_free_keyval(&key);
    CHECK(key == MPI_KEYVAL_INVALID);
}

static void types(void) {
    MPI_Datatype column, shifted;
    MPI_Aint lb, extent;
    MPI_Count large_lb, large_extent, bytes;
    number need, position = 0, back = 0;
    int matrix[12], packed[64], again[12] = {0};
    MPI_Type_vector(4, 1, 3, MPI_INT, &column);
    MPI_Type_create_resized(column, -4, 4, &shifted);
    MPI_Type_commit(&shifted);
    MPI_Type_get_extent(shifted, &lb, &extent), MPI_Type_get_extent_x(shifted, &large_lb, &large_extent);
    CHECK(lb == -4 && extent == 4 && large_lb == -4 && large_extent == 4);
    MPI_Type_get_true_extent(shifted, &lb, &extent), MPI_Type_get_true_extent_x(shifted, &large_lb, &large_extent);
    CHECK(lb == 0 && extent == 40 && large_lb == 0 && large_extent == 40);
    MPI_Type_size_x(shifted, &bytes);
    CHECK(bytes == 16);
    for (int i = 0; i < 12; i++) matrix[i] = i;
    MPI_Pack_size(3, shifted, MPI_COMM_WORLD, &need);
    CHECK(need >= 48 && need <= (int)sizeof packed);
    MPI_Pack(matrix, 3, shifted, packed, need, &position, MPI_COMM_WORLD);
    CHECK(position == 48);
    MPI_Unpack(packed, position, &back, again, 3, shifted, MPI_COMM_WORLD);
    CHECK(back == 48 && !memcmp(matrix, again, sizeof matrix));
    MPI_Type_free(&column), MPI_Type_free(&shifted);
}

static void infos_and_statuses(void) {
    MPI_Info info, twin;
    MPI_Status status;
    int keys, len, flag, value;
    MPI_Info_create(&info);
    MPI_Info_set(info, "one", "1"), MPI_Info_set(info, "two", "22");
    MPI_Info_dup(info, &twin), MPI_Info_delete(info, "one");
    MPI_Info_get_nkeys(info, &keys), MPI_Info_get_valuelen(twin, "two", &len, &flag);
    CHECK(keys == 1 && flag && len == 2);
    MPI_Info_free(&info), MPI_Info_free(&twin);
    MPI_Status_set_source(&status, 3), MPI_Status_set_tag(&status, 4), MPI_Status_set_error(&status, MPI_ERR_TAG);
    CHECK(status.MPI_SOURCE == 3 && status.MPI_TAG == 4 && status.MPI_ERROR == MPI_ERR_TAG);
    MPI_Status_get_source(&status, &value);
    CHECK(value == 3);
    MPI_Status_get_tag(&status, &value);
    CHECK(value == 4);
    MPI_Status_get_error(&status, &value);
    CHECK(value == MPI_ERR_TAG);
    MPI_Status_set_cancelled(&status, 1), MPI_Test_cancelled(&status, &flag);
    CHECK(flag);
}

static void environment(void) {
    char text[MPI_MAX_LIBRARY_VERSION_STRING];
    int version, subversion, len, flag, place = 7;
    void *memory;
    MPI_Aint here, there;
    MPI_Get_version(&version, &subversion);
    CHECK(version == MPI_VERSION && subversion == MPI_SUBVERSION);
    MPI_Abi_get_version(&version, &subversion);
    CHECK(version == MPI_ABI_VERSION && subversion == MPI_ABI_SUBVERSION);
    MPI_Get_library_version(text, &len);
    CHECK(!strncmp(text, "Canele ", 7) && len == (int)strlen(text));
    MPI_Get_processor_name(text, &len);
    CHECK(len > 0 && len == (int)strlen(text));
    CHECK(MPI_Wtick() > 0 && MPI_Wtick() < 1e-3);
    MPI_Is_thread_main(&flag);
    CHECK(flag);
    MPI_Alloc_mem(100, MPI_INFO_NULL, &memory);
    memset(memory, 1, 100), MPI_Free_mem(memory);
    MPI_Get_address(&place, &here), there = MPI_Aint_add(here, 12);
    CHECK(MPI_Aint_diff(there, here) == 12);
    CHECK(MPI_Comm_fromint(MPI_Comm_toint(MPI_COMM_WORLD)) == MPI_COMM_WORLD);
    CHECK(MPI_Type_fromint(MPI_Type_toint(MPI_DOUBLE)) == MPI_DOUBLE);
    CHECK(MPI_Op_fromint(MPI_Op_toint(MPI_SUM)) == MPI_SUM);
}

/* Fortran's view: handles are numbers, and a status is an array of such. */
static void fortran(void) {
    MPI_Comm comm;
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Fint number = MPI_Comm_c2f(comm), array[MPI_F_STATUS_SIZE];
    CHECK(number != MPI_Comm_c2f(MPI_COMM_WORLD) && MPI_Comm_f2c(number) == comm);
    MPI_Datatype pair, type;
    MPI_Type_contiguous(2, MPI_INT, &pair);
    MPI_Type_commit(&pair);
    type = MPI_Type_f2c(MPI_Type_c2f(pair));
    MPI_Request request;
    int to = (rank + 1) % size, from = (rank + size - 1) % size, got[2], given[2] = {rank, 7}, count;
    MPI_Irecv(got, 1, type, from, 3, MPI_Comm_f2c(number), &request);
    request = MPI_Request_f2c(MPI_Request_c2f(request));
    MPI_Send(given, 1, type, to, 3, comm);
    MPI_Status status, copy;
    MPI_Wait(&request, &status);
    CHECK(MPI_Status_c2f(&status, array) == MPI_SUCCESS);
    CHECK(array[MPI_F_SOURCE] == from && array[MPI_F_TAG] == 3);
    CHECK(MPI_Status_f2c(array, &copy) == MPI_SUCCESS);
    MPI_Get_count(&copy, type, &count);
    CHECK(count == 1 && copy.MPI_SOURCE == from && got[0] == from && got[1] == 7);
    MPI_Type_free(&pair), MPI_Comm_free(&comm);
}

int main(int argc, char **argv) {
    int all, flag;
    MPI_Initialized(&flag);
    CHECK(!flag);
    MPI_Init(&argc, &argv);
    MPI_Initialized(&flag);
    CHECK(flag);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    modes(), groups(), names_and_attributes(), types(), infos_and_statuses(), environment(), fortran();
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("objects on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    MPI_Finalized(&flag);
    return all != 0 || !flag;
}
