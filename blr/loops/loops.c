/* The inner loops of blr, compiled: each has a slow twin in NumPy, which it equals to rounding.
 *
 * Built where there is a compiler that knows vectors (GCC, Clang); without it the twins do the work.  Loops are compiled
 * for the processor at hand and for any: which one is taken is found out when the module is imported.
 */
#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
#include <Python.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

typedef double v4d __attribute__((vector_size(32)));
typedef float v8f __attribute__((vector_size(32)));
typedef long long v4l __attribute__((vector_size(32)));
typedef long long v8l __attribute__((vector_size(64)));
typedef unsigned long long v4ul __attribute__((vector_size(32)));
typedef int v8i __attribute__((vector_size(32)));
typedef unsigned v8ui __attribute__((vector_size(32)));
typedef double v4d_unaligned __attribute__((vector_size(32), aligned(8), may_alias));
typedef float v8f_unaligned __attribute__((vector_size(32), aligned(4), may_alias));

#define MOST_OUTPUTS 16  /* outputs, or classes, of a call: rows of them are held on the stack */
#define MOST_TARGETS 256 /* outputs of a tree */

#define ALWAYS_INLINE inline __attribute__((always_inline))
#define MOST_LEAVES 64 /* of a tree whose rows go through all its tests at once, with a bit for each leaf */
#define SIDE_BY_SIDE 32 /* rows that do */
#define SETS 8 /* sets of points that go down a tree side by side */

/* The tests of a tree, in any order: a row that exceeds the threshold is in none of the leaves `left` (bits).  Leaves
 * are numbered from left to right: the first one that no test excludes is the row's; `leaf` are their values' numbers. */
typedef struct {
    int n, n_leaves;
    int feature[MOST_LEAVES], leaf[MOST_LEAVES];
    float threshold[MOST_LEAVES];
    unsigned long long left[MOST_LEAVES];
} Tests;

/* Points of a set that have not reached their leaves yet, a bit each. */
typedef struct {
    unsigned long long points;
    long set;
} Left;

/* Sets of points X (F, N) that go through trees together: n sets, each of S points that lie side by side and begin so
 * many places `apart`.  `least` and `most` (F, places) are of each set's features; `varying` (n, F + 1), which differ
 * within it, ended by -1; `rising` (n,), the one that does, where points rise along it, or -1, as for `n_others` of them;
 * `first` (F + 1), where the tests of each feature begin; `all` (n, K), sums of leaves that the first point reaches, or
 * all do, `more` (n, S, K), what the leaf of a point has more than that of the point before, and `out` (n, K, S), sums of
 * all others; the rest is filled for each tree. */
typedef struct {
    const float *X;
    long F, N, n, S, apart, places, n_others;
    float *least, *most;
    int *varying, *rising, *first, *leaf;
    unsigned long long *bits, *last;
    Left *left;
    double *all, *more, *out;
} Sets;

/* Add the tests and leaves below a node; return 0 where there are more leaves than bits. */
static int add_tests(Tests *tests, const int *nodes, int at)
{
    const int *node = nodes + 4 * (long)at;
    if (node[2] == at) {
        if (tests->n_leaves == MOST_LEAVES)
            return 0;
        tests->leaf[tests->n_leaves++] = node[3];
        return 1;
    }
    int own = tests->n, before = tests->n_leaves;
    if (own == MOST_LEAVES - 1)
        return 0;
    tests->n++;
    tests->feature[own] = node[0];
    memcpy(&tests->threshold[own], node + 1, sizeof(float));
    if (!add_tests(tests, nodes, node[2]))
        return 0;
    tests->left[own] = ((1ULL << (tests->n_leaves - before)) - 1) << before;
    return add_tests(tests, nodes, node[2] + 1);
}

