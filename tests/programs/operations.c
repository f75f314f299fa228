/* Reductions of all predefined datatypes by all operations: each pair is refused, or has the results of C's arithmetic.
   Usage: operations SEED DATATYPE…, where the names are all of the API (api/generate.py datatypes). */
#include "check.h"
#include <mpi.h>
#include <stdlib.h>
#include <string.h>
#include <wchar.h>

/* More than one block of vectors, and some more. */
enum { COUNT = 67 };

static unsigned long state;

static unsigned long draw(void) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return state >> 11 ^ state << 40;
}

/* Eighths, so that sums and products are rounded in short formats. */
static double draw_real(void) { return (double)((long)(draw() % 4001) - 2000) / 8; }

/* Makes the call, which must be refused unless the operation is defined. Returns whether it is. */
static int combine(const char *name, MPI_Datatype type, MPI_Op op, int is_defined, void *in, void *inout) {
    int class, code = MPI_Reduce_local(in, inout, COUNT, type, op);
    MPI_Error_class(code, &class);
    if (class != (is_defined ? MPI_SUCCESS : MPI_ERR_OP)) printf("%s: class %d by operation %#lx\n", name, class, (long)op), failures++;
    return is_defined && class == MPI_SUCCESS;
}

#define WRONG(name, op, i) (printf("%s: operation %#lx gives a wrong element %d\n", name, (long)op, i), failures++)

/* Every operation in turn: DEFINED says whether it is, RESULT computes r from a and b, SAME compares r and c. */
#define OVER_ALL(T, DRAW, DEFINED, RESULT, SAME)                                                      \
    for (unsigned k = 0; k < sizeof all / sizeof *all; k++) {                                         \
        static T in[COUNT], before[COUNT], inout[COUNT];                                              \
        MPI_Op op = all[k];                                                                           \
        for (int i = 0; i < COUNT; i++) {                                                             \
            T a, b;                                                                                   \
            memset(&a, 0, sizeof a), memset(&b, 0, sizeof b);                                         \
            DRAW(a);                                                                                  \
            DRAW(b);                                                                                  \
            in[i] = a, before[i] = inout[i] = b;                                                      \
        }                                                                                             \
        if (!combine(name, type, op, DEFINED, in, inout)) continue;                                   \
        for (int i = 0; i < COUNT; i++) {                                                             \
            T a = in[i], b = before[i], c = inout[i], r = b;                                          \
            RESULT;                                                                                   \
            if (!(SAME)) {                                                                            \
                WRONG(name, op, i);                                                                   \
                break;                                                                                \
            }                                                                                         \
        }                                                                                             \
    }

static MPI_Op all[12];

#define DRAW_BITS(x) x = (__typeof__(x))(draw() % 4 ? draw() : 0)
#define DRAW_REAL(x) x = (__typeof__(x))draw_real()
#define DRAW_COMPLEX(x) __real__ x = draw_real(), __imag__ x = draw_real()
#define DRAW_PAIR(x) x.value = (__typeof__(x.value))(draw() % 5), x.index = (__typeof__(x.index))(draw() % 100)

#define IS_BITWISE (op == MPI_BAND || op == MPI_BOR || op == MPI_BXOR)
#define IS_LOGICAL (op == MPI_LAND || op == MPI_LOR || op == MPI_LXOR)
#define IS_ORDER (op == MPI_MIN || op == MPI_MAX)
#define IS_ARITHMETIC (op == MPI_SUM || op == MPI_PROD)
#define IS_PLACE (op == MPI_MINLOC || op == MPI_MAXLOC)

#define TRUTH(r) r = op == MPI_LAND ? a && b : op == MPI_LOR ? a || b : !a != !b
#define BITS(r) r = op == MPI_BAND ? a & b : op == MPI_BOR ? a | b : a ^ b
#define ORDER(r) r = op == MPI_MIN ? (a < b ? a : b) : (a > b ? a : b)

