/* Process topologies on any number of ranks. Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>

#include "check.h"

static int size;

static void grids(void) {
    int dims[2] = {0, 0}, periods[2] = {1, 0}, got[2], rings[2], place[2], ndims, status, one, before, behind;
    MPI_Comm grid, row, copy, scalar;
    MPI_Dims_create(size, 2, dims);
    CHECK(dims[0] * dims[1] == size && dims[0] >= dims[1]);
    MPI_Cart_create(MPI_COMM_WORLD, 2, dims, periods, 1, &grid);
    MPI_Topo_test(grid, &status);
    CHECK(status == MPI_CART);
    MPI_Cartdim_get(grid, &ndims);
    MPI_Cart_get(grid, 2, got, rings, place);
    CHECK(ndims == 2 && got[0] == dims[0] && got[1] == dims[1] && rings[0] && !rings[1]);
    MPI_Comm_rank(grid, &one);
    CHECK(place[0] * dims[1] + place[1] == one);
    MPI_Cart_rank(grid, place, &status);
    CHECK(status == one);
    place[0] += 3 * dims[0];
    MPI_Cart_rank(grid, place, &status);
    CHECK(status == one);
    /* Data that goes down a column of the ring arrives from above. */
    int out = 100 + one, in = -1;
    MPI_Cart_shift(grid, 0, 1, &before, &behind);
    MPI_Sendrecv(&out, 1, MPI_INT, behind, 0, &in, 1, MPI_INT, before, 0, grid, MPI_STATUS_IGNORE);
    CHECK(in == 100 + before);
    MPI_Cart_shift(grid, 1, 1, &before, &behind);
    CHECK((place[1] == 0) == (before == MPI_PROC_NULL) && (place[1] == dims[1] - 1) == (behind == MPI_PROC_NULL));
    in = -1;
    MPI_Sendrecv(&out, 1, MPI_INT, behind, 0, &in, 1, MPI_INT, before, 0, grid, MPI_STATUS_IGNORE);
    CHECK(in == (before == MPI_PROC_NULL ? -1 : 100 + before));
    /* Rows of the grid, and a subgrid without dimensions. */
    int remain[2] = {0, 1}, none[2] = {0, 0}, sum;
    MPI_Cart_sub(grid, remain, &row);
    MPI_Cart_get(row, 1, got, rings, place);
    CHECK(got[0] == dims[1] && !rings[0]);
    MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, row);
    int first = one / dims[1] * dims[1];
    CHECK(sum == dims[1] * first + dims[1] * (dims[1] - 1) / 2);
    MPI_Cart_sub(grid, none, &scalar);
    MPI_Cartdim_get(scalar, &ndims);
    MPI_Comm_size(scalar, &status);
    CHECK(ndims == 0 && status == 1);
    MPI_Comm_dup(grid, &copy);
    MPI_Topo_test(copy, &status);
    CHECK(status == MPI_CART);
    MPI_Comm_free(&copy), MPI_Comm_free(&scalar), MPI_Comm_free(&row), MPI_Comm_free(&grid);
    /* A grid of one leaves the others out. */
    dims[0] = 1;
    MPI_Cart_create(MPI_COMM_WORLD, 1, dims, periods, 0, &grid);
    CHECK((rank == 0) == (grid != MPI_COMM_NULL));
    MPI_Cart_map(MPI_COMM_WORLD, 1, dims, periods, &status);
    CHECK(status == (rank == 0 ? 0 : MPI_UNDEFINED));
    if (rank == 0) MPI_Comm_free(&grid);
    MPI_Topo_test(MPI_COMM_WORLD, &status);
    CHECK(status == MPI_UNDEFINED);
}

/* A star: all list rank 0, and rank 0 lists all. */
static void graphs(void) {
    int *index = malloc(sizeof(int) * size), *edges = malloc(sizeof(int) * 2 * size), nodes, many, count;
    MPI_Comm star;
    for (int i = 0; i < size; i++) index[i] = size - 1 + i;
    for (int i = 0; i < size - 1; i++) edges[i] = i + 1, edges[size - 1 + i] = 0;
    MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 0, &star);
    MPI_Graphdims_get(star, &nodes, &many);
    CHECK(nodes == size && many == 2 * (size - 1));
    MPI_Graph_neighbors_count(star, rank, &count);
    CHECK(count == (rank ? 1 : size - 1));
    edges[0] = -1;
    MPI_Graph_neighbors(star, rank, count, edges);
    CHECK(count == 0 || edges[0] == (rank ? 0 : 1));
    MPI_Graph_get(star, nodes, many, index, edges);
    CHECK(index[0] == size - 1);
    MPI_Comm_free(&star);
    free(index), free(edges);
}

/* Rings, described by their members or by rank 0 alone. */
static void distributed_graphs(void) {
    int next = (rank + 1) % size, previous = (rank + size - 1) % size, in, out, weighted, status;
    int sources[1], destinations[1], weight_in[1] = {-1}, weight_out[1] = {-1}, weight = 10 + rank;
    int from = 10 + previous;
    MPI_Comm ring;
    MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, 1, &previous, &from, 1, &next, &weight, MPI_INFO_NULL, 0, &ring);
    MPI_Topo_test(ring, &status);
    CHECK(status == MPI_DIST_GRAPH);
    MPI_Dist_graph_neighbors_count(ring, &in, &out, &weighted);
    CHECK(in == 1 && out == 1 && weighted);
    MPI_Dist_graph_neighbors(ring, 1, sources, weight_in, 1, destinations, weight_out);
    CHECK(sources[0] == previous && destinations[0] == next && weight_in[0] == from && weight_out[0] == weight);
    MPI_Comm_free(&ring);
    int *all = malloc(sizeof(int) * 3 * size), n = rank == 0 ? size : 0;
    for (int i = 0; i < size; i++) all[i] = i, all[size + i] = 1, all[2 * size + i] = (i + 1) % size;
    MPI_Dist_graph_create(MPI_COMM_WORLD, n, all, all + size, all + 2 * size, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
    MPI_Dist_graph_neighbors_count(ring, &in, &out, &weighted);
    CHECK(in == 1 && out == 1 && !weighted);
    MPI_Dist_graph_neighbors(ring, 1, sources, MPI_UNWEIGHTED, 1, destinations, MPI_UNWEIGHTED);
    CHECK(sources[0] == previous && destinations[0] == next);
    MPI_Comm_free(&ring);
    free(all);
}

int main(int argc, char **argv) {
    int all;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    grids();
    graphs();
    distributed_graphs();
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("topologies on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
