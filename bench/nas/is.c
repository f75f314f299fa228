/* IS, integer sort: ranks of keys, by buckets that each rank has some of. */
#include <mpi.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "nas.h"

enum { ITERATIONS = 10, TESTED = 5, LOG_BUCKETS = 10, BUCKETS = 1 << LOG_BUCKETS };

struct problem {
    int log_keys, log_most;   /* logarithms of the number of keys, and of the bound on keys */
    int tested[TESTED];       /* keys whose ranks are known, by their index */
    int known[TESTED];        /* those ranks, without the iteration */
    int sign[TESTED];         /* in iteration i the rank is known + sign * i */
};

static const struct problem problems[] = {
    {16, 11, {48427, 17148, 23627, 62548, 4431}, {0, 18, 346, 64917, 65463}, {1, 1, 1, -1, -1}},
    {20, 16, {357773, 934767, 875723, 898999, 404505}, {1247, 11696, 1039987, 1043896, 1048018}, {1, 1, -1, -1, -1}},
    {23, 19, {2112377, 662041, 5336171, 3642833, 4250760}, {103, 17522, 123927, 8288933, 8388265}, {1, 1, 1, -1, -1}},
    {25, 21, {41869, 812306, 5102857, 18232239, 26860214}, {33422937, 10244, 59149, 33135281, 99}, {-1, 1, 1, -1, 1}},
};

struct sort {
    const struct problem *problem;
    int rank, size;
    int64_t first, keys;      /* own keys: index of the first, and how many */
    int32_t *key, *by_bucket; /* own keys, and the same by bucket */
    int32_t *taken, room;     /* keys of own buckets, from all ranks */
    int32_t taken_keys, least; /* how many they are, and the least key that belongs to own buckets */
    int32_t *below;           /* of each key from `least` on: how many keys of all ranks are less */
    int32_t range;            /* how many keys belong to own buckets */
};

/* The state of the generator after `count` numbers (see random.f90). */
static uint64_t state_after(uint64_t count) {
    const uint64_t whole = (UINT64_C(1) << 46) - 1;
    uint64_t state = 314159265, power = 1220703125;
    for (; count; count >>= 1, power = power * power & whole)
        if (count & 1) state = state * power & whole;
    return state;
}

