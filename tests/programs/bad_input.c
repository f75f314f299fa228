/* Bad arguments: calls return the right class through the right error handler. The message names function, argument
   and value.

   bad_input FUNCTIONS    walks the functions of the API (api/generate.py prototypes). Copies of this program call every
                          implemented function with one bad argument at a time, because a call may end its process.
                          Needs no mpiexec.
   bad_input FUNCTIONS NUMBER DESCRIPTOR
                          is such a copy: it begins with trial NUMBER and ends with the first that fails.
   bad_input fatal        makes one bad call under the communicators' initial handler.
   bad_input early        makes a call before MPI_Init.
   bad_input pair         checks errors between two processes.
   bad_input stated       checks errors in the meaning of arguments rather than in their types. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { PARAMETERS_MAX = 16, ROOM = 4096 };

typedef struct {
    char type[64], name[64];
    int array;
} parameter;

typedef struct {
    char module[32], name[64];
    parameter parameters[PARAMETERS_MAX];
    int count;
} function;

/* Description of the trial that comes next. */
typedef struct {
    int number, functions;
    char text[150];
} trial;

static int checked, failures;

/* Live objects, freed objects and memory. */
static MPI_Comm comm, freed_comm, grid, graph, ring;
static MPI_Datatype derived, uncommitted, freed_type;
static MPI_Group group, freed_group;
static MPI_Op op, freed_op;
static MPI_Info info, freed_info;
static MPI_Errhandler handler, freed_handler;
static MPI_Request request, freed_request;
static int keyval, freed_keyval, type_keyval, attribute;
static long memory[2][ROOM];
static long places[PARAMETERS_MAX][16];

static void add(void *in, void *inout, int *len, MPI_Datatype *type) { (void)in, (void)inout, (void)len, (void)type; }

static void ignore(MPI_Comm *on, int *code, ...) { (void)on, (void)code; }

static void set_up(void) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &freed_comm);
    int one = 1, zero = 0;
    MPI_Cart_create(comm, 1, &one, &one, 0, &grid);
    MPI_Graph_create(comm, 1, &one, &zero, 0, &graph);
    MPI_Dist_graph_create_adjacent(comm, 1, &zero, &one, 1, &zero, &one, MPI_INFO_NULL, 0, &ring);
    MPI_Type_contiguous(2, MPI_INT, &derived), MPI_Type_commit(&derived);
    MPI_Type_contiguous(3, MPI_INT, &uncommitted);
    MPI_Type_contiguous(4, MPI_INT, &freed_type), MPI_Type_commit(&freed_type);
    MPI_Comm_group(MPI_COMM_WORLD, &group), MPI_Comm_group(MPI_COMM_WORLD, &freed_group);
    MPI_Op_create(add, 1, &op), MPI_Op_create(add, 1, &freed_op);
    MPI_Info_create(&info), MPI_Info_create(&freed_info);
    MPI_Info_set(info, "key", "value");
    MPI_Comm_create_errhandler(ignore, &handler), MPI_Comm_create_errhandler(ignore, &freed_handler);
    MPI_Send_init(memory, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request);
    MPI_Send_init(memory, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &freed_request);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &freed_keyval, NULL);
    MPI_Type_create_keyval(MPI_TYPE_NULL_COPY_FN, MPI_TYPE_NULL_DELETE_FN, &type_keyval, NULL);
    MPI_Comm_set_attr(MPI_COMM_WORLD, keyval, &attribute);
    MPI_Comm gone_comm = freed_comm;
    MPI_Datatype gone_type = freed_type;
    MPI_Group gone_group = freed_group;
    MPI_Op gone_op = freed_op;
    MPI_Info gone_info = freed_info;
    MPI_Errhandler gone_handler = freed_handler;
    MPI_Request gone_request = freed_request;
    int gone_keyval = freed_keyval;
    MPI_Comm_free(&gone_comm), MPI_Type_free(&gone_type), MPI_Group_free(&gone_group), MPI_Op_free(&gone_op);
    MPI_Info_free(&gone_info), MPI_Errhandler_free(&gone_handler), MPI_Request_free(&gone_request);
    MPI_Comm_free_keyval(&gone_keyval);
}

static int is(const char *text, const char *choices) {
    char list[512], *rest = list, *word;
    snprintf(list, sizeof list, "%s", choices);
    while ((word = strsep(&rest, " "))) if (!strcmp(word, text)) return 1;
    return 0;
}

static int starts(const char *text, const char *with) { return !strncmp(text, with, strlen(with)); }

/* One bad value of a parameter and its expected outcome. */
typedef struct {
    long value;
    int class;
    const char *what;
} bad;

static long here[64];
static int here_used;

/* Address of an object that holds a value. */
static long place_with(long value) {
    here[here_used] = value;
    return (long)&here[here_used++];
}

