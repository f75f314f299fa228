/* Exchanges over raw TCP, in one stream or cut into several. Prints lines of JSON as pingpong.c, slowstart.c and
   onesided.c do. Usage: tcp serve STREAMS | tcp relay STREAMS ADDRESS PORT
                       | tcp pingpong|slowstart|onesided ADDRESS PORT STREAMS SECONDS_PER_SIZE CASE...

   The server prints its port, and so does a relay. A relay forwards connections to the server or to the next relay.
   It does the minimum that any intermediate process must, and shows the cost of one. Both sides poll, then poll and
   yield their core, then sleep in the kernel. A long link therefore does not cost a core that its emulation needs. */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include "exchange.h"
#include "onesided.h"

static const double POLL_S = 30e-6, YIELD_S = 200e-6;

static void die(const char *what) {
    fprintf(stderr, "tcp: %s: %s\n", what, strerror(errno));
    exit(1);
}

enum { MOST_STREAMS = 64 };

struct streams {
    int count, fds[MOST_STREAMS];
};

/* Part of a message in one stream. */
struct part {
    char *data;
    size_t left;
};

/* A message is cut into equal parts. The last is the remainder. */
static size_t cut(const struct streams *streams, char *data, size_t bytes, struct part *parts) {
    size_t each = (bytes + (size_t)streams->count - 1) / (size_t)streams->count;
    for (int i = 0; i < streams->count; i++) {
        size_t begin = each * (size_t)i < bytes ? each * (size_t)i : bytes, left = bytes - begin;
        parts[i] = (struct part){data + begin, left < each ? left : each};
    }
    return bytes;
}

static void wait_for(const struct streams *streams, const struct part *parts, short event, double *idle_since) {
    double now = clock_system_s();
    if (*idle_since == 0) *idle_since = now;
    if (now - *idle_since < POLL_S) return;
    if (now - *idle_since < YIELD_S) {
        sched_yield();
        return;
    }
    struct pollfd entries[MOST_STREAMS];
    for (int i = 0; i < streams->count; i++) entries[i] = (struct pollfd){parts[i].left ? streams->fds[i] : -1, event, 0};
    if (poll(entries, (nfds_t)streams->count, 60000) == 0) {
        fprintf(stderr, "tcp: nothing moves for a minute\n");
        exit(1);
    }
}

static void put(const struct streams *streams, const char *data, size_t bytes) {
    struct part parts[MOST_STREAMS];
    double idle_since = 0;
    for (size_t left = cut(streams, (char *)data, bytes, parts); left > 0;) {
        size_t before = left;
        for (int i = 0; i < streams->count; i++) {
            if (!parts[i].left) continue;
            ssize_t n = send(streams->fds[i], parts[i].data, parts[i].left, MSG_NOSIGNAL | MSG_DONTWAIT);
            if (n < 0 && errno != EAGAIN && errno != EINTR) die("send");
            if (n > 0) parts[i].data += n, parts[i].left -= (size_t)n, left -= (size_t)n;
        }
        if (left < before) idle_since = 0;
        else wait_for(streams, parts, POLLOUT, &idle_since);
    }
}

/* Returns 0 at the end of a stream. */
static int get(const struct streams *streams, char *data, size_t bytes) {
    struct part parts[MOST_STREAMS];
    double idle_since = 0;
    for (size_t left = cut(streams, data, bytes, parts); left > 0;) {
        size_t before = left;
        for (int i = 0; i < streams->count; i++) {
            if (!parts[i].left) continue;
            ssize_t n = recv(streams->fds[i], parts[i].data, parts[i].left, MSG_DONTWAIT);
            if (n == 0) return 0;
            if (n < 0 && errno != EAGAIN && errno != EINTR) die("recv");
            if (n > 0) parts[i].data += n, parts[i].left -= (size_t)n, left -= (size_t)n;
        }
        if (left < before) idle_since = 0;
        else wait_for(streams, parts, POLLIN, &idle_since);
    }
    return 1;
}

static void without_delay(int fd) {
    int one = 1;
    if (setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one)) die("TCP_NODELAY");
}

