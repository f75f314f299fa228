/* Misuse of the native interface. Each error prints one line with its code, and nothing else is lost. Runs on two
   ranks. */
#include <mad.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "check.h"

static int size;

#define DO(call) do { int code_ = (call); if (code_) { printf("rank %d, line %d: %s\n", rank, __LINE__, mad_last_error()); exit(1); } } while (0)
/* The call fails with this code, for this reason. */
#define FAILS(expected, reason, call) fails(__LINE__, expected, reason, call)

static void fails(int line, int expected, const char *reason, int code) {
    const char *message = mad_last_error();
    if (code == expected && strstr(message, reason) && strstr(message, mad_strerror(code)) && !strchr(message, '\n')) return;
    printf("rank %d, line %d: code %d where %d was due, saying: %s\n", rank, line, code, expected, message);
    failures++;
}

enum { S = mad_send_SAFER, L = mad_send_LATER, C = mad_send_CHEAPER, X = mad_receive_EXPRESS, R = mad_receive_CHEAPER, U = MAD_NEXT_UNKNOWN };
enum { LONG = 200000, MANY = 100000 };

static char word[8] = "1234567", other[LONG + 1], long_data[LONG];

static void arguments(mad_channel_t channel, int peer) {
    mad_connection_t c, d;
    mad_channel_t again;
    int number;
    FAILS(MAD_ERR_CHANNEL, "channel 3 is open in this process already", mad_channel_open(3, &again));
    FAILS(MAD_ERR_CHANNEL, "channel -1 is negative", mad_channel_open(-1, &again));
    FAILS(MAD_ERR_CHANNEL, "below 65536", mad_channel_open(65536, &again));
    FAILS(MAD_ERR_ARGUMENT, "channel is NULL", mad_channel_open(4, NULL));
    FAILS(MAD_ERR_ARGUMENT, "rank is NULL", mad_rank(NULL));
    FAILS(MAD_ERR_HANDLE, "channel is NULL", mad_channel_close(NULL));
    FAILS(MAD_ERR_HANDLE, "not a live Channel", mad_begin_packing((mad_channel_t)&number, peer, &c));
    FAILS(MAD_ERR_RANK, "process 2 of a job of 2", mad_begin_packing(channel, 2, &c));
    FAILS(MAD_ERR_RANK, "to = -1 is negative", mad_begin_packing(channel, -1, &c));
    FAILS(MAD_ERR_RANK, "process 1000000 of a job of 2", mad_begin_unpacking_from(channel, 1000000, &c));
    FAILS(MAD_ERR_ARGUMENT, "connection is NULL", mad_begin_packing(channel, peer, NULL));
    FAILS(MAD_ERR_ARGUMENT, "connection is NULL", mad_begin_unpacking(channel, NULL));

    DO(mad_channel_open(4, &again));
    DO(mad_channel_close(again));
    FAILS(MAD_ERR_HANDLE, "stale", mad_channel_close(again));
    FAILS(MAD_ERR_HANDLE, "stale", mad_begin_packing(again, peer, &c));

    DO(mad_begin_packing(channel, peer, &c));
    FAILS(MAD_ERR_OPEN, "has not been ended", mad_begin_packing(channel, peer, &d));
    FAILS(MAD_ERR_OPEN, "was not ended", mad_channel_close(channel));
    FAILS(MAD_ERR_OPEN, "was not ended", mad_finalize());
    FAILS(MAD_ERR_ARGUMENT, "data is NULL", mad_pack(c, NULL, 1, S, X, U));
    FAILS(MAD_ERR_ARGUMENT, "more than memory", mad_pack(c, word, (size_t)-1, S, X, U));
    FAILS(MAD_ERR_ARGUMENT, "send = 0x7 is no send constraint", mad_pack(c, word, 8, 7, X, U));
    FAILS(MAD_ERR_ARGUMENT, "receive = 0x3 is no receive constraint", mad_pack(c, word, 8, S, C, U));
    FAILS(MAD_ERR_ARGUMENT, "next = 0x200", mad_pack(c, word, 8, S, X, 0x200));
    FAILS(MAD_ERR_HANDLE, "not a live MadMessage", mad_unpack(c, word, 8, S, X, U));
    FAILS(MAD_ERR_HANDLE, "not a live MadMessage", mad_end_unpacking(c));
    DO(mad_pack(c, word, 8, S, X, U));
    DO(mad_end_packing(c));
    FAILS(MAD_ERR_HANDLE, "stale", mad_end_packing(c));
    FAILS(MAD_ERR_HANDLE, "stale", mad_pack(c, word, 8, S, X, U));
    FAILS(MAD_ERR_HANDLE, "connection is NULL", mad_end_packing(NULL));

    DO(mad_begin_unpacking_from(channel, peer, &c));
    FAILS(MAD_ERR_OPEN, "has not been ended", mad_begin_unpacking_from(channel, peer, &d));
    FAILS(MAD_ERR_HANDLE, "not a live MadMessage", mad_pack(c, word, 8, S, X, U));
    FAILS(MAD_ERR_ARGUMENT, "data is NULL", mad_unpack(c, NULL, 8, S, X, U));
    DO(mad_unpack(c, other, 8, S, X, U));
    CHECK(!memcmp(other, word, 8));
    DO(mad_end_unpacking(c));
    FAILS(MAD_ERR_HANDLE, "stale", mad_unpack(c, word, 8, S, X, U));
    FAILS(MAD_ERR_HANDLE, "stale", mad_end_unpacking(c));
}

