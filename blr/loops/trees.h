/* How a tree is grown, and evaluated, compiled for each instruction set like the loops in `vectors.h`.
 *
 * A node is split where the weighted sum of squares of its targets falls most.  The threshold of each feature is drawn
 * at random between its ends, or is the best one of a few features.
 * Shapes: N rows, F features, m nodes.  A row's targets have a 1 before them, and are filled with zeros up to `wide`
 * numbers, a multiple of four: so the sums over weighted targets begin with that of the weights.
 */

typedef struct {
    const float *X;       /* (F, N) */
    const double *target; /* (N, wide) */
    const double *weight; /* (N,), above 0 where the row is seen */
    long N, F, wide;
    long most, leaf; /* features that are tried, 0 for random thresholds of all; fewest rows of a leaf */
    unsigned long long state;
    int *rows, *other, *order; /* (N,) rows by node; scratch; (F,) features */
    float *x;                  /* (N,) scratch */
    double *weighted;          /* (N, wide) weighted targets of a node's rows */
    long *first, *past;        /* (m,) */
    double *gain;              /* (m,) of the best split, below 0 where there is none or it is done */
    int *feature, *child;      /* (m,) */
    float *threshold;          /* (m,) */
    double *sums;              /* (m, wide) of the weighted targets */
} FN(Tree);

/* A number of splitmix64, from 0 to below 1. */
static double FN(drawn)(FN(Tree) *g)
{
    unsigned long long z = g->state += 0x9E3779B97F4A7C15ULL;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return (double)((z ^ (z >> 31)) >> 11) * 0x1p-53;
}

/* The squares of the sums of both sides over their weights. */
static inline double FN(score)(const double *left, const double *all, long wide)
{
    v4d l = FN(splat)(0.0), r = l;
    for (long c = 0; c < wide; c += 4) {
        v4d own = FN(load)(left + c), other = FN(load)(all + c) - own;
        l += own * own;
        r += other * other;
    }
    double w = left[0], rest = all[0] - left[0];
    return (FN(total)(l) - w * w) / w + (FN(total)(r) - rest * rest) / rest;
}

/* Sums (wide,) of the weighted targets of rows with values x up to a threshold: x becomes all bits or none. */
static ALWAYS_INLINE void FN(sum_left)(const int *left, const double *weighted, long n, long wide, double *sums)
{
    for (long c = 0; c < wide; c += 4) {
        v4d a = FN(splat)(0.0), b = a;
        long i = 0;
        for (; i + 2 <= n; i += 2) {
            long long one = left[i], two = left[i + 1];
            a += (v4d)((v4l){one, one, one, one} & (v4l)FN(load)(weighted + wide * i + c));
            b += (v4d)((v4l){two, two, two, two} & (v4l)FN(load)(weighted + wide * (i + 1) + c));
        }
        if (i < n) {
            long long one = left[i];
            a += (v4d)((v4l){one, one, one, one} & (v4l)FN(load)(weighted + wide * i + c));
        }
        FN(store)(sums + c, a + b);
    }
}

/* Sort values x (n,) and their rows. */
static void FN(sort)(float *x, int *rows, long n)
{
    while (n > 16) {
        float a = x[0], b = x[n / 2], c = x[n - 1];
        float pivot = a < b ? (b < c ? b : a < c ? c : a) : (a < c ? a : b < c ? c : b);
        long i = 0, j = n - 1;
        for (;; i++, j--) {
            while (x[i] < pivot)
                i++;
            while (x[j] > pivot)
                j--;
            if (i >= j)
                break;
            float y = x[i];
            int row = rows[i];
            x[i] = x[j], rows[i] = rows[j], x[j] = y, rows[j] = row;
        }
        FN(sort)(x + j + 1, rows + j + 1, n - j - 1);
        n = j + 1;
    }
    for (long i = 1; i < n; i++) {
        float y = x[i];
        int row = rows[i];
        long j = i;
        for (; j > 0 && x[j - 1] > y; j--)
            x[j] = x[j - 1], rows[j] = rows[j - 1];
        x[j] = y, rows[j] = row;
    }
}

