/* Exchanges between two ranks of MPI. */
#ifndef CANELE_BENCH_PINGPONG_H
#define CANELE_BENCH_PINGPONG_H

#include "exchange.h"
#include "program.h"

static void pingpong_answer(char *data, long bytes) {
    do {
        MPI_Recv(data, (int)bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        MPI_Send(data, (int)bytes, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
    } while (data[0] != PROGRAM_ENDS);
}

static void pingpong_once(const struct exchange *exchange) {
    MPI_Send(exchange->out, (int)exchange->bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    MPI_Recv(exchange->in, (int)exchange->bytes, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
}

static int pingpong_main(const char *program, enum exchange_kind kind, int argc, char **argv) {
    int size, failed = 0, rank = program_start(program, &argc, &argv, &size);
    double seconds = argc > 1 ? program_number(program, "the time per size", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    for (int i = 2; i < argc && rank < 2; i++) {
        struct program_case asked = exchange_case(program, kind, argv[i]);
        size_t bytes = (size_t)asked.bytes;
        struct exchange exchange = {pingpong_once, NULL, program_memory(program, bytes), program_memory(program, bytes), asked.bytes};
        if (rank == 1) pingpong_answer(exchange.in, asked.bytes);
        if (rank == 0) failed |= exchange_measure(program, kind, &exchange, asked, seconds);
        free(exchange.out);
        free(exchange.in);
    }
    return program_end(failed);
}

#endif
