/* Many outstanding requests: calls for any or some of them find each end, whatever the program does to its arrays in
   between, and the library looks at few requests that have not ended. Usage: outstanding [SEED], on any number of ranks. */
#include <mpi.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { COMMS = 4, SLOTS = 120, STEPS = 3000, THREADS = 3, ROUNDS = 60, MANY = 4000, LIMIT = 8, STARTS = 3000 };
enum { RECEIVE, WILD, PERSISTENT, EXCHANGE, SYNCHRONOUS, NOBODY, COLLECTIVE, KINDS };
enum { UNUSED, ACTIVE, READY, INACTIVE };

/* A request, which is at one place of each of two arrays. All messages are the rank's own. */
typedef struct {
    int kind, state, is_cancelled, got, sent, tag, at[2];
    MPI_Comm comm;
} Entry;

typedef struct {
    MPI_Comm in[COMMS], alone;
    MPI_Request list[2][SLOTS];
    int owner[2][SLOTS], ready, next_tag;
    Entry entries[SLOTS];
    unsigned seed;
} Churn;

static int size;

static int chance(Churn *churn, int of) { return (int)(rand_r(&churn->seed) >> 4) % of; }

static Entry *find(Churn *churn, int state) {
    int first = chance(churn, SLOTS);
    for (int i = 0; i < SLOTS; i++)
        if (churn->entries[(first + i) % SLOTS].state == state) return &churn->entries[(first + i) % SLOTS];
    return NULL;
}

static void put(Churn *churn, Entry *entry, MPI_Request request) {
    for (int w = 0; w < 2; w++) churn->list[w][entry->at[w]] = request;
}

static void set_state(Churn *churn, Entry *entry, int state) {
    churn->ready += (state == READY) - (entry->state == READY);
    entry->state = state;
}

static void begin(Churn *churn) {
    Entry *entry = find(churn, UNUSED);
    if (!entry) return;
    int number = (int)(entry - churn->entries), kind = chance(churn, KINDS), tag = churn->next_tag++ % 30000;
    for (int w = 0; w < 2; w++) {
        int place = chance(churn, SLOTS);
        while (churn->owner[w][place] >= 0) place = (place + 1) % SLOTS;
        churn->owner[w][place] = number, entry->at[w] = place;
    }
    entry->kind = kind, entry->tag = tag, entry->got = -1, entry->sent = tag + 7, entry->is_cancelled = 0;
    entry->comm = churn->in[chance(churn, COMMS)];
    MPI_Request request;
    if (kind == RECEIVE) MPI_Irecv(&entry->got, 1, MPI_INT, rank, tag, entry->comm, &request);
    if (kind == WILD) MPI_Irecv(&entry->got, 1, MPI_INT, MPI_ANY_SOURCE, tag, entry->comm, &request);
    if (kind == PERSISTENT) {
        MPI_Recv_init(&entry->got, 1, MPI_INT, rank, tag, entry->comm, &request);
        MPI_Start(&request);
    }
    if (kind == EXCHANGE)
        MPI_Isendrecv(&entry->sent, 1, MPI_INT, rank, tag, &entry->got, 1, MPI_INT, rank, tag, entry->comm, &request);
    if (kind == SYNCHRONOUS) MPI_Issend(&entry->sent, 1, MPI_INT, rank, tag, entry->comm, &request);
    if (kind == NOBODY) MPI_Irecv(&entry->got, 1, MPI_INT, MPI_PROC_NULL, tag, entry->comm, &request);
    if (kind == COLLECTIVE) MPI_Iallreduce(&entry->sent, &entry->got, 1, MPI_INT, MPI_SUM, churn->alone, &request);
    set_state(churn, entry, kind == EXCHANGE || kind == NOBODY || kind == COLLECTIVE ? READY : ACTIVE);
    put(churn, entry, request);
}

