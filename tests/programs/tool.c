/* The tool information interface: codes, sessions, and that no error handler is called. */
#include <mpi.h>
#include <stdio.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                            \
    do {                                                            \
        if (!(condition)) {                                         \
            failures++;                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
        }                                                           \
    } while (0)

static void everywhere(void) {
    int number = -1, index, provided, bind, scope, verbosity, len = 0;
    MPI_T_pvar_session session, freed;
    MPI_T_cvar_handle cvar;
    MPI_T_pvar_handle pvar;
    CHECK(MPI_T_cvar_get_num(&number) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_cvar_get_index("any", &index) == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_finalize() == MPI_T_ERR_NOT_INITIALIZED);
    CHECK(MPI_T_init_thread(MPI_THREAD_SINGLE, &provided) == MPI_SUCCESS && provided == MPI_THREAD_MULTIPLE);
    CHECK(MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided) == MPI_SUCCESS);
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
    CHECK(MPI_T_cvar_get_num(&number) == MPI_SUCCESS && number >= 0);
    CHECK(MPI_T_cvar_get_num(NULL) == MPI_T_ERR_INVALID);
    CHECK(MPI_T_cvar_get_info(number, NULL, NULL, &verbosity, NULL, NULL, NULL, NULL, &bind, &scope) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_handle_alloc(number, NULL, &cvar, &len) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_index("no variable", &index) == MPI_T_ERR_INVALID_NAME);
    cvar = MPI_T_CVAR_HANDLE_NULL;
    CHECK(MPI_T_cvar_read(cvar, &index) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_get_num(&number) == MPI_SUCCESS && number >= 0);
    CHECK(MPI_T_pvar_get_index("no variable", MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_pvar_session_create(&session) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_handle_alloc(session, number, NULL, &pvar, &len) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_stop(session, MPI_T_PVAR_HANDLE_NULL) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_read(MPI_T_PVAR_SESSION_NULL, MPI_T_PVAR_HANDLE_NULL, &index) == MPI_T_ERR_INVALID_SESSION);
    freed = session;
    CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS && session == MPI_T_PVAR_SESSION_NULL);
    CHECK(MPI_T_pvar_session_free(&freed) == MPI_T_ERR_INVALID_SESSION);
    CHECK(MPI_T_category_get_num(&number) == MPI_SUCCESS && number >= 0);
    CHECK(MPI_T_category_get_cvars(number, 0, NULL) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_category_changed(&number) == MPI_SUCCESS);
    CHECK(MPI_T_event_get_num(&number) == MPI_SUCCESS && number >= 0);
    CHECK(MPI_T_event_get_index("no event", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_source_get_num(&number) == MPI_SUCCESS && number >= 0);
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
}

int main(int argc, char **argv) {
    char text[MPI_MAX_ERROR_STRING];
    int len, class;
    /* Before, while and after MPI is initialised, under handlers that would end the job. */
    everywhere();
    MPI_Init(&argc, &argv);
    everywhere();
    MPI_Error_string(MPI_T_ERR_INVALID_INDEX, text, &len);
    MPI_Error_class(MPI_T_ERR_INVALID_INDEX, &class);
    CHECK(!strncmp(text, "MPI_T_ERR_INVALID_INDEX: ", 25) && class == MPI_T_ERR_INVALID_INDEX);
    MPI_Finalize();
    everywhere();
    printf("tool interface: %d failures\n", failures);
    return failures != 0;
}
