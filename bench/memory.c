/* The limit of one-sided communication within a node: loads, stores, atomics and copies in memory that two processes
   share. Prints the rows of `onesided`. Usage: memory SECONDS_PER_OPERATION SIZE...

   A put is a store or a copy, and a fence. A get is a load or a copy. The other process has written the memory first,
   and sleeps. */
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "onesided.h"

struct memory {
    int64_t *here, *there; /* of this process, and shared */
    long bytes;
    int operation;
};

static void operate(void *what, char word) {
    struct memory *memory = what;
    volatile int64_t *here = memory->here, *there = memory->there;
    long words = memory->bytes / ONESIDED_WORD;
    (void)word;
    if (memory->operation == FETCH || memory->operation == FETCH_PACED || (memory->operation == ACCUMULATE && words == 1))
        here[1] = __atomic_fetch_add(there, here[0], __ATOMIC_SEQ_CST);
    else if (memory->operation == ACCUMULATE)
        for (long i = 0; i < words; i++) memory->there[i] += memory->here[i];
    else if (memory->operation == PUTS)
        for (long i = 0; i < ONESIDED_PUTS; i++) there[i] = here[i];
    else if (words == 1 && memory->operation == PUT)
        there[0] = here[0];
    else if (words == 1)
        here[0] = there[0];
    else
        memcpy(memory->operation == PUT ? memory->there : memory->here, memory->operation == PUT ? memory->here : memory->there,
               (size_t)memory->bytes);
    __asm__ volatile("" ::: "memory");
    if (memory->operation != GET) atomic_thread_fence(memory_order_seq_cst);
}

static void measure(struct memory *memory, int window, double seconds) {
    static struct samples samples;
    if (memory->operation == MAKE || window == COMPUTING) {
        missing_print(ONESIDED_NAMES[memory->operation], memory->bytes, window, "memory has no windows and needs no target");
        return;
    }
    double pace_us = memory->operation == FETCH_PACED ? ONESIDED_PACE_US : 0;
    onesided_take(&samples, seconds, (struct onesided_series){operate, memory, pace_us, 0, 1});
    onesided_print(memory->operation, window, memory->bytes, &samples, NULL);
}

static void measure_all(long bytes, double seconds) {
    size_t room = (size_t)onesided_moved(PUTS, ONESIDED_WORD) + (size_t)bytes;
    struct memory memory = {.bytes = bytes, .here = (int64_t *)program_memory("memory", room)};
    int pipes[2];
    char byte = 0;
    memory.there = mmap(NULL, room, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory.there == MAP_FAILED || pipe(pipes)) {
        perror("memory");
        exit(1);
    }
    pid_t other = fork();
    if (other == 0) {
        memcpy(memory.there, memory.here, room);
        close(pipes[0]);
        if (write(pipes[1], &byte, 1) == 1) pause();
        _exit(1);
    }
    close(pipes[1]);
    if (other < 0 || read(pipes[0], &byte, 1) != 1) {
        fprintf(stderr, "memory: there is no other process\n");
        exit(1);
    }
    for (memory.operation = 0; memory.operation < ONESIDED_OPERATIONS; memory.operation++)
        for (int window = 0; window < ONESIDED_WINDOWS; window++)
            if (onesided_has(memory.operation, window, bytes)) measure(&memory, window, seconds);
    close(pipes[0]);
    kill(other, SIGKILL);
    waitpid(other, NULL, 0);
    munmap(memory.there, room);
    free(memory.here);
}

int main(int argc, char **argv) {
    char host[256] = "";
    double seconds = argc > 1 ? program_number("memory", "the time per operation", argv[1], PROGRAM_MOST_SECONDS) : 0.2;
    gethostname(host, sizeof host - 1);
    clock_calibrate();
    clock_check(0.02);
    program_print("memory", "bare memory", 2, host, host);
    for (int i = 2; i < argc; i++) measure_all(onesided_bytes("memory", argv[i]), seconds);
    return 0;
}
