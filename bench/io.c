/* Files by all ranks, beside pwrite and pread by as many processes. Every operation writes, or reads, the same file: its
   bytes follow from their offsets. Operations differ in which bytes a rank has:

       contiguous   one part of the file each
       one rank     the part of the first rank alone, also non-blocking beside as much computing
       1 KiB, 16 B  blocks of all ranks by turns, in a collective call
       nested       rows of a cube, one slab in two directions each, in a collective call (as BT-IO has them)

   All operations are measured in turn, so that other load affects them alike. Those of one rank follow each other, and
   the first of them is repeated before: behind those of all, caches hold other data, and ranks that wait poll for longer. `share` is the speed, as a part of that of
   pwrite or pread. `hidden` is the part of the shorter of access and computing that the other hides (as in `overlap.c`); pwrite or
   pread by a thread that waits for work shows how much can be hidden here. A case is the number of bytes of a rank
   and the place: 0 is /dev/shm, 1 the folder of this program. 2 is that folder too, where the first half of the ranks sees it: the
   others name a folder that does not exist. Usage: io SECONDS_PER_OPERATION BYTES/PLACE... */
#include <errno.h>
#include <fcntl.h>
#include <libgen.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>

#include "compute.h"
#include "program.h"

enum layout { CONTIGUOUS, BLOCKS_1K, BLOCKS_16, NESTED, LAYOUTS };
enum call { PLAIN, PLAIN_ONE, OWN_ONE, OWN, COLLECTIVE, NONBLOCKING, THREAD };
/* The accesses in the table of operations that are begun beside computing. */
enum { ONE_PLAIN = 1, ONE_OWN = 2, OPERATIONS = 10, DIRECTIONS = 2, ELEMENT = 40, PLACES = 3, ONE_SIDE = 2, TRIALS = 5, WORD = sizeof(uint64_t), TMPFS_MAGIC_NUMBER = 0x01021994 };

static const struct operation {
    const char *names[DIRECTIONS];
    int layout, call;
} operations[OPERATIONS] = {
    {{"pwrite", "pread"}, CONTIGUOUS, PLAIN},
    {{"pwrite, one rank", "pread, one rank"}, CONTIGUOUS, PLAIN_ONE},
    {{"write, one rank", "read, one rank"}, CONTIGUOUS, OWN_ONE},
    {{"iwrite, one computes", "iread, one computes"}, CONTIGUOUS, NONBLOCKING},
    {{"pwrite by a thread, one computes", "pread by a thread, one computes"}, CONTIGUOUS, THREAD},
    {{"write", "read"}, CONTIGUOUS, OWN},
    {{"write_all", "read_all"}, CONTIGUOUS, COLLECTIVE},
    {{"write_all, 1 KiB", "read_all, 1 KiB"}, BLOCKS_1K, COLLECTIVE},
    {{"write_all, 16 B", "read_all, 16 B"}, BLOCKS_16, COLLECTIVE},
    {{"write_all, nested", "read_all, nested"}, NESTED, COLLECTIVE},
};

struct job {
    char path[4096];
    int rank, size, place, plain, side; /* descriptor; elements on a side of the cube */
    long bytes;                  /* of each rank */
    MPI_File files[LAYOUTS]; /* the same file, each with a view */
    MPI_Comm node;
    MPI_Datatype types[LAYOUTS];
    uint64_t *out[LAYOUTS], *in;
    double alone_us[DIRECTIONS]; /* of the access of one rank: as long it computes */
};

/* True if it runs beside computing. */
static int is_beside(const struct operation *operation) { return operation->call == NONBLOCKING || operation->call == THREAD; }

/* True if the first rank alone accesses the file. Beside computing, more ranks than cores would hide nothing. */
static int is_one(const struct operation *operation) {
    return operation->call == PLAIN_ONE || operation->call == OWN_ONE || is_beside(operation);
}

/* True if the operation is measured. Where some ranks do not see the file, these are those of all ranks, without those whose blocks
   are alike. */
static int is_measured(const struct job *job, const struct operation *operation) {
    int is_of_all = operation->call == PLAIN || operation->call == OWN || operation->call == COLLECTIVE;
    return job->place != ONE_SIDE || (is_of_all && operation->layout <= BLOCKS_1K);
}

