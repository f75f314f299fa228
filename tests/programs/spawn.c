/* Processes that start others (MPI-5.0 §11.8). Usage: spawn WAY [ARGUMENT...]; the children are the same program, whose
   first argument is "child". Each check that fails is a line; the last line is rank 0's. */
#include <mpi.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

static char *self;
static void *volatile nonsense = (void *)8;

/* Starts children as argv says. */
static MPI_Comm start(char *argv[], int count, MPI_Info info, int root, MPI_Comm over) {
    MPI_Comm children = MPI_COMM_NULL;
    int codes[64], there;
    for (int i = 0; i < 64; i++) codes[i] = -1;
    CHECK(MPI_Comm_spawn(self, argv, count, info, root, over, &children, codes) == MPI_SUCCESS);
    for (int i = 0; i < count; i++) CHECK(codes[i] == MPI_SUCCESS);
    CHECK(codes[count] == -1);
    MPI_Comm_remote_size(children, &there);
    CHECK(there == count);
    return children;
}

/* What both sides do with an intercommunicator: point to point, a collective, and the merged communicator. */
static void talk(MPI_Comm inter, int is_child, size_t bytes) {
    int own, size, there, all, place, sum;
    char *buffer = malloc(bytes);
    MPI_Comm merged;
    MPI_Comm_rank(inter, &own);
    MPI_Comm_size(inter, &size);
    MPI_Comm_remote_size(inter, &there);
    /* Each rank of one group sends to each of the other. */
    for (int other = 0; other < there; other++) {
        memset(buffer, own + 1, bytes);
        if (is_child) {
            MPI_Send(buffer, (int)bytes, MPI_CHAR, other, 7, inter);
        } else {
            MPI_Recv(buffer, (int)bytes, MPI_CHAR, other, 7, inter, MPI_STATUS_IGNORE);
            CHECK(buffer[0] == other + 1 && buffer[bytes - 1] == other + 1);
        }
    }
    int mine = is_child ? 100 : 1;
    MPI_Allreduce(&mine, &sum, 1, MPI_INT, MPI_SUM, inter);
    CHECK(sum == there * (is_child ? 1 : 100));
    MPI_Intercomm_merge(inter, is_child, &merged);
    MPI_Comm_size(merged, &all);
    MPI_Comm_rank(merged, &place);
    CHECK(all == size + there && place == (is_child ? there + own : own));
    MPI_Allreduce(&place, &sum, 1, MPI_INT, MPI_SUM, merged);
    CHECK(sum == all * (all - 1) / 2);
    MPI_Bcast(buffer, (int)bytes, MPI_CHAR, all - 1, merged);
    CHECK(buffer[bytes - 1] == (is_child ? size : there));
    MPI_Comm_free(&merged);
    free(buffer);
}

/* Waits until processes have ended, and then for a time in which mpiexec would end the others with them. */
static void await_end(const int *ids, int count) {
    for (int i = 0; i < count; i++)
        while (kill(ids[i], 0) == 0) usleep(1000);
    usleep(1000 * 600);
}

/* A child or its parent fails, by a way that is named, after it has disconnected: the other side goes on. */
static void fail(const char *by) {
    if (!strcmp(by, "abort")) MPI_Abort(MPI_COMM_WORLD, 9);
    if (!strcmp(by, "signal")) raise(SIGKILL);
    exit(7);
}

static void part_and_fail(MPI_Comm parent, const char *by) {
    int id = (int)getpid();
    MPI_Comm merged;
    MPI_Intercomm_merge(parent, 1, &merged);
    MPI_Gather(&id, 1, MPI_INT, NULL, 0, MPI_INT, 0, parent);
    MPI_Comm_free(&merged);
    MPI_Comm_disconnect(&parent);
    fail(by);
}

