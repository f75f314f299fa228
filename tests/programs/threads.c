/* MPI_THREAD_MULTIPLE in programs: threads that send, receive, wait, test, probe, cancel and call collectives at
   random. Usage: threads SEED [THREADS [WINDOWS]]
   In each window a thread first begins its sends and receives without waiting. It then waits and probes, in any
   order, for operations that others begin in windows up to its own. At the end it waits for sends that may need their
   receiver's probe. No thread therefore waits for ever, unless something is lost. Both ends of a message derive its
   content from the seed. */
#include <mpi.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

enum { THREADS_MAX = 16, RANKS_MAX = 16, TAGS = 2, OPEN_MAX = 60000, NUMBERS_MAX = 4096, WINDOWS_MAX = 64, PATIENCE_S = 150 };
enum kind { EXACT, OPEN, PROBED, SHARED, PING, NEVER, COLLECTIVE, BACKGROUND, KINDS };

/* A stream of messages that only order and tag distinguish. `thread` sends them and, unless they are shared,
   receives. */
typedef struct {
    enum kind kind;
    int thread, from, to, tag;
} stream;

typedef struct {
    MPI_Request request;
    char *buffer;
    stream of;
    int number, receives, persistent;
    int *said; /* index of the message that an open receive got */
    MPI_Status status;
} pending;

typedef struct {
    int number, window;
    uint64_t random;
    MPI_Comm comm[KINDS];
    int sent[KINDS][RANKS_MAX][TAGS + THREADS_MAX], received[KINDS][RANKS_MAX][TAGS + THREADS_MAX];
    pending *list[65536];
    int count;
    /* Open receives in the order of their posting: source, tag and number. */
    int (*open)[3];
    int opened, looked;
    /* Current activity and its start. */
    const char *volatile doing;
    volatile double since;
    pending *volatile *waits_for;
    volatile int waits_for_count;
} member;

static int rank, size, threads = 4, windows = 8;
static uint64_t seed;
static member members[THREADS_MAX];
static pthread_t ids[THREADS_MAX];
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pending *pool[65536];
static int pool_window[65536], pooled;
/* Messages that any thread may take: the streams of a window, and the number claimed. */
static MPI_Comm shared[WINDOWS_MAX];
static int tickets[WINDOWS_MAX];
static char seen[THREADS_MAX][RANKS_MAX][TAGS][NUMBERS_MAX];
static int failures;

#define CHECK(condition, ...)                                                             \
    do {                                                                                  \
        if (!(condition) && __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED) < 20) {    \
            char text[200];                                                               \
            snprintf(text, sizeof text, __VA_ARGS__);                                     \
            fprintf(stderr, "rank %d, seed %llu: line %d: %s: %s\n", rank,                \
                    (unsigned long long)seed, __LINE__, #condition, text);                \
        }                                                                                 \
    } while (0)

/* SplitMix64 (Steele, Lea, Flood 2014). */
static uint64_t mix(uint64_t value) {
    value += 0x9e3779b97f4a7c15u;
    value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
    value = (value ^ value >> 27) * 0x94d049bb133111ebu;
    return value ^ value >> 31;
}
static int below(member *me, int end) {
    me->random = mix(me->random);
    return (int)((me->random >> 20) % (uint64_t)end);
}
static uint64_t of_stream(stream l, int what, int number) {
    uint64_t value = mix(seed ^ (uint64_t)what << 56 ^ (uint64_t)l.kind << 48);
    value = mix(value ^ (uint64_t)l.thread << 32 ^ (uint64_t)l.from << 16 ^ (uint64_t)l.to);
    return mix(value ^ (uint64_t)l.tag << 32 ^ (uint64_t)number);
}
static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec * 1e-9;
}
static void doing(member *me, const char *what) {
    me->since = now();
    me->doing = what;
}