/* A client opens its streams one after the other, so both sides know them in the same order. */
static void listen_and_accept(struct streams *streams) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    socklen_t length = sizeof address;
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (fd < 0 || bind(fd, (void *)&address, sizeof address) || listen(fd, MOST_STREAMS)) die("listen");
    if (getsockname(fd, (void *)&address, &length)) die("getsockname");
    printf("%d\n", ntohs(address.sin_port));
    fflush(stdout);
    for (int i = 0; i < streams->count; i++) {
        struct pollfd entry = {fd, POLLIN, 0};
        if (poll(&entry, 1, 30000) <= 0) {
            fprintf(stderr, "tcp: no client came within 30 s\n");
            exit(1);
        }
        streams->fds[i] = accept(fd, 0, 0);
        if (streams->fds[i] < 0) die("accept");
        without_delay(streams->fds[i]);
    }
    close(fd);
}

static void connect_to(struct streams *streams, const char *host, const char *port) {
    struct sockaddr_in address = {.sin_family = AF_INET};
    address.sin_port = htons((uint16_t)program_number("tcp", "port", port, 65535));
    if (inet_pton(AF_INET, host, &address.sin_addr) != 1) {
        fprintf(stderr, "tcp: `%s` is no IPv4 address\n", host);
        exit(2);
    }
    for (int i = 0; i < streams->count; i++) {
        int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
        if (fd < 0 || connect(fd, (void *)&address, sizeof address)) die("connect");
        without_delay(fd);
        streams->fds[i] = fd;
    }
}

/* Bytes of the messages that follow, and of their answers. */
struct lengths {
    uint64_t asked, answered;
};

/* The lengths go by the first stream. */
static struct streams first_of(const struct streams *streams) { return (struct streams){1, {streams->fds[0]}}; }

static void announce(const struct streams *streams, struct lengths lengths) {
    struct streams first = first_of(streams);
    put(&first, (char *)&lengths, sizeof lengths);
}

static void serve(const struct streams *streams) {
    struct streams first = first_of(streams);
    struct lengths lengths;
    while (get(&first, (char *)&lengths, sizeof lengths) && lengths.asked > 0 && lengths.asked <= PROGRAM_MOST_BYTES &&
           lengths.answered > 0 && lengths.answered <= PROGRAM_MOST_BYTES) {
        char *data = program_memory("tcp", lengths.asked > lengths.answered ? lengths.asked : lengths.answered);
        do {
            if (!get(streams, data, lengths.asked)) exit(1);
            put(streams, data, lengths.answered);
        } while (data[0] != PROGRAM_ENDS);
        free(data);
    }
}

/* One direction of a stream through a relay: bytes received and not yet sent, and whether more can come. */
struct direction {
    int from, to, ended;
    size_t begin, end;
    char *data;
};

enum { RELAYED_AT_ONCE = 256 * 1024 };

static void pass_on(struct direction *direction) {
    if (direction->begin == direction->end) {
        ssize_t n = recv(direction->from, direction->data, RELAYED_AT_ONCE, MSG_DONTWAIT);
        if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
        if (n <= 0) {
            direction->ended = 1;
            shutdown(direction->to, SHUT_WR);
            return;
        }
        direction->begin = 0, direction->end = (size_t)n;
    }
    ssize_t n = send(direction->to, direction->data + direction->begin, direction->end - direction->begin, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno != EAGAIN && errno != EINTR) die("send");
    if (n > 0) direction->begin += (size_t)n;
}

static void relay(const struct streams *near, const struct streams *far) {
    static struct direction directions[2 * MOST_STREAMS];
    int count = 2 * near->count, left = count;
    for (int i = 0; i < near->count; i++) {
        directions[2 * i] = (struct direction){.from = near->fds[i], .to = far->fds[i], .data = program_memory("tcp", RELAYED_AT_ONCE)};
        directions[2 * i + 1] = (struct direction){.from = far->fds[i], .to = near->fds[i], .data = program_memory("tcp", RELAYED_AT_ONCE)};
    }
    while (left > 0) {
        struct pollfd entries[2 * MOST_STREAMS];
        for (int i = 0; i < count; i++) {
            int waits = directions[i].begin < directions[i].end;
            entries[i] = (struct pollfd){directions[i].ended ? -1 : waits ? directions[i].to : directions[i].from, waits ? POLLOUT : POLLIN, 0};
        }
        if (poll(entries, (nfds_t)count, 600000) == 0) return;
        left = 0;
        for (int i = 0; i < count; i++) {
            if (!directions[i].ended && entries[i].revents) pass_on(&directions[i]);
            left += !directions[i].ended;
        }
    }
}