/* Whether a score is above another by more than rounding: of equal ones the first counts. */
static inline int FN(above)(double score, double other) { return score > other + 1e-9 * fabs(other); }

/* Keep a split of a node if its score is above that of the best one so far. */
static inline void FN(keep)(FN(Tree) *g, long node, double score, double *best, long f, float threshold)
{
    if (FN(above)(score, *best)) {
        *best = score;
        g->feature[node] = (int)f;
        g->threshold[node] = threshold;
    }
}

static int FN(try_random)(FN(Tree) *g, long node, long f, double *best)
{
    const float *X = g->X + f * g->N;
    const int *rows = g->rows + g->first[node];
    long n = g->past[node] - g->first[node], wide = g->wide, left = 0;
    float *x = g->x, low = X[rows[0]], high = low;
    for (long i = 0; i < n; i++) {
        float y = X[rows[i]];
        x[i] = y;
        low = y < low ? y : low;
        high = y > high ? y : high;
    }
    if (!(low < high))
        return 0;
    float threshold = (float)(low + FN(drawn)(g) * ((double)high - low));
    threshold = threshold < high ? threshold : low;
    int *side = g->other;
    for (long i = 0; i < n; i++)
        side[i] = -(x[i] <= threshold);
    for (long i = 0; i < n; i++)
        left -= side[i];
    if (left < g->leaf || n - left < g->leaf)
        return 1;
    double sums[MOST_TARGETS];
    if (wide == 4)
        FN(sum_left)(side, g->weighted, n, 4, sums);
    else if (wide == 8)
        FN(sum_left)(side, g->weighted, n, 8, sums);
    else
        FN(sum_left)(side, g->weighted, n, wide, sums);
    FN(keep)(g, node, FN(score)(sums, g->sums + wide * node, wide), best, f, threshold);
    return 1;
}

static int FN(try_best)(FN(Tree) *g, long node, long f, double *best)
{
    const float *X = g->X + f * g->N;
    int *rows = g->other;
    long n = g->past[node] - g->first[node], wide = g->wide;
    float *x = g->x;
    memcpy(rows, g->rows + g->first[node], sizeof(int) * n);
    for (long i = 0; i < n; i++)
        x[i] = X[rows[i]];
    FN(sort)(x, rows, n);
    if (!(x[0] < x[n - 1]))
        return 0;
    double sums[MOST_TARGETS] = {0};
    for (long i = 0; i + g->leaf < n; i++) {
        const double *target = g->target + wide * rows[i];
        for (long c = 0; c < wide; c += 4)
            FN(store)(sums + c, FN(load)(sums + c) + g->weight[rows[i]] * FN(load)(target + c));
        if (i + 1 < g->leaf || !(x[i] < x[i + 1]))
            continue;
        float threshold = x[i] + (x[i + 1] - x[i]) / 2;
        FN(keep)(g, node, FN(score)(sums, g->sums + wide * node, wide), best, f,
                 threshold < x[i + 1] ? threshold : x[i]);
    }
    return 1;
}

