/* Sessions: without the World Model, beside it and after it, again and again, and of all processes or some. The first argument is a
   part; each is run on any number of ranks. Prints one line. */
#include <mpi.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

enum { THREADS = 4, ROUNDS = 5, LENGTH = 100, LONG = 20 * LENGTH };

static int size;

static MPI_Session begin(void) {
    MPI_Session session = MPI_SESSION_NULL;
    CHECK(MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS && session != MPI_SESSION_NULL);
    return session;
}

static void end(MPI_Session session) {
    CHECK(MPI_Session_finalize(&session) == MPI_SUCCESS && session == MPI_SESSION_NULL);
}

static MPI_Group group_of(MPI_Session session, const char *set) {
    MPI_Group group = MPI_GROUP_NULL;
    CHECK(MPI_Group_from_session_pset(session, set, &group) == MPI_SUCCESS && group != MPI_GROUP_NULL);
    return group;
}

/* A communicator of a process set. */
static MPI_Comm comm_of(MPI_Session session, const char *set, const char *tag) {
    MPI_Group group = group_of(session, set);
    MPI_Comm comm = MPI_COMM_NULL;
    CHECK(MPI_Comm_create_from_group(group, tag, MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS);
    MPI_Group_free(&group);
    return comm;
}

/* True if the processes of a communicator reach each other. */
static int works(MPI_Comm comm) {
    int ranks, own, sum = -1, got = -1;
    MPI_Comm_size(comm, &ranks), MPI_Comm_rank(comm, &own);
    MPI_Allreduce(&own, &sum, 1, MPI_INT, MPI_SUM, comm);
    int next = (own + 1) % ranks, previous = (own + ranks - 1) % ranks;
    MPI_Sendrecv(&own, 1, MPI_INT, next, 3, &got, 1, MPI_INT, previous, 3, comm, MPI_STATUS_IGNORE);
    return sum == ranks * (ranks - 1) / 2 && got == previous;
}

static void find_place(MPI_Session session) {
    MPI_Group group = group_of(session, "mpi://WORLD");
    MPI_Group_size(group, &size), MPI_Group_rank(group, &rank);
    MPI_Group_free(&group);
}

static const char *value_of(MPI_Info info, const char *key) {
    static char value[MPI_MAX_INFO_VAL];
    int len = sizeof value, is_there = 0;
    MPI_Info_get_string(info, key, &len, value, &is_there);
    return is_there ? value : "";
}

static int called;
static MPI_Session caller;

static void note(MPI_Session *session, int *code, ...) {
    MPI_Error_class(*code, &called);
    caller = *session;
}

static void hints(void) {
    const char *levels[] = {"MPI_THREAD_SINGLE", "MPI_THREAD_FUNNELED", "MPI_THREAD_SERIALIZED", "MPI_THREAD_MULTIPLE"};
    MPI_Session session = MPI_SESSION_NULL;
    MPI_Info info, used;
    MPI_Info_create(&info);
    MPI_Info_set(info, "of_another_library", "yes");
    for (int i = 0; i < 4; i++) {
        MPI_Info_set(info, "thread_level", levels[i]);
        CHECK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
        CHECK(MPI_Session_get_info(session, &used) == MPI_SUCCESS && !strcmp(value_of(used, "thread_level"), levels[i]));
        CHECK(!strcmp(value_of(used, "of_another_library"), ""));
        MPI_Info_free(&used);
        end(session);
    }
    session = begin();
    MPI_Session_get_info(session, &used);
    CHECK(!strcmp(value_of(used, "thread_level"), "MPI_THREAD_MULTIPLE") && strstr(value_of(used, "mpi_memory_alloc_kinds"), "system"));
    MPI_Info_free(&used);
    end(session);

    MPI_Errhandler handler;
    MPI_Session_create_errhandler(note, &handler);
    MPI_Info_set(info, "thread_level", "MPI_THREAD_MANY");
    expect("an unknown level", MPI_Session_init(info, MPI_ERRORS_RETURN, &session), MPI_ERR_INFO_VALUE);
    CHECK(session == MPI_SESSION_NULL);
    called = 0, caller = session;
    expect("an unknown level", MPI_Session_init(info, handler, &session), MPI_ERR_INFO_VALUE);
    CHECK(called == MPI_ERR_INFO_VALUE && caller == MPI_SESSION_NULL);
    MPI_Errhandler_free(&handler);
    MPI_Info_free(&info);
}

/* The length counts the zero byte at the end, and is always that which the name needs (MPI-5.0 11.3.2). */
static void process_sets(MPI_Session session) {
    int sets = 0, len, ranks, found = 0;
    char name[200], shorter[5];
    const char *site = getenv("CANELE_SITE");
    MPI_Info info;
    CHECK(MPI_Session_get_num_psets(session, MPI_INFO_NULL, &sets) == MPI_SUCCESS && sets == (site ? 4 : 3));
    for (int n = 0; n < sets; n++) {
        len = 0, strcpy(name, "untouched");
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &len, name) == MPI_SUCCESS && !strcmp(name, "untouched"));
        int needed = len;
        len = 0;
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &len, NULL) == MPI_SUCCESS && len == needed);
        memset(name, '#', sizeof name);
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &len, name) == MPI_SUCCESS && len == needed);
        CHECK((int)strlen(name) + 1 == needed && name[needed] == '#');
        memset(shorter, '#', sizeof shorter), len = 4;
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &len, shorter) == MPI_SUCCESS && len == needed);
        CHECK(!strncmp(shorter, name, 3) && shorter[3] == 0 && shorter[4] == '#');
        len = 1;
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &len, shorter) == MPI_SUCCESS && shorter[0] == 0);
        len = sizeof name;
        CHECK(MPI_Session_get_nth_pset(session, MPI_INFO_NULL, n, &len, name) == MPI_SUCCESS && len == needed);
        found |= !strcmp(name, "mpi://WORLD") ? 1 : !strcmp(name, "mpi://SELF") ? 2 : !strcmp(name, "canele://node") ? 4 : 8;
        MPI_Group group = group_of(session, name);
        MPI_Group_size(group, &ranks);
        CHECK(MPI_Session_get_pset_info(session, name, &info) == MPI_SUCCESS && atoi(value_of(info, "mpi_size")) == ranks);
        CHECK(strcmp(name, "mpi://SELF") || ranks == 1);
        MPI_Info_free(&info);
        MPI_Group_free(&group);
    }
    CHECK(found == (site ? 15 : 7));
    MPI_Group group = MPI_GROUP_EMPTY;
    expect("no such set", MPI_Group_from_session_pset(session, "mpi://NOWHERE", &group), MPI_ERR_ARG);
    CHECK(group == MPI_GROUP_NULL);
    CHECK(MPI_Group_from_session_pset(session, "mpi://self", &group) == MPI_SUCCESS && MPI_Group_free(&group) == MPI_SUCCESS);
    expect("no such set", MPI_Session_get_pset_info(session, "mpi://NOWHERE", &info), MPI_ERR_ARG);
    len = 10;
    expect("set -1", MPI_Session_get_nth_pset(session, MPI_INFO_NULL, -1, &len, name), MPI_ERR_ARG);
    expect("one too many", MPI_Session_get_nth_pset(session, MPI_INFO_NULL, sets, &len, name), MPI_ERR_ARG);
    len = -1;
    expect("a negative length", MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &len, name), MPI_ERR_ARG);
}

