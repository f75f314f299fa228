/* Common part of test programs of failures: `expect` reports a call that returns another error class than expected. */
#ifndef CANELE_TESTS_EXPECT_H
#define CANELE_TESTS_EXPECT_H

#include <mpi.h>

#include "check.h"

static void expect(const char *what, int code, int expected) {
    int class;
    MPI_Error_class(code, &class);
    if (class == expected) return;
    failures++;
    fprintf(stderr, "rank %d: %s: class %d where %d was expected\n", rank, what, class, expected);
}

#endif