/* Sort the tests of a tree by feature, those of feature f from first[f] on, and these by threshold. */
static void by_feature(Tests *tests, long F, int *first)
{
    Tests old = *tests;
    memset(first, 0, sizeof(int) * (F + 2));
    for (int q = 0; q < old.n; q++)
        first[old.feature[q] + 2]++;
    for (long f = 0; f < F; f++)
        first[f + 2] += first[f + 1];
    for (int q = 0; q < old.n; q++) {
        int place = first[old.feature[q] + 1]++;
        tests->feature[place] = old.feature[q];
        tests->threshold[place] = old.threshold[q];
        tests->left[place] = old.left[q];
    }
    for (int q = 1; q < tests->n; q++) {
        float threshold = tests->threshold[q];
        unsigned long long left = tests->left[q];
        int place = q;
        for (; place > first[tests->feature[q]] && tests->threshold[place - 1] > threshold; place--) {
            tests->threshold[place] = tests->threshold[place - 1];
            tests->left[place] = tests->left[place - 1];
        }
        tests->threshold[place] = threshold;
        tests->left[place] = left;
    }
}

/* Call a loop with the classes known to the compiler where they are few: their numbers stay in registers. */
#define FEW_CLASSES(loop, K, d, ...)                     \
    ((K) == 2 && (d) == 1   ? loop(2, 1, __VA_ARGS__)    \
     : (K) == 3 && (d) == 2 ? loop(3, 2, __VA_ARGS__)    \
     : (K) == 4 && (d) == 3 ? loop(4, 3, __VA_ARGS__)    \
     : (K) == 5 && (d) == 4 ? loop(5, 4, __VA_ARGS__)    \
     : (K) == 6 && (d) == 5 ? loop(6, 5, __VA_ARGS__)    \
                            : loop(K, d, __VA_ARGS__))

#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WITH_AVX2 1
/* Processors without AVX2 are rare: their loops are optimised less, which halves the time to compile. */
#pragma GCC push_options
#pragma GCC optimize("O1")
#endif
#define FN(name) name##_any
#include "vectors.h"
#include "trees.h"
#undef FN
#ifdef WITH_AVX2
#pragma GCC pop_options
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define FN(name) name##_avx2
#include "vectors.h"
#include "trees.h"
#undef FN
#pragma GCC pop_options
#endif

static int has_avx2 = 0;

