/* Half a round trip between ranks 0 and the last, for each size given: one line of JSON each.
   Usage: pingpong SECONDS_PER_SIZE SIZE... */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void exchange(int rank, int peer, char *out, char *in, long bytes) {
    if (rank < peer) {
        MPI_Send(out, (int)bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
        MPI_Recv(in, (int)bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else {
        MPI_Recv(in, (int)bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(out, (int)bytes, MPI_CHAR, peer, 0, MPI_COMM_WORLD);
    }
}

int main(int argc, char **argv) {
    int provided, rank, size;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    double seconds = argc > 1 ? atof(argv[1]) : 0.2;
    int last = size - 1;
    for (int i = 2; i < argc; i++) {
        long bytes = atol(argv[i]);
        char *out = calloc(1, bytes + 1), *in = calloc(1, bytes + 1);
        MPI_Barrier(MPI_COMM_WORLD);
        if (rank == 0 || rank == last) {
            int peer = rank == 0 ? last : 0;
            /* How often fits the time, agreed by rank 0. Short ones are timed in bundles. */
            double begin = MPI_Wtime();
            int warm = 0;
            int more = 1;
            while (more) {
                for (int k = 0; k < 10; k++) exchange(rank, peer, out, in, bytes);
                warm += 10;
                more = MPI_Wtime() - begin < seconds / 4;
                if (rank == 0) MPI_Send(&more, 1, MPI_INT, peer, 1, MPI_COMM_WORLD);
                else MPI_Recv(&more, 1, MPI_INT, peer, 1, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            }
            double each = (MPI_Wtime() - begin) / warm;
            int plan[2] = {1, 0};
            while (plan[0] * each < 50e-6 && plan[0] < 10000) plan[0] *= 2;
            plan[1] = seconds / (each * plan[0]) + 5;
            if (plan[1] > 5000) plan[1] = 5000;
            if (rank == 0) MPI_Send(plan, 2, MPI_INT, peer, 2, MPI_COMM_WORLD);
            else MPI_Recv(plan, 2, MPI_INT, peer, 2, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
            double *times = malloc(sizeof(double) * plan[1]), sum = 0;
            for (int r = 0; r < plan[1]; r++) {
                double start = MPI_Wtime();
                for (int k = 0; k < plan[0]; k++) exchange(rank, peer, out, in, bytes);
                times[r] = (MPI_Wtime() - start) / plan[0] / 2 * 1e6;
                sum += times[r];
            }
            qsort(times, plan[1], sizeof(double), compare);
            if (rank == 0)
                printf("{\"bytes\": %ld, \"min_us\": %.3f, \"median_us\": %.3f, \"mean_us\": %.3f, \"samples\": %d}\n",
                       bytes, times[0], times[plan[1] / 2], sum / plan[1], plan[1]);
            fflush(stdout);
            free(times);
        }
        free(out), free(in);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Finalize();
    return 0;
}