/* Handles of each kind: a live one, then null, freed and foreign ones. */
typedef struct {
    const char *type;
    long alive, null, freed, foreign, predefined;
    int class;
} kind;

static kind kinds[8];

static void make_kinds(void) {
    kind all[] = {
        {"MPI_Comm", (long)comm, (long)MPI_COMM_NULL, (long)freed_comm, (long)derived, (long)MPI_COMM_WORLD, MPI_ERR_COMM},
        {"MPI_Datatype", (long)derived, (long)MPI_DATATYPE_NULL, (long)freed_type, (long)comm, (long)MPI_INT, MPI_ERR_TYPE},
        {"MPI_Group", (long)group, (long)MPI_GROUP_NULL, (long)freed_group, (long)comm, 0, MPI_ERR_GROUP},
        {"MPI_Op", (long)op, (long)MPI_OP_NULL, (long)freed_op, (long)MPI_INT, (long)MPI_SUM, MPI_ERR_OP},
        {"MPI_Info", (long)info, (long)MPI_INFO_NULL, (long)freed_info, (long)group, (long)MPI_INFO_ENV, MPI_ERR_INFO},
        {"MPI_Errhandler", (long)handler, (long)MPI_ERRHANDLER_NULL, (long)freed_handler, (long)info, 0, MPI_ERR_ERRHANDLER},
        {"MPI_Request", (long)request, (long)MPI_REQUEST_NULL, (long)freed_request, (long)info, 0, MPI_ERR_REQUEST},
        {"MPI_Message", (long)MPI_MESSAGE_NO_PROC, (long)MPI_MESSAGE_NULL, (long)freed_request, (long)info, 0, MPI_ERR_REQUEST},
    };
    memcpy(kinds, all, sizeof all);
}

static const kind *kind_of(const char *type) {
    for (int i = 0; i < 8; i++) if (!strcmp(kinds[i].type, type)) return &kinds[i];
    return NULL;
}

/* A handle behind a pointer that the function reads. Other pointers point to room for a result. */
static int is_read(const function *f, const parameter *p) {
    return is(f->name, "MPI_Comm_free MPI_Comm_disconnect MPI_Type_commit MPI_Type_free MPI_Group_free MPI_Op_free MPI_Info_free "
                       "MPI_Errhandler_free MPI_Request_free MPI_Start MPI_Cancel MPI_Wait MPI_Test") ||
           (is(f->name, "MPI_Mrecv MPI_Imrecv MPI_Mrecv_c MPI_Imrecv_c") && !strcmp(p->name, "message"));
}

static const char *COUNTS = "count incount outcount sendcount recvcount";
static const char *LENGTHS = "n ndims maxdims insize outsize valuelen max_integers maxneighbors maxindegree maxoutdegree indegree outdegree maxindex maxedges";
static const char *KEYVALS = "comm_keyval keyval type_keyval";
static const char *COMMUNICATING = "coll p2p pack op";

static long good(const function *f, int index) {
    const parameter *p = &f->parameters[index];
    char base[64];
    snprintf(base, sizeof base, "%s", p->type);
    char *star = strchr(base, '*');
    if (star) star[star[-1] == ' ' ? -1 : 0] = 0;
    const kind *k = kind_of(starts(base, "const ") ? base + 6 : base);
    if (p->array || star) {
        memset(places[index], 0, sizeof places[index]);
        if (k && (p->array || is_read(f, p))) places[index][0] = k->alive;
        if (is(p->name, KEYVALS) && strstr(f->name, "free"))
            places[index][0] = !strcmp(p->name, "type_keyval") ? type_keyval : keyval;
        if (strstr(p->type, "char")) strcpy((char *)places[index], strcmp(p->name, "datarep") ? "key" : "external32");
        if (is(p->name, "array_of_sizes array_of_subsizes array_of_gsizes array_of_psizes dims degrees indx") || strstr(p->name, "counts"))
            places[index][0] = 1;
        if (!strcmp(p->name, "array_of_distribs")) places[index][0] = MPI_DISTRIBUTE_BLOCK;
        if (!strcmp(p->name, "array_of_dargs")) *(int *)places[index] = MPI_DISTRIBUTE_DFLT_DARG;
        if (!strcmp(p->name, "buflen")) places[index][0] = 100;
        if (strstr(p->type, "void") && is(p->name, "sendbuf inbuf")) return (long)memory[0];
        if (strstr(p->type, "void") && !strstr(f->name, "attr")) return (long)memory[1];
        return (long)places[index];
    }
    if (k && starts(f->name, "MPI_Type_get_contents")) return k->alive;
    if (k && is(f->name, "MPI_Cart_coords MPI_Cart_get MPI_Cart_rank MPI_Cart_shift MPI_Cart_sub MPI_Cartdim_get")) return (long)grid;
    if (k && is(f->name, "MPI_Graphdims_get MPI_Graph_get MPI_Graph_neighbors MPI_Graph_neighbors_count")) return (long)graph;
    if (k && !strcmp(p->type, "MPI_Comm") && (starts(f->name, "MPI_Neighbor") || starts(f->name, "MPI_Ineighbor"))) return (long)ring;
    if (k && starts(f->name, "MPI_Dist_graph_neighbors")) return (long)ring;
    if (k) return !strcmp(p->type, "MPI_Datatype") ? (long)MPI_INT : !strcmp(p->type, "MPI_Op") ? (long)MPI_SUM : k->alive;
    if (is(p->name, KEYVALS)) return !strcmp(p->name, "type_keyval") ? type_keyval : keyval;
    if (is(p->name, "dest source root tag sendtag recvtag color key rank local_leader remote_leader")) return 0;
    if (is(p->name, "insize outsize")) return 1000;
    if (starts(p->name, "max")) return 4;
    if (!strcmp(p->name, "order")) return MPI_ORDER_C;
    if (!strcmp(p->name, "split_type")) return MPI_COMM_TYPE_SHARED;
    return 1;
}