#ifdef WITH_AVX2
#define CALL(name, ...) (has_avx2 ? name##_avx2(__VA_ARGS__) : name##_any(__VA_ARGS__))
#else
#define CALL(name, ...) name##_any(__VA_ARGS__)
#endif
/* The loop in the precision of the call's arrays of type 'r'. */
#define CALL_REAL(got, name, ...) \
    ((got).real == 'f' ? CALL(name##_single, __VA_ARGS__) : CALL(name##_double, __VA_ARGS__))

#define MOST_ARRAYS 9
#define FIRST_CACHE 24000 /* bytes of the first cache that a block of rows may fill */

enum { READ = 0, WRITTEN = 1, OPTIONAL = 2 };

/* An array that a call takes.  `shape` has a letter for each dimension: letters that come again are the same number.
 * `type` is 'd', double precision, or 'r', double or single, the same for all such arrays of a call. */
typedef struct {
    const char *name;
    const char *shape;
    char type;
    int use;
} Wanted;

/* The arrays of a call, NULL where an optional one is None, and the number that each letter stands for. */
typedef struct {
    Py_buffer views[MOST_ARRAYS];
    int held;
    void *array[MOST_ARRAYS];
    long size[128];
    char real;
} Got;

static PyObject *finished(Got *got, PyObject *result)
{
    while (got->held)
        PyBuffer_Release(&got->views[--got->held]);
    return result;
}

static int take_one(Got *got, PyObject *object, const Wanted *wanted, void **array)
{
    Py_buffer *view = &got->views[got->held];
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (wanted->use & WRITTEN ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags))
        return 0;
    got->held++;
    char type = view->format && view->format[0] && !view->format[1] ? view->format[0] : '?';
    if (wanted->type == 'r' && !got->real && (type == 'd' || type == 'f'))
        got->real = type;
    if (type != (wanted->type == 'r' ? got->real : wanted->type) || view->ndim != (int)strlen(wanted->shape)) {
        PyErr_Format(PyExc_ValueError, "%s is of type '%s' with %d dimensions; expected '%c' with %d", wanted->name,
                     view->format ? view->format : "B", view->ndim,
                     wanted->type == 'r' && got->real ? got->real : 'd', (int)strlen(wanted->shape));
        return 0;
    }
    for (int k = 0; k < view->ndim; k++) {
        long *size = &got->size[(int)wanted->shape[k]];
        if (*size < 0)
            *size = (long)view->shape[k];
        if (*size != view->shape[k]) {
            PyErr_Format(PyExc_ValueError, "arrays do not fit together: %s has %zd of %c, others have %ld",
                         wanted->name, view->shape[k], wanted->shape[k], *size);
            return 0;
        }
    }
    *array = view->buf;
    return 1;
}

/* Take the arrays of a call; return 0 with an error set, and nothing held, where they are not what is wanted. */
static int take(Got *got, PyObject *args, const Wanted *wanted, Py_ssize_t count)
{
    memset(got, 0, sizeof(*got));
    for (int letter = 0; letter < 128; letter++)
        got->size[letter] = -1;
    if (PyTuple_Size(args) != count) {
        PyErr_Format(PyExc_TypeError, "got %zd arguments, expected %zd", PyTuple_Size(args), count);
        return 0;
    }
    for (Py_ssize_t i = 0; i < count; i++) {
        PyObject *object = PyTuple_GetItem(args, i);
        if (object == Py_None && wanted[i].use & OPTIONAL)
            continue;
        if (!take_one(got, object, &wanted[i], &got->array[i])) {
            finished(got, NULL);
            return 0;
        }
    }
    return 1;
}

static PyObject *refused(Got *got, const char *expected)
{
    PyErr_Format(PyExc_ValueError, "arrays do not fit together: expected %s", expected);
    return finished(got, NULL);
}

static PyObject *none(Got *got)
{
    finished(got, NULL);
    Py_RETURN_NONE;
}

#define TAKE(...)                                                                   \
    static const Wanted wanted[] = {__VA_ARGS__};                                   \
    Got got;                                                                        \
    if (!take(&got, args, wanted, (Py_ssize_t)(sizeof(wanted) / sizeof(*wanted)))) \
    return NULL

static long multiple_of_four(long n) { return (n + 3) & ~3L; }

/* Rows of `width` doubles that fill a part of the first cache, a multiple of four from 48 to 128: of fewer, the sums of
 * a tile would be read and written too often. */
static long rows_of_block(long width)
{
    long rows = FIRST_CACHE / (8 * width) & ~3L;
    return rows < 48 ? 48 : rows > 128 ? 128 : rows;
}

static PyObject *logistic_sums(PyObject *self, PyObject *args)
{
    TAKE({"Phi", "nM", 'd', READ}, {"w", "M", 'd', READ}, {"t", "n", 'd', READ}, {"weight", "n", 'd', OPTIONAL},
         {"gradient", "M", 'd', WRITTEN}, {"hessian", "MM", 'd', WRITTEN | OPTIONAL});
    long n = got.size['n'], M = got.size['M'], width = multiple_of_four(M);
    if (M < 1)
        return refused(&got, "a column at least");
    long block = rows_of_block(width);
    double *scratch = malloc(sizeof(double) * ((block + width + 1) * width + 5 * block)), value;
    if (!scratch)
        return finished(&got, PyErr_NoMemory());
    Py_BEGIN_ALLOW_THREADS
    value = CALL(logistic_sums, got.array[0], got.array[1], got.array[2], got.array[3], n, M, width, block, scratch,
                 got.array[4], got.array[5]);
    Py_END_ALLOW_THREADS
    free(scratch);
    return finished(&got, PyFloat_FromDouble(value));
}

static PyObject *weighted_grams(PyObject *self, PyObject *args)
{
    TAKE({"Phi", "nM", 'd', READ}, {"r", "nP", 'd', READ}, {"out", "PMM", 'd', WRITTEN});
    long n = got.size['n'], M = got.size['M'], P = got.size['P'], width = multiple_of_four(M);
    if (M < 1)
        return refused(&got, "a column at least");
    long block = rows_of_block(2 * width);
    double *scratch = malloc(sizeof(double) * (2 * block + P * width) * width);
    if (!scratch)
        return finished(&got, PyErr_NoMemory());
    Py_BEGIN_ALLOW_THREADS
    CALL(weighted_grams, got.array[0], got.array[1], n, M, P, width, block, scratch, got.array[2]);
    Py_END_ALLOW_THREADS
    free(scratch);
    return none(&got);
}

static PyObject *add_squares(PyObject *self, PyObject *args)
{
    TAKE({"Phi", "nM", 'r', READ}, {"U", "DD", 'r', READ}, {"packed", "Pn", 'd', WRITTEN});
    long n = got.size['n'], M = got.size['M'], C = M > 0 ? got.size['D'] / M : 0;
    if (C < 1 || C > MOST_OUTPUTS || got.size['D'] != C * M || got.size['P'] != C * (C + 1) / 2)
        return refused(&got, "U (C M, C M), packed (C (C + 1)/2, n), C from 1 to 16");
    size_t each = got.real == 'f' ? sizeof(float) : sizeof(double);
    long size = CALL_REAL(got, pack, got.array[1], M, C, NULL);
    char *panels = malloc(each * (size + 4 * M));
    if (!panels)
        return finished(&got, PyErr_NoMemory());
    Py_BEGIN_ALLOW_THREADS
    CALL_REAL(got, pack, got.array[1], M, C, (void *)panels);
    CALL_REAL(got, squares, got.array[0], n, M, C, (void *)panels, (void *)(panels + each * size), got.array[2]);
    Py_END_ALLOW_THREADS
    free(panels);
    return none(&got);
}

/* Whether nodes fill whole vectors, and classes and axes are as many as the loops hold. */
static int fit_nodes(const Got *got)
{
    long K = got->size['K'];
    return K >= 2 && K <= MOST_OUTPUTS && got->size['d'] <= K && got->size['S'] % (got->real == 'f' ? 8 : 4) == 0;
}

static const char NODES[] = "K from 2 to 16, d up to K, S a multiple of 8, or of 4 in double precision";

static PyObject *softmax_nodes(PyObject *self, PyObject *args)
{
    TAKE({"m", "nK", 'd', READ}, {"B", "nKd", 'd', READ}, {"z", "dS", 'r', READ}, {"w", "S", 'r', READ},
         {"log_sum", "n", 'd', WRITTEN}, {"products", "nKK", 'd', WRITTEN});
    if (!fit_nodes(&got))
        return refused(&got, NODES);
    Py_BEGIN_ALLOW_THREADS
    CALL_REAL(got, softmax_nodes, got.array[0], got.array[1], got.array[2], got.array[3], got.size['n'],
              got.size['K'], got.size['d'], got.size['S'], got.array[4], got.array[5]);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *softmax_responses(PyObject *self, PyObject *args)
{
    TAKE({"m", "nK", 'd', READ}, {"B", "nKd", 'd', READ}, {"z", "dS", 'r', READ}, {"w", "S", 'r', READ},
         {"p", "nK", 'd', WRITTEN}, {"entropy", "n", 'd', WRITTEN});
    if (!fit_nodes(&got))
        return refused(&got, NODES);
    Py_BEGIN_ALLOW_THREADS
    CALL_REAL(got, softmax_responses, got.array[0], got.array[1], got.array[2], got.array[3], got.size['n'],
              got.size['K'], got.size['d'], got.size['S'], got.array[4], got.array[5]);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *logistic_mixture(PyObject *self, PyObject *args)
{
    TAKE({"mean", "Sn", 'd', READ}, {"sd", "Sn", 'd', READ}, {"z", "J", 'r', READ}, {"w", "J", 'r', READ},
         {"share", "Sn", 'd', READ}, {"p", "n2", 'd', WRITTEN}, {"entropy", "n", 'd', WRITTEN},
         {"first", "n", 'd', WRITTEN}, {"second", "n", 'd', WRITTEN});
    if (got.size['2'] != 2)
        return refused(&got, "two classes");
    Py_BEGIN_ALLOW_THREADS
    CALL_REAL(got, logistic_mixture, got.array[0], got.array[1], got.array[2], got.array[3], got.array[4],
              got.size['S'], got.size['n'], got.size['J'], got.array[5], got.array[6], got.array[7], got.array[8]);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *softmax_mixture(PyObject *self, PyObject *args)
{
    TAKE({"m", "NnK", 'd', READ}, {"B", "NnKd", 'd', READ}, {"z", "NdS", 'r', READ}, {"w", "S", 'r', READ},
         {"share", "Nn", 'd', READ}, {"p", "nK", 'd', WRITTEN}, {"entropy", "n", 'd', WRITTEN},
         {"mean", "nK", 'd', WRITTEN}, {"second", "nKK", 'd', WRITTEN});
    if (!fit_nodes(&got))
        return refused(&got, NODES);
    Py_BEGIN_ALLOW_THREADS
    CALL_REAL(got, softmax_mixture, got.array[0], got.array[1], got.array[2], got.array[3], got.array[4],
              got.size['N'], got.size['n'], got.size['K'], got.size['d'], got.size['S'], got.array[5],
              got.array[6], got.array[7], got.array[8]);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *softmax_series(PyObject *self, PyObject *args)
{
    TAKE({"mean", "nK", 'd', READ}, {"covariance", "nKK", 'd', READ}, {"probability", "nK", 'd', WRITTEN},
         {"entropy", "n", 'd', WRITTEN}, {"others", "n", 'd', WRITTEN}, {"spread", "n", 'd', WRITTEN});
    if (got.size['K'] < 2 || got.size['K'] > MOST_OUTPUTS)
        return refused(&got, "K from 2 to 16");
    Py_BEGIN_ALLOW_THREADS
    CALL(softmax_series, got.array[0], got.array[1], got.size['n'], got.size['K'], got.array[2], got.array[3],
         got.array[4], got.array[5]);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *softmax_rows(PyObject *self, PyObject *args)
{
    TAKE({"a", "SKn", 'r', WRITTEN}, {"t", "Kn", 'r', READ}, {"value", "Sn", 'r', WRITTEN});
    if (got.size['K'] < 2 || got.size['K'] > MOST_OUTPUTS)
        return refused(&got, "K from 2 to 16");
    Py_BEGIN_ALLOW_THREADS
    CALL_REAL(got, softmax_rows, got.array[0], got.array[1], got.size['S'], got.size['K'], got.size['n'],
              got.array[2]);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *logistic_rows(PyObject *self, PyObject *args)
{
    TAKE({"a", "Sn", 'r', READ}, {"t", "n", 'r', READ}, {"value", "Sn", 'r', WRITTEN},
         {"residual", "Sn", 'r', WRITTEN | OPTIONAL}, {"curvature", "Sn", 'r', WRITTEN | OPTIONAL});
    Py_BEGIN_ALLOW_THREADS
    CALL_REAL(got, logistic_rows, got.array[0], got.array[1], got.size['S'], got.size['n'], got.array[2],
              got.array[3], got.array[4]);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *city_blocks(PyObject *self, PyObject *args)
{
    TAKE({"Z", "nF", 'd', READ}, {"centres", "FM", 'd', READ}, {"distance", "nM", 'd', WRITTEN});
    Py_BEGIN_ALLOW_THREADS
    CALL(city_blocks, got.array[0], got.array[1], got.size['n'], got.size['F'], got.size['M'], got.array[2]);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *monomials(PyObject *self, PyObject *args)
{
    TAKE({"Z", "nF", 'd', READ}, {"out", "nM", 'd', WRITTEN});
    long F = got.size['F'], M = got.size['M'], whole = 1;
    for (long degree = 1; F > 0 && whole < M; degree++)
        whole = whole * (F + degree) / degree;
    if (whole != M)
        return refused(&got, "as many columns of out as there are monomials of F features up to a degree");
    long *start = malloc(sizeof(long) * (F + 1));
    if (!start)
        return finished(&got, PyErr_NoMemory());
    Py_BEGIN_ALLOW_THREADS
    if (M > 1)
        CALL(monomials, got.array[0], got.size['n'], F, M, start, got.array[1]);
    Py_END_ALLOW_THREADS
    free(start);
    return none(&got);
}

static PyObject *exponentials(PyObject *self, PyObject *args)
{
    TAKE({"x", "nM", 'd', WRITTEN});
    Py_BEGIN_ALLOW_THREADS
    CALL(exponentials, got.array[0], got.size['n'] * got.size['M']);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *arcsinhs(PyObject *self, PyObject *args)
{
    TAKE({"x", "nM", 'd', WRITTEN});
    Py_BEGIN_ALLOW_THREADS
    CALL(arcsinhs, got.array[0], got.size['n'] * got.size['M']);
    Py_END_ALLOW_THREADS
    return none(&got);
}

static PyObject *logistic_integral(PyObject *self, PyObject *args)
{
    TAKE({"m", "n", 'd', READ}, {"v", "n", 'd', READ}, {"z", "S", 'd', OPTIONAL}, {"w", "S", 'd', OPTIONAL},
         {"probability", "n", 'd', WRITTEN}, {"entropy", "n", 'd', WRITTEN | OPTIONAL});
    const double *m = got.array[0], *v = got.array[1], *z = got.array[2], *w = got.array[3];
    double *p = got.array[4], *h = got.array[5];
    long n = got.size['n'], S = got.size['S'], whole = n & ~3L;
    if (!z != !w || (z && S < 2))
        return refused(&got, "z and w of two nodes at least, or neither");
    double rest[4][4] = {{0}}; /* the rows that fill no vector: means, variances, and what comes of them */
    memcpy(rest[0], m + whole, sizeof(double) * (n - whole));
    memcpy(rest[1], v + whole, sizeof(double) * (n - whole));
    Py_BEGIN_ALLOW_THREADS
    if (z) {
        CALL(logistic_pairs, m, v, z, w, S, whole, p, h);
        CALL(logistic_pairs, rest[0], rest[1], z, w, S, 4, rest[2], h ? rest[3] : NULL);
    } else {
        CALL(logistic_series, m, v, whole, p, h);
        CALL(logistic_series, rest[0], rest[1], 4, rest[2], h ? rest[3] : NULL);
    }
    Py_END_ALLOW_THREADS
    memcpy(p + whole, rest[2], sizeof(double) * (n - whole));
    if (h)
        memcpy(h + whole, rest[3], sizeof(double) * (n - whole));
    return none(&got);
}

static int make_sets(Sets *sets, long K)
{
    long n = sets->n, F = sets->F, places = sets->places = n + SIDE_BY_SIDE;
    sets->leaf = malloc(sizeof(int) * 2 * (n + 1));
    sets->bits = malloc(sizeof(unsigned long long) * places);
    if (sets->S == 1)
        return sets->leaf && sets->bits;
    sets->least = malloc(sizeof(float) * F * places);
    sets->most = malloc(sizeof(float) * F * places);
    sets->varying = malloc(sizeof(int) * (n * (F + 1) + 1));
    sets->rising = malloc(sizeof(int) * (n + 1));
    sets->last = malloc(sizeof(unsigned long long) * places);
    sets->first = malloc(sizeof(int) * (F + 2));
    sets->left = malloc(sizeof(Left) * (n + 1));
    sets->all = calloc(n * K + 1, sizeof(double));
    sets->more = calloc(n * K * sets->S + 1, sizeof(double));
    return sets->leaf && sets->bits && sets->least && sets->most && sets->varying && sets->rising && sets->last &&
           sets->first && sets->left && sets->all && sets->more;
}

static void find_ends(Sets *sets)
{
    for (long i = 0; i < sets->n; i++) {
        int *varying = sets->varying + (sets->F + 1) * i, n_varying = 0, rising = sets->apart <= 64;
        for (long f = 0; f < sets->F; f++) {
            const float *x = sets->X + sets->N * f + sets->apart * i;
            float least = x[0], most = x[0];
            for (long s = 1; s < sets->S; s++) {
                rising &= x[s - 1] <= x[s];
                least = x[s] < least ? x[s] : least;
                most = x[s] > most ? x[s] : most;
            }
            sets->least[sets->places * f + i] = least;
            sets->most[sets->places * f + i] = most;
            if (least < most)
                varying[n_varying++] = (int)f;
        }
        varying[n_varying] = -1;
        sets->rising[i] = rising && n_varying == 1 ? varying[0] : -1;
        sets->n_others += sets->rising[i] < 0;
    }
}

/* Add to out (n, K, S) the values of the leaves that n sets of S points X (F, N) reach in all trees.  A node is its
 * feature, the bits of its threshold, its child, and the number of its leaf; a leaf is its own child.  Points of a set lie
 * side by side, in whole eights: they are nodes of an integral over what is missing, and differ in few features.  Single
 * points have one place, and 32 behind all. */
static PyObject *forest_sums(PyObject *self, PyObject *args)
{
    TAKE({"X", "FN", 'f', READ}, {"nodes", "m4", 'i', READ}, {"value", "LK", 'f', READ}, {"root", "T", 'i', READ},
         {"depth", "T", 'i', READ}, {"out", "nKS", 'd', WRITTEN});
    const int *nodes = got.array[1], *root = got.array[3], *depth = got.array[4];
    const float *value = got.array[2];
    long K = got.size['K'];
    Sets sets = {.X = got.array[0], .F = got.size['F'], .N = got.size['N'], .n = got.size['n'], .S = got.size['S'],
                 .out = got.array[5]};
    int single = sets.S == 1;
    sets.apart = single ? 1 : (sets.S + 7) / 8 * 8;
    if (got.size['4'] != 4 || sets.S < 1 || sets.N < sets.n * sets.apart + single * SIDE_BY_SIDE)
        return refused(&got, "four numbers a node, and points for each sum, in whole eights, or one and 32 behind all");
    int made = make_sets(&sets, K);
    if (made) {
        Py_BEGIN_ALLOW_THREADS
        if (!single)
            find_ends(&sets);
        for (long t = 0; t < got.size['T']; t++) {
            Tests tests = {.n = 0, .n_leaves = 0};
            if (!add_tests(&tests, nodes, root[t]))
                tests.n_leaves = 0; /* more than there are bits */
            if (single)
                CALL(add_leaves, sets.X, sets.N, sets.n, &tests, nodes, root[t], depth[t], value, K, sets.bits, sets.leaf,
                     sets.out);
            else {
                by_feature(&tests, sets.F, sets.first);
                CALL(add_leaves_of_sets, &sets, &tests, nodes, root[t], depth[t], value, K);
            }
        }
        for (long i = 0; !single && i < sets.n; i++)
            for (long s = 0; s < sets.S; s++)
                for (long k = 0; k < K; k++)
                    sets.out[sets.S * (K * i + k) + s] += sets.all[K * i + k] += sets.more[K * (sets.S * i + s) + k];
        Py_END_ALLOW_THREADS
    }
    free(sets.leaf), free(sets.bits), free(sets.least), free(sets.most), free(sets.varying), free(sets.rising);
    free(sets.last), free(sets.first), free(sets.left), free(sets.all), free(sets.more);
    return made ? none(&got) : finished(&got, PyErr_NoMemory());
}

#define GROW(set)                                                                                                  \
    do {                                                                                                           \
        Tree##set g = {got.array[0], got.array[1], got.array[2], N, F, wide, options[1], options[2], options[0],   \
                       rows, rows + N, rows + 2 * N, x, weighted, first, first + m, gain, got.array[4],            \
                       got.array[6], got.array[5], got.array[7]};                                                  \
        for (long f = 0; f < F; f++)                                                                               \
            g.order[f] = (int)f;                                                                                   \
        count = grow##set(&g, seen, options[3]);                                                                   \
    } while (0)

/* Grow a tree on the rows X (F, N) of a weight above 0, with targets as in `trees.h`.  `options` are the seed, the
 * features that are tried for the best threshold (0: random thresholds of all), the fewest rows of a leaf, and the most
 * leaves (0: any number).  Return the number of nodes; `sums` are of the weighted targets, `at` is each row's leaf. */
static PyObject *grow_tree(PyObject *self, PyObject *args)
{
    TAKE({"X", "FN", 'f', READ}, {"target", "NC", 'd', READ}, {"weight", "N", 'd', READ}, {"options", "o", 'i', READ},
         {"feature", "m", 'i', WRITTEN}, {"threshold", "m", 'f', WRITTEN}, {"child", "m", 'i', WRITTEN},
         {"sums", "mC", 'd', WRITTEN}, {"at", "N", 'i', WRITTEN});
    long N = got.size['N'], F = got.size['F'], m = got.size['m'], wide = got.size['C'], seen = 0, count = 0;
    const float *X = got.array[0];
    const double *weight = got.array[2];
    const int *options = got.array[3];
    for (long i = 0; i < N; i++)
        seen += weight[i] > 0;
    if (wide % 4 || wide > MOST_TARGETS || got.size['o'] != 4 || F < 1 || seen < 1 || options[2] < 1 ||
        m < 2 * (options[3] ? options[3] : seen) - 1)
        return refused(&got, "targets in a multiple of four up to 256, four options, places for all nodes");
    int *rows = malloc(sizeof(int) * (2 * N + F));
    float *x = malloc(sizeof(float) * N);
    long *first = malloc(sizeof(long) * 2 * m);
    double *gain = malloc(sizeof(double) * m), *weighted = malloc(sizeof(double) * N * wide);
    if (!rows || !x || !first || !gain || !weighted) {
        free(rows), free(x), free(first), free(gain), free(weighted);
        return finished(&got, PyErr_NoMemory());
    }
    Py_BEGIN_ALLOW_THREADS
    for (long i = 0, n = 0; i < N; i++)
        if (weight[i] > 0)
            rows[n++] = (int)i;
#ifdef WITH_AVX2
    if (has_avx2)
        GROW(_avx2);
    else
#endif
        GROW(_any);
    const int *feature = got.array[4], *child = got.array[6];
    const float *threshold = got.array[5];
    int *at = got.array[8];
    memset(at, 0, sizeof(int) * N);
    for (long i = 0; i < N; i++)
        while (child[at[i]] != at[i])
            at[i] = child[at[i]] + (X[feature[at[i]] * N + i] > threshold[at[i]]);
    Py_END_ALLOW_THREADS
    free(rows), free(x), free(first), free(gain), free(weighted);
    return finished(&got, PyLong_FromLong(count));
}

static PyMethodDef methods[] = {
    {"add_squares", add_squares, METH_VARARGS, NULL},
    {"arcsinhs", arcsinhs, METH_VARARGS, NULL},
    {"city_blocks", city_blocks, METH_VARARGS, NULL},
    {"exponentials", exponentials, METH_VARARGS, NULL},
    {"forest_sums", forest_sums, METH_VARARGS, NULL},
    {"grow_tree", grow_tree, METH_VARARGS, NULL},
    {"logistic_integral", logistic_integral, METH_VARARGS, NULL},
    {"logistic_mixture", logistic_mixture, METH_VARARGS, NULL},
    {"logistic_rows", logistic_rows, METH_VARARGS, NULL},
    {"logistic_sums", logistic_sums, METH_VARARGS, NULL},
    {"monomials", monomials, METH_VARARGS, NULL},
    {"softmax_mixture", softmax_mixture, METH_VARARGS, NULL},
    {"softmax_nodes", softmax_nodes, METH_VARARGS, NULL},
    {"softmax_responses", softmax_responses, METH_VARARGS, NULL},
    {"softmax_rows", softmax_rows, METH_VARARGS, NULL},
    {"softmax_series", softmax_series, METH_VARARGS, NULL},
    {"weighted_grams", weighted_grams, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module)
{
#ifdef WITH_AVX2
    __builtin_cpu_init();
    has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return PyModule_AddIntConstant(module, "most_outputs", MOST_OUTPUTS) ||
                   PyModule_AddStringConstant(module, "instructions", has_avx2 ? "avx2" : "any")
               ? -1
               : 0;
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_loops", .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }
