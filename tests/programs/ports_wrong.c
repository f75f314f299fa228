/* Meetings that fail: ports_wrong wrong (on two ranks): names and ports that do not serve. ports_wrong names: names that
   all ranks see. ports_wrong deaths: callers that die at any moment, and one that does not. ports_wrong visits (alone):
   many jobs, one after the other. Prints one line. */
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include "expect.h"

enum { DEATHS = 12, ANSWER = 42, VISITS = 24 };

static void wrong(void) {
    char port[MPI_MAX_PORT_NAME] = "", other[MPI_MAX_PORT_NAME] = "", service[64], found[MPI_MAX_PORT_NAME];
    MPI_Comm made;
    MPI_Info soon, never;
    snprintf(service, sizeof service, "rank %d's", rank);
    expect("look up", MPI_Lookup_name(service, MPI_INFO_NULL, found), MPI_ERR_NAME);
    expect("unpublish", MPI_Unpublish_name(service, MPI_INFO_NULL, "p"), MPI_ERR_SERVICE);
    expect("publish", MPI_Publish_name(service, MPI_INFO_NULL, "p"), MPI_SUCCESS);
    expect("publish again", MPI_Publish_name(service, MPI_INFO_NULL, "p"), MPI_ERR_SERVICE);
    expect("publish nothing", MPI_Publish_name("", MPI_INFO_NULL, "p"), MPI_ERR_SERVICE);
    expect("unpublish another port", MPI_Unpublish_name(service, MPI_INFO_NULL, "q"), MPI_ERR_SERVICE);
    expect("look up", MPI_Lookup_name(service, MPI_INFO_NULL, found), MPI_SUCCESS);
    CHECK(!strcmp(found, "p"));
    expect("unpublish", MPI_Unpublish_name(service, MPI_INFO_NULL, "p"), MPI_SUCCESS);
    expect("close", MPI_Close_port("p"), MPI_ERR_PORT);
    MPI_Info_create(&soon), MPI_Info_set(soon, "timeout", "1");
    MPI_Info_create(&never), MPI_Info_set(never, "timeout", "never");
    /* All ranks hear of what is wrong at the root. */
    int root = 1;
    expect("accept nowhere", MPI_Comm_accept("p", MPI_INFO_NULL, root, MPI_COMM_WORLD, &made), MPI_ERR_PORT);
    CHECK(made == MPI_COMM_NULL);
    expect("connect nowhere", MPI_Comm_connect("p", MPI_INFO_NULL, root, MPI_COMM_WORLD, &made), MPI_ERR_PORT);
    CHECK(made == MPI_COMM_NULL);
    expect("connect from no root", MPI_Comm_connect("p", MPI_INFO_NULL, 2, MPI_COMM_WORLD, &made), MPI_ERR_ROOT);
    if (rank == root) expect("open", MPI_Open_port(MPI_INFO_NULL, port), MPI_SUCCESS);
    expect("a strange limit", MPI_Comm_accept(port, never, root, MPI_COMM_WORLD, &made), MPI_ERR_INFO_VALUE);
    expect("nobody connects", MPI_Comm_accept(port, soon, root, MPI_COMM_WORLD, &made), MPI_ERR_PORT);
    expect("nobody accepts", MPI_Comm_connect(port, soon, root, MPI_COMM_WORLD, &made), MPI_ERR_PORT);
    /* The key is in the middle of the name. */
    strcpy(other, port);
    if (rank == root) other[60] = other[60] == 'A' ? 'B' : 'A';
    expect("a wrong key", MPI_Comm_connect(other, soon, root, MPI_COMM_WORLD, &made), MPI_ERR_PORT);
    strcpy(other, port);
    other[strlen(other) / 2] = 0;
    expect("half a name", MPI_Comm_connect(other, soon, root, MPI_COMM_WORLD, &made), MPI_ERR_PORT);
    if (rank == root) expect("close", MPI_Close_port(port), MPI_SUCCESS);
    if (rank == root) expect("close again", MPI_Close_port(port), MPI_ERR_PORT);
    expect("accept at a closed port", MPI_Comm_accept(port, soon, root, MPI_COMM_WORLD, &made), MPI_ERR_PORT);
    expect("connect to a closed port", MPI_Comm_connect(port, soon, root, MPI_COMM_WORLD, &made), MPI_ERR_PORT);
    expect("join nothing", MPI_Comm_join(-1, &made), MPI_ERR_ARG);
    expect("join no socket", MPI_Comm_join(1000, &made), MPI_ERR_ARG);
    MPI_Info_free(&soon), MPI_Info_free(&never);
    /* All goes on. */
    int one = 1, sum;
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    CHECK(sum == 2);
}