static void error_handlers(MPI_Session session) {
    MPI_Errhandler handler, other, got;
    MPI_Session_create_errhandler(note, &handler);
    MPI_Session_get_errhandler(session, &got);
    CHECK(got == MPI_ERRORS_RETURN);
    CHECK(MPI_Session_set_errhandler(session, handler) == MPI_SUCCESS);
    MPI_Session_get_errhandler(session, &got);
    CHECK(got == handler);
    MPI_Errhandler_free(&got), MPI_Errhandler_free(&handler);
    called = 0;
    CHECK(MPI_Session_call_errhandler(session, MPI_ERR_ARG) == MPI_SUCCESS && called == MPI_ERR_ARG && caller == session);
    called = 0;
    int len = -1;
    expect("a negative length", MPI_Session_get_nth_pset(session, MPI_INFO_NULL, 0, &len, NULL), MPI_ERR_ARG);
    CHECK(called == MPI_ERR_ARG && caller == session);
    MPI_Comm_create_errhandler((MPI_Comm_errhandler_function *)note, &other);
    called = 0;
    expect("a communicator's handler", MPI_Session_set_errhandler(session, other), MPI_ERR_ERRHANDLER);
    CHECK(called == MPI_ERR_ERRHANDLER);
    MPI_Errhandler_free(&other);
    MPI_Session_set_errhandler(session, MPI_ERRORS_RETURN);
}

