/* Every blocking collective against its definition, on any number of ranks. LARGE selects the forms for large counts.
   Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

#ifdef LARGE
typedef MPI_Count number;
typedef MPI_Aint place;
#define MPI_Bcast MPI_Bcast_c
#define MPI_Gather MPI_Gather_c
#define MPI_Gatherv MPI_Gatherv_c
#define MPI_Scatter MPI_Scatter_c
#define MPI_Scatterv MPI_Scatterv_c
#define MPI_Allgather MPI_Allgather_c
#define MPI_Allgatherv MPI_Allgatherv_c
#define MPI_Alltoall MPI_Alltoall_c
#define MPI_Alltoallv MPI_Alltoallv_c
#define MPI_Alltoallw MPI_Alltoallw_c
#define MPI_Reduce MPI_Reduce_c
#define MPI_Allreduce MPI_Allreduce_c
#define MPI_Reduce_scatter MPI_Reduce_scatter_c
#define MPI_Reduce_scatter_block MPI_Reduce_scatter_block_c
#define MPI_Scan MPI_Scan_c
#define MPI_Exscan MPI_Exscan_c
#define MPI_Op_create MPI_Op_create_c
#define MPI_Type_contiguous MPI_Type_contiguous_c
#define MPI_Type_vector MPI_Type_vector_c
#else
typedef int number, place;
#endif

static int size;

/* x -> a x + b: composition does not commute. */
typedef struct {
    unsigned a, b;
} affine;

static void compose(void *in, void *inout, number *len, MPI_Datatype *type) {
    affine *f = in, *g = inout;
    (void)type;
    for (number i = 0; i < *len; i++) {
        affine h = {f[i].a * g[i].a, f[i].a * g[i].b + f[i].b};
        g[i] = h;
    }
}

static affine of(int r) {
    affine f = {2 * r + 3, 5 * r + 1};
    return f;
}

static affine composed(int first, int last) {
    affine all = of(first);
    for (int r = first + 1; r <= last; r++) {
        affine g = of(r), h = {all.a * g.a, all.a * g.b + all.b};
        all = h;
    }
    return all;
}

static void data_movement(int n) {
    int *mine = malloc(sizeof(int) * (n + 1)), *all = malloc(sizeof(int) * (n * size + 1));
    int *out = malloc(sizeof(int) * (n * size + 1));
    for (int root = 0; root < size; root += size > 3 ? 3 : 1) {
        for (int i = 0; i < n; i++) mine[i] = rank == root ? 1000 + i : -1;
        MPI_Bcast(mine, n, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) CHECK(mine[i] == 1000 + i);
        for (int i = 0; i < n; i++) mine[i] = rank * n + i;
        memset(all, -1, sizeof(int) * n * size);
        MPI_Gather(mine, n, MPI_INT, all, n, MPI_INT, root, MPI_COMM_WORLD);
        if (rank == root) for (int i = 0; i < n * size; i++) CHECK(all[i] == i);
        memset(mine, -1, sizeof(int) * n);
        for (int i = 0; i < n * size; i++) all[i] = 7 * i;
        MPI_Scatter(all, n, MPI_INT, mine, n, MPI_INT, root, MPI_COMM_WORLD);
        for (int i = 0; i < n; i++) CHECK(mine[i] == 7 * (rank * n + i));
    }
    for (int i = 0; i < n; i++) mine[i] = rank * n + i;
    MPI_Allgather(mine, n, MPI_INT, all, n, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < n * size; i++) CHECK(all[i] == i);
    memset(all, -1, sizeof(int) * n * size);
    memcpy(all + rank * n, mine, sizeof(int) * n);
    MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_INT, MPI_COMM_WORLD);
    for (int i = 0; i < n * size; i++) CHECK(all[i] == i);
    for (int to = 0; to < size; to++) for (int i = 0; i < n; i++) all[to * n + i] = (rank * size + to) * n + i;
    MPI_Alltoall(all, n, MPI_INT, out, n, MPI_INT, MPI_COMM_WORLD);
    for (int from = 0; from < size; from++) for (int i = 0; i < n; i++) CHECK(out[from * n + i] == (from * size + rank) * n + i);
    MPI_Alltoall(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all, n, MPI_INT, MPI_COMM_WORLD);
    CHECK(!memcmp(all, out, sizeof(int) * n * size));
    free(mine), free(all), free(out);
}

