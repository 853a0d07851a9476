/* The loops, written once in vectors of four doubles or eight floats and compiled for each instruction set.
 *
 * FN(name) gives a function the set's suffix.  Nothing here allocates, fails, or looks at another row than its own: a
 * result does not depend on how rows are shared among threads.
 * Shapes: n rows, M columns, K classes, C outputs, S nodes.  Matrices are in rows.
 */

static inline v4d FN(load)(const double *p) { return *(const v4d_unaligned *)p; }
static inline void FN(store)(double *p, v4d x) { *(v4d_unaligned *)p = x; }
static inline v8f FN(loadf)(const float *p) { return *(const v8f_unaligned *)p; }
static inline void FN(storef)(float *p, v8f x) { *(v8f_unaligned *)p = x; }
static inline v4d FN(splat)(double x) { return (v4d){x, x, x, x}; }
static inline v8f FN(splatf)(float x) { return (v8f){x, x, x, x, x, x, x, x}; }
static inline v4d FN(choose)(v4l mask, v4d yes, v4d no) { return (v4d)((mask & (v4l)yes) | (~mask & (v4l)no)); }
static inline v8f FN(choosef)(v8i mask, v8f yes, v8f no) { return (v8f)((mask & (v8i)yes) | (~mask & (v8i)no)); }
/* The larger and the smaller of two numbers, and the second where one is no number. */
#ifdef __AVX2__
static inline v4d FN(larger)(v4d x, v4d y) { return __builtin_ia32_maxpd256(x, y); }
static inline v8f FN(largerf)(v8f x, v8f y) { return __builtin_ia32_maxps256(x, y); }
static inline v4d FN(smaller)(v4d x, v4d y) { return __builtin_ia32_minpd256(x, y); }
static inline v8f FN(smallerf)(v8f x, v8f y) { return __builtin_ia32_minps256(x, y); }
#else
static inline v4d FN(larger)(v4d x, v4d y) { return FN(choose)(x > y, x, y); }
static inline v8f FN(largerf)(v8f x, v8f y) { return FN(choosef)(x > y, x, y); }
static inline v4d FN(smaller)(v4d x, v4d y) { return FN(choose)(x < y, x, y); }
static inline v8f FN(smallerf)(v8f x, v8f y) { return FN(choosef)(x < y, x, y); }
#endif
static inline double FN(total)(v4d x) { return (x[0] + x[2]) + (x[1] + x[3]); }
static inline double FN(totalf)(v8f x)
{
    return ((double)x[0] + x[4]) + ((double)x[1] + x[5]) + (((double)x[2] + x[6]) + ((double)x[3] + x[7]));
}

/* e^x within 2 units in the last place, from -708 to 708, beyond which it stays. */
static inline v4d FN(exp4)(v4d x)
{
    x = FN(smaller)(FN(splat)(708.0), FN(larger)(FN(splat)(-708.0), x));
    v4d k = x * 1.4426950408889634 + 6755399441055744.0; /* the nearest integer, in the low bits */
    v4d n = k - 6755399441055744.0;
    v4d r = (x - n * 6.93147180369123816490e-01) - n * 1.90821492927058770002e-10;
    v4d p = FN(splat)(1.6059043836821613e-10);
    p = p * r + 2.08767569878681e-09;
    p = p * r + 2.505210838544172e-08;
    p = p * r + 2.755731922398589e-07;
    p = p * r + 2.7557319223985893e-06;
    p = p * r + 2.48015873015873e-05;
    p = p * r + 0.0001984126984126984;
    p = p * r + 0.001388888888888889;
    p = p * r + 0.008333333333333333;
    p = p * r + 0.041666666666666664;
    p = p * r + 0.16666666666666666;
    p = p * r + 0.5;
    p = p * r + 1.0;
    p = p * r + 1.0;
    return (v4d)((v4l)p + ((v4l)k << 52));
}

static inline v8f FN(exp8)(v8f x)
{
    x = FN(smallerf)(FN(splatf)(87.0f), FN(largerf)(FN(splatf)(-87.0f), x));
    v8f k = x * 1.44269504f + 12582912.0f;
    v8f n = k - 12582912.0f;
    v8f r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    v8f p = FN(splatf)(1.9875691500e-4f);
    p = p * r + 1.3981999507e-3f;
    p = p * r + 8.3334519073e-3f;
    p = p * r + 4.1665795894e-2f;
    p = p * r + 1.6666665459e-1f;
    p = p * r + 5.0000001201e-1f;
    p = p * r * r + r + 1.0f;
    return (v8f)((v8i)p + ((v8i)k << 23));
}

