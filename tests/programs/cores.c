/* Short messages and barriers while all threads of all ranks lose all cores but one, and after they get them back.
   Rank 0 prints the rate per second before, during and after. It also prints how often ranks noticed a change. */
#define _GNU_SOURCE
#include <dirent.h>
#include <mpi.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>

static const double NOTICED = 1.0, ENOUGH = 0.3;

static int rank, size, failures;

static void move(const cpu_set_t *cores) {
    DIR *threads = opendir("/proc/self/task");
    for (struct dirent *one; (one = readdir(threads));)
        if (atoi(one->d_name)) failures += sched_setaffinity(atoi(one->d_name), sizeof *cores, cores) != 0;
    closedir(threads);
}

/* Runs one round: once around the ring, and a barrier. Returns true if rank 0 continues. */
static int meet(int round, int on) {
    int word[2] = {round, on};
    if (rank) MPI_Recv(word, 2, MPI_INT, rank - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    failures += word[0] != round;
    MPI_Send(word, 2, MPI_INT, (rank + 1) % size, 0, MPI_COMM_WORLD);
    if (!rank) MPI_Recv(word, 2, MPI_INT, size - 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    return word[1];
}

/* Number of rounds per second, measured over `seconds`. */
static long rate(double seconds) {
    double begun = MPI_Wtime();
    int rounds = 0, on = 1;
    while (on) on = meet(rounds++, MPI_Wtime() - begun < seconds);
    return (long)(rounds / (MPI_Wtime() - begun));
}

int main(int argc, char **argv) {
    int provided, index, count, all;
    unsigned long long changes;
    long rates[3];
    cpu_set_t had, left;
    MPI_T_pvar_session session;
    MPI_T_pvar_handle handle;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_get_index("oversubscription_changes", MPI_T_PVAR_CLASS_COUNTER, &index);
    MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count);
    MPI_T_pvar_start(session, handle);
    sched_getaffinity(0, sizeof had, &had);
    CPU_ZERO(&left);
    for (int core = 0; !CPU_COUNT(&left); core++)
        if (CPU_ISSET(core, &had)) CPU_SET(core, &left);
    for (int at = 0; at < 3; at++) {
        if (at) move(at == 1 ? &left : &had);
        rate(NOTICED);
        rates[at] = rate(ENOUGH);
    }
    MPI_T_pvar_read(session, handle, &changes);
    MPI_T_finalize();
    count = (int)changes;
    MPI_Allreduce(MPI_IN_PLACE, &count, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (!rank) printf("%ld %ld %ld %d %d\n", rates[0], rates[1], rates[2], count, all);
    MPI_Finalize();
    return all != 0;
}