/* Blocks of zero, one or two times `n` elements. */
static void ragged(int unit) {
    number *counts = malloc(sizeof(number) * size);
    place *displs = malloc(sizeof(place) * size);
    int total = 0;
    for (int r = 0; r < size; r++) counts[r] = r % 3 * unit, displs[r] = total + 1, total += counts[r] + 1;
    int *mine = malloc(sizeof(int) * 2 * unit), *got = malloc(sizeof(int) * 2 * unit), *all = malloc(sizeof(int) * (total + 1));
    for (int i = 0; i < 2 * unit; i++) mine[i] = 10 * rank + i, got[i] = -1;
    memset(all, -1, sizeof(int) * (total + 1));
    MPI_Allgatherv(mine, counts[rank], MPI_INT, all, counts, displs, MPI_INT, MPI_COMM_WORLD);
    for (int r = 0; r < size; r++) {
        CHECK(all[displs[r] - 1] == -1);
        for (int i = 0; i < counts[r]; i++) CHECK(all[displs[r] + i] == 10 * r + i);
    }
    memset(all, -1, sizeof(int) * (total + 1));
    MPI_Gatherv(mine, counts[rank], MPI_INT, all, counts, displs, MPI_INT, size - 1, MPI_COMM_WORLD);
    if (rank == size - 1) for (int r = 0; r < size; r++) for (int i = 0; i < counts[r]; i++) CHECK(all[displs[r] + i] == 10 * r + i);
    for (int i = 0; i <= total; i++) all[i] = i;
    MPI_Scatterv(all, counts, displs, MPI_INT, got, counts[rank], MPI_INT, 0, MPI_COMM_WORLD);
    for (int i = 0; i < counts[rank]; i++) CHECK(got[i] == displs[rank] + i);

    /* In place: at the root, or at all ranks. */
    int root = size / 2;
    void *here = MPI_IN_PLACE;
    for (int everywhere = 0; everywhere < 2; everywhere++) {
        memset(all, -1, sizeof(int) * (total + 1));
        for (int i = 0; i < counts[rank]; i++) all[displs[rank] + i] = mine[i];
        if (everywhere) MPI_Allgatherv(here, 0, MPI_DATATYPE_NULL, all, counts, displs, MPI_INT, MPI_COMM_WORLD);
        else MPI_Gatherv(rank == root ? here : mine, counts[rank], MPI_INT, all, counts, displs, MPI_INT, root, MPI_COMM_WORLD);
        for (int r = 0; r < size && (everywhere || rank == root); r++) {
            CHECK(all[displs[r] - 1] == -1);
            for (int i = 0; i < counts[r]; i++) CHECK(all[displs[r] + i] == 10 * r + i);
        }
    }
    for (int i = 0; i <= total; i++) all[i] = i + 5;
    memset(got, -1, sizeof(int) * 2 * unit);
    MPI_Scatterv(all, counts, displs, MPI_INT, rank == root ? here : got, counts[rank], MPI_INT, root, MPI_COMM_WORLD);
    for (int i = 0; i < counts[rank]; i++) CHECK(got[i] == (rank == root ? -1 : displs[rank] + i + 5));
    for (int i = 0; i <= total; i++) CHECK(all[i] == i + 5);
    free(counts), free(displs), free(mine), free(got), free(all);
}

/* Rank r sends (r + s) % 3 times `n` elements to rank s and receives as many from it. */
static void ragged_exchange(int unit) {
    number *counts = malloc(sizeof(number) * size);
    place *displs = malloc(sizeof(place) * size), *bytes = malloc(sizeof(place) * size);
    MPI_Datatype *types = malloc(sizeof(MPI_Datatype) * size);
    int most = 3 * unit, *out = malloc(sizeof(int) * most * size), *in = malloc(sizeof(int) * most * size);
    for (int r = 0; r < size; r++) {
        counts[r] = (rank + r) % 3 * unit, displs[r] = most * (size - 1 - r), bytes[r] = displs[r] * (int)sizeof(int), types[r] = MPI_INT;
        for (int i = 0; i < most; i++) out[displs[r] + i] = (rank * size + r) * most + i;
    }
    for (int in_bytes = 0; in_bytes < 2; in_bytes++) {
        memset(in, -1, sizeof(int) * most * size);
        if (in_bytes) MPI_Alltoallw(out, counts, bytes, types, in, counts, bytes, types, MPI_COMM_WORLD);
        else MPI_Alltoallv(out, counts, displs, MPI_INT, in, counts, displs, MPI_INT, MPI_COMM_WORLD);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < most; i++) CHECK(in[displs[r] + i] == (i < (rank + r) % 3 * unit ? (r * size + rank) * most + i : -1));
        memcpy(in, out, sizeof(int) * most * size);
        if (in_bytes) MPI_Alltoallw(MPI_IN_PLACE, NULL, NULL, NULL, in, counts, bytes, types, MPI_COMM_WORLD);
        else MPI_Alltoallv(MPI_IN_PLACE, NULL, NULL, MPI_DATATYPE_NULL, in, counts, displs, MPI_INT, MPI_COMM_WORLD);
        for (int r = 0; r < size; r++)
            for (int i = 0; i < most; i++) CHECK(in[displs[r] + i] == (i < (rank + r) % 3 * unit ? (r * size + rank) * most + i : out[displs[r] + i]));
    }
    int first = 0, total = 0;
    for (int r = 0; r < size; r++) counts[r] = r % 3 * unit, first += r < rank ? r % 3 * unit : 0, total += r % 3 * unit;
    for (int i = 0; i < total; i++) out[i] = i + rank;
    MPI_Reduce_scatter(out, in, counts, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < rank % 3 * unit; i++) CHECK(in[i] == (first + i) * size + size * (size - 1) / 2);
    free(counts), free(displs), free(bytes), free(types), free(out), free(in);
}

