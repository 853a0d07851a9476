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
typedef unsigned long long v4ul __attribute__((vector_size(32)));
typedef int v8i __attribute__((vector_size(32)));
typedef unsigned v8ui __attribute__((vector_size(32)));
typedef double v4d_unaligned __attribute__((vector_size(32), aligned(8), may_alias));
typedef float v8f_unaligned __attribute__((vector_size(32), aligned(4), may_alias));

#define MOST_OUTPUTS 16 /* outputs, or classes, of a call: rows of them are held on the stack */

#define FN(name) name##_any
#include "vectors.h"
#undef FN
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__)
#define WITH_AVX2 1
#pragma GCC push_options
#pragma GCC target("avx2,fma")
#define FN(name) name##_avx2
#include "vectors.h"
#undef FN
#pragma GCC pop_options
#endif

static int has_avx2 = 0;

#ifdef WITH_AVX2
#define CALL(name, ...) (has_avx2 ? name##_avx2(__VA_ARGS__) : name##_any(__VA_ARGS__))
#else
#define CALL(name, ...) name##_any(__VA_ARGS__)
#endif

#define MOST_ARRAYS 8
#define FIRST_CACHE 24000 /* bytes of the first cache that a block of rows may fill */

/* The arrays of a call: buffers that are held, and let go together. */
typedef struct {
    Py_buffer views[MOST_ARRAYS];
    int held;
} Arrays;

static void let_go(Arrays *arrays)
{
    while (arrays->held)
        PyBuffer_Release(&arrays->views[--arrays->held]);
}

/* Return the numbers of a C-contiguous array of `format` ('d' or 'f') and ndim dimensions; NULL with an error set if it
 * is another, or is to be written and may not be. */
static void *numbers(Arrays *arrays, PyObject *object, const char *name, char format, int ndim, int written,
                     const Py_ssize_t **shape)
{
    Py_buffer *view = &arrays->views[arrays->held];
    int flags = PyBUF_C_CONTIGUOUS | PyBUF_FORMAT | (written ? PyBUF_WRITABLE : 0);
    if (PyObject_GetBuffer(object, view, flags))
        return NULL;
    arrays->held++;
    if (view->format == NULL || view->format[0] != format || view->format[1] || view->ndim != ndim) {
        PyErr_Format(PyExc_ValueError, "%s is of type '%s' with %d dimensions; expected '%c' with %d", name,
                     view->format ? view->format : "B", view->ndim, format, ndim);
        return NULL;
    }
    *shape = view->shape;
    return view->buf;
}

static long multiple_of_four(long n) { return (n + 3) & ~3L; }

/* Rows of `width` doubles that fill a part of the first cache, a multiple of four from 48 to 128: of fewer, the sums of
 * a tile would be read and written too often. */
static long rows_of_block(long width, long bytes)
{
    long rows = bytes / (8 * width) & ~3L;
    return rows < 48 ? 48 : rows > 128 ? 128 : rows;
}

static PyObject *mismatch(Arrays *arrays, const char *what)
{
    let_go(arrays);
    PyErr_Format(PyExc_ValueError, "arrays do not fit together: %s", what);
    return NULL;
}

static PyObject *finished(Arrays *arrays, PyObject *result)
{
    let_go(arrays);
    return result;
}

static PyObject *logistic_sums(PyObject *self, PyObject *args)
{
    PyObject *o_Phi, *o_w, *o_t, *o_weight, *o_gradient, *o_hessian;
    if (!PyArg_ParseTuple(args, "OOOOOO", &o_Phi, &o_w, &o_t, &o_weight, &o_gradient, &o_hessian))
        return NULL;
    Arrays arrays = {.held = 0};
    const Py_ssize_t *shape, *of_w, *of_t, *of_weight, *of_g, *of_H;
    const double *Phi = numbers(&arrays, o_Phi, "Phi", 'd', 2, 0, &shape);
    const double *w = Phi ? numbers(&arrays, o_w, "w", 'd', 1, 0, &of_w) : NULL;
    const double *t = w ? numbers(&arrays, o_t, "t", 'd', 1, 0, &of_t) : NULL;
    double *gradient = t ? numbers(&arrays, o_gradient, "gradient", 'd', 1, 1, &of_g) : NULL;
    if (!gradient)
        return finished(&arrays, NULL);
    const double *weight = NULL;
    double *hessian = NULL;
    if (o_weight != Py_None && !(weight = numbers(&arrays, o_weight, "weight", 'd', 1, 0, &of_weight)))
        return finished(&arrays, NULL);
    if (o_hessian != Py_None && !(hessian = numbers(&arrays, o_hessian, "hessian", 'd', 2, 1, &of_H)))
        return finished(&arrays, NULL);
    long n = (long)shape[0], M = (long)shape[1], width = multiple_of_four(M);
    if (of_w[0] != M || of_g[0] != M || of_t[0] != n || (weight && of_weight[0] != n) ||
        (hessian && (of_H[0] != M || of_H[1] != M)))
        return mismatch(&arrays, "Phi (n, M), w (M,), t (n,), weight (n,), gradient (M,), hessian (M, M)");
    long block = rows_of_block(width, FIRST_CACHE);
    double *scratch = malloc(sizeof(double) * ((block + width + 1) * width + 5 * block)), value;
    if (!scratch)
        return finished(&arrays, PyErr_NoMemory());
    Py_BEGIN_ALLOW_THREADS
    value = CALL(logistic_sums, Phi, w, t, weight, n, M, width, block, scratch, gradient, hessian);
    Py_END_ALLOW_THREADS
    free(scratch);
    return finished(&arrays, PyFloat_FromDouble(value));
}

