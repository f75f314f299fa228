/* The tool information interface: codes, sessions, settings and counters. No error handler is called.
   Usage: tool [list]; with more than one rank the counters are read beside communication. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { ROOM = 200, MESSAGES = 64, LONG = 4 << 20, TRIES = 20 };

static int failures;

#define CHECK(condition)                                            \
    do {                                                            \
        if (!(condition)) {                                         \
            failures++;                                             \
            fprintf(stderr, "line %d: %s\n", __LINE__, #condition); \
        }                                                           \
    } while (0)

/* Events and enumerations do not exist. Each query is refused with the code that the standard has for it. */
static void without_events_and_enumerations(void) {
    int number, len = 0;
    char text[8];
    MPI_Count time;
    MPI_Info info;
    MPI_T_event_registration registration = NULL;
    MPI_T_source_order order;
    CHECK(MPI_T_enum_get_info(MPI_T_ENUM_NULL, &number, text, &len) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_enum_get_item(MPI_T_ENUM_NULL, 0, &number, text, &len) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_get_info(0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_event_handle_alloc(0, NULL, MPI_INFO_NULL, &registration) == MPI_T_ERR_INVALID_INDEX && !registration);
    CHECK(MPI_T_source_get_info(0, NULL, NULL, NULL, NULL, &order, &time, &time, &info) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_source_get_timestamp(0, &time) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_event_handle_set_info(NULL, MPI_INFO_NULL) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_handle_get_info(NULL, &info) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_register_callback(NULL, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_callback_set_info(NULL, MPI_T_CB_REQUIRE_NONE, MPI_INFO_NULL) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_callback_get_info(NULL, MPI_T_CB_REQUIRE_NONE, &info) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_set_dropped_handler(NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_handle_free(NULL, NULL, NULL) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_read(NULL, 0, &number) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_copy(NULL, text) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_get_timestamp(NULL, &time) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_event_get_source(NULL, &number) == MPI_T_ERR_INVALID_HANDLE);
}

static void codes(void) {
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
    CHECK(MPI_T_cvar_get_num(&number) == MPI_SUCCESS && number > 0);
    CHECK(MPI_T_cvar_get_num(NULL) == MPI_T_ERR_INVALID);
    CHECK(MPI_T_cvar_get_info(number, NULL, NULL, &verbosity, NULL, NULL, NULL, NULL, &bind, &scope) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_info(-1, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_get_info(0, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_SUCCESS);
    CHECK(MPI_T_cvar_handle_alloc(number, NULL, &cvar, &len) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_cvar_handle_alloc(0, NULL, NULL, &len) == MPI_T_ERR_INVALID);
    CHECK(MPI_T_cvar_get_index("no variable", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_cvar_get_index(NULL, &index) == MPI_T_ERR_INVALID);
    cvar = MPI_T_CVAR_HANDLE_NULL;
    CHECK(MPI_T_cvar_read(cvar, &index) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_cvar_handle_free(&cvar) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_get_num(&number) == MPI_SUCCESS && number > 0);
    CHECK(MPI_T_pvar_get_index("no variable", MPI_T_PVAR_CLASS_COUNTER, &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_pvar_get_index("polls", MPI_T_PVAR_CLASS_TIMER, &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_pvar_session_create(&session) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_handle_alloc(session, number, NULL, &pvar, &len) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_pvar_handle_alloc(MPI_T_PVAR_SESSION_NULL, 0, NULL, &pvar, &len) == MPI_T_ERR_INVALID_SESSION);
    CHECK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_stop(session, MPI_T_PVAR_HANDLE_NULL) == MPI_T_ERR_INVALID_HANDLE);
    CHECK(MPI_T_pvar_read(MPI_T_PVAR_SESSION_NULL, MPI_T_PVAR_HANDLE_NULL, &index) == MPI_T_ERR_INVALID_SESSION);
    freed = session;
    CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS && session == MPI_T_PVAR_SESSION_NULL);
    CHECK(MPI_T_pvar_session_free(&freed) == MPI_T_ERR_INVALID_SESSION);
    CHECK(MPI_T_category_get_num(&number) == MPI_SUCCESS && number > 0);
    CHECK(MPI_T_category_get_cvars(number, 0, NULL) == MPI_T_ERR_INVALID_INDEX);
    CHECK(MPI_T_category_get_index("no category", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_category_changed(&number) == MPI_SUCCESS);
    CHECK(MPI_T_event_get_num(&number) == MPI_SUCCESS && number == 0);
    CHECK(MPI_T_event_get_index("no event", &index) == MPI_T_ERR_INVALID_NAME);
    CHECK(MPI_T_source_get_num(&number) == MPI_SUCCESS && number == 0);
    without_events_and_enumerations();
    CHECK(MPI_T_finalize() == MPI_SUCCESS);
}

/* Every setting has the value of the environment and cannot be changed. */
static void settings(int list) {
    int number, provided;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_cvar_get_num(&number);
    for (int at = 0; at < number; at++) {
        char name[ROOM], text[2000], desc[ROOM], cut[4] = "???";
        int name_len = ROOM, desc_len = ROOM, cut_len = 4, verbosity, bind, scope, index, count;
        unsigned long long value = 0;
        MPI_Datatype type;
        MPI_T_enum named;
        MPI_T_cvar_handle handle, freed;
        CHECK(MPI_T_cvar_get_info(at, name, &name_len, &verbosity, &type, &named, desc, &desc_len, &bind, &scope) == MPI_SUCCESS);
        CHECK(name_len == (int)strlen(name) + 1 && !strncmp(name, "CANELE_", 7) && desc_len > 1);
        CHECK(verbosity == MPI_T_VERBOSITY_USER_BASIC && named == MPI_T_ENUM_NULL);
        CHECK(bind == MPI_T_BIND_NO_OBJECT && scope == MPI_T_SCOPE_CONSTANT);
        CHECK(MPI_T_cvar_get_info(at, cut, &cut_len, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_SUCCESS);
        CHECK(!strcmp(cut, "CAN") && cut_len == name_len);
        cut_len = 0;
        CHECK(MPI_T_cvar_get_info(at, NULL, &cut_len, NULL, NULL, NULL, NULL, NULL, NULL, NULL) == MPI_SUCCESS && cut_len == name_len);
        CHECK(MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS && index == at);
        CHECK(MPI_T_cvar_handle_alloc(at, NULL, &handle, &count) == MPI_SUCCESS);
        CHECK(count >= 1 && count <= (int)sizeof text);
        CHECK(MPI_T_cvar_read(handle, NULL) == MPI_T_ERR_INVALID);
        if (type == MPI_CHAR) {
            CHECK(MPI_T_cvar_read(handle, text) == MPI_SUCCESS && (int)strlen(text) + 1 == count);
        } else {
            CHECK(type == MPI_UNSIGNED_LONG_LONG && count == 1);
            CHECK(MPI_T_cvar_read(handle, &value) == MPI_SUCCESS);
            snprintf(text, sizeof text, "%llu", value);
        }
        if (getenv(name)) CHECK(!strcmp(text, getenv(name)));
        CHECK(MPI_T_cvar_write(handle, text) == MPI_T_ERR_CVAR_SET_NEVER);
        freed = handle;
        CHECK(MPI_T_cvar_handle_free(&handle) == MPI_SUCCESS && handle == MPI_T_CVAR_HANDLE_NULL);
        CHECK(MPI_T_cvar_read(freed, text) == MPI_T_ERR_INVALID_HANDLE);
        if (list) printf("%-24s %s\n%24s %s\n", name, text, "", desc);
    }
    MPI_T_finalize();
}

static void categories(void) {
    int number, provided, cvars, pvars, total_cvars = 0, total_pvars = 0;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_category_get_num(&number);
    for (int at = 0; at < number; at++) {
        char name[ROOM];
        int name_len = ROOM, own_cvars, own_pvars, own_categories, index, events, indices[ROOM] = {-1};
        CHECK(MPI_T_category_get_info(at, name, &name_len, NULL, NULL, &own_cvars, &own_pvars, &own_categories) == MPI_SUCCESS);
        CHECK(MPI_T_category_get_index(name, &index) == MPI_SUCCESS && index == at && own_categories == 0);
        CHECK(MPI_T_category_get_num_events(at, &events) == MPI_SUCCESS && events == 0);
        CHECK(MPI_T_category_get_cvars(at, ROOM, indices) == MPI_SUCCESS && (own_cvars == 0 || indices[0] >= 0));
        CHECK(MPI_T_category_get_pvars(at, ROOM, indices) == MPI_SUCCESS);
        CHECK(MPI_T_category_get_categories(at, ROOM, indices) == MPI_SUCCESS);
        CHECK(MPI_T_category_get_events(at, ROOM, indices) == MPI_SUCCESS);
        total_cvars += own_cvars;
        total_pvars += own_pvars;
    }
    MPI_T_cvar_get_num(&cvars);
    MPI_T_pvar_get_num(&pvars);
    CHECK(total_cvars == cvars && total_pvars == pvars);
    MPI_T_finalize();
}

static MPI_T_pvar_handle handle_of(MPI_T_pvar_session session, const char *name, int class) {
    MPI_T_pvar_handle handle = MPI_T_PVAR_HANDLE_NULL;
    int index, count;
    CHECK(MPI_T_pvar_get_index(name, class, &index) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_handle_alloc(session, index, NULL, &handle, &count) == MPI_SUCCESS && count == 1);
    return handle;
}

static unsigned long long count_of(MPI_T_pvar_session session, MPI_T_pvar_handle handle) {
    unsigned long long value = ~0ULL;
    CHECK(MPI_T_pvar_read(session, handle, &value) == MPI_SUCCESS);
    return value;
}

static double seconds_of(MPI_T_pvar_session session, MPI_T_pvar_handle handle) {
    double value = -1;
    CHECK(MPI_T_pvar_read(session, handle, &value) == MPI_SUCCESS);
    return value;
}

/* Properties of every variable, and the operations that it permits. */
static void variables(int list) {
    int number, provided;
    MPI_T_pvar_session session, other;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_get_num(&number);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_session_create(&other);
    for (int at = 0; at < number; at++) {
        char name[ROOM], desc[ROOM];
        int name_len = ROOM, desc_len = ROOM, verbosity, class, bind, readonly, continuous, atomic, index, count;
        union {
            unsigned long long number;
            double seconds;
        } value = {.number = 0};
        MPI_Datatype type;
        MPI_T_enum named;
        MPI_T_pvar_handle handle, freed;
        CHECK(MPI_T_pvar_get_info(at, name, &name_len, &verbosity, &class, &type, &named, desc, &desc_len, &bind, &readonly, &continuous, &atomic) == MPI_SUCCESS);
        CHECK(MPI_T_pvar_get_index(name, class, &index) == MPI_SUCCESS && index == at && desc_len > 1);
        CHECK(bind == MPI_T_BIND_NO_OBJECT && named == MPI_T_ENUM_NULL && readonly == continuous);
        CHECK(type == (class == MPI_T_PVAR_CLASS_TIMER ? MPI_DOUBLE : MPI_UNSIGNED_LONG_LONG));
        CHECK(MPI_T_pvar_handle_alloc(session, at, NULL, &handle, &count) == MPI_SUCCESS && count == 1);
        CHECK(MPI_T_pvar_read(other, handle, &value) == MPI_T_ERR_INVALID_HANDLE);
        CHECK(MPI_T_pvar_read(session, handle, NULL) == MPI_T_ERR_INVALID);
        CHECK(MPI_T_pvar_start(session, handle) == (continuous ? MPI_T_ERR_PVAR_NO_STARTSTOP : MPI_SUCCESS));
        CHECK(MPI_T_pvar_stop(session, handle) == (continuous ? MPI_T_ERR_PVAR_NO_STARTSTOP : MPI_SUCCESS));
        if (type == MPI_DOUBLE)
            value.seconds = 1.5;
        else
            value.number = 77;
        CHECK(MPI_T_pvar_write(session, handle, &value) == (readonly ? MPI_T_ERR_PVAR_NO_WRITE : MPI_SUCCESS));
        if (!readonly) {
            value.number = 0;
            CHECK(MPI_T_pvar_readreset(session, handle, &value) == MPI_SUCCESS);
            CHECK(type == MPI_DOUBLE ? value.seconds == 1.5 : value.number == 77);
        }
        CHECK(MPI_T_pvar_reset(session, handle) == (readonly ? MPI_T_ERR_PVAR_NO_WRITE : MPI_SUCCESS));
        CHECK(MPI_T_pvar_read(session, handle, &value) == MPI_SUCCESS && (readonly || value.number == 0));
        freed = handle;
        CHECK(MPI_T_pvar_handle_free(session, &handle) == MPI_SUCCESS && handle == MPI_T_PVAR_HANDLE_NULL);
        CHECK(MPI_T_pvar_read(session, freed, &value) == MPI_T_ERR_INVALID_HANDLE);
        if (list) printf("%-24s %s\n", name, desc);
    }
    /* Handles that are not freed end with their session. */
    handle_of(session, "polls", MPI_T_PVAR_CLASS_COUNTER);
    CHECK(MPI_T_pvar_session_free(&session) == MPI_SUCCESS && MPI_T_pvar_session_free(&other) == MPI_SUCCESS);
    MPI_T_finalize();
}

/* Two ranks: one sends short messages, a long one late, and both reduce. */
static void beside_communication(int rank) {
    static char data[LONG];
    MPI_T_pvar_session session, other;
    MPI_T_pvar_handle polls, sleeps, slept, packets, frames, asked, others_polls, steps[3];
    MPI_Request requests[MESSAGES];
    const char *places[3] = {"task_steps_in_calls", "task_steps_in_waits", "task_steps_by_progress_thread"};
    unsigned long long before, after, all_steps = 0;
    int provided, sum = 0, tries;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_pvar_session_create(&session);
    MPI_T_pvar_session_create(&other);
    polls = handle_of(session, "polls", MPI_T_PVAR_CLASS_COUNTER);
    sleeps = handle_of(session, "sleeps", MPI_T_PVAR_CLASS_COUNTER);
    slept = handle_of(session, "time_sleeping", MPI_T_PVAR_CLASS_TIMER);
    packets = handle_of(session, "packets_sent", MPI_T_PVAR_CLASS_COUNTER);
    frames = handle_of(session, "frames_sent", MPI_T_PVAR_CLASS_COUNTER);
    asked = handle_of(session, "messages_sent_in_pieces", MPI_T_PVAR_CLASS_COUNTER);
    for (int at = 0; at < 3; at++) steps[at] = handle_of(session, places[at], MPI_T_PVAR_CLASS_COUNTER);
    others_polls = handle_of(other, "polls", MPI_T_PVAR_CLASS_COUNTER);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(count_of(session, polls) == 0);
    CHECK(MPI_T_pvar_start(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);

    for (int i = 0; i < MESSAGES; i++)
        if (rank == 0)
            MPI_Isend(data + 8 * i, 8, MPI_CHAR, 1, i, MPI_COMM_WORLD, &requests[i]);
        else if (rank == 1)
            MPI_Irecv(data + 8 * i, 8, MPI_CHAR, 0, i, MPI_COMM_WORLD, &requests[i]);
    if (rank < 2) MPI_Waitall(MESSAGES, requests, MPI_STATUSES_IGNORE);
    MPI_Barrier(MPI_COMM_WORLD);
    if (rank == 0) CHECK(count_of(session, packets) >= MESSAGES && count_of(session, frames) > 0);
    if (rank == 0) MPI_Send(data, LONG, MPI_CHAR, 1, 0, MPI_COMM_WORLD);
    if (rank == 1) MPI_Recv(data, LONG, MPI_CHAR, 0, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    if (rank == 0) CHECK(count_of(session, asked) >= 1);

    /* A long wait sleeps. The limit depends on the number of threads that want the cores. */
    for (tries = 0; tries < TRIES && sum == 0; tries++) {
        int has_slept = count_of(session, sleeps) > 0 && seconds_of(session, slept) > 0;
        if (rank == 1) usleep(10000 << (tries < 6 ? tries : 6));
        if (rank == 1) MPI_Send(data, 1, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
        if (rank == 0) MPI_Recv(data, 1, MPI_CHAR, 1, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        sum = rank == 0 && has_slept;
        MPI_Bcast(&sum, 1, MPI_INT, 0, MPI_COMM_WORLD);
    }
    CHECK(sum == 1);

    for (int i = 0; i < MESSAGES; i++) {
        int one = 1;
        MPI_Iallreduce(&one, &sum, 1, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &requests[0]);
        MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
    }
    for (int at = 0; at < 3; at++) all_steps += count_of(session, steps[at]);
    CHECK(all_steps > 0 && count_of(session, polls) > 0);

    CHECK(MPI_T_pvar_stop(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS);
    before = count_of(session, polls);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(count_of(session, polls) == before && count_of(other, others_polls) == 0);
    CHECK(MPI_T_pvar_start(session, polls) == MPI_SUCCESS);
    MPI_Barrier(MPI_COMM_WORLD);
    CHECK(MPI_T_pvar_readreset(session, polls, &after) == MPI_SUCCESS && after >= before);
    CHECK(MPI_T_pvar_stop(session, polls) == MPI_SUCCESS);
    CHECK(MPI_T_pvar_reset(session, MPI_T_PVAR_ALL_HANDLES) == MPI_SUCCESS && count_of(session, frames) == 0);
    MPI_T_pvar_session_free(&session);
    MPI_T_pvar_session_free(&other);
    MPI_T_finalize();
}

int main(int argc, char **argv) {
    char text[MPI_MAX_ERROR_STRING];
    int len, class, rank, size, list = argc > 1 && !strcmp(argv[1], "list");
    /* Before, during and after MPI's initialisation, under handlers that would end the job. */
    codes(), settings(0), categories(), variables(0);
    MPI_Init(&argc, &argv);
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    codes(), settings(list && rank == 0), categories(), variables(list && rank == 0);
    if (size > 1) beside_communication(rank);
    MPI_Error_string(MPI_T_ERR_INVALID_INDEX, text, &len);
    MPI_Error_class(MPI_T_ERR_INVALID_INDEX, &class);
    CHECK(!strncmp(text, "MPI_T_ERR_INVALID_INDEX: ", 25) && class == MPI_T_ERR_INVALID_INDEX);
    MPI_Finalize();
    codes(), settings(0), categories(), variables(0);
    if (rank == 0 || failures) printf("tool interface: %d failures\n", failures);
    return failures != 0;
}
