/* Windows in numbers: created and freed again and again, many at once, and much attached memory. Afterwards this process has as
   many descriptors and mappings as before, and no more memory. Any number of ranks.

   windows_many ROUNDS WINDOWS PIECES */
#include <dirent.h>
#include <malloc.h>
#include <mpi.h>
#include <stdlib.h>

#include "check.h"

enum { WARM_UP = 30, BYTES_MAX = 256 << 10 };

static int size, right;

typedef struct {
    int descriptors, mappings;
    size_t bytes;
} Use;

static Use use(void) {
    Use now = {0, 0, 0};
    DIR *folder = opendir("/proc/self/fd");
    while (readdir(folder)) now.descriptors++;
    closedir(folder);
    FILE *maps = fopen("/proc/self/maps", "r");
    for (int c; (c = getc(maps)) != EOF;) now.mappings += c == '\n';
    fclose(maps);
    struct mallinfo2 heap = mallinfo2();
    now.bytes = heap.uordblks + heap.hblkhd;
    return now;
}

/* Pools grow for a while, the heap by a mapping now and then, and a thread that starts late opens something: what leaks grows
   with each round. */
static void compare(const char *what, Use before, int rounds) {
    Use after = use();
    int is_same = after.descriptors <= before.descriptors + 2 && after.mappings <= before.mappings + 8 &&
                  after.bytes <= before.bytes + BYTES_MAX;
    CHECK(is_same);
    if (!is_same)
        fprintf(stderr, "rank %d: %s: %d rounds: from %d to %d descriptors, %d to %d mappings, %zu to %zu bytes\n", rank, what, rounds,
                before.descriptors, after.descriptors, before.mappings, after.mappings, before.bytes, after.bytes);
}

/* A window of a flavour, which is accessed once. */
static void round_of(int flavor, int accesses) {
    static int cells[4];
    int value = rank, *base = cells;
    MPI_Win win;
    switch (flavor) {
    case MPI_WIN_FLAVOR_CREATE: MPI_Win_create(cells, sizeof cells, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &win); break;
    case MPI_WIN_FLAVOR_ALLOCATE: MPI_Win_allocate(sizeof cells, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win); break;
    case MPI_WIN_FLAVOR_SHARED: MPI_Win_allocate_shared(sizeof cells, sizeof(int), MPI_INFO_NULL, MPI_COMM_WORLD, &base, &win); break;
    default: MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win), MPI_Win_attach(win, cells, sizeof cells);
    }
    if (accesses && flavor != MPI_WIN_FLAVOR_DYNAMIC) {
        MPI_Win_fence(0, win);
        MPI_Put(&value, 1, MPI_INT, right, 1, 1, MPI_INT, win);
        MPI_Win_fence(0, win);
        CHECK(base[1] == (rank + size - 1) % size);
    }
    MPI_Win_free(&win);
}

static void again_and_again(int rounds) {
    static const struct {
        int flavor;
        const char *name;
    } flavors[] = {{MPI_WIN_FLAVOR_CREATE, "MPI_Win_create"}, {MPI_WIN_FLAVOR_ALLOCATE, "MPI_Win_allocate"},
                   {MPI_WIN_FLAVOR_SHARED, "MPI_Win_allocate_shared"}, {MPI_WIN_FLAVOR_DYNAMIC, "MPI_Win_create_dynamic"}};
    for (int i = 0; i < 4; i++) {
        Use before = {0};
        for (int round = -WARM_UP; round < rounds; round++) {
            if (round == 0) before = use();
            round_of(flavors[i].flavor, round % 4 == 0);
        }
        compare(flavors[i].name, before, rounds);
    }
}

static void many_at_once(int count, int is_allocated) {
    MPI_Win *windows = malloc(count * sizeof *windows);
    int *cells = calloc(count, sizeof *cells), **bases = malloc(count * sizeof *bases);
    for (int i = 0; i < count; i++) {
        bases[i] = &cells[i];
        if (is_allocated) MPI_Win_allocate(sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &bases[i], &windows[i]);
        else MPI_Win_create(&cells[i], sizeof(int), 1, MPI_INFO_NULL, MPI_COMM_WORLD, &windows[i]);
    }
    for (int i = 0; i < count; i += 7) {
        int value = rank * 100000 + i;
        MPI_Win_lock(MPI_LOCK_EXCLUSIVE, right, 0, windows[i]);
        MPI_Put(&value, 1, MPI_INT, right, 0, 1, MPI_INT, windows[i]);
        MPI_Win_unlock(right, windows[i]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < count; i += 7) CHECK(*bases[i] == (rank + size - 1) % size * 100000 + i);
    for (int i = 0; i < count; i++) MPI_Win_free(&windows[i]);
    free(windows), free(cells), free(bases);
}

static void attached(int pieces) {
    int *cells = calloc(4 * (size_t)pieces, sizeof *cells), value = rank + 1;
    MPI_Win win;
    MPI_Aint *places = malloc(size * sizeof *places), own;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &win);
    for (int i = 0; i < 10 * pieces; i++) MPI_Win_attach(win, cells, sizeof *cells), MPI_Win_detach(win, cells);
    /* Pieces with gaps between them, first every second one. */
    for (int first = 0; first < 2; first++)
        for (int i = first; i < pieces; i += 2) MPI_Win_attach(win, &cells[4 * i], 2 * sizeof *cells);
    MPI_Get_address(cells, &own);
    MPI_Allgather(&own, 1, MPI_AINT, places, 1, MPI_AINT, MPI_COMM_WORLD);
    MPI_Win_lock_all(0, win);
    for (int i = 0; i < pieces; i += 3) MPI_Put(&value, 1, MPI_INT, right, places[right] + 16 * (MPI_Aint)i + 4, 1, MPI_INT, win);
    MPI_Win_unlock_all(win);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < pieces; i += 3) CHECK(cells[4 * i + 1] == (rank + size - 1) % size + 1);
    for (int i = 0; i < pieces; i++) MPI_Win_detach(win, &cells[4 * i]);
    MPI_Win_free(&win);
    free(cells), free(places);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    right = (rank + 1) % size;
    int rounds = atoi(argv[1]), windows = atoi(argv[2]), pieces = atoi(argv[3]);
    Use before = {0};
    again_and_again(rounds);
    for (int round = 0; round < 3; round++) {
        if (round == 1) before = use();
        many_at_once(windows, 0), many_at_once(windows, 1), attached(pieces);
    }
    compare("many at once", before, 2);
    MPI_Allreduce(MPI_IN_PLACE, &failures, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("%d rounds of windows, %d at once, %d pieces on %d ranks: %d failures\n", rounds, windows, pieces, size, failures);
    MPI_Finalize();
    return failures != 0;
}