/* Number of messages of a stream in a window, and their properties. */
static int count_of(int window, stream l) {
    static const int counts[8] = {0, 0, 0, 1, 1, 1, 2, 4};
    return counts[of_stream(l, 1, window) % 8];
}
static int length_of(stream l, int number) {
    static const int most[8] = {8, 64, 64, 1000, 1000, 5000, 40000, 300000};
    uint64_t value = of_stream(l, 2, number);
    int limit = most[value % 8];
    if (l.kind != EXACT && l.kind != PING && limit > OPEN_MAX) limit = OPEN_MAX;
    int len = (int)((value >> 8) % (uint64_t)(limit + 1));
    return (l.kind == OPEN || l.kind == SHARED) && len < 8 ? 8 : len;
}
static void fill(char *into, stream l, int number) {
    uint64_t key = of_stream(l, 3, number);
    int len = length_of(l, number);
    for (int i = 0; i < len; i++) into[i] = (char)(key >> i % 8 * 8 ^ (uint64_t)i ^ (uint64_t)i >> 8);
    if (len >= 8) memcpy(into, &number, sizeof number);
}
static void check(stream l, int number, const char *got, const MPI_Status *status) {
    int len = length_of(l, number), count = -1;
    char *expected = malloc(len + 1);
    fill(expected, l, number);
    MPI_Get_count(status, MPI_CHAR, &count);
    CHECK(count == len, "%d bytes of message %d of kind %d, thread %d, %d to %d, where %d were due", count, number,
          l.kind, l.thread, l.from, l.to, len);
    CHECK(count != len || memcmp(expected, got, len) == 0, "message %d of kind %d, thread %d, %d to %d", number,
          l.kind, l.thread, l.from, l.to);
    free(expected);
}
/* Tags distinguish senders in the context that all threads share. */
static int tag_of(stream l) { return l.kind == SHARED ? l.tag + TAGS * l.thread : l.tag; }

/* Sleeps for a while, now and then. */
static void rest(member *me) {
    static const int us[3] = {50, 500, 3000};
    switch (below(me, 20)) {
        case 0: usleep(us[below(me, 3)]); break;
        case 1: sched_yield(); break;
    }
}

static void keep(member *me, pending *one) {
    if (one->of.kind != OPEN && below(me, 6) == 0) {
        pthread_mutex_lock(&lock);
        pool[pooled] = one;
        pool_window[pooled++] = me->window;
        pthread_mutex_unlock(&lock);
    } else {
        me->list[me->count++] = one;
    }
}

static void begin_send(member *me, stream l) {
    int number = me->sent[l.kind][l.to][l.tag]++, len = length_of(l, number), tag = tag_of(l);
    MPI_Comm comm = l.kind == SHARED ? shared[me->window] : me->comm[l.kind];
    pending *one = calloc(1, sizeof *one);
    one->of = l, one->number = number, one->buffer = malloc(len + 1);
    fill(one->buffer, l, number);
    switch (below(me, 8)) {
        case 0: MPI_Issend(one->buffer, len, MPI_CHAR, l.to, tag, comm, &one->request); break;
        case 1:
            if (len <= 5000) {
                MPI_Ibsend(one->buffer, len, MPI_CHAR, l.to, tag, comm, &one->request);
                break;
            } /* fall through */
        case 2:
            MPI_Send_init(one->buffer, len, MPI_CHAR, l.to, tag, comm, &one->request);
            one->persistent = 1;
            MPI_Start(&one->request);
            break;
        default: MPI_Isend(one->buffer, len, MPI_CHAR, l.to, tag, comm, &one->request);
    }
    keep(me, one);
}
static void begin_receive(member *me, stream l) {
    int number = me->received[l.kind][l.from][l.tag]++, len = length_of(l, number);
    pending *one = calloc(1, sizeof *one);
    one->of = l, one->number = number, one->receives = 1, one->buffer = malloc(len + 1);
    if (below(me, 4) == 0) {
        MPI_Recv_init(one->buffer, len, MPI_CHAR, l.from, l.tag, me->comm[l.kind], &one->request);
        one->persistent = 1;
        MPI_Startall(1, &one->request);
    } else {
        MPI_Irecv(one->buffer, len, MPI_CHAR, l.from, l.tag, me->comm[l.kind], &one->request);
    }
    keep(me, one);
}
/* Wildcards of a thread's open receives: the source, the tag, or both. */
static void begin_open(member *me, stream l) {
    int leaves = (int)(mix(seed ^ (uint64_t)(rank * THREADS_MAX + me->number) << 8) % 3);
    pending *one = calloc(1, sizeof *one);
    one->of = l, one->receives = 1, one->buffer = malloc(OPEN_MAX);
    one->said = me->open[me->opened++];
    MPI_Irecv(one->buffer, OPEN_MAX, MPI_CHAR, leaves == 1 ? l.from : MPI_ANY_SOURCE,
              leaves == 0 ? l.tag : MPI_ANY_TAG, me->comm[OPEN], &one->request);
    keep(me, one);
}

