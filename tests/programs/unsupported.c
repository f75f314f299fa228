/* Functions named on the command line must fail with MPI_ERR_UNSUPPORTED_OPERATION. Otherwise this program fails. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static char text[600];

static void remember(MPI_Comm *comm, int *code, ...) {
    int len;
    (void)comm;
    MPI_Error_string(*code, text, &len);
}

int main(int argc, char **argv) {
    int failures = 0, class;
    MPI_Errhandler handler;
    MPI_Init(&argc, &argv);
    MPI_Comm_create_errhandler(remember, &handler);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, handler);
    for (int i = 1; i < argc; i++) {
        /* Every argument is zero or a communicator. Nothing is read through them. */
        int (*function)(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *) = dlsym(RTLD_DEFAULT, argv[i]);
        if (!function) {
            printf("%s is missing\n", argv[i]);
            failures++;
            continue;
        }
        void *none = 0;
        text[0] = 0;
        MPI_Error_class(function(none, none, none, none, none, none, none, none, none, none), &class);
        if (class != MPI_ERR_UNSUPPORTED_OPERATION) {
            printf("%s returns class %d\n", argv[i], class);
            failures++;
        }
    }
    printf("%d unsupported functions say so, %d do not\n", argc - 1 - failures, failures);
    MPI_Finalize();
    return failures != 0;
}
