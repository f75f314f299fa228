/* Properties of datatypes, printed. The same program on another MPI of the ABI prints the same. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static unsigned char memory[1 << 16], packed[1 << 16], other[1 << 16];

static unsigned long digest(const unsigned char *bytes, long len) {
    unsigned long hash = 1469598103934665603UL;
    for (long i = 0; i < len; i++) hash = (hash ^ bytes[i]) * 1099511628211UL;
    return hash;
}

static void contents(MPI_Datatype type) {
    MPI_Count ints, addresses, counts, types, large[64];
    int combiner, small[64];
    MPI_Aint places[64];
    MPI_Datatype inner[16];
    MPI_Type_get_envelope_c(type, &ints, &addresses, &counts, &types, &combiner);
    printf(" combiner %d:", combiner);
    if (combiner == MPI_COMBINER_NAMED) return;
    MPI_Type_get_contents_c(type, 64, 64, 64, 16, small, places, large, inner);
    for (int i = 0; i < ints; i++) printf(" %d", small[i]);
    for (int i = 0; i < addresses; i++) printf(" @%ld", (long)places[i]);
    for (int i = 0; i < counts; i++) printf(" *%lld", (long long)large[i]);
    printf(" of %d", (int)types);
    for (int i = 0, many = types; i < many; i++) {
        MPI_Type_get_envelope_c(inner[i], &ints, &addresses, &counts, &types, &combiner);
        printf(" %d", combiner);
        if (combiner != MPI_COMBINER_NAMED) MPI_Type_free(&inner[i]);
    }
}

/* Every query of a type. Frees it. */
static void tell(const char *name, MPI_Datatype type, int counted) {
    MPI_Count size, lb, extent, true_lb, true_extent, elements;
    int position = 0;
    MPI_Status status;
    MPI_Type_commit(&type);
    MPI_Type_size_c(type, &size);
    MPI_Type_get_extent_c(type, &lb, &extent);
    MPI_Type_get_true_extent_c(type, &true_lb, &true_extent);
    printf("%s: %lld bytes, %lld %lld, %lld %lld;", name, (long long)size, (long long)lb, (long long)extent, (long long)true_lb, (long long)true_extent);
    contents(type);
    /* Two elements, from the middle of the memory: bounds may be negative. */
    memset(packed, 0, sizeof packed);
    MPI_Pack(memory + sizeof memory / 2, 2, type, packed, sizeof packed, &position, MPI_COMM_SELF);
    printf("; packed %d %lx", position, digest(packed, position));
    memset(other, 0, sizeof other);
    int back = 0;
    MPI_Unpack(packed, position, &back, other + sizeof other / 2, 2, type, MPI_COMM_SELF);
    printf(" %lx; elements", digest(other, sizeof other));
    /* The reference cannot report the number of elements of a distributed array. */
    for (int i = 0; counted && size > 0 && i < 20; i++) {
        int whole;
        MPI_Status_set_elements(&status, type, i);
        MPI_Get_count(&status, type, &whole);
        MPI_Get_elements_c(&status, type, &elements);
        printf(whole == MPI_UNDEFINED ? " (%lld -)" : " (%lld %d)", (long long)elements, whole);
    }
    printf("\n");
    MPI_Type_free(&type);
}

static void external(const char *name, MPI_Datatype type) {
    MPI_Aint size, position = 0, back = 0;
    int bytes, same;
    MPI_Type_size(type, &bytes);
    MPI_Type_commit(&type);
    MPI_Pack_external_size("external32", 3, type, &size);
    MPI_Pack_external("external32", memory, 3, type, packed, sizeof packed, &position);
    memset(other, 0, sizeof other);
    MPI_Unpack_external("external32", packed, position, &back, other, 3, type);
    same = 0;
    MPI_Pack(other, 3, type, other + 4096, 4096, &same, MPI_COMM_SELF);
    printf("%s outside: %ld %ld %ld %lx %lx\n", name, (long)size, (long)position, (long)back, digest(packed, position), digest(other + 4096, same));
}

static void constructors(void) {
    MPI_Datatype made, inner, types[] = {MPI_CHAR, MPI_DOUBLE, MPI_SHORT};
    int lengths[] = {2, 0, 3}, places[] = {5, -2, 1};
    MPI_Count large_lengths[] = {2, 0, 3}, large_places[] = {40, -16, 8};
    MPI_Aint bytes[] = {40, -16, 8};
#define TELL(call) (call, tell(#call, made, 1))
    TELL(MPI_Type_contiguous(3, MPI_INT, &made));
    TELL(MPI_Type_contiguous_c(3, MPI_INT, &made));
    TELL(MPI_Type_contiguous(0, MPI_INT, &made));
    TELL(MPI_Type_vector(3, 2, -5, MPI_SHORT, &made));
    TELL(MPI_Type_vector_c(3, 2, 5, MPI_SHORT, &made));
    /* All extents here are multiples of the alignment, because the reference rounds up those of structs only. */
    TELL(MPI_Type_create_hvector(3, 2, 50, MPI_FLOAT, &made));
    TELL(MPI_Type_create_hvector_c(3, 2, -50, MPI_FLOAT, &made));
    TELL(MPI_Type_indexed(3, lengths, places, MPI_INT, &made));
    TELL(MPI_Type_indexed_c(3, large_lengths, large_places, MPI_INT, &made));
    TELL(MPI_Type_create_hindexed(3, lengths, bytes, MPI_INT, &made));
    TELL(MPI_Type_create_hindexed_c(3, large_lengths, large_places, MPI_INT, &made));
    TELL(MPI_Type_create_indexed_block(3, 2, places, MPI_INT, &made));
    TELL(MPI_Type_create_indexed_block_c(3, 2, large_places, MPI_INT, &made));
    TELL(MPI_Type_create_hindexed_block(3, 1, bytes, MPI_INT, &made));
    TELL(MPI_Type_create_hindexed_block_c(3, 1, large_places, MPI_INT, &made));
    TELL(MPI_Type_create_struct(3, lengths, bytes, types, &made));
    TELL(MPI_Type_create_struct_c(3, large_lengths, large_places, types, &made));
    TELL(MPI_Type_create_resized(MPI_INT, -4, 24, &made));
    TELL(MPI_Type_create_resized_c(MPI_INT, -4, 24, &made));
    TELL(MPI_Type_dup(MPI_DOUBLE, &made));
    MPI_Type_create_struct(3, lengths, bytes, types, &inner);
    TELL(MPI_Type_vector(2, 2, 3, inner, &made));
    TELL(MPI_Type_create_resized(inner, 3, 100, &made));
    TELL(MPI_Type_dup(inner, &made));
    MPI_Type_free(&inner);
}

static void arrays(void) {
    int sizes[3] = {5, 4, 3}, parts[3] = {2, 4, 1}, starts[3] = {3, 0, 1};
    MPI_Count large_sizes[3] = {5, 4, 3}, large_parts[3] = {2, 4, 1}, large_starts[3] = {3, 0, 1};
    int kinds[] = {MPI_DISTRIBUTE_BLOCK, MPI_DISTRIBUTE_CYCLIC, MPI_DISTRIBUTE_NONE};
    char name[100];
    MPI_Datatype made;
    TELL(MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, MPI_INT, &made));
    TELL(MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_FORTRAN, MPI_INT, &made));
    TELL(MPI_Type_create_subarray_c(3, large_sizes, large_parts, large_starts, MPI_ORDER_C, MPI_INT, &made));
    unsigned state = 12345;
