/* Intercommunicators: made (also of groups alone), copied, split, merged, compared. Messages between the groups, and
   every collective between them in every form. LARGE selects the forms for large counts. Runs on two ranks or more.
   Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#ifdef LARGE
typedef MPI_Count number;
typedef MPI_Aint place;
#define NAME(function) function##_c
#else
typedef int number, place;
#define NAME(function) function
#endif

enum { BLOCKING, NONBLOCKING, PERSISTENT, FORMS, MANY = 32, ROOM = 5 };

static int size, mine, me, here, there;
static MPI_Comm local, inter;

/* The last of every three processes is in the second group. The last of each group is its leader. */
static void make(void) {
    int flag, low = size >= 3 ? size - 1 - (size % 3 == 0) : 0, high = size >= 3 ? size - 1 - size % 3 : 1;
    mine = size >= 3 ? rank % 3 == 2 : rank % 2;
    MPI_Comm_split(MPI_COMM_WORLD, mine, rank, &local);
    MPI_Comm_size(local, &here), MPI_Comm_rank(local, &me);
    there = size - here;
    MPI_Intercomm_create(local, here - 1, MPI_COMM_WORLD, mine ? low : high, 7, &inter);
    MPI_Comm_test_inter(inter, &flag);
    CHECK(flag);
    MPI_Comm_test_inter(local, &flag);
    CHECK(!flag);
}

static void about(void) {
    int got, same;
    MPI_Group one, other, world;
    MPI_Comm_size(inter, &got);
    CHECK(got == here);
    MPI_Comm_rank(inter, &got);
    CHECK(got == me);
    MPI_Comm_remote_size(inter, &got);
    CHECK(got == there);
    MPI_Comm_group(inter, &one), MPI_Comm_remote_group(inter, &other), MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_size(other, &got);
    CHECK(got == there);
    MPI_Group_intersection(one, other, &world);
    CHECK(world == MPI_GROUP_EMPTY);
    MPI_Group_free(&one), MPI_Group_free(&other);
    MPI_Comm_compare(inter, inter, &same);
    CHECK(same == MPI_IDENT);
    MPI_Comm_compare(inter, local, &same);
    CHECK(same == MPI_UNEQUAL);
}

/* All processes send to all of the other group. Receives name the source or MPI_ANY_SOURCE. */
static void messages(MPI_Comm comm) {
    MPI_Request requests[2 * MANY];
    MPI_Status status;
    int out = 100 * mine + me, in;
    for (int i = 0; i < 2 * there; i++) MPI_Isend(&out, 1, MPI_INT, i / 2, i % 2, comm, &requests[i]);
    for (int i = 0; i < 2 * there; i++) {
        in = -1;
        MPI_Recv(&in, 1, MPI_INT, i < there ? i : MPI_ANY_SOURCE, i / there, comm, &status);
        CHECK(in == 100 * !mine + status.MPI_SOURCE);
    }
    MPI_Waitall(2 * there, requests, MPI_STATUSES_IGNORE);
    /* Ranks are those of the other group. */
    int code, class;
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    code = MPI_Send(&out, 1, MPI_INT, there, 3, comm), MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_RANK);
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_ARE_FATAL);
}