/* The request is gone from both arrays. */
static void drop(Churn *churn, Entry *entry) {
    put(churn, entry, MPI_REQUEST_NULL);
    for (int w = 0; w < 2; w++) churn->owner[w][entry->at[w]] = -1;
    set_state(churn, entry, UNUSED);
}

/* Lets a request end, in one of several ways. */
static void trigger(Churn *churn) {
    Entry *entry = find(churn, ACTIVE);
    if (!entry) return;
    int how = chance(churn, 8);
    if (entry->kind == SYNCHRONOUS) {
        MPI_Recv(&entry->got, 1, MPI_INT, rank, entry->tag, entry->comm, MPI_STATUS_IGNORE);
    } else if (how == 0) {
        MPI_Request copy = churn->list[0][entry->at[0]];
        entry->is_cancelled = 1;
        MPI_Cancel(&copy);
    } else if (how == 1 && entry->kind != PERSISTENT) {
        static _Thread_local int nothing;
        MPI_Request copy = churn->list[0][entry->at[0]];
        MPI_Request_free(&copy);
        MPI_Send(&entry->sent, 1, MPI_INT, rank, entry->tag, entry->comm);
        MPI_Sendrecv(&nothing, 0, MPI_INT, rank, 31000, &nothing, 0, MPI_INT, rank, 31000, entry->comm, MPI_STATUS_IGNORE);
        CHECK(entry->got == entry->sent);
        drop(churn, entry);
        return;
    } else {
        MPI_Send(&entry->sent, 1, MPI_INT, rank, entry->tag, entry->comm);
    }
    set_state(churn, entry, READY);
}

static void restart(Churn *churn) {
    Entry *entry = find(churn, INACTIVE);
    if (!entry) return;
    if (chance(churn, 3) == 0) {
        MPI_Request copy = churn->list[1][entry->at[1]];
        MPI_Request_free(&copy);
        drop(churn, entry);
        return;
    }
    int w = chance(churn, 2);
    entry->got = -1, entry->is_cancelled = 0;
    MPI_Start(&churn->list[w][entry->at[w]]);
    set_state(churn, entry, ACTIVE);
}

static void ended(Churn *churn, int w, int place) {
    CHECK(place >= 0 && place < SLOTS && churn->owner[w][place] >= 0);
    Entry *entry = &churn->entries[churn->owner[w][place]];
    CHECK(entry->state == READY && (entry->got == entry->sent || entry->is_cancelled || entry->kind == NOBODY));
    if (entry->kind == PERSISTENT) {
        CHECK(churn->list[w][place] == churn->list[1 - w][entry->at[1 - w]]);
        set_state(churn, entry, INACTIVE);
    } else {
        CHECK(churn->list[w][place] == MPI_REQUEST_NULL);
        drop(churn, entry);
    }
}

/* Two requests of one array change places. */
static void swap(Churn *churn) {
    int w = chance(churn, 2), a = chance(churn, SLOTS), b = chance(churn, SLOTS), *owner = churn->owner[w];
    MPI_Request request = churn->list[w][a];
    int number = owner[a];
    churn->list[w][a] = churn->list[w][b], owner[a] = owner[b];
    churn->list[w][b] = request, owner[b] = number;
    if (owner[a] >= 0) churn->entries[owner[a]].at[w] = a;
    if (owner[b] >= 0) churn->entries[owner[b]].at[w] = b;
}

static void wait_directly(Churn *churn) {
    Entry *entry = find(churn, READY);
    if (!entry) return;
    int w = chance(churn, 2);
    MPI_Wait(&churn->list[w][entry->at[w]], MPI_STATUS_IGNORE);
    ended(churn, w, entry->at[w]);
}

static int is_any(const Churn *churn, int w, int first, int end) {
    for (int i = first; i < end; i++)
        if (churn->owner[w][i] >= 0 && churn->entries[churn->owner[w][i]].state != INACTIVE) return 1;
    return 0;
}

