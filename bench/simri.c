/* An image by magnetic resonance, simulated (Simri; Benoit-Cattin et al. 2005). Few long tasks with short results: each is one line
   of the signal, to which all spins of the object contribute. Workers ask a master for lines. They have the object from the
   beginning, so a task is a number, and its result the samples of the line. Prints a line of JSON for the simulation.
   Usage: simri SECONDS RESULT_BYTES/MASTER..., where the master is a rank. A line has a sample for every 16 bytes of its result,
   and there are as many lines. Spins are as many as a core does in about a second for each second, but one per pixel at least. */
#include <complex.h>

#include "workers.h"

enum { TURNS = 16384, MOST_LINES = 256, MOST_MASTER = 1023 };

static const double pi = 3.14159265358979323846;

/* Times in ms of the spin echo: between two lines, and from the excitation to the echo. */
static const double repetition_ms = 500, echo_ms = 20;

/* A tissue: an ellipse with its density and relaxation times. Later ones replace what lies below them. */
static const struct tissue {
    double x, y, width, height, density, t1_ms, t2_ms;
} head[] = {
    {0, 0, 0.9, 0.7, 0.3, 250, 70}, {0, 0, 0.83, 0.63, 0.8, 900, 100}, {0.1, 0, 0.5, 0.4, 0.7, 600, 80},
    {-0.2, 0.15, 0.2, 0.1, 1, 2500, 1500}, {-0.2, -0.15, 0.2, 0.1, 1, 2500, 1500}, {0.4, 0.1, 0.08, 0.08, 0.9, 1200, 200},
};

/* The object, and the signal that the master has. */
struct scan {
    int lines, side;      /* lines of the image, and spins along a side of the object */
    double *spins;        /* transverse magnetisation at the echo, row by row */
    double complex *seen; /* samples of all lines */
    int results;
};

/* The number of a line, and its samples. */
struct line {
    double number;
    double complex samples[];
};

static double angle_of(const struct scan *scan, int spin) { return 2 * pi * ((spin + 0.5) / scan->side - 0.5); }

static void make_spins(struct scan *scan) {
    for (int row = 0; row < scan->side; row++)
        for (int column = 0; column < scan->side; column++) {
            double y = angle_of(scan, row) / pi, x = angle_of(scan, column) / pi, *spin = &scan->spins[(long)row * scan->side + column];
            for (size_t i = 0; i < sizeof head / sizeof *head; i++) {
                const struct tissue *at = &head[i];
                if (pow((x - at->x) / at->width, 2) + pow((y - at->y) / at->height, 2) <= 1)
                    *spin = at->density * (1 - exp(-repetition_ms / at->t1_ms)) * exp(-echo_ms / at->t2_ms);
            }
        }
}

static void make_line(void *scan, int number, char *task) {
    double line = number - 1;
    (void)scan;
    memcpy(task, &line, sizeof line);
}

/* The samples of a line: the gradients have turned each spin by its place times the frequencies of line and sample. */
static void simulate_line(void *state, const char *task, char *result) {
    struct scan *scan = state;
    struct line *line = (struct line *)result;
    memcpy(&line->number, task, sizeof line->number);
    double frequency = line->number - scan->lines / 2;
    for (int i = 0; i < scan->lines; i++) line->samples[i] = 0;
    for (int row = 0; row < scan->side; row++)
        for (int column = 0; column < scan->side; column++) {
            double x = angle_of(scan, column), phase = frequency * angle_of(scan, row) - scan->lines / 2 * x;
            double turn[] = {cos(x), -sin(x)}, spin[] = {cos(phase), -sin(phase)};
            double size = scan->spins[(long)row * scan->side + column];
            for (int i = 0; i < scan->lines; i++) {
                line->samples[i] += size * spin[0] + size * spin[1] * I;
                double real = spin[0] * turn[0] - spin[1] * turn[1];
                spin[1] = spin[0] * turn[1] + spin[1] * turn[0];
                spin[0] = real;
            }
        }
}