/* Sum a new node's targets, and find its best split. */
static void FN(seek)(FN(Tree) *g, long node)
{
    const int *rows = g->rows + g->first[node];
    long n = g->past[node] - g->first[node], wide = g->wide;
    double *sums = g->sums + wide * node, best = -1.0;
    int equal = 1;
    memset(sums, 0, sizeof(double) * wide);
    for (long i = 0; i < n; i++) {
        const double *target = g->target + wide * rows[i], *before = g->target + wide * rows[i ? i - 1 : 0];
        v4l other = {0};
        for (long c = 0; c < wide; c += 4) {
            v4d own = FN(load)(target + c), weighted = g->weight[rows[i]] * own;
            other |= own != FN(load)(before + c);
            FN(store)(g->weighted + wide * i + c, weighted);
            FN(store)(sums + c, FN(load)(sums + c) + weighted);
        }
        equal = equal && !(other[0] | other[1] | other[2] | other[3]);
    }
    g->gain[node] = -1.0;
    g->child[node] = (int)node;
    if (equal || n < 2 * g->leaf)
        return;
    if (!g->most)
        for (long f = 0; f < g->F; f++)
            FN(try_random)(g, node, f, &best);
    else
        /* Features that do not vary here are drawn too, until one varies. */
        for (long tried = 0, varying = 0; tried < g->F && (tried < g->most || !varying); tried++) {
            long next = tried + (long)(FN(drawn)(g) * (double)(g->F - tried));
            int f = g->order[next];
            g->order[next] = g->order[tried];
            g->order[tried] = f;
            varying |= FN(try_best)(g, node, f, &best);
        }
    double own = 0;
    for (long c = 1; c < wide; c++)
        own += sums[c] * sums[c];
    if (best >= 0)
        g->gain[node] = fmax(best - own / sums[0], 0.0);
}

/* Grow a tree from the `seen` rows; return the number of nodes.  With `leaves` the node that gains most is split next,
 * until there are so many; without, all that can be split are. */
static long FN(grow)(FN(Tree) *g, long seen, long leaves)
{
    long count = 1, next = 0;
    g->first[0] = 0;
    g->past[0] = seen;
    FN(seek)(g, 0);
    for (long n_leaves = 1; !leaves || n_leaves < leaves; n_leaves++) {
        if (leaves)
            for (long i = next = 0; i < count; i++)
                next = FN(above)(g->gain[i], g->gain[next]) ? i : next;
        else
            while (next < count && g->gain[next] < 0)
                next++;
        if (next == count || g->gain[next] < 0)
            break;
        const float *X = g->X + g->feature[next] * g->N, threshold = g->threshold[next];
        long left = g->first[next], right = 0;
        for (long i = g->first[next]; i < g->past[next]; i++) {
            int row = g->rows[i];
            if (X[row] <= threshold)
                g->rows[left++] = row;
            else
                g->other[right++] = row;
        }
        memcpy(g->rows + left, g->other, sizeof(int) * right);
        g->child[next] = (int)count;
        g->gain[next] = -1.0;
        g->first[count] = g->first[next];
        g->past[count] = g->first[count + 1] = left;
        g->past[count + 1] = g->past[next];
        FN(seek)(g, count);
        FN(seek)(g, count + 1);
        count += 2;
    }
    for (long i = 0; i < count; i++)
        if (g->child[i] == i) /* a leaf, even if it could be split */
            g->feature[i] = 0, g->threshold[i] = INFINITY;
    return count;
}

/* Let up to 32 points of X (F, N) take some tests: the leaves that a test excludes lose their bit in the point's words
 * (QuickScorer; Lucchese et al. 2015, doi:10.1145/2766462.2767733).  `left` is in vectors of eight points. */
static ALWAYS_INLINE void FN(take_tests)(const float *X, long N, const Tests *tests, int first, int past, int words,
                                         int vectors, v8i left[2][SIDE_BY_SIDE / 8])
{
    for (int q = first; q < past; q++) {
        const float *x = X + N * tests->feature[q];
        v8f threshold = FN(splatf)(tests->threshold[q]);
        v8i drop[2];
        for (int w = 0; w < words; w++)
            drop[w] = (int)(unsigned)(tests->left[q] >> 32 * w) - (v8i){0};
        for (int v = 0; v < vectors; v++) {
            v8i beyond = FN(loadf)(x + 8 * v) > threshold;
            for (int w = 0; w < words; w++)
                left[w][v] &= ~(beyond & drop[w]);
        }
    }
}

static ALWAYS_INLINE void FN(test_all)(const float *X, long N, const Tests *tests, int words, unsigned long long *bits)
{
    enum { VECTORS = SIDE_BY_SIDE / 8 };
    v8i left[2][VECTORS];
    unsigned half[2][SIDE_BY_SIDE] = {{0}};
    for (int w = 0; w < words; w++)
        for (int v = 0; v < VECTORS; v++)
            left[w][v] = (v8i){-1, -1, -1, -1, -1, -1, -1, -1};
    FN(take_tests)(X, N, tests, 0, tests->n, words, VECTORS, left);
    for (int w = 0; w < words; w++)
        memcpy(half[w], left[w], sizeof left[w]);
    for (int i = 0; i < SIDE_BY_SIDE; i++)
        bits[i] = half[0][i] | (unsigned long long)half[1][i] << 32;
}

/* Find the leaves' bits (n,) that the tests of a tree leave to n rows of X (F, N): the first is the row's leaf.  Both
 * have places for as many rows as come to a multiple of 32. */
static void FN(find_bits)(const float *X, long N, long n, const Tests *tests, unsigned long long *bits)
{
    if (tests->n_leaves <= 32)
        for (long i = 0; i < n; i += SIDE_BY_SIDE)
            FN(test_all)(X + i, N, tests, 1, bits + i);
    else
        for (long i = 0; i < n; i += SIDE_BY_SIDE)
            FN(test_all)(X + i, N, tests, 2, bits + i);
}

/* Find the number of the leaf that up to eight rows of X (F, N) reach, which go down a tree side by side, all to the
 * depth of the deepest leaf: no branch depends on the data. */
static ALWAYS_INLINE void FN(to_leaves)(const float *X, long N, const int *nodes, int root, int depth, int rows,
                                        int *leaf)
{
    int at[8];
    for (int j = 0; j < rows; j++)
        at[j] = root;
    for (int d = 0, moved = 1; moved && d < depth; d++) {
        moved = 0;
        for (int j = 0; j < rows; j++) {
            const int *node = nodes + 4 * (long)at[j];
            float threshold;
            memcpy(&threshold, node + 1, sizeof threshold);
            int next = node[2] + (X[N * node[0] + j] > threshold);
            moved |= next ^ at[j];
            at[j] = next;
        }
    }
    for (int j = 0; j < rows; j++)
        leaf[j] = nodes[4 * (long)at[j] + 3];
}

/* Find the numbers of the leaves (n,) that n rows of X (F, N) reach in a tree.  `bits` are of so many rows, with places
 * as in `find_bits`, and are kept where the tree has a bit for each leaf. */
static void FN(find_leaves)(const float *X, long N, long n, const Tests *tests, const int *nodes, int root, int depth,
                            unsigned long long *bits, int *leaf)
{
    if (tests->n_leaves) {
        FN(find_bits)(X, N, n, tests, bits);
        for (long i = 0; i < n; i++)
            leaf[i] = tests->leaf[__builtin_ctzll(bits[i])];
        return;
    }
    long i = 0;
    for (; i + 8 <= n; i += 8)
        FN(to_leaves)(X + i, N, nodes, root, depth, 8, leaf + i);
    if (i < n)
        FN(to_leaves)(X + i, N, nodes, root, depth, (int)(n - i), leaf + i);
}

/* Add to out (n, K) the values of the rows' leaves. */
static ALWAYS_INLINE void FN(add_values)(const float *value, long K, const int *leaf, long n, double *out)
{
    for (long i = 0; i < n; i++)
        for (long k = 0; k < K; k++)
            out[K * i + k] += value[K * leaf[i] + k];
}

/* Add to out (n, K) the values of the leaves that the first n rows of X (F, N) reach in a tree. */
static void FN(add_leaves)(const float *X, long N, long n, const Tests *tests, const int *nodes, int root, int depth,
                           const float *value, long K, unsigned long long *bits, int *leaf, double *out)
{
    FN(find_leaves)(X, N, n, tests, nodes, root, depth, bits, leaf);
    if (K == 1)
        FN(add_values)(value, 1, leaf, n, out);
    else if (K == 2)
        FN(add_values)(value, 2, leaf, n, out);
    else if (K == 3)
        FN(add_values)(value, 3, leaf, n, out);
    else
        FN(add_values)(value, K, leaf, n, out);
}

