/* The inner loops of Winograd's filtering for registers of LANES numbers, of which ROWS by VECS hold sums, and tiles of OUT by
   OUT outputs. Included once for each kind: NAME makes the names, TARGET says which instructions may be used. */
#define SIDE (OUT + 2)
#define vec NAME(vec)
#define loose NAME(loose)
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* a vec anywhere */
typedef int32_t NAME(order) __attribute__((vector_size(4 * LANES)));

/* Along one side: pixels to points, gradients of outputs to points, weights to points, and the ways back. */
#if OUT == 2
TARGET INLINE void NAME(pixels)(const vec *d, int s, vec *v, int t) {
    v[0] = d[0] - d[2 * s], v[t] = d[s] + d[2 * s], v[2 * t] = d[2 * s] - d[s], v[3 * t] = d[s] - d[3 * s];
}
TARGET INLINE void NAME(outputs)(const vec *m, int s, vec *y, int t) {
    y[0] = m[0] + m[s] + m[2 * s], y[t] = m[s] - m[2 * s] - m[3 * s];
}
TARGET INLINE void NAME(slopes)(const vec *d, int s, vec *v, int t) {
    v[0] = d[0], v[t] = d[0] + d[s], v[2 * t] = d[0] - d[s], v[3 * t] = -d[s];
}
TARGET INLINE void NAME(weights)(const vec *g, int s, vec *u, int t) {
    const vec ends = (g[0] + g[2 * s]) * 0.5f, middle = g[s] * 0.5f;
    u[0] = g[0], u[t] = ends + middle, u[2 * t] = ends - middle, u[3 * t] = g[2 * s];
}
TARGET INLINE void NAME(gradients)(const vec *u, int s, vec *g, int t) {
    const vec ends = (u[s] + u[2 * s]) * 0.5f;
    g[0] = u[0] + ends, g[t] = (u[s] - u[2 * s]) * 0.5f, g[2 * t] = ends + u[3 * s];
}
#else
TARGET INLINE void NAME(pixels)(const vec *d, int s, vec *v, int t) {
    const vec even_a = d[4 * s] - BB * d[2 * s], odd_a = A * (d[3 * s] - BB * d[s]);
    const vec even_b = d[4 * s] - AA * d[2 * s], odd_b = B * (d[3 * s] - AA * d[s]);
    v[0] = AA * BB * d[0] - (AA + BB) * d[2 * s] + d[4 * s], v[5 * t] = AA * BB * d[s] - (AA + BB) * d[3 * s] + d[5 * s];
    v[t] = even_a + odd_a, v[2 * t] = even_a - odd_a, v[3 * t] = even_b + odd_b, v[4 * t] = even_b - odd_b;
}
TARGET INLINE void NAME(outputs)(const vec *m, int s, vec *y, int t) {
    const vec even_a = m[s] + m[2 * s], odd_a = A * (m[s] - m[2 * s]);
    const vec even_b = m[3 * s] + m[4 * s], odd_b = B * (m[3 * s] - m[4 * s]);
    y[0] = m[0] + even_a + even_b, y[2 * t] = AA * even_a + BB * even_b;
    y[t] = odd_a + odd_b, y[3 * t] = AA * odd_a + BB * odd_b + m[5 * s];
}
TARGET INLINE void NAME(slopes)(const vec *d, int s, vec *v, int t) {
    const vec even_a = d[0] + AA * d[2 * s], odd_a = A * (d[s] + AA * d[3 * s]);
    const vec even_b = d[0] + BB * d[2 * s], odd_b = B * (d[s] + BB * d[3 * s]);
    v[0] = d[0], v[5 * t] = d[3 * s];
    v[t] = even_a + odd_a, v[2 * t] = even_a - odd_a, v[3 * t] = even_b + odd_b, v[4 * t] = even_b - odd_b;
}
TARGET INLINE void NAME(weights)(const vec *g, int s, vec *u, int t) {
    const vec even_a = AT_A * (g[0] + AA * g[2 * s]), odd_a = AT_A * A * g[s];
    const vec even_b = AT_B * (g[0] + BB * g[2 * s]), odd_b = AT_B * B * g[s];
    u[0] = AT_0 * g[0], u[5 * t] = g[2 * s];
    u[t] = even_a + odd_a, u[2 * t] = even_a - odd_a, u[3 * t] = even_b + odd_b, u[4 * t] = even_b - odd_b;
}
TARGET INLINE void NAME(gradients)(const vec *u, int s, vec *g, int t) {
    const vec even_a = AT_A * (u[s] + u[2 * s]), odd_a = AT_A * A * (u[s] - u[2 * s]);
    const vec even_b = AT_B * (u[3 * s] + u[4 * s]), odd_b = AT_B * B * (u[3 * s] - u[4 * s]);
    g[0] = AT_0 * u[0] + even_a + even_b, g[t] = odd_a + odd_b, g[2 * t] = AA * even_a + BB * even_b + u[5 * s];
}
#endif