/* Bad values of a parameter. */
static int bad_values(const function *f, const parameter *p, bad *values) {
    int n = 0, scalar = !p->array && !strchr(p->type, '*');
    const kind *k = kind_of(p->type);
#define BAD(v, c, w) (values[n++] = (bad){(long)(v), c, w})
    here_used = 0;
    if (scalar && k) {
        /* Hints may be absent, and requests inactive. */
        int null_is_bad = !(is(p->type, "MPI_Info") && strcmp(f->module, "info")) && strcmp(p->type, "MPI_Request") &&
                          !is(f->name, "MPI_Comm_get_name MPI_Type_get_name");
        if (null_is_bad) BAD(k->null, k->class, "null");
        BAD(k->freed, k->class, "freed"), BAD(k->foreign, k->class, "foreign");
        BAD(0x7f0000001234, k->class, "garbage"), BAD(0x299, k->class, "small garbage");
        if (!strcmp(p->type, "MPI_Datatype") && is(f->module, COMMUNICATING)) BAD(uncommitted, k->class, "uncommitted");
        if (!strcmp(p->type, "MPI_Op") && strcmp(f->name, "MPI_Op_commutative")) BAD(MPI_MINLOC, k->class, "not for MPI_INT");
    } else if (scalar && is(p->name, COUNTS)) {
        BAD(-1, MPI_ERR_COUNT, "negative");
    } else if (scalar && is(p->name, LENGTHS)) {
        BAD(-1, starts(f->name, "MPI_Cart") && !strcmp(p->name, "ndims") ? MPI_ERR_DIMS : MPI_ERR_ARG, "negative");
    } else if (scalar && !strcmp(p->name, "nnodes")) {
        BAD(-1, MPI_ERR_ARG, "negative");
        if (starts(f->name, "MPI_Graph")) BAD(2, MPI_ERR_ARG, "many");
    } else if (scalar && !strcmp(p->name, "rank") && starts(f->module, "topology")) {
        BAD(1, MPI_ERR_RANK, "size"), BAD(-7, MPI_ERR_RANK, "negative");
    } else if (scalar && !strcmp(p->name, "direction")) {
        BAD(1, MPI_ERR_ARG, "size"), BAD(-1, MPI_ERR_ARG, "negative");
    } else if (scalar && is(p->name, "dest source root")) {
        int class = strcmp(p->name, "root") ? MPI_ERR_RANK : MPI_ERR_ROOT;
        BAD(1, class, "size"), BAD(-7, class, "negative");
        if (strcmp(p->name, "source")) BAD(MPI_ANY_SOURCE, class, "any");
    } else if (scalar && is(p->name, "tag sendtag recvtag")) {
        int receives = !strcmp(p->name, "recvtag") || strstr(f->name, "ecv") || strstr(f->name, "robe");
        BAD(-5, MPI_ERR_TAG, "negative");
        if (!receives || !strcmp(p->name, "sendtag")) BAD(MPI_ANY_TAG, MPI_ERR_TAG, "any");
    } else if (scalar && is(p->name, KEYVALS)) {
        BAD(MPI_KEYVAL_INVALID, MPI_ERR_KEYVAL, "invalid"), BAD(-3, MPI_ERR_KEYVAL, "negative");
        BAD(freed_keyval, MPI_ERR_KEYVAL, "freed");
        BAD(!strcmp(p->name, "type_keyval") ? keyval : type_keyval, MPI_ERR_KEYVAL, "of other objects");
    } else if (scalar && is(p->name, "blocklength typeclass order split_type")) {
        BAD(-4, MPI_ERR_ARG, "negative");
    } else if (scalar && !strcmp(p->name, "color")) {
        BAD(-4, MPI_ERR_ARG, "negative");
    } else if (scalar && !strcmp(p->name, "errorcode") && starts(f->name, "MPI_Error_")) {
        BAD(-4, MPI_ERR_ARG, "negative"), BAD(999999, MPI_ERR_ARG, "unknown");
    } else if (p->array && strcmp(p->name, "argv")) {
        BAD(0, MPI_ERR_ARG, "NULL");
        if (is(p->name, "sendcounts recvcounts")) BAD(place_with(-1), MPI_ERR_COUNT, "negative");
        if (is(p->name, "array_of_blocklengths array_of_subsizes array_of_starts")) BAD(place_with(-1), MPI_ERR_ARG, "negative");
        if (is(p->name, "ranks ranks1 ranges")) BAD(place_with(-7), MPI_ERR_RANK, "negative"), BAD(place_with(1), MPI_ERR_RANK, "size");
        if (is(p->type, "MPI_Request")) BAD(place_with((long)freed_request), MPI_ERR_REQUEST, "freed");
        if (strstr(p->type, "MPI_Datatype") && starts(p->type, "const"))
            BAD(place_with((long)freed_type), MPI_ERR_TYPE, "freed"), BAD(place_with((long)MPI_DATATYPE_NULL), MPI_ERR_TYPE, "null");
    } else if (starts(p->type, "const char")) {
        BAD(0, MPI_ERR_ARG, "NULL");
    } else if (strstr(p->type, "MPI_Status")) {
        if (starts(f->name, "MPI_Status_set") || starts(p->type, "const")) BAD(0, MPI_ERR_ARG, "ignored");
    } else if (strstr(p->type, "function")) {
        if (!strstr(f->name, "eyval")) BAD(0, MPI_ERR_ARG, "NULL");
    } else if (strstr(p->type, "void")) {
        if (is(f->module, COMMUNICATING) && !is(p->name, "buffer_addr buffer")) BAD(0, MPI_ERR_BUFFER, "NULL");
        if (is(f->name, "MPI_Bcast MPI_Bcast_c MPI_Buffer_attach")) BAD(0, MPI_ERR_BUFFER, "NULL");
        if (is(f->module, COMMUNICATING) && is(p->name, "buf inbuf inoutbuf")) BAD(MPI_IN_PLACE, MPI_ERR_BUFFER, "in place");
        if (is(p->name, "baseptr buffer_addr") || (!strcmp(p->name, "attribute_val") && strstr(f->name, "get"))) BAD(0, MPI_ERR_ARG, "NULL");
    } else if (strchr(p->type, '*')) {
        char base[64];
        snprintf(base, sizeof base, "%.*s", (int)(strchr(p->type, '*') - p->type - 1), p->type);
        k = kind_of(base);
        BAD(0, MPI_ERR_ARG, "NULL");
        if (k && is_read(f, p)) {
            if (!is(f->name, "MPI_Wait MPI_Test")) BAD(place_with(k->null), k->class, "null");
            BAD(place_with(k->freed), k->class, "freed"), BAD(place_with(k->foreign), k->class, "foreign");
            if (strstr(f->name, "free") && k->predefined) BAD(place_with(k->predefined), k->class, "predefined");
        }
        if (is(p->name, KEYVALS) && strstr(f->name, "free"))
            BAD(place_with(freed_keyval), MPI_ERR_KEYVAL, "freed"), BAD(place_with(MPI_TAG_UB), MPI_ERR_KEYVAL, "predefined");
    }
    return n;
}