/* A collective that is waited for like messages. */
static void begin_sum(member *me) {
    pending *one = calloc(1, sizeof *one);
    int *numbers = malloc(2 * sizeof *numbers);
    one->of.kind = BACKGROUND, one->number = me->window, one->buffer = (char *)numbers;
    numbers[0] = rank + me->window;
    MPI_Iallreduce(&numbers[0], &numbers[1], 1, MPI_INT, MPI_SUM, me->comm[BACKGROUND], &one->request);
    me->list[me->count++] = one;
}

/* Begins all operations of the window, in some order. */
static void begin_all(member *me) {
    stream all[4 * 2 * RANKS_MAX * TAGS];
    int count = 0;
    doing(me, "begins");
    for (int kind = EXACT; kind <= SHARED; kind++)
        for (int other = 0; other < size; other++)
            for (int tag = 0; tag < TAGS; tag++) {
                all[count++] = (stream){kind, me->number, rank, other, tag};
                /* Receives of the other kinds follow probes. */
                if (kind == EXACT || kind == OPEN) all[count++] = (stream){kind, -1 - me->number, other, rank, tag};
            }
    while (count > 0) {
        int at = below(me, count), receives = all[at].thread < 0;
        stream l = all[at];
        all[at] = all[--count];
        if (receives) l.thread = me->number;
        for (int i = count_of(me->window, l); i > 0; i--) {
            if (!receives) begin_send(me, l);
            else if (l.kind == EXACT) begin_receive(me, l);
            else begin_open(me, l);
        }
    }
    begin_sum(me);
}

static void finish(pending *one) {
    if (one->of.kind == BACKGROUND) {
        int sum = ((int *)one->buffer)[1], due = size * one->number + size * (size - 1) / 2;
        CHECK(sum == due, "a sum of %d where %d was due", sum, due);
    } else if (one->receives && one->said) {
        int number;
        memcpy(&number, one->buffer, sizeof number);
        one->said[0] = one->of.from = one->status.MPI_SOURCE;
        one->said[1] = one->of.tag = one->status.MPI_TAG;
        one->said[2] = number;
        check(one->of, number, one->buffer, &one->status);
    } else if (one->receives) {
        check(one->of, one->number, one->buffer, &one->status);
    }
    if (one->persistent) MPI_Request_free(&one->request);
    free(one->buffer);
    free(one);
}

/* Waits until at least one of some has ended, by one of the wait and test calls. Completes the ended ones. Returns
   the number left, moved to the beginning of the list. */