/* Children fail, one world after the other; only those that have disconnected do so alone. */
static void apart(const char *by, int worlds, int is_bound) {
    char *next[] = {"child", "apart", (char *)by, NULL}, *stays[] = {"child", "stays", "2", NULL};
    int ids[2];
    MPI_Comm merged, staying = start(stays, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD);
    for (int i = 0; i < worlds; i++) {
        MPI_Comm children = start(next, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD);
        MPI_Intercomm_merge(children, 0, &merged);
        MPI_Gather(NULL, 0, MPI_INT, ids, 1, MPI_INT, rank ? MPI_PROC_NULL : MPI_ROOT, children);
        MPI_Bcast(ids, 2, MPI_INT, 0, MPI_COMM_WORLD);
        if (!is_bound) MPI_Comm_free(&merged);
        MPI_Comm_disconnect(&children);
        await_end(ids, 2);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    /* The others are there: this group, and the world that has not disconnected. */
    talk(staying, 0, 100);
    MPI_Comm_disconnect(&staying);
}

static int child(int argc, char **argv, MPI_Comm parent) {
    CHECK(parent != MPI_COMM_NULL);
    if (!strcmp(argv[2], "talk")) {
        talk(parent, 1, strtoul(argv[3], NULL, 10));
    } else if (!strcmp(argv[2], "deeper")) {
        int depth = atoi(argv[3]);
        if (depth > 0) {
            char text[16];
            snprintf(text, sizeof text, "%d", depth - 1);
            char *next[] = {"child", "deeper", text, NULL};
            MPI_Comm below = start(next, 2, MPI_INFO_NULL, 1, MPI_COMM_WORLD);
            talk(below, 0, 100);
            MPI_Comm_disconnect(&below);
        }
        talk(parent, 1, 100);
    } else if (!strcmp(argv[2], "words")) {
        CHECK(argc == 6 && !strcmp(argv[3], "a b") && !strcmp(argv[4], "") && !strcmp(argv[5], "c=\"d\" $e"));
    } else if (!strcmp(argv[2], "apart")) {
        part_and_fail(parent, argv[3]);
    } else if (!strcmp(argv[2], "outlives")) {
        int ids[2];
        MPI_Bcast(ids, 2, MPI_INT, 0, parent);
        MPI_Comm_disconnect(&parent);
        await_end(ids, 2);
        printf("child %d goes on\n", rank);
        fflush(stdout);
    } else if (!strcmp(argv[2], "stays")) {
        talk(parent, 1, 100);
    } else if (!strcmp(argv[2], "fails")) {
        exit(7);
    } else if (!strcmp(argv[2], "aborts")) {
        MPI_Abort(MPI_COMM_WORLD, 9);
    } else if (!strcmp(argv[2], "later")) {
        MPI_Comm_disconnect(&parent);
        usleep(1000 * 300);
        printf("child %d of %s is last\n", rank, argv[3]);
    } else if (!strcmp(argv[2], "waits")) {
        printf("waits %d\n", (int)getpid());
        fflush(stdout);
        sleep(60);
    } else if (!strcmp(argv[2], "where")) {
        char directory[4096], *site = getenv("CANELE_SITE");
        printf("child %d in %s at %s\n", rank, getcwd(directory, sizeof directory), site ? site : "-");
        fflush(stdout);
        talk(parent, 1, 100);
    } else {
        CHECK(!"a known way");
    }
    MPI_Comm again;
    if (parent != MPI_COMM_NULL) {
        MPI_Comm_disconnect(&parent);
    }
    MPI_Comm_get_parent(&again);
    CHECK(again == MPI_COMM_NULL);
    return failures > 0;
}

/* Programs of different names and arguments, with their numbers. */
static void several(void) {
    char *one[] = {"child", "talk", "1000", NULL}, *commands[] = {self, self}, **arguments[] = {one, one};
    int most[] = {1, 2}, codes[3] = {-1, -1, -1}, there = 0;
    MPI_Info infos[] = {MPI_INFO_NULL, MPI_INFO_NULL};
    MPI_Comm children;
    if (rank == 0) {
        CHECK(MPI_Comm_spawn_multiple(2, commands, arguments, most, infos, 0, MPI_COMM_WORLD, &children, codes) == 0);
    } else {
        /* Nothing of it counts at other ranks. */
        void *no = nonsense;
        CHECK(MPI_Comm_spawn_multiple(-7, no, no, no, no, 0, MPI_COMM_WORLD, &children, codes) == 0);
    }
    CHECK(codes[0] == 0 && codes[1] == 0 && codes[2] == 0);
    MPI_Comm_remote_size(children, &there);
    CHECK(there == 3);
    talk(children, 0, 1000);
    MPI_Comm_disconnect(&children);
}

static void missing(void) {
    char *none = "./no-such-program";
    int codes[3] = {-1, -1, -1}, class = 0;
    MPI_Comm children = MPI_COMM_WORLD;
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    int code = MPI_Comm_spawn(none, MPI_ARGV_NULL, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, codes);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_SPAWN && children == MPI_COMM_NULL);
    CHECK(codes[0] == MPI_ERR_SPAWN && codes[1] == MPI_ERR_SPAWN && codes[2] == -1);
    /* What is wrong at the root is wrong at all. */
    code = MPI_Comm_spawn(self, MPI_ARGV_NULL, -1, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &children, MPI_ERRCODES_IGNORE);
    MPI_Error_class(code, &class);
    CHECK(class == MPI_ERR_ARG);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_ARE_FATAL);
}