/* Which of S points, up to 64 and a multiple of eight, exceed a threshold: a bit each. */
static ALWAYS_INLINE unsigned long long FN(beyond)(const float *x, long S, float threshold)
{
    unsigned long long bits = 0;
#ifdef __AVX2__
    for (long s = 0; s < S; s += 8)
        bits |= (unsigned long long)(unsigned)__builtin_ia32_movmskps256(FN(loadf)(x + s) > FN(splatf)(threshold)) << s;
#else
    for (long s = 0; s < S; s++)
        bits |= (unsigned long long)(x[s] > threshold) << s;
#endif
    return bits;
}

/* Take one point of each set down a tree: the first that is left.  `at` is its leaf, `share` are the points that pass the
 * same tests, so that they reach it too.  Sets go side by side, and no branch depends on the data. */
static ALWAYS_INLINE void FN(descend)(const float *X, long N, long all, long S, const int *nodes, int root, int depth,
                                      const Left *left, int sets, int *at, unsigned long long *share)
{
    const float *x[SETS];
    int first[SETS];
    for (int j = 0; j < sets; j++) {
        at[j] = root;
        share[j] = left[j].points;
        first[j] = __builtin_ctzll(share[j]);
        x[j] = X + all * left[j].set;
    }
    for (int d = 0; d < depth; d++) {
        int moved = 0;
        for (int j = 0; j < sets; j++) {
            const int *node = nodes + 4 * (long)at[j];
            float threshold;
            memcpy(&threshold, node + 1, sizeof threshold);
            unsigned long long over = FN(beyond)(x[j] + N * node[0], S, threshold), right = over >> first[j] & 1;
            share[j] &= over ^ (right - 1);
            moved |= at[j] ^ (node[2] + (int)right);
            at[j] = node[2] + (int)right;
        }
        if (!moved)
            return;
    }
}

/* The same of up to `SETS` sets.  The compiler knows their number, and common numbers of points. */
static void FN(descend_some)(const Sets *sets, long s, long S, const int *nodes, int root, int depth, const Left *left,
                             int some, int *at, unsigned long long *share)
{
    const float *X = sets->X + s;
    if (some < SETS)
        FN(descend)(X, sets->N, sets->apart, S, nodes, root, depth, left, some, at, share);
    else if (S == 8)
        FN(descend)(X, sets->N, sets->apart, 8, nodes, root, depth, left, SETS, at, share);
    else if (S == 16)
        FN(descend)(X, sets->N, sets->apart, 16, nodes, root, depth, left, SETS, at, share);
    else if (S == 32)
        FN(descend)(X, sets->N, sets->apart, 32, nodes, root, depth, left, SETS, at, share);
    else
        FN(descend)(X, sets->N, sets->apart, S, nodes, root, depth, left, SETS, at, share);
}

/* Add to out (K, all), of S points, the values of a leaf where the points are those of `share`. */
static ALWAYS_INLINE void FN(add_shared)(const float *value, long K, unsigned long long share, long S, long all,
                                         double *out)
{
    long s = 0;
    for (; s + 4 <= S; s += 4) {
        long long four = (long long)(share >> s);
        v4l chosen = ((v4l){four, four, four, four} & (v4l){1, 2, 4, 8}) != 0;
        for (long k = 0; k < K; k++) {
            double *sum = out + all * k + s;
            FN(store)(sum, FN(load)(sum) + (v4d)((v4l)FN(splat)(value[k]) & chosen));
        }
    }
    for (; s < S; s++)
        for (long k = 0; k < K; k++)
            out[all * k + s] += share >> s & 1 ? value[k] : 0.0;
}