static int wait_for_some(member *me, pending **some, int count) {
    static const char *const names[8] = {"waits",     "waits for any", "waits for some", "waits for all",
                                         "tests any", "tests some",    "tests all",      "looks at statuses"};
    int way = below(me, 8), ended = 0, flag = 0, index, *indices = calloc(count, sizeof *indices);
    MPI_Request *requests = calloc(count, sizeof *requests);
    MPI_Status *statuses = calloc(count, sizeof *statuses);
    char *over = calloc(count, 1);
    for (int i = 0; i < count; i++) requests[i] = some[i]->request;
    me->waits_for = (pending *volatile *)some, me->waits_for_count = count;
    doing(me, names[way]);
    switch (way) {
        case 0: MPI_Wait(&requests[0], &statuses[0]), ended = 1, indices[0] = 0; break;
        case 1: MPI_Waitany(count, requests, &index, &statuses[0]), ended = 1, indices[0] = index; break;
        case 2: MPI_Waitsome(count, requests, &ended, indices, statuses); break;
        case 3: MPI_Waitall(count, requests, statuses), ended = count; break;
        case 4:
            while (MPI_Testany(count, requests, &index, &flag, &statuses[0]), !flag) rest(me);
            ended = 1, indices[0] = index;
            break;
        case 5:
            while (MPI_Testsome(count, requests, &ended, indices, statuses), ended == 0) rest(me);
            break;
        case 6:
            while (MPI_Testall(count, requests, &flag, statuses), !flag) rest(me);
            ended = count;
            break;
        case 7:
            while (MPI_Request_get_status(requests[0], &flag, &statuses[0]), !flag) rest(me);
            MPI_Wait(&requests[0], &statuses[0]), ended = 1, indices[0] = 0;
            break;
    }
    me->waits_for_count = 0;
    CHECK(ended > 0 && ended <= count, "%s: %d of %d", names[way], ended, count);
    for (int i = 0; i < ended; i++) {
        int at = way == 3 || way == 6 ? i : indices[i];
        CHECK(at >= 0 && at < count && !over[at], "%s: index %d of %d", names[way], at, count);
        over[at] = 1;
        some[at]->status = statuses[i];
        some[at]->request = requests[at];
        CHECK((requests[at] == MPI_REQUEST_NULL) == !some[at]->persistent, "%s: the handle", names[way]);
        finish(some[at]);
    }
    int left = 0;
    for (int i = 0; i < count; i++)
        if (!over[i]) some[left++] = some[i];
    free(indices), free(requests), free(statuses), free(over);
    return left;
}

/* Waits for some of the thread's operations that need no peer's probe. Returns false if there are none. */
static int wait_a_while(member *me) {
    static const int sizes[5] = {1, 1, 2, 4, 10};
    pending *some[10], *one;
    int count = 0, most = sizes[below(me, 5)];
    for (int i = me->count - 1; i >= 0 && count < most; i--) {
        one = me->list[i];
        if (!one->receives && (one->of.kind == PROBED || one->of.kind == SHARED)) continue;
        me->list[i] = me->list[--me->count];
        some[count++] = one;
    }
    if (count == 0) return 0;
    for (int left = wait_for_some(me, some, count); left > 0; left--) me->list[me->count++] = some[left - 1];
    return 1;
}

static void receive_matched(member *me, MPI_Message *message, MPI_Status *status, stream l, int number) {
    int len;
    MPI_Get_count(status, MPI_CHAR, &len);
    char *buffer = malloc(len + 1);
    if (below(me, 2)) {
        MPI_Mrecv(buffer, len, MPI_CHAR, message, status);
    } else {
        MPI_Request request;
        MPI_Imrecv(buffer, len, MPI_CHAR, message, &request);
        MPI_Wait(&request, status);
    }
    if (number < 0) memcpy(&number, buffer, sizeof number);
    check(l, number, buffer, status);
    if (l.kind == SHARED && number >= 0 && number < NUMBERS_MAX) {
        char before = __atomic_exchange_n(&seen[l.thread][l.from][l.tag][number], 1, __ATOMIC_RELAXED);
        CHECK(!before, "message %d of thread %d, rank %d came twice", number, l.thread, l.from);
    }
    free(buffer);
}

