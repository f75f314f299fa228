/* Half a round trip of raw TCP, for each size: lines of JSON as pingpong.c prints.
   Usage: tcp_pingpong serve | tcp_pingpong ADDRESS PORT SECONDS_PER_SIZE SIZE...

   The server prints its port. Both sides poll, then poll and offer their core to whoever shares it, then sleep
   in the kernel, so that a long link does not cost a core which its emulation needs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "samples.h"

static const double POLL_S = 30e-6, YIELD_S = 200e-6;

static void die(const char *what) {
    fprintf(stderr, "tcp_pingpong: %s: %s\n", what, strerror(errno));
    exit(1);
}

static void wait_for(int fd, short event, double *idle_since) {
    double now = clock_system_s();
    if (*idle_since == 0) *idle_since = now;
    if (now - *idle_since < POLL_S) return;
    if (now - *idle_since < YIELD_S) {
        sched_yield();
        return;
    }
    struct pollfd entry = {fd, event, 0};
    if (poll(&entry, 1, 60000) == 0) {
        fprintf(stderr, "tcp_pingpong: nothing moves for a minute\n");
        exit(1);
    }
}

static void put(int fd, const char *data, size_t bytes) {
    double idle_since = 0;
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n < 0 && errno != EAGAIN && errno != EINTR) die("send");
        if (n > 0) data += n, bytes -= (size_t)n, idle_since = 0;
        else wait_for(fd, POLLOUT, &idle_since);
    }
}

/* Returns 0 at the end of the stream. */
static int get(int fd, char *data, size_t bytes) {
    double idle_since = 0;
    while (bytes > 0) {
        ssize_t n = recv(fd, data, bytes, MSG_DONTWAIT);
        if (n == 0) return 0;
        if (n < 0 && errno != EAGAIN && errno != EINTR) die("recv");
        if (n > 0) data += n, bytes -= (size_t)n, idle_since = 0;
        else wait_for(fd, POLLIN, &idle_since);
    }
    return 1;
}

static int listen_and_accept(void) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (void *)&address, sizeof address) || listen(fd, 1)) die("listen");
    if (getsockname(fd, (void *)&address, &length)) die("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    struct pollfd entry = {fd, POLLIN, 0};
    if (poll(&entry, 1, 30000) <= 0) {
        fprintf(stderr, "tcp_pingpong: no client came within 30 s\n");
        exit(1);
    }
    int peer = accept(fd, 0, 0);
    if (peer < 0) die("accept");
    close(fd);
    return peer;
}

static int connect_to(const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons((uint16_t)program_number("tcp_pingpong", "port", port, 65535));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "tcp_pingpong: `%s` is no IPv4 address\n", host);
        exit(2);
    }
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || connect(fd, (void *)&address, sizeof address)) die("connect");
    return fd;
}

static void serve(int fd) {
    uint64_t bytes;
    while (get(fd, (char *)&bytes, sizeof bytes) && bytes > 0 && bytes <= PROGRAM_MOST_BYTES) {
        char *data = program_memory("tcp_pingpong", bytes);
        do {
            if (!get(fd, data, bytes)) exit(1);
            put(fd, data, bytes);
        } while (data[0] != PROGRAM_ENDS);
        free(data);
    }
}

static void exchange(int fd, const char *out, char *in, size_t bytes) {
    put(fd, out, bytes);
    if (!get(fd, in, bytes)) {
        fprintf(stderr, "tcp_pingpong: the server has gone\n");
        exit(1);
    }
}

static void measure(int fd, char *out, char *in, size_t bytes, double seconds, struct samples *samples) {
    samples_clear(samples);
    out[0] = PROGRAM_GOES_ON;
    uint64_t start = clock_ticks(), last;
    exchange(fd, out, in, bytes);
    last = clock_ticks();
    samples->first_us = samples_us(last - start, 2);
    while (clock_seconds(last - start) < seconds / 4) exchange(fd, out, in, bytes), last = clock_ticks();
    while (out[0] != PROGRAM_ENDS) {
        int next = samples->count + 1;
        if (next == SAMPLES_ROOM || (next >= SAMPLES_LEAST && clock_seconds(last - start) >= seconds)) out[0] = PROGRAM_ENDS;
        exchange(fd, out, in, bytes);
        uint64_t now = clock_ticks();
        samples->us[samples->count++] = samples_us(now - last, 2);
        last = now;
    }
}

int main(int argc, char **argv) {
    static struct samples samples;
    int serves = argc == 2 && !strcmp(argv[1], "serve"), one = 1;
    if (!serves && argc < 5) {
        fprintf(stderr, "usage: tcp_pingpong serve | tcp_pingpong ADDRESS PORT SECONDS_PER_SIZE SIZE...\n");
        return 2;
    }
    int fd = serves ? listen_and_accept() : connect_to(argv[1], argv[2]);
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) die("TCP_NODELAY");
    if (serves) {
        serve(fd);
        return 0;
    }
    double seconds = program_number("tcp_pingpong", "the time per size", argv[3], PROGRAM_MOST_SECONDS);
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    clock_calibrate();
    clock_check(0.02);
    program_print("tcp_pingpong", "raw TCP", 2, host, argv[1]);
    for (int i = 4; i < argc; i++) {
        uint64_t bytes = (uint64_t)program_number("tcp_pingpong", "size", argv[i], PROGRAM_MOST_BYTES);
        char *out = program_memory("tcp_pingpong", bytes), *in = program_memory("tcp_pingpong", bytes);
        put(fd, (char *)&bytes, sizeof bytes);
        memset(in, 0, bytes);
        measure(fd, out, in, bytes, seconds, &samples);
        struct summary summary = samples_summary(&samples);
        summary_print("pingpong", (long)bytes, 0, &summary);
        if (memcmp(in, out, bytes)) {
            fprintf(stderr, "tcp_pingpong: %lu bytes came back changed\n", (unsigned long)bytes);
            return 1;
        }
        free(out);
        free(in);
    }
    return 0;
}
