/* Calls with one wrong argument each: all must return an error of a fitting class whose message names function and
   argument. None may crash, hang, or read or write beyond the memory that its arguments describe.

   wrong_arguments CALLS  makes the calls of a file that api/generate.py trials prints (api/emit_trials.py describes its
                          lines). Copies of this program make them, because a call may end its process. Needs no mpiexec.
   wrong_arguments CALLS NUMBER DESCRIPTOR
                          is such a copy: it begins with call NUMBER and ends with the first that fails.
   wrong_arguments CALLS root
                          makes calls whose arguments are wrong where they do not count: at the ranks that are not the
                          root. Run by mpiexec on two ranks.
   wrong_arguments CALLS refused
                          makes collective calls which the last of two ranks makes wrongly first. That has no effect. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

enum { ARGUMENTS_MAX = 16, NAMES_MAX = 96, LINE_MAX = 4096, PAGE = 4096, AREA = 4 * PAGE, MEMORY_LEFT = 512 << 20, UNSAFE = 4 };

static long memory[512];
static char *areas[ARGUMENTS_MAX];
/* Size and null value of each argument that is a place for a handle; size 0 for the others. */
static struct {
    size_t size;
    long null;
} handles[ARGUMENTS_MAX];

static struct {
    const char *name;
    long value;
} names[NAMES_MAX];
static int named;

static void name(const char *text, long value) { names[named].name = text, names[named++].value = value; }

static void add(void *in, void *inout, int *len, MPI_Datatype *type) { (void)in, (void)inout, (void)len, (void)type; }

static void ignore(MPI_Comm *on, int *code, ...) { (void)on, (void)code; }

static void ignore_win(MPI_Win *on, int *code, ...) { (void)on, (void)code; }

static void ignore_session(MPI_Session *on, int *code, ...) { (void)on, (void)code; }

static void ignore_file(MPI_File *on, int *code, ...) { (void)on, (void)code; }

/* A live object of each kind, and a freed one. */
#define PAIR(type, what, make, free)                                  \
    do {                                                              \
        type alive, gone, freed;                                      \
        type *made = &alive;                                          \
        make;                                                         \
        made = &gone;                                                 \
        make;                                                         \
        freed = gone;                                                 \
        free(&gone);                                                  \
        name(what, (long)alive), name("freed_" what, (long)freed);    \
    } while (0)