/* Probes for a message of the thread's own, by any of the probes, and receives it. */
static void probe_and_receive(member *me, stream l) {
    MPI_Comm comm = me->comm[PROBED];
    MPI_Message message;
    MPI_Status status;
    int flag = 0, way = below(me, 4), openly = (int)(mix(seed ^ (uint64_t)(rank + 99 * me->number)) % 2);
    int source = openly ? MPI_ANY_SOURCE : l.from, tag = openly ? MPI_ANY_TAG : l.tag;
    doing(me, "probes");
    switch (way) {
        case 0: MPI_Probe(source, tag, comm, &status); break;
        case 1:
            while (MPI_Iprobe(source, tag, comm, &flag, &status), !flag) rest(me);
            break;
        case 2: MPI_Mprobe(source, tag, comm, &message, &status); break;
        case 3:
            while (MPI_Improbe(source, tag, comm, &flag, &message, &status), !flag) rest(me);
            break;
    }
    l.from = status.MPI_SOURCE, l.tag = status.MPI_TAG;
    int number = me->received[PROBED][l.from][l.tag]++;
    if (way >= 2) {
        receive_matched(me, &message, &status, l, number);
        return;
    }
    int len;
    MPI_Get_count(&status, MPI_CHAR, &len);
    char *buffer = malloc(len + 1);
    MPI_Recv(buffer, len, MPI_CHAR, l.from, l.tag, comm, &status);
    check(l, number, buffer, &status);
    free(buffer);
}

/* Takes messages that any thread may take, as many as this window sends and no thread has claimed. */
static void take_shared(member *me) {
    MPI_Comm comm = shared[me->window];
    int sent = 0, *claimed = &tickets[me->window];
    for (int thread = 0; thread < threads; thread++)
        for (int from = 0; from < size; from++)
            for (int tag = 0; tag < TAGS; tag++) sent += count_of(me->window, (stream){SHARED, thread, from, rank, tag});
    while (__atomic_fetch_add(claimed, 1, __ATOMIC_RELAXED) < sent) {
        MPI_Message message;
        MPI_Status status;
        doing(me, "probes for what any thread may take");
        if (below(me, 2)) {
            MPI_Mprobe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &message, &status);
        } else {
            int flag = 0;
            while (MPI_Improbe(MPI_ANY_SOURCE, MPI_ANY_TAG, comm, &flag, &message, &status), !flag) rest(me);
        }
        int tag = status.MPI_TAG;
        receive_matched(me, &message, &status, (stream){SHARED, tag / TAGS, status.MPI_SOURCE, rank, tag % TAGS}, -1);
        rest(me);
    }
}

static void cancel_in_vain(member *me) {
    char byte;
    int flag;
    MPI_Request request;
    MPI_Status status;
    doing(me, "cancels");
    MPI_Irecv(&byte, 1, MPI_CHAR, below(me, 2) ? MPI_ANY_SOURCE : below(me, size), 0, me->comm[NEVER], &request);
    rest(me);
    MPI_Test(&request, &flag, &status);
    CHECK(!flag, "nobody sends this");
    MPI_Cancel(&request);
    MPI_Wait(&request, &status);
    MPI_Test_cancelled(&status, &flag);
    CHECK(flag, "nobody sends this");
}

/* Exchanges messages with a thread that does the same. */
static void ping(member *me, int other_rank, int other) {
    int mine = rank * THREADS_MAX + me->number, theirs = other_rank * THREADS_MAX + other;
    int low = mine < theirs ? mine : theirs, high = mine + theirs - low;
    int rounds = (int)(mix(seed ^ (uint64_t)me->window << 40 ^ (uint64_t)low << 20 ^ (uint64_t)high) % 6);
    for (int turn = 0; turn < 2 * rounds; turn++) {
        stream l = {PING, me->number, rank, other_rank, TAGS + me->number};
        MPI_Comm comm = members[0].comm[PING];
        if ((turn % 2 == 0) == (mine < theirs)) {
            int tag = me->number * THREADS_MAX + other, number = me->sent[PING][other_rank][TAGS + other]++;
            l.thread = tag;
            int len = length_of(l, number);
            char *buffer = malloc(len + 1);
            fill(buffer, l, number);
            doing(me, "sends to and fro");
            (below(me, 2) ? MPI_Send : MPI_Ssend)(buffer, len, MPI_CHAR, other_rank, tag, comm);
            free(buffer);
        } else {
            int tag = other * THREADS_MAX + me->number, number = me->received[PING][other_rank][TAGS + other]++;
            l = (stream){PING, tag, other_rank, rank, TAGS + other};
            int len = length_of(l, number);
            char *buffer = malloc(len + 1);
            MPI_Status status;
            doing(me, "receives to and fro");
            MPI_Recv(buffer, len, MPI_CHAR, other_rank, tag, comm, &status);
            check(l, number, buffer, &status);
            free(buffer);
        }
    }
}

