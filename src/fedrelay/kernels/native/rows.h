/* The inner loops over long rows for registers of LANES numbers: those of the processor hold HIGH x BROAD sums and what they are
   made of. Included once for each kind: NAME makes the names, TARGET says which instructions may be used. What does not fill a
   register at the end of a row is read with the numbers before it, and those are taken as zero. */
#define vec NAME(vec)
#define loose NAME(loose)
#define mask NAME(mask)
typedef float vec __attribute__((vector_size(4 * LANES)));
typedef float loose __attribute__((vector_size(4 * LANES), aligned(4), may_alias)); /* a vec anywhere */
typedef int32_t mask __attribute__((vector_size(4 * LANES)));

/* Which numbers of the last register of a row no other one has. */
TARGET INLINE mask NAME(rest)(int64_t wide) {
    mask found;
    for (int l = 0; l < LANES; l++) found[l] = l >= LANES - wide % LANES ? -1 : 0;
    return found;
}

TARGET INLINE vec NAME(at)(const float *place) { return *(const loose *)place; }
TARGET INLINE vec NAME(cut)(vec a, mask kept) { return (vec)((mask)a & kept); }

/* The sum of a register's numbers in four parts. */
TARGET INLINE quad NAME(four)(vec a) {
    quad parts[LANES / 4];
    memcpy(parts, &a, sizeof a);
    UNROLL for (int i = 1; i < LANES / 4; i++) parts[0] += parts[i];
    return parts[0];
}

#if LANES == 16 && defined(SHUFFLE)
#define EACH(a, b, c, d) a, a + 1, a + 2, a + 3, b, b + 1, b + 2, b + 3, c, c + 1, c + 2, c + 3, d, d + 1, d + 2, d + 3
/* Four registers' parts side by side, summed as `four` does. */
TARGET INLINE vec NAME(fours)(vec a, vec b, vec c, vec d) {
    const vec ab = SHUFFLE(a, b, EACH(0, 4, 16, 20)), more_ab = SHUFFLE(a, b, EACH(8, 12, 24, 28));
    const vec cd = SHUFFLE(c, d, EACH(0, 4, 16, 20)), more_cd = SHUFFLE(c, d, EACH(8, 12, 24, 28));
    return ((SHUFFLE(ab, cd, EACH(0, 8, 16, 24)) + SHUFFLE(ab, cd, EACH(4, 12, 20, 28))) +
            SHUFFLE(more_ab, more_cd, EACH(0, 8, 16, 24))) + SHUFFLE(more_ab, more_cd, EACH(4, 12, 20, 28));
}

#define QUADS(a, b, c, d) a, b, c, d, a + 4, b + 4, c + 4, d + 4, a + 8, b + 8, c + 8, d + 8, a + 12, b + 12, c + 12, d + 12
/* The sums of the numbers of sixteen registers: as `four` and `totals` add them up, four times as many at once. */
TARGET INLINE vec NAME(sixteen)(const vec *a) {
    const vec p = NAME(fours)(a[0], a[4], a[8], a[12]), q = NAME(fours)(a[1], a[5], a[9], a[13]);
    const vec r = NAME(fours)(a[2], a[6], a[10], a[14]), s = NAME(fours)(a[3], a[7], a[11], a[15]);
    const vec one = SHUFFLE(p, q, QUADS(0, 16, 1, 17)) + SHUFFLE(p, q, QUADS(2, 18, 3, 19));
    const vec two = SHUFFLE(r, s, QUADS(0, 16, 1, 17)) + SHUFFLE(r, s, QUADS(2, 18, 3, 19));
    return SHUFFLE(one, two, QUADS(0, 1, 16, 17)) + SHUFFLE(one, two, QUADS(2, 3, 18, 19));
}

/* All sums of a block, each in one number. */
TARGET INLINE void NAME(summed)(const vec *sum, float *found) {
    vec all[ROOM];
    UNROLL for (int i = 0; i < ROOM; i++) all[i] = i < BROAD * HIGH ? sum[i] : (vec){0};
    UNROLL for (int i = 0; i < ROOM; i += 16) *(loose *)(found + i) = NAME(sixteen)(all + i);
}
#else
TARGET INLINE void NAME(summed)(const vec *sum, float *found) {
    quad parts[ROOM];
    UNROLL for (int i = 0; i < ROOM; i++) parts[i] = i < BROAD * HIGH ? NAME(four)(sum[i]) : (quad){0};
    UNROLL for (int i = 0; i < ROOM; i += 4) {
        const quad all = totals(parts + i);
        memcpy(found + i, &all, sizeof all);
    }
}
#endif

/* The products of BROAD rows with HIGH rows, of which `broad` by `high` are wanted. */
TARGET INLINE void NAME(dot)(const float *const *x, const float *const *y, int64_t wide, mask kept, float *out, int64_t apart,
                             int broad, int high) {
    vec sum[BROAD * HIGH], here[BROAD];
    float found[ROOM];
    int64_t k = 0;
    UNROLL for (int i = 0; i < BROAD * HIGH; i++) sum[i] = (vec){0};
    for (; k + LANES <= wide; k += LANES) {
        UNROLL for (int i = 0; i < BROAD; i++) here[i] = NAME(at)(x[i] + k);
        UNROLL for (int j = 0; j < HIGH; j++)
            UNROLL for (int i = 0; i < BROAD; i++) sum[i * HIGH + j] += here[i] * NAME(at)(y[j] + k);
    }
    if (k < wide) {
        UNROLL for (int i = 0; i < BROAD; i++) here[i] = NAME(cut)(NAME(at)(x[i] + wide - LANES), kept);
        UNROLL for (int j = 0; j < HIGH; j++)
            UNROLL for (int i = 0; i < BROAD; i++) sum[i * HIGH + j] += here[i] * NAME(at)(y[j] + wide - LANES);
    }
    NAME(summed)(sum, found);
    if (broad >= BROAD && high >= HIGH) {
        UNROLL for (int i = 0; i < BROAD; i++) memcpy(out + i * apart, found + i * HIGH, sizeof(float) * HIGH);
        return;
    }
    for (int i = 0; i < BROAD && i < broad; i++)
        for (int j = 0; j < HIGH && j < high; j++) out[i * apart + j] = found[i * HIGH + j];
}

TARGET static void NAME(dots)(const float *const *a, int n, const float *b, int count, int wide, float *out) {
    const mask kept = NAME(rest)(wide);
    const float *x[BROAD], *y[HIGH];
    for (int o = 0; o < count; o += HIGH) {
        for (int j = 0; j < HIGH; j++) y[j] = b + (int64_t)(o + j < count ? o + j : count - 1) * wide; /* the last one again */
        for (int first = 0; first < n; first += BROAD) {
            for (int i = 0; i < BROAD; i++) x[i] = a[first + i < n ? first + i : n - 1];
            NAME(dot)(x, y, wide, kept, out + (int64_t)first * count + o, count, n - first, count - o);
        }
    }
}

TARGET static void NAME(pack)(const float *const *rows, int n, int64_t first, int vecs, float *panel, const float **packed) {
    for (int i = 0; i < n; i++, panel += vecs * LANES) {
        for (int v = 0; v < vecs; v++) *(loose *)(panel + v * LANES) = NAME(at)(rows[i] + first + v * LANES);
        packed[i] = panel - first;
    }
}

/* A sum comes to its place; in the last register, what others have stays as it is. */
TARGET INLINE void NAME(put)(const Sums *s, float *place, vec sum, mask kept, const int last) {
    vec before = s->add || last ? NAME(at)(place) : (vec){0};
    if (last && !s->add) before = NAME(cut)(before, ~kept);
    *(loose *)place = before + s->times * sum;
}

TARGET INLINE void NAME(block)(const Sums *s, int from, int64_t first, mask kept, const int vecs, const int last) {
    const float *c[HIGH];
    vec sum[HIGH * BROAD], here[BROAD];
    for (int j = 0; j < HIGH; j++) c[j] = s->c + (from + j < s->count ? from + j : s->count - 1) * s->along;
    UNROLL for (int i = 0; i < HIGH * vecs; i++) sum[i] = (vec){0};
    for (int i = 0; i < s->n; i++) {
        const float *row = s->rows[i] + first;
        UNROLL for (int v = 0; v < vecs; v++) here[v] = last ? NAME(cut)(NAME(at)(row), kept) : NAME(at)(row + v * LANES);
        UNROLL for (int j = 0; j < HIGH; j++)
            UNROLL for (int v = 0; v < vecs; v++) sum[j * vecs + v] += c[j][i * s->across] * here[v];
    }
    float *place = s->into + (int64_t)from * s->wide + first;
    UNROLL for (int j = 0; j < HIGH; j++, place += s->wide) {
        if (from + j == s->count) return;
        UNROLL for (int v = 0; v < vecs; v++) NAME(put)(s, place + v * LANES, sum[j * vecs + v], kept, last);
    }
}

TARGET static void NAME(sums)(const Sums *s, int from, int64_t first, int vecs) {
#define CASE(v) case v: NAME(block)(s, from, first, (mask){0}, v <= BROAD ? v : 0, 0); break;
    switch (vecs) {
        case 0: NAME(block)(s, from, s->wide - LANES, NAME(rest)(s->wide), 1, 1); break;
        CASE(1) CASE(2) CASE(3) CASE(4) CASE(5)
    }
#undef CASE
}

TARGET INLINE void NAME(list)(const Sums *s, const Entry *list, int count, int j, int64_t first, mask kept, const int vecs,
                              const int last) {
    vec sum[MOST];
    UNROLL for (int v = 0; v < vecs; v++) sum[v] = (vec){0};
    for (int i = 0; i < count; i++) {
        const float *row = s->rows[list[i].where] + first, value = list[i].value;
        UNROLL for (int v = 0; v < vecs; v++)
            sum[v] += value * (last ? NAME(cut)(NAME(at)(row), kept) : NAME(at)(row + v * LANES));
    }
    float *place = s->into + (int64_t)j * s->wide + first;
    UNROLL for (int v = 0; v < vecs; v++) NAME(put)(s, place + v * LANES, sum[v], kept, last);
}

TARGET static void NAME(lists)(const Sums *s, const Entry *list, const int32_t *counts, int from, int64_t first, int vecs) {
    const int64_t n = s->n;
#define CASE(v) case v: NAME(list)(s, list + j * n, counts[j], j, first, (mask){0}, v, 0); break;
    for (int j = from; j < from + HIGH && j < s->count; j++)
        switch (vecs) {
            case 0: NAME(list)(s, list + j * n, counts[j], j, s->wide - LANES, NAME(rest)(s->wide), 1, 1); break;
            CASE(1) CASE(2) CASE(3) CASE(4) CASE(5) CASE(6) CASE(7) CASE(8)
        }
#undef CASE
}

static const Products NAME(products) = {NAME(dots), NAME(sums), NAME(lists), LISTED, NAME(pack), LANES, HIGH, BROAD, MOST};
#undef vec
#undef loose
#undef mask
#undef EACH
#undef QUADS
