/* Products of matrices whose rows are long, for several kinds of processors. As in conv_kernels.c, products are fused with
   additions, so bits depend on the kind. They depend on nothing else: neither on where rows lie nor on whether zeros are left
   out. */
#if defined(__clang__)
#pragma clang fp contract(fast)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=fast")
#endif
#include "products.h"

#include <string.h>

#if defined(__x86_64__)
#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")
#define MOST 8

typedef float quad __attribute__((vector_size(16)));
#if defined(__clang__) || __GNUC__ >= 12
#define PICK(a, b, ...) __builtin_shufflevector(a, b, __VA_ARGS__)
#define SHUFFLE PICK
#else
typedef int32_t whole __attribute__((vector_size(16)));
#define PICK(a, b, ...) __builtin_shuffle(a, b, (whole){__VA_ARGS__})
#endif

/* The sums of the numbers of four quads each. */
INLINE quad totals(const quad *q) {
    const quad one = PICK(q[0], q[1], 0, 4, 1, 5) + PICK(q[0], q[1], 2, 6, 3, 7);
    const quad two = PICK(q[2], q[3], 0, 4, 1, 5) + PICK(q[2], q[3], 2, 6, 3, 7);
    return PICK(one, two, 0, 1, 4, 5) + PICK(one, two, 2, 3, 6, 7);
}

#include "listing.h"

#define NAME(x) x##_512
#define TARGET __attribute__((target("avx512f")))
#define LISTED listed_512
#define LANES 16
#define HIGH 5
#define BROAD 5
#define ROOM 32 /* for HIGH x BROAD sums, in as many as are added up at once */
#include "rows.h"
#undef NAME
#undef TARGET
#undef LISTED
#undef LANES
#undef HIGH
#undef BROAD
#undef ROOM

#define NAME(x) x##_256
#define TARGET __attribute__((target("avx2,fma")))
#define LISTED listed
#define LANES 8
#define HIGH 4
#define BROAD 3
#define ROOM 12
#include "rows.h"

enum { LONG = 48 }; /* of rows shorter than this a BLAS is as quick */

const Products *products(int64_t wide) {
    const int lanes = kernels()->lanes;
    return wide < LONG ? 0 : lanes == 16 ? &products_512 : lanes == 8 ? &products_256 : 0;
}
#else
const Products *products(int64_t wide) { /* a BLAS knows other processors better */
    (void)wide;
    return 0;
}
#endif

/* Numbers of rows that stay next to the processor; sums of which it is worth while to lay rows side by side. */
enum { NEAR = 6144, MANY = 16 };

/* Make sums of at most ROWS rows. */
static void sum_some(const Sums *asked, float *scratch, const float *const *ahead, int ahead_count) {
    const Products *use = products(asked->wide);
    const int64_t n = asked->n, count = asked->count, wide = asked->wide, lanes = use->lanes, whole = wide / lanes;
    Entry *const list = (Entry *)scratch;
    int32_t *const counts = (int32_t *)(scratch + 2 * ROWS * count);
    float *const panel = (float *)counts + lines(count);
    const float **const packed = (const float **)(panel + ROWS * PANEL);
    const int sparse = asked->sparse && 4 * use->listed(asked, list, counts) < 3 * n * count;
    int64_t most = sparse ? NEAR / (lanes * n) : use->broad;
    most = most < use->most ? most : use->most;
    const int64_t shares = (whole + most - 1) / most, each = (whole + shares - 1) / shares;
    Sums s = *asked;
    for (int64_t first = 0, numbers; first < wide; first += numbers) {
        const int64_t left = whole - first / lanes, vecs = left < each ? left : each; /* none are left for the rest */
        numbers = vecs ? vecs * lanes : wide - first;
        if (count > MANY && vecs) use->pack(asked->rows, asked->n, first, (int)vecs, panel, packed);
        s.rows = count > MANY && vecs ? packed : asked->rows;
        for (int from = 0; from < count; from += use->high) {
            const int64_t until = from + use->high < count ? from + use->high : count; /* so many of the rows ahead, too */
            for (int64_t i = ahead_count * from / count; i < ahead_count * until / count; i++)
                for (int64_t k = 0; k < numbers; k += LINE) __builtin_prefetch(ahead[i] + first + k, 0, 2);
            if (sparse) use->lists(&s, list, counts, from, first, (int)vecs);
            else use->sums(&s, from, first, (int)vecs);
        }
    }
}

void sum_rows(const Sums *asked, float *scratch, const float *const *ahead, int ahead_count) {
    const int n = asked->n, shares = (n + ROWS - 1) / ROWS;
    for (int share = 0; share < shares; share++) {
        const int64_t from = (int64_t)n * share / shares, to = (int64_t)n * (share + 1) / shares;
        const int64_t begin = (int64_t)ahead_count * share / shares, end = (int64_t)ahead_count * (share + 1) / shares;
        Sums some = *asked;
        some.rows += from, some.n = (int)(to - from), some.c += from * asked->across, some.add = asked->add || share;
        sum_some(&some, scratch, ahead + begin, (int)(end - begin));
    }
}