/* Values that are valid and raise no error. */
static int is_free(const function *f, const parameter *p, const bad *b) {
    if (is(f->name, "MPI_Init MPI_Init_thread MPI_Finalize MPI_Abort MPI_Pcontrol MPI_Get_address MPI_Free_mem MPI_Info_create_env")) return 1;
    if (strstr(f->name, "_toint") || strstr(f->name, "_fromint") || starts(f->name, "MPI_Aint") || starts(f->name, "MPI_W")) return 1;
    if (starts(f->name, "MPI_T_")) return 1;
    /* Statuses accept any value that the application stores. */
    if (starts(f->name, "MPI_Status_set") && is(p->name, "source tag")) return 1;
    /* The value counts only where the key exists and has a value. */
    if (starts(f->name, "MPI_Info_get") && !strcmp(p->name, "value")) return 1;
    /* Callbacks judge these. */
    if (!strcmp(p->name, "extra_state")) return 1;
    /* The type has none of these. */
    if (starts(f->name, "MPI_Type_get_contents") && is(p->name, "array_of_addresses array_of_large_counts") && !b->value) return 1;
    return 0;
}

static int call(const function *f, const long *a) {
    int (*run)(long, long, long, long, long, long, long, long, long, long, long, long, long, long) = dlsym(RTLD_DEFAULT, f->name);
    return run(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13]);
}