#define INTEGER(T)                                                                                                         \
    OVER_ALL(T, DRAW_BITS, !IS_PLACE, do {                                                                                 \
        if (op == MPI_SUM) (void)__builtin_add_overflow(a, b, &r);                                                         \
        else if (op == MPI_PROD) (void)__builtin_mul_overflow(a, b, &r);                                                   \
        else if (IS_ORDER) ORDER(r);                                                                                       \
        else if (IS_BITWISE) BITS(r);                                                                                      \
        else TRUTH(r);                                                                                                     \
    } while (0), r == c)
#define REAL(T)                                                                                                            \
    OVER_ALL(T, DRAW_REAL, IS_ARITHMETIC || IS_ORDER, do {                                                                 \
        if (op == MPI_SUM) r = a + b;                                                                                      \
        else if (op == MPI_PROD) r = a * b;                                                                                \
        else ORDER(r);                                                                                                     \
    } while (0), r == c)
/* As rounded after every step. */
#define COMPLEX(T)                                                                                                         \
    OVER_ALL(_Complex T, DRAW_COMPLEX, IS_ARITHMETIC, do {                                                                 \
        volatile T xu = __real__ a * __real__ b;                                                                           \
        volatile T yv = __imag__ a * __imag__ b;                                                                           \
        volatile T xv = __real__ a * __imag__ b;                                                                           \
        volatile T yu = __imag__ a * __real__ b;                                                                           \
        __real__ r = op == MPI_SUM ? __real__ a + __real__ b : xu - yv;                                                    \
        __imag__ r = op == MPI_SUM ? __imag__ a + __imag__ b : xv + yu;                                                    \
    } while (0), __real__ r == __real__ c && __imag__ r == __imag__ c)
#define LOGICAL(T) OVER_ALL(T, DRAW_BITS, IS_LOGICAL, TRUTH(r), r == c)
#define BYTES(T) OVER_ALL(T, DRAW_BITS, IS_BITWISE, BITS(r), r == c)
#define NOTHING(T) OVER_ALL(T, DRAW_BITS, 0, (void)a; (void)r, c == c)
#define PAIR(V, I)                                                                                                         \
    struct { V value; I index; } pair;                                                                                     \
    OVER_ALL(__typeof__(pair), DRAW_PAIR, IS_PLACE, do {                                                                   \
        int is_first = op == MPI_MINLOC ? a.value < b.value : a.value > b.value;                                           \
        r = is_first || (a.value == b.value && a.index < b.index) ? a : b;                                                 \
    } while (0), r.value == c.value && r.index == c.index)

#define TYPE(NAME, CHECKS)                                                                                                 \
    static void of_##NAME(void) {                                                                                          \
        const char *name = #NAME;                                                                                          \
        MPI_Datatype type = NAME;                                                                                          \
        CHECKS                                                                                                             \
    }