static int delete_it(MPI_Comm comm, int key, void *value, void *deleted) {
    (void)comm, (void)key, (void)value;
    ++*(int *)deleted;
    return MPI_SUCCESS;
}

/* What derives from communicators and groups of a session is of this session. */
static void derived(MPI_Session session) {
    MPI_Comm world = comm_of(session, "mpi://WORLD", "derived"), copy, half, again;
    MPI_Group group, of_half;
    int key, deleted = 0, is_there, *found;
    CHECK(works(world));
    CHECK(MPI_Comm_get_attr(world, MPI_TAG_UB, &found, &is_there) == MPI_SUCCESS && is_there);
    MPI_Comm_create_keyval(MPI_COMM_DUP_FN, delete_it, &key, &deleted);
    MPI_Comm_set_attr(world, key, &deleted);
    CHECK(MPI_Comm_dup(world, &copy) == MPI_SUCCESS && works(copy));
    CHECK(MPI_Comm_get_attr(copy, key, &found, &is_there) == MPI_SUCCESS && is_there && found == &deleted);
    CHECK(MPI_Comm_split(copy, rank % 2, -rank, &half) == MPI_SUCCESS && works(half));
    MPI_Comm_group(half, &of_half);
    CHECK(MPI_Comm_create_from_group(of_half, rank % 2 ? "odd" : "even", MPI_INFO_NULL, MPI_ERRORS_RETURN, &again) == MPI_SUCCESS);
    CHECK(works(again));
    MPI_Group_free(&of_half), MPI_Comm_free(&again);
    /* Processes that are not asked take no part. */
    group = group_of(session, "mpi://WORLD");
    int last = size - 1;
    MPI_Group_excl(group, size > 1, &last, &of_half);
    if (rank < size - (size > 1)) {
        CHECK(MPI_Comm_create_from_group(of_half, "all but the last", MPI_INFO_NULL, MPI_ERRORS_RETURN, &again) == MPI_SUCCESS);
        CHECK(works(again));
        MPI_Comm_free(&again);
    } else {
        expect("not in the group", MPI_Comm_create_from_group(of_half, "", MPI_INFO_NULL, MPI_ERRORS_RETURN, &again), MPI_ERR_GROUP);
    }
    MPI_Group_free(&group), MPI_Group_free(&of_half);
    CHECK(MPI_Comm_create_from_group(MPI_GROUP_EMPTY, "", MPI_INFO_NULL, MPI_ERRORS_RETURN, &again) == MPI_SUCCESS);
    CHECK(again == MPI_COMM_NULL);
    MPI_Comm_free(&half), MPI_Comm_disconnect(&copy), MPI_Comm_free(&world);
    CHECK(deleted == 2);
    MPI_Comm_free_keyval(&key);

    long shared = rank, *memory;
    MPI_Win window;
    MPI_Comm node = comm_of(session, "canele://node", "node");
    CHECK(works(node));
    MPI_Win_allocate(sizeof shared, 1, MPI_INFO_NULL, node, &memory, &window);
    MPI_Win_get_group(window, &group);
    CHECK(MPI_Comm_create_from_group(group, "of a window", MPI_INFO_NULL, MPI_ERRORS_RETURN, &again) == MPI_SUCCESS && works(again));
    MPI_Group_free(&group), MPI_Comm_free(&again), MPI_Win_free(&window), MPI_Comm_free(&node);
}