static void judge(const char *function, const char *argument, const char *what, int code, int expected) {
    int class = -1, len;
    char text[MPI_MAX_ERROR_STRING] = "";
    if (MPI_Error_class(code, &class) || MPI_Error_string(code, text, &len)) printf("%s: code %d is no error code\n", function, code), _exit(1);
    char start[80];
    snprintf(start, sizeof start, "%s: ", function);
    if (class == expected && starts(text, start) && strstr(text, argument)) return;
    printf("%s: %s %s: class %d instead of %d: %s\n", function, what, argument, class, expected, text);
    fflush(stdout);
    _exit(1);
}

static void try_one(const function *f, int index, const bad *b) {
    const parameter *p = &f->parameters[index];
    long arguments[PARAMETERS_MAX] = {0};
    for (int i = 0; i < f->count; i++) arguments[i] = good(f, i);
    arguments[index] = b->value;
    alarm(10);
    judge(f->name, p->name, b->what, call(f, arguments), b->class);
}

static int parse(char *line, function *f) {
    char *open = strchr(line, '('), *close = strrchr(line, ')'), result[32];
    if (line[0] == '#' || line[0] == '-' || !open || !close) return 0;
    *open = *close = 0;
    if (sscanf(line, "%31s %31s %63s", f->module, result, f->name) != 3 || strcmp(result, "int")) return 0;
    f->count = 0;
    for (char *rest = open + 1, *text; (text = strsep(&rest, ","));) {
        while (*text == ' ') text++;
        if (!strcmp(text, "void") || !strcmp(text, "...")) continue;
        parameter *p = &f->parameters[f->count++];
        char *bracket = strchr(text, '[');
        p->array = bracket != NULL;
        if (bracket) *bracket = 0;
        char *name = text + strlen(text);
        while (name > text && name[-1] != ' ' && name[-1] != '*') name--;
        snprintf(p->name, sizeof p->name, "%s", name);
        while (name > text && name[-1] == ' ') name--;
        snprintf(p->type, sizeof p->type, "%.*s", (int)(name - text), text);
    }
    return 1;
}

/* Runs all trials from number `first` on and reports each to `report` before it. */
static void go_over(const char *path, int first, int report) {
    FILE *table = fopen(path, "r");
    char line[2048];
    function f;
    bad values[16];
    trial next = {0};
    if (!table) perror(path), exit(1);
    while (fgets(line, sizeof line, table)) {
        int before = next.number;
        if (!parse(line, &f)) continue;
        for (int i = 0; i < f.count; i++) {
            int n = bad_values(&f, &f.parameters[i], values);
            for (int j = 0; j < n; j++) {
                if (is_free(&f, &f.parameters[i], &values[j])) continue;
                next.functions += next.number == before;
                snprintf(next.text, sizeof next.text, "%s: %s %s", f.name, values[j].what, f.parameters[i].name);
                if (next.number >= first) {
                    if (write(report, &next, sizeof next) != sizeof next) exit(1);
                    try_one(&f, i, &values[j]);
                }
                next.number++;
            }
        }
    }
    fclose(table);
}

/* Runs all trials in copies of this program. Each copy begins where the one before has ended. */
static void oversee(const char *path) {
    trial last = {.number = -1};
    int status = 1;
    while (status != 0) {
        int report[2], first = last.number + 1;
        if (pipe(report) != 0) perror("pipe"), exit(1);
        pid_t copy = fork();
        if (copy == 0) {
            char number[16], descriptor[16];
            snprintf(number, sizeof number, "%d", first), snprintf(descriptor, sizeof descriptor, "%d", report[1]);
            close(report[0]);
            execl("/proc/self/exe", "bad_input", path, number, descriptor, NULL);
            _exit(1);
        }
        close(report[1]);
        while (read(report[0], &last, sizeof last) == sizeof last) checked++;
        close(report[0]);
        waitpid(copy, &status, 0);
        failures += status != 0;
        if (WIFSIGNALED(status)) printf("%s: died of signal %d\n", last.text, WTERMSIG(status));
        if (status != 0 && last.number < first) {
            printf("a copy ended without a trial\n");
            break;
        }
    }
    printf("bad arguments: %d of %d functions, %d failures\n", checked, last.functions, failures);
}

/* Fails unless a call ends with this class and a message that says so. */
#define EXPECT(call, class, says) expect(call, class, says, __LINE__)

static void expect(int code, int expected, const char *says, int line) {
    int class, len;
    char text[MPI_MAX_ERROR_STRING];
    MPI_Error_class(code, &class);
    MPI_Error_string(code, text, &len);
    checked++;
    if (class == expected && strstr(text, says)) return;
    printf("line %d: class %d instead of %d: %s\n", line, class, expected, text);
    failures++;
}

static MPI_Comm handled_comm;
static int handled;

static void tell_window(MPI_Win *on, int *code, ...) { (void)on, (void)code; }

static void tell(MPI_Comm *on, int *code, ...) { handled_comm = *on, handled = *code; }

