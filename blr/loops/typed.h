/* The loops that exist in double and in single precision: included with T, VECTOR, LANES and TN(name) set. */

static inline VECTOR TN(load)(const T *p) { return *(const UNALIGNED *)p; }
static inline void TN(store)(T *p, VECTOR x) { *(UNALIGNED *)p = x; }

/* z (4, V LANES) = four rows of Φ times a panel (depth, V LANES) of Uᵀ. */
#define PANEL(V)                                                                                            \
    static inline void TN(panel##V)(const T *row, long stride, const T *panel, long depth, VECTOR z[4][3])  \
    {                                                                                                       \
        VECTOR acc[4][V];                                                                                   \
        for (int i = 0; i < 4; i++)                                                                         \
            for (int v = 0; v < V; v++)                                                                     \
                acc[i][v] = (VECTOR){0};                                                                    \
        for (long k = 0; k < depth; k++, panel += V * LANES) {                                              \
            VECTOR u[V];                                                                                    \
            for (int v = 0; v < V; v++)                                                                     \
                u[v] = TN(load)(panel + v * LANES);                                                         \
            for (int i = 0; i < 4; i++)                                                                     \
                for (int v = 0; v < V; v++)                                                                 \
                    acc[i][v] += row[i * stride + k] * u[v];                                                \
        }                                                                                                   \
        for (int i = 0; i < 4; i++)                                                                         \
            for (int v = 0; v < V; v++)                                                                     \
                z[i][v] = acc[i][v];                                                                        \
    }
PANEL(1)
PANEL(2)
PANEL(3)
#undef PANEL

/* How many vectors the next panel takes of `left`: three, but two twice of four. */
static inline long TN(taken)(long left) { return left == 4 ? 2 : left < 3 ? left : 3; }

/* Put U (C M, C M), lower triangular, in the order in which `squares` reads it; return how many numbers that are. */
static long TN(pack)(const T *U, long M, long C, T *packed)
{
    long vectors = (M + LANES - 1) / LANES, size = 0;
    for (long b = 0; b < C; b++)
        for (long first = 0; first < vectors;) {
            long take = TN(taken)(vectors - first), wide = take * LANES, j0 = first * LANES;
            for (long c = 0; c <= b; c++) {
                long depth = c < b || j0 + wide > M ? M : j0 + wide;
                if (packed)
                    for (long k = 0; k < depth; k++)
                        for (long j = 0; j < wide; j++) {
                            int inside = j0 + j < M && (c < b || k <= j0 + j);
                            packed[size + k * wide + j] =
                                inside ? U[(b * M + j0 + j) * C * M + c * M + k] : (T)0;
                        }
                size += depth * wide;
            }
            first += take;
        }
    return size;
}

/* out (P, n) += Σ_b z_bc'z_bd of the whitened activations z_bc = U_bc φ of each row; rows: 4 M numbers of scratch. */
static void TN(squares)(const T *Phi, long n, long M, long C, const T *packed, T *rest, double *out)
{
    long vectors = (M + LANES - 1) / LANES;
    VECTOR z[MOST_OUTPUTS][4][3], sums[MOST_OUTPUTS * (MOST_OUTPUTS + 1) / 2][4];
    for (long start = 0; start < n; start += 4) {
        const T *row = Phi + start * M, *panel = packed;
        long rows = n - start < 4 ? n - start : 4;
        if (rows < 4) {
            memset(rest, 0, sizeof(T) * 4 * M);
            memcpy(rest, row, sizeof(T) * rows * M);
            row = rest;
        }
        for (long p = 0; p < C * (C + 1) / 2; p++)
            for (int i = 0; i < 4; i++)
                sums[p][i] = (VECTOR){0};
        for (long b = 0; b < C; b++)
            for (long first = 0; first < vectors;) {
                long take = TN(taken)(vectors - first), wide = take * LANES, j0 = first * LANES, p = 0;
                for (long c = 0; c <= b; c++) {
                    long depth = c < b || j0 + wide > M ? M : j0 + wide;
                    if (take == 3)
                        TN(panel3)(row, M, panel, depth, z[c]);
                    else if (take == 2)
                        TN(panel2)(row, M, panel, depth, z[c]);
                    else
                        TN(panel1)(row, M, panel, depth, z[c]);
                    panel += depth * wide;
                }
                for (long c = 0; c < C; c++)
                    for (long d = c; d < C; d++, p++)
                        if (d <= b)
                            for (int i = 0; i < 4; i++)
                                for (long v = 0; v < take; v++)
                                    sums[p][i] += z[c][i][v] * z[d][i][v];
                first += take;
            }
        for (long p = 0; p < C * (C + 1) / 2; p++)
            for (long i = 0; i < rows; i++)
                out[p * n + start + i] += TN(total)(sums[p][i]);
    }
}

/* E ln Σ e^a (n,) and E y yᵀ (n, K, K), y = softmax(a), a = m + B z at nodes z (C, S) of weights w (S,).
 *
 * S is a multiple of LANES.  Sums over 64 vectors are in this precision, the rest in double.
 */
static inline __attribute__((always_inline)) void TN(nodes_of)(const double *m, const double *B, const T *z, const T *w, long n, long K, long C,
                         long S, double *log_sum, double *products)
{
    VECTOR a[MOST_OUTPUTS], sums[MOST_OUTPUTS * (MOST_OUTPUTS + 1) / 2];
    T mean[MOST_OUTPUTS], load[MOST_OUTPUTS * MOST_OUTPUTS];
    for (long i = 0; i < n; i++, m += K, B += K * C) {
        double top = m[0], log_total = 0.0, total[MOST_OUTPUTS * (MOST_OUTPUTS + 1) / 2] = {0};
        for (long k = 1; k < K; k++)
            top = m[k] > top ? m[k] : top;
        for (long k = 0; k < K; k++)
            mean[k] = (T)(m[k] - top);
        for (long k = 0; k < K * C; k++)
            load[k] = (T)B[k];
        for (long block = 0; block < S; block += 64 * LANES) {
            long end = S - block < 64 * LANES ? S : block + 64 * LANES;
            VECTOR logs = (VECTOR){0};
            for (long p = 0; p < K * (K + 1) / 2; p++)
                sums[p] = (VECTOR){0};
            for (long s = block; s < end; s += LANES) {
                VECTOR highest, sum, weight = TN(load)(w + s);
                for (long k = 0; k < K; k++)
                    a[k] = (VECTOR){0} + mean[k];
                for (long c = 0; c < C; c++) {
                    VECTOR zc = TN(load)(z + c * S + s);
                    for (long k = 0; k < K; k++)
                        a[k] += load[k * C + c] * zc;
                }
                highest = a[0];
                for (long k = 1; k < K; k++)
                    highest = TN(choose)(a[k] > highest, a[k], highest);
                sum = (VECTOR){0};
                for (long k = 0; k < K; k++) {
                    a[k] = TN(exp)(a[k] - highest);
                    sum += a[k];
                }
                logs += weight * (highest + TN(log)(sum));
                VECTOR inverse = (T)1 / sum;
                long p = 0;
                for (long k = 0; k < K; k++)
                    a[k] *= inverse;
                for (long k = 0; k < K; k++) {
                    VECTOR share = weight * a[k];
                    for (long l = k; l < K; l++, p++)
                        sums[p] += share * a[l];
                }
            }
            log_total += TN(total)(logs);
            for (long p = 0; p < K * (K + 1) / 2; p++)
                total[p] += TN(total)(sums[p]);
        }
        log_sum[i] = top + log_total;
        for (long k = 0, p = 0; k < K; k++)
            for (long l = k; l < K; l++, p++)
                products[(i * K + k) * K + l] = products[(i * K + l) * K + k] = total[p];
    }
}

/* The same, with the classes known to the compiler where they are few: their numbers stay in registers. */
static void TN(softmax_nodes)(const double *m, const double *B, const T *z, const T *w, long n, long K, long C,
                              long S, double *log_sum, double *products)
{
    if (K == 3 && C == 2)
        TN(nodes_of)(m, B, z, w, n, 3, 2, S, log_sum, products);
    else if (K == 4 && C == 3)
        TN(nodes_of)(m, B, z, w, n, 4, 3, S, log_sum, products);
    else if (K == 5 && C == 4)
        TN(nodes_of)(m, B, z, w, n, 5, 4, S, log_sum, products);
    else
        TN(nodes_of)(m, B, z, w, n, K, C, S, log_sum, products);
}

/* Σ_s w p_k (z_j, 1) (n, K, d + 1) and Σ_s w ln Σ_k e^a (n,), p = softmax(a), a = m + B z at nodes z (d, S) of weights w.
 *
 * S is a multiple of LANES.  Sums over 64 vectors are in this precision, the rest in double.
 */
static inline __attribute__((always_inline)) void TN(moments_of)(const double *m, const double *B, const T *z,
                                                                 const T *w, long n, long K, long d, long S,
                                                                 double *moments, double *log_sum)
{
    VECTOR a[MOST_OUTPUTS], sums[MOST_OUTPUTS * (MOST_OUTPUTS + 1)], node[MOST_OUTPUTS + 1];
    T mean[MOST_OUTPUTS], load[MOST_OUTPUTS * MOST_OUTPUTS];
    for (long i = 0; i < n; i++, m += K, B += K * d, moments += K * (d + 1)) {
        double top = m[0], log_total = 0.0;
        for (long k = 1; k < K; k++)
            top = m[k] > top ? m[k] : top;
        for (long k = 0; k < K; k++)
            mean[k] = (T)(m[k] - top);
        for (long k = 0; k < K * d; k++)
            load[k] = (T)B[k];
        memset(moments, 0, sizeof(double) * K * (d + 1));
        for (long block = 0; block < S; block += 64 * LANES) {
            long end = S - block < 64 * LANES ? S : block + 64 * LANES;
            VECTOR logs = (VECTOR){0};
            for (long p = 0; p < K * (d + 1); p++)
                sums[p] = (VECTOR){0};
            for (long s = block; s < end; s += LANES) {
                VECTOR highest, sum = (VECTOR){0}, weight = TN(load)(w + s);
                for (long j = 0; j < d; j++)
                    node[j] = TN(load)(z + j * S + s);
                for (long k = 0; k < K; k++) {
                    a[k] = (VECTOR){0} + mean[k];
                    for (long j = 0; j < d; j++)
                        a[k] += load[k * d + j] * node[j];
                }
                highest = a[0];
                for (long k = 1; k < K; k++)
                    highest = TN(choose)(a[k] > highest, a[k], highest);
                for (long k = 0; k < K; k++) {
                    a[k] = TN(exp)(a[k] - highest);
                    sum += a[k];
                }
                logs += weight * (highest + TN(log)(sum));
                VECTOR share = weight / sum;
                for (long k = 0; k < K; k++) {
                    VECTOR p = share * a[k];
                    for (long j = 0; j < d; j++)
                        sums[k * (d + 1) + j] += p * node[j];
                    sums[k * (d + 1) + d] += p;
                }
            }
            log_total += TN(total)(logs);
            for (long p = 0; p < K * (d + 1); p++)
                moments[p] += TN(total)(sums[p]);
        }
        log_sum[i] = top + log_total;
    }
}

static void TN(softmax_moments)(const double *m, const double *B, const T *z, const T *w, long n, long K, long d,
                                long S, double *moments, double *log_sum)
{
    if (K == 3 && d == 2)
        TN(moments_of)(m, B, z, w, n, 3, 2, S, moments, log_sum);
    else if (K == 4 && d == 3)
        TN(moments_of)(m, B, z, w, n, 4, 3, S, moments, log_sum);
    else if (K == 5 && d == 4)
        TN(moments_of)(m, B, z, w, n, 5, 4, S, moments, log_sum);
    else
        TN(moments_of)(m, B, z, w, n, K, d, S, moments, log_sum);
}

/* Of activations a (S, K, n), K > 1, and targets t (K, n) that sum to one: value ln p (S, n), and t - y in place of a. */
static void TN(softmax_rows)(T *a, const T *t, long S, long K, long n, T *value)
{
    for (long s = 0; s < S; s++, a += K * n, value += n)
        for (long i = 0; i < n; i += LANES) {
            long lanes = n - i < LANES ? n - i : LANES;
            VECTOR x[MOST_OUTPUTS], shares[MOST_OUTPUTS], highest, sum = (VECTOR){0}, told = (VECTOR){0};
            for (long k = 0; k < K; k++) {
                if (lanes == LANES) {
                    x[k] = TN(load)(a + k * n + i);
                    shares[k] = TN(load)(t + k * n + i);
                } else {
                    x[k] = shares[k] = (VECTOR){0};
                    memcpy(&x[k], a + k * n + i, sizeof(T) * lanes);
                    memcpy(&shares[k], t + k * n + i, sizeof(T) * lanes);
                }
                highest = k ? TN(choose)(x[k] > highest, x[k], highest) : x[k];
            }
            for (long k = 0; k < K; k++) {
                x[k] -= highest;
                told += shares[k] * x[k];
                x[k] = TN(exp)(x[k]);
                sum += x[k];
            }
            VECTOR ln = told - TN(log)(sum), inverse = (T)1 / sum;
            for (long k = 0; k < K; k++) {
                VECTOR pull = shares[k] - x[k] * inverse;
                if (lanes == LANES)
                    TN(store)(a + k * n + i, pull);
                else
                    memcpy(a + k * n + i, &pull, sizeof(T) * lanes);
            }
            memcpy(value + i, &ln, sizeof(T) * lanes);
        }
}

/* Of activations a (S, n) and targets t (n,) of two classes, from 0 to 1: value ln p (S, n), residual t - y (S, n) and
 * curvature y (1 - y) (S, n); the last two may be NULL, and residual may be a. */
static void TN(logistic_rows)(const T *a, const T *t, long S, long n, T *value, T *residual, T *curvature)
{
    for (long s = 0; s < S; s++)
        for (long i = 0; i < n; i += LANES) {
            long lanes = n - i < LANES ? n - i : LANES, at = s * n + i;
            VECTOR x = (VECTOR){0}, share = (VECTOR){0};
            if (lanes == LANES) {
                x = TN(load)(a + at);
                share = TN(load)(t + i);
            } else {
                memcpy(&x, a + at, sizeof(T) * lanes);
                memcpy(&share, t + i, sizeof(T) * lanes);
            }
            VECTOR size = TN(choose)(x >= (T)0, x, -x), e = TN(exp)(-size), inverse = (T)1 / ((T)1 + e);
            VECTOR small = e * inverse;
            VECTOR ln = -TN(log1p)(e) - size * TN(choose)(x >= (T)0, (T)1 - share, share);
            VECTOR pull = share - TN(choose)(x >= (T)0, inverse, small), r = small * inverse;
            if (lanes == LANES) {
                TN(store)(value + at, ln);
                if (residual)
                    TN(store)(residual + at, pull);
                if (curvature)
                    TN(store)(curvature + at, r);
            } else {
                memcpy(value + at, &ln, sizeof(T) * lanes);
                if (residual)
                    memcpy(residual + at, &pull, sizeof(T) * lanes);
                if (curvature)
                    memcpy(curvature + at, &r, sizeof(T) * lanes);
            }
        }
}