static void demand(const char *what, int done) {
    if (done) return;
    fprintf(stderr, "io: %s: %s\n", what, strerror(errno));
    MPI_Abort(MPI_COMM_WORLD, 1);
}

static uint64_t word_at(MPI_Offset offset) { return ((uint64_t)offset / WORD + 1) * 0x9e3779b97f4a7c15u; }

/* Bytes that the layout has of each rank: whole blocks, or a cube. */
static long bytes_of(const struct job *job, int layout) {
    return layout == NESTED ? (long)job->side * job->side * (job->side / job->size) * ELEMENT : job->bytes;
}

/* Offset in the file of byte `at` of this rank's data. */
static MPI_Offset offset_of(const struct job *job, int layout, long at) {
    long block = layout == BLOCKS_1K ? 1024 : 16, row = (long)job->side / job->size * ELEMENT;
    if (layout == CONTIGUOUS) return (MPI_Offset)job->rank * job->bytes + at;
    if (layout != NESTED) return (MPI_Offset)(at / block * job->size + job->rank) * block + at % block;
    long rows = at / row, plane = rows / job->side;
    long column = (job->rank + plane / (job->side / job->size)) % job->size;
    return (MPI_Offset)rows * job->side * ELEMENT + column * row + at % row;
}

/* The nested one: in each slab of planes, a slab of columns, the next one for the next. */
static MPI_Datatype nested(const struct job *job) {
    enum { SLABS_MOST = 64 };
    int part = job->side / job->size, lengths[SLABS_MOST];
    MPI_Datatype cells[SLABS_MOST], element, type;
    MPI_Aint places[SLABS_MOST];
    MPI_Type_contiguous(ELEMENT, MPI_BYTE, &element);
    for (int slab = 0; slab < job->size; slab++) {
        int sizes[] = {job->side, job->side, job->side}, parts[] = {part, job->side, part};
        int starts[] = {slab * part, 0, (job->rank + slab) % job->size * part};
        MPI_Type_create_subarray(3, sizes, parts, starts, MPI_ORDER_C, element, &cells[slab]);
        lengths[slab] = 1, places[slab] = 0;
    }
    MPI_Type_create_struct(job->size, lengths, places, cells, &type);
    for (int slab = 0; slab < job->size; slab++) MPI_Type_free(&cells[slab]);
    MPI_Type_free(&element);
    return type;
}

static MPI_Datatype blocks(const struct job *job, int block) {
    MPI_Datatype bytes, type;
    int place = job->rank * block;
    MPI_Type_create_indexed_block(1, block, &place, MPI_BYTE, &bytes);
    MPI_Type_create_resized(bytes, 0, (MPI_Aint)job->size * block, &type);
    MPI_Type_free(&bytes);
    return type;
}

static void set_view(struct job *job, int layout) {
    MPI_Offset first = layout == CONTIGUOUS ? (MPI_Offset)job->rank * job->bytes : 0;
    demand("MPI_File_set_view", MPI_File_set_view(job->files[layout], first, MPI_BYTE, job->types[layout], "native", MPI_INFO_NULL) == MPI_SUCCESS);
}

/* pwrite or pread, to the end. */
static void plain(struct job *job, int writes) {
    char *data = (char *)(writes ? job->out[CONTIGUOUS] : job->in);
    for (long done = 0; done < job->bytes;) {
        off_t at = (off_t)job->rank * job->bytes + done;
        size_t rest = (size_t)(job->bytes - done);
        ssize_t moved = writes ? pwrite(job->plain, data + done, rest, at) : pread(job->plain, data + done, rest, at);
        demand("a plain access", moved > 0);
        done += moved;
    }
}