/* Runs an operation in one of its forms, a persistent one twice. */
#define RUN(Name, name, ...)                                                          \
    do {                                                                              \
        MPI_Request request;                                                          \
        if (form == BLOCKING) NAME(MPI_##Name)(__VA_ARGS__, comm);                    \
        else if (form == NONBLOCKING) {                                                     \
            NAME(MPI_I##name)(__VA_ARGS__, comm, &request);                           \
            MPI_Wait(&request, MPI_STATUS_IGNORE);                                    \
        } else {                                                                      \
            NAME(MPI_##Name##_init)(__VA_ARGS__, comm, MPI_INFO_NULL, &request);      \
            for (int i = 0; i < 2; i++) MPI_Start(&request), MPI_Wait(&request, MPI_STATUS_IGNORE); \
            MPI_Request_free(&request);                                               \
        }                                                                             \
    } while (0)

static int datum(int group, int from, int to, int index) { return group * 100000 + from * 1000 + to * 10 + index; }

static int many(int group, int of) { return (group + of) % (ROOM + 1); }

/* A root in `group`. */
static void rooted(MPI_Comm comm, int form, int group, int leader) {
    int out[MANY * ROOM], in[MANY * ROOM], wrong = 0, part = mine != group;
    int root = part ? leader : me == leader ? MPI_ROOT : MPI_PROC_NULL, is_root = root == MPI_ROOT;
    number counts[MANY];
    place displs[MANY];
    for (int i = 0; i < MANY; i++) counts[i] = many(!group, i), displs[i] = (MANY - 1 - i) * ROOM;
    for (int i = 0; i < MANY * ROOM; i++) out[i] = datum(group, leader, 0, i), in[i] = -1;
    RUN(Bcast, bcast, is_root ? out : in, 3, MPI_INT, root);
    for (int i = 0; i < 4; i++) wrong += in[i] != (part && i < 3 ? datum(group, leader, 0, i) : -1);
    CHECK(wrong == 0);
    for (int i = 0; i < MANY * ROOM; i++) out[i] = datum(mine, me, 0, i), in[i] = -1;
    RUN(Gather, gather, out, ROOM, MPI_INT, in, ROOM, MPI_INT, root);
    for (int i = 0; i < MANY * ROOM; i++)
        wrong += in[i] != (is_root && i < there * ROOM ? datum(!mine, i / ROOM, 0, i % ROOM) : -1);
    CHECK(wrong == 0);
    for (int i = 0; i < MANY * ROOM; i++) in[i] = -1;
    RUN(Gatherv, gatherv, out, many(mine, me), MPI_INT, in, counts, displs, MPI_INT, root);
    for (int r = 0; is_root && r < there; r++)
        for (int i = 0; i < ROOM; i++) wrong += in[displs[r] + i] != (i < counts[r] ? datum(!mine, r, 0, i) : -1);
    CHECK(wrong == 0);
    for (int i = 0; i < MANY * ROOM; i++) out[i] = datum(group, leader, i / ROOM, i % ROOM), in[i] = -1;
    RUN(Scatter, scatter, out, ROOM, MPI_INT, in, ROOM, MPI_INT, root);
    for (int i = 0; i < ROOM; i++) wrong += in[i] != (part ? datum(group, leader, me, i) : -1);
    CHECK(wrong == 0);
    for (int i = 0; i < MANY * ROOM; i++) in[i] = -1;
    RUN(Scatterv, scatterv, out, counts, displs, MPI_INT, in, many(mine, me), MPI_INT, root);
    for (int i = 0; part && i < ROOM; i++)
        wrong += in[i] != (i < many(mine, me) ? datum(group, leader, MANY - 1 - me, i) : -1);
    CHECK(wrong == 0);
    for (int i = 0; i < MANY * ROOM; i++) out[i] = me + i, in[i] = -1;
    RUN(Reduce, reduce, out, in, ROOM, MPI_INT, MPI_SUM, root);
    for (int i = 0; i < ROOM; i++) wrong += in[i] != (is_root ? there * (there - 1) / 2 + there * i : -1);
    CHECK(wrong == 0);
}

static void all_to_all(MPI_Comm comm, int form) {
    int out[MANY * ROOM], in[MANY * ROOM], wrong = 0;
    number counts[MANY], scounts[MANY], rcounts[MANY];
    place displs[MANY], packed[MANY];
    for (int i = 0; i < MANY; i++) {
        counts[i] = many(!mine, i), displs[i] = (MANY - 1 - i) * ROOM, packed[i] = i * ROOM;
        scounts[i] = many(me, i), rcounts[i] = many(i, me);
    }
    for (int i = 0; i < MANY * ROOM; i++) out[i] = datum(mine, me, i / ROOM, i % ROOM), in[i] = -1;
    RUN(Allgather, allgather, out, 2, MPI_INT, in, 2, MPI_INT);
    for (int i = 0; i < MANY; i++) wrong += in[i] != (i < 2 * there ? datum(!mine, i / 2, 0, i % 2) : -1);
    CHECK(wrong == 0);
    for (int i = 0; i < MANY * ROOM; i++) in[i] = -1;
    RUN(Allgatherv, allgatherv, out, many(mine, me), MPI_INT, in, counts, displs, MPI_INT);
    for (int r = 0; r < there; r++)
        for (int i = 0; i < ROOM; i++) wrong += in[displs[r] + i] != (i < counts[r] ? datum(!mine, r, 0, i) : -1);
    CHECK(wrong == 0);
    for (int i = 0; i < MANY * ROOM; i++) in[i] = -1;
    RUN(Alltoall, alltoall, out, ROOM, MPI_INT, in, ROOM, MPI_INT);
    for (int i = 0; i < MANY * ROOM; i++)
        wrong += in[i] != (i < there * ROOM ? datum(!mine, i / ROOM, me, i % ROOM) : -1);
    CHECK(wrong == 0);
    for (int i = 0; i < MANY * ROOM; i++) in[i] = -1;
    RUN(Alltoallv, alltoallv, out, scounts, packed, MPI_INT, in, rcounts, displs, MPI_INT);
    for (int r = 0; r < there; r++)
        for (int i = 0; i < ROOM; i++) wrong += in[displs[r] + i] != (i < rcounts[r] ? datum(!mine, r, me, i) : -1);
    CHECK(wrong == 0);
    for (int i = 0; i < MANY * ROOM; i++) out[i] = me + i, in[i] = -1;
    RUN(Allreduce, allreduce, out, in, ROOM, MPI_INT, MPI_SUM);
    for (int i = 0; i < ROOM; i++) wrong += in[i] != there * (there - 1) / 2 + there * i;
    CHECK(wrong == 0);
    /* Both groups get as many elements: one per process, and the last of the smaller group takes the remainder. */
    int most = here > there ? here : there;
    number parts[MANY];
    for (int i = 0; i < MANY; i++) parts[i] = i < here ? 1 + (i == here - 1 ? most - here : 0) : 0, in[i] = -1;
    RUN(Reduce_scatter, reduce_scatter, out, in, parts, MPI_INT, MPI_SUM);
    for (int i = 0; i < MANY; i++) wrong += in[i] != (i < parts[me] ? there * (there - 1) / 2 + there * (me + i) : -1);
    CHECK(wrong == 0);
    RUN(Reduce_scatter_block, reduce_scatter_block, out, in, there, MPI_INT, MPI_SUM);
    for (int i = 0; i < there; i++) wrong += in[i] != there * (there - 1) / 2 + there * (me * there + i);
    CHECK(wrong == 0);
}

static void collectives(MPI_Comm comm) {
    for (int form = 0; form < FORMS; form++) {
        for (int group = 0; group < 2; group++) rooted(comm, form, group, (mine == group ? here : there) - 1);
        rooted(comm, form, 0, 0);
        all_to_all(comm, form);
    }
    MPI_Barrier(comm);
    MPI_Request request;
    MPI_Ibarrier(comm, &request), MPI_Wait(&request, MPI_STATUS_IGNORE);
    /* Longer than an eager message. */
    enum { LONG = 200000 };
    int *out = malloc(sizeof(int) * LONG), *in = malloc(sizeof(int) * LONG), wrong = 0;
    for (int i = 0; i < LONG; i++) out[i] = me + i % 100, in[i] = -1;
    NAME(MPI_Allreduce)(out, in, LONG, MPI_INT, MPI_SUM, comm);
    for (int i = 0; i < LONG; i++) wrong += in[i] != there * (there - 1) / 2 + there * (i % 100);
    NAME(MPI_Bcast)(mine == 0 ? out : in, LONG, MPI_INT, mine ? 0 : me ? MPI_PROC_NULL : MPI_ROOT, comm);
    for (int i = 0; mine && i < LONG; i++) wrong += in[i] != i % 100;
    CHECK(wrong == 0);
    free(out), free(in);
}

static void others(void) {
    int same, got, flag, class, code;
    MPI_Comm copy, late, merged, half;
    MPI_Request request;
    MPI_Comm_dup(inter, &copy);
    MPI_Comm_idup(inter, &late, &request);
    MPI_Comm_compare(inter, copy, &same);
    CHECK(same == MPI_CONGRUENT);
    messages(copy);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    messages(late), all_to_all(late, BLOCKING);
    MPI_Comm_test_inter(late, &flag);
    CHECK(flag);
    MPI_Comm_free(&copy), MPI_Comm_free(&late);
    /* The second group first, then in order of arrival. */
    for (int order = 0; order < 3; order++) {
        MPI_Intercomm_merge(inter, order == 0 ? !mine : order == 1 ? mine : 1, &merged);
        MPI_Comm_size(merged, &got);
        CHECK(got == size);
        MPI_Comm_rank(merged, &got);
        if (order < 2) CHECK(got == me + ((order == 0 ? !mine : mine) ? there : 0));
        MPI_Allreduce(&rank, &got, 1, MPI_INT, MPI_SUM, merged);
        CHECK(got == size * (size - 1) / 2);
        MPI_Comm_free(&merged);
    }
    /* A split by parity, in falling order. Processes without a partner get MPI_COMM_NULL. */
    MPI_Comm_split(inter, me % 2, -me, &half);
    int partners = there / 2 + (me % 2 == 0 ? there % 2 : 0);
    CHECK((half != MPI_COMM_NULL) == (partners > 0));
    if (half != MPI_COMM_NULL) {
        MPI_Comm_remote_size(half, &got);
        CHECK(got == partners);
        int all[MANY];
        MPI_Allgather(&me, 1, MPI_INT, all, 1, MPI_INT, half);
        for (int i = 0; i < partners; i++) CHECK(all[i] % 2 == me % 2 && (i == 0 || all[i] < all[i - 1]));
        MPI_Comm_free(&half);
    }
    /* The first of each group. */
    MPI_Group group, first;
    int zero[1] = {0};
    MPI_Comm_group(inter, &group), MPI_Group_incl(group, 1, zero, &first);
    MPI_Comm_create(inter, first, &half);
    CHECK((half != MPI_COMM_NULL) == (me == 0));
    if (half != MPI_COMM_NULL) {
        int out = mine, in = -1;
        MPI_Sendrecv(&out, 1, MPI_INT, 0, 0, &in, 1, MPI_INT, 0, 0, half, MPI_STATUS_IGNORE);
        CHECK(in == !mine);
        MPI_Comm_disconnect(&half);
    }
    MPI_Group_free(&group), MPI_Group_free(&first);
    /* A communicator begun and used at its end, within one group. */
    MPI_Comm_idup_with_info(local, MPI_INFO_NULL, &late, &request), MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Comm_compare(local, late, &same);
    CHECK(same == MPI_CONGRUENT);
    MPI_Allreduce(&me, &got, 1, MPI_INT, MPI_SUM, late);
    CHECK(got == here * (here - 1) / 2);
    MPI_Comm_free(&late);
    /* Operations that are not defined between groups. */
    int out = 0;
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
    code = NAME(MPI_Scan)(&out, &got, 1, MPI_INT, MPI_SUM, inter), MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_COMM);
    code = NAME(MPI_Allreduce)(MPI_IN_PLACE, &got, 1, MPI_INT, MPI_SUM, inter), MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_BUFFER);
    code = NAME(MPI_Bcast)(&out, 1, MPI_INT, there, inter), MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_ROOT);
    int dims[1] = {1}, periods[1] = {0};
    MPI_Comm grid;
    code = MPI_Cart_create(inter, 1, dims, periods, 0, &grid), MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_COMM);
    MPI_Comm_set_errhandler(inter, MPI_ERRORS_ARE_FATAL);
    MPI_Barrier(inter);
}

/* Intercommunicators of groups alone: the same pair as by leaders over a communicator, and one group. */
static void from_groups(void) {
    MPI_Group world, own, other;
    MPI_Comm made, one;
    int ranks[2][512], counts[2] = {0, 0}, got, same, class, sum, flag;
    for (int i = 0; i < size && i < 512; i++) {
        int side = size >= 3 ? i % 3 == 2 : i % 2;
        ranks[side][counts[side]++] = i;
    }
    MPI_Comm_group(MPI_COMM_WORLD, &world);
    MPI_Group_incl(world, counts[mine], ranks[mine], &own), MPI_Group_incl(world, counts[!mine], ranks[!mine], &other);
    for (int again = 0; again < 3; again++) {
        MPI_Intercomm_create_from_groups(own, here - 1, other, there - 1, "org.example/pair", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made);
        MPI_Comm_compare(made, inter, &same);
        CHECK(same == MPI_CONGRUENT);
        messages(made);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, made);
        MPI_Comm_free(&made);
        got = 0;
        for (int i = 0; i < there; i++) got += ranks[!mine][i];
        CHECK(sum == got);
        MPI_Comm_create_from_group(own, again ? "org.example/one" : "", MPI_INFO_NULL, MPI_ERRORS_RETURN, &one);
        MPI_Comm_compare(one, local, &same);
        CHECK(same == MPI_CONGRUENT);
        MPI_Comm_test_inter(one, &flag);
        CHECK(!flag);
        MPI_Allreduce(&rank, &sum, 1, MPI_INT, MPI_SUM, one);
        got = 0;
        for (int i = 0; i < here; i++) got += ranks[mine][i];
        CHECK(sum == got);
        MPI_Comm_free(&one);
    }
    made = MPI_COMM_WORLD;
    MPI_Comm_create_from_group(MPI_GROUP_EMPTY, "x", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made);
    CHECK(made == MPI_COMM_NULL);
    made = MPI_COMM_WORLD;
    MPI_Intercomm_create_from_groups(own, 0, MPI_GROUP_EMPTY, 0, "x", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made);
    CHECK(made == MPI_COMM_NULL);
    /* Errors go to the handler that the call was given. */
    static char endless[1024 + 1]; /* MPI_MAX_STRINGTAG_LEN of the standard ABI. */
    memset(endless, 'x', sizeof endless - 1);
    MPI_Error_class(MPI_Comm_create_from_group(own, endless, MPI_INFO_NULL, MPI_ERRORS_RETURN, &made), &class);
    CHECK(class == MPI_ERR_ARG);
    MPI_Error_class(MPI_Comm_create_from_group(own, NULL, MPI_INFO_NULL, MPI_ERRORS_RETURN, &made), &class);
    CHECK(class == MPI_ERR_ARG);
    MPI_Error_class(MPI_Comm_create_from_group(other, "x", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made), &class);
    CHECK(class == MPI_ERR_GROUP);
    MPI_Error_class(MPI_Intercomm_create_from_groups(own, here, other, 0, "x", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made), &class);
    CHECK(class == MPI_ERR_RANK);
    MPI_Error_class(MPI_Intercomm_create_from_groups(own, 0, own, 0, "x", MPI_INFO_NULL, MPI_ERRORS_RETURN, &made), &class);
    CHECK(class == MPI_ERR_COMM);
    MPI_Group_free(&world), MPI_Group_free(&own), MPI_Group_free(&other);
}

int main(int argc, char **argv) {
    int all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    make();
    about();
    messages(inter);
    collectives(inter);
    others();
    from_groups();
    /* The communicator is freed while an operation runs. */
    MPI_Request request;
    MPI_Ibarrier(inter, &request);
    MPI_Comm_free(&inter), MPI_Comm_free(&local);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("intercommunicators on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