static PyObject *weighted_grams(PyObject *self, PyObject *args)
{
    PyObject *o_Phi, *o_r, *o_out;
    if (!PyArg_ParseTuple(args, "OOO", &o_Phi, &o_r, &o_out))
        return NULL;
    Arrays arrays = {.held = 0};
    const Py_ssize_t *shape, *of_r, *of_out;
    const double *Phi = numbers(&arrays, o_Phi, "Phi", 'd', 2, 0, &shape);
    const double *r = Phi ? numbers(&arrays, o_r, "r", 'd', 2, 0, &of_r) : NULL;
    double *out = r ? numbers(&arrays, o_out, "out", 'd', 3, 1, &of_out) : NULL;
    if (!out)
        return finished(&arrays, NULL);
    long n = (long)shape[0], M = (long)shape[1], P = (long)of_r[1], width = multiple_of_four(M);
    if (of_r[0] != n || of_out[0] != P || of_out[1] != M || of_out[2] != M)
        return mismatch(&arrays, "Phi (n, M), r (n, P), out (P, M, M)");
    long block = rows_of_block(2 * width, FIRST_CACHE);
    double *scratch = malloc(sizeof(double) * (2 * block + P * width) * width);
    if (!scratch)
        return finished(&arrays, PyErr_NoMemory());
    Py_BEGIN_ALLOW_THREADS
    CALL(weighted_grams, Phi, r, n, M, P, width, block, scratch, out);
    Py_END_ALLOW_THREADS
    free(scratch);
    let_go(&arrays);
    Py_RETURN_NONE;
}

/* add_squares(Phi (n, M), U (C M, C M), packed (P, n)): both of the first in double or both in single precision. */
static PyObject *add_squares(PyObject *self, PyObject *args)
{
    PyObject *o_Phi, *o_U, *o_out;
    int C, single;
    if (!PyArg_ParseTuple(args, "OOOip", &o_Phi, &o_U, &o_out, &C, &single))
        return NULL;
    Arrays arrays = {.held = 0};
    const Py_ssize_t *shape, *of_U, *of_out;
    char format = single ? 'f' : 'd';
    const void *Phi = numbers(&arrays, o_Phi, "Phi", format, 2, 0, &shape);
    const void *U = Phi ? numbers(&arrays, o_U, "U", format, 2, 0, &of_U) : NULL;
    double *out = U ? numbers(&arrays, o_out, "packed", 'd', 2, 1, &of_out) : NULL;
    if (!out)
        return finished(&arrays, NULL);
    long n = (long)shape[0], M = (long)shape[1];
    if (C < 1 || C > MOST_OUTPUTS || of_U[0] != C * M || of_U[1] != C * M || of_out[1] != n ||
        of_out[0] != C * (C + 1) / 2)
        return mismatch(&arrays, "Phi (n, M), U (C M, C M), packed (C (C + 1)/2, n), C from 1 to 16");
    long size = single ? CALL(pack_single, U, M, C, NULL) : CALL(pack_double, U, M, C, NULL);
    void *panels = malloc((single ? sizeof(float) : sizeof(double)) * (size + 4 * M));
    if (!panels)
        return finished(&arrays, PyErr_NoMemory());
    Py_BEGIN_ALLOW_THREADS
    if (single) {
        CALL(pack_single, U, M, C, panels);
        CALL(squares_single, Phi, n, M, C, panels, (float *)panels + size, out);
    } else {
        CALL(pack_double, U, M, C, panels);
        CALL(squares_double, Phi, n, M, C, panels, (double *)panels + size, out);
    }
    Py_END_ALLOW_THREADS
    free(panels);
    let_go(&arrays);
    Py_RETURN_NONE;
}

