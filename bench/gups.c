/* Random access to a table that all ranks hold together, as the HPC Challenge defines it (Luszczek et al. 2005). Each rank
   takes its part of a fixed sequence of pseudo-random words, and combines each word by exclusive or with the entry that
   the word selects. At most 1024 updates of a rank are not yet in the table. Each update is an accumulate. Afterwards all
   updates are made again, which restores the table: a lost one shows. Prints a line of JSON for each size.
   Usage: gups SECONDS_PER_SIZE BYTES_PER_RANK... */
#include "program.h"

enum { AHEAD = 1024, SAMPLES = 10, MOST_BATCHES = 64 };

/* The sequence: powers of x modulo x^64 + x^2 + x + 1, over two elements. */
static uint64_t next(uint64_t word) { return word << 1 ^ (word >> 63 ? 7 : 0); }

static uint64_t product(uint64_t one, uint64_t other) {
    uint64_t sum = 0;
    for (; other; other >>= 1, one = next(one)) sum ^= other & 1 ? one : 0;
    return sum;
}

static uint64_t word_at(uint64_t index) {
    uint64_t power = 1, base = 2;
    for (; index; index >>= 1, base = product(base, base)) power = index & 1 ? product(power, base) : power;
    return power;
}

struct table {
    MPI_Win window;
    uint64_t *own, words; /* words of each rank */
    uint64_t word;        /* the last of the sequence */
    int rank, size;
};

static void update(struct table *table, int batches) {
    static uint64_t words[AHEAD]; /* in place until they have left */
    uint64_t all = table->words * (uint64_t)table->size;
    for (; batches > 0; batches--) {
        for (int i = 0; i < AHEAD; i++) {
            words[i] = table->word = next(table->word);
            uint64_t entry = words[i] % all;
            MPI_Accumulate(&words[i], 1, MPI_UINT64_T, (int)(entry / table->words), (MPI_Aint)(entry % table->words), 1,
                           MPI_UINT64_T, MPI_BXOR, table->window);
        }
        MPI_Win_flush_all(table->window);
    }
}

/* All ranks update at once. Returns the time of an update of any of them. */
static double sample_us(struct table *table, int batches) {
    MPI_Barrier(MPI_COMM_WORLD);
    uint64_t start = clock_ticks();
    update(table, batches);
    MPI_Barrier(MPI_COMM_WORLD);
    return samples_us(clock_ticks() - start, 1) / ((double)batches * AHEAD * table->size);
}

/* Makes all updates again, and returns the number of entries that are then wrong, of all ranks. */
static uint64_t verify(struct table *table, uint64_t first, int batches) {
    uint64_t wrong = 0, all;
    table->word = first;
    update(table, batches);
    MPI_Barrier(MPI_COMM_WORLD);
    MPI_Win_sync(table->window);
    for (uint64_t i = 0; i < table->words; i++) wrong += table->own[i] != (uint64_t)table->rank * table->words + i;
    MPI_Allreduce(&wrong, &all, 1, MPI_UINT64_T, MPI_SUM, MPI_COMM_WORLD);
    return all;
}

static struct table make(long bytes, int rank, int size) {
    struct table table = {.words = (uint64_t)bytes / sizeof(uint64_t), .rank = rank, .size = size};
    MPI_Info info;
    MPI_Info_create(&info);
    MPI_Info_set(info, "accumulate_ordering", "none");
    MPI_Info_set(info, "accumulate_ops", "same_op");
    MPI_Win_allocate(bytes, sizeof(uint64_t), info, MPI_COMM_WORLD, &table.own, &table.window);
    MPI_Info_free(&info);
    for (uint64_t i = 0; i < table.words; i++) table.own[i] = (uint64_t)rank * table.words + i;
    MPI_Win_lock_all(0, table.window);
    MPI_Win_sync(table.window);
    MPI_Barrier(MPI_COMM_WORLD);
    return table;
}

static void measure(long bytes, int rank, int size, double seconds) {
    static struct samples samples;
    struct table table = make(bytes, rank, size);
    /* The sequence has four words for each entry, and a rank takes as many as each other. */
    uint64_t first = table.word = word_at(4 * table.words * (uint64_t)rank);
    int batches = 1, done = 1;
    samples_clear(&samples);
    samples.first_us = sample_us(&table, 1);
    double one_s = 1e-6 * samples.first_us * AHEAD * size;
    batches = (int)fmin(fmax(seconds / SAMPLES / one_s, 1), MOST_BATCHES);
    MPI_Bcast(&batches, 1, MPI_INT, 0, MPI_COMM_WORLD);
    double start_s = clock_system_s();
    for (int ends = 0; !ends; done += batches) {
        samples.us[samples.count++] = sample_us(&table, batches);
        ends = samples.count == SAMPLES_ROOM || (samples.count >= SAMPLES_LEAST && clock_system_s() - start_s >= seconds);
        MPI_Bcast(&ends, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    uint64_t wrong = verify(&table, first, done);
    MPI_Win_unlock_all(table.window);
    MPI_Win_free(&table.window);
    if (rank > 0) return;
    if (wrong) {
        missing_print("random access", bytes, 1, "the result came out wrong");
        return;
    }
    struct summary summary = samples_summary(&samples);
    summary_print("random access", bytes, 1, &summary);
}

int main(int argc, char **argv) {
    int size, rank = program_start("gups", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("gups", "the time per size", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc; i++) {
        long bytes = (long)program_number("gups", "size", argv[i], PROGRAM_MOST_BYTES);
        if (bytes % (long)sizeof(uint64_t)) {
            fprintf(stderr, "gups: `%s` is no multiple of 8 bytes\n", argv[i]);
            MPI_Abort(MPI_COMM_WORLD, 2);
        }
        measure(bytes, rank, size, seconds);
    }
    return program_end(0);
}
