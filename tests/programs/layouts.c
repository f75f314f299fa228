/* Reductions of elements whose data lies anywhere around their address: before it, behind their extent, interleaved,
   in falling order. Results are compared with a fold by hand. Every byte outside the data must stay. Prints one line. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int rank, size, failures;

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            failures++;                                                              \
            fprintf(stderr, "rank %d: line %d: %s: %s\n", rank, __LINE__, now, #condition); \
        }                                                                            \
    } while (0)

/* Every element is a pair x -> a x + b. at[i] is the offset of part i from the address, in unsigneds. */
static struct kind {
    const char *name;
    int at[2];
    long extent; /* in bytes */
} kinds[] = {
    {"negative lower bound", {-2, 1}, 16},
    {"data before the address", {-5, -3}, 12},
    {"data far behind the extent", {6, 9}, 8},
    {"interleaved", {0, 41}, 8},
    {"from high to low", {0, -1}, -8},
    {"high to low, interleaved, off the address", {33, -8}, -8},
    {"parts in reverse", {1, 0}, 8},
    {"gaps", {1, 3}, 24},
};
static struct kind *kind;
static const char *now = "";

typedef struct {
    unsigned a, b;
} affine;

static affine of(int r, int i) {
    affine f = {2 * r + 2 * i + 3, 5 * r + i + 1};
    return f;
}

static int commutes;

static affine after(affine f, affine g) {
    affine composed = {f.a * g.a, f.a * g.b + f.b}, added = {f.a + g.a, f.b + g.b};
    return commutes ? added : composed;
}

static affine folded(int first, int last, int i) {
    affine all = of(first, i);
    for (int r = first + 1; r <= last; r++) all = after(all, of(r, i));
    return all;
}

static unsigned *part(void *base, long i, int which) {
    return (unsigned *)((char *)base + i * kind->extent) + kind->at[which];
}

static affine get(void *base, long i) {
    affine f = {*part(base, i, 0), *part(base, i, 1)};
    return f;
}

static void put(void *base, long i, affine f) {
    *part(base, i, 0) = f.a;
    *part(base, i, 1) = f.b;
}

static void compose(void *in, void *inout, int *len, MPI_Datatype *type) {
    (void)type;
    for (long i = 0; i < *len; i++) put(inout, i, after(get(in, i), get(inout, i)));
}

/* A buffer of n elements: its memory, filled with 0xa5, and the first element's address. */
typedef struct {
    char *memory, *base;
    size_t bytes;
} room;

static room make(long n) {
    long span = labs(kind->extent) * (n > 0 ? n : 1), margin = 256;
    room r = {NULL, NULL, span + 2 * margin};
    r.memory = malloc(r.bytes);
    memset(r.memory, 0xa5, r.bytes);
    r.base = r.memory + margin + (kind->extent < 0 ? span + kind->extent : 0);
    return r;
}

static void fill(room r, long n) {
    for (long i = 0; i < n; i++) put(r.base, i, of(rank, i));
}

/* True if the first n elements have the expected values, where `from` >= 0, and all else is as in `before`. */
static void verify(room r, room before, long n, int first, int last, long from) {
    for (long i = 0; i < n; i++) {
        affine found = get(r.base, i), expected = folded(first, last, from + i);
        CHECK(found.a == expected.a && found.b == expected.b);
        put(r.base, i, get(before.base, i));
    }
    CHECK(!memcmp(r.memory, before.memory, r.bytes));
}

/* Content of a buffer before the call. */
static room copy(room r) {
    room c = r;
    c.memory = malloc(r.bytes);
    c.base = c.memory + (r.base - r.memory);
    memcpy(c.memory, r.memory, r.bytes);
    return c;
}

enum { REDUCE, ALLREDUCE, SCAN, EXSCAN, BLOCK, SCATTER, CALLS };

