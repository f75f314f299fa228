/* The C side of attributes, handles and callbacks that two languages share. */
#include <mpi.h>

/* Value of an attribute that Fortran has set: the integer behind the pointer. */
long attribute_in_c_(MPI_Fint *comm, MPI_Fint *key) {
    MPI_Aint *value;
    int flag;
    MPI_Comm_get_attr(MPI_Comm_f2c(*comm), *key, &value, &flag);
    return flag ? *value : -1;
}

/* Sets an attribute to an address, and returns it. */
MPI_Aint set_in_c_(MPI_Fint *comm, MPI_Fint *key) {
    static int variable;
    MPI_Comm_set_attr(MPI_Comm_f2c(*comm), *key, &variable);
    return (MPI_Aint)&variable;
}

/* A tool: counts the calls of MPI_Send in all languages. */
static int sends;
int MPI_Send(const void *buf, int count, MPI_Datatype datatype, int dest, int tag, MPI_Comm comm) {
    sends++;
    return PMPI_Send(buf, count, datatype, dest, tag, comm);
}
int sends_counted_(void) { return sends; }
