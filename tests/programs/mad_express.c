/* What gathering saves: N packets of 16 bytes, each wanted at once by the receiver, sent to and fro between
   two ranks as one message, and one by one in three ways. Prints the median and the least of a half round
   trip in microseconds, and how many times those of the one message they are.
   Usage: mad_express [N [REPEATS]] */
#include <mad.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

enum { LENGTH = 16, AT_ONCE = 0, FLUSHED = 1, MESSAGES = 2, ANSWERED = 3, WAYS = 4 };

static mad_channel_t channel;
static int rank, packets = 64, repeats = 200;

#define DO(call) do { int code_ = (call); if (code_) { fprintf(stderr, "%s\n", mad_last_error()); exit(1); } } while (0)

static double now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1e6 + t.tv_nsec * 1e-3;
}
static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

static void give(int way) {
    char data[LENGTH] = "sixteen bytes!!";
    int next = way == FLUSHED ? MAD_NEXT_COMPUTING : MAD_NEXT_PACKET(mad_send_CHEAPER, mad_receive_EXPRESS);
    mad_connection_t c = NULL;
    for (int i = 0; i < packets; i++) {
        if (i == 0 || way >= MESSAGES) DO(mad_begin_packing(channel, 1 - rank, &c));
        DO(mad_pack(c, data, LENGTH, mad_send_CHEAPER, mad_receive_EXPRESS, next));
        if (i == packets - 1 || way >= MESSAGES) DO(mad_end_packing(c));
        if (way == ANSWERED) {
            DO(mad_begin_unpacking_from(channel, 1 - rank, &c));
            DO(mad_end_unpacking(c));
        }
    }
}

static void take(int way) {
    char data[LENGTH];
    mad_connection_t c = NULL;
    for (int i = 0; i < packets; i++) {
        if (i == 0 || way >= MESSAGES) DO(mad_begin_unpacking_from(channel, 1 - rank, &c));
        DO(mad_unpack(c, data, LENGTH, mad_send_CHEAPER, mad_receive_EXPRESS, MAD_NEXT_UNKNOWN));
        if (i == packets - 1 || way >= MESSAGES) DO(mad_end_unpacking(c));
        if (way == ANSWERED) {
            DO(mad_begin_packing(channel, 1 - rank, &c));
            DO(mad_end_packing(c));
        }
    }
}

int main(int argc, char **argv) {
    static const char *names[] = {"one message", "each flushed", "a message each", "each answered"};
    double median[WAYS], least[WAYS];
    if (argc > 1) packets = atoi(argv[1]);
    if (argc > 2) repeats = atoi(argv[2]);
    double *took = malloc(repeats * WAYS * sizeof *took);
    DO(mad_init());
    DO(mad_rank(&rank));
    DO(mad_channel_open(0, &channel));
    /* In turn, so that what else the machine does meets all alike. */
    for (int i = -repeats / 10; i < repeats; i++)
        for (int way = 0; way < WAYS; way++) {
            double begin = now_us();
            if (rank == 0) give(way), take(way);
            else take(way), give(way);
            if (i >= 0) took[way * repeats + i] = (now_us() - begin) / 2;
        }
    for (int way = 0; way < WAYS; way++) {
        qsort(took + way * repeats, repeats, sizeof *took, compare);
        median[way] = took[way * repeats + repeats / 2];
        least[way] = took[way * repeats];
        if (rank == 0)
            printf("%d packets of %d B, %s: median %.2f us, %.1f times; least %.2f us, %.1f times\n", packets, LENGTH, names[way], median[way], median[way] / median[AT_ONCE], least[way], least[way] / least[AT_ONCE]);
    }
    free(took);
    DO(mad_finalize());
    return 0;
}
