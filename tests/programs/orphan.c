/* Errors for a process that has died behind a shell that stays, so the launcher notices nothing. Rank 1 ends silently
   but leaves a child; probes find out. Rank 2 is killed in its sleep; sends find out. Prints one line. */
#include <mpi.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

/* True if a process sleeps in the kernel, or has gone. */
static int state(int process) {
    char path[64], state = 0;
    snprintf(path, sizeof path, "/proc/%d/stat", process);
    FILE *file = fopen(path, "r");
    if (!file) return 'X';
    if (fscanf(file, "%*d (%*[^)]) %c", &state) != 1) state = 0;
    fclose(file);
    return state;
}

static void await_state(int process, const char *wanted) {
    for (int i = 0; i < 2000 && !strchr(wanted, state(process)); i++) usleep(5000);
}

static void send_to_the_killed(void) {
    int process, value = 0;
    MPI_Recv(&process, 1, MPI_INT, 2, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    await_state(process, "S");
    kill(process, SIGKILL);
    await_state(process, "XZ");
    /* A short send completes once it fits. A send that waits for an answer gets the error. */
    for (int i = 0; i < 10; i++) MPI_Send(&value, 1, MPI_INT, 2, 1, MPI_COMM_WORLD);
    expect("MPI_Ssend to one that was killed in its sleep", MPI_Ssend(&value, 1, MPI_INT, 2, 1, MPI_COMM_WORLD),
           MPI_ERR_PROC_ABORTED);
}

int main(int argc, char **argv) {
    int size, value = 0, flag = 0, code;
    MPI_Message message;
    MPI_Status status;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    if (rank == 1) {
        MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &status);
        if (fork() == 0) sleep(15);
        _exit(0);
    }
    if (rank == 2) {
        value = getpid();
        MPI_Send(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(&value, 1, MPI_INT, 0, 1, MPI_COMM_WORLD, &status);
    }
    MPI_Probe(1, 1, MPI_COMM_WORLD, &status);
    MPI_Ssend(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD);
    expect("MPI_Probe", MPI_Probe(1, 2, MPI_COMM_WORLD, &status), MPI_ERR_PROC_ABORTED);
    expect("MPI_Mprobe", MPI_Mprobe(1, 2, MPI_COMM_WORLD, &message, &status), MPI_ERR_PROC_ABORTED);
    expect("MPI_Iprobe", MPI_Iprobe(1, 2, MPI_COMM_WORLD, &flag, &status), MPI_ERR_PROC_ABORTED);
    expect("MPI_Improbe", MPI_Improbe(1, 2, MPI_COMM_WORLD, &flag, &message, &status), MPI_ERR_PROC_ABORTED);
    /* Messages that it had sent are still there. */
    code = MPI_Iprobe(1, 1, MPI_COMM_WORLD, &flag, &status);
    expect("MPI_Iprobe of a message", code, MPI_SUCCESS);
    failures += !flag;
    expect("MPI_Recv", MPI_Recv(&value, 1, MPI_INT, 1, 1, MPI_COMM_WORLD, &status), MPI_SUCCESS);
    if (size > 2) send_to_the_killed();
    printf("the dead: %d failures\n", failures);
    fflush(stdout);
    _exit(failures != 0);
}