static void access_file(struct job *job, const struct operation *operation, int writes) {
    int bytes = (int)bytes_of(job, operation->layout), is_collective = operation->call == COLLECTIVE, error;
    void *out = job->out[operation->layout];
    MPI_File file = job->files[operation->layout];
    if (is_collective) error = writes ? MPI_File_write_at_all(file, 0, out, bytes, MPI_BYTE, MPI_STATUS_IGNORE)
                                      : MPI_File_read_at_all(file, 0, job->in, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    else error = writes ? MPI_File_write_at(file, 0, out, bytes, MPI_BYTE, MPI_STATUS_IGNORE)
                        : MPI_File_read_at(file, 0, job->in, bytes, MPI_BYTE, MPI_STATUS_IGNORE);
    demand(operation->names[!writes], error == MPI_SUCCESS);
}

/* The access, begun before as much computing and ended after it. */
static void overlapped(struct job *job, int writes) {
    MPI_Request request;
    int bytes = (int)job->bytes;
    if (writes) MPI_File_iwrite_at(job->files[CONTIGUOUS], 0, job->out[CONTIGUOUS], bytes, MPI_BYTE, &request);
    else MPI_File_iread_at(job->files[CONTIGUOUS], 0, job->in, bytes, MPI_BYTE, &request);
    compute_us(job->alone_us[!writes]);
    demand("MPI_Wait", MPI_Wait(&request, MPI_STATUS_IGNORE) == MPI_SUCCESS);
}

/* The thread that makes plain calls for the first rank, and its next one. */
static struct {
    pthread_mutex_t lock;
    pthread_cond_t changes;
    struct job *job;
    int writes;
} helper = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_COND_INITIALIZER, NULL, 0};

static void *help(void *nothing) {
    pthread_mutex_lock(&helper.lock);
    for (;;) {
        while (!helper.job) pthread_cond_wait(&helper.changes, &helper.lock);
        pthread_mutex_unlock(&helper.lock);
        plain(helper.job, helper.writes);
        pthread_mutex_lock(&helper.lock);
        helper.job = NULL;
        pthread_cond_signal(&helper.changes);
    }
    return nothing;
}

/* A plain call of that thread, beside as much computing. */
static void helped(struct job *job, int writes) {
    pthread_mutex_lock(&helper.lock);
    helper.job = job, helper.writes = writes;
    pthread_cond_signal(&helper.changes);
    pthread_mutex_unlock(&helper.lock);
    compute_us(job->alone_us[!writes]);
    pthread_mutex_lock(&helper.lock);
    while (helper.job) pthread_cond_wait(&helper.changes, &helper.lock);
    pthread_mutex_unlock(&helper.lock);
}

static void carry_out(struct job *job, const struct operation *operation, int writes) {
    if (operation->call == PLAIN || operation->call == PLAIN_ONE) plain(job, writes);
    else if (operation->call == NONBLOCKING) overlapped(job, writes);
    else if (operation->call == THREAD) helped(job, writes);
    else access_file(job, operation, writes);
}

/* One operation of all ranks. Returns its time until all have ended, from the first one of this node to begin: with more ranks
   than cores, some have ended when others begin. */
static double once(struct job *job, const struct operation *operation, int writes) {
    MPI_Barrier(MPI_COMM_WORLD);
    int is_idle = is_one(operation) && job->rank > 0;
    uint64_t start = is_idle ? UINT64_MAX : clock_ticks();
    if (!is_idle) carry_out(job, operation, writes);
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t end = clock_ticks();
    MPI_Allreduce(MPI_IN_PLACE, &start, 1, MPI_UINT64_T, MPI_MIN, job->node);
    return samples_us(end - start, 1);
}

/* True if the bytes of this rank are right: in the file, or in the memory they were read to. */
static int is_right(const struct job *job, int layout, int writes, long bytes) {
    struct stat status;
    int right = 1;
    demand("fstat", fstat(job->plain, &status) == 0);
    if (bytes == 0 || !writes) {
        for (long at = 0; at < bytes; at += WORD) right &= job->in[at / WORD] == word_at(offset_of(job, layout, at));
        return right;
    }
    if (offset_of(job, layout, bytes - WORD) + WORD > status.st_size) return 0;
    char *file = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED, job->plain, 0);
    demand("mmap", file != MAP_FAILED);
    for (long at = 0; at < bytes; at += WORD) {
        MPI_Offset offset = offset_of(job, layout, at);
        uint64_t word;
        memcpy(&word, file + offset, WORD);
        right &= word == word_at(offset);
    }
    munmap(file, (size_t)status.st_size);
    return right;
}