static void between_groups(MPI_Session session) {
    MPI_Group all = group_of(session, "mpi://WORLD"), lower, upper;
    int halves[2][1][3] = {{{0, size / 2 - 1, 1}}, {{size / 2, size - 1, 1}}}, got = -1;
    MPI_Comm inter;
    if (size > 1) {
        MPI_Group_range_incl(all, 1, halves[0], &lower), MPI_Group_range_incl(all, 1, halves[1], &upper);
        MPI_Group local = rank < size / 2 ? lower : upper, remote = rank < size / 2 ? upper : lower;
        CHECK(MPI_Intercomm_create_from_groups(local, 0, remote, 0, "halves", MPI_INFO_NULL, MPI_ERRORS_RETURN, &inter) == MPI_SUCCESS);
        MPI_Allreduce(&rank, &got, 1, MPI_INT, MPI_MIN, inter);
        CHECK(got == (rank < size / 2 ? size / 2 : 0));
        MPI_Comm_free(&inter);
        /* Groups of two sessions do not mix. */
        MPI_Session other = begin();
        MPI_Group self = group_of(other, "mpi://SELF");
        expect("groups of two sessions", MPI_Intercomm_create_from_groups(self, 0, remote, 0, "two", MPI_INFO_NULL, MPI_ERRORS_RETURN, &inter), MPI_ERR_GROUP);
        MPI_Group_free(&self), MPI_Group_free(&lower), MPI_Group_free(&upper);
        end(other);
    }
    MPI_Group_free(&all);
}

static void *make_communicators(void *number) {
    int thread = *(int *)number;
    char tag[40];
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Session session = begin();
        snprintf(tag, sizeof tag, "thread %d, round %d", thread, round);
        MPI_Comm comm = comm_of(session, "mpi://WORLD", tag), self = comm_of(session, "mpi://SELF", "the same everywhere");
        CHECK(works(comm) && works(self));
        MPI_Comm_free(&self), MPI_Comm_free(&comm);
        end(session);
    }
    return NULL;
}

/* Several sessions at a time, whose communicators are made in any order. */
static void concurrent(void) {
    pthread_t threads[THREADS];
    int numbers[THREADS];
    for (int i = 0; i < THREADS; i++) {
        numbers[i] = i;
        pthread_create(&threads[i], NULL, make_communicators, &numbers[i]);
    }
    for (int i = 0; i < THREADS; i++) pthread_join(threads[i], NULL);
}

