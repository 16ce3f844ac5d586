/* The inner loops of LSTM layers for registers of LANES numbers, of which ROWS by TALL lines fit into those of the processor.
   Included once for each kind: NAME makes the names, TARGET says which instructions may be used. */
#define VECS (LINE / LANES)
#define vec NAME(vec)
#define whole NAME(whole)
#define loose NAME(loose)
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef int32_t whole __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* a vec anywhere */

/* Some rows by some lines, all sums in registers. One of `down` and `along` is known to be 1. */
TARGET INLINE void NAME(tile)(const float *a, int64_t down, int64_t along, const float *b, int64_t apart, float *c, int64_t c_row,
                              int k, int add, const int m, const int vecs) {
    vec sum[ROWS * TALL * VECS];
    UNROLL for (int i = 0; i < m; i++)
        UNROLL for (int v = 0; v < vecs; v++) sum[i * vecs + v] = add ? *(const vec *)(c + i * c_row + v * LANES) : (vec){0};
    for (int t = 0; t < k; t++, a += along, b += apart)
        UNROLL for (int i = 0; i < m; i++)
            UNROLL for (int v = 0; v < vecs; v++) sum[i * vecs + v] += a[i * down] * *(const vec *)(b + v * LANES);
    UNROLL for (int i = 0; i < m; i++)
        UNROLL for (int v = 0; v < vecs; v++) *(vec *)(c + i * c_row + v * LANES) = sum[i * vecs + v];
}

/* Up to ROWS rows of one panel. */
TARGET INLINE void NAME(rows)(const float *a, int64_t down, int64_t along, const float *b, int64_t apart, float *c, int64_t c_row,
                              int m, int wide, int k, int add) {
    for (int some; wide; wide -= some, b += some * LINE, c += some * LINE) {
        some = wide < TALL ? wide : TALL;
#define CASE(r, n) \
    case 4 * r + n: \
        if (r <= ROWS && n <= TALL) \
            NAME(tile)(a, down, along, b, apart, c, c_row, k, add, r <= ROWS ? r : 0, n <= TALL ? n * VECS : 0); \
        break;
        switch (4 * m + some) {
            CASE(1, 1) CASE(2, 1) CASE(3, 1) CASE(4, 1) CASE(5, 1) CASE(6, 1) CASE(7, 1) CASE(8, 1) CASE(9, 1) CASE(10, 1)
            CASE(11, 1) CASE(12, 1) CASE(1, 2) CASE(2, 2) CASE(3, 2) CASE(4, 2) CASE(5, 2) CASE(6, 2) CASE(7, 2) CASE(8, 2)
            CASE(9, 2) CASE(10, 2) CASE(11, 2) CASE(12, 2)
        }
#undef CASE
    }
}

TARGET static void NAME(multiply)(const float *a, int64_t down, int64_t along, const float *b, int64_t apart, int64_t panel,
                                  float *c, int64_t c_row, int m, int wide, int k, int add) {
    const int parts = (m + ROWS - 1) / ROWS, panels = (wide * LINE + PANEL - 1) / PANEL; /* parts are nearly equal */
    for (int64_t one = 0; one < (int64_t)parts * panels; one++) {
        /* A panel for all rows; but all panels for some rows where those of b are read from far apart. */
        const int64_t part = along == 1 ? one % parts : one / panels, which = along == 1 ? one / parts : one % panels;
        const int64_t from = m * part / parts, first = which * (PANEL / LINE);
        const int count = (int)(m * (part + 1) / parts - from);
        const int some = wide - first < PANEL / LINE ? (int)(wide - first) : PANEL / LINE;
        const float *at = b + which * panel;
        float *to = c + from * c_row + which * PANEL;
        if (along == 1) NAME(rows)(a + from * down, down, 1, at, apart, to, c_row, count, some, k, add);
        else NAME(rows)(a + from, 1, along, at, apart, to, c_row, count, some, k, add);
    }
}

/* e to the power of x is 2 to the power of n, which is returned, times 1 + rest; what is no number stays so. */
TARGET INLINE vec NAME(power)(vec x, vec *rest) {
    const vec magic = (vec){0} + 12582912.0f; /* 1.5 * 2^23: whole numbers are in the last bits of what is added to it */
    const vec near = x * 1.44269504f + magic, n = near - magic;
    const vec r = (x - n * 0.693359375f) + n * 2.12194440e-4f;
    vec p = (vec){0} + 1.98756912e-4f;
    p = p * r + 1.39819995e-3f;
    p = p * r + 8.33345205e-3f;
    p = p * r + 4.16657962e-2f;
    p = p * r + 1.66666657e-1f;
    p = p * r + 0.5f;
    *rest = p * (r * r) + r;
    return (vec)(((whole)near << 23) + 0x3f800000);
}

/* x, but not beyond these. */
TARGET INLINE vec NAME(within)(vec x, float least, float most) {
    const vec low = (vec){0} + least, high = (vec){0} + most;
    const whole below = x < low, above = x > high;
    return (vec)((below & (whole)low) | (above & (whole)high) | (~(below | above) & (whole)x));
}

TARGET INLINE vec NAME(sigmoid)(vec x) {
    vec rest;
    const vec two = NAME(power)(NAME(within)(-x, -87, 87), &rest);
    return 1 / ((two + 1) + two * rest);
}

TARGET INLINE vec NAME(tanh)(vec x) { /* precise near zero, too */
    vec rest;
    const vec two = NAME(power)(NAME(within)(x, -10, 10) * 2, &rest), less = two * rest + (two - 1);
    return less / (less + 2);
}

/* As many of these numbers as there are left. */
TARGET INLINE void NAME(put)(float *to, vec x, int left) {
    if (left >= LANES) *(loose *)to = x;
    else
        for (int l = 0; l < left; l++) to[l] = x[l];
}

TARGET static void NAME(step)(float *gates, const float *before, float *state, float *curved, float *to, float *also,
                              int hidden) {
    for (int j = 0; j < hidden; j += LANES) {
        float *at = gates + j;
        const int left = hidden - j;
        const vec i = NAME(sigmoid)(*(const loose *)at), f = NAME(sigmoid)(*(const loose *)(at + hidden));
        const vec g = NAME(tanh)(*(const loose *)(at + 2 * hidden)), o = NAME(sigmoid)(*(const loose *)(at + 3 * hidden));
        const vec c = f * *(const vec *)(before + j) + i * g, curve = NAME(tanh)(c), h = o * curve;
        NAME(put)(at, i, left), NAME(put)(at + hidden, f, left);
        NAME(put)(at + 2 * hidden, g, left), NAME(put)(at + 3 * hidden, o, left);
        *(vec *)(state + j) = c, *(vec *)(curved + j) = curve;
        if (to) NAME(put)(to + j, h, left);
        if (also) NAME(put)(also + j, h, left);
    }
}

TARGET static void NAME(back)(float *gates, const float *before, const float *curved, const float *own, const float *above,
                              float *carried, int hidden) {
    for (int j = 0; j < hidden; j += LANES) {
        float *at = gates + j;
        const int left = hidden - j;
        const vec i = *(const loose *)at, f = *(const loose *)(at + hidden);
        const vec g = *(const loose *)(at + 2 * hidden), o = *(const loose *)(at + 3 * hidden);
        const vec curve = *(const vec *)(curved + j);
        vec dh = {0};
        if (own) dh += *(const loose *)(own + j);
        if (above) dh += *(const loose *)(above + j);
        const vec dc = *(const vec *)(carried + j) + dh * o * (1 - curve * curve);
        NAME(put)(at, dc * g * i * (1 - i), left);
        NAME(put)(at + hidden, dc * *(const vec *)(before + j) * f * (1 - f), left);
        NAME(put)(at + 2 * hidden, dc * i * (1 - g * g), left);
        NAME(put)(at + 3 * hidden, dh * curve * o * (1 - o), left);
        *(vec *)(carried + j) = dc * f;
    }
}

static const Loops NAME(loops) = {NAME(multiply), NAME(step), NAME(back)};
#undef VECS
#undef vec
#undef whole
#undef loose