static void packs(mad_channel_t channel, int peer) {
    mad_connection_t c;
    for (int i = 0; i < 6; i++) {
        DO(mad_begin_packing(channel, peer, &c));
        DO(mad_pack(c, word, 8, S, X, U));
        DO(mad_pack(c, long_data, LONG, C, R, U));
        DO(mad_pack(c, word, 8, L, R, U));
        DO(mad_end_packing(c));
    }
}

static void unpacks_wrongly(mad_channel_t channel, int peer) {
    mad_connection_t c;
    /* Lengths and constraints that differ, while the packet is present: it stays. */
    DO(mad_begin_unpacking(channel, &c));
    FAILS(MAD_ERR_SIZE, "packet 0 from process 0 has 8 bytes; 4 were to be unpacked", mad_unpack(c, other, 4, S, X, U));
    FAILS(MAD_ERR_SIZE, "has 8 bytes; 9 were", mad_unpack(c, other, 9, S, R, U));
    FAILS(MAD_ERR_CONSTRAINTS, "is SAFER, EXPRESS; it was to be unpacked as SAFER, CHEAPER", mad_unpack(c, other, 8, S, R, U));
    FAILS(MAD_ERR_CONSTRAINTS, "as CHEAPER, EXPRESS", mad_unpack(c, other, 8, C, X, U));
    DO(mad_unpack(c, other, 8, S, X, U));
    CHECK(!memcmp(other, word, 8));
    FAILS(MAD_ERR_SIZE, "packet 1 from process 0 has 200000 bytes; 8", mad_unpack(c, other, 8, L, R, U));
    DO(mad_unpack(c, other, LONG, C, R, U));
    DO(mad_unpack(c, word, 8, L, R, U));
    FAILS(MAD_ERR_PACKETS, "only 3 packets", mad_unpack(c, other, 8, S, X, U));
    FAILS(MAD_ERR_PACKETS, "only 3 packets", mad_unpack(c, other, 8, S, R, U));
    DO(mad_end_unpacking(c));
    CHECK(!memcmp(other, long_data, LONG));

    /* Packets left: short, long and late ones. */
    for (int taken = 0; taken < 3; taken++) {
        DO(mad_begin_unpacking_from(channel, peer, &c));
        if (taken > 0) DO(mad_unpack(c, other, 8, S, X, U));
        if (taken > 1) DO(mad_unpack(c, other, LONG, C, R, U));
        FAILS(MAD_ERR_PACKETS, taken == 0 ? "3 of 3 packets" : taken == 1 ? "2 of 3 packets" : "1 of 3 packets", mad_end_unpacking(c));
    }

    /* The next two are whole. */
    for (int i = 0; i < 2; i++) {
        memset(other, 0, LONG);
        memset(word, 0, 8);
        DO(mad_begin_unpacking(channel, &c));
        DO(mad_unpack(c, other, 8, S, X, U));
        CHECK(!strcmp(other, "1234567"));
        DO(mad_unpack(c, other, LONG, C, R, U));
        DO(mad_unpack(c, word, 8, L, R, U));
        DO(mad_end_unpacking(c));
        CHECK(!memcmp(other, long_data, LONG) && !strcmp(word, "1234567"));
    }
}

