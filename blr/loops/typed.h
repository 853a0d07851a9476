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

/* Turn activations a (K,) into softmax(a); return the highest of them, and in `ln` that of Σ e^(a - highest). */
static inline VECTOR TN(softmax)(VECTOR *a, long K, VECTOR *ln)
{
    VECTOR highest = a[0], sum = (VECTOR){0};
    for (long k = 1; k < K; k++)
        highest = TN(larger)(a[k], highest);
    for (long k = 0; k < K; k++) {
        a[k] = TN(exp)(a[k] - highest);
        sum += a[k];
    }
    VECTOR inverse = (T)1 / sum;
    for (long k = 0; k < K; k++)
        a[k] *= inverse;
    *ln = TN(log)(sum);
    return highest;
}

/* Put a row's means, less the highest, and its loads into this precision; return the highest. */
static inline double TN(centred)(const double *m, const double *B, long K, long d, T *mean, T *load)
{
    double top = m[0];
    for (long k = 1; k < K; k++)
        top = m[k] > top ? m[k] : top;
    for (long k = 0; k < K; k++)
        mean[k] = (T)(m[k] - top);
    for (long k = 0; k < K * d; k++)
        load[k] = (T)B[k];
    return top;
}

/* Put softmax(a), a = mean + load z, at LANES nodes z (d,) into a (K,); return ln Σ e^a. */
static inline VECTOR TN(at_nodes)(const T *mean, const T *load, const VECTOR *node, long K, long d, VECTOR *a)
{
    for (long k = 0; k < K; k++) {
        a[k] = (VECTOR){0} + mean[k];
        for (long j = 0; j < d; j++)
            a[k] += load[k * d + j] * node[j];
    }
    VECTOR ln, highest = TN(softmax)(a, K, &ln);
    return highest + ln;
}

/* E ln Σ e^a (n,) and E y yᵀ (n, K, K), y = softmax(a), a = m + B z at nodes z (d, S) of weights w (S,).
 *
 * S is a multiple of LANES.  Sums over 64 vectors are in this precision, the rest in double.
 */
static ALWAYS_INLINE void TN(nodes_of)(long K, long d, const double *m, const double *B, const T *z, const T *w,
                                       long n, long S, double *log_sum, double *products)
{
    VECTOR a[MOST_OUTPUTS], node[MOST_OUTPUTS], sums[MOST_OUTPUTS * (MOST_OUTPUTS + 1) / 2];
    T mean[MOST_OUTPUTS], load[MOST_OUTPUTS * MOST_OUTPUTS];
    for (long i = 0; i < n; i++, m += K, B += K * d) {
        double total[MOST_OUTPUTS * (MOST_OUTPUTS + 1) / 2] = {0};
        log_sum[i] = TN(centred)(m, B, K, d, mean, load);
        for (long block = 0; block < S; block += 64 * LANES) {
            long end = S - block < 64 * LANES ? S : block + 64 * LANES;
            VECTOR logs = (VECTOR){0};
            for (long p = 0; p < K * (K + 1) / 2; p++)
                sums[p] = (VECTOR){0};
            for (long s = block; s < end; s += LANES) {
                VECTOR weight = TN(load)(w + s);
                for (long j = 0; j < d; j++)
                    node[j] = TN(load)(z + j * S + s);
                logs += weight * TN(at_nodes)(mean, load, node, K, d, a);
                for (long k = 0, p = 0; k < K; k++) {
                    VECTOR share = weight * a[k];
                    for (long l = k; l < K; l++, p++)
                        sums[p] += share * a[l];
                }
            }
            log_sum[i] += TN(total)(logs);
            for (long p = 0; p < K * (K + 1) / 2; p++)
                total[p] += TN(total)(sums[p]);
        }
        for (long k = 0, p = 0; k < K; k++)
            for (long l = k; l < K; l++, p++)
                products[(i * K + k) * K + l] = products[(i * K + l) * K + k] = total[p];
    }
}

static void TN(softmax_nodes)(const double *m, const double *B, const T *z, const T *w, long n, long K, long d,
                              long S, double *log_sum, double *products)
{
    FEW_CLASSES(TN(nodes_of), K, d, m, B, z, w, n, S, log_sum, products);
}