/* Connects, and dies after so many milliseconds; or sends the answer, and parts. */
static void caller(char *port, int lives_ms) {
    MPI_Comm inter;
    struct itimerval timer = {{0, 0}, {lives_ms / 1000, lives_ms % 1000 * 1000}};
    signal(SIGALRM, SIG_DFL);
    if (lives_ms) setitimer(ITIMER_REAL, &timer, NULL);
    MPI_Init(NULL, NULL);
    MPI_Comm_connect(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
    while (lives_ms) pause();
    int answer = ANSWER;
    MPI_Send(&answer, 1, MPI_INT, 0, 0, inter);
    MPI_Comm_disconnect(&inter);
    MPI_Finalize();
    exit(0);
}

static void deaths(void) {
    int channel[2], got = 0, parted = 0, status;
    char port[MPI_MAX_PORT_NAME] = "", *number = getenv("PMI_RANK");
    pid_t children[DEATHS + 1];
    int is_first = !number || !strcmp(number, "0");
    if (pipe(channel)) exit(1);
    for (int i = 0; is_first && i <= DEATHS; i++)
        if (!(children[i] = fork())) {
            /* Each is a job of its own. */
            unsetenv("PMI_FD"), unsetenv("PMI_RANK"), unsetenv("PMI_SIZE");
            if (read(channel[0], port, sizeof port) != sizeof port) exit(1);
            /* The last one to be read is the one that lives: it waits until the others have gone. */
            if (i == DEATHS) sleep(2);
            caller(port, i == DEATHS ? 0 : 1 + 25 * i);
        }
    MPI_Init(NULL, NULL);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (is_first) MPI_Open_port(MPI_INFO_NULL, port);
    for (int i = 0; is_first && i <= DEATHS; i++) CHECK(write(channel[1], port, sizeof port) == sizeof port);
    for (int tries = 0; got != ANSWER && tries <= DEATHS; tries++) {
        MPI_Comm inter;
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        MPI_Comm_set_errhandler(inter, MPI_ERRORS_RETURN);
        int code = is_first ? MPI_Recv(&got, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE) : MPI_SUCCESS;
        if (is_first && code != MPI_SUCCESS) got = 0;
        MPI_Bcast(&got, 1, MPI_INT, 0, MPI_COMM_WORLD);
        if (got == ANSWER) {
            parted = 1;
            MPI_Comm_disconnect(&inter);
        } else {
            if (is_first) expect("a caller has died", code, MPI_ERR_PROC_ABORTED);
            MPI_Comm_free(&inter);
        }
    }
    CHECK(got == ANSWER && parted);
    for (int i = 0; is_first && i <= DEATHS; i++) {
        waitpid(children[i], &status, 0);
        CHECK(i < DEATHS ? WIFSIGNALED(status) : status == 0);
    }
    if (is_first) MPI_Close_port(port);
}

static int open_files(void) {
    int count = 0;
    char path[64];
    for (int fd = 0; fd < 1000; fd++) {
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        count += !access(path, F_OK);
    }
    return count;
}

/* Nothing is left of jobs that have ended. */
static void visits(void) {
    int channel[2], got = 0, status, files = 0;
    char port[MPI_MAX_PORT_NAME] = "";
    pid_t children[VISITS];
    if (pipe(channel)) exit(1);
    for (int i = 0; i < VISITS; i++)
        if (!(children[i] = fork())) {
            if (read(channel[0], port, sizeof port) != sizeof port) exit(1);
            caller(port, 0);
        }
    MPI_Init(NULL, NULL);
    MPI_Open_port(MPI_INFO_NULL, port);
    for (int i = 0; i < VISITS; i++) {
        MPI_Comm inter;
        CHECK(write(channel[1], port, sizeof port) == sizeof port);
        MPI_Comm_accept(port, MPI_INFO_NULL, 0, MPI_COMM_WORLD, &inter);
        MPI_Recv(&got, 1, MPI_INT, 0, 0, inter, MPI_STATUS_IGNORE);
        CHECK(got == ANSWER);
        MPI_Comm_disconnect(&inter);
        CHECK(wait(&status) > 0 && status == 0);
        if (i == VISITS / 3) files = open_files();
    }
    CHECK(open_files() <= files + 6);
    MPI_Close_port(port);
}

/* Names that all ranks of one mpiexec see, whatever host they are on. */
static void names(void) {
    char found[MPI_MAX_PORT_NAME];
    const char *service = "sea ice, 100 %", *port = "a port = a word";
    MPI_Info own;
    MPI_Info_create(&own), MPI_Info_set(own, "ompi_global_scope", "false");
    if (rank == 0) expect("publish", MPI_Publish_name(service, own, port), MPI_SUCCESS);
    MPI_Info_free(&own);
    MPI_Barrier(MPI_COMM_WORLD);
    expect("look up", MPI_Lookup_name(service, MPI_INFO_NULL, found), MPI_SUCCESS);
    CHECK(!strcmp(found, port));
    if (rank != 0) expect("publish again", MPI_Publish_name(service, MPI_INFO_NULL, port), MPI_ERR_SERVICE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) expect("unpublish", MPI_Unpublish_name(service, MPI_INFO_NULL, port), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    expect("look up", MPI_Lookup_name(service, MPI_INFO_NULL, found), MPI_ERR_NAME);
}

int main(int argc, char **argv) {
    if (argc > 1 && !strcmp(argv[1], "deaths"))
        deaths();
    else if (argc > 1 && !strcmp(argv[1], "visits"))
        visits();
    else {
        MPI_Init(NULL, NULL);
        MPI_Comm_rank(MPI_COMM_WORLD, &rank);
        MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
        if (argc > 1 && !strcmp(argv[1], "names")) names();
        else wrong();
        MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank == 0) printf("%s %s\n", failures ? "FAILED" : "ok", argc > 1 ? argv[1] : "");
    MPI_Finalize();
    return failures != 0;
}