#define TYPES(T)                                                                                                           \
    T(MPI_AINT, INTEGER(MPI_Aint)) T(MPI_COUNT, INTEGER(MPI_Count)) T(MPI_OFFSET, INTEGER(MPI_Offset)) T(MPI_PACKED, NOTHING(char)) \
    T(MPI_SHORT, INTEGER(short)) T(MPI_INT, INTEGER(int)) T(MPI_LONG, INTEGER(long)) T(MPI_LONG_LONG, INTEGER(long long))  \
    T(MPI_UNSIGNED_SHORT, INTEGER(unsigned short)) T(MPI_UNSIGNED, INTEGER(unsigned)) T(MPI_UNSIGNED_LONG, INTEGER(unsigned long)) \
    T(MPI_UNSIGNED_LONG_LONG, INTEGER(unsigned long long)) T(MPI_FLOAT, REAL(float)) T(MPI_DOUBLE, REAL(double))           \
    T(MPI_LONG_DOUBLE, REAL(long double)) T(MPI_C_FLOAT_COMPLEX, COMPLEX(float)) T(MPI_CXX_FLOAT_COMPLEX, COMPLEX(float))  \
    T(MPI_C_DOUBLE_COMPLEX, COMPLEX(double)) T(MPI_CXX_DOUBLE_COMPLEX, COMPLEX(double))                                    \
    T(MPI_C_LONG_DOUBLE_COMPLEX, COMPLEX(long double)) T(MPI_CXX_LONG_DOUBLE_COMPLEX, COMPLEX(long double))                \
    T(MPI_LOGICAL, LOGICAL(int)) T(MPI_INTEGER, INTEGER(int)) T(MPI_REAL, REAL(float)) T(MPI_COMPLEX, COMPLEX(float))      \
    T(MPI_DOUBLE_PRECISION, REAL(double)) T(MPI_DOUBLE_COMPLEX, COMPLEX(double)) T(MPI_CHARACTER, INTEGER(unsigned char))  \
    T(MPI_FLOAT_INT, PAIR(float, int)) T(MPI_DOUBLE_INT, PAIR(double, int)) T(MPI_LONG_INT, PAIR(long, int))               \
    T(MPI_2INT, PAIR(int, int)) T(MPI_SHORT_INT, PAIR(short, int)) T(MPI_LONG_DOUBLE_INT, PAIR(long double, int))          \
    T(MPI_2REAL, PAIR(float, float)) T(MPI_2DOUBLE_PRECISION, PAIR(double, double)) T(MPI_2INTEGER, PAIR(int, int))        \
    T(MPI_C_BOOL, LOGICAL(unsigned char)) T(MPI_CXX_BOOL, LOGICAL(unsigned char)) T(MPI_WCHAR, NOTHING(wchar_t))           \
    T(MPI_INT8_T, INTEGER(signed char)) T(MPI_UINT8_T, INTEGER(unsigned char)) T(MPI_CHAR, INTEGER(char))                  \
    T(MPI_SIGNED_CHAR, INTEGER(signed char)) T(MPI_UNSIGNED_CHAR, INTEGER(unsigned char)) T(MPI_BYTE, BYTES(unsigned char)) \
    T(MPI_INT16_T, INTEGER(short)) T(MPI_UINT16_T, INTEGER(unsigned short)) T(MPI_INT32_T, INTEGER(int))                   \
    T(MPI_UINT32_T, INTEGER(unsigned)) T(MPI_INT64_T, INTEGER(long)) T(MPI_UINT64_T, INTEGER(unsigned long))               \
    T(MPI_LOGICAL1, LOGICAL(signed char)) T(MPI_LOGICAL2, LOGICAL(short)) T(MPI_LOGICAL4, LOGICAL(int))                    \
    T(MPI_LOGICAL8, LOGICAL(long)) T(MPI_LOGICAL16, LOGICAL(__int128)) T(MPI_INTEGER1, INTEGER(signed char))               \
    T(MPI_INTEGER2, INTEGER(short)) T(MPI_INTEGER4, INTEGER(int)) T(MPI_INTEGER8, INTEGER(long))                           \
    T(MPI_INTEGER16, INTEGER(__int128)) T(MPI_REAL2, REAL(_Float16)) T(MPI_REAL4, REAL(float)) T(MPI_REAL8, REAL(double))  \
    T(MPI_REAL16, REAL(_Float128)) T(MPI_COMPLEX4, COMPLEX(_Float16)) T(MPI_COMPLEX8, COMPLEX(float))                     \
    T(MPI_COMPLEX16, COMPLEX(double)) T(MPI_COMPLEX32, COMPLEX(_Float128))

TYPES(TYPE)

#define ROW(NAME, CHECKS) {#NAME, of_##NAME},
static const struct {
    const char *name;
    void (*check)(void);
} rows[] = {TYPES(ROW)};

int main(int argc, char **argv) {
    int known = 0;
    MPI_Init(&argc, &argv);
    MPI_Comm_set_errhandler(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    MPI_Op operations[] = {MPI_SUM, MPI_PROD, MPI_MIN, MPI_MAX, MPI_LAND, MPI_LOR, MPI_LXOR, MPI_BAND, MPI_BOR, MPI_BXOR, MPI_MINLOC, MPI_MAXLOC};
    memcpy(all, operations, sizeof all);
    state = (unsigned long)atol(argv[1]);
    for (int i = 2; i < argc; i++) {
        for (unsigned row = 0; row < sizeof rows / sizeof *rows; row++) {
            if (!strcmp(rows[row].name, argv[i])) rows[row].check(), known++;
        }
    }
    CHECK(known > 0 && known == argc - 2);
    printf("operations: %d datatypes, seed %s, %d failures\n", known, argv[1], failures);
    MPI_Finalize();
    return failures != 0;
}