static void arrays(void) {
    int a[8] = {0}, b[8] = {0}, twice[2] = {0, 0}, sizes[1] = {4}, parts[1] = {3}, starts_at[1] = {2};
    int range[1][3] = {{0, 0, 0}};
    long long_value[1];
    MPI_Aint position = 0;
    MPI_Group two;
    MPI_Datatype made;
    MPI_Request requests[2];
    EXPECT(MPI_Group_incl(group, 2, twice, &two), MPI_ERR_RANK, "ranks: rank 0 is named twice");
    EXPECT(MPI_Group_range_incl(group, 1, range, &two), MPI_ERR_ARG, "ranges");
    EXPECT(MPI_Type_create_subarray(1, sizes, parts, starts_at, MPI_ORDER_C, MPI_INT, &made), MPI_ERR_ARG, "array_of_starts");
    EXPECT(MPI_Type_get_contents(derived, 0, 0, 1, a, NULL, &made), MPI_ERR_ARG, "max_integers = 0");
    EXPECT(MPI_Type_get_contents(MPI_INT, 0, 0, 0, a, NULL, &made), MPI_ERR_TYPE, "datatype");
    EXPECT(MPI_Allreduce(a, a, 1, MPI_INT, MPI_SUM, comm), MPI_ERR_BUFFER, "sendbuf");
    EXPECT(MPI_Allreduce(a, a + 1, 2, MPI_INT, MPI_SUM, comm), MPI_ERR_BUFFER, "overlaps");
    EXPECT(MPI_Allgather(a, 1, MPI_INT, a, 1, MPI_INT, comm), MPI_ERR_BUFFER, "sendbuf");
    EXPECT(MPI_Sendrecv(a, 2, MPI_INT, 0, 0, a + 1, 2, MPI_INT, 0, 0, comm, MPI_STATUS_IGNORE), MPI_ERR_BUFFER, "recvbuf");
    EXPECT(MPI_Gather(a, 2, MPI_INT, b, 1, MPI_INT, 0, comm), MPI_ERR_TRUNCATE, "8 bytes");
    EXPECT(MPI_Type_create_f90_real(50, MPI_UNDEFINED, &made), MPI_ERR_ARG, "p = 50");
    EXPECT(MPI_Pack_external("native", a, 1, MPI_INT, b, 8, &position), MPI_ERR_ARG, "datarep = native");
    long_value[0] = 1L << 40;
    EXPECT(MPI_Pack_external("external32", long_value, 1, MPI_LONG, b, 8, &position), MPI_ERR_CONVERSION, "1099511627776");
    MPI_Type_vector_c(2, 1, 2, MPI_INT, &made);
    EXPECT(MPI_Type_get_envelope(made, a, a, a, a), MPI_ERR_TYPE, "large-count");
    MPI_Type_free(&made);
    EXPECT(MPI_Type_match_size(MPI_TYPECLASS_REAL, 3, &made), MPI_ERR_ARG, "size = 3");
    MPI_Comm made_comm;
    EXPECT(MPI_Cart_rank(comm, a, b), MPI_ERR_TOPOLOGY, "comm");
    EXPECT(MPI_Cart_create(comm, 1, parts, a, 0, &made_comm), MPI_ERR_DIMS, "dims");
    EXPECT(MPI_Cart_sub(graph, a, &made_comm), MPI_ERR_TOPOLOGY, "comm");
    EXPECT(MPI_Dims_create(7, 1, parts), MPI_ERR_DIMS, "dims[0] = 3");
    EXPECT(MPI_Dist_graph_create_adjacent(comm, 1, sizes, MPI_UNWEIGHTED, 0, a, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &made_comm), MPI_ERR_RANK, "sources[0] = 4");
    EXPECT(MPI_Bcast(MPI_IN_PLACE, 1, MPI_INT, 0, comm), MPI_ERR_BUFFER, "buffer is MPI_IN_PLACE");
    EXPECT(MPI_Pack(a, 4, MPI_INT, b, 8, twice, comm), MPI_ERR_ARG, "outsize = 8");
    requests[0] = requests[1] = request;
    EXPECT(MPI_Startall(2, requests), MPI_ERR_REQUEST, "array_of_requests[1]");
    EXPECT(MPI_Waitall(2, requests, MPI_STATUSES_IGNORE), MPI_ERR_REQUEST, "array_of_requests[1]");
    MPI_Irecv(a, 1, MPI_INT, 0, 1, comm, &requests[0]);
    requests[1] = freed_request;
    EXPECT(MPI_Waitany(2, requests, a, MPI_STATUS_IGNORE), MPI_ERR_REQUEST, "array_of_requests[1]");
    EXPECT(MPI_Start(&requests[0]), MPI_ERR_REQUEST, "not persistent");
    MPI_Cancel(&requests[0]), MPI_Wait(&requests[0], MPI_STATUS_IGNORE);
}