/* Put E y, y = softmax(m + B z) at nodes z (d, S) of weights w (S,), into p (K,); return E H(y). */
static ALWAYS_INLINE double TN(response_of)(long K, long d, const double *m, const double *B, const T *z, const T *w,
                                            long S, double *p)
{
    VECTOR a[MOST_OUTPUTS], y[MOST_OUTPUTS], node[MOST_OUTPUTS], sums[MOST_OUTPUTS];
    T mean[MOST_OUTPUTS], load[MOST_OUTPUTS * MOST_OUTPUTS];
    double entropy = 0;
    TN(centred)(m, B, K, d, mean, load);
    for (long k = 0; k < K; k++)
        p[k] = 0;
    for (long block = 0; block < S; block += 64 * LANES) {
        long end = S - block < 64 * LANES ? S : block + 64 * LANES;
        VECTOR entropies = (VECTOR){0};
        for (long k = 0; k < K; k++)
            sums[k] = (VECTOR){0};
        for (long s = block; s < end; s += LANES) {
            VECTOR weight = TN(load)(w + s), highest, total = (VECTOR){0}, inner = (VECTOR){0};
            for (long j = 0; j < d; j++)
                node[j] = TN(load)(z + j * S + s);
            for (long k = 0; k < K; k++) {
                a[k] = (VECTOR){0} + mean[k];
                for (long j = 0; j < d; j++)
                    a[k] += load[k * d + j] * node[j];
                highest = k == 0 ? a[k] : TN(larger)(a[k], highest);
            }
            for (long k = 0; k < K; k++) {
                a[k] -= highest;
                y[k] = TN(exp)(a[k]);
                total += y[k];
                inner += a[k] * y[k];
            }
            VECTOR inverse = (T)1 / total, share = weight * inverse;
            for (long k = 0; k < K; k++)
                sums[k] += share * y[k];
            entropies += weight * (TN(log)(total) - inner * inverse); /* H = ln Σ e^a - Σ a y */
        }
        entropy += TN(total)(entropies);
        for (long k = 0; k < K; k++)
            p[k] += TN(total)(sums[k]);
    }
    return entropy;
}

/* E y (n, K) and E H(y) (n,) of n rows, as `response_of`. */
static ALWAYS_INLINE void TN(responses_of)(long K, long d, const double *m, const double *B, const T *z, const T *w,
                                           long n, long S, double *p, double *entropy)
{
    for (long i = 0; i < n; i++)
        entropy[i] = TN(response_of)(K, d, m + i * K, B + i * K * d, z, w, S, p + i * K);
}

static void TN(softmax_responses)(const double *m, const double *B, const T *z, const T *w, long n, long K, long d,
                                  long S, double *p, double *entropy)
{
    FEW_CLASSES(TN(responses_of), K, d, m, B, z, w, n, S, p, entropy);
}

/* Of S nodes of n rows with activations m + B z, at inner points z (S, d, J) of weights w (J,): p (n, K), entropy (n,),
 * mean a (n, K) and a aᵀ (n, K, K) are added to, `share` (S, n) times. */
static ALWAYS_INLINE void TN(mixture_of)(long K, long d, const double *m, const double *B, const T *z, const T *w,
                                         const double *share, long S, long n, long J, double *p, double *entropy,
                                         double *mean, double *second)
{
    double response[MOST_OUTPUTS];
    for (long s = 0; s < S; s++, z += d * J)
        for (long i = 0; i < n; i++, m += K, B += K * d, share++) {
            entropy[i] += *share * TN(response_of)(K, d, m, B, z, w, J, response);
            for (long k = 0; k < K; k++) {
                p[i * K + k] += *share * response[k];
                mean[i * K + k] += *share * m[k];
                for (long l = 0; l <= k; l++) {
                    double product = m[k] * m[l];
                    for (long j = 0; j < d; j++)
                        product += B[k * d + j] * B[l * d + j];
                    second[(i * K + k) * K + l] += *share * product;
                    if (l < k)
                        second[(i * K + l) * K + k] += *share * product;
                }
            }
        }
}

static void TN(softmax_mixture)(const double *m, const double *B, const T *z, const T *w, const double *share, long S,
                                long n, long K, long d, long J, double *p, double *entropy, double *mean,
                                double *second)
{
    FEW_CLASSES(TN(mixture_of), K, d, m, B, z, w, share, S, n, J, p, entropy, mean, second);
}

/* Of S nodes of n rows of two classes, whose logits have a mean and an sd (S, n), at inner points z (J,) of weights w (J,):
 * p (n, 2), entropy (n,), mean logit (n,) and squared logit (n,) are added to, `share` (S, n) times. */
