/* Half a round trip of short messages while both ranks have posted receives that do not match, or messages that
   nobody has received. Prints a line of JSON for each case, queue and selector.
   Usage: queues SECONDS_PER_CASE SIZE/DEPTH...

   Queued entries must never match the exchange, but resemble it as closely as possible: the same wildcards select
   them.
     exact       differs by its tag;
     any source  differs by its tag, and its receives are for any source;
     any tag     differs by its source, the rank itself, and its receives are for any tag;
     any         posted: half of the receives are for any source, half for any tag, as above;
                 unexpected: messages of another communicator, because a receive of anything takes any.
   Both ranks do the same, so half a round trip passes one queue. */
#include "program.h"

enum { EXCHANGE_TAG = 1, QUEUE_TAG = 1000, MOST_DEPTH = 30000 };
enum { POSTED, UNEXPECTED };
enum { ANY_SOURCE = 1, ANY_TAG = 2 };

static const char *const NAMES[2][4] = {{"posted, exact", "posted, any source", "posted, any tag", "posted, any"},
                                        {"unexpected, exact", "unexpected, any source", "unexpected, any tag", "unexpected, any"}};

struct queue {
    int which, wildcards, bytes, depth, rank;
    char *out, *in, *room;
    MPI_Comm comm;         /* of the queue */
    MPI_Request *receives, *sends;
};

/* True if the entry differs by its source: it is the rank's message to itself. */
static int is_own(const struct queue *queue, int entry) {
    if (queue->wildcards == (ANY_SOURCE | ANY_TAG)) return queue->which == POSTED && entry % 2;
    return queue->wildcards == ANY_TAG;
}

static void post_receive(const struct queue *queue, int entry) {
    int own = is_own(queue, entry), source = own ? queue->rank : 1 - queue->rank, tag = QUEUE_TAG + entry;
    if (queue->which == POSTED && own) tag = MPI_ANY_TAG;
    if (queue->which == POSTED && !own && queue->wildcards & ANY_SOURCE) source = MPI_ANY_SOURCE;
    MPI_Irecv(queue->room, queue->bytes, MPI_CHAR, source, tag, queue->comm, &queue->receives[entry]);
}

static void start_send(const struct queue *queue, int entry) {
    int to = is_own(queue, entry) ? queue->rank : 1 - queue->rank;
    MPI_Isend(queue->out, queue->bytes, MPI_CHAR, to, QUEUE_TAG + entry, queue->comm, &queue->sends[entry]);
}

static void fill(const struct queue *queue) {
    for (int i = 0; i < queue->depth; i++) queue->which == POSTED ? post_receive(queue, i) : start_send(queue, i);
    MPI_Barrier(MPI_COMM_WORLD);
}

static void drain(const struct queue *queue) {
    MPI_Barrier(MPI_COMM_WORLD);
    for (int i = 0; i < queue->depth; i++) queue->which == POSTED ? start_send(queue, i) : post_receive(queue, i);
    MPI_Waitall(queue->depth, queue->receives, MPI_STATUSES_IGNORE);
    MPI_Waitall(queue->depth, queue->sends, MPI_STATUSES_IGNORE);
}

static void receive(const struct queue *queue) {
    int source = queue->wildcards & ANY_SOURCE ? MPI_ANY_SOURCE : 1 - queue->rank;
    int tag = queue->wildcards & ANY_TAG ? MPI_ANY_TAG : EXCHANGE_TAG;
    MPI_Recv(queue->in, queue->bytes, MPI_CHAR, source, tag, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static double exchange(void *what, char word) {
    const struct queue *queue = what;
    queue->out[0] = word;
    uint64_t start = clock_ticks();
    MPI_Send(queue->out, queue->bytes, MPI_CHAR, 1, EXCHANGE_TAG, MPI_COMM_WORLD);
    receive(queue);
    return samples_us(clock_ticks() - start, 2);
}

static void answer(const struct queue *queue) {
    do {
        receive(queue);
        MPI_Send(queue->in, queue->bytes, MPI_CHAR, 0, EXCHANGE_TAG, MPI_COMM_WORLD);
    } while (queue->in[0] != PROGRAM_ENDS);
}

static void measure(struct queue *queue, double seconds) {
    static struct samples samples;
    fill(queue);
    if (queue->rank == 1) answer(queue);
    if (queue->rank == 0) {
        samples_take(&samples, seconds, exchange, queue);
        struct summary summary = samples_summary(&samples);
        summary_print(NAMES[queue->which][queue->wildcards], queue->bytes, queue->depth, &summary);
    }
    drain(queue);
}

int main(int argc, char **argv) {
    int size, rank = program_start("queues", &argc, &argv, &size);
    double seconds = argc > 1 ? program_number("queues", "the time per case", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    if (size != 2) {
        fprintf(stderr, "queues: needs two ranks\n");
        MPI_Abort(MPI_COMM_WORLD, 2);
    }
    MPI_Comm other;
    MPI_Comm_dup(MPI_COMM_WORLD, &other);
    for (int kind = 0; kind < 8; kind++) {
        for (int i = 2; i < argc; i++) {
            struct program_case asked = program_case("queues", argv[i], (struct program_case){4096, MOST_DEPTH});
            size_t bytes = (size_t)asked.bytes, requests = sizeof(MPI_Request) * (size_t)(asked.count + 1);
            struct queue queue = {kind / 4, kind % 4, (int)asked.bytes, (int)asked.count, rank,
                                  program_memory("queues", bytes + 1), program_memory("queues", bytes + 1),
                                  program_memory("queues", bytes + 1), MPI_COMM_WORLD, malloc(requests), malloc(requests)};
            if (queue.which == UNEXPECTED && queue.wildcards == (ANY_SOURCE | ANY_TAG)) queue.comm = other;
            measure(&queue, seconds);
            free(queue.receives);
            free(queue.sends);
            free(queue.out);
            free(queue.in);
            free(queue.room);
        }
    }
    MPI_Comm_free(&other);
    return program_end(0);
}