/* ln x of positive normal numbers: 2 artanh((m - 1)/(m + 1)) of the fraction m in [1/√2, √2), and its exponent. */
static inline v4d FN(log4)(v4d x)
{
    v4l bits = (v4l)x - 0x3fe6a09e667f3bcdLL + (1023LL << 52);
    v4l e = (v4l)((v4ul)bits >> 52);
    v4d m = (v4d)((v4l)x - ((e - 1023) << 52));
    v4d exponent = (v4d)(e | 0x4330000000000000LL) - 4503599627370496.0 - 1023.0;
    v4d s = (m - 1.0) / (m + 1.0), z = s * s;
    v4d p = FN(splat)(1.0 / 23);
    for (int k = 21; k >= 1; k -= 2)
        p = p * z + 1.0 / k;
    return exponent * 6.93147180369123816490e-01 + (2.0 * s * p + exponent * 1.90821492927058770002e-10);
}

static inline v8f FN(log8)(v8f x)
{
    v8i bits = (v8i)x - 0x3f3504f3 + (127 << 23);
    v8i e = (v8i)((v8ui)bits >> 23) - 127;
    v8f m = (v8f)((v8i)x - (e << 23));
    v8f s = (m - 1.0f) / (m + 1.0f), z = s * s;
    v8f p = FN(splatf)(1.0f / 9);
    p = p * z + 1.0f / 7;
    p = p * z + 1.0f / 5;
    p = p * z + 1.0f / 3;
    p = p * z + 1.0f;
    return __builtin_convertvector(e, v8f) * 0.69314718f + 2.0f * s * p;
}

/* ln(1 + e), e from 0 to 1, at full relative accuracy: 2 artanh(e/(2 + e)). */
static inline v4d FN(log1p4)(v4d e)
{
    v4d s = e / (e + 2.0), z = s * s;
    v4d p = FN(splat)(1.0 / 33);
    for (int k = 31; k >= 1; k -= 2)
        p = p * z + 1.0 / k;
    return 2.0 * s * p;
}

/* arcsinh y = ln(1 + u), u = |y| + y²/(1 + √(1 + y²)), with what rounding takes from 1 + u; far out it is ln 2|y|. */
static inline v4d FN(arcsinh4)(v4d y)
{
    v4d size = FN(choose)(y < 0.0, -y, y), near = FN(choose)(size > 1e8, FN(splat)(1e8), size), square = near * near;
    v4d above = square + 1.0, root = {sqrt(above[0]), sqrt(above[1]), sqrt(above[2]), sqrt(above[3])};
    v4d u = near + square / (1.0 + root), w = 1.0 + u;
    v4d value = FN(log4)(w) + (u - (w - 1.0)) / w;
    v4d far = FN(choose)(size > 1e8, size, FN(splat)(1e8));
    value = FN(choose)(size > 1e8, FN(log4)(far) + 6.93147180559945286227e-01, value);
    return FN(choose)(y < 0.0, -value, value);
}

/* G += AᵀB of four columns of A from i on and 4 V of B from j on, over some rows. */
#define GRAM_TILE(V)                                                                                        \
    static inline void FN(gram_tile##V)(const double *A, const double *B, long rows, long width, double *G, \
                                        long ld)                                                            \
    {                                                                                                       \
        v4d acc[4][V];                                                                                      \
        for (int k = 0; k < 4; k++)                                                                         \
            for (int v = 0; v < V; v++)                                                                     \
                acc[k][v] = FN(splat)(0.0);                                                                 \
        for (long r = 0; r < rows; r++, A += width, B += width) {                                           \
            v4d b[V];                                                                                       \
            for (int v = 0; v < V; v++)                                                                     \
                b[v] = FN(load)(B + 4 * v);                                                                 \
            for (int k = 0; k < 4; k++)                                                                     \
                for (int v = 0; v < V; v++)                                                                 \
                    acc[k][v] += A[k] * b[v];                                                               \
        }                                                                                                   \
        for (int k = 0; k < 4; k++)                                                                         \
            for (int v = 0; v < V; v++)                                                                     \
                FN(store)(G + k * ld + 4 * v, FN(load)(G + k * ld + 4 * v) + acc[k][v]);                    \
    }
GRAM_TILE(1)
GRAM_TILE(2)
GRAM_TILE(3)
#undef GRAM_TILE

