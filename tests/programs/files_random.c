/* Random programs on a file: views, blocking, non-blocking, split and collective accesses, own, explicit, shared and ordered
   pointers, sizes, atomic mode, by all ranks against a sequential model, which every rank keeps. All ranks draw the same
   numbers, so each knows what the others do. Usage: files_random DIRECTORY SEED... Any number of ranks up to RANKS_MAX.
   FILES_REAL names the directory as all ranks see it, where some do not see DIRECTORY. */
#include <fcntl.h>
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "check.h"

enum { RANKS_MAX = 16, FILE_MAX = 1 << 22, TILE_MAX = 4096, ETYPES_MAX = 3000, STEPS = 60, STRIDE = 2 };
enum way { BLOCKING, NONBLOCKING, COLLECTIVE, NONBLOCKING_COLLECTIVE, SPLIT, WAYS };

static int size;
static uint64_t drawn, seed;
static char path[4096], real[4096]; /* for MPI; for the system */
static const char *step_name;
static int step;

/* The file as it must be, and the pointers. */
static unsigned char model[FILE_MAX];
static long model_size;
static long positions[RANKS_MAX], shared_position; /* in etypes */

/* The view: bytes of each rank in a tile that is repeated from `first` on. A common one is the same for all. */
static struct {
    int is_common, etype, first, tile, counts[RANKS_MAX]; /* in bytes; counts in etypes */
    int places[RANKS_MAX][TILE_MAX];                      /* of etypes in the tile */
} view;

static MPI_File file;
static MPI_Datatype etypes[5], strided[5]; /* by the bytes of an etype */
static unsigned char buffer[ETYPES_MAX * 4 * STRIDE], expected[ETYPES_MAX * 4 * STRIDE];

static long draw(long end) { /* SplitMix64 */
    uint64_t word = drawn += 0x9e3779b97f4a7c15u;
    word = (word ^ (word >> 30)) * 0xbf58476d1ce4e5b9u;
    word = (word ^ (word >> 27)) * 0x94d049bb133111ebu;
    return (long)((word ^ (word >> 31)) % (uint64_t)end);
}

static void complain(const char *what, long found, long wanted) {
    if (found == wanted) return;
    failures++;
    fprintf(stderr, "rank %d, seed %llu, step %d (%s): %s is %ld instead of %ld\n", rank, (unsigned long long)seed, step, step_name, what, found, wanted);
}

static void succeeds(int code) {
    char text[MPI_MAX_ERROR_STRING];
    int len;
    if (code == MPI_SUCCESS) return;
    MPI_Error_string(code, text, &len);
    fprintf(stderr, "rank %d, seed %llu, step %d (%s): %s\n", rank, (unsigned long long)seed, step, step_name, text);
    MPI_Abort(MPI_COMM_WORLD, 1);
}

/* Offset in the file of an etype of a rank's view. */
static long offset_of(int of, long etype) {
    int i = view.is_common ? 0 : of, count = view.counts[i];
    return view.first + etype / count * view.tile + view.places[i][etype % count];
}

/* True if etypes of a rank's view lie where the model has room. */
static int fits(int of, long from, long count) { return count == 0 || offset_of(of, from + count - 1) + view.etype <= FILE_MAX; }

/* Number of etypes of a rank's view that begin before the end of the file. */
static long etypes_before_end(int of) {
    long etype = 0;
    while (offset_of(of, etype) < model_size) etype++;
    return etype;
}

/* What is written to a byte of the file in this step. */
static unsigned char byte_at(long offset) { return (unsigned char)((uint64_t)(offset + 1) * (uint64_t)(2 * step + 3) * 0x9e3779b97f4a7c15u >> 56); }

