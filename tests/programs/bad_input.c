/* Bad arguments: calls return the right class through the right error handler. The message names function, argument
   and value.

   bad_input fatal        makes one bad call under the communicators' initial handler.
   bad_input early        makes a call before MPI_Init.
   bad_input world        checks errors that concern no communicator, if the program has set one handler, or another.
   bad_input pair         checks errors between two processes.
   bad_input stated       checks errors in the meaning of arguments rather than in their types. */
#include <mpi.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { ROOM = 4096 };

static int checked, failures;

/* Live objects, freed objects and memory. */
static MPI_Comm comm, freed_comm, graph;
static MPI_Datatype derived;
static MPI_Group group;
static MPI_Info info;
static MPI_Request request, freed_request;
static int keyval;
static long memory[2][ROOM];

static void set_up(void) {
    MPI_Comm_dup(MPI_COMM_WORLD, &comm);
    MPI_Comm_dup(MPI_COMM_WORLD, &freed_comm);
    int one = 1, zero = 0;
    MPI_Graph_create(comm, 1, &one, &zero, 0, &graph);
    MPI_Type_contiguous(2, MPI_INT, &derived), MPI_Type_commit(&derived);
    MPI_Comm_group(MPI_COMM_WORLD, &group);
    MPI_Info_create(&info);
    MPI_Info_set(info, "key", "value");
    MPI_Send_init(memory, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &request);
    MPI_Send_init(memory, 1, MPI_INT, 0, 0, MPI_COMM_WORLD, &freed_request);
    MPI_Comm_create_keyval(MPI_COMM_NULL_COPY_FN, MPI_COMM_NULL_DELETE_FN, &keyval, NULL);
    MPI_Comm gone_comm = freed_comm;
    MPI_Request gone_request = freed_request;
    MPI_Comm_free(&gone_comm), MPI_Request_free(&gone_request);
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
    int *many = calloc(1 << 20, sizeof *many);
    EXPECT(MPI_Dims_create(12, 1 << 20, many), MPI_SUCCESS, "");
    EXPECT(many[0] == 3 && many[1] == 2 && many[2] == 2 && many[(1 << 20) - 1] == 1 ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
    free(many);
    EXPECT(MPI_Graph_create(comm, 1 << 30, parts, parts, 0, &made_comm), MPI_ERR_ARG, "nnodes = 1073741824");
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
    /* The data are not read: there are fewer. */
    EXPECT(MPI_Bsend(memory, 1 << 29, MPI_INT, 0, 0, comm), MPI_ERR_BUFFER, "of the attached 600");
    MPI_Buffer_detach(&got, &value);
    EXPECT(MPI_Comm_set_attr(comm, MPI_TAG_UB, &value), MPI_ERR_KEYVAL, "predefined");
    EXPECT(MPI_Comm_delete_attr(comm, keyval), MPI_ERR_KEYVAL, "comm_keyval");
    EXPECT(MPI_Comm_remote_size(comm, &value), MPI_ERR_COMM, "intercommunicator");
    EXPECT(MPI_Add_error_code(77777, &code), MPI_ERR_ARG, "errorclass = 77777");
    EXPECT(MPI_Add_error_string(MPI_ERR_TYPE, "mine"), MPI_ERR_ARG, "errorcode = 3");
    EXPECT(MPI_Reduce_local(memory[0], memory[1], 1, MPI_DOUBLE, MPI_BXOR), MPI_ERR_OP, "MPI_DOUBLE");
    EXPECT(MPI_Reduce_local(memory[0], memory[0], 1, MPI_DOUBLE, MPI_SUM), MPI_ERR_BUFFER, "overlaps inoutbuf");
    free(key);
}

static void forgive(MPI_Comm *on, int *code, ...) { (void)on, *code = MPI_SUCCESS; }
static void forgive_window(MPI_Win *on, int *code, ...) { (void)on, *code = MPI_SUCCESS; }
static void forgive_file(MPI_File *on, int *code, ...) { (void)on, *code = MPI_SUCCESS; }

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

/* What a handler leaves as the code is what the function returns, whatever the object. */
static void changed_codes(void) {
    MPI_Errhandler forgiving;
    MPI_Win window;
    MPI_File file = MPI_FILE_NULL;
    int value = 0;
    MPI_Comm_create_errhandler(forgive, &forgiving);
    MPI_Comm_set_errhandler(comm, forgiving);
    EXPECT(MPI_Send(&value, 1, MPI_INT, 9, 0, comm), MPI_SUCCESS, "");
    MPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&forgiving);
    MPI_Win_create_errhandler(forgive_window, &forgiving);
    MPI_Win_create(memory, sizeof memory, 1, MPI_INFO_NULL, comm, &window);
    MPI_Win_set_errhandler(window, forgiving);
    EXPECT(MPI_Put(&value, 1, MPI_INT, 9, 0, 1, MPI_INT, window), MPI_SUCCESS, "");
    MPI_Win_free(&window);
    MPI_Errhandler_free(&forgiving);
    MPI_File_create_errhandler(forgive_file, &forgiving);
    MPI_File_set_errhandler(MPI_FILE_NULL, forgiving);
    EXPECT(MPI_File_open(comm, "missing", MPI_MODE_RDWR, MPI_INFO_NULL, &file), MPI_SUCCESS, "");
    MPI_File_set_errhandler(MPI_FILE_NULL, MPI_ERRORS_RETURN);
    MPI_Errhandler_free(&forgiving);
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

/* Calls that end several requests write the error fields of their statuses only if they fail. */
static void error_fields(void) {
    MPI_Request requests[3];
    MPI_Status all[3];
    int got[2], count, indices[3], flag;
    for (int way = 0; way < 4; way++) {
        for (int i = 0; i < 3; i++) all[i].MPI_ERROR = 77, requests[i] = MPI_REQUEST_NULL;
        for (int i = 0; i < 2; i++) MPI_Irecv(&got[i], 1, MPI_INT, 0, 8, comm, &requests[i]), MPI_Send(memory, 1, MPI_INT, 0, 8, comm);
        if (way == 0) EXPECT(MPI_Waitall(3, requests, all), MPI_SUCCESS, "");
        for (flag = way != 1; !flag;) EXPECT(MPI_Testall(3, requests, &flag, all), MPI_SUCCESS, "");
        for (int done = way < 2 ? 2 : 0; done < 2; done += count) {
            EXPECT((way == 2 ? MPI_Waitsome : MPI_Testsome)(3, requests, &count, indices, all), MPI_SUCCESS, "");
        }
        for (int i = 0; i < 2; i++) EXPECT(all[i].MPI_ERROR == 77 ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
        /* The empty status of a null request has an error field. */
        EXPECT(all[2].MPI_ERROR == (way < 2 ? MPI_SUCCESS : 77) ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
        EXPECT(all[0].MPI_SOURCE == 0 && all[0].MPI_TAG == 8 ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
    }
}

/* Errors that concern no communicator are MPI_COMM_SELF's, or MPI_COMM_WORLD's if the program has set that handler alone. */
static void without_object(void) {
    MPI_Errhandler teller;
    MPI_Comm of[] = {MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_WORLD};
    int size;
    MPI_Comm_create_errhandler(tell, &teller);
    for (int i = 0; i < 3; i++) {
        MPI_Comm expected = i ? MPI_COMM_SELF : MPI_COMM_WORLD;
        MPI_Comm_set_errhandler(of[i], teller);
        handled = 0;
        EXPECT(MPI_Type_size(MPI_DATATYPE_NULL, &size), MPI_ERR_TYPE, "datatype");
        EXPECT(handled && handled_comm == expected ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
        handled = 0;
        EXPECT(MPI_Comm_size(MPI_COMM_NULL, &size), MPI_ERR_COMM, "comm");
        EXPECT(handled && handled_comm == expected ? MPI_SUCCESS : MPI_ERR_OTHER, MPI_SUCCESS, "");
    }
    MPI_Errhandler_free(&teller);
}

/* A process whose neighbour sends more than nothing, or nothing, is told so, in every form and length. */
static void neighbours(int rank) {
    enum { MANY = 1 << 20 };
    static int sent[MANY], got[MANY];
    int other = !rank, zero = 0;
    MPI_Aint start = 0;
    MPI_Datatype type = MPI_INT;
    MPI_Comm ring;
    MPI_Dist_graph_create_adjacent(comm, 1, &other, MPI_UNWEIGHTED, 1, &other, MPI_UNWEIGHTED, MPI_INFO_NULL, 0, &ring);
    for (int form = 0; form < 5; form++) {
        for (int turn = 0; turn < 4; turn++) {
            int longer = turn % 2 ? MANY : 1, m = !rank && turn < 2 ? longer : 0, n = rank && turn >= 2 ? longer : 0, code = MPI_SUCCESS;
            if (form == 0) code = MPI_Neighbor_allgather(sent, m, MPI_INT, got, n, MPI_INT, ring);
            if (form == 1) code = MPI_Neighbor_allgatherv(sent, m, MPI_INT, got, &n, &zero, MPI_INT, ring);
            if (form == 2) code = MPI_Neighbor_alltoall(sent, m, MPI_INT, got, n, MPI_INT, ring);
            if (form == 3) code = MPI_Neighbor_alltoallv(sent, &m, &zero, MPI_INT, got, &n, &zero, MPI_INT, ring);
            if (form == 4) code = MPI_Neighbor_alltoallw(sent, &m, &start, &type, got, &n, &start, &type, ring);
            EXPECT(code, rank ? MPI_ERR_TRUNCATE : MPI_SUCCESS, rank ? "differ" : "");
        }
    }
    MPI_Comm_free(&ring);
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
    neighbours(rank);
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
    MPI_Init(&argc, &argv);
    if (!strcmp(what, "fatal")) {
        MPI_Send(memory, 1, MPI_INT, 42, 0, MPI_COMM_WORLD);
        return 0;
    }
    if (!strcmp(what, "world")) without_object();
    MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    set_up();
    if (!strcmp(what, "pair")) {
        pair();
    } else {
        arrays(), objects(), handlers(), changed_codes(), statuses(), error_fields();
        printf("bad input beyond types: %d calls, %d failures\n", checked, failures);
    }
    MPI_Finalize();
    return failures != 0;
}