static void name_objects(void) {
    PAIR(MPI_Comm, "comm", MPI_Comm_dup(MPI_COMM_WORLD, made), MPI_Comm_free);
    PAIR(MPI_Datatype, "type", (MPI_Type_contiguous(2, MPI_INT, made), MPI_Type_commit(made)), MPI_Type_free);
    PAIR(MPI_Group, "group", MPI_Comm_group(MPI_COMM_WORLD, made), MPI_Group_free);
    PAIR(MPI_Op, "op", MPI_Op_create(add, 1, made), MPI_Op_free);
    PAIR(MPI_Info, "info", (MPI_Info_create(made), MPI_Info_set(*made, "key", "value")), MPI_Info_free);
    PAIR(MPI_Errhandler, "handler", MPI_Comm_create_errhandler(ignore, made), MPI_Errhandler_free);
    PAIR(MPI_Request, "request", MPI_Send_init(memory, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, made), MPI_Request_free);
    PAIR(int, "keyval", MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, made, NULL), MPI_Comm_free_keyval);
    PAIR(int, "type_keyval", MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, made, NULL), MPI_Type_free_keyval);
    PAIR(int, "win_keyval", MPI_Win_create_keyval(MPI_WIN_NULL_COPY_FN, MPI_WIN_NULL_DELETE_FN, made, NULL), MPI_Win_free_keyval);
    PAIR(MPI_Win, "win", (MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, MPI_COMM_WORLD, made), MPI_Win_set_errhandler(*made, MPI_ERRORS_RETURN)), MPI_Win_free);
    /* A file without a name of its own leaves nothing behind, however the program ends. */
    FILE *unnamed = tmpfile();
    char path[32];
    if (!unnamed) perror("wrong_arguments: tmpfile"), exit(1);
    snprintf(path, sizeof path, "/proc/self/fd/%d", fileno(unnamed));
    PAIR(MPI_File, "file", MPI_File_open(MPI_COMM_SELF, path, MPI_MODE_RDWR, MPI_INFO_NULL, made), MPI_File_close);
    fclose(unnamed);
    MPI_Errhandler file_handler;
    MPI_File_create_errhandler(ignore_file, &file_handler);
    name("file_handler", (long)file_handler), name("null_file", (long)MPI_FILE_NULL);
    name("mode_rdonly", MPI_MODE_RDONLY), name("seek_set", MPI_SEEK_SET);
    MPI_Win dynamic;
    MPI_Errhandler win_handler;
    MPI_Win_create_dynamic(MPI_INFO_NULL, MPI_COMM_WORLD, &dynamic), MPI_Win_set_errhandler(dynamic, MPI_ERRORS_RETURN);
    MPI_Win_create_errhandler(ignore_win, &win_handler);
    name("dynamic_win", (long)dynamic), name("win_handler", (long)win_handler), name("null_win", (long)MPI_WIN_NULL);
    name("lock_shared", MPI_LOCK_SHARED);
    MPI_Errhandler session_handler;
    PAIR(MPI_Session, "session", MPI_Session_init(MPI_INFO_NULL, MPI_ERRORS_RETURN, made), MPI_Session_finalize);
    MPI_Session_create_errhandler(ignore_session, &session_handler);
    name("session_handler", (long)session_handler), name("null_session", (long)MPI_SESSION_NULL);
    name("derived", names[2].value), name("freed_message", names[13].value);
    MPI_Datatype uncommitted;
    MPI_Type_contiguous(3, MPI_INT, &uncommitted);
    name("uncommitted", (long)uncommitted);
    MPI_Datatype gapped;
    int lengths[] = {1, 2, 1}, places[] = {0, 2, 7};
    MPI_Type_indexed(3, lengths, places, MPI_INT, &gapped), MPI_Type_commit(&gapped);
    name("gapped", (long)gapped);
    name("null_comm", (long)MPI_COMM_NULL), name("null_type", (long)MPI_DATATYPE_NULL), name("null_group", (long)MPI_GROUP_NULL);
    name("null_op", (long)MPI_OP_NULL), name("null_info", (long)MPI_INFO_NULL), name("null_handler", (long)MPI_ERRHANDLER_NULL);
    name("null_request", (long)MPI_REQUEST_NULL), name("null_message", (long)MPI_MESSAGE_NULL);
    name("world", (long)MPI_COMM_WORLD), name("info_env", (long)MPI_INFO_ENV), name("tag_ub", MPI_TAG_UB);
    name("int", (long)MPI_INT), name("sum", (long)MPI_SUM), name("minloc", (long)MPI_MINLOC), name("no_proc", (long)MPI_MESSAGE_NO_PROC);
    name("memory", (long)memory), name("function", (long)add), name("invalid_keyval", MPI_KEYVAL_INVALID);
    name("order_c", MPI_ORDER_C), name("shared", MPI_COMM_TYPE_SHARED), name("block", MPI_DISTRIBUTE_BLOCK);
    name("default_darg", MPI_DISTRIBUTE_DFLT_DARG), name("class_integer", MPI_TYPECLASS_INTEGER), name("counter", MPI_T_PVAR_CLASS_COUNTER);
}

/* Topologies of one process, for calls outside mpiexec. */
static void name_topologies(void) {
    MPI_Comm comm = (MPI_Comm)names[0].value, grid, graph, ring;
    int one = 1, zero = 0, class, code;
    MPI_Cart_create(comm, 1, &one, &zero, 0, &grid);
    MPI_Graph_create(comm, 1, &one, &zero, 0, &graph);
    MPI_Dist_graph_create_adjacent(comm, 1, &zero, &one, 1, &zero, &one, MPI_INFO_NULL, 0, &ring);
    name("grid", (long)grid), name("graph", (long)graph), name("ring", (long)ring);
    MPI_Add_error_class(&class), MPI_Add_error_code(class, &code);
    name("added_class", class), name("added_code", code);
}