static void reductions(int n) {
    double *in = malloc(sizeof(double) * (n * size + 1)), *out = malloc(sizeof(double) * (n * size + 1));
    for (int i = 0; i < n * size; i++) in[i] = rank + i;
    double ranks = size * (size - 1) / 2.0;
    MPI_Allreduce(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == ranks + (double)i * size);
    memcpy(out, in, sizeof(double) * n);
    MPI_Allreduce(MPI_IN_PLACE, out, n, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == size - 1 + i);
    for (int root = 0; root < size; root += size > 3 ? 3 : 1) {
        MPI_Reduce(in, out, n, MPI_DOUBLE, MPI_SUM, root, MPI_COMM_WORLD);
        if (rank == root) for (int i = 0; i < n; i++) CHECK(out[i] == ranks + (double)i * size);
    }
    MPI_Reduce_scatter_block(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == ranks + (double)(rank * n + i) * size);
    MPI_Scan(in, out, n, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    for (int i = 0; i < n; i++) CHECK(out[i] == rank * (rank + 1) / 2.0 + (double)i * (rank + 1));
    free(in), free(out);
}

static void user_operation(void) {
    MPI_Op op;
    MPI_Datatype pair;
    MPI_Op_create(compose, 0, &op);
    MPI_Type_contiguous(2, MPI_UNSIGNED, &pair);
    MPI_Type_commit(&pair);
    affine in[5], out[5], all = composed(0, size - 1);
    for (int i = 0; i < 5; i++) in[i] = of(rank);
    MPI_Allreduce(in, out, 5, pair, op, MPI_COMM_WORLD);
    for (int i = 0; i < 5; i++) CHECK(out[i].a == all.a && out[i].b == all.b);
    MPI_Reduce(in, out, 5, pair, op, size / 2, MPI_COMM_WORLD);
    if (rank == size / 2) CHECK(out[4].a == all.a && out[4].b == all.b);
    affine upto = composed(0, rank);
    MPI_Scan(in, out, 5, pair, op, MPI_COMM_WORLD);
    CHECK(out[2].a == upto.a && out[2].b == upto.b);
    MPI_Exscan(in, out, 5, pair, op, MPI_COMM_WORLD);
    if (rank > 0) {
        affine below = composed(0, rank - 1);
        CHECK(out[3].a == below.a && out[3].b == below.b);
    }
    MPI_Op_free(&op);
    MPI_Type_free(&pair);
}

static void derived(void) {
    /* A column of a 4 x 4 matrix, broadcast and gathered as a column. */
    MPI_Datatype column;
    int matrix[16], columns[64 * 4];
    MPI_Type_vector(4, 1, 4, MPI_INT, &column);
    MPI_Type_commit(&column);
    for (int i = 0; i < 16; i++) matrix[i] = rank == 0 ? i : -1;
    MPI_Bcast(matrix + 1, 1, column, 0, MPI_COMM_WORLD);
    for (int i = 0; i < 4; i++) CHECK(matrix[4 * i + 1] == 4 * i + 1);
    CHECK(rank == 0 || matrix[0] == -1);
    if (size <= 64) {
        MPI_Allgather(matrix + 1, 1, column, columns, 4, MPI_INT, MPI_COMM_WORLD);
        for (int i = 0; i < 4 * size; i++) CHECK(columns[i] == 4 * (i % 4) + 1);
    }
    struct {
        double value;
        int index;
    } in = {(rank * 7) % 5, rank}, out;
    MPI_Allreduce(&in, &out, 1, MPI_DOUBLE_INT, MPI_MAXLOC, MPI_COMM_WORLD);
    CHECK((out.index * 7) % 5 == (int)out.value);
    for (int r = 0; r < size; r++) CHECK((r * 7) % 5 <= out.value && ((r * 7) % 5 < out.value || r >= out.index));
    MPI_Type_free(&column);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    int lengths[] = {0, 1, 3, 1000, 30000};
    for (int i = 0; i < 5; i++) {
        MPI_Barrier(MPI_COMM_WORLD);
        data_movement(lengths[i]);
        reductions(lengths[i]);
    }
    /* Lengths below and above the limit of the shared segment. */
    int units[] = {1, 700, 9000, 300000};
    for (int i = 0; i < 4; i++) ragged(units[i]), ragged_exchange(units[i]);
    user_operation();
    derived();
    int all;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("collectives on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
