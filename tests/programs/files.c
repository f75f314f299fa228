/* Files: views, all kinds of access, pointers, sizes, failures. Usage: files DIRECTORY. Any number of ranks. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "expect.h"

enum { BLOCK = 5, BLOCKS = 40, INTS = BLOCK * BLOCKS };

static int size;
static char path[4096];

static MPI_File open_as(int mode) {
    MPI_File file;
    expect("open", MPI_File_open(MPI_COMM_WORLD, path, mode, MPI_INFO_NULL, &file), MPI_SUCCESS);
    return file;
}

static MPI_File fresh(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path);
    MPI_Barrier(MPI_COMM_WORLD);
    return open_as(MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL);
}

static void count_is(MPI_Status *status, MPI_Datatype type, int expected) {
    int count;
    MPI_Get_count(status, type, &count);
    if (count != expected) failures++, fprintf(stderr, "rank %d: %d elements instead of %d\n", rank, count, expected);
}

/* Value of the int at a place of the file. */
static int value(int place) { return place * 3 + 1; }

/* The blocks of this rank among those of all: the filetype of a view. */
static MPI_Datatype blocks_of_ranks(void) {
    MPI_Datatype block, type;
    int place = rank * BLOCK;
    MPI_Type_create_indexed_block(1, BLOCK, &place, MPI_INT, &block);
    MPI_Type_create_resized(block, 0, (MPI_Aint)size * BLOCK * sizeof(int), &type);
    MPI_Type_free(&block), MPI_Type_commit(&type);
    return type;
}

/* What the file holds at place `i` of this rank's view. */
static int seen(int i) { return value((i / BLOCK * size + rank) * BLOCK + i % BLOCK); }

static void views(void) {
    int data[INTS], found[INTS], all[2 * INTS + 1];
    MPI_Status status;
    MPI_Offset offset, disp;
    MPI_Datatype type = blocks_of_ranks(), etype, filetype;
    char name[MPI_MAX_DATAREP_STRING];
    MPI_File file = fresh();
    CHECK(MPI_File_set_view(file, 8, MPI_INT, type, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    for (int i = 0; i < INTS; i++) data[i] = seen(i);
    MPI_File_write_all(file, data, INTS / 2, MPI_INT, &status);
    count_is(&status, MPI_INT, INTS / 2);
    MPI_File_get_position(file, &offset);
    CHECK(offset == INTS / 2);
    MPI_File_get_byte_offset(file, offset, &disp);
    CHECK(disp == 8 + (INTS / 2 * size + rank * BLOCK) * (int)sizeof(int));
    MPI_File_write_at_all(file, INTS / 2, data + INTS / 2, INTS - INTS / 2, MPI_INT, &status);
    MPI_File_get_size(file, &offset);
    CHECK(offset == 8 + (MPI_Offset)INTS * size * (int)sizeof(int));
    MPI_File_seek(file, -BLOCK, MPI_SEEK_END);
    MPI_File_get_position(file, &offset);
    CHECK(offset == INTS - (rank == size - 1 ? BLOCK : BLOCK));
    MPI_File_seek(file, 3, MPI_SEEK_SET), MPI_File_seek(file, 4, MPI_SEEK_CUR);
    memset(found, 0, sizeof found);
    MPI_File_read(file, found, INTS, MPI_INT, &status);
    count_is(&status, MPI_INT, INTS - 7);
    CHECK(!memcmp(found, data + 7, (INTS - 7) * sizeof(int)));
    MPI_File_get_position(file, &offset);
    CHECK(offset == INTS);
    MPI_File_read(file, found, 1, MPI_INT, &status);
    count_is(&status, MPI_INT, 0);
    MPI_File_get_view(file, &disp, &etype, &filetype, name);
    CHECK(disp == 8 && etype == MPI_INT && filetype != MPI_INT && !strcmp(name, "native"));
    MPI_Aint lower, extent;
    MPI_Type_get_extent(filetype, &lower, &extent);
    CHECK(extent == (MPI_Aint)size * BLOCK * (int)sizeof(int));
    MPI_Type_free(&filetype);
    MPI_File_get_type_extent(file, MPI_INT, &extent);
    CHECK(extent == sizeof(int));
    /* The file as it is. */
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    for (int first = 0; first < INTS * size; first += 2 * INTS) {
        int rest = INTS * size - first < 2 * INTS ? INTS * size - first : 2 * INTS;
        MPI_File_read_at(file, 8 + first * (int)sizeof(int), all, 2 * INTS * sizeof(int), MPI_BYTE, &status);
        count_is(&status, MPI_INT, rest);
        for (int i = 0; i < rest; i++) CHECK(all[i] == value(first + i));
    }
    MPI_Type_free(&type);
    MPI_File_close(&file);
    CHECK(file == MPI_FILE_NULL);
}

/* A matrix of which each rank has some rows; in memory, a column is followed by one that is not the file's. */
static void scattered(void) {
    enum { ROWS = 6, COLUMNS = 7 };
    int memory[ROWS * 2 * COLUMNS], expected[ROWS * 2 * COLUMNS];
    int sizes[] = {ROWS * size, COLUMNS}, part[] = {ROWS, COLUMNS}, starts[] = {ROWS * rank, 0};
    MPI_Datatype rows, every_other, spaced;
    MPI_Status status;
    MPI_File file = fresh();
    MPI_Type_create_subarray(2, sizes, part, starts, MPI_ORDER_FORTRAN, MPI_INT, &rows), MPI_Type_commit(&rows);
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spaced);
    MPI_Type_contiguous(ROWS * COLUMNS, spaced, &every_other), MPI_Type_commit(&every_other);
    for (int i = 0; i < ROWS * 2 * COLUMNS; i++) memory[i] = rank * 1000 + i, expected[i] = i % 2 ? -1 : rank * 1000 + i;
    MPI_File_set_view(file, 0, MPI_INT, rows, "native", MPI_INFO_NULL);
    MPI_File_write_all(file, memory, 1, every_other, &status);
    count_is(&status, every_other, 1);
    memset(memory, 0xff, sizeof memory);
    MPI_File_read_at_all(file, 0, memory, 1, every_other, &status);
    CHECK(!memcmp(memory, expected, sizeof memory));
    int of_next, next = (rank + 1) % size;
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_read_at(file, ROWS * next, &of_next, 1, MPI_INT, &status);
    CHECK(of_next == next * 1000);
    MPI_Type_free(&rows), MPI_Type_free(&every_other), MPI_Type_free(&spaced);
    MPI_File_close(&file);
}

/* A view that has bytes twice, for reading: all ranks together see what each sees alone. */
static void repeated(void) {
    enum { MANY = 5000 };
    static int data[MANY], alone[MANY], all[MANY];
    int lengths[] = {1500, 1500}, places[] = {0, 700};
    MPI_Datatype twice, type;
    MPI_Status status;
    MPI_Info info;
    MPI_File file = fresh();
    for (int i = 0; i < MANY; i++) data[i] = value(i);
    MPI_File_write_at_all(file, 0, data, rank == 0 ? MANY : 0, MPI_INT, &status);
    MPI_File_close(&file);
    MPI_Type_indexed(2, lengths, places, MPI_INT, &twice);
    MPI_Type_create_resized(twice, 0, 1400 * sizeof(int), &type), MPI_Type_commit(&type);
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_read", "enable"), MPI_Info_set(info, "cb_buffer_size", "4096");
    CHECK(MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDONLY, info, &file) == MPI_SUCCESS);
    MPI_Info_free(&info);
    CHECK(MPI_File_set_view(file, rank * (int)sizeof(int), MPI_INT, type, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    MPI_File_read_at(file, 1, alone, MANY, MPI_INT, &status);
    count_is(&status, MPI_INT, MANY);
    MPI_File_read_at_all(file, 1, all, MANY, MPI_INT, &status);
    count_is(&status, MPI_INT, MANY);
    CHECK(!memcmp(alone, all, sizeof all) && all[0] == value(rank + 1) && all[1500] == value(rank + 701));
    MPI_Type_free(&twice), MPI_Type_free(&type);
    MPI_File_close(&file);
}

/* Filetypes whose elements begin within the one before, of which one element is accessed: a header, and rows of a matrix behind
   it, as PnetCDF's first rank has them. Lower bounds that are set count more than the header's (MPI-5.0 5.1.7). */
static void behind_a_header(void) {
    enum { HEADER = 512, ROWS = 40, COLUMNS = 3 };
    int data[ROWS * COLUMNS], found[ROWS * COLUMNS], sizes[] = {ROWS, COLUMNS * size}, part[] = {ROWS, COLUMNS}, starts[] = {0, COLUMNS * rank};
    int lengths[] = {HEADER, 1};
    MPI_Aint places[] = {0, HEADER}, lower, extent;
    MPI_Datatype types[] = {MPI_BYTE, MPI_DATATYPE_NULL}, whole;
    MPI_Status status;
    MPI_File file = fresh();
    MPI_Type_create_subarray(2, sizes, part, starts, MPI_ORDER_C, MPI_INT, &types[1]);
    MPI_Type_create_struct(2, lengths, places, types, &whole), MPI_Type_commit(&types[1]), MPI_Type_commit(&whole);
    MPI_Type_get_extent(whole, &lower, &extent);
    CHECK(lower == HEADER && extent == ROWS * COLUMNS * size * (MPI_Aint)sizeof(int));
    for (int i = 0; i < ROWS * COLUMNS; i++) data[i] = rank * 1000 + i;
    CHECK(MPI_File_set_view(file, rank ? HEADER : 0, MPI_BYTE, rank ? types[1] : whole, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    expect("write", MPI_File_write_at_all(file, rank ? 0 : HEADER, data, ROWS * COLUMNS, MPI_INT, &status), MPI_SUCCESS);
    expect("read", MPI_File_read_at_all(file, rank ? 0 : HEADER, found, ROWS * COLUMNS, MPI_INT, &status), MPI_SUCCESS);
    CHECK(!memcmp(found, data, sizeof data));
    CHECK(MPI_File_set_view(file, HEADER, MPI_INT, MPI_INT, "native", MPI_INFO_NULL) == MPI_SUCCESS);
    for (int row = 0; row < ROWS; row++)
        for (int of = 0; of < size; of++) {
            MPI_File_read_at(file, (row * size + of) * COLUMNS, found, COLUMNS, MPI_INT, &status);
            for (int i = 0; i < COLUMNS; i++) CHECK(found[i] == of * 1000 + row * COLUMNS + i);
        }
    MPI_Type_free(&types[1]), MPI_Type_free(&whole);
    MPI_File_close(&file);
}

enum { RANKS_MAX = 16, MODEL_MAX = 1 << 20 };

/* What each rank sees of a file, and what it accesses of that, in bytes. */
struct part { int first, len, tile, from, count; };

static int random_below(int end) { return rand() / (RAND_MAX / end + 1); }

/* Draws the parts of all ranks, the same everywhere: blocks of a tile one behind the other, with holes. */
static void draw_parts(struct part *parts) {
    int next = 0, scale = random_below(2) ? 20 : 3000;
    for (int i = 0; i < size; i++) {
        next += random_below(3) * random_below(scale);
        parts[i].first = next, parts[i].len = 1 + random_below(scale);
        next += parts[i].len;
    }
    next += random_below(3) * random_below(scale);
    for (int i = 0; i < size; i++) {
        int most = MODEL_MAX / 4 / next * parts[i].len;
        parts[i].tile = next;
        parts[i].from = random_below(1 + most / 2), parts[i].count = random_below(4) ? random_below(1 + most / 2) : 0;
    }
}

static int place_of(const struct part *part, int at) {
    return at / part->len * part->tile + part->first + at % part->len;
}

static void set_part(MPI_File file, const struct part *part) {
    MPI_Datatype block, type;
    MPI_Type_create_indexed_block(1, part->len, &part->first, MPI_BYTE, &block);
    MPI_Type_create_resized(block, 0, part->tile, &type), MPI_Type_commit(&type);
    MPI_File_set_view(file, 0, MPI_BYTE, type, "native", MPI_INFO_NULL);
    MPI_Type_free(&block), MPI_Type_free(&type);
}

/* Random collective accesses of all ranks, against a model of the file that each rank has. */
static void together(int seed, const char *how, const char *buffer_bytes, const char *aggregators) {
    static unsigned char model[MODEL_MAX], data[MODEL_MAX], found[MODEL_MAX];
    struct part parts[RANKS_MAX];
    int end = 0;
    MPI_Status status;
    MPI_Info info;
    MPI_File file;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(path);
    MPI_Info_create(&info);
    MPI_Info_set(info, "romio_cb_write", how), MPI_Info_set(info, "romio_cb_read", how);
    MPI_Info_set(info, "cb_buffer_size", buffer_bytes), MPI_Info_set(info, "cb_nodes", aggregators);
    MPI_File_open(MPI_COMM_WORLD, path, MPI_MODE_RDWR | MPI_MODE_CREATE, info, &file);
    MPI_Info_free(&info);
    srand(seed);
    memset(model, 0, sizeof model);
    for (int round = 0; round < 6; round++) {
        draw_parts(parts);
        set_part(file, &parts[rank]);
        for (int i = 0; i < size; i++) {
            for (int at = 0; at < parts[i].count; at++) {
                int place = place_of(&parts[i], parts[i].from + at), byte = (place * 7 + round * 31 + i) & 255;
                model[place] = byte;
                if (i == rank) data[at] = byte;
                if (place >= end) end = place + 1;
            }
        }
        MPI_File_write_at_all(file, parts[rank].from, data, parts[rank].count, MPI_BYTE, &status);
        count_is(&status, MPI_BYTE, parts[rank].count);
        draw_parts(parts);
        set_part(file, &parts[rank]);
        const struct part *own = &parts[rank];
        int there = 0, differ = 0;
        while (there < own->count && place_of(own, own->from + there) < end) there++;
        MPI_File_seek(file, own->from, MPI_SEEK_SET);
        MPI_File_read_all(file, found, own->count, MPI_BYTE, &status);
        count_is(&status, MPI_BYTE, there);
        for (int at = 0; at < there; at++) differ += found[at] != model[place_of(own, own->from + at)];
        if (differ) failures++, fprintf(stderr, "rank %d: seed %d, round %d: %d of %d bytes differ\n", rank, seed, round, differ, there);
        MPI_Offset position;
        MPI_File_get_position(file, &position);
        CHECK(position == own->from + there);
    }
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_File_read_at(file, 0, found, MODEL_MAX, MPI_BYTE, &status);
    count_is(&status, MPI_BYTE, end);
    CHECK(!memcmp(found, model, end));
    MPI_File_close(&file);
}

static void nonblocking(void) {
    int data[INTS], found[INTS], flag, index;
    MPI_Request requests[4];
    MPI_Status status, statuses[4];
    MPI_File file = fresh();
    MPI_Datatype type = blocks_of_ranks();
    MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL);
    for (int i = 0; i < INTS; i++) data[i] = seen(i);
    for (int i = 0; i < 4; i++) MPI_File_iwrite(file, data + i * (INTS / 4), INTS / 4, MPI_INT, &requests[i]);
    MPI_Waitall(4, requests, statuses);
    for (int i = 0; i < 4; i++) { CHECK(requests[i] == MPI_REQUEST_NULL); count_is(&statuses[i], MPI_INT, INTS / 4); }
    MPI_File_iread_at(file, 0, found, INTS / 2, MPI_INT, &requests[0]);
    MPI_File_iread_at_all(file, INTS / 2, found + INTS / 2, INTS - INTS / 2, MPI_INT, &requests[1]);
    MPI_Waitany(2, requests, &index, &status);
    CHECK(index == 0 || index == 1);
    do MPI_Testall(2, requests, &flag, MPI_STATUSES_IGNORE); while (!flag);
    CHECK(!memcmp(found, data, sizeof data));
    MPI_File_iwrite_at(file, INTS, data, INTS, MPI_INT, &requests[0]);
    MPI_Wait(&requests[0], &status);
    MPI_File_seek(file, INTS, MPI_SEEK_SET);
    MPI_File_iread_all(file, found, INTS, MPI_INT, &requests[0]);
    MPI_Wait(&requests[0], &status);
    count_is(&status, MPI_INT, INTS);
    CHECK(!memcmp(found, data, sizeof data));
    MPI_Type_free(&type);
    MPI_File_close(&file);
}

static void split(void) {
    int data[INTS], found[INTS];
    MPI_Status status;
    MPI_File file = fresh();
    for (int i = 0; i < INTS; i++) data[i] = value(rank * INTS + i);
    MPI_File_set_view(file, (MPI_Offset)rank * INTS * sizeof(int), MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_write_all_begin(file, data, INTS, MPI_INT);
    expect("a second split collective", MPI_File_read_all_begin(file, found, 1, MPI_INT), MPI_ERR_IO);
    expect("another's end", MPI_File_read_all_end(file, found, &status), MPI_ERR_IO);
    MPI_File_write_all_end(file, data, &status);
    count_is(&status, MPI_INT, INTS);
    MPI_File_read_at_all_begin(file, 0, found, INTS, MPI_INT);
    MPI_File_read_at_all_end(file, found, &status);
    count_is(&status, MPI_INT, INTS);
    CHECK(!memcmp(found, data, sizeof data));
    MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
    MPI_File_read_ordered_begin(file, found, INTS, MPI_INT);
    MPI_File_read_ordered_end(file, found, &status);
    CHECK(!memcmp(found, data, sizeof data));
    MPI_File_close(&file);
}

static void shared(void) {
    enum { ROUNDS = 25 };
    int record[2], *all = calloc(2 * ROUNDS * size, sizeof(int)), *next = calloc(size, sizeof(int));
    MPI_Offset offset;
    MPI_Status status;
    MPI_Request request;
    MPI_File file = fresh();
    MPI_Datatype pair;
    MPI_Type_contiguous(2, MPI_INT, &pair), MPI_Type_commit(&pair);
    MPI_File_set_view(file, 0, pair, pair, "native", MPI_INFO_NULL);
    for (int i = 0; i < ROUNDS; i++) {
        record[0] = rank, record[1] = i;
        if (i % 2) {
            MPI_File_write_shared(file, record, 1, pair, &status);
        } else {
            MPI_File_iwrite_shared(file, record, 1, pair, &request);
            MPI_Wait(&request, &status);
        }
        count_is(&status, pair, 1);
    }
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_position_shared(file, &offset);
    CHECK(offset == ROUNDS * size);
    /* Each record is there once, and those of a rank are in its order. */
    MPI_File_read_at_all(file, 0, all, ROUNDS * size, pair, &status);
    count_is(&status, pair, ROUNDS * size);
    for (int i = 0; i < ROUNDS * size; i++) {
        int of = all[2 * i];
        if (of < 0 || of >= size || all[2 * i + 1] != next[of]++) CHECK(!"records in order");
    }
    MPI_File_seek_shared(file, 0, MPI_SEEK_SET);
    for (int i = 0; i < ROUNDS; i++) MPI_File_read_shared(file, record, 1, pair, &status), count_is(&status, pair, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_read_shared(file, record, 1, pair, &status);
    count_is(&status, pair, 0);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_seek_shared(file, 0, MPI_SEEK_END);
    record[0] = -rank, record[1] = 7;
    MPI_File_write_ordered(file, record, rank % 2, pair, &status);
    MPI_File_get_size(file, &offset);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &offset);
    CHECK(offset == (ROUNDS * size + size / 2) * 2 * (int)sizeof(int));
    MPI_File_seek_shared(file, -(size / 2), MPI_SEEK_CUR);
    record[0] = 1;
    MPI_File_read_ordered(file, record, rank % 2, pair, &status);
    CHECK(record[0] == (rank % 2 ? -rank : 1));
    MPI_Type_free(&pair);
    MPI_File_close(&file);
    free(all), free(next);
}

/* Atomic accesses to one place: a reader finds what one writer has written, whole. */
static void atomic_accesses(void) {
    enum { LONG = 20000, TIMES = 10 };
    int *data = malloc(LONG * sizeof(int)), flag;
    MPI_File file = fresh();
    MPI_File_set_atomicity(file, 1);
    MPI_File_get_atomicity(file, &flag);
    CHECK(flag);
    for (int i = 0; i < LONG; i++) data[i] = 0;
    if (rank == 0) MPI_File_write_at(file, 0, data, LONG, MPI_INT, MPI_STATUS_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Datatype holes;
    MPI_Type_vector(LONG, 1, 2, MPI_INT, &holes), MPI_Type_commit(&holes);
    MPI_File_set_view(file, 0, MPI_INT, holes, "native", MPI_INFO_NULL);
    for (int time = 0; time < TIMES; time++) {
        for (int i = 0; i < LONG / 20; i++) data[i] = rank * TIMES + time + 1;
        if (rank % 2) MPI_File_write_at(file, 0, data, LONG / 20, MPI_INT, MPI_STATUS_IGNORE);
        MPI_File_read_at(file, 0, data, LONG / 20, MPI_INT, MPI_STATUS_IGNORE);
        for (int i = 1; i < LONG / 20; i++) if (data[i] != data[0]) { CHECK(!"one writer's data"); break; }
    }
    MPI_Type_free(&holes);
    MPI_File_close(&file);
    free(data);
}

/* Ints are 8 bytes in a file: the number, and the state that was registered. */
static int extent_of(MPI_Datatype type, MPI_Aint *extent, void *state) {
    int bytes;
    (void)state;
    if (type == MPI_CHAR) return 1;
    MPI_Type_size(type, &bytes);
    *extent = type == MPI_INT ? 8 : bytes;
    return MPI_SUCCESS;
}

/* The int of a buffer at a place in the order of a datatype, which is MPI_INT or every other int. */
static int *item(void *user, MPI_Datatype type, MPI_Count at) { return (int *)user + (type == MPI_INT ? at : 2 * at); }

static int write_wide(void *user, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, void *state) {
    for (MPI_Count i = 0; i < count; i++) ((int *)file)[2 * i] = *item(user, type, position + i), ((int *)file)[2 * i + 1] = *(int *)state;
    return MPI_SUCCESS;
}

static int read_wide(void *user, MPI_Datatype type, MPI_Count count, void *file, MPI_Offset position, void *state) {
    for (MPI_Count i = 0; i < count; i++) {
        if (((int *)file)[2 * i + 1] != *(int *)state) return 1;
        *item(user, type, position + i) = ((int *)file)[2 * i];
    }
    return MPI_SUCCESS;
}

static int write_narrow(void *user, MPI_Datatype type, int count, void *file, MPI_Offset position, void *state) {
    return write_wide(user, type, count, file, position, state);
}

static int read_narrow(void *user, MPI_Datatype type, int count, void *file, MPI_Offset position, void *state) {
    return read_wide(user, type, count, file, position, state);
}

static void external(void) {
    long longs[6], found[7];
    unsigned char bytes[24];
    MPI_Status status;
    MPI_Offset offset;
    MPI_Aint extent;
    MPI_Datatype type;
    MPI_Request request;
    char name[MPI_MAX_DATAREP_STRING];
    MPI_File file = fresh();
    MPI_Type_vector(3, 1, size, MPI_LONG, &type), MPI_Type_commit(&type);
    for (int i = 0; i < 6; i++) longs[i] = -(i * 100 + rank) - 1;
    expect("external32", MPI_File_set_view(file, 0, MPI_LONG, MPI_LONG, "external32", MPI_INFO_NULL), MPI_SUCCESS);
    MPI_File_get_type_extent(file, MPI_LONG, &extent);
    CHECK(extent == 4);
    MPI_File_get_type_extent(file, type, &extent);
    CHECK(extent == 4 * (2 * size + 1));
    MPI_File_write_at_all(file, 6 * rank, longs, 6, MPI_LONG, &status);
    count_is(&status, MPI_LONG, 6);
    MPI_File_get_size(file, &offset);
    CHECK(offset == 24 * size);
    MPI_File_iread_at(file, 6 * rank, found, 7, MPI_LONG, &request);
    MPI_Wait(&request, &status);
    count_is(&status, MPI_LONG, rank == size - 1 ? 6 : 7);
    CHECK(!memcmp(longs, found, sizeof longs));
    MPI_Datatype etype, filetype;
    MPI_File_get_view(file, &offset, &etype, &filetype, name);
    CHECK(etype == MPI_LONG && filetype == MPI_LONG && !strcmp(name, "external32"));
    /* Places of a view count elements of the file. */
    MPI_File_set_view(file, 4 * rank, MPI_LONG, type, "external32", MPI_INFO_NULL);
    MPI_File_read_all(file, found, 3, MPI_LONG, &status);
    count_is(&status, MPI_LONG, 3);
    for (int i = 0; i < 3; i++) CHECK(found[i] == -((rank + i * size) % 6 * 100 + (rank + i * size) / 6) - 1);
    MPI_File_get_position(file, &offset);
    CHECK(offset == 3);
    longs[0] = 1L << 40;
    expect("a long of 41 bits", MPI_File_write_at(file, 0, longs, 1, MPI_LONG, &status), MPI_ERR_CONVERSION);
    MPI_File_set_view(file, 0, MPI_BYTE, MPI_BYTE, "native", MPI_INFO_NULL);
    MPI_File_read_at(file, 24 * rank, bytes, 24, MPI_BYTE, &status);
    for (int i = 0; i < 6; i++) {
        int expected = -(i * 100 + rank) - 1;
        for (int j = 0; j < 4; j++) CHECK(bytes[4 * i + j] == (unsigned char)(expected >> (24 - 8 * j)));
    }
    MPI_Type_free(&type);
    MPI_File_close(&file);
}

static void registered(void) {
    static int state = 77;
    int data[2 * INTS], found[2 * INTS], raw[2];
    MPI_Status status;
    MPI_Aint extent;
    MPI_Datatype spaced, every_other;
    expect("wide", MPI_Register_datarep_c("wide", read_wide, write_wide, extent_of, &state), MPI_SUCCESS);
    expect("narrow", MPI_Register_datarep("narrow", read_narrow, write_narrow, extent_of, &state), MPI_SUCCESS);
    expect("plain", MPI_Register_datarep("plain", MPI_CONVERSION_FN_NULL, MPI_CONVERSION_FN_NULL, extent_of, NULL), MPI_SUCCESS);
    expect("wide again", MPI_Register_datarep("wide", read_narrow, write_narrow, extent_of, NULL), MPI_ERR_DUP_DATAREP);
    expect("native", MPI_Register_datarep("native", read_narrow, write_narrow, extent_of, NULL), MPI_ERR_DUP_DATAREP);
    MPI_Type_create_resized(MPI_INT, 0, 2 * sizeof(int), &spaced);
    MPI_Type_contiguous(INTS, spaced, &every_other), MPI_Type_commit(&every_other);
    for (int which = 0; which < 2; which++) {
        const char *name = which ? "narrow" : "wide";
        MPI_File file = fresh();
        for (int i = 0; i < 2 * INTS; i++) data[i] = i % 2 ? -1 : seen(i / 2), found[i] = -1;
        expect("its view", MPI_File_set_view(file, 0, MPI_INT, MPI_INT, name, MPI_INFO_NULL), MPI_SUCCESS);
        MPI_File_get_type_extent(file, MPI_INT, &extent);
        CHECK(extent == 8);
        MPI_File_write_at_all(file, INTS * rank, data, 1, every_other, &status);
        count_is(&status, MPI_INT, INTS);
        MPI_File_read_at_all(file, INTS * rank, found, 1, every_other, &status);
        count_is(&status, MPI_INT, INTS);
        CHECK(!memcmp(data, found, sizeof data));
        expect("an etype without an extent", MPI_File_set_view(file, 0, MPI_CHAR, MPI_CHAR, name, MPI_INFO_NULL), MPI_ERR_CONVERSION);
        MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL);
        MPI_File_read_at(file, 2 * INTS * rank + 2, raw, 2, MPI_INT, &status);
        CHECK(raw[0] == data[2] && raw[1] == state);
        raw[1] = 0;
        if (rank == 0) MPI_File_write_at(file, 0, raw, 2, MPI_INT, &status);
        MPI_File_set_view(file, 0, MPI_INT, MPI_INT, name, MPI_INFO_NULL);
        expect("a failing conversion", MPI_File_read_at_all(file, INTS * rank, found, 1, MPI_INT, &status), MPI_ERR_CONVERSION);
        MPI_File_close(&file);
    }
    MPI_Type_free(&every_other), MPI_Type_free(&spaced);
}

static void sizes_and_modes(void) {
    MPI_Offset offset;
    MPI_Group group, all;
    MPI_Info info, used;
    MPI_Status status;
    char text[64];
    int mode, result, flag, data[4] = {1, 2, 3, 4}, found[4];
    MPI_File file = fresh();
    MPI_File_set_size(file, 1000), MPI_File_get_size(file, &offset);
    CHECK(offset == 1000);
    MPI_File_preallocate(file, 5000), MPI_File_get_size(file, &offset);
    CHECK(offset == 5000);
    MPI_File_preallocate(file, 10), MPI_File_set_size(file, 100), MPI_File_get_size(file, &offset);
    CHECK(offset == 100);
    CHECK(MPI_File_sync(file) == MPI_SUCCESS);
    MPI_File_get_amode(file, &mode);
    CHECK(mode == (MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL));
    MPI_File_get_group(file, &group), MPI_Comm_group(MPI_COMM_WORLD, &all);
    MPI_Group_compare(group, all, &result);
    CHECK(result == MPI_IDENT);
    MPI_Group_free(&group), MPI_Group_free(&all);
    MPI_Info_create(&info), MPI_Info_set(info, "access_style", "read_once"), MPI_Info_set(info, "no_such_hint", "1");
    MPI_File_set_info(file, info);
    MPI_File_get_info(file, &used);
    result = sizeof text;
    MPI_Info_get_string(used, "access_style", &result, text, &flag);
    CHECK(flag && !strcmp(text, "read_once"));
    MPI_Info_free(&info), MPI_Info_free(&used);
    CHECK(MPI_File_fromint(MPI_File_toint(file)) == file);
    MPI_File_close(&file);
    /* Large counts, an append, a file that goes with its last user. */
    file = open_as(MPI_MODE_RDWR | MPI_MODE_APPEND | MPI_MODE_DELETE_ON_CLOSE);
    MPI_File_get_position(file, &offset);
    CHECK(offset == 100);
    MPI_File_get_position_shared(file, &offset);
    CHECK(offset == 100);
    MPI_File_write_at_c(file, (MPI_Offset)5 << 32 | rank * sizeof data, data, sizeof data, MPI_BYTE, &status);
    MPI_File_read_at_c(file, (MPI_Offset)5 << 32 | rank * sizeof data, found, sizeof data, MPI_BYTE, &status);
    count_is(&status, MPI_BYTE, sizeof data);
    CHECK(!memcmp(data, found, sizeof data));
    MPI_File_close(&file);
    CHECK(access(path, F_OK) != 0);
    /* One that a process has for itself, whose name is no UTF-8. */
    char own[4200];
    snprintf(own, sizeof own, "%s.\377%d", path, rank);
    expect("a file of its own", MPI_File_open(MPI_COMM_SELF, own, MPI_MODE_WRONLY | MPI_MODE_CREATE, MPI_INFO_NULL, &file), MPI_SUCCESS);
    MPI_File_write_ordered(file, data, 4, MPI_INT, &status), count_is(&status, MPI_INT, 4);
    MPI_File_close(&file);
    CHECK(access(own, F_OK) == 0);
    expect("delete", MPI_File_delete(own, MPI_INFO_NULL), MPI_SUCCESS);
    expect("delete again", MPI_File_delete(own, MPI_INFO_NULL), MPI_ERR_NO_SUCH_FILE);
}

/* A view that begins behind the end: nothing is read, and memory stays as it is. What is written there extends the file. */
static void past_the_end(void) {
    enum { THERE = 3, FIRST = 10000 };
    int data[INTS], found[INTS];
    MPI_Datatype type = blocks_of_ranks(), views[] = {MPI_INT, type};
    MPI_Offset bytes, offset;
    MPI_Status status;
    MPI_File file = fresh();
    for (int i = 0; i < INTS; i++) data[i] = seen(i);
    if (rank == 0) MPI_File_write_at(file, 0, data, THERE, MPI_INT, &status);
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < 2; i++) {
        MPI_Request request;
        memset(found, 7, sizeof found);
        expect("a view past the end", MPI_File_set_view(file, FIRST, MPI_INT, views[i], "native", MPI_INFO_NULL), MPI_SUCCESS);
        expect("read", MPI_File_read(file, found, INTS, MPI_INT, &status), MPI_SUCCESS), count_is(&status, MPI_INT, 0);
        expect("read_at_all", MPI_File_read_at_all(file, 5, found, INTS, MPI_INT, &status), MPI_SUCCESS), count_is(&status, MPI_INT, 0);
        MPI_File_iread_at(file, 0, found, INTS, MPI_INT, &request);
        expect("iread_at", MPI_Wait(&request, &status), MPI_SUCCESS), count_is(&status, MPI_INT, 0);
        for (int k = 0; k < INTS; k++) CHECK(found[k] == 0x07070707);
        MPI_File_get_position(file, &offset), MPI_File_get_size(file, &bytes);
        CHECK(offset == 0 && bytes == THERE * (int)sizeof(int));
        MPI_Barrier(MPI_COMM_WORLD);
    }
    expect("write", MPI_File_write_at_all(file, 0, data, INTS, MPI_INT, &status), MPI_SUCCESS), count_is(&status, MPI_INT, INTS);
    expect("read", MPI_File_read_at_all(file, 0, found, INTS, MPI_INT, &status), MPI_SUCCESS), count_is(&status, MPI_INT, INTS);
    CHECK(!memcmp(found, data, sizeof found));
    MPI_File_get_size(file, &bytes);
    CHECK(bytes == FIRST + (MPI_Offset)INTS * size * (int)sizeof(int));
    expect("the gap", MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_SUCCESS);
    expect("read", MPI_File_read_at_all(file, THERE, found, INTS, MPI_INT, &status), MPI_SUCCESS), count_is(&status, MPI_INT, INTS);
    for (int k = 0; k < INTS; k++) CHECK(found[k] == 0);
    MPI_Type_free(&type);
    MPI_File_close(&file);
}

static int reported;

static void report(MPI_File *file, int *code, ...) {
    (void)file;
    MPI_Error_class(*code, &reported);
}

static int opening(const char *name, int mode) {
    MPI_File file = MPI_FILE_NULL;
    int code = MPI_File_open(MPI_COMM_WORLD, name, mode, MPI_INFO_NULL, &file);
    CHECK(file == MPI_FILE_NULL);
    return code;
}

static void failing(void) {
    char name[4200], text[MPI_MAX_ERROR_STRING];
    int data[4] = {0}, len;
    MPI_File file = fresh();
    MPI_Datatype type;
    MPI_Errhandler handler;
    expect("exclusive", opening(path, MPI_MODE_RDWR | MPI_MODE_CREATE | MPI_MODE_EXCL), MPI_ERR_FILE_EXISTS);
    expect("two modes", opening(path, MPI_MODE_RDWR | MPI_MODE_RDONLY), MPI_ERR_AMODE);
    if (size > 1) expect("modes that differ", opening(path, rank ? MPI_MODE_RDWR : MPI_MODE_RDONLY), MPI_ERR_NOT_SAME);
    if (size > 1) expect("one wrong mode", opening(path, rank ? MPI_MODE_RDWR : 0), MPI_ERR_AMODE);
    snprintf(name, sizeof name, "%s/below", path);
    expect("below a file", opening(name, MPI_MODE_RDONLY), MPI_ERR_BAD_FILE);
    snprintf(name, sizeof name, "%s.missing", path);
    int code = opening(name, MPI_MODE_RDONLY);
    expect("missing", code, MPI_ERR_NO_SUCH_FILE);
    MPI_Error_string(code, text, &len);
    CHECK(strstr(text, name) && strstr(text, "rank 0") && strstr(text, "No such file"));
    expect("a directory", opening("/", MPI_MODE_RDONLY), MPI_ERR_BAD_FILE);
    expect("a negative offset", MPI_File_read_at(file, -1, data, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_ARG);
    expect("before the view", MPI_File_seek(file, -1, MPI_SEEK_SET), MPI_ERR_ARG);
    expect("no whence", MPI_File_seek_shared(file, 0, rank ? MPI_SEEK_SET : 7), MPI_ERR_ARG);
    expect("a negative size", MPI_File_set_size(file, -1), MPI_ERR_ARG);
    if (size > 1) expect("sizes that differ", MPI_File_set_size(file, rank), MPI_ERR_NOT_SAME);
    expect("one wrong datatype", MPI_File_write_all(file, data, 1, rank ? MPI_INT : MPI_DATATYPE_NULL, MPI_STATUS_IGNORE), MPI_ERR_TYPE);
    expect("no representation", MPI_File_set_view(file, 0, MPI_INT, MPI_INT, "unheard", MPI_INFO_NULL), MPI_ERR_UNSUPPORTED_DATAREP);
    int lengths[] = {1, 1}, places[] = {2, 0};
    MPI_Type_indexed(2, lengths, places, MPI_INT, &type), MPI_Type_commit(&type);
    expect("decreasing displacements", MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL), MPI_ERR_TYPE);
    MPI_Type_free(&type);
    places[0] = -2;
    MPI_Type_indexed(2, lengths, places, MPI_INT, &type), MPI_Type_commit(&type);
    expect("negative displacements", MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL), MPI_ERR_TYPE);
    MPI_Type_free(&type);
    MPI_Type_contiguous(3, MPI_INT, &type), MPI_Type_commit(&type);
    expect("one and a half etypes", MPI_File_set_view(file, 0, MPI_DOUBLE, type, "native", MPI_INFO_NULL), MPI_ERR_TYPE);
    MPI_Type_free(&type);
    lengths[0] = 2, places[0] = 0, places[1] = 1;
    MPI_Type_indexed(2, lengths, places, MPI_INT, &type), MPI_Type_commit(&type);
    expect("parts that overlap", MPI_File_set_view(file, 0, MPI_INT, type, "native", MPI_INFO_NULL), MPI_ERR_TYPE);
    MPI_Type_free(&type);
    if (size > 1) {
        MPI_Datatype etype = rank ? MPI_INT : MPI_DOUBLE;
        expect("etypes that differ", MPI_File_set_view(file, 0, etype, etype, "native", MPI_INFO_NULL), MPI_ERR_NOT_SAME);
        expect("representations that differ", MPI_File_set_view(file, 0, MPI_INT, MPI_INT, rank ? "native" : "external32", MPI_INFO_NULL), MPI_ERR_NOT_SAME);
        expect("lengths that differ", MPI_File_preallocate(file, 8 + rank), MPI_ERR_NOT_SAME);
        expect("atomicities that differ", MPI_File_set_atomicity(file, rank > 0), MPI_ERR_NOT_SAME);
        expect("shared pointers that differ", MPI_File_seek_shared(file, rank, MPI_SEEK_SET), MPI_ERR_NOT_SAME);
        expect("one negative offset", MPI_File_read_at_all(file, rank ? 0 : -1, data, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_ARG);
    }
    MPI_File_set_view(file, 0, MPI_DOUBLE, MPI_DOUBLE, "native", MPI_INFO_NULL);
    expect("half an etype", MPI_File_write_at(file, 0, data, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_TYPE);
    /* The handler of the file, and that of no file. */
    MPI_File_create_errhandler(report, &handler);
    MPI_File_set_errhandler(file, handler);
    MPI_File_seek(file, -1, MPI_SEEK_SET);
    CHECK(reported == MPI_ERR_ARG);
    MPI_File_call_errhandler(file, MPI_ERR_QUOTA);
    CHECK(reported == MPI_ERR_QUOTA);
    MPI_File_set_errhandler(MPI_FILE_NULL, handler);
    opening(name, MPI_MODE_RDONLY);
    CHECK(reported == MPI_ERR_NO_SUCH_FILE);
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&handler);
    MPI_File stale = file;
    MPI_File_close(&file);
    expect("a closed file", MPI_File_sync(stale), MPI_ERR_FILE);
    file = open_as(MPI_MODE_RDONLY);
    expect("a write", MPI_File_write(file, data, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
    expect("a write by all", MPI_File_write_all(file, data, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_READ_ONLY);
    expect("a cut", MPI_File_set_size(file, 0), MPI_ERR_READ_ONLY);
    MPI_File_close(&file);
    file = open_as(MPI_MODE_WRONLY);
    expect("a read", MPI_File_read(file, data, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_ACCESS);
    MPI_File_close(&file);
    if (access("/dev/full", W_OK) == 0) {
        expect("open", MPI_File_open(MPI_COMM_WORLD, "/dev/full", MPI_MODE_WRONLY, MPI_INFO_NULL, &file), MPI_SUCCESS);
        expect("no space", MPI_File_write_at_all(file, 4, data, rank == size - 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_NO_SPACE);
        MPI_Request request;
        MPI_File_iwrite_at(file, 4, data, 1, MPI_INT, &request);
        expect("no space later", MPI_Wait(&request, MPI_STATUS_IGNORE), MPI_ERR_NO_SPACE);
        MPI_File_close(&file);
    }
    /* In sequence only. */
    file = open_as(MPI_MODE_WRONLY | MPI_MODE_SEQUENTIAL);
    expect("an offset", MPI_File_write_at(file, 0, data, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_ERR_UNSUPPORTED_OPERATION);
    expect("a seek", MPI_File_seek(file, 0, MPI_SEEK_SET), MPI_ERR_UNSUPPORTED_OPERATION);
    expect("in order", MPI_File_write_ordered(file, data, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    expect("on from here", MPI_File_set_view(file, MPI_DISPLACEMENT_CURRENT, MPI_INT, MPI_INT, "native", MPI_INFO_NULL), MPI_SUCCESS);
    expect("in order", MPI_File_write_ordered(file, data, 1, MPI_INT, MPI_STATUS_IGNORE), MPI_SUCCESS);
    MPI_Offset bytes;
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_File_get_size(file, &bytes);
    CHECK(bytes == 2 * size * (int)sizeof(int));
    MPI_File_close(&file);
}

int main(int argc, char **argv) {
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    snprintf(path, sizeof path, "%s/file", argc > 1 ? argv[1] : ".");
    views();
    scattered();
    repeated();
    behind_a_header();
    for (int seed = 1; seed <= 4 && size <= RANKS_MAX; seed++) {
        together(seed, "enable", "4096", "2"), together(seed, "automatic", "100000", "3"), together(seed, "disable", "1", "1");
    }
    nonblocking();
    split();
    shared();
    atomic_accesses();
    external();
    registered();
    sizes_and_modes();
    past_the_end();
    failing();
    if (rank == 0) unlink(path);
    int all;
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("files on %d ranks: %s\n", size, all ? "FAILED" : "ok");
    MPI_Finalize();
    return all != 0;
}