/* The same along both sides of a square. */
#define BOTH(f, from, in, to, out) \
    do { \
        vec half[out * in]; \
        UNROLL for (int j = 0; j < in; j++) f(from + j, in, half + j, in); \
        UNROLL for (int i = 0; i < out; i++) f(half + i * in, 1, to + i * out, 1); \
    } while (0)

/* The channels of one tile to the points, `apart` numbers from point to point, `panel` from panel to panel. */
TARGET static void NAME(take)(const float *const *at, int channels, float *to, int64_t apart, int64_t panel) {
    for (int first = 0; first < channels; first += PANEL, to += panel)
        for (int c = 0; c < PANEL; c += LANES) {
            vec d[SIDE * SIDE], v[SIDE * SIDE];
            UNROLL for (int i = 0; i < SIDE * SIDE; i++) d[i] = *(const loose *)(at[i] + first + c);
            BOTH(NAME(pixels), d, SIDE, v, SIDE);
            UNROLL for (int i = 0; i < SIDE * SIDE; i++) *(vec *)(to + i * apart + c) = v[i];
        }
}

/* The same for gradients of a tile's outputs. */
TARGET static void NAME(take_slopes)(const float *const *at, int channels, float *to, int64_t apart, int64_t panel) {
    for (int first = 0; first < channels; first += PANEL, to += panel)
        for (int c = 0; c < PANEL; c += LANES) {
            vec d[OUT * OUT], v[SIDE * SIDE];
            UNROLL for (int i = 0; i < OUT * OUT; i++) d[i] = *(const loose *)(at[i] + first + c);
            BOTH(NAME(slopes), d, OUT, v, SIDE);
            UNROLL for (int i = 0; i < SIDE * SIDE; i++) *(vec *)(to + i * apart + c) = v[i];
        }
}

/* A panel of one tile from the points to its outputs. */
TARGET static void NAME(give)(const float *from, int64_t apart, float *const *at) {
    for (int c = 0; c < PANEL; c += LANES) {
        vec m[SIDE * SIDE], y[OUT * OUT];
        UNROLL for (int i = 0; i < SIDE * SIDE; i++) m[i] = *(const vec *)(from + i * apart + c);
        BOTH(NAME(outputs), m, SIDE, y, OUT);
        UNROLL for (int i = 0; i < OUT * OUT; i++) *(loose *)(at[i] + c) = y[i];
    }
}

/* `wide` filters of so many channels to the points: tap t of channel k is at from + k * each + t * tap. */
TARGET static void NAME(take_weights)(const float *from, int64_t each, int64_t tap, int count, int wide, float *to,
                                      int64_t apart) {
    for (int k = 0; k < count; k++, from += each, to += PANEL)
        for (int c = 0; c < wide; c += LANES) {
            vec g[9], u[SIDE * SIDE];
            UNROLL for (int i = 0; i < 9; i++) g[i] = *(const loose *)(from + i * tap + c);
            BOTH(NAME(weights), g, 3, u, SIDE);
            UNROLL for (int i = 0; i < SIDE * SIDE; i++) *(vec *)(to + i * apart + c) = u[i];
        }
}