/* The upper triangle of G (width, width) += AᵀB, in tiles; `width` is a multiple of four. */
static void FN(gram_add)(const double *A, const double *B, long rows, long width, double *G)
{
    for (long i = 0; i < width; i += 4)
        for (long j = i; j < width;) {
            long left = (width - j) / 4, take = left == 4 ? 2 : left < 3 ? left : 3;
            double *g = G + i * width + j;
            if (take == 3)
                FN(gram_tile3)(A + i, B + j, rows, width, g, width);
            else if (take == 2)
                FN(gram_tile2)(A + i, B + j, rows, width, g, width);
            else
                FN(gram_tile1)(A + i, B + j, rows, width, g, width);
            j += 4 * take;
        }
}

static inline void FN(scaled_row)(const double *row, double s, long M, long width, double *out)
{
    long j = 0;
    for (; j + 4 <= M; j += 4)
        FN(store)(out + j, s * FN(load)(row + j));
    for (; j < M; j++)
        out[j] = s * row[j];
    for (; j < width; j++)
        out[j] = 0.0;
}

/* out[p] (M, M) = Φᵀ diag(r_p) Φ for the columns p of r (n, P); scratch: (2 rows + P width) width doubles. */
static void FN(weighted_grams)(const double *Phi, const double *r, long n, long M, long P, long width, long block,
                               double *scratch, double *out)
{
    double *plain = scratch, *scaled = plain + block * width, *grams = scaled + block * width;
    memset(grams, 0, sizeof(double) * P * width * width);
    for (long start = 0; start < n; start += block) {
        long rows = n - start < block ? n - start : block;
        for (long i = 0; i < rows; i++)
            FN(scaled_row)(Phi + (start + i) * M, 1.0, M, width, plain + i * width);
        for (long p = 0; p < P; p++) {
            for (long i = 0; i < rows; i++)
                FN(scaled_row)(plain + i * width, r[(start + i) * P + p], width, width, scaled + i * width);
            FN(gram_add)(scaled, plain, rows, width, grams + p * width * width);
        }
    }
    for (long p = 0; p < P; p++)
        for (long i = 0; i < M; i++)
            for (long j = i; j < M; j++)
                out[(p * M + i) * M + j] = out[(p * M + j) * M + i] = grams[(p * width + i) * width + j];
}

static inline double FN(dot)(const double *x, const double *y, long M)
{
    v4d a = FN(splat)(0.0), b = a;
    long j = 0;
    for (; j + 8 <= M; j += 8) {
        a += FN(load)(x + j) * FN(load)(y + j);
        b += FN(load)(x + j + 4) * FN(load)(y + j + 4);
    }
    for (; j + 4 <= M; j += 4)
        a += FN(load)(x + j) * FN(load)(y + j);
    double sum = FN(total)(a + b);
    for (; j < M; j++)
        sum += x[j] * y[j];
    return sum;
}

#define T double
#define VECTOR v4d
#define UNALIGNED v4d_unaligned
#define LANES 4
#define TN(name) FN(name##_double)
static inline v4d TN(choose)(v4l mask, v4d yes, v4d no) { return FN(choose)(mask, yes, no); }
static inline v4d TN(larger)(v4d x, v4d y) { return FN(larger)(x, y); }
static inline v4d TN(exp)(v4d x) { return FN(exp4)(x); }
static inline v4d TN(log)(v4d x) { return FN(log4)(x); }
static inline v4d TN(log1p)(v4d e) { return FN(log1p4)(e); }
static inline double TN(total)(v4d x) { return FN(total)(x); }
#include "typed.h"
#undef T
#undef VECTOR
#undef UNALIGNED
#undef LANES
#undef TN
#define T float
#define VECTOR v8f
#define UNALIGNED v8f_unaligned
#define LANES 8
#define TN(name) FN(name##_single)
static inline v8f TN(choose)(v8i mask, v8f yes, v8f no) { return FN(choosef)(mask, yes, no); }
static inline v8f TN(larger)(v8f x, v8f y) { return FN(largerf)(x, y); }
static inline v8f TN(exp)(v8f x) { return FN(exp8)(x); }
static inline v8f TN(log)(v8f x) { return FN(log8)(x); }
static inline v8f TN(log1p)(v8f e) { return FN(log8)(e + 1.0f); }
static inline double TN(total)(v8f x) { return FN(totalf)(x); }
#include "typed.h"
#undef T
#undef VECTOR
#undef UNALIGNED
#undef LANES
#undef TN