/* Topologies of two processes that are each other's only neighbour. */
static void name_pairs(void) {
    int rank, two = 2, zero = 0, index[] = {1, 2}, edges[] = {1, 0};
    MPI_Comm comm = (MPI_Comm)names[0].value, grid, graph, ring;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    int other = !rank;
    MPI_Cart_create(comm, 1, &two, &zero, 0, &grid);
    MPI_Graph_create(comm, 2, index, edges, 0, &graph);
    MPI_Dist_graph_create_adjacent(comm, 1, &other, MPI_UNWEIGHTED, 1, &other, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
    name("grid", (long)grid), name("graph", (long)graph), name("ring", (long)ring);
}

static void name_tools(void) {
    int provided, count, class, binding, readonly, continuous, atomic, verbosity, pvars;
    MPI_T_cvar_handle cvar;
    MPI_T_pvar_session session, other;
    MPI_T_pvar_handle pvar, of_other;
    MPI_T_init_thread(MPI_THREAD_SINGLE, &provided);
    MPI_T_cvar_handle_alloc(0, NULL, &cvar, &count);
    MPI_T_pvar_session_create(&session), MPI_T_pvar_session_create(&other);
    MPI_T_pvar_get_num(&pvars);
    int index = 0;
    do {
        MPI_T_pvar_get_info(index, NULL, NULL, &verbosity, &class, NULL, NULL, NULL, NULL, &binding, &readonly, &continuous, &atomic);
    } while (class != MPI_T_PVAR_CLASS_COUNTER && ++index < pvars);
    MPI_T_pvar_handle_alloc(session, index, NULL, &pvar, &count), MPI_T_pvar_handle_alloc(other, index, NULL, &of_other, &count);
    name("cvar", (long)cvar), name("pvar", (long)pvar), name("other_pvar", (long)of_other), name("pvar_session", (long)session);
}

/* Memory whose last byte is the last before a page that may not be touched. */
static char *before_the_end(int index, size_t len) {
    if (!areas[index]) {
        areas[index] = mmap(NULL, AREA + PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        mprotect(areas[index] + AREA, PAGE, PROT_NONE);
    }
    char *place = areas[index] + AREA - len;
    memset(place, 0, len);
    return place;
}

static long number(const char *text) {
    if (text[0] != '@') return strtol(text, NULL, 0);
    for (int i = 0; i < named; i++) if (!strcmp(names[i].name, text + 1)) return names[i].value;
    printf("there is no %s\n", text);
    exit(2);
}

static void end_session(void) {
    MPI_Session session = (MPI_Session)number("@session");
    MPI_Session_finalize(&session);
}

/* The value that a word of a line describes, as argument `index`. */
static long value(char *word, int index) {
    char kind = word[1] == ':' ? word[0] : 0, *rest = word + 2, *one;
    handles[index].size = kind == 'h' ? sizeof(long) : kind == 'k' ? sizeof(int) : 0;
    if (!kind) return number(word);
    if (handles[index].size) {
        handles[index].null = strtol(rest, NULL, 0);
        return (long)memset(before_the_end(index, handles[index].size), 0xff, handles[index].size);
    }
    if (kind == 'b') return (long)before_the_end(index, strtoul(rest, NULL, 0));
    if (kind == 's') return (long)strcpy(before_the_end(index, strlen(rest) + 1), rest);
    long values[LINE_MAX / 2];
    size_t count = 0, size = kind == 'i' ? sizeof(int) : sizeof(long);
    while ((one = strsep(&rest, ","))) values[count++] = number(one);
    char *place = before_the_end(index, count * size);
    for (size_t i = 0; i < count; i++) memcpy(place + i * size, &values[i], size);
    return (long)place;
}

/* The call that is being made, for `tell_of_hang`. */
static char current[128];

static void tell_of_hang(int signal) {
    (void)signal;
    if (write(1, current, strlen(current)) > 0) _exit(3);
}

static int make(const char *function, char **words, int count, long *a) {
    snprintf(current, sizeof current, "%s %s %s does not end\n", function, words[-3], words[-2]);
    signal(SIGALRM, tell_of_hang);
    for (int i = 0; i < count; i++) a[i] = value(words[i], i);
    int (*run)(long, long, long, long, long, long, long, long, long, long, long, long, long, long) = dlsym(RTLD_DEFAULT, function);
    if (!run) printf("there is no %s\n", function), exit(2);
    alarm(10);
    return run(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]);
}

static int split(char *line, char **words) {
    int count = 0;
    line[strcspn(line, "\n")] = 0;
    while ((words[count] = strsep(&line, " "))) count++;
    return count;
}

/* True if one of the listed numbers is the class. */
static int fits(const char *classes, int class) {
    char list[64], *rest = list, *one;
    snprintf(list, sizeof list, "%s", classes);
    while ((one = strsep(&rest, ","))) if (atoi(one) == class) return 1;
    return 0;
}

/* True if a call that has failed has set the handles that it was to give to null. */
static int gives_no_handles(const long *values) {
    for (int i = 0; i < ARGUMENTS_MAX; i++) {
        if (handles[i].size && memcmp((void *)values[i], &handles[i].null, handles[i].size)) return 0;
    }
    return 1;
}

/* Makes one call. Returns 0, and says why, if it does not fail as it should. */
static int is_refused(char **words, int count) {
    const char *function = words[0], *argument = words[1], *classes = words[3];
    long values[ARGUMENTS_MAX] = {0};
    memset(handles, 0, sizeof handles);
    int code = make(function, words + 4, count - 4, values), class = -1, len;
    char text[MPI_MAX_ERROR_STRING] = "", start[80];
    if (code && !gives_no_handles(values)) {
        printf("%s: %s %s: a handle is not null after code %d\n", function, argument, words[2], code);
        return 0;
    }
    if (!strcmp(classes, "any") || !strcmp(classes, "misstated")) return 1;
    if (MPI_Error_class(code, &class) || MPI_Error_string(code, text, &len)) {
        printf("%s: code %d is no error code\n", function, code);
        return 0;
    }
    snprintf(start, sizeof start, "%s: ", function);
    int is_tool = !strcmp(classes, "tool");
    if (is_tool ? class > MPI_ERR_LASTCODE || class >= MPI_T_ERR_CANNOT_INIT : fits(classes, class) && !strncmp(text, start, strlen(start)) && strstr(text, argument)) return 1;
    printf("%s: %s %s: class %d instead of %s: %s\n", function, argument, words[2], class, classes, text);
    return 0;
}

/* Leaves as much memory as calls with sensible numbers need. */
static void limit_memory(void) {
    long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    if (!file || fscanf(file, "%ld", &pages) != 1) perror("/proc/self/statm"), exit(2);
    fclose(file);
    rlim_t most = (rlim_t)pages * PAGE + MEMORY_LEFT;
    struct rlimit limit = {most, most};
    if (setrlimit(RLIMIT_AS, &limit) != 0) perror("setrlimit"), exit(2);
}

/* Makes all calls from number `first` on, and reports each before it. */
static void go_over(const char *path, int first, int report) {
    FILE *calls = fopen(path, "r");
    static char line[LINE_MAX];
    char *words[ARGUMENTS_MAX + 4];
    int is_limited = 0;
    if (!calls) perror(path), exit(2);
    for (int i = 0; fgets(line, sizeof line, calls); i++) {
        if (i < first) continue;
        char told[LINE_MAX + 16] = "";
        snprintf(told, sizeof told, "%-8d%.100s", i, line);
        if (write(report, told, 108) != 108) exit(2);
        if (strstr(line, " absurd ") && !is_limited++) limit_memory();
        int is_misstated = strstr(line, " misstated ") != NULL;
        if (!is_refused(words, split(line, words))) fflush(stdout), _exit(1);
        /* It may have written to memory of others. */
        if (is_misstated) _exit(UNSAFE);
    }
    fclose(calls);
}

/* Has all calls made by copies of this program. Each copy begins after the last call of the one before. */
static int oversee(const char *path) {
    int last = -1, status = 1, made = 0, failures = 0, misstated = 0;
    while (status != 0) {
        int report[2], first = last + 1;
        char told[109] = "";
        if (pipe(report) != 0) perror("pipe"), exit(2);
        pid_t copy = fork();
        if (copy == 0) {
            char number[16], descriptor[16];
            snprintf(number, sizeof number, "%d", first), snprintf(descriptor, sizeof descriptor, "%d", report[1]);
            close(report[0]);
            execl("/proc/self/exe", "wrong_arguments", path, number, descriptor, NULL);
            _exit(2);
        }
        close(report[1]);
        while (read(report[0], told, 108) == 108) made++, last = atoi(told);
        close(report[0]);
        waitpid(copy, &status, 0);
        if (WIFEXITED(status) && WEXITSTATUS(status) == UNSAFE) continue;
        int is_misstated = WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS) && strstr(told, " misstated ");
        misstated += is_misstated;
        failures += status != 0 && !is_misstated;
        if (WIFSIGNALED(status) && !is_misstated) printf("died of signal %d: %s\n", WTERMSIG(status), told);
        if (status != 0 && last < first) {
            printf("a copy ended without a call\n");
            break;
        }
    }
    printf("wrong arguments: %d calls, %d failures, %d read memory that is not there\n", made, failures, misstated);
    return failures != 0 || made == 0;
}