#define DRAW(n) ((state = state * 1103515245u + 12345u) >> 16) % (n)
    for (int i = 0; i < 200; i++) {
        int dims = 1 + DRAW(3), size = 1, distribs[3], dargs[3], grid[3], order = DRAW(2) ? MPI_ORDER_C : MPI_ORDER_FORTRAN;
        int gsizes[3];
        for (int d = 0; d < dims; d++) {
            distribs[d] = kinds[DRAW(3)];
            gsizes[d] = 1 + DRAW(9);
            grid[d] = distribs[d] == MPI_DISTRIBUTE_NONE ? 1 : 1 + DRAW(3);
            int least = (gsizes[d] + grid[d] - 1) / grid[d];
            dargs[d] = distribs[d] == MPI_DISTRIBUTE_NONE || DRAW(2) ? MPI_DISTRIBUTE_DFLT_DARG
                       : distribs[d] == MPI_DISTRIBUTE_BLOCK         ? least + (int)(DRAW(2))
                                                                     : 1 + (int)(DRAW(3));
            size *= grid[d];
        }
        int rank = DRAW(size);
        sprintf(name, "darray %d", i);
        if (i % 2) {
            MPI_Count large[3] = {gsizes[0], gsizes[1], gsizes[2]};
            MPI_Type_create_darray_c(size, rank, dims, large, distribs, dargs, grid, order, MPI_INT, &made);
        } else {
            MPI_Type_create_darray(size, rank, dims, gsizes, distribs, dargs, grid, order, MPI_INT, &made);
        }
        tell(name, made, 0);
    }
}

static void kinds(void) {
    MPI_Datatype made, again;
    int digits[] = {6, 7, 15, 33, MPI_UNDEFINED}, ranges[] = {MPI_UNDEFINED, 37, 300, 4000}, size, combiner;
    int ints, addresses, types;
    for (int i = 0; i < 5; i++) {
        for (int j = 0; j < 4; j++) {
            if (digits[i] == MPI_UNDEFINED && ranges[j] == MPI_UNDEFINED) continue;
            MPI_Type_create_f90_real(digits[i], ranges[j], &made);
            MPI_Type_create_f90_real(digits[i], ranges[j], &again);
            MPI_Type_size(made, &size);
            MPI_Type_get_envelope(made, &ints, &addresses, &types, &combiner);
            printf("real %d %d: %d %d %d %d", digits[i], ranges[j], size, ints, combiner, made == again);
            MPI_Type_create_f90_complex(digits[i], ranges[j], &made);
            MPI_Type_size(made, &size);
            printf(", complex %d\n", size);
        }
    }
    for (int r = 1; r <= 18; r++) {
        MPI_Type_create_f90_integer(r, &made);
        MPI_Type_size(made, &size);
        MPI_Type_get_contents(made, 1, 0, 0, &ints, NULL, NULL);
        printf("integer %d: %d %d\n", r, size, ints);
    }
    MPI_Datatype values[] = {MPI_FLOAT, MPI_DOUBLE, MPI_LONG, MPI_INT, MPI_SHORT, MPI_LONG_DOUBLE};
    MPI_Datatype pairs[] = {MPI_INT, MPI_DOUBLE};
    for (int i = 0; i < 6; i++)
        for (int j = 0; j < 2; j++) {
            MPI_Type_get_value_index(values[i], pairs[j], &made);
            printf("pair %d %d: %p\n", i, j, (void *)(intptr_t)made);
        }
    int classes[] = {MPI_TYPECLASS_INTEGER, MPI_TYPECLASS_REAL, MPI_TYPECLASS_COMPLEX};
    for (int i = 0; i < 3; i++)
        for (size = 4 + 4 * (i == 2); size <= 8; size += 4) {
            MPI_Type_match_size(classes[i], size, &made);
            printf("class %d of %d: %p\n", i, size, (void *)(intptr_t)made);
        }
}

int main(int argc, char **argv) {
    MPI_Datatype made;
    MPI_Init(&argc, &argv);
    for (size_t i = 0; i < sizeof memory; i++) memory[i] = i * 7 + i / 251;
    constructors();
    arrays();
    kinds();
    external("int", MPI_INT), external("double", MPI_DOUBLE), external("short", MPI_SHORT);
    external("complex", MPI_C_DOUBLE_COMPLEX), external("offset", MPI_OFFSET), external("logical", MPI_LOGICAL);
    MPI_Type_vector(2, 3, 5, MPI_FLOAT, &made);
    external("vector", made);
    MPI_Type_free(&made);
    MPI_Finalize();
    return 0;
}