/* Rows become columns, LINE of each: those of `from` are `apart`. What comes next is fetched meanwhile. */
TARGET static void NAME(turn)(const float *from, int64_t apart, float *to) {
#if defined(__clang__)
    for (int i = 0; i < LINE; i++)
        for (int j = 0; j < LINE; j++) to[j * LINE + i] = from[i * apart + j];
#else
    for (int r = 0; r < LINE; r += LANES)
        for (int c = 0; c < LINE; c += LANES) {
            vec x[LANES];
            UNROLL for (int i = 0; i < LANES; i++) {
                x[i] = *(const loose *)(from + (r + i) * apart + c);
                __builtin_prefetch(from + (r + i) * apart + c + AHEAD);
            }
            UNROLL for (int bit = 0; bit < 4; bit++) { /* squares of 2, 4, ... numbers */
                const int s = 1 << bit;
                NAME(order) low, high;
                UNROLL for (int l = 0; l < LANES; l++) {
                    low[l] = l & s ? LANES + l - s : l;
                    high[l] = l & s ? LANES + l : l + s;
                }
                UNROLL for (int i = 0; i < LANES; i++)
                    if (s < LANES && !(i & s)) {
                        const vec a = x[i], b = x[i + s];
                        x[i] = __builtin_shuffle(a, b, low), x[i + s] = __builtin_shuffle(a, b, high);
                    }
            }
            UNROLL for (int i = 0; i < LANES; i++) *(vec *)(to + (c + i) * LINE + r) = x[i];
        }
#endif
}

/* A panel of gradients at the points to those of the weights. */
TARGET static void NAME(give_gradients)(const float *from, int64_t apart, float *to, int64_t each, int64_t tap, int count) {
    for (int k = 0; k < count; k++, to += each, from += PANEL)
        for (int c = 0; c < PANEL; c += LANES) {
            vec u[SIDE * SIDE], g[9];
            UNROLL for (int i = 0; i < SIDE * SIDE; i++) u[i] = *(const vec *)(from + i * apart + c);
            BOTH(NAME(gradients), u, SIDE, g, 3);
            UNROLL for (int i = 0; i < 9; i++) *(loose *)(to + i * tap + c) = g[i];
        }
}

/* Some rows of a product with a panel, all sums in registers: rows of `a` are `row` apart, its columns `step`; there are `count`
   of the latter in each of `parts`. */
TARGET INLINE void NAME(sums)(const float *a, int64_t row, int64_t step, int count, int parts, int64_t part, const float *b,
                              float *c, int add, const int rows) {
    for (int first = 0; first < PANEL; first += VECS * LANES) {
        const float *from = a, *with = b + first;
        vec sum[ROWS * VECS];
        UNROLL for (int i = 0; i < rows * VECS; i++) sum[i] = (vec){0};
        for (int p = 0; p < parts; p++, from += part)
            for (int k = 0; k < count; k++, with += PANEL)
                UNROLL for (int i = 0; i < rows; i++)
                    UNROLL for (int v = 0; v < VECS; v++)
                        sum[i * VECS + v] += from[i * row + k * step] * *(const vec *)(with + v * LANES);
        UNROLL for (int i = 0; i < rows; i++)
            UNROLL for (int v = 0; v < VECS; v++) {
                vec *to = (vec *)(c + i * PANEL + first + v * LANES);
                *to = add ? *to + sum[i * VECS + v] : sum[i * VECS + v];
            }
    }
}

TARGET INLINE void NAME(rows)(const float *a, int64_t row, int64_t step, int count, int parts, int64_t part, const float *b,
                              float *c, int add, int all) {
    for (; all >= ROWS; all -= ROWS, a += ROWS * row, c += ROWS * PANEL)
        NAME(sums)(a, row, step, count, parts, part, b, c, add, ROWS);
#define CASE(n) case n: NAME(sums)(a, row, step, count, parts, part, b, c, add, n); break;
    switch (all) { CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) }
#undef CASE
}

/* c (tiles, PANEL) = a (tiles, channels, in panels) b (channels, PANEL) */
TARGET static void NAME(multiply)(const float *a, const float *b, float *c, int tiles, int channels) {
    NAME(rows)(a, PANEL, 1, PANEL, channels / PANEL, (int64_t)tiles * PANEL, b, c, 0, tiles);
}

/* c (PANEL, PANEL) = a (tiles, PANEL) across b (tiles, PANEL), or is added to what is there. */
TARGET static void NAME(correlate)(const float *a, const float *b, float *c, int tiles, int add) {
    NAME(rows)(a, 1, PANEL, tiles, 1, 0, b, c, add, PANEL);
}

static const Tiling NAME(tiling) = {OUT, NAME(take), NAME(take_slopes), NAME(give), NAME(take_weights), NAME(turn), NAME(give_gradients),
                                    NAME(multiply), NAME(correlate)};
#undef SIDE
#undef vec
#undef loose
#undef BOTH