/* Unpacks that return before the message has come. Their errors are reported at the end, and the others get their
   data. */
static void wrong_in_advance(mad_channel_t channel, mad_channel_t go, int sends, int peer) {
    mad_connection_t c, d;
    char a[8] = "", b[8] = "", e[8] = "";
    static char beyond[LONG];
    for (int which = 0; which < 6; which++) {
        if (sends) {
            DO(mad_begin_unpacking_from(go, peer, &d));
            DO(mad_end_unpacking(d));
            DO(mad_begin_packing(channel, peer, &c));
            DO(mad_pack(c, word, 8, S, R, U));
            DO(mad_pack(c, long_data, LONG, C, R, U));
            DO(mad_pack(c, word, 8, S, R, U));
            DO(mad_end_packing(c));
            continue;
        }
        memset(e, 0, 8);
        DO(mad_begin_unpacking_from(channel, peer, &c));
        DO(mad_unpack(c, a, which == 0 ? 7 : 8, S, R, U));
        DO(mad_unpack(c, other, LONG + (which == 3) - (which == 4), which == 1 ? S : C, R, U));
        DO(mad_unpack(c, e, 8, S, R, MAD_NEXT_COMPUTING));
        if (which == 2) DO(mad_unpack(c, b, 8, S, R, U));
        if (which == 5) DO(mad_unpack(c, beyond, LONG, C, R, U));
        DO(mad_begin_packing(go, peer, &d));
        DO(mad_end_packing(d));
        if (which == 0) FAILS(MAD_ERR_SIZE, "packet 0 from process 0 has 8 bytes; 7", mad_end_unpacking(c));
        if (which == 1) FAILS(MAD_ERR_CONSTRAINTS, "packet 1 from process 0 is CHEAPER, CHEAPER", mad_end_unpacking(c));
        if (which == 3) FAILS(MAD_ERR_SIZE, "packet 1 from process 0 has 200000 bytes; 200001", mad_end_unpacking(c));
        if (which == 4) FAILS(MAD_ERR_SIZE, "packet 1 from process 0 has 200000 bytes; 199999", mad_end_unpacking(c));
        if (which == 2 || which == 5) FAILS(MAD_ERR_PACKETS, "only 3 packets", mad_end_unpacking(c));
        CHECK(!strcmp(e, "1234567"));
    }
}

/* A message in use by another thread. As many packets are unpacked as fit before that thread waits in its call. The
   sender then learns their number, and the waiting call gets its own packet. */
static mad_connection_t shared;
static void *waits(void *wrong) {
    char got[8];
    int code;
    do code = mad_unpack(shared, got, 8, S, X, U);
    while (code == MAD_ERR_BUSY);
    if (code || strcmp(got, "1234567")) *(int *)wrong = 1;
    return NULL;
}
static void two_threads(mad_channel_t channel, mad_channel_t go, int sends, int peer) {
    static char bytes[MANY];
    mad_connection_t c;
    int before = 0, wrong = 0, code;
    if (sends) {
        DO(mad_begin_unpacking_from(go, peer, &c));
        DO(mad_unpack(c, &before, sizeof before, S, X, U));
        DO(mad_end_unpacking(c));
        DO(mad_begin_packing(channel, peer, &c));
        for (int i = 0; i < before; i++) DO(mad_pack(c, "*", 1, S, R, U));
        DO(mad_pack(c, "1234567", 8, S, X, U));
        DO(mad_end_packing(c));
        return;
    }
    pthread_t thread;
    DO(mad_begin_unpacking_from(channel, peer, &shared));
    pthread_create(&thread, NULL, waits, &wrong);
    while (!(code = mad_unpack(shared, &bytes[before], 1, S, R, U)) && before < MANY - 1) {
        before++;
        usleep(100);
    }
    FAILS(MAD_ERR_BUSY, "by one thread at a time", code);
    FAILS(MAD_ERR_BUSY, "by one thread at a time", mad_end_unpacking(shared));
    DO(mad_begin_packing(go, peer, &c));
    DO(mad_pack(c, &before, sizeof before, S, X, U));
    DO(mad_end_packing(c));
    pthread_join(thread, NULL);
    CHECK(!wrong);
    DO(mad_end_unpacking(shared));
    for (int i = 0; i < before; i++) CHECK(bytes[i] == '*');
}