/* Collectives of this thread's counterparts in all ranks, beside those of other threads. */
static void collectives(member *me) {
    MPI_Comm comm = me->comm[COLLECTIVE], copy;
    int value = me->number + me->window, root = me->window % size, sum = 0, all[RANKS_MAX], out[RANKS_MAX];
    doing(me, "calls collectives");
    MPI_Comm_dup(comm, &copy);
    MPI_Allreduce(&(int){value + rank}, &sum, 1, MPI_INT, MPI_SUM, copy);
    CHECK(sum == size * value + size * (size - 1) / 2, "a sum of %d", sum);
    int said = rank == root ? 1000 + value : -1;
    MPI_Bcast(&said, 1, MPI_INT, root, comm);
    CHECK(said == 1000 + value, "heard %d", said);
    for (int i = 0; i < size; i++) out[i] = 100 * rank + i + value;
    MPI_Alltoall(out, 1, MPI_INT, all, 1, MPI_INT, copy);
    for (int i = 0; i < size; i++) CHECK(all[i] == 100 * i + rank + value, "%d from %d", all[i], i);
    MPI_Barrier(comm);
    int len = 1 + (int)(mix(seed ^ (uint64_t)value) % 20000), *big = malloc(2 * len * sizeof(int)), *result = big + len;
    for (int i = 0; i < len; i++) big[i] = rank + i;
    MPI_Allreduce(big, result, len, MPI_INT, MPI_MAX, copy);
    int wrong = 0;
    for (int i = 0; i < len; i++) wrong += result[i] != size - 1 + i;
    CHECK(wrong == 0, "%d of %d", wrong, len);
    free(big);
    MPI_Comm_free(&copy);
}

/* All call them in the same order, so no thread waits in a circle. */
static void meet(member *me) {
    if ((me->number ^ 1) < threads) ping(me, rank, me->number ^ 1);
    int other = (me->window % size + size - rank) % size;
    if (other != rank) ping(me, other, me->number);
    collectives(me);
}

/* Completes operations that others of the rank began up to this window and no thread has waited for. */
static void empty_pool(member *me) {
    for (;;) {
        pending *one = NULL;
        pthread_mutex_lock(&lock);
        for (int i = 0; i < pooled && !one; i++) {
            if (pool_window[i] > me->window) continue;
            one = pool[i];
            pool[i] = pool[--pooled];
            pool_window[i] = pool_window[pooled];
        }
        pthread_mutex_unlock(&lock);
        if (!one) return;
        while (wait_for_some(me, &one, 1)) continue;
    }
}

/* Open receives have got each source's messages with each tag in order. */
static void check_order(member *me) {
    for (; me->looked < me->opened; me->looked++) {
        int *one = me->open[me->looked], due = me->received[OPEN][one[0]][one[1]]++;
        CHECK(one[2] == due, "message %d of rank %d where %d was due", one[2], one[0], due);
    }
}

static void act(member *me) {
    begin_all(me);
    stream to_probe[1024];
    int probes = 0, met = 0, taken = 0, cancels = below(me, 3) == 0;
    for (int from = 0; from < size; from++)
        for (int tag = 0; tag < TAGS; tag++) {
            stream l = {PROBED, me->number, from, rank, tag};
            for (int i = count_of(me->window, l); i > 0; i--) to_probe[probes++] = l;
        }
    for (int waits = 1; waits || probes || !met || !taken || cancels;) {
        rest(me);
        switch (below(me, 6)) {
            case 0:
                if (probes) {
                    int at = below(me, probes);
                    stream l = to_probe[at];
                    to_probe[at] = to_probe[--probes];
                    probe_and_receive(me, l);
                }
                break;
            case 1:
                if (!met) meet(me), met = 1;
                break;
            case 2:
                if (!taken) take_shared(me), taken = 1;
                break;
            case 3:
                if (cancels) cancel_in_vain(me), cancels = 0;
                break;
            default: waits = wait_a_while(me);
        }
    }
    while (me->count > 0) me->count = wait_for_some(me, me->list, me->count);
    empty_pool(me);
    check_order(me);
}