static void take_line(void *state, const char *result) {
    struct scan *scan = state;
    const struct line *line = (const struct line *)result;
    long number = (long)line->number;
    if (number < 0 || number >= scan->lines) return;
    memcpy(scan->seen + number * scan->lines, line->samples, (size_t)scan->lines * sizeof *line->samples);
    scan->results++;
}

/* Weight of a line or sample in the check; each has another. */
static double weight(int number) { return 1 + 0.5 * sin(number); }

/* Sum of the weights, each turned by its frequency times an angle. */
static double complex weights_at(const struct scan *scan, double angle) {
    double complex sum = 0;
    for (int i = 0; i < scan->lines; i++) sum += weight(i) * cexp(-I * (i - scan->lines / 2) * angle);
    return sum;
}

/* The weighted sum of all samples is that of all spins, each times its weights along both axes. */
static int is_right(const struct scan *scan) {
    double complex seen = 0, expected = 0;
    double size = 0;
    double complex *along = malloc((size_t)scan->side * sizeof *along);
    if (!along || scan->results != scan->lines) {
        free(along);
        return 0;
    }
    for (int i = 0; i < scan->side; i++) along[i] = weights_at(scan, angle_of(scan, i));
    for (int row = 0; row < scan->side; row++)
        for (int column = 0; column < scan->side; column++) {
            double complex part = scan->spins[(long)row * scan->side + column] * along[row] * along[column];
            expected += part;
            size += cabs(part);
        }
    for (int line = 0; line < scan->lines; line++)
        for (int i = 0; i < scan->lines; i++) seen += weight(line) * weight(i) * scan->seen[(long)line * scan->lines + i];
    free(along);
    return cabs(seen - expected) <= 1e-9 * size;
}

static void measure(struct program_case asked, int rank, int size, double seconds) {
    int lines = (int)(asked.bytes / (long)sizeof(double complex)), master = (int)asked.count, own = 0, right = 0;
    /* Every sample takes a turn of each spin: lines * lines * side * side of them. */
    struct scan scan = {.lines = lines, .side = (int)fmax(TURNS * sqrt(seconds) / lines, lines)};
    scan.spins = calloc((size_t)scan.side * (size_t)scan.side, sizeof *scan.spins);
    scan.seen = calloc((size_t)lines * (size_t)lines, sizeof *scan.seen);
    int *done = calloc((size_t)size, sizeof *done);
    if (!scan.spins || !scan.seen || !done) {
        fprintf(stderr, "simri: no memory for %d lines\n", lines);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    make_spins(&scan);
    struct workers workers = {.master = master, .tasks = lines, .task_bytes = sizeof(double), .state = &scan, .make = make_line};
    workers.result_bytes = (int)(sizeof(struct line) + (size_t)lines * sizeof *scan.seen);
    workers.work = simulate_line;
    workers.take = take_line;
    MPI_Barrier(MPI_COMM_WORLD);
    double begin = clock_system_s();
    if (rank == master)
        workers_serve(&workers, size);
    else
        own = workers_work(&workers);
    MPI_Barrier(MPI_COMM_WORLD);
    double end = clock_system_s();
    if (rank == master) right = is_right(&scan);
    MPI_Bcast(&right, 1, MPI_INT, master, MPI_COMM_WORLD);
    MPI_Gather(&own, 1, MPI_INT, done, 1, MPI_INT, 0, MPI_COMM_WORLD);
    if (rank == 0 && !right) missing_print("simulating", asked.bytes, asked.count, "the result came out wrong");
    if (rank == 0 && right) workers_print("simulating", asked, end - begin, "lines", 1, done, size);
    free(scan.spins);
    free(scan.seen);
    free(done);
}

int main(int argc, char **argv) {
    int size, rank = program_start("simri", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("simri", "the time", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc; i++) {
        struct program_case asked = program_case("simri", argv[i], (struct program_case){MOST_LINES * sizeof(double complex), MOST_MASTER});
        int has_line = asked.bytes >= (long)sizeof(double complex);
        if (asked.count < size && has_line)
            measure(asked, rank, size, seconds);
        else if (rank == 0)
            missing_print("simulating", asked.bytes, asked.count, has_line ? "there is no such rank" : "there is no line");
    }
    return program_end(0);
}