static void ask(const struct streams *streams, const char *out, char *in, struct lengths lengths) {
    put(streams, out, lengths.asked);
    if (get(streams, in, lengths.answered)) return;
    fprintf(stderr, "tcp: the server has gone\n");
    exit(1);
}

static void once(const struct exchange *exchange) {
    uint64_t bytes = (uint64_t)exchange->bytes;
    ask(exchange->with, exchange->out, exchange->in, (struct lengths){bytes, bytes});
}

static int measure(struct streams *streams, enum exchange_kind kind, const char *text, double seconds) {
    struct program_case asked = exchange_case("tcp", kind, text);
    uint64_t bytes = (uint64_t)asked.bytes;
    struct exchange exchange = {once, streams, program_memory("tcp", bytes), program_memory("tcp", bytes), asked.bytes};
    announce(streams, (struct lengths){bytes, bytes});
    int failed = exchange_measure("tcp", kind, &exchange, asked, seconds);
    free(exchange.out);
    free(exchange.in);
    return failed;
}

/* A row of `onesided`: the data one way, and as little as there must be the other way. */
struct onesided {
    const struct streams *streams;
    char *out, *in;
    struct lengths lengths;
};

static void operate(void *what, char word) {
    struct onesided *onesided = what;
    onesided->out[0] = word;
    ask(onesided->streams, onesided->out, onesided->in, onesided->lengths);
}

static void measure_onesided(const struct streams *streams, long bytes, double seconds) {
    static struct samples samples;
    size_t room = (size_t)onesided_moved(bytes == ONESIDED_WORD ? PUTS : PUT, bytes);
    struct onesided onesided = {streams, program_memory("tcp", room), program_memory("tcp", room), {0, 0}};
    for (int operation = 0; operation < ONESIDED_OPERATIONS; operation++)
        for (int window = 0; window < ONESIDED_WINDOWS; window++) {
            if (!onesided_has(operation, window, bytes)) continue;
            if (operation == MAKE || window == COMPUTING) {
                missing_print(ONESIDED_NAMES[operation], bytes, window, "TCP has no windows, and its target answers by calls");
                continue;
            }
            uint64_t moved = (uint64_t)onesided_moved(operation, bytes);
            int returns = operation == FETCH || operation == FETCH_PACED;
            onesided.lengths = (struct lengths){operation == GET ? 1 : moved, operation == GET || returns ? moved : 1};
            announce(streams, onesided.lengths);
            double pace_us = operation == FETCH_PACED ? ONESIDED_PACE_US : 0;
            onesided_take(&samples, seconds, (struct onesided_series){operate, &onesided, pace_us, 0, 1});
            onesided_print(operation, window, bytes, &samples, NULL);
        }
    free(onesided.out);
    free(onesided.in);
}

int main(int argc, char **argv) {
    int serves = argc == 3 && !strcmp(argv[1], "serve"), relays = argc == 5 && !strcmp(argv[1], "relay"), failed = 0;
    if (!serves && !relays && argc < 7) {
        fprintf(stderr, "usage: tcp serve STREAMS | tcp relay STREAMS ADDRESS PORT\n"
                        "     | tcp pingpong|slowstart|onesided ADDRESS PORT STREAMS SECONDS_PER_SIZE CASE...\n");
        return 2;
    }
    const char *count = argv[serves || relays ? 2 : 4];
    struct streams streams = {.count = (int)program_number("tcp", "streams", count, MOST_STREAMS)};
    if (serves || relays) {
        listen_and_accept(&streams);
        if (serves) {
            serve(&streams);
            return 0;
        }
        struct streams beyond = {.count = streams.count};
        connect_to(&beyond, argv[3], argv[4]);
        relay(&streams, &beyond);
        return 0;
    }
    connect_to(&streams, argv[2], argv[3]);
    enum exchange_kind kind = strcmp(argv[1], "slowstart") ? EXCHANGE_PINGPONG : EXCHANGE_ROW;
    double seconds = program_number("tcp", "the time per size", argv[5], PROGRAM_MOST_SECONDS);
    char host[256] = "";
    gethostname(host, sizeof host - 1);
    clock_calibrate();
    clock_check(0.02);
    program_print("tcp", streams.count > 1 ? "TCP in several streams" : "raw TCP", 2, host, argv[2]);
    for (int i = 6; i < argc; i++)
        if (strcmp(argv[1], "onesided")) failed |= measure(&streams, kind, argv[i], seconds);
        else measure_onesided(&streams, onesided_bytes("tcp", argv[i]), seconds);
    return failed;
}