/* softmax_nodes(m (n, K), B (n, K, C), z (C, S), w (S,), log_sum (n,), products (n, K, K), single) */
static PyObject *softmax_nodes(PyObject *self, PyObject *args)
{
    PyObject *o_m, *o_B, *o_z, *o_w, *o_log_sum, *o_products;
    int single;
    if (!PyArg_ParseTuple(args, "OOOOOOp", &o_m, &o_B, &o_z, &o_w, &o_log_sum, &o_products, &single))
        return NULL;
    Arrays arrays = {.held = 0};
    const Py_ssize_t *shape, *of_B, *of_z, *of_w, *of_l, *of_p;
    char format = single ? 'f' : 'd';
    const double *m = numbers(&arrays, o_m, "m", 'd', 2, 0, &shape);
    const double *B = m ? numbers(&arrays, o_B, "B", 'd', 3, 0, &of_B) : NULL;
    const void *z = B ? numbers(&arrays, o_z, "z", format, 2, 0, &of_z) : NULL;
    const void *w = z ? numbers(&arrays, o_w, "w", format, 1, 0, &of_w) : NULL;
    double *log_sum = w ? numbers(&arrays, o_log_sum, "log_sum", 'd', 1, 1, &of_l) : NULL;
    double *products = log_sum ? numbers(&arrays, o_products, "products", 'd', 3, 1, &of_p) : NULL;
    if (!products)
        return finished(&arrays, NULL);
    long n = (long)shape[0], K = (long)shape[1], C = (long)of_B[2], S = (long)of_z[1];
    if (K < 2 || K > MOST_OUTPUTS || C > K || of_B[0] != n || of_B[1] != K || of_z[0] != C || of_w[0] != S ||
        S % (single ? 8 : 4) || of_l[0] != n || of_p[0] != n || of_p[1] != K || of_p[2] != K)
        return mismatch(&arrays, "m (n, K), B (n, K, C), z (C, S), w (S,), log_sum (n,), products (n, K, K), "
                                 "K from 2 to 16, S a multiple of 8, or of 4 in double precision");
    Py_BEGIN_ALLOW_THREADS
    if (single)
        CALL(softmax_nodes_single, m, B, z, w, n, K, C, S, log_sum, products);
    else
        CALL(softmax_nodes_double, m, B, z, w, n, K, C, S, log_sum, products);
    Py_END_ALLOW_THREADS
    let_go(&arrays);
    Py_RETURN_NONE;
}

/* softmax_moments(m (n, K), B (n, K, d), z (d, S), w (S,), moments (n, K, d + 1), log_sum (n,), single) */
static PyObject *softmax_moments(PyObject *self, PyObject *args)
{
    PyObject *o_m, *o_B, *o_z, *o_w, *o_moments, *o_log_sum;
    int single;
    if (!PyArg_ParseTuple(args, "OOOOOOp", &o_m, &o_B, &o_z, &o_w, &o_moments, &o_log_sum, &single))
        return NULL;
    Arrays arrays = {.held = 0};
    const Py_ssize_t *shape, *of_B, *of_z, *of_w, *of_l, *of_m;
    char format = single ? 'f' : 'd';
    const double *m = numbers(&arrays, o_m, "m", 'd', 2, 0, &shape);
    const double *B = m ? numbers(&arrays, o_B, "B", 'd', 3, 0, &of_B) : NULL;
    const void *z = B ? numbers(&arrays, o_z, "z", format, 2, 0, &of_z) : NULL;
    const void *w = z ? numbers(&arrays, o_w, "w", format, 1, 0, &of_w) : NULL;
    double *moments = w ? numbers(&arrays, o_moments, "moments", 'd', 3, 1, &of_m) : NULL;
    double *log_sum = moments ? numbers(&arrays, o_log_sum, "log_sum", 'd', 1, 1, &of_l) : NULL;
    if (!log_sum)
        return finished(&arrays, NULL);
    long n = (long)shape[0], K = (long)shape[1], d = (long)of_B[2], S = (long)of_z[1];
    if (K < 2 || K > MOST_OUTPUTS || d > K || of_B[0] != n || of_B[1] != K || of_z[0] != d || of_w[0] != S ||
        S % (single ? 8 : 4) || of_l[0] != n || of_m[0] != n || of_m[1] != K || of_m[2] != d + 1)
        return mismatch(&arrays, "m (n, K), B (n, K, d), z (d, S), w (S,), moments (n, K, d + 1), log_sum (n,), "
                                 "K from 2 to 16, S a multiple of 8, or of 4 in double precision");
    Py_BEGIN_ALLOW_THREADS
    if (single)
        CALL(softmax_moments_single, m, B, z, w, n, K, d, S, moments, log_sum);
    else
        CALL(softmax_moments_double, m, B, z, w, n, K, d, S, moments, log_sum);
    Py_END_ALLOW_THREADS
    let_go(&arrays);
    Py_RETURN_NONE;
}