/* Add to out (n, K, S) the values of the leaves that points s to past of n sets, up to 64, reach in a tree: those that
 * reach the same leaf go down together. */
static ALWAYS_INLINE void FN(add_parted)(const Sets *sets, long s, long past, const int *nodes, int root, int depth,
                                         const float *value, long K)
{
    long S = past - s, all = sets->S;
    Left *left = sets->left;
    for (long i = 0; i < sets->n; i++)
        left[i] = (Left){~0ULL >> (64 - S), i};
    for (long waiting = sets->n, later = 0; waiting; waiting = later, later = 0)
        for (long i = 0; i < waiting; i += SETS) {
            int some = waiting - i < SETS ? (int)(waiting - i) : SETS, at[SETS];
            unsigned long long share[SETS];
            FN(descend_some)(sets, s, (S + 7) / 8 * 8, nodes, root, depth, left + i, some, at, share);
            for (int j = 0; j < some; j++) {
                Left own = left[i + j];
                const float *leaf = value + K * nodes[4 * (long)at[j] + 3];
                FN(add_shared)(leaf, K, share[j], S, all, sets->out + all * K * own.set + s);
                own.points &= ~share[j];
                left[later] = own;
                later += own.points != 0;
            }
        }
}

/* The same of up to 32 points of one set, in a tree that has a bit for each leaf: of the leaves that all may reach, in
 * `bits`, the tests of the features that vary leave each point its own. */
static ALWAYS_INLINE void FN(add_tested)(const float *x, long N, long S, const Tests *tests, const int *first,
                                         const int *varying, unsigned long long bits, const float *value, long K,
                                         long all, double *out)
{
    int vectors = (int)(S + 7) / 8;
    v8i left[2][SIDE_BY_SIDE / 8];
    unsigned half[2][SIDE_BY_SIDE];
    for (int w = 0; w < 2; w++)
        for (int v = 0; v < vectors; v++)
            left[w][v] = (int)(unsigned)(bits >> 32 * w) - (v8i){0};
    for (; *varying >= 0; varying++)
        if (tests->n_leaves <= 32)
            FN(take_tests)(x, N, tests, first[*varying], first[*varying + 1], 1, vectors, left);
        else
            FN(take_tests)(x, N, tests, first[*varying], first[*varying + 1], 2, vectors, left);
    for (int w = 0; w < 2; w++)
        memcpy(half[w], left[w], sizeof(v8i) * vectors);
    for (long s = 0; s < S; s++) {
        int leaf = tests->leaf[__builtin_ctzll(half[0][s] | (unsigned long long)half[1][s] << 32)];
        for (long k = 0; k < K; k++)
            out[all * k + s] += value[K * leaf + k];
    }
}

/* Which of eight sets a test takes from the first leaf that they may reach, in the bits a and b, to another: a bit each. */
static ALWAYS_INLINE int FN(leaving)(v4ul a, v4ul b, unsigned long long left, v8i beyond)
{
    v4ul gone_a = (v4ul)((a & -a & left) != 0), gone_b = (v4ul)((b & -b & left) != 0);
#ifdef __AVX2__
    int gone = __builtin_ia32_movmskpd256((v4d)gone_a) | __builtin_ia32_movmskpd256((v4d)gone_b) << 4;
    return gone & __builtin_ia32_movmskps256((v8f)beyond);
#else
    int gone = 0;
    for (int j = 0; j < 4; j++)
        gone |= (gone_a[j] && beyond[j]) << j | (gone_b[j] && beyond[4 + j]) << (4 + j);
    return gone;
#endif
}

/* The same of up to eight sets from i on, whose points rise along one feature f.  A set has the value of the leaf that the
 * first point reaches.  Thresholds rise too: each test that takes the last point to another leaf adds what this leaf has
 * more to the first point beyond. */
