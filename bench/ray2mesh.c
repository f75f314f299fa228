/* Seismic rays traced through a layered Earth, and a mesh of how long they are in each cell (ray2mesh; Grunberg, Genaud and
   Mongenet 2004). A master hands out sets of 1000 rays, 69 kB each, to workers that ask for them. Afterwards each rank gets its
   part of the mesh from all others, by non-blocking messages, and adds it up. Prints lines of JSON for computing, merging and both.
   Usage: ray2mesh SECONDS MESH_BYTES/MASTER..., where the master is a rank. There are 100 sets for each second. */
#include "workers.h"

enum { SET = 1000, RAY_BYTES = 69, SETS_PER_SECOND = 100, MOST_MASTER = 1023, LAYERS = 7, TAG_PART = 3 };

static const double pi = 3.14159265358979323846;

/* Outer radius of each layer in km and the speed of waves there in km/s, from the surface to the core. */
static const double radii[LAYERS + 1] = {6371, 6346, 6151, 5971, 5701, 4800, 4000, 3480};
static const double speeds[LAYERS] = {6.0, 8.1, 8.7, 9.7, 11.3, 12.6, 13.6};

/* A ray: where it begins, where it goes, its angle with the vertical, and the name of its phase. It has 69 bytes in messages. */
struct ray {
    double latitude, longitude, azimuth, angle, weight, reserved[3];
};

struct mesh {
    double *cells;
    int latitudes, longitudes; /* cells in each, of every layer */
    long count;
    double length; /* of all rays, for a check */
};

