/* Location of ranks: every rank prints its node and its site, each by its first rank in MPI_COMM_WORLD. It also
   prints whether all ranks of the site have the same site name in their environment. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* First rank of those at the same place as this one. */
static int first(int type, const char *resource) {
    MPI_Info info;
    MPI_Comm part;
    int rank;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Info_create(&info);
    if (resource) MPI_Info_set(info, "mpi_hw_resource_type", resource);
    MPI_Comm_split_type(MPI_COMM_WORLD, type, rank, info, &part);
    MPI_Info_free(&info);
    if (part == MPI_COMM_NULL) return -1;
    MPI_Bcast(&rank, 1, MPI_INT, 0, part);
    MPI_Comm_free(&part);
    return rank;
}

int main(int argc, char **argv) {
    char name[64] = "", (*names)[64] = NULL;
    int rank, size, mine[2], *all = NULL, strange = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    const char *given = getenv("CANELE_SITE");
    strncpy(name, given ? given : "", sizeof name - 1);
    mine[0] = first(MPI_COMM_TYPE_SHARED, NULL);
    mine[1] = first(MPI_COMM_TYPE_HW_GUIDED, "canele://site");
    if (rank == 0) {
        all = malloc(size * sizeof mine);
        names = malloc(size * sizeof name);
    }
    MPI_Gather(mine, 2, MPI_INT, all, 2, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Gather(name, sizeof name, MPI_CHAR, names, sizeof name, MPI_CHAR, 0, MPI_COMM_WORLD);
    if (rank == 0) {
        for (int i = 0; i < size; i++) printf("%d:%d ", all[2 * i], all[2 * i + 1]);
        for (int i = 0; i < size; i++) strange += strcmp(names[i], names[all[2 * i + 1]]) != 0;
        printf("%d strangers\n", strange);
        free(all);
        free(names);
    }
    return MPI_Finalize();
}
