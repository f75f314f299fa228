/* The native interface between pairs of ranks and among all of them. Covers the meaning of each constraint, arrays of
   unknown length, long packets beside short ones, many channels and peers. Usage: mad_pack [mpi]
   With `mpi`, MPI is used beside it, and finalised first on odd ranks. */
#include <mad.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { LONG = 10 << 20, MIDDLE = 5000, CHANNELS = 7, ROUNDS = 30 };

static int size;

#define DO(call) do { int code_ = (call); if (code_) { printf("rank %d, line %d: %s\n", rank, __LINE__, mad_last_error()); exit(1); } } while (0)

static void fill(unsigned char *data, size_t length, int seed) {
    for (size_t i = 0; i < length; i++) data[i] = (unsigned char)(seed + i * 7 + i / 251);
}
static int is_filled(const unsigned char *data, size_t length, int seed) {
    for (size_t i = 0; i < length; i++)
        if (data[i] != (unsigned char)(seed + i * 7 + i / 251)) return 0;
    return 1;
}
static void pack(mad_connection_t c, const void *data, size_t length, int send, int receive) {
    DO(mad_pack(c, data, length, send, receive, MAD_NEXT_UNKNOWN));
}
static void unpack(mad_connection_t c, void *data, size_t length, int send, int receive) {
    DO(mad_unpack(c, data, length, send, receive, MAD_NEXT_UNKNOWN));
}

/* Figure 12: the receiver learns the length of an array, allocates memory for it, and receives it. */
static void array_of_unknown_length(mad_channel_t channel, int sends, int peer, int length) {
    mad_connection_t c;
    if (sends) {
        unsigned char *array = malloc(length);
        fill(array, length, length);
        DO(mad_begin_packing(channel, peer, &c));
        pack(c, &length, sizeof length, mad_send_CHEAPER, mad_receive_EXPRESS);
        pack(c, array, length, mad_send_CHEAPER, mad_receive_CHEAPER);
        DO(mad_end_packing(c));
        free(array);
    } else {
        int from, announced = -1;
        DO(mad_begin_unpacking(channel, &c));
        DO(mad_peer(c, &from));
        CHECK(from == peer);
        unpack(c, &announced, sizeof announced, mad_send_CHEAPER, mad_receive_EXPRESS);
        CHECK(announced == length);
        unsigned char *array = calloc(announced, 1);
        unpack(c, array, announced, mad_send_CHEAPER, mad_receive_CHEAPER);
        DO(mad_end_unpacking(c));
        CHECK(is_filled(array, announced, length));
        free(array);
    }
}

/* The memory is overwritten as soon as the constraint permits it. With LATER it must be. */
static void when_memory_is_read(mad_channel_t channel, int sends, int peer, size_t length, int receive) {
    unsigned char *safer = malloc(length), *later = malloc(length), *cheaper = malloc(length);
    mad_connection_t c;
    if (sends) {
        fill(safer, length, 1);
        memset(later, 0xee, length);
        fill(cheaper, length, 3);
        DO(mad_begin_packing(channel, peer, &c));
        pack(c, safer, length, mad_send_SAFER, receive);
        memset(safer, 0xee, length);
        pack(c, later, length, mad_send_LATER, receive);
        pack(c, cheaper, length, mad_send_CHEAPER, receive);
        pack(c, later, length, mad_send_LATER, receive);
        fill(later, length, 2);
        DO(mad_end_packing(c));
        memset(later, 0xee, length);
        memset(cheaper, 0xee, length);
    } else {
        unsigned char *again = malloc(length);
        DO(mad_begin_unpacking_from(channel, peer, &c));
        unpack(c, safer, length, mad_send_SAFER, receive);
        if (receive == mad_receive_EXPRESS) CHECK(is_filled(safer, length, 1));
        unpack(c, later, length, mad_send_LATER, receive);
        if (receive == mad_receive_EXPRESS) CHECK(is_filled(later, length, 2));
        unpack(c, cheaper, length, mad_send_CHEAPER, receive);
        if (receive == mad_receive_EXPRESS) CHECK(is_filled(cheaper, length, 3));
        unpack(c, again, length, mad_send_LATER, receive);
        DO(mad_end_unpacking(c));
        CHECK(is_filled(safer, length, 1));
        CHECK(is_filled(later, length, 2));
        CHECK(is_filled(cheaper, length, 3));
        CHECK(is_filled(again, length, 2));
        free(again);
    }
    free(safer), free(later), free(cheaper);
}

/* An answer in the middle of a message. Packed data leaves when the sender computes or waits for the answer. A packet
   that is read late does not delay later ones. */
