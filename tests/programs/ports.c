/* Two jobs that meet, and meet again: one accepts, the other connects by a published name. They exchange messages, run
   collectives between the groups and of both together, use windows, and part. ports accept|connect SERVICE [ROUNDS].
   ports first|second|third SERVICE: two jobs meet, and both together meet a third. ports within: two halves of one job meet. ports threads: several groups of one job meet at once. ports join: two processes
   share a socket. Rank 0 prints one line. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "check.h"

enum { LENGTHS = 4, THREADS = 4 };

static int accepts;

/* Number of a process in both groups, the accepting one first. */
static int place(MPI_Comm inter, int of_remote, int member) {
    int here, there;
    MPI_Comm_size(inter, &here), MPI_Comm_remote_size(inter, &there);
    return accepts != of_remote ? member : (of_remote ? here : there) + member;
}

static void messages(MPI_Comm inter) {
    int lengths[LENGTHS] = {1, 1000, 30000, 300000}, me, there;
    MPI_Comm_rank(inter, &me), MPI_Comm_remote_size(inter, &there);
    for (int l = 0; l < LENGTHS; l++) {
        int length = lengths[l], *mine = malloc(length * sizeof(int)), *theirs = malloc(length * sizeof(int));
        for (int i = 0; i < length; i++) mine[i] = 1000 * place(inter, 0, me) + i % 1000;
        MPI_Request *requests = malloc(there * sizeof(MPI_Request));
        for (int to = 0; to < there; to++) MPI_Isend(mine, length, MPI_INT, to, l, inter, &requests[to]);
        for (int from = 0; from < there; from++) {
            MPI_Status status;
            MPI_Recv(theirs, length, MPI_INT, l % 2 ? from : MPI_ANY_SOURCE, l, inter, &status);
            int wrong = 0, number = place(inter, 1, status.MPI_SOURCE);
            for (int i = 0; i < length; i++) wrong += theirs[i] != 1000 * number + i % 1000;
            CHECK(!wrong);
        }
        MPI_Waitall(there, requests, MPI_STATUSES_IGNORE);
        free(mine), free(theirs), free(requests);
    }
}