static void draw_view(void) {
    view.is_common = draw(3) == 0, view.etype = draw(2) ? 1 : 4, view.first = (int)draw(200);
    int tile = size + (int)draw(draw(2) ? 20 : TILE_MAX / 4 - size), ranks = view.is_common ? 1 : size;
    memset(view.counts, 0, sizeof view.counts);
    for (int place = 0, of = (int)draw(ranks); place < tile; place++) {
        /* Runs of several lengths. Each rank has the etype of its number at least. */
        if (draw(4) == 0) of = (int)draw(ranks + 1);
        int who = place < ranks ? place : of;
        if (who < ranks) view.places[who][view.counts[who]++] = place * view.etype;
    }
    view.tile = tile * view.etype;
    step_name = "set_view";
    int own = view.is_common ? 0 : rank;
    MPI_Datatype type, whole;
    MPI_Aint places[TILE_MAX];
    for (int i = 0; i < view.counts[own]; i++) places[i] = view.places[own][i];
    MPI_Type_create_hindexed_block(view.counts[own], 1, places, etypes[view.etype], &type);
    MPI_Type_create_resized(type, 0, view.tile, &whole);
    MPI_Type_commit(&whole);
    succeeds(MPI_File_set_view(file, view.first, etypes[view.etype], whole, "native", MPI_INFO_NULL));
    MPI_Type_free(&type), MPI_Type_free(&whole);
    memset(positions, 0, sizeof positions), shared_position = 0;
}

/* An access of all ranks: the etypes of each from one on. */
struct access { long from[RANKS_MAX], counts[RANKS_MAX]; int writes, stride; };

/* Fills the buffer with what is written, or with what is read and what must be there then. Returns the bytes that move. */
static long fill(const struct access *access) {
    long bytes = 0;
    memset(buffer, 0xee, sizeof buffer), memset(expected, 0xee, sizeof expected);
    for (long i = 0; i < access->counts[rank]; i++)
        for (int k = 0; k < view.etype; k++) {
            long offset = offset_of(rank, access->from[rank] + i) + k, place = i * access->stride * view.etype + k;
            if (access->writes) buffer[place] = byte_at(offset), bytes++;
            else if (offset < model_size) expected[place] = model[offset], bytes++;
        }
    if (access->writes) memcpy(expected, buffer, sizeof buffer);
    return bytes;
}

/* Changes the model as the writes of all ranks do. */
static void apply(const struct access *access) {
    for (int of = 0; access->writes && of < size; of++)
        for (long i = 0; i < access->counts[of]; i++)
            for (int k = 0; k < view.etype; k++) {
                long offset = offset_of(of, access->from[of] + i) + k;
                model[offset] = byte_at(offset);
                if (offset >= model_size) model_size = offset + 1;
            }
}

static void check_access(MPI_Status *status, long bytes) {
    int found;
    MPI_Get_count(status, MPI_BYTE, &found);
    complain("bytes moved", found, bytes);
    complain("the buffer's difference", memcmp(buffer, expected, sizeof buffer) != 0, 0);
}

/* Draws an access; one that must not overlap goes behind those of lower ranks where all see the same. */
static struct access draw_access(const long *from) {
    struct access access = {.writes = (int)draw(2), .stride = 1 + (int)draw(STRIDE)};
    long most = draw(2) ? 40 : ETYPES_MAX / size, next = draw(draw(2) ? 50 : 1000);
    for (int of = 0; of < size; of++) {
        access.counts[of] = draw(4) ? draw(most) : 0;
        access.from[of] = from ? from[of] : view.is_common ? next : draw(1000);
        while (!fits(of, access.from[of], access.counts[of])) access.counts[of] /= 2;
        next += access.counts[of] + draw(5);
    }
    return access;
}

#define CALL(name, ...) (access->writes ? MPI_File_write##name(__VA_ARGS__) : MPI_File_read##name(__VA_ARGS__))
#define BEGIN(name, ...) (access->writes ? MPI_File_iwrite##name(__VA_ARGS__) : MPI_File_iread##name(__VA_ARGS__))

static void at_offset(const struct access *access, int way, MPI_Datatype type, MPI_Status *status) {
    MPI_Offset from = access->from[rank];
    int count = (int)access->counts[rank];
    MPI_Request request = MPI_REQUEST_NULL;
    if (way == BLOCKING) succeeds(CALL(_at, file, from, buffer, count, type, status));
    if (way == COLLECTIVE) succeeds(CALL(_at_all, file, from, buffer, count, type, status));
    if (way == NONBLOCKING) succeeds(BEGIN(_at, file, from, buffer, count, type, &request));
    if (way == NONBLOCKING_COLLECTIVE) succeeds(BEGIN(_at_all, file, from, buffer, count, type, &request));
    if (way == NONBLOCKING || way == NONBLOCKING_COLLECTIVE) succeeds(MPI_Wait(&request, status));
    if (way != SPLIT) return;
    succeeds(CALL(_at_all_begin, file, from, buffer, count, type));
    succeeds(CALL(_at_all_end, file, buffer, status));
}

