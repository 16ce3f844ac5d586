/* The two inner loops for registers of LANES numbers, of which BLOCK lines by PIXELS, or MOST lines, fit into those of the
   processor. Included once for each kind: NAME makes the names, TARGET says which instructions may be used. */
#define VECS (LINE / LANES)
#define vec NAME(vec)
#define loose NAME(loose)
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* a vec anywhere */

/* Some pixels by some lines of filters, all sums in registers. */
TARGET INLINE void NAME(block)(const float *const *at, int64_t apart, int high, int64_t taps, const float *w, int64_t wide,
                               float *const *out, const int vecs) {
    vec sum[PIXELS * BLOCK * VECS];
    UNROLL for (int i = 0; i < PIXELS * vecs; i++) sum[i] = (vec){0};
    for (int r = 0; r < high; r++) {
        const float *x[PIXELS];
        UNROLL for (int i = 0; i < PIXELS; i++) x[i] = at[i] + r * apart;
        for (int64_t t = 0; t < taps; t++, w += wide)
            UNROLL for (int i = 0; i < PIXELS; i++)
                UNROLL for (int v = 0; v < vecs; v++) sum[i * vecs + v] += x[i][t] * *(const vec *)(w + v * LANES);
    }
    UNROLL for (int i = 0; i < PIXELS; i++)
        UNROLL for (int v = 0; v < vecs; v++) *(vec *)(out[i] + v * LANES) = sum[i * vecs + v];
}

TARGET static void NAME(convolve)(const Stage *s, const float *in, const float *across, float *y) {
    const int64_t wide = lines(s->filters), apart = row(s), each = taps(s);
    const int broad = columns(s), count = rows(s) * broad;
    const float *at[PIXELS];
    float *out[PIXELS];
    for (int first = 0; first < count; first += PIXELS) {
        for (int i = 0; i < PIXELS; i++) {
            const int pixel = first + i < count ? first + i : count - 1; /* the last one more often than needed */
            at[i] = in + pixel / broad * apart + pixel % broad * s->channels;
            out[i] = y + pixel * wide;
        }
        for (int64_t f = 0; f < wide;) {
            const int some = wide - f >= BLOCK * LINE ? BLOCK : (int)(wide - f) / LINE;
#define CASE(n) case n: NAME(block)(at, apart, s->high, each, across + f, wide, out, n <= BLOCK ? n * VECS : 0); break;
            switch (some) { CASE(1) CASE(2) CASE(3) CASE(4) }
#undef CASE
            f += some * LINE;
            for (int i = 0; i < PIXELS; i++) out[i] += some * LINE;
        }
    }
}

TARGET INLINE void NAME(sum)(const Entry *list, int count, const float *from, int64_t unit, int64_t apart, float *into,
                             int64_t into_apart, const int high, const int vecs) {
    vec sum[MOST * VECS];
    UNROLL for (int r = 0; r < high; r++)
        UNROLL for (int v = 0; v < vecs; v++) sum[r * vecs + v] = *(const loose *)(into + r * into_apart + v * LANES);
    for (int i = 0; i < count; i++) {
        const float *at = from + list[i].where * unit, value = list[i].value;
        UNROLL for (int r = 0; r < high; r++)
            UNROLL for (int v = 0; v < vecs; v++) sum[r * vecs + v] += value * *(const loose *)(at + r * apart + v * LANES);
    }
    UNROLL for (int r = 0; r < high; r++)
        UNROLL for (int v = 0; v < vecs; v++) *(loose *)(into + r * into_apart + v * LANES) = sum[r * vecs + v];
}

TARGET static void NAME(gather)(const Entry *list, int count, const float *from, int64_t unit, int64_t apart, float *into,
                                int64_t into_apart, int high, int wide) {
#define CASE(r, n) \
    case 100 * r + n: \
        if (r * n <= MOST) NAME(sum)(list, count, from, unit, apart, into, into_apart, r, r * n <= MOST ? n * VECS : 0); \
        break;
    switch (100 * high + wide) {
        CASE(1, 1) CASE(1, 2) CASE(1, 3) CASE(1, 4) CASE(1, 5) CASE(1, 6) CASE(1, 7) CASE(1, 8) CASE(1, 9) CASE(1, 10)
        CASE(3, 1) CASE(3, 2) CASE(3, 3) CASE(3, 4) CASE(3, 5) CASE(3, 6) CASE(5, 1) CASE(5, 2) CASE(5, 3) CASE(5, 4)
    }
#undef CASE
}

static const Kernels NAME(kernels) = {NAME(convolve), NAME(gather), MOST, LANES};
#undef VECS
#undef vec
#undef loose