/* The sums over F features of |z - c|: of n rows Z from M centres c (F, M). */
static void FN(city_blocks)(const double *Z, const double *c, long n, long F, long M, double *out)
{
    for (long i = 0; i < n; i++, Z += F, out += M) {
        long j = 0;
        for (; j + 8 <= M; j += 8) {
            v4d one = FN(splat)(0), two = one;
            for (long f = 0; f < F; f++) {
                v4d z = FN(splat)(Z[f]);
                one += (v4d)((v4l)(z - FN(load)(c + f * M + j)) & 0x7fffffffffffffffLL);
                two += (v4d)((v4l)(z - FN(load)(c + f * M + j + 4)) & 0x7fffffffffffffffLL);
            }
            FN(store)(out + j, one);
            FN(store)(out + j + 4, two);
        }
        for (; j < M; j++) {
            out[j] = 0;
            for (long f = 0; f < F; f++)
                out[j] += fabs(Z[f] - c[f * M + j]);
        }
    }
}

/* All monomials of n rows Z (n, F) in the order of `Polynomial`: a feature times those of one degree less whose first
 * factor is not before it, which lie side by side.  `start` (F) is where these begin. */
static void FN(monomials)(const double *Z, long n, long F, long M, long *start, double *out)
{
    for (long i = 0; i < n; i++, Z += F, out += M) {
        out[0] = 1;
        for (long f = 0; f < F; f++) {
            out[1 + f] = Z[f];
            start[f] = 1 + f;
        }
        for (long at = 1 + F, end = at; at < M; end = at)
            for (long f = 0; f < F; f++) {
                long j = start[f];
                start[f] = at;
                while (j < end)
                    out[at++] = Z[f] * out[j++];
            }
    }
}

/* e^x and arcsinh x in the place of x (n,). */
static void FN(exponentials)(double *x, long n)
{
    for (long i = 0; i < n; i += 4)
        FN(store_rest_double)(x + i, FN(exp4)(FN(load_rest_double)(x + i, n - i)), n - i);
}

static void FN(arcsinhs)(double *x, long n)
{
    for (long i = 0; i < n; i += 4)
        FN(store_rest_double)(x + i, FN(arcsinh4)(FN(load_rest_double)(x + i, n - i)), n - i);
}

/* Sums over rows of the logistic log likelihood at weights w: value, gradient (M,), and Hessian (M, M) of its negative.
 *
 * One sweep: a block of rows is in the first cache from its activations to its Gram matrix.  `hessian` may be NULL.
 * scratch: (block + width + 1) width + 5 block doubles.
 */
static double FN(logistic_sums)(const double *Phi, const double *w, const double *t, const double *weight, long n,
                                long M, long width, long block, double *scratch, double *gradient, double *hessian)
{
    double *scaled = scratch, *gram = scaled + block * width, *g = gram + width * width;
    double *a = g + width, *share = a + block, *value = share + block, *residual = value + block,
           *curvature = residual + block;
    double sum = 0.0;
    memset(g, 0, sizeof(double) * width);
    if (hessian)
        memset(gram, 0, sizeof(double) * width * width);
    for (long start = 0; start < n; start += block) {
        long rows = n - start < block ? n - start : block, padded = (rows + 3) & ~3L;
        const double *chunk = Phi + start * M;
        for (long i = 0; i < rows; i++) {
            a[i] = FN(dot)(chunk + i * M, w, M);
            share[i] = t[start + i];
        }
        for (long i = rows; i < padded; i++)
            a[i] = share[i] = 0.0;
        FN(logistic_rows_double)(a, share, 1, padded, value, residual, curvature);
        for (long i = 0; i < rows; i++) {
            double s = weight ? weight[start + i] : 1.0;
            sum += s * value[i];
            residual[i] *= s;
            curvature[i] *= s;
        }
        for (long i = rows; i < padded; i++)
            residual[i] = 0.0;
        long i = 0;
        for (; i + 4 <= rows; i += 4) {
            const double *row = chunk + i * M;
            double d0 = residual[i], d1 = residual[i + 1], d2 = residual[i + 2], d3 = residual[i + 3];
            long j = 0;
            for (; j + 4 <= M; j += 4)
                FN(store)(g + j, FN(load)(g + j) + (d0 * FN(load)(row + j) + d1 * FN(load)(row + M + j)) +
                                     (d2 * FN(load)(row + 2 * M + j) + d3 * FN(load)(row + 3 * M + j)));
            for (; j < M; j++)
                g[j] += (d0 * row[j] + d1 * row[M + j]) + (d2 * row[2 * M + j] + d3 * row[3 * M + j]);
        }
        for (; i < rows; i++)
            for (long j = 0; j < M; j++)
                g[j] += residual[i] * chunk[i * M + j];
        if (!hessian)
            continue;
        for (long k = 0; k < rows; k++)
            FN(scaled_row)(chunk + k * M, sqrt(curvature[k]), M, width, scaled + k * width);
        FN(gram_add)(scaled, scaled, rows, width, gram);
    }
    memcpy(gradient, g, sizeof(double) * M);
    if (hessian)
        for (long i = 0; i < M; i++)
            for (long j = i; j < M; j++)
                hessian[i * M + j] = hessian[j * M + i] = gram[i * width + j];
    return sum;
}