/* A message that is open at fork: the parent sends its packets, and the child sends nothing. */
static void forked(mad_channel_t channel, int sends, int peer) {
    const char *reason = "called in a forked process";
    mad_connection_t c, d;
    int status = 1;
    if (!sends) {
        DO(mad_begin_unpacking_from(channel, peer, &c));
        DO(mad_unpack(c, other, 8, S, X, U));
        DO(mad_end_unpacking(c));
        CHECK(!memcmp(other, word, 8));
        return;
    }
    DO(mad_begin_packing(channel, peer, &c));
    fflush(NULL);
    pid_t child = fork();
    if (child == 0) {
        failures = 0;
        FAILS(MAD_ERR_STATE, reason, mad_rank(&rank));
        FAILS(MAD_ERR_STATE, reason, mad_begin_packing(channel, peer, &d));
        FAILS(MAD_ERR_STATE, reason, mad_end_packing(c));
        FAILS(MAD_ERR_STATE, reason, mad_init());
        FAILS(MAD_ERR_STATE, reason, mad_finalize());
        fflush(NULL);
        _exit(failures);
    }
    waitpid(child, &status, 0);
    CHECK(status == 0);
    DO(mad_pack(c, word, 8, S, X, U));
    DO(mad_end_packing(c));
}

int main(void) {
    mad_channel_t channel, go, none = NULL;
    FAILS(MAD_ERR_STATE, "mad_init comes first", mad_rank(&rank));
    FAILS(MAD_ERR_STATE, "mad_init comes first", mad_channel_open(1, &channel));
    FAILS(MAD_ERR_STATE, "mad_init comes first", mad_begin_packing(none, 0, (mad_connection_t *)&go));
    FAILS(MAD_ERR_STATE, "mad_init comes first", mad_finalize());
    CHECK(!strcmp(mad_strerror(0), "success") && !strcmp(mad_strerror(99), "no code of this library"));
    DO(mad_init());
    DO(mad_rank(&rank));
    DO(mad_size(&size));
    DO(mad_channel_open(3, &channel));
    DO(mad_channel_open(2, &go));
    for (int i = 0; i < LONG; i++) long_data[i] = (char)(i * 31);
    arguments(channel, 1 - rank);
    if (rank == 0) packs(channel, 1);
    else unpacks_wrongly(channel, 0);
    wrong_in_advance(channel, go, rank == 0, 1 - rank);
    two_threads(channel, go, rank == 0, 1 - rank);
    forked(channel, rank == 0, 1 - rank);
    DO(mad_finalize());
    FAILS(MAD_ERR_STATE, "mad_finalize last", mad_finalize());
    FAILS(MAD_ERR_STATE, "mad_finalize last", mad_size(&size));
    FAILS(MAD_ERR_STATE, "mad_finalize last", mad_begin_packing(channel, 0, (mad_connection_t *)&go));
    DO(mad_init());
    FAILS(MAD_ERR_HANDLE, "", mad_begin_packing(channel, 0, (mad_connection_t *)&go));
    DO(mad_finalize());
    printf("misuse on rank %d: %d failures\n", rank, failures);
    return failures != 0;
}
