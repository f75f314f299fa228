// A library with CUDA's driver interface and no device: its memory is at addresses that the processor may not use, so that whoever
// does ends by a signal. Copies are made late, by a thread of each stream.
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, INVALID_CONTEXT = 201, NOT_READY = 600 };
#define ROOM ((size_t)1 << 28)

struct copy { char *to; const char *from; size_t len; struct copy *next; };
struct stream { pthread_mutex_t lock; pthread_cond_t changed; struct copy *first, **last; uint64_t begun, ended; };
struct event { struct stream *stream; uint64_t number; };

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static char *shown, *memory;
static size_t used;
static int context; // its address is the only context
static __thread void *current;

static void start(void) {
    int file = memfd_create("device", MFD_CLOEXEC);
    if (file < 0 || ftruncate(file, ROOM)) abort();
    shown = mmap(0, ROOM, PROT_NONE, MAP_SHARED, file, 0);
    memory = mmap(0, ROOM, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (shown == MAP_FAILED || memory == MAP_FAILED) abort();
}
static int is_device(const void *place) { return shown && (const char *)place >= shown && (const char *)place < shown + ROOM; }
// What the processor uses in place of an address; null if the bytes are in no allocation.
static char *real(const void *place, size_t len) {
    if (!is_device(place)) return (char *)place;
    size_t at = (size_t)((const char *)place - shown);
    return at + len <= used ? memory + at : 0;
}
static void *work(void *argument) {
    struct stream *stream = argument;
    unsigned seed = (unsigned)(uintptr_t)stream;
    for (;;) {
        pthread_mutex_lock(&stream->lock);
        while (!stream->first) pthread_cond_wait(&stream->changed, &stream->lock);
        struct copy *copy = stream->first;
        pthread_mutex_unlock(&stream->lock);
        if (rand_r(&seed) % 16 == 0 && copy->len > 64) usleep(rand_r(&seed) % 300);
        memcpy(copy->to, copy->from, copy->len);
        pthread_mutex_lock(&stream->lock);
        if (!(stream->first = copy->next)) stream->last = &stream->first;
        stream->ended++;
        pthread_cond_broadcast(&stream->changed);
        pthread_mutex_unlock(&stream->lock);
        free(copy);
    }
    return 0;
}

// What programs call.
int cuInit(unsigned flags) { (void)flags; return SUCCESS; }
int cuMemAlloc_v2(uint64_t *place, size_t len) {
    pthread_mutex_lock(&lock);
    if (!shown) start();
    int fits = used + len <= ROOM;
    if (fits) {
        *place = (uint64_t)(shown + used);
        used += len;
    }
    pthread_mutex_unlock(&lock);
    return fits ? SUCCESS : OUT_OF_MEMORY;
}
int cuMemcpy(uint64_t to, uint64_t from, size_t len) {
    char *target = real((void *)to, len);
    const char *source = real((void *)from, len);
    if (!target || !source) return INVALID_VALUE;
    memmove(target, source, len);
    return SUCCESS;
}

// What Canele calls.
int cuPointerGetAttributes(unsigned count, const int *attributes, void **values, uint64_t place) {
    int is_mine = is_device((void *)place);
    // Memory at odd pages is of a pool, which belongs to no context.
    int is_pooled = is_mine && ((place >> 12) & 1);
    for (unsigned i = 0; i < count; i++) {
        switch (attributes[i]) {
        case 1: *(void **)values[i] = is_mine && !is_pooled ? &context : 0; break;
        case 2: *(unsigned *)values[i] = is_mine ? 2 : 0; break;
        case 8: *(unsigned char *)values[i] = 0; break;
        case 9: *(int *)values[i] = is_mine ? 0 : -2; break;
        default: return INVALID_VALUE;
        }
    }
    return SUCCESS;
}
int cuDevicePrimaryCtxRetain(void **place, int device) {
    *place = &context;
    return device == 0 ? SUCCESS : INVALID_VALUE;
}
int cuCtxPushCurrent_v2(void *pushed) {
    if (pushed != &context || current) return INVALID_CONTEXT;
    current = pushed;
    return SUCCESS;
}
int cuCtxPopCurrent_v2(void **popped) {
    *popped = current;
    current = 0;
    return *popped ? SUCCESS : INVALID_CONTEXT;
}
int cuStreamCreate(void **place, unsigned flags) {
    if (!current || flags != 1) return INVALID_CONTEXT;
    struct stream *stream = calloc(1, sizeof *stream);
    pthread_mutex_init(&stream->lock, 0);
    pthread_cond_init(&stream->changed, 0);
    stream->last = &stream->first;
    pthread_t thread;
    if (pthread_create(&thread, 0, work, stream)) return OUT_OF_MEMORY;
    pthread_detach(thread);
    *place = stream;
    return SUCCESS;
}
int cuMemcpyAsync(uint64_t to, uint64_t from, size_t len, void *on) {
    struct stream *stream = on;
    if (!current) return INVALID_CONTEXT;
    struct copy *copy = malloc(sizeof *copy);
    *copy = (struct copy){real((void *)to, len), real((void *)from, len), len, 0};
    if (!copy->to || !copy->from) return INVALID_VALUE;
    pthread_mutex_lock(&stream->lock);
    *stream->last = copy;
    stream->last = &copy->next;
    stream->begun++;
    pthread_cond_broadcast(&stream->changed);
    pthread_mutex_unlock(&stream->lock);
    return SUCCESS;
}
// Rows, with all addresses in the fields for devices.
struct side { size_t x, y; unsigned kind; const void *host; uint64_t place; void *array; size_t pitch; };
struct rows { struct side from, to; size_t width, height; };
int cuMemcpy2DAsync_v2(const struct rows *rows, void *on) {
    const struct side *from = &rows->from, *to = &rows->to;
    if (from->kind != 4 || to->kind != 4 || from->x || from->y || to->x || to->y || from->array || to->array) return INVALID_VALUE;
    if (from->pitch < rows->width || to->pitch < rows->width) return INVALID_VALUE;
    for (size_t row = 0; row < rows->height; row++) {
        int code = cuMemcpyAsync(to->place + row * to->pitch, from->place + row * from->pitch, rows->width, on);
        if (code) return code;
    }
    return SUCCESS;
}
int cuEventCreate(void **place, unsigned flags) {
    (void)flags;
    *place = calloc(1, sizeof(struct event));
    return current ? SUCCESS : INVALID_CONTEXT;
}
int cuEventRecord(void *recorded, void *on) {
    struct event *event = recorded;
    struct stream *stream = on;
    pthread_mutex_lock(&stream->lock);
    *event = (struct event){stream, stream->begun};
    pthread_mutex_unlock(&stream->lock);
    return current ? SUCCESS : INVALID_CONTEXT;
}
int cuEventQuery(void *recorded) {
    struct event *event = recorded;
    pthread_mutex_lock(&event->stream->lock);
    int has_ended = event->stream->ended >= event->number;
    pthread_mutex_unlock(&event->stream->lock);
    return has_ended ? SUCCESS : NOT_READY;
}
int cuEventSynchronize(void *recorded) {
    struct event *event = recorded;
    pthread_mutex_lock(&event->stream->lock);
    while (event->stream->ended < event->number) pthread_cond_wait(&event->stream->changed, &event->stream->lock);
    pthread_mutex_unlock(&event->stream->lock);
    return SUCCESS;
}
int cuMemHostAlloc(void **place, size_t len, unsigned flags) {
    (void)flags;
    *place = malloc(len);
    return current && *place ? SUCCESS : OUT_OF_MEMORY;
}
int cuGetErrorName(int code, const char **name) {
    *name = code == INVALID_VALUE ? "CUDA_ERROR_INVALID_VALUE" : code == INVALID_CONTEXT ? "CUDA_ERROR_INVALID_CONTEXT" : "CUDA_ERROR_UNKNOWN";
    return SUCCESS;
}
