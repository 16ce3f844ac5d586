/* The inner loops of Winograd's filtering for several kinds of processors; as in conv_kernels.c, bits depend on their kind. */
#if defined(__clang__)
#pragma clang fp contract(fast)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=fast")
#endif
#include "tiling.h"

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 64")
#define ROWS 6
#define AHEAD 64 /* numbers from what is turned to what is fetched */

/* Larger tiles have these points and their negatives, besides 0 and infinity: rounding errors are less than half of those at
   1 and 2. And what weights are multiplied by at each: 1 / the product of its distances from the others. */
#define A 0.75f
#define B 1.5f
#define AA (A * A)
#define BB (B * B)
#define AT_0 (1 / (AA * BB))
#define AT_A (1 / (2 * AA * (AA - BB)))
#define AT_B (1 / (2 * BB * (BB - AA)))

#if defined(__x86_64__)
#define TARGET __attribute__((target("avx512f")))
#define LANES 16
#define VECS 4
#define OUT 2
#define NAME(x) x##_512_2
#include "tiles.h"
#undef OUT
#undef NAME
#define OUT 4
#define NAME(x) x##_512_4
#include "tiles.h"
#undef OUT
#undef NAME
#undef TARGET
#undef LANES
#undef VECS

#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define VECS 2
#define OUT 2
#define NAME(x) x##_256_2
#include "tiles.h"
#undef OUT
#undef NAME
#define OUT 4
#define NAME(x) x##_256_4
#include "tiles.h"
#undef OUT
#undef NAME
#undef TARGET
#undef LANES
#undef VECS
#endif

#define TARGET
#define LANES 4
#define VECS 2
#define OUT 2
#define NAME(x) x##_128_2
#include "tiles.h"
#undef OUT
#undef NAME
#define OUT 4
#define NAME(x) x##_128_4
#include "tiles.h"

const Tiling *tiling(int out) {
#if defined(__x86_64__)
    if (kernels()->lanes == 16) return out == 2 ? &tiling_512_2 : &tiling_512_4;
    if (kernels()->lanes == 8) return out == 2 ? &tiling_256_2 : &tiling_256_4;
#endif
    return out == 2 ? &tiling_128_2 : &tiling_128_4;
}