/* A child that never calls MPI_Init, in which its parents meet it. */
static int only_sessions(void) {
    MPI_Session session;
    MPI_Group group;
    MPI_Comm comm;
    MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &session);
    MPI_Group_from_session_pset(session, "mpi://WORLD", &group);
    MPI_Comm_create_from_group(group, "tests.spawn", MPI_INFO_NULL, MPI_ERRORS_ARE_FATAL, &comm);
    MPI_Group_free(&group);
    MPI_Barrier(comm);
    MPI_Comm_free(&comm);
    return MPI_Session_finalize(&session);
}

int main(int argc, char **argv) {
    MPI_Comm parent, children;
    int size;
    self = argv[0];
    if (argc > 2 && !strcmp(argv[2], "session")) return only_sessions();
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_get_parent(&parent);
    if (argc > 2 && !strcmp(argv[1], "child")) {
        int code = child(argc, argv, parent);
        MPI_Finalize();
        return code;
    }
    CHECK(parent == MPI_COMM_NULL);
    const char *way = argv[1];
    if (!strcmp(way, "talk")) {
        char *small[] = {"child", "talk", "100", NULL}, *large[] = {"child", "talk", "3000000", NULL};
        children = start(small, atoi(argv[2]), MPI_INFO_NULL, size - 1, MPI_COMM_WORLD);
        talk(children, 0, 100);
        /* A second group while the first is there. */
        MPI_Comm more = start(large, 1, MPI_INFO_NULL, 0, MPI_COMM_WORLD);
        talk(more, 0, 3000000);
        MPI_Comm_disconnect(&more);
        MPI_Comm_disconnect(&children);
    } else if (!strcmp(way, "deeper")) {
        char *next[] = {"child", "deeper", "2", NULL};
        children = start(next, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD);
        talk(children, 0, 100);
        MPI_Comm_disconnect(&children);
    } else if (!strcmp(way, "several")) {
        several();
    } else if (!strcmp(way, "missing")) {
        missing();
    } else if (!strcmp(way, "apart") || !strcmp(way, "bound")) {
        apart(argv[2], atoi(argv[3]), !strcmp(way, "bound"));
    } else if (!strcmp(way, "first")) {
        /* The parents fail, after they have disconnected. */
        char *next[] = {"child", "outlives", "1", NULL};
        int ids[2], id = (int)getpid();
        children = start(next, 2, MPI_INFO_NULL, 0, MPI_COMM_WORLD);
        MPI_Allgather(&id, 1, MPI_INT, ids, 1, MPI_INT, MPI_COMM_WORLD);
        MPI_Bcast(ids, 2, MPI_INT, rank ? MPI_PROC_NULL : MPI_ROOT, children);
        MPI_Comm_disconnect(&children);
        fail(argv[2]);
    } else if (!strcmp(way, "words")) {
        char *words[] = {"child", "words", "a b", "", "c=\"d\" $e", NULL};
        children = start(words, 1, MPI_INFO_NULL, 0, MPI_COMM_SELF);
        MPI_Comm_disconnect(&children);
    } else {
        /* The way is the child's; hints follow. */
        char *next[] = {"child", argv[1], argv[2], NULL};
        MPI_Info info;
        MPI_Info_create(&info);
        for (int i = 4; i + 1 < argc; i += 2) MPI_Info_set(info, argv[i], argv[i + 1]);
        children = start(next, atoi(argv[3]), info, 0, MPI_COMM_WORLD);
        MPI_Info_free(&info);
        if (!strcmp(way, "where")) talk(children, 0, 100);
        if (!strcmp(way, "fails") || !strcmp(way, "aborts") || !strcmp(way, "waits")) sleep(60);
        MPI_Comm_disconnect(&children);
    }
    int all;
    MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, MPI_COMM_WORLD);
    if (rank == 0) printf("%s on %d: %d failures\n", way, size, all);
    MPI_Finalize();
    return failures > 0;
}