static void buffers(MPI_Session session) {
    static char own[LENGTH + MPI_BSEND_OVERHEAD], of_comm[LENGTH + MPI_BSEND_OVERHEAD];
    char sent[LONG] = "message", got[LENGTH];
    MPI_Session other = begin();
    MPI_Request request;
    void *address;
    int bytes;
    MPI_Count wide;
    expect("nothing to detach", MPI_Session_detach_buffer(session, &address, &bytes), MPI_ERR_BUFFER);
    CHECK(MPI_Session_flush_buffer(session) == MPI_SUCCESS);
    CHECK(MPI_Session_attach_buffer(session, own, sizeof own) == MPI_SUCCESS);
    expect("attached twice", MPI_Session_attach_buffer_c(session, own, sizeof own), MPI_ERR_BUFFER);
    MPI_Comm comm = comm_of(session, "mpi://WORLD", "buffers"), others = comm_of(other, "mpi://WORLD", "others");
    int next = (rank + 1) % size, previous = (rank + size - 1) % size;
    CHECK(MPI_Bsend(sent, LENGTH, MPI_CHAR, next, 1, comm) == MPI_SUCCESS);
    expect("another session's buffer", MPI_Bsend(sent, 1, MPI_CHAR, next, 1, others), MPI_ERR_BUFFER);
    MPI_Recv(got, LENGTH, MPI_CHAR, previous, 1, comm, MPI_STATUS_IGNORE);
    CHECK(!strcmp(got, sent));
    CHECK(MPI_Session_iflush_buffer(session, &request) == MPI_SUCCESS && MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    expect("too long for it", MPI_Bsend(sent, LONG, MPI_CHAR, next, 1, comm), MPI_ERR_BUFFER);
    /* A communicator's buffer is used before its session's. */
    CHECK(MPI_Comm_attach_buffer(comm, of_comm, sizeof of_comm) == MPI_SUCCESS);
    CHECK(MPI_Session_detach_buffer(session, &address, &bytes) == MPI_SUCCESS && address == own && bytes == (int)sizeof own);
    CHECK(MPI_Bsend(sent, LENGTH, MPI_CHAR, next, 2, comm) == MPI_SUCCESS);
    MPI_Recv(got, LENGTH, MPI_CHAR, previous, 2, comm, MPI_STATUS_IGNORE);
    CHECK(MPI_Comm_flush_buffer(comm) == MPI_SUCCESS && MPI_Comm_detach_buffer(comm, &address, &bytes) == MPI_SUCCESS && address == of_comm);
    CHECK(MPI_Session_attach_buffer_c(session, MPI_BUFFER_AUTOMATIC, 0) == MPI_SUCCESS);
    CHECK(MPI_Bsend(sent, LONG, MPI_CHAR, next, 3, comm) == MPI_SUCCESS);
    char longer[LONG];
    MPI_Recv(longer, LONG, MPI_CHAR, previous, 3, comm, MPI_STATUS_IGNORE);
    CHECK(MPI_Session_detach_buffer_c(session, &address, &wide) == MPI_SUCCESS && address == MPI_BUFFER_AUTOMATIC);
    MPI_Comm_free(&comm), MPI_Comm_free(&others);
    end(other);
}

/* A strict session does not end while it has communicators. Another frees what the program leaves. */
static void left(void) {
    MPI_Session session;
    MPI_Info info, used;
    char text[MPI_MAX_ERROR_STRING] = "";
    int len, code;
    MPI_Info_create(&info);
    MPI_Info_set(info, "strict_finalize", "true");
    CHECK(MPI_Session_init(info, MPI_ERRORS_RETURN, &session) == MPI_SUCCESS);
    MPI_Session_get_info(session, &used);
    CHECK(!strcmp(value_of(used, "strict_finalize"), "true"));
    MPI_Info_free(&info), MPI_Info_free(&used);
    MPI_Comm comm = comm_of(session, "mpi://SELF", "");
    MPI_Comm_set_name(comm, "mine");
    MPI_Session same = session;
    code = MPI_Session_finalize(&session);
    expect("a communicator is left", code, MPI_ERR_SESSION);
    MPI_Error_string(code, text, &len);
    CHECK(strstr(text, "session: mine of this session is not freed: free it first"));
    CHECK(session == same);
    MPI_Comm_free(&comm);
    end(session);
    session = begin();
    MPI_Group group = group_of(session, "mpi://SELF");
    comm = comm_of(session, "mpi://WORLD", "left");
    CHECK(works(comm));
    end(session);
    code = MPI_Comm_create_from_group(group, "", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm);
    expect("its session is finalised", code, MPI_ERR_SESSION);
    MPI_Error_string(code, text, &len);
    CHECK(strstr(text, "group: its session is finalised"));
    MPI_Group_free(&group);
}

/* All that a program does that has no World Model. */
static void alone(void) {
    for (int i = 0; i < 3; i++) end(begin());
    hints();
    MPI_Session session = begin();
    int initialized = 1, finalized = 0;
    MPI_Initialized(&initialized), MPI_Finalized(&finalized);
    CHECK(initialized == finalized);
    find_place(session);
    MPI_Session copy = MPI_Session_fromint(MPI_Session_toint(session));
    CHECK(copy == session);
    process_sets(session);
    error_handlers(session);
    derived(session);
    between_groups(session);
    buffers(session);
    end(session);
    left();
    for (int round = 0; round < ROUNDS; round++) {
        session = begin();
        MPI_Comm comm = comm_of(session, "mpi://WORLD", "again");
        CHECK(works(comm));
        if (round % 2) MPI_Comm_free(&comm);
        end(session);
    }
    concurrent();
}

static void with_world(void) {
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Comm_size(MPI_COMM_WORLD, &size), MPI_Comm_rank(MPI_COMM_WORLD, &rank);
}

/* Sessions before MPI_Init, during it, across MPI_Finalize, and after it. */
static void beside(void) {
    int flag;
    MPI_Session before = begin(), across;
    MPI_Comm of_before = comm_of(before, "mpi://WORLD", "before"), left_of_world, of_across;
    with_world();
    across = begin();
    CHECK(works(MPI_COMM_WORLD) && works(of_before));
    MPI_Group group, of_world;
    MPI_Comm_group(MPI_COMM_WORLD, &of_world), MPI_Comm_group(of_before, &group);
    int result;
    MPI_Group_compare(group, of_world, &result);
    CHECK(result == MPI_IDENT);
    MPI_Comm comm;
    CHECK(MPI_Comm_create_from_group(of_world, "of the world", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS && works(comm));
    MPI_Comm_free(&comm), MPI_Group_free(&group), MPI_Group_free(&of_world);
    derived(across);
    buffers(across);
    end(before);
    expect("of a session that is finalised", MPI_Comm_size(of_before, &size), MPI_ERR_COMM);
    expect("no session", MPI_Session_flush_buffer(MPI_SESSION_NULL), MPI_ERR_SESSION);
    expect("a session that is finalised", MPI_Session_flush_buffer(before), MPI_ERR_SESSION);
    expect("finalised twice", MPI_Session_finalize(&before), MPI_ERR_SESSION);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    of_across = comm_of(across, "mpi://WORLD", "across");
    MPI_Comm_dup(MPI_COMM_WORLD, &left_of_world);
    MPI_Finalize();
    MPI_Finalized(&flag);
    CHECK(flag && works(of_across));
    CHECK(MPI_Session_get_num_psets(across, MPI_INFO_NULL, &flag) == MPI_SUCCESS);
    end(across);
    alone();
}

/* Sessions begin and end while another process has not initialised MPI yet, and never communicates. */
static void some(const char *file) {
    char name[300];
    int me = atoi(getenv("PMI_RANK") ? getenv("PMI_RANK") : "0");
    snprintf(name, sizeof name, "%s/initialised", file);
    if (me > 0) while (access(name, F_OK)) usleep(1000);
    MPI_Session session = begin();
    find_place(session);
    CHECK(rank == me);
    end(session);
    if (me == 0) fclose(fopen(name, "w"));
    session = begin();
    MPI_Group all = group_of(session, "mpi://WORLD"), two;
    int first[2] = {0, 1};
    MPI_Group_incl(all, size < 2 ? size : 2, first, &two);
    if (rank < 2) {
        MPI_Comm comm;
        CHECK(MPI_Comm_create_from_group(two, "two", MPI_INFO_NULL, MPI_ERRORS_RETURN, &comm) == MPI_SUCCESS && works(comm));
        MPI_Comm_free(&comm);
    }
    MPI_Group_free(&all), MPI_Group_free(&two);
    end(session);
}

int main(int argc, char **argv) {
    const char *part = argc > 1 ? argv[1] : "alone";
    if (!strcmp(part, "alone")) alone();
    if (!strcmp(part, "beside")) beside();
    if (!strcmp(part, "some")) some(argv[2]);
    if (!strcmp(part, "after")) {
        with_world();
        CHECK(works(MPI_COMM_WORLD));
        MPI_Finalize();
        alone();
    }
    if (!strcmp(part, "before")) {
        /* One process has a session that the others do not have. */
        if (getenv("PMI_RANK") && !strcmp(getenv("PMI_RANK"), "0")) end(begin());
        with_world();
        CHECK(works(MPI_COMM_WORLD));
        MPI_Finalize();
    }
    if (!strcmp(part, "abort")) {
        MPI_Session session = begin();
        /* From then on errors name the rank. */
        find_place(session);
        MPI_Session_set_errhandler(session, MPI_ERRORS_ABORT);
        MPI_Session_call_errhandler(session, MPI_ERR_ARG);
        CHECK(0);
    }
    if (rank == 0 && !failures) printf("sessions: %s\n", part);
    return failures != 0;
}