/* The first of an operation, whose result is checked. */
static int try_once(struct job *job, const struct operation *operation, int writes, double *first_us) {
    if (writes && job->rank == 0) demand("ftruncate", ftruncate(job->plain, 0) == 0);
    memset(job->in, 0, (size_t)job->bytes);
    MPI_Barrier(MPI_COMM_WORLD);
    *first_us = once(job, operation, writes);
    int right, all;
    right = is_right(job, operation->layout, writes, is_one(operation) && job->rank > 0 ? 0 : bytes_of(job, operation->layout));
    MPI_Allreduce(&right, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    /* The next ones find the whole file. */
    if (writes) plain(job, 1);
    MPI_Barrier(MPI_COMM_WORLD);
    return all;
}

/* Prints an operation, with its speed as a part of that of plain calls. */
static void print(const struct job *job, int index, int direction, const struct summary *all) {
    const struct operation *operation = &operations[index];
    const struct summary *own = &all[index], *plain = &all[is_one(operation)];
    double part = (double)bytes_of(job, operation->layout) / (double)job->bytes;
    summary_begin(operation->names[direction], job->bytes, job->place, own);
    printf(", \"share\": %.6f", part * plain->median / own->median);
    if (is_beside(operation)) {
        double access = all[operation->call == THREAD ? ONE_PLAIN : ONE_OWN].p25, computing = job->alone_us[direction];
        printf(", \"parts\": {\"hidden\": %.6f}", (access + computing - own->p25) / fmin(access, computing));
    }
    printf("}\n");
    fflush(stdout);
}

/* All operations of a direction, in turn. */
static void measure(struct job *job, double seconds, int direction) {
    static struct samples samples[OPERATIONS];
    int right[OPERATIONS], writes = direction == 0;
    struct summary summaries[OPERATIONS];
    for (int i = 0; i < OPERATIONS; i++) {
        samples_clear(&samples[i]);
        if (!is_measured(job, &operations[i])) continue;
        right[i] = try_once(job, &operations[i], writes, &samples[i].first_us);
        for (int k = 0; k < TRIALS && i == ONE_OWN; k++) {
            double us = once(job, &operations[i], writes);
            job->alone_us[direction] = k == 0 ? us : fmin(us, job->alone_us[direction]);
        }
    }
    double start = clock_system_s();
    for (int ends = 0; !ends;) {
        for (int i = 0; i < OPERATIONS; i++) {
            if (!is_measured(job, &operations[i])) continue;
            for (int k = 0; k < TRIALS && i == ONE_PLAIN; k++) once(job, &operations[i], writes);
            samples[i].us[samples[i].count++] = once(job, &operations[i], writes);
        }
        int count = samples[0].count;
        ends = count == SAMPLES_ROOM || (count >= SAMPLES_LEAST && clock_system_s() - start >= seconds * OPERATIONS);
        MPI_Bcast(&ends, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    for (int i = 0; i < OPERATIONS && job->rank == 0; i++) {
        if (!is_measured(job, &operations[i])) continue;
        summaries[i] = samples_summary(&samples[i]);
        if (right[i]) print(job, i, direction, summaries);
        else missing_print(operations[i].names[direction], job->bytes, job->place, "the result came out wrong");
    }
}

/* Opens the file for a layout. False if the library cannot, where some ranks do not see it. */
static int open_file(struct job *job, int layout) {
    char unseen[sizeof job->path + 16];
    snprintf(unseen, sizeof unseen, "%s-unseen/file", job->path);
    int sees = job->place != ONE_SIDE || job->rank < job->size / 2;
    int mode = MPI_MODE_CREATE | MPI_MODE_RDWR, is_open, all;
    is_open = MPI_File_open(MPI_COMM_WORLD, sees ? job->path : unseen, mode, MPI_INFO_NULL, &job->files[layout]) == MPI_SUCCESS;
    MPI_Allreduce(&is_open, &all, 1, MPI_INT, MPI_LAND, MPI_COMM_WORLD);
    demand(job->path, all || job->place == ONE_SIDE);
    if (all) set_view(job, layout);
    return all;
}

/* Fills the data of all layouts, and opens the file both ways. False if the library cannot open it. */
static int begin(struct job *job) {
    size_t room = (size_t)job->bytes;
    job->side = (int)(cbrt((double)job->bytes * job->size / ELEMENT)) / job->size * job->size;
    errno = 0;
    demand("the size is too small for so many ranks", job->side > 0);
    for (int layout = 0; layout < LAYOUTS; layout++) {
        job->out[layout] = (uint64_t *)program_memory("io", room);
        for (long at = 0; at < bytes_of(job, layout); at += WORD)
            job->out[layout][at / WORD] = word_at(offset_of(job, layout, at));
    }
    job->in = (uint64_t *)program_memory("io", room);
    MPI_Type_dup(MPI_BYTE, &job->types[CONTIGUOUS]);
    job->types[BLOCKS_1K] = blocks(job, 1024), job->types[BLOCKS_16] = blocks(job, 16), job->types[NESTED] = nested(job);
    for (int layout = 0; layout < LAYOUTS; layout++) MPI_Type_commit(&job->types[layout]);
    job->plain = open(job->path, O_RDWR | O_CREAT, 0666);
    demand(job->path, job->plain >= 0);
    MPI_Barrier(MPI_COMM_WORLD);
    int is_open = 1;
    for (int layout = 0; layout < LAYOUTS; layout++) {
        job->files[layout] = MPI_FILE_NULL;
        is_open = is_open && open_file(job, layout);
    }
    return is_open;
}

static void end(struct job *job) {
    close(job->plain);
    for (int layout = 0; layout < LAYOUTS; layout++) {
        if (job->files[layout] != MPI_FILE_NULL) MPI_File_close(&job->files[layout]);
        MPI_Type_free(&job->types[layout]), free(job->out[layout]);
    }
    if (job->rank == 0) unlink(job->path);
    free(job->in);
}

/* Chooses the file, the same for all ranks. Returns false if the place is not what it should be. */
static int find_place(struct job *job, char *program, int place) {
    struct statfs system;
    job->place = place;
    int is_there = 1;
    if (job->rank == 0) {
        char *folder = place == 0 ? "/dev/shm" : dirname(program);
        snprintf(job->path, sizeof job->path, "%s/canele-io-%d", folder, (int)getpid());
        demand(folder, statfs(folder, &system) == 0);
        is_there = (system.f_type == TMPFS_MAGIC_NUMBER) == (place == 0);
    }
    MPI_Bcast(job->path, sizeof job->path, MPI_CHAR, 0, MPI_COMM_WORLD);
    MPI_Bcast(&is_there, 1, MPI_INT, 0, MPI_COMM_WORLD);
    return is_there;
}

int main(int argc, char **argv) {
    struct job job = {.side = 0};
    job.rank = program_start("io", &argc, &argv, &job.size);
    double seconds = argc > 1 ? program_number("io", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    compute_calibrate();
    MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &job.node);
    pthread_t thread;
    demand("a thread", (errno = pthread_create(&thread, NULL, help, NULL)) == 0);
    for (int i = 2; i < argc; i++) {
        char program[4096];
        struct program_case asked = program_case("io", argv[i], (struct program_case){PROGRAM_MOST_BYTES, PLACES - 1});
        if (asked.bytes < 4096 || asked.bytes % 1024 || job.size > 64) {
            fprintf(stderr, "io: `%s`: sizes are multiples of 1024 bytes from 4096 on, on up to 64 ranks\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        snprintf(program, sizeof program, "%s", argv[0]);
        job.bytes = asked.bytes;
        const char *lacks = asked.count > 0 ? "the folder of the program is on a tmpfs" : "/dev/shm is no tmpfs";
        if (find_place(&job, program, (int)asked.count)) {
            int is_open = begin(&job);
            for (int direction = 0; direction < DIRECTIONS && is_open; direction++) measure(&job, seconds, direction);
            end(&job);
            if (is_open) continue;
            lacks = "a file that some ranks do not see is refused";
        }
        for (int direction = 0; direction < DIRECTIONS && job.rank == 0; direction++)
            for (int k = 0; k < OPERATIONS; k++)
                if (is_measured(&job, &operations[k])) missing_print(operations[k].names[direction], asked.bytes, asked.count, lacks);
    }
    MPI_Comm_free(&job.node);
    return program_end(0);
}