static void *memory(size_t count, size_t size) {
    void *made = calloc(count ? count : 1, size);
    if (!made) {
        fprintf(stderr, "nas: no memory for %zu bytes\n", count * size);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    return made;
}

static void make_keys(struct sort *sort) {
    const uint64_t whole = (UINT64_C(1) << 46) - 1;
    uint64_t state = state_after(4 * (uint64_t)sort->first);
    double scale = (double)(1 << sort->problem->log_most) / 4;
    for (int64_t i = 0; i < sort->keys; i++) {
        double sum = 0;
        for (int j = 0; j < 4; j++) {
            state = state * 1220703125 & whole;
            sum += (double)state / (double)(UINT64_C(1) << 46);
        }
        sort->key[i] = (int32_t)(scale * sum);
    }
}

static void set_key(struct sort *sort, int64_t index, int32_t key) {
    if (index >= sort->first && index < sort->first + sort->keys) sort->key[index - sort->first] = key;
}

/* Gives each rank consecutive buckets with about as many keys as each other: `end` is the first bucket that is not its. */
static void share_buckets(const struct sort *sort, const int *all, int *end) {
    int64_t sum = 0, keys = INT64_C(1) << sort->problem->log_keys;
    int bucket = 0;
    for (int rank = 0; rank < sort->size; rank++) {
        int64_t until = keys * (rank + 1) / sort->size;
        while (bucket < BUCKETS && (sum < until || rank == sort->size - 1)) sum += all[bucket++];
        end[rank] = bucket;
    }
}

/* Sends each key to the rank that has its bucket. */
static void distribute(struct sort *sort) {
    static int own[BUCKETS], all[BUCKETS], at[BUCKETS];
    int shift = sort->problem->log_most - LOG_BUCKETS, size = sort->size;
    int counts[2][size], starts[2][size], end[size];
    memset(own, 0, sizeof own);
    for (int64_t i = 0; i < sort->keys; i++) own[sort->key[i] >> shift]++;
    MPI_Allreduce(own, all, BUCKETS, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    for (int bucket = 0, sum = 0; bucket < BUCKETS; sum += own[bucket++]) at[bucket] = sum;
    for (int64_t i = 0; i < sort->keys; i++) sort->by_bucket[at[sort->key[i] >> shift]++] = sort->key[i];
    share_buckets(sort, all, end);
    for (int rank = 0, bucket = 0; rank < size; rank++)
        for (counts[0][rank] = 0; bucket < end[rank]; bucket++) counts[0][rank] += own[bucket];
    MPI_Alltoall(counts[0], 1, MPI_INT, counts[1], 1, MPI_INT, MPI_COMM_WORLD);
    for (int way = 0; way < 2; way++)
        for (int rank = 0, sum = 0; rank < size; sum += counts[way][rank++]) starts[way][rank] = sum;
    sort->taken_keys = starts[1][size - 1] + counts[1][size - 1];
    if (sort->taken_keys > sort->room) {
        free(sort->taken);
        sort->room = sort->taken_keys;
        sort->taken = memory((size_t)sort->room, sizeof(int32_t));
    }
    MPI_Alltoallv(sort->by_bucket, counts[0], starts[0], MPI_INT32_T, sort->taken, counts[1], starts[1], MPI_INT32_T,
                  MPI_COMM_WORLD);
    int first_bucket = sort->rank ? end[sort->rank - 1] : 0;
    sort->least = first_bucket << shift;
    sort->range = (end[sort->rank] - first_bucket) << shift;
}

/* Ranks the keys of own buckets. */
static void rank_keys(struct sort *sort) {
    int64_t before = 0, taken = sort->taken_keys;
    MPI_Exscan(&taken, &before, 1, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    if (sort->rank == 0) before = 0;
    memset(sort->below, 0, (size_t)(sort->range + 1) * sizeof(int32_t));
    for (int32_t i = 0; i < sort->taken_keys; i++) sort->below[sort->taken[i] - sort->least + 1]++;
    sort->below[0] = (int32_t)before;
    for (int32_t i = 1; i <= sort->range; i++) sort->below[i] += sort->below[i - 1];
}

/* Returns how many of the tested keys have another rank than the specification says. Keys that other ranks have count there. */
static int wrong_ranks(const struct sort *sort, const int32_t *tested, int iteration) {
    const struct problem *problem = sort->problem;
    int wrong = 0;
    for (int i = 0; i < TESTED; i++) {
        int32_t index = tested[i] - sort->least;
        int32_t known = problem->known[i] + problem->sign[i] * iteration;
        if (index >= 0 && index < sort->range) wrong += sort->below[index] != known;
    }
    return wrong;
}

static int iterate(struct sort *sort, int iteration) {
    const struct problem *problem = sort->problem;
    int32_t own[TESTED], tested[TESTED];
    set_key(sort, iteration, iteration);
    set_key(sort, iteration + ITERATIONS, (1 << problem->log_most) - iteration);
    for (int i = 0; i < TESTED; i++) {
        int64_t index = problem->tested[i] - sort->first;
        own[i] = index >= 0 && index < sort->keys ? sort->key[index] : 0;
    }
    MPI_Allreduce(own, tested, TESTED, MPI_INT32_T, MPI_SUM, MPI_COMM_WORLD);
    distribute(sort);
    rank_keys(sort);
    return wrong_ranks(sort, tested, iteration);
}

/* Puts own keys in order by their ranks, and returns how many are out of order, also beside the next rank's. */
static int wrong_order(struct sort *sort) {
    int32_t first = sort->range ? sort->below[0] : 0, last = -1, greatest;
    int32_t *ordered = memory((size_t)sort->taken_keys, sizeof *ordered);
    for (int32_t i = 0; i < sort->taken_keys; i++) ordered[sort->below[sort->taken[i] - sort->least]++ - first] = sort->taken[i];
    int wrong = 0;
    for (int32_t i = 1; i < sort->taken_keys; i++) wrong += ordered[i] < ordered[i - 1];
    if (sort->taken_keys) last = ordered[sort->taken_keys - 1];
    MPI_Exscan(&last, &greatest, 1, MPI_INT32_T, MPI_MAX, MPI_COMM_WORLD);
    if (sort->rank > 0 && sort->taken_keys) wrong += ordered[0] < greatest;
    free(ordered);
    return wrong;
}

void nas_is(int number, double *seconds, int *right) {
    struct sort sort = {.problem = &problems[number]};
    MPI_Comm_rank(MPI_COMM_WORLD, &sort.rank);
    MPI_Comm_size(MPI_COMM_WORLD, &sort.size);
    int64_t keys = INT64_C(1) << sort.problem->log_keys;
    sort.first = keys * sort.rank / sort.size;
    sort.keys = keys * (sort.rank + 1) / sort.size - sort.first;
    sort.key = memory((size_t)sort.keys, sizeof(int32_t));
    sort.by_bucket = memory((size_t)sort.keys, sizeof(int32_t));
    sort.below = memory(((size_t)1 << sort.problem->log_most) + 1, sizeof(int32_t));
    make_keys(&sort);
    int wrong = iterate(&sort, 1); /* one iteration touches memory and connections */
    MPI_Barrier(MPI_COMM_WORLD);
    double start = MPI_Wtime();
    for (int iteration = 1; iteration <= ITERATIONS; iteration++) wrong += iterate(&sort, iteration);
    *seconds = MPI_Wtime() - start;
    wrong += wrong_order(&sort);
    int64_t sums[2] = {wrong, sort.taken_keys};
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_INT64_T, MPI_SUM, MPI_COMM_WORLD);
    *right = sums[0] == 0 && sums[1] == keys;
    free(sort.key);
    free(sort.by_bucket);
    free(sort.taken);
    free(sort.below);
}