static void call(int which, int in_place, long n, MPI_Datatype type, MPI_Op op) {
    static const char *names[] = {"reduce", "allreduce", "scan", "exscan", "reduce_scatter_block", "reduce_scatter"};
    static char text[128];
    snprintf(text, sizeof text, "%s, %s of %ld%s", kind->name, names[which], n, in_place ? " in place" : "");
    now = text;
    int *counts = malloc(sizeof(int) * size), total = 0, start = 0, root = size / 2;
    for (int r = 0; r < size; r++) counts[r] = which == SCATTER ? (n + r) % (n + 1) : n, total += counts[r];
    for (int r = 0; r < rank; r++) start += counts[r];
    if (which < BLOCK) total = n;
    room in = make(total), out = make(in_place ? total : n);
    fill(in, total);
    if (in_place) fill(out, total);
    room in_before = copy(in), out_before = copy(out);
    void *from = in_place && (which != REDUCE || rank == root) ? MPI_IN_PLACE : in.base;
    MPI_Comm comm = MPI_COMM_WORLD;
    switch (which) {
    case REDUCE: MPI_Reduce(from, out.base, n, type, op, root, comm); break;
    case ALLREDUCE: MPI_Allreduce(from, out.base, n, type, op, comm); break;
    case SCAN: MPI_Scan(from, out.base, n, type, op, comm); break;
    case EXSCAN: MPI_Exscan(from, out.base, n, type, op, comm); break;
    case BLOCK: MPI_Reduce_scatter_block(from, out.base, n, type, op, comm); break;
    case SCATTER: MPI_Reduce_scatter(from, out.base, counts, type, op, comm); break;
    }
    CHECK(!memcmp(in.memory, in_before.memory, in.bytes));
    if (which == REDUCE) verify(out, out_before, rank == root ? n : 0, 0, size - 1, 0);
    if (which == ALLREDUCE) verify(out, out_before, n, 0, size - 1, 0);
    if (which == SCAN) verify(out, out_before, n, 0, rank, 0);
    if (which == EXSCAN) verify(out, out_before, rank > 0 ? n : 0, 0, rank - 1, 0);
    /* In place, data behind the first block is undefined afterwards. */
    if (which >= BLOCK && !in_place) verify(out, out_before, counts[rank], 0, size - 1, start);
    if (which >= BLOCK && in_place) for (long i = 0; i < counts[rank]; i++) {
        affine found = get(out.base, i), expected = folded(0, size - 1, start + i);
        CHECK(found.a == expected.a && found.b == expected.b);
    }
    free(in.memory), free(out.memory), free(in_before.memory), free(out_before.memory), free(counts);
}

static void local(MPI_Datatype type, MPI_Op op) {
    now = kind->name;
    room in = make(5), inout = make(5);
    fill(in, 5), fill(inout, 5);
    MPI_Reduce_local(in.base, inout.base, 5, type, op);
    for (int i = 0; i < 5; i++) {
        affine found = get(inout.base, i), expected = after(of(rank, i), of(rank, i));
        CHECK(found.a == expected.a && found.b == expected.b);
    }
    free(in.memory), free(inout.memory);
}

/* One column of a matrix is combined into the next. */
static void columns(MPI_Op op) {
    MPI_Datatype column, narrow;
    kind = &(struct kind){"columns of one matrix", {0, 7}, 4};
    now = kind->name;
    unsigned matrix[2][7];
    MPI_Type_vector(2, 1, 7, MPI_UNSIGNED, &column);
    MPI_Type_create_resized(column, 0, sizeof(unsigned), &narrow);
    MPI_Type_commit(&narrow);
    memset(matrix, 0, sizeof matrix);
    for (int i = 0; i < 3; i++) put(matrix[0], i, of(rank, i));
    MPI_Allreduce(matrix[0], matrix[0] + 3, 3, narrow, op, MPI_COMM_WORLD);
    for (int i = 0; i < 3; i++) {
        affine found = get(matrix[0] + 3, i), expected = folded(0, size - 1, i);
        CHECK(found.a == expected.a && found.b == expected.b);
    }
    CHECK(matrix[0][6] == 0 && matrix[1][6] == 0);
    MPI_Type_free(&column), MPI_Type_free(&narrow);
}

static void all_kinds(void) {
    MPI_Op op;
    MPI_Op_create(compose, commutes, &op);
    long lengths[] = {0, 1, 2, 33, 9000};
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        kind = kinds + k;
        MPI_Datatype parts, type;
        MPI_Type_create_indexed_block(2, 1, kind->at, MPI_UNSIGNED, &parts);
        MPI_Type_create_resized(parts, k % 2 ? 0 : -4, kind->extent, &type);
        MPI_Type_commit(&type);
        for (int n = 0; n < 5; n++)
            for (int which = 0; which < CALLS; which++)
                for (int in_place = 0; in_place < 2; in_place++) call(which, in_place, lengths[n], type, op);
        local(type, op);
        MPI_Type_free(&parts), MPI_Type_free(&type);
    }
    columns(op);
    MPI_Op_free(&op);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (commutes = 0; commutes < 2; commutes++) all_kinds();
    int all;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("layouts on %d ranks: %d failures\n", size, all);
    MPI_Finalize();
    return all != 0;
}