static uint64_t random_word(uint64_t *state) {
    uint64_t word = *state += UINT64_C(0x9e3779b97f4a7c15);
    word = (word ^ word >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    word = (word ^ word >> 27) * UINT64_C(0x94d049bb133111eb);
    return word ^ word >> 31;
}

static double random_unit(uint64_t *state) { return (double)(random_word(state) >> 11) / (double)(UINT64_C(1) << 53); }

static void make_set(void *none, int number, char *bytes) {
    uint64_t state = (uint64_t)number;
    (void)none;
    for (int i = 0; i < SET; i++) {
        struct ray ray = {.weight = 1};
        ray.latitude = asin(2 * random_unit(&state) - 1);
        ray.longitude = pi * (2 * random_unit(&state) - 1);
        ray.azimuth = 2 * pi * random_unit(&state);
        ray.angle = pi * (0.15 + 0.3 * random_unit(&state));
        memcpy(bytes + i * RAY_BYTES, &ray, sizeof ray);
        memcpy(bytes + i * RAY_BYTES + sizeof ray, "P    ", RAY_BYTES - sizeof ray);
    }
}

static void add_to_cell(struct mesh *mesh, int layer, const double *place, double length) {
    double radius = sqrt(place[0] * place[0] + place[1] * place[1] + place[2] * place[2]);
    int row = (int)(mesh->latitudes * (0.5 + asin(place[2] / radius) / pi));
    int column = (int)(mesh->longitudes * (0.5 + atan2(place[1], place[0]) / (2 * pi)));
    row = row < mesh->latitudes ? row : mesh->latitudes - 1;
    column = column < mesh->longitudes ? column : mesh->longitudes - 1;
    mesh->cells[((long)layer * mesh->latitudes + row) * mesh->longitudes + column] += length;
    mesh->length += length;
}

/* Follows a straight piece of a ray within a layer, in steps of some 10 km. */
static void add_piece(struct mesh *mesh, int layer, const double *from, const double *to) {
    double piece[3], length = 0, place[3];
    for (int d = 0; d < 3; d++) piece[d] = to[d] - from[d], length += piece[d] * piece[d];
    length = sqrt(length);
    int steps = 1 + (int)(length / 10);
    for (int i = 0; i < steps; i++) {
        for (int d = 0; d < 3; d++) place[d] = from[d] + piece[d] * (i + 0.5) / steps;
        add_to_cell(mesh, layer, place, length / steps);
    }
}

/* Traces a ray downwards, until it turns or meets the core, and up again. In each layer it is straight, and the radius times the
   sine of its angle over the speed stays the same (Snell). */
static void trace(struct mesh *mesh, const struct ray *ray) {
    double up[3] = {cos(ray->latitude) * cos(ray->longitude), cos(ray->latitude) * sin(ray->longitude), sin(ray->latitude)};
    double east[3] = {-sin(ray->longitude), cos(ray->longitude), 0};
    double north[3] = {-up[2] * east[1], up[2] * east[0], up[0] * east[1] - up[1] * east[0]};
    double along[3], constant = radii[0] * sin(ray->angle) / speeds[0], turned = 0;
    double places[2 * LAYERS + 1][3];
    int layers[2 * LAYERS], count = 0, down = 0;
    for (int d = 0; d < 3; d++) along[d] = cos(ray->azimuth) * north[d] + sin(ray->azimuth) * east[d];
    for (int d = 0; d < 3; d++) places[0][d] = radii[0] * up[d];
    for (int turns = 0; !turns && down < LAYERS; down++) {
        /* The angle at the centre that a piece spans. A ray that does not reach the lower radius turns. */
        double sine = constant * speeds[down] / radii[down], lower = constant * speeds[down] / radii[down + 1];
        if (sine >= 1) break;
        turns = lower >= 1;
        turned += turns ? pi - 2 * asin(sine) : asin(lower) - asin(sine);
        double radius = turns ? radii[down] : radii[down + 1];
        layers[count++] = down;
        for (int d = 0; d < 3; d++) places[count][d] = radius * (cos(turned) * up[d] + sin(turned) * along[d]);
        if (turns) break;
    }
    for (int layer = down - 1; layer >= 0 && layer < LAYERS; layer--) {
        double sine = constant * speeds[layer] / radii[layer], lower = constant * speeds[layer] / radii[layer + 1];
        turned += asin(lower) - asin(sine);
        layers[count++] = layer;
        for (int d = 0; d < 3; d++) places[count][d] = radii[layer] * (cos(turned) * up[d] + sin(turned) * along[d]);
    }
    for (int i = 0; i < count; i++) add_piece(mesh, layers[i], places[i], places[i + 1]);
}

/* Traces the rays of a set. There is no result but the mesh, which is merged in the end. */
static void trace_set(void *mesh, const char *set, char *none) {
    (void)none;
    for (int i = 0; i < SET; i++) {
        struct ray ray;
        memcpy(&ray, set + i * RAY_BYTES, sizeof ray);
        trace(mesh, &ray);
    }
}

/* Adds up each rank's part of the mesh there. Returns the sum of this rank's part. */
static double merge(const struct mesh *mesh, int rank, int size) {
    long first = mesh->count * rank / size, own = mesh->count * (rank + 1) / size - first;
    double *parts = malloc((size_t)(own * size + 1) * sizeof *parts), sum = 0;
    MPI_Request *requests = malloc(2 * (size_t)size * sizeof *requests);
    if (!parts || !requests) {
        fprintf(stderr, "ray2mesh: no memory for the parts of others\n");
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    for (int i = 0; i < size; i++) {
        int other = (rank + i) % size, from = (rank + size - i) % size;
        long begin = mesh->count * other / size, end = mesh->count * (other + 1) / size;
        MPI_Irecv(parts + own * i, (int)own, MPI_DOUBLE, from, TAG_PART, MPI_COMM_WORLD, &requests[2 * i]);
        MPI_Isend(mesh->cells + begin, (int)(end - begin), MPI_DOUBLE, other, TAG_PART, MPI_COMM_WORLD, &requests[2 * i + 1]);
    }
    MPI_Waitall(2 * size, requests, MPI_STATUSES_IGNORE);
    for (long i = 0; i < own * size; i++) sum += parts[i];
    free(parts);
    free(requests);
    return sum;
}

static const char *const operations[] = {"computing", "merging", "both"};

static void measure(long bytes, int master, int rank, int size, int all_sets) {
    struct mesh mesh = {.latitudes = (int)fmax(sqrt((double)bytes / sizeof(double) / LAYERS / 2), 1)};
    mesh.longitudes = 2 * mesh.latitudes;
    mesh.count = (long)LAYERS * mesh.latitudes * mesh.longitudes;
    mesh.cells = calloc((size_t)mesh.count + 1, sizeof *mesh.cells);
    int *sets = calloc((size_t)size, sizeof *sets), own = 0;
    if (!mesh.cells || !sets) {
        fprintf(stderr, "ray2mesh: no memory for a mesh of %ld bytes\n", bytes);
        MPI_Abort(MPI_COMM_WORLD, 1);
    }
    struct workers workers = {.master = master, .tasks = all_sets, .task_bytes = SET * RAY_BYTES, .state = &mesh, .make = make_set, .work = trace_set};
    MPI_Barrier(MPI_COMM_WORLD);
    double times[3] = {clock_system_s()};
    if (rank == master)
        workers_serve(&workers, size);
    else
        own = workers_work(&workers);
    MPI_Barrier(MPI_COMM_WORLD);
    times[1] = clock_system_s();
    double sums[2] = {merge(&mesh, rank, size), mesh.length};
    MPI_Barrier(MPI_COMM_WORLD);
    times[2] = clock_system_s();
    MPI_Allreduce(MPI_IN_PLACE, sums, 2, MPI_DOUBLE, MPI_SUM, MPI_COMM_WORLD);
    MPI_Gather(&own, 1, MPI_INT, sets, 1, MPI_INT, 0, MPI_COMM_WORLD);
    int is_wrong = fabs(sums[0] - sums[1]) > 1e-9 * sums[1];
    double spans[] = {times[1] - times[0], times[2] - times[1], times[2] - times[0]};
    for (int i = 0; rank == 0 && i < 3; i++) {
        if (is_wrong)
            missing_print(operations[i], bytes, master, "the result came out wrong");
        else
            workers_print(operations[i], (struct program_case){bytes, master}, spans[i], "rays", SET, sets, size);
    }
    free(mesh.cells);
    free(sets);
}

int main(int argc, char **argv) {
    int size, rank = program_start("ray2mesh", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("ray2mesh", "the time", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc; i++) {
        struct program_case asked = program_case("ray2mesh", argv[i], (struct program_case){PROGRAM_MOST_BYTES, MOST_MASTER});
        if (asked.count < size)
            measure(asked.bytes, (int)asked.count, rank, size, (int)fmax(SETS_PER_SECOND * seconds, 1));
        else
            for (int j = 0; rank == 0 && j < 3; j++) missing_print(operations[j], asked.bytes, asked.count, "there is no such rank");
    }
    return program_end(0);
}