/* softmax_series(mean (n, K), covariance (n, K, K), probability (n, K), entropy (n,), others (n,), spread (n,)) */
static PyObject *softmax_series(PyObject *self, PyObject *args)
{
    PyObject *o_mean, *o_V, *o_p, *o_h, *o_others, *o_spread;
    if (!PyArg_ParseTuple(args, "OOOOOO", &o_mean, &o_V, &o_p, &o_h, &o_others, &o_spread))
        return NULL;
    Arrays arrays = {.held = 0};
    const Py_ssize_t *shape, *of_V, *of_p, *of_h, *of_o, *of_s;
    const double *mean = numbers(&arrays, o_mean, "mean", 'd', 2, 0, &shape);
    const double *V = mean ? numbers(&arrays, o_V, "covariance", 'd', 3, 0, &of_V) : NULL;
    double *p = V ? numbers(&arrays, o_p, "probability", 'd', 2, 1, &of_p) : NULL;
    double *h = p ? numbers(&arrays, o_h, "entropy", 'd', 1, 1, &of_h) : NULL;
    double *others = h ? numbers(&arrays, o_others, "others", 'd', 1, 1, &of_o) : NULL;
    double *spread = others ? numbers(&arrays, o_spread, "spread", 'd', 1, 1, &of_s) : NULL;
    if (!spread)
        return finished(&arrays, NULL);
    long n = (long)shape[0], K = (long)shape[1];
    if (K < 2 || K > MOST_OUTPUTS || of_V[0] != n || of_V[1] != K || of_V[2] != K || of_p[0] != n || of_p[1] != K ||
        of_h[0] != n || of_o[0] != n || of_s[0] != n)
        return mismatch(&arrays, "mean and probability (n, K), covariance (n, K, K), the rest (n,), K from 2 to 16");
    Py_BEGIN_ALLOW_THREADS
    CALL(softmax_series, mean, V, n, K, p, h, others, spread);
    Py_END_ALLOW_THREADS
    let_go(&arrays);
    Py_RETURN_NONE;
}

/* softmax_rows(a (S, K, n), t (K, n), value (S, n), single) */
static PyObject *softmax_rows(PyObject *self, PyObject *args)
{
    PyObject *o_a, *o_t, *o_value;
    int single;
    if (!PyArg_ParseTuple(args, "OOOp", &o_a, &o_t, &o_value, &single))
        return NULL;
    Arrays arrays = {.held = 0};
    const Py_ssize_t *shape, *of_t, *of_value;
    char format = single ? 'f' : 'd';
    void *a = numbers(&arrays, o_a, "a", format, 3, 1, &shape);
    const void *t = a ? numbers(&arrays, o_t, "t", format, 2, 0, &of_t) : NULL;
    void *value = t ? numbers(&arrays, o_value, "value", format, 2, 1, &of_value) : NULL;
    if (!value)
        return finished(&arrays, NULL);
    long S = (long)shape[0], K = (long)shape[1], n = (long)shape[2];
    if (K < 2 || K > MOST_OUTPUTS || of_t[0] != K || of_t[1] != n || of_value[0] != S || of_value[1] != n)
        return mismatch(&arrays, "a (S, K, n), t (K, n), value (S, n), K from 2 to 16");
    Py_BEGIN_ALLOW_THREADS
    if (single)
        CALL(softmax_rows_single, a, t, S, K, n, value);
    else
        CALL(softmax_rows_double, a, t, S, K, n, value);
    Py_END_ALLOW_THREADS
    let_go(&arrays);
    Py_RETURN_NONE;
}