/* Collectives between the groups. */
static void between(MPI_Comm inter) {
    int me, here, there, sum, expected = 0;
    MPI_Comm_rank(inter, &me), MPI_Comm_size(inter, &here), MPI_Comm_remote_size(inter, &there);
    int mine = place(inter, 0, me) + 1, all[64] = {0};
    MPI_Barrier(inter);
    for (int i = 0; i < there; i++) expected += place(inter, 1, i) + 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
    CHECK(sum == expected);
    MPI_Allgather(&mine, 1, MPI_INT, all, 1, MPI_INT, inter);
    for (int i = 0; i < there; i++) CHECK(all[i] == place(inter, 1, i) + 1);
    for (int root = 0; root < 2; root++) {
        int value = accepts == root && me == here - 1 ? 77 + root : 0;
        if (accepts == root)
            MPI_Bcast(&value, 1, MPI_INT, me == here - 1 ? MPI_ROOT : MPI_PROC_NULL, inter);
        else {
            MPI_Bcast(&value, 1, MPI_INT, there - 1, inter);
            CHECK(value == 77 + root);
        }
    }
    MPI_Request request;
    MPI_Iallreduce(&mine, &sum, 1, MPI_INT, MPI_MAX, inter, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    CHECK(sum == place(inter, 1, there - 1) + 1);
}

/* Collectives of both groups as one. */
static void together(MPI_Comm comm) {
    int me, size;
    MPI_Comm_rank(comm, &me), MPI_Comm_size(comm, &size);
    for (int length = 1; length <= 100000; length *= 10) {
        int *mine = malloc(length * sizeof(int)), *all = malloc((size_t)length * size * sizeof(int)), wrong = 0;
        for (int i = 0; i < length; i++) mine[i] = me + i;
        MPI_Allreduce(mine, all, length, MPI_INT, MPI_SUM, comm);
        for (int i = 0; i < length; i++) wrong += all[i] != size * (size - 1) / 2 + size * i;
        MPI_Allgather(mine, length, MPI_INT, all, length, MPI_INT, comm);
        for (int i = 0; i < size; i++) wrong += all[i * length] != i || all[i * length + length - 1] != i + length - 1;
        MPI_Bcast(mine, length, MPI_INT, size - 1, comm);
        for (int i = 0; i < length; i++) wrong += mine[i] != size - 1 + i;
        MPI_Gather(&me, 1, MPI_INT, all, 1, MPI_INT, size / 2, comm);
        for (int i = 0; i < size && me == size / 2; i++) wrong += all[i] != i;
        for (int i = 0; i < size; i++) mine[0] = me, all[i] = 100 * me + i;
        int *turned = malloc(size * sizeof(int));
        MPI_Alltoall(all, 1, MPI_INT, turned, 1, MPI_INT, comm);
        for (int i = 0; i < size; i++) wrong += turned[i] != 100 * i + me;
        MPI_Scan(&me, turned, 1, MPI_INT, MPI_SUM, comm);
        wrong += turned[0] != me * (me + 1) / 2;
        MPI_Reduce_scatter_block(all, turned, 1, MPI_INT, MPI_SUM, comm);
        wrong += turned[0] != 100 * (size * (size - 1) / 2) + size * me;
        CHECK(!wrong);
        free(mine), free(all), free(turned);
    }
    MPI_Barrier(comm);
}

static void windows(MPI_Comm comm) {
    int me, size, *memory, zero = 0, one = 1, got = -1;
    MPI_Comm_rank(comm, &me), MPI_Comm_size(comm, &size);
    MPI_Win window;
    MPI_Win_allocate(size * sizeof(int), sizeof(int), MPI_INFO_NULL, comm, &memory, &window);
    memset(memory, 0, size * sizeof(int));
    MPI_Win_fence(0, window);
    for (int to = 0; to < size; to++) MPI_Put(&me, 1, MPI_INT, to, me, 1, MPI_INT, window);
    MPI_Win_fence(0, window);
    for (int from = 0; from < size; from++) CHECK(memory[from] == from);
    MPI_Win_fence(0, window);
    memory[0] = zero;
    MPI_Barrier(comm);
    MPI_Win_lock_all(0, window);
    MPI_Fetch_and_op(&one, &got, MPI_INT, size - 1, 0, MPI_SUM, window);
    MPI_Win_unlock_all(window);
    CHECK(got >= 0 && got < size);
    MPI_Barrier(comm);
    MPI_Win_lock(MPI_LOCK_SHARED, size - 1, 0, window);
    MPI_Get(&got, 1, MPI_INT, size - 1, 0, 1, MPI_INT, window);
    MPI_Win_unlock(size - 1, window);
    CHECK(got == size);
    MPI_Win_free(&window);
    /* Those that share memory. */
    MPI_Comm node;
    MPI_Comm_split_type(comm, MPI_COMM_TYPE_SHARED, me, MPI_INFO_NULL, &node);
    int near, rank_near, unit;
    MPI_Aint length;
    MPI_Comm_size(node, &near), MPI_Comm_rank(node, &rank_near);
    MPI_Win_allocate_shared(sizeof(int), sizeof(int), MPI_INFO_NULL, node, &memory, &window);
    MPI_Win_lock_all(0, window);
    *memory = me;
    MPI_Win_sync(window), MPI_Barrier(node), MPI_Win_sync(window);
    int *first, sum = 0, expected;
    for (int i = 0; i < near; i++) {
        MPI_Win_shared_query(window, i, &length, &unit, &first);
        sum += *first;
    }
    MPI_Allreduce(&me, &expected, 1, MPI_INT, MPI_SUM, node);
    CHECK(sum == expected);
    MPI_Win_unlock_all(window);
    MPI_Win_free(&window);
    MPI_Comm_free(&node);
}

/* Communicators made of that of both groups, and their groups. */
static void derived(MPI_Comm inter, MPI_Comm merged) {
    int me, size, result, flag;
    MPI_Comm_rank(merged, &me), MPI_Comm_size(merged, &size);
    MPI_Comm copy, later, part, pair, back, grid, named;
    MPI_Comm_dup(merged, &copy);
    MPI_Comm_compare(merged, copy, &result);
    CHECK(result == MPI_CONGRUENT);
    together(copy);
    MPI_Request request;
    MPI_Comm_idup(merged, &later, &request);
    MPI_Wait(&request, MPI_STATUS_IGNORE);
    MPI_Barrier(later);
    MPI_Comm_free(&later);
    MPI_Comm_dup(inter, &later);
    MPI_Comm_compare(inter, later, &result);
    CHECK(result == MPI_CONGRUENT);
    between(later);
    MPI_Comm_disconnect(&later);
    /* Halves with members of both jobs, and an intercommunicator between them. */
    MPI_Comm_split(merged, me % 2, size - me, &part);
    together(part);
    if (size > 1) {
        MPI_Intercomm_create(part, 0, merged, me % 2 ? (size - 1) / 2 * 2 : (size - 2) / 2 * 2 + 1, 3, &pair);
        int there, part_size, one = 1, sum;
        MPI_Comm_remote_size(pair, &there), MPI_Comm_size(part, &part_size);
        CHECK(there + part_size == size);
        MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, pair);
        CHECK(sum == there);
        MPI_Intercomm_merge(pair, me % 2, &back);
        together(back);
        MPI_Comm_free(&back), MPI_Comm_free(&pair);
    }
    int dims = size, periods = 1, next, previous, got;
    MPI_Cart_create(merged, 1, &dims, &periods, 1, &grid);
    MPI_Cart_shift(grid, 0, 1, &previous, &next);
    MPI_Sendrecv(&me, 1, MPI_INT, next, 0, &got, 1, MPI_INT, previous, 0, grid, MPI_STATUS_IGNORE);
    MPI_Comm_free(&grid);
    /* Groups. */
    MPI_Group world, all, local, remote, common;
    MPI_Comm_group(MPI_COMM_WORLD, &world), MPI_Comm_group(merged, &all);
    MPI_Comm_group(inter, &local), MPI_Comm_remote_group(inter, &remote);
    MPI_Group_intersection(all, local, &common);
    MPI_Group_compare(common, local, &result);
    CHECK(result == MPI_IDENT);
    MPI_Group_free(&common);
    MPI_Group_union(local, remote, &common);
    MPI_Group_compare(common, all, &result);
    CHECK(result == (accepts ? MPI_IDENT : MPI_SIMILAR));
    MPI_Group_free(&common);
    int mine, others;
    MPI_Group_size(local, &mine), MPI_Group_size(remote, &others);
    for (int i = 0; i < mine + others; i++) {
        int in_local;
        MPI_Group_translate_ranks(all, 1, &i, local, &in_local);
        int first = accepts ? 0 : others;
        CHECK(in_local == (i >= first && i < first + mine ? i - first : MPI_UNDEFINED));
    }
    MPI_Comm_create_from_group(all, "both", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &named);
    MPI_Comm_compare(merged, named, &result);
    CHECK(result == MPI_CONGRUENT);
    MPI_Barrier(named);
    MPI_Comm_free(&named);
    MPI_Intercomm_create_from_groups(local, 0, remote, 0, "pair", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &named);
    MPI_Comm_test_inter(named, &flag);
    CHECK(flag);
    between(named);
    MPI_Comm_free(&named);
    MPI_Group_free(&world), MPI_Group_free(&all), MPI_Group_free(&local), MPI_Group_free(&remote);
    MPI_Comm_free(&copy), MPI_Comm_free(&part);
}

/* All that two groups do which have met. */
static void use(MPI_Comm inter) {
    MPI_Comm merged;
    messages(inter);
    between(inter);
    MPI_Intercomm_merge(inter, !accepts, &merged);
    together(merged);
    windows(merged);
    derived(inter, merged);
    MPI_Comm_disconnect(&merged);
    messages(inter);
}

/* A send that is not complete when the communicator is given up arrives. */
static void part(MPI_Comm *inter) {
    int me, here, there;
    static int sent[200000], got[200000];
    MPI_Comm_rank(*inter, &me), MPI_Comm_size(*inter, &here), MPI_Comm_remote_size(*inter, &there);
    MPI_Request request = MPI_REQUEST_NULL, other = MPI_REQUEST_NULL;
    if (me == 0) {
        for (int i = 0; i < 200000; i++) sent[i] = i;
        MPI_Irecv(got, 200000, MPI_INT, 0, 9, *inter, &other);
        MPI_Isend(sent, 200000, MPI_INT, 0, 9, *inter, &request);
    }
    MPI_Comm_disconnect(inter);
    CHECK(*inter == MPI_COMM_NULL);
    MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_Wait(&other, MPI_STATUS_IGNORE);
    if (me == 0) CHECK(got[199999] == 199999);
}

static void meet(const char *service, int rounds) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm inter;
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    if (accepts && rank == 0) {
        CHECK(MPI_Open_port(MPI_INFO_NULL, port) == MPI_SUCCESS);
        CHECK(strlen(port) < 256);
        CHECK(MPI_Publish_name(service, MPI_INFO_NULL, port) == MPI_SUCCESS);
    }
    for (int tries = 0; !accepts && rank == 0 && tries < 600 && MPI_Lookup_name(service, MPI_INFO_NULL, port); tries++) usleep(50000);
    for (int round = 0; round < rounds; round++) {
        if (accepts)
            MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        else
            MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        use(inter);
        part(&inter);
    }
    if (accepts && rank == 0) {
        CHECK(MPI_Unpublish_name(service, MPI_INFO_NULL, port) == MPI_SUCCESS);
        CHECK(MPI_Close_port(port) == MPI_SUCCESS);
    }
}

static void find(const char *service, char *port) {
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    for (int tries = 0; tries < 600 && MPI_Lookup_name(service, MPI_INFO_NULL, port); tries++) usleep(50000);
}

/* The first two jobs become one communicator, which accepts the third. */
static void three(const char *role, const char *service) {
    char port[MPI_MAX_PORT_NAME] = "", later[256];
    int is_first = !strcmp(role, "first"), is_third = !strcmp(role, "third");
    MPI_Comm inter, both;
    snprintf(later, sizeof later, "%s later", service);
    accepts = !is_third;
    if (is_third) {
        if (rank == 0) find(later, port);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        use(inter);
        part(&inter);
        return;
    }
    if (is_first && rank == 0) MPI_Open_port(MPI_INFO_NULL, port), MPI_Publish_name(service, MPI_INFO_NULL, port);
    if (is_first)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    else {
        if (rank == 0) find(service, port);
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    }
    MPI_Intercomm_merge(inter, !is_first, &both);
    if (is_first && rank == 0) MPI_Publish_name(later, MPI_INFO_NULL, port);
    MPI_Comm_disconnect(&inter);
    MPI_Comm_accept(port, MPI_INFO_NULL, 0, both, &inter);
    use(inter);
    part(&inter);
    MPI_Comm_disconnect(&both);
}

/* The halves of MPI_COMM_WORLD meet over a port. */
static void within(void) {
    char port[MPI_MAX_PORT_NAME] = "";
    MPI_Comm half, inter;
    accepts = rank % 2 == 0;
    MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
    if (rank == 0) {
        MPI_Open_port(MPI_INFO_NULL, port);
        MPI_Send(port, MPI_MAX_PORT_NAME, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    } else if (rank == 1)
        MPI_Recv(port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (accepts)
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, half, &inter);
    else
        MPI_Comm_connect(port, MPI_INFO_NULL, 0, half, &inter);
    use(inter);
    part(&inter);
    MPI_Comm_free(&half);
    if (rank == 0) MPI_Close_port(port);
}

static char shared_port[MPI_MAX_PORT_NAME];

static void *meet_in_a_thread(void *number) {
    MPI_Comm self = ((MPI_Comm *)number)[0], inter;
    int there, sent = rank, got = -1;
    if (rank == 0)
        MPI_Comm_accept(shared_port, MPI_INFO_NULL, 0, self, &inter);
    else
        MPI_Comm_connect(shared_port, MPI_INFO_NULL, 0, self, &inter);
    MPI_Comm_remote_size(inter, &there);
    CHECK(there == 1);
    MPI_Sendrecv(&sent, 1, MPI_INT, 0, 0, &got, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
    CHECK(got == 1 - rank);
    MPI_Comm_disconnect(&inter);
    return NULL;
}

/* Several threads accept at one port, and several connect. */
static void in_threads(void) {
    pthread_t threads[THREADS];
    MPI_Comm comms[THREADS];
    if (rank == 0) MPI_Open_port(MPI_INFO_NULL, shared_port);
    MPI_Bcast(shared_port, MPI_MAX_PORT_NAME, MPI_CHAR, 0, MPI_COMM_WORLD);
    for (int i = 0; i < THREADS; i++) {
        MPI_Comm_dup(MPI_COMM_SELF, &comms[i]);
        pthread_create(&threads[i], NULL, meet_in_a_thread, &comms[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL), MPI_Comm_free(&comms[i]);
    if (rank == 0) MPI_Close_port(shared_port);
}

/* Run alone: it forks before MPI begins, so that both processes have an end of a socket and are jobs of their own. */
static void join(int end) {
    MPI_Comm inter;
    MPI_Comm_join(end, &inter);
    int flag, sent = getpid(), got = 0;
    MPI_Comm_test_inter(inter, &flag);
    CHECK(flag);
    MPI_Sendrecv(&sent, 1, MPI_INT, 0, 0, &got, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
    CHECK(got > 0 && got != sent);
    char word[5] = "left", other[5] = "";
    CHECK(write(end, word, 5) == 5 && read(end, other, 5) == 5 && !strcmp(word, other));
    MPI_Comm_disconnect(&inter);
}

int main(int argc, char **argv) {
    int ends[2] = {-1, -1}, level;
    const char *role = argc > 1 ? argv[1] : "";
    if (!strcmp(role, "join")) {
        if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends)) return 1;
        if (fork()) ends[0] = ends[1];
    }
    MPI_Init_thread(&argc, &argv, strcmp(role, "threads") ? MPI_THREAD_SINGLE : MPI_THREAD_MULTIPLE, &level);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    accepts = !strcmp(role, "accept");
    if (!strcmp(role, "within"))
        within();
    else if (!strcmp(role, "first") || !strcmp(role, "second") || !strcmp(role, "third"))
        three(role, argv[2]);
    else if (!strcmp(role, "threads"))
        in_threads();
    else if (!strcmp(role, "join"))
        join(ends[0]);
    else
        meet(argv[2], argc > 3 ? atoi(argv[3]) : 2);
    int all = failures;
    MPI_Allreduce(MPI_IN_PLACE, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%s %s\n", all ? "FAILED" : "ok", role);
    MPI_Finalize();
    return all != 0;
}