static void answer_in_between(mad_channel_t channel, mad_channel_t back, int sends, int peer, int length, int next) {
    char *late = calloc(length, 1);
    int question = 6, answer = 0;
    mad_connection_t c, d;
    if (sends) {
        DO(mad_begin_packing(channel, peer, &c));
        pack(c, late, length, mad_send_LATER, mad_receive_CHEAPER);
        DO(mad_pack(c, &question, sizeof question, mad_send_SAFER, mad_receive_EXPRESS, next));
        DO(mad_begin_unpacking_from(back, peer, &d));
        unpack(d, &answer, sizeof answer, mad_send_CHEAPER, mad_receive_EXPRESS);
        DO(mad_end_unpacking(d));
        memset(late, answer, length);
        DO(mad_end_packing(c));
    } else {
        DO(mad_begin_unpacking_from(channel, peer, &c));
        unpack(c, late, length, mad_send_LATER, mad_receive_CHEAPER);
        unpack(c, &question, sizeof question, mad_send_SAFER, mad_receive_EXPRESS);
        answer = 7 * question;
        DO(mad_begin_packing(back, peer, &d));
        pack(d, &answer, sizeof answer, mad_send_CHEAPER, mad_receive_EXPRESS);
        DO(mad_end_packing(d));
        DO(mad_end_unpacking(c));
        for (int i = 0; i < length; i++) CHECK(late[i] == 42);
    }
    free(late);
}

/* Long packets among short ones, with every hint. */
static void long_beside_short(mad_channel_t channel, int sends, int peer, int next) {
    unsigned char *data = malloc(LONG), little[3];
    mad_connection_t c;
    if (sends) {
        fill(data, LONG, 9);
        fill(little, 3, 5);
        DO(mad_begin_packing(channel, peer, &c));
        for (int i = 0; i < 4; i++) {
            DO(mad_pack(c, little, i % 4, mad_send_SAFER, i % 2 ? mad_receive_EXPRESS : mad_receive_CHEAPER, next));
            DO(mad_pack(c, data, LONG - i, i == 2 ? mad_send_SAFER : mad_send_CHEAPER, mad_receive_CHEAPER, next));
        }
        DO(mad_end_packing(c));
    } else {
        unsigned char *copies[4], littles[4][3];
        DO(mad_begin_unpacking_from(channel, peer, &c));
        for (int i = 0; i < 4; i++) {
            copies[i] = malloc(LONG);
            DO(mad_unpack(c, littles[i], i % 4, mad_send_SAFER, i % 2 ? mad_receive_EXPRESS : mad_receive_CHEAPER, next));
            if (i % 2) CHECK(is_filled(littles[i], i, 5));
            DO(mad_unpack(c, copies[i], LONG - i, i == 2 ? mad_send_SAFER : mad_send_CHEAPER, mad_receive_CHEAPER, next));
        }
        DO(mad_end_unpacking(c));
        for (int i = 0; i < 4; i++) {
            CHECK(is_filled(littles[i], i, 5));
            CHECK(is_filled(copies[i], LONG - i, 9));
            free(copies[i]);
        }
    }
    free(data);
}

/* Many packets, more than a batch or a frame holds. */
static void many_packets(mad_channel_t channel, int sends, int peer, int count) {
    mad_connection_t c;
    unsigned char data[40];
    if (sends) DO(mad_begin_packing(channel, peer, &c));
    else DO(mad_begin_unpacking_from(channel, peer, &c));
    for (int i = 0; i < count; i++) {
        if (sends) {
            fill(data, i % 40, i);
            pack(c, data, i % 40, mad_send_SAFER, mad_receive_EXPRESS);
        } else {
            unpack(c, data, i % 40, mad_send_SAFER, mad_receive_EXPRESS);
            CHECK(is_filled(data, i % 40, i));
        }
    }
    DO(sends ? mad_end_packing(c) : mad_end_unpacking(c));
}

/* All ranks send to all, themselves included, on many channels. */
static void all_to_all(mad_channel_t *channels) {
    static unsigned char out[CHANNELS][MIDDLE], in[MIDDLE];
    mad_connection_t c;
    for (int round = 0; round < ROUNDS; round++) {
        int length = round % 3 == 2 ? MIDDLE : 10 * round;
        for (int i = 0; i < CHANNELS * size; i++) {
            int to = (rank + i) % size, on = i / size, head[2] = {round, length};
            fill(out[on], length, rank + round + on);
            DO(mad_begin_packing(channels[on], to, &c));
            pack(c, head, sizeof head, mad_send_SAFER, mad_receive_EXPRESS);
            pack(c, out[on], length, mad_send_CHEAPER, mad_receive_CHEAPER);
            DO(mad_end_packing(c));
        }
        for (int i = CHANNELS * size - 1; i >= 0; i--) {
            int from = (rank + i) % size, on = i / size, head[2];
            DO(mad_begin_unpacking_from(channels[on], from, &c));
            unpack(c, head, sizeof head, mad_send_SAFER, mad_receive_EXPRESS);
            CHECK(head[0] == round && head[1] == length);
            unpack(c, in, length, mad_send_CHEAPER, mad_receive_CHEAPER);
            DO(mad_end_unpacking(c));
            CHECK(is_filled(in, length, from + round + on));
        }
    }
}

/* Rank 0 unpacks a message of every other rank at once, in order of arrival, and ends them in reverse order. */
static void from_anybody(mad_channel_t channel) {
    mad_connection_t c, all[64];
    for (int round = 0; round < ROUNDS; round++) {
        int words[2] = {100 * rank + round, 0}, peers = 0;
        if (rank) {
            DO(mad_begin_packing(channel, 0, &c));
            pack(c, &words[0], sizeof(int), mad_send_CHEAPER, mad_receive_EXPRESS);
            pack(c, &words[1], sizeof(int), mad_send_LATER, mad_receive_CHEAPER);
            words[1] = -words[0];
            DO(mad_end_packing(c));
            continue;
        }
        int got[64][2], peer;
        for (int i = 1; i < size; i++) {
            DO(mad_begin_unpacking(channel, &all[i]));
            DO(mad_peer(all[i], &peer));
            peers += peer;
            unpack(all[i], &got[i][0], sizeof(int), mad_send_CHEAPER, mad_receive_EXPRESS);
            CHECK(got[i][0] == 100 * peer + round);
            unpack(all[i], &got[i][1], sizeof(int), mad_send_LATER, mad_receive_CHEAPER);
        }
        for (int i = size - 1; i > 0; i--) {
            DO(mad_end_unpacking(all[i]));
            CHECK(got[i][1] == -got[i][0]);
        }
        CHECK(peers == size * (size - 1) / 2);
    }
}

/* Messages for a channel that is not open wait. A number that is opened again continues its count. */
static void closed_and_opened(int sends, int peer) {
    mad_channel_t channel;
    mad_connection_t c;
    for (int i = 0; i < 3; i++) {
        int word = i;
        DO(mad_channel_open(1000, &channel));
        DO(sends ? mad_begin_packing(channel, peer, &c) : mad_begin_unpacking_from(channel, peer, &c));
        if (sends) pack(c, &word, sizeof word, mad_send_CHEAPER, mad_receive_EXPRESS);
        else unpack(c, &word, sizeof word, mad_send_CHEAPER, mad_receive_EXPRESS);
        CHECK(word == i);
        DO(sends ? mad_end_packing(c) : mad_end_unpacking(c));
        DO(mad_channel_close(channel));
    }
}

int main(int argc, char **argv) {
    int with_mpi = argc > 1 && !strcmp(argv[1], "mpi"), all;
    mad_channel_t channels[CHANNELS], pairs;
    if (with_mpi && getenv("PMI_RANK") && atoi(getenv("PMI_RANK")) % 2) MPI_Init(&argc, &argv);
    DO(mad_init());
    DO(mad_init());
    DO(mad_rank(&rank));
    DO(mad_size(&size));
    if (with_mpi && rank % 2 == 0) MPI_Init(&argc, &argv);
    for (int i = 0; i < CHANNELS; i++) DO(mad_channel_open(5 * i, &channels[i]));
    /* A pair that is ready early accepts any message, but on this channel all come from its partner. */
    DO(mad_channel_open(65535, &pairs));

    int peer = rank ^ 1;
    if (peer < size) {
        static const int lengths[] = {0, 1, 1000, 1024, 1025, 5000, 70000, 300000};
        static const int hints[] = {MAD_NEXT_UNKNOWN, MAD_NEXT_COMPUTING, MAD_NEXT_PACKET(mad_send_SAFER, mad_receive_EXPRESS)};
        for (int turn = 0; turn < 2; turn++) {
            int sends = rank % 2 == turn;
            for (int i = 0; i < 8; i++) {
                array_of_unknown_length(pairs, sends, peer, lengths[i]);
                when_memory_is_read(channels[0], sends, peer, lengths[i], mad_receive_EXPRESS);
                when_memory_is_read(channels[0], sends, peer, lengths[i], mad_receive_CHEAPER);
                for (int k = 0; k < 3; k++) answer_in_between(channels[1], channels[2], sends, peer, lengths[i], hints[k]);
                many_packets(channels[3], sends, peer, 40 * i * i);
            }
            for (int i = 0; i < 3; i++) long_beside_short(channels[4], sends, peer, hints[i]);
            closed_and_opened(sends, peer);
        }
    }
    if (with_mpi) MPI_Barrier(MPI_COMM_WORLD);
    all_to_all(channels);
    from_anybody(channels[CHANNELS - 1]);
    if (with_mpi) {
        MPI_Allreduce(&failures, &all, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD);
        if (rank == 0) printf("native and MPI on %d ranks: %d failures\n", size, all);
    } else {
        printf("native on rank %d of %d: %d failures\n", rank, size, failures);
    }
    if (with_mpi && rank % 2) MPI_Finalize();
    DO(mad_finalize());
    DO(mad_finalize());
    if (with_mpi && rank % 2 == 0) {
        MPI_Barrier(MPI_COMM_SELF);
        MPI_Finalize();
    }
    return failures != 0;
}