/* E σ(a) and, where `entropy` is not NULL, E H(σ(a)), of means m <= 0 and variances v of a multiple of four rows: Taylor's
 * series to the eighth derivative (blr/predictive/binary.py has the formulae). */
static void FN(logistic_series)(const double *m, const double *v, long rows, double *probability, double *entropy)
{
    for (long i = 0; i < rows; i += 4) {
        v4d mean = FN(load)(m + i), half = 0.5 * FN(load)(v + i), e = FN(exp4)(mean);
        v4d y = e / (1.0 + e), s = y * (1.0 - y);
        v4d c2 = ((360.0 * s - 60.0) * s + 1.0) * (1.0 / 6);
        v4d c3 = (((-20160.0 * s + 5040.0) * s - 252.0) * s + 1.0) * (1.0 / 24);
        v4d series = ((c3 * half + c2) * half + (0.5 - 6.0 * s)) * half + 1.0;
        v4d p = y + s * (1.0 - 2.0 * y) * half * series;
        FN(store)(probability + i, p);
        if (entropy) {
            v4d d2 = ((120.0 * s - 30.0) * s + 1.0) * (5.0 / 6);
            v4d d3 = (((-5040.0 * s + 1680.0) * s - 126.0) * s + 1.0) * (7.0 / 24);
            v4d odd = ((d3 * half + d2) * half + (1.5 - 9.0 * s)) * half + 1.0;
            FN(store)(entropy + i, FN(log1p4)(e) - mean * p - s * half * odd);
        }
    }
}

/* The same by the trapezoid rule at pairs of nodes ±z_k = ±k z_1 of weights w_k, k < S (there too). */
static void FN(logistic_pairs)(const double *m, const double *v, const double *z, const double *w, long S, long rows,
                               double *probability, double *entropy)
{
    for (long i = 0; i < rows; i += 4) {
        v4d mean = FN(load)(m + i), variance = FN(load)(v + i);
        v4d sd = {sqrt(variance[0]), sqrt(variance[1]), sqrt(variance[2]), sqrt(variance[3])};
        v4d centre = FN(exp4)(mean), ratio = FN(exp4)(z[1] * sd), inverse = 1.0 / ratio;
        v4d growth = ratio + inverse, product = centre * centre, above = product + 1.0, twice = 2.0 * product;
        v4d total = centre * growth, before = 2.0 * centre, p = w[0] * centre / (centre + 1.0);
        if (!entropy) {
            for (long k = 1; k < S; k++) {
                p += w[k] * (total + twice) / (total + above);
                v4d next = growth * total - before;
                before = total;
                total = next;
            }
            FN(store)(probability + i, p);
            continue;
        }
        v4d difference = centre * (ratio - inverse), earlier = FN(splat)(0.0), moment = earlier;
        v4d logs = w[0] * FN(log1p4)(centre);
        for (long k = 1; k < S; k++) {
            v4d normaliser = total + above, share = w[k] / normaliser;
            logs += w[k] * FN(log4)(normaliser);
            p += share * (total + twice);
            moment += z[k] * (share * difference);
            v4d next = growth * total - before, after = growth * difference - earlier;
            before = total, total = next;
            earlier = difference, difference = after;
        }
        FN(store)(probability + i, p);
        FN(store)(entropy + i, logs - mean * p - sd * moment);
    }
}

/* The expansion of `blr/predictive/_softmax_series.py` for means (n, K) and covariances (n, K, K): probabilities (n, K),
 * entropies, the sum of the other classes' odds to the first, and the largest contrast sd, (n,) each; four rows at once. */