static void *run(void *argument) {
    member *me = argument;
    for (me->window = 0; me->window < windows; me->window++) act(me);
    doing(me, NULL);
    return NULL;
}

/* Ends the job if a thread waits for too long. Prints each thread's activity before. */
static void *watch(void *unused) {
    for (;;) {
        usleep(200 * 1000);
        int stuck = 0;
        for (int i = 0; i < threads; i++) stuck |= members[i].doing && now() - members[i].since > PATIENCE_S;
        if (!stuck) continue;
        for (int i = 0; i < threads; i++) {
            member *one = &members[i];
            fprintf(stderr, "rank %d, seed %llu, thread %d: window %d: %s, for %.1f s\n", rank, (unsigned long long)seed,
                    i, one->window, one->doing ? one->doing : "done", now() - one->since);
            for (int at = 0; at < one->waits_for_count; at++) {
                const pending *what = one->waits_for[at];
                fprintf(stderr, "    %s of kind %d, thread %d, %d to %d, tag %d, message %d\n",
                        what->receives ? "receive" : "send", what->of.kind, what->of.thread, what->of.from, what->of.to,
                        what->of.tag, what->number);
            }
        }
        sleep(1); /* the other ranks print it too */
        _exit(3);
    }
    return unused;
}

int main(int argc, char **argv) {
    int provided;
    seed = argc > 1 ? strtoull(argv[1], NULL, 10) : 1;
    if (argc > 2) threads = atoi(argv[2]);
    if (argc > 3) windows = atoi(argv[3]);
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    if (provided != MPI_THREAD_MULTIPLE || threads > THREADS_MAX || size > RANKS_MAX || windows > WINDOWS_MAX) {
        fprintf(stderr, "threads: level %d, %d threads, %d ranks\n", provided, threads, size);
        return 2;
    }
    char *buffer = malloc(32 << 20);
    MPI_Buffer_attach(buffer, 32 << 20);
    for (int i = 0; i < threads; i++) {
        member *me = &members[i];
        me->number = i, me->random = mix(seed ^ (uint64_t)(rank * THREADS_MAX + i) << 32);
        me->open = calloc((size_t)windows * size * TAGS * 4, sizeof *me->open);
        for (int kind = 0; kind < KINDS; kind++) {
            if (kind == SHARED) continue;
            if (i > 0 && kind == PING) me->comm[kind] = members[0].comm[kind];
            else MPI_Comm_dup(MPI_COMM_WORLD, &me->comm[kind]);
        }
    }
    for (int window = 0; window < windows; window++) MPI_Comm_dup(MPI_COMM_WORLD, &shared[window]);
    pthread_t watcher;
    double begin = now();
    for (int i = 0; i < threads; i++) doing(&members[i], "starts");
    pthread_create(&watcher, NULL, watch, NULL);
    for (int i = 0; i < threads; i++) pthread_create(&ids[i], NULL, run, &members[i]);
    for (int i = 0; i < threads; i++) pthread_join(ids[i], NULL);
    for (int thread = 0; thread < threads; thread++)
        for (int from = 0; from < size; from++)
            for (int tag = 0; tag < TAGS; tag++) {
                int count = 0, came = 0;
                for (int window = 0; window < windows; window++)
                    count += count_of(window, (stream){SHARED, thread, from, rank, tag});
                for (int i = 0; i < NUMBERS_MAX; i++) came += seen[thread][from][tag][i];
                CHECK(came == count, "%d messages of %d for any thread", came, count);
            }
    MPI_Buffer_detach(&buffer, &(int){0});
    int total;
    MPI_Allreduce(&failures, &total, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0)
        printf("threads: seed %llu, %d threads on %d ranks: %d failures (%.2f s)\n", (unsigned long long)seed, threads,
               size, total, now() - begin);
    MPI_Finalize();
    return total != 0;
}
