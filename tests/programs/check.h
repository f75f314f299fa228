/* Common parts of test programs: this process's rank, and CHECK, which reports a false condition with its line. Several
   threads may check at once. */
#ifndef CANELE_TESTS_CHECK_H
#define CANELE_TESTS_CHECK_H

#include <stdio.h>

static int rank, failures;

#define CHECK(condition)                                                             \
    do {                                                                             \
        if (!(condition)) {                                                          \
            __atomic_add_fetch(&failures, 1, __ATOMIC_RELAXED);                      \
            fprintf(stderr, "rank %d: line %d: %s\n", rank, __LINE__, #condition);   \
        }                                                                            \
    } while (0)

#endif
