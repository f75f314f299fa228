/* Locks of windows whose holder has ended; errors return. The last rank takes locks of rank 0's windows and ends while the
   others wait for them. All that it holds fail on all who cannot share them, and other locks do not. Rank 0 prints a line. */
#include <mpi.h>
#include <stdlib.h>
#include <unistd.h>

#include "expect.h"

enum { WINDOWS = 4, RANKS_MAX = 64, WAIT_US = 300000 };

/* Every second window is of memory that a node shares. The holder of every other pair shares the lock. */
static int is_allocated(int which) { return which % 2; }
static int holds(int which) { return which < 2 ? MPI_LOCK_EXCLUSIVE : MPI_LOCK_SHARED; }

/* Locks and unlocks a window of a rank. */
static void visit(const char *what, int kind, int target, MPI_Win window, int expected) {
    int value = rank, code = MPI_Win_lock(kind, target, 0, window);
    expect(what, code, expected);
    if (code) return;
    expect("MPI_Put", MPI_Put(&value, 1, MPI_INT, target, rank, 1, MPI_INT, window), MPI_SUCCESS);
    expect("MPI_Win_unlock", MPI_Win_unlock(target, window), MPI_SUCCESS);
}

int main(int argc, char **argv) {
    static int cells[WINDOWS][RANKS_MAX];
    int size, *base;
    MPI_Win windows[WINDOWS];
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    for (int i = 0; i < WINDOWS; i++) {
        if (is_allocated(i)) MPI_Win_allocate(sizeof cells[i], sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &windows[i]);
        else MPI_Win_create(cells[i], sizeof cells[i], sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &windows[i]);
        MPI_Win_set_errhandler(windows[i], MPI_ERRORS_RETURN);
    }
    /* All ranks have exchanged messages. Without that, a wait would last as long as connection attempts do. */
    MPI_Alltoall(cells[0], 1, MPI_INT, cells[1], 1, MPI_INT, MPI_COMM_WORLD);
    int is_lost = rank == size - 1;
    for (int i = 0; i < WINDOWS && is_lost; i++) expect("MPI_Win_lock", MPI_Win_lock(holds(i), 0, 0, windows[i]), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    if (is_lost) usleep(WAIT_US), _exit(0);
    for (int i = 0; i < WINDOWS; i++) {
        visit("a lock that the dead rank holds", MPI_LOCK_EXCLUSIVE, 0, windows[i], MPI_ERR_PROC_ABORTED);
        visit("a lock that it does not hold", MPI_LOCK_EXCLUSIVE, 1, windows[i], MPI_SUCCESS);
        visit("the former again", MPI_LOCK_EXCLUSIVE, 0, windows[i], MPI_ERR_PROC_ABORTED);
        visit("the former, shared", MPI_LOCK_SHARED, 0, windows[i], holds(i) == MPI_LOCK_SHARED ? MPI_SUCCESS : MPI_ERR_PROC_ABORTED);
    }
    /* No survivor leaves before all have done their locks. */
    for (int from = 1; rank == 0 && from < size - 1; from++) {
        int theirs = 0;
        MPI_Recv(&theirs, 1, MPI_INT, from, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        failures += theirs;
    }
    for (int to = 1; rank == 0 && to < size - 1; to++) MPI_Ssend(NULL, 0, MPI_INT, to, 2, MPI_COMM_WORLD);
    if (rank > 0) {
        MPI_Send(&failures, 1, MPI_INT, 0, 1, MPI_COMM_WORLD);
        MPI_Recv(NULL, 0, MPI_INT, 0, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    }
    if (rank == 0) printf("locks of %d windows: %d failures\n", WINDOWS, failures);
    fflush(stdout);
    /* A launcher that has not seen the dead rank end makes all wait for it. */
    _exit(failures != 0);
}
