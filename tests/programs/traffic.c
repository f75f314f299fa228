// Messages between neighbours, round after round: on a ring or a 4-row grid that is open at its ends.
// Usage: traffic ring|stencil plain|cart|graph|adjacent|edges BYTES ROUNDS
// plain: by rank in MPI_COMM_WORLD; otherwise by rank in a communicator that may be reordered.
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST = 4 };

static int size, is_ring, dims[2], periods[2];

static int neighbours(int rank, int *found) {
    int count = 0;
    if (is_ring) {
        found[count++] = (rank + 1) % size;
        found[count++] = (rank + size - 1) % size;
        return count;
    }
    int row = rank / dims[1], column = rank % dims[1];
    if (row > 0) found[count++] = rank - dims[1];
    if (row + 1 < dims[0]) found[count++] = rank + dims[1];
    if (column > 0) found[count++] = rank - 1;
    if (column + 1 < dims[1]) found[count++] = rank + 1;
    return count;
}

static MPI_Comm arranged(const char *how) {
    MPI_Comm comm = MPI_COMM_WORLD;
    int rank, found[MOST], weights[MOST] = {3, 3, 3, 3};
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int count = neighbours(rank, found);
    if (!strcmp(how, "cart")) {
        MPI_Cart_create(MPI_COMM_WORLD, is_ring ? 1 : 2, is_ring ? &size : dims, periods, 1, &comm);
    } else if (!strcmp(how, "graph")) {
        int *index = malloc(size * sizeof *index), *edges = malloc(MOST * size * sizeof *edges), end = 0;
        for (int node = 0; node < size; node++) {
            end += neighbours(node, edges + end);
            index[node] = end;
        }
        MPI_Graph_create(MPI_COMM_WORLD, size, index, edges, 1, &comm);
        free(index);
        free(edges);
    } else if (!strcmp(how, "adjacent")) {
        MPI_Dist_graph_create_adjacent(MPI_COMM_WORLD, count, found, weights, count, found, weights, MPI_INFO_NULL, 1, &comm);
    } else if (!strcmp(how, "edges")) {
        // Each process describes the edges of its successor.
        int next = (rank + 1) % size;
        count = neighbours(next, found);
        MPI_Dist_graph_create(MPI_COMM_WORLD, 1, &next, &count, found, weights, MPI_INFO_NULL, 1, &comm);
    } else if (strcmp(how, "plain")) {
        fprintf(stderr, "no arrangement %s\n", how);
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    return comm;
}

// The topology of a communicator must equal the one it was made of.
static int is_strange(MPI_Comm comm, const char *how, int rank, const int *found, int count) {
    int listed[MOST], other[MOST], weights[MOST], into, out, weighted;
    if (!strcmp(how, "graph")) {
        MPI_Graph_neighbors_count(comm, rank, &into);
        if (into != count) return 1;
        MPI_Graph_neighbors(comm, rank, count, listed);
        return memcmp(listed, found, count * sizeof *listed) != 0;
    }
    if (!strcmp(how, "adjacent")) {
        MPI_Dist_graph_neighbors_count(comm, &into, &out, &weighted);
        if (into != count || out != count || !weighted) return 1;
        MPI_Dist_graph_neighbors(comm, count, listed, weights, count, other, weights);
        return memcmp(listed, found, count * sizeof *listed) || memcmp(other, found, count * sizeof *listed) || weights[0] != 3;
    }
    if (!strcmp(how, "edges")) {
        MPI_Dist_graph_neighbors_count(comm, &into, &out, &weighted);
        if (into != count || out != count || !weighted) return 1;
        MPI_Dist_graph_neighbors(comm, count, listed, weights, count, other, weights);
        // Several processes described the incoming edges. One process described the outgoing edges, in their order.
        for (int i = 0, sum = 0; i < count; i++) {
            sum += listed[i] - found[i];
            if (i + 1 == count && sum) return 1;
        }
        return memcmp(other, found, count * sizeof *listed) != 0;
    }
    return 0;
}

static void fill(unsigned char *bytes, int count, uint64_t seed) {
    // Data that cannot be compressed.
    for (int at = 0; at < count; at++) {
        seed ^= seed << 13, seed ^= seed >> 7, seed ^= seed << 17;
        bytes[at] = seed >> 32;
    }
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (argc != 5 || atoi(argv[4]) < 1) MPI_Abort(MPI_COMM_WORLD, 2);
    is_ring = !strcmp(argv[1], "ring");
    dims[0] = 4, dims[1] = size / 4;
    periods[0] = periods[1] = is_ring;
    if (!is_ring && dims[0] * dims[1] != size) MPI_Abort(MPI_COMM_WORLD, 2);
    int bytes = atoi(argv[3]), rounds = atoi(argv[4]), rank, found[MOST], failures = 0;
    MPI_Comm comm = arranged(argv[2]);
    MPI_Comm_rank(comm, &rank);
    int count = neighbours(rank, found);
    failures += is_strange(comm, argv[2], rank, found, count);
    unsigned char *mine = malloc(bytes + 1), *expected = malloc(bytes + 1), *got = malloc((size_t)MOST * bytes + 1);
    fill(mine, bytes, rank + 1);
    MPI_Request requests[2 * MOST];
    double start = 0;
    for (int round = 0; round < rounds; round++) {
        // Links are open and measured after a fifth of the rounds.
        if (round == rounds / 5) {
            MPI_Barrier(comm);
            start = MPI_Wtime();
        }
        // Even and odd rounds are separate phases.
        MPI_Pcontrol(1 + round % 2);
        for (int i = 0; i < count; i++) MPI_Irecv(got + (size_t)i * bytes, bytes, MPI_BYTE, found[i], round, comm, &requests[i]);
        for (int i = 0; i < count; i++) MPI_Isend(mine, bytes, MPI_BYTE, found[i], round, comm, &requests[count + i]);
        MPI_Waitall(2 * count, requests, MPI_STATUSES_IGNORE);
    }
    double mean_ms = (MPI_Wtime() - start) * 1000 / (rounds - rounds / 5), longest_ms;
    for (int i = 0; i < count; i++) {
        fill(expected, bytes, found[i] + 1);
        failures += memcmp(got + (size_t)i * bytes, expected, bytes) != 0;
    }
    int all = 0;
    MPI_Reduce(&mean_ms, &longest_ms, 1, MPI_DOUBLE, MPI_MAX, 0, comm);
    MPI_Reduce(&failures, &all, 1, MPI_INT, MPI_SUM, 0, comm);
    if (rank == 0) printf("%s %s: %d failures, %.2f ms a round\n", argv[1], argv[2], all, longest_ms);
    free(mine);
    free(expected);
    free(got);
    MPI_Finalize();
    return 0;
}
