/* Barrier and 8-byte allreduce on all ranks: the least per rank, then the greatest over ranks, of
   batches timed together. One line of JSON each. Usage: crowd BATCHES CALLS */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

int main(int argc, char **argv) {
    int rank, size, provided;
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int batches = argc > 1 ? atoi(argv[1]) : 30, calls = argc > 2 ? atoi(argv[2]) : 50;
    for (int what = 0; what < 2; what++) {
        double least = 1e9, sum = 0, greatest, mean, in = rank, out;
        for (int batch = -3; batch < batches; batch++) {
            MPI_Barrier(MPI_COMM_WORLD);
            double start = MPI_Wtime();
            for (int call = 0; call < calls; call++) {
                if (what == 0) MPI_Barrier(MPI_COMM_WORLD);
                else MPI_Allreduce(&in, &out, 1, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
            }
            double each = (MPI_Wtime() - start) / calls * 1e6;
            if (batch >= 0) {
                sum += each;
                if (each < least) least = each;
            }
        }
        sum /= batches;
        MPI_Reduce(&least, &greatest, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        MPI_Reduce(&sum, &mean, 1, MPI_DOUBLE, MPI_MAX, 0, MPI_COMM_WORLD);
        if (rank == 0)
            printf("{\"operation\": \"%s\", \"ranks\": %d, \"min_us\": %.2f, \"mean_us\": %.2f}\n",
                   what == 0 ? "barrier" : "allreduce8", size, greatest, mean);
    }
    MPI_Finalize();
    return 0;
}
