/* Half a round trip of raw TCP, polling both sides, one line of JSON per size as pingpong.c prints.
   Usage: tcp_pingpong serve | tcp_pingpong ADDRESS SECONDS_PER_SIZE SIZE... */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

enum { PORT = 7078 };

static double now(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

static void die(const char *what) {
    perror(what);
    exit(1);
}

static void put(int fd, const char *data, long bytes) {
    while (bytes > 0) {
        ssize_t n = send(fd, data, bytes, MSG_NOSIGNAL);
        if (n < 0 && errno != EAGAIN) die("send");
        if (n > 0) data += n, bytes -= n;
    }
}

static void get(int fd, char *data, long bytes) {
    while (bytes > 0) {
        ssize_t n = recv(fd, data, bytes, MSG_DONTWAIT);
        if (n == 0) exit(0);
        if (n < 0 && errno != EAGAIN) die("recv");
        if (n > 0) data += n, bytes -= n;
    }
}

static int compare(const void *a, const void *b) {
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

int main(int argc, char **argv) {
    if (argc < 2) return 2;
    int serves = !strcmp(argv[1], "serve"), one = 1;
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(PORT)};
    if (serves) {
        setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
        if (bind(fd, (void *)&address, sizeof address) || listen(fd, 1)) die("listen");
        fd = accept(fd, 0, 0);
    } else {
        inet_pton(AF_INET, argv[1], &address.sin_addr);
        double start = now();
        while (connect(fd, (void *)&address, sizeof address)) {
            if (now() - start > 3) die("connect");
            usleep(20000);
            close(fd);
            fd = socket(AF_INET, SOCK_STREAM, 0);
        }
    }
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
    if (serves) {
        long bytes;
        for (;;) {
            get(fd, (char *)&bytes, sizeof bytes);
            char *data = calloc(1, bytes + 1);
            long times;
            get(fd, (char *)&times, sizeof times);
            for (long i = 0; i < times; i++) get(fd, data, bytes), put(fd, data, bytes);
            free(data);
        }
    }
    double seconds = atof(argv[2]);
    for (int i = 3; i < argc; i++) {
        long bytes = atol(argv[i]);
        char *data = calloc(1, bytes + 1);
        double *samples = malloc(sizeof(double) * 10000), begin = now(), sum = 0;
        int count = 0;
        for (int round = -5; count < 10000 && (count < 10 || now() - begin < seconds); round++) {
            long times = 1;
            put(fd, (char *)&bytes, sizeof bytes);
            put(fd, (char *)&times, sizeof times);
            double start = now();
            put(fd, data, bytes), get(fd, data, bytes);
            if (round >= 0) sum += samples[count++] = (now() - start) / 2 * 1e6;
        }
        qsort(samples, count, sizeof(double), compare);
        printf("{\"bytes\": %ld, \"min_us\": %.3f, \"median_us\": %.3f, \"mean_us\": %.3f, \"samples\": %d}\n",
               bytes, samples[0], samples[count / 2], sum / count, count);
        fflush(stdout);
        free(data), free(samples);
    }
    return 0;
}
