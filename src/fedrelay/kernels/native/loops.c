/* The inner loops of LSTM layers for several kinds of processors. Here products are fused with additions where the processor
   can, as in conv_kernels.c. */
#if defined(__clang__)
#pragma clang fp contract(fast)
#elif defined(__GNUC__)
#pragma GCC optimize("fp-contract=fast")
#endif
#include "loops.h"

#include <string.h>

#define INLINE static inline __attribute__((always_inline))
#define UNROLL _Pragma("GCC unroll 32")

#if defined(__x86_64__)
#define NAME(x) x##_512
#define TARGET __attribute__((target("avx512f")))
#define LANES 16
#define ROWS 12
#define TALL 2
#include "tile.h"
#undef NAME
#undef TARGET
#undef LANES
#undef ROWS
#undef TALL

#define NAME(x) x##_256
#define TARGET __attribute__((target("avx2,fma")))
#define LANES 8
#define ROWS 6
#define TALL 1
#include "tile.h"
#undef NAME
#undef TARGET
#undef LANES
#undef ROWS
#undef TALL
#endif

#define NAME(x) x##_128
#define TARGET
#define LANES 4
#define ROWS 3
#define TALL 1
#include "tile.h"

const Loops *loops(void) {
#if defined(__x86_64__)
    const int lanes = kernels()->lanes;
    if (lanes == 16) return &loops_512;
    if (lanes == 8) return &loops_256;
#endif
    return &loops_128;
}