static void at_pointer(const struct access *access, int way, MPI_Datatype type, MPI_Status *status) {
    int count = (int)access->counts[rank];
    MPI_Request request = MPI_REQUEST_NULL;
    if (way == BLOCKING) succeeds(CALL(, file, buffer, count, type, status));
    if (way == COLLECTIVE) succeeds(CALL(_all, file, buffer, count, type, status));
    if (way == NONBLOCKING) succeeds(BEGIN(, file, buffer, count, type, &request));
    if (way == NONBLOCKING_COLLECTIVE) succeeds(BEGIN(_all, file, buffer, count, type, &request));
    if (way == NONBLOCKING || way == NONBLOCKING_COLLECTIVE) succeeds(MPI_Wait(&request, status));
    if (way != SPLIT) return;
    succeeds(CALL(_all_begin, file, buffer, count, type));
    succeeds(CALL(_all_end, file, buffer, status));
}

static void access_step(void) {
    int way = (int)draw(WAYS), has_offset = (int)draw(2);
    long own[RANKS_MAX];
    memcpy(own, positions, sizeof own);
    struct access access = draw_access(has_offset ? NULL : own);
    /* Pointers of a common view overlap: all may read, or one may write. */
    for (int of = 1; of < size && !has_offset && view.is_common && access.writes; of++) access.counts[of] = 0;
    MPI_Datatype type = access.stride == 1 ? etypes[view.etype] : strided[view.etype];
    MPI_Status status;
    step_name = has_offset ? "at" : "own pointer";
    long bytes = fill(&access);
    (has_offset ? at_offset : at_pointer)(&access, way, type, &status);
    check_access(&status, bytes);
    for (int of = 0; of < size && !has_offset; of++) {
        long moved = access.counts[of], end = etypes_before_end(of);
        /* A reader's pointer stays behind the last whole etype that was there. */
        while (!access.writes && moved > 0 && offset_of(of, access.from[of] + moved - 1) + view.etype > model_size && end >= 0) moved--;
        if (way == BLOCKING || way == COLLECTIVE || access.writes) positions[of] += moved;
        else positions[of] = -1;
    }
    apply(&access);
    /* Where the pointer is after a non-blocking read at the end of a file is not said: all set it anew. */
    for (int of = 0; of < size; of++)
        if (positions[of] < 0) {
            positions[of] = draw(100);
            if (of == rank) succeeds(MPI_File_seek(file, positions[of], MPI_SEEK_SET));
        }
}

static void ordered_step(void) {
    if (!view.is_common) return;
    struct access once = draw_access(NULL), *access = &once;
    int way = (int)draw(2);
    for (int of = 0; of < size; of++) {
        access->from[of] = shared_position;
        while (!fits(of, shared_position, access->counts[of])) access->counts[of] /= 2;
        shared_position += access->counts[of];
    }
    MPI_Datatype type = access->stride == 1 ? etypes[view.etype] : strided[view.etype];
    MPI_Status status;
    step_name = "ordered";
    long bytes = fill(access);
    if (way == 0) succeeds(CALL(_ordered, file, buffer, (int)access->counts[rank], type, &status));
    else {
        succeeds(CALL(_ordered_begin, file, buffer, (int)access->counts[rank], type));
        succeeds(CALL(_ordered_end, file, buffer, &status));
    }
    check_access(&status, bytes);
    apply(access);
}

/* All write at the shared pointer as much; what the bytes are depends on their place, which depends on the order of calls: each
   writes its rank, and the model takes what the file has, if each rank has one part. */
static void shared_step(void) {
    if (!view.is_common) return;
    int count = 1 + (int)draw(200), len = count * view.etype, seen[RANKS_MAX] = {0}, is_blocking = (int)draw(2);
    MPI_Request request;
    if (!fits(rank, shared_position, (long)count * size)) return;
    step_name = "shared";
    memset(buffer, rank + 1, (size_t)len);
    if (is_blocking) succeeds(MPI_File_write_shared(file, buffer, count, etypes[view.etype], MPI_STATUS_IGNORE));
    else {
        succeeds(MPI_File_iwrite_shared(file, buffer, count, etypes[view.etype], &request));
        succeeds(MPI_Wait(&request, MPI_STATUS_IGNORE));
    }
    MPI_Barrier(MPI_COMM_WORLD);
    for (int part = 0; part < size; part++, shared_position += count) {
        succeeds(MPI_File_read_at(file, shared_position, buffer, count, etypes[view.etype], MPI_STATUS_IGNORE));
        int who = buffer[0];
        if (who < 1 || who > size || seen[who - 1]++) complain("a part's rank", who, -1);
        for (int i = 0; i < len; i++) {
            complain("a byte of a part", buffer[i], who);
            long offset = offset_of(rank, shared_position + i / view.etype) + i % view.etype;
            model[offset] = buffer[i];
            if (offset >= model_size) model_size = offset + 1;
        }
    }
    MPI_Offset found;
    succeeds(MPI_File_get_position_shared(file, &found));
    complain("the shared pointer", (long)found, shared_position);
    MPI_Barrier(MPI_COMM_WORLD);
}

/* All write to the same place at once, in atomic mode: the bytes of one of them are there then. */
static void atomic_step(void) {
    if (!view.is_common) return;
    long from = draw(1000), count = 1 + draw(1000);
    int is_collective = (int)draw(2), len = (int)count * view.etype;
    if (!fits(rank, from, count)) return;
    step_name = "atomic";
    succeeds(MPI_File_set_atomicity(file, 1));
    memset(buffer, rank + 1, (size_t)len);
    if (is_collective) succeeds(MPI_File_write_at_all(file, from, buffer, (int)count, etypes[view.etype], MPI_STATUS_IGNORE));
    else succeeds(MPI_File_write_at(file, from, buffer, (int)count, etypes[view.etype], MPI_STATUS_IGNORE));
    /* Also while others still write, a read finds the bytes of one. */
    for (int i = 0; i < 2; i++) {
        if (i == 1) MPI_Barrier(MPI_COMM_WORLD);
        succeeds(MPI_File_read_at(file, from, buffer, (int)count, etypes[view.etype], MPI_STATUS_IGNORE));
        for (int at = 1; at < len; at++) complain("a byte", buffer[at], buffer[0]);
    }
    for (int at = 0; at < len; at++) {
        long offset = offset_of(rank, from + at / view.etype) + at % view.etype;
        model[offset] = buffer[at];
        if (offset >= model_size) model_size = offset + 1;
    }
    succeeds(MPI_File_set_atomicity(file, 0));
}

static void seek_step(void) {
    long end[RANKS_MAX], to;
    step_name = "seek";
    for (int of = 0; of < size; of++) {
        end[of] = etypes_before_end(of);
        int whence = (int)draw(3);
        to = draw(200);
        if (whence == 1) to = positions[of] + to > 2000 ? -positions[of] : to;
        if (whence == 2) to = end[of] > 300 ? -draw(end[of]) : -end[of];
        if (of == rank) succeeds(MPI_File_seek(file, to, whence == 0 ? MPI_SEEK_SET : whence == 1 ? MPI_SEEK_CUR : MPI_SEEK_END));
        positions[of] = whence == 0 ? to : whence == 1 ? positions[of] + to : end[of] + to;
    }
    MPI_Offset found;
    succeeds(MPI_File_get_position(file, &found));
    complain("the pointer", (long)found, positions[rank]);
    shared_position = draw(500);
    if (view.is_common) succeeds(MPI_File_seek_shared(file, shared_position, MPI_SEEK_SET));
    else shared_position = 0, succeeds(MPI_File_seek_shared(file, 0, MPI_SEEK_SET));
}

static void size_step(void) {
    long to = draw(draw(2) ? 20000 : 2000);
    MPI_Offset found;
    step_name = "size";
    MPI_Barrier(MPI_COMM_WORLD);
    if (draw(3)) {
        succeeds(MPI_File_set_size(file, to));
        if (to < model_size) memset(model + to, 0, (size_t)(model_size - to));
        model_size = to;
    } else {
        succeeds(MPI_File_preallocate(file, to));
        if (to > model_size) model_size = to;
    }
    succeeds(MPI_File_get_size(file, &found));
    complain("the size", (long)found, model_size);
}

static void open_step(int is_first) {
    static const char *const SWITCHES[] = {"automatic", "enable", "disable"};
    static const char *const BYTES[] = {"4096", "10000", "16777216"};
    char count[12];
    MPI_Info info;
    step_name = "open";
    if (!is_first) succeeds(MPI_File_close(&file));
    MPI_Info_create(&info);
    snprintf(count, sizeof count, "%d", 1 + (int)draw(size));
    MPI_Info_set(info, "romio_cb_write", SWITCHES[draw(3)]), MPI_Info_set(info, "romio_cb_read", SWITCHES[draw(3)]);
    MPI_Info_set(info, "cb_buffer_size", BYTES[draw(3)]), MPI_Info_set(info, "cb_nodes", count);
    int mode = MPI_MODE_RDWR | (is_first ? MPI_MODE_CREATE | MPI_MODE_EXCL : draw(2) ? MPI_MODE_CREATE : 0);
    succeeds(MPI_File_open(MPI_COMM_WORLD, path, mode, info, &file));
    MPI_Info_free(&info);
    draw_view();
}

/* The file as the system has it. */
static void check_file(void) {
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) {
        static unsigned char found[FILE_MAX];
        int plain = open(real, O_RDONLY);
        ssize_t bytes = read(plain, found, sizeof found);
        close(plain);
        complain("the file's length", (long)bytes, model_size);
        for (long at = 0; at < model_size && at < bytes && failures == 0; at++)
            if (found[at] != model[at]) complain("a byte of the file", at, -1), complain("its value", found[at], model[at]);
    }
    MPI_Barrier(MPI_COMM_WORLD);
}

static void run(void) {
    drawn = seed * 0x2545f4914f6cdd1du;
    memset(model, 0, sizeof model), model_size = 0;
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) unlink(real);
    MPI_Barrier(MPI_COMM_WORLD);
    open_step(1);
    for (step = 0; step < STEPS; step++) {
        switch (draw(12)) {
        case 0: draw_view(); break;
        case 1: seek_step(); break;
        case 2: size_step(); break;
        case 3: ordered_step(); break;
        case 4: shared_step(); break;
        case 5: atomic_step(); break;
        case 6: draw(4) ? draw_view() : open_step(0); break;
        default: access_step();
        }
        /* What one has written others see after all have met. */
        MPI_Barrier(MPI_COMM_WORLD);
        if (draw(8) == 0) succeeds(MPI_File_sync(file)), check_file();
    }
    check_file();
    succeeds(MPI_File_close(&file));
}

int main(int argc, char **argv) {
    int all = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank), MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (size > RANKS_MAX || argc < 3) MPI_Abort(MPI_COMM_WORLD, 2);
    snprintf(path, sizeof path, "%s/random", argv[1]);
    const char *seen = getenv("FILES_REAL");
    snprintf(real, sizeof real, "%s/random", seen ? seen : argv[1]);
    for (int bytes = 1; bytes <= 4; bytes += 3) {
        MPI_Type_contiguous(bytes, MPI_BYTE, &etypes[bytes]), MPI_Type_commit(&etypes[bytes]);
        MPI_Type_create_resized(etypes[bytes], 0, STRIDE * bytes, &strided[bytes]), MPI_Type_commit(&strided[bytes]);
    }
    for (int i = 2; i < argc && !all; i++) {
        seed = strtoull(argv[i], NULL, 10);
        run();
        MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    }
    if (rank == 0) unlink(real);
    if (rank == 0) printf("random programs on a file, %d ranks, seeds %s to %s: %s\n", size, argv[2], argv[argc - 1], all ? "FAILED" : "ok");
    MPI_Finalize();
    return all != 0;
}