static ALWAYS_INLINE void FN(series_of)(const double *mean, const double *V, long n, long K, double *probability,
                                        double *entropy, double *others, double *spread)
{
    v4d a[MOST_OUTPUTS], D[MOST_OUTPUTS][MOST_OUTPUTS], e[MOST_OUTPUTS], A[MOST_OUTPUTS], P[MOST_OUTPUTS];
    for (long start = 0; start < n; start += 4) {
        long rows = n - start < 4 ? n - start : 4, r[4];
        for (long i = 0; i < 4; i++)
            r[i] = start + (i < rows ? i : 0); /* a row again, where there are no more */
        v4d top, total = FN(splat)(0.0), widest = total;
        for (long k = 0; k < K; k++) {
            a[k] = (v4d){mean[r[0] * K + k], mean[r[1] * K + k], mean[r[2] * K + k], mean[r[3] * K + k]};
            top = k ? FN(choose)(a[k] > top, a[k], top) : a[k];
            for (long l = 0; l < K; l++) {
                long at = k * K + l;
                D[k][l] = (v4d){V[r[0] * K * K + at], V[r[1] * K * K + at], V[r[2] * K * K + at],
                                V[r[3] * K * K + at]};
            }
        }
        for (long k = 0; k < K; k++)
            for (long l = 0; l < K; l++)
                if (k != l)
                    D[k][l] = (0.5 * D[l][l] - D[k][l]) + 0.5 * D[k][k];
        for (long k = 0; k < K; k++)
            D[k][k] = FN(splat)(0.0);
        for (long k = 0; k < K; k++) {
            a[k] = FN(exp4)(a[k] - top);
            total += a[k];
            e[k] = A[k] = FN(splat)(0.0);
            for (long l = 0; l < K; l++)
                widest = FN(choose)(D[k][l] > widest, D[k][l], widest);
        }
        v4d inverse = 1.0 / total, e_bar = FN(splat)(0.0), e2_bar = e_bar, A_bar = e_bar, sum = e_bar;
        for (long k = 0; k < K; k++)
            a[k] *= inverse;
        for (long k = 0; k < K; k++) {
            for (long l = 0; l < K; l++) {
                v4d term = D[l][k] * a[l];
                e[k] += term;
                A[k] += term * D[l][k];
            }
            v4d pe = a[k] * e[k];
            e_bar += pe;
            e2_bar += pe * e[k];
            A_bar += a[k] * A[k];
        }
        for (long k = 0; k < K; k++) {
            v4d W = FN(splat)(0.0);
            for (long l = 0; l < K; l++)
                W += D[l][k] * (a[l] * e[l]);
            v4d x = e[k] * (1.0 + 0.5 * e[k] - 2.0 * e_bar) + 2.0 * W - 0.5 * A[k];
            x = FN(choose)(x > 50.0, FN(splat)(50.0), x);
            x = FN(choose)(x < -50.0, FN(splat)(-50.0), x);
            P[k] = a[k] * FN(exp4)(x);
            sum += P[k];
        }
        v4d quadratic = FN(splat)(0.0), h = quadratic, normaliser = 1.0 / sum;
        for (long k = 0; k < K; k++)
            P[k] *= normaliser;
        for (long k = 0; k < K; k++) {
            v4d row = FN(splat)(0.0), tiny = FN(splat)(2.2250738585072014e-308);
            for (long l = 0; l < K; l++)
                row += D[k][l] * P[l];
            quadratic += P[k] * row;
            h -= P[k] * FN(log4)(FN(choose)(P[k] > tiny, P[k], tiny));
        }
        v4d information = 0.5 * quadratic - 0.75 * (A_bar + e_bar * e_bar - 2.0 * e2_bar);
        h -= FN(choose)(information > 0.0, information, FN(splat)(0.0));
        for (long i = 0; i < rows; i++) {
            for (long k = 0; k < K; k++)
                probability[(start + i) * K + k] = P[k][i];
            entropy[start + i] = h[i];
            others[start + i] = total[i] - 1.0;
            spread[start + i] = sqrt(2.0 * widest[i]);
        }
    }
}

static void FN(softmax_series)(const double *mean, const double *V, long n, long K, double *probability,
                               double *entropy, double *others, double *spread)
{
    if (K == 3)
        FN(series_of)(mean, V, n, 3, probability, entropy, others, spread);
    else if (K == 4)
        FN(series_of)(mean, V, n, 4, probability, entropy, others, spread);
    else
        FN(series_of)(mean, V, n, K, probability, entropy, others, spread);
}
