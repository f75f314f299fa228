/* Runs kernels of the NAS Parallel Benchmarks. Prints a line of JSON for each.
   Usage: nas SECONDS KERNEL/CLASS..., by their numbers: 2/1 is CG of class W. The seconds are not used: a kernel runs once. */
#include "../program.h"
#include "nas.h"

struct kernel {
    const char *name;
    void (*run)(int problem, double *seconds, int *right);
    enum { ANY, POWER_OF_TWO, SQUARE } ranks; /* numbers of ranks that it runs on */
};

static const struct kernel kernels[] = {
    {"EP", nas_ep, ANY},          {"IS", nas_is, ANY},          {"CG", nas_cg, POWER_OF_TWO}, {"MG", nas_mg, POWER_OF_TWO},
    {"FT", nas_ft, POWER_OF_TWO}, {"LU", nas_lu, POWER_OF_TWO}, {"BT", nas_bt, SQUARE},       {"SP", nas_sp, SQUARE},
};

enum { KERNELS = sizeof kernels / sizeof kernels[0], CLASSES = 4, MOST_RANKS = 32 };

static int is_square(int size) {
    int root = 1;
    while (root * root < size) root++;
    return root * root == size;
}

/* Returns why a kernel does not run on a number of ranks, or null. */
static const char *refusal(const struct kernel *kernel, int size) {
    if (size > MOST_RANKS) return "it runs on at most 32 ranks";
    if (kernel->ranks == POWER_OF_TWO && (size & (size - 1))) return "it runs on a power of two of ranks";
    if (kernel->ranks == SQUARE && !is_square(size)) return "it runs on a square number of ranks";
    return NULL;
}

static void run(int number, int problem, int rank, int size) {
    static struct samples samples;
    const struct kernel *kernel = &kernels[number];
    const char *reason = refusal(kernel, size);
    double seconds = 0;
    int right = 0;
    if (!reason) {
        MPI_Pcontrol(number + 2);
        kernel->run(problem, &seconds, &right);
        MPI_Allreduce(MPI_IN_PLACE, &seconds, 1, MPI_DOUBLE, MPI_MAX, MPI_COMM_WORLD);
        if (!right) reason = "the result came out wrong";
    }
    if (rank > 0) return;
    if (reason) {
        missing_print(kernel->name, number, problem, reason);
        return;
    }
    samples_clear(&samples);
    samples.us[samples.count++] = samples.first_us = 1e6 * seconds;
    struct summary summary = samples_summary(&samples);
    summary_print(kernel->name, number, problem, &summary);
}

int main(int argc, char **argv) {
    int size, rank = program_start_on("nas", 1, &argc, &argv, &size);
    for (int i = 2; i < argc; i++) {
        struct program_case asked = program_case("nas", argv[i], (struct program_case){KERNELS - 1, CLASSES - 1});
        run((int)asked.bytes, (int)asked.count, rank, size);
    }
    return program_end(0);
}