static ALWAYS_INLINE void FN(add_rising)(const Sets *sets, long i, int some, const Tests *tests, int f, const float *value,
                                         long K)
{
    int leaf[8];
    for (int j = 0; j < some; j++) {
        leaf[j] = tests->leaf[__builtin_ctzll(sets->bits[i + j])];
        for (long k = 0; k < K; k++)
            sets->all[K * (i + j) + k] += value[K * leaf[j] + k];
    }
    const float *x = sets->X + sets->N * f + sets->apart * i;
    v8f most = FN(loadf)(sets->most + sets->places * f + i);
    unsigned long long bits[8];
    v4ul a, b;
    memcpy(&a, sets->bits + i, sizeof a), memcpy(&b, sets->bits + i + 4, sizeof b);
    for (int q = sets->first[f]; q < sets->first[f + 1]; q++) {
        unsigned long long left = tests->left[q];
        float threshold = tests->threshold[q];
        int leaving = FN(leaving)(a, b, left, most > FN(splatf)(threshold)) & ((1 << some) - 1);
        a &= ~left, b &= ~left;
        memcpy(bits, &a, sizeof a), memcpy(bits + 4, &b, sizeof b);
        for (; leaving; leaving &= leaving - 1) {
            int j = __builtin_ctz(leaving), next = tests->leaf[__builtin_ctzll(bits[j])];
            long s = __builtin_ctzll(FN(beyond)(x + sets->apart * j, sets->apart, threshold));
            double *more = sets->more + K * (sets->S * (i + j) + s);
            for (long k = 0; k < K; k++)
                more[k] += (double)value[K * next + k] - value[K * leaf[j] + k];
            leaf[j] = next;
        }
    }
}

/* The same of all points of n sets. */
static ALWAYS_INLINE void FN(add_sets)(const Sets *sets, const Tests *tests, const int *nodes, int root, int depth,
                                       const float *value, long K)
{
    long n = sets->n, S = sets->S;
    for (long s = 0; s < S && !tests->n_leaves; s += 64)
        FN(add_parted)(sets, s, S - s < 64 ? S : s + 64, nodes, root, depth, value, K);
    if (!tests->n_leaves)
        return;
    FN(find_bits)(sets->least, sets->places, n, tests, sets->bits);
    if (sets->n_others)
        FN(find_bits)(sets->most, sets->places, n, tests, sets->last);
    for (long i = 0; i < n;) {
        int f = sets->rising[i], some = 1;
        while (f >= 0 && some < 8 && i + some < n && sets->rising[i + some] == f)
            some++;
        int from = __builtin_ctzll(sets->bits[i]);
        if (f >= 0)
            FN(add_rising)(sets, i, some, tests, f, value, K);
        else if (from == __builtin_ctzll(sets->last[i])) /* the least and the most, so all */
            for (long k = 0; k < K; k++)
                sets->all[K * i + k] += value[K * tests->leaf[from] + k];
        else
            for (long s = 0; s < S; s += SIDE_BY_SIDE)
                FN(add_tested)(sets->X + sets->apart * i + s, sets->N, S - s < SIDE_BY_SIDE ? S - s : SIDE_BY_SIDE, tests,
                               sets->first, sets->varying + (sets->F + 1) * i, sets->bits[i], value, K, S,
                               sets->out + S * K * i + s);
        i += some;
    }
}

/* Add to the sums of the sets the values of the leaves that their points reach in a tree. */
static void FN(add_leaves_of_sets)(const Sets *sets, const Tests *tests, const int *nodes, int root, int depth,
                                   const float *value, long K)
{
    if (K == 1)
        FN(add_sets)(sets, tests, nodes, root, depth, value, 1);
    else if (K == 2)
        FN(add_sets)(sets, tests, nodes, root, depth, value, 2);
    else if (K == 3)
        FN(add_sets)(sets, tests, nodes, root, depth, value, 3);
    else
        FN(add_sets)(sets, tests, nodes, root, depth, value, K);
}