static void ask(Churn *churn) {
    static _Thread_local int places[SLOTS];
    int w = chance(churn, 2), how = chance(churn, 5), index = MPI_UNDEFINED, count = 0, flag = 0, length = SLOTS;
    MPI_Request *list = churn->list[w];
    if (how > 1 && chance(churn, 4) == 0) length = 64 + chance(churn, SLOTS - 64);
    if (how < 2 && churn->ready == 0 && is_any(churn, w, 0, SLOTS)) return; /* it would wait for ever */
    if (how == 0) CHECK(MPI_Waitany(SLOTS, list, &index, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    if (how == 1) CHECK(MPI_Waitsome(SLOTS, list, &count, places, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    if (how == 2) CHECK(MPI_Testany(length, list, &index, &flag, MPI_STATUS_IGNORE) == MPI_SUCCESS);
    if (how == 3) CHECK(MPI_Testsome(length, list, &count, places, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    if (how == 4) CHECK(MPI_Testall(length, list, &flag, MPI_STATUSES_IGNORE) == MPI_SUCCESS);
    if (how == 0) CHECK((index == MPI_UNDEFINED) == !is_any(churn, w, 0, SLOTS) || index >= 0);
    if (how == 1 || how == 3) CHECK((count == MPI_UNDEFINED) == !is_any(churn, w, 0, length) && (how == 3 || count != 0));
    if (how == 2) CHECK(index != MPI_UNDEFINED || flag == !is_any(churn, w, 0, length));
    if (how == 4 && flag)
        for (int i = 0; i < length; i++) {
            int number = churn->owner[w][i];
            if (number >= 0 && churn->entries[number].state != INACTIVE) ended(churn, w, i);
        }
    if ((how == 0 || how == 2) && index != MPI_UNDEFINED) ended(churn, w, index);
    for (int i = 0; i < count; i++) ended(churn, w, places[i]);
}

static void churn_about(const MPI_Comm *in, unsigned seed) {
    Churn *churn = calloc(1, sizeof *churn);
    memcpy(churn->in, in, sizeof churn->in);
    churn->seed = seed;
    MPI_Comm_dup(MPI_COMM_SELF, &churn->alone);
    for (int w = 0; w < 2; w++)
        for (int i = 0; i < SLOTS; i++) churn->list[w][i] = MPI_REQUEST_NULL, churn->owner[w][i] = -1;
    for (int step = 0; step < STEPS; step++) {
        int what = chance(churn, 16);
        if (what < 5) begin(churn);
        else if (what < 9) trigger(churn);
        else if (what < 13) ask(churn);
        else if (what == 13) swap(churn);
        else if (what == 14) wait_directly(churn);
        else restart(churn);
    }
    while (find(churn, ACTIVE)) trigger(churn);
    while (churn->ready > 0) {
        int index;
        MPI_Waitany(SLOTS, churn->list[0], &index, MPI_STATUS_IGNORE);
        ended(churn, 0, index);
    }
    for (Entry *entry; (entry = find(churn, INACTIVE));) {
        MPI_Request copy = churn->list[0][entry->at[0]];
        MPI_Request_free(&copy);
        drop(churn, entry);
    }
    MPI_Comm_free(&churn->alone);
    free(churn);
}

/* One thread waits for any of its receives, another sends to it: no end may be missed. */
typedef struct {
    MPI_Comm in[COMMS];
    unsigned seed;
} Pair;

static void *send_slowly(void *argument) {
    Pair *pair = argument;
    unsigned seed = pair->seed;
    for (int round = 0; round < ROUNDS; round++) {
        MPI_Recv(NULL, 0, MPI_INT, rank, 31001, pair->in[0], MPI_STATUS_IGNORE);
        for (int i = 0, first = rand_r(&seed) % SLOTS; i < SLOTS; i++) {
            int tag = (first + i) % SLOTS;
            MPI_Send(&tag, 1, MPI_INT, rank, tag, pair->in[tag % COMMS]);
            for (volatile int spin = rand_r(&seed) % 3000; spin > 0; spin--) {}
        }
    }
    return NULL;
}

static void *take_any(void *argument) {
    Pair *pair = argument;
    MPI_Request requests[SLOTS];
    int got[SLOTS], places[SLOTS], count, flag;
    for (int round = 0; round < ROUNDS; round++) {
        for (int i = 0; i < SLOTS; i++) MPI_Irecv(&got[i], 1, MPI_INT, rank, i, pair->in[i % COMMS], &requests[i]);
        MPI_Send(NULL, 0, MPI_INT, rank, 31001, pair->in[0]);
        for (int left = SLOTS; left > 0; left -= count) {
            count = 1, flag = 1;
            if (round % 3 == 0) MPI_Waitany(SLOTS, requests, places, MPI_STATUS_IGNORE);
            if (round % 3 == 1) MPI_Waitsome(SLOTS, requests, &count, places, MPI_STATUSES_IGNORE);
            if (round % 3 == 2) MPI_Testany(SLOTS, requests, places, &flag, MPI_STATUS_IGNORE);
            if (!flag) count = 0;
            for (int i = 0; i < count; i++) CHECK(got[places[i]] == places[i] && requests[places[i]] == MPI_REQUEST_NULL);
        }
    }
    return NULL;
}

static void *churn_beside(void *argument) {
    Pair *pair = argument;
    churn_about(pair->in, pair->seed);
    return NULL;
}

static void by_threads(unsigned seed) {
    static Pair pairs[2 * THREADS];
    pthread_t threads[3 * THREADS];
    for (int i = 0; i < 2 * THREADS; i++) {
        pairs[i].seed = seed + (unsigned)i;
        for (int j = 0; j < COMMS; j++) MPI_Comm_dup(MPI_COMM_WORLD, &pairs[i].in[j]);
    }
    for (int i = 0; i < THREADS; i++) {
        pthread_create(&threads[3 * i], NULL, take_any, &pairs[i]);
        pthread_create(&threads[3 * i + 1], NULL, send_slowly, &pairs[i]);
        pthread_create(&threads[3 * i + 2], NULL, churn_beside, &pairs[THREADS + i]);
    }
    for (int i = 0; i < 3 * THREADS; i++) pthread_join(threads[i], NULL);
    for (int i = 0; i < 2 * THREADS; i++)
        for (int j = 0; j < COMMS; j++) MPI_Comm_free(&pairs[i].in[j]);
}

/* A thread starts a persistent request and waits for it, again and again. Another asks for its status all the time:
   neither may wait for the other for ever. */
typedef struct {
    MPI_Request request;
    int is_over;
} Asked;

static void *ask_for_status(void *argument) {
    Asked *asked = argument;
    for (int flag; !__atomic_load_n(&asked->is_over, __ATOMIC_RELAXED);)
        MPI_Request_get_status(asked->request, &flag, MPI_STATUS_IGNORE);
    return NULL;
}

static void starts_beside_questions(MPI_Comm comm) {
    static char attached[1 << 12];
    MPI_Comm_attach_buffer(comm, attached, sizeof attached);
    for (int kind = 0; kind < 4; kind++) {
        int out = 0, in = 0, expected = 0;
        Asked asked = {MPI_REQUEST_NULL, 0};
        pthread_t thread;
        if (kind == 0) MPI_Recv_init(&in, 1, MPI_INT, rank, 7, comm, &asked.request);
        if (kind == 1) MPI_Ssend_init(&out, 1, MPI_INT, rank, 7, comm, &asked.request);
        if (kind == 2) MPI_Allreduce_init(&out, &in, 1, MPI_INT, MPI_SUM, comm, MPI_INFO_NULL, &asked.request);
        if (kind == 3) MPI_Bsend_init(&out, 1, MPI_INT, rank, 7, comm, &asked.request);
        pthread_create(&thread, NULL, ask_for_status, &asked);
        for (int start = 0; start < STARTS; start++) {
            MPI_Request received = MPI_REQUEST_NULL;
            out = start, expected = kind == 2 ? size * start : start;
            if (kind % 2) MPI_Irecv(&in, 1, MPI_INT, rank, 7, comm, &received);
            MPI_Start(&asked.request);
            if (kind == 0) MPI_Send(&out, 1, MPI_INT, rank, 7, comm);
            MPI_Wait(&asked.request, MPI_STATUS_IGNORE);
            MPI_Wait(&received, MPI_STATUS_IGNORE);
            CHECK(in == expected);
        }
        __atomic_store_n(&asked.is_over, 1, __ATOMIC_RELAXED);
        pthread_join(thread, NULL);
        MPI_Request_free(&asked.request);
    }
    MPI_Comm_detach_buffer(comm, &(void *){NULL}, &(int){0});
}

/* Sum of the library's counters whose names begin so. */
static double counted(const char *begins) {
    MPI_T_pvar_session session;
    int count, counts;
    double sum = 0;
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_get_num(&count);
    for (int i = 0; i < count; i++) {
        char name[100];
        int length = sizeof name, verbosity, class, bind, is_readonly, is_continuous, is_atomic;
        MPI_Datatype type;
        MPI_T_enum values;
        MPI_T_pvar_get_info(i, name, &length, &verbosity, &class, &type, &values, NULL, NULL, &bind, &is_readonly, &is_continuous, &is_atomic);
        if (strncmp(name, begins, strlen(begins))) continue;
        MPI_T_pvar_handle handle;
        unsigned long value = 0;
        MPI_T_pvar_handle_alloc(session, i, NULL, &handle, &counts);
        if (!is_continuous) MPI_T_pvar_start(session, handle);
        MPI_T_pvar_read(session, handle, &value);
        MPI_T_pvar_handle_free(session, &handle);
        sum += (double)value;
    }
    MPI_T_pvar_session_free(&session);
    return sum;
}

static MPI_Request requests[MANY];
static int got[MANY], places[MANY];

static void send_all(MPI_Comm comm) {
    for (int i = 0, tag; i < MANY; i++) tag = (int)(i * 1543L % MANY), MPI_Send(&tag, 1, MPI_INT, rank, tag, comm);
}

static void by_waitany(MPI_Comm comm) {
    int index;
    send_all(comm);
    for (int i = 0; i < MANY; i++) MPI_Waitany(MANY, requests, &index, MPI_STATUS_IGNORE);
}

static void by_testany(MPI_Comm comm) {
    int index, flag;
    send_all(comm);
    for (int left = MANY; left > 0; left -= flag) MPI_Testany(MANY, requests, &index, &flag, MPI_STATUS_IGNORE);
}

static void one_by_one(MPI_Comm comm) {
    for (int i = 0, tag, index; i < MANY; i++) {
        tag = (int)(i * 1543L % MANY);
        MPI_Send(&tag, 1, MPI_INT, rank, tag, comm);
        MPI_Waitany(MANY, requests, &index, MPI_STATUS_IGNORE);
        CHECK(index == tag);
    }
}

static void some_by_one(MPI_Comm comm) {
    for (int i = 0, tag, count; i < MANY; i++) {
        tag = (int)(i * 1543L % MANY);
        MPI_Send(&tag, 1, MPI_INT, rank, tag, comm);
        MPI_Waitsome(MANY, requests, &count, places, MPI_STATUSES_IGNORE);
        CHECK(count == 1 && places[0] == tag);
    }
}

static void posted_again(MPI_Comm comm) {
    for (int i = 0, tag, index; i < MANY; i++) {
        tag = (int)(i * 1543L % MANY);
        MPI_Send(&tag, 1, MPI_INT, rank, tag, comm);
        MPI_Waitany(MANY, requests, &index, MPI_STATUS_IGNORE);
        CHECK(index == tag);
        MPI_Irecv(&got[index], 1, MPI_INT, rank, index, comm, &requests[index]);
    }
    by_waitany(comm);
}

static void without_gaps(MPI_Comm comm) {
    send_all(comm);
    for (int left = MANY, index; left > 0; requests[index] = requests[--left]) {
        MPI_Waitany(left, requests, &index, MPI_STATUS_IGNORE);
        CHECK(index >= 0 && index < left);
    }
    for (int i = 0; i < MANY; i++) requests[i] = MPI_REQUEST_NULL;
}

static void linear(MPI_Comm comm) {
    void (*const ways[])(MPI_Comm) = {by_waitany, by_testany, one_by_one, some_by_one, posted_again, without_gaps};
    for (unsigned way = 0; way < sizeof ways / sizeof *ways; way++) {
        for (int i = 0; i < MANY; i++) MPI_Irecv(&got[i], 1, MPI_INT, rank, i, comm, &requests[i]);
        double before = counted("request_looks");
        ways[way](comm);
        double looks = (counted("request_looks") - before) / MANY;
        if (looks > LIMIT) fprintf(stderr, "way %u: %.1f looks for each request\n", way, looks);
        CHECK(looks <= LIMIT);
        for (int i = 0; i < MANY; i++) CHECK(got[i] == i && requests[i] == MPI_REQUEST_NULL);
    }
    /* Persistent requests, started again and again. */
    int index;
    for (int i = 0; i < MANY; i++) MPI_Recv_init(&got[i], 1, MPI_INT, rank, i, comm, &requests[i]);
    double before = counted("request_looks");
    for (int round = 0; round < 2; round++) {
        MPI_Startall(MANY, requests);
        by_waitany(comm);
        MPI_Waitany(MANY, requests, &index, MPI_STATUS_IGNORE);
        CHECK(index == MPI_UNDEFINED);
    }
    CHECK((counted("request_looks") - before) / (2 * MANY) <= LIMIT);
    for (int i = 0; i < MANY; i++) MPI_Request_free(&requests[i]);
    /* Collectives that end one after the other. The last rank comes late. */
    if (rank == size - 1) MPI_Barrier(comm);
    before = counted("task_steps");
    for (int i = 0; i < MANY; i++) MPI_Iallreduce(&places[i], &got[i], 1, MPI_INT, MPI_SUM, comm, &requests[i]);
    if (rank < size - 1) MPI_Barrier(comm);
    double looks = counted("request_looks");
    for (int i = 0; i < MANY; i++) MPI_Waitany(MANY, requests, &index, MPI_STATUS_IGNORE);
    CHECK((counted("request_looks") - looks) / MANY <= LIMIT);
    CHECK((counted("task_steps") - before) / MANY <= 4 * LIMIT);
    MPI_Waitany(MANY, requests, &index, MPI_STATUS_IGNORE);
    CHECK(index == MPI_UNDEFINED);
}

int main(int argc, char **argv) {
    int level, all;
    unsigned seed = argc > 1 ? (unsigned)atoi(argv[1]) : 1;
    MPI_Comm comms[COMMS];
    MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
    MPI_T_init_thread(MPI_THREAD_MULTIPLE, &all);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    for (int i = 0; i < COMMS; i++) MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
    for (unsigned i = 0; i < 4; i++) churn_about(comms, 4 * seed + i);
    linear(comms[seed % COMMS]);
    if (level == MPI_THREAD_MULTIPLE) by_threads(seed);
    if (level == MPI_THREAD_MULTIPLE) starts_beside_questions(comms[(seed + 1) % COMMS]);
    for (int i = 0; i < COMMS; i++) MPI_Comm_free(&comms[i]);
    MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
    if (rank == 0) printf("outstanding, seed %u, on %d ranks: %d failures\n", seed, size, all);
    MPI_T_finalize();
    MPI_Finalize();
    return all != 0;
}