static void objects(void) {
    int value = 0, code, flag, *got;
    char text[MPI_MAX_ERROR_STRING], *key = malloc(600);
    memset(key, 'k', 599), key[599] = 0;
    EXPECT(MPI_Info_set(info, key, "v"), MPI_ERR_INFO_KEY, "key");
    EXPECT(MPI_Info_set(info, "", "v"), MPI_ERR_INFO_KEY, "key");
    EXPECT(MPI_Info_get(info, key, 5, text, &flag), MPI_ERR_INFO_KEY, "key");
    EXPECT(MPI_Info_delete(info, "absent"), MPI_ERR_INFO_NOKEY, "absent");
    EXPECT(MPI_Info_get_nthkey(info, 7, text), MPI_ERR_ARG, "n = 7");
    EXPECT(MPI_Buffer_detach(&got, &value), MPI_ERR_BUFFER, "no buffer");
    EXPECT(MPI_Bsend(&value, 1, MPI_INT, 0, 0, comm), MPI_ERR_BUFFER, "no buffer");
    MPI_Buffer_attach(memory, 600);
    EXPECT(MPI_Buffer_attach(memory, 600), MPI_ERR_BUFFER, "attached already");
    EXPECT(MPI_Bsend(memory, 100, MPI_INT, 0, 0, comm), MPI_ERR_BUFFER, "912 bytes");
    MPI_Buffer_detach(&got, &value);
    EXPECT(MPI_Comm_set_attr(comm, MPI_TAG_UB, &value), MPI_ERR_KEYVAL, "predefined");
    EXPECT(MPI_Comm_delete_attr(comm, keyval), MPI_ERR_KEYVAL, "comm_keyval");
    EXPECT(MPI_Comm_remote_size(comm, &value), MPI_ERR_COMM, "intercommunicator");
    EXPECT(MPI_Add_error_code(77777, &code), MPI_ERR_ARG, "errorclass = 77777");
    EXPECT(MPI_Add_error_string(MPI_ERR_TYPE, "mine"), MPI_ERR_ARG, "errorcode = 3");
    EXPECT(MPI_Reduce_local(memory[0], memory[1], 1, MPI_DOUBLE, MPI_BXOR), MPI_ERR_OP, "MPI_DOUBLE");
    free(key);
}

/* The handler of the communicator concerned gets the error, together with that communicator. Errors that concern no
   live communicator go to the handler of MPI_COMM_SELF. */