static void TN(logistic_mixture)(const double *mean, const double *sd, const T *z, const T *w, const double *share, long S,
                                 long n, long J, double *p, double *entropy, double *first, double *second)
{
    for (long s = 0; s < S; s++, mean += n, sd += n, share += n)
        for (long i = 0; i < n; i += LANES) {
            long lanes = n - i < LANES ? n - i : LANES;
            T m[LANES] = {0}, spread[LANES] = {0}, no[LANES], yes[LANES], unsure[LANES];
            for (long j = 0; j < lanes; j++) {
                m[j] = (T)mean[i + j], spread[j] = (T)sd[i + j];
                first[i + j] += share[i + j] * mean[i + j];
                second[i + j] += share[i + j] * (mean[i + j] * mean[i + j] + sd[i + j] * sd[i + j]);
            }
            VECTOR below = (VECTOR){0}, above = below, entropies = below;
            for (long k = 0; k < J; k++) {
                VECTOR a = TN(load)(m) + z[k] * TN(load)(spread), size = TN(choose)(a >= (T)0, a, -a);
                VECTOR e = TN(exp)(-size), inverse = (T)1 / ((T)1 + e), small = e * inverse;
                below += w[k] * TN(choose)(a >= (T)0, small, inverse);
                above += w[k] * TN(choose)(a >= (T)0, inverse, small);
                entropies += w[k] * (TN(log1p)(e) + size * small);
            }
            TN(store)(no, below), TN(store)(yes, above), TN(store)(unsure, entropies);
            for (long j = 0; j < lanes; j++) {
                p[2 * (i + j)] += share[i + j] * no[j];
                p[2 * (i + j) + 1] += share[i + j] * yes[j];
                entropy[i + j] += share[i + j] * unsure[j];
            }
        }
}

/* LANES numbers, or as many as are left of them and zeros. */
static inline VECTOR TN(load_rest)(const T *p, long lanes)
{
    if (lanes >= LANES)
        return TN(load)(p);
    VECTOR x = (VECTOR){0};
    memcpy(&x, p, sizeof(T) * lanes);
    return x;
}

static inline void TN(store_rest)(T *p, VECTOR x, long lanes)
{
    memcpy(p, &x, sizeof(T) * (lanes < LANES ? lanes : LANES));
}

/* Of activations a (S, K, n), K > 1, and targets t (K, n) that sum to one: value ln p (S, n), and t - y in place of a. */
static void TN(softmax_rows)(T *a, const T *t, long S, long K, long n, T *value)
{
    for (long s = 0; s < S; s++, a += K * n, value += n)
        for (long i = 0; i < n; i += LANES) {
            VECTOR y[MOST_OUTPUTS], first[MOST_OUTPUTS], share[MOST_OUTPUTS], ln, highest, expected = (VECTOR){0};
            for (long k = 0; k < K; k++) {
                first[k] = y[k] = TN(load_rest)(a + k * n + i, n - i);
                share[k] = TN(load_rest)(t + k * n + i, n - i);
            }
            highest = TN(softmax)(y, K, &ln);
            for (long k = 0; k < K; k++) {
                expected += share[k] * (first[k] - highest);
                TN(store_rest)(a + k * n + i, share[k] - y[k], n - i);
            }
            TN(store_rest)(value + i, expected - ln, n - i);
        }
}

/* Of activations a (S, n) and targets t (n,) of two classes, from 0 to 1: value ln p (S, n), residual t - y (S, n) and
 * curvature y (1 - y) (S, n); the last two may be NULL, and residual may be a. */
static void TN(logistic_rows)(const T *a, const T *t, long S, long n, T *value, T *residual, T *curvature)
{
    for (long s = 0; s < S; s++)
        for (long i = 0; i < n; i += LANES) {
            long at = s * n + i, left = n - i;
            VECTOR x = TN(load_rest)(a + at, left), share = TN(load_rest)(t + i, left);
            VECTOR size = TN(choose)(x >= (T)0, x, -x), e = TN(exp)(-size), inverse = (T)1 / ((T)1 + e);
            VECTOR small = e * inverse;
            TN(store_rest)(value + at, -TN(log1p)(e) - size * TN(choose)(x >= (T)0, (T)1 - share, share), left);
            if (residual)
                TN(store_rest)(residual + at, share - TN(choose)(x >= (T)0, inverse, small), left);
            if (curvature)
                TN(store_rest)(curvature + at, small * inverse, left);
        }
}