/* True if a process makes a call of this kind. */
static int is_mine(const char *what, int rank) {
    return !strcmp(what, "all") || !strcmp(what, rank ? "other" : "root") || (rank && !strcmp(what, "refused"));
}

/* Makes the calls of this process's role, and completes what they begin. Returns the number of failures. */
static int on_two_ranks(const char *path) {
    FILE *calls = fopen(path, "r");
    static char line[LINE_MAX];
    char *words[ARGUMENTS_MAX + 4];
    int rank, made = 0, failures = 0;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    if (!calls) perror(path), exit(2);
    while (fgets(line, sizeof line, calls)) {
        long values[ARGUMENTS_MAX] = {0};
        int count = split(line, words), is_persistent = strstr(words[0], "_init") != NULL;
        if (!is_mine(words[2], rank)) continue;
        made++;
        if (!strcmp(words[2], "refused")) {
            failures += !is_refused(words, count);
            continue;
        }
        int code = make(words[0], words + 4, count - 4, values);
        MPI_Request *request = (MPI_Request *)values[count - 5];
        if (!code && is_persistent) code = MPI_Start(request);
        if (!code && (is_persistent || !strncmp(words[0], "MPI_I", 5) || strstr(words[0], "_idup"))) code = MPI_Wait(request, MPI_STATUS_IGNORE);
        if (!code && is_persistent) code = MPI_Request_free(request);
        if (code) printf("%s as %s: code %d\n", words[0], words[2], code), failures++;
    }
    fclose(calls);
    printf("wrong arguments on two ranks: %d calls, %d failures\n", made, failures);
    return failures + !made;
}

int main(int argc, char **argv) {
    setlinebuf(stdout);
    if (argc == 2) return oversee(argv[1]);
    MPI_Init(NULL, NULL);
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    name_objects();
    if (argc == 3) {
        name_pairs();
        int failures = on_two_ranks(argv[1]);
        end_session();
        MPI_Finalize();
        return failures != 0;
    }
    name_topologies(), name_tools();
    go_over(argv[1], atoi(argv[2]), atoi(argv[3]));
    alarm(20);
    end_session();
    MPI_Finalize();
    return 0;
}