static void handlers(void) {
    int value = 0, class;
    MPI_Errhandler teller;
    MPI_Request wrong;
    MPI_Comm_create_errhandler(tell, &teller);
    MPI_Comm_set_errhandler(comm, teller);
    EXPECT(MPI_Send(&value, 1, MPI_INT, 9, 0, comm), MPI_ERR_RANK, "dest = 9");
    MPI_Error_class(handled, &class);
    EXPECT(handled_comm == comm && class == MPI_ERR_RANK ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
    handled = 0, handled_comm = MPI_COMM_NULL;
    EXPECT(MPI_Send(&value, 1, MPI_INT, 9, 0, MPI_COMM_WORLD), MPI_ERR_RANK, "dest = 9");
    EXPECT(MPI_Type_size(MPI_DATATYPE_NULL, &value), MPI_ERR_TYPE, "datatype is MPI_DATATYPE_NULL");
    EXPECT(MPI_Barrier(freed_comm), MPI_ERR_COMM, "comm");
    EXPECT(handled, MPI_SUCCESS, "");
    /* A request's error concerns its communicator, in whatever call it is completed. */
    MPI_Irecv(&value, 1, MPI_INT, 0, 3, comm, &wrong);
    MPI_Send(memory, 2, MPI_INT, 0, 3, comm);
    EXPECT(MPI_Wait(&wrong, MPI_STATUS_IGNORE), MPI_ERR_TRUNCATE, "8 bytes");
    EXPECT(handled_comm == comm ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
    /* A communicator keeps its handler when the handle is freed, and returns it on request. */
    MPI_Errhandler_free(&teller);
    handled = 0;
    EXPECT(MPI_Send(&value, -3, MPI_INT, 0, 0, comm), MPI_ERR_COUNT, "count = -3");
    EXPECT(handled ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
    MPI_Comm_get_errhandler(comm, &teller);
    EXPECT(MPI_Comm_set_errhandler(MPI_COMM_WORLD, teller), MPI_SUCCESS, "");
    EXPECT(MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN), MPI_SUCCESS, "");
    EXPECT(MPI_Errhandler_free(&teller), MPI_SUCCESS, "");
    MPI_Win_create_errhandler(tell_window, &teller);
    EXPECT(MPI_Comm_set_errhandler(MPI_COMM_WORLD, teller), MPI_ERR_ERRHANDLER, "errhandler: the handler is one of Win");
    MPI_Errhandler_free(&teller);
}

static void statuses(void) {
    MPI_Request requests[2];
    MPI_Status all[2];
    int small = 0, large[4];
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Irecv(&small, 1, MPI_INT, 0, 4, comm, &requests[0]);
    MPI_Irecv(large, 4, MPI_INT, 0, 5, comm, &requests[1]);
    MPI_Send(memory, 3, MPI_INT, 0, 4, comm), MPI_Send(memory, 3, MPI_INT, 0, 5, comm);
    int code = MPI_Waitall(2, requests, all);
    EXPECT(code, MPI_ERR_IN_STATUS, "");
    EXPECT(code == MPI_ERR_IN_STATUS ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
    EXPECT(all[0].MPI_ERROR, MPI_ERR_TRUNCATE, "12 bytes");
    EXPECT(all[1].MPI_ERROR, MPI_SUCCESS, "");
}

/* A collective whose check fails at one process counts there too: later collectives stay in step. */
static void in_step(int rank) {
    int value = rank + 1, all[2], sum, bad = rank ? -1 : 1, expected = rank ? MPI_ERR_COUNT : MPI_SUCCESS;
    for (int turn = 0; turn < 4; turn++) {
        if (turn == 0) EXPECT(MPI_Gather(&value, 1, MPI_INT, all, bad, MPI_INT, 1, comm), expected, "");
        if (turn == 1) EXPECT(MPI_Reduce(&value, &sum, bad, MPI_INT, MPI_SUM, 1, comm), expected, "");
        if (turn == 2) EXPECT(MPI_Bcast(&value, bad, MPI_INT, 0, comm), expected, "");
        if (turn == 3) EXPECT(MPI_Scatter(all, 1, MPI_INT, &sum, bad, MPI_INT, 0, comm), expected, "");
        EXPECT(MPI_Allgather(&value, 1, MPI_INT, all, 1, MPI_INT, comm), MPI_SUCCESS, "");
        EXPECT(MPI_Allreduce(&value, &sum, 1, MPI_INT, MPI_SUM, comm), MPI_SUCCESS, "");
        if (all[0] != 1 || all[1] != 2 || sum != 3) {
            failures++;
            printf("after failed check %d: %d %d, %d\n", turn, all[0], all[1], sum);
        }
    }
}

static void pair(void) {
    int rank, a[4] = {0}, counts[2] = {2, 2}, overlapping[2] = {0, 1}, apart[2] = {2, 0};
    MPI_Status status;
    MPI_Comm_rank(MPI_COMM_WORLD, &rank);
    EXPECT(MPI_Allgatherv(a + 2 * rank, 2, MPI_INT, memory, counts, overlapping, MPI_INT, comm), MPI_ERR_ARG, "displs[1] = 1");
    EXPECT(MPI_Allgatherv(a + 2 * rank, 2, MPI_INT, memory, counts, apart, MPI_INT, comm), MPI_SUCCESS, "");
    MPI_Datatype nothing;
    MPI_Type_contiguous(0, MPI_INT, &nothing);
    MPI_Type_commit(&nothing);
    EXPECT(MPI_Allgatherv(a, 2, nothing, memory, counts, overlapping, nothing, comm), MPI_SUCCESS, "");
    MPI_Type_free(&nothing);
    EXPECT(MPI_Bcast(a, rank ? 2 : 1, MPI_INT, 0, comm), rank ? MPI_ERR_TRUNCATE : MPI_SUCCESS, rank ? "4 bytes where 8" : "");
    in_step(rank);
    if (rank == 0) {
        MPI_Send(a, 4, MPI_INT, 1, 6, comm);
    } else {
        EXPECT(MPI_Recv(a, 2, MPI_INT, 0, 6, comm, &status), MPI_ERR_TRUNCATE, "16 bytes from rank 0 with tag 6");
    }
    printf("bad input of two: %d calls, %d failures\n", checked, failures);
}

int main(int argc, char **argv) {
    const char *what = argc > 1 ? argv[1] : "stated";
    if (!strcmp(what, "early")) return MPI_Barrier(MPI_COMM_WORLD);
    if (argc == 2 && strchr(what, '/')) return oversee(what), failures != 0;
    MPI_Init(&argc, &argv);
    if (!strcmp(what, "fatal")) {
        MPI_Send(memory, 1, MPI_INT, 42, 0, MPI_COMM_WORLD);
        return 0;
    }
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    set_up();
    make_kinds();
    if (!strcmp(what, "pair")) {
        pair();
    } else if (argc == 4) {
        go_over(what, atoi(argv[2]), atoi(argv[3]));
    } else {
        arrays(), objects(), handlers(), statuses();
        printf("bad input beyond types: %d calls, %d failures\n", checked, failures);
    }
    MPI_Finalize();
    return failures != 0;
}