/* logistic_integral(m (n,), v (n,), z (S,) or None, w (S,) or None, probability (n,), entropy (n,) or None) */
static PyObject *logistic_integral(PyObject *self, PyObject *args)
{
    PyObject *o_m, *o_v, *o_z, *o_w, *o_p, *o_h;
    if (!PyArg_ParseTuple(args, "OOOOOO", &o_m, &o_v, &o_z, &o_w, &o_p, &o_h))
        return NULL;
    Arrays arrays = {.held = 0};
    const Py_ssize_t *shape, *of_v, *of_z, *of_w, *of_p, *of_h;
    const double *m = numbers(&arrays, o_m, "m", 'd', 1, 0, &shape), *z = NULL, *w = NULL;
    const double *v = m ? numbers(&arrays, o_v, "v", 'd', 1, 0, &of_v) : NULL;
    double *p = v ? numbers(&arrays, o_p, "probability", 'd', 1, 1, &of_p) : NULL, *h = NULL;
    if (!p)
        return finished(&arrays, NULL);
    if (o_h != Py_None && !(h = numbers(&arrays, o_h, "entropy", 'd', 1, 1, &of_h)))
        return finished(&arrays, NULL);
    if (o_z != Py_None && !((z = numbers(&arrays, o_z, "z", 'd', 1, 0, &of_z)) &&
                            (w = numbers(&arrays, o_w, "w", 'd', 1, 0, &of_w))))
        return finished(&arrays, NULL);
    long n = (long)shape[0], whole = n & ~3L;
    if (of_v[0] != n || of_p[0] != n || (h && of_h[0] != n) || (z && (of_z[0] < 2 || of_w[0] != of_z[0])))
        return mismatch(&arrays, "m (n,), v (n,), z (S,), w (S,), probability (n,), entropy (n,), S at least 2");
    long S = z ? (long)of_z[0] : 0;
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
    let_go(&arrays);
    Py_RETURN_NONE;
}

/* logistic_rows(a (S, n), t (n,), value (S, n), residual (S, n) or None, curvature (S, n) or None, single) */
static PyObject *logistic_rows(PyObject *self, PyObject *args)
{
    PyObject *o_a, *o_t, *o_value, *o_residual, *o_curvature;
    int single;
    if (!PyArg_ParseTuple(args, "OOOOOp", &o_a, &o_t, &o_value, &o_residual, &o_curvature, &single))
        return NULL;
    Arrays arrays = {.held = 0};
    const Py_ssize_t *shape, *of_t, *of_out[3];
    char format = single ? 'f' : 'd';
    const void *a = numbers(&arrays, o_a, "a", format, 2, 0, &shape);
    const void *t = a ? numbers(&arrays, o_t, "t", format, 1, 0, &of_t) : NULL;
    if (!t)
        return finished(&arrays, NULL);
    PyObject *outputs[] = {o_value, o_residual, o_curvature};
    const char *names[] = {"value", "residual", "curvature"};
    void *out[3] = {NULL, NULL, NULL};
    long S = (long)shape[0], n = (long)shape[1];
    for (int i = 0; i < 3; i++) {
        if (outputs[i] == Py_None)
            continue;
        if (!(out[i] = numbers(&arrays, outputs[i], names[i], format, 2, 1, &of_out[i])))
            return finished(&arrays, NULL);
        if (of_out[i][0] != S || of_out[i][1] != n)
            return mismatch(&arrays, "a, value, residual and curvature (S, n), t (n,)");
    }
    if (of_t[0] != n || !out[0])
        return mismatch(&arrays, "a, value, residual and curvature (S, n), t (n,)");
    Py_BEGIN_ALLOW_THREADS
    if (single)
        CALL(logistic_rows_single, a, t, S, n, out[0], out[1], out[2]);
    else
        CALL(logistic_rows_double, a, t, S, n, out[0], out[1], out[2]);
    Py_END_ALLOW_THREADS
    let_go(&arrays);
    Py_RETURN_NONE;
}

static PyMethodDef methods[] = {
    {"add_squares", add_squares, METH_VARARGS, NULL},
    {"softmax_moments", softmax_moments, METH_VARARGS, NULL},
    {"softmax_series", softmax_series, METH_VARARGS, NULL},
    {"softmax_nodes", softmax_nodes, METH_VARARGS, NULL},
    {"softmax_rows", softmax_rows, METH_VARARGS, NULL},
    {"logistic_integral", logistic_integral, METH_VARARGS, NULL},
    {"logistic_rows", logistic_rows, METH_VARARGS, NULL},
    {"logistic_sums", logistic_sums, METH_VARARGS, NULL},
    {"weighted_grams", weighted_grams, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static int start(PyObject *module)
{
#ifdef WITH_AVX2
    __builtin_cpu_init();
    has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
#endif
    return PyModule_AddStringConstant(module, "instructions", has_avx2 ? "avx2" : "any");
}

static PyModuleDef_Slot slots[] = {{Py_mod_exec, start}, {0, NULL}};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, .m_name = "_loops", .m_methods = methods, .m_slots = slots,
};

PyMODINIT_FUNC PyInit__loops(void) { return PyModuleDef_Init(&definition); }
